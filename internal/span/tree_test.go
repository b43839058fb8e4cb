package span

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// checkTree checks what holds of every tree: each span stands once and as it was sent, in depth-first
// order, and the critical path is a line through the trace.
func checkTree(t *testing.T, tr *Tree) {
	t.Helper()
	seen := make([]bool, len(tr.Spans))
	real := 0
	for i := range tr.Nodes {
		n := &tr.Nodes[i]
		switch {
		case n.Parent >= i || n.Parent < -1:
			t.Fatalf("node %d stands before its parent %d", i, n.Parent)
		case n.Parent >= 0 && (n.Depth != tr.Nodes[n.Parent].Depth+1 || i >= n.Parent+tr.Nodes[n.Parent].Size):
			t.Fatalf("node %d of depth %d is not below %d", i, n.Depth, n.Parent)
		case n.Parent < 0 && n.Depth != 0:
			t.Fatalf("root %d has depth %d", i, n.Depth)
		case n.Size < 1 || i+n.Size > len(tr.Nodes):
			t.Fatalf("node %d has size %d", i, n.Size)
		case n.Self < 0 || n.Self > n.End-n.Start:
			t.Fatalf("node %d did %d itself in %d", i, n.Self, n.End-n.Start)
		}
		if n.Span < 0 {
			continue
		}
		if real++; seen[n.Span] {
			t.Fatalf("span %d stands twice", n.Span)
		}
		seen[n.Span] = true
		if s := &tr.Spans[n.Span]; n.ID != s.ID || n.Start != s.Start || n.End != max(s.End, s.Start) {
			t.Fatalf("span %d was altered: %+v", n.Span, n)
		}
	}
	if real+tr.Repeated != len(tr.Spans) {
		t.Fatalf("%d of %d spans stand in the tree, %d came twice", real, len(tr.Spans), tr.Repeated)
	}
	for i, s := range tr.Critical {
		if s.End <= s.Start || i > 0 && s.Start < tr.Critical[i-1].End {
			t.Fatalf("critical path goes back: %+v", tr.Critical)
		}
	}
	rows := tr.Rows(0)
	shown := 0
	for i, r := range rows {
		if r.Parent >= i {
			t.Fatalf("row %d stands before its parent", i)
		}
		if shown++; r.Fold != nil {
			shown += r.Fold.Count - 1 + r.Fold.Hidden
			if r.Fold.Max < r.Fold.P99 || r.Fold.P99 < r.Fold.P50 || r.Fold.Sum < r.Fold.Max {
				t.Fatalf("fold %+v", r.Fold)
			}
		}
	}
	if shown != len(tr.Nodes) {
		t.Fatalf("%d rows stand for %d nodes of %d", len(rows), shown, len(tr.Nodes))
	}
	for _, r := range tr.Roots {
		parts, rest := tr.Parts(r)
		n := &tr.Nodes[r]
		if rest < 0 || rest > n.End-n.Start {
			t.Fatalf("rest %d of %d", rest, n.End-n.Start)
		}
		for _, p := range parts {
			if p.Time < 0 || p.Time > n.End-n.Start || p.Time > p.End-p.Start {
				t.Fatalf("part %+v of %d", p, n.End-n.Start)
			}
		}
	}
	for _, o := range Observe(tr) {
		if len(o.Aliases) < 2 || o.Spans < 1 {
			t.Fatalf("observation %+v", o)
		}
	}
}

// TestRandomTrees has traces of random shape, with every fault that spans can have.
func TestRandomTrees(t *testing.T) {
	names := []string{"http-request", "handle_payload", " Req 12345678", "prefill Req 12345678", "Scheduler [TP 0]", "prefill_forward", "decode_forward", "decode_loop", "decode_loop", "tokenize", "kv_router.route_request", "other"}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		spans := make([]Span, 1+r.IntN(60))
		for i := range spans {
			s := &spans[i]
			s.Trace = TraceID{15: byte(1 + r.IntN(20)/19)}
			binary.BigEndian.PutUint64(s.ID[:], uint64(1+r.IntN(len(spans)*3)))
			if r.IntN(5) > 0 {
				binary.BigEndian.PutUint64(s.Parent[:], uint64(1+r.IntN(len(spans)*3)))
			}
			s.Name = names[r.IntN(len(names))]
			s.Service = []string{"a", "b", ""}[r.IntN(3)]
			s.Start = int64(1e18) + int64(r.IntN(50))*1e6
			s.End = s.Start + int64(r.IntN(30)-2)*1e6
			if r.IntN(30) == 0 {
				s.Start = 0
			}
			if r.IntN(20) == 0 {
				s.Status = Failed
			}
			if i > 0 && r.IntN(20) == 0 {
				spans[i] = spans[i-1]
			}
		}
		checkTree(t, NewTree(spans))
	}
	checkTree(t, NewTree(nil))
}

// TestLargeTrees are a million spans in a chain, and below one parent: no recursion, no quadratic work.
func TestLargeTrees(t *testing.T) {
	count := 200_000
	if s := os.Getenv("ROLLSCOPE_LARGE"); s != "" {
		count = 1_000_000
	}
	for _, flat := range []bool{false, true} {
		spans := make([]Span, count)
		for i := range spans {
			s := &spans[i]
			s.Trace = TraceID{15: 1}
			binary.BigEndian.PutUint64(s.ID[:], uint64(i+1))
			s.Name = "decode_loop"
			s.Start, s.End = 1e18+int64(i), 1e18+int64(2*count-i)
			switch {
			case i == 0:
			case flat:
				s.Parent = spans[0].ID
				s.End = s.Start + 1
			default:
				s.Parent = spans[i-1].ID
			}
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		began := time.Now()
		tr := NewTree(spans)
		rows := tr.Rows(0)
		t.Logf("flat %v: %d spans, %d rows, %v", flat, count, len(rows), time.Since(began))
		if len(tr.Nodes) != count || len(tr.Roots) != 1 || len(tr.Problems) > 0 {
			t.Fatalf("%d nodes, %d roots, %v", len(tr.Nodes), len(tr.Roots), tr.Problems)
		}
		if flat && (len(rows) != 2 || rows[1].Fold.Count != count-1) || !flat && len(rows) != count {
			t.Fatalf("%d rows", len(rows))
		}
		tr.Parts(0)
		Observe(tr)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]struct {
		system string
		class  Class
		level  int
	}{
		" Req 1f0a77c2":         {"sglang", ClassRequest, 0},
		"prefill Req 1f0a77c2":  {"sglang", ClassRequest, 0},
		"Req 1f0a77c2":          {"sglang", ClassRequest, 0},
		"Bootstrap Room 0x7f3a": {"sglang", ClassGroup, 0},
		"Scheduler [TP 3]":      {"sglang", ClassThread, 0},
		"Prefill Scheduler [TP 0] [DP 1] (host:8f2c1d9a | pid:12)": {"sglang", ClassThread, 0},
		"PrefillTokenizer(host:8f2c1d9a | pid:12)":                 {"sglang", ClassThread, 0},
		"MultiTokenizer-3(host:8f2c1d9a | pid:12)":                 {"sglang", ClassThread, 0},
		"unknown(host:8f2c1d9a | pid:12)":                          {"sglang", ClassThread, 0},
		"unknown":                                                  {"", ClassOther, 0},
		"decode_loop":                                              {"sglang", ClassStep, 3},
		"run_batch_cpu":                                            {"sglang", ClassStep, 4},
		"request_process":                                          {"sglang", ClassDispatch, 2},
		"match_prefix":                                             {"sglang", ClassCache, 0},
		"http_request":                                             {"smg", ClassFrontend, 0},
		"http-request":                                             {"dynamo", ClassFrontend, 0},
		"kv_router.something_new":                                  {"dynamo", ClassRouting, 0},
		"llm_request":                                              {"vllm", ClassRequest, 0},
		"mooncake_worker_send_session":                             {"sglang", ClassTransfer, 0},
		"execute_tool get_weather":                                 {"otel", ClassTool, 0},
		"my.queue.wait":                                            {"", ClassQueue, 0},
		"GET /health":                                              {"", ClassOther, 0},
		"":                                                         {"", ClassOther, 0},
		"HTTP Req failed with a reason":                            {"", ClassOther, 0},
	} {
		if m := Explain(name); m.System != want.system || m.Class != want.class || m.Level != want.level {
			t.Errorf("%q: %+v", name, m)
		}
	}
	th, ok := ThreadName("Decode Scheduler [TP 2] [PP 1] [DP 0] (host:8f2c1d9a | pid:4711)")
	if want := (Thread{"Scheduler", "decode", 2, 1, 0, "8f2c1d9a", 4711}); !ok || th != want {
		t.Errorf("%+v", th)
	}
	if role, rid, ok := RequestName("decode Req 1f0a77c2"); role != "decode" || rid != "1f0a77c2" || !ok {
		t.Errorf("%q %q", role, rid)
	}
}

func TestLevel(t *testing.T) {
	base := map[string]int64{" Req 1": 30, " Req 2": 30, "Scheduler [TP 0](host:a | pid:1)": 60, "tokenize": 60, "prefill_waiting": 60, "prefill_forward": 60, "decode_forward": 60}
	with := func(more map[string]int64) map[string]int64 {
		out := map[string]int64{}
		for _, m := range []map[string]int64{base, more} {
			for k, v := range m {
				out[k] += v
			}
		}
		return out
	}
	for _, c := range []struct {
		names   map[string]int64
		level   int
		gen     string
		missing int
	}{
		{nil, 0, "", 0},
		{map[string]int64{"http-request": 5}, 0, "", 0},
		{base, 1, "0.5.10+", 3},
		{with(map[string]int64{"request_process": 60, "api_server_dispatch": 60}), 2, "0.5.10+", 2},
		{with(map[string]int64{"request_process": 60, "decode_loop": 6000}), 3, "0.5.10+", 1},
		{with(map[string]int64{"decode_loop": 6000, "run_batch_cpu": 6000}), 4, "0.5.10+", 0},
		{map[string]int64{"Req a": 1, "tokenize": 1, "dispatch": 1, "decode_loop": 40}, 0, "0.5.4-0.5.9", 1},
		{map[string]int64{"tokenize": 1, "process req": 1, "decode loop": 9}, 0, "0.5.3", 1},
	} {
		l := LevelOf(c.names)
		if l.Level != c.level || l.Generation != c.gen || len(l.Missing) != c.missing {
			t.Errorf("%v: %+v", c.names, l)
		}
	}
	l := LevelOf(with(map[string]int64{"request_process": 60, "api_server_dispatch": 60}))
	if n, ok := l.PerHour(2, 3600, 0); !ok || n != 480 { // 60 each of requests, threads, four phases and two ways between processes
		t.Errorf("level 2: %v %v", n, ok)
	}
	if n, ok := l.PerHour(1, 3600, 0); !ok || n != 360 {
		t.Errorf("level 1: %v %v", n, ok)
	}
	if n, ok := l.PerHour(3, 1800, 200); !ok || n != 2*(480+60*200) {
		t.Errorf("level 3: %v %v", n, ok)
	}
	if _, ok := l.PerHour(3, 3600, 0); ok {
		t.Error("level 3 without a length of answers")
	}
}

func TestFinishReason(t *testing.T) {
	for text, want := range map[string]string{
		`["stop"]`: "stop", `"stop"`: "stop", "stop": "stop", `{"type": "length", "length": 10}`: "length",
		`[{"type":"abort","message":"x","status_code":503}]`: "abort", `["stop","length","stop"]`: "stop,length", "": "", "[]": "", "null": "",
		`["stop`: `["stop`,
	} {
		if got := FinishReason(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if !slices.Contains(SessionKeys(), "session.id") || !IsSessionKey("gen_ai.conversation.id") || IsSessionKey("rid") {
		t.Error("session keys")
	}
}
