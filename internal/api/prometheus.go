package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/grafana/regexp"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// Prometheus is what Prometheus's own HTTP API is served from. Engine and Queryable are needed; what is
// left out is answered as an empty list, or as not enabled.
type Prometheus struct {
	Engine     promql.QueryEngine
	Queryable  storage.SampleAndChunkQueryable
	Exemplars  storage.ExemplarQueryable
	Appendable storage.AppendableV2 // where the receivers write
	DB         func() *tsdb.DB      // for /status/tsdb and the admin paths; a store may open it anew
	Archive    ArchiveStats         // for /status/tsdb of an archive, when there is no DB
	Scrape     interface {          // *scrape.Manager
		v1.ScrapePoolsRetriever
		v1.TargetRetriever
	}
	Alertmanagers v1.AlertmanagerRetriever // *notifier.Manager
	Rules         v1.RulesRetriever        // *rules.Manager
	Config        func() config.Config     // secrets are masked by its String
	Flags         map[string]string        // as given on the command line, secrets masked
	LookbackDelta time.Duration            // 0 = 5m
	Retention     string                   // as shown: "15d or 20GB"
	Started       time.Time

	RemoteWriteReceiver bool // --web.enable-remote-write-receiver
	OTLPReceiver        bool // --web.enable-otlp-receiver
	AdminAPI            bool // --web.enable-admin-api
}

// ArchiveStats describes what an archive holds; *metricstore.Archive does.
type ArchiveStats interface {
	BlockMetas() []tsdb.BlockMeta
	Head() *tsdb.Head // nil without a log
}

// prometheusV1 mounts Prometheus's API. This is the only place that knows the order of NewAPI's
// arguments, so that a new library version is one file's work.
func (a *API) prometheusV1() http.Handler {
	p := &a.Options.Prometheus
	if p.Scrape == nil {
		p.Scrape = noTargets{}
	}
	if p.Alertmanagers == nil {
		p.Alertmanagers = noAlertmanagers{}
	}
	if p.Rules == nil {
		p.Rules = noRules{}
	}
	if p.Exemplars == nil {
		p.Exemplars = noExemplars{}
	}
	if p.Config == nil {
		p.Config = func() config.Config { return config.DefaultConfig }
	}
	if p.LookbackDelta == 0 {
		p.LookbackDelta = 5 * time.Minute // Prometheus's own default
	}
	gatherer := a.Gatherer
	if gatherer == nil {
		gatherer = prometheus.Gatherers{}
	}
	// Origins are the border's business: nothing is added here.
	noOrigin := regexp.MustCompile(`^\b$`)

	api := v1.NewAPI(
		p.Engine,
		p.Queryable,
		p.Appendable,
		p.Exemplars,
		func(context.Context) v1.ScrapePoolsRetriever { return p.Scrape },
		func(context.Context) v1.TargetRetriever { return p.Scrape },
		func(context.Context) v1.AlertmanagerRetriever { return p.Alertmanagers },
		p.Config,
		p.Flags,
		a.globalURL(),
		a.whenReady,
		adminStats{p.DB, p.Archive},
		a.Dir,
		p.AdminAPI,
		false, // enableSearch: experimental paths that the table does not have
		0,     // maxSearchLimit
		a.log.With("face", "prometheus"),
		func(context.Context) v1.RulesRetriever { return p.Rules },
		50_000_000, // remoteReadSampleLimit
		10,         // remoteReadConcurrencyLimit
		1<<20,      // remoteReadMaxBytesInFrame
		false,      // isAgent
		noOrigin,
		a.runtimeInfo,
		&v1.PrometheusVersion{Version: promVersion(), Revision: "rollscope " + a.Version, GoVersion: runtime.Version()},
		func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, func() {}, false },
		gatherer,
		a.Registerer,
		nil, // statsRenderer: the default
		p.RemoteWriteReceiver && p.Appendable != nil,
		remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType},
		p.OTLPReceiver && p.Appendable != nil,
		false, false, // OTLP deltas: refused, not guessed
		p.LookbackDelta,
		false, // enableTypeAndUnitLabels
		false, // appendMetadata
		nil,   // overrideErrorCode: the default
		features.NewRegistry(),
		v1.OpenAPIOptions{ExternalURL: a.externalURL(), Version: a.Version},
		parser.NewParser(parser.Options{}),
		false, // enableQueryCost
		0,     // queryTimeoutFlag, only for the cost
	)
	router := route.New()
	api.Register(router)
	return http.StripPrefix("/api/v1", router)
}

// promVersion is the version of the Prometheus library: Grafana reads it to know what the API can do.
func promVersion() string {
	const module, fallback = "github.com/prometheus/prometheus", "3.0.0"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fallback
	}
	for _, m := range info.Deps {
		// The module of Prometheus 3.16.0 is v0.316.0.
		var minor, patch int
		if m.Path != module {
			continue
		}
		if n, _ := fmt.Sscanf(m.Version, "v0.%d.%d", &minor, &patch); n == 2 && minor >= 300 {
			return fmt.Sprintf("%d.%d.%d", minor/100, minor%100, patch)
		}
	}
	return fallback
}

func (a *API) externalURL() string {
	if a.Hosts.External != nil {
		return a.Hosts.External.String()
	}
	if len(a.Hosts.Listen) > 0 {
		return "http://" + a.Hosts.Listen[0].String()
	}
	return "http://localhost"
}

func (a *API) globalURL() v1.GlobalURLOptions {
	o := v1.GlobalURLOptions{ListenAddress: "localhost:80", Host: "localhost:80", Scheme: "http"}
	if len(a.Hosts.Listen) > 0 {
		o.ListenAddress, o.Host = a.Hosts.Listen[0].String(), a.Hosts.Listen[0].String()
	}
	if u := a.Hosts.External; u != nil {
		o.Host, o.Scheme = u.Host, u.Scheme
	}
	return o
}

// whenReady is the check before each of Prometheus's handlers.
func (a *API) whenReady(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, facePrometheus, e)
			return
		}
		next(w, r)
	}
}

func (a *API) runtimeInfo() (v1.RuntimeInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return v1.RuntimeInfo{}, fmt.Errorf("read this machine's name: %w", err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "" // it was removed; nothing depends on it
	}
	return v1.RuntimeInfo{
		StartTime:           a.Prometheus.Started,
		CWD:                 cwd,
		Hostname:            host,
		ServerTime:          a.Now().UTC(),
		ReloadConfigSuccess: true,
		LastConfigTime:      a.Prometheus.Started,
		GoroutineCount:      runtime.NumGoroutine(),
		GOMAXPROCS:          runtime.GOMAXPROCS(0),
		GOMEMLIMIT:          debug.SetMemoryLimit(-1),
		GOGC:                os.Getenv("GOGC"),
		GODEBUG:             os.Getenv("GODEBUG"),
		StorageRetention:    a.Prometheus.Retention,
	}, nil
}

// adminStats shows a TSDB to Prometheus's API; without one (an archive), it says that there is none.
type adminStats struct {
	open    func() *tsdb.DB
	archive ArchiveStats
}

var errNoDB = fmt.Errorf("this process has no store of its own to change: %w", tsdb.ErrNotReady)

func (s adminStats) db() (*tsdb.DB, error) {
	if s.open != nil {
		if db := s.open(); db != nil {
			return db, nil
		}
	}
	return nil, errNoDB
}

func (s adminStats) CleanTombstones() error {
	db, err := s.db()
	if err != nil {
		return err
	}
	return db.CleanTombstones()
}

func (s adminStats) Delete(ctx context.Context, mint, maxt int64, ms ...*labels.Matcher) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	return db.Delete(ctx, mint, maxt, ms...)
}

func (s adminStats) Snapshot(dir string, withHead bool) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	return db.Snapshot(dir, withHead)
}

func (s adminStats) Stats(label string, limit int) (*tsdb.Stats, error) {
	if db, err := s.db(); err == nil {
		return db.Head().Stats(label, limit), nil
	}
	if s.archive == nil {
		return nil, errNoDB
	}
	if head := s.archive.Head(); head != nil {
		return head.Stats(label, limit), nil
	}
	return &tsdb.Stats{IndexPostingStats: &index.PostingsStats{}}, nil // blocks only: nothing is in memory
}

// WALReplayStatus is that of a finished replay: requests are served after it.
func (s adminStats) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	return tsdb.WALReplayStatus{}, nil
}

func (s adminStats) BlockMetas() ([]tsdb.BlockMeta, error) {
	if db, err := s.db(); err == nil {
		return db.BlockMetas(), nil
	}
	if s.archive == nil {
		return nil, errNoDB
	}
	return s.archive.BlockMetas(), nil
}

type noTargets struct{}

func (noTargets) ScrapePools() []string                       { return nil }
func (noTargets) TargetsActive() map[string][]*scrape.Target  { return nil }
func (noTargets) TargetsDropped() map[string][]*scrape.Target { return nil }
func (noTargets) TargetsDroppedCounts() map[string]int        { return nil }
func (noTargets) ScrapePoolConfig(pool string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("there is no scrape pool %q: nothing is scraped here", pool)
}

type noAlertmanagers struct{}

func (noAlertmanagers) Alertmanagers() []*url.URL        { return nil }
func (noAlertmanagers) DroppedAlertmanagers() []*url.URL { return nil }

type noRules struct{}

func (noRules) RuleGroups() []*rules.Group           { return nil }
func (noRules) AlertingRules() []*rules.AlertingRule { return nil }

type noExemplars struct{}

func (n noExemplars) ExemplarQuerier(context.Context) (storage.ExemplarQuerier, error) {
	return n, nil
}

func (noExemplars) Select(_, _ int64, _ ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return nil, nil
}
