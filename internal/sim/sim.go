// Package sim is a simulated fleet of LLM serving engines: a pure, seeded model of requests, queues,
// KV pools and forward passes, with faults to order, rendered as the expositions that SGLang, its
// router, vLLM and NVIDIA Dynamo would serve. Its entry point is [New]; [Serve] and [Replay] drive a
// fleet over HTTP in real time and on a virtual clock.
package sim

import (
	"fmt"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// Kind is what program a member of the fleet is.
type Kind string

// Kinds of members.
const (
	SGLang         Kind = "sglang"          // an engine; its Role tells unified, prefill or decode
	Router         Kind = "router"          // SGLang's model gateway: smg_* metrics and /engine_metrics of its workers
	VLLM           Kind = "vllm"            // a vLLM engine (V1)
	DynamoFrontend Kind = "dynamo_frontend" // NVIDIA Dynamo's HTTP frontend
	DynamoWorker   Kind = "dynamo_worker"   // NVIDIA Dynamo's SGLang worker: its own metrics and the engine's
	DCGM           Kind = "dcgm"            // dcgm-exporter: the GPUs of the engines in Workers
)

// Hardware is how fast an engine is and what it holds. Zero fields take the defaults of a
// mid-size model on one 8-GPU node.
type Hardware struct {
	Prefill        float64 // prompt tokens per second in a prefill pass
	PrefillPass    float64 // seconds of a prefill pass besides its tokens
	Chunk          int     // tokens of a prefill pass at most (--chunked-prefill-size)
	Step           float64 // seconds of a decode step ...
	StepPerRequest float64 // ... plus this per request in the batch
	StepPerToken   float64 // ... plus this per token of context in the batch
	MaxRunning     int     // requests in a batch at most, per DP rank
	KVTokens       int     // KV pool, tokens per DP rank
	KVBytes        float64 // bytes of KV per token
	LinkGBs        float64 // prefill engine: GiB/s towards the decode engines
}

func (h Hardware) withDefaults() Hardware {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	defInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&h.Prefill, 24000)
	def(&h.PrefillPass, 0.012)
	defInt(&h.Chunk, 8192)
	def(&h.Step, 0.0115)
	def(&h.StepPerRequest, 0.00009)
	def(&h.StepPerToken, 2.2e-8)
	defInt(&h.MaxRunning, 256)
	defInt(&h.KVTokens, 262144)
	def(&h.KVBytes, 131072)
	def(&h.LinkGBs, 22)
	return h
}

// Member is one process of the fleet. Names are unique.
type Member struct {
	Name    string
	Kind    Kind
	Role    engine.Role // of an engine: engine.Unified (default), engine.Prefill, engine.Decode
	Version string      // "0.5.18" (default), "0.5.15", ... of SGLang; of a router "0.3.1" (default) or "1.3.3"
	Model   string      // served model name
	Addr    string      // host:port under which it is scraped; "" = a made-up one
	Workers []string    // of a router, frontend or dcgm-exporter: names of engines

	TP, DP   int // tensor-parallel size and data-parallel size; 0 means 1. Without DP there is no dp_rank label
	Hardware Hardware

	Speculative     bool // speculative decoding, 3 steps of 4 draft tokens
	MoE             bool // mixture of experts: EPLB balancedness, device timer, DP cooperation
	HiCacheTokens   int  // host tier of the KV cache, tokens; 0 = off. A Dynamo worker shows it as KVBM too
	TokenHistograms bool // --collect-tokens-histogram
	Extended        bool // LoRA, streaming sessions, MFU, prefill delayer, HiCache storage: every optional family
}

// Config describes a fleet. The same Config gives the same bytes at the same times.
type Config struct {
	Seed    uint64
	Start   time.Time // simulated time at which the fleet starts; zero = 2026-09-01 09:00 UTC
	Members []Member
	Loads   []Load
	Faults  []Fault
}

// Tick is the grain of the model: members exchange requests at multiples of it, and Advance runs
// whole ticks only, so that the state at a time does not depend on the steps by which it was reached.
const Tick = 50 * time.Millisecond

// Fleet is a simulated fleet. It is not safe for concurrent use.
type Fleet struct {
	cfg        Config
	startOfDay float64 // seconds since midnight UTC at the start
	ticks      int64
	now        float64 // seconds since the start
	lastID     uint64
	members    []*member
	servers    []*server
	fronts     []*front
	exporters  []*gpuExporter
	loads      []*load
	byName     map[string]*member
	orders     []*order
	beginning  time.Duration // length of the fault that is beginning or ending
	targets    []*target
	targetOf   map[string]*target
	watches    []Watch
}

// member is one process and how it is shown.
type member struct {
	name   string
	spec   Member
	server *server // of an engine
	front  *front  // of a router or frontend
	gpus   *gpuExporter
	regs   []*registry
	began  time.Duration // start of the process since the fleet's start
	wire   wireFault
}

// New builds the fleet. The error names the member or load that is not possible.
func New(cfg Config) (*Fleet, error) {
	if cfg.Start.IsZero() {
		cfg.Start = time.Date(2026, 9, 1, 9, 0, 0, 0, time.UTC)
	}
	midnight := cfg.Start.UTC().Truncate(24 * time.Hour)
	f := &Fleet{cfg: cfg, startOfDay: cfg.Start.Sub(midnight).Seconds(), byName: map[string]*member{}, targetOf: map[string]*target{}}
	for i, spec := range cfg.Members {
		if err := f.addMember(i, spec); err != nil {
			return nil, err
		}
	}
	for _, m := range f.members {
		if m.server == nil {
			if err := f.connect(m); err != nil {
				return nil, err
			}
		}
	}
	for i, spec := range cfg.Loads {
		if err := f.addLoad(i, spec); err != nil {
			return nil, err
		}
	}
	f.makeTargets()
	for _, fault := range cfg.Faults {
		if err := f.Order(fault); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Fleet) addMember(i int, spec Member) error {
	if spec.Name == "" || f.byName[spec.Name] != nil {
		return fmt.Errorf("sim: member %d: name %q is empty or taken", i, spec.Name)
	}
	if spec.Role == "" && (spec.Kind == SGLang || spec.Kind == VLLM || spec.Kind == DynamoWorker) {
		spec.Role = engine.Unified
	}
	spec.TP, spec.DP = max(spec.TP, 1), max(spec.DP, 0)
	if spec.DP > 10 {
		return fmt.Errorf("sim: member %q: DP %d, at most 10", spec.Name, spec.DP)
	}
	if spec.Model == "" {
		spec.Model = "Qwen/Qwen3-32B"
	}
	if spec.Addr == "" {
		spec.Addr = fmt.Sprintf("10.7.%d.%d:%d", i/200, 11+i%200, defaultPort(spec.Kind))
	}
	spec.Hardware = spec.Hardware.withDefaults()
	m := &member{name: spec.Name, spec: spec}
	f.byName[spec.Name] = m
	f.members = append(f.members, m)
	switch spec.Kind {
	case SGLang, VLLM, DynamoWorker:
		m.server = &server{fleet: f, name: spec.Name, spec: spec, slow: 1, slowLink: 1, pid: 4100 + i*97}
		for rank := range max(spec.DP, 1) {
			m.server.scheds = append(m.server.scheds, newScheduler(m.server, rank))
		}
		f.servers = append(f.servers, m.server)
		var err error
		switch spec.Kind {
		case VLLM:
			m.regs = newVLLM(m.server)
		case DynamoWorker:
			m.regs, err = newDynamoWorker(m.server)
		default:
			m.regs, err = newSGLang(m.server)
		}
		if err != nil {
			return err
		}
		m.spec = m.server.spec // with its version
	case Router, DynamoFrontend:
		m.front = &front{fleet: f, name: spec.Name, spec: spec, perWork: map[*server]int{}}
		f.fronts = append(f.fronts, m.front)
	case DCGM: // built when the engines are there
	default:
		return fmt.Errorf("sim: member %q: kind %q is not known", spec.Name, spec.Kind)
	}
	return nil
}

// down tells whether nobody listens at the member's address.
func (m *member) down() bool {
	switch {
	case m.server != nil:
		return m.server.down
	case m.front != nil:
		return m.front.down
	}
	return m.gpus.down
}

func defaultPort(k Kind) int {
	switch k {
	case VLLM, DynamoFrontend:
		return 8000
	case DynamoWorker:
		return 9090
	case DCGM:
		return 9400
	}
	return 30000
}

// connect gives a router, frontend or exporter its workers.
func (f *Fleet) connect(m *member) error {
	var servers []*server
	for _, name := range m.spec.Workers {
		w := f.byName[name]
		if w == nil || w.server == nil {
			return fmt.Errorf("sim: member %q: worker %q is not an engine of the fleet", m.name, name)
		}
		servers = append(servers, w.server)
	}
	if m.spec.Kind == DCGM {
		m.gpus = newGPUExporter(f, m.spec, servers)
		m.regs = []*registry{m.gpus.reg}
		f.exporters = append(f.exporters, m.gpus)
		return nil
	}
	fr := m.front
	for _, w := range servers {
		switch w.spec.Role {
		case engine.Prefill:
			fr.prefills = append(fr.prefills, w)
		case engine.Decode:
			fr.decodes = append(fr.decodes, w)
		default:
			fr.workers = append(fr.workers, w)
		}
	}
	if len(fr.workers)+min(len(fr.prefills), len(fr.decodes)) == 0 {
		return fmt.Errorf("sim: member %q: needs a unified worker, or a prefill and a decode worker", m.name)
	}
	if m.spec.Kind == Router {
		m.regs = newRouter(fr)
	} else {
		m.regs = newDynamoFrontend(fr)
	}
	return nil
}

func (f *Fleet) addLoad(i int, spec Load) error {
	if spec.Name == "" {
		spec.Name = fmt.Sprintf("load%d", i)
	}
	l := &load{fleet: f, spec: spec, rng: source(f.cfg.Seed, "load/"+spec.Name), factor: 1, longer: 1}
	var engines direct
	for _, name := range spec.To {
		m := f.byName[name]
		switch {
		case m == nil:
			return fmt.Errorf("sim: load %q: no member %q", spec.Name, name)
		case m.front != nil && len(spec.To) > 1:
			return fmt.Errorf("sim: load %q: %q takes the whole load, it cannot be one of several", spec.Name, name)
		case m.front != nil:
			l.sink = m.front
			l.servers = append(append(append(l.servers, m.front.workers...), m.front.prefills...), m.front.decodes...)
		case m.server == nil:
			return fmt.Errorf("sim: load %q: %q takes no requests", spec.Name, name)
		default:
			engines = append(engines, m.server)
			l.servers = append(l.servers, m.server)
		}
	}
	if l.sink == nil {
		if len(engines) == 0 {
			return fmt.Errorf("sim: load %q: goes nowhere", spec.Name)
		}
		l.sink = engines
	}
	switch spec.Kind {
	case Chat:
		if spec.Rate <= 0 || spec.Daily < 0 || spec.Daily > 1 {
			return fmt.Errorf("sim: load %q: rate %g must be above 0, daily %g within 0..1", spec.Name, spec.Rate, spec.Daily)
		}
		l.burstAt = 60 * l.rng.ExpFloat64()
		l.burst = true
	case Rollout:
		if spec.Groups <= 0 || spec.Samples <= 0 {
			return fmt.Errorf("sim: load %q: a rollout needs groups and samples", spec.Name)
		}
		l.next = spec.FirstWave.Seconds()
	default:
		return fmt.Errorf("sim: load %q: kind %q is not known", spec.Name, spec.Kind)
	}
	f.loads = append(f.loads, l)
	return nil
}

// Start is the simulated time at which the fleet started.
func (f *Fleet) Start() time.Time { return f.cfg.Start }

// Now is the simulated time that has been reached.
func (f *Fleet) Now() time.Time { return f.cfg.Start.Add(time.Duration(f.ticks) * Tick) }

// Advance runs the model up to t, in whole ticks. A t that is not later than Now does nothing.
func (f *Fleet) Advance(t time.Time) {
	want := int64(t.Sub(f.cfg.Start) / Tick)
	for f.ticks < want {
		lo := float64(f.ticks) * Tick.Seconds()
		hi := float64(f.ticks+1) * Tick.Seconds()
		f.now = lo
		f.applyFaults(time.Duration(f.ticks) * Tick)
		for _, l := range f.loads {
			l.advance(lo, hi)
		}
		for _, sv := range f.servers {
			sv.advance(lo, hi)
		}
		for _, fr := range f.fronts {
			fr.obs.tick(fr, hi)
		}
		for _, x := range f.exporters {
			x.tick()
		}
		f.ticks++
		f.now = hi
	}
}
