package rollout

import (
	"math"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// spanTable is the scratch space in which the spans of one trace are put together.
type spanTable struct {
	ids   [][2]textSpan // of each event: span and parent
	spans []span
	byID  map[string]int32 // the newest span of an id
	// How many requests by name are open, and the sum of their spans: of one, that span.
	open, openSum int
	summaries     []summary
	path          []int32
}

// summary is an event sglang_pd_summary, and the only request that was open there, -1.
type summary struct{ event, around int32 }

// span is one span of a trace, put together from its events.
type span struct {
	start, end int32 // events, -1
	parent     int32 // span, -1
	request    int32 // index in Sample.Requests, -1
	owner      int32 // the span of the request that it is or is part of, or one of the constants below
	around     int32 // the request by name that was the only open one where it began, as a span, -1
	form       spanForm
	hasNamed   bool // a request by name is below it
}

const (
	unknownOwner = -2
	noOwner      = -1
)

// spanForm is what a span's name and attributes say it is.
type spanForm uint8

const (
	plainSpan   spanForm = iota
	namedSpan            // sglang_generate, sglang_generate_stream
	timedSpan            // its end carries an engine's timings
	pdSpan               // sglang_pd_*: a part of a request
	virtualSpan          // a [P] or [D] copy that a viewer made
)

// generation says that spans of this name are requests whatever they carry.
func generation(name string) bool {
	return name == "sglang_generate" || name == "sglang_generate_stream"
}

const pdPrefix = "sglang_pd_"

// timing is one attribute that holds an engine's timing.
type timing struct {
	of    func(*request.Request) *request.Value
	phase bool
	old   bool // the name of slime's first trace commit (0988f0f4a); the present name wins over it
}

// measures are the attributes that hold an engine's timings.
var measures = map[string]timing{
	"queue_time":                          {of: func(q *request.Request) *request.Value { return &q.QueueTime }},
	"e2e_latency":                         {of: func(q *request.Request) *request.Value { return &q.E2ELatency }},
	"decode_throughput":                   {of: func(q *request.Request) *request.Value { return &q.DecodeThroughput }},
	"pd_transfer_speed_gb_s":              {of: func(q *request.Request) *request.Value { return &q.TransferSpeed }},
	"pd_transfer_total_mb":                {of: func(q *request.Request) *request.Value { return &q.TransferSize }},
	"pd_prefill_retry_count":              {of: func(q *request.Request) *request.Value { return &q.Retries }},
	"pd_prefill_bootstrap_queue_duration": phase(request.PrefillBootstrapQueue),
	"pd_prefill_bootstrap_duration":       phase(request.PrefillBootstrap),
	"pd_prefill_alloc_wait_duration":      phase(request.PrefillAllocWait),
	"pd_prefill_forward_duration":         phase(request.PrefillForward),
	"pd_prefill_transfer_queue_duration":  phase(request.PrefillTransferQueue),
	"pd_decode_prealloc_duration":         phase(request.DecodePrealloc),
	"pd_decode_bootstrap_duration":        phase(request.DecodeBootstrap),
	"pd_decode_alloc_wait_duration":       phase(request.DecodeAllocWait),
	"pd_decode_transfer_duration":         phase(request.DecodeTransfer),
	"pd_decode_forward_duration":          phase(request.DecodeForward),

	"pd_bootstrap_duration":     oldPhase(request.PrefillBootstrap),
	"pd_alloc_waiting_duration": oldPhase(request.PrefillAllocWait),
}

func phase(p request.Phase) timing {
	return timing{of: func(q *request.Request) *request.Value { return &q.Phases[p] }, phase: true}
}

func oldPhase(p request.Phase) timing {
	t := phase(p)
	t.old = true
	return t
}

// carriesTimings says that attrs hold at least one of an engine's timings.
func carriesTimings(attrs torchfile.Value) bool {
	for k := range attrs.Pairs() {
		if _, ok := measures[string(k.RawStr())]; ok {
			return true
		}
	}
	return false
}

// requests finds the sample's requests and what their engines said about them.
//
// A request is a span named sglang_generate or sglang_generate_stream, or any other span whose end
// carries an engine's timings, unless it stands within a request or around one by name: then it is a
// copy. Spans sglang_pd_* are parts of a request, [P] and [D] are copies of its parts.
func (r *reader) requests() {
	r.pair()
	t, s := &r.sample.Trace, &r.spans
	for i := range s.spans { // what is above a request by name is none by its timings
		if s.spans[i].form != namedSpan {
			continue
		}
		for p := s.spans[i].parent; p >= 0 && !s.spans[p].hasNamed; p = s.spans[p].parent {
			s.spans[p].hasNamed = true
		}
	}
	parts, segment := false, 0
	for i := range s.spans {
		sp := &s.spans[i]
		parts = parts || sp.form == pdSpan
		if !sp.candidate() || r.ownerOf(int32(i)) != int32(i) {
			continue
		}
		first := int(sp.start)
		if first < 0 {
			first = int(sp.end)
		}
		for segment+1 < len(t.Segments) && first >= t.Segments[segment].End {
			segment++
		}
		sp.request = int32(len(r.sample.Requests))
		r.sample.Requests = append(r.sample.Requests, request.Request{Segment: segment, OwnStep: segment == t.Own})
		r.request(&r.sample.Requests[sp.request], sp)
	}
	if parts {
		for i := range s.spans {
			if sp := &s.spans[i]; sp.form == pdSpan && sp.end >= 0 {
				end := &t.Events[sp.end]
				r.share(r.ownerOf(int32(i)), sp.around, end)
			}
		}
	}
	for _, at := range s.summaries {
		e, owner := &t.Events[at.event], int32(noOwner)
		if p, ok := s.byID[e.ParentID]; ok && e.ParentID != "" {
			owner = r.ownerOf(p)
		}
		r.share(owner, at.around, e)
	}
}

// pair puts the spans together. An end belongs to the newest start of its id that has no end yet, as
// in the reference viewer.
func (r *reader) pair() {
	t, s := &r.sample.Trace, &r.spans
	s.spans, s.open, s.openSum = s.spans[:0], 0, 0
	s.summaries = s.summaries[:0]
	if s.byID == nil || len(s.byID) > 4096 { // clearing a large map takes long each time
		s.byID = make(map[string]int32)
	} else {
		clear(s.byID)
	}
	for i := range t.Events {
		e := &t.Events[i]
		switch e.Kind {
		case Point:
			if e.Name == "sglang_pd_summary" {
				s.summaries = append(s.summaries, summary{int32(i), s.alone()})
			}
		case SpanStart:
			n := int32(len(s.spans))
			sp := span{start: int32(i), end: -1, parent: -1, request: -1, owner: unknownOwner, around: s.alone(), form: formOf(e.Name)}
			if e.ParentID != "" && e.ParentID != e.SpanID {
				if p, ok := s.byID[e.ParentID]; ok {
					sp.parent = p
				}
			}
			if _, ok := s.byID[e.SpanID]; ok {
				r.eventProblem("duplicate_span_id", e.Order, ".span_id", "another span has this id")
			}
			s.byID[e.SpanID] = n
			s.spans = append(s.spans, sp)
			if sp.form == namedSpan {
				s.open++
				s.openSum += int(n)
			}
		case SpanEnd:
			n, ok := s.byID[e.SpanID]
			if e.SpanID == "" || !ok || s.spans[n].end >= 0 {
				n = int32(len(s.spans))
				s.spans = append(s.spans, span{start: -1, end: int32(i), parent: -1, request: -1, owner: unknownOwner, around: s.alone(), form: formOf(e.Name)})
				if e.SpanID != "" && !ok {
					s.byID[e.SpanID] = n
				}
				r.eventProblem("orphan_end", e.Order, "", "the span's start is missing")
			}
			sp := &s.spans[n]
			sp.end = int32(i)
			if sp.form == plainSpan && carriesTimings(e.Attrs) {
				sp.form = timedSpan
			}
			if sp.form == namedSpan && sp.start >= 0 {
				s.open--
				s.openSum -= int(n)
			}
		}
	}
	for i := range s.spans { // parents that come after their children
		sp := &s.spans[i]
		at := sp.start
		if at < 0 {
			at = sp.end
		}
		if e := &t.Events[at]; sp.parent < 0 && e.ParentID != "" && e.ParentID != e.SpanID {
			if p, ok := s.byID[e.ParentID]; ok && p != int32(i) {
				sp.parent = p
			}
		}
	}
}

// alone is the request by name that is open when no other is, -1.
func (s *spanTable) alone() int32 {
	if s.open == 1 {
		return int32(s.openSum)
	}
	return -1
}

func formOf(name string) spanForm {
	switch {
	case generation(name):
		return namedSpan
	case strings.HasPrefix(name, pdPrefix):
		return pdSpan
	case strings.HasSuffix(name, " [P]"), strings.HasSuffix(name, " [D]"):
		return virtualSpan
	}
	return plainSpan
}

// ownerOf is the span of the request that span i is or is part of, noOwner when there is none. Every
// span is walked over once; a cycle of parents ends the walk.
func (r *reader) ownerOf(i int32) int32 {
	s := &r.spans
	s.path = s.path[:0]
	owner := int32(noOwner)
	for i >= 0 {
		sp := &s.spans[i]
		if sp.owner != unknownOwner {
			owner = sp.owner
			break
		}
		if sp.form == namedSpan {
			sp.owner, owner = i, i
			break
		}
		sp.owner = noOwner // what the walk finds when it comes back here
		s.path = append(s.path, i)
		i = sp.parent
	}
	for k := len(s.path) - 1; k >= 0; k-- {
		sp := &s.spans[s.path[k]]
		if owner < 0 && sp.candidate() {
			owner = s.path[k]
		}
		sp.owner = owner
	}
	return owner
}

// candidate says that a span is a request unless it stands within another one.
func (sp *span) candidate() bool { return sp.form == namedSpan || sp.form == timedSpan && !sp.hasNamed }

// request fills a request from the two events of its span.
func (r *reader) request(q *request.Request, sp *span) {
	t := &r.sample.Trace
	q.SpanStart, q.SpanEnd = int(sp.start), int(sp.end)
	q.Start, q.End = math.NaN(), math.NaN()
	if sp.end >= 0 {
		e := &t.Events[sp.end]
		q.Name, q.SpanID, q.Attempt, q.End = e.Name, e.SpanID, e.Attempt, e.TS
		r.answer(q, e)
	}
	if sp.start >= 0 {
		e := &t.Events[sp.start]
		q.Name, q.SpanID, q.Attempt, q.Start = e.Name, e.SpanID, e.Attempt, e.TS
		if q.RID == "" {
			q.RID = scalarText(e.Attrs.Get("sglang_request_id"), maxWord)
		}
	}
}

// answer takes what the engine's answer said from the end of a request's span.
func (r *reader) answer(q *request.Request, e *Event) {
	for k, x := range e.Attrs.Pairs() {
		switch key := k.RawStr(); string(key) {
		case "prompt_tokens":
			q.PromptTokens = r.attr(e, key, x)
		case "completion_tokens":
			q.CompletionTokens = r.attr(e, key, x)
		case "cached_tokens":
			q.CachedTokens = r.attr(e, key, x)
		case "sglang_request_id":
			q.RID = scalarText(x, maxWord)
		case "finish_reason":
			if kind := x.Field("type"); kind.Exists() { // as SGLang sends it; slime keeps the type alone
				x = kind
			}
			if !x.IsNone() {
				q.FinishReason = r.words.text(x, maxWord)
			}
		case "error_type":
			q.ErrorType = r.words.text(x, maxWord)
		}
	}
	if r.fill(q, e) {
		q.PhasesFrom = request.InEndAttrs
	}
}

// share gives the request that a child span or summary belongs to what that says. Where no parent
// leads to a request, the part belongs to the only one that was open when it was written.
func (r *reader) share(owner, around int32, e *Event) {
	if owner < 0 && around >= 0 {
		owner = r.ownerOf(around)
	}
	if owner < 0 || r.spans.spans[owner].request < 0 {
		if carriesTimings(e.Attrs) {
			r.eventProblem("orphan_phase", e.Order, "", "no request that this is part of")
		}
		return
	}
	q := &r.sample.Requests[r.spans.spans[owner].request]
	if r.fill(q, e) && q.PhasesFrom == request.NoPhases {
		q.PhasesFrom = request.InChildren
	}
}

// fill takes the timings in an event's attrs that nobody said before, and says whether one of them is
// a phase.
func (r *reader) fill(q *request.Request, e *Event) (phase bool) {
	for pass := range 2 { // present names first
		old := false
		for k, x := range e.Attrs.Pairs() {
			key := k.RawStr()
			m, ok := measures[string(key)]
			if old = old || m.old; !ok || m.old != (pass == 1) {
				continue
			}
			p := m.of(q)
			if p.State != request.Absent {
				continue
			}
			*p = r.attr(e, key, x)
			phase = phase || m.phase && p.State != request.Absent
		}
		if !old {
			break
		}
	}
	return phase
}

// attr reads one number of an event's attrs.
func (r *reader) attr(e *Event, key []byte, x torchfile.Value) request.Value {
	m := measure(x)
	if m.State == request.Invalid {
		r.eventProblem("bad_value", e.Order, ".attrs."+string(key), "not a finite number from 0 on: "+describe(x))
	}
	return m
}
