package app

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/metricstore"
)

// What this process counts can be asked for in PromQL, as if it had scraped itself.
func TestAppendSelf(t *testing.T) {
	ctx := context.Background()
	store, err := metricstore.Open(ctx, metricstore.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	reg := prometheus.NewRegistry()
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollscope_log_events_total", Help: "x"}, []string{"class", "job"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total", Help: "x"})
	reg.MustRegister(events, other)
	events.WithLabelValues("oom", "train").Add(3)
	events.WithLabelValues("hang", "train").Add(1)
	passes := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollscope_fpm_iteration_seconds", Help: "x", Buckets: []float64{0.1, 1}})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollscope_http_seconds", Help: "x"})
	reg.MustRegister(passes, took)
	passes.Observe(0.5)
	passes.Observe(5)
	now := time.Now()
	written, err := appendSelf(ctx, reg, store.Appendable(), "127.0.0.1:9090", now.Add(-15*time.Second), nil)
	if err != nil {
		t.Fatal(err)
	}
	events.DeleteLabelValues("hang", "train") // its engine is gone
	if _, err := appendSelf(ctx, reg, store.Appendable(), "127.0.0.1:9090", now, written); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]float64{
		`rollscope_log_events_total{class="oom",job="rollscope",instance="127.0.0.1:9090",exported_job="train"}`: 3,
		`absent(other_total)`:                                           1,
		`absent(rollscope_log_events_total{class="hang"})`:              1,
		`count_over_time(rollscope_log_events_total{class="hang"}[1m])`: 1,
		`rollscope_fpm_iteration_seconds_bucket{le="1.0"}`:              1,
		`rollscope_fpm_iteration_seconds_bucket{le="+Inf"}`:             2,
		`rollscope_fpm_iteration_seconds_sum`:                           5.5,
		`rollscope_fpm_iteration_seconds_count`:                         2,
		`absent(rollscope_http_seconds_count)`:                          1, // about this process, not about engines
	} {
		q, err := store.Engine().NewInstantQuery(ctx, store.Queryable(), nil, query, now)
		if err != nil {
			t.Fatal(err)
		}
		v, err := q.Exec(ctx).Vector()
		if err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 0 {
			t.Errorf("%s: %v %v, want %g", query, v, err, want)
		}
		q.Close()
	}
}
