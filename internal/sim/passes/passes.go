// Package passes sends forward-pass messages as the data-parallel ranks of a simulated engine do: at a rate,
// with heartbeats while idle, messages that get lost, and restarts. Its entry point is [Run]; [Rank] is one
// rank's life without a socket.
package passes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
)

// forms are the ways in which engines of the field write messages.
var forms = map[string]fpm.Layout{
	"v1":         {},
	"v0":         {V0: true},
	"vllm":       {},
	"wide":       {Wide: true},
	"future":     {Future: true},
	"positional": {Positional: true},
}

// Forms are the words that [Options].Form takes.
func Forms() []string { return []string{"v1", "v0", "vllm", "wide", "future", "positional"} }

// cycle is the time of which Idle is the share.
const cycle = 10 * time.Second

// Options of a simulated engine.
type Options struct {
	Endpoint string        // ipc:///PATH, of which .RANK is appended, or tcp://HOST:PORT, of which the port counts on (0: free ones)
	Ranks    int           // at least 1
	Rate     float64       // passes a second of each rank
	Worker   string        // worker_id
	Form     string        // one of Forms; "" is v1
	Idle     float64       // share of each 10 s in which there are no requests, at the end
	Drop     float64       // share of the messages that are numbered and never sent
	Restart  time.Duration // every so often the numbers begin anew; 0 never
	Seed     uint64
	For      time.Duration // 0 runs until ctx ends
	Count    int64         // messages of each rank, dropped ones included; 0 for no end
	Wait     bool          // begin when each rank has a subscriber
	// Begun is told where the ranks can be heard, before anything is sent; nil tells nobody.
	Begun func(endpoints []string)
}

// Counts are what was sent.
type Counts struct {
	Passes, Heartbeats int64
	Dropped            int64 // numbered and not sent, as ordered
	Restarts           int64
	Unheard            int64 // sent while nobody had subscribed
	Full               int64 // that a subscriber was too slow for
}

func (o *Options) check() error {
	if o.Form == "" {
		o.Form = "v1"
	}
	switch _, known := forms[o.Form]; {
	case o.Ranks < 1 || o.Ranks > 1024:
		return fmt.Errorf("%d ranks: there are 1 to 1024", o.Ranks)
	case !(o.Rate > 0) || o.Rate > 100_000:
		return fmt.Errorf("a rate of %v passes a second: it is above 0 and at most 100000", o.Rate)
	case !(o.Idle >= 0 && o.Idle <= 1):
		return fmt.Errorf("idle for a share of %v: it is 0 to 1", o.Idle)
	case !(o.Drop >= 0 && o.Drop < 1):
		return fmt.Errorf("a share of %v is dropped: it is at least 0 and below 1", o.Drop)
	case o.Count < 0 || o.For < 0 || o.Restart < 0:
		return errors.New("a count or a time is negative: 0 means none")
	case !known:
		return fmt.Errorf("there is no form %q: it is one of %v", o.Form, Forms())
	}
	return nil
}

// Rank is the life of one rank. The same seed lives the same life.
type Rank struct {
	o        Options
	p        fpm.Pass
	rand     *rand.Rand
	n        uint64 // the next message's number
	requests float64
	beat     time.Duration // of the last heartbeat
	restart  time.Duration // when the next one is
	buf      []byte
}

// NewRank returns rank i of an engine.
func NewRank(o Options, i int) (*Rank, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return newRank(o, i), nil
}

// newRank is NewRank for options that are checked.
func newRank(o Options, i int) *Rank {
	r := &Rank{o: o, rand: rand.New(rand.NewPCG(o.Seed, uint64(i))), requests: 16, beat: -time.Hour, restart: o.Restart}
	r.p = fpm.Pass{Rank: uint32(i), WorkerID: o.Worker}
	if o.Form == "vllm" {
		r.p.TimingScope = "execute_model_cuda"
	}
	return r
}

// Message is what a rank has to say.
type Message struct {
	Number    uint64 // of the socket's frames; equal to counter_id
	Payload   []byte // good until the next call
	Heartbeat bool
	Dropped   bool // numbered and not to be sent
	Restart   bool // it is the first of a new life
}

// Next returns what the rank says at a time after the start; ok is false when that is nothing, since it is
// idle and its last heartbeat is less than a second old.
func (r *Rank) Next(at time.Duration) (m Message, ok bool) {
	if r.o.Restart > 0 && at >= r.restart {
		r.n, r.restart, m.Restart = 0, r.restart+r.o.Restart, true
		r.beat = -time.Hour
	}
	r.p.Scheduled, r.p.Queued, r.p.Wall = fpm.Scheduled{}, fpm.Queued{}, 0
	m.Heartbeat = float64(at%cycle) >= (1-r.o.Idle)*float64(cycle)
	if m.Heartbeat {
		if at-r.beat < time.Second && !m.Restart {
			return Message{}, false
		}
		r.beat = at
	} else {
		r.beat = at
		r.pass()
	}
	r.p.Counter = r.n
	m.Number = r.n
	r.n++
	m.Dropped = r.rand.Float64() < r.o.Drop
	r.buf = r.p.Append(r.buf[:0], forms[r.o.Form])
	m.Payload = r.buf
	return m, true
}

// pass makes up an iteration: requests come and go, each fourth pass takes a chunk of a prompt, and the time
// is a constant and a part for the tokens.
func (r *Rank) pass() {
	r.requests = min(64, max(1, r.requests+r.rand.NormFloat64()))
	n := uint64(math.Round(r.requests))
	s := &r.p.Scheduled
	s.DecodeRequests, s.DecodeKV, s.DecodeLengths = n, n*uint64(1200+r.rand.IntN(400)), 90_000
	if r.n%4 == 0 {
		s.PrefillRequests, s.PrefillTokens, s.PrefillKV = 1, uint64(256+r.rand.IntN(1792)), 64
	}
	if n > 48 { // more than fits waits
		q := n - 48
		r.p.Queued = fpm.Queued{PrefillRequests: q, PrefillTokens: 900 * q, PrefillLengths: 40_000}
	}
	share := 0.3 + 0.4*float64(s.DecodeKV)/(64*1600) + 0.2*float64(s.PrefillTokens)/2048
	r.p.Wall = min(share, 0.95) / r.o.Rate
}

// endpoints names the sockets of all ranks.
func (o *Options) endpoints() ([]string, error) {
	if o.Endpoint == "tcp://127.0.0.1:0" || o.Endpoint == "tcp://localhost:0" {
		return slices.Repeat([]string{o.Endpoint}, o.Ranks), nil
	}
	return fpmbus.EngineSockets(o.Endpoint, o.Ranks)
}

// Run sends until ctx or what the options bound ends.
func Run(ctx context.Context, o Options) (Counts, error) {
	var c Counts
	if err := o.check(); err != nil {
		return c, err
	}
	at, err := o.endpoints()
	if err != nil {
		return c, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var pubs []*fpmbus.EnginePub
	for i := range at {
		p, err := fpmbus.NewEnginePub(at[i])
		if err != nil {
			for _, p := range pubs {
				_ = p.Close()
			}
			return c, err
		}
		at[i] = p.Endpoint()
		pubs = append(pubs, p)
	}
	var serving sync.WaitGroup
	errs := make(chan error, len(pubs))
	for _, p := range pubs {
		serving.Go(func() {
			if err := p.Run(ctx); err != nil {
				errs <- err
				stop()
			}
		})
	}
	if o.Begun != nil {
		o.Begun(at)
	}
	for _, p := range pubs {
		for o.Wait && p.Subscribers() == 0 && sleep(ctx, 5*time.Millisecond) {
		}
	}
	var ranks sync.WaitGroup
	counts := make([]Counts, len(pubs))
	start := time.Now()
	for i, p := range pubs {
		r := newRank(o, i)
		ranks.Go(func() { counts[i] = r.live(ctx, p, start) })
	}
	ranks.Wait()
	stop()
	serving.Wait()
	for i := range counts {
		c.Passes += counts[i].Passes
		c.Heartbeats += counts[i].Heartbeats
		c.Dropped += counts[i].Dropped
		c.Restarts += counts[i].Restarts
		for _, d := range pubs[i].Drops() {
			switch d.Reason {
			case "no_subscriber":
				c.Unheard += d.Count
			case "subscriber_full", "connection_lost":
				c.Full += d.Count
			}
		}
	}
	select {
	case err := <-errs:
		return c, err
	default:
		return c, nil
	}
}

// live sends what a rank says, pass i at i/Rate after the start.
func (r *Rank) live(ctx context.Context, p *fpmbus.EnginePub, start time.Time) (c Counts) {
	said := int64(0)
	for i := int64(0); ctx.Err() == nil; i++ {
		at := time.Duration(float64(i) / r.o.Rate * float64(time.Second))
		if r.o.For > 0 && at >= r.o.For || r.o.Count > 0 && said >= r.o.Count {
			return c
		}
		// Rates above what timers keep are made of several at a time.
		if ahead := at - time.Since(start); ahead > time.Millisecond && !sleep(ctx, ahead) {
			return c
		}
		m, ok := r.Next(at)
		if !ok {
			continue
		}
		said++
		if m.Restart {
			c.Restarts++
		}
		switch {
		case m.Dropped:
			c.Dropped++
			continue
		case m.Heartbeat:
			c.Heartbeats++
		default:
			c.Passes++
		}
		p.Send(m.Number, m.Payload)
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
