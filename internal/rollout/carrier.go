package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/torchfile"
)

// traceVersion is the version of the carrier that slime writes.
const traceVersion = 1

const (
	// maxEvents bounds the events of one carrier; each takes some 200 bytes of memory.
	maxEvents = 1 << 21
	// maxIDs bounds the bytes of the ids of one carrier.
	maxIDs = 1 << 27
)

// trace reads a sample's carrier: a dict (or an object with the same attributes) whose events are a
// list. What is odd about it is noted and passed over.
func (r *reader) trace(v torchfile.Value) {
	t := &r.sample.Trace
	t.Raw = v
	switch {
	case r.opts.NoTrace:
		t.Why = "not asked for"
		return
	case v.Err() != nil:
		t.Why = "the trace cannot be decoded"
		r.problem("undecodable", "trace", v.Err().Error())
		return
	case !v.Exists():
		t.Why = "no trace"
		return
	case v.IsNone():
		t.Why = "trace is None"
		return
	}
	var events, id, version, attempt torchfile.Value
	if !r.each(v, func(key []byte, x torchfile.Value) {
		switch string(key) {
		case "events":
			events = x
		case "trace_id":
			id = x
		case "version":
			version = x
		case "attempt":
			attempt = x
		}
	}) {
		t.Why = "trace is " + describe(v)
		r.problem("bad_trace", "trace", describe(v))
		return
	}
	if first, ok := r.shared[v.ID()]; ok {
		t.SharedWith = first
	} else if v.ID() != 0 {
		r.shared[v.ID()] = r.sample.Ordinal
	}
	t.ID = scalarText(id, maxWord)
	t.Version = r.integer(version, "version")
	if t.Version.OK && t.Version.N != traceVersion {
		r.problem("trace_version", "trace", "version "+strconv.FormatInt(t.Version.N, 10)+" is not known; read as version 1")
	}
	n, ok := attemptOf(attempt)
	if !ok {
		r.problem("bad_attempt", "trace", describe(attempt))
	}
	t.Attempt = n
	switch {
	case isFalse(events):
		t.Why = "no events"
		return
	case !isList(events) && events.Kind() != torchfile.KindDict:
		t.Why = "events is " + describe(events)
		r.problem("bad_events", "trace", describe(events))
		return
	}
	r.readEvents(events)
	if t.Present = len(t.Events) > 0; !t.Present {
		t.Why = fmt.Sprintf("none of %d events is usable", t.Total)
		return
	}
	r.segments()
	r.requests()
}

// readEvents fills Trace.Events.
func (r *reader) readEvents(list torchfile.Value) {
	t := &r.sample.Trace
	if list.Kind() == torchfile.KindDict { // Python iterates over its keys, none of which is an event
		t.Total, t.Skipped = list.Len(), list.Len()
		r.problem("bad_events", "trace", describe(list))
		return
	}
	t.Total = list.Len()
	r.spans.ids = r.spans.ids[:0]
	for i, x := range list.All() {
		if r.events--; r.events < 0 || i == maxEvents {
			r.problem("too_many_events", "trace", "events beyond "+strconv.Itoa(i)+" were left out")
			break
		}
		r.event(i, x)
	}
	r.text.seal()
	for i := range t.Events {
		e, at := &t.Events[i], &r.spans.ids[i]
		e.SpanID, e.ParentID = r.text.get(at[0]), r.text.get(at[1])
	}
}

// event appends one event, or counts it as skipped.
func (r *reader) event(i int, v torchfile.Value) {
	t := &r.sample.Trace
	t.Events = append(t.Events, Event{Order: i, Raw: v})
	e := &t.Events[len(t.Events)-1]
	skip := func(what string) {
		t.Events = t.Events[:len(t.Events)-1]
		t.Skipped++
		r.eventProblem("event_skipped", i, "", what)
	}
	var ts, kind, name, attempt, spanID, parentID torchfile.Value
	if !r.each(v, func(key []byte, x torchfile.Value) {
		switch string(key) {
		case "ts":
			ts = x
		case "type":
			kind = x
		case "name":
			name = x
		case "attempt":
			attempt = x
		case "span_id":
			spanID = x
		case "parent_span_id":
			parentID = x
		case "attrs":
			e.Attrs = x
		}
	}) {
		skip("no dict")
		return
	}
	f, ok := ts.Float()
	if !ok {
		odd := ts.Kind() != torchfile.KindInt
		if f, ok = pyFloat(ts); !ok {
			skip("no time")
			return
		}
		if odd {
			r.eventProblem("odd_ts", i, ".ts", "time is no float")
		}
	}
	e.TS = f
	if !finite(f) {
		e.NonFinite = true
		r.eventProblem("non_finite_ts", i, ".ts", "time is NaN or infinite")
	}
	if b := name.RawStr(); b != nil {
		e.Name = r.words.add(b)
	} else if name.Exists() && !name.IsNone() {
		e.Name = r.words.text(name, maxText)
		r.eventProblem("odd_name", i, ".name", "name is no text")
	}
	e.Attempt = t.Attempt
	if attempt.Exists() {
		n, ok := attempt.Int()
		if !ok {
			if n2, good := attemptOf(attempt); good {
				n = int64(n2)
			} else {
				n = int64(t.Attempt)
				r.eventProblem("bad_attempt", i, ".attempt", "not an integer")
			}
		}
		e.Attempt = int(n)
	}
	var at [2]textSpan
	at[0] = r.eventID(i, ".span_id", spanID)
	at[1] = r.eventID(i, ".parent_span_id", parentID)
	r.spans.ids = append(r.spans.ids, at)
	switch {
	case kind.Is("span_start"):
		if at[0].from == at[0].to {
			r.eventProblem("span_without_id", i, "", "a span_start without a span_id is a point")
			break
		}
		e.Kind = SpanStart
	case kind.Is("span_end"):
		e.Kind = SpanEnd
	case kind.Is("event"):
	default:
		r.eventProblem("odd_type", i, ".type", "neither span_start, span_end nor event: a point")
	}
	if k := e.Attrs.Kind(); k != torchfile.KindDict && k != torchfile.KindNone && e.Attrs.Exists() && !isFalse(e.Attrs) {
		r.eventProblem("bad_attrs", i, ".attrs", "attrs is no dict")
	}
}

// eventID copies an id to the arena. What Python takes for false is no id.
func (r *reader) eventID(i int, where string, v torchfile.Value) textSpan {
	if len(r.text.buf) > maxIDs {
		r.eventProblem("too_many_ids", i, where, "the ids take too much memory")
		return textSpan{}
	}
	if b := v.RawStr(); b != nil {
		if len(b) > maxWord {
			r.eventProblem("long_span_id", i, where, "longer than 256 bytes")
		}
		return r.text.add(cutText(b, maxWord))
	}
	if isFalse(v) {
		return textSpan{}
	}
	s := scalarText(v, maxWord)
	if s == "" {
		r.eventProblem("bad_span_id", i, where, "it is no id")
	} else {
		r.eventProblem("odd_span_id", i, where, "it is no text")
	}
	return r.text.add([]byte(s))
}

// eventProblem is problem with a place in the list of events.
func (r *reader) eventProblem(code string, i int, field, what string) {
	if len(r.sample.Problems) >= MaxProblems {
		r.sample.MoreProblems++
		return
	}
	r.problem(code, "events["+strconv.Itoa(i)+"]"+field, what)
}

// segments splits the events by the rollout steps they ran in; see [Segment].
func (r *reader) segments() {
	t := &r.sample.Trace
	cur := Segment{}
	var (
		bare    = true // the segment has had nothing but marks
		rooted  bool   // and a root
		rootTS  float64
		open    int // roots of the segment that have not ended
		rootIDs = r.roots[:0]
	)
	begin := func(i int) {
		if i > cur.First {
			cur.End, cur.Attempt = i, t.Events[i-1].Attempt
			t.Segments = append(t.Segments, cur)
		}
		cur = Segment{First: i}
		bare, rooted, open, rootIDs = true, false, 0, rootIDs[:0]
	}
	for i := range t.Events {
		e := &t.Events[i]
		switch {
		case e.Kind == SpanStart && e.ParentID == "" && e.Name == groupSpan:
			if rooted && e.TS != rootTS {
				begin(i)
			}
			rooted, rootTS = true, e.TS
			if len(rootIDs) < maxRoots {
				rootIDs = append(rootIDs, e.SpanID)
				open++
			}
		case e.Kind == SpanEnd && e.Name == groupSpan && open > 0 && slices.Contains(rootIDs, e.SpanID):
			open--
		case e.Kind == Point:
			always, maybe := marksStep(e.Name)
			if !always && !(maybe && open == 0) {
				break
			}
			id, why := integer(e.Attrs.Field("rollout_id"))
			if why != "" {
				break
			}
			if cur.RolloutID != (Int{id, true}) {
				if cur.RolloutID.OK || !bare {
					begin(i)
				}
				cur.RolloutID = Int{id, true}
			}
			continue
		}
		bare = false
	}
	cur.End, cur.Attempt = len(t.Events), t.Events[len(t.Events)-1].Attempt
	t.Segments = append(t.Segments, cur)
	r.roots = rootIDs
	t.Own = len(t.Segments) - 1
	if want := r.hdr.RolloutID; want.OK {
		for i := len(t.Segments) - 1; i >= 0; i-- {
			if t.Segments[i].RolloutID == want {
				t.Own = i
				break
			}
		}
	}
}

const (
	groupSpan = "generate_and_rm_group"
	maxRoots  = 64 // of one segment: siblings that share a carrier
)

// marksStep says that an event of this name tells which rollout step goes on with the sample: always,
// or unless it stands within a step's root.
func marksStep(name string) (always, maybe bool) {
	switch name {
	case "attempt_start":
		return false, true
	case "buffer_dequeue":
		return true, false
	}
	return strings.HasPrefix(name, "data_source_"), false
}
