package timeline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Options are the choices of a [Builder]. The zero value is good.
type Options struct {
	// Skew is how far apart the clocks of two hosts may be; an item that lies outside its parent by
	// more is flagged Skewed. Default 50 ms.
	Skew time.Duration
	// NoVirtual leaves the [P] and [D] lanes out.
	NoVirtual bool
}

// maxNS bounds times in both directions (126 years around 1970), so that differences never overflow.
const maxNS = 4e18

// Nanos turns seconds since 1970 into nanoseconds. Seconds of our days have steps of 240 ns as a
// float64, and their product with 1e9 would be rounded once more to steps of 256 ns; the whole seconds
// are split off first, which is exact, so equal and ordered times stay so. Times beyond 126 years
// around 1970 come out at that bound; NaN is 0.
func Nanos(seconds float64) int64 {
	switch {
	case seconds >= maxNS/1e9:
		return maxNS
	case seconds <= -maxNS/1e9:
		return -maxNS
	case seconds != seconds:
		return 0
	}
	whole := math.Floor(seconds)
	return int64(whole)*1e9 + int64(math.Round((seconds-whole)*1e9))
}

// node is an item in the making. Parents and children are indexes of Builder.nodes.
type node struct {
	start, end int64
	lo, hi     int64 // extent of the subtree
	ev, endEv  int32 // index in Trace.Events, -1
	parent     int32
	pair       int32 // of a [P] node, its [D] node; -1
	same       int32 // the span before with the same id, -1
	request    int32
	rel, lane  int32 // lane below the parent's, within the row
	height     int32
	depth      int32
	seg, segs  int32 // in Builder.segs
	class      Class
	state      State
	flags      Flags
	clip       uint8
	span       bool // a span, the virtual ones included
	follows    bool // a [D] node that goes with its [P] node
}

// Builder turns samples into rows. It keeps its memory for the next sample; it is not safe for
// concurrent use.
type Builder struct {
	opts   Options
	row    Row
	nodes  []node
	spans  idTable
	stack  []int32
	leave  []int32 // per node: the order in the list after which nothing may be inferred to be in it
	evNode []int32 // per event: the span or point that it made or ended

	byStart []startKey
	kids    []int32 // children of all nodes, by start, those without a parent first
	kidsAt  []int32 // where those of node i begin is kidsAt[i+1]
	topo    []int32 // parents before children
	place   []int32 // node -> place in row.Items
	keys    []sortKey
	segs    []Segment
	pack    packer
	pd      pdReader
	tokens  tokenLedger
	classes classCache
	seen    map[int]struct{}
}

// NewBuilder returns a Builder.
func NewBuilder(opts Options) *Builder {
	if opts.Skew <= 0 {
		opts.Skew = 50 * time.Millisecond
	}
	return &Builder{opts: opts, seen: map[int]struct{}{}}
}

// Build returns the sample's row. It refers to s and is valid until the next call.
//
// It takes time n log n and memory n in the number of events, however they are nested. Nothing in a
// trace is an error: what contradicts itself is flagged and still shown. Events without a finite time
// cannot be placed: such a start or point is counted in Row.Unplaced, such an end leaves its span open.
func (b *Builder) Build(s *rollout.Sample) *Row {
	before := len(b.row.Items)
	r := b.build(s)
	if n := len(r.Items); n < before {
		clear(r.Items[n:before]) // what they refer to is gone
	}
	return r
}

func (b *Builder) build(s *rollout.Sample) *Row {
	r := &b.row
	*r = Row{Sample: s, Items: r.Items[:0]}
	b.nodes, b.segs = b.nodes[:0], b.segs[:0]
	if !s.Trace.Present {
		if r.WhyEmpty = s.Trace.Why; r.WhyEmpty == "" {
			r.WhyEmpty = "no trace"
		}
		return r
	}
	events := s.Trace.Events
	b.match(events)
	if len(b.nodes) == 0 {
		r.WhyEmpty = "no event with a time"
		if len(events) == 0 {
			r.WhyEmpty = "no usable event"
		}
		return r
	}
	b.infer(events)
	b.breakCycles()
	b.sortChildren()
	b.clipOpen()
	b.requests(s)
	if !b.opts.NoVirtual {
		if b.virtual(s) {
			b.sortChildren()
		}
	}
	b.layout()
	b.finish(s)
	return r
}

// startKey orders nodes by start, then the longer first, then as they were written.
type startKey struct {
	start, end int64
	i          int32
}

func (a startKey) compare(b startKey) int {
	if c := cmp.Compare(a.start, b.start); c != 0 {
		return c
	}
	if c := cmp.Compare(b.end, a.end); c != 0 {
		return c
	}
	return cmp.Compare(a.i, b.i)
}

// sortKey orders a row's items: by lane, then by start, then the longest first. Points come behind the
// span that begins with them.
type sortKey struct {
	lane int32
	startKey
}

func (k sortKey) order(l sortKey) int {
	return cmp.Or(cmp.Compare(k.lane, l.lane), k.compare(l.startKey))
}

// finish writes the items in their order.
func (b *Builder) finish(s *rollout.Sample) {
	r := &b.row
	keys := slices.Grow(b.keys[:0], len(b.nodes))
	for i := range b.nodes {
		n := &b.nodes[i]
		keys = append(keys, sortKey{n.lane, startKey{n.start, n.end, int32(i)}})
	}
	slices.SortFunc(keys, sortKey.order)
	b.keys = keys
	b.place = resize(b.place, len(b.nodes))
	for at, k := range keys {
		b.place[k.i] = int32(at)
	}
	clear(b.seen)
	last, any := 0, false
	r.Items = slices.Grow(r.Items, len(keys))
	for _, k := range keys {
		n := &b.nodes[k.i]
		it := Item{
			Class: n.class, State: n.state, Flags: n.flags, Start: n.start, End: n.end,
			Lane: int(n.lane), Depth: int(n.depth), Parent: -1, Request: int(n.request), ClippedBy: clipNames[n.clip],
		}
		if n.parent >= 0 {
			it.Parent = int(b.place[n.parent])
		}
		if n.ev >= 0 {
			e := &s.Trace.Events[n.ev]
			it.Name, it.Attempt, it.SpanID = e.Name, e.Attempt, e.SpanID
			if n.state == OrphanEnd {
				it.EndAttrs = e.Attrs
			} else {
				it.StartAttrs = e.Attrs
			}
			if n.endEv >= 0 {
				it.EndAttrs = s.Trace.Events[n.endEv].Attrs
			}
			if n.state != PointEvent && it.EndAttrs.Get("error_type").Exists() {
				it.Flags |= Error
			}
		} else {
			b.nameVirtual(&it, n, s)
		}
		if n.segs > 0 {
			it.Segments = b.segs[n.seg : n.seg+n.segs : n.seg+n.segs]
		}
		if !any || n.start < r.Start {
			r.Start = n.start
		}
		if !any || n.end > r.End {
			r.End = n.end
		}
		r.Lanes = max(r.Lanes, int(n.lane)+1)
		if !any || it.Attempt != last {
			b.seen[it.Attempt] = struct{}{}
			last = it.Attempt
		}
		any = true
		switch n.state {
		case Closed:
			r.Spans++
		case Open:
			r.Spans++
			r.Open++
		case PointEvent:
			r.Points++
		case OrphanEnd:
			r.Orphans++
		}
		r.Items = append(r.Items, it)
	}
	r.Attempts = len(b.seen)
	b.markAborted(s)
}

// markAborted flags the items of requests whose tokens were all thrown away, and those of attempts that
// have no other requests.
func (b *Builder) markAborted(s *rollout.Sample) {
	lost := b.tokens.lost(s.Requests)
	if len(lost) == 0 {
		return
	}
	clear(b.seen)
	for i := range s.Requests {
		if lost[i] {
			b.seen[s.Requests[i].Attempt] = struct{}{}
		}
	}
	for i := range s.Requests {
		if !lost[i] {
			delete(b.seen, s.Requests[i].Attempt)
		}
	}
	items := b.row.Items
	for i := range items {
		it := &items[i]
		if _, all := b.seen[it.Attempt]; all || it.Request >= 0 && lost[it.Request] {
			it.Flags |= AbortedSpan
		}
	}
}

// resize returns s with n elements, of any content.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
