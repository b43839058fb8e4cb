package tracestore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/span"
)

// joinKeys are the attributes that name a request across traces, with the field that has every spelling.
var joinKeys = []struct{ field, word string }{{"x_request_id", "x-request-id"}, {"request_id", "request id"}, {"rid", "rid"}, {"bootstrap_room", "bootstrap room"}}

// Related finds other traces that may be of the same request: they share one of its ids, or are linked
// with one of its spans. They are never merged. The search is around the trace's own time.
func (st *Store) Related(ctx context.Context, t *Trace) ([]Related, error) {
	if len(t.Spans) == 0 {
		return nil, nil
	}
	from, to := t.Spans[0].Start-int64(time.Hour), t.Spans[0].Start+int64(time.Hour)
	for i := range t.Spans {
		to = max(to, t.Spans[i].End+int64(time.Hour))
	}
	var out []Related
	add := func(id span.TraceID, why string) {
		if id != t.ID && len(out) < MaxOthers && !slices.ContainsFunc(out, func(r Related) bool { return r.ID == id }) {
			out = append(out, Related{id, why})
		}
	}
	for i := range t.Spans {
		for _, l := range t.Spans[i].Links {
			add(l.Trace, fmt.Sprintf("span %q links to it", t.Spans[i].Name))
		}
	}
	for _, j := range joinKeys {
		values := t.values(j.field)
		if len(values) == 0 {
			continue
		}
		text := spansOnly + " " + inFilter(j.field, values) + " " + logsql.Not(logsql.Equal("trace_id", t.ID.String())) +
			" | stats by (trace_id, " + j.field + ") min(_time) as t | sort by (t, trace_id) limit " + strconv.Itoa(MaxOthers)
		err := st.query(ctx, text, max(1, from), to, func(r row) error {
			if id, ok := parseTraceID(r.get("trace_id")); ok {
				add(id, fmt.Sprintf("probably one request: both have the %s %q", j.word, r.get(j.field)))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	text := spansOnly + " " + logsql.Contains("links", t.ID.String()) + " | stats by (trace_id) min(_time) as t | sort by (t, trace_id) limit " + strconv.Itoa(MaxOthers)
	err := st.query(ctx, text, max(1, from), to, func(r row) error {
		if id, ok := parseTraceID(r.get("trace_id")); ok {
			add(id, "it links to a span of this trace")
		}
		return nil
	})
	return out, err
}

// values are the different values that the spans have of one of the fields people look up by.
func (t *Trace) values(field string) []string {
	var out []string
	for i := range t.Spans {
		if v := t.Spans[i].Shortcut(field); v != "" && !slices.Contains(out, v) {
			if out = append(out, v); len(out) >= 8 {
				break
			}
		}
	}
	return out
}
