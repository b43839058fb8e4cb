package sim

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Constants of SGLang's scheduler that shape what the metrics show.
const (
	reportEvery  = 40   // decode steps between two reports (--decode-log-interval)
	idleReport   = 30.0 // seconds between two reports of an idle engine
	ratioStart   = 0.7  // new_token_ratio after start
	ratioFloor   = 0.098
	ratioSteps   = 600  // decode steps from start to floor
	reserveLimit = 4096 // tokens of max_new_tokens that admission looks ahead at most
)

// mail is something that reaches a scheduler at a time.
type mail struct {
	at   float64
	kind mailKind
	r    *request
}

type mailKind uint8

const (
	mailRequest mailKind = iota // a new request
	mailGrammar                 // its grammar is compiled
	mailGranted                 // to the prefill engine: the decode engine has allocated KV slots
	mailKV                      // to the decode engine: the KV has arrived
)

// scheduler is the model of one data-parallel rank: queue, KV pool, batch, forward passes.
type scheduler struct {
	server *server
	rank   int
	rng    *rand.Rand
	pool   *kvPool

	now   float64
	inbox []mail // by time
	queue []*request
	batch batch
	chunk *request // its prompt is prefilled over several passes
	pass  pass

	step       int64   // decode steps so far
	rate       float64 // tokens per step of the batch
	seqLens    float64 // tokens of context of the batch
	promised   float64 // tokens that the batch may still generate
	ratio      float64 // new_token_ratio
	accept     float64 // spec decoding: tokens per step and request
	stall      float64 // seconds of prefill since the last decode step
	mustDecode bool    // one decode step between two prefill passes

	compiling, bootstrapping, transferring int
	prealloc                               []*request
	between                                []*request // in bootstrap or transfer
	sending                                []*request // by end of transfer
	linkFree                               float64

	sinceReport int     // decode steps
	reportAt    float64 // time of the last report
	reported    float64 // decode tokens at the last decode report
	decodeAt    float64 // time of the last decode report
	throughput  float64 // tokens/s, as last reported
	lastHitRate float64 // of the last prefill pass
	retractedIn int     // retractions since the last report
	stale       bool    // the gauges show work that may be over

	decoded       float64 // tokens of decode steps, ever
	decodedBefore float64 // of these, by earlier processes
	prefillOut    float64 // tokens that prefill passes emitted, ever
	finishedOut   float64 // output tokens of requests that ended here, ever
	cutShort      float64 // fractions of tokens dropped when requests left the batch early (speculative decoding)
	busy          float64 // seconds of forward passes, ever
}

func newScheduler(sv *server, rank int) *scheduler {
	s := &scheduler{server: sv, rank: rank}
	s.rng = source(sv.fleet.cfg.Seed, sv.name+"/"+string(rune('0'+rank)))
	s.restart(0)
	return s
}

// restart is a fresh process: empty pool, nothing queued. What has been counted for the tests stays.
func (s *scheduler) restart(now float64) {
	m := &s.server.spec
	s.pool = newKVPool(m.Hardware.KVTokens, m.HiCacheTokens)
	s.now = now
	s.inbox, s.queue, s.batch, s.prealloc, s.sending, s.between = nil, nil, nil, nil, nil, nil
	s.chunk, s.pass = nil, pass{}
	s.rate, s.seqLens, s.promised, s.stall = 0, 0, 0, 0
	s.compiling, s.bootstrapping, s.transferring = 0, 0, 0
	s.ratio, s.mustDecode = ratioStart, false
	s.accept = 1
	if m.Speculative {
		s.accept = 2.9
	}
	s.linkFree = 0
	s.sinceReport, s.reportAt, s.decodeAt, s.throughput = 0, now, now, 0
	s.lastHitRate, s.retractedIn, s.reported = 0, 0, s.decoded
}

// post delivers mail, keeping the inbox in the order of time.
func (s *scheduler) post(m mail) {
	i := len(s.inbox)
	for i > 0 && s.inbox[i-1].at > m.at {
		i--
	}
	s.inbox = slices.Insert(s.inbox, i, m)
}

// requests is the number of requests in the scheduler, for balancing.
func (s *scheduler) requests() int {
	n := len(s.queue) + len(s.batch) + len(s.prealloc) + len(s.sending) + len(s.pass.done) + len(s.inbox)
	return n + s.compiling + s.bootstrapping + s.transferring
}

// advance runs the scheduler up to time hi. A decode step that begins before hi is completed.
func (s *scheduler) advance(hi float64) {
	for s.now < hi {
		if s.pass.active {
			if s.pass.end > hi {
				return
			}
			s.now = s.pass.end
			s.finishPass()
		}
		s.receive()
		s.handOver()
		if !s.mustDecode && s.startPass() {
			continue
		}
		s.mustDecode = false
		if len(s.batch) > 0 {
			s.decode(hi)
			continue
		}
		s.rest(hi)
	}
}

// rest lets time pass without work, until something is due.
func (s *scheduler) rest(hi float64) {
	next := hi
	if len(s.inbox) > 0 && s.inbox[0].at < next {
		next = s.inbox[0].at
	}
	if len(s.sending) > 0 && s.sending[0].ends < next {
		next = s.sending[0].ends
	}
	if s.reportAt+idleReport < next {
		next = s.reportAt + idleReport
	}
	if s.stale && s.server.promptIdle {
		s.idle()
	}
	s.now = max(next, s.now)
	if s.now >= s.reportAt+idleReport {
		s.idle()
	}
}

// idle is the report of a scheduler without work.
func (s *scheduler) idle() {
	s.throughput = 0
	s.reported, s.decodeAt = s.decoded, s.now
	s.tell(reportIdle)
}

// tell writes the gauges.
func (s *scheduler) tell(kind reportKind) {
	s.server.obs.report(s, kind)
	s.server.fleet.watchReport(s, kind)
	s.reportAt, s.retractedIn = s.now, 0
	s.stale = kind == reportPrefill || kind == reportDecode
}

// receive takes the mail that has come by now.
func (s *scheduler) receive() {
	n := 0
	for n < len(s.inbox) && s.inbox[n].at <= s.now {
		n++
	}
	if n == 0 {
		return
	}
	due := slices.Clone(s.inbox[:n])
	s.inbox = slices.Delete(s.inbox, 0, n)
	for _, m := range due {
		switch r := m.r; m.kind {
		case mailRequest:
			if r.at != onTheWay {
				continue
			}
			r.recv = m.at
			s.server.obs.received(s, r)
			if r.grammar {
				sec := s.compileTime()
				if sec > 0 {
					r.at = compiling
					s.compiling++
					r.start = sec
					s.post(mail{m.at + sec, mailGrammar, r})
					continue
				}
				s.server.obs.compiled(s, r, 0)
			}
			s.enter(r, m.at)
		case mailGrammar:
			if r.at != compiling {
				continue
			}
			s.compiling--
			s.server.obs.compiled(s, r, r.start)
			s.enter(r, m.at)
		case mailGranted:
			if r.at == bootstrap {
				s.bootstrapping--
				s.arriveFrom(r)
				r.granted = m.at
				s.server.obs.granted(s, r)
				s.wait(r, m.at)
			} else if r.at == onTheWay {
				r.granted = m.at
			}
		case mailKV:
			if r.at == transfer {
				s.transferring--
				s.arriveFrom(r)
				r.kvHere, r.arrived = true, m.at
				s.server.obs.arrived(s, r)
				s.wait(r, m.at)
			}
		}
	}
}

// refuse ends a request whose bootstrap has failed, and its peer.
func (s *scheduler) refuse(r *request) {
	r.at = bootstrap
	s.bootstrapping++
	s.server.obs.broken(s, r)
	s.lose(r, failed)
	p := r.peer
	p.deserted = true // found out when its turn comes
	if p.at == transfer {
		p.sched.server.obs.broken(p.sched, p)
		p.sched.lose(p, failed)
	}
}

// arriveFrom takes r off the list of those between the engines.
func (s *scheduler) arriveFrom(r *request) {
	if i := slices.Index(s.between, r); i >= 0 {
		s.between = slices.Delete(s.between, i, i+1)
	}
}

// compileTime is the time to compile a grammar, 0 when it is cached.
func (s *scheduler) compileTime() float64 {
	if s.rng.Float64() < 0.85 {
		return 0
	}
	return 0.02 * math.Exp(0.9*math.Abs(s.rng.NormFloat64()))
}

// enter puts a request where its life on this engine begins.
func (s *scheduler) enter(r *request, at float64) {
	switch {
	case s.server.prefillOnly() && r.peer != nil:
		if refused := s.server.slowLink > 1 && s.rng.Float64() < refusedShare; r.deserted || refused {
			s.refuse(r)
			return
		}
		if r.granted > 0 {
			s.server.obs.granted(s, r)
			s.wait(r, at)
			return
		}
		r.at = bootstrap
		s.bootstrapping++
		s.between = append(s.between, r)
	case s.server.decodeOnly() && r.peer != nil:
		r.at = prealloc
		s.prealloc = append(s.prealloc, r)
	default:
		s.wait(r, at)
	}
}

func (s *scheduler) wait(r *request, at float64) {
	r.at, r.queued = waiting, at
	if r.entered == 0 {
		r.entered = at
	}
	s.queue = append(s.queue, r)
}

// footprint is what admitting r adds to the used part of the pool.
func (s *scheduler) footprint(r *request) int {
	n := r.prompt + int(math.Ceil(r.done))
	if r.prefixLen > 0 && !s.server.decodeOnly() {
		if e := s.pool.byKey[r.prefix]; e != nil && e.refs > 0 {
			n -= r.prefixLen
		}
	}
	return n
}

// fits tells whether r may be admitted: its tokens, and what the batch is expected to need still.
func (s *scheduler) fits(r *request, size int) bool {
	ahead := s.promised + float64(min(r.limit-int(r.done), reserveLimit))
	if len(s.batch) == 0 && s.pass.requests == 0 {
		ahead = 0 // alone it may always try
	}
	return float64(size)+s.ratio*ahead <= float64(s.pool.room())
}

// allocate gives r its KV slots and finds out what of its prompt is cached.
func (s *scheduler) allocate(r *request) {
	p, seq := s.pool, r.prompt+int(math.Ceil(r.done))
	r.hit, r.hostHit = 0, 0
	private, made := seq, false
	if r.prefixLen > 0 && !s.server.decodeOnly() {
		private -= r.prefixLen
		tokens, onHost := p.lookup(r.prefix)
		switch {
		case s.server.noCache:
			tokens = 0
			made = p.byKey[r.prefix] == nil
		case tokens > 0 && !onHost:
			r.hit = r.prefixLen
		case tokens > 0:
			r.hostHit = p.host.remove(r.prefix)
			p.moved.loadedBack += r.hostHit
			made = true
		default:
			made = true
		}
		if !made {
			p.lock(r.prefix)
		}
		r.holds = true
	}
	if r.contextLen > 0 && !s.server.noCache && !s.server.decodeOnly() && (r.prefixLen == 0 || r.hit+r.hostHit > 0) {
		tokens, onHost := p.lookup(r.context)
		switch {
		case tokens == 0:
		case onHost:
			r.hostHit += p.host.remove(r.context)
			p.moved.loadedBack += tokens
		default:
			r.hit += p.take(r.context)
		}
	}
	if over := r.hit + r.hostHit - (seq - 1); over > 0 {
		r.hit = max(0, r.hit-over) // one token is always computed
	}
	if made {
		p.reserve(private + r.prefixLen)
		p.create(r.prefix, r.prefixLen)
	} else {
		p.reserve(private)
	}
	r.private = float64(private)
	p.private += r.private
	r.left = seq - r.hit - r.hostHit
	r.cachedTotal += r.hit + r.hostHit
	r.hostTotal += r.hostHit
	s.flushMoves()
}

// release gives r's KV slots back. What it computed stays cached under its conversation's key.
func (s *scheduler) release(r *request, keep bool) {
	p := s.pool
	p.private -= r.private
	if len(s.batch) == 0 && s.chunk == nil && len(s.pass.done) == 0 && s.transferring == 0 && len(s.queue) == 0 && math.Abs(p.private) < 1 {
		p.private = 0 // what rounding has left
	}
	if keep && !s.server.decodeOnly() && !s.server.noCache {
		key := r.context
		reusable := key != 0
		if key == 0 {
			key = mix(r.id) | 1
		}
		p.keep(key, min(int(r.private), p.free()), reusable)
	}
	r.private = 0
	if r.holds {
		p.unlock(r.prefix)
		r.holds = false
	}
}

func (s *scheduler) flushMoves() {
	if s.pool.moved != (kvMoves{}) {
		s.server.obs.cache(s, s.pool.moved)
		s.pool.moved = kvMoves{}
	}
}

// startPass begins a prefill pass if a request can be admitted or a prompt is unfinished.
func (s *scheduler) startPass() bool {
	if s.server.decodeOnly() {
		s.admitArrived()
		return false
	}
	if s.chunk == nil && len(s.queue) == 0 {
		return false
	}
	hw := &s.server.spec.Hardware
	budget := hw.Chunk
	p := &s.pass
	*p = pass{done: p.done[:0], start: s.now}
	if r := s.chunk; r != nil {
		budget = s.feed(r, budget)
	}
	for budget > 0 && len(s.queue) > 0 && len(s.batch)+p.requests < hw.MaxRunning {
		r := s.queue[0]
		if patience := r.load.spec.Patience.Seconds(); patience > 0 && s.now-r.queued > patience {
			s.queue = s.queue[1:]
			s.lose(r, aborted)
			continue
		}
		size := s.footprint(r)
		if size > s.pool.capacity-s.pool.held {
			s.queue = s.queue[1:]
			s.lose(r, failed) // longer than the whole pool
			continue
		}
		if !s.fits(r, size) {
			break
		}
		s.queue = s.queue[1:]
		s.allocate(r)
		if r.retractions == 0 {
			p.hit += r.hit
			p.host += r.hostHit
		}
		if r.chunks == 0 {
			r.start = s.now
			r.admit(s.now)
			s.server.obs.admitted(s, r, s.now-r.queued)
		}
		r.at = prefilling
		s.promised += float64(min(r.limit-int(r.done), reserveLimit))
		budget = s.feed(r, budget)
	}
	if p.requests == 0 {
		return false
	}
	p.active = true
	p.end = s.now + (hw.PrefillPass+float64(p.computed)/hw.Prefill)*s.server.slow
	return true
}

// feed gives r tokens of the pass's budget and returns what is left of it.
func (s *scheduler) feed(r *request, budget int) int {
	n := min(r.left, budget)
	if r.retractions > 0 {
		s.pass.again += n
	}
	r.left -= n
	r.chunks++
	s.pass.computed += n
	s.pass.requests++
	if r.left > 0 {
		s.chunk, s.pass.chunked = r, true
		return 0
	}
	s.chunk = nil
	s.pass.done = append(s.pass.done, r)
	return budget - n
}

// finishPass ends the prefill pass: its requests get their first token and join the batch, or are sent on.
func (s *scheduler) finishPass() {
	p := &s.pass
	p.active = false
	s.stall += p.end - p.start
	s.busy += p.end - p.start
	s.mustDecode = len(s.batch) > 0
	if n := p.computed + p.hit + p.host; n > 0 {
		s.lastHitRate = float64(p.hit+p.host) / float64(n)
	}
	s.server.obs.prefilled(s, p)
	s.server.fleet.watchPasses(s, Passes{N: 1, Prefill: p.requests, PrefillTokens: p.computed, PrefillCached: p.hit + p.host}, p.end-p.start)
	for _, r := range p.done {
		if r.at != prefilling {
			continue
		}
		s.promised -= float64(min(r.limit-int(r.done), reserveLimit))
		if s.server.prefillOnly() && r.peer != nil {
			s.send(r)
			continue
		}
		s.emitFirst(r)
	}
	s.tell(reportPrefill)
	p.done = p.done[:0]
	p.requests = 0
}

// emitFirst counts the token that a prefill pass yields and puts r into the batch.
func (s *scheduler) emitFirst(r *request) {
	r.done++
	s.prefillOut++
	s.pool.private++
	r.private++
	if r.first == 0 {
		r.first = s.now
		s.server.obs.firstToken(s, r)
		if r.front != nil {
			r.front.obs.firstToken(r, s.now)
		}
	}
	s.join(r)
}

// join puts a prefilled request into the batch, or ends it when it has all its tokens.
func (s *scheduler) join(r *request) {
	todo := float64(r.target()) - r.done
	if todo <= 0 {
		s.finish(r, r.ending())
		return
	}
	steps := math.Ceil(todo / s.accept)
	r.gen0, r.rate = r.done, todo/steps
	r.step0, r.last = s.step, s.step+int64(steps)
	r.at, r.chunks = running, 0
	s.batch.push(r)
	s.rate += r.rate
	s.seqLens += float64(r.prompt) + r.done
	s.promised += float64(min(r.limit, reserveLimit))
}

// leave takes r out of the batch, its output so far in r.done.
func (s *scheduler) leave(r *request) {
	g := r.generated()
	if r.step0 <= s.step && s.step >= r.last {
		g = float64(r.target())
	}
	s.batch.remove(r)
	s.rate -= r.rate
	s.seqLens -= float64(r.prompt) + g
	s.promised -= float64(min(r.limit, reserveLimit)) - (g - r.gen0)
	grown := g - r.gen0
	r.private += grown
	r.done = math.Floor(g + 1e-6)
	s.cutShort += g - r.done
	r.at = gone
	if len(s.batch) == 0 {
		s.rate, s.seqLens, s.promised = 0, 0, 0
		for _, q := range s.pass.done {
			s.promised += float64(min(q.limit-int(q.done), reserveLimit))
		}
		if s.chunk != nil {
			s.promised += float64(min(s.chunk.limit-int(s.chunk.done), reserveLimit))
		}
	}
}

// finish ends a request that has generated its tokens.
func (s *scheduler) finish(r *request, o outcome) {
	r.at = gone
	s.finishedOut += r.done
	s.release(r, true)
	s.server.obs.finished(s, r, o)
	s.end(r, o)
}

// lose ends a request that is in no batch: aborted while it waited, or lost with its engine.
func (s *scheduler) lose(r *request, o outcome) {
	switch r.at {
	case compiling:
		s.compiling--
	case bootstrap:
		s.bootstrapping--
		s.arriveFrom(r)
	case transfer:
		s.transferring--
		s.arriveFrom(r)
	case running:
		s.leave(r)
	case prefilling:
		if s.chunk == r {
			s.chunk = nil
		}
	}
	s.release(r, false)
	s.finishedOut += r.done
	r.at = gone
	s.server.obs.dropped(s, r, o)
	s.end(r, o)
}

// end tells those who wait for the request. The prefill half of a pair has nobody waiting.
func (s *scheduler) end(r *request, o outcome) {
	s.server.fleet.watchCall(s, r, o)
	if r.peer != nil && s.server.prefillOnly() {
		return
	}
	if r.front != nil {
		r.front.done(r, o, s.now)
		if o == failed && r.front.retry(r, s.now) {
			return
		}
	}
	r.load.done(r, o, s.now)
}
