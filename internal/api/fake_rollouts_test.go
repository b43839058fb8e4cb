package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"sync"
	"testing"

	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/timeline"
)

// fakeTimeline is the id of the one timeline that there is. Ids have slashes.
const fakeTimeline = "math-7b/train-7.0"

var fakeTimelinePath = ours + "/timelines/" + url.PathEscape(fakeTimeline)

// fakeDump is a step of prefill and decode on engines of their own.
const fakeDump = "../../torchfile/testdata/dumps/f02_head_pd_children.pt"

var readFakeDump = sync.OnceValues(func() (*timeline.Index, error) {
	st, err := dumps.Read(context.Background(), fakeDump, dumps.ReadOptions{Tool: "1.2.3", NoMetrics: true})
	if err != nil {
		return nil, err
	}
	return timeline.NewIndex(st.Columns), nil
})

func timelineOf(t testing.TB) *timeline.Index {
	t.Helper()
	ix, err := readFakeDump()
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// fakeRollouts are two runs: one with steps, and one whose dumps have not come yet.
type fakeRollouts struct{ receiveErr error }

func (fakeRollouts) Runs(context.Context) ([]Run, error) {
	return []Run{
		{Name: "a-new-run", Pattern: "/runs/8/rollout_{rollout_id}.pt", Files: []Dump{{Path: "/runs/8/rollout_0.pt", State: "incomplete", Reason: "no central directory", Bytes: 1234}}},
		{Name: "math-7b", Pattern: "/runs/7/rollout_{rollout_id}.pt", Steps: 2, EvalSteps: 1, FirstStep: ptr(int64(6)), LastStep: ptr(int64(7)), GPUs: 64,
			From: ptr("2026-01-02T14:00:00Z"), To: ptr("2026-01-02T14:20:00Z"), ScalarsDir: "/runs/7/tb",
			Metrics: []Curve{{Key: "perf_step/wall_time", Source: "dump", Unit: "s", Axis: "rollout/step"}, {Key: "train/loss", Source: "trainer", Axis: "train/step"}}},
	}, nil
}

func missingRun(run string) error {
	if run == "math-7b" {
		return nil
	}
	return &Error{Code: "not_found", Message: fmt.Sprintf("there is no run %q", run), Hint: "GET /api/rollscope/v1/rollouts lists them"}
}

func (fakeRollouts) Steps(_ context.Context, run, kind string, metrics []string) ([]Step, error) {
	if err := missingRun(run); err != nil {
		return nil, err
	}
	step := func(kind string, id int64, from, to string) Step {
		s := Step{Run: run, Kind: kind, ID: id, Attempts: 1, Samples: 16, Requests: 20, Statuses: map[string]int{"completed": 15, "aborted": 1},
			Start: ptr(from), End: ptr(to), Wall: Number{Value: ptr(600.0), State: StateValue}, Reward: Number{Value: ptr(0.5), State: StateValue},
			Parts: []TimePart{{Name: "decode", Seconds: 540, Share: 0.9}, {Name: "straggler", Seconds: 60, Share: 0.1}}, Timeline: fakeTimeline, DumpExists: true,
			Values: map[string]Number{}}
		for _, m := range metrics {
			s.Values[m] = Number{Value: ptr(float64(len(m))), State: StateValue}
		}
		return s
	}
	out := []Step{step("train", 6, "2026-01-02T14:00:00Z", "2026-01-02T14:10:00Z"), step("train", 7, "2026-01-02T14:10:00Z", "2026-01-02T14:20:00Z"), step("eval", 7, "2026-01-02T14:20:00Z", "2026-01-02T14:21:00Z")}
	untraced := Step{Run: run, Kind: "eval", ID: 9, Attempts: 1, Wall: Number{State: StateUnknown, Reason: "no sample has a trace"}}
	var some []Step
	for _, s := range append(out, untraced) {
		if kind == "" || s.Kind == kind {
			some = append(some, s)
		}
	}
	return some, nil
}

func (f fakeRollouts) Step(ctx context.Context, key StepKey) (StepDetail, error) {
	steps, err := f.Steps(ctx, key.Run, key.Kind, nil)
	if err != nil {
		return StepDetail{}, err
	}
	for _, s := range steps {
		if s.ID == key.ID && key.Attempt <= s.Attempt {
			return StepDetail{Step: s, Metrics: []StepMetric{{Key: "perf_step/wall_time", Value: s.Wall, Unit: "s"}}, Wall: StepWallTime{Wall: s.Wall, Parts: s.Parts},
				Path: "/runs/7/rollout_7.pt", Bytes: 123456, Mark: "z1:00", Prev: ptr(int64(6))}, nil
		}
	}
	return StepDetail{}, &Error{Code: "not_found", Message: fmt.Sprintf("run %q has no %s step %d attempt %d", key.Run, key.Kind, key.ID, key.Attempt)}
}

func (f fakeRollouts) Receive(_ context.Context, body io.Reader) (Received, error) {
	if f.receiveErr != nil {
		return Received{}, f.receiveErr
	}
	var got Received
	if err := json.NewDecoder(body).Decode(&got); err != nil {
		return Received{}, &Error{Code: "malformed", Message: "line 1: " + err.Error()}
	}
	got.Total = got.Samples + 1
	return got, nil
}

func (fakeRollouts) Watching() bool { return true }

type fakeTimelines struct{ ix *timeline.Index }

func (f fakeTimelines) Timelines(context.Context) ([]TimelineInfo, error) {
	return []TimelineInfo{{ID: fakeTimeline, Name: "rollout_7.pt", Run: "math-7b", Kind: "train", Step: ptr(int64(7)), Samples: f.ix.Rows()}}, nil
}

func (f fakeTimelines) Timeline(_ context.Context, id string) (*timeline.Index, error) {
	if id != fakeTimeline {
		return nil, &Error{Code: "not_found", Message: fmt.Sprintf("there is no timeline %q", id)}
	}
	return f.ix, nil
}

func (f fakeTimelines) Text(ctx context.Context, id string, row int) (SampleText, error) {
	if _, err := f.Timeline(ctx, id); err != nil {
		return SampleText{}, err
	}
	if row > 0 {
		return SampleText{}, &Error{Code: "not_found", Message: fmt.Sprintf("the dump has no sample %d", row), Where: "/runs/7/rollout_7.pt"}
	}
	return SampleText{Prompt: "What is <b>1+1</b>?", Response: "2", Tokens: true}, nil
}
