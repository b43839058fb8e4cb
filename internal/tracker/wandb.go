package tracker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/wandbfile"
)

// WandBConfig says where offline runs are written and what they are called.
type WandBConfig struct {
	// Dir gets one directory per run, offline-run-YYYYMMDD_hhmmss-ID.
	Dir string
	// Project is required. Entity is the team or user; W&B takes the uploader's default when it is empty.
	Project, Entity string
	// Group is what W&B groups runs by; the run's name when empty, so that attempts stand together.
	Group string
	Notes string
	Tags  []string
	// Config is shown as the run's configuration. Values are anything that encoding/json takes.
	Config map[string]any
}

// Limits that W&B's client checks when a run starts (wandb_settings.py), or its server when it syncs
// (maxLength of UpsertBucketInput).
const (
	maxProject     = 128
	maxTag         = 64
	maxGroup       = 128
	projectInvalid = `/\#?%:`
)

// Validate returns all that W&B would refuse, before a run starts rather than when it is synced.
func (c *WandBConfig) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("tracker: wandb: "+format, args...)) }
	if c.Dir == "" {
		fail("dir is empty: name a directory for the offline runs")
	}
	switch n := utf8.RuneCountInString(c.Project); {
	case n == 0:
		fail("project is empty")
	case n > maxProject:
		fail("project %.40q... has %d characters, W&B takes %d", c.Project, n, maxProject)
	case strings.ContainsAny(c.Project, projectInvalid):
		fail("project %q contains one of %s, which W&B does not take", c.Project, projectInvalid)
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"project", c.Project, 1 << 20}, {"entity", c.Entity, maxProject}, {"group", c.Group, maxGroup}, {"notes", c.Notes, 1 << 20}} {
		if n := utf8.RuneCountInString(f.value); n > f.limit {
			fail("%s has %d characters, W&B takes %d", f.name, n, f.limit)
		}
		if !utf8.ValidString(f.value) || f.name != "notes" && strings.ContainsFunc(f.value, isControl) {
			fail("%s %q has control characters or is not UTF-8", f.name, f.value)
		}
	}
	seen := map[string]bool{}
	for i, tag := range c.Tags {
		switch n := utf8.RuneCountInString(tag); {
		case n == 0 || n > maxTag:
			fail("tag %d %.40q has %d characters, W&B takes 1 to %d", i, tag, n, maxTag)
		case !utf8.ValidString(tag) || strings.ContainsFunc(tag, isControl):
			fail("tag %d %q has control characters or is not UTF-8", i, tag)
		case seen[tag]:
			fail("tag %q stands twice", tag)
		}
		seen[tag] = true
	}
	if _, err := c.items(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// items are the configuration as a run record holds it, sorted by key.
func (c *WandBConfig) items() ([]wandbfile.Item, error) {
	var items []wandbfile.Item
	for _, key := range slices.Sorted(maps.Keys(c.Config)) {
		if key == "" || key == ourConfig || strings.HasPrefix(key, "_") || !utf8.ValidString(key) {
			return nil, fmt.Errorf("tracker: wandb: config key %q is taken by W&B or by us, or is not a name", key)
		}
		b, err := json.Marshal(c.Config[key])
		if err != nil {
			return nil, fmt.Errorf("tracker: wandb: config %q: %w", key, err)
		}
		items = append(items, wandbfile.Item{Key: key, JSON: string(b)})
	}
	return items, nil
}

// WandBTracker writes offline runs that `wandb sync` uploads: DIR/offline-run-YYYYMMDD_hhmmss-ID/run-ID.wandb.
// The id is derived from entity, project, run and attempt, the time from the first step, so the same
// steps make the same bytes. Each step is one history row that holds its axis; W&B's own row number only
// ever grows, so that steps of several axes interleave and none is dropped.
type WandBTracker struct {
	counter
	cfg    WandBConfig
	config []wandbfile.Item
	opts   Options
	open   func(path string) (file, error)

	mu     sync.Mutex
	lock   *lock
	runs   map[string]*wbRun
	closed bool
}

// wbRun is an open run.
type wbRun struct {
	*ledger
	info  ourInfo
	path  string // of the .wandb file; empty before the first step
	first float64
	wbState
	f file
	w *wandbfile.Writer
}

// wbState is what a writer must know of the rows before.
type wbState struct {
	next int64 // _step of the next row
	num  int64 // records in the file, without the trailer
	end  int64 // bytes in the file, without the trailer
	// whole says that the file ends with its trailer: summary, exit, footer.
	whole bool
	keys  map[string]string // the last value of each key, as JSON
	last  float64           // time of the last row
}

// ourInfo is the configuration value by which our runs are known again.
type ourInfo struct {
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	// Start is when the attempt began, as the bits of its seconds are written in a row; From says where.
	Start float64 `json:"start,omitempty"`
	From  string  `json:"from,omitempty"`
}

const ourConfig = "rollscope"

// WandB returns a tracker that writes offline runs below cfg.Dir, which it makes.
func WandB(cfg WandBConfig, opts Options) (*WandBTracker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	items, err := cfg.items()
	if err != nil {
		return nil, err
	}
	l, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("tracker: wandb directory: %w", err)
	}
	return &WandBTracker{cfg: cfg, config: items, opts: opts, open: openAppend, lock: l, runs: map[string]*wbRun{}}, nil
}

// Log implements Tracker.
func (t *WandBTracker) Log(ctx context.Context, s Step) error {
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
	if len(in.metrics) > 0 {
		if err := t.write(run, &in, r, p); err != nil {
			// The file is read again before the next step: what it holds is what counts.
			delete(t.runs, in.run)
			if run.f != nil {
				run.f.Close()
			}
			return fmt.Errorf("tracker: run %q: %s %d is not published: %w", in.run, axes[in.axis], in.step, advise(err))
		}
	}
	t.wrote(&in, false)
	return nil
}

func (t *WandBTracker) write(run *wbRun, in *checked, r row, p plan) error {
	switch {
	case run.path == "":
		run.first = seconds(timeOf(in.wall)) // as the run record will hold it
		if err := t.create(run, t.runPath(run, in.wall), nil); err != nil {
			return err
		}
	case p.begins:
		t.opts.logger().Info("a step was run again: a new attempt begins", "run", in.run, "attempt", p.attempt, "axis", axes[in.axis], "step", in.step)
		if err := t.nextAttempt(run, in, p); err != nil {
			return err
		}
	case p.leaves != nil || p.start != run.start:
		old, err := readRun(run.path, true)
		if err != nil {
			return err
		}
		run.leave(p)
		run.info.Start = p.start
		if err := t.create(run, run.path, old.rows.keep(p.leaves)); err != nil {
			return err
		}
	}
	if run.f == nil {
		if err := t.openFile(run); err != nil {
			return err
		}
	}
	w := run.w
	at := w.Offset()
	records := run.records(in)
	if err := w.Write(records...); err != nil {
		return errors.Join(err, run.f.Truncate(at))
	}
	run.advance(records)
	run.end, run.num = w.Offset(), w.Num()
	run.add(r)
	return nil
}

// openFile opens the file for appending where its trailer begins, and has `wandb sync` take it again.
func (t *WandBTracker) openFile(run *wbRun) error {
	f, err := t.open(run.path)
	if err != nil {
		return err
	}
	err = f.Truncate(run.end)
	if err == nil {
		_, err = f.Seek(run.end, 0)
	}
	if err == nil {
		err = os.Remove(run.path + syncedSuffix)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		f.Close()
		return err
	}
	run.whole = false
	run.f, run.w = f, wandbfile.NewWriter(f, run.end, run.num)
	return nil
}

const syncedSuffix = ".synced"

// records are what a step adds to a file: the definitions of keys that occur for the first time, then the
// row. Servers that do not expand globs themselves need the former, as W&B's own client writes them.
func (run *wbRun) records(in *checked) []*wandbfile.Record {
	var out []*wandbfile.Record
	axis := string(axes[in.axis])
	items := make([]wandbfile.Item, 0, len(in.metrics)+4)
	items = append(items, wandbfile.Item{Key: axis, JSON: strconv.FormatInt(in.step, 10)})
	for _, m := range in.metrics {
		if _, ok := run.keys[m.Key]; !ok {
			out = append(out, &wandbfile.Record{Kind: wandbfile.KindMetric, Metric: &wandbfile.Metric{Name: m.Key, StepMetric: axis, Expanded: true}})
		}
		items = append(items, wandbfile.Item{Key: m.Key, JSON: wandbfile.NumberJSON(m.Value)})
	}
	items = append(items,
		wandbfile.Item{Key: "_step", JSON: strconv.FormatInt(run.next, 10)},
		wandbfile.Item{Key: "_timestamp", JSON: wandbfile.NumberJSON(in.wall)},
		wandbfile.Item{Key: "_runtime", JSON: wandbfile.NumberJSON(max(0, in.wall-run.first))})
	return append(out, &wandbfile.Record{Kind: wandbfile.KindHistory, Items: items, Step: run.next, HasStep: true})
}

// advance takes written rows into the state.
func (s *wbState) advance(records []*wandbfile.Record) {
	for _, r := range records {
		if r.Kind != wandbfile.KindHistory {
			continue
		}
		for i := range r.Items {
			s.keys[r.Items[i].Name()] = r.Items[i].JSON
			if r.Items[i].Key == "_timestamp" {
				s.last, _ = r.Items[i].Number()
			}
		}
		s.next++
	}
}

// trailer ends a file: the last value of every key, and how the run ended.
func (s *wbState) trailer(first float64, exit int32, notComplete bool) []*wandbfile.Record {
	sum := &wandbfile.Record{Kind: wandbfile.KindSummary}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		sum.Items = append(sum.Items, wandbfile.Item{Key: key, JSON: s.keys[key]})
	}
	return []*wandbfile.Record{sum,
		{Kind: wandbfile.KindExit, ExitCode: exit, Runtime: int32(max(0, s.last-first)), NotComplete: notComplete},
		{Kind: wandbfile.KindFooter}}
}

// id is the W&B id of an attempt of a run: 10 characters of base 36.
func (t *WandBTracker) id(run string, attempt int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"rollscope", t.cfg.Entity, t.cfg.Project, run, strconv.Itoa(attempt)}, "\x00")))
	s := new(big.Int).SetBytes(sum[:8]).Text(36)
	return (strings.Repeat("0", 10) + s)[len(s):]
}

// runPath is where the file of a run whose first own step ended at wall is.
func (t *WandBTracker) runPath(run *wbRun, wall float64) string {
	id := t.id(run.info.Run, run.info.Attempt)
	return filepath.Join(t.cfg.Dir, "offline-run-"+timeOf(wall).Format("20060102_150405")+"-"+id, "run-"+id+".wandb")
}

// find returns the file of an attempt, or "".
func (t *WandBTracker) find(run string, attempt int) (string, error) {
	id := t.id(run, attempt)
	found, err := filepath.Glob(filepath.Join(globEscape(t.cfg.Dir), "offline-run-*-"+id, "run-"+id+".wandb"))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// head are the records before the first row.
func (t *WandBTracker) head(run *wbRun, archived bool) []*wandbfile.Record {
	info, err := json.Marshal(run.info)
	if err != nil {
		info = []byte("null") // a string, an int and a finite float always marshal
	}
	name, group := run.info.Run, t.cfg.Group
	if group == "" {
		group = name
	}
	if archived {
		name = fmt.Sprintf("%s (attempt %d)", name, run.info.Attempt)
	}
	out := []*wandbfile.Record{
		{Kind: wandbfile.KindHeader, Producer: "rollscope"},
		{Kind: wandbfile.KindRun, Run: &wandbfile.Run{
			ID: t.id(run.info.Run, run.info.Attempt), Entity: t.cfg.Entity, Project: t.cfg.Project, Group: group, JobType: "rollscope",
			DisplayName: name, Notes: t.cfg.Notes, Tags: t.cfg.Tags, StartTime: timeOf(run.first),
			Config: append(slices.Clone(t.config), wandbfile.Item{Key: ourConfig, JSON: string(info)}),
		}},
	}
	for _, a := range axes {
		out = append(out, &wandbfile.Record{Kind: wandbfile.KindMetric, Metric: &wandbfile.Metric{Name: string(a)}})
	}
	for _, f := range families {
		out = append(out, &wandbfile.Record{Kind: wandbfile.KindMetric, Metric: &wandbfile.Metric{Glob: f.prefix + "*", StepMetric: string(axes[f.axis])}})
	}
	return out
}

// openRun reads back what the files of a run hold, and repairs what a crash left.
func (t *WandBTracker) openRun(name string) (*wbRun, error) {
	run := &wbRun{ledger: newLedger(), info: ourInfo{Run: name}, wbState: wbState{keys: map[string]string{}}}
	var paths []string
	for k := 0; ; k++ {
		path, err := t.find(name, k)
		if err != nil {
			return nil, err
		}
		if path == "" {
			break
		}
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		return run, nil
	}
	if err := removeTemps(t.cfg.Dir); err != nil {
		return nil, advise(err)
	}
	current := len(paths) - 1
	for k, path := range paths {
		if err := removeTemps(filepath.Dir(path)); err != nil {
			return nil, advise(err)
		}
		got, err := readRun(path, false)
		if err != nil {
			return nil, err
		}
		if k < current {
			for _, r := range got.rows {
				run.archive(r.row)
			}
			if !got.archived {
				// A crash between the new attempt's file and this one's new name.
				if got, err = readRun(path, true); err != nil {
					return nil, err
				}
				if err := t.closeAttempt(k, got, path, name); err != nil {
					return nil, err
				}
			}
			continue
		}
		run.path, run.info, run.first, run.wbState = path, got.info, got.first, got.wbState
		run.info.Run, run.info.Attempt = name, k
		run.attempt, run.start = k, got.info.Start
		for _, r := range got.rows {
			run.add(r.row)
		}
		if got.damaged != nil {
			// wandb sync stops at damage, so what is appended behind it would never be uploaded.
			t.opts.logger().Warn("run file is damaged: written again with what is readable", "file", path, "kept", path+".damaged", "error", got.damaged)
			if err := copyFile(path, path+".damaged"); err != nil {
				return nil, err
			}
			if got, err = readRun(path, true); err != nil {
				return nil, err
			}
			if err := t.create(run, path, got.rows); err != nil {
				return nil, err
			}
		}
	}
	return run, nil
}

// Close implements Tracker. It ends each run that got a step; should the run go on later, the end is
// taken off again.
func (t *WandBTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.runs)) {
		if err := t.finish(t.runs[name]); err != nil {
			errs = append(errs, fmt.Errorf("tracker: run %q: end the file: %w", name, advise(err)))
		}
	}
	return errors.Join(append(errs, t.lock.release())...)
}

func (t *WandBTracker) finish(run *wbRun) error {
	if run.path == "" || run.whole && run.f == nil {
		return nil
	}
	if run.f == nil {
		if err := t.openFile(run); err != nil {
			return err
		}
	}
	at := run.w.Offset()
	err := run.w.Write(run.trailer(run.first, 0, false)...)
	if err != nil {
		err = errors.Join(err, run.f.Truncate(at))
	}
	return errors.Join(err, run.f.Sync(), run.f.Close())
}
