package scalars

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/tfevents"
	"github.com/rollscope/rollscope/internal/wandbfile"
)

// discover finds the run and lists its files, oldest first.
func (f *Follower) discover() ([]string, error) {
	st, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		f.dir = filepath.Dir(f.path)
		f.kind = kindEvents
		if strings.HasSuffix(f.path, ".wandb") {
			f.kind = kindWandB
		}
		return []string{f.path}, nil
	}
	if f.dir == "" {
		if err := f.choose(); err != nil || f.dir == "" {
			return nil, err
		}
	}
	if f.kind == kindWandB {
		return runFiles(f.dir)
	}
	return eventFiles(f.dir)
}

// choose picks the directory to follow: the path itself, or the newest run below it.
func (f *Follower) choose() error {
	best := int64(math.MinInt64)
	take := func(dir, kind string, files []string) {
		newest := int64(math.MinInt64)
		for _, name := range files {
			if st, err := os.Stat(name); err == nil {
				newest = max(newest, st.ModTime().UnixNano())
			}
		}
		if newest > best {
			best, f.dir, f.kind = newest, dir, kind
		}
	}
	look := func(dir string) (found bool, err error) {
		events, err := eventFiles(dir)
		if err != nil {
			return false, err
		}
		if len(events) > 0 {
			take(dir, kindEvents, events)
			return true, nil
		}
		runs, err := filesIn(dir, func(name string) bool { return strings.HasSuffix(name, ".wandb") })
		if len(runs) > 0 {
			take(dir, kindWandB, runs)
		}
		return len(runs) > 0, err
	}
	if found, err := look(f.path); found || err != nil {
		return err
	}
	seen := 0
	return filepath.WalkDir(f.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == f.path {
				return err
			}
			return nil // a directory that may not be read is not the trainer's
		}
		if !d.IsDir() || path == f.path {
			return nil
		}
		rel, _ := filepath.Rel(f.path, path)
		if seen++; seen > maxFiles || strings.Count(rel, string(filepath.Separator)) >= maxDepth || strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		_, err = look(path)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// maxDepth is how far below the path a run may lie: DIR/project/experiment/.
const maxDepth = 4

func filesIn(dir string, match func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if match(e.Name()) && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) > maxFiles {
		out = out[len(out)-maxFiles:]
	}
	return out, nil
}

// eventFiles lists event files in the order of their names, which begin with when they began.
func eventFiles(dir string) ([]string, error) {
	return filesIn(dir, func(name string) bool { return strings.Contains(name, "tfevents") && !strings.HasPrefix(name, ".") })
}

// runFiles lists the file of a W&B run directory, and those of the same run's earlier directories: a
// resumed run gets a new directory with the same id, ordered by their names' time.
func runFiles(dir string) ([]string, error) {
	own, err := filesIn(dir, func(name string) bool { return strings.HasSuffix(name, ".wandb") })
	if err != nil || len(own) == 0 {
		return own, err
	}
	name := filepath.Base(own[0])
	siblings, err := filepath.Glob(filepath.Join(escape(filepath.Dir(dir)), "*run-*", escape(name)))
	if err != nil {
		return nil, err
	}
	if !slices.Contains(siblings, own[0]) {
		return own, nil
	}
	when := func(path string) string {
		dir := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "offline-")
		return strings.TrimPrefix(dir, "run-")
	}
	slices.SortFunc(siblings, func(a, b string) int { return strings.Compare(when(a), when(b)) })
	return siblings, nil
}

func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// checkEvery is how many records are read between looks at the context.
const checkEvery = 4096

func (f *Follower) readEvents(ctx context.Context, file *os.File, src *source, id int32) error {
	if _, err := file.Seek(src.Offset, io.SeekStart); err != nil {
		return err
	}
	rd := tfevents.NewReader(bufio.NewReaderSize(file, 256<<10), tfevents.Options{Offset: src.Offset, MaxPayload: maxRecord})
	large := int64(0)
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ev, err := rd.Next()
		f.store.dropped[DroppedTooLarge] += rd.TooLarge() - large
		large = rd.TooLarge()
		var c *tfevents.CorruptError
		switch {
		case errors.As(err, &c) && c.Last:
			return nil // may be written just now: read it again at the next poll
		case errors.As(err, &c):
			f.store.dropped[DroppedCorrupt]++
			src.Offset, src.Bad = rd.Offset(), !c.Skipped
			if src.Bad {
				return c
			}
			f.warnOnce(src.Name, c)
			continue
		case err == io.EOF, errors.Is(err, tfevents.ErrCut):
			src.Offset = rd.Offset()
			return nil
		case err != nil:
			return err
		}
		src.Offset = rd.Offset()
		if !src.Started {
			src.Started, src.Began = true, ev.WallTime
		}
		if ev.Session == tfevents.SessionStart {
			f.store.cut(cut{file: id, everywhere: true, step: ev.Step, before: math.Nextafter(ev.WallTime, math.Inf(1))})
			f.store.purge(id, ev.Step)
		}
		for _, v := range ev.Values {
			f.store.add(v.Tag, slimeAxis, point{step: ev.Step, wall: ev.WallTime, value: v.Number, file: id}, f.files)
		}
	}
}

// maxRecord is the largest record that is decoded: rows of scalars, not images.
const maxRecord = 8 << 20

// purge drops what a file itself logged from step on: a session that starts again within one file.
func (s *store) purge(file int32, step int64) {
	for _, c := range s.curves {
		n := len(c.points)
		c.points = slices.DeleteFunc(c.points, func(p point) bool { return p.file == file && p.step >= step })
		if n != len(c.points) {
			s.dropped[DroppedSuperseded] += int64(n - len(c.points))
			c.measure()
		}
	}
}

func (f *Follower) readRun(ctx context.Context, file *os.File, src *source, id int32) error {
	if _, err := file.Seek(src.Offset, io.SeekStart); err != nil {
		return err
	}
	rd := wandbfile.NewReader(bufio.NewReaderSize(file, 256<<10), wandbfile.Options{Offset: src.Offset, MaxRecord: maxRecord})
	large := int64(0)
	if src.Defs == nil {
		src.Defs = map[string]string{}
	}
	var row rowReader
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		rec, err := rd.Next()
		f.store.dropped[DroppedTooLarge] += rd.TooLarge() - large
		large = rd.TooLarge()
		var c *wandbfile.CorruptError
		switch {
		case errors.As(err, &c) && c.Last:
			return nil // may be written just now: read it again at the next poll
		case errors.As(err, &c):
			f.store.dropped[DroppedCorrupt]++
			src.Offset = rd.Offset()
			f.warnOnce(src.Name, c)
			continue
		case err == io.EOF, errors.Is(err, wandbfile.ErrCut):
			src.Offset = rd.Offset()
			return nil
		case err != nil:
			src.Bad = rd.Offset() == 0 // not a run file at all
			return err
		}
		src.Offset = rd.Offset()
		switch rec.Kind {
		case wandbfile.KindRun:
			if !src.Started && !rec.Run.StartTime.IsZero() {
				src.Started, src.Began = true, float64(rec.Run.StartTime.UnixMicro())/1e6
			}
		case wandbfile.KindMetric:
			if m := rec.Metric; m.StepMetric != "" && len(src.Defs) < 4*f.opts.MaxTags {
				src.Defs[m.Name+m.Glob] = m.StepMetric
				src.axes, src.resolved = nil, nil
			}
		case wandbfile.KindHistory:
			row.take(f, src, id, rec)
		}
	}
}

// rowReader takes the points of history rows. axes are the numbers of the row at hand.
type rowReader struct {
	axes map[string]float64
}

func (r *rowReader) take(f *Follower, src *source, id int32, rec *wandbfile.Record) {
	if r.axes == nil {
		r.axes = map[string]float64{}
	}
	clear(r.axes)
	wall := src.Began
	for i := range rec.Items {
		if v, ok := rec.Items[i].Number(); ok {
			r.axes[rec.Items[i].Name()] = v
		}
	}
	if v, ok := r.axes["_timestamp"]; ok {
		wall = v
	}
	if rec.HasStep {
		r.axes["_step"] = float64(rec.Step)
	}
	if !src.Started {
		src.Started, src.Began = true, wall
	}
	for i := range rec.Items {
		it := &rec.Items[i]
		name := it.Name()
		v, ok := it.Number()
		if !ok || strings.HasPrefix(name, "_") || src.isAxis(name) {
			continue
		}
		axis := src.axisOf(name)
		if axis == "" {
			// Nothing is declared: slime's axis where the row has it, else the number of the row.
			if axis = slimeAxis(name); axis == name {
				continue
			}
			if _, ok := r.axes[axis]; !ok {
				axis = "_step"
			}
		}
		step, ok := r.axes[axis]
		if !ok || step != math.Trunc(step) || math.Abs(step) > 1<<53 {
			f.store.dropped[DroppedNoAxis]++
			continue
		}
		f.store.add(name, func(string) string { return axis }, point{step: int64(step), wall: wall, value: v, file: id}, f.files)
	}
}

func (s *source) isAxis(name string) bool {
	if s.axes == nil {
		s.axes = map[string]bool{}
		for _, axis := range s.Defs {
			s.axes[axis] = true
		}
	}
	return s.axes[name]
}

// axisOf returns the declared axis of a key, or "": its own definition, else that of the longest matching glob.
func (s *source) axisOf(name string) string {
	if axis, ok := s.Defs[name]; ok {
		return axis
	}
	axis, ok := s.resolved[name]
	if ok {
		return axis
	}
	best := -1
	for glob, step := range s.Defs {
		if prefix, isGlob := strings.CutSuffix(glob, "*"); isGlob && strings.HasPrefix(name, prefix) && len(prefix) > best {
			best, axis = len(prefix), step
		}
	}
	if s.resolved == nil {
		s.resolved = map[string]string{}
	}
	if len(s.resolved) < maxResolved {
		s.resolved[strings.Clone(name)] = axis
	}
	return axis
}

const maxResolved = 1 << 14
