package tracker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/wandbfile"
)

// timeOf is the inverse of seconds, to the microsecond that survives a float64.
func timeOf(wall float64) time.Time {
	sec, frac := math.Modf(wall)
	return time.Unix(int64(sec), int64(math.Round(frac*1e6))*1000).UTC()
}

// storedRow is a history row of ours.
type storedRow struct {
	row
	items []wandbfile.Item
}

type storedRows []storedRow

// keep returns the rows that do not leave.
func (s storedRows) keep(leaves func(row) bool) storedRows {
	if leaves == nil {
		return s
	}
	var out storedRows
	for _, r := range s {
		if !leaves(r.row) {
			out = append(out, r)
		}
	}
	return out
}

// storedRun is what a run file holds.
type storedRun struct {
	wbState
	run      *wandbfile.Run // nil before the run record
	ours     bool           // it has our configuration value
	info     ourInfo
	archived bool // it is ended under the name of an earlier attempt
	first    float64
	rows     storedRows
	damaged  error
	stat     os.FileInfo
}

// readRun reads a run file up to its last whole record. Rows come without their items unless asked for.
func readRun(path string, withItems bool) (*storedRun, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &storedRun{wbState: wbState{keys: map[string]string{}}}
	if s.stat, err = f.Stat(); err != nil {
		return nil, err
	}
	rd := wandbfile.NewReader(newBuffered(f), wandbfile.Options{})
	for {
		before := rd.Offset()
		rec, err := rd.Next()
		var c *wandbfile.CorruptError
		switch {
		case errors.As(err, &c):
			if s.damaged == nil {
				s.damaged = c
			}
			continue
		case errors.Is(err, wandbfile.ErrCut) && rd.Offset() == 0:
			return nil, fmt.Errorf("%s: it does not begin as a run file: %w: move it away, and the run is written anew when its steps are logged again", path, err)
		case err == io.EOF, errors.Is(err, wandbfile.ErrCut):
			if s.end == 0 {
				s.end = rd.Offset()
			}
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch rec.Kind {
		case wandbfile.KindRun:
			s.takeRun(rec.Run)
		case wandbfile.KindHistory:
			var r storedRow
			if withItems {
				r.items = slices.Clone(rec.Items)
			}
			if r.row, err = rowOf(rec.Items); err != nil {
				return nil, fmt.Errorf("%s: row before offset %d: %w", path, rd.Offset(), err)
			}
			s.rows = append(s.rows, r)
			s.advance([]*wandbfile.Record{rec})
		case wandbfile.KindSummary, wandbfile.KindExit, wandbfile.KindFooter:
			if s.end == 0 {
				s.end = before
			}
			if rec.Kind == wandbfile.KindFooter {
				s.whole = true
			}
			continue
		}
		s.num++
	}
}

func (s *storedRun) takeRun(run *wandbfile.Run) {
	s.run = run
	s.first = seconds(run.StartTime)
	for _, it := range run.Config {
		if it.Key == ourConfig && json.Unmarshal([]byte(it.JSON), &s.info) == nil {
			s.ours = true
		}
	}
	s.archived = s.ours && run.DisplayName != s.info.Run
}

var errNotOurs = errors.New("the row has no axis and time as ours have: the file is not one of ours")

// rowOf returns which step a row is.
func rowOf(items []wandbfile.Item) (row, error) {
	r := row{wall: math.NaN()}
	found := false
	for i := range items {
		v, ok := items[i].Number()
		if !ok {
			continue
		}
		if items[i].Key == "_timestamp" {
			r.wall = v
		}
		if a, is := axisIndex(Axis(items[i].Key)); is {
			r.axis, r.step, found = a, int64(v), true
		}
	}
	if !found || math.IsNaN(r.wall) {
		return r, errNotOurs
	}
	return r, nil
}

// create writes a run's file anew with rows, which are numbered from 0 on, and without a trailer. run's
// state is that of the new file. A file in a directory of its own comes with its directory.
func (t *WandBTracker) create(run *wbRun, path string, rows storedRows) error {
	if run.f != nil {
		run.f.Close()
		run.f = nil
	}
	state := wbState{keys: map[string]string{}}
	err := inDir(path, func(w io.Writer) error {
		out := wandbfile.NewWriter(w, 0, 0)
		err := t.fill(out, run, &state, rows, false)
		state.end, state.num = out.Offset(), out.Num()
		return err
	})
	if err != nil {
		return err
	}
	run.path, run.wbState = path, state
	return nil
}

// fill writes the head and the rows of a run.
func (t *WandBTracker) fill(out *wandbfile.Writer, run *wbRun, state *wbState, rows storedRows, archived bool) error {
	if err := out.Write(t.head(run, archived)...); err != nil {
		return err
	}
	for _, r := range rows {
		in := checked{axis: r.axis, step: r.step, wall: r.wall}
		for i := range r.items {
			it := &r.items[i]
			if _, isAxis := axisIndex(Axis(it.Key)); isAxis || strings.HasPrefix(it.Key, "_") {
				continue
			}
			if v, ok := it.Number(); ok {
				in.metrics = append(in.metrics, Metric{Key: it.Key, Value: v})
			}
		}
		w := wbRun{first: run.first, wbState: *state}
		records := w.records(&in)
		if err := out.Write(records...); err != nil {
			return err
		}
		state.advance(records)
	}
	return nil
}

// inDir writes a file whole, together with its directory when that is new.
func inDir(path string, write func(w io.Writer) error) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); err == nil {
		return replace(path, write)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), tempPrefix+"*")
	if err != nil {
		return advise(err)
	}
	err = os.Chmod(tmp, 0o755)
	if err == nil {
		err = replace(filepath.Join(tmp, filepath.Base(path)), write)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(advise(err), os.RemoveAll(tmp))
	}
	return syncDir(filepath.Dir(dir))
}

// nextAttempt makes the file of the attempt that begins with in: the rows before it. Then the file of the
// attempt that ended gets its name and its end.
func (t *WandBTracker) nextAttempt(run *wbRun, in *checked, p plan) error {
	old, err := readRun(run.path, true)
	if err != nil {
		return err
	}
	oldPath, oldAttempt, name := run.path, run.attempt, run.info.Run
	run.leave(p)
	run.info = ourInfo{Run: name, Attempt: p.attempt, Start: p.start, From: fmt.Sprintf("%s %d", axes[in.axis], in.step)}
	if err := t.create(run, t.runPath(run, in.wall), old.rows.keep(p.leaves)); err != nil {
		return err
	}
	return t.closeAttempt(oldAttempt, old, oldPath, name)
}

// closeAttempt writes the file of an earlier attempt again, with all its rows, under the attempt's name
// and ended. Its exit code says that it did not finish.
func (t *WandBTracker) closeAttempt(attempt int, s *storedRun, path, name string) error {
	run := &wbRun{info: s.info, first: s.first}
	run.info.Run, run.info.Attempt = name, attempt
	state := wbState{keys: map[string]string{}}
	err := replace(path, func(w io.Writer) error {
		out := wandbfile.NewWriter(w, 0, 0)
		if err := t.fill(out, run, &state, s.rows, true); err != nil {
			return err
		}
		return out.Write(state.trailer(s.first, 1, false)...)
	})
	if err != nil {
		return fmt.Errorf("keep attempt %d: %w", attempt, err)
	}
	if err := os.Remove(path + syncedSuffix); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
