package tracestore

import (
	"context"
	"fmt"
	"maps"

	"github.com/rollscope/rollscope/internal/span"
)

// Coverage is how traces of a range hang together.
type Coverage struct {
	span.Coverage
	Orphaned int // traces with a span whose parent nobody sent
	// Partial says which traces were not looked at; "" when all were.
	Partial string
}

// Coverage looks at the newest traces of the range: which have spans of an engine, and which lack parents.
// A span before the range may be the parent that one inside it seems to lack, so a range should begin before
// the traces that matter.
func (st *Store) Coverage(ctx context.Context, from, to int64) (Coverage, error) {
	var out Coverage
	traces := map[span.TraceID][]span.Span{}
	first := map[span.TraceID]int64{} // start of the oldest span
	newest := int64(0)
	keep := newPool()
	since, cut, err := st.newestSpans(ctx, "_time, duration, _msg, unnamed, service, trace_id, span_id, parent_span_id", from, to, st.links, func(r row) error {
		s, err := span.FromRow(r)
		if err != nil {
			return nil // told with the trace itself
		}
		traces[s.Trace] = append(traces[s.Trace], keep.keep(s))
		if at, ok := first[s.Trace]; !ok || s.Start < at {
			first[s.Trace] = s.Start
		}
		newest = max(newest, s.Start)
		return nil
	})
	if err != nil {
		return Coverage{}, err
	}
	if cut {
		// What began before is here in part and seems to lack what it has. A trace that began in the newer half
		// of the time would have to pause for as long as that half.
		from := since + (newest-since)/2
		maps.DeleteFunc(traces, func(id span.TraceID, _ []span.Span) bool { return first[id] < from })
		out.Partial = fmt.Sprintf("only the newest %d traces, from %s on, were looked at", len(traces), instant(from))
	}
	for id, spans := range traces {
		tree := span.NewTree(unique(spans))
		delete(traces, id)
		out.Add(tree)
		if tree.Incomplete() {
			out.Orphaned++
		}
	}
	return out, nil
}
