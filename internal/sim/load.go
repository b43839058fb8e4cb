package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// sink takes requests of a load: a front, or engines directly. False when nobody listens.
type sink interface {
	send(r *request, t float64) bool
}

// LoadKind is the shape of a load.
type LoadKind string

// Kinds of load.
const (
	// Chat: independent users. Poisson arrivals with a daily wave, slow wobble and short bursts;
	// conversations of several turns whose context is cached; system prompts that many share.
	Chat LoadKind = "chat"
	// Rollout: an RL trainer. Waves of groups of samples that share a prompt, all at once, then a
	// pause for training and a weight update; the long tail of each wave is waited for or aborted.
	Rollout LoadKind = "rollout"
)

// Load is one source of requests.
type Load struct {
	Name string
	Kind LoadKind
	To   []string // one router or frontend, or one or more engines

	Prompt Lengths // tokens of a user's text (chat) or of the whole prompt (rollout)
	Output Lengths // tokens; Max is also max_new_tokens
	// GrammarShare is the share of requests with a grammar, LeaveShare of those whose client leaves half-way.
	GrammarShare, LeaveShare float64
	Unstreamed               bool          // non-streaming requests
	Patience                 time.Duration // a client leaves when it has waited this long in the queue; 0 = never

	Rate          float64 // chat: requests per second, mean
	Daily         float64 // chat: amplitude of the daily wave, 0..1; the peak is at 15:00 UTC
	SystemPrompts int     // chat: number of system prompts; 0 = none
	SystemTokens  int     // chat: their length
	TurnShare     float64 // chat: probability that a conversation goes on after an answer

	Groups, Samples int           // rollout: per wave
	Enough          float64       // rollout: share of the samples after which the rest is aborted; 0 = wait for all
	Train, Sync     time.Duration // rollout: pause after a wave; then generation stops for the weight update
	FirstWave       time.Duration // rollout: since the fleet's start
}

// turn is a follow-up of a conversation that is due.
type turn struct {
	at   float64
	conv uint64
	sys  int
	len  int // tokens of context
}

// load is a Load at work.
type load struct {
	fleet   *Fleet
	spec    Load
	sink    sink
	servers []*server // that its weight updates pause
	rng     *rand.Rand
	next    float64 // next candidate arrival, or the next step of the rollout
	burst   bool
	burstAt float64 // when the burst state changes

	turns []turn // a heap by time
	seq   uint64

	phase        phase
	open, filled int // requests of the wave in progress; completed
	factor       float64
	longer       float64
	muted        bool

	sentRequests, endedRequests int
	ended                       [3]int // by outcome
}

type phase uint8

const (
	training phase = iota
	generating
	syncing
)

// maxFactor bounds the arrival rate over its mean: what thinning draws candidates at.
const maxFactor = 3.0

// shape is the arrival rate at t over the mean rate.
func (l *load) shape(t float64) float64 {
	hour := float64(l.fleet.startOfDay) + t
	f := 1 + l.spec.Daily*math.Cos(2*math.Pi*(hour-15*3600)/86400)
	f *= 1 + 0.18*math.Sin(2*math.Pi*t/431) + 0.10*math.Sin(2*math.Pi*t/97+1)
	if l.burst {
		f *= 1.7
	}
	return min(f, maxFactor)
}

// advance sends what is due in [lo, hi).
func (l *load) advance(lo, hi float64) {
	if l.spec.Kind == Rollout {
		l.advanceRollout(lo)
		return
	}
	for l.burstAt < hi {
		l.burst = !l.burst
		mean := 240.0
		if l.burst {
			mean = 40
		}
		l.burstAt += mean * l.rng.ExpFloat64()
	}
	peak := l.spec.Rate * maxFactor * max(1, l.factor)
	for l.next < hi {
		t := l.next
		l.next += l.rng.ExpFloat64() / peak
		if t < lo || l.muted || l.rng.Float64()*peak > l.spec.Rate*l.factor*l.shape(t) {
			continue
		}
		sys := -1
		if l.spec.SystemPrompts > 0 {
			// A few system prompts have most of the traffic.
			sys = int(float64(l.spec.SystemPrompts) * math.Pow(l.rng.Float64(), 2.5))
		}
		l.seq++
		l.sendChat(turn{at: t, conv: mix(l.seq^l.fleet.cfg.Seed)<<8 | 2, sys: sys})
	}
	for len(l.turns) > 0 && l.turns[0].at < hi {
		u := l.popTurn()
		if !l.muted {
			l.sendChat(u)
		}
	}
}

func (l *load) sendChat(u turn) {
	text := l.spec.Prompt.draw(l.rng)
	r := l.request(u.at)
	r.context, r.contextLen, r.system = u.conv, u.len, u.sys
	if u.sys >= 0 {
		r.prefix, r.prefixLen = mix(uint64(u.sys)+uint64(len(l.spec.Name))<<32)<<8|4, l.spec.SystemTokens
	}
	r.prompt = r.prefixLen + r.contextLen + text
	l.submit(r, u.at)
}

// request draws everything about a request that does not depend on its prompt.
func (l *load) request(t float64) *request {
	l.fleet.lastID++
	r := &request{id: l.fleet.lastID, load: l, born: t, streaming: !l.spec.Unstreamed}
	r.output = max(1, int(float64(l.spec.Output.draw(l.rng))*l.longer))
	r.limit = max(l.spec.Output.Max, r.output)
	if l.spec.GrammarShare > 0 {
		r.grammar = l.rng.Float64() < l.spec.GrammarShare
	}
	if l.spec.LeaveShare > 0 && l.rng.Float64() < l.spec.LeaveShare {
		r.leaveAt = 1 + int(l.rng.Float64()*float64(r.output))
	}
	return r
}

func (l *load) submit(r *request, t float64) {
	l.sentRequests++
	if !l.sink.send(r, t) {
		r.at = gone
		l.endedRequests++
		l.ended[failed]++
		if l.spec.Kind == Rollout {
			l.open--
		}
	}
}

// done is called when a request has ended.
func (l *load) done(r *request, o outcome, now float64) {
	l.endedRequests++
	l.ended[o]++
	if l.spec.Kind == Rollout {
		l.open--
		l.filled++
		return
	}
	long := r.prompt+int(r.done) > 24000
	if o != completed || long || l.rng.Float64() >= l.spec.TurnShare {
		return
	}
	think := 2 + 18*l.rng.ExpFloat64()
	l.pushTurn(turn{at: now + think, conv: r.context, sys: r.system, len: r.prompt - r.prefixLen + int(r.done)})
}

// advanceRollout drives the trainer: a wave, training, a weight update, the next wave.
func (l *load) advanceRollout(lo float64) {
	switch l.phase {
	case training:
		if l.next > lo {
			return
		}
		if l.seq > 0 && l.spec.Sync > 0 {
			for _, sv := range l.servers {
				sv.pause(lo, l.spec.Sync.Seconds())
			}
			l.phase, l.next = syncing, lo+l.spec.Sync.Seconds()
			return
		}
		l.wave(lo)
	case syncing:
		if l.next <= lo {
			l.wave(lo)
		}
	case generating:
		n := l.spec.Groups * l.spec.Samples
		if l.open > 0 && l.spec.Enough > 0 && l.filled >= int(l.spec.Enough*float64(n)) {
			for _, sv := range l.servers {
				sv.sweep(l)
			}
		}
		if l.open <= 0 {
			l.phase, l.next = training, lo+l.spec.Train.Seconds()
		}
	}
}

// wave sends all samples of one rollout step.
func (l *load) wave(t float64) {
	if l.muted {
		l.next = t + 1
		l.phase = syncing
		return
	}
	l.phase = generating
	l.filled = 0
	n := max(1, int(math.Round(float64(l.spec.Groups)*l.factor)))
	l.open += n * l.spec.Samples
	for range n {
		l.seq++
		prompt := l.spec.Prompt.draw(l.rng)
		for range l.spec.Samples {
			r := l.request(t)
			r.prompt = prompt
			if prompt > 1 {
				r.prefix, r.prefixLen = mix(l.seq^l.fleet.cfg.Seed)<<8|8, prompt-1
			}
			l.submit(r, t)
			t += 0.001
		}
	}
}

func (l *load) pushTurn(u turn) {
	l.turns = append(l.turns, u)
	for i := len(l.turns) - 1; i > 0; {
		p := (i - 1) / 2
		if l.turns[p].at <= l.turns[i].at {
			break
		}
		l.turns[p], l.turns[i] = l.turns[i], l.turns[p]
		i = p
	}
}

func (l *load) popTurn() turn {
	top, n := l.turns[0], len(l.turns)-1
	l.turns[0] = l.turns[n]
	l.turns = l.turns[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && l.turns[c+1].at < l.turns[c].at {
			c++
		}
		if l.turns[i].at <= l.turns[c].at {
			break
		}
		l.turns[i], l.turns[c] = l.turns[c], l.turns[i]
		i = c
	}
	return top
}
