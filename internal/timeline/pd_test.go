package timeline

import (
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

// phases sets phases of a request, in the order of request.Phase, -1 for none.
func phases(r *request.Request, s ...float64) {
	for i, v := range s {
		if v >= 0 {
			r.Phases[i] = request.Value{V: v, State: request.Known}
		}
	}
}

func TestVirtualLanes(t *testing.T) {
	const one = "S 0 sglang_generate g\nE 10 sglang_generate g\n"
	for _, c := range []struct {
		name, trace string
		queue       float64
		phases      []float64
		want        string
	}{
		{"holders hold", one, 0, []float64{1, 0.3, 0.5, 2, 0.5, 1.5, 0.4, 0.6, 0.5, 4}, `
			0:0 0..10 sglang_generate
			1:1 0..3 sglang_generate [P] in sglang_generate virtual derived [1 0..0.3] [2 0.3..0.8] [0 0.8..1] [3 1..2.5] [4 2.5..3]
			2:1 4..10 sglang_generate [D] in sglang_generate virtual derived [6 4..4.4] [7 4.4..5] [5 5..5.5] [8 5.5..6] [9 6..10]`},
		{"after the queue", one, 2, []float64{-1, -1, -1, 1}, `
			0:0 0..10 sglang_generate
			1:1 2..3 sglang_generate [P] in sglang_generate virtual derived [3 2..3]`},
		{"a queue that leaves no room", one, 9.5, []float64{-1, -1, -1, 1}, `
			0:0 0..10 sglang_generate
			1:1 9..10 sglang_generate [P] in sglang_generate virtual derived [3 9..10]`},
		{"parts longer than what holds them", one, 0, []float64{1, 3, 3, -1, -1, -1, -1, -1, 2}, `
			0:0 0..10 sglang_generate
			1:1 0..1 sglang_generate [P] in sglang_generate virtual derived [1 0..1]
			2:1 8..10 sglang_generate [D] in sglang_generate virtual derived [8 8..10]`},
		{"parts without a holder", one, 0, []float64{-1, 1, 2, -1, 3}, `
			0:0 0..10 sglang_generate
			1:1 0..6 sglang_generate [P] in sglang_generate virtual derived [1 0..1] [2 1..3] [4 3..6]`},
		{"more than the request", one, 0, []float64{-1, -1, -1, 12, -1, 4, -1, -1, -1, 9}, `
			0:0 0..10 sglang_generate
			1:1 0..10 sglang_generate [P] in sglang_generate virtual derived skewed [3 0..10]
			2:1 0..10 sglang_generate [D] in sglang_generate virtual derived skewed [5 0..1] [9 1..10]`},
		{"nothing of use", one, 0, []float64{0, -1}, `
			0:0 0..10 sglang_generate`},
		// As slime lays them: from the request's start, end to end, what is held behind what holds it.
		{"children without times of their own", `
			S 0 sglang_generate g
			S 0 sglang_pd_prefill p g
			S 0 sglang_pd_prefill_forward f p
			E 2 sglang_pd_prefill_forward f
			S 2 sglang_pd_prefill_transfer_queue q p
			E 3 sglang_pd_prefill_transfer_queue q
			E 3 sglang_pd_prefill p
			E 10 sglang_generate g`, 0, []float64{-1, -1, -1, 2, 1}, `
			0:0 0..10 sglang_generate
			1:1 0..2 sglang_generate [P] in sglang_generate virtual derived [3 0..1] [4 1..2]
			2:1 0..2 sglang_pd_prefill in sglang_generate derived
			3:2 0..2 sglang_pd_prefill_forward in sglang_pd_prefill derived
			4:2 1..2 sglang_pd_prefill_transfer_queue in sglang_pd_prefill derived`},
		{"children that were measured", `
			S 0 sglang_generate g
			S 0.5 sglang_pd_prefill_bootstrap_queue b g
			E 1 sglang_pd_prefill_bootstrap_queue b
			S 1.5 sglang_pd_prefill_forward f g
			S 3 sglang_pd_prefill_transfer_queue q g
			E 4 sglang_pd_prefill_transfer_queue q
			E 4 sglang_pd_prefill_forward f
			S 4 sglang_pd_decode_forward d g
			E 9 sglang_pd_decode_forward d
			E 10 sglang_generate g`, 0, []float64{0.5, -1, -1, 2.5, 1, -1, -1, -1, -1, 5}, `
			0:0 0..10 sglang_generate
			1:1 0.5..4 sglang_generate [P] in sglang_generate virtual [0 0.5..1] [3 1.5..3] [4 3..4]
			2:1 4..9 sglang_generate [D] in sglang_generate virtual [9 4..9]
			3:1 0.5..1 sglang_pd_prefill_bootstrap_queue in sglang_generate
			3:1 1.5..4 sglang_pd_prefill_forward in sglang_generate
			3:1 4..9 sglang_pd_decode_forward in sglang_generate
			4:1 3..4 sglang_pd_prefill_transfer_queue in sglang_generate`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := traceOf(c.trace)
			phases(&s.Requests[0], c.phases...)
			if c.queue > 0 {
				s.Requests[0].QueueTime = request.Value{V: c.queue, State: request.Known}
			}
			r := NewBuilder(Options{}).Build(s)
			checkRow(t, r)
			if got, want := rowText(r), strings.ReplaceAll(strings.TrimSpace(c.want), "\t", "")+"\n"; got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			for _, it := range NewBuilder(Options{NoVirtual: true}).Build(s).Items {
				if it.Flags&Virtual != 0 {
					t.Errorf("virtual item %q although none were asked for", it.Name)
				}
			}
		})
	}
}

func TestClassOf(t *testing.T) {
	for name, want := range map[string]Class{
		"sglang_generate": ClassGenerate, "sglang_generate_stream": ClassGenerate, "generate": ClassGenerate,
		"generate_and_rm": ClassGroup, "generate_and_rm_group": ClassGroup,
		"reward_model": ClassReward, "rm": ClassReward, "async_rm": ClassReward, "math-verify": ClassReward,
		"tool_call": ClassTool, "sandbox_exec": ClassTool, "env.step": ClassTool, "Tool:bash": ClassTool,
		"update_weights": ClassSync, "weight_sync": ClassSync, "queue": ClassQueue,
		"sglang_pd_prefill": ClassPrefill, "sglang_pd_decode_forward": ClassPhase + Class(request.DecodeForward),
		"": ClassOther, "stool": ClassOther, "environmental": ClassOther, "arm": ClassOther,
		strings.Repeat("tool_", 100): ClassOther,
	} {
		if got := ClassOf(name); got != want {
			t.Errorf("ClassOf(%q) = %d, want %d", name, got, want)
		}
	}
}
