package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// Watch is told what happens in the fleet, in the order in which it is found out, by [Fleet.Advance]:
// renderers of spans and log lines hang on it. Functions may be nil.
type Watch struct {
	Call   func(Call)   // a request has ended on an engine
	Report func(Report) // an engine says what it is doing: the moments at which it writes a line of a batch
	Moment func(Moment) // something else that an engine would say
	Passes func(Passes) // forward passes have ended
}

// Passes are equal iterations of one scheduler, one after the other: a prefill pass, or some decode steps.
type Passes struct {
	End                                   time.Time     // of the last
	Each                                  time.Duration // that one takes
	N                                     int
	Member                                string
	Addr                                  string
	Kind                                  Kind
	Role                                  engine.Role
	Rank                                  int
	PID                                   int
	Prefill, PrefillTokens, PrefillCached int     // requests, tokens computed, and found in a cache
	Decode                                int     // requests
	Context                               float64 // tokens of those that decode, in the first
	Grows                                 float64 // by which it grows with each
	Waiting                               []int   // tokens of those in the queue of the role: a prompt's, a context's on a decode engine
}

// Call is one request on one engine, over. The halves of a PD pair are two calls of one ID; so are a try
// and its retry. Times that were not reached are zero; Born is reached always.
type Call struct {
	ID      uint64 // unique in the fleet, and over attempts and halves the same
	Attempt int    // 0, and 1 for what the front sent again
	RID     string // 32 hex digits, of the attempt; both halves share it
	Room    uint64 // bootstrap room, 0 without PD
	Load    string // which load sent it
	Session uint64 // conversation that it is a turn of, 0 for none

	Member    string
	Addr      string
	Kind      Kind
	Role      engine.Role
	Version   string
	Model     string
	Rank      int // data-parallel rank
	DP, TP    int // 0 and 1 mean none
	PID       int
	Front     string // router or frontend that sent it, "" for none
	FrontKind Kind
	Peer      string // member that the other half was on, "" without PD

	Streaming, Grammar bool
	Prompt             int // tokens
	Output             int // tokens generated so far, over retractions
	Cached             int // prompt tokens found in a cache
	Limit              int // max_new_tokens
	Chunks             int // prefill passes that the prompt takes, at least 1
	Accepted           float64
	KVBytes            float64 // of the prompt: what PD sends

	Born      time.Time // sent by the client
	Received  time.Time // by the engine
	Queued    time.Time // entered the waiting queue, the first time
	Started   time.Time // first forward pass
	First     time.Time // first output token
	Granted   time.Time // PD: KV slots are allocated, or the prefill half is told so
	Sent      time.Time // PD, prefill half: the forward is done and the transfer queued
	Arrived   time.Time // PD, decode half: the KV is here
	Ended     time.Time
	Retracted []time.Time // thrown out of the batch
	Resumed   []time.Time // and admitted again

	Outcome Outcome
}

// Outcome is how a call ended.
type Outcome string

// Outcomes.
const (
	Completed Outcome = "completed" // with all its tokens
	Aborted   Outcome = "aborted"   // the client left, or the trainer had enough
	Failed    Outcome = "failed"    // the engine or the transfer broke, or it does not fit
)

// Report is what one scheduler says of itself, as in a line "Prefill batch" or "Decode batch".
type Report struct {
	Time    time.Time
	Member  string
	Addr    string
	Kind    Kind
	Role    engine.Role
	Version string
	Model   string
	Rank    int
	DP, TP  int
	PID     int

	What                  string // "prefill", "decode", "idle", "pause"
	New                   int    // prefill: requests in the pass
	Computed, Cached      int    // prefill: tokens
	Running, Queue        int    // requests
	Prealloc, Transfer    int    // PD, decode: requests
	Bootstrap, Inflight   int    // PD, prefill: requests
	Tokens, Capacity      int    // of the KV pool
	Throughput            float64
	AcceptLen, AcceptRate float64 // speculative decoding; 0 without
	Steps                 int64   // decode steps so far
	Took                  float64 // prefill: seconds of the pass
}

// Moment is something that happened to an engine.
type Moment struct {
	Time    time.Time
	Member  string
	Addr    string
	Kind    Kind
	Role    engine.Role
	Version string
	Model   string
	Rank    int
	DP, TP  int
	PID     int
	Worker  uint64 // Dynamo's id of the instance, 0 of what is none: of a Dynamo worker another after a restart

	What     MomentKind
	RID      string  // Retract: the request
	Requests int     // Retract: thrown out; Sweep, Down, Crashed, Hung: in the engine
	Ratio    float64 // Retract: the new token ratio
	Seconds  float64 // Pause: how long
}

// MomentKind is what happened.
type MomentKind string

// Kinds of moments.
const (
	Retract MomentKind = "retract" // the KV pool is full: a request goes back into the queue
	Sweep   MomentKind = "sweep"   // one call aborts everything that runs
	Down    MomentKind = "down"    // the process is out of reach, its requests are lost
	Crashed MomentKind = "crashed" // the process dies
	Up      MomentKind = "up"      // a process listens again: a new one, or the one that was down
	Hung    MomentKind = "hung"    // it makes no progress any more
	Freed   MomentKind = "freed"   // and makes some again
	Paused  MomentKind = "paused"  // generation stops for a weight update
	Synced  MomentKind = "synced"  // and goes on
)

// Watch sets who is told, in addition to those who are told already.
func (f *Fleet) Watch(w Watch) { f.watches = append(f.watches, w) }

// at is a time of the model; 0 was not reached.
func (f *Fleet) at(sec float64) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	return f.cfg.Start.Add(time.Duration(math.Round(sec * 1e9)))
}

// rid is the id of an attempt of a request.
func (f *Fleet) rid(r *request) string {
	a := mix(r.id ^ f.cfg.Seed<<20 ^ uint64(r.attempt)<<56)
	return fmt.Sprintf("%016x%016x", a, mix(a))
}

// watchCall tells that r has ended on s.
func (f *Fleet) watchCall(s *scheduler, r *request, o outcome) {
	if len(f.watches) == 0 {
		return
	}
	sv := s.server
	c := Call{
		ID: r.id, Attempt: r.attempt, RID: f.rid(r), Load: r.load.spec.Name, Session: r.context,
		Member: sv.name, Addr: sv.spec.Addr, Kind: sv.spec.Kind, Role: sv.spec.Role, Version: sv.spec.Version, Model: sv.spec.Model,
		Rank: s.rank, DP: sv.spec.DP, TP: sv.spec.TP, PID: sv.pid,
		Streaming: r.streaming, Grammar: r.grammar, Prompt: r.prompt, Output: int(r.done), Cached: r.cachedTotal, Limit: r.limit,
		Chunks: max(1, (r.prompt-r.hit-r.hostHit+sv.spec.Hardware.Chunk-1)/sv.spec.Hardware.Chunk),
		Born:   f.cfg.Start.Add(time.Duration(math.Round(r.born * 1e9))), Received: f.at(r.recv), Queued: f.at(r.entered), Started: f.at(r.began), First: f.at(r.first),
		Granted: f.at(r.granted), Sent: f.at(r.sent), Arrived: f.at(r.arrived), Ended: f.at(max(s.now, r.recv, r.born)),
		Outcome: [...]Outcome{completed: Completed, aborted: Aborted, failed: Failed}[o],
	}
	if sv.spec.Speculative {
		c.Accepted = s.accept
	}
	front := r.front
	if r.peer != nil {
		c.Room, c.Peer = mix(r.id)>>1, r.peer.sched.server.name
		c.KVBytes = float64(r.prompt) * sv.spec.Hardware.KVBytes
		if front == nil {
			front = r.peer.front
		}
	}
	if front != nil {
		c.Front, c.FrontKind = front.name, front.spec.Kind
	}
	for _, t := range r.thrown {
		c.Retracted = append(c.Retracted, f.at(t))
	}
	for _, t := range r.resumed {
		c.Resumed = append(c.Resumed, f.at(t))
	}
	for _, w := range f.watches {
		if w.Call != nil {
			w.Call(c)
		}
	}
}

// watchReport tells what s reports.
func (f *Fleet) watchReport(s *scheduler, kind reportKind) {
	if len(f.watches) == 0 {
		return
	}
	sv := s.server
	r := Report{
		Time: f.at(s.now), Member: sv.name, Addr: sv.spec.Addr, Kind: sv.spec.Kind, Role: sv.spec.Role, Version: sv.spec.Version, Model: sv.spec.Model,
		Rank: s.rank, DP: sv.spec.DP, TP: sv.spec.TP, PID: sv.pid,
		What:    [...]string{reportPrefill: "prefill", reportDecode: "decode", reportIdle: "idle", reportPause: "pause"}[kind],
		Running: len(s.batch), Queue: len(s.queue), Prealloc: len(s.prealloc), Transfer: s.transferring, Bootstrap: s.bootstrapping, Inflight: len(s.sending),
		Tokens: s.pool.used(), Capacity: s.pool.capacity, Throughput: s.throughput, Steps: s.step,
	}
	if kind == reportPrefill {
		r.New, r.Computed, r.Cached, r.Took = s.pass.requests, s.pass.computed, s.pass.hit+s.pass.host, s.pass.end-s.pass.start
	}
	if sv.spec.Speculative {
		r.AcceptLen, r.AcceptRate = s.accept, (s.accept-1)/3
	}
	for _, w := range f.watches {
		if w.Report != nil {
			w.Report(r)
		}
	}
}

// watchPasses tells that n iterations ended now.
func (f *Fleet) watchPasses(s *scheduler, p Passes, each float64) {
	wanted := false
	for _, w := range f.watches {
		wanted = wanted || w.Passes != nil
	}
	if !wanted {
		return
	}
	sv := s.server
	p.End, p.Each = f.at(s.now), time.Duration(math.Round(each*1e9))
	p.Member, p.Addr, p.Kind, p.Role, p.Rank, p.PID = sv.name, sv.spec.Addr, sv.spec.Kind, sv.spec.Role, s.rank, sv.pid
	add := func(list []*request, at ...place) {
		for _, r := range list {
			if len(at) == 0 || slices.Contains(at, r.at) {
				p.Waiting = append(p.Waiting, r.prompt+int(r.done))
			}
		}
	}
	switch {
	case sv.decodeOnly():
		add(s.prealloc)
		add(s.between, transfer)
	case sv.prefillOnly():
		add(s.between, bootstrap)
	default:
		add(s.queue)
	}
	for _, w := range f.watches {
		if w.Passes != nil {
			w.Passes(p)
		}
	}
}

// watchMoment tells that something happened to sv; s and r may be nil.
func (f *Fleet) watchMoment(sv *server, s *scheduler, r *request, what MomentKind, now float64, requests int, seconds float64) {
	if len(f.watches) == 0 {
		return
	}
	m := Moment{
		Time: f.at(now), Member: sv.name, Addr: sv.spec.Addr, Kind: sv.spec.Kind, Role: sv.spec.Role, Version: sv.spec.Version, Model: sv.spec.Model,
		DP: sv.spec.DP, TP: sv.spec.TP, PID: sv.pid, Worker: sv.instanceID(), What: what, Requests: requests, Seconds: seconds,
	}
	if s != nil {
		m.Rank, m.Ratio = s.rank, s.ratio
	}
	if r != nil {
		m.RID = f.rid(r)
	}
	for _, w := range f.watches {
		if w.Moment != nil {
			w.Moment(m)
		}
	}
}

// Roll is every member as a Moment of kind Up at the fleet's time: who is there when one begins to watch.
func (f *Fleet) Roll() []Moment {
	var out []Moment
	for _, m := range f.members {
		r := Moment{Time: f.Now(), Member: m.name, Addr: m.spec.Addr, Kind: m.spec.Kind, Role: m.spec.Role, Version: m.spec.Version, Model: m.spec.Model,
			DP: m.spec.DP, TP: m.spec.TP, What: Up}
		if m.server != nil {
			r.PID, r.Worker = m.server.pid, m.server.instanceID()
		}
		out = append(out, r)
	}
	return out
}
