package eventstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A list of parts that names one which came after the directory was read is no list of the copy: all is
// linked again. One that never comes is the store's own damage, and is copied at last.
func TestLinkAllComparesPartsWithTheirList(t *testing.T) {
	from := t.TempDir()
	day := filepath.Join(from, "events", "partitions", "20260102", "datadb")
	for _, part := range []string{"18A0", "18A1"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(day, part), 0o777), os.WriteFile(filepath.Join(day, part, "values.bin"), []byte(part), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(day, partsFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	events := filepath.Join(from, "events")
	for text, whole := range map[string]bool{`["18A0","18A1"]`: true, `[]`: true, `["18A0","18A2"]`: false, `{`: true} {
		list(text)
		if err := linkTree(events, filepath.Join(t.TempDir(), "events"), true); whole != (err == nil) || !whole && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", text, err)
		}
	}
	list(`["18A0","18A2"]`)
	to := t.TempDir()
	if err := linkAll(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "events", "partitions", "20260102", "datadb", partsFile)); err != nil || string(got) != `["18A0","18A2"]` {
		t.Errorf("%q, %v", got, err)
	}
}
