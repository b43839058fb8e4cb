package dumps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// ReadOptions are the choices of [Read].
type ReadOptions struct {
	Metrics rollout.MetricOptions // RewardKey, too
	Tool    string                // version of this program, for the timeline's head
	// Salvage reads what is there of a file that was cut, and marks it partial.
	Salvage bool
	// NoTimeline leaves Columns nil, NoMetrics leaves Metrics nil.
	NoTimeline, NoMetrics bool
	// Texts keeps prompt and response of this many of the samples that ended last in the timeline, each
	// cut at 64 KiB, for a page that cannot ask for them.
	Texts int
	// Entry is [rollout.Options.Entry].
	Entry func(v torchfile.Value) error
	// Sample, when not nil, is called with every sample, which is valid during the call only.
	Sample func(s *rollout.Sample)
	// Progress, when not nil, is called now and then with the number of samples read and of the bytes
	// that they end at.
	Progress func(samples int, at int64)
}

// Step is everything that one dump tells about its step.
type Step struct {
	Path        string
	Size        int64
	ModTime     time.Time
	Fingerprint string
	Header      *rollout.Header
	Metrics     *rollout.Metrics         // without [rollout.Attribute]: other steps are the caller's
	Columns     *timeline.Columns        // marked with what Wall found
	Wall        *timeline.WallTimeResult // where the time went
	Statuses    map[string]int
	Samples     int // those with a field of a sample
	Traced      int
	Requests    int
	Groups      int
	Rewarded    int     // samples with a reward that is a number
	Rewards     float64 // their sum
	Events      int
	Skipped     int       // entries of events lists that are no events
	First, Last time.Time // of the step's own events; zero without any
	Problems    map[string]ProblemCount
	// Partial is why not all of the file could be read; only with Salvage.
	Partial error
}

// ProblemCount is how often a problem was found, and the first case.
type ProblemCount struct {
	Count int
	Where string
	What  string
}

// Open opens a dump and says how to read it: slime tells an evaluation by the file's name alone.
func Open(path string, salvage bool) (*torchfile.File, rollout.Options, error) {
	f, err := torchfile.Open(path, &torchfile.Options{Salvage: salvage})
	if err != nil {
		return nil, rollout.Options{}, err
	}
	kind, id := rollout.FromName(filepath.Base(path))
	return f, rollout.Options{Eval: kind == rollout.Eval, RolloutID: id}, nil
}

// Read reads a dump once and returns all that is known of its step. It opens the file for reading and
// changes nothing about it. The context ends it between samples.
func Read(ctx context.Context, path string, o ReadOptions) (*Step, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f, opts, err := Open(path, o.Salvage)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFile(ctx, f, opts, path, info, o)
}

// ReadFile is [Read] of a file that is open. opts is as [Open] returned it.
func ReadFile(ctx context.Context, f *torchfile.File, opts rollout.Options, path string, info os.FileInfo, o ReadOptions) (*Step, error) {
	st := &Step{Path: path, Size: info.Size(), ModTime: info.ModTime(), Statuses: map[string]int{}, Problems: map[string]ProblemCount{}}
	mark := make(chan error, 1)
	go func() { // reads what the scan does not, while it runs
		var err error
		st.Fingerprint, err = timeline.Fingerprint(f)
		mark <- err
	}()
	o.Metrics.Eval = o.Metrics.Eval || opts.Eval
	opts.Eval = o.Metrics.Eval
	opts.RewardKey, opts.Entry = o.Metrics.RewardKey, o.Entry
	if !o.NoMetrics {
		st.Metrics = rollout.NewMetrics(o.Metrics)
	}
	wall := timeline.NewWallTime(timeline.WallTimeOptions{})
	if !o.NoTimeline {
		st.Columns = timeline.NewColumns(timeline.Head{Tool: o.Tool, Dump: timeline.Dump{Name: filepath.Base(path), Bytes: st.Size}})
	}
	builder := timeline.NewBuilder(timeline.Options{})
	late := &lateTexts{most: o.Texts}
	groups := map[rollout.Int]bool{}
	read := 0
	hdr, err := rollout.Read(f, opts, func(s *rollout.Sample) error {
		if read++; read%64 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if o.Progress != nil {
				o.Progress(read, s.End)
			}
		}
		st.count(s)
		if o.Sample != nil {
			o.Sample(s)
		}
		if s.GroupIndex.OK {
			groups[s.GroupIndex] = true
		}
		if st.Metrics != nil {
			st.Metrics.Add(s)
		}
		if st.Columns == nil && o.NoMetrics {
			return nil
		}
		row := builder.Build(s)
		wall.Add(row)
		if st.Columns != nil {
			st.Columns.Add(row)
			late.add(row)
		}
		return nil
	})
	markErr := <-mark
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !o.Salvage || !errors.Is(err, torchfile.ErrIncomplete) || hdr == nil {
			return nil, err
		}
		st.Partial = err
	} else if markErr != nil {
		return nil, fmt.Errorf("the fingerprint of %s: %w", path, markErr)
	}
	st.Header, st.Groups = hdr, len(groups)
	for _, p := range hdr.Problems {
		st.problem(p)
	}
	if st.Metrics != nil {
		st.Metrics.Finish(hdr)
		if st.Partial != nil {
			st.Metrics.MarkPartial(st.Partial.Error())
		}
	}
	st.Wall = wall.Result()
	if st.Wall.Known {
		st.First, st.Last = time.Unix(0, st.Wall.Start).UTC(), time.Unix(0, st.Wall.End).UTC()
	}
	if st.Columns != nil {
		late.into(st.Columns)
	}
	return st, st.finish()
}

// count adds up what lists show of a step.
func (st *Step) count(s *rollout.Sample) {
	st.Requests += len(s.Requests)
	st.Events += s.Trace.Total
	st.Skipped += s.Trace.Skipped
	status := s.StatusText
	if status == "" {
		status = "none"
	}
	st.Samples++
	st.Statuses[status]++
	if s.Trace.Present {
		st.Traced++
	}
	if v, ok := s.Reward.Value.Known(); ok {
		st.Rewarded++
		st.Rewards += v
	}
	for _, p := range s.Problems {
		st.problem(p)
	}
	if s.MoreProblems > 0 {
		c := st.Problems["more"]
		c.Count += s.MoreProblems
		c.What = "problems of samples with more than can be listed"
		st.Problems["more"] = c
	}
}

// maxCodes bounds the kinds of problems that are told apart; codes are words of our own, so there are few.
const maxCodes = 100

func (st *Step) problem(p rollout.Problem) {
	c, ok := st.Problems[p.Code]
	if !ok {
		if len(st.Problems) >= maxCodes {
			return
		}
		c = ProblemCount{Where: p.Where, What: p.What}
	}
	c.Count++
	st.Problems[p.Code] = c
}

// finish fills the timeline's head and marks in it what the whole step showed.
func (st *Step) finish() error {
	c := st.Columns
	if c == nil {
		return nil
	}
	d := &c.Head.Dump
	d.Fingerprint, d.Shape, d.Kind = st.Fingerprint, st.Header.Shape, st.Kind()
	if st.Header.RolloutID.OK {
		id := st.Header.RolloutID.N
		d.RolloutID = &id
	}
	var err error
	if c.Head.Step, err = json.Marshal(st.Wall); err != nil {
		return fmt.Errorf("where the time of %s went: %w", st.Path, err)
	}
	c.Mark(st.Wall.Marks())
	return nil
}

// Kind is train or eval.
func (st *Step) Kind() string {
	if st.Header.Kind == rollout.Eval {
		return "eval"
	}
	return "train"
}
