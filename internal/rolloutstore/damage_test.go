package rolloutstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestDamage damages files in every way and opens the store.
func TestDamage(t *testing.T) {
	later := func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":9`), 1) }
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte // nil: deleted
		steps      string
		damaged    int
		aside      bool
		container  bool // of step 1 is whole
	}{
		{"empty record", "train-000001.0.json", func([]byte) []byte { return nil }, "train-0.0 train-2.0", 1, true, false},
		{"cut record", "train-000001.0.json", func(b []byte) []byte { return b[:len(b)/2] }, "train-0.0 train-2.0", 1, true, false},
		{"one bit of a record", "train-000001.0.json", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "train-0.0 train-2.0", 1, true, false},
		{"a record of something else", "train-000001.0.json", func([]byte) []byte { return []byte(`{"format":"rollscope-run","version":1,"crc32c":"0","step":{}}`) }, "train-0.0 train-2.0", 1, true, false},
		{"a later version's record", "train-000001.0.json", later, "train-0.0 train-2.0", 1, false, false},
		{"no record", "train-000001.0.json", nil, "train-0.0 train-2.0", 0, false, false},
		{"cut container", "train-000001.0.*.rtc", func(b []byte) []byte { return b[:3] }, "train-0.0 train-1.0 train-2.0", 0, false, false},
		{"one bit of a container", "train-000001.0.*.rtc", func(b []byte) []byte { b[3] ^= 1; return b }, "train-0.0 train-1.0 train-2.0", 0, false, false},
		{"no container", "train-000001.0.*.rtc", nil, "train-0.0 train-1.0 train-2.0", 0, false, false},
		{"no run.json", "run.json", nil, "train-0.0 train-1.0 train-2.0", 0, false, true},
		{"damaged run.json", "run.json", func([]byte) []byte { return []byte("x") }, "train-0.0 train-1.0 train-2.0", 1, true, true},
		{"no cache", cacheName, nil, "train-0.0 train-1.0 train-2.0", 0, false, true},
		{"cut cache", cacheName, func(b []byte) []byte { return b[:len(b)-30] }, "train-0.0 train-1.0 train-2.0", 0, false, true},
		{"one bit of a cache", cacheName, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "train-0.0 train-1.0 train-2.0", 0, false, true},
		{"a later version's cache", cacheName, later, "train-0.0 train-1.0 train-2.0", 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			for id := range int64(3) {
				put(t, s, step("r", id, "a"), "container")
			}
			s.Close()
			files, _ := filepath.Glob(filepath.Join(dir, "r", c.file))
			if len(files) != 1 {
				t.Fatal(files)
			}
			if c.change == nil {
				if err := os.Remove(files[0]); err != nil {
					t.Fatal(err)
				}
			} else {
				b, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				// A disk that forgets does not change the mtime; but records of the same size and time are trusted.
				write(t, files[0], string(c.change(b)))
				if err := os.Chtimes(files[0], t0, t0); err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, dir, Options{})
			// A bit of a record that was read before is found when the record is read.
			if c.name == "one bit of a record" && ids(s.Steps("r", Filter{})) != c.steps {
				if _, err := s.Step(ID{Run: "r", RolloutID: 1}); !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
				return
			}
			if got := ids(s.Steps("r", Filter{})); got != c.steps {
				t.Error(got)
			}
			d := s.Damaged()
			if len(d) != c.damaged || c.damaged > 0 && (d[0].Aside != c.aside || d[0].Why == "") {
				t.Errorf("%+v", d)
			}
			if c.aside {
				if _, err := os.Stat(d[0].File); err != nil {
					t.Error(err)
				}
			}
			con, err := s.Container(ID{Run: "r", RolloutID: 1})
			if err == nil {
				_, err = io.ReadAll(con)
				con.Close()
			}
			if (err == nil) != c.container {
				t.Errorf("container: %v", err)
			}
			// What was lost can be put again, and then all is well.
			put(t, s, step("r", 1, "b"), "again")
			s.Close()
			s = open(t, dir, Options{})
			if len(s.Steps("r", Filter{})) != 3 || content(t, s, ID{Run: "r", RolloutID: 1, Attempt: Newest}) != "again" {
				t.Error("after a repair: ", ids(s.Steps("r", Filter{})))
			}
		})
	}
}

// FuzzRecord: a record that is damaged is an error, never a panic, and what is read can be written.
func FuzzRecord(f *testing.F) {
	b, _, err := seal("step", step("r", 1, "a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":"rollscope-step","version":1,"crc32c":"44136fa3","step":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var st Step
		if _, err := unseal("step", b, &st); err != nil {
			return
		}
		out, crc, err := seal("step", st)
		if err != nil {
			t.Fatal(err)
		}
		var again Step
		if got, err := unseal("step", out, &again); err != nil || got != crc {
			t.Fatal(got, err)
		}
	})
}

func FuzzCache(f *testing.F) {
	b, err := appendLine(nil, cacheLine{Format: "rollscope-index", Version: recordVersion})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	var keys keyTable
	e := &entry{file: "train-000001.0.json"}
	keys.fill(e, step("r", 1, "a").Metrics)
	b, _ = appendKeys(b, &keys, 0)
	b, _ = appendLine(b, e.line())
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, keys, _, _ := parseCache(b)
		for _, e := range entries {
			if len(e.states) > len(keys.names) || len(e.states) != len(e.values) {
				t.Fatal("more metrics than keys")
			}
		}
	})
}

func benchStore(b *testing.B, steps int) string {
	dir := b.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.PutRun(Run{Name: "r"}); err != nil {
		b.Fatal(err)
	}
	st := step("r", 0, "a")
	for i := range 240 {
		st.Metrics = append(st.Metrics, Metric{Key: fmt.Sprintf("perf_step/request/%d/mean", i), Value: float64(i) * 1.1, Unit: "s"})
	}
	// Without the syncs of Put, which are what it costs.
	r := s.runs["r"]
	for i := range steps {
		st.ID.RolloutID = int64(i)
		rec, crc, err := seal("step", st)
		if err != nil {
			b.Fatal(err)
		}
		e := &entry{Summary: st.Summary, file: st.ID.stem() + ".json", size: int64(len(rec)), crc: crc}
		path := filepath.Join(r.dir, e.file)
		if err := os.WriteFile(path, rec, 0o644); err != nil {
			b.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		e.mtime = fi.ModTime().UnixNano()
		r.keys.fill(e, st.Metrics)
		r.steps = append(r.steps, e)
	}
	r.cache.fresh(&r.keys, r.steps)
	return dir
}

// BenchmarkOpen opens and lists a run of 10,000 steps with 244 metrics each: with the cache, with one
// that was copied, and with none.
func BenchmarkOpen(b *testing.B) {
	dir := benchStore(b, 10000)
	for _, c := range []string{"cached", "copied", "uncached"} {
		b.Run(c, func(b *testing.B) {
			switch c {
			case "copied":
				for _, f := range must(filepath.Glob(filepath.Join(dir, "r", "train-*.json"))) {
					if err := os.Chtimes(f, t0, t0); err != nil {
						b.Fatal(err)
					}
				}
			case "uncached":
				if err := removeFile(filepath.Join(dir, "r", cacheName)); err != nil {
					b.Fatal(err)
				}
			}
			for range b.N {
				s, err := Open(dir, Options{ReadOnly: true})
				if err != nil {
					b.Fatal(err)
				}
				if c := s.Curves("r", Filter{}, "perf/rollout_time"); len(c.Steps) != 10000 || len(s.Damaged()) > 0 {
					b.Fatal(len(c.Steps), s.Damaged())
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
