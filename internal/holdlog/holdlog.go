// Package holdlog keeps on disk what was acknowledged and is not decided yet: spans that tail sampling
// still holds in memory. After a crash they are read again, so that acknowledged means kept or decided.
// Its entry point is [Open].
//
// # Format
//
// The directory holds a Prometheus write-ahead log (tsdb/wlog) of uncompressed records, each
//
//	u8   kind: 1 a request, 2 decisions
//	u64  LE, number of the record; each has the number after that of the one before
//	i64  LE, ns since 1970: when it came in
//	1:   the request, an s2 block (github.com/klauspost/compress/s2)
//	2:   decisions: 16 bytes of a trace's id each
//
// A segment goes once everything in it is older than the oldest that is still held. Decisions come after
// the requests that they are about, so they are never gone before those.
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

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

const (
	kindRequest   = 1
	kindDecisions = 2
	headBytes     = 17
	// segmentBytes ends a segment; it is what is deleted at once.
	segmentBytes = 16 << 20
	// The write log's own limit is never reached: segments end here, where their contents are known.
	segmentLimit = 2 << 30
	// maxRequest bounds what a damaged length can make us allocate.
	maxRequest = 1 << 30
)

// ID is a trace's id.
type ID = [16]byte

// Options of a log.
type Options struct {
	Dir   string
	Fsync bool // each Append survives the loss of power too
	// MaxBytes bounds the log on disk; 0 takes 4 GiB.
	MaxBytes int64
	Logger   *slog.Logger // nil: silent
}

// ErrFull is that the log has reached its bound: what is held must be decided first.
var ErrFull = errors.New("the log of undecided spans is full")

// Log is the log. It is safe for concurrent use.
type Log struct {
	o   Options
	log *slog.Logger

	mu      sync.Mutex
	wl      *wlog.WL
	newest  map[int]int64 // by segment: time of the newest record in it
	bytes   map[int]int64 // by segment
	last    int
	next    uint64 // number of the next record
	read    bool   // Replay has found it
	record  []byte
	damaged []string
}

// Open opens the log, which [Log.Replay] must read before the first Append.
func Open(o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("the log of undecided spans: %w", err)
	}
	if err := closeGaps(o.Dir); err != nil {
		return nil, fmt.Errorf("the log of undecided spans: %w", err)
	}
	l := &Log{o: o, log: o.Logger.With("component", "holdlog"), newest: map[int]int64{}, bytes: map[int]int64{}}
	if err := l.begin(); err != nil {
		return nil, fmt.Errorf("the log of undecided spans in %s: %w", o.Dir, err)
	}
	return l, nil
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
func (l *Log) begin() error {
	wl, err := wlog.NewSize(l.log, nil, l.o.Dir, segmentLimit, compression.None)
	if err != nil {
		return err
	}
	if _, l.last, err = wlog.Segments(l.o.Dir); err != nil {
		return errors.Join(err, wl.Close())
	}
	l.wl = wl
	return nil
}

// Replay reads what is there, in order: decided has the traces that were decided before the crash, and
// request is called with each request, of which it must not keep the bytes. A place that cannot be read
// costs the rest of its segment and is counted in [Log.Damaged]; it is no error.
func (l *Log) Replay(request func(received int64, decided map[ID]bool, body []byte) error) error {
	first, last, err := wlog.Segments(l.o.Dir)
	if err != nil {
		return err
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.read = true
	}()
	decided := map[ID]bool{}
	var body []byte
	for _, pass := range []byte{kindDecisions, kindRequest} {
		some, next := false, uint64(0)
		for i := first; i < max(last, l.last); i++ { // the live segment is empty
			err := l.segment(i, func(kind byte, number uint64, at int64, data []byte) error {
				if pass == kindRequest {
					if some && number != next {
						l.damage(i, fmt.Sprintf("%d records before number %d are missing", number-next, number))
					}
					some, next = true, number+1
					l.note(i, number+1, at, int64(len(data)))
				}
				switch {
				case kind != pass:
				case kind == kindDecisions:
					for len(data) >= 16 {
						decided[ID(data)] = true
						data = data[16:]
					}
				default:
					n, err := s2.DecodedLen(data)
					if err != nil || n > maxRequest {
						l.damage(i, "a request that is no s2 block")
						return nil
					}
					if body, err = s2.Decode(slices.Grow(body[:0], n)[:n], data); err != nil {
						l.damage(i, "a request that is no s2 block")
						return nil
					}
					return request(at, decided, body)
				}
				return nil
			}, pass == kindRequest)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// segment calls fn with each record of a segment.
func (l *Log) segment(i int, fn func(kind byte, number uint64, at int64, data []byte) error, tell bool) (err error) {
	s, err := wlog.OpenReadSegment(wlog.SegmentName(l.o.Dir, i))
	if err != nil {
		if tell {
			l.damage(i, err.Error())
		}
		return nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := wlog.NewReader(wlog.NewSegmentBufReader(s))
	for r.Next() {
		rec := r.Record()
		if len(rec) < headBytes {
			if tell {
				l.damage(i, "a record without a head")
			}
			continue
		}
		if err := fn(rec[0], binary.LittleEndian.Uint64(rec[1:]), int64(binary.LittleEndian.Uint64(rec[9:])), rec[headBytes:]); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil && tell {
		l.damage(i, err.Error())
	}
	return nil
}

func (l *Log) damage(segment int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := fmt.Sprintf("segment %d: %s", segment, what)
	l.damaged = append(l.damaged, at)
	l.log.Error("undecided spans of before the last stop cannot be read", "dir", l.o.Dir, "where", at)
}

// Damaged lists what could not be read.
func (l *Log) Damaged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.damaged)
}

func (l *Log) note(segment int, next uint64, at, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
	l.newest[segment] = max(l.newest[segment], at)
	l.bytes[segment] += bytes
}

// Append keeps a request that came in at a time. When it returns nil, a crash of the process does not
// lose it.
func (l *Log) Append(received int64, body []byte) error {
	return l.write(kindRequest, received, func(b []byte) []byte {
		n := s2.MaxEncodedLen(len(body))
		b = slices.Grow(b, n)
		return b[:len(b)+len(s2.Encode(b[len(b):len(b)+n], body))]
	}, true)
}

// Decide notes that traces are decided and, where they are kept, stored.
func (l *Log) Decide(now int64, traces []ID) error {
	if len(traces) == 0 {
		return nil
	}
	return l.write(kindDecisions, now, func(b []byte) []byte {
		for _, t := range traces {
			b = append(b, t[:]...)
		}
		return b
	}, false)
}

func (l *Log) write(kind byte, at int64, body func([]byte) []byte, bounded bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.read {
		return errors.New("the log of undecided spans was not read yet: what it has would be lost")
	}
	if bounded && l.size() >= l.o.MaxBytes {
		return ErrFull
	}
	b := append(l.record[:0], kind)
	b = binary.LittleEndian.AppendUint64(b, l.next)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = body(b)
	l.record = b
	if l.wl == nil { // the last try to write failed, and so did the one to begin anew
		if err := l.begin(); err != nil {
			return fmt.Errorf("the log of undecided spans: %w", err)
		}
	}
	if err := l.put(b); err != nil {
		// Whatever half of the record reached the file ends that segment.
		_ = l.wl.Close() // the disk has just refused
		l.wl = nil
		return fmt.Errorf("the log of undecided spans: %w", err)
	}
	l.next++
	l.newest[l.last] = max(l.newest[l.last], at)
	l.bytes[l.last] += int64(len(b))
	if cap(l.record) > 8<<20 { // one huge request must not stay in memory
		l.record = nil
	}
	return nil
}

func (l *Log) put(record []byte) error {
	if l.bytes[l.last] >= segmentBytes {
		next, err := l.wl.NextSegment()
		if err != nil {
			return err
		}
		l.last = next
	}
	if err := l.wl.Log(record); err != nil {
		return err
	}
	if l.o.Fsync {
		return l.wl.Sync()
	}
	return nil
}

func (l *Log) size() (n int64) {
	for _, b := range l.bytes {
		n += b
	}
	return n
}

// Size is how many bytes the log has.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size()
}

// Release lets go of what came in before a time: nothing of it is held any more.
func (l *Log) Release(before int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := l.last
	for i, newest := range l.newest {
		if newest >= before {
			keep = min(keep, i)
		}
	}
	var gone []int
	for i := range l.newest {
		if i < keep {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if l.wl == nil {
		return nil // the next write begins anew, and the next release finds what to let go
	}
	if err := l.wl.Truncate(keep); err != nil {
		return fmt.Errorf("the log of undecided spans: %w", err)
	}
	for _, i := range gone {
		delete(l.newest, i)
		delete(l.bytes, i)
	}
	return nil
}

// Close gives the directory up.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wl == nil {
		return nil
	}
	return l.wl.Close()
}
