package rolls

import (
	"math"
	"math/rand/v2"
)

// Times in a plan are seconds since the step's start; what has none is NaN.
var none = math.NaN()

// phases of a request with PD, in slime's order; the names stand in trace.go.
const (
	pBootQueue = iota
	pBoot
	pAlloc
	pForward
	pTransferQueue
	dPrealloc
	dBoot
	dAlloc
	dTransfer
	dForward
	numPhases
)

type finish uint8

const (
	stop finish = iota
	length
	abort
)

var finishNames = [...]string{"stop", "length", "abort"}

type outcome uint8

const (
	toolFine outcome = iota
	toolError
	toolHang
)

// tool is a call of a tool after a request.
type tool struct {
	kind       int // of toolNames
	start, end float64
	outcome    outcome
	tokens     int // that its answer adds to the response
}

// request is one span of a generation.
type request struct {
	attempt, turn                      int
	start, end                         float64 // of the client's span
	maxNew, prompt, completion, cached int
	engine                             int
	queue, e2e, throughput             float64 // s, s, tokens/s; throughput is NaN for less than two tokens
	phase                              [numPhases]float64
	speed, megabytes                   float64
	retries                            int
	finish                             finish
	fresh                              bool // everything before it was thrown away
	accepted, drafted, verified        int  // speculative decoding
	tool                               *tool
	decodeStart, began, accept         float64 // of the model
}

// pass is one run of generate_and_rm_group over a sample: the step itself, or the step before for
// samples that were carried over.
type pass struct {
	rollout                                          int
	groupStart, groupEnd, start, end                 float64
	rewardStart, rewardEnd                           float64
	requests                                         []request
	before                                           int // attempt number when it begins
	restarts                                         []float64
	resumed                                          bool    // begins with attempt_start
	dequeued                                         float64 // taken out of the buffer
	enqueued                                         float64
	enqueuedStatus                                   string
	responseAtResume, responseAtEnd, discardedTokens int // tokens
}

type status uint8

const (
	completed status = iota
	truncated
	failed
)

var statusNames = [...]string{"completed", "truncated", "failed"}

// turn is what the model writes in one go, and the tokens of the tool's answer after it.
type turn struct{ tokens, tool int }

// sample is the plan of one sample.
type sample struct {
	ordinal, index, group int
	prompt                int
	turns                 []turn
	cut                   bool // max_new_tokens ends it
	loops                 bool // the text repeats itself
	right                 bool
	carried               bool
	status                status
	nonGeneration         float64
	passes                []pass

	// where the model is
	turn, inTurn int // turn that comes next, tokens of it that are there
	response     int // tokens so far
	context      int // tokens that an engine has in its cache
	attempt      int
	epoch        uint32 // a restart makes older events void
	home         int    // engine that ran the last request, -1 none
	reset        bool   // the next request begins from nothing
	slow         float64
}

func (s *sample) last() *pass { return &s.passes[len(s.passes)-1] }

func (p *pass) cur() *request { return &p.requests[len(p.requests)-1] }

// plan is one step: what happens when, without its contents.
type plan struct {
	o       Options
	samples []sample
	end     float64
	slowed  bool // a straggler was chosen
}

// rng returns the random source of one part of the step: parts do not disturb each other's draws.
func (o *Options) rng(part, n uint64) *rand.Rand {
	x := o.Seed*0x9e3779b97f4a7c15 + uint64(o.RolloutID)*0xd1342543de82ef95
	if o.Eval {
		x ^= 0x2545f4914f6cdd1d
	}
	return rand.New(rand.NewPCG(x, part<<56^n))
}

const (
	partGroup = iota + 1
	partModel
	partSample
	partIDs
	partText
)

// newPlan draws what the samples want, before anything has a time.
func newPlan(o Options) *plan {
	p := &plan{o: o, samples: make([]sample, o.Samples)}
	groups := o.Samples / o.GroupSize
	carried := 0
	if o.RolloutID > 0 && !o.Eval {
		carried = int(math.Round(o.Partial * float64(groups)))
	}
	for g := range groups {
		id := o.RolloutID*groups + g
		// A group that is carried over keeps what it drew in the step before.
		draw := o
		if g < carried {
			draw.RolloutID--
		}
		r := draw.rng(partGroup, uint64(id))
		prompt := o.Prompt.draw(r)
		// The prompt decides most of how long its answers are, and how often they are right.
		hard := r.NormFloat64()
		multi := r.Float64() < o.MultiTurn
		odds := math.Log(o.Reward/(1-o.Reward)) - 1.6*hard
		right := 1 / (1 + math.Exp(-odds))
		for m := range o.GroupSize {
			n := g*o.GroupSize + m
			s := &p.samples[n]
			*s = sample{ordinal: n, index: id*o.GroupSize + m, group: id, prompt: prompt, carried: g < carried, home: -1, slow: 1}
			p.draw(s, draw.rng(partSample, uint64(s.index)), hard, right, multi)
		}
	}
	if o.Eval {
		p.index()
	}
	return p
}

// index numbers the samples of each dataset from 0, as an evaluation does.
func (p *plan) index() {
	for n := range p.samples {
		d := p.o.dataset(n)
		p.samples[n].index = n
		if d > 0 {
			p.samples[n].index = n - p.o.datasetStart(d)
		}
	}
}

// datasetStart is the first ordinal of dataset d.
func (o *Options) datasetStart(d int) int {
	groups := o.Samples / o.GroupSize
	return groups * d / len(o.Datasets) * o.GroupSize
}

// dataset is the dataset of a sample.
func (o *Options) dataset(ordinal int) int {
	d := 0
	for d+1 < len(o.Datasets) && ordinal >= o.datasetStart(d+1) {
		d++
	}
	return d
}

func (p *plan) draw(s *sample, r *rand.Rand, hard, right float64, multi bool) {
	o := &p.o
	z := 0.6*hard + 0.8*r.NormFloat64()
	want := int(math.Max(1, math.Round(float64(o.Response.Median)*math.Exp(o.Response.Sigma*z))))
	limit := o.Response.Max
	if limit == 0 {
		limit = math.MaxInt32
	}
	rounds := 1
	if multi {
		rounds = 1 + int(r.ExpFloat64()*1.7)
		rounds = min(rounds, 8)
	}
	left, room := want, limit
	for k := range rounds {
		t := turn{tokens: left}
		if k+1 < rounds {
			t.tokens = max(1, int(float64(left)*(0.15+0.5*r.Float64())))
			t.tool = max(4, int(90*math.Exp(0.8*r.NormFloat64())))
		}
		left -= t.tokens
		if t.tokens >= room {
			t.tokens, t.tool = room, 0
			s.cut = want > limit || rounds > 1
			s.turns = append(s.turns, t)
			break
		}
		room -= t.tokens
		t.tool = min(t.tool, room-1)
		if t.tool <= 0 && k+1 < rounds {
			t.tool = 0
			s.turns = append(s.turns, t)
			break
		}
		room -= t.tool
		s.turns = append(s.turns, t)
		if left <= 0 {
			s.turns[len(s.turns)-1].tool = 0
			break
		}
	}
	if s.cut {
		s.status = truncated
		s.loops = r.Float64() < 0.3
		right *= 0.05
	}
	s.right = r.Float64() < right
}

// toolCall draws a call of a tool that begins at t and answers with so many tokens.
func (p *plan) toolCall(r *rand.Rand, t float64, tokens int) *tool {
	c := &tool{kind: r.IntN(len(toolNames)), start: t, tokens: tokens}
	hang := r.Float64() < p.o.ToolHangs
	if _, ok := p.o.during(toolTimeouts, t, -1); ok {
		hang = true
	}
	broken := r.Float64() < p.o.ToolErrors
	switch {
	case hang:
		c.outcome, c.end, c.tokens = toolHang, t+toolTimeout, 0
	case broken:
		c.outcome, c.end, c.tokens = toolError, t+0.05+0.2*r.ExpFloat64(), 0
	default:
		c.end = t + 0.6*math.Exp(0.9*r.NormFloat64())
		c.end = min(c.end, t+toolTimeout-0.1)
	}
	return c
}

// toolTimeout is when a tool is cancelled, in seconds.
const toolTimeout = 20.0

// reward draws how long the reward model takes for a call at t.
func (p *plan) reward(r *rand.Rand, t float64) float64 {
	d := 0.06 * math.Exp(0.5*r.NormFloat64())
	if f, ok := p.o.during(rewardOutage, t, -1); ok {
		_, to := f.window()
		d += to - t + 0.5 + 2*r.Float64()
	}
	return d
}

// history gives the samples that were carried over their life in the step before: what was generated
// until it ended, at a middling speed.
func (p *plan) history() {
	o := &p.o
	end := -o.TrainTime.Seconds()
	long := 3 * float64(o.Response.Median) / o.TokensPerSecond
	begin := end - long
	if o.Previous != nil {
		begin, end = o.Previous.Start.Sub(o.Start).Seconds(), o.Previous.End.Sub(o.Start).Seconds()
		long = end - begin
	}
	for g := 0; g < len(p.samples); g += o.GroupSize {
		if !p.samples[g].carried {
			continue
		}
		r := o.rng(partModel, uint64(g)<<32)
		start := begin + long*(0.1+0.7*r.Float64())
		last := start
		for m := range o.GroupSize {
			s := &p.samples[g+m]
			p.before(s, r, start, float64(m)*25e-6, end)
			last = max(last, s.last().end)
		}
		for m := range o.GroupSize {
			b := s0(p, g+m)
			b.groupEnd = last + 40e-6
			b.enqueued = end + 0.002 + float64(m)*20e-6
		}
	}
}

func s0(p *plan, n int) *pass { return &p.samples[n].passes[0] }

// before lives one sample's life in the step before.
func (p *plan) before(s *sample, r *rand.Rand, groupStart, off, end float64) {
	o := &p.o
	speed := o.TokensPerSecond * (0.35 + 0.3*r.Float64())
	s.passes = append(s.passes, pass{rollout: o.RolloutID - 1, groupStart: groupStart, start: groupStart + 60e-6 + off,
		rewardStart: none, rewardEnd: none, dequeued: none, enqueuedStatus: "aborted"})
	b := s.last()
	t := b.start + 20e-6
	for s.turn < len(s.turns) && t < end-0.05 {
		q := p.open(s, t)
		q.engine = r.IntN(o.Engines)
		want := s.turns[s.turn].tokens - s.inTurn
		ready := p.solo(q, r, t)
		tokens := want
		q.finish = p.finishOf(s)
		if room := int((end - ready - 0.01) * speed); room < want {
			tokens, q.finish = max(room, 0), abort
		}
		p.close(s, q, ready+float64(tokens)/speed, tokens)
		t = q.end
		if q.finish == abort {
			break
		}
		if s.turn == len(s.turns) {
			break
		}
		c := p.toolCall(r, t, s.turns[s.turn-1].tool)
		if c.end > end {
			// No tool is cut by the end of a step: slime waits for it.
			end = c.end
		}
		q.tool = c
		p.toolDone(s, c)
		t = c.end
	}
	b.end = t + 15e-6
	if s.turn == len(s.turns) {
		b.rewardStart = t + 15e-6
		b.rewardEnd = b.rewardStart + 0.06*math.Exp(0.5*r.NormFloat64())
		b.end = b.rewardEnd + 20e-6
		b.enqueuedStatus = statusNames[s.status]
	}
	b.responseAtEnd = s.response
}

// solo gives a request of the step before its timings until it decodes, without waiting for others.
func (p *plan) solo(q *request, r *rand.Rand, t float64) float64 {
	q.accept = t + network
	q.began = q.accept + tokenize
	if !p.o.PD {
		q.queue = 0.002 + 0.02*r.ExpFloat64()
		q.decodeStart = q.began + q.queue + p.prefillCost(q)
		return q.decodeStart
	}
	pre := p.prealloc(q, r, q.began)
	fs := pre + 0.001 + 0.003*r.ExpFloat64()
	return p.transfer(q, r, pre, fs)
}
