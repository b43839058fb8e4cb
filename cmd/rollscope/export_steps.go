package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/tracker"
)

// stepFlags are those of `export tensorboard` and `export wandb`.
func stepFlags(cmd *kingpin.CmdClause, o *app.ExportStepsOptions, since *string) {
	cmd.Flag("from", "tensorboard, wandb: dumps, or directories of dumps (repeatable).").PlaceHolder("DUMP").StringsVar(&o.Dumps)
	cmd.Flag("data", "tensorboard, wandb: the steps of a data directory instead of dumps.").PlaceHolder("DIR").StringVar(&o.Data)
	cmd.Flag("run", "tensorboard, wandb: name of the run; with --data only this run.").StringVar(&o.Run)
	cmd.Flag("since", "tensorboard, wandb: only steps that ended at or after this time (RFC 3339).").StringVar(since)
	cmd.Flag("strict", "tensorboard, wandb: a metric that the tracker refuses is an error.").BoolVar(&o.Strict)
	cmd.Flag("gpus", "tensorboard, wandb: GPUs that generate, for dumps.").IntVar(&o.Metrics.GPUs)
	cmd.Flag("reward-key", "tensorboard, wandb: entry of a dict reward that counts, for dumps.").StringVar(&o.Metrics.RewardKey)
	cmd.Flag("project", "wandb: project.").StringVar(&o.WandB.Project)
	cmd.Flag("entity", "wandb: team or user; the uploader's own when it is not given.").StringVar(&o.WandB.Entity)
	cmd.Flag("group", "wandb: group of the runs.").StringVar(&o.WandB.Group)
	cmd.Flag("tag", "wandb: tag (repeatable).").StringsVar(&o.WandB.Tags)
	cmd.Flag("bundle", "wandb: also pack the offline runs into this file, for a machine that has a network.").PlaceHolder("FILE.tar.gz").StringVar(&o.Bundle)
}

func exportSteps(e *env, o app.ExportStepsOptions, since string) error {
	var err error
	switch {
	case (len(o.Dumps) == 0) == (o.Data == ""):
		return badInput("export %s: give either --from DUMP or --data DIR", o.What)
	case o.What == "wandb" && o.WandB.Project == "":
		return badInput("export wandb: give it a --project")
	case o.Bundle != "" && o.What != "wandb":
		return badInput("--bundle is for wandb: a directory of TensorBoard can be copied as it is")
	}
	if since != "" {
		if o.Since, err = time.Parse(time.RFC3339, since); err != nil {
			return badInput("--since %q is no time of the form 2026-08-18T06:13:20Z", since)
		}
	}
	if o.Run != "" {
		if err := tracker.ValidateRun(o.Run); err != nil {
			return badInput("--run: %w", err)
		}
	}
	if o.Dumps, err = app.DumpFiles(o.Dumps); err != nil {
		return badInput("%w", err)
	}
	o.Logger, o.Version = e.logger(), e.version
	st, err := app.ExportSteps(e.ctx, o)
	refused := trackerStats(e.out, st)
	if err != nil {
		return badInput("%w", err)
	}
	if o.Bundle != "" {
		fmt.Fprintln(e.out, o.Bundle)
	}
	if refused {
		return &exitError{code: exitNo}
	}
	if o.What == "wandb" && o.Bundle == "" {
		fmt.Fprintf(e.out, "upload with: wandb sync %s\n", strings.TrimSuffix(o.Dir, "/")+"/offline-run-*")
	}
	return nil
}

// trackerStats says what a tracker did, and whether it refused anything.
func trackerStats(w io.Writer, st tracker.Stats) (refused bool) {
	fmt.Fprintf(w, "%d steps written with %d points, %d steps were there already\n", st.Steps, st.Points, st.Published)
	if st.Unknown > 0 {
		fmt.Fprintf(w, "%d points have no value and are left out\n", st.Unknown)
	}
	var reasons []string
	for reason, n := range st.Rejected {
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d points refused: %s", n, reason))
		}
	}
	slices.Sort(reasons)
	for _, r := range reasons {
		fmt.Fprintln(w, r)
	}
	return len(reasons) > 0
}
