package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

// StoreReader is the [Reader] of a store or an archive.
type StoreReader struct{ reader func() *metricstore.Reader }

// NewStoreReader asks the reader that current returns: another one once a configuration with other
// signals or engines is in force.
func NewStoreReader(current func() *metricstore.Reader) StoreReader { return StoreReader{current} }

// Signal implements [Reader].
func (s StoreReader) Signal(ctx context.Context, q SignalRequest) (SignalData, []Warning, error) {
	res, err := s.reader().Signal(ctx, metricstore.SignalRequest{ID: q.ID, From: q.From, To: q.To, Step: q.Step, By: signal.By(q.By),
		Instance: q.Instance, Quantiles: q.Quantiles, Window: q.Window})
	var missing *metricstore.NotFoundError
	switch {
	case errors.As(err, &missing):
		return SignalData{}, nil, &Error{Code: "not_found", Message: "there is no signal " + q.ID, Where: q.ID, Hint: "GET " + ours + "/signals lists them"}
	case err != nil:
		return SignalData{}, nil, err
	}
	d := SignalData{ID: res.Signal.ID, Title: res.Signal.Title, Unit: res.Signal.Unit, Form: res.Form, Query: res.Query,
		From: stamp(res.From), To: stamp(res.To), Step: res.Step.Seconds(), Idle: intervals(res.Idle), Source: res.Sources}
	for _, l := range res.Lines {
		d.Lines = append(d.Lines, Line{Name: l.Name, Quantile: l.Quantile, Labels: l.Labels, Values: l.Values, Now: fromNumber(l.Now), TopBound: l.TopBound})
	}
	for _, u := range res.Unknown {
		d.Spans = append(d.Spans, UnknownRange{From: stamp(u.From), To: stamp(u.To), Reason: u.Reason})
	}
	if w := res.Worst; w != nil {
		d.Worst = &Worst{EngineID: EngineID(w.Job, w.Instance), Name: w.Name, Number: fromNumber(w.Number), Line: w.Line}
	}
	return d, fromWarnings(res.Warnings), nil
}

// Engines implements [Reader].
func (s StoreReader) Engines(ctx context.Context, from, to time.Time) ([]Engine, []Warning, error) {
	infos, warnings, err := s.reader().Engines(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	var out []Engine
	for _, e := range infos {
		out = append(out, Engine{ID: EngineID(e.Job, e.Instance), Name: e.Name, Job: e.Job, Instance: e.Instance, Role: string(e.Role),
			Backend: string(e.Backend), Version: e.Version, Model: e.Model, View: string(e.View), DPRanks: slices.Clone(e.DPRanks),
			DPSize: e.DPSize, Up: e.Up, Labels: maps.Clone(e.Labels)})
	}
	return out, fromWarnings(warnings), nil
}

// Coverage implements [Reader].
func (s StoreReader) Coverage(ctx context.Context) (first, last time.Time, gaps []Interval, err error) {
	held, err := s.reader().Coverage(ctx)
	return held.First, held.Last, intervals(held.Gaps), err
}

// Names implements [Reader].
func (s StoreReader) Names(ctx context.Context, from, to time.Time) ([]string, error) {
	return s.reader().Names(ctx, from, to)
}

func intervals(spans []metricstore.Span) []Interval {
	out := []Interval{}
	for _, s := range spans {
		out = append(out, Interval{From: stamp(s.From), To: stamp(s.To)})
	}
	return out
}

func fromNumber(n metricstore.Number) Number {
	return Number{Value: n.Value, State: State(n.State), Reason: n.Reason, Lower: n.Lower, Upper: n.Upper, AtLeast: n.AtLeast,
		ShareAbove: n.ShareAbove, Caveat: n.Caveat}
}

func fromWarnings(list []metricstore.Warning) []Warning {
	var out []Warning
	for _, w := range list {
		out = append(out, Warning{Code: w.Code, Message: w.Message, Where: w.Where, Hint: w.Hint})
	}
	return out
}

// StoreDrops lists what a store did not keep.
func StoreDrops(s *metricstore.Store) []Drop {
	var out []Drop
	for _, d := range s.Drops() {
		out = append(out, Drop{Source: d.Source, Reason: d.Reason, Count: d.Count})
	}
	return out
}

// FromNotices turns what a store or an archive has to say into warnings.
func FromNotices(list []metricstore.Notice) []Warning {
	var out []Warning
	for _, n := range list {
		out = append(out, Warning{Code: n.Code, Message: n.Message, Where: n.Where, Hint: n.Hint})
	}
	return out
}
