package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/api"
)

func addDoctor(a *kingpin.Application, e *env) {
	cmd := a.Command("doctor", "What is wrong with how things are set up, with the evidence and what to do.").HelpLong(`
  rollscope doctor tracing
  rollscope doctor tracing --dir /runs/7/tsdb --from 2026-11-01T08:00:00Z --to 2026-11-01T09:00:00Z
`)
	var src source
	var from, to string
	var asJSON bool
	tracing := cmd.Command("tracing", "Which switch is missing or wrong when spans do not arrive, or not whole.").HelpLong(`
Looks at what arrived, at what the engines' counters say should have, and at what they logged when they
started. Exit code 1: something is broken, 3: it could not be looked at.
  rollscope doctor tracing
  rollscope doctor tracing --from now-6h --json
`)
	src.flags(tracing)
	tracing.Flag("from", "Start of the range; default an hour before its end.").StringVar(&from)
	tracing.Flag("to", "End of the range; default now.").StringVar(&to)
	tracing.Flag("json", "Print the answer as JSON.").BoolVar(&asJSON)
	tracing.Action(func(*kingpin.ParseContext) error {
		c, err := src.open(e.ctx, e)
		if err != nil {
			return err
		}
		defer c.close()
		params := url.Values{}
		for name, v := range map[string]string{"from": from, "to": to} {
			if v != "" {
				params.Set(name, v)
			}
		}
		var answer struct {
			Data     api.TracingReport `json:"data"`
			Warnings []api.Warning     `json:"warnings"`
		}
		if err := c.get(e.ctx, "/api/rollscope/v1/doctor/tracing", params, &answer); err != nil {
			return err
		}
		if asJSON {
			enc := json.NewEncoder(e.out)
			enc.SetIndent("", "  ")
			if err := enc.Encode(answer.Data); err != nil {
				return err
			}
		} else {
			printTracing(e, &answer.Data, answer.Warnings)
		}
		for _, f := range answer.Data.Findings {
			if f.Severity == "broken" {
				return &exitError{exitNo, nil}
			}
		}
		return nil
	})
}

func printTracing(e *env, r *api.TracingReport, warnings []api.Warning) {
	l := r.Looked
	fmt.Fprintf(e.out, "Tracing from %s to %s: %d spans of %d services, %d engines, %d traces, %d log lines about tracing.\n",
		r.From, r.To, l.Spans, l.Services, l.Engines, l.Traces, l.Lines)
	for _, w := range warnings {
		fmt.Fprintln(e.out, "  "+w.Message)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(e.out, "\nNothing is wrong that can be seen from here.")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(e.out, "\n%s  %s: %s\n", strings.ToUpper(f.Severity), f.Subject, f.What)
		for _, x := range f.Evidence {
			fmt.Fprintln(e.out, "  seen: "+x)
		}
		for _, x := range f.Do {
			fmt.Fprintln(e.out, "  do:   "+x)
		}
	}
}
