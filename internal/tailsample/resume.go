package tailsample

import "github.com/rollscope/rollscope/internal/span"

// What a process before this one decided is handed on with these, so that a trace that was half stored,
// or half thrown away, when it ended goes the same way now.

// Remember takes over a final decision of a time, for late spans. Decisions are to be given in their order.
func (s *Sampler) Remember(decided int64, id span.TraceID, keep bool, policy string) {
	s.memory.put(decided, id, keep, s.ruleNamed(policy))
}

// Resume takes over a decision about a trace whose spans will be added again, from a time on: all of them
// go the way of that decision, and in the end there is a final decision with the observations.
func (s *Sampler) Resume(now int64, id span.TraceID, keep bool, policy string) {
	if _, held := s.held[id]; held {
		return
	}
	s.now = max(s.now, now)
	slot := s.create(id, s.now)
	t := s.at(slot)
	if rule := s.ruleNamed(policy); keep {
		t.rule = rule
		s.listMove(slot, listKept)
	} else {
		t.flags |= thrownBefore
		s.again[id] = rule
	}
	s.reschedule(s.now, slot) // should its spans not come after all
}

// Inherit takes over what another sampler remembers and has learned of how long requests take: one with a
// policy that is no longer in force.
func (s *Sampler) Inherit(from *Sampler) {
	m := &from.memory
	for i := range m.n {
		e := &m.ring[(m.from+i)%m.limit]
		if e.set {
			s.memory.put(e.put, e.id, e.kept, s.ruleNamed(from.c.names[e.rule]))
			s.memory.ring[s.memory.of[e.id]].at = e.at
		}
	}
	s.linksSeen = s.linksSeen || from.linksSeen
	s.now = max(s.now, from.now)
	s.inheritLearned(from)
}

// Remembered is when the oldest decision was made that late spans can still follow, ns since 1970; some is
// false when there is none.
func (s *Sampler) Remembered() (at int64, some bool) {
	m := &s.memory
	m.expire(s.now)
	if m.n == 0 {
		return 0, false
	}
	return m.ring[m.from].put, true
}

// ruleNamed is the number of a rule that may be of another policy.
func (s *Sampler) ruleNamed(name string) uint8 {
	if name == "" {
		return ruleNone
	}
	if i, ok := s.c.index[name]; ok {
		return i
	}
	if len(s.c.names) >= maxRules {
		return ruleLinked
	}
	i := s.c.rule(name)
	s.stats.kept = append(s.stats.kept, 0)
	s.stats.dropped = append(s.stats.dropped, 0)
	return i
}
