//go:build linux

package metricstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// breakLog puts another file behind the descriptors of the store's log, so that its writes fail as they
// do on a full disk (/dev/full) or a stale handle (a file opened to read).
func breakLog(t *testing.T, dir, with string) {
	t.Helper()
	flags := os.O_RDWR
	if with != "/dev/full" {
		flags = os.O_RDONLY
	}
	bad, err := os.OpenFile(with, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || !strings.HasPrefix(target, filepath.Join(dir, "wal")+"/0") {
			continue
		}
		var old int
		if _, err := fmt.Sscan(fd.Name(), &old); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(bad.Fd()), old, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("the log's descriptor was not found")
	}
}

func TestDiskRefusesWrites(t *testing.T) { // case T01
	for name, with := range map[string]string{"full disk": "/dev/full", "stale handle": "/dev/null"} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1780000000, 0)
			o := testOptions(t, start.Add(time.Hour))
			o.BacklogSamples = 50
			s := openStore(t, o)
			// The directory refuses new files too, until the test lets it: probe fails.
			probeDir := filepath.Join(o.Dir, "rollscope", "probe")
			s.guard.retry = 10 * time.Millisecond
			write := func(from, to int) {
				for i := from; i < to; i++ {
					at := start.Add(time.Duration(i) * time.Second).UnixMilli()
					ps := []point{{`sglang:num_running_reqs{job="sglang",instance="e1"}`, at, float64(i)}}
					if i == 10 { // a series that is born while the disk refuses
						ps = append(ps, point{`sglang:num_queue_reqs{job="sglang",instance="e1"}`, at, 7})
					}
					appendPoints(t, s.Appendable(), ps...)
				}
			}
			write(0, 10)
			if err := os.Mkdir(probeDir, 0o755); err != nil { // a directory cannot be created as a file
				t.Fatal(err)
			}
			breakLog(t, o.Dir, with)
			write(10, 40)
			if !s.guard.suspended() {
				t.Fatal("failed writes were not noticed")
			}
			if n := notice(s, "storage_unwritable"); !strings.Contains(n.Message, "31 samples wait") {
				t.Errorf("notice %+v", n)
			}
			// What was kept before is still answered.
			at := start.Add(15 * time.Second)
			if got := eval(t, s.Engine(), s.Queryable(), `count_over_time(sglang:num_running_reqs[1h])`, at); len(got) != 1 {
				t.Errorf("while the disk refuses: %v", got)
			}
			if err := os.Remove(probeDir); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return !s.guard.suspended() })
			write(40, 50)
			check := func(s *Store) {
				t.Helper()
				at := start.Add(time.Minute)
				got := eval(t, s.Engine(), s.Queryable(), `count_over_time(sglang:num_running_reqs[1h])`, at)
				if got[`{instance="e1", job="sglang"}`] != 50 {
					t.Errorf("%v, want all 50", got)
				}
				if got := eval(t, s.Engine(), s.Queryable(), `sglang:num_queue_reqs`, at); len(got) != 1 {
					t.Errorf("the series born meanwhile: %v", got)
				}
			}
			check(s)
			if n := notice(s, "storage_gap"); !strings.Contains(n.Message, "31 samples were kept in memory") {
				t.Errorf("notice %+v", n)
			}
			if n := notice(s, "storage_unwritable"); n.Code != "" {
				t.Errorf("still noticed: %+v", n)
			}
			if d := s.Drops(); len(d) != 0 {
				t.Errorf("dropped %v", d)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := testOptions(t, start.Add(time.Hour))
			again.Dir = o.Dir
			check(openStore(t, again))
		})
	}
}

func TestBacklogOverflows(t *testing.T) {
	start := time.Unix(1780000000, 0)
	o := testOptions(t, start.Add(time.Hour))
	o.BacklogSamples = 5
	s := openStore(t, o)
	s.guard.retry = 10 * time.Millisecond
	appendPoints(t, s.Appendable(), point{`up{job="sglang",instance="e1"}`, start.UnixMilli(), 1})
	if err := os.Mkdir(filepath.Join(o.Dir, "rollscope", "probe"), 0o755); err != nil {
		t.Fatal(err)
	}
	breakLog(t, o.Dir, "/dev/full")
	for i := 1; i <= 12; i++ {
		appendPoints(t, s.Appendable(), point{`up{job="sglang",instance="e1"}`, start.Add(time.Duration(i) * time.Second).UnixMilli(), 1})
	}
	wantDrop(t, s, "sglang/e1", "storage_unwritable", 7)
	if err := os.Remove(filepath.Join(o.Dir, "rollscope", "probe")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return !s.guard.suspended() })
	got := eval(t, s.Engine(), s.Queryable(), `count_over_time(up[1h])`, start.Add(time.Minute))
	if got[`{instance="e1", job="sglang"}`] != 6 {
		t.Errorf("%v, want the first and the newest five", got)
	}
	if n := notice(s, "storage_gap"); !strings.Contains(n.Message, "7 did not fit") {
		t.Errorf("notice %+v", n)
	}
}

func notice(s *Store, code string) Notice {
	for _, n := range s.Notices() {
		if n.Code == code {
			return n
		}
	}
	return Notice{}
}
