package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
)

func childOfTests(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, os.Args[0], append([]string{ChildCommand}, args...)...)
}

// writerOf is a recorder's event store on a data directory, until the test ends.
func writerOf(t *testing.T, dir string) *eventstore.Store {
	t.Helper()
	s, stop := startWriter(t, dir)
	t.Cleanup(stop)
	return s
}

func startWriter(t *testing.T, dir string) (*eventstore.Store, func()) {
	t.Helper()
	s, err := eventstore.Open(t.Context(), eventstore.Options{Dir: filepath.Join(dir, "rollscope"), MinFreeBytes: -1, Command: childOfTests, FlushInterval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		stop()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// writeLines appends so many log rows, numbered on.
func writeLines(t *testing.T, s *eventstore.Store, from, to int) {
	t.Helper()
	var rows []event.Row
	for i := from; i < to; i++ {
		rows = append(rows, event.Row{Kind: event.Log, Time: time.Now().UnixNano(), Message: fmt.Sprintf("line %d", i)})
	}
	if err := s.Append(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// followOf opens an archive that looks at the directory at each question.
func followOf(t *testing.T, dir string) *eventArchive {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	a, err := openEventArchive(t.Context(), dir, EventOptions{Child: childOfTests}, quiet)
	if err != nil || a == nil {
		t.Fatalf("%v %v", a, err)
	}
	a.events.lookAfter, a.events.waitAfter, a.events.effort = 0, 0, 0
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return a
}

// linesIn is how many different lines are found, and rows.
func linesIn(t *testing.T, s interface {
	Query(ctx context.Context, q eventstore.Query, fn func([]event.Field) error) error
}) (lines, rows int) {
	t.Helper()
	seen := map[string]bool{}
	err := s.Query(t.Context(), eventstore.Query{LogsQL: "row:log | fields _msg"}, func(f []event.Field) error {
		for _, x := range f {
			seen[x.Value] = true
		}
		rows++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(seen), rows
}

// An archive of a directory that is written shows what comes, whether it lies in the spool, in memory or in
// files of the writer's store, each row once, and the writer does not notice.
func TestArchiveFollowsTheWriter(t *testing.T) {
	dir := t.TempDir()
	w := writerOf(t, dir)
	writeLines(t, w, 0, 100)
	a := followOf(t, dir)
	if n, rows := linesIn(t, a.events); n != 100 || rows != 100 {
		t.Fatalf("%d lines in %d rows, 100 were written before it was opened", n, rows)
	}
	first, _ := a.events.asOf()
	n := 100
	for round := range 6 {
		writeLines(t, w, n, n+500)
		n += 500
		if round%2 == 1 {
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "what was written shows", func() bool {
			lines, rows := linesIn(t, a.events)
			if lines != rows || lines > n {
				t.Fatalf("%d lines in %d rows, of %d", lines, rows, n)
			}
			return lines == n
		})
	}
	if at, err := a.events.asOf(); err != nil || !at.After(first) {
		t.Errorf("as of %v, %v", at, err)
	}
	if err := a.events.Append(t.Context(), nil); !errors.Is(err, eventstore.ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines, rows := linesIn(t, w); lines != n || rows != n {
		t.Errorf("the writer has %d lines in %d rows, of %d", lines, rows, n)
	}
	if st := w.State(); st.State != eventstore.StateOK || st.Restarts != 0 || len(st.Damaged) != 0 {
		t.Errorf("the writer is %+v", st)
	}
}

// While the writer stores, flushes and merges, no look at its directory finds less than the one before.
func TestArchiveNeverShowsLess(t *testing.T) {
	dir := t.TempDir()
	w := writerOf(t, dir)
	writeLines(t, w, 0, 10)
	a := followOf(t, dir)
	const total = 40_000
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 10; n < total; n += 390 {
			writeLines(t, w, n, min(n+390, total))
			if err := w.Flush(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	last := 0
	until(t, "all is shown", func() bool {
		lines, rows := linesIn(t, a.events)
		if lines < last || lines != rows {
			t.Errorf("%d lines in %d rows, there were %d", lines, rows, last)
			return true
		}
		last = lines
		a.events.mu.Lock()
		drops := a.events.now.store.Drops()
		a.events.mu.Unlock()
		if len(drops) != 0 { // a record that is being written is no damage
			t.Errorf("the copy is taken for damaged: %+v", drops)
			return true
		}
		return lines == total
	})
	wg.Wait()
	if st := a.events.State(); len(st.Damaged) != 0 {
		t.Errorf("parts of the copy are taken for damaged: %v", st.Damaged)
	}
}

// renewNow has one new view made, whatever the directory's mark: the test says when.
func renewNow(t *testing.T, f *followedEvents) {
	t.Helper()
	f.mu.Lock()
	f.making = make(chan struct{})
	f.all.Add(1)
	mark := f.now.mark
	f.mu.Unlock()
	f.renew(t.Context(), mark+1)
}

// Who is in the middle of an answer gets the rest of it from where it began.
func TestArchiveKeepsAViewThatIsUsed(t *testing.T) {
	dir := t.TempDir()
	w := writerOf(t, dir)
	writeLines(t, w, 0, 3000)
	a := followOf(t, dir)
	a.events.lookAfter = time.Hour // of old views one is kept: how many are made is the test's
	began, goOn, rows := make(chan struct{}), make(chan struct{}), 0
	var wg sync.WaitGroup
	wg.Go(func() {
		err := a.events.Query(t.Context(), eventstore.Query{LogsQL: "row:log"}, func([]event.Field) error {
			if rows++; rows == 1 {
				close(began)
				<-goOn
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-began
	writeLines(t, w, 3000, 3100)
	renewNow(t, a.events)
	if n, _ := linesIn(t, a.events); n != 3100 {
		t.Errorf("%d lines in a view of 3100", n)
	}
	close(goOn)
	wg.Wait()
	if rows != 3000 {
		t.Errorf("%d rows of 3000", rows)
	}
	until(t, "the old view ends", func() bool { a.events.mu.Lock(); defer a.events.mu.Unlock(); return a.events.retired == nil })
}

// While the directory cannot be read again, what was read stays shown, and its age is told.
func TestArchiveThatCannotBeReadAgain(t *testing.T) {
	dir := t.TempDir()
	w := writerOf(t, dir)
	writeLines(t, w, 0, 10)
	a := followOf(t, dir)
	linesIn(t, a.events)
	if n := a.notices(); len(n) != 0 {
		t.Fatalf("notices: %+v", n)
	}
	open := a.events.open
	reopen := func(with func(context.Context) (*eventstore.Store, error)) { // while no view is being made
		t.Helper()
		until(t, "no view is being made", func() bool {
			a.events.mu.Lock()
			defer a.events.mu.Unlock()
			if a.events.making == nil {
				a.events.open = with
			}
			return a.events.making == nil
		})
	}
	reopen(func(context.Context) (*eventstore.Store, error) { return nil, errors.New("no more links") })
	writeLines(t, w, 10, 20)
	until(t, "it is told", func() bool {
		if n, _ := linesIn(t, a.events); n != 10 {
			t.Fatalf("%d lines", n)
		}
		n := a.notices()
		return len(n) == 1 && n[0].Code == "events_old"
	})
	f := eventFace{store: a.events, archive: a.events}
	if st := f.Status(); st.AsOf == nil || st.State != eventstore.StateReadOnly || st.Reason != "it was opened to be read; it could not be read again: no more links" {
		t.Errorf("%+v", st)
	}
	reopen(open)
	until(t, "it recovers", func() bool { n, _ := linesIn(t, a.events); return n == 20 && len(a.notices()) == 0 })
}

// A directory that stays as it is is looked at and not read again.
func TestArchiveOfAFinishedRun(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir := t.TempDir()
	w, stop := startWriter(t, dir)
	writeLines(t, w, 0, 10)
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	a := followOf(t, dir)
	first, view := a.events.now.at, a.events.now
	until(t, "it is looked at", func() bool {
		if n, _ := linesIn(t, a.events); n != 10 {
			t.Fatalf("%d lines", n)
		}
		at, err := a.events.asOf()
		return err == nil && at.After(first)
	})
	a.events.mu.Lock()
	defer a.events.mu.Unlock()
	if a.events.now != view || a.events.retired != nil {
		t.Error("it was read again")
	}
}
