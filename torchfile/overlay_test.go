//go:build unix

package torchfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// largeDump writes a dump that is large enough for a scout and an overlay.
func largeDump(t *testing.T) (path string, data []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := writeSlime(&b, 420); err != nil {
		t.Fatal(err)
	}
	if b.Len() < 2*readAhead+(4<<20) {
		t.Fatalf("%d bytes are too few", b.Len())
	}
	path = filepath.Join(t.TempDir(), "rollout_7.pt")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, b.Bytes()
}

// TestOverlay scans a file several times at once while others read its map: all see the file's bytes, in
// the midst of it and afterwards.
func TestOverlay(t *testing.T) {
	path, data := largeDump(t)
	f := openTest(t, path, nil)
	same := func(when string) {
		got := make([]byte, len(data))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s the map has other bytes than the file (%v)", when, err)
		}
	}
	var scans, readers sync.WaitGroup
	done := make(chan struct{})
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				same("meanwhile")
			}
		}
	})
	for range 3 {
		scans.Go(func() {
			for range 2 {
				n := 0
				_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(e Element) error {
					n++
					if e.Field("trace").Len() == 0 {
						t.Errorf("element %d has no trace", e.Ordinal)
					}
					if n%100 == 0 {
						same("within a scan")
					}
					return nil
				})
				if err != nil || n != 420 {
					t.Errorf("%d elements, %v", n, err)
				}
			}
		})
	}
	scans.Wait()
	close(done)
	readers.Wait()
	if f.owned.Load() {
		t.Error("no scan is left, and the map is somebody's")
	}
	same("afterwards")
}

// TestOverlayStops ends a scan early, and after the file became shorter.
func TestOverlayStops(t *testing.T) {
	path, data := largeDump(t)
	f := openTest(t, path, nil)
	if _, err := f.Scan(ScanOptions{Path: []string{"samples"}}, func(Element) error { return Stop }); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after a scan that stopped the map has other bytes than the file (%v)", err)
	}
	n := 0
	_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(Element) error {
		if n++; n == 3 {
			return os.Truncate(path, 1000)
		}
		return nil
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("a file that was truncated: %v", err)
	}
	if _, err := f.ReadAt(got, 0); !errors.Is(err, ErrChanged) {
		t.Errorf("afterwards: %v", err)
	}
}
