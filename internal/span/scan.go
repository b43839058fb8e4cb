package span

import (
	"encoding/hex"
	"fmt"
)

// Scan reads a protobuf ExportTraceServiceRequest (the same bytes as TracesData) as far as a decision
// about its traces needs: the headers of its spans. What it appends to into aliases body; the slices of
// elements between len(into) and cap(into) are reused. The error is a *[WireError], and then nothing of
// body counts. Ids are not judged: see [CheckIDs].
func Scan(body []byte, into []Scope) ([]Scope, error) {
	had := len(into)
	top := fields{b: body}
	for top.next() {
		if !top.is(1, wireBytes) {
			continue
		}
		var err error
		if into, err = scanResource(body, top.data, into); err != nil {
			return into[:had], err
		}
	}
	if top.why != "" {
		return into[:had], top.err("OTLP request")
	}
	return into, nil
}

// scanResource reads a ResourceSpans.
func scanResource(body, b []byte, into []Scope) ([]Scope, error) {
	// The resource may stand behind its spans: it is looked up first.
	var resource []byte
	var service string
	f := fields{b: b}
	for f.next() {
		if f.is(1, wireBytes) {
			resource = f.data
		}
	}
	if f.why != "" {
		return into, at(body, b, f.err("ResourceSpans"))
	}
	if resource != nil {
		var err error
		if service, err = serviceName(resource); err != nil {
			return into, at(body, resource, err)
		}
	}
	f = fields{b: b}
	for f.next() {
		if !f.is(2, wireBytes) {
			continue
		}
		if len(into) < cap(into) {
			into = into[:len(into)+1]
			sc := &into[len(into)-1]
			*sc = Scope{Spans: sc.Spans[:0]}
		} else {
			into = append(into, Scope{})
		}
		sc := &into[len(into)-1]
		sc.Resource, sc.Service = resource, service
		if err := scanScope(body, f.data, sc); err != nil {
			return into, err
		}
		if len(sc.Spans) == 0 {
			into = into[:len(into)-1]
		}
	}
	return into, nil
}

// scanScope reads a ScopeSpans.
func scanScope(body, b []byte, sc *Scope) error {
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			sc.Scope, sc.ScopeName = f.data, ""
			in := fields{b: f.data}
			for in.next() {
				if in.is(1, wireBytes) {
					sc.ScopeName = alias(in.data)
				}
			}
			if in.why != "" {
				return at(body, f.data, in.err("InstrumentationScope"))
			}
		case f.is(2, wireBytes):
			if len(sc.Spans) < cap(sc.Spans) {
				sc.Spans = sc.Spans[:len(sc.Spans)+1]
			} else {
				sc.Spans = append(sc.Spans, Header{})
			}
			if err := sc.Spans[len(sc.Spans)-1].scan(f.data); err != nil {
				return at(body, f.data, err)
			}
		}
	}
	if f.why != "" {
		return at(body, b, f.err("ScopeSpans"))
	}
	return nil
}

// ScanSpan reads the header of one span message, such as the Raw of another header.
func ScanSpan(raw []byte) (Header, error) {
	var h Header
	return h, h.scan(raw)
}

// scan reads a Span.
func (h *Header) scan(b []byte) error {
	*h = Header{Raw: b}
	f := fields{b: b}
	for f.next() {
		switch f.num {
		case 1:
			if f.typ == wireBytes && copyID(h.Trace[:], f.data) {
				h.bad |= badTrace
			}
		case 2:
			if f.typ == wireBytes && copyID(h.ID[:], f.data) {
				h.bad |= badSpan
			}
		case 4:
			if f.typ == wireBytes && copyID(h.Parent[:], f.data) {
				h.bad |= badParent
			}
		case 5:
			if f.typ == wireBytes {
				h.Name = alias(f.data)
			}
		case 6:
			if f.typ == wireVarint && f.u <= 5 { // other kinds are unspecified, as OTLP says
				h.Kind = Kind(f.u)
			}
		case 7:
			if f.typ == wireFixed8 {
				h.Start = nanos(f.u)
			}
		case 8:
			if f.typ == wireFixed8 {
				h.End = nanos(f.u)
			}
		case 15:
			if f.typ == wireBytes {
				in := fields{b: f.data}
				for in.next() {
					if in.is(3, wireVarint) && in.u <= uint64(Failed) {
						h.Status = Status(in.u)
					}
				}
				if in.why != "" {
					return in.err("Status")
				}
			}
		case 16:
			if f.typ == wireFixed4 {
				h.Flags = uint32(f.u)
			}
		}
	}
	return f.err("Span")
}

// copyID copies an id and tells whether its length is wrong. None at all is not wrong.
func copyID(to, from []byte) bool {
	if len(from) != len(to) {
		return len(from) != 0
	}
	copy(to, from)
	return false
}

// serviceName is service.name of a Resource.
func serviceName(resource []byte) (string, error) {
	f := fields{b: resource}
	name := ""
	for f.next() {
		if !f.is(1, wireBytes) {
			continue
		}
		key, value, err := keyValue(f.data)
		if err != nil {
			return "", err
		}
		if key == "service.name" {
			v, _, err := decodeValue(value, nil)
			if err != nil {
				return "", err
			}
			name = v.Str
		}
	}
	return name, f.err("Resource")
}

// at moves the offset of an error from a part of body to body.
func at(body, part []byte, err error) error {
	if e, ok := err.(*WireError); ok {
		e.Offset += cap(body) - cap(part)
	}
	return err
}

// Rejected is a span that was not taken.
type Rejected struct {
	Index   int    // of the span in the body, from 0; -1 when the caller has to say
	Span    string // its name
	Reason  string // a word for counters: id_absent, id_zero, id_length, id_base64, id_not_hex, bad_field
	Message string // for the sender
}

// CheckIDs judges a span's ids: nil when they can be stored. A span needs a trace id and its own; both
// may not be zero.
func CheckIDs(h *Header) *Rejected {
	if h.bad == 0 && !h.Trace.IsZero() && !h.ID.IsZero() {
		return nil
	}
	reject := func(reason, format string, args ...any) *Rejected {
		return &Rejected{Index: -1, Span: clean(h.Name), Reason: reason, Message: fmt.Sprintf("span %q: ", clean(h.Name)) + fmt.Sprintf(format, args...)}
	}
	var ids [5][]byte
	f := fields{b: h.Raw}
	for f.next() {
		if f.num < 5 && f.typ == wireBytes {
			ids[f.num] = f.data
		}
	}
	for _, id := range [...]struct {
		num  int
		name string
		want int
		bad  bool
		zero bool
	}{{1, "traceId", 16, h.bad&badTrace != 0, h.Trace.IsZero()}, {2, "spanId", 8, h.bad&badSpan != 0, h.ID.IsZero()}, {4, "parentSpanId", 8, h.bad&badParent != 0, false}} {
		b := ids[id.num]
		switch {
		case id.bad && len(b) == id.want*3/2:
			return reject("id_length", "%s has %d bytes, must have %d: it looks like hex digits that a JSON library decoded as base64", id.name, len(b), id.want)
		case id.bad && len(b) == id.want*2 && isHex(b):
			return reject("id_length", "%s is hex text of %d digits, must be %d bytes", id.name, len(b), id.want)
		case id.bad:
			return reject("id_length", "%s has %d bytes (%s), must have %d", id.name, len(b), hex.EncodeToString(b[:min(len(b), 24)]), id.want)
		case id.zero && len(b) == 0:
			return reject("id_absent", "%s is missing", id.name)
		case id.zero:
			return reject("id_zero", "%s is all zero, which is no id", id.name)
		}
	}
	return nil
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return false
		}
	}
	return true
}
