package tracker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/tfevents"
	"github.com/rollscope/rollscope/internal/wandbfile"
)

// point is where a value lies: its key, the axis and the step.
type point struct {
	key  string
	axis string
	step int64
}

// jsonl reads the lines of a test file.
func jsonl[T any](t *testing.T, name string) []T {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

var epoch = time.Date(2026, 5, 28, 20, 26, 40, 0, time.UTC)

func at(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }

func mustLog(t *testing.T, tr Tracker, steps ...Step) {
	t.Helper()
	for _, s := range steps {
		if err := tr.Log(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func step(run string, axis Axis, n int64, when time.Time, kv ...any) Step {
	s := Step{Run: run, Axis: axis, Step: n, Time: when}
	for i := 0; i < len(kv); i += 2 {
		s.Metrics = append(s.Metrics, Metric{Key: kv[i].(string), Value: kv[i+1].(float64)})
	}
	return s
}

func newTB(t *testing.T, dir string, o Options) *TensorBoardTracker {
	t.Helper()
	tr, err := TensorBoard(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

func newWB(t *testing.T, dir string, o Options) *WandBTracker {
	t.Helper()
	tr, err := WandB(WandBConfig{Dir: dir, Project: "math", Tags: []string{"rl"}, Config: map[string]any{"gpus": 8, "lr": 1e-6}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// python runs one of the independent readers and decodes its lines.
func python(t *testing.T, script, path string) []map[string]any {
	t.Helper()
	exe, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("python3 is needed to read the files independently: ", err)
		}
		t.Skip("python3 is not installed: ", err)
	}
	out, err := exec.Command(exe, script, path).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s: %v\n%s", path, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var lines []map[string]any
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var m map[string]any
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	return lines
}

// ownEvents and ownRecords read as the independent readers do, with our codecs. Starting Python for every
// file takes longer than all else: the tests of the cases do, and there the two are compared.
func ownEvents(t *testing.T, path string) []map[string]any {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rd := tfevents.NewReader(f, tfevents.Options{})
	var out []map[string]any
	for {
		e, err := rd.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		values := []any{}
		for _, v := range e.Values {
			text := strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v.Number, 'g', -1, 64), "+"))
			values = append(values, []any{v.Tag, text})
		}
		out = append(out, map[string]any{"step": float64(e.Step), "values": values})
	}
}

func ownRecords(t *testing.T, path string) []map[string]any {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rd := wandbfile.NewReader(f, wandbfile.Options{})
	var out []map[string]any
	for {
		r, err := rd.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		m := map[string]any{"num": float64(r.Num)}
		if r.Kind == wandbfile.KindHistory {
			items := []any{}
			for _, it := range r.Items {
				items = append(items, []any{it.Name(), it.JSON})
			}
			m["history"], m["step"] = items, []any{float64(r.Step)}
		}
		out = append(out, m)
	}
}

// compare checks that both readers see the same.
func compare(t *testing.T, path string, own, independent []map[string]any) {
	t.Helper()
	if len(own) != len(independent) {
		t.Errorf("%s: %d records by our reader, %d by the independent one", path, len(own), len(independent))
		return
	}
	for i := range own {
		for _, key := range []string{"step", "num", "history"} {
			if !reflect.DeepEqual(own[i][key], independent[i][key]) {
				t.Errorf("%s: record %d: %v and %v", path, i, own[i][key], independent[i][key])
			}
		}
	}
}

// by says who reads.
type by bool

const (
	us         by = false
	pythonToo  by = true
	eventsPy      = "../tfevents/testdata/check_events.py"
	runFilesPy    = "../wandbfile/testdata/read_wandb.py"
)

// tbPoints reads the one event file of a directory: points, and events that hold scalars.
func tbPoints(t *testing.T, who by, dir string) (points map[point]string, order []point, events int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: event files %v, %v", dir, found, err)
	}
	points = map[point]string{}
	all := ownEvents(t, found[0])
	if who == pythonToo {
		other := python(t, eventsPy, found[0])
		compare(t, found[0], all, other)
		all = other
	}
	for _, e := range all {
		values := e["values"].([]any)
		if len(values) > 0 {
			events++
		}
		for _, v := range values {
			kv := v.([]any)
			axis, ok := AxisOf(kv[0].(string))
			if !ok {
				t.Fatalf("tag %v", kv[0])
			}
			p := point{kv[0].(string), string(axis), int64(e["step"].(float64))}
			if _, twice := points[p]; twice {
				t.Errorf("%v stands twice in %s", p, found[0])
			}
			points[p] = kv[1].(string)
			order = append(order, p)
		}
	}
	return points, order, events
}

// wbRows reads a run file: the rows and, when Python reads, the records of each other kind.
func wbRows(t *testing.T, who by, path string) (rows []map[string]string, other map[string][]map[string]any) {
	t.Helper()
	other = map[string][]map[string]any{}
	all := ownRecords(t, path)
	if who == pythonToo {
		independent := python(t, runFilesPy, path)
		compare(t, path, all, independent)
		all = independent
	}
	for i, r := range all {
		if int(r["num"].(float64)) != i+1 {
			t.Errorf("record %d has number %v", i+1, r["num"])
		}
		items, ok := r["history"].([]any)
		if !ok {
			for k, v := range r {
				if m, ok := v.(map[string]any); ok {
					other[k] = append(other[k], m)
				} else if k != "num" {
					other[k] = append(other[k], map[string]any{"": v})
				}
			}
			continue
		}
		row := map[string]string{}
		for _, it := range items {
			kv := it.([]any)
			if _, twice := row[kv[0].(string)]; twice {
				t.Errorf("row %d holds %v twice", i, kv[0])
			}
			row[kv[0].(string)] = kv[1].(string)
		}
		if num := r["step"].([]any)[0].(float64); row["_step"] != fmt.Sprint(num) || int(num) != len(rows) {
			t.Errorf("row %d: _step %s, step %v: W&B drops rows whose step does not grow", len(rows), row["_step"], num)
		}
		rows = append(rows, row)
	}
	return rows, other
}

func runFile(t *testing.T, dir, run string, attempt int) string {
	t.Helper()
	tr := &WandBTracker{cfg: WandBConfig{Dir: dir, Project: "math"}}
	path, err := tr.find(run, attempt)
	if err != nil || path == "" {
		t.Fatalf("no file of %s, attempt %d: %v", run, attempt, err)
	}
	return path
}

// tree is every file below dir with its bytes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch g, ok := got[name]; {
		case !ok:
			t.Errorf("%s: %s is missing", what, name)
		case g != want[name]:
			t.Errorf("%s: %s differs (%d bytes, want %d)", what, name, len(g), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is too much", what, name)
		}
	}
}

type logLine struct {
	Axis    Axis
	Step    int64
	Metrics map[string]float64
}

// Case W01: points of three axes interleave, one of them far ahead of the others.
func TestInterleavedAxes(t *testing.T) {
	lines := jsonl[logLine](t, "interleaved.jsonl")
	tbDir, wbDir := t.TempDir(), t.TempDir()
	tb, wb := newTB(t, tbDir, Options{Strict: true}), newWB(t, wbDir, Options{Strict: true})
	both := Multi(tb, wb)
	want := map[point]string{}
	for i, l := range lines {
		s := Step{Run: "run", Axis: l.Axis, Step: l.Step, Time: at(i)}
		for k, v := range l.Metrics {
			s.Metrics = append(s.Metrics, Metric{Key: k, Value: v})
			want[point{k, string(l.Axis), l.Step}] = strconv.FormatFloat(float64(float32(v)), 'g', -1, 64)
		}
		mustLog(t, both, s)
	}
	mustClose(t, both)
	if len(want) != 9 {
		t.Fatalf("the log has %d points, want 9", len(want))
	}
	for name, s := range map[string]Stats{"tensorboard": tb.Stats(), "wandb": wb.Stats()} {
		if s.Steps != 9 || s.Points != 9 || len(s.Rejected) != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}

	got, order, events := tbPoints(t, pythonToo, filepath.Join(tbDir, "run"))
	if events != 9 || len(got) != 9 {
		t.Errorf("tensorboard: %d events, %d points", events, len(got))
	}
	for p, v := range want {
		if g, ok := got[p]; !ok || parse(t, g) != parse(t, v) {
			t.Errorf("tensorboard: %v = %q, want %s", p, g, v)
		}
	}
	// TensorBoard's fast loader forgets what a tag has behind a step that goes back.
	last := map[string]int64{}
	for _, p := range order {
		if s, ok := last[p.key]; ok && p.step <= s {
			t.Errorf("tensorboard: %s goes from step %d to %d", p.key, s, p.step)
		}
		last[p.key] = p.step
	}

	rows, other := wbRows(t, pythonToo, runFile(t, wbDir, "run", 0))
	if len(rows) != 9 {
		t.Fatalf("wandb: %d rows, want 9", len(rows))
	}
	for i, l := range lines {
		row := rows[i]
		if row[string(l.Axis)] != strconv.FormatInt(l.Step, 10) {
			t.Errorf("wandb: row %d: %v, want %s = %d", i, row, l.Axis, l.Step)
		}
		for k, v := range l.Metrics {
			if parse(t, row[k]) != v {
				t.Errorf("wandb: row %d: %s = %s, want %v", i, k, row[k], v)
			}
		}
	}
	// Every key that occurs is declared on the axis it stands beside.
	axisOfKey := map[string]string{}
	globs := map[string]string{}
	for _, m := range other["metric"] {
		step, _ := m["step_metric"].(string)
		if name, ok := m["name"].(string); ok {
			axisOfKey[name] = step
		} else {
			globs[m["glob"].(string)] = step
		}
	}
	for p := range want {
		if axisOfKey[p.key] != p.axis {
			t.Errorf("wandb: %s is declared on %q, want %q", p.key, axisOfKey[p.key], p.axis)
		}
	}
	for glob, axis := range map[string]string{"rollout/*": "rollout/step", "perf/*": "rollout/step", "perf_step/*": "rollout/step", "eval/*": "eval/step", "serving/*": "rollout/step", "train/*": "train/step"} {
		if globs[glob] != axis {
			t.Errorf("wandb: %s is declared on %q, want %q", glob, globs[glob], axis)
		}
	}
}

func parse(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return v
}

func TestAllMetricsOfAStepAreOneRow(t *testing.T) {
	tbDir, wbDir := t.TempDir(), t.TempDir()
	both := Multi(newTB(t, tbDir, Options{}), newWB(t, wbDir, Options{}))
	s := step("run", AxisRollout, 7, at(0), "rollout/reward", 0.5, "perf/rollout_time", 40.0, "perf_step/request/count", 12.0)
	s.Metrics = append(s.Metrics, Metric{Key: "perf/tokens_per_gpu_per_sec", Value: 3, Unknown: true})
	mustLog(t, both, s)
	mustClose(t, both)
	rows, _ := wbRows(t, us, runFile(t, wbDir, "run", 0))
	want := map[string]string{"rollout/step": "7", "rollout/reward": "0.5", "perf/rollout_time": "40", "perf_step/request/count": "12", "_step": "0", "_timestamp": "1.78e+09", "_runtime": "0"}
	if len(rows) != 1 || !reflect.DeepEqual(rows[0], want) {
		t.Errorf("rows %v, want one: %v", rows, want)
	}
	points, _, events := tbPoints(t, us, filepath.Join(tbDir, "run"))
	if events != 1 || len(points) != 3 {
		t.Errorf("%d events with %d points, want 1 with 3", events, len(points))
	}
	for _, tr := range both.(multi) {
		s := tr.(interface{ Stats() Stats }).Stats()
		if s.Unknown != 1 || s.Points != 3 || s.Steps != 1 || len(s.Rejected) != 0 {
			t.Errorf("%T: %+v", tr, s)
		}
	}
}

type segment struct {
	Attempt int
	Step    int64
	Wall    int64
	Metrics map[string]float64
}

func segments(t *testing.T) []Step {
	var out []Step
	for _, l := range jsonl[segment](t, "segments.jsonl") {
		s := Step{Run: "run", Axis: AxisRollout, Step: l.Step, Time: time.Unix(l.Wall, 0)}
		for k, v := range l.Metrics {
			// A second key, since the purge must not depend on the tag, and rows of the other axes.
			s.Metrics = append(s.Metrics, Metric{Key: k, Value: v}, Metric{Key: "rollout/reward", Value: float64(l.Attempt)})
		}
		out = append(out, s)
		train := step("run", AxisTrain, 4*l.Step, time.Unix(l.Wall+60, 0), "train/loss", float64(l.Attempt))
		out = append(out, train)
	}
	return out
}

// Case W03: the job died at step 150 and began again from the checkpoint of step 100.
func TestResume(t *testing.T) {
	steps := segments(t)
	tbDir, wbDir := t.TempDir(), t.TempDir()
	tb, wb := newTB(t, tbDir, Options{Strict: true}), newWB(t, wbDir, Options{Strict: true})
	both := Multi(tb, wb)
	mustLog(t, both, steps...)
	mustClose(t, both)

	attemptOf := func(axis Axis, n int64) float64 {
		if axis == AxisTrain {
			n /= 4
		}
		if n >= 100 {
			return 1
		}
		return 0
	}
	check := func(what string, axis Axis, n int64, key string, got float64) {
		t.Helper()
		a := attemptOf(axis, n)
		want := a
		if key == "perf/rollout_time" {
			want = 40 + 10*a
		}
		if got != want {
			t.Errorf("%s: %s at %d = %v, want %v of attempt %v", what, key, n, got, want, a)
		}
	}
	points, _, events := tbPoints(t, pythonToo, filepath.Join(tbDir, "run"))
	if events != 32 || len(points) != 48 {
		t.Errorf("tensorboard: %d events, %d points; want 16 steps on each of two axes, 48 points", events, len(points))
	}
	for p, v := range points {
		check("tensorboard", Axis(p.axis), p.step, p.key, parse(t, v))
	}
	first, _, _ := tbPoints(t, pythonToo, filepath.Join(tbDir, "run.attempt-0"))
	rows, other := wbRows(t, pythonToo, runFile(t, wbDir, "run", 1))
	firstRows, firstOther := wbRows(t, pythonToo, runFile(t, wbDir, "run", 0))
	if len(rows) != 32 || len(firstRows) != 30 {
		t.Errorf("wandb: %d and %d rows, want 32 and the first attempt's 30", len(rows), len(firstRows))
	}
	seen := map[point]bool{}
	for _, row := range rows {
		for _, axis := range axes {
			n, ok := row[string(axis)]
			if !ok {
				continue
			}
			for k, v := range row {
				if a, ok := AxisOf(k); ok && a == axis && k != string(axis) {
					p := point{k, string(axis), int64(parse(t, n))}
					if seen[p] {
						t.Errorf("wandb: %v twice", p)
					}
					seen[p] = true
					check("wandb", axis, p.step, k, parse(t, v))
				}
			}
		}
	}
	// The tail of the first attempt is kept, whole.
	for n := int64(100); n < 150; n += 10 {
		if v := first[point{"perf/rollout_time", "rollout/step", n}]; parse(t, v) != 40 {
			t.Errorf("attempt 0 at %d: %q", n, v)
		}
	}
	if n := firstRows[20]; n["perf/rollout_time"] != "40" || n["rollout/step"] != "100" {
		t.Errorf("attempt 0 in W&B: %v", n)
	}
	if a, b := other["run"][0]["display_name"], firstOther["run"][0]["display_name"]; a != "run" || b != "run (attempt 0)" {
		t.Errorf("names %v and %v", a, b)
	}
	if a, b := other["run"][0]["id"], firstOther["run"][0]["id"]; a == b || other["run"][0]["group"] != firstOther["run"][0]["group"] {
		t.Errorf("ids %v and %v", a, b)
	}
	if e := firstOther["exit"]; len(e) != 1 || e[0]["1"] != 1.0 {
		t.Errorf("attempt 0 ends with %v", e)
	}

	// Once more over the same files, and once to an empty directory: the same bytes.
	before := tree(t, tbDir)
	maps.Copy(before, tree(t, wbDir))
	again := Multi(newTB(t, tbDir, Options{Strict: true}), newWB(t, wbDir, Options{Strict: true}))
	mustLog(t, again, steps...)
	mustClose(t, again)
	after := tree(t, tbDir)
	maps.Copy(after, tree(t, wbDir))
	sameTree(t, "exported again", after, before)
	tb2, wb2 := t.TempDir(), t.TempDir()
	fresh := Multi(newTB(t, tb2, Options{}), newWB(t, wb2, Options{}))
	mustLog(t, fresh, steps...)
	mustClose(t, fresh)
	other2 := tree(t, tb2)
	maps.Copy(other2, tree(t, wb2))
	sameTree(t, "exported elsewhere", other2, before)
}

// Opening and closing between any two steps changes nothing in the files.
func TestRestartBetweenSteps(t *testing.T) {
	steps := segments(t)
	wantTB, wantWB := t.TempDir(), t.TempDir()
	one := Multi(newTB(t, wantTB, Options{}), newWB(t, wantWB, Options{}))
	mustLog(t, one, steps...)
	mustClose(t, one)
	tbDir, wbDir := t.TempDir(), t.TempDir()
	for _, s := range steps {
		tr := Multi(newTB(t, tbDir, Options{}), newWB(t, wbDir, Options{}))
		mustLog(t, tr, s)
		mustClose(t, tr)
	}
	sameTree(t, "tensorboard", tree(t, tbDir), tree(t, wantTB))
	sameTree(t, "wandb", tree(t, wbDir), tree(t, wantWB))
}

// A crash leaves any prefix of the last write. After it the same step is logged again.
func TestCrashInsideAWrite(t *testing.T) {
	steps := []Step{
		step("run", AxisRollout, 0, at(0), "rollout/reward", 0.5, "perf/rollout_time", 40.0),
		step("run", AxisTrain, 0, at(1), "train/loss", 1.0),
		step("run", AxisRollout, 1, at(2), "rollout/reward", 0.25, "perf/new", 1.0),
	}
	build := func(t *testing.T, dir string, steps []Step) (tb, wb string) {
		both := Multi(newTB(t, filepath.Join(dir, "tb"), Options{}), newWB(t, filepath.Join(dir, "wb"), Options{}))
		mustLog(t, both, steps...)
		mustClose(t, both)
		found, _ := filepath.Glob(filepath.Join(dir, "tb", "run", "*tfevents*"))
		return found[0], runFile(t, filepath.Join(dir, "wb"), "run", 0)
	}
	whole := t.TempDir()
	wholeTB, wholeWB := build(t, whole, steps)
	short := t.TempDir()
	shortTB, shortWB := build(t, short, steps[:2])
	for _, tc := range []struct{ name, whole, short string }{{"tensorboard", wholeTB, shortTB}, {"wandb", wholeWB, shortWB}} {
		t.Run(tc.name, func(t *testing.T) {
			full, err := os.ReadFile(tc.whole)
			if err != nil {
				t.Fatal(err)
			}
			part, err := os.ReadFile(tc.short)
			if err != nil {
				t.Fatal(err)
			}
			from := 0
			for from < len(part) && part[from] == full[from] {
				from++
			}
			for cut := from - 40; cut <= len(full); cut++ {
				if err := os.WriteFile(tc.short, full[:cut], 0o644); err != nil {
					t.Fatal(err)
				}
				build(t, short, steps)
				if got, _ := os.ReadFile(tc.short); !bytes.Equal(got, full) {
					t.Fatalf("crash after byte %d of %d: the file has %d bytes after the repair", cut, len(full), len(got))
				}
			}
		})
	}
}

// A crash between the files of a new attempt: leftovers are finished or removed.
func TestCrashInsideARestart(t *testing.T) {
	steps := segments(t)
	begin := slices.IndexFunc(steps, func(s Step) bool { return s.Axis == AxisRollout && s.Time.Unix() > 1780020000 })
	want := t.TempDir()
	one := Multi(newTB(t, want+"/tb", Options{}), newWB(t, want+"/wb", Options{}))
	mustLog(t, one, steps...)
	mustClose(t, one)
	dir := t.TempDir()
	two := Multi(newTB(t, dir+"/tb", Options{}), newWB(t, dir+"/wb", Options{}))
	mustLog(t, two, steps[:begin]...)
	mustClose(t, two)
	before := tree(t, dir)
	three := Multi(newTB(t, dir+"/tb", Options{}), newWB(t, dir+"/wb", Options{}))
	mustLog(t, three, steps[begin])
	mustClose(t, three)
	// The old files of the runs stand beside the new ones, and a temporary file and directory lie about.
	for name, b := range before {
		if strings.Contains(name, "attempt-") || strings.Contains(name, ".lock") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"tb/run/" + tempPrefix + "1", "wb/" + tempPrefix + "2/run-x.wandb"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	four := Multi(newTB(t, dir+"/tb", Options{}), newWB(t, dir+"/wb", Options{}))
	mustLog(t, four, steps[begin:]...)
	mustClose(t, four)
	sameTree(t, "after the crash", tree(t, dir), tree(t, want))
}

func TestDamagedFilesAreWrittenAgain(t *testing.T) {
	steps := segments(t)[:20]
	dir := t.TempDir()
	one := Multi(newTB(t, dir+"/tb", Options{}), newWB(t, dir+"/wb", Options{}))
	mustLog(t, one, steps...)
	mustClose(t, one)
	tbFile, _ := filepath.Glob(dir + "/tb/run/*tfevents*")
	wbFile := runFile(t, dir+"/wb", "run", 0)
	for _, path := range []string{tbFile[0], wbFile} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	two := Multi(newTB(t, dir+"/tb", Options{}), newWB(t, dir+"/wb", Options{}))
	mustLog(t, two, steps...)
	mustClose(t, two)
	points, _, events := tbPoints(t, us, dir+"/tb/run")
	rows, _ := wbRows(t, us, wbFile)
	if events != 20 || len(points) != 30 || len(rows) != 20 {
		t.Errorf("%d events, %d points, %d rows; want 20, 30, 20", events, len(points), len(rows))
	}
	for _, pattern := range []string{dir + "/tb/run/damaged-*", wbFile + ".damaged"} {
		if kept, _ := filepath.Glob(pattern); len(kept) != 1 {
			t.Errorf("%s: %v", pattern, kept)
		}
	}
}

// A later attempt takes the steps of an axis from where it restarts, also when other axes went on before.
func TestLedger(t *testing.T) {
	r := func(axis uint8, n int64, wall float64) row { return row{place{axis, n}, wall} }
	type ev struct {
		row
		want    verdict
		attempt int
	}
	for name, tc := range map[string]struct {
		events []ev
		active []row
	}{
		"steps may come in any order": {
			[]ev{{r(0, 0, 1), publish, 0}, {r(0, 8073, 2), publish, 0}, {r(0, 2, 3), publish, 0}},
			[]row{r(0, 0, 1), r(0, 2, 3), r(0, 8073, 2)},
		},
		"the same step again": {
			[]ev{{r(0, 0, 1), publish, 0}, {r(0, 0, 1), published, 0}},
			[]row{r(0, 0, 1)},
		},
		"a restart": {
			[]ev{{r(0, 0, 1), publish, 0}, {r(0, 1, 2), publish, 0}, {r(0, 2, 3), publish, 0}, {r(0, 1, 10), publish, 1}, {r(0, 1, 2), published, 1}, {r(0, 2, 11), publish, 1}},
			[]row{r(0, 0, 1), r(0, 1, 10), r(0, 2, 11)},
		},
		"other axes are cut where the restarted one was": {
			[]ev{{r(0, 0, 1), publish, 0}, {r(2, 0, 2), publish, 0}, {r(0, 1, 3), publish, 0}, {r(2, 1, 4), publish, 0}, {r(1, 0, 5), publish, 0}, {r(0, 1, 10), publish, 1}},
			[]row{r(0, 0, 1), r(2, 0, 2), r(0, 1, 10)},
		},
		"an axis that restarts further back": {
			[]ev{{r(2, 7, 1), publish, 0}, {r(2, 8, 2), publish, 0}, {r(0, 1, 3), publish, 0}, {r(0, 1, 10), publish, 1}, {r(2, 7, 11), publish, 1}},
			[]row{r(0, 1, 10), r(2, 7, 11)},
		},
		"twice": {
			[]ev{{r(0, 1, 1), publish, 0}, {r(0, 1, 10), publish, 1}, {r(0, 2, 11), publish, 1}, {r(0, 1, 20), publish, 2}, {r(0, 1, 1), published, 2}, {r(0, 2, 11), published, 2}},
			[]row{r(0, 1, 20)},
		},
		"an old step that comes late": {
			[]ev{{r(0, 1, 1), publish, 0}, {r(0, 2, 2), publish, 0}, {r(0, 2, 10), publish, 1}, {r(0, 3, 3), superseded, 1}, {r(0, 0, 0.5), publish, 1}, {r(0, 2, 1.5), superseded, 1}},
			[]row{r(0, 0, 0.5), r(0, 1, 1), r(0, 2, 10)},
		},
		"a restart that comes out of order": {
			[]ev{{r(0, 1, 1), publish, 0}, {r(0, 2, 2), publish, 0}, {r(0, 2, 11), publish, 1}, {r(0, 1, 10), publish, 1}},
			[]row{r(0, 1, 10), r(0, 2, 11)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for i, e := range tc.events {
				p := l.plan(e.row)
				if p.verdict != e.want {
					t.Fatalf("event %d: verdict %d, want %d", i, p.verdict, e.want)
				}
				if p.verdict == publish {
					l.leave(p)
					l.add(e.row)
				}
				if l.attempt != e.attempt {
					t.Fatalf("event %d: attempt %d, want %d", i, l.attempt, e.attempt)
				}
			}
			want := map[place]float64{}
			for _, r := range tc.active {
				want[r.place] = r.wall
			}
			if !reflect.DeepEqual(l.active, want) {
				t.Errorf("active %v, want %v", l.active, want)
			}
		})
	}
}

// The same steps of two attempts, through files: what the ledger says is what the files hold.
func TestOutOfOrderInFiles(t *testing.T) {
	steps := []Step{
		step("r", AxisRollout, 5, at(5), "rollout/a", 5.0), step("r", AxisRollout, 3, at(6), "rollout/a", 3.0), step("r", AxisEval, 4, at(7), "eval/b", 4.0),
		step("r", AxisRollout, 5, at(20), "rollout/a", 50.0), step("r", AxisRollout, 1, at(1), "rollout/a", 1.0), step("r", AxisRollout, 3, at(19), "rollout/a", 30.0),
	}
	dir := t.TempDir()
	for _, reopen := range []bool{false, true} {
		sub := filepath.Join(dir, fmt.Sprint(reopen))
		tr := Multi(newTB(t, sub+"/tb", Options{}), newWB(t, sub+"/wb", Options{}))
		for _, s := range steps {
			mustLog(t, tr, s)
			if reopen {
				mustClose(t, tr)
				tr = Multi(newTB(t, sub+"/tb", Options{}), newWB(t, sub+"/wb", Options{}))
			}
		}
		mustClose(t, tr)
		points, _, _ := tbPoints(t, us, sub+"/tb/r")
		want := map[point]string{{"rollout/a", "rollout/step", 1}: "1", {"rollout/a", "rollout/step", 3}: "30", {"rollout/a", "rollout/step", 5}: "50"}
		if !reflect.DeepEqual(points, want) {
			t.Errorf("reopened %v: %v, want %v", reopen, points, want)
		}
		rows, _ := wbRows(t, us, runFile(t, sub+"/wb", "r", 1))
		got := map[string]string{}
		for _, row := range rows {
			got[row["rollout/step"]] = row["rollout/a"]
		}
		if len(rows) != 3 || !reflect.DeepEqual(got, map[string]string{"1": "1", "3": "30", "5": "50"}) {
			t.Errorf("reopened %v: %v", reopen, rows)
		}
	}
	sameTree(t, "reopened", tree(t, dir+"/true"), tree(t, dir+"/false"))
}

// A run that is logged backwards is sorted now and then, not at each step, and in any case at the end.
func TestLoggedBackwards(t *testing.T) {
	for _, crash := range []bool{false, true} {
		dir := t.TempDir()
		tb := newTB(t, dir, Options{})
		tb.large = 0
		const n = 400
		for i := range int64(n) {
			mustLog(t, tb, step("run", AxisRollout, n-i, at(int(n-i)), "rollout/a", float64(n-i)))
		}
		rewrites := tb.runs["run"].rev
		if rewrites > 60 {
			t.Errorf("%d rewrites for %d steps", rewrites, n)
		}
		if crash { // without its Close
			tb.runs["run"].f.Close()
			tb.runs = nil
			mustClose(t, tb)
			tb = newTB(t, dir, Options{})
			mustLog(t, tb, step("run", AxisRollout, 1, at(1), "rollout/a", 1.0))
		}
		mustClose(t, tb)
		points, order, _ := tbPoints(t, us, filepath.Join(dir, "run"))
		if len(points) != n {
			t.Errorf("%d points, want %d", len(points), n)
		}
		for i, p := range order {
			if p.step != int64(i+1) {
				t.Fatalf("point %d is step %d", i, p.step)
			}
		}
	}
}

func TestValuesThatAreNotFinite(t *testing.T) {
	tbDir, wbDir := t.TempDir(), t.TempDir()
	tb, wb := newTB(t, tbDir, Options{Strict: true}), newWB(t, wbDir, Options{Strict: true})
	both := Multi(tb, wb)
	mustLog(t, both, step("run", AxisTrain, 1, at(0), "train/a", math.NaN(), "train/b", math.Inf(1), "train/c", math.Inf(-1), "train/d", 1e300))
	mustClose(t, both)
	points, _, _ := tbPoints(t, us, filepath.Join(tbDir, "run"))
	rows, _ := wbRows(t, us, runFile(t, wbDir, "run", 0))
	for key, want := range map[string][2]string{"train/a": {"nan", "NaN"}, "train/b": {"inf", "Infinity"}, "train/c": {"-inf", "-Infinity"}, "train/d": {"inf", "1e+300"}} {
		if got := points[point{key, "train/step", 1}]; got != want[0] {
			t.Errorf("tensorboard: %s = %q, want %q", key, got, want[0])
		}
		if got := rows[0][key]; got != want[1] {
			t.Errorf("wandb: %s = %q, want %q", key, got, want[1])
		}
	}
	if s := tb.Stats(); s.NonFinite != 3 || s.OutOfRange != 1 || s.Points != 4 {
		t.Errorf("tensorboard: %+v", s)
	}
	if s := wb.Stats(); s.NonFinite != 3 || s.OutOfRange != 0 || s.Points != 4 {
		t.Errorf("wandb: %+v", s)
	}
}

// No scraped series gets into a tracker: they belong in the metric store, and slowed W&B down.
func TestScrapedSeriesAreRejected(t *testing.T) {
	bad := map[string]string{
		"sglang:num_running_reqs":              ReasonKey,
		"sglang_num_running_reqs":              ReasonKey,
		"vllm:kv_cache_usage_perc":             ReasonKey,
		"perf/sglang:num_running_reqs":         ReasonKey,
		`serving/ttft_bucket{le="1.0"}`:        ReasonKey,
		`perf/x{engine_type="prefill"}`:        ReasonKey,
		"node_cpu_seconds_total":               ReasonKey,
		"up":                                   ReasonKey,
		"":                                     ReasonKey,
		"perf/":                                ReasonKey,
		"perf//x":                              ReasonKey,
		"perf/a\nb":                            ReasonKey,
		"perf/\xff":                            ReasonKey,
		"perf/" + strings.Repeat("x", 600):     ReasonKey,
		"rollout/step":                         ReasonKey,
		"eval/math":                            ReasonAxis,
		"train/loss":                           ReasonAxis,
		"serving/kv_cache_usage/mean":          ReasonServing,
		"_step":                                ReasonKey,
		"system/gpu.0.memory":                  ReasonKey,
		"perf/rollout_time_that_is_fine/p99.9": "",
	}
	for _, strict := range []bool{false, true} {
		tb, wb := newTB(t, t.TempDir(), Options{Strict: strict}), newWB(t, t.TempDir(), Options{Strict: strict})
		for _, tr := range []Tracker{tb, wb} {
			i := 0
			want := map[string]int64{}
			for key, reason := range bad {
				i++
				s := step("run", AxisRollout, int64(i), at(i), key, 1.0)
				s.Metrics = append(s.Metrics, Metric{Key: "rollout/good", Value: 1})
				err := tr.Log(context.Background(), s)
				var rej *RejectedError
				if (strict && reason != "") != errors.As(err, &rej) || rej != nil && rej.Reason != reason {
					t.Errorf("%T strict=%v: %q: %v", tr, strict, key, err)
				}
				if reason != "" {
					want[reason]++
				}
			}
			got := tr.(interface{ Stats() Stats }).Stats()
			if !reflect.DeepEqual(got.Rejected, want) {
				t.Errorf("%T strict=%v: rejected %v, want %v", tr, strict, got.Rejected, want)
			}
			steps := int64(len(bad)) // the good key of each step is published
			if strict {
				steps = 1
			}
			if got.Steps != steps {
				t.Errorf("%T strict=%v: %d steps, want %d", tr, strict, got.Steps, steps)
			}
		}
	}
	served := newTB(t, t.TempDir(), Options{Serving: true, Strict: true})
	mustLog(t, served, step("run", AxisRollout, 1, at(0), "serving/kv_cache_usage/mean", 0.5))
}

func TestStepsThatAreRefused(t *testing.T) {
	good := step("run", AxisRollout, 1, at(0), "rollout/a", 1.0, "rollout/b", 1.0)
	for reason, change := range map[string]func(*Step){
		ReasonNoStep: func(s *Step) { s.Step = NoStep },
		ReasonNoTime: func(s *Step) { s.Time = time.Time{} },
		ReasonAxis:   func(s *Step) { s.Axis = "global_step" },
		ReasonRun:    func(s *Step) { s.Run = "" },
	} {
		for _, tr := range []Tracker{newTB(t, t.TempDir(), Options{}), newWB(t, t.TempDir(), Options{})} {
			s := good
			change(&s)
			var rej *RejectedError
			if err := tr.Log(context.Background(), s); !errors.As(err, &rej) || rej.Reason != reason || rej.Points != 2 {
				t.Errorf("%T, %s: %v", tr, reason, err)
			}
			if st := tr.(interface{ Stats() Stats }).Stats(); st.Steps != 0 || st.Rejected[reason] != 2 {
				t.Errorf("%T, %s: %+v", tr, reason, st)
			}
		}
	}
	for _, name := range []string{"", " a", "a\n", strings.Repeat("x", 129), "run.attempt-0", "\xff"} {
		if ValidateRun(name) == nil {
			t.Errorf("%q is taken for a run's name", name)
		}
	}
	for _, name := range []string{"run", "größe 7b/seed=1", strings.Repeat("é", 128), "..", "."} {
		if err := ValidateRun(name); err != nil {
			t.Error(err)
		}
	}
	twice := good
	twice.Metrics = append(slices.Clone(twice.Metrics), Metric{Key: "rollout/a", Value: 2})
	tb := newTB(t, t.TempDir(), Options{})
	mustLog(t, tb, twice)
	if s := tb.Stats(); s.Rejected[ReasonRepeated] != 1 || s.Points != 2 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tb.Log(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	mustClose(t, tb)
	if err := tb.Log(context.Background(), good); err == nil {
		t.Error("a closed tracker takes steps")
	}
}

func TestRunNamesStayApart(t *testing.T) {
	dir := t.TempDir()
	tb := newTB(t, dir, Options{})
	names := []string{"a/b", "a%2Fb", "a_b", "..", "größe", "a b"}
	for i, name := range names {
		mustLog(t, tb, step(name, AxisRollout, 1, at(i), "rollout/a", float64(i)))
	}
	mustClose(t, tb)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(names)+1 { // and the lock
		t.Errorf("%v", entries)
	}
	for i, name := range names {
		points, _, _ := tbPoints(t, us, filepath.Join(dir, dirName(name)))
		if got := points[point{"rollout/a", "rollout/step", 1}]; parse(t, got) != float64(i) {
			t.Errorf("%q: %v", name, points)
		}
	}
}

func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	tb := newTB(t, dir, Options{})
	if _, err := TensorBoard(dir, Options{}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second writer: %v", err)
	}
	mustClose(t, tb)
	mustClose(t, newTB(t, dir, Options{}))
}

func TestConcurrentLogs(t *testing.T) {
	tbDir, wbDir := t.TempDir(), t.TempDir()
	both := Multi(newTB(t, tbDir, Options{}), newWB(t, wbDir, Options{}))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range int64(10) {
				if err := both.Log(context.Background(), step("run", AxisRollout, n*8+int64(i), at(int(n)*8+i), "rollout/a", 1.0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, both)
	points, _, _ := tbPoints(t, us, filepath.Join(tbDir, "run"))
	rows, _ := wbRows(t, us, runFile(t, wbDir, "run", 0))
	if len(points) != 80 || len(rows) != 80 {
		t.Errorf("%d points, %d rows", len(points), len(rows))
	}
}

var errNoSpace error = syscall.ENOSPC

// fullDisk is a file on a disk that has room for so many more bytes.
type fullDisk struct {
	file
	room *int
}

func (d fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), *d.room)
	*d.room -= n
	m, err := d.file.Write(b[:n])
	if err == nil && n < len(b) {
		err = fmt.Errorf("write: %w", errNoSpace)
	}
	return m, err
}

func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tensorboard", "wandb"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			room := 1 << 20
			open := func(path string) (file, error) {
				f, err := openAppend(path)
				return fullDisk{f, &room}, err
			}
			var tr Tracker
			if kind == "wandb" {
				wb := newWB(t, dir, Options{})
				wb.open = open
				tr = wb
			} else {
				tb := newTB(t, dir, Options{})
				tb.open = open
				tr = tb
			}
			steps := []Step{step("run", AxisRollout, 0, at(0), "rollout/a", 1.0), step("run", AxisRollout, 1, at(1), "rollout/a", 2.0), step("run", AxisRollout, 2, at(2), "rollout/a", 3.0)}
			mustLog(t, tr, steps[0])
			room = 20
			err := tr.Log(context.Background(), steps[1])
			if !errors.Is(err, errNoSpace) || !strings.Contains(err.Error(), "free space") || !strings.Contains(err.Error(), "rollout/step 1") {
				t.Fatalf("got %v", err)
			}
			room = 1 << 20
			mustLog(t, tr, steps...)
			mustClose(t, tr)
			n := 0
			if kind == "wandb" {
				rows, _ := wbRows(t, us, runFile(t, dir, "run", 0))
				n = len(rows)
			} else {
				_, _, n = tbPoints(t, us, filepath.Join(dir, "run"))
			}
			if n != 3 {
				t.Errorf("%d steps in the file, want 3", n)
			}
		})
	}
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := TensorBoard(filepath.Join(file, "x"), Options{}); err == nil {
		t.Error("a directory below a file")
	}
	if _, err := WandB(WandBConfig{Dir: filepath.Join(file, "x"), Project: "p"}, Options{}); err == nil {
		t.Error("a directory below a file")
	}
}

func TestStepsAreSmall(t *testing.T) {
	// What a run costs on disk: 100 steps of 80 keys take less than 100 bytes a value.
	tbDir, wbDir := t.TempDir(), t.TempDir()
	both := Multi(newTB(t, tbDir, Options{}), newWB(t, wbDir, Options{}))
	for i := range 100 {
		s := Step{Run: "run", Axis: AxisRollout, Step: int64(i), Time: at(i)}
		for k := range 80 {
			s.Metrics = append(s.Metrics, Metric{Key: fmt.Sprintf("perf/request/e2e_latency/p%02d", k), Value: float64(i*k) / 7})
		}
		mustLog(t, both, s)
	}
	mustClose(t, both)
	for _, path := range []string{runFile(t, wbDir, "run", 0)} {
		st, err := os.Stat(path)
		if err != nil || st.Size() > 100*80*100 {
			t.Errorf("%s: %d bytes, %v", path, st.Size(), err)
		}
	}
}

func BenchmarkLog(b *testing.B) {
	for _, kind := range []string{"tensorboard", "wandb"} {
		b.Run(kind, func(b *testing.B) {
			var tr Tracker
			var err error
			if kind == "wandb" {
				tr, err = WandB(WandBConfig{Dir: b.TempDir(), Project: "p"}, Options{})
			} else {
				tr, err = TensorBoard(b.TempDir(), Options{})
			}
			if err != nil {
				b.Fatal(err)
			}
			defer tr.Close()
			s := Step{Run: "run", Axis: AxisRollout, Time: epoch}
			for k := range 80 {
				s.Metrics = append(s.Metrics, Metric{Key: fmt.Sprintf("perf/request/e2e_latency/p%02d", k), Value: float64(k) / 7})
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Step++
				s.Time = s.Time.Add(time.Second)
				if err := tr.Log(context.Background(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The files are what the codecs of this module read as well.
func TestOwnReaders(t *testing.T) {
	dir := t.TempDir()
	wb := newWB(t, dir, Options{})
	mustLog(t, wb, step("run", AxisRollout, 1, at(0), "rollout/a", 1.0))
	mustClose(t, wb)
	s, err := readRun(runFile(t, dir, "run", 0), true)
	if err != nil || !s.ours || !s.whole || s.run.Project != "math" || len(s.rows) != 1 || s.archived {
		t.Errorf("%+v, %v", s, err)
	}
	if v, _ := (&wandbfile.Item{JSON: s.keys["rollout/a"]}).Number(); v != 1 {
		t.Errorf("summary %v", s.keys)
	}
	if got := tfevents.Seconds(at(3)); got != seconds(at(3)) {
		t.Errorf("seconds differ: %v %v", got, seconds(at(3)))
	}
}
