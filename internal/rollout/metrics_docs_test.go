package rollout

import (
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

func TestMetricsDoc(t *testing.T) {
	compareGolden(t, "../../docs/rollout-metrics.md", MetricsDoc())
}

// Every key that any fixture yields is described, in the view that it is in.
func TestCatalogDescribesEveryKey(t *testing.T) {
	used := map[string]bool{}
	look := func(name string, r *MetricsResult) {
		step := "perf_step/"
		for view, list := range map[int][]Metric{InCompat: r.Compat, InPerf: r.Perf, InPerfStep: r.PerfStep} {
			for _, m := range list {
				key := m.Key
				if k, ok := strings.CutPrefix(key, "eval_perf/"); ok {
					key = step + k
				}
				d := docOf(docKey(key))
				switch {
				case d == nil:
					t.Errorf("%s: %s is not described", name, m.Key)
				case d.Views&view == 0:
					t.Errorf("%s: %s is described by %s, which is not in this view", name, m.Key, d.Pattern)
				case d.Unit != m.Unit:
					t.Errorf("%s: %s has the unit %q, its description %q", name, m.Key, m.Unit, d.Unit)
				default:
					used[d.Pattern] = true
				}
			}
		}
	}
	for _, name := range allFixtures(t) {
		if openable(t, name) == "" {
			continue
		}
		opts := goldenOptions
		opts.Eval = strings.Contains(name, "eval")
		opts.SpecDecoding, opts.LogPassrate, opts.NSamplesPerPrompt = true, true, 2
		opts.Training = func(*Sample) (TrainingRow, bool) { return TrainingRow{}, false }
		look(name, measureDump(t, dumpPath(t, name), opts).Result())
	}
	look("waits", metricsOf(t, dumpOf(t, 1, sampleOf(map[string]any{"non_generation_time": -1.0, "reward": map[string]any{"c": "x"}})),
		MetricOptions{RolloutTime: 1, RewardCategory: "c", Training: func(*Sample) (TrainingRow, bool) {
			return TrainingRow{Reward: value(1), ResponseLength: value(2)}, true
		}}).Result())
	for _, d := range catalog {
		if d.Meaning == "" || !used[d.Pattern] && d.Pattern != "perf_step/{metric}/invalid_count" {
			t.Errorf("%s: no fixture has it, or it has no meaning", d.Pattern)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		key, want string
	}{
		{"rollout/zero_std/count_1.0", "rollout/zero_std/count_{reward}"},
		{"rollout/error_cat/a/b", "rollout/error_cat/{category}"},
		{"perf/request/e2e_latency/mean", "perf/request/e2e_latency/{stat}"},
		{"perf/request/e2e_latency/count", "perf/{metric}/count"},
		{"perf/request/count", "perf/request/count"},
		{"perf/request/invalid_count", "perf/request/invalid_count"},
		{"perf_step/request/queue_time/invalid_count", "perf_step/{metric}/invalid_count"},
		{"perf/request/e2e_latency/p99", ""},
		{"passrate/pass@16", "passrate/pass@{k}"},
		{"rollout/nothing", ""},
	} {
		got := ""
		if d := docOf(c.key); d != nil {
			got = d.Pattern
		}
		if got != c.want {
			t.Errorf("%s is described by %q, expected %q", c.key, got, c.want)
		}
	}
	for key, want := range map[string]string{
		"eval/aime/24/response_len/mean": "rollout/response_len/mean", "eval/m-pass@4": "passrate/pass@4", "eval/m-truncated_ratio": "eval-truncated_ratio",
		"eval/a/b": "eval", "perf/rollout_time": "perf/rollout_time",
	} {
		if got := docKey(key); got != want {
			t.Errorf("%s is %s in the catalog, expected %s", key, got, want)
		}
	}
}

func value(f float64) request.Value { return request.Value{V: f, State: request.Known} }
