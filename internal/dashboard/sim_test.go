package dashboard_test

import (
	"context"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/sim"
)

// demoLacks are the panels that stay empty on the demo's fleet, with the reason. A panel that shows
// something after all must leave the list.
var demoLacks = map[string]string{
	"router/given_up":                   "no request runs out of retries",
	"router/rate_limiter":               "the limiter is off",
	"scheduler/scheduler_idle_share":    "SGLang 0.5.20 and later",
	"scheduler/scheduler_loop_by_stage": "SGLang 0.5.20 and later",
	"kvbm/object_store_hit_rate":        "no object store",
	"kvbm/object_store_failures":        "no object store",
}

// Ten minutes of the demo's fleet, scraped on its virtual clock: every panel of every board shows
// something, but for those whose feature nobody in the fleet has switched on.
func TestEveryPanelShowsTheDemo(t *testing.T) {
	cfg := sim.Demo()
	cfg.Start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	f, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = 0
	db, err := tsdb.Open(t.TempDir(), nil, nil, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	end := f.Start().Add(10 * time.Minute)
	var app storage.AppenderV2
	now := time.Time{}
	commit := func() {
		if app == nil {
			return
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	err = sim.Replay(t.Context(), f, sim.ReplayOptions{To: end, Interval: 30 * time.Second}, func(s sim.Scrape) error {
		if !s.Time.Equal(now) {
			commit()
			app, now = db.AppenderV2(context.Background()), s.Time
		}
		if s.Status != http.StatusOK {
			return nil
		}
		e := scrape.Inspect(s.Body, s.ContentType)
		for _, sample := range e.Samples {
			ls := labels.NewBuilder(sample.Labels).Set("job", "demo").Set("instance", s.Target.Addr).Labels()
			if _, err := app.Append(0, ls, 0, s.Time.UnixMilli(), sample.Value, nil, nil, storage.AOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	commit()
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 20_000_000, Timeout: time.Minute})
	for _, b := range dashboard.Boards(signal.Default()) {
		for _, s := range b.Sections {
			for _, p := range s.Panels {
				if slices.Contains(p.Claims, engine.Other) {
					continue
				}
				some := false
				for _, target := range p.Targets {
					q, err := eng.NewInstantQuery(t.Context(), db, nil, target.Expr, end)
					if err != nil {
						t.Fatal(err)
					}
					r := q.Exec(t.Context())
					if r.Err != nil {
						t.Errorf("board %s, panel %s: %v", b.ID, p.ID, r.Err)
						continue
					}
					v, err := r.Vector()
					if err != nil {
						t.Errorf("board %s, panel %s: %v", b.ID, p.ID, err)
					}
					some = some || len(v) > 0
					for _, point := range v {
						if math.IsNaN(point.F) || math.IsInf(point.F, 0) || point.F < 0 || (p.Max != nil && point.F > *p.Max*1.0001) {
							t.Errorf("board %s, panel %s: %v is off the panel's axis\n%s", b.ID, p.ID, point, target.Expr)
						}
					}
					q.Close()
				}
				why, lacks := demoLacks[b.ID+"/"+p.ID]
				switch {
				case !some && !lacks:
					t.Errorf("board %s, panel %s shows nothing", b.ID, p.ID)
				case some && lacks:
					t.Errorf("board %s, panel %s is said to lack data (%s), and shows some", b.ID, p.ID, why)
				}
			}
		}
	}
}
