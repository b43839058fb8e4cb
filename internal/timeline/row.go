// Package timeline turns a sample's trace into a row of spans, points and lanes, a dump into columns
// that a page draws, and a step into the parts of its wall time. Its entry point is [Builder].
package timeline

import (
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// Class is what an item is about; it chooses the colour. The page's colour tokens are in web/src/tokens.css
// (--ph-*); spans that no rule knows are ClassOther and take series colours by name.
type Class uint8

// Classes. Those of PD phases follow [request.Phase]: ClassPhase + phase.
const (
	ClassOther    Class = iota
	ClassGroup          // generate_and_rm_group, generate_and_rm: holders
	ClassGenerate       // a request
	ClassQueue          // time in the engine's queue
	ClassReward
	ClassTool
	ClassSync // weight sync
	ClassWait // waiting for the step's stragglers
	ClassPrefill
	ClassDecode
	ClassEvent // points
	ClassPhase // + request.Phase
	NumClasses = ClassPhase + Class(request.NumPhases)
)

// State of an item.
type State uint8

// States.
const (
	Closed State = iota
	Open         // no end was written; End is where it is drawn to
	PointEvent
	OrphanEnd // an end without a start
)

// Flags of an item.
type Flags uint8

// Flags.
const (
	Virtual      Flags = 1 << iota // a [P] or [D] lane that the builder added
	Derived                        // placed by the builder from a duration, not from two time stamps
	LeakedParent                   // its written or inferred parent had ended or is a cycle: shown as a root
	DuplicateID                    // another span of the row has the same span_id
	NegativeSpan                   // ends before it starts; drawn as a point of no length
	Skewed                         // lies outside its parent by more than clocks explain
	Error                          // error_type in its end attributes
	AbortedSpan                    // of an attempt that was thrown away
)

// Item is one span, point or orphan end of a row. Times are nanoseconds since 1970 (UTC).
type Item struct {
	Class      Class
	State      State
	Flags      Flags
	Name       string
	Start, End int64 // End >= Start
	Attempt    int
	Lane       int // within the row; items of one lane never overlap, except a span and the points in it
	Depth      int
	Parent     int // index in Row.Items, -1
	Request    int // index in Row.Sample.Requests, -1
	SpanID     string
	// ClippedBy says why an open span is drawn to End: row_end, next_sibling_start, ancestor_end,
	// last_child (what is in it went on longer than those say), self (nothing is known but its start).
	ClippedBy            string
	StartAttrs, EndAttrs torchfile.Value // of a point both are its attrs: StartAttrs only
	Attrs                []byte          // a JSON object that stands in the place of StartAttrs; nil for none
	Segments             []Segment       // of a [P] or [D] item: leaf parts in order, which never add up to more than it
}

// Segment is a stretch of a [P] or [D] item.
type Segment struct {
	Class      Class
	Start, End int64 // ns since 1970
}

// Row is one sample's timeline. [Builder] reuses it: it is valid until the next one is built.
type Row struct {
	Sample                       *rollout.Sample
	Label                        string // stands in the place of the sample's label; "" leaves that
	Items                        []Item // by lane, then start, then end (longest first)
	Start, End                   int64  // ns since 1970; of the items drawn
	Lanes                        int
	Attempts                     int // number of attempts seen
	Open, Orphans, Points, Spans int // Spans are all spans, open and virtual ones included
	Unplaced                     int // starts and points without a finite time: not among the items
	// WhyEmpty says why there is nothing to draw; then Items is empty and Start and End mean nothing.
	WhyEmpty string
}
