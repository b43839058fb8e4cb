package tracker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Case W06: what W&B would refuse when it syncs is refused when the run starts.
func TestNamesAreCheckedAtTheStart(t *testing.T) {
	good := func() WandBConfig { return WandBConfig{Dir: t.TempDir(), Project: "math"} }
	for name, tc := range map[string]struct {
		change func(*WandBConfig)
		want   string
	}{
		"no dir":          {func(c *WandBConfig) { c.Dir = "" }, "dir"},
		"no project":      {func(c *WandBConfig) { c.Project = "" }, "project"},
		"long project":    {func(c *WandBConfig) { c.Project = strings.Repeat("x", 129) }, "128"},
		"project letters": {func(c *WandBConfig) { c.Project = "a/b" }, "does not take"},
		"project colon":   {func(c *WandBConfig) { c.Project = "a:b" }, "does not take"},
		"project newline": {func(c *WandBConfig) { c.Project = "a\nb" }, "control"},
		"long group":      {func(c *WandBConfig) { c.Group = strings.Repeat("x", 129) }, "128"},
		"long tag":        {func(c *WandBConfig) { c.Tags = []string{"ok", strings.Repeat("x", 65)} }, "tag 1"},
		"empty tag":       {func(c *WandBConfig) { c.Tags = []string{""} }, "tag 0"},
		"tag twice":       {func(c *WandBConfig) { c.Tags = []string{"a", "a"} }, "twice"},
		"config value":    {func(c *WandBConfig) { c.Config = map[string]any{"lr": math.NaN()} }, "lr"},
		"config key":      {func(c *WandBConfig) { c.Config = map[string]any{"_wandb": 1} }, "_wandb"},
		"our config key":  {func(c *WandBConfig) { c.Config = map[string]any{"rollscope": 1} }, "rollscope"},
	} {
		c := good()
		tc.change(&c)
		if tr, err := WandB(c, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v %v", name, tr, err)
		}
	}
	c := good()
	c.Project, c.Tags = strings.Repeat("é", 128), []string{strings.Repeat("é", 64)}
	tr, err := WandB(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, tr)
	c.Tags = []string{"", strings.Repeat("x", 65)}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "tag 0") || !strings.Contains(err.Error(), "tag 1") {
		t.Errorf("not all faults at once: %v", err)
	}
}

// Case W06: nothing here can reach a network but the W&B client that Syncer starts.
func TestNoNetworkIsLinked(t *testing.T) {
	found, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if path == "net" || strings.HasPrefix(path, "net/") {
				t.Errorf("%s imports %s", name, path)
			}
			if path == "os/exec" && name != "sync.go" && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s starts programs", name)
			}
		}
	}
}

func unbundle(t *testing.T, b []byte, dir string) BundleIndex {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(gz)
	var index BundleIndex
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return index
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == bundleIndexName {
			if err := json.Unmarshal(data, &index); err != nil {
				t.Fatal(err)
			}
			continue
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBundle(t *testing.T) {
	dir := t.TempDir()
	wb := newWB(t, dir, Options{})
	for i := range 3 {
		mustLog(t, wb, step("old", AxisRollout, int64(i), at(i), "rollout/a", float64(i)))
	}
	mustClose(t, wb)
	wb = newWB(t, dir, Options{})
	for i := range 5 {
		mustLog(t, wb, step("live", AxisRollout, int64(i), at(100+i), "rollout/a", float64(i)))
	}
	// Somebody else's run, and a half-written row of ours.
	foreign := filepath.Join(dir, "offline-run-20260101_000000-abc", "run-abc.wandb")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte("not a run"), 0o644); err != nil {
		t.Fatal(err)
	}
	live := runFile(t, dir, "live", 0)
	before, err := os.ReadFile(live)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(live, append(bytes.Clone(before), 1, 2, 3), 0o644); err != nil {
		t.Fatal(err)
	}

	var all, again bytes.Buffer
	index, err := Bundle(&all, dir, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Bundle(&again, dir, time.Time{}); err != nil || !bytes.Equal(all.Bytes(), again.Bytes()) {
		t.Errorf("a second bundle differs, %v", err)
	}
	there := t.TempDir()
	if got := unbundle(t, all.Bytes(), there); !reflect.DeepEqual(got, index) || len(got.Runs) != 2 || len(got.Skipped) != 1 || got.Since != nil {
		t.Errorf("index %+v, returned %+v", got, index)
	}
	for run, want := range map[string]int{"old": 3, "live": 5} {
		path := runFile(t, there, run, 0)
		rows, other := wbRows(t, pythonToo, path)
		exit := other["exit"]
		if len(rows) != want || len(exit) != 1 || len(other["footer"]) != 1 || len(other["summary"]) != 1 {
			t.Errorf("%s: %d rows, want %d; exit %v", run, len(rows), want, exit)
			continue
		}
		if complete := exit[0]["3"] == nil; complete != (run == "old") {
			t.Errorf("%s: exit %v", run, exit)
		}
	}
	// Only what got steps since.
	var part bytes.Buffer
	if index, err = Bundle(&part, dir, at(50)); err != nil || len(index.Runs) != 1 || index.Runs[0].Run != "live" || index.Runs[0].Rows != 5 || !index.Runs[0].Last.Equal(at(104)) || !index.Since.Equal(at(50)) {
		t.Errorf("%+v, %v", index, err)
	}
	if after, _ := os.ReadFile(live); !bytes.Equal(after[:len(before)], before) {
		t.Error("bundling changed a run")
	}
	if _, err := Bundle(io.Discard, filepath.Join(dir, "none"), time.Time{}); err == nil {
		t.Error("a directory that does not exist")
	}
	full := 100
	if _, err := Bundle(&limited{&full}, dir, time.Time{}); !errors.Is(err, errNoSpace) {
		t.Errorf("full disk: %v", err)
	}
}

type limited struct{ room *int }

func (l *limited) Write(b []byte) (int, error) {
	if *l.room -= len(b); *l.room < 0 {
		return 0, errNoSpace
	}
	return len(b), nil
}

// fakeWandb puts a program named wandb in PATH that notes its arguments and copies what it would upload.
func fakeWandb(t *testing.T, script string) (calls func() []string) {
	t.Helper()
	bin, out := t.TempDir(), t.TempDir()
	body := "#!/bin/sh\nout=" + out + "\n" + script
	if err := os.WriteFile(filepath.Join(bin, "wandb"), []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() []string {
		b, err := os.ReadFile(filepath.Join(out, "calls"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	calls := fakeWandb(t, `echo "$@" >> $out/calls; for f in $3/*.wandb; do cat $f > $out/last; test -s $f && : > $f.synced; done; echo "uploading $3"; echo done >&2`)
	var log bytes.Buffer
	s, err := NewSyncer(SyncConfig{Dir: dir, Parallel: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	sync := func(want int) {
		t.Helper()
		if n, err := s.Sync(ctx); err != nil || n != want {
			t.Fatalf("uploaded %d, %v; want %d", n, err, want)
		}
	}
	sync(0)
	wb := newWB(t, dir, Options{})
	mustLog(t, wb, step("run", AxisRollout, 0, at(0), "rollout/a", 1.0))
	sync(1)
	snapshot := filepath.Join(dir, snapshotDir, filepath.Base(filepath.Dir(runFile(t, dir, "run", 0))))
	if got := calls(); len(got) != 1 || got[0] != "sync --include-synced "+snapshot {
		t.Errorf("calls %q", got)
	}
	rows, other := wbRows(t, pythonToo, filepath.Join(snapshot, filepath.Base(runFile(t, dir, "run", 0))))
	if len(rows) != 1 || len(other["exit"]) != 1 || other["exit"][0]["3"] != 1.0 {
		t.Errorf("a live run is uploaded as %v %v", rows, other["exit"])
	}
	sync(0) // nothing new
	mustLog(t, wb, step("run", AxisRollout, 1, at(1), "rollout/a", 2.0))
	sync(1)
	mustClose(t, wb)
	sync(1) // its end
	if got := calls(); got[len(got)-1] != "sync --include-synced "+filepath.Dir(runFile(t, dir, "run", 0)) {
		t.Errorf("calls %q", got)
	}
	sync(0)
	// A new process: what the client marked as synced is not uploaded again, until it grows.
	if s, err = NewSyncer(SyncConfig{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	sync(0)
	wb = newWB(t, dir, Options{})
	mustLog(t, wb, step("run", AxisRollout, 2, at(2), "rollout/a", 3.0))
	mustClose(t, wb)
	sync(1)
	for _, want := range []string{"uploading " + dir, "msg=done", "msg=uploaded"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// A run that goes on, and ends, while the client uploads it is uploaded again, although the client marks it at its end.
func TestSyncBesideARunThatGoesOn(t *testing.T) {
	dir := t.TempDir()
	calls := fakeWandb(t, `echo "$@" >> $out/calls; while ! test -e $3/../go; do sleep 0.01; done; for f in $3/*.wandb; do : > $f.synced; done`)
	live := func(n int64) {
		wb := newWB(t, dir, Options{})
		mustLog(t, wb, step("run", AxisRollout, n, at(int(n)), "rollout/a", 1.0))
		mustClose(t, wb)
	}
	live(0)
	s, err := NewSyncer(SyncConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		n, err := s.Sync(context.Background())
		if n != 1 {
			err = errors.Join(err, fmt.Errorf("%d were uploaded", n))
		}
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); calls()[0] == ""; time.Sleep(time.Millisecond) { // until the program runs
		if time.Now().After(deadline) {
			t.Fatal("the program was not started")
		}
	}
	live(1)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n, err := s.Sync(context.Background()); n != want || err != nil {
			t.Errorf("uploaded %d, %v; want %d", n, err, want)
		}
	}
}

func TestSyncFails(t *testing.T) {
	dir := t.TempDir()
	calls := fakeWandb(t, `echo "$@" >> $out/calls; echo "no route to host"; exit 3`)
	wb := newWB(t, dir, Options{})
	for i := range 3 {
		mustLog(t, wb, step(fmt.Sprintf("run%d", i), AxisRollout, 0, at(0), "rollout/a", 1.0))
	}
	mustClose(t, wb)
	s, err := NewSyncer(SyncConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	for range 2 { // and it is tried again
		if n, err := s.Sync(context.Background()); n != 0 || !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := calls(); len(got) != 6 {
		t.Errorf("calls %q", got)
	}
}

// At shutdown the program and its children are killed.
func TestSyncIsKilled(t *testing.T) {
	dir := t.TempDir()
	calls := fakeWandb(t, `(sleep 1000) & echo $! >> $out/calls; wait`)
	wb := newWB(t, dir, Options{})
	mustLog(t, wb, step("run", AxisRollout, 0, at(0), "rollout/a", 1.0))
	mustClose(t, wb)
	s, err := NewSyncer(SyncConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tick := make(chan time.Time)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, tick)
	}()
	tick <- time.Time{}
	for deadline := time.Now().Add(time.Minute); calls()[0] == ""; time.Sleep(time.Millisecond) { // until the program runs
		if time.Now().After(deadline) {
			t.Fatal("the program was not started")
		}
	}
	cancel()
	<-done
	pid := calls()[0]
	// It was sent the signal; the kernel may take a moment to end it.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child %s of the program lives: %s", pid, b)
		}
	}
}

func TestNoClient(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if s, err := NewSyncer(SyncConfig{Dir: t.TempDir()}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v, %v", s, err)
	}
}
