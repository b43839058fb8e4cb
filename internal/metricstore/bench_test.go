package metricstore

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/signal"
)

// week is a store with seven days of recorded series of 64 engines every 15 s, and the scraped ones of the
// last ten minutes. It is made once for all benchmarks.
type week struct {
	store *Store
	end   time.Time
}

var weekMade week

// closeWeek removes the store, if a benchmark made it.
func closeWeek() {
	if s := weekMade.store; s != nil {
		_ = s.Close()
		_ = os.RemoveAll(s.Dir())
	}
}

var weekOnce = sync.OnceValues(func() (week, error) {
	dir, err := os.MkdirTemp("", "rollscope-bench-")
	if err != nil {
		return week{}, err
	}
	end := time.Unix(1780000000, 0).Truncate(15 * time.Second)
	s, err := Open(context.Background(), Options{Dir: dir, Mounts: "-", Registerer: prometheus.NewRegistry(), Now: func() time.Time { return end }})
	if err != nil {
		return week{}, err
	}
	var recorded, buckets []labels.Labels
	for e := range 64 {
		id := []string{"instance", fmt.Sprintf("10.0.0.%d:30000", e), "model_name", "m", "role", "unified", "backend", "sglang"}
		for _, n := range []string{"engine:ttft_count:rate5m", "engine:ttft:p50_rate5m", "engine:ttft:p99_rate5m", "engine:itl_count:rate5m", "engine:itl:p50_rate5m", "engine:itl:p99_rate5m", "engine:cache_hit_rate:ratio5m", "engine:cache_hit_rate_den:rate5m", "engine:queue_depth", "engine:throughput:rate1m", "engine:info"} {
			recorded = append(recorded, labels.FromStrings(append([]string{"__name__", n}, id...)...))
		}
		for b := range 23 {
			le := labels.FormatOpenMetricsFloat(0.001 * math.Pow(2, float64(b)))
			if b == 22 {
				le = "+Inf"
			}
			buckets = append(buckets, labels.FromStrings(append([]string{"__name__", "engine:ttft_bucket:rate5m", "le", le}, id...)...),
				labels.FromStrings("__name__", "sglang:time_to_first_token_seconds_bucket", "job", "sglang", "instance", id[1], "model_name", "m", "engine_type", "unified", "le", le))
		}
		buckets = append(buckets, labels.FromStrings("__name__", "sglang:num_running_reqs", "job", "sglang", "instance", id[1], "model_name", "m", "engine_type", "unified", "tp_rank", "0", "pp_rank", "0"))
	}
	for _, n := range []string{"fleet:ttft_count:rate5m", "fleet:ttft:p50_rate5m", "fleet:ttft:p99_rate5m", "fleet:itl_count:rate5m", "fleet:itl:p50_rate5m", "fleet:itl:p99_rate5m", "fleet:cache_hit_rate:ratio5m", "fleet:cache_hit_rate_den:rate5m", "fleet:queue_depth", "fleet:throughput:rate1m"} {
		recorded = append(recorded, labels.FromStrings("__name__", n))
	}
	refs := make([]storage.SeriesRef, len(recorded)+len(buckets))
	for i := range 7 * 24 * 240 {
		at := end.Add(-7*24*time.Hour + time.Duration(i+1)*15*time.Second)
		app := s.Appendable().AppenderV2(context.Background())
		series := recorded
		if end.Sub(at) < 10*time.Minute {
			series = append(series[:len(series):len(series)], buckets...)
		}
		for k, ls := range series {
			if refs[k], err = app.Append(refs[k], ls, 0, at.UnixMilli(), float64(i+k), nil, nil, storage.AOptions{}); err != nil {
				return week{}, err
			}
		}
		if err := app.Commit(); err != nil {
			return week{}, err
		}
	}
	weekMade = week{s, end}
	return weekMade, nil
})

func theWeek(b *testing.B) week {
	b.Helper()
	w, err := weekOnce()
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkReaderWeek reads signals over seven days of 64 engines at 5 min steps.
func BenchmarkReaderWeek(b *testing.B) {
	w := theWeek(b)
	for _, c := range []struct {
		id string
		by signal.By
	}{{"ttft", signal.ByFleet}, {"ttft", signal.ByEngine}, {"queue_depth", signal.ByFleet}, {"queue_depth", signal.ByEngine}, {"throughput", signal.ByFleet}} {
		b.Run(c.id+"/"+string(c.by), func(b *testing.B) {
			for b.Loop() {
				r := NewReader(w.store.Queryable(), w.store.Engine(), ReaderOptions{})
				res, err := r.Signal(context.Background(), SignalRequest{ID: c.id, By: c.by, From: w.end.Add(-7 * 24 * time.Hour), To: w.end, Step: 5 * time.Minute})
				if err != nil || res.Form == "raw" || res.State != StateValue {
					b.Fatal(err, res.Form, res.State)
				}
			}
		})
	}
	b.Run("engines", func(b *testing.B) {
		for b.Loop() {
			r := NewReader(w.store.Queryable(), w.store.Engine(), ReaderOptions{})
			if es, _, err := r.Engines(context.Background(), w.end.Add(-7*24*time.Hour), w.end); err != nil || len(es) != 64 {
				b.Fatal(err, len(es))
			}
		}
	})
	b.Run("coverage", func(b *testing.B) {
		for b.Loop() {
			if _, err := Coverage(context.Background(), w.store.Queryable()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGoldenQueries reads the golden five over seven days of 64 engines at 5 min steps, of the fleet
// and of each engine: ten queries, in turns, and reports the latencies' percentiles.
func BenchmarkGoldenQueries(b *testing.B) {
	w := theWeek(b)
	var took []float64
	for b.Loop() {
		for _, id := range []string{"ttft", "itl", "throughput", "cache_hit_rate", "queue_depth"} {
			for _, by := range []signal.By{signal.ByFleet, signal.ByEngine} {
				r := NewReader(w.store.Queryable(), w.store.Engine(), ReaderOptions{})
				began := time.Now()
				res, err := r.Signal(context.Background(), SignalRequest{ID: id, By: by, From: w.end.Add(-7 * 24 * time.Hour), To: w.end, Step: 5 * time.Minute})
				if err != nil || res.Form == "raw" {
					b.Fatal(id, by, err, res.Form)
				}
				took = append(took, time.Since(began).Seconds()*1e3)
			}
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[min(len(took)-1, len(took)*99/100)], "p99-ms")
}

// BenchmarkSpelling compares a query on the database with the same through the spelling layer, asked in
// the stored spelling and in another.
func BenchmarkSpelling(b *testing.B) {
	w := theWeek(b)
	plain := storage.Queryable(w.store.Storage())
	for _, c := range []struct {
		name string
		q    storage.Queryable
		expr string
	}{
		{"database", plain, `sum(sglang:num_running_reqs)`},
		{"as stored", w.store.Queryable(), `sum(sglang:num_running_reqs)`},
		{"other spelling", w.store.Queryable(), `sum(sglang_num_running_reqs)`},
		{"unknown name", w.store.Queryable(), `sum(no_such_metric)`},
		{"buckets in database", plain, `sum by (le) (sglang:time_to_first_token_seconds_bucket)`},
		{"buckets as stored", w.store.Queryable(), `sum by (le) (sglang:time_to_first_token_seconds_bucket)`},
		{"buckets in other spelling", w.store.Queryable(), `sum by (le) (sglang_time_to_first_token_seconds_bucket)`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q, err := w.store.Engine().NewInstantQuery(context.Background(), c.q, nil, c.expr, w.end)
				if err != nil {
					b.Fatal(err)
				}
				if res := q.Exec(context.Background()); res.Err != nil {
					b.Fatal(res.Err)
				}
				q.Close()
			}
		})
	}
}

// BenchmarkAppend compares a scrape's append into the database with the same through the guard.
func BenchmarkAppend(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		name := map[bool]string{false: "database", true: "guard"}[guarded]
		b.Run(name, func(b *testing.B) {
			o := testOptions(b, time.Time{})
			o.Now = func() time.Time { return time.Unix(1<<33, 0) }
			s := openStore(b, o)
			var to storage.AppendableV2 = s.DB()
			if guarded {
				to = localStorage{s}
			}
			var series []labels.Labels
			for i := range 403 {
				series = append(series, labels.FromStrings("__name__", fmt.Sprintf("sglang:m%d", i), "job", "sglang", "instance", "e1:30000", "model_name", "m"))
			}
			refs := make([]storage.SeriesRef, len(series))
			at := time.Unix(1780000000, 0).UnixMilli()
			b.ReportAllocs()
			for b.Loop() {
				at += 1000
				app := to.AppenderV2(context.Background())
				for i, ls := range series {
					var err error
					if refs[i], err = app.Append(refs[i], ls, 0, at, float64(at), nil, nil, storage.AOptions{}); err != nil {
						b.Fatal(err)
					}
				}
				if err := app.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*403/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
