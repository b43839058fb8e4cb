// Package passstore keeps forward passes: the newest in memory, those that are wanted for longer as rows of
// the event store, and every one around an event (a burst). Its entry point is [New].
package passstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/fpm"
)

// Events is what is needed of [eventstore.Store].
type Events interface {
	Append(ctx context.Context, rows []event.Row) error
	Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error
	Delete(ctx context.Context, filter string) error
}

// Keep says which passes become rows.
type Keep string

// What may be kept. "" is KeepAll.
const (
	KeepAll    Keep = "all"
	KeepBursts Keep = "bursts"
	KeepNone   Keep = "off"
)

// Options of a Store.
type Options struct {
	Events    Events
	Keep      Keep
	Retention time.Duration // of rows outside bursts; 0: an hour
	State     string        // file of the list of bursts; "" keeps it in memory, and nothing is written
	// BurstsPerHour bounds those that start by themselves; 0: 12.
	BurstsPerHour int
	Recent        int              // passes in memory; 0: 262,144 (30 MB)
	Now           func() time.Time // nil: time.Now
	Logger        *slog.Logger     // nil: silent
}

// Store keeps passes. Its methods may be called from several goroutines, but Write from one.
type Store struct {
	events Events
	recent *recent
	now    func() time.Time
	log    *slog.Logger

	mu        sync.Mutex
	keep      Keep
	retention time.Duration
	bursts    bursts
	waiting   []waiting // rows on their way into the event store
	wake      chan struct{}
	drops     map[string]int64
	stored    int64
	notice    string // why expired rows stay, "" when they do not
}

// waiting is a row that is to be stored.
type waiting struct {
	row   Row
	burst string
}

// maxWaiting is how many rows wait for the event store: about 20 s of 64 busy ranks.
const maxWaiting = 65536

// batchRows is how many are handed over at once.
const batchRows = 2048

// New makes a store and reads the list of bursts.
func New(o Options) (*Store, error) {
	s := &Store{events: o.Events, now: o.Now, log: o.Logger, wake: make(chan struct{}, 1), drops: map[string]int64{}}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.recent = newRecent(strconv.FormatInt(s.now().UnixNano(), 36), cmp.Or(o.Recent, defaultMost))
	s.Configure(o.Keep, o.Retention, o.BurstsPerHour)
	return s, s.bursts.load(o.State)
}

// Configure changes what is kept from now on.
func (s *Store) Configure(k Keep, retention time.Duration, perHour int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep, s.retention, s.bursts.perHour = cmp.Or(k, KeepAll), cmp.Or(retention, time.Hour), cmp.Or(perHour, 12)
}

// Write takes rows in the order in which they came. It never waits; the rows may be reused after the call.
func (s *Store) Write(rows []Row) {
	if len(rows) == 0 {
		return
	}
	s.recent.add(rows)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		if s.keep == KeepAll {
			s.queue(r, "")
		}
		if s.keep != KeepNone {
			for _, b := range s.bursts.running {
				if (b.Engine == "" || b.Engine == r.Engine) && r.Time >= b.From && r.Time <= b.To {
					s.queue(r, b.ID)
				}
			}
		}
	}
}

// queue hands a row to the goroutine of Run. The lock is held.
func (s *Store) queue(r *Row, burst string) {
	if len(s.waiting) >= maxWaiting {
		s.drops["rows_queue_full"]++
		return
	}
	s.waiting = append(s.waiting, waiting{*r, burst})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flushEvery is how long rows are collected: fewer, larger batches cost less.
const flushEvery = 500 * time.Millisecond

// Run stores what waits and removes what is too old, until ctx ends; then it stores the rest.
func (s *Store) Run(ctx context.Context) {
	expire := time.NewTicker(time.Minute)
	defer expire.Stop()
	var expired time.Time
	for {
		select {
		case <-ctx.Done():
			last, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			s.flush(last)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.bursts.end(s.now().UnixNano())
			s.saveBursts()
			return
		case <-s.wake:
			select {
			case <-ctx.Done():
			case <-time.After(flushEvery):
			}
			s.flush(ctx)
		case <-expire.C:
			now := s.now()
			s.mu.Lock()
			if s.bursts.end(now.UnixNano()) {
				s.saveBursts()
			}
			every := max(s.retention/4, 5*time.Minute)
			due := (s.stored > 0 || expired.IsZero()) && now.Sub(expired) >= every // also what a former process left
			s.mu.Unlock()
			if due {
				expired = now
				if err := s.Expire(ctx); err != nil && ctx.Err() == nil {
					s.log.Warn("passes beyond their retention were not removed", "err", err)
				}
			}
		}
	}
}

// flush stores what waits.
func (s *Store) flush(ctx context.Context) {
	s.mu.Lock()
	list := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	rows := make([]event.Row, 0, min(len(list), batchRows))
	var fields []event.Field
	for len(list) > 0 {
		n := min(len(list), batchRows)
		rows, fields = rows[:0], fields[:0]
		for i := range list[:n] {
			var r event.Row
			r, fields = list[i].row.appendEvent(fields, list[i].burst)
			rows = append(rows, r)
		}
		err := s.events.Append(ctx, rows)
		s.count(list[:n], err)
		list = list[n:]
	}
}

// count takes note of what became of rows.
func (s *Store) count(list []waiting, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := 0
	var rejected *eventstore.RejectedError
	switch {
	case errors.As(err, &rejected):
		lost = rejected.Rows // the store has counted them
	case err != nil:
		lost = len(list)
		s.drops["not_stored"] += int64(lost)
		s.log.Warn("passes were not stored", "rows", len(list), "err", err)
	}
	s.stored += int64(len(list) - lost)
	if err == nil {
		for i := range list {
			if list[i].burst != "" {
				s.bursts.count(list[i].burst)
			}
		}
	}
}

// expiredFilter is LogsQL of the rows that are older than their retention.
func expiredFilter(before time.Time) string {
	return `{row="pass"} !burst:* _time:<` + before.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Expire removes rows outside bursts that are older than the retention.
func (s *Store) Expire(ctx context.Context) error {
	s.mu.Lock()
	before := s.now().Add(-s.retention)
	s.mu.Unlock()
	err := s.events.Delete(ctx, expiredFilter(before))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = ""
	if errors.Is(err, eventstore.ErrNoDelete) { // a server of somebody else's: its own retention counts
		s.notice = err.Error()
		return nil
	}
	return err
}

// After returns passes in memory, of one engine ("" for all), that came after a cursor; see [Page].
func (s *Store) After(cursor, engine string, limit int) (Page, error) {
	return s.recent.after(cursor, engine, limit)
}

// Query returns stored passes by time, of one engine ("" for all), from and to in ns since 1970 (0: open); the newest
// when there are more than the limit. A pass that is stored twice, in a burst too, counts once.
func (s *Store) Query(ctx context.Context, from, to int64, engine string, limit int) (rows []Row, more bool, err error) {
	q := `{row="pass"}`
	if engine != "" {
		k, err := s.worker(engine)
		if err != nil {
			return nil, false, err
		}
		q += k
	}
	seen := map[identity]int{}
	// Those of bursts come twice.
	err = s.events.Query(ctx, eventstore.Query{LogsQL: q, From: from, To: to, Limit: 2*limit + 1}, func(fields []event.Field) error {
		var r Row
		if _, err := r.read(fields, parseTime); err != nil {
			return err
		}
		id := identity{r.Key, r.Counter, r.Time}
		if _, twice := seen[id]; twice {
			return nil
		}
		seen[id] = len(rows)
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Counter, b.Counter)) })
	if len(rows) > limit {
		return rows[len(rows)-limit:], true, nil
	}
	return rows, false, nil
}

// identity is what makes two rows the same pass.
type identity struct {
	key     fpm.Key
	counter uint64
	time    int64
}

func parseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixNano(), err
}

// worker is LogsQL of the rows of an engine.
func (s *Store) worker(engine string) (string, error) {
	parts := splitEngine(engine)
	if parts == nil {
		return "", fmt.Errorf("%q is no engine: it is namespace/component/worker", engine)
	}
	worker := "worker_id"
	if n, ok := cutPublisher(parts[2]); ok {
		worker, parts[2] = "publisher_id", n
	}
	out := ""
	for i, name := range []string{"namespace", "component", worker} {
		out += " " + name + ":=" + strconv.Quote(parts[i])
	}
	if worker == "worker_id" && !digits(parts[2]) { // one without an id is told by where it is heard
		out = " namespace:=" + strconv.Quote(parts[0]) + " component:=" + strconv.Quote(parts[1]) +
			" (worker_id:=" + strconv.Quote(parts[2]) + " or pass_source:=" + strconv.Quote(parts[2]) + ")"
	}
	return out, nil
}

// Stats is how the store is.
type Stats struct {
	Keep       Keep
	Retention  time.Duration
	Stored     int64 // rows since the start, those of bursts among them
	Recent     int
	RecentSpan time.Duration
}

// Stats says how the store is.
func (s *Store) Stats() Stats {
	n, span := s.recent.span()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.keep, s.retention, s.stored, n, span}
}

// Drop is a number of rows that were not kept.
type Drop struct {
	Reason string
	Count  int64
}

// Drops counts what was not kept, by reason in order.
func (s *Store) Drops() []Drop {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Drop
	for reason, n := range s.drops {
		out = append(out, Drop{reason, n})
	}
	slices.SortFunc(out, func(a, b Drop) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// Notice says why rows stay beyond their retention, "" when they do not.
func (s *Store) Notice() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notice
}
