package tailsample

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/span"
)

// The share of the rest is kept by a hash of the trace id, or of the session's when there is one: the
// same id gets the same answer in every process. The id itself is not taken as random, as W3C's trace
// context level 2 would have it: SGLang's upper 64 bits are zero and its lower ones come from a generator
// seeded with the time. Only a trace that says by tracestate that it was sampled consistently before
// (ot=th:..., https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/) is decided
// the way of that specification, so that our share lies within what was let through and not across it.

// mix spreads every bit over all of the result (the finalizer of MurmurHash3, public domain).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// hashTrace is the hash of a trace id.
func hashTrace(id span.TraceID) uint64 {
	return mix(mix(binary.BigEndian.Uint64(id[:8])^0x9e3779b97f4a7c15) ^ binary.BigEndian.Uint64(id[8:]))
}

// hashText is the hash of a session's name or a bootstrap room. kind keeps equal texts of different
// kinds apart. It is never 0.
func hashText(kind byte, s string) uint64 {
	h := uint64(14695981039346656037)
	h = (h ^ uint64(kind)) * 1099511628211
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return max(mix(h), 1)
}

// within tells whether a hash lies in a share of all.
func within(h uint64, ratio float64) bool {
	switch {
	case ratio >= 1:
		return true
	case !(ratio > 0):
		return false
	}
	return float64(h>>11) < ratio*(1<<53)
}

// saltedHash is the hash of the collector's probabilistic policy: FNV-1a of the salt and the id.
func saltedHash(salt string, id span.TraceID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(salt))
	h.Write(id[:])
	return h.Sum64()
}

// saltedThreshold is the largest hash that the collector's probabilistic policy keeps, and whether it
// keeps any.
func saltedThreshold(percent float64) (uint64, bool) {
	switch {
	case percent >= 100:
		return math.MaxUint64, true
	case !(percent > 0):
		return 0, false
	}
	return uint64(percent / 100 * math.MaxUint64), true
}

// upstream is what a tracestate says of sampling that was done before.
type upstream struct {
	threshold uint64 // of 2^56: what has less randomness was thrown away
	random    uint64 // 56 bits
	said      uint8  // saidThreshold, saidRandom
}

const (
	saidThreshold = 1 << iota
	saidRandom
)

// readOT reads th and rv of the ot member of a tracestate. What is malformed is as if not said.
func readOT(state string) (u upstream) {
	for member := range strings.SplitSeq(state, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(member), "ot=")
		if !ok {
			continue
		}
		for sub := range strings.SplitSeq(value, ";") {
			key, v, _ := strings.Cut(sub, ":")
			switch {
			case key == "th" && len(v) >= 1 && len(v) <= 14:
				if n, err := strconv.ParseUint(v, 16, 64); err == nil {
					u.threshold = n << (4 * (14 - len(v)))
					u.said |= saidThreshold
				}
			case key == "rv" && len(v) == 14:
				if n, err := strconv.ParseUint(v, 16, 64); err == nil {
					u.random = n
					u.said |= saidRandom
				}
			}
		}
		return u
	}
	return u
}

// probability is the share that a threshold lets through.
func (u upstream) probability() float64 {
	if u.said&saidThreshold == 0 {
		return 1
	}
	return 1 - float64(u.threshold)/(1<<56)
}

// keep decides by the specification's method, and gives the share that came through both decisions.
func (u upstream) keep(id span.TraceID, ratio float64) (bool, float64) {
	share := min(ratio, u.probability())
	random := u.random
	if u.said&saidRandom == 0 {
		random = binary.BigEndian.Uint64(id[8:]) & (1<<56 - 1)
	}
	if !(ratio > 0) {
		return false, 0
	}
	threshold := uint64(math.Round((1 - min(ratio, 1)) * (1 << 56)))
	return random >= threshold, share
}
