package planner

import (
	"fmt"
	"testing"
)

// BenchmarkObserve is one pass taken in: both models, cold starts, the watch with its share of fits.
func BenchmarkObserve(b *testing.B) {
	for _, e := range engines(0.03, 1) {
		b.Run(string(e.role), func(b *testing.B) {
			passes := make([]Iteration, 8192)
			for i := range passes {
				passes[i] = e.pass()
				passes[i].Worker = fmt.Sprint(i % 64)
			}
			p := watched(b, e.role)
			pool := poolOf(e.role)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Observe(pool, passes[i%len(passes)])
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "passes/s")
		})
	}
}

// BenchmarkAdvise is one advice on 64 engines, new samples since the last one included.
func BenchmarkAdvise(b *testing.B) {
	for _, target := range []Target{TargetThroughput, TargetSLA} {
		for _, e := range engines(0.03, 1)[1:] {
			b.Run(fmt.Sprintf("%s/%s", target, e.role), func(b *testing.B) {
				cfg := config(ModeAgg, target)
				if e.role == Decode {
					cfg.Mode = ModeDecode
				}
				p, err := New(cfg, handCaps)
				if err != nil {
					b.Fatal(err)
				}
				var s Situation
				for i := range 256 {
					it := e.pass()
					it.Worker = fmt.Sprint(i % 64)
					p.Observe(DecodePool, it)
					if i < 64 {
						s.Decode.Engines = append(s.Decode.Engines, it)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					p.Observe(DecodePool, s.Decode.Engines[i%64])
					p.Advise(s)
				}
			})
		}
	}
}

// BenchmarkCapacity is one question of what a fleet carries, new samples included.
func BenchmarkCapacity(b *testing.B) {
	for _, e := range engines(0.03, 1) {
		b.Run(string(e.role), func(b *testing.B) {
			p := watched(b, e.role)
			pool := poolOf(e.role)
			p.pools[pool].caps = Caps{MaxBatchedTokens: 8192, MaxKVTokens: 1 << 20}
			it := e.pass()
			for range 256 {
				it = e.pass()
				p.Observe(pool, it)
			}
			replicas := map[Component]int{pool: 8}
			b.ReportAllocs()
			for b.Loop() {
				p.Observe(pool, it)
				p.Capacity(Shape{ISL: 2000, OSL: 300}, SLO{TTFT: 2, ITL: 0.1}, 5, replicas)
			}
		})
	}
}
