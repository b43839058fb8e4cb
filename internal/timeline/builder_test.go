package timeline

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// t0 is a time of our days, whose float64 has steps of 240 ns.
const t0 = 1_787_000_000

// traceOf reads a trace from lines "KIND TS NAME ID PARENT ATTEMPT", times in seconds after t0:
// S starts a span, E ends one, P is a point; - is nothing. Requests are the spans whose name begins
// with sglang_generate.
func traceOf(lines string) *rollout.Sample {
	s := &rollout.Sample{Trace: rollout.Trace{Present: true, SharedWith: -1}}
	requests := map[string]int{}
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		for len(f) < 6 {
			f = append(f, "-")
		}
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
		}
		e := rollout.Event{Order: len(s.Trace.Events), Name: f[2], SpanID: f[3], ParentID: f[4]}
		switch f[0] {
		case "S":
			e.Kind = rollout.SpanStart
		case "E":
			e.Kind = rollout.SpanEnd
		}
		var after float64
		if f[1] == "nan" {
			e.TS, e.NonFinite = math.NaN(), true
		} else {
			fmt.Sscan(f[1], &after)
			e.TS = t0 + after
		}
		fmt.Sscan(f[5], &e.Attempt)
		at := len(s.Trace.Events)
		s.Trace.Events = append(s.Trace.Events, e)
		if strings.HasPrefix(e.Name, "sglang_generate") && e.Kind == rollout.SpanStart {
			requests[e.SpanID] = len(s.Requests)
			s.Requests = append(s.Requests, request.Request{SpanStart: at, SpanEnd: -1, Name: e.Name, SpanID: e.SpanID, Attempt: e.Attempt, Start: e.TS, End: math.NaN()})
		}
		if i, ok := requests[e.SpanID]; ok && e.Kind == rollout.SpanEnd {
			s.Requests[i].SpanEnd, s.Requests[i].End = at, e.TS
		}
	}
	return s
}

// rowText shows a row: one line an item.
func rowText(r *Row) string {
	if r.WhyEmpty != "" {
		return "empty: " + r.WhyEmpty + "\n"
	}
	var b strings.Builder
	at := func(ns int64) string {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", float64(ns-t0*1e9)/1e9), "0"), ".")
	}
	for _, it := range r.Items {
		fmt.Fprintf(&b, "%d:%d %s..%s %s", it.Lane, it.Depth, at(it.Start), at(it.End), it.Name)
		if it.Parent >= 0 {
			fmt.Fprintf(&b, " in %s", r.Items[it.Parent].Name)
		}
		switch it.State {
		case Open:
			b.WriteString(" open:" + it.ClippedBy)
		case PointEvent:
			b.WriteString(" point")
		case OrphanEnd:
			b.WriteString(" orphan")
		}
		for i, n := range []string{"virtual", "derived", "leaked", "duplicate", "negative", "skewed", "error", "aborted"} {
			if it.Flags&(1<<i) != 0 {
				b.WriteString(" " + n)
			}
		}
		for _, s := range it.Segments {
			fmt.Fprintf(&b, " [%d %s..%s]", int(s.Class)-int(ClassPhase), at(s.Start), at(s.End))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestBuild(t *testing.T) {
	for _, c := range []struct{ name, trace, want string }{
		{"one after the other", `
			S 0 group g
			S 1 gen a g
			E 2 gen a
			S 2 rm b g
			P 2.5 note - b
			E 3 rm b
			E 4 group g`, `
			0:0 0..4 group
			1:1 1..2 gen in group
			1:1 2..3 rm in group
			1:2 2.5..2.5 note in rm point`},
		{"concurrent siblings", `
			S 0 group g
			S 1 a a g
			S 1.5 b b g
			S 1.6 b1 b1 b
			E 1.9 b1 b1
			E 2 a a
			S 2 c c g
			E 3 b b
			E 3 c c
			E 4 group g`, `
			0:0 0..4 group
			1:1 1..2 a in group
			1:1 2..3 c in group
			2:1 1.5..3 b in group
			3:2 1.6..1.9 b1 in b`},
		{"parents by nesting where none is written", `
			S 0 a a
			S 1 b b
			P 1.5 p
			E 2 b b
			E 3 a a
			S 4 c c
			E 5 c c`, `
			0:0 0..3 a
			0:0 4..5 c
			1:1 1..2 b in a
			1:2 1.5..1.5 p in b point`},
		{"cancelled work does not capture later roots", `
			S 0 group g
			S 1 tool t g
			S 1.1 exec x t
			S 2 gen n g
			E 3 gen n
			E 4 group g
			P 5 enqueue
			S 6 group h
			E 7 group h`, `
			0:0 0..4 group
			0:0 5..5 enqueue point
			0:0 6..7 group
			1:1 1..2 tool in group open:next_sibling_start
			1:1 2..3 gen in group
			2:2 1.1..2 exec in tool open:ancestor_end`},
		{"cancelled from the root, no written parents", `
			S 0 group g
			S 1 gen n
			S 6 group h - 1
			E 7 group h`, `
			0:0 0..6 group open:next_sibling_start
			0:0 6..7 group
			1:1 1..6 gen in group open:ancestor_end`},
		{"an open span is as long as what it holds", `
			S 0 root r
			S 1 a a r
			S 2 b b r
			S 4 a1 a1 a
			E 5 a1 a1
			P 6 p - r`, `
			0:0 0..6 root open:row_end
			0:1 6..6 p in root point
			1:1 1..5 a in root open:last_child
			2:2 4..5 a1 in a
			3:1 2..6 b in root open:row_end`},
		{"last and alone", `S 0 a a`, `0:0 0..0 a open:self`},
		{"a written parent that had ended", `
			S 0 p p
			E 1 p p
			S 5 c c p
			E 6 c c`, `
			0:0 0..1 p
			0:0 5..6 c leaked`},
		{"a clock that is ahead", `
			S 0 p p
			S 5 c c p
			E 6 c c
			E 2 p p`, `
			0:0 0..2 p
			1:1 5..6 c in p skewed`},
		{"an unknown parent makes a root", `
			S 0 a a
			S 1 b b nope
			E 2 b b
			E 3 a a`, `
			0:0 0..3 a
			1:0 1..2 b`},
		{"a parent that comes later in the list", `
			S 1 b b a
			E 2 b b
			S 0 a a
			E 3 a a`, `
			0:0 0..3 a
			1:1 1..2 b in a`},
		{"cycles", `
			S 0 a a b
			S 1 b b c
			S 2 c c a
			E 3 c c
			E 3 b b
			E 4 a a
			S 9 self s s
			E 9.5 self s`, `
			0:0 0..4 a leaked
			0:0 9..9.5 self leaked
			1:1 2..3 c in a
			2:2 1..3 b in c skewed`},
		{"open spans that are each other's parent", `
			S 0 a a b
			S 1 b b a`, `
			0:0 0..1 a open:row_end leaked
			1:1 1..1 b in a open:self`},
		{"duplicate ids", `
			S 0 a d
			S 1 b d
			E 2 b d
			E 3 a d
			E 4 x d`, `
			0:0 0..3 a duplicate
			0:0 4..4 x orphan
			1:1 1..2 b in a duplicate`},
		{"negative, zero, no time", `
			S 5 neg n
			E 4 neg n
			S 6 zero z
			E 6 zero z
			S nan nostart q
			E 7 nostart q
			S 8 noend e
			E nan noend e
			P nan p
			P 9 last`, `
			0:0 5..5 neg negative
			0:0 6..6 zero
			0:0 7..7 nostart orphan
			0:0 8..9 noend open:row_end
			0:0 9..9 last point`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := traceOf(c.trace)
			r := NewBuilder(Options{}).Build(s)
			checkRow(t, r)
			want := strings.ReplaceAll(strings.TrimSpace(c.want), "\t", "") + "\n"
			if got := rowText(r); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestBuildWithoutTrace(t *testing.T) {
	b := NewBuilder(Options{})
	b.Build(traceOf("S 0 a a\nE 1 a a"))
	for _, c := range []struct {
		s    *rollout.Sample
		want string
	}{
		{&rollout.Sample{}, "no trace"},
		{&rollout.Sample{Trace: rollout.Trace{Why: "trace is None"}}, "trace is None"},
		{&rollout.Sample{Trace: rollout.Trace{Present: true}}, "no usable event"},
		{traceOf("P nan x"), "no event with a time"},
	} {
		r := b.Build(c.s)
		if r.WhyEmpty != c.want || len(r.Items) != 0 || r.Lanes != 0 || r.Sample != c.s {
			t.Errorf("row %+v, want empty because %q", r, c.want)
		}
	}
}

func TestNanos(t *testing.T) {
	for _, c := range []struct {
		s    float64
		want int64
	}{
		{0, 0}, {1.5, 1_500_000_000}, {-1.25, -1_250_000_000}, {1e-9, 1},
		{1787000000.000078, 1787000000000077963}, // the nearest float64 is ...0.00007796287536621094
		{1787000000.5, 1787000000500000000},
		{1e300, 4e18}, {-1e300, -4e18}, {math.Inf(1), 4e18}, {math.NaN(), 0},
	} {
		if got := Nanos(c.s); got != c.want {
			t.Errorf("Nanos(%v) = %d, want %d", c.s, got, c.want)
		}
	}
	for s, i := float64(t0), 0; i < 1000; i++ {
		next := math.Nextafter(s, math.Inf(1))
		if d := Nanos(next) - Nanos(s); d < 238 || d > 239 {
			t.Fatalf("step %d after %v", d, s)
		}
		s = next
	}
}

// checkRow asserts what holds for every row.
func checkRow(t testing.TB, r *Row) {
	t.Helper()
	if r.WhyEmpty != "" {
		if len(r.Items) != 0 {
			t.Fatalf("%d items in an empty row", len(r.Items))
		}
		return
	}
	starts, virtual := 0, 0
	for i := range r.Sample.Trace.Events {
		e := &r.Sample.Trace.Events[i]
		if e.Kind == rollout.SpanStart && e.SpanID != "" && !e.NonFinite {
			starts++
		}
	}
	lo, hi, lanes := int64(math.MaxInt64), int64(math.MinInt64), 0
	type onLane struct {
		lane       int
		start, end int64
	}
	var last *onLane
	for i := range r.Items {
		it := &r.Items[i]
		span := it.State == Closed || it.State == Open
		lo, hi, lanes = min(lo, it.Start), max(hi, it.End), max(lanes, it.Lane+1)
		if it.End < it.Start {
			t.Fatalf("item %d %q ends before it starts", i, it.Name)
		}
		if i > 0 {
			p := &r.Items[i-1]
			if p.Lane > it.Lane || p.Lane == it.Lane && (p.Start > it.Start || p.Start == it.Start && p.End < it.End) {
				t.Fatalf("item %d %q out of order", i, it.Name)
			}
		}
		if span && (last == nil || last.lane != it.Lane) {
			last = &onLane{it.Lane, it.Start, it.End}
		} else if span {
			if last.start < it.End && it.Start < last.end {
				t.Fatalf("item %d %q overlaps on lane %d:\n%s", i, it.Name, it.Lane, rowText(r))
			}
			if it.End > last.end {
				last.start, last.end = it.Start, it.End
			}
		}
		if it.Parent >= 0 {
			p := &r.Items[it.Parent]
			if p.State != Closed && p.State != Open {
				t.Fatalf("item %d %q is in a %d", i, it.Name, p.State)
			}
			if it.Depth != p.Depth+1 {
				t.Fatalf("item %d %q has depth %d in %d", i, it.Name, it.Depth, p.Depth)
			}
			if span && it.Lane <= p.Lane || !span && it.Lane != p.Lane {
				t.Fatalf("item %d %q on lane %d, its parent on %d", i, it.Name, it.Lane, p.Lane)
			}
		} else if it.Depth != 0 || !span && it.Lane != 0 {
			t.Fatalf("root %d %q has depth %d, lane %d", i, it.Name, it.Depth, it.Lane)
		}
		var sum int64
		at := it.Start
		for _, s := range it.Segments {
			if s.Start < at || s.End <= s.Start || s.End > it.End {
				t.Fatalf("item %d %q: segment %v out of place in %d..%d", i, it.Name, s, it.Start, it.End)
			}
			at = s.End
			sum += s.End - s.Start
		}
		if sum > it.End-it.Start {
			t.Fatalf("item %d %q: parts of %d in %d", i, it.Name, sum, it.End-it.Start)
		}
		if it.Flags&Virtual != 0 {
			virtual++
			if len(it.Segments) == 0 || it.Request < 0 {
				t.Fatalf("virtual item %d %q without segments or request", i, it.Name)
			}
			if p := &r.Items[it.Parent]; it.Start < p.Start || it.End > p.End {
				if it.Flags&Derived != 0 {
					t.Fatalf("virtual item %d %q lies outside its request", i, it.Name)
				}
			}
		}
	}
	if lo != r.Start || hi != r.End || lanes != r.Lanes {
		t.Fatalf("row %d..%d %d lanes, items %d..%d %d", r.Start, r.End, r.Lanes, lo, hi, lanes)
	}
	if r.Spans+r.Points+r.Orphans != len(r.Items) || r.Spans-virtual != starts {
		t.Fatalf("%d spans (%d virtual), %d points, %d orphans of %d items and %d starts", r.Spans, virtual, r.Points, r.Orphans, len(r.Items), starts)
	}
}

// sampleFrom makes a trace out of any bytes, four an event.
func sampleFrom(data []byte) *rollout.Sample {
	names := []string{"generate_and_rm", "sglang_generate", "sglang_pd_prefill", "sglang_pd_prefill_forward", "sglang_pd_prefill_transfer_queue", "sglang_pd_decode", "sglang_pd_decode_forward", "tool_call", "reward_model", "x"}
	s := &rollout.Sample{Trace: rollout.Trace{Present: true, SharedWith: -1}}
	now := float64(t0)
	id := func(b byte) string {
		if b%24 == 0 {
			return ""
		}
		return string(rune('a' + b%24))
	}
	for ; len(data) >= 4; data = data[4:] {
		e := rollout.Event{Order: len(s.Trace.Events), Name: names[int(data[0]>>2)%len(names)], SpanID: id(data[1]), ParentID: id(data[2] >> 1), Attempt: int(data[1] >> 6)}
		switch data[0] & 3 {
		case 1, 2:
			e.Kind = rollout.SpanStart
		case 3:
			e.Kind = rollout.SpanEnd
		}
		switch d := data[3]; {
		case d == 255:
			e.TS, e.NonFinite = math.Inf(1), true
		case d == 254:
			e.TS = 1e300
		case d >= 240:
			now -= float64(d-240) / 8
			e.TS = now
		default:
			now += float64(d) / 64
			e.TS = now
		}
		at := len(s.Trace.Events)
		s.Trace.Events = append(s.Trace.Events, e)
		if e.Name != "sglang_generate" || e.NonFinite {
			continue
		}
		switch e.Kind {
		case rollout.SpanStart:
			q := request.Request{SpanStart: at, SpanEnd: -1, Name: e.Name, SpanID: e.SpanID, Attempt: e.Attempt, Start: e.TS, End: math.NaN()}
			for p := range q.Phases {
				if (int(data[2])>>(p%8))&1 != 0 {
					q.Phases[p] = request.Value{V: float64(int(data[3])*(p+1)%17) / 8, State: request.Known}
				}
			}
			q.QueueTime = request.Value{V: float64(data[2]) / 64, State: request.Known}
			q.PromptTokens = request.Value{V: float64(data[1]), State: request.State(data[2] & 1)}
			q.CompletionTokens = request.Value{V: float64(data[3]), State: request.Known}
			q.DecodeThroughput = request.Value{V: float64(data[3]), State: request.Known}
			s.Requests = append(s.Requests, q)
		case rollout.SpanEnd:
			for i := range slices.Backward(s.Requests) {
				if r := &s.Requests[i]; r.SpanID == e.SpanID && r.SpanEnd < 0 {
					r.SpanEnd, r.End = at, e.TS
					break
				}
			}
		}
	}
	return s
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0, 1, 3, 1, 0, 64})
	f.Add([]byte{5, 1, 255, 10, 5, 2, 2, 3, 7, 1, 0, 9, 13, 2, 4, 1, 15, 2, 4, 5})
	r := rand.New(rand.NewSource(1))
	for range 8 {
		b := make([]byte, 400)
		r.Read(b)
		f.Add(b)
	}
	b := NewBuilder(Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := sampleFrom(data)
		row := b.Build(s)
		checkRow(t, row)
		first := rowText(row)
		if again := rowText(NewBuilder(Options{}).Build(s)); again != first {
			t.Fatalf("a new builder makes another row\n%s---\n%s", again, first)
		}
		w := NewWallTime(WallTimeOptions{})
		w.Add(row)
		checkWall(t, w.Result())
	})
}

func TestBuildRandom(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	b := NewBuilder(Options{})
	for i := range 3000 {
		data := make([]byte, 4*(1+r.Intn(120)))
		r.Read(data)
		if i%3 == 0 { // a calmer one: time goes on, parents are sometimes missing
			for j := 3; j < len(data); j += 4 {
				data[j] %= 30
			}
		}
		checkRow(t, b.Build(sampleFrom(data)))
	}
}

// huge makes traces that are hard on simple algorithms, n events each.
func huge(kind string, n int) *rollout.Sample {
	s := &rollout.Sample{Trace: rollout.Trace{Present: true, SharedWith: -1}}
	ev := make([]rollout.Event, 0, n)
	add := func(k rollout.EventKind, name, id, parent string, ts float64) {
		ev = append(ev, rollout.Event{Order: len(ev), Kind: k, Name: name, SpanID: id, ParentID: parent, TS: t0 + ts})
	}
	id := func(i int) string { return fmt.Sprintf("%032x", i+1) }
	switch kind {
	case "points":
		for i := range n {
			add(rollout.Point, "token", "", "", float64(i)*1e-3)
		}
	case "flat":
		for i := range n / 2 {
			add(rollout.SpanStart, "tool_call", id(i), "", float64(i))
			add(rollout.SpanEnd, "tool_call", id(i), "", float64(i)+0.5)
		}
	case "deep":
		for i := range n / 2 {
			add(rollout.SpanStart, "x", id(i), "", float64(i))
		}
		for i := n/2 - 1; i >= 0; i-- {
			add(rollout.SpanEnd, "x", id(i), "", float64(n-i))
		}
	case "leaked": // deep, and never ended
		for i := range n {
			add(rollout.SpanStart, "x", id(i), id(i-1), float64(i))
		}
	case "abandoned": // open spans under closed ones, then roots
		for i := range n / 3 {
			add(rollout.SpanStart, "open", id(i+n), id(i), float64(i))
			add(rollout.SpanStart, "x", id(i), "", float64(i))
			add(rollout.SpanEnd, "x", id(i), "", float64(i)+2)
		}
	case "concurrent":
		for i := range n / 2 {
			add(rollout.SpanStart, "x", id(i), "", float64(i))
		}
		for i := range n / 2 {
			add(rollout.SpanEnd, "x", id(i), "", float64(n+i))
		}
	case "one id":
		for i := range n / 2 {
			add(rollout.SpanStart, "x", "a", "a", float64(i))
		}
		for i := range n / 2 {
			add(rollout.SpanEnd, "x", "a", "a", float64(n+i))
		}
	case "cycle":
		for i := range n {
			add(rollout.SpanStart, "x", id(i), id((i+1)%n), float64(i))
		}
	}
	s.Trace.Events = ev
	return s
}

var bigKinds = []string{"points", "flat", "deep", "leaked", "abandoned", "concurrent", "one id", "cycle"}

// Every shape of a large trace is built in one go; a quadratic step would take minutes.
func TestBuildLarge(t *testing.T) {
	b := NewBuilder(Options{})
	for _, kind := range bigKinds {
		checkRow(t, b.Build(huge(kind, 100_000)))
	}
	// A small row after it sees nothing of it.
	r := b.Build(traceOf("S 0 a a\nE 1 a a"))
	checkRow(t, r)
	if len(r.Items) != 1 {
		t.Fatalf("%d items", len(r.Items))
	}
}

func BenchmarkBuildLarge(b *testing.B) {
	for _, kind := range bigKinds {
		b.Run(kind, func(b *testing.B) {
			s := huge(kind, 1_000_000)
			bl := NewBuilder(Options{})
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				bl.Build(s)
			}
		})
	}
}

// pdSample is a sample as today's slime writes them: 55 events.
func pdSample() *rollout.Sample {
	var b strings.Builder
	b.WriteString("P 0 data_source_create\nS 0.1 generate_and_rm_group g\nS 0.2 generate_and_rm m g\n")
	at := 0.3
	for i := range 3 {
		g := fmt.Sprintf("g%d", i)
		fmt.Fprintf(&b, "S %g sglang_generate %s m\n", at, g)
		end := at
		for _, role := range []string{"prefill", "decode"} {
			fmt.Fprintf(&b, "S %g sglang_pd_%s %s%s %s\n", end, role, g, role, g)
			for j, ph := range []string{"forward", "transfer"} {
				if role == "prefill" && ph == "transfer" {
					ph = "transfer_queue"
				}
				id := fmt.Sprintf("%s%s%d", g, role, j)
				fmt.Fprintf(&b, "S %g sglang_pd_%s_%s %s %s%s\n", end, role, ph, id, g, role)
				end += 0.25
				fmt.Fprintf(&b, "E %g sglang_pd_%s_%s %s -\n", end, role, ph, id)
			}
			fmt.Fprintf(&b, "E %g sglang_pd_%s %s%s -\n", end, role, g, role)
		}
		fmt.Fprintf(&b, "P %g sglang_pd_summary - %s\n", end, g)
		at += 1.5
		fmt.Fprintf(&b, "E %g sglang_generate %s -\n", at, g)
	}
	fmt.Fprintf(&b, "E %g generate_and_rm m\nE %g generate_and_rm_group g\n", at+0.1, at+0.2)
	s := traceOf(b.String())
	for i := range s.Requests {
		r := &s.Requests[i]
		r.Phases[request.PrefillForward] = request.Value{V: 0.25, State: request.Known}
		r.Phases[request.PrefillTransferQueue] = request.Value{V: 0.25, State: request.Known}
		r.Phases[request.DecodeTransfer] = request.Value{V: 0.25, State: request.Known}
		r.Phases[request.DecodeForward] = request.Value{V: 0.25, State: request.Known}
	}
	return s
}

func BenchmarkBuild2048(b *testing.B) {
	s := pdSample()
	bl := NewBuilder(Options{})
	b.ReportAllocs()
	for b.Loop() {
		for range 2048 {
			bl.Build(s)
		}
	}
	b.ReportMetric(float64(2048*len(s.Trace.Events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
