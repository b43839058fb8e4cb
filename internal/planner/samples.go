package planner

import "math"

// sample is one pass in the model: what it did and how long it took.
type sample struct {
	x   [2]float64 // features; x[1] is unused in one dimension
	y   float64    // seconds
	seq uint64     // number of the pass, counted by the model
	// batch is the requests that decode, where the model has no such feature; the watch tells passes apart by it.
	batch float64
}

// bucket is a cell of the grid over the features, oldest sample first.
type bucket struct {
	key  [2]int
	list []sample
	head int // list[:head] has been retired
}

func (b *bucket) live() []sample { return b.list[b.head:] }

func (b *bucket) push(s sample) {
	if b.head > 16 && b.head*2 > len(b.list) { // use the front again, so that a long life allocates nothing
		n := copy(b.list, b.list[b.head:])
		b.list, b.head = b.list[:n], 0
	}
	b.list = append(b.list, s)
}

// samples keeps passes spread over the operating range rather than the newest ones: each axis is cut into
// cells of equal width between the least and the greatest value seen, and when there are more samples than
// max, the oldest of the fullest cell goes. So an hour at one load does not push out what is known of others.
//
// The order of the cells is the order in which they were made, and re-sorting after the bounds moved visits
// them in that order: Dynamo does the same, and which of two equally full cells loses a sample depends on it.
type samples struct {
	dims, perAxis, max int

	buckets []bucket
	total   int
	lo, hi  [2]float64 // bounds of each axis, of everything ever seen
	spare   []bucket   // memory of re-sorting
}

func newSamples(dims, buckets, max int) samples {
	s := samples{dims: dims, perAxis: buckets, max: max}
	if dims == 2 {
		s.perAxis = int(math.Sqrt(float64(buckets)))
	}
	for i := range s.lo {
		s.lo[i], s.hi[i] = math.Inf(1), math.Inf(-1)
	}
	return s
}

func (s *samples) key(x [2]float64) (k [2]int) {
	for i := 0; i < s.dims; i++ {
		if lo, hi := s.lo[i], s.hi[i]; hi > lo {
			k[i] = max(0, min(int((x[i]-lo)/(hi-lo)*float64(s.perAxis)), s.perAxis-1))
		}
	}
	return k
}

func (s *samples) add(v sample) {
	moved := false
	for i := 0; i < s.dims; i++ {
		if v.x[i] < s.lo[i] {
			s.lo[i], moved = v.x[i], true
		}
		if v.x[i] > s.hi[i] {
			s.hi[i], moved = v.x[i], true
		}
	}
	if moved && s.total > 0 {
		s.resort()
	}
	s.put(v)
	if s.total++; s.total <= s.max {
		return
	}
	fullest := 0
	for i := range s.buckets {
		if len(s.buckets[i].live()) > len(s.buckets[fullest].live()) {
			fullest = i
		}
	}
	b := &s.buckets[fullest]
	b.head++
	s.total--
	if len(b.live()) == 0 {
		s.drop(fullest)
	}
}

func (s *samples) put(v sample) {
	k := s.key(v.x)
	for i := range s.buckets {
		if s.buckets[i].key == k {
			s.buckets[i].push(v)
			return
		}
	}
	if n := len(s.buckets); n < cap(s.buckets) { // the memory of a cell that was dropped
		s.buckets = s.buckets[:n+1]
		s.buckets[n] = bucket{key: k, list: append(s.buckets[n].list[:0], v)}
		return
	}
	s.buckets = append(s.buckets, bucket{key: k, list: []sample{v}})
}

func (s *samples) drop(i int) {
	gone := s.buckets[i]
	copy(s.buckets[i:], s.buckets[i+1:])
	s.buckets[len(s.buckets)-1] = gone
	s.buckets = s.buckets[:len(s.buckets)-1]
}

func (s *samples) resort() {
	old := s.buckets
	s.buckets, s.spare = s.spare[:0], old
	for i := range old {
		for _, v := range old[i].live() {
			s.put(v)
		}
	}
}

// prune forgets what is older than pass seq. The bounds stay.
func (s *samples) prune(seq uint64) {
	old := s.buckets
	s.buckets, s.spare, s.total = s.spare[:0], old, 0
	for i := range old {
		for _, v := range old[i].live() {
			if v.seq >= seq {
				s.put(v)
				s.total++
			}
		}
	}
}

// appendTo appends all samples, cell by cell.
func (s *samples) appendTo(out []sample) []sample {
	for i := range s.buckets {
		out = append(out, s.buckets[i].live()...)
	}
	return out
}
