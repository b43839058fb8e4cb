package planner

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > share*math.Abs(want)+1e-15 {
		t.Errorf("%s is %.12g, want %.12g", what, got, want)
	}
}

// TestOracle compares retention and fit with a second implementation of the published rules, testdata/oracle.py.
func TestOracle(t *testing.T) {
	text, err := os.ReadFile("testdata/oracle.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Dims       int
		BucketSize int `json:"bucket_size"`
		MaxSamples int `json:"max_samples"`
		Passes     [][]float64
		Kept       []uint64
		Intercept  float64
		Coef       []float64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		s := newSamples(c.Dims, c.BucketSize, c.MaxSamples)
		for j, p := range c.Passes {
			v := sample{y: p[c.Dims], seq: uint64(j + 1)}
			copy(v.x[:], p[:c.Dims])
			s.add(v)
		}
		kept := s.appendTo(nil)
		if len(kept) != len(c.Kept) || s.total != len(kept) {
			t.Fatalf("case %d: %d samples are kept, %d counted, want %d", i, len(kept), s.total, len(c.Kept))
		}
		for j := range kept {
			if kept[j].seq != c.Kept[j] {
				t.Fatalf("case %d: sample %d is pass %d, want %d", i, j, kept[j].seq, c.Kept[j])
			}
		}
		l, _ := fitLine(c.Dims, kept, nil)
		near(t, "intercept", l.Intercept, c.Intercept, 1e-9)
		for j, want := range c.Coef {
			near(t, "coefficient", l.Coef[j], want, 1e-9)
		}
	}
}

func TestFitDegenerate(t *testing.T) {
	for _, c := range []struct {
		name      string
		dims      int
		s         []sample
		coef      [2]float64
		intercept float64
	}{
		{"nothing", 1, nil, [2]float64{}, 0},
		{"one load", 1, []sample{{x: [2]float64{5}, y: 1}, {x: [2]float64{5}, y: 3}}, [2]float64{}, 2},
		// x1 = 3*x0, y = 10*x0: of all solutions a+3b = 10 the shortest is (1, 3).
		{"one line of load", 2, []sample{{x: [2]float64{1, 3}, y: 10}, {x: [2]float64{2, 6}, y: 20}, {x: [2]float64{3, 9}, y: 30}}, [2]float64{1, 3}, 0},
		{"one axis", 2, []sample{{x: [2]float64{1, 7}, y: 2}, {x: [2]float64{2, 7}, y: 4}, {x: [2]float64{3, 7}, y: 6}}, [2]float64{2, 0}, 0},
		{"constant time", 1, []sample{{x: [2]float64{1}, y: .1}, {x: [2]float64{2}, y: .1}, {x: [2]float64{77}, y: .1}}, [2]float64{}, .1},
	} {
		l, _ := fitLine(c.dims, c.s, nil)
		for j := range c.coef {
			if math.Abs(l.Coef[j]-c.coef[j]) > 1e-12 {
				t.Errorf("%s: coefficients are %v, want %v", c.name, l.Coef, c.coef)
			}
		}
		if math.Abs(l.Intercept-c.intercept) > 1e-12 {
			t.Errorf("%s: intercept is %g, want %g", c.name, l.Intercept, c.intercept)
		}
	}
}

// TestSamplesProperties checks on random streams that the bounds hold and nothing is counted twice.
func TestSamplesProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		dims, limit := 1+round%2, 1+r.IntN(100)
		s := newSamples(dims, []int{1, 4, 9, 16, 64}[r.IntN(5)], limit)
		n := r.IntN(1500)
		cut := uint64(0)
		for i := range n {
			x := [2]float64{math.Floor(r.ExpFloat64() * 100)}
			if dims == 2 {
				x[1] = math.Floor(r.ExpFloat64() * 1e5)
			}
			s.add(sample{x: x, y: 1, seq: uint64(i + 1)})
			if r.IntN(400) == 0 {
				cut = uint64(i)
				s.prune(cut)
			}
			if s.total > limit || s.total < min(limit, i+1-int(cut)) {
				t.Fatalf("round %d: %d samples of at most %d after %d passes, cut at %d", round, s.total, limit, i+1, cut)
			}
		}
		seen := map[uint64]bool{}
		for _, v := range s.appendTo(nil) {
			if seen[v.seq] || v.seq < cut {
				t.Fatalf("round %d: pass %d is there twice or should be gone (cut %d)", round, v.seq, cut)
			}
			seen[v.seq] = true
		}
		if len(seen) != s.total {
			t.Fatalf("round %d: %d samples, %d counted", round, len(seen), s.total)
		}
	}
}

func TestWindow(t *testing.T) {
	w := newWindow(3)
	for _, c := range []struct{ add, mean float64 }{{0, 0}, {0, 0}, {6, 6}, {0, 3}, {3, 3}, {9, 4}, {0, 4}} {
		if w.add(c.add); w.mean() != c.mean {
			t.Errorf("after %g the mean is %g, want %g", c.add, w.mean(), c.mean)
		}
	}
}
