package planner

import (
	"fmt"
	"math"
)

// Dynamo's static thresholds. For prefill they look at queued tokens over the model's context length, for
// decode and aggregated at KV tokens in batch and queue over the size of the cache.
const (
	prefillThroughputUp, prefillThroughputDown = 1.0, 0.1
	prefillLatencyUp, prefillLatencyDown       = 0.1, 0.0
	decodeThroughputUp, decodeThroughputDown   = 1.0, 0.6
	decodeLatencyUp, decodeLatencyDown         = 0.4, 0.1
)

// threshold is the rule of the targets throughput, latency and load: one replica more when any engine is at
// or above the upper threshold, one less when all are below the lower.
func (p *Planner) threshold(c Component, f *Fleet, n int) proposal {
	caps, agg := p.pools[c].caps, p.cfg.Mode == ModeAgg
	var up, down float64
	unit, scale := "of max_kv_tokens", float64(caps.MaxKVTokens)
	missing := "max_kv_tokens is not known"
	// Which side of a threshold acts differs: prefill goes up at it and decode above it; the down side of
	// latency's and load's is inclusive, so that an empty queue counts.
	atUp, atDown := false, false
	switch {
	case c == PrefillPool && p.cfg.Target == TargetLoad:
		up, down, unit, scale = float64(*p.cfg.PrefillUpTokens), float64(*p.cfg.PrefillDownTokens), "queued tokens", 1
		atUp, atDown = true, true
	case c == PrefillPool:
		up, down, unit, scale = prefillThroughputUp, prefillThroughputDown, "of context_length", float64(caps.ContextLength)
		missing, atUp = "context_length is not known", true
		if p.cfg.Target == TargetLatency {
			up, down, atDown = prefillLatencyUp, prefillLatencyDown, true
		}
	case p.cfg.Target == TargetLoad:
		up, down, atUp, atDown = *p.cfg.DecodeUpKV/100, *p.cfg.DecodeDownKV/100, true, true
	case p.cfg.Target == TargetLatency:
		up, down = decodeLatencyUp, decodeLatencyDown
	default:
		up, down = decodeThroughputUp, decodeThroughputDown
	}
	if scale <= 0 {
		return proposal{reason: InsufficientData, why: missing, engines: views(f)}
	}
	x := proposal{engines: views(f)}
	anyUp, allDown := false, true
	least, most := math.Inf(1), math.Inf(-1)
	for i := range x.engines {
		e := &x.engines[i]
		v := float64(e.QueuedPrefillTokens)
		if c != PrefillPool {
			v = float64(e.InflightKVTokens + e.QueuedDecodeKVTokens)
			if agg {
				v += float64(e.QueuedPrefillTokens) // it becomes KV before long
			}
		}
		v /= scale
		e.Signal = &v
		least, most = math.Min(least, v), math.Max(most, v)
		anyUp = anyUp || v > up || atUp && v == up
		allDown = allDown && (v < down || atDown && v == down)
	}
	switch {
	case anyUp:
		x.want, x.decided, x.reason = n+1, true, ScaleUp
		x.why = fmt.Sprintf("an engine is at %.4g %s, the threshold is %.4g", most, unit, up)
	case allDown && n > 1:
		x.want, x.decided, x.reason = max(n-1, p.cfg.least(c)), true, ScaleDown
		x.why = fmt.Sprintf("all engines are at %.4g %s or less, the threshold is %.4g", most, unit, down)
	default:
		x.reason = NoChange
		x.why = fmt.Sprintf("engines are at %.4g to %.4g %s, between the thresholds %.4g and %.4g", least, most, unit, down, up)
		if allDown {
			x.why = fmt.Sprintf("all engines are at %.4g %s or less, and this is the last replica", most, unit)
		}
	}
	return x
}

func views(f *Fleet) []EngineView {
	out := make([]EngineView, len(f.Engines))
	for i := range f.Engines {
		e := &f.Engines[i]
		out[i] = EngineView{Worker: e.Worker, Rank: e.Rank, QueuedPrefillTokens: e.QueuedPrefillTokens,
			QueuedDecodeKVTokens: e.QueuedDecodeKVTokens, InflightKVTokens: e.SumDecodeKVTokens}
	}
	return out
}

// side collects what one latency says about all engines of a pool: scale up when every engine breaks the
// promise, down when one engine less would keep it with the margin of load_scaling_down_sensitivity.
type side struct {
	name      string
	slo       float64 // seconds
	n, least  int
	candown   bool
	refused   bool
	refusal   string
	all       bool
	low, high float64
	seen      int
}

func newSide(name string, slo float64, n, least int) side {
	return side{name: name, slo: slo, n: n, least: least, candown: n > 1, all: true, low: math.Inf(1), high: math.Inf(-1)}
}

func (s *side) estimate(v float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	s.seen++
	s.all = s.all && v > s.slo
	s.low, s.high = math.Min(s.low, v), math.Max(s.high, v)
	return &v
}

func (s *side) refuse(format string, args ...any) {
	if !s.refused {
		s.refusal = fmt.Sprintf(format, args...)
	}
	s.candown, s.refused = false, true
}

func (s *side) propose() proposal {
	if s.seen == 0 {
		return proposal{reason: InsufficientData, why: "the model has no usable line yet"}
	}
	high := s.high
	x := proposal{}
	if s.name == "TTFT" {
		x.ttft = &high
	} else {
		x.itl = &high
	}
	ms := func(v float64) float64 { return v * 1000 }
	switch {
	case s.all:
		x.want, x.decided, x.reason = s.n+1, true, ScaleUp
		x.why = fmt.Sprintf("every engine's estimated %s is above %.4g ms (%.4g to %.4g ms)", s.name, ms(s.slo), ms(s.low), ms(s.high))
	case s.candown:
		x.want, x.decided, x.reason = max(s.n-1, s.least), true, ScaleDown
		x.why = fmt.Sprintf("one replica less would still keep %s within its margin (now %.4g to %.4g ms of %.4g ms)", s.name, ms(s.low), ms(s.high), ms(s.slo))
	case s.refused:
		x.refused, x.reason = true, Refusal
		x.why = fmt.Sprintf("estimated %s is %.4g to %.4g ms of %.4g ms; one replica less is refused: %s", s.name, ms(s.low), ms(s.high), ms(s.slo), s.refusal)
	default:
		x.reason = NoChange
		x.why = fmt.Sprintf("estimated %s is %.4g to %.4g ms of %.4g ms", s.name, ms(s.low), ms(s.high), ms(s.slo))
	}
	return x
}

// share is the load of an engine after one of n is gone.
func share(n int) float64 {
	if n > 1 {
		return float64(n) / float64(n-1)
	}
	return 1
}

func (p *Planner) margin() float64 { return float64(p.cfg.Sensitivity) / 100 }

func notEnough(m *Model) proposal {
	return proposal{reason: InsufficientData, why: fmt.Sprintf("%d of %d passes that did work have come", m.Samples(), m.minimum)}
}

// ttft looks at one engine's first token. The margin is only for what the queue costs: the prompt's own
// time does not depend on the number of replicas.
func (p *Planner) ttft(s *side, m *Model, e *EngineView, perPass int64) *float64 {
	queued, kv := float64(e.QueuedPrefillTokens), float64(e.InflightKVTokens)
	v, ok := m.TTFT(queued, kv, perPass, p.hitRate)
	est := s.estimate(v, ok)
	if !s.candown {
		return est
	}
	after := share(s.n)
	kvAfter := math.Trunc((kv + float64(e.QueuedDecodeKVTokens)) * after)
	alone, ok1 := m.TTFT(0, kvAfter, perPass, p.hitRate)
	then, ok2 := m.TTFT(math.Trunc(queued*after), kvAfter, perPass, p.hitRate)
	budget := (s.slo - alone) * p.margin()
	switch {
	case !ok1 || !ok2:
		s.candown = false
	case budget <= 0:
		s.refuse("a prompt alone takes %.4g ms", alone*1000)
	case then-alone >= budget:
		s.refuse("the queue of %s/%d would cost %.4g ms of %.4g ms", e.Worker, e.Rank, (then-alone)*1000, budget*1000)
	}
	return est
}

// itl looks at one engine's next pass. more is what will be KV before long.
func (p *Planner) itl(s *side, m *Model, e *EngineView, maxKV, more int64) *float64 {
	v, ok := m.ITL(float64(e.InflightKVTokens), float64(e.QueuedDecodeKVTokens))
	est := s.estimate(v, ok)
	if !s.candown {
		return est
	}
	kv := math.Trunc(float64(e.InflightKVTokens+e.QueuedDecodeKVTokens+more) * share(s.n))
	if maxKV > 0 && kv >= float64(maxKV) {
		s.refuse("%.0f KV tokens would not fit the cache of %d", kv, maxKV)
		return est
	}
	then, ok := m.ITL(kv, 0)
	switch {
	case !ok:
		s.candown = false
	case then >= s.slo*p.margin():
		s.refuse("%s/%d would take %.4g ms a token, the margin is %.4g ms", e.Worker, e.Rank, then*1000, s.slo*p.margin()*1000)
	}
	return est
}

func (p *Planner) slaTTFT(c Component, f *Fleet, n int, m *Model) proposal {
	perPass := p.pools[c].caps.MaxBatchedTokens
	switch {
	case !m.enough():
		return notEnough(m)
	case perPass <= 0:
		return proposal{reason: InsufficientData, why: "max_num_batched_tokens is not known"}
	}
	s, es := newSide("TTFT", p.cfg.TTFT, n, p.cfg.least(c)), views(f)
	for i := range es {
		es[i].TTFT = p.ttft(&s, m, &es[i], perPass)
	}
	x := s.propose()
	x.engines = es
	return x
}

func (p *Planner) slaITL(c Component, f *Fleet, n int, m *Model) proposal {
	if !m.enough() {
		return notEnough(m)
	}
	s, es := newSide("ITL", p.cfg.ITL, n, p.cfg.least(c)), views(f)
	for i := range es {
		es[i].ITL = p.itl(&s, m, &es[i], p.pools[c].caps.MaxKVTokens, 0)
	}
	x := s.propose()
	x.engines = es
	return x
}

// slaAgg joins both latencies: up when either asks for it, down when both allow it.
func (p *Planner) slaAgg(f *Fleet, n int, m *Model) proposal {
	if !m.enough() {
		return notEnough(m)
	}
	caps, least := p.pools[DecodePool].caps, p.cfg.least(DecodePool)
	first, next, es := newSide("TTFT", p.cfg.TTFT, n, least), newSide("ITL", p.cfg.ITL, n, least), views(f)
	for i := range es {
		if caps.MaxBatchedTokens > 0 {
			es[i].TTFT = p.ttft(&first, m, &es[i], caps.MaxBatchedTokens)
		}
		es[i].ITL = p.itl(&next, m, &es[i], caps.MaxKVTokens, es[i].QueuedPrefillTokens)
	}
	a, b := first.propose(), next.propose()
	if caps.MaxBatchedTokens <= 0 {
		a = proposal{reason: InsufficientData, why: "max_num_batched_tokens is not known, so nothing is said of TTFT"}
	}
	x := proposal{bounds: true, reason: NoChange, ttft: a.ttft, itl: b.itl, engines: es, why: a.why + "; " + b.why}
	switch {
	case a.decided && a.want > n:
		x.want, x.decided = a.want, true
	case b.decided && b.want > n:
		x.want, x.decided = b.want, true
	case !a.decided && !a.refused && b.decided && b.want < n:
		// TTFT has no say: nothing was estimated, or it is merely not low enough. Dynamo goes down all the same.
		x.want, x.decided = b.want, true
	case a.decided && a.want < n && b.decided && b.want < n:
		x.want, x.decided = max(a.want, b.want), true
	default:
		x.refused = a.refused || b.refused
	}
	return x
}
