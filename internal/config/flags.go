package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// FromFlags makes the configuration of `serve --scrape ...`: each target is HOST:PORT, optionally
// with http:// or https:// before it and a path (and query) behind it; without a path it is /metrics.
// A path of /workers or /list_workers means the router that answers there: its workers are scraped
// directly. interval 0 is [DefaultInterval]. Targets of one scheme and path share a job.
func FromFlags(targets []string, interval time.Duration) (*Config, error) {
	if interval <= 0 {
		interval = DefaultInterval
	}
	type group struct {
		scheme, path, query string
		addrs               []string
	}
	var (
		errs  []error
		lists []WorkerList
		jobs  = map[string]*group{}
		seen  = map[string]bool{}
	)
	for _, t := range targets {
		u, err := parseTarget(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if u.Path == "/workers" || u.Path == "/list_workers" {
			lists = append(lists, WorkerList{URL: u.String()})
			continue
		}
		if seen[u.String()] {
			continue
		}
		seen[u.String()] = true
		name := jobName(u)
		g := jobs[name]
		if g == nil {
			g = &group{scheme: u.Scheme, path: u.Path, query: u.RawQuery}
			jobs[name] = g
		}
		g.addrs = append(g.addrs, u.Host)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	type static struct {
		Targets []string `yaml:"targets"`
	}
	type job struct {
		JobName     string              `yaml:"job_name"`
		Scheme      string              `yaml:"scheme"`
		MetricsPath string              `yaml:"metrics_path"`
		Params      map[string][]string `yaml:"params,omitempty"`
		Static      []static            `yaml:"static_configs"`
	}
	var file struct {
		Global map[string]string `yaml:"global"`
		Scrape []job             `yaml:"scrape_configs,omitempty"`
	}
	d := model.Duration(interval).String()
	file.Global = map[string]string{"scrape_interval": d, "evaluation_interval": d}
	timeout := min(interval, 10*time.Second)
	file.Global["scrape_timeout"] = model.Duration(timeout).String()
	names := make([]string, 0, len(jobs))
	for n := range jobs {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		g := jobs[n]
		j := job{JobName: n, Scheme: g.scheme, MetricsPath: g.path, Static: []static{{g.addrs}}}
		if g.query != "" {
			q, err := url.ParseQuery(g.query)
			if err != nil {
				return nil, fmt.Errorf("--scrape: the query %q cannot be read: %w", g.query, err)
			}
			j.Params = q
		}
		file.Scrape = append(file.Scrape, j)
	}
	text, err := yaml.Marshal(&file)
	if err != nil {
		return nil, fmt.Errorf("making a configuration of the --scrape flags: %w", err)
	}
	c, err := Load(text, "")
	if err != nil {
		return nil, fmt.Errorf("making a configuration of the --scrape flags: %w", err)
	}
	c.WorkerLists = lists
	return c, nil
}

// parseTarget reads one --scrape value.
func parseTarget(s string) (*url.URL, error) {
	full := s
	if !strings.Contains(s, "://") {
		full = "http://" + s
	}
	u, err := url.Parse(full)
	bad := func(why string) error {
		return fmt.Errorf("--scrape %q: %s; it is HOST:PORT[/path], with http:// or https:// before it if need be", s, why)
	}
	if err != nil {
		return nil, bad(strings.TrimPrefix(err.Error(), "parse "))
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, bad(fmt.Sprintf("scheme %q is not http or https", u.Scheme))
	}
	if u.User != nil {
		return nil, bad("user and password belong in a config file (basic_auth), where they do not show in the process list; the @RANK of a router's worker address is not part of its address")
	}
	if u.Hostname() == "" {
		return nil, bad("the host is missing")
	}
	if u.Port() == "" {
		if !strings.Contains(s, "://") {
			return nil, bad("the port is missing")
		}
		u.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if p, err := strconv.Atoi(u.Port()); err != nil || p < 1 || p > 65535 {
		return nil, bad(fmt.Sprintf("port %s is not between 1 and 65535", u.Port()))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	u.Fragment = ""
	return u, nil
}

// jobName is stable and readable: a person sees it in every legend.
func jobName(u *url.URL) string {
	name := "scrape"
	switch u.Path {
	case "/metrics":
	case "/engine_metrics":
		name = "engine_metrics"
	default:
		name += "_" + notWord.ReplaceAllString(strings.Trim(u.Path, "/"), "_")
	}
	if u.RawQuery != "" {
		name += "_" + notWord.ReplaceAllString(u.RawQuery, "_")
	}
	if u.Scheme == "https" {
		name += "_https"
	}
	return name
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)
