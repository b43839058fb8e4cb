package metricstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// absentEngines adds a line for each engine that is known and has none: an engine that is down is
// unknown, one of another role has nothing to say.
func (x *reading) absentEngines() {
	have := map[string]bool{}
	for _, l := range x.res.Lines {
		have[l.Labels["instance"]] = true
	}
	for _, e := range x.fleet.engines {
		if have[e.Instance] || x.req.Instance != "" && x.req.Instance != e.Instance || !e.IsEngine() {
			continue
		}
		for _, p := range x.quantiles {
			ls := labels.FromStrings("instance", e.Instance, "model_name", e.Model)
			l := Line{Name: x.lineName("", ls, p), Labels: x.lineLabels(ls), Values: make([]*float64, x.g.n)}
			if x.s.Kind == signal.Quantile {
				l.Quantile = &p
			}
			l.Now = x.absentFor(e)
			x.res.Lines = append(x.res.Lines, l)
		}
	}
}

// applies tells whether the signal has a meaning for an engine.
func (x *reading) applies(e EngineInfo) bool {
	if len(x.s.Roles) > 0 && !slices.Contains(x.s.Roles, e.Role) {
		return false
	}
	return slices.ContainsFunc(x.s.Sources, func(s signal.Source) bool { return s.Backend == e.Backend || s.Backend == engine.Unknown })
}

func (x *reading) absentFor(e EngineInfo) Number {
	switch {
	case !x.applies(e):
		why := fmt.Sprintf("not a question for %s engines", e.Role)
		if len(x.s.Roles) == 0 || slices.Contains(x.s.Roles, e.Role) {
			why = fmt.Sprintf("%s does not measure it", e.Backend)
		}
		return Number{State: StateNotApplicable, Reason: why}
	case e.Up != nil && !*e.Up:
		return Number{State: StateUnknown, Reason: "target down"}
	case e.Up == nil && e.View == engine.Direct:
		return Number{State: StateUnknown, Reason: "not scraped at this time"}
	}
	return Number{State: StateUnknown, Reason: "the engine does not expose " + x.metricNames()}
}

// absentNumber is the number of a signal that has no line at all.
func (x *reading) absentNumber() Number {
	if x.req.Instance != "" {
		if e, ok := x.fleet.find(x.req.Instance); ok {
			return x.absentFor(e)
		}
		return Number{State: StateUnknown, Reason: "no engine " + x.req.Instance + " in this range"}
	}
	engines, applies, up := 0, false, 0
	for _, e := range x.fleet.engines {
		if e.IsEngine() {
			engines++
			applies = applies || x.applies(e)
			if e.Up == nil || *e.Up {
				up++
			}
		}
	}
	switch {
	case engines == 0:
		return Number{State: StateUnknown, Reason: "no engine was recorded in this range"}
	case !applies:
		return Number{State: StateNotApplicable, Reason: "no engine here measures it"}
	case up == 0:
		return Number{State: StateUnknown, Reason: fmt.Sprintf("none of %d targets is up", engines)}
	}
	return Number{State: StateUnknown, Reason: "no engine exposes " + x.metricNames()}
}

// metricNames names what would have to be there.
func (x *reading) metricNames() string {
	var names []string
	for _, src := range x.s.Sources {
		for _, t := range src.Num {
			if !contains(names, t.Metric) {
				names = append(names, t.Metric)
			}
		}
	}
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	return strings.Join(names, ", ")
}

// wholeState is the state at the last step: a value if any line has one.
func (x *reading) wholeState() State {
	best := StateNotApplicable
	rank := map[State]int{StateNotApplicable: 0, StateUnknown: 1, StateIdle: 2, StateValue: 3}
	for _, l := range x.res.Lines {
		if rank[l.Now.State] > rank[best] {
			best = l.Now.State
		}
	}
	return best
}

// intervals finds where there were no events, and where nothing could be read.
func (x *reading) intervals(ctx context.Context) error {
	var unknown []Span
	add := func(to *[]Span, i int) {
		if n := len(*to); n > 0 && (*to)[n-1].To.Equal(x.g.at(i-1)) {
			(*to)[n-1].To = x.g.at(i)
			return
		}
		*to = append(*to, Span{x.g.at(i), x.g.at(i)})
	}
	for i := range x.g.n {
		has := slices.ContainsFunc(x.values, func(t *table) bool { return t.any(i) })
		switch {
		case has:
		case x.counts.any(i):
			add(&x.res.Idle, i)
		default:
			add(&unknown, i)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	reasons, err := x.whyUnknown(ctx)
	if err != nil {
		return err
	}
	for _, s := range unknown {
		x.res.Unknown = append(x.res.Unknown, splitByReason(x.g, s, reasons)...)
	}
	return nil
}

// whyUnknown tells for each step whether targets were scraped.
func (x *reading) whyUnknown(ctx context.Context) (func(i int) string, error) {
	expr := "max(up)"
	scraped := x.req.Instance == ""
	if x.req.Instance != "" {
		expr = fmt.Sprintf("max(up{instance=%q})", x.req.Instance)
	}
	t := newTable(x.g.n)
	if err := x.r.fill(ctx, t, x.g, expr, signal.ByFleet, 0, x.g.n-1, nil); err != nil {
		return nil, err
	}
	up := t.rows[""]
	return func(i int) string {
		switch {
		case up == nil || math.IsNaN(up.values[i]):
			if !scraped && up == nil {
				return "no data of this engine"
			}
			return "nothing was recorded"
		case up.values[i] == 0 && scraped:
			return "no target is up"
		case up.values[i] == 0:
			return "target down"
		}
		return "not exposed"
	}, nil
}

func splitByReason(g grid, s Span, reason func(int) string) []UnknownRange {
	var out []UnknownRange
	a, b := g.index(s.From.UnixMilli()), g.index(s.To.UnixMilli())
	for i := a; i <= b; i++ {
		why := reason(i)
		if n := len(out); n > 0 && out[n-1].Reason == why {
			out[n-1].To = g.at(i)
			continue
		}
		out = append(out, UnknownRange{Span{g.at(i), g.at(i)}, why})
	}
	return out
}
