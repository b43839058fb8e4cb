package tracestore

import "github.com/rollscope/rollscope/internal/span"

// Trace is what the store has of one trace.
type Trace struct {
	ID    span.TraceID
	Spans []span.Span // by start; no duplicates
	// Others are more traces that the asked id may mean: of the same low 64 bits, or of the same request id.
	Others []span.TraceID
	// By says what the asked id is when it is no trace id: "rid", "x_request_id", ...; "" otherwise.
	By string
	// Partial says why not all spans are here; "" when they are.
	Partial string
}

// Found is one trace that a search found.
type Found struct {
	ID          span.TraceID
	Root        string // name of the root span, "" when it is not there
	RootService string // of the root span; without one, of the first span
	Start, End  int64  // ns since 1970, of the spans there are
	Spans       int
	Errors      int
	Services    map[string]ServiceCount
	RID         string // of the root or of the first span that has one
	RequestID   string
	Roots       int  // spans without a parent: 0 when the root is missing
	Orphans     bool // the root is missing
	// Matched are the spans that the query asked for, by start, at most Query.SpansPerTrace; Count is how
	// many there are at least.
	Matched []span.Span
	Count   int
}

// ServiceCount is what a service has in a trace.
type ServiceCount struct{ Spans, Errors int }

// Related is another trace that may be of the same request.
type Related struct {
	ID  span.TraceID
	Why string // in words, for people
}

// Result is the answer of a search.
type Result struct {
	Traces []Found
	// Partial says why there may be more; "" when all that match are here, or Limit was reached.
	Partial string
	// Inspected counts the traces that were looked at.
	Inspected int
}

// Operation is a name that a service gives its spans.
type Operation struct {
	Name string
	Kind span.Kind
}

// Value with its type as Tempo names it: string, int, float, bool, duration, keyword.
type TagValue struct{ Type, Value string }

// Dependency counts the spans of one service whose parent is another's.
type Dependency struct {
	Parent, Child string
	Calls         uint64
}

// ServiceStats is what a service sends in a range.
type ServiceStats struct {
	Service string
	Spans   int64
	Names   []NameCount // most first, at most MaxNames
	Level   int         // SGLANG_TRACE_LEVEL as seen, 0 when the service is no SGLang
	Missing []string    // what the next levels would add
	// Sure is false when the level may be higher: few requests were seen.
	Sure       bool
	Generation string  // of SGLang's spans, "" when it cannot be told
	PerHour    float64 // spans
	Bytes      float64 // per hour, as sent to the store; NaN when unknown
	Dropped    int64   // spans whose sender threw attributes away
}

// NameCount is how often a name occurs.
type NameCount struct {
	Name  string
	Count int64
}
