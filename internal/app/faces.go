package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

// faces is what the API reads signals, the catalog and boards from. All three depend on the
// configuration, which may change while requests run: each request sees one or the other, whole.
type faces struct {
	queryable storage.SampleAndChunkQueryable
	engine    promql.QueryEngine
	logger    *slog.Logger
	now       atomic.Pointer[face]
}

// face is the faces of one configuration.
type face struct {
	*signal.Catalog
	reader *metricstore.Reader
	boards *api.Dashboards
}

func newFaces(q storage.SampleAndChunkQueryable, e promql.QueryEngine, logger *slog.Logger) *faces {
	return &faces{queryable: q, engine: e, logger: logger}
}

func (f *faces) use(cat *signal.Catalog, custom []dashboard.Board, engines []config.Engine) {
	var overrides []engine.Override
	for _, e := range engines {
		overrides = append(overrides, engine.Override{
			Instance: e.Instance, Aliases: e.Aliases, Role: engine.Role(e.Role), Name: e.Name,
		})
	}
	f.now.Store(&face{
		Catalog: cat,
		reader:  metricstore.NewReader(f.queryable, f.engine, metricstore.ReaderOptions{Catalog: cat, Overrides: overrides, Logger: f.logger}),
		boards:  api.NewDashboards(cat, dashboard.Boards(cat, custom...)),
	})
}

// Catalog.

func (f *faces) Metrics() []signal.Metric                 { return f.now.Load().Metrics() }
func (f *faces) Metric(name string) (signal.Metric, bool) { return f.now.Load().Metric(name) }
func (f *faces) Signals() []signal.Signal                 { return f.now.Load().Signals() }

// Boards.

func (f *faces) Boards() []api.Board                { return f.now.Load().boards.Boards() }
func (f *faces) Search(query string) []api.BoardHit { return f.now.Load().boards.Search(query) }
func (f *faces) Grafana(uid string) (json.RawMessage, bool, error) {
	return f.now.Load().boards.Grafana(uid)
}

// signals is the catalog's half of faces that the reader's half would hide: both have a method Signal.
type signals struct{ *faces }

// Signal finds a signal of the catalog.
func (s signals) Signal(id string) (signal.Signal, bool) { return s.now.Load().Signal(id) }

// Reader.

// Signal reads a signal.
func (f *faces) Signal(ctx context.Context, q api.SignalRequest) (api.SignalData, []api.Warning, error) {
	res, err := f.now.Load().reader.Signal(ctx, metricstore.SignalRequest{
		ID: q.ID, From: q.From, To: q.To, Step: q.Step, By: signal.By(q.By), Instance: q.Instance, Quantiles: q.Quantiles,
	})
	var missing *metricstore.NotFoundError
	switch {
	case errors.As(err, &missing):
		return api.SignalData{}, nil, &api.Error{
			Code: "not_found", Message: "there is no signal " + q.ID, Hint: "GET /api/rollscope/v1/signals lists them",
		}
	case err != nil:
		return api.SignalData{}, nil, err
	}
	d := api.SignalData{
		ID: res.Signal.ID, Title: res.Signal.Title, Unit: res.Signal.Unit, Form: res.Form, Query: res.Query,
		From: stamp(res.From), To: stamp(res.To), Step: res.Step.Seconds(),
		Lines: []api.Line{}, Spans: []api.UnknownRange{}, Idle: []api.Interval{}, Source: res.Sources,
	}
	if d.Source == nil {
		d.Source = []string{}
	}
	for _, l := range res.Lines {
		d.Lines = append(d.Lines, api.Line{
			Name: l.Name, Quantile: l.Quantile, Labels: l.Labels, Values: l.Values, Now: numberOf(l.Now), TopBound: l.TopBound,
		})
	}
	if w := res.Worst; w != nil {
		d.Worst = &api.Worst{EngineID: api.EngineID(w.Job, w.Instance), Name: w.Name, Number: numberOf(w.Number), Line: w.Line}
	}
	for _, u := range res.Unknown {
		d.Spans = append(d.Spans, api.UnknownRange{From: stamp(u.From), To: stamp(u.To), Reason: u.Reason})
	}
	for _, s := range res.Idle {
		d.Idle = append(d.Idle, api.Interval{From: stamp(s.From), To: stamp(s.To)})
	}
	return d, warningsOf(res.Warnings), nil
}

// Engines lists the engines of a range.
func (f *faces) Engines(ctx context.Context, from, to time.Time) ([]api.Engine, []api.Warning, error) {
	list, warnings, err := f.now.Load().reader.Engines(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	out := make([]api.Engine, 0, len(list))
	for _, e := range list {
		ranks := e.DPRanks
		if ranks == nil {
			ranks = []string{}
		}
		out = append(out, api.Engine{
			ID: api.EngineID(e.Job, e.Instance), Name: e.Name, Job: e.Job, Instance: e.Instance,
			Role: string(e.Role), Backend: string(e.Backend), Version: e.Version, Model: e.Model,
			View: string(e.View), DPRanks: ranks, Labels: e.Labels,
		})
	}
	return out, warningsOf(warnings), nil
}

// Coverage tells when something was recorded.
func (f *faces) Coverage(ctx context.Context) (first, last time.Time, gaps []api.Interval, err error) {
	rec, err := f.now.Load().reader.Coverage(ctx)
	for _, g := range rec.Gaps {
		gaps = append(gaps, api.Interval{From: stamp(g.From), To: stamp(g.To)})
	}
	return rec.First, rec.Last, gaps, err
}

// Names lists the metrics of a range.
func (f *faces) Names(ctx context.Context, from, to time.Time) ([]string, error) {
	return f.now.Load().reader.Names(ctx, from, to)
}

func numberOf(n metricstore.Number) api.Number {
	return api.Number{
		Value: n.Value, State: api.State(n.State), Reason: n.Reason, Lower: n.Lower, Upper: n.Upper,
		AtLeast: n.AtLeast, ShareAbove: n.ShareAbove, Caveat: n.Caveat,
	}
}

func warningsOf(list []metricstore.Warning) []api.Warning {
	out := make([]api.Warning, 0, len(list))
	for _, w := range list {
		out = append(out, api.Warning{Code: w.Code, Message: w.Message, Where: w.Where, Hint: w.Hint})
	}
	return out
}

func noticesOf(list []metricstore.Notice) []api.Warning {
	out := make([]api.Warning, 0, len(list))
	for _, n := range list {
		out = append(out, api.Warning{Code: n.Code, Message: n.Message, Where: n.Where, Hint: n.Hint})
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
