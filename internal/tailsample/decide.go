package tailsample

import (
	"bytes"
	"math"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

// interest is the rule by which a trace is kept whatever else comes, noRule when there is none (yet).
func (c *compiled) interest(t *trace) uint8 {
	if t.flags&thrownBefore != 0 {
		return noRule
	}
	if c.native {
		switch f := t.flags; {
		case f&(sawFailed|sawToolFailed|sawAborted|sawRetracted) == 0:
		case c.Tools && f&sawToolFailed != 0:
			return ruleTools
		case c.Aborted && f&sawAborted != 0:
			return ruleAborted
		case c.Errors && f&sawFailed != 0:
			return ruleErrors
		case c.Retracted && f&sawRetracted != 0:
			return ruleRetracted
		}
		for m, v := range t.slow {
			if v > c.limits[m] {
				return c.slowBy[m]
			}
		}
	}
	if b := t.bits & c.early; b != 0 {
		for i := range c.ruleOf {
			if b>>i&1 != 0 {
				return c.ruleOf[i]
			}
		}
	}
	return noRule
}

// keepEarly keeps a trace by a rule before it is finished: what is held of it goes out at once. The spans
// stay here as well, for the observation of the whole.
func (s *Sampler) keepEarly(now int64, slot uint32, rule uint8) {
	t := s.at(slot)
	t.rule = rule
	s.listMove(slot, listKept)
	if t.spans == 0 {
		return
	}
	var b builder
	s.gather(t, nil, func(scope uint32, raw []byte) { b.add(s, scope, raw) })
	d := &Decision{Trace: t.id, Keep: true, Policy: s.c.names[rule], Weight: s.weight(slot), First: t.first, Flags: Early, Spans: b.scopes}
	s.out = append(s.out, d)
	s.pass[t.id] = d
}

// weight of a trace that is always kept: only what a sampler before us threw away counts.
func (s *Sampler) weight(slot uint32) float64 {
	if x := s.extras[slot]; x != nil {
		return weightOf(x.up.probability())
	}
	return 1
}

// through passes a span of a kept trace on.
func (s *Sampler) through(first int64, sc *span.Scope, h *span.Header, rule uint8, flags Flags, late bool) {
	d := s.pass[h.Trace]
	if d == nil || d.Late != late {
		d = &Decision{Trace: h.Trace, Keep: true, Policy: s.c.names[rule], Weight: 1, First: first, Flags: flags, Late: late}
		s.out = append(s.out, d)
		s.pass[h.Trace] = d
	}
	i := len(d.Spans) - 1
	for ; i >= 0; i-- {
		if k := &d.Spans[i]; k.Service == sc.Service && bytes.Equal(k.Resource, sc.Resource) && bytes.Equal(k.Scope, sc.Scope) {
			break
		}
	}
	if i < 0 {
		i = len(d.Spans)
		held := s.scopes[s.intern(sc)].sc
		d.Spans = append(d.Spans, held)
	}
	raw := bytes.Clone(h.Raw)
	if copied, err := span.ScanSpan(raw); err == nil {
		d.Spans[i].Spans = append(d.Spans[i].Spans, copied)
	} else {
		s.stats.broken++
	}
}

// late handles a span of a trace that is decided.
func (s *Sampler) late(now int64, sc *span.Scope, h *span.Header, m memo) {
	if !m.kept {
		s.stats.lateDropped++
		return
	}
	s.stats.lateKept++
	s.through(now, sc, h, m.rule, 0, true)
}

// verdict decides about a trace that is not kept yet.
func (s *Sampler) verdict(now int64, slot uint32, why Flags) (keep bool, rule uint8, weight float64) {
	t := s.at(slot)
	c := s.c
	if !c.native {
		return c.decideCollector(t, now)
	}
	if c.drops&t.bits != 0 {
		for i := range c.ruleOf {
			if (c.drops&t.bits)>>i&1 != 0 {
				return false, c.ruleOf[i], 1
			}
		}
	}
	always := s.weight(slot)
	if k := s.sketchOf(t, false); k != nil {
		for m, v := range t.slow {
			if v < 0 || k[m] == nil {
				continue
			}
			if limit, ok := k[m].p99(c.Slow.Requests); ok && v > limit {
				return true, c.slowP99[m], always
			}
		}
	}
	rule = ruleRatio
	if why&Evicted != 0 {
		rule = ruleEvicted
	}
	x := s.extras[slot]
	if x != nil && x.up.said != 0 && x.session == 0 && x.room == 0 && len(x.links) == 0 {
		keep, share := x.up.keep(t.id, c.Ratio)
		return keep, rule, weightOf(share)
	}
	if x != nil && x.session == 0 && x.room == 0 && c.Linked {
		if len(x.links) > 0 {
			if m, ok := s.memory.get(now, x.leader()); ok {
				return m.kept, rule, weightOf(c.Ratio)
			}
		}
	}
	share := c.Ratio
	if x != nil {
		share *= x.up.probability()
	}
	return within(s.ratioKey(slot), c.Ratio), rule, weightOf(share)
}

// sketchOf finds the distributions of a trace's service and model; nil when p99 does not count or the
// trace names neither.
func (s *Sampler) sketchOf(t *trace, add bool) *[numMeasures]*sketch {
	if !s.c.native || !s.c.Slow.P99 {
		return nil
	}
	key := [2]int32{t.service, t.model}
	k := s.sketches[key]
	if k == nil && add && len(s.sketches) < maxSketches {
		k = new([numMeasures]*sketch)
		s.sketches[key] = k
	}
	return k
}

// maxSketches bounds how many pairs of service and model have percentiles of their own: 10 KB for each
// measure that is seen.
const maxSketches = 256

// decide ends the waiting of a trace. drop throws it away unless it was kept early.
func (s *Sampler) decide(now int64, slot uint32, why Flags, drop bool) {
	t := s.at(slot)
	if t.slow[itl] < 0 && t.slow[e2e] > t.slow[ttft] && t.slow[ttft] >= 0 && t.tokens > 1 {
		t.slow[itl] = (t.slow[e2e] - t.slow[ttft]) / (t.tokens - 1)
	}
	early := t.rule != noRule
	keep, rule, weight := true, t.rule, 1.0
	switch {
	case early:
		weight = s.weight(slot)
	case t.flags&thrownBefore != 0:
		keep, rule = false, s.again[t.id]
	case drop:
		keep, rule = false, rulePending
	default:
		if rule = s.c.interest(t); rule != noRule { // the ITL may be known only now
			s.promote(now, slot, rule)
			t = s.at(slot)
			early, weight = true, s.weight(slot)
		} else {
			keep, rule, weight = s.verdict(now, slot, why)
			if keep && s.tells(rule) {
				// The others of its session learn of it, as of one that was kept early.
				s.promote(now, slot, rule)
				early = true
			}
		}
	}
	if why&(Unfinished|Evicted|TooLarge) == 0 {
		s.learn(now, t)
	}
	d := &Decision{Trace: t.id, Keep: keep, Policy: s.c.names[rule], Weight: weight, First: t.first, Final: true, Flags: why}
	var b builder
	if keep && !early {
		s.gather(t, nil, func(scope uint32, raw []byte) {
			s.scopes[scope].refs--
			b.add(s, scope, raw)
		})
		d.Spans = b.scopes
	} else {
		b = s.reuse
		b.scopes, b.nums = b.scopes[:0], b.nums[:0]
		s.scratch = s.gather(t, s.scratch, func(scope uint32, raw []byte) {
			s.scopes[scope].refs--
			b.add(s, scope, raw)
		})
		s.reuse = b
	}
	d.Requests = s.observed(t, b.scopes, keep, rule)
	s.stats.requests += int64(len(d.Requests))
	if keep {
		s.stats.kept[rule]++
		s.stats.spansKept += int64(t.spans)
	} else {
		s.stats.dropped[rule]++
		s.stats.spansDropped += int64(t.spans)
	}
	if why&(NoRoot|Unfinished) != 0 {
		s.stats.unfinished++
	}
	s.out = append(s.out, d)
	delete(s.pass, t.id)
	s.memory.put(now, t.id, keep, rule)
	s.heldSpans -= int64(t.spans)
	s.heldWire -= t.wire
	halves := s.halves(slot, why)
	s.destroy(slot)
	for _, m := range halves {
		if s.at(m.slot).gen == m.gen {
			s.decide(now, m.slot, 0, false)
		}
	}
}

// tells tells the rules of a decision at the end that concern what a trace is tied to.
func (s *Sampler) tells(rule uint8) bool {
	return s.c.native && s.c.Linked && rule != ruleRatio && rule != ruleEvicted
}

// halves are the traces that wait for this one as the other half of their request.
func (s *Sampler) halves(slot uint32, why Flags) (out []timer) {
	if why&(Evicted|TooLarge) != 0 || !s.at(slot).extra {
		return nil
	}
	x := s.extras[slot]
	if x.room == 0 || s.groups[x.room] == nil {
		return nil
	}
	for _, m := range s.groups[x.room].members {
		if t := s.at(m); m != slot && (half(t) || s.ended(t)) {
			out = append(out, timer{slot: m, gen: t.gen})
		}
	}
	return out
}

// learn adds the durations of a finished request to the live percentiles.
func (s *Sampler) learn(now int64, t *trace) {
	k := s.sketchOf(t, true)
	if k == nil {
		return
	}
	for m, v := range t.slow {
		if v >= 0 && !math.IsInf(v, 0) {
			if k[m] == nil {
				k[m] = new(sketch)
			}
			k[m].add(now, v, int64(s.c.Slow.Window))
		}
	}
}

// evict decides the oldest of what loses least early: finished traces, then those that go on, then those
// that are kept already.
func (s *Sampler) evict(now int64, by string) {
	for i := range s.lists {
		if slot := s.lists[i].head; slot != nobody {
			why := Evicted
			if t := s.at(uint32(slot)); !s.ended(t) {
				why |= Unfinished
			}
			s.stats.evicted++
			s.stats.evictedBy = by
			s.decide(now, uint32(slot), why, false)
			return
		}
	}
}

// observed makes the observations of a trace.
func (s *Sampler) observed(t *trace, scopes []span.Scope, keep bool, rule uint8) []request.Observation {
	if len(scopes) == 0 {
		return nil
	}
	out := s.o.Observe(scopes)
	for i := range out {
		o := &out[i]
		o.Spans = int(t.spans)
		o.SpansKept, o.SpansReason = "sampled_away", s.c.names[rule]
		if keep {
			o.SpansKept = "kept"
		}
		if t.flags&sawSampled != 0 {
			o.Flags = append(o.Flags, request.FlagHeadSampled)
		}
		detach(o)
	}
	return out
}

// detach copies what an observation may have of the spans' bytes, which are used again.
func detach(o *request.Observation) {
	for _, p := range []*string{&o.Engine, &o.Role, &o.Service, &o.Model, &o.FinishReason, &o.Error, &o.WeightVersion, &o.Run, &o.Kind} {
		*p = strings.Clone(*p)
	}
	for i := range o.Aliases {
		o.Aliases[i].ID = strings.Clone(o.Aliases[i].ID)
	}
	for i := range o.Flags {
		o.Flags[i] = strings.Clone(o.Flags[i])
	}
}

// observeSpans decodes the spans of a trace and asks its tree. Of the stages of a known request only the
// times, events and links count, so their attributes, most of what there is to decode, are left out.
func (s *Sampler) observeSpans(scopes []span.Scope) []request.Observation {
	n, requests := 0, false
	for i := range scopes {
		n += len(scopes[i].Spans)
		for j := range scopes[i].Spans {
			if !requests {
				_, _, requests = span.RequestName(scopes[i].Spans[j].Name)
			}
		}
	}
	if cap(s.spans) < n {
		s.spans = make([]span.Span, n)
	}
	spans, lean := s.spans[:0], s.lean[:0]
	for i := range scopes {
		for j := range scopes[i].Spans {
			h := &scopes[i].Spans[j]
			if requests && h.Status != span.Failed && isStage(span.Explain(h.Name).Class) {
				from := len(lean)
				lean = appendLean(lean, h.Raw)
				stripped := *h
				stripped.Raw = lean[from:len(lean):len(lean)]
				h = &stripped
			}
			spans = spans[:len(spans)+1]
			if err := span.Decode(&scopes[i], h, &spans[len(spans)-1]); err != nil {
				spans = spans[:len(spans)-1]
				s.stats.undecoded++
			}
		}
	}
	s.lean = lean
	if len(spans) == 0 {
		return nil
	}
	tree := span.NewTree(spans)
	tree.Engine = s.o.Engine
	return span.Observe(tree)
}

// isStage tells spans that are a part of an engine's request.
func isStage(c span.Class) bool {
	switch c {
	case span.ClassThread, span.ClassTokenize, span.ClassDispatch, span.ClassQueue, span.ClassCache, span.ClassPrefill, span.ClassTransfer, span.ClassDecode, span.ClassStep, span.ClassDetokenize:
		return true
	}
	return false
}

// appendLean copies a span's message without its attributes.
func appendLean(dst, raw []byte) []byte {
	w := wire{b: raw}
	for from := raw; w.next(); from = w.b {
		if w.num != spanAttributes {
			dst = append(dst, from[:len(from)-len(w.b)]...)
		}
	}
	return dst
}
