package metricstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb"
)

func TestSecondProcessIsRefused(t *testing.T) { // case T01
	o := testOptions(t, time.Time{})
	openStore(t, o)
	before := checksum(t, o.Dir)

	second := testOptions(t, time.Time{})
	second.Dir = o.Dir
	_, err := Open(context.Background(), second)
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("second opening: %v", err)
	}
	host, _ := os.Hostname()
	if locked.PID != os.Getpid() || locked.Host != host || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("the holder is not named: %v", err)
	}
	if checksum(t, o.Dir) != before {
		t.Error("the refused process wrote")
	}
}

func TestPrometheusHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "01AAAAAAAAAAAAAAAAAAAAAAAA.tmp-for-creation") // what a compaction is writing
	if err := os.Mkdir(half, 0o755); err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, time.Time{})
	o.Dir = dir
	_, err = Open(context.Background(), o)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.By != "prometheus" || locked.PID != os.Getpid() {
		t.Errorf("opening a directory that Prometheus holds: %v", err)
	}
	if _, err := os.Stat(half); err != nil {
		t.Error("a half-made block of the holder was removed")
	}
	if _, err := os.Stat(filepath.Join(dir, "rollscope")); err == nil {
		t.Error("the refused process wrote")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(context.Background(), o); err != nil {
		t.Errorf("after Prometheus stopped: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestStaleLocks(t *testing.T) {
	o := testOptions(t, time.Time{})
	if err := os.MkdirAll(filepath.Join(o.Dir, "rollscope"), 0o755); err != nil {
		t.Fatal(err)
	}
	// What a kill -9 leaves: both files, and nobody who holds them.
	for name, text := range map[string]string{"lock": "", "rollscope/LOCK": "pid 999999\nhost elsewhere\n"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	openStore(t, o)
}

func TestLease(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "LOCK")
	now := time.Now()
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		text string
		age  time.Duration
		held bool
	}{
		"fresh, of another host":        {"pid 7\nhost other\n", time.Second, true},
		"old, of another host":          {"pid 7\nhost other\n", 2 * leaseTTL, false},
		"fresh, of a dead process here": {"pid 4194000\nhost " + host + "\n", time.Second, false},
		"fresh, of a living process":    {"pid 1\nhost " + host + "\n", time.Second, true},
		"given back":                    {"", time.Second, false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-c.age), now.Add(-c.age)); err != nil {
			t.Fatal(err)
		}
		if held := leaseHeld(path, dir, now); (held != nil) != c.held {
			t.Errorf("%s: %v", name, held)
		}
	}
}

func TestNewerFormat(t *testing.T) {
	o := testOptions(t, time.Time{})
	if err := os.MkdirAll(filepath.Join(o.Dir, "rollscope"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "rollscope", "FORMAT"), []byte("9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "newer rollscope") {
		t.Errorf("error %v", err)
	}
}

func TestFilesystemNotice(t *testing.T) { // case T01
	table, err := os.ReadFile(filepath.Join("testdata", "T01", "mountinfo.txt"))
	if err != nil {
		t.Fatal(err)
	}
	more := string(table) + `
38 25 0:40 / /fast rw - lustre 10.0.0.1@o2ib:/fast rw
39 25 0:41 / /mem rw - tmpfs tmpfs rw
40 25 0:42 / / rw - overlay overlay rw
41 25 0:43 / /with\040blank rw - fuse.sshfs host: rw
42 25 8:2 / /home rw - xfs /dev/sdb rw
`
	env := map[string]string{"TMPDIR": "/home/job1234"}
	for dir, want := range map[string]string{
		"/shared/run7/tsdb": "NFS", "/fast/x": "lustre", "/mem/x": "memory", "/var/lib/x": "container",
		"/with blank/x": "fuse.sshfs", "/home/job1234/x": "$TMPDIR", "/home/alice": "", "/local/x": "", "/sharedness": "container",
	} {
		n, ok := FilesystemNotice(dir, more, func(k string) string { return env[k] })
		if ok != (want != "") || !strings.Contains(n.Message, want) {
			t.Errorf("%s: %+v, want %q", dir, n, want)
		}
		if ok && !strings.Contains(n.Hint, "--storage.snapshot-to") {
			t.Errorf("%s: the hint does not say what to do: %q", dir, n.Hint)
		}
	}
	n, _ := FilesystemNotice("/shared/run7/tsdb", string(table), func(string) string { return "" })
	if !strings.Contains(n.Message, "/shared") || !strings.Contains(n.Hint, "/local") {
		t.Errorf("mount or local disk is not named: %+v", n)
	}
}

// Somebody who looks at the directory while it is opened does not make the opening fail.
func TestLookedAtWhileItIsOpened(t *testing.T) {
	o := testOptions(t, time.Time{})
	f, err := os.Create(filepath.Join(o.Dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*lookPause, func() { f.Close() })
	openStore(t, o)
}
