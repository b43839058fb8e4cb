//go:build torchfile_measure

package torchfile

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var mutateFor = flag.Duration("mutate", 10*time.Second, "how long TestMutations runs")

// TestMutations changes valid pickles opcode by opcode, which reaches further than changing bytes:
//
//	go test -tags torchfile_measure -run Mutations ./torchfile -mutate 10m
//
// An input that fails is left in the file it names.
func TestMutations(t *testing.T) {
	seeds := picklesOf(t)
	var small [][]byte
	for _, name := range slices.Sorted(maps.Keys(seeds)) {
		if p := seeds[name]; len(p) < 8000 && !strings.Contains(name, "laughs") {
			small = append(small, p)
		}
	}
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 7))
	end := time.Now().Add(*mutateFor)
	out := fmt.Sprintf("%s/torchfile-mutation-%d.pkl", os.TempDir(), os.Getpid())
	n, whole := 0, 0
	var input []byte
	defer func() {
		if r := recover(); r != nil {
			_ = os.WriteFile(out, input, 0o600)
			panic(r)
		}
	}()
	for ; time.Now().Before(end); n++ {
		ops := opsOf(small[rnd.IntN(len(small))])
		other := opsOf(small[rnd.IntN(len(small))])
		for range 1 + rnd.IntN(6) {
			ops = mutate(rnd, ops, other)
		}
		p := slices.Concat(ops...)
		if len(p) == 0 || p[0] == 'P' {
			continue
		}
		input = p
		ok := t.Run("", func(t *testing.T) {
			if readEveryWay(t, p) {
				whole++
			}
		})
		if !ok {
			if err := os.WriteFile(out, p, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Fatalf("see %s", out)
		}
	}
	t.Logf("%d mutations, %d of them valid", n, whole)
}

func opsOf(p []byte) [][]byte {
	d := newDoc(&File{}, p)
	var ops [][]byte
	for pos := 0; pos < len(p); {
		next, err := d.nextOp(pos)
		if err != nil {
			return append(ops, p[pos:])
		}
		ops = append(ops, p[pos:next:next])
		pos = next
	}
	return ops
}

func mutate(rnd *rand.Rand, ops, other [][]byte) [][]byte {
	if len(ops) < 3 || len(other) == 0 {
		return ops
	}
	ops = slices.Clone(ops)
	at := func() int { return rnd.IntN(len(ops)) }
	i := at()
	switch rnd.IntN(9) {
	case 0: // remove some
		return slices.Delete(ops, i, min(len(ops), i+1+rnd.IntN(4)))
	case 1: // repeat some
		return slices.Insert(ops, i, slices.Clone(ops[i:min(len(ops), i+1+rnd.IntN(8))])...)
	case 2: // swap two
		j := at()
		ops[i], ops[j] = ops[j], ops[i]
	case 3: // move some
		j := min(len(ops), i+1+rnd.IntN(8))
		part := slices.Clone(ops[i:j])
		ops = slices.Delete(ops, i, j)
		return slices.Insert(ops, rnd.IntN(len(ops)+1), part...)
	case 4: // take some from elsewhere
		j := rnd.IntN(len(other))
		return slices.Insert(ops, i, other[j:min(len(other), j+1+rnd.IntN(12))]...)
	case 5: // refer to a memo slot
		return slices.Insert(ops, i, []byte{opBinGet, byte(rnd.IntN(30))})
	case 6: // change an argument
		op := slices.Clone(ops[i])
		if len(op) > 1 {
			op[1+rnd.IntN(len(op)-1)] = byte(rnd.IntN(40))
		}
		ops[i] = op
	case 7: // an opcode without arguments
		const plain = "(.012NRabdelos tu]})\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94Q"
		return slices.Insert(ops, i, []byte{plain[rnd.IntN(len(plain))]})
	case 8: // another opcode of the same length
		if op := ops[i]; len(op) == 2 {
			ops[i] = []byte{[]byte("KhqU\x82")[rnd.IntN(5)], op[1]}
		} else if len(op) == 5 {
			ops[i] = binary.LittleEndian.AppendUint32([]byte{[]byte("Jjr")[rnd.IntN(3)]}, uint32(rnd.IntN(300)))
		}
	}
	return ops
}
