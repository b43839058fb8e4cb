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
	stretches []stretch // of memory, that bursts want stored
	wake      chan struct{}
	drops     map[string]int64
	stored    int64
	failing   bool   // the last rows were not stored
	notice    string // why expired rows stay, "" when they do not

	// Of flush alone: used again and again.
	spare  []waiting
	rows   []event.Row
	fields []event.Field
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

// maxSpare is how large a buffer is kept for those that wait: more than 64 busy ranks need, less than a jam.
const maxSpare = 4 * batchRows

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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.add(rows) // under the lock: a burst that begins meanwhile finds a row in memory or here, never in both
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
	s.awake()
}

// awake lets Run flush. The lock is held.
func (s *Store) awake() {
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
	began := s.now()
	expiring := make(chan struct{}, 1) // held by an expiry: it waits for the event store, and rows come meanwhile
	for {
		select {
		case <-ctx.Done():
			last, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			s.flush(last)
			expiring <- struct{}{}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.bursts.end(s.now().UnixNano())
			s.saveBursts()
			return
		case <-s.wake:
			select {
			case <-ctx.Done():
				continue // what waits is stored as the rest is, with the time for that
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
			left := now.Sub(began) <= s.retention+every // a former process may have left rows that grow too old
			due := (s.stored > 0 || left) && now.Sub(expired) >= every
			s.mu.Unlock()
			if !due {
				continue
			}
			select {
			case expiring <- struct{}{}:
				expired = now
				go func() {
					defer func() { <-expiring }()
					if err := s.Expire(ctx); err != nil && ctx.Err() == nil {
						s.log.Warn("passes beyond their retention were not removed", "err", err)
					}
				}()
			default: // the one before is not done
			}
		}
	}
}

// flush stores what waits, and what of memory bursts want.
func (s *Store) flush(ctx context.Context) {
	s.mu.Lock()
	list := s.waiting
	s.waiting = s.spare[:0]
	stretches := s.stretches
	s.stretches = nil
	s.mu.Unlock()
	for rest := list; len(rest) > 0; {
		n := min(len(rest), batchRows)
		s.store(ctx, rest[:n])
		rest = rest[n:]
	}
	clear(list) // its names may be gone
	if s.spare = list[:0]; cap(list) > maxSpare {
		s.spare = nil
	}
	for i := range stretches {
		s.copyOut(ctx, &stretches[i])
	}
}

// store hands rows to the event store.
func (s *Store) store(ctx context.Context, list []waiting) {
	s.rows, s.fields = s.rows[:0], s.fields[:0]
	for i := range list {
		var r event.Row
		r, s.fields = list[i].row.appendEvent(s.fields, list[i].burst)
		s.rows = append(s.rows, r)
	}
	s.count(list, s.events.Append(ctx, s.rows))
}

// copyOut stores a stretch of memory in batches. What memory lost meanwhile is counted.
func (s *Store) copyOut(ctx context.Context, x *stretch) {
	for x.next < x.end {
		rows, gone := s.recent.between(x, batchRows)
		if gone > 0 {
			s.mu.Lock()
			s.drops["burst_left_memory"] += gone
			s.mu.Unlock()
		}
		if len(rows) == 0 {
			continue
		}
		list := make([]waiting, len(rows))
		for i := range rows {
			list[i] = waiting{rows[i], x.burst}
		}
		s.store(ctx, list)
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
		if !s.failing { // it is counted each time
			s.log.Warn("passes are not stored", "rows", len(list), "err", err)
		}
	}
	s.failing = lost == len(list) && rejected == nil && err != nil
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

// Expire removes rows outside bursts that are older than the retention; it waits as [eventstore.Store.Delete] does.
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
	q := `{row="pass"} dp_rank:*` // the first row of a block leaves an empty one behind when it is removed
	if engine != "" {
		k, err := s.worker(engine)
		if err != nil {
			return nil, false, err
		}
		q += k
	}
	// Those of bursts come twice, of several bursts more often.
	for most := 2*limit + 1; ; most *= 2 {
		n, seen := 0, map[identity]struct{}{}
		rows = rows[:0]
		err = s.events.Query(ctx, eventstore.Query{LogsQL: q, From: from, To: to, Limit: most}, func(fields []event.Field) error {
			n++
			var r Row
			if _, err := r.read(fields, parseTime); err != nil {
				return err
			}
			id := identity{r.Key, r.Counter, r.Time}
			if _, twice := seen[id]; !twice {
				seen[id] = struct{}{}
				rows = append(rows, r)
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		if n < most || len(rows) > limit {
			break
		}
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
