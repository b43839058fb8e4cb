package wandbfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

const (
	fileHeader = ":W&B\xe1\xbe\x00"
	blockLen   = 32 << 10
	chunkHead  = 7

	chunkFull   = 1
	chunkFirst  = 2
	chunkMiddle = 3
	chunkLast   = 4
)

// MaxRecord is the largest record that a Writer writes, and that a Reader keeps when told nothing else.
const MaxRecord = 64 << 20

// crcOfType holds the CRC of each chunk type, which a chunk's own continues.
var crcOfType = [5]uint32{1: crc32.ChecksumIEEE([]byte{1}), 2: crc32.ChecksumIEEE([]byte{2}), 3: crc32.ChecksumIEEE([]byte{3}), 4: crc32.ChecksumIEEE([]byte{4})}

func chunkCRC(typ byte, data []byte) uint32 {
	return crc32.Update(crcOfType[typ], crc32.IEEETable, data)
}

// appendFramed appends payload as chunks to dst, which ends at offset in the file.
func appendFramed(dst []byte, offset int64, payload []byte) []byte {
	at := int(offset % blockLen)
	for first := true; ; first = false {
		room := blockLen - at
		if room < chunkHead {
			dst = append(dst, make([]byte, room)...)
			at, room = 0, blockLen
		}
		n := min(len(payload), room-chunkHead)
		last := n == len(payload)
		typ := byte(chunkMiddle)
		switch {
		case first && last:
			typ = chunkFull
		case first:
			typ = chunkFirst
		case last:
			typ = chunkLast
		}
		dst = binary.LittleEndian.AppendUint32(dst, chunkCRC(typ, payload[:n]))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
		dst = append(append(dst, typ), payload[:n]...)
		payload = payload[n:]
		at += chunkHead + n
		if last {
			return dst
		}
	}
}

// Writer writes records. It does not buffer: each call of Write is one write of the underlying writer.
// Not safe for concurrent use.
type Writer struct {
	w       io.Writer
	offset  int64
	num     int64
	payload []byte
	buf     []byte
}

// NewWriter returns a Writer that appends to w, which already holds offset bytes and num records. At
// offset 0 the first Write begins with the file's header.
func NewWriter(w io.Writer, offset, num int64) *Writer {
	return &Writer{w: w, offset: offset, num: num}
}

// Offset returns the size of the file after the last whole record.
func (w *Writer) Offset() int64 { return w.offset }

// Num returns how many records the file holds.
func (w *Writer) Num() int64 { return w.num }

// Write writes records together and numbers them. After an error the file may end in a part of a
// record; Offset says where to cut it.
func (w *Writer) Write(records ...*Record) error {
	w.buf = w.buf[:0]
	if w.offset == 0 {
		w.buf = append(w.buf, fileHeader...)
	}
	num := w.num
	for _, r := range records {
		num++
		r.Num = num
		var err error
		if w.payload, err = AppendRecord(w.payload[:0], r); err != nil {
			return err
		}
		if len(w.payload) > MaxRecord {
			return fmt.Errorf("wandbfile: record of %d bytes at offset %d is larger than the limit of %d", len(w.payload), w.offset, MaxRecord)
		}
		w.buf = appendFramed(w.buf, w.offset+int64(len(w.buf)), w.payload)
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("wandbfile: write at offset %d: %w", w.offset, err)
	}
	w.offset += int64(n)
	w.num = num
	return nil
}

// ErrCut is returned when the input ends inside a record: the file was cut, or is still being written.
// Offset says where that record begins.
var ErrCut = errors.New("wandbfile: the file ends inside a record")

// CorruptError says that a part of the file is damaged.
type CorruptError struct {
	// Offset is where the damaged record begins, in bytes from the start of the file.
	Offset int64
	// Skipped says that the next Next goes on behind the damage, at a block's start at the latest.
	Skipped bool
	// Last says that nothing follows in the input: it may still be written to.
	Last bool
	What string
}

// Error names the offset and what is wrong there.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("wandbfile: record at offset %d: %s", e.Offset, e.What)
	if e.Skipped {
		return s + "; it is left out"
	}
	return s
}

// Options bound a Reader.
type Options struct {
	// Offset is where the input begins in the file: 0, or what Reader.Offset returned.
	Offset int64
	// MaxRecord is the largest record that is kept, MaxRecord when 0; larger ones are passed over and counted.
	MaxRecord int
}

// Reader reads records from a stream. Not safe for concurrent use.
type Reader struct {
	r       io.Reader
	max     int
	at      int64 // where the next chunk begins
	offset  int64 // behind the last whole record
	failed  error
	rec     Record
	dec     decoder
	skipped map[Kind]int64
	tooBig  int64
	record  []byte
	chunk   [chunkHead + blockLen]byte
	pending struct { // a chunk that ended the record before it
		typ  byte
		data []byte
		at   int64
	}
}

// NewReader returns a Reader of r, which gives the bytes of a file from opts.Offset on.
func NewReader(r io.Reader, opts Options) *Reader {
	if opts.MaxRecord <= 0 {
		opts.MaxRecord = MaxRecord
	}
	return &Reader{r: r, max: opts.MaxRecord, at: opts.Offset, offset: opts.Offset, dec: decoder{keys: map[string]string{}}, skipped: map[Kind]int64{}}
}

// Offset returns where the record after the last complete one begins. A damaged part that was left out
// counts as complete.
func (r *Reader) Offset() int64 { return r.offset }

// Skipped returns how many records of each kind that is not decoded were passed over.
func (r *Reader) Skipped() map[Kind]int64 { return r.skipped }

// TooLarge returns how many records were passed over because of their size.
func (r *Reader) TooLarge() int64 { return r.tooBig }

// Next returns the next record of a kind that is decoded; it is valid until the next call, except for
// Run and Metric, which stay. The error is io.EOF after the last whole record, ErrCut where the input
// ends inside one, a *CorruptError, or what the input returned.
func (r *Reader) Next() (*Record, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	if r.at == 0 {
		if err := r.header(); err != nil {
			return nil, err
		}
	}
	for {
		start, payload, err := r.next()
		if err != nil {
			return nil, err
		}
		if payload == nil {
			r.tooBig++
			continue
		}
		if err := r.dec.record(payload, &r.rec); err != nil {
			return nil, &CorruptError{Offset: start, Skipped: true, What: err.Error()}
		}
		switch r.rec.Kind {
		case KindHistory, KindSummary, KindMetric, KindRun, KindExit, KindHeader, KindFooter:
			return &r.rec, nil
		}
		r.skipped[r.rec.Kind]++
	}
}

func (r *Reader) header() error {
	n, err := io.ReadFull(r.r, r.chunk[:len(fileHeader)])
	switch {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return r.fail(ErrCut)
	case err != nil:
		return r.fail(fmt.Errorf("wandbfile: read at offset 0: %w", err))
	}
	if string(r.chunk[:n]) == strings.Repeat("\x00", len(fileHeader)) {
		return r.fail(ErrCut) // a hole: the file system gave the file its size before its bytes
	}
	if got := r.chunk[:n]; string(got) != fileHeader {
		return r.fail(fmt.Errorf("wandbfile: not a W&B run file: it begins with %q instead of %q", got, fileHeader))
	}
	r.at, r.offset = int64(n), int64(n)
	return nil
}

func (r *Reader) fail(err error) error {
	r.failed = err
	return err
}

// next returns the data of the next record, which is not nil unless the record is too large.
func (r *Reader) next() (start int64, payload []byte, err error) {
	r.record = r.record[:0]
	inside, big := false, false
	for {
		typ, data, at, err := r.readChunk(inside)
		if err != nil {
			return 0, nil, err
		}
		switch typ {
		case chunkFull, chunkFirst:
			if inside {
				// The writer of the record before this one died in the middle of it.
				r.pending.typ, r.pending.data, r.pending.at = typ, data, at
				lost := r.offset
				r.offset = at
				return 0, nil, &CorruptError{Offset: lost, Skipped: true, What: "it has a beginning and no end"}
			}
			start, inside = at, true
		case chunkMiddle, chunkLast:
			if !inside { // the rest of a record whose beginning is lost, already reported
				r.offset = r.at
				continue
			}
		}
		if big = big || len(r.record)+len(data) > r.max; !big {
			r.record = append(r.record, data...)
		}
		if typ == chunkFull || typ == chunkLast {
			r.offset = r.at
			if big {
				return start, nil, nil
			}
			if r.record == nil {
				r.record = []byte{}
			}
			return start, r.record, nil
		}
	}
}

// readChunk returns the next chunk, whose data is valid until the next call.
func (r *Reader) readChunk(inside bool) (typ byte, data []byte, at int64, err error) {
	if p := &r.pending; p.typ != 0 {
		typ, data, at = p.typ, p.data, p.at
		p.typ = 0
		return typ, data, at, nil
	}
	if room := int(blockLen - r.at%blockLen); room < chunkHead {
		if n, err := io.ReadFull(r.r, r.chunk[:room]); err != nil {
			return 0, nil, 0, r.readError(n, inside, err)
		}
		r.at += int64(room)
	}
	at = r.at
	room := int(blockLen - at%blockLen)
	head := r.chunk[:chunkHead]
	if n, err := io.ReadFull(r.r, head); err != nil {
		return 0, nil, 0, r.readError(n, inside, err)
	}
	length := int(binary.LittleEndian.Uint16(head[4:]))
	typ = head[6]
	switch {
	case length == 0 && typ == 0 && binary.LittleEndian.Uint32(head) == 0:
		return 0, nil, 0, r.damaged(at, room-chunkHead, "a block of zeros")
	case typ < chunkFull || typ > chunkLast:
		return 0, nil, 0, r.damaged(at, room-chunkHead, fmt.Sprintf("a chunk of type %d", typ))
	case length > room-chunkHead:
		return 0, nil, 0, r.damaged(at, room-chunkHead, fmt.Sprintf("a chunk of %d bytes crosses the end of its block", length))
	}
	data = r.chunk[chunkHead : chunkHead+length]
	if n, err := io.ReadFull(r.r, data); err != nil {
		return 0, nil, 0, r.readError(chunkHead+n, inside, err)
	}
	if chunkCRC(typ, data) != binary.LittleEndian.Uint32(head) {
		return 0, nil, 0, r.damaged(at, room-chunkHead-length, "the checksum does not match")
	}
	r.at = at + chunkHead + int64(length)
	return typ, data, at, nil
}

// damaged passes over the rest of the block, where the next chunk surely begins. At the end of the
// input zeros are a hole that a writer has yet to fill.
func (r *Reader) damaged(at int64, rest int, what string) error {
	start := r.offset
	n, err := io.CopyN(io.Discard, r.r, int64(rest))
	if err != nil && err != io.EOF {
		return r.fail(fmt.Errorf("wandbfile: read at offset %d: %w", at, err))
	}
	ended := n < int64(rest)
	if ended && what == "a block of zeros" {
		return r.fail(ErrCut)
	}
	r.at = at - at%blockLen + blockLen
	r.offset = r.at
	if ended {
		r.offset = start
		r.failed = io.EOF
	}
	return &CorruptError{Offset: start, Skipped: true, Last: ended, What: what}
}

func (r *Reader) readError(n int, inside bool, err error) error {
	switch {
	case err == io.EOF && n == 0 && !inside:
		return io.EOF
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return r.fail(ErrCut)
	}
	return r.fail(fmt.Errorf("wandbfile: read at offset %d: %w", r.at, err))
}
