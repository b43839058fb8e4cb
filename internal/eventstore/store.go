// Package eventstore keeps spans, requests, log records and forward passes in VictoriaLogs: in a process
// of our own binary that it starts and watches, or at a URL. Its entry point is [Open].
//
// What [Store.Append] accepted lies in a spool on disk until the store is known to have it in files of
// its own, so it survives the kill of either process or both. FORMAT.md says how.
package eventstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/event"
)

// Options are the choices of [Open].
type Options struct {
	Dir string // DIR/rollscope: events/, events-damaged/ and spool/ are made in it
	URL string // of a VictoriaLogs, single or cluster, instead of a process of our own
	// Command makes the process that runs package eventstore/child with the given arguments. It is
	// started with the first need: an Append, a Query, or data that are there. Required without URL.
	Command func(ctx context.Context, args ...string) *exec.Cmd

	Retention     time.Duration // 0: 30 days; rows are removed by the day
	MaxBytes      int64         // oldest days are removed beyond it, the newest two always stay; 0: no bound
	MinFreeBytes  int64         // free disk below which rows are refused; 0: 256 MiB, negative: none
	SpoolBytes    int64         // how much may wait before Append blocks; 0: 1 GiB
	MemoryBytes   int64         // bound of the process's caches; 0: 256 MiB
	Fsync         bool          // Append returns after a sync: survives the loss of power too
	FlushInterval time.Duration // how often the spool is emptied; 0: 30 s. Rows are queryable long before
	// SettleAfter is how long after rows were sent to the server at URL they are taken to lie in its files, for
	// it does not say; 0: a minute. Its own promise is 5 s, unless it was started with another one.
	SettleAfter time.Duration
	Scratch     string // of OpenReadOnly: where its copy is made; "": the system's temporary directory

	Now        func() time.Time      // nil: time.Now
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: no metrics
}

// futureSlack is how far in the future a row may be.
const futureSlack = 24 * time.Hour

// Conditions of the store, as [State.State] says them.
const (
	StateOK       = "ok"
	StateStarting = "starting"
	StateReadOnly = "read_only"
	StateDown     = "down"
	StateOff      = "off" // nothing was ever written or asked
)

// State is how the store is.
type State struct {
	State      string
	Reason     string               // in words, "" when all is well
	Rows       map[event.Kind]int64 // accepted since the start
	DiskBytes  int64                // of the events on disk; 0 for a URL
	SpoolBytes int64
	Waiting    int64    // rows accepted and not yet sent to the store
	Damaged    []string // what was set aside, in words
	Restarts   int64    // of the process, since the start
	Retention  time.Duration
}

// Store is the event store. Its methods may be called from several goroutines at once.
type Store struct {
	opts   Options
	spool  *spool
	parts  *parts
	sup    *supervisor // nil with a URL
	remote *client     // nil without
	drain  *drainer
	space  space
	prior  bool // events were there when it was opened

	deleting chan struct{} // held by whoever removes rows
	deletion string        // the server's name for the last removal

	readOnly   bool          // opened to be read
	completing chan struct{} // held by whoever waits for, or changes, whole
	whole      bool          // what was in the spool can be found
	nothing    bool          // and there was nothing to read
	scratch    string        // removed by Close
	diskDir    string        // what State measures

	mu    sync.Mutex
	rows  map[event.Kind]int64
	drops map[string]int64
	disk  int64
	diskT time.Time

	closed  atomic.Bool
	running atomic.Bool
}

func (o *Options) defaults() error {
	if o.Dir == "" {
		return errors.New("the event store needs a directory")
	}
	if o.URL == "" && o.Command == nil {
		return errors.New("the event store needs a URL or the command of its process")
	}
	if o.Retention == 0 {
		o.Retention = 30 * 24 * time.Hour
	}
	if o.Retention < 24*time.Hour {
		return fmt.Errorf("the retention of events is %v; it is by the day, at least 24h", o.Retention)
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = 256 << 20
	}
	if o.SpoolBytes == 0 {
		o.SpoolBytes = 1 << 30
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.SettleAfter == 0 {
		o.SettleAfter = time.Minute
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Open reads the spool. Nothing is sent and nothing can be asked until [Store.Run] runs. The directory's
// lock is the caller's.
func Open(_ context.Context, o Options) (*Store, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	return open(o, filepath.Join(o.Dir, "spool"))
}

func open(o Options, spoolDir string) (*Store, error) {
	o.Logger = o.Logger.With("component", "eventstore")
	s := &Store{opts: o, rows: map[event.Kind]int64{}, drops: map[string]int64{}, diskDir: filepath.Join(o.Dir, "events"), deleting: make(chan struct{}, 1)}
	s.space = space{dir: o.Dir, need: o.MinFreeBytes, free: freeBytes}
	events := filepath.Join(o.Dir, "events")
	s.parts = openParts(events, filepath.Join(o.Dir, "events-damaged"), o.Logger)
	sp, damage, err := openSpool(spoolDir, o.Fsync, o.Logger)
	if err != nil {
		return nil, err
	}
	s.spool = sp
	s.noteDamage(damage)
	if o.URL != "" {
		base := strings.TrimRight(o.URL, "/")
		zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		s.remote = &client{base: base, http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, generation: 1, remote: true, zip: zip}
	} else {
		future := futureSlack + 48*time.Hour
		if o.Retention == century {
			future = century // whatever is there stays
		}
		minFree := max(o.MinFreeBytes/2, 0) // what was accepted can still be stored
		s.sup = newSupervisor(o.Dir, s.parts, o.Command,
			childArgs(events, min(o.Retention+24*time.Hour, century), future, minFree, o.MemoryBytes, max(2*o.FlushInterval, time.Second)), o.Logger)
		if found, _ := os.ReadDir(filepath.Join(events, "partitions")); len(found) > 0 {
			s.prior = true
		}
	}
	s.drain = newDrainer(s)
	if first, last, _ := sp.bounds(); first <= last || s.prior {
		s.need()
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("metrics of the event store: %w", err)
		}
	}
	return s, nil
}

func (s *Store) need() {
	if s.sup != nil {
		s.sup.need()
	}
}

func (s *Store) noteDamage(damage []spoolDamage) {
	for _, d := range damage {
		s.opts.Logger.Error("the spool of events is damaged; what can be read is kept", "file", d.file, "offset", d.offset, "reason", d.reason, "rows_lost", d.lost)
		s.drop(lostSpool, max(int64(d.lost), 1))
	}
}

func (s *Store) drop(reason string, n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops[reason] += n
}

// Run supervises the process and sends what is in the spool, until ctx ends; then it ends the process in
// good order. It may be called once.
func (s *Store) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("the event store runs already")
	}
	// The process goes last: the drainer may be in the middle of a request.
	supCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var sup, rest sync.WaitGroup
	if s.sup != nil {
		sup.Go(func() { s.sup.run(supCtx) })
	}
	rest.Go(func() { s.drain.run(ctx) })
	rest.Go(func() { s.keep(ctx) })
	rest.Wait()
	stop()
	sup.Wait()
	if s.sup != nil && s.sup.clean && s.drain.whole(s.sup.generation) {
		// Everything that was sent lies in files now.
		if err := s.drain.confirm(s.drain.sent(), 0); err != nil {
			s.opts.Logger.Warn("the spool of events cannot be emptied", "reason", err)
		}
	}
	return nil
}

// keep looks after the disk.
func (s *Store) keep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		enough := s.space.look() == nil
		if enough {
			if err := s.spool.repair(); err != nil {
				s.opts.Logger.Warn("the spool of events cannot be written", "reason", err)
			}
		}
		if n%10 == 0 && s.opts.MaxBytes > 0 && s.sup != nil && !s.readOnly {
			s.bySize(ctx)
		}
	}
}

// Close gives up the directory. Run must have ended.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	if s.opts.Registerer != nil {
		s.opts.Registerer.Unregister(collector{s})
	}
	if s.remote != nil {
		s.remote.http.CloseIdleConnections()
	}
	err := s.spool.close()
	if s.scratch != "" {
		err = errors.Join(err, os.RemoveAll(s.scratch))
	}
	return err
}

// client waits for a server that answers.
func (s *Store) client(ctx context.Context) (*client, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if s.remote != nil {
		return s.remote, nil
	}
	return s.sup.client(ctx)
}

// linesPool holds the buffers of chunks.
var linesPool = sync.Pool{New: func() any { b := make([]byte, 0, maxRecordLines+64<<10); return &b }}

func putLines(b []byte) {
	if cap(b) <= 4*maxRecordLines {
		b = b[:0]
		linesPool.Put(&b)
	}
}

// Append writes rows. When it returns nil they are as durable as the options say, and will be found by
// queries soon. Rows that cannot be stored are refused with a [*RejectedError] while the others are
// stored. While more waits than the options allow it blocks until ctx ends, and then returns [ErrFull].
// With [ErrReadOnly] nothing was stored. The rows may be reused after the call.
func (s *Store) Append(ctx context.Context, rows []event.Row) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if s.readOnly {
		return fmt.Errorf("%w: it was opened to be read", ErrReadOnly)
	}
	if len(rows) == 0 {
		return nil
	}
	if err := s.space.ok(); err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if err := s.room(ctx); err != nil {
		return err
	}
	now := s.opts.Now()
	received := stamp(now)
	oldest, newest := now.Add(-s.opts.Retention).UnixNano(), now.Add(futureSlack).UnixNano()
	oldest = max(oldest, 1e18) // shorter numbers are not read as nanoseconds
	var chunks []chunk
	var cur chunk
	var rejected map[string]int
	var at []int
	kinds := map[event.Kind]int64{}
	var renames int64
	for i := range rows {
		r := &rows[i]
		why := ""
		switch {
		case r.Time < oldest:
			why = TooOld
		case r.Time > newest:
			why = TooNew
		case r.Kind == "":
			why = Unnamed
		case len(r.Fields) > maxFields:
			why = TooMany
		case size(r) > maxRowBytes:
			why = TooLarge
		}
		if why != "" {
			if rejected == nil {
				rejected = map[string]int{}
			}
			rejected[why]++
			at = append(at, i)
			continue
		}
		for j := range r.Fields {
			if renamed(r.Fields[j].Name) {
				renames++
			}
		}
		if cur.lines == nil {
			cur = chunk{lines: *linesPool.Get().(*[]byte), minT: r.Time, maxT: r.Time}
		}
		cur.starts = append(cur.starts, len(cur.lines))
		cur.lines = appendRow(cur.lines, r, received)
		cur.minT, cur.maxT = min(cur.minT, r.Time), max(cur.maxT, r.Time)
		kinds[r.Kind]++
		if len(cur.lines) >= maxRecordLines {
			chunks, cur = append(chunks, cur), chunk{}
		}
	}
	if cur.lines != nil {
		chunks = append(chunks, cur)
	}
	if len(chunks) > 0 {
		s.need()
		if err := s.spool.append(chunks, s.drain.accept); err != nil {
			// The chunks are not reused: the error does not say how far they came.
			return fmt.Errorf("%w: the spool cannot be written: %w", ErrReadOnly, err)
		}
		s.drain.wake()
	}
	s.mu.Lock()
	for k, n := range kinds {
		s.rows[k] += n
	}
	for why, n := range rejected {
		s.drops[why] += int64(n)
	}
	if renames > 0 {
		s.drops[cutFields] += renames
	}
	s.mu.Unlock()
	if rejected == nil {
		return nil
	}
	e := &RejectedError{Reasons: rejected, At: at}
	for why, n := range rejected {
		e.Rows += n
		if most := rejected[e.Reason]; n > most || n == most && why < e.Reason {
			e.Reason = why
		}
	}
	return e
}

// room waits until the spool has room.
func (s *Store) room(ctx context.Context) error {
	for s.spool.size() > s.opts.SpoolBytes {
		s.drain.urge()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %d bytes wait: %w", ErrFull, s.spool.size(), context.Cause(ctx))
		}
	}
	return nil
}

// Flush returns nil when every query that begins later sees all rows that were appended before the call,
// whatever becomes of the process meanwhile or afterwards: what one had in memory alone, the next one is sent
// again before it is asked. It waits for that until ctx ends, and returns [ErrDown] when no process comes up.
// A server at a URL is not watched: what it loses when it is started anew is found out, and sent again, within
// a minute.
func (s *Store) Flush(ctx context.Context) error {
	if s.sup != nil && !s.sup.isNeeded() && !s.closed.Load() {
		return nil // nothing was ever written
	}
	target := s.drain.accepted()
	for {
		if err := s.drain.flush(ctx, target); err != nil {
			return err
		}
		c, err := s.client(ctx)
		if err != nil {
			return err
		}
		var lacks *incompleteError
		if err = s.drain.restored(ctx, c); err == nil {
			err = c.flush(ctx)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case c.remote:
			// A server may keep that path to itself: rows are visible after a second anyway.
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case errors.Is(err, ErrDown):
			s.sup.passed(ctx, c.generation)
		case errors.As(err, &lacks):
			select {
			case <-time.After(minBackoff): // it is tried again
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", err, context.Cause(ctx))
			}
		default:
			return err
		}
	}
}

// restoreWithin is how long a query waits for rows that are being sent again.
const restoreWithin = 30 * time.Second

// answering waits for a server that can answer for all rows that were ever visible, as [Store.Query] says.
func (s *Store) answering(ctx context.Context) (*client, error) {
	late, cancel := context.WithTimeoutCause(ctx, restoreWithin,
		fmt.Errorf("%w: rows that its process lost as it ended are sent again; ask again", ErrDown))
	defer cancel()
	for {
		c, err := s.client(ctx)
		if err != nil {
			return nil, err
		}
		err = s.drain.restored(late, c)
		var lacks *incompleteError
		switch {
		case err == nil, errors.As(err, &lacks):
			return c, nil // State says why rows are missing; the others can be read
		case late.Err() != nil || !errors.Is(err, ErrDown):
			return nil, err
		}
	}
}

// State says how the store is.
func (s *Store) State() State {
	st := State{State: StateOK, Damaged: s.parts.list(), SpoolBytes: s.spool.size(), Retention: s.opts.Retention, DiskBytes: s.diskBytes()}
	s.mu.Lock()
	st.Rows = maps.Clone(s.rows)
	s.mu.Unlock()
	st.Waiting = s.drain.waiting()
	spaceErr := s.space.ok()
	s.spool.mu.Lock()
	broken := s.spool.broken
	s.spool.mu.Unlock()
	if s.sup != nil {
		s.sup.mu.Lock()
		st.Restarts = s.sup.restarts
		ready, failures, reason, stopped := s.sup.current != nil, s.sup.failures, s.sup.reason, s.sup.stopped
		s.sup.mu.Unlock()
		needed := false
		select {
		case <-s.sup.needed:
			needed = true
		default:
		}
		switch {
		case stopped:
			st.State, st.Reason = StateDown, "it was stopped"
		case !needed:
			st.State = StateOff
		case !ready && failures > 1:
			st.State, st.Reason = StateDown, reason
		case !ready:
			st.State, st.Reason = StateStarting, reason
		}
	}
	if why := s.drain.trouble(); why != "" && st.State == StateOK {
		st.State, st.Reason = StateDown, why
	}
	switch {
	case s.readOnly:
		if s.nothing {
			st.State, st.Reason = StateOff, "no events are in "+filepath.Dir(s.diskDir)
		} else if st.State == StateOK || st.State == StateOff {
			st.State, st.Reason = StateReadOnly, "it was opened to be read"
		}
	case spaceErr != nil:
		st.State, st.Reason = StateReadOnly, spaceErr.Error()
	case broken != nil:
		st.State, st.Reason = StateReadOnly, "the spool cannot be written: "+broken.Error()
	case s.drain.storeFull():
		st.State, st.Reason = StateReadOnly, errStoreFull.Error()+"; rows wait in the spool"
	}
	return st
}

// Drops counts what was not kept, or not as it came, since the start.
func (s *Store) Drops() []Drop {
	var list []Drop
	s.mu.Lock()
	for reason, n := range s.drops {
		list = append(list, Drop{"events", reason, n})
	}
	s.mu.Unlock()
	if count, rows := s.parts.numbers(); count > 0 {
		list = append(list, Drop{"events", "damaged_part", max(rows, count)})
	}
	sortDrops(list)
	return list
}
