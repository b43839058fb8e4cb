package tailsample

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

// Options of a sampler. A limit or time of zero takes the default.
type Options struct {
	// Policy says what is kept; the zero one means [DefaultPolicy].
	Policy Policy
	// File names a file that has the policy (of [FromNode]): the caller reads it and calls [Parse].
	File string

	// MaxBytes bounds what undecided traces take in memory (256 MiB), MaxTraces their number (500,000). At
	// either limit the oldest are decided early. A trace of more than MaxSpansPerTrace (20,000) is decided
	// at once, and what still comes of it follows that decision.
	MaxBytes         int64
	MaxTraces        int
	MaxSpansPerTrace int

	// Linger is how long to wait after the root span ended, for spans that other processes still batch
	// (6 s: SDKs send after 5 s at the latest). Settle is how long a trace must be silent that looks
	// finished but whose root is in no span that came (30 s), IdleAfter one that does not look finished
	// (5 min). At MaxAge a trace is decided whatever it looks like (30 min).
	Linger, Settle, IdleAfter, MaxAge time.Duration

	// Remember is how long a decision holds for late spans after the last of them (15 min), of at most
	// RememberTraces traces (500,000; 88 bytes each).
	Remember       time.Duration
	RememberTraces int

	// Observe makes the observations of a finished trace out of its spans, which it must not hold on to.
	// Nil takes package span's.
	Observe func([]span.Scope) []request.Observation
	// Engine names the engine that a span is of, "" when it is not known; nil knows none. Without Observe only.
	Engine func(*span.Span) string
}

func (o Options) withDefaults() Options {
	def := func(to *time.Duration, d time.Duration) {
		if *to == 0 {
			*to = d
		}
	}
	def(&o.Linger, 6*time.Second)
	def(&o.Settle, 30*time.Second)
	def(&o.IdleAfter, 5*time.Minute)
	def(&o.MaxAge, 30*time.Minute)
	def(&o.Remember, 15*time.Minute)
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.MaxTraces == 0 {
		o.MaxTraces = 500_000
	}
	if o.MaxSpansPerTrace == 0 {
		o.MaxSpansPerTrace = 20_000
	}
	if o.RememberTraces == 0 {
		o.RememberTraces = 500_000
	}
	p := &o.Policy
	if p.Collector == nil && p.Ratio == 0 && !p.Errors && !p.Aborted && !p.Retracted && !p.Tools && !p.Linked && p.Slow == (Slow{}) && p.Keep == nil && p.Drop == nil {
		*p = DefaultPolicy()
	}
	return o
}

// Flags say how a decision came about.
type Flags uint8

// Flags of a decision.
const (
	Early      Flags = 1 << iota // kept before the request was finished
	Evicted                      // the limit on memory or traces was reached
	TooLarge                     // more spans than MaxSpansPerTrace
	NoRoot                       // it looks finished, but its root span was in nothing that came
	Unfinished                   // nothing said that it ended: IdleAfter, MaxAge, or the program stops
)

// Decision is about one trace. Of a trace that is kept early there are several, one with Final; late
// spans make more. The caller owns it.
type Decision struct {
	Trace  span.TraceID
	Keep   bool
	Policy string  // the rule that decided, see RuleErrors and its neighbours
	Weight float64 // how many traces it stands for: 1 when always kept, 1/ratio, 0 when that is not known
	Late   bool    // these spans came after the decision and follow it
	First  int64   // when the first span came that is in here or was held until here, ns since 1970
	Final  bool    // the trace's spans so far are all here or in decisions before; Requests are complete
	Flags  Flags
	Spans  []span.Scope // to be stored; none when Keep is false
	// Requests are what the trace says about its requests, whether it is kept or not: they are what
	// rates and percentiles are made of. Only of a Final decision.
	Requests []request.Observation
}

// Sampler holds undecided traces. It must be used by one goroutine at a time, and is a few microseconds a
// span: one lock around it serves two cores. It starts nothing and needs no closing.
type Sampler struct {
	o   Options
	c   *compiled
	now int64

	held   map[span.TraceID]uint32
	chunks []*[chunkLen]trace
	slots  uint32 // how many of chunks were ever used
	free   []uint32
	lists  [numLists]list
	extras map[uint32]*extra
	groups map[uint64]*group
	timers timers
	memory memory

	nursery      arena
	packed       arena
	nurseryBytes int64
	dicts        []dict
	dictNow      int
	dictAge      int64 // bytes packed with it
	heldSpans    int64
	heldWire     int64

	scopes     []heldScope
	scopeHoles []uint32
	scopeOf    map[string]uint32
	scopeBytes int64
	sweeps     int

	words    map[string]int32 // services and models
	sketches map[[2]int32]*[numMeasures]*sketch

	stats     counters
	linksSeen bool
	out       []*Decision
	pass      map[span.TraceID]*Decision // of this Add: spans that go straight through
	again     map[span.TraceID]uint8     // held traces that a process before this one threw away, by rule
	tied      []uint32                   // to be promoted: tied to a trace that was kept
	seen      seen
	work      []uint32
	refs      []ref
	scratch   []byte
	scratch2  []byte
	scopeKey  []byte
	reuse     builder
	spans     []span.Span // of the trace that is being observed
	lean      []byte
}

// dict is a dictionary that blocks were compressed against.
type dict struct {
	d    *s2.Dict
	refs int // blocks
}

// New makes a sampler. The error says which option cannot be.
func New(o Options) (*Sampler, error) {
	o = o.withDefaults()
	c, err := compile(o.Policy)
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"linger", o.Linger}, {"settle", o.Settle}, {"idle_after", o.IdleAfter}, {"max_age", o.MaxAge}, {"remember", o.Remember}} {
		if d.d < 0 || d.d > 365*24*time.Hour {
			return nil, fmt.Errorf("tail sampling: %s is %s; it must be longer than 0 and at most a year", d.name, d.d)
		}
	}
	if o.File != "" {
		return nil, fmt.Errorf("tail sampling: the policy is in the file %s, which was not read", o.File)
	}
	if o.MaxBytes < minBytes {
		return nil, fmt.Errorf("tail sampling: max_memory is %d bytes; it must be at least %d MB", o.MaxBytes, minBytes>>20)
	}
	if o.MaxTraces < 1 || o.MaxTraces > maxSlots || o.RememberTraces < 1 || o.RememberTraces > maxSlots || o.MaxSpansPerTrace < 1 {
		return nil, errors.New("tail sampling: max_traces, remember_traces and max_spans_per_trace must be at least 1, and the first two at most 16777216")
	}
	s := &Sampler{
		o: o, c: c,
		held: map[span.TraceID]uint32{}, extras: map[uint32]*extra{}, groups: map[uint64]*group{}, scopeOf: map[string]uint32{},
		words: map[string]int32{}, sketches: map[[2]int32]*[numMeasures]*sketch{}, pass: map[span.TraceID]*Decision{}, again: map[span.TraceID]uint8{},
		nurseryBytes: min(32<<20, o.MaxBytes/4), dictNow: -1,
		memory: memory{of: map[span.TraceID]uint32{}, limit: o.RememberTraces, keep: o.Remember.Nanoseconds()},
	}
	for i := range s.lists {
		s.lists[i] = list{head: nobody, tail: nobody}
	}
	if s.o.Observe == nil {
		s.o.Observe = s.observeSpans
	}
	s.stats.kept = make([]int64, len(c.names))
	s.stats.dropped = make([]int64, len(c.names))
	return s, nil
}

// minBytes is the least that a sampler works with.
const minBytes = 8 << 20

// Add takes spans in and gives what is decided by that: traces kept early, late spans of kept traces,
// traces decided for want of room, and what Advance would give. It copies what it keeps.
func (s *Sampler) Add(now int64, scopes []span.Scope) []*Decision {
	s.out = nil
	now = s.advance(now)
	for i := range scopes {
		sc := &scopes[i]
		var scope place
		for j := range sc.Spans {
			if h := &sc.Spans[j]; !h.Trace.IsZero() {
				s.add(now, sc, h, &scope)
			} else {
				s.stats.noID++
			}
		}
	}
	clear(s.pass)
	out := s.out
	s.out = nil
	return out
}

// Advance lets time pass and gives what is decided by that. It should be called every second or so.
func (s *Sampler) Advance(now int64) []*Decision {
	s.out = nil
	s.advance(now)
	out := s.out
	s.out = nil
	return out
}

// Flush decides everything that is held, as when the program stops. The sampler can be used on.
func (s *Sampler) Flush(now int64) []*Decision {
	s.out = nil
	now = s.advance(now)
	for i := range s.lists {
		for s.lists[i].head != nobody {
			slot := uint32(s.lists[i].head)
			var why Flags
			if !s.ended(s.at(slot)) {
				why = Unfinished
			}
			s.decide(now, slot, why, !s.c.native && s.c.Collector.DropHeld)
		}
	}
	out := s.out
	s.out = nil
	return out
}

// place is the number of the scope that is being read, while it holds.
type place struct {
	num    uint32
	known  bool
	sweeps int
}

func (s *Sampler) add(now int64, sc *span.Scope, h *span.Header, scope *place) {
	slot, ok := s.held[h.Trace]
	if !ok {
		if m, ok := s.memory.get(now, h.Trace); ok {
			s.late(now, sc, h, m)
			return
		}
		for len(s.held) >= s.o.MaxTraces {
			s.evict(now, "max_traces")
		}
		slot = s.create(h.Trace, now)
	}
	if !scope.known || scope.sweeps != s.sweeps {
		n := s.intern(sc)
		*scope = place{n, true, s.sweeps}
	}
	t := s.at(slot)
	in := &s.seen
	s.c.inspect(sc, h, in)
	s.absorb(t, sc, h, in, s.scopes[scope.num].bits)
	s.hold(slot, scope.num, h.Raw)
	if in.state != "" || in.session != "" || in.room != "" || len(in.links) > 0 {
		s.tie(now, slot, in)
		if t.rule != noRule {
			s.spread(now, slot)
		}
	}
	if !ok && s.linksSeen && s.c.native && s.c.Linked {
		if g := s.groups[linkKey(h.Trace)]; g != nil {
			for _, m := range g.members {
				if s.at(m).rule != noRule {
					s.tied = append(s.tied, slot)
					break
				}
			}
		}
		if m, ok := s.memory.get(now, groupID(linkKey(h.Trace))); ok && m.kept {
			s.tied = append(s.tied, slot)
		}
	}
	if t.rule != noRule {
		s.through(t.first, sc, h, t.rule, Early, false)
	} else if rule := s.c.interest(t); rule != noRule {
		s.promote(now, slot, rule)
	}
	for len(s.tied) > 0 {
		tied := s.tied[len(s.tied)-1]
		s.tied = s.tied[:len(s.tied)-1]
		if s.at(tied).undecided() {
			s.promote(now, tied, ruleLinked)
		}
	}
	s.reschedule(now, slot)
	if int(t.spans) >= s.o.MaxSpansPerTrace {
		s.stats.tooLarge++
		s.decide(now, slot, TooLarge, false)
	}
	for s.used() > s.o.MaxBytes && len(s.held) > 0 {
		s.evict(now, "max_memory")
	}
	s.tidy()
}

// absorb adds what a span says to its trace.
func (s *Sampler) absorb(t *trace, sc *span.Scope, h *span.Header, in *seen, resource uint64) {
	if t.spans == 0 || h.Start < t.begin {
		t.begin = h.Start
	}
	if t.spans == 0 || h.End > t.end {
		t.end = h.End
	}
	t.spans++
	t.wire += int64(len(h.Raw))
	t.flags |= in.flags
	t.bits |= in.bits | resource
	for m, v := range in.slow {
		t.slow[m] = max(t.slow[m], v)
	}
	t.tokens = max(t.tokens, in.tokens)
	if t.service == nobody || in.flags&(sawRoot|sawTop) != 0 && t.flags&sawRoot == in.flags&sawRoot {
		t.service = s.word(sc.Service)
	}
	if in.model != "" && t.model == nobody {
		t.model = s.word(in.model)
	}
	if in.flags&sawSampled != 0 {
		s.stats.headSampled++
	}
}

// maxWords bounds how many services and models are told apart.
const maxWords = 4096

// word gives a service or model its number; nobody when there are too many.
func (s *Sampler) word(w string) int32 {
	if i, ok := s.words[w]; ok {
		return i
	}
	if len(s.words) >= maxWords {
		return nobody
	}
	i := int32(len(s.words))
	s.words[strings.Clone(w)] = i
	return i
}

// ended tells whether the request of a trace is finished.
func (s *Sampler) ended(t *trace) bool {
	return t.flags&sawRoot != 0 && !half(t)
}

// half tells a trace that has the root of a prefill engine's half, and nothing of a frontend or of the
// decode engine: the request goes on elsewhere.
func half(t *trace) bool {
	return t.flags&(sawHalfRoot|sawRoom) == sawHalfRoot|sawRoom && t.flags&sawDecodeHalf == 0
}

// looksEnded tells a trace that has an end of its request, though not the root's: the root may be a
// caller's that sends no spans. After a prefill half alone the decode half is still to come.
func looksEnded(t *trace) bool {
	return t.flags&(sawTop|sawFinishReason|sawRoot) != 0 && t.flags&(sawPrefillHalf|sawDecodeHalf) != sawPrefillHalf || half(t)
}

// reschedule sets when a trace is to be decided, after a span came.
func (s *Sampler) reschedule(now int64, slot uint32) {
	t := s.at(slot)
	t.last = now
	switch {
	case s.ended(t):
		if t.waits {
			break
		}
		t.waits = true
		t.due = now + int64(s.o.Linger)
		if t.list == listOpen {
			s.listMove(slot, listEnded)
		}
	case looksEnded(t):
		t.due = min(now+int64(s.o.Settle), t.first+int64(s.o.MaxAge))
	default:
		t.due = min(now+int64(s.o.IdleAfter), t.first+int64(s.o.MaxAge))
	}
	if t.due < t.timer {
		t.timer = t.due
		s.timers.push(timer{t.due, slot, t.gen})
	}
}

// advance moves the time forward and decides what is due.
func (s *Sampler) advance(now int64) int64 {
	s.now = max(s.now, now)
	now = s.now
	for len(s.timers) > 0 && s.timers[0].due <= now {
		e := s.timers.pop()
		t := s.at(e.slot)
		if t.gen != e.gen || t.timer != e.due {
			continue
		}
		t.timer = math.MaxInt64
		if t.due <= now && half(t) && now < t.first+int64(s.o.MaxAge) && s.partner(e.slot) {
			t.due = now + int64(s.o.Settle)
		}
		if t.due > now {
			t.timer = t.due
			s.timers.push(timer{t.due, e.slot, t.gen})
			continue
		}
		var why Flags
		switch {
		case s.ended(t):
		case looksEnded(t):
			why = NoRoot
		default:
			why = Unfinished
		}
		s.decide(now, e.slot, why, false)
	}
	s.tidy()
	return now
}

// partner tells whether the other half of a PD request is held and goes on.
func (s *Sampler) partner(slot uint32) bool {
	x := s.extras[slot]
	if x == nil || x.room == 0 {
		return false
	}
	g := s.groups[x.room]
	return g != nil && len(g.members) > 1
}

// Hint says which option to raise when traces had to be decided early since the last call, "" when none
// had.
func (s *Sampler) Hint() string {
	n := s.stats.evicted - s.stats.hinted
	s.stats.hinted = s.stats.evicted
	if n == 0 {
		return ""
	}
	option, at := "max_traces (num_traces in the collector's form)", fmt.Sprint(s.o.MaxTraces)
	switch s.stats.evictedBy {
	case "max_memory":
		option, at = "max_memory", fmt.Sprintf("%d MB", s.o.MaxBytes>>20)
	case evictedByLog:
		return fmt.Sprintf("%d traces were decided before they ended, because the log of undecided spans on disk is nearly full; lower traces.sampling.max_age, now %s, so that one long trace does not hold up all that came after it", n, s.o.MaxAge)
	}
	return fmt.Sprintf("%d traces were decided before they ended, because as many are held as traces.sampling allows; raise %s, now %s", n, option, at)
}
