package rollout

import "github.com/rollscope/rollscope/internal/request"

// timesAcc keeps what slime's compute_perf_metrics_from_samples needs of each sample.
type timesAcc struct {
	response, effective []float64 // tokens
	// wait is non_generation_time in s as slime takes it, good whether it can be.
	wait    []float64
	good    []bool
	invalid int
	failed  string
	tokens  [2]int64 // sums of response and effective
}

func (t *timesAcc) add(s *Sample, f *sampleFacts) {
	t.response = append(t.response, float64(f.response))
	t.effective = append(t.effective, float64(f.effective))
	t.tokens[0] += f.response
	t.tokens[1] += f.effective
	w := s.NonGeneration
	if w.State == request.Invalid {
		t.invalid++
		if w.V == 0 && t.failed == "" { // a negative or infinite number has its value
			t.failed = "TypeError: '>' not supported between instances of 'NoneType' and 'float'"
		}
	}
	t.wait = append(t.wait, w.V)
	t.good = append(t.good, w.State != request.Invalid)
}

// usable is the waits that can be.
func (t *timesAcc) usable() []float64 {
	if t.invalid == 0 {
		return t.wait
	}
	var out []float64
	for i, ok := range t.good {
		if ok {
			out = append(out, t.wait[i])
		}
	}
	return out
}

// pyMax is Python's max(): the first of the largest, and NaN only when it comes first.
func pyMax(v []float64) float64 {
	m := v[0]
	for _, x := range v[1:] {
		if x > m {
			m = x
		}
	}
	return m
}

// rolloutTime is how long the step took in s, and how that is known.
type rolloutTime struct {
	s       float64
	derived bool
	why     string // when it is not known
}

// tokenRates are slime's token_perf for one kind of lengths; key is "" or "effective_".
func tokenRates(e *emitter, key string, tokens int64, lengths, wait []float64, t rolloutTime, opts *MetricOptions) {
	longest := pyMax(lengths)
	perGPU, perSec := key+"tokens_per_gpu_per_sec", "longest_"+key+"sample_tokens_per_sec"
	switch {
	case t.s == 0:
		e.unknown(perGPU, t.why)
	case opts.GPUs == 0:
		e.unknown(perGPU, "the number of GPUs is not known; give rollout_num_gpus")
	default:
		e.derived(perGPU, float64(tokens)/t.s/float64(opts.GPUs), t.derived)
	}
	if t.s == 0 {
		e.unknown(perSec, t.why)
	} else {
		e.derived(perSec, longest/t.s, t.derived)
	}
	if len(wait) != len(lengths) || pyMax(wait) == 0 {
		return
	}
	sum, n := pySum{compensated: opts.CompensatedSum}, 0
	for i, l := range lengths {
		if l == longest {
			sum.add(wait[i])
			n++
		}
	}
	mean := sum.total() / float64(n)
	e.put("longest_"+key+"sample_non_generation_time", mean)
	without := perSec + "_without_non_generation"
	switch {
	case t.s == 0:
		e.unknown(without, t.why)
	case t.s == mean:
		e.unknown(without, "the whole time was spent outside generation")
	case t.s < mean:
		e.unknown(without, "the time outside generation is longer than the rollout: it counts from earlier steps too")
	default:
		e.derived(without, longest/(t.s-mean), t.derived)
	}
}
