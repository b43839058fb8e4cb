package main

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addReplay(a *kingpin.Application, e *env) {
	o := &app.ReplayOptions{}
	cmd := a.Command("replay", "A finished run's data directory, opened read-only, with every board.").HelpLong(`
Any Prometheus data directory, ours or another's. Nothing in it changes; it may lie on a read-only
mount, and another process may still be writing it.
  rollscope replay /runs/7/tsdb
`)
	cmd.Arg("dir", "Data directory.").Required().StringVar(&o.Dir)
	webFlags(cmd, &o.Web)
	cmd.Flag("traces.tempo", "Address for Grafana's Tempo data source.").PlaceHolder("HOST:PORT").StringVar(&o.Events.Tempo)
	cmd.Flag("events.url", "Spans, logs and requests are in this VictoriaLogs, and not in the directory.").PlaceHolder("URL").StringVar(&o.Events.URL)
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Logger, o.Version, o.Out = e.logger(), e.version, e.out
		return app.Replay(e.ctx, *o)
	})
}
