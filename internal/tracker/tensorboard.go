package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rollscope/rollscope/internal/tfevents"
)

// TensorBoardTracker writes TensorBoard event files: DIR/RUN/events.out.tfevents.SECONDS.rollscope.0.REVISION,
// and the curves of earlier attempts in DIR/RUN.attempt-N/. One step is one event with all its scalars,
// so a step is in the file whole or not at all. The steps of an axis stand in ascending order, since
// TensorBoard's fast loader drops the later ones of a tag when a step goes back: a step that comes out of
// order makes the file be written again, under the next revision. A large file is sorted when enough such
// steps came together, and on Close, so that a run logged backwards does not cost the square of its size.
type TensorBoardTracker struct {
	counter
	dir  string
	opts Options
	open func(path string) (file, error)
	// large is the size from which on a file is not sorted at once, in bytes.
	large int64

	mu     sync.Mutex
	lock   *lock
	runs   map[string]*tbRun
	closed bool
}

// tbRun is an open run.
type tbRun struct {
	*ledger
	dir  string
	path string // of the event file; empty before the first step
	rev  int
	f    file
	w    *tfevents.Writer
	ev   tfevents.Event
	// unsorted says that a step stands behind a later one of its axis; since counts the steps that were
	// appended after the last rewrite.
	unsorted bool
	since    int
}

// TensorBoard returns a tracker that writes below dir, which it makes.
func TensorBoard(dir string, opts Options) (*TensorBoardTracker, error) {
	l, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("tracker: tensorboard directory: %w", err)
	}
	return &TensorBoardTracker{dir: dir, opts: opts, open: openAppend, large: 1 << 20, lock: l, runs: map[string]*tbRun{}}, nil
}

var errClosed = errors.New("tracker: the tracker is closed")

// Log implements Tracker.
func (t *TensorBoardTracker) Log(ctx context.Context, s Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, ok, err := t.admit(&s, &t.opts)
	if err != nil || !ok {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	run := t.runs[in.run]
	if run == nil {
		if run, err = t.openRun(in.run); err != nil {
			return fmt.Errorf("tracker: run %q: %w", in.run, err)
		}
		t.runs[in.run] = run
	}
	r := row{place{in.axis, in.step}, in.wall}
	p := run.plan(r)
	switch p.verdict {
	case published:
		t.add(func(s *Stats) { s.Published++ })
		return nil
	case superseded:
		return t.counter.superseded(&in)
	}
	if len(in.metrics) == 0 {
		t.wrote(&in, true)
		return nil
	}
	if err := t.write(run, &in, r, p); err != nil {
		// The file is read again before the next step: what it holds is what counts.
		delete(t.runs, in.run)
		if run.f != nil {
			run.f.Close()
		}
		return fmt.Errorf("tracker: run %q: %s %d is not published: %w", in.run, axes[in.axis], in.step, advise(err))
	}
	t.wrote(&in, true)
	return nil
}

func (t *TensorBoardTracker) write(run *tbRun, in *checked, r row, p plan) error {
	ev := &run.ev
	*ev = tfevents.Event{WallTime: in.wall, Step: in.step, Values: ev.Values[:0]}
	for _, m := range in.metrics {
		ev.Values = append(ev.Values, tfevents.Value{Tag: m.Key, Number: m.Value})
	}
	switch {
	case run.path == "":
		if err := t.create(run, in); err != nil {
			return err
		}
	case p.begins:
		t.opts.logger().Info("a step was run again: a new attempt begins", "run", in.run, "attempt", p.attempt, "axis", axes[in.axis], "step", in.step)
		if err := t.archive(run, in.run); err != nil {
			return fmt.Errorf("keep attempt %d: %w", run.attempt, err)
		}
		fallthrough
	case p.leaves != nil, p.early && t.sortNow(run), p.start != run.start:
		// The step goes in with the rewrite, at its place.
		run.leave(p)
		run.add(r)
		return t.rewrite(run, p.leaves, ev)
	}
	if run.f == nil {
		if err := t.openFile(run); err != nil {
			return err
		}
	}
	at := run.w.Offset()
	if err := run.w.Write(ev); err != nil {
		return errors.Join(err, run.f.Truncate(at))
	}
	run.add(r)
	run.unsorted = run.unsorted || p.early
	run.since++
	return nil
}

// sortNow says whether a step out of order is worth writing the file again.
func (t *TensorBoardTracker) sortNow(run *tbRun) bool {
	if run.f == nil {
		st, err := os.Stat(run.path)
		return err != nil || st.Size() < t.large || run.since >= len(run.active)/8
	}
	return run.w.Offset() < t.large || run.since >= len(run.active)/8
}

const (
	tbPrefix = "events.out.tfevents."
	tbHost   = ".rollscope.0." // host and process of the name: the same everywhere, so that bytes and names are too
)

// revision returns the revision of one of our event files.
func revision(name string) (int, bool) {
	_, rest, ok := strings.Cut(name, tbHost)
	n, err := strconv.Atoi(rest)
	return n, ok && err == nil && strings.HasPrefix(name, tbPrefix)
}

// create makes the event file of a run whose first step is in.
func (t *TensorBoardTracker) create(run *tbRun, in *checked) error {
	run.path = filepath.Join(run.dir, fmt.Sprintf("%s%d%s%06d", tbPrefix, in.time.Unix(), tbHost, 0))
	return replace(run.path, func(w io.Writer) error {
		return tfevents.NewWriter(w, 0).WriteVersion(in.wall)
	})
}

// openFile opens the event file for appending behind what the ledger was built from.
func (t *TensorBoardTracker) openFile(run *tbRun) error {
	f, err := t.open(run.path)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return err
	}
	run.f, run.w = f, tfevents.NewWriter(f, end)
	return nil
}

// openRun reads back what the files of a run hold, and repairs what a crash left.
func (t *TensorBoardTracker) openRun(name string) (*tbRun, error) {
	run := &tbRun{ledger: newLedger(), dir: filepath.Join(t.dir, dirName(name))}
	if err := os.MkdirAll(run.dir, 0o777); err != nil {
		return nil, advise(err)
	}
	if err := removeTemps(run.dir); err != nil {
		return nil, advise(err)
	}
	entries, err := os.ReadDir(run.dir)
	if err != nil {
		return nil, advise(err)
	}
	var ours []string
	for _, e := range entries {
		if n, ok := revision(e.Name()); ok && e.Type().IsRegular() {
			ours = append(ours, e.Name())
			if run.path == "" || n > run.rev {
				run.path, run.rev = filepath.Join(run.dir, e.Name()), n
			}
		}
	}
	for _, name := range ours {
		// A revision is renamed into place whole, so the ones before it have nothing that it lacks.
		if path := filepath.Join(run.dir, name); path != run.path {
			if err := os.Remove(path); err != nil {
				return nil, advise(err)
			}
		}
	}
	if run.path == "" {
		return run, nil
	}
	var rows []row
	end, damaged, err := scan(run.path, func(ev *tfevents.Event, r row, isRow bool) {
		if isRow {
			rows = append(rows, r)
			return
		}
		if n, ok := parseMark(ev); ok {
			run.attempt, run.start = n, ev.WallTime
		}
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		run.unsorted = run.unsorted || run.top[r.axis] > r.step
		run.add(r)
	}
	if damaged != nil {
		// TensorBoard stops at damage, so what is appended behind it would never be seen.
		set := filepath.Join(run.dir, "damaged-"+strings.ReplaceAll(filepath.Base(run.path), "tfevents", "tf-events"))
		t.opts.logger().Warn("event file is damaged: written again with what is readable", "file", run.path, "kept", set, "error", damaged)
		if err := copyFile(run.path, set); err != nil {
			return nil, err
		}
		if err := t.rewrite(run, nil, nil); err != nil {
			return nil, err
		}
	} else if err := cutTail(run.path, end); err != nil {
		return nil, advise(err)
	} else if run.unsorted {
		if err := t.rewrite(run, nil, nil); err != nil {
			return nil, err
		}
	}
	for k := range run.attempt {
		path, err := t.archived(run, k)
		if err != nil {
			return nil, err
		}
		if path == "" {
			continue
		}
		if _, _, err := scan(path, func(_ *tfevents.Event, r row, isRow bool) {
			if isRow {
				run.archive(r)
			}
		}); err != nil {
			return nil, err
		}
	}
	return run, nil
}

func cutTail(path string, size int64) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() == size {
		return err
	}
	return os.Truncate(path, size)
}

// scan calls fn with each event of a file. It returns where the last whole record ends, and the first
// damage that is not just an unfinished end.
func scan(path string, fn func(ev *tfevents.Event, r row, isRow bool)) (end int64, damaged error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	rd := tfevents.NewReader(newBuffered(f), tfevents.Options{})
	for {
		ev, err := rd.Next()
		var c *tfevents.CorruptError
		switch {
		case errors.As(err, &c):
			if damaged == nil {
				damaged = c
			}
			if c.Skipped {
				continue
			}
			return rd.Offset(), damaged, nil
		case err == io.EOF, errors.Is(err, tfevents.ErrCut):
			return rd.Offset(), damaged, nil
		case err != nil:
			return 0, nil, fmt.Errorf("%s: %w", path, err)
		}
		var r row
		isRow := len(ev.Values) > 0
		if isRow {
			axis, ok := axisOf(ev.Values[0].Tag)
			if !ok {
				continue
			}
			r = row{place{axis, ev.Step}, ev.WallTime}
		}
		fn(ev, r, isRow)
	}
}

const markPrefix = "rollscope: attempt "

// mark is the event that says which attempt the steps from its time on belong to. A checkpoint session
// changes nothing for TensorBoard.
func mark(run *tbRun) *tfevents.Event {
	return &tfevents.Event{WallTime: run.start, Session: tfevents.SessionCheckpoint, Message: markPrefix + strconv.Itoa(run.attempt)}
}

func parseMark(ev *tfevents.Event) (int, bool) {
	rest, ok := strings.CutPrefix(ev.Message, markPrefix)
	n, err := strconv.Atoi(rest)
	return n, ok && err == nil && n > 0 && ev.Session == tfevents.SessionCheckpoint
}

func (t *TensorBoardTracker) attemptDir(run *tbRun, attempt int) string {
	return run.dir + attemptSuffix + strconv.Itoa(attempt)
}

// archived returns the event file of an earlier attempt, or "".
func (t *TensorBoardTracker) archived(run *tbRun, attempt int) (string, error) {
	dir := t.attemptDir(run, attempt)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if _, ok := revision(e.Name()); ok {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return "", nil
}

// archive copies the curve as it stands into the directory of its attempt.
func (t *TensorBoardTracker) archive(run *tbRun, name string) error {
	dir := t.attemptDir(run, run.attempt)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return copyFile(run.path, filepath.Join(dir, filepath.Base(run.path)))
}

// rewrite writes the next revision of the event file: without the rows that leave, with extra if it is
// not nil, and each axis in order. The old revision goes.
func (t *TensorBoardTracker) rewrite(run *tbRun, leaves func(row) bool, extra *tfevents.Event) error {
	type kept struct {
		tfevents.Event
		axis uint8
	}
	var version tfevents.Event
	var rows []kept
	_, _, err := scan(run.path, func(ev *tfevents.Event, r row, isRow bool) {
		switch {
		case ev.FileVersion != "":
			version = *ev
			version.Values = nil
		case isRow && (leaves == nil || !leaves(r)):
			k := kept{*ev, r.axis}
			k.Values = slices.Clone(ev.Values)
			rows = append(rows, k)
		}
	})
	if err != nil {
		return err
	}
	if extra != nil {
		axis, _ := axisOf(extra.Values[0].Tag)
		rows = append(rows, kept{*extra, axis})
	}
	slices.SortStableFunc(rows, func(a, b kept) int { return cmp.Or(cmp.Compare(a.axis, b.axis), cmp.Compare(a.Step, b.Step)) })
	if version.FileVersion == "" {
		version.FileVersion = tfevents.FileVersion
	}
	sec, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(run.path), tbPrefix), ".")
	next := filepath.Join(run.dir, fmt.Sprintf("%s%s%s%06d", tbPrefix, sec, tbHost, run.rev+1))
	err = replace(next, func(out io.Writer) error {
		w := tfevents.NewWriter(out, 0)
		// Who already read the revision before forgets it, up to the latest row.
		latest := version.WallTime
		for i := range rows {
			latest = max(latest, rows[i].WallTime)
		}
		events := []*tfevents.Event{&version, {WallTime: latest, Session: tfevents.SessionStart}}
		if run.attempt > 0 {
			events = append(events, mark(run))
		}
		for _, e := range events {
			if err := w.Write(e); err != nil {
				return err
			}
		}
		for i := range rows {
			if err := w.Write(&rows[i].Event); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	old := run.path
	if run.f != nil {
		run.f.Close()
		run.f = nil
	}
	run.path, run.rev, run.unsorted, run.since = next, run.rev+1, false, 0
	return os.Remove(old)
}

// Close implements Tracker.
func (t *TensorBoardTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	for name, run := range t.runs {
		if run.unsorted {
			if err := t.rewrite(run, nil, nil); err != nil {
				errs = append(errs, fmt.Errorf("tracker: run %q: sort the steps: %w", name, advise(err)))
			}
		}
		if run.f == nil {
			continue
		}
		if err := errors.Join(run.f.Sync(), run.f.Close()); err != nil {
			errs = append(errs, fmt.Errorf("tracker: run %q: %w", name, advise(err)))
		}
	}
	return errors.Join(append(errs, t.lock.release())...)
}
