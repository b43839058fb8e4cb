package signal

import (
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// Kind says how a signal's numbers are formed, and so which aggregations over engines are right.
type Kind string

// Kinds of signals.
const (
	// Quantile: percentiles of a histogram. Engines are merged by adding buckets, never by averaging percentiles.
	Quantile Kind = "quantile"
	// Rate: events per second of a counter. Engines add up.
	Rate Kind = "rate"
	// Level: a gauge whose engines add up (requests queued).
	Level Kind = "level"
	// Share: numerator over denominator, 0..1. Engines are merged by adding both, never by averaging ratios.
	Share Kind = "share"
	// Worst: a gauge of which the fleet's number is the worst engine's (KV usage).
	Worst Kind = "worst"
)

// Signal is one question about a fleet with one right answer per backend, version and role.
type Signal struct {
	ID      string // "ttft", "itl", "throughput", "cache_hit_rate", "queue_depth", ...: stable, used in URLs and configs
	Title   string // "Time to first token"
	Short   string // column header: "TTFT"
	Group   string // "Golden", "Requests", "PD disaggregation", "HiCache", ...
	Unit    string // as in Metric.Unit
	Kind    Kind
	Higher  bool   // higher is better (throughput, hit rate); the worst engine is then the lowest
	Meaning string // one or two sentences
	Trap    string
	// Window is the range of rates when a query names none; 0 means 5 minutes.
	Window time.Duration
	// Roles to which the signal applies; empty means all. Elsewhere its state is not applicable.
	Roles   []engine.Role
	Sources []Source // alternatives, best first within a backend; see Source
	Custom  bool     // from the user's config, or found in the store without being in the catalog
	// RawOnly tells that no rules record the signal, since it is rarely asked over long ranges and has many
	// buckets; its recorded form is the raw one.
	RawOnly bool
}

// Source is one way to compute a signal. Of the sources of one backend the first whose metrics an
// engine has counts for that engine; sources of different engine backends (sglang, vllm) cover
// different engines and are combined; a frontend's source counts only where no engine source has
// data (Fallback).
type Source struct {
	Backend  engine.Backend
	Name     string // short name of the way: "prefill_effective_tokens", "last batch only"
	Since    string
	Fallback bool   // use only where no other source gives data (a frontend's view of the same requests)
	Caveat   string // shown beside the number when this source was used: "last batch only"; "" = none
	// Of a Quantile: the histogram. Of a Rate: the counter. Of a Level or Worst: the gauge.
	// Of a Share: Num over Den; without a Den, Num is a ready-made ratio and engines are averaged.
	// A Worst may be Num over Den, rank by rank; both then have the same rank rule and parts.
	// A Vec with several terms is their sum, of a Worst their worst.
	Num, Den Vec
	// Scale multiplies the result into the signal's unit (0.001 for milliseconds into seconds); 0 means 1.
	// The sources of one Quantile that are not Fallback have one Scale, since their buckets are added.
	Scale float64
	// Lazy tells of a Share that the series of Num appear with the first event: where Den exists and
	// Num does not, Num is 0.
	Lazy bool
	// ZeroIf names, of a Rate whose counter appears with its first event, series that every engine has which
	// could count: where they exist and Num does not, the rate is 0. Without it such an engine is unknown.
	ZeroIf Vec
}

// Vec is a sum of series selections, written without view, rank or rate: Compile adds those.
type Vec []Term

// Term selects series of one metric. Match holds PromQL matchers without braces
// (`mode=~"prefill_cache|prefill_compute"`), on top of the rank filter.
type Term struct {
	Metric string // canonical name; of a histogram the family name, or Name_sum / Name_count used as a counter
	Match  string
	// Ranks says which label sets of one engine are the same thing seen twice and which are parts.
	Ranks Ranks
	// Parts are the labels, besides the data-parallel rank, whose values split a RankLeader metric into
	// parts that add up ("mode"); needed only where Match leaves more than one value of them.
	Parts []string
	// OnlyIf names a gauge with the same labels; where it is 0 the term has no value. A feature that
	// is off reports 0, which is not a measurement.
	OnlyIf string
	// Then is PromQL put behind the selection: `>= -Inf` drops the NaN of a gauge that has them,
	// `== bool 0` makes 1 of what is 0.
	Then string
	// As overrides how the series are read; "" follows the kind: rates of a Rate, of a Share with a Den and of
	// a Quantile's buckets, levels of everything else.
	As Reading
}

// Reading is how a term's series become numbers.
type Reading string

// Readings.
const (
	AsRate  Reading = "rate"  // per second, of a counter
	AsLevel Reading = "level" // as they are: a gauge, also one that is a rate already (gen_throughput)
)

// Ranks is the rule for the rank labels of one metric.
type Ranks string

// Rank rules.
const (
	// RankLeader: every TP/PP rank writes the same events, so of the ranks of one data-parallel rank
	// the largest number counts; DP ranks add up.
	RankLeader Ranks = "leader"
	// RankNone: the metric carries no rank labels (written by the tokenizer manager, a frontend, a router).
	RankNone Ranks = ""
	// RankAll: every label set is a part; add all.
	RankAll Ranks = "all"
)

// DefaultWindow is the range of rates of a signal that names none.
const DefaultWindow = 5 * time.Minute

// DefaultRange is the signal's own range of rates, at which it is recorded.
func (s Signal) DefaultRange() time.Duration {
	if s.Window > 0 {
		return s.Window
	}
	return DefaultWindow
}

// Scale is the factor from the buckets' own unit (the unit of `le`) to the signal's: 0.001 where the
// histogram counts milliseconds. It is 1 for everything that is not a Quantile.
func (s Signal) Scale() float64 {
	if s.Kind == Quantile && len(s.Sources) > 0 && s.Sources[0].Scale != 0 {
		return s.Sources[0].Scale
	}
	return 1
}
