package timeline

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// checkWall asserts what holds for every step.
func checkWall(t testing.TB, r *WallTimeResult) {
	t.Helper()
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	if !r.Known {
		if len(r.Parts) != 0 || r.Why == "" {
			t.Fatalf("unknown, with parts or without a reason: %+v", r)
		}
		return
	}
	var sum, shares float64
	for _, p := range r.Parts {
		if p.Seconds < 0 || p.Name == "" {
			t.Fatalf("part %+v", p)
		}
		sum += p.Seconds
		shares += p.Share
	}
	if math.Abs(sum-r.Seconds) > 1e-9*max(1, r.Seconds) {
		t.Fatalf("parts add up to %v of %v s: %+v", sum, r.Seconds, r.Parts)
	}
	if r.Seconds > 0 && math.Abs(shares-1) > 1e-9 {
		t.Fatalf("shares add up to %v", shares)
	}
	for i, h := range r.Held {
		if h.End < h.Start || h.End > r.Seconds+1e-9 || i > 0 && h.End > r.Held[i-1].End {
			t.Fatalf("held %+v", r.Held)
		}
	}
	for i, s := range r.Critical {
		if s.End <= s.Start || i > 0 && s.Start != r.Critical[i-1].End {
			t.Fatalf("step %d of the path: %+v", i, r.Critical)
		}
	}
}

// wallOf builds and adds samples.
func wallOf(t testing.TB, opts WallTimeOptions, samples ...*rollout.Sample) *WallTimeResult {
	t.Helper()
	b := NewBuilder(Options{})
	w := NewWallTime(opts)
	for i, s := range samples {
		s.Ordinal = i
		s.Index = rollout.Int{N: int64(100 + i), OK: true}
		r := b.Build(s)
		checkRow(t, r)
		w.Add(r)
	}
	r := w.Result()
	checkWall(t, r)
	return r
}

func partsText(r *WallTimeResult) string {
	var out []string
	for _, p := range r.Parts {
		if p.Seconds > 1e-9 {
			out = append(out, fmt.Sprintf("%s %.6g", p.Name, p.Seconds))
		}
	}
	return strings.Join(out, ", ")
}

func known(v float64) request.Value { return request.Value{V: v, State: request.Known} }

func TestWallTimeParts(t *testing.T) {
	queued := traceOf("S 0 generate_and_rm m\nS 1 sglang_generate g m\nE 9 sglang_generate g\nS 9 reward_model r m\nE 10 reward_model r\nE 12 generate_and_rm m")
	queued.Requests[0].QueueTime = known(2)
	queued.Requests[0].E2ELatency = known(7) // one second of the client's
	queued.Requests[0].CompletionTokens = known(40)
	queued.Requests[0].DecodeThroughput = known(10) // 4 s

	pd := traceOf("S 0 sglang_generate g\nE 10 sglang_generate g")
	phases(&pd.Requests[0], 1, 0.3, 0.5, 2, 0.5, 1.5, 0.4, 0.6, 0.5, 4) // [P] 0..3, [D] 4..10

	for _, c := range []struct {
		name    string
		samples []*rollout.Sample
		want    string
	}{
		// queue 1..3, prefill 3..4, decode 4..8, the rest of the request 8..9, reward 9..10; the holder 0..1, 10..12.
		{"a request that was answered", []*rollout.Sample{queued}, "queue 2, prefill 1, decode 4, generate 1, reward 1, gap 3"},
		// [P] queue 0..1, forward 1..2.5, transfer queue 2.5..3; nothing said 3..4; [D] prealloc 4..5.5, transfer 5.5..6, forward 6..10.
		{"a request with phases", []*rollout.Sample{pd}, "queue 2.5, prefill 1.5, transfer 1, decode 4, generate 1"},
		{"a request that says nothing", []*rollout.Sample{traceOf("S 0 sglang_generate g\nE 10 sglang_generate g")}, "generate 10"},
		{"work wins over what it is in", []*rollout.Sample{traceOf("S 0 tool_call a\nS 1 sglang_generate g a\nE 3 sglang_generate g\nE 4 tool_call a")}, "generate 2, tool 2"},
		{"concurrent tools count once", []*rollout.Sample{traceOf("S 0 tool_call a\nS 1 tool_call b\nE 3 tool_call a\nE 4 tool_call b")}, "tool 4"},
		{"between spans", []*rollout.Sample{traceOf("S 0 tool_call a\nE 1 tool_call a\nS 3 judge b\nE 4 judge b")}, "tool 1, reward 1, gap 2"},
		{"stragglers", []*rollout.Sample{
			traceOf("S 0 x a\nE 10 x a"),
			traceOf("S 2 x a\nE 4 x a"),
		}, "other 6, gap 1, straggler 3"},
		{"an open span that something ended", []*rollout.Sample{traceOf("S 0 generate_and_rm r\nS 0 tool_call a r\nS 6 judge b r\nE 8 judge b\nE 8 generate_and_rm r")}, "tool 6, reward 2"},
		{"an open span that nothing ended", []*rollout.Sample{traceOf("S 0 tool_call a\nP 5 note")}, "unexplained 5"},
		{"weight sync", []*rollout.Sample{traceOf("S 0 sglang_generate g\nS 2 update_weights u\nE 3 update_weights u\nE 5 sglang_generate g")}, "generate 4, sync 1"},
		{"samples without time", []*rollout.Sample{
			traceOf("S 0 x a\nE 10 x a"),
			{Trace: rollout.Trace{Why: "none"}},
			{Trace: rollout.Trace{Present: true, SharedWith: 0, Events: traceOf("S 0 x a\nE 99 x a").Trace.Events}},
		}, "other 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := partsText(wallOf(t, WallTimeOptions{}, c.samples...)); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A group's span ends with its slowest member; a member's own time ends with its own work.
func TestWallTimeGroup(t *testing.T) {
	r := wallOf(t, WallTimeOptions{},
		traceOf("S 0 generate_and_rm_group g\nS 0 generate_and_rm m g\nS 0 tool_call t m\nE 9 tool_call t\nE 9 generate_and_rm m\nE 10 generate_and_rm_group g"),
		traceOf("S 0 generate_and_rm_group g\nS 0 generate_and_rm m g\nS 1 tool_call t m\nE 3 tool_call t\nE 4 generate_and_rm m\nE 10 generate_and_rm_group g"),
		traceOf("S 2 generate_and_rm_group g\nE 10 generate_and_rm_group g"))
	if got := partsText(r); r.Seconds != 10 || got != "tool 3.66667, gap 4, straggler 2.33333" {
		t.Errorf("%v s: %s", r.Seconds, got)
	}
	if r.Held[0].End != 10 || r.Held[1].End != 9 || r.Held[2].End != 4 || r.Median != 9 {
		t.Errorf("held %+v, median %v", r.Held, r.Median)
	}
}

func TestWallTimeSync(t *testing.T) {
	w := NewWallTime(WallTimeOptions{})
	w.AddSync((t0+4)*1e9, (t0+6)*1e9)
	w.AddSync(5, 5)
	w.Add(NewBuilder(Options{}).Build(traceOf("S 0 x a\nE 10 x a")))
	r := w.Result()
	checkWall(t, r)
	if got := partsText(r); got != "other 8, sync 2" {
		t.Error(got)
	}
}

func TestWallTimeHeld(t *testing.T) {
	r := wallOf(t, WallTimeOptions{Held: 2},
		traceOf("S 0 sglang_generate a\nE 4 sglang_generate a"),
		traceOf("S 0 x r\nS 1 sglang_generate a r\nE 3 sglang_generate a\nS 3 tool_call t r\nE 19 tool_call t\nE 20 x r"),
		traceOf("S 0 sglang_generate a\nE 6 sglang_generate a"),
		traceOf("S 1 sglang_generate a\nE 10 sglang_generate a"),
		traceOf("S 0 sglang_generate a\nE 5 sglang_generate a"),
	)
	if r.Seconds != 20 || r.Median != 6 || math.Abs(r.IdleShare-(16+0+14+10+15)/100.0) > 1e-12 {
		t.Errorf("%v s, median %v, idle %v", r.Seconds, r.Median, r.IdleShare)
	}
	if len(r.Held) != 2 {
		t.Fatalf("held %+v", r.Held)
	}
	if h := r.Held[0]; h.Ordinal != 1 || *h.Sample != 101 || h.End != 20 || h.Over != 14 || h.Because != "tool" || h.BecauseSeconds != 16 {
		t.Errorf("held %+v", h)
	}
	if h := r.Held[1]; h.Ordinal != 3 || h.Start != 1 || h.Over != 4 || h.Because != "generate" {
		t.Errorf("held %+v", h)
	}
	if got := pathText(r.Critical); r.CriticalRow != 1 || got != "x 0..1, sglang_generate 1..3, tool_call 3..19, x 19..20" {
		t.Errorf("path of %d: %s", r.CriticalRow, got)
	}
	m := r.Marks()
	if fmt.Sprint(m.Held, m.Critical, m.Items) != "[1 3] [1] [{1 [0 1 2]}]" {
		t.Errorf("marks %+v", m)
	}
}

func pathText(steps []PathStep) string {
	var out []string
	for _, s := range steps {
		name := s.Name
		if s.Item < 0 {
			name = "-"
		}
		out = append(out, fmt.Sprintf("%s %g..%g", name, float64(s.Start-t0*1e9)/1e9, float64(s.End-t0*1e9)/1e9))
	}
	return strings.Join(out, ", ")
}

func TestCriticalPath(t *testing.T) {
	pd := traceOf("S 0 sglang_generate g\nE 10 sglang_generate g\nS 11 judge j\nE 12 judge j")
	phases(&pd.Requests[0], -1, -1, -1, 3, -1, -1, -1, -1, -1, 6)
	for _, c := range []struct {
		name string
		s    *rollout.Sample
		want string
	}{
		{"the later of two", traceOf("S 0 r r\nS 1 a a r\nS 1 b b r\nE 4 a a\nE 6 b b\nS 6 c c r\nE 8 c c\nE 9 r r"), "r 0..1, b 1..6, c 6..8, r 8..9"},
		{"within and before", traceOf("S 0 r r\nS 1 a a r\nS 2 a1 a1 a\nE 3 a1 a1\nE 5 a a\nE 5 r r"), "r 0..1, a 1..2, a1 2..3, a 3..5"},
		{"roots", traceOf("S 0 a a\nE 1 a a\nS 3 b b\nE 4 b b"), "a 0..1, - 1..3, b 3..4"},
		{"phases", pd, "sglang_generate [P] 0..3, sglang_generate 3..4, sglang_generate [D] 4..10, - 10..11, judge 11..12"},
		{"a child that outlives its parent", traceOf("S 0 r r\nS 1 a a r\nE 2 r r\nE 5 a a"), "r 0..1, a 1..2, - 2..5"},
		{"one point", traceOf("P 1 p"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pathText(CriticalPath(nil, NewBuilder(Options{}).Build(c.s)))
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A carried-over sample counts from where this step began.
func TestWallTimeCarriedOver(t *testing.T) {
	split := traceOf("S 0 x a\nE 10 x a\nS 100 x b\nE 105 x b")
	split.Trace.Segments = []rollout.Segment{{First: 0, End: 2}, {First: 2, End: 4}}
	split.Trace.Own = 1
	whole := traceOf("S 0 tool_call a\nE 102 tool_call a")
	whole.StartRollout = rollout.Int{N: 1, OK: true}
	gone := traceOf("S 0 tool_call a\nE 50 tool_call a")
	gone.StartRollout = rollout.Int{N: 1, OK: true}
	fresh := traceOf("S 101 x a\nE 110 x a")
	r := wallOf(t, WallTimeOptions{}, whole, split, fresh, gone)
	// The step is 100..110. split: 5 of work and 5 of waiting; whole: 2 of a tool and 8; fresh: a gap of 1 and 9; gone: 10.
	if got := partsText(r); r.Seconds != 10 || got != "tool 0.5, other 3.5, gap 0.25, straggler 5.75" {
		t.Errorf("%v s: %s", r.Seconds, got)
	}
	if fmt.Sprint(r.Carried) != "[0 1 3]" {
		t.Errorf("carried %v", r.Carried)
	}
	if r.Held[0].Ordinal != 2 || r.Held[1].Ordinal != 1 || r.Held[1].Start != 0 || r.Held[1].End != 5 {
		t.Errorf("held %+v", r.Held)
	}
	if alone := wallOf(t, WallTimeOptions{}, whole); alone.Seconds != 102 {
		t.Errorf("alone: %v s", alone.Seconds)
	}
	if again := wallOf(t, WallTimeOptions{}); again.Known {
		t.Errorf("nothing: %+v", again)
	}
}

func TestAbortedTokens(t *testing.T) {
	type q struct {
		attempt                    int
		prompt, completion, finish any
	}
	for _, c := range []struct {
		name             string
		reqs             []q
		tokens, unknown  int64
		samples, flagged int
	}{
		{"one", []q{{0, 10, 50, "stop"}}, 0, 0, 0, 0},
		{"turns", []q{{0, 10, 50, "stop"}, {0, 70, 5, "stop"}, {0, 20, 5, "stop"}}, 0, 0, 0, 0},
		{"goes on", []q{{0, 10, 50, "abort"}, {0, 60, 5, "stop"}}, 0, 0, 0, 0},
		{"begins anew", []q{{0, 10, 50, "abort"}, {0, 10, 70, "stop"}}, 50, 0, 1, 1},
		{"keeps a part", []q{{0, 10, 50, "abort"}, {0, 40, 70, "stop"}}, 20, 0, 1, 0},
		{"keeps a part, then less", []q{{0, 10, 50, "abort"}, {0, 40, 0, "abort"}, {0, 20, 9, "stop"}}, 40, 0, 1, 0},
		{"all turns of an attempt", []q{{0, 10, 50, "stop"}, {0, 70, 30, "length"}, {1, 10, 5, "stop"}}, 80, 0, 1, 2},
		{"the last turn of an attempt", []q{{0, 10, 50, "stop"}, {0, 70, 30, "length"}, {1, 65, 5, "stop"}}, 30, 0, 1, 1},
		{"nobody knows", []q{{0, 10, nil, "abort"}, {0, 10, 5, "stop"}}, 0, 1, 0, 0},
		{"nobody knows what was kept", []q{{0, 10, 5, "abort"}, {0, nil, 5, "stop"}}, 0, 1, 0, 0},
		{"open", []q{{0, 10, 5, nil}, {0, 10, 5, "stop"}}, 5, 0, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines strings.Builder
			for i, r := range c.reqs {
				fmt.Fprintf(&lines, "S %d sglang_generate g%d - %d\n", 10*i, i, r.attempt)
				if r.finish != nil {
					fmt.Fprintf(&lines, "E %d sglang_generate g%d - %d\n", 10*i+5, i, r.attempt)
				}
			}
			s := traceOf(lines.String())
			for i, r := range c.reqs {
				if n, ok := r.prompt.(int); ok {
					s.Requests[i].PromptTokens = known(float64(n))
				}
				if n, ok := r.completion.(int); ok {
					s.Requests[i].CompletionTokens = known(float64(n))
				}
				s.Requests[i].FinishReason, _ = r.finish.(string)
			}
			a := wallOf(t, WallTimeOptions{}, s).Aborted
			if a.Tokens != c.tokens || a.Unknown != c.unknown || a.Samples != c.samples {
				t.Errorf("%+v, want %d tokens of %d samples, %d unknown", a, c.tokens, c.samples, c.unknown)
			}
			flagged := 0
			for _, it := range NewBuilder(Options{}).Build(s).Items {
				if it.Flags&AbortedSpan != 0 {
					flagged++
				}
			}
			if flagged != c.flagged {
				t.Errorf("%d items flagged, want %d", flagged, c.flagged)
			}
		})
	}
}

func TestWallTimeRandom(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	b := NewBuilder(Options{})
	for range 200 {
		w := NewWallTime(WallTimeOptions{Held: 3})
		for i := range 1 + r.Intn(12) {
			data := make([]byte, 4*(1+r.Intn(60)))
			r.Read(data)
			for j := 3; j < len(data); j += 4 {
				data[j] %= 240
			}
			s := sampleFrom(data)
			s.Ordinal = i
			if n := len(s.Trace.Events); r.Intn(3) == 0 && n > 1 {
				at := 1 + r.Intn(n-1)
				s.Trace.Segments, s.Trace.Own = []rollout.Segment{{First: 0, End: at}, {First: at, End: n}}, 1
			} else if r.Intn(3) == 0 {
				s.StartRollout.OK = true
			}
			w.Add(b.Build(s))
			checkWall(t, w.Result())
		}
	}
}

func BenchmarkWallTime2048(b *testing.B) {
	row := NewBuilder(Options{}).Build(pdSample())
	b.ReportAllocs()
	for b.Loop() {
		w := NewWallTime(WallTimeOptions{})
		for range 2048 {
			w.Add(row)
		}
		w.Result()
	}
}
