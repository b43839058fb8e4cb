package sim

import "math"

// The life of a request in prefill-decode disaggregation, as SGLang does it:
//
//	prefill engine: bootstrap -> waiting -> prefilling -> inflight -> gone
//	decode engine:  prealloc  -> transfer                          -> waiting -> running -> gone
//
// The decode engine allocates KV slots first and tells the prefill engine; the prompt is computed
// there, its KV is sent over a link that transfers share, and the decode engine goes on from the
// first token.

const (
	handshake     = 0.003 // seconds from the decode engine's grant to the prefill engine
	transferStart = 0.002 // seconds before the first byte
	gib           = 1024 * 1024 * 1024
	failedShare   = 0.03 // of transfers that fail while the link is slow
	refusedShare  = 0.02 // of bootstraps that fail then
	resentShare   = 0.1  // of transfers of which a part is sent again then
)

// handOver does what is due between the two engines.
func (s *scheduler) handOver() {
	if s.server.decodeOnly() {
		s.grant()
		return
	}
	for len(s.sending) > 0 {
		r := s.sending[0]
		if r.ends == 0 {
			s.startTransfer(r)
		}
		if r.ends > s.now {
			return
		}
		s.sending = s.sending[1:]
		s.linkFree = r.ends
		if r.at != inflight {
			continue
		}
		broken := r.deserted || s.server.slowLink > 1 && s.rng.Float64() < failedShare
		if broken {
			s.server.obs.broken(s, r)
			peer := r.peer
			s.lose(r, failed)
			if peer.at == transfer {
				peer.sched.server.obs.broken(peer.sched, peer)
				peer.sched.lose(peer, failed)
			}
			continue
		}
		s.server.obs.transferred(s, r, kvTransfer{
			bytes:   float64(r.prompt) * s.server.spec.Hardware.KVBytes,
			seconds: r.ends - r.sent,
			alloc:   r.granted - r.recv,
			boot:    r.granted - r.recv + handshake,
		})
		r.peer.sched.post(mail{r.ends + 0.001, mailKV, r.peer})
		s.finish(r, completed)
	}
}

// send queues the KV of a prefilled prompt on the link.
func (s *scheduler) send(r *request) {
	r.done, r.at, r.sent = 1, inflight, s.now
	r.first = s.now
	s.prefillOut++
	s.sending = append(s.sending, r)
}

// startTransfer puts r's KV on the link, which carries one prompt after the other.
func (s *scheduler) startTransfer(r *request) {
	hw := &s.server.spec.Hardware
	moving := float64(r.prompt) * hw.KVBytes / (hw.LinkGBs * gib) * s.server.slowLink
	moving *= 1 + 0.1*math.Abs(s.rng.NormFloat64())
	if s.server.slowLink > 1 && s.rng.Float64() < resentShare {
		moving *= 1.5
		s.server.obs.resent(s)
	}
	r.ends = max(r.sent, s.linkFree) + transferStart + moving
}

// grant allocates KV slots to the requests that wait for them, first come first served.
func (s *scheduler) grant() {
	hw := &s.server.spec.Hardware
	for len(s.prealloc) > 0 && len(s.batch)+len(s.queue)+s.transferring < hw.MaxRunning {
		r := s.prealloc[0]
		if r.deserted {
			s.prealloc = s.prealloc[1:]
			s.server.obs.broken(s, r)
			s.lose(r, failed)
			continue
		}
		size := s.footprint(r)
		if size > s.pool.capacity-s.pool.held {
			s.prealloc = s.prealloc[1:]
			s.lose(r, failed)
			continue
		}
		if !s.fits(r, size) {
			return
		}
		s.prealloc = s.prealloc[1:]
		s.allocate(r)
		if r.kvHere {
			s.wait(r, s.now) // a retracted one: its KV was kept in host memory
			continue
		}
		r.at, r.granted = transfer, s.now
		s.transferring++
		s.between = append(s.between, r)
		s.server.obs.granted(s, r)
		r.peer.sched.post(mail{s.now + handshake, mailGranted, r.peer})
	}
}

// admitArrived moves requests whose KV is here into the batch.
func (s *scheduler) admitArrived() {
	for len(s.queue) > 0 && len(s.batch) < s.server.spec.Hardware.MaxRunning {
		r := s.queue[0]
		s.queue = s.queue[1:]
		if r.first != 0 {
			r.admit(s.now)
			s.join(r) // again, after a retraction
			continue
		}
		r.start = s.now
		r.admit(s.now)
		s.server.obs.admitted(s, r, s.now-r.queued)
		s.emitFirst(r)
	}
}

// desert tells the other halves of a dead engine's pairs. Those still waiting fail at once, those
// under way when they would be handed over.
func (s *scheduler) desert() {
	tell := func(r *request) {
		if r == nil || r.peer == nil {
			return
		}
		q := r.peer
		q.deserted = true
		switch {
		case q.at == bootstrap:
			q.sched.server.obs.broken(q.sched, q)
			q.sched.lose(q, failed)
		case q.at == transfer:
			q.sched.server.obs.broken(q.sched, q)
			q.sched.lose(q, failed)
		}
	}
	s.each(tell)
}

// each visits every request that is in the scheduler, also those on the way to it.
func (s *scheduler) each(visit func(*request)) {
	for _, m := range s.inbox {
		if m.kind == mailRequest || m.kind == mailGrammar {
			visit(m.r)
		}
	}
	for _, list := range [][]*request{s.prealloc, s.queue, s.batch, s.pass.done, s.sending} {
		for _, r := range list {
			visit(r)
		}
	}
	if s.chunk != nil {
		visit(s.chunk)
	}
	for _, r := range s.between {
		visit(r)
	}
}
