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
	now := time.Now()
	if err := appendSelf(ctx, reg, store.Appendable(), "127.0.0.1:9090", now); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]float64{
		`rollscope_log_events_total{class="oom",job="rollscope",instance="127.0.0.1:9090",exported_job="train"}`: 3,
		`absent(other_total)`: 1,
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
