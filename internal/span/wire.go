package span

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Wire types of protobuf.
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// fields walks over the fields of one protobuf message. What it hands out aliases the message.
type fields struct {
	b    []byte
	i    int
	num  uint32
	typ  uint8
	u    uint64 // of a number
	data []byte // of bytes, texts and messages
	why  string // what is broken, "" while nothing is
}

// next goes to the next field; false at the end and at the first byte that is wrong.
func (f *fields) next() bool {
	if f.i >= len(f.b) || f.why != "" {
		return false
	}
	tag := uint64(f.b[f.i])
	f.i++
	if tag >= 0x80 {
		f.i--
		var ok bool
		if tag, ok = f.varint(); !ok {
			return false
		}
	}
	f.num, f.typ = uint32(tag>>3), uint8(tag&7)
	if f.num == 0 || tag>>3 > 1<<29-1 {
		return f.fail("a field number out of range")
	}
	switch f.typ {
	case wireVarint:
		var ok bool
		if f.u, ok = f.varint(); !ok {
			return false
		}
	case wireFixed8:
		if len(f.b)-f.i < 8 {
			return f.fail("cut inside a number of 8 bytes")
		}
		f.u = binary.LittleEndian.Uint64(f.b[f.i:])
		f.i += 8
	case wireBytes:
		n, ok := f.varint()
		if !ok {
			return false
		}
		if n > uint64(len(f.b)-f.i) {
			return f.fail("a length that goes beyond the message")
		}
		f.data = f.b[f.i : f.i+int(n)]
		f.i += int(n)
	case wireFixed4:
		if len(f.b)-f.i < 4 {
			return f.fail("cut inside a number of 4 bytes")
		}
		f.u = uint64(binary.LittleEndian.Uint32(f.b[f.i:]))
		f.i += 4
	default:
		return f.fail("a wire type that protobuf 3 has not")
	}
	return true
}

func (f *fields) varint() (uint64, bool) {
	if f.i < len(f.b) && f.b[f.i] < 0x80 {
		f.i++
		return uint64(f.b[f.i-1]), true
	}
	v, n := binary.Uvarint(f.b[f.i:])
	if n <= 0 {
		f.fail("a number that is cut or too long")
		return 0, false
	}
	f.i += n
	return v, true
}

func (f *fields) fail(why string) bool {
	f.why = why
	return false
}

// is tells whether the field is the one of that number and wire type. A known number with another type
// is skipped, as protobuf decoders do.
func (f *fields) is(num uint32, typ uint8) bool { return f.num == num && f.typ == typ }

// err is nil unless the walk ended at something broken. where names the message.
func (f *fields) err(where string) error {
	if f.why == "" {
		return nil
	}
	return &WireError{Where: where, Offset: f.i, Why: f.why}
}

// WireError is a protobuf message that cannot be read.
type WireError struct {
	Where  string // which message
	Offset int    // bytes into that message; of [Scan] into the whole body
	Why    string
}

func (e *WireError) Error() string {
	return fmt.Sprintf("%s: byte %d: %s; the body must be protobuf of an ExportTraceServiceRequest, whole and not compressed", e.Where, e.Offset, e.Why)
}

// alias is b as a string without a copy.
func alias(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytesOf is s as bytes without a copy; nobody may write to it.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// nanos is a time of the wire; what does not fit is the last that does.
func nanos(u uint64) int64 { return int64(min(u, math.MaxInt64)) }

// count is a number of things, of 32 bits on the wire.
func count(u uint64) uint32 { return uint32(min(u, math.MaxUint32)) }

// ---- writing

func appendTag(dst []byte, num uint32, typ uint8) []byte {
	return binary.AppendUvarint(dst, uint64(num)<<3|uint64(typ))
}

func appendText(dst []byte, num uint32, s string) []byte {
	if s == "" {
		return dst
	}
	dst = appendTag(dst, num, wireBytes)
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendNumber(dst []byte, num uint32, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(appendTag(dst, num, wireVarint), v)
}

func appendFixed8(dst []byte, num uint32, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.LittleEndian.AppendUint64(appendTag(dst, num, wireFixed8), v)
}

func appendFixed4(dst []byte, num uint32, v uint32) []byte {
	if v == 0 {
		return dst
	}
	return binary.LittleEndian.AppendUint32(appendTag(dst, num, wireFixed4), v)
}

// openMessage begins a message whose length is not known yet; closeMessage puts the length in.
func openMessage(dst []byte, num uint32) ([]byte, int) {
	dst = appendTag(dst, num, wireBytes)
	dst = append(dst, 0)
	return dst, len(dst)
}

func closeMessage(dst []byte, from int) []byte {
	n := uint64(len(dst) - from)
	if n < 0x80 {
		dst[from-1] = byte(n)
		return dst
	}
	var head [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(head[:], n)
	dst = append(dst, head[:k-1]...)
	copy(dst[from-1+k:], dst[from:from+int(n)])
	copy(dst[from-1:], head[:k])
	return dst
}
