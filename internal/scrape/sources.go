package scrape

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	promscrape "github.com/prometheus/prometheus/scrape"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
)

// Labels that discovery adds; they are gone after relabelling, which may copy them.
const (
	dpRanksLabel  = model.MetaLabelPrefix + "rollscope_dp_ranks"
	roleLabel     = model.MetaLabelPrefix + "rollscope_role"
	foundInLabel  = model.MetaLabelPrefix + "rollscope_found_in"
	jobRouter     = "slime-sglang" // a router's /engine_metrics, under the name slime's documentation uses
	jobRouterSelf = "slime-router" // the router's own metrics
	jobWorkers    = "sglang"       // engines found through a router's list, asked directly
)

// dynamicJob is a scrape config that flags ask for.
type dynamicJob struct {
	name string // job_name
	role string // jobRouter, jobRouterSelf or jobWorkers
	path string
}

// dynamicJobs lists the jobs of the targets that flags name. A name that the configuration uses is
// left to it.
func dynamicJobs(c *config.Config, taken map[string]bool) []dynamicJob {
	var out []dynamicJob
	add := func(role, path string) {
		name := role
		for taken[name] {
			name += "-found"
		}
		out = append(out, dynamicJob{name, role, path})
	}
	if len(c.FollowLogs) > 0 || len(c.Routers) > 0 {
		add(jobRouter, "/engine_metrics")
	}
	if len(c.FollowLogs) > 0 {
		add(jobRouterSelf, "/metrics")
	}
	if len(c.WorkerLists) > 0 {
		add(jobWorkers, "/metrics")
	}
	return out
}

// TargetsForRouter gives the targets of an SGLang router by job: its view of its engines and, when
// promPort is not 0, its own metrics.
func TargetsForRouter(host string, port, promPort int) map[string][]*targetgroup.Group {
	out := map[string][]*targetgroup.Group{}
	at := net.JoinHostPort(host, strconv.Itoa(port))
	group := func(addr string) []*targetgroup.Group {
		return []*targetgroup.Group{{
			Source:  "router/" + at,
			Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(addr)}},
		}}
	}
	out[jobRouter] = group(at)
	if promPort != 0 {
		out[jobRouterSelf] = group(net.JoinHostPort(host, strconv.Itoa(promPort)))
	}
	return out
}

// sources joins what discovery finds with what routers and log files name, makes addresses of
// worker lists scrapeable, and hands the whole to the scrape manager.
type sources struct {
	m *Manager

	mu         sync.Mutex
	jobs       map[string]*promconfig.ScrapeConfig
	names      map[string]string // of dynamic jobs, by role
	discovered map[string][]*targetgroup.Group
	dynamic    map[string]map[string][]*targetgroup.Group // origin -> job's role -> groups
	skipped    map[string][]Skipped                       // by origin
	sockets    map[string][]string                        // dial address -> unix sockets behind it
	wanted     map[string]func(context.Context)           // origin -> what follows it
	running    map[string]*follower
	changed    chan struct{}
	gone       []Gone
}

// follower is one running source of targets.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Gone is an address that is no longer in use.
type Gone struct {
	Address string // host:port
	From    string // the log file or list that named it
	At      time.Time
	Next    string // what replaced it; "" when nothing did
}

func newSources(m *Manager) *sources {
	return &sources{
		m: m, dynamic: map[string]map[string][]*targetgroup.Group{}, skipped: map[string][]Skipped{},
		sockets: map[string][]string{}, wanted: map[string]func(context.Context){}, running: map[string]*follower{},
		changed: make(chan struct{}, 1),
	}
}

// configure takes the sources that a configuration names.
func (s *sources) configure(c *config.Config, jobs map[string]*promconfig.ScrapeConfig) {
	want := map[string]func(context.Context){}
	for _, l := range c.WorkerLists {
		want["list "+l.URL] = func(ctx context.Context) { s.followList(ctx, "list "+l.URL, l.URL) }
	}
	for _, f := range c.FollowLogs {
		want["log "+f] = func(ctx context.Context) { s.followLog(ctx, "log "+f, f) }
	}
	taken := map[string]bool{}
	if scs, err := c.Prometheus.GetScrapeConfigs(); err == nil { // it was read before
		for _, sc := range scs {
			taken[sc.JobName] = true
		}
	}
	names := map[string]string{}
	for _, j := range dynamicJobs(c, taken) {
		names[j.role] = j.name
	}
	s.mu.Lock()
	s.jobs, s.names, s.wanted = jobs, names, want
	s.mu.Unlock()
	static := map[string][]*targetgroup.Group{}
	for _, r := range c.Routers {
		for job, groups := range TargetsForRouter(r.Host, r.Port, 0) {
			static[job] = append(static[job], groups...)
		}
	}
	s.set("flags", static, nil)
}

// set replaces what one origin names.
func (s *sources) set(origin string, groups map[string][]*targetgroup.Group, skipped []Skipped) {
	s.mu.Lock()
	if len(groups) == 0 {
		delete(s.dynamic, origin)
	} else {
		s.dynamic[origin] = groups
	}
	if len(skipped) == 0 {
		delete(s.skipped, origin)
	} else {
		s.skipped[origin] = skipped
	}
	s.mu.Unlock()
	s.notify()
}

func (s *sources) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run joins until ctx ends.
func (s *sources) run(ctx context.Context, in <-chan map[string][]*targetgroup.Group, out chan<- map[string][]*targetgroup.Group) {
	defer s.stopFollowers()
	for {
		s.startFollowers(ctx)
		select {
		case <-ctx.Done():
			return
		case sets, ok := <-in:
			if !ok {
				in = nil
				continue
			}
			s.mu.Lock()
			s.discovered = sets
			s.mu.Unlock()
		case <-s.changed:
		}
		select {
		case <-ctx.Done():
			return
		case out <- s.joined():
		}
	}
}

// startFollowers starts what the configuration names and stops what it no longer names.
func (s *sources) startFollowers(ctx context.Context) {
	s.mu.Lock()
	var stop []*follower
	var ended []string
	for o, f := range s.running {
		if s.wanted[o] == nil {
			stop, ended = append(stop, f), append(ended, o)
			delete(s.running, o)
		}
	}
	for o, run := range s.wanted {
		if s.running[o] != nil {
			continue
		}
		fctx, cancel := context.WithCancel(ctx)
		f := &follower{cancel: cancel, done: make(chan struct{})}
		s.running[o] = f
		go func() { defer close(f.done); run(fctx) }()
	}
	s.mu.Unlock()
	for i, f := range stop {
		f.cancel()
		<-f.done
		s.set(ended[i], nil, nil)
	}
}

func (s *sources) stopFollowers() {
	s.mu.Lock()
	fs := slices.Collect(maps.Values(s.running))
	clear(s.running)
	s.mu.Unlock()
	for _, f := range fs {
		f.cancel()
		<-f.done
	}
}

// joined builds the target sets and what follows from them.
func (s *sources) joined() map[string][]*targetgroup.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]*targetgroup.Group, len(s.jobs))
	add := func(job string, groups []*targetgroup.Group) {
		if s.jobs[job] != nil {
			out[job] = append(out[job], groups...)
		}
	}
	for job, groups := range s.discovered {
		fixed, skipped := scrapeable(job, groups)
		s.skipped["job "+job] = skipped
		add(job, fixed)
	}
	origins := slices.Collect(maps.Keys(s.dynamic))
	sort.Strings(origins)
	for _, o := range origins {
		for role, groups := range s.dynamic[o] {
			add(s.names[role], groups)
		}
	}
	s.sockets = map[string][]string{}
	lb := labels.NewBuilder(labels.EmptyLabels())
	for job, groups := range out {
		for _, g := range groups {
			ts, _ := promscrape.TargetsFromGroup(g, s.jobs[job], nil, lb)
			for _, t := range ts {
				if sock := t.GetValue(promscrape.UnixSocketLabel); sock != "" {
					addr := dialAddress(t.URL().Scheme, t.URL().Host)
					if !slices.Contains(s.sockets[addr], sock) {
						s.sockets[addr] = append(s.sockets[addr], sock)
					}
				}
			}
		}
	}
	return out
}

// scrapeable rewrites addresses as worker lists have them, host:port@rank and URLs, into targets:
// each host:port once. Everything else is left as it is.
func scrapeable(job string, groups []*targetgroup.Group) ([]*targetgroup.Group, []Skipped) {
	var skipped []Skipped
	out := make([]*targetgroup.Group, len(groups))
	for i, g := range groups {
		out[i] = g
		odd := slices.ContainsFunc(g.Targets, func(l model.LabelSet) bool {
			a := string(l[model.AddressLabel])
			return strings.Contains(a, "@") || strings.Contains(a, "://")
		})
		if !odd {
			continue
		}
		ng := &targetgroup.Group{Source: g.Source, Labels: g.Labels}
		at := map[string]int{}
		ranks := map[string][]int{}
		for _, l := range g.Targets {
			raw := string(l[model.AddressLabel])
			if !strings.Contains(raw, "@") && !strings.Contains(raw, "://") {
				ng.Targets = append(ng.Targets, l)
				continue
			}
			a, err := parseAddress(raw)
			if err != nil {
				skipped = append(skipped, Skipped{Address: raw, Reason: err.Error(), From: "job " + job})
				continue
			}
			nl := l.Clone()
			nl[model.AddressLabel] = model.LabelValue(a.host)
			if strings.Contains(raw, "://") {
				nl[model.SchemeLabel] = model.LabelValue(a.scheme)
			}
			key := nl.String()
			if a.rank >= 0 && !slices.Contains(ranks[key], a.rank) {
				ranks[key] = append(ranks[key], a.rank)
			}
			k, ok := at[key]
			if !ok {
				k = len(ng.Targets)
				at[key] = k
				ng.Targets = append(ng.Targets, nl)
			}
			if r := ranks[key]; len(r) > 0 {
				ng.Targets[k][dpRanksLabel] = model.LabelValue(rankList(r))
			}
		}
		out[i] = ng
	}
	return out, skipped
}

func rankList(r []int) string {
	slices.Sort(r)
	s := make([]string, len(r))
	for i, n := range r {
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ",")
}

// socketOf gives the unix socket that a dial address stands for.
func (s *sources) socketOf(addr string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch socks := s.sockets[addr]; len(socks) {
	case 0:
		return "", nil
	case 1:
		return socks[0], nil
	default:
		return "", fmt.Errorf("several unix sockets (%s) stand behind the address %s; give each target an address of its own", strings.Join(socks, ", "), addr)
	}
}

// Skipped lists what was discovered and cannot be scraped.
func (m *Manager) Skipped() []Skipped {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	var out []Skipped
	for _, o := range slices.Sorted(maps.Keys(m.sources.skipped)) {
		out = append(out, m.sources.skipped[o]...)
	}
	return out
}

// Gone lists addresses that log files and worker lists named and replaced, oldest first.
func (m *Manager) Gone() []Gone {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	return slices.Clone(m.sources.gone)
}

func (s *sources) retire(g Gone) {
	s.mu.Lock()
	s.gone = append(s.gone, g)
	if len(s.gone) > 100 {
		s.gone = s.gone[len(s.gone)-100:]
	}
	s.mu.Unlock()
	s.m.log.Info("an address is gone", "address", g.Address, "from", g.From, "next", g.Next)
}

// followList polls a router's list of workers.
func (s *sources) followList(ctx context.Context, origin, u string) {
	every := s.m.opts.RefreshInterval
	setDefault(&every, 10*time.Second)
	client := &http.Client{Timeout: s.m.opts.ProbeTimeout}
	defer client.CloseIdleConnections()
	said := ""
	have := map[string]bool{}
	for {
		workers, skipped, err := fetchWorkers(ctx, client, u)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// The workers found before stay: a router that restarts does not end its engines.
			if said != err.Error() {
				s.m.log.Warn("a router's list of workers cannot be read; the workers known so far stay", "url", u, "err", err)
				said = err.Error()
			}
		} else {
			now := map[string]bool{}
			group := &targetgroup.Group{Source: origin}
			for _, w := range workers {
				now[w.Address] = true
				l := model.LabelSet{
					model.AddressLabel: model.LabelValue(w.Address),
					model.SchemeLabel:  model.LabelValue(w.Scheme),
					foundInLabel:       model.LabelValue(u),
				}
				if len(w.Ranks) > 0 {
					l[dpRanksLabel] = model.LabelValue(rankList(w.Ranks))
				}
				if w.Role != engine.RoleUnknown {
					l[roleLabel] = model.LabelValue(w.Role)
				}
				group.Targets = append(group.Targets, l)
			}
			for i := range skipped {
				skipped[i].From = u
			}
			for a := range have {
				if !now[a] {
					s.retire(Gone{Address: a, From: u, At: s.m.opts.Now()})
				}
			}
			if !maps.Equal(have, now) || said != "" || len(have) == 0 {
				s.m.log.Info("workers found through a router", "url", u, "workers", len(workers), "skipped", len(skipped))
			}
			have, said = now, ""
			s.set(origin, map[string][]*targetgroup.Group{jobWorkers: {group}}, skipped)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// fetchWorkers reads one list.
func fetchWorkers(ctx context.Context, client *http.Client, u string) ([]Worker, []Skipped, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, excerpt(body))
	}
	return ParseWorkerList(body)
}
