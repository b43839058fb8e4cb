package rollout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Dumps with random samples, and what slime's own functions compute of them with numpy 1.24 and Python
// 3.11: speculative decoding, categories, top-p, waits, pass rates and evaluations, which no dump of the
// fixtures has. ROLLSCOPE_MADE_DUMPS names a directory with more.
func TestCompatEqualsSlimeOnRandomSamples(t *testing.T) {
	dir := "testdata/metrics/made"
	if d := os.Getenv("ROLLSCOPE_MADE_DUMPS"); d != "" {
		dir = d
	}
	names, _ := filepath.Glob(dir + "/*.json")
	if len(names) < 6 {
		t.Fatalf("%d dumps in %s", len(names), dir)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var g struct {
				Options struct {
					GPUs                int
					Time                hexFloat
					RewardKey           string `json:"reward_key"`
					Category, Estimator string
					Spec, Eval          bool
					Group               int
					Datasets            [][2]any
				}
				Metrics map[string]hexFloat
				Order   []string
			}
			if err := json.Unmarshal(b, &g); err != nil {
				t.Fatal(err)
			}
			o := g.Options
			opts := MetricOptions{
				GPUs: o.GPUs, RolloutTime: float64(o.Time), RewardKey: o.RewardKey, RewardCategory: o.Category, AdvantageEstimator: o.Estimator,
				SpecDecoding: o.Spec, NSamplesPerPrompt: o.Group, LogPassrate: true, Eval: o.Eval,
			}
			for _, d := range o.Datasets {
				opts.EvalDatasets = append(opts.EvalDatasets, EvalDataset{Name: d[0].(string), Samples: int(d[1].(float64))})
			}
			r := measureDump(t, strings.TrimSuffix(name, ".json")+".pt", opts).Result()
			if len(r.CompatFailed) != 0 {
				t.Errorf("%+v", r.CompatFailed)
			}
			for i, m := range r.Compat {
				if i >= len(g.Order) || g.Order[i] != m.Key {
					t.Fatalf("key %d is %s, slime has another order", i, m.Key)
				}
				if want := float64(g.Metrics[m.Key]); !sameBits(want, m.Value) {
					t.Errorf("%s = %v %v, slime has %v", m.Key, m.Value, m.State, want)
				}
			}
			if len(r.Compat) != len(g.Order) {
				t.Errorf("%d keys, slime has %d", len(r.Compat), len(g.Order))
			}
			for _, d := range r.Differences() {
				for _, w := range d.Why {
					if w == WhyUnexplained {
						t.Errorf("%s: unexplained: compat %s, perf %s, perf_step %s", d.Key, metricText(d.Compat), metricText(d.Perf), metricText(d.PerfStep))
					}
				}
			}
		})
	}
}
