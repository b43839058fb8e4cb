package app

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// DumpFiles turns arguments into files: a directory stands for the dumps in it, training before
// evaluation, by rollout id. The error names an argument that is not there or holds no dump.
func DumpFiles(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, arg)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, err
		}
		var found []string
		for _, e := range entries {
			if name := e.Name(); !e.IsDir() && !strings.HasPrefix(name, ".") && slices.Contains([]string{".pt", ".pth", ".pkl", ".pickle"}, filepath.Ext(name)) {
				found = append(found, filepath.Join(arg, name))
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s holds no dump (a file whose name ends in .pt or .pkl)", arg)
		}
		slices.SortStableFunc(found, func(a, b string) int {
			ka, ia := rollout.FromName(filepath.Base(a))
			kb, ib := rollout.FromName(filepath.Base(b))
			return cmp.Or(cmp.Compare(ka, kb), cmp.Compare(ia.N, ib.N), cmp.Compare(a, b))
		})
		out = append(out, found...)
	}
	return out, nil
}

// dumpName is a dump's name without what slime and torch add, as the files beside it begin.
func dumpName(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// openDump opens a file and says how to read it. A file that was cut is an error unless salvage asks for
// what is there.
func openDump(path string, salvage bool) (*torchfile.File, rollout.Options, error) {
	f, err := torchfile.Open(path, &torchfile.Options{Salvage: salvage})
	if err != nil {
		if errors.Is(err, torchfile.ErrIncomplete) && !salvage {
			err = fmt.Errorf("%w; --salvage reads what is there", err)
		}
		return nil, rollout.Options{}, err
	}
	kind, id := rollout.FromName(filepath.Base(path))
	return f, rollout.Options{Eval: kind == rollout.Eval, RolloutID: id}, nil
}
