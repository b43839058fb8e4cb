package rollout

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

func trainingCase(t *testing.T) (Int, []int64) {
	t.Helper()
	data, err := os.ReadFile("testdata/training/rollout_12.json")
	if err != nil {
		t.Fatal(err)
	}
	var dump struct {
		RolloutID int64 `json:"rollout_id"`
		Samples   []struct {
			Index int64 `json:"index"`
		} `json:"samples"`
	}
	if err := json.Unmarshal(data, &dump); err != nil {
		t.Fatal(err)
	}
	var indices []int64
	for _, s := range dump.Samples {
		indices = append(indices, s.Index)
	}
	return Int{dump.RolloutID, true}, indices
}

func shardFile(t *testing.T, name string) *TrainShard {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/training", name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseTrainShard(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rewards shows the joined rewards by index, "-" where there is none.
func rewards(j *TrainJoin, indices []int64) string {
	var out []string
	for _, i := range indices {
		row, ok := j.Training.Row(&Sample{Index: Int{i, true}})
		if !ok {
			out = append(out, "-")
			continue
		}
		out = append(out, fmt.Sprint(row.Reward.V))
	}
	return strings.Join(out, " ")
}

func TestTrainingShardsJoinByGlobalIndex(t *testing.T) {
	step, indices := trainingCase(t)
	shards := []*TrainShard{shardFile(t, "shard_0.json"), shardFile(t, "shard_1.json")}
	j := JoinTrain(step, indices, shards)
	if got := rewards(j, indices); got != "1 0 - 1" {
		t.Errorf("rewards %s, want 1 0 - 1", got)
	}
	if j.Have != 3 || j.Of != 4 || !j.Partial || !reflect.DeepEqual(j.Missing, []int64{98}) || j.Refused != nil {
		t.Errorf("%d of %d, partial %v, missing %v, refused %q", j.Have, j.Of, j.Partial, j.Missing, j.Refused)
	}
	// Once the last rank is done, and whatever comes first:
	j = JoinTrain(step, indices, append([]*TrainShard{shardFile(t, "shard_2.json.later")}, shards...))
	if got := rewards(j, indices); got != "1 0 0 1" || j.Have != 4 || j.Partial || len(j.Missing) != 0 {
		t.Errorf("rewards %s, %d of %d, partial %v", got, j.Have, j.Of, j.Partial)
	}
}

func shard(rank int64, rollout int64, indices []int64, rewards ...float64) *TrainShard {
	s := &TrainShard{Rank: Int{rank, true}, RolloutID: Int{rollout, true}, Indices: indices}
	for _, r := range rewards {
		s.Rewards = append(s.Rewards, request.Value{V: r, State: request.Known})
	}
	return s
}

func TestShardsThatAreRefused(t *testing.T) {
	step, indices := trainingCase(t)
	first := []int64{0, 1, 2, 3}
	for name, c := range map[string]struct {
		indices []int64
		shards  []*TrainShard
		want    []string // parts of the messages
		have    int
	}{
		"local indices": {indices, []*TrainShard{shard(0, 12, first, 1, 0, 1, 0)}, []string{"they count from 0"}, 0},
		// Two of the four happen to be in the dump.
		"local indices that overlap": {[]int64{2, 3, 4, 5}, []*TrainShard{shard(0, 12, first, 1, 0, 1, 0)}, []string{"they count from 0"}, 0},
		// In the first step local indices exist, and only a second rank shows what they are.
		"local indices of the first step": {first, []*TrainShard{shard(0, 12, []int64{0, 1}, 1, 0), shard(1, 12, []int64{0, 1}, 1, 1)},
			[]string{"count from 0 in each rank", "count from 0 in each rank"}, 0},
		"three ranks of local indices": {first, []*TrainShard{shard(0, 12, []int64{0, 1}, 1, 0), shard(1, 12, []int64{0, 1}, 1, 1), shard(2, 12, []int64{0, 1}, 1, 0)},
			[]string{"count from 0", "count from 0", "count from 0"}, 0},
		"another step":                {indices, []*TrainShard{shard(0, 11, []int64{96}, 1)}, []string{"is of rollout 11, not 12"}, 0},
		"another dump":                {indices, []*TrainShard{shard(0, 12, []int64{96, 1000}, 1, 1)}, []string{"1 sample indices that are not in the dump (the first is 1000)"}, 0},
		"an index twice":              {indices, []*TrainShard{shard(0, 12, []int64{96, 96}, 1, 1)}, []string{"has sample index 96 twice"}, 0},
		"columns of different length": {indices, []*TrainShard{shard(0, 12, []int64{96, 97}, 1)}, []string{"2 sample indices, 1 rewards"}, 0},
		"one bad shard among good":    {indices, []*TrainShard{shard(0, 12, first, 1, 0, 1, 0), shard(1, 12, []int64{97}, 0)}, []string{"count from 0"}, 1},
		"the same rows of two ranks":  {indices, []*TrainShard{shard(0, 12, []int64{96}, 1), shard(1, 12, []int64{96, 97}, 1, 0)}, nil, 2},
		"a rank that is read again":   {indices, []*TrainShard{shard(0, 12, []int64{96}, 1), shard(0, 12, []int64{96, 97}, 0, 0)}, nil, 2},
		"no samples":                  {nil, []*TrainShard{shard(0, 12, []int64{0}, 1)}, []string{"not in the dump"}, 0},
	} {
		j := JoinTrain(step, c.indices, c.shards)
		if len(j.Refused) != len(c.want) || j.Have != c.have {
			t.Errorf("%s: %d rows, refused %q", name, j.Have, j.Refused)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(j.Refused[i], want) {
				t.Errorf("%s: %q does not say %q", name, j.Refused[i], want)
			}
		}
	}
}

func TestParseTrainShard(t *testing.T) {
	s, err := ParseTrainShard("s", []byte(`{"rank": 3, "note": "NaN \" Infinity", "sample_indices": [7, 8, 9, 10, 11], "rewards": [NaN, -Infinity, null, true, -0.5]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []request.Value{{State: request.Invalid}, {State: request.Invalid}, {}, {V: 1, State: request.Known}, {V: -0.5, State: request.Known}}
	if !reflect.DeepEqual(s.Rewards, want) || s.RolloutID.OK || s.Rank.N != 3 || s.Lengths != nil {
		t.Errorf("%+v", s)
	}
	for text, want := range map[string]string{
		`{"sample_indices": [1, 2`:                  "still being written",
		`{"rewards": [1]}`:                          "no sample_indices",
		`{"sample_indices": [1.5], "rewards": [1]}`: "not an integer",
		`{"sample_indices": ["x"], "rewards": [1]}`: "training shard s:",
		`{"rollout_id": 1e3, "sample_indices": []}`: "not an integer",
		`[1]`: "training shard s:",
		``:    "still being written",
		`{"sample_indices": [99999999999999999999999]}`:   "not an integer",
		`{"rank": "0", "sample_indices": [], "x": "\"NaN`: "still being written",
	} {
		if _, err := ParseTrainShard("s", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestTrainersDumps(t *testing.T) {
	open := func(v any) *torchfile.File {
		f, err := torchfile.OpenBytes(pickleOf(v), nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, v := range map[string]any{
		"one file for all ranks": pyDict{"format_version", 2, "rollout_id", 5, "rank", 0, "samples", pyList{
			pyDict{"sample_index", 40, "response_lengths", 3, "rewards", 0.5, "tokens", pyList{1, 2, 3, 4}},
			pyDict{"sample_index", 41, "response_lengths", 2, "rewards", -0.5},
		}},
		"one file for each rank": pyDict{"rollout_id", 5, "rank", 0, "rollout_data", pyDict{
			"response_lengths", pyList{3, 2}, "rewards", pyList{0.5, -0.5}, "sample_indices", pyList{40, 41}, "tokens", pyList{pyList{1, 2, 3, 4}, pyList{1, 2}},
		}},
	} {
		s, err := TrainShardOf(open(v), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if fmt.Sprint(s.Indices, s.RolloutID, s.Rewards, s.Lengths) != "[40 41] {5 true} [{0.5 1} {-0.5 1}] [{3 1} {2 1}]" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if _, err := TrainShardOf(open(pyDict{"response_lengths", pyList{3, 2}, "rewards", pyList{1, 2}}), "x"); err == nil || !strings.Contains(err.Error(), "2 of 2 samples have no index") {
		t.Error(err)
	}
}
