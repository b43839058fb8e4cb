package planner

import "math"

// Caps are the limits of one engine. 0 means not known.
type Caps struct {
	MaxBatchedTokens int64 // max_num_batched_tokens: prefill tokens in one pass
	MaxKVTokens      int64 // max_kv_tokens: size of the KV cache
	MaxSeqs          int64 // max_num_seqs: requests in one batch
	ContextLength    int64 // context_length of the model
	GPUs             int   // GPUs of one replica
}

// Shape is what requests look like.
type Shape struct {
	ISL, OSL float64 // tokens in, tokens out, on average
	HitRate  float64 // 0..1, share of the prompt that the prefix cache spares; 0 when not known
}

// SLO is what is promised, in seconds.
type SLO struct{ TTFT, ITL float64 }

// Bound says what keeps an engine from carrying more.
type Bound string

// Bounds.
const (
	BoundCompute  Bound = "compute"        // prefill: the time of a prompt itself
	BoundTTFT     Bound = "ttft"           // one more and the first token comes too late
	BoundITL      Bound = "itl"            // one more and the tokens come too slowly
	BoundKV       Bound = "max_kv_tokens"  // the KV cache is full
	BoundSeen     Bound = "max_kv_seen"    // the most context ever seen, since the size of the cache is not known
	BoundSeqs     Bound = "max_num_seqs"   // the batch is full
	BoundBalance  Bound = "balance"        // prefill could not bring requests in as fast as they finish
	BoundFallback Bound = "size_not_known" // neither cache nor batch is known: 256 (decode) or 1024 (agg) requests
)

// Capacity is the most that one engine carries.
type Capacity struct {
	RequestsPerSecond float64 // of one engine
	TTFT, ITL         float64 // seconds at that load; 0 where the role has none
	Batch             int     // requests decoding at once; 0 for prefill
	Meets             bool    // false: even the least load breaks the promise, and this is that load's rate
	Bound             Bound
	Outside           bool // ours: that load lies well beyond all that was seen, so the line guesses
}

// Capacity finds the most requests a second that one engine carries within the promise, as Dynamo does:
// for prefill 1/t(prompt), for decode and aggregated the largest batch b with rate b/(osl*t(b)). It is not ok
// without a fit, or when the shape or a limit that the formula needs is missing.
func (m *Model) Capacity(shape Shape, slo SLO, caps Caps) (Capacity, bool) {
	if !(shape.ISL >= 0 && shape.ISL <= maxTokens && shape.OSL >= 0 && shape.OSL <= maxTokens) || !m.fit() {
		return Capacity{}, false
	}
	switch m.role {
	case Prefill:
		return m.prefillCapacity(shape, slo, caps)
	case Decode:
		return m.decodeCapacity(shape, slo, caps)
	}
	return m.aggCapacity(shape, slo, caps)
}

func (m *Model) prefillCapacity(shape Shape, slo SLO, caps Caps) (Capacity, bool) {
	isl := shape.ISL * uncached(shape.HitRate)
	if isl <= 0 {
		return Capacity{}, false
	}
	perPass := isl
	if caps.MaxBatchedTokens > 0 {
		perPass = math.Min(isl, float64(caps.MaxBatchedTokens))
	}
	t := m.chunks(isl, perPass, 0)
	return Capacity{RequestsPerSecond: 1 / t, TTFT: t, Meets: t <= slo.TTFT, Bound: BoundCompute, Outside: m.line.Outside([2]float64{perPass})}, true
}

// limit turns a number of requests into a batch size of at least one.
func limit(n float64) int { return int(math.Max(1, math.Min(n, 1<<30))) }

func (m *Model) decodeCapacity(shape Shape, slo SLO, caps Caps) (Capacity, bool) {
	ctx := shape.ISL + shape.OSL/2
	if ctx <= 0 || shape.OSL <= 0 || slo.ITL <= 0 {
		return Capacity{}, false
	}
	most, bound := 256, BoundFallback
	if caps.MaxKVTokens > 0 {
		most, bound = limit(float64(caps.MaxKVTokens)/ctx), BoundKV
	} else if m.maxObservedKV > 0 {
		most, bound = limit(m.maxObservedKV/ctx), BoundSeen
	}
	if s := caps.MaxSeqs; s > 0 && s < int64(most) {
		most, bound = int(s), BoundSeqs
	}
	at := func(b int) float64 { return m.line.At([2]float64{float64(b), float64(b) * ctx}) }
	best, t := 1, at(1)
	out := func(meets bool) (Capacity, bool) {
		return Capacity{RequestsPerSecond: float64(best) / (shape.OSL * t), ITL: t, Batch: best, Meets: meets, Bound: bound,
			Outside: m.line.Outside([2]float64{float64(best), float64(best) * ctx})}, true
	}
	if t > slo.ITL {
		bound = BoundITL
		return out(false)
	}
	for lo, hi := 1, most; lo <= hi; {
		mid := (lo + hi) / 2
		if tm := at(mid); tm <= slo.ITL {
			best, t, lo = mid, tm, mid+1
		} else {
			hi = mid - 1
		}
	}
	if best < most {
		bound = BoundITL
	}
	return out(true)
}

func (m *Model) aggCapacity(shape Shape, slo SLO, caps Caps) (Capacity, bool) {
	mbt := caps.MaxBatchedTokens
	if shape.ISL <= 0 || shape.OSL <= 0 || mbt <= 0 {
		return Capacity{}, false
	}
	effective := shape.ISL * uncached(shape.HitRate) // the cache spares work, not room
	ctx := shape.ISL + shape.OSL/2
	most, bound := 1024, BoundFallback
	if caps.MaxKVTokens > 0 {
		most, bound = limit(float64(caps.MaxKVTokens)/math.Max(1, ctx)), BoundKV
	}
	if s := caps.MaxSeqs; s > 0 && s < int64(most) {
		most, bound = int(s), BoundSeqs
	}
	if mbt-1 < int64(most) {
		most, bound = int(mbt-1), BoundBalance
	}
	// In the steady state as many requests must come in as finish: (mbt-b)/isl >= b/osl. An older Dynamo tested
	// isl/(mbt-b) <= osl, which is that for a batch of one only; its newer one, and this, for the whole batch.
	lo, hi := 1, max(1, most)
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if float64(mid)*shape.ISL/shape.OSL <= float64(mbt-int64(mid)) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if lo < most {
		bound = BoundBalance
	}
	out, at := Capacity{Bound: bound, Meets: true}, [2]float64{}
	for b := 1; b <= lo; b++ {
		kv := float64(b) * ctx
		perPass := math.Min(float64(b)*effective/math.Max(1, shape.OSL), float64(mbt))
		t := m.line.At([2]float64{perPass, kv})
		ttft, _ := m.TTFT(math.Trunc(perPass), math.Trunc(kv), mbt, 0)
		late, slow := ttft > slo.TTFT, t > slo.ITL
		if (late || slow) && b > 1 {
			out.Bound = BoundITL
			if late {
				out.Bound = BoundTTFT
			}
			break
		}
		out.RequestsPerSecond, out.TTFT, out.ITL, out.Batch = float64(b)/(shape.OSL*t), ttft, t, b
		at = [2]float64{perPass, kv}
		if late || slow {
			out.Meets, out.Bound = false, BoundITL
			if late {
				out.Bound = BoundTTFT
			}
			break
		}
	}
	out.Outside = m.line.Outside(at)
	return out, true
}

// Replicas is how many engines a demand needs, by Dynamo's rule: ceil(demand/capacity), at least least, and
// for prefill at least ceil(ttft/promise) where one prompt alone breaks the promise.
func (c Capacity) Replicas(demand float64, slo SLO, least int) int {
	n := least
	if c.Batch == 0 { // prefill
		n = max(n, 1)
	}
	if c.RequestsPerSecond > 0 && demand > 0 {
		n = max(n, ceilTo(demand/c.RequestsPerSecond))
	}
	if c.Batch == 0 && c.TTFT > slo.TTFT && slo.TTFT > 0 {
		n = max(n, ceilTo(c.TTFT/slo.TTFT))
	}
	return n
}

// Load is what an engine would be like at a given rate.
type Load struct {
	TTFT, ITL   float64 // seconds; 0 where the role has none
	Batch       float64 // requests decoding at once, on average
	Utilisation float64 // share of the time, 0..1, that the arriving work takes
	Saturated   bool    // the work comes in faster than it is done: there is no steady state, the rest is 0
}

// At estimates one engine at rate requests a second. This is ours, not Dynamo's, which knows only the present
// queue: decode and aggregated by Little's law on the fitted line (batch = rate*osl*t(batch)), prefill as one
// server that prompts of equal length reach at random (mean wait = u*t/(2*(1-u))).
func (m *Model) At(rate float64, shape Shape, caps Caps) (Load, bool) {
	if !(rate >= 0 && rate <= 1e9) || !(shape.ISL >= 0 && shape.ISL <= maxTokens && shape.OSL >= 0 && shape.OSL <= maxTokens) || !m.fit() {
		return Load{}, false
	}
	isl := shape.ISL * uncached(shape.HitRate)
	if m.role == Prefill {
		c, ok := m.prefillCapacity(shape, SLO{}, caps)
		if !ok {
			return Load{}, false
		}
		u := rate * c.TTFT
		if u >= 1 {
			return Load{Utilisation: 1, Saturated: true}, true
		}
		return Load{TTFT: c.TTFT * (1 + u/(2*(1-u))), Utilisation: u}, true
	}
	if shape.OSL <= 0 || m.role == Aggregated && (caps.MaxBatchedTokens <= 0 || isl <= 0) {
		return Load{}, false
	}
	ctx := shape.ISL + shape.OSL/2
	// t(b) = fixed + each*b, so b = rate*osl*(fixed + each*b).
	each := m.line.Coef[1] * ctx
	if m.role == Decode {
		each += m.line.Coef[0]
	} else {
		each += m.line.Coef[0] * isl / math.Max(1, shape.OSL)
	}
	fixed := math.Max(m.line.Intercept, minPrediction)
	flow := rate * shape.OSL
	u := flow * each
	b := flow * fixed / (1 - u)
	most := math.Inf(1)
	if caps.MaxKVTokens > 0 {
		most = float64(caps.MaxKVTokens) / ctx
	}
	if caps.MaxSeqs > 0 {
		most = math.Min(most, float64(caps.MaxSeqs))
	}
	if u >= 1 || b > most {
		return Load{Utilisation: 1, Saturated: true}, true
	}
	out := Load{Batch: b, Utilisation: u}
	if m.role == Decode {
		out.ITL = m.line.At([2]float64{math.Max(b, 1), math.Max(b, 1) * ctx})
		return out, true
	}
	perPass := b * isl / math.Max(1, shape.OSL)
	if perPass+b > float64(caps.MaxBatchedTokens) {
		return Load{Utilisation: 1, Saturated: true}, true
	}
	out.ITL = m.line.At([2]float64{perPass, b * ctx})
	out.TTFT = m.chunks(perPass+isl, float64(caps.MaxBatchedTokens), b*ctx)
	return out, true
}
