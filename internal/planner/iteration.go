package planner

import "math"

// Component is a pool of engines that is scaled as one.
type Component string

// Components. In mode agg there is one pool, and it is called decode as in Dynamo.
const (
	PrefillPool Component = "prefill"
	DecodePool  Component = "decode"
)

// Iteration is one forward pass of one engine's rank, with the fields of Dynamo's forward pass metrics
// that the models read.
type Iteration struct {
	Worker string // worker_id, decimal
	Rank   int    // dp_rank

	WallTime float64 // wall_time, seconds; 0 is a heartbeat

	// scheduled_requests: what this pass did.
	NumPrefillRequests int64 // num_prefill_requests
	SumPrefillTokens   int64 // sum_prefill_tokens: tokens newly computed, a chunk and not the whole prompt
	NumDecodeRequests  int64 // num_decode_requests
	SumDecodeKVTokens  int64 // sum_decode_kv_tokens: context of all decoding requests

	// queued_requests: what waited after it.
	QueuedPrefillTokens  int64 // sum_prefill_tokens
	QueuedDecodeKVTokens int64 // sum_decode_kv_tokens
}

// Verdict says what became of an iteration.
type Verdict string

// Verdicts. The refused ones are counted, see [Planner.Drops].
const (
	Sample      Verdict = "sample"         // it is in the model
	Cold        Verdict = "cold_start"     // one of an engine's first passes: set apart, see [ColdStart]
	Heartbeat   Verdict = "heartbeat"      // no work: the averages know of it, the fit does not
	BadWallTime Verdict = "bad_wall_time"  // negative, not a number, or longer than an hour
	BadCount    Verdict = "negative_count" // a count below zero, or beyond what a pass can hold
	WrongPool   Verdict = "wrong_pool"     // the mode has no such pool
)

// maxWallTime is an hour: a producer once sent its clock's reading in place of a duration, and one such
// pass would turn the line upright.
const maxWallTime = 3600

// maxTokens bounds a count so that sums and squares of it stay exact enough.
const maxTokens = 1 << 48

func (it *Iteration) check() Verdict {
	if !(it.WallTime >= 0 && it.WallTime <= maxWallTime) { // NaN too
		return BadWallTime
	}
	for _, n := range [...]int64{it.NumPrefillRequests, it.SumPrefillTokens, it.NumDecodeRequests,
		it.SumDecodeKVTokens, it.QueuedPrefillTokens, it.QueuedDecodeKVTokens} {
		if n < 0 || n > maxTokens {
			return BadCount
		}
	}
	if it.WallTime == 0 {
		return Heartbeat
	}
	return Sample
}

// window is a moving average over the last values that skips the zeros before the first work, as Dynamo's.
type window struct {
	ring   []float64 // grows to its capacity, then turns
	next   int
	sum    float64
	worked bool
}

func newWindow(size int) window { return window{ring: make([]float64, 0, size)} }

func (w *window) add(v float64) {
	if v == 0 && !w.worked {
		return
	}
	if v != 0 {
		w.worked = true
	}
	if len(w.ring) < cap(w.ring) {
		w.ring = append(w.ring, v)
		w.sum += v
		return
	}
	w.sum -= w.ring[w.next]
	w.ring[w.next] = v
	w.sum += v
	w.next = (w.next + 1) % len(w.ring)
}

func (w *window) mean() float64 {
	if len(w.ring) == 0 {
		return 0
	}
	return w.sum / float64(len(w.ring))
}

// ceilTo rounds up to whole replicas without leaving the range of an int.
func ceilTo(v float64) int {
	return int(math.Min(math.Ceil(v), 1<<30))
}
