package tracestore

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/span"
)

// Filters of the event store. A condition becomes a filter that finds all the spans for which it holds, and
// a few more where the store cannot tell: texts that are numbers, parts of events and links, what is of the
// whole trace. [Cond.holds] decides then.

const (
	everything = "*"
	nothing    = `trace_id:""` // every span has one
	spansOnly  = `{row="span"}`
)

// filter is the store's filter of a condition.
func (c *Cond) filter() string {
	switch c.op {
	case allOf, anyOf:
		word, neutral, absorbing := " ", everything, nothing
		if c.op == anyOf {
			word, neutral, absorbing = " or ", nothing, everything
		}
		var parts []string
		for _, a := range c.args {
			switch f := a.filter(); f {
			case neutral:
			case absorbing:
				return absorbing
			default:
				parts = append(parts, f)
			}
		}
		switch len(parts) {
		case 0:
			return neutral
		case 1:
			return parts[0]
		}
		return "(" + strings.Join(parts, word) + ")"
	}
	if c.field.traceLevel() {
		return everything
	}
	switch c.field.Scope {
	case AnyScope:
		span, resource := *c, *c
		span.field.Scope, resource.field.Scope = SpanScope, Resource
		if c.cmp == Absent {
			return All(&span, &resource).filter()
		}
		return Any(&span, &resource).filter()
	case Resource:
		if c.field.Key == "service.name" { // stands in a field of its own, or, when it is odd, among the others
			if c.cmp == Absent {
				return "(" + c.on("service") + " " + c.on(span.ResourceAttr+c.field.Key) + ")"
			}
			return "(" + c.on("service") + " or " + c.on(span.ResourceAttr+c.field.Key) + ")"
		}
		return c.attr(span.ResourceAttr)
	case SpanScope:
		return c.attr(span.SpanAttr)
	case Instrument:
		return c.attr(span.ScopeAttr)
	case EventScope:
		return c.within("events", c.field.Key)
	case LinkScope:
		return c.within("links", c.field.Key)
	}
	switch c.field.Key {
	case SpanName:
		return c.on("_msg")
	case SpanStatus:
		return c.word("status_code", "unset")
	case SpanKind:
		return c.word("kind", "unspecified")
	case SpanDuration:
		d := *c
		d.value.Number *= 1e9
		d.value.Text = strconv.FormatFloat(d.value.Number, 'f', -1, 64)
		return d.on("duration")
	case StatusMessage:
		return c.on("status_message")
	case SpanID:
		return c.on("span_id")
	case ParentID:
		return c.on("parent_span_id")
	case TraceIDField:
		return c.on("trace_id")
	case ScopeName:
		return c.on("scope_name")
	case ScopeVersion:
		return c.on("scope_version")
	case EventName:
		return c.within("events", "")
	case LinkTraceID, LinkSpanID:
		return c.within("links", "")
	}
	return everything
}

// maxFieldName is the longest name of a field that the store takes, in bytes; attributes with longer ones
// stand elsewhere.
const maxFieldName = 128

// attr is the filter of an attribute.
func (c *Cond) attr(prefix string) string {
	name := prefix + c.field.Key
	if c.field.Key == "" || len(name) > maxFieldName || strings.HasSuffix(name, "*") { // a star would mean any name
		return everything
	}
	f := c.on(name)
	if c.cmp == Absent || f == everything {
		return f
	}
	// An attribute that could not be a field of its own stands in a list.
	return "(" + f + " or " + inJSON("more", c.field.Key) + ")"
}

// inJSON is the filter of a field of JSON that holds a text as a key or a value.
func inJSON(field, text string) string {
	for _, r := range text {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\<>&/`, r) { // may be written in several ways
			return logsql.Quote(field) + ":*"
		}
	}
	if text == "" {
		return logsql.Quote(field) + ":*"
	}
	return logsql.Contains(field, `"`+text+`"`)
}

// on is the filter of a comparison of one field of the store.
func (c *Cond) on(name string) string {
	q := logsql.Quote(name)
	number := func(op string) string { return q + ":" + op + strconv.FormatFloat(c.value.Number, 'f', -1, 64) }
	same := func() string {
		f := logsql.Equal(name, c.value.Text)
		if !c.value.IsNumber {
			return f
		}
		return "(" + f + " or (" + number(">=") + " " + number("<=") + "))"
	}
	there := q + ":*"
	switch c.cmp {
	case Equal:
		if c.value.Text == "" { // an empty value stands in the list more
			return everything
		}
		return same()
	case NotEqual:
		if c.value.Text == "" {
			return there
		}
		return "(" + there + " " + logsql.Not(same()) + ")"
	case Matches:
		return "(" + there + " " + logsql.Whole(name, c.value.Text) + ")"
	case NotMatches:
		return "(" + there + " " + logsql.Not(logsql.Whole(name, c.value.Text)) + ")"
	case Glob:
		glob := strings.TrimLeft(c.value.Text, " ")
		if prefix, ok := strings.CutSuffix(glob, "*"); ok && prefix != "" && !strings.Contains(prefix, "*") {
			return prefixFilter(name, []string{prefix, " " + prefix}) // as good as always, and faster
		}
		return logsql.Match(name, globPattern(c.value.Text))
	case Contains:
		return logsql.Match(name, "(?i)"+regexp.QuoteMeta(c.value.Text))
	case Absent:
		return q + `:""`
	case Exists:
		return there
	}
	if !c.value.IsNumber {
		return there
	}
	return number(c.cmp.String())
}

// word is the filter of a field whose word for "nothing was said" is no value.
func (c *Cond) word(name, none string) string {
	empty := logsql.Quote(name) + `:""`
	switch c.cmp {
	case Equal:
		if c.value.Text == none {
			return empty
		}
		return logsql.Equal(name, c.value.Text)
	case NotEqual:
		if c.value.Text == none {
			return logsql.Quote(name) + ":*"
		}
		return logsql.Not(logsql.Equal(name, c.value.Text))
	case Absent:
		return nothing
	}
	return everything
}

// within is the filter of something in the list of events or links, which is JSON.
func (c *Cond) within(name, key string) string {
	if c.cmp == Absent {
		return everything
	}
	if key == "" && c.cmp == Equal {
		key = c.value.Text
	}
	return inJSON(name, key)
}
