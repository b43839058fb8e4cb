package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/signal"
)

// synthetic are the series that Prometheus makes itself for every target and alert.
var synthetic = regexp.MustCompile(`^(up|scrape_\w+|ALERTS|ALERTS_FOR_STATE)$`)

// has tells whether anything that is looked at holds series of that name.
func (l *Linter) has(name string) bool {
	return l.names == nil || synthetic.MatchString(name) || l.recorded[name] || l.names.Has(name)
}

// names finds the selectors for which there is no data, and tells an expression that can never show
// anything from one that has another way to its number.
func (w walk) names(tree parser.Expr) {
	if w.l.names == nil {
		return
	}
	blind := w.nothing(tree)
	if blind {
		w.it.blind++
	}
	for _, s := range selectors(tree) {
		name := nameOf(s)
		if name == "" || w.l.has(name) {
			continue
		}
		r := w.l.cat.Resolve(name)
		f := Finding{Code: "blind", Severity: Error, Use: r.Use}
		f.Message = fmt.Sprintf("nothing in %s has the name %s", w.l.names.Where(), name)
		if r.Message != "" {
			f.Message += ": " + strings.TrimRight(r.Message, ".")
		}
		switch {
		case r.Use != "" && w.l.names.Has(r.Use):
			f.Hint = fmt.Sprintf("use %s, which is there", r.Use)
		case r.Use != "" && !strings.Contains(r.Message, r.Use):
			f.Hint = w.l.use(r.Use)
		case len(r.DidYouMean) > 0 && !strings.Contains(r.Message, r.DidYouMean[0]):
			f.Hint = "did you mean " + strings.Join(r.DidYouMean, ", ") + "?"
		}
		switch {
		case !blind || w.inAbsent(tree, s):
			f.Code, f.Severity = "absent_part", Info
			f.Message += "; the rest of the expression can still answer"
		case w.src.rule:
			f.Message += "; the rule is blind: it can never fire"
		default:
			m, known := w.l.cat.Metric(name)
			f.optional = known && !m.Invented && !m.Dead && m.Till == ""
			f.Message += "; the query stays empty"
		}
		w.add(s, f)
	}
}

func (w walk) inAbsent(tree parser.Expr, s *parser.VectorSelector) bool {
	found := false
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		if n == s {
			found = found || under(path, "absent", "absent_over_time")
		}
		return nil
	})
	return found
}

// nothing tells whether an expression can only be empty, or only a constant that stands in for data.
func (w walk) nothing(e parser.Expr) bool {
	switch n := unwrap(e).(type) {
	case *parser.VectorSelector:
		name := nameOf(n)
		return name != "" && !w.l.has(name)
	case *parser.MatrixSelector:
		return w.nothing(n.VectorSelector)
	case *parser.SubqueryExpr:
		return w.nothing(n.Expr)
	case *parser.UnaryExpr:
		return w.nothing(n.Expr)
	case *parser.AggregateExpr:
		return w.nothing(n.Expr)
	case *parser.Call:
		if n.Func.Name == "absent" || n.Func.Name == "absent_over_time" {
			return false
		}
		vectors, without := 0, 0
		for _, a := range n.Args {
			if len(selectors(a)) > 0 {
				vectors++
				if w.nothing(a) {
					without++
				}
			}
		}
		return vectors > 0 && vectors == without
	case *parser.BinaryExpr:
		left, right := len(selectors(n.LHS)) > 0, len(selectors(n.RHS)) > 0
		switch {
		case n.Op == parser.LUNLESS:
			return w.nothing(n.LHS)
		case n.Op == parser.LOR && left && right:
			return w.nothing(n.LHS) && w.nothing(n.RHS)
		case left && right:
			return w.nothing(n.LHS) || w.nothing(n.RHS)
		case left:
			return w.nothing(n.LHS)
		case right:
			return w.nothing(n.RHS)
		}
	}
	return false
}

// targetLabels come from the scrape configuration, not from the exposition.
var targetLabels = []string{"job", "instance", "cluster", "environment", "env", "namespace", "pod", "node", "container"}

// matchers judges the label matchers of one selector.
func (w walk) matchers(s *parser.VectorSelector, name string, above []parser.Node) {
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel:
		case m.Name == labels.BucketLabel && strings.HasSuffix(name, "_bucket"), m.Name == "quantile":
			w.number(s, name, m)
		case m.Name == "dynamo_component" && (m.Value == "prefill" || m.Value == "backend" || m.Value == "decode"):
			if slices.ContainsFunc(above, isOr) {
				continue // one step of a precedence
			}
			w.found(s, "component_is_not_role", Warning,
				fmt.Sprintf("dynamo_component=%q names a component, not a role: a prefill worker may run as component backend, and its numbers then leak in here", m.Value),
				"show the signal by role; the role comes from the scheduler's engine_type and the pod's labels first")
		case m.Type == labels.MatchEqual && m.Value != "" && !slices.Contains(targetLabels, m.Name):
			w.value(s, name, m)
		}
	}
}

// value finds an exact matcher that no series meets.
func (w walk) value(s *parser.VectorSelector, name string, m *labels.Matcher) {
	if w.l.names == nil {
		return
	}
	have, known := w.l.names.Values(name, m.Name)
	if !known || len(have) == 0 || slices.Contains(have, m.Value) {
		return
	}
	w.found(s, "matches_nothing", Warning,
		fmt.Sprintf("no series of %s in %s has %s=%q", name, w.l.names.Where(), m.Name, m.Value),
		fmt.Sprintf("there is %s; a value that appears with its first event may still come", list(have)))
}

// number judges a matcher on le or quantile, whose values are numbers written as text.
func (w walk) number(s *parser.VectorSelector, name string, m *labels.Matcher) {
	var wanted []string
	switch m.Type {
	case labels.MatchEqual:
		wanted = []string{m.Value}
	case labels.MatchRegexp:
		wanted = literals(m.Value)
	}
	for _, v := range wanted {
		number, err := strconv.ParseFloat(v, 64)
		if err != nil {
			continue
		}
		canonical := labels.FormatOpenMetricsFloat(number)
		var have []string
		known := false
		if w.l.names != nil {
			have, known = w.l.names.Values(name, m.Name)
		}
		written := fmt.Sprintf("%s%s%q", m.Name, m.Type, m.Value)
		if !known {
			if v != canonical {
				w.spelling(s, written, v, canonical, "is stored as")
			}
			continue
		}
		if slices.Contains(have, v) {
			continue
		}
		if i := slices.IndexFunc(have, func(h string) bool {
			f, err := strconv.ParseFloat(h, 64)
			return err == nil && f == number
		}); i >= 0 {
			w.spelling(s, written, v, have[i], "is, in "+w.l.names.Where()+",")
			continue
		}
		what, code := "bucket bound", "not_a_bound"
		if m.Name == "quantile" {
			what, code = "quantile", "not_a_quantile"
		}
		w.found(s, code, Warning,
			fmt.Sprintf("%s matches nothing: %s is no %s of %s", written, v, what, name),
			"there is "+list(nearest(have, number)))
	}
}

func (w walk) spelling(s *parser.VectorSelector, written, v, canonical, is string) {
	w.add(s, Finding{
		Code: "label_spelling", Severity: Warning, Use: canonical,
		Message: fmt.Sprintf("%s matches nothing: %s %s %q", written, v, is, canonical),
		Hint:    fmt.Sprintf("write %q; Prometheus 3 and Rollscope store every bound with a decimal point", canonical),
	})
}

// literals lists what a regular expression that is only an alternation of fixed texts can match.
func literals(pattern string) []string {
	if strings.ContainsAny(pattern, `*+?[{^$`) {
		return nil
	}
	var out []string
	for part := range strings.SplitSeq(strings.Trim(pattern, "()"), "|") {
		// A dot means any character, but who writes 0.5 means the number.
		out = append(out, strings.ReplaceAll(part, `\`, ""))
	}
	return out
}

// nearest keeps the values around a number.
func nearest(have []string, number float64) []string {
	sorted := slices.Clone(have)
	slices.SortFunc(sorted, func(a, b string) int {
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	i := slices.IndexFunc(sorted, func(s string) bool {
		x, err := strconv.ParseFloat(s, 64)
		return err == nil && x > number
	})
	if i < 0 {
		i = len(sorted)
	}
	return sorted[max(i-2, 0):min(i+2, len(sorted))]
}

// list writes values for a sentence.
func list(values []string) string {
	quoted := make([]string, 0, len(values))
	for _, v := range values {
		quoted = append(quoted, strconv.Quote(v))
	}
	if len(quoted) > 8 {
		quoted = append(quoted[:8], "…")
	}
	return strings.Join(quoted, ", ")
}

// exactVariable matches an exact matcher whose value is a variable.
var exactVariable = regexp.MustCompile(`!?=\s*["'](\$|\[\[)`)

// multiValues finds exact matchers on variables that can hold more than one value.
func (w walk) multiValues(tree parser.Expr) {
	if !exactVariable.MatchString(w.src.text) {
		return
	}
	for _, s := range selectors(tree) {
		for _, m := range s.LabelMatchers {
			if m.Type != labels.MatchEqual && m.Type != labels.MatchNotEqual {
				continue
			}
			from := w.e.source(int(s.PosRange.Start))
			to := w.e.source(int(s.PosRange.End))
			if from < 0 || to > len(w.src.text) || from >= to {
				continue
			}
			at := regexp.MustCompile(`\b` + regexp.QuoteMeta(m.Name) + `\s*(=|!=)\s*["'](\$|\[\[)\{?(\w+)`).
				FindStringSubmatchIndex(w.src.text[from:to])
			if at == nil {
				continue
			}
			name := w.src.text[from+at[6] : from+at[7]]
			v, ok := w.src.vars[name]
			if !ok || !v.multi && !v.all {
				continue
			}
			w.it.found(w.src, from+at[0], Finding{
				Code: "multi_value_equals", Severity: Error,
				Message: fmt.Sprintf("variable %q can be All or several values, which Grafana writes as (a|b); %s%s compares that text as it stands and matches nothing", name, m.Name, m.Type),
				Hint:    fmt.Sprintf(`write %s=~"$%s"`, m.Name, name),
			})
		}
	}
}

// rankLabels tell processes of one engine apart that write the same events.
var rankLabels = []string{"tp_rank", "pp_rank", "moe_ep_rank"}

// doubled finds labels by which one thing stands in the data more than once, so that a plain sum counts it
// more than once.
func (w walk) doubled(n *parser.AggregateExpr) {
	for _, s := range selectors(n.Expr) {
		name := nameOf(s)
		m, known := w.l.cat.Metric(name)
		if !known {
			continue
		}
		pinned := func(label string) bool {
			kept := slices.Contains(n.Grouping, label) != n.Without
			return kept || slices.ContainsFunc(s.LabelMatchers, func(lm *labels.Matcher) bool { return lm.Name == label })
		}
		values := func(label string) ([]string, bool) {
			if w.l.names == nil {
				return nil, false
			}
			return w.l.names.Values(name, label)
		}
		for _, label := range rankLabels {
			if !slices.Contains(m.Labels, label) || pinned(label) || m.Type == signal.Gauge && label != "tp_rank" {
				continue
			}
			have, sure := values(label)
			if sure && len(have) < 2 || !sure && (m.Type == signal.Gauge || label != "tp_rank") {
				continue
			}
			sev, maybe := Warning, "counts"
			if !sure {
				sev, maybe = Info, "may count"
			}
			w.found(s, "ranks_summed", sev,
				fmt.Sprintf("%s is written by each %s of an engine about the same events: this sum %s them once a rank", name, strings.TrimSuffix(label, "_rank")+" rank", maybe),
				fmt.Sprintf(`keep one rank with %s="0", or take max without (%s) first`, label, label))
		}
		if have, sure := values("priority"); sure && !pinned("priority") && slices.Contains(have, "") && len(have) > 1 {
			w.found(s, "priority_summed", Warning,
				fmt.Sprintf(`%s with priority="" is the total of the others: this sum counts every request twice`, name),
				`keep the total with priority=""`)
		}
		if have, sure := values("worker_addr"); sure && !pinned("worker_addr") && slices.Contains(have, "") && len(have) > 1 {
			w.found(s, "views_summed", Warning,
				fmt.Sprintf("%s of one engine is here directly and through a router (worker_addr): this sum counts it twice", name),
				`use the signal, which counts an engine once, or keep worker_addr=""`)
		}
	}
}
