package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/signal"
)

// expr judges one expression in every state its variables can be in.
func (l *Linter) expr(it *item, src source) {
	it.exprs++
	if strings.TrimSpace(src.text) == "" {
		it.found(src, -1, Finding{Code: "no_expression", Severity: Error, Message: "the expression is empty"})
		return
	}
	e := expand(src.text, src.vars, func(v variable) ([]string, bool) {
		values, raw, _ := v.values(asSaved)
		return values, raw
	})
	for _, u := range e.unknown {
		it.found(src, u.from, Finding{
			Code: "unknown_variable", Severity: Error,
			Message: fmt.Sprintf("the board has no variable %q, so the text goes to Prometheus as it stands", u.name),
			Hint:    "add the variable to the board or take it out of the query",
		})
	}
	tree, err := l.parser.ParseExpr(e.text)
	if err != nil {
		if len(e.unknown) == 0 {
			l.parseError(it, src, e, err, "", Error)
		}
		return
	}
	if len(e.unknown) == 0 {
		l.states(it, src, e.used)
	}
	l.judge(it, src, e, tree)
}

// states tries the query with the variables empty, single, multi and All.
func (l *Linter) states(it *item, src source, used []string) {
	tried := map[string]bool{}
	for _, s := range []state{empty, single, multi, all} {
		for _, name := range used {
			if _, _, can := src.vars[name].values(s); !can {
				continue
			}
			e := expand(src.text, src.vars, func(v variable) ([]string, bool) {
				if v.name != name {
					values, raw, _ := v.values(asSaved)
					return values, raw
				}
				values, raw, _ := v.values(s)
				return values, raw
			})
			if tried[e.text] {
				continue
			}
			tried[e.text] = true
			if _, err := l.parser.ParseExpr(e.text); err != nil {
				l.parseError(it, src, e, err, fmt.Sprintf(" when variable %q is %s", name, s), Warning)
				return
			}
		}
	}
}

func (l *Linter) parseError(it *item, src source, e expanded, err error, when string, sev Severity) {
	message, offset := err.Error(), -1
	if list := (parser.ParseErrors)(nil); errors.As(err, &list) && len(list) > 0 {
		message = list[0].Err.Error()
		offset = e.source(min(max(int(list[0].PositionRange.Start), 0), len(e.text)))
	}
	f := Finding{Code: "parse_error", Severity: sev, Message: "PromQL cannot be read" + when + ": " + message}
	if e.text != src.text {
		f.Hint = "Prometheus gets: " + shorten(e.text, 200)
	}
	it.found(src, offset, f)
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// walk carries what the checks of one expression share.
type walk struct {
	l   *Linter
	it  *item
	src source
	e   expanded
}

func (l *Linter) judge(it *item, src source, e expanded, tree parser.Expr) {
	w := walk{l, it, src, e}
	w.multiValues(tree)
	w.names(tree)
	w.visit(tree, nil)
	w.units(tree)
}

func (w walk) found(n parser.Node, code string, sev Severity, message, hint string) {
	w.add(n, Finding{Code: code, Severity: sev, Message: message, Hint: hint})
}

func (w walk) add(n parser.Node, f Finding) {
	w.it.found(w.src, w.e.source(int(n.PositionRange().Start)), f)
}

// visit runs the checks that look at one node and the nodes above it.
func (w walk) visit(n parser.Node, above []parser.Node) {
	switch n := n.(type) {
	case *parser.VectorSelector:
		w.selector(n, above)
	case *parser.AggregateExpr:
		w.aggregate(n, above)
	case *parser.Call:
		w.call(n)
	case *parser.BinaryExpr:
		w.division(n, above)
	}
	for c := range parser.ChildrenIter(n) {
		w.visit(c, append(above, n))
	}
}

// under tells whether the selector's samples pass through one of the functions before they are used.
func under(above []parser.Node, funcs ...string) bool {
	for _, n := range above {
		if c, ok := n.(*parser.Call); ok && slices.Contains(funcs, c.Func.Name) {
			return true
		}
	}
	return false
}

// counting are the functions that make sense of a counter.
var counting = []string{
	"rate", "irate", "increase", "resets", "changes", "absent", "absent_over_time",
	"present_over_time", "count_over_time", "timestamp", "start_timestamp",
}

func (w walk) selector(s *parser.VectorSelector, above []parser.Node) {
	name := nameOf(s)
	if name == "" {
		return
	}
	w.it.names = append(w.it.names, signal.Canonical(name))
	w.matchers(s, name, above)
	m, known := w.l.cat.Metric(name)
	if known {
		w.catalog(s, name, m, above)
	}
	typ := w.l.typeOf(name)
	if (typ == signal.Counter || typ == signal.Histogram && name != family(name)) && !under(above, counting...) && !countsOnly(append(above, s)) {
		sev := Info
		what := "it only ever grows, from the start of the process, and falls to 0 when that restarts"
		if w.src.rule || strings.HasSuffix(name, "_bucket") || dividedBy(above) {
			sev = Warning
			what = "the number is since the start of each process, so old hours weigh as much as this minute"
		}
		w.found(s, "counter_without_rate", sev,
			fmt.Sprintf("%s is a counter that is read without rate() or increase(): %s", name, what),
			fmt.Sprintf("rate(%s[5m]) for a speed, increase(%s[…]) for a number of events", name, name))
	}
	if typ == signal.Gauge && under(above, "rate", "irate", "increase") {
		w.found(s, "rate_of_gauge", Error,
			fmt.Sprintf("%s is a gauge: rate() and increase() take each fall for a restart and add it", name),
			"use it as it is, or avg_over_time(), max_over_time(), deriv(), delta()")
	}
	if typ == signal.Counter && under(above, "delta", "deriv", "idelta", "predict_linear") {
		w.found(s, "delta_of_counter", Warning,
			fmt.Sprintf("%s is a counter: delta() and deriv() go below 0 when a process restarts", name),
			"use increase() or rate()")
	}
}

// countsOnly tells whether only the presence of the last node of the path matters, not its value.
func countsOnly(path []parser.Node) bool {
	for i, n := range path {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			if n.Op == parser.COUNT || n.Op == parser.GROUP {
				return true
			}
		case *parser.BinaryExpr:
			if (n.Op == parser.LUNLESS || n.Op == parser.LAND) && i+1 < len(path) && path[i+1] == n.RHS {
				return true
			}
			if zero, ok := unwrap(n.RHS).(*parser.NumberLiteral); ok && n.Op == parser.MUL && zero.Val == 0 {
				return true // x * 0 asks where x is
			}
		}
	}
	return false
}

func dividedBy(above []parser.Node) bool {
	for _, n := range above {
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op == parser.DIV {
			return b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector
		}
	}
	return false
}

// catalog says what the catalog knows about a metric that misleads.
func (w walk) catalog(s parser.Node, name string, m signal.Metric, above []parser.Node) {
	// One of several names or ways for one thing, written for servers of different age, is no mistake.
	sev, alternative := Warning, slices.ContainsFunc(above, isOr)
	if alternative {
		sev = Info
	}
	use := w.l.use(m.Use)
	missing := !w.l.has(name) // that is said elsewhere
	canonical := signal.Canonical(name)
	switch {
	case m.Invented:
		if w.l.names == nil {
			w.add(s, Finding{Code: "invented_name", Severity: Error, Use: m.Use, Hint: use,
				Message: w.l.message(name, "no program ever emitted "+canonical)})
		}
	case m.Dead && !missing:
		w.add(s, Finding{Code: "dead_metric", Severity: Error, Use: m.Use, Hint: use,
			Message: canonical + " is emitted but never set: it is always the same number"})
	case canonical == "sglang:cache_hit_rate":
		w.add(s, Finding{Code: "cache_hit_rate_gauge", Severity: sev, Use: "cache_hit_rate",
			Message: "sglang:cache_hit_rate is the hit rate of the last prefill batch only, and the next decode report sets it to 0",
			Hint:    "use signal cache_hit_rate, which divides token counters over a window"})
	case m.Till != "" && m.Use != "" && !missing:
		w.add(s, Finding{Code: "renamed", Severity: sev, Use: m.Use, Hint: use,
			Message: fmt.Sprintf("%s was last emitted by version %s", canonical, m.Till)})
	case m.Use != "" && m.Trap != "" && !missing && !w.l.reads(m.Use, m.Name):
		w.add(s, Finding{Code: "better_metric", Severity: Info, Use: m.Use, Hint: use,
			Message: canonical + ": " + m.Trap})
	}
	if w.l.names == nil && m.Type == signal.Histogram && name == family(name) && !m.Invented {
		sev, was := Warning, ""
		if m.WasType != "" {
			sev, was = Info, " ("+m.WasType+")"
		}
		w.add(s, Finding{Code: "bare_histogram", Severity: sev,
			Message: fmt.Sprintf("%s is a histogram%s; there is no series of that bare name", canonical, was),
			Hint:    fmt.Sprintf("histogram_quantile over %s_bucket, or %s_sum over %s_count", name, name, name)})
	}
}

func isOr(n parser.Node) bool {
	b, ok := n.(*parser.BinaryExpr)
	return ok && b.Op == parser.LOR
}

// reads tells whether a signal reads a metric, which is then a right one to use.
func (l *Linter) reads(id, metric string) bool {
	s, ok := l.cat.Signal(id)
	if !ok {
		return false
	}
	for _, src := range s.Sources {
		for _, t := range slices.Concat(src.Num, src.Den) {
			if t.Metric == metric || family(t.Metric) == metric {
				return true
			}
		}
	}
	return false
}

// use says what to use instead: a metric, or a signal by its id.
func (l *Linter) use(name string) string {
	if name == "" {
		return ""
	}
	if _, ok := l.cat.Signal(name); ok {
		return "use the signal " + name
	}
	return "use " + name
}

// message is the catalog's sentence about a name, or the given one.
func (l *Linter) message(name, otherwise string) string {
	if r := l.cat.Resolve(name); r.Message != "" {
		return r.Message
	}
	return otherwise
}

// typeOf is the type of the family a name belongs to, from the data first and the catalog second.
func (l *Linter) typeOf(name string) signal.Type {
	if l.names != nil {
		if t := l.names.Type(name); t != "" {
			return t
		}
	}
	if m, ok := l.cat.Metric(name); ok {
		return m.Type
	}
	return ""
}

// family strips the suffix of a histogram's or summary's sample.
func family(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if f, ok := strings.CutSuffix(name, suffix); ok {
			return f
		}
	}
	return name
}

func nameOf(s *parser.VectorSelector) string {
	if s.Name != "" {
		return s.Name
	}
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

func unwrap(e parser.Expr) parser.Expr {
	for {
		switch n := e.(type) {
		case *parser.ParenExpr:
			e = n.Expr
		case *parser.StepInvariantExpr:
			e = n.Expr
		default:
			return e
		}
	}
}

// selectors lists the vector selectors of an expression, left to right.
func selectors(e parser.Node) []*parser.VectorSelector {
	var out []*parser.VectorSelector
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s)
		}
		return nil
	})
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
