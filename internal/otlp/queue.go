package otlp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// recordKind is what a record of the queue holds.
type recordKind uint8

const (
	traceRecord recordKind = 1
	logRecord   recordKind = 2
)

const (
	recordHeader  = 4 + 4 + 1 + 4
	segmentSuffix = ".otlp"
	cursorSuffix  = ".cursor"
)

// queue is records on disk that several readers go through, each at its own pace; QUEUE.md has the format.
// It is safe for concurrent use, each reader by one goroutine.
type queue struct {
	dir      string
	maxBytes int64 // of all segments
	segBytes int64 // of one

	mu       sync.Mutex
	file     *os.File // the last segment, open for writing
	segments []segment
	readers  []*reader
	wake     chan struct{} // closed when there is more to read
	buf      []byte
	closed   bool
}

// segment is what is known of a file.
type segment struct {
	id    int64
	size  int64
	items int64
}

// reader is one endpoint's place in the queue.
type reader struct {
	name   string
	q      *queue
	at     position // acknowledged up to here
	passed int64    // items of at's segment before at
	lost   int64    // items that went before they were read; it only grows
	out    int64    // items of the batch that is being sent, from at on
	adrift int64    // those of one whose segment went meanwhile: lost, unless they arrive
	broken int64    // segments whose rest could not be read
}

type position struct{ segment, offset int64 }

// openQueue opens or makes the queue. names are the readers'; a cursor of nobody is removed. A new reader
// begins with what comes from now on.
func openQueue(dir string, maxBytes int64, names []string) (*queue, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	q := &queue{dir: dir, maxBytes: maxBytes, segBytes: min(max(maxBytes/16, 64<<10), 64<<20), wake: make(chan struct{})}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if base, ok := strings.CutSuffix(name, cursorSuffix); ok && !slices.Contains(names, base) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("queue: the cursor of an endpoint that is gone: %w", err)
			}
		}
		base, ok := strings.CutSuffix(name, segmentSuffix)
		id, err := strconv.ParseInt(base, 10, 64)
		if !ok || err != nil || id <= 0 {
			continue
		}
		s, err := q.scan(id)
		if err != nil {
			return nil, err
		}
		q.segments = append(q.segments, s)
	}
	slices.SortFunc(q.segments, func(a, b segment) int { return int(a.id - b.id) })
	if len(q.segments) == 0 {
		q.segments = []segment{{id: 1}}
	}
	last := &q.segments[len(q.segments)-1]
	q.file, err = os.OpenFile(q.path(last.id), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if err := q.file.Truncate(last.size); err != nil { // a record that was not written whole
		return nil, errors.Join(fmt.Errorf("queue: %w", err), q.file.Close())
	}
	for _, name := range names {
		r := &reader{name: name, q: q, at: position{last.id, last.size}, passed: last.items}
		if err := r.load(); err != nil {
			return nil, errors.Join(err, q.file.Close())
		}
		q.readers = append(q.readers, r)
	}
	return q, nil
}

func (q *queue) path(id int64) string {
	return filepath.Join(q.dir, fmt.Sprintf("%010d%s", id, segmentSuffix))
}

// scan finds out how far a segment is whole.
func (q *queue) scan(id int64) (segment, error) {
	s := segment{id: id}
	f, err := os.Open(q.path(id))
	if err != nil {
		return s, fmt.Errorf("queue: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, fmt.Errorf("queue: %w", err)
	}
	var head [recordHeader]byte
	for s.size+recordHeader <= info.Size() {
		if _, err := f.ReadAt(head[:], s.size); err != nil {
			return s, fmt.Errorf("queue: %s, byte %d: %w", q.path(id), s.size, err)
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if s.size+recordHeader+n > info.Size() {
			break
		}
		s.size += recordHeader + n
		s.items += int64(binary.LittleEndian.Uint32(head[9:]))
	}
	return s, nil
}

var errQueueClosed = errors.New("the queue is closed")

// append writes a record. After an error nothing of it is there.
func (q *queue) append(kind recordKind, items int, payload []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errQueueClosed
	}
	last := &q.segments[len(q.segments)-1]
	if last.size > 0 && last.size+recordHeader+int64(len(payload)) > q.segBytes {
		if err := q.rotate(); err != nil {
			return err
		}
		last = &q.segments[len(q.segments)-1]
	}
	q.buf = binary.LittleEndian.AppendUint32(q.buf[:0], uint32(len(payload)))
	q.buf = append(q.buf, 0, 0, 0, 0, byte(kind))
	q.buf = binary.LittleEndian.AppendUint32(q.buf, uint32(items))
	q.buf = append(q.buf, payload...)
	binary.LittleEndian.PutUint32(q.buf[4:], crc32.Checksum(q.buf[8:], castagnoli()))
	if _, err := q.file.WriteAt(q.buf, last.size); err != nil {
		// The next record goes to the same place; a part of this one behind it is cut off.
		return errors.Join(fmt.Errorf("queue: %s, byte %d: %w", q.path(last.id), last.size, err), q.file.Truncate(last.size))
	}
	last.size += int64(len(q.buf))
	last.items += int64(items)
	if cap(q.buf) > 4<<20 {
		q.buf = nil
	}
	q.shrink()
	close(q.wake)
	q.wake = make(chan struct{})
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // it is made once, by the library

func (q *queue) rotate() error {
	id := q.segments[len(q.segments)-1].id + 1
	f, err := os.OpenFile(q.path(id), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666)
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	old := q.file
	q.file = f
	q.segments = append(q.segments, segment{id: id})
	if err := old.Close(); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// shrink removes what everybody has read, and the oldest segments while there is too much.
func (q *queue) shrink() {
	total := int64(0)
	for _, s := range q.segments {
		total += s.size
	}
	for len(q.segments) > 1 {
		first := q.segments[0]
		needed := false
		for _, r := range q.readers {
			needed = needed || r.at.segment <= first.id
		}
		if needed && total <= q.maxBytes {
			return
		}
		for _, r := range q.readers {
			if r.at.segment <= first.id {
				if r.at.segment == first.id {
					r.lost += first.items - r.passed - r.out
					r.adrift += r.out
				}
				r.at, r.passed, r.out = position{q.segments[1].id, 0}, 0, 0
			}
		}
		total -= first.size
		q.segments = q.segments[1:]
		_ = os.Remove(q.path(first.id)) // one that stays is read as old when the queue is opened again
	}
}

// batch is records of one kind that follow one another, and where they end.
type batch struct {
	kind  recordKind
	items int
	body  []byte // the payloads behind one another, which is one request
	count int    // records
	from  position
	to    position
}

// next waits for records behind the reader's place and returns up to maxBytes of them, at least one, and
// at most maxCount.
func (r *reader) next(ctx context.Context, maxBytes, maxCount int) (batch, error) {
	for {
		r.q.mu.Lock()
		if r.q.closed {
			r.q.mu.Unlock()
			return batch{}, errQueueClosed
		}
		r.lost += r.adrift // the batch before was given up
		r.out, r.adrift = 0, 0
		at, end, last := r.at, int64(0), false
		for i, s := range r.q.segments {
			if s.id == at.segment {
				end, last = s.size, i == len(r.q.segments)-1
			}
		}
		wake := r.q.wake
		r.q.mu.Unlock()
		if at.offset < end {
			b, err := r.read(at, end, maxBytes, maxCount)
			if err == nil {
				if !r.sending(b) {
					continue
				}
				return b, nil
			}
			r.skip(at, !errors.Is(err, os.ErrNotExist))
			continue
		}
		if !last {
			r.skip(at, false)
			continue
		}
		select {
		case <-ctx.Done():
			return batch{}, ctx.Err()
		case <-wake:
		}
	}
}

// sending notes that a batch is under way; false when its segment has gone since it was read, and it counts as
// lost.
func (r *reader) sending(b batch) bool {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	if r.at != b.from {
		return false
	}
	r.out = int64(b.items)
	return true
}

// skip goes to the next segment.
func (r *reader) skip(at position, damaged bool) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.at != at {
		return // shrink was faster
	}
	for i, s := range q.segments {
		if s.id != at.segment {
			continue
		}
		if damaged {
			r.broken++
			r.lost += s.items - r.passed
		}
		if i < len(q.segments)-1 {
			r.at = position{q.segments[i+1].id, 0}
		} else {
			r.at = position{s.id, s.size}
		}
		r.passed = 0
		if r.at.segment == s.id {
			r.passed = s.items
		}
		q.shrink()
		return
	}
	r.at, r.passed = position{q.segments[0].id, 0}, 0
}

var errDamaged = errors.New("damaged")

// read reads records of one segment.
func (r *reader) read(at position, end int64, maxBytes, maxCount int) (batch, error) {
	b := batch{from: at, to: at}
	f, err := os.Open(r.q.path(at.segment))
	if err != nil {
		return b, err
	}
	defer f.Close()
	var head [recordHeader]byte
	for at.offset < end && b.count < maxCount {
		if _, err := f.ReadAt(head[:], at.offset); err != nil {
			return b, err
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if at.offset+recordHeader+n > end {
			return b.or(errDamaged)
		}
		kind := recordKind(head[8])
		if b.count > 0 && (kind != b.kind || len(b.body)+int(n) > maxBytes) {
			break
		}
		from := len(b.body)
		b.body = slices.Grow(b.body, int(n))[:from+int(n)]
		if _, err := f.ReadAt(b.body[from:], at.offset+recordHeader); err != nil && err != io.EOF {
			return b, err
		}
		sum := crc32.Update(crc32.Checksum(head[8:], castagnoli()), castagnoli(), b.body[from:])
		if sum != binary.LittleEndian.Uint32(head[4:]) || kind != traceRecord && kind != logRecord {
			b.body = b.body[:from]
			return b.or(errDamaged)
		}
		b.kind = kind
		b.items += int(binary.LittleEndian.Uint32(head[9:]))
		b.count++
		at.offset += recordHeader + n
		b.to = at
	}
	return b, nil
}

// or is the batch when there is something in it, else the error.
func (b batch) or(err error) (batch, error) {
	if b.count > 0 {
		return b, nil
	}
	return b, err
}

// ack goes behind the batch, and writes that down. When the queue has dropped the batch meanwhile it stays
// where it is.
func (r *reader) ack(b batch) error {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.at == b.from {
		r.at = b.to
		r.passed += int64(b.items)
		q.shrink()
	}
	r.out, r.adrift = 0, 0 // it was read after all
	return r.save()
}

// save replaces the cursor's file.
func (r *reader) save() error {
	path := filepath.Join(r.q.dir, r.name+cursorSuffix)
	if err := os.WriteFile(path+".tmp", fmt.Appendf(nil, "%d %d\n", r.at.segment, r.at.offset), 0o666); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// load reads the cursor's file. One that cannot be right begins with the oldest segment: twice is better
// than never.
func (r *reader) load() error {
	data, err := os.ReadFile(filepath.Join(r.q.dir, r.name+cursorSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return r.save()
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	var at position
	if n, _ := fmt.Sscanf(string(data), "%d %d\n", &at.segment, &at.offset); n == 2 {
		for _, s := range r.q.segments {
			if s.id == at.segment && at.offset >= 0 && at.offset <= s.size {
				if passed, ok := r.q.itemsBefore(at); ok {
					r.at, r.passed = at, passed
					return nil
				}
			}
		}
	}
	r.at, r.passed = position{r.q.segments[0].id, 0}, 0
	return nil
}

// itemsBefore counts the items of a segment before an offset; false when no record begins there.
func (q *queue) itemsBefore(at position) (int64, bool) {
	if at.offset == 0 {
		return 0, true
	}
	f, err := os.Open(q.path(at.segment))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var head [recordHeader]byte
	items := int64(0)
	for off := int64(0); off < at.offset; {
		if _, err := f.ReadAt(head[:], off); err != nil {
			return 0, false
		}
		off += recordHeader + int64(binary.LittleEndian.Uint32(head[:]))
		items += int64(binary.LittleEndian.Uint32(head[9:]))
		if off == at.offset {
			return items, true
		}
	}
	return 0, false
}

// waiting is what a reader has not acknowledged.
func (r *reader) waiting() (items, bytes int64) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		switch {
		case s.id == r.at.segment:
			items += s.items - r.passed
			bytes += s.size - r.at.offset
		case s.id > r.at.segment:
			items += s.items
			bytes += s.size
		}
	}
	return items, bytes
}

// gone is what a reader never gets: items that were dropped, and segments whose rest is damaged.
func (r *reader) gone() (items, damaged int64) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	return r.lost, r.broken
}

// close ends writing and reading.
func (q *queue) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	close(q.wake)
	return q.file.Close()
}
