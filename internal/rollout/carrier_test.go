package rollout

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

func TestPythonNumbers(t *testing.T) {
	huge := new(big.Int).Lsh(big.NewInt(1), 2000)
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		v     any
		float float64 // of float(v)
		isF   bool
		int   int // of int(v or 0)
		isI   bool
	}{
		{1.5, 1.5, true, 1, true}, {-1.5, -1.5, true, -1, true}, {nan, nan, true, 0, false}, {inf, inf, true, 0, false},
		{7, 7, true, 7, true}, {true, 1, true, 1, true}, {false, 0, true, 0, true}, {huge, 0, false, 0, false},
		{" 1.5 ", 1.5, true, 0, false}, {"\t\n12\u3000", 12, true, 12, true}, {"1_000", 1000, true, 1000, true}, {"1__0", 0, false, 0, false},
		{"_1", 0, false, 0, false}, {"1_", 0, false, 0, false}, {"1_.5", 0, false, 0, false}, {"0x10", 0, false, 0, false}, {"+3", 3, true, 3, true},
		{"1e400", inf, true, 0, false}, {"1e3", 1000, true, 0, false}, {"inf", inf, true, 0, false}, {"-Infinity", -inf, true, 0, false},
		{"NaN", nan, true, 0, false}, {"nano", 0, false, 0, false}, {"", 0, false, 0, true}, {"abc", 0, false, 0, false}, {"1 2", 0, false, 0, false},
		{".5", 0.5, true, 0, false}, {"5.", 5, true, 0, false}, {".", 0, false, 0, false},
		{nil, 0, false, 0, true}, {pyList{}, 0, false, 0, true}, {pyList{1}, 0, false, 0, false}, {pyDict{}, 0, false, 0, true},
		{npScalar("f4", "\x00\x00\x00\x3f"), 0.5, true, 0, true}, {npScalar("i2", "\x07\x00"), 7, true, 7, true},
		{call{"decimal Decimal", pyTuple{"1.25"}}, 1.25, true, 0, false}, {call{"decimal Decimal", pyTuple{}}, 0, false, 0, false},
		{call{"_codecs encode", pyTuple{"2.5", "latin1"}}, 2.5, true, 0, false},
		{int64(math.MaxInt64), float64(math.MaxInt64), true, math.MaxInt64, true},
	} {
		f, err := torchfile.OpenBytes(pickleOf(c.v), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Load(torchfile.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x, ok := pyFloat(d.Root())
		if ok != c.isF || ok && x != c.float && !(math.IsNaN(x) && math.IsNaN(c.float)) {
			t.Errorf("float(%v) = %v, %v", c.v, x, ok)
		}
		n, ok := attemptOf(d.Root())
		if ok != c.isI || ok && n != c.int {
			t.Errorf("int(%v or 0) = %v, %v", c.v, n, ok)
		}
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		event    any
		want     string // kind name ts attempt id parent
		problems string
	}{
		"start":                  {ev("start", "a", 1.5, "i", "p"), `1 "a" 1.5 4 "i" "p"`, ""},
		"end":                    {ev("end", "a", 1.5, "i", ""), `2 "a" 1.5 4 "i" ""`, "orphan_end"},
		"point":                  {ev("event", "a", 1.5, "", "p"), `0 "a" 1.5 4 "" "p"`, ""},
		"int time":               {ev("event", "a", 2, "", ""), `0 "a" 2 4 "" ""`, ""},
		"text time":              {ev("event", "a", " 2.5 ", "", ""), `0 "a" 2.5 4 "" ""`, "odd_ts"},
		"bool time":              {ev("event", "a", true, "", ""), `0 "a" 1 4 "" ""`, "odd_ts"},
		"NaN time":               {ev("event", "a", math.NaN(), "", ""), `0 "a" NaN 4 "" "" !`, "non_finite_ts"},
		"no time":                {pyDict{"type", "event"}, "", "event_skipped"},
		"None time":              {ev("event", "a", nil, "", ""), "", "event_skipped"},
		"list time":              {ev("event", "a", pyList{1.0}, "", ""), "", "event_skipped"},
		"no dict":                {"event", "", "event_skipped"},
		"attempt":                {append(ev("event", "a", 1.0, "", ""), "attempt", 2), `0 "a" 1 2 "" ""`, ""},
		"attempt None is 0":      {append(ev("event", "a", 1.0, "", ""), "attempt", nil), `0 "a" 1 0 "" ""`, ""},
		"attempt text":           {append(ev("event", "a", 1.0, "", ""), "attempt", "3"), `0 "a" 1 3 "" ""`, ""},
		"attempt 2.9":            {append(ev("event", "a", 1.0, "", ""), "attempt", 2.9), `0 "a" 1 2 "" ""`, ""},
		"attempt abc":            {append(ev("event", "a", 1.0, "", ""), "attempt", "abc"), `0 "a" 1 4 "" ""`, "bad_attempt"},
		"attempt NaN":            {append(ev("event", "a", 1.0, "", ""), "attempt", math.NaN()), `0 "a" 1 4 "" ""`, "bad_attempt"},
		"no name":                {pyDict{"ts", 1.0, "type", "event", "name", nil}, `0 "" 1 4 "" ""`, ""},
		"name 5":                 {pyDict{"ts", 1.0, "type", "event", "name", 5}, `0 "5" 1 4 "" ""`, "odd_name"},
		"name a dict":            {pyDict{"ts", 1.0, "type", "event", "name", pyDict{}}, `0 "" 1 4 "" ""`, "odd_name"},
		"unknown type":           {pyDict{"ts", 1.0, "type", 5}, `0 "" 1 4 "" ""`, "odd_type"},
		"start without id":       {ev("start", "a", 1.0, "", ""), `0 "a" 1 4 "" ""`, "span_without_id"},
		"id 0 is none":           {append(ev("start", "a", 1.0, "", ""), "span_id", 0), `0 "a" 1 4 "" ""`, "span_without_id"},
		"id a number":            {append(ev("start", "a", 1.0, "", ""), "span_id", 17), `1 "a" 1 4 "17" ""`, "odd_span_id"},
		"id a tuple":             {append(ev("start", "a", 1.0, "", ""), "span_id", pyTuple{"a", 1}), `1 "a" 1 4 "('a', 1)" ""`, "odd_span_id"},
		"id a list":              {append(ev("start", "a", 1.0, "", ""), "span_id", pyList{1}), `1 "a" 1 4 "[1]" ""`, "odd_span_id"},
		"id a dict":              {append(ev("start", "a", 1.0, "", ""), "span_id", pyDict{1, 2}), `0 "a" 1 4 "" ""`, "bad_span_id span_without_id"},
		"id too long":            {append(ev("start", "a", 1.0, "", ""), "span_id", long), `1 "a" 1 4 "` + long[:256] + `" ""`, "long_span_id"},
		"attrs a list":           {append(ev("event", "a", 1.0, "", ""), "attrs", pyList{1}), `0 "a" 1 4 "" ""`, "bad_attrs"},
		"attrs None":             {append(ev("event", "a", 1.0, "", ""), "attrs", nil), `0 "a" 1 4 "" ""`, ""},
		"an object":              {object{"a B", ev("event", "a", 1.0, "", "")}, `0 "a" 1 4 "" ""`, ""},
		"a key that comes twice": {pyDict{"ts", 1.0, "type", "event", "ts", 2.0}, `0 "" 2 4 "" ""`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, pyDict{"index", 0, "trace", pyDict{"attempt", 4, "events", pyList{c.event}}}, Options{})
			var codes []string
			for _, p := range s.Problems {
				codes = append(codes, p.Code)
			}
			if got := strings.Join(codes, " "); got != c.problems {
				t.Errorf("problems %q, want %q", s.Problems, c.problems)
			}
			got := ""
			for _, e := range s.Trace.Events {
				got = fmt.Sprintf("%d %q %v %d %q %q", e.Kind, e.Name, e.TS, e.Attempt, e.SpanID, e.ParentID)
				if e.NonFinite {
					got += " !"
				}
			}
			if got != c.want || s.Trace.Total != 1 || s.Trace.Skipped != 1-len(s.Trace.Events) || s.Trace.Present != (c.want != "") {
				t.Errorf("got %s, want %s; %+v", got, c.want, s.Trace)
			}
		})
	}
}

func TestCarriers(t *testing.T) {
	one := pyList{ev("event", "a", 1.0, "", "")}
	for name, c := range map[string]struct {
		trace   any
		events  int
		why     string
		problem string
	}{
		"dict":          {pyDict{"events", one}, 1, "", ""},
		"object":        {object{"a Trace", pyDict{"events", one}}, 1, "", ""},
		"tuple":         {pyDict{"events", pyTuple(one)}, 1, "", ""},
		"ordered dict":  {call{"collections OrderedDict", pyTuple{pyList{pyTuple{"events", one}}}}, 1, "", ""},
		"None":          {nil, 0, "trace is None", ""},
		"list":          {one, 0, "trace is a list of 1", "bad_trace"},
		"no events":     {pyDict{}, 0, "no events", ""},
		"events None":   {pyDict{"events", nil}, 0, "no events", ""},
		"events 0":      {pyDict{"events", 0}, 0, "no events", ""},
		"events 5":      {pyDict{"events", 5}, 0, "events is 5", "bad_events"},
		"events text":   {pyDict{"events", "abc"}, 0, `events is "abc"`, "bad_events"},
		"events a dict": {pyDict{"events", pyDict{"a", 1}}, 0, "none of 1 events is usable", "bad_events"},
		"version 2":     {pyDict{"version", 2, "events", one}, 1, "", "trace_version"},
		"bad attempt":   {pyDict{"attempt", "x", "events", one}, 1, "", "bad_attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, pyDict{"index", 0, "trace", c.trace}, Options{})
			code := ""
			if len(s.Problems) > 0 {
				code = s.Problems[0].Code
			}
			if len(s.Trace.Events) != c.events || s.Trace.Why != c.why || code != c.problem {
				t.Errorf("%d events, why %q, problems %v", len(s.Trace.Events), s.Trace.Why, s.Problems)
			}
		})
	}
	if s := readOne(t, pyDict{"index", 0}, Options{}); s.Trace.Why != "no trace" || s.Trace.Raw.Exists() {
		t.Errorf("%+v", s.Trace)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	events := pyList{}
	for range 1000 {
		events = append(events, "x")
	}
	s := readOne(t, pyDict{"index", 0, "trace", pyDict{"events", events}}, Options{})
	if len(s.Problems) != MaxProblems || s.MoreProblems != 1000-MaxProblems || s.Trace.Skipped != 1000 {
		t.Errorf("%d problems and %d more, %d skipped", len(s.Problems), s.MoreProblems, s.Trace.Skipped)
	}
}

func TestSegments(t *testing.T) {
	root := func(ts float64, id string) []any {
		return []any{ev("start", "generate_and_rm_group", ts, id, ""), ev("start", "sglang_generate", ts, id+"g", id),
			ev("end", "sglang_generate", ts+1, id+"g", ""), ev("end", "generate_and_rm_group", ts+1, id, "")}
	}
	mark := func(name string, ts float64, id any) []any {
		return []any{ev("event", name, ts, "", "", "rollout_id", id)}
	}
	join := func(parts ...[]any) pyList {
		out := pyList{}
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for name, c := range map[string]struct {
		events pyList
		want   string // first-end:rollout, * the own one
		own    string // of the requests
	}{
		"one step":                {root(1, "a"), "*0-4:-", "1"},
		"no roots":                {join(root(1, "a")[1:3]), "*0-2:-", "1"},
		"carried over":            {join(root(1, "a"), root(9, "b")), "0-4:- *4-8:-", "01"},
		"marks":                   {join(mark("data_source_create", 1, 1), root(1, "a"), mark("buffer_dequeue", 9, 2), root(9, "b"), mark("buffer_dequeue", 19, 3), root(19, "c")), "0-5:1 5-10:2 *10-15:3", "001"},
		"the dump's own number":   {join(mark("data_source_create", 1, 2), root(1, "a"), mark("buffer_dequeue", 9, 3), root(9, "b"), mark("buffer_dequeue", 19, 4), root(19, "c")), "0-5:2 *5-10:3 10-15:4", "010"},
		"a trimmed beginning":     {join(root(1, "a")[2:], mark("buffer_dequeue", 9, 2), root(9, "b")), "0-2:- *2-7:2", "01"},
		"attempts within":         {join(root(1, "a")[:3], mark("attempt_start", 2, 7), root(2, "b")[1:3], root(1, "a")[3:]), "*0-7:-", "11"},
		"attempts between":        {join(root(1, "a"), mark("attempt_start", 2, 7), root(9, "b")), "0-4:- *4-9:7", "01"},
		"attempts of no step":     {join(root(1, "a"), mark("attempt_start", 2, nil), root(9, "b")), "0-5:- *5-9:-", "01"},
		"siblings of one instant": {join(root(1, "a")[:1], root(1, "b")), "*0-5:-", "1"},
		"agent's turns":           {pyList{ev("start", "generate_and_rm", 1.0, "a", ""), ev("end", "generate_and_rm", 2.0, "a", ""), ev("start", "generate_and_rm", 5.0, "b", ""), ev("end", "generate_and_rm", 6.0, "b", "")}, "*0-4:-", ""},
		"a root that leaked":      {join(root(1, "a")[:2], mark("buffer_dequeue", 9, 2), root(9, "b")), "0-2:- *2-7:2", "01"},
		"other events' numbers":   {join(root(1, "a"), mark("weights_updated", 2, 9)), "*0-5:-", "1"},
		"the mark again":          {join(mark("data_source_create", 1, 2), mark("attempt_start", 1, 2), root(1, "a")), "*0-6:2", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, traced(c.events...), Options{})
			var got []string
			at := 0
			for i, g := range s.Trace.Segments {
				text := fmt.Sprintf("%d-%d:", g.First, g.End)
				if i == s.Trace.Own {
					text = "*" + text
				}
				if g.RolloutID.OK {
					text += fmt.Sprint(g.RolloutID.N)
				} else {
					text += "-"
				}
				got = append(got, text)
				if g.First != at {
					t.Errorf("segment %d begins at %d, want %d", i, g.First, at)
				}
				for e := g.First; e < g.End; e++ {
					if s.Trace.SegmentOf(e) != i {
						t.Errorf("event %d is in segment %d, want %d", e, s.Trace.SegmentOf(e), i)
					}
				}
				at = g.End
			}
			own := ""
			for _, q := range s.Requests {
				own += map[bool]string{true: "1", false: "0"}[q.OwnStep]
				if q.OwnStep != (q.Segment == s.Trace.Own) {
					t.Errorf("%+v", q)
				}
			}
			if strings.Join(got, " ") != c.want || own != c.own || at != len(s.Trace.Events) {
				t.Errorf("got %q, own %q, want %q, %q", got, own, c.want, c.own)
			}
		})
	}
}

func TestSharedCarriers(t *testing.T) {
	carrier := &same{v: pyDict{"trace_id", "t", "events", pyList{ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 2.0, "a", "", "e2e_latency", 1.0)}}}
	equal := pyDict{"trace_id", "t", "events", pyList{ev("start", "sglang_generate", 1.0, "a", "")}}
	group := pyList{pyDict{"index", 0, "trace", equal}, pyDict{"index", 1, "trace", carrier}, pyDict{"index", 2, "trace", carrier}, pyDict{"index", 3, "trace", equal},
		pyDict{"index", 4, "trace", carrier}, pyDict{"index", 5, "trace", nil}}
	for name, v := range map[string]any{
		"streamed": pyDict{"samples", group}, "whole": group, "nested": pyDict{"samples", pyList{group[:3], group[3:]}},
	} {
		carrier.id = 0
		var got, events []int
		if _, err := readAll(t, v, Options{}, func(s *Sample) {
			got, events = append(got, s.Trace.SharedWith), append(events, len(s.Trace.Events))
		}); err != nil {
			t.Fatal(err)
		}
		if want := []int{-1, -1, 1, -1, 1, -1}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: shared with %v, want %v", name, got, want)
		}
		if want := []int{1, 2, 2, 1, 2, 0}; !reflect.DeepEqual(events, want) {
			t.Errorf("%s: events %v, want %v", name, events, want)
		}
	}
}

// TestStringsOutliveTheVisit: names, ids and the like may be kept.
func TestStringsOutliveTheVisit(t *testing.T) {
	samples := pyList{}
	for i := range 50 {
		id := fmt.Sprintf("span-%02d", i)
		samples = append(samples, pyDict{"index", i, "session_id", "s-" + id, "trace", pyDict{"trace_id", "t-" + id, "events", pyList{
			ev("start", "n-"+id, 1.0, id, "p-"+id, "sglang_request_id", "r-"+id, "x", 1), ev("end", "n-"+id, 1.0, id, "", "e2e_latency", 1.0)}}})
	}
	var kept []string
	b := pickleOf(pyDict{"samples", samples})
	if _, err := readBytes(t, b, Options{}, func(s *Sample) {
		e := &s.Trace.Events[0]
		kept = append(kept, strings.Join([]string{s.SessionID, s.Trace.ID, e.Name, e.SpanID, e.ParentID, s.Requests[0].RID, s.Requests[0].SpanID}, " "))
	}); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = '!'
	}
	for i, got := range kept {
		id := fmt.Sprintf("span-%02d", i)
		if want := strings.Join([]string{"s-" + id, "t-" + id, "n-" + id, id, "p-" + id, "r-" + id, id}, " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
