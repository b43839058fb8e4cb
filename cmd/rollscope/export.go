package main

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addExport(a *kingpin.Application, e *env) {
	o := &app.ExportOptions{}
	cmd := a.Command("export", "Files for the tools that a team already has.").HelpLong(`
  rollscope export grafana ./grafana        boards and provisioning for Grafana
  rollscope export alerts ./rules           recording rules and alerts for Prometheus
  rollscope export prometheus ./prom        a prometheus.yml that scrapes and names as serve does
`)
	cmd.Arg("what", "grafana, alerts or prometheus.").Required().EnumVar(&o.What, "grafana", "alerts", "prometheus")
	cmd.Arg("dir", "Directory to write to; made if it is missing.").Required().StringVar(&o.Dir)
	cmd.Flag("config.file", "Include the signals, boards and alerts of this configuration.").StringVar(&o.ConfigFile)
	cmd.Flag("recorded", "Let boards read the recorded series (load the rules of `export alerts` too).").BoolVar(&o.Recorded)
	cmd.Flag("scrape", "For prometheus: HOST:PORT[/path] to write into it (repeatable).").StringsVar(&o.Scrape)
	cmd.Action(func(*kingpin.ParseContext) error {
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
