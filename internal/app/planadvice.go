package app

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// fleets are the pools as the planner sees them: the latest message of each rank that is alive.
func fleets(workers []planWorker) map[planner.Component]*planner.Fleet {
	out := map[planner.Component]*planner.Fleet{planner.PrefillPool: {}, planner.DecodePool: {}}
	for i := range workers {
		w := &workers[i]
		f := out[componentOf(w.role)]
		for j := range w.Ranks {
			if r := &w.Ranks[j]; r.Current != nil {
				f.Engines = append(f.Engines, iterationOf(workerName(r.Key), r.Key, r.Current))
				f.QueueOnRankZero = f.QueueOnRankZero || w.QueueRule == fpm.QueueRank0
			}
		}
	}
	return out
}

// decided are the reasons with which a loop knows what it wants.
var decided = []planner.Reason{planner.NoChange, planner.ScaleUp, planner.ScaleDown, planner.CappedByThroughput, planner.Refusal, planner.SetLowerBound, planner.Scale}

// deployment is the planner's advice for workers as they are.
func (s *planSpace) deployment(now time.Time, workers []planWorker) api.PassDeployment {
	cfg := s.planner.Config()
	out := api.PassDeployment{
		Namespace: s.namespace, Mode: string(s.mode), ModeFrom: s.from, Target: string(cfg.Target), TTFT: cfg.TTFT, ITL: cfg.ITL,
		At: now.UTC().Format(time.RFC3339Nano), Replicas: map[string]int{},
	}
	pools := fleets(workers)
	situation := planner.Situation{Prefill: *pools[planner.PrefillPool], Decode: *pools[planner.DecodePool], Demand: s.demand.whole()}
	if d := situation.Demand; d != nil {
		out.Demand = &api.PassDemand{RequestsPerSecond: d.RequestsPerSecond, ISL: d.ISL, OSL: d.OSL, HitRate: d.HitRate, From: s.demand.from}
	}
	a := s.planner.Advise(situation)
	out.Load, out.Throughput, out.Notes = loopOf(a.Load), loopOf(a.Throughput), a.Notes
	s.wanted = map[string]int{}
	for _, l := range []planner.Loop{a.Load, a.Throughput} {
		for _, x := range l.Pools {
			if slices.Contains(decided, x.Reason) {
				s.wanted[string(x.Component)] = x.Current
			}
		}
	}
	for c, n := range a.Replicas {
		out.Replicas[string(c)], s.wanted[string(c)] = n, n
	}
	if situation.Demand == nil && s.demand.why != "" {
		out.Notes = append(out.Notes, "there is no demand to plan with: "+s.demand.why)
	}
	for _, h := range s.planner.Health() {
		m := api.PassModel{
			Component: string(h.Component), Role: string(s.planner.Model(h.Component).Role()), Fit: fitOf(h.Fit), Dynamo: fitOf(h.Dynamo),
			Cold:    api.PassCold{Passes: int64(h.ColdStart.Passes), Factor: finite(h.ColdStart.Factor)},
			Drift:   api.PassDrift{State: string(h.Drift.State), Changes: h.Drift.Changes, Pressure: h.Drift.Pressure},
			Refused: map[string]int64{},
		}
		m.Engines, m.Ranks = alive(workers, h.Component)
		m.TTFT, m.ITL = s.estimate(h.Component, pools[h.Component])
		if c, ok := s.changes[h.Component]; ok {
			m.Drift.At, m.Drift.Factor = stampOf(time.Unix(0, c.at)), new(c.factor)
		}
		for reason, n := range s.refused[h.Component] {
			m.Refused[reason] = n
		}
		if cfg.EnableThroughput && m.Ranks > m.Engines && m.Engines > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("engines of the %s pool have %.3g data-parallel ranks, and a pass is one rank's: "+
				"the throughput loop takes a rank's rate for an engine's and wants so many times too many; see the capacity", m.Component, float64(m.Ranks)/float64(m.Engines)))
		}
		out.Models = append(out.Models, m)
	}
	return out
}

// estimate is what the next request waits for its first token, and for each next one, at the worst of a
// pool's ranks as they are now. Nil is not known.
func (s *planSpace) estimate(c planner.Component, f *planner.Fleet) (ttft, itl *float64) {
	m := s.planner.Model(c)
	caps, _ := s.limits(c)
	hit := orElse(s.demand.hit, 0)
	worst := func(to **float64, v float64, ok bool) {
		if ok && (*to == nil || v > **to) {
			*to = new(v)
		}
	}
	for i := range f.Engines {
		e := &f.Engines[i]
		v, ok := m.TTFT(float64(e.QueuedPrefillTokens), float64(e.SumDecodeKVTokens), caps.MaxBatchedTokens, hit)
		worst(&ttft, v, ok)
		v, ok = m.ITL(float64(e.SumDecodeKVTokens), float64(e.QueuedDecodeKVTokens))
		worst(&itl, v, ok)
	}
	return finite(ttft), finite(itl)
}

// limits are those of a pool's ranks. What an estimate cannot do without and nobody tells is taken from what
// was seen; the note says so.
func (s *planSpace) limits(c planner.Component) (caps planner.Caps, note string) {
	caps = s.caps[c]
	if most := s.seen[c]; caps.MaxBatchedTokens == 0 && most > 0 {
		caps.MaxBatchedTokens = most
		note = fmt.Sprintf("max_num_batched_tokens of the %s pool is not known: the most tokens that a pass prefilled, %d, stand for it", c, most)
	}
	return caps, note
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

// alive is how many workers of a pool send, and how many data-parallel ranks of theirs.
func alive(workers []planWorker, c planner.Component) (engines, ranks int) {
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
	if d := &s.demand; q.ISL == nil || q.OSL == nil {
		out.ShapeFrom = cmp.Or(d.from, "not known: "+d.why)
		out.ISL, out.OSL = firstOf(q.ISL, d.isl), firstOf(q.OSL, d.osl)
	}
	out.HitRate = firstOf(q.Hit, s.demand.hit)
	if q.Rate == nil {
		out.Demand, out.DemandFrom = firstOf(s.demand.rate), s.demand.from
		if out.Demand == nil {
			out.DemandFrom = "not known: " + s.demand.why
		}
	}
	out.Assumptions = append(out.Assumptions, s.capsFrom...)
	if out.ISL == nil || out.OSL == nil {
		out.Reason = "how long requests are is not known"
		if s.demand.why != "" {
			out.Reason += ": " + s.demand.why
		}
		out.Reason += "; give isl and osl"
		return out
	}
	if out.HitRate == nil {
		out.Assumptions = append(out.Assumptions, "no hit rate of the prefix cache is known: prompts are computed whole")
	}
	shape := planner.Shape{ISL: *out.ISL, OSL: *out.OSL, HitRate: orElse(out.HitRate, 0)}
	asked := map[planner.Component]*int{planner.PrefillPool: q.Prefill, planner.DecodePool: q.Decode}
	least := map[planner.Component]int{planner.PrefillPool: cfg.MinPrefill, planner.DecodePool: cfg.MinDecode}
	engines, ranks, each := map[planner.Component]int{}, map[planner.Component]int{}, map[planner.Component]float64{}
	for _, c := range bothPools {
		m := s.planner.Model(c)
		if m == nil {
			continue
		}
		n, r := alive(workers, c)
		each[c] = 1
		if n > 0 {
			each[c] = float64(r) / float64(n)
		}
		if each[c] > 1 {
			out.Assumptions = append(out.Assumptions, fmt.Sprintf("an engine of the %s pool has %.3g data-parallel ranks: it carries so many times what a rank does", c, each[c]))
		}
		if a := asked[c]; a != nil {
			n, r = *a, int(math.Round(float64(*a)*each[c]))
		}
		engines[c], ranks[c] = n, r
		if caps, note := s.limits(c); note != "" && m.Role() == planner.Aggregated { // which has no rate without
			s.planner.SetCaps(c, caps)
			defer s.planner.SetCaps(c, s.caps[c])
			out.Assumptions = append(out.Assumptions, note)
		}
	}
	answer := s.planner.Capacity(shape, planner.SLO{TTFT: out.TTFT, ITL: out.ITL}, orElse(out.Demand, 0), ranks)
	out.RPS, out.Limiting, out.Meets = finite(answer.RequestsPerSecond), string(answer.Limiting), answer.Meets
	for _, p := range answer.Pools {
		k := each[p.Component]
		x := api.PassPoolCapacity{Component: string(p.Component), Replicas: engines[p.Component], Reason: p.Reason}
		if e := p.Engine; e != nil {
			x.Engine = &api.PassEngineCapacity{RPS: e.RequestsPerSecond * k, TTFT: e.TTFT, ITL: e.ITL, Batch: int(math.Round(float64(e.Batch) * k)),
				Meets: e.Meets, Bound: string(e.Bound), Outside: e.Outside}
			if engines[p.Component] == 0 && asked[p.Component] == nil { // they are silent, which is not that they carry nothing
				x.Reason = "no engine of this pool sends now"
				out.RPS, out.Limiting, out.Meets = nil, "", false
			}
		}
		if p.Needed != nil {
			x.Needed = new(max(least[p.Component], int(math.Ceil(float64(*p.Needed)/k))))
		}
		if l := p.AtDemand; l != nil {
			x.AtDemand = &api.PassLoadEstimate{TTFT: l.TTFT, ITL: l.ITL, Batch: l.Batch * k, Utilisation: l.Utilisation, Saturated: l.Saturated}
		}
		if x.Reason != "" && out.Reason == "" {
			out.Reason = x.Component + ": " + x.Reason
		}
		out.Pools = append(out.Pools, x)
	}
	return out
}

// firstOf is a copy of the first number that is known, nil without one.
func firstOf(list ...*float64) *float64 {
	for _, p := range list {
		if p != nil {
			return new(*p)
		}
	}
	return nil
}
