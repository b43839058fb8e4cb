package rollout

import (
	"fmt"

	"github.com/rollscope/rollscope/internal/request"
)

// TrainingRow is what the trainer wrote of one sample.
type TrainingRow struct {
	Reward         request.Value
	ResponseLength request.Value // tokens
}

// Training joins the shards that the trainer's ranks write with the samples of one rollout dump, by the
// samples' global index, never by position. Shards come when their ranks are done; a step whose shards
// do not cover all its samples is partial. Its entry point is [Training.Row], for MetricOptions.
type Training struct {
	indices map[int64]bool
	rows    map[int64]TrainingRow
	max     int64
}

// NewTraining begins the join for a dump whose samples have these indices.
func NewTraining(indices []int64) *Training {
	t := &Training{indices: make(map[int64]bool, len(indices)), rows: map[int64]TrainingRow{}, max: -1}
	for _, i := range indices {
		t.indices[i] = true
		t.max = max(t.max, i)
	}
	return t
}

// AddShard adds one shard. lengths may be nil. A shard none of whose indices is in the dump while all
// are below the number of its samples counts from 0 in each rank: which sample is meant is not known, so
// it is refused, as is one with an index twice or with a column of another length.
func (t *Training) AddShard(indices []int64, rewards []request.Value, lengths []request.Value) error {
	if len(rewards) != len(indices) || lengths != nil && len(lengths) != len(indices) {
		return fmt.Errorf("training shard: %d sample indices, %d rewards and %d lengths; they must be as many", len(indices), len(rewards), len(lengths))
	}
	seen := make(map[int64]bool, len(indices))
	local, known := len(indices) > 0, false
	for _, i := range indices {
		if seen[i] {
			return fmt.Errorf("training shard: sample index %d comes twice", i)
		}
		seen[i] = true
		known = known || t.indices[i]
		local = local && i >= 0 && i < int64(len(t.indices))
	}
	if local && !known {
		return fmt.Errorf("training shard: sample indices are all below %d and none is in the dump (which has up to %d): they count within the shard, "+
			"and which samples they mean is not written; write global indices", len(t.indices), t.max)
	}
	if !known && len(indices) > 0 {
		return fmt.Errorf("training shard: none of its sample indices (the first is %d) is in the dump; it is of another step", indices[0])
	}
	for k, i := range indices {
		if !t.indices[i] {
			continue
		}
		row := TrainingRow{Reward: rewards[k]}
		if lengths != nil {
			row.ResponseLength = lengths[k]
		}
		t.rows[i] = row
	}
	return nil
}

// Coverage is how many of the dump's samples have a row.
func (t *Training) Coverage() (have, of int) { return len(t.rows), len(t.indices) }

// Row is the trainer's row of a sample, for MetricOptions.Training.
func (t *Training) Row(s *Sample) (TrainingRow, bool) {
	if !s.Index.OK {
		return TrainingRow{}, false
	}
	r, ok := t.rows[s.Index.N]
	return r, ok
}

// trainingAcc collects the rows of a step's samples.
type trainingAcc struct {
	have, of         int
	rewards, lengths []float64
}

func (a *trainingAcc) add(r TrainingRow, ok bool) {
	a.of++
	if !ok {
		return
	}
	a.have++
	if v, ok := r.Reward.Known(); ok {
		a.rewards = append(a.rewards, v)
	}
	if v, ok := r.ResponseLength.Known(); ok {
		a.lengths = append(a.lengths, v)
	}
}

func (a *trainingAcc) emit(e *emitter) {
	if a.of == 0 {
		return
	}
	e.put("train/coverage", float64(a.have)/float64(a.of))
	for _, c := range []struct {
		key    string
		values []float64
	}{{"train/reward", a.rewards}, {"train/response_len", a.lengths}} {
		if len(c.values) == 0 {
			e.unknown(c.key+"/mean", fmt.Sprintf("the trainer's rows of %d of %d samples do not say it", a.of, a.of))
			continue
		}
		e.partStats(c.key, statsOf(c.values), len(c.values), a.of, "samples have a row of the trainer")
	}
}
