package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/sim/lines"
)

// SimLogsOptions configure [SimLogs].
type SimLogsOptions struct {
	Dir      string
	Fleet    string // demo, uniform:N, mixed:N
	Seed     int64
	Faults   []string      // NAME@T+D[:MEMBER]
	Rate     float64       // lines a second; 0: what the fleet writes
	For      time.Duration // 0 runs until ctx ends
	Timezone *time.Location
	Files    lines.FileOptions
	Lines    lines.Options
	Out      io.Writer
}

// SimLogs writes the log lines of a simulated fleet into files until ctx ends.
func SimLogs(ctx context.Context, o SimLogsOptions) error {
	cfg, err := FleetConfig(o.Fleet, o.Seed, o.Faults)
	if err != nil {
		return err
	}
	f, err := lines.Open(o.Dir, o.Files)
	if err != nil {
		return err
	}
	pattern := filepath.Join(o.Dir, "*.log")
	fmt.Fprintf(o.Out, "writing to %s; read them with\n  rollscope serve --logs '%s'\n", o.Dir, pattern)
	o.Lines.Seed, o.Lines.Zone = cfg.Seed, o.Timezone
	res, err := lines.Run(ctx, lines.RunOptions{Fleet: cfg, Lines: o.Lines, Files: f, Rate: o.Rate, For: o.For})
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	rate := 0.0
	if s := res.Took.Seconds(); s > 0 {
		rate = float64(res.Lines) / s
	}
	fleets := "1 fleet"
	if res.Copies > 1 {
		fleets = fmt.Sprintf("%d fleets", res.Copies)
	}
	_, err = fmt.Fprintf(o.Out, "%d lines, %.1f MB in %s: %.0f lines a second of %s\n", res.Lines, float64(res.Bytes)/1e6, res.Took.Round(time.Second), rate, fleets)
	return err
}
