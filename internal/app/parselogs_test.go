package app

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/tfevents"
)

// curvesOf reads the event files below dir: values by step and tag.
func curvesOf(t *testing.T, dir string) map[int64]map[string]float64 {
	t.Helper()
	out := map[int64]map[string]float64{}
	files, err := filepath.Glob(filepath.Join(dir, "*", "events.out.tfevents.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no event files in %s: %v", dir, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r := tfevents.NewReader(f, tfevents.Options{})
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			for _, v := range e.Values {
				if out[e.Step] == nil {
					out[e.Step] = map[string]float64{}
				}
				out[e.Step][v.Tag] = v.Number
			}
		}
		f.Close()
	}
	return out
}

// pythonDict prints metrics as slime's logger does.
func pythonDict(metrics []rollout.Metric) string {
	var parts []string
	for _, m := range metrics {
		if m.State == rollout.MetricUnknown || m.State == rollout.MetricIdle {
			continue
		}
		parts = append(parts, fmt.Sprintf("'%s': np.float64(%v)", m.Key, m.Value))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Case L03.3: what a log printed makes the same curves as the dump of the same step.
func TestL03TagsAreThoseOfOnlineRuns(t *testing.T) {
	const dump = "../../torchfile/testdata/dumps/d08_rollout_1.pt"
	res, err := Perf(t.Context(), PerfOptions{Files: []string{dump}})
	if err != nil || res[0].Result == nil {
		t.Fatal(err, res)
	}
	log := filepath.Join(t.TempDir(), "driver.log")
	line := "(RolloutManager pid=4101) [2026-05-03 10:10:00] rollout.py:88 - perf 1: " + pythonDict(res[0].Result.Perf) + "\n"
	if err := os.WriteFile(log, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	online, recovered := t.TempDir(), t.TempDir()
	if _, err := ExportSteps(t.Context(), ExportStepsOptions{What: "tensorboard", Dir: online, Dumps: []string{dump}, Run: "math", Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	got, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{log}, Out: &out, Zone: time.UTC, TensorBoard: recovered, Run: "math", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if got.Tracker.Steps != 1 || len(got.Tracker.Rejected) != 0 {
		t.Errorf("%+v", got.Tracker)
	}
	want, have := curvesOf(t, online)[1], curvesOf(t, recovered)[1]
	if len(have) < 5 {
		t.Fatalf("only %d tags: %v", len(have), have)
	}
	for tag, v := range have {
		w, ok := want[tag]
		if !ok {
			t.Errorf("the tag %s is of no online run", tag)
		} else if math.Abs(v-w) > 1e-6*math.Abs(w) {
			t.Errorf("%s is %v, online %v", tag, v, w)
		}
	}
	// A second reading changes nothing.
	got, err = ParseLogs(t.Context(), ParseLogsOptions{Files: []string{log}, Out: &out, Zone: time.UTC, TensorBoard: recovered, Run: "math", Logger: quiet})
	if err != nil || got.Tracker.Steps != 0 || got.Tracker.Published != 1 {
		t.Errorf("%+v %v", got.Tracker, err)
	}
}

// Case L03 itself: both groups, what is not finite, and code that stays text.
func TestL03ToTensorBoard(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	got, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{"../enginelog/testdata/L03/perf.log"}, Out: &out, Zone: time.UTC, TensorBoard: dir, Run: "math", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	// A key with braces is no tag that the trackers take from anybody; it is counted.
	if got.Tracker.Steps != 3 || got.Tracker.Points != 6 || got.Tracker.NonFinite != 2 || got.Tracker.Rejected["key"] != 1 {
		t.Errorf("%+v", got.Tracker)
	}
	s := curvesOf(t, dir)
	if s[12]["eval/math"] != 0.5 || math.Abs(s[12]["perf/rollout_time"]-371.18) > 1e-4 || s[13]["rollout/response_len/mean"] != 799 ||
		!math.IsNaN(s[12]["perf/request/queue_time/mean"]) || !math.IsInf(s[12]["perf/decode/throughput/max"], 1) {
		t.Errorf("%v", s)
	}
	for _, tags := range s {
		if _, ok := tags["eval/note"]; ok {
			t.Error("a text became a curve")
		}
	}
}

func TestParseLogs(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../enginelog/testdata/sglang/events.log")
	if err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(dir, "engine.log.2.gz")
	if err := os.WriteFile(packed, z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	// Compressed or not, the summary is the same.
	var a, b bytes.Buffer
	ra, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{packed}, Out: &a, Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	rb, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{"-"}, Stdin: bytes.NewReader(text), Out: &b, Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	if ra.Logs[0].Summary.Lines != 29 || strings.TrimPrefix(a.String(), packed) != strings.TrimPrefix(b.String(), "stdin") || rb.Logs[0].Summary.Exit() != 1 {
		t.Errorf("compressed:\n%s\nplain:\n%s", a.String(), b.String())
	}
	// Lines of a class.
	var out bytes.Buffer
	if _, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{packed}, Out: &out, Zone: time.UTC, Engine: "e:1", Records: true, Classes: []enginelog.Class{enginelog.OOM, enginelog.Preempt}}); err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(out.String()))
	if len(lines) != 5 || !strings.HasPrefix(lines[0], `{"_time":"2025-06-01T09:00:00Z","_msg":"[2025-06-01 09:00:00 TP0] Decode out of memory happened.`) ||
		!strings.Contains(lines[0], `"engine":"e:1"`) || !strings.Contains(lines[0], `"num_retracted_reqs":"3"`) {
		t.Errorf("%q", lines)
	}
	// One file that is not there does not hide the others; no step is an error.
	out.Reset()
	res, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{filepath.Join(dir, "none.log"), packed}, Out: &out, Zone: time.UTC})
	if err == nil || len(res.Logs) != 1 || !strings.Contains(err.Error(), "none.log") {
		t.Errorf("%v %+v", err, res)
	}
	if _, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{packed}, Out: &out, TensorBoard: filepath.Join(dir, "tb"), Logger: quiet}); err == nil || !strings.Contains(err.Error(), "no line has metrics of a step") {
		t.Errorf("%v", err)
	}
	if _, err := ParseLogs(t.Context(), ParseLogsOptions{Files: []string{dir}, Out: &out}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("%v", err)
	}
}
