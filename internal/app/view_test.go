package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/sim/rolls"
)

// viewOnce writes a dump's files and says whether those that were there were kept.
func viewOnce(t *testing.T, path string, change func(*ViewOptions)) (kept bool) {
	t.Helper()
	var out bytes.Buffer
	o := ViewOptions{Files: []string{path}, NoServe: true, Logger: quiet, Version: "1", Out: &out}
	if change != nil {
		change(&o)
	}
	if err := View(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	kept = strings.Contains(out.String(), "is of this dump already")
	if !kept && !strings.Contains(out.String(), ".trace_timeline_viewer.html") {
		t.Fatalf("view says %q", out.String())
	}
	return kept
}

// Page and cache are used again when they are of this content and this version, whatever the times say.
func TestViewReuse(t *testing.T) {
	needUI(t)
	dir := t.TempDir()
	path := join(dir, "rollout_7.pt")
	page, cache := join(dir, "rollout_7.trace_timeline_viewer.html"), join(dir, "rollout_7.trace_timeline_cache.json")
	o := small()
	writeDump(t, path, o)
	long, recent := time.Now().Add(-100*time.Hour), time.Now().Add(time.Hour)
	touch := func(at time.Time) {
		t.Helper()
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(file string, change func([]byte) []byte) {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(b), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(file string) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		before func()
		change func(*ViewOptions)
		kept   bool
	}{
		{"the first time", nil, nil, false},
		{"again", nil, nil, true},
		{"the dump was touched", func() { touch(recent) }, nil, true},
		{"other content of an older time", func() { o.Seed = 99; writeDump(t, path, o); touch(long) }, nil, false},
		{"again", nil, nil, true},
		{"another version", nil, func(v *ViewOptions) { v.Version = "2" }, false},
		{"the version before", nil, nil, false},
		{"the cache is gone", func() { remove(cache) }, nil, false},
		{"the cache was edited, not in its length", func() {
			edit(cache, func(b []byte) []byte { return bytes.Replace(b, []byte(`"completed"`), []byte(`"completeD"`), 1) })
		}, nil, false},
		{"the cache is longer", func() { edit(cache, func(b []byte) []byte { return append(b, ' ') }) }, nil, false},
		{"no cache is wanted, and one is there", nil, func(v *ViewOptions) { v.NoCache = true }, true},
		{"the page is gone", func() { remove(page) }, nil, false},
		{"the page is somebody else's", func() { edit(page, func([]byte) []byte { return []byte("<!doctype html><title>mine</title>") }) }, nil, false},
		{"in any case", nil, func(v *ViewOptions) { v.Rebuild = true }, false},
		{"again", nil, nil, true},
		{"one without a cache", func() { remove(cache) }, func(v *ViewOptions) { v.NoCache, v.Rebuild = true, true }, false},
		{"and then with one", nil, nil, false},
	} {
		if c.before != nil {
			c.before()
		}
		if got := viewOnce(t, path, c.change); got != c.kept {
			t.Errorf("%s: kept %t, want %t", c.name, got, c.kept)
		}
	}
	b, err := os.ReadFile(cache)
	if err != nil || !json.Valid(b) {
		t.Errorf("the cache is no JSON: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("what is left lying about: %v, %v", entries, err)
	}
}

// A page is replaced at once: who has the old one open reads it to its end, and nothing is ever half.
func TestViewReplacesFiles(t *testing.T) {
	needUI(t)
	dir := t.TempDir()
	path, page := join(dir, "rollout_7.pt"), join(dir, "rollout_7.trace_timeline_viewer.html")
	writeDump(t, path, small())
	viewOnce(t, path, nil)
	old, err := os.Open(page)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	other := small()
	other.Seed = 9
	writeDump(t, path, other)
	viewOnce(t, path, nil)
	held, err := io.ReadAll(old)
	if err != nil || !bytes.Equal(held, before) {
		t.Errorf("the page that was open changed: %v", err)
	}
	after, err := os.ReadFile(page)
	if err != nil || bytes.Equal(after, before) {
		t.Errorf("the page is the old one: %v", err)
	}
	// A reader in the middle of the dump that fails: what was there stays.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err = View(ctx, ViewOptions{Files: []string{path}, NoServe: true, Rebuild: true, Logger: quiet, Version: "1", Out: io.Discard})
	if err == nil {
		t.Error("a canceled view is no error")
	}
	if now, err := os.ReadFile(page); err != nil || !bytes.Equal(now, after) {
		t.Errorf("a view that was ended changed the page: %v", err)
	}
	// A place that cannot be written.
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(join(page, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	err = View(t.Context(), ViewOptions{Files: []string{path}, NoServe: true, Logger: quiet, Version: "1", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a directory in the page's place: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left lying about", e.Name())
		}
	}
}

// Nothing can be written beside the dump: the error says what to do, and with --out it works.
func TestViewReadOnlyDirectory(t *testing.T) {
	needUI(t)
	path := join(t.TempDir(), "rollout_7.pt")
	writeDump(t, path, small())
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Nobody may create a file there, root neither.
	there := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(there); err != nil {
		t.Skip("no /proc/self/fd")
	}
	for _, noCache := range []bool{false, true} {
		err = View(t.Context(), ViewOptions{Files: []string{there}, NoServe: true, NoCache: noCache, Logger: quiet, Version: "1", Out: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "--out") || !strings.Contains(err.Error(), there) {
			t.Errorf("without cache %t: %v", noCache, err)
		}
	}
	out := t.TempDir()
	if viewOnce(t, there, func(o *ViewOptions) { o.OutDir = out }) {
		t.Error("there was nothing to keep")
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 2 {
		t.Errorf("in --out: %v, %v", entries, err)
	}
}

// One bad dump does not stop the others; what is missing is in the error.
func TestViewGoesOn(t *testing.T) {
	needUI(t)
	dir := t.TempDir()
	good, bad := join(dir, "rollout_1.pt"), join(dir, "rollout_0.pt")
	writeDump(t, good, small())
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	err = View(t.Context(), ViewOptions{Files: []string{bad, good}, NoServe: true, Logger: quiet, Version: "1", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "rollout_0.pt") || strings.Contains(err.Error(), "rollout_1.pt") || !strings.Contains(err.Error(), "--salvage") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(join(dir, "rollout_1.trace_timeline_viewer.html")); err != nil {
		t.Error(err)
	}
	if found, _ := filepath.Glob(join(dir, "rollout_0.*")); len(found) != 1 {
		t.Errorf("of the bad one: %v", found)
	}
	var out bytes.Buffer
	err = View(t.Context(), ViewOptions{Files: []string{bad}, NoServe: true, Salvage: true, Logger: quiet, Version: "1", Out: &out})
	if err == nil || !strings.Contains(out.String(), "rollout_0.trace_timeline_viewer.html") {
		t.Errorf("salvaged: %v, %q", err, out.String())
	}
	if b, err := os.ReadFile(join(dir, "rollout_0.trace_timeline_cache.json")); err != nil || !json.Valid(b) {
		t.Errorf("the salvaged cache: %v", err)
	}
}

// Reading, viewing and caching leave a dump as it was: bytes, and both times.
func TestDumpsAreNotTouched(t *testing.T) {
	needUI(t)
	dir := t.TempDir()
	path, control := join(dir, "rollout_7.pt"), join(dir, "control")
	writeDump(t, path, small())
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(control, before, 0o644); err != nil {
		t.Fatal(err)
	}
	// Old enough for relatime.
	accessed, modified := time.Now().Add(-72*time.Hour).Truncate(time.Second), time.Now().Add(-48*time.Hour).Truncate(time.Second)
	for _, p := range []string{path, control} {
		if err := os.Chtimes(p, accessed, modified); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.ReadFile(control); err != nil {
		t.Fatal(err)
	}
	if at, ok := accessTime(t, control); !ok || at.Equal(accessed) {
		t.Log("this file system does not keep access times: only bytes and mtime are looked at")
	}
	viewOnce(t, path, nil)
	viewOnce(t, path, nil)
	if _, err := Perf(t.Context(), PerfOptions{Files: []string{path}}); err != nil {
		t.Fatal(err)
	}
	for _, to := range ConvertFormats() {
		if _, err := Convert(t.Context(), ConvertOptions{File: path, To: to, Out: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ExportSteps(t.Context(), ExportStepsOptions{What: "tensorboard", Dir: t.TempDir(), Dumps: []string{path}, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.ModTime().Equal(modified) {
		t.Errorf("its mtime was %s and is %s", modified, info.ModTime())
	}
	if at, ok := accessTime(t, path); ok && !at.Equal(accessed) {
		t.Errorf("its atime was %s and is %s", accessed, at)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("its bytes changed: %v", err)
	}
}

// Served, a view shows dumps as they are read, those that cannot be too, and the page.
func TestViewServed(t *testing.T) {
	needUI(t)
	dir := t.TempDir()
	o := small()
	paths := []string{join(dir, "rollout_3.pt"), join(dir, "rollout_eval_3.pt"), join(dir, "other.pt"), join(dir, "broken.pt")}
	o.RolloutID = 3
	writeDump(t, paths[0], o)
	e := o
	e.Eval = true
	writeDump(t, paths[1], e)
	o.RolloutID = 8
	writeDump(t, paths[2], o)
	if err := os.WriteFile(paths[3], []byte("<html>not found</html>"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	url := ""
	done := make(chan error, 1)
	go func() {
		done <- View(ctx, ViewOptions{Files: paths, Logger: quiet, Version: "1", Out: io.Discard, Web: WebOptions{Listen: []string{"127.0.0.1:0"}},
			started: func(u string) { mu.Lock(); url = u; mu.Unlock() }})
	}()
	defer stop()
	until(t, "it serves", func() bool { mu.Lock(); defer mu.Unlock(); return url != "" })
	get := func(path string, out any) int {
		t.Helper()
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if out != nil {
			if err := json.Unmarshal(b, out); err != nil {
				t.Fatalf("%s: %v: %.200s", path, err, b)
			}
		}
		return resp.StatusCode
	}
	var runs api.Envelope[api.Runs]
	until(t, "all dumps are read", func() bool {
		runs = api.Envelope[api.Runs]{}
		get("/api/rollscope/v1/rollouts", &runs)
		if len(runs.Data.Runs) != 1 {
			return false
		}
		r := runs.Data.Runs[0]
		return r.Steps == 2 && r.EvalSteps == 1 && len(r.Files) == 1 && r.Files[0].State == "failed"
	})
	if f := runs.Data.Runs[0].Files[0]; f.Path != paths[3] || f.Reason == "" {
		t.Errorf("the broken one: %+v", f)
	}
	var list api.Envelope[api.Timelines]
	get("/api/rollscope/v1/timelines", &list)
	if len(list.Data.Timelines) != 3 {
		t.Errorf("%+v", list.Data)
	}
	for path, want := range map[string]int{"/rollouts": 200, "/api/rollscope/v1/engines": 404, "/api/v1/query?query=up": 404} {
		if got := get(path, nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	stop()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "broken.pt") {
		t.Errorf("at the end the broken dump is %v", err)
	}
	if found, _ := filepath.Glob(join(os.TempDir(), "rollscope-view-*")); len(found) > 0 {
		t.Logf("temporary directories (perhaps of others): %v", found)
	}
}

// Two dumps of one name in one directory: the first has its page, the second says why it has none.
func TestViewNamesMeet(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 2 {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(sub, "rollout_0.pt")
		if _, err := rolls.WriteFile(path, rolls.Options{Seed: uint64(i + 1), Samples: 8}); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	var out bytes.Buffer
	err := View(t.Context(), ViewOptions{Files: paths, OutDir: dir, NoServe: true, NoCache: true, NoTexts: true, Version: "v", Out: &out, Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), paths[1]) || !strings.Contains(err.Error(), paths[0]) {
		t.Fatalf("the error names not both: %v", err)
	}
	page, readErr := os.ReadFile(filepath.Join(dir, "rollout_0.trace_timeline_viewer.html"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	if !bytes.Contains(page, []byte("rollscope-timeline")) {
		t.Error("the page holds no timeline")
	}
}
