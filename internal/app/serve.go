package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/units"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	promconfig "github.com/prometheus/prometheus/config"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/scrape"
	rssignal "github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/web"
)

// StoreOptions are the flags of the data directory and of queries on it. Zero values mean the defaults
// of [metricstore.Options].
type StoreOptions struct {
	Dir              string
	Retention        time.Duration
	RetentionBytes   units.Base2Bytes
	OutOfOrder       time.Duration // 0 takes nothing out of order
	SnapshotTo       string
	SnapshotEvery    time.Duration
	QueryTimeout     time.Duration
	QueryConcurrency int
	QuerySamples     int
	Lookback         time.Duration
}

// ServeOptions configure [Serve].
type ServeOptions struct {
	ConfigFile     string   // a prometheus.yml with an optional section rollscope; "" for none
	Scrape         []string // HOST:PORT[/path], besides the file's targets
	ScrapeInterval time.Duration
	ScrapeFromLog  string // log of a slime job to follow for the router's address; "" for none
	RouterIP       string // of slime's router, with RouterPort; "" for none
	RouterPort     int
	Rollouts       []string // patterns of dumps, besides the file's

	Store  StoreOptions
	Web    WebOptions
	Events EventOptions
	FPM    FPMOptions     // sources of forward passes, besides the file's
	System *SystemOptions // the unified endpoint; nil = none

	RemoteWriteReceiver bool
	OTLPReceiver        bool
	Lifecycle           bool // accepted, has no effect: reload is open to the admin scope
	AdminAPI            bool
	BuiltinRules        bool

	Logger  *slog.Logger
	Version string
	Out     io.Writer // the address is printed here, once it answers
	Flags   map[string]string

	mode     api.Mode
	nextPort bool             // take the next port when one is busy
	started  func(url string) // called once the API answers
}

// Serve records until ctx ends.
func Serve(ctx context.Context, o ServeOptions) error {
	if o.mode == "" {
		o.mode = api.ModeLive
	}
	// A SIGHUP that nobody takes ends the process, also while it starts and while it stops: it is taken from here on,
	// and never given back.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	r, err := openRecorder(ctx, o)
	if err != nil {
		return err
	}
	r.hup = hup
	return r.run(ctx)
}

// recorder is a running serve: every part, wired.
type recorder struct {
	opts     ServeOptions
	log      *slog.Logger
	registry *prometheus.Registry
	sockets  *sockets
	store    *metricstore.Store
	scraper  *scrape.Manager
	rules    *metricstore.Rules
	api      *api.API
	faces    *faces
	rollouts *rolloutPart
	events   *eventPart
	passes   *passPart
	started  time.Time
	hup      <-chan os.Signal // asks for a reload

	config    atomic.Pointer[config.Config]
	reloading sync.Mutex // requests and SIGHUP ask for it: one at a time, so that no two halves are in force
	stopping  atomic.Bool
}

// openRecorder opens the parts in the order in which a failure costs least: the configuration, the
// sockets, then the store.
func openRecorder(ctx context.Context, o ServeOptions) (_ *recorder, err error) {
	r := &recorder{opts: o, log: o.Logger, registry: prometheus.NewRegistry(), started: time.Now()}
	r.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollscope_build_info", Help: "Always 1; the version is in the label.",
			ConstLabels: prometheus.Labels{"version": o.Version},
		}, func() float64 { return 1 }),
	)
	cfg, err := o.loadConfig()
	if err != nil {
		return nil, err
	}
	cat, err := catalogOf(cfg)
	if err != nil {
		return nil, err
	}
	if r.sockets, err = listen(o.Web, o.nextPort); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.sockets.close()
		}
	}()
	if r.sockets.system, err = openSystem(o.System, o.Web, r); err != nil {
		return nil, err
	}

	s := o.Store
	outOfOrder := s.OutOfOrder
	if outOfOrder == 0 {
		outOfOrder = -1 // of the store 0 is the default
	}
	r.store, err = metricstore.Open(ctx, metricstore.Options{
		Dir: s.Dir, Retention: s.Retention, RetentionBytes: int64(s.RetentionBytes), OutOfOrderWindow: outOfOrder,
		SnapshotTo: s.SnapshotTo, SnapshotEvery: s.SnapshotEvery,
		QueryTimeout: s.QueryTimeout, QueryConcurrency: s.QueryConcurrency, QueryMaxSamples: s.QuerySamples, LookbackDelta: s.Lookback,
		Logger: o.Logger, Registerer: r.registry, Catalog: cat,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.store.Close())
		}
	}()
	r.scraper, err = scrape.New(scrape.Options{
		Appendable: r.store.Appendable(), StoreCounts: true, Logger: o.Logger, Registerer: r.registry, Catalog: cat,
	})
	if err != nil {
		return nil, err
	}
	r.store.SetScrapeManager(r.scraper.Prom())
	r.registry.MustRegister(dropped{r.sockets.system.drops})
	r.rules, err = metricstore.NewRules(metricstore.RulesOptions{
		Appendable: r.store.Appendable(), Queryable: r.store.Queryable(), Engine: r.store.Engine(),
		Catalog: cat, Drops: r.store.Dropped, ExternalURL: r.sockets.linkURL(), Logger: o.Logger, Registerer: r.registry,
	})
	if err != nil {
		return nil, err
	}
	r.faces = newFaces(r.store.Queryable(), r.store.Engine(), o.Logger)
	r.events, err = openEvents(ctx, r.store.Dir(), o.Events, cfg, o.Web, o.Logger, r.registry, o.nextPort)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.events.close())
		}
	}()
	r.registry.MustRegister(dropped{r.events.drops})
	metrics := metricsSource{r.store.Queryable(), r.store.Engine(), r.faces.reader}
	r.passes, err = openPasses(cfg, o.FPM, r.events.store, r.store.Dir(), metrics, r.events.engineOf, newPlanning(metrics, o.Logger), o.Logger, r.registry)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.passes.close())
		}
	}()
	r.registry.MustRegister(dropped{r.passes.drops})
	r.passes.alerts = api.StoreRules(r.rules).Alerts
	r.rollouts, err = openRollouts(s.Dir, o.Version, o.Logger, r.faces.reader)
	if err != nil {
		return nil, err
	}
	r.rollouts.requests = r.events.requests
	r.registry.MustRegister(dropped{r.rollouts.drops})
	defer func() {
		if err != nil {
			err = errors.Join(err, r.rollouts.close())
		}
	}()
	if err := r.apply(cfg); err != nil {
		return nil, err
	}
	ui, err := web.New()
	if err != nil {
		return nil, err
	}
	r.api, err = api.New(r.apiOptions(ui))
	if err != nil {
		return nil, err
	}
	r.rollouts.changed = r.api.Evaluated
	return r, nil
}

func (r *recorder) apiOptions(ui http.Handler) api.Options {
	return api.Options{
		Mode: r.opts.mode, Version: r.opts.Version, Dir: r.store.Dir(), Logger: r.log,
		Registerer: r.registry, Gatherer: r.registry,
		Hosts: r.sockets.hosts(), Access: r.sockets.access(),
		Reader: api.NewStoreReader(r.faces.reader), Catalog: r.faces, Boards: r.faces,
		Targets: api.ScrapeTargets{Manager: r.scraper}, Rules: api.StoreRules(r.rules),
		Rollouts: r.rollouts.face, Timelines: r.rollouts.face,
		Traces: r.events.traces, Requests: r.events.requests, TraceRequest: r.events.requests.OfTrace, Logs: r.events.face(), Events: r.events.face(), Passes: r.passes,
		System: r.sockets.system.face(),
		Prometheus: api.Prometheus{
			Engine: r.store.Engine(), Queryable: r.store.Queryable(), Exemplars: r.store.ExemplarQueryable(),
			Appendable: r.store.Appendable(), DB: r.store.DB, Scrape: r.scraper.Prom(),
			Alertmanagers: r.rules.Notifier(), Rules: r.rules.Manager(),
			Config: func() promconfig.Config { return *r.config.Load().Prometheus }, Flags: r.opts.Flags,
			LookbackDelta: r.opts.Store.Lookback, Retention: r.opts.Store.Retention.String(), Started: r.started,
			RemoteWriteReceiver: r.opts.RemoteWriteReceiver, OTLPReceiver: r.opts.OTLPReceiver, AdminAPI: r.opts.AdminAPI,
		},
		Drops: func() []api.Drop {
			return slices.Concat(api.ScrapeDrops(r.scraper), api.StoreDrops(r.store), r.rollouts.drops(), r.events.drops(), r.passes.drops(), r.sockets.system.drops())
		},
		Notices: func() []api.Warning {
			return slices.Concat(api.FromNotices(r.store.Notices()), r.events.notices(), r.passes.notices(), r.notices())
		},
		ConfigView: func() api.ConfigView {
			c := r.config.Load()
			return api.ConfigView{Path: c.Path, YAML: c.Prometheus.String(), Flags: r.opts.Flags}
		},
		Ready: func() api.Readiness {
			if r.stopping.Load() {
				return api.Stopping
			}
			return api.Ready
		},
		Reload: func(context.Context) error { return r.reload() },
		UI:     ui,
	}
}

// notices are what this process has to say about itself beyond its store.
func (r *recorder) notices() []api.Warning {
	var out []api.Warning
	if at := r.sockets.strangers(r.events.doors.tempo); len(at) > 0 {
		out = append(out, api.Warning{
			Code:    "reads_only",
			Message: "this server listens beyond this machine without users: it records as always, and answers reads only",
			Where:   strings.Join(at, ", "),
			Hint:    "set users and TLS with --web.config.file, or listen on 127.0.0.1",
		})
	}
	for _, w := range r.config.Load().Warnings {
		out = append(out, api.Warning{Code: "config", Message: w, Where: r.config.Load().Path})
	}
	return out
}

// apply puts a configuration in force. Whatever refuses it first keeps what was there before; the parts
// before it are put back, so that no half of a configuration runs.
func (r *recorder) apply(cfg *config.Config) error {
	cat, boards, err := shownBy(cfg)
	if err != nil {
		return err
	}
	builtIn, err := builtinRules(cat, cfg.Rollscope.Alerts, r.opts.BuiltinRules)
	if err != nil {
		return fmt.Errorf("%s: %w", cfg.Path, err)
	}
	var hooks []string
	for _, h := range cfg.Rollscope.Webhooks {
		hooks = append(hooks, h.URL)
	}
	if err := r.rules.Apply(cfg.Prometheus, builtIn, hooks); err != nil {
		return err
	}
	back := func(err error) error {
		if old := r.config.Load(); old != nil {
			if e := r.apply(old); e != nil {
				return errors.Join(err, fmt.Errorf("and the configuration before could not be put back: %w", e))
			}
		}
		return err
	}
	if err := r.store.ApplyConfig(cfg.Prometheus); err != nil {
		return back(err)
	}
	if err := r.scraper.Apply(cfg); err != nil {
		return back(err)
	}
	if err := r.rollouts.apply(cfg); err != nil {
		return back(err)
	}
	if err := r.events.apply(cfg); err != nil {
		return back(err)
	}
	if err := r.passes.apply(cfg); err != nil {
		return back(err)
	}
	r.faces.use(cat, boards, cfg.Rollscope.Engines)
	if err := keepMeaning(r.store.Dir(), cfg, r.log); err != nil { // recording does not depend on it
		r.log.Warn("The names of engines, the signals and the boards of the configuration could not be kept beside the recording; who opens it later sees the built-in ones.", "err", err)
	}
	r.config.Store(cfg)
	return nil
}

// reload reads the configuration file again.
func (r *recorder) reload() error {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	old := r.config.Load()
	cfg, err := r.opts.loadConfig()
	if err == nil {
		err = r.apply(cfg)
	}
	if err != nil {
		r.log.Error("configuration not taken over; the one before stays in force", "err", err)
		return err
	}
	r.log.Info("configuration taken over", "file", cfg.Path, "changes", cfg.Changes(old))
	return nil
}

func (r *recorder) run(ctx context.Context) error {
	for _, n := range append(api.FromNotices(r.store.Notices()), r.notices()...) {
		r.log.Warn(n.Message, "where", n.Where, "do", n.Hint)
	}
	g := &group{logger: r.log, grace: 2 * time.Minute}
	g.add(actor{name: "store", stop: r.store.Close, why: "last: all others write into it or read from it"})
	g.add(actor{name: "rules", run: r.rules.Run, why: "after the scraper: the last scrape is still judged"})
	g.add(actor{name: "own metrics", run: func(ctx context.Context) error {
		return recordSelf(ctx, r.registry, r.store.Appendable(), r.sockets.address(), r.log)
	}, why: "with the store that it writes into"})
	g.add(actor{name: "events", run: r.events.run, stop: r.events.close, why: "after the rollouts, whose requests it takes"})
	g.add(actor{name: "passes", run: r.passes.run, stop: r.passes.close, why: "before the events, into which it writes"})
	g.add(actor{name: "rollouts", run: r.rollouts.run, stop: r.rollouts.close, why: "after the API; it reads signals of the store"})
	g.add(actor{name: "scraper", run: r.scraper.Run, why: "after the API: a page that is open sees the end"})
	g.add(actor{name: "evaluations", run: r.tick, why: "with the API, which it feeds"})
	g.add(actor{name: "reload", run: r.hangups, why: "before what it changes is torn down"})
	g.add(actor{name: "api", run: func(ctx context.Context) error {
		go r.announce()
		return r.sockets.serve(ctx, r.api, r.events.doors.tempo)
	}, why: "first: nobody asks a server that is going down"})
	go func() {
		<-ctx.Done()
		r.stopping.Store(true)
	}()
	return g.run(ctx)
}

func (r *recorder) announce() {
	if r.opts.Out != nil {
		fmt.Fprintf(r.opts.Out, "rollscope %s: %s\n%s", r.opts.Version, r.sockets.url(), r.sockets.system.announcement())
	}
	if r.opts.started != nil {
		r.opts.started(r.sockets.url())
	}
}

// tick tells open pages that there is something new. Scrapes of many targets come at any moment; a
// page that redraws every two seconds is live enough.
func (r *recorder) tick(ctx context.Context) error {
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			r.api.Evaluated()
		}
	}
}

// hangups reloads on SIGHUP.
func (r *recorder) hangups(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.hup:
			_ = r.reload() // it has logged why not
		}
	}
}

// loadConfig reads the file and adds the targets of the flags to it.
func (o ServeOptions) loadConfig() (*config.Config, error) {
	flags, err := config.FromFlags(o.Scrape, o.ScrapeInterval)
	if err != nil {
		return nil, err
	}
	cfg := flags
	if o.ConfigFile != "" {
		data, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--config.file: %w", err)
		}
		if cfg, err = config.Load(data, o.ConfigFile); err != nil {
			return nil, err
		}
		if err := cfg.Add(flags); err != nil {
			return nil, err
		}
	}
	if o.ScrapeFromLog != "" {
		cfg.FollowLogs = append(cfg.FollowLogs, o.ScrapeFromLog)
	}
	for _, path := range o.Rollouts {
		if err := config.CheckRolloutPath(path); err != nil {
			return nil, fmt.Errorf("--rollouts: %w", err)
		}
		cfg.Rollscope.Rollouts = append(cfg.Rollscope.Rollouts, config.Rollout{Path: path})
	}
	if err := checkLogs(o.Events.Logs); err != nil {
		return nil, err
	}
	switch {
	case o.RouterIP != "" && o.RouterPort > 0:
		cfg.Routers = append(cfg.Routers, config.Router{Host: o.RouterIP, Port: o.RouterPort})
	case o.RouterIP != "" || o.RouterPort != 0:
		return nil, errors.New("--sglang-router-ip and --sglang-router-port go together: give both")
	}
	return cfg, nil
}

// catalogOf is the catalog with the signals that a configuration adds.
func catalogOf(cfg *config.Config) (*rssignal.Catalog, error) {
	cat, err := rssignal.Default().With(dashboard.CustomSignals(cfg.Rollscope.Signals))
	if err != nil {
		return nil, fmt.Errorf("%s: rollscope.signals: %w", cfg.Path, err)
	}
	return cat, nil
}

// shownBy is that catalog, and the boards that the configuration adds.
func shownBy(cfg *config.Config) (*rssignal.Catalog, []dashboard.Board, error) {
	cat, err := catalogOf(cfg)
	if err != nil {
		return nil, nil, err
	}
	boards, err := dashboard.Custom(cat, cfg.Rollscope.Boards)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cfg.Path, err)
	}
	return cat, boards, nil
}
