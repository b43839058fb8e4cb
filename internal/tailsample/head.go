package tailsample

import "fmt"

// Input is what is known of a stretch of time about traces and about the requests they should be of.
type Input struct {
	// Observed is how many requests the traces of the stretch told of, Counted how many the engines' own
	// counters did; NaN or less than 0 when there are no counters.
	Observed, Counted float64
	// WithThreshold is how many of the spans carried an ot=th of tracestate that lets less than all
	// through (Stats.HeadSampled), Spans how many there were.
	WithThreshold, Spans float64
}

// Judgement says whether traces were sampled before they came here.
type Judgement struct {
	State  string  // "all" (every request left a trace), "sampled", "unknown"
	Share  float64 // of the requests that left a trace, 0 when not known
	Reason string  // in words, for whoever reads percentiles made of these traces
}

// Reliable tells whether rates and percentiles of the traces are those of all requests.
func (j Judgement) Reliable() bool { return j.State == "all" }

// leastCounted is how many requests there must be before a difference means something; tolerance is what
// the edges of a window and retries of exporters make of it.
const (
	leastCounted = 50
	tolerance    = 0.1
)

// HeadSampled judges whether the senders, or a collector before us, sampled: what was thrown away there
// can be counted nowhere here, and slow requests are as likely to be missing as others.
func HeadSampled(in Input) Judgement {
	j := Judgement{State: "unknown"}
	if in.Counted > 0 && in.Observed >= 0 {
		j.Share = min(in.Observed/in.Counted, 1)
	}
	switch {
	case in.Spans > 0 && in.WithThreshold > 0:
		j.State = "sampled"
		j.Reason = fmt.Sprintf("%.0f of %.0f spans say in their tracestate (ot=th) that a sampler before this one threw others away", in.WithThreshold, in.Spans)
	case !(in.Counted >= 0):
		j.Reason = "there are no request counters of the engines to compare the traces with"
	case !(in.Counted >= leastCounted):
		j.Reason = fmt.Sprintf("too few requests to tell: the engines counted %.0f", in.Counted)
	case !(in.Observed >= 0):
		j.Reason = "it is not known how many requests the traces told of"
	case in.Observed < in.Counted*(1-tolerance):
		j.State = "sampled"
		j.Reason = fmt.Sprintf("the engines counted %.0f requests and traces told of %.0f (%.1f %%): a sampler of the sender (OTEL_TRACES_SAMPLER, a traceparent without the sampled flag) or a collector before this one keeps the rest back, or some engines send no traces",
			in.Counted, in.Observed, 100*j.Share)
	default:
		j.State = "all"
	}
	return j
}
