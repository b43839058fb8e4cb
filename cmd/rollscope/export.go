package main

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addExport(a *kingpin.Application, e *env) {
	var (
		o     = &app.ExportOptions{}
		steps app.ExportStepsOptions
		since string
	)
	cmd := a.Command("export", "Files for the tools that a team already has.").HelpLong(`
  rollscope export grafana ./grafana        boards and provisioning for Grafana
  rollscope export alerts ./rules           recording rules and alerts for Prometheus
  rollscope export prometheus ./prom        a prometheus.yml that scrapes and names as serve does
  rollscope export tensorboard ./tb --from dumps/
  rollscope export wandb ./wandb --data /runs/7/tsdb --project grpo --bundle runs.tar.gz
`)
	cmd.Arg("what", "grafana, alerts, prometheus, tensorboard or wandb.").Required().EnumVar(&o.What, "grafana", "alerts", "prometheus", "tensorboard", "wandb")
	cmd.Arg("dir", "Directory to write to; made if it is missing.").Required().StringVar(&o.Dir)
	cmd.Flag("config.file", "Include the signals, boards and alerts of this configuration.").StringVar(&o.ConfigFile)
	cmd.Flag("recorded", "Let boards read the recorded series (load the rules of `export alerts` too).").BoolVar(&o.Recorded)
	cmd.Flag("scrape", "For prometheus: HOST:PORT[/path] to write into it (repeatable).").StringsVar(&o.Scrape)
	stepFlags(cmd, &steps, &since)
	cmd.Action(func(*kingpin.ParseContext) error {
		if o.What == "tensorboard" || o.What == "wandb" {
			steps.What, steps.Dir = o.What, o.Dir
			return exportSteps(e, steps, since)
		}
		o.Logger = e.logger()
		files, err := app.Export(*o)
		if err != nil {
			return badInput("%w", err)
		}
		for _, f := range files {
			fmt.Fprintln(e.out, f)
		}
		return nil
	})
}
