package dashboard

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
)

// panelOf finds a panel of the built-in boards.
func panelOf(t *testing.T, board, id string) Panel {
	t.Helper()
	b, _ := Find(Boards(signal.Default()), board)
	for _, s := range b.Sections {
		for _, p := range s.Panels {
			if p.ID == id {
				return p
			}
		}
	}
	t.Fatalf("board %s has no panel %s", board, id)
	return Panel{}
}

// M01.1 and M01.2: the same panels with the same numbers, whichever way the engine is scraped.
func TestPanelsOfEitherPath(t *testing.T) {
	for _, file := range []string{"M01-engine.prom", "M01-router.prom"} {
		f := record(t, scraped{"any", "10.0.0.11:30000", scrape.Inspect(caseFile(t, file), "")})
		for _, at := range []struct{ board, panel string }{{"golden", "running"}, {"golden", "running_by_role"}, {"sglang", "running_queue"}} {
			v := f.ask(t, panelOf(t, at.board, at.panel).Targets[0].Expr)
			if len(v) != 1 || v[0].F != 3 {
				t.Errorf("%s: %s/%s is %v, want 3", file, at.board, at.panel, v)
			}
		}
		for _, at := range []struct{ board, panel string }{{"golden", "ttft"}, {"golden", "ttft_by_engine"}, {"sglang", "ttft"}, {"dynamo-sglang", "ttft"}} {
			for _, target := range panelOf(t, at.board, at.panel).Targets {
				v := f.ask(t, target.Expr)
				if len(v) != 1 || v[0].F <= 0.1 || v[0].F > 10 {
					t.Errorf("%s: %s/%s %s is %v", file, at.board, at.panel, target.Legend, v)
				}
			}
		}
	}
}

// M13.1: the hit rate comes from counters; M13.3: where only the gauge is there, the panel says so.
func TestHitRatePanel(t *testing.T) {
	load, _, _ := strings.Cut(string(caseFile(t, "M13-data.promtest")), "\neval")
	st := promqltest.LoadedStorage(t, load)
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	for _, at := range []struct{ board, panel string }{{"golden", "cache_hit_rate"}, {"sglang", "cache_hit_rate"}, {"hicache", "cache_hit_rate"}} {
		p := panelOf(t, at.board, at.panel)
		q, err := eng.NewInstantQuery(context.Background(), st, nil, p.Targets[0].Expr, time.Unix(300, 0))
		if err != nil {
			t.Fatal(err)
		}
		r := q.Exec(context.Background())
		v, err := r.Vector()
		if err != nil || len(v) != 1 || math.Abs(v[0].F-0.75) > 1e-9 {
			t.Errorf("%s/%s is %v %v, want 0.75", at.board, at.panel, v, err)
		}
		q.Close()
		if d := newQueries(signal.Default(), GrafanaOptions{}).description(p); !strings.Contains(d, "last batch only") {
			t.Errorf("%s/%s in Grafana does not say what the gauge is: %s", at.board, at.panel, d)
		}
	}
}

// M18.1: bounds written as 1 and as 1.0 are one bucket, so that the fleet's percentile adds both engines.
func TestPercentileOfTwoSpellingsOfBounds(t *testing.T) {
	f := record(t,
		scraped{"any", "a:1", scrape.Inspect(caseFile(t, "M18-a.prom"), "")},
		scraped{"any", "b:1", scrape.Inspect(caseFile(t, "M18-b.prom"), "")})
	v := f.ask(t, panelOf(t, "golden", "ttft").Targets[0].Expr)
	// 30 of 40 requests are below 1 s, so the median is two thirds of the way to it.
	if len(v) != 1 || math.Abs(v[0].F-20.0/30) > 1e-9 {
		t.Errorf("p50 is %v, want 0.667", v)
	}
}

// P01: while nothing happens, percentiles and shares have no sample, and rates are 0.
func TestPanelsOfAnIdleFleet(t *testing.T) {
	st := promqltest.LoadedStorage(t, `load 30s
  sglang:time_to_first_token_seconds_bucket{instance="e",le="1.0"} 60x40
  sglang:time_to_first_token_seconds_bucket{instance="e",le="+Inf"} 60x40
  sglang:time_to_first_token_seconds_sum{instance="e"} 20x40
  sglang:time_to_first_token_seconds_count{instance="e"} 60x40
  sglang:realtime_tokens_total{instance="e",mode="prefill_cache"} 60x40
  sglang:realtime_tokens_total{instance="e",mode="prefill_compute"} 60x40
  sglang:realtime_tokens_total{instance="e",mode="decode"} 60x40
  sglang:num_requests_total{instance="e"} 60x40
  dynamo_frontend_requests_total{status="success",instance="f"} 60x40
  dynamo_frontend_input_sequence_tokens_sum{instance="f"} 60x40
  dynamo_frontend_input_sequence_tokens_count{instance="f"} 60x40
`)
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	for _, b := range Boards(signal.Default()) {
		for _, s := range b.Sections {
			for _, p := range s.Panels {
				for _, target := range p.Targets {
					q, err := eng.NewInstantQuery(context.Background(), st, nil, target.Expr, time.Unix(1200, 0))
					if err != nil {
						t.Fatal(err)
					}
					v, err := q.Exec(context.Background()).Vector()
					if err != nil {
						t.Errorf("%s/%s: %v", b.ID, p.ID, err)
					}
					for _, point := range v {
						if math.IsNaN(point.F) {
							t.Errorf("%s/%s is NaN:\n%s", b.ID, p.ID, target.Expr)
						}
					}
					switch at := b.ID + "/" + p.ID; at {
					case "golden/ttft", "golden/cache_hit_rate", "dynamo/frontend_success":
						if len(v) != 0 {
							t.Errorf("%s is %v, want no sample", at, v)
						}
					case "golden/throughput", "golden/request_rate", "dynamo/requests_by_model":
						if len(v) != 1 || v[0].F != 0 {
							t.Errorf("%s is %v, want 0", at, v)
						}
					}
					q.Close()
				}
			}
		}
	}
}
