package eventstore

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

const (
	// rotateBytes ends a segment; it is what is deleted at once.
	rotateBytes = 16 << 20
	// The write log's own limit is never reached: rotation is decided here, where the segments are known.
	segmentLimit = 1 << 30
	// seqJump is how many numbers are left out at each start, more than any segment has rows.
	seqJump = 1 << 24
	// maxRecordLines bounds the lines of one record, unless one row alone is longer.
	maxRecordLines = 512 << 10
)

// segment is what is known of one file of the spool.
type segment struct {
	index       int
	first, last uint64 // of its rows; last < first: none
	minT, maxT  int64
	bytes       int64
	places      []place // where to begin to read, in order
}

// place is where a record begins.
type place struct {
	first uint64 // its first row
	at    int64
}

// placeBytes is how far places are from each other, at least: what is read in vain on the way to a row.
const placeBytes = 256 << 10

// note remembers where the record of a row begins, unless that is near the place before.
func (s *segment) note(first uint64, at int64) {
	if n := len(s.places); n == 0 || at-s.places[n-1].at >= placeBytes {
		s.places = append(s.places, place{first, at})
	}
}

// before is where the last record begins that is known not to lie behind that of a row.
func (s *segment) before(row uint64) int64 {
	n, _ := slices.BinarySearchFunc(s.places, row+1, func(p place, row uint64) int { return cmp.Compare(p.first, row) })
	if n == 0 {
		return 0
	}
	return s.places[n-1].at
}

func (s *segment) rows() uint64 { return s.last + 1 - s.first }

func (s *segment) add(r record) {
	if s.last < s.first {
		s.first, s.minT, s.maxT = r.first, r.minT, r.maxT
	}
	s.last = r.last()
	s.minT, s.maxT = min(s.minT, r.minT), max(s.maxT, r.maxT)
}

// spoolDamage is a place in the spool that could not be read.
type spoolDamage struct {
	file   string
	offset int
	reason string
	lost   uint64 // rows known to be missing there, 0: not known
}

// spool keeps rows on disk until the store is known to have them in files of its own.
type spool struct {
	dir    string
	fsync  bool
	logger *slog.Logger

	// Rotation excludes syncing: the write log syncs whatever segment is the last.
	rotate sync.RWMutex
	sync   sync.Mutex
	synced atomic.Uint64 // number of writes that are synced
	writes atomic.Uint64

	mu       sync.Mutex
	wl       *wlog.WL
	broken   error // why the write log takes nothing
	segments []segment
	next     uint64 // _seq of the next row
	bytes    int64
	good     int64 // length of the live segment up to the last record written whole
	enc      []byte
	reader   *segmentReader // not in use
}

// openSpool reads what is there and begins a new segment. What could not be read is returned, and is not
// an error: whatever can be read is kept.
func openSpool(dir string, fsync bool, logger *slog.Logger) (*spool, []spoolDamage, error) {
	s := &spool{dir: dir, fsync: fsync, logger: logger}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, fmt.Errorf("the spool of events: %w", err)
	}
	if err := renumber(dir, logger); err != nil {
		return nil, nil, fmt.Errorf("the spool of events: %w", err)
	}
	damage, err := s.scan()
	if err != nil {
		return nil, damage, err
	}
	ended := s.next
	if s.next == 0 {
		if s.next, err = firstSeq(); err != nil {
			return nil, damage, fmt.Errorf("the spool of events: %w", err)
		}
		ended = s.next
	} else {
		// Rows behind the last one that can be read may have been stored under the numbers that follow.
		s.next += seqJump
	}
	if err := s.begin(ended); err != nil && s.wl == nil {
		return nil, damage, fmt.Errorf("the spool of events in %s: %w", dir, err)
	}
	return s, damage, nil
}

// firstSeq is where a new spool begins to count: anywhere, so that the rows of two of them in one store
// are not taken for each other.
func firstSeq() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return seqMin + binary.BigEndian.Uint64(b[:])%(seqMax/2), nil
}

// files are the segments in a directory, in order of their numbers and then names.
func files(dir string) ([]string, []int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	type file struct {
		name string
		n    int
	}
	var list []file
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 && !e.IsDir() {
			list = append(list, file{e.Name(), n})
		}
	}
	slices.SortStableFunc(list, func(a, b file) int { return a.n - b.n })
	var names []string
	var numbers []int
	for _, f := range list {
		names, numbers = append(names, f.name), append(numbers, f.n)
	}
	return names, numbers, nil
}

// renumber closes gaps in the numbers of segments, which the write log would refuse to open. The rows
// have numbers of their own, so the names of files do not matter.
func renumber(dir string, logger *slog.Logger) error {
	names, numbers, err := files(dir)
	if err != nil || len(names) == 0 {
		return err
	}
	straight := true
	for i := range names {
		straight = straight && numbers[i] == numbers[0]+i && names[i] == filepath.Base(wlog.SegmentName(dir, numbers[i]))
	}
	if straight {
		return nil
	}
	logger.Warn("segments of the spool are missing or there twice; they are numbered anew", "dir", dir, "segments", len(names))
	// Into a free range, so that no name is taken while the files are moved.
	free := numbers[len(numbers)-1] + 1
	for i, name := range names {
		if err := os.Rename(filepath.Join(dir, name), wlog.SegmentName(dir, free+i)); err != nil {
			return err
		}
	}
	return nil
}

// scan reads all segments and notes what they hold.
func (s *spool) scan() ([]spoolDamage, error) {
	names, numbers, err := files(s.dir)
	if err != nil {
		return nil, fmt.Errorf("the spool of events: %w", err)
	}
	var damage []spoolDamage
	var last uint64 // of all rows so far
	var path string
	r := newSegmentReader(nil, 0, func(offset int, reason string) {
		damage = append(damage, spoolDamage{file: path, offset: offset, reason: reason})
	})
	for i, name := range names {
		path = filepath.Join(s.dir, name)
		f, size, err := openSegment(path)
		if err != nil {
			return damage, err
		}
		seg := segment{index: numbers[i], first: 1, bytes: size}
		r.reset(f, int(size), 0)
		for {
			rec, ok := r.next()
			if !ok {
				break
			}
			if rec.rows == 0 {
				if last != 0 && rec.ended > last+1 {
					damage = append(damage, spoolDamage{file: path, offset: r.pos, reason: "rows are missing before this segment", lost: rec.ended - last - 1})
				}
				last = max(last, rec.first-1)
				continue
			}
			if last != 0 && rec.first > last+1 {
				damage = append(damage, spoolDamage{file: path, offset: r.pos, reason: "rows are missing before this place", lost: rec.first - last - 1})
			}
			if rec.last() <= last {
				continue // a segment that is there twice
			}
			seg.add(rec)
			seg.note(rec.first, int64(r.record))
			last = rec.last()
		}
		_ = f.Close()
		if r.err != nil {
			return damage, fmt.Errorf("the spool of events: %s: %w", path, r.err)
		}
		s.segments = append(s.segments, seg)
		s.bytes += seg.bytes
	}
	if last != 0 {
		s.next = last + 1
	}
	return damage, nil
}

// openSegment opens a segment to be read, as long as it is now.
func openSegment(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("the spool of events: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("the spool of events: %w", err)
	}
	return f, info.Size(), nil
}

// begin starts a new segment behind the ones that are there.
func (s *spool) begin(ended uint64) error {
	index := 0
	if n := len(s.segments); n > 0 {
		index = s.segments[n-1].index + 1
	}
	wl, err := wlog.NewSize(s.logger, nil, s.dir, segmentLimit, compression.Snappy)
	if err != nil {
		return err
	}
	s.wl, s.broken = wl, nil
	return s.head(index, ended)
}

// head makes the segment of this number the live one and writes its first record.
func (s *spool) head(index int, ended uint64) error {
	s.segments = append(s.segments, segment{index: index, first: 1})
	s.good = 0
	if err := s.wl.Log(appendHead(nil, ended, s.next)); err != nil {
		s.broken = err
		return err
	}
	if s.fsync {
		if err := s.wl.Sync(); err != nil {
			return err
		}
		if err := syncDir(s.dir); err != nil {
			return err
		}
	}
	return s.measure()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (s *spool) live() *segment { return &s.segments[len(s.segments)-1] }

func (s *spool) livePath() string { return wlog.SegmentName(s.dir, s.live().index) }

func (s *spool) measure() error {
	info, err := os.Stat(s.livePath())
	if err != nil {
		return err
	}
	s.good = info.Size()
	s.bytes += s.good - s.live().bytes
	s.live().bytes = s.good
	return nil
}

// chunk is a stretch of encoded lines, not longer than a record should be.
type chunk struct {
	lines      []byte
	starts     []int // of each line
	minT, maxT int64
}

// append gives the lines their numbers and writes them; when it returns nil they survive the end of the
// process, with fsync that of the machine. accept is called with each chunk's first number, in order,
// before anybody else's rows.
func (s *spool) append(chunks []chunk, accept func(first uint64, c chunk)) error {
	s.mu.Lock()
	if s.broken != nil {
		err := s.broken
		s.mu.Unlock()
		return err
	}
	if s.live().bytes >= rotateBytes {
		if err := s.roll(); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	next := s.next
	records := make([]record, len(chunks))
	ends := make([]int, 0, len(chunks))
	s.enc = s.enc[:0]
	for i, c := range chunks {
		for n, at := range c.starts {
			putSeq(c.lines[at:], next+uint64(n))
		}
		records[i] = record{first: next, rows: len(c.starts), minT: c.minT, maxT: c.maxT, lines: c.lines}
		s.enc = appendRows(s.enc, records[i])
		ends = append(ends, len(s.enc))
		next += uint64(len(c.starts))
	}
	encoded, from := make([][]byte, len(ends)), 0
	for i, end := range ends {
		encoded[i], from = s.enc[from:end:end], end
	}
	if err := s.wl.Log(encoded...); err != nil {
		s.broken = err
		s.mu.Unlock()
		return err
	}
	if cap(s.enc) > 4*maxRecordLines {
		s.enc = nil
	}
	s.live().note(records[0].first, s.good)
	for i, r := range records {
		s.live().add(r)
		accept(r.first, chunks[i])
	}
	s.next = next
	err := s.measure()
	mine := s.writes.Add(1)
	s.mu.Unlock()
	if err != nil || !s.fsync {
		return err
	}
	return s.syncUpTo(mine)
}

// syncUpTo syncs unless somebody who waited here before did so already: one sync for all who came while
// the one before ran.
func (s *spool) syncUpTo(write uint64) error {
	s.sync.Lock()
	defer s.sync.Unlock()
	if s.synced.Load() >= write {
		return nil
	}
	s.rotate.RLock()
	defer s.rotate.RUnlock()
	upTo := s.writes.Load()
	s.mu.Lock()
	wl := s.wl
	s.mu.Unlock()
	if err := wl.Sync(); err != nil {
		return fmt.Errorf("sync of the spool: %w", err)
	}
	s.synced.Store(upTo)
	return nil
}

// roll ends the live segment. s.mu is held.
func (s *spool) roll() error {
	// A sync that runs needs s.mu only to begin; it holds rotate until it is done.
	s.mu.Unlock()
	s.rotate.Lock()
	s.mu.Lock()
	defer s.rotate.Unlock()
	if s.broken != nil {
		return s.broken
	}
	index, err := s.wl.NextSegmentSync()
	if err != nil {
		s.broken = err
		return err
	}
	return s.head(index, s.next)
}

// repair makes a write log that failed usable again: what was written of the failed record is cut off.
func (s *spool) repair() error {
	s.rotate.Lock()
	defer s.rotate.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		return nil
	}
	if s.wl != nil {
		// It writes the rest of its page first, and is to be asked again when that fails.
		if err := s.wl.Close(); err != nil {
			return err
		}
		s.wl = nil
		for i := range s.segments {
			// Only the live segment can be longer than what is known of it; a new one whose head
			// failed is empty.
			if path := wlog.SegmentName(s.dir, s.segments[i].index); i == len(s.segments)-1 {
				if err := os.Truncate(path, s.good); err != nil {
					return err
				}
			}
		}
	}
	// The number of a segment that the write log made and that is not known here is taken too.
	if _, numbers, err := files(s.dir); err == nil && len(numbers) > 0 && numbers[len(numbers)-1] > s.live().index {
		s.segments = append(s.segments, segment{index: numbers[len(numbers)-1], first: 1})
	}
	return s.begin(s.next)
}

// cut ends the live segment if it has rows, so that no later ones lie beside them, and returns the number of
// the last row so far.
func (s *spool) cut() (last uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil && s.live().rows() > 0 {
		err = s.roll()
	}
	return s.next - 1, err
}

// remove deletes the segments whose rows all are up to seq. The live one is ended first when it has more
// than spare bytes.
func (s *spool) remove(seq uint64, spare int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live := s.live(); s.broken == nil && live.rows() > 0 && live.bytes > spare && live.last <= seq {
		if err := s.roll(); err != nil {
			return err
		}
	}
	keep := s.segments[:0:0]
	for i, seg := range s.segments {
		if i == len(s.segments)-1 || seg.last > seq && seg.rows() > 0 {
			keep = append(keep, seg)
			continue
		}
		if len(keep) > 0 {
			keep = append(keep, seg) // no gaps in the numbers
			continue
		}
		if err := os.Remove(wlog.SegmentName(s.dir, seg.index)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.segments = append(keep, s.segments[i:]...)
			return err
		}
		s.bytes -= seg.bytes
	}
	s.segments = keep
	return nil
}

// span returns the time range of the rows from first to last, and whether there are any.
func (s *spool) span(first, last uint64) (minT, maxT int64, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.segments {
		seg := &s.segments[i]
		if seg.last < seg.first || seg.last < first || seg.first > last {
			continue
		}
		if !some {
			minT, maxT, some = seg.minT, seg.maxT, true
		}
		minT, maxT = min(minT, seg.minT), max(maxT, seg.maxT)
	}
	return minT, maxT, some
}

// bounds are the first and the last row in the spool and the next to come; without rows both stand
// right before that one.
func (s *spool) bounds() (first, last, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last = s.next, s.next-1
	some := false
	for i := range s.segments {
		if seg := &s.segments[i]; seg.last >= seg.first {
			if !some {
				first, some = seg.first, true
			}
			last = seg.last
		}
	}
	return first, last, s.next
}

func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// read calls fn with the records that hold rows from first to last, in order; those of the edges may hold
// more. A record's lines are valid during the call. It begins near the first row and has a record and some
// pages in memory.
func (s *spool) read(first, last uint64, fn func(record) error) error {
	s.mu.Lock()
	var todo []segment
	for _, seg := range s.segments {
		if seg.last >= seg.first && seg.last >= first && seg.first <= last {
			todo = append(todo, seg)
		}
	}
	r := s.reader
	s.reader = nil
	s.mu.Unlock()
	if r == nil {
		r = newSegmentReader(nil, 0, func(int, string) {}) // was reported when the spool was opened
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reader = r; cap(r.joined) > 2*maxRecordLines { // of one very long row
			s.reader = nil
		}
	}()
	seen := first - 1
	for i := range todo {
		var err error
		if seen, err = s.readSegment(r, &todo[i], seen, last, fn); err != nil {
			return err
		}
	}
	return nil
}

// readSegment calls fn with the records of a segment that hold rows behind seen, up to last.
func (s *spool) readSegment(r *segmentReader, seg *segment, seen, last uint64, fn func(record) error) (uint64, error) {
	path := wlog.SegmentName(s.dir, seg.index)
	f, size, err := openSegment(path)
	if err != nil {
		return seen, err
	}
	defer f.Close()
	r.reset(f, int(size), int(seg.before(seen+1)))
	for {
		rec, ok := r.next()
		if !ok && r.err != nil {
			return seen, fmt.Errorf("the spool of events: %s: %w", path, r.err)
		}
		if !ok || rec.first > last {
			return seen, nil
		}
		if rec.rows == 0 || rec.last() <= seen {
			continue
		}
		seen = rec.last()
		if err := fn(rec); err != nil {
			return seen, err
		}
		if seen >= last {
			return seen, nil
		}
	}
}

func (s *spool) close() error {
	s.rotate.Lock()
	defer s.rotate.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wl == nil {
		return nil
	}
	err := s.wl.Close()
	if err == nil && s.broken != nil {
		err = os.Truncate(s.livePath(), s.good)
	}
	s.wl, s.broken = nil, errors.New("the event store is closed")
	return err
}
