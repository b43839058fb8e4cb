package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
// is made so that a crash after an acknowledgement loses nothing: spans are in the log of what is held
// before the sampler has them, and leave it once their trace is decided and, where it is kept, stored.
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
	body    []byte
	// pending are decisions that could not be carried out yet: the store takes nothing just now.
	pending []*tailsample.Decision
	before  tailsample.Stats // of samplers with earlier policies

	// carrying is held for reading while decisions are neither held, nor pending, nor carried out: what
	// they need of the log must stay.
	carrying sync.RWMutex
	released time.Time
}

// releaseEvery is how often the log of held spans is shortened: it takes a look at all that are held.
const releaseEvery = 10 * time.Second

func newSampling(held *holdlog.Log, store *eventstore.Store, requests *requeststore.Store, forward *otlp.Forwarder, engineOf func(...string) string, log *slog.Logger) *sampling {
	return &sampling{held: held, store: store, requests: requests, forward: forward, engineOf: engineOf, log: log}
}

// use puts a policy in force. What another one holds is decided by that.
func (s *sampling) use(o tailsample.Options, now time.Time) error {
	next, err := tailsample.New(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler != nil {
		s.pending = append(s.pending, s.sampler.Flush(now.UnixNano())...)
		s.before = addStats(s.before, s.sampler.Stats())
	}
	s.sampler, s.policy = next, o
	return nil
}

// replay takes in what was held when the process ended without deciding it.
func (s *sampling) replay() error {
	n := 0
	err := s.held.Replay(func(at int64, decided map[holdlog.ID]bool, body []byte) error {
		scopes, err := span.Scan(body, nil)
		if err != nil {
			s.log.Error("a request that was held cannot be read", "err", err)
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range s.sampler.Add(at, scopes) {
			// What was decided then was carried out then; the sampler remembers it now.
			if !decided[holdlog.ID(d.Trace)] {
				s.pending = append(s.pending, d)
			}
		}
		n++
		return nil
	})
	if err != nil {
		return fmt.Errorf("undecided spans of before the last stop: %w", err)
	}
	if n > 0 {
		s.log.Info("spans that were not decided when the process ended are held again", "requests", n)
	}
	return nil
}

// take takes spans in. When it returns nil they will be kept, or decided on, also over a crash.
func (s *sampling) take(ctx context.Context, scopes []span.Scope) error {
	if s.forward != nil && s.forward.Wanted(true) {
		if err := s.forward.Traces(true, scopes); err != nil {
			s.log.Error("spans could not be queued for forwarding", "err", err) // counted there
		}
	}
	s.carrying.RLock()
	defer s.carrying.RUnlock()
	now := time.Now().UnixNano()
	s.mu.Lock()
	s.body = otlp.AppendTraces(s.body[:0], scopes)
	if err := s.held.Append(now, s.body); err != nil {
		s.mu.Unlock()
		return err
	}
	if cap(s.body) > 8<<20 {
		s.body = nil
	}
	decisions := append(s.pending, s.sampler.Add(now, scopes)...)
	s.pending = nil
	s.mu.Unlock()
	return s.carryOut(ctx, decisions)
}

// carryOut stores what is kept, and the requests of all. What could not be done waits in pending.
func (s *sampling) carryOut(ctx context.Context, decisions []*tailsample.Decision) error {
	if len(decisions) == 0 {
		return nil
	}
	var (
		rows     []event.Row
		spans    []span.Span
		observed []request.Observation
		kept     []span.Scope
		done     []holdlog.ID
	)
	bad := 0
	for _, d := range decisions {
		if d.Keep {
			kept = append(kept, d.Spans...)
			for i := range d.Spans {
				sc := &d.Spans[i]
				for k := range sc.Spans {
					var sp span.Span
					if err := span.Decode(sc, &sc.Spans[k], &sp); err != nil {
						bad++
						continue
					}
					spans = append(spans, sp)
				}
			}
		}
		for _, o := range d.Requests {
			o.SpansKept, o.SpansReason = "sampled_away", d.Policy
			if d.Keep {
				o.SpansKept = "kept"
			}
			if o.Engine == "" {
				o.Engine = s.engineOf(o.Service)
			}
			observed = append(observed, o)
		}
		done = append(done, holdlog.ID(d.Trace))
	}
	if bad > 0 {
		s.log.Error("kept spans could not be decoded", "spans", bad)
	}
	rows = make([]event.Row, len(spans))
	for i := range spans {
		spans[i].Row(&rows[i])
		rows[i].Engine = s.engineOf(names(&spans[i])...)
	}
	fail := func(err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending = append(s.pending, decisions...)
		return err
	}
	if err := s.append(ctx, rows); err != nil {
		return fail(err)
	}
	if err := s.requests.Observe(ctx, observed); err != nil {
		return fail(err)
	}
	if s.forward != nil && len(kept) > 0 && s.forward.Wanted(false) {
		if err := s.forward.Traces(false, kept); err != nil {
			s.log.Error("kept spans could not be queued for forwarding", "err", err) // counted there
		}
	}
	return s.held.Decide(time.Now().UnixNano(), done)
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

// run lets time pass for the sampler, until ctx ends; then it decides the rest.
func (s *sampling) run(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.tick(ctx, now)
		case <-ctx.Done():
			// What is still held stays in the log, and is taken in again at the next start: a request that
			// runs while we restart is not cut in two.
			flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			s.carrying.RLock()
			defer s.carrying.RUnlock()
			s.mu.Lock()
			rest := s.pending
			s.pending = nil
			s.mu.Unlock()
			if err := s.carryOut(flushCtx, rest); err != nil {
				s.log.Warn("decided spans could not be stored before the stop; they are at the next start", "err", err)
			}
			return nil
		}
	}
}

func (s *sampling) tick(ctx context.Context, now time.Time) {
	if err := s.advance(ctx, now); err != nil && ctx.Err() == nil {
		s.log.Warn("decided spans cannot be stored just now; they wait", "err", err)
	}
	if now.Sub(s.released) < releaseEvery {
		return
	}
	s.released = now
	s.carrying.Lock()
	defer s.carrying.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		return
	}
	before, some := s.sampler.Oldest()
	if !some {
		before = now.UnixNano()
	}
	if err := s.held.Release(before); err != nil {
		s.log.Warn("the log of undecided spans could not be shortened", "err", err)
	}
}

func (s *sampling) advance(ctx context.Context, now time.Time) error {
	s.carrying.RLock()
	defer s.carrying.RUnlock()
	s.mu.Lock()
	decisions := append(s.pending, s.sampler.Advance(now.UnixNano())...)
	s.pending = nil
	hint := s.sampler.Hint()
	s.mu.Unlock()
	if hint != "" {
		s.log.Warn(hint)
	}
	return s.carryOut(ctx, decisions)
}

// stats are the numbers of all policies since the start.
func (s *sampling) stats() (tailsample.Stats, []tailsample.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler == nil {
		return s.before, nil
	}
	return addStats(s.before, s.sampler.Stats()), s.sampler.Drops()
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
	heldLogDesc    = prometheus.NewDesc("rollscope_tailsample_log_bytes", "Size of the log of undecided spans on disk.", nil, nil)
	decidedDesc    = prometheus.NewDesc("rollscope_tailsample_traces_total", "Traces that were decided, by decision and rule.", []string{"decision", "rule"}, nil)
	spansDesc      = prometheus.NewDesc("rollscope_tailsample_spans_total", "Spans of decided traces, late ones included.", []string{"decision"}, nil)
	evictedDesc    = prometheus.NewDesc("rollscope_tailsample_evicted_early_total", "Traces that were decided early for want of room.", nil, nil)
	seenDesc       = prometheus.NewDesc("rollscope_tailsample_requests_total", "Requests seen in traces, kept or not.", nil, nil)
)

// Describe and Collect make it a [prometheus.Collector].
func (s *sampling) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldTracesDesc, heldBytesDesc, heldLogDesc, decidedDesc, spansDesc, evictedDesc, seenDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *sampling) Collect(out chan<- prometheus.Metric) {
	st, _ := s.stats()
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(heldTracesDesc, st.HeldTraces)
	gauge(heldBytesDesc, st.HeldBytes)
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
