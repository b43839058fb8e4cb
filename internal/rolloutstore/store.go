// Package rolloutstore keeps what is known of each step of each run: its record, its timeline container
// and which trackers have it, as files that FORMAT.md describes. Its entry point is [Open].
package rolloutstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Errors for errors.Is.
var (
	// ErrNotFound: there is no such run, step, attempt or container.
	ErrNotFound = errors.New("not found")
	// ErrReadOnly: the store was opened to be read.
	ErrReadOnly = errors.New("the rollout store is read-only")
	// ErrDamaged: what is on disk is not what was written.
	ErrDamaged = errors.New("damaged")
)

// Options are the choices of [Open].
type Options struct {
	// ReadOnly never writes, renames or removes anything, nor needs the directory to exist.
	ReadOnly bool
	Logger   *slog.Logger     // nil: silent
	Now      func() time.Time // nil: time.Now; for Step.Added, Publication.At and Run.Created
}

// Store is the index of runs, steps and samples. Its methods may be called from several goroutines at
// once. At most one Store that is not read-only may be open on a directory; the lock of the data
// directory is the caller's.
type Store struct {
	dir  string
	opts Options

	mu      sync.RWMutex
	runs    map[string]*run
	damaged []Damage
	dropped map[string]int

	write sync.Mutex // one change at a time, so that subscribers see them in order
	found func()     // tells tests that a step was found and its file is not open yet

	subMu  sync.Mutex
	subs   map[int]func(Change)
	nextID int
}

// run is one run in memory.
type run struct {
	Run
	dir   string
	keys  keyTable
	steps []*entry // by kind, rollout id, attempt
	cache cache
}

// Open reads the index of the store in a directory, which is DIR/rollscope/rollouts in a data
// directory. Damaged files do not fail it: they are set aside, see [Store.Damaged].
func Open(dir string, opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Store{dir: dir, opts: opts, runs: map[string]*run{}, dropped: map[string]int{}, subs: map[int]func(Change){}}
	if !opts.ReadOnly {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("rollout store: %w", err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil && !(opts.ReadOnly && errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("rollout store: %w", err)
	}
	for _, d := range list {
		if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		if err := s.openRun(d.Name()); err != nil {
			return nil, fmt.Errorf("rollout store: %w", err)
		}
	}
	return s, nil
}

// openRun reads the directory of a run.
func (s *Store) openRun(name string) error {
	r := &run{dir: filepath.Join(s.dir, name)}
	list, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	files := map[string]fs.DirEntry{}
	for _, d := range list {
		if strings.HasPrefix(d.Name(), tempPrefix) {
			if !s.opts.ReadOnly {
				if err := os.Remove(filepath.Join(r.dir, d.Name())); err != nil {
					s.opts.Logger.Warn("cannot remove what a crash left", "err", err)
				}
			}
			continue
		}
		files[d.Name()] = d
	}
	s.readRun(r, name, files)
	if other, ok := s.runs[r.Name]; ok {
		s.damage(r.Name, r.dir, fmt.Errorf("it is the run of %s, too", other.dir), true)
		return nil
	}
	var lines int
	var sound bool
	var cached map[string]*entry
	cached, r.keys, lines, sound = readCache(cachePath(r.dir))
	r.cache = cache{path: cachePath(r.dir), keys: len(r.keys.names), lines: lines}
	known := len(cached)
	var added []*entry
	for _, d := range list {
		stem, ok := strings.CutSuffix(d.Name(), ".json")
		id, isStep := parseStem(stem)
		if !ok || !isStep || id.Attempt == Newest {
			continue
		}
		id.Run = r.Name
		e, fresh := s.openStep(r, id, d, cached[d.Name()])
		if e == nil {
			continue
		}
		if fresh {
			added = append(added, e)
		}
		r.steps = append(r.steps, e)
	}
	slices.SortFunc(r.steps, func(a, b *entry) int { return compareIDs(a.ID, b.ID) })
	s.runs[r.Name] = r
	if s.opts.ReadOnly {
		return nil
	}
	s.removeOrphans(r, files)
	live := len(r.steps)
	if !sound || len(added) > 64+live/4 || lines > 64+2*live || known > 64+2*live {
		r.cache.fresh(&r.keys, r.steps)
	} else {
		for _, e := range added {
			r.cache.add(&r.keys, e)
		}
	}
	s.cacheState(r)
	return nil
}

func (s *Store) cacheState(r *run) {
	if r.cache.err != nil {
		s.opts.Logger.Warn("the index cannot be cached; the next start is slower", "run", r.Name, "err", r.cache.err)
	}
}

// readRun reads run.json; without it the run has the name that its directory says.
func (s *Store) readRun(r *run, name string, files map[string]fs.DirEntry) {
	r.Name = name
	if n, ok := runName(name); ok {
		r.Name = n
	}
	if _, ok := files["run.json"]; !ok {
		return
	}
	path := filepath.Join(r.dir, "run.json")
	b, err := readFile(path)
	var got Run
	if err == nil {
		_, err = unseal("run", b, &got)
	}
	if err == nil && got.Name == "" {
		err = errors.New("it names no run")
	}
	if err != nil {
		s.damage(r.Name, path, err, errors.Is(err, errLater))
		return
	}
	r.Run = got
}

// openStep takes a step from the cache, or reads its record.
func (s *Store) openStep(r *run, id ID, d fs.DirEntry, c *entry) (e *entry, fresh bool) {
	path := filepath.Join(r.dir, d.Name())
	fi, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false // deleted meanwhile
	}
	if err == nil && c != nil && c.size == fi.Size() {
		same := c.mtime == fi.ModTime().UnixNano()
		if !same { // the directory was copied
			crc, err := readSum(path)
			same = err == nil && crc == c.crc
			fresh = same
			c.mtime = fi.ModTime().UnixNano()
		}
		if same {
			c.ID = id
			return c, fresh
		}
	}
	var st struct { // what the index needs of a Step
		Summary
		Metrics Metrics `json:"metrics"`
	}
	e = &entry{file: d.Name()}
	if err == nil {
		e.size, e.mtime = fi.Size(), fi.ModTime().UnixNano()
		e.crc, err = readRecord(path, &st)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		s.damage(r.Name, path, err, errors.Is(err, errLater) || errors.Is(err, fs.ErrPermission))
		return nil, false
	}
	e.Summary = st.Summary
	e.ID = id
	r.keys.fill(e, st.Metrics)
	return e, true
}

func readRecord(path string, v any) (string, error) {
	b, err := readFile(path)
	if err != nil {
		return "", err
	}
	return unseal("step", b, v)
}

// damage notes a file that cannot be read, and sets it aside unless it must stay.
func (s *Store) damage(run, path string, why error, stay bool) {
	d := Damage{Run: run, File: path, Why: why.Error()}
	if !stay && !s.opts.ReadOnly {
		to := path + damagedSuffix
		for n := 1; ; n++ {
			if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
				break
			}
			to = fmt.Sprintf("%s%s.%d", path, damagedSuffix, n)
		}
		if err := os.Rename(path, to); err != nil {
			d.Why += "; and it could not be set aside: " + err.Error()
		} else {
			d.File, d.Aside = to, true
		}
	}
	s.opts.Logger.Warn("a file of the rollout store cannot be read", "run", run, "file", d.File, "why", d.Why)
	s.damaged = append(s.damaged, d)
	s.dropped["damaged"]++
}

// removeOrphans removes containers that no record names: of a crash, or of steps that were deleted.
func (s *Store) removeOrphans(r *run, files map[string]fs.DirEntry) {
	used := make(map[string]bool, len(r.steps))
	for _, e := range r.steps {
		used[e.containerFile()] = true
	}
	unreadable := map[string]bool{} // records whose containers are kept with them
	for name := range files {
		if stem, _, ok := strings.Cut(name, ".json"); ok {
			unreadable[stem] = true
		}
	}
	for _, e := range r.steps {
		delete(unreadable, e.ID.stem())
	}
	for name := range files {
		base, ok := strings.CutSuffix(name, ".rtc")
		if !ok || used[name] {
			continue
		}
		dot := strings.LastIndexByte(base, '.')
		if dot < 0 || unreadable[base[:dot]] {
			continue
		}
		if _, isStep := parseStem(base[:dot]); !isStep {
			continue
		}
		if err := removeFile(filepath.Join(r.dir, name)); err != nil {
			s.opts.Logger.Warn("cannot remove what a crash left", "err", err)
		}
	}
}

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.RolloutID, b.RolloutID), cmp.Compare(a.Attempt, b.Attempt))
}

// Close closes what is open. The Store must not be used after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		r.cache.close()
	}
	return nil
}

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Damaged lists the files that could not be read since the start, the set-aside ones included.
func (s *Store) Damaged() []Damage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.damaged)
}

// Dropped counts by reason what is missing from lists: damaged records and containers.
func (s *Store) Dropped() map[string]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[string]int, len(s.dropped))
	for k, v := range s.dropped {
		out[k] = v
	}
	return out
}

// Runs lists the runs by name.
func (s *Store) Runs() []Run {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Run, 0, len(s.runs))
	for _, r := range s.runs {
		out = append(out, r.info())
	}
	slices.SortFunc(out, func(a, b Run) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Run returns a run, or ErrNotFound.
func (s *Store) Run(name string) (Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.runs[name]
	if !ok {
		return Run{}, fmt.Errorf("run %q: %w", name, ErrNotFound)
	}
	return r.info(), nil
}

func (r *run) info() Run {
	out := r.Run
	out.Attempts = len(r.steps)
	for i, e := range r.steps {
		out.Bytes += e.size + e.Container
		if r.newest(i) {
			out.Steps++
			if e.when().After(out.Last) {
				out.Last = e.when()
			}
		}
	}
	return out
}

// newest says whether steps[i] is the newest attempt of its step.
func (r *run) newest(i int) bool {
	return i+1 == len(r.steps) || r.steps[i+1].ID.RolloutID != r.steps[i].ID.RolloutID || r.steps[i+1].ID.Kind != r.steps[i].ID.Kind
}

// Steps lists a run's steps that the filter selects, ordered by kind, rollout id and attempt. No such
// run is an empty list.
func (s *Store) Steps(name string, f Filter) []Summary {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.runs[name]
	if !ok {
		return nil
	}
	var out []Summary
	r.each(f, func(e *entry, superseded bool) {
		sum := e.Summary
		sum.Superseded = superseded
		sum.Published = slices.Clone(sum.Published)
		out = append(out, sum)
	})
	return out
}

// each visits the entries that a filter selects.
func (r *run) each(f Filter, visit func(e *entry, superseded bool)) {
	var latest time.Time // begin of the latest step with a lower id
	var kind rollout.Kind
	for i, e := range r.steps {
		if i == 0 || e.ID.Kind != kind {
			latest, kind = time.Time{}, e.ID.Kind
		}
		newest := r.newest(i)
		superseded := !newest || latest.After(e.when())
		if (newest || f.Attempts) && f.has(&e.Summary) {
			visit(e, superseded)
		}
		begin := e.First
		if begin.IsZero() {
			begin = e.Dump.ModTime
		}
		if newest && begin.After(latest) {
			latest = begin
		}
	}
}

// Find returns the summary of a step, or ErrNotFound.
func (s *Store) Find(id ID) (Summary, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, _, err := s.find(id)
	if err != nil {
		return Summary{}, err
	}
	out := e.Summary
	s.runs[id.Run].each(Filter{Kind: []rollout.Kind{id.Kind}, From: &id.RolloutID, To: &id.RolloutID, Attempts: true}, func(other *entry, superseded bool) {
		if other == e {
			out.Superseded = superseded
		}
	})
	return out, nil
}

// Dump returns the dump that a step was read from and the version of the analysis, or ErrNotFound. It
// costs less than [Store.Find].
func (s *Store) Dump(id ID) (d Dump, analysis string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, _, err := s.find(id)
	if err != nil {
		return Dump{}, "", err
	}
	return e.Summary.Dump, e.Analysis, nil
}

// find returns the entry of a step and its place among those of the run.
func (s *Store) find(id ID) (*entry, int, error) {
	r, ok := s.runs[id.Run]
	if !ok {
		return nil, 0, fmt.Errorf("run %q: %w", id.Run, ErrNotFound)
	}
	i, found := r.place(id)
	if !found {
		return nil, 0, fmt.Errorf("step %s: %w", id, ErrNotFound)
	}
	return r.steps[i], i, nil
}

// place is where a step is, or would be. For the newest attempt it is that of the last one.
func (r *run) place(id ID) (int, bool) {
	if id.Attempt != Newest {
		return slices.BinarySearchFunc(r.steps, id, func(e *entry, id ID) int { return compareIDs(e.ID, id) })
	}
	id.Attempt = int(^uint(0) >> 1)
	i, _ := slices.BinarySearchFunc(r.steps, id, func(e *entry, id ID) int { return compareIDs(e.ID, id) })
	if i > 0 && r.steps[i-1].ID.Kind == id.Kind && r.steps[i-1].ID.RolloutID == id.RolloutID {
		return i - 1, true
	}
	return i, false
}

// Step reads the whole record of a step. A record that is no longer what was written is ErrDamaged.
func (s *Store) Step(id ID) (Step, error) {
	var st Step
	var path string
	e, err := s.openFile(id, func(dir string, e *entry) error {
		st, path = Step{}, filepath.Join(dir, e.file)
		_, err := readRecord(path, &st)
		return err
	})
	switch {
	case e == nil:
		return Step{}, err
	case err != nil:
		return Step{}, fmt.Errorf("step %s: %w: %s: %w", e.ID, ErrDamaged, path, err)
	}
	sum, err := s.Find(e.ID)
	if err != nil && id.Attempt == Newest { // it was, and another one is now
		return s.Step(id)
	}
	if err != nil {
		return Step{}, err
	}
	st.ID, st.Superseded = sum.ID, sum.Superseded
	return st, nil
}

// openFile finds a step and has open read or open one of its files. A file that is not there was deleted or
// replaced since the step was found, and the step is looked for again; when it is the same still, somebody
// took the file away. The entry is nil when there is no such step.
func (s *Store) openFile(id ID, open func(dir string, e *entry) error) (*entry, error) {
	var last *entry
	var failed error
	for {
		s.mu.RLock()
		e, _, err := s.find(id)
		var dir string
		if err == nil {
			dir = s.runs[id.Run].dir
		}
		s.mu.RUnlock()
		switch {
		case err != nil:
			return nil, err
		case e == last:
			return e, failed
		}
		if s.found != nil {
			s.found()
		}
		if failed = open(dir, e); !errors.Is(failed, fs.ErrNotExist) {
			return e, failed
		}
		last = e
	}
}

// Subscribe calls fn after each change, in order, from the goroutine that made it, until cancel is
// called. fn must not change the store.
func (s *Store) Subscribe(fn func(Change)) (cancel func()) {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	id := s.nextID
	s.nextID++
	s.subs[id] = fn
	return func() {
		s.subMu.Lock()
		defer s.subMu.Unlock()
		delete(s.subs, id)
	}
}

func (s *Store) tell(c Change) {
	s.subMu.Lock()
	ids := make([]int, 0, len(s.subs))
	for id := range s.subs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	fns := make([]func(Change), len(ids))
	for i, id := range ids {
		fns[i] = s.subs[id]
	}
	s.subMu.Unlock()
	for _, fn := range fns {
		fn(c)
	}
}

// Container opens the timeline container of a step. ErrNotFound when it has none.
func (s *Store) Container(id ID) (*Container, error) {
	var f *os.File
	e, err := s.openFile(id, func(dir string, e *entry) (err error) {
		if e.Container > 0 {
			f, err = os.Open(filepath.Join(dir, e.containerFile()))
		}
		return err
	})
	switch {
	case e == nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("timeline of step %s: %w: %w", e.ID, ErrDamaged, err)
	case f == nil:
		return nil, fmt.Errorf("step %s has no timeline: %w", e.ID, ErrNotFound)
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() != e.Container {
		err = fmt.Errorf("it has %d bytes instead of %d", fi.Size(), e.Container)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("timeline of step %s: %w: %s: %w", e.ID, ErrDamaged, f.Name(), err), f.Close())
	}
	return &Container{f: f, size: e.Container, want: e.Sum, sum: newSum()}, nil
}

// Container is an open timeline container. Reading it from begin to end checks it: the last Read is
// ErrDamaged instead of io.EOF when it is not what was written. ReadAt does not check. Close it.
type Container struct {
	f    *os.File
	size int64
	at   int64
	want string
	sum  interface {
		io.Writer
		Sum32() uint32
	}
}

// Size is in bytes.
func (c *Container) Size() int64 { return c.size }

// Read implements io.Reader.
func (c *Container) Read(b []byte) (int, error) {
	n, err := c.f.Read(b)
	c.at += int64(n)
	_, _ = c.sum.Write(b[:n]) // a checksum takes every write
	if err == io.EOF && (c.at != c.size || sumOf(c.sum.Sum32()) != c.want) {
		err = fmt.Errorf("%s: %w: its checksum is %s instead of %s", c.f.Name(), ErrDamaged, sumOf(c.sum.Sum32()), c.want)
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (c *Container) ReadAt(b []byte, off int64) (int, error) { return c.f.ReadAt(b, off) }

// Close implements io.Closer.
func (c *Container) Close() error { return c.f.Close() }

// Keys lists the metrics that steps of a run have, sorted, with their units.
func (s *Store) Keys(name string) (keys, units []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.runs[name]
	if !ok {
		return nil, nil
	}
	used := make([]bool, len(r.keys.names))
	for _, e := range r.steps {
		for i, st := range e.states {
			used[i] = used[i] || st != Missing
		}
	}
	order := make([]int, 0, len(used))
	for i, u := range used {
		if u {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(r.keys.names[a], r.keys.names[b]) })
	for _, i := range order {
		keys, units = append(keys, r.keys.names[i]), append(units, r.keys.units[i])
	}
	return keys, units
}

// Curve is metrics over steps: Points[i][k] is the k-th key's point at Steps[i].
type Curve struct {
	Keys  []string
	Units []string // "" where no step has the key
	Steps []Summary
	// Points[i][k] is of step i and key k.
	Points [][]Point
}

// Point is a metric's value at a step. Value is 0 unless State is Value or Partial.
type Point struct {
	Value float64
	State MetricState
}

// Curves reads metrics over the steps that the filter selects, from memory.
func (s *Store) Curves(name string, f Filter, keys ...string) Curve {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := Curve{Keys: keys, Units: make([]string, len(keys))}
	r, ok := s.runs[name]
	if !ok {
		return c
	}
	at := make([]int, len(keys))
	for k, key := range keys {
		at[k] = -1
		if i, ok := r.keys.index[key]; ok {
			at[k], c.Units[k] = i, r.keys.units[i]
		}
	}
	r.each(f, func(e *entry, superseded bool) {
		sum := e.Summary
		sum.Superseded = superseded
		row := make([]Point, len(keys))
		for k, i := range at {
			row[k].State = Missing
			if i >= 0 {
				row[k].Value, row[k].State = e.metric(i)
			}
		}
		c.Steps, c.Points = append(c.Steps, sum), append(c.Points, row)
	})
	return c
}
