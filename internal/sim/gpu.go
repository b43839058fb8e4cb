package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
)

// gpuExporter is NVIDIA's dcgm-exporter on a node: its GPUs are those of some engines, and as busy.
type gpuExporter struct {
	fleet *Fleet
	spec  Member
	rng   *rand.Rand
	reg   *registry
	gpus  []*gpu
	down  bool
}

type gpu struct {
	sv                                               *server
	lastBusy                                         float64 // seconds of forward passes of its engine when last looked at
	util, copyUtil, used, free, power, temp, memTemp *metric
	clock, energy, xid, sm, occupancy, tensor, dram  *metric
	graphics, pcieOut, pcieIn, nvlinkOut, nvlinkIn   *metric
	memory, weights                                  float64 // MiB
	watts                                            float64
}

// gpuEvery is how many ticks lie between two readings of a GPU.
const gpuEvery = 20

func newGPUExporter(f *Fleet, spec Member, engines []*server) *gpuExporter {
	x := &gpuExporter{fleet: f, spec: spec, rng: source(f.cfg.Seed, spec.Name), reg: newRegistry(rust)}
	n := 0
	for _, sv := range engines {
		for range sv.spec.TP * max(1, sv.spec.DP) {
			ls := labels{
				{"Hostname", spec.Name}, {"UUID", fmt.Sprintf("GPU-%016x", mix(uint64(sv.pid)<<8+uint64(n)))}, {"device", "nvidia" + strconv.Itoa(n)},
				{"gpu", strconv.Itoa(n)}, {"modelName", "NVIDIA H100 80GB HBM3"}, {"pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", 0x19+0x11*n)},
			}
			n++
			gauge := func(name, help string) *metric { return x.reg.gauge("DCGM_FI_"+name, help, ls).fromStart() }
			x.gpus = append(x.gpus, &gpu{
				sv: sv, memory: 81559, weights: 78600, watts: 130,
				util:      gauge("DEV_GPU_UTIL", "GPU utilization (in %)."),
				copyUtil:  gauge("DEV_MEM_COPY_UTIL", "Memory utilization (in %)."),
				used:      gauge("DEV_FB_USED", "Framebuffer memory used (in MiB)."),
				free:      gauge("DEV_FB_FREE", "Framebuffer memory free (in MiB)."),
				power:     gauge("DEV_POWER_USAGE", "Power draw (in W)."),
				energy:    x.reg.counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", ls).fromStart(),
				temp:      gauge("DEV_GPU_TEMP", "GPU temperature (in C)."),
				memTemp:   gauge("DEV_MEMORY_TEMP", "Memory temperature (in C)."),
				clock:     gauge("DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
				xid:       gauge("DEV_XID_ERRORS", "Value of the last XID error encountered."),
				graphics:  gauge("PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active."),
				sm:        gauge("PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned."),
				occupancy: gauge("PROF_SM_OCCUPANCY", "The ratio of number of warps resident on an SM."),
				tensor:    gauge("PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active."),
				dram:      gauge("PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active sending or receiving data."),
				pcieOut:   gauge("PROF_PCIE_TX_BYTES", "The rate of data transmitted over the PCIe bus, in bytes per second."),
				pcieIn:    gauge("PROF_PCIE_RX_BYTES", "The rate of data received over the PCIe bus, in bytes per second."),
				nvlinkOut: gauge("PROF_NVLINK_TX_BYTES", "The rate of data transmitted over NVLink, in bytes per second."),
				nvlinkIn:  gauge("PROF_NVLINK_RX_BYTES", "The rate of data received over NVLink, in bytes per second."),
			})
		}
	}
	for _, g := range x.gpus {
		x.read(g)
	}
	return x
}

// tick reads the GPUs, once a second.
func (x *gpuExporter) tick() {
	if x.fleet.ticks%gpuEvery != 0 {
		return
	}
	for _, g := range x.gpus {
		x.read(g)
	}
}

func (x *gpuExporter) read(g *gpu) {
	busy, tokens, batch := 0.0, 0.0, 0
	for _, s := range g.sv.scheds {
		busy += s.busy / float64(len(g.sv.scheds))
		tokens += s.seqLens
		batch += len(s.batch)
	}
	seconds := gpuEvery * Tick.Seconds()
	share := min(1, max(0, busy-g.lastBusy)/seconds)
	g.lastBusy = busy
	noise := 0.02 * x.rng.NormFloat64()
	sm := min(0.98, max(0, share*(0.55+0.002*float64(min(batch, 128)))+share*noise))
	dram := min(0.95, share*(0.45+0.35*min(1, tokens/150000)))
	g.util.set(math.Round(100 * share))
	g.copyUtil.set(math.Round(100 * dram))
	used := g.weights
	if g.sv.down {
		used = 4
	}
	g.used.set(used)
	g.free.set(g.memory - used)
	g.watts += 0.3 * (110 + 540*sm + 30*noise - g.watts)
	g.power.set(math.Round(g.watts*1000) / 1000)
	g.energy.add(math.Round(g.watts * 1000 * seconds))
	g.temp.set(math.Round(31 + 0.055*g.watts))
	g.memTemp.set(math.Round(38 + 0.062*g.watts))
	clock := 1980.0
	if g.sv.slow >= 3 {
		clock = 345 // throttled
	}
	g.clock.set(clock)
	g.xid.set(0)
	g.graphics.set(share)
	g.sm.set(sm)
	g.occupancy.set(sm * 0.28)
	g.tensor.set(sm * 0.41)
	g.dram.set(dram)
	g.pcieOut.set(math.Round(share * 3.1e8))
	g.pcieIn.set(math.Round(share * 4.4e8))
	link := 0.0
	if g.sv.spec.TP > 1 || g.sv.prefillOnly() || g.sv.decodeOnly() {
		link = math.Round(share * 2.6e10)
	}
	g.nvlinkOut.set(link)
	g.nvlinkIn.set(link)
}
