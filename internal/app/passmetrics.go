package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/passstore"
)

// passSeries are the rollscope_fpm_* series: every pass is counted into histograms, so that nothing depends
// on when somebody looked. It is not safe for concurrent use but for Collect.
type passSeries struct {
	iteration, batchRequests, batchTokens, queued, queuedTokens *prometheus.HistogramVec
	ranks                                                       map[fpm.Key]*rankSeries
	refused                                                     int64 // ranks beyond the limit
}

// maxMetered is how many ranks have series: about 150 each.
const maxMetered = 1024

// rankSeries are the series of one rank. Each begins with its first observation: an engine that only
// decodes has none about prefill.
type rankSeries struct {
	labels                                                        prometheus.Labels
	prefill, decode, mixed, other                                 lateHistogram // by what the pass did
	prefillRequests, decodeRequests, prefillTokens, prefillKV, kv lateHistogram
	queued, queuedPrefillTokens, queuedKV                         lateHistogram
}

// lateHistogram is a histogram that is made when it is first used.
type lateHistogram struct {
	of          *prometheus.HistogramVec
	labels      prometheus.Labels
	name, value string // of one more label, "" for none
	now         prometheus.Observer
}

func (h *lateHistogram) observe(v float64) {
	if h.now == nil {
		if h.name == "" {
			h.now = h.of.With(h.labels)
		} else {
			h.now = h.of.MustCurryWith(h.labels).With(prometheus.Labels{h.name: h.value})
		}
	}
	h.now.Observe(v)
}

var passLabels = []string{"namespace", "component", "worker_id", "dp_rank", "engine"}

func newPassSeries() *passSeries {
	h := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, append(append([]string{}, passLabels...), more...))
	}
	requests := prometheus.ExponentialBuckets(1, 2, 11) // to 1,024
	tokens := prometheus.ExponentialBuckets(64, 4, 9)   // to 4 million
	return &passSeries{
		iteration: h("rollscope_fpm_iteration_seconds", "Time of each forward pass by what it did: prefill, decode, both (mixed), or no request at all (none).",
			[]float64{.001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10}, "work"),
		batchRequests: h("rollscope_fpm_batch_requests", "Requests of each forward pass that had any of the kind.", requests, "phase"),
		batchTokens: h("rollscope_fpm_batch_tokens", "Tokens of each forward pass that had any of the kind: newly prefilled, read from the cache for them (prefill_kv), context that decodes (decode_kv).",
			tokens, "kind"),
		queued: h("rollscope_fpm_queued_requests", "Requests that waited at each forward pass, in the queues that count for the engine's role. Of several ranks only those that have a queue report one: sum, never average.",
			append([]float64{0}, requests...)),
		queuedTokens: h("rollscope_fpm_queued_tokens", "Tokens that waited at each forward pass: of prompts (prefill), of contexts (decode_kv).", append([]float64{0}, tokens...), "kind"),
		ranks:        map[fpm.Key]*rankSeries{},
	}
}

func (s *passSeries) vectors() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{s.iteration, s.batchRequests, s.batchTokens, s.queued, s.queuedTokens}
}

// Describe implements [prometheus.Collector].
func (s *passSeries) Describe(out chan<- *prometheus.Desc) {
	for _, v := range s.vectors() {
		v.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (s *passSeries) Collect(out chan<- prometheus.Metric) {
	for _, v := range s.vectors() {
		v.Collect(out)
	}
}

// labelsOf are a rank's labels.
func labelsOf(k fpm.Key, engine string) prometheus.Labels {
	return prometheus.Labels{"namespace": k.Namespace, "component": k.Component, "worker_id": passstore.WorkerOf(k),
		"dp_rank": strconv.FormatUint(uint64(k.Rank), 10), "engine": engine}
}

// of returns the series of a rank, nil when there are too many. When the engine's name became known the
// rank's series go on under it.
func (s *passSeries) of(k fpm.Key, engine string) *rankSeries {
	r := s.ranks[k]
	if r != nil && r.labels["engine"] == engine {
		return r
	}
	if r != nil {
		s.forget(k)
	}
	if len(s.ranks) >= maxMetered {
		s.refused++
		return nil
	}
	l := labelsOf(k, engine)
	with := func(v *prometheus.HistogramVec, name, value string) lateHistogram {
		return lateHistogram{of: v, labels: l, name: name, value: value}
	}
	r = &rankSeries{
		labels:  l,
		prefill: with(s.iteration, "work", "prefill"), decode: with(s.iteration, "work", "decode"), mixed: with(s.iteration, "work", "mixed"), other: with(s.iteration, "work", "none"),
		prefillRequests: with(s.batchRequests, "phase", "prefill"), decodeRequests: with(s.batchRequests, "phase", "decode"),
		prefillTokens: with(s.batchTokens, "kind", "prefill"), prefillKV: with(s.batchTokens, "kind", "prefill_kv"), kv: with(s.batchTokens, "kind", "decode_kv"),
		queued:              with(s.queued, "", ""),
		queuedPrefillTokens: with(s.queuedTokens, "kind", "prefill"), queuedKV: with(s.queuedTokens, "kind", "decode_kv"),
	}
	s.ranks[k] = r
	return r
}

// forget drops the series of a rank that is gone.
func (s *passSeries) forget(k fpm.Key) {
	if r := s.ranks[k]; r != nil {
		for _, v := range s.vectors() {
			v.DeletePartialMatch(r.labels)
		}
		delete(s.ranks, k)
	}
}

// observe counts a pass. A heartbeat is none.
func (r *rankSeries) observe(p *fpm.Pass, role fpm.Role) {
	if r == nil || p.Heartbeat() {
		return
	}
	c := &p.Scheduled
	if wall, ok := p.Seconds(); ok {
		switch {
		case c.PrefillRequests > 0 && c.DecodeRequests > 0:
			r.mixed.observe(wall)
		case c.PrefillRequests > 0:
			r.prefill.observe(wall)
		case c.DecodeRequests > 0:
			r.decode.observe(wall)
		default:
			r.other.observe(wall)
		}
	}
	if c.PrefillRequests > 0 {
		r.prefillRequests.observe(float64(c.PrefillRequests))
		r.prefillTokens.observe(float64(c.PrefillTokens))
		r.prefillKV.observe(float64(c.PrefillKV))
	}
	if c.DecodeRequests > 0 {
		r.decodeRequests.observe(float64(c.DecodeRequests))
		r.kv.observe(float64(c.DecodeKV))
	}
	if p.Has&fpm.HasQueued == 0 {
		return
	}
	if q := fpm.PassQueue(role, p.Queued); q.Known {
		r.queued.observe(q.Requests)
	}
	if role != fpm.Decode {
		r.queuedPrefillTokens.observe(float64(p.Queued.PrefillTokens))
	}
	if role != fpm.Prefill {
		r.queuedKV.observe(float64(p.Queued.DecodeKV))
	}
}
