package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/internal/tfevents"
)

// demoRun is a training run whose steps end while one looks: some minutes of it lie behind, and each
// step's dump appears when its time has come. Beside the dumps stands what its trainer logs.
type demoRun struct {
	dir    string
	seed   int64
	logger *slog.Logger
}

const (
	demoPast  = 9 * time.Minute // of the run that lies behind when the demo starts
	demoSteps = 1000            // then the run is over
	demoKept  = 60              // dumps that stay on the disk: about 150 MB
)

// pattern is where its dumps are.
func (d *demoRun) pattern() string { return filepath.Join(d.dir, "dumps", "rollout_{rollout_id}.pt") }

func (d *demoRun) scalars() string { return filepath.Join(d.dir, "tensorboard") }

// options are those of its steps: small, with prefill and decode apart, tools, carried-over samples, and
// something that goes wrong in every few.
func (d *demoRun) options(start time.Time) rolls.RunOptions {
	o := rolls.RunOptions{
		Step: rolls.Options{
			Seed: uint64(d.seed), Samples: 128, PD: true, MultiTurn: 0.2, Partial: 0.1, Start: start, TrainTime: 8 * time.Second,
			Response: rolls.Lengths{Median: 320, Sigma: 0.7, Max: 3000},
		},
		Eval: 5, EvalSamples: 48, Faults: map[int][]rolls.Fault{},
	}
	bad := []string{"slow_engine@0s:0", "reward_outage@5s+15s", "tool_timeouts@0s", "engine_restart@8s+6s:1", "straggler@0s"}
	for i := 3; i < demoSteps; i += 4 {
		if f, err := rolls.ParseFault(bad[(i/4)%len(bad)]); err == nil { // words of our own
			o.Faults[i] = append(o.Faults[i], f)
		}
	}
	return o
}

// run writes until ctx ends.
func (d *demoRun) run(ctx context.Context) error {
	if err := os.RemoveAll(d.dir); err != nil { // of a demo before: its steps are not these
		return fmt.Errorf("the demo's run: %w", err)
	}
	for _, dir := range []string{filepath.Join(d.dir, "dumps"), d.scalars()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("the demo's run: %w", err)
		}
	}
	start := time.Now().Add(-demoPast)
	run, err := rolls.NewRun(d.options(start))
	if err != nil {
		return fmt.Errorf("the demo's run: %w", err)
	}
	name := fmt.Sprintf("events.out.tfevents.%d.trainer.1.0", start.Unix())
	f, err := os.Create(filepath.Join(d.scalars(), name))
	if err != nil {
		return fmt.Errorf("the demo's run: %w", err)
	}
	defer f.Close()
	log := tfevents.NewWriter(f, 0)
	if err := log.WriteVersion(tfevents.Seconds(start)); err != nil {
		return fmt.Errorf("the demo's run: %w", err)
	}
	var old []string
	return run.Live(ctx, filepath.Join(d.dir, "dumps"), demoSteps, rolls.Clock{}, func(path string, o rolls.Options, st rolls.Stats) error {
		if old = append(old, path); len(old) > demoKept {
			if err := os.Remove(old[0]); err != nil {
				d.logger.Warn("an old dump of the demo stays", "err", err)
			}
			old = old[1:]
		}
		if o.Eval {
			return nil
		}
		return log.Write(trained(o, st))
	})
}

// trained is what a trainer logs after a step: invented curves of the usual shape.
func trained(o rolls.Options, st rolls.Stats) *tfevents.Event {
	k := float64(o.RolloutID)
	wobble := math.Sin(k*1.7) + math.Sin(k*0.61)
	return &tfevents.Event{
		WallTime: tfevents.Seconds(st.End.Add(o.TrainTime / 2)), Step: int64(o.RolloutID),
		Values: []tfevents.Value{
			{Tag: "train/loss", Number: 0.02*math.Exp(-k/60) + 0.002*wobble},
			{Tag: "train/kl_loss", Number: 0.0005*math.Sqrt(k+1) + 0.0002*math.Abs(wobble)},
			{Tag: "train/entropy_loss", Number: 0.62*math.Exp(-k/150) + 0.01*wobble},
			{Tag: "train/grad_norm", Number: 0.9 + 0.15*wobble},
			{Tag: "rollout/rewards", Number: st.Reward},
			{Tag: "perf/rollout_time", Number: st.Duration().Seconds()},
		},
	}
}
