package app

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// deployment is a namespace's workers, as their metrics are looked for.
type deployment struct {
	namespace string
	workers   []planWorker
	dynamo    bool // they have Dynamo's ids
	alone     bool // no other namespace's have: what Dynamo's frontends say without naming a namespace is about it
}

func deploymentOf(workers []planWorker, namespace string) deployment {
	d := deployment{namespace: namespace, workers: inNamespace(workers, namespace), alone: true}
	for i := range workers {
		k := workers[i].Key
		if _, err := fpm.ParseWorkerID(k.Worker, fpm.DecimalID); err != nil || k.Namespace == "" {
			continue
		}
		if k.Namespace == namespace {
			d.dynamo = true
		} else {
			d.alone = false
		}
	}
	return d
}

// frontends are matchers for what Dynamo's frontends say about the deployment, the most certain first.
func (d *deployment) frontends() (out []string) {
	if !d.dynamo {
		return nil
	}
	out = append(out, "{dynamo_namespace="+strconv.Quote(d.namespace)+"}")
	if d.alone {
		out = append(out, `{dynamo_namespace=""}`)
	}
	return out
}

// demandNow is what came in lately. Nil is not known; a rate of 0 is known, and leaves lengths unknown.
type demandNow struct {
	rate, isl, osl, hit *float64
	from                string // what was read
	why                 string // why a part of it is not known
}

// whole is the demand as the planner takes it, nil while a part of it is missing.
func (d *demandNow) whole() *planner.Demand {
	if d.rate == nil || *d.rate <= 0 || d.isl == nil || d.osl == nil {
		return nil
	}
	return &planner.Demand{RequestsPerSecond: *d.rate, ISL: *d.isl, OSL: *d.osl, HitRate: d.hit}
}

// one evaluates an expression to a single number, nil when nothing is there.
func (m metricsSource) one(ctx context.Context, at time.Time, expr string) *float64 {
	list, err := m.vector(ctx, at, expr)
	if err != nil || len(list) != 1 {
		return nil
	}
	return new(list[0].F)
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
	return `{instance=~` + strconv.Quote(strings.Join(slices.Compact(list), "|")) + "}"
}

// ratio is a quotient that is absent where the denominator is 0.
func ratio(num, den string) string { return num + " / (" + den + " > 0)" }

// engineDemand are the engines' own counters of requests and tokens.
var engineDemand = []struct{ requests, prompt, output, cached string }{
	{"sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:cached_tokens_total"},
	{"vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total", ""},
}

// demand is what came in during a window: as Dynamo's frontends count it, else as the engines do.
func (m metricsSource) demand(ctx context.Context, now time.Time, window time.Duration, d deployment) demandNow {
	w := "[" + model.Duration(window).String() + "]"
	over := " over " + model.Duration(window).String()
	// Several jobs may scrape the same target.
	sum := func(f, name, of string) string { return "sum(max without (job) (" + f + "(" + name + of + w + ")))" }
	idle := "no request ended in the last " + model.Duration(window).String()
	share := func(v *float64) *float64 {
		if v != nil {
			*v = min(max(*v, 0), 1)
		}
		return v
	}
	for _, of := range d.frontends() {
		rate := m.one(ctx, now, sum("rate", "dynamo_frontend_requests_total", of))
		if rate == nil {
			continue
		}
		mean := func(name string) *float64 {
			return m.one(ctx, now, ratio(sum("increase", name+"_sum", of), sum("increase", name+"_count", of)))
		}
		out := demandNow{rate: rate, from: "dynamo_frontend_requests_total and the frontends' histograms of lengths" + over,
			isl: mean("dynamo_frontend_input_sequence_tokens"), osl: mean("dynamo_frontend_output_sequence_tokens"),
			hit: share(mean("dynamo_component_router_kv_hit_rate"))}
		if out.isl == nil || out.osl == nil {
			out.why = idle
		}
		return out
	}
	// Each request is at one engine that prefills and, apart from it, at one that decodes.
	prefills := func(w *planWorker) bool { return w.role == fpm.Prefill }
	first := instances(d.workers, prefills)
	last := instances(d.workers, func(w *planWorker) bool { return !prefills(w) })
	first, last = cmp.Or(first, last), cmp.Or(last, first)
	if first == "" {
		return demandNow{why: "the engines that send passes are not known among those that are scraped: name them with engine: in forward_passes.zmq"}
	}
	for _, e := range engineDemand {
		rate := m.one(ctx, now, sum("rate", e.requests, first))
		if rate == nil {
			continue
		}
		out := demandNow{rate: rate, from: e.requests + " and the engines' counters of tokens" + over,
			isl: m.one(ctx, now, ratio(sum("increase", e.prompt, first), sum("increase", e.requests, first))),
			osl: m.one(ctx, now, ratio(sum("increase", e.output, last), sum("increase", e.requests, last)))}
		if e.cached != "" {
			out.hit = share(m.one(ctx, now, ratio(sum("increase", e.cached, first), sum("increase", e.prompt, first))))
		}
		if out.isl == nil || out.osl == nil {
			out.why = idle
		}
		return out
	}
	return demandNow{why: "neither Dynamo's frontends nor the engines have counters of requests in the store"}
}

// caps are the limits of one rank of an engine of each pool, and where they were read.
func (m metricsSource) caps(ctx context.Context, now time.Time, d deployment, pools map[string]config.PassPool) (map[planner.Component]planner.Caps, []string) {
	out, notes := map[planner.Component]planner.Caps{}, []string(nil)
	for _, c := range bothPools {
		mine := slices.DeleteFunc(slices.Clone(d.workers), func(w planWorker) bool { return componentOf(w.role) != c })
		if len(mine) == 0 {
			continue
		}
		conf := pools[string(c)]
		caps := planner.Caps{GPUs: conf.GPUs}
		limit := func(what string, configured int64, reads ...func() (v int64, from string)) (v int64) {
			if configured > 0 {
				notes = append(notes, fmt.Sprintf("%s of the %s pool: %d, by the configuration", what, c, configured))
				return configured
			}
			for _, read := range reads {
				v, from := read()
				if v > 0 {
					notes = append(notes, fmt.Sprintf("%s of the %s pool: %d, by %s", what, c, v, from))
					return v
				}
				if from != "" {
					notes = append(notes, fmt.Sprintf("%s of the %s pool is not known: %s", what, c, from))
					return 0
				}
			}
			return 0
		}
		engines := instances(mine, func(*planWorker) bool { return true })
		// frontend reads a gauge of the frontends, which is about a model: the pool's only where all say the same.
		frontend := func(expr string) func() (int64, string) {
			return func() (int64, string) {
				for _, of := range d.frontends() {
					list, err := m.vector(ctx, now, strings.ReplaceAll(expr, "{}", of)+" > 0")
					if err != nil || len(list) == 0 {
						continue
					}
					byValue := func(a, b promql.Sample) int { return cmp.Compare(a.F, b.F) }
					name, _, _ := strings.Cut(expr, "{}")
					least, most := slices.MinFunc(list, byValue).F, slices.MaxFunc(list, byValue).F
					if least < most {
						return 0, fmt.Sprintf("%s differs between models, from %.0f to %.0f; set it under forward_passes.pools", name, least, most)
					}
					return int64(least), name
				}
				return 0, ""
			}
		}
		caps.MaxKVTokens = limit("max_kv_tokens", conf.MaxKVTokens,
			func() (int64, string) { return m.leastKV(ctx, now, engines) },
			frontend("dynamo_frontend_model_total_kv_blocks{} * dynamo_frontend_model_kv_cache_block_size{}"))
		caps.MaxBatchedTokens = limit("max_num_batched_tokens", conf.MaxBatchedTokens, frontend("dynamo_frontend_model_max_num_batched_tokens{}"))
		caps.MaxSeqs = limit("max_num_seqs", conf.MaxSeqs, frontend("dynamo_frontend_model_max_num_seqs{}"))
		caps.ContextLength = limit("context_length", conf.ContextLength, frontend("dynamo_frontend_model_context_length{}"))
		out[c] = caps
	}
	return out, notes
}

// leastKV is the size of the smallest KV cache among the ranks of engines, in tokens; 0 when they do not say.
func (m metricsSource) leastKV(ctx context.Context, now time.Time, engines string) (int64, string) {
	if engines == "" {
		return 0, ""
	}
	if v := m.one(ctx, now, "min(sglang:max_total_num_tokens"+engines+" > 0)"); v != nil {
		return int64(*v), "sglang:max_total_num_tokens"
	}
	list, err := m.vector(ctx, now, "vllm:cache_config_info"+engines)
	if err != nil {
		return 0, ""
	}
	least := int64(0)
	for _, s := range list {
		blocks, err1 := strconv.ParseInt(s.Metric.Get("num_gpu_blocks"), 10, 40)
		size, err2 := strconv.ParseInt(s.Metric.Get("block_size"), 10, 20)
		if n := blocks * size; err1 == nil && err2 == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least, map[bool]string{true: "vllm:cache_config_info"}[least > 0]
}
