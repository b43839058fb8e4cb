package tracestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/span"
)

// benchSpans is how many spans the benchmark searches: ROLLSCOPE_BENCH_SPANS, or few.
func benchSpans() int {
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_BENCH_SPANS")); err == nil && n > 0 {
		return n
	}
	return 100_000
}

const benchSpansOfTrace = 10

// benchTrace makes the n-th trace: a request of an engine with nine stages, 25 attributes each.
func benchTrace(rnd *rand.Rand, n int, at int64, into []span.Span) []span.Span {
	text := func(k, v string) span.Attr { return span.Attr{Key: k, Value: span.Value{Str: v}} }
	number := func(k string, v int) span.Attr {
		return span.Attr{Key: k, Value: span.Value{Type: span.Int, Str: strconv.Itoa(v)}}
	}
	var id span.TraceID
	for i := 8; i < 16; i++ {
		id[i] = byte(rnd.Uint32())
	}
	rid := fmt.Sprintf("%016x", rnd.Uint64())
	dur := int64(2e8 + rnd.ExpFloat64()*1e9)
	failed := rnd.IntN(200) == 0
	names := [...]string{" Req " + rid[:8], "tokenize", "request_process", "prefill_waiting", "prefill_forward", "decode_waiting", "decode_forward", "api_server_dispatch", "detokenize", "quick_finish"}
	engine := fmt.Sprintf("10.0.0.%d:30000", rnd.IntN(64))
	for i, name := range names {
		s := span.Span{Service: "sglang", Resource: []span.Attr{text("service.name", "sglang"), text("telemetry.sdk.language", "python")}, ScopeName: "sglang server"}
		s.Trace, s.Name, s.Kind = id, name, 1
		s.ID = span.ID{1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, 0, byte(i)}
		s.Start, s.End = at, at+dur
		if i > 0 {
			s.Parent = span.ID{1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
			s.Start = at + dur*int64(i)/12
			s.End = s.Start + dur/12
		}
		if failed && (i == 0 || i == 6) {
			s.Status, s.StatusMessage = span.Failed, "aborted"
		}
		s.Attrs = append(s.Attrs, text("rid", rid), text("module", "sglang::request"), text("engine", engine), number("sample_index", rnd.IntN(1024)), number("rollout", n/5000))
		for k := range 20 {
			s.Attrs = append(s.Attrs, number(fmt.Sprintf("attr_%02d", k), rnd.IntN(50)))
		}
		into = append(into, s)
	}
	return into
}

// BenchmarkTraces has a store of many spans answer as the APIs ask it: a lookup, and three searches of six
// hours, the newest and the slowest. Reported are p95s.
func BenchmarkTraces(b *testing.B) {
	const hours = 6
	spans := benchSpans()
	traces := spans / benchSpansOfTrace
	from := base - hours*int64(time.Hour)
	es, stop, err := openStore(filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	rnd := rand.New(rand.NewPCG(1, 2))
	var ids, rids []string
	var batch []span.Span
	for n := range traces {
		batch = benchTrace(rnd, n, from+int64(n)*(base-from)/int64(traces), batch)
		if n%97 == 0 {
			first := &batch[len(batch)-benchSpansOfTrace]
			ids, rids = append(ids, first.Trace.String()), append(rids, first.Attrs[0].Value.Str)
		}
		if len(batch) >= 2000 || n == traces-1 {
			rows := make([]event.Row, len(batch))
			for i := range batch {
				batch[i].Row(&rows[i])
			}
			if err := es.Append(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	if err := es.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	st := New(es, Options{Now: now})
	search := func(text string, order Order) func() (int, error) {
		q, err := ParseTraceQL(text)
		if err != nil {
			b.Fatal(err)
		}
		q.From, q.To, q.Limit, q.Order = from, base+int64(time.Hour), 20, order
		return func() (int, error) {
			res, err := st.Search(ctx, q)
			if res.Partial != "" {
				return 0, fmt.Errorf("%s: %s", text, res.Partial)
			}
			return len(res.Traces), err
		}
	}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	for b.Loop() {
		for _, c := range []struct {
			name  string
			times int
			ask   func() func() (int, error)
		}{
			{"lookup", 100, func() func() (int, error) {
				id := pick(ids)
				return func() (int, error) { t, err := st.Trace(ctx, id, 0, 0); return len(t.Spans) / benchSpansOfTrace, err }
			}},
			{"rid", 50, func() func() (int, error) {
				id := pick(rids)
				return func() (int, error) { t, err := st.Trace(ctx, id, 0, 0); return len(t.Spans) / benchSpansOfTrace, err }
			}},
			{"newest", 20, func() func() (int, error) {
				return search(fmt.Sprintf(`{resource.service.name="sglang" && name="Req *" && duration>%dms}`, 1500+rnd.IntN(1000)), Newest)
			}},
			{"slowest", 20, func() func() (int, error) {
				return search(fmt.Sprintf(`{name="prefill_forward" && duration>%dms}`, 100+rnd.IntN(50)), Slowest)
			}},
			{"failed", 20, func() func() (int, error) {
				return search(fmt.Sprintf(`{status=error && span.attr_%02d>=0}`, rnd.IntN(20)), Newest)
			}},
			{"attribute", 20, func() func() (int, error) {
				return search(fmt.Sprintf(`{span.sample_index=%d && name="decode_forward"}`, rnd.IntN(1024)), Newest)
			}},
		} {
			took := make([]float64, c.times)
			for i := range took {
				ask := c.ask()
				at := time.Now()
				n, err := ask()
				if err != nil || n == 0 {
					b.Fatalf("%s: %d found, %v", c.name, n, err)
				}
				took[i] = float64(time.Since(at).Microseconds()) / 1e3
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)*95/100], c.name+"-p95-ms")
		}
	}
	b.ReportMetric(float64(spans), "spans")
}
