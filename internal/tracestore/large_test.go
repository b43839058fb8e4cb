package tracestore

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/span"
)

// narrow is an event store that takes short queries only, as a VictoriaLogs does that nobody set up for us.
type narrow struct {
	Events
	most, longest int
}

func (n *narrow) MaxQueryBytes() int { return n.most }

func (n *narrow) Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error {
	n.longest = max(n.longest, len(q.LogsQL))
	return n.Events.Query(ctx, q, fn)
}

// TestManyTraces asks for more spans than the event store may sort: all of 1,200 traces in a store with little
// memory, through queries that cannot name all of them.
func TestManyTraces(t *testing.T) {
	const traces, spans = 1200, 12
	es, stop, err := openStoreWith(filepath.Join(t.TempDir(), "s"), 24<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var list []span.Span
	text := strings.Repeat("what the user asked for ", 20)
	for n := range traces {
		for i := range spans {
			s := made(0, byte(i+1), byte(i), "sglang", "decode_loop", int64(n)*100+int64(i)*200, 50+int64(n), "prompt", fmt.Sprintf("%s %d/%d", text, n, i))
			s.Trace = span.TraceID{0: 0xbb, 14: byte(n >> 8), 15: byte(n)}
			if i == 0 {
				s.Name, s.Service, s.Parent, s.End = "http-request", "gateway", span.ID{}, s.End+1e6
			} else {
				s.Parent = list[n*spans].ID
			}
			list = append(list, s)
		}
	}
	// One trace has more spans than are shown of any.
	for i := range 3 * MaxMatched {
		s := made(0, 1, 1, "sglang", "decode_loop", int64(i), 1)
		s.Trace, s.ID = list[0].Trace, span.ID{5: 1, 6: byte(i >> 8), 7: byte(i)}
		list = append(list, s)
	}
	if err := write(es, list); err != nil {
		t.Fatal(err)
	}
	events := &narrow{Events: es, most: 4 << 10}
	st := New(events, Options{Now: now, Budget: time.Hour})
	for _, order := range []Order{Newest, Slowest} {
		res := find(t, st, "{}", func(q *Query) { q.Limit, q.Order, q.SpansPerTrace = MaxTraces, order, MaxMatched })
		if len(res.Traces) != MaxTraces || res.Partial != "" {
			t.Fatalf("order %v: %d traces (%s), want %d", order, len(res.Traces), res.Partial, MaxTraces)
		}
		for i, f := range res.Traces {
			n := traces - 1 - i // the last one is the newest and the slowest
			if f.ID != (span.TraceID{0: 0xbb, 14: byte(n >> 8), 15: byte(n)}) || f.Spans != spans || f.Count != spans || f.Root != "http-request" || f.Matched[0].ID != (span.ID{7: 1}) {
				t.Fatalf("order %v, place %d: %+v", order, i, f)
			}
		}
	}
	res := find(t, st, `{duration<2ms}`, nil)
	if len(res.Traces) != 1 || res.Traces[0].Spans != spans+3*MaxMatched || res.Traces[0].Count != MaxMatched {
		t.Errorf("the long trace: %+v", res.Traces)
	}
	if events.longest > events.most {
		t.Errorf("a query had %d bytes, %d are taken", events.longest, events.most)
	}
	cov, err := st.Coverage(t.Context(), base-int64(time.Hour), base+int64(time.Hour))
	if err != nil || cov.Traces != traces || cov.Orphaned != 0 || cov.Partial != "" {
		t.Errorf("coverage %+v, %v", cov, err)
	}
	links, partial, err := st.Dependencies(t.Context(), base-int64(time.Hour), base+int64(time.Hour))
	if err != nil || partial != "" || len(links) != 1 || links[0] != (Dependency{"gateway", "sglang", traces*(spans-1) + 3*MaxMatched}) {
		t.Errorf("dependencies %v (%s), %v", links, partial, err)
	}
	// A part of them: traces that are cut at its begin are not taken to lack what stands before.
	st.links = 5000
	cov, err = st.Coverage(t.Context(), base-int64(time.Hour), base+int64(time.Hour))
	if err != nil || cov.Traces < 150 || cov.Traces > 5000/spans || cov.Orphaned != 0 || cov.Partial == "" {
		t.Errorf("coverage of 5000 spans: %d traces, %d lack parents (%s), %v", cov.Traces, cov.Orphaned, cov.Partial, err)
	}
	for _, most := range []int{20, 100, 1000, len(list) - 1, len(list)} {
		got, oldest := 0, base+int64(time.Hour)
		since, cut, err := st.newestSpans(t.Context(), "_time", 0, 0, most, func(r row) error {
			got++
			oldest = min(oldest, r.time("_time"))
			return nil
		})
		all := 0
		for _, s := range list {
			if s.Start >= since {
				all++
			}
		}
		// At the end 12 spans begin in one instant, at the begin four more in each millisecond.
		if err != nil || cut != (most < len(list)) || got > max(12, most) || got < most*7/8-16 || got != all || oldest < since {
			t.Errorf("the newest %d spans: %d of %d since %s, the oldest at %s, cut %v, %v", most, got, all, instant(since), instant(oldest), cut, err)
		}
	}
}
