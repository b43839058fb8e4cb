package tfevents

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

const (
	headerLen = 12
	footerLen = 4
)

// MaxPayload is the largest payload that a Writer writes, and that a Reader decodes when told nothing else.
const MaxPayload = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Seconds is t as an event's wall time holds it: seconds since 1970, rounded to a float64 (0.2 µs today).
func Seconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

// AppendRecord appends a framed record that holds e to dst.
func AppendRecord(dst []byte, e *Event) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerLen)...)
	dst = AppendEvent(dst, e)
	payload := dst[start+headerLen:]
	binary.LittleEndian.PutUint64(dst[start:], uint64(len(payload)))
	binary.LittleEndian.PutUint32(dst[start+8:], masked(dst[start:start+8]))
	return binary.LittleEndian.AppendUint32(dst, masked(payload))
}

// Writer writes events, one Write call of w for each, so that a record is never interleaved with another.
// It does not buffer. Not safe for concurrent use.
type Writer struct {
	w      io.Writer
	buf    []byte
	offset int64
}

// NewWriter returns a Writer that appends to w, of which offset bytes are already written. It writes
// nothing itself: a new file begins with WriteVersion.
func NewWriter(w io.Writer, offset int64) *Writer { return &Writer{w: w, offset: offset} }

// Offset returns the number of bytes in the file after the last whole record.
func (w *Writer) Offset() int64 { return w.offset }

// WriteVersion writes the record that every event file begins with. wall is in seconds, see Seconds.
func (w *Writer) WriteVersion(wall float64) error {
	return w.Write(&Event{WallTime: wall, FileVersion: FileVersion})
}

// Write writes one event. After an error the file may end in a part of a record; Offset says where to cut it.
func (w *Writer) Write(e *Event) error {
	w.buf = AppendRecord(w.buf[:0], e)
	if n := len(w.buf) - headerLen - footerLen; n > MaxPayload {
		return fmt.Errorf("tfevents: event of %d bytes at offset %d is larger than the limit of %d", n, w.offset, MaxPayload)
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("tfevents: write at offset %d: %w", w.offset, err)
	}
	w.offset += int64(n)
	return nil
}
