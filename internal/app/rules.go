package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

// builtinRules are the recording rules and the alerts, with what the configuration changes of them.
func builtinRules(cat *signal.Catalog, changes []config.Alert, on bool) ([]metricstore.RuleFile, error) {
	if !on {
		return nil, nil
	}
	alerts, err := changeAlerts(signal.AlertRules(cat), changes)
	if err != nil {
		return nil, err
	}
	return []metricstore.RuleFile{
		{Name: "built-in recording rules", Data: signal.RecordingRules(cat)},
		{Name: "built-in alerts", Data: alerts},
	}, nil
}

// ruleFile is as much of a rule file as the changes need. (rulefmt's own types cannot be written back
// without its YAML nodes.)
type ruleFile struct {
	Groups []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval,omitempty"`
		Rules    []alertRule    `yaml:"rules"`
	} `yaml:"groups"`
}

type alertRule struct {
	Record        string            `yaml:"record,omitempty"`
	Alert         string            `yaml:"alert,omitempty"`
	Expr          string            `yaml:"expr"`
	For           model.Duration    `yaml:"for,omitempty"`
	KeepFiringFor model.Duration    `yaml:"keep_firing_for,omitempty"`
	Labels        map[string]string `yaml:"labels,omitempty"`
	Annotations   map[string]string `yaml:"annotations,omitempty"`
}

// changeAlerts rewrites a rule file. A change of an alert that does not exist is an error: the alert it
// was meant for would go on as it is.
func changeAlerts(data []byte, changes []config.Alert) ([]byte, error) {
	if len(changes) == 0 {
		return data, nil
	}
	var f ruleFile
	if err := yaml.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("built-in alerts: %w", err)
	}
	var known []string
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			known = append(known, r.Alert)
		}
	}
	for _, c := range changes {
		if !slices.Contains(known, c.Name) {
			return nil, fmt.Errorf("line %d: rollscope.alerts: there is no built-in alert %q; there are %s", c.Line, c.Name, strings.Join(known, ", "))
		}
		for gi := range f.Groups {
			g := &f.Groups[gi]
			for ri := range g.Rules {
				if g.Rules[ri].Alert != c.Name {
					continue
				}
				if err := g.Rules[ri].change(c); err != nil {
					return nil, err
				}
			}
			if c.Disabled {
				g.Rules = slices.DeleteFunc(g.Rules, func(r alertRule) bool { return r.Alert == c.Name })
			}
		}
	}
	return yaml.Marshal(f)
}

// change applies what c sets and leaves the rest.
func (r *alertRule) change(c config.Alert) error {
	if c.Expr != "" {
		r.Expr = c.Expr
	}
	if c.For != "" {
		d, err := model.ParseDuration(c.For)
		if err != nil {
			return fmt.Errorf("line %d: rollscope.alerts: %s: for: %q is not a duration: write 5m", c.Line, c.Name, c.For)
		}
		r.For = d
	}
	set := func(to *map[string]string, k, v string) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[k] = v
	}
	if c.Severity != "" {
		set(&r.Labels, "severity", c.Severity)
	}
	for k, v := range c.Labels {
		set(&r.Labels, k, v)
	}
	for k, v := range c.Annotations {
		set(&r.Annotations, k, v)
	}
	return nil
}
