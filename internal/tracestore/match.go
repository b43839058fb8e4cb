package tracestore

import (
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/span"
)

// traceFacts is what conditions on the whole trace look at.
type traceFacts struct {
	rootName, rootService string
	duration              float64 // seconds
}

// holds tells whether a span fulfils a condition. A field that the span lacks fulfils only [Absent].
func (c *Cond) holds(s *span.Span, t *traceFacts) bool {
	switch c.op {
	case allOf:
		for _, a := range c.args {
			if !a.holds(s, t) {
				return false
			}
		}
		return true
	case anyOf:
		for _, a := range c.args {
			if a.holds(s, t) {
				return true
			}
		}
		return false
	}
	some := false
	found := false
	eachValue(c.field, s, t, func(v string) bool {
		some = true
		found = c.compare(v)
		return !found
	})
	switch c.cmp {
	case Exists:
		return some
	case Absent:
		return !some
	}
	return found
}

// compare compares one value, which is there.
func (c *Cond) compare(v string) bool {
	switch c.cmp {
	case Equal:
		return c.equal(v)
	case NotEqual:
		return !c.equal(v)
	case Matches, Glob:
		return c.re.MatchString(v)
	case NotMatches:
		return !c.re.MatchString(v)
	case Exists:
		return true
	case Contains:
		return strings.Contains(strings.ToLower(v), strings.ToLower(c.value.Text))
	case Absent:
		return false
	}
	if !c.value.IsNumber {
		switch c.cmp {
		case Less:
			return v < c.value.Text
		case LessEqual:
			return v <= c.value.Text
		case Greater:
			return v > c.value.Text
		}
		return v >= c.value.Text
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return false
	}
	switch c.cmp {
	case Less:
		return n < c.value.Number
	case LessEqual:
		return n <= c.value.Number
	case Greater:
		return n > c.value.Number
	}
	return n >= c.value.Number
}

func (c *Cond) equal(v string) bool {
	if v == c.value.Text {
		return true
	}
	if !c.value.IsNumber {
		return false
	}
	n, err := strconv.ParseFloat(v, 64)
	return err == nil && n == c.value.Number
}

// eachValue calls fn with every value that a span has of a field until it returns false. Events and
// links may have several, the rest has at most one.
func eachValue(f Field, s *span.Span, t *traceFacts, fn func(string) bool) {
	attr := func(list []span.Attr) bool { // tells whether to go on
		for i := range list {
			if list[i].Key == f.Key {
				return fn(list[i].Value.Str)
			}
		}
		return true
	}
	has := func(list []span.Attr) bool {
		for i := range list {
			if list[i].Key == f.Key {
				return true
			}
		}
		return false
	}
	text := func(v string) {
		if v != "" {
			fn(v)
		}
	}
	switch f.Scope {
	case SpanScope:
		attr(s.Attrs)
	case Resource:
		if f.Key == "service.name" && !has(s.Resource) {
			text(s.Service)
			return
		}
		attr(s.Resource)
	case AnyScope:
		if has(s.Attrs) {
			attr(s.Attrs)
			return
		}
		eachValue(Field{Resource, f.Key}, s, t, fn)
	case Instrument:
		attr(s.ScopeAttrs)
	case EventScope:
		for i := range s.Events {
			if !attr(s.Events[i].Attrs) {
				return
			}
		}
	case LinkScope:
		for i := range s.Links {
			if !attr(s.Links[i].Attrs) {
				return
			}
		}
	case Intrinsic:
		intrinsicValue(f.Key, s, t, fn)
	}
}

func intrinsicValue(key string, s *span.Span, t *traceFacts, fn func(string) bool) {
	text := func(v string) {
		if v != "" {
			fn(v)
		}
	}
	switch key {
	case SpanName:
		fn(s.Name)
	case SpanStatus:
		fn(statusName(s.Status))
	case StatusMessage:
		text(s.StatusMessage)
	case SpanKind:
		fn(kindName(s.Kind))
	case SpanDuration:
		fn(seconds(s.End - s.Start))
	case SpanID:
		text(s.ID.String())
	case ParentID:
		text(s.Parent.String())
	case TraceIDField:
		fn(s.Trace.String())
	case ScopeName:
		text(s.ScopeName)
	case ScopeVersion:
		text(s.ScopeVersion)
	case RootName:
		text(t.rootName)
	case RootService:
		text(t.rootService)
	case TraceDuration:
		fn(strconv.FormatFloat(t.duration, 'f', -1, 64))
	case EventName:
		for i := range s.Events {
			if !fn(s.Events[i].Name) {
				return
			}
		}
	case LinkTraceID:
		for i := range s.Links {
			if !fn(s.Links[i].Trace.String()) {
				return
			}
		}
	case LinkSpanID:
		for i := range s.Links {
			if !fn(s.Links[i].ID.String()) {
				return
			}
		}
	}
}

func statusName(s span.Status) string {
	switch s {
	case span.OK:
		return "ok"
	case span.Failed:
		return "error"
	}
	return "unset"
}

func kindName(k span.Kind) string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// seconds writes ns as seconds, exactly.
func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', -1, 64) }

// Values returns what a span has of a field, as text, nil for nothing.
func Values(f Field, s *span.Span) []string {
	var out []string
	eachValue(f, s, &traceFacts{}, func(v string) bool {
		out = append(out, v)
		return len(out) < 16
	})
	return out
}
