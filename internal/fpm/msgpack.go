package fpm

import (
	"encoding/binary"
	"fmt"
	"math"
)

// reader reads MessagePack. After its first failure each further read returns zero, so that callers
// look at err once.
type reader struct {
	b     []byte
	off   int
	field string
	err   *Error
}

func (r *reader) fail(reason Reason, at int, detail string) {
	if r.err == nil {
		r.err = &Error{Reason: reason, Offset: at, Field: r.field, Detail: detail}
	}
}

// take returns the next n bytes, nil when there are fewer.
func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.b)-r.off {
		r.missing(n)
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

func (r *reader) missing(n int) {
	if r.err != nil {
		return
	}
	r.fail(Truncated, r.off, fmt.Sprintf("%d bytes are missing", n-(len(r.b)-r.off)))
}

// next passes over bytes if they are what comes.
func (r *reader) next(is string) bool {
	end := r.off + len(is)
	if end > len(r.b) || string(r.b[r.off:end]) != is {
		return false
	}
	r.off = end
	return true
}

// size reads a big-endian length of 1, 2 or 4 bytes.
func (r *reader) size(n int) int {
	b := r.take(n)
	if b == nil {
		return 0
	}
	switch n {
	case 1:
		return int(b[0])
	case 2:
		return int(binary.BigEndian.Uint16(b))
	}
	return int(min(binary.BigEndian.Uint32(b), math.MaxInt32))
}

// code reads the byte that begins a value; 0xc1, which MessagePack never uses, when there is none.
func (r *reader) code() byte {
	b := r.take(1)
	if b == nil {
		return 0xc1
	}
	return b[0]
}

// peek is code without going on.
func (r *reader) peek() byte {
	c := r.code()
	if r.err == nil {
		r.off--
	}
	return c
}

func (r *reader) wrong(want string, at int, c byte) {
	if c == 0xc1 {
		r.fail(Malformed, at, "0xc1 begins no MessagePack value")
		return
	}
	r.fail(Type, at, fmt.Sprintf("want %s, got %s (0x%02x)", want, kind(c), c))
}

// kind names what a value's first byte says it is.
func kind(c byte) string {
	switch {
	case c < 0x80 || c >= 0xe0 || c >= 0xcc && c <= 0xd3:
		return "an integer"
	case c < 0x90 || c == 0xde || c == 0xdf:
		return "a map"
	case c < 0xa0 || c == 0xdc || c == 0xdd:
		return "an array"
	case c < 0xc0 || c >= 0xd9 && c <= 0xdb:
		return "a string"
	case c == 0xc0:
		return "nil"
	case c == 0xc2 || c == 0xc3:
		return "a bool"
	case c >= 0xc4 && c <= 0xc6:
		return "bytes"
	case c == 0xca || c == 0xcb:
		return "a float"
	}
	return "an extension"
}

// bytes reads a string or bytes; both name things in the field.
func (r *reader) bytes() []byte {
	at, c := r.off, r.code()
	switch {
	case c >= 0xa0 && c < 0xc0:
		return r.take(int(c & 31))
	case c == 0xd9 || c == 0xc4:
		return r.take(r.size(1))
	case c == 0xda || c == 0xc5:
		return r.take(r.size(2))
	case c == 0xdb || c == 0xc6:
		return r.take(r.size(4))
	}
	r.wrong("a string", at, c)
	return nil
}

// number reads an integer as it is, or a float: whole says which. A negative integer is given as float.
func (r *reader) number() (u uint64, f float64, whole bool) {
	at, c := r.off, r.code()
	switch {
	case c < 0x80:
		return uint64(c), 0, true
	case c >= 0xe0:
		return 0, float64(int8(c)), false
	}
	var n int
	switch c {
	case 0xcc, 0xd0:
		n = 1
	case 0xcd, 0xd1:
		n = 2
	case 0xca, 0xce, 0xd2:
		n = 4
	case 0xcb, 0xcf, 0xd3:
		n = 8
	default:
		r.wrong("a number", at, c)
		return 0, 0, true
	}
	b := r.take(n)
	if b == nil {
		return 0, 0, true
	}
	switch c {
	case 0xcc:
		return uint64(b[0]), 0, true
	case 0xcd:
		return uint64(binary.BigEndian.Uint16(b)), 0, true
	case 0xce:
		return uint64(binary.BigEndian.Uint32(b)), 0, true
	case 0xcf:
		return binary.BigEndian.Uint64(b), 0, true
	case 0xca:
		return 0, float64(math.Float32frombits(binary.BigEndian.Uint32(b))), false
	case 0xcb:
		return 0, math.Float64frombits(binary.BigEndian.Uint64(b)), false
	}
	var i int64
	switch c {
	case 0xd0:
		i = int64(int8(b[0]))
	case 0xd1:
		i = int64(int16(binary.BigEndian.Uint16(b)))
	case 0xd2:
		i = int64(int32(binary.BigEndian.Uint32(b)))
	default:
		i = int64(binary.BigEndian.Uint64(b))
	}
	if i < 0 {
		return 0, float64(i), false
	}
	return uint64(i), 0, true
}

// count reads a whole number that is not negative. A float is taken when it is one exactly.
func (r *reader) count() uint64 {
	at := r.off
	u, f, whole := r.number()
	if whole {
		return u
	}
	switch {
	case f < 0 || math.IsNaN(f) || math.IsInf(f, 0):
		r.fail(Value, at, fmt.Sprintf("%v is no count", f))
	case f != math.Trunc(f) || f > 1<<53:
		r.fail(Type, at, fmt.Sprintf("want a whole number, got %v", f))
	}
	return uint64(max(f, 0))
}

// real reads a number that is finite and not negative. Some emitters write whole ones as integers.
func (r *reader) real() float64 {
	at := r.off
	u, f, whole := r.number()
	if whole {
		return float64(u)
	}
	if !(f >= 0) || math.IsInf(f, 0) {
		r.fail(Value, at, fmt.Sprintf("%v is negative or not finite", f))
		return 0
	}
	return f + 0 // -0 is 0
}

// open reads the head of a map or of an array.
func (r *reader) open() (n int, isMap, isArray bool) {
	switch c := r.code(); {
	case c >= 0x80 && c < 0x90:
		return int(c & 15), true, false
	case c == 0xde:
		return r.size(2), true, false
	case c == 0xdf:
		return r.size(4), true, false
	case c >= 0x90 && c < 0xa0:
		return int(c & 15), false, true
	case c == 0xdc:
		return r.size(2), false, true
	case c == 0xdd:
		return r.size(4), false, true
	}
	return 0, false, false
}

// skip passes over a value of any kind, however deep, in time and space bounded by its bytes.
func (r *reader) skip() {
	for todo := uint64(1); todo > 0 && r.err == nil; todo-- {
		// Each value has a byte at least, so more values than bytes cannot come.
		if todo > uint64(len(r.b)-r.off) {
			r.fail(Truncated, len(r.b), "ends inside a value that this schema does not have")
			return
		}
		at, c := r.off, r.code()
		switch {
		case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		case c < 0x90:
			todo += 2 * uint64(c&15)
		case c < 0xa0:
			todo += uint64(c & 15)
		case c < 0xc0:
			r.take(int(c & 31))
		case c == 0xc4, c == 0xd9:
			r.take(r.size(1))
		case c == 0xc5, c == 0xda:
			r.take(r.size(2))
		case c == 0xc6, c == 0xdb:
			r.take(r.size(4))
		case c == 0xc7:
			r.take(r.size(1) + 1)
		case c == 0xc8:
			r.take(r.size(2) + 1)
		case c == 0xc9:
			n := r.size(4)
			r.take(1)
			r.take(n)
		case c == 0xcc, c == 0xd0:
			r.take(1)
		case c == 0xcd, c == 0xd1, c == 0xd4:
			r.take(2)
		case c == 0xd5:
			r.take(3)
		case c == 0xca, c == 0xce, c == 0xd2:
			r.take(4)
		case c == 0xd6:
			r.take(5)
		case c == 0xcb, c == 0xcf, c == 0xd3:
			r.take(8)
		case c == 0xd7:
			r.take(9)
		case c == 0xd8:
			r.take(17)
		case c == 0xdc:
			todo += uint64(r.size(2))
		case c == 0xdd:
			todo += uint64(r.size(4))
		case c == 0xde:
			todo += 2 * uint64(r.size(2))
		case c == 0xdf:
			todo += 2 * uint64(r.size(4))
		default:
			r.wrong("a value", at, c)
		}
	}
}

// writer appends MessagePack, as short as it goes or, when wide, as long.
type writer struct {
	b    []byte
	wide bool
}

func (w *writer) mapOf(n int) {
	switch {
	case w.wide:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xdf), uint32(n))
	case n < 16:
		w.b = append(w.b, 0x80|byte(n))
	default:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xde), uint16(n))
	}
}

func (w *writer) arrayOf(n int) {
	switch {
	case w.wide:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xdd), uint32(n))
	case n < 16:
		w.b = append(w.b, 0x90|byte(n))
	default:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xdc), uint16(n))
	}
}

func (w *writer) text(s string) {
	switch {
	case w.wide || len(s) > math.MaxUint16:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xdb), uint32(len(s)))
	case len(s) < 32:
		w.b = append(w.b, 0xa0|byte(len(s)))
	case len(s) < 256:
		w.b = append(w.b, 0xd9, byte(len(s)))
	default:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xda), uint16(len(s)))
	}
	w.b = append(w.b, s...)
}

func (w *writer) uint(u uint64) {
	switch {
	case w.wide || u > math.MaxUint32:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xcf), u)
	case u < 128:
		w.b = append(w.b, byte(u))
	case u < 256:
		w.b = append(w.b, 0xcc, byte(u))
	case u <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xcd), uint16(u))
	default:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xce), uint32(u))
	}
}

func (w *writer) float(f float64) {
	w.b = binary.BigEndian.AppendUint64(append(w.b, 0xcb), math.Float64bits(f))
}
