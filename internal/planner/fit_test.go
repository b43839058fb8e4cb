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

// oracle is what a second implementation of the published rules says, testdata/oracle.py.
type oracle struct {
	Samples []struct {
		Dims       int
		BucketSize int `json:"bucket_size"`
		MaxSamples int `json:"max_samples"`
		Passes     [][]float64
		Kept       []uint64
		Intercept  float64
		Coef       []float64
	}
	Streams []struct {
		Role     Role
		Passes   [][5]float64 // wall time, prefill requests and tokens, decode requests and KV tokens
		TTFT     [][5]float64 // queued, per pass, hit rate, KV, seconds
		ITL      [][3]float64 // scheduled KV, queued KV, seconds
		Capacity [][6]float64 // isl, osl, ITL promised, max KV, batch, requests a second
	}
}

func readOracle(t *testing.T) (o oracle) {
	text, err := os.ReadFile("testdata/oracle.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOracle compares retention and fit.
func TestOracle(t *testing.T) {
	for i, c := range readOracle(t).Samples {
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

// TestOracleStreams compares the answers after whole streams, heartbeats included.
func TestOracleStreams(t *testing.T) {
	for _, c := range readOracle(t).Streams {
		m := model(t, c.Role)
		for _, p := range c.Passes {
			m.Observe(Iteration{WallTime: p[0], NumPrefillRequests: int64(p[1]), SumPrefillTokens: int64(p[2]),
				NumDecodeRequests: int64(p[3]), SumDecodeKVTokens: int64(p[4])})
		}
		if len(c.TTFT)+len(c.ITL) == 0 {
			t.Fatalf("%s: the oracle has no answers", c.Role)
		}
		for _, q := range c.TTFT {
			got, ok := m.TTFT(q[0], q[3], int64(q[1]), q[2])
			if !ok {
				t.Fatalf("%s: no TTFT", c.Role)
			}
			near(t, string(c.Role)+"'s TTFT", got, q[4], 1e-9)
		}
		for _, q := range c.ITL {
			got, ok := m.ITL(q[0], q[1])
			if !ok {
				t.Fatalf("%s: no ITL", c.Role)
			}
			near(t, string(c.Role)+"'s ITL", got, q[2], 1e-9)
		}
		for _, q := range c.Capacity {
			got, ok := m.Capacity(Shape{ISL: q[0], OSL: q[1]}, SLO{TTFT: 1, ITL: q[2]}, Caps{MaxKVTokens: int64(q[3])})
			if !ok || got.Batch != int(q[4]) {
				t.Fatalf("%s: %+v, want a batch of %g", c.Role, got, q[4])
			}
			near(t, string(c.Role)+"'s rate", got.RequestsPerSecond, q[5], 1e-9)
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
