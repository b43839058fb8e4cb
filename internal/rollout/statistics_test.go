package rollout

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
)

// reference is what C zlib, numpy and Python said (testdata/metrics/make_reference.py).
type reference struct {
	Zlib []struct {
		Seed uint64
		Kind string
		Len  int
		P    int
		Size int
	}
	Numpy []struct {
		N                      int
		Mean, Median, Max, Min hexFloat
	}
	Passk []struct {
		Size    int
		Correct []int
		Rates   []hexFloat
	}
	Float []struct {
		X              hexFloat
		Round, Str, NP string
	}
}

// hexFloat reads what Python's float.hex writes.
type hexFloat float64

func (h *hexFloat) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(s, 64)
	*h = hexFloat(f)
	return err
}

func readReference(t testing.TB) *reference {
	t.Helper()
	b, err := os.ReadFile("testdata/metrics/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// lcg is the generator of make_reference.py.
type lcg uint64

func (x *lcg) next() uint64 {
	*x = *x*6364136223846793005 + 1442695040888963407
	return uint64(*x)
}
func (x *lcg) below(n int) int { return int(x.next() >> 33 % uint64(n)) }
func (x *lcg) float() float64  { return float64(x.next()>>11) * 0x1p-53 }

func sameBits(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func TestStatisticsEqualNumpy(t *testing.T) {
	for _, c := range readReference(t).Numpy {
		r := lcg(c.N)
		v := make([]float64, c.N)
		for i := range v {
			f := r.float() - 0.25
			v[i] = f * math.Pow10(r.below(9)-4)
		}
		s := statsOf(v)
		for _, x := range []struct {
			what      string
			got, want float64
		}{{"mean", s.Mean, float64(c.Mean)}, {"median", s.Median, float64(c.Median)}, {"max", s.Max, float64(c.Max)}, {"min", s.Min, float64(c.Min)}} {
			if !sameBits(x.got, x.want) {
				t.Errorf("%s of %d values is %x, numpy has %x", x.what, c.N, x.got, x.want)
			}
		}
	}
}

func TestStatisticsOfOddValues(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	if s := statsOf(nil); s.N != 0 || !math.IsNaN(s.Mean) || !math.IsNaN(s.Max) {
		t.Errorf("nothing: %+v", s)
	}
	if s := statsOf([]float64{1, nan, 3}); s.N != 3 || !math.IsNaN(s.Mean) || !math.IsNaN(s.Median) || !math.IsNaN(s.Max) || !math.IsNaN(s.Min) {
		t.Errorf("NaN is not passed on: %+v", s)
	}
	if s := statsOf([]float64{1, inf}); s.Max != inf || s.Min != 1 || s.Mean != inf {
		t.Errorf("infinity: %+v", s)
	}
	v := []float64{3, 1, 2}
	if s := statsOf(v); s.Median != 2 || v[0] != 3 {
		t.Errorf("%+v, values now %v", s, v)
	}
}

// TestNth compares with what sorting puts there.
func TestNth(t *testing.T) {
	r := lcg(11)
	kinds := map[string]func(i, n int) float64{
		"random":   func(int, int) float64 { return float64(r.below(1 << 20)) },
		"few":      func(int, int) float64 { return float64(r.below(3)) },
		"one":      func(int, int) float64 { return 7 },
		"sorted":   func(i, _ int) float64 { return float64(i) },
		"reversed": func(i, n int) float64 { return float64(n - i) },
		"up, down": func(i, n int) float64 { return float64(min(i, n-i)) },
		"infinite": func(i, _ int) float64 { return []float64{math.Inf(1), math.Inf(-1), 0}[i%3] },
		"saw":      func(i, _ int) float64 { return float64(i % 17) },
	}
	for name, at := range kinds {
		for _, n := range []int{1, 2, 3, 16, 17, 18, 100, 1001, 5000} {
			values := make([]float64, n)
			for i := range values {
				values[i] = at(i, n)
			}
			want := slices.Sorted(slices.Values(values))
			for _, k := range []int{0, n / 2, n - 1, r.below(n)} {
				part := slices.Clone(values)
				Nth(part, k)
				if part[k] != want[k] || k > 0 && slices.Max(part[:k]) != want[k-1] {
					t.Fatalf("%s, %d of %d: %v, want %v", name, k, n, part[k], want[k])
				}
				if slices.Sort(part); !slices.Equal(part, want) {
					t.Fatalf("%s, %d of %d: values were lost", name, k, n)
				}
			}
		}
	}
}

func TestPythonFloats(t *testing.T) {
	for _, c := range readReference(t).Float {
		x := float64(c.X)
		if got := pyFloatStr(x); got != c.Str {
			t.Errorf("str(%g) = %s, Python has %s", x, got, c.Str)
		}
		if got := pyFloatStr(pyRound1(x)); got != c.Round {
			t.Errorf("str(round(%g, 1)) = %s, Python has %s", x, got, c.Round)
		}
		if got := pyFloatStr(npRound1(x)); got != c.NP {
			t.Errorf("round of numpy's %g = %s, numpy has %s", x, got, c.NP)
		}
	}
	if pyFloatStr(math.NaN()) != "nan" || !math.IsNaN(pyRound1(math.NaN())) {
		t.Error("nan")
	}
}

func TestPythonSum(t *testing.T) {
	// Python 3.11: sum([0.1]*10) = 0.9999999999999999; Python 3.12: 1.0.
	for _, c := range []struct {
		compensated bool
		want        float64
	}{{false, 0.9999999999999999}, {true, 1}} {
		s := pySum{compensated: c.compensated}
		for range 10 {
			s.add(0.1)
		}
		if s.total() != c.want {
			t.Errorf("compensated %v: %v", c.compensated, s.total())
		}
	}
	// A thousand ints, bools and floats, added by Python 3.11 and 3.12.
	for _, c := range []struct {
		seed        lcg
		want, after float64
	}{{1, 0x1.dd1a86815f9a0p+18, 0x1.dd1a86815f9a0p+18}, {2, 0x1.dc32d5a278b6fp+18, 0x1.dc32d5a278b6bp+18}, {3, 0x1.efbc60a594954p+18, 0x1.efbc60a594953p+18}} {
		old, now, r := pySum{}, pySum{compensated: true}, c.seed
		for range 1000 {
			k := r.below(4)
			x := r.float()
			x *= math.Pow10(r.below(9) - 4)
			name := "float"
			switch k {
			case 0:
				x, name = math.Trunc(x), "int"
			case 1:
				name = "bool"
				if x > 1 {
					x = 1
				} else {
					x = 0
				}
			}
			old.addAs(x, name)
			now.addAs(x, name)
		}
		if old.total() != c.want || now.total() != c.after {
			t.Errorf("seed %d: %x and %x, Python has %x and %x", c.seed, old.total(), now.total(), c.want, c.after)
		}
	}
	np := pySum{compensated: true}
	for range 10 {
		np.addAs(0.1, "float64") // what Python 3.12 adds of np.float64
	}
	if np.total() != 0.9999999999999999 {
		t.Errorf("numpy scalars: %v", np.total())
	}
	s := pySum{compensated: true}
	s.add(math.Inf(1))
	s.add(1)
	if !math.IsInf(s.total(), 1) {
		t.Errorf("infinite: %v", s.total())
	}
}

func TestPassRate(t *testing.T) {
	for _, c := range readReference(t).Passk {
		p := passCounter{size: c.Size}
		for _, correct := range c.Correct {
			for i := range c.Size {
				p.add(i < correct)
			}
		}
		got, err := p.rates()
		if err != nil || len(got) != len(c.Rates) {
			t.Fatalf("%d: %v %v", c.Size, got, err)
		}
		for i, r := range got {
			if r.K != 1<<i || !sameBits(r.Rate, float64(c.Rates[i])) {
				t.Errorf("groups of %d, %v: pass@%d is %v, slime has %v", c.Size, c.Correct, r.K, r.Rate, float64(c.Rates[i]))
			}
		}
	}
	p := passCounter{size: 4}
	p.add(true)
	if _, err := p.rates(); err == nil {
		t.Error("an incomplete group gives a rate")
	}
	if r, err := (&passCounter{size: 4}).rates(); err == nil {
		t.Error("no rewards give", r)
	}
	if r, err := (&passCounter{size: 1}).rates(); r != nil || err != nil {
		t.Error("groups of one have no rate in slime:", r, err)
	}
}
