package holdlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// journal is one write log and what is known of its segments.
type journal struct {
	dir     string
	segment int64 // bytes that end a segment
	fsync   bool
	log     *slog.Logger

	mu      sync.Mutex
	wl      *wlog.WL
	newest  map[int]int64 // by segment: position of the newest record in it
	bytes   map[int]int64 // by segment
	total   int64
	last    int
	next    uint64 // number of the next record
	read    bool   // replay has found it
	closed  bool
	record  []byte
	damaged []string
}

func openJournal(dir string, segment int64, fsync bool, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("the log of undecided spans: %w", err)
	}
	if err := closeGaps(dir); err != nil {
		return nil, fmt.Errorf("the log of undecided spans: %w", err)
	}
	j := &journal{dir: dir, segment: segment, fsync: fsync, log: log, newest: map[int]int64{}, bytes: map[int]int64{}}
	if err := j.begin(); err != nil {
		return nil, fmt.Errorf("the log of undecided spans in %s: %w", dir, err)
	}
	return j, nil
}

// closeGaps renames segments behind a missing one, since the write log opens only what has no gap. The
// numbers of the records tell that some are missing.
func closeGaps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var have []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 {
			have = append(have, n)
		}
	}
	slices.Sort(have)
	for i := 1; i < len(have); i++ {
		if want := have[i-1] + 1; have[i] != want {
			if err := os.Rename(wlog.SegmentName(dir, have[i]), wlog.SegmentName(dir, want)); err != nil {
				return err
			}
			have[i] = want
		}
	}
	return nil
}

// begin starts a new segment behind those that are there: the end of the last one may be torn.
func (j *journal) begin() error {
	wl, err := wlog.NewSize(j.log, nil, j.dir, segmentLimit, compression.None)
	if err != nil {
		return err
	}
	if _, j.last, err = wlog.Segments(j.dir); err != nil {
		return errors.Join(err, wl.Close())
	}
	j.wl = wl
	return nil
}

// replay calls fn with each record, in order.
func (j *journal) replay(fn func(segment int, kind byte, at int64, data []byte) error) error {
	first, last, err := wlog.Segments(j.dir)
	if err != nil {
		return err
	}
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.read = true
	}()
	some, next := false, uint64(0)
	for i := first; i < max(last, j.last); i++ { // the live segment is empty
		err := j.readSegment(i, func(kind byte, number uint64, at int64, data []byte) error {
			if some && number != next {
				j.damage(i, fmt.Sprintf("records between number %d and %d are missing", next, number))
			}
			some, next = true, number+1
			j.note(i, number+1, at, int64(headBytes+len(data)))
			return fn(i, kind, at, data)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) readSegment(i int, fn func(kind byte, number uint64, at int64, data []byte) error) (err error) {
	s, err := wlog.OpenReadSegment(wlog.SegmentName(j.dir, i))
	if err != nil {
		j.damage(i, err.Error())
		return nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := wlog.NewReader(wlog.NewSegmentBufReader(s))
	for r.Next() {
		rec := r.Record()
		if len(rec) < headBytes {
			j.damage(i, "a record without a head")
			continue
		}
		if err := fn(rec[0], binary.LittleEndian.Uint64(rec[1:]), int64(binary.LittleEndian.Uint64(rec[9:])), rec[headBytes:]); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		j.damage(i, err.Error())
	}
	return nil
}

func (j *journal) damage(segment int, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := fmt.Sprintf("segment %d: %s", segment, what)
	j.damaged = append(j.damaged, at)
	j.log.Error("undecided spans of before the last stop cannot be read", "dir", j.dir, "where", at)
}

func (j *journal) damages() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.damaged)
}

func (j *journal) note(segment int, next uint64, at, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next = next
	j.newest[segment] = max(j.newest[segment], at)
	j.bytes[segment] += bytes
	j.total += bytes
}

func (j *journal) write(kind byte, at int64, body func([]byte) []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed { // the directory may be another process's
		return errors.New("the log of undecided spans is closed")
	}
	if !j.read {
		return errors.New("the log of undecided spans was not read yet: what it has would be lost")
	}
	b := append(j.record[:0], kind)
	b = binary.LittleEndian.AppendUint64(b, j.next)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = body(b)
	j.record = b
	if j.wl == nil { // the last try to write failed, and so did the one to begin anew
		if err := j.begin(); err != nil {
			return fmt.Errorf("the log of undecided spans: %w", err)
		}
	}
	if err := j.put(b); err != nil {
		// Whatever half of the record reached the file ends that segment.
		_ = j.wl.Close() // the disk has just refused
		j.wl = nil
		return fmt.Errorf("the log of undecided spans: %w", err)
	}
	j.next++
	j.newest[j.last] = max(j.newest[j.last], at)
	j.bytes[j.last] += int64(len(b))
	j.total += int64(len(b))
	if cap(j.record) > 8<<20 { // one huge request must not stay in memory
		j.record = nil
	}
	return nil
}

func (j *journal) put(record []byte) error {
	if j.bytes[j.last] >= j.segment {
		next, err := j.wl.NextSegment()
		if err != nil {
			return err
		}
		j.last = next
	}
	if err := j.wl.Log(record); err != nil {
		return err
	}
	if j.fsync {
		return j.wl.Sync()
	}
	return nil
}

func (j *journal) size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.total
}

// endOf are the segments that have nothing at or after a position, and the first that stays.
func (j *journal) endOf(before int64) (gone []int, keep int) {
	keep = j.last
	for i, newest := range j.newest {
		if newest >= before {
			keep = min(keep, i)
		}
	}
	for i := range j.newest {
		if i < keep {
			gone = append(gone, i)
		}
	}
	return gone, keep
}

// ends tells whether release would let go of something.
func (j *journal) ends(before int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	gone, _ := j.endOf(before)
	return len(gone) > 0
}

func (j *journal) release(before int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	gone, keep := j.endOf(before)
	// Without a log the next write begins anew, and the next release finds what to let go.
	if len(gone) == 0 || j.wl == nil || j.closed {
		return nil
	}
	if err := j.wl.Truncate(keep); err != nil {
		return fmt.Errorf("the log of undecided spans: %w", err)
	}
	for _, i := range gone {
		j.total -= j.bytes[i]
		delete(j.newest, i)
		delete(j.bytes, i)
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wl == nil || j.closed {
		j.closed = true
		return nil
	}
	j.closed = true
	return j.wl.Close()
}
