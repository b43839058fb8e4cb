package span

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FromJSON turns OTLP/JSON into the protobuf of the same request, which [Scan] reads. It takes what
// senders really send: ids in upper case, "" for no parent, numbers as numbers or as texts, enums by
// number or by name, keys in snake_case, unknown keys, null. A span whose ids or fields cannot be right is
// left out and named in rejected; an error (a *[JSONError]) is said only when the body itself is broken,
// and then nothing of it counts.
func FromJSON(body []byte) (pb []byte, rejected []Rejected, err error) {
	j := fromJSON{reader: reader{b: body}, out: make([]byte, 0, len(body)/2)}
	if j.peek() != '{' {
		j.fail("expected an object with resourceSpans")
	}
	for ok := j.open('{'); ok; ok = j.more('}') {
		switch j.key() {
		case "resourceSpans", "resource_spans":
			for ok := j.list(); ok; ok = j.more(']') {
				j.resourceSpans()
			}
		default:
			j.skip()
		}
	}
	if j.end(); j.err != nil {
		return nil, nil, j.err
	}
	return j.out, j.rejected, nil
}

type fromJSON struct {
	reader
	out      []byte
	rejected []Rejected
	index    int // of the span

	span   bool      // inside of one
	reject *Rejected // why the span is left out
}

// list opens an array; null is an empty one.
func (j *fromJSON) list() bool {
	if j.peek() == 'n' {
		j.null()
		return false
	}
	return j.open('[')
}

// object opens an object; null is an empty one.
func (j *fromJSON) object() bool {
	if j.peek() == 'n' {
		j.null()
		return false
	}
	return j.open('{')
}

// wrong says that the value of a field cannot be. The value is skipped; inside a span it costs that span,
// elsewhere the body.
func (j *fromJSON) wrong(reason, format string, args ...any) {
	if j.err != nil {
		return
	}
	message := fmt.Sprintf(format, args...)
	if !j.span {
		j.fail(message)
		return
	}
	if j.reject == nil {
		j.reject = &Rejected{Reason: reason, Message: message}
	}
}

func (j *fromJSON) resourceSpans() {
	var from int
	j.out, from = openMessage(j.out, 1)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "resource":
			var res int
			j.out, res = openMessage(j.out, 1)
			for ok := j.object(); ok; ok = j.more('}') {
				switch j.key() {
				case "attributes":
					j.attributes(1)
				case "droppedAttributesCount", "dropped_attributes_count":
					j.count(2, "droppedAttributesCount")
				default:
					j.skip()
				}
			}
			j.out = closeMessage(j.out, res)
		case "scopeSpans", "scope_spans", "instrumentationLibrarySpans":
			for ok := j.list(); ok; ok = j.more(']') {
				j.scopeSpans()
			}
		case "schemaUrl", "schema_url":
			j.string(3, "schemaUrl")
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

func (j *fromJSON) scopeSpans() {
	var from int
	j.out, from = openMessage(j.out, 2)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "scope", "instrumentationLibrary":
			var scope int
			j.out, scope = openMessage(j.out, 1)
			for ok := j.object(); ok; ok = j.more('}') {
				switch j.key() {
				case "name":
					j.string(1, "scope.name")
				case "version":
					j.string(2, "scope.version")
				case "attributes":
					j.attributes(3)
				case "droppedAttributesCount", "dropped_attributes_count":
					j.count(4, "droppedAttributesCount")
				default:
					j.skip()
				}
			}
			j.out = closeMessage(j.out, scope)
		case "spans":
			for ok := j.list(); ok; ok = j.more(']') {
				j.oneSpan()
			}
		case "schemaUrl", "schema_url":
			j.string(3, "schemaUrl")
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

func (j *fromJSON) oneSpan() {
	mark := len(j.out)
	var from int
	j.out, from = openMessage(j.out, 2)
	j.span, j.reject = true, nil
	name := ""
	var trace, id bool
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "traceId", "trace_id":
			trace = j.id(1, "traceId", 16) || trace
		case "spanId", "span_id":
			id = j.id(2, "spanId", 8) || id
		case "traceState", "trace_state":
			j.string(3, "traceState")
		case "parentSpanId", "parent_span_id":
			j.id(4, "parentSpanId", 8)
		case "name":
			name = j.string(5, "name")
		case "kind":
			j.enum(6, "kind", "SPAN_KIND_", spanKinds)
		case "startTimeUnixNano", "start_time_unix_nano":
			j.out = appendFixed8(j.out, 7, j.unsigned("startTimeUnixNano", math.MaxUint64))
		case "endTimeUnixNano", "end_time_unix_nano":
			j.out = appendFixed8(j.out, 8, j.unsigned("endTimeUnixNano", math.MaxUint64))
		case "attributes":
			j.attributes(9)
		case "droppedAttributesCount", "dropped_attributes_count":
			j.count(10, "droppedAttributesCount")
		case "events":
			for ok := j.list(); ok; ok = j.more(']') {
				j.event()
			}
		case "droppedEventsCount", "dropped_events_count":
			j.count(12, "droppedEventsCount")
		case "links":
			for ok := j.list(); ok; ok = j.more(']') {
				j.link()
			}
		case "droppedLinksCount", "dropped_links_count":
			j.count(14, "droppedLinksCount")
		case "status":
			j.status()
		case "flags":
			j.out = appendFixed4(j.out, 16, uint32(j.unsigned("flags", math.MaxUint32)))
		default:
			j.skip()
		}
	}
	switch {
	case j.reject != nil:
	case !trace:
		j.reject = &Rejected{Reason: "id_absent", Message: "traceId is missing"}
	case !id:
		j.reject = &Rejected{Reason: "id_absent", Message: "spanId is missing"}
	}
	if j.reject != nil {
		j.out = j.out[:mark]
		j.rejected = append(j.rejected, Rejected{Index: j.index, Span: name, Reason: j.reject.Reason,
			Message: fmt.Sprintf("span %d (%q): %s", j.index, name, j.reject.Message)})
	} else {
		j.out = closeMessage(j.out, from)
	}
	j.span = false
	j.index++
}

func (j *fromJSON) event() {
	var from int
	j.out, from = openMessage(j.out, 11)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "timeUnixNano", "time_unix_nano":
			j.out = appendFixed8(j.out, 1, j.unsigned("events.timeUnixNano", math.MaxUint64))
		case "name":
			j.string(2, "events.name")
		case "attributes":
			j.attributes(3)
		case "droppedAttributesCount", "dropped_attributes_count":
			j.count(4, "events.droppedAttributesCount")
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

func (j *fromJSON) link() {
	var from int
	j.out, from = openMessage(j.out, 13)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "traceId", "trace_id":
			j.id(1, "links.traceId", 16)
		case "spanId", "span_id":
			j.id(2, "links.spanId", 8)
		case "traceState", "trace_state":
			j.string(3, "links.traceState")
		case "attributes":
			j.attributes(4)
		case "droppedAttributesCount", "dropped_attributes_count":
			j.count(5, "links.droppedAttributesCount")
		case "flags":
			j.out = appendFixed4(j.out, 6, uint32(j.unsigned("links.flags", math.MaxUint32)))
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

var (
	spanKinds   = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}
	statusCodes = []string{"UNSET", "OK", "ERROR"}
)

func (j *fromJSON) status() {
	var from int
	j.out, from = openMessage(j.out, 15)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "message":
			j.string(2, "status.message")
		case "code":
			j.enum(3, "status.code", "STATUS_CODE_", statusCodes)
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

// enum takes a number or a name.
func (j *fromJSON) enum(num uint32, field, prefix string, names []string) {
	if j.peek() == '"' {
		at := j.i
		word := strings.TrimPrefix(strings.ToUpper(j.text()), prefix)
		for i, name := range names {
			if word == name {
				j.out = appendNumber(j.out, num, uint64(i))
				return
			}
		}
		j.i = at
	}
	j.out = appendNumber(j.out, num, j.unsigned(field, math.MaxInt32))
}

// id takes an id in hex and tells whether there was one.
func (j *fromJSON) id(num uint32, field string, size int) bool {
	if j.peek() != '"' {
		if j.peek() == 'n' {
			j.null()
			return false
		}
		j.skip()
		j.wrong("bad_field", "%s is no text: it must be %d hex digits in quotes", field, size*2)
		return true
	}
	s := j.text()
	if s == "" {
		return false
	}
	var id [16]byte
	switch {
	case len(s) == size*2 && isHex(bytesOf(s)):
		hex.Decode(id[:], bytesOf(s))
		if id == ([16]byte{}) {
			if num != 4 {
				j.wrong("id_zero", "%s is all zero, which is no id", field)
			}
			return true // a parent of zeros is none
		}
		j.out = binary.AppendUvarint(appendTag(j.out, num, wireBytes), uint64(size))
		j.out = append(j.out, id[:size]...)
	case base64Of(s, size):
		j.wrong("id_base64", "%s %.40q looks base64, must be %d hex digits", field, s, size*2)
	case isHex(bytesOf(s)):
		j.wrong("id_length", "%s %.40q has %d hex digits, must have %d", field, s, len(s), size*2)
	default:
		j.wrong("id_not_hex", "%s %.40q is not hex, must be %d hex digits", field, s, size*2)
	}
	return true
}

// base64Of tells whether s is size bytes in one of base64's forms.
func base64Of(s string, size int) bool {
	s = strings.TrimRight(s, "=")
	for _, enc := range [...]*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(s); err == nil && len(b) == size {
			return true
		}
	}
	return false
}

// string takes a text.
func (j *fromJSON) string(num uint32, field string) string {
	switch j.peek() {
	case '"':
		s := j.text()
		j.out = appendText(j.out, num, s)
		return s
	case 'n':
		j.null()
	default:
		j.skip()
		j.wrong("bad_field", "%s is no text", field)
	}
	return ""
}

func (j *fromJSON) count(num uint32, field string) {
	j.out = appendNumber(j.out, num, j.unsigned(field, math.MaxUint32))
}

// unsigned takes a whole number, as number or as text.
func (j *fromJSON) unsigned(field string, limit uint64) uint64 {
	s, ok := j.numeral()
	if !ok {
		j.wrong("bad_field", "%s is no number", field)
		return 0
	}
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		// 1.7e18 is what a double of a whole number looks like.
		f, ok := parseFloat(s)
		if !ok || f != math.Trunc(f) || f < 0 || f >= 1<<64 {
			j.wrong("bad_field", "%s is %.40q, must be a whole number that is not negative", field, s)
			return 0
		}
		v = uint64(f)
	}
	if v > limit {
		j.wrong("bad_field", "%s is %d, must be at most %d", field, v, limit)
		return 0
	}
	return v
}

// numeral takes a number or a text with one, "" for null and the empty text.
func (j *fromJSON) numeral() (string, bool) {
	switch c := j.peek(); {
	case c == '"':
		return j.text(), true
	case c == 'n':
		j.null()
		return "", true
	case c == '-' || '0' <= c && c <= '9':
		s, _ := j.number()
		return s, true
	}
	j.skip()
	return "", false
}

func (j *fromJSON) attributes(num uint32) {
	for ok := j.list(); ok; ok = j.more(']') {
		j.keyValue(num, 1)
	}
}

func (j *fromJSON) keyValue(num uint32, depth int) {
	var from int
	j.out, from = openMessage(j.out, num)
	for ok := j.object(); ok; ok = j.more('}') {
		switch j.key() {
		case "key":
			j.string(1, "attribute key")
		case "value":
			j.anyValue(2, depth)
		default:
			j.skip()
		}
	}
	j.out = closeMessage(j.out, from)
}

// maxJSONDepth bounds how deep values of OTLP/JSON may nest; a body beyond is refused.
const maxJSONDepth = 128

func (j *fromJSON) anyValue(num uint32, depth int) {
	if depth > maxJSONDepth {
		j.fail("an attribute that nests deeper than 128 levels")
		return
	}
	var from int
	j.out, from = openMessage(j.out, num)
	if c := j.peek(); c != '{' && c != 'n' {
		j.skip()
		j.wrong("bad_field", `an attribute's value is no object such as {"stringValue":"..."}`)
	} else {
		for ok := j.object(); ok; ok = j.more('}') {
			j.variant(depth)
		}
	}
	j.out = closeMessage(j.out, from)
}

// variant takes one key of an AnyValue and its value.
func (j *fromJSON) variant(depth int) {
	switch j.key() {
	case "stringValue", "string_value":
		switch j.peek() {
		case '"':
			s := j.text()
			j.out = binary.AppendUvarint(append(j.out, 1<<3|wireBytes), uint64(len(s)))
			j.out = append(j.out, s...)
		case 'n':
			j.null()
		default:
			j.skip()
			j.wrong("bad_field", "stringValue is no text")
		}
	case "boolValue", "bool_value":
		v := false
		switch j.peek() {
		case 't', 'f':
			v = j.bool()
		case 'n':
			j.null()
			return
		case '"':
			s := j.text()
			if v = s == "true"; !v && s != "false" {
				j.wrong("bad_field", "boolValue is %.40q, must be true or false", s)
			}
		default:
			j.skip()
			j.wrong("bad_field", "boolValue is no boolean")
		}
		j.out = append(j.out, 2<<3, 0)
		if v {
			j.out[len(j.out)-1] = 1
		}
	case "intValue", "int_value":
		s, ok := j.numeral()
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			f, isFloat := parseFloat(s)
			if ok = ok && isFloat && f == math.Trunc(f) && math.Abs(f) < 1<<63; ok {
				v = int64(f)
			}
		}
		if !ok {
			j.wrong("bad_field", "intValue is %.40q, must be a whole number of 64 bits", s)
		}
		j.out = binary.AppendUvarint(append(j.out, 3<<3), uint64(v))
	case "doubleValue", "double_value":
		s, ok := j.numeral()
		f, isFloat := parseFloat(s)
		if !ok || !isFloat {
			j.wrong("bad_field", "doubleValue is %.40q, must be a number", s)
		}
		j.out = binary.LittleEndian.AppendUint64(append(j.out, 4<<3|wireFixed8), math.Float64bits(f))
	case "arrayValue", "array_value":
		var from int
		j.out, from = openMessage(j.out, 5)
		for ok := j.object(); ok; ok = j.more('}') {
			if j.key() != "values" {
				j.skip()
				continue
			}
			for ok := j.list(); ok; ok = j.more(']') {
				j.anyValue(1, depth+1)
			}
		}
		j.out = closeMessage(j.out, from)
	case "kvlistValue", "kvlist_value":
		var from int
		j.out, from = openMessage(j.out, 6)
		for ok := j.object(); ok; ok = j.more('}') {
			if j.key() != "values" {
				j.skip()
				continue
			}
			for ok := j.list(); ok; ok = j.more(']') {
				j.keyValue(1, depth+1)
			}
		}
		j.out = closeMessage(j.out, from)
	case "bytesValue", "bytes_value":
		if j.peek() != '"' {
			j.skip()
			j.wrong("bad_field", "bytesValue is no text")
			return
		}
		s := strings.TrimRight(j.text(), "=")
		b, err := base64.RawStdEncoding.DecodeString(s)
		if err != nil {
			if b, err = base64.RawURLEncoding.DecodeString(s); err != nil {
				j.wrong("bad_field", "bytesValue is %.40q, must be base64", s)
			}
		}
		j.out = binary.AppendUvarint(append(j.out, 7<<3|wireBytes), uint64(len(b)))
		j.out = append(j.out, b...)
	default:
		j.skip()
	}
}
