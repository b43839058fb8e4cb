// Package tracker writes the metrics of steps to the trackers that a team already looks at:
// TensorBoard event files and offline W&B runs. Its entry points are [TensorBoard] and [WandB];
// [Multi] writes to several.
//
// # One write per step
//
// What is written is a [Step]: all metrics of one step of a run on one axis, once. There is no way to
// hand in a series over time; keys outside the families of an axis, and keys that look like a scraped
// series, are rejected and counted.
//
// # Once, also over restarts
//
// A step is identified by its run, axis, number and time. One that the files already hold is not
// written again, whoever asks: the files are read back when a run is opened, and there is no other
// state that could disagree with them. A file that ends inside a record (a crash, a full disk) is cut
// behind the last whole step.
//
// # Attempts
//
// A step that was published before and comes again with a later time was run again, from a
// checkpoint: a new attempt began. From then on the curve of the run holds the steps before it from
// the attempt before, and what the new attempt logs. Left out are, for all keys alike, the steps of
// that axis from the restart on, and what other axes logged after the first of those. The curve of the
// earlier attempt stays whole under its own name: a directory NAME.attempt-0 for TensorBoard, a run
// "NAME (attempt 0)" for W&B.
//
// # Values that are not finite
//
// NaN and infinities are written, since both tools show them: TensorBoard as a marked point, W&B as
// "NaN" or "Infinity" in the row. They are counted. A value that is not known is left out and counted;
// it is never written as 0 or NaN.
package tracker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
)

// Tracker takes steps. Implementations are safe for concurrent use and never use a network.
type Tracker interface {
	// Log publishes a step, or does nothing where it is published already. When it returns nil the step
	// is in the operating system's hands. A *RejectedError says that the step, or in strict mode a part
	// of it, cannot be published; any other error may pass, and the same step may be logged again.
	Log(ctx context.Context, s Step) error
	// Close ends the files so that they are complete, and flushes them to the disk.
	Close() error
}

// Options are common to all trackers.
type Options struct {
	// Strict makes Log refuse a step of which any point would be left out (other than an unknown one).
	Strict bool
	// Serving allows keys below serving/: a summary per step of what the engines did.
	Serving bool
	// Logger gets what happens to files: attempts, repairs. Nothing is logged when it is nil.
	Logger *slog.Logger
}

func (o *Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger.With("component", "tracker")
}

// Stats counts what a tracker did since it was made.
type Stats struct {
	// Steps and Points were written. Published steps were there already.
	Steps, Points, Published int64
	// Unknown points have no value and are left out.
	Unknown int64
	// NonFinite points are among Points: NaN and infinities.
	NonFinite int64
	// OutOfRange points are among Points: finite, but beyond what the format's 32 bits hold, so that the
	// tool shows an infinity.
	OutOfRange int64
	// Rejected points by reason, see the Reason constants.
	Rejected map[string]int64
}

type counter struct {
	mu sync.Mutex
	s  Stats
}

func (c *counter) add(fn func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.Rejected == nil {
		c.s.Rejected = map[string]int64{}
	}
	fn(&c.s)
}

// Stats returns a copy of the counters.
func (c *counter) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.Rejected = maps.Clone(s.Rejected)
	if s.Rejected == nil {
		s.Rejected = map[string]int64{}
	}
	return s
}

type multi []Tracker

// Multi returns a Tracker that logs to each of trackers. An error of one does not keep the others from
// getting the step; the errors are joined.
func Multi(trackers ...Tracker) Tracker { return multi(trackers) }

func (m multi) Log(ctx context.Context, s Step) error {
	var errs []error
	for _, t := range m {
		errs = append(errs, t.Log(ctx, s))
	}
	return errors.Join(errs...)
}

func (m multi) Close() error {
	var errs []error
	for _, t := range m {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}
