package tracker

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/wandbfile"
)

func axesCase(t *testing.T) (defs []Definition, rows []map[string]float64) {
	t.Helper()
	b, err := os.ReadFile("testdata/axes.json")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Define []Definition
		Rows   []map[string]float64
	}
	if err := json.Unmarshal(b, &in); err != nil {
		t.Fatal(err)
	}
	return in.Define, in.Rows
}

// Case W05: eval/* is declared on eval/epoch, the rows carry eval/global_step.
func TestDeclaredAxisIsNeverLogged(t *testing.T) {
	defs, rows := axesCase(t)
	got := CheckAxes(defs, rows)
	want := AxisFinding{Definition: Definition{"eval/*", "eval/epoch"}, Rows: 2, Missing: 2, Proposal: "eval/global_step"}
	if len(got) != 1 || got[0] != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for _, part := range []string{"eval/*", "eval/epoch", "no row", "eval/global_step"} {
		if !strings.Contains(got[0].String(), part) {
			t.Errorf("%q does not say %q", got[0], part)
		}
	}
	if fine := CheckAxes([]Definition{{"eval/*", "eval/global_step"}, defs[0]}, rows); len(fine) != 0 {
		t.Errorf("declared rightly, yet %v", fine)
	}
}

// The same from a run file, as a trainer wrote it.
func TestCheckRunFile(t *testing.T) {
	defs, rows := axesCase(t)
	records := []*wandbfile.Record{{Kind: wandbfile.KindRun, Run: &wandbfile.Run{ID: "x"}}}
	for _, d := range defs {
		records = append(records, &wandbfile.Record{Kind: wandbfile.KindMetric, Metric: &wandbfile.Metric{Glob: d.Glob, StepMetric: d.Step}})
	}
	for _, row := range rows {
		rec := &wandbfile.Record{Kind: wandbfile.KindHistory, Items: []wandbfile.Item{{Key: "note", JSON: `"text"`}}}
		for k, v := range row {
			rec.Items = append(rec.Items, wandbfile.Item{Key: k, JSON: wandbfile.NumberJSON(v)})
		}
		records = append(records, rec)
	}
	var buf bytes.Buffer
	if err := wandbfile.NewWriter(&buf, 0, 0).Write(records...); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run-x.wandb")
	if err := os.WriteFile(path, append(buf.Bytes(), 1, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := CheckRunFile(path)
	if err != nil || !reflect.DeepEqual(got, CheckAxes(defs, rows)) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := CheckRunFile("testdata/axes.json"); err == nil {
		t.Error("not a run file")
	}
	// What we write ourselves has nothing to find.
	dir := t.TempDir()
	wb := newWB(t, dir, Options{})
	mustLog(t, wb, segments(t)...)
	mustClose(t, wb)
	if got, err := CheckRunFile(runFile(t, dir, "run", 1)); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// The exporter does not number rows by itself.
func TestRowWithoutItsAxisIsRefused(t *testing.T) {
	_, rows := axesCase(t)
	for i, row := range rows {
		steps, err := StepsOf("run", at(i), row)
		var rej *RejectedError
		switch _, isTrain := row["train/step"]; {
		case isTrain:
			if err != nil || len(steps) != 1 || steps[0].Axis != AxisTrain || steps[0].Step != 1 {
				t.Errorf("row %d: %+v, %v", i, steps, err)
			}
		case !errors.As(err, &rej) || rej.Reason != ReasonNoStep || rej.Axis != AxisEval || len(steps) != 0 || !strings.Contains(rej.Detail, "eval/global_step"):
			t.Errorf("row %d: %+v, %v", i, steps, err)
		}
	}
}

func TestStepsOf(t *testing.T) {
	steps, err := StepsOf("run", at(0), map[string]float64{"_step": 5, "_timestamp": 1, "rollout/step": 3, "rollout/reward": 1, "perf/time": 2, "train/step": 12, "train/loss": 4, "sglang:x": 1})
	if err != nil || len(steps) != 2 || steps[0].Step != 3 || len(steps[0].Metrics) != 3 || steps[1].Step != 12 || len(steps[1].Metrics) != 1 {
		t.Errorf("%+v, %v", steps, err)
	}
	tb := newTB(t, t.TempDir(), Options{})
	mustLog(t, tb, steps...)
	if s := tb.Stats(); s.Points != 3 || s.Rejected[ReasonKey] != 1 {
		t.Errorf("%+v", s)
	}
	for _, v := range []float64{-1, 0.5, 1 << 60} {
		if steps, err := StepsOf("run", at(0), map[string]float64{"rollout/step": v, "rollout/reward": 1}); err == nil || len(steps) != 0 {
			t.Errorf("rollout/step %v: %+v", v, steps)
		}
	}
	// One axis is missing: the other is published all the same.
	if steps, err := StepsOf("run", at(0), map[string]float64{"rollout/step": 1, "rollout/reward": 1, "eval/math": 1}); err == nil || len(steps) != 1 {
		t.Errorf("%+v, %v", steps, err)
	}
}

func TestCheckAxes(t *testing.T) {
	row := func(kv ...any) map[string]float64 {
		m := map[string]float64{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1].(float64)
		}
		return m
	}
	for name, tc := range map[string]struct {
		defs     []Definition
		rows     []map[string]float64
		proposal []string
	}{
		"some rows lack it":                 {[]Definition{{"a/*", "a/step"}}, []map[string]float64{row("a/x", 1., "a/step", 1.), row("a/x", 2.)}, []string{""}},
		"same prefix first":                 {[]Definition{{"a/*", "a/epoch"}}, []map[string]float64{row("a/x", 1., "b/epoch", 1., "a/global_step", 1.)}, []string{"a/global_step"}},
		"other prefix when there is none":   {[]Definition{{"a/*", "a/step"}}, []map[string]float64{row("a/x", 1., "train/step", 1.)}, []string{"train/step"}},
		"an axis never goes back":           {[]Definition{{"a/*", "a/step"}}, []map[string]float64{row("a/x", 1., "a/iter", 2.), row("a/x", 1., "a/iter", 1.)}, []string{""}},
		"an axis is whole":                  {[]Definition{{"a/*", "a/step"}}, []map[string]float64{row("a/x", 1., "a/epoch", 0.5)}, []string{""}},
		"an axis is in every row":           {[]Definition{{"a/*", "a/step"}}, []map[string]float64{row("a/x", 1., "a/epoch", 1.), row("a/x", 1.)}, []string{""}},
		"the longest definition counts":     {[]Definition{{"a/*", "a/step"}, {"a/b/*", "b/step"}}, []map[string]float64{row("a/b/x", 1., "b/step", 1.)}, nil},
		"an exact name":                     {[]Definition{{"loss", "step"}}, []map[string]float64{row("loss", 1., "global_step", 1.), row("loss2", 1.)}, []string{"global_step"}},
		"nothing logged":                    {[]Definition{{"a/*", "a/step"}}, nil, nil},
		"the axis alone needs no axis":      {[]Definition{{"a/*", "b/step"}, {"b/*", "b/step"}}, []map[string]float64{row("b/step", 1.)}, nil},
		"internal keys are not proposed":    {[]Definition{{"a", "step"}}, []map[string]float64{row("a", 1., "_step", 1.)}, []string{""}},
		"definitions without axis are fine": {[]Definition{{"a/*", ""}}, []map[string]float64{row("a/x", 1.)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckAxes(tc.defs, tc.rows)
			if len(got) != len(tc.proposal) {
				t.Fatalf("got %v, want %d findings", got, len(tc.proposal))
			}
			for i, f := range got {
				if f.Proposal != tc.proposal[i] {
					t.Errorf("proposal %q, want %q", f.Proposal, tc.proposal[i])
				}
			}
		})
	}
}
