package rollout

import (
	"math"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// requestKeys are slime's metrics of single requests in its order, with the attribute that each is read
// from (_SGLANG_*_PERF_FIELDS).
var requestKeys = [...]struct {
	key, attr string
	get       func(*request.Request) request.Value
}{
	{"request/e2e_latency", "e2e_latency", func(q *request.Request) request.Value { return q.E2ELatency }},
	{"request/queue_time", "queue_time", func(q *request.Request) request.Value { return q.QueueTime }},
	{"decode/throughput", "decode_throughput", func(q *request.Request) request.Value { return q.DecodeThroughput }},
	{"prefill/bootstrap_queue_duration", "pd_prefill_bootstrap_queue_duration", phaseValue(request.PrefillBootstrapQueue)},
	{"prefill/bootstrap_duration", "pd_prefill_bootstrap_duration", phaseValue(request.PrefillBootstrap)},
	{"prefill/alloc_wait_duration", "pd_prefill_alloc_wait_duration", phaseValue(request.PrefillAllocWait)},
	{"prefill/forward_duration", "pd_prefill_forward_duration", phaseValue(request.PrefillForward)},
	{"prefill/transfer_queue_duration", "pd_prefill_transfer_queue_duration", phaseValue(request.PrefillTransferQueue)},
	{"prefill/transfer_speed_gb_s", "pd_transfer_speed_gb_s", func(q *request.Request) request.Value { return q.TransferSpeed }},
	{"prefill/transfer_total_mb", "pd_transfer_total_mb", func(q *request.Request) request.Value { return q.TransferSize }},
	{"prefill/retry_count", "pd_prefill_retry_count", func(q *request.Request) request.Value { return q.Retries }},
	{"decode/prealloc_duration", "pd_decode_prealloc_duration", phaseValue(request.DecodePrealloc)},
	{"decode/bootstrap_duration", "pd_decode_bootstrap_duration", phaseValue(request.DecodeBootstrap)},
	{"decode/alloc_wait_duration", "pd_decode_alloc_wait_duration", phaseValue(request.DecodeAllocWait)},
	{"decode/transfer_duration", "pd_decode_transfer_duration", phaseValue(request.DecodeTransfer)},
	{"decode/forward_duration", "pd_decode_forward_duration", phaseValue(request.DecodeForward)},
}

const (
	seriesE2E = iota
	seriesQueue
	numSeries = len(requestKeys)
)

func phaseValue(p request.Phase) func(*request.Request) request.Value {
	return func(q *request.Request) request.Value { return q.Phases[p] }
}

// series is the values of one metric, in the order of the requests.
type series struct {
	values  []float64
	invalid int
}

// requestScope is the metrics of a set of requests.
type requestScope struct {
	series [numSeries]series
	// count is all requests, open those whose span has no end, profiled those with a usable timing,
	// invalid those with an impossible one, repeated those that another sample has, too, earlier those
	// of the dump that ran in an earlier step and are not in the scope.
	count, open, profiled, invalid, repeated, earlier int

	prompt, completion, cached tokenSum
	aborted, retried           tokenSum // completion tokens of aborted requests, and of attempts before the last

	sums      [seriesQueue + 1]tokenSum // of the sample at hand
	inSample  int
	perSample [seriesQueue + 1][]float64
	perCount  []float64
}

func (sc *requestScope) begin() {
	sc.sums = [seriesQueue + 1]tokenSum{}
	sc.inSample = 0
}

// add takes a request of the sample at hand.
func (sc *requestScope) add(r *lateRequest) {
	sc.take(r)
	for i := range sc.sums {
		sc.sums[i].add(r.values[i])
	}
	sc.inSample++
}

func (sc *requestScope) take(r *lateRequest) {
	sc.count++
	if r.open {
		sc.open++
	}
	profiled, invalid := false, false
	for i, v := range r.values {
		switch v.State {
		case request.Known:
			sc.series[i].values = append(sc.series[i].values, v.V)
			profiled = true
		case request.Invalid:
			sc.series[i].invalid++
			invalid = true
		}
	}
	if profiled {
		sc.profiled++
	}
	if invalid {
		sc.invalid++
	}
	sc.prompt.add(r.prompt)
	sc.completion.add(r.completion)
	sc.cached.add(r.cached)
	if r.aborted {
		sc.aborted.add(r.completion)
	}
	if r.retried {
		sc.retried.add(r.completion)
	}
}

// end closes a sample: its sums are values of their own.
func (sc *requestScope) end() {
	if sc.inSample == 0 {
		return
	}
	sc.perCount = append(sc.perCount, float64(sc.inSample))
	for i, s := range sc.sums {
		if s.known > 0 {
			sc.perSample[i] = append(sc.perSample[i], s.sum)
		}
	}
}

// lateRequest is what the metrics keep of a request that may belong to another step.
type lateRequest struct {
	start                      float64
	step                       Int // the step it ran in, where the trace says it
	values                     [numSeries]request.Value
	prompt, completion, cached request.Value
	open, aborted, retried     bool
}

func newLateRequest(q *request.Request, last int) lateRequest {
	r := lateRequest{
		start: q.Start, prompt: q.PromptTokens, completion: q.CompletionTokens, cached: q.CachedTokens,
		open: q.SpanEnd < 0, aborted: q.FinishReason == "abort", retried: q.Attempt < last,
	}
	for i := range requestKeys {
		r.values[i] = requestKeys[i].get(q)
	}
	return r
}

// Attribute moves the requests that ran in an earlier step than the dump that holds them to the step
// they ran in: the one that the trace names, else the latest whose own events surround the request's
// start. Give steps of one run and kind, in any order, after their dumps were added and finished. It may
// be called again as more dumps come: a request that has found its step stays there, and those of a dump
// that is read again do not come a second time. It returns how many have found none, because their step
// was not given.
func Attribute(steps []*Metrics) (unplaced int) {
	for _, m := range steps {
		left := m.earlier[:0]
		for i := range m.earlier {
			r := &m.earlier[i]
			home := homeOf(r, m, steps)
			if home == nil {
				left = append(left, *r)
				continue
			}
			if by := home.lateBy[m.hdr.RolloutID]; m.hdr.RolloutID.OK && by != nil && by != m {
				continue // the same dump, read again
			}
			if home.lateBy == nil {
				home.lateBy = map[Int]*Metrics{}
			}
			home.lateBy[m.hdr.RolloutID] = m
			home.own.take(r)
			home.late++
		}
		m.earlier = left
		unplaced += len(left)
	}
	return unplaced
}

// homeOf is the step that a request of holder's dump ran in, nil when it is none of steps.
func homeOf(r *lateRequest, holder *Metrics, steps []*Metrics) *Metrics {
	var home *Metrics
	for _, h := range steps {
		if h == holder {
			continue
		}
		if r.step.OK && h.hdr.RolloutID.OK {
			if r.step == h.hdr.RolloutID {
				return h
			}
		} else if h.from <= r.start && r.start <= h.to && (home == nil || h.from > home.from) {
			home = h
		}
	}
	return home
}

// compatRequests computes what slime's _compute_sglang_request_perf_metrics does: it looks only at
// span_end events named sglang_generate, takes any finite int or float, and knows no child spans.
type compatRequests struct {
	values          [numSeries][]float64
	count, profiled int
	order           []int // metrics in the order in which they first had a value
	failed          string
}

func (c *compatRequests) add(s *Sample) {
	if c.failed != "" {
		return
	}
	t := &s.Trace
	if t.Present && t.Skipped == 0 {
		for i := range t.Events {
			if e := &t.Events[i]; e.Kind == SpanEnd && e.Name == "sglang_generate" {
				c.attrs(e.Attrs)
			}
		}
		return
	}
	if t.Raw.Kind() != torchfile.KindDict {
		return
	}
	events := t.Raw.Get("events")
	switch events.Kind() {
	case torchfile.KindList, torchfile.KindTuple:
		for _, e := range events.All() {
			if e.Kind() != torchfile.KindDict {
				c.failed = "AttributeError: '" + pyTypeName(e) + "' object has no attribute 'get'"
				return
			}
			if e.Get("type").Is("span_end") && e.Get("name").Is("sglang_generate") {
				c.attrs(e.Get("attrs"))
			}
		}
	default:
		if isFalse(events) {
			return
		}
		if k := events.Kind(); k == torchfile.KindStr || k == torchfile.KindDict {
			c.failed = "AttributeError: 'str' object has no attribute 'get'"
			return
		}
		c.failed = "TypeError: '" + pyTypeName(events) + "' object is not iterable"
	}
}

func (c *compatRequests) attrs(attrs torchfile.Value) {
	if attrs.Kind() != torchfile.KindDict {
		return
	}
	c.count++
	var found [numSeries]torchfile.Value
	for k, v := range attrs.Pairs() {
		if i := seriesOf(k.RawStr()); i >= 0 {
			found[i] = v
		}
	}
	profiled := false
	for i, v := range found {
		if !v.Exists() {
			continue
		}
		f, ok, failed := slimeNumber(v)
		if failed {
			c.failed = "TypeError: ufunc 'isfinite' not supported for the input types, and the inputs could not be safely " +
				"coerced to any supported types according to the casting rule ''safe''"
			return
		}
		if !ok {
			continue
		}
		if c.values[i] == nil {
			c.order = append(c.order, i)
		}
		c.values[i] = append(c.values[i], f)
		profiled = true
	}
	if profiled {
		c.profiled++
	}
}

// seriesOf is the index in requestKeys of an attribute, -1 for others.
func seriesOf(attr []byte) int {
	if len(attr) < len("queue_time") {
		return -1
	}
	for i := range requestKeys {
		if a := requestKeys[i].attr; len(a) == len(attr) && a == string(attr) {
			return i
		}
	}
	return -1
}

// slimeNumber is a value that slime takes: an int or a float (np.float64 is one) that is finite. An int
// that numpy cannot hold makes its isfinite fail.
func slimeNumber(v torchfile.Value) (f float64, ok, failed bool) {
	switch v.Kind() {
	case torchfile.KindFloat:
		f, _ = v.Float()
	case torchfile.KindInt:
		if _, fits := v.Int(); !fits {
			if i, big := v.BigInt(); !big || !i.IsUint64() {
				return 0, false, true
			}
		}
		f, _ = v.Number()
	case torchfile.KindNPScalar:
		n, err := v.NPScalar()
		if err != nil || n.Type.Kind != 'f' || n.Type.Size != 8 {
			return 0, false, false
		}
		f, _ = n.Elem().Number()
	default:
		return 0, false, false
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0), false
}
