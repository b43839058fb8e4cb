// Package signal is the catalog: every metric that the supported engines, routers and exporters
// emit, and the canonical signals that give one right number for each backend, version and role.
// Its entry points are [Default] (the catalog) and [Compile] (a signal turned into PromQL).
package signal

import "github.com/rollscope/rollscope/internal/engine"

// Type is a metric's type on the wire.
type Type string

// Types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram" // classic; the samples are Name_bucket, Name_sum, Name_count
	Summary   Type = "summary"
	Info      Type = "info" // a gauge that is always 1 and carries labels
)

// Metric is one family as its program emits it.
type Metric struct {
	Name    string         // canonical spelling, counters with _total if the wire has it, no _bucket/_sum/_count
	Backend engine.Backend // who emits it
	Group   string         // heading in docs/metrics.md: "Request level", "Scheduler gauges", "PD disaggregation", ...
	Type    Type
	WasType string   // another type in other versions and when: "gauge before 0.5.10"; "" if never
	Unit    string   // "seconds", "milliseconds", "tokens", "requests", "ratio" (0..1), "tokens/s", "GiB/s", "MiB", "bytes", "1", ...
	Labels  []string // label names, without job and instance
	Since   string   // first version or date; "" = since the first release
	Till    string   // last version or date; "" = still emitted
	Meaning string   // what it is and when it is written, one sentence
	Trap    string   // how it misleads; "" if it does not
	Use     string   // what to use instead (a metric or a signal id); "" if this is the right one
	// Same tells that Use is the same measurement under a newer name, so that a query for Name may be
	// answered with Use's data (and a notice). Otherwise the query only gets a warning that names Use.
	Same bool
	// Invented tells that no program ever emitted Name: it stands in documents and dashboards.
	Invented bool
	Dead     bool // emitted, but never set
}
