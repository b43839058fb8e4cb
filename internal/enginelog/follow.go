package enginelog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// Sink takes records. When it returns nil they are safe: the cursors of the files move on only then. It is
// called again with the same rows until it returns nil or an error that is [ErrRefused]. It must copy
// what it keeps.
type Sink func(ctx context.Context, rows []event.Row, obs []request.Observation) error

// ErrRefused is wrapped by errors of a Sink for rows that it will never take: they are dropped and counted.
var ErrRefused = errors.New("refused for good")

// Source is log files to follow.
type Source struct {
	// Path is a glob, or "-" for FollowOptions.Stdin.
	Path string
	// Name is the field source of the rows; "": the file's path.
	Name            string
	Engine, Service string
	// Zone is that of times without one; nil: learned while following.
	Zone *time.Location
	// Rotated also reads files that the glob matches and that end in .gz, each once.
	Rotated bool
	// FromEnd begins at the end of files that are there when they are seen for the first time.
	FromEnd  bool
	EngineOf func(actor, pid, ip string) string
}

// FollowOptions are what a Follower is made of. Sources and Sink are required.
type FollowOptions struct {
	Sources []Source
	Sink    Sink
	// Steps gets the metrics of steps that lines printed, before Sink gets their rows; nil: they are only
	// rows.
	Steps    func(ctx context.Context, source string, s []Step) error
	StateDir string    // where cursors are kept over a restart; "": nowhere, files are read from their start
	Stdin    io.Reader // of the source "-"; closed at the end when it is a Closer
	Counts   *Counts   // nil: one of its own, see Follower.Counts
	Logger   *slog.Logger

	Poll     time.Duration // between two looks at the files that are followed; 0: 250 ms
	Rescan   time.Duration // between two evaluations of the globs; 0: 2 s
	Partial  time.Duration // how long the rest of a line, or of a file's begin, is waited for; 0: 5 s
	Drain    time.Duration // how long a file that lost its name is read on after its last growth; 0: 30 s
	MaxFiles int           // followed at once; 0: 1024
	Batch    int           // rows handed over at once at most; 0: 1000

	Now   func() time.Time                     // nil: time.Now
	After func(time.Duration) <-chan time.Time // nil: time.After
}

// FileStatus is what one file is like.
type FileStatus struct {
	Path, Engine string
	State        string // following, reading (behind), done, error
	Error        string
	Offset, Size int64 // bytes taken by the sink, and there
	Lines        int64
	Last         int64 // time of the last line, ns, 0 for none
}

// Follower follows log files. Run may be called once; the other methods by any goroutine.
type Follower struct {
	o       FollowOptions
	log     *slog.Logger
	cursors *cursors
	tails   []*tail
	stdin   *stdin
	scanned time.Time
	short   map[string]time.Time // when a file was first seen that is too short to be told from a copy

	rows  []event.Row
	obs   []request.Observation
	steps []sourceStep
	bytes int

	mu     sync.Mutex
	status map[*tail]FileStatus
	drops  map[string]int64
	warned map[string]bool
}

type sourceStep struct {
	source string
	step   Step
}

// batchBytes bounds the bytes of a batch.
const batchBytes = 4 << 20

// NewFollower makes a Follower. Nothing is opened but the state.
func NewFollower(o FollowOptions) (*Follower, error) {
	if o.Sink == nil {
		return nil, errors.New("enginelog: no sink")
	}
	if len(o.Sources) == 0 {
		return nil, errors.New("enginelog: no sources")
	}
	for i, s := range o.Sources {
		if s.Path == "-" {
			if o.Stdin == nil {
				return nil, fmt.Errorf("enginelog: source %d is the standard input, and there is none", i)
			}
			continue
		}
		if _, err := filepath.Match(s.Path, ""); err != nil || s.Path == "" {
			return nil, fmt.Errorf("enginelog: source %d: the pattern %q is malformed: write a path with *, ? and [a-z]", i, s.Path)
		}
	}
	for _, d := range []struct {
		p *time.Duration
		d time.Duration
	}{{&o.Poll, 250 * time.Millisecond}, {&o.Rescan, 2 * time.Second}, {&o.Partial, 5 * time.Second}, {&o.Drain, 30 * time.Second}} {
		if *d.p <= 0 {
			*d.p = d.d
		}
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 1024
	}
	if o.Batch <= 0 {
		o.Batch = 1000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Counts == nil {
		o.Counts = NewCounts()
	}
	f := &Follower{o: o, log: o.Logger.With("component", "enginelog"), status: map[*tail]FileStatus{}, drops: map[string]int64{}, warned: map[string]bool{}, short: map[string]time.Time{}}
	c, err := loadCursors(o.StateDir)
	if c == nil {
		return nil, err
	}
	if err != nil {
		f.log.Warn("cursors of log files are lost", "err", err)
	}
	f.cursors = c
	return f, nil
}

// Follow follows log files until ctx ends, which it returns as nil, or the standard input when there is
// nothing else.
func Follow(ctx context.Context, o FollowOptions) error {
	f, err := NewFollower(o)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// Counts returns the counters of what was read, a Prometheus collector.
func (f *Follower) Counts() *Counts { return f.o.Counts }

// Drops returns what was not kept, by reason.
func (f *Follower) Drops() []Drop {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := maps.Clone(f.drops)
	f.o.Counts.mu.Lock()
	m[DropUncounted] += f.o.Counts.over
	f.o.Counts.mu.Unlock()
	return sortDrops(m)
}

func (f *Follower) drop(reason string, n int64) {
	f.mu.Lock()
	f.drops[reason] += n
	f.mu.Unlock()
}

// Status returns the files, by path.
func (f *Follower) Status() []FileStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Collect(maps.Values(f.status))
	slices.SortFunc(out, func(a, b FileStatus) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// warn logs once per subject.
func (f *Follower) warn(subject, msg string, args ...any) {
	if !f.warned[subject] {
		f.warned[subject] = true
		f.log.Warn(msg, args...)
	}
}

// Run follows until ctx ends. An error that ctx ended is returned as nil; a state that cannot be written
// is logged and tried again.
func (f *Follower) Run(ctx context.Context) error {
	defer f.close()
	for i := range f.o.Sources {
		if f.o.Sources[i].Path == "-" && f.stdin == nil {
			f.stdin = newStdin(f.o.Stdin)
			t := &tail{src: &f.o.Sources[i], path: "stdin", live: true, cur: &cursor{}}
			t.parser = NewParser(f.parserOptions(t, nil))
			f.stdin.tail = t
		}
	}
	for {
		worked, err := f.round(ctx)
		if err == nil {
			err = f.flush(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		f.save(false)
		if f.stdin != nil && f.stdin.ended && len(f.o.Sources) == 1 {
			return nil
		}
		if worked {
			continue
		}
		var in <-chan []byte
		if f.stdin != nil && !f.stdin.ended {
			in = f.stdin.chunks
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.o.After(f.o.Poll):
		case b, ok := <-in:
			if err := f.fromStdin(ctx, b, ok); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// round looks at everything once. worked says that there may be more to read at once.
func (f *Follower) round(ctx context.Context) (worked bool, err error) {
	now := f.o.Now()
	if f.scanned.IsZero() || now.Sub(f.scanned) >= f.o.Rescan {
		f.scan(now)
		f.scanned = now
	}
	for _, t := range f.tails {
		if ctx.Err() != nil {
			return false, nil
		}
		more, err := f.read(ctx, t, f.o.Now())
		if err != nil {
			return false, err
		}
		worked = worked || more
	}
	f.tails = slices.DeleteFunc(f.tails, func(t *tail) bool {
		if t.over {
			f.release(t)
		}
		return t.over
	})
	if f.stdin != nil && !f.stdin.ended {
		select {
		case b, ok := <-f.stdin.chunks:
			return true, f.fromStdin(ctx, b, ok)
		default:
		}
	}
	return worked, nil
}

// scan evaluates the globs and begins to follow what is new.
func (f *Follower) scan(now time.Time) {
	seen := map[*tail]bool{}
	paths := map[string]bool{}
	tooMany := int64(0)
	for i := range f.o.Sources {
		src := &f.o.Sources[i]
		if src.Path == "-" {
			continue
		}
		matches, err := filepath.Glob(src.Path)
		if err != nil {
			continue
		}
		for _, path := range matches {
			if paths[path] || strings.HasSuffix(path, ".gz") && !src.Rotated {
				continue
			}
			paths[path] = true
			fi, err := os.Stat(path)
			if err != nil || !fi.Mode().IsRegular() {
				continue
			}
			if t := f.tailOf(fi); t != nil {
				seen[t] = true
				t.path, t.cur.Path, t.cur.Seen, t.gone = path, path, now.Unix(), false
				t.grown(fi)
				continue
			}
			if len(f.tails) >= f.o.MaxFiles {
				tooMany++
				f.warn("max", "too many log files to follow at once", "max", f.o.MaxFiles, "not_followed", path)
				continue
			}
			if t := f.open(src, path, now); t != nil {
				seen[t] = true
			}
		}
	}
	f.mu.Lock()
	f.drops[DropFiles] = max(f.drops[DropFiles], tooMany)
	f.mu.Unlock()
	maps.DeleteFunc(f.short, func(path string, _ time.Time) bool { return !paths[path] })
	for _, t := range f.tails {
		if !seen[t] && !t.gone {
			t.gone = true // its name is gone or another's: read it to its end, then leave it
			t.changed = now
		}
	}
}

// tailOf finds the file that is followed already. The identity of one that is no longer open may have gone
// to another file since: that one has another size or time.
func (f *Follower) tailOf(fi os.FileInfo) *tail {
	for _, t := range f.tails {
		if os.SameFile(t.info, fi) && (t.file != nil || t.info.Size() == fi.Size() && t.info.ModTime().Equal(fi.ModTime())) {
			return t
		}
	}
	return nil
}

func (f *Follower) parserOptions(t *tail, fi os.FileInfo) Options {
	o := Options{Source: t.src.Name, Engine: t.src.Engine, Service: t.src.Service, Zone: t.src.Zone, EngineOf: t.src.EngineOf}
	if o.Source == "" {
		o.Source = t.path
	}
	if t.cur.Ahead != nil {
		d := time.Duration(*t.cur.Ahead) * time.Second
		o.Offset = &d
	}
	if fi != nil {
		o.Reference = fi.ModTime().UnixNano()
	}
	return o
}

// open begins to follow a file, where it was left.
func (f *Follower) open(src *Source, path string, now time.Time) *tail {
	file, err := os.Open(path)
	if err != nil {
		f.warn(path, "a log file cannot be opened", "path", path, "err", err)
		return nil
	}
	fi, err := file.Stat()
	if err != nil {
		file.Close()
		return nil
	}
	t := &tail{src: src, path: path, file: file, info: fi, gz: strings.HasSuffix(path, ".gz"), changed: now}
	if t.cur = f.cursors.find(path, fi, file); t.cur == nil {
		if f.copying(path, fi, file, now) {
			file.Close()
			return nil
		}
		t.cur = f.cursors.add(path, fi)
		if src.FromEnd && !t.gz && f.scanned.IsZero() {
			t.cur.Offset = lastLineEnd(file, fi.Size())
		}
	}
	delete(f.short, path)
	t.cur.taken = true
	t.cur.Path, t.cur.Seen = path, now.Unix()
	t.cur.Dev, t.cur.Ino = fileID(fi)
	t.offset = t.cur.Offset
	if t.offset > fi.Size() && !t.gz {
		t.offset = 0
	}
	t.safe = t.offset
	t.print(fi.Size())
	t.parser = NewParser(f.parserOptions(t, fi))
	if _, known := t.parser.Offset(); !known && src.Zone == nil && !t.gz {
		t.learnFromEnd(fi)
	}
	if t.gz && t.cur.Done {
		file.Close()
		t.file, t.done = nil, true
	}
	f.tails = append(f.tails, t)
	f.note(t)
	return t
}

// copying tells whether a new file is a copy of one that is followed, such as copytruncate makes before it
// cuts the file: it has the same begin, and the same end at the same place. It is left alone. When the
// other one is cut the copy is found by its begin and read on where that one was; a copy whose origin is
// never cut has nothing that was not read. A file that is too short to tell, as a copy is that was just
// created, is left alone for FollowOptions.Partial when it may be one. fi may be older than what the files
// hold now: a copy may be finished, and its origin cut, while we look.
func (f *Follower) copying(path string, fi os.FileInfo, file io.ReaderAt, now time.Time) bool {
	size := fi.Size()
	begin, end := min(size, printLength), min(size, 4096)
	if begin >= shortPrint {
		delete(f.short, path) // should it be written anew, it is waited for once more
	}
	for _, t := range f.tails {
		if t.gz || t.file == nil {
			continue
		}
		if sameBytes(file, t.file, 0, begin) && sameBytes(file, t.file, size-end, end) {
			if begin >= shortPrint {
				return true
			}
			if _, ok := f.short[path]; !ok {
				f.short[path] = now
			}
			if now.Sub(f.short[path]) < f.o.Partial {
				return true
			}
		} else if n := t.cur.PrintLength; t.cut() && (size < int64(n) || fingerprint(file, n) == t.cur.Print) {
			return true // that it was cut is noticed when it is read next, and then the copy is told by its begin
		}
	}
	return false
}

// sameBytes compares n bytes at a place of two files.
func sameBytes(a, b io.ReaderAt, at, n int64) bool {
	x, y := make([]byte, n), make([]byte, n)
	if k, _ := a.ReadAt(x, at); int64(k) < n {
		return false
	}
	if k, _ := b.ReadAt(y, at); int64(k) < n {
		return false
	}
	return bytes.Equal(x, y)
}

// release lets a file go.
func (f *Follower) release(t *tail) {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
	t.cur.taken = false
	f.mu.Lock()
	delete(f.status, t)
	f.mu.Unlock()
}

func (f *Follower) note(t *tail) {
	s := FileStatus{Path: t.path, Engine: t.src.Engine, Offset: t.cur.Offset, Size: t.size, Lines: t.lines, Last: t.last, State: "following"}
	switch {
	case t.err != "":
		s.State, s.Error = "error", t.err
	case t.done:
		s.State = "done"
	case !t.live:
		s.State = "reading"
	}
	f.mu.Lock()
	f.status[t] = s
	f.mu.Unlock()
}

// take reads one line of a file.
func (f *Follower) take(ctx context.Context, t *tail, line []byte, marks Mark, now time.Time) error {
	at := int64(0)
	if t.live {
		at = now.UnixNano()
	}
	rec, ok := t.parser.Line(line, at)
	if !ok {
		if !t.parser.Holding() {
			t.safe = t.offset
		}
		return nil
	}
	err := f.keep(ctx, t, &rec, marks, now)
	if !t.parser.Holding() {
		t.safe = t.offset
	}
	return err
}

// keep puts a record into the batch.
func (f *Follower) keep(ctx context.Context, t *tail, rec *Record, marks Mark, now time.Time) error {
	rec.Marks |= marks
	if rec.Time == 0 {
		rec.Time = now.UnixNano()
		rec.Marks |= TimeAssumed
	}
	t.lines++
	t.last = rec.Time
	f.o.Counts.AddAt(t.parser.opt.Source, rec, now.UnixNano())
	f.rows = append(f.rows, rec.Row(t.parser.opt))
	f.bytes += len(rec.Line)
	if rec.Request != nil {
		f.obs = append(f.obs, *rec.Request)
	}
	if rec.Step != nil && f.o.Steps != nil {
		f.steps = append(f.steps, sourceStep{t.parser.opt.Source, *rec.Step})
	}
	if len(f.rows) >= f.o.Batch || f.bytes >= batchBytes {
		return f.flush(ctx)
	}
	return nil
}

// flush hands the batch over and moves the cursors. It waits for a sink that does not take it: what is
// not taken is not read on, and so not lost.
func (f *Follower) flush(ctx context.Context) error {
	wait := 200 * time.Millisecond
	for len(f.steps) > 0 {
		s := f.steps[0]
		if err := f.o.Steps(ctx, s.source, []Step{s.step}); err != nil && ctx.Err() == nil {
			f.warn("steps", "metrics of a step that a log line printed were not taken", "step", s.step.Step, "group", s.step.Group, "err", err)
		}
		f.steps = f.steps[1:]
	}
	for len(f.rows) > 0 {
		err := f.o.Sink(ctx, f.rows, f.obs)
		if errors.Is(err, ErrRefused) {
			f.drop(DropRefused, int64(len(f.rows)))
			f.warn("refused", "log records were refused", "records", len(f.rows), "err", err)
			err = nil
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.warn("sink", "log records are not taken, waiting", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.o.After(wait):
		}
		wait = min(2*wait, 15*time.Second)
	}
	delete(f.warned, "sink")
	f.rows, f.obs, f.bytes = f.rows[:0], f.obs[:0], 0
	for _, t := range f.tails {
		if t.cur.Offset != t.safe || t.done != t.cur.Done {
			t.cur.Offset, t.cur.Done = t.safe, t.done
			f.cursors.dirty = true
		}
		if d, ok := t.parser.Offset(); ok && t.src.Zone == nil {
			if s := int64(d / time.Second); t.cur.Ahead == nil || *t.cur.Ahead != s {
				t.cur.Ahead = &s
				f.cursors.dirty = true
			}
		}
		f.note(t)
	}
	return nil
}

func (f *Follower) save(force bool) {
	if err := f.cursors.save(f.o.Now(), force); err != nil {
		f.warn("state", "cursors of log files cannot be written; after a restart lines come twice", "err", err)
		return
	}
	delete(f.warned, "state")
}

func (f *Follower) close() {
	f.save(true)
	for _, t := range f.tails {
		f.release(t)
	}
	if f.stdin != nil {
		f.stdin.close()
	}
}

// stdin reads the standard input in a goroutine of its own, since a read of it cannot be bounded in time.
type stdin struct {
	tail   *tail
	in     io.Reader
	chunks chan []byte
	stop   chan struct{}
	done   chan struct{}
	ended  bool
}

func newStdin(in io.Reader) *stdin {
	s := &stdin{in: in, chunks: make(chan []byte), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer close(s.chunks)
		for {
			b := make([]byte, 64<<10)
			n, err := in.Read(b)
			if n > 0 {
				select {
				case s.chunks <- b[:n]:
				case <-s.stop:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// close ends the reader. A reader that blocks in a terminal ends with the process.
func (s *stdin) close() {
	close(s.stop)
	if c, ok := s.in.(io.Closer); ok {
		c.Close()
		select {
		case <-s.done:
		case <-time.After(time.Second):
		}
	}
}

func (f *Follower) fromStdin(ctx context.Context, b []byte, ok bool) error {
	t := f.stdin.tail
	now := f.o.Now()
	if !ok {
		f.stdin.ended = true
		if len(t.buf) > 0 {
			line := t.buf
			t.buf = nil
			if err := f.take(ctx, t, line, Unterminated, now); err != nil {
				return err
			}
		}
		if rec, ok := t.parser.Flush(); ok {
			return f.keep(ctx, t, &rec, 0, now)
		}
		return nil
	}
	t.buf = append(t.buf, b...)
	t.size += int64(len(b))
	err := f.lines(ctx, t, now, func(n int) { t.offset += int64(n) })
	t.cur.Offset = t.offset
	f.note(t)
	return err
}

// lines takes the whole lines out of a file's buffer. used is told how many bytes each step consumed.
func (f *Follower) lines(ctx context.Context, t *tail, now time.Time, used func(n int)) error {
	rest := t.buf
	defer func() { t.buf = append(t.buf[:0], rest...) }()
	for {
		i := bytes.IndexByte(rest, '\n')
		switch {
		case t.skipping && i < 0:
			used(len(rest))
			rest = nil
			return nil
		case t.skipping:
			t.skipping = false
			used(i + 1)
			rest = rest[i+1:]
			continue
		case i < 0 && len(rest) <= MaxLine:
			return nil
		case i < 0 || i > MaxLine:
			f.drop(DropLineEnd, 1)
			line := rest[:MaxLine]
			used(MaxLine)
			rest = rest[MaxLine:]
			t.skipping = true
			if err := f.take(ctx, t, line, Truncated, now); err != nil {
				return err
			}
			continue
		}
		line := rest[:i]
		used(i + 1)
		rest = rest[i+1:]
		marks := Mark(0)
		if t.midLine {
			marks, t.midLine = Cut, false
		}
		if err := f.take(ctx, t, line, marks, now); err != nil {
			return err
		}
	}
}
