package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// sparkSteps is how many steps a sparkline has.
const sparkSteps = 40

// fleetColumns is the fleet table without ?columns=.
const fleetColumns = "ttft:p99,itl:p99,throughput,cache_hit_rate,queue_depth,running,kv_usage"

// goldenSignals are the signals of the overview, in order.
var goldenSignals = []string{"ttft", "itl", "throughput", "cache_hit_rate", "queue_depth"}

// column is a column of the fleet table: a signal, of a percentile with its quantile.
type column struct {
	Column
	signal   signal.Signal
	quantile float64
}

// columns reads ?columns=ttft:p99,queue_depth.
func (a *API) columns(p *params) []column {
	list, given := p.text("columns"), true
	if list == "" {
		list, given = fleetColumns, false
	}
	var out []column
	for key := range strings.SplitSeq(list, ",") {
		id, percent, isQuantile := strings.Cut(strings.TrimSpace(key), ":p")
		s, ok := a.Catalog.Signal(id)
		if !ok {
			if given {
				p.fail(badParameter("columns", list, "has "+id+", which is no signal", "ids of GET "+ours+"/signals, of a percentile with :p50, :p99, ..."))
			}
			continue // a catalog without one of the usual signals shows the others
		}
		c := column{signal: s, Column: Column{Key: id, Title: s.Short, Unit: s.Unit, Higher: s.Higher}}
		if s.Kind == signal.Quantile {
			c.quantile = 0.99
			if isQuantile {
				q, err := strconv.ParseFloat(percent, 64)
				if err != nil || !(q >= 0 && q <= 100) {
					p.fail(badParameter("columns", list, "has "+key+", which is no percentile", "p0 to p100, as in "+id+":p99"))
					continue
				}
				c.quantile = q / 100
			}
			pq := "p" + strconv.FormatFloat(c.quantile*100, 'g', 6, 64)
			c.Key, c.Title = id+":"+pq, pq+" "+s.Short
		} else if isQuantile {
			p.fail(badParameter("columns", list, "has "+key+", but "+id+" is no percentile", id))
			continue
		}
		out = append(out, c)
	}
	if len(out) > 40 {
		p.fail(badParameter("columns", list, "has too many", "at most 40"))
	}
	return out
}

func (a *API) getEngines(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "columns", "limit", "after")
	from, to := p.window()
	columns := a.columns(p)
	if p.err != nil {
		return nil, p.err
	}
	fleet, err := a.fleet(r.Context(), from, to, columns)
	if err != nil {
		return nil, err
	}
	answer := Engines{Columns: titles(columns)}
	var next string
	answer.Engines, next = page(p, fleet.engines, func(e Engine) string { return e.ID })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, answer, fleet.warnings)
	e.Next, e.Partial = next, fleet.partial
	return e, nil
}

func titles(columns []column) []Column {
	var out []Column
	for _, c := range columns {
		out = append(out, c.Column)
	}
	return out
}

func (a *API) getEngine(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "columns")
	from, to := p.window()
	columns := a.columns(p)
	if p.err != nil {
		return nil, p.err
	}
	fleet, err := a.fleet(r.Context(), from, to, columns)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	_, instance := splitEngineID(id)
	for _, e := range fleet.engines {
		if e.ID != id && (strings.Contains(id, "/") || e.Instance != instance) {
			continue
		}
		d := EngineDetail{Engine: e, Columns: titles(columns)}
		for _, al := range fleet.alerts {
			if al.EngineID == e.ID {
				d.Alerts = append(d.Alerts, al)
			}
		}
		for _, s := range a.Catalog.Signals() {
			if applies(s, e) {
				d.Signals = append(d.Signals, signalInfo(s))
			}
		}
		answer := envelope(a, d, fleet.warnings)
		answer.Partial = fleet.partial
		return answer, nil
	}
	return nil, &Error{Code: "not_found", Message: "there is no engine " + id + " from " + stamp(from) + " to " + stamp(to), Where: r.URL.Path,
		Hint: "GET " + ours + "/engines lists them; ask for an earlier range if it is gone"}
}

func (a *API) getOverview(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "columns", "step")
	from, to := p.window()
	step := p.step(from, to)
	columns := a.columns(p)
	if p.err != nil {
		return nil, p.err
	}
	var fleet fleetView
	data := make([]*SignalData, len(goldenSignals))
	warnings := make([][]Warning, len(goldenSignals))
	tasks, ctx := errgroup.WithContext(r.Context())
	tasks.SetLimit(runtime.GOMAXPROCS(0) + 1)
	tasks.Go(func() (err error) {
		fleet, err = a.fleet(ctx, from, to, columns)
		return err
	})
	for i, id := range goldenSignals {
		if _, ok := a.Catalog.Signal(id); !ok {
			continue
		}
		tasks.Go(func() error {
			d, w, err := a.Reader.Signal(ctx, SignalRequest{ID: id, From: from, To: to, Step: step, By: "fleet", Quantiles: []float64{0.5, 0.99}})
			if err != nil {
				return fmt.Errorf("signal %s: %w", id, err)
			}
			data[i], warnings[i] = &d, w
			return nil
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	answer := Overview{Engines: Engines{Engines: fleet.engines, Columns: titles(columns)}, Counts: map[Level]int{}}
	partial := fleet.partial
	for _, d := range data {
		if d == nil {
			continue
		}
		// The table knows to whom a signal does not apply; without its column the reader's word counts.
		if w, judged := worst(d.ID, columns, fleet.engines); judged {
			d.Worst = w
		}
		partial = partial || hasUnknown(*d)
		answer.Golden = append(answer.Golden, *d)
	}
	for _, al := range fleet.alerts {
		if al.State != "resolved" {
			answer.Alerts = append(answer.Alerts, al)
		}
	}
	jobs := map[string]bool{}
	for _, e := range fleet.engines {
		answer.Counts[e.Level]++
		jobs[e.Job] = true
	}
	answer.Jobs = len(jobs)
	e := envelope(a, answer, append(warnings, fleet.warnings)...)
	e.Partial = partial
	return e, nil
}

// worst names the engine with the worst number of a signal, out of the fleet table: nil with fewer than
// two to compare. It is not judged when the table has no column of it.
func worst(id string, columns []column, engines []Engine) (w *Worst, judged bool) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.signal.ID == id })
	if i < 0 {
		return nil, false
	}
	c, compared := columns[i], 0
	for _, e := range engines {
		n := e.Signals[c.Key]
		if n.Value == nil {
			continue
		}
		compared++
		if w == nil || c.Higher && *n.Value < *w.Number.Value || !c.Higher && *n.Value > *w.Number.Value {
			_, line, _ := strings.Cut(c.Key, ":")
			w = &Worst{EngineID: e.ID, Name: e.Name, Number: n, Line: line}
		}
	}
	if compared < 2 {
		return nil, true
	}
	return w, true
}

// fleetView is the fleet table with what it was judged by.
type fleetView struct {
	engines  []Engine
	alerts   []Alert
	warnings []Warning
	partial  bool // some number could not be read
}

// worstFirst orders engines as a person on call wants to see them.
func worstFirst(x, y Engine) int {
	order := []Level{LevelCrit, LevelWarn, LevelUnknown, LevelOK, LevelIdle}
	return slices.Index(order, x.Level) - slices.Index(order, y.Level)
}

// fleet reads the engines of a range with their columns, and judges them: worst first, then by id.
func (a *API) fleet(ctx context.Context, from, to time.Time, columns []column) (fleetView, error) {
	engines, warnings, err := a.Reader.Engines(ctx, from, to)
	if err != nil {
		return fleetView{}, fmt.Errorf("list the engines: %w", err)
	}
	alerts, more, err := a.alerts(ctx, from, to, engines)
	if err != nil {
		return fleetView{}, err
	}
	f := fleetView{engines: engines, alerts: alerts, warnings: mergeWarnings(warnings, more)}
	slices.SortFunc(f.engines, func(x, y Engine) int { return strings.Compare(x.ID, y.ID) })

	quantiles := map[string][]float64{}
	var ids []string
	for _, c := range columns {
		if !slices.Contains(ids, c.signal.ID) {
			ids = append(ids, c.signal.ID)
		}
		if c.signal.Kind == signal.Quantile && !slices.Contains(quantiles[c.signal.ID], c.quantile) {
			quantiles[c.signal.ID] = append(quantiles[c.signal.ID], c.quantile)
		}
	}
	step := defaultStep(to.Sub(from), sparkSteps)
	data := make([]SignalData, len(ids))
	notes := make([][]Warning, len(ids))
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(runtime.GOMAXPROCS(0))
	for i, id := range ids {
		tasks.Go(func() (err error) {
			data[i], notes[i], err = a.Reader.Signal(ctx, SignalRequest{ID: id, From: from, To: to, Step: step, By: "engine", Quantiles: quantiles[id]})
			if err != nil {
				return fmt.Errorf("signal %s by engine: %w", id, err)
			}
			return nil
		})
	}
	if err := tasks.Wait(); err != nil {
		return fleetView{}, err
	}
	f.warnings = mergeWarnings(append(notes, f.warnings)...)
	for i := range f.engines {
		e := &f.engines[i]
		e.Signals, e.Sparks = map[string]Number{}, map[string]Spark{}
		for _, c := range columns {
			n, s := cell(*e, c, data[slices.Index(ids, c.signal.ID)])
			e.Signals[c.Key], e.Sparks[c.Key] = n, s
			f.partial = f.partial || n.State == StateUnknown
		}
	}
	a.judge(f.engines, columns, alerts)
	slices.SortStableFunc(f.engines, worstFirst)
	return f, nil
}

// cell finds an engine's number and sparkline in a signal read by engine.
func cell(e Engine, c column, d SignalData) (Number, Spark) {
	if !applies(c.signal, e) {
		return Number{State: StateNotApplicable}, Spark{State: StateNotApplicable}
	}
	var found *Line
	for i := range d.Lines {
		l := &d.Lines[i]
		if l.Labels["instance"] != e.Instance || c.signal.Kind == signal.Quantile && (l.Quantile == nil || *l.Quantile != c.quantile) {
			continue
		}
		// An engine that serves several models (adapters) has a line for each.
		if found == nil || l.Labels["model_name"] == e.Model {
			found = l
		}
	}
	if found != nil {
		return found.Now, Spark{Values: found.Values, State: found.Now.State}
	}
	n := Number{State: StateUnknown, Reason: "no series of it in this range"}
	if len(d.Spans) > 0 {
		n.Reason = d.Spans[len(d.Spans)-1].Reason
	}
	return n, Spark{State: StateUnknown}
}

// applies tells whether a signal means something for an engine of that role and backend.
func applies(s signal.Signal, e Engine) bool {
	if e.Role == string(engine.Frontend) || e.Role == string(engine.RoleRouter) {
		return false // it passes on what engines do; its own view of it stands in only where no engine is seen
	}
	if len(s.Roles) > 0 && e.Role != "" && !slices.Contains(s.Roles, engine.Role(e.Role)) {
		return false
	}
	if e.Backend == "" {
		return true
	}
	for _, src := range s.Sources {
		if string(src.Backend) == e.Backend || src.Backend == "" || s.Custom {
			return true
		}
	}
	return false
}

// ---- judgement ---------------------------------------------------------------------------------

// judge gives each engine its level and the reason for it. It is the one place that does. In order:
//
//  1. an alert that fires on it: what the alert's severity says;
//  2. it cannot be read: unknown;
//  3. it has no events and nothing runs: idle;
//  4. a number of it lies far from its peers' (same role and model): warn;
//  5. otherwise ok.
func (a *API) judge(engines []Engine, columns []column, alerts []Alert) {
	unreadable := a.unreadable()
	outliers := outliers(engines, columns)
	for i := range engines {
		e := &engines[i]
		problem, down := unreadable[e.Instance]
		if !down && e.Up != nil && !*e.Up { // nobody scrapes it any more, as in an archive
			problem, down = "its last scrape failed", true
		}
		e.Level, e.Why = LevelOK, ""
		if level, why := alerted(e.ID, alerts); level != "" {
			e.Level, e.Why = level, why
			if down {
				e.Why += ": " + problem
			}
			continue
		}
		if down {
			e.Level, e.Why = LevelUnknown, problem
			continue
		}
		state, reason := stateOfEngine(*e, columns)
		switch {
		case state == StateUnknown:
			e.Level, e.Why = LevelUnknown, reason
		case state == StateIdle:
			e.Level, e.Why = LevelIdle, cmp.Or(reason, "no requests")
		case outliers[e.ID] != "":
			e.Level, e.Why = LevelWarn, outliers[e.ID]
		}
	}
}

// alerted returns the worst level of the alerts that fire on an engine, "" without one.
func alerted(id string, alerts []Alert) (Level, string) {
	var level Level
	var names []string
	for _, al := range alerts {
		if al.EngineID != id || al.State != "firing" || al.Level == LevelOK {
			continue
		}
		if al.Level == LevelCrit && level != LevelCrit {
			level, names = LevelCrit, slices.Insert(names, 0, al.Name) // the worst is named
			continue
		}
		level = cmp.Or(level, al.Level)
		names = append(names, al.Name)
	}
	switch len(names) {
	case 0:
		return "", ""
	case 1:
		return level, names[0]
	}
	return level, fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// stateOfEngine sums the states of its numbers up. A signal of events (percentiles, shares) that is
// idle while no level says that something runs makes an idle engine.
func stateOfEngine(e Engine, columns []column) (State, string) {
	var idle, unknown string
	var values, idles, unknowns int
	for _, c := range columns {
		n := e.Signals[c.Key]
		switch n.State {
		case StateIdle:
			idles++
			idle = cmp.Or(idle, n.Reason)
		case StateUnknown:
			unknowns++
			unknown = cmp.Or(unknown, n.Reason)
		case StateValue:
			events := c.signal.Kind == signal.Quantile || c.signal.Kind == signal.Share
			counts := c.signal.Kind == signal.Rate || c.signal.ID == "running" || c.signal.ID == "queue_depth"
			if events || counts && n.Value != nil && *n.Value > 0 {
				values++
			}
		}
	}
	switch {
	case values > 0:
		return StateValue, ""
	case idles > 0:
		return StateIdle, idle
	case unknowns > 0 && unknowns == applicable(e, columns):
		return StateUnknown, unknown
	}
	return StateValue, ""
}

func applicable(e Engine, columns []column) int {
	n := 0
	for _, c := range columns {
		if e.Signals[c.Key].State != StateNotApplicable {
			n++
		}
	}
	return n
}

// far says when a number of a kind of signal is far from its peers' median: times it and by at least
// least, in the direction that is worse.
var far = map[signal.Kind]struct{ times, least float64 }{
	signal.Quantile: {times: 2, least: 0.02}, // 20 ms: below, nobody feels it
	signal.Level:    {times: 3, least: 10},   // requests
	signal.Share:    {times: 2, least: 0.1},
}

// minPeers is how many others make a median worth a comparison.
const minPeers = 3

// outliers finds engines that do much worse than the others of their role and model, by engine id.
func outliers(engines []Engine, columns []column) map[string]string {
	found := map[string]string{}
	for _, c := range columns {
		rule, ok := far[c.signal.Kind]
		if !ok {
			continue
		}
		groups := map[[2]string][]int{}
		for i, e := range engines {
			if e.Signals[c.Key].Value != nil {
				key := [2]string{e.Role, e.Model}
				groups[key] = append(groups[key], i)
			}
		}
		for _, members := range groups {
			if len(members) <= minPeers {
				continue
			}
			for _, i := range members {
				var peers []float64
				for _, j := range members {
					if j != i {
						peers = append(peers, *engines[j].Signals[c.Key].Value)
					}
				}
				v, m := *engines[i].Signals[c.Key].Value, median(peers)
				worse := v >= m*rule.times && v-m >= rule.least
				if c.Higher {
					worse = v*rule.times <= m && m-v >= rule.least
				}
				if worse && found[engines[i].ID] == "" {
					found[engines[i].ID] = fmt.Sprintf("%s %s, peers %s", c.Title, say(engines[i].Signals[c.Key], c.Unit), say(Number{Value: &m}, c.Unit))
				}
			}
		}
	}
	return found
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// say writes a number for a sentence: "412 ms", "4.2 s", "87 %", ">= 60 s".
func say(n Number, unit string) string {
	if n.Value == nil {
		return string(n.State)
	}
	v := *n.Value
	var s string
	switch {
	case unit == "seconds" && v < 9.9995:
		s = strconv.FormatFloat(v*1000, 'f', decimals(v*1000), 64) + " ms"
	case unit == "seconds":
		s = strconv.FormatFloat(v, 'f', decimals(v), 64) + " s"
	case unit == "ratio":
		s = strconv.FormatFloat(v*100, 'f', decimals(v*100), 64) + " %"
	case unit == "" || unit == "1":
		s = strconv.FormatFloat(v, 'f', decimals(v), 64)
	default:
		s = strconv.FormatFloat(v, 'f', decimals(v), 64) + " " + unit
	}
	if n.AtLeast {
		return ">= " + s
	}
	return s
}

// decimals is how many places after the point three digits leave.
func decimals(v float64) int {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return 0
	case v >= 10:
		return 1
	}
	return 2
}
