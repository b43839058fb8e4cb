package eventstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/util/compression"
)

// What a spool's segment is made of; FORMAT.md says it in prose. Pages and fragments are those of
// Prometheus's write log. They are read here fragment by fragment, since its own reader ends at the
// first damage, and what lies behind a damaged record is as good as what lies before.
const (
	pageSize     = 32 << 10
	fragmentHead = 7

	fragmentPad, fragmentFull, fragmentFirst, fragmentMiddle, fragmentLast = 0, 1, 2, 3, 4

	fragmentType   = 7
	fragmentSnappy = 1 << 3
	fragmentZstd   = 1 << 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Kinds and the version of records.
const (
	recordHead    = 1
	recordRows    = 2
	recordVersion = 1
	headBytes     = 2 + 8 + 8
	rowsBytes     = 2 + 8 + 4 + 8 + 8
)

// record is a decoded record of rows or, with rows 0, the head of a segment.
type record struct {
	first      uint64 // _seq of the first row; of a head: of the next row
	ended      uint64 // of a head: what the next row would have been in the segment before
	rows       int
	minT, maxT int64
	lines      []byte // JSON lines with _seq in them; valid until the next record is read
}

func (r *record) last() uint64 { return r.first + uint64(r.rows) - 1 }

// errVersion is a record that another version of the program wrote.
var errVersion = errors.New("the record has a version or kind that this program does not know")

func appendHead(b []byte, ended, next uint64) []byte {
	b = binary.BigEndian.AppendUint64(append(b, recordHead, recordVersion), ended)
	return binary.BigEndian.AppendUint64(b, next)
}

func appendRows(b []byte, r record) []byte {
	b = append(b, recordRows, recordVersion)
	b = binary.BigEndian.AppendUint64(b, r.first)
	b = binary.BigEndian.AppendUint32(b, uint32(r.rows))
	b = binary.BigEndian.AppendUint64(b, uint64(r.minT))
	b = binary.BigEndian.AppendUint64(b, uint64(r.maxT))
	return append(b, r.lines...)
}

func parseRecord(b []byte) (record, error) {
	if len(b) < 2 {
		return record{}, errors.New("a record of less than two bytes")
	}
	if b[1] != recordVersion || (b[0] != recordHead && b[0] != recordRows) {
		return record{}, fmt.Errorf("kind %d, version %d: %w", b[0], b[1], errVersion)
	}
	if b[0] == recordHead {
		if len(b) != headBytes {
			return record{}, fmt.Errorf("a head of %d bytes, not %d", len(b), headBytes)
		}
		r := record{ended: binary.BigEndian.Uint64(b[2:]), first: binary.BigEndian.Uint64(b[10:])}
		if r.first < seqMin || r.first > seqMax || r.ended < seqMin || r.ended > r.first {
			return record{}, fmt.Errorf("a head with the sequence number %d", r.first)
		}
		return r, nil
	}
	if len(b) < rowsBytes {
		return record{}, fmt.Errorf("rows in %d bytes", len(b))
	}
	r := record{
		first: binary.BigEndian.Uint64(b[2:]),
		rows:  int(binary.BigEndian.Uint32(b[10:])),
		minT:  int64(binary.BigEndian.Uint64(b[14:])),
		maxT:  int64(binary.BigEndian.Uint64(b[22:])),
		lines: b[rowsBytes:],
	}
	switch {
	case r.rows == 0 || len(r.lines) == 0 || r.lines[len(r.lines)-1] != '\n':
		return record{}, errors.New("rows without an end")
	case r.first < seqMin || r.first > seqMax || r.last() > seqMax:
		return record{}, fmt.Errorf("rows with the sequence number %d", r.first)
	}
	return r, nil
}

// windowBytes is how much of a segment is in memory while it is read, whole pages.
const windowBytes = 8 * pageSize

// segmentReader reads the records of one segment and goes on behind damage. It has a window of the bytes in
// memory, and a record.
type segmentReader struct {
	src     io.ReaderAt
	size    int // of the segment
	window  []byte
	from    int // where the window begins, the start of a page
	pos     int
	record  int   // where the last record begins
	err     error // of src: nothing more can be read
	begun   bool  // a first fragment is in joined
	kind    byte  // its compression
	joined  []byte
	decoder compression.DecodeBuffer
	damage  func(offset int, reason string) // called for each damaged place
	lost    bool                            // inside a stretch already reported
}

func newSegmentReader(src io.ReaderAt, size int, damage func(offset int, reason string)) *segmentReader {
	s := &segmentReader{damage: damage, decoder: compression.NewSyncDecodeBuffer()}
	s.reset(src, size, 0)
	return s
}

// reset makes the reader one of another segment, from the start of a record at pos on.
func (s *segmentReader) reset(src io.ReaderAt, size, pos int) {
	s.src, s.size, s.pos, s.err = src, size, pos, nil
	s.window, s.from, s.begun, s.lost = s.window[:0], 0, false, false
}

// page makes the page of pos part of the window and returns its end; false: it cannot be read.
func (s *segmentReader) page() (end int, ok bool) {
	page := s.pos / pageSize * pageSize
	if page < s.from || page >= s.from+len(s.window) {
		if s.window == nil {
			s.window = make([]byte, windowBytes)
		}
		s.window, s.from = s.window[:min(windowBytes, s.size-page)], page
		n, err := s.src.ReadAt(s.window, int64(page))
		if n < len(s.window) {
			s.window = s.window[:0]
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			s.err = fmt.Errorf("byte %d: %w", page+n, err)
			return 0, false
		}
	}
	return min(page+pageSize, s.size), true
}

// bytes are those of a range inside the page of pos.
func (s *segmentReader) bytes(from, to int) []byte {
	return s.window[from-s.from : to-s.from : to-s.from]
}

func (s *segmentReader) report(offset int, reason string) {
	if !s.lost {
		s.damage(offset, reason)
	}
	s.lost, s.begun = true, false
}

// next returns the next record, false at the end and when err is set.
func (s *segmentReader) next() (record, bool) {
	for s.pos < s.size {
		end, ok := s.page()
		if !ok {
			return record{}, false
		}
		if end-s.pos < fragmentHead {
			if !zero(s.bytes(s.pos, end)) {
				s.report(s.pos, "torn")
			}
			s.pos = end
			continue
		}
		head := s.bytes(s.pos, end)[0]
		if head&fragmentType == fragmentPad {
			if head != 0 || !zero(s.bytes(s.pos, end)) {
				s.report(s.pos, "bytes in the padding")
			}
			s.pos = end
			continue
		}
		start := s.pos
		payload, why := s.fragment(start, end)
		if why != "" {
			s.report(start, why)
			// A wrong checksum with a right length: the fragment behind it proves the length.
			if next := start + fragmentHead + len(payload); payload != nil && s.follows(next, end) {
				s.pos = next
			} else {
				s.pos = end
			}
			continue
		}
		s.pos = start + fragmentHead + len(payload)
		kind := head &^ fragmentType
		switch head & fragmentType {
		case fragmentFull, fragmentFirst:
			if s.begun {
				s.report(start, "a record without its end")
			}
			s.joined, s.kind, s.begun, s.lost, s.record = append(s.joined[:0], payload...), kind, true, false, start
		default:
			if !s.begun {
				s.report(start, "a record without its start")
				continue
			}
			s.joined = append(s.joined, payload...)
		}
		if t := head & fragmentType; t == fragmentFirst || t == fragmentMiddle {
			continue
		}
		s.begun = false
		b, err := s.decode()
		if err != nil {
			s.report(start, err.Error())
			continue
		}
		r, err := parseRecord(b)
		if err != nil {
			s.report(start, err.Error())
			continue
		}
		return r, true
	}
	if s.begun {
		s.report(s.size, "torn")
	}
	return record{}, false
}

// fragment returns the payload of the fragment at pos, and what is wrong with it. The payload is nil
// when its length cannot be right.
func (s *segmentReader) fragment(pos, end int) ([]byte, string) {
	b := s.bytes(pos, end)
	head, n := b[0], int(binary.BigEndian.Uint16(b[1:]))
	from := pos + fragmentHead
	switch {
	case from+n > pos/pageSize*pageSize+pageSize:
		return nil, "a length beyond the page"
	case from+n > end:
		return nil, "torn"
	}
	payload := s.bytes(from, from+n)
	switch {
	case head&fragmentType > fragmentLast || head&^(fragmentType|fragmentSnappy|fragmentZstd) != 0:
		return payload, "an unknown type"
	case crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(b[3:]):
		return payload, "a wrong checksum"
	}
	return payload, ""
}

// follows reports whether a whole fragment, or padding, begins at pos.
func (s *segmentReader) follows(pos, end int) bool {
	b := s.bytes(pos, end)
	if len(b) < fragmentHead || b[0] == 0 {
		return zero(b)
	}
	_, why := s.fragment(pos, end)
	return why == "" && b[0]&fragmentType != fragmentPad
}

// maxDecoded bounds what a record may grow to when it is decompressed.
const maxDecoded = 64 << 20

func (s *segmentReader) decode() ([]byte, error) {
	t := compression.None
	switch {
	case s.kind&fragmentSnappy != 0:
		t = compression.Snappy
		if n, w := binary.Uvarint(s.joined); w <= 0 || n > maxDecoded {
			return nil, errors.New("a record that would be too large")
		}
	case s.kind&fragmentZstd != 0:
		// The spool does not write these; nothing else should be in its directory.
		return nil, errors.New("a record compressed by another program")
	}
	b, err := compression.Decode(t, s.joined, s.decoder)
	if err != nil {
		return nil, fmt.Errorf("decompression: %w", err)
	}
	return b, nil
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
