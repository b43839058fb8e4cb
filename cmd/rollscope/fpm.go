package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/fpmbus"
)

func addFPM(a *kingpin.Application, e *env) {
	parent := a.Command("fpm", "Forward passes of engines under Dynamo: seen, checked, relayed.")
	addFPMTail(parent, e)
	addFPMCheck(parent, e)
	addFPMRelay(parent, e)
}

// fpmFlags are those of every command that receives.
func fpmFlags(cmd *kingpin.CmdClause, o *app.FPMOptions) {
	cmd.Arg("source", "ipc:///PATH or tcp://HOST:PORT (an engine's socket), plane+tcp://HOST:PORT or broker+tcp://HOST:PORT (Dynamo's event plane), discovery+file:///PATH or discovery+http://HOST:2379 (its publishers), nats://HOST:PORT/NAMESPACE, unix:///PATH (the exporter connects), or a trace file.").Required().StringsVar(&o.Sources)
	cmd.Flag("ranks", "Engines' sockets are the first of so many: .0, .1 or ports that count on.").Default("0").IntVar(&o.Ranks)
}

func addFPMTail(parent *kingpin.CmdClause, e *env) {
	var (
		o      app.FPMOptions
		asJSON bool
		beats  bool
		limit  time.Duration
		count  int64
	)
	cmd := parent.Command("tail", "Print one line for each pass as it comes.").HelpLong(`
  rollscope fpm tail ipc:///tmp/sglang-fpm --ranks 4
  rollscope fpm tail nats://127.0.0.1:4222/dynamo --json
  rollscope fpm tail /tmp/dynamo-fpm.000.jsonl.gz
`)
	fpmFlags(cmd, &o)
	cmd.Flag("positional", "Take messages that are arrays, too.").BoolVar(&o.Positional)
	cmd.Flag("follow", "Wait at the end of files for what is appended.").Short('f').BoolVar(&o.Follow)
	cmd.Flag("json", "Print JSON, an object a line.").BoolVar(&asJSON)
	cmd.Flag("heartbeats", "Print heartbeats, too.").BoolVar(&beats)
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&limit))
	cmd.Flag("count", "Stop after so many lines; 0 for no end.").Default("0").Int64Var(&count)
	cmd.Action(func(*kingpin.ParseContext) error {
		if count < 0 {
			return badInput("--count %d: it is positive, or 0 for no end", count)
		}
		o.Logger = e.logger()
		ctx, stop := bounded(e.ctx, limit)
		defer stop()
		enc := json.NewEncoder(e.out)
		enough := errors.New("enough")
		printed := int64(0)
		drops, err := app.TailFPM(ctx, o, func(p app.FPMPass) error {
			if p.Heartbeat && !beats {
				return nil
			}
			var err error
			if asJSON {
				err = enc.Encode(p)
			} else {
				_, err = fmt.Fprintln(e.out, passLine(p))
			}
			if printed++; err == nil && count > 0 && printed >= count {
				err = enough
			}
			return err
		})
		if s := dropList(drops); s != "" {
			fmt.Fprintln(e.err, "not taken: "+s)
		}
		switch {
		case err != nil && !errors.Is(err, enough):
			return badInput("%w", err)
		case printed == 0 && e.ctx.Err() == nil:
			return unknown(errors.New("no pass came; `rollscope fpm check` with the same source says why"))
		}
		return nil
	})
}

// bounded ends a context after a time; 0 is no bound.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit > 0 {
		return context.WithTimeout(ctx, limit)
	}
	return context.WithCancel(ctx)
}

// passLine is one pass for people.
func passLine(p app.FPMPass) string {
	m := p.Pass
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", p.Received.UTC().Format("15:04:05.000"), p.Key)
	if m.Version > 0 { // the first form has no counter
		fmt.Fprintf(&b, " #%d", m.Counter)
	}
	if s, ok := m.Seconds(); ok {
		fmt.Fprintf(&b, "  %.2f ms", s*1e3)
	} else if p.Heartbeat {
		b.WriteString("  heartbeat")
	} else {
		b.WriteString("  no time")
	}
	fmt.Fprintf(&b, "  prefill %d req %d tok", m.Scheduled.PrefillRequests, m.Scheduled.PrefillTokens)
	fmt.Fprintf(&b, "  decode %d req %d kv", m.Scheduled.DecodeRequests, m.Scheduled.DecodeKV)
	fmt.Fprintf(&b, "  queued %d+%d", m.Queued.PrefillRequests, m.Queued.DecodeRequests)
	if p.Missing > 0 {
		fmt.Fprintf(&b, "  [%d missing before it: %s]", p.Missing, p.Seen.Loss)
	}
	for _, mark := range []struct {
		on   bool
		word string
	}{{p.Restart, "restart"}, {p.Duplicate, "duplicate"}, {p.Late, "late"}} {
		if mark.on {
			b.WriteString("  [" + mark.word + "]")
		}
	}
	return b.String()
}

// dropList is drops in a line.
func dropList(drops []fpmbus.Drop) string {
	var out []string
	for _, d := range drops {
		if d.Count > 0 {
			out = append(out, fmt.Sprintf("%d %s (%s)", d.Count, d.Reason, d.Source))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func addFPMCheck(parent *kingpin.CmdClause, e *env) {
	var (
		o      app.FPMCheckOptions
		asJSON bool
	)
	cmd := parent.Command("check", "Say whether forward passes arrive, and if not why and what to do.").HelpLong(`
  rollscope fpm check ipc:///tmp/sglang-fpm --ranks 4 --metrics http://127.0.0.1:30000/metrics
  rollscope fpm check nats://127.0.0.1:4222/dynamo --for 1m --runtime sglang-runtime:1.2.0

The exit code is 0 when what should come comes, 1 when somebody is blind, and 3 when that could not be determined:
silence of an engine means nothing while it is unknown whether it works, so name its metrics.
`)
	fpmFlags(cmd, &o.FPMOptions)
	cmd.Flag("positional", "Take messages that are arrays, too.").BoolVar(&o.Positional)
	cmd.Flag("for", "Listen for so long; it ends after 5 s when all sources are heard.").Default("30s").SetValue(duration(&o.For))
	cmd.Flag("metrics", "URL of the engine's or its frontend's metrics: it tells silence from idleness.").PlaceHolder("URL").StringVar(&o.Metrics)
	cmd.Flag("runtime", "The engine's image or package and its version: some are known not to send.").PlaceHolder("NAME:VERSION").StringVar(&o.Runtime)
	cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
	cmd.Action(func(*kingpin.ParseContext) error {
		if o.For <= 0 {
			return badInput("--for: it listens for some time, 30s or so")
		}
		o.Logger = e.logger()
		res, err := app.CheckFPM(e.ctx, o)
		if err != nil {
			return badInput("%w", err)
		}
		if asJSON {
			err = json.NewEncoder(e.out).Encode(res)
		} else {
			err = printFPMCheck(e, res)
		}
		switch {
		case err != nil:
			return err
		case res.Blind:
			return &exitError{code: exitNo}
		case !res.Known:
			return &exitError{code: exitUnknown}
		}
		return nil
	})
}

func printFPMCheck(e *env, res app.FPMCheck) error {
	for _, s := range res.Sources {
		fmt.Fprintf(e.out, "%s: %s\n  %s\n", s.Source, s.Flow, s.Why)
		if s.Error != "" {
			fmt.Fprintf(e.out, "  %s: %s\n", s.State, s.Error)
		}
		if s.Do != "" {
			fmt.Fprintf(e.out, "  do: %s\n", s.Do)
		}
	}
	if len(res.Ranks) > 0 {
		fmt.Fprintln(e.out)
		t := newTable(e.out)
		t.head("RANK", "STATE", ">PASSES", ">HEARTBEATS", ">LOST", ">RESTARTS", ">TWICE")
		for _, r := range res.Ranks {
			lost := fmt.Sprint(r.Lost)
			if r.Unknown && r.Lost == 0 {
				lost = "unknown"
			}
			t.row(r.Rank, string(r.State), fmt.Sprint(r.Passes), fmt.Sprint(r.Heartbeats), lost, fmt.Sprint(r.Restarts), fmt.Sprint(r.Duplicates))
		}
		if err := t.flush(); err != nil {
			return err
		}
		for _, r := range res.Ranks {
			for _, n := range r.Notices {
				fmt.Fprintf(e.out, "%s: %s\n", r.Rank, n)
			}
		}
	}
	if s := dropList(res.Drops); s != "" {
		fmt.Fprintln(e.out, "not taken: "+s)
	}
	for _, n := range res.Notes {
		fmt.Fprintln(e.out, n)
	}
	return nil
}

func addFPMRelay(parent *kingpin.CmdClause, e *env) {
	var (
		o        app.FPMRelayOptions
		embedded string
		listen   string
		limit    time.Duration
		asJSON   bool
	)
	cmd := parent.Command("relay", "Pass messages on unaltered, to Dynamo's event plane over NATS or ZMQ, and count what is lost.").HelpLong(`
  rollscope fpm relay ipc:///tmp/sglang-fpm --ranks 4 --to nats://127.0.0.1:4222/dynamo
  rollscope fpm relay tcp://127.0.0.1:20380 --to tcp://127.0.0.1:20400
  rollscope fpm relay ipc:///tmp/sglang-fpm.0 --nats embedded --nats-listen 127.0.0.1:4222
`)
	fpmFlags(cmd, &o.FPMOptions)
	cmd.Flag("to", "nats://HOST:PORT/NAMESPACE, or tcp://HOST:PORT or ipc:///PATH at which subscribers of the event plane connect.").PlaceHolder("ADDRESS").StringVar(&o.To)
	cmd.Flag("nats", "embedded: run a NATS server in this process, for one machine, and relay to it.").PlaceHolder("embedded").EnumVar(&embedded, "embedded")
	cmd.Flag("nats-listen", "Where the embedded server listens; port 0 takes a free one.").Default("127.0.0.1:4222").StringVar(&listen)
	cmd.Flag("namespace", "Dynamo's namespace of what comes without one; one in --to goes before.").Default("dynamo").StringVar(&o.Scope.Namespace)
	cmd.Flag("component", "And its component.").Default("backend").StringVar(&o.Scope.Component)
	cmd.Flag("endpoint", "And its endpoint.").Default("generate").StringVar(&o.Scope.Endpoint)
	cmd.Flag("every", "Time between summaries.").Default("30s").SetValue(duration(&o.Every))
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&limit))
	cmd.Flag("json", "Print summaries as JSON, an object a line.").BoolVar(&asJSON)
	cmd.Action(func(*kingpin.ParseContext) error {
		if o.Every <= 0 {
			return badInput("--every: summaries come after some time, 30s or so")
		}
		o.Logger = e.logger()
		if embedded != "" {
			o.Embedded = listen
		}
		ctx, stop := bounded(e.ctx, limit)
		defer stop()
		o.Began = func(at string) {
			fmt.Fprintf(e.err, "relaying; what arrives is seen with\n  rollscope fpm tail %s\n", at)
		}
		o.Tell = func(s app.FPMRelayed) { printRelayed(e, s, asJSON) }
		s, err := app.RelayFPM(ctx, o)
		if err != nil {
			return badInput("%w", err)
		}
		printRelayed(e, s, asJSON)
		switch {
		case s.Lost > 0:
			return &exitError{code: exitNo}
		case s.Received == 0:
			return &exitError{code: exitUnknown}
		}
		return nil
	})
}

func printRelayed(e *env, s app.FPMRelayed, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(e.out).Encode(s)
		return
	}
	fmt.Fprintf(e.out, "%d received, %d relayed, %d waiting, %d lost", s.Received, s.Relayed, s.Waiting, s.Lost)
	if d := dropList(s.Drops); d != "" {
		fmt.Fprint(e.out, "; drops: "+d)
	}
	if s.Error != "" {
		fmt.Fprintf(e.out, "; %s: %s", s.State, s.Error)
	}
	fmt.Fprintln(e.out)
}
