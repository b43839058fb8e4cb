// Package event is one row of the event store: what spans, requests, log records and forward passes are
// written as. Its entry point is [Row].
//
// The names of a row's fields are the ones that a person writes in a LogsQL query, so they are part of
// the public format; docs/events.md lists them. Fields that every row has:
//
//	_time     the event's own time (a span's and a request's start), RFC 3339 with nanoseconds
//	_msg      the raw line of a log record, the name of a span, the rid of a request
//	row       the kind: span, request, observation, log, pass        (stream field)
//	service   service.name of the sender, "" when it named none      (stream field)
//	engine    the engine as the resolver names it, "" when unknown    (stream field)
//	received  when it came in, RFC 3339 with nanoseconds
//	_seq      place in the spool, increasing; what a replay after a crash is deduplicated by
//
// Numbers are written plainly (durations in seconds, except that of a span, which is in nanoseconds as
// LogsQL's own units are; sizes as said), ids in lower-case hex, an absent value is an absent field.
package event

// Kind is what a row is of.
type Kind string

// Kinds of rows.
const (
	Span        Kind = "span"
	Request     Kind = "request"     // a settled request; the row with the highest field revision counts
	Observation Kind = "observation" // what one source said of a request; immutable
	Log         Kind = "log"
	Pass        Kind = "pass" // one forward pass of an engine
)

// Field is a name and a value.
type Field struct{ Name, Value string }

// Row is one event on its way into the store. Strings may alias a buffer that the producer owns: a
// consumer that keeps a row after the call that handed it over must copy it.
type Row struct {
	Kind    Kind
	Time    int64 // ns since 1970 (UTC); the event's own
	Message string
	Service string
	Engine  string
	Fields  []Field // the rest; names are not repeated, values not empty
}

// Get returns the value of a field, "" when the row has none.
func (r *Row) Get(name string) string {
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return r.Fields[i].Value
		}
	}
	return ""
}

// Add appends a field unless its value is empty.
func (r *Row) Add(name, value string) {
	if value != "" {
		r.Fields = append(r.Fields, Field{name, value})
	}
}
