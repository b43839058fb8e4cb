package dashboard

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/signal"
)

// aggregate judges what is merged over series.
func (w walk) aggregate(n *parser.AggregateExpr, above []parser.Node) {
	if n.Op == parser.SUM {
		w.doubled(n)
	}
	if n.Op != parser.SUM && n.Op != parser.AVG {
		return
	}
	verb, past := "averages", "averaged"
	if n.Op == parser.SUM {
		verb, past = "adds", "summed"
	}
	inner := unwrap(n.Expr)
	switch {
	case isPercentile(inner):
		w.found(n, "percentile_"+past, Warning,
			fmt.Sprintf("%s %s percentiles: the result is no percentile of anything", n.Op, verb),
			"add the buckets first: histogram_quantile(q, sum by (le) (rate(…_bucket[5m])))")
	case w.isRatio(inner) && isDivision(inner):
		w.found(n, "ratio_"+past, Warning,
			fmt.Sprintf("%s %s ratios: an engine with one request weighs as much as one with a thousand", n.Op, verb),
			"divide the sums: sum(rate(numerator[5m])) / sum(rate(denominator[5m]))")
	case isDivision(inner) && n.Op == parser.AVG:
		w.found(n, "ratio_averaged", Warning,
			"avg averages quotients: an engine with one request weighs as much as one with a thousand",
			"divide the sums: sum(rate(…_sum[5m])) / sum(rate(…_count[5m]))")
	case n.Op == parser.SUM && dividedBy(above):
		// A sum over the number of its members is their average.
	case w.isRatio(inner) && n.Op == parser.SUM:
		w.found(n, "ratio_summed", Warning,
			"sum adds shares of different wholes: two engines at 0.6 give 1.2",
			"take max for the fullest engine, or divide the sums of used and total")
	case w.isRatio(inner):
		w.found(n, "ratio_averaged", Info,
			"avg averages shares of different wholes and hides the fullest engine",
			"take max for the fullest engine, or divide the sums of used and total")
	}
}

func isDivision(e parser.Expr) bool {
	b, ok := unwrap(e).(*parser.BinaryExpr)
	if !ok {
		return false
	}
	if b.Op == parser.DIV {
		return b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector
	}
	return scaled(b) && (isDivision(b.LHS) || isDivision(b.RHS))
}

// scaled tells a product or quotient with a number.
func scaled(b *parser.BinaryExpr) bool {
	return (b.Op == parser.MUL || b.Op == parser.DIV) &&
		(b.LHS.Type() == parser.ValueTypeScalar || b.RHS.Type() == parser.ValueTypeScalar)
}

func (w walk) isRatio(e parser.Expr) bool {
	q := w.quantity(e)
	return q.unit == "ratio" && !q.raw
}

// recordedPercentile matches how people name recorded percentiles.
var recordedPercentile = regexp.MustCompile(`(?i)(^|[_:])(p(50|75|9\d+|\d\d)|quantile|percentile|median)([_:]|$)`)

func isPercentile(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.Call:
		return n.Func.Name == "histogram_quantile" || n.Func.Name == "histogram_quantiles"
	case *parser.BinaryExpr:
		return scaled(n) && (isPercentile(n.LHS) || isPercentile(n.RHS))
	case *parser.SubqueryExpr:
		return isPercentile(n.Expr)
	case *parser.MatrixSelector:
		return isPercentile(n.VectorSelector)
	case *parser.VectorSelector:
		if recordedPercentile.MatchString(nameOf(n)) {
			return true
		}
		return slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "quantile" })
	}
	return false
}

// call judges the arguments of a function.
func (w walk) call(n *parser.Call) {
	switch n.Func.Name {
	case "histogram_quantile":
		w.quantile(n)
	case "avg_over_time":
		if len(n.Args) == 1 && isPercentile(n.Args[0]) {
			w.found(n, "percentile_averaged", Warning,
				"avg_over_time averages percentiles: the result is no percentile of the longer window",
				"widen the window inside: histogram_quantile(q, sum by (le) (rate(…_bucket[1h])))")
		}
	case "rate", "irate", "increase":
		if len(n.Args) == 1 {
			if sub, ok := unwrap(n.Args[0]).(*parser.SubqueryExpr); ok {
				if _, sum := unwrap(sub.Expr).(*parser.AggregateExpr); sum {
					w.found(n, "rate_of_sum", Warning,
						n.Func.Name+" over an aggregate cannot see which process restarted: one restart becomes a huge step",
						"take the rate of each series first and add then: sum(rate(x[5m]))")
				}
			}
		}
	}
}

func (w walk) quantile(n *parser.Call) {
	if len(n.Args) != 2 {
		return
	}
	if q, ok := unwrap(n.Args[0]).(*parser.NumberLiteral); ok && (q.Val < 0 || q.Val > 1) {
		w.found(n, "quantile_out_of_range", Error,
			fmt.Sprintf("quantile %v is not between 0 and 1: the result is always infinite", q.Val),
			fmt.Sprintf("write %v", q.Val/100))
	}
	buckets := false
	for _, s := range selectors(n.Args[1]) {
		name := nameOf(s)
		if strings.HasSuffix(name, "_bucket") {
			buckets = true
			continue
		}
		if name == "" || w.l.typeOf(name) != signal.Histogram {
			continue
		}
		if w.l.names == nil || w.l.names.Has(family(name)+"_bucket") {
			w.found(s, "quantile_of_non_bucket", Error,
				fmt.Sprintf("histogram_quantile needs the buckets of %s, and %s has none", family(name), name),
				fmt.Sprintf("use %s_bucket and keep le", family(name)))
		}
	}
	if buckets && !keepsLe(n.Args[1]) {
		w.found(n.Args[1], "quantile_without_le", Error,
			"the aggregation drops label le, without which histogram_quantile has no buckets: the result is always empty",
			"write sum by (le) (…)")
	}
}

func keepsLe(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		if slices.Contains(n.Grouping, labels.BucketLabel) == n.Without {
			return false
		}
		return keepsLe(n.Expr)
	case *parser.BinaryExpr:
		left, right := len(selectors(n.LHS)) > 0, len(selectors(n.RHS)) > 0
		switch {
		case left && right && n.Op == parser.LOR:
			return keepsLe(n.LHS) || keepsLe(n.RHS)
		case left:
			return keepsLe(n.LHS)
		case right:
			return keepsLe(n.RHS)
		}
	case *parser.Call:
		for _, a := range n.Args {
			if len(selectors(a)) > 0 {
				return keepsLe(a)
			}
		}
	}
	return true
}

// division finds quotients that are 0/0 while nothing happens.
func (w walk) division(n *parser.BinaryExpr, above []parser.Node) {
	if n.Op != parser.DIV || n.LHS.Type() != parser.ValueTypeVector || n.RHS.Type() != parser.ValueTypeVector {
		return
	}
	if !canBeIdle(n.RHS) {
		return
	}
	for i, a := range above {
		b, ok := a.(*parser.BinaryExpr)
		if !ok {
			continue
		}
		switch b.Op {
		case parser.GTR, parser.LSS, parser.GTE, parser.LTE:
			if !b.ReturnBool {
				return // a comparison drops NaN
			}
		case parser.LAND:
			if i+1 < len(above) && above[i+1] != b.RHS && hasGuard(b.RHS) {
				return
			}
			if i+1 == len(above) && b.LHS == parser.Expr(n) && hasGuard(b.RHS) {
				return
			}
		}
	}
	w.found(n.RHS, "idle_division", Warning,
		"while nothing happens this is 0/0: NaN, which charts as a gap, prints as NaN and poisons every average over it",
		"divide by (… > 0), so that an idle time has no sample instead of NaN")
}

// canBeIdle tells whether an expression is a rate that can be 0.
func canBeIdle(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.BinaryExpr:
		if n.Op.IsComparisonOperator() && !n.ReturnBool {
			return false
		}
		if n.Op == parser.ADD { // x + 1 is never 0
			if _, ok := unwrap(n.RHS).(*parser.NumberLiteral); ok {
				return false
			}
		}
		return canBeIdle(n.LHS) || canBeIdle(n.RHS)
	case *parser.AggregateExpr:
		return n.Op != parser.COUNT && n.Op != parser.GROUP && canBeIdle(n.Expr)
	case *parser.UnaryExpr:
		return canBeIdle(n.Expr)
	case *parser.Call:
		switch n.Func.Name {
		case "rate", "irate", "increase":
			return true
		case "clamp_min":
			return false
		}
		return slices.ContainsFunc(n.Args, canBeIdle)
	}
	return false
}

func hasGuard(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op.IsComparisonOperator() {
			found = true
		}
		return nil
	})
	return found
}

// quantity is what the number of an expression counts: its unit, whether it is per second, and the factor
// by which the text multiplied it.
type quantity struct {
	unit   string // as signal.Metric.Unit; "" unknown
	second bool
	factor float64
	raw    bool // a histogram's buckets or sum, not yet a number of that unit
}

func (w walk) quantity(e parser.Expr) quantity {
	unknown := quantity{}
	switch n := unwrap(e).(type) {
	case *parser.VectorSelector:
		name := nameOf(n)
		m, ok := w.l.cat.Metric(name)
		if !ok {
			return unknown
		}
		plain := m.Type == signal.Counter || m.Type == signal.Gauge
		if strings.HasSuffix(name, "_count") && !plain {
			return quantity{unit: "events", factor: 1}
		}
		return quantity{unit: m.Unit, factor: 1, raw: name != family(name) && !plain}
	case *parser.MatrixSelector:
		return w.quantity(n.VectorSelector)
	case *parser.SubqueryExpr:
		return w.quantity(n.Expr)
	case *parser.UnaryExpr:
		return w.quantity(n.Expr)
	case *parser.AggregateExpr:
		if n.Op == parser.COUNT || n.Op == parser.GROUP || n.Op == parser.COUNT_VALUES {
			return unknown
		}
		return w.quantity(n.Expr)
	case *parser.Call:
		return w.quantityOfCall(n)
	case *parser.BinaryExpr:
		return w.quantityOfBinary(n)
	}
	return unknown
}

func (w walk) quantityOfCall(n *parser.Call) quantity {
	for _, a := range n.Args {
		if len(selectors(a)) == 0 {
			continue
		}
		q := w.quantity(a)
		switch name := n.Func.Name; {
		case name == "rate" || name == "irate" || name == "deriv":
			q.second = true
		case name == "histogram_quantile":
			q.second, q.raw = false, false
		case name == "increase", name == "scalar", name == "vector", name == "abs", name == "delta", name == "idelta",
			name == "label_replace", name == "label_join", strings.HasPrefix(name, "clamp"), strings.HasPrefix(name, "sort"),
			strings.HasSuffix(name, "_over_time") && !strings.HasPrefix(name, "count") && !strings.HasPrefix(name, "present"):
		default:
			return quantity{}
		}
		return q
	}
	return quantity{}
}

func (w walk) quantityOfBinary(n *parser.BinaryExpr) quantity {
	number := func(e parser.Expr) (float64, bool) {
		l, ok := unwrap(e).(*parser.NumberLiteral)
		if !ok {
			return 0, false
		}
		return l.Val, true
	}
	l, lok := number(n.LHS)
	r, rok := number(n.RHS)
	switch n.Op {
	case parser.MUL:
		if lok {
			q := w.quantity(n.RHS)
			q.factor *= l
			return q
		}
		if rok {
			q := w.quantity(n.LHS)
			q.factor *= r
			return q
		}
	case parser.DIV:
		if rok && r != 0 {
			q := w.quantity(n.LHS)
			q.factor /= r
			return q
		}
		if lok {
			return quantity{}
		}
		a, b := w.quantity(n.LHS), w.quantity(n.RHS)
		switch {
		case a.unit == "" || b.unit == "" || a.second != b.second || b.factor == 0:
		case a.unit == b.unit:
			return quantity{unit: "ratio", factor: a.factor / b.factor}
		case b.unit == "events" || b.unit == "requests":
			return quantity{unit: a.unit, factor: a.factor / b.factor}
		}
	case parser.ADD, parser.SUB:
		if lok || rok {
			q := w.quantity(n.LHS)
			if lok {
				q = w.quantity(n.RHS)
			}
			return q
		}
		if a, b := w.quantity(n.LHS), w.quantity(n.RHS); a == b {
			return a
		}
	case parser.LOR:
		if q := w.quantity(n.LHS); q.unit != "" {
			return q
		}
		return w.quantity(n.RHS)
	case parser.LAND, parser.LUNLESS:
		return w.quantity(n.LHS)
	default:
		if n.Op.IsComparisonOperator() && !n.ReturnBool {
			return w.quantity(n.LHS)
		}
	}
	return quantity{}
}

// seconds gives the length of a unit of time, in both vocabularies.
var seconds = map[string]float64{
	"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "m": 60, "h": 3600,
	"seconds": 1, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9,
}

// units holds the unit of the panel against that of the number.
func (w walk) units(tree parser.Expr) {
	q := w.quantity(tree)
	if w.src.unit == "" || q.unit == "" || q.raw {
		return
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
	switch {
	case w.src.unit == "percent" && q.unit == "ratio" && near(q.factor, 1):
		w.found(tree, "percent_of_ratio", Warning,
			"the panel's unit is percent (0 to 100) and the number is a share from 0 to 1: a full pool reads 1 %",
			`set the unit to "percentunit", or multiply by 100`)
	case w.src.unit == "percentunit" && (q.unit == "ratio" && near(q.factor, 100) || q.unit == "percent" && near(q.factor, 1)):
		w.found(tree, "ratio_of_percent", Warning,
			"the panel's unit is percentunit (0 to 1) and the number goes from 0 to 100: a full pool reads 10000 %",
			`set the unit to "percent", or divide by 100`)
	case !q.second && seconds[w.src.unit] > 0 && seconds[q.unit] > 0 && !near(q.factor*seconds[w.src.unit], seconds[q.unit]):
		w.found(tree, "unit_mismatch", Warning,
			fmt.Sprintf("the panel's unit is %s and the number is in %s", w.src.unit, times(q)),
			fmt.Sprintf("set the unit that the number has, or multiply by %v", seconds[q.unit]/(q.factor*seconds[w.src.unit])))
	}
}

func times(q quantity) string {
	if q.factor == 1 {
		return q.unit
	}
	return fmt.Sprintf("%s times %v", q.unit, q.factor)
}
