package dumps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Placeholder stands for the rollout id in a pattern, as in slime's --save-debug-rollout-data.
const Placeholder = "{rollout_id}"

// Pattern says where the dumps of a run are: a path whose last element holds [Placeholder] once. Slime
// puts eval_N in its place for evaluations, so one pattern is for both kinds.
type Pattern struct {
	Run  string // "": named by [NameRuns]
	Path string
}

// split returns the directory and what is before and after the rollout id in the names of the dumps.
func (p Pattern) split() (dir, prefix, suffix string, err error) {
	dir, base := filepath.Split(p.Path)
	prefix, suffix, ok := strings.Cut(base, Placeholder)
	if !ok || strings.Contains(dir, Placeholder) || strings.Contains(suffix, Placeholder) {
		return "", "", "", fmt.Errorf("%q is no pattern of dumps: the file's name must hold %s once, and the directory must not, as in DIR/rollout_%s.pt", p.Path, Placeholder, Placeholder)
	}
	return filepath.Clean(dir), prefix, suffix, nil
}

// match reads a file's name.
func match(name, prefix, suffix string) (kind rollout.Kind, id int64, ok bool) {
	s, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, 0, false
	}
	if s, ok = strings.CutSuffix(s, suffix); !ok {
		return 0, 0, false
	}
	if rest, eval := strings.CutPrefix(s, "eval_"); eval {
		kind, s = rollout.Eval, rest
	}
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return 0, 0, false
	}
	id, err := strconv.ParseInt(s, 10, 64)
	return kind, id, err == nil
}

// generic are names of directories and files that say nothing about a run.
var generic = map[string]bool{
	"": true, ".": true, "/": true, "rollout": true, "rollouts": true, "rollout_data": true, "debug": true, "debug_rollout": true,
	"debug_rollouts": true, "debug_rollout_data": true, "debug_data": true, "dump": true, "dumps": true, "dump_details": true,
	"data": true, "out": true, "output": true, "outputs": true, "log": true, "logs": true, "result": true, "results": true,
	"save": true, "saves": true, "tmp": true,
}

// NameRuns gives names to the patterns that have none, and makes all paths absolute. The rule:
//
// A run is called as the innermost directory of its dumps whose name says something: names such as
// rollouts, debug_rollout_data, dumps, output and logs do not. When what stands before the rollout id
// in the file's name says something too, it is appended with a dash. A name that another run has
// already, here or in kept, gets the directories above it in front, one after the other, until it
// is the only one.
//
// kept, when it is not nil, tells of the runs that are known: the name of the run that has a pattern
// ("" for none), and whether a name is taken by a run with another pattern. So a run keeps the name that
// it was given first.
func NameRuns(patterns []Pattern, kept func(path string) (name string), taken func(name, path string) bool) ([]Pattern, error) {
	out := make([]Pattern, len(patterns))
	used := map[string]string{} // path by name
	paths := map[string]bool{}
	for i, p := range patterns {
		if _, _, _, err := p.split(); err != nil {
			return nil, err
		}
		abs, err := filepath.Abs(p.Path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Path, err)
		}
		if paths[abs] {
			return nil, fmt.Errorf("the dumps %s are named twice", abs)
		}
		paths[abs] = true
		out[i] = Pattern{p.Run, abs}
		if p.Run == "" && kept != nil {
			out[i].Run = kept(abs)
		}
		if out[i].Run == "" {
			continue
		}
		if other, ok := used[out[i].Run]; ok {
			return nil, fmt.Errorf("the run %q has the dumps %s and %s: give one of them another name", out[i].Run, other, abs)
		}
		used[out[i].Run] = abs
	}
	for i := range out {
		if out[i].Run != "" {
			continue
		}
		out[i].Run = derive(out[i].Path, func(name string) bool {
			_, here := used[name]
			return here || taken != nil && taken(name, out[i].Path)
		})
		used[out[i].Run] = out[i].Path
	}
	return out, nil
}

func derive(path string, isTaken func(string) bool) string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	end := dir
	for generic[strings.ToLower(filepath.Base(end))] && filepath.Dir(end) != end {
		end = filepath.Dir(end)
	}
	if generic[strings.ToLower(filepath.Base(end))] {
		end = dir
	}
	prefix, _, _ := strings.Cut(base, Placeholder)
	prefix = strings.Trim(prefix, "_-. ")
	if generic[strings.ToLower(prefix)] {
		prefix = ""
	} else {
		prefix = "-" + prefix
	}
	name := filepath.Base(end)
	for {
		if try := name + prefix; !isTaken(try) && try != string(filepath.Separator) {
			return try
		}
		up := filepath.Dir(end)
		if up == end || filepath.Base(up) == string(filepath.Separator) {
			break
		}
		end = up
		name = filepath.Base(end) + "/" + name
	}
	// The paths differ, so one of their parts that say nothing does.
	sum := sha256.Sum256([]byte(path))
	return name + prefix + "-" + hex.EncodeToString(sum[:4])
}
