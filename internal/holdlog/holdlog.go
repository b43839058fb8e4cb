// Package holdlog keeps on disk what was acknowledged and is not decided yet: spans that tail sampling
// still holds in memory, and what was decided about the others. After a crash both are read again, so that
// acknowledged means kept or decided, and decided once. Its entry point is [Open].
//
// # Format
//
// The directory holds two Prometheus write-ahead logs (tsdb/wlog) of uncompressed records, requests in
// its own files and decisions below decided/. Each record is
//
//	u8   kind: 1 a request, 2 verdicts, 3 progress
//	u64  LE, number of the record; each has the number after that of the one before in its log
//	i64  LE, position: ns since 1970 when the request came in, or the position of the newest request when
//	     it was decided or done
//	1:   the request, an s2 block (github.com/klauspost/compress/s2)
//	2:   verdicts, each 16 bytes of a trace's id, u8 flags (1 kept, 2 final), u8 length of the rule's
//	     name, the name
//	3:   nothing
//
// A segment of requests goes once everything in it is older than the oldest that is still held, one of
// verdicts once they are no longer remembered.
package holdlog

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/s2"
)

const (
	kindRequest  = 1
	kindVerdicts = 2
	kindProgress = 3
	headBytes    = 17
	// A segment ends here; it is what is deleted at once.
	requestSegment = 16 << 20
	verdictSegment = 1 << 20
	// The write log's own limit is never reached: segments end here, where their contents are known.
	segmentLimit = 2 << 30
	// maxRequest bounds what a damaged length can make us allocate.
	maxRequest = 1 << 30
	// maxRule bounds the name of a rule; what is longer is cut.
	maxRule = 255
)

// ID is a trace's id.
type ID = [16]byte

// Verdict is what was decided about a trace.
type Verdict struct {
	Trace ID
	Kept  bool
	Final bool   // not only kept early, while it goes on
	Rule  string // by which; what is beyond 255 bytes is cut
}

// Options of a log.
type Options struct {
	Dir   string
	Fsync bool // each Append survives the loss of power too
	// MaxBytes bounds the requests on disk; 0 takes 4 GiB.
	MaxBytes int64
	Logger   *slog.Logger // nil: silent
}

// ErrFull is that the log has reached its bound: what is held must be decided first.
var ErrFull = errors.New("the log of undecided spans is full")

// Log is the log. It is safe for concurrent use.
type Log struct {
	requests, verdicts *journal
	maxBytes           int64
}

// Open opens the log, which [Log.Replay] must read before the first Append.
func Open(o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With("component", "holdlog")
	requests, err := openJournal(o.Dir, requestSegment, o.Fsync, log)
	if err != nil {
		return nil, err
	}
	verdicts, err := openJournal(filepath.Join(o.Dir, "decided"), verdictSegment, false, log)
	if err != nil {
		return nil, errors.Join(err, requests.close())
	}
	return &Log{requests: requests, verdicts: verdicts, maxBytes: o.MaxBytes}, nil
}

// Reader is told what a log has.
type Reader struct {
	// Verdict gets what was decided, in order, before any request.
	Verdict func(position int64, v Verdict)
	// Progress gets the position up to which all that was decided was carried out, 0 when none is known. It
	// is called once, after the verdicts.
	Progress func(position int64)
	// Request gets each request, in order; it must not keep the bytes. Its error ends the reading.
	Request func(position int64, body []byte) error
}

// Replay reads what is there. A place that cannot be read costs the rest of its segment and is counted in
// [Log.Damaged]; it is no error.
func (l *Log) Replay(r Reader) error {
	progress := int64(0)
	err := l.verdicts.replay(func(segment int, kind byte, at int64, data []byte) error {
		switch kind {
		case kindProgress:
			progress = max(progress, at)
		case kindVerdicts:
			for len(data) > 0 {
				if len(data) < 18 || len(data) < 18+int(data[17]) {
					l.verdicts.damage(segment, "a verdict that ends early")
					return nil
				}
				n := int(data[17])
				r.Verdict(at, Verdict{Trace: ID(data), Kept: data[16]&1 != 0, Final: data[16]&2 != 0, Rule: string(data[18 : 18+n])})
				data = data[18+n:]
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Progress(progress)
	var body []byte
	return l.requests.replay(func(segment int, kind byte, at int64, data []byte) error {
		if kind != kindRequest {
			return nil
		}
		n, err := s2.DecodedLen(data)
		if err == nil && n <= maxRequest {
			body, err = s2.Decode(slices.Grow(body[:0], n)[:n], data)
		}
		if err != nil || n > maxRequest {
			l.requests.damage(segment, "a request that is no s2 block")
			return nil
		}
		return r.Request(at, body)
	})
}

// Append keeps a request at a position after that of the one before. When it returns nil, a crash of the
// process does not lose it.
func (l *Log) Append(position int64, body []byte) error {
	if l.requests.size() >= l.maxBytes {
		return ErrFull
	}
	return l.requests.write(kindRequest, position, func(b []byte) []byte {
		n := s2.MaxEncodedLen(len(body))
		b = slices.Grow(b, n)
		return b[:len(b)+len(s2.Encode(b[len(b):len(b)+n], body))]
	})
}

// Decide notes what was decided when the newest request was that of a position, before it is carried out:
// after a crash the same is to be decided again.
func (l *Log) Decide(position int64, list []Verdict) error {
	if len(list) == 0 {
		return nil
	}
	return l.verdicts.write(kindVerdicts, position, func(b []byte) []byte {
		for _, v := range list {
			flags := byte(0)
			if v.Kept {
				flags |= 1
			}
			if v.Final {
				flags |= 2
			}
			rule := v.Rule[:min(len(v.Rule), maxRule)]
			b = append(append(append(b, v.Trace[:]...), flags, byte(len(rule))), rule...)
		}
		return b
	})
}

// Done notes that all that was decided up to a position was carried out: what is kept is stored.
func (l *Log) Done(position int64) error {
	return l.verdicts.write(kindProgress, position, func(b []byte) []byte { return b })
}

// Size is how many bytes the requests have.
func (l *Log) Size() int64 { return l.requests.size() }

// Full tells how much of its bound the log has, 1 when it takes no more requests.
func (l *Log) Full() float64 { return float64(l.requests.size()) / float64(l.maxBytes) }

// Damaged lists what could not be read.
func (l *Log) Damaged() []string { return append(l.requests.damages(), l.verdicts.damages()...) }

// Release lets go of requests before a position, of which nothing is held any more, and of verdicts from
// before another one, which are no longer remembered. All that was decided up to done was carried out.
func (l *Log) Release(requests, verdicts, done int64) error {
	errs := []error{l.requests.release(requests)}
	if l.verdicts.ends(verdicts) {
		// What says how far we are must not go with them.
		if err := l.Done(done); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, l.verdicts.release(verdicts))
	}
	return errors.Join(errs...)
}

// Close gives the directory up.
func (l *Log) Close() error { return errors.Join(l.requests.close(), l.verdicts.close()) }
