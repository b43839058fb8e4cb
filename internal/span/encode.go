package span

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// AppendProto appends the protobuf message Span, without tag and length.
func (s *Span) AppendProto(dst []byte) []byte {
	if !s.Trace.IsZero() {
		dst = append(append(dst, 1<<3|wireBytes, 16), s.Trace[:]...)
	}
	if !s.ID.IsZero() {
		dst = append(append(dst, 2<<3|wireBytes, 8), s.ID[:]...)
	}
	dst = appendText(dst, 3, s.TraceState)
	if !s.Parent.IsZero() {
		dst = append(append(dst, 4<<3|wireBytes, 8), s.Parent[:]...)
	}
	dst = appendText(dst, 5, clean(s.Name))
	dst = appendNumber(dst, 6, uint64(s.Kind))
	dst = appendFixed8(dst, 7, uint64(s.Start))
	dst = appendFixed8(dst, 8, uint64(s.End))
	dst = appendAttrs(dst, 9, s.Attrs)
	dst = appendNumber(dst, 10, uint64(s.DroppedAttrs))
	for i := range s.Events {
		e := &s.Events[i]
		var from int
		dst, from = openMessage(dst, 11)
		dst = appendFixed8(dst, 1, uint64(e.Time))
		dst = appendText(dst, 2, e.Name)
		dst = appendAttrs(dst, 3, e.Attrs)
		dst = appendNumber(dst, 4, uint64(e.Dropped))
		dst = closeMessage(dst, from)
	}
	dst = appendNumber(dst, 12, uint64(s.DroppedEvents))
	for i := range s.Links {
		l := &s.Links[i]
		var from int
		dst, from = openMessage(dst, 13)
		dst = append(append(dst, 1<<3|wireBytes, 16), l.Trace[:]...)
		dst = append(append(dst, 2<<3|wireBytes, 8), l.ID[:]...)
		dst = appendText(dst, 3, l.TraceState)
		dst = appendAttrs(dst, 4, l.Attrs)
		dst = appendNumber(dst, 5, uint64(l.Dropped))
		dst = appendFixed4(dst, 6, l.Flags)
		dst = closeMessage(dst, from)
	}
	dst = appendNumber(dst, 14, uint64(s.DroppedLinks))
	if s.Status != Unset || s.StatusMessage != "" {
		var from int
		dst, from = openMessage(dst, 15)
		dst = appendText(dst, 2, s.StatusMessage)
		dst = appendNumber(dst, 3, uint64(s.Status))
		dst = closeMessage(dst, from)
	}
	return appendFixed4(dst, 16, s.Flags)
}

func appendAttrs(dst []byte, num uint32, attrs []Attr) []byte {
	for i := range attrs {
		var from int
		dst, from = openMessage(dst, num)
		dst = appendText(dst, 1, attrs[i].Key)
		dst = appendAny(dst, 2, attrs[i].Value)
		dst = closeMessage(dst, from)
	}
	return dst
}

// appendResource appends the body of a Resource.
func (s *Span) appendResource(dst []byte) []byte {
	return appendNumber(appendAttrs(dst, 1, s.Resource), 2, uint64(s.ResourceLimit))
}

// appendScope appends the body of an InstrumentationScope.
func (s *Span) appendScope(dst []byte) []byte {
	dst = appendText(dst, 1, s.ScopeName)
	dst = appendText(dst, 2, s.ScopeVersion)
	return appendNumber(appendAttrs(dst, 3, s.ScopeAttrs), 4, uint64(s.ScopeLimit))
}

// batch is what spans of one resource have: its scopes, each with its spans.
type batch struct {
	resource string
	scopes   []batchScope
}

type batchScope struct {
	scope string
	spans []int
}

// batches groups spans by resource and scope, in the order in which those come first.
func batches(spans []Span) []batch {
	var out []batch
	type place struct{ batch, scope int }
	resources := map[string]int{}
	scopes := map[string]place{}
	var tmp []byte
	for i := range spans {
		tmp = spans[i].appendResource(tmp[:0])
		at, ok := resources[string(tmp)]
		if !ok {
			at = len(out)
			key := string(tmp)
			resources[key] = at
			out = append(out, batch{resource: key})
		}
		n := len(tmp)
		tmp = binary.AppendUvarint(tmp, uint64(n))
		n = len(tmp)
		tmp = spans[i].appendScope(tmp)
		p, ok := scopes[string(tmp)]
		if !ok {
			p = place{at, len(out[at].scopes)}
			scopes[string(tmp)] = p
			out[at].scopes = append(out[at].scopes, batchScope{scope: string(tmp[n:])})
		}
		s := &out[p.batch].scopes[p.scope]
		s.spans = append(s.spans, i)
	}
	return out
}

// AppendTraces appends spans as the protobuf of TracesData, which is that of an export request too.
func AppendTraces(dst []byte, spans []Span) []byte {
	for _, b := range batches(spans) {
		var from int
		dst, from = openMessage(dst, 1)
		dst = appendMessage(dst, 1, b.resource)
		for _, sc := range b.scopes {
			var at int
			dst, at = openMessage(dst, 2)
			dst = appendMessage(dst, 1, sc.scope)
			for _, i := range sc.spans {
				var one int
				dst, one = openMessage(dst, 2)
				dst = spans[i].AppendProto(dst)
				dst = closeMessage(dst, one)
			}
			dst = closeMessage(dst, at)
		}
		dst = closeMessage(dst, from)
	}
	return dst
}

func appendMessage(dst []byte, num uint32, body string) []byte {
	dst = binary.AppendUvarint(appendTag(dst, num, wireBytes), uint64(len(body)))
	return append(dst, body...)
}

// AppendTracesJSON appends spans as OTLP/JSON: {"resourceSpans":[...]}.
func AppendTracesJSON(dst []byte, spans []Span) []byte {
	dst = AppendResourceSpansJSON(append(dst, `{"resourceSpans":`...), spans)
	return append(dst, '}')
}

// AppendResourceSpansJSON appends the array alone, which Tempo's answers hold under other names.
func AppendResourceSpansJSON(dst []byte, spans []Span) []byte {
	dst = append(dst, '[')
	for i, b := range batches(spans) {
		if i > 0 {
			dst = append(dst, ',')
		}
		s := &spans[b.scopes[0].spans[0]]
		dst = appendAttrsJSON(append(dst, `{"resource":{`...), s.Resource)
		dst = appendDroppedJSON(dst, "droppedAttributesCount", s.ResourceLimit)
		dst = append(dst, `},"scopeSpans":[`...)
		for k, sc := range b.scopes {
			if k > 0 {
				dst = append(dst, ',')
			}
			s := &spans[sc.spans[0]]
			dst = appendQuoted(append(dst, `{"scope":{"name":`...), s.ScopeName)
			if s.ScopeVersion != "" {
				dst = appendQuoted(append(dst, `,"version":`...), s.ScopeVersion)
			}
			if len(s.ScopeAttrs) > 0 {
				dst = appendAttrsJSON(append(dst, ','), s.ScopeAttrs)
			}
			dst = appendDroppedJSON(dst, "droppedAttributesCount", s.ScopeLimit)
			dst = append(dst, `},"spans":[`...)
			for n, at := range sc.spans {
				if n > 0 {
					dst = append(dst, ',')
				}
				dst = spans[at].AppendJSON(dst)
			}
			dst = append(dst, `]}`...)
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, ']')
}

func appendAttrsJSON(dst []byte, attrs []Attr) []byte {
	dst = append(dst, `"attributes":[`...)
	for i := range attrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(append(dst, `{"key":`...), attrs[i].Key)
		dst = append(appendAnyJSON(append(dst, `,"value":`...), attrs[i].Value), '}')
	}
	return append(dst, ']')
}

func appendDroppedJSON(dst []byte, name string, n uint32) []byte {
	if n == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendUint(dst, uint64(n), 10)
}

// AppendJSON appends the span as an object of OTLP/JSON.
func (s *Span) AppendJSON(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, `{"traceId":"`...), s.Trace[:])
	dst = hex.AppendEncode(append(dst, `","spanId":"`...), s.ID[:])
	dst = append(dst, '"')
	if s.TraceState != "" {
		dst = appendQuoted(append(dst, `,"traceState":`...), s.TraceState)
	}
	if !s.Parent.IsZero() {
		dst = append(hex.AppendEncode(append(dst, `,"parentSpanId":"`...), s.Parent[:]), '"')
	}
	if s.Flags != 0 {
		dst = strconv.AppendUint(append(dst, `,"flags":`...), uint64(s.Flags), 10)
	}
	dst = appendQuoted(append(dst, `,"name":`...), s.Name)
	dst = strconv.AppendUint(append(dst, `,"kind":`...), uint64(s.Kind), 10)
	dst = strconv.AppendInt(append(dst, `,"startTimeUnixNano":"`...), s.Start, 10)
	dst = strconv.AppendInt(append(dst, `","endTimeUnixNano":"`...), s.End, 10)
	dst = append(dst, '"')
	if len(s.Attrs) > 0 {
		dst = appendAttrsJSON(append(dst, ','), s.Attrs)
	}
	dst = appendDroppedJSON(dst, "droppedAttributesCount", s.DroppedAttrs)
	if len(s.Events) > 0 {
		dst = append(dst, `,"events":[`...)
		for i := range s.Events {
			e := &s.Events[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(append(dst, `{"timeUnixNano":"`...), e.Time, 10)
			dst = appendQuoted(append(dst, `","name":`...), e.Name)
			if len(e.Attrs) > 0 {
				dst = appendAttrsJSON(append(dst, ','), e.Attrs)
			}
			dst = append(appendDroppedJSON(dst, "droppedAttributesCount", e.Dropped), '}')
		}
		dst = append(dst, ']')
	}
	dst = appendDroppedJSON(dst, "droppedEventsCount", s.DroppedEvents)
	if len(s.Links) > 0 {
		dst = append(dst, `,"links":[`...)
		for i := range s.Links {
			l := &s.Links[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = hex.AppendEncode(append(dst, `{"traceId":"`...), l.Trace[:])
			dst = hex.AppendEncode(append(dst, `","spanId":"`...), l.ID[:])
			dst = append(dst, '"')
			if l.TraceState != "" {
				dst = appendQuoted(append(dst, `,"traceState":`...), l.TraceState)
			}
			if len(l.Attrs) > 0 {
				dst = appendAttrsJSON(append(dst, ','), l.Attrs)
			}
			dst = appendDroppedJSON(dst, "droppedAttributesCount", l.Dropped)
			if l.Flags != 0 {
				dst = strconv.AppendUint(append(dst, `,"flags":`...), uint64(l.Flags), 10)
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	dst = appendDroppedJSON(dst, "droppedLinksCount", s.DroppedLinks)
	if s.Status != Unset || s.StatusMessage != "" {
		dst = strconv.AppendUint(append(dst, `,"status":{"code":`...), uint64(s.Status), 10)
		if s.StatusMessage != "" {
			dst = appendQuoted(append(dst, `,"message":`...), s.StatusMessage)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
