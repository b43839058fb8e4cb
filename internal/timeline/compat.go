package timeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rollscope/rollscope/torchfile"
)

// CompatVersion is the cache_version of slime's viewer.
const CompatVersion = 1

// CompatOptions are the choices of [WriteCompat].
type CompatOptions struct {
	PtPath      string    // what the cache names as its dump
	GeneratedAt time.Time // when the cache was made
	TempDir     string    // for rows beyond 32 MiB until their count is known; the system's when empty
	// Digest, when not nil, is given what is written: the bytes from CompatStats.Head on, then those
	// before, since a head that is written last would need the whole file read again.
	Digest hash.Hash
	// Progress, when not nil, is called now and then with the number of samples read.
	Progress func(samples int)
}

// CompatStats says what a cache holds.
type CompatStats struct {
	Samples int   // entries of the dump
	Rows    int   // of them with a trace
	Items   int   // spans, points and orphan ends
	Events  int   // usable events
	Skipped int   // events without a finite time, or that are no dict
	Bytes   int64 // of JSON
	Head    int64 // of them, those that were written last; 0 when they were written in order
	// Mended counts samples in which something stood that makes the reference fail: its row is there.
	Mended int
}

// WriteCompat writes the cache that slime's tools/trace_timeline_viewer.py makes of a dump (its
// *.trace_timeline_cache.json), so that whatever reads those reads ours. It keeps the reference's
// choices, also where [Builder] knows better: a lane is a depth, an open span that was left captures
// what comes later, of spans with one id the last one counts, phases are laid end to end, and samples
// without a trace are left out. The output is equal to the reference's byte for byte but for
// generated_at and pt_path.
//
// Where the reference fails or writes what is no JSON, the cache is valid:
//
//   - NaN and infinities in attributes and rewards are the strings "NaN", "Infinity" and "-Infinity";
//     events at such times are left out, since nothing could be drawn or sorted.
//   - an attempt that is no number is 0; numpy and torch scalars as index or reward are numbers.
//   - span ids of any type are compared by their JSON; names that cannot be compared are ordered by it.
//   - attributes that are no dict are kept; integers of more than 4,300 digits are strings of them.
//   - cycles of parents end; nesting is followed to 500 levels, values to 16 MiB, a sample to 1 GiB, and
//     attributes are left out when the dump's are more than 64 times its size (lists that hold each
//     other many times are small in a file and endless in JSON).
//
// Rows are written in the order of the samples. Memory does not grow with the dump, though the cache's
// head counts the rows: into a regular file the head is written last, in a place kept for it (it is made
// as long as that by zeros behind generated_at); for any other writer, rows beyond 32 MiB wait in a
// temporary file. When the dump turns out to be damaged, what could be read is written, and the reader's
// error returned.
func WriteCompat(w io.Writer, f *torchfile.File, opts CompatOptions) (CompatStats, error) {
	c := NewCompat(w, f, opts)
	readErr := c.Read()
	st, err := c.Close()
	if err != nil {
		return st, err
	}
	return st, readErr
}

// Compat writes a cache as [WriteCompat] does, of entries that another pass over the dump meets: a
// gigabyte need not be read twice. [Compat.Add] renders an entry, a goroutine of its own makes the row
// of it and writes that. One goroutine at a time may use it; [Compat.Close] must be called.
type Compat struct {
	w          io.Writer
	f          *torchfile.File
	opts       CompatOptions
	place      int64 // of the head in a regular file
	stats      CompatStats
	rows       spill
	start, end float64

	reader compatReader
	fill   *compatBatch // what Add renders into
	jobs   chan *compatBatch
	free   chan *compatBatch
	done   chan struct{}
	err    error // of the rows' writer; read after done
	failed atomic.Bool
}

// NewCompat begins the cache of f.
func NewCompat(w io.Writer, f *torchfile.File, opts CompatOptions) *Compat {
	p := &Compat{
		w: w, f: f, opts: opts, rows: spill{dir: opts.TempDir, digest: opts.Digest},
		jobs: make(chan *compatBatch, 1), free: make(chan *compatBatch, 3), done: make(chan struct{}), fill: &compatBatch{},
	}
	p.reader.left = 64*f.Size() + 1<<30
	p.free <- &compatBatch{}
	p.free <- &compatBatch{}
	p.inPlace()
	go p.write()
	return p
}

// compatBatch is entries on their way: to wake the other goroutine for each would cost more than to
// make a row.
type compatBatch struct {
	jobs [32]compatJob
	n    int
	size int // bytes in the buffers
}

const compatBatchSize = 1 << 20

// Close writes what is left, and the head.
func (p *Compat) Close() (CompatStats, error) {
	p.jobs <- p.fill
	close(p.jobs)
	<-p.done
	if p.err != nil {
		p.rows.close()
		return p.stats, fmt.Errorf("keeping rows of the timeline cache: %w", p.err)
	}
	if p.rows.direct != nil {
		head := p.head(p.headSize())
		err := p.rows.flush("]}")
		if err == nil {
			_, err = p.rows.direct.WriteAt(head, p.place)
		}
		if err != nil {
			return p.stats, fmt.Errorf("writing the timeline cache: %w", err)
		}
		if p.opts.Digest != nil {
			p.opts.Digest.Write(head)
		}
		p.stats.Head = int64(len(head))
		p.stats.Bytes = p.rows.n + p.stats.Head
		return p.stats, nil
	}
	out := p.w
	if p.opts.Digest != nil {
		out = io.MultiWriter(out, p.opts.Digest)
	}
	bw := bufio.NewWriterSize(out, 1<<20)
	head := p.head(0)
	bw.Write(head)
	n, err := p.rows.copyTo(bw)
	if err == nil {
		bw.WriteString("]}")
		err = bw.Flush()
	}
	p.stats.Bytes = int64(len(head)) + n + 2
	if err != nil {
		return p.stats, fmt.Errorf("writing the timeline cache: %w", err)
	}
	return p.stats, nil
}

// compatHead is what a head takes at most, without its path: 6 bytes of the path's are written for one
// at most.
const compatHead = 256

func (p *Compat) headSize() int { return compatHead + len(p.opts.PtPath)*6 }

// inPlace prepares w for rows when it is a regular file that can be written at any place.
func (p *Compat) inPlace() {
	f, ok := p.w.(*os.File)
	if !ok {
		return
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return
	}
	// Blanks, so that what a crash leaves is no JSON. A file that only appends refuses.
	blank := bytes.Repeat([]byte{' '}, p.headSize())
	if _, err := f.WriteAt(blank, at); err != nil {
		return
	}
	if _, err := f.Seek(at+int64(len(blank)), io.SeekStart); err != nil {
		return
	}
	p.rows.direct, p.place = f, at
}

func (p *Compat) write() {
	defer close(p.done)
	var b compatBuilder
	for batch := range p.jobs {
		for i := range batch.jobs[:batch.n] {
			if p.err == nil {
				p.row(&b, &batch.jobs[i])
			}
			batch.jobs[i].reset()
		}
		batch.n, batch.size = 0, 0
		p.failed.Store(p.err != nil)
		p.free <- batch
	}
}

// row makes and writes one row.
func (p *Compat) row(b *compatBuilder, j *compatJob) {
	row := b.build(j)
	if p.stats.Rows > 0 {
		p.err = p.rows.write(comma)
	}
	if p.err == nil {
		p.err = p.rows.write(row)
	}
	if p.stats.Rows == 0 || b.start < p.start {
		p.start = b.start
	}
	if p.stats.Rows == 0 || b.end > p.end {
		p.end = b.end
	}
	p.stats.Rows++
	p.stats.Items += len(b.order)
}

var comma = []byte{','}

// head is the cache up to its rows; zeros behind generated_at make it as long as it should be.
func (p *Compat) head(length int) []byte {
	b := append([]byte(`{"cache_version":`), strconv.Itoa(CompatVersion)...)
	b = append(b, `,"pt_path":`...)
	b = appendPyQuoted(b, []byte(p.opts.PtPath))
	b = append(b, `,"generated_at":`...)
	b = appendPyFloat(b, float64(p.opts.GeneratedAt.UnixMicro())/1e6)
	at := len(b)
	b = p.headEnd(b)
	if n := length - len(b); n > 0 {
		b = slices.Insert(b, at, bytes.Repeat([]byte{'0'}, n)...)
	}
	return b
}

func (p *Compat) headEnd(b []byte) []byte {
	b = append(b, `,"sample_count":`...)
	b = strconv.AppendInt(b, int64(p.stats.Rows), 10)
	if p.stats.Rows == 0 {
		return append(b, `,"global_start":null,"global_end":null,"rows":[`...)
	}
	b = append(b, `,"global_start":`...)
	b = appendMicro(b, roundMicro(p.start))
	b = append(b, `,"global_end":`...)
	b = appendMicro(b, roundMicro(p.end))
	return append(b, `,"rows":[`...)
}

// compatFields are the keys of a sample that a row shows; metadata is looked at only for a source.
var compatFields = []string{"trace", "index", "group_index", "source", "status", "label", "reward"}

var errNotStreamed = errors.New("the list is not streamed")

// Add takes the next entry of the list that the reference visits: of data["samples"] when data is a dict
// with that key, else of data. Nothing of the entry is needed afterwards. The error is that of the rows'
// writer, which [Compat.Close] returns with more words.
func (p *Compat) Add(v torchfile.Value) error {
	if p.failed.Load() {
		return errors.New("writing the timeline cache failed")
	}
	at := p.stats.Samples
	p.stats.Samples++
	if p.opts.Progress != nil && p.stats.Samples%512 == 0 {
		p.opts.Progress(p.stats.Samples)
	}
	batch := p.fill
	j := &batch.jobs[batch.n]
	p.reader.mended = false
	ok := p.reader.sample(j, v, at)
	p.stats.Events += len(j.events)
	p.stats.Skipped += j.skipped
	if p.reader.mended {
		p.stats.Mended++
	}
	if !ok {
		j.reset()
		return nil
	}
	batch.n++
	batch.size += len(j.buf)
	if batch.n == len(batch.jobs) || batch.size >= compatBatchSize {
		p.jobs <- batch
		p.fill = <-p.free
	}
	return nil
}

// Read adds the entries of the dump that were not added yet. The error is the reader's.
func (p *Compat) Read() error {
	f, from := p.f, p.stats.Samples
	return f.Guard(func() error {
		opts := torchfile.ScanOptions{Path: []string{"samples"}, Fields: compatFields}
		n := 0
		d, err := f.Scan(opts, func(e torchfile.Element) error {
			if e.End <= 0 {
				return errNotStreamed
			}
			if n++; n > from && p.Add(e.Value) != nil {
				return torchfile.Stop
			}
			return nil
		})
		if d == nil {
			return err
		}
		if n > 0 && !errors.Is(err, torchfile.ErrOrder) {
			return err
		}
		if errors.Is(err, torchfile.ErrOrder) {
			if d, err = f.Load(torchfile.LoadOptions{Path: opts.Path, Fields: compatFields}); d == nil {
				return err
			}
		} else if errors.Is(err, errNotStreamed) || d.Cut() == nil {
			err = nil
		}
		root := d.Root()
		list := root
		if root.Kind() == torchfile.KindDict {
			if s := root.Get("samples"); s.Exists() {
				list = s
			}
		}
		switch list.Kind() {
		case torchfile.KindList, torchfile.KindTuple:
			done := p.stats.Samples
			for i, x := range list.All() {
				if i >= done && p.Add(x) != nil {
					break
				}
			}
		case torchfile.KindDict: // its keys, which are no samples
			p.stats.Samples += list.Len()
		}
		return err
	})
}

// spill keeps bytes in memory, and in a temporary file when they are many; or writes them to where they
// belong when that is known.
type spill struct {
	dir    string
	direct *os.File
	digest hash.Hash // of what is written to direct; nil for none
	mem    []byte
	f      *os.File
	n      int64
}

const spillAt = 32 << 20

func (s *spill) write(b []byte) error {
	s.n += int64(len(b))
	s.mem = append(s.mem, b...)
	limit := spillAt
	if s.f != nil || s.direct != nil {
		limit = 1 << 20
	}
	if len(s.mem) < limit {
		return nil
	}
	if s.direct != nil {
		return s.flush("")
	}
	if s.f == nil {
		f, err := os.CreateTemp(s.dir, "rollscope-timeline-*")
		if err != nil {
			return err
		}
		s.f = f
	}
	_, err := s.f.Write(s.mem)
	s.mem = s.mem[:0]
	return err
}

// flush writes what is in memory, and end, to where it belongs.
func (s *spill) flush(end string) error {
	s.n += int64(len(end))
	s.mem = append(s.mem, end...)
	if s.digest != nil {
		s.digest.Write(s.mem)
	}
	_, err := s.direct.Write(s.mem)
	s.mem = s.mem[:0]
	return err
}

func (s *spill) copyTo(w io.Writer) (int64, error) {
	defer s.close()
	if s.f != nil {
		if _, err := s.f.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
		if _, err := io.Copy(w, s.f); err != nil {
			return 0, err
		}
	}
	_, err := w.Write(s.mem)
	return s.n, err
}

func (s *spill) close() {
	if s.f != nil {
		s.f.Close()
		os.Remove(s.f.Name())
		s.f = nil
	}
	s.mem = nil
}

// finite tells whether a time can be placed.
func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
