// Package request is one generation of an engine: its identity, its phases and its timings.
// Its entry point is [Request].
package request

// Phase is one part of a request's life on an engine.
//
// Phases nest: PrefillBootstrapQueue holds PrefillBootstrap and PrefillAllocWait, PrefillForward holds
// PrefillTransferQueue, DecodePrealloc holds DecodeBootstrap and DecodeAllocWait. Never add up a phase
// and what it holds.
type Phase uint8

// The phases, in the order in which a request goes through them; each is followed by those it holds.
const (
	PrefillBootstrapQueue Phase = iota
	PrefillBootstrap
	PrefillAllocWait
	PrefillForward
	PrefillTransferQueue
	DecodePrealloc
	DecodeBootstrap
	DecodeAllocWait
	DecodeTransfer
	DecodeForward
	NumPhases
)

// Value is a number with its state: what was read, or that nothing was said, or that what was said
// cannot be (a duration that is negative, NaN, infinite or no number).
type Value struct {
	V     float64
	State State
}

// State tells the three apart.
type State uint8

// The states of a Value.
const (
	Absent  State = iota // nobody said anything
	Known                // V is a finite number
	Invalid              // something was said that cannot be; V holds it when it is a number at all
)

// Known returns the number and whether there is one.
func (v Value) Known() (float64, bool) { return v.V, v.State == Known }

// Request is one generation as its client saw it: the span around the call and what the engine's answer
// said. Durations are seconds, times are seconds since 1970 (UTC) as the dump has them.
type Request struct {
	// Span is the index of the span's start event in the trace, End that of its end event; -1 when missing.
	SpanStart, SpanEnd int
	Name               string // sglang_generate, sglang_generate_stream, ...
	SpanID             string
	RID                string // the engine's id of the request, "" when it was not written
	Attempt            int
	Start, End         float64 // of the span; End is NaN while it is open, Start where only the end was kept
	FinishReason       string  // stop, length, abort, ...
	ErrorType          string  // the Python exception that ended the span, "" when there was none

	// Segment is the index in the trace's segments of the rollout step that the request began in.
	// OwnStep says that this is the step the dump is of: a sample that was carried over from earlier
	// steps (partial rollout) brings the requests of those along. Each request is OwnStep in at most
	// one dump.
	Segment int
	OwnStep bool

	PromptTokens, CompletionTokens, CachedTokens Value
	QueueTime, E2ELatency, DecodeThroughput      Value // s, s, tokens/s

	Phases                               [NumPhases]Value // s
	TransferSpeed, TransferSize, Retries Value            // GB/s, MB, count
	// PhasesFrom says where the phases were read.
	PhasesFrom PhaseSource
}

// PhaseSource says where the phases of a request stood.
type PhaseSource uint8

// Where phases are found.
const (
	NoPhases   PhaseSource = iota
	InEndAttrs             // pd_* of the request's own span_end
	InChildren             // one pd_* on each sglang_pd_* child span (slime since 8f732538a)
)

// Profiled tells whether the engine's answer carried at least one usable timing.
func (r *Request) Profiled() bool {
	for _, v := range [...]Value{r.QueueTime, r.E2ELatency, r.DecodeThroughput, r.TransferSpeed, r.TransferSize, r.Retries} {
		if v.State == Known {
			return true
		}
	}
	for _, v := range r.Phases {
		if v.State == Known {
			return true
		}
	}
	return false
}
