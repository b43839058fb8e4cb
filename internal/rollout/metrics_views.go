package rollout

import (
	"fmt"
	"strconv"
)

// compatResult is what slime logs of a training step.
func (m *Metrics) compatResult(r *MetricsResult, t rolloutTime) {
	e := &emitter{prefix: "rollout/", doc: "rollout/", slime: true}
	all := m.all
	if m.hdr.Shape == ShapeTrain {
		all = newRolloutAcc("", &m.opts) // slime finds no samples in it
	}
	if err := all.compat(e); err != "" {
		r.CompatFailed = append(r.CompatFailed, MetricFailure{"rollout", err})
		e.out = nil
	}
	r.Compat = append(r.Compat, e.out...)

	e = &emitter{prefix: "perf/", doc: "perf/", slime: true}
	if err := m.compatPerf(e, t); err != "" {
		r.CompatFailed = append(r.CompatFailed, MetricFailure{"perf", err})
		e.out = nil
	}
	r.Compat = append(r.Compat, e.out...)
	if m.opts.LogPassrate {
		e = &emitter{prefix: "passrate/", doc: "passrate/", slime: true}
		if err := all.passRates(e); err != "" {
			r.CompatFailed = append(r.CompatFailed, MetricFailure{"passrate", err})
		}
		r.Compat = append(r.Compat, e.out...)
	}
}

func (m *Metrics) compatPerf(e *emitter, t rolloutTime) (err string) {
	a := &m.times
	switch {
	case len(a.wait) == 0 || m.hdr.Shape == ShapeTrain:
		return "ValueError: max() arg is an empty sequence"
	case a.failed != "":
		return a.failed
	}
	m.timesInto(e, t, a.wait, a.response, a.effective)
	if m.compat.failed != "" {
		return m.compat.failed
	}
	m.compat.emit(e, m.opts.CompatCounts)
	return ""
}

func (c *compatRequests) emit(e *emitter, counts bool) {
	if c.count == 0 {
		return
	}
	if counts {
		e.count("request/count", c.count)
		e.count("request/profiled_count", c.profiled)
	}
	for _, i := range c.order {
		e.stats(requestKeys[i].key, statsOf(c.values[i]))
		if counts {
			e.count(requestKeys[i].key+"/count", len(c.values[i]))
		}
	}
}

// timesInto is compute_perf_metrics_from_samples up to the requests.
func (m *Metrics) timesInto(e *emitter, t rolloutTime, wait, response, effective []float64) {
	if t.s == 0 {
		e.unknown("rollout_time", t.why)
	} else {
		e.derived("rollout_time", t.s, t.derived)
	}
	if len(wait) > 0 && pyMax(wait) > 0 {
		e.stats("non_generation_time", statsOf(wait))
	}
	if len(response) == 0 {
		return
	}
	tokenRates(e, "", m.times.tokens[0], response, wait, t, &m.opts)
	tokenRates(e, "effective_", m.times.tokens[1], effective, wait, t, &m.opts)
}

// compat is compute_metrics_from_samples; it returns what slime raises.
func (a *rolloutAcc) compat(e *emitter) (err string) {
	if a.n == 0 {
		return "ValueError: zero-size array to reduction operation maximum which has no identity"
	}
	counts, roundErr := a.zeroStd()
	if a.opts.AdvantageEstimator != "ppo" && a.fails[failRewards] == "" && roundErr != "" {
		return roundErr
	}
	if err := a.failed(); err != "" {
		return err
	}
	a.into(e, counts)
	return ""
}

// into emits the keys of compute_metrics_from_samples.
func (a *rolloutAcc) into(e *emitter, zeroStd []category) {
	n := float64(a.n)
	e.stats("response_len", statsOf(a.effective))
	for _, c := range zeroStd {
		e.count("zero_std/count_"+c.name, c.n)
	}
	if a.opts.SpecDecoding {
		e.put("spec_accept_rate", a.rate.total()/n)
		e.put("spec_accept_length", a.length.total()/n)
	}
	rate := 0.0
	if a.prompt > 0 {
		rate = float64(a.cached) / float64(a.prompt)
	}
	e.put("prefix_cache_hit_rate", rate)
	e.put("avg_cached_tokens_per_sample", float64(a.cached)/n)
	for _, c := range a.named(e.slime) {
		e.part("error_cat/"+c.name, float64(c.n)/n, a.n-a.noCategory, a.n, "samples have a category")
	}
	if a.topTokens > 0 {
		e.part("top_p_kept_vocab_per_token", float64(a.topKept)/float64(a.topTokens), a.n-a.topSkipped, a.n, "samples have offsets that fit")
	}
	e.part("repetition_frac", float64(a.repeats)/n, a.n-a.surrogates, a.n, "samples are valid text")
	e.put("truncated_ratio", float64(a.truncated)/n)
}

// named merges categories that differ and have the same name in a key, such as 3 and "3"; of those slime
// keeps the last one's count.
func (a *rolloutAcc) named(slime bool) []category {
	at := map[string]int{}
	var out []category
	for _, c := range a.categories {
		i, ok := at[c.name]
		switch {
		case !ok:
			at[c.name] = len(out)
			out = append(out, c)
		case slime:
			out[i].n = c.n
		default:
			out[i].n += c.n
		}
	}
	return out
}

func (a *rolloutAcc) passRates(e *emitter) (err string) {
	rates, bad := a.pass.rates()
	if bad != nil {
		return "AssertionError: " + bad.Error()
	}
	for _, p := range rates {
		e.put("pass@"+strconv.Itoa(p.K), p.Rate)
	}
	return ""
}

// publishedRates is passRates with what can be said where slime fails or counts a missing reward as wrong.
func (a *rolloutAcc) publishedRates(e *emitter) {
	from := len(e.out)
	if err := a.passRates(e); err != "" {
		e.unknown("pass@1", err)
		return
	}
	for i := range e.out[from:] {
		if p := &e.out[from+i]; a.rewardKnown < a.n {
			p.State, p.Note = MetricPartial, fmt.Sprintf("%d of %d samples have a reward; the others count as wrong", a.rewardKnown, a.n)
		}
	}
}

// published is into with what can be said where slime fails.
func (a *rolloutAcc) published(e *emitter) {
	if a.n == 0 {
		for _, key := range [...]string{"response_len/mean", "repetition_frac", "truncated_ratio"} {
			e.add(Metric{State: MetricIdle, Note: "no samples"}, key)
		}
		return
	}
	counts, _ := a.zeroStd()
	a.into(e, counts)
	if a.opts.AdvantageEstimator == "ppo" {
		return
	}
	unknown := 0
	for i := range a.groups {
		if a.groups[i].unknown {
			unknown++
		}
	}
	e.count("group_count", len(a.groups))
	e.count("zero_std/unknown_count", unknown)
}

// perfResult is what we publish of a training step.
func (m *Metrics) perfResult(r *MetricsResult, t rolloutTime) {
	e := &emitter{prefix: "rollout/", doc: "rollout/"}
	m.all.published(e)
	n := m.entries - m.notSamples
	e.count("sample_count", n)
	if n > 0 {
		if len(m.rewards) > 0 {
			e.partStats("reward", statsOf(m.rewards), len(m.rewards), n, "samples have a reward")
		} else {
			e.unknown("reward/mean", "no sample has a reward that is a number; a dict needs reward_key")
		}
		e.put("aborted_ratio", float64(m.statuses[StatusAborted])/float64(n))
		e.put("failed_ratio", float64(m.statuses[StatusFailed])/float64(n))
		e.part("masked_tokens", m.masked.sum, m.masked.known, m.masked.total, "samples say their lengths")
	}
	e.count("carried_over_count", m.carried)
	e.count("untraced_count", m.untraced)
	e.count("not_sample_count", m.notSamples)
	e.count("problem_count", m.problems)
	m.training.emit(e)
	r.Perf = append(r.Perf, e.out...)

	e = &emitter{prefix: "perf/", doc: "perf/"}
	m.timesInto(e, t, m.times.usable(), m.times.response, m.times.effective)
	if m.times.invalid > 0 {
		e.count("non_generation_time/invalid_count", m.times.invalid)
	}
	m.walk.emit(e, true)
	if m.walk.completion.known > 0 {
		e.part("aborted/discarded_tokens", m.discarded(), m.walk.completion.known, m.walk.completion.total, "requests say their tokens")
	}
	r.Perf = append(r.Perf, e.out...)
	if m.opts.LogPassrate {
		e = &emitter{prefix: "passrate/", doc: "passrate/"}
		m.all.publishedRates(e)
		r.Perf = append(r.Perf, e.out...)
	}
}

// emit is the keys of a set of requests; walk says that they are those of all traces.
func (sc *requestScope) emit(e *emitter, walk bool) {
	e.count("request/count", sc.count)
	e.count("request/profiled_count", sc.profiled)
	e.count("request/invalid_count", sc.invalid)
	e.count("request/open_count", sc.open)
	if walk {
		e.count("request/repeated_count", sc.repeated)
	}
	for i := range sc.series {
		s, key := &sc.series[i], requestKeys[i].key
		if len(s.values) == 0 && s.invalid == 0 {
			continue
		}
		if len(s.values) == 0 {
			e.unknown(key+"/mean", fmt.Sprintf("all %d values are impossible (negative, NaN, infinite, or no number)", s.invalid))
		} else {
			e.stats(key, statsOf(s.values))
		}
		e.count(key+"/count", len(s.values))
		e.count(key+"/invalid_count", s.invalid)
	}
	if len(sc.perCount) > 0 {
		e.stats("request/count_per_sample", statsOf(sc.perCount))
	}
	for i, v := range sc.perSample {
		if len(v) > 0 {
			e.stats(requestKeys[i].key+"_per_sample", statsOf(v))
		}
	}
	if sc.count > 0 {
		const say = "requests say their tokens"
		for _, t := range []struct {
			key string
			sum tokenSum
		}{{"request/prompt_tokens", sc.prompt}, {"request/completion_tokens", sc.completion}, {"request/cached_tokens", sc.cached}} {
			if t.sum.known == 0 {
				e.unknown(t.key, "no request says its tokens")
				continue
			}
			e.part(t.key, t.sum.sum, t.sum.known, t.sum.total, say)
		}
		for _, t := range []struct {
			key string
			sum tokenSum
		}{{"aborted/request", sc.aborted}, {"aborted/earlier_attempt", sc.retried}} {
			e.count(t.key+"_count", t.sum.total)
			if t.sum.total > 0 && t.sum.known == 0 {
				e.unknown(t.key+"_tokens", "none of these requests says its tokens")
				continue
			}
			e.part(t.key+"_tokens", t.sum.sum, t.sum.known, t.sum.total, say)
		}
	}
}

// perfStep is the requests that ran in this step.
func (m *Metrics) perfStep(r *MetricsResult, prefix string, t rolloutTime) {
	e := &emitter{prefix: prefix, doc: "perf_step/"}
	sc := &m.own
	switch {
	case t.s == 0:
		e.unknown("rollout_time", t.why)
	default:
		e.derived("rollout_time", t.s, t.derived)
	}
	const rate = "tokens_per_gpu_per_sec"
	switch {
	case sc.count == 0:
		e.add(Metric{State: MetricIdle, Note: "no request ran in this step"}, rate)
	case t.s == 0:
		e.unknown(rate, t.why)
	case m.opts.GPUs == 0:
		e.unknown(rate, "the number of GPUs is not known; give rollout_num_gpus")
	case sc.completion.known == 0:
		e.unknown(rate, "no request says its tokens")
	default:
		i := len(e.out)
		e.part(rate, sc.completion.sum/t.s/float64(m.opts.GPUs), sc.completion.known, sc.completion.total, "requests say their tokens")
		e.out[i].Derived = t.derived
	}
	sc.emit(e, false)
	e.count("request/earlier_count", sc.earlier)
	e.count("request/late_count", m.late)
	e.count("request/unsplit_sample_count", m.unsplit)
	r.PerfStep = e.out
	if m.unsplit > 0 {
		for i := range r.PerfStep {
			if p := &r.PerfStep[i]; p.State == MetricValue {
				p.State, p.Note = MetricPartial, fmt.Sprintf("the traces of %d carried-over samples do not show where the step began", m.unsplit)
			}
		}
	}
}
