package torchfile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// runOf encodes n elements of one sort as the pickler does.
func runOf(sort string, n int) []byte {
	rnd := rand.New(rand.NewPCG(3, 4))
	var e Writer
	for range n {
		switch sort {
		case "mask":
			e.buf = appendInt(e.buf, 1)
		case "tokens":
			e.buf = appendInt(e.buf, []int64{rnd.Int64N(256), rnd.Int64N(65536), rnd.Int64N(65536), rnd.Int64N(65536), 65536 + rnd.Int64N(80000)}[rnd.IntN(5)])
		case "common tokens": // as most texts have them
			e.buf = appendInt(e.buf, []int64{rnd.Int64N(256), 65536 + rnd.Int64N(80000), 256 + rnd.Int64N(65280)}[min(2, rnd.IntN(33))])
		case "floats":
			e.buf = append(e.buf, opBinFloat, 0xbf, 1, 2, 3, 4, 5, 6, byte(rnd.Uint32()))
		case "mixed":
			switch rnd.IntN(6) {
			case 0:
				e.buf = append(e.buf, opNone)
			case 1:
				e.buf = append(e.buf, opNewTrue)
			case 2:
				e.buf = append(e.buf, opBinFloat, 1, 2, 3, 4, 5, 6, 7, 8)
			default:
				e.buf = appendInt(e.buf, rnd.Int64())
			}
		}
	}
	return e.buf
}

// TestScanRun cuts runs at every place near their end: never more elements than are whole, and the
// fast loops agree with the cursor.
func TestScanRun(t *testing.T) {
	for _, sort := range []string{"mask", "tokens", "common tokens", "floats", "mixed"} {
		for n := range 200 {
			b := append(runOf(sort, n), opAppends)
			end, got, what := scanRun(b, 0)
			if end != len(b)-1 || got != n {
				t.Fatalf("%d %s: %d elements in %d of %d bytes", n, sort, got, end, len(b)-1)
			}
			cur := runCursor{b, 0, end}
			k := 0
			for c, ok := cur.next(); ok; c, ok = cur.next() {
				k++
				if c.kind() == ckFloat && what&runFloat == 0 || c.kind() == ckInt && what&runInt == 0 {
					t.Fatalf("%s: element %d is not in %02x", sort, k, what)
				}
			}
			if k != n {
				t.Fatalf("%s: the cursor sees %d of %d", sort, k, n)
			}
			if n > 0 && n < 60 {
				for cut := range b[:end] {
					if e, got, _ := scanRun(b[:cut], 0); e > cut || got > n || (got == n && cut < end) {
						t.Fatalf("%d %s cut at %d: %d elements to %d", n, sort, cut, got, e)
					}
				}
			}
		}
	}
}

// walkRun is scanRun element by element.
func walkRun(b []byte, pos int) (end, n int, what uint8) {
	for pos < len(b) {
		info := runInfo[b[pos]]
		size := int(info & runSize)
		switch next := oddElement(b, pos); {
		case size != 0 && pos+size <= len(b):
			n, what, pos = n+1, what|info&^runSize, pos+size
		case size == 0 && next != 0:
			if b[pos] == opLong1 {
				n, what = n+1, what|runInt
			}
			pos = next
		default:
			return pos, n, what
		}
	}
	return pos, n, what
}

// TestScanRunAgrees compares with the plain walk: runs longer and shorter than what is looked at at once,
// whatever follows them, and numbers whose bytes look like opcodes.
func TestScanRunAgrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	seems := []byte{opBinInt1, opBinInt2, opBinInt, opBinFloat, opNone, opNewTrue, opLong1, opFrame, opAppends, opMark}
	ops := []byte{opBinInt1, opBinInt2, opBinInt2, opBinInt2, opBinInt, opBinInt1, opBinFloat, opNone, opNewFalse}
	for _, sorts := range []int{1, 2, 5, 6, 7, 9} {
		for _, n := range []int{1, 60, 64, 90, 100, 300, 380, 400, 999, 1000, 5000} {
			for _, like := range []int{0, 2, 30} { // how many of 32 bytes look like opcodes
				var b []byte
				for range n {
					op := ops[rnd.IntN(sorts)]
					if sorts == 2 && rnd.IntN(3) > 0 {
						op = opBinInt2
					}
					b = append(b, op)
					for range int(runInfo[op]&runSize) - 1 {
						x := byte(rnd.Uint32())
						if rnd.IntN(32) < like {
							x = seems[rnd.IntN(len(seems))]
						}
						b = append(b, x)
					}
				}
				b = append(b, opAppends, opMark)
				b = append(b, runOf("tokens", 700)...)
				for _, cut := range []int{len(b), len(b) - 2100, len(b) - rnd.IntN(len(b))} {
					b := b[:max(cut, 0)]
					for from := 0; from < len(b); from += 1 + rnd.IntN(len(b)) {
						end, got, what := scanRun(b, from)
						if e, k, w := walkRun(b, from); end != e || got != k || what != w {
							t.Fatalf("%d sorts, %d elements, %d like opcodes, from %d of %d bytes: to %d, %d elements, %02x; want %d, %d, %02x",
								sorts, n, like, from, len(b), end, got, what, e, k, w)
						}
					}
				}
			}
		}
	}
}

// FuzzScanRun compares with the plain walk.
func FuzzScanRun(f *testing.F) {
	for _, sort := range []string{"mask", "tokens", "common tokens", "floats", "mixed"} {
		f.Add(append(runOf(sort, 1000), opAppends, opMark), uint16(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, from uint16) {
		if int(from) > len(b) {
			return
		}
		end, got, what := scanRun(b, int(from))
		if e, n, w := walkRun(b, int(from)); end != e || got != n || what != w {
			t.Fatalf("to %d, %d elements, %02x; want %d, %d, %02x", end, got, what, e, n, w)
		}
	})
}

// TestSumRunInts compares sums with those of the unpacked elements, lanes that are full included.
func TestSumRunInts(t *testing.T) {
	runs := map[string][]byte{
		"full lanes":  bytes.Repeat([]byte{opBinInt1, 255}, 5000),
		"bools":       bytes.Repeat([]byte{opNewTrue, opNewFalse, opNewTrue}, 50),
		"long":        bytes.Repeat([]byte{opBinInt1, 3, opLong1, 2, 0, 0xff, opLong1, 0}, 20),
		"two batches": append(append(runOf("mask", 1000), opAppends, opMark), runOf("mask", 7)...),
	}
	for _, sort := range []string{"mask", "tokens", "common tokens"} {
		for _, n := range []int{0, 1, 3, 4, 5, 1000} {
			runs[fmt.Sprint(n, " ", sort)] = runOf(sort, n)
		}
	}
	for name, b := range runs {
		want := int64(0)
		for _, x := range appendRunInts(nil, b, 0, len(b)) {
			want += x
		}
		if got := sumRunInts(b, 0, len(b)); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func BenchmarkScanRun(b *testing.B) {
	for _, sort := range []string{"mask", "tokens", "common tokens", "floats"} {
		data := append(runOf(sort, 4000), opAppends)
		b.Run(sort, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				scanRun(data, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4000, "ns/elem")
		})
	}
}
