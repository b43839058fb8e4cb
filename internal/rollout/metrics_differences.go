package rollout

import (
	"math"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// Why is a reason for which two views of a metric differ.
type Why string

// The reasons. There is no other: what cannot be explained is WhyUnexplained, which is a defect.
const (
	WhyOurs        Why = "not in slime"
	WhySlimeFails  Why = "slime fails on this dump"
	WhyChildSpans  Why = "PD timings stand in child spans, which slime does not read"
	WhyOldName     Why = "the attribute has the name of slime's first traces, which it does not read"
	WhyStreaming   Why = "streaming requests, which slime does not count"
	WhyOtherSpan   Why = "requests in spans of another name, which slime does not count"
	WhyInvalid     Why = "impossible values, which slime averages in or drops unseen"
	WhyOrphanEnd   Why = "values that slime takes from events that are no request"
	WhyOddType     Why = "values of a type that slime does not take"
	WhyOddSample   Why = "samples that slime does not load"
	WhyEarlier     Why = "requests that ran in an earlier step"
	WhyLate        Why = "requests of this step out of later dumps"
	WhyShared      Why = "siblings that share one trace bring its requests again"
	WhyTime        Why = "the rollout time is derived from the traces"
	WhyDefinition  Why = "tokens of the step's requests instead of the samples' responses"
	WhySameName    Why = "categories of the same text, of which slime keeps one"
	WhyNoName      Why = "the dump does not say which dataset a sample is of"
	WhyPartial     Why = "of a part of the samples or requests"
	WhyUnexplained Why = "unexplained"
)

// Whys are all reasons, [WhyUnexplained] not among them.
func Whys() []Why {
	return []Why{
		WhyOurs, WhySlimeFails, WhyChildSpans, WhyOldName, WhyStreaming, WhyOtherSpan, WhyInvalid, WhyOrphanEnd, WhyOddType,
		WhyOddSample, WhyEarlier, WhyLate, WhyShared, WhyTime, WhyDefinition, WhySameName, WhyNoName, WhyPartial,
	}
}

// Difference is a metric on which the views do not agree. A view that does not have it holds nil.
type Difference struct {
	Key                    string // as in Perf, or in PerfStep with perf/ in place of its prefix
	Compat, Perf, PerfStep *Metric
	Why                    []Why
}

// seriesFacts says where the values of one request metric came from.
type seriesFacts struct{ known, children, streaming, otherSpan int }

// reasons is what the explanation of a step's differences rests on.
type reasons struct {
	series                    [numSeries]seriesFacts
	taken                     [numSeries]int // values that slime takes
	invalid                   [numSeries]int
	slimeFails                map[string]bool // parts
	badWaits                  bool
	earlier, late, repeated   int
	lostSamples, partialMarks bool
}

func (m *Metrics) note(q *request.Request) {
	for i := range requestKeys {
		if v := requestKeys[i].get(q); v.State != request.Known {
			continue
		}
		f := &m.origin[i]
		f.known++
		switch {
		case q.Name == "sglang_generate_stream":
			f.streaming++
		case q.Name != "sglang_generate":
			f.otherSpan++
		case q.PhasesFrom == request.InChildren && i > seriesQueue+1:
			f.children++
		}
	}
}

func (m *Metrics) reasons(r *MetricsResult) *reasons {
	w := &reasons{
		series: m.origin, slimeFails: map[string]bool{}, badWaits: m.times.invalid > 0, earlier: m.own.earlier,
		late: m.late, repeated: m.walk.repeated, lostSamples: r.NotSamples > 0, partialMarks: m.partial != "",
	}
	for i := range w.taken {
		w.taken[i] = len(m.compat.values[i])
		w.invalid[i] = m.walk.series[i].invalid
	}
	for _, f := range r.CompatFailed {
		w.slimeFails[f.Part] = true
	}
	return w
}

// Differences lists the metrics on which the views differ, in the order of Perf and then PerfStep, and
// says why.
func (r *MetricsResult) Differences() []Difference {
	step := "perf_step/"
	if r.Kind == Eval {
		step = "eval_perf/"
	}
	index := map[string]int{}
	var rows []Difference
	at := func(key string) *Difference {
		i, ok := index[key]
		if !ok {
			i = len(rows)
			index[key] = i
			rows = append(rows, Difference{Key: key})
		}
		return &rows[i]
	}
	for i := range r.Perf {
		at(r.Perf[i].Key).Perf = &r.Perf[i]
	}
	for i := range r.Compat {
		at(r.Compat[i].Key).Compat = &r.Compat[i]
	}
	for i := range r.PerfStep {
		at("perf/" + strings.TrimPrefix(r.PerfStep[i].Key, step)).PerfStep = &r.PerfStep[i]
	}
	out := rows[:0]
	for _, d := range rows {
		first := sameMetric(d.Compat, d.Perf)
		second := d.PerfStep == nil || sameMetric(d.Perf, d.PerfStep)
		if first && second {
			continue
		}
		if !first {
			d.Why = r.why.compat(&d, d.Why)
		}
		if !second {
			d.Why = r.why.step(&d, d.Why)
		}
		if len(d.Why) == 0 {
			d.Why = append(d.Why, WhyUnexplained)
		}
		out = append(out, d)
	}
	return out
}

func sameMetric(a, b *Metric) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Derived == b.Derived && math.Float64bits(a.Value) == math.Float64bits(b.Value)
}

// compat says why what we publish is not what slime does.
func (w *reasons) compat(d *Difference, why []Why) []Why {
	part, _, _ := strings.Cut(d.Key, "/")
	doc := docOf(docKey(d.Key))
	if doc == nil || doc.Views&InCompat == 0 {
		return append(why, WhyOurs)
	}
	if part == "eval" && w.slimeFails["eval"] {
		return append(why, WhyNoName)
	}
	for p := range w.slimeFails {
		if part == p || part == "eval" && strings.HasPrefix(d.Key, p) {
			return append(why, WhySlimeFails)
		}
	}
	if m := d.Perf; m != nil && d.Compat != nil && m.State == MetricPartial && !w.partialMarks && m.Value == d.Compat.Value {
		return append(why, WhyPartial)
	}
	if d.Perf != nil && d.Perf.Derived || d.Compat != nil && d.Compat.State == MetricUnknown && d.Perf != nil {
		return append(why, WhyTime)
	}
	for i := range requestKeys {
		if strings.HasPrefix(d.Key, "perf/"+requestKeys[i].key+"/") {
			return w.request(i, why)
		}
	}
	if strings.Contains(d.Key, "/error_cat/") && d.Compat != nil && d.Perf != nil && d.Perf.Value > d.Compat.Value {
		return append(why, WhySameName)
	}
	if w.badWaits && strings.Contains(d.Key, "non_generation") {
		return append(why, WhyInvalid)
	}
	if d.Perf != nil && d.Perf.State == MetricPartial {
		return append(why, WhyPartial)
	}
	if w.lostSamples || w.slimeFails["loader"] {
		return append(why, WhyOddSample)
	}
	return why
}

func (w *reasons) request(i int, why []Why) []Why {
	f := w.series[i]
	left := f.known - f.children - f.streaming - f.otherSpan // what slime should have, too
	for _, c := range [...]struct {
		n   int
		why Why
	}{{f.children, WhyChildSpans}, {f.streaming, WhyStreaming}, {f.otherSpan, WhyOtherSpan}, {w.invalid[i], WhyInvalid}} {
		if c.n > 0 {
			why = append(why, c.why)
		}
	}
	switch key := requestKeys[i].key; {
	case left > w.taken[i] && (key == "prefill/bootstrap_duration" || key == "prefill/alloc_wait_duration"):
		why = append(why, WhyOldName)
	case left > w.taken[i]:
		why = append(why, WhyOddType)
	case left+w.invalid[i] < w.taken[i]:
		why = append(why, WhyOrphanEnd)
	}
	return why
}

// step says why a step's own value is not that of all traces.
func (w *reasons) step(d *Difference, why []Why) []Why {
	if d.Perf == nil {
		return append(why, WhyOurs)
	}
	if strings.HasSuffix(d.Key, "tokens_per_gpu_per_sec") {
		return append(why, WhyDefinition)
	}
	for _, c := range [...]struct {
		n   int
		why Why
	}{{w.earlier, WhyEarlier}, {w.late, WhyLate}, {w.repeated, WhyShared}} {
		if c.n > 0 {
			why = append(why, c.why)
		}
	}
	if d.PerfStep.State == MetricPartial && d.Perf.State != MetricPartial {
		why = append(why, WhyPartial)
	}
	return why
}

// docKey is a key as the catalog has it: those of an evaluation's dataset are those of rollout/.
func docKey(key string) string {
	rest, ok := strings.CutPrefix(key, "eval/")
	if !ok {
		return key
	}
	for i := strings.LastIndexByte(rest, '/'); i > 0; i = strings.LastIndexByte(rest[:i], '/') {
		if k := "rollout" + rest[i:]; docOf(k) != nil {
			return k
		}
	}
	if i := strings.LastIndex(rest, "-pass@"); i > 0 {
		return "passrate/" + rest[i+1:]
	}
	if strings.HasSuffix(rest, "-truncated_ratio") {
		return "eval-truncated_ratio"
	}
	return "eval"
}
