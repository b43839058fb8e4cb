package metricstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/signal"
)

// RuleFile is a rule file in memory. Its name stands where a path would stand.
type RuleFile struct {
	Name string // "built-in alerts"
	Data []byte // YAML, as Prometheus's rule files
}

// RulesOptions configures [NewRules]. Appendable, Queryable and Engine are required.
type RulesOptions struct {
	Appendable storage.AppendableV2
	Queryable  storage.Queryable // under any spelling
	Engine     promql.QueryEngine
	Catalog    *signal.Catalog
	Drops      func(source, reason string, n int) // counts notifications that were not delivered; nil: nobody does

	ExternalURL   *url.URL      // this program as others reach it, for links in notifications; nil: none
	QueueCapacity int           // alerts that wait for each Alertmanager and messages for each webhook; 0: 10000 and 500
	ResendDelay   time.Duration // 0: 1 minute
	// Retry is the first pause after a webhook that could not be reached, doubled up to a minute; 0: 1 second.
	Retry time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Rules evaluates recording and alerting rules and tells Alertmanagers and webhooks. Apply it a
// configuration, then Run it. Its methods may be called from any goroutine.
type Rules struct {
	opts     RulesOptions
	log      *slog.Logger
	parser   parser.Parser
	manager  *rules.Manager
	notifier *notifier.Manager
	sd       *discovery.Manager
	stopSD   context.CancelFunc
	hooks    *webhooks

	applying sync.Mutex // one configuration at a time, as a whole: of two the later one stays

	mu      sync.Mutex
	builtIn []RuleFile
	files   []string // identifiers of the groups: names of built-in files and paths
	applied *promconfig.Config
	running bool
	offline []*rules.Group // for EvalAt
}

// NewRules makes a rule manager without rules.
func NewRules(o RulesOptions) (*Rules, error) {
	filled := Options{Logger: o.Logger, Registerer: o.Registerer, Catalog: o.Catalog, Now: o.Now}.withDefaults()
	o.Logger, o.Registerer, o.Catalog, o.Now = filled.Logger, filled.Registerer, filled.Catalog, filled.Now
	if o.Appendable == nil || o.Queryable == nil || o.Engine == nil {
		return nil, errors.New("metricstore: rules need an appendable, a queryable and an engine")
	}
	if o.ExternalURL == nil {
		o.ExternalURL = &url.URL{}
	}
	if o.Drops == nil {
		o.Drops = func(string, string, int) {}
	}
	o.ResendDelay = orDefault(o.ResendDelay, time.Minute)
	r := &Rules{opts: o, log: o.Logger, parser: parser.NewParser(parser.Options{})}
	r.notifier = notifier.NewManager(&notifier.Options{
		QueueCapacity:   orDefault(o.QueueCapacity, 10_000),
		DrainOnShutdown: true,
		Registerer:      o.Registerer,
	}, model.UTF8Validation, r.log.With("component", "notifier"))
	r.hooks = newWebhooks(o, r.log)

	// Discovery mechanisms register metrics of their own, and the scraper's discovery registers the same:
	// these stay in a registry that nobody reads.
	private := prometheus.NewRegistry()
	sdMetrics, err := discovery.CreateAndRegisterSDMetrics(private)
	if err != nil {
		return nil, fmt.Errorf("metricstore: discovery of Alertmanagers: %w", err)
	}
	sdCtx, stop := context.WithCancel(context.Background())
	r.stopSD = stop
	r.sd = discovery.NewManager(sdCtx, r.log.With("component", "discovery of alertmanagers"), private, sdMetrics, discovery.Name("notify"))
	if r.sd == nil {
		stop()
		return nil, errors.New("metricstore: discovery of Alertmanagers could not be set up: the log says why")
	}
	r.manager = rules.NewManager(r.managerOptions(o.Registerer, r.notify))
	return r, nil
}

func (r *Rules) managerOptions(reg prometheus.Registerer, notify rules.NotifyFunc) *rules.ManagerOptions {
	o := r.opts
	return &rules.ManagerOptions{
		NameValidationScheme: model.UTF8Validation,
		AppendableV2:         o.Appendable,
		Queryable:            o.Queryable,
		QueryFunc:            r.query,
		NotifyFunc:           notify,
		Context:              context.Background(),
		ExternalURL:          o.ExternalURL,
		Registerer:           reg,
		Logger:               r.log.With("component", "rules"),
		OutageTolerance:      time.Hour,
		ForGracePeriod:       10 * time.Minute,
		ResendDelay:          o.ResendDelay,
		GroupLoader:          r,
		Parser:               r.parser,
		DefaultRuleQueryOffset: func() time.Duration {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.applied == nil {
				return 0
			}
			return time.Duration(r.applied.GlobalConfig.RuleQueryOffset)
		},
	}
}

// query evaluates a rule. Names that are not stored are BlindRules's business, not a warning at each evaluation.
func (r *Rules) query(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	return rules.EngineQueryFunc(r.opts.Engine, r.opts.Queryable)(WithoutNameNotes(ctx), expr, at)
}

func (r *Rules) notify(ctx context.Context, expr string, alerts ...*rules.Alert) {
	r.hooks.send(expr, alerts)
	rules.SendAlerts(r.notifier, r.opts.ExternalURL.String())(ctx, expr, alerts...)
}

// Apply takes the rule files, Alertmanagers and evaluation interval of a configuration, the built-in
// files, and the URLs of webhooks. Rules that did not change keep their state. When anything cannot be
// read, the error says where, and what was applied before stays in force.
func (r *Rules) Apply(cfg *promconfig.Config, builtIn []RuleFile, hooks []string) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	var files []string
	for _, b := range builtIn {
		files = append(files, b.Name)
	}
	for _, pattern := range cfg.RuleFiles {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("metricstore: rule_files %s: %w", pattern, err)
		}
		if len(found) == 0 { // Prometheus takes such a configuration, so do we
			r.log.Warn("no rule file matches", "rule_files", pattern)
		}
		files = append(files, found...)
	}
	r.mu.Lock()
	oldBuiltIn := r.builtIn
	r.builtIn = builtIn
	r.mu.Unlock()
	restore := func(err error) error {
		r.mu.Lock()
		r.builtIn = oldBuiltIn
		r.mu.Unlock()
		return err
	}
	// Read everything first: the manager logs what is wrong in a file and returns only that something is.
	for _, f := range files {
		if _, errs := r.Load(f, false, model.UTF8Validation); len(errs) > 0 {
			return restore(fmt.Errorf("metricstore: rules: %w", errors.Join(errs...)))
		}
	}
	if err := r.hooks.apply(hooks); err != nil {
		return restore(err)
	}
	if err := r.notifier.ApplyConfig(cfg); err != nil {
		return restore(fmt.Errorf("metricstore: alerting.alertmanagers: %w", err))
	}
	r.mu.Lock()
	r.files, r.applied, r.offline = files, cfg, nil
	running := r.running
	r.mu.Unlock()
	if running {
		return r.update()
	}
	return nil
}

// update gives the managers what was applied. They start goroutines, so nothing is given before Run. r.applying
// is held.
func (r *Rules) update() error {
	r.mu.Lock()
	cfg, files := r.applied, r.files
	r.mu.Unlock()
	if cfg == nil {
		return nil
	}
	sds := map[string]discovery.Configs{}
	for name, am := range cfg.AlertingConfig.AlertmanagerConfigs.ToMap() {
		sds[name] = am.ServiceDiscoveryConfigs
	}
	if err := r.sd.ApplyConfig(sds); err != nil {
		return fmt.Errorf("metricstore: alerting.alertmanagers: %w", err)
	}
	err := r.manager.Update(evaluationInterval(cfg), files, cfg.GlobalConfig.ExternalLabels, r.opts.ExternalURL.String(), nil)
	if err != nil {
		return fmt.Errorf("metricstore: rules: %w", err)
	}
	return nil
}

func evaluationInterval(cfg *promconfig.Config) time.Duration {
	return orDefault(time.Duration(cfg.GlobalConfig.EvaluationInterval), time.Minute)
}

// Run evaluates until ctx ends. Alert states of before are taken up from the store.
func (r *Rules) Run(ctx context.Context) error {
	r.applying.Lock()
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		r.applying.Unlock()
		return errors.New("metricstore: rules run already")
	}
	r.running = true
	r.mu.Unlock()
	err := r.update()
	r.applying.Unlock()
	if err != nil {
		r.stopSD()
		return err
	}
	var sd, notify, hooks, evaluate sync.WaitGroup
	sd.Go(func() { _ = r.sd.Run() }) // ends with its context, and says only that
	notify.Go(func() { r.notifier.Run(r.sd.SyncCh()) })
	hookCtx, stopHooks := context.WithCancel(context.Background())
	hooks.Go(func() { r.hooks.run(hookCtx) })
	evaluate.Go(r.manager.Run)

	<-ctx.Done()
	// First no more evaluations; then what they sent goes out; last the discovery that the notifier reads.
	r.manager.Stop()
	evaluate.Wait()
	stopHooks()
	hooks.Wait()
	r.notifier.Stop()
	notify.Wait()
	r.stopSD()
	sd.Wait()
	return nil
}

// Manager is Prometheus's rule manager, for its HTTP API. Do not update or stop it.
func (r *Rules) Manager() *rules.Manager { return r.manager }

// Notifier is Prometheus's notifier, for its HTTP API.
func (r *Rules) Notifier() *notifier.Manager { return r.notifier }

// Webhooks lists the webhooks' URLs, without what may be secret in them.
func (r *Rules) Webhooks() []string { return r.hooks.urls() }

// Source tells where a group's file comes from: "built-in", or its path.
func (r *Rules) Source(file string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.builtIn {
		if b.Name == file {
			return "built-in"
		}
	}
	return file
}

// Load implements [rules.GroupLoader]: a built-in file by its name, any other from disk.
func (r *Rules) Load(name string, ignoreUnknown bool, scheme model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	r.mu.Lock()
	i := slices.IndexFunc(r.builtIn, func(b RuleFile) bool { return b.Name == name })
	var data []byte
	if i >= 0 {
		data = r.builtIn[i].Data
	}
	r.mu.Unlock()
	if i < 0 {
		var err error
		if data, err = os.ReadFile(name); err != nil {
			return nil, []error{err}
		}
	}
	groups, errs := rulefmt.Parse(data, ignoreUnknown, scheme, r.parser, r.log)
	for i := range errs {
		errs[i] = fmt.Errorf("%s: %w", name, errs[i])
	}
	return groups, errs
}

// Parse implements [rules.GroupLoader].
func (r *Rules) Parse(expr string) (parser.Expr, error) { return r.parser.ParseExpr(expr) }

// EvalAt evaluates every group whose interval divides at, for stores that are written on a virtual clock:
// call it for each moment in turn, instead of Run. Nobody is notified.
func (r *Rules) EvalAt(ctx context.Context, at time.Time) error {
	r.mu.Lock()
	cfg, files, groups := r.applied, r.files, r.offline
	r.mu.Unlock()
	if cfg == nil {
		return errors.New("metricstore: no rules were applied")
	}
	if groups == nil {
		m := rules.NewManager(r.managerOptions(nil, func(context.Context, string, ...*rules.Alert) {}))
		loaded, errs := m.LoadGroups(evaluationInterval(cfg), cfg.GlobalConfig.ExternalLabels, "", nil, false, files...)
		if len(errs) > 0 {
			return fmt.Errorf("metricstore: rules: %w", errors.Join(errs...))
		}
		for _, f := range files { // in the order of the files, so that recordings precede alerts
			for _, name := range sortedKeys(loaded) {
				if loaded[name].File() == f {
					groups = append(groups, loaded[name])
				}
			}
		}
		r.mu.Lock()
		r.offline = groups
		r.mu.Unlock()
	}
	for _, g := range groups {
		if at.UnixNano()%int64(g.Interval()) != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		g.Eval(ctx, at)
		for _, rule := range g.Rules() {
			if err := rule.LastError(); err != nil {
				return fmt.Errorf("metricstore: rule %s of group %s at %s: %w", rule.Name(), g.Name(), at.UTC().Format(time.RFC3339), err)
			}
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
