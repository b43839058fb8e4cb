package rollout

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// Whatever a dump holds, its metrics are finite, described, explained and valid JSON.
func FuzzMetrics(f *testing.F) {
	for i, b := range seeds(f) {
		if len(b) < 8<<10 {
			f.Add(b, uint8(i*29))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, choices uint8) {
		file, err := torchfile.OpenBytes(data, &torchfile.Options{Salvage: true, Limits: torchfile.Limits{MaxMemory: 64 << 20, MaxOps: 1 << 20, MaxInflate: 1 << 20}})
		if err != nil {
			return
		}
		defer file.Close()
		opts := MetricOptions{
			SpecDecoding: choices&1 != 0, Eval: choices&2 != 0, LogPassrate: choices&4 != 0, NSamplesPerPrompt: int(choices >> 5),
			CompensatedSum: choices&16 != 0,
		}
		if choices&8 != 0 {
			opts.RewardKey, opts.RewardCategory, opts.RolloutTime, opts.GPUs = "acc", "acc", 600, 8
		}
		m := NewMetrics(opts)
		hdr, _ := Read(file, Options{RewardKey: opts.RewardKey, Eval: opts.Eval}, func(s *Sample) error {
			m.Add(s)
			return nil
		})
		m.Finish(hdr)
		Attribute([]*Metrics{m})
		r := m.Result()
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		for _, view := range [][]Metric{r.Compat, r.Perf, r.PerfStep} {
			for _, x := range view {
				if !finite(x.Value) {
					t.Fatalf("%+v", x)
				}
			}
		}
		for _, d := range r.Differences() {
			if slices.Contains(d.Why, WhyUnexplained) {
				t.Fatalf("%s: compat %s, perf %s, perf_step %s", d.Key, metricText(d.Compat), metricText(d.Perf), metricText(d.PerfStep))
			}
		}
	})
}
