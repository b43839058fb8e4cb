package main

import (
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/sim/lines"
)

func addSimLogs(parent *kingpin.CmdClause, e *env) {
	var (
		o    app.SimLogsOptions
		zone string
		size units.Base2Bytes
		said bool
	)
	cmd := parent.Command("logs", "Write log files as engines, routers and frontends do, in real time and rotated.").HelpLong(`
  rollscope sim logs --dir /tmp/logs --fault kv_pressure@10s+1m:chat-0 --fault engine_restart@40s+20s:vllm-0
  rollscope sim logs --dir /tmp/logs --rate 5000 --for 1m --form cri
`)
	cmd.Flag("dir", "Directory to write to; made if it is missing.").Required().StringVar(&o.Dir)
	cmd.Flag("rate", "Lines a second, about: the fleet is multiplied until it writes as many; 0 is one fleet.").Default("0").Float64Var(&o.Rate)
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&o.For))
	cmd.Flag("fleet", "demo, uniform:N or mixed:N.").Default("demo").StringVar(&o.Fleet)
	cmd.Flag("seed", "Seed of the fleet.").Default("1").Int64Var(&o.Seed)
	cmd.Flag("fault", "NAME@T+D[:MEMBER], repeatable; `sim faults` lists them.").StringsVar(&o.Faults)
	cmd.Flag("form", "How a line stands in its file: plain, or as the runtimes of docker and Kubernetes (cri) write it.").Default(lines.Plain).EnumVar(&o.Files.Form, lines.Forms()...)
	cmd.Flag("rotate", "Size at which a file is renamed and begun anew.").Default("8MB").BytesVar(&size)
	cmd.Flag("timezone", "Zone of the times in the lines, which they do not name.").Default("UTC").StringVar(&zone)
	cmd.Flag("milliseconds", "SGLang's times with milliseconds (SGLANG_LOG_MS).").BoolVar(&o.Lines.Millis)
	cmd.Flag("requests", "Lines about single requests (--log-requests, --enable-request-time-stats-logging).").Default("true").BoolVar(&said)
	cmd.Action(func(*kingpin.ParseContext) error {
		var err error
		if o.Timezone, err = time.LoadLocation(zone); err != nil {
			return badInput("--timezone %q is no name of the time zone database: write one as Europe/Berlin, or UTC", zone)
		}
		o.Out, o.Files.MaxBytes, o.Lines.NoRequests = e.out, int64(size), !said
		if err := app.SimLogs(e.ctx, o); err != nil {
			return badInput("%w", err)
		}
		return nil
	})
}
