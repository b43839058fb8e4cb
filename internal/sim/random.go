package sim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// Lengths is a lognormal distribution of token counts with a long tail.
type Lengths struct {
	Median int     // tokens
	Sigma  float64 // of the logarithm; 0 means constant
	Max    int     // tokens; longer draws are cut
}

func (l Lengths) draw(r *rand.Rand) int {
	if l.Median <= 0 {
		return 0
	}
	n := int(math.Round(float64(l.Median) * math.Exp(l.Sigma*r.NormFloat64())))
	if l.Max > 0 {
		n = min(n, l.Max)
	}
	return max(n, 1)
}

// source returns the random source of one part of the fleet: parts do not disturb each other's draws.
func source(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// mix is a cheap hash of a key, for affinity and keys of derived prefixes (splitmix64's finaliser).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
