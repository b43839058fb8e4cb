package enginelog

import (
	"math"
	"slices"
	"strings"
)

// Step is the metrics of one training step as a line printed them.
type Step struct {
	Group string // perf, rollout, eval, step, passrate: the word before the number
	// Axis is the step metric that a trainer counts them along: rollout/step, eval/step, train/step; ""
	// when the word tells none. It is the value of a tracker's axis.
	Axis    string
	Step    int64
	Time    int64 // of the line
	Metrics []Metric
	Texts   []Text // what is neither number nor nested
	Cut     bool   // the line ends within the dict
}

// Metric is one number. Value may be NaN or infinite: it is what was printed.
type Metric struct {
	Key   string
	Value float64
}

// Finite tells whether the value is a finite number.
func (m Metric) Finite() bool { return !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) }

// Text is a value that is no number, as text; it is never evaluated.
type Text struct{ Key, Value string }

// stepWords are the words that slime prints before a step's number, and their axes.
var stepWords = [...]struct{ word, axis string }{
	{"perf", "rollout/step"}, {"rollout", "rollout/step"}, {"passrate", "rollout/step"}, {"multi_turn", "rollout/step"},
	{"eval", "eval/step"}, {"step", "train/step"}, {"train", "train/step"},
}

// dictLine reads "word N: {...}". Other words than a trainer's are read too, without an axis.
func (l *lineState) dictLine(s string) bool {
	w, rest, ok := strings.Cut(s, " ")
	if !ok || w == "" || len(w) > 40 || !isLogger(w) || isDigits(w) {
		return false
	}
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	if n == 0 || n > 18 || n >= len(rest) || rest[n] != ':' {
		return false
	}
	body := strings.TrimLeft(rest[n+1:], " ")
	if !strings.HasPrefix(body, "{") {
		return false
	}
	v, end, err := readLiteral(body)
	se, _ := err.(*syntaxError)
	if err != nil && (se == nil || !se.cut) || v.kind != dict {
		return false
	}
	st := &Step{Group: w, Cut: err != nil}
	for _, c := range []byte(rest[:n]) {
		st.Step = st.Step*10 + int64(c-'0')
	}
	for _, x := range stepWords {
		if x.word == w {
			st.Axis = x.axis
		}
	}
	if err != nil || strings.TrimSpace(body[end:]) != "" {
		l.marks |= Cut
	}
	flatten(st, "", &v, 0)
	if len(st.Metrics)+len(st.Texts) >= maxMetrics {
		l.marks, st.Cut = l.marks|Truncated, true
	}
	if w == "step" && st.Axis == "train/step" && !slices.ContainsFunc(st.Metrics, func(m Metric) bool { return strings.HasPrefix(m.Key, "train/") }) {
		st.Axis = ""
	}
	l.set("python.dict", None)
	l.add("group", w)
	l.add("step", rest[:n])
	for i := range st.Metrics {
		if !st.Metrics[i].Finite() {
			l.marks |= NotFinite
		}
	}
	l.step = st
	return true
}

// maxMetrics bounds what one line says of a step.
const maxMetrics = 10_000

// flatten takes the numbers of a dict. Keys of nested dicts are joined by slashes; lists are left out,
// as trainers leave them out of their trackers.
func flatten(st *Step, prefix string, v *value, depth int) {
	for i := range v.pairs {
		if len(st.Metrics)+len(st.Texts) >= maxMetrics {
			return
		}
		p := &v.pairs[i]
		key := prefix + p.key
		switch p.val.kind {
		case number:
			st.Metrics = append(st.Metrics, Metric{key, p.val.num})
		case boolean:
			st.Metrics = append(st.Metrics, Metric{key, p.val.num})
		case text:
			st.Texts = append(st.Texts, Text{key, p.val.text})
		case object:
			st.Texts = append(st.Texts, Text{key, p.val.text})
		case dict:
			if depth < 8 {
				flatten(st, key+"/", &p.val, depth+1)
			}
		}
	}
}

// verlLine reads verl's "step:N - key:value - key:value".
func (l *lineState) verlLine(s string) bool {
	rest, ok := strings.CutPrefix(s, "step:")
	if !ok {
		return false
	}
	num, rest, ok := strings.Cut(rest, " - ")
	if !ok || !isDigits(num) || len(num) > 18 {
		return false
	}
	st := &Step{Group: "verl"}
	for _, c := range []byte(num) {
		st.Step = st.Step*10 + int64(c-'0')
	}
	for part := range strings.SplitSeq(rest, " - ") {
		if len(st.Metrics)+len(st.Texts) >= maxMetrics {
			l.marks, st.Cut = l.marks|Truncated, true
			break
		}
		i := strings.LastIndexByte(part, ':')
		if i <= 0 {
			l.marks |= Cut
			continue
		}
		v, _, err := readLiteral(part[i+1:])
		switch {
		case err != nil:
			l.marks |= Cut
		case v.kind == number || v.kind == boolean:
			st.Metrics = append(st.Metrics, Metric{part[:i], v.num})
		default:
			st.Texts = append(st.Texts, Text{part[:i], part[i+1:]})
		}
	}
	l.set("verl.step", None)
	l.add("group", "verl")
	l.add("step", num)
	l.step = st
	return true
}

// StepCollector puts the lines of one step together: a trainer prints several dicts for it (what the
// rollout took, what the training took), and a tracker takes a step once. It is not safe for concurrent
// use.
type StepCollector struct{ open map[string]*Step }

// Add takes a line's metrics and returns the steps that are complete: an axis moved on, or went back to an
// earlier step because the run was restarted. Lines without an axis are returned at once.
func (c *StepCollector) Add(s *Step) []Step {
	if s.Axis == "" {
		return []Step{*s}
	}
	if c.open == nil {
		c.open = map[string]*Step{}
	}
	var done []Step
	o := c.open[s.Axis]
	if o != nil && (o.Step != s.Step || again(o, s)) {
		done = append(done, *o)
		o = nil
	}
	if o == nil {
		n := *s
		n.Metrics, n.Texts = slices.Clone(s.Metrics), slices.Clone(s.Texts)
		c.open[s.Axis] = &n
		return done
	}
	for _, m := range s.Metrics {
		if !slices.ContainsFunc(o.Metrics, func(x Metric) bool { return x.Key == m.Key }) {
			o.Metrics = append(o.Metrics, m)
		}
	}
	o.Texts = append(o.Texts, s.Texts...)
	o.Time, o.Cut = max(o.Time, s.Time), o.Cut || s.Cut
	return done
}

// again tells whether s repeats most of what o has: the step was run a second time.
func again(o, s *Step) bool {
	n := 0
	for _, m := range s.Metrics {
		if slices.ContainsFunc(o.Metrics, func(x Metric) bool { return x.Key == m.Key }) {
			n++
		}
	}
	return n > 0 && n*2 > len(s.Metrics) && s.Time > o.Time
}

// Close returns the steps that are still open, in the order of their axes.
func (c *StepCollector) Close() []Step {
	var keys []string
	for k := range c.open {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []Step
	for _, k := range keys {
		out = append(out, *c.open[k])
	}
	c.open = nil
	return out
}
