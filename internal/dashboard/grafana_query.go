package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/signal"
)

type grafanaQuery = variants.Dataquery

// queries writes expressions for Grafana: with the board's variables as matchers, its window, and the
// spellings that the data may have.
type queries struct {
	cat    *signal.Catalog
	o      GrafanaOptions
	parser parser.Parser
}

func newQueries(cat *signal.Catalog, o GrafanaOptions) queries {
	return queries{cat: cat, o: o, parser: parser.NewParser(parser.Options{})}
}

// query is the text of one target and the metric names in it.
func (q queries) query(p Panel, t Target) (string, []string, error) {
	fail := func(err error) (string, []string, error) {
		return "", nil, fmt.Errorf("panel %q: %w", p.Title, err)
	}
	text := t.Expr
	if t.Signal != "" {
		o := QueryOptions{Form: signal.Raw, Match: `job=~"$job",instance=~"$instance",model_name=~"$model"`}
		if q.o.Recorded {
			o = QueryOptions{Form: signal.Recorded, Match: `instance=~"$instance",model_name=~"$model"`}
		}
		s, ok := q.cat.Signal(t.Signal)
		if !ok {
			return fail(fmt.Errorf("signal %q is not in the catalog", t.Signal))
		}
		var err error
		if text, err = t.compile(s, o); err != nil {
			return fail(err)
		}
	}
	tree, err := q.parser.ParseExpr(text)
	if err != nil {
		return fail(fmt.Errorf("%q: %w", text, err))
	}
	var names []string
	for _, s := range selectors(tree) {
		if name := nameOf(s); name != "" {
			names = append(names, name)
		}
		if t.Signal == "" {
			q.filter(s)
		}
	}
	if !q.o.OneSpelling && !(q.o.Recorded && t.Signal != "") {
		tree = spelled(tree)
	}
	return windows(tree.String()), names, nil
}

// description is the panel's meaning and, since Grafana cannot say which source a number came from, the
// caveats of all the sources it may have come from.
func (q queries) description(p Panel) string {
	text := p.Meaning
	for _, t := range p.Targets {
		s, ok := q.cat.Signal(t.Signal)
		if !ok {
			continue
		}
		for _, src := range s.Sources {
			if src.Caveat == "" || t.Backend != "" && src.Backend != t.Backend {
				continue
			}
			if line := fmt.Sprintf("%s, where only %s is there: %s.", src.Backend, src.Name, src.Caveat); !strings.Contains(text, line) {
				text += "\n\n" + line
			}
		}
	}
	return strings.TrimSpace(text)
}

// windows puts Grafana's variables in place of the two windows that our expressions have. The window of
// throughput follows the resolution, the other is the reader's choice.
func windows(text string) string {
	return strings.NewReplacer("[5m]", "[$window]", "[1m]", "[$__rate_interval]").Replace(text)
}

// filter adds the board's variables to a selector of plain PromQL.
func (q queries) filter(s *parser.VectorSelector) {
	add := func(name string, typ labels.MatchType, value string) {
		// The values are not regular expressions until Grafana has put its own in, so they are not compiled.
		s.LabelMatchers = append(s.LabelMatchers, &labels.Matcher{Type: typ, Name: name, Value: value})
	}
	add("job", labels.MatchRegexp, "$job")
	throughRouter := slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == "worker_addr" && m.Type == labels.MatchNotEqual && m.Value == ""
	})
	if throughRouter {
		add("worker_addr", labels.MatchRegexp, `([a-z]+://)?($instance)([/@].*)?`)
	} else {
		add("instance", labels.MatchRegexp, "$instance")
	}
	m, ok := q.cat.Metric(nameOf(s))
	if !ok {
		return
	}
	for _, label := range []string{"model_name", "model"} {
		if slices.Contains(m.Labels, label) {
			add(label, labels.MatchRegexp, "$model")
			return
		}
	}
}

// spelled makes an expression read an engine's series under both names that a Prometheus may have
// stored them by. A router's answers carry the underscore only. `or` and not a regular expression on the
// name: both may hold the same labels for a while, after an upgrade, and rate() refuses to mix them.
func spelled(e parser.Expr) parser.Expr {
	switch n := e.(type) {
	case *parser.VectorSelector:
		return both(n, func(s *parser.VectorSelector) parser.Expr { return s })
	case *parser.ParenExpr:
		n.Expr = spelled(n.Expr)
	case *parser.UnaryExpr:
		n.Expr = spelled(n.Expr)
	case *parser.SubqueryExpr:
		n.Expr = spelled(n.Expr)
	case *parser.AggregateExpr:
		n.Expr = spelled(n.Expr)
	case *parser.BinaryExpr:
		n.LHS, n.RHS = spelled(n.LHS), spelled(n.RHS)
	case *parser.Call:
		for i, a := range n.Args {
			m, ok := a.(*parser.MatrixSelector)
			if !ok {
				n.Args[i] = spelled(a)
				continue
			}
			s, ok := m.VectorSelector.(*parser.VectorSelector)
			if !ok {
				continue
			}
			call := *n
			return both(s, func(s *parser.VectorSelector) parser.Expr {
				window := *m
				window.VectorSelector = s
				one := call
				one.Args = slices.Clone(call.Args)
				one.Args[i] = &window
				return &one
			})
		}
	}
	return e
}

func both(s *parser.VectorSelector, wrap func(*parser.VectorSelector) parser.Expr) parser.Expr {
	prefix, rest, ok := strings.Cut(s.Name, ":")
	if !ok || prefix != "sglang" && prefix != "vllm" {
		return wrap(s)
	}
	has := func(label string) bool {
		return slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == label && m.Type == labels.MatchNotEqual && m.Value == ""
		})
	}
	under := renamedTo(s, prefix+"_"+rest)
	switch {
	case has("worker_addr"):
		return wrap(under)
	case has("WorkerId"):
		return wrap(renamedTo(s, "ray_"+prefix+"_"+rest))
	}
	return &parser.ParenExpr{Expr: &parser.BinaryExpr{
		Op: parser.LOR, LHS: wrap(s), RHS: wrap(under),
		VectorMatching: &parser.VectorMatching{Card: parser.CardManyToMany},
	}}
}

func renamedTo(s *parser.VectorSelector, name string) *parser.VectorSelector {
	c := *s
	c.Name = name
	c.LabelMatchers = nil
	for _, m := range s.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			c.LabelMatchers = append(c.LabelMatchers, m)
		}
	}
	return &c
}

// families are the prefixes by which a board's variables find their series.
var families = []struct{ prefix, pattern string }{
	{"engine:", "engine:.+"}, {"fleet:", "fleet:.+"}, {"sglang:", "sglang[:_].+"}, {"vllm:", "vllm[:_].+"}, {"dynamo_frontend_", "dynamo_frontend_.+"}, {"dynamo_", "dynamo_.+"},
	{"smg_", "smg_.+"}, {"sgl_router_", "sgl_router_.+"}, {"DCGM_FI_", "DCGM_FI_.+"},
}

// variables are the board's: datasource, window, job, instance and model.
func (q queries) variables(names []string) ([]cog.Builder[grafana.VariableModel], error) {
	var patterns []string
	var engines, models bool
	modelLabel := "model_name"
	for _, name := range names {
		pattern := regexp.QuoteMeta(name)
		for _, f := range families {
			if strings.HasPrefix(name, f.prefix) {
				pattern = f.pattern
				break
			}
		}
		if !slices.Contains(patterns, pattern) {
			patterns = append(patterns, pattern)
		}
		m, _ := q.cat.Metric(name)
		recorded := strings.HasPrefix(name, "engine:") || strings.HasPrefix(name, "fleet:")
		engines = engines || recorded || strings.HasPrefix(name, "sglang:") || strings.HasPrefix(name, "vllm:")
		models = models || recorded || slices.Contains(m.Labels, "model_name") || slices.Contains(m.Labels, "model")
	}
	if !engines {
		modelLabel = "model"
	}
	slices.Sort(patterns)
	series := fmt.Sprintf("{__name__=~%q", strings.Join(patterns, "|"))
	instance, regex := fmt.Sprintf(`label_values(%s,job=~"$job"}, instance)`, series), ""
	if running, ok := q.cat.Signal("running"); ok && engines {
		// An engine that is only seen through a router has its address in worker_addr: ask for engines.
		o := signal.Query{By: signal.ByEngine, Match: `job=~"$job"`}
		if q.o.Recorded {
			o = signal.Query{By: signal.ByEngine, Form: signal.Recorded}
		}
		text, err := signal.Compile(running, o)
		if err != nil {
			return nil, err
		}
		tree, err := q.parser.ParseExpr(text)
		if err != nil {
			return nil, err
		}
		if !q.o.OneSpelling && !q.o.Recorded {
			tree = spelled(tree)
		}
		instance, regex = fmt.Sprintf("query_result(group by (instance) (%s))", tree), `/instance="([^"]+)"/`
	}
	vars := []cog.Builder[grafana.VariableModel]{
		grafana.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		choice("job", "Job", fmt.Sprintf("label_values(%s}, job)", series), ""),
		choice("instance", "Engine", instance, regex),
	}
	if models {
		vars = append(vars, choice("model", "Model", fmt.Sprintf("label_values(%s,job=~\"$job\"}, %s)", series, modelLabel), ""))
	} else {
		vars = append(vars, choice("model", "Model", fmt.Sprintf("label_values(%s}, %s)", series, modelLabel), "").Hide(grafana.VariableHideHideVariable))
	}
	five := grafana.VariableOption{
		Text: grafana.StringOrArrayOfString{String: cog.ToPtr("5m")}, Value: grafana.StringOrArrayOfString{String: cog.ToPtr("5m")},
	}
	vars = append(vars, grafana.NewIntervalVariableBuilder("window").Label("Window").
		Values(grafana.StringOrMap{String: cog.ToPtr("1m,2m,5m,10m,30m,1h,6h")}).Current(five))
	return vars, nil
}

// choice is a variable filled by a query, of which nothing, one, several or all can be chosen. All is a
// pattern that also matches series without the label.
func choice(name, label, query, regex string) *grafana.QueryVariableBuilder {
	everything := grafana.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}
	b := grafana.NewQueryVariableBuilder(name).Label(label).
		Query(grafana.StringOrMap{String: cog.ToPtr(query)}).Definition(query).
		Datasource(common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(grafana.VariableOption{Text: grafana.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: everything}).
		Refresh(grafana.VariableRefreshOnTimeRangeChanged).
		Sort(grafana.VariableSortAlphabeticalAsc)
	if regex != "" {
		b.Regex(regex)
	}
	return b
}
