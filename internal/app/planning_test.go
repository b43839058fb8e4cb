package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/planner"
	"github.com/rollscope/rollscope/internal/sim/passes"
)

// planRig is a planning with streams before it and a store of metrics behind it.
type planRig struct {
	t         testing.TB
	plan      *planning
	store     *metricstore.Store
	track     *fpm.Tracker
	pools     poolNames
	now       time.Time
	instances map[string]string // by worker
	counter   map[fpm.Key]uint64
}

func newPlanRig(t testing.TB, text string) *planRig {
	t.Helper()
	store, err := metricstore.Open(context.Background(), metricstore.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &planRig{t: t, store: store, track: fpm.NewTracker(fpm.Options{}), now: time.Now(), instances: map[string]string{}, counter: map[fpm.Key]uint64{}}
	r.plan = newPlanning(metricsSource{queryable: store.Queryable(), engine: store.Engine()}, slog.New(slog.DiscardHandler))
	cfg := planConfig(t, text)
	if err := r.plan.apply(cfg); err != nil {
		t.Fatal(err)
	}
	r.pools = newPoolNames(cfg.Rollscope.ForwardPasses.Pools)
	return r
}

// planConfig is a configuration file with a rollscope section.
func planConfig(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load([]byte("rollscope:\n  forward_passes: {zmq: [{endpoint: ipc:///x}]}\n"+text), filepath.Join(t.TempDir(), "rollscope.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// say is a message as it comes out of the decoder; it returns what the planner said about it.
func (r *planRig) say(namespace, component string, p fpm.Pass) string {
	r.pools.saw(namespace, component)
	p.Has = fpm.HasVersion | fpm.HasCounter | fpm.HasWall | fpm.HasScheduled | fpm.HasQueued
	k := fpm.Key{Namespace: namespace, Component: component, Worker: p.WorkerID, Rank: p.Rank}
	p.Counter = r.counter[k]
	r.counter[k]++
	now := r.now.UnixNano()
	seen := r.track.Observe(now, fpm.Origin{Source: "test", Namespace: namespace, Component: component}, &p)
	return r.plan.observe(now, seen.Key, r.pools.role(namespace, component), &p, seen)
}

func (r *planRig) workers() (out []planWorker) {
	for _, w := range r.track.Workers(r.now.UnixNano()) {
		out = append(out, planWorker{Worker: w, role: r.pools.role(w.Key.Namespace, w.Key.Component), instance: r.instances[w.Key.Worker]})
	}
	return out
}

func (r *planRig) refresh() { r.plan.refresh(context.Background(), r.now, r.workers()) }

func (r *planRig) capacity(q api.CapacityQuery) api.PassCapacity {
	r.t.Helper()
	c, err := r.plan.capacity(context.Background(), r.now, r.workers(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *planRig) advice(namespace string) api.PassDeployment {
	r.t.Helper()
	a, err := r.plan.advice(context.Background(), r.now, r.workers())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range a.Deployments {
		if d.Namespace == namespace {
			return d
		}
	}
	r.t.Fatalf("no advice about %q: %+v", namespace, a)
	return api.PassDeployment{}
}

// count writes counters that grow by so much a second for the last minutes, as a scrape of each 15 s.
func (r *planRig) count(perSecond map[string]float64, series func(name string) labels.Labels) {
	r.t.Helper()
	app := r.store.Appendable().AppenderV2(context.Background())
	for back := 10 * time.Minute; back >= 0; back -= 15 * time.Second {
		at := r.now.Add(-back)
		for name, v := range perSecond {
			if _, err := app.Append(0, series(name), 0, at.UnixMilli(), v*(600-back.Seconds()), nil, nil, storage.AOptions{}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		r.t.Fatal(err)
	}
}

// gauge writes a gauge's value now.
func (r *planRig) gauge(v float64, nameAndLabels ...string) {
	r.t.Helper()
	app := r.store.Appendable().AppenderV2(context.Background())
	if _, err := app.Append(0, labels.FromStrings(append([]string{"__name__"}, nameAndLabels...)...), 0, r.now.UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
		r.t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		r.t.Fatal(err)
	}
}

func near(t *testing.T, what string, got *float64, want, tolerance float64) {
	t.Helper()
	if got == nil || !(math.Abs(*got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %v, want %g", what, told(got), want)
	}
}

func told(p *float64) any {
	if p == nil {
		return "not known"
	}
	return *p
}

// A simulated rank at 50 passes a second takes 6 ms, and so much more for each token that it prefills and
// each that its context has.
const (
	simRate      = 50.0
	simConstant  = 0.3 / simRate
	simPerPrompt = 0.2 / 2048 / simRate
	simPerKV     = 0.4 / (64 * 1600) / simRate
)

// simulate sends n passes of each rank of each worker through the codec and the tracker; walls are slower by
// a factor. It returns after how many passes a change was noticed, 0 for never.
func (r *planRig) simulate(namespace, component string, workers, ranks, n int, slower float64) (noticed int) {
	r.t.Helper()
	var dec fpm.Decoder
	var lives []*passes.Rank
	for w := range workers {
		for i := range ranks {
			life, err := passes.NewRank(passes.Options{Ranks: ranks, Rate: simRate, Worker: fmt.Sprint(7000 + w), Seed: uint64(w + 1)}, i)
			if err != nil {
				r.t.Fatal(err)
			}
			lives = append(lives, life)
		}
	}
	sent := 0
	for i := range n {
		at := time.Duration(float64(i) / simRate * float64(time.Second))
		for _, life := range lives {
			m, ok := life.Next(at)
			if !ok {
				r.t.Fatal("a busy rank has nothing to say")
			}
			var p fpm.Pass
			if err := dec.Decode(m.Payload, &p); err != nil {
				r.t.Fatal(err)
			}
			p.Wall *= slower
			sent++
			if r.say(namespace, component, p) != "" && noticed == 0 {
				noticed = sent
			}
		}
		r.now = r.now.Add(time.Second / simRate)
	}
	return noticed
}

// planSection is a configuration with settings of the planner.
func planSection(planner string) string {
	return "  planner: {" + planner + "}\n"
}

// poolsOf puts limits into a configuration.
func poolsOf(cfg *config.Config, pools map[string]config.PassPool) *config.Config {
	cfg.Rollscope.ForwardPasses.Pools = pools
	return cfg
}

// The whole way from bytes: the line of simulated engines is found within 2 %, what they carry is what their
// constants say, and other constants are noticed within 64 passes.
func TestPlanningOfSimulatedEngines(t *testing.T) {
	r := newPlanRig(t, planSection("ttft_ms: 10000"))
	cfg := poolsOf(planConfig(t, planSection("ttft_ms: 10000")), map[string]config.PassPool{"decode": {MaxBatchedTokens: 2048, MaxKVTokens: 200_000}})
	if err := r.plan.apply(cfg); err != nil {
		t.Fatal(err)
	}
	if noticed := r.simulate("dynamo", "backend", 2, 8, 200, 1); noticed != 0 {
		t.Errorf("a change was noticed after %d passes of engines that stay the same", noticed)
	}
	r.refresh()

	d := r.advice("dynamo")
	if d.Mode != "agg" || d.ModeFrom == "" || len(d.Models) != 1 {
		t.Fatalf("the deployment is %+v", d)
	}
	m := d.Models[0]
	if m.Fit.State != "fitted" || m.Drift.State != "holds" || m.Engines != 2 || m.Ranks != 16 {
		t.Fatalf("the model is %+v", m)
	}
	near(t, "the constant", &m.Fit.Intercept, simConstant, 0.02)
	near(t, "seconds a prefill token", &m.Fit.Coef[0], simPerPrompt, 0.02)
	near(t, "seconds a KV token", &m.Fit.Coef[1], simPerKV, 0.02)
	if m.TTFT == nil || m.ITL == nil || *m.ITL < simConstant || *m.TTFT < simConstant {
		t.Errorf("estimated now: TTFT %v, ITL %v", told(m.TTFT), told(m.ITL))
	}

	// 1000 tokens in and 100 out: a context of 1050, so 190 requests fit the cache, and 186 can be brought in
	// as fast as they finish: 10 b <= 2048 - b. A pass of b takes 6 ms + b (10 perPrompt + 1050 perKV).
	step := 10*simPerPrompt + 1050*simPerKV
	pass := func(b float64) float64 { return simConstant + b*step }
	c := r.capacity(api.CapacityQuery{ISL: new(1000.0), OSL: new(100.0), Rate: new(1000.0)})
	if len(c.Pools) != 1 || c.Pools[0].Engine == nil || c.Pools[0].Needed == nil || c.Pools[0].AtDemand == nil {
		t.Fatalf("the capacity is %+v", c)
	}
	p := c.Pools[0]
	rank := 186 / (100 * pass(186))
	near(t, "what an engine of eight ranks carries", &p.Engine.RPS, 8*rank, 1e-6)
	near(t, "what both carry", c.RPS, 16*rank, 1e-6)
	if p.Engine.Batch != 8*186 || p.Engine.Bound != "balance" || !c.Meets || c.Limiting != "decode" || p.Replicas != 2 || *p.Needed != 2 || c.Reason != "" {
		t.Errorf("the capacity is %+v, its pool %+v with %+v", c, p, *p.Engine)
	}
	// Little's law for a rank's share of 62.5 a second: b = 6250 pass(b).
	near(t, "requests at once at the demand", &p.AtDemand.Batch, 8*6250*simConstant/(1-6250*step), 1e-6)
	// At 20 ms a token 137 are too many for none: 6 ms + 138 steps is above.
	c = r.capacity(api.CapacityQuery{ISL: new(1000.0), OSL: new(100.0), ITL: new(0.02), Decode: new(3)})
	near(t, "three engines at 20 ms", c.RPS, 24*137/(100*pass(137)), 1e-6)
	if c.Pools[0].Engine.Bound != "itl" || c.Demand != nil || c.Pools[0].Needed != nil {
		t.Errorf("the capacity is %+v with %+v", c, *c.Pools[0].Engine)
	}
	if !slices.ContainsFunc(c.Assumptions, func(a string) bool { return strings.Contains(a, "8 data-parallel ranks") }) ||
		!slices.Contains(c.Assumptions, "max_kv_tokens of the decode pool: 200000, by the configuration") {
		t.Errorf("assumptions: %q", c.Assumptions)
	}

	for _, slower := range []float64{1.3, 0.8} {
		if noticed := r.simulate("dynamo", "backend", 1, 1, 64, slower); noticed == 0 {
			t.Errorf("walls of %g times were not noticed within 64 passes", slower)
		}
		drift := r.advice("dynamo").Models[0].Drift
		if drift.At == nil || drift.Factor == nil || math.Abs(*drift.Factor-slower) > 0.15*slower && slower > 1 {
			t.Errorf("after walls of %g times: %+v", slower, drift)
		}
	}
}

// disagg teaches a rig two pools: a prefill pass takes 10 ms and 0.1 ms a token, a decode pass 5 ms, 0.1 ms a
// request and 0.1 us a token of context.
func disagg(r *planRig, prefills, decodes int) {
	r.t.Helper()
	for i := range 120 {
		for w := range prefills {
			tokens := uint64(100 + 37*((i*7+w)%50))
			r.say("pd", "prefill", fpm.Pass{WorkerID: fmt.Sprint(1 + w), Wall: 0.01 + 1e-4*float64(tokens), Scheduled: fpm.Scheduled{PrefillRequests: 1, PrefillTokens: tokens}})
		}
		for w := range decodes {
			n, kv := uint64(1+(i*5+w)%90), uint64(1000+800*((i*11+w)%100))
			r.say("pd", "backend", fpm.Pass{WorkerID: fmt.Sprint(101 + w), Wall: 0.005 + 1e-4*float64(n) + 1e-7*float64(kv), Scheduled: fpm.Scheduled{DecodeRequests: n, DecodeKV: kv}})
		}
	}
}

var pdPools = map[string]config.PassPool{
	"prefill": {MaxBatchedTokens: 8192, ContextLength: 10_000},
	"decode":  {MaxKVTokens: 110_000},
}

func newPDRig(t *testing.T, settings string, prefills, decodes int) *planRig {
	t.Helper()
	r := newPlanRig(t, planSection(settings))
	if err := r.plan.apply(poolsOf(planConfig(t, planSection(settings)), pdPools)); err != nil {
		t.Fatal(err)
	}
	disagg(r, prefills, decodes)
	r.refresh()
	return r
}

// Two pools, by hand: 1000 tokens in of which half are cached, 200 out.
func TestPlanningCapacityOfTwoPools(t *testing.T) {
	r := newPDRig(t, "min_endpoint: 1", 2, 1)
	c := r.capacity(api.CapacityQuery{ISL: new(1000.0), OSL: new(200.0), Hit: new(0.5), Rate: new(40.0)})
	if len(c.Pools) != 2 || c.Pools[0].Engine == nil || c.Pools[1].Engine == nil {
		t.Fatalf("the capacity is %+v", c)
	}
	prefill, decode := c.Pools[0], c.Pools[1]
	near(t, "a prefill engine", &prefill.Engine.RPS, 1/0.06, 1e-6)                      // 10 ms + 500 tokens
	near(t, "a decode engine", &decode.Engine.RPS, 100/(200*0.026), 1e-6)               // 110,000/1100 = 100 fit: 5 + 10 + 11 ms
	near(t, "the whole", c.RPS, 100/(200*0.026), 1e-6)                                  // one decodes; two prefill 33.3
	near(t, "a prefill engine's use at its share", &prefill.AtDemand.Utilisation, 1, 0) // 20/s of 60 ms
	if c.Limiting != "decode" || decode.Engine.Bound != "max_kv_tokens" || *prefill.Needed != 3 || *decode.Needed != 3 || prefill.Replicas != 2 || decode.Replicas != 1 ||
		!prefill.AtDemand.Saturated || !c.Meets {
		t.Errorf("%+v\n%+v\n%+v", c, prefill, decode)
	}
	// A pool never has fewer than the settings say, however many ranks an engine has.
	r = newPDRig(t, "decode_min_endpoint: 5", 1, 1)
	c = r.capacity(api.CapacityQuery{ISL: new(1000.0), OSL: new(200.0), Rate: new(1.0)})
	if n := c.Pools[1].Needed; n == nil || *n != 5 {
		t.Errorf("decode needs %+v, want the 5 of decode_min_endpoint", c.Pools[1])
	}
}

// The thresholds of each target, on either side, through this layer.
func TestPlanningAdvice(t *testing.T) {
	prefill := func(worker string, queued uint64) fpm.Pass {
		return fpm.Pass{WorkerID: worker, Wall: 0.02, Scheduled: fpm.Scheduled{PrefillRequests: 1, PrefillTokens: 100}, Queued: fpm.Queued{PrefillRequests: 1, PrefillTokens: queued}}
	}
	decode := func(worker string, kv uint64) fpm.Pass {
		return fpm.Pass{WorkerID: worker, Wall: 0.005 + 1e-3 + 1e-7*float64(kv), Scheduled: fpm.Scheduled{DecodeRequests: 10, DecodeKV: kv}}
	}
	for name, c := range map[string]struct {
		settings string
		last     func(r *planRig)
		prefill  string
		decode   string
		replicas map[string]int
	}{
		"throughput, calm": {"optimization_target: throughput", func(r *planRig) { // 0.5 of the context, 0.7 of the cache
			r.say("pd", "prefill", prefill("1", 5000))
			r.say("pd", "backend", decode("101", 77_000))
		}, "no_change", "no_change", nil},
		"throughput, full": {"optimization_target: throughput", func(r *planRig) { // 1.0 and above 1
			r.say("pd", "prefill", prefill("1", 10_000))
			r.say("pd", "backend", decode("101", 110_001))
		}, "scale_up", "scale_up", map[string]int{"prefill": 3, "decode": 3}},
		"latency": {"optimization_target: latency", func(r *planRig) { // 0.1 and 0.41
			r.say("pd", "prefill", prefill("1", 1000))
			r.say("pd", "backend", decode("101", 45_100))
		}, "scale_up", "scale_up", map[string]int{"prefill": 3, "decode": 3}},
		"load": {"optimization_target: load, prefill_scale_up_queue_tokens: 500, prefill_scale_down_queue_tokens: 10, decode_scale_up_kv_rate: 99, decode_scale_down_kv_rate: 80", func(r *planRig) {
			r.say("pd", "prefill", prefill("1", 499))
			r.say("pd", "backend", decode("101", 44_000))
			r.say("pd", "backend", decode("102", 44_000))
		}, "no_change", "scale_down", map[string]int{"prefill": 2, "decode": 1}},
		// 10 ms and 0.1 ms for each of 6000 queued and some thousand on average: above half a second on both.
		"sla": {"optimization_target: sla, enable_load_scaling: true, enable_throughput_scaling: false, itl_ms: 100", func(r *planRig) {
			r.say("pd", "prefill", prefill("1", 6000))
			r.say("pd", "prefill", prefill("2", 7000))
			r.say("pd", "backend", decode("101", 90_000))
		}, "scale_up", "no_change", map[string]int{"prefill": 3, "decode": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPDRig(t, c.settings, 2, 2)
			// All engines at a middling load, but for what the case says.
			for _, w := range []string{"1", "2"} {
				r.say("pd", "prefill", prefill(w, 200))
			}
			for _, w := range []string{"101", "102"} {
				r.say("pd", "backend", decode(w, 70_000))
			}
			c.last(r)
			d := r.advice("pd")
			if d.Mode != "disagg" || len(d.Load.Pools) != 2 {
				t.Fatalf("%+v", d)
			}
			got := [2]string{d.Load.Pools[0].Reason, d.Load.Pools[1].Reason}
			if c.decode == "no_change" && got[1] == "scale_down_refused_consolidation" { // one fewer would not carry it
				got[1] = c.decode
			}
			if got != [2]string{c.prefill, c.decode} {
				t.Errorf("reasons %v, want %s and %s: %s; %s", got, c.prefill, c.decode, d.Load.Pools[0].Why, d.Load.Pools[1].Why)
			}
			if len(d.Replicas) != len(c.replicas) {
				t.Errorf("replicas %v, want %v", d.Replicas, c.replicas)
			}
			for pool, n := range c.replicas {
				if d.Replicas[pool] != n {
					t.Errorf("replicas %v, want %v", d.Replicas, c.replicas)
				}
			}
			for _, p := range d.Load.Pools {
				if p.Why == "" || p.Current != 2 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// The throughput loop with the demand that the store holds, and the series of all that.
func TestPlanningDemandAndSeries(t *testing.T) {
	const settings = "optimization_target: sla, ttft_ms: 1000, itl_ms: 50, throughput_adjustment_interval_seconds: 120"
	r := newPDRig(t, settings, 2, 1)
	if d := r.advice("pd"); d.Demand != nil || d.Throughput.Reason != "unset" || !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.HasPrefix(n, "there is no demand to plan with: ") }) {
		t.Errorf("without a demand: %+v", d)
	}
	got := gathered(t, r.plan)
	for _, name := range []string{"rollscope_planner_demand_requests_per_second", "rollscope_planner_capacity_requests_per_second", "rollscope_planner_needed_replicas", "rollscope_planner_wanted_replicas"} {
		for series := range got {
			if strings.HasPrefix(series, name) {
				t.Errorf("%s is there while nobody knows it", series)
			}
		}
	}
	frontend := func(namespace string) func(string) labels.Labels {
		return func(name string) labels.Labels {
			return labels.FromStrings("__name__", name, "job", "f", "instance", "front:8000", "model", "m", "dynamo_namespace", namespace)
		}
	}
	// 25 requests a second of 400 tokens in, of which a quarter is cached, and 100 out.
	flow := map[string]float64{
		"dynamo_frontend_requests_total":               25,
		"dynamo_frontend_input_sequence_tokens_sum":    10_000,
		"dynamo_frontend_input_sequence_tokens_count":  25,
		"dynamo_frontend_output_sequence_tokens_sum":   2500,
		"dynamo_frontend_output_sequence_tokens_count": 25,
		"dynamo_component_router_kv_hit_rate_sum":      6.25,
		"dynamo_component_router_kv_hit_rate_count":    25,
	}
	r.count(flow, frontend(""))
	r.refresh()
	d := r.advice("pd")
	if d.Demand == nil {
		t.Fatalf("no demand: %q", d.Notes)
	}
	near(t, "requests a second", &d.Demand.RequestsPerSecond, 25, 1e-3)
	near(t, "tokens in", &d.Demand.ISL, 400, 1e-3)
	near(t, "tokens out", &d.Demand.OSL, 100, 1e-3)
	near(t, "the hit rate", d.Demand.HitRate, 0.25, 1e-3)
	// Prefill: 10 ms + 300 tokens = 40 ms, 25 a second an engine: one, or two when the estimate is a hair above.
	// Decode: a context of 450, so 244 fit the cache; 5 ms + b 0.145 ms keeps 50 ms up to them: 40.38 ms, 60.4 a second.
	near(t, "what a prefill engine carries", d.Throughput.Pools[0].RPS, 25, 1e-3)
	near(t, "what a decode engine carries", d.Throughput.Pools[1].RPS, 244/(100*(0.005+244*1.45e-4)), 1e-3)
	if d.Throughput.Reason != "scale" || d.Throughput.Pools[1].Want != 1 {
		t.Errorf("the throughput loop: %+v", d.Throughput)
	}
	c := r.capacity(api.CapacityQuery{})
	near(t, "the demand of the capacity", c.Demand, 25, 1e-3)
	near(t, "the whole", c.RPS, 50, 1e-3)
	if !strings.HasPrefix(c.DemandFrom, "dynamo_frontend_requests_total") || !strings.HasPrefix(c.ShapeFrom, "dynamo_frontend_requests_total") || c.Limiting != "prefill" {
		t.Errorf("the capacity is %+v", c)
	}
	got = gathered(t, r.plan)
	for series, want := range map[string]float64{
		`rollscope_planner_demand_requests_per_second{namespace="pd"}`:                                                 25,
		`rollscope_planner_capacity_requests_per_second{namespace="pd"}`:                                               50,
		`rollscope_planner_engine_capacity_requests_per_second{component="prefill",namespace="pd"}`:                    25,
		`rollscope_planner_current_replicas{component="prefill",namespace="pd"}`:                                       2,
		`rollscope_planner_wanted_replicas{component="decode",namespace="pd"}`:                                         1,
		`rollscope_planner_needed_replicas{component="decode",namespace="pd"}`:                                         1,
		`rollscope_planner_model_r2{component="prefill",namespace="pd"}`:                                               1,
		`rollscope_planner_model_changes_total{component="decode",namespace="pd"}`:                                     0,
		`rollscope_planner_model_broken{component="decode",namespace="pd"}`:                                            0,
		`rollscope_planner_model_coefficient_seconds{component="prefill",feature="sum_prefill_tokens",namespace="pd"}`: 1e-4,
		`rollscope_planner_model_coefficient_seconds{component="prefill",feature="intercept",namespace="pd"}`:          0.01,
	} {
		v, ok := got[series]
		if !ok || math.Abs(v-want) > 1e-3*want {
			t.Errorf("%s is %v (there: %v), want %g", series, v, ok, want)
		}
	}
	// What is estimated: a prompt of average length behind an empty queue, less what is cached.
	if v, ok := got[`rollscope_planner_estimated_ttft_seconds{component="prefill",namespace="pd"}`]; !ok || v < 0.01 {
		t.Errorf("estimated TTFT %v (there: %v)", v, ok)
	}
	if _, ok := got[`rollscope_planner_estimated_ttft_seconds{component="decode",namespace="pd"}`]; ok {
		t.Error("a pool that prefills nothing has an estimated TTFT")
	}

	// Of two deployments, what frontends say without a namespace is of neither.
	for range 20 {
		r.say("other", "backend", fpm.Pass{WorkerID: "900", Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 100}})
	}
	r.refresh()
	if d := r.advice("pd"); d.Demand != nil {
		t.Errorf("frontends that name no namespace stand for one of two: %+v", d.Demand)
	}
	r.count(map[string]float64{"dynamo_frontend_requests_total": 3}, frontend("other"))
	r.refresh()
	c = r.capacity(api.CapacityQuery{Namespace: "other"})
	near(t, "the other's demand", c.Demand, 3, 1e-3)
	if !slices.Equal(c.Namespaces, []string{"other", "pd"}) || c.RPS != nil || c.Reason == "" {
		t.Errorf("the other's capacity is %+v", c)
	}
	if c := r.capacity(api.CapacityQuery{}); c.Namespace != "pd" {
		t.Errorf("the busiest is %q, want pd", c.Namespace)
	}
	_, err := r.plan.capacity(context.Background(), r.now, nil, api.CapacityQuery{Namespace: "third"})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != "not_found" || !strings.Contains(e.Hint, "other") {
		t.Errorf("an unknown namespace: %v", err)
	}
}

// Without Dynamo's frontends the engines' own counters count, of the engines that send only; limits are read
// where they are told.
func TestPlanningDemandOfEngines(t *testing.T) {
	r := newPlanRig(t, "")
	r.instances["7000"] = "a:30000"
	r.simulate("", "", 1, 2, 60, 1)
	r.refresh()
	c := r.capacity(api.CapacityQuery{})
	if c.Demand != nil || !strings.Contains(c.DemandFrom, "counters of requests") || c.RPS != nil || !strings.Contains(c.Reason, "give isl and osl") {
		t.Errorf("without counters: %+v", c)
	}
	of := func(instance string) func(string) labels.Labels {
		return func(name string) labels.Labels {
			return labels.FromStrings("__name__", name, "job", "sglang", "instance", instance, "model_name", "m")
		}
	}
	flow := map[string]float64{"sglang:num_requests_total": 4, "sglang:prompt_tokens_total": 2000, "sglang:generation_tokens_total": 800, "sglang:cached_tokens_total": 500}
	r.count(flow, of("a:30000"))
	r.count(flow, of("b:30000")) // no messages come of it
	r.gauge(50_000, "sglang:max_total_num_tokens", "job", "sglang", "instance", "a:30000", "dp_rank", "0")
	r.gauge(40_000, "sglang:max_total_num_tokens", "job", "sglang", "instance", "a:30000", "dp_rank", "1")
	r.gauge(30_000, "sglang:max_total_num_tokens", "job", "sglang", "instance", "b:30000", "dp_rank", "0")
	r.refresh()
	c = r.capacity(api.CapacityQuery{})
	near(t, "requests a second", c.Demand, 4, 1e-3)
	near(t, "tokens in", c.ISL, 500, 1e-3)
	near(t, "tokens out", c.OSL, 200, 1e-3)
	near(t, "the hit rate", c.HitRate, 0.25, 1e-3)
	if !strings.HasPrefix(c.DemandFrom, "sglang:num_requests_total") || !slices.Contains(c.Assumptions, "max_kv_tokens of the decode pool: 40000, by sglang:max_total_num_tokens") {
		t.Errorf("%+v", c)
	}
	// Nobody tells max_num_batched_tokens: the advice does without, the capacity says what stands for it.
	if c.RPS == nil || !slices.ContainsFunc(c.Assumptions, func(a string) bool {
		return strings.Contains(a, "max_num_batched_tokens of the decode pool is not known")
	}) {
		t.Errorf("%+v", c)
	}

	// An hour in which nothing comes is idle: a rate of zero, and no length of requests.
	r.now = r.now.Add(4 * time.Minute)
	r.count(map[string]float64{"sglang:num_requests_total": 0, "sglang:prompt_tokens_total": 0, "sglang:generation_tokens_total": 0}, func(name string) labels.Labels {
		return labels.FromStrings("__name__", name, "job", "other", "instance", "idle:1")
	})
	r.instances["7000"] = "idle:1"
	r.simulate("", "", 1, 2, 1, 1)
	r.refresh()
	c = r.capacity(api.CapacityQuery{})
	if c.Demand == nil || *c.Demand != 0 || c.ISL != nil || c.RPS != nil || !strings.Contains(c.Reason, "no request ended in the last 3m") {
		t.Errorf("idle: demand %v, %+v", told(c.Demand), c)
	}
}

// What is not known is said to be so, never zero.
func TestPlanningUnknown(t *testing.T) {
	ask := api.CapacityQuery{ISL: new(1000.0), OSL: new(100.0)}
	r := newPlanRig(t, "")
	r.refresh()
	if c := r.capacity(ask); c.RPS != nil || c.Reason != "no forward pass has come yet" || c.TTFT != 0.5 || c.ITL != 0.05 {
		t.Errorf("nothing came: %+v", c)
	}
	if a, err := r.plan.advice(context.Background(), r.now, nil); err != nil || len(a.Deployments) != 0 {
		t.Errorf("nothing came: %+v %v", a, err)
	}
	r.simulate("n", "backend", 1, 1, 10, 1) // of which eight are cold
	r.refresh()
	c := r.capacity(ask)
	if c.RPS != nil || !strings.Contains(c.Reason, "decode: ") || c.Pools[0].Engine != nil || c.Limiting != "" {
		t.Errorf("learning: %+v", c)
	}
	d := r.advice("n")
	if m := d.Models[0]; m.Fit.State != "learning" || m.TTFT != nil || m.ITL != nil || m.Fit.R2 != nil {
		t.Errorf("learning: %+v", m)
	}
	if d.Load.Reason != "insufficient_data" || !strings.Contains(d.Load.Pools[0].Why, "max_kv_tokens is not known") || len(d.Replicas) != 0 {
		t.Errorf("without limits: %+v", d.Load)
	}
	r.simulate("n", "backend", 1, 1, 100, 1)
	r.refresh()
	if c := r.capacity(ask); c.RPS == nil || c.Reason != "" {
		t.Errorf("learned: %+v", c)
	}
	r.now = r.now.Add(10 * time.Minute) // silence: what the engine does is not known
	r.refresh()
	c = r.capacity(ask)
	if c.RPS != nil || c.Pools[0].Engine == nil || c.Reason != "decode: no engine of this pool sends now" || c.Meets {
		t.Errorf("silent: %+v", c)
	}
	if d := r.advice("n"); d.Load.Reason != "no_fpm_data" || len(d.Replicas) != 0 || d.Models[0].ITL != nil {
		t.Errorf("silent: %+v", d)
	}
	if got := gathered(t, r.plan); len(got) == 0 {
		t.Error("no series at all")
	} else {
		for series, v := range got {
			if math.IsNaN(v) || strings.HasPrefix(series, "rollscope_planner_estimated") || strings.HasPrefix(series, "rollscope_planner_wanted") || strings.HasPrefix(series, "rollscope_planner_capacity") {
				t.Errorf("%s is %v while it is not known", series, v)
			}
		}
	}
}

// A setting makes models anew; a comment, a limit, or the same again keeps what was learned.
func TestPlanningSettings(t *testing.T) {
	r := newPlanRig(t, "  planner: {ttft_ms: 500}\n")
	r.simulate("n", "backend", 1, 1, 100, 1)
	samples := func() int { return r.plan.spaces["n"].planner.Model(planner.DecodePool).Samples() }
	learned := samples()
	if learned == 0 {
		t.Fatal("nothing was learned")
	}
	for _, c := range []struct {
		text  string
		pools map[string]config.PassPool
		keeps bool
	}{
		{"  planner: {ttft_ms: 500} # as it was\n", nil, true},
		{"  planner: {ttft: 500}\n", map[string]config.PassPool{"decode": {MaxKVTokens: 1000}}, true},
		{"  planner: {ttft_ms: 400}\n", nil, false},
	} {
		if err := r.plan.apply(poolsOf(planConfig(t, c.text), c.pools)); err != nil {
			t.Fatal(err)
		}
		if kept := len(r.plan.spaces) == 1 && samples() == learned; kept != c.keeps {
			t.Errorf("%s: what was learned is kept: %v, want %v", c.text, kept, c.keeps)
		}
	}
	for text, want := range map[string]string{
		"  planner:\n    mode: sideways\n":             "rollscope.yaml:4: ",
		"  planner:\n    ttft_ms: 1\n    ttft: 2\n":    "rollscope.yaml:5: ",
		"  planner:\n    optimization_target: load\n":  "prefill_scale_up_queue_tokens",
		"  planner:\n    fpm_sample_bucket_size: 15\n": "fpm_sample_bucket_size",
	} {
		err := r.plan.apply(planConfig(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want one with %q", text, err, want)
		}
	}
	if err := r.plan.apply(planConfig(t, "  planner: {load_predictor: arima}\n")); err != nil {
		t.Fatal(err)
	}
	if w := r.plan.warnings(); len(w) != 1 || !strings.Contains(w[0].Message, "load_predictor") {
		t.Errorf("warnings: %+v", w)
	}
}

// The mode follows the pools that send, and the configuration's word goes first.
func TestPlanningMode(t *testing.T) {
	pass := func(id string) fpm.Pass {
		return fpm.Pass{WorkerID: id, Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 10}}
	}
	for _, c := range []struct {
		components []string
		settings   string
		mode       string
	}{
		{[]string{"backend"}, "", "agg"},
		{[]string{"tensorrt_llm"}, "", "agg"},
		{[]string{"backend", "prefill"}, "", "disagg"},
		{[]string{"VllmPrefillWorker"}, "", "prefill"},
		{[]string{"VllmDecodeWorker"}, "", "decode"},
		{[]string{"VllmDecodeWorker", "VllmPrefillWorker"}, "", "disagg"},
		{[]string{"backend"}, "  planner: {mode: decode}\n", "decode"},
	} {
		r := newPlanRig(t, c.settings)
		for i, name := range c.components {
			r.say("n", name, pass(fmt.Sprint(10+i)))
		}
		r.refresh()
		d := r.advice("n")
		if d.Mode != c.mode || d.ModeFrom == "" || (d.ModeFrom == "the configuration") != (c.settings != "") {
			t.Errorf("%v with %q: mode %s (%s), want %s", c.components, c.settings, d.Mode, d.ModeFrom, c.mode)
		}
	}
	n := newPoolNames(map[string]config.PassPool{"prefill": {Components: []string{"first"}}, "decode": {Components: []string{"prefill-not"}}})
	n.saw("n", "first")
	for component, want := range map[string]fpm.Role{"first": fpm.Prefill, "prefill-not": fpm.Decode, "x": fpm.Decode} {
		if got := n.role("n", component); got != want {
			t.Errorf("%s is %s, want %s", component, got, want)
		}
	}
	if got := n.role("other", "x"); got != fpm.Unified {
		t.Errorf("x of a namespace without a prefill component is %s", got)
	}
}

// What is not learned from is counted, and what does not count is not learned from.
func TestPlanningDrops(t *testing.T) {
	r := newPlanRig(t, "")
	good := fpm.Pass{Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 10}}
	for i := range maxSpaces + 3 {
		p := good
		p.WorkerID = "1"
		r.say(fmt.Sprintf("n%03d", i), "backend", p)
	}
	bad := good
	bad.WorkerID, bad.Wall = "1", 4000
	r.say("n000", "backend", bad)
	want := []api.Drop{{Source: "planner", Reason: "bad_wall_time", Count: 1}, {Source: "planner", Reason: "too_many_namespaces", Count: 3}}
	if got := r.plan.drops(); !slices.Equal(got, want) {
		t.Errorf("drops %+v, want %+v", got, want)
	}
	if d := r.advice("n000"); d.Models[0].Refused["bad_wall_time"] != 1 {
		t.Errorf("refused: %v", d.Models[0].Refused)
	}
	if err := r.plan.apply(planConfig(t, "  planner: {itl_ms: 60}\n")); err != nil { // the counts outlive the models
		t.Fatal(err)
	}
	if got := r.plan.drops(); !slices.Equal(got, want) {
		t.Errorf("drops after other settings %+v, want %+v", got, want)
	}
	k := fpm.Key{Namespace: "n", Component: "backend", Worker: "1"}
	for _, seen := range []fpm.Observation{{Key: k, Late: true}, {Key: k, Duplicate: true}, {Key: k, Dropped: true}} {
		r.plan.observe(1, k, fpm.Unified, &good, seen)
	}
	if len(r.plan.spaces) != 0 {
		t.Error("a late, doubled or dropped pass was learned from")
	}
}

// gathered is what a collector says, by series.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var b []string
			for _, l := range m.GetLabel() {
				b = append(b, l.GetName()+`="`+l.GetValue()+`"`)
			}
			v := m.GetGauge().GetValue()
			if m.Counter != nil {
				v = m.GetCounter().GetValue()
			}
			out[f.GetName()+"{"+strings.Join(b, ",")+"}"] = v
		}
	}
	return out
}

// A pass on its way into the planner of its namespace.
func BenchmarkPlanningObserve(b *testing.B) {
	r := newPlanRig(b, "")
	r.simulate("n", "backend", 8, 8, 100, 1)
	var list []fpm.Pass
	var dec fpm.Decoder
	life, err := passes.NewRank(passes.Options{Ranks: 1, Rate: simRate, Worker: "7000"}, 0)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1024 {
		m, _ := life.Next(time.Duration(i) * 20 * time.Millisecond)
		var p fpm.Pass
		if err := dec.Decode(m.Payload, &p); err != nil {
			b.Fatal(err)
		}
		list = append(list, p)
	}
	k := fpm.Key{Namespace: "n", Component: "backend", Worker: "7000"}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		p := &list[i%len(list)]
		k.Rank = uint32(i % 8)
		r.plan.observe(int64(i), k, fpm.Unified, p, fpm.Observation{Key: k})
	}
}
