package sim

import (
	"slices"

	"github.com/rollscope/rollscope/internal/engine"
)

// server is one engine process: its data-parallel schedulers and what it exposes.
type server struct {
	fleet  *Fleet
	name   string
	spec   Member
	scheds []*scheduler
	obs    observer
	next   int     // scheduler of the next request
	began  float64 // start of the process
	pid    int

	down       bool
	hung       bool
	pauseUntil float64 // a weight update is under way
	pausedFor  float64

	slow       float64 // factor on forward passes
	slowLink   float64 // factor on KV transfers
	noCache    bool    // the cache is being flushed all the time
	squeezed   bool    // part of the pool is lost and admission is too optimistic
	badDraft   bool
	skewed     bool    // experts out of balance
	promptIdle bool    // reports at once when it has become idle (0.5.16 on)
	leaving    float64 // requests whose clients leave, per second
}

func (sv *server) prefillOnly() bool { return sv.spec.Role == engine.Prefill }
func (sv *server) decodeOnly() bool  { return sv.spec.Role == engine.Decode }

// requests is the number of requests in the process.
func (sv *server) requests() int {
	n := 0
	for _, s := range sv.scheds {
		n += s.requests()
	}
	return n
}

// submit sends r to the server at time t. False when nobody listens.
func (sv *server) submit(r *request, t float64) bool {
	if sv.down {
		return false
	}
	s := sv.scheds[sv.next%len(sv.scheds)]
	sv.next++
	r.sched, r.at = s, onTheWay
	s.post(mail{t + 0.001, mailRequest, r})
	return true
}

// advance lets time pass until hi.
func (sv *server) advance(lo, hi float64) {
	if sv.down || sv.hung || sv.pauseUntil > hi {
		for _, s := range sv.scheds {
			s.stand(lo, hi)
		}
		return
	}
	if sv.pauseUntil > 0 {
		sv.pauseUntil = 0
		for _, s := range sv.scheds {
			s.pool.flush()
			sv.obs.synced(s, sv.pausedFor)
		}
		sv.fleet.watchMoment(sv, nil, nil, Synced, lo, 0, sv.pausedFor)
	}
	for _, s := range sv.scheds {
		if sv.squeezed || s.pool.held > 0 {
			s.squeeze(sv.squeezed)
		}
		if sv.leaving > 0 && s.rng.Float64() < sv.leaving*(hi-lo)/float64(len(sv.scheds)) {
			s.abortOne()
		}
		s.advance(hi)
	}
}

// squeeze takes as much of the pool as it can get, up to a share of it, or gives all back.
func (s *scheduler) squeeze(on bool) {
	p := s.pool
	if !on {
		p.held = 0
		return
	}
	s.ratio = s.floor()
	if want := min(int(squeezeShare*float64(p.capacity))-p.held, p.room()); want > 0 {
		p.reserve(want)
		p.held += want
		s.flushMoves()
	}
}

// squeezeShare is the share of the KV pool that kv_pressure takes.
const squeezeShare = 0.66

// abortOne aborts a request at random.
func (s *scheduler) abortOne() {
	n := len(s.batch) + len(s.queue)
	if n == 0 {
		return
	}
	if i := s.rng.IntN(n); i < len(s.batch) {
		s.abort(s.batch[i])
	} else {
		s.abort(s.queue[i-len(s.batch)])
	}
}

// startAgain is the first moment of a new process.
func (sv *server) startAgain(now float64) {
	sv.pid += 1000
	sv.began = now
	for _, s := range sv.scheds {
		s.decodedBefore, s.busy = s.decoded, 0
	}
	sv.obs.started(sv)
	sv.fleet.watchMoment(sv, nil, nil, Up, now, 0, 0)
}

// stand lets time pass while the process does nothing.
func (s *scheduler) stand(lo, hi float64) {
	if s.pass.active {
		s.pass.end += hi - lo
	}
	s.now = max(s.now, hi)
}

// pause stops generation for a weight update of d seconds.
func (sv *server) pause(now, d float64) {
	if sv.down {
		return
	}
	sv.pauseUntil, sv.pausedFor = now+d, d
	sv.fleet.watchMoment(sv, nil, nil, Paused, now, sv.requests(), d)
	for _, s := range sv.scheds {
		s.throughput = 0
		s.tell(reportPause)
	}
}

// kill ends the process or its connections, as what says: everything in it is lost.
func (sv *server) kill(now float64, what MomentKind) {
	sv.down = true // before the fronts try again: not here
	sv.fleet.watchMoment(sv, nil, nil, what, now, sv.requests(), 0)
	for _, s := range sv.scheds {
		var lost []*request
		s.each(func(r *request) { lost = append(lost, r) })
		s.desert()
		s.now = max(s.now, now)
		for _, r := range lost {
			if r.at != gone {
				s.lose(r, failed)
			}
		}
		s.restart(now)
	}
	sv.pauseUntil = 0
}

// sweep aborts, by one call, everything of load l.
func (sv *server) sweep(l *load) {
	called := false
	for _, s := range sv.scheds {
		var victims []*request
		s.each(func(r *request) {
			if r.load == l {
				victims = append(victims, r)
			}
		})
		if len(victims) == 0 {
			continue
		}
		if !called {
			sv.obs.swept(s)
			sv.fleet.watchMoment(sv, s, nil, Sweep, s.now, len(victims), 0)
			called = true
		}
		for _, r := range victims {
			r.swept = true
			s.abort(r)
		}
	}
}

// abort ends r because its client left. One that is in a forward pass ends with its first token.
func (s *scheduler) abort(r *request) {
	switch r.at {
	case running:
		s.leave(r)
		s.finish(r, aborted)
	case waiting:
		s.queue = slices.DeleteFunc(s.queue, func(q *request) bool { return q == r })
		s.lose(r, aborted)
	case compiling, onTheWay:
		s.lose(r, aborted)
	case prealloc:
		s.prealloc = slices.DeleteFunc(s.prealloc, func(q *request) bool { return q == r })
		r.peer.deserted = true
		if r.peer.at == bootstrap {
			r.peer.sched.lose(r.peer, aborted)
		}
		s.lose(r, aborted)
	case prefilling:
		r.leaveAt = 1
	}
}
