package metricstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"
)

// suspendedStore is a store that keeps samples in memory until the test has it write them.
func suspendedStore(t *testing.T, start time.Time, samples int) *Store {
	t.Helper()
	o := testOptions(t, start.Add(time.Hour))
	o.BacklogSamples = samples
	s := openStore(t, o)
	s.guard.retry = time.Hour
	s.guard.suspend(errors.New("a test"))
	return s
}

func upAt(start time.Time, second int) point {
	return point{`up{job="sglang",instance="e1"}`, start.Add(time.Duration(second) * time.Second).UnixMilli(), float64(second)}
}

func upsOf(t *testing.T, s *Store, start time.Time) float64 {
	t.Helper()
	return eval(t, s.Engine(), s.Queryable(), `count_over_time(up[1h])`, start.Add(time.Minute))[`{instance="e1", job="sglang"}`]
}

// A batch that is being written is not the one that goes for want of memory: it would be counted as lost and
// filled with other samples under the writer's hands.
func TestBacklogOverflowsWhileItIsWritten(t *testing.T) {
	start := time.Unix(1780000000, 0)
	s := suspendedStore(t, start, 2)
	appendPoints(t, s.Appendable(), upAt(start, 1))
	appendPoints(t, s.Appendable(), upAt(start, 2))
	h := s.current.Load()
	h.lease.mu.Lock() // the writer has taken its batch, and waits here
	goOn := sync.OnceFunc(h.lease.mu.Unlock)
	defer goOn()
	written := make(chan error, 1)
	go func() { written <- s.guard.drain(true) }()
	waitFor(t, func() bool {
		s.guard.backlog.mu.Lock()
		defer s.guard.backlog.mu.Unlock()
		return len(s.guard.queue) == 1
	})
	appendPoints(t, s.Appendable(), upAt(start, 3))
	appendPoints(t, s.Appendable(), upAt(start, 4))
	wantDrop(t, s, "sglang/e1", "storage_unwritable", 1) // the second
	goOn()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if n := upsOf(t, s, start); n != 3 {
		t.Errorf("%v samples, want the first, the third and the fourth", n)
	}
	if n := notice(s, "storage_gap"); !strings.Contains(n.Message, "3 samples were kept in memory") {
		t.Errorf("notice %+v", n)
	}
}

// What began before another's write failed is not written behind it.
func TestCommitAfterAnotherFailed(t *testing.T) {
	start := time.Unix(1780000000, 0)
	o := testOptions(t, start.Add(time.Hour))
	s := openStore(t, o)
	s.guard.retry = time.Hour
	p := upAt(start, 1)
	app := s.Appendable().AppenderV2(context.Background())
	if _, err := app.Append(0, parseSeries(t, p.series), 0, p.t, p.v, nil, nil, storage.AOptions{}); err != nil {
		t.Fatal(err)
	}
	s.guard.suspend(errors.New("a test"))
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := upsOf(t, s, start); n != 0 {
		t.Errorf("%v samples went into a log that is broken", n)
	}
	if err := s.guard.resume(); err != nil {
		t.Fatal(err)
	}
	if n := upsOf(t, s, start); n != 1 {
		t.Errorf("%v samples, want the one that waited", n)
	}
}

// A write that fails while a batch that came late is written has the database opened again too.
func TestWriteFailsWhileALateBatchIsWritten(t *testing.T) {
	start := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, start.Add(time.Hour)))
	s.guard.retry = time.Millisecond
	p := upAt(start, 1)
	s.guard.down.Store(true) // as if it ended just before the commit
	late := s.Appendable().AppenderV2(context.Background())
	if _, err := late.Append(0, parseSeries(t, p.series), 0, p.t, p.v, nil, nil, storage.AOptions{}); err != nil {
		t.Fatal(err)
	}
	s.guard.down.Store(false)
	h := s.current.Load()
	h.lease.mu.Lock()
	goOn := sync.OnceFunc(h.lease.mu.Unlock)
	defer goOn()
	if err := late.Commit(); err != nil { // has it written
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		s.guard.backlog.mu.Lock()
		defer s.guard.backlog.mu.Unlock()
		return len(s.guard.queue) == 0
	})
	s.guard.suspend(errors.New("a test"))
	goOn()
	waitFor(t, func() bool { return !s.guard.suspended() })
	if s.current.Load() == h {
		t.Error("the database with the broken log is still in use")
	}
	if n := upsOf(t, s, start); n != 1 {
		t.Errorf("%v samples, want the late one", n)
	}
}
