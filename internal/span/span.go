// Package span is what a span of a distributed trace is to us: its identity, its place in the tree of a
// request, and what it says about the phases of a generation. Its entry points are [Decode], which reads
// OTLP's wire bytes, and [NewTree], which puts the spans of one trace in order.
package span

import (
	"encoding/hex"
)

// TraceID is 16 bytes as on the wire. SGLang fills only the lower half.
type TraceID [16]byte

// ID is a span's 8 bytes; all zero is none.
type ID [8]byte

// String is lower-case hex.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String is lower-case hex, "" for none.
func (i ID) String() string {
	if i == (ID{}) {
		return ""
	}
	return hex.EncodeToString(i[:])
}

// IsZero tells an id that no trace may have.
func (t TraceID) IsZero() bool { return t == TraceID{} }

// IsZero tells that there is none.
func (i ID) IsZero() bool { return i == ID{} }

// Status is how a span ended.
type Status uint8

// Statuses, as on the wire.
const (
	Unset Status = iota
	OK
	Failed
)

// Kind is a span's role in a call, as on the wire: 0 unspecified, 1 internal, 2 server, 3 client, 4
// producer, 5 consumer.
type Kind uint8

// Header is what is read of a span to decide about its trace: cheap, and enough for most policies. Name
// and what Raw holds alias the wire buffer.
type Header struct {
	Trace      TraceID
	ID, Parent ID
	Flags      uint32
	Name       string
	Kind       Kind
	Start, End int64 // ns since 1970 (UTC)
	Status     Status
	Raw        []byte // the span's protobuf message, without tag and length
}

// Scope is a run of spans of one instrumentation scope of one resource, as they came in. The bytes alias
// the request's body.
type Scope struct {
	Resource  []byte // protobuf message Resource, nil for none
	Service   string // service.name of the resource, "" for none
	Scope     []byte // protobuf message InstrumentationScope, nil for none
	ScopeName string
	Spans     []Header
}

// Span is a span in full.
type Span struct {
	Header
	TraceState    string
	StatusMessage string
	Attrs         []Attr
	Events        []Event
	Links         []Link
	// What the sender's SDK threw away because of its limits.
	DroppedAttrs, DroppedEvents, DroppedLinks uint32

	Service       string
	Resource      []Attr
	ScopeName     string
	ScopeVersion  string
	ScopeAttrs    []Attr
	ResourceLimit uint32 // dropped attributes of the resource
}

// Attr is an attribute.
type Attr struct {
	Key   string
	Value Value
}

// Type is the type of an attribute's value.
type Type uint8

// Types. Arrays, maps and bytes are kept as the JSON text that OTLP/JSON would have.
const (
	Text Type = iota
	Bool
	Int
	Float
	JSON
)

// Value is an attribute's value: Str holds its text form in every case, as it is stored and shown.
type Value struct {
	Type Type
	Str  string
}

// Event is a moment of a span.
type Event struct {
	Time    int64
	Name    string
	Attrs   []Attr
	Dropped uint32
}

// Link points to another span, often of another trace.
type Link struct {
	Trace      TraceID
	ID         ID
	TraceState string
	Attrs      []Attr
	Dropped    uint32
}
