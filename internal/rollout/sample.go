// Package rollout reads what an RL rollout wrote down: samples of every generation of slime, their
// traces, attempts and requests, and the metrics of a step. Its entry point is [Read].
package rollout

import (
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// Int is an integer that may be missing.
type Int struct {
	N  int64
	OK bool
}

// Kind is what a dump is of.
type Kind uint8

// Kinds of a step.
const (
	Train Kind = iota
	Eval
)

// Status is how a sample ended. Statuses that slime does not know keep their text in Sample.StatusText.
type Status uint8

// The statuses of slime's Sample.Status; StatusOther is any other text, StatusNone none at all.
const (
	StatusNone Status = iota
	StatusPending
	StatusCompleted
	StatusTruncated
	StatusAborted
	StatusFailed
	StatusOther
)

// Sample is one sample of a dump, decoded. [Read] reuses it: it, its slices and its torchfile Values are
// valid until the visitor returns; its strings may be kept (ids of one trace share their memory).
// Text that Python would write with lone surrogates is not valid UTF-8 here. Numbers that the dump gives in a form that is not a number are missing
// and named in Problems.
type Sample struct {
	Ordinal int   // place in the dump, nested lists flattened; with the step it identifies the sample
	End     int64 // byte of the pickle at which its entry ends, 0 when the file is not streamed
	// Group and Member are the sample's place in nested lists (prompt, rollout, sample of it); -1 where
	// the dump is flat.
	Group, Member, Part int

	Index, GroupIndex, RolloutID Int // attributes: siblings share them
	Status                       Status
	StatusText                   string
	Source, Dataset              string // "" when unknown
	SessionID                    string
	WeightVersions               []string

	ResponseLength                                    Int           // tokens
	EffectiveLength                                   Int           // tokens that count for the loss: the sum of loss_mask, else effective_response_length, else ResponseLength
	PromptTokens                                      Int           // len(tokens), else token_count, minus response_length
	NonGeneration                                     request.Value // s, Sample.non_generation_time
	CachedTokens                                      Int           // Sample.prefix_cache_info
	TotalPrompt                                       Int
	SpecAccept, SpecDraft, SpecVerify, SpecCompletion Int // Sample.spec_info
	RemoveSample                                      bool
	// StartRollout is metadata.start_rollout_id: the rollout in which slime first aborted the sample and
	// put it aside for a later one (partial rollout).
	StartRollout Int

	Reward Reward

	Trace    Trace
	Requests []request.Request // in the order of their spans' starts

	// Raw is the sample itself; fields that Read did not decode (prompt, response, tokens) are decoded
	// when asked for.
	Raw      torchfile.Value
	Problems []Problem // at most MaxProblems
	// MoreProblems counts those beyond MaxProblems.
	MoreProblems int
}

// MaxProblems is the number of problems of one sample that are kept in full; the rest are counted.
const MaxProblems = 32

// Reward is a sample's reward: a number, or a dict of several.
type Reward struct {
	Value request.Value   // of the number, or of the dict's entry that Options.RewardKey names
	Keys  []string        // of a dict, in its order
	Parts []request.Value // of a dict
	Raw   torchfile.Value
}

// Trace is a sample's carrier.
type Trace struct {
	Present bool   // there is a dict with at least one usable event
	Why     string // when it is not Present: what is there instead
	ID      string
	Version Int
	Attempt int
	Events  []Event
	// Total counts all entries of the events list, Skipped those that are no usable event (no dict, no time).
	// Events that Options.NoTrace or a bound leaves out are in Total alone.
	Total, Skipped int
	// SharedWith is the ordinal of the first sample of the dump that has the very same carrier (fan-out
	// siblings), -1 when there is none before this one.
	SharedWith int
	// Segments are the rollout steps that the events ran in, in the order of the list; together they
	// cover all events. There is one as a rule; a sample that was aborted and carried over (partial
	// rollout) has one for each step that worked on it. See [Segment].
	Segments []Segment
	// Own is the index in Segments of the step that this dump is of, -1 when there are no events.
	Own int
	Raw torchfile.Value
}

// Segment is a stretch of a carrier's events that ran in one rollout step.
//
// A segment begins
//   - at a span generate_and_rm_group without a parent: slime starts one for each step that works on a
//     group. Starts of the same instant are one: slime writes one for each sibling that shares a carrier;
//   - at an event data_source_* or buffer_dequeue whose attrs name another rollout_id than the segment
//     has, and at such an attempt_start outside of a generate_and_rm_group. A root that follows such an
//     event directly belongs to it.
//
// Other roots, such as the generate_and_rm of an agent's turns, and attempts that name no rollout, begin
// none. The dump's own step is the last segment that has the dump's rollout_id, else the last one: a
// sample is dumped by the step that finished it.
type Segment struct {
	First, End int // Trace.Events[First:End]
	// RolloutID is the step's number where an event says it.
	RolloutID Int
	Attempt   int // of the segment's last event
}

// SegmentOf is the index in Segments of the step that Events[event] ran in, -1 when there is none.
func (t *Trace) SegmentOf(event int) int {
	for i := len(t.Segments) - 1; i >= 0; i-- {
		if s := t.Segments[i]; event >= s.First && event < s.End {
			return i
		}
	}
	return -1
}

// EventKind is the type of an event.
type EventKind uint8

// Kinds of events. Anything else that has a time is a point event, as in slime's viewer: a span_start
// without a span_id, too.
const (
	Point EventKind = iota
	SpanStart
	SpanEnd
)

// Event is one entry of a carrier's events list.
type Event struct {
	Order   int // place in the list
	Kind    EventKind
	Name    string
	TS      float64 // s since 1970, as Python's float() reads it; finite unless NonFinite
	Attempt int
	// SpanID and ParentID are "" when the event has none or one that Python takes for false. Ids that
	// are no strings have their Python str; those that are longer than 256 bytes are cut.
	SpanID, ParentID string
	Attrs            torchfile.Value // dict, or whatever stands there; may be missing or None
	// Raw is the event's dict, for what the fields above do not keep.
	Raw torchfile.Value
	// NonFinite says that ts is NaN or infinite.
	NonFinite bool
}

// Problem is something odd about a sample: shown, counted, never fatal.
type Problem struct {
	Code  string // a fixed word: bad_attempt, bad_index, duplicate_span_id, no_trace, ...
	Where string // field, or events[i]
	What  string
}
