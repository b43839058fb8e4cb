package passes

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/sim"
)

// behind is how much later than in the model a pass is sent: a fleet finds out in steps what has happened, and
// passes go out one by one, each at its end.
const behind = 300 * time.Millisecond

// FleetOptions configure [Live].
type FleetOptions struct {
	// Drop is the share of messages that get a number and are not sent, by member.
	Drop map[string]float64
	Seed uint64
}

// Socket is where a rank of a member can be heard.
type Socket struct {
	Member, Addr string // of its metrics
	Role         engine.Role
	Rank         int
	Endpoint     string
}

// Sender sends the passes of a fleet that is served.
type Sender struct {
	o    FleetOptions
	rand *rand.Rand
	log  *slog.Logger
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	ranks map[rankOf]*fleetRank
	order []*fleetRank
	queue []due // by time
}

type rankOf struct {
	member string
	rank   int
}

// fleetRank is one scheduler's socket.
type fleetRank struct {
	socket  Socket
	pub     *fpmbus.EnginePub
	pid     int
	worker  uint64
	number  uint64
	said    time.Time // when it sent last
	silent  bool      // its process is gone, or hangs
	payload []byte
}

// due is a pass on its way.
type due struct {
	at   time.Time
	rank *fleetRank
	pid  int
	pass fpm.Pass
}

// Live binds a socket for each data-parallel rank of each engine of a running fleet, and sends their passes
// until ctx ends. The fleet's times must be the clock's: its speed is 1.
func Live(ctx context.Context, running *sim.Running, o FleetOptions, log *slog.Logger) (*Sender, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &Sender{o: o, rand: rand.New(rand.NewPCG(o.Seed, 5)), log: log, stop: stop, ranks: map[rankOf]*fleetRank{}}
	var err error
	running.With(func(fleet *sim.Fleet) {
		for _, m := range fleet.Roll() {
			if m.Kind != sim.SGLang && m.Kind != sim.VLLM && m.Kind != sim.DynamoWorker {
				continue
			}
			for rank := range max(m.DP, 1) {
				pub, e := fpmbus.NewEnginePub("tcp://127.0.0.1:0")
				if e != nil {
					err = e
					return
				}
				r := &fleetRank{socket: Socket{m.Member, m.Addr, m.Role, rank, pub.Endpoint()}, pub: pub, pid: m.PID, worker: m.Worker}
				s.ranks[rankOf{m.Member, rank}] = r
				s.order = append(s.order, r)
			}
		}
		fleet.Watch(sim.Watch{Passes: s.passes, Moment: s.moment})
	})
	if err != nil {
		for _, r := range s.order {
			_ = r.pub.Close()
		}
		stop()
		return nil, err
	}
	for _, r := range s.order {
		s.wg.Go(func() {
			if err := r.pub.Run(ctx); err != nil {
				log.Error("a simulated engine's passes ended", "member", r.socket.Member, "err", err)
			}
		})
	}
	s.wg.Go(func() { s.run(ctx) })
	return s, nil
}

// Sockets lists where the ranks can be heard.
func (s *Sender) Sockets() []Socket {
	out := make([]Socket, len(s.order))
	for i, r := range s.order {
		out[i] = r.socket
	}
	return out
}

// Wait returns when all sockets are closed.
func (s *Sender) Wait() { s.wg.Wait() }

// moment is told what happens to processes.
func (s *Sender) moment(m sim.Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.order {
		if r.socket.Member != m.Member {
			continue
		}
		switch m.What {
		case sim.Down, sim.Crashed, sim.Hung:
			r.silent = true
		case sim.Freed:
			r.silent = false
		case sim.Up:
			r.silent = false
			if r.pid != m.PID { // a new process counts anew
				r.pid, r.worker, r.number, r.said = m.PID, m.Worker, 0, time.Time{}
			}
		}
	}
}

// passes is told what a scheduler did.
func (s *Sender) passes(p sim.Passes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ranks[rankOf{p.Member, p.Rank}]
	if r == nil {
		return
	}
	queued := queuedOf(p)
	for i := range p.N {
		d := due{at: p.End.Add(behind - p.Each*time.Duration(p.N-1-i)), rank: r, pid: p.PID}
		d.pass = fpm.Pass{Wall: p.Each.Seconds(), Queued: queued}
		c := &d.pass.Scheduled
		c.PrefillRequests, c.PrefillTokens, c.PrefillKV = uint64(p.Prefill), uint64(p.PrefillTokens), uint64(p.PrefillCached)
		c.DecodeRequests = uint64(p.Decode)
		if p.Decode > 0 {
			c.DecodeKV = uint64(p.Context + p.Grows*float64(i))
		}
		s.queue = append(s.queue, d)
	}
}

// queuedOf fills queued_requests as SGLang does: from the queue of the role.
func queuedOf(p sim.Passes) (q fpm.Queued) {
	n, sum, squares := uint64(len(p.Waiting)), 0.0, 0.0
	for _, t := range p.Waiting {
		sum += float64(t)
		squares += float64(t) * float64(t)
	}
	variance := 0.0
	if n > 0 {
		mean := sum / float64(n)
		variance = max(0, squares/float64(n)-mean*mean)
	}
	if p.Role == engine.Decode {
		q.DecodeRequests, q.DecodeKV, q.DecodeLengths = n, uint64(sum), variance
	} else {
		q.PrefillRequests, q.PrefillTokens, q.PrefillLengths = n, uint64(sum), variance
	}
	return q
}

// run sends what is due, and heartbeats of those that are idle, until ctx ends.
func (s *Sender) run(ctx context.Context) {
	for sleep(ctx, 2*time.Millisecond) {
		s.send(time.Now())
	}
}

func (s *Sender) send(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.queue, func(a, b due) int { return a.at.Compare(b.at) })
	n := 0
	for ; n < len(s.queue) && !s.queue[n].at.After(now); n++ {
		d := &s.queue[n]
		if d.pid == d.rank.pid && !d.rank.silent { // the others died with their process
			s.say(d.rank, &d.pass, now)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	for _, r := range s.order {
		// A pass that is on its way may have begun already: the engine is not idle.
		coming := slices.ContainsFunc(s.queue, func(d due) bool {
			return d.rank == r && !d.at.Add(-time.Duration(d.pass.Wall*float64(time.Second))).After(now)
		})
		if !r.silent && !coming && now.Sub(r.said) >= time.Second {
			s.say(r, &fpm.Pass{}, now)
		}
	}
}

// say sends one message.
func (s *Sender) say(r *fleetRank, p *fpm.Pass, now time.Time) {
	p.WorkerID, p.Rank, p.Counter = strconv.FormatUint(r.worker, 10), uint32(r.socket.Rank), r.number
	r.number++
	r.said = now
	if share := s.o.Drop[r.socket.Member]; cmp.Compare(s.rand.Float64(), share) < 0 {
		return
	}
	r.payload = p.Append(r.payload[:0], fpm.Layout{})
	r.pub.Send(p.Counter, r.payload)
}
