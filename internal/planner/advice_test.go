package planner

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// en is an engine's last message: queued prefill tokens, KV in the batch, KV in the queue.
func en(worker string, queued, kv, queuedKV int64) Iteration {
	return Iteration{Worker: worker, QueuedPrefillTokens: queued, SumDecodeKVTokens: kv, QueuedDecodeKVTokens: queuedKV}
}

func ptr[T any](v T) *T { return &v }

var handCaps = map[Component]Caps{
	PrefillPool: {MaxBatchedTokens: 8192, ContextLength: 10000, GPUs: 1},
	DecodePool:  {MaxBatchedTokens: 8192, MaxKVTokens: 1_000_000, GPUs: 1},
}

// taught makes a planner whose models have the lines that were worked out by hand, see handPrefill.
func taught(t testing.TB, cfg Config, caps map[Component]Caps) *Planner {
	t.Helper()
	cfg.ColdStartPasses = 0
	p, err := New(cfg, caps)
	if err != nil {
		t.Fatal(err)
	}
	for c, x := range p.pools {
		hand := map[Role]func(testing.TB) *Model{Prefill: handPrefill, Decode: handDecode, Aggregated: handAgg}[x.all.role]
		x.all, x.own = hand(t), hand(t)
		p.pools[c] = x
	}
	return p
}

func config(mode Mode, target Target, change ...func(*Config)) Config {
	c := Defaults()
	c.Mode, c.Target, c.EnableLoad, c.EnableThroughput = mode, target, true, false
	for _, f := range change {
		f(&c)
	}
	return c
}

func withThresholds(c *Config) {
	c.PrefillUpTokens, c.PrefillDownTokens = ptr(int64(5000)), ptr(int64(500))
	c.DecodeUpKV, c.DecodeDownKV = ptr(80.0), ptr(20.0)
}

// TestAdviceTable is the table of advice in the reference, with engines on either side of every threshold.
func TestAdviceTable(t *testing.T) {
	type want struct {
		prefill, decode int // 0: the mode has no such pool
		reason          Reason
	}
	for _, c := range []struct {
		name            string
		cfg             Config
		prefill, decode []Iteration
		want            want
	}{
		// throughput, prefill: queue over context_length (10000), any >= 1 up, all < 0.1 down.
		{"queue at the context's length", config(ModePrefill, TargetThroughput), []Iteration{en("1", 10000, 0, 0), en("2", 0, 0, 0)}, nil, want{3, 0, ScaleUp}},
		{"queue a token below it", config(ModePrefill, TargetThroughput), []Iteration{en("1", 9999, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, NoChange}},
		{"queue at a tenth", config(ModePrefill, TargetThroughput), []Iteration{en("1", 1000, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, NoChange}},
		{"queues below a tenth", config(ModePrefill, TargetThroughput), []Iteration{en("1", 999, 0, 0), en("2", 0, 0, 0)}, nil, want{1, 0, ScaleDown}},
		{"the last replica stays", config(ModePrefill, TargetThroughput), []Iteration{en("1", 0, 0, 0)}, nil, want{1, 0, NoChange}},
		{"min_endpoint stays", config(ModePrefill, TargetThroughput, func(c *Config) { c.MinPrefill = 2 }), []Iteration{en("1", 0, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, NoChange}},
		// throughput, decode: KV in batch and queue over max_kv (1000000), any > 1 up, all < 0.6 down.
		{"cache exactly full", config(ModeDecode, TargetThroughput), nil, []Iteration{en("1", 0, 900_000, 100_000), en("2", 0, 0, 0)}, want{0, 2, NoChange}},
		{"cache overfull", config(ModeDecode, TargetThroughput), nil, []Iteration{en("1", 0, 900_000, 100_001), en("2", 0, 0, 0)}, want{0, 3, ScaleUp}},
		{"cache at 60 %", config(ModeDecode, TargetThroughput), nil, []Iteration{en("1", 0, 600_000, 0), en("2", 0, 0, 0)}, want{0, 2, NoChange}},
		{"caches below", config(ModeDecode, TargetThroughput), nil, []Iteration{en("1", 0, 599_999, 0), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		{"queued prompts do not count for decode", config(ModeDecode, TargetThroughput), nil, []Iteration{en("1", 9e6, 599_999, 0), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		{"but for agg", config(ModeAgg, TargetThroughput), nil, []Iteration{en("1", 500_001, 500_000, 0), en("2", 0, 0, 0)}, want{0, 3, ScaleUp}},
		{"agg below", config(ModeAgg, TargetThroughput), nil, []Iteration{en("1", 100_000, 499_999, 0), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		// latency: prefill any >= 0.1 up, all = 0 down; decode any > 0.4 up, all < 0.1 down.
		{"latency, a tenth", config(ModePrefill, TargetLatency), []Iteration{en("1", 1000, 0, 0), en("2", 0, 0, 0)}, nil, want{3, 0, ScaleUp}},
		{"latency, one token waits", config(ModePrefill, TargetLatency), []Iteration{en("1", 1, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, NoChange}},
		{"latency, nothing waits", config(ModePrefill, TargetLatency), []Iteration{en("1", 0, 0, 0), en("2", 0, 0, 0)}, nil, want{1, 0, ScaleDown}},
		{"latency, 40 %", config(ModeDecode, TargetLatency), nil, []Iteration{en("1", 0, 400_000, 0), en("2", 0, 0, 0)}, want{0, 2, NoChange}},
		{"latency, above 40 %", config(ModeDecode, TargetLatency), nil, []Iteration{en("1", 0, 400_001, 0), en("2", 0, 0, 0)}, want{0, 3, ScaleUp}},
		{"latency, 10 %", config(ModeAgg, TargetLatency), nil, []Iteration{en("1", 0, 100_000, 0), en("2", 0, 0, 0)}, want{0, 2, NoChange}},
		{"latency, below 10 %", config(ModeAgg, TargetLatency), nil, []Iteration{en("1", 0, 99_999, 0), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		// load: one's own thresholds, both inclusive: 5000 and 500 tokens, 80 % and 20 %.
		{"load, at the threshold", config(ModePrefill, TargetLoad, withThresholds), []Iteration{en("1", 5000, 0, 0), en("2", 0, 0, 0)}, nil, want{3, 0, ScaleUp}},
		{"load, between", config(ModePrefill, TargetLoad, withThresholds), []Iteration{en("1", 501, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, NoChange}},
		{"load, at the lower", config(ModePrefill, TargetLoad, withThresholds), []Iteration{en("1", 500, 0, 0), en("2", 0, 0, 0)}, nil, want{1, 0, ScaleDown}},
		{"load, 80 %", config(ModeDecode, TargetLoad, withThresholds), nil, []Iteration{en("1", 0, 700_000, 100_000), en("2", 0, 0, 0)}, want{0, 3, ScaleUp}},
		{"load, 20 %", config(ModeDecode, TargetLoad, withThresholds), nil, []Iteration{en("1", 0, 200_000, 0), en("2", 0, 200_000, 0)}, want{0, 1, ScaleDown}},
		{"load, agg", config(ModeAgg, TargetLoad, withThresholds), nil, []Iteration{en("1", 300_000, 500_000, 0), en("2", 0, 0, 0)}, want{0, 3, ScaleUp}},
		// sla, prefill: own prompt 4200 tokens = 220 ms, so the queue may cost (500-220)*0.8 = 224 ms after losing a replica.
		// 6000 queued: 10200 tokens in two passes = 530 ms.
		{"sla, all late", config(ModePrefill, TargetSLA), []Iteration{en("1", 6000, 0, 0), en("2", 6000, 0, 0)}, nil, want{3, 0, ScaleUp}},
		{"sla, one in time, but no room", config(ModePrefill, TargetSLA), []Iteration{en("1", 6000, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, Refusal}},
		// 1000 queued twice: 6200 tokens = 320 ms, the queue costs 100 ms.
		{"sla, room", config(ModePrefill, TargetSLA), []Iteration{en("1", 1000, 0, 0), en("2", 0, 0, 0)}, nil, want{1, 0, ScaleDown}},
		// 2240 twice: 8680 tokens in two passes = 454 ms, 234 of them the queue's.
		{"sla, a little too much", config(ModePrefill, TargetSLA), []Iteration{en("1", 2240, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, Refusal}},
		{"sla, never down", config(ModePrefill, TargetSLA, func(c *Config) { c.Sensitivity = 0 }), []Iteration{en("1", 0, 0, 0), en("2", 0, 0, 0)}, nil, want{2, 0, Refusal}},
		{"sla, one replica has nothing to give", config(ModePrefill, TargetSLA), []Iteration{en("1", 0, 0, 0)}, nil, want{1, 0, NoChange}},
		// sla, decode: 7.1 ms + 0.1 µs*(kv+1200); 430000 take 50.22 ms.
		{"sla, all slow", config(ModeDecode, TargetSLA), nil, []Iteration{en("1", 0, 430_000, 0), en("2", 0, 300_000, 130_000)}, want{0, 3, ScaleUp}},
		{"sla, one fast", config(ModeDecode, TargetSLA), nil, []Iteration{en("1", 0, 430_000, 0), en("2", 0, 0, 0)}, want{0, 2, Refusal}},
		// 160000 twice: 39.22 ms, the margin is 40 ms; 170000 twice: 41.22 ms.
		{"sla, within the margin", config(ModeDecode, TargetSLA), nil, []Iteration{en("1", 0, 100_000, 60_000), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		{"sla, beyond the margin", config(ModeDecode, TargetSLA), nil, []Iteration{en("1", 0, 170_000, 0), en("2", 0, 0, 0)}, want{0, 2, Refusal}},
		// sla, agg: TTFT of q+1000 tokens beside the decoding KV, ITL 4+20 ms+0.1 µs*(kv+1200); up when either asks.
		{"agg, slow tokens", config(ModeAgg, TargetSLA), nil, []Iteration{en("1", 0, 260_000, 0), en("2", 0, 260_000, 0)}, want{0, 3, ScaleUp}},
		{"agg, late first tokens", config(ModeAgg, TargetSLA), nil, []Iteration{en("1", 24_000, 0, 0), en("2", 24_000, 0, 0)}, want{0, 3, ScaleUp}},
		// One replica less: 30000 KV and the ITL is 27.12 of 40 ms.
		{"agg, both have room", config(ModeAgg, TargetSLA), nil, []Iteration{en("1", 0, 15_000, 0), en("2", 0, 0, 0)}, want{0, 1, ScaleDown}},
		{"agg, tokens have none", config(ModeAgg, TargetSLA), nil, []Iteration{en("1", 0, 100_000, 0), en("2", 0, 0, 0)}, want{0, 2, Refusal}},
		// 21000 tokens in three passes = 432 ms, 408 of them the queue's; the margin is (500-24)*0.8 = 380.8.
		{"agg, first tokens have none", config(ModeAgg, TargetSLA), nil, []Iteration{en("1", 10_000, 0, 0), en("2", 0, 0, 0)}, want{0, 2, Refusal}},
		// Both pools at once.
		{"disagg, each on its own", config(ModeDisagg, TargetThroughput), []Iteration{en("1", 10000, 0, 0)}, []Iteration{en("7", 0, 1, 0), en("8", 0, 1, 0)}, want{2, 1, ScaleUp}},
		{"disagg, one pool silent", config(ModeDisagg, TargetThroughput), nil, []Iteration{en("7", 0, 1, 0), en("8", 0, 1, 0)}, want{0, 1, ScaleDown}},
		{"disagg, sla", config(ModeDisagg, TargetSLA), []Iteration{en("1", 6000, 0, 0)}, []Iteration{en("7", 0, 170_000, 0), en("8", 0, 0, 0)}, want{2, 2, ScaleUp}},
		{"disagg, stuck", config(ModeDisagg, TargetSLA), []Iteration{en("1", 0, 0, 0)}, []Iteration{en("7", 0, 170_000, 0), en("8", 0, 0, 0)}, want{1, 2, Refusal}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Situation{Prefill: Fleet{Engines: c.prefill}, Decode: Fleet{Engines: c.decode}}
			a := taught(t, c.cfg, handCaps).Advise(s)
			got := want{reason: a.Load.Reason}
			for _, x := range a.Load.Pools {
				if x.Component == PrefillPool {
					got.prefill = x.Want
				} else {
					got.decode = x.Want
				}
				if x.Why == "" || x.Reason == "" || strings.Contains(x.Why, "NaN") || strings.Contains(x.Why, "Inf") {
					t.Errorf("%s: reason %q, why %q", x.Component, x.Reason, x.Why)
				}
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v; %s", got, c.want, whys(a.Load))
			}
			if len(a.Notes) > 0 {
				t.Errorf("notes where both models are the same: %v", a.Notes)
			}
			if a.Throughput.Reason != Disabled {
				t.Errorf("throughput loop: %s", a.Throughput.Reason)
			}
		})
	}
}

func whys(l Loop) (out string) {
	for _, x := range l.Pools {
		out += fmt.Sprintf("%s %d->%d %s: %s. ", x.Component, x.Current, x.Want, x.Reason, x.Why)
	}
	return out
}

// TestAdviceGuards goes through what keeps the load loop from deciding.
func TestAdviceGuards(t *testing.T) {
	two := []Iteration{en("1", 0, 0, 0), en("2", 0, 0, 0)}
	ranks := []Iteration{{Worker: "1"}, {Worker: "1", Rank: 1}, {Worker: "2"}}
	noCaps := map[Component]Caps{}
	for _, c := range []struct {
		name  string
		cfg   Config
		caps  map[Component]Caps
		f     Fleet
		empty bool
		want  Reason
	}{
		{"silence", config(ModeAgg, TargetThroughput), handCaps, Fleet{Ready: ptr(2)}, false, NoFPMData},
		{"on its way", config(ModeAgg, TargetThroughput), handCaps, Fleet{Engines: two, Ready: ptr(2), Expected: ptr(3)}, false, ScalingInProgress},
		{"arrived", config(ModeAgg, TargetThroughput), handCaps, Fleet{Engines: two, Ready: ptr(2), Expected: ptr(2)}, false, ScaleDown},
		{"one is silent", config(ModeAgg, TargetThroughput), handCaps, Fleet{Engines: two, Ready: ptr(3)}, false, WorkerCountMismatch},
		{"a rank is silent", config(ModeAgg, TargetThroughput), handCaps, Fleet{Engines: ranks}, false, WorkerCountMismatch},
		{"no cache size", config(ModeAgg, TargetThroughput), noCaps, Fleet{Engines: two}, false, InsufficientData},
		{"few samples", config(ModeAgg, TargetSLA), handCaps, Fleet{Engines: two}, true, InsufficientData},
		{"few samples, prefill", config(ModePrefill, TargetSLA), handCaps, Fleet{Engines: two}, true, InsufficientData},
		{"few samples, decode", config(ModeDecode, TargetSLA), handCaps, Fleet{Engines: two}, true, InsufficientData},
		{"no budget of tokens", config(ModePrefill, TargetSLA), noCaps, Fleet{Engines: two}, false, InsufficientData},
		{"no context length", config(ModePrefill, TargetLatency), noCaps, Fleet{Engines: two}, false, InsufficientData},
		{"no replicas", config(ModeDecode, TargetThroughput), handCaps, Fleet{Engines: nil, Ready: ptr(0)}, false, NoFPMData},
		{"switched off", config(ModeAgg, TargetSLA, func(c *Config) { c.EnableLoad, c.EnableThroughput = false, true }), handCaps, Fleet{Engines: two}, false, Disabled},
	} {
		p := taught(t, c.cfg, c.caps)
		if c.empty {
			for _, x := range p.pools {
				x.all, x.own = model(t, x.all.role), model(t, x.own.role)
			}
		}
		a := p.Advise(Situation{Prefill: c.f, Decode: c.f})
		if a.Load.Reason != c.want {
			t.Errorf("%s: %s, want %s; %s", c.name, a.Load.Reason, c.want, whys(a.Load))
		}
		if c.want != ScaleDown && a.Replicas != nil {
			t.Errorf("%s: it scales to %v", c.name, a.Replicas)
		}
	}
}

// TestThroughputLoop: at 19 requests a second of 1500 tokens in and 1000 out, a prompt takes 85 ms and two
// prefill engines do; a decode engine with 200000 KV tokens carries 100/35, and seven do.
func TestThroughputLoop(t *testing.T) {
	caps := map[Component]Caps{PrefillPool: handCaps[PrefillPool], DecodePool: {MaxBatchedTokens: 8192, MaxKVTokens: 200_000, GPUs: 1}}
	demand := &Demand{RequestsPerSecond: 19, ISL: 1500, OSL: 1000}
	s := Situation{Prefill: Fleet{Ready: ptr(1)}, Decode: Fleet{Ready: ptr(1)}, Demand: demand}
	alone := func(mode Mode) Config {
		return config(mode, TargetSLA, func(c *Config) { c.EnableLoad, c.EnableThroughput, c.MaxGPUs = false, true, -1 })
	}
	a := taught(t, alone(ModeDisagg), caps).Advise(s)
	if want := map[Component]int{PrefillPool: 2, DecodePool: 7}; !reflect.DeepEqual(a.Replicas, want) || a.Throughput.Reason != Scale {
		t.Errorf("%v (%s), want %v; %s", a.Replicas, a.Throughput.Reason, want, whys(a.Throughput))
	}
	near(t, "prefill's rate", *a.Throughput.Pools[0].RPS, 1/0.085, 1e-9)

	// Eight GPUs of nine: prefill gets floor(2*8/9), decode the rest.
	cfg := alone(ModeDisagg)
	cfg.MaxGPUs = 8
	a = taught(t, cfg, caps).Advise(s)
	if want := map[Component]int{PrefillPool: 1, DecodePool: 7}; !reflect.DeepEqual(a.Replicas, want) {
		t.Errorf("within eight GPUs: %v, want %v", a.Replicas, want)
	}
	cfg.MaxGPUs = 1
	if a = taught(t, cfg, caps).Advise(s); a.Replicas[PrefillPool] != 0 || a.Replicas[DecodePool] != 0 {
		t.Errorf("one GPU for two pools: %v", a.Replicas)
	}
	cfg = alone(ModeDecode)
	cfg.MaxGPUs = 5
	if a = taught(t, cfg, caps).Advise(s); a.Replicas[DecodePool] != 5 || !strings.Contains(whys(a.Throughput), "max_gpu_budget") {
		t.Errorf("five GPUs: %v; %s", a.Replicas, whys(a.Throughput))
	}

	// A prompt of 12000 tokens takes 620 ms: too late, so there are at least ceil(620/500) engines. 90 % of it in the cache: 1200 tokens, 70 ms.
	s.Demand = &Demand{RequestsPerSecond: 1, ISL: 12000, OSL: 10}
	if a = taught(t, alone(ModePrefill), caps).Advise(s); a.Replicas[PrefillPool] != 2 {
		t.Errorf("late prompts: %v; %s", a.Replicas, whys(a.Throughput))
	}
	s.Demand.HitRate = ptr(0.9)
	if a = taught(t, alone(ModePrefill), caps).Advise(s); a.Replicas[PrefillPool] != 1 {
		t.Errorf("cached prompts: %v; %s", a.Replicas, whys(a.Throughput))
	}

	// Nothing came: 0/0 is no length, and no reason to change anything.
	for _, d := range []Demand{{ISL: math.NaN(), OSL: math.NaN()}, {RequestsPerSecond: math.NaN()}, {RequestsPerSecond: -1, ISL: 1, OSL: 1}, {RequestsPerSecond: math.Inf(1), ISL: 1, OSL: 1}} {
		s.Demand = &d
		if a = taught(t, alone(ModeDisagg), caps).Advise(s); a.Throughput.Reason != NoTrafficData || a.Replicas != nil {
			t.Errorf("%+v: %s, %v", d, a.Throughput.Reason, a.Replicas)
		}
	}
	// One model is not ready: neither pool is scaled.
	s.Demand = demand
	p := taught(t, alone(ModeDisagg), caps)
	p.pools[DecodePool].all, p.pools[DecodePool].own = model(t, Decode), model(t, Decode)
	a = p.Advise(s)
	if got := a.Throughput.Pools; a.Replicas != nil || got[0].Reason != PartnerNotReady || got[1].Reason != ModelNotReady || a.Throughput.Reason != ModelNotReady {
		t.Errorf("half ready: %s", whys(a.Throughput))
	}
}

// TestBothLoops: the throughput loop sets a lower bound and the load loop stays above it from the next time on.
func TestBothLoops(t *testing.T) {
	caps := map[Component]Caps{PrefillPool: handCaps[PrefillPool], DecodePool: {MaxBatchedTokens: 8192, MaxKVTokens: 200_000, GPUs: 1}}
	cfg := config(ModeDisagg, TargetSLA, func(c *Config) { c.EnableThroughput, c.MaxGPUs = true, -1 })
	p := taught(t, cfg, caps)
	idle := func(n int) Fleet {
		f := Fleet{}
		for i := range n {
			f.Engines = append(f.Engines, en(fmt.Sprint(i), 0, 0, 0))
		}
		return f
	}
	s := Situation{Prefill: idle(2), Decode: idle(8), Demand: &Demand{RequestsPerSecond: 19, ISL: 1500, OSL: 1000}}
	a := p.Advise(s)
	if a.Throughput.Reason != SetLowerBound || a.Replicas[PrefillPool] != 1 || a.Replicas[DecodePool] != 7 {
		t.Errorf("first: %v; %s %s", a.Replicas, whys(a.Load), whys(a.Throughput))
	}
	s.Demand = nil
	a = p.Advise(s) // now prefill's bound is 2
	if a.Replicas[PrefillPool] != 2 || a.Replicas[DecodePool] != 7 || a.Load.Pools[0].Reason != CappedByThroughput || a.Load.Pools[1].Reason != ScaleDown || a.Load.Reason != CappedByThroughput {
		t.Errorf("second: %v; %s", a.Replicas, whys(a.Load))
	}
	s.Decode = idle(3)
	if a = p.Advise(s); a.Replicas[DecodePool] != 7 || a.Load.Pools[1].Reason != ScaleUp {
		t.Errorf("below the bound: %v; %s", a.Replicas, whys(a.Load))
	}
	// agg tells it on one pool.
	cfg.Mode = ModeAgg
	p = taught(t, cfg, map[Component]Caps{DecodePool: {MaxBatchedTokens: 8192, MaxKVTokens: 110_000, GPUs: 1}})
	s = Situation{Decode: idle(2), Demand: &Demand{RequestsPerSecond: 30, ISL: 1000, OSL: 200}} // 20 a second each
	p.Advise(s)
	if a = p.Advise(s); a.Load.Reason != CappedByThroughput || a.Replicas != nil {
		t.Errorf("agg: %v; %s", a.Replicas, whys(a.Load))
	}
}

func TestMinGPUs(t *testing.T) {
	idle := []Iteration{en("1", 0, 0, 0), en("2", 0, 0, 0)}
	cfg := config(ModeDecode, TargetThroughput, func(c *Config) { c.MinGPUs = 2 })
	if a := taught(t, cfg, handCaps).Advise(Situation{Decode: Fleet{Engines: idle}}); a.Replicas != nil || a.Load.Reason != NoChange {
		t.Errorf("%v; %s", a.Replicas, whys(a.Load))
	}
	cfg.Mode, cfg.MinGPUs = ModeDisagg, 4
	if a := taught(t, cfg, handCaps).Advise(Situation{Prefill: Fleet{Engines: idle}, Decode: Fleet{Engines: idle}}); a.Replicas != nil {
		t.Errorf("%v; %s", a.Replicas, whys(a.Load))
	}
}

// TestColdStartNote: where cold starts alone make Dynamo scale, the advice says so.
func TestColdStartNote(t *testing.T) {
	cfg := config(ModePrefill, TargetSLA)
	p, err := New(cfg, handCaps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		n := int64(1000 + 200*i)
		it := Iteration{Worker: "1", WallTime: 0.010 + 50e-6*float64(n), NumPrefillRequests: 2, SumPrefillTokens: n}
		if i < 8 {
			it.WallTime *= 120
			it.SumPrefillTokens += 8000
		}
		p.Observe(PrefillPool, it)
	}
	a := p.Advise(Situation{Prefill: Fleet{Engines: []Iteration{en("1", 2000, 0, 0)}}})
	if a.Replicas[PrefillPool] != 2 || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "it would be 1") {
		t.Errorf("%v, notes %q; %s", a.Replicas, a.Notes, whys(a.Load))
	}
}

// TestQueueOnRankZero: a queue that is told on rank 0 alone is too much for it and nothing for the rest.
func TestQueueOnRankZero(t *testing.T) {
	ranks := func(queued int64) (out []Iteration) {
		for r := range 4 {
			out = append(out, Iteration{Worker: "1", Rank: r})
		}
		out[0].QueuedPrefillTokens = queued
		return out
	}
	for _, c := range []struct {
		target       Target
		queued       int64
		dynamo, ours int
	}{
		{TargetThroughput, 12000, 2, 1}, // 1.2 of the context's length, or 0.3 for each rank
		{TargetSLA, 24000, 1, 2},        // three ranks look free, or all have 6000 tokens before them
		{TargetSLA, 400, 1, 1},
	} {
		f := Fleet{Engines: ranks(c.queued), QueueOnRankZero: true}
		a := taught(t, config(ModePrefill, c.target), handCaps).Advise(Situation{Prefill: f})
		note := strings.Join(a.Notes, "; ")
		if a.Load.Pools[0].Want != c.dynamo || (c.ours != c.dynamo) != strings.Contains(note, fmt.Sprintf("with rank 0's queue shared among its worker's ranks it would be %d", c.ours)) {
			t.Errorf("%s, %d queued: %s; notes %q", c.target, c.queued, whys(a.Load), note)
		}
		if f.Engines[0].QueuedPrefillTokens != c.queued {
			t.Error("what was handed in has changed")
		}
	}
}

func TestFleetCapacity(t *testing.T) {
	caps := map[Component]Caps{PrefillPool: handCaps[PrefillPool], DecodePool: {MaxBatchedTokens: 8192, MaxKVTokens: 200_000}}
	p := taught(t, config(ModeDisagg, TargetSLA), caps)
	shape, slo := Shape{ISL: 1500, OSL: 1000}, SLO{TTFT: 0.5, ITL: 0.05}
	a := p.Capacity(shape, slo, 4, map[Component]int{PrefillPool: 1, DecodePool: 2})
	if a.RequestsPerSecond == nil || a.Limiting != DecodePool || !a.Meets {
		t.Fatalf("%+v", a)
	}
	near(t, "the fleet's rate", *a.RequestsPerSecond, 200/35.0, 1e-9)
	if *a.Pools[0].Needed != 1 || *a.Pools[1].Needed != 2 || a.Pools[1].AtDemand.Saturated {
		t.Errorf("%+v", a.Pools)
	}
	p.pools[DecodePool].own = model(t, Decode)
	if a = p.Capacity(shape, slo, 4, nil); a.RequestsPerSecond != nil || a.Meets || a.Pools[1].Reason == "" {
		t.Errorf("half known: %+v", a)
	}
	if v, _ := taught(t, config(ModeAgg, TargetSLA), caps).Observe(PrefillPool, Iteration{WallTime: 1}); v != WrongPool {
		t.Errorf("a pass of a pool that there is not is %s", v)
	}
	p.Observe(PrefillPool, Iteration{WallTime: -1})
	p.Observe(PrefillPool, Iteration{WallTime: 1, SumPrefillTokens: -1})
	p.Observe(PrefillPool, Iteration{WallTime: -1})
	if got, want := p.Drops(), []Drop{{"bad_wall_time", 2}, {"negative_count", 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("drops %v, want %v", got, want)
	}
}
