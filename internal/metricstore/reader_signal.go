package metricstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// reading is one request while it is answered.
type reading struct {
	r   *Reader
	req SignalRequest
	s   signal.Signal
	g   grid
	res *SignalResult

	quantiles []float64 // one nil-like element (0) for signals that are none
	values    []*table  // by quantile
	counts    *table    // events per second; nil for levels
	recorded  []bool    // by step: the recorded series cover it
	fleet     fleetEntry
	hists     map[string]histogramOf // by engine, at the last step
}

// Signal evaluates a signal over a range: out of the recorded series where there are some, out of the
// scraped ones elsewhere. That nothing is there is no error; the states say why. The error is a
// [*NotFoundError] for an unknown id.
func (r *Reader) Signal(ctx context.Context, req SignalRequest) (SignalResult, error) {
	s, ok := r.opts.Catalog.Signal(req.ID)
	if !ok {
		return SignalResult{}, &NotFoundError{req.ID}
	}
	g, err := newGrid(req.From, req.To, req.Step)
	if err != nil {
		return SignalResult{}, err
	}
	if req.By == "" {
		req.By = signal.ByFleet
	}
	x := &reading{r: r, req: req, s: s, g: g, counts: newTable(g.n), recorded: make([]bool, g.n)}
	x.res = &SignalResult{Signal: s, From: g.at(0), To: g.at(g.n - 1), Step: time.Duration(g.step) * time.Millisecond}
	x.quantiles = []float64{0}
	if s.Kind == signal.Quantile {
		if x.quantiles = req.Quantiles; len(x.quantiles) == 0 {
			x.quantiles = []float64{0.5, 0.99}
		}
	}
	for range x.quantiles {
		x.values = append(x.values, newTable(g.n))
	}
	if x.fleet, err = r.engines(ctx, x.res.From, x.res.To); err != nil {
		return SignalResult{}, err
	}
	if err := x.read(ctx); err != nil {
		return SignalResult{}, err
	}
	if err := x.now(ctx); err != nil {
		return SignalResult{}, err
	}
	x.warn()
	return *x.res, nil
}

// query is the common part of what is compiled.
func (x *reading) query(form signal.Form, quantile float64) signal.Query {
	q := signal.Query{By: x.req.By, Form: form, Window: x.req.Window, Quantile: quantile}
	if x.req.Instance != "" {
		q.Match = "instance=" + strconv.Quote(x.req.Instance)
	}
	return q
}

// usualWindow tells whether recorded series, which look back over the signal's own window, are what is asked.
func (x *reading) usualWindow() bool {
	return x.req.Window == 0 || x.req.Window == x.s.DefaultRange() || x.s.Kind == signal.Level || x.s.Kind == signal.Worst
}

// compileAll gives the PromQL of the values and of the count; an error of the recorded form means only
// that it cannot answer.
func (x *reading) compileAll(form signal.Form, common bool) (values []string, count string, err error) {
	for _, p := range x.quantiles {
		q := x.query(form, p)
		q.CommonBounds = common
		expr, err := signal.Compile(x.s, q)
		if err != nil {
			return nil, "", err
		}
		values = append(values, expr)
	}
	count, err = signal.CompileCount(x.s, x.query(form, 0))
	return values, count, err
}

// read fills values and counts.
func (x *reading) read(ctx context.Context) error {
	recorded, recordedCount, err := x.compileAll(signal.Recorded, false)
	if err == nil && x.usualWindow() {
		if err := x.readRecorded(ctx, recorded, recordedCount); err != nil {
			return err
		}
	}
	ranges := missingRanges(x.recorded)
	if len(ranges) == 0 {
		x.res.Form, x.res.Query = "recorded", recorded[0]
		return nil
	}
	if x.s.Kind == signal.Quantile {
		if err := x.lookAtBuckets(ctx); err != nil {
			return err
		}
	}
	common := x.req.By != signal.ByEngine && layouts(x.hists) > 1
	raw, rawCount, err := x.compileAll(signal.Raw, common)
	if err != nil {
		return fmt.Errorf("metricstore: %w", err)
	}
	found := false
	for _, rg := range ranges {
		keep := func(i int) bool { return !x.recorded[i] }
		switch {
		case x.s.Kind == signal.Quantile:
			any, err := x.readBuckets(ctx, common, rg[0], rg[1])
			if err == nil && !any { // a histogram of which only the count was kept still tells idle from unknown
				err = x.r.fill(ctx, x.counts, x.g, rawCount, x.req.By, rg[0], rg[1], keep)
			}
			if err != nil {
				return err
			}
		default:
			if rawCount != "" && rawCount != raw[0] {
				if err := x.r.fill(ctx, x.counts, x.g, rawCount, x.req.By, rg[0], rg[1], keep); err != nil {
					return err
				}
			}
			if err := x.r.fill(ctx, x.values[0], x.g, raw[0], x.req.By, rg[0], rg[1], keep); err != nil {
				return err
			}
		}
		for i := rg[0]; i <= rg[1] && !found; i++ {
			found = !x.recorded[i] && (x.values[0].any(i) || x.counts.any(i))
		}
	}
	switch {
	case !slices.Contains(x.recorded, true):
		x.res.Form, x.res.Query = "raw", raw[0]
	case found:
		x.res.Form, x.res.Query = "mixed", raw[0]
	default:
		x.res.Form, x.res.Query = "recorded", recorded[0]
	}
	if x.res.Form == "mixed" && x.recorded[x.g.n-1] {
		x.res.Query = recorded[0]
	}
	return nil
}

// readBuckets reads the scraped buckets once, and takes all percentiles and the count out of them: the
// rates of all buckets of a fleet are what costs. It tells whether there were any.
func (x *reading) readBuckets(ctx context.Context, common bool, a, b int) (any bool, err error) {
	q := x.query(signal.Raw, 0)
	q.CommonBounds = common
	expr, err := signal.CompileBuckets(x.s, q)
	if err != nil {
		return false, fmt.Errorf("metricstore: %w", err)
	}
	type column struct {
		le   float64
		rate []float64 // by step from a on
	}
	groups := map[string][]*column{}
	group := map[string]labels.Labels{}
	var last labels.Labels
	var col *column
	err = x.r.each(ctx, x.g, expr, a, b, func(ls labels.Labels, i int, v float64) {
		if x.recorded[i] {
			return
		}
		if col == nil || !labels.Equal(ls, last) { // samples come series by series
			last = ls
			le, err := strconv.ParseFloat(ls.Get("le"), 64)
			if err != nil {
				le = math.NaN()
			}
			col = &column{le: le, rate: emptyRow(ls, b-a+1).values}
			key := keyOf(ls, x.req.By)
			groups[key] = append(groups[key], col)
			group[key] = ls
		}
		col.rate[i-a] = v
	})
	if err != nil {
		return false, err
	}
	for key, cols := range groups {
		ls := labels.NewBuilder(group[key]).Del("le").Labels()
		slices.SortFunc(cols, func(a, b *column) int { return cmp.Compare(a.le, b.le) })
		for i := a; i <= b; i++ {
			var h histogramOf
			for _, c := range cols {
				if v := c.rate[i-a]; !math.IsNaN(v) && !math.IsNaN(c.le) {
					h = append(h, bucket{c.le, v})
				}
			}
			h.grow()
			total := h.total()
			if math.IsNaN(total) {
				continue
			}
			x.counts.row(key, ls).values[i] = total
			for k, p := range x.quantiles {
				if n, ok := h.quantile(p, x.s.Scale()); ok {
					x.values[k].row(key, ls).values[i] = *n.Value
				}
			}
		}
	}
	return len(groups) > 0, nil
}

// readRecorded reads the recorded series, and marks the steps that they cover: those where the count is
// there, which is 0 when nothing happens, or, of a level, the value.
func (x *reading) readRecorded(ctx context.Context, values []string, count string) error {
	last := x.g.n - 1
	cover := x.values[0]
	if x.s.Kind == signal.Quantile || x.s.Kind == signal.Share {
		cover = x.counts
		if err := x.r.fill(ctx, cover, x.g, count, x.req.By, 0, last, nil); err != nil {
			return err
		}
		if len(cover.rows) == 0 {
			return nil // not recorded at all
		}
	}
	for k, expr := range values {
		if err := x.r.fill(ctx, x.values[k], x.g, expr, x.req.By, 0, last, nil); err != nil {
			return err
		}
	}
	for i := range x.recorded {
		x.recorded[i] = cover.any(i)
	}
	return nil
}

// missingRanges lists the runs of steps that are not covered. Runs that are close are read together, and
// a range that is full of holes as a whole.
func missingRanges(covered []bool) [][2]int {
	const near, most = 5, 16
	var out [][2]int
	for i := 0; i < len(covered); i++ {
		if covered[i] {
			continue
		}
		if n := len(out); n > 0 && i-out[n-1][1] <= near {
			out[n-1][1] = i
			continue
		}
		out = append(out, [2]int{i, i})
	}
	if len(out) > most {
		out = [][2]int{{out[0][0], out[len(out)-1][1]}}
	}
	return out
}

// lookAtBuckets reads the buckets by engine at the last step, once: bounds, layouts and the worst engine
// come from them. Where the last step has none, the middle of the range may tell the layouts.
func (x *reading) lookAtBuckets(ctx context.Context) error {
	if x.hists != nil {
		return nil
	}
	last := x.g.n - 1
	form := signal.Raw
	if x.recorded[last] {
		form = signal.Recorded
	}
	q := x.query(form, 0)
	q.By = signal.ByEngine
	expr, err := signal.CompileBuckets(x.s, q)
	if err != nil {
		return fmt.Errorf("metricstore: %w", err)
	}
	v, err := x.r.instant(ctx, expr, x.g.at(last))
	if err != nil {
		return err
	}
	x.hists = histograms(v, func(s promql.Sample) string { return keyOf(s.Metric, signal.ByEngine) })
	if n := layouts(x.hists); n > 1 {
		x.res.Warnings = append(x.res.Warnings, Warning{
			Code: "bucket_layouts",
			Message: fmt.Sprintf("The engines' histograms of %s have %d different lists of bounds. Their sum keeps only the bounds that all have, so percentiles of the fleet are coarser than an engine's own.",
				x.s.Title, n),
			Hint: "Start all engines with the same bucket options.",
		})
	}
	return nil
}

// now forms the lines, with their number at the last step, and what concerns the whole.
func (x *reading) now(ctx context.Context) error {
	if x.s.Kind == signal.Quantile {
		if err := x.lookAtBuckets(ctx); err != nil {
			return err
		}
	}
	for k, p := range x.quantiles {
		for _, key := range x.lineKeys() {
			x.res.Lines = append(x.res.Lines, x.line(k, p, key))
		}
	}
	if x.req.By == signal.ByEngine {
		x.absentEngines()
	}
	if len(x.res.Lines) == 0 {
		for _, p := range x.quantiles {
			l := Line{Name: x.lineName("", labels.EmptyLabels(), p), Labels: map[string]string{}, Values: make([]*float64, x.g.n)}
			if x.s.Kind == signal.Quantile {
				l.Quantile = &p
			}
			l.Now = x.absentNumber()
			x.res.Lines = append(x.res.Lines, l)
		}
	}
	if err := x.intervals(ctx); err != nil {
		return err
	}
	x.res.State = x.wholeState()
	return x.worst(ctx)
}

// lineKeys lists the groups that have a value or a count.
func (x *reading) lineKeys() []string {
	var keys []string
	for _, t := range append(slices.Clone(x.values), x.counts) {
		keys = append(keys, t.keys()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (x *reading) line(k int, p float64, key string) Line {
	last := x.g.n - 1
	val, cnt := x.values[k].rows[key], x.counts.rows[key]
	ls := labels.EmptyLabels()
	if cnt != nil {
		ls = cnt.ls
	}
	if val == nil {
		val = emptyRow(ls, x.g.n)
	} else {
		ls = val.ls
	}
	l := Line{Name: x.lineName(key, ls, p), Labels: x.lineLabels(ls), Values: pointers(val.values)}
	if x.s.Kind == signal.Quantile {
		l.Quantile = &p
		h := x.groupHistogram(key)
		if top, ok := h.top(); ok {
			l.TopBound = pointer(top.le * x.s.Scale())
		}
		if n, ok := h.quantile(p, x.s.Scale()); ok {
			l.Now = n
			if v := val.values[last]; !math.IsNaN(v) {
				l.Now.Value = &v // what the chart shows
			}
		}
	}
	if l.Now.State == "" {
		l.Now = x.number(val.values, cnt, last)
	}
	if l.Now.State == StateValue {
		l.Now.Caveat = x.caveat()
	}
	return l
}

// number is the state of a line at a step without buckets.
func (x *reading) number(values []float64, cnt *row, i int) Number {
	if v := values[i]; !math.IsNaN(v) {
		return Number{Value: pointer(v), State: StateValue}
	}
	if cnt != nil && cnt.values[i] == 0 {
		return Number{State: StateIdle, Reason: x.idleReason(values, i)}
	}
	return Number{State: StateUnknown, Reason: "no data at this time"}
}

func (x *reading) idleReason(values []float64, i int) string {
	for j := i - 1; j >= 0; j-- {
		if !math.IsNaN(values[j]) {
			return "none since " + x.g.at(j).Format("15:04 MST")
		}
	}
	return "none in this range"
}

// groupHistogram adds the engines' buckets of a group.
func (x *reading) groupHistogram(key string) histogramOf {
	if x.req.By == signal.ByEngine {
		return x.hists[key]
	}
	in := map[string]histogramOf{}
	for k, h := range x.hists {
		instance, model, _ := strings.Cut(k, "\x00")
		if x.req.By == signal.ByModel && model != key || x.req.By == signal.ByRole && string(x.fleet.role(instance)) != key {
			continue
		}
		in[k] = h
	}
	return addCommon(in)
}

// lineName names a line.
func (x *reading) lineName(key string, ls labels.Labels, p float64) string {
	name := "fleet"
	switch x.req.By {
	case signal.ByEngine:
		name = x.fleet.name(ls.Get("instance"))
	case signal.ByRole, signal.ByModel:
		if name = key; name == "" {
			name = "unknown"
		}
	}
	if x.s.Kind != signal.Quantile {
		return name
	}
	percentile := "p" + strconv.FormatFloat(p*100, 'f', -1, 64)
	if x.req.By == signal.ByFleet {
		return percentile
	}
	return name + " " + percentile
}

func (x *reading) lineLabels(ls labels.Labels) map[string]string {
	out := map[string]string{}
	for _, n := range []string{"instance", "model_name", "role", "backend"} {
		if v := ls.Get(n); v != "" {
			out[n] = v
		}
	}
	if e, ok := x.fleet.find(out["instance"]); ok && x.req.By == signal.ByEngine {
		out["role"], out["backend"] = string(e.Role), string(e.Backend)
		out["job"] = e.Job
	}
	return out
}

// worst names the engine with the worst number at the last step.
func (x *reading) worst(ctx context.Context) error {
	if x.req.Instance != "" {
		return nil
	}
	last := x.g.n - 1
	p := x.quantiles[len(x.quantiles)-1]
	for _, q := range x.quantiles {
		p = max(p, q)
	}
	numbers := map[string]Number{} // by key of engine
	switch {
	case x.s.Kind == signal.Quantile:
		for key, h := range x.hists {
			if n, ok := h.quantile(p, x.s.Scale()); ok {
				numbers[key] = n
			}
		}
	case x.req.By == signal.ByEngine:
		for key, row := range x.values[0].rows {
			if v := row.values[last]; !math.IsNaN(v) {
				numbers[key] = Number{Value: &v, State: StateValue}
			}
		}
	default:
		form := signal.Raw
		if x.recorded[last] {
			form = signal.Recorded
		}
		q := x.query(form, 0)
		q.By = signal.ByEngine
		expr, err := signal.Compile(x.s, q)
		if err != nil {
			return fmt.Errorf("metricstore: %w", err)
		}
		v, err := x.r.instant(ctx, expr, x.g.at(last))
		if err != nil {
			return err
		}
		for _, s := range v {
			if !math.IsNaN(s.F) {
				numbers[keyOf(s.Metric, signal.ByEngine)] = Number{Value: pointer(s.F), State: StateValue}
			}
		}
	}
	for key := range numbers { // a prefill engine is not the worst at generating tokens
		instance, _, _ := strings.Cut(key, "\x00")
		if e, ok := x.fleet.find(instance); ok && !x.applies(e) {
			delete(numbers, key)
		}
	}
	if len(numbers) < 2 {
		return nil
	}
	worst := ""
	for _, key := range sortedKeys(numbers) {
		if worst == "" || worse(numbers[key], numbers[worst], x.s.Higher) {
			worst = key
		}
	}
	instance, _, _ := strings.Cut(worst, "\x00")
	w := &Worst{Instance: instance, Name: x.fleet.name(instance), Number: numbers[worst]}
	if e, ok := x.fleet.find(instance); ok {
		w.Job = e.Job
	}
	if x.s.Kind == signal.Quantile {
		w.Line = "p" + strconv.FormatFloat(p*100, 'f', -1, 64)
	}
	x.res.Worst = w
	return nil
}

// worse compares two numbers; of percentiles beyond the last bound the one with more events there.
func worse(a, b Number, higher bool) bool {
	if *a.Value != *b.Value {
		return (*a.Value < *b.Value) == higher
	}
	if a.ShareAbove != nil && b.ShareAbove != nil {
		return *a.ShareAbove > *b.ShareAbove
	}
	return false
}

// caveat of the sources that were used.
func (x *reading) caveat() string {
	var out []string
	for _, s := range x.usedSources() {
		if s.Caveat != "" && !contains(out, s.Caveat) {
			out = append(out, s.Caveat)
		}
	}
	return strings.Join(out, "; ")
}

// usedSources guesses the sources from the names that the range holds: of each backend the first that is
// there, fallbacks only without others.
func (x *reading) usedSources() []signal.Source {
	var out, fallbacks []signal.Source
	seen := map[engine.Backend]bool{}
	for _, src := range x.s.Sources {
		if seen[src.Backend] || !slices.ContainsFunc(src.Num, func(t signal.Term) bool { return x.fleet.holds(t.Metric) }) {
			continue
		}
		seen[src.Backend] = true
		if src.Fallback {
			fallbacks = append(fallbacks, src)
		} else {
			out = append(out, src)
		}
	}
	if len(out) == 0 {
		return fallbacks
	}
	return out
}

// warn adds the names of the sources, and those of the fleet's warnings that change this signal's numbers.
func (x *reading) warn() {
	for _, s := range x.usedSources() {
		name := s.Name
		if name == "" && len(s.Num) > 0 {
			name = s.Num[0].Metric
		}
		if !contains(x.res.Sources, name) {
			x.res.Sources = append(x.res.Sources, name)
		}
	}
	for _, w := range x.fleet.warnings {
		if (w.Code == "alternating_target" || w.Code == "under_reported") && (x.req.Instance == "" || x.req.Instance == w.Where) {
			x.res.Warnings = append(x.res.Warnings, w)
		}
	}
}
