// Package dashboard holds the boards as data, once, for every face that shows them: our own pages,
// Grafana files and the terminal; and it judges other people's rules and boards.
// Its entry point is [Boards]; [Export] writes the Grafana face and [Linter] does the judging.
package dashboard

import (
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// View is how a panel draws its numbers. The words are those of the API's Panel.View.
type View string

// Views.
const (
	Lines View = "lines" // one line per series over time
	Stat  View = "stat"  // the latest number, large, with a sparkline
	Gauge View = "gauge" // the latest number against Min and Max
	Table View = "table" // the latest number of each series, one a row
)

// Board is one dashboard.
type Board struct {
	ID       string   // stable, lower case with dashes; part of URLs, of Grafana's uid and of file names
	Title    string   // as shown
	Meaning  string   // what question the board answers, one or two sentences
	Tags     []string // Grafana tags; the first words a person would search for
	Sections []Section
	Custom   bool // from the user's config
}

// Section is a titled row of panels.
type Section struct {
	Title  string
	Panels []Panel
}

// Panel is one chart or number.
//
// A panel shows either one signal (Signal is set, and [Boards] has compiled Targets from it in the raw
// form), or Targets, each of which is a signal or plain PromQL.
type Panel struct {
	ID      string // unique within its board, stable: "ttft", "queue_depth_by_engine"
	Title   string
	Unit    string // as signal.Metric.Unit: "seconds", "ratio", "tokens/s", ...
	View    View
	Meaning string    // one or two sentences: what it says and how it misleads
	Signal  string    // id of the one signal shown; "" when Targets are the source
	By      signal.By // grouping of the signal
	// Backend narrows the signal to one kind of engine; "" is all.
	Backend   engine.Backend
	Quantiles []float64 // of a Quantile signal; nil elsewhere
	Targets   []Target
	Stacked   bool     // the lines are parts of one whole
	Min, Max  *float64 // axis bounds in Unit; nil = from the data
	NoMax     bool     // a ratio that may pass 1, so that its axis has no end at 1
	// Thresholds mark what is worth a look, in Unit, in rising order.
	Thresholds []Threshold
	// Claims names the backends on whose expositions the panel shows something. A test holds the panel
	// to it. A panel whose numbers need a feature that is off by default still claims its backend.
	Claims []engine.Backend
	// Problem says why the panel cannot be drawn ("signal x is not in the catalog"); "" when it can.
	Problem string
}

// Target is one expression of a panel.
type Target struct {
	Expr   string // PromQL; of a signal's target the raw form over the default window
	Legend string // Grafana's form: "p99", "{{instance}}"
	// Signal, By, Backend and Quantile name the source of a target that is a signal; Signal is "" for
	// plain PromQL.
	Signal   string
	By       signal.By
	Backend  engine.Backend
	Quantile float64
	// Lazy marks a series that programs create at the first event or with a feature switched on: the
	// other targets of the panel must show something, this one may be absent.
	Lazy bool
}

// Threshold marks a value from which on (or, with Below, down from which) a level holds.
type Threshold struct {
	Value float64
	Level Level
	Below bool
}

// Level is a judgement.
type Level string

// Levels, worst last.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Crit Level = "crit"
)
