package convert

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// converted runs a dump through a format and returns the files by suffix.
func converted(t *testing.T, path, format string, o Options) (map[string]*bytes.Buffer, int) {
	t.Helper()
	f, err := torchfile.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string]*bytes.Buffer{}
	w, err := New(format, func(suffix string) (io.Writer, error) {
		files[suffix] = new(bytes.Buffer)
		return files[suffix], nil
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	b, rows := timeline.NewBuilder(timeline.Options{}), 0
	if _, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
		rows++
		return w.Add(b.Build(s))
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return files, rows
}

const (
	dumps = "../../torchfile/testdata/dumps"
	f06   = "../rollout/testdata/dumps/f06_multiturn_partial.pt"
)

// Whatever stands in a dump, each line is JSON and holds a sample.
func TestEveryDumpAsLines(t *testing.T) {
	paths, err := filepath.Glob(dumps + "/*.pt")
	if err != nil || len(paths) < 20 {
		t.Fatalf("only %d dumps: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if f, err := torchfile.Open(path, nil); err != nil {
				t.Skipf("no whole file: %v", err)
			} else {
				f.Close()
			}
			files, rows := converted(t, path, "jsonl", Options{Texts: true})
			n := 0
			for text := range strings.Lines(files[".jsonl"].String()) {
				var l struct {
					Ordinal  *int
					Requests []json.RawMessage
					Spans    []json.RawMessage
				}
				if err := json.Unmarshal([]byte(text), &l); err != nil || l.Ordinal == nil || *l.Ordinal != n {
					t.Fatalf("line %d: %v: %.300s", n, err, text)
				}
				n++
			}
			if n != rows {
				t.Errorf("%d lines of %d samples", n, rows)
			}
		})
	}
}

func TestLineOfARequestWithPhases(t *testing.T) {
	files, _ := converted(t, dumps+"/f02_head_pd_children.pt", "jsonl", Options{Run: "r", RolloutID: rollout.Int{N: 7, OK: true}})
	first, _, _ := strings.Cut(files[".jsonl"].String(), "\n")
	var l struct {
		Run, Kind, Status string
		Step              int
		Prompt            *string
		Reward            *float64
		RewardParts       map[string]any `json:"reward_parts"`
		Requests          []struct {
			RID     string
			Start   string
			E2E     float64  `json:"e2e_seconds"`
			Forward *float64 `json:"prefill_forward_seconds"`
			Decode  *float64 `json:"decode_forward_seconds"`
		}
		Spans []struct {
			Name, Class, State string
			Start              string
			EndAttrs           map[string]any `json:"end_attrs"`
		}
	}
	if err := json.Unmarshal([]byte(first), &l); err != nil {
		t.Fatal(err)
	}
	if l.Run != "r" || l.Kind != "train" || l.Step != 7 || l.Status != "completed" || l.Prompt != nil || l.RewardParts["score"] != 1.0 {
		t.Errorf("sample: %+v", l)
	}
	if len(l.Requests) != 1 || l.Requests[0].RID != "eb339db6c89d4accb88fb8a17a9f9538" || l.Requests[0].Forward == nil || l.Requests[0].Decode == nil {
		t.Fatalf("requests: %+v", l.Requests)
	}
	if !strings.HasPrefix(l.Requests[0].Start, "2026-08-1") || l.Requests[0].E2E != 0.6602717658742874 {
		t.Errorf("request: %+v", l.Requests[0])
	}
	names := map[string]string{}
	for _, s := range l.Spans {
		names[s.Name] = s.Class + " " + s.State
		if strings.HasSuffix(s.Name, "[P]") {
			t.Errorf("%s is no span of the dump", s.Name)
		}
	}
	if names["sglang_generate"] != "generate closed" || names["data_source_create"] != "event event" {
		t.Errorf("spans: %v", names)
	}
}

func TestParquetIsReadBack(t *testing.T) {
	files, n := converted(t, f06, "parquet", Options{Run: "r", Version: "v1"})
	samples := table1[sampleRecord](t, files[".samples.parquet"])
	requests := table1[requestRecord](t, files[".requests.parquet"])
	spans := table1[spanRecord](t, files[".spans.parquet"])
	if len(samples) != n || n != 24 {
		t.Fatalf("%d rows of %d samples", len(samples), n)
	}
	count, spanCount, open := map[int64]int64{}, map[int64]int64{}, int64(0)
	for _, r := range requests {
		count[r.Ordinal]++
		if r.Start == 0 && r.End == 0 {
			t.Errorf("a request without any time: %+v", r)
		}
	}
	for _, s := range spans {
		if s.State == "open" {
			open++
		}
		spanCount[s.Ordinal]++
		if s.StartAttrs != "" && !json.Valid([]byte(s.StartAttrs)) {
			t.Errorf("start_attrs %q", s.StartAttrs)
		}
	}
	var wantOpen int64
	for i, s := range samples {
		if s.Ordinal != int64(i) || s.Requests != count[s.Ordinal] {
			t.Errorf("sample %d: %d requests, and %d in their table", s.Ordinal, s.Requests, count[s.Ordinal])
		}
		wantOpen += s.OpenSpans
	}
	if open != wantOpen || open == 0 {
		t.Errorf("%d open spans, samples say %d", open, wantOpen)
	}
	file, err := parquet.OpenFile(bytes.NewReader(files[".spans.parquet"].Bytes()), int64(files[".spans.parquet"].Len()))
	if err != nil {
		t.Fatal(err)
	}
	if run, _ := file.Lookup("rollscope.run"); run != "r" {
		t.Errorf("metadata says run %q", run)
	}
}

func table1[R any](t *testing.T, b *bytes.Buffer) []R {
	t.Helper()
	rows, err := parquet.Read[R](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestOTLPIsReadBack(t *testing.T) {
	files, _ := converted(t, f06, "otlp", Options{})
	spans, events, errs, orphans := 0, 0, 0, 0
	for text := range strings.Lines(files[".otlp.jsonl"].String()) {
		var u ptrace.JSONUnmarshaler
		tr, err := u.UnmarshalTraces([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		list := tr.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for _, sp := range list.All() {
			spans++
			events += sp.Events().Len()
			if sp.TraceID().IsEmpty() || sp.SpanID().IsEmpty() || ids[sp.SpanID().String()] {
				t.Errorf("ids of %s: %s %s", sp.Name(), sp.TraceID(), sp.SpanID())
			}
			ids[sp.SpanID().String()] = true
			if sp.EndTimestamp() < sp.StartTimestamp() {
				t.Errorf("%s ends before it starts", sp.Name())
			}
			if sp.Status().Code() == ptrace.StatusCodeError {
				errs++
			}
			if v, ok := sp.Attributes().Get("rollscope.kind"); ok && v.Str() == "orphan_end" {
				orphans++
			}
		}
		for _, sp := range list.All() {
			if p := sp.ParentSpanID(); !p.IsEmpty() && !ids[p.String()] {
				t.Errorf("%s has a parent that is not there", sp.Name())
			}
		}
	}
	if spans < 200 || events == 0 || errs == 0 || orphans == 0 {
		t.Errorf("%d spans, %d events, %d errors, %d orphan ends", spans, events, errs, orphans)
	}
}

// Siblings of one carrier are one trace, not eight.
func TestSharedCarrierIsOneTrace(t *testing.T) {
	var out bytes.Buffer
	w := newOTLP(&out, Options{})
	for ordinal, shared := range []int{-1, 0, 0} {
		s := &rollout.Sample{Ordinal: ordinal, Trace: rollout.Trace{Present: true, ID: "x", SharedWith: shared}}
		row := &timeline.Row{Sample: s, Items: []timeline.Item{{Name: "a", Start: 1, End: 2, Parent: -1}}}
		if err := w.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d traces of one carrier", n)
	}
}

func TestIDs(t *testing.T) {
	if got := traceID("e8d79f49af6d414c8a6f188a424e617b", 0).String(); got != "e8d79f49af6d414c8a6f188a424e617b" {
		t.Errorf("a trace id of slime became %s", got)
	}
	if got := spanID("4302da54759f4b439f013c8240d90a1e", 0, 0).String(); got != "4302da54759f4b43" {
		t.Errorf("a span id of slime became %s", got)
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "x", "00000000000000000000000000000000", "zz02da54759f4b439f013c8240d90a1e", "(1, 2)"} {
		got := traceID(id, 3)
		if got.IsEmpty() || seen[got.String()] {
			t.Errorf("trace id of %q: %s", id, got)
		}
		seen[got.String()] = true
		if spanID(id, 3, 1).IsEmpty() {
			t.Errorf("span id of %q is empty", id)
		}
	}
	if spanID("", 0, 1) == spanID("", 0, 2) {
		t.Error("two items without an id have one id")
	}
}
