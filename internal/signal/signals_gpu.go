package signal

import "github.com/rollscope/rollscope/internal/engine"

// gpuSignals are read from dcgm-exporter. Of several GPUs a use is their mean, a memory or power their
// sum, a temperature the hottest one's. A GPU that two jobs scrape counts once.
func gpuSignals() []Signal {
	const group = "GPU"
	gpu := func(field string, more ...func(*Source)) []Source {
		s := Source{Backend: engine.DCGM, Name: "dcgm-exporter", Num: leader("DCGM_FI_"+field, "", "gpu", "UUID")}
		for _, f := range more {
			f(&s)
		}
		return []Source{s}
	}
	percent := func(s *Source) { s.Scale = 0.01 }
	mebibytes := func(s *Source) { s.Scale = 1024 * 1024 }
	return []Signal{
		{
			ID: "gpu_util", Title: "GPU utilization", Short: "GPU", Group: group, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Share of time in which a kernel ran.",
			Trap:    "A kernel on one multiprocessor counts as fully used: gpu_sm_active says more.",
			Sources: gpu("DEV_GPU_UTIL", percent),
		},
		{
			ID: "gpu_sm_active", Title: "GPU multiprocessors active", Short: "SM", Group: group, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Share of cycles in which a multiprocessor had a warp.", Sources: gpu("PROF_SM_ACTIVE"),
		},
		{
			ID: "gpu_tensor_active", Title: "Tensor cores active", Short: "Tensor", Group: group, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Share of cycles in which the tensor pipe was active.", Sources: gpu("PROF_PIPE_TENSOR_ACTIVE"),
		},
		{
			ID: "gpu_dram_active", Title: "GPU memory interface active", Short: "DRAM", Group: group, Unit: "ratio", Kind: Share,
			Meaning: "Share of cycles in which the memory interface was active.", Sources: gpu("PROF_DRAM_ACTIVE"),
		},
		{
			ID: "gpu_mem_copy_util", Title: "GPU memory utilization", Short: "Mem", Group: group, Unit: "ratio", Kind: Share,
			Meaning: "Share of time in which memory was read or written.", Sources: gpu("DEV_MEM_COPY_UTIL", percent),
		},
		{
			ID: "gpu_memory", Title: "GPU memory used", Short: "VRAM", Group: group, Unit: "bytes", Kind: Level,
			Meaning: "GPU memory in use.",
			Trap:    "SGLang and vLLM reserve most of it at start: it says nothing about load.",
			Sources: gpu("DEV_FB_USED", mebibytes),
		},
		{
			ID: "gpu_memory_free", Title: "GPU memory free", Short: "Free", Group: group, Unit: "bytes", Kind: Level,
			Meaning: "Free GPU memory.", Sources: gpu("DEV_FB_FREE", mebibytes),
		},
		{
			ID: "gpu_power", Title: "GPU power", Short: "Power", Group: group, Unit: "watts", Kind: Level,
			Meaning: "Power draw of the GPUs.", Sources: gpu("DEV_POWER_USAGE"),
		},
		{
			ID: "gpu_temperature", Title: "GPU temperature", Short: "Temp", Group: group, Unit: "celsius", Kind: Worst,
			Meaning: "Temperature of the hottest GPU.", Sources: gpu("DEV_GPU_TEMP"),
		},
		{
			ID: "gpu_xid", Title: "GPU XID error", Short: "XID", Group: group, Unit: "1", Kind: Worst,
			Meaning: "Number of the last XID error, 0 for none.",
			Trap:    "A code, not a count.", Sources: gpu("DEV_XID_ERRORS"),
		},
		{
			ID: "gpu_nvlink", Title: "NVLink traffic", Short: "NVLink", Group: group, Unit: "bytes/s", Kind: Level,
			Meaning: "Data sent and received over NVLink per second.",
			Sources: []Source{{Backend: engine.DCGM, Name: "dcgm-exporter", Num: Vec{
				{Metric: "DCGM_FI_PROF_NVLINK_TX_BYTES", Ranks: RankLeader, Parts: []string{"gpu", "UUID"}},
				{Metric: "DCGM_FI_PROF_NVLINK_RX_BYTES", Ranks: RankLeader, Parts: []string{"gpu", "UUID"}},
			}}},
		},
		{
			ID: "gpu_pcie", Title: "PCIe traffic", Short: "PCIe", Group: group, Unit: "bytes/s", Kind: Level,
			Meaning: "Data sent and received over PCIe per second.",
			Sources: []Source{{Backend: engine.DCGM, Name: "dcgm-exporter", Num: Vec{
				{Metric: "DCGM_FI_PROF_PCIE_TX_BYTES", Ranks: RankLeader, Parts: []string{"gpu", "UUID"}},
				{Metric: "DCGM_FI_PROF_PCIE_RX_BYTES", Ranks: RankLeader, Parts: []string{"gpu", "UUID"}},
			}}},
		},
	}
}
