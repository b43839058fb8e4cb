package main

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addDemo(a *kingpin.Application, e *env) {
	o := &app.DemoOptions{}
	cmd := a.Command("demo", "A simulated fleet, recorded by a real server: see everything in a minute.").HelpLong(`
  rollscope demo
  rollscope demo --speed 10 --fault engine_down@2m+1m:decode-0
`)
	cmd.Flag("web.listen-address", "Address of API and page; when the port is busy the next free one is taken.").Default("127.0.0.1:9090").StringVar(&o.Listen)
	cmd.Flag("storage.tsdb.path", "Keep the recording in this directory; default a temporary one that is removed at the end.").StringVar(&o.Dir)
	cmd.Flag("seed", "Seed of the fleet.").Default("1").Int64Var(&o.Seed)
	cmd.Flag("speed", "Let the fleet live this many times faster than the clock.").Default("1").Float64Var(&o.Speed)
	cmd.Flag("fault", "NAME@T+D[:MEMBER], repeatable; replaces the scripted ones. See rollscope sim faults.").StringsVar(&o.Faults)
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Logger, o.Version, o.Out = e.logger(), e.version, e.out
		return app.Demo(e.ctx, *o)
	})
}
