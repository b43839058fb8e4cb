package metricstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// guard stands between those who append and the database. It refuses samples from the future, counts
// every sample that is not kept by target and reason, and while the disk refuses writes it keeps the
// batches in memory (see backlog).
type guard struct {
	s *Store
	backlog

	mu     sync.Mutex
	clocks map[string]*targetClock
}

// targetClock follows a target's timestamps, to tell by how much its clock stepped.
type targetClock struct {
	newest   int64 // Unix milliseconds of the newest sample that was kept
	stepping bool  // a step was reported and no batch was kept whole since
}

func newGuard(s *Store) *guard {
	g := &guard{s: s, clocks: map[string]*targetClock{}}
	g.backlog.init(s)
	return g
}

// AppenderV2 implements [storage.AppendableV2].
func (g *guard) AppenderV2(ctx context.Context) storage.AppenderV2 {
	limit := g.s.opts.Now().Add(g.s.opts.FutureLimit).UnixMilli()
	a := &guardAppender{g: g, limit: limit, batch: newBatch()}
	if g.suspended() {
		return a // into memory only
	}
	h := g.s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return a // being opened again: into memory
	}
	a.app, a.release = h.db.AppenderV2(ctx), release
	return a
}

// batch is what one appender got, in the form that it takes to append it again.
type batch struct {
	target  string // "job/instance"
	samples []sample
}

// sample is one appended sample. Labels of the scrape cache live as long as the series is scraped, so
// they may be kept; metadata strings may not, and are left out.
type sample struct {
	ls      labels.Labels
	st, t   int64
	v       float64
	h       *histogram.Histogram
	fh      *histogram.FloatHistogram
	inOrder bool // AppendV2Options.RejectOutOfOrder
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch() *batch { return batches.Get().(*batch) }

func (b *batch) free() {
	clear(b.samples)
	b.samples, b.target = b.samples[:0], ""
	batches.Put(b)
}

// guardAppender is one transaction.
type guardAppender struct {
	g       *guard
	app     storage.AppenderV2 // nil while the disk refuses writes
	release func()
	limit   int64 // newest timestamp that is not from the future
	batch   *batch
	newest  int64
	dropped int // samples of this batch that the clock's step cost
	oldest  int64
}

var (
	_ storage.AppenderV2         = (*guardAppender)(nil)
	_ storage.ExemplarAppenderV2 = (*guardAppender)(nil)
	_ storage.GetRef             = (*guardAppender)(nil)
)

func (a *guardAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	if a.batch.target == "" {
		a.batch.target = targetOf(ls)
	}
	if t > a.limit {
		a.g.s.drops.add(a.batch.target, "future", 1)
		a.g.reportFuture(a.batch.target, t)
		return 0, storage.ErrOutOfBounds
	}
	var err error
	if a.app != nil {
		ref, err = a.app.Append(ref, ls, st, t, v, h, fh, opts)
		if err != nil {
			var partial *storage.AppendPartialError
			if !errors.As(err, &partial) {
				a.refused(err, t, v, h, fh)
				return ref, err
			}
		}
	}
	if t > a.newest {
		a.newest = t
	}
	a.batch.samples = append(a.batch.samples, sample{ls, st, t, v, h, fh, opts.RejectOutOfOrder})
	return ref, err
}

// refused counts a sample that the database did not take. Staleness markers carry no data: that one
// comes too late says nothing.
func (a *guardAppender) refused(err error, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) {
	if h == nil && fh == nil && value.IsStaleNaN(v) {
		return
	}
	reason := "invalid"
	switch {
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrOutOfOrderSample):
		reason = "too_old"
		if a.dropped == 0 || t < a.oldest {
			a.oldest = t
		}
		a.dropped++
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		reason = "duplicate_timestamp"
	}
	a.g.s.drops.add(a.batch.target, reason, 1)
}

// AppendExemplars implements [storage.ExemplarAppenderV2].
func (a *guardAppender) AppendExemplars(ref storage.SeriesRef, ls labels.Labels, es []exemplar.Exemplar) (storage.SeriesRef, error) {
	if ea, ok := a.app.(storage.ExemplarAppenderV2); ok {
		return ea.AppendExemplars(ref, ls, es)
	}
	return ref, nil // exemplars are not kept over a refusing disk
}

// GetRef implements [storage.GetRef].
func (a *guardAppender) GetRef(ls labels.Labels, hash uint64) (storage.SeriesRef, labels.Labels) {
	if r, ok := a.app.(storage.GetRef); ok {
		return r.GetRef(ls, hash)
	}
	return 0, labels.EmptyLabels()
}

// Commit keeps the batch: in the database, or in memory while the disk refuses.
func (a *guardAppender) Commit() error {
	if a.app != nil && a.g.suspended() {
		// Another's write failed since this one began: what is written behind it is cut off when the log is read again.
		_ = noPanic(a.app.Rollback)
		a.release()
		a.app = nil
	}
	if a.app != nil {
		err := noPanic(a.app.Commit)
		a.release()
		if err == nil {
			a.g.kept(a)
			a.batch.free()
			return nil
		}
		a.g.suspend(err)
	}
	a.g.push(a.batch)
	return nil
}

// Rollback forgets the batch.
func (a *guardAppender) Rollback() error {
	defer a.batch.free()
	if a.app == nil {
		return nil
	}
	defer a.release()
	return noPanic(a.app.Rollback)
}

// targetOf names where a series comes from, for counters and notices.
func targetOf(ls labels.Labels) string {
	job, instance := ls.Get("job"), ls.Get("instance")
	switch {
	case job != "" && instance != "":
		return job + "/" + instance
	case instance != "":
		return instance
	case job != "":
		return job
	}
	return "rules" // recording rules over the fleet carry neither
}

// kept follows the target's clock, and reports a step once with its size.
func (g *guard) kept(a *guardAppender) {
	if len(a.batch.samples) == 0 && a.dropped == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clocks[a.batch.target]
	if c == nil {
		c = &targetClock{newest: math.MinInt64}
		g.clocks[a.batch.target] = c
	}
	if a.dropped == 0 {
		c.newest = max(c.newest, a.newest)
		c.stepping = false
		return
	}
	if c.stepping || c.newest == math.MinInt64 {
		return
	}
	c.stepping = true
	step := time.Duration(a.oldest-c.newest) * time.Millisecond
	g.s.notices.put(Notice{
		Code:    "clock_step",
		Message: fmt.Sprintf("Samples of %s are older than the %s that the store takes out of order: its clock stepped by about %s, and they are dropped until it has caught up.", a.batch.target, g.s.opts.OutOfOrderWindow, step.Round(time.Second)),
		Where:   a.batch.target,
		Hint:    "Set the clocks right (chronyc makestep); a wider storage.tsdb.out_of_order_time_window takes older samples.",
	})
	g.s.log.Warn("the clock stepped back further than the out-of-order window", "target", a.batch.target, "step", step.Round(time.Second), "window", g.s.opts.OutOfOrderWindow)
}

func (g *guard) reportFuture(target string, t int64) {
	ahead := time.UnixMilli(t).Sub(g.s.opts.Now()).Round(time.Second)
	n := Notice{
		Code:    "future",
		Message: fmt.Sprintf("Samples of %s are dated %s ahead of this machine's clock and are refused: one kept would block its series until then.", target, ahead),
		Where:   target,
		Hint:    "Compare the clocks of both machines, or let the scrape ignore the target's timestamps (honor_timestamps: false).",
	}
	g.mu.Lock()
	c := g.clocks[target]
	if c == nil {
		c = &targetClock{newest: math.MinInt64}
		g.clocks[target] = c
	}
	first := !c.stepping
	c.stepping = true
	g.mu.Unlock()
	if first {
		g.s.notices.put(n)
		g.s.log.Warn("samples from the future are refused", "target", target, "ahead", ahead)
	}
}
