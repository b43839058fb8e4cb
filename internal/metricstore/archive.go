package metricstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/rollscope/rollscope/internal/signal"
)

// ArchiveOptions configures [OpenArchive]. Dir is required.
type ArchiveOptions struct {
	Dir     string // a data directory that Rollscope or Prometheus wrote, or is writing
	TempDir string // where the copy of the write-ahead log is replayed; "" = os.TempDir()

	QueryTimeout     time.Duration // 0: 2 minutes
	QueryConcurrency int           // 0: 20
	QueryMaxSamples  int           // 0: 50 million
	LookbackDelta    time.Duration // 0: 5 minutes

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Catalog    *signal.Catalog
}

// Archive is somebody's data directory, read in place: nothing in it is written, compacted or expired,
// and it may lie on a read-only mount or be written by another process meanwhile. Blocks are opened one
// by one; the write-ahead log is copied and replayed elsewhere. Its methods may be called from any
// goroutine.
type Archive struct {
	opts    ArchiveOptions
	log     *slog.Logger
	engine  *promql.Engine
	parser  parser.Parser
	query   storage.SampleAndChunkQueryable
	names   *blockNames
	reg     *undoRegisterer
	notices noticeBoard
	damaged *prometheus.CounterVec

	refresh sync.Mutex // one at a time
	current atomic.Pointer[generation]
	retired sync.WaitGroup  // old generations that wait for their readers
	ctx     context.Context // ends that wait
	stop    context.CancelFunc

	mu     sync.Mutex
	blocks map[ulid.ULID]*sharedBlock
	bad    map[string]string // what was found damaged, and why: each is reported once
}

// sharedBlock is an open block and how many generations have it.
type sharedBlock struct {
	*tsdb.Block
	users int
}

// sharedHead is a replayed copy of the log and how many generations have it.
type sharedHead struct {
	*tsdb.DB
	names   *nameSet
	scratch string // its directory
	users   int
}

// generation is what the directory held at one moment.
type generation struct {
	lease
	blocks []*sharedBlock
	head   *sharedHead // nil when there is no log
	print  string      // names, sizes and times of the log's files
}

// OpenArchive opens a data directory to read. It fails when dir holds neither blocks nor a log; what is
// damaged is left out and named in [Archive.Notices].
func OpenArchive(ctx context.Context, o ArchiveOptions) (*Archive, error) {
	filled := Options{Logger: o.Logger, Registerer: o.Registerer, Catalog: o.Catalog}.withDefaults()
	o.Logger, o.Registerer, o.Catalog = filled.Logger, filled.Registerer, filled.Catalog
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("metricstore: archive %s: %w", o.Dir, err)
	}
	o.Dir = dir
	a := &Archive{
		opts: o, log: o.Logger.With("archive", dir),
		parser: parser.NewParser(parser.Options{}),
		names:  newBlockNames(),
		blocks: map[ulid.ULID]*sharedBlock{},
		bad:    map[string]string{},
		damaged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollscope_archive_damaged_total",
			Help: "Parts of the opened archive that could not be read, by kind.",
		}, []string{"kind"}),
	}
	a.reg = &undoRegisterer{to: o.Registerer}
	if err := a.reg.Register(a.damaged); err != nil {
		return nil, fmt.Errorf("metricstore: registering the archive's metrics: %w", err)
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.engine = newEngine(a.log, a.reg, a.parser, engineLimits{o.QueryTimeout, o.QueryConcurrency, o.QueryMaxSamples, o.LookbackDelta})
	a.query = newAnySpelling(archiveStorage{a}, a, o.Catalog)
	if err := a.Refresh(ctx); err != nil {
		a.stop()
		a.reg.undo()
		return nil, err
	}
	return a, nil
}

// Dir returns the absolute directory.
func (a *Archive) Dir() string { return a.opts.Dir }

// Queryable reads the archive under any spelling of a metric's name.
func (a *Archive) Queryable() storage.SampleAndChunkQueryable { return a.query }

// Engine evaluates PromQL; use it with [Archive.Queryable].
func (a *Archive) Engine() promql.QueryEngine { return a.engine }

// PromEngine is Engine with the concrete type, which Prometheus's HTTP API asks for.
func (a *Archive) PromEngine() *promql.Engine { return a.engine }

// Parser is the PromQL parser that Engine uses.
func (a *Archive) Parser() parser.Parser { return a.parser }

// Notices lists what could not be read, and who else writes the directory.
func (a *Archive) Notices() []Notice { return a.notices.list() }

// BlockMetas describes the open blocks, oldest first.
func (a *Archive) BlockMetas() []tsdb.BlockMeta {
	g := a.current.Load()
	out := make([]tsdb.BlockMeta, 0, len(g.blocks))
	for _, b := range g.blocks {
		out = append(out, b.Meta())
	}
	return out
}

// Head returns the replayed copy of the log, nil when the directory has none. It is replaced by Refresh.
func (a *Archive) Head() *tsdb.Head {
	if g := a.current.Load(); g.head != nil {
		return g.head.DB.Head()
	}
	return nil
}

// Refresh looks at the directory again and shows what its writer flushed since. Queries that run keep
// what they see. It is cheap when nothing changed.
func (a *Archive) Refresh(ctx context.Context) error {
	a.refresh.Lock()
	defer a.refresh.Unlock()
	st, err := os.Stat(a.opts.Dir)
	if err != nil {
		return fmt.Errorf("metricstore: archive: %w", err)
	}
	if !st.IsDir() {
		return fmt.Errorf("metricstore: archive %s is a file: give the data directory", a.opts.Dir)
	}
	old := a.current.Load()
	g := &generation{print: fingerprint(a.opts.Dir)}
	if old == nil || old.print != g.print {
		a.noteWriter()
	}
	// The log first, the blocks second: data that moves from one to the other in between is then seen
	// twice, which is harmless, and never missed.
	if old != nil && old.print == g.print {
		g.head = old.head
	} else if g.head, err = a.replayLog(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	if g.head != nil {
		g.head.users++
	}
	a.mu.Unlock()
	if err := a.openBlocks(ctx, g); err != nil {
		a.drop(g)
		return err
	}
	if old == nil && len(g.blocks) == 0 && g.head == nil {
		if n := a.notices.list(); len(a.bad) > 0 {
			return fmt.Errorf("metricstore: nothing in %s can be read: %s", a.opts.Dir, n[len(n)-1].Message)
		}
		return fmt.Errorf("metricstore: %s holds no blocks and no write-ahead log: give the directory that --storage.tsdb.path named", a.opts.Dir)
	}
	a.current.Store(g)
	if old != nil {
		a.retired.Go(func() {
			if old.retire(a.ctx) {
				a.drop(old)
			}
		})
	}
	return nil
}

// drop gives back what a generation had, and closes what no other has.
func (a *Archive) drop(g *generation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range g.blocks {
		if b.users--; b.users == 0 {
			delete(a.blocks, b.Meta().ULID)
			if err := b.Close(); err != nil {
				a.log.Warn("closing a block", "block", b.Dir(), "err", err)
			}
		}
	}
	if h := g.head; h != nil {
		if h.users--; h.users == 0 {
			if err := errors.Join(noPanic(h.Close), os.RemoveAll(h.scratch)); err != nil {
				a.log.Warn("closing the replayed log", "err", err)
			}
		}
	}
}

// Close waits for running queries, closes everything and removes the scratch copy of the log.
func (a *Archive) Close() error {
	a.refresh.Lock()
	defer a.refresh.Unlock()
	// Readers get some seconds to finish; a map that is still read is left open rather than pulled away.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g := a.current.Load()
	drained := g.retire(ctx)
	if drained {
		a.drop(g)
	}
	timer := time.AfterFunc(time.Second, a.stop)
	a.retired.Wait()
	timer.Stop()
	a.stop()
	a.reg.undo()
	if !drained {
		return errors.New("metricstore: closing the archive: queries still run")
	}
	return nil
}

// noteWriter tells whether another process writes the directory now.
func (a *Archive) noteWriter() {
	held := heldByPrometheus(a.opts.Dir)
	var l *LockedError
	if !errors.As(held, &l) {
		a.notices.remove("live", a.opts.Dir)
		return
	}
	a.notices.put(Notice{
		Code:    "live",
		Message: fmt.Sprintf("Process %d (%s) is still recording into this directory: what is shown ends at its last flush.", l.PID, l.By),
		Where:   a.opts.Dir,
	})
}

// damage names and counts something that cannot be read, once.
func (a *Archive) damage(kind, where, why string) {
	a.mu.Lock()
	known := a.bad[where] == why
	a.bad[where] = why
	a.mu.Unlock()
	if known {
		return
	}
	a.damaged.WithLabelValues(kind).Inc()
	a.notices.put(Notice{
		Code:    "damaged_" + kind,
		Message: fmt.Sprintf("%s cannot be read and is left out: %s.", where, why),
		Where:   where,
		Hint:    "Copy it again if the original is whole; the rest of the archive is shown.",
	})
	a.log.Warn("left out of the archive", "kind", kind, "where", where, "why", why)
}

// openBlocks fills g with the blocks of the directory, taking over those that are open already.
func (a *Archive) openBlocks(ctx context.Context, g *generation) error {
	for try := 0; ; try++ {
		vanished, err := a.tryBlocks(ctx, g)
		if err != nil || !vanished {
			return err
		}
		if try == 5 { // without its blocks the directory would look empty
			return fmt.Errorf("metricstore: archive %s: its blocks are replaced faster than they can be opened: try again", a.opts.Dir)
		}
	}
}

// tryBlocks is one attempt; vanished tells that a block went away meanwhile (its writer compacted it),
// so that the list is out of date.
func (a *Archive) tryBlocks(ctx context.Context, g *generation) (vanished bool, err error) {
	entries, err := os.ReadDir(a.opts.Dir)
	if err != nil {
		return false, fmt.Errorf("metricstore: archive: %w", err)
	}
	a.mu.Lock()
	open := make(map[ulid.ULID]*sharedBlock, len(a.blocks))
	for id, b := range a.blocks {
		open[id] = b
	}
	a.mu.Unlock()
	var list, fresh []*sharedBlock
	replaced := map[ulid.ULID]bool{}
	for _, e := range entries {
		id, err := ulid.ParseStrict(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return false, errors.Join(err, closeBlocks(fresh))
		}
		b := open[id]
		if b == nil {
			dir := filepath.Join(a.opts.Dir, e.Name())
			if b, err = a.openBlock(dir); err != nil {
				if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
					return true, closeBlocks(fresh)
				}
				a.damage("block", dir, err.Error())
				continue
			}
			fresh = append(fresh, b)
		}
		list = append(list, b)
		for _, p := range b.Meta().Compaction.Parents {
			replaced[p.ULID] = true
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Meta().MinTime < list[j].Meta().MinTime })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range list {
		id := b.Meta().ULID
		if replaced[id] && b.users == 0 {
			// A crash between writing a compacted block and deleting its parents leaves both.
			err = errors.Join(err, b.Close())
			continue
		}
		if replaced[id] {
			continue
		}
		b.users++
		a.blocks[id] = b
		g.blocks = append(g.blocks, b)
	}
	return false, err
}

func closeBlocks(bs []*sharedBlock) error {
	var errs []error
	for _, b := range bs {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// openBlock opens a block and checks that its index and chunk files belong together.
func (a *Archive) openBlock(dir string) (*sharedBlock, error) {
	var b *tsdb.Block
	err := noPanic(func() (err error) {
		b, err = tsdb.OpenBlock(a.log, dir, nil, tsdb.DefaultPostingsDecoderFactory)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := noPanic(func() error { return checkBlock(b) }); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &sharedBlock{Block: b}, nil
}

// archiveStorage reads the current generation.
type archiveStorage struct{ a *Archive }

func (s archiveStorage) acquire() (*generation, func(), error) {
	for {
		g := s.a.current.Load()
		release, err := g.acquire()
		if err == nil {
			return g, release, nil
		}
		if s.a.current.Load() == g {
			return nil, nil, fmt.Errorf("metricstore: the archive is closed: %w", err)
		}
	}
}

func (s archiveStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	g, release, err := s.acquire()
	if err != nil {
		return nil, err
	}
	var qs []storage.Querier
	fail := func(err error) (storage.Querier, error) {
		for _, q := range qs {
			err = errors.Join(err, q.Close())
		}
		release()
		return nil, err
	}
	for _, b := range g.blocks {
		if !b.OverlapsClosedInterval(mint, maxt) {
			continue
		}
		q, err := tsdb.NewBlockQuerier(s.a.tolerant(b), mint, maxt)
		if err != nil {
			return fail(fmt.Errorf("metricstore: block %s: %w", b.Dir(), err))
		}
		qs = append(qs, q)
	}
	if g.head != nil {
		q, err := g.head.Querier(mint, maxt)
		if err != nil {
			return fail(fmt.Errorf("metricstore: the replayed log of %s: %w", s.a.opts.Dir, err))
		}
		qs = append(qs, q)
	}
	return leasedQuerier{storage.NewMergeQuerier(qs, nil, storage.ChainedSeriesMerge), release}, nil
}

func (s archiveStorage) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	g, release, err := s.acquire()
	if err != nil {
		return nil, err
	}
	var qs []storage.ChunkQuerier
	fail := func(err error) (storage.ChunkQuerier, error) {
		for _, q := range qs {
			err = errors.Join(err, q.Close())
		}
		release()
		return nil, err
	}
	for _, b := range g.blocks {
		if !b.OverlapsClosedInterval(mint, maxt) {
			continue
		}
		q, err := tsdb.NewBlockChunkQuerier(s.a.tolerant(b), mint, maxt)
		if err != nil {
			return fail(fmt.Errorf("metricstore: block %s: %w", b.Dir(), err))
		}
		qs = append(qs, q)
	}
	if g.head != nil {
		q, err := g.head.ChunkQuerier(mint, maxt)
		if err != nil {
			return fail(fmt.Errorf("metricstore: the replayed log of %s: %w", s.a.opts.Dir, err))
		}
		qs = append(qs, q)
	}
	return leasedChunkQuerier{storage.NewMergeChunkQuerier(qs, nil, storage.NewCompactingChunkSeriesMerger(storage.ChainedSeriesMerge)), release}, nil
}

// holds implements holder.
func (a *Archive) holds(mint, maxt int64) holding {
	g := a.current.Load()
	var out holding
	for _, b := range g.blocks {
		if b.OverlapsClosedInterval(mint, maxt) {
			out.sets = append(out.sets, a.names.of(b.Block))
		}
	}
	if g.head != nil {
		out.sets = append(out.sets, g.head.names)
	}
	return out
}
