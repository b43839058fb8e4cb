package spans

import (
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// rendered runs the demo's fleet and returns its spans by trace, in the order in which they are sent.
func rendered(t testing.TB, o Options, cfg sim.Config, d time.Duration) ([]span.Span, map[span.TraceID][]span.Span) {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Watch(sim.Watch{Call: r.Call})
	f.Advance(f.Start().Add(d))
	all := r.Due(f.Now().Add(time.Hour))
	if int64(len(all)) != r.Rendered() {
		t.Errorf("%d spans are due, %d were rendered", len(all), r.Rendered())
	}
	by := map[span.TraceID][]span.Span{}
	for _, s := range all {
		by[s.Trace] = append(by[s.Trace], s)
	}
	return all, by
}

func TestRender(t *testing.T) {
	all, traces := rendered(t, Options{Late: -1, Orphans: -1, Broken: -1, Skewed: -1}, sim.Demo(), 100*time.Second)
	names, services := map[string]int{}, map[string]int{}
	failed, retracts, links := 0, 0, 0
	type spanKey struct {
		trace span.TraceID
		id    span.ID
	}
	seen := map[spanKey]bool{}
	begin := sim.Demo().Start.UnixNano()
	if f, err := sim.New(sim.Demo()); err == nil {
		begin = f.Start().Add(-time.Second).UnixNano()
	}
	for _, s := range all {
		k := spanKey{s.Trace, s.ID}
		if seen[k] || span.CheckIDs(&s.Header) != nil || s.End < s.Start || s.Start < begin || s.End > begin+int64(110*time.Second) {
			t.Fatalf("span %+v: twice, or without an id, or it ends before it starts, or its times cannot be", s.Header)
		}
		seen[k] = true
		names[s.Name]++
		services[s.Service]++
		if s.Status == span.Failed {
			failed++
		}
		for _, e := range s.Events {
			if e.Name == "retract" {
				retracts++
			}
		}
		links += len(s.Links)
	}
	for _, want := range []string{"tokenize", "api_server_dispatch", "request_process", "prefill_waiting", "prefill_forward", "decode_forward", "decode_waiting",
		"prefill_bootstrap", "prefill_transfer_kv_cache", "decode_prepare", "decode_bootstrap", "decode_transferred", "http_request", "http-request",
		"kv_router.route_request", "kv_router.find_matches", "client_request", "handle_payload", "llm_request", "spec_verify", "invoke_agent coder"} {
		if names[want] == 0 {
			t.Errorf("no span is called %s: %v", want, names)
		}
	}
	if names["decode_loop"] != 0 || names["mooncake_send"] != 0 {
		t.Error("spans of a higher level are there")
	}
	for _, want := range []string{"sglang", "smg", "dynamo-frontend", "dynamo-worker-sglang", "vllm", "agent"} {
		if services[want] == 0 {
			t.Errorf("nothing is of the service %s: %v", want, services)
		}
	}
	if failed == 0 || retracts == 0 || links == 0 {
		t.Errorf("%d failed spans, %d retractions, %d links", failed, retracts, links)
	}
	// Parents: those of processes that died are missing, no others are.
	whole, short, low := 0, 0, 0
	for id, spans := range traces {
		ids := map[span.ID]bool{}
		for _, s := range spans {
			ids[s.ID] = true
		}
		missing := false
		for _, s := range spans {
			missing = missing || !s.Parent.IsZero() && !ids[s.Parent]
		}
		if missing {
			short++
		} else {
			whole++
		}
		if strings.HasPrefix(id.String(), "0000000000000000") {
			low++
		}
	}
	if whole < 20*short || low == 0 || low == len(traces) {
		t.Errorf("%d whole traces, %d with parents missing, %d of 64 bits", whole, short, low)
	}
}

func TestSame(t *testing.T) {
	a, _ := rendered(t, Options{Seed: 5}, sim.Demo(), 20*time.Second)
	b, _ := rendered(t, Options{Seed: 5}, sim.Demo(), 20*time.Second)
	if string(span.AppendTraces(nil, a)) != string(span.AppendTraces(nil, b)) {
		t.Error("the same options and calls give other spans")
	}
}

// TestLevels counts what each level adds.
func TestLevels(t *testing.T) {
	per := [5]int{}
	for level := 1; level <= 4; level++ {
		all, traces := rendered(t, Options{Level: level, Agents: -1}, sim.Uniform(2), 25*time.Second)
		per[level] = len(all) / len(traces)
		names := map[string]int64{}
		for _, s := range all {
			names[s.Name]++
		}
		if l := span.LevelOf(names); l.Level != level {
			t.Errorf("spans of level %d look like level %d", level, l.Level)
		}
	}
	if !(per[1] < per[2] && per[2] < per[3]/5 && per[3] < per[4]) {
		t.Errorf("spans a trace by level: %v", per)
	}
}

// TestTrouble orders what goes wrong with traces.
func TestTrouble(t *testing.T) {
	_, traces := rendered(t, Options{Orphans: 1, Skewed: -1}, sim.Uniform(1), time.Minute)
	for id, spans := range traces {
		ids := map[span.ID]bool{}
		for _, s := range spans {
			ids[s.ID] = true
		}
		missing := 0
		for _, s := range spans {
			if !s.Parent.IsZero() && !ids[s.Parent] {
				missing++
			}
		}
		if missing == 0 {
			t.Errorf("trace %s has all its parents", id)
		}
	}
	all, _ := rendered(t, Options{Attributes: 22}, sim.Uniform(1), time.Minute)
	for _, s := range all {
		if len(s.Attrs) < 22 {
			t.Fatalf("%s has %d attributes", s.Name, len(s.Attrs))
		}
	}
	old := sim.Uniform(1)
	old.Members[0].Version = "0.5.9"
	all, _ = rendered(t, Options{}, old, time.Minute)
	rooms := 0
	for _, s := range all {
		if strings.HasPrefix(s.Name, "Bootstrap Room 0x") {
			rooms++
		}
	}
	if rooms == 0 {
		t.Error("0.5.9 has no span of the room")
	}
	for _, o := range []Options{{Level: 5}, {Attributes: -1}, {Late: 2}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is fine", o)
		}
	}
}

func TestCorpus(t *testing.T) {
	c, err := NewCorpus(CorpusOptions{Fleet: sim.Demo(), Traces: Options{Mooncake: true, Level: 3}, For: 6 * time.Second, Batch: 300})
	if err != nil {
		t.Fatal(err)
	}
	const end = 1_790_000_000_000_000_000
	ids := map[span.TraceID]int{}
	for round := range uint64(3) {
		n, last := 0, int64(0)
		parents, spans := map[string]bool{}, map[string]bool{}
		for i := range c.Requests() {
			body, count := c.AppendRequest(nil, i, round, end)
			scopes, err := span.Scan(body, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, sc := range scopes {
				for j := range sc.Spans {
					h := &sc.Spans[j]
					if span.CheckIDs(h) != nil {
						t.Fatalf("span %+v", h)
					}
					got++
					last = max(last, h.End)
					ids[h.Trace] |= 1 << round
					spans[h.Trace.String()+h.ID.String()] = true
					if !h.Parent.IsZero() {
						parents[h.Trace.String()+h.Parent.String()] = true
					}
					var s span.Span
					if err := span.Decode(&sc, h, &s); err != nil {
						t.Fatal(err)
					}
					if rid, ok := s.Attr("rid"); ok {
						if want := "Req " + rid.Str[:8]; !strings.HasSuffix(s.Name, want) {
							t.Errorf("the root of rid %s is called %q", rid.Str, s.Name)
						}
					}
					if sc.Service == "dynamo-frontend" {
						if v, ok := s.Attr("trace_id"); ok && v.Str != h.Trace.String() {
							t.Errorf("attribute trace_id %s of trace %s", v.Str, h.Trace)
						}
					}
					for _, e := range s.Events {
						if e.Time < h.Start-1e9 || e.Time > h.End+1e9 {
							t.Errorf("an event at %d of a span from %d to %d", e.Time, h.Start, h.End)
						}
					}
				}
			}
			if got != count || got > 300 {
				t.Errorf("request %d has %d spans, says %d", i, got, count)
			}
			n += got
		}
		if n != c.Spans || last != end {
			t.Errorf("round %d has %d of %d spans and ends at %d", round, n, c.Spans, last)
		}
		missing := 0
		for p := range parents {
			if !spans[p] {
				missing++
			}
		}
		if missing*20 > len(parents) {
			t.Errorf("round %d: %d of %d parents are missing", round, missing, len(parents))
		}
	}
	for id, rounds := range ids {
		if rounds&(rounds-1) != 0 {
			t.Fatalf("trace %s is in more than one round", id)
		}
	}
	if len(ids) != 3*c.Traces {
		t.Errorf("%d traces in three rounds, %d in one", len(ids), c.Traces)
	}
}

func BenchmarkCorpus(b *testing.B) {
	c, err := NewCorpus(CorpusOptions{Fleet: sim.Demo(), Traces: Options{Attributes: 22}})
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	spans, bytes := 0, 0
	for i := 0; b.Loop(); i++ {
		var n int
		buf, n = c.AppendRequest(buf[:0], i%c.Requests(), uint64(i/c.Requests()), 1_790_000_000_000_000_000)
		spans += n
		bytes += len(buf)
	}
	b.ReportMetric(float64(spans)/b.Elapsed().Seconds(), "spans/s")
	b.ReportMetric(float64(bytes)/float64(spans), "bytes/span")
}
