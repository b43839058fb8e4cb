package app

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/metricstore"
)

// scrapedEngines is what the engines' own metrics say beside their forward passes.
type scrapedEngines struct {
	requests map[string]float64     // by instance: requests that it had in the last minute; absent: unknown
	dynamo   *float64               // requests that Dynamo's frontends and workers had; nil: unknown
	queues   map[string]fpm.Scraped // by instance
	workers  map[string]string      // instance by Dynamo's worker_id label, "" when several have it
	info     map[string]metricstore.EngineInfo
}

// evidenceWindow is what the counts are of.
const evidenceWindow = time.Minute

// activityOf are counters of requests that ended, and gauges of those that run.
var activityOf = []struct{ ended, running string }{
	{"sglang:num_requests_total", "sglang:num_running_reqs"},
	{"vllm:request_success_total", "vllm:num_requests_running"},
	{"dynamo_component_requests_total", "dynamo_component_inflight_requests"},
	{"dynamo_frontend_requests_total", "dynamo_frontend_inflight_requests"},
}

// queueSeries are an SGLang engine's queues.
var queueSeries = map[string]func(*fpm.Scraped) **float64{
	"sglang:num_queue_reqs":                  func(s *fpm.Scraped) **float64 { return &s.Waiting },
	"sglang:num_prefill_prealloc_queue_reqs": func(s *fpm.Scraped) **float64 { return &s.Bootstrap },
	"sglang:num_decode_prealloc_queue_reqs":  func(s *fpm.Scraped) **float64 { return &s.Prealloc },
	"sglang:num_decode_transfer_queue_reqs":  func(s *fpm.Scraped) **float64 { return &s.Transfer },
}

// metricsSource is what evidence is read from.
type metricsSource struct {
	queryable storage.Queryable
	engine    promql.QueryEngine
	reader    func() *metricstore.Reader
}

// vector evaluates an expression now.
func (m metricsSource) vector(ctx context.Context, at time.Time, expr string) (promql.Vector, error) {
	q, err := m.engine.NewInstantQuery(metricstore.WithoutNameNotes(ctx), m.queryable, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("%s: %w", expr, res.Err)
	}
	v, err := res.Vector()
	if err != nil {
		return nil, err
	}
	out := slices.Clone(v) // the query's own memory is used again
	return slices.DeleteFunc(out, func(s promql.Sample) bool { return math.IsNaN(s.F) || math.IsInf(s.F, 0) }), nil
}

// scrape reads what the store holds about engines now.
func (m metricsSource) scrape(ctx context.Context, at time.Time) (scrapedEngines, error) {
	s := scrapedEngines{requests: map[string]float64{}, queues: map[string]fpm.Scraped{}, workers: map[string]string{}, info: map[string]metricstore.EngineInfo{}}
	window := "[" + evidenceWindow.String() + "]"
	by := func(expr string) (map[string]float64, error) {
		v, err := m.vector(ctx, at, expr)
		out := map[string]float64{}
		for _, x := range v {
			out[x.Metric.Get("instance")] += x.F
		}
		return out, err
	}
	for _, a := range activityOf {
		// Several tensor-parallel ranks tell the same: the largest counts.
		ended, err := by("sum by (instance) (max by (instance, dp_rank, dynamo_endpoint) (increase(" + a.ended + window + ")))")
		if err != nil {
			return s, err
		}
		// An engine that decodes long answers ends none for minutes: those that ran at every scrape count.
		running, err := by("sum by (instance) (max by (instance, dp_rank) (min_over_time(" + a.running + window + ")))")
		if err != nil {
			return s, err
		}
		for instance, n := range running {
			ended[instance] = max(ended[instance], n)
		}
		for instance, n := range ended {
			n = math.Round(n)
			if strings.HasPrefix(a.ended, "dynamo_") {
				sum := n
				if s.dynamo != nil {
					sum = max(sum, *s.dynamo) // a frontend's are its workers' again
				}
				s.dynamo = &sum
			}
			s.requests[instance] = max(s.requests[instance], n)
		}
	}
	for name, field := range queueSeries {
		v, err := m.vector(ctx, at, "sum by (instance) (max by (instance, dp_rank) ("+name+"))")
		if err != nil {
			return s, err
		}
		for _, x := range v {
			q := s.queues[x.Metric.Get("instance")]
			n := x.F
			*field(&q) = &n
			s.queues[x.Metric.Get("instance")] = q
		}
	}
	v, err := m.vector(ctx, at, `count by (worker_id, instance) ({__name__=~"dynamo_component_inflight_requests|dynamo_component_requests_total|dynamo_component_uptime_seconds",worker_id!=""})`)
	if err != nil {
		return s, err
	}
	for _, x := range v {
		id, instance := x.Metric.Get("worker_id"), x.Metric.Get("instance")
		if other, ok := s.workers[id]; ok && other != instance {
			instance = "" // of two, neither
		}
		s.workers[id] = instance
	}
	list, _, err := m.reader().Engines(ctx, at.Add(-5*time.Minute), at)
	if err != nil {
		return s, err
	}
	for _, e := range list {
		if _, ok := s.info[e.Instance]; !ok || e.IsEngine() {
			s.info[e.Instance] = e
		}
	}
	return s, nil
}

// instanceOf finds the scraped engine that a worker's messages are of, "" when nothing tells.
func (s *scrapedEngines) instanceOf(worker, configured string) string {
	if configured != "" || worker == "" {
		return configured
	}
	for label, instance := range s.workers {
		if fpm.SameWorker(worker, label) {
			return instance
		}
	}
	return ""
}

// roleOf is the role of a scraped engine in the words of forward passes, "" when it is not known.
func (s *scrapedEngines) roleOf(instance string) fpm.Role {
	switch s.info[instance].Role {
	case engine.Prefill:
		return fpm.Prefill
	case engine.Decode:
		return fpm.Decode
	case engine.Unified:
		return fpm.Unified
	}
	return ""
}
