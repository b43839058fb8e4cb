package rollout

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Stats are the four numbers that slime publishes of a list of values (compute_statistics).
type Stats struct {
	Mean, Median, Max, Min float64
	N                      int
}

// statsOf computes them as numpy does, to the last bit: np.mean, np.median, np.max and np.min of one
// contiguous float64 array, NaN included. It leaves values as they are. No values give N = 0 and NaNs.
func statsOf(values []float64) Stats {
	n := len(values)
	if n == 0 {
		nan := math.NaN()
		return Stats{Mean: nan, Median: nan, Max: nan, Min: nan}
	}
	s := Stats{N: n, Mean: npSum(values) / float64(n), Max: values[0], Min: values[0]}
	for _, v := range values {
		if v != v {
			nan := math.NaN()
			return Stats{N: n, Mean: s.Mean, Median: nan, Max: nan, Min: nan}
		}
		s.Max, s.Min = max(s.Max, v), min(s.Min, v)
	}
	part := slices.Clone(values)
	if s.Median = Nth(part, n/2); n%2 == 0 {
		s.Median = (slices.Max(part[:n/2]) + s.Median) / 2
	}
	return s
}

// Nth returns what sorting would put at k of a, which has no NaN. It reorders a: what comes before k is not
// larger afterwards, what comes after not smaller. It is Hoare's selection, with the middle of three as the
// pivot; where the pivots are bad it sorts what is left.
func Nth[T int64 | float64](a []T, k int) T {
	lo, hi := 0, len(a)-1
	for left := 64; hi-lo > 16 && left > 0; left-- {
		mid := lo + (hi-lo)/2
		x, y, z := a[lo], a[mid], a[hi]
		pivot := max(min(x, y), min(max(x, y), z))
		i, j := lo, hi
		for i <= j {
			for a[i] < pivot {
				i++
			}
			for a[j] > pivot {
				j--
			}
			if i <= j {
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return a[k] // all between are the pivot
		}
	}
	slices.Sort(a[lo : hi+1])
	return a[k]
}

// npBuffer is the number of elements that numpy's reductions take at a time (np.getbufsize).
const npBuffer = 8192

// npSum adds as np.add.reduce does for contiguous float64 (measured with numpy 1.24): buffers of 8,192
// elements, each summed pairwise, from left to right. The order of the additions decides the last bits
// of every mean that slime logs.
func npSum(a []float64) float64 {
	sum := 0.0
	for len(a) > npBuffer {
		sum += pairwiseSum(a[:npBuffer])
		a = a[npBuffer:]
	}
	return sum + pairwiseSum(a)
}

// pairwiseSum is numpy's inner loop: eight accumulators in blocks of at most 128, halves beyond that
// (numpy/core/src/umath/loops_utils.h).
func pairwiseSum(a []float64) float64 {
	n := len(a)
	if n < 8 {
		sum := 0.0
		for _, v := range a {
			sum += v
		}
		return sum
	}
	if n <= 128 {
		r := [8]float64(a[:8])
		i := 8
		for ; i < n-n%8; i += 8 {
			b := a[i : i+8 : i+8]
			for j := range r {
				r[j] += b[j]
			}
		}
		sum := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		for ; i < n; i++ {
			sum += a[i]
		}
		return sum
	}
	half := n / 2
	half -= half % 8
	return pairwiseSum(a[:half]) + pairwiseSum(a[half:])
}

// pySum is Python's sum() of floats. Python 3.12 made it compensated (Neumaier), 3.11 and earlier add
// from left to right; the two differ in the last bits.
type pySum struct {
	sum, c      float64
	compensated bool
}

func (s *pySum) add(v float64) {
	if !s.compensated {
		s.sum += v
		return
	}
	t := s.sum + v
	if math.Abs(s.sum) >= math.Abs(v) {
		s.c += (s.sum - t) + v
	} else {
		s.c += (v - t) + s.sum
	}
	s.sum = t
}

// addAs adds a value of that Python type: compensation is for floats alone, and a numpy scalar makes the
// sum one, which is added without.
func (s *pySum) addAs(v float64, typeName string) {
	switch typeName {
	case "float":
		s.add(v)
	case "int", "bool":
		s.sum += v
	default:
		s.sum, s.c, s.compensated = s.total()+v, 0, false
	}
}

func (s *pySum) total() float64 {
	// CPython adds the compensation only when it is finite: an infinite sum has a NaN there.
	if s.c != 0 && !math.IsNaN(s.c) && !math.IsInf(s.c, 0) {
		return s.sum + s.c
	}
	return s.sum
}

// pyRound1 is Python's round(x, 1): the decimal nearest to the exact value, ties to even.
func pyRound1(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	r, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 1, 64), 64)
	return r
}

// npRound1 is round(x, 1) of a numpy scalar, which multiplies, rounds to even and divides.
func npRound1(x float64) float64 { return math.RoundToEven(x*10) / 10 }

// pyFloatStr is Python's str() of a float: the shortest digits that read back, with an exponent below
// 1e-4 and from 1e16 on.
func pyFloatStr(x float64) string { return pyFloatBits(x, 64) }

// pyFloatBits is pyFloatStr of a float of that many bits, as numpy shows its float32.
func pyFloatBits(x float64, bits int) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(x, 'e', -1, bits)
	e, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if x != 0 && (e < -4 || e >= 16) {
		return s // Go and Python both write at least two digits of exponent
	}
	s = strconv.FormatFloat(x, 'f', -1, bits)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
