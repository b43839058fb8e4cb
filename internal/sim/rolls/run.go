package rolls

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Run is a training run: steps that follow one another in time, with rewards that rise and answers
// that get longer. It is not safe for concurrent use.
type Run struct {
	o        RunOptions
	step     int
	at       time.Time
	previous *Window
	evalDue  bool
}

// RunOptions describe a run.
type RunOptions struct {
	// Step is what all steps share; its RolloutID is that of the first step, its Start the run's, its
	// Reward the first step's.
	Step Options
	// Eval writes an evaluation before each so many steps; 0 for none.
	Eval int
	// EvalSamples is the size of an evaluation; default a quarter of a step.
	EvalSamples int
	// RewardGain is what rewards have gained in the end, default 0.35; RewardSteps is in how many steps
	// they come half of the way, default 20.
	RewardGain  float64
	RewardSteps int
	// Faults are those of single steps, by rollout id. Those of Step are in every step.
	Faults map[int][]Fault
}

// NewRun begins a run.
func NewRun(o RunOptions) (*Run, error) {
	base, err := o.Step.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Eval < 0 || o.EvalSamples < 0 {
		return nil, fmt.Errorf("rolls: an evaluation every %d steps with %d samples", o.Eval, o.EvalSamples)
	}
	for id, faults := range o.Faults {
		for _, f := range faults {
			if err := f.check(base); err != nil {
				return nil, fmt.Errorf("step %d: %w", id, err)
			}
		}
	}
	base.Root = ""
	o.Step = base
	if o.EvalSamples == 0 {
		o.EvalSamples = max(base.Samples/4, base.GroupSize)
	}
	if o.RewardGain == 0 {
		o.RewardGain = 0.35
	}
	if o.RewardSteps == 0 {
		o.RewardSteps = 20
	}
	return &Run{o: o, step: base.RolloutID, at: base.Start, evalDue: o.Eval > 0}, nil
}

// Next returns the options of the next dump: those of an evaluation where one is due, else of a step.
// Give the dump's Stats to Done before the next one.
func (r *Run) Next() Options {
	o := r.o.Step
	o.RolloutID, o.Start = r.step, r.at
	k := float64(r.step - r.o.Step.RolloutID)
	rise := k / (k + float64(r.o.RewardSteps))
	o.Reward = min(o.Reward+r.o.RewardGain*rise, 0.98)
	o.Response.Median = int(float64(o.Response.Median) * (1 + 0.6*rise))
	o.Previous = r.previous
	if r.evalDue {
		o.Eval, o.Samples, o.Partial, o.Previous = true, r.o.EvalSamples, 0, nil
		if len(o.Datasets) == 0 {
			o.Datasets = []string{"aime-2025", "gpqa_diamond"}
		}
		return o
	}
	o.Faults = append(o.Faults[:len(o.Faults):len(o.Faults)], r.o.Faults[r.step]...)
	return o
}

// Done tells the run how the dump of the last Next went.
func (r *Run) Done(st Stats) {
	if r.evalDue {
		r.evalDue = false
		r.at = st.End.Add(2 * time.Second)
		return
	}
	r.previous = &Window{Start: st.Start, End: st.End}
	r.step++
	r.at = st.End.Add(r.o.Step.TrainTime)
	r.evalDue = r.o.Eval > 0 && (r.step-r.o.Step.RolloutID)%r.o.Eval == 0
}

// WriteDir writes the dumps of so many steps, and of the evaluations between them, into a directory,
// and calls each, when it is not nil, after every one.
func (r *Run) WriteDir(dir string, steps int, each func(path string, o Options, st Stats) error) error {
	for until := r.step + steps; r.step < until; {
		o := r.Next()
		path := filepath.Join(dir, o.FileName())
		st, err := WriteFile(path, o)
		if err != nil {
			return err
		}
		r.Done(st)
		if each != nil {
			if err := each(path, o, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clock is what Live waits by; nil functions are those of package time.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Live writes the run's dumps as a job would that runs now: each appears, complete, when its step ends.
// The run must begin now (RunOptions.Step.Start). It goes on until the context ends, which it returns
// as nil, or steps (0: no end) were written.
func (r *Run) Live(ctx context.Context, dir string, steps int, clock Clock, each func(path string, o Options, st Stats) error) error {
	if clock.Now == nil {
		clock.Now = time.Now
	}
	if clock.After == nil {
		clock.After = time.After
	}
	for until := r.step + steps; steps == 0 || r.step < until; {
		o := r.Next()
		o.Root = o.name()
		path := filepath.Join(dir, o.FileName())
		// Written at once, under a name that no watcher knows; shown when its time has come.
		hidden := filepath.Join(dir, "."+o.FileName()+".live")
		st, err := WriteFile(hidden, o)
		if err != nil {
			return err
		}
		r.Done(st)
		for wait := st.End.Sub(clock.Now()); wait > 0; wait = st.End.Sub(clock.Now()) {
			select {
			case <-ctx.Done():
				return os.Remove(hidden)
			case <-clock.After(wait):
			}
		}
		if err := os.Rename(hidden, path); err != nil {
			return err
		}
		if each != nil {
			if err := each(path, o, st); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}
