package app

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// TestViewCache compares the cache that is made while the page's reader runs over a dump with the one of a
// pass of its own, on dumps that are streamed and on such that are not, and looks at when files are
// written again.
func TestViewCache(t *testing.T) {
	dumps, err := filepath.Glob("../../torchfile/testdata/dumps/*.p*")
	if err != nil || len(dumps) < 20 {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	compared := 0
	for _, dump := range dumps {
		t.Run(filepath.Base(dump), func(t *testing.T) {
			out := &bytes.Buffer{}
			v := &viewer{
				ViewOptions: ViewOptions{OutDir: t.TempDir(), Out: out, Version: "1"}, bad: map[string]error{}, pages: map[string]string{},
				template: []byte("<title>x</title>\n" + timeline.PagePlaceholder + "\n"),
			}
			page, cache := v.outputs(dump)
			if _, err := v.write(context.Background(), dump, false); err != nil {
				left, _ := filepath.Glob(filepath.Join(v.OutDir, "*"))
				hidden, _ := filepath.Glob(filepath.Join(v.OutDir, ".*"))
				if len(left)+len(hidden) > 0 {
					t.Errorf("after %v: %v %v", err, left, hidden)
				}
				return
			}
			compared++
			got, err := os.ReadFile(cache)
			if err != nil {
				t.Fatal(err)
			}
			f, err := torchfile.Open(dump, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var want bytes.Buffer
			if _, err := timeline.WriteCompat(&want, f, timeline.CompatOptions{PtPath: dump}); err != nil {
				t.Fatal(err)
			}
			from := []byte(`"sample_count":`)
			if _, a, ok := bytes.Cut(got, from); !ok {
				t.Error("no head")
			} else if _, b, _ := bytes.Cut(want.Bytes(), from); !bytes.Equal(a, b) {
				t.Errorf("rows differ: %d and %d bytes", len(a), len(b))
			}
			written := func() bool {
				before, err := os.Stat(page)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := v.write(context.Background(), dump, false); err != nil {
					t.Fatal(err)
				}
				after, err := os.Stat(page)
				if err != nil {
					t.Fatal(err)
				}
				return !os.SameFile(before, after)
			}
			if written() {
				t.Error("page and cache are of this dump, and were written again")
			}
			for _, at := range []int{0, len(got) - 1} { // within the head, and behind it
				if err := flipByte(cache, at); err != nil {
					t.Fatal(err)
				}
				if !written() {
					t.Errorf("the cache changed at %d, and was kept", at)
				}
			}
		})
	}
	if compared < 20 {
		t.Errorf("only %d dumps could be viewed", compared)
	}
}

func flipByte(path string, at int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, int64(at)); err != nil && err != io.EOF {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b, int64(at))
	return err
}
