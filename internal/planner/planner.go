package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// Planner learns from the passes of one deployment and advises on it. [New] makes one.
type Planner struct {
	cfg   Config
	pools map[Component]*pool

	floor   map[Component]int // lower bounds that the throughput loop has set for the load loop
	hitRate float64           // of the last demand that told one; between demands it holds
	drops   map[Verdict]uint64
}

// pool is one pool of engines, with two models: one of all passes, as Dynamo's, to say what Dynamo would do,
// and one of our own without cold starts and without what came before a change, to say what is true.
type pool struct {
	caps  Caps
	all   *Model
	own   *Model
	cold  cold
	watch watch
}

// New makes a planner. caps are the limits of an engine of each pool; in mode agg only decode's count.
func New(cfg Config, caps map[Component]Caps) (*Planner, error) {
	if err := cfg.settle(); err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	p := &Planner{cfg: cfg, pools: map[Component]*pool{}, floor: map[Component]int{}, drops: map[Verdict]uint64{}}
	for _, c := range []Component{PrefillPool, DecodePool} {
		if !cfg.has(c) {
			continue
		}
		role := Role(c)
		if cfg.Mode == ModeAgg {
			role = Aggregated
		}
		x := &pool{cold: cold{first: cfg.ColdStartPasses}}
		for _, m := range []**Model{&x.all, &x.own} {
			var err error
			if *m, err = NewModel(role, cfg.MaxSamples, cfg.Buckets, cfg.MinObservations); err != nil {
				return nil, err
			}
		}
		p.pools[c], p.floor[c] = x, 1
		p.SetCaps(c, caps[c])
	}
	return p, nil
}

// SetCaps says that the limits of an engine of a pool became known, or are others now. What was learned stays.
func (p *Planner) SetCaps(c Component, caps Caps) {
	if x := p.pools[c]; x != nil {
		if n := map[Component]int{PrefillPool: p.cfg.PrefillGPUs, DecodePool: p.cfg.DecodeGPUs}[c]; n > 0 {
			caps.GPUs = n
		}
		x.caps = caps
	}
}

// Config returns the settings in force.
func (p *Planner) Config() Config { return p.cfg }

// Observe takes in one pass of an engine of a pool. The change is not nil at the pass at which the pool's
// model is noticed to hold no longer. Dynamo looks at each engine's latest message once in a
// load_adjustment_interval; who wants its very numbers calls Observe so, who wants to know sooner each time.
func (p *Planner) Observe(c Component, it Iteration) (Verdict, *Change) {
	x := p.pools[c]
	v := it.check()
	if x == nil {
		v = WrongPool
	}
	switch v {
	case Heartbeat:
		x.all.Observe(it)
		x.own.Observe(it)
		return v, nil
	case Sample:
	default:
		p.drops[v]++
		return v, nil
	}
	x.all.Observe(it)
	s := sample{x: x.own.features(&it), y: it.WallTime, seq: x.own.seq + 1}
	if x.own.role == Aggregated {
		s.batch = float64(it.NumDecodeRequests)
	}
	if x.cold.is(&it) {
		x.own.average(&it) // it says what the load is, only not how long it takes
		x.cold.keep(s)
		return Cold, nil
	}
	change := x.watch.see(x.own, s)
	x.own.Observe(it)
	return Sample, change
}

// Restarted says that an engine's rank began anew, so that its next passes are cold ones.
func (p *Planner) Restarted(c Component, worker string, rank int) {
	if x := p.pools[c]; x != nil {
		x.cold.restarted(worker, rank)
	}
}

// Drop is a number of passes that were not taken, by reason.
type Drop struct {
	Reason string
	Count  uint64
}

// Drops tells what was refused so far, by reason in order.
func (p *Planner) Drops() []Drop {
	var out []Drop
	for v, n := range p.drops {
		out = append(out, Drop{string(v), n})
	}
	slices.SortFunc(out, func(a, b Drop) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// Health is how far a pool's model can be trusted.
type Health struct {
	Component Component
	Fit       Fit       // of our own model: without cold starts and what came before a change
	Dynamo    Fit       // of all passes, on which Dynamo decides
	ColdStart ColdStart // what was set apart
	Drift     Drift     // whether the model still holds
}

// Health judges the models, prefill before decode.
func (p *Planner) Health() []Health {
	var out []Health
	for _, c := range []Component{PrefillPool, DecodePool} {
		if x := p.pools[c]; x != nil {
			out = append(out, Health{Component: c, Fit: x.own.Fit(), Dynamo: x.all.Fit(), ColdStart: x.cold.report(x.own), Drift: x.watch.report()})
		}
	}
	return out
}

// Model returns our own model of a pool, nil when the mode has no such pool. It stays the planner's.
func (p *Planner) Model(c Component) *Model {
	if x := p.pools[c]; x != nil {
		return x.own
	}
	return nil
}

// Answer is what a fleet carries within a promise.
type Answer struct {
	Pools []PoolAnswer
	// RequestsPerSecond of the whole fleet: the least of its pools; nil unless all pools are known.
	RequestsPerSecond *float64
	Limiting          Component // the pool that carries least; "" while it is not known
	Meets             bool      // false: some pool breaks the promise even at its least load
}

// PoolAnswer is a pool's part of an [Answer].
type PoolAnswer struct {
	Component Component
	Replicas  int       // engines that it was asked for
	Engine    *Capacity // of one engine; nil when it is not known, then Reason says why
	Needed    *int      // replicas for the demand; nil without a demand or an engine
	AtDemand  *Load     // one engine's share of the demand on these replicas; nil without a demand or replicas
	Reason    string
}

// Capacity answers what the fleet carries: with the given replicas of each pool, for requests of this shape,
// within slo, and how it stands at demand requests a second (0 when none is asked for). It uses our own models.
func (p *Planner) Capacity(shape Shape, slo SLO, demand float64, replicas map[Component]int) Answer {
	out := Answer{Meets: true}
	known := true
	var fleet float64
	for _, c := range []Component{PrefillPool, DecodePool} {
		x := p.pools[c]
		if x == nil {
			continue
		}
		a := PoolAnswer{Component: c, Replicas: replicas[c]}
		if engine, ok := x.own.Capacity(shape, slo, x.caps); !ok {
			a.Reason, known = p.whyNot(x, shape), false
		} else {
			a.Engine = &engine
			out.Meets = out.Meets && engine.Meets
			if carries := engine.RequestsPerSecond * float64(replicas[c]); out.Limiting == "" || carries < fleet {
				fleet, out.Limiting = carries, c
			}
			if demand > 0 {
				n := engine.Replicas(demand, slo, p.cfg.least(c))
				a.Needed = &n
			}
		}
		if demand > 0 && replicas[c] > 0 {
			if l, ok := x.own.At(demand/float64(replicas[c]), shape, x.caps); ok {
				a.AtDemand = &l
			}
		}
		out.Pools = append(out.Pools, a)
	}
	if known {
		out.RequestsPerSecond = &fleet
	} else {
		out.Limiting, out.Meets = "", false
	}
	return out
}

// whyNot says why a pool gave no capacity.
func (p *Planner) whyNot(x *pool, shape Shape) string {
	if f := x.own.Fit(); f.State != Fitted {
		return f.Reason
	}
	if x.own.role == Aggregated && x.caps.MaxBatchedTokens <= 0 {
		return "max_num_batched_tokens is not known"
	}
	return fmt.Sprintf("requests of %g tokens in and %g out have no rate; both must be above 0", shape.ISL, shape.OSL)
}
