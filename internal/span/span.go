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

	bad badID // ids whose length is wrong: they read as zero, and CheckIDs says why
}

// badID tells ids of a wrong length.
type badID uint8

const (
	badTrace badID = 1 << iota
	badSpan
	badParent
)

// Scope is a run of spans of one instrumentation scope of one resource, as they came in. The bytes alias
// the request's body.
type Scope struct {
	Resource  []byte // protobuf message Resource, nil for none
	Service   string // service.name of the resource, "" for none
	Scope     []byte // protobuf message InstrumentationScope, nil for none
	ScopeName string
	Spans     []Header
}

// Span is a span in full. [Decode] and [Span.Row] lend its strings and slices: they are valid until the
// same Span is decoded into, or made a row of, again. [Span.Clone] keeps one. Schema URLs and entity
// references of OTLP are not kept.
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
	ScopeLimit    uint32 // dropped attributes of the scope

	text  []byte // numbers and JSON of attributes as text, which their strings alias
	row   []byte // names and values of the fields that Row made
	typed []byte // used while Row makes them
	owned []byte // a copy of the resource that Resource was read from
}

// Attr is an attribute.
type Attr struct {
	Key   string
	Value Value
}

// Type is the type of an attribute's value.
type Type uint8

// Types. Arrays, maps, bytes and the empty value are plain JSON text: ["a",1,1.5], {"k":true}, null. Where
// plain JSON would lose what OTLP said, the one key of an object says it: {"bytesValue":"base64"},
// {"doubleValue":"NaN"}, and {"kvlistValue":{...}} around a map whose only key is one of these three.
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
	Flags      uint32
}
