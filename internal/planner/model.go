package planner

import (
	"fmt"
	"math"
)

// Role says which of Dynamo's three regressions a model is.
type Role string

// Roles with their features; the target of all is the duration of a pass (wall_time).
const (
	Prefill    Role = "prefill" // sum_prefill_tokens
	Decode     Role = "decode"  // num_decode_requests, sum_decode_kv_tokens
	Aggregated Role = "agg"     // sum_prefill_tokens, sum_decode_kv_tokens
)

// Features names the features of a role, in the order of a line's coefficients.
func (r Role) Features() []string {
	switch r {
	case Prefill:
		return []string{"sum_prefill_tokens"}
	case Decode:
		return []string{"num_decode_requests", "sum_decode_kv_tokens"}
	}
	return []string{"sum_prefill_tokens", "sum_decode_kv_tokens"}
}

// ModelState says whether a model answers, and if not why.
type ModelState string

// States of a model.
const (
	Learning ModelState = "learning" // fewer samples than the minimum
	Refused  ModelState = "refused"  // the fit says that more work takes less time
	Fitted   ModelState = "fitted"
)

// Model learns how long a pass takes from what it does, for all engines of one pool together. [NewModel] makes one.
type Model struct {
	role    Role
	minimum int
	seq     uint64 // working passes seen

	samples samples
	line    Line
	state   ModelState
	stale   bool // samples came since the line was fitted
	scratch []sample
	work    []float64

	avgISL, avgDecodeLen     window // tokens of a prompt's chunk, context of a decoding request
	avgNumDecode, avgPrefill window // decoding requests, prefill tokens of a pass
	maxObservedKV            float64
	clipped                  bool
	refusedCoef              [2]float64
}

// NewModel makes a model that keeps at most maxSamples passes (max_num_fpm_samples) in the given number of
// buckets (fpm_sample_bucket_size, a square) and answers from minimum passes on (load_min_observations).
func NewModel(role Role, maxSamples, buckets, minimum int) (*Model, error) {
	switch root := int(math.Sqrt(float64(buckets))); {
	case role != Prefill && role != Decode && role != Aggregated:
		return nil, fmt.Errorf("planner: the role %q is none of prefill, decode, agg", role)
	case maxSamples < 1 || maxSamples > maxSamplesLimit:
		return nil, fmt.Errorf("planner: max_num_fpm_samples is %d; use 1 to %d", maxSamples, maxSamplesLimit)
	case buckets < 1 || buckets > maxBucketsLimit || root*root != buckets:
		return nil, fmt.Errorf("planner: fpm_sample_bucket_size is %d; use a square such as 4, 9, 16, up to %d", buckets, maxBucketsLimit)
	case minimum < 1:
		return nil, fmt.Errorf("planner: load_min_observations is %d; use 1 or more", minimum)
	}
	return &Model{
		role: role, minimum: minimum, samples: newSamples(len(role.Features()), buckets, maxSamples), state: Learning,
		avgISL: newWindow(maxSamples), avgDecodeLen: newWindow(maxSamples),
		avgNumDecode: newWindow(maxSamples), avgPrefill: newWindow(maxSamples),
	}, nil
}

const (
	maxSamplesLimit = 65536
	maxBucketsLimit = 1024
)

// Role returns what the model was made for.
func (m *Model) Role() Role { return m.role }

func (m *Model) features(it *Iteration) [2]float64 {
	switch m.role {
	case Prefill:
		return [2]float64{float64(it.SumPrefillTokens)}
	case Decode:
		return [2]float64{float64(it.NumDecodeRequests), float64(it.SumDecodeKVTokens)}
	}
	return [2]float64{float64(it.SumPrefillTokens), float64(it.SumDecodeKVTokens)}
}

// Observe takes one pass in. A heartbeat moves the averages and is no sample.
func (m *Model) Observe(it Iteration) Verdict {
	v := it.check()
	if v != Sample && v != Heartbeat {
		return v
	}
	m.average(&it)
	if v == Heartbeat {
		return v
	}
	m.seq++
	m.samples.add(sample{x: m.features(&it), y: it.WallTime, seq: m.seq})
	m.stale = true
	return Sample
}

// average moves the moving averages. Each role counts what Dynamo's class of that name counts.
func (m *Model) average(it *Iteration) {
	if m.role != Decode {
		if it.NumPrefillRequests > 0 {
			m.avgISL.add(float64(it.SumPrefillTokens) / float64(it.NumPrefillRequests))
		}
		m.avgPrefill.add(float64(it.SumPrefillTokens))
	}
	if m.role != Prefill {
		if it.NumDecodeRequests > 0 {
			m.avgDecodeLen.add(float64(it.SumDecodeKVTokens) / float64(it.NumDecodeRequests))
		}
		m.avgNumDecode.add(float64(it.NumDecodeRequests))
		m.maxObservedKV = math.Max(m.maxObservedKV, float64(it.SumDecodeKVTokens))
	}
}

// Samples returns how many passes the model holds.
func (m *Model) Samples() int { return m.samples.total }

// enough is Dynamo's first guard: it counts samples and does not look at the fit.
func (m *Model) enough() bool { return m.samples.total >= m.minimum }

// Line returns the fitted line and whether it may be used.
func (m *Model) Line() (Line, ModelState) {
	m.fit()
	return m.line, m.state
}

func (m *Model) fit() bool {
	if !m.stale {
		return m.state == Fitted
	}
	m.stale = false
	if !m.enough() {
		m.state, m.line = Learning, Line{}
		return false
	}
	m.scratch = m.samples.appendTo(m.scratch[:0])
	m.line, m.work = fitLine(m.samples.dims, m.scratch, m.work)
	for i := range m.scratch {
		m.line.far = math.Max(m.line.far, m.line.leverage(m.scratch[i].x))
	}
	m.state, m.clipped = Fitted, false
	for i := 0; i < m.line.Dims; i++ {
		switch {
		case m.line.Coef[i] >= 0:
		case m.role == Decode && i == 0:
			// More requests cost a little more, yet beside the context that they bring it is hard to see, so
			// the sign may flip. Dynamo sets the coefficient to 0 and leaves the intercept as it was.
			m.line.Coef[i], m.clipped = 0, true
		default:
			m.state, m.refusedCoef = Refused, m.line.Coef
		}
	}
	return m.state == Fitted
}

// AverageISL returns the moving average of prefill tokens a request in a pass, and whether there is one.
func (m *Model) AverageISL() (tokens float64, ok bool) {
	return m.avgISL.mean(), len(m.avgISL.ring) > 0
}

// AverageContext returns the moving average of a decoding request's context, and whether there is one.
func (m *Model) AverageContext() (tokens float64, ok bool) {
	return m.avgDecodeLen.mean(), len(m.avgDecodeLen.ring) > 0
}

// maxHitRate bounds the discount for prefix cache hits: with all of it, a queue would weigh nothing.
const maxHitRate = 0.95

func uncached(hitRate float64) float64 {
	if math.IsNaN(hitRate) {
		return 1
	}
	return 1 - math.Max(0, math.Min(maxHitRate, hitRate))
}

// chunks adds up the passes that a number of prefill tokens takes, at most perPass in each.
func (m *Model) chunks(tokens, perPass, decodeKV float64) float64 {
	full := math.Ceil(tokens/perPass) - 1
	t := m.line.At([2]float64{tokens - full*perPass, decodeKV})
	if full > 0 {
		t += full * m.line.At([2]float64{perPass, decodeKV})
	}
	return t
}

// TTFT estimates in seconds what the next request waits for its first token behind queued prefill tokens:
// the queue and one more prompt of average length, both less what the prefix cache spares, in passes of at
// most perPass tokens (max_num_batched_tokens). decodeKV is the context that decodes beside it; only an
// aggregated model reads it. It is not ok when the model has no fit or perPass is not known.
func (m *Model) TTFT(queued, decodeKV float64, perPass int64, hitRate float64) (seconds float64, ok bool) {
	if m.role == Decode || perPass <= 0 || !m.fit() {
		return 0, false
	}
	tokens := (queued + m.avgISL.mean()) * uncached(hitRate)
	if tokens <= 0 {
		return 0, true
	}
	return m.chunks(tokens, float64(perPass), decodeKV), true
}

// ITL estimates in seconds the next pass of an engine that decodes with the given context in its batch and
// in its queue, and one request of average context more. It is not ok for a prefill model or without a fit.
func (m *Model) ITL(scheduledKV, queuedKV float64) (seconds float64, ok bool) {
	if m.role == Prefill || !m.fit() {
		return 0, false
	}
	kv := scheduledKV + queuedKV + m.avgDecodeLen.mean()
	if m.role == Decode {
		return m.line.At([2]float64{m.avgNumDecode.mean() + 1, kv}), true
	}
	return m.line.At([2]float64{m.avgPrefill.mean(), kv}), true
}
