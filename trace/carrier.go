package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
)

// Version is the version of the carrier format.
const Version = 1

// DefaultMaxEvents is how many events a carrier takes unless [Tracer.MaxEvents] says otherwise.
const DefaultMaxEvents = 100_000

// The types of an [Event].
const (
	SpanStart = "span_start"
	SpanEnd   = "span_end"
	Point     = "event"
)

// Attr is an attribute of a span or an event.
type Attr struct {
	Key   string
	Value any
}

// A makes an Attr.
func A(key string, value any) Attr { return Attr{key, value} }

// Attrs are attributes in the order in which they were set. In JSON they are an object.
type Attrs []Attr

// Get returns the value of a key, nil when there is none.
func (a Attrs) Get(key string) any {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i].Key == key {
			return a[i].Value
		}
	}
	return nil
}

// with returns a copy with more attributes; a key that is there already gets the new value.
func (a Attrs) with(more []Attr) Attrs {
	out := append(make(Attrs, 0, len(a)+len(more)), a...)
next:
	for _, m := range more {
		for i := range out {
			if out[i].Key == m.Key {
				out[i].Value = m.Value
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

// MarshalJSON writes an object.
func (a Attrs) MarshalJSON() ([]byte, error) { return appendAttrs(nil, a, 0), nil }

// UnmarshalJSON reads an object and keeps the order of its keys. Integers become int64, other numbers
// float64, integers beyond int64 json.Number.
func (a *Attrs) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	*a = nil
	if tok == nil {
		return nil
	}
	if tok != json.Delim('{') {
		return fmt.Errorf("trace: attrs are an object, not %v", tok)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return err
		}
		*a = append(*a, Attr{key.(string), numbers(v)})
	}
	return nil
}

// numbers turns the json.Numbers of a decoded value into int64 or float64 where they fit.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i
		}
		if isInteger(v.String()) {
			return v
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}

// isInteger says whether a JSON number is written without fraction and exponent.
func isInteger(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < '0' || s[i] > '9') && s[i] != '-' {
			return false
		}
	}
	return true
}

// Event is one entry of a carrier.
type Event struct {
	Type    string  // SpanStart, SpanEnd or Point
	Name    string  //
	TS      float64 // s since 1970
	TraceID string  //
	// SampleID and GroupID are nil, an int64 or a string.
	SampleID, GroupID    any
	Attempt              int
	SpanID, ParentSpanID string // "" when there is none
	Attrs                Attrs  // nil when there are none
}

// MarshalJSON writes the event with slime's keys in slime's order.
func (e Event) MarshalJSON() ([]byte, error) { return e.append(nil), nil }

func (e *Event) append(b []byte) []byte {
	b = appendString(append(b, `{"type":`...), e.Type)
	b = appendString(append(b, `,"name":`...), e.Name)
	b = appendFloat(append(b, `,"ts":`...), e.TS)
	b = appendString(append(b, `,"trace_id":`...), e.TraceID)
	b = appendValue(append(b, `,"sample_id":`...), e.SampleID, 0)
	b = appendValue(append(b, `,"group_id":`...), e.GroupID, 0)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(e.Attempt), 10)
	if e.SpanID != "" {
		b = appendString(append(b, `,"span_id":`...), e.SpanID)
	}
	if e.ParentSpanID != "" {
		b = appendString(append(b, `,"parent_span_id":`...), e.ParentSpanID)
	}
	if len(e.Attrs) > 0 {
		b = appendAttrs(append(b, `,"attrs":`...), e.Attrs, 0)
	}
	return append(b, '}')
}

// UnmarshalJSON reads an event.
func (e *Event) UnmarshalJSON(b []byte) error {
	var raw struct {
		Type         string   `json:"type"`
		Name         string   `json:"name"`
		TS           seconds  `json:"ts"`
		TraceID      string   `json:"trace_id"`
		SampleID     anyValue `json:"sample_id"`
		GroupID      anyValue `json:"group_id"`
		Attempt      int      `json:"attempt"`
		SpanID       string   `json:"span_id"`
		ParentSpanID string   `json:"parent_span_id"`
		Attrs        Attrs    `json:"attrs"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*e = Event{raw.Type, raw.Name, float64(raw.TS), raw.TraceID, raw.SampleID.v, raw.GroupID.v, raw.Attempt, raw.SpanID, raw.ParentSpanID, raw.Attrs}
	return nil
}

// seconds is a float that may be written as "NaN" or "Infinity".
type seconds float64

func (s *seconds) UnmarshalJSON(b []byte) error {
	if f, ok := nonFinite(string(bytes.Trim(b, `"`))); ok && b[0] == '"' {
		*s = seconds(f)
		return nil
	}
	return json.Unmarshal(b, (*float64)(s))
}

// nonFinite reads the strings that stand for floats that JSON does not have.
func nonFinite(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

type anyValue struct{ v any }

func (a *anyValue) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&a.v); err != nil {
		return err
	}
	a.v = numbers(a.v)
	return nil
}

// Carrier holds the trace of one sample. It is safe for concurrent use and must not be copied. A nil
// *Carrier takes nothing; the zero Carrier gets its id when it is first used.
//
// A sample has it as a field (`Trace *trace.Carrier` with the JSON name "trace"), not embedded: an
// embedded one would lend the sample its MarshalJSON.
type Carrier struct {
	mu                sync.Mutex
	traceID           string
	sampleID, groupID any
	attempt           int
	events            []Event
	dropped           int64
}

// NewCarrier begins a trace. The ids are the sample's index and its group's: an int, a string or nil.
func NewCarrier(sampleID, groupID any) *Carrier {
	return &Carrier{traceID: newID(), sampleID: id(sampleID), groupID: id(groupID)}
}

// Bind gives a sample its carrier, if it has none, and returns a handle to it.
func Bind(c **Carrier, sampleID, groupID any) *Handle {
	if *c == nil {
		*c = NewCarrier(sampleID, groupID)
	}
	return &Handle{Carrier: *c}
}

// id makes an id's Go type the one that JSON gives back.
func id(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case uint32:
		return int64(v)
	}
	return v
}

// newID returns 32 hex digits, as Python's uuid4().hex.
func newID() string {
	const digits = "0123456789abcdef"
	hi, lo := rand.Uint64()&^0xf000|0x4000, rand.Uint64()&^(3<<62)|1<<63
	var b [32]byte
	for i := 15; i >= 0; i-- {
		b[i], b[16+i] = digits[hi&15], digits[lo&15]
		hi, lo = hi>>4, lo>>4
	}
	return string(b[:])
}

// locked completes the zero Carrier.
func (c *Carrier) locked() {
	if c.traceID == "" {
		c.traceID = newID()
	}
}

// TraceID returns the trace's id.
func (c *Carrier) TraceID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked()
	return c.traceID
}

// Attempt returns the number of the attempt under way, 0 for the first.
func (c *Carrier) Attempt() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempt
}

// Events returns a copy of the events so far; their Attrs are shared and not to be changed.
func (c *Carrier) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Event(nil), c.events...)
}

// Dropped returns how many events were not taken because the carrier was full.
func (c *Carrier) Dropped() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// add appends an event and returns its place, or -1 when the carrier is full.
func (c *Carrier) add(e Event, limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit >= 0 && len(c.events) >= limit {
		c.dropped++
		return -1
	}
	c.locked()
	e.TraceID, e.SampleID, e.GroupID, e.Attempt = c.traceID, c.sampleID, c.groupID, c.attempt
	c.events = append(c.events, e)
	return len(c.events) - 1
}

func (c *Carrier) drop(n int64) {
	c.mu.Lock()
	c.dropped += n
	c.mu.Unlock()
}

// amend adds attributes to an event that is there already.
func (c *Carrier) amend(at int, attrs []Attr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at < len(c.events) {
		c.events[at].Attrs = c.events[at].Attrs.with(attrs)
	}
}

// MarshalJSON writes the carrier with slime's keys in slime's order.
func (c *Carrier) MarshalJSON() ([]byte, error) { return c.append(nil), nil }

func (c *Carrier) append(b []byte) []byte {
	if c == nil {
		return append(b, "null"...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked()
	b = strconv.AppendInt(append(b, `{"version":`...), Version, 10)
	b = appendString(append(b, `,"trace_id":`...), c.traceID)
	b = append(b, `,"events":[`...)
	for i := range c.events {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.events[i].append(b)
	}
	b = appendValue(append(b, `],"sample_id":`...), c.sampleID, 0)
	b = appendValue(append(b, `,"group_id":`...), c.groupID, 0)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(c.attempt), 10)
	if c.dropped > 0 {
		b = strconv.AppendInt(append(b, `,"dropped_events":`...), c.dropped, 10)
	}
	return append(b, '}')
}

// UnmarshalJSON reads a carrier, ours or slime's, in place of what was there.
func (c *Carrier) UnmarshalJSON(b []byte) error {
	var raw struct {
		Version  *int     `json:"version"`
		TraceID  string   `json:"trace_id"`
		Events   []Event  `json:"events"`
		SampleID anyValue `json:"sample_id"`
		GroupID  anyValue `json:"group_id"`
		Attempt  int      `json:"attempt"`
		Dropped  int64    `json:"dropped_events"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("trace: carrier: %w", err)
	}
	if raw.Version != nil && *raw.Version != Version {
		return fmt.Errorf("trace: carrier of version %d: this program knows version %d", *raw.Version, Version)
	}
	if raw.Dropped < 0 {
		return errors.New("trace: carrier: dropped_events is negative")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traceID, c.events, c.sampleID, c.groupID = raw.TraceID, raw.Events, raw.SampleID.v, raw.GroupID.v
	c.attempt, c.dropped = raw.Attempt, raw.Dropped
	return nil
}
