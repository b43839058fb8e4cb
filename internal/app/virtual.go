package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/sim"
)

// VirtualOptions configure [RecordVirtual].
type VirtualOptions struct {
	Dir      string
	Fleet    sim.Config
	From     time.Time     // when the fleet starts and the record begins
	For      time.Duration // how much is recorded
	Interval time.Duration // between scrapes; 0: 15 s
	Rules    bool          // evaluate the built-in rules at every interval too
	Logger   *slog.Logger
}

// VirtualResult says what was written.
type VirtualResult struct {
	Scrapes, Samples, Series, Evaluations int
}

// RecordVirtual lets a fleet live on a virtual clock and writes what a recorder would have written:
// the samples of every scrape, `up`, and what the rules record. Hours take seconds; the same options
// write the same samples.
func RecordVirtual(ctx context.Context, o VirtualOptions) (res VirtualResult, err error) {
	if o.Interval <= 0 {
		o.Interval = 15 * time.Second
	}
	o.Fleet.Start = o.From
	fleet, err := sim.New(o.Fleet)
	if err != nil {
		return res, err
	}
	to := o.From.Add(o.For)
	cat := signal.Default()
	store, err := metricstore.Open(ctx, metricstore.Options{
		Dir: o.Dir, Logger: o.Logger, Catalog: cat,
		Retention: 10 * 365 * 24 * time.Hour, // what is written now was recorded then
		Now:       func() time.Time { return to },
	})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	var rules *metricstore.Rules
	if o.Rules {
		rules, err = metricstore.NewRules(metricstore.RulesOptions{
			Appendable: store.Appendable(), Queryable: store.Queryable(), Engine: store.Engine(), Catalog: cat,
			Logger: o.Logger, Now: func() time.Time { return to },
		})
		if err != nil {
			return res, err
		}
		none, err := config.FromFlags(nil, o.Interval)
		if err != nil {
			return res, err
		}
		builtIn, err := builtinRules(cat, nil, true)
		if err != nil {
			return res, err
		}
		if err := rules.Apply(none.Prometheus, builtIn, nil); err != nil {
			return res, err
		}
	}
	w := newVirtualWriter(store.Appendable(), fleet)
	err = sim.ReplaySamples(ctx, fleet, sim.ReplayOptions{From: o.From, To: to, Interval: o.Interval}, func(t time.Time) error {
		if err := w.write(ctx, t); err != nil {
			return err
		}
		if rules == nil {
			return nil
		}
		res.Evaluations++
		return rules.EvalAt(ctx, t)
	})
	res.Scrapes, res.Samples, res.Series = w.scrapes, w.samples, w.series
	return res, err
}

// virtualWriter appends a fleet's samples as a scrape would: with job and instance, one spelling, `up`
// and stale markers for what a target no longer shows.
type virtualWriter struct {
	store   storage.AppendableV2
	fleet   *sim.Fleet
	targets map[string]*virtualTarget
	order   []string

	scrapes, samples, series int
}

type virtualTarget struct {
	job, instance string
	up            labels.Labels
	upRef         storage.SeriesRef
	series        []virtualSeries
}

type virtualSeries struct {
	labels labels.Labels
	ref    storage.SeriesRef
	seen   int // number of the scrape that last showed it; 0 never
}

func newVirtualWriter(store storage.AppendableV2, fleet *sim.Fleet) *virtualWriter {
	w := &virtualWriter{store: store, fleet: fleet, targets: map[string]*virtualTarget{}}
	for _, t := range fleet.Targets() {
		job := string(t.Kind)
		if t.Path != "/metrics" {
			job += "-engines"
		}
		w.order = append(w.order, t.Name)
		w.targets[t.Name] = &virtualTarget{
			job: job, instance: t.Addr,
			up: labels.FromStrings(model.MetricNameLabel, "up", "job", job, "instance", t.Addr),
		}
	}
	return w
}

func (w *virtualWriter) write(ctx context.Context, at time.Time) (err error) {
	app, ts := w.store.AppenderV2(ctx), at.UnixMilli()
	defer func() {
		if err != nil {
			_ = app.Rollback()
		}
	}()
	w.scrapes++
	answered := map[string]bool{}
	w.fleet.Samples(func(target string, i int, v float64) {
		if err != nil {
			return
		}
		t := w.targets[target]
		answered[target] = true
		if i >= len(t.series) {
			w.grow(t, w.fleet.Series(target))
		}
		s := &t.series[i]
		s.ref, err = app.Append(s.ref, s.labels, 0, ts, v, nil, nil, storage.AOptions{})
		s.seen = w.scrapes
		w.samples++
	})
	if err != nil {
		return fmt.Errorf("append at %s: %w", at.UTC().Format(time.RFC3339), err)
	}
	for _, name := range w.order {
		t := w.targets[name]
		up := 0.0
		if answered[name] {
			up = 1
		}
		if t.upRef, err = app.Append(t.upRef, t.up, 0, ts, up, nil, nil, storage.AOptions{}); err != nil {
			return fmt.Errorf("append up of %s: %w", name, err)
		}
		for i := range t.series {
			if s := &t.series[i]; s.seen > 0 && s.seen == w.scrapes-1 {
				if s.ref, err = app.Append(s.ref, s.labels, 0, ts, staleNaN, nil, nil, storage.AOptions{}); err != nil {
					return fmt.Errorf("append the end of a series of %s: %w", name, err)
				}
			}
		}
	}
	return app.Commit()
}

// grow takes over the label sets that the target has got since.
func (w *virtualWriter) grow(t *virtualTarget, all [][][2]string) {
	b := labels.NewScratchBuilder(16)
	for _, pairs := range all[len(t.series):] {
		b.Reset()
		for _, p := range pairs {
			if p[0] == model.MetricNameLabel {
				p[1] = signal.Canonical(p[1])
			}
			b.Add(p[0], p[1])
		}
		b.Add("job", t.job)
		b.Add("instance", t.instance)
		b.Sort()
		t.series = append(t.series, virtualSeries{labels: b.Labels()})
		w.series++
	}
}

var staleNaN = math.Float64frombits(value.StaleNaN)
