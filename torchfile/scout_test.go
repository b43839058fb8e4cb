package torchfile

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// runAt is the run of numbers at pos, with the batches that follow it.
func runAt(b []byte, pos int) foundRun {
	end, n, what := walkRun(b, pos)
	r := foundRun{start: pos, end: end, n: n, what: what}
	for r.end+2 < len(b) && b[r.end] == opAppends && b[r.end+1] == opMark && startsRun(b[r.end+2]) {
		end, n, what := walkRun(b, r.end+2)
		if end >= len(b) || b[end] != opAppends {
			break
		}
		r.end, r.n, r.what = end, r.n+n, r.what|what
	}
	return r
}

// TestScout compares what a scout says of every place of a pickle with a walk from there, whatever the
// windows and whatever of what it found arrives.
func TestScout(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var src []byte
	runs := 0
	for k := range 40 {
		src = append(src, "X\x09\x00\x00\x00(K(((M)(Gq\x01]q\x02("...)
		if k%16 == 15 { // text that hides a run, and an opcode that is not stepped over
			src = append(src, "X\xff\x00\x00\x00("...)
			src = append(src, runOf("mask", 127)...)
			src = append(src, "cmodule\nname\n]("...)
		}
		sort := []string{"mask", "tokens", "common tokens", "floats", "mixed"}[rnd.IntN(5)]
		n := rnd.IntN(300)
		src = append(append(src, runOf(sort, n)...), opAppends)
		if k%3 == 0 {
			m := rnd.IntN(300)
			src = append(append(append(src, opMark), runOf(sort, m)...), opAppends)
			n += m
		}
		if n >= scoutLeast {
			runs++
		}
	}
	src = append(src, opMark, opBinInt1)
	for _, window := range []int{20, 100, 1000, len(src)} {
		for _, lost := range []int{0, 3} {
			s := &scout{src: src, found: make(chan []foundRun, len(src)+1)}
			found := 0
			r := runFinder{inStep: true}
			for from := 0; from < len(src); from += window {
				to := min(from+window, len(src))
				if r.pos >= to {
					continue
				}
				got := r.find(src[r.pos:to], to == len(src))
				found += len(got)
				if lost == 0 || rnd.IntN(lost) > 0 {
					s.found <- got
				}
			}
			if found < runs {
				t.Errorf("windows of %d: %d of %d runs were found", window, found, runs)
			}
			for pos := range src {
				got, want := s.run(pos), runAt(src, pos)
				if end, n, what := scanRun(src, pos); got.end == end {
					want.end, want.n, want.what = end, n, what
				}
				sum := sumRunInts(src, pos, want.end)
				if got.end != want.end || got.n != want.n || got.what != want.what || got.sum >= 0 && (want.what != runInt || got.sum != sum) {
					t.Fatalf("at %d with windows of %d: %+v, want %+v with sum %d", pos, window, got, want, sum)
				}
			}
		}
	}
}

// TestScoutSums reads masks that a scout has added up, and others, and compares with a file that has no
// scout.
func TestScoutSums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollout_7.pt")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeSlime(out, 300); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	var sums [2][]int64
	for i, f := range []*File{openTest(t, path, nil), openTest(t, path, &Options{NoMap: true})} {
		if f.Size() < 2*readAhead {
			t.Fatalf("%d bytes are too few for a scout", f.Size())
		}
		if _, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"loss_mask", "tokens"}}, func(e Element) error {
			for _, name := range []string{"loss_mask", "tokens"} {
				v := e.Field(name)
				sum, ok := v.SumInts()
				x, all := v.Ints(nil)
				if !ok || !all || len(x) != v.Len() {
					t.Errorf("element %d: %s has %d of %d integers", e.Ordinal, name, len(x), v.Len())
				}
				want := int64(0)
				for _, n := range x {
					want += n
				}
				if sum != want {
					t.Errorf("element %d: the sum of %s is %d, want %d", e.Ordinal, name, sum, want)
				}
				sums[i] = append(sums[i], sum, int64(len(x)))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(sums[0], sums[1]) || len(sums[0]) < 600 {
		t.Errorf("%d and %d lists", len(sums[0]), len(sums[1]))
	}
}
