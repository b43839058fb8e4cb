package rollout

import (
	"iter"
	"math"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// trainKeys are the columns of a train dict: what slime's _convert_samples_to_train_data makes of the
// samples, one list for each field, one position for each sample. The first three tell that a dict is
// one, and how many samples there are.
var trainKeys = [...]string{
	"response_lengths", "rewards", "tokens", "raw_reward", "truncated", "loss_masks", "sample_indices", "rollout_ids",
}

const (
	cLengths = iota
	cRewards
	cTokens
	cRawReward
	cTruncated
	cMasks
	cIndices
	cRollouts
)

// isTrain says that v is a dict of columns.
func (r *reader) isTrain(v torchfile.Value) bool {
	for _, key := range trainKeys[:cTokens+1] {
		if _, ok := length(v.Field(key)); ok {
			return true
		}
	}
	return false
}

// column yields the values of one column one after the other.
type column struct {
	next func() (int, torchfile.Value, bool)
	stop func()
	nums []float64 // of a tensor or array
	isN  bool

	v torchfile.Value
	f float64
	// have says that the column has a value at the present position.
	have bool
}

func (r *reader) column(v torchfile.Value, name string) *column {
	c := &column{}
	switch {
	case isList(v):
		c.next, c.stop = iter.Pull2(v.All())
	case v.Kind() == torchfile.KindTensor:
		if t, err := v.Tensor(); err == nil && len(t.Shape) == 1 && t.Len() <= maxElements {
			c.nums, err = t.Float64s(nil)
			c.isN = err == nil
		}
	case v.Kind() == torchfile.KindNDArray:
		if a, err := v.NDArray(); err == nil && len(a.Shape) == 1 && a.Len() <= maxElements {
			c.nums, err = a.Float64s(nil)
			c.isN = err == nil
		}
	}
	if c.next == nil && !c.isN && v.Exists() && !v.IsNone() {
		r.fileProblem("bad_"+name, name, "not a column: "+describe(v))
	}
	return c
}

func (c *column) advance() {
	c.v, c.have = torchfile.Value{}, false
	switch {
	case c.next != nil:
		_, c.v, c.have = c.next()
	case len(c.nums) > 0:
		c.f, c.nums, c.have = c.nums[0], c.nums[1:], true
	}
}

func (c *column) close() {
	if c.stop != nil {
		c.stop()
	}
}

func (c *column) integer(r *reader, name string) Int {
	if c.isN {
		if !c.have || c.f != math.Trunc(c.f) || math.Abs(c.f) > 1<<53 {
			return Int{}
		}
		return Int{int64(c.f), true}
	}
	return r.integer(c.v, name)
}

func (c *column) score(r *reader) request.Value {
	if c.isN {
		return asValue(c.f, c.have, finite(c.f))
	}
	return r.score(c.v)
}

func asValue(f float64, have, good bool) request.Value {
	switch {
	case !have:
		return request.Value{}
	case !good:
		return request.Value{V: f, State: request.Invalid}
	}
	return request.Value{V: f, State: request.Known}
}

// train visits the samples of a dict of columns. Such a sample has no value of its own in the file:
// Raw is missing. Its index is that of sample_indices; without that column it has none, since its
// position is no name for it. Its reward is raw_reward, what the reward model said, where that is
// there; rewards may be normalised within the group.
func (r *reader) train(v torchfile.Value) error {
	var cols [len(trainKeys)]*column
	n := int64(0)
	for i, key := range trainKeys {
		x := v.Field(key)
		if m, ok := length(x); ok && i <= cTokens {
			if n != 0 && m != n {
				r.fileProblem("column_length", key, "columns of different lengths")
			}
			n = max(n, m)
		}
		cols[i] = r.column(x, key)
		defer cols[i].close()
	}
	for range n {
		if r.entries--; r.entries < 0 {
			return nil
		}
		for _, c := range cols {
			c.advance()
		}
		ordinal := r.begin()
		if r.opts.Only != nil && !r.opts.Only(ordinal) {
			continue
		}
		s := &r.sample
		s.Trace.Why = "a train dict has no traces"
		s.Index = cols[cIndices].integer(r, "index")
		s.RolloutID = cols[cRollouts].integer(r, "rollout_id")
		s.ResponseLength = cols[cLengths].integer(r, "response_length")
		if s.ResponseLength.N < 0 {
			r.problem("bad_response_length", "response_lengths", "negative")
			s.ResponseLength = Int{}
		}
		switch t := cols[cTruncated].score(r); {
		case t.State == request.Known && t.V != 0:
			s.Status = StatusTruncated
		case t.State == request.Known:
			s.Status = StatusCompleted
		}
		r.lengths(cols[cTokens].v, cols[cMasks].v)
		reward := cols[cRawReward]
		if !reward.have || !reward.isN && reward.v.IsNone() {
			reward = cols[cRewards]
		}
		if reward.isN {
			s.Reward.Value = reward.score(r)
		} else {
			r.reward(reward.v)
		}
		if err := r.visit(s); err != nil {
			return err
		}
	}
	return nil
}
