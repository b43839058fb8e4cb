package config

import (
	"fmt"
	"reflect"
	"strings"

	promconfig "github.com/prometheus/prometheus/config"
)

// Changes says in words what differs from an earlier configuration, for the log line of a reload:
// "job a added", "rollscope.alerts changed". It is empty when nothing does. Files that the
// configuration names (rules, targets) are not looked into.
func (c *Config) Changes(old *Config) []string {
	var out []string
	jobs := func(c *Config) map[string]*promconfig.ScrapeConfig {
		m := map[string]*promconfig.ScrapeConfig{}
		for _, sc := range c.Prometheus.ScrapeConfigs {
			m[sc.JobName] = sc
		}
		return m
	}
	was, is := jobs(old), jobs(c)
	for _, sc := range c.Prometheus.ScrapeConfigs {
		switch o := was[sc.JobName]; {
		case o == nil:
			out = append(out, fmt.Sprintf("job %s added", sc.JobName))
		case !reflect.DeepEqual(o, sc):
			out = append(out, fmt.Sprintf("job %s changed", sc.JobName))
		}
	}
	for _, sc := range old.Prometheus.ScrapeConfigs {
		if is[sc.JobName] == nil {
			out = append(out, fmt.Sprintf("job %s removed", sc.JobName))
		}
	}
	out = append(out, changedFields(*c.Prometheus, *old.Prometheus, "")...)
	out = append(out, changedFields(c.Rollscope, old.Rollscope, sectionKey+".")...)
	if !reflect.DeepEqual([]any{c.WorkerLists, c.Routers, c.FollowLogs}, []any{old.WorkerLists, old.Routers, old.FollowLogs}) {
		out = append(out, "targets of flags changed")
	}
	return out
}

// changedFields names, by their keys, the fields in which two structs of one type differ.
func changedFields(is, was any, prefix string) []string {
	var out []string
	n, o := reflect.ValueOf(is), reflect.ValueOf(was)
	for i := range n.NumField() {
		f := n.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" || key == "scrape_configs" || reflect.DeepEqual(n.Field(i).Interface(), o.Field(i).Interface()) {
			continue
		}
		out = append(out, prefix+key+" changed")
	}
	return out
}
