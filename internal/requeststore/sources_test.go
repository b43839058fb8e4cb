package requeststore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
	"github.com/rollscope/rollscope/torchfile"
)

// arrival is when the request of these tests reached its engine.
const arrival = int64(1_782_274_213_250_000_000)

// traced are the observations of spans, as tail sampling makes them of what came over OTLP.
func traced(t *testing.T, json []byte) (out []request.Observation) {
	t.Helper()
	pb, rejected, err := span.FromJSON(json)
	if err != nil || len(rejected) > 0 {
		t.Fatal(err, rejected)
	}
	scopes, err := span.Scan(pb, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tailsample.New(tailsample.Options{Policy: tailsample.KeepAll()})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(s.Add(arrival, scopes), s.Flush(arrival+int64(time.Hour))...) {
		out = append(out, d.Requests...)
	}
	return out
}

// pair are the spans of a PD request whose halves share a bootstrap room and no trace: what two engines
// of SGLang send that get no traceparent from their router.
func pair(rid, room string) []byte {
	const ms = int64(time.Millisecond)
	var all []span.Span
	add := func(trace, id, parent byte, name string, from, to int64, kv ...string) {
		s := span.Span{Service: "sglang"}
		s.Trace[15], s.ID[7], s.Parent[7] = trace, id, parent
		s.Name, s.Start, s.End = name, arrival+from*ms, arrival+to*ms
		for i := 0; i < len(kv); i += 2 {
			s.Attrs = append(s.Attrs, span.Attr{Key: kv[i], Value: span.Value{Str: kv[i+1]}})
		}
		all = append(all, s)
	}
	add(6, 1, 0, "prefill Req "+rid[:8], 0, 300, "rid", rid, "bootstrap_room", room, "module", "sglang::request", "gen_ai.response.finish_reasons", `["length"]`)
	add(6, 2, 1, "Prefill Scheduler [TP 0] (host:aaaaaaaa | pid:1)", 0, 296)
	add(6, 3, 2, "prefill_bootstrap", 2, 22)
	add(6, 4, 2, "prefill_waiting", 22, 52)
	add(6, 5, 2, "prefill_forward", 52, 202)
	add(6, 6, 2, "prefill_transfer_kv_cache", 202, 290)
	add(7, 1, 0, "decode Req "+rid[:8], 5, 1205, "rid", rid, "bootstrap_room", room, "module", "sglang::request", "gen_ai.response.model", "qwen3", "gen_ai.response.finish_reasons", `["stop"]`)
	all[len(all)-1].Attrs = append(all[len(all)-1].Attrs, span.Attr{Key: "gen_ai.latency.time_to_first_token", Value: span.Value{Str: "0.309", Type: span.Float}})
	add(7, 2, 1, "Decode Scheduler [TP 0] (host:bbbbbbbb | pid:2)", 5, 1203)
	add(7, 3, 2, "decode_bootstrap", 6, 52)
	add(7, 4, 2, "decode_transferred", 52, 297)
	add(7, 5, 2, "decode_waiting", 297, 301)
	add(7, 6, 2, "decode_forward", 301, 1201)
	return span.AppendTracesJSON(nil, all)
}

// logged are the observations of an engine's log lines.
func logged(t *testing.T, engine string, lines ...string) (out []request.Observation) {
	t.Helper()
	p := enginelog.NewParser(enginelog.Options{Source: "engine.log", Engine: engine, Zone: time.UTC})
	for _, line := range lines {
		r, ok := p.Line([]byte(line), 0)
		if !ok || r.Request == nil {
			t.Fatalf("no request in %s", line)
		}
		if r.Request.Engine == "" {
			r.Request.Engine = engine
		}
		out = append(out, *r.Request)
	}
	return out
}

// dumped are the observations of a rollout's dump with one sample that made one call.
func dumped(t *testing.T, rid string) (out []request.Observation) {
	t.Helper()
	var file bytes.Buffer
	w := torchfile.NewWriter(&file, nil)
	var value func(v any)
	value = func(v any) {
		switch v := v.(type) {
		case []any: // a list, or key, value ... after the word dict
			if len(v) > 0 && v[0] == "dict" {
				w.BeginDict()
				for i := 1; i < len(v); i += 2 {
					w.Key(v[i].(string))
					value(v[i+1])
				}
				w.EndDict()
				return
			}
			w.BeginList()
			for _, x := range v {
				value(x)
			}
			w.EndList()
		case string:
			w.Str(v)
		case int:
			w.Int(int64(v))
		case float64:
			w.Float(v)
		}
	}
	dict := func(kv ...any) []any { return append([]any{"dict"}, kv...) }
	at := float64(arrival) / 1e9
	value(dict("rollout_id", 40, "samples", []any{dict("index", 7, "group_index", 1, "prompt", "p", "response", "r", "trace", dict("version", 1, "trace_id", "s7", "events", []any{
		dict("type", "span_start", "name", "sglang_generate", "ts", at-0.004, "span_id", "a"),
		dict("type", "span_end", "name", "sglang_generate", "ts", at+1.215, "span_id", "a", "attrs",
			dict("sglang_request_id", rid, "finish_reason", "stop", "prompt_tokens", 4000, "completion_tokens", 100, "cached_tokens", 1024, "e2e_latency", 1.21)),
	}))}))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.OpenBytes(file.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
		out = append(out, s.Observations("exp1", rollout.Train, 40)...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// What two engines' spans, their log lines, a request export and a dump say about one request is one row,
// and each field names whose word it is.
func TestOneRequestOfAllSources(t *testing.T) {
	const rid = "9b1c22de0001"
	const prefill, decode = "10.0.0.1:30000", "10.0.0.2:30000"
	sources := [][]request.Observation{
		traced(t, pair(rid, "0x7f3a9c0012de")),
		logged(t, prefill, "[2026-06-24 04:10:13 TP0] ReqTimeStats(rid="+rid+", bootstrap_room=139889702081246, input_len=4000, cached_input_len=1024, output_len=1, attempts=0, type=prefill): bootstrap_duration=20.00ms, queue_duration=30.00ms, forward_duration=150.00ms, entry_time=1782274213.250, transfer_speed=2.50 GB/s, transfer_total=220.00 MB"),
		logged(t, decode, "[2026-06-24 04:10:14 TP0] ReqTimeStats(rid="+rid+", bootstrap_room=139889702081246, input_len=4000, cached_input_len=0, output_len=100, attempts=0, type=decode): bootstrap_duration=46.00ms, alloc_wait_duration=1.50ms, transfer_duration=245.00ms, queue_duration=4.00ms, forward_duration=900.00ms, entry_time=1782274213.255"),
		logged(t, decode, `{"request_parameters": "{\"rid\": \"`+rid+`\", \"stream\": true}", "id": "`+rid+`", "finish_reason": {"type": "stop"}, "prompt_tokens": 4000, "completion_tokens": 100, "cached_tokens": 1024, "e2e_latency": 1.2, "request_received_ts": 1782274213.252, "request_finished_ts": 1782274214.452, "weight_version": "17"}`),
		dumped(t, rid),
	}
	for i, want := range []int{2, 1, 1, 1, 1} {
		if len(sources[i]) != want {
			t.Fatalf("source %d: %d observations: %+v", i, len(sources[i]), sources[i])
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var shown []string
	for round := range 3 {
		s := newStore(t, realEvents(t, t.TempDir()), Options{})
		if round == 0 { // each source for itself, the dump minutes later: revisions
			for _, list := range sources {
				observe(t, s, list...)
			}
		} else {
			all := slices.Concat(sources...)
			rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
			observe(t, s, all...)
		}
		rows := list(t, s, "", Order{})
		if len(rows) != 1 {
			t.Fatalf("round %d: %d rows\n%s", round, len(rows), show(rows))
		}
		shown = append(shown, show(rows))
		sum, err := s.Summarize(within(t), Query{}, "step", Targets{TTFT: 1})
		if err != nil || sum.Groups[0].Count != 1 || sum.Groups[1].Name != "40" {
			t.Errorf("round %d: %+v %v", round, sum, err)
		}
		d, err := s.Get(within(t), rows[0].ID)
		if err != nil || len(d.Observations) != 6 || d.Missing != 0 || len(d.Related) != 0 {
			t.Errorf("round %d: %d observations, %d missing, %d related, %v", round, len(d.Observations), d.Missing, len(d.Related), err)
		}
		if got := fmt.Sprint(d.Request.Others["e2e"]); got != "[{dump 1.21} {trace/prefill 0.3}]" {
			t.Errorf("round %d: others said of e2e %s", round, got)
		}
		for _, filter := range []string{"step:40 source:dump source:trace source:log source:export", "engine=" + decode, "prefill_engine=" + prefill, "room:139889702081246", "rid:" + rid} {
			if n := len(list(t, s, filter, Order{})); n != 1 {
				t.Errorf("round %d, %s: %d rows", round, filter, n)
			}
		}
	}
	if shown[1] != shown[0] || shown[2] != shown[0] {
		t.Errorf("the order makes a difference:\n%s\n%s\n%s", shown[0], shown[1], shown[2])
	}
	golden(t, "one.txt", shown[0])
}

// show writes rows with the sources of their fields.
func show(rows []request.Settled) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "start %s from %s, %.3f s long, %s, final %v, %d spans %s\n", time.Unix(0, r.Start).UTC().Format(time.RFC3339Nano), r.StartFrom, float64(r.Finish-r.Start)/1e9, r.Outcome, r.Final, r.Spans, r.SpansKept)
		for _, a := range r.Aliases {
			fmt.Fprintf(&b, "  %s %s\n", a.Kind, a.ID)
		}
		for w := range request.NumWords {
			if r.Words[w] != "" {
				fmt.Fprintf(&b, "  %s %s from %s\n", request.Words[w].Name, r.Words[w], r.WordFrom[w])
			}
		}
		for n := range request.NumNumbers {
			if v, ok := r.Value(n); ok {
				fmt.Fprintf(&b, "  %s %v from %s\n", request.Numbers[n].Name, v, r.NumberFrom[n])
			}
		}
		fmt.Fprintf(&b, "  sources %v flags %v probable %d\n", r.Sources, r.Flags, len(r.Probable))
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got\n%s", path, got)
	}
}

// Two traces that name one rid at the same time are offered as probably one request, and are two rows.
func TestTwoTracesWithOneRID(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "O07", "split.json"))
	if err != nil {
		t.Fatal(err)
	}
	obs := traced(t, b)
	if len(obs) != 2 {
		t.Fatalf("%d observations: %+v", len(obs), obs)
	}
	s := newStore(t, realEvents(t, t.TempDir()), Options{})
	observe(t, s, obs...)
	rows := list(t, s, "r-17", Order{})
	if len(rows) != 2 {
		t.Fatalf("%s", show(rows))
	}
	for i, r := range rows {
		other := rows[1-i]
		if r.Finish-r.Start != []int64{2e9, 18e8}[i] {
			t.Errorf("row %d lasts %d ns: durations are as they were sent", i, r.Finish-r.Start)
		}
		if len(r.Probable) != 1 || r.Probable[0].ID != other.ID || r.Probable[0].TraceID != other.Alias(request.TraceID) || !strings.Contains(r.Probable[0].Why, "r-17") {
			t.Errorf("row %d: %+v", i, r.Probable)
		}
		d, err := s.Get(within(t), r.ID)
		if err != nil || len(d.Related) != 1 || d.Related[0].ID != other.ID {
			t.Errorf("row %d: related %d, %v", i, len(d.Related), err)
		}
	}
	// Asked for by either trace, each is found.
	for _, trace := range []string{"00000000000000000000000000000006", "00000000000000000000000000000007"} {
		if id, err := s.OfTrace(within(t), trace); err != nil || id == "" {
			t.Errorf("trace %s: request %q, %v", trace, id, err)
		}
	}
}
