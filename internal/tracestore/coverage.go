package tracestore

import (
	"context"
	"fmt"
	"strconv"

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
	var order []span.TraceID // by the newest span, newest first
	keep := newPool()
	n := 0
	text := spansOnly + " | fields _time, duration, _msg, unnamed, service, trace_id, span_id, parent_span_id | sort by (_time desc) limit " + strconv.Itoa(maxLinks)
	err := st.query(ctx, text, from, to, func(r row) error {
		n++
		s, err := span.FromRow(r)
		if err != nil {
			return nil // told with the trace itself
		}
		if traces[s.Trace] == nil {
			order = append(order, s.Trace)
		}
		traces[s.Trace] = append(traces[s.Trace], keep.keep(s))
		return nil
	})
	if err != nil {
		return Coverage{}, err
	}
	if n >= maxLinks {
		// The traces whose spans were read last may go on behind the limit: they say nothing.
		order = order[:len(order)-len(order)/10-1]
		out.Partial = fmt.Sprintf("only the newest %d traces of the range were looked at", len(order))
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
