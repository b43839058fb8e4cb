//go:build torchfile_measure

package torchfile

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestAgainstMorePython reads the dumps of a directory that `oracle.py random DIR N SEED` filled:
//
//	TORCHFILE_RANDOM=DIR go test -tags torchfile_measure -run MorePython ./torchfile
func TestAgainstMorePython(t *testing.T) { compareRandom(t, os.Getenv("TORCHFILE_RANDOM")) }

// TestBeyond4GiB writes a file with a record larger than 4 GiB and one that begins after it, to the
// path in TORCHFILE_LARGE, and reads both back. What torch makes of it:
//
//	python3 -c 'import torch; d = torch.load(PATH); print(d["large"].shape, d["zafter"])'
func TestBeyond4GiB(t *testing.T) {
	path := os.Getenv("TORCHFILE_LARGE")
	if path == "" {
		t.Skip("TORCHFILE_LARGE is not set to a path")
	}
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1<<32 + 1000
	w := NewWriter(out, nil)
	w.Value(map[string]any{
		"large": TensorData{DType: UInt8, Shape: []int64{n}, Write: func(o io.Writer) error {
			zero := make([]byte, 1<<20)
			for left := int64(n); left > 0; left -= int64(len(zero)) {
				if _, err := o.Write(zero[:min(left, int64(len(zero)))]); err != nil {
					return err
				}
			}
			return nil
		}},
		"zafter": TensorData{DType: Int32, Shape: []int64{1}, Data: []byte{1, 2, 0, 0}},
	})
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	f := openTest(t, path, nil)
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	large, err := d.Root().Get("large").Tensor()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := large.Storage.Bytes(); err != nil || len(b) != n {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	after, err := d.Root().Get("zafter").Tensor()
	if err != nil {
		t.Fatal(err)
	}
	if x, err := after.Int64s(nil); err != nil || x[0] != 513 {
		t.Errorf("%v %v", x, err)
	}
}

// TestMeasure reads one dump once and reports time and memory of the process:
//
//	TORCHFILE_MEASURE=scan:/tmp/rollout_7.pt go test -tags torchfile_measure -run TestMeasure -v ./torchfile -samples 16384
//
// The modes are write, load, unpack (load and unpack all lists of numbers), scan (all events of all
// traces) and skip (only a status). write makes the file.
func TestMeasure(t *testing.T) {
	mode, path, ok := strings.Cut(os.Getenv("TORCHFILE_MEASURE"), ":")
	if !ok {
		t.Skip("TORCHFILE_MEASURE is not set to MODE:FILE")
	}
	if mode == "write" {
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriterSize(out, 1<<20)
		if err := errors.Join(writeSlime(w, *benchSamples), w.Flush(), out.Close()); err != nil {
			t.Fatal(err)
		}
		return
	}
	f := openTest(t, path, &Options{Limits: Limits{MaxMemory: 16 << 30}})
	start, cpu := time.Now(), cpuSeconds()
	var kept *Doc
	events := 0
	var err error
	switch mode {
	case "load", "unpack":
		if kept, err = f.Load(LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		if mode == "load" {
			break
		}
		var ints [][]int64
		var floats [][]float64
		for _, s := range kept.Root().Get("samples").All() {
			i, _ := s.Get("tokens").Ints(make([]int64, 0, s.Get("tokens").Len()))
			m, _ := s.Get("loss_mask").Ints(make([]int64, 0, s.Get("loss_mask").Len()))
			p, _ := s.Get("rollout_log_probs").Floats(make([]float64, 0, s.Get("rollout_log_probs").Len()))
			ints, floats = append(ints, i, m), append(floats, p)
		}
		events = len(ints) + len(floats)
	case "scan":
		kept, err = f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace", "index", "status"}}, func(e Element) error {
			for _, ev := range e.Get("trace").Get("events").All() {
				if ts, ok := ev.Get("ts").Float(); ok && ts > 0 && ev.Get("name").Exists() {
					events++
				}
			}
			return nil
		})
	case "skip":
		kept, err = f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"status"}}, func(e Element) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	wall, used := time.Since(start).Seconds(), cpuSeconds()-cpu
	status, _ := os.ReadFile("/proc/self/status")
	mem := ""
	for _, l := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(l, "VmHWM") || strings.HasPrefix(l, "RssAnon") || strings.HasPrefix(l, "RssFile") {
			mem += " " + strings.Join(strings.Fields(l), " ")
		}
	}
	mb := float64(f.Size()) / 1e6
	t.Logf("%s: %.0f MB, %d events; wall %.2f s (%.0f MB/s), CPU %.2f s (%.0f MB/s);%s; decoder %.1f MB",
		mode, mb, events, wall, mb/wall, used, mb/used, mem, float64(kept.mem)/1e6)
}
