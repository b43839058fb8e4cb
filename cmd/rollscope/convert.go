package main

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

func addConvert(a *kingpin.Application, e *env) {
	o := &app.ConvertOptions{}
	cmd := a.Command("convert", "A rollout dump for other tools.").HelpLong(`
  rollscope convert rollout_7.pt --to perfetto           for ui.perfetto.dev and chrome://tracing
  rollscope convert rollout_7.pt --to parquet --out tables/
  rollscope convert rollout_7.pt --to jsonl --out - | jq 'select(.status == "truncated") | .sample_index'
`)
	cmd.Arg("file", "The dump.").Required().StringVar(&o.File)
	cmd.Flag("to", "perfetto, otlp, parquet, jsonl, or cache for the reference viewer's JSON.").Required().EnumVar(&o.To, app.ConvertFormats()...)
	cmd.Flag("out", "File or directory to write to; - is standard output.").PlaceHolder("PATH").StringVar(&o.Out)
	cmd.Flag("texts", "Prompts and responses too (jsonl, parquet).").BoolVar(&o.Texts)
	cmd.Flag("run", "Name of the run, for columns and resources.").StringVar(&o.Run)
	cmd.Flag("filter", "Perfetto: only samples that fit, as in the page's search.").StringVar(&o.Filter)
	cmd.Flag("from-time", "Perfetto: from so many seconds after the step's start.").Float64Var(&o.FromTime)
	cmd.Flag("to-time", "Perfetto: until so many seconds after the step's start.").Float64Var(&o.ToTime)
	cmd.Flag("salvage", "Of a file that was cut, convert what is there.").BoolVar(&o.Salvage)
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Version, o.Stdout = e.version, e.out
		files, err := app.Convert(e.ctx, *o)
		for _, f := range files { // also beside an error, with --salvage
			fmt.Fprintln(e.out, f)
		}
		if err != nil {
			return badInput("%s", named(o.File, err))
		}
		return nil
	})
}
