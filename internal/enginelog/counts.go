package enginelog

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts counts records so that rules can alert on them. It is a [prometheus.Collector] and safe for
// concurrent use.
//
//	rollscope_log_events_total{class,engine,source}  events; a line that Ray folded counts as often as it was written
//	rollscope_log_late_events_total{class,source}    events that came long after they were written: a log that is
//	                                                 read for the first time; they are in no alert
//	rollscope_log_lines_total{format,source}         records by grammar, "" for lines of none
//	rollscope_log_folded_total{source}               lines that Ray folded into another: their numbers are unknown
//
// An engine's six classes are there from its first line on, so that the first event is an increase.
type Counts struct {
	mu     sync.Mutex
	events map[[3]string]float64
	late   map[[2]string]float64
	lines  map[[2]string]float64
	folded map[string]float64
	over   int64
}

// maxCounted bounds how many label sets each of the three has.
const maxCounted = 20_000

// NewCounts makes an empty Counts.
func NewCounts() *Counts {
	return &Counts{events: map[[3]string]float64{}, late: map[[2]string]float64{}, lines: map[[2]string]float64{}, folded: map[string]float64{}}
}

var (
	eventsDesc = prometheus.NewDesc("rollscope_log_events_total", "Events found in log lines, by class.", []string{"class", "engine", "source"}, nil)
	lateDesc   = prometheus.NewDesc("rollscope_log_late_events_total", "Events found in log lines that were read more than ten minutes after they were written, by class.", []string{"class", "source"}, nil)
	linesDesc  = prometheus.NewDesc("rollscope_log_lines_total", "Log lines read, by the grammar that read them.", []string{"format", "source"}, nil)
	foldedDesc = prometheus.NewDesc("rollscope_log_folded_total", "Log lines that Ray folded into others; switch that off with RAY_DEDUP_LOGS=0.", []string{"source"}, nil)
)

// lateAfter is the age from which on a line tells of the past.
const lateAfter = int64(10 * time.Minute)

// Add counts a record of a source that was written just now.
func (c *Counts) Add(source string, r *Record) { c.AddAt(source, r, 0) }

// AddAt counts a record of a source that was read at the moment at, ns since 1970; 0: when it was written.
func (c *Counts) AddAt(source string, r *Record, at int64) {
	late := at != 0 && r.Time != 0 && at-r.Time > lateAfter
	c.mu.Lock()
	defer c.mu.Unlock()
	first := [3]string{string(Error), r.Engine, source}
	if _, ok := c.events[first]; !ok {
		if len(c.events) >= maxCounted {
			c.over++
			return
		}
		for _, k := range Classes() {
			c.events[[3]string{string(k), r.Engine, source}] = 0
		}
	}
	switch {
	case r.Class == None:
	case late:
		c.late[[2]string{string(r.Class), source}] += float64(r.Repeat)
	default:
		c.events[[3]string{string(r.Class), r.Engine, source}] += float64(r.Repeat)
	}
	if len(c.lines) < maxCounted {
		c.lines[[2]string{r.Format, source}]++
	}
	if r.Repeat > 1 {
		c.folded[source] += float64(r.Repeat - 1)
	}
}

// Events returns how many events of each class there were, over all engines, late ones too.
func (c *Counts) Events() map[Class]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[Class]int64{}
	for k, n := range c.events {
		out[Class(k[0])] += int64(n)
	}
	for k, n := range c.late {
		out[Class(k[0])] += int64(n)
	}
	return out
}

// Describe implements [prometheus.Collector].
func (c *Counts) Describe(out chan<- *prometheus.Desc) {
	out <- eventsDesc
	out <- lateDesc
	out <- linesDesc
	out <- foldedDesc
}

// Collect implements [prometheus.Collector].
func (c *Counts) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.events {
		out <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, n, k[0], k[1], k[2])
	}
	for k, n := range c.late {
		out <- prometheus.MustNewConstMetric(lateDesc, prometheus.CounterValue, n, k[0], k[1])
	}
	for k, n := range c.lines {
		out <- prometheus.MustNewConstMetric(linesDesc, prometheus.CounterValue, n, k[0], k[1])
	}
	for k, n := range c.folded {
		out <- prometheus.MustNewConstMetric(foldedDesc, prometheus.CounterValue, n, k)
	}
}

// Drop is things of a source that were not kept, and why.
type Drop struct {
	Source, Reason string
	Count          int64
}

// Reasons of drops. Source is always "log".
const (
	DropLineEnd   = "line_too_long"  // ends of lines beyond the limit
	DropFiles     = "too_many_files" // files beyond the limit, not followed
	DropRefused   = "refused"        // records that the store will never take
	DropGzip      = "bad_gzip"       // compressed files that cannot be read to their end
	DropUncounted = "too_many_labels"
	DropReplaced  = "replaced_unread" // files that were cut or replaced before they were read to their end
	dropSource    = "log"
)

func sortDrops(m map[string]int64) []Drop {
	var out []Drop
	for r, n := range m {
		if n > 0 {
			out = append(out, Drop{dropSource, r, n})
		}
	}
	slices.SortFunc(out, func(a, b Drop) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}
