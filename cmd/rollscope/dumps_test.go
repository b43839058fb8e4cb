package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/web"
)

// Dumps that other packages test too.
const (
	torchDumps   = "../../torchfile/testdata/dumps/"
	rolloutDumps = "../../internal/rollout/testdata/dumps/"
)

// perfLine is a line of `perf --json`.
type perfLine struct {
	File    string
	Error   string
	Opaque  []string `json:"opaque_classes"`
	Metrics *rollout.MetricsResult
}

// value is one of our keys.
func (l perfLine) value(t *testing.T, key string) float64 {
	t.Helper()
	if l.Metrics == nil {
		t.Fatalf("%s has no metrics: %s", l.File, l.Error)
	}
	for _, m := range append(append([]rollout.Metric(nil), l.Metrics.Perf...), l.Metrics.PerfStep...) {
		if m.Key == key {
			return m.Value
		}
	}
	t.Fatalf("%s has no %s", l.File, key)
	return 0
}

func perfJSON(t *testing.T, args ...string) (lines []perfLine, stderr string, code int) {
	t.Helper()
	out, stderr, code := runCLI(t, append([]string{"perf", "--json"}, args...)...)
	for line := range strings.Lines(out) {
		var l perfLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %.300s", err, line)
		}
		lines = append(lines, l)
	}
	return lines, stderr, code
}

func wantValues(t *testing.T, l perfLine, want map[string]float64) {
	t.Helper()
	for key, v := range want {
		if got := l.value(t, key); math.Abs(got-v) > 1e-3 {
			t.Errorf("%s: %s is %g, want %g", l.File, key, got, v)
		}
	}
}

// Case D01: classes that are not here are data, named once; every container and protocol reads the same.
func TestD01OpaqueClasses(t *testing.T) {
	lines, stderr, code := perfJSON(t, torchDumps+"d01_rollout_7.pt")
	if code != exitOK || len(lines) != 1 || lines[0].Metrics.Samples != 3 {
		t.Fatalf("exit code %d, %+v\n%s", code, lines, stderr)
	}
	wantValues(t, lines[0], map[string]float64{"perf/request/e2e_latency/min": 2, "perf/request/e2e_latency/mean": 3, "perf/request/e2e_latency/max": 4, "perf/request/e2e_latency/count": 3})
	if n := strings.Count(stderr, "acme_rewards.v2.Verdict"); n != 1 || len(lines[0].Opaque) != 1 {
		t.Errorf("the unknown class is named %d times in %q, and as %v", n, stderr, lines[0].Opaque)
	}
	out, _, code := runCLI(t, "convert", torchDumps+"d01_rollout_7.pt", "--to", "jsonl", "--out", "-")
	if code != exitOK || strings.Count(out, `"status":"completed"`) != 3 {
		t.Errorf("exit code %d: the status is not that of the enum: %.300s", code, out)
	}
	var same []string
	for _, name := range []string{"f15_protocol2.pt", "f15_protocol3.pt", "f15_protocol4.pt", "f15_protocol5.pt", "f16_legacy_nonzip.pt"} {
		same = append(same, torchDumps+name)
	}
	lines, stderr, code = perfJSON(t, same...)
	if code != exitOK || len(lines) != len(same) {
		t.Fatalf("exit code %d, %d lines: %s", code, len(lines), stderr)
	}
	first, err := json.Marshal(lines[0].Metrics.Perf)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if got, err := json.Marshal(l.Metrics.Perf); err != nil || !bytes.Equal(got, first) {
			t.Errorf("%s differs from protocol 2: %v", l.File, err)
		}
	}
	wantValues(t, lines[0], map[string]float64{"perf/request/count": 6, "perf/request/profiled_count": 6})
}

// Case D03: each bad file has a message of its own, and none stops the others.
func TestD03BadFiles(t *testing.T) {
	files := []string{writeFile(t, "empty.pt", ""), torchDumps + "d03_html.pt", torchDumps + "d03_rollout_8.pt", torchDumps + "d01_rollout_7.pt"}
	lines, stderr, code := perfJSON(t, files...)
	if code != exitBadInput || len(lines) != 4 {
		t.Fatalf("exit code %d, %d lines: %s", code, len(lines), stderr)
	}
	says := []string{"empty", "HTML", "incomplete (no central directory): still being written or cut"}
	for i, s := range says {
		if lines[i].Metrics != nil || !strings.Contains(lines[i].Error, s) {
			t.Errorf("%s: %q does not say %q, or has metrics", lines[i].File, lines[i].Error, s)
		}
		if strings.Count(stderr, lines[i].Error) != 1 {
			t.Errorf("stderr does not say once %q:\n%s", lines[i].Error, stderr)
		}
	}
	if !strings.Contains(lines[2].Error, "--salvage") {
		t.Errorf("the cut one: %s", lines[2].Error)
	}
	wantValues(t, lines[3], map[string]float64{"perf/request/e2e_latency/mean": 3})

	lines, _, code = perfJSON(t, "--salvage", torchDumps+"d03_rollout_8.pt")
	if code != exitBadInput || len(lines) != 1 || lines[0].Metrics == nil || lines[0].Metrics.Samples < 10 || lines[0].Error == "" {
		t.Fatalf("salvaged: exit code %d, %+v", code, lines)
	}
	for _, m := range lines[0].Metrics.Perf {
		if m.State == rollout.MetricValue {
			t.Errorf("%s of a part of the file is shown as if it were of all", m.Key)
			break
		}
	}
	needUI(t)
	dir := t.TempDir()
	out, stderr, code := runCLI(t, append([]string{"view", "--no-serve", "--out", dir}, files...)...)
	if code != exitBadInput || !strings.Contains(out, "d01_rollout_7.trace_timeline_viewer.html") {
		t.Errorf("view: exit code %d, %s", code, out)
	}
	for _, s := range says {
		if !strings.Contains(stderr, s) {
			t.Errorf("view does not say %q:\n%s", s, stderr)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*")); len(found) != 2 {
		t.Errorf("view left %v", found)
	}
}

// Case D06: a negative queue time is counted as invalid and spoils no mean.
func TestD06NegativeQueueTime(t *testing.T) {
	lines, stderr, code := perfJSON(t, rolloutDumps+"d06_rollout_9.pt")
	if code != exitOK || len(lines) != 1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	wantValues(t, lines[0], map[string]float64{
		"perf/request/queue_time/mean": 0.3, "perf/request/queue_time/min": 0.2, "perf/request/queue_time/max": 0.4, "perf/request/queue_time/count": 2,
		"perf/request/queue_time/invalid_count": 1, "perf/request/invalid_count": 1, "perf/request/e2e_latency/mean": 7.3333, "perf/request/e2e_latency/count": 3,
	})
}

// Case D08: odd samples are counted with a reason, and the rest is read.
func TestD08OddSamples(t *testing.T) {
	lines, stderr, code := perfJSON(t, torchDumps+"d08_rollout_1.pt", torchDumps+"d08_list.pt", rolloutDumps+"d08_eval_1.pt")
	if code != exitOK || len(lines) != 3 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	wantValues(t, lines[0], map[string]float64{"rollout/sample_count": 7, "rollout/untraced_count": 4, "perf/request/e2e_latency/min": 2, "perf/request/e2e_latency/mean": 3,
		"perf/request/e2e_latency/max": 4, "perf/request/e2e_latency/count": 3, "rollout/problem_count": 4})
	wantValues(t, lines[1], map[string]float64{"rollout/sample_count": 1, "perf/request/e2e_latency/mean": 2})
	wantValues(t, lines[2], map[string]float64{"eval/math/sample_count": 1, "eval_perf/request/e2e_latency/mean": 2})
}

// Case W08: requests are not samples.
func TestW08RequestsAndSamples(t *testing.T) {
	lines, stderr, code := perfJSON(t, rolloutDumps+"w08_rollout_2.pt")
	if code != exitOK || len(lines) != 1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	wantValues(t, lines[0], map[string]float64{
		"rollout/sample_count": 2, "perf/request/count": 4, "perf/request/profiled_count": 3, "perf/request/e2e_latency/mean": 2, "perf/request/e2e_latency/max": 3,
		"perf/request/e2e_latency_per_sample/mean": 3, "perf/request/e2e_latency_per_sample/min": 3, "perf/request/e2e_latency_per_sample/max": 3, "perf/aborted/request_count": 1,
	})
	out, _, code := runCLI(t, "perf", rolloutDumps+"w08_rollout_2.pt", "--key", "perf/request/*count")
	if code != exitOK || !strings.Contains(out, "perf/request/profiled_count") || strings.Contains(out, "e2e_latency/mean") {
		t.Errorf("exit code %d, with --key:\n%s", code, out)
	}
}

// needUI skips what writes pages where none are built.
func needUI(t *testing.T) {
	t.Helper()
	ui, err := web.New()
	if err != nil {
		t.Fatal(err)
	}
	if len(ui.Viewer()) == 0 {
		missing(t, "the pages are not built: make ui")
	}
}

// missing ends a test for which something is not installed.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// offline runs a command with its calls of the network written down, or where there is none.
func offline(t *testing.T, args ...string) {
	t.Helper()
	cmd := command(t.Context(), args...)
	strace, straceErr := exec.LookPath("strace")
	unshare, unshareErr := exec.LookPath("unshare")
	trace := ""
	switch {
	case straceErr == nil && exec.Command(strace, "-f", "-o", os.DevNull, "true").Run() == nil:
		trace = filepath.Join(t.TempDir(), "trace")
		cmd.Args = append([]string{strace, "-f", "-qq", "-e", "trace=network", "-o", trace, os.Args[0]}, args...)
		cmd.Path = strace
	case unshareErr == nil && exec.Command(unshare, "-rn", "true").Run() == nil:
		cmd.Args = append([]string{unshare, "-rn", os.Args[0]}, args...)
		cmd.Path = unshare
	default:
		missing(t, "neither strace nor unshare -rn works here")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("rollscope %v: %v\n%s", args, err, out)
	}
	if trace == "" {
		return
	}
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(calls)) {
		for _, call := range []string{"socket(", "connect(", "bind(", "sendto(", "sendmsg("} {
			if strings.Contains(line, call) {
				t.Errorf("rollscope %v uses the network: %s", args, line)
			}
		}
	}
}

// Case W06: without a route to any host every command works, and none looks for one.
func TestW06Offline(t *testing.T) {
	needUI(t)
	dump, dir := torchDumps+"f02_head_pd_children.pt", t.TempDir()
	for _, args := range [][]string{
		{"perf", dump, "--json"},
		{"view", dump, "--no-serve", "--out", dir},
		{"convert", dump, "--to", "otlp", "--out", dir},
		{"export", "tensorboard", filepath.Join(dir, "tb"), "--from", dump, "--run", "math"},
		{"export", "wandb", filepath.Join(dir, "wandb"), "--from", dump, "--run", "math", "--project", "rl", "--bundle", filepath.Join(dir, "bundle.tar.gz")},
	} {
		offline(t, args...)
	}
	// What cannot be a name there is refused when the run is made, not when it is uploaded.
	_, stderr, code := runCLI(t, "export", "wandb", filepath.Join(dir, "w2"), "--from", dump, "--project", "rl", "--run", strings.Repeat("x", 200))
	if code != exitBadInput || !strings.Contains(stderr, "128") {
		t.Errorf("a name of 200 characters: exit code %d, %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "w2")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("and something was written: %v", err)
	}
}
