package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/rollscope/rollscope/internal/metricstore"
)

// levelOf judges a severity label. An unknown word is a warning: somebody wrote a rule for it.
func levelOf(severity string) Level {
	switch strings.ToLower(severity) {
	case "critical", "crit", "page", "error", "fatal":
		return LevelCrit
	case "info", "none":
		return LevelOK
	}
	return LevelWarn
}

func (a *API) getAlerts(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "limit", "after")
	from, to := p.window()
	if p.err != nil {
		return nil, p.err
	}
	engines, warnings, err := a.Reader.Engines(r.Context(), from, to)
	if err != nil {
		return nil, err
	}
	alerts, more, err := a.alerts(r.Context(), from, to, engines)
	if err != nil {
		return nil, err
	}
	answer := Alerts{}
	if a.Rules != nil {
		if answer.Rules, err = a.Rules.Rules(r.Context()); err != nil {
			return nil, err
		}
		answer.Receivers = a.Rules.Receivers()
	}
	var next string
	answer.Alerts, next = page(p, alerts, alertKey)
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, answer, warnings, more)
	e.Next = next
	return e, nil
}

// alertKey names an alert instance whatever its state.
func alertKey(al Alert) string {
	var b strings.Builder
	b.WriteString(al.Name)
	for _, name := range sortedKeys(al.Labels) {
		if name != labels.AlertName {
			fmt.Fprintf(&b, ",%s=%s", name, al.Labels[name])
		}
	}
	return b.String()
}

// alerts lists what is active now, and what was active in the range and is not any more: worst and
// newest first. An archive has only the second kind, with what its last sample says.
func (a *API) alerts(ctx context.Context, from, to time.Time, engines []Engine) ([]Alert, []Warning, error) {
	var alerts []Alert
	if a.Rules != nil {
		alerts = a.Rules.Alerts()
	}
	active := map[string]bool{}
	for _, al := range alerts {
		active[alertKey(al)] = true
	}
	past, warnings, err := a.recordedAlerts(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	live := a.Rules != nil
	unreadable := a.unreadable()
	for _, al := range past {
		if active[alertKey(al)] {
			continue
		}
		if live && al.Until == nil { // its last sample is as new as the range; the rules say that it is over
			al.Until, al.State = stampPtr(to), "resolved"
		}
		if reason, down := unreadable[al.Labels["instance"]]; down && al.Until != nil {
			al.State, al.Reason = "cannot_be_judged", reason
		}
		alerts = append(alerts, al)
	}
	for i := range alerts {
		al := &alerts[i]
		al.Level = levelOf(al.Severity)
		for _, e := range engines {
			if e.Instance != "" && e.Instance == al.Labels["instance"] {
				al.EngineID = e.ID
				break
			}
		}
	}
	rank := func(al Alert) int {
		return 10*slices.Index([]string{"firing", "cannot_be_judged", "pending", "resolved"}, al.State) +
			slices.Index([]Level{LevelCrit, LevelWarn, LevelOK}, al.Level)
	}
	slices.SortStableFunc(alerts, func(x, y Alert) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		if x.Since != nil && y.Since != nil && *x.Since != *y.Since {
			return strings.Compare(*y.Since, *x.Since)
		}
		return strings.Compare(alertKey(x), alertKey(y))
	})
	return alerts, warnings, nil
}

// unreadable tells the instances that were scraped without success, with the reason. An alert on one
// of them that is over is over because nothing is known.
func (a *API) unreadable() map[string]string {
	down := map[string]string{}
	if a.Targets == nil {
		return down
	}
	up := map[string]bool{}
	for _, t := range a.Targets.Targets() {
		switch {
		case t.Up == nil:
		case *t.Up:
			up[t.Instance] = true
		default:
			down[t.Instance] = targetProblem(t)
		}
	}
	for instance := range up { // another target of the same engine is read
		delete(down, instance)
	}
	return down
}

// targetProblem is a clause that says why a target could not be read.
func targetProblem(t Target) string {
	switch {
	case t.Error != "":
		return t.Error
	case t.Reason != "":
		return strings.ReplaceAll(t.Reason, "_", " ")
	}
	return "it could not be scraped"
}

// alertSteps is how finely a range of ALERTS is looked at.
const alertSteps = 500

// recordedAlerts reads the ALERTS series that rules leave behind: also those of a Prometheus that wrote an archive.
func (a *API) recordedAlerts(ctx context.Context, from, to time.Time) ([]Alert, []Warning, error) {
	step := max(defaultStep(to.Sub(from), alertSteps), 5*time.Second)
	matrix, warnings, err := a.queryRange(ctx, "ALERTS", from, to, step)
	if err != nil {
		return nil, nil, fmt.Errorf("read the ALERTS series: %w", err)
	}
	byKey := map[string]Alert{}
	for _, series := range matrix {
		if len(series.Floats) == 0 {
			continue
		}
		al := Alert{Labels: map[string]string{}, State: series.Metric.Get("alertstate"), Name: series.Metric.Get(labels.AlertName),
			Severity: series.Metric.Get("severity")}
		series.Metric.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel && l.Name != "alertstate" {
				al.Labels[l.Name] = l.Value
			}
		})
		// The last unbroken run of samples is the last time it was active.
		points := series.Floats
		end := points[len(points)-1].T
		start := end
		for i := len(points) - 2; i >= 0 && start-points[i].T <= step.Milliseconds(); i-- {
			start = points[i].T
		}
		al.Since = stampPtr(time.UnixMilli(start))
		if to.UnixMilli()-end >= step.Milliseconds() {
			al.Until = stampPtr(time.UnixMilli(end))
		}
		key := alertKey(al)
		if other, ok := byKey[key]; ok && !laterAlert(al, other) {
			continue
		}
		byKey[key] = al
	}
	var alerts []Alert
	for _, key := range sortedKeys(byKey) {
		al := byKey[key]
		if al.Until != nil {
			if al.State == "pending" { // it never fired: no news
				continue
			}
			al.State = "resolved"
		}
		alerts = append(alerts, al)
	}
	return alerts, warnings, nil
}

// laterAlert tells whether x says more about an alert's present than y: pending and firing are two series.
func laterAlert(x, y Alert) bool {
	if (x.Until == nil) != (y.Until == nil) {
		return x.Until == nil
	}
	return x.State == "firing"
}

// queryRange evaluates an expression of our own: that a name in it is not stored is no news.
func (a *API) queryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) (promql.Matrix, []Warning, error) {
	ctx = metricstore.WithoutNameNotes(ctx)
	q, err := a.Prometheus.Engine.NewRangeQuery(ctx, a.Prometheus.Queryable, promql.NewPrometheusQueryOpts(false, 0, nil), expr, from, to, step)
	if err != nil {
		return nil, nil, err
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, nil, res.Err
	}
	m, err := res.Matrix()
	if err != nil {
		return nil, nil, err
	}
	var warnings []Warning
	for _, w := range res.Warnings.AsErrors() {
		warnings = append(warnings, Warning{Code: "query", Message: w.Error(), Where: expr})
	}
	return cloneMatrix(m), warnings, nil
}

// cloneMatrix copies a result, which belongs to its query.
func cloneMatrix(m promql.Matrix) promql.Matrix {
	out := make(promql.Matrix, len(m))
	for i, s := range m {
		out[i] = promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)}
	}
	return out
}
