package planner

import (
	"fmt"
	"math"
	"slices"
)

// Fleet is a pool's present state.
type Fleet struct {
	Engines  []Iteration // the latest message of each engine's rank that is alive; heartbeats are fine
	Ready    *int        // replicas that are ready, as the deployment says; nil: as many as there are workers in Engines
	Expected *int        // replicas that were asked for last; nil when not known
	// QueueOnRankZero says that the engines put the queue of all ranks into rank 0's messages (TensorRT-LLM
	// with attention DP). Dynamo takes it for rank 0's own; the notes tell what sharing it out would change.
	QueueOnRankZero bool

	replicas  int    // counted by count
	uncovered string // why the messages do not cover them; "" when they do
}

// shared returns the fleet with rank 0's queue shared out among the ranks of its worker.
func (f Fleet) shared() Fleet {
	type queue struct{ prefill, kv, ranks int64 }
	of := map[string]queue{}
	for _, e := range f.Engines {
		q := of[e.Worker]
		of[e.Worker] = queue{q.prefill + e.QueuedPrefillTokens, q.kv + e.QueuedDecodeKVTokens, q.ranks + 1}
	}
	f.Engines = slices.Clone(f.Engines)
	for i := range f.Engines {
		e := &f.Engines[i]
		q := of[e.Worker]
		e.QueuedPrefillTokens, e.QueuedDecodeKVTokens = q.prefill/q.ranks, q.kv/q.ranks
	}
	return f
}

// Demand is what is coming: a forecast, or what was measured last (Dynamo's predictor "constant").
type Demand struct {
	RequestsPerSecond float64
	ISL, OSL          float64  // tokens; averages over no request are not numbers, and count as no demand known
	HitRate           *float64 // 0..1; nil when not known
}

// Situation is what is advised on.
type Situation struct {
	Prefill, Decode Fleet
	Demand          *Demand // nil when this is not a moment of the throughput loop
}

func (s *Situation) of(c Component) *Fleet {
	if c == PrefillPool {
		return &s.Prefill
	}
	return &s.Decode
}

// Advice is what Dynamo's planner would do and why.
type Advice struct {
	Load       Loop
	Throughput Loop
	// Replicas that it would scale to; empty when it would leave all as it is. The load loop's word goes first.
	Replicas map[Component]int
	// Notes tell where our own models see it differently.
	Notes []string
}

// Loop is the outcome of one of the planner's two loops.
type Loop struct {
	Reason Reason
	Pools  []PoolAdvice
	acts   bool // it has a decision
}

// PoolAdvice is a loop's outcome for one pool.
type PoolAdvice struct {
	Component Component
	Current   int
	Want      int // equal to Current when nothing is to be done
	Reason    Reason
	Why       string   // one sentence with the numbers
	TTFT, ITL *float64 // seconds, of the worst engine; nil where nothing was estimated
	RPS       *float64 // requests a second of one engine (throughput loop)
	Engines   []EngineView
}

// EngineView is one engine's rank as the load loop saw it.
type EngineView struct {
	Worker               string
	Rank                 int
	QueuedPrefillTokens  int64
	QueuedDecodeKVTokens int64
	InflightKVTokens     int64
	TTFT, ITL            *float64 // seconds; nil outside the sla target or without a model
	Signal               *float64 // what the thresholds of the other targets look at: a ratio, or tokens for load's prefill
}

// Advise says what Dynamo would do now. It observes nothing. A demand sets the hit rate, and with both loops
// on the lower bounds, that later calls use; as in Dynamo, the load loop of this call still uses the former.
func (p *Planner) Advise(s Situation) Advice {
	all := func(x *pool) *Model { return x.all }
	own := func(x *pool) *Model { return x.own }
	s.Prefill.count()
	s.Decode.count()
	mine, models, queues := p.second(s)
	a := Advice{Load: p.load(&s, all), Throughput: Loop{Reason: Unset}}
	if why := join(models, queues); why != "" && p.cfg.EnableLoad {
		a.Notes = compare(a.Notes, "load", why, a.Load, p.load(&mine, own))
	}
	switch {
	case !p.cfg.EnableThroughput:
		a.Throughput.Reason = Disabled
	case s.Demand != nil:
		a.Throughput = p.throughput(&s, all)
		if models != "" {
			a.Notes = compare(a.Notes, "throughput", models, a.Throughput, p.throughput(&mine, own))
		}
		if a.Throughput.Reason == SetLowerBound {
			for _, x := range a.Throughput.Pools {
				p.floor[x.Component] = x.Want
			}
		}
	}
	if d := s.Demand; d != nil && d.HitRate != nil && !math.IsNaN(*d.HitRate) {
		p.hitRate = *d.HitRate
	}
	for _, l := range []Loop{a.Load, a.Throughput} {
		if l.acts && a.Replicas == nil {
			a.Replicas = map[Component]int{}
			for _, x := range l.Pools {
				a.Replicas[x.Component] = x.Want
			}
		}
	}
	return a
}

// second says what a second opinion rests on, and why it is worth having: "" for the same models, or queues.
func (p *Planner) second(s Situation) (mine Situation, models, queues string) {
	if p.cfg.Target == TargetSLA {
		for _, x := range p.pools {
			if x.cold.count > 0 || x.watch.changes > 0 {
				models = "without cold starts and passes from before a change"
			}
		}
	}
	for _, f := range []*Fleet{&s.Prefill, &s.Decode} {
		if f.QueueOnRankZero {
			*f, queues = f.shared(), "with rank 0's queue shared among its worker's ranks"
		}
	}
	return s, models, queues
}

func join(a, b string) string {
	if a != "" && b != "" {
		return a + ", " + b
	}
	return a + b
}

func compare(notes []string, loop, why string, dynamo, ours Loop) []string {
	for i, x := range dynamo.Pools {
		if i < len(ours.Pools) && ours.Pools[i].Want != x.Want {
			notes = append(notes, fmt.Sprintf("the %s loop wants %d for %s; %s it would be %d (%s)",
				loop, x.Want, x.Component, why, ours.Pools[i].Want, ours.Pools[i].Why))
		}
	}
	return notes
}

// count finds out how many replicas there are and whether the messages cover them.
func (f *Fleet) count() {
	seen, ranks := map[engineKey]bool{}, map[string]int{}
	for i := range f.Engines {
		if k := (engineKey{f.Engines[i].Worker, f.Engines[i].Rank}); !seen[k] {
			seen[k] = true
			ranks[k.worker]++
		}
	}
	f.replicas, f.uncovered = len(ranks), ""
	if f.Ready != nil {
		f.replicas = *f.Ready
	}
	if len(ranks) != f.replicas {
		f.uncovered = fmt.Sprintf("%d replicas are ready and %d send passes", f.replicas, len(ranks))
		return
	}
	least, most := math.MaxInt, 0
	for _, n := range ranks {
		least, most = min(least, n), max(most, n)
	}
	if most > 0 && least != most {
		f.uncovered = fmt.Sprintf("some replicas send for %d ranks and some for %d", least, most)
	}
}

func (f *Fleet) moving() bool { return f.Expected != nil && *f.Expected != f.replicas }

// proposal is what one pool's rule says before bounds and budgets.
type proposal struct {
	want    int
	decided bool // false: the rule says nothing, as Python's None
	refused bool // a smaller pool would not carry it
	reason  Reason
	why     string
	ttft    *float64
	itl     *float64
	engines []EngineView
	bounds  bool // bounds apply although the rule says nothing (agg)
}

func (p *Planner) load(s *Situation, pick func(*pool) *Model) Loop {
	if !p.cfg.EnableLoad {
		return Loop{Reason: Disabled}
	}
	var pools []Component
	for _, c := range []Component{PrefillPool, DecodePool} {
		if p.pools[c] != nil {
			pools = append(pools, c)
		}
	}
	// stop gives one reason to all pools; silent ones first, as Dynamo asks.
	stop := func(r Reason, why string) Loop {
		l := Loop{Reason: r}
		for _, c := range pools {
			n := s.of(c).replicas
			l.Pools = append(l.Pools, PoolAdvice{Component: c, Current: n, Want: n, Reason: r, Why: why})
		}
		return l
	}
	silent := 0
	for _, c := range pools {
		if len(s.of(c).Engines) == 0 {
			silent++
		}
	}
	if silent == len(pools) {
		return stop(NoFPMData, "no engine sends forward passes")
	}
	for _, c := range pools {
		if f := s.of(c); f.moving() {
			return stop(ScalingInProgress, fmt.Sprintf("%s is on its way from %d to %d replicas", c, f.replicas, *f.Expected))
		}
	}
	for _, c := range pools {
		if f := s.of(c); len(f.Engines) > 0 {
			if f.uncovered != "" {
				return stop(WorkerCountMismatch, string(c)+": "+f.uncovered)
			}
		}
	}
	props := map[Component]proposal{}
	for _, c := range pools {
		f := s.of(c)
		if len(f.Engines) == 0 {
			props[c] = proposal{reason: NoChange, why: "no engine of this pool sends forward passes"}
			if f.Ready == nil {
				props[c] = proposal{reason: NoFPMData, why: "no engine of this pool sends forward passes, and nobody says how many replicas it has"}
			}
			continue
		}
		props[c] = p.propose(c, f, pick(p.pools[c]))
	}
	if len(pools) == 2 {
		return p.loadBoth(s, props)
	}
	return p.loadOne(pools[0], s.of(pools[0]), props[pools[0]])
}

// propose asks the rule of the target and the role.
func (p *Planner) propose(c Component, f *Fleet, m *Model) proposal {
	n := f.replicas
	if n == 0 {
		return proposal{reason: InsufficientData, why: "there are no replicas"}
	}
	switch {
	case p.cfg.Target != TargetSLA:
		return p.threshold(c, f, n)
	case m.role == Aggregated:
		return p.slaAgg(f, n, m)
	case m.role == Prefill:
		return p.slaTTFT(c, f, n, m)
	}
	return p.slaITL(c, f, n, m)
}

// loadOne finishes the advice for a deployment of one pool.
func (p *Planner) loadOne(c Component, f *Fleet, x proposal) Loop {
	n := f.replicas
	out := PoolAdvice{Component: c, Current: n, Want: n, Reason: x.reason, Why: x.why, TTFT: x.ttft, ITL: x.itl, Engines: x.engines}
	agg := p.cfg.Mode == ModeAgg
	if !x.decided && !(agg && x.bounds) {
		return Loop{Reason: x.reason, Pools: []PoolAdvice{out}}
	}
	asked := n
	if x.decided {
		asked = x.want
	}
	want := asked
	if agg {
		want = max(want, p.cfg.least(c))
	}
	if p.cfg.EnableThroughput && p.floor[c] > want {
		want = p.floor[c]
		out.Why += fmt.Sprintf("; the throughput loop's lower bound is %d", want)
	}
	want, limited := p.budgetOne(c, n, want)
	if limited != "" {
		out.Why += "; " + limited
	}
	lifted := want > asked && asked < n
	out.Want = want
	switch {
	case want > n:
		out.Reason = ScaleUp
	case want < n && want > asked, want == n && lifted && agg && p.cfg.Target == TargetSLA:
		out.Reason = CappedByThroughput
	case want < n:
		out.Reason = ScaleDown
	case x.refused:
		out.Reason = Refusal
	default:
		out.Reason = NoChange
	}
	return Loop{Reason: out.Reason, Pools: []PoolAdvice{out}, acts: want != n}
}

// loadBoth finishes the advice for a prefill and a decode pool that share a budget.
func (p *Planner) loadBoth(s *Situation, props map[Component]proposal) Loop {
	pools := []Component{PrefillPool, DecodePool}
	var now, asked, bound, final [2]int
	for i, c := range pools {
		now[i] = s.of(c).replicas
		asked[i] = now[i]
		if props[c].decided {
			asked[i] = props[c].want
		}
		bound[i] = asked[i]
		if p.cfg.EnableThroughput {
			bound[i] = max(bound[i], p.floor[c])
		}
		final[i] = max(bound[i], p.cfg.least(c))
	}
	final, limited := p.budgetBoth(now, final)
	for i, c := range pools {
		if props[c].reason == NoFPMData {
			final[i], bound[i] = now[i], asked[i] // a pool of unknown size is left alone
		}
	}
	l := Loop{acts: final != now}
	rank := map[Reason]int{ScaleUp: 4, CappedByThroughput: 3, ScaleDown: 2, NoChange: 1}
	for i, c := range pools {
		x := props[c]
		capped := bound[i] > asked[i] && asked[i] < now[i]
		a := PoolAdvice{Component: c, Current: now[i], Want: final[i], Why: x.why, TTFT: x.ttft, ITL: x.itl, Engines: x.engines}
		switch {
		case final[i] > now[i]:
			a.Reason = ScaleUp
		case capped:
			a.Reason = CappedByThroughput
		case final[i] < now[i]:
			a.Reason = ScaleDown
		default:
			a.Reason = NoChange
		}
		if bound[i] > asked[i] {
			a.Why += fmt.Sprintf("; the throughput loop's lower bound is %d", bound[i])
		}
		if limited != "" && x.reason != NoFPMData && final[i] != max(bound[i], p.cfg.least(c)) {
			a.Why += "; " + limited
		}
		if rank[a.Reason] > rank[l.Reason] {
			l.Reason = a.Reason
		}
		if !l.acts && x.reason != "" && x.reason != NoChange && !x.decided {
			a.Reason = x.reason // which side is stuck, and on what
		}
		l.Pools = append(l.Pools, a)
	}
	if !l.acts {
		for _, c := range pools {
			if x := props[c]; !x.decided && x.reason != "" && x.reason != NoChange {
				l.Reason = x.reason
				break
			}
		}
	}
	return l
}

// budgetOne holds a pool within the GPU budgets, and says so when it had to.
func (p *Planner) budgetOne(c Component, now, want int) (int, string) {
	g := p.pools[c].caps.GPUs
	if g <= 0 {
		return want, ""
	}
	least := p.cfg.least(c)
	want = max(want, least)
	if most := p.cfg.MaxGPUs; most >= 0 && want*g > most {
		if most < least*g {
			return 0, fmt.Sprintf("max_gpu_budget of %d GPUs is below the %d of min_endpoint", most, least*g)
		}
		return max(least, most/g), fmt.Sprintf("max_gpu_budget is %d GPUs and a replica has %d", most, g)
	}
	if floor := p.cfg.MinGPUs; floor >= 0 && want < now && want*g < floor {
		return min(now, (floor+g-1)/g), fmt.Sprintf("min_gpu_budget is %d GPUs and a replica has %d", floor, g)
	}
	return want, ""
}

// budgetBoth shrinks two pools in proportion to fit max_gpu_budget, prefill rounded down first.
func (p *Planner) budgetBoth(now, want [2]int) ([2]int, string) {
	g := [2]int{p.pools[PrefillPool].caps.GPUs, p.pools[DecodePool].caps.GPUs}
	if g[0] <= 0 || g[1] <= 0 {
		return want, ""
	}
	total := want[0]*g[0] + want[1]*g[1]
	least := [2]int{p.cfg.MinPrefill, p.cfg.MinDecode}
	if most := p.cfg.MaxGPUs; most >= 0 && total > most {
		said := fmt.Sprintf("%d GPUs are above max_gpu_budget of %d", total, most)
		if most < least[0]*g[0]+least[1]*g[1] {
			return [2]int{}, said + ", which is below what min_endpoint needs"
		}
		fits := (most - least[1]*g[1]) / g[0]
		scaled := int(math.Floor(float64(want[0]) * (float64(most) / float64(total))))
		want[0] = max(least[0], min(fits, scaled))
		want[1] = max(least[1], (most-want[0]*g[0])/g[1])
		return want, said
	}
	if floor := p.cfg.MinGPUs; floor >= 0 && total < floor && total < now[0]*g[0]+now[1]*g[1] {
		return now, fmt.Sprintf("%d GPUs are below min_gpu_budget of %d", total, floor)
	}
	return want, ""
}

// throughput is the loop that looks at demand: replicas for it, from what one engine carries.
func (p *Planner) throughput(s *Situation, pick func(*pool) *Model) Loop {
	d := s.Demand
	var pools []Component
	for _, c := range []Component{PrefillPool, DecodePool} {
		if p.pools[c] != nil {
			pools = append(pools, c)
		}
	}
	l := Loop{Reason: Scale}
	bad := math.IsNaN(d.RequestsPerSecond+d.ISL+d.OSL) || math.IsInf(d.RequestsPerSecond+d.ISL+d.OSL, 0) || d.RequestsPerSecond < 0
	shape := Shape{ISL: d.ISL, OSL: d.OSL} // without a hit rate this loop discounts nothing; the load loop keeps the last one
	if d.HitRate != nil {
		shape.HitRate = *d.HitRate
	}
	ready := true
	for _, c := range pools {
		x := p.pools[c]
		a := PoolAdvice{Component: c, Current: s.of(c).replicas}
		a.Want = a.Current
		if bad {
			a.Reason, a.Why = NoTrafficData, "no request came, so there is no average length to plan with"
			l.Reason, ready = NoTrafficData, false
			l.Pools = append(l.Pools, a)
			continue
		}
		m := pick(x)
		engine, ok := m.Capacity(shape, p.cfg.SLO(), x.caps)
		if !ok {
			a.Reason, ready = ModelNotReady, false
			a.Why = "no line is fitted, or the requests have no length"
			if f := m.Fit(); f.State != Fitted {
				a.Why = f.Reason
			} else if m.role == Aggregated && x.caps.MaxBatchedTokens <= 0 {
				a.Why = "max_num_batched_tokens is not known"
			}
			l.Pools = append(l.Pools, a)
			continue
		}
		a.RPS = &engine.RequestsPerSecond
		a.Want = engine.Replicas(d.RequestsPerSecond, p.cfg.SLO(), p.cfg.least(c))
		a.Why = fmt.Sprintf("%.4g requests a second at %.4g an engine (bound by %s)", d.RequestsPerSecond, engine.RequestsPerSecond, engine.Bound)
		if !engine.Meets {
			a.Why += "; even the least load breaks the promise"
		}
		l.Pools = append(l.Pools, a)
	}
	if !ready {
		for i := range l.Pools {
			x := &l.Pools[i]
			if x.Reason == "" {
				x.Reason, x.Want = PartnerNotReady, x.Current
				x.Why += "; the other pool's model is not ready"
			}
		}
		if l.Reason != NoTrafficData {
			l.Reason = ModelNotReady
		}
		return l
	}
	if p.cfg.EnableLoad {
		l.Reason = SetLowerBound
	} else if len(pools) == 2 {
		both, limited := p.budgetBoth([2]int{l.Pools[0].Current, l.Pools[1].Current}, [2]int{l.Pools[0].Want, l.Pools[1].Want})
		l.Pools[0].Want, l.Pools[1].Want = both[0], both[1]
		if limited != "" {
			l.Pools[0].Why += "; " + limited
			l.Pools[1].Why += "; " + limited
		}
		l.acts = true
	} else {
		want, limited := p.budgetOne(pools[0], l.Pools[0].Current, l.Pools[0].Want)
		if l.Pools[0].Want = want; limited != "" {
			l.Pools[0].Why += "; " + limited
		}
		l.acts = true
	}
	for i := range l.Pools {
		l.Pools[i].Reason = l.Reason
	}
	return l
}
