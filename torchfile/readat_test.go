package torchfile

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
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
