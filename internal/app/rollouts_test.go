package app

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/sim/rolls"
)

// The face of a run of three steps and two evaluations.
func TestRolloutsFace(t *testing.T) {
	o := small()
	o.Partial, o.MultiTurn, o.TrainTime = 0.5, 0.5, 30*time.Second
	dir := simulate(t, rolls.RunOptions{Step: o, Eval: 2, EvalSamples: 4}, 3)
	store := openStore(t, t.TempDir())
	g := &ingest{store: store, logger: quiet, version: "test"}
	for _, name := range []string{"rollout_eval_0.pt", "rollout_0.pt", "rollout_1.pt", "rollout_eval_2.pt", "rollout_2.pt"} {
		putDump(t, g, "math", join(dir, name))
	}
	face := newRollouts(store, func(run string) curveSource {
		if run != "math" {
			return nil
		}
		return fakeCurves{"train/loss": {0: 0.5, 2: 0.25}, "rollout/reward/mean": {1: 99}}
	})
	face.watched = func(run string) []api.Dump { return []api.Dump{{Path: join(dir, "rollout_3.pt"), State: "incomplete"}} }

	runs, err := face.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || runs[0].Steps != 3 || runs[0].EvalSteps != 2 || *runs[0].FirstStep != 0 || *runs[0].LastStep != 2 || len(runs[0].Files) != 1 || runs[0].ScalarsDir == "" {
		t.Fatalf("%+v", runs)
	}
	sources := map[string]string{}
	for _, c := range runs[0].Metrics {
		if sources[c.Key] != "" {
			t.Errorf("%s is listed twice", c.Key)
		}
		sources[c.Key] = c.Source + " " + c.Axis
	}
	for key, want := range map[string]string{
		"train/loss": "trainer train/step", "rollout/reward/mean": "dump rollout/step", "perf_step/wall_time": "dump rollout/step", "eval_perf/wall_time": "dump eval/step",
	} {
		if sources[key] != want {
			t.Errorf("%s: %q, want %q", key, sources[key], want)
		}
	}
	if *runs[0].From >= *runs[0].To {
		t.Errorf("from %s to %s", *runs[0].From, *runs[0].To)
	}

	steps, err := face.Steps(t.Context(), "math", "", []string{"train/loss", "perf_step/request/count", "rollout/reward/mean"})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range steps {
		order = append(order, s.Timeline)
		if s.Wall.Value == nil || len(s.Parts) == 0 || s.Samples == 0 || s.Start == nil || !s.DumpExists || s.Attempts != 1 {
			t.Fatalf("step %s %d: %+v", s.Kind, s.ID, s)
		}
		sum, share := 0.0, 0.0
		for _, p := range s.Parts {
			sum, share = sum+p.Seconds, share+p.Share
		}
		if math.Abs(sum-*s.Wall.Value) > 0.01**s.Wall.Value || math.Abs(share-1) > 0.01 {
			t.Errorf("step %s %d: its parts add up to %g s (%g) of %g s", s.Kind, s.ID, sum, share, *s.Wall.Value)
		}
		if s.Kind == "train" && s.Reward.Value == nil {
			t.Errorf("step %d has no reward: %+v", s.ID, s.Reward)
		}
		detail, err := face.Step(t.Context(), api.StepKey{Run: "math", Kind: s.Kind, ID: s.ID, Attempt: -1})
		if err != nil {
			t.Fatal(err)
		}
		if *detail.Step.Wall.Value != *s.Wall.Value || *detail.Step.Reward.Value != *s.Reward.Value || len(detail.Wall.Parts) != len(s.Parts) {
			t.Errorf("step %s %d: list and detail differ: %+v, %+v", s.Kind, s.ID, s, detail.Step)
		}
		for i, p := range detail.Wall.Parts {
			if p.Name != s.Parts[i].Name || math.Abs(p.Seconds-s.Parts[i].Seconds) > 1e-9 || math.Abs(p.Share-s.Parts[i].Share) > 1e-9 {
				t.Errorf("part %+v in the detail, %+v in the list", p, s.Parts[i])
			}
		}
	}
	if want := []string{"math/train-0.0", "math/train-1.0", "math/train-2.0", "math/eval-0.0", "math/eval-2.0"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	// The trainer's curve where it has a value, and ours where both have the key.
	if v := steps[0].Values["train/loss"]; v.Value == nil || *v.Value != 0.5 {
		t.Errorf("train/loss of step 0: %+v", v)
	}
	if v := steps[1].Values["train/loss"]; v.Value != nil || v.State != api.StateUnknown || v.Reason == "" {
		t.Errorf("train/loss of step 1, which has none: %+v", v)
	}
	if v := steps[1].Values["rollout/reward/mean"]; v.Value == nil || *v.Value == 99 {
		t.Errorf("the dump's reward gives way to the trainer's: %+v", v)
	}

	detail := func(kind string, id int64, attempt int) api.StepDetail {
		t.Helper()
		d, err := face.Step(t.Context(), api.StepKey{Run: "math", Kind: kind, ID: id, Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	near := func(d api.StepDetail) (out [2]int64) {
		out = [2]int64{-1, -1}
		for i, p := range []*int64{d.Prev, d.Next} {
			if p != nil {
				out[i] = *p
			}
		}
		return out
	}
	for _, c := range []struct {
		kind string
		id   int64
		want [2]int64
	}{{"train", 0, [2]int64{-1, 1}}, {"train", 1, [2]int64{0, 2}}, {"train", 2, [2]int64{1, -1}}, {"eval", 0, [2]int64{-1, 2}}, {"eval", 2, [2]int64{0, -1}}} {
		if got := near(detail(c.kind, c.id, -1)); got != c.want {
			t.Errorf("%s %d stands between %v, want %v", c.kind, c.id, got, c.want)
		}
	}
	d := detail("train", 2, -1)
	if !slices.ContainsFunc(d.Metrics, func(m api.StepMetric) bool {
		return m.Key == "train/loss" && m.Value.Value != nil && *m.Value.Value == 0.25
	}) {
		t.Error("the detail lacks the trainer's loss")
	}
	if d.Mark == "" || d.Path != join(dir, "rollout_2.pt") || len(d.Wall.Held) == 0 {
		t.Errorf("%+v", d)
	}
	for key, want := range map[api.StepKey]string{
		{Run: "none", Kind: "train", ID: 0, Attempt: -1}: "not_found", {Run: "math", Kind: "train", ID: 9, Attempt: -1}: "not_found",
		{Run: "math", Kind: "eval", ID: 1, Attempt: -1}: "not_found", {Run: "math", Kind: "train", ID: 0, Attempt: 1}: "not_found",
	} {
		if _, err := face.Step(t.Context(), key); code(err) != want {
			t.Errorf("%+v: %v", key, err)
		}
	}
	if _, err := face.Steps(t.Context(), "none", "", nil); code(err) != "not_found" {
		t.Errorf("steps of an unknown run: %v", err)
	}
	if _, err := face.Receive(t.Context(), strings.NewReader("")); code(err) != "not_enabled" {
		t.Errorf("an archive takes samples: %v", err)
	}

	// The job goes back to step 1: a second attempt, and what stood after it is superseded.
	again := o
	again.RolloutID, again.Seed, again.Start = 1, 77, steps2time(t, *runs[0].To).Add(time.Hour)
	writeDump(t, join(dir, "rollout_1.pt"), again)
	if id := putDump(t, g, "math", join(dir, "rollout_1.pt")); id.Attempt != 1 {
		t.Fatalf("the second attempt is %s", id)
	}
	d = detail("train", 1, -1)
	if d.Step.Attempt != 1 || d.Step.Attempts != 2 || d.Step.Timeline != "math/train-1.1" {
		t.Errorf("%+v", d.Step)
	}
	old := detail("train", 1, 0)
	if old.Step.Attempt != 0 || old.Step.Attempts != 2 || old.Mark == d.Mark || near(old) != [2]int64{0, 2} {
		t.Errorf("the first attempt: %+v", old)
	}
	hasNote := func(d api.StepDetail, code string) bool {
		return slices.ContainsFunc(d.Notes, func(w api.Warning) bool { return w.Code == code })
	}
	if !hasNote(old, "dump_gone") || old.Step.DumpExists {
		t.Errorf("the dump of the first attempt was replaced, and nothing says so: %+v", old.Notes)
	}
	if !hasNote(detail("train", 2, -1), "superseded") || hasNote(detail("train", 0, -1), "superseded") {
		t.Error("step 2 is superseded, step 0 is not")
	}

	// Timelines: one a step, the same index while nothing changes.
	list, err := face.Timelines(t.Context())
	if err != nil || len(list) != 5 {
		t.Fatalf("%d timelines, %v", len(list), err)
	}
	a, err := face.Timeline(t.Context(), "math/train-1.1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := face.Timeline(t.Context(), "math/train-1") // the newest attempt
	if err != nil || a != b {
		t.Errorf("the same timeline is read twice: %v", err)
	}
	first, err := face.Timeline(t.Context(), "math/train-1.0")
	if err != nil || first == a {
		t.Errorf("the first attempt's timeline: %v", err)
	}
	for _, id := range []string{"math/train-9", "math", "", "none/train-0.0", "math/train-1.7"} {
		if _, err := face.Timeline(t.Context(), id); code(err) != "not_found" {
			t.Errorf("timeline %q: %v", id, err)
		}
		if _, err := face.Text(t.Context(), id, 0); code(err) != "not_found" {
			t.Errorf("text of %q: %v", id, err)
		}
	}
}

func steps2time(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Texts come out of the dump, and only out of the one that the step was read from.
func TestRolloutsText(t *testing.T) {
	path := join(t.TempDir(), "rollout_4.pt")
	o := small()
	o.RolloutID = 4
	writeDump(t, path, o)
	store := openStore(t, t.TempDir())
	g := &ingest{store: store, logger: quiet, version: "test"}
	id := putDump(t, g, "math", path).String()
	face := newRollouts(store, nil)
	seen := map[string]bool{}
	for row := range o.Samples {
		text, err := face.Text(t.Context(), id, row)
		if err != nil {
			t.Fatal(err)
		}
		if text.Prompt == "" || text.Response == "" || !text.Tokens || text.Cut {
			t.Errorf("row %d: %+v", row, text)
		}
		seen[text.Response] = true
	}
	if len(seen) < o.Samples/2 {
		t.Errorf("%d samples have %d different responses", o.Samples, len(seen))
	}
	want := map[int]string{}
	f, opts, err := openDump(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rollout.Read(f, opts, func(s *rollout.Sample) error {
		want[s.Ordinal] = s.Raw.Field("response").Str()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := face.Text(t.Context(), id, 5); err != nil || text.Response != want[5] || want[5] == "" {
		t.Errorf("row 5: %q, want %q, %v", text.Response, want[5], err)
	}
	if _, err := face.Text(t.Context(), id, o.Samples); code(err) != "not_found" {
		t.Errorf("a row that is not there: %v", err)
	}
	// Touched, moved back, but the same content: still there.
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := face.Text(t.Context(), id, 0); err != nil {
		t.Errorf("a dump that was touched: %v", err)
	}
	o.Seed = 6
	writeDump(t, path, o)
	if _, err := face.Text(t.Context(), id, 0); code(err) != "not_found" {
		t.Errorf("a dump that was replaced: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := face.Text(t.Context(), id, 0); code(err) != "not_found" {
		t.Errorf("a dump that is gone: %v", err)
	}
}

// A number that is not there is not 0: idle, unknown and partial stay apart.
func TestPointStates(t *testing.T) {
	for _, c := range []struct {
		in    rolloutstore.Metric
		state api.State
		value bool
		says  string
	}{
		{rolloutstore.Metric{Value: 2}, api.StateValue, true, ""},
		{rolloutstore.Metric{Value: 2, Derived: true}, api.StateValue, true, "derived"},
		{rolloutstore.Metric{Value: 2, State: rolloutstore.Partial}, api.StateValue, true, "part"},
		{rolloutstore.Metric{State: rolloutstore.Idle}, api.StateIdle, false, ""},
		{rolloutstore.Metric{State: rolloutstore.Unknown, Note: "no gpus"}, api.StateUnknown, false, "no gpus"},
	} {
		n := metricNumber(c.in)
		if n.State != c.state || (n.Value != nil) != c.value || !strings.Contains(n.Caveat+n.Reason, c.says) {
			t.Errorf("%+v: %+v", c.in, n)
		}
	}
}
