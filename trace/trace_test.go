package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// shape lists types and names, s: start, e: end, p: point event.
func shape(c *Carrier) string {
	var out []string
	for _, e := range c.Events() {
		out = append(out, map[string]string{SpanStart: "s:", SpanEnd: "e:", Point: "p:"}[e.Type]+e.Name)
	}
	return strings.Join(out, " ")
}

// tree lists names of spans and events below the names of their parents.
func tree(c *Carrier) string {
	names := map[string]string{}
	for _, e := range c.Events() {
		if e.Type == SpanStart {
			names[e.SpanID] = e.Name
		}
	}
	var out []string
	for _, e := range c.Events() {
		if e.Type != SpanEnd {
			out = append(out, names[e.ParentSpanID]+">"+e.Name)
		}
	}
	return strings.Join(out, " ")
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func noErrors(t *testing.T, tr *Tracer) {
	t.Helper()
	if s := tr.Stats(); len(s.Errors) > 0 || s.Dropped > 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestSpansNest(t *testing.T) {
	var tr Tracer
	a, b := NewCarrier(0, 7), NewCarrier(1, 7)
	ctx, group := tr.Start(context.Background(), Targets{a, nil, b}, "group", A("group_size", 2))
	c2, one := tr.Start(ctx, a, "generate")
	tr.Event(c2, a, "queued")
	_, again := tr.Start(c2, nil, "again")
	again.End()
	one.Set("tokens", 5).Update(A("tokens", 6), A("x", "y"))
	one.End()
	one.End()
	one.Set("late", true)
	group.EndErr(nil)
	equal(t, tree(a), ">group group>generate generate>queued generate>again")
	equal(t, shape(a), "s:group s:generate p:queued s:again e:again e:generate e:group")
	equal(t, shape(b), "s:group e:group")
	equal(t, a.Events()[5].Attrs, Attrs{{"tokens", 6}, {"x", "y"}, {"late", true}})
	equal(t, a.Events()[0].Attrs.Get("group_size"), any(2))
	if FromContext(c2) != one || FromContext(context.Background()) != nil {
		t.Error("FromContext")
	}
	noErrors(t, &tr)
}

func TestCarrierJSON(t *testing.T) {
	now := time.Date(2026, 8, 21, 1, 2, 3, 250_000_000, time.UTC)
	tr := Tracer{Now: func() time.Time { return now }}
	c := NewCarrier(3, "g")
	ctx, s := tr.Start(context.Background(), c, "outer", A("a", 1.0), A("n", nil))
	tr.Event(ctx, nil, "point", A("t", "<&>\"\\\n\u2028\xff"), A("nan", math.NaN()), A("d", 1500*time.Millisecond), A("e", errors.New("bad")))
	now = now.Add(time.Second)
	s.End()
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`[0-9a-f]{32}`)
	want := `{"version":1,"trace_id":"ID","events":[` +
		`{"type":"span_start","name":"outer","ts":1787274123.25,"trace_id":"ID","sample_id":3,"group_id":"g","attempt":0,"span_id":"ID","attrs":{"a":1.0,"n":null}},` +
		`{"type":"event","name":"point","ts":1787274123.25,"trace_id":"ID","sample_id":3,"group_id":"g","attempt":0,"parent_span_id":"ID","attrs":` +
		`{"t":"\u003c\u0026\u003e\"\\\u000a\u2028` + "\ufffd" + `","nan":"NaN","d":1.5,"e":"bad"}},` +
		`{"type":"span_end","name":"outer","ts":1787274124.25,"trace_id":"ID","sample_id":3,"group_id":"g","attempt":0,"span_id":"ID"}` +
		`],"sample_id":3,"group_id":"g","attempt":0}`
	equal(t, id.ReplaceAllString(string(got), "ID"), want)

	var back Carrier
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(&back)
	equal(t, string(again), string(got))
	equal(t, back.Events()[0].SampleID, any(int64(3)))
	if !regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`).MatchString(c.TraceID()) {
		t.Error("not a uuid of version 4:", c.TraceID())
	}
}

func TestCarrierJSONErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2}`:                   "version 2",
		`{"events":5}`:                    "events",
		`{"events":[{"attrs":[1]}]}`:      "attrs are an object",
		`{"events":[{"ts":"soon"}]}`:      "ts",
		`{"attempt":"abc"}`:               "attempt",
		`{"dropped_events":-1}`:           "negative",
		`{"events":[{"attrs":{"a":1}},7]`: "unexpected end",
	} {
		var c Carrier
		if err := json.Unmarshal([]byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var c Carrier
	text := `{"version":1,"trace_id":"t","events":[{"type":"event","name":"n","ts":"NaN","attrs":{"b":9007199254740993,"a":[1,{"c":12345678901234567890123}],"f":1e2}}],"sample_id":"s","group_id":null,"attempt":1,"dropped_events":4}`
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	e := c.Events()[0]
	if !math.IsNaN(e.TS) || e.Attrs[0].Value != int64(9007199254740993) || e.Attrs[1].Key != "a" || e.Attrs[2].Value != 100.0 || c.Dropped() != 4 || c.Attempt() != 1 {
		t.Errorf("%+v", e)
	}
	b, _ := json.Marshal(&c)
	if !strings.Contains(string(b), `"a":[1,{"c":12345678901234567890123}]`) {
		t.Errorf("%s", b)
	}
}

func TestClockIsSet(t *testing.T) {
	mono := time.Duration(0)
	base := time.Now() // with a monotonic reading
	tr := Tracer{Now: func() time.Time { return base.Add(mono) }}
	c := NewCarrier(0, nil)
	ctx, s := tr.Start(context.Background(), c, "outer")
	mono = time.Second
	_, in := tr.Start(ctx, c, "inner")
	mono = 3 * time.Second
	in.End()
	s.End()
	e := c.Events()
	for i, want := range []float64{0, 1, 3, 3} {
		if got := e[i].TS - e[0].TS; math.Abs(got-want) > 1e-6 {
			t.Errorf("event %d after %v s, want %v", i, got, want)
		}
	}
	// An injected clock without a monotonic reading steps back: no negative duration.
	now := time.Unix(1000, 0)
	tr2 := Tracer{Now: func() time.Time { return now }}
	_, s = tr2.Start(context.Background(), c, "stepped")
	now = time.Unix(500, 0)
	s.End()
	e = c.Events()
	equal(t, e[len(e)-1].TS, 1000.0)
}

type sample struct{ Trace *Carrier }

func (s *sample) TraceHandles() []Handle { return s.Trace.TraceHandles() }

func TestTargets(t *testing.T) {
	var tr Tracer
	s := &sample{}
	if h := Bind(&s.Trace, 4, 2); h.Carrier != s.Trace || Bind(&s.Trace, 9, 9).Carrier != s.Trace {
		t.Error("Bind")
	}
	other := &sample{NewCarrier(5, nil)}
	_, span := tr.Start(context.Background(), All([]*sample{s, other}), "s")
	span.End()
	equal(t, shape(s.Trace)+"|"+shape(other.Trace), "s:s e:s|s:s e:s")
	equal(t, s.Trace.Events()[0].SampleID, any(int64(4)))
	for _, nothing := range []Target{nil, (*Carrier)(nil), (*Handle)(nil), (*Span)(nil), &sample{}, Targets{}, &Handle{}} {
		ctx, span := tr.Start(context.Background(), nothing, "s")
		span.Set("a", 1).Update(A(ChildrenKey, []Child{{Name: "c", End: 1}}))
		span.EndErr(io.EOF)
		tr.Event(ctx, nothing, "e")
		tr.NextAttempt(ctx, nothing)
		tr.Merge(nothing, s.Trace)
		equal(t, tr.Export(ctx, nothing).TraceID, "")
	}
	noErrors(t, &tr)
	// A nil sample whose method needs one.
	_, span = tr.Start(context.Background(), (*sample)(nil), "s")
	span.End()
	equal(t, tr.Stats().Errors, map[string]int64{"target": 1})
	// A span is a target: work that has lost the context.
	_, span = tr.Start(context.Background(), s, "parent")
	_, child := tr.Start(context.Background(), span, "child")
	child.End()
	span.End()
	equal(t, tree(s.Trace), ">s >parent parent>child")
}

func TestNilRecordsNothing(t *testing.T) {
	var tr *Tracer
	c := NewCarrier(0, nil)
	ctx, s := tr.Start(context.Background(), c, "s")
	s.Set("a", 1).Update(A("b", 2))
	s.End()
	s.EndErr(io.EOF)
	tr.Event(ctx, c, "e")
	tr.NextAttempt(ctx, c)
	tr.Merge(c, c)
	tr.Export(ctx, c)
	out, err := Func(tr, "f", nil, nil, func(_ context.Context, n int) (int, error) { return n + 1, nil })(ctx, 1)
	if out != 2 || err != nil || len(c.Events()) > 0 || tr.Stats().Events > 0 {
		t.Error(out, err, c.Events())
	}
}

type typed struct{}

func (typed) Error() string { return strings.Repeat("ä", 3000) }

type mean struct{}

func (mean) Error() string { panic("mean") }

func TestErrors(t *testing.T) {
	var tr Tracer
	for _, c := range []struct {
		err           error
		kind, message string
	}{
		{io.EOF, "*errors.errorString", "EOF"},
		{fmt.Errorf("read: %w", typed{}), "trace.typed", "read: " + strings.Repeat("ä", 2045) + "..."},
		{fmt.Errorf("post: %w", context.Canceled), "context.Canceled", "post: context canceled"},
		{context.DeadlineExceeded, "context.DeadlineExceeded", "context deadline exceeded"},
		{mean{}, "trace.mean", "(its text cannot be read)"},
	} {
		k := NewCarrier(0, nil)
		_, s := tr.Start(context.Background(), k, "s")
		s.Set("k", 1)
		s.EndErr(c.err)
		equal(t, k.Events()[1].Attrs, Attrs{{"k", 1}, {"error_type", c.kind}, {"error_message", c.message}})
	}
	noErrors(t, &tr)
}

func TestFunc(t *testing.T) {
	var tr Tracer
	c := NewCarrier(0, nil)
	type job struct {
		c *Carrier
		n int
	}
	target := func(j job) Target { return j.c }
	inner := Func(&tr, "inner", nil, nil, func(context.Context, int) (int, error) { return 0, io.EOF })
	f := Func(&tr, "outer", target, func(j job) []Attr { return []Attr{A("n", j.n)} }, func(ctx context.Context, j job) (int, error) {
		if j.n == 3 {
			panic("three")
		}
		_, err := inner(ctx, j.n)
		return j.n, err
	})
	if n, err := f(context.Background(), job{c, 1}); n != 1 || err != io.EOF {
		t.Error(n, err)
	}
	equal(t, tree(c), ">outer outer>inner")
	equal(t, c.Events()[3].Attrs.Get("error_message"), any("EOF"))
	equal(t, c.Events()[0].Attrs, Attrs{{"n", 1}})
	func() {
		defer func() { equal(t, recover(), any("three")) }()
		_, _ = f(context.Background(), job{c, 3})
	}()
	equal(t, c.Events()[5].Attrs.Get("error_type"), any("panic"))
	// Getters that fail, and one that finds nothing although there is a span around.
	boom := Func(&tr, "boom", func(int) Target { panic("t") }, func(int) []Attr { panic("a") }, func(context.Context, int) (int, error) { return 7, nil })
	ctx, s := tr.Start(context.Background(), c, "around")
	if n, err := boom(ctx, 0); n != 7 || err != nil {
		t.Error(n, err)
	}
	s.End()
	equal(t, strings.Contains(tree(c), "boom"), false)
	equal(t, tr.Stats().Errors, map[string]int64{"target": 1, "attrs": 1})
}

func TestNextAttempt(t *testing.T) {
	var tr Tracer
	c := NewCarrier(0, nil)
	ctx, s := tr.Start(context.Background(), c, "s")
	tr.NextAttempt(ctx, nil, A("why", "abort"))
	s.End()
	e := c.Events()
	equal(t, []int{e[0].Attempt, e[1].Attempt, e[2].Attempt, c.Attempt()}, []int{0, 1, 1, 1})
	equal(t, e[1].Attrs, Attrs{{"attempt", 1}, {"why", "abort"}})
	equal(t, tree(c), ">s s>attempt_start")
}

func TestFullCarrierKeepsPairs(t *testing.T) {
	var log bytes.Buffer
	tr := Tracer{MaxEvents: 3, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c := NewCarrier(0, nil)
	meta := map[string]any{"pd_decode_forward_duration": 1.0, "pd_transfer_total_mb": 1}
	ctx, a := tr.Start(context.Background(), c, "a")
	ctx, b := tr.Start(ctx, c, "b")
	tr.Event(ctx, c, "e")
	ctx, lost := tr.Start(ctx, c, "lost")
	tr.Event(ctx, c, "lost")
	lost.Update(SGLangAttrs(meta)...) // 2 spans and an event
	lost.End()
	b.End()
	a.Update(SGLangAttrs(map[string]any{"pd_decode_forward_duration": 1.0})...)
	a.End()
	equal(t, shape(c), "s:a s:b p:e e:b e:a")
	equal(t, []int64{c.Dropped(), tr.Stats().Dropped, tr.Stats().Events}, []int64{12, 12, 5})
	j, _ := json.Marshal(c)
	equal(t, strings.HasSuffix(string(j), `"attempt":0,"dropped_events":12}`), true)

	// Merging keeps pairs too, and carries what the other side dropped.
	remote := NewCarrier(0, nil)
	var free Tracer
	for _, name := range []string{"x", "y"} {
		_, s := free.Start(context.Background(), remote, name)
		s.End()
	}
	remote.drop(3)
	tr.MaxEvents = 4
	to := NewCarrier(0, nil)
	for range 3 {
		tr.Event(context.Background(), to, "e")
	}
	equal(t, tr.Merge(to, remote), 2)
	equal(t, shape(to), "p:e p:e p:e s:x e:x")
	equal(t, to.Dropped(), int64(5))
	equal(t, tr.Merge(to, nil), 0)
	equal(t, tr.Merge(to, to), 0)
	tr.Merge(to, nil)
	equal(t, tr.Stats().Errors["merge"], int64(2))
	equal(t, strings.Count(log.String(), "kind=merge"), 1)
}

func TestChildren(t *testing.T) {
	var tr Tracer
	c := NewCarrier(0, nil)
	_, s := tr.Start(context.Background(), c, "sglang_generate")
	s.Update(SGLangAttrs(map[string]any{
		"prompt_tokens": 12.0, "cached_tokens": nil, "finish_reason": map[string]any{"type": "stop"}, "id": "r1", "unused": 1,
		"pd_prefill_bootstrap_queue_duration": 0.25, "pd_prefill_forward_duration": json.Number("0.125"), "pd_prefill_alloc_wait_duration": 0,
		"pd_bootstrap_duration": math.NaN(), "pd_alloc_waiting_duration": 9.0, // the old name of one that is there
		"pd_decode_transfer_duration": " 0.5", "pd_decode_forward_duration": math.Inf(1), "pd_decode_prealloc_duration": "x",
		"pd_transfer_speed_gb_s": 20.0, "pd_prefill_retry_count": 0,
	})...)
	s.End()
	equal(t, shape(c), "s:sglang_generate "+
		"s:sglang_pd_prefill s:sglang_pd_prefill_bootstrap_queue e:sglang_pd_prefill_bootstrap_queue "+
		"s:sglang_pd_prefill_forward e:sglang_pd_prefill_forward e:sglang_pd_prefill "+
		"s:sglang_pd_decode s:sglang_pd_decode_transfer e:sglang_pd_decode_transfer e:sglang_pd_decode "+
		"p:sglang_pd_summary e:sglang_generate")
	e := c.Events()
	equal(t, e[12].Attrs, Attrs{{"prompt_tokens", int64(12)}, {"finish_reason", "stop"}, {"sglang_request_id", "r1"}})
	equal(t, e[6].Attrs, Attrs{{"phase", "prefill"}, {"duration_s", 0.375}})
	equal(t, e[9].Attrs, Attrs{{"pd_decode_transfer_duration", " 0.5"}})
	equal(t, e[11].Attrs, Attrs{{"pd_transfer_speed_gb_s", 20.0}, {"pd_prefill_retry_count", 0}})
	if d := e[11].TS - e[0].TS; math.Abs(d-0.875) > 1e-6 {
		t.Error("the summary stands at", d)
	}
	noErrors(t, &tr)
	deep := Child{Name: "d", End: 1}
	for range 300 {
		deep = Child{Name: "d", End: 1, Children: []Child{deep}}
	}
	s.Update(A(ChildrenKey, []Child{{Name: "", End: 1}, {Name: "back", Start: 2, End: 1}, {Event: true, Name: "nan", Start: math.NaN()}, deep}), A("k", 1))
	s.Update(A(ChildrenKey, "text"))
	equal(t, tr.Stats().Errors, map[string]int64{"child": 5})
	equal(t, SGLangAttrs(nil), []Attr(nil))
	old := SGLangAttrs(map[string]any{"pd_bootstrap_duration": 1.0})
	equal(t, old[0].Value.([]Child)[0].Children[0].Attrs, Attrs{{"pd_prefill_bootstrap_duration", 1.0}})
}

func TestThereAndBack(t *testing.T) {
	var tr, remote Tracer
	c := NewCarrier(1, "g")
	tr.NextAttempt(context.Background(), c)
	ctx, s := tr.Start(context.Background(), c, "rollout")
	j, _ := json.Marshal(tr.Export(ctx, c))
	var p Payload
	if err := json.Unmarshal(j, &p); err != nil {
		t.Fatal(err)
	}
	h := Import(p, nil)
	rctx, a := remote.Start(context.Background(), h, "reward")
	rctx, b := remote.Start(rctx, h, "sandbox")
	inner := remote.Export(rctx, h)
	b.End()
	a.End()
	equal(t, tr.Merge(c, h.Carrier), 4)
	s.End()
	equal(t, tree(c), ">attempt_start >rollout rollout>reward reward>sandbox")
	e := c.Events()
	equal(t, *inner.ParentSpanID, e[3].SpanID)
	equal(t, []any{e[3].SampleID, e[3].GroupID, e[3].Attempt, e[3].TraceID}, []any{int64(1), "g", 1, c.TraceID()})
	// A handle's parent counts more than an unrelated span around.
	ctx, other := tr.Start(context.Background(), c, "other")
	_, x := tr.Start(ctx, Import(p, c), "x")
	x.End()
	other.End()
	equal(t, strings.HasSuffix(tree(c), ">other rollout>x"), true)
	equal(t, Import(Payload{}, nil).Carrier.TraceID() != "", true)
	noErrors(t, &tr)
}

func TestConcurrent(t *testing.T) {
	tr := Tracer{MaxEvents: 1000}
	c := NewCarrier(0, nil)
	ctx, root := tr.Start(context.Background(), c, "root")
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 100 {
				ctx, s := tr.Start(ctx, nil, "s")
				tr.Event(ctx, nil, "e")
				root.Set("k", 1)
				s.End()
				if i%50 == 0 {
					_, _ = json.Marshal(c)
				}
			}
		}()
	}
	wg.Wait()
	root.End()
	open := map[string]bool{}
	for _, e := range c.Events() {
		switch e.Type {
		case SpanStart:
			open[e.SpanID] = true
		case SpanEnd:
			if !open[e.SpanID] {
				t.Fatal("an end without a start")
			}
			delete(open, e.SpanID)
		}
	}
	equal(t, len(open), 0)
	equal(t, int64(len(c.Events()))+c.Dropped(), int64(2+8*100*3))
}

// TestSpanThatEndsMeanwhile is for the race detector: a span may end while others begin below it.
func TestSpanThatEndsMeanwhile(t *testing.T) {
	var tr Tracer
	for range 50 {
		c := NewCarrier(0, nil)
		ctx, root := tr.Start(context.Background(), c, "root")
		var wg sync.WaitGroup
		wg.Go(root.End)
		wg.Go(func() {
			_, s := tr.Start(ctx, nil, "below")
			s.End()
			_, s = tr.Start(context.Background(), root, "on it")
			s.End()
			tr.Event(ctx, nil, "event")
		})
		wg.Wait()
		equal(t, len(c.Events()), 7)
	}
	noErrors(t, &tr)
}

func BenchmarkSpan(b *testing.B) {
	tr := Tracer{MaxEvents: 1 << 62}
	ctx := context.Background()
	c := NewCarrier(0, 0)
	b.ReportAllocs()
	for i := range b.N {
		if i%50 == 0 { // about what a sample has
			c = NewCarrier(0, 0)
		}
		_, s := tr.Start(ctx, c, "sglang_generate")
		s.End()
	}
}

func BenchmarkCarrierJSON(b *testing.B) {
	var tr Tracer
	c := NewCarrier(0, 0)
	for range 50 {
		_, s := tr.Start(context.Background(), c, "sglang_generate", A("max_new_tokens", 512))
		s.Update(A("prompt_tokens", 12), A("e2e_latency", 0.25), A("finish_reason", "stop"))
		s.End()
	}
	var buf []byte
	b.ReportAllocs()
	for range b.N {
		buf = c.append(buf[:0])
		b.SetBytes(int64(len(buf)))
	}
}
