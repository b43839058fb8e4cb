package main

import (
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/sim"
)

func addSim(a *kingpin.Application, e *env) {
	parent := a.Command("sim", "Load and faults to order.")
	o := &app.SimOptions{}
	cmd := parent.Command("engines", "Simulated engines that answer /metrics on loopback.").HelpLong(`
  rollscope sim engines --fleet uniform:64
  rollscope sim engines --fleet demo --fault kv_pressure@30s+60s:sglang-0 --config-out prometheus.yml
`)
	cmd.Flag("fleet", "demo, uniform:N or mixed:N.").Default("demo").StringVar(&o.Fleet)
	cmd.Flag("seed", "Seed of the fleet: the same seed lives the same life.").Default("1").Int64Var(&o.Seed)
	cmd.Flag("speed", "Live this many times faster than the clock.").Default("1").Float64Var(&o.Speed)
	cmd.Flag("fault", "NAME@T+D[:MEMBER], repeatable.").StringsVar(&o.Faults)
	cmd.Flag("listen", "Loopback address of the members; port 0 takes free ones, another is the first of a row.").Default("127.0.0.1:0").StringVar(&o.Listen)
	cmd.Flag("config-out", "Write a prometheus.yml that scrapes all members.").PlaceHolder("FILE").StringVar(&o.ConfigOut)
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&o.For))
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Logger, o.Out = e.logger(), e.out
		return app.SimEngines(e.ctx, *o)
	})
	addSimRecord(parent, e)
	addSimRollouts(parent, e)
	addSimLogs(parent, e)
	addSimTraces(parent, e)
	addSimFPM(parent, e)
	parent.Command("faults", "List the faults that --fault takes.").Action(func(*kingpin.ParseContext) error {
		t := newTable(e.out)
		t.head("FAULT", "MEANING")
		for _, f := range sim.Faults() {
			t.row(f.Name, f.Meaning)
		}
		t.row("", "")
		t.row("OF ROLLOUTS", "")
		rolloutFaults(t)
		if err := t.flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(e.out, "\nNAME@T+D[:MEMBER]: begins T after the start and lasts D; without a member it hits all that it can.")
		return err
	})
}

func addSimRecord(parent *kingpin.CmdClause, e *env) {
	var (
		o    = app.VirtualOptions{Rules: true}
		f    app.SimOptions
		from string
	)
	cmd := parent.Command("record", "Write a data directory as if the fleet had been recorded, on a virtual clock: hours take seconds.").HelpLong(`
  rollscope sim record /tmp/week --fleet uniform:64 --for 6h && rollscope replay /tmp/week
`)
	cmd.Arg("dir", "Data directory to write.").Required().StringVar(&o.Dir)
	cmd.Flag("fleet", "demo, uniform:N or mixed:N.").Default("demo").StringVar(&f.Fleet)
	cmd.Flag("seed", "Seed of the fleet.").Default("1").Int64Var(&f.Seed)
	cmd.Flag("fault", "NAME@T+D[:MEMBER], repeatable.").StringsVar(&f.Faults)
	cmd.Flag("from", "When the record begins; default --for before now.").StringVar(&from)
	cmd.Flag("for", "How much is recorded.").Default("10m").SetValue(duration(&o.For))
	cmd.Flag("interval", "Time between scrapes.").Default("15s").SetValue(duration(&o.Interval))
	cmd.Flag("rules", "Evaluate the built-in rules too.").Default("true").BoolVar(&o.Rules)
	cmd.Action(func(*kingpin.ParseContext) error {
		var err error
		if o.Fleet, err = app.FleetConfig(f.Fleet, f.Seed, f.Faults); err != nil {
			return badInput("%w", err)
		}
		// On a multiple of the interval, so that groups of rules fall on scrapes.
		o.From = time.Now().Add(-o.For).Truncate(max(o.Interval, 15*time.Second))
		if from != "" {
			if o.From, err = parseTime(from); err != nil {
				return badInput("--from: %w", err)
			}
		}
		o.Logger = e.logger()
		res, err := app.RecordVirtual(e.ctx, o)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.out, "%s: %d samples of %d series in %d scrapes\n", o.Dir, res.Samples, res.Series, res.Scrapes)
		return err
	})
}
