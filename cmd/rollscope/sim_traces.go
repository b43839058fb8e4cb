package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/sim/spans"
)

func addSimTraces(parent *kingpin.CmdClause, e *env) {
	var (
		f       app.SimOptions
		o       spans.RunOptions
		rate    string
		headers map[string]string
		asJSON  bool
	)
	cmd := parent.Command("traces", "Send traces of a simulated fleet over OTLP: as it lives, or as a load.").HelpLong(`
  rollscope sim traces
  rollscope sim traces --to http://127.0.0.1:4318 --rate 20000 --for 1m --attributes 25
  rollscope sim traces --fleet uniform:64 --rate max --count 2000000 --connections 4
`)
	cmd.Flag("to", "Receiver: HOST:PORT or grpc(s)://HOST:PORT for gRPC, http(s)://HOST:PORT for HTTP.").Default("127.0.0.1:4317").StringVar(&o.To.URL)
	cmd.Flag("rate", "Spans a second; live for what the fleet makes as it lives, max for as many as are taken.").Default("live").StringVar(&rate)
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&o.For))
	cmd.Flag("count", "Stop after so many spans; 0 for no end. With --rate live a few more are sent.").Default("0").Int64Var(&o.Spans)
	cmd.Flag("fleet", "demo, uniform:N or mixed:N.").Default("demo").StringVar(&f.Fleet)
	cmd.Flag("seed", "Seed of the fleet and of its traces.").Default("1").Int64Var(&f.Seed)
	cmd.Flag("fault", "NAME@T+D[:MEMBER], repeatable.").StringsVar(&f.Faults)
	cmd.Flag("level", "SGLANG_TRACE_LEVEL of the engines, 1 to 4: 3 has a span for each decode step.").Default("2").IntVar(&o.Traces.Level)
	cmd.Flag("attributes", "Fill each span up to so many attributes.").Default("0").IntVar(&o.Traces.Attributes)
	cmd.Flag("share", "Share of the requests that are traced, as a head sampler would have it.").Default("1").Float64Var(&o.Traces.Share)
	cmd.Flag("mooncake", "The transfer engine's traces too.").BoolVar(&o.Traces.Mooncake)
	cmd.Flag("connections", "Senders at once, not with --rate live.").Default("1").IntVar(&o.Connections)
	cmd.Flag("batch", "Spans of a request at most.").Default("512").IntVar(&o.Batch)
	cmd.Flag("compression", "gzip, zstd or none.").Default("gzip").EnumVar(&o.To.Compression, "gzip", "zstd", "none")
	cmd.Flag("header", "NAME=VALUE to send along, repeatable.").StringMapVar(&headers)
	cmd.Flag("json", "Print the result as JSON.").BoolVar(&asJSON)
	cmd.Action(func(*kingpin.ParseContext) error {
		var err error
		if o.Rate, err = rateOf(rate); err != nil {
			return badInput("--rate: %w", err)
		}
		if o.Traces.Share <= 0 || o.Traces.Share > 1 {
			return badInput("--share %v: it is above 0 and at most 1", o.Traces.Share)
		}
		if o.Fleet, err = app.FleetConfig(f.Fleet, f.Seed, f.Faults); err != nil {
			return badInput("%w", err)
		}
		o.Traces.Seed, o.To.Headers = uint64(f.Seed), headers
		log := e.logger()
		o.Begun = func(c *spans.Corpus) {
			log.Info("sending", "to", o.To.URL, "spans of a round", c.Spans, "traces", c.Traces, "requests", c.Requests())
		}
		o.Tell = func(c spans.Counts, took time.Duration) {
			log.Info("sent", "spans", c.Spans, "acknowledged", c.Acked, "rejected", c.Rejected, "failed", c.Failed, "retries", c.Retries,
				"spans/s", int64(float64(c.Spans)/took.Seconds()), "err", c.Error)
		}
		c, took, err := spans.Run(e.ctx, o)
		if err != nil {
			return badInput("%w", err)
		}
		if asJSON {
			err = json.NewEncoder(e.out).Encode(map[string]any{
				"requests": c.Requests, "spans": c.Spans, "acknowledged": c.Acked, "rejected": c.Rejected, "failed": c.Failed, "retries": c.Retries,
				"bytes": c.Bytes, "seconds": took.Seconds(), "error": c.Error,
			})
		} else {
			_, err = fmt.Fprintf(e.out, "%d spans in %d requests (%.1f MB) in %.1f s, %.0f spans/s: %d acknowledged, %d rejected, %d failed; %d retries\n",
				c.Spans, c.Requests, float64(c.Bytes)/1e6, took.Seconds(), float64(c.Spans)/took.Seconds(), c.Acked, c.Rejected, c.Failed, c.Retries)
		}
		if err == nil && c.Acked < c.Spans {
			code := exitNo
			if c.Acked == 0 {
				code = exitUnknown
			}
			err = &exitError{code, fmt.Errorf("%s did not take all spans: %s", o.To.URL, c.Error)}
		}
		return err
	})
}

// rateOf reads a rate: 0 for live, infinite for max.
func rateOf(s string) (float64, error) {
	switch strings.ToLower(s) {
	case "live":
		return 0, nil
	case "max":
		return math.Inf(1), nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is no rate: spans a second, live or max", s)
	}
	return v, nil
}
