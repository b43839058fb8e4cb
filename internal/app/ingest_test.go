package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/internal/tfevents"
	"github.com/rollscope/rollscope/internal/tracker"
)

// partial writes two steps, of which the second holds samples that the first began.
func partial(t *testing.T) string {
	o := small()
	o.Partial, o.Samples = 0.8, 24
	return simulate(t, rolls.RunOptions{Step: o}, 2)
}

// A request counts in the step that it ran in, also when a later dump brings it, and also when the process
// was started anew between the two.
func TestCarriedRequestsComeHome(t *testing.T) {
	dir := partial(t)
	zero, one := join(dir, "rollout_0.pt"), join(dir, "rollout_1.pt")
	results, err := Perf(t.Context(), PerfOptions{Files: []string{zero, one}})
	if err != nil {
		t.Fatal(err)
	}
	const count = "perf_step/request/count"
	of := func(r *rollout.MetricsResult, key string) float64 {
		for _, m := range r.PerfStep {
			if m.Key == key {
				return m.Value
			}
		}
		t.Fatalf("no %s", key)
		return 0
	}
	for _, again := range []bool{false, true} {
		store := openStore(t, t.TempDir())
		g := &ingest{store: store, logger: quiet, version: "test"}
		first := putDump(t, g, "math", zero)
		before := metricOf(t, store, first, count).Value
		if again {
			g = &ingest{store: store, logger: quiet, version: "test"}
		}
		second := putDump(t, g, "math", one)
		after := metricOf(t, store, first, count).Value
		if before >= after {
			t.Fatalf("restarted %t: step 0 had %g requests and has %g: nothing came home", again, before, after)
		}
		for i, id := range []rolloutstore.ID{first, second} {
			for _, key := range []string{count, "perf_step/request/e2e_latency/mean", "perf_step/request/e2e_latency/max"} {
				if got, want := metricOf(t, store, id, key).Value, of(results[i].Result, key); got != want {
					t.Errorf("restarted %t: %s of step %d is %g, both dumps together say %g", again, key, i, got, want)
				}
			}
		}
		// Read once more, the second dump brings nothing twice.
		putDump(t, g, "math", one)
		if got := metricOf(t, store, first, count).Value; got != after {
			t.Errorf("restarted %t: the same dump again makes %g requests of %g", again, got, after)
		}
	}
	// The dump of the first step is gone: what can be known is known.
	store := openStore(t, t.TempDir())
	first := putDump(t, &ingest{store: store, logger: quiet, version: "test"}, "math", zero)
	before := metricOf(t, store, first, count).Value
	if err := os.Remove(zero); err != nil {
		t.Fatal(err)
	}
	second := putDump(t, &ingest{store: store, logger: quiet, version: "test"}, "math", one)
	if metricOf(t, store, first, count).Value != before || metricOf(t, store, second, count).Value != of(results[1].Result, count) {
		t.Error("a dump that is gone changed what its step has")
	}
}

// tree is every file below a directory with its bytes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		b, err := os.ReadFile(path)
		out[path[len(dir):]] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// points reads all event files below a directory: run directory, step, tag.
func points(t *testing.T, dir string) map[string]map[int64][]string {
	t.Helper()
	out := map[string]map[int64][]string{}
	for path, text := range tree(t, dir) {
		r := tfevents.NewReader(strings.NewReader(text), tfevents.Options{})
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			run := strings.Trim(filepath.Dir(path), "/")
			if out[run] == nil {
				out[run] = map[int64][]string{}
			}
			for _, v := range e.Values {
				out[run][e.Step] = append(out[run][e.Step], v.Tag)
			}
		}
	}
	return out
}

func tensorboard(t *testing.T, dir string, o tracker.Options) *tracker.TensorBoardTracker {
	t.Helper()
	tb, err := tracker.TensorBoard(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

// A step is published once, whether the store's mark or the process was lost on the way.
func TestPublishedOnce(t *testing.T) {
	dumpDir, out, data := partial(t), t.TempDir(), t.TempDir()
	var before map[string]string
	for round, store := range []string{data, data, t.TempDir()} { // again; and without the store's marks
		s := openStore(t, store)
		tb := tensorboard(t, out, tracker.Options{})
		g := &ingest{store: s, logger: quiet, version: "test", trackers: []openTracker{{Tracker: tb, name: "tensorboard"}}}
		for _, name := range []string{"rollout_0.pt", "rollout_1.pt"} {
			id := putDump(t, g, "math", join(dumpDir, name))
			sum, err := s.Find(id)
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := sum.PublishedTo("tensorboard"); !ok || p.Note != "" {
				t.Errorf("round %d: step %s is not marked, or with a note: %+v", round, id, p)
			}
		}
		if err := tb.Close(); err != nil {
			t.Fatal(err)
		}
		now := tree(t, out)
		if round == 0 {
			before = now
			if st := tb.Stats(); st.Steps != 2 || st.Points == 0 {
				t.Fatalf("%+v", st)
			}
			continue
		}
		if st := tb.Stats(); st.Steps != 0 {
			t.Errorf("round %d: %d steps were written again", round, st.Steps)
		}
		for path, b := range before {
			if now[path] != b {
				t.Errorf("round %d: %s changed", round, path)
			}
		}
		if len(now) != len(before) {
			t.Errorf("round %d: %d files, there were %d", round, len(now), len(before))
		}
	}
}

// stubborn fails until it is told not to.
type stubborn struct {
	tracker.Tracker
	fails bool
}

func (s *stubborn) Log(ctx context.Context, st tracker.Step) error {
	if s.fails {
		return errors.New("no space left on device")
	}
	return s.Tracker.Log(ctx, st)
}

// What a tracker could not take it gets later; another one has it at once. The step is in the index.
func TestPublishRest(t *testing.T) {
	dumpDir, good, bad := partial(t), t.TempDir(), t.TempDir()
	store := openStore(t, t.TempDir())
	one, two := tensorboard(t, good, tracker.Options{}), &stubborn{tensorboard(t, bad, tracker.Options{}), true}
	g := &ingest{store: store, logger: quiet, version: "test", trackers: []openTracker{{Tracker: two, name: "full"}, {Tracker: one, name: "good"}}}
	putDump(t, g, "math", join(dumpDir, "rollout_1.pt"))
	putDump(t, g, "math", join(dumpDir, "rollout_0.pt"))
	if st := one.Stats(); st.Steps != 2 {
		t.Errorf("the good tracker has %d steps", st.Steps)
	}
	var lock sync.Mutex
	if left, err := g.publishRest(t.Context(), &lock); err == nil || left != 2 || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%d steps wait, %v", left, err)
	}
	two.fails = false
	if left, err := g.publishRest(t.Context(), &lock); err != nil || left != 0 {
		t.Errorf("%d steps wait, %v", left, err)
	}
	for _, tr := range []tracker.Tracker{one, two} {
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := points(t, bad), points(t, good); len(got["math"]) != 2 || len(got["math"][0]) != len(want["math"][0]) {
		t.Errorf("the two trackers differ: %d and %d steps", len(got["math"]), len(want["math"]))
	}
	// A tracker that refuses for good is not asked again: the mark says why.
	g.trackers = []openTracker{{Tracker: refuser{}, name: "strict"}}
	if left, err := g.publishRest(t.Context(), &lock); err != nil || left != 0 {
		t.Errorf("%d steps wait, %v", left, err)
	}
	sum, err := store.Find(rolloutstore.ID{Run: "math", Kind: rollout.Train, RolloutID: 1, Attempt: rolloutstore.Newest})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := sum.PublishedTo("strict"); !ok || !strings.Contains(p.Note, "x{le=") {
		t.Errorf("the mark of a refused step: %+v, %t", p, ok)
	}
}

type refuser struct{ tracker.Tracker }

func (refuser) Log(_ context.Context, s tracker.Step) error {
	return &tracker.RejectedError{Run: s.Run, Axis: s.Axis, Step: s.Step, Reason: tracker.ReasonKey, Points: 1, Detail: `x{le="1"}`}
}

// A key that is of no family of ours is left out and counted; the rest of the step is there.
func TestRejectedKey(t *testing.T) {
	dumpDir, out := partial(t), t.TempDir()
	store := openStore(t, t.TempDir())
	tb := tensorboard(t, out, tracker.Options{})
	g := &ingest{store: store, logger: quiet, version: "test", trackers: []openTracker{{Tracker: tb, name: "tensorboard"}}}
	g.serving = func(context.Context, *rolloutstore.Summary) []tracker.Metric {
		return []tracker.Metric{{Key: "sglang:num_running_reqs", Value: 3}, {Key: "serving/kv_usage/mean", Value: 0.5}}
	}
	id := putDump(t, g, "math", join(dumpDir, "rollout_0.pt"))
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	st := tb.Stats()
	if st.Rejected[tracker.ReasonKey] != 1 || st.Rejected[tracker.ReasonServing] != 1 || st.Steps != 1 || st.Points < 20 {
		t.Errorf("%+v", st)
	}
	tags := points(t, out)["math"][0]
	if slices.Contains(tags, "sglang:num_running_reqs") || !slices.Contains(tags, "perf_step/request/count") {
		t.Errorf("tags %v", tags)
	}
	if id.RolloutID != 0 {
		t.Errorf("id %s", id)
	}
	counted := map[string]int64{}
	for _, d := range g.drops() {
		counted[d.Source+" "+d.Reason] = d.Count
	}
	if counted["tensorboard key"] != 1 || counted["tensorboard serving_not_enabled"] != 1 {
		t.Errorf("drops %v", counted)
	}
}

// An evaluation has keys of its own, on an axis of its own.
func TestEvaluationKeys(t *testing.T) {
	path := join(t.TempDir(), "rollout_eval_6.pt")
	writeDump(t, path, rolls.Options{Eval: true, RolloutID: 6, Samples: 16, GroupSize: 4, Datasets: []string{"aime", "gsm8k"}, Response: rolls.Lengths{Median: 30, Max: 99}})
	out := t.TempDir()
	store := openStore(t, t.TempDir())
	tb := tensorboard(t, out, tracker.Options{Strict: true})
	g := &ingest{store: store, logger: quiet, version: "test", trackers: []openTracker{{Tracker: tb, name: "tensorboard"}}}
	st, err := dumps.Read(t.Context(), path, dumps.ReadOptions{Metrics: rollout.MetricOptions{EvalDatasets: []rollout.EvalDataset{{Name: "aime", Samples: 8}, {Name: "gsm8k", Samples: 8}}}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := g.put(t.Context(), "math", st)
	if err != nil {
		t.Fatal(err)
	}
	if id.String() != "math/eval-6.0" {
		t.Errorf("id %s", id)
	}
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	if s := tb.Stats(); s.Steps != 1 || len(s.Rejected) != 0 {
		t.Errorf("%+v", s)
	}
	step, err := store.Step(id)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"eval/aime": false, "eval/gsm8k": false, "eval_perf/wall_time": false, "eval_perf/reward/mean": false, "eval_perf/request/count": false}
	for _, m := range step.Metrics {
		if axisOf(m.Key) != "eval/step" {
			t.Errorf("%s of an evaluation is on %s", m.Key, axisOf(m.Key))
		}
		if _, ok := want[m.Key]; ok {
			want[m.Key] = true
		}
	}
	tags := points(t, out)["math"][6]
	for key, there := range want {
		if !there || !slices.Contains(tags, key) {
			t.Errorf("%s: in the store %t, in TensorBoard %t", key, there, slices.Contains(tags, key))
		}
	}
}

// part opens the rollouts of a data directory as serve does.
func part(t *testing.T, dir string) *rolloutPart {
	t.Helper()
	p, err := openRollouts(dir, "test", quiet, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rolloutConfig(pattern, scalars, tensorboard string) *config.Config {
	cfg := &config.Config{Path: "rollscope.yaml"}
	if pattern != "" {
		cfg.Rollscope.Rollouts = []config.Rollout{{Run: "math", Path: pattern, Scalars: scalars}}
	}
	cfg.Rollscope.Trackers.TensorBoard = tensorboard
	return cfg
}

// A rollout of which samples are missing is marked: its values are of a part.
func TestIncompleteReceived(t *testing.T) {
	path := join(t.TempDir(), "rollout_3.pt")
	o := small()
	o.RolloutID = 3
	writeDump(t, path, o)
	p := part(t, t.TempDir())
	defer p.close()
	if err := p.apply(rolloutConfig("", "", "")); err != nil {
		t.Fatal(err)
	}
	if err := p.Received(t.Context(), dumps.ReceivedDump{Run: "posted", Path: path, RolloutID: 3, Incomplete: true, Lost: 2, Missing: 1}); err != nil {
		t.Fatal(err)
	}
	if err := p.Received(t.Context(), dumps.ReceivedDump{Run: "whole", Path: path, RolloutID: 3}); err != nil {
		t.Fatal(err)
	}
	id := rolloutstore.ID{Run: "posted", Kind: rollout.Train, RolloutID: 3, Attempt: rolloutstore.Newest}
	m := metricOf(t, p.store, id, "rollout/reward/mean")
	if m.State != rolloutstore.Partial || !strings.Contains(m.Note, "2 samples") {
		t.Errorf("the reward of a part of the samples: %+v", m)
	}
	st, err := p.store.Step(id)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(st.Problems, func(p rolloutstore.Problem) bool {
		return p.Code == "incomplete" && strings.Contains(p.What, "1 parts")
	}) {
		t.Errorf("problems %+v", st.Problems)
	}
	steps, err := p.face.Steps(t.Context(), "posted", "train", nil)
	if err != nil || len(steps) != 1 || steps[0].Reward.Value == nil || steps[0].Reward.Caveat == "" {
		t.Errorf("in the list: %+v, %v", steps, err)
	}
	id.Run = "whole"
	if m := metricOf(t, p.store, id, "rollout/reward/mean"); m.State != rolloutstore.Value || m.Note != "" {
		t.Errorf("the reward of all: %+v", m)
	}
}

// The configuration can be read again with a tracker in use, with another one, and without.
func TestApplyAgain(t *testing.T) {
	dumpDir := partial(t)
	p := part(t, t.TempDir())
	defer p.close()
	pattern := join(dumpDir, "rollout_{rollout_id}.pt")
	one, two := join(t.TempDir(), "tb"), join(t.TempDir(), "tb")
	apply := func(cfg *config.Config) {
		t.Helper()
		if err := p.apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	apply(rolloutConfig(pattern, "", one))
	handle := func(id int64) {
		t.Helper()
		if err := p.Handle(t.Context(), dumps.Found{Run: "math", Path: join(dumpDir, "rollout_"+string(rune('0'+id))+".pt"), Kind: rollout.Train, RolloutID: id}); err != nil {
			t.Fatal(err)
		}
	}
	handle(0)
	apply(rolloutConfig(pattern, "", one)) // nothing changed
	handle(1)
	first := rolloutstore.ID{Run: "math", Kind: rollout.Train, RolloutID: 0, Attempt: rolloutstore.Newest}
	carried := metricOf(t, p.store, first, "perf_step/request/count").Value
	if step, err := p.store.Step(first); err != nil || carried <= float64(step.Counts.Requests) {
		t.Errorf("requests that were carried over did not come home over a reload: %g, %v", carried, err)
	}
	strict := rolloutConfig(pattern, "", one)
	strict.Rollscope.Trackers.Strict = true
	apply(strict) // the same directory with other settings
	if got := points(t, one)["math"]; len(got) != 2 {
		t.Errorf("the first directory has %d steps", len(got))
	}
	bad := rolloutConfig(pattern, "", writeTemp(t, "no directory"))
	if err := p.apply(bad); err == nil || !strings.Contains(err.Error(), "trackers.tensorboard") {
		t.Errorf("a file as directory: %v", err)
	}
	apply(strict)
	apply(rolloutConfig(pattern, "", two))
	apply(rolloutConfig(pattern, "", ""))
	if tb, err := tracker.TensorBoard(one, tracker.Options{}); err != nil {
		t.Errorf("the directory is still locked: %v", err)
	} else if err := tb.Close(); err != nil {
		t.Error(err)
	}
}

func writeTemp(t *testing.T, text string) string {
	t.Helper()
	path := join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The trainer's curves are there after the job, when its files are gone.
func TestCurvesAreKept(t *testing.T) {
	trainer, data := t.TempDir(), t.TempDir()
	f, err := os.Create(join(trainer, "events.out.tfevents.1.trainer.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	w := tfevents.NewWriter(f, 0)
	if err := w.WriteVersion(1); err != nil {
		t.Fatal(err)
	}
	write := func(step int64, v float64) {
		t.Helper()
		if err := w.Write(&tfevents.Event{WallTime: 1.8e9 + float64(step), Step: step, Values: []tfevents.Value{{Tag: "train/loss", Number: v}, {Tag: "perf/rollout_time", Number: 7}}}); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 2)
	write(1, 1)
	p := part(t, data)
	pattern := join(t.TempDir(), "rollout_{rollout_id}.pt")
	if err := p.apply(rolloutConfig(pattern, trainer, "")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	until(t, "the curve is read", func() bool { c := p.curvesOf("math"); _, ok := c.At("train/loss", 1); return ok })
	if got := p.rolloutTime("math", rollout.Train, 1); got != 7 {
		t.Errorf("the trainer's rollout time is %g", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}

	// The next start goes on where the last one ended: what was read is not read again.
	write(2, 0.5)
	p = part(t, data)
	if err := p.apply(rolloutConfig(pattern, trainer, "")); err != nil {
		t.Fatal(err)
	}
	if v, ok := p.curvesOf("math").At("train/loss", 1); !ok || v != 1 {
		t.Errorf("after the restart, before anything is read: %g, %t", v, ok)
	}
	follower := p.current().curves["math"]
	if err := follower.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, ok := p.curvesOf("math").At("train/loss", 2); !ok || v != 0.5 {
		t.Errorf("what came meanwhile: %g, %t", v, ok)
	}
	kept := int64(0)
	p.keepCurves("math", follower, &kept)
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), os.RemoveAll(trainer)); err != nil {
		t.Fatal(err)
	}
	archive := openKept(data, quiet)
	if c := archive("math"); c == nil {
		t.Fatal("the archive has no curves")
	} else if v, ok := c.At("train/loss", 2); !ok || v != 0.5 || c.Dir() != trainer {
		t.Errorf("in the archive: %g, %t, of %s", v, ok, c.Dir())
	}
	if archive("other") != nil {
		t.Error("a run without curves has some")
	}
	// One that is damaged does not hide the others, nor stops a start.
	if err := os.WriteFile(curvesFile(data, "bad/run"), []byte(`{"run":`), 0o644); err != nil {
		t.Fatal(err)
	}
	if openKept(data, quiet)("math") == nil {
		t.Error("a damaged file hides the others")
	}
	if err := os.WriteFile(curvesFile(data, "math"), []byte(`{"run":"math","path":"`+trainer+`","cursor":"bm8gY3Vyc29y"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	p = part(t, data)
	defer p.close()
	if err := p.apply(rolloutConfig(pattern, trainer, "")); err != nil {
		t.Errorf("a cursor of another version: %v", err)
	}
}

// until waits for a condition, a minute at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}
