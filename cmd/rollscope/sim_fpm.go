package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/sim/passes"
)

func addSimFPM(parent *kingpin.CmdClause, e *env) {
	var (
		o      passes.Options
		asJSON bool
	)
	cmd := parent.Command("fpm", "Send forward-pass messages over ZMQ as an engine's ranks do.").HelpLong(`
  rollscope sim fpm
  rollscope sim fpm --to tcp://127.0.0.1:20380 --ranks 8 --rate 500 --for 1m --drop 0.001 --restart 20s
  rollscope sim fpm --to ipc:///tmp/engine --form v0 --idle 0.5
`)
	cmd.Flag("to", "Where the ranks bind: ipc:///PATH, which gets .RANK behind it, or tcp://HOST:PORT, from which ports count on (127.0.0.1:0 takes free ones).").Default("ipc:///tmp/rollscope-fpm").StringVar(&o.Endpoint)
	cmd.Flag("ranks", "Data-parallel ranks.").Default("2").IntVar(&o.Ranks)
	cmd.Flag("rate", "Passes a second of each rank.").Default("50").Float64Var(&o.Rate)
	cmd.Flag("worker-id", "worker_id of the messages; empty as an engine without Dynamo leaves it.").Default("7587893811422159").StringVar(&o.Worker)
	cmd.Flag("form", "How messages are written: v1, v0 (no version and counter), vllm (a field more), wide (long lengths), future (unknown keys) or positional (arrays).").Default("v1").EnumVar(&o.Form, passes.Forms()...)
	cmd.Flag("idle", "Share of each 10 s, at its end, without requests: then only a heartbeat a second.").Default("0").Float64Var(&o.Idle)
	cmd.Flag("drop", "Share of the messages that get a number and are not sent.").Default("0").Float64Var(&o.Drop)
	cmd.Flag("restart", "Begin the numbers anew every so often, as an engine that restarts; 0 never.").Default("0s").SetValue(duration(&o.Restart))
	cmd.Flag("seed", "Seed of the engine.").Default("1").Uint64Var(&o.Seed)
	cmd.Flag("for", "Stop after this time; 0 runs until interrupted.").Default("0s").SetValue(duration(&o.For))
	cmd.Flag("count", "Stop after so many messages of each rank; 0 for no end.").Default("0").Int64Var(&o.Count)
	cmd.Flag("wait", "Begin when each rank has a subscriber.").BoolVar(&o.Wait)
	cmd.Flag("json", "Print the result as JSON.").BoolVar(&asJSON)
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Begun = func(at []string) {
			w := e.out
			if asJSON {
				w = e.err
			}
			fmt.Fprintf(w, "sending; look at them with\n  rollscope fpm tail %s\n", strings.Join(at, " "))
		}
		c, err := passes.Run(e.ctx, o)
		if err != nil {
			return badInput("%w", err)
		}
		if asJSON {
			return json.NewEncoder(e.out).Encode(map[string]int64{
				"passes": c.Passes, "heartbeats": c.Heartbeats, "dropped": c.Dropped, "restarts": c.Restarts, "unheard": c.Unheard, "full": c.Full,
			})
		}
		_, err = fmt.Fprintf(e.out, "%d passes and %d heartbeats, %d dropped, %d restarts; %d sent to nobody, %d that a subscriber was too slow for\n",
			c.Passes, c.Heartbeats, c.Dropped, c.Restarts, c.Unheard, c.Full)
		return err
	})
}
