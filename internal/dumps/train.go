package dumps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// maxShard bounds a trainer's JSON shard in bytes.
const maxShard = 1 << 30

// TrainShards reads what the ranks of the trainer wrote of a step: torch files (slime's
// --save-debug-train-data) or JSON. Files that cannot be read are said in bad; the others are there.
func TrainShards(paths []string) (shards []*rollout.TrainShard, bad []error) {
	for _, p := range paths {
		s, err := trainShard(p)
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", p, err))
			continue
		}
		shards = append(shards, s)
	}
	return shards, bad
}

func trainShard(path string) (*rollout.TrainShard, error) {
	if filepath.Ext(path) == ".json" {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxShard {
			return nil, fmt.Errorf("has %d bytes, more than a shard may have (%d)", info.Size(), int64(maxShard))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return rollout.ParseTrainShard(filepath.Base(path), data)
	}
	f, err := torchfile.Open(path, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return rollout.TrainShardOf(f, filepath.Base(path))
}

// FindTrainShards lists the trainer's files of one step: pattern is slime's --save-debug-train-data, with
// {rollout_id} and, where each rank writes a file, {rank}.
func FindTrainShards(pattern string, rolloutID int64) ([]string, error) {
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)
	glob := escape.Replace(pattern)
	glob = strings.ReplaceAll(glob, "{rollout_id}", strconv.FormatInt(rolloutID, 10))
	glob = strings.ReplaceAll(glob, "{rank}", "*")
	found, err := filepath.Glob(glob)
	slices.Sort(found)
	return found, err
}

// JoinTrain joins a dump's samples with the trainer's shards of its step.
func JoinTrain(ctx context.Context, path string, shards []*rollout.TrainShard) (*rollout.TrainJoin, error) {
	f, opts, err := Open(path, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opts.NoTrace, opts.NoMask = true, true
	var indices []int64
	hdr, err := rollout.Read(f, opts, func(s *rollout.Sample) error {
		if s.Index.OK {
			indices = append(indices, s.Index.N)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return rollout.JoinTrain(hdr.RolloutID, indices, shards), nil
}

// Says are the shards that were refused, and what has no row, for people.
func Says(j *rollout.TrainJoin) []string {
	out := slices.DeleteFunc(slices.Clone(j.Refused), func(s string) bool { return s == "" })
	if j.Partial {
		out = append(out, fmt.Sprintf("training data cover %d of %d samples", j.Have, j.Of))
	}
	return out
}
