//go:build unix

package torchfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuSeconds is the CPU time this process has used: on a busy machine the only honest clock.
func cpuSeconds() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}

// TestFileShrinks truncates a dump while it is read, as a trainer does that saves over it.
func TestFileShrinks(t *testing.T) {
	var b bytes.Buffer
	if err := writeSlime(&b, 40); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rollout_7.pt")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f := openTest(t, path, nil)
	n := 0
	_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(e Element) error {
		if n++; n == 3 {
			return os.Truncate(path, 1000)
		}
		return nil
	})
	if !errors.Is(err, ErrChanged) {
		t.Fatalf("got %v", err)
	}
	err = f.Guard(func() error {
		_, err := f.Load(LoadOptions{})
		return err
	})
	if err == nil {
		t.Error("a truncated file loads")
	}
	if err := f.Guard(func() error {
		var sum byte
		for _, c := range f.data {
			sum += c
		}
		if sum == 0 {
			return errors.New("unlikely")
		}
		return nil
	}); !errors.Is(err, ErrChanged) {
		t.Errorf("Guard: %v", err)
	}
}

// TestScanGivesPagesBack scans a file larger than the window behind which pages are dropped; later
// samples refer to strings of the first.
func TestScanGivesPagesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollout_7.pt")
	var b bytes.Buffer
	const n = 180
	if err := writeSlime(&b, n); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if b.Len() < dropWindow+dropWindow/4 {
		t.Fatalf("%d bytes are too few", b.Len())
	}
	mapped, held := openTest(t, path, nil), openTest(t, path, &Options{NoMap: true})
	var views [2]bytes.Buffer
	for i, f := range []*File{mapped, held} {
		if _, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(e Element) error {
			if e.Ordinal%20 != 0 && e.Ordinal < n-3 {
				return nil
			}
			return WriteJSON(&views[i], e.Value, JSONOptions{})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(views[0].Bytes(), views[1].Bytes()) || views[0].Len() < 1<<20 {
		t.Error("by map it reads differently")
	}
}
