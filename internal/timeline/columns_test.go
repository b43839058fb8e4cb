package timeline

import (
	"bytes"
	"math"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// pickled returns v as a reader of dumps has it.
func pickled(t testing.TB, v any) torchfile.Value {
	t.Helper()
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, nil)
	w.Value(v)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Root()
}

const day = 1_787_000_000_000_000_000 // ns since 1970

func sec(s float64) int64 { return day + int64(math.Round(s*1e9)) }

func known1(v float64) request.Value { return request.Value{V: v, State: request.Known} }

// absent returns a request about which nothing is known.
func absentRequest(name, rid string, start, end float64) request.Request {
	return request.Request{SpanStart: -1, SpanEnd: -1, Name: name, RID: rid, Start: float64(day)/1e9 + start, End: float64(day)/1e9 + end}
}

func plainSample(ordinal, index, group int, status rollout.Status, reward float64) *rollout.Sample {
	s := &rollout.Sample{
		Ordinal: ordinal, Group: -1, Member: -1, Part: -1,
		Index: rollout.Int{N: int64(index), OK: true}, GroupIndex: rollout.Int{N: int64(group), OK: true},
		Status: status, Source: "math", ResponseLength: rollout.Int{N: int64(100 * (index + 1)), OK: true},
		PromptTokens: rollout.Int{N: 50, OK: true},
		Reward:       rollout.Reward{Value: known1(reward)},
	}
	s.Trace.Present, s.Trace.SharedWith = true, -1
	s.Trace.ID = "trace-" + string(rune('a'+ordinal))
	return s
}

// handmade is a timeline in which every column has something to hold: PD lanes with segments, open and
// orphan items, points, several attempts, a sample without a trace, strings that are hostile.
func handmade(t testing.TB) *Columns {
	id := int64(7)
	c := NewColumns(Head{Tool: "v0.0.0-test", Dump: Dump{Name: `</script><b>"x"` + "\u2028.pt", Bytes: 12345, Fingerprint: "none", Kind: "train", RolloutID: &id, Shape: "dict of samples"}})
	for _, row := range handmadeRows(t) {
		c.Add(row)
	}
	c.Mark(Marks{Held: []int{2}, Carried: []int{2}, Critical: []int{2}, Items: []MarkedRow{{Row: 2, Items: []int{0, 1}}}})
	c.AddText(0, "What is 2+2?", "4 <script>alert(1)</script>")
	c.AddText(2, "让 n", "\u2028 ok")
	return c
}

func handmadeRows(t testing.TB) []*Row {
	attrs := func(v map[string]any) torchfile.Value { return pickled(t, v) }
	// Row 0: a request with PD lanes, a reward, a point.
	s0 := plainSample(0, 0, 0, rollout.StatusCompleted, 1)
	s0.Raw = pickled(t, map[string]any{"label": "42", "metadata": map[string]any{"source": "a", "difficulty": 0.5}})
	q := absentRequest("sglang_generate", "rid-0-aaaa", 0.1, 2.1)
	q.SpanID = "s1"
	q.FinishReason = "stop"
	q.PromptTokens, q.CompletionTokens, q.CachedTokens = known1(50), known1(100), known1(16)
	q.QueueTime, q.E2ELatency, q.DecodeThroughput = known1(0.05), known1(1.9), known1(52.5)
	for p := range q.Phases {
		q.Phases[p] = known1(0.01 * float64(p+1))
	}
	q.TransferSpeed, q.TransferSize, q.Retries = known1(12.5), known1(33.25), known1(0)
	q.PhasesFrom = request.InEndAttrs
	s0.Requests = []request.Request{q}
	r0 := &Row{Sample: s0, Start: sec(0), End: sec(3), Lanes: 4, Attempts: 1, Points: 1, Spans: 3, Items: []Item{
		{Class: ClassGroup, Name: "generate_and_rm", Start: sec(0), End: sec(3), Lane: 0, Parent: -1, Request: -1, SpanID: "s0"},
		{Class: ClassEvent, State: PointEvent, Name: "submitted", Start: sec(0.05), End: sec(0.05), Lane: 0, Depth: 1, Parent: 0, Request: -1, StartAttrs: attrs(map[string]any{"queue": 3})},
		{Class: ClassGenerate, Name: "sglang_generate", Start: sec(0.1), End: sec(2.1), Lane: 1, Depth: 1, Parent: 0, Request: 0, SpanID: "s1",
			StartAttrs: attrs(map[string]any{"url": "http://10.0.0.1:30000"}), EndAttrs: attrs(map[string]any{"completion_tokens": 100, "e2e_latency": 1.9, "nan": math.NaN(), "big": int64(1) << 60})},
		{Class: ClassReward, Name: "reward_model", Start: sec(2.2), End: sec(2.9), Lane: 1, Depth: 1, Parent: 0, Request: -1, SpanID: "s2"},
		{Class: ClassPrefill, Flags: Virtual | Derived, Name: "[P] sglang_generate", Start: sec(0.1), End: sec(0.6), Lane: 2, Depth: 2, Parent: 2, Request: 0,
			Segments: []Segment{{ClassPhase + Class(request.PrefillBootstrap), sec(0.1), sec(0.2)}, {ClassPhase + Class(request.PrefillForward), sec(0.2), sec(0.5)}}},
		{Class: ClassDecode, Flags: Virtual | Derived, Name: "[D] sglang_generate", Start: sec(0.6), End: sec(2.1), Lane: 3, Depth: 2, Parent: 2, Request: 0,
			Segments: []Segment{{ClassPhase + Class(request.DecodeForward), sec(0.7), sec(2.1)}}},
	}}
	// Row 1: no trace; a label that is no string, a reward that is a dict.
	s1 := plainSample(1, 1, 0, rollout.StatusPending, math.NaN())
	s1.Trace = rollout.Trace{SharedWith: -1, Why: "no trace"}
	s1.Index, s1.PromptTokens = rollout.Int{}, rollout.Int{}
	s1.Reward = rollout.Reward{Keys: []string{"acc", "fmt"}, Parts: []request.Value{known1(0.5), {V: math.NaN(), State: request.Invalid}}}
	s1.Raw = pickled(t, map[string]any{"label": []any{1, "x"}})
	s1.Problems = []rollout.Problem{{Code: "no_trace", Where: "trace", What: "there is <none>"}}
	r1 := &Row{Sample: s1, WhyEmpty: "no trace"}
	// Row 2: two attempts, an open span, an orphan end, hostile strings, an invalid timing.
	s2 := plainSample(2, 2, 1, rollout.StatusAborted, -0.25)
	s2.Source = `"><img src=x onerror=alert(1)>`
	s2.Trace.SharedWith = 0
	bad := absentRequest("sglang_generate", "RID-2-\x00\"</script>", -1, math.NaN())
	bad.QueueTime = request.Value{V: -3, State: request.Invalid}
	bad.E2ELatency = request.Value{V: math.Inf(1), State: request.Invalid}
	bad.Attempt = 1
	s2.Requests = []request.Request{bad}
	r2 := &Row{Sample: s2, Start: sec(-1.0000005), End: sec(9.5), Lanes: 2, Attempts: 2, Open: 1, Orphans: 1, Spans: 2, Items: []Item{
		{Class: ClassGenerate, State: Open, Flags: AbortedSpan, Name: "sglang_generate", Start: sec(-1.0000005), End: sec(9.5), Attempt: 1, Parent: -1, Request: 0, ClippedBy: "row_end"},
		{Class: ClassTool, Flags: Error, Name: "tool \u202e\x01", Start: sec(4), End: sec(4), Lane: 1, Depth: 1, Parent: 0, Request: -1, EndAttrs: attrs(map[string]any{"error_type": "Timeout"})},
		{Class: ClassEvent, State: OrphanEnd, Name: "reward_model", Start: sec(5), End: sec(5), Lane: 1, Depth: 1, Parent: -1, Request: -1},
	}}
	// Row 3: same start as row 0, ends later; truncated.
	s3 := plainSample(3, 3, 1, rollout.StatusTruncated, 0)
	s3.Source = ""
	s3.Dataset = "aime"
	r3 := &Row{Sample: s3, Start: sec(0), End: sec(4.25), Lanes: 1, Attempts: 1, Spans: 1, Items: []Item{
		{Class: ClassOther, Name: "sandbox_exec", Start: sec(0), End: sec(4.25), Parent: -1, Request: -1},
	}}
	return []*Row{r0, r1, r2, r3}
}

func encode(t testing.TB, c *Columns) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAddKeepsTimesAndCounts(t *testing.T) {
	c := handmade(t)
	b := encode(t, c)
	h, err := DecodeHead(b)
	if err != nil {
		t.Fatal(err)
	}
	if h.T0 != sec(-1.000001) { // floor to the unit
		t.Errorf("t0 is %d, not %d", h.T0, sec(-1.000001))
	}
	if h.Extent == nil || *h.Extent != [2]int64{0, 10_500_001} {
		t.Errorf("extent is %v", h.Extent)
	}
	if h.Counts.Rows != 4 || h.Counts.Items != 10 || h.Counts.Requests != 2 || h.Counts.Samples != 4 {
		t.Errorf("counts are %+v", h.Counts)
	}
	starts, durs := c.items.start.flat(), c.items.dur.flat()
	if starts[0] != 1_000_001 || durs[0] != 3_000_000 {
		t.Errorf("item 0 is at %d for %d", starts[0], durs[0])
	}
	flags := c.rows.flags.flat()
	want := []uint16{0, RowProblem, RowShared | RowAborted | RowError | RowHeld | RowCarried | RowCritical, 0}
	for i := range want {
		if flags[i] != want[i] {
			t.Errorf("row %d has flags %d, not %d", i, flags[i], want[i])
		}
	}
	if got := c.reqs.invalid.flat()[1]; got != 1<<invalidQueue|1<<invalidE2E {
		t.Errorf("invalid bits are %b", got)
	}
	if c.reqs.dur.flat()[1] != missing || c.reqs.item.flat()[1] != 0 {
		t.Error("the open request has a duration or no item")
	}
}

// TestAddHostile gives rows that no builder should make: nothing panics, everything is in range.
func TestAddHostile(t *testing.T) {
	s := plainSample(0, 0, 0, rollout.StatusOther, math.NaN())
	s.Index = rollout.Int{N: math.MaxInt64, OK: true}
	q := absentRequest("x", "", math.Inf(1), math.NaN())
	q.PromptTokens, q.QueueTime, q.DecodeThroughput = known1(1e300), known1(1e300), known1(1e300)
	s.Requests = []request.Request{q}
	segs := make([]Segment, 1000)
	row := &Row{Sample: s, Start: math.MinInt64, End: math.MaxInt64, Lanes: -1, Attempts: 1 << 30, Items: []Item{
		{Class: 255, Name: string(bytes.Repeat([]byte("\xff"), 5000)), Start: math.MinInt64, End: math.MaxInt64, Lane: 1 << 30, Depth: -5, Parent: 99, Request: -7, Attempt: -1, Segments: segs},
		{Start: math.MaxInt64, End: math.MinInt64, Parent: 0, Request: 0},
	}}
	c := NewColumns(Head{})
	c.Add(row)
	got, err := Decode(encode(t, c))
	if err != nil {
		t.Fatal(err)
	}
	if got.rows.index.flat()[0] != missing {
		t.Error("an index beyond 2^53 was kept")
	}
	if n := len(got.names.list[1]); n > maxDictEntry {
		t.Errorf("a name has %d bytes", n)
	}
}
