package scalars

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"maps"
	"slices"
)

// state is a Follower as Cursor keeps it, in columns: gob, since JSON has no NaN.
type state struct {
	Version   int
	Path, Dir string
	Kind      string
	Files     []source
	Cuts      []savedCut
	Parallel  []savedPair
	Taken     int64
	Dropped   map[string]int64
	Curves    []savedCurve
}

type savedCut struct {
	File       int32
	Group      string
	Everywhere bool
	Step       int64
	Before     float64
}

type savedPair struct {
	Older, Newer int32
	Group        string
}

type savedCurve struct {
	Tag, Axis       string
	Steps           []int64
	Walls, Values   []float64
	Files           []int32
	Thinned, Stride int64
}

const stateVersion = 1

// Cursor returns where the Follower is, with the points it holds, for Options.Resume of a later one with
// the same path.
func (f *Follower) Cursor() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := state{Version: stateVersion, Path: f.path, Dir: f.dir, Kind: f.kind, Taken: f.store.taken, Dropped: f.store.dropped}
	for _, src := range f.files {
		s.Files = append(s.Files, *src)
	}
	for _, k := range f.store.cuts {
		s.Cuts = append(s.Cuts, savedCut{k.file, k.group, k.everywhere, k.step, k.before})
	}
	for p := range f.store.parallel {
		s.Parallel = append(s.Parallel, savedPair{p.older, p.newer, p.group})
	}
	for _, tag := range slices.Sorted(maps.Keys(f.store.curves)) {
		c := f.store.curves[tag]
		saved := savedCurve{Tag: tag, Axis: c.axis, Thinned: c.thinned, Stride: c.stride}
		for _, p := range c.points {
			saved.Steps, saved.Walls = append(saved.Steps, p.step), append(saved.Walls, p.wall)
			saved.Values, saved.Files = append(saved.Values, p.value), append(saved.Files, p.file)
		}
		s.Curves = append(s.Curves, saved)
	}
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(&s); err != nil {
		return nil, fmt.Errorf("scalars: cursor: %w", err)
	}
	return buf.Bytes(), nil
}

func (f *Follower) restore(b []byte) error {
	var s state
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&s); err != nil {
		return fmt.Errorf("scalars: cursor of %d bytes: %w: open without it to read all again", len(b), err)
	}
	if s.Version != stateVersion || s.Path != f.path {
		return fmt.Errorf("scalars: cursor is of version %d and %q, want %d and %q: open without it to read all again", s.Version, s.Path, stateVersion, f.path)
	}
	f.dir, f.kind = s.Dir, s.Kind
	for i := range s.Files {
		f.files = append(f.files, &s.Files[i])
	}
	known := func(file int32) bool { return file >= 0 && int(file) < len(f.files) }
	f.store.taken = s.Taken
	maps.Copy(f.store.dropped, s.Dropped)
	for _, k := range s.Cuts {
		f.store.cuts = append(f.store.cuts, cut{k.File, k.Group, k.Everywhere, k.Step, k.Before})
	}
	for _, p := range s.Parallel {
		f.store.parallel[pair{p.Older, p.Newer, p.Group}] = true
	}
	for _, saved := range s.Curves {
		c := &curve{axis: saved.Axis, group: groupOf(saved.Tag, saved.Axis), thinned: saved.Thinned, stride: max(1, saved.Stride)}
		if n := len(saved.Steps); len(saved.Walls) != n || len(saved.Values) != n || len(saved.Files) != n {
			return fmt.Errorf("scalars: cursor: the columns of %q differ in length: open without it to read all again", saved.Tag)
		}
		for i, step := range saved.Steps {
			if !known(saved.Files[i]) || i > 0 && step <= saved.Steps[i-1] {
				return fmt.Errorf("scalars: cursor: point %d of %q is out of order or of no file: open without it to read all again", i, saved.Tag)
			}
			c.points = append(c.points, point{step, saved.Walls[i], saved.Values[i], saved.Files[i]})
		}
		c.measure()
		f.store.curves[saved.Tag] = c
	}
	return nil
}
