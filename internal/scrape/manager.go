// Package scrape reads expositions into a store with Prometheus's own scrape manager, and tells the
// truth about what it read: what each target is, why one fails, which lines and series were lost.
// Its entry point is [New]; [Inspect] says the same about one exposition without any I/O.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/relabel"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/logging"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/signal"
)

// Options are what a Manager is made of. Appendable is required.
type Options struct {
	Appendable storage.AppendableV2
	// StoreCounts tells that Appendable counts by itself what it refuses, in the same metric.
	StoreCounts bool
	Logger      *slog.Logger          // nil: nothing is logged
	Registerer  prometheus.Registerer // nil: metrics are kept and not exposed
	Catalog     *signal.Catalog       // nil: signal.Default()
	Now         func() time.Time      // nil: time.Now

	// InfoInterval is how often rollscope_target_info is written; 0 is 30 s.
	InfoInterval time.Duration
	// ProbeTimeout bounds each request that finds out what a target is; 0 is 5 s.
	ProbeTimeout time.Duration
	// RefreshInterval is how often lists of workers and log files are looked at; 0 is 10 s and 1 s.
	RefreshInterval time.Duration
	// DiscoveryInterval is how often changed targets are taken over; 0 is 1 s.
	DiscoveryInterval time.Duration
}

// Manager scrapes. Make it with New, give it a configuration with Apply, then Run it. All methods
// may be called from several goroutines.
type Manager struct {
	opts    Options
	log     *slog.Logger
	prom    *promscrape.Manager
	metrics *metrics
	rule    *relabel.Config
	watch   *watcher
	lenient *lenience
	prober  *prober
	sources *sources
	fleet   *fleet

	mu        sync.Mutex
	cfg       *config.Config
	effective map[string]*promconfig.ScrapeConfig // by job
	disco     *discovery.Manager                  // non-nil while Run runs
	ran       bool
	sdMetrics *discovery.SDMetrics
}

// New makes a Manager that scrapes nothing yet.
func New(o Options) (*Manager, error) {
	if o.Appendable == nil {
		return nil, errors.New("scrape: Options.Appendable is nil: there is nowhere to write to")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Catalog == nil {
		o.Catalog = signal.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	setDefault(&o.InfoInterval, 30*time.Second)
	setDefault(&o.ProbeTimeout, 5*time.Second)
	setDefault(&o.DiscoveryInterval, time.Second)
	m := &Manager{opts: o, log: o.Logger.With("component", "scrape"), effective: map[string]*promconfig.ScrapeConfig{}}
	var err error
	if m.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("scrape: registering metrics: %w", err)
	}
	if m.rule, err = spellingRule(); err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	m.fleet = newFleet()
	m.watch = newWatcher(m)
	m.lenient = newLenience(m)
	m.prober = newProber(m)
	m.sources = newSources(m)
	m.prom, err = promscrape.NewManager(&promscrape.Options{
		// The target in the context is how the appender knows whose samples it sees.
		PassMetadataInContext:    true,
		DiscoveryReloadInterval:  model.Duration(o.DiscoveryInterval),
		DiscoveryReloadOnStartup: true,
		HTTPClientOptions:        []commonconfig.HTTPClientOption{commonconfig.WithDialContextFunc(m.lenient.dial)},
	}, slog.New(&tap{m: m, next: m.log.Handler()}), logging.NewJSONFileLogger, nil, m.watch, o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	if m.sdMetrics, err = discovery.CreateAndRegisterSDMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	return m, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// Prom is Prometheus's own manager, for its HTTP API. Its configuration is the one given to Apply
// with one metric_relabel rule added to each job.
func (m *Manager) Prom() *promscrape.Manager { return m.prom }

// Apply takes a configuration over: at once when the manager runs, else when it starts. On an error
// the configuration before stays in force.
func (m *Manager) Apply(c *config.Config) error {
	if c == nil || c.Prometheus == nil {
		return errors.New("scrape: Apply needs a configuration from config.Load or config.FromFlags")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.effectiveConfig(c)
	if err != nil {
		return fmt.Errorf("scrape: %w", err)
	}
	old := m.cfg
	if err := m.use(c, next); err != nil {
		if old != nil {
			if prev, perr := m.effectiveConfig(old); perr == nil {
				err = errors.Join(err, m.use(old, prev))
			}
		}
		return fmt.Errorf("scrape: the configuration before stays in force: %w", err)
	}
	return nil
}

// use hands a configuration to all parts; m.mu is held.
func (m *Manager) use(c *config.Config, next *promconfig.Config) error {
	byJob := make(map[string]*promconfig.ScrapeConfig, len(next.ScrapeConfigs))
	sets := make(map[string]discovery.Configs, len(next.ScrapeConfigs))
	for _, sc := range next.ScrapeConfigs {
		byJob[sc.JobName] = sc
		sets[sc.JobName] = sc.ServiceDiscoveryConfigs
	}
	m.prober.configure(byJob)
	// Targets of a job come after the job: the scrape manager does not look again for one it did not know.
	if err := m.prom.ApplyConfig(next); err != nil {
		return err
	}
	m.sources.configure(c, byJob)
	if m.disco != nil {
		if err := m.disco.ApplyConfig(sets); err != nil {
			return err
		}
	}
	if m.cfg != nil && !reflect.DeepEqual(m.cfg.Rollscope.Engines, c.Rollscope.Engines) {
		m.watch.each(func(t *target) { // their roles may be others now
			t.mu.Lock()
			t.identified = false
			t.mu.Unlock()
		})
	}
	m.cfg, m.effective = c, byJob
	return nil
}

// effectiveConfig is the configuration that Prometheus's manager gets: every job with our rule
// behind the user's own, and jobs for the routers and logs that flags name.
func (m *Manager) effectiveConfig(c *config.Config) (*promconfig.Config, error) {
	scs, err := c.Prometheus.GetScrapeConfigs()
	if err != nil {
		return nil, err
	}
	next := *c.Prometheus
	next.ScrapeConfigFiles = nil
	next.ScrapeConfigs = make([]*promconfig.ScrapeConfig, 0, len(scs)+3)
	taken := map[string]bool{}
	for _, sc := range scs {
		taken[sc.JobName] = true
		next.ScrapeConfigs = append(next.ScrapeConfigs, m.adapt(sc))
	}
	for _, j := range dynamicJobs(c, taken) {
		sc := promconfig.DefaultScrapeConfig
		sc.JobName, sc.MetricsPath = j.name, j.path
		if err := sc.Validate(c.Prometheus.GlobalConfig); err != nil {
			return nil, fmt.Errorf("job %s: %w", j.name, err)
		}
		next.ScrapeConfigs = append(next.ScrapeConfigs, m.adapt(&sc))
	}
	return &next, nil
}

// adapt copies a scrape config and adds to it.
func (m *Manager) adapt(sc *promconfig.ScrapeConfig) *promconfig.ScrapeConfig {
	out := *sc
	if !isLoadsPath(sc.MetricsPath) {
		// Behind the user's own rules, which are written for what the target says. Prometheus
		// evaluates the rules only when it sees a series for the first time (its cache is keyed by
		// the text of the series), so this costs nothing per scrape.
		out.MetricRelabelConfigs = append(append([]*relabel.Config{}, sc.MetricRelabelConfigs...), m.rule)
	}
	if out.ScrapeFallbackProtocol == "" {
		// Proxies strip the content type of a good exposition. What is none still fails to parse.
		out.ScrapeFallbackProtocol = promconfig.PrometheusText0_0_4
	}
	return &out
}

// Run scrapes until ctx ends. It may be called once. It returns nil after an orderly stop.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return errors.New("scrape: Run was called twice")
	}
	m.ran = true
	// Discovery has its own context: it stops before the scrapes do, which are not cut short.
	dctx, stopDiscovery := context.WithCancel(context.WithoutCancel(ctx))
	m.disco = discovery.NewManager(dctx, m.log.With("part", "discovery"), m.opts.Registerer, m.sdMetrics,
		discovery.Name("scrape"), discovery.Updatert(m.opts.DiscoveryInterval))
	if m.disco == nil {
		m.mu.Unlock()
		stopDiscovery()
		return errors.New("scrape: the discovery manager could not be made; its metrics are registered already")
	}
	sets := make(map[string]discovery.Configs, len(m.effective))
	for job, sc := range m.effective {
		sets[job] = sc.ServiceDiscoveryConfigs
	}
	err := m.disco.ApplyConfig(sets)
	disco := m.disco
	m.mu.Unlock()
	if err != nil {
		stopDiscovery()
		return fmt.Errorf("scrape: %w", err)
	}

	var wg sync.WaitGroup
	sync := make(chan map[string][]*targetgroup.Group)
	start := func(f func()) {
		wg.Add(1)
		go func() { defer wg.Done(); f() }()
	}
	mctx, stopMerge := context.WithCancel(context.WithoutCancel(ctx))
	pctx, stopProbes := context.WithCancel(context.WithoutCancel(ctx))
	start(func() { _ = disco.Run() })
	start(func() { m.sources.run(mctx, disco.SyncCh(), sync) })
	start(func() { _ = m.prom.Run(sync) })
	start(func() { m.prober.run(pctx) })
	start(func() { m.lenient.serve(pctx) })
	start(func() { m.inform(pctx) })

	<-ctx.Done()
	// New targets first, then scrapes (the last ones are committed), then what explains them.
	stopDiscovery()
	stopMerge()
	m.prom.Stop()
	stopProbes()
	wg.Wait()
	m.prober.close()
	return nil
}
