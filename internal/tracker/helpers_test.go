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
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

func parse(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return v
}
