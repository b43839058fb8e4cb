// Package tracestore reads traces out of the event store: it finds them by any of their ids, searches their
// spans in TraceQL or by fields, and counts what each service sends. Its entry point is [New].
package tracestore

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scope is where an attribute stands.
type Scope string

// Scopes. [AnyScope] is TraceQL's ".key": of the span or, without one, of its resource.
const (
	AnyScope   Scope = ""
	SpanScope  Scope = "span"
	Resource   Scope = "resource"
	EventScope Scope = "event"
	LinkScope  Scope = "link"
	Instrument Scope = "instrumentation"
	Intrinsic  Scope = "intrinsic" // Key is one of the constants below
)

// Intrinsics: what every span, or every trace, has.
const (
	SpanName      = "name"
	SpanStatus    = "status"        // "ok", "error", "unset"
	StatusMessage = "statusMessage" //
	SpanKind      = "kind"          // "unspecified", "internal", "server", ...
	SpanDuration  = "duration"      // seconds
	SpanID        = "span:id"
	ParentID      = "span:parentID"
	TraceIDField  = "trace:id"
	RootName      = "rootName"        // of the trace
	RootService   = "rootServiceName" // of the trace
	TraceDuration = "traceDuration"   // of the trace, seconds
	EventName     = "event:name"
	LinkTraceID   = "link:traceID"
	LinkSpanID    = "link:spanID"
	ScopeName     = "instrumentation:name"
	ScopeVersion  = "instrumentation:version"
	IsRoot        = "nestedSetParent" // below 0 of a root
)

// Field names something of a span.
type Field struct {
	Scope Scope
	Key   string
}

// String is the field as TraceQL has it.
func (f Field) String() string {
	switch f.Scope {
	case Intrinsic:
		return f.Key
	case AnyScope:
		return "." + quoteKey(f.Key)
	}
	return string(f.Scope) + "." + quoteKey(f.Key)
}

// traceLevel tells a field that all spans of a trace share.
func (f Field) traceLevel() bool {
	return f.Scope == Intrinsic && (f.Key == RootName || f.Key == RootService || f.Key == TraceDuration)
}

// Cmp compares.
type Cmp uint8

// Comparisons. Exists and Absent have no value. Glob is text in which * stands for anything; the
// field may begin with one space more: SGLang's names do.
const (
	Equal Cmp = iota
	NotEqual
	Matches // fully anchored regular expression (RE2)
	NotMatches
	Less
	LessEqual
	Greater
	GreaterEqual
	Exists
	Absent
	Glob
	Contains // case-insensitive
)

var cmpText = [...]string{"=", "!=", "=~", "!~", "<", "<=", ">", ">=", "!= nil", "= nil", "= (glob)", "= (contains)"}

func (c Cmp) String() string { return cmpText[c] }

// Value is what a field is compared with: text, or a number when IsNumber. Durations are numbers of seconds.
type Value struct {
	Text     string
	Number   float64
	IsNumber bool
}

// op says how the parts of a condition or of sets go together.
type op uint8

const (
	leaf op = iota
	allOf
	anyOf
)

// Cond is a condition on one span: a comparison, or all or any of others. The empty [All] holds always.
type Cond struct {
	op    op
	args  []*Cond
	field Field
	cmp   Cmp
	value Value
	re    *regexp.Regexp // of Matches, NotMatches, Glob
}

// All holds when each of the conditions does. Nil ones are left out.
func All(conds ...*Cond) *Cond { return join(allOf, conds) }

// Any holds when one of the conditions does; without any, never.
func Any(conds ...*Cond) *Cond { return join(anyOf, conds) }

func join(o op, conds []*Cond) *Cond {
	out := &Cond{op: o}
	for _, c := range conds {
		switch {
		case c == nil:
		case c.op == o:
			out.args = append(out.args, c.args...)
		default:
			out.args = append(out.args, c)
		}
	}
	if len(out.args) == 1 {
		return out.args[0]
	}
	return out
}

// Compare is a comparison of a field. The error is about a regular expression that is none.
func Compare(f Field, c Cmp, v Value) (*Cond, error) {
	out := &Cond{field: f, cmp: c, value: v}
	var pattern string
	switch c {
	case Matches, NotMatches:
		pattern = "^(?:" + v.Text + ")$"
	case Glob:
		pattern = globPattern(v.Text)
	default:
		return out, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	out.re = re
	return out, nil
}

// Is is a comparison with text that cannot fail.
func Is(f Field, text string) *Cond { return &Cond{field: f, value: Value{Text: text}} }

// NameIs is a condition on a span's name in which * stands for anything.
func NameIs(pattern string) *Cond {
	f := Field{Intrinsic, SpanName}
	if !strings.Contains(pattern, "*") {
		return Any(Is(f, pattern), Is(f, " "+pattern))
	}
	return &Cond{field: f, cmp: Glob, value: Value{Text: pattern}, re: regexp.MustCompile(globPattern(pattern))}
}

// globPattern is the regular expression of a glob; its parts are quoted, so it always compiles.
func globPattern(glob string) string {
	var b strings.Builder
	b.WriteString(`^ ?`)
	for i, part := range strings.Split(strings.TrimLeft(glob, " "), "*") {
		if i > 0 {
			b.WriteString(`(?s:.*)`)
		}
		b.WriteString(regexp.QuoteMeta(part))
	}
	b.WriteString("$")
	return b.String()
}

// Set is a condition on a trace: it has a span for which Cond holds, or all or any of other sets do.
type Set struct {
	op   op
	args []*Set
	cond *Cond
}

// Spans is the set of one condition.
func Spans(c *Cond) *Set { return &Set{cond: c} }

// leaves are the conditions of a set, in the order of the query.
func (s *Set) leaves() []*Cond {
	if s.op == leaf {
		return []*Cond{s.cond}
	}
	var out []*Cond
	for _, a := range s.args {
		out = append(out, a.leaves()...)
	}
	return out
}

// Order of what a search finds.
type Order uint8

// Orders.
const (
	Newest  Order = iota // by the newest span that matched
	Slowest              // by the longest span that matched
)

// Query asks for traces. Times are ns since 1970; a trace is found by spans that start in [From, To].
type Query struct {
	Where    *Set // nil: any span
	Select   []Field
	From, To int64
	// Trace's own duration, 0 for no bound. Of the whole trace, not of what matched.
	MinDuration, MaxDuration time.Duration
	Limit                    int // traces; 0 = 20, at most MaxTraces
	SpansPerTrace            int // matched spans that are shown of one; 0 = 3
	Order                    Order
}

func quoteKey(key string) string {
	plain := key != ""
	for _, r := range key {
		if !attributeRune(r) || r == '"' || r == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// Has is a comparison that a part of the value is enough for, in any case of letters.
func Has(f Field, text string) *Cond { return &Cond{field: f, cmp: Contains, value: Value{Text: text}} }

// EachOf is the set of traces that have a span for each of the conditions.
func EachOf(conds ...*Cond) *Set {
	out := &Set{op: allOf}
	for _, c := range conds {
		out.args = append(out.args, Spans(c))
	}
	return out
}

// Fields lists what a set compares, in the order of the query.
func Fields(s *Set) []Field {
	var out []Field
	var walk func(c *Cond)
	walk = func(c *Cond) {
		for _, a := range c.args {
			walk(a)
		}
		if c.op == leaf && !slices.Contains(out, c.field) {
			out = append(out, c.field)
		}
	}
	if s != nil {
		for _, c := range s.leaves() {
			walk(c)
		}
	}
	return out
}

// ParseField reads the name of a field as TraceQL has it: span.key, resource.key, .key, or an intrinsic. The
// error is a *[QueryError].
func ParseField(text string) (Field, error) {
	p := &parser{text: text}
	if err := p.next(); err != nil {
		return Field{}, err
	}
	f, ok := p.fieldOf(p.tok)
	if !ok || p.at != len(text) {
		return Field{}, p.fail(0, "%q is no field: span.key, resource.key, .key or an intrinsic", text)
	}
	return f, nil
}

// Both is the set of traces that are in both sets.
func Both(a, b *Set) *Set { return &Set{op: allOf, args: []*Set{a, b}} }
