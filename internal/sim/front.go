package sim

// frontObserver turns what happens in a router or frontend into its own metrics.
type frontObserver interface {
	started() // a new process is up: everything counted is forgotten
	accepted(f *front, r *request, worker *server)
	firstToken(r *request, now float64)
	tokens(gap float64, n float64) // n inter-token gaps
	finished(r *request, o outcome, now float64)
	refused(f *front) // no worker could take the request
	retried(f *front) // a request whose worker was lost before its first token is sent to another one
	tick(f *front, now float64)
}

// front is a router or a frontend: it spreads requests over workers.
type front struct {
	fleet    *Fleet
	name     string
	spec     Member
	workers  []*server // that take a whole request
	prefills []*server
	decodes  []*server
	obs      frontObserver
	down     bool
	active   int
	perWork  map[*server]int // requests in progress by worker
}

func (f *front) send(r *request, t float64) bool {
	if f.down {
		return false
	}
	r.front = f
	if len(f.prefills) > 0 && len(f.decodes) > 0 {
		return f.sendPair(r, t)
	}
	w := choose(f.workers, r)
	if w == nil || !w.submit(r, t+0.002) {
		f.obs.refused(f)
		return false
	}
	f.enter(r, w)
	return true
}

// sendPair sends one request to a prefill and a decode engine at once.
func (f *front) sendPair(r *request, t float64) bool {
	p, d := choose(f.prefills, r), choose(f.decodes, nil)
	if p == nil || d == nil {
		f.obs.refused(f)
		return false
	}
	half := *r
	half.front = nil
	half.peer, r.peer = r, &half
	p.submit(&half, t+0.002)
	d.submit(r, t+0.002)
	f.perWork[p]++
	f.enter(r, d)
	return true
}

func (f *front) enter(r *request, w *server) {
	f.active++
	f.perWork[w]++
	f.obs.accepted(f, r, w)
}

// retry sends a request whose worker was lost before its first token to another one. False when it
// had been tried before, or no worker is left.
func (f *front) retry(r *request, now float64) bool {
	if r.first > 0 || r.attempt > 0 || f.down {
		return false
	}
	f.obs.retried(f)
	again := &request{
		id: r.id, load: r.load, born: r.born, attempt: r.attempt + 1,
		prompt: r.prompt, output: r.output, limit: r.limit, prefix: r.prefix, prefixLen: r.prefixLen,
		context: r.context, contextLen: r.contextLen, system: r.system, streaming: r.streaming, grammar: r.grammar, leaveAt: r.leaveAt,
	}
	return f.send(again, now)
}

func (f *front) done(r *request, o outcome, now float64) {
	f.active--
	f.perWork[r.sched.server]--
	if r.peer != nil {
		f.perWork[r.peer.sched.server]--
	}
	f.obs.finished(r, o, now)
}

// direct is a client that balances over engines itself.
type direct []*server

func (d direct) send(r *request, t float64) bool {
	w := choose(d, r)
	return w != nil && w.submit(r, t)
}

// choose picks a living worker: the one that probably has r's prefix, unless it is much busier than
// the idlest one. Without r the idlest is taken.
func choose(workers []*server, r *request) *server {
	var idlest *server
	low := 0
	for _, w := range workers {
		if w.down {
			continue
		}
		if n := w.requests(); idlest == nil || n < low {
			idlest, low = w, n
		}
	}
	if r == nil || idlest == nil {
		return idlest
	}
	key := r.prefix
	if r.context != 0 {
		key = r.context
	}
	if key == 0 {
		return idlest
	}
	if w := workers[mix(key)%uint64(len(workers))]; !w.down && w.requests() <= low+low/2+4 {
		return w
	}
	return idlest
}
