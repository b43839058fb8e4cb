package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// TrainShard is what one rank of the trainer wrote down of its samples in one step.
type TrainShard struct {
	Name      string // of its file, for messages
	RolloutID Int
	Rank      Int
	Indices   []int64         // of the samples, global over the run: Sample.Index
	Rewards   []request.Value // as many as Indices
	Lengths   []request.Value // response lengths in tokens, as many as Indices; nil when they were not written
}

// TrainJoin is a dump's samples with what the trainer wrote of them.
type TrainJoin struct {
	// Training holds the rows; its Row goes into MetricOptions.Training.
	Training *Training
	// Have of Of samples have a row. Partial says that some have none: whatever is computed from the rows
	// is of a part of the step.
	Have, Of int
	Partial  bool
	// Missing are the indices without a row, ascending, at most 1000.
	Missing []int64
	// Refused says for each shard that was not joined why, in the order of the shards.
	Refused []string
}

const maxMissing = 1000

// JoinTrain joins the samples of a rollout with the trainer's shards by the samples' global index. step
// and indices are those of the dump. A shard is refused, and never joined by position, when
//   - it is of another step;
//   - its columns do not fit together, or an index stands in it twice;
//   - it names an index that the dump does not have. If all its indices are below the number of samples,
//     it counts them from 0;
//   - another rank's shard says something else of the same index: then both count from 0.
//
// Ranks that write the same rows (tensor and pipeline parallelism) and shards that are read again are
// fine: of one rank the last one counts. The order of the shards does not matter otherwise.
func JoinTrain(step Int, indices []int64, shards []*TrainShard) *TrainJoin {
	j := &TrainJoin{Training: NewTraining(indices)}
	has := make(map[int64]bool, len(indices))
	for _, i := range indices {
		has[i] = true
	}
	refused := make([]string, len(shards))
	type place struct{ shard, at int }
	first := make(map[int64]place)
	for n, s := range shards {
		if refused[n] = s.misfit(step, indices, has); refused[n] != "" {
			continue
		}
		for k, i := range s.Indices {
			p, ok := first[i]
			if !ok {
				first[i] = place{n, k}
				continue
			}
			o := shards[p.shard]
			if refused[p.shard] == "" && (o.sameRank(s) || o.sameRow(p.at, s, k)) {
				first[i] = place{n, k}
				continue
			}
			why := fmt.Sprintf("sample %d stands in %s and in %s with other values: their indices count from 0 in each rank, and which samples they mean is not written; write global indices", i, o.name(), s.name())
			refused[n] = why
			if refused[p.shard] == "" {
				refused[p.shard] = why
			}
			break
		}
	}
	for n, s := range shards {
		if refused[n] == "" {
			if err := j.Training.AddShard(s.Indices, s.Rewards, s.Lengths); err != nil {
				refused[n] = s.name() + ": " + err.Error()
			}
		}
		if refused[n] != "" {
			j.Refused = append(j.Refused, refused[n])
		}
	}
	for i := range has {
		if _, ok := j.Training.Row(&Sample{Index: Int{i, true}}); ok {
			j.Have++
		} else {
			j.Missing = append(j.Missing, i)
		}
	}
	j.Of = len(has)
	j.Partial = j.Have < j.Of
	slices.Sort(j.Missing)
	j.Missing = j.Missing[:min(len(j.Missing), maxMissing)]
	return j
}

func (s *TrainShard) name() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Rank.OK:
		return "the shard of rank " + strconv.FormatInt(s.Rank.N, 10)
	}
	return "a shard"
}

func (s *TrainShard) sameRank(o *TrainShard) bool { return s.Rank.OK && s.Rank == o.Rank }

// sameRow says that row k of s and row l of o agree.
func (s *TrainShard) sameRow(k int, o *TrainShard, l int) bool {
	if !sameValue(s.Rewards[k], o.Rewards[l]) {
		return false
	}
	return s.Lengths == nil || o.Lengths == nil || sameValue(s.Lengths[k], o.Lengths[l])
}

func sameValue(a, b request.Value) bool {
	return a.State == b.State && (a.State != request.Known || a.V == b.V)
}

// misfit says why a shard is not joined, "" when it can be.
func (s *TrainShard) misfit(step Int, indices []int64, has map[int64]bool) string {
	if step.OK && s.RolloutID.OK && step != s.RolloutID {
		return fmt.Sprintf("%s is of rollout %d, not %d", s.name(), s.RolloutID.N, step.N)
	}
	if len(s.Rewards) != len(s.Indices) || s.Lengths != nil && len(s.Lengths) != len(s.Indices) {
		return fmt.Sprintf("%s has %d sample indices, %d rewards and %d response lengths; they must be as many", s.name(), len(s.Indices), len(s.Rewards), len(s.Lengths))
	}
	local, missing, unknown := true, 0, int64(0)
	seen := make(map[int64]bool, len(s.Indices))
	for _, i := range s.Indices {
		if seen[i] {
			return fmt.Sprintf("%s has sample index %d twice", s.name(), i)
		}
		seen[i] = true
		local = local && i >= 0 && i < int64(len(indices))
		if !has[i] {
			if missing == 0 {
				unknown = i
			}
			missing++
		}
	}
	switch {
	case missing == 0:
		return ""
	case local && len(indices) > 0:
		return fmt.Sprintf("%s has indices below %d that the dump (%d to %d) does not have: they count from 0, and which samples they mean is not written; write global indices",
			s.name(), len(indices), slices.Min(indices), slices.Max(indices))
	}
	return fmt.Sprintf("%s has %d sample indices that are not in the dump (the first is %d): it is of another dump", s.name(), missing, unknown)
}

// ParseTrainShard reads a shard of the form {"rollout_id", "rank", "sample_indices", "rewards",
// "response_lengths"}. NaN and Infinity, which Python writes although JSON has none, are Invalid values;
// null is an absent one. name is for messages.
func ParseTrainShard(name string, data []byte) (*TrainShard, error) {
	var raw struct {
		RolloutID *json.Number      `json:"rollout_id"`
		Rank      *json.Number      `json:"rank"`
		Indices   []json.Number     `json:"sample_indices"`
		Rewards   []json.RawMessage `json:"rewards"`
		Lengths   []json.RawMessage `json:"response_lengths"`
	}
	fail := func(err error) (*TrainShard, error) {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("training shard %s, byte %d: not complete JSON (still being written?): %w", name, syntax.Offset, err)
		}
		return nil, fmt.Errorf("training shard %s: %w", name, err)
	}
	if err := json.Unmarshal(quoteNaN(data), &raw); err != nil {
		return fail(err)
	}
	if raw.Indices == nil {
		return fail(errors.New("no sample_indices: rows without a sample's index cannot be joined"))
	}
	s := &TrainShard{Name: name}
	for _, id := range [...]struct {
		from *json.Number
		to   *Int
		name string
	}{{raw.RolloutID, &s.RolloutID, "rollout_id"}, {raw.Rank, &s.Rank, "rank"}} {
		if id.from == nil {
			continue
		}
		n, err := strconv.ParseInt(id.from.String(), 10, 64)
		if err != nil {
			return fail(fmt.Errorf("%s is %s, not an integer", id.name, id.from))
		}
		*id.to = Int{n, true}
	}
	s.Indices = make([]int64, len(raw.Indices))
	for k, x := range raw.Indices {
		n, err := strconv.ParseInt(x.String(), 10, 64)
		if err != nil {
			return fail(fmt.Errorf("sample_indices[%d] is %s, not an integer", k, x))
		}
		s.Indices[k] = n
	}
	s.Rewards = jsonValues(raw.Rewards)
	if raw.Lengths != nil {
		s.Lengths = jsonValues(raw.Lengths)
	}
	return s, nil
}

func jsonValues(raw []json.RawMessage) []request.Value {
	out := make([]request.Value, len(raw))
	for i, x := range raw {
		switch text := string(x); text {
		case "null":
		case "true":
			out[i] = request.Value{V: 1, State: request.Known}
		case "false":
			out[i] = request.Value{State: request.Known}
		default:
			f, err := strconv.ParseFloat(text, 64)
			if err != nil || !finite(f) {
				out[i] = request.Value{State: request.Invalid}
				break
			}
			out[i] = request.Value{V: f, State: request.Known}
		}
	}
	return out
}

// quoteNaN turns the words NaN and Infinity outside of strings into strings.
func quoteNaN(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	inString := false
	for i := 0; i < len(data); {
		c := data[i]
		if !inString {
			if word := nanAt(data[i:]); word != "" {
				out = append(append(append(out, '"'), word...), '"')
				i += len(word)
				continue
			}
		} else if c == '\\' && i+1 < len(data) {
			out = append(out, c, data[i+1])
			i += 2
			continue
		}
		if c == '"' {
			inString = !inString
		}
		out = append(out, c)
		i++
	}
	return out
}

func nanAt(b []byte) string {
	for _, word := range [...]string{"NaN", "-Infinity", "Infinity"} {
		if len(b) >= len(word) && string(b[:len(word)]) == word {
			return word
		}
	}
	return ""
}

// TrainShardOf reads a shard out of a dump of the trainer: slime's save_debug_train_data (one file for
// all ranks since format_version 2, one for each before), or a train dict. name is for messages.
func TrainShardOf(f *torchfile.File, name string) (*TrainShard, error) {
	s := &TrainShard{Name: name}
	without := 0
	hdr, err := Read(f, Options{NoTrace: true, NoMask: true}, func(x *Sample) error {
		if !x.Index.OK {
			without++
			return nil
		}
		s.Indices = append(s.Indices, x.Index.N)
		s.Rewards = append(s.Rewards, x.Reward.Value)
		length := request.Value{}
		if x.ResponseLength.OK {
			length = request.Value{V: float64(x.ResponseLength.N), State: request.Known}
		}
		s.Lengths = append(s.Lengths, length)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("training shard %s: %w", name, err)
	}
	s.RolloutID = hdr.RolloutID
	if without > 0 {
		return nil, fmt.Errorf("training shard %s: %d of %d samples have no index; they cannot be joined", name, without, hdr.Samples)
	}
	return s, nil
}
