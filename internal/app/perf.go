package app

import (
	"context"
	"errors"

	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// PerfOptions configure [Perf].
type PerfOptions struct {
	Files   []string
	Metrics rollout.MetricOptions
	Salvage bool // read what is there of a file that was cut, and mark it partial
	// Train are the trainer's shards; each is joined with the dump of its step by the samples' indices.
	Train []string
}

// PerfResult is one file's metrics, or why there are none.
type PerfResult struct {
	File   string
	Result *rollout.MetricsResult // nil with an error, unless part of the file could be read
	Opaque []string               // classes of the file that nobody here has
	Train  []string               // what the join with the trainer's shards has to say
	Err    error
}

// Perf computes the metrics of each file. Steps of one run that are given together share what samples
// carried over from one to the next: each request counts in the step that it ran in. One bad file does
// not stop the others.
func Perf(ctx context.Context, o PerfOptions) ([]PerfResult, error) {
	out := make([]PerfResult, len(o.Files))
	shards, bad := dumps.TrainShards(o.Train)
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	metrics := make([]*rollout.Metrics, len(o.Files))
	kinds := map[rollout.Kind][]*rollout.Metrics{}
	for i, path := range o.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fo := o
		out[i] = PerfResult{File: path}
		if len(shards) > 0 {
			j, err := dumps.JoinTrain(ctx, path, shards)
			if err != nil {
				out[i].Err = err
				continue
			}
			fo.Metrics.Training = j.Training.Row
			out[i].Train = dumps.Says(j)
		}
		m, hdr, err := perfOf(path, fo)
		out[i].Err = err
		if hdr == nil || m == nil {
			continue
		}
		out[i].Opaque, metrics[i] = hdr.Opaque, m
		kinds[hdr.Kind] = append(kinds[hdr.Kind], m)
	}
	for _, steps := range kinds {
		if len(steps) > 1 {
			rollout.Attribute(steps)
		}
	}
	for i, m := range metrics {
		if m != nil {
			out[i].Result = m.Result()
		}
	}
	return out, nil
}

// perfOf adds up one file. With an error there may still be metrics: of a file that was cut.
func perfOf(path string, o PerfOptions) (*rollout.Metrics, *rollout.Header, error) {
	f, opts, err := openDump(path, o.Salvage)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	mo := o.Metrics
	mo.Eval = mo.Eval || opts.Eval
	opts.RewardKey = mo.RewardKey
	m := rollout.NewMetrics(mo)
	hdr, err := rollout.Read(f, opts, func(s *rollout.Sample) error {
		m.Add(s)
		return nil
	})
	if hdr != nil {
		m.Finish(hdr)
	}
	if err != nil {
		if !o.Salvage || !errors.Is(err, torchfile.ErrIncomplete) {
			return nil, hdr, err
		}
		m.MarkPartial(err.Error())
	}
	return m, hdr, err
}
