package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// readDump makes columns of a dump as view does.
func readDump(f *torchfile.File, name string) (*Columns, error) {
	print, err := Fingerprint(f)
	if err != nil {
		return nil, err
	}
	c := NewColumns(Head{Tool: "v0.0.0-test", Dump: Dump{Name: name, Bytes: f.Size(), Fingerprint: print}})
	b := NewBuilder(Options{})
	wall := NewWallTime(WallTimeOptions{})
	h, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
		row := b.Build(s)
		wall.Add(row)
		c.Add(row)
		return nil
	})
	if h != nil {
		c.Head.Dump.Kind, c.Head.Dump.Shape = "train", h.Shape
		if h.Kind == rollout.Eval {
			c.Head.Dump.Kind = "eval"
		}
		if h.RolloutID.OK {
			c.Head.Dump.RolloutID = &h.RolloutID.N
		}
	}
	c.Mark(wall.Result().Marks())
	return c, err
}

func openDump(t testing.TB, path string) *torchfile.File {
	t.Helper()
	f, err := torchfile.Open(path, &torchfile.Options{Salvage: true})
	if errors.Is(err, torchfile.ErrNotTorch) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func dumpFiles(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"../../torchfile/testdata/dumps", "../rollout/testdata/dumps"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.pt"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, files...)
	}
	if len(out) < 40 {
		t.Fatalf("only %d dumps were found", len(out))
	}
	return out
}

// TestDumps takes every dump there is through columns, container, queries, page and export.
func TestDumps(t *testing.T) {
	for _, path := range dumpFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".pt")
		t.Run(name, func(t *testing.T) {
			f := openDump(t, path)
			if f == nil {
				return
			}
			c, err := readDump(f, filepath.Base(path))
			if err != nil && !errors.Is(err, torchfile.ErrIncomplete) {
				t.Fatal(err)
			}
			b := encode(t, c)
			d, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if again := encode(t, d); !bytes.Equal(b, again) {
				t.Error("what was decoded is encoded differently")
			}
			ix := NewIndex(d)
			if err := ask(ix); err != nil {
				t.Error(err)
			}
			for r := range ix.Rows() {
				row, err := ix.Row(r)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := json.Marshal(row); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			if err := WritePerfetto(&out, ix, Query{}, 0, 0); err != nil {
				t.Fatal(err)
			}
			checkTrace(t, out.Bytes(), ix, 0, 0)
			if err := WritePage(io.Discard, []byte(template), d, PageOptions{Title: name}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDumpContainers compares the containers of three dumps: PD phases in child spans; attempts, tools,
// open spans and orphans; streaming.
func TestDumpContainers(t *testing.T) {
	for _, name := range []string{"f02_head_pd_children", "f06_multiturn_partial", "f08_streaming"} {
		path := ""
		for _, p := range dumpFiles(t) {
			if filepath.Base(p) == name+".pt" {
				path = p
			}
		}
		if path == "" {
			t.Errorf("there is no dump %s", name)
			continue
		}
		c, err := readDump(openDump(t, path), name+".pt")
		if err != nil {
			t.Fatal(err)
		}
		b := encode(t, c)
		golden(t, "container/"+name[:3]+".rtc", b)
		golden(t, "container/"+name[:3]+".json", compactJSON(t, contentOf(t, b)))
	}
}

func compactJSON(t *testing.T, j []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, j); err != nil {
		t.Fatal(err)
	}
	return append(lines(b.Bytes()), '\n')
}

// BenchmarkDumpFile adds the dump that ROLLSCOPE_BENCH_DUMP names; the benchmark to compare with reads
// and builds without adding.
func BenchmarkDumpFile(b *testing.B) {
	path := os.Getenv("ROLLSCOPE_BENCH_DUMP")
	if path == "" {
		b.Skip("ROLLSCOPE_BENCH_DUMP names no dump")
	}
	for _, add := range []bool{false, true} {
		b.Run(map[bool]string{false: "read and build", true: "and add and encode"}[add], func(b *testing.B) {
			for b.Loop() {
				f, err := torchfile.Open(path, nil)
				if err != nil {
					b.Fatal(err)
				}
				c := NewColumns(Head{})
				build := NewBuilder(Options{})
				_, err = rollout.Read(f, rollout.Options{NoMask: true}, func(s *rollout.Sample) error {
					row := build.Build(s)
					if add {
						c.Add(row)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				if add {
					if err := c.Encode(io.Discard); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(c.Items()), "items")
				}
				f.Close()
			}
		})
	}
}
