package api

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/rollscope/rollscope/internal/signal"
)

// ManagedRules is the [RuleSource] of a running rule manager.
type ManagedRules struct {
	Manager       v1.RulesRetriever         // *rules.Manager
	Alertmanagers v1.AlertmanagerRetriever  // *notifier.Manager, nil = none
	Webhooks      func() []string           // further receivers, nil = none
	Source        func(group string) string // what to call a group's file: "built-in" or its path; nil = the path
}

// Alerts lists what is active, in the order of the groups.
func (m ManagedRules) Alerts() []Alert {
	var out []Alert
	for _, g := range m.Manager.RuleGroups() {
		for _, r := range alertingRules(g) {
			for _, active := range r.ActiveAlerts() {
				a := Alert{
					Name:        r.Name(),
					State:       active.State.String(),
					Severity:    active.Labels.Get("severity"),
					Since:       stampPtr(active.ActiveAt),
					Value:       number(active.Value),
					Expr:        r.Query().String(),
					For:         r.HoldDuration().Seconds(),
					Labels:      active.Labels.Map(),
					Annotations: active.Annotations.Map(),
					Group:       g.Name(),
				}
				a.Summary = summary(a.Annotations, a.Name)
				if !active.KeepFiringSince.IsZero() {
					a.Reason = "its condition was last seen at " + stamp(active.KeepFiringSince) + "; it is kept firing"
				}
				out = append(out, a)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y Alert) int { return strings.Compare(alertKey(x), alertKey(y)) })
	return out
}

// alertingRules keeps the order of the file; Group.AlertingRules sorts by state.
func alertingRules(g *rules.Group) []*rules.AlertingRule {
	var out []*rules.AlertingRule
	for _, r := range g.Rules() {
		if a, ok := r.(*rules.AlertingRule); ok {
			out = append(out, a)
		}
	}
	return out
}

func summary(annotations map[string]string, name string) string {
	return cmp.Or(annotations["summary"], annotations["description"], annotations["message"], name)
}

// Rules lists the alerting rules, in the order of the groups. A rule that could not be evaluated is blind.
func (m ManagedRules) Rules() []AlertRule {
	var out []AlertRule
	for _, g := range m.Manager.RuleGroups() {
		source := g.File()
		if m.Source != nil {
			source = m.Source(source)
		}
		for _, r := range alertingRules(g) {
			rule := AlertRule{
				Name:     r.Name(),
				Group:    g.Name(),
				Expr:     r.Query().String(),
				For:      r.HoldDuration().Seconds(),
				Severity: r.Labels().Get("severity"),
				Summary:  summary(r.Annotations().Map(), r.Name()),
				State:    r.State().String(),
				Source:   source,
			}
			if r.State() == rules.StateUnknown {
				rule.State = "inactive" // not evaluated yet
			}
			if err := r.LastError(); err != nil {
				rule.State, rule.Reason = "blind", err.Error()
			}
			out = append(out, rule)
		}
	}
	return out
}

// Receivers lists where firing alerts go.
func (m ManagedRules) Receivers() []string {
	var out []string
	if m.Alertmanagers != nil {
		for _, u := range m.Alertmanagers.Alertmanagers() {
			out = append(out, u.Redacted())
		}
	}
	if m.Webhooks != nil {
		out = append(out, m.Webhooks()...)
	}
	return out
}

// blind marks the rules that could not fire whatever happened: nothing that they look at is stored.
func blind(list []AlertRule, names []string) {
	stored := make(map[string]bool, len(names))
	for _, n := range names {
		stored[signal.Canonical(n)] = true
	}
	for i := range list {
		if list[i].State != "inactive" {
			continue
		}
		if missing := missingNames(list[i].Expr, stored); len(missing) > 0 {
			list[i].State = "blind"
			list[i].Reason = "the store holds no series named " + strings.Join(missing, " or ")
		}
	}
}

// missingNames returns the metric names of an expression if none of them is stored. An expression that
// asks for absence, or selects by something else than a name, misses nothing.
func missingNames(expr string, stored map[string]bool) []string {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil
	}
	var missing []string
	seen := false
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.Call:
			if strings.HasPrefix(n.Func.Name, "absent") {
				seen = true
			}
		case *parser.VectorSelector:
			name := ""
			for _, m := range n.LabelMatchers {
				if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
					name = m.Value
				}
			}
			switch {
			case name == "" || stored[signal.Canonical(name)]:
				seen = true
			case !slices.Contains(missing, name):
				missing = append(missing, name)
			}
		}
		return nil
	})
	if seen {
		return nil
	}
	return missing
}
