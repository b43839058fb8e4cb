package config

import (
	"errors"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// RolloutID is the placeholder of a dump's number in a path, as slime writes it.
const RolloutID = "{rollout_id}"

// checkRollouts checks rollouts and trackers, and joins their relative paths with the file's directory.
func (d *document) checkRollouts(r *Rollscope, each func(string, func(int, *yaml.Node)), once func(*yaml.Node, string, string), fail func(*yaml.Node, string, ...any)) {
	each("rollouts", func(i int, n *yaml.Node) {
		e := &r.Rollouts[i]
		e.Line = n.Line
		if err := CheckRolloutPath(e.Path); err != nil {
			fail(at(n, "path"), "path: %v", err)
			return
		}
		once(n, "rollouts path", e.Path)
		if e.Run != "" {
			once(n, "run", e.Run)
		}
		if e.GPUs < 0 || e.SamplesPerPrompt < 0 {
			fail(n, "gpus: and samples_per_prompt: are counts: they cannot be negative")
		}
		for _, ds := range e.Datasets {
			if ds.Name == "" || ds.Samples <= 0 {
				fail(at(n, "datasets"), "an entry of datasets needs name: and samples: (how many of the dump's samples are of it)")
			}
		}
		e.Path, e.Scalars = d.join(e.Path), d.join(e.Scalars)
	})
	if w := r.Trackers.WandB; w != nil {
		if w.Dir == "" || w.Project == "" {
			fail(child(child(d.value, "trackers"), "wandb"), "trackers.wandb needs dir: and project:")
		}
		w.Dir = d.join(w.Dir)
	}
	r.Trackers.TensorBoard = d.join(r.Trackers.TensorBoard)
	if r.Trackers.Serving && r.Trackers.TensorBoard == "" && r.Trackers.WandB == nil {
		fail(at(child(d.value, "trackers"), "serving"), "serving: needs a tracker: tensorboard: or wandb:")
	}
}

// at is the node of a key, or the mapping itself without it.
func at(n *yaml.Node, key string) *yaml.Node {
	if c := child(n, key); c != nil {
		return c
	}
	return n
}

// join makes a path absolute or relative to where we run, as Prometheus does with its own.
func (d *document) join(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.path), path)
}

// CheckRolloutPath says what is wrong with the pattern of a run's dumps.
func CheckRolloutPath(path string) error {
	switch n := strings.Count(filepath.Base(path), RolloutID); {
	case path == "":
		return errors.New("is missing; write what slime has as --save-debug-rollout-data, as DIR/rollout_" + RolloutID + ".pt")
	case n != 1 || strings.Count(path, RolloutID) != 1:
		return errors.New("the file's name must hold " + RolloutID + " once, and the directory must not: as DIR/rollout_" + RolloutID + ".pt")
	}
	return nil
}
