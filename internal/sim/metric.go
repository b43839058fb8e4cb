package sim

import (
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/signal"
)

// label is one name and value of a series.
type label struct{ name, value string }

// labels is a label set in the order of its names.
type labels []label

// with returns a copy of ls with more labels, in the order of the names.
func (ls labels) with(pairs ...string) labels {
	out := make(labels, 0, len(ls)+len(pairs)/2)
	out = append(out, ls...)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, label{pairs[i], pairs[i+1]})
	}
	slices.SortFunc(out, func(a, b label) int { return strings.Compare(a.name, b.name) })
	return out
}

// names returns the label names joined by commas, to compare the label names of two series.
func (ls labels) names() string {
	var b strings.Builder
	for i, l := range ls {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.name)
	}
	return b.String()
}

// metric is one label set of a family and its current value. The methods of a nil metric do
// nothing, so that the model need not ask whether a program's version has a family.
type metric struct {
	family  *family
	labels  labels
	names   string    // of the labels, to compare label sets
	bounds  []float64 // of a histogram, without +Inf
	value   float64   // counter or gauge: the value; histogram or summary: the sum
	count   float64   // histogram, summary: observations
	buckets []float64 // histogram: observations per bucket (not cumulative), the last is +Inf
	present bool      // has been written at least once: only then is it exposed
	always  bool      // exposed from the start of the process
	heads   [styles][][]byte
}

func (m *metric) set(v float64) {
	if m == nil {
		return
	}
	m.value, m.present = v, true
}

func (m *metric) add(v float64) {
	if m == nil {
		return
	}
	m.value += v
	m.present = true
}

func (m *metric) observe(v float64) { m.observeN(v, 1) }

// observeN counts n observations of v; n is a whole number.
func (m *metric) observeN(v, n float64) {
	if m == nil || n <= 0 {
		return
	}
	m.present = true
	m.value += v * n
	m.count += n
	if m.buckets == nil {
		return
	}
	lo, hi := 0, len(m.bounds)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.bounds[mid] < v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	m.buckets[lo] += n
}

// fromStart marks the metric as exposed before its first write, as a family without labels or a
// pre-seeded one is. It returns m.
func (m *metric) fromStart() *metric {
	if m != nil {
		m.always, m.present = true, true
	}
	return m
}

// reset is what a new process of the same program knows of the metric: nothing.
func (m *metric) reset() {
	m.value, m.count, m.present = 0, 0, m.always
	clear(m.buckets)
}

// retire takes the metric out of the exposition for good.
func (m *metric) retire() {
	if m != nil {
		m.always, m.present = false, false
	}
}

// family is one metric family of a registry.
type family struct {
	name    string // canonical spelling, counters with _total
	help    string
	typ     signal.Type
	metrics []*metric
	head    [styles][]byte
}

// registry is what one process exposes. Families and metrics are only ever added, so that series
// may be numbered once.
type registry struct {
	dialect  dialect
	families []*family
	metrics  []*metric // in order of creation
	byName   map[string]*family
	worker   string // worker_addr in a router's answer
}

func newRegistry(d dialect) *registry { return &registry{dialect: d, byName: map[string]*family{}} }

func (r *registry) metric(typ signal.Type, name, help string, ls labels, bounds []float64) *metric {
	f := r.byName[name]
	if f == nil {
		f = &family{name: name, help: help, typ: typ}
		r.byName[name] = f
		r.families = append(r.families, f)
	}
	m := &metric{family: f, labels: ls, names: ls.names()}
	if typ == signal.Histogram {
		m.bounds = bounds
		m.buckets = make([]float64, len(bounds)+1)
	}
	f.metrics = append(f.metrics, m)
	r.metrics = append(r.metrics, m)
	return m
}

func (r *registry) counter(name, help string, ls labels) *metric {
	return r.metric(signal.Counter, name, help, ls, nil)
}

func (r *registry) gauge(name, help string, ls labels) *metric {
	return r.metric(signal.Gauge, name, help, ls, nil)
}

func (r *registry) histogram(name, help string, ls labels, bounds []float64) *metric {
	return r.metric(signal.Histogram, name, help, ls, bounds)
}

func (r *registry) summary(name, help string, ls labels) *metric {
	return r.metric(signal.Summary, name, help, ls, nil)
}

// reset forgets every value, as a new process does.
func (r *registry) reset() {
	for _, m := range r.metrics {
		m.reset()
	}
}

// rename sets the worker_addr under which a router shows this registry.
func (r *registry) rename(worker string) {
	r.worker = worker
	for _, m := range r.metrics {
		m.heads[routed] = nil
	}
}
