package span

import (
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// Limits of a row; FIELDS.md tells why. What is beyond them stands in the field more.
const (
	maxFieldName = 128 // bytes of a field's name, the store's limit
	maxAttrs     = 256 // attributes of a row that are fields of their own
)

// unnamed stands for the empty name: a row needs a message.
const unnamed = "(unnamed)"

// Names of attributes' fields begin with where the attribute stands.
const (
	ResourceAttr = "resource_attr:"
	ScopeAttr    = "scope_attr:"
	SpanAttr     = "span_attr:"
)

var kindNames = [...]string{"", "internal", "server", "client", "producer", "consumer"}

// String is the kind in a word, "" for unspecified.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return ""
}

// String is "ok", "error" or "".
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Failed:
		return "error"
	}
	return ""
}

// shortcut is a field that many spellings of an attribute fill.
type shortcut struct {
	field string
	keys  []string // the first that is there counts
}

// shortcuts are what people look requests up by. The keys are those that SGLang, its routers, Dynamo,
// vLLM, the semantic conventions and hand-made gateways use.
var shortcuts = [...]shortcut{
	{"rid", []string{"rid", "sglang.rid", "sglang_request_id", "gen_ai.request.id"}},
	{"request_id", []string{"request_id", "request.id", "http.request_id", "dynamo.request_id"}},
	{"x_request_id", []string{"x_request_id", "x-request-id", "http.request.header.x-request-id", "guid:x-request-id"}},
	{"bootstrap_room", []string{"bootstrap_room", "disagg.bootstrap_room"}},
	{"model", []string{"gen_ai.response.model", "gen_ai.request.model", "model", "model_name"}},
	{"session", sessionKeys[:]},
}

// sessionKeys name a conversation or an agent's run that several traces belong to, the surest first.
var sessionKeys = [...]string{"session.id", "gen_ai.conversation.id", "session_id", "conversation_id", "agent.session_id", "gen_ai.agent.id", "trajectory_id"}

// Row writes the span as fields of a row; FIELDS.md lists them. r.Engine is left as it is, r.Fields is
// used again. Strings alias s and what s aliases.
func (s *Span) Row(r *event.Row) {
	w := rowWriter{r: r, buf: s.row[:0], typed: s.typed[:0]}
	r.Kind, r.Time, r.Message, r.Service, r.Fields = event.Span, s.Start, s.Name, s.Service, r.Fields[:0]
	if r.Time == 0 {
		r.Time = s.End
	}
	if s.Name == "" {
		r.Message = unnamed
		r.Add("unnamed", "true")
	}
	w.hex("trace_id", s.Trace[:])
	w.hex("span_id", s.ID[:])
	if !s.Parent.IsZero() {
		w.hex("parent_span_id", s.Parent[:])
	}
	r.Add("trace_state", s.TraceState)
	w.count("flags", s.Flags)
	r.Add("kind", s.Kind.String())
	if s.Start != r.Time {
		w.number("start_time_unix_nano", s.Start)
	}
	switch {
	case s.Start > 0 && s.End >= s.Start:
		w.number("duration", s.End-s.Start)
	case s.End != 0:
		w.number("end_time_unix_nano", s.End)
	}
	r.Add("status_code", s.Status.String())
	r.Add("status_message", s.StatusMessage)
	if s.Status == Failed {
		r.Add("error", "true")
	}
	for i := range shortcuts {
		w.shortcut(s, &shortcuts[i])
	}
	r.Add("scope_name", s.ScopeName)
	r.Add("scope_version", s.ScopeVersion)
	w.attrs('r', ResourceAttr, s.Resource, s.Service)
	w.attrs('c', ScopeAttr, s.ScopeAttrs, "")
	w.attrs('s', SpanAttr, s.Attrs, "")
	if len(s.Events) > 0 {
		from := len(w.buf)
		w.buf = s.appendEvents(w.buf)
		r.Add("events", alias(w.buf[from:]))
	}
	if len(s.Links) > 0 {
		from := len(w.buf)
		w.buf = s.appendLinks(w.buf)
		r.Add("links", alias(w.buf[from:]))
	}
	w.count("dropped_attributes_count", s.DroppedAttrs)
	w.count("dropped_events_count", s.DroppedEvents)
	w.count("dropped_links_count", s.DroppedLinks)
	w.count("resource_dropped_attributes_count", s.ResourceLimit)
	w.count("scope_dropped_attributes_count", s.ScopeLimit)
	r.Add("typed", w.lend(w.typed))
	if len(w.more) > 0 {
		w.more = append(w.more, ']')
		r.Add("more", w.lend(w.more))
	}
	s.row, s.typed = w.buf, w.typed
}

// rowWriter makes fields whose text stands in buf.
type rowWriter struct {
	r     *event.Row
	buf   []byte
	typed []byte // the types of attributes that are no text
	more  []byte // attributes that cannot be fields
}

func (w *rowWriter) lend(b []byte) string {
	from := len(w.buf)
	w.buf = append(w.buf, b...)
	return alias(w.buf[from:])
}

func (w *rowWriter) hex(name string, id []byte) {
	from := len(w.buf)
	w.buf = hex.AppendEncode(w.buf, id)
	w.r.Add(name, alias(w.buf[from:]))
}

func (w *rowWriter) number(name string, v int64) {
	from := len(w.buf)
	w.buf = strconv.AppendInt(w.buf, v, 10)
	w.r.Add(name, alias(w.buf[from:]))
}

func (w *rowWriter) count(name string, v uint32) {
	if v != 0 {
		w.number(name, int64(v))
	}
}

func (w *rowWriter) shortcut(s *Span, c *shortcut) {
	for _, key := range c.keys {
		v, ok := find(s.Attrs, key)
		if !ok || v.Str == "" || v.Type == JSON {
			continue
		}
		if c.field == "bootstrap_room" {
			if room, ok := Room(v.Str); ok {
				from := len(w.buf)
				w.buf = strconv.AppendUint(w.buf, room, 10)
				w.r.Add(c.field, alias(w.buf[from:]))
			}
			return
		}
		w.r.Add(c.field, v.Str)
		return
	}
}

// attrs writes attributes of one place. service is what the row says already.
func (w *rowWriter) attrs(place byte, prefix string, attrs []Attr, service string) {
	var seen map[string]bool
	if len(attrs) > 64 {
		seen = make(map[string]bool, len(attrs))
	}
	for i := range attrs {
		a := &attrs[i]
		repeated := false
		if seen != nil {
			repeated = seen[a.Key]
			seen[a.Key] = true
		} else {
			_, repeated = find(attrs[:i], a.Key)
		}
		if service != "" && !repeated && a.Key == "service.name" && a.Value.Type == Text && a.Value.Str == service {
			continue
		}
		if repeated || a.Key == "" || a.Value.Str == "" || len(prefix)+len(a.Key) > maxFieldName || i >= maxAttrs {
			if len(w.more) == 0 {
				w.more = append(w.more, '[')
			} else {
				w.more = append(w.more, ',')
			}
			w.more = append(w.more, '"', place, '"', ',')
			w.more = append(appendQuoted(w.more, a.Key), ',')
			w.more = appendPlainValue(w.more, a.Value)
			continue
		}
		from := len(w.buf)
		w.buf = append(append(w.buf, prefix...), a.Key...)
		w.r.Fields = append(w.r.Fields, event.Field{Name: alias(w.buf[from:]), Value: a.Value.Str})
		if a.Value.Type != Text {
			if len(w.typed) > 0 {
				w.typed = append(w.typed, ' ')
			}
			w.typed = append(w.typed, place, typeLetters[a.Value.Type], ':')
			w.typed = appendWord(w.typed, a.Key)
		}
	}
}

const typeLetters = "tbifj"

// appendWord writes a key that a space ends: as it is, or as JSON string.
func appendWord(dst []byte, key string) []byte {
	for i := 0; i < len(key); i++ {
		if c := key[i]; c <= ' ' || c == '"' || c == '\\' {
			return appendQuoted(dst, key)
		}
	}
	return append(dst, key...)
}

// appendPlainValue writes a value so that readPlainValue gets its type back.
func appendPlainValue(dst []byte, v Value) []byte {
	switch v.Type {
	case Bool:
		if v.Str == "true" || v.Str == "false" {
			return append(dst, v.Str...)
		}
	case Int:
		if _, err := strconv.ParseInt(v.Str, 10, 64); err == nil {
			return append(dst, v.Str...)
		}
	case Float:
		if f, ok := parseFloat(v.Str); ok {
			return appendPlainFloat(dst, f)
		}
	case JSON:
		r := reader{b: bytesOf(v.Str)}
		r.skip()
		if r.end(); r.err == nil {
			return append(dst, v.Str...)
		}
	}
	return appendQuoted(dst, v.Str)
}

func readPlainValue(r *reader) Value {
	switch r.peek() {
	case '"':
		return Value{Text, r.text()}
	case 't', 'f':
		return Value{Bool, strconv.FormatBool(r.bool())}
	case '[', 'n':
		return Value{JSON, r.raw()}
	case '{':
		from := r.i
		if _, f, kind := r.marked(); kind == keyDouble {
			return Value{Float, string(appendFloat(nil, f))}
		}
		r.i = from
		return Value{JSON, r.raw()}
	}
	s, isInt := r.number()
	if _, err := strconv.ParseInt(s, 10, 64); isInt && err == nil {
		return Value{Int, s}
	}
	f, ok := parseFloat(s)
	if !ok {
		r.fail("a number that is none")
	}
	return Value{Float, string(appendFloat(nil, f))}
}

func (s *Span) appendEvents(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range s.Events {
		e := &s.Events[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"time_unix_nano":`...), e.Time, 10)
		dst = appendQuoted(append(dst, `,"name":`...), e.Name)
		dst = appendTail(dst, e.Attrs, e.Dropped)
	}
	return append(dst, ']')
}

func (s *Span) appendLinks(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range s.Links {
		l := &s.Links[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = hex.AppendEncode(append(dst, `{"trace_id":"`...), l.Trace[:])
		dst = hex.AppendEncode(append(dst, `","span_id":"`...), l.ID[:])
		dst = append(dst, '"')
		if l.TraceState != "" {
			dst = appendQuoted(append(dst, `,"trace_state":`...), l.TraceState)
		}
		if l.Flags != 0 {
			dst = strconv.AppendUint(append(dst, `,"flags":`...), uint64(l.Flags), 10)
		}
		dst = appendTail(dst, l.Attrs, l.Dropped)
	}
	return append(dst, ']')
}

// appendTail ends an event or a link.
func appendTail(dst []byte, attrs []Attr, dropped uint32) []byte {
	if len(attrs) > 0 {
		dst = append(dst, `,"attrs":{`...)
		for i := range attrs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, attrs[i].Key), ':')
			dst = appendPlainValue(dst, attrs[i].Value)
		}
		dst = append(dst, '}')
	}
	if dropped > 0 {
		dst = strconv.AppendUint(append(dst, `,"dropped_attributes_count":`...), uint64(dropped), 10)
	}
	return append(dst, '}')
}

// RowError is a stored row that is no span as [Span.Row] writes it.
type RowError struct{ Field, Value, Why string }

func (e *RowError) Error() string {
	return fmt.Sprintf("row of a span: field %s is %.60q: %s", e.Field, e.Value, e.Why)
}

// FromRow makes a span of a stored row's fields, _time, _msg and service among them; fields that are no
// part of a span are left alone. Attributes come sorted by key. The span aliases nothing. The error is a
// *[RowError]; the span then has what could be read.
func FromRow(row []event.Field) (Span, error) {
	var s Span
	var first error
	bad := func(f *event.Field, why string) {
		if first == nil {
			first = &RowError{f.Name, f.Value, why}
		}
	}
	number := func(f *event.Field) int64 {
		v, err := strconv.ParseInt(f.Value, 10, 64)
		if err != nil {
			bad(f, "no whole number")
		}
		return v
	}
	count := func(f *event.Field) uint32 { return uint32(number(f)) }
	var typed, more, events, links *event.Field
	var start, duration, end *event.Field
	noName := false
	for i := range row {
		f := &row[i]
		if f.Value == "" {
			continue
		}
		if at := strings.IndexByte(f.Name, ':'); at > 0 {
			a := Attr{f.Name[at+1:], Value{Text, f.Value}}
			switch f.Name[:at+1] {
			case ResourceAttr:
				s.Resource = append(s.Resource, a)
			case ScopeAttr:
				s.ScopeAttrs = append(s.ScopeAttrs, a)
			case SpanAttr:
				s.Attrs = append(s.Attrs, a)
			}
			continue
		}
		switch f.Name {
		case "_time":
			t, err := time.Parse(time.RFC3339Nano, f.Value)
			if err != nil {
				bad(f, "no RFC 3339 time")
				break
			}
			s.Start = t.UnixNano()
		case "_msg":
			s.Name = f.Value
		case "unnamed":
			noName = true
		case "service":
			s.Service = f.Value
		case "trace_id":
			if n, err := hex.Decode(s.Trace[:], bytesOf(f.Value[:min(len(f.Value), 32)])); err != nil || n != 16 || len(f.Value) != 32 {
				bad(f, "no trace id of 32 hex digits")
			}
		case "span_id", "parent_span_id":
			id := &s.ID
			if f.Name != "span_id" {
				id = &s.Parent
			}
			if n, err := hex.Decode(id[:], bytesOf(f.Value[:min(len(f.Value), 16)])); err != nil || n != 8 || len(f.Value) != 16 {
				bad(f, "no span id of 16 hex digits")
			}
		case "trace_state":
			s.TraceState = f.Value
		case "flags":
			s.Flags = count(f)
		case "kind":
			for k, name := range kindNames {
				if name == f.Value {
					s.Kind = Kind(k)
				}
			}
		case "start_time_unix_nano":
			start = f
		case "end_time_unix_nano":
			end = f
		case "duration":
			duration = f
		case "status_code":
			switch f.Value {
			case "ok":
				s.Status = OK
			case "error":
				s.Status = Failed
			}
		case "status_message":
			s.StatusMessage = f.Value
		case "scope_name":
			s.ScopeName = f.Value
		case "scope_version":
			s.ScopeVersion = f.Value
		case "events":
			events = f
		case "links":
			links = f
		case "dropped_attributes_count":
			s.DroppedAttrs = count(f)
		case "dropped_events_count":
			s.DroppedEvents = count(f)
		case "dropped_links_count":
			s.DroppedLinks = count(f)
		case "resource_dropped_attributes_count":
			s.ResourceLimit = count(f)
		case "scope_dropped_attributes_count":
			s.ScopeLimit = count(f)
		case "typed":
			typed = f
		case "more":
			more = f
		}
	}
	if start != nil {
		s.Start = number(start)
	}
	if duration != nil {
		s.End = s.Start + number(duration)
	} else if end != nil {
		s.End = number(end)
	}
	if noName && s.Name == unnamed {
		s.Name = ""
	}
	if _, has := find(s.Resource, "service.name"); !has && s.Service != "" {
		s.Resource = append(s.Resource, Attr{"service.name", Value{Text, s.Service}})
	}
	byKey := func(a []Attr) { sort.SliceStable(a, func(i, j int) bool { return a[i].Key < a[j].Key }) }
	byKey(s.Resource)
	byKey(s.ScopeAttrs)
	byKey(s.Attrs)
	if typed != nil && !s.readTyped(typed.Value) {
		bad(typed, "no list of types")
	}
	if more != nil {
		r := reader{b: bytesOf(more.Value)}
		for ok := r.open('['); ok; ok = r.more(']') {
			place := r.text()
			r.more(']')
			key := r.text()
			r.more(']')
			a := Attr{key, readPlainValue(&r)}
			if r.err != nil {
				break
			}
			switch place {
			case "r":
				if key == "service.name" && s.Service == "" {
					s.Service = a.Value.Str
				}
				s.Resource = append(s.Resource, a)
			case "c":
				s.ScopeAttrs = append(s.ScopeAttrs, a)
			case "s":
				s.Attrs = append(s.Attrs, a)
			}
		}
		if r.end(); r.err != nil {
			bad(more, r.err.Error())
		}
		byKey(s.Resource)
		byKey(s.ScopeAttrs)
		byKey(s.Attrs)
	}
	if events != nil {
		if err := s.readEvents(events.Value); err != nil {
			bad(events, err.Error())
		}
	}
	if links != nil {
		if err := s.readLinks(links.Value); err != nil {
			bad(links, err.Error())
		}
	}
	s.own()
	return s, first
}

// readTyped gives attributes the types that the field typed says. They are sorted.
func (s *Span) readTyped(list string) bool {
	r := reader{b: bytesOf(list)}
	for r.i < len(r.b) {
		if len(r.b)-r.i < 4 || r.b[r.i+2] != ':' {
			return false
		}
		var attrs []Attr
		switch r.b[r.i] {
		case 'r':
			attrs = s.Resource
		case 'c':
			attrs = s.ScopeAttrs
		case 's':
			attrs = s.Attrs
		}
		t := strings.IndexByte(typeLetters, r.b[r.i+1])
		r.i += 3
		var key string
		if r.b[r.i] == '"' {
			key = r.text()
		} else {
			from := r.i
			for r.i < len(r.b) && r.b[r.i] != ' ' {
				r.i++
			}
			key = alias(r.b[from:r.i])
		}
		if r.err != nil || t < 0 {
			return false
		}
		if r.i < len(r.b) && r.b[r.i] == ' ' {
			r.i++
		}
		if i := sort.Search(len(attrs), func(i int) bool { return attrs[i].Key >= key }); i < len(attrs) && attrs[i].Key == key {
			attrs[i].Value.Type = Type(t)
		}
	}
	return true
}

func (r *reader) int() int64 {
	s, _ := r.number()
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.fail("no whole number")
	}
	return v
}

func (r *reader) plainAttrs() []Attr {
	var out []Attr
	for ok := r.open('{'); ok; ok = r.more('}') {
		key := r.key()
		out = append(out, Attr{key, readPlainValue(r)})
	}
	return out
}

func (s *Span) readEvents(text string) error {
	r := reader{b: bytesOf(text)}
	for ok := r.open('['); ok; ok = r.more(']') {
		var e Event
		for ok := r.open('{'); ok; ok = r.more('}') {
			switch r.key() {
			case "time_unix_nano":
				e.Time = r.int()
			case "name":
				e.Name = r.text()
			case "attrs":
				e.Attrs = r.plainAttrs()
			case "dropped_attributes_count":
				e.Dropped = uint32(r.int())
			default:
				r.skip()
			}
		}
		if r.err == nil {
			s.Events = append(s.Events, e)
		}
	}
	r.end()
	return r.err
}

func (s *Span) readLinks(text string) error {
	r := reader{b: bytesOf(text)}
	id := func(to []byte) {
		t := r.text()
		if len(t) != len(to)*2 {
			r.fail("an id of a wrong length")
			return
		}
		if _, err := hex.Decode(to, bytesOf(t)); err != nil {
			r.fail("an id that is no hex")
		}
	}
	for ok := r.open('['); ok; ok = r.more(']') {
		var l Link
		for ok := r.open('{'); ok; ok = r.more('}') {
			switch r.key() {
			case "trace_id":
				id(l.Trace[:])
			case "span_id":
				id(l.ID[:])
			case "trace_state":
				l.TraceState = r.text()
			case "flags":
				l.Flags = uint32(r.int())
			case "attrs":
				l.Attrs = r.plainAttrs()
			case "dropped_attributes_count":
				l.Dropped = uint32(r.int())
			default:
				r.skip()
			}
		}
		if r.err == nil {
			s.Links = append(s.Links, l)
		}
	}
	r.end()
	return r.err
}

// Room reads a bootstrap room as SGLang writes it: 0x and hex digits in spans, decimal elsewhere. Rooms
// are 63 bits; 0x0 is written without PD disaggregation and is none.
func Room(text string) (uint64, bool) {
	var n uint64
	var err error
	if hexed, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		n, err = strconv.ParseUint(hexed, 16, 64)
	} else {
		n, err = strconv.ParseUint(text, 10, 64)
	}
	return n, err == nil && n != 0
}
