package tracestore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

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
	last := map[span.TraceID]int64{} // start of the newest span
	keep := newPool()
	since, cut, err := st.newestSpans(ctx, "_time, duration, _msg, unnamed, service, trace_id, span_id, parent_span_id", from, to, maxLinks, func(r row) error {
		s, err := span.FromRow(r)
		if err != nil {
			return nil // told with the trace itself
		}
		traces[s.Trace] = append(traces[s.Trace], keep.keep(s))
		last[s.Trace] = max(last[s.Trace], s.Start)
		return nil
	})
	if err != nil {
		return Coverage{}, err
	}
	order := slices.SortedFunc(maps.Keys(traces), func(a, b span.TraceID) int {
		return cmp.Or(cmp.Compare(last[b], last[a]), bytes.Compare(a[:], b[:]))
	})
	if cut && len(order) > 0 {
		// The traces whose spans were read last may go on before the first one: they say nothing.
		order = order[:len(order)-len(order)/10-1]
		out.Partial = fmt.Sprintf("only the newest %d traces, from %s on, were looked at", len(order), instant(since))
	}
	for _, id := range order {
		tree := span.NewTree(unique(traces[id]))
		delete(traces, id)
		out.Add(tree)
		if tree.Incomplete() {
			out.Orphaned++
		}
	}
	return out, nil
}
