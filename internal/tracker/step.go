package tracker

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Axis is what a step is counted along. Its name is also the key of the step's number in a W&B row.
type Axis string

// The axes that slime declares.
const (
	AxisRollout Axis = "rollout/step"
	AxisEval    Axis = "eval/step"
	AxisTrain   Axis = "train/step"
)

// family is the keys that share a prefix.
type family struct {
	prefix string
	axis   uint8
}

// axes and families are the declaration of every file that a tracker writes: the step metric of each
// prefix, as slime's wandb_utils.py defines them, and our own (perf_step, eval_perf, serving).
var (
	axes     = []Axis{AxisRollout, AxisEval, AxisTrain}
	families = []family{
		{"rollout/", 0}, {"perf/", 0}, {"perf_step/", 0}, {"multi_turn/", 0}, {"passrate/", 0}, {servingPrefix, 0},
		{"eval/", 1}, {"eval_perf/", 1},
		{"train/", 2},
	}
)

const servingPrefix = "serving/"

func axisIndex(a Axis) (uint8, bool) {
	i := slices.Index(axes, a)
	return uint8(max(i, 0)), i >= 0
}

// axisOf returns the axis of a key's family.
func axisOf(key string) (uint8, bool) {
	for _, f := range families {
		if strings.HasPrefix(key, f.prefix) {
			return f.axis, true
		}
	}
	return 0, false
}

// AxisOf returns the axis that a key is drawn over; ok is false for a key of no known family.
func AxisOf(key string) (a Axis, ok bool) {
	i, ok := axisOf(key)
	if !ok {
		return "", false
	}
	return axes[i], true
}

// Metric is one value of a step.
type Metric struct {
	// Key is the full name with its family, such as perf/rollout_time.
	Key   string
	Value float64
	// Unknown says that there is no value: it could not be read or computed. Value is not looked at.
	Unknown bool
}

// NoStep is the number of a step whose number is missing. A step with it is refused, never numbered by us.
const NoStep int64 = -1

// Step is all that one step publishes on one axis.
type Step struct {
	// Run names the curve. At most 128 characters, see ValidateRun.
	Run  string
	Axis Axis
	// Step is the number on the axis, at least 0.
	Step int64
	// Time is when the step ended. It identifies the step: the same number with a later time is the step
	// run again. So take it from what was recorded, not from the clock or a file that may be copied.
	Time time.Time
	// Metrics in the order in which they are written.
	Metrics []Metric
}

// Reasons for which points are rejected, the keys of Stats.Rejected.
const (
	// ReasonKey: the key is of no family of ours, or has a character that no metric of a step has. A
	// scraped series (sglang:num_running_reqs, x{le="1"}) is one of these.
	ReasonKey = "key"
	// ReasonAxis: the key belongs to another axis than the step, or the axis is unknown.
	ReasonAxis = "axis"
	// ReasonNoStep: the number of the step is missing.
	ReasonNoStep = "no_step"
	// ReasonNoTime: the time of the step is missing or not between 1970 and 2262.
	ReasonNoTime = "no_time"
	// ReasonRun: the name of the run is not one that both tools take.
	ReasonRun = "run"
	// ReasonRepeated: the key stands twice in the step; the first counts.
	ReasonRepeated = "repeated"
	// ReasonServing: serving/ keys are not allowed by Options.Serving.
	ReasonServing = "serving_not_enabled"
	// ReasonSuperseded: a later attempt already published this step, and this one was not seen before.
	ReasonSuperseded = "superseded"
)

// RejectedError says which points of a step cannot be published.
type RejectedError struct {
	Run    string
	Axis   Axis
	Step   int64
	Reason string // the first reason
	Points int    // how many points, of all reasons
	Detail string
}

// Error names the step, the first point and why.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("tracker: run %q, %s %d: %d points rejected (%s): %s", e.Run, e.Axis, e.Step, e.Points, e.Reason, e.Detail)
}

// ValidateRun returns an error when name cannot be the name of a run. W&B takes 128 characters
// (maxLength of its UpsertBucket input); the rest keeps it usable as a directory.
func ValidateRun(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case name == "":
		return fmt.Errorf("the name of a run is empty")
	case n > maxRunName:
		return fmt.Errorf("the run name %.40q... has %d characters, W&B takes %d", name, n, maxRunName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isControl):
		return fmt.Errorf("the run name %q has control characters or is not UTF-8", name)
	case name != strings.TrimSpace(name):
		return fmt.Errorf("the run name %q begins or ends with a space", name)
	case strings.Contains(name, attemptSuffix):
		return fmt.Errorf("the run name %q contains %q, which names earlier attempts of a run", name, attemptSuffix)
	}
	return nil
}

const (
	maxRunName    = 128
	maxKey        = 512
	attemptSuffix = ".attempt-"
)

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// checkKey returns why a key cannot be a metric of a step on axis, or "".
func checkKey(key string, axis uint8, serving bool) (reason, detail string) {
	of, ok := axisOf(key)
	switch {
	case !ok:
		return ReasonKey, fmt.Sprintf("key %.100q has none of the prefixes %s: a scraped series belongs in the metric store", key, prefixes())
	case strings.ContainsAny(key, `:{}"\`) || strings.ContainsFunc(key, isControl):
		return ReasonKey, fmt.Sprintf("key %.100q looks like a scraped series: ':', braces, quotes and control characters are not part of a step's metric", key)
	case len(key) > maxKey || !utf8.ValidString(key):
		return ReasonKey, fmt.Sprintf("key %.100q has more than %d bytes or is not UTF-8", key, maxKey)
	case strings.HasSuffix(key, "/") || strings.Contains(key, "//"):
		return ReasonKey, fmt.Sprintf("key %.100q has an empty part", key)
	case slices.Contains(axes, Axis(key)):
		return ReasonKey, fmt.Sprintf("key %q is an axis: the step's number is written by itself", key)
	case of != axis:
		return ReasonAxis, fmt.Sprintf("key %.100q is drawn over %s, the step is on %s", key, axes[of], axes[axis])
	case strings.HasPrefix(key, servingPrefix) && !serving:
		return ReasonServing, fmt.Sprintf("key %.100q: serving summaries are not enabled", key)
	}
	return "", ""
}

func prefixes() string {
	var names []string
	for _, f := range families {
		names = append(names, f.prefix)
	}
	return strings.Join(names, " ")
}

// checked is a step of which every point can be written.
type checked struct {
	run     string
	axis    uint8
	step    int64
	wall    float64 // seconds since 1970, as both formats hold it
	time    time.Time
	metrics []Metric
	unknown int
}

// check validates s. It returns what can be written, and the reasons for what cannot; whole is set when
// that is the whole step.
func check(s *Step, o *Options) (c checked, rejected map[string]int, first *RejectedError, whole bool) {
	reject := func(reason, detail string, n int) {
		if rejected == nil {
			rejected = map[string]int{}
			first = &RejectedError{Run: s.Run, Axis: s.Axis, Step: s.Step, Reason: reason, Detail: detail}
		}
		rejected[reason] += n
		first.Points += n
	}
	all := max(1, len(s.Metrics))
	axis, ok := axisIndex(s.Axis)
	err := ValidateRun(s.Run)
	switch {
	case err != nil:
		reject(ReasonRun, err.Error(), all)
		return c, rejected, first, true
	case !ok:
		reject(ReasonAxis, fmt.Sprintf("axis %q is none of %v", s.Axis, axes), all)
		return c, rejected, first, true
	case s.Step < 0:
		reject(ReasonNoStep, fmt.Sprintf("the value of %s is missing; it is not made up", s.Axis), all)
		return c, rejected, first, true
	case s.Time.Year() < 1970 || s.Time.Year() > 2261:
		reject(ReasonNoTime, "the time of the step is missing; it identifies the step", all)
		return c, rejected, first, true
	}
	c = checked{run: s.Run, axis: axis, step: s.Step, time: s.Time, wall: seconds(s.Time)}
	seen := make(map[string]struct{}, len(s.Metrics))
	for _, m := range s.Metrics {
		if reason, detail := checkKey(m.Key, axis, o.Serving); reason != "" {
			reject(reason, detail, 1)
			continue
		}
		if _, twice := seen[m.Key]; twice {
			reject(ReasonRepeated, fmt.Sprintf("key %q stands twice", m.Key), 1)
			continue
		}
		seen[m.Key] = struct{}{}
		if m.Unknown {
			c.unknown++
			continue
		}
		c.metrics = append(c.metrics, m)
	}
	return c, rejected, first, false
}

// admit validates s and counts what is rejected. ok is false when nothing is to be written.
func (c *counter) admit(s *Step, o *Options) (in checked, ok bool, err error) {
	in, rejected, first, whole := check(s, o)
	c.add(func(st *Stats) {
		for reason, n := range rejected {
			st.Rejected[reason] += int64(n)
		}
	})
	if first != nil && (whole || o.Strict) {
		return in, false, first
	}
	return in, len(in.metrics) > 0 || in.unknown > 0, nil
}

// wrote counts a step that is in the file. narrow says that the format holds 32 bits.
func (c *counter) wrote(in *checked, narrow bool) {
	c.add(func(s *Stats) {
		if len(in.metrics) > 0 {
			s.Steps++
		}
		s.Points += int64(len(in.metrics))
		s.Unknown += int64(in.unknown)
		for _, m := range in.metrics {
			switch {
			case math.IsNaN(m.Value) || math.IsInf(m.Value, 0):
				s.NonFinite++
			case narrow && math.IsInf(float64(float32(m.Value)), 0):
				s.OutOfRange++
			}
		}
	})
}

func (c *counter) superseded(in *checked) error {
	n := len(in.metrics)
	c.add(func(s *Stats) { s.Rejected[ReasonSuperseded] += int64(n) })
	return &RejectedError{Run: in.run, Axis: axes[in.axis], Step: in.step, Reason: ReasonSuperseded, Points: n,
		Detail: "a later attempt already published this step; log the attempts in the order in which they ran"}
}

// seconds is t in seconds since 1970, the form in which both formats keep a time.
func seconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

// StepsOf splits a row of a log, keys and values as wandb.log takes them, into one Step per axis. The
// keys of an axis whose own value is missing from the row, or is no whole number from 0 on, are refused:
// the error names the axis, and the key that may have been meant. What can be published is returned also
// beside an error. Keys that begin with an underscore are W&B's own and passed over; all others are in a step.
func StepsOf(run string, t time.Time, row map[string]float64) ([]Step, error) {
	var out []Step
	var bad error
	groups := map[Axis][]Metric{}
	for _, key := range slices.Sorted(maps.Keys(row)) {
		if strings.HasPrefix(key, "_") || slices.Contains(axes, Axis(key)) {
			continue
		}
		a, ok := AxisOf(key)
		if !ok {
			a = AxisRollout // rejected and counted by name when logged
		}
		groups[a] = append(groups[a], Metric{Key: key, Value: row[key]})
	}
	for _, a := range axes {
		if len(groups[a]) == 0 {
			continue
		}
		v, ok := row[string(a)]
		if !ok || v < 0 || v != math.Trunc(v) || v > 1<<53 {
			detail := fmt.Sprintf("%s is missing from the row", a)
			if ok {
				detail = fmt.Sprintf("%s is %v, not a whole number from 0 on", a, v)
			} else if near := nearest(string(a), prefixOf(string(a)), slices.Collect(maps.Keys(row))); near != "" {
				detail += fmt.Sprintf("; it has %s", near)
			}
			if bad == nil {
				bad = &RejectedError{Run: run, Axis: a, Step: NoStep, Reason: ReasonNoStep, Points: len(groups[a]), Detail: detail}
			}
			continue
		}
		out = append(out, Step{Run: run, Axis: a, Step: int64(v), Time: t, Metrics: groups[a]})
	}
	return out, bad
}
