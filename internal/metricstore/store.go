// Package metricstore keeps the metrics: a Prometheus TSDB that is opened here, locked, written through
// a guard that counts every sample it cannot keep, queried under any spelling of a name, and read back
// from other people's directories without touching them. Its entry point is [Open]; [OpenArchive] opens
// a directory to read only, and [Reader] answers questions about signals and engines over either.
package metricstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/rollscope/rollscope/internal/signal"
)

// Defaults of [Options].
const (
	DefaultRetention        = 15 * 24 * time.Hour
	DefaultOutOfOrderWindow = 10 * time.Minute
	DefaultFutureLimit      = 10 * time.Minute
	DefaultBacklogSamples   = 1_000_000
	DefaultSnapshotEvery    = 5 * time.Minute
)

// format is what DIR/rollscope/FORMAT holds: the version of everything below DIR/rollscope.
// A program that finds a higher number refuses the directory rather than misreading it.
const format = 1

// Options configures [Open]. Dir is required; zero values of the others mean their defaults.
type Options struct {
	Dir              string        // a Prometheus data directory, made if missing
	Retention        time.Duration // 0: 15 days
	RetentionBytes   int64         // 0: no limit by size
	OutOfOrderWindow time.Duration // how much older than a series' newest sample one may be; 0: 10 minutes; negative: none
	FutureLimit      time.Duration // a sample this far ahead of the clock is refused, since it would block its series; 0: 10 minutes
	BacklogSamples   int           // samples kept in memory while the disk refuses writes; 0: one million (some 80 MB)

	SnapshotTo    string        // directory to copy into while running, "" for none
	SnapshotEvery time.Duration // 0: 5 minutes

	QueryTimeout     time.Duration // 0: 2 minutes
	QueryConcurrency int           // 0: 20
	QueryMaxSamples  int           // 0: 50 million
	LookbackDelta    time.Duration // 0: 5 minutes

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Catalog    *signal.Catalog
	Now        func() time.Time
	Mounts     string // mountinfo text; "" = /proc/self/mountinfo
}

// withDefaults returns o with every zero value replaced.
func (o Options) withDefaults() Options {
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.OutOfOrderWindow == 0 {
		o.OutOfOrderWindow = DefaultOutOfOrderWindow
	}
	o.OutOfOrderWindow = max(o.OutOfOrderWindow, 0)
	if o.FutureLimit == 0 {
		o.FutureLimit = DefaultFutureLimit
	}
	if o.BacklogSamples == 0 {
		o.BacklogSamples = DefaultBacklogSamples
	}
	if o.SnapshotEvery == 0 {
		o.SnapshotEvery = DefaultSnapshotEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "metricstore")
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Catalog == nil {
		o.Catalog = signal.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Notice is something about the store that its owner should know.
type Notice struct {
	Code    string // stable: "filesystem", "clock_step", "storage_unwritable", "storage_gap", "snapshot_failed", "damaged_block", ...
	Message string // one sentence
	Where   string // mount, target, file
	Hint    string // what to do
}

// Store is an open data directory that this process records into. Its methods may be called from any
// goroutine.
type Store struct {
	opts    Options
	log     *slog.Logger
	lock    *dirLock
	reg     *undoRegisterer // what Close takes off the registry again
	drops   *dropCounter
	notices noticeBoard
	engine  *promql.Engine
	parser  parser.Parser

	current     atomic.Pointer[openDB] // replaced when the database is opened again after the disk refused writes
	guard       *guard
	remote      *remote.Storage
	fanout      storage.Storage
	names       *blockNames
	scraper     scraperRef
	remoteReads atomic.Bool // data may also come from elsewhere, under names we cannot know
	query       storage.SampleAndChunkQueryable

	stop     context.CancelFunc
	loops    sync.WaitGroup
	closing  sync.Once
	closeErr error
}

// Open locks dir, notes what its file system means for it, and opens the database. A directory that
// another process holds is refused with a [*LockedError], and nothing is written then. ctx bounds the
// opening, not the store's life; call [Store.Close] to end that.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, errors.New("metricstore: no data directory given: set --storage.tsdb.path")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("metricstore: data directory %s: %w", o.Dir, err)
	}
	o.Dir = dir
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir, o.Now, o.Logger)
	if err != nil {
		return nil, err
	}
	reg := &undoRegisterer{to: o.Registerer}
	s := &Store{
		opts: o, log: o.Logger, lock: lock, reg: reg,
		drops:  newDropCounter(reg),
		names:  newBlockNames(),
		parser: parser.NewParser(parser.Options{}),
	}
	if err := s.open(); err != nil {
		reg.undo()
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

// open does what Open does once the directory is ours.
func (s *Store) open() error {
	o := s.opts
	if err := checkFormat(filepath.Join(o.Dir, "rollscope", "FORMAT")); err != nil {
		return err
	}
	mounts := o.Mounts
	if mounts == "" {
		text, err := os.ReadFile("/proc/self/mountinfo") // absent outside Linux: no notice then
		if err == nil {
			mounts = string(text)
		}
	}
	if n, ok := FilesystemNotice(o.Dir, mounts, os.Getenv); ok {
		s.notices.put(n) // the program prints the notices there are at its start
	}
	db, err := s.openDB()
	if err != nil {
		return err
	}
	s.current.Store(db)

	s.engine = newEngine(s.log, s.reg, s.parser, engineLimits{o.QueryTimeout, o.QueryConcurrency, o.QueryMaxSamples, o.LookbackDelta})
	s.guard = newGuard(s)
	s.remote = remote.NewStorage(s.log.With("component", "remote"), s.reg, s.startTime, o.Dir, time.Minute, &s.scraper, false)
	db.db.SetWriteNotified(s.remote)
	s.fanout = storage.NewFanout(s.log, localStorage{s}, s.remote)
	s.query = newAnySpelling(s.fanout, s, o.Catalog)

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.loops.Go(func() { s.maintain(ctx) })
	if o.SnapshotTo != "" {
		s.loops.Go(func() { s.snapshotLoop(ctx) })
	}
	return nil
}

// tsdbOptions are the options of the database, as cmd/prometheus forms them.
func (s *Store) tsdbOptions(names *nameSet) *tsdb.Options {
	o := tsdb.DefaultOptions()
	o.WALCompression = compression.Snappy // Debian's Prometheus 2.42 reads it, zstd it does not
	o.RetentionDuration = s.opts.Retention.Milliseconds()
	o.MaxBytes = s.opts.RetentionBytes
	o.OutOfOrderTimeWindow = s.opts.OutOfOrderWindow.Milliseconds()
	// Levels of compaction up to a tenth of the retention: with blocks of two hours only, a query over a
	// week opens 84 of them and takes three times as long.
	o.MaxBlockDuration = max(o.MinBlockDuration, min(31*24*time.Hour, s.opts.Retention/10).Milliseconds())
	o.EnableDelayedCompaction = false
	o.NoLockfile = s.lock.lease // the file system grants no locks: our lease stands in
	o.SeriesLifecycleCallback = names
	// The minute loop is ours (maintain): in the library it runs on a goroutine where a failed write of a
	// chunk panics, and would end the process on a stale file handle.
	o.BlockReloadInterval = 100 * 365 * 24 * time.Hour
	return o
}

// Whoever looks whether the directory is in use holds DIR/lock for a moment (see heldByPrometheus): the database
// is asked lookedAt times for it.
const (
	lookedAt  = 20
	lookPause = 50 * time.Millisecond
)

// openDB opens the database in the locked directory.
func (s *Store) openDB() (*openDB, error) {
	for try := 1; ; try++ {
		h := &openDB{names: newNameSet(), reg: &undoRegisterer{to: s.opts.Registerer}}
		db, err := tsdb.Open(s.opts.Dir, s.log.With("component", "tsdb"), h.reg, s.tsdbOptions(h.names), nil)
		if err == nil {
			h.db = db
			return h, nil
		}
		h.reg.undo()
		if try < lookedAt && errors.Is(err, syscall.EWOULDBLOCK) {
			time.Sleep(lookPause)
			continue
		}
		return nil, fmt.Errorf("metricstore: opening %s: %w", s.opts.Dir, err)
	}
}

// Dir returns the absolute data directory.
func (s *Store) Dir() string { return s.opts.Dir }

// Appendable takes samples, for the scrape and rule managers. A sample that cannot be kept is counted in
// rollscope_dropped_total; while the disk refuses writes, batches wait in memory and Commit succeeds.
func (s *Store) Appendable() storage.AppendableV2 { return s.fanout }

// Queryable reads local and remote-read data under any spelling of a metric's name.
func (s *Store) Queryable() storage.SampleAndChunkQueryable { return s.query }

// Engine evaluates PromQL; use it with [Store.Queryable].
func (s *Store) Engine() promql.QueryEngine { return s.engine }

// PromEngine is Engine with the concrete type, which Prometheus's HTTP API asks for.
func (s *Store) PromEngine() *promql.Engine { return s.engine }

// Parser is the PromQL parser that Engine uses.
func (s *Store) Parser() parser.Parser { return s.parser }

// DB returns the open database. Do not keep it: it is replaced when the directory had to be opened again.
func (s *Store) DB() *tsdb.DB { return s.current.Load().db }

// Storage is the whole as a [storage.Storage], without the spelling layer: for parts of Prometheus that
// insist on the type.
func (s *Store) Storage() storage.Storage { return s.fanout }

// ExemplarQueryable reads exemplars of the current database.
func (s *Store) ExemplarQueryable() storage.ExemplarQueryable { return exemplars{s} }

// SetScrapeManager lets remote write send the metadata that scrapes carry. Call it before ApplyConfig.
func (s *Store) SetScrapeManager(m *scrape.Manager) { s.scraper.m.Store(m) }

// ApplyConfig takes remote_write, remote_read and storage.tsdb from a loaded configuration. Where that
// says nothing of retention or out-of-order samples, the store's options stay in force.
func (s *Store) ApplyConfig(cfg *promconfig.Config) error {
	local := *cfg
	t := promconfig.TSDBConfig{}
	if cfg.StorageConfig.TSDBConfig != nil {
		t = *cfg.StorageConfig.TSDBConfig
	}
	if t.OutOfOrderTimeWindow == 0 {
		t.OutOfOrderTimeWindow = s.opts.OutOfOrderWindow.Milliseconds()
	}
	if t.Retention != nil && *t.Retention == (promconfig.TSDBRetentionConfig{}) {
		t.Retention = nil // the zero value is "not said", and would switch retention off
	}
	local.StorageConfig.TSDBConfig = &t
	if err := s.current.Load().db.ApplyConfig(&local); err != nil {
		return fmt.Errorf("metricstore: applying storage.tsdb: %w", err)
	}
	if err := s.remote.ApplyConfig(cfg); err != nil {
		return fmt.Errorf("metricstore: applying remote_write and remote_read: %w", err)
	}
	s.remoteReads.Store(len(cfg.RemoteReadConfigs) > 0)
	return nil
}

// Notices lists what the owner of the store should know, oldest first.
func (s *Store) Notices() []Notice { return s.notices.list() }

// Drops lists what was not kept since the store was opened.
func (s *Store) Drops() []Drop { return s.drops.list() }

// Dropped counts what a part beside the store did not keep, so that it stands in the same list and metric.
func (s *Store) Dropped(source, reason string, n int) { s.drops.add(source, reason, n) }

// Close stops the loops, writes what waits in memory if the disk allows, closes the database and gives
// the lock back. Queries that still run are waited for, some seconds long.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.stop()
		s.loops.Wait()
		// Order: first the backlog, which writes to the database; then remote write, which reads its WAL;
		// then the database; last the lock, so that nobody opens the directory while we still write.
		s.guard.close()
		s.closeErr = errors.Join(s.remote.Close(), s.current.Load().close(5*time.Second), s.lock.release())
		s.reg.undo()
	})
	return s.closeErr
}

// startTime is where the stored data begins, in Unix milliseconds; remote read asks for older only.
func (s *Store) startTime() (int64, error) { return s.current.Load().db.StartTime() }

// maintain does each minute what the database would do by itself: move full chunks out of memory and
// see to compaction and retention, but only while the disk takes writes.
func (s *Store) maintain(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.maintainOnce(ctx, n%10 == 0)
	}
}

func (s *Store) maintainOnce(ctx context.Context, compact bool) {
	if s.guard.suspended() {
		return
	}
	h := s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return
	}
	defer release()
	if err := noPanic(func() error { h.db.ForceHeadMMap(); return nil }); err != nil {
		s.guard.suspend(fmt.Errorf("writing chunks_head: %w", err))
		return
	}
	if !compact {
		return
	}
	if err := h.db.Compact(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("compaction failed, it is tried again", "err", err)
	}
}

// checkFormat reads the FORMAT file, and writes it if there is none.
func checkFormat(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return writeWhole(path, fmt.Appendf(nil, "%d\n", format))
	}
	if err != nil {
		return fmt.Errorf("metricstore: reading the format version: %w", err)
	}
	var v int
	if _, err := fmt.Sscan(string(b), &v); err != nil {
		return fmt.Errorf("metricstore: %s holds %q, want a number: is it a Rollscope directory?", path, b)
	}
	if v > format {
		return fmt.Errorf("metricstore: %s is %d, this program knows up to %d: use a newer rollscope", path, v, format)
	}
	return nil
}

// writeWhole makes a file that is there with all its bytes or not at all, also after a kill.
func writeWhole(path string, b []byte) error {
	tmp := path + ".tmp"
	err := os.WriteFile(tmp, b, 0o644)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	return err
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// noPanic turns a panic of the library into an error: it panics where a write of a chunk fails.
func noPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	return f()
}

// scraperRef hands remote write the scrape manager once there is one.
type scraperRef struct {
	m atomic.Pointer[scrape.Manager]
}

// Get implements remote.ReadyScrapeManager.
func (r *scraperRef) Get() (*scrape.Manager, error) {
	if m := r.m.Load(); m != nil {
		return m, nil
	}
	return nil, errors.New("metricstore: no scrape manager yet")
}

// engineLimits bound what queries may take; zero values mean the defaults.
type engineLimits struct {
	timeout     time.Duration
	concurrency int
	samples     int
	lookback    time.Duration
}

// newEngine makes the PromQL engine, as cmd/prometheus configures it.
func newEngine(log *slog.Logger, reg prometheus.Registerer, p parser.Parser, l engineLimits) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		Logger:               log,
		Reg:                  reg,
		MaxSamples:           orDefault(l.samples, 50_000_000),
		Timeout:              orDefault(l.timeout, 2*time.Minute),
		LookbackDelta:        orDefault(l.lookback, 5*time.Minute),
		ActiveQueryTracker:   newQueryLimit(orDefault(l.concurrency, 20)),
		EnableAtModifier:     true,
		EnableNegativeOffset: true,
		// Without an explicit step a subquery takes one a minute, as Prometheus's default evaluation interval.
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Parser:                   p,
	})
}

// queryLimit bounds the queries that run at once. It implements promql.QueryTracker without the file
// that Prometheus keeps beside the data.
type queryLimit struct{ slots chan struct{} }

func newQueryLimit(n int) *queryLimit { return &queryLimit{make(chan struct{}, n)} }

func (q *queryLimit) GetMaxConcurrent() int { return cap(q.slots) }
func (q *queryLimit) Delete(int)            { <-q.slots }
func (q *queryLimit) Close() error          { return nil }
func (q *queryLimit) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case q.slots <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
