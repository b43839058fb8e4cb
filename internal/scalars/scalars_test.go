package scalars

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/tfevents"
	"github.com/rollscope/rollscope/internal/wandbfile"
)

const t0 = 1780000000.0

// ev is an event of scalars, on a clock of seconds since t0.
func ev(wall float64, step int64, kv ...any) tfevents.Event {
	e := tfevents.Event{WallTime: t0 + wall, Step: step}
	for i := 0; i < len(kv); i += 2 {
		e.Values = append(e.Values, tfevents.Value{Tag: kv[i].(string), Number: kv[i+1].(float64)})
	}
	return e
}

func begin(wall float64) tfevents.Event {
	return tfevents.Event{WallTime: t0 + wall, FileVersion: tfevents.FileVersion}
}

func start(wall float64, step int64) tfevents.Event {
	return tfevents.Event{WallTime: t0 + wall, Step: step, Session: tfevents.SessionStart}
}

func events(list ...tfevents.Event) []byte {
	var b []byte
	for i := range list {
		b = tfevents.AppendRecord(b, &list[i])
	}
	return b
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func grow(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string, o Options) *Follower {
	t.Helper()
	f, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func poll(t *testing.T, f *Follower) {
	t.Helper()
	if err := f.Poll(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// curves is every tag's points as "step:value".
func curves(f *Follower) map[string]string {
	out := map[string]string{}
	for _, tag := range f.Tags() {
		c, _ := f.Curve(tag)
		var parts []string
		for _, p := range c.Points {
			parts = append(parts, fmt.Sprintf("%d:%v", p.Step, p.Value))
		}
		out[tag] = strings.Join(parts, " ")
	}
	return out
}

func want(t *testing.T, what string, f *Follower, curve map[string]string) {
	t.Helper()
	if got := curves(f); !reflect.DeepEqual(got, curve) {
		t.Errorf("%s:\ngot  %v\nwant %v", what, got, curve)
	}
}

// slimeLog is what slime's TensorBoard adapter writes: one event for each key.
func slimeLog() []byte {
	return events(begin(0),
		ev(1, 0, "rollout/raw_reward", 0.25), ev(1, 0, "rollout/response_lengths", 100.0), ev(1, 0, "perf/rollout_time", 40.0),
		ev(2, 0, "train/loss", 1.0), ev(2, 0, "train/kl_loss", 0.5), ev(2, 0, "train/entropy_loss", 0.125), ev(2, 0, "train/grad_norm", 2.0),
		ev(3, 1, "train/loss", 0.5), ev(3, 1, "train/kl_loss", math.NaN()),
		ev(4, 1, "rollout/raw_reward", 0.5), ev(5, 0, "eval/aime", 0.75))
}

func TestSlimeRun(t *testing.T) {
	dir := t.TempDir()
	f := open(t, filepath.Join(dir, "tb"), Options{})
	poll(t, f) // the trainer has not begun
	if len(f.Tags()) != 0 || f.Dir() != "" {
		t.Errorf("tags %v, dir %q", f.Tags(), f.Dir())
	}
	write(t, filepath.Join(dir, "tb", "events.out.tfevents.1780000000.node1.77.0"), slimeLog())
	write(t, filepath.Join(dir, "tb", "config.yaml"), []byte("x"))
	poll(t, f)
	want(t, "slime", f, map[string]string{
		"rollout/raw_reward": "0:0.25 1:0.5", "rollout/response_lengths": "0:100", "perf/rollout_time": "0:40",
		"train/loss": "0:1 1:0.5", "train/kl_loss": "0:0.5 1:NaN", "train/entropy_loss": "0:0.125", "train/grad_norm": "0:2", "eval/aime": "0:0.75",
	})
	for tag, axis := range map[string]string{"rollout/raw_reward": "rollout/step", "perf/rollout_time": "rollout/step", "train/loss": "train/step", "eval/aime": "eval/step"} {
		if c, ok := f.Curve(tag); !ok || c.Axis != axis || c.Stride != 1 {
			t.Errorf("%s: %+v", tag, c)
		}
	}
	c, _ := f.Curve("train/loss")
	if !c.Points[1].Time.Equal(time.Unix(1780000003, 0)) {
		t.Errorf("time %v", c.Points[1].Time)
	}
	if got := f.Headline(); !reflect.DeepEqual(got, map[Role]string{RoleReward: "rollout/raw_reward", RoleLoss: "train/loss", RoleKL: "train/kl_loss", RoleEntropy: "train/entropy_loss", RoleGradNorm: "train/grad_norm"}) {
		t.Errorf("headline %v", got)
	}
	if _, ok := f.Curve("none"); ok {
		t.Error("a curve of no tag")
	}
}

// Whatever part of the file a poll sees, the curves are the same in the end and never hold what is not there.
func TestGrowingFile(t *testing.T) {
	data := slimeLog()
	whole := open(t, write(t, filepath.Join(t.TempDir(), "x.tfevents"), data), Options{})
	poll(t, whole)
	for _, by := range []int{1, 7, 64, 1000} {
		path := filepath.Join(t.TempDir(), "events.out.tfevents.1.n.1.0")
		f := open(t, filepath.Dir(path), Options{})
		for i := 0; i < len(data); i += by {
			grow(t, path, data[i:min(i+by, len(data))])
			poll(t, f)
		}
		want(t, fmt.Sprintf("in pieces of %d", by), f, curves(whole))
		if s := f.Stats(); len(s.Dropped) > 0 && s.Dropped[DroppedCorrupt] > 0 || s.Points != 11 || s.Files != 1 {
			t.Errorf("in pieces of %d: %+v", by, s)
		}
	}
}

func TestRunsThatBeganAgain(t *testing.T) {
	one := []tfevents.Event{begin(0)}
	for i := range 6 {
		w := float64(10 * i)
		one = append(one, ev(w+1, int64(i), "rollout/reward", float64(i), "perf/time", 1.0), ev(w+2, int64(2*i), "train/loss", float64(i)), ev(w+3, int64(2*i+1), "train/loss", float64(i)))
	}
	// Resumed from the checkpoint of rollout 4: train/step 8. It logs perf/time no more.
	two := []tfevents.Event{begin(1000), ev(1001, 4, "rollout/reward", 40.0), ev(1002, 8, "train/loss", 80.0), ev(1003, 9, "train/loss", 90.0), ev(1011, 5, "rollout/reward", 50.0)}
	resumed := map[string]string{
		"rollout/reward": "0:0 1:1 2:2 3:3 4:40 5:50",
		"perf/time":      "0:1 1:1 2:1 3:1", // the same axis, cut alike
		"train/loss":     "0:0 1:0 2:1 3:1 4:2 5:2 6:3 7:3 8:80 9:90",
	}
	for name, tc := range map[string]struct {
		files [][]tfevents.Event
		want  map[string]string
		drops int64
	}{
		"a resumed run": {[][]tfevents.Event{one, two}, resumed, 2 + 2 + 4},
		"twice": {[][]tfevents.Event{one, two, {begin(2000), ev(2001, 1, "rollout/reward", 100.0)}}, map[string]string{
			"rollout/reward": "0:0 1:100", "perf/time": "0:1", "train/loss": resumed["train/loss"],
		}, 8 + 5 + 3},
		"two writers at once": {
			[][]tfevents.Event{
				{begin(0), ev(10, 0, "perf/time", 1.0), ev(20, 1, "perf/time", 2.0), ev(30, 2, "perf/time", 3.0)},
				{begin(1), ev(11, 0, "perf/train_time", 4.0), ev(21, 1, "perf/train_time", 5.0)},
			},
			map[string]string{"perf/time": "0:1 1:2 2:3", "perf/train_time": "0:4 1:5"}, 0,
		},
		"two writers of one tag at once": {
			[][]tfevents.Event{
				{begin(0), ev(10, 0, "perf/time", 1.0), ev(30, 2, "perf/time", 3.0)},
				{begin(1), ev(11, 1, "perf/time", 2.0), ev(31, 3, "perf/time", 4.0)},
			},
			map[string]string{"perf/time": "0:1 1:2 2:3 3:4"}, 0,
		},
		"a session start": {
			[][]tfevents.Event{one, {begin(1000), start(1000, 3), ev(1001, 3, "rollout/reward", 30.0)}},
			map[string]string{"rollout/reward": "0:0 1:1 2:2 3:30", "perf/time": "0:1 1:1 2:1", "train/loss": "0:0 1:0 2:1"}, 3 + 3 + 9,
		},
		"a session start in the same file": {
			[][]tfevents.Event{{begin(0), ev(1, 0, "loss", 1.0), ev(2, 1, "loss", 2.0), ev(3, 2, "loss", 3.0), start(4, 1), ev(5, 1, "loss", 4.0)}},
			map[string]string{"loss": "0:1 1:4"}, 2,
		},
		"the same step twice in a file": {
			[][]tfevents.Event{{begin(0), ev(1, 0, "loss", 1.0), ev(2, 5, "loss", 2.0), ev(3, 0, "loss", 3.0), ev(4, 2, "loss", 4.0)}},
			map[string]string{"loss": "0:3 2:4 5:2"}, 0,
		},
		"a later run that goes on": {
			[][]tfevents.Event{{begin(0), ev(1, 0, "loss", 1.0)}, {begin(10), ev(11, 1, "loss", 2.0)}},
			map[string]string{"loss": "0:1 1:2"}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var paths []string
			for i, list := range tc.files {
				paths = append(paths, write(t, filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%d.n.1.%d", int64(list[0].WallTime), i)), events(list...)))
			}
			f := open(t, dir, Options{})
			poll(t, f)
			want(t, "at once", f, tc.want)
			if got := f.Stats().Dropped[DroppedSuperseded]; got != tc.drops {
				t.Errorf("superseded %d, want %d", got, tc.drops)
			}
			// File by file, event by event, polled after each: the same.
			live := t.TempDir()
			g := open(t, live, Options{})
			for i, list := range tc.files {
				for _, e := range list {
					grow(t, filepath.Join(live, filepath.Base(paths[i])), events(e))
					poll(t, g)
				}
			}
			want(t, "live", g, tc.want)
			// Resumed in the middle.
			cursor, err := f.Cursor()
			if err != nil {
				t.Fatal(err)
			}
			h := open(t, dir, Options{Resume: cursor})
			want(t, "resumed", h, tc.want)
			poll(t, h)
			want(t, "resumed and polled", h, tc.want)
			if !reflect.DeepEqual(h.Stats(), f.Stats()) {
				t.Errorf("counters %+v, want %+v", h.Stats(), f.Stats())
			}
		})
	}
}

// What an older file's writer logged before the resumed one began arrives late, as on NFS.
func TestLatePartOfAnOldFile(t *testing.T) {
	dir := t.TempDir()
	one := filepath.Join(dir, "events.out.tfevents.1.n.1.0")
	write(t, one, events(begin(0), ev(1, 0, "loss", 0.0), ev(2, 1, "loss", 1.0)))
	write(t, filepath.Join(dir, "events.out.tfevents.2.n.1.0"), events(begin(100), ev(101, 2, "loss", 20.0)))
	f := open(t, dir, Options{})
	poll(t, f)
	grow(t, one, events(ev(3, 2, "loss", 2.0), ev(4, 3, "loss", 3.0)))
	poll(t, f)
	want(t, "late", f, map[string]string{"loss": "0:0 1:1 2:20"})
	if got := f.Stats().Dropped[DroppedSuperseded]; got != 2 {
		t.Errorf("superseded %d, want 2", got)
	}
}

func TestFileThatIsWrittenAnew(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "events.out.tfevents.1.n.1.0"), events(begin(0), ev(1, 0, "loss", 1.0), ev(2, 1, "loss", 2.0)))
	f := open(t, filepath.Dir(path), Options{})
	poll(t, f)
	write(t, path, events(begin(10), ev(11, 0, "loss", 9.0)))
	poll(t, f)
	want(t, "anew", f, map[string]string{"loss": "0:9"})
	if got := f.Stats().Dropped[DroppedRewritten]; got != 2 {
		t.Errorf("dropped %v", f.Stats().Dropped)
	}
}

func TestDamage(t *testing.T) {
	dir := t.TempDir()
	good := events(begin(0), ev(1, 0, "loss", 1.0))
	bad := append(bytes.Clone(good), events(ev(2, 1, "loss", 2.0))...)
	bad[len(bad)-1] ^= 1
	path := write(t, filepath.Join(dir, "events.out.tfevents.1.n.1.0"), bad)
	var log bytes.Buffer
	f := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		poll(t, f) // its last record may be in writing
	}
	want(t, "damaged at the end", f, map[string]string{"loss": "0:1"})
	if f.Stats().Dropped[DroppedCorrupt] != 0 {
		t.Errorf("counted too early: %v", f.Stats())
	}
	grow(t, path, events(ev(3, 2, "loss", 3.0)))
	poll(t, f)
	want(t, "damaged in the middle", f, map[string]string{"loss": "0:1 2:3"})
	head := events(ev(4, 3, "loss", 4.0), ev(5, 4, "loss", 5.0))
	head[0] ^= 1
	grow(t, path, head)
	for range 3 {
		poll(t, f)
	}
	want(t, "a damaged length", f, map[string]string{"loss": "0:1 2:3"})
	if f.Stats().Dropped[DroppedCorrupt] != 2 || strings.Count(log.String(), "level=WARN") != 2 {
		t.Errorf("%v\n%s", f.Stats(), log.String())
	}
	// Other files of the run are read on.
	write(t, filepath.Join(dir, "events.out.tfevents.2.n.1.0"), events(begin(10), ev(11, 5, "loss", 6.0)))
	poll(t, f)
	want(t, "the other file", f, map[string]string{"loss": "0:1 2:3 5:6"})
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	list := []tfevents.Event{begin(0)}
	for i := range 1000 {
		list = append(list, ev(float64(i), int64(i), "a", float64(i), fmt.Sprintf("tag%d", i%50), 1.0))
	}
	write(t, filepath.Join(dir, "events.out.tfevents.1.n.1.0"), events(list...))
	f := open(t, dir, Options{MaxPoints: 64, MaxTags: 10})
	poll(t, f)
	c, _ := f.Curve("a")
	if n := len(c.Points); n < 32 || n > 64 || int64(n)+c.Thinned != 1000 || c.Stride < 16 {
		t.Errorf("%d points, thinned %d, stride %d", n, c.Thinned, c.Stride)
	}
	if c.Points[0].Step != 0 || c.Points[len(c.Points)-1].Step != 999 {
		t.Errorf("from %d to %d: the ends are kept", c.Points[0].Step, c.Points[len(c.Points)-1].Step)
	}
	for i := 1; i < len(c.Points); i++ {
		if gap := c.Points[i].Step - c.Points[i-1].Step; gap < 1 || gap > 2*c.Stride {
			t.Errorf("a gap of %d steps at %d: not even", gap, c.Points[i].Step)
		}
		if c.Points[i].Value != float64(c.Points[i].Step) {
			t.Errorf("step %d has %v", c.Points[i].Step, c.Points[i].Value)
		}
	}
	s := f.Stats()
	if len(f.Tags()) != 10 || s.Dropped[DroppedTags] != 41*20 || s.Dropped[DroppedThinned] != c.Thinned {
		t.Errorf("%d tags, %v", len(f.Tags()), s.Dropped)
	}
	if _, err := Open("", Options{}); err == nil {
		t.Error("an empty path")
	}
	if _, err := Open("x", Options{MaxPoints: 1}); err == nil {
		t.Error("one point")
	}
}

func TestNewestRunOfADirectory(t *testing.T) {
	root := t.TempDir()
	old := write(t, filepath.Join(root, "math", "20260101_000000", "events.out.tfevents.1.n.1.0"), events(begin(0), ev(1, 0, "loss", 1.0)))
	if err := os.Chtimes(old, time.Unix(1000, 0), time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	newest := write(t, filepath.Join(root, "math", "20260102_000000", "events.out.tfevents.2.n.1.0"), events(begin(10), ev(11, 0, "loss", 2.0)))
	f := open(t, root, Options{})
	poll(t, f)
	want(t, "newest", f, map[string]string{"loss": "0:2"})
	if f.Dir() != filepath.Dir(newest) {
		t.Errorf("follows %s", f.Dir())
	}
}

func row(step int64, wall float64, kv ...any) *wandbfile.Record {
	r := &wandbfile.Record{Kind: wandbfile.KindHistory, Step: step, HasStep: true}
	for i := 0; i < len(kv); i += 2 {
		it := wandbfile.Item{Key: kv[i].(string)}
		switch v := kv[i+1].(type) {
		case float64:
			it.JSON = wandbfile.NumberJSON(v)
		case string:
			it.JSON = v
		}
		r.Items = append(r.Items, it)
	}
	r.Items = append(r.Items, wandbfile.Item{Key: "_timestamp", JSON: wandbfile.NumberJSON(t0 + wall)}, wandbfile.Item{Key: "_step", JSON: fmt.Sprint(step)})
	return r
}

func runFileOf(t *testing.T, records ...*wandbfile.Record) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := wandbfile.NewWriter(&buf, 0, 0).Write(records...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func runInfo(wall float64) *wandbfile.Record {
	return &wandbfile.Record{Kind: wandbfile.KindRun, Run: &wandbfile.Run{ID: "abc", Project: "math", StartTime: time.Unix(int64(t0+wall), 0)}}
}

func define(glob, axis string) *wandbfile.Record {
	m := &wandbfile.Metric{StepMetric: axis}
	if strings.HasSuffix(glob, "*") {
		m.Glob = glob
	} else {
		m.Name = glob
	}
	return &wandbfile.Record{Kind: wandbfile.KindMetric, Metric: m}
}

func TestWandBRun(t *testing.T) {
	dir := t.TempDir()
	data := runFileOf(t, &wandbfile.Record{Kind: wandbfile.KindHeader, Producer: "0.20"}, runInfo(0),
		define("rollout/*", "rollout/step"), define("train/*", "train/step"), define("special", "train/step"), define("eval/*", "eval/epoch"), define("eval/long/*", "eval/step"),
		row(0, 1, "rollout/step", 0.0, "rollout/raw_reward", 0.5, "perf/rollout_time", 40.0),
		row(1, 2, "train/step", 0.0, "train/loss", 1.0, "train/kl_loss", "NaN", "special", 7.0, "plain", 3.0, "text", `"x"`, "image", `{"_type":"image-file"}`),
		row(2, 3, "train/step", 1.0, "train/loss", `"Infinity"`),
		row(3, 4, "eval/step", 5.0, "eval/math", 0.1, "eval/long/math", 0.2),
		&wandbfile.Record{Kind: wandbfile.KindHistory, Step: 4, HasStep: true, Items: []wandbfile.Item{{Nested: []string{"a", "b"}, JSON: "2"}}},
		&wandbfile.Record{Kind: wandbfile.KindSummary}, &wandbfile.Record{Kind: wandbfile.KindExit})
	path := write(t, filepath.Join(dir, "wandb", "run-20260528_202640-abc", "run-abc.wandb"), nil)
	expect := map[string]string{
		"rollout/raw_reward": "0:0.5", "perf/rollout_time": "0:40", "train/loss": "0:1 1:+Inf", "train/kl_loss": "0:NaN", "special": "0:7", "plain": "1:3", "eval/long/math": "5:0.2", "a.b": "4:2",
	}
	followers := map[string]*Follower{
		"the file": open(t, path, Options{}), "its directory": open(t, filepath.Dir(path), Options{}), "the wandb directory": open(t, filepath.Join(dir, "wandb"), Options{}),
	}
	for i := 0; i < len(data); i += 50 {
		grow(t, path, data[i:min(i+50, len(data))])
		for _, f := range followers {
			poll(t, f)
		}
	}
	for name, f := range followers {
		want(t, name, f, expect)
		if s := f.Stats(); s.Dropped[DroppedNoAxis] != 1 || s.Dropped[DroppedCorrupt] != 0 {
			t.Errorf("%s: %v", name, s.Dropped)
		}
		for tag, axis := range map[string]string{"train/loss": "train/step", "special": "train/step", "plain": "_step", "perf/rollout_time": "rollout/step"} {
			if c, _ := f.Curve(tag); c.Axis != axis {
				t.Errorf("%s: %s over %q, want %q", name, tag, c.Axis, axis)
			}
		}
	}
}

// A file may have its size before it has a byte, as on NFS: it is read once it has them.
func TestFileThatIsAHoleFirst(t *testing.T) {
	for name, data := range map[string][]byte{
		"events.out.tfevents.1.n.1.0": events(begin(0), ev(1, 0, "train/loss", 1.0)),
		"run-abc.wandb":               runFileOf(t, runInfo(0), row(0, 1, "train/step", 0.0, "train/loss", 1.0)),
	} {
		path := write(t, filepath.Join(t.TempDir(), name), nil)
		f := open(t, path, Options{})
		poll(t, f)
		write(t, path, make([]byte, len(data)))
		for range 2 {
			poll(t, f)
		}
		if s := f.Stats(); len(f.Tags()) != 0 || s.Dropped[DroppedCorrupt] != 0 {
			t.Errorf("%s: out of nothing: %v, %+v", name, f.Tags(), s)
		}
		write(t, path, data)
		poll(t, f)
		want(t, name, f, map[string]string{"train/loss": "0:1"})
	}
}

// A resumed W&B run has a second directory with the same id.
func TestResumedWandBRun(t *testing.T) {
	root := t.TempDir()
	defs := []*wandbfile.Record{define("train/*", "train/step")}
	rows := func(wall float64, from, to int, v float64) []*wandbfile.Record {
		out := append([]*wandbfile.Record{runInfo(wall)}, defs...)
		for i := from; i < to; i++ {
			out = append(out, row(int64(i), wall+float64(i), "train/step", float64(i), "train/loss", v))
		}
		return out
	}
	write(t, filepath.Join(root, "offline-run-20260528_202640-abc", "run-abc.wandb"), runFileOf(t, rows(0, 0, 5, 1)...))
	write(t, filepath.Join(root, "run-20260528_212640-abc", "run-abc.wandb"), runFileOf(t, rows(1000, 3, 6, 2)...))
	f := open(t, root, Options{})
	poll(t, f)
	want(t, "resumed", f, map[string]string{"train/loss": "0:1 1:1 2:1 3:2 4:2 5:2"})
	if s := f.Stats(); s.Files != 2 || s.Dropped[DroppedSuperseded] != 2 {
		t.Errorf("%+v", s)
	}
}

func TestNotARunFile(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "run-x.wandb"), []byte("something else entirely"))
	var log bytes.Buffer
	f := open(t, path, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		poll(t, f)
	}
	if strings.Count(log.String(), "not a W&B run file") != 1 {
		t.Errorf("logged: %s", log.String())
	}
}

func TestCursorOfSomethingElse(t *testing.T) {
	f := open(t, "a", Options{})
	cursor, err := f.Cursor()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open("b", Options{Resume: cursor}); err == nil {
		t.Error("a cursor of another path")
	}
	if _, err := Open("a", Options{Resume: cursor[:len(cursor)/2]}); err == nil {
		t.Error("half a cursor")
	}
}

func TestRunEnds(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "events.out.tfevents.1.n.1.0"), events(begin(0), ev(1, 0, "loss", 1.0)))
	f := open(t, dir, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	tick, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx, tick)
	}()
	tick <- time.Time{} // taken once the first poll is over
	grow(t, path, events(ev(2, 1, "loss", 2.0)))
	tick <- time.Time{}
	tick <- time.Time{}
	want(t, "ticked", f, map[string]string{"loss": "0:1 1:2"})
	cancel()
	<-done
	if err := f.Poll(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzFollow(f *testing.F) {
	f.Add(slimeLog(), events(begin(5), ev(6, 0, "train/loss", 1.0)), 40)
	f.Add(events(begin(0), start(0, 0)), []byte{1, 2, 3}, 3)
	f.Fuzz(func(t *testing.T, one, two []byte, split int) {
		if split < 0 || split > len(one) {
			return
		}
		dir := t.TempDir()
		a, b := filepath.Join(dir, "events.out.tfevents.1.n.1.0"), filepath.Join(dir, "events.out.tfevents.2.n.1.0")
		fol := open(t, dir, Options{MaxPoints: 16, MaxTags: 4})
		write(t, a, one[:split])
		poll(t, fol)
		grow(t, a, one[split:])
		write(t, b, two)
		poll(t, fol)
		for _, tag := range fol.Tags() {
			c, _ := fol.Curve(tag)
			if len(c.Points) > 16 {
				t.Fatalf("%q has %d points", tag, len(c.Points))
			}
			for i := 1; i < len(c.Points); i++ {
				if c.Points[i].Step <= c.Points[i-1].Step {
					t.Fatalf("%q goes from step %d to %d", tag, c.Points[i-1].Step, c.Points[i].Step)
				}
			}
		}
		cursor, err := fol.Cursor()
		if err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, Options{MaxPoints: 16, MaxTags: 4, Resume: cursor})
		if !reflect.DeepEqual(curves(again), curves(fol)) {
			t.Fatal("the cursor loses points")
		}
	})
}

func BenchmarkFollow(b *testing.B) {
	list := []tfevents.Event{begin(0)}
	for i := range 2000 {
		e := ev(float64(i), int64(i))
		for k := range 40 {
			e.Values = append(e.Values, tfevents.Value{Tag: fmt.Sprintf("train/metric%02d", k), Number: float64(i)})
		}
		list = append(list, e)
	}
	dir := b.TempDir()
	data := events(list...)
	if err := os.WriteFile(filepath.Join(dir, "events.out.tfevents.1.n.1.0"), data, 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Poll(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
