package planner

import (
	"math"
	"math/rand/v2"
	"testing"
)

func model(t testing.TB, r Role) *Model {
	t.Helper()
	m, err := NewModel(r, 64, 16, 5)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The lines that the numbers below were worked out for by hand.
//
//	prefill  t = 10 ms + 50 µs a token              average prompt (1000+2000+4000+8000+6000)/5 = 4200
//	decode   t =  5 ms + 100 µs a request + 0.1 µs a KV token    averages: 20 requests, 1200 tokens of context
//	agg      t =  4 ms + 20 µs a token + 0.1 µs a KV token       averages: prompt 1000, context 1200, 1000 tokens a pass
func handPrefill(t testing.TB) *Model {
	m := model(t, Prefill)
	for _, n := range []int64{1000, 2000, 4000, 8000, 6000} {
		m.Observe(Iteration{WallTime: 0.010 + 50e-6*float64(n), NumPrefillRequests: 1, SumPrefillTokens: n})
	}
	return m
}

func handDecode(t testing.TB) *Model {
	m := model(t, Decode)
	for _, v := range [][2]int64{{10, 1000}, {20, 2000}, {30, 1500}, {20, 500}, {20, 1000}} {
		n, kv := v[0], v[0]*v[1]
		m.Observe(Iteration{WallTime: 0.005 + 100e-6*float64(n) + 1e-7*float64(kv), NumDecodeRequests: n, SumDecodeKVTokens: kv})
	}
	return m
}

func handAgg(t testing.TB) *Model {
	m := model(t, Aggregated)
	for _, v := range [][3]int64{{500, 10, 1000}, {1500, 20, 2000}, {1000, 30, 1500}, {800, 20, 500}, {1200, 20, 1000}} {
		p, n, kv := v[0], v[1], v[1]*v[2]
		m.Observe(Iteration{WallTime: 0.004 + 20e-6*float64(p) + 1e-7*float64(kv),
			NumPrefillRequests: 1, SumPrefillTokens: p, NumDecodeRequests: n, SumDecodeKVTokens: kv})
	}
	return m
}

func TestTTFTByHand(t *testing.T) {
	p, a := handPrefill(t), handAgg(t)
	for _, c := range []struct {
		m          *Model
		queued, kv float64
		perPass    int64
		hit, want  float64
	}{
		{p, 0, 0, 8192, 0, 0.220},       // 4200 tokens
		{p, 10000, 0, 8192, 0, 0.730},   // 14200 = 8192 + 6008: 0.4196 + 0.3104
		{p, 10000, 0, 8192, 0.5, 0.365}, // 7100
		{p, 10000, 0, 8192, 1, 0.0455},  // at most 95 % are spared: 710
		{p, 10000, 0, 8192, -3, 0.730},  // nonsense spares nothing
		{p, 10000, 0, 8192, math.NaN(), 0.730},
		{p, 12184, 0, 8192, 0, 0.8392},     // exactly two full passes
		{p, 1e12, 0, 8192, 0, 51220703.5},  // 122070313 passes need no loop; worked below
		{a, 7192, 50000, 8192, 0, 0.17284}, // 8192 tokens: 0.004 + 0.16384 + 0.005
		{a, 8192, 50000, 8192, 0, 0.20184}, // and one pass of 1000 more: 0.029
	} {
		got, ok := c.m.TTFT(c.queued, c.kv, c.perPass, c.hit)
		want := c.want
		if c.queued == 1e12 {
			full := math.Floor((1e12 + 4200) / 8192)
			want = 0.010*(full+1) + 50e-6*(1e12+4200)
		}
		if !ok {
			t.Fatalf("no TTFT for %+v", c)
		}
		near(t, "TTFT", got, want, 1e-9)
	}
	if _, ok := p.TTFT(0, 0, 0, 0); ok {
		t.Error("a TTFT without max_num_batched_tokens")
	}
	if _, ok := handDecode(t).TTFT(0, 0, 8192, 0); ok {
		t.Error("a TTFT of a decode model")
	}
}

func TestITLByHand(t *testing.T) {
	got, ok := handDecode(t).ITL(40000, 10000) // 21 requests, 51200 tokens: 0.005 + 0.0021 + 0.00512
	if !ok {
		t.Fatal("no ITL")
	}
	near(t, "decode's ITL", got, 0.01222, 1e-9)
	got, ok = handAgg(t).ITL(40000, 10000) // 1000 prefill tokens, 51200: 0.004 + 0.02 + 0.00512
	if !ok {
		t.Fatal("no ITL")
	}
	near(t, "agg's ITL", got, 0.02912, 1e-9)
	if _, ok := handPrefill(t).ITL(1, 1); ok {
		t.Error("an ITL of a prefill model")
	}
}

func TestCapacityByHand(t *testing.T) {
	slo := SLO{TTFT: 0.5, ITL: 0.0501}
	p, d, a := handPrefill(t), handDecode(t), handAgg(t)
	long, mixed := Shape{ISL: 1500, OSL: 1000}, Shape{ISL: 1000, OSL: 200}
	for _, c := range []struct {
		name  string
		m     *Model
		shape Shape
		caps  Caps
		want  Capacity
	}{
		{"3000 tokens take 160 ms", p, Shape{ISL: 3000}, Caps{MaxBatchedTokens: 8192}, Capacity{RequestsPerSecond: 6.25, TTFT: 0.16, Meets: true, Bound: BoundCompute}},
		{"half of them cached", p, Shape{ISL: 6000, HitRate: 0.5}, Caps{}, Capacity{RequestsPerSecond: 6.25, TTFT: 0.16, Meets: true, Bound: BoundCompute}},
		{"two passes, too late", p, Shape{ISL: 12000}, Caps{MaxBatchedTokens: 8192}, Capacity{RequestsPerSecond: 1 / 0.62, TTFT: 0.62, Bound: BoundCompute}},
		{"one pass of any length", p, Shape{ISL: 12000}, Caps{}, Capacity{RequestsPerSecond: 1 / 0.61, TTFT: 0.61, Bound: BoundCompute}},
		// t(b) = 5 ms + 0.3 ms b, so 150 requests fit into 50.1 ms.
		{"time ends it", d, long, Caps{MaxKVTokens: 1e6}, Capacity{RequestsPerSecond: 3, ITL: 0.05, Batch: 150, Meets: true, Bound: BoundITL}},
		{"the cache ends it", d, long, Caps{MaxKVTokens: 200000}, Capacity{RequestsPerSecond: 100 / 35.0, ITL: 0.035, Batch: 100, Meets: true, Bound: BoundKV}},
		{"the batch ends it", d, long, Caps{MaxKVTokens: 200000, MaxSeqs: 50}, Capacity{RequestsPerSecond: 2.5, ITL: 0.02, Batch: 50, Meets: true, Bound: BoundSeqs}},
		{"45000 KV tokens were the most seen", d, long, Caps{}, Capacity{RequestsPerSecond: 22 / 11.6, ITL: 0.0116, Batch: 22, Meets: true, Bound: BoundSeen}},
		// t(b) = 4 ms + 5*20 µs b + 1100*0.1 µs b = 4 ms + 0.21 ms b; b = 219 takes 49.99 ms, TTFT of 2095 tokens 69.99 ms.
		{"agg, time", a, mixed, Caps{MaxBatchedTokens: 8192, MaxKVTokens: 1e6}, Capacity{RequestsPerSecond: 219 / (200 * 0.04999), TTFT: 0.06999, ITL: 0.04999, Batch: 219, Meets: true, Bound: BoundITL}},
		{"agg, cache", a, mixed, Caps{MaxBatchedTokens: 8192, MaxKVTokens: 110000}, Capacity{RequestsPerSecond: 20, TTFT: 0.045, ITL: 0.025, Batch: 100, Meets: true, Bound: BoundKV}},
		// b <= 200*600/1200 = 100: as many come in as finish. The TTFT's 1500 tokens take three passes of 15 ms and 30 ms for the tokens.
		{"agg, balance", a, mixed, Caps{MaxBatchedTokens: 600, MaxKVTokens: 1e6}, Capacity{RequestsPerSecond: 20, TTFT: 0.075, ITL: 0.025, Batch: 100, Meets: true, Bound: BoundBalance}},
	} {
		slo := slo
		if c.name == "agg, time" || c.name == "agg, cache" || c.name == "agg, balance" {
			slo.ITL = 0.05
		}
		got, ok := c.m.Capacity(c.shape, slo, c.caps)
		if !ok {
			t.Fatalf("%s: no answer", c.name)
		}
		t.Run(c.name, func(t *testing.T) {
			near(t, "rate", got.RequestsPerSecond, c.want.RequestsPerSecond, 1e-9)
			near(t, "TTFT", got.TTFT, c.want.TTFT, 1e-9)
			near(t, "ITL", got.ITL, c.want.ITL, 1e-9)
			if got.Batch != c.want.Batch || got.Meets != c.want.Meets || got.Bound != c.want.Bound {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if got, ok := d.Capacity(long, SLO{TTFT: 1, ITL: 0.004}, Caps{}); !ok || got.Meets || got.Batch != 1 || got.Bound != BoundITL {
		t.Errorf("a promise that nothing keeps gives %+v, %v", got, ok)
	}
	if got, ok := a.Capacity(mixed, SLO{TTFT: 0.001, ITL: 1}, Caps{MaxBatchedTokens: 8192}); !ok || got.Meets || got.Batch != 1 || got.Bound != BoundTTFT {
		t.Errorf("a promise that nothing keeps gives %+v, %v", got, ok)
	}
	// Samples reach from 1000 to 8000 tokens: 30000 in one pass is a guess, 3000 is none.
	for isl, want := range map[float64]bool{3000: false, 8000: false, 30000: true} {
		if got, _ := p.Capacity(Shape{ISL: isl}, slo, Caps{}); got.Outside != want {
			t.Errorf("%g tokens are outside: %v, want %v", isl, got.Outside, want)
		}
	}
	for _, bad := range []Shape{{}, {ISL: math.NaN(), OSL: 1}, {ISL: -1, OSL: 1}, {ISL: math.Inf(1), OSL: 1}} {
		for _, m := range []*Model{p, d, a} {
			if got, ok := m.Capacity(bad, slo, Caps{MaxBatchedTokens: 8192}); ok {
				t.Errorf("%s answers %+v with %+v", m.Role(), bad, got)
			}
		}
	}
}

func TestReplicas(t *testing.T) {
	slo := SLO{TTFT: 0.5, ITL: 0.05}
	for _, c := range []struct {
		c      Capacity
		demand float64
		least  int
		want   int
	}{
		{Capacity{RequestsPerSecond: 6.25, TTFT: 0.16}, 20, 1, 4},
		{Capacity{RequestsPerSecond: 2.5, Batch: 9}, 10, 1, 4},
		{Capacity{RequestsPerSecond: 2.5, Batch: 9}, 10, 7, 7},
		{Capacity{RequestsPerSecond: 2.5, Batch: 9}, 0, 2, 2},
		{Capacity{RequestsPerSecond: 1 / 0.62, TTFT: 0.62}, 1, 1, 2}, // late alone: ceil(0.62/0.5)
		{Capacity{RequestsPerSecond: 1e-300, Batch: 1}, 1e300, 1, 1 << 30},
	} {
		if got := c.c.Replicas(c.demand, slo, c.least); got != c.want {
			t.Errorf("%g of %+v needs %d, want %d", c.demand, c.c, got, c.want)
		}
	}
}

func TestLoadAtRate(t *testing.T) {
	p, d, a := handPrefill(t), handDecode(t), handAgg(t)
	// 2500 tokens take 135 ms; at 4 a second the engine works 54 % of the time and the wait is 0.54*0.135/(2*0.46).
	got, ok := p.At(4, Shape{ISL: 2500}, Caps{MaxBatchedTokens: 8192})
	if !ok {
		t.Fatal("no answer")
	}
	near(t, "prefill's TTFT", got.TTFT, 0.135+0.54*0.135/0.92, 1e-9)
	near(t, "utilisation", got.Utilisation, 0.54, 1e-9)
	if got, _ := p.At(8, Shape{ISL: 2500}, Caps{}); !got.Saturated || got.TTFT != 0 {
		t.Errorf("more than it can do gives %+v", got)
	}
	// Little's law the other way round: what Capacity finds for a batch comes back for its rate.
	long := Shape{ISL: 1500, OSL: 1000}
	if got, ok = d.At(3, long, Caps{}); !ok {
		t.Fatal("no answer")
	}
	near(t, "batch", got.Batch, 150, 1e-9)
	near(t, "ITL", got.ITL, 0.05, 1e-9)
	if got, _ = d.At(3, long, Caps{MaxKVTokens: 200000}); !got.Saturated {
		t.Errorf("300000 KV tokens in a cache of 200000 give %+v", got)
	}
	mixed := Shape{ISL: 1000, OSL: 200}
	if got, ok = a.At(20, mixed, Caps{MaxBatchedTokens: 8192}); !ok {
		t.Fatal("no answer")
	}
	near(t, "batch", got.Batch, 100, 1e-9)
	near(t, "ITL", got.ITL, 0.025, 1e-9)
	near(t, "TTFT", got.TTFT, 0.004+20e-6*1500+0.011, 1e-9)
	if got, ok = a.At(0, mixed, Caps{MaxBatchedTokens: 8192}); !ok || got.Saturated || got.Batch != 0 {
		t.Errorf("an idle engine gives %+v", got)
	}
}

// TestGuards goes through what keeps a model from answering.
func TestGuards(t *testing.T) {
	m := model(t, Prefill)
	for i := range 4 {
		m.Observe(Iteration{WallTime: 0.1, NumPrefillRequests: 1, SumPrefillTokens: int64(100 * i)})
		m.Observe(Iteration{}) // heartbeats are no samples
	}
	if f := m.Fit(); f.State != Learning || f.Samples != 4 || f.R2 != nil {
		t.Errorf("with four samples: %+v", f)
	}
	m = model(t, Prefill)
	for i := range 6 {
		m.Observe(Iteration{WallTime: 0.1 - 0.01*float64(i), SumPrefillTokens: int64(100 * i)})
	}
	if f := m.Fit(); f.State != Refused || f.Coef[0] >= 0 || f.Reason == "" {
		t.Errorf("more work in less time: %+v", f)
	}
	if _, ok := m.TTFT(1, 0, 1, 0); ok {
		t.Error("a refused fit answers")
	}
	m = model(t, Decode) // a batch that makes it faster is set to 0, and the intercept stays
	for _, v := range [][2]int64{{1, 1000}, {2, 5000}, {3, 2000}, {4, 9000}, {5, 3000}, {6, 8000}} {
		m.Observe(Iteration{WallTime: 0.05 - 1e-3*float64(v[0]) + 1e-6*float64(v[1]), NumDecodeRequests: v[0], SumDecodeKVTokens: v[1]})
	}
	line, state := m.Line()
	if state != Fitted || line.Coef[0] != 0 {
		t.Errorf("line %+v, %s", line, state)
	}
	near(t, "intercept", line.Intercept, 0.05, 1e-9)
	near(t, "KV's coefficient", line.Coef[1], 1e-6, 1e-9)
	for _, c := range []struct {
		it   Iteration
		want Verdict
	}{
		{Iteration{WallTime: -1}, BadWallTime},
		{Iteration{WallTime: math.NaN()}, BadWallTime},
		{Iteration{WallTime: math.Inf(1)}, BadWallTime},
		{Iteration{WallTime: 1.7e9}, BadWallTime}, // a clock's reading
		{Iteration{WallTime: 1, SumPrefillTokens: -1}, BadCount},
		{Iteration{QueuedDecodeKVTokens: math.MaxInt64}, BadCount},
	} {
		if got := m.Observe(c.it); got != c.want {
			t.Errorf("%+v is %s, want %s", c.it, got, c.want)
		}
	}
	if (&Line{Dims: 1, Intercept: -1}).At([2]float64{5}) != 1e-6 {
		t.Error("a pass in no time")
	}
	for _, c := range []struct {
		role                Role
		most, buckets, from int
	}{{"router", 64, 16, 5}, {Prefill, 0, 16, 5}, {Prefill, 64, 15, 5}, {Prefill, 64, 0, 5}, {Prefill, 64, 16, 0}, {Prefill, 1 << 20, 16, 5}} {
		if _, err := NewModel(c.role, c.most, c.buckets, c.from); err == nil {
			t.Errorf("%+v makes a model", c)
		}
	}
}

// engine is a simulated engine whose coefficients are known.
type engine struct {
	role  Role
	a     [3]float64 // intercept and coefficients
	noise float64    // standard deviation as a share of the duration
	rnd   *rand.Rand
}

func (e *engine) pass() Iteration {
	it := Iteration{Worker: "1"}
	n := 1 + e.rnd.Int64N(256)
	if e.role != Decode {
		it.NumPrefillRequests = 1 + e.rnd.Int64N(4)
		it.SumPrefillTokens = 64 + e.rnd.Int64N(8128)
	}
	if e.role != Prefill {
		it.NumDecodeRequests, it.SumDecodeKVTokens = n, n*(500+e.rnd.Int64N(4000))
	}
	m := Model{role: e.role}
	x := m.features(&it)
	it.WallTime = (e.a[0] + e.a[1]*x[0] + e.a[2]*x[1]) * math.Max(0.1, 1+e.noise*e.rnd.NormFloat64())
	return it
}

func engines(noise float64, seed uint64) []*engine {
	r := rand.New(rand.NewPCG(seed, 7))
	return []*engine{
		{Prefill, [3]float64{0.012, 42e-6}, noise, r},
		{Decode, [3]float64{0.006, 90e-6, 0.11e-6}, noise, r},
		{Aggregated, [3]float64{0.007, 38e-6, 0.10e-6}, noise, r},
	}
}

// TestKnownCoefficients: the fit finds a simulated engine's coefficients within 2 %, and with the noise of a
// real one it predicts passes of the usual sizes within 2 % on average.
func TestKnownCoefficients(t *testing.T) {
	for seed := range uint64(20) {
		for _, e := range engines(0.002, seed) {
			m := model(t, e.role)
			for range 500 {
				m.Observe(e.pass())
			}
			line, state := m.Line()
			if state != Fitted {
				t.Fatalf("%s: %s", e.role, state)
			}
			for i := range len(e.role.Features()) {
				near(t, string(e.role)+"'s coefficient", line.Coef[i], e.a[i+1], 0.02)
			}
			e.noise = 0
			for range 200 {
				it := e.pass()
				near(t, string(e.role)+"'s prediction", line.At(m.features(&it)), it.WallTime, 0.02)
			}
			if f := m.Fit(); f.R2 == nil || *f.R2 < 0.99 || *f.MeanError > 0.01 {
				t.Errorf("%s: %+v", e.role, f)
			}
		}
		for _, e := range engines(0.05, seed) {
			m := model(t, e.role)
			for range 2000 {
				m.Observe(e.pass())
			}
			line, _ := m.Line()
			off := 0.0
			e.noise = 0
			for range 200 {
				it := e.pass()
				off += math.Abs(line.At(m.features(&it))/it.WallTime-1) / 200
			}
			if off > 0.06 {
				t.Errorf("%s, seed %d: predictions are off by %.3g on average", e.role, seed, off)
			}
		}
	}
}
