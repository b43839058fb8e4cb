package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// maxErrorMessage bounds error_message, in bytes.
const maxErrorMessage = 4096

// Target is what spans are recorded on: a [*Carrier], a [*Handle], [Targets], or a sample whose method
// returns that of its carrier. nil and an empty list of handles record nothing.
type Target interface{ TraceHandles() []Handle }

// Handle is a carrier with the place in it where new spans hang: below ParentSpanID, if it is not "".
// It is a value: what it refers to may be shared, it itself may be copied.
type Handle struct {
	Carrier      *Carrier
	ParentSpanID string
}

// TraceHandles makes a Carrier a [Target].
func (c *Carrier) TraceHandles() []Handle {
	if c == nil {
		return nil
	}
	return []Handle{{Carrier: c}}
}

// TraceHandles makes a Handle a [Target].
func (h *Handle) TraceHandles() []Handle {
	if h == nil || h.Carrier == nil {
		return nil
	}
	return []Handle{*h}
}

// Targets are several targets, such as the samples of a group: each gets the span.
type Targets []Target

// TraceHandles makes a list a [Target].
func (t Targets) TraceHandles() []Handle {
	var out []Handle
	for _, one := range t {
		if one != nil {
			out = append(out, one.TraceHandles()...)
		}
	}
	return out
}

// All makes a list of samples a [Target].
func All[T Target](samples []T) Targets {
	out := make(Targets, len(samples))
	for i, s := range samples {
		out[i] = s
	}
	return out
}

// Tracer records. Its zero value is ready; fields are set before it is used. A nil *Tracer records
// nothing. It is safe for concurrent use and must not be copied.
type Tracer struct {
	// MaxEvents is how many events a carrier takes; ends of spans that began are always taken.
	// Default [DefaultMaxEvents].
	MaxEvents int
	// Now is the clock; default [time.Now]. Only its monotonic reading counts within an outermost span.
	Now func() time.Time
	// Logger is told the first failure of each kind; default none.
	Logger *slog.Logger

	events, dropped atomic.Int64
	mu              sync.Mutex
	errors          map[string]int64
}

// Stats counts since the Tracer's first use.
type Stats struct {
	Events  int64            // recorded
	Dropped int64            // not recorded because a carrier was full
	Errors  map[string]int64 // failures by kind: target, child, merge, import
}

// Stats returns the counts so far.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Events: t.events.Load(), Dropped: t.dropped.Load(), Errors: make(map[string]int64, len(t.errors))}
	for k, n := range t.errors {
		s.Errors[k] = n
	}
	return s
}

func (t *Tracer) fail(kind string, err error) {
	t.mu.Lock()
	if t.errors == nil {
		t.errors = make(map[string]int64)
	}
	t.errors[kind]++
	first := t.errors[kind] == 1
	t.mu.Unlock()
	if first && t.Logger != nil {
		t.Logger.Warn("tracing failed; more of this kind are only counted", "kind", kind, "error", err)
	}
}

func (t *Tracer) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

func (t *Tracer) limit() int {
	if t.MaxEvents > 0 {
		return t.MaxEvents
	}
	return DefaultMaxEvents
}

// add records an event; always says that the limit does not count. It returns the event's place or -1.
func (t *Tracer) add(c *Carrier, e Event, always bool) int {
	limit := -1
	if !always {
		limit = t.limit()
	}
	at := c.add(e, limit)
	if at < 0 {
		t.dropped.Add(1)
	} else {
		t.events.Add(1)
	}
	return at
}

func (t *Tracer) drop(c *Carrier, n int64) {
	c.drop(n)
	t.dropped.Add(n)
}

// handles returns those of a target. A target that is a nil pointer in disguise may panic.
func (t *Tracer) handles(target Target) (out []Handle) {
	defer func() {
		if r := recover(); r != nil {
			t.fail("target", fmt.Errorf("%T.TraceHandles: %v", target, r))
			out = nil
		}
	}()
	for _, h := range target.TraceHandles() {
		if h.Carrier != nil {
			out = append(out, h)
		}
	}
	return out
}

// record is a span in one carrier.
type record struct {
	carrier *Carrier
	traceID string
	spanID  string // "" when the start was dropped
	base    string // the imported span that all of it hangs below, "" for none
	end     int    // place of the end event, -1 before
}

// Span is an open or ended span on one or more carriers. It is safe for concurrent use; all methods may
// be called on nil.
type Span struct {
	tr     *Tracer
	name   string
	root   time.Time // when the outermost span began: its wall clock counts, then the monotonic one
	start  float64
	parent *Span
	one    [1]record

	mu      sync.Mutex
	records []record
	attrs   []Attr
	ended   bool
}

type spanKey struct{}

// FromContext returns the innermost span of a context, nil when there is none.
func FromContext(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// stamp turns a time into seconds since 1970 by the wall clock at root and the monotonic clock since.
func stamp(root, now time.Time) float64 {
	d := now.Sub(root)
	if d < 0 {
		d = 0 // an injected clock without a monotonic reading
	}
	ns := root.UnixNano() + int64(d)
	return float64(ns/1e9) + float64(ns%1e9)/1e9
}

// clock returns the root of a span around, or now.
func (t *Tracer) clock(around *Span) (root time.Time, ts float64) {
	now := t.now()
	if around != nil {
		return around.root, stamp(around.root, now)
	}
	return now, stamp(now, now)
}

// parentOf returns what a new event of a handle hangs below, and the imported span above that.
func parentOf(h Handle, traceID string, around *Span) (parent, base string) {
	for s := around; s != nil; s = s.parent {
		for i := range s.records { // not appended to after Start
			r := &s.records[i]
			if r.traceID == traceID && r.spanID != "" && (h.ParentSpanID == "" || h.ParentSpanID == r.base) {
				return r.spanID, r.base
			}
		}
	}
	return h.ParentSpanID, h.ParentSpanID
}

// Start begins a span on a target and returns a context in which further spans are its children. A nil
// target means the samples of the span around. The attributes stand at the span's start.
func (t *Tracer) Start(ctx context.Context, target Target, name string, attrs ...Attr) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	around := FromContext(ctx)
	s := &Span{tr: t, name: name, parent: around}
	s.root, s.start = t.clock(around)
	s.records = s.one[:0]
	kept := Attrs(nil)
	if len(attrs) > 0 {
		kept = append(Attrs(nil), attrs...)
	}
	begin := func(h Handle) {
		r := record{carrier: h.Carrier, traceID: h.Carrier.TraceID(), spanID: newID(), end: -1}
		var parent string
		parent, r.base = parentOf(h, r.traceID, around)
		if t.add(h.Carrier, Event{Type: SpanStart, Name: name, TS: s.start, SpanID: r.spanID, ParentSpanID: parent, Attrs: kept}, false) < 0 {
			r.spanID = ""
		}
		s.records = append(s.records, r)
	}
	switch target := target.(type) {
	case nil:
		if around != nil {
			for i := range around.records {
				begin(Handle{Carrier: around.records[i].carrier})
			}
		}
	case *Carrier: // the usual one, without a list
		if target != nil {
			begin(Handle{Carrier: target})
		}
	default:
		for _, h := range t.handles(target) {
			begin(h)
		}
	}
	return context.WithValue(ctx, spanKey{}, s), s
}

// TraceHandles makes a Span a [Target]: what is recorded on it hangs below it, whatever the context.
func (s *Span) TraceHandles() []Handle {
	if s == nil {
		return nil
	}
	out := make([]Handle, 0, len(s.records))
	for i := range s.records {
		r := &s.records[i]
		h := Handle{Carrier: r.carrier, ParentSpanID: r.spanID}
		if r.spanID == "" {
			h.ParentSpanID = r.base
		}
		out = append(out, h)
	}
	return out
}

// Set sets one attribute of the span's end, also after it.
func (s *Span) Set(key string, value any) *Span { return s.Update(Attr{key, value}) }

// Update adds attributes to the span's end, also after it. An attribute [ChildrenKey] with a []Child
// makes children of the span instead; they are recorded at once.
func (s *Span) Update(attrs ...Attr) *Span {
	if s == nil || len(attrs) == 0 {
		return s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	plain := attrs
	for i, a := range attrs {
		if a.Key != ChildrenKey {
			continue
		}
		plain = append(append([]Attr(nil), attrs[:i]...), attrs[i+1:]...)
		children, ok := a.Value.([]Child)
		if !ok {
			s.tr.fail("child", fmt.Errorf("span %q: children are []trace.Child, not %T", s.name, a.Value))
			break
		}
		parents := make([]string, len(s.records))
		for i, r := range s.records {
			parents[i] = r.spanID
		}
		s.children(children, parents, s.start, 0)
		break
	}
	s.attrs = Attrs(s.attrs).with(plain)
	for _, r := range s.records {
		if r.end >= 0 {
			r.carrier.amend(r.end, plain)
		}
	}
	return s
}

// children records children below parents, one a record, "" where the parent was dropped.
func (s *Span) children(children []Child, parents []string, start float64, depth int) {
	for _, c := range children {
		begin, end := start+c.Start, start+c.End
		if c.Event {
			end = begin
		}
		if c.Name == "" || math.IsNaN(end-begin) || math.IsInf(end-begin, 0) || end < begin || depth > maxDepth {
			s.tr.fail("child", fmt.Errorf("span %q: child %q from %v to %v s is no span or event with finite offsets", s.name, c.Name, c.Start, c.End))
			continue
		}
		ids := make([]string, len(parents))
		for i, parent := range parents {
			carrier := s.records[i].carrier
			switch {
			case parent == "":
				s.tr.drop(carrier, 1)
			case c.Event:
				s.tr.add(carrier, Event{Type: Point, Name: c.Name, TS: begin, ParentSpanID: parent, Attrs: c.Attrs}, false)
			default:
				id := newID()
				if s.tr.add(carrier, Event{Type: SpanStart, Name: c.Name, TS: begin, SpanID: id, ParentSpanID: parent}, false) >= 0 {
					ids[i] = id
				}
			}
		}
		if c.Event {
			continue
		}
		s.children(c.Children, ids, begin, depth+1)
		for i, id := range ids {
			carrier := s.records[i].carrier
			if id == "" {
				s.tr.drop(carrier, 1)
				continue
			}
			s.tr.add(carrier, Event{Type: SpanEnd, Name: c.Name, TS: end, SpanID: id, Attrs: c.Attrs}, true)
		}
	}
}

// End ends the span; a second End does nothing.
func (s *Span) End() { s.end(nil) }

// EndErr ends the span with error_type and error_message, or without when err is nil.
func (s *Span) EndErr(err error) {
	if err == nil {
		s.end(nil)
		return
	}
	s.end([]Attr{{"error_type", errorType(err)}, {"error_message", message(err)}})
}

func (s *Span) end(more []Attr) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	ts := stamp(s.root, s.tr.now())
	attrs := Attrs(s.attrs)
	if len(more) > 0 {
		attrs = attrs.with(more)
	}
	for i := range s.records {
		r := &s.records[i]
		if r.spanID == "" {
			s.tr.drop(r.carrier, 1)
			continue
		}
		r.end = s.tr.add(r.carrier, Event{Type: SpanEnd, Name: s.name, TS: ts, SpanID: r.spanID, Attrs: attrs}, true)
	}
}

// errorType names the kind of an error: the two of package context, else the type below the wrapping.
func errorType(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "context.Canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "context.DeadlineExceeded"
	}
	for range maxDepth {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return reflect.TypeOf(err).String()
}

func message(err error) (s string) {
	defer func() {
		if recover() != nil {
			s = "(its text cannot be read)"
		}
	}()
	s = err.Error()
	if short := cut(s, maxErrorMessage); len(short) < len(s) {
		return short + "..."
	}
	return s
}

// Event records an instant event. A nil target means the samples of the span around.
func (t *Tracer) Event(ctx context.Context, target Target, name string, attrs ...Attr) {
	if t == nil {
		return
	}
	around := FromContext(ctx)
	_, ts := t.clock(around)
	kept := Attrs(nil)
	if len(attrs) > 0 {
		kept = append(Attrs(nil), attrs...)
	}
	for _, h := range t.orAround(target, around) {
		parent, _ := parentOf(h, h.Carrier.TraceID(), around)
		t.add(h.Carrier, Event{Type: Point, Name: name, TS: ts, ParentSpanID: parent, Attrs: kept}, false)
	}
}

func (t *Tracer) orAround(target Target, around *Span) []Handle {
	if target != nil {
		return t.handles(target)
	}
	var out []Handle
	if around != nil {
		for i := range around.records {
			out = append(out, Handle{Carrier: around.records[i].carrier})
		}
	}
	return out
}

// NextAttempt begins the next attempt of a target: later events carry its number. The first of them is
// the event attempt_start. A nil target means the samples of the span around.
func (t *Tracer) NextAttempt(ctx context.Context, target Target, attrs ...Attr) {
	if t == nil {
		return
	}
	around := FromContext(ctx)
	for _, h := range t.orAround(target, around) {
		h.Carrier.mu.Lock()
		h.Carrier.attempt++
		n := h.Carrier.attempt
		h.Carrier.mu.Unlock()
		t.Event(ctx, &h, "attempt_start", append(Attrs{{"attempt", n}}, attrs...)...)
	}
}

// Func wraps a function in a span: target finds the sample in its argument (nil: the samples of the
// span around), attrs, which may be nil, the attributes of the span's start. An error ends the span
// with it; a panic, or runtime.Goexit, ends it with error_type "panic" and goes on.
func Func[In, Out any](t *Tracer, name string, target func(In) Target, attrs func(In) []Attr,
	fn func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (out Out, err error) {
		if t == nil {
			return fn(ctx, in)
		}
		to, with := resolve(t, in, target, attrs)
		ctx, span := t.Start(ctx, to, name, with...)
		returned := false
		defer func() {
			if !returned { // not recovered, so that the panic keeps its stack
				span.end([]Attr{{"error_type", "panic"}})
				return
			}
			span.EndErr(err)
		}()
		out, err = fn(ctx, in)
		returned = true
		return out, err
	}
}

// resolve calls the two functions of Func; when one panics, it counts as nil and is counted.
func resolve[In any](t *Tracer, in In, target func(In) Target, attrs func(In) []Attr) (to Target, with []Attr) {
	guard := func(kind string, f func()) {
		defer func() {
			if r := recover(); r != nil {
				t.fail(kind, fmt.Errorf("%v", r))
			}
		}()
		f()
	}
	if target != nil {
		to = Targets(nil) // what is found in the argument, or nothing: never the span around
		guard("target", func() {
			if found := target(in); found != nil {
				to = found
			}
		})
	}
	if attrs != nil {
		guard("attrs", func() { with = attrs(in) })
	}
	return to, with
}
