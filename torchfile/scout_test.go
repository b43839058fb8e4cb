package torchfile

import (
	"math/rand/v2"
	"testing"
)

// TestScout compares what a scout says of every place of a pickle with a walk from there, whatever the
// windows and whatever of what it found arrives.
func TestScout(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var src []byte
	runs := 0
	for range 40 {
		src = append(src, "X\x09\x00\x00\x00(K(((M)(Gq\x01]q\x02("...)
		sort := []string{"mask", "tokens", "common tokens", "floats", "mixed"}[rnd.IntN(5)]
		n := rnd.IntN(300)
		src = append(append(src, runOf(sort, n)...), opAppends)
		if n >= scoutLeast {
			runs++
		}
	}
	src = append(src, opMark, opBinInt1)
	for _, window := range []int{1, 7, 100, len(src)} {
		for _, lost := range []int{0, 3} {
			s := &scout{src: src, found: make(chan []foundRun, len(src)+1)}
			found := 0
			for pos, from := 0, 0; from < len(src); from += window {
				var got []foundRun
				got, pos = findRuns(src, max(pos, from), min(from+window, len(src)))
				found += len(got)
				if lost == 0 || rnd.IntN(lost) > 0 {
					s.found <- got
				}
			}
			if found < runs {
				t.Errorf("windows of %d: %d of %d runs were found", window, found, runs)
			}
			for pos := range src {
				end, n, what := s.run(pos)
				if e, m, w := scanRun(src, pos); end != e || n != m || what != w {
					t.Fatalf("at %d with windows of %d: %d elements to %d (%02x), want %d to %d (%02x)", pos, window, n, end, what, m, e, w)
				}
			}
		}
	}
}
