package eventstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// killer returns what kills the store's process that runs now, if one runs.
func killer(t testing.TB, s *Store) (kill func()) {
	t.Helper()
	s.sup.mu.Lock()
	pid, runs := s.sup.pid, s.sup.current != nil
	s.sup.mu.Unlock()
	if !runs {
		return func() {}
	}
	p, err := os.FindProcess(pid) // a handle: the number may be given out again
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = p.Kill() }
}

// Whenever the process is killed, a query that begins after Flush sees what was accepted before it.
func TestFlushKilled(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(s *Store, kill func(), flush func())
	}{
		{"before flush", func(s *Store, kill, flush func()) { kill(); flush() }},
		{"some time before flush", func(s *Store, kill, flush func()) { kill(); time.Sleep(30 * time.Millisecond); flush() }},
		{"sent, before flush", func(s *Store, kill, flush func()) {
			for s.drain.waiting() > 0 {
				time.Sleep(time.Millisecond)
			}
			kill()
			flush()
		}},
		{"during flush", func(s *Store, kill, flush func()) {
			done := make(chan struct{})
			go func() { defer close(done); time.Sleep(5 * time.Millisecond); kill() }()
			flush()
			<-done
		}},
		{"after flush", func(s *Store, kill, flush func()) { flush(); kill() }},
		{"some time after flush", func(s *Store, kill, flush func()) { flush(); kill(); time.Sleep(100 * time.Millisecond) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel() // they wait for processes to start, most of the time
			s, stop := start(t, testOptions(t, t.TempDir()))
			defer stop()
			now, n := time.Now().Add(-time.Minute), 0
			for round := range 5 {
				rows := make([]event.Row, 1+round*50)
				for i := range rows {
					rows[i] = span(now, n)
					n++
				}
				mustAppend(t, s, rows...)
				if round == 0 { // a process runs from here on
					mustFlush(t, s)
				}
				x.do(s, killer(t, s), func() { mustFlush(t, s) })
				if got := count(t, s, `{row="span"}`); got != n {
					t.Fatalf("round %d: %d of %d rows are found", round, got, n)
				}
			}
		})
	}
}

// A process that cannot be sent what the one before it lost answers with what lies in files, and says so.
func TestQueryWithoutRoom(t *testing.T) {
	disk := smallDisk(t, "64m")
	o := testOptions(t, filepath.Join(disk, "rollscope"))
	o.MinFreeBytes = 16 << 20          // the process takes no rows below half of it
	o.FlushInterval = 10 * time.Minute // what is in memory stays there unless it is asked for
	s, _ := start(t, o)
	now := time.Now().Add(-time.Hour)
	put := func(from, to int) {
		t.Helper()
		var rows []event.Row
		for i := from; i < to; i++ {
			rows = append(rows, span(now, i))
		}
		mustAppend(t, s, rows...)
		mustFlush(t, s)
	}
	put(0, 1000)
	eventually(t, "all lies in files", func() bool { s.drain.urge(); return !s.drain.pending() })
	select {
	case <-s.drain.urgent: // it would be meant for what comes now
	default:
	}
	put(1000, 1100) // in memory
	ballast := fill(t, disk)
	info, err := os.Stat(ballast)
	if err == nil {
		err = os.Truncate(ballast, info.Size()-6<<20) // room to start, not to take rows
	}
	if err != nil {
		t.Fatal(err)
	}
	killer(t, s)()
	if n := count(t, s, `{row="span"}`); n != 1000 {
		t.Errorf("%d rows are found, 1000 lie in files", n)
	}
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.Flush(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush without room: %v", err)
	}
	if err := s.Delete(within(t), `n:=5`); err != nil { // the spool has it, and cannot let go of it
		t.Errorf("delete without room: %v", err)
	}
	if st := s.State(); st.State != StateReadOnly {
		t.Errorf("state %s %q", st.State, st.Reason)
	}
	remove(t, ballast)
	mustFlush(t, s)
	if n := count(t, s, `{row="span"}`); n != 1100 {
		t.Errorf("%d rows are found with room, 1100 were accepted", n)
	}
	if err := s.Delete(within(t), `n:=5`); err != nil {
		t.Errorf("delete with room: %v", err)
	}
	eventually(t, "the row is removed", func() bool { return count(t, s, `n:=5`) == 0 })
}

// successor kills the store's process and waits until the next one answers. It returns the client of the one
// that was killed.
func successor(t *testing.T, s *Store) (before *client) {
	t.Helper()
	s.sup.mu.Lock()
	before = s.sup.current
	s.sup.mu.Unlock()
	killer(t, s)()
	eventually(t, "the next process answers", func() bool {
		s.sup.mu.Lock()
		defer s.sup.mu.Unlock()
		return s.sup.current != nil && s.sup.current != before
	})
	return before
}

// Whoever was about to ask a process that ended is not answered by the next one: that one could confirm rows
// that it never had, or leave them out of an answer.
func TestClientOfProcessThatEnded(t *testing.T) {
	s, _ := start(t, testOptions(t, t.TempDir()))
	now := time.Now()
	mustAppend(t, s, span(now, 0))
	mustFlush(t, s)
	c := successor(t, s)
	if a, err := c.settle(within(t), now.UnixNano(), now.UnixNano()); !errors.Is(err, ErrDown) {
		t.Errorf("settle: %+v, %v", a, err)
	}
	if err := c.flush(within(t)); !errors.Is(err, ErrDown) {
		t.Errorf("flush: %v", err)
	}
	if n, err := c.query(within(t), Query{LogsQL: "*"}, func([]event.Field) error { return nil }); !errors.Is(err, ErrDown) {
		t.Errorf("query: %d rows, %v", n, err)
	}
}

// The store is stopped when its process was killed and the next one, which ends in good order, has not been
// given yet what was in memory alone: the spool keeps it.
func TestStopAfterKill(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.FlushInterval = 10 * time.Minute
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	const n = 100
	now := time.Now().Add(-time.Minute)
	for i := range n {
		mustAppend(t, s, span(now, i))
	}
	mustFlush(t, s)
	func() {
		s.spool.mu.Lock() // so that the rows cannot be looked for, and not be sent again
		defer s.spool.mu.Unlock()
		successor(t, s)
		cancel()
	}()
	if err := errors.Join(<-done, s.Close()); err != nil {
		t.Fatal(err)
	}
	s, _ = start(t, o)
	mustFlush(t, s)
	if got := count(t, s, "*"); got != n {
		t.Errorf("%d of %d rows are found", got, n)
	}
}
