// Package dumps watches directories for the rollout dumps of training runs and hands each to a handler
// once, when it is finished, oldest first; it only stats and reads. Its entry point is [New].
package dumps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// Found is a dump that is complete and at rest.
type Found struct {
	Path        string // absolute
	Run         string
	Kind        rollout.Kind
	RolloutID   int64
	Size        int64 // bytes
	ModTime     time.Time
	Fingerprint string // of the content, see [timeline.Fingerprint]
}

// Handler processes dumps. Handle is called for one dump at a time, oldest rollout id first. It must not
// change the file. An error is shown and the dump is tried again later, and soon when it changes;
// one that is torchfile.ErrIncomplete or ErrChanged says that the dump is still being written.
type Handler interface {
	Handle(ctx context.Context, f Found) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, f Found) error

// Handle implements [Handler].
func (h HandlerFunc) Handle(ctx context.Context, f Found) error { return h(ctx, f) }

// Options are what a Watcher is made of. Patterns and Handler are required.
type Options struct {
	Patterns []Pattern // as NameRuns returns them: absolute, each with a run
	Handler  Handler
	Index    Index // nil: nothing is known, and each start processes all dumps
	Logger   *slog.Logger

	Interval time.Duration // between two looks; 0 is 2 s
	// Settle is how long a dump must not have changed, over at least two looks; 0 is 4 s.
	Settle time.Duration
	// Recheck is how often a dump that was processed is looked at again for another content; 0 is 1 min.
	// The newest ones are at every look.
	Recheck time.Duration
	// Retry is the wait before a dump that failed is tried again, doubled each time up to RetryMax;
	// 0 are 5 s and 5 min.
	Retry, RetryMax time.Duration

	Now   func() time.Time                       // nil: time.Now
	After func(time.Duration) <-chan time.Time   // nil: time.After; how Run waits
	Open  func(string) (*torchfile.File, error)  // nil: torchfile.Open; opens a dump for its completeness and fingerprint
	Print func(*torchfile.File) (string, error)  // nil: timeline.Fingerprint
	Stat  func(path string) (fs.FileInfo, error) // nil: os.Stat
}

// newestAlways is how many of the newest dumps of a run are looked at every time.
const newestAlways = 16

// listAnyway is how often a directory is listed although its mtime says that nothing came or went:
// on network file systems it may be late.
const listAnyway = 30 * time.Second

// Watcher looks for dumps. Run or Look may be called by one goroutine, the other methods by any.
type Watcher struct {
	opts Options
	dirs []*dir

	mu      sync.Mutex
	files   map[string]*file // by path
	dropped map[string]int64
	counts  Counts
	lost    []Lost
}

// dir is one pattern.
type dir struct {
	Pattern
	path, prefix, suffix string
	state                string // "" fine
	mtime, listed        time.Time
	cursor               int // of the round over processed files
	steps                map[step]string
}

type step struct {
	kind rollout.Kind
	id   int64
}

// file is a dump.
type file struct {
	Found
	dir     *dir
	info    fs.FileInfo
	since   time.Time // first seen like this
	looks   int       // seen like this
	checked time.Time
	state   State
	reason  Reason
	why     string
	tries   int
	next    time.Time // not before
	done    time.Time
	alias   string // the path that has the same step
	last    string // fingerprint of what was processed last
}

// New makes a Watcher. Nothing is looked at yet.
func New(o Options) (*Watcher, error) {
	if o.Handler == nil {
		return nil, errors.New("dumps: no handler")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		p *time.Duration
		d time.Duration
	}{{&o.Interval, 2 * time.Second}, {&o.Settle, 4 * time.Second}, {&o.Recheck, time.Minute}, {&o.Retry, 5 * time.Second}, {&o.RetryMax, 5 * time.Minute}} {
		if *d.p == 0 {
			*d.p = d.d
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Open == nil {
		o.Open = func(path string) (*torchfile.File, error) { return torchfile.Open(path, nil) }
	}
	if o.Print == nil {
		o.Print = timeline.Fingerprint
	}
	if o.Stat == nil {
		o.Stat = os.Stat
	}
	w := &Watcher{opts: o, files: map[string]*file{}, dropped: map[string]int64{}}
	for _, p := range o.Patterns {
		d := &dir{Pattern: p, steps: map[step]string{}}
		var err error
		if d.path, d.prefix, d.suffix, err = p.split(); err != nil {
			return nil, fmt.Errorf("dumps: %w", err)
		}
		if p.Run == "" {
			return nil, fmt.Errorf("dumps: the run of %s has no name: see NameRuns", p.Path)
		}
		w.dirs = append(w.dirs, d)
	}
	return w, nil
}

// Run looks and hands over until the context ends, which it returns as nil.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		w.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-w.opts.After(w.opts.Interval):
		}
	}
}

// Look looks once at everything that may have changed and hands over what is ready. Handlers may take
// long: Look looks again between two of them when it is time to.
func (w *Watcher) Look(ctx context.Context) {
	last := w.opts.Now()
	w.look(last)
	for list := w.ready(); len(list) > 0 && ctx.Err() == nil; {
		w.process(ctx, list[0])
		list = list[1:]
		if now := w.opts.Now(); now.Sub(last) >= w.opts.Interval {
			last = now
			w.look(now)
			list = w.ready()
		}
	}
}

func (w *Watcher) look(now time.Time) {
	w.mu.Lock()
	w.counts.Looks++
	w.mu.Unlock()
	for _, d := range w.dirs {
		w.list(d, now)
		w.stat(d, now)
	}
}

// list finds new names in a directory.
func (w *Watcher) list(d *dir, now time.Time) {
	fi, err := w.opts.Stat(d.path)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is no directory", d.path)
	}
	var names []string
	if err == nil {
		// An mtime counts whole seconds on some systems: one that is fresh says little.
		if fi.ModTime().Equal(d.mtime) && d.listed.Sub(d.mtime) > 3*time.Second && now.Sub(d.listed) < listAnyway && now.After(d.listed) {
			return
		}
		names, err = readNames(d.path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.state = "the directory does not exist yet"
	case err != nil:
		if d.state == "" {
			w.opts.Logger.Warn("cannot list a directory of dumps", "run", d.Run, "err", err)
		}
		d.state = err.Error()
	default:
		d.state, d.mtime, d.listed = "", fi.ModTime(), now
	}
	// After an error nothing is listed: the files that are known are looked at one by one.
	for _, name := range names {
		kind, id, ok := match(name, d.prefix, d.suffix)
		path := filepath.Join(d.path, name)
		if !ok || w.files[path] != nil {
			continue
		}
		f := &file{Found: Found{Path: path, Run: d.Run, Kind: kind, RolloutID: id}, dir: d}
		if other, ok := d.steps[step{kind, id}]; ok {
			f.alias = other
		} else {
			d.steps[step{kind, id}] = path
		}
		w.files[path] = f
	}
}

// readNames lists names only: on a network file system each stat costs a round trip.
func readNames(path string) (names []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err = f.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, f.Close())
}

// stat looks at the files of a pattern: at all that are not done, at the newest, and at as many of the
// others that each gets its turn.
func (w *Watcher) stat(d *dir, now time.Time) {
	w.mu.Lock()
	var look, rest []*file
	for _, f := range w.files {
		switch {
		case f.dir != d:
		case f.state == Processed:
			rest = append(rest, f)
		default:
			look = append(look, f)
		}
	}
	slices.SortFunc(rest, byAge)
	n := max(len(rest)-newestAlways, 0)
	look = append(look, rest[n:]...)
	rest = rest[:n]
	turn := int(int64(n)*int64(w.opts.Interval)/int64(w.opts.Recheck)) + 1
	for range min(turn, n) {
		d.cursor = (d.cursor + 1) % n
		look = append(look, rest[d.cursor])
	}
	w.mu.Unlock()
	for _, f := range look {
		fi, err := w.opts.Stat(f.Path)
		w.mu.Lock()
		w.seen(f, fi, err, now)
		w.mu.Unlock()
	}
}

func byAge(a, b *file) int {
	return cmp.Or(cmp.Compare(a.RolloutID, b.RolloutID), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Path, b.Path))
}

// seen takes in what a stat said. The lock is held.
func (w *Watcher) seen(f *file, fi fs.FileInfo, err error, now time.Time) {
	f.checked = now
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.forget(f, now)
		return
	case err != nil:
		f.looks = 0
		w.fail(f, ReasonIO, err.Error(), now)
		return
	case !fi.Mode().IsRegular():
		f.info = nil
		w.fail(f, ReasonNotRegular, "it is no regular file", now)
		return
	}
	if f.info != nil && fi.Size() == f.Size && fi.ModTime().Equal(f.ModTime) && os.SameFile(f.info, fi) {
		f.looks++
		f.info = fi
		return
	}
	f.info, f.Size, f.ModTime = fi, fi.Size(), fi.ModTime()
	f.since, f.looks = now, 1
	f.state, f.reason, f.why, f.tries, f.next = Waiting, "", "", 0, time.Time{}
	f.Fingerprint = ""
	if f.alias != "" {
		w.fail(f, ReasonSameStep, "it is the same step as "+f.alias, now)
	}
}

// forget drops a file that is gone. The lock is held.
func (w *Watcher) forget(f *file, now time.Time) {
	delete(w.files, f.Path)
	k := step{f.Kind, f.RolloutID}
	if f.dir.steps[k] == f.Path {
		delete(f.dir.steps, k)
		for _, other := range w.files {
			if other.alias == f.Path {
				other.alias, other.info = "", nil // it is looked at as if it were new
				f.dir.steps[k] = other.Path
				break
			}
		}
	}
	if f.state == Processed || f.alias != "" || f.info == nil {
		return
	}
	w.dropped[string(ReasonDeleted)]++
	w.lost = append(w.lost, Lost{Path: f.Path, Run: f.Run, At: now, Why: "deleted before it was read"})
	if len(w.lost) > maxLost {
		w.lost = slices.Delete(w.lost, 0, len(w.lost)-maxLost)
	}
	w.opts.Logger.Warn("a dump was deleted before it was read", "path", f.Path)
}

// ready lists the dumps that may be processed now, oldest first.
func (w *Watcher) ready() []*file {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	var out []*file
	for _, f := range w.files {
		if f.info == nil || f.alias != "" || f.state == Processed {
			continue
		}
		if f.looks >= 2 && now.Sub(f.since) >= w.opts.Settle && !now.Before(f.next) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, byAge)
	return out
}
