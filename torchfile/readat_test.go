package torchfile

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadAtAndChecksums(t *testing.T) {
	const path = "testdata/dumps/f15_protocol2.pt"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []*Options{nil, {NoMap: true}} {
		f, err := Open(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d of %d bytes: %v", len(got), len(want), err)
		}
		if n, err := f.ReadAt(make([]byte, 8), f.Size()-3); n != 3 || !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %d bytes, %v", n, err)
		}
		if _, err := f.ReadAt(make([]byte, 1), -1); err == nil {
			t.Error("a negative offset was read")
		}
		pkl, err := f.pickle()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range f.Records() {
			if r.Name == f.pickleName {
				found = true
				if r.CRC != crc32.ChecksumIEEE(pkl) {
					t.Errorf("CRC of %s is %08x", r.Name, r.CRC)
				}
			}
		}
		if !found {
			t.Error("the pickle is not among the records")
		}
	}
}

// TestAppendStr compares with the view, of strings that are read and of those that are copied.
func TestAppendStr(t *testing.T) {
	text := strings.Repeat("0123456789", 1000)
	b := append([]byte("\x80\x02]q\x00(X\x10\x27\x00\x00"), text...)
	b = append(b, "X\x02\x00\x00\x00hiK\x07e."...)
	path := filepath.Join(t.TempDir(), "text.pkl")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []*Options{nil, {NoMap: true}} {
		d, err := openTest(t, path, opts).Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			i, from int
			want    string
		}{{0, 0, text}, {0, 7, text[7:]}, {0, 9990, text[9990:]}, {0, 10000, ""}, {0, -1, ""}, {1, 0, "hi"}, {1, 1, "i"}, {2, 0, ""}, {3, 0, ""}} {
			if got := string(d.Root().Index(c.i).AppendStr([]byte("x"), c.from)); got != "x"+c.want {
				t.Errorf("element %d from %d: %d bytes, want %d", c.i, c.from, len(got), len(c.want)+1)
			}
		}
	}
}
