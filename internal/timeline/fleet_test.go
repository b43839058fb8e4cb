package timeline

import (
	"fmt"
	"math/rand/v2"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// fleetRows returns n rows of about perRow items as a PD rollout with tools makes them, without
// attributes. The same arguments give the same rows.
func fleetRows(n, perRow int) []*Row {
	rnd := rand.New(rand.NewPCG(7, 9))
	rows := make([]*Row, n)
	for i := range rows {
		s := plainSample(i, i, i/8, rollout.StatusCompleted, float64(rnd.IntN(2)))
		s.Trace.ID = fmt.Sprintf("%08x%08x", rnd.Uint32(), rnd.Uint32())
		switch rnd.IntN(20) {
		case 0:
			s.Status = rollout.StatusAborted
		case 1:
			s.Status = rollout.StatusTruncated
		}
		s.Source = []string{"math", "code", "agent"}[i/8%3]
		row := &Row{Sample: s, Attempts: 1}
		rows[i] = row
		if rnd.IntN(50) == 0 {
			s.Trace.Present, row.WhyEmpty = false, "no trace"
			continue
		}
		at := rnd.Float64() * 10
		row.Start = sec(at)
		row.Items = append(row.Items, Item{Class: ClassGroup, Name: "generate_and_rm", Start: sec(at), Parent: -1, Request: -1, SpanID: fmt.Sprintf("%d-root", i)})
		var lower []Item
		attempt := 0
		for len(row.Items)+len(lower) < perRow-1 {
			if rnd.IntN(30) == 0 {
				attempt++
				row.Attempts++
			}
			at += rnd.Float64() * 0.05
			e2e := 0.3 + rnd.ExpFloat64()
			pre := e2e * 0.2
			gen := Item{Class: ClassGenerate, Name: "sglang_generate", Start: sec(at), End: sec(at + e2e), Lane: 1, Depth: 1, Parent: 0,
				Request: len(s.Requests), Attempt: attempt, SpanID: fmt.Sprintf("%d-%d", i, len(row.Items))}
			q := absentRequest("sglang_generate", fmt.Sprintf("%016x", rnd.Uint64()), at, at+e2e)
			q.SpanID, q.Attempt, q.FinishReason = gen.SpanID, attempt, "stop"
			q.QueueTime, q.E2ELatency, q.DecodeThroughput = known1(pre/4), known1(e2e), known1(40+rnd.Float64())
			q.CompletionTokens, q.PromptTokens = known1(float64(20+rnd.IntN(500))), known1(200)
			q.Phases[request.PrefillBootstrapQueue], q.Phases[request.PrefillForward] = known1(pre/4), known1(pre*3/4)
			q.Phases[request.DecodePrealloc], q.Phases[request.DecodeTransfer], q.Phases[request.DecodeForward] = known1(pre/8), known1(pre/8), known1(e2e-pre*1.25)
			s.Requests = append(s.Requests, q)
			row.Items = append(row.Items, gen)
			lower = append(lower,
				Item{Class: ClassPrefill, Flags: Virtual | Derived, Name: "[P] sglang_generate", Start: sec(at), End: sec(at + pre), Lane: 2, Depth: 2, Parent: len(row.Items) - 1, Request: gen.Request, Attempt: attempt,
					Segments: []Segment{{ClassPhase + Class(request.PrefillBootstrapQueue), sec(at), sec(at + pre/4)}, {ClassPhase + Class(request.PrefillForward), sec(at + pre/4), sec(at + pre)}}},
				Item{Class: ClassDecode, Flags: Virtual | Derived, Name: "[D] sglang_generate", Start: sec(at + pre), End: sec(at + e2e), Lane: 3, Depth: 2, Parent: len(row.Items) - 1, Request: gen.Request, Attempt: attempt,
					Segments: []Segment{{ClassPhase + Class(request.DecodeForward), sec(at + pre*1.25), sec(at + e2e)}}})
			at += e2e
			if rnd.IntN(3) == 0 {
				d := rnd.ExpFloat64() * 0.4
				row.Items = append(row.Items, Item{Class: ClassTool, Name: []string{"sandbox_exec", "search"}[rnd.IntN(2)], Start: sec(at), End: sec(at + d), Lane: 1, Depth: 1, Parent: 0, Request: -1, Attempt: attempt})
				at += d
			}
			if rnd.IntN(4) == 0 {
				row.Items = append(row.Items, Item{Class: ClassEvent, State: PointEvent, Name: "submitted", Start: sec(at), End: sec(at), Lane: 1, Depth: 1, Parent: 0, Request: -1, Attempt: attempt})
				row.Points++
			}
		}
		last := Item{Class: ClassReward, Name: "reward_model", Start: sec(at), End: sec(at + 0.1), Lane: 1, Depth: 1, Parent: 0, Request: -1, Attempt: attempt}
		if rnd.IntN(40) == 0 {
			last.State, last.ClippedBy = Open, "row_end"
			row.Open++
		}
		row.Items = append(row.Items, last)
		row.Items = append(row.Items, lower...)
		row.Items[0].End = sec(at + 0.1)
		row.End, row.Lanes = row.Items[0].End, 4
	}
	return rows
}
