package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/holdlog"
	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// sampling takes spans in, holds them until their request is finished, and stores what is kept. Each step
// is made so that a crash after an acknowledgement loses nothing and changes no mind: spans are in the log
// of what is held before the sampler has them; what was decided is in it before it is carried out; and they
// leave it once their trace is decided and, where it is kept, stored.
type sampling struct {
	held     *holdlog.Log
	store    *eventstore.Store
	requests *requeststore.Store
	forward  *otlp.Forwarder // nil: none
	engineOf func(names ...string) string
	log      *slog.Logger

	mu      sync.Mutex
	sampler *tailsample.Sampler
	policy  tailsample.Options
	ready   bool // what was held before the start is read
	body    []byte
	// position is that of the newest request or decision: the time, and always more than the one before,
	// over restarts too.
	position int64
	// queue are decisions that are not carried out yet, in the order in which they were made; done is the
	// position up to which all are.
	queue   []*batch
	waiting int64 // bytes that they take
	// mostWaiting bounds what the store did not take yet; then no more spans are taken in.
	mostWaiting int64
	done        int64
	failure     error // why the store takes nothing, nil when it does

	makers  sync.Pool   // of *rowMaker
	learned learnedFile // of whoever runs it

	before      tailsample.Stats // of samplers with earlier policies
	beforeDrops map[[2]string]int64
	undecodable int64

	released time.Time
}

// batch is decisions of one moment.
type batch struct {
	position  int64
	first     int64 // when the oldest of their spans came in
	decisions []*tailsample.Decision
	bytes     int64 // of memory, about
	busy      bool  // somebody carries them out
	stored    bool  // the spans are, though not all is done
	done      bool
}

const (
	// releaseEvery is how often the log of held spans is shortened: it takes a look at all that are held.
	releaseEvery = 10 * time.Second
	// patience is how long a sender is kept waiting by a store that is full: a second of its usual ten.
	patience = time.Second
	// nearlyFull is the share of the log's bound from which on what holds it up is decided early.
	nearlyFull = 0.8
)

func newSampling(held *holdlog.Log, store *eventstore.Store, requests *requeststore.Store, forward *otlp.Forwarder, engineOf func(...string) string, log *slog.Logger) *sampling {
	return &sampling{held: held, store: store, requests: requests, forward: forward, engineOf: engineOf, log: log, mostWaiting: 64 << 20, beforeDrops: map[[2]string]int64{}}
}

// use puts a policy in force. What another one holds is decided by that; the same one again changes nothing.
func (s *sampling) use(o tailsample.Options, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler != nil && reflect.DeepEqual(o, s.policy) {
		return nil
	}
	full := o
	full.Engine = func(sp *span.Span) string { return s.engineOf(names(sp)...) }
	next, err := tailsample.New(full)
	if err != nil {
		return err
	}
	if s.sampler != nil {
		s.move(now)
		s.enqueue(s.sampler.Flush(s.position))
		s.before = addStats(s.before, s.sampler.Stats())
		for _, d := range s.sampler.Drops() {
			s.beforeDrops[[2]string{d.Source, d.Reason}] += d.Count
		}
		next.Inherit(s.sampler)
	}
	s.sampler, s.policy = next, o
	return nil
}

// move takes the next position.
func (s *sampling) move(now time.Time) { s.position = max(now.UnixNano(), s.position+1) }

// enqueue notes decisions that were made at the position. It returns nil when there are none.
func (s *sampling) enqueue(decisions []*tailsample.Decision) *batch {
	if len(decisions) == 0 {
		return nil
	}
	b := &batch{position: s.position, first: math.MaxInt64, decisions: decisions}
	var verdicts []holdlog.Verdict
	for _, d := range decisions {
		b.first = min(b.first, d.First)
		b.bytes += 256 + 1024*int64(len(d.Requests)) // about what they take without spans
		for i := range d.Spans {
			for k := range d.Spans[i].Spans {
				b.bytes += int64(len(d.Spans[i].Spans[k].Raw))
			}
		}
		if !d.Late {
			verdicts = append(verdicts, holdlog.Verdict{Trace: holdlog.ID(d.Trace), Kept: d.Keep, Final: d.Final, Rule: d.Policy})
		}
	}
	if err := s.held.Decide(s.position, verdicts); err != nil {
		s.log.Error("what was decided could not be noted; after a crash it may be decided otherwise", "err", err)
	}
	s.queue = append(s.queue, b)
	s.waiting += b.bytes
	return b
}

// past is what a process before this one decided about a trace.
type past struct {
	kept    bool
	rule    string
	first   int64 // position of the first decision: from then on its spans were stored as they came
	final   int64 // position of the final one, 0 when there was none
	resumed bool
}

// replay takes in what was held when the process ended without deciding it, and what was decided and not
// carried out. It must be called once, before anything is taken.
func (s *sampling) replay() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var (
		decisions []*tailsample.Decision
		traces    = map[span.TraceID]*past{}
		finals    []span.TraceID
		requests  int
	)
	s.recall(time.Now()) // before what was held is decided
	err := s.held.Replay(holdlog.Reader{
		Verdict: func(at int64, v holdlog.Verdict) {
			s.position = max(s.position, at)
			id := span.TraceID(v.Trace)
			p := traces[id]
			if p == nil || p.final != 0 { // after a final one, it was forgotten and came again
				p = &past{first: at}
				traces[id] = p
			}
			p.kept, p.rule = v.Kept, v.Rule
			if v.Final {
				p.final = at
				finals = append(finals, id)
			}
		},
		Progress: func(at int64) {
			s.position, s.done = max(s.position, at), at
			for _, id := range finals {
				if p := traces[id]; p.final != 0 && p.final <= s.done {
					s.sampler.Remember(p.final, id, p.kept, p.rule)
				}
			}
		},
		Request: func(at int64, body []byte) error {
			s.position = max(s.position, at)
			scopes, err := span.Scan(body, nil)
			if err != nil {
				s.log.Error("a request that was held cannot be read", "err", err)
				return nil
			}
			for i := range scopes {
				scopes[i].Spans = slices.DeleteFunc(scopes[i].Spans, func(h span.Header) bool {
					p := traces[h.Trace]
					switch {
					case p == nil:
						return false
					case p.final != 0 && p.final <= s.done:
						return at <= p.final // carried out, and else a late one
					case !p.resumed:
						p.resumed = true
						s.sampler.Resume(at, h.Trace, p.kept, p.rule)
					}
					return false
				})
			}
			for _, d := range s.sampler.Add(at, scopes) {
				if p := traces[d.Trace]; p != nil && p.first <= s.done && at <= s.done {
					d.Spans = nil // stored then
				}
				if d.Final || len(d.Spans) > 0 {
					decisions = append(decisions, d)
				}
			}
			requests++
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("undecided spans of before the last stop: %w", err)
	}
	s.position++
	s.enqueue(decisions)
	s.ready = true
	if requests > 0 {
		s.log.Info("spans of before the last stop are read again", "requests", requests, "undecided_traces", s.sampler.Stats().HeldTraces, "decisions_to_carry_out", len(decisions))
	}
	return nil
}

// take takes spans in. When it returns nil they will be kept, or decided on, also over a crash; after an
// error they may be sent again.
func (s *sampling) take(ctx context.Context, scopes []span.Scope) error {
	if err := s.blocked(); err != nil {
		return err
	}
	if s.forward != nil && s.forward.Wanted(true) {
		if err := s.forward.Traces(true, scopes); err != nil {
			s.log.Error("spans could not be queued for forwarding", "err", err) // counted there
		}
	}
	s.mu.Lock()
	s.move(time.Now())
	s.body = otlp.AppendTraces(s.body[:0], scopes)
	if err := s.held.Append(s.position, s.body); err != nil {
		s.mu.Unlock()
		return err
	}
	if cap(s.body) > 8<<20 {
		s.body = nil
	}
	b := s.enqueue(s.sampler.Add(s.position, scopes))
	s.mu.Unlock()
	// Whether the store takes what is decided just now is not the sender's business: it has sent them, and
	// must not take us for dead and send them again. What is not stored in time waits in the queue.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = s.carryOut(ctx, b)
	return nil
}

// blocked is why no spans can be taken in, nil when they can.
func (s *sampling) blocked() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return fmt.Errorf("spans of before the last stop are still read: %w", eventstore.ErrDown)
	}
	if s.waiting < s.mostWaiting {
		return nil
	}
	why := s.failure
	if why == nil {
		why = eventstore.ErrFull
	}
	return fmt.Errorf("%d MB of decided traces wait for the event store: %w", s.waiting>>20, why)
}

// carryOut stores what is kept, and the requests of all. What could not be done stays in the queue, and the
// error says why.
func (s *sampling) carryOut(ctx context.Context, b *batch) error {
	if b == nil {
		return nil
	}
	s.mu.Lock()
	if b.busy || b.done {
		s.mu.Unlock()
		return nil
	}
	b.busy = true
	s.mu.Unlock()

	err := s.storeBatch(ctx, b)

	s.mu.Lock()
	defer s.mu.Unlock()
	b.busy = false
	if err != nil {
		if s.failure == nil && ctx.Err() == nil {
			s.log.Warn("decided spans cannot be stored just now; they wait", "err", err)
		}
		if ctx.Err() == nil {
			s.failure = err
		}
		return err
	}
	if s.failure != nil {
		s.log.Info("decided spans are stored again")
		s.failure = nil
	}
	b.done, b.decisions = true, nil
	s.waiting -= b.bytes
	n := 0
	for ; n < len(s.queue) && s.queue[n].done; n++ {
		s.done = s.queue[n].position
	}
	if n > 0 {
		s.queue = slices.Delete(s.queue, 0, n)
		if err := s.held.Done(s.done); err != nil {
			s.log.Error("what was stored could not be noted; after a crash it is stored again", "err", err)
		}
	}
	return nil
}

// rowsAtOnce is how many spans are made into rows before these are stored.
const rowsAtOnce = 2048

// rowMaker is memory for making spans into rows.
type rowMaker struct {
	spans []span.Span
	rows  []event.Row
}

func (s *sampling) storeBatch(ctx context.Context, b *batch) error {
	var (
		observed []request.Observation
		kept     []span.Scope
	)
	if !b.stored {
		bad, err := s.storeSpans(ctx, b.decisions)
		if err != nil {
			return err // what is stored of them is stored again then, and read once
		}
		b.stored = true
		if bad > 0 {
			s.mu.Lock()
			s.undecodable += bad
			s.mu.Unlock()
			s.log.Error("kept spans could not be decoded", "spans", bad)
		}
		if s.forward != nil && s.forward.Wanted(false) {
			for _, d := range b.decisions {
				if d.Keep {
					kept = append(kept, d.Spans...)
				}
			}
			if len(kept) > 0 {
				if err := s.forward.Traces(false, kept); err != nil {
					s.log.Error("kept spans could not be queued for forwarding", "err", err) // counted there
				}
			}
		}
	}
	for _, d := range b.decisions {
		for _, o := range d.Requests {
			if o.Engine == "" {
				o.Engine = s.engineOf(o.Service)
			}
			observed = append(observed, o)
		}
	}
	return s.requests.Observe(ctx, observed)
}

// storeSpans stores the spans of kept traces, and counts those that cannot be decoded.
func (s *sampling) storeSpans(ctx context.Context, decisions []*tailsample.Decision) (bad int64, err error) {
	m, _ := s.makers.Get().(*rowMaker)
	if m == nil {
		m = &rowMaker{}
	}
	defer s.makers.Put(m)
	n := 0
	flush := func() error {
		for i := range n {
			m.spans[i].Row(&m.rows[i])
			m.rows[i].Engine = s.engineOf(names(&m.spans[i])...)
		}
		err := s.append(ctx, m.rows[:n])
		n = 0
		return err
	}
	for _, d := range decisions {
		if !d.Keep {
			continue
		}
		for i := range d.Spans {
			sc := &d.Spans[i]
			for k := range sc.Spans {
				if n == len(m.spans) {
					m.spans = append(m.spans, make([]span.Span, min(max(n, 16), rowsAtOnce-n))...)
					m.rows = append(m.rows, make([]event.Row, len(m.spans)-len(m.rows))...)
				}
				if err := span.Decode(sc, &sc.Spans[k], &m.spans[n]); err != nil {
					bad++
					continue
				}
				if n++; n == rowsAtOnce {
					if err := flush(); err != nil {
						return bad, err
					}
				}
			}
		}
	}
	return bad, flush()
}

// append stores rows; those that are refused for good are counted by the store.
func (s *sampling) append(ctx context.Context, rows []event.Row) error {
	if len(rows) == 0 {
		return nil
	}
	err := s.store.Append(ctx, rows)
	var refused *eventstore.RejectedError
	if errors.As(err, &refused) {
		s.log.Warn("spans were refused", "err", err)
		return nil
	}
	return err
}

// names are those under which the configuration may know the engine that a span is of, best first.
func names(s *span.Span) []string {
	var out []string
	for _, key := range []string{"service.instance.id", "rollscope.engine", "server.address", "host.name", "k8s.pod.name"} {
		for _, a := range s.Resource {
			if a.Key == key && a.Value.Str != "" {
				out = append(out, a.Value.Str)
			}
		}
	}
	return append(out, s.Service)
}

// run lets time pass for the sampler, until ctx ends.
func (s *sampling) run(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	// First what waits since the last stop: while it does, nothing later can be noted as done.
	_ = s.carryOutAll(ctx) // logged there
	for {
		select {
		case now := <-t.C:
			s.tick(ctx, now)
		case <-ctx.Done():
			// What is still held stays in the log, and is taken in again at the next start: a request that
			// runs while we restart is not cut in two.
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := s.carryOutAll(stopCtx); err != nil {
				s.log.Warn("decided spans could not be stored before the stop; they are at the next start", "err", err)
			}
			s.memorize()
			return nil
		}
	}
}

// carryOutAll carries out what waits, until something fails.
func (s *sampling) carryOutAll(ctx context.Context) error {
	s.mu.Lock()
	queue := slices.Clone(s.queue)
	s.mu.Unlock()
	for _, b := range queue {
		if err := s.carryOut(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *sampling) tick(ctx context.Context, now time.Time) {
	s.mu.Lock()
	if s.waiting < s.mostWaiting { // else nothing more may be decided: that takes memory
		s.enqueueAt(now, s.sampler.Advance)
		if s.held.Full() > nearlyFull {
			if oldest, some := s.sampler.Oldest(); some {
				s.enqueueAt(now, func(at int64) []*tailsample.Decision { return s.sampler.EvictBefore(at, oldest+(at-oldest)/2) })
			}
		}
	}
	hint := s.sampler.Hint()
	s.mu.Unlock()
	if hint != "" {
		s.log.Warn(hint)
	}
	_ = s.carryOutAll(ctx) // logged there
	if now.Sub(s.released) >= releaseEvery {
		s.released = now
		s.release()
		s.memorize()
	}
}

// enqueueAt notes decisions of a position of their own.
func (s *sampling) enqueueAt(now time.Time, decide func(at int64) []*tailsample.Decision) {
	s.move(now)
	s.enqueue(decide(s.position))
}

// release shortens the log to what is held, decided and not carried out, or remembered.
func (s *sampling) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.position + 1
	if oldest, some := s.sampler.Oldest(); some {
		requests = min(requests, oldest)
	}
	for _, b := range s.queue {
		requests = min(requests, b.first)
	}
	verdicts := requests
	if oldest, some := s.sampler.Remembered(); some {
		verdicts = min(verdicts, oldest)
	}
	if err := s.held.Release(requests, verdicts, s.done); err != nil {
		s.log.Warn("the log of undecided spans could not be shortened", "err", err)
	}
}

// stats are the numbers of all policies since the start.
func (s *sampling) stats() (tailsample.Stats, []tailsample.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler == nil {
		return s.before, nil
	}
	counts := maps.Clone(s.beforeDrops)
	for _, d := range s.sampler.Drops() {
		counts[[2]string{d.Source, d.Reason}] += d.Count
	}
	if s.undecodable > 0 {
		counts[[2]string{"traces", "undecodable_span"}] = s.undecodable
	}
	if s.learned.damaged > 0 {
		counts[[2]string{"traces", "damaged_percentiles"}] = s.learned.damaged
	}
	var drops []tailsample.Drop
	for k, n := range counts {
		drops = append(drops, tailsample.Drop{Source: k[0], Reason: k[1], Count: n})
	}
	slices.SortFunc(drops, func(a, b tailsample.Drop) int { return strings.Compare(a.Source+a.Reason, b.Source+b.Reason) })
	return addStats(s.before, s.sampler.Stats()), drops
}

func addStats(a, b tailsample.Stats) tailsample.Stats {
	out := b
	out.Kept, out.Dropped = map[string]int64{}, map[string]int64{}
	for _, from := range []tailsample.Stats{a, b} {
		for k, n := range from.Kept {
			out.Kept[k] += n
		}
		for k, n := range from.Dropped {
			out.Dropped[k] += n
		}
	}
	out.SpansKept += a.SpansKept
	out.SpansDropped += a.SpansDropped
	out.LateKept += a.LateKept
	out.LateDropped += a.LateDropped
	out.EvictedEarly += a.EvictedEarly
	out.TooLarge += a.TooLarge
	out.Unfinished += a.Unfinished
	out.Requests += a.Requests
	out.HeadSampled += a.HeadSampled
	out.GroupsFull += a.GroupsFull
	return out
}

var (
	heldTracesDesc = prometheus.NewDesc("rollscope_tailsample_held_traces", "Traces whose request is not finished yet.", nil, nil)
	heldBytesDesc  = prometheus.NewDesc("rollscope_tailsample_held_bytes", "Memory that undecided traces take.", nil, nil)
	waitingDesc    = prometheus.NewDesc("rollscope_tailsample_waiting_bytes", "Memory of decisions that the event store did not take yet.", nil, nil)
	heldLogDesc    = prometheus.NewDesc("rollscope_tailsample_log_bytes", "Size of the log of undecided spans on disk.", nil, nil)
	decidedDesc    = prometheus.NewDesc("rollscope_tailsample_traces_total", "Traces that were decided, by decision and rule.", []string{"decision", "rule"}, nil)
	spansDesc      = prometheus.NewDesc("rollscope_tailsample_spans_total", "Spans of decided traces, late ones included.", []string{"decision"}, nil)
	evictedDesc    = prometheus.NewDesc("rollscope_tailsample_evicted_early_total", "Traces that were decided early for want of room.", nil, nil)
	seenDesc       = prometheus.NewDesc("rollscope_tailsample_requests_total", "Requests seen in traces, kept or not.", nil, nil)
)

// Describe and Collect make it a [prometheus.Collector].
func (s *sampling) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldTracesDesc, heldBytesDesc, waitingDesc, heldLogDesc, decidedDesc, spansDesc, evictedDesc, seenDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *sampling) Collect(out chan<- prometheus.Metric) {
	st, _ := s.stats()
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(heldTracesDesc, st.HeldTraces)
	gauge(heldBytesDesc, st.HeldBytes)
	gauge(waitingDesc, waiting)
	gauge(heldLogDesc, s.held.Size())
	for rule, n := range st.Kept {
		counter(decidedDesc, n, "kept", rule)
	}
	for rule, n := range st.Dropped {
		counter(decidedDesc, n, "dropped", rule)
	}
	counter(spansDesc, st.SpansKept+st.LateKept, "kept")
	counter(spansDesc, st.SpansDropped+st.LateDropped, "dropped")
	counter(evictedDesc, st.EvictedEarly)
	counter(seenDesc, st.Requests)
}
