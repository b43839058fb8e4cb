package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/tracker"
)

// ExportStepsOptions configure [ExportSteps].
type ExportStepsOptions struct {
	What   string         // tensorboard, wandb
	Dir    string         // where event files or offline runs are written
	Dumps  []string       // dumps, in any order; or
	Data   string         // a data directory, whose index has them already; or
	Steps  []tracker.Step // as something else has read them
	Run    string         // the name of the dumps' run; of Data the only run that is exported
	Since  time.Time
	Bundle string // of wandb: also pack the offline runs into this .tar.gz
	Strict bool
	WandB  tracker.WandBConfig

	Metrics rollout.MetricOptions
	Logger  *slog.Logger
	Version string
}

// ExportSteps writes the metrics of steps for a tracker. Doing it again with the same steps changes
// nothing; new ones are appended. It uses no network.
func ExportSteps(ctx context.Context, o ExportStepsOptions) (tracker.Stats, error) {
	steps, bad := o.steps(ctx)
	if len(steps) == 0 {
		return tracker.Stats{}, errors.Join(bad, errors.New("there is no step to export"))
	}
	opts := tracker.Options{Strict: o.Strict, Logger: o.Logger}
	var t interface {
		tracker.Tracker
		Stats() tracker.Stats
	}
	var err error
	if o.What == "wandb" {
		o.WandB.Dir = o.Dir
		if err := o.WandB.Validate(); err != nil {
			return tracker.Stats{}, err
		}
		t, err = tracker.WandB(o.WandB, opts)
	} else {
		t, err = tracker.TensorBoard(o.Dir, opts)
	}
	if err != nil {
		return tracker.Stats{}, err
	}
	// Earlier first: a later attempt at a step is told by its time.
	slices.SortStableFunc(steps, func(a, b tracker.Step) int { return a.Time.Compare(b.Time) })
	errs := []error{bad}
	for _, s := range steps {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		errs = append(errs, t.Log(ctx, s))
	}
	errs = append(errs, t.Close())
	if err := errors.Join(errs...); err != nil || o.Bundle == "" {
		return t.Stats(), err
	}
	return t.Stats(), replaceFile(o.Bundle, func(w io.Writer) error {
		_, err := tracker.Bundle(w, o.Dir, o.Since)
		return err
	})
}

// steps are those to export. The error is of dumps that could not be read; the others are there.
func (o ExportStepsOptions) steps(ctx context.Context) ([]tracker.Step, error) {
	if o.Steps != nil {
		return o.Steps, nil
	}
	if o.Data != "" {
		return o.recorded()
	}
	var out []tracker.Step
	var errs []error
	g := &ingest{version: o.Version}
	type curve struct{ run, kind string }
	read := map[curve][]*dumps.Step{}
	var order []curve
	files, err := newViewFiles(o.Dumps)
	if err != nil {
		return nil, err
	}
	for _, path := range o.Dumps {
		st, err := dumps.Read(ctx, path, dumps.ReadOptions{Metrics: o.Metrics, Tool: o.Version, NoTimeline: true})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && !st.Header.RolloutID.OK {
			err = errors.New("neither the file nor its name says which step it is of")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		c := curve{o.Run, st.Kind()}
		if c.run == "" {
			c.run = files.run(path)
		}
		if read[c] == nil {
			order = append(order, c)
		}
		read[c] = append(read[c], st)
	}
	for _, c := range order {
		// Samples that were carried over brought requests of steps before.
		var metrics []*rollout.Metrics
		for _, st := range read[c] {
			metrics = append(metrics, st.Metrics)
		}
		rollout.Attribute(metrics)
		for _, st := range read[c] {
			if s := trackerStep(g.record(c.run, st)); !s.Time.Before(o.Since) {
				out = append(out, s)
			}
		}
	}
	return out, errors.Join(errs...)
}

// recorded are the steps of a data directory, earlier attempts included.
func (o ExportStepsOptions) recorded() ([]tracker.Step, error) {
	if info, err := os.Stat(filepath.Join(o.Data, "rollscope", "rollouts")); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s holds no rollouts", o.Data)
	}
	store, err := openIndexOf(o.Data, o.Logger)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var out []tracker.Step
	var errs []error
	for _, run := range store.Runs() {
		if o.Run != "" && run.Name != o.Run {
			continue
		}
		for _, sum := range store.Steps(run.Name, rolloutstore.Filter{Attempts: true, Since: o.Since}) {
			st, err := store.Step(sum.ID)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, trackerStep(st))
		}
	}
	return out, errors.Join(errs...)
}
