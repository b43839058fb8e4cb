package eventstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

// tree lists a directory with sizes and times, to see whether anything was written there.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		m[path] = info.Mode().String() + info.ModTime().String()
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			m[path] += string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOpenReadOnly(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s, stop := start(t, testOptions(t, dir))
	for i := range 10 {
		mustAppend(t, s, span(now, i))
	}
	mustFlush(t, s)
	stop()
	// Rows that only the spool has: accepted while nothing runs.
	s, err := Open(t.Context(), testOptions(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		mustAppend(t, s, span(now, 10+i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for _, how := range []string{"same file system", "another file system"} {
		t.Run(how, func(t *testing.T) {
			o := testOptions(t, dir)
			o.Scratch = t.TempDir()
			if how != "same file system" {
				if o.Scratch, err = os.MkdirTemp("/dev/shm", "rollscope-test-"); err != nil {
					t.Skip("no other file system to write to")
				}
				defer os.RemoveAll(o.Scratch)
			}
			s, err := OpenReadOnly(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			stop := eventtest.Run(t, s)
			if err := s.Append(t.Context(), []event.Row{span(now, 1)}); !errors.Is(err, ErrReadOnly) {
				t.Errorf("append: %v", err)
			}
			if n := count(t, s, "*"); n != 15 { // without waiting: the first question is the whole truth
				t.Errorf("%d rows, 15 were written", n)
			}
			if st := s.State(); st.State != StateReadOnly || st.DiskBytes == 0 {
				t.Errorf("state %+v", st)
			}
			stop()
			if left, _ := os.ReadDir(o.Scratch); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	after := tree(t, dir)
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was changed", path)
		}
	}
	for path := range after {
		if _, was := before[path]; !was {
			t.Errorf("%s is new", path)
		}
	}
}

func TestOpenReadOnlyNothing(t *testing.T) {
	o := testOptions(t, filepath.Join(t.TempDir(), "none"))
	s, err := OpenReadOnly(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	eventtest.Run(t, s)
	if st := s.State(); st.State != StateOff || !strings.Contains(st.Reason, o.Dir) {
		t.Errorf("state %s %q", st.State, st.Reason)
	}
	if n := count(t, s, "*"); n != 0 {
		t.Errorf("%d rows", n)
	}
	if _, err := os.Stat(o.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}
