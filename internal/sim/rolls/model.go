package rolls

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// Fixed costs in seconds.
const (
	network  = 0.0008 // one way between the client and an engine
	tokenize = 0.0012
	detoken  = 0.0006
)

// kneeRequests is how many requests at once halve the speed of each.
const kneeRequests = 160

// event is something that happens at a time. seq keeps the order of what happens at once.
type event struct {
	at     float64
	seq    uint64
	kind   uint8
	sample int
	epoch  uint32
	engine int
	ver    uint64
}

const (
	evArrive  uint8 = iota // a sample wants to generate
	evSubmit               // the next request of a sample goes out
	evDecode               // a request begins to decode
	evEngine               // the first request of an engine is done, unless the engine changed meanwhile
	evTool                 // a tool is done
	evEdge                 // an engine's speed changes
	evRestart              // an engine aborts what it has
	evBack                 // and is there again
)

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// engine shares its speed among the requests that it runs: each has generated the same number of
// tokens since any moment, which work counts.
type engine struct {
	id      int
	running eventHeap // at: the work at which the request is done
	waiting []int     // samples
	slots   int       // requests that have a place, those in prefill included
	work    float64   // tokens per request since the start
	last    float64   // time at which work was right
	ver     uint64
	free    float64 // when its prefill is idle again (without PD)
	away    bool
}

type model struct {
	p        *plan
	r        *rand.Rand
	events   eventHeap
	seq      uint64
	engines  []engine
	prefills []float64 // when each is idle again
	open     int       // requests that the client may still begin
	queue    []int     // samples that wait for that
	head     int
}

// live gives everything of the step its time.
func (p *plan) live() {
	o := &p.o
	if o.RolloutID > 0 {
		p.history()
	}
	m := &model{p: p, r: o.rng(partModel, 0), engines: make([]engine, o.Engines), prefills: make([]float64, o.Prefills), open: o.Concurrency * o.Engines}
	for i := range m.engines {
		m.engines[i].id = i
	}
	for _, f := range o.Faults {
		from, to := f.window()
		switch f.Name {
		case slowEngine:
			m.push(event{at: from, kind: evEdge})
			if f.For > 0 {
				m.push(event{at: to, kind: evEdge})
			}
		case engineRestart:
			e := max(f.Engine, 0)
			m.push(event{at: from, kind: evRestart, engine: e})
			m.push(event{at: to, kind: evBack, engine: e})
		}
	}
	t := 0.0
	for g := 0; g < len(p.samples); g += o.GroupSize {
		t += 60e-6
		groupStart := t
		for k := range o.GroupSize {
			s := &p.samples[g+k]
			t += 20e-6
			ps := pass{rollout: o.RolloutID, groupStart: groupStart, start: t, rewardStart: none, rewardEnd: none, dequeued: none, enqueued: none, before: s.attempt}
			if s.carried {
				ps.dequeued = groupStart - 30e-6
				if s.turn < len(s.turns) {
					s.attempt++
					ps.resumed, ps.responseAtResume = true, s.response
				}
			}
			s.passes = append(s.passes, ps)
			if s.turn == len(s.turns) { // it was complete when the step before ended
				s.last().end = t + 5e-6
				continue
			}
			m.push(event{at: t + 10e-6, kind: evArrive, sample: g + k})
		}
	}
	for len(m.events) > 0 {
		m.step(heap.Pop(&m.events).(event))
	}
	for g := 0; g < len(p.samples); g += o.GroupSize {
		end := 0.0
		for k := range o.GroupSize {
			end = max(end, p.samples[g+k].last().end)
		}
		for k := range o.GroupSize {
			p.samples[g+k].last().groupEnd = end + 40e-6
		}
		p.end = max(p.end, end+60e-6)
	}
}

func (m *model) push(e event) {
	m.seq++
	e.seq = m.seq
	heap.Push(&m.events, e)
}

func (m *model) step(e event) {
	p := m.p
	switch e.kind {
	case evArrive:
		if m.open == 0 {
			m.queue = append(m.queue, e.sample)
			return
		}
		m.open--
		m.submit(e.sample, e.at)
	case evSubmit:
		m.submit(e.sample, e.at)
	case evDecode:
		s := &p.samples[e.sample]
		if e.epoch != s.epoch {
			return
		}
		m.decode(&m.engines[e.engine], s, e.at)
	case evEngine:
		en := &m.engines[e.engine]
		if e.ver != en.ver {
			return
		}
		m.advance(en, e.at)
		done := heap.Pop(&en.running).(event)
		en.slots--
		m.done(en, &p.samples[done.sample], e.at)
		m.admit(en, e.at)
		m.schedule(en)
	case evTool:
		s := &p.samples[e.sample]
		p.toolDone(s, s.last().cur().tool)
		m.submit(e.sample, e.at)
	case evEdge:
		for i := range m.engines {
			m.advance(&m.engines[i], e.at)
			m.schedule(&m.engines[i])
		}
	case evRestart:
		m.restart(&m.engines[e.engine], e.at)
	case evBack:
		m.engines[e.engine].away = false
		m.admit(&m.engines[e.engine], e.at)
	}
}

// open begins the next request of a sample.
func (p *plan) open(s *sample, t float64) *request {
	b := s.last()
	b.requests = append(b.requests, request{attempt: s.attempt, turn: s.turn, start: t, prompt: s.prompt + s.response,
		maxNew: p.limit() - s.response, throughput: none, fresh: s.reset})
	s.reset = false
	q := b.cur()
	if s.context > 0 {
		q.cached = s.context / 16 * 16
	} else if s.index%p.o.GroupSize != 0 { // the first of the group has filled the cache
		q.cached = (q.prompt - 1) / 16 * 16
	}
	q.cached = min(q.cached, (q.prompt-1)/16*16)
	return q
}

func (p *plan) limit() int {
	if p.o.Response.Max > 0 {
		return p.o.Response.Max
	}
	return 1 << 20
}

// finishOf says how a request ends that generates all that its turn wants.
func (p *plan) finishOf(s *sample) finish {
	if s.cut && s.turn == len(s.turns)-1 {
		return length
	}
	return stop
}

// close ends a request at the time at which its engine has the last token.
func (p *plan) close(s *sample, q *request, t float64, tokens int) {
	q.completion = tokens
	done := t + detoken
	q.e2e = done - q.accept
	q.end = done + network
	if d := t - q.decodeStart; tokens > 1 && d > 0 {
		q.throughput = float64(tokens-1) / d
	}
	if p.o.PD {
		q.phase[dForward] = t - q.decodeStart
	}
	if p.o.Speculative && tokens > 0 {
		// Of three tokens drafted at a time, about two are right.
		q.verified = max(1, int(float64(tokens)/2.9))
		q.drafted = 3 * q.verified
		q.accepted = min(tokens-q.verified, q.drafted)
		q.accepted = max(q.accepted, 0)
	}
	s.response += tokens
	s.inTurn += tokens
	s.context = s.prompt + s.response
	if q.finish != abort {
		s.turn, s.inTurn = s.turn+1, 0
	}
}

// toolDone adds the answer of a tool to the response. s.turn is already that of the next request.
func (p *plan) toolDone(s *sample, c *tool) {
	s.response += c.tokens
	s.nonGeneration += c.end - c.start
}

func (p *plan) prefillCost(q *request) float64 {
	return 0.006 + float64(q.prompt-q.cached)/22000
}

// prealloc gives a request its place on its decode engine at the time at which one is free.
func (p *plan) prealloc(q *request, r *rand.Rand, free float64) float64 {
	q.phase[dBoot] = 0.001 + 0.0015*r.ExpFloat64()
	q.phase[dAlloc] = max(free-(q.began+q.phase[dBoot]), 0) + 0.0003 + 0.0008*r.ExpFloat64()
	q.phase[dPrealloc] = q.phase[dBoot] + q.phase[dAlloc]
	// The prefill engine hears of the place when the decode engine has it.
	q.phase[pBoot] = q.phase[dPrealloc] + 0.0008 + 0.001*r.ExpFloat64()
	q.phase[pAlloc] = 0.0002 + 0.0006*r.ExpFloat64()
	q.phase[pBootQueue] = q.phase[pBoot] + q.phase[pAlloc]
	return q.began + q.phase[pBootQueue]
}

// transfer prefills from fs on, moves the KV cache, and returns when the request begins to decode.
func (p *plan) transfer(q *request, r *rand.Rand, ready, fs float64) float64 {
	q.megabytes = float64(q.prompt) * float64(p.o.KVBytesPerToken) / (1 << 20)
	q.speed = 9 + 9*r.Float64()
	wait := 0.002 + 0.004*r.ExpFloat64()
	if _, ok := p.o.during(transferSlow, fs, q.engine); ok {
		q.speed /= 8
		q.retries = 1 + r.IntN(3)
		wait += 0.25 * float64(q.retries)
	}
	q.phase[pTransferQueue] = wait + q.megabytes/1024/q.speed
	q.phase[pForward] = p.prefillCost(q) + q.phase[pTransferQueue]
	arrived := fs + q.phase[pForward]
	q.phase[dTransfer] = arrived - (q.began + q.phase[dPrealloc])
	q.queue = 0.0004 + 0.003*r.ExpFloat64()
	q.decodeStart = arrived + q.queue
	return q.decodeStart
}

// submit sends the next request of a sample to the engine with the least to do, or, for a
// conversation, to the one that has its cache while that is not overloaded.
func (m *model) submit(n int, t float64) {
	s := &m.p.samples[n]
	q := m.p.open(s, t)
	var best *engine
	load := func(e *engine) int { return e.slots + len(e.waiting) }
	for i := range m.engines {
		e := &m.engines[i]
		if e.away && len(m.engines) > 1 {
			continue
		}
		if best == nil || load(e) < load(best) {
			best = e
		}
	}
	if s.home >= 0 && !m.engines[s.home].away && load(&m.engines[s.home]) < m.p.o.Running {
		best = &m.engines[s.home]
	} else if s.home >= 0 && s.home != best.id {
		q.cached = 0
	}
	s.home, q.engine = best.id, best.id
	q.accept = t + network
	q.began = q.accept + tokenize
	best.waiting = append(best.waiting, n)
	m.admit(best, t)
}

// admit gives places to those who wait.
func (m *model) admit(e *engine, t float64) {
	for len(e.waiting) > 0 && e.slots < m.p.o.Running && !e.away {
		n := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.slots++
		s := &m.p.samples[n]
		q := s.last().cur()
		free := max(t, q.began)
		var start float64
		if m.p.o.PD {
			ready := m.p.prealloc(q, m.r, free)
			i := 0
			for k := range m.prefills {
				if m.prefills[k] < m.prefills[i] {
					i = k
				}
			}
			fs := max(ready, m.prefills[i]) + 0.0002
			m.prefills[i] = fs + m.p.prefillCost(q)/8 // a pass takes several prompts
			start = m.p.transfer(q, m.r, ready, fs)
		} else {
			fs := max(free, e.free)
			e.free = fs + m.p.prefillCost(q)/8
			q.queue = fs - q.began
			q.decodeStart = fs + m.p.prefillCost(q)
			start = q.decodeStart
		}
		m.push(event{at: start, kind: evDecode, sample: n, epoch: s.epoch, engine: e.id})
	}
}

func (m *model) decode(e *engine, s *sample, t float64) {
	m.advance(e, t)
	want := s.turns[s.turn].tokens - s.inTurn
	if !m.p.slowed && want >= m.p.o.Response.Median {
		if _, ok := m.p.o.during(straggler, t, e.id); ok {
			s.slow, m.p.slowed = 0.1, true
		}
	}
	m.seq++
	heap.Push(&e.running, event{at: e.work + float64(want)/s.slow, seq: m.seq, sample: s.ordinal})
	m.schedule(e)
}

// speed is the tokens per second of each request of an engine.
func (m *model) speed(e *engine, t float64) float64 {
	v := m.p.o.TokensPerSecond / (1 + float64(len(e.running))/kneeRequests)
	for _, f := range m.p.o.Faults {
		if f.Name != slowEngine {
			continue
		}
		target := f.Engine
		if target < 0 {
			target = len(m.engines) - 1
		}
		if from, to := f.window(); target == e.id && t >= from && t < to {
			v /= 4
		}
	}
	return v
}

// advance brings an engine's work up to t.
func (m *model) advance(e *engine, t float64) {
	if t > e.last {
		e.work += (t - e.last) * m.speed(e, e.last)
		e.last = t
	}
}

func (m *model) schedule(e *engine) {
	e.ver++
	if len(e.running) == 0 {
		return
	}
	wait := max(e.running[0].at-e.work, 0) / m.speed(e, e.last)
	m.push(event{at: e.last + wait, kind: evEngine, engine: e.id, ver: e.ver})
}

// done ends the request of a sample, and says what comes next.
func (m *model) done(e *engine, s *sample, t float64) {
	q := s.last().cur()
	q.finish = m.p.finishOf(s)
	tokens := s.turns[s.turn].tokens - s.inTurn
	m.p.close(s, q, t, tokens)
	if s.turn < len(s.turns) {
		q.tool = m.p.toolCall(m.r, q.end, s.turns[s.turn-1].tool)
		m.push(event{at: q.tool.end, kind: evTool, sample: s.ordinal})
		return
	}
	if m.p.o.MultiTurn > 0 && len(s.turns) > 1 && m.r.Float64() < 0.004 {
		s.status, s.right = failed, false
	}
	m.leave(q.end)
	b := s.last()
	b.rewardStart = q.end + 25e-6
	b.rewardEnd = b.rewardStart + m.p.reward(m.r, b.rewardStart)
	b.end = b.rewardEnd + 20e-6
	b.responseAtEnd = s.response
}

// leave lets the next sample generate.
func (m *model) leave(t float64) {
	if m.head < len(m.queue) {
		n := m.queue[m.head]
		m.head++
		m.push(event{at: t + 10e-6, kind: evSubmit, sample: n})
		return
	}
	m.open++
}

// restart aborts all requests of an engine; their samples begin again from nothing.
func (m *model) restart(e *engine, t float64) {
	m.advance(e, t)
	e.away = true
	have := map[int]int{} // tokens that are lost
	for _, r := range e.running {
		s := &m.p.samples[r.sample]
		want := s.turns[s.turn].tokens - s.inTurn
		left := int(math.Ceil((r.at - e.work) * s.slow))
		have[r.sample] = max(want-left, 0)
	}
	e.running, e.waiting, e.slots = nil, nil, 0
	e.ver++
	for n := range m.p.samples {
		s := &m.p.samples[n]
		if len(s.passes) == 0 || s.home != e.id {
			continue
		}
		b := s.last()
		if len(b.requests) == 0 || b.cur().end != 0 {
			continue
		}
		q := b.cur()
		q.finish = abort
		if have[n] == 0 {
			// It had no token yet: whatever it waited for is not said.
			q.decodeStart = max(t, q.accept+1e-3)
			q.phase = [numPhases]float64{}
			q.megabytes, q.speed = 0, 0
			q.queue = max(t-q.began, 0)
		}
		m.p.close(s, q, max(t, q.accept+1e-3), have[n])
		s.epoch++
		s.attempt++
		b.restarts = append(b.restarts, q.end+200e-6)
		b.discardedTokens += s.response
		s.response, s.turn, s.inTurn, s.context, s.home, s.reset = 0, 0, 0, 0, -1, true
		m.push(event{at: q.end + 0.001, kind: evSubmit, sample: n})
	}
}
