package rollout

import (
	"bytes"
	"encoding/binary"
	"math"
)

// repetitionWindow is how many code points at the end of a response slime looks at, and how long a
// response must be more than to be looked at.
const repetitionWindow = 10000

// repeats tells whether the last part of a response repeats itself by slime's rule (has_repetition): of
// a response of more than 10,000 code points, zlib at level 9 makes the last 10,000, as UTF-8, more than
// ten times smaller. The size is that of C zlib, byte for byte, so there is no grey zone around the
// threshold.
func (z *zlibSizer) repeats(tail []byte) bool {
	size, exact := z.size(tail, len(tail)/10)
	return exact && float64(len(tail))/float64(size) > 10
}

// lastCodePoints returns the last n code points of text and whether there are more than n.
func lastCodePoints(text []byte, n int) (tail []byte, more bool) {
	i := len(text)
	for n > 0 && i > 0 {
		if n >= 8 && i >= 8 && binary.LittleEndian.Uint64(text[i-8:])&0x8080808080808080 == 0 {
			i, n = i-8, n-8
			continue
		}
		i--
		if text[i]&0xc0 != 0x80 {
			n--
		}
	}
	return text[i:], n == 0 && i > 0
}

// hasSurrogate finds a surrogate in UTF-8 written with surrogatepass: ED A0..BF.
func hasSurrogate(b []byte) bool {
	for i := bytes.IndexByte(b, 0xed); i >= 0 && i+1 < len(b); {
		if b[i+1] >= 0xa0 {
			return true
		}
		next := bytes.IndexByte(b[i+1:], 0xed)
		if next < 0 {
			return false
		}
		i += 1 + next
	}
	return false
}

// zlibSizer computes how many bytes C zlib's deflate at level 9 would write, without writing them.
//
// Go's compress/flate chooses other matches and block borders than C zlib, and its output differs by
// some percent, enough to change a verdict at the threshold. So this follows zlib: lazy matching with
// 15-bit hash chains of at most 4,096 (deflate.c, configuration 9: good 32, lazy 258, nice 258), blocks
// of 16,383 symbols, and the cheapest of stored, fixed and dynamic codes (trees.c). Inputs are at most
// 40,000 bytes here, so the window never slides. A zlibSizer is not safe for concurrent use.
type zlibSizer struct {
	head [1 << 15]uint16 // position of the latest string of a hash, 0 is none (as in zlib, position 0 is never found)
	prev []uint16
	data []byte

	lit   [zLitCodes]uint32 // frequencies of the block's literals and lengths
	dist  [zDistCodes]uint32
	extra uint64 // extra bits of the block's lengths and distances
	syms  int
	from  int    // where the block's bytes start
	bits  uint64 // of finished blocks
	tree  huffman
	logs  [512]float64
}

const (
	zLitCodes  = 286
	zDistCodes = 30
	zMaxSyms   = 1<<14 - 1
	zMaxMatch  = 258
	zMaxDist   = 1<<15 - 262
	zTooFar    = 4096
	zMaxInput  = 1 << 16
)

// size returns the size of the zlib stream of data. When it is certain that it exceeds limit, it stops:
// exact is false and the size is a lower bound. limit <= 0 means none. data must be below 64 KiB.
func (z *zlibSizer) size(data []byte, limit int) (n int, exact bool) {
	if len(data) >= zMaxInput {
		data = data[len(data)-zMaxInput+1:]
	}
	clear(z.head[:])
	if cap(z.prev) < len(data) {
		z.prev = make([]uint16, len(data))
	}
	z.prev, z.data = z.prev[:len(data)], data
	z.bits, z.from = 0, 0
	z.begin()

	pos, prevLen, prevMatch, available := 0, 2, 0, false
	check := 1024
	for pos < len(data) {
		if limit > 0 && pos >= check {
			// Whatever the code, the symbols so far cost at least their entropy.
			low, most := z.bits+z.lowerBound(), uint64(limit+1)*8
			if low > most {
				return int(low / 8), false
			}
			// Ask again where it will be certain if the text goes on like this.
			check = pos + max(256, int(uint64(pos)*(most-low)/(low+1)))
		}
		look := len(data) - pos
		found := 0
		if look >= 3 {
			found = z.insert(pos)
		}
		curLen, match := 2, 0
		if found != 0 && prevLen < zMaxMatch && pos-found <= zMaxDist {
			curLen, match = z.longest(pos, found, prevLen)
			if curLen == 3 && pos-match > zTooFar {
				curLen = 2
			}
		}
		switch {
		case prevLen >= 3 && curLen <= prevLen:
			lastInsert := len(data) - 3
			full := z.tallyMatch(pos-1-prevMatch, prevLen)
			end := pos - 1 + prevLen
			for pos++; pos < end; pos++ {
				if pos <= lastInsert {
					z.insert(pos)
				}
			}
			available = false
			prevLen, prevMatch = 2, 0
			if full {
				z.flush(pos, false)
			}
			continue
		case available:
			if z.tallyLit(data[pos-1]) {
				z.flush(pos, false)
			}
		default:
			available = true
		}
		pos++
		prevLen, prevMatch = curLen, match
	}
	if available {
		z.tallyLit(data[len(data)-1])
	}
	z.flush(len(data), true)
	return int((z.bits+7)/8) + 6, true // 2 bytes of header, 4 of checksum
}

// insert enters the string at pos into its hash chain and returns the chain's former head.
func (z *zlibSizer) insert(pos int) int {
	d := z.data[pos : pos+3 : pos+3]
	h := (uint32(d[0])<<10 ^ uint32(d[1])<<5 ^ uint32(d[2])) & (1<<15 - 1)
	old := z.head[h]
	z.prev[pos] = old
	z.head[h] = uint16(pos)
	return int(old)
}

// longest looks for a match longer than best, newest first; it returns best when there is none.
func (z *zlibSizer) longest(pos, cur, best int) (length, start int) {
	data := z.data
	look := len(data) - pos
	nice := min(zMaxMatch, look)
	if best >= look {
		return look, 0 // nothing here can beat the match before
	}
	chain := 4096
	if best >= 32 {
		chain >>= 2
	}
	limit := max(0, pos-zMaxDist)
	scan := data[pos : pos+nice]
	for {
		m := data[cur : cur+nice]
		if best < len(scan) && m[best] == scan[best] && m[best-1] == scan[best-1] && m[0] == scan[0] && m[1] == scan[1] {
			n := 2
			for n < len(scan) && m[n] == scan[n] {
				n++
			}
			if n > best {
				best, start = n, cur
				if n >= nice {
					break
				}
			}
		}
		cur = int(z.prev[cur])
		if cur <= limit {
			break
		}
		if chain--; chain == 0 {
			break
		}
	}
	return best, start
}

func (z *zlibSizer) begin() {
	clear(z.lit[:])
	clear(z.dist[:])
	z.lit[256] = 1 // end of block
	z.extra, z.syms = 0, 0
}

func (z *zlibSizer) tallyLit(b byte) bool {
	z.lit[b]++
	z.syms++
	return z.syms == zMaxSyms
}

func (z *zlibSizer) tallyMatch(dist, length int) bool {
	lc, le := lengthCode(length)
	dc, de := distCode(dist)
	z.lit[257+lc]++
	z.dist[dc]++
	z.extra += uint64(le + de)
	z.syms++
	return z.syms == zMaxSyms
}

// lengthCode and distCode give the code of RFC 1951, 3.2.5, and its number of extra bits.
func lengthCode(n int) (code, extra int) {
	n -= 3
	switch {
	case n == 255:
		return 28, 0
	case n < 8:
		return n, 0
	}
	extra = log2(n) - 2
	return extra*4 + n>>extra, extra
}

func distCode(d int) (code, extra int) {
	d--
	if d < 4 {
		return d, 0
	}
	extra = log2(d) - 1
	return extra*2 + d>>extra, extra
}

func log2(n int) int {
	l := 0
	for n >>= 1; n != 0; n >>= 1 {
		l++
	}
	return l
}

// lowerBound is a bound on the bits of the block so far: no prefix code beats the entropy of what it
// codes, and what follows only adds to it.
func (z *zlibSizer) lowerBound() uint64 {
	bits := z.entropyBits(z.lit[:]) + z.entropyBits(z.dist[:])
	return uint64(max(0, bits-1)) + z.extra // 1 for what rounding may have added
}

func (z *zlibSizer) entropyBits(freq []uint32) float64 {
	total, sum := uint32(0), 0.0
	for _, f := range freq {
		if f > 1 {
			sum += z.nLogN(f)
		}
		total += f
	}
	return z.nLogN(total) - sum
}

// nLogN is n log2 n; small ones are kept.
func (z *zlibSizer) nLogN(n uint32) float64 {
	if n < 2 {
		return 0
	}
	if int(n) < len(z.logs) && z.logs[n] != 0 {
		return z.logs[n]
	}
	v := float64(n) * math.Log2(float64(n))
	if int(n) < len(z.logs) {
		z.logs[n] = v
	}
	return v
}

// flush adds the cost of the block that ends at end.
func (z *zlibSizer) flush(end int, last bool) {
	t := &z.tree
	dyn, fixed := z.extra, z.extra
	d, f, litMax := t.build(z.lit[:], 15, fixedLitLen)
	dyn, fixed = addBits(dyn, d), addBits(fixed, f)
	var litLen [zLitCodes]uint8
	copy(litLen[:], t.length[:zLitCodes])
	d, f, distMax := t.build(z.dist[:], 15, fixedDistLen)
	dyn, fixed = addBits(dyn, d), addBits(fixed, f)
	var code [19]uint32
	scanLengths(litLen[:litMax+1], &code)
	scanLengths(t.length[:distMax+1], &code)
	d, _, _ = t.build(code[:], 7, nil)
	dyn = addBits(dyn, d) + uint64(code[16])*2 + uint64(code[17])*3 + uint64(code[18])*7
	n := 19
	for n > 4 && t.length[codeOrder[n-1]] == 0 {
		n--
	}
	dyn += uint64(3*n + 5 + 5 + 4)

	dynBytes, fixedBytes := (dyn+3+7)/8, (fixed+3+7)/8
	best := min(dynBytes, fixedBytes)
	switch stored := uint64(end - z.from); {
	case stored+4 <= best:
		z.bits = (z.bits+3+7)/8*8 + 32 + stored*8
	case fixedBytes <= dynBytes:
		z.bits += 3 + fixed
	default:
		z.bits += 3 + dyn
	}
	z.from = end
	if !last {
		z.begin()
	}
}

// addBits adds a cost that may be negative by the bits that zlib takes back for invented codes.
func addBits(a uint64, b int64) uint64 { return uint64(int64(a) + b) }
