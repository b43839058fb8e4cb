package sim

import (
	"cmp"
	"math"
	"slices"
)

// stepTime is the duration of one decode step of the batch.
func (s *scheduler) stepTime() float64 {
	hw := &s.server.spec.Hardware
	t := hw.Step + hw.StepPerRequest*float64(len(s.batch)) + hw.StepPerToken*s.seqLens
	if s.server.spec.Speculative {
		t *= 1.35 // draft steps and verification
	}
	return t * s.server.slow
}

// decode runs decode steps until hi, or until something changes.
func (s *scheduler) decode(hi float64) {
	for s.pool.room() < int(math.Ceil(s.rate)) {
		if !s.retract() {
			return
		}
	}
	dt := s.stepTime()
	until := hi
	if len(s.inbox) > 0 {
		until = min(until, s.inbox[0].at)
	}
	if len(s.sending) > 0 {
		until = min(until, s.sending[0].ends)
	}
	n := max(1, int(math.Ceil((until-s.now)/dt)))
	n = min(n, int(s.batch[0].last-s.step), reportEvery-s.sinceReport)
	n = max(1, min(n, int(float64(s.pool.room())/s.rate)))
	grown := s.rate * float64(n)
	s.pool.reserve(int(math.Ceil(grown)))
	s.flushMoves()
	s.pool.private += grown
	s.seqLens += grown
	s.promised = max(0, s.promised-grown)
	s.step += int64(n)
	s.decoded += grown
	s.now += dt * float64(n)
	s.busy += dt * float64(n)
	s.ratio = max(s.floor(), s.ratio-(ratioStart-ratioFloor)/ratioSteps*float64(n))
	d := decodeRun{steps: n, gap: dt / (s.rate / float64(len(s.batch))), stall: s.stall, tokens: grown, batch: len(s.batch)}
	s.stall = 0
	s.server.obs.decoded(s, d)
	s.server.fleet.watchPasses(s, Passes{N: n, Decode: len(s.batch), Context: s.seqLens - grown, Grows: s.rate}, dt)
	s.sinceReport += n
	if s.sinceReport >= reportEvery {
		s.sinceReport = 0
		s.throughput = (s.decoded - s.reported) / max(s.now-s.decodeAt, 1e-6)
		s.reported, s.decodeAt = s.decoded, s.now
		if s.server.spec.Speculative {
			s.drift()
		}
		s.tell(reportDecode)
	}
	for len(s.batch) > 0 && s.batch[0].last <= s.step {
		r := s.batch[0]
		s.leave(r)
		s.finish(r, r.ending())
	}
}

// drift moves the accept length of speculative decoding about its mean.
func (s *scheduler) drift() {
	mean := 2.9
	if s.server.badDraft {
		mean = 1.7
	}
	s.accept += 0.15*(mean-s.accept) + 0.05*s.rng.NormFloat64()
	s.accept = min(max(s.accept, 1.1), 3.9)
}

// retract throws the request with the least output out of the batch, back to the head of the queue.
// The pool is full then. With one request left nothing can be retracted: it is ended.
func (s *scheduler) retract() bool {
	if len(s.batch) == 0 {
		return false
	}
	if len(s.batch) == 1 {
		r := s.batch[0]
		s.leave(r)
		s.finish(r, aborted)
		return false
	}
	victim := slices.MinFunc(s.batch, func(a, b *request) int {
		if c := cmp.Compare(a.generated(), b.generated()); c != 0 {
			return c
		}
		if c := cmp.Compare(b.prompt, a.prompt); c != 0 {
			return c
		}
		return cmp.Compare(a.id, b.id)
	})
	s.leave(victim)
	s.release(victim, false)
	victim.retractions++
	victim.thrown = append(victim.thrown, s.now)
	victim.chunks = 0
	if s.server.decodeOnly() && victim.peer != nil {
		victim.at = prealloc
		s.prealloc = slices.Insert(s.prealloc, 0, victim)
	} else {
		victim.at, victim.queued = waiting, s.now
		s.queue = slices.Insert(s.queue, 0, victim)
	}
	s.retractedIn++
	s.server.obs.retracted(s, 1, victim.prompt, int(victim.done))
	s.server.fleet.watchMoment(s.server, s, victim, Retract, s.now, 1, 0)
	out, limit := 0.0, 1.0
	for _, r := range s.batch {
		out += r.generated()
		limit += float64(r.limit)
	}
	s.ratio = min(1, max(s.ratio, (out+20*float64(len(s.batch)))/limit))
	if s.server.squeezed {
		s.ratio = s.floor()
	}
	return true
}

// floor is the lowest new_token_ratio: far too low while kv_pressure is on.
func (s *scheduler) floor() float64 {
	if s.server.squeezed {
		return ratioFloor / 10
	}
	return ratioFloor
}
