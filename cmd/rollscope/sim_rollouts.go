package main

import (
	"context"
	"errors"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/sim/rolls"
)

func addSimRollouts(parent *kingpin.CmdClause, e *env) {
	var (
		o     app.SimRolloutsOptions
		s     = &o.Run.Step
		seed  int64
		start string
	)
	cmd := parent.Command("rollouts", "Write rollout dumps as slime does: rollout_0.pt, rollout_1.pt, ...").HelpLong(`
  rollscope sim rollouts /tmp/dumps --steps 5 --pd --multi-turn 0.15
  rollscope sim rollouts /tmp/dumps --samples 2048 --fault slow_engine@0s:1
`)
	cmd.Arg("dir", "Directory to write to; made if it is missing.").Required().StringVar(&o.Dir)
	cmd.Flag("steps", "How many steps.").Default("1").IntVar(&o.Steps)
	cmd.Flag("samples", "Samples of a step.").Default("256").IntVar(&s.Samples)
	cmd.Flag("group-size", "Samples of one prompt.").Default("8").IntVar(&s.GroupSize)
	cmd.Flag("first", "Rollout id of the first step.").Default("0").IntVar(&s.RolloutID)
	cmd.Flag("seed", "Seed of the run: the same seed writes the same bytes.").Default("1").Int64Var(&seed)
	cmd.Flag("pd", "Prefill and decode on engines of their own.").BoolVar(&s.PD)
	cmd.Flag("streaming", "Requests are streamed.").BoolVar(&s.Streaming)
	cmd.Flag("multi-turn", "Share of the groups that use tools.").Default("0").Float64Var(&s.MultiTurn)
	cmd.Flag("partial", "Share of the groups that the step before began.").Default("0").Float64Var(&s.Partial)
	cmd.Flag("speculative", "Engines draft tokens.").BoolVar(&s.Speculative)
	cmd.Flag("reward-dict", "Rewards are dicts of a score and its parts.").BoolVar(&s.RewardDict)
	cmd.Flag("eval-every", "An evaluation before each so many steps; 0 for none.").Default("0").IntVar(&o.Run.Eval)
	cmd.Flag("start", "When the run began (RFC 3339); default a fixed day.").StringVar(&start)
	cmd.Flag("every", "Wait this long after each step.").Default("0s").SetValue(duration(&o.Every))
	cmd.Flag("fault", "NAME@T[+D][:ENGINE] in every step, repeatable; `sim faults` lists them.").StringsVar(&o.Faults)
	cmd.Action(func(*kingpin.ParseContext) error {
		if o.Steps < 1 || s.Samples < 1 || s.GroupSize < 1 {
			return badInput("--steps, --samples and --group-size are 1 or more")
		}
		if start != "" {
			t, err := time.Parse(time.RFC3339, start)
			if err != nil {
				return badInput("--start %q is no time of the form 2026-08-18T06:13:20Z", start)
			}
			s.Start = t
		}
		s.Seed, o.Out = uint64(seed), e.out
		err := app.SimRollouts(e.ctx, o)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// rolloutFaults lists what can go wrong in a simulated step.
func rolloutFaults(t *table) {
	for _, f := range rolls.Faults() {
		t.row(f.Name, f.Meaning)
	}
}
