package tfevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrCut is returned when the input ends inside a record: the file was cut, or is still being written.
// Offset says where that record begins; a reader that starts there again later reads it whole.
var ErrCut = errors.New("tfevents: the file ends inside a record")

// CorruptError says that a record is damaged.
type CorruptError struct {
	// Offset is where the record begins, in bytes from the start of the file.
	Offset int64
	// Part is what does not match its checksum or does not decode: "length", "payload" or "event".
	Part string
	// Skipped says that the record's end is known, so that the next Next goes on behind it. Otherwise
	// nothing after Offset can be trusted and every further Next returns this error.
	Skipped bool
	// Last says that the input ended right behind the damaged record: it may still be written to.
	Last bool
	Err  error
}

// Error names the offset, the part and what can be done.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("tfevents: record at offset %d: the %s does not match its checksum", e.Offset, e.Part)
	if e.Err != nil {
		s = fmt.Sprintf("tfevents: record at offset %d: %v", e.Offset, e.Err)
	}
	if e.Skipped {
		return s + "; the record is left out"
	}
	return s + "; nothing after it can be read"
}

// Unwrap returns the cause where there is one.
func (e *CorruptError) Unwrap() error { return e.Err }

// Options bound a Reader.
type Options struct {
	// Offset is where the input begins in the file; offsets are counted from the file's start.
	Offset int64
	// MaxPayload is the largest record that is decoded, MaxPayload when 0; larger ones are passed over
	// and counted. Graphs and images are large, scalars are not.
	MaxPayload int64
}

// Reader reads events from a stream. Not safe for concurrent use.
type Reader struct {
	r       io.Reader
	max     int64
	offset  int64
	tooBig  int64
	skipped int64
	failed  error
	head    [headerLen]byte
	buf     []byte
	ev      Event
	tags    names
	ahead   [1]byte
	nAhead  int
}

// NewReader returns a Reader of r, which gives the bytes of a file from opts.Offset on. Give it a
// buffered reader or a byte slice: it reads 12 bytes and then the rest of each record.
func NewReader(r io.Reader, opts Options) *Reader {
	if opts.MaxPayload <= 0 {
		opts.MaxPayload = MaxPayload
	}
	return &Reader{r: r, max: opts.MaxPayload, offset: opts.Offset, tags: names{}}
}

// Offset returns where the record after the last complete one begins, from the start of the file. A
// damaged record that was left out counts as complete.
func (r *Reader) Offset() int64 { return r.offset }

// TooLarge returns how many records were passed over because of their size.
func (r *Reader) TooLarge() int64 { return r.tooBig }

// Skipped returns how many values were not scalars.
func (r *Reader) Skipped() int64 { return r.skipped }

// Next returns the next event, which is valid until the next call. The error is io.EOF after the last
// whole record, ErrCut where the input ends inside one, a *CorruptError, or what the input returned.
func (r *Reader) Next() (*Event, error) {
	for {
		if r.failed != nil {
			return nil, r.failed
		}
		n, err := r.fill(r.head[:])
		if err != nil {
			return nil, r.readError(n, err)
		}
		length := binary.LittleEndian.Uint64(r.head[:])
		if masked(r.head[:8]) != binary.LittleEndian.Uint32(r.head[8:]) {
			if r.head == [headerLen]byte{} {
				// A hole: the file system gave the file its size before its bytes.
				r.failed = ErrCut
				return nil, ErrCut
			}
			r.failed = &CorruptError{Offset: r.offset, Part: "length"}
			return nil, r.failed
		}
		if length > 1<<62 {
			r.failed = &CorruptError{Offset: r.offset, Part: "length", Err: fmt.Errorf("a length of %d bytes", length)}
			return nil, r.failed
		}
		whole := headerLen + int64(length) + footerLen
		if int64(length) > r.max {
			n, err := io.CopyN(io.Discard, r.r, int64(length)+footerLen)
			if err != nil {
				return nil, r.readError(headerLen+int(n), err)
			}
			r.offset += whole
			r.tooBig++
			continue
		}
		payload, crc, err := r.body(int(length))
		if err != nil {
			return nil, r.readError(headerLen, err)
		}
		at := r.offset
		r.offset += whole
		if masked(payload) != crc {
			return nil, &CorruptError{Offset: at, Part: "payload", Skipped: true, Last: r.atEnd()}
		}
		if err := decodeEvent(payload, &r.ev, r.tags); err != nil {
			return nil, &CorruptError{Offset: at, Part: "event", Skipped: true, Last: r.atEnd(), Err: err}
		}
		r.skipped += int64(r.ev.Skipped)
		return &r.ev, nil
	}
}

// body reads a payload and its checksum. The buffer grows with what is really there, since a length
// alone must not cost memory.
func (r *Reader) body(length int) (payload []byte, crc uint32, err error) {
	const chunk = 1 << 20
	need := length + footerLen
	r.buf = r.buf[:0]
	for len(r.buf) < need {
		have := len(r.buf)
		n := min(need-have, chunk)
		if cap(r.buf) < have+n {
			r.buf = append(r.buf, make([]byte, n)...)
		}
		r.buf = r.buf[:have+n]
		if _, err := r.fill(r.buf[have : have+n]); err != nil {
			return nil, 0, err
		}
	}
	return r.buf[:length], binary.LittleEndian.Uint32(r.buf[length:]), nil
}

// fill is io.ReadFull behind the byte that atEnd may have read.
func (r *Reader) fill(b []byte) (int, error) {
	n := copy(b, r.ahead[:r.nAhead])
	r.nAhead -= n
	m, err := io.ReadFull(r.r, b[n:])
	if err == io.EOF && n > 0 && len(b) > n {
		err = io.ErrUnexpectedEOF
	}
	return n + m, err
}

func (r *Reader) atEnd() bool {
	if r.nAhead > 0 {
		return false
	}
	n, err := io.ReadFull(r.r, r.ahead[:])
	r.nAhead = n
	return err == io.EOF
}

func (r *Reader) readError(n int, err error) error {
	switch {
	case err == io.EOF && n == 0:
		return io.EOF
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		r.failed = ErrCut
		return ErrCut
	}
	r.failed = fmt.Errorf("tfevents: read at offset %d: %w", r.offset, err)
	return r.failed
}
