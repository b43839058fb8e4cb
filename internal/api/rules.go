package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/rules"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/rollscope/rollscope/internal/metricstore"
)

// ManagedRules is the [RuleSource] of a running rule manager.
type ManagedRules struct {
	Manager       v1.RulesRetriever         // *rules.Manager
	Alertmanagers v1.AlertmanagerRetriever  // *notifier.Manager, nil = none
	Webhooks      func() []string           // further receivers, nil = none
	Source        func(group string) string // what to call a group's file: "built-in" or its path; nil = the path
	// Blind lists the rules that could not fire whatever happened; nil = none.
	Blind func(context.Context) ([]metricstore.BlindRule, error)
}

// StoreRules is the [RuleSource] of the store's rules.
func StoreRules(r *metricstore.Rules) ManagedRules {
	return ManagedRules{Manager: r.Manager(), Alertmanagers: r.Notifier(), Webhooks: r.Webhooks, Source: r.Source, Blind: r.BlindRules}
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

// Rules lists the alerting rules, in the order of the groups. A rule that could not be evaluated, or
// that finds nothing to look at, is blind.
func (m ManagedRules) Rules(ctx context.Context) ([]AlertRule, error) {
	reasons := map[[3]string]string{}
	if m.Blind != nil {
		blind, err := m.Blind(ctx)
		if err != nil {
			return nil, err
		}
		for _, b := range blind {
			reasons[[3]string{b.File, b.Group, b.Name}] = b.Reason
		}
	}
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
			if reason := reasons[[3]string{g.File(), g.Name(), r.Name()}]; reason != "" && rule.State == "inactive" {
				rule.State, rule.Reason = "blind", reason
			}
			if err := r.LastError(); err != nil {
				rule.State, rule.Reason = "blind", err.Error()
			}
			out = append(out, rule)
		}
	}
	return out, nil
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
