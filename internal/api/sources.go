package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rollscope/rollscope/internal/signal"
)

// The interfaces below are what the handlers need of the rest of the program. All implementations are
// safe for concurrent use; what they return belongs to the caller, except where it says otherwise.

// SignalRequest asks for one signal over a range.
type SignalRequest struct {
	ID        string
	From, To  time.Time // To is the last evaluation
	Step      time.Duration
	By        string        // "fleet", "engine", "role", "model"
	Instance  string        // only this engine's, "" for all
	Quantiles []float64     // of a signal of kind quantile; ignored by others
	Window    time.Duration // that a percentile or a rate looks back over, 0 the usual
}

// Reader answers from what the store holds.
type Reader interface {
	// Signal evaluates one signal. A signal that has no data is not an error: its lines' states say why.
	// The error is an *Error with code "not_found" for an unknown id.
	Signal(ctx context.Context, q SignalRequest) (SignalData, []Warning, error)
	// Engines lists the engines seen in a range: identity only, without level, signals and sparks.
	Engines(ctx context.Context, from, to time.Time) ([]Engine, []Warning, error)
	// Coverage returns the range of the data and the gaps in it; zero times while there is none.
	Coverage(ctx context.Context) (first, last time.Time, gaps []Interval, err error)
	// Names lists the metric names held in a range, sorted.
	Names(ctx context.Context, from, to time.Time) ([]string, error)
}

// Catalog is what signals and metrics are known.
type Catalog interface {
	Metrics() []signal.Metric
	Metric(name string) (signal.Metric, bool)
	Signals() []signal.Signal
	Signal(id string) (signal.Signal, bool)
}

// TargetSource tells what is scraped. An archive has none.
type TargetSource interface {
	Targets() []Target
	Skipped() []SkippedTarget
}

// RuleSource tells what the rules say now. An archive has none: its alerts are read from the ALERTS series.
type RuleSource interface {
	Alerts() []Alert // active ones, firing and pending, without Level and EngineID
	Rules(context.Context) ([]AlertRule, error)
	Receivers() []string // URLs that get what fires
}

// BoardSource has the dashboards in both faces.
type BoardSource interface {
	Boards() []Board // shared: not to be changed
	// Search finds boards whose title, tags or meaning hold every word of the query; "" finds all.
	Search(query string) []BoardHit
	// Grafana returns the Grafana JSON of the board with that uid, false without one.
	Grafana(uid string) (json.RawMessage, bool, error)
}

// BoardHit is one board as Grafana's search lists it.
type BoardHit struct {
	UID   string
	Title string
	Tags  []string
}
