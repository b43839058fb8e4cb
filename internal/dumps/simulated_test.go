package dumps

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/sim/rolls"
)

// TestReadAgreesWithTheSimulation reads simulated steps, of which all is known.
func TestReadAgreesWithTheSimulation(t *testing.T) {
	short := rolls.Lengths{Median: 60, Sigma: 0.9, Max: 400}
	for name, o := range map[string]rolls.Options{
		"rollout_0": {Samples: 64, Response: short},
		// Requests wait for a place for seconds, which slime's child spans tell three times over.
		"rollout_1":      {Samples: 128, PD: true, Engines: 2, Running: 8, Concurrency: 40, Response: short, MultiTurn: 0.3},
		"rollout_2":      {Samples: 64, RolloutID: 2, PD: true, Partial: 0.25, Response: short},
		"rollout_eval_3": {Samples: 32, RolloutID: 3, Eval: true, Response: short, MultiTurn: 1},
		"rollout_4": {Samples: 64, RolloutID: 4, PD: true, Engines: 2, Running: 12, Response: short,
			Faults: []rolls.Fault{{Name: "engine_restart", At: 400 * time.Millisecond, For: time.Second, Engine: 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".pt")
			st, err := rolls.WriteFile(path, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(t.Context(), path, ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Samples != st.Samples || got.Traced != st.Samples || got.Requests != st.Requests || got.Events != st.Events || got.Skipped != 0 || len(got.Problems) != 0 {
				t.Errorf("%+v\n%+v", got, st)
			}
			if got.Statuses["completed"] != st.Completed || got.Statuses["truncated"] != st.Truncated || got.Statuses["failed"] != st.Failed {
				t.Errorf("%v, %+v", got.Statuses, st)
			}
			near := func(what string, got float64) {
				t.Helper()
				if want := st.Duration().Seconds(); math.Abs(got-want) > 0.002 {
					t.Errorf("%s is %v s, the step took %v s", what, got, want)
				}
			}
			near("the wall time", got.Wall.Seconds)
			near("the events' extent", got.Last.Sub(got.First).Seconds())
			r := got.Metrics.Result()
			key := "perf_step/rollout_time"
			if o.Eval {
				key = "eval_perf/rollout_time"
			}
			m, _ := rollout.Find(r.PerfStep, key)
			near(key, m.Value)
			if int(got.Wall.Aborted.Tokens) != st.Discarded {
				t.Errorf("%v tokens thrown away instead of %d", got.Wall.Aborted.Tokens, st.Discarded)
			}
		})
	}
}
