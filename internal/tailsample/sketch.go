package tailsample

import "math"

// A sketch holds the distribution of one duration in buckets whose bounds grow by 2 %, over the current
// window and the one before it, so that what is called slow follows the load. Its p99 is never below the
// true one of what it holds by more than that.
const (
	sketchGrowth  = 1.02
	sketchLowest  = 1e-6 // s; what is less counts as this
	sketchBuckets = 1280 // up to 1e5 s
)

type sketch struct {
	now, before [sketchBuckets]uint32
	n, m        uint32 // how many are in now and in before
	since       int64  // when the current window began
	limit       float64
	fresh       uint32 // added since limit was computed; it is computed anew after 1/64 of the count
}

var sketchScale = 1 / math.Log(sketchGrowth)

func sketchBucket(v float64) int {
	if !(v > sketchLowest) {
		return 0
	}
	return min(int(math.Log(v/sketchLowest)*sketchScale), sketchBuckets-1)
}

// add counts a duration in seconds that ended at now.
func (s *sketch) add(now int64, v float64, window int64) {
	if s.since == 0 {
		s.since = now
	}
	if now-s.since >= window {
		if now-s.since >= 2*window {
			s.now, s.n = [sketchBuckets]uint32{}, 0
		}
		s.before, s.m = s.now, s.n
		s.now, s.n = [sketchBuckets]uint32{}, 0
		s.since, s.limit = now, 0
	}
	s.now[sketchBucket(v)]++
	s.n++
	s.fresh++
}

// p99 is the upper bound of the bucket that the 99th percentile lies in, and false while fewer than
// least durations are held.
func (s *sketch) p99(least int) (float64, bool) {
	total := s.n + s.m
	if int(total) < least || total == 0 {
		return 0, false
	}
	if s.limit == 0 || s.fresh*64 >= total {
		rank := uint64(total) - uint64(total)/100 // of ascending durations
		var sum uint64
		for i := range s.now {
			if sum += uint64(s.now[i]) + uint64(s.before[i]); sum >= rank {
				s.limit = sketchLowest * math.Pow(sketchGrowth, float64(i+1))
				break
			}
		}
		s.fresh = 0
	}
	return s.limit, true
}
