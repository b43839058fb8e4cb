package app

import (
	"fmt"
	"math"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// fleets are the pools as the planner sees them: the latest message of each rank that is alive.
func fleets(workers []planWorker) (prefill, decode planner.Fleet) {
	for i := range workers {
		w := &workers[i]
		f := &decode
		if componentOf(w.role) == planner.PrefillPool {
			f = &prefill
		}
		f.QueueOnRankZero = f.QueueOnRankZero || w.QueueRule == fpm.QueueRank0
		for j := range w.Ranks {
			if r := &w.Ranks[j]; r.Current != nil {
				name := w.Key.Worker
				if name == "" {
					name = r.Key.Source
				}
				f.Engines = append(f.Engines, iterationOf(name, r.Key, r.Current))
			}
		}
	}
	return prefill, decode
}

// deployment is the planner's advice for workers as they are.
func (s *planSpace) deployment(now time.Time, workers []planWorker) api.PassDeployment {
	cfg := s.planner.Config()
	out := api.PassDeployment{
		Namespace: s.namespace, Mode: string(s.mode), ModeFrom: s.from, Target: string(cfg.Target), TTFT: cfg.TTFT, ITL: cfg.ITL,
		At: now.UTC().Format(time.RFC3339Nano), Demand: s.demand, Replicas: map[string]int{},
	}
	var situation planner.Situation
	situation.Prefill, situation.Decode = fleets(workers)
	if d := s.demand; d != nil {
		situation.Demand = &planner.Demand{RequestsPerSecond: d.RequestsPerSecond, ISL: d.ISL, OSL: d.OSL, HitRate: d.HitRate}
	}
	a := s.planner.Advise(situation)
	out.Load, out.Throughput, out.Notes = loopOf(a.Load), loopOf(a.Throughput), a.Notes
	for c, n := range a.Replicas {
		out.Replicas[string(c)] = n
	}
	if s.demand == nil && s.why != "" {
		out.Notes = append(out.Notes, "the demand is not known: "+s.why)
	}
	for _, h := range s.planner.Health() {
		m := api.PassModel{
			Component: string(h.Component), Role: string(s.planner.Model(h.Component).Role()), Fit: fitOf(h.Fit), Dynamo: fitOf(h.Dynamo),
			Cold:  api.PassCold{Passes: int64(h.ColdStart.Passes), Factor: finite(h.ColdStart.Factor)},
			Drift: api.PassDrift{State: string(h.Drift.State), Changes: h.Drift.Changes, Pressure: h.Drift.Pressure}, Refused: map[string]int64{},
		}
		if c, ok := s.changes[h.Component]; ok {
			m.Drift.At, m.Drift.Factor = stampOf(time.Unix(0, c.at)), new(c.factor)
		}
		for _, d := range s.planner.Drops() {
			m.Refused[d.Reason] = int64(d.Count)
		}
		out.Models = append(out.Models, m)
	}
	return out
}

// finite is a number that JSON can hold, else nil.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

func loopOf(l planner.Loop) api.PassLoop {
	out := api.PassLoop{Reason: string(l.Reason)}
	for _, p := range l.Pools {
		x := api.PassPoolAdvice{Component: string(p.Component), Current: p.Current, Want: p.Want, Reason: string(p.Reason), Why: p.Why,
			TTFT: finite(p.TTFT), ITL: finite(p.ITL), RPS: finite(p.RPS)}
		for _, e := range p.Engines {
			x.Engines = append(x.Engines, api.PassEngineView{Worker: e.Worker, Rank: e.Rank, QueuedPrefillTokens: e.QueuedPrefillTokens,
				QueuedDecodeKVTokens: e.QueuedDecodeKVTokens, InflightKVTokens: e.InflightKVTokens, TTFT: finite(e.TTFT), ITL: finite(e.ITL), Signal: finite(e.Signal)})
		}
		out.Pools = append(out.Pools, x)
	}
	return out
}

func fitOf(f planner.Fit) api.PassFit {
	out := api.PassFit{State: string(f.State), Reason: f.Reason, Features: f.Features, Coef: f.Coef, Intercept: f.Intercept, Samples: f.Samples,
		R2: finite(f.R2), RMSE: finite(f.RMSE), MeanError: finite(f.MeanError), Range: f.Range}
	for _, e := range f.StdErr {
		out.StdErr = append(out.StdErr, finite(e))
	}
	return out
}

// dp is how many data-parallel ranks the workers of a pool have, and how many workers there are.
func dp(workers []planWorker, c planner.Component) (engines, ranks int) {
	for i := range workers {
		if w := &workers[i]; componentOf(w.role) == c && w.State != fpm.Stale {
			engines++
			ranks += len(w.Ranks) - w.Silent
		}
	}
	return engines, ranks
}

// capacity is what workers carry. A pass, and so a model, is of one data-parallel rank: a worker carries as
// many times that as it has ranks.
func (s *planSpace) capacity(workers []planWorker, q api.CapacityQuery) api.PassCapacity {
	cfg := s.planner.Config()
	out := api.PassCapacity{Namespace: s.namespace, Namespaces: []string{s.namespace}, TTFT: orElse(q.TTFT, cfg.TTFT), ITL: orElse(q.ITL, cfg.ITL),
		ISL: q.ISL, OSL: q.OSL, HitRate: q.Hit, Demand: q.Rate, ShapeFrom: "the question", DemandFrom: "the question"}
	if d := s.demand; d != nil {
		if q.ISL == nil || q.OSL == nil {
			out.ShapeFrom = d.From
		}
		for _, x := range []struct {
			to *(*float64)
			v  *float64
		}{{&out.ISL, &d.ISL}, {&out.OSL, &d.OSL}, {&out.HitRate, d.HitRate}} {
			if *x.to == nil && x.v != nil {
				*x.to = new(*x.v)
			}
		}
	}
	switch {
	case q.Rate == nil && s.demand != nil:
		out.Demand, out.DemandFrom = new(s.demand.RequestsPerSecond), s.demand.From
	case q.Rate == nil:
		out.DemandFrom = "not known: " + s.why
	}
	out.Assumptions = append(out.Assumptions, s.capsFrom...)
	shape := planner.Shape{ISL: orElse(out.ISL, 0), OSL: orElse(out.OSL, 0), HitRate: orElse(out.HitRate, 0)}
	if out.ISL == nil || out.OSL == nil {
		out.Reason = "how long requests are is not known"
		if s.why != "" {
			out.Reason += ": " + s.why
		}
		out.Reason += "; give isl and osl"
		return out
	}
	ranks, perWorker := map[planner.Component]int{}, map[planner.Component]float64{}
	asked := map[planner.Component]*int{planner.PrefillPool: q.Prefill, planner.DecodePool: q.Decode}
	workersOf := map[planner.Component]int{}
	for _, c := range []planner.Component{planner.PrefillPool, planner.DecodePool} {
		n, r := dp(workers, c)
		perWorker[c] = 1
		if n > 0 {
			perWorker[c] = float64(r) / float64(n)
		}
		if a := asked[c]; a != nil {
			n, r = *a, int(math.Round(float64(*a)*perWorker[c]))
		}
		workersOf[c], ranks[c] = n, r
		if perWorker[c] > 1 {
			out.Assumptions = append(out.Assumptions, fmt.Sprintf("an engine of the %s pool has %.3g data-parallel ranks: it carries so many times what a rank does", c, perWorker[c]))
		}
	}
	for c, most := range s.seen { // what a planner does without for its advice, and a capacity cannot
		if caps := s.caps[c]; caps.MaxBatchedTokens == 0 && most > 0 && s.mode == planner.ModeAgg {
			with := caps
			with.MaxBatchedTokens = most
			s.planner.SetCaps(c, with)
			defer s.planner.SetCaps(c, caps)
			out.Assumptions = append(out.Assumptions, fmt.Sprintf("max_num_batched_tokens is not known: the most tokens that a pass prefilled, %d, stand for it", most))
		}
	}
	answer := s.planner.Capacity(shape, planner.SLO{TTFT: out.TTFT, ITL: out.ITL}, orElse(out.Demand, 0), ranks)
	for _, p := range answer.Pools {
		x := api.PassPoolCapacity{Component: string(p.Component), Replicas: workersOf[p.Component], Reason: p.Reason}
		k := perWorker[p.Component]
		if e := p.Engine; e != nil {
			x.Engine = &api.PassEngineCapacity{RPS: e.RequestsPerSecond * k, TTFT: e.TTFT, ITL: e.ITL, Batch: e.Batch, Meets: e.Meets, Bound: string(e.Bound), Outside: e.Outside}
		}
		if p.Needed != nil {
			x.Needed = new(int(math.Ceil(float64(*p.Needed) / k)))
		}
		if l := p.AtDemand; l != nil {
			x.AtDemand = &api.PassLoadEstimate{TTFT: l.TTFT, ITL: l.ITL, Batch: l.Batch, Utilisation: l.Utilisation, Saturated: l.Saturated}
		}
		if p.Reason != "" && out.Reason == "" {
			out.Reason = string(p.Component) + ": " + p.Reason
		}
		out.Pools = append(out.Pools, x)
	}
	out.RPS, out.Limiting, out.Meets = finite(answer.RequestsPerSecond), string(answer.Limiting), answer.Meets
	return out
}
