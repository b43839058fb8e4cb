package metricstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// ReaderOptions configures [NewReader].
type ReaderOptions struct {
	Catalog   *signal.Catalog
	Overrides []engine.Override // what the configuration says about engines
	Logger    *slog.Logger
	Now       func() time.Time
}

// Reader answers questions about signals and engines from what a store or archive holds. Its methods may
// be called from any goroutine; what they return is the caller's.
type Reader struct {
	q    storage.SampleAndChunkQueryable
	e    promql.QueryEngine
	opts ReaderOptions

	mu    sync.Mutex
	cache map[[2]int64]fleetEntry // engines by range, both ends to ten seconds
	cover struct {
		Recording
		read time.Time
	}
}

// NewReader makes a reader over a queryable that answers under any spelling.
func NewReader(q storage.SampleAndChunkQueryable, e promql.QueryEngine, o ReaderOptions) *Reader {
	filled := Options{Logger: o.Logger, Catalog: o.Catalog, Now: o.Now}.withDefaults()
	o.Logger, o.Catalog, o.Now = filled.Logger, filled.Catalog, filled.Now
	return &Reader{q: q, e: e, opts: o, cache: map[[2]int64]fleetEntry{}}
}

// State tells a value from its absence.
type State string

// States of a number.
const (
	StateValue         State = "value"
	StateIdle          State = "idle"           // no events in the window: there is nothing to measure
	StateUnknown       State = "unknown"        // could not be read; Reason says why
	StateNotApplicable State = "not_applicable" // the question does not arise for that role or program
)

// Number is a value with its state. Value is nil unless the state is StateValue, and never NaN.
type Number struct {
	Value  *float64
	State  State
	Reason string // of idle: "none since 13:41 UTC"; of unknown: "target down"
	// Of a percentile: the bucket it lies in, in the signal's unit. In the last bucket Upper is nil and
	// AtLeast is set: the truth is Lower or more.
	Lower, Upper *float64
	AtLeast      bool
	ShareAbove   *float64 // share of events above the highest finite bound, 0..1
	Caveat       string
}

// Line is one series of a signal at equal steps.
type Line struct {
	Name     string // "p50", "p99", "fleet", a role, a model, an engine's name
	Quantile *float64
	Labels   map[string]string // of the grouping: instance, model_name, role, backend
	Values   []*float64        // nil where there is none
	Now      Number            // at the last step
	TopBound *float64          // highest finite bucket bound: a value equal to it means "or more"
}

// UnknownRange is a range in which nothing could be read.
type UnknownRange struct {
	Span
	Reason string
}

// Worst is the engine with the worst number at the last step.
type Worst struct {
	Job, Instance, Name string
	Number              Number
	Line                string // which line it is the worst of: "p99"
}

// Warning is something the reader of a number must know.
type Warning struct {
	Code    string // "bucket_layouts", "alternating_target", "under_reported", "rank_idle", "both_views", "model_names", "role_conflict", ...
	Message string
	Where   string // instance
	Hint    string
}

// SignalRequest asks for a signal over a range.
type SignalRequest struct {
	ID        string
	From, To  time.Time     // To is the last step
	Step      time.Duration // 0: a 240th of the range, at least 15 s
	By        signal.By     // "" is the fleet
	Instance  string        // only this engine's, "" for all
	Quantiles []float64     // of a quantile; nil: 0.5 and 0.99
	Window    time.Duration // range of rates; 0: the signal's own
}

// SignalResult is a signal over a range.
type SignalResult struct {
	Signal   signal.Signal
	Form     string // "recorded", "raw" or "mixed": what the lines were read from
	Query    string // the PromQL of the first line, in the form that the last step was read from
	From, To time.Time
	Step     time.Duration
	Lines    []Line
	Worst    *Worst // nil with fewer than two engines
	Unknown  []UnknownRange
	Idle     []Span
	Sources  []string // names of the ways the numbers were computed
	Warnings []Warning
	State    State // of the whole at the last step
}

// NotFoundError says that a signal is not in the catalog.
type NotFoundError struct{ ID string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("metricstore: there is no signal %q", e.ID)
}

// MaxSteps bounds the steps of one request, as Prometheus does.
const MaxSteps = 11_000

// Coverage tells when something was recorded, as of some seconds ago at most.
func (r *Reader) Coverage(ctx context.Context) (Recording, error) {
	now := r.opts.Now()
	r.mu.Lock()
	known := r.cover
	r.mu.Unlock()
	if age := now.Sub(known.read); age >= 0 && age < cacheFor {
		return known.Recording, nil
	}
	rec, err := Coverage(ctx, r.q)
	if err != nil {
		return Recording{}, err
	}
	r.mu.Lock()
	r.cover.Recording, r.cover.read = rec, now
	r.mu.Unlock()
	return rec, nil
}

// Names lists the metric names held in a range, sorted, as they are spelled in the store.
func (r *Reader) Names(ctx context.Context, from, to time.Time) ([]string, error) {
	q, err := r.q.Querier(from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("metricstore: names: %w", err)
	}
	names, _, err := q.LabelValues(ctx, model.MetricNameLabel, nil)
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.Clone(n) // they live in mapped files
	}
	return out, errors.Join(err, q.Close())
}

// grid is the steps of a range, in Unix milliseconds.
type grid struct {
	from, step int64
	n          int
}

func newGrid(from, to time.Time, step time.Duration) (grid, error) {
	if to.Before(from) {
		return grid{}, fmt.Errorf("metricstore: the range ends (%s) before it begins (%s)", to.UTC().Format(time.RFC3339), from.UTC().Format(time.RFC3339))
	}
	if step <= 0 {
		step = max(15*time.Second, (to.Sub(from) / 240).Truncate(time.Second))
	}
	ms := max(1, step.Milliseconds())
	n := int((to.UnixMilli()-from.UnixMilli())/ms) + 1
	if n > MaxSteps {
		return grid{}, fmt.Errorf("metricstore: %d steps in one request, the limit is %d: ask for a longer step or a shorter range", n, MaxSteps)
	}
	return grid{from: to.UnixMilli() - int64(n-1)*ms, step: ms, n: n}, nil
}

func (g grid) at(i int) time.Time { return time.UnixMilli(g.from + int64(i)*g.step).UTC() }

// index of a step, -1 when t is none.
func (g grid) index(t int64) int {
	d := t - g.from
	if d < 0 || d%g.step != 0 || d/g.step >= int64(g.n) {
		return -1
	}
	return int(d / g.step)
}

// row is one series on a grid; NaN where there is no sample.
type row struct {
	ls     labels.Labels
	values []float64
}

func emptyRow(ls labels.Labels, n int) *row {
	r := &row{ls: ls, values: make([]float64, n)}
	for i := range r.values {
		r.values[i] = math.NaN()
	}
	return r
}

// table is a query's result: rows by their key, which is formed of the grouping's labels.
type table struct {
	rows map[string]*row
	n    int
}

func newTable(n int) *table { return &table{rows: map[string]*row{}, n: n} }

func (t *table) row(key string, ls labels.Labels) *row {
	r := t.rows[key]
	if r == nil {
		r = emptyRow(ls, t.n)
		t.rows[key] = r
	}
	return r
}

// keys of the rows, sorted.
func (t *table) keys() []string { return sortedKeys(t.rows) }

// any tells whether a row has a value at step i.
func (t *table) any(i int) bool {
	for _, r := range t.rows {
		if !math.IsNaN(r.values[i]) {
			return true
		}
	}
	return false
}

// each evaluates expr from step a to step b and gives f every sample that is a number.
func (r *Reader) each(ctx context.Context, g grid, expr string, a, b int, f func(ls labels.Labels, i int, v float64)) error {
	if expr == "" || a > b {
		return nil
	}
	ctx = WithoutNameNotes(ctx)
	var q promql.Query
	var err error
	if a == b {
		q, err = r.e.NewInstantQuery(ctx, r.q, nil, expr, g.at(a))
	} else {
		q, err = r.e.NewRangeQuery(ctx, r.q, nil, expr, g.at(a), g.at(b), time.Duration(g.step)*time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("metricstore: %s: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return fmt.Errorf("metricstore: %s: %w", expr, res.Err)
	}
	put := func(ls labels.Labels, at int64, v float64) {
		if i := g.index(at); i >= 0 && !math.IsNaN(v) {
			f(ls, i, v)
		}
	}
	switch v := res.Value.(type) {
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Floats {
				put(s.Metric, p.T, p.F)
			}
		}
	case promql.Vector:
		for _, s := range v {
			put(s.Metric, s.T, s.F)
		}
	default:
		return fmt.Errorf("metricstore: %s gives a %T, want a vector", expr, res.Value)
	}
	return nil
}

// fill puts the samples of expr from step a to step b into t. The keep function may leave samples out;
// nil keeps all.
func (r *Reader) fill(ctx context.Context, t *table, g grid, expr string, by signal.By, a, b int, keep func(i int) bool) error {
	return r.each(ctx, g, expr, a, b, func(ls labels.Labels, i int, v float64) {
		if keep == nil || keep(i) {
			t.row(keyOf(ls, by), ls).values[i] = v
		}
	})
}

// keyOf forms a row's key: recorded series carry more labels than raw ones, and must meet them.
func keyOf(ls labels.Labels, by signal.By) string {
	switch by {
	case signal.ByEngine:
		return ls.Get("instance") + "\x00" + ls.Get("model_name")
	case signal.ByRole:
		return ls.Get("role")
	case signal.ByModel:
		return ls.Get("model_name")
	}
	return ""
}

// instant evaluates expr at one time.
func (r *Reader) instant(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	ctx = WithoutNameNotes(ctx)
	q, err := r.e.NewInstantQuery(ctx, r.q, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("metricstore: %s: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("metricstore: %s: %w", expr, res.Err)
	}
	v, err := res.Vector()
	if err != nil {
		return nil, fmt.Errorf("metricstore: %s: %w", expr, err)
	}
	return slices.Clone(v), nil // the query's own slice is reused once it is closed
}

// pointers turns a row into values that JSON can write.
func pointers(vs []float64) []*float64 {
	out := make([]*float64, len(vs))
	for i, v := range vs {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[i] = &v
		}
	}
	return out
}

func pointer(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
