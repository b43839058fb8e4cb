package planner

import (
	"math"
	"math/rand/v2"
	"testing"
)

func watched(t testing.TB, r Role) *Planner {
	t.Helper()
	c := Defaults()
	c.Target, c.EnableLoad = TargetSLA, true
	switch r {
	case Prefill:
		c.Mode = ModePrefill
	case Decode:
		c.Mode = ModeDecode
	default:
		c.Mode = ModeAgg
	}
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func poolOf(r Role) Component {
	if r == Prefill {
		return PrefillPool
	}
	return DecodePool
}

// TestChangeIsNoticed: whatever coefficient changes, to either side, it is noticed within 64 passes; and not before.
func TestChangeIsNoticed(t *testing.T) {
	worst := 0
	for seed := range uint64(10) {
		for i, base := range engines(0.03, seed) {
			for coef := range 1 + len(base.role.Features()) {
				for _, by := range []float64{0.5, 0.7, 1.5, 2} {
					e := engines(0.03, seed)[i]
					p := watched(t, e.role)
					for n := range 1000 {
						if _, c := p.Observe(poolOf(e.role), e.pass()); c != nil {
							t.Fatalf("%s, seed %d: a change at pass %d where there is none: %+v", e.role, seed, n, c)
						}
					}
					part := math.Abs(by-1) * e.a[coef] * typical(e, coef) / meanTime(e)
					e.a[coef] *= by
					if part < 0.1 {
						continue // it moves an average pass by less than a tenth
					}
					at := 0
					for n := 1; n <= 64 && at == 0; n++ {
						if _, c := p.Observe(poolOf(e.role), e.pass()); c != nil {
							at = n
							if (c.Factor > 1) != (by > 1) || c.Since > c.Pass {
								t.Errorf("%s: coefficient %d by %g gives %+v", e.role, coef, by, c)
							}
						}
					}
					if at == 0 {
						t.Errorf("%s, seed %d: coefficient %d by %g is not noticed within 64 passes", e.role, seed, coef, by)
					}
					worst = max(worst, at)
				}
			}
		}
	}
	t.Logf("the latest notice came after %d passes", worst)
}

// typical is the mean of a coefficient's feature.
func typical(e *engine, coef int) float64 {
	if coef == 0 {
		return 1
	}
	m, sum := Model{role: e.role}, 0.0
	r := *e
	r.rnd = rand.New(rand.NewPCG(5, 5))
	for range 100 {
		it := r.pass()
		sum += m.features(&it)[coef-1] / 100
	}
	return sum
}

func meanTime(e *engine) (sum float64) {
	r := *e
	r.rnd = rand.New(rand.NewPCG(5, 5))
	for range 100 {
		sum += r.pass().WallTime / 100
	}
	return sum
}

// TestNewLineAfterChange: the own model is that of the time after the change soon, Dynamo's keeps both.
func TestNewLineAfterChange(t *testing.T) {
	e := engines(0.01, 3)[0]
	p := watched(t, Prefill)
	for range 500 {
		p.Observe(PrefillPool, e.pass())
	}
	if h := p.Health()[0]; h.Drift.State != Holds || h.Drift.Last != nil {
		t.Errorf("before: %+v", h.Drift)
	}
	e.a[1] *= 2
	var seen *Change
	for range 20 {
		if _, c := p.Observe(PrefillPool, e.pass()); c != nil {
			seen = c
		}
	}
	if seen == nil || seen.Factor < 1.2 || seen.Since != 493 { // 500 passes less 8 cold ones
		t.Fatalf("change %+v", seen)
	}
	h := p.Health()[0]
	if h.Drift.State != Broken || h.Drift.Changes != 1 {
		t.Errorf("just after: %+v", h.Drift)
	}
	near(t, "own coefficient", h.Fit.Coef[0], e.a[1], 0.05)
	if off := math.Abs(h.Dynamo.Coef[0]/e.a[1] - 1); off < 0.1 {
		t.Errorf("Dynamo's model holds no old sample: it is off by %g", off)
	}
	for range 64 {
		p.Observe(PrefillPool, e.pass())
	}
	if h = p.Health()[0]; h.Drift.State != Holds || h.Drift.Changes != 1 {
		t.Errorf("later: %+v", h.Drift)
	}
	near(t, "own coefficient", h.Fit.Coef[0], e.a[1], 0.02)
}

// TestNoFalseChange: noise of several kinds, stalls of single passes and new loads are no change.
func TestNoFalseChange(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	for _, c := range []struct {
		name  string
		noise func(r *rand.Rand, i int) float64
	}{
		{"none", func(*rand.Rand, int) float64 { return 1 }},
		{"normal, 5 %", func(r *rand.Rand, _ int) float64 { return max(0.2, 1+0.05*r.NormFloat64()) }},
		{"lognormal, 15 %", func(r *rand.Rand, _ int) float64 { return math.Exp(0.15 * r.NormFloat64()) }},
		{"a stall every 100 passes", func(r *rand.Rand, i int) float64 {
			if i%100 == 99 {
				return 30
			}
			return 1 + 0.02*r.NormFloat64()
		}},
	} {
		for _, e := range engines(0, 11) {
			p := watched(t, e.role)
			for i := range n {
				it := e.pass()
				it.WallTime *= c.noise(e.rnd, i)
				if _, ch := p.Observe(poolOf(e.role), it); ch != nil {
					t.Fatalf("%s, noise %s: %+v after %d passes", e.role, c.name, *ch, i)
				}
			}
		}
	}
	// Prompts of about one length for a while, on an engine whose attention grows with the square: the line is
	// only near the truth, and nothing has changed.
	for _, square := range []float64{0, 1e-9, 2e-9} {
		for _, stay := range []int{1, 50, 500} {
			r, p, length := rand.New(rand.NewPCG(3, 1)), watched(t, Prefill), 0.0
			for i := range n / 2 {
				if i%stay == 0 {
					length = 100 + r.Float64()*8000
				}
				x := length * (0.98 + 0.04*r.Float64())
				w := (0.01 + 4e-5*x + square*x*x) * (1 + 0.03*r.NormFloat64())
				if _, ch := p.Observe(PrefillPool, Iteration{WallTime: w, NumPrefillRequests: 1, SumPrefillTokens: int64(x)}); ch != nil {
					t.Fatalf("square %g, %d passes at a load: %+v at pass %d", square, stay, *ch, i)
				}
			}
		}
	}
	// A night of small batches, then the day.
	for _, e := range engines(0.03, 12) {
		p := watched(t, e.role)
		for i := range 4000 {
			it := e.pass()
			if i < 2000 {
				it.SumPrefillTokens /= 16
				if it.NumDecodeRequests > 0 {
					kv := it.SumDecodeKVTokens / it.NumDecodeRequests
					it.NumDecodeRequests = 1 + it.NumDecodeRequests/16
					it.SumDecodeKVTokens = kv * it.NumDecodeRequests
				}
				m := Model{role: e.role}
				x := m.features(&it)
				it.WallTime = (e.a[0] + e.a[1]*x[0] + e.a[2]*x[1]) * (1 + e.noise*e.rnd.NormFloat64())
			}
			if _, ch := p.Observe(poolOf(e.role), it); ch != nil {
				t.Fatalf("%s: %+v at pass %d of a day", e.role, *ch, i)
			}
		}
	}
}

// TestNoFalseChangeAtStart: a watch that knows little yet, at loads that stay, sees no changes either.
func TestNoFalseChangeAtStart(t *testing.T) {
	for seed := range uint64(100) {
		for i, noise := range []float64{0.01, 0.05, 0.12} {
			for _, e := range engines(noise, seed+50) {
				p, r, base := watched(t, e.role), rand.New(rand.NewPCG(seed, 9)), Iteration{}
				stay := []int{1, 10, 40, 200}[(seed+uint64(i))%4]
				for n := range 500 {
					if n%stay == 0 {
						base = e.pass()
					}
					it, f := base, 0.97+0.06*r.Float64()
					it.SumPrefillTokens, it.SumDecodeKVTokens = int64(float64(base.SumPrefillTokens)*f), int64(float64(base.SumDecodeKVTokens)*f)
					m := Model{role: e.role}
					x := m.features(&it)
					it.WallTime = (e.a[0] + e.a[1]*x[0] + e.a[2]*x[1] + 2.5e-14*x[1]*x[1]) * math.Max(0.2, 1+noise*r.NormFloat64())
					if _, c := p.Observe(poolOf(e.role), it); c != nil {
						t.Fatalf("%s, seed %d, noise %g, %d passes at a load: %+v at pass %d", e.role, seed, noise, stay, *c, n)
					}
				}
			}
		}
	}
}

func TestSlope(t *testing.T) {
	at := func(y float64, x ...float64) cell { return cell{y: y, x: [3]float64{x[0], x[1], x[2]}} }
	plane := func(a, b, c float64) (out []cell) {
		r := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			x := [3]float64{8000 * r.Float64(), 2e6 * r.Float64(), 100 * r.Float64()}
			out = append(out, cell{x: x, y: 0.01 + a*x[0] + b*x[1] + c*x[2]})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		cells []cell
		want  slope
	}{
		{"nothing", nil, slope{}},
		{"one", []cell{at(1, 1, 1, 1)}, slope{}},
		{"all at one load", []cell{at(1, 1, 1, 1), at(2, 1, 1, 1)}, slope{}},
		{"one feature", []cell{at(1, 1, 0, 0), at(3, 2, 0, 0), at(5, 3, 0, 0)}, [3]float64{2, 0, 0}},
		{"three", plane(4e-5, 2e-8, 9e-5), [3]float64{4e-5, 2e-8, 9e-5}},
		{"none costs nothing", plane(4e-5, 0, 0), [3]float64{4e-5, 0, 0}},
		{"two that go together share", []cell{at(1, 0, 10, 1), at(3, 0, 20, 2), at(5, 0, 30, 3)}, [3]float64{0, 0.1, 1}},
	} {
		for j, got := range slopeOf(c.cells) {
			if math.Abs(got-c.want[j]) > 1e-6*math.Abs(c.want[j])+1e-11 {
				t.Errorf("%s: slope %d is %g, want %g", c.name, j, got, c.want[j])
			}
		}
	}
	for j, got := range slopeOf(plane(4e-5, 2e-8, -9e-5)) {
		if got < 0 || j == 2 && got != 0 {
			t.Errorf("more requests take less time: slope %d is %g", j, got)
		}
	}
}

// TestBatchIsNoChange: on an engine that does both, the requests that decode cost time of their own, which the
// sum of their contexts does not tell. Waves of a rollout, that run empty while the contexts grow, and arrivals
// that come and go change the one against the other; the engine stays what it is.
func TestBatchIsNoChange(t *testing.T) {
	type running struct{ context, left int64 }
	for seed := range uint64(20) {
		for _, noise := range []float64{0, 0.01, 0.03} {
			for i, load := range []string{"waves", "arrivals", "waves", "arrivals"} {
				apart := i >= 2 // passes prefill or decode, never both, and those that prefill take longer for nothing
				r, p, rate := rand.New(rand.NewPCG(seed, 21)), watched(t, Aggregated), 0.3
				var batch []running
				for n := range 6000 {
					it := Iteration{}
					come := 0
					switch {
					case load == "waves" && len(batch) < 4:
						come = 60 + r.IntN(100)
					case load == "arrivals":
						if n%500 == 0 {
							rate = 0.05 + 0.5*r.Float64()
						}
						if r.Float64() < rate {
							come = 1
						}
					}
					for range come {
						prompt := 200 + r.Int64N(2000)
						batch = append(batch, running{prompt, 20 + int64(200*r.ExpFloat64())})
						it.SumPrefillTokens = min(8192, it.SumPrefillTokens+prompt)
						it.NumPrefillRequests++
					}
					if apart && come > 0 {
						it.WallTime = (0.019 + 5e-5*float64(it.SumPrefillTokens)) * (1 + noise*r.NormFloat64())
						if _, c := p.Observe(DecodePool, it); c != nil {
							t.Fatalf("%s apart, seed %d, noise %g: %+v at pass %d with %d tokens", load, seed, noise, *c, n, it.SumPrefillTokens)
						}
						it = Iteration{}
					}
					on := batch[:0]
					for _, b := range batch {
						it.NumDecodeRequests++
						it.SumDecodeKVTokens += b.context
						if b.context, b.left = b.context+1, b.left-1; b.left > 0 {
							on = append(on, b)
						}
					}
					batch = on
					if it.NumDecodeRequests == 0 && it.NumPrefillRequests == 0 {
						continue
					}
					it.WallTime = (0.0125 + 5e-5*float64(it.SumPrefillTokens) + 9e-5*float64(it.NumDecodeRequests) + 2.2e-8*float64(it.SumDecodeKVTokens)) * (1 + noise*r.NormFloat64())
					if _, c := p.Observe(DecodePool, it); c != nil {
						t.Fatalf("%s, apart %t, seed %d, noise %g: %+v at pass %d with %d requests", load, apart, seed, noise, *c, n, it.NumDecodeRequests)
					}
				}
			}
		}
	}
}

func TestColdStart(t *testing.T) {
	e := engines(0.01, 4)[0]
	p := watched(t, Prefill)
	pass := func(worker string, slow float64) Verdict {
		it := e.pass()
		it.Worker, it.WallTime = worker, it.WallTime*slow
		v, _ := p.Observe(PrefillPool, it)
		return v
	}
	for _, w := range []string{"1", "2"} {
		for i := range 8 {
			if v := pass(w, 6); v != Cold {
				t.Fatalf("pass %d of engine %s is %s", i, w, v)
			}
		}
	}
	for range 50 {
		if v := pass("1", 1); v != Sample {
			t.Fatalf("a later pass is %s", v)
		}
	}
	p.Restarted(PrefillPool, "1", 0)
	p.Restarted(PrefillPool, "unknown", 0)
	if v := pass("1", 6); v != Cold {
		t.Errorf("the first pass after a restart is %s", v)
	}
	h := p.Health()[0]
	if h.ColdStart.Passes != 17 || h.ColdStart.Factor == nil {
		t.Fatalf("%+v", h.ColdStart)
	}
	near(t, "factor", *h.ColdStart.Factor, 6, 0.05)
	near(t, "own coefficient", h.Fit.Coef[0], e.a[1], 0.02)
	if h.Dynamo.Samples != 64 || *h.Dynamo.MeanError < 0.1 {
		t.Errorf("Dynamo's model has the cold passes: %+v", h.Dynamo)
	}
	// More engines than are remembered do not grow the memory.
	for i := range 3 * maxColdEngines {
		p.Observe(PrefillPool, Iteration{Worker: "w", Rank: i, WallTime: 0.01})
	}
	if x := &p.pools[PrefillPool].cold; len(x.left) != maxColdEngines || len(x.order) != maxColdEngines || len(x.last) != maxColdSamples {
		t.Errorf("%d engines, %d in order, %d samples", len(x.left), len(x.order), len(x.last))
	}
}
