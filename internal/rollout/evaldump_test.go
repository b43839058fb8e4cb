package rollout

import (
	"strings"
	"testing"
)

func TestEvalDatasets(t *testing.T) {
	s := func(reward any, status string) map[string]any {
		return sampleOf(map[string]any{"reward": reward, "status": status})
	}
	samples := []map[string]any{s(1.0, "completed"), s(0.0, "truncated"), s(1.0, "completed"), s(1.0, "completed"), s(0.5, "truncated"), s(0.0, "completed")}
	opts := MetricOptions{
		Eval: true, LogPassrate: true, NSamplesPerPrompt: 2, GPUs: 4, RolloutTime: 10,
		EvalDatasets: []EvalDataset{{Name: "aime/24", Samples: 4}, {Name: "math", Samples: 2, NSamplesPerGroup: 1}},
	}
	r := metricsOf(t, dumpOf(t, 20, samples...), opts).Result()
	if r.Axis != "eval/step" || r.Step != (Int{20, true}) || r.Kind != Eval {
		t.Errorf("%s %v %v", r.Axis, r.Step, r.Kind)
	}
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{
			"eval/aime/24": 0.75, "eval/aime/24-truncated_ratio": 0.25, "eval/aime/24-pass@1": 0.75, "eval/aime/24-pass@2": 1.0,
			"eval/aime/24/response_len/mean": 4.0, "eval/aime/24/truncated_ratio": 0.25, "eval/aime/24/repetition_frac": 0,
			"eval/math": 0.25, "eval/math-truncated_ratio": 0.5, "eval/math-pass@1": nil, "rollout/truncated_ratio": nil, "perf/rollout_time": nil,
		})
	}
	expectMetrics(t, r.PerfStep, map[string]any{"eval_perf/rollout_time": 10.0, "eval_perf/request/count": 0})
	for _, d := range r.Differences() {
		if d.Why[0] != WhyOurs {
			t.Errorf("%s: %v", d.Key, d.Why)
		}
	}

	// Nobody says which dataset: one unknown set, and nothing that pretends to be slime's.
	opts.EvalDatasets = nil
	r = metricsOf(t, dumpOf(t, 20, samples...), opts).Result()
	expectMetrics(t, r.Perf, map[string]any{"eval/unknown": 3.5 / 6, "eval/unknown/sample_count": 6})
	if len(r.Compat) != 0 || len(r.CompatFailed) != 1 || !strings.Contains(r.CompatFailed[0].Error, "which dataset") {
		t.Errorf("%v %v", r.Compat, r.CompatFailed)
	}

	// Counts that do not cover the dump leave the rest unknown.
	opts.EvalDatasets = []EvalDataset{{Name: "math", Samples: 2}}
	r = metricsOf(t, dumpOf(t, 20, samples...), opts).Result()
	expectMetrics(t, r.Perf, map[string]any{"eval/math/sample_count": 2, "eval/unknown/sample_count": 4})
}

func TestEvalDatasetThatTheSampleSays(t *testing.T) {
	opts := goldenOptions
	opts.Eval = true
	r := measureDump(t, dumpPath(t, "d08_eval_1.pt"), opts).Result()
	if m, ok := Find(r.Perf, "eval/math"); !ok {
		t.Errorf("no eval/math: %+v, %+v", m, r.Perf)
	}
}

func TestEvalRewardThatIsMissing(t *testing.T) {
	opts := MetricOptions{Eval: true, EvalDatasets: []EvalDataset{{Name: "math", Samples: 2}}}
	r := metricsOf(t, dumpOf(t, 1, sampleOf(nil), sampleOf(map[string]any{"reward": nil})), opts).Result()
	if len(r.Compat) != 0 || len(r.CompatFailed) != 1 ||
		r.CompatFailed[0] != (MetricFailure{"eval/math", "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"}) {
		t.Errorf("%v %v", r.Compat, r.CompatFailed)
	}
	expectMetrics(t, r.Perf, map[string]any{"eval/math": "partial: 1 of 2"})
	r = metricsOf(t, dumpOf(t, 1, sampleOf(map[string]any{"reward": map[string]any{"acc": 1.0}})), opts).Result()
	expectMetrics(t, r.Perf, map[string]any{"eval/math": "unknown: reward_key"})
}
