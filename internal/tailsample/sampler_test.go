package tailsample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

// calm is the default policy without the live percentile, which depends on what came before.
func calm(ratio float64) Policy {
	p := DefaultPolicy()
	p.Slow.P99 = false
	p.Ratio = ratio
	return p
}

// end sends spans, lets everything be decided, and gives the final decision of each trace.
func end(s *Sampler, spans ...made) map[span.TraceID]*Decision {
	out := map[span.TraceID]*Decision{}
	ds := s.Add(t0, []span.Scope{scope("sglang", spans...)})
	ds = append(ds, s.Advance(after(2*time.Hour))...)
	for _, d := range ds {
		if d.Final {
			out[d.Trace] = d
		}
	}
	return out
}

func TestRules(t *testing.T) {
	root := func(attrs ...any) made {
		return made{trace: traceOf(1), id: 1, name: " Req 0123abcd", start: t0, end: t0 + 3e9, attrs: attrs}
	}
	child := func(m made) made {
		m.trace, m.id, m.parent = traceOf(1), 2, 1
		if m.end == 0 {
			m.start, m.end = t0, t0+1e6
		}
		return m
	}
	limits := calm(0)
	limits.Slow = Slow{TTFT: 2 * time.Second, ITL: 50 * time.Millisecond, E2E: 10 * time.Second, Queue: 5 * time.Second, Transfer: time.Second}
	off := Policy{Slow: Slow{Requests: 1}}
	yes := true
	with := func(c Condition) Policy { p := calm(0); p.Keep = []Condition{c}; return p }
	for _, c := range []struct {
		name   string
		policy Policy
		spans  []made
		want   string // "" for dropped
	}{
		{"plain", calm(0), []made{root()}, ""},
		{"share of all", calm(1), []made{root()}, RuleRatio},
		{"status", calm(0), []made{child(made{name: "decode_forward", failed: true}), root()}, RuleErrors},
		{"error.type", calm(0), []made{root("error.type", "TimeoutError")}, RuleErrors},
		{"answer 503", calm(0), []made{root("status_code", 503)}, RuleErrors},
		{"answer 503 as text", calm(0), []made{root("http.response.status_code", "503")}, RuleErrors},
		{"answer 404", calm(0), []made{root("http.response.status_code", 404)}, ""},
		{"aborted", calm(0), []made{root("gen_ai.response.finish_reasons", `["abort"]`)}, RuleAborted},
		{"stopped", calm(0), []made{root("gen_ai.response.finish_reasons", `["stop"]`)}, ""},
		{"retracted", calm(0), []made{child(made{name: "decode_forward", events: []string{"schedule", "retract"}}), root()}, RuleRetracted},
		{"tool span", calm(0), []made{child(made{name: "execute_tool search", failed: true}), root()}, RuleTools},
		{"tool by operation", calm(0), []made{child(made{name: "search", attrs: []any{"gen_ai.operation.name", "execute_tool", "error.type", "E"}}), root()}, RuleTools},
		{"nothing kept", off, []made{root("error.type", "E")}, ""},
		{"ttft", limits, []made{root("gen_ai.latency.time_to_first_token", 2.5)}, "slow:ttft"},
		{"ttft below", limits, []made{root("gen_ai.latency.time_to_first_token", 1.5)}, ""},
		{"ttft in ms", limits, []made{root("ttft_ms", 2500.0)}, "slow:ttft"},
		{"itl", limits, []made{root("avg_itl_ms", 60)}, "slow:itl"},
		{"itl from tokens", limits, []made{root("gen_ai.latency.time_to_first_token", 1.0, "gen_ai.usage.output_tokens", 11)}, "slow:itl"},
		{"e2e", limits, []made{child(made{name: "x"}), {trace: traceOf(1), id: 1, name: "http-request", start: t0, end: t0 + 11e9}}, "slow:e2e"},
		{"queue", limits, []made{child(made{name: "prefill_waiting", start: t0, end: t0 + 6e9}), root()}, "slow:queue"},
		{"transfer", limits, []made{child(made{name: "prefill_transfer_kv_cache", start: t0, end: t0 + 2e9}), root()}, "slow:transfer"},
		{"nan", limits, []made{root("gen_ai.latency.time_to_first_token", math.NaN(), "ttft_ms", "NaN", "avg_itl_ms", math.Inf(1))}, ""},
		{"attribute", with(Condition{Name: "vip", Key: "tenant", Values: []string{"a"}}), []made{root("tenant", "a")}, "keep:vip"},
		{"other value", with(Condition{Name: "vip", Key: "tenant", Values: []string{"a"}}), []made{root("tenant", "b")}, ""},
		{"of the resource", with(Condition{Name: "node", Key: "host.name", Values: []string{"node-a"}}), []made{root()}, "keep:node"},
		{"number", with(Condition{Name: "long", Key: "tokens", Min: 5, Max: math.Inf(1), Number: true}), []made{root("tokens", 7)}, "keep:long"},
		{"bool", with(Condition{Name: "b", Key: "debug", Bool: &yes}), []made{root("debug", true)}, "keep:b"},
	} {
		s := start(t, Options{Policy: c.policy, Observe: nothing})
		d := end(s, c.spans...)[traceOf(1)]
		got := ""
		if d.Keep {
			got = d.Policy
		}
		if got != c.want {
			t.Errorf("%s: kept by %q, want %q", c.name, got, c.want)
		}
	}
}

// A trace is dropped by drop unless it failed, and drop wins over the share.
func TestDropCondition(t *testing.T) {
	p := calm(1)
	p.Drop = []Condition{{Name: "health", Key: "url.path", Values: []string{"/health"}}}
	for failed, want := range map[bool]string{false: "drop:health", true: RuleErrors} {
		s := start(t, Options{Policy: p, Observe: nothing})
		d := end(s, made{trace: traceOf(1), id: 1, name: "http-request", start: t0, end: t0 + 1, attrs: []any{"url.path", "/health"}, failed: failed})[traceOf(1)]
		if d.Policy != want || d.Keep != failed {
			t.Errorf("failed %v: %+v", failed, d)
		}
	}
}

// When a trace is decided: by what it shows of its end, not by how long it lasts.
func TestWhen(t *testing.T) {
	req := made{trace: traceOf(1), id: 2, parent: 9, name: " Req 0123abcd", start: t0, end: t0 + 1e9}
	slice := made{trace: traceOf(1), id: 3, parent: 2, name: "decode_loop", start: t0, end: t0 + 1e6}
	with := func(m made, f func(*made)) made { f(&m); return m }
	for _, c := range []struct {
		name  string
		spans []made
		want  time.Duration
		flags Flags
	}{
		{"root", []made{slice, with(req, func(m *made) { m.parent = 0 })}, 6 * time.Second, 0},
		{"root of a caller that sends nothing", []made{slice, req}, 30 * time.Second, NoRoot},
		{"remote parent", []made{with(slice, func(m *made) { m.flags = 0x300 })}, 30 * time.Second, NoRoot},
		{"finish reason", []made{with(slice, func(m *made) { m.attrs = []any{"finish_reason", "stop"} })}, 30 * time.Second, NoRoot},
		{"nothing but slices", []made{slice}, 5 * time.Minute, Unfinished},
		{"bootstrap room is no end", []made{slice, {trace: traceOf(1), id: 9, name: "Bootstrap Room 0x1f", start: t0, end: t0 + 1}}, 5 * time.Minute, Unfinished},
		{"prefill half under a caller", []made{slice, with(req, func(m *made) { m.name = "prefill Req 0123abcd" })}, 5 * time.Minute, Unfinished},
	} {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		s.Add(t0, []span.Scope{scope("sglang", c.spans...)})
		if ds := s.Advance(after(c.want - 1)); len(ds) != 0 {
			t.Errorf("%s: decided before %s: %+v", c.name, c.want, ds[0])
			continue
		}
		ds := s.Advance(after(c.want))
		if len(ds) != 1 || ds[0].Flags != c.flags {
			t.Errorf("%s: after %s: %+v, want the flags %d", c.name, c.want, ds, c.flags)
		}
	}
	t.Run("silence counts from the last span", func(t *testing.T) {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		for i := range 20 { // a generation of 20 minutes that sends a span a minute
			m := slice
			m.id = uint64(i + 10)
			if ds := s.Add(after(time.Duration(i)*time.Minute), []span.Scope{scope("sglang", m)}); len(ds) != 0 {
				t.Fatalf("decided after %d minutes", i)
			}
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		n := 0
		for i := range 31 {
			m := slice
			m.id = uint64(i + 10)
			n += len(s.Add(after(time.Duration(i)*time.Minute), []span.Scope{scope("sglang", m)}))
		}
		if n != 1 || s.Stats().Unfinished != 1 {
			t.Fatalf("%d decisions within MaxAge", n)
		}
	})
	t.Run("time does not run backwards", func(t *testing.T) {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		s.Advance(after(time.Hour))
		s.Add(t0, []span.Scope{scope("sglang", with(req, func(m *made) { m.parent = 0 }))})
		if n := len(s.Advance(after(time.Minute))); n != 0 {
			t.Fatalf("%d decided by an older time", n)
		}
		if n := len(s.Advance(after(time.Hour + 6*time.Second))); n != 1 {
			t.Fatalf("%d decided, want 1", n)
		}
	})
}

// The halves of a PD request without a common trace are decided together.
func TestHalves(t *testing.T) {
	prefill := made{trace: traceOf(1), id: 1, name: "prefill Req 0123abcd", start: t0, end: t0 + 1e9, attrs: []any{"bootstrap_room", "0x1f", "gen_ai.response.finish_reasons", `["length"]`}}
	early := made{trace: traceOf(2), id: 3, parent: 2, name: "decode_prepare", start: t0, end: t0 + 1e6, attrs: []any{"bootstrap_room", 0x1f}}
	decode := made{trace: traceOf(2), id: 2, name: "decode Req 0123abcd", start: t0, end: t0 + 100e9, failed: true, attrs: []any{"bootstrap_room", "0x1f"}}
	s := start(t, Options{Policy: calm(0), Observe: nothing})
	if ds := s.Add(t0, []span.Scope{scope("sglang", prefill, early)}); len(ds) != 0 {
		t.Fatal("decided at once")
	}
	if ds := s.Advance(after(100 * time.Second)); len(ds) != 0 {
		t.Fatalf("the prefill half did not wait for the other: %+v", ds[0])
	}
	ds := s.Add(after(101*time.Second), []span.Scope{scope("sglang", decode)})
	if len(ds) != 2 || ds[0].Policy != RuleErrors || ds[1].Policy != RuleLinked || ds[1].Trace != traceOf(1) {
		t.Fatalf("got %+v; want both halves kept, one for its error and one with it", ds)
	}
	ds = s.Advance(after(107 * time.Second))
	if len(ds) != 2 || !ds[0].Final || !ds[1].Final {
		t.Fatalf("got %d decisions, want both final", len(ds))
	}
	// Alone it does not wait for ever.
	s = start(t, Options{Policy: calm(0), Observe: nothing})
	s.Add(t0, []span.Scope{scope("sglang", prefill)})
	if ds := s.Advance(after(30 * time.Second)); len(ds) != 1 {
		t.Fatalf("%d decisions, want the half alone decided", len(ds))
	}
}

// What is tied to a trace that was kept for a reason is kept too.
func TestLinked(t *testing.T) {
	one := func(n uint64, attrs ...any) made {
		return made{trace: traceOf(n), id: n, name: "invoke_agent", start: t0, end: t0 + 1e9, attrs: attrs}
	}
	for _, c := range []struct {
		name  string
		spans []made // trace 9 fails
		kept  []uint64
	}{
		{"session", []made{one(1, "session.id", "s"), one(2, "session.id", "other"), one(9, "session.id", "s", "error.type", "E"), one(3, "session.id", "s")}, []uint64{1, 3, 9}},
		{"conversation", []made{one(1, "gen_ai.conversation.id", "s"), one(9, "gen_ai.conversation.id", "s", "error.type", "E")}, []uint64{1, 9}},
		{"link from it", []made{one(1), {trace: traceOf(9), id: 9, name: "a", start: t0, end: t0 + 1, failed: true, links: []span.TraceID{traceOf(1)}}}, []uint64{1, 9}},
		{"link to it", []made{{trace: traceOf(1), id: 1, name: "a", start: t0, end: t0 + 1, links: []span.TraceID{traceOf(9)}}, one(9, "error.type", "E")}, []uint64{1, 9}},
		{"link to it, after", []made{one(9, "error.type", "E"), {trace: traceOf(1), id: 1, name: "a", start: t0, end: t0 + 1, links: []span.TraceID{traceOf(9)}}}, []uint64{1, 9}},
		{"linked trace after", []made{{trace: traceOf(9), id: 9, name: "a", start: t0, end: t0 + 1, failed: true, links: []span.TraceID{traceOf(1)}}, one(1)}, []uint64{1, 9}},
		{"chain", []made{
			{trace: traceOf(1), id: 1, name: "a", start: t0, end: t0 + 1, links: []span.TraceID{traceOf(2)}},
			{trace: traceOf(2), id: 2, name: "a", start: t0, end: t0 + 1, links: []span.TraceID{traceOf(9)}},
			one(9, "error.type", "E"),
		}, []uint64{1, 2, 9}},
		{"room 0 is none", []made{one(1, "bootstrap_room", "0x0"), one(9, "bootstrap_room", "0x0", "error.type", "E")}, []uint64{9}},
	} {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		var kept []uint64
		for id, d := range end(s, c.spans...) {
			if d.Keep {
				kept = append(kept, uint64(id[15]))
			}
		}
		slices.Sort(kept)
		if !slices.Equal(kept, c.kept) {
			t.Errorf("%s: kept %v, want %v", c.name, kept, c.kept)
		}
		if len(s.groups)+len(s.extras) != 0 {
			t.Errorf("%s: %d groups and %d extras are left", c.name, len(s.groups), len(s.extras))
		}
	}
	t.Run("off", func(t *testing.T) {
		p := calm(0)
		p.Linked = false
		s := start(t, Options{Policy: p, Observe: nothing})
		if d := end(s, one(1, "session.id", "s"), one(9, "session.id", "s", "error.type", "E"))[traceOf(1)]; d.Keep {
			t.Fatal("kept")
		}
	})
	t.Run("a turn of the session later", func(t *testing.T) {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		s.Add(t0, []span.Scope{scope("x", one(9, "session.id", "s", "error.type", "E"))})
		s.Advance(after(time.Minute))
		s.Add(after(10*time.Minute), []span.Scope{scope("x", one(1, "session.id", "s"))})
		if n := s.Stats().HeldTraces; n != 1 || s.lists[listKept].n != 1 {
			t.Fatal("the next turn is not kept")
		}
	})
}

// The live percentile: with a thousand requests around 100 ms, one of 300 ms is kept, and one of another
// model is not judged by them.
func TestLivePercentile(t *testing.T) {
	p := DefaultPolicy()
	p.Ratio = 0
	s := start(t, Options{Policy: p, Observe: nothing})
	r := rng(4)
	id := uint64(0)
	send := func(model string, ttft float64) *Decision {
		id++
		now := after(time.Duration(id) * 10 * time.Millisecond)
		s.Add(now, []span.Scope{scope("sglang", made{trace: traceOf(id), id: id, name: " Req 1", start: now, end: now + 1e9, attrs: []any{"gen_ai.latency.time_to_first_token", ttft, "gen_ai.response.model", model}})})
		for _, d := range s.Flush(now) {
			return d
		}
		return nil
	}
	kept := 0
	for range 2000 {
		if send("a", 0.1+r.Float64()*0.02).Keep {
			kept++
		}
	}
	if kept > 40 {
		t.Errorf("%d of 2000 equal requests were called slow", kept)
	}
	if d := send("a", 0.3); !d.Keep || d.Policy != "slow:ttft_p99" || d.Weight != 1 {
		t.Errorf("300 ms: %+v", d)
	}
	if d := send("b", 0.3); d.Keep {
		t.Errorf("300 ms of another model: %+v", d)
	}
}

func TestSketch(t *testing.T) {
	var k sketch
	r := rng(2)
	var all []float64
	for range 20_000 {
		v := math.Exp(r.NormFloat64())
		all = append(all, v)
		k.add(t0, v, 1e9)
	}
	slices.Sort(all)
	exact := all[len(all)-len(all)/100-1]
	k.fresh = k.n
	got, ok := k.p99(200)
	if !ok || got < exact || got > exact*1.03 {
		t.Fatalf("p99 is %v, exactly %v", got, exact)
	}
	k.add(t0+1e9, 1, 1e9)
	if _, ok := k.p99(200); !ok {
		t.Fatal("the window before counts no more")
	}
	k.add(t0+5e9, 1, 1e9)
	if _, ok := k.p99(200); ok {
		t.Fatal("what is older than two windows counts still")
	}
}

// world is traces of which some fail, some belong together, and all end; the spans in an order that a
// sender could have.
func world(r *rand.Rand) (spans []made, sizes map[span.TraceID]int) {
	sizes = map[span.TraceID]int{}
	for i := range 120 {
		id := traceOf(r.Uint64())
		n := 1 + r.IntN(6)
		for j := range n {
			m := made{trace: id, id: r.Uint64(), parent: 1, name: "slice", start: t0, end: t0 + int64(r.IntN(1e9)), attrs: []any{"n", i, "pad", strings.Repeat("x", r.IntN(300))}}
			m.failed = r.IntN(60) == 0
			if i%5 == 1 {
				m.attrs = append(m.attrs, "session.id", fmt.Sprint("s", i/10))
			}
			if i%7 == 3 && j == 0 {
				m.attrs = append(m.attrs, "bootstrap_room", fmt.Sprintf("0x%x", 1+i/20))
			}
			if i%11 == 5 && j == 0 && len(spans) > 0 {
				m.links = []span.TraceID{spans[r.IntN(len(spans))].trace}
			}
			if j == n-1 {
				m.parent = 0
			}
			spans = append(spans, m)
		}
		sizes[id] = n
	}
	return spans, sizes
}

// Whatever the order and the batches in which spans arrive: whole traces or none, each span once, and the
// same traces.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(30) {
		r := rng(seed)
		spans, sizes := world(r)
		var first map[span.TraceID]bool
		for round := range 6 {
			if round > 0 {
				r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
			}
			s := start(t, Options{Policy: calm(0.3), Observe: nothing})
			if round%2 == 1 {
				s.nurseryBytes = 1 // everything is packed
			}
			got, final := stored{}, map[span.TraceID]bool{}
			take := func(ds []*Decision) {
				got.take(ds)
				for _, d := range ds {
					if d.Final {
						if _, twice := final[d.Trace]; twice {
							t.Fatalf("seed %d: two final decisions about %s", seed, d.Trace)
						}
						final[d.Trace] = d.Keep
					}
				}
			}
			now := t0
			for left := spans; len(left) > 0; {
				n := min(1+r.IntN(40), len(left))
				now += int64(r.IntN(int(4e9) / len(spans) * n)) // all within the time that a finished trace lingers
				var scopes []span.Scope
				for _, m := range left[:n] {
					if r.IntN(2) == 0 || len(scopes) == 0 {
						scopes = append(scopes, scope([]string{"a", "b"}[r.IntN(2)]))
					}
					sc := &scopes[len(scopes)-1]
					sc.Spans = append(sc.Spans, m.header())
				}
				take(s.Add(now, scopes))
				take(s.Advance(now))
				left = left[n:]
			}
			take(s.Advance(now + int64(2*time.Hour)))
			for id, n := range sizes {
				keep, decided := final[id]
				switch ids := got[id]; {
				case !decided:
					t.Fatalf("seed %d round %d: %s was never decided", seed, round, id)
				case keep && len(ids) != n, !keep && len(ids) != 0:
					t.Fatalf("seed %d round %d: %s is kept: %v, with %d of %d spans", seed, round, id, keep, len(ids), n)
				default:
					slices.SortFunc(ids, func(a, b span.ID) int { return strings.Compare(a.String(), b.String()) })
					if len(slices.Compact(ids)) != len(got[id]) {
						t.Fatalf("seed %d round %d: a span of %s was given twice", seed, round, id)
					}
				}
			}
			if first == nil {
				first = final
			}
			for id, keep := range final {
				if first[id] != keep {
					t.Fatalf("seed %d round %d: %s is kept: %v, in another order %v", seed, round, id, keep, first[id])
				}
			}
			if n := s.Stats(); n.HeldSpans != 0 || n.HeldTraces != 0 || s.nursery.live != 0 || s.packed.live != 0 {
				t.Fatalf("seed %d round %d: something is left: %+v", seed, round, n)
			}
			for i := range s.scopes {
				if s.scopes[i].refs != 0 {
					t.Fatalf("seed %d round %d: scope %d is needed by %d spans that are gone", seed, round, i, s.scopes[i].refs)
				}
			}
			for i := range s.dicts {
				if s.dicts[i].refs != 0 {
					t.Fatalf("seed %d round %d: dictionary %d is needed by %d blocks that are gone", seed, round, i, s.dicts[i].refs)
				}
			}
		}
	}
}

// Spread over time, with late spans, evictions and compaction, a trace is still kept whole or not at all,
// and its bytes come out as they went in.
func TestWholeTracesUnderPressure(t *testing.T) {
	for seed := range uint64(8) {
		r := rng(seed + 100)
		s := start(t, Options{Policy: calm(0.3), MaxTraces: 40, MaxBytes: minBytes, MaxSpansPerTrace: 40, Observe: nothing})
		s.nurseryBytes = 1 << 20
		sent := map[span.TraceID]map[span.ID]string{}
		got := map[span.TraceID]map[span.ID]string{}
		keep := map[span.TraceID]bool{}
		take := func(ds []*Decision) {
			for _, d := range ds {
				if was, ok := keep[d.Trace]; ok && was != d.Keep {
					t.Fatalf("seed %d: the decision about %s changed", seed, d.Trace)
				}
				keep[d.Trace] = d.Keep
				for _, sc := range d.Spans {
					for _, h := range sc.Spans {
						if got[d.Trace] == nil {
							got[d.Trace] = map[span.ID]string{}
						}
						got[d.Trace][h.ID] = sc.Service + string(sc.Resource) + string(h.Raw)
					}
				}
			}
		}
		var ids []span.TraceID
		for range 400 {
			ids = append(ids, traceOf(r.Uint64()))
		}
		now := t0
		for i := range 6000 {
			now += int64(r.IntN(20e6))
			id := ids[min(i/20+r.IntN(100), len(ids)-1)]
			m := made{trace: id, id: uint64(i + 1), parent: 1, name: "slice", start: now, end: now + 1, attrs: []any{"pad", strings.Repeat(fmt.Sprint(i), r.IntN(800))}}
			if r.IntN(15) == 0 {
				m.parent = 0
			}
			m.failed = r.IntN(500) == 0
			service := []string{"a", "b", "c"}[r.IntN(3)]
			sc := scope(service, m)
			if sent[id] == nil {
				sent[id] = map[span.ID]string{}
			}
			sent[id][id64(m.id)] = service + string(sc.Resource) + string(m.wire())
			take(s.Add(now, []span.Scope{sc}))
		}
		take(s.Flush(now))
		for id, spans := range sent {
			if !keep[id] {
				if len(got[id]) != 0 {
					t.Fatalf("seed %d: %s is dropped, and %d of its spans are stored", seed, id, len(got[id]))
				}
				continue
			}
			for sid, raw := range spans {
				if got[id][sid] != raw {
					t.Fatalf("seed %d: span %s of the kept trace %s is missing or changed", seed, sid, id)
				}
			}
		}
		if n := s.Stats(); n.EvictedEarly == 0 || n.LateKept == 0 || n.LateDropped == 0 {
			t.Fatalf("seed %d: the test did not get to what it is about: %+v", seed, n)
		}
	}
}

// The share of the rest lies within binomial bounds, also for ids that count up.
func TestRatio(t *testing.T) {
	for name, id := range map[string]func(i int) span.TraceID{
		"counting":     func(i int) span.TraceID { return traceOf(uint64(i)) },
		"64 bits":      func(i int) span.TraceID { return traceOf(mix(uint64(i))) },
		"high counter": func(i int) (t span.TraceID) { t[3], t[4], t[5] = byte(i>>16), byte(i>>8), byte(i); return t },
	} {
		for _, ratio := range []float64{0.001, 0.01, 0.3, 0.5} {
			const n = 200_000
			kept := 0
			for i := range n {
				if within(hashTrace(id(i+1)), ratio) {
					kept++
				}
			}
			if sigma := math.Sqrt(n * ratio * (1 - ratio)); math.Abs(float64(kept)-n*ratio) > 5*sigma {
				t.Errorf("%s: %d of %d kept at %v", name, kept, n, ratio)
			}
		}
	}
	if within(0, 0) || !within(math.MaxUint64, 1) || within(0, math.NaN()) {
		t.Error("the ends of the scale")
	}
	// What is kept at 1 % is kept at 10 % too.
	for i := range 10_000 {
		if h := hashTrace(traceOf(uint64(i))); within(h, 0.01) && !within(h, 0.1) {
			t.Fatal("shares do not contain each other")
		}
	}
}

// Input that a consistent sampler has seen before: our share lies within what came through.
func TestUpstreamThreshold(t *testing.T) {
	for _, c := range []struct {
		state  string
		ratio  float64
		keep   bool
		weight float64
	}{
		{"ot=th:c", 1, true, 4},                        // a quarter came through, all of it is kept
		{"ot=th:c", 0.5, true, 4},                      //
		{"ot=th:c;rv:d0000000000000", 0.125, false, 8}, // of the quarter a half
		{"ot=th:c;rv:f0000000000000", 0.125, true, 8},  //
		{"vendor=x, ot=th:8;rv:f0000000000000", 0.25, true, 4},
		{"ot=th:zz", 1, true, 1}, // nonsense is as if not said
	} {
		s := start(t, Options{Policy: calm(c.ratio), Observe: nothing})
		id := traceOf(0xffffffffffffffff)
		d := end(s, made{trace: id, id: 1, name: "x", start: t0, end: t0 + 1, state: c.state})[id]
		if d.Keep != c.keep || d.Keep && d.Weight != c.weight {
			t.Errorf("%s at %v: keep %v, weight %v; want %v, %v", c.state, c.ratio, d.Keep, d.Weight, c.keep, c.weight)
		}
	}
}

// A trace that grows without end is decided at its limit, and what follows goes the same way.
func TestTooLarge(t *testing.T) {
	for _, ratio := range []float64{0, 1} {
		s := start(t, Options{Policy: calm(ratio), MaxSpansPerTrace: 10, Observe: nothing})
		st := stored{}
		for i := range 25 {
			st.take(s.Add(after(time.Duration(i)*time.Millisecond), []span.Scope{scope("a", made{trace: traceOf(1), id: uint64(i + 1), parent: 99, name: "x", start: t0, end: t0 + 1})}))
		}
		n := s.Stats()
		if n.TooLarge != 1 || n.HeldTraces != 0 || n.LateKept+n.LateDropped != 15 || len(st[traceOf(1)]) != int(25*ratio) {
			t.Errorf("ratio %v: %+v, %d stored", ratio, n, len(st[traceOf(1)]))
		}
	}
}

// What is sampled away is still observed.
func TestObservations(t *testing.T) {
	seen := func(scopes []span.Scope) []request.Observation {
		return []request.Observation{{Source: request.FromTrace, Model: scopes[0].Spans[0].Name, Start: scopes[0].Spans[0].Start}}
	}
	s := start(t, Options{Policy: calm(0), Observe: seen})
	var ds []*Decision
	for i := range 50 {
		ds = append(ds, s.Add(t0, []span.Scope{scope("a", made{trace: traceOf(uint64(i + 1)), id: 1, name: fmt.Sprint("name", i), start: t0, end: t0 + 1, failed: i == 7, state: map[int]string{9: "ot=th:8"}[i]})})...)
	}
	ds = append(ds, s.Advance(after(time.Minute))...)
	n := 0
	for _, d := range ds {
		for _, o := range d.Requests {
			n++
			i := int(d.Trace[15]) - 1
			if o.Model != fmt.Sprint("name", i) {
				t.Errorf("trace %d: the observation was overwritten: %q", i, o.Model)
			}
			kept, reason := "sampled_away", RuleRatio
			if i == 7 {
				kept, reason = "kept", RuleErrors
			}
			if o.SpansKept != kept || o.SpansReason != reason || o.Spans != 1 || slices.Contains(o.Flags, request.FlagHeadSampled) != (i == 9) {
				t.Errorf("trace %d: %+v", i, o)
			}
		}
	}
	if n != 50 || s.Stats().Requests != 50 {
		t.Errorf("%d observations of 50 requests", n)
	}
}

// The same input gives the same decisions, in the same order.
func TestDeterministic(t *testing.T) {
	run := func() string {
		var b strings.Builder
		s := start(t, Options{MaxTraces: 60, Observe: nothing})
		r := rng(9)
		spans, _ := world(r)
		r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		for i, m := range spans {
			for _, d := range s.Add(after(time.Duration(i)*100*time.Millisecond), []span.Scope{scope("a", m)}) {
				fmt.Fprintln(&b, d.Trace, d.Keep, d.Policy, d.Weight, d.Flags, d.Late, len(d.Spans))
			}
		}
		for _, d := range s.Flush(after(time.Hour)) {
			fmt.Fprintln(&b, d.Trace, d.Keep, d.Policy, d.Weight, d.Flags, d.Late, len(d.Spans))
		}
		return b.String()
	}
	if a, b := run(), run(); a != b {
		t.Fatal("two runs differ")
	}
}

func TestZeroTraceID(t *testing.T) {
	s := start(t, Options{Observe: nothing})
	s.Add(t0, []span.Scope{scope("a", made{id: 1, name: "x", start: t0, end: t0 + 1})})
	if d := s.Drops(); s.Stats().HeldTraces != 0 || d[2].Reason != "no_trace_id" || d[2].Count != 1 {
		t.Fatalf("%+v", d)
	}
}
