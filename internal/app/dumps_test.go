package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/internal/web"
)

var quiet = slog.New(slog.DiscardHandler)

// needUI skips a test that writes pages where none are built.
func needUI(t *testing.T) {
	t.Helper()
	ui, err := web.New()
	if err != nil {
		t.Fatal(err)
	}
	if len(ui.Viewer()) > 0 {
		return
	}
	if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
		t.Fatal("the pages are not built: make ui")
	}
	t.Skip("the pages are not built: make ui")
}

// small is a step of few samples and short answers.
func small() rolls.Options {
	return rolls.Options{Seed: 5, Samples: 8, GroupSize: 4, PD: true, Response: rolls.Lengths{Median: 40, Sigma: 0.5, Max: 200}}
}

// simulate writes a run's dumps and returns the directory.
func simulate(t *testing.T, o rolls.RunOptions, steps int) string {
	t.Helper()
	dir := t.TempDir()
	run, err := rolls.NewRun(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WriteDir(dir, steps, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeDump(t *testing.T, path string, o rolls.Options) rolls.Stats {
	t.Helper()
	st, err := rolls.WriteFile(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func openStore(t *testing.T, dir string) *rolloutstore.Store {
	t.Helper()
	s, err := rolloutstore.Open(dir, rolloutstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// putDump reads a dump into the store.
func putDump(t *testing.T, g *ingest, run, path string) rolloutstore.ID {
	t.Helper()
	st, err := dumps.Read(t.Context(), path, dumps.ReadOptions{Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := g.put(t.Context(), run, st)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// metricOf is a metric of a step as the store has it.
func metricOf(t *testing.T, s *rolloutstore.Store, id rolloutstore.ID, key string) rolloutstore.Metric {
	t.Helper()
	st, err := s.Step(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range st.Metrics {
		if m.Key == key {
			return m
		}
	}
	t.Fatalf("step %s has no %s", id, key)
	return rolloutstore.Metric{}
}

// code is the word of an API error.
func code(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// fakeCurves is a trainer's curves in memory.
type fakeCurves map[string]map[int64]float64

func (f fakeCurves) Tags() (out []string) {
	for tag := range f {
		out = append(out, tag)
	}
	return out
}

func (f fakeCurves) At(tag string, step int64) (float64, bool) {
	v, ok := f[tag][step]
	return v, ok
}

func (f fakeCurves) Dir() string { return "/runs/7/tb" }

func join(parts ...string) string { return filepath.Join(parts...) }
