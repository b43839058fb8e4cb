package rollout

import (
	"fmt"
	"math"
)

// MetricState says what a metric's value is.
type MetricState uint8

// States of a metric. A partial value is of some of what it should be of; Note says how many.
const (
	MetricValue MetricState = iota
	MetricPartial
	MetricIdle    // nothing happened that could be measured
	MetricUnknown // could not be computed; Note says why
)

func (s MetricState) String() string {
	return [...]string{"value", "partial", "idle", "unknown"}[s]
}

// Metric is one metric of a step.
type Metric struct {
	Key     string
	Value   float64 // finite when State is MetricValue or MetricPartial, else 0
	State   MetricState
	Derived bool // from the rollout time that the traces' extent suggests
	Unit    string
	Note    string
}

// MetricFailure is a part of slime's metrics that slime itself fails to compute of this dump: it raises
// Error and publishes none of the part's keys.
type MetricFailure struct {
	Part  string `json:"part"`  // loader, rollout, perf, eval/NAME
	Error string `json:"error"` // Python's exception; where it would name an address or a place, a shorter text
}

// MetricsResult is the metrics of one step, in three views.
type MetricsResult struct {
	Kind      Kind
	RolloutID Int
	// Axis is the name of the step axis that the metrics are on, Step the place on it
	// (compute_rollout_step); the two are what slime logs beside them.
	Axis string
	Step Int
	// Samples counts entries that are samples, NotSamples the others.
	Samples, NotSamples int
	RolloutTime         float64 // s; 0 when unknown
	TimeDerived         bool

	// Compat is what slime publishes, to the last bit: its keys, values and omissions.
	Compat       []Metric
	CompatFailed []MetricFailure
	// Perf is what we publish under slime's names: rollout/ and perf/ (or eval/), with what slime loses,
	// counting only durations that can be.
	Perf []Metric
	// PerfStep counts each request once, in the step that it ran in: perf_step/.
	PerfStep []Metric

	why *reasons
}

// Find returns the metric of a key in a view.
func Find(view []Metric, key string) (Metric, bool) {
	for _, m := range view {
		if m.Key == key {
			return m, true
		}
	}
	return Metric{}, false
}

// emitter collects metrics under a prefix.
type emitter struct {
	prefix string // of the keys
	doc    string // of the keys in the catalog
	out    []Metric
	slime  bool // NaN is what slime publishes, too
}

func (e *emitter) add(m Metric, key string) {
	m.Key = e.prefix + key
	if d := docOf(e.doc + key); d != nil {
		m.Unit = d.Unit
	}
	e.out = append(e.out, m)
}

func (e *emitter) put(key string, v float64) { e.derived(key, v, false) }

func (e *emitter) derived(key string, v float64, derived bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		why := "the values it is of hold a NaN or an infinity"
		if e.slime {
			why = "slime publishes " + pyFloatStr(v) + " here"
		}
		e.unknown(key, why)
		return
	}
	m := Metric{Value: v, Derived: derived}
	if derived {
		m.Note = "the rollout time is the extent of the traces"
	}
	e.add(m, key)
}

func (e *emitter) count(key string, n int) { e.put(key, float64(n)) }

func (e *emitter) unknown(key, why string) {
	e.add(Metric{State: MetricUnknown, Note: why}, key)
}

// part adds a value of have out of `of` things; what says what they have.
func (e *emitter) part(key string, v float64, have, of int, what string) {
	n := len(e.out)
	e.put(key, v)
	if m := &e.out[n]; have < of && m.State == MetricValue {
		m.State, m.Note = MetricPartial, fmt.Sprintf("%d of %d %s", have, of, what)
	}
}

func (e *emitter) stats(key string, s Stats) { e.partStats(key, s, 0, 0, "") }

func (e *emitter) partStats(key string, s Stats, have, of int, what string) {
	e.part(key+"/mean", s.Mean, have, of, what)
	e.part(key+"/median", s.Median, have, of, what)
	e.part(key+"/max", s.Max, have, of, what)
	e.part(key+"/min", s.Min, have, of, what)
}

// Result computes the metrics of what was added so far. It may be called again after more.
func (m *Metrics) Result() *MetricsResult {
	m.texts.wait()
	r := &MetricsResult{
		Kind: m.hdr.Kind, RolloutID: m.hdr.RolloutID, Axis: "rollout/step",
		Samples: m.entries - m.notSamples, NotSamples: m.notSamples,
	}
	if m.opts.Eval {
		r.Kind = Eval
	}
	r.Step = m.step()
	t := rolloutTime{s: m.opts.RolloutTime}
	compatTime := t
	compatTime.why = "slime measures the rollout time; give it (rollout_time)"
	if t.s == 0 {
		if d := m.to - m.from; d > 0 && !math.IsInf(d, 0) {
			t.s, t.derived = d, true
		} else {
			t.why = "the rollout time is not known: it was not given, and no trace shows it"
		}
	}
	r.RolloutTime, r.TimeDerived = t.s, t.derived

	if m.loader != "" || m.hdr.Shape != "" && m.hdr.Shape != ShapeDict && m.hdr.Shape != ShapeNothing {
		r.CompatFailed = append(r.CompatFailed, MetricFailure{"loader", m.loaderError()})
	}
	if r.Kind == Eval {
		r.Axis = "eval/step"
		m.evalResult(r)
		m.perfStep(r, "eval_perf/", t)
	} else {
		m.compatResult(r, compatTime)
		m.perfResult(r, t)
		m.perfStep(r, "perf_step/", t)
	}
	r.why = m.reasons(r)
	if m.partial != "" {
		for _, view := range [][]Metric{r.Compat, r.Perf, r.PerfStep} {
			for i := range view {
				if view[i].State == MetricValue {
					view[i].State, view[i].Note = MetricPartial, m.partial
				}
			}
		}
	}
	return r
}

// loaderError is why slime does not load the dump.
func (m *Metrics) loaderError() string {
	switch m.hdr.Shape {
	case ShapeList:
		return "TypeError: list indices must be integers or slices, not str"
	case ShapeTrain, ShapeDatasets:
		return "KeyError: 'samples'"
	}
	return m.loader
}

// step is slime's compute_rollout_step.
func (m *Metrics) step() Int {
	id := m.hdr.RolloutID
	if !id.OK || !m.opts.WandbAlwaysUseTrainStep {
		return id
	}
	if m.opts.GlobalBatchSize <= 0 {
		return Int{}
	}
	n, d := id.N*int64(m.opts.RolloutBatchSize)*int64(m.opts.NSamplesPerPrompt), int64(m.opts.GlobalBatchSize)
	q := n / d
	if n%d < 0 {
		q--
	}
	return Int{q, true}
}
