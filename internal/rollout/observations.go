package rollout

import (
	"fmt"
	"math"

	"github.com/rollscope/rollscope/internal/request"
)

// Observations are the sample's requests as the rollout saw them, for [request.Merge]: those of the step
// that the dump is of, so that each request of a sample that was carried over is told once, and of
// siblings that share a trace the first one's. run, s and step name the sample. Their strings may be kept.
func (s *Sample) Observations(run string, kind Kind, step int64) []request.Observation {
	if s.Trace.SharedWith >= 0 && s.Trace.SharedWith != s.Ordinal {
		return nil
	}
	var out []request.Observation
	for i := range s.Requests {
		q := &s.Requests[i]
		if !q.OwnStep {
			continue
		}
		o := request.Observation{Source: request.FromDump, Final: true, FinishReason: q.FinishReason, Error: q.ErrorType,
			Start: nanoseconds(q.Start), Finish: nanoseconds(q.End),
			E2E: q.E2ELatency, Queue: q.QueueTime, Phases: q.Phases,
			PromptTokens: q.PromptTokens, CompletionTokens: q.CompletionTokens, CachedTokens: q.CachedTokens, DecodeThroughput: q.DecodeThroughput,
			TransferSpeed: q.TransferSpeed, TransferSize: q.TransferSize, Retries: q.Retries,
			Run: run, Kind: kind.String(), Step: count(step), Sample: count(int64(s.Ordinal)), Attempt: count(int64(q.Attempt))}
		if s.GroupIndex.OK {
			o.Group = count(s.GroupIndex.N)
		}
		if len(s.WeightVersions) == 1 { // of several, nobody says which request had which
			o.WeightVersion = s.WeightVersions[0]
		}
		switch q.Name {
		case "sglang_generate_stream":
			yes := true
			o.Streaming = &yes
		case "sglang_generate":
			no := false
			o.Streaming = &no
		}
		o.Outcome = request.OutcomeOf(q.FinishReason)
		if q.ErrorType != "" {
			o.Outcome = request.ErrorOutcome
		}
		if q.SpanEnd < 0 {
			o.Flags = append(o.Flags, "open_span")
		}
		if q.SpanStart < 0 {
			o.Flags = append(o.Flags, "orphan_end")
		}
		id := q.SpanID
		if id == "" {
			id = fmt.Sprintf("#%d", i)
		}
		o.Aliases = []request.Alias{{Kind: request.SampleSpan, ID: fmt.Sprintf("%s/%s/%d/%d/%s", run, kind, step, s.Ordinal, id)}}
		if q.RID != "" {
			o.Aliases = append(o.Aliases, request.Alias{Kind: request.RID, ID: q.RID})
		}
		out = append(out, o)
	}
	return out
}

func count(n int64) request.Value { return request.Value{V: float64(n), State: request.Known} }

// nanoseconds is 0 for what is no time since 1970.
func nanoseconds(s float64) int64 {
	if !(s > 0 && s < math.MaxInt64/1e9) {
		return 0
	}
	whole, part := math.Modf(s)
	return int64(whole)*1e9 + int64(math.Round(part*1e9))
}
