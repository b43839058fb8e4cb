package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

func showObservation(o request.Observation) string {
	s := fmt.Sprintf("%d-%d %s %q %q", o.Start, o.Finish, o.Outcome, o.FinishReason, o.Error)
	for _, a := range o.Aliases {
		s += fmt.Sprintf(" %s=%s", a.Kind, a.ID)
	}
	for _, v := range []struct {
		name string
		v    request.Value
	}{{"step", o.Step}, {"sample", o.Sample}, {"group", o.Group}, {"attempt", o.Attempt}, {"e2e", o.E2E}, {"queue", o.Queue}, {"tokens", o.CompletionTokens}} {
		if v.v.State != request.Absent {
			s += fmt.Sprintf(" %s=%v", v.name, v.v.V)
		}
		if v.v.State == request.Invalid {
			s += "!"
		}
	}
	return strings.TrimSpace(s + " " + strings.Join(o.Flags, ","))
}

func TestObservations(t *testing.T) {
	root := func(ts any, id string, rollout int) []any {
		return []any{ev("event", "buffer_dequeue", ts, "", "", "rollout_id", rollout), ev("start", "generate_and_rm_group", ts, id, "")}
	}
	call := func(from, to any, id, parent, rid string, attrs ...any) []any {
		return []any{ev("start", "sglang_generate", from, id, parent), ev("end", "sglang_generate", to, id, "", append(attrs, "sglang_request_id", rid)...)}
	}
	join := func(parts ...[]any) (out []any) { return slices.Concat(parts...) }
	for name, c := range map[string]struct {
		sample pyDict
		want   []string
	}{
		"one": {traced(call(100.5, 103.0, "a", "", "r1", "e2e_latency", 2.25, "finish_reason", "stop", "completion_tokens", 7)...),
			[]string{`100500000000-103000000000 ok "stop" "" sample_span=exp/train/7/0/a rid=r1 step=7 sample=0 attempt=0 e2e=2.25 tokens=7`}},
		"aborted, then again": {traced(join(call(1.0, 2.0, "a", "", "r1", "finish_reason", "abort"), call(3.0, 4.0, "b", "", "r1", "finish_reason", "length"))...),
			[]string{`1000000000-2000000000 aborted "abort" "" sample_span=exp/train/7/0/a rid=r1 step=7 sample=0 attempt=0`,
				`3000000000-4000000000 ok "length" "" sample_span=exp/train/7/0/b rid=r1 step=7 sample=0 attempt=0`}},
		"failed": {traced(ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 2.0, "a", "", "error_type", "TimeoutError", "queue_time", -1.0)),
			[]string{`1000000000-2000000000 error "" "TimeoutError" sample_span=exp/train/7/0/a step=7 sample=0 attempt=0 queue=-1!`}},
		"open": {traced(ev("start", "sglang_generate", 1.0, "a", "")),
			[]string{`1000000000-0  "" "" sample_span=exp/train/7/0/a step=7 sample=0 attempt=0 open_span`}},
		"carried over": {traced(join(root(1.0, "g1", 6), call(1.5, 2.0, "a", "g1", "r1", "finish_reason", "abort"), root(5.0, "g2", 7), call(5.5, 6.0, "b", "g2", "r2", "finish_reason", "stop"))...),
			[]string{`5500000000-6000000000 ok "stop" "" sample_span=exp/train/7/0/b rid=r2 step=7 sample=0 attempt=0`}},
	} {
		var got []string
		_, err := readAll(t, pyDict{"rollout_id", 7, "samples", pyList{c.sample}}, Options{}, func(s *Sample) {
			for _, o := range s.Observations("exp", Train, 7) {
				got = append(got, showObservation(o))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
