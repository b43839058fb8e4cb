package eventstore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func TestNearlyFull(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.MinFreeBytes = 1 << 20
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Int64
	free.Store(1 << 30)
	s.space.free = func(string) (int64, error) { return free.Load(), nil }
	eventtest.Run(t, s)
	now := time.Now()
	mustAppend(t, s, span(now, 0))
	mustFlush(t, s)
	free.Store(1000)
	eventually(t, "read-only", func() bool { return s.State().State == StateReadOnly })
	if why := s.State().Reason; !strings.Contains(why, "free") || !strings.Contains(why, o.Dir) {
		t.Errorf("reason %q", why)
	}
	if err := s.Append(within(t), []event.Row{span(now, 1)}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
	if n := count(t, s, "*"); n != 1 {
		t.Errorf("%d rows can be read", n)
	}
	free.Store(1 << 30)
	eventually(t, "writable again", func() bool { return s.State().State == StateOK })
	mustAppend(t, s, span(now, 2))
	mustFlush(t, s)
	if n := count(t, s, "*"); n != 2 {
		t.Errorf("%d rows at last, 2 were accepted", n)
	}
}

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill takes all the space that is left.
func fill(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
	}
	return path
}

// TestDiskFull fills the disk under a running store: rows are refused with a reason, the store comes back
// by itself when there is space, and every row that was accepted is there once.
func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name  string
		blind bool // the spool does not see it coming and runs into the end of the disk
	}{{"seen coming", false}, {"in the middle of a write", true}} {
		t.Run(c.name, func(t *testing.T) {
			disk := smallDisk(t, "64m")
			o := testOptions(t, filepath.Join(disk, "rollscope"))
			o.MinFreeBytes = 8 << 20
			o.FlushInterval = 200 * time.Millisecond
			s, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if c.blind {
				s.space.free = func(string) (int64, error) { return 1 << 40, nil }
			}
			stop := eventtest.Run(t, s)
			now := time.Now().Add(-time.Hour)
			var accepted []int
			next := 0
			write := func(n int) error {
				rows := make([]event.Row, n)
				for i := range rows {
					rows[i] = span(now, next+i)
				}
				err := s.Append(within(t), rows)
				if err == nil {
					for i := range rows {
						accepted = append(accepted, next+i)
					}
				}
				next += n
				return err
			}
			if err := write(1000); err != nil {
				t.Fatal(err)
			}
			mustFlush(t, s)
			ballast := fill(t, disk)
			refused := 0
			for range 2000 {
				err := write(50)
				if err == nil {
					continue
				}
				if !errors.Is(err, ErrReadOnly) {
					t.Fatalf("on a full disk: %v", err)
				}
				if refused++; refused == 20 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if refused == 0 {
				t.Fatal("nothing was refused on a full disk")
			}
			if st := s.State(); st.State != StateReadOnly || st.Reason == "" {
				t.Errorf("state %s %q", st.State, st.Reason)
			}
			remove(t, ballast)
			eventually(t, "rows are accepted again", func() bool { return write(10) == nil })
			mustFlush(t, s)
			check := func() {
				t.Helper()
				want := make([]int, 0, len(accepted))
				got := map[int]int{}
				rows := ask(t, s, Query{LogsQL: "* | fields n"})
				for _, r := range rows {
					n := 0
					for _, d := range []byte(strings.TrimPrefix(r, "n=")) {
						n = n*10 + int(d-'0')
					}
					got[n]++
				}
				for _, n := range accepted {
					if got[n] != 1 {
						want = append(want, n)
					}
				}
				if len(want) > 0 {
					t.Errorf("%d of %d accepted rows are not there once, first %d (%d times)", len(want), len(accepted), want[0], got[want[0]])
				}
				for n, times := range got {
					if times > 1 || !slices.Contains(accepted, n) {
						t.Errorf("row %d, which was refused, or was accepted once, is there %d times", n, times)
						break
					}
				}
			}
			check()
			eventually(t, "all is well", func() bool { return s.State().State == StateOK })
			stop()
			s, _ = start(t, o)
			mustFlush(t, s)
			check()
		})
	}
}
