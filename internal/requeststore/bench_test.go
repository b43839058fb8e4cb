package requeststore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// benchRequests is how many requests a benchmark reads: ROLLSCOPE_BENCH_REQUESTS (1,000,000 for the figures
// of the page), or few.
func benchRequests() int {
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_BENCH_REQUESTS")); err == nil && n > 0 {
		return n
	}
	return 20_000
}

// BenchmarkRead answers from a table of requests over a real event store, a tenth of them with a second
// revision: a list sorted by TTFT, the question of a step, the summary by engine, a scatter.
func BenchmarkRead(b *testing.B) {
	n := benchRequests()
	events := realEvents(b, b.TempDir())
	rng := rand.New(rand.NewPCG(1, 2))
	base := time.Now().Add(-time.Hour).UnixNano()
	rows := make([]event.Row, 0, 5000)
	store := func() {
		if err := events.Append(within(b), rows); err != nil {
			b.Fatal(err)
		}
		rows = rows[:0]
	}
	began := time.Now()
	for i := range n {
		at := base + int64(i)*int64(50*time.Minute)/int64(n)
		ttft := 0.05 + rng.ExpFloat64()
		e2e := ttft + 5*rng.ExpFloat64()
		s := request.Merge([]request.Observation{{Source: request.FromTrace, Role: "unified", Service: "sglang", Engine: fmt.Sprintf("10.0.%d.%d:30000", i%64/8, i%8), Model: "Qwen/qwen3",
			Start: at, Finish: at + int64(e2e*1e9), Final: true, Outcome: request.Finished, FinishReason: "stop", TTFT: known(ttft), ITL: known(0.01 + rng.Float64()/50), E2E: known(e2e), Queue: known(ttft / 3),
			Prefill: known(ttft / 2), Decode: known(e2e - ttft), PromptTokens: known(float64(rng.IntN(8000))), CompletionTokens: known(float64(1 + rng.IntN(4000))), CachedTokens: known(float64(rng.IntN(1000))),
			Run: "exp1", Kind: "train", Step: known(float64(i * 100 / n)), Sample: known(float64(i)), Aliases: alias("rid", fmt.Sprintf("%032x", rng.Uint64()), "trace_id", fmt.Sprintf("%032x", i)), Spans: 9, SpansKept: "sampled_away", SpansReason: "ratio"}})
		s.ID, s.Time = fmt.Sprintf("r%020x", i), at
		for s.Revision = 1; s.Revision <= 1+btoi(i%10 == 0); s.Revision++ {
			var row event.Row
			s.Row(&row)
			row.Fields = slices.Clone(row.Fields)
			rows = append(rows, row)
		}
		if len(rows) >= 4990 {
			store()
		}
	}
	store()
	if err := events.Flush(within(b)); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d requests stored in %.1f s", n, time.Since(began).Seconds())
	s := newStore(b, events, Options{})
	var before, after runtime.MemStats
	for _, c := range []struct {
		name string
		ask  func() (int64, error)
	}{
		{"list_by_ttft", func() (int64, error) {
			p, err := s.List(within(b), Query{}, Order{By: "ttft", Desc: true}, 100, "")
			return p.Total, err
		}},
		{"list_of_a_step", func() (int64, error) {
			_, err := s.List(within(b), Query{Filter: "step:40 ttft>2s"}, Order{By: "ttft", Desc: true}, 100, "")
			return int64(n), err
		}},
		{"summary_by_engine", func() (int64, error) {
			sum, err := s.Summarize(within(b), Query{}, "engine", Targets{2, 0.05})
			return sum.Groups[0].Count, err
		}},
		{"points", func() (int64, error) {
			p, err := s.Points(within(b), Query{}, "start", "ttft", "outcome", 5000)
			return p.Total, err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				if got, err := c.ask(); err != nil || got != int64(n) {
					b.Fatalf("%d of %d requests, %v", got, n, err)
				}
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/float64(n), "B/request")
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
