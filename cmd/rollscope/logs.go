package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/enginelog"
)

func addLogs(a *kingpin.Application, e *env) {
	parent := a.Command("logs", "Log lines of engines, routers and trainers.")
	addLogsParse(parent, e)
	addLogsQuery(parent, e)
}

func addLogsParse(parent *kingpin.CmdClause, e *env) {
	var (
		o             app.ParseLogsOptions
		zone, written string
		classes       []string
	)
	cmd := parent.Command("parse", "What a log file holds: formats, events, requests, metrics of steps, what is worth knowing.").HelpLong(`
  rollscope logs parse engine.log
  kubectl logs sglang-0 | rollscope logs parse - --timezone UTC
  rollscope logs parse *.log --records --class oom --class hang     the lines themselves, as JSON
  rollscope logs parse driver.log --tensorboard tb --run math       curves out of a log

Exit code 1 means that memory ran out, something hung or failed; 3 that no line could be read.
`)
	var names []string
	for _, c := range enginelog.Classes() {
		names = append(names, string(c))
	}
	cmd.Arg("file", "Log files, also compressed with gzip; - is the standard input.").Required().StringsVar(&o.Files)
	cmd.Flag("json", "The summary as JSON, one object a file.").BoolVar(&o.JSON)
	cmd.Flag("records", "Instead of a summary every line with what was read in it, as JSON, one object a line.").BoolVar(&o.Records)
	cmd.Flag("class", "With --records only lines of this class (repeatable): "+strings.Join(names, ", ")+".").EnumsVar(&classes, names...)
	cmd.Flag("timezone", "Zone of times that name none, as Europe/Berlin; without it the file's time of change tells.").PlaceHolder("TZ").StringVar(&zone)
	cmd.Flag("written", "When the log was written (RFC 3339), about: for lines without a year or a day, and for a copied file, whose time of change is wrong.").PlaceHolder("TIME").StringVar(&written)
	cmd.Flag("engine", "The engine that wrote it, HOST:PORT as it is scraped; for --records.").StringVar(&o.Engine)
	cmd.Flag("tensorboard", "Write the metrics of steps that a trainer printed as event files below this directory.").PlaceHolder("DIR").StringVar(&o.TensorBoard)
	cmd.Flag("run", "Name of the run for --tensorboard; default the file's name.").StringVar(&o.Run)
	cmd.Action(func(*kingpin.ParseContext) error {
		var err error
		if o.JSON && o.Records {
			return badInput("--json is of the summary, --records are JSON already: give one of them")
		}
		if len(classes) > 0 && !o.Records {
			return badInput("--class chooses lines of --records")
		}
		if zone != "" {
			if o.Zone, err = time.LoadLocation(zone); err != nil {
				return badInput("--timezone %q is no name of the time zone database: write one as Europe/Berlin, or UTC", zone)
			}
		}
		if written != "" {
			if o.Written, err = parseTime(written); err != nil {
				return badInput("--written: %w", err)
			}
		}
		for i, f := range o.Files {
			if f == "" { // what kingpin makes of a dash that stands alone
				o.Files[i] = "-"
			}
		}
		for _, c := range classes {
			o.Classes = append(o.Classes, enginelog.Class(c))
		}
		o.Stdin, o.Out, o.Logger, o.Version = e.in, e.out, e.logger(), e.version
		res, err := app.ParseLogs(e.ctx, o)
		code := logsExit(res.Logs)
		if o.TensorBoard != "" && (err == nil || res.Tracker.Steps+res.Tracker.Published > 0) {
			to := e.out
			if o.JSON || o.Records {
				to = e.err
			} else {
				fmt.Fprintln(to)
			}
			if trackerStats(to, res.Tracker) {
				code = exitNo
			}
			if res.WithoutAxis > 0 {
				fmt.Fprintf(to, "%d steps left out: the word before their number is none of slime's, so their axis is unknown\n", res.WithoutAxis)
			}
		}
		if err != nil {
			return badInput("%w", err)
		}
		if code != exitOK {
			return &exitError{code: code}
		}
		return nil
	})
}

// logsExit is the exit code of several logs: something bad in one counts, an unreadable one after it.
func logsExit(logs []app.ParsedLog) int {
	code := exitOK
	for _, l := range logs {
		switch c := l.Summary.Exit(); {
		case c == exitNo:
			return exitNo
		case c != exitOK:
			code = c
		}
	}
	return code
}
