package scrape

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	promscrape "github.com/prometheus/prometheus/scrape"
)

// What a probe of a target is wanted for.
const (
	probeIdentify  = 1 << iota // what it is
	probeInspect               // what its exposition looks like now
	probeDuplicate             // which series stands twice, with which values
	probeFailure               // why it fails, as it has not failed before
	probeAgain                 // whether it still fails so
)

// probeState is what the prober remembers of a target; target.mu guards it.
type probeState struct {
	wants   int
	queued  bool
	known   bool          // what the target is was found out before
	last    time.Time     // of the last probe
	backoff time.Duration // between probes that only look again
	sideAt  time.Time     // of the last requests to side endpoints
	sideOff time.Duration
}

// Intervals between probes of one target.
const (
	inspectEvery = 30 * time.Second
	againFrom    = 30 * time.Second
	againUpTo    = 10 * time.Minute
	maxBody      = 64 << 20
	probeWorkers = 4
)

// prober makes the requests beside the scrapes: one at a time for each target, few in all.
type prober struct {
	m     *Manager
	queue chan *target

	mu      sync.Mutex
	jobs    map[string]*promconfig.ScrapeConfig
	clients map[string]*http.Client // by job, made on demand, with the job's own credentials
}

func newProber(m *Manager) *prober {
	return &prober{m: m, queue: make(chan *target, 4096), clients: map[string]*http.Client{}}
}

// configure takes the jobs; clients are made anew with their settings.
func (p *prober) configure(jobs map[string]*promconfig.ScrapeConfig) {
	p.mu.Lock()
	old := p.clients
	p.jobs, p.clients = jobs, map[string]*http.Client{}
	p.mu.Unlock()
	for _, c := range old {
		c.CloseIdleConnections()
	}
}

func (p *prober) close() { p.configure(nil) }

// want asks for a probe. t.mu is held.
func (p *prober) want(t *target, what int) {
	t.probe.wants |= what
	p.offer(t)
}

// offer queues a target if a probe of it is due. t.mu is held.
func (p *prober) offer(t *target) {
	s := &t.probe
	if s.wants == 0 || s.queued || !s.due(p.m.opts.Now()) {
		return
	}
	select {
	case p.queue <- t:
		s.queued = true
	default: // full: the ticker offers it again
	}
}

func (s *probeState) due(now time.Time) bool {
	since := now.Sub(s.last)
	switch {
	case s.last.IsZero(), s.wants&(probeFailure|probeDuplicate) != 0:
		return true
	case s.wants&probeIdentify != 0:
		return !s.known || since >= 5*time.Second || since < 0
	case s.wants&probeInspect != 0:
		return since >= inspectEvery || since < 0
	default:
		return since >= max(s.backoff, againFrom) || since < 0
	}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range probeWorkers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-ctx.Done():
					return
				case t := <-p.queue:
					p.probe(ctx, t)
				}
			}
		}()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-tick.C:
			p.m.watch.each(func(t *target) {
				t.mu.Lock()
				p.offer(t)
				t.mu.Unlock()
			})
		}
	}
}

// probe makes the requests of one target and takes what they say over.
func (p *prober) probe(ctx context.Context, t *target) {
	t.mu.Lock()
	wants := t.probe.wants
	t.probe.wants = 0
	t.probe.last = p.m.opts.Now()
	if wants == probeAgain {
		t.probe.backoff = min(max(2*t.probe.backoff, againFrom), againUpTo)
	} else {
		t.probe.backoff = 0
	}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.probe.queued = false // only now: one probe of a target at a time
		p.offer(t)
		t.mu.Unlock()
	}()

	a := p.metrics(ctx, t)
	if ctx.Err() != nil {
		return
	}
	u := t.url()
	if f, bad := classifyAnswer(a, u); bad {
		p.count("failed")
		p.perhapsRouter(ctx, t, a, &f)
		t.mu.Lock()
		if t.up != nil && !*t.up {
			p.m.fail(t, f)
		}
		t.mu.Unlock()
		return
	}
	p.count("ok")
	e := Inspect(a.body, a.contentType)
	switch e.Kind {
	case KindEmpty:
		t.mu.Lock()
		if t.up == nil || !*t.up {
			p.m.fail(t, noMetricsYet())
		}
		t.mu.Unlock()
	case KindExposition:
		p.m.inspected(t, &e)
		p.m.lenient.judge(t, &e)
		if wants&(probeIdentify|probeInspect) != 0 {
			p.identify(ctx, t, &e)
		}
	default:
		t.mu.Lock()
		if t.up == nil || !*t.up {
			p.m.fail(t, notAnExposition(e, u))
		}
		t.mu.Unlock()
	}
}

// perhapsRouter looks, once for each target, whether a router answers where there are no metrics: its
// serving port has none under the path that engines have.
func (p *prober) perhapsRouter(ctx context.Context, t *target, a answer, f *failure) {
	if a.err != nil || a.status != http.StatusNotFound || strings.TrimRight(t.prom.URL().Path, "/") != "/metrics" {
		return
	}
	t.mu.Lock()
	asked := !t.once("router?")
	hint := t.routerHint
	t.mu.Unlock()
	if !asked {
		for _, u := range WorkerListURLs("") {
			list := p.get(ctx, t, base(t)+u, "application/json", p.m.opts.ProbeTimeout)
			if list.err != nil || list.status != http.StatusOK {
				continue
			}
			workers, skipped, err := ParseWorkerList(list.body)
			if err != nil {
				continue
			}
			host := t.prom.URL().Host
			hint = fmt.Sprintf("a router answers here and lists %d engines: scrape %s/engine_metrics for its view of them, or --scrape %s%s to scrape each directly",
				len(workers)+len(skipped), host, host, u)
			t.mu.Lock()
			t.routerHint = hint
			t.mu.Unlock()
			break
		}
	}
	if hint != "" {
		f.hint = hint
	}
}

func (p *prober) count(result string) { p.m.metrics.probes.WithLabelValues(result).Inc() }

// job gives the scrape config of a target; nil when it is gone.
func (p *prober) job(t *target) *promconfig.ScrapeConfig {
	t.mu.Lock()
	pool := t.pool
	t.mu.Unlock()
	if pool == "" {
		for name, ts := range p.m.prom.TargetsActive() {
			if slices.Contains(ts, t.prom) {
				t.setPool(name)
				pool = name
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[pool]
}

// client gives an HTTP client with the credentials and TLS settings of a target's job.
func (p *prober) client(t *target) (*http.Client, func(), error) {
	sc := p.job(t)
	if sc == nil {
		return nil, nil, fmt.Errorf("the job of %s is gone", t.url())
	}
	if sock := t.prom.GetValue(promscrape.UnixSocketLabel); sock != "" {
		c, err := commonconfig.NewClientFromConfig(sc.HTTPClientConfig, sc.JobName, commonconfig.WithDialContextFunc(
			func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", sock)
			}))
		if err != nil {
			return nil, nil, err
		}
		return c, c.CloseIdleConnections, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[sc.JobName]
	if c == nil {
		var err error
		// Connections are not kept: probes are rare, and an engine has few threads to spare.
		c, err = commonconfig.NewClientFromConfig(sc.HTTPClientConfig, sc.JobName, commonconfig.WithKeepAlivesDisabled())
		if err != nil {
			return nil, nil, err
		}
		p.clients[sc.JobName] = c
	}
	return c, func() {}, nil
}

// metrics reads a target's exposition once, as the scrape loop asks for it.
func (p *prober) metrics(ctx context.Context, t *target) answer {
	sc := p.job(t)
	timeout := p.m.opts.ProbeTimeout
	accept := "*/*"
	if sc != nil {
		timeout = max(timeout, time.Duration(sc.ScrapeTimeout))
		accept = acceptOf(sc)
	}
	return p.get(ctx, t, t.url(), accept, timeout)
}

// get makes one request.
func (p *prober) get(ctx context.Context, t *target, u, accept string, timeout time.Duration) answer {
	c, done, err := p.client(t)
	if err != nil {
		return answer{err: err}
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "rollscope")
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64))
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	// The client has transparent decompression switched off, and so none was asked for.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return answer{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), body: body, err: err}
}

// acceptOf is the Accept header Prometheus sends for a job: the answer depends on it.
func acceptOf(sc *promconfig.ScrapeConfig) string {
	escaping, err := promconfig.ToEscapingScheme(sc.MetricNameEscapingScheme, sc.MetricNameValidationScheme)
	if err != nil {
		escaping = model.UnderscoreEscaping
	}
	var vals []string
	weight := len(promconfig.ScrapeProtocolsHeaders) + 1
	for _, sp := range sc.ScrapeProtocols {
		val := promconfig.ScrapeProtocolsHeaders[sp]
		switch sp {
		case promconfig.PrometheusText1_0_0, promconfig.OpenMetricsText1_0_0, promconfig.OpenMetricsText2_0_0:
			val += ";" + model.EscapingKey + "=" + escaping.String()
		}
		vals = append(vals, fmt.Sprintf("%s;q=0.%d", val, weight))
		weight--
	}
	return strings.Join(append(vals, fmt.Sprintf("*/*;q=0.%d", weight)), ",")
}

// base is the root of a target's server.
func base(t *target) string {
	u := t.prom.URL()
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
