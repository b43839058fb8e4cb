package rolloutstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// PutRun creates a run or changes what is said about it. Its name must not be empty; what the store
// knows itself (Steps, Bytes, ...) is ignored. Created stays what it was.
func (s *Store) PutRun(info Run) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	s.write.Lock()
	defer s.write.Unlock()
	_, err := s.putRun(info)
	return err
}

func (s *Store) putRun(info Run) (*run, error) {
	if info.Name == "" || strings.ContainsRune(info.Name, 0) {
		return nil, fmt.Errorf("rollout store: %q is no name of a run", info.Name)
	}
	s.mu.RLock()
	r, ok := s.runs[info.Name]
	s.mu.RUnlock()
	fresh := !ok
	if fresh {
		r = &run{dir: filepath.Join(s.dir, dirName(info.Name))}
		r.cache.path = cachePath(r.dir)
	} else if !r.Created.IsZero() {
		info.Created = r.Created
	}
	if info.Created.IsZero() {
		info.Created = s.opts.Now()
	}
	info.Created = info.Created.UTC()
	info.Steps, info.Attempts, info.Bytes, info.Last = 0, 0, 0, time.Time{}
	b, _, err := seal("run", info)
	if err == nil {
		err = os.MkdirAll(r.dir, 0o755)
	}
	if err == nil {
		err = syncDir(s.dir)
	}
	if err == nil {
		err = writeBytes(filepath.Join(r.dir, "run.json"), b)
	}
	if err != nil {
		return nil, fmt.Errorf("rollout store: run %q: %w", info.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Run = info
	s.runs[info.Name] = r
	return r, nil
}

// Put stores a step and its timeline container (nil: it has none) and returns the step's id. The run
// is created when it is new. st.ID.Attempt is ignored: content with the fingerprint of the newest
// attempt replaces that, keeping Added and Published, any other is a new attempt.
func (s *Store) Put(st Step, container io.WriterTo) (ID, error) {
	if s.opts.ReadOnly {
		return ID{}, ErrReadOnly
	}
	if int(st.ID.Kind) >= len(kindNames) || st.ID.RolloutID < 0 {
		return ID{}, fmt.Errorf("rollout store: %s is no step", st.ID)
	}
	seen := make(map[string]bool, len(st.Metrics))
	for _, m := range st.Metrics {
		if seen[m.Key] {
			return ID{}, fmt.Errorf("rollout store: step %s has the metric %q twice", st.ID, m.Key)
		}
		seen[m.Key] = true
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.RLock()
	r, ok := s.runs[st.ID.Run]
	s.mu.RUnlock()
	if !ok || r.Created.IsZero() {
		var err error
		info := Run{Name: st.ID.Run}
		if ok {
			info = r.Run
		}
		if r, err = s.putRun(info); err != nil {
			return ID{}, err
		}
	}
	st.Added, st.Published = s.opts.Now(), nil
	st.ID.Attempt = Newest
	what := Added
	s.mu.RLock()
	var old *entry
	if i, found := r.place(st.ID); found {
		old = r.steps[i]
	}
	s.mu.RUnlock()
	switch {
	case old == nil:
		st.ID.Attempt = r.freeAttempt(st.ID, 0)
	case old.Dump.Fingerprint == st.Dump.Fingerprint && st.Dump.Fingerprint != "":
		st.ID.Attempt, what = old.ID.Attempt, Updated
		st.Added, st.Published = old.Added, slices.Clone(old.Published)
	default:
		st.ID.Attempt = r.freeAttempt(st.ID, old.ID.Attempt+1)
	}
	st.Container, st.Sum = 0, ""
	if container != nil {
		var err error
		if st.Container, st.Sum, err = writeContainer(r.dir, st.ID, container); err != nil {
			return ID{}, fmt.Errorf("rollout store: timeline of step %s: %w", st.ID, err)
		}
	}
	if err := s.putRecord(r, &st); err != nil {
		return ID{}, err
	}
	if what == Updated && old.Container > 0 && old.Sum != st.Sum {
		if err := removeFile(filepath.Join(r.dir, old.containerFile())); err != nil {
			s.opts.Logger.Warn("cannot remove a timeline that was replaced", "err", err)
		}
	}
	s.tell(Change{what, st.ID})
	return st.ID, nil
}

// freeAttempt is the first number from n on that no file has: files that were set aside keep theirs.
func (r *run) freeAttempt(id ID, n int) int {
	for ; ; n++ {
		id.Attempt = n
		taken := false
		for _, pattern := range []string{".json", ".json" + damagedSuffix} {
			_, err := os.Lstat(filepath.Join(r.dir, id.stem()+pattern))
			taken = taken || err == nil
		}
		if !taken {
			return n
		}
	}
}

// writeContainer writes a container under the name that its checksum gives it, so that the one that it
// replaces stays until the record names the new one.
func writeContainer(dir string, id ID, c io.WriterTo) (size int64, crc string, err error) {
	sum := newSum()
	path := func() string { return filepath.Join(dir, containerFile(id, sumOf(sum.Sum32()))) }
	err = writeNamed(dir, path, func(f io.Writer) error {
		count := &counter{w: io.MultiWriter(f, sum)}
		w := bufio.NewWriterSize(count, 1<<16)
		if _, err := c.WriteTo(w); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if size = count.n; size == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
	return size, sumOf(sum.Sum32()), err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// putRecord writes a record and takes it into the index.
func (s *Store) putRecord(r *run, st *Step) error {
	utc(&st.Summary)
	b, crc, err := seal("step", st)
	if err != nil {
		return fmt.Errorf("rollout store: step %s: %w", st.ID, err)
	}
	e := &entry{Summary: st.Summary, file: st.ID.stem() + ".json", size: int64(len(b)), crc: crc}
	path := filepath.Join(r.dir, e.file)
	if err := writeBytes(path, b); err != nil {
		return fmt.Errorf("rollout store: step %s: %w", st.ID, err)
	}
	if fi, err := os.Stat(path); err == nil {
		e.mtime = fi.ModTime().UnixNano()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.keys.fill(e, st.Metrics)
	i, found := r.place(st.ID)
	if found {
		r.steps[i] = e
	} else {
		r.steps = slices.Insert(r.steps, i, e)
	}
	had := r.cache.err
	if r.cache.lines == 0 || r.cache.lines > 64+2*len(r.steps) {
		r.cache.fresh(&r.keys, r.steps)
	} else {
		r.cache.add(&r.keys, e)
	}
	if had == nil {
		s.cacheState(r)
	}
	return nil
}

// utc gives all times of a summary the form in which they are stored.
func utc(s *Summary) {
	for _, t := range []*time.Time{&s.Dump.ModTime, &s.First, &s.Last, &s.Added} {
		*t = t.UTC().Round(0)
	}
	for i := range s.Published {
		s.Published[i].At = s.Published[i].At.UTC().Round(0)
	}
}

// MarkPublished notes that a tracker has a step, written to what note says. Marking again changes the
// time and the note.
func (s *Store) MarkPublished(id ID, tracker, note string) error {
	return s.update(id, func(st *Step) {
		p := Publication{Tracker: tracker, At: s.opts.Now(), Note: note}
		for i := range st.Published {
			if st.Published[i].Tracker == tracker {
				st.Published[i] = p
				return
			}
		}
		st.Published = append(st.Published, p)
	})
}

// SetDumpPlace changes where a step's dump is and its mtime, for a file that was moved or touched
// without its content changing.
func (s *Store) SetDumpPlace(id ID, path string, mtime time.Time) error {
	return s.update(id, func(st *Step) { st.Dump.Path, st.Dump.ModTime = path, mtime })
}

func (s *Store) update(id ID, change func(*Step)) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	s.write.Lock()
	defer s.write.Unlock()
	st, err := s.Step(id)
	if err != nil {
		return err
	}
	change(&st)
	s.mu.RLock()
	r := s.runs[st.ID.Run]
	s.mu.RUnlock()
	if err := s.putRecord(r, &st); err != nil {
		return err
	}
	s.tell(Change{Updated, st.ID})
	return nil
}

// Delete removes one attempt at a step; with Newest the newest, so that the one before it shows.
func (s *Store) Delete(id ID) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	s.write.Lock()
	defer s.write.Unlock()
	return s.delete(id)
}

func (s *Store) delete(id ID) error {
	s.mu.RLock()
	e, _, err := s.find(id)
	var r *run
	if err == nil {
		r, id = s.runs[id.Run], e.ID
	}
	s.mu.RUnlock()
	if err != nil {
		return err
	}
	// Out of the index first: whoever finds no file then finds no step either.
	s.mu.Lock()
	if i, found := r.place(id); found {
		r.steps = slices.Delete(r.steps, i, i+1)
	}
	s.mu.Unlock()
	if err := removeFile(filepath.Join(r.dir, e.file)); err != nil {
		s.mu.Lock()
		i, _ := r.place(id)
		r.steps = slices.Insert(r.steps, i, e)
		s.mu.Unlock()
		return fmt.Errorf("rollout store: step %s: %w", id, err)
	}
	if e.Container > 0 {
		err = removeFile(filepath.Join(r.dir, e.containerFile()))
	}
	if err == nil {
		err = syncDir(r.dir)
	}
	s.tell(Change{Deleted, id})
	if err != nil {
		return fmt.Errorf("rollout store: step %s: %w", id, err)
	}
	return nil
}

// Retention says what may be deleted; zero fields delete nothing.
type Retention struct {
	MaxAge   time.Duration // steps that ended before now minus it
	MaxBytes int64         // of all runs together; the oldest steps go first
	Attempts int           // so many attempts of a step are kept, the newest ones
}

// Prune deletes what the retention allows, the oldest steps first, and returns what it deleted.
func (s *Store) Prune(keep Retention) ([]ID, error) {
	if s.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	s.write.Lock()
	defer s.write.Unlock()
	now := s.opts.Now()
	type candidate struct {
		id    ID
		when  time.Time
		bytes int64
	}
	var all []candidate
	var drop []ID
	var total int64
	s.mu.RLock()
	for _, r := range s.runs {
		for i, e := range r.steps {
			newer := 0
			for k := i; !r.newest(k); k++ {
				newer++
			}
			c := candidate{e.ID, e.when(), e.size + e.Container}
			if keep.Attempts > 0 && newer >= keep.Attempts || keep.MaxAge > 0 && c.when.Before(now.Add(-keep.MaxAge)) {
				drop = append(drop, c.id)
				continue
			}
			all = append(all, c)
			total += c.bytes
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(drop, func(a, b ID) int {
		if c := strings.Compare(a.Run, b.Run); c != 0 {
			return c
		}
		return compareIDs(a, b)
	})
	slices.SortFunc(all, func(a, b candidate) int {
		if c := a.when.Compare(b.when); c != 0 {
			return c
		}
		if c := strings.Compare(a.id.Run, b.id.Run); c != 0 {
			return c
		}
		return compareIDs(a.id, b.id)
	})
	for i := 0; keep.MaxBytes > 0 && total > keep.MaxBytes && i < len(all); i++ {
		drop = append(drop, all[i].id)
		total -= all[i].bytes
	}
	var errs []error
	var done []ID
	for _, id := range drop {
		if err := s.delete(id); err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, id)
	}
	return done, errors.Join(errs...)
}
