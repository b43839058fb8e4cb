package tailsample

import "math"

// Oldest is when the first span of the longest held trace came in, ns since 1970: whatever came before is
// decided. some is false when nothing is held. It looks at every trace that is held.
func (s *Sampler) Oldest() (at int64, some bool) {
	at = math.MaxInt64
	// In the order of memory: a map's order would miss the cache at each of a million traces.
	for slot := range s.slots {
		if t := s.at(slot); !t.id.IsZero() {
			at, some = min(at, t.first), true
		}
	}
	if !some {
		return 0, false
	}
	return at, true
}

// evictedByLog is the reason in Stats when whoever keeps the spans on disk has no more room.
const evictedByLog = "log"

// EvictBefore decides early what is held since before a time. It is for whoever keeps a log of what is
// held, which one trace that does not end would hold up as a whole.
func (s *Sampler) EvictBefore(now, before int64) []*Decision {
	s.out = nil
	now = s.advance(now)
	for slot := range s.slots {
		t := s.at(slot)
		if t.id.IsZero() || t.first >= before {
			continue
		}
		why := Evicted
		if !s.ended(t) {
			why |= Unfinished
		}
		s.stats.evicted++
		s.stats.evictedBy = evictedByLog
		s.decide(now, slot, why, false)
	}
	out := s.out
	s.out = nil
	return out
}
