package app

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
)

// viewFiles is how far each file is that was named on the command line.
type viewFiles struct {
	mu     sync.Mutex
	paths  []string
	runs   map[string]string // by directory
	states map[string]api.Dump
}

func newViewFiles(paths []string) (*viewFiles, error) {
	f := &viewFiles{paths: paths, runs: map[string]string{}, states: map[string]api.Dump{}}
	var patterns []dumps.Pattern
	for _, p := range paths {
		dir := dirOf(p)
		if _, ok := f.runs[dir]; !ok {
			f.runs[dir] = ""
			patterns = append(patterns, dumps.Pattern{Path: filepath.Join(dir, "rollout_"+dumps.Placeholder+".pt")})
		}
	}
	named, err := dumps.NameRuns(patterns, func(string) string { return "" }, func(string, string) bool { return false })
	if err != nil {
		return nil, err
	}
	for _, p := range named {
		f.runs[filepath.Dir(p.Path)] = p.Run
	}
	for _, p := range paths {
		d := api.Dump{Path: p, State: "waiting"}
		if info, err := os.Stat(p); err == nil {
			d.Bytes = info.Size()
		}
		f.states[p] = d
	}
	return f, nil
}

// run is the name of a file's run: all files of a directory are one.
func (f *viewFiles) run(path string) string { return f.runs[dirOf(path)] }

// dirOf is the absolute directory of a file.
func dirOf(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.Dir(path)
}

// set changes a file's state; "" is one that is in the index.
func (f *viewFiles) set(path, state, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.states[path]
	d.State, d.Reason = state, reason
	f.states[path] = d
}

// of lists the files of a run that are not in the index.
func (f *viewFiles) of(run string) []api.Dump {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []api.Dump
	for _, p := range f.paths {
		if d := f.states[p]; d.State != "" && f.run(p) == run {
			out = append(out, d)
		}
	}
	return out
}
