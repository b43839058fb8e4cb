package metricstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/storage"
)

// backlog keeps batches in memory while the disk refuses writes (a stale NFS handle, a full disk).
//
// After a failed write the database's log may hold half a record, and everything written behind it would
// be cut off when it is next opened; a stale handle never works again at all. So the first failure stops
// all writing. The directory is probed until it takes a file again, then the database is opened anew,
// which replays the log up to the failure, and the batches are appended in the order they came. What the
// bounded queue could not hold is dropped from its old end and counted.
type backlog struct {
	s    *Store
	down atomic.Bool

	mu      sync.Mutex
	queue   []*batch
	samples int
	since   time.Time
	cause   error
	lost    int
	broken  bool // a write failed since the database was opened: it must be opened again

	retry  time.Duration // first pause between probes, doubled up to retryMax
	stop   context.CancelFunc
	ctx    context.Context
	worker sync.WaitGroup
}

const retryMax = 30 * time.Second

func (b *backlog) init(s *Store) {
	b.s = s
	b.retry = time.Second
	b.ctx, b.stop = context.WithCancel(context.Background())
}

// suspended tells whether batches go into memory.
func (b *backlog) suspended() bool { return b.down.Load() }

// suspend stops writing to the database because of cause and starts waiting for the disk.
func (b *backlog) suspend(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken || b.ctx.Err() != nil {
		return
	}
	b.since, b.cause, b.broken = b.s.opts.Now(), cause, true
	b.s.log.Error("the data directory refuses writes: samples are kept in memory until it takes them again", "dir", b.s.opts.Dir, "err", cause)
	b.noteLocked()
	if !b.down.Swap(true) { // else the worker writes what came late, and sees before it ends that this is not enough
		b.worker.Go(b.recover)
	}
}

// push queues a batch; the oldest are dropped when memory is used up.
func (b *backlog) push(x *batch) {
	if len(x.samples) == 0 {
		x.free()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, x)
	b.samples += len(x.samples)
	for b.samples > b.s.opts.BacklogSamples && len(b.queue) > 0 {
		old := b.queue[0]
		b.queue = b.queue[1:]
		b.samples -= len(old.samples)
		b.lost += len(old.samples)
		b.s.drops.add(old.target, "storage_unwritable", len(old.samples))
		old.free()
	}
	if b.broken {
		b.noteLocked()
	}
	if !b.down.Load() && b.ctx.Err() == nil {
		// The batch was begun while the disk refused and ends after it recovered: it only needs writing.
		b.down.Store(true)
		b.worker.Go(b.recover)
	}
}

func (b *backlog) noteLocked() {
	lost := ""
	if b.lost > 0 {
		lost = fmt.Sprintf("; %d samples did not fit and are lost", b.lost)
	}
	b.s.notices.put(Notice{
		Code:    "storage_unwritable",
		Message: fmt.Sprintf("The data directory refuses writes since %s (%v): %d samples wait in memory%s.", b.since.UTC().Format(time.RFC3339), b.cause, b.samples, lost),
		Where:   b.s.opts.Dir,
		Hint:    "Free space or bring the file system back; writing goes on by itself.",
	})
}

// recover waits until the directory takes files, opens the database again and appends what waited.
func (b *backlog) recover() {
	pause := b.retry
	for {
		t := time.NewTimer(pause)
		select {
		case <-b.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		pause = min(2*pause, retryMax)
		if err := b.resume(); err != nil {
			b.mu.Lock()
			b.cause = err
			b.noteLocked()
			b.mu.Unlock()
			continue
		}
		return
	}
}

// resume tries once; nil when the backlog is written and appends go to the database again.
func (b *backlog) resume() error {
	b.mu.Lock()
	broken := b.broken
	b.mu.Unlock()
	if broken {
		if err := probe(b.s.opts.Dir); err != nil {
			return err
		}
		if err := b.s.reopen(); err != nil {
			return err
		}
	}
	return b.drain(broken)
}

// drain appends the waiting batches, oldest first, and lets appends through when none is left. opened tells
// that the database was opened again for it.
func (b *backlog) drain(opened bool) error {
	written := 0
	for {
		b.mu.Lock()
		if b.broken && !opened { // a write failed meanwhile
			err := b.cause
			b.mu.Unlock()
			return err
		}
		if len(b.queue) == 0 {
			b.down.Store(false)
			if opened {
				b.reportLocked(written)
			}
			b.broken, b.lost, b.samples, b.queue = false, 0, 0, nil
			b.mu.Unlock()
			return nil
		}
		// Off the queue while it is written: what push drops for want of memory is given to others to fill.
		x := b.queue[0]
		b.queue = b.queue[1:]
		b.samples -= len(x.samples)
		b.mu.Unlock()

		n, err := b.append(x)
		if err != nil {
			b.mu.Lock()
			b.broken = true
			b.queue = slices.Insert(b.queue, 0, x)
			b.samples += len(x.samples)
			b.mu.Unlock()
			return err
		}
		written += n
		x.free()
	}
}

func (b *backlog) append(x *batch) (int, error) {
	h := b.s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return 0, err
	}
	defer release()
	app := h.db.AppenderV2(b.ctx)
	refused := map[string]int{}
	n := 0
	for _, sm := range x.samples {
		if _, err := app.Append(0, sm.ls, sm.st, sm.t, sm.v, sm.h, sm.fh, storage.AOptions{RejectOutOfOrder: sm.inOrder}); err != nil {
			switch {
			case errors.Is(err, storage.ErrDuplicateSampleForTimestamp), sm.inOrder:
				// part of the batch was already in the log when the write failed
			default:
				refused["too_old"]++
			}
			continue
		}
		n++
	}
	if err := noPanic(app.Commit); err != nil {
		return 0, err
	}
	for reason, k := range refused {
		b.s.drops.add(x.target, reason, k)
	}
	return n, nil
}

// reportLocked reports the gap that ends now: how long, what was kept, what was lost.
func (b *backlog) reportLocked(written int) {
	dir, since, until := b.s.opts.Dir, b.since.UTC(), b.s.opts.Now().UTC()
	b.s.notices.remove("storage_unwritable", dir)
	msg := fmt.Sprintf("The data directory refused writes from %s to %s (%v); %d samples were kept in memory and are written now.", since.Format(time.RFC3339), until.Format(time.RFC3339), b.cause, written)
	if b.lost > 0 {
		msg = fmt.Sprintf("The data directory refused writes from %s to %s (%v); %d samples were kept in memory and are written now, %d did not fit and are lost: the record has a gap.", since.Format(time.RFC3339), until.Format(time.RFC3339), b.cause, written, b.lost)
	}
	b.s.notices.put(Notice{Code: "storage_gap", Message: msg, Where: dir})
	b.s.log.Warn("the data directory takes writes again", "dir", dir, "down_for", until.Sub(since).Round(time.Second), "written", written, "lost", b.lost)
}

// close tries once more to write what waits, and counts what stays behind.
func (b *backlog) close() {
	b.mu.Lock() // a push that has seen that we go on has started its worker
	b.stop()
	b.mu.Unlock()
	b.worker.Wait()
	b.mu.Lock()
	nothing := !b.down.Load() && len(b.queue) == 0
	b.mu.Unlock()
	if nothing {
		return
	}
	err := b.resume()
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.queue {
		b.s.drops.add(x.target, "storage_unwritable", len(x.samples))
	}
	b.s.log.Error("stopped while the data directory refused writes", "lost", b.samples, "err", err)
	b.queue, b.samples = nil, 0
}

// probe writes and syncs a small file, which is what tells a full disk and a stale mount from a well one.
func probe(dir string) (err error) {
	path := filepath.Join(dir, "rollscope", "probe")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	// More than the log's page and the chunk writer's first flush.
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close())
}

// reopen replaces the database by a fresh opening of the directory.
func (s *Store) reopen() error {
	old := s.current.Load()
	newest := old.db.Head().MaxTime()
	if err := old.close(10 * time.Second); err != nil {
		if !old.drained() {
			return err // somebody still reads: try again later
		}
		s.log.Warn("closing the database that could not write", "err", err)
	}
	h, err := s.openDB()
	if err != nil {
		return err
	}
	h.db.SetWriteNotified(s.remote)
	s.current.Store(h)
	if got := h.db.Head().MaxTime(); newest > got && got > 0 {
		s.notices.put(Notice{
			Code: "storage_gap",
			Message: fmt.Sprintf("After the data directory refused writes, its log ends at %s although samples until %s had been accepted: those between are lost.",
				time.UnixMilli(got).UTC().Format(time.RFC3339), time.UnixMilli(newest).UTC().Format(time.RFC3339)),
			Where: s.opts.Dir + " (log)",
		})
	}
	return nil
}
