package lines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
)

// every is how often lines are written.
const every = 200 * time.Millisecond

// Writer writes the lines of a fleet that is served.
type Writer struct {
	done chan struct{}
	err  error
}

// Live writes the lines of a running fleet into files until ctx ends, and closes them. The lines' times are
// the fleet's, which are the clock's at speed 1.
func Live(ctx context.Context, running *sim.Running, o Options, f *Files, log *slog.Logger) *Writer {
	r := New(o)
	running.With(func(fleet *sim.Fleet) {
		fleet.Watch(r.Watch())
		r.Begin(fleet.Roll())
	})
	w := &Writer{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil && w.err == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			var now time.Time
			running.With(func(fleet *sim.Fleet) { now = fleet.Now() })
			w.err = f.Write(r.Due(now))
		}
		w.err = errors.Join(w.err, f.Close())
		if w.err != nil {
			log.Error("the simulated logs ended", "err", w.err)
		}
	}()
	return w
}

// Wait returns when the files are closed, with what went wrong.
func (w *Writer) Wait() error {
	<-w.done
	return w.err
}

// RunOptions configure [Run].
type RunOptions struct {
	Fleet sim.Config // its Start is set to now
	Lines Options
	Files *Files
	// Rate is how many lines a second are wanted: the fleet is multiplied until it writes at least as many,
	// and its loads are set for the rest. 0: what the fleet writes.
	Rate float64
	For  time.Duration // 0: until ctx ends

	Now   func() time.Time                     // nil: time.Now
	After func(time.Duration) <-chan time.Time // nil: time.After
}

// RunResult is what Run wrote.
type RunResult struct {
	Lines, Bytes int64
	Copies       int     // of the fleet
	Natural      float64 // lines a second of one copy
	Took         time.Duration
}

// maxCopies bounds how often a fleet is multiplied.
const maxCopies = 20_000

// Run writes the lines of a fleet in real time until ctx ends or the time is over. The files are not closed.
func Run(ctx context.Context, o RunOptions) (RunResult, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Rate < 0 || math.IsNaN(o.Rate) || math.IsInf(o.Rate, 0) {
		return RunResult{}, fmt.Errorf("sim logs: %v lines a second: write 0 or more", o.Rate)
	}
	natural, err := naturalRate(o.Fleet, o.Lines)
	if err != nil {
		return RunResult{}, err
	}
	res := RunResult{Copies: 1, Natural: natural}
	if o.Rate > 0 && natural > 0 {
		res.Copies = max(1, int(math.Round(o.Rate/natural)))
		if res.Copies > maxCopies {
			return res, fmt.Errorf("sim logs: %v lines a second are more than %d of these fleets write (%.1f a second each): take a greater --fleet", o.Rate, maxCopies, natural)
		}
	}
	start := o.Now()
	o.Fleet.Start = start
	fleet, err := sim.New(o.Fleet)
	if err != nil {
		return res, err
	}
	var copies []*Renderer
	for i := range res.Copies {
		l := o.Lines
		l.Copy = i
		r := New(l)
		r.Begin(fleet.Roll())
		fleet.Watch(r.Watch())
		copies = append(copies, r)
	}
	lines0, bytes0 := o.Files.Written()
	for {
		now := o.Now()
		fleet.Advance(now)
		for i, r := range copies {
			batch := r.Due(fleet.Now())
			if i > 0 {
				for k := range batch {
					batch[k].Member = fmt.Sprintf("%s-copy%d", batch[k].Member, i)
				}
			}
			if err := o.Files.Write(batch); err != nil {
				return res, err
			}
		}
		l, b := o.Files.Written()
		res.Lines, res.Bytes, res.Took = l-lines0, b-bytes0, o.Now().Sub(start)
		if o.For > 0 && res.Took >= o.For {
			return res, nil
		}
		select {
		case <-ctx.Done():
			return res, nil
		case <-o.After(every):
		}
	}
}

// naturalRate is how many lines a second a fleet writes, from a minute of its life.
func naturalRate(c sim.Config, o Options) (float64, error) {
	const warm, span = 20 * time.Second, 60 * time.Second
	c.Faults = nil
	f, err := sim.New(c)
	if err != nil {
		return 0, err
	}
	r := New(o)
	f.Watch(r.Watch())
	f.Advance(f.Start().Add(warm))
	r.Due(f.Now())
	before := r.Rendered()
	f.Advance(f.Start().Add(warm + span))
	r.Due(f.Now())
	return float64(r.Rendered()-before) / span.Seconds(), nil
}
