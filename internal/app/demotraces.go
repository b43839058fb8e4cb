package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/sim/spans"
)

// demoTraces are the spans that the demo's engines, routers and frontends export.
type demoTraces struct {
	running *sim.Running
	seed    int64
	logger  *slog.Logger
}

// run exports to the server at url until ctx ends.
func (d *demoTraces) run(ctx context.Context, url string) {
	live, err := spans.NewLive(spans.LiveOptions{
		Traces: spans.Options{Seed: uint64(d.seed)},
		To:     otlp.Endpoint{URL: url, Compression: "none"},
		Now: func() (t time.Time) {
			d.running.With(func(f *sim.Fleet) { t = f.Now() })
			return t
		},
		Logger: d.logger,
	})
	if err != nil {
		d.logger.Error("the demo sends no traces", "err", err)
		return
	}
	d.running.With(func(f *sim.Fleet) { f.Watch(live.Watch()) })
	if err := live.Run(ctx); err != nil {
		d.logger.Warn("the demo's exporter of traces ended", "err", err)
	}
}
