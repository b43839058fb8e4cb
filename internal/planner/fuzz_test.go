package planner

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "mode: agg", `{"ttft": 1, "itl": 2}`, "optimization_target: load\nmode: decode\ndecode_scale_up_kv_rate: 9\ndecode_scale_down_kv_rate: 7",
		"a: &a [*a]", "max_gpu_budget: -1\nmin_endpoint: 0", "fpm_sample_bucket_size: 1024\nmax_num_fpm_samples: 65536", "ttft_ms: 1e308", "--ttft: 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := Parse("f", text)
		if err != nil {
			return
		}
		if c.MaxSamples > 1000 {
			c.MaxSamples = 1000
		}
		if _, err := New(c, nil); err != nil {
			t.Fatalf("what was parsed makes no planner: %v\n%s", err, text)
		}
	})
}

// FuzzObserve feeds what a broken engine could send, and asks everything: no answer may be NaN or infinite
// (JSON would refuse it), and nothing may panic.
func FuzzObserve(f *testing.F) {
	f.Add([]byte{}, uint8(0), 1.0, 1.0, 1.0)
	seed := make([]byte, 0, 400)
	for i := range 50 {
		seed = binary.LittleEndian.AppendUint16(seed, uint16(i*37))
		seed = binary.LittleEndian.AppendUint16(seed, uint16(i*111))
		seed = binary.LittleEndian.AppendUint16(seed, uint16(i*3))
		seed = append(seed, byte(i), byte(i*7))
	}
	for mode := range uint8(16) {
		f.Add(seed, mode, 1000.0, 200.0, 3.0)
	}
	f.Fuzz(func(t *testing.T, data []byte, how uint8, isl, osl, rate float64) {
		mode := []Mode{ModeDisagg, ModePrefill, ModeDecode, ModeAgg}[how%4]
		target := []Target{TargetSLA, TargetThroughput, TargetLatency, TargetLoad}[how/4%4]
		cfg := config(mode, target, withThresholds, func(c *Config) { c.EnableThroughput, c.ColdStartPasses = true, int(how/16)%3 })
		p, err := New(cfg, map[Component]Caps{PrefillPool: handCaps[PrefillPool], DecodePool: handCaps[DecodePool]})
		if err != nil {
			t.Fatal(err)
		}
		var last []Iteration
		for len(data) >= 8 {
			b := data[:8]
			data = data[8:]
			wide := func(i int) int64 { // mostly sane, sometimes not
				v := int64(binary.LittleEndian.Uint16(b[i:]))
				if v > 65000 {
					return v << 40
				}
				if v == 64999 {
					return -v
				}
				return v
			}
			it := Iteration{
				Worker: string(rune('a' + b[6]%3)), Rank: int(b[6] / 128), WallTime: float64(int64(b[7])-1) / 100,
				NumPrefillRequests: wide(0) % 9, SumPrefillTokens: wide(0), NumDecodeRequests: wide(2) % 300, SumDecodeKVTokens: wide(4),
				QueuedPrefillTokens: wide(4), QueuedDecodeKVTokens: wide(2),
			}
			for _, c := range []Component{PrefillPool, DecodePool} {
				p.Observe(c, it)
			}
			last = append(last, it)
		}
		if len(last) > 6 {
			last = last[len(last)-6:]
		}
		hit := osl / isl
		s := Situation{Prefill: Fleet{Engines: last}, Decode: Fleet{Engines: last, QueueOnRankZero: how > 127}, Demand: &Demand{RequestsPerSecond: rate, ISL: isl, OSL: osl, HitRate: &hit}}
		p.Advise(s)
		a := p.Advise(s)
		answer := p.Capacity(Shape{ISL: isl, OSL: osl, HitRate: hit}, SLO{TTFT: 0.5, ITL: 0.05}, rate, map[Component]int{PrefillPool: 2, DecodePool: 3})
		for _, v := range []any{a, answer, p.Health(), p.Drops()} {
			if _, err := json.Marshal(v); err != nil {
				t.Fatalf("%v in %+v", err, v)
			}
		}
		for _, x := range a.Load.Pools {
			if x.Want < 0 || math.Abs(float64(x.Want-x.Current)) > 64 {
				t.Fatalf("%+v", x)
			}
		}
	})
}
