//go:build unix

package torchfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

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
