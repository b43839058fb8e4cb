package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/sim/rolls"
)

// SimRolloutsOptions configure [SimRollouts].
type SimRolloutsOptions struct {
	Dir    string
	Steps  int
	Every  time.Duration // between the ends of two steps by our clock; 0 writes them one after the other
	Faults []string      // NAME@T[+D][:ENGINE], in every step
	Run    rolls.RunOptions
	Out    io.Writer
}

// SimRollouts writes the dumps of a simulated run into a directory.
func SimRollouts(ctx context.Context, o SimRolloutsOptions) error {
	for _, text := range o.Faults {
		f, err := rolls.ParseFault(text)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		o.Run.Step.Faults = append(o.Run.Step.Faults, f)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("the dumps' directory: %w", err)
	}
	run, err := rolls.NewRun(o.Run)
	if err != nil {
		return err
	}
	return run.WriteDir(o.Dir, o.Steps, func(path string, _ rolls.Options, st rolls.Stats) error {
		size := int64(0)
		if info, err := os.Stat(path); err == nil {
			size = info.Size()
		}
		if o.Out != nil {
			fmt.Fprintf(o.Out, "%-28s %8d samples %8d requests %9d events %9.1f MB\n", filepath.Base(path), st.Samples, st.Requests, st.Events, float64(size)/1e6)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(o.Every):
		}
		return ctx.Err()
	})
}
