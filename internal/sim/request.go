package sim

// place is where in a scheduler a request is.
type place uint8

const (
	onTheWay   place = iota // sent, not yet received
	compiling               // its grammar is being compiled
	bootstrap               // prefill engine: waits until the decode engine has room
	prealloc                // decode engine: waits for KV slots
	transfer                // decode engine: KV arriving
	waiting                 // waiting queue
	prefilling              // in a prefill pass, or between two chunks
	inflight                // prefill engine: KV being sent
	running                 // decode batch
	gone                    // finished, aborted or lost
)

// outcome is how a request ended.
type outcome uint8

const (
	completed outcome = iota // all tokens generated
	aborted                  // the client left, or the trainer had enough samples
	failed                   // the engine or the transfer broke
)

// request is one generation on one engine. In PD disaggregation it is a pair: one part on the
// prefill and one on the decode engine, peers of each other. Times are seconds since the fleet's start.
type request struct {
	id    uint64
	load  *load
	front *front
	sched *scheduler
	peer  *request
	at    place

	prompt, output, limit int    // tokens; limit is max_new_tokens
	prefix                uint64 // key of the shared start of the prompt, 0 none
	prefixLen             int
	context               uint64 // key of the conversation so far, 0 none
	contextLen            int
	system                int // index of the system prompt, -1 none
	streaming, grammar    bool
	leaveAt               int // output tokens after which the client leaves, 0 never

	born   float64 // sent by the client
	recv   float64 // received by the engine
	queued float64 // entered the waiting queue
	start  float64 // first forward pass
	first  float64 // first output token

	granted  float64 // decode engine: KV slots allocated
	sent     float64 // prefill engine: forward done, transfer queued
	ends     float64 // prefill engine: transfer ends; 0 until it is on the link
	kvHere   bool    // decode engine: KV has arrived once
	arrived  float64 // decode engine: when it had
	deserted bool    // the peer is lost; fails at the next hand-over
	swept    bool    // aborted together with others by one call
	attempt  int     // how often its front has sent it again

	hit, hostHit int     // tokens of the last admission that were cached on device, on host
	left         int     // prompt tokens still to prefill
	chunks       int     // prefill passes so far
	private      float64 // tokens of the pool that are this request's own
	holds        bool    // a reference on prefix
	retractions  int
	thrown       []float64 // when it was retracted
	resumed      []float64 // when it was admitted again
	entered      float64   // the waiting queue, the first time
	began        float64   // its first forward pass
	cachedTotal  int       // cached tokens over all admissions, as counted at the end
	hostTotal    int       // of these, loaded back from the host

	gen0        float64 // output tokens when it joined the batch
	rate        float64 // tokens per decode step
	step0, last int64   // decode steps at which it joined and will leave the batch
	index       int     // in the batch heap
	done        float64 // output tokens once it left the batch
}

// generated is the number of output tokens so far.
func (r *request) generated() float64 {
	if r.at == running {
		return r.gen0 + r.rate*float64(r.sched.step-r.step0)
	}
	return r.done
}

// target is the number of output tokens after which the request ends.
func (r *request) target() int {
	if r.leaveAt > 0 && r.leaveAt < r.output {
		return r.leaveAt
	}
	return r.output
}

// admit notes that the request goes from the waiting queue to the engine.
func (r *request) admit(now float64) {
	if r.began == 0 {
		r.began = now
	} else {
		r.resumed = append(r.resumed, now)
	}
}

// ending is the outcome of a request that has reached its target.
func (r *request) ending() outcome {
	if r.leaveAt > 0 && r.leaveAt < r.output {
		return aborted
	}
	return completed
}

// batch is the running decode batch: a heap, the request that leaves first on top.
type batch []*request

func (b batch) less(i, j int) bool {
	if b[i].last != b[j].last {
		return b[i].last < b[j].last
	}
	return b[i].id < b[j].id
}

func (b batch) swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}

func (b batch) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !b.less(i, parent) {
			return
		}
		b.swap(i, parent)
		i = parent
	}
}

func (b batch) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(b) {
			return
		}
		if child+1 < len(b) && b.less(child+1, child) {
			child++
		}
		if !b.less(child, i) {
			return
		}
		b.swap(i, child)
		i = child
	}
}

func (b *batch) push(r *request) {
	r.index = len(*b)
	*b = append(*b, r)
	b.up(r.index)
}

func (b *batch) remove(r *request) {
	i, n := r.index, len(*b)-1
	if i != n {
		b.swap(i, n)
	}
	(*b)[n] = nil
	*b = (*b)[:n]
	if i < n {
		b.down(i)
		b.up(i)
	}
}
