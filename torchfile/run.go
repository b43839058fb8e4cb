package torchfile

import (
	"encoding/binary"
	"math"
)

// Most bytes of a rollout dump are lists of token ids, masks and log-probabilities: long runs of the
// opcodes BININT1, BININT2, BININT, BINFLOAT (and None, True, False, LONG1) between MARK and APPENDS.
// Such a list is never unpacked: its node keeps where the run begins and ends, and its numbers are
// decoded from the map when somebody asks.

// scanRun walks the run that begins at pos and returns where it ends, how many elements it has, and
// what they are. It stops before the first byte that belongs to no element.
func scanRun(b []byte, pos int) (end, n int, what uint8) {
	// The fast loops look ahead; the slow one below finishes the rest.
	const ahead = 16 * 9
	single := 16 // elements that are looked at one by one before the kinds are looked at again
	mixed := 0   // how often that was
	for pos+ahead <= len(b) {
		switch b[pos] {
		case opBinFloat:
			what |= runFloat
			pos += 9
			n++
			for pos+72 <= len(b) {
				w := b[pos : pos+72 : pos+72]
				if w[0]^opBinFloat|w[9]^opBinFloat|w[18]^opBinFloat|w[27]^opBinFloat|
					w[36]^opBinFloat|w[45]^opBinFloat|w[54]^opBinFloat|w[63]^opBinFloat != 0 {
					break
				}
				pos += 72
				n += 8
			}
			continue
		case opBinInt1:
			const mask, all = 0x00ff00ff00ff00ff, 0x004b004b004b004b
			from := pos
			for pos+16 <= len(b) && binary.LittleEndian.Uint64(b[pos:])&mask == all &&
				binary.LittleEndian.Uint64(b[pos+8:])&mask == all {
				pos += 16
				n += 8
			}
			if pos != from {
				what |= runInt
				continue
			}
		case opBinInt2:
			// Most token ids. Three at a time as long as there are no others: no step depends on the one before.
			const mask, all = 0x00ff0000ff0000ff, 0x004d00004d00004d
			from := pos
			for pos+9 <= len(b) && binary.LittleEndian.Uint64(b[pos:])&mask == all {
				pos += 9
				n += 3
			}
			// A wrong guess costs as much as some steps do: the next try comes soon only where this one was
			// right, so that a single token of another size does not end it.
			if single = 16; pos != from {
				single = 2
				what |= runInt
				if pos+ahead > len(b) {
					continue
				}
			}
		}
		// A mixture of sizes: one step depends on the one before, and a wrong guess costs more than a step,
		// so the kinds are looked at only once in a while.
		if mixed++; mixed > 3 && pos+mixedAhead <= len(b) {
			stop, k, kinds := scanMixed((*[mixedAhead]byte)(b[pos:]))
			pos, n, what = pos+stop, n+k, what|kinds
			if runInfo[b[pos]] != 0 {
				continue
			}
			single = 1 // it may be an odd one
		}
		w := b[pos : pos+ahead : pos+ahead]
		at, k := 0, 0
		for ; k < single; k++ {
			info := runInfo[w[at]]
			if info == 0 {
				break
			}
			what |= info
			at += int(info & runSize)
		}
		pos += at
		n += k
		if k < single {
			next := oddElement(b, pos)
			if next == 0 {
				return pos, n, what &^ runSize
			}
			if b[pos] == opLong1 {
				what |= runInt
				n++
			}
			pos = next
		}
	}
	for pos < len(b) {
		info := runInfo[b[pos]]
		size := int(info & runSize)
		if size == 0 {
			next := oddElement(b, pos)
			if next == 0 {
				break
			}
			if b[pos] == opLong1 {
				what |= runInt
				n++
			}
			pos = next
			continue
		}
		if pos+size > len(b) {
			break
		}
		what |= info &^ runSize
		pos += size
		n++
	}
	return pos, n, what &^ runSize
}

const (
	mixedSpan   = 256 // bytes that one of the four walkers of scanMixed goes over
	mixedBlock  = 4 * mixedSpan
	mixedAhead  = mixedBlock + 160 // what must be there, so that the loop that goes on behind has its own
	mixedBefore = 1<<16 - 1        // of a walker's sum: how far it is; its elements are counted from bit 16 on
	mixedOther  = 1 << 32          // and those that are no integers from here on
)

// mixedStep is what an element adds to a walker's sum; 0 for what is none.
var mixedStep = [256]uint64{
	opBinInt1:  2 | 1<<16,
	opBinInt2:  3 | 1<<16,
	opBinInt:   5 | 1<<16,
	opBinFloat: 9 | 1<<16 | mixedOther,
	opNone:     1 | 1<<16 | mixedOther,
	opNewTrue:  1 | 1<<16 | mixedOther,
	opNewFalse: 1 | 1<<16 | mixedOther,
}

// scanMixed walks elements of different sizes from the beginning of w on, as scanRun does, up to the end
// of the block or to what is no element of fixed size. A walker must wait for the size of an element
// before it can look at the next one. So there are four of them at work at once, three of which begin
// where an element seems to begin; what such a one found counts when the walker before it arrives at
// just that place, and otherwise is forgotten.
func scanMixed(w *[mixedAhead]byte) (end, n int, what uint8) {
	at := [5]uint64{0, seemsElement(w, mixedSpan), seemsElement(w, 2*mixedSpan), seemsElement(w, 3*mixedSpan), mixedBlock}
	p0, p1, p2, p3 := at[0], at[1], at[2], at[3]
	for {
		sum := p0 + p1 + p2 + p3
		for range 8 {
			q := p0 & mixedBefore
			step := mixedStep[w[q]]
			if q >= at[1] {
				step = 0
			}
			p0 += step
			q = p1 & mixedBefore
			step = mixedStep[w[q]]
			if q >= at[2] {
				step = 0
			}
			p1 += step
			q = p2 & mixedBefore
			step = mixedStep[w[q]]
			if q >= at[3] {
				step = 0
			}
			p2 += step
			q = p3 & mixedBefore
			step = mixedStep[w[q]]
			if q >= at[4] {
				step = 0
			}
			p3 += step
		}
		if p0+p1+p2+p3 == sum {
			break
		}
	}
	sum := p0
	for k, p := range [...]uint64{p1, p2, p3} {
		if sum&mixedBefore != at[k+1] {
			break
		}
		sum += p - at[k+1]
	}
	end, n = int(sum&mixedBefore), int(sum>>16&mixedBefore)
	if sum < mixedOther && n > 0 {
		return end, n, runInt
	}
	for q := 0; q < end; {
		info := runInfo[w[q]]
		what |= info
		q += int(info & runSize)
	}
	return end, n, what
}

// seemsElement guesses where near from an element begins.
func seemsElement(w *[mixedAhead]byte, from uint64) uint64 {
	for at := from; at < from+5; at++ {
		second := at + mixedStep[w[at]]&mixedBefore
		if second != at && mixedStep[w[second]] != 0 {
			return at
		}
	}
	return from
}

// oddElement returns where the element or frame header at pos ends when it is one that may stand in
// a run but has no fixed size: an integer of up to 8 bytes (LONG1), or a FRAME header, which may stand
// anywhere. 0 when it is neither.
func oddElement(b []byte, pos int) int {
	switch b[pos] {
	case opLong1:
		if pos+2 <= len(b) && b[pos+1] <= 8 && pos+2+int(b[pos+1]) <= len(b) {
			return pos + 2 + int(b[pos+1])
		}
	case opFrame:
		if pos+9 <= len(b) {
			return pos + 9
		}
	}
	return 0
}

// runCursor decodes the elements of a run. A run may hold several batches, each closed by APPENDS
// and followed by the next MARK.
type runCursor struct {
	b        []byte
	pos, end int
}

// next returns the next element as a cell; false at the end.
func (c *runCursor) next() (cell, bool) {
	for c.pos < c.end {
		p := c.pos
		switch c.b[p] {
		case opBinInt1:
			c.pos += 2
			return intCell(int64(c.b[p+1])), true
		case opBinInt2:
			c.pos += 3
			return intCell(int64(binary.LittleEndian.Uint16(c.b[p+1:]))), true
		case opBinInt:
			c.pos += 5
			return intCell(int64(int32(binary.LittleEndian.Uint32(c.b[p+1:])))), true
		case opBinFloat:
			c.pos += 9
			return cell{a: uint64(ckFloat), b: binary.BigEndian.Uint64(c.b[p+1:])}, true
		case opNone:
			c.pos++
			return cell{a: uint64(ckNone)}, true
		case opNewTrue:
			c.pos++
			return boolCell(true), true
		case opNewFalse:
			c.pos++
			return boolCell(false), true
		case opLong1:
			n := int(c.b[p+1])
			c.pos += 2 + n
			return intCell(smallLong(c.b[p+2 : p+2+n])), true
		case opFrame:
			c.pos += 9
		default: // APPENDS, MARK: between batches
			c.pos++
		}
	}
	return cell{}, false
}

// smallLong decodes a little-endian two's complement integer of at most 8 bytes.
func smallLong(b []byte) int64 {
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	if n := len(b); n > 0 && n < 8 && b[n-1]&0x80 != 0 {
		v |= math.MaxUint64 << (8 * n)
	}
	return int64(v)
}

// appendRunInts appends the integers of a run whose elements are all integers or booleans.
func appendRunInts(dst []int64, b []byte, pos, end int) []int64 {
	for pos < end {
		switch b[pos] {
		case opBinInt1:
			dst = append(dst, int64(b[pos+1]))
			pos += 2
		case opBinInt2:
			dst = append(dst, int64(binary.LittleEndian.Uint16(b[pos+1:])))
			pos += 3
		case opBinInt:
			dst = append(dst, int64(int32(binary.LittleEndian.Uint32(b[pos+1:]))))
			pos += 5
		case opNewTrue:
			dst = append(dst, 1)
			pos++
		case opNewFalse:
			dst = append(dst, 0)
			pos++
		case opLong1:
			n := int(b[pos+1])
			dst = append(dst, smallLong(b[pos+2:pos+2+n]))
			pos += 2 + n
		case opFrame:
			pos += 9
		default:
			pos++
		}
	}
	return dst
}

// sumRunInts adds up a run whose elements are all integers or booleans.
func sumRunInts(b []byte, pos, end int) (sum int64) {
	for pos < end {
		if b[pos] == opBinInt1 {
			// Masks: four elements a word, whose values are added up in four lanes of 16 bits, which hold 256 of them.
			const mask, all = 0x00ff00ff00ff00ff, 0x004b004b004b004b
			lanes := uint64(0)
			k := 0
			for ; k < 256 && pos+8 <= end; k++ {
				w := binary.LittleEndian.Uint64(b[pos:])
				if w&mask != all {
					break
				}
				lanes += w >> 8 & mask
				pos += 8
			}
			sum += int64(lanes&0xffff + lanes>>16&0xffff + lanes>>32&0xffff + lanes>>48)
			if k > 0 {
				continue
			}
		}
		c := runCursor{b: b, pos: pos, end: end}
		v, ok := c.next()
		if !ok {
			break
		}
		pos = c.pos
		sum += int64(v.b)
	}
	return sum
}

// appendRunFloats appends the numbers of a run as float64; None becomes NaN.
func appendRunFloats(dst []float64, b []byte, pos, end int) []float64 {
	for pos < end {
		if b[pos] == opBinFloat {
			dst = append(dst, math.Float64frombits(binary.BigEndian.Uint64(b[pos+1:])))
			pos += 9
			continue
		}
		c := runCursor{b: b, pos: pos, end: end}
		v, ok := c.next()
		if !ok {
			break
		}
		pos = c.pos
		switch v.kind() {
		case ckFloat:
			dst = append(dst, math.Float64frombits(v.b))
		case ckNone:
			dst = append(dst, math.NaN())
		default:
			dst = append(dst, float64(int64(v.b)))
		}
	}
	return dst
}
