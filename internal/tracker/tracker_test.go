package tracker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
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
