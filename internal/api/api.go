// Package api is the HTTP face: one table of routes that serves our own API, Prometheus's, Grafana's
// search and the user interface behind the same checks of host, origin, scope and size.
// Its one entry point is [New].
package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/systemport"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// Mode is what this process does.
type Mode string

// Modes.
const (
	ModeLive    Mode = "live"    // records
	ModeDemo    Mode = "demo"    // records a simulated fleet
	ModeArchive Mode = "archive" // shows a finished record, read-only
	ModeView    Mode = "view"    // shows rollout dumps alone: there are no metrics
)

// Readiness is how far the process is in its life.
type Readiness string

// Readiness of the process: the store is being opened, everything works, or it is going down.
const (
	Starting Readiness = "starting"
	Ready    Readiness = "ready"
	Stopping Readiness = "stopping"
)

// Options are what the API is made of. Reader, Catalog and Prometheus go together; without them there
// are no metrics, and no routes that answer from them. The rest may be left out, as its comment says.
type Options struct {
	Mode    Mode
	Version string
	Dir     string // data directory, as shown
	Logger  *slog.Logger
	Now     func() time.Time // nil = time.Now

	Registerer prometheus.Registerer // for our own metrics, nil = none
	Gatherer   prometheus.Gatherer   // what /metrics shows, nil = nothing

	Hosts  Hosts
	Access Access

	Reader     Reader
	Catalog    Catalog
	Prometheus Prometheus
	Targets    TargetSource // nil in an archive
	Rules      RuleSource   // nil in an archive
	Boards     BoardSource  // nil = none

	Rollouts  RolloutSource  // nil = none
	Requests  RequestSource  // nil = none
	Timelines TimelineSource // nil = none
	Traces    TraceSource    // nil = none: no Jaeger and Tempo paths either
	// TraceRequest returns the id of the request that a trace is of, "" for none; nil = not known.
	TraceRequest func(ctx context.Context, traceID string) (string, error)
	Logs         LogSource // nil = none
	Events       Events    // nil = none: nothing can be pushed
	Passes       Passes    // nil = none

	System *systemport.Port // nil = none

	Drops      func() []Drop     // everything that was not kept, nil = nothing
	Notices    func() []Warning  // about this process, nil = nothing
	ConfigView func() ConfigView // what runs, redacted by the source; nil = no configuration
	Ready      func() Readiness  // nil = always ready
	// Reload reads the configuration again; nil = there is none to read (POST /-/reload answers 404).
	Reload func(context.Context) error
	// UI serves the pages; nil = none. Its answers carry their own content security policy.
	UI http.Handler
}

// API is the handler of every route. It is safe for concurrent use.
type API struct {
	Options
	log     *slog.Logger
	main    *door
	tempo   *door // nil without traces
	system  *door // nil without a system port
	metrics *httpMetrics
	writer  writer
	live    *live
	held    coverage

	statsHeld    held[[]tracestore.ServiceStats]
	coverageHeld held[tracestore.Coverage]
	traceIndexes traceIndexes
}

// New makes the handler. It serves at once; while Options.Ready says otherwise, answers that need the
// store are 503. It returns an error only when a metric of its own is registered already.
func New(o Options) (*API, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ready == nil {
		o.Ready = func() Readiness { return Ready }
	}
	if o.Drops == nil {
		o.Drops = func() []Drop { return nil }
	}
	if o.Notices == nil {
		o.Notices = func() []Warning { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	metrics, err := newHTTPMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	a := &API{Options: o, log: o.Logger.With("component", "api"), metrics: metrics, live: newLive()}
	a.main = newDoor(a.routes(), faceOf)
	if a.Traces != nil {
		a.tempo = newDoor(a.tempoRoutes(), faceOfTempo)
	}
	if a.Options.System != nil {
		a.system = newDoor(a.systemRoutes(), faceOfSystem)
	}
	return a, nil
}

// Routes returns the whole table: nothing else is served, but for what [API.Tempo] and
// [API.SystemPort] serve on ports of their own.
func (a *API) Routes() []Route { return a.main.table }

// Evaluated tells the listeners of /live that something new can be read: call it after each scrape
// round or rule evaluation. It never blocks; calls that come faster than a listener reads are one.
func (a *API) Evaluated() { a.live.evaluated() }

// Close ends the streams of /live, so that a server's shutdown does not wait for them.
func (a *API) Close() { a.live.close() }

// clock is now, or the end of the data in an archive: there, "the last hour" is the last that was recorded.
func (a *API) clock(ctx context.Context) time.Time {
	if a.Mode == ModeArchive {
		if _, last, _, err := a.coverage(ctx); err == nil && !last.IsZero() {
			return last
		}
	}
	return a.Now()
}

// coverageAge is how old an answer about what the store holds may be: finding it out reads the index.
const coverageAge = 15 * time.Second

// coverage is the last answer to what the store holds.
type coverage struct {
	mu          sync.Mutex
	first, last time.Time
	gaps        []Interval
	read        time.Time // zero: never
}

// coverage returns the range of the data and its gaps, a few seconds old at most; of a store that is
// being written, last is that of its newest sample.
func (a *API) coverage(ctx context.Context) (first, last time.Time, gaps []Interval, err error) {
	if a.Reader == nil {
		return time.Time{}, time.Time{}, nil, nil
	}
	c := &a.held
	c.mu.Lock()
	defer c.mu.Unlock() // who comes meanwhile waits for the same answer
	if c.read.IsZero() || time.Since(c.read) >= coverageAge || c.first.IsZero() {
		if c.first, c.last, c.gaps, err = a.Reader.Coverage(ctx); err != nil {
			c.read = time.Time{}
			return time.Time{}, time.Time{}, nil, err
		}
		c.read = time.Now() // the age of an answer, not of data
	}
	last = c.last
	if db := a.Prometheus.DB; db != nil && !last.IsZero() {
		if newest := time.UnixMilli(db().Head().MaxTime()).UTC(); newest.After(last) {
			last = newest
		}
	}
	return c.first, last, c.gaps, nil
}
