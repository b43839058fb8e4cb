package timeline

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// Every dump there is, hostile ones included, makes rows that hold what all rows must, and steps whose
// parts add up.
func TestBuildDumps(t *testing.T) {
	var dumps []string
	for _, dir := range []string{sharedDumps, "../rollout/testdata/dumps"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.pt"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no dumps in %s: %v", dir, err)
		}
		dumps = append(dumps, found...)
	}
	for _, path := range dumps {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := torchfile.Open(path, &torchfile.Options{Salvage: true})
			if errors.Is(err, torchfile.ErrNotTorch) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := NewBuilder(Options{})
			w := NewWallTime(WallTimeOptions{})
			rows := 0
			_, err = rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
				r := b.Build(s)
				checkRow(t, r)
				w.Add(r)
				if r.WhyEmpty == "" {
					rows++
				}
				return nil
			})
			if err != nil && !errors.Is(err, torchfile.ErrIncomplete) {
				t.Logf("read: %v", err)
			}
			res := w.Result()
			checkWall(t, res)
			if res.Known != (rows > 0) || res.Samples+res.Shared != rows {
				t.Errorf("%d rows, the step has %d and %d shared", rows, res.Samples, res.Shared)
			}
		})
	}
}

// What the goldens of the reference get wrong.
func TestBuildBetterThanReference(t *testing.T) {
	read := func(path string, fn func(*Row)) {
		f, err := torchfile.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := NewBuilder(Options{})
		if _, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error { fn(b.Build(s)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	// Roots of later rollouts are no children of a span that was cancelled before.
	roots := 0
	read("../rollout/testdata/dumps/f06_multiturn_partial.pt", func(r *Row) {
		for _, it := range r.Items {
			if it.Name == "generate_and_rm_group" && it.State != OrphanEnd {
				if roots++; it.Parent >= 0 {
					t.Errorf("sample %d: a group within %s", r.Sample.Ordinal, r.Items[it.Parent].Name)
				}
			}
		}
	})
	if roots == 0 {
		t.Error("no groups")
	}
	// Requests whose phases stand in child spans alone have their lanes, old names included.
	for path, lanes := range map[string]int{
		filepath.Join(sharedDumps, "f02_head_pd_children.pt"): 32,
		"../rollout/testdata/dumps/f03_g1_pd_oldnames.pt":     32,
		"../rollout/testdata/dumps/f04_g2_pd_endattrs.pt":     32,
		"../rollout/testdata/dumps/f01_head_nonpd.pt":         0,
	} {
		n := 0
		read(path, func(r *Row) {
			for _, it := range r.Items {
				if it.Flags&Virtual == 0 {
					continue
				}
				n++
				var sum int64
				for _, s := range it.Segments {
					sum += s.End - s.Start
				}
				if q := r.Items[it.Parent]; sum > q.End-q.Start {
					t.Errorf("%s: phases of %d in a request of %d", path, sum, q.End-q.Start)
				}
			}
		})
		if n != lanes {
			t.Errorf("%s: %d lanes of phases, want %d", path, n, lanes)
		}
	}
}
