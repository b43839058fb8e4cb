package tracker

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// A run's file of which the beginning is lost is not appended to: what W&B would make of it is no run.
func TestFilesWithoutABeginning(t *testing.T) {
	for _, left := range []string{"\x00\x00\x00\x00\x00\x00\x00\x00\x00", ":W&"} {
		dir := t.TempDir()
		wb := newWB(t, dir, Options{})
		mustLog(t, wb, step("run", AxisRollout, 0, at(0), "rollout/a", 1.0))
		mustClose(t, wb)
		path := runFile(t, dir, "run", 0)
		if err := os.WriteFile(path, []byte(left), 0o644); err != nil {
			t.Fatal(err)
		}
		wb = newWB(t, dir, Options{})
		if err := wb.Log(t.Context(), step("run", AxisRollout, 1, at(1), "rollout/a", 2.0)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", left, err)
		}
		mustClose(t, wb)
		if b, err := os.ReadFile(path); err != nil || string(b) != left {
			t.Errorf("%q became %q, %v", left, b, err)
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
