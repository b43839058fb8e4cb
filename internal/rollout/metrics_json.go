package rollout

import (
	"encoding/json"
	"fmt"
)

// metricJSON is a metric on the wire: the value is null unless the state is value or partial.
type metricJSON struct {
	Key     string   `json:"key"`
	Value   *float64 `json:"value"`
	State   string   `json:"state"`
	Derived bool     `json:"derived,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// MarshalJSON writes the metric; it never writes NaN.
func (m Metric) MarshalJSON() ([]byte, error) {
	j := metricJSON{Key: m.Key, State: m.State.String(), Derived: m.Derived, Unit: m.Unit, Note: m.Note}
	if m.State == MetricValue || m.State == MetricPartial {
		j.Value = &m.Value
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Metric) UnmarshalJSON(b []byte) error {
	var j metricJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("reading a metric: %w", err)
	}
	*m = Metric{Key: j.Key, Derived: j.Derived, Unit: j.Unit, Note: j.Note}
	for s := MetricValue; s <= MetricUnknown; s++ {
		if s.String() == j.State {
			m.State = s
			if j.Value != nil {
				m.Value = *j.Value
			}
			return nil
		}
	}
	return fmt.Errorf("reading metric %s: state %q is none of value, partial, idle, unknown", j.Key, j.State)
}

// resultJSON is a step's metrics on the wire.
type resultJSON struct {
	Kind         string          `json:"kind"`
	RolloutID    *int64          `json:"rollout_id"`
	Axis         string          `json:"axis"`
	Step         *int64          `json:"step"`
	Samples      int             `json:"samples"`
	NotSamples   int             `json:"not_samples"`
	RolloutTime  *float64        `json:"rollout_time"`
	TimeDerived  bool            `json:"rollout_time_derived"`
	Compat       []Metric        `json:"compat"`
	CompatFailed []MetricFailure `json:"compat_failed"`
	Perf         []Metric        `json:"perf"`
	PerfStep     []Metric        `json:"perf_step"`
}

func (k Kind) String() string {
	if k == Eval {
		return "eval"
	}
	return "train"
}

// MarshalJSON writes the result: the same result gives the same bytes, what is missing is null, and the
// lists are never null.
func (r *MetricsResult) MarshalJSON() ([]byte, error) {
	j := resultJSON{
		Kind: r.Kind.String(), Axis: r.Axis, Samples: r.Samples, NotSamples: r.NotSamples, TimeDerived: r.TimeDerived,
		Compat: list(r.Compat), CompatFailed: list(r.CompatFailed), Perf: list(r.Perf), PerfStep: list(r.PerfStep),
	}
	if r.RolloutID.OK {
		j.RolloutID = &r.RolloutID.N
	}
	if r.Step.OK {
		j.Step = &r.Step.N
	}
	if r.RolloutTime > 0 {
		j.RolloutTime = &r.RolloutTime
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *MetricsResult) UnmarshalJSON(b []byte) error {
	var j resultJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("reading a step's metrics: %w", err)
	}
	*r = MetricsResult{
		Axis: j.Axis, Samples: j.Samples, NotSamples: j.NotSamples, TimeDerived: j.TimeDerived,
		Compat: j.Compat, CompatFailed: j.CompatFailed, Perf: j.Perf, PerfStep: j.PerfStep,
	}
	switch j.Kind {
	case "train":
	case "eval":
		r.Kind = Eval
	default:
		return fmt.Errorf("reading a step's metrics: kind %q is neither train nor eval", j.Kind)
	}
	if j.RolloutID != nil {
		r.RolloutID = Int{*j.RolloutID, true}
	}
	if j.Step != nil {
		r.Step = Int{*j.Step, true}
	}
	if j.RolloutTime != nil {
		r.RolloutTime = *j.RolloutTime
	}
	return nil
}

func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}
