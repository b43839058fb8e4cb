package app

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// one evaluates an expression to a single number; ok is false when nothing is there.
func (m metricsSource) one(ctx context.Context, at time.Time, expr string) (v float64, ok bool) {
	list, err := m.vector(ctx, at, expr)
	if err != nil || len(list) != 1 {
		return 0, false
	}
	return list[0].F, true
}

// instances is a matcher for those of the workers that a test lets through, "" for none.
func instances(workers []planWorker, fits func(*planWorker) bool) string {
	var list []string
	for i := range workers {
		if w := &workers[i]; w.instance != "" && fits(w) {
			list = append(list, regexp.QuoteMeta(w.instance))
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.Sort(list)
	return `instance=~` + strconv.Quote(strings.Join(slices.Compact(list), "|"))
}

// demand is what came in during a window: as Dynamo's frontend counts it, else as the engines do. why says
// why it is not known.
func (m metricsSource) demand(ctx context.Context, now time.Time, window time.Duration, workers []planWorker) (_ *api.PassDemand, why string) {
	w := "[" + model.Duration(window).String() + "]"
	frontend := anyDynamo(workers)
	if frontend {
		rate, ok := m.one(ctx, now, "sum(rate(dynamo_frontend_requests_total"+w+"))")
		isl, okISL := m.one(ctx, now, ratio("sum(increase(dynamo_frontend_input_sequence_tokens_sum"+w+"))", "sum(increase(dynamo_frontend_input_sequence_tokens_count"+w+"))"))
		osl, okOSL := m.one(ctx, now, ratio("sum(increase(dynamo_frontend_output_sequence_tokens_sum"+w+"))", "sum(increase(dynamo_frontend_output_sequence_tokens_count"+w+"))"))
		if ok && okISL && okOSL && rate > 0 {
			d := &api.PassDemand{RequestsPerSecond: rate, ISL: isl, OSL: osl, From: "dynamo_frontend_requests_total and its histograms of lengths over " + window.String()}
			if hit, ok := m.one(ctx, now, ratio("sum(increase(dynamo_component_router_kv_hit_rate_sum"+w+"))", "sum(increase(dynamo_component_router_kv_hit_rate_count"+w+"))")); ok {
				d.HitRate = new(min(max(hit, 0), 1))
			}
			return d, ""
		}
	}
	// Each request is at one engine that prefills and, apart from it, at one that decodes.
	first := instances(workers, func(w *planWorker) bool { return w.role == fpm.Prefill })
	last := instances(workers, func(w *planWorker) bool { return w.role != fpm.Prefill })
	if first == "" {
		first = last
	}
	if last == "" {
		last = first
	}
	if first == "" {
		return nil, "the engines that send passes are not known among those that are scraped: name them with engine: in forward_passes.zmq"
	}
	for _, e := range []struct{ requests, prompt, output, cached string }{
		{"sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:cached_tokens_total"},
		{"vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total", ""},
	} {
		sum := func(f, name, of string) string { return "sum(" + f + "(" + name + "{" + of + "}" + w + "))" }
		rate, ok := m.one(ctx, now, sum("rate", e.requests, first))
		if !ok {
			continue
		}
		isl, okISL := m.one(ctx, now, ratio(sum("increase", e.prompt, first), sum("increase", e.requests, first)))
		osl, okOSL := m.one(ctx, now, ratio(sum("increase", e.output, last), sum("increase", e.requests, last)))
		if !okISL || !okOSL || rate <= 0 || isl <= 0 || osl <= 0 {
			return nil, "no request ended in the last " + window.String()
		}
		d := &api.PassDemand{RequestsPerSecond: rate, ISL: isl, OSL: osl, From: e.requests + " and its token counters over " + window.String()}
		if e.cached != "" {
			if hit, ok := m.one(ctx, now, ratio(sum("increase", e.cached, first), sum("increase", e.prompt, first))); ok {
				d.HitRate = new(min(max(hit, 0), 1))
			}
		}
		return d, ""
	}
	return nil, "neither Dynamo's frontend nor the engines have counters of requests in the store"
}

// ratio is a quotient that is absent where the denominator is 0.
func ratio(num, den string) string { return num + " / (" + den + " > 0)" }

// anyDynamo tells that workers have Dynamo's ids: what its frontend says is about them.
func anyDynamo(workers []planWorker) bool {
	return slices.ContainsFunc(workers, func(w planWorker) bool {
		_, err := fpm.ParseWorkerID(w.Key.Worker, fpm.DecimalID)
		return err == nil && w.Key.Namespace != ""
	})
}

// caps are the limits of one rank of an engine of each pool, and where they were read.
func (m metricsSource) caps(ctx context.Context, now time.Time, workers []planWorker, pools map[string]config.PassPool) (map[planner.Component]planner.Caps, []string) {
	out, notes := map[planner.Component]planner.Caps{}, []string(nil)
	for _, c := range []planner.Component{planner.PrefillPool, planner.DecodePool} {
		mine := slices.DeleteFunc(slices.Clone(workers), func(w planWorker) bool { return componentOf(w.role) != c })
		if len(mine) == 0 {
			continue
		}
		conf := pools[string(c)]
		caps := planner.Caps{MaxBatchedTokens: conf.MaxBatchedTokens, MaxKVTokens: conf.MaxKVTokens, MaxSeqs: conf.MaxSeqs, ContextLength: conf.ContextLength, GPUs: conf.GPUs}
		read := func(to *int64, what, expr, from string) {
			if *to != 0 {
				return
			}
			if v, ok := m.one(ctx, now, expr); ok && v > 0 {
				*to = int64(v)
				notes = append(notes, fmt.Sprintf("%s of the %s pool: %d, by %s", what, c, *to, from))
			}
		}
		if of := instances(mine, func(*planWorker) bool { return true }); of != "" {
			read(&caps.MaxKVTokens, "max_kv_tokens", "min(sglang:max_total_num_tokens{"+of+"} > 0)", "sglang:max_total_num_tokens")
		}
		if anyDynamo(mine) {
			read(&caps.MaxKVTokens, "max_kv_tokens", "min(dynamo_frontend_model_total_kv_blocks * dynamo_frontend_model_kv_cache_block_size > 0)", "dynamo_frontend_model_total_kv_blocks")
			read(&caps.MaxBatchedTokens, "max_num_batched_tokens", "min(dynamo_frontend_model_max_num_batched_tokens > 0)", "dynamo_frontend_model_max_num_batched_tokens")
			read(&caps.MaxSeqs, "max_num_seqs", "min(dynamo_frontend_model_max_num_seqs > 0)", "dynamo_frontend_model_max_num_seqs")
			read(&caps.ContextLength, "context_length", "min(dynamo_frontend_model_context_length > 0)", "dynamo_frontend_model_context_length")
		}
		out[c] = caps
	}
	return out, notes
}

// Series of [planning].
var (
	planDesc = func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("rollscope_planner_"+name, help, append([]string{"namespace", "component"}, more...), nil)
	}
	planTTFT     = planDesc("estimated_ttft_seconds", "Estimated TTFT of the next request at the worst engine, by Dynamo's formula.")
	planITL      = planDesc("estimated_itl_seconds", "Estimated ITL at the worst engine, by Dynamo's formula.")
	planEngine   = planDesc("engine_capacity_requests_per_second", "Requests a second that one engine carries within the promise.")
	planNeeded   = planDesc("needed_replicas", "Engines that the present demand needs within the promise.")
	planCurrent  = planDesc("current_replicas", "Engines that send forward passes.")
	planWanted   = planDesc("wanted_replicas", "Engines that Dynamo's planner would have.")
	planR2       = planDesc("model_r2", "Share of the spread of the passes' durations that the model explains.")
	planSamples  = planDesc("model_samples", "Passes that the model holds.")
	planCoef     = planDesc("model_coefficient_seconds", "Seconds a unit of the feature; of the feature intercept, seconds.", "feature")
	planChanges  = planDesc("model_changes_total", "Times that passes began to take consistently longer or shorter than passes like them took before.")
	planBroken   = planDesc("model_broken", "1 while a change was noticed and too few passes came since to know the new line.")
	planCapacity = prometheus.NewDesc("rollscope_planner_capacity_requests_per_second", "Requests a second that the deployment carries within the promise.", []string{"namespace"}, nil)
	planDemand   = prometheus.NewDesc("rollscope_planner_demand_requests_per_second", "Requests a second that come in.", []string{"namespace"}, nil)
)

// Describe implements [prometheus.Collector].
func (p *planning) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{planTTFT, planITL, planEngine, planNeeded, planCurrent, planWanted, planR2, planSamples, planCoef, planChanges, planBroken, planCapacity, planDemand} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. What is not known has no series.
func (p *planning) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spaces {
		gauge := func(d *prometheus.Desc, v *float64, labels ...string) {
			if v = finite(v); v != nil {
				out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, *v, append([]string{s.namespace}, labels...)...)
			}
		}
		if s.demand != nil {
			gauge(planDemand, &s.demand.RequestsPerSecond)
		}
		if a := s.answer; a != nil {
			gauge(planCapacity, a.RPS)
			for _, x := range a.Pools {
				if x.Engine != nil {
					gauge(planEngine, &x.Engine.RPS, x.Component)
				}
				if x.Needed != nil {
					gauge(planNeeded, new(float64(*x.Needed)), x.Component)
				}
			}
		}
		a := s.advice
		if a == nil {
			continue
		}
		for _, x := range a.Load.Pools {
			gauge(planTTFT, x.TTFT, x.Component)
			gauge(planITL, x.ITL, x.Component)
			gauge(planCurrent, new(float64(x.Current)), x.Component)
			gauge(planWanted, new(float64(x.Want)), x.Component)
		}
		for _, m := range a.Models {
			gauge(planR2, m.Fit.R2, m.Component)
			gauge(planSamples, new(float64(m.Fit.Samples)), m.Component)
			broken := 0.0
			if m.Drift.State == string(planner.Broken) {
				broken = 1
			}
			gauge(planBroken, &broken, m.Component)
			out <- prometheus.MustNewConstMetric(planChanges, prometheus.CounterValue, float64(m.Drift.Changes), s.namespace, m.Component)
			if m.Fit.State == string(planner.Fitted) {
				for i, c := range m.Fit.Coef {
					gauge(planCoef, &c, m.Component, m.Fit.Features[i])
				}
				gauge(planCoef, &m.Fit.Intercept, m.Component, "intercept")
			}
		}
	}
}
