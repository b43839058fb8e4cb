package fpm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Origin is where a message came from, as far as its source knows.
type Origin struct {
	Source       string // the source as the configuration names it
	Namespace    string // Dynamo's; "" when neither subject, record nor configuration tells
	Component    string
	HasPublisher bool // PublisherID and Sequence are those of an event-plane envelope
	PublisherID  uint64
	Sequence     uint64
	HasHop       bool   // Hop is the sequence frame of an engine's socket
	Hop          uint64 // it equals counter_id, and stands for it in messages of the first form
	Sampled      bool   // the sender leaves passes out on purpose: what is missing is no loss
}

// Key names one scheduler: a data-parallel rank of a worker. A worker without an id is told apart by its
// publisher, and where there is none by the source.
type Key struct {
	Namespace, Component string
	Worker               string // worker_id, decimal; "" when the engine has none
	Publisher            uint64 // 0 unless Worker is ""
	Source               string // "" unless Worker is "" and there is no publisher
	Rank                 uint32
}

// String returns namespace/component/worker/rank.
func (k Key) String() string {
	worker := k.Worker
	switch {
	case worker != "":
	case k.Source == "":
		worker = fmt.Sprintf("publisher %d", k.Publisher)
	default:
		worker = "source " + k.Source
	}
	var b strings.Builder
	for _, s := range []string{k.Namespace, k.Component} {
		if s != "" {
			b.WriteString(s + "/")
		}
	}
	fmt.Fprintf(&b, "%s/%d", worker, k.Rank)
	return b.String()
}

// worker is the key without the rank.
func (k Key) worker() Key { k.Rank = 0; return k }

// compare orders keys by all they have.
func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Component, o.Component), cmp.Compare(k.Worker, o.Worker),
		cmp.Compare(k.Publisher, o.Publisher), cmp.Compare(k.Source, o.Source), cmp.Compare(k.Rank, o.Rank))
}

// Options of a [Tracker]. Zero fields take the default.
type Options struct {
	Heartbeat  time.Duration // rhythm that is expected of an engine before its own is known; 1 s
	StaleBeats int           // heartbeats that may be missing before silence is staleness; 3
	StaleWalls int           // and how many times its longest pass of late; 5
	Forget     time.Duration // silence after which a rank is forgotten; 1 h
	MaxRanks   int           // ranks that are known at a time, each a few KB; 4096
}

func (o Options) complete() Options {
	o.Heartbeat = cmp.Or(max(o.Heartbeat, 0), time.Second)
	o.StaleBeats = cmp.Or(max(o.StaleBeats, 0), 3)
	o.StaleWalls = cmp.Or(max(o.StaleWalls, 0), 5)
	o.Forget = cmp.Or(max(o.Forget, 0), time.Hour)
	o.MaxRanks = cmp.Or(max(o.MaxRanks, 0), 4096)
	return o
}

// TooMany is why the tracker did not take a message that was read.
const TooMany Reason = "too_many_engines" // as many ranks send as are known at a time

// Tracker keeps what each rank's stream says about it, in memory that [Options.MaxRanks] bounds.
type Tracker struct {
	opt        Options
	ranks      map[Key]*rank
	publishers map[uint64]*publisher
	sources    map[string]*SourceStatus
	forgotten  uint64
}

// NewTracker returns a tracker that knows no engine.
func NewTracker(opt Options) *Tracker {
	return &Tracker{
		opt: opt.complete(), ranks: make(map[Key]*rank),
		publishers: make(map[uint64]*publisher), sources: make(map[string]*SourceStatus),
	}
}

// Loss says on which of its two ways a message was lost.
type Loss string

// Ways on which messages are lost.
const (
	NoLoss     Loss = ""
	EngineLoss Loss = "engine" // between the engine and whoever took its messages first: a full queue, a slow reader
	PlaneLoss  Loss = "plane"  // on the event plane, between its publisher and us
)

// Observation is what one message meant.
type Observation struct {
	Key       Key
	Dropped   bool   // it was not taken, see [TooMany]
	Duplicate bool   // it came before; nothing else of it counts
	Late      bool   // newer ones came before it: it counts as a pass, and is not current
	Heartbeat bool   // it is no pass
	Restart   bool   // the engine began anew before it
	Missing   uint64 // messages before it that did not come (yet)
	Loss      Loss   // where Missing went
}

// publisher is a sender of the event plane.
type publisher struct {
	stream stream
	status PublisherStatus
}

// PublisherStatus is what is known of a publisher of the event plane.
type PublisherStatus struct {
	ID         uint64
	Last       int64 // when its last message came
	Messages   uint64
	Missing    uint64 // by its sequence; those that came late are in it
	Late       uint64
	Duplicates uint64
	Restarts   uint64
}

// SourceStatus is what came from a source.
type SourceStatus struct {
	Source     string
	Last       int64 // when its last message came that could be read; 0 for never
	Messages   uint64
	Passes     uint64
	Heartbeats uint64
	Refused    map[Reason]uint64
	LastError  string // of the last message that was refused
	LastBad    int64  // when it came
}

const (
	beats = 8
	walls = 16
	// often is how many restarts within a minute are more than an engine that crashes makes.
	often = 4
	// longWall is the longest pass, in seconds, that a rhythm is made of.
	longWall = 60
)

// rank is one scheduler.
type rank struct {
	key      Key
	hop      stream
	last     Pass
	at       int64 // when the newest message came
	pass     int64 // when the newest pass came; 0 for never
	first    int64
	beat     [beats]int64 // ns between heartbeats that followed each other
	beatN    int
	wall     [walls]float64
	wallN    int
	restarts [often]int64
	queued   bool // something has waited at this rank
	status   Status
}

// source returns what is known of a source.
func (t *Tracker) source(name string) *SourceStatus {
	s := t.sources[name]
	if s == nil {
		s = &SourceStatus{Source: name}
		t.sources[name] = s
	}
	return s
}

// Refuse counts a message of a source that could not be read, under the reason of its [*Error].
func (t *Tracker) Refuse(now int64, source string, err error) {
	s := t.source(source)
	reason := Malformed
	var e *Error
	if errors.As(err, &e) {
		reason = e.Reason
	}
	s.refuse(reason)
	s.LastError, s.LastBad = err.Error(), now
}

func (s *SourceStatus) refuse(r Reason) {
	if s.Refused == nil {
		s.Refused = make(map[Reason]uint64)
	}
	s.Refused[r]++
}

// Observe takes a message that was received at now. It keeps nothing of p but its strings.
func (t *Tracker) Observe(now int64, from Origin, p *Pass) Observation {
	key := Key{Namespace: from.Namespace, Component: from.Component, Worker: p.WorkerID, Rank: p.Rank}
	if p.WorkerID == "" {
		if from.HasPublisher {
			key.Publisher = from.PublisherID
		} else {
			key.Source = from.Source
		}
	}
	out := Observation{Key: key, Heartbeat: p.Heartbeat()}
	src := t.source(from.Source)
	src.Last = now
	src.Messages++
	if out.Heartbeat {
		src.Heartbeats++
	} else {
		src.Passes++
	}

	digest := p.digest()
	onPlane, lostOnPlane := t.plane(now, from, digest^p.Rank)
	r := t.ranks[key]
	if r == nil {
		if len(t.ranks) >= t.opt.MaxRanks && !t.makeRoom(now) {
			src.refuse(TooMany)
			out.Dropped = true
			return out
		}
		r = &rank{key: key, first: now}
		t.ranks[key] = r
	}

	counter, counted := p.Counter, p.Has&HasCounter != 0
	if !counted && from.HasHop {
		counter, counted = from.Hop, true
	}
	a := onPlane
	if counted && !from.Sampled {
		a, out.Missing = r.hop.take(now, counter, digest)
		if out.Missing > 0 {
			out.Loss = EngineLoss
			if lostOnPlane > 0 {
				out.Loss = PlaneLoss
			}
		}
	}
	st := &r.status
	st.LossUnknown = !counted && !from.HasPublisher || from.Sampled
	st.Missing += out.Missing
	if out.Missing > 0 {
		st.LastGap = now
	}
	switch a {
	case duplicate:
		st.Duplicates++
		out.Duplicate = true
		return out
	case late, early:
		out.Late = true
		st.Late++
		if a == late && counted {
			st.Filled++
		}
	case other:
		st.Interleaved++
	case restarted:
		// A publisher of messages without a counter that begins anew need not be an engine that did.
		if counted {
			out.Restart = true
			st.Restarts++
			st.LastRestart = now
			r.restarts[(st.Restarts-1)%often] = now
			r.forgetRhythm()
		}
	}
	r.take(now, p, out)
	return out
}

// plane places a message by its publisher's sequence.
func (t *Tracker) plane(now int64, from Origin, digest uint32) (arrival, uint64) {
	if !from.HasPublisher || from.Sampled {
		return fresh, 0
	}
	p := t.publishers[from.PublisherID]
	if p == nil {
		if len(t.publishers) >= t.opt.MaxRanks {
			t.dropPublisher()
		}
		p = &publisher{status: PublisherStatus{ID: from.PublisherID}}
		t.publishers[from.PublisherID] = p
	}
	a, missing := p.stream.take(now, from.Sequence, digest)
	p.status.Last = now
	p.status.Messages++
	p.status.Missing += missing
	switch a {
	case duplicate:
		p.status.Duplicates++
	case late, early:
		p.status.Late++
	case restarted:
		p.status.Restarts++
	}
	return a, missing
}

func (t *Tracker) dropPublisher() {
	oldest := uint64(0)
	at := int64(math.MaxInt64)
	for id, p := range t.publishers {
		if p.status.Last < at || p.status.Last == at && id < oldest {
			oldest, at = id, p.status.Last
		}
	}
	delete(t.publishers, oldest)
}

// makeRoom forgets the rank that is silent for longest, if it is stale.
func (t *Tracker) makeRoom(now int64) bool {
	var oldest *rank
	for _, r := range t.ranks {
		if oldest == nil || r.at < oldest.at || r.at == oldest.at && r.key.compare(oldest.key) < 0 {
			oldest = r
		}
	}
	if oldest == nil || now-oldest.at <= int64(oldest.allowance(t.opt)) {
		return false
	}
	delete(t.ranks, oldest.key)
	t.forgotten++
	return true
}

// Forget drops ranks and publishers that have been silent for [Options.Forget] and returns how many ranks
// were. Call it now and then.
func (t *Tracker) Forget(now int64) int {
	n := 0
	for k, r := range t.ranks {
		if now-r.at > int64(t.opt.Forget) {
			delete(t.ranks, k)
			n++
		}
	}
	for id, p := range t.publishers {
		if now-p.status.Last > int64(t.opt.Forget) {
			delete(t.publishers, id)
		}
	}
	t.forgotten += uint64(n)
	return n
}

func (r *rank) forgetRhythm() { r.beatN, r.wallN, r.queued = 0, 0, false }

// take counts a message that is no duplicate, and makes it the current one unless it is late.
func (r *rank) take(now int64, p *Pass, o Observation) {
	st := &r.status
	seconds, timed := p.Seconds()
	switch {
	case o.Heartbeat:
		st.Heartbeats++
	case !timed: // not a heartbeat, so not believable
		st.Passes++
		st.Implausible++
	default:
		st.Passes++
		st.BusySeconds += seconds
		r.wall[r.wallN%walls] = min(seconds, longWall)
		r.wallN++
	}
	if o.Late {
		return
	}
	follows := st.Passes+st.Heartbeats > 1 && o.Missing == 0 && !o.Restart && !st.LossUnknown
	if follows && o.Heartbeat && r.last.Heartbeat() && now > r.at {
		r.beat[r.beatN%beats] = now - r.at
		r.beatN++
	}
	// Two passes that follow each other while requests were there all along: what lies between them and is
	// not the second's own time went by without a message, as it does when a pass's timer was not ready.
	if follows && timed && !r.last.Heartbeat() && r.at > 0 {
		working := r.last.Scheduled.DecodeRequests > 0 && p.Scheduled.DecodeRequests > 0 || !r.last.Queued.Empty()
		if between := float64(now-r.at)/1e9 - seconds; working && between > seconds/2 && between > 0.001 {
			st.UnmeasuredSeconds += between
			st.Unmeasured++
		}
	}
	if !p.Queued.Empty() {
		r.queued = true
	}
	if !o.Heartbeat {
		r.pass = now
	}
	r.last, r.at = *p, max(now, r.at)
}

// rhythm returns the time between two heartbeats of the rank: the median of the last ones.
func (r *rank) rhythm(opt Options) time.Duration {
	n := min(r.beatN, beats)
	if n == 0 {
		return opt.Heartbeat
	}
	b := r.beat
	slices.Sort(b[:n])
	return time.Duration(min(max(b[n/2], 1e8), 300e9))
}

// allowance is how long the rank may be silent before what it said is not current any more.
func (r *rank) allowance(opt Options) time.Duration {
	longest := 0.0
	for _, w := range r.wall[:min(r.wallN, walls)] {
		longest = max(longest, w)
	}
	return max(time.Duration(opt.StaleBeats)*r.rhythm(opt), time.Duration(float64(opt.StaleWalls)*longest*1e9), time.Second)
}

// Drop is messages that were not taken, by source and reason.
type Drop struct {
	Source string
	Reason Reason
	Count  uint64
}

// Drops returns what was not taken, in a fixed order.
func (t *Tracker) Drops() []Drop {
	var out []Drop
	for name, s := range t.sources {
		for reason, n := range s.Refused {
			out = append(out, Drop{name, reason, n})
		}
	}
	slices.SortFunc(out, func(a, b Drop) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Forgotten returns how many ranks were forgotten because they were silent.
func (t *Tracker) Forgotten() uint64 { return t.forgotten }

// Source returns what came from a source.
func (t *Tracker) Source(name string) SourceStatus {
	s := t.sources[name]
	if s == nil {
		return SourceStatus{Source: name}
	}
	out := *s
	out.Refused = make(map[Reason]uint64, len(s.Refused))
	for k, v := range s.Refused {
		out.Refused[k] = v
	}
	return out
}

// Publishers returns the publishers of the event plane, by id.
func (t *Tracker) Publishers() []PublisherStatus {
	out := make([]PublisherStatus, 0, len(t.publishers))
	for _, p := range t.publishers {
		out = append(out, p.status)
	}
	slices.SortFunc(out, func(a, b PublisherStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
