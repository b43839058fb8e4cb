package timeline

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

type traceFile struct {
	TraceEvents []traceEvent      `json:"traceEvents"`
	Unit        string            `json:"displayTimeUnit"`
	Other       map[string]any    `json:"otherData"`
	Rest        map[string]string `json:"-"`
}

type traceEvent struct {
	Ph   string         `json:"ph"`
	Pid  *int           `json:"pid"`
	Tid  *int           `json:"tid"`
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	TS   *float64       `json:"ts"`
	Dur  *float64       `json:"dur"`
	ID   string         `json:"id"`
	S    string         `json:"s"`
	Args map[string]any `json:"args"`
}

// checkTrace checks what the viewers need: valid JSON, names of processes and threads, spans of a thread
// that nest, nothing outside of the window, async events in pairs.
func checkTrace(t *testing.T, data []byte, ix *Index, t0, t1 int64) traceFile {
	t.Helper()
	if t1 <= t0 {
		t0, t1 = ix.Extent()
	}
	var f traceFile
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatalf("%v:\n%.500s", err, data)
	}
	if s, _ := f.Other["clock_origin"].(string); !strings.HasPrefix(s, "ts 0 is ") {
		t.Errorf("no clock origin in %v", f.Other)
	}
	processes, threads, owner := map[int]bool{}, map[int]bool{}, map[int]int{}
	spans := map[int][][2]float64{}
	open := map[string]int{}
	lo, hi := float64(t0), float64(t1) // a unit is a microsecond
	for _, e := range f.TraceEvents {
		if e.Pid == nil || e.Tid == nil || *e.Pid <= 0 {
			t.Fatalf("an event without pid or tid: %+v", e)
		}
		if e.Ph == "M" {
			switch e.Name {
			case "process_name":
				processes[*e.Pid] = true
			case "thread_name":
				threads[*e.Tid] = true
				owner[*e.Tid] = *e.Pid
			}
			continue
		}
		if !processes[*e.Pid] || !threads[*e.Tid] || owner[*e.Tid] != *e.Pid {
			t.Fatalf("process %d or thread %d has no name: %+v", *e.Pid, *e.Tid, e)
		}
		if e.TS == nil || *e.TS < lo || *e.TS > hi {
			t.Fatalf("an event outside of the window: %+v", e)
		}
		switch e.Ph {
		case "X":
			if e.Dur == nil || *e.Dur < 0 || *e.TS+*e.Dur > hi {
				t.Fatalf("a span that ends outside of the window: %+v", e)
			}
			spans[*e.Tid] = append(spans[*e.Tid], [2]float64{*e.TS, *e.TS + *e.Dur})
		case "i":
			if e.S != "t" {
				t.Fatalf("a point without a scope: %+v", e)
			}
		case "b":
			open[e.ID+e.Cat+e.Name]++
		case "e":
			open[e.ID+e.Cat+e.Name]--
		default:
			t.Fatalf("unknown phase %q", e.Ph)
		}
	}
	for tid, list := range spans {
		slices.SortStableFunc(list, func(a, b [2]float64) int {
			switch {
			case a[0] != b[0]:
				return int(a[0] - b[0])
			case a[1] > b[1]:
				return -1
			}
			return 0
		})
		var stack []float64
		for _, s := range list {
			for len(stack) > 0 && stack[len(stack)-1] <= s[0] {
				stack = stack[:len(stack)-1]
			}
			if len(stack) > 0 && stack[len(stack)-1] < s[1] {
				t.Fatalf("thread %d: a span from %v to %v within one that ends at %v", tid, s[0], s[1], stack[len(stack)-1])
			}
			stack = append(stack, s[1])
		}
	}
	for id, n := range open {
		if n != 0 {
			t.Errorf("async event %s has no end", id)
		}
	}
	return f
}

// TestPerfettoWindowD10 exports a window that cuts a span on each side (case D10, 3).
func TestPerfettoWindowD10(t *testing.T) {
	ix := NewIndex(handmade(t))
	var b bytes.Buffer
	// Row 0 runs from 1.000001 s to 4.000001 s, its request from 1.1 s to 3.1 s; row 2 is open all along.
	if err := WritePerfetto(&b, ix, Query{}, 2_000_000, 3_000_000); err != nil {
		t.Fatal(err)
	}
	f := checkTrace(t, b.Bytes(), ix, 2_000_000, 3_000_000)
	names := map[string]traceEvent{}
	groups := map[string]bool{}
	for _, e := range f.TraceEvents {
		if e.Ph == "X" {
			names[e.Name] = e
		}
		if e.Name == "process_name" {
			groups[e.Args["name"].(string)] = true
		}
	}
	if !groups["group 0"] || !groups["group 1"] || len(groups) != 2 {
		t.Errorf("processes are %v", groups)
	}
	g := names["generate_and_rm"]
	if *g.TS != 2e6 || *g.Dur != 1e6 || g.Args["started_us"] != 1000001.0 || g.Args["ends_us"] != 4000001.0 {
		t.Errorf("the span that holds the window is %+v at %v", g, *g.TS)
	}
	if s := g.Args["sample"].(map[string]any); s["status"] != "completed" || s["reward"] != 1.0 {
		t.Errorf("its sample is %v", s)
	}
	if _, has := names["reward_model"]; has {
		t.Error("a span after the window was written")
	}
	if d := names["decode_forward"]; d.Cat != "decode_forward" || *d.TS != 2e6 {
		t.Errorf("the decode phase is %+v", d)
	}
	// Both requests have spans of one name: look for the one with a request id.
	found := false
	for _, e := range f.TraceEvents {
		if r, ok := e.Args["request"].(map[string]any); ok && r["rid"] == "rid-0-aaaa" {
			found = true
			attrs := e.Args["attrs"].([]any)
			if attrs[1].(map[string]any)["completion_tokens"] != 100.0 || attrs[1].(map[string]any)["nan"] != "NaN" {
				t.Errorf("attributes are %v", attrs)
			}
		}
		if e.Args["open"] == true && e.Args["clipped_by"] != "row_end" {
			t.Errorf("the open span is %+v", e)
		}
	}
	if !found {
		t.Error("the request is not in the args of its span")
	}
}

// TestPerfettoOverlaps gives a sample more concurrent spans than threads.
func TestPerfettoOverlaps(t *testing.T) {
	s := plainSample(0, 0, 0, 0, 1)
	row := &Row{Sample: s, Start: sec(0), End: sec(1000), Attempts: 1}
	for i := range 3 * maxTracks {
		row.Items = append(row.Items, Item{Name: "agent", Start: sec(float64(i)), End: sec(float64(500 + i)), Lane: i, Parent: -1, Request: -1})
	}
	row.Lanes = len(row.Items)
	c := NewColumns(Head{})
	c.Add(row)
	ix := NewIndex(c)
	var b bytes.Buffer
	if err := WritePerfetto(&b, ix, Query{}, 0, 0); err != nil {
		t.Fatal(err)
	}
	f := checkTrace(t, b.Bytes(), ix, 0, 0)
	count := map[string]int{}
	for _, e := range f.TraceEvents {
		if e.Name == "agent" {
			count[e.Ph]++
		}
	}
	if count["X"] != maxTracks || count["b"] != 2*maxTracks || count["e"] != 2*maxTracks {
		t.Errorf("spans are written as %v", count)
	}
}
