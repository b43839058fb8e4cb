package torchfile

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// A cell is an unboxed value: 16 bytes without pointers, so that the garbage collector never looks
// into a decoded document.
//
//	a: kind (8 bits) | sub (8 bits) | offset or index (48 bits)
//	b: the number, or the length
type cell struct{ a, b uint64 }

type cellKind uint8

const (
	ckEmpty     cellKind = iota // no value
	ckNone                      //
	ckBool                      // b: 0 or 1
	ckInt                       // b: int64
	ckFloat                     // b: IEEE 754 bits
	ckStr                       // offset: first byte in the source, b: bytes; sub: source and header
	ckBytes                     // as ckStr
	ckByteArray                 // as ckStr
	ckLong                      // offset, b: little-endian two's complement bytes of an integer
	ckLongText                  // offset, b: decimal digits of an integer
	ckNode                      // index of a node
	ckGlobal                    // index of a class or function
	ckDeferred                  // offset: where the value begins; b: memo count there (28) | length (36)
	ckMemoRef                   // as ckDeferred without length; b: memo slot
	ckBuffer                    // b: number of the out-of-band buffer
	ckAux                       // in the memo only: index into memoAux
)

// Where the bytes of a ckStr, ckBytes or ckByteArray are, and how their length is written before
// them (the memo keeps only the offset). subLatin marks bytes that protocol 2 wrote as a string of
// latin-1 characters.
const (
	subHeader  = 0x07 // size of the length field: 1, 2 (none known), 4 or 8 encoded as below
	subNoLen   = 0
	subLen1    = 1
	subLen4    = 2
	subLen8    = 3
	subExtra   = 0x08 // offset is into Doc.extra, not into the source
	subLatin   = 0x10
	subEmitted = 0x20 // of ckDeferred: an element that was given to the visitor
)

const maxOffset = 1<<48 - 1

func mkCell(k cellKind, sub uint8, off int, b uint64) cell {
	return cell{a: uint64(k) | uint64(sub)<<8 | uint64(off)<<16, b: b}
}

func (c cell) kind() cellKind { return cellKind(c.a) }
func (c cell) sub() uint8     { return uint8(c.a >> 8) }
func (c cell) off() int       { return int(c.a >> 16) }

func intCell(v int64) cell { return cell{a: uint64(ckInt), b: uint64(v)} }
func boolCell(v bool) cell {
	c := cell{a: uint64(ckBool)}
	if v {
		c.b = 1
	}
	return c
}
func floatCell(v float64) cell { return cell{a: uint64(ckFloat), b: math.Float64bits(v)} }

// sized fills in the length of a string or bytes cell whose a came out of the memo.
func (c cell) sized(src []byte) cell {
	off := c.off()
	switch c.sub() & subHeader {
	case subLen1:
		c.b = uint64(src[off-1])
	case subLen4:
		c.b = uint64(binary.LittleEndian.Uint32(src[off-4:]))
	case subLen8:
		c.b = binary.LittleEndian.Uint64(src[off-8:])
	}
	return c
}

// headerSize is the number of bytes of opcode and length before a string's first byte.
func headerSize(sub uint8) int {
	switch sub & subHeader {
	case subLen1:
		return 2
	case subLen4:
		return 5
	case subLen8:
		return 9
	}
	return 0
}

const lengthBits = 36

// deferredCell stands for the value at [start, end) of the source, before which memo slots are in use.
func deferredCell(start, end, memo int) cell {
	n := end - start
	if n < 0 || n>>lengthBits != 0 {
		n = 0 // decoding it fails
	}
	return mkCell(ckDeferred, 0, start, uint64(memo)<<lengthBits|uint64(n))
}

func (c cell) deferLen() int  { return int(c.b & (1<<lengthBits - 1)) }
func (c cell) deferMemo() int { return int(c.b >> lengthBits) }

// A node is a container or an object. Like cells it has no pointers.
type node struct {
	id    uint64  // offset of the opcode that created it: its identity
	aux   uint64  // of a run: where it ends; of a tuple or object: where its first part begins
	ref   cellRef // first cell; of a run: where it begins in the source
	n     uint32  // cells (a dict has two per entry); of a run: elements
	size  uint32  // cells reserved at ref; of a run: the sum of its elements + 1, 0 when that is not known
	ext   uint32  // index into Doc.ext, 0 for none
	kind  Kind
	flags uint8
	what  uint8 // runInt... of a run
	role  uint8 // what a filter makes of it
}

// start is where the value begins in the source.
func (n *node) start() int {
	if n.flags&flagAtStart != 0 {
		return int(n.aux)
	}
	return int(n.id)
}

const (
	flagRun     = 1 << iota // elements are numbers that still stand in the source
	flagAtStart             // aux is where the value begins (tuples and objects)
	flagReduce              // object made by REDUCE (a call), not NEWOBJ
	flagEmitted             // streamed list: its elements went to the visitor
)

// ext holds what only objects and instances of dict subclasses have.
type ext struct {
	class  cell // callable or class
	args   cell
	kwargs cell
	state  cell
	pairs  listRef // dict entries of an object, two cells each
}

// What the memory limit counts for a node and an ext.
const (
	nodeSize = int64(unsafe.Sizeof(node{}))
	extSize  = int64(unsafe.Sizeof(ext{}))
	slotSize = int64(unsafe.Sizeof(slot{}))
)

type listRef struct {
	ref     cellRef
	n, size uint32
}

// cellRef addresses cells in the arena: chunk number (24 bits) and position (40 bits).
type cellRef uint64

const chunkBits = 40

// arena hands out runs of consecutive cells. Chunks never move.
type arena struct {
	chunks [][]cell
	last   int // chunk in use
	used   int // cells used in it
}

const (
	firstChunk = 256
	maxChunk   = 1 << 16
)

// alloc reserves n cells and returns how many bytes of memory that took newly.
func (a *arena) alloc(n int) (ref cellRef, grown int64) {
	for len(a.chunks) == 0 || a.used+n > len(a.chunks[a.last]) {
		if a.last+1 < len(a.chunks) && len(a.chunks) > 0 {
			a.last++
			a.used = 0
			continue
		}
		size := firstChunk << min(len(a.chunks), 8)
		size = max(min(size, maxChunk), n)
		a.chunks = append(a.chunks, make([]cell, size))
		a.last = len(a.chunks) - 1
		a.used = 0
		grown += int64(size) * 16
	}
	ref = cellRef(a.last)<<chunkBits | cellRef(a.used)
	a.used += n
	return ref, grown
}

func (a *arena) at(ref cellRef, n int) []cell {
	if n == 0 {
		return nil
	}
	c := a.chunks[ref>>chunkBits]
	i := int(ref & (1<<chunkBits - 1))
	return c[i : i+n : i+n]
}

// extend grows the reservation of size cells at ref to n cells in place when it is the newest one.
func (a *arena) extend(ref cellRef, size, n int) bool {
	if size == 0 || int(ref>>chunkBits) != a.last {
		return false
	}
	i := int(ref & (1<<chunkBits - 1))
	if i+size != a.used || i+n > len(a.chunks[a.last]) {
		return false
	}
	a.used = i + n
	return true
}

type arenaMark struct{ last, used int }

func (a *arena) mark() arenaMark { return arenaMark{a.last, a.used} }

// reset forgets everything reserved after m; chunks of unusual size are given back.
func (a *arena) reset(m arenaMark) (freed int64) {
	a.last, a.used = m.last, m.used
	if len(a.chunks) == 0 {
		return 0
	}
	keep := a.chunks[:a.last+1]
	for _, c := range a.chunks[a.last+1:] {
		if len(c) > maxChunk {
			freed += int64(len(c)) * 16
			continue
		}
		keep = append(keep, c)
	}
	clear(a.chunks[len(keep):])
	a.chunks = keep
	return freed
}
