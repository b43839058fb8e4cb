// Package requeststore is the table of requests in the event store: it writes what sources observed,
// settles it into one row a request, and answers from the newest revision of each. Its entry point is
// [New].
package requeststore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
)

// EventStore is what is needed of [eventstore.Store]. It is safe for concurrent use.
type EventStore interface {
	Append(ctx context.Context, rows []event.Row) error
	Flush(ctx context.Context) error
	Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error
	// MaxQueryBytes is how long a query may be.
	MaxQueryBytes() int
}

// Options are the choices of [New].
type Options struct {
	request.SettlerOptions
	// State is a directory for one small file that says from when on observations were not settled; ""
	// keeps none: then the last hour is looked at after a start.
	State      string
	Every      time.Duration // how often Run settles what is ready; 0: 1 s
	MaxRows    int           // that one answer may be made of; 0: 2,000,000
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Store is the table of requests. Its methods may be called from several goroutines at once.
type Store struct {
	events EventStore
	o      Options
	log    *slog.Logger

	mu      sync.Mutex
	settler *request.Settler
	pending []event.Row // settled rows that the event store did not take yet
	drops   map[string]int64
	settled int64 // rows written
	// Observations that came from unsettled on were read again, at the time recovered: until they are settled
	// the next start must look for them.
	unsettled time.Time
	recovered int64

	round  sync.Mutex // one round of settling at a time
	failed time.Time  // when writing or looking up last failed, for one line in the log
}

// maxPending bounds the settled rows that wait for the event store.
const maxPending = 20_000

// New makes the table. Nothing is settled until [Store.Run] runs or [Store.Settle] is called. The error is
// that of a metric which is registered already.
func New(events EventStore, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.MaxRows == 0 {
		o.MaxRows = 2_000_000
	}
	s := &Store{events: events, o: o, log: o.Logger.With("component", "requests"), drops: map[string]int64{},
		settler: request.NewSettler(o.SettlerOptions, o.Now().UnixNano())}
	if o.Registerer != nil {
		if err := o.Registerer.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("register the metrics of requests: %w", err)
		}
	}
	return s, nil
}

// Observe stores observations and takes them into account. When it returns nil they are as durable as the
// event store makes them, and none is lost to the table. What the event store refuses, such as requests
// older than its retention, it counts, and here it is left out; the others are taken. After another error
// nothing was taken: the same may be sent again, and is counted once.
func (s *Store) Observe(ctx context.Context, list []request.Observation) error {
	if len(list) == 0 {
		return nil
	}
	now := s.o.Now().UnixNano()
	rows, keys := make([]event.Row, len(list)), make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Row(&rows[i], now)
	}
	err := s.events.Append(ctx, rows)
	var refused *eventstore.RejectedError
	if err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("store %d observations of requests: %w", len(list), err)
	}
	s.mu.Lock()
	for i, o := range list {
		if refused != nil && slices.Contains(refused.At, i) {
			continue
		}
		s.settler.AddKeyed(now, o, keys[i])
	}
	full := s.settler.Open() > s.maxOpen()
	s.mu.Unlock()
	if full { // whoever sends so fast waits for its share of the work
		s.settle(ctx, now)
	}
	return nil
}

func (s *Store) maxOpen() int {
	if s.o.MaxOpen > 0 {
		return s.o.MaxOpen
	}
	return 100_000
}

// Run settles what is ready until ctx ends. First it reads what a process before this one left unsettled;
// when ctx ends before that is done, it is left to the next.
func (s *Store) Run(ctx context.Context) error {
	for {
		err := s.recover(ctx)
		if err == nil {
			break
		}
		s.note("read observations that were not settled before the start", err)
		if !sleep(ctx, 5*time.Second) {
			return nil
		}
	}
	last := time.Time{}
	for sleep(ctx, s.o.Every) {
		now := s.o.Now()
		s.settle(ctx, now.UnixNano())
		if now.Sub(last) >= 10*time.Second || now.Before(last) {
			s.save()
			last = now
		}
	}
	s.save()
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Settle settles everything that was observed, ready or not, and returns when it can be read. For ends:
// of a test, of a simulation.
func (s *Store) Settle(ctx context.Context) error {
	s.settle(ctx, 1<<62)
	s.mu.Lock()
	left, open := len(s.pending), s.settler.Open()
	s.mu.Unlock()
	if left > 0 || open > 0 {
		return fmt.Errorf("%d requests and %d observations are not settled: the event store does not take them", left, open)
	}
	return s.events.Flush(ctx)
}

// batch is how many clusters are looked up with one query.
const batch = 400

// settle settles what is due at now. What fails is tried again with the next round.
func (s *Store) settle(ctx context.Context, now int64) {
	s.round.Lock()
	defer s.round.Unlock()
	if !s.write(ctx, nil) {
		return
	}
	flushed := false
	for ctx.Err() == nil {
		s.mu.Lock()
		due := s.settler.Due(now, batch)
		s.mu.Unlock()
		if len(due) == 0 {
			return
		}
		earlier := make([][]request.Earlier, len(due))
		if slices.ContainsFunc(due, func(d request.Due) bool { return len(d.Names) > 0 }) {
			err := error(nil)
			if !flushed { // what was written a moment ago must be found
				err = s.events.Flush(ctx)
				flushed = err == nil
			}
			if err == nil {
				earlier, err = s.earlier(ctx, due)
			}
			if err != nil {
				s.note("look up earlier rows of requests", err)
				s.mu.Lock()
				for _, d := range due {
					s.settler.Postpone(d, s.o.Now().Add(10*time.Second).UnixNano())
				}
				s.mu.Unlock()
				return
			}
		}
		var rows []event.Row
		s.mu.Lock()
		clock := s.o.Now().UnixNano()
		for i, d := range due {
			for _, r := range s.settler.Settle(clock, d, earlier[i]) {
				var row event.Row
				r.Row(&row)
				rows = append(rows, row)
			}
		}
		s.mu.Unlock()
		if !s.write(ctx, rows) {
			return
		}
	}
}

// write stores settled rows and those that waited; false when the event store does not take them now.
func (s *Store) write(ctx context.Context, rows []event.Row) bool {
	s.mu.Lock()
	s.pending = append(s.pending, rows...)
	if over := len(s.pending) - maxPending; over > 0 {
		// Their observations are stored: a restart finds them.
		s.pending = append([]event.Row(nil), s.pending[over:]...)
		s.drops["settled_rows_not_stored"] += int64(over)
	}
	list := s.pending
	s.mu.Unlock()
	if len(list) == 0 {
		return true
	}
	err := s.events.Append(ctx, list)
	var refused *eventstore.RejectedError
	if err != nil && !errors.As(err, &refused) { // refused rows are counted there
		s.note("store settled requests", err)
		return false
	}
	s.mu.Lock()
	s.pending = nil
	s.settled += int64(len(list))
	s.mu.Unlock()
	return true
}

func (s *Store) drop(reason string, n int64) {
	s.mu.Lock()
	s.drops[reason] += n
	s.mu.Unlock()
}

// note logs what is tried again, once a minute.
func (s *Store) note(what string, err error) {
	s.mu.Lock()
	quiet := s.o.Now().Sub(s.failed) < time.Minute
	if !quiet {
		s.failed = s.o.Now()
	}
	s.mu.Unlock()
	if !quiet && !errors.Is(err, context.Canceled) {
		s.log.Warn("cannot "+what+"; it is tried again", "err", err)
	}
}

// Drop is a number of things that were not done as they should be.
type Drop struct {
	Source, Reason string
	Count          int64
}

// Drops tells what was not kept, or settled otherwise than it should be, by reason.
func (s *Store) Drops() (out []Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []map[string]int64{s.drops, s.settler.Counts()} {
		for reason, n := range m {
			out = append(out, Drop{"requests", reason, n})
		}
	}
	slices.SortFunc(out, func(a, b Drop) int { return compare(a.Reason, b.Reason) })
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// stateFile says since when observations may be unsettled.
const stateFile = "requests.json"

type state struct {
	Since time.Time `json:"unsettled_since"`
}

// save writes from when on a next start must look for unsettled observations.
func (s *Store) save() {
	if s.o.State == "" {
		return
	}
	s.round.Lock() // nothing is between due and settled
	defer s.round.Unlock()
	s.mu.Lock()
	oldest := s.settler.Oldest()
	wait := len(s.pending) > 0
	since := time.Unix(0, oldest)
	switch {
	case oldest == 0:
		since = s.o.Now()
	case oldest <= s.recovered: // it came earlier than it was read again
		since = s.unsettled
	}
	s.mu.Unlock()
	if wait { // rows that are not stored: the old mark stays
		return
	}
	b, err := json.Marshal(state{since.UTC()})
	if err == nil {
		err = os.MkdirAll(s.o.State, 0o755)
	}
	if err == nil {
		path := filepath.Join(s.o.State, stateFile)
		if err = os.WriteFile(path+".tmp", append(b, '\n'), 0o644); err == nil {
			err = os.Rename(path+".tmp", path)
		}
	}
	if err != nil {
		s.note("write "+filepath.Join(s.o.State, stateFile), err)
	}
}

// since is when the first observation may have come that was not settled.
func (s *Store) since() time.Time {
	hour := s.o.Now().Add(-time.Hour)
	if s.o.State == "" {
		return hour
	}
	b, err := os.ReadFile(filepath.Join(s.o.State, stateFile))
	var st state
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hour
	case err != nil || st.Since.IsZero():
		s.log.Warn("cannot read from when on requests are unsettled; the last hour is looked at", "file", filepath.Join(s.o.State, stateFile), "err", err)
		return hour
	}
	return st.Since
}

// recover takes observations that came after the mark once more. Those that are settled change nothing.
func (s *Store) recover(ctx context.Context) error {
	now := s.o.Now().UnixNano()
	bad := 0
	since := s.since()
	s.mu.Lock()
	s.unsettled, s.recovered = since, now
	s.mu.Unlock()
	q := eventstore.Query{LogsQL: observationRows + receivedSince(since.Add(-time.Minute))} // one may be stored a while before it is counted here
	err := s.events.Query(ctx, q, func(fields []event.Field) error {
		o, err := request.ObservationFromRow(fields)
		if err != nil {
			bad++
			return nil
		}
		s.mu.Lock()
		s.settler.Add(now, o)
		full := s.settler.Open() > s.maxOpen()
		s.mu.Unlock()
		if full {
			s.settle(ctx, now)
		}
		return nil
	})
	s.drop("unreadable_observation", int64(bad))
	return err
}

// collector shows how the table is.
type collector struct{ s *Store }

var (
	openDesc    = prometheus.NewDesc("rollscope_requests_open_observations", "Observations of requests that are not settled yet.", nil, nil)
	keptDesc    = prometheus.NewDesc("rollscope_requests_kept_bytes", "Memory of settled requests that late observations are compared with.", nil, nil)
	settledDesc = prometheus.NewDesc("rollscope_requests_settled_rows_total", "Rows of settled requests written, revisions too.", nil, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- openDesc
	ch <- keptDesc
	ch <- settledDesc
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.s.mu.Lock()
	open, kept, settled := c.s.settler.Open(), c.s.settler.Kept(), c.s.settled
	c.s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(keptDesc, prometheus.GaugeValue, float64(kept))
	ch <- prometheus.MustNewConstMetric(settledDesc, prometheus.CounterValue, float64(settled))
}
