package enginelog

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// readAll reads a file's lines with a parser whose zone is UTC.
func readAll(t *testing.T, path string, o Options) []Record {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readLines(b, o)
}

func readLines(b []byte, o Options) []Record {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	p := NewParser(o)
	var out []Record
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, MaxLine+1)
	for sc.Scan() {
		if r, ok := p.Line(sc.Bytes(), 0); ok {
			out = append(out, r)
		}
	}
	if r, ok := p.Flush(); ok {
		out = append(out, r)
	}
	return out
}

// TestL01 is a driver's log with Ray's prefixes and folded lines.
func TestL01(t *testing.T) {
	got := readAll(t, "testdata/L01/ray.log", Options{Source: "ray.log"})
	want := []struct {
		format         string
		repeat         int
		actor, pid, ip string
	}{
		{"python.dict", 1, "RolloutManager", "4101", ""},
		{"sglang.decode", 1, "SGLangEngine", "5202", "10.0.0.12"},
		{"sglang.decode", 2, "SGLangEngine", "5203", "10.0.0.13"},
		{"uvicorn.access", 4, "SGLangEngine", "5202", "10.0.0.12"},
		{"sglang.prefill", 1, "SGLangEngine", "5202", "10.0.0.12"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, w := range want {
		r := got[i]
		if r.Format != w.format || r.Repeat != w.repeat || r.Get("actor") != w.actor || r.Get("pid") != w.pid || r.Get("ip") != w.ip {
			t.Errorf("record %d: %s x%d by %q pid %s ip %s, want %+v", i, r.Format, r.Repeat, r.Get("actor"), r.Get("pid"), r.Get("ip"), w)
		}
	}
	folded := got[2]
	if v := folded.Get("gen_throughput"); v != "101.00" {
		t.Errorf("throughput of the folded line %s, want the one that was printed", v)
	}
	if folded.Marks&NoRepeat == 0 {
		t.Error("the folded line does not say that the values of the others are unknown")
	}
	row := folded.Row(Options{Source: "ray.log"})
	if row.Get("repeat") != "2" || row.Get("marks") != "others_unknown" || row.Kind != event.Log || row.Message != folded.Line {
		t.Errorf("row %+v", row)
	}
}

// TestL03 is metrics that were printed as Python dicts.
func TestL03(t *testing.T) {
	got := readAll(t, "testdata/L03/perf.log", Options{})
	if len(got) != 3 {
		t.Fatalf("%d records, want 3", len(got))
	}
	finite := func(s *Step) (n int) {
		for _, m := range s.Metrics {
			if m.Finite() {
				n++
			}
		}
		return n
	}
	s12, ev, s13 := got[0].Step, got[1].Step, got[2].Step
	if s12 == nil || ev == nil || s13 == nil {
		t.Fatal("a line gives no step")
	}
	if s12.Step != 12 || s13.Step != 13 || s12.Axis != "rollout/step" || finite(s12) != 2 || len(s12.Metrics) != 4 {
		t.Errorf("steps %+v and %+v", s12, s13)
	}
	if !math.IsNaN(s12.Metrics[2].Value) || !math.IsInf(s12.Metrics[3].Value, 1) {
		t.Errorf("the values that are not finite: %v", s12.Metrics[2:])
	}
	if ev.Step != 12 || ev.Group != "eval" || ev.Axis != "eval/step" || ev.Metrics[0].Value != 0.5 {
		t.Errorf("eval %+v", ev)
	}
	if len(ev.Texts) != 1 || ev.Texts[0].Value != "__import__('os')" {
		t.Errorf("texts of eval %v: code in a log is text", ev.Texts)
	}
	if s13.Metrics[1].Key != "rollout/error_cat/{weird}" {
		t.Errorf("step 13 %+v", s13.Metrics)
	}
}

// TestD06 is a negative queue time: kept as it was said, never a value.
func TestD06(t *testing.T) {
	line := "[2026-08-01 10:00:00 TP0] ReqTimeStats(rid=r-1, input_len=100, cached_input_len=40, output_len=7, attempts=1, type=unified): " +
		"queue_duration=-2990.79ms, forward_duration=1250.50ms, entry_time=1785578397.250"
	got := readLines([]byte(line), Options{})
	o := got[0].Request
	if o == nil {
		t.Fatal("no observation")
	}
	if o.Queue.State != request.Invalid || math.Abs(o.Queue.V+2.99079) > 1e-9 {
		t.Errorf("queue %+v, want invalid with what was said", o.Queue)
	}
	if len(o.Flags) != 1 || o.Flags[0] != "negative_queue_time" {
		t.Errorf("flags %v", o.Flags)
	}
	if got[0].Get("queue_seconds") != "" || got[0].Get("queue_invalid_seconds") != "-2.99079" || got[0].Get("forward_seconds") != "1.2505" {
		t.Errorf("fields %v", got[0].Fields)
	}
	if got[0].Marks&Invalid == 0 {
		t.Error("the record is not marked")
	}
	if o.TimeRank != 0 || o.Start != 1785578397250000000 {
		t.Errorf("start %d rank %d", o.Start, o.TimeRank)
	}
}

// TestBounds: a line of a megabyte of small things is read up to a bound, and says so.
func TestBounds(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, MaxLine/len(s)-10) }
	for _, line := range []string{"Decode batch, " + many("a: 1, "), "Update weights " + many("a=1 "), "perf 1: {" + many("'a': 1, ") + "}", "step:1 - " + many("a:1 - ")} {
		r := readLines([]byte(line), Options{})[0]
		if len(r.Fields) > maxFields || r.Step != nil && len(r.Step.Metrics) > maxMetrics {
			t.Errorf("%.20q: %d fields", line, len(r.Fields))
		}
		if r.Step != nil && r.Marks&Truncated == 0 {
			t.Errorf("%.20q: marks %s", line, r.Marks)
		}
		if row := r.Row(Options{Source: "x"}); len(row.Fields) > maxFields+10 {
			t.Errorf("%.20q: a row of %d fields", line, len(row.Fields))
		}
	}
}
