package fpmbus

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
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

// TraceFilesOptions are for [NewTraceFiles].
type TraceFilesOptions struct {
	Common
	// Paths are files or patterns as of filepath.Match: /tmp/dynamo-fpm.*.jsonl.gz. Files are told to be
	// gzip by their first bytes.
	Paths []string
	// Once reads what there is and ends; else files are followed while they grow and as new ones come.
	Once  bool
	Every time.Duration // how often is looked for what is new; 0: 1 s
	// Since leaves out records that were written before, counted as "old". Zero takes all.
	Since time.Time
}

// maxTraceFiles bounds how many files one source follows.
const maxTraceFiles = 4096

type traceFiles struct {
	o     TraceFilesOptions
	m     *meter
	files map[string]*traceFile
}

// traceFile is how far a file was read.
type traceFile struct {
	info  fs.FileInfo // when it was read last
	at    int64       // in the file: behind the last whole line, or at the gzip member that is not complete
	lines int64       // of that member that were handed on
	magic bool        // it was told whether it is gzip
	gzip  bool
	bad   bool // it cannot be read on, until it is another file
}

// NewTraceFiles reads what DYN_FPM_TRACE and DYN_REQUEST_TRACE write: dynamo.fpm.trace.v1 and
// dynamo.request.trace.v1, a JSON object a line, plain or gzip. Files are read in the order of their names,
// so segments come in theirs.
func NewTraceFiles(o TraceFilesOptions) (Source, error) {
	if len(o.Paths) == 0 {
		return nil, errors.New("fpmbus: trace files need a path or a pattern")
	}
	for _, p := range o.Paths {
		if _, err := filepath.Match(p, ""); err != nil {
			return nil, fmt.Errorf("fpmbus: trace files %q: %w", p, err)
		}
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	address := strings.Join(o.Paths, ",")
	o.Common = o.Common.withDefaults(address)
	return &traceFiles{o: o, m: newMeter(o.Now, o.Name, TraceFile, address), files: map[string]*traceFile{}}, nil
}

func (t *traceFiles) Run(ctx context.Context, emit func(Message)) error {
	defer t.m.state(Ended, nil)
	for {
		n := t.scan(ctx, emit)
		if t.o.Once {
			if n == 0 && ctx.Err() == nil {
				return fmt.Errorf("fpmbus: trace files: %s matches no file that can be read", strings.Join(t.o.Paths, ", "))
			}
			return nil
		}
		if n == 0 {
			t.m.state(Missing, nil)
		} else {
			t.m.state(Listening, nil)
		}
		if !sleep(ctx, t.o.Every) {
			return nil
		}
	}
}

// scan looks at all files once and returns how many there are that can be read.
func (t *traceFiles) scan(ctx context.Context, emit func(Message)) int {
	var names []string
	for _, p := range t.o.Paths {
		found, _ := filepath.Glob(p) // the pattern was tried
		if found == nil {
			if _, err := os.Lstat(p); err == nil {
				found = []string{p} // a name with brackets in it
			}
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxTraceFiles {
		t.m.wrong(fmt.Errorf("%d files match, the last %d of them are read", len(names), maxTraceFiles))
		names = names[len(names)-maxTraceFiles:]
	}
	ok := 0
	for _, name := range names {
		if ctx.Err() != nil {
			return ok
		}
		if err := t.file(ctx, name, emit); err != nil {
			t.m.wrong(err)
			continue
		}
		ok++
	}
	for name := range t.files {
		if !slices.Contains(names, name) {
			delete(t.files, name)
		}
	}
	return ok
}

// file reads what is new in a file.
func (t *traceFiles) file(ctx context.Context, name string, emit func(Message)) error {
	in, err := os.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was rolled away while we looked
		}
		return fmt.Errorf("trace file: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("trace file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("trace file %s is no regular file", name)
	}
	f := t.files[name]
	if f == nil || !os.SameFile(f.info, info) || info.Size() < f.info.Size() {
		f = &traceFile{}
		t.files[name] = f
	} else if f.bad || info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		return nil
	}
	f.info = info
	if !f.magic {
		var head [2]byte
		n, err := in.ReadAt(head[:], 0)
		if n < 2 {
			if n == 1 || errors.Is(err, io.EOF) {
				return nil // nothing to tell by yet
			}
			return fmt.Errorf("trace file: %w", err)
		}
		f.magic, f.gzip = true, head == [2]byte{0x1f, 0x8b}
	}
	if _, err := in.Seek(f.at, io.SeekStart); err != nil {
		return fmt.Errorf("trace file: %w", err)
	}
	if f.gzip {
		return t.packed(ctx, name, f, in, emit)
	}
	return t.plain(ctx, name, f, in, emit)
}

// plain reads whole lines; a last one without its end waits, unless the file is read once.
func (t *traceFiles) plain(ctx context.Context, name string, f *traceFile, in io.Reader, emit func(Message)) error {
	l := &lines{r: bufio.NewReaderSize(countReader{in, &f.at}, 64<<10), limit: t.o.MaxMessage}
	for ctx.Err() == nil {
		read := f.at - int64(l.r.Buffered())
		line, err := l.next()
		switch {
		case errors.Is(err, errTooLarge):
			t.m.failed("too_large", fmt.Errorf("%s: %w", name, err))
			continue
		case errors.Is(err, io.EOF):
			if t.o.Once && len(line) > 0 {
				t.line(name, line, emit)
				return nil
			}
			f.at = read
			return nil
		case err != nil:
			f.at = read
			return fmt.Errorf("trace file %s at byte %d: %w", name, read, err)
		}
		if len(line) > 0 {
			t.line(name, line, emit)
		}
	}
	f.at -= int64(l.r.Buffered())
	return nil
}

// packed reads a gzip file member by member. The last may be unfinished: its whole lines are handed on,
// and it is read from its beginning when the file has grown.
func (t *traceFiles) packed(ctx context.Context, name string, f *traceFile, in io.Reader, emit func(Message)) error {
	src := &countBytes{r: bufio.NewReaderSize(in, 64<<10)}
	begin := f.at
	var z *gzip.Reader
	for ctx.Err() == nil {
		f.at = begin + src.n
		if _, err := src.r.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		var err error
		if z == nil {
			z, err = gzip.NewReader(src)
		} else {
			err = z.Reset(src)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // its header is not all there yet
		}
		if err != nil {
			f.bad = true
			t.m.drop("unreadable", 1)
			return fmt.Errorf("trace file %s at byte %d is no gzip: %w: what follows is not read", name, f.at, err)
		}
		z.Multistream(false)
		whole, err := t.member(ctx, name, f, z, emit)
		if err != nil {
			f.bad = true
			t.m.drop("unreadable", 1)
			return fmt.Errorf("trace file %s, in the gzip data from byte %d: %w: what follows is not read", name, f.at, err)
		}
		if !whole {
			return nil
		}
		f.lines = 0
	}
	return nil
}

// member hands on the lines of a member that were not yet. whole is false when the member goes on.
func (t *traceFiles) member(ctx context.Context, name string, f *traceFile, z io.Reader, emit func(Message)) (whole bool, err error) {
	l := newLines(z, t.o.MaxMessage)
	for n := int64(0); ; n++ {
		line, err := l.next()
		if errors.Is(err, errTooLarge) {
			if n >= f.lines {
				t.m.failed("too_large", fmt.Errorf("%s: %w", name, err))
				f.lines = n + 1
			}
			continue
		}
		whole = errors.Is(err, io.EOF)
		if err != nil && !whole && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if len(line) > 0 && n >= f.lines && (err == nil || whole || t.o.Once) {
			t.line(name, line, emit)
		}
		if err != nil {
			return whole, nil
		}
		f.lines = max(f.lines, n+1)
		if ctx.Err() != nil {
			return false, nil
		}
	}
}

func (t *traceFiles) line(name string, line []byte, emit func(Message)) {
	m, err := parseTraced(bytes.Clone(line)) // the payload is a part of it
	switch {
	case errors.Is(err, errOther):
		t.m.other()
		return
	case err != nil:
		t.m.failed("bad_record", fmt.Errorf("%s: %w", name, err))
		return
	case !t.o.Since.IsZero() && !m.Published.IsZero() && m.Published.Before(t.o.Since):
		t.m.drop("old", 1)
		return
	}
	m.Source, m.Kind, m.Received = t.o.Name, TraceFile, t.o.Now()
	t.m.got(m.Received, len(m.Payload))
	emit(m)
}

func (t *traceFiles) Status() []Status { return []Status{t.m.status()} }
func (t *traceFiles) Drops() []Drop    { return t.m.list() }

// countReader adds up what was read.
type countReader struct {
	r io.Reader
	n *int64
}

func (c countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// countBytes counts what gzip has used. gzip reads no byte too many from an io.ByteReader.
type countBytes struct {
	r *bufio.Reader
	n int64
}

func (c *countBytes) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countBytes) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
