package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tracestore"
)

var update = flag.Bool("update", false, "write the golden files anew")

// spansOf reads spans of OTLP/JSON as the receiver does.
func spansOf(t *testing.T, path string) []span.Span {
	t.Helper()
	pb, rejected, err := span.FromJSON([]byte(read(t, path)))
	if err != nil || len(rejected) > 0 {
		t.Fatal(err, rejected)
	}
	scopes, err := span.Scan(pb, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []span.Span
	for i := range scopes {
		for j := range scopes[i].Spans {
			var s span.Span
			if err := span.Decode(&scopes[i], &scopes[i].Spans[j], &s); err != nil {
				t.Fatal(err)
			}
			out = append(out, s.Clone())
		}
	}
	return out
}

// TestPrintTrace shows traces: kv_routed is the tree that the guide to SGLang under Dynamo has of a request
// routed by KV cache, pd the two halves of a request, orphan a span whose parent nobody sent.
func TestPrintTrace(t *testing.T) {
	for _, name := range []string{"kv_routed", "pd", "orphan"} {
		t.Run(name, func(t *testing.T) {
			spans := spansOf(t, filepath.Join("testdata", "trace", name+".json"))
			d := api.NewTraceDetail(&tracestore.Trace{ID: spans[0].Trace, Spans: spans}, 0)
			var lines []api.LogRecord
			switch name {
			case "kv_routed":
				d.Request = "r0123456789abcdef0123"
				lines = []api.LogRecord{{Time: "2026-05-28T20:26:40.4Z", Engine: "10.0.0.1:30000", Line: "Finish: obj=GenerateReqInput(rid='000000000000000000000000000000a1')"},
					{Time: "2026-05-28T20:26:40.01Z", Service: "sglang", Line: "Receive: obj=GenerateReqInput(rid='000000000000000000000000000000a1', " + strings.Repeat("x", 200) + "\x1b[31m"}}
			case "orphan":
				d.Probable = []api.ProbableMatch{{TraceID: "00000000000000000000000000000006", Why: `probably one request: both have the request id "r-17"`}}
				d.Others = []string{"10000000000000000000000000000005"}
			}
			var b bytes.Buffer
			if err := printTrace(&b, &d, lines, 100); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "trace", name+".golden")
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := read(t, path); b.String() != want {
				t.Errorf("%s:\n%s\nwant:\n%s", path, b.String(), want)
			}
		})
	}
}

// TestPrintTraceWidths looks for lines that are too long, at any width and for any names and times.
func TestPrintTraceWidths(t *testing.T) {
	d := api.TraceDetail{TraceID: strings.Repeat("a", 32), Start: "2026-05-28T20:26:40Z", Duration: 12.5, Flags: []string{"incomplete"}, More: 3}
	for i := range 60 {
		d.Spans = append(d.Spans, api.TraceSpan{Depth: i, ParentAt: i - 1, Name: strings.Repeat("ab\x1b[1m", i), Service: fmt.Sprint("service", i%3),
			Start: float64(i) - 1, Duration: float64(i%7) * 1e-4, Events: []api.TraceEvent{{At: float64(i)}, {At: -1}, {At: 1e9}}})
	}
	d.Spans[3].Folded = &api.TraceFold{Count: 40, Sum: 1.5}
	d.Spans[4].Missing = true
	d.Problems = []api.Warning{{Code: "x", Message: strings.Repeat("word ", 100), Where: "span"}}
	for width := minTraceWidth; width < 220; width += 13 {
		var b bytes.Buffer
		if err := printTrace(&b, &d, nil, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width || strings.ContainsRune(line, '\x1b') {
				t.Fatalf("%d columns, wanted %d: %q", n, width, line)
			}
		}
	}
	empty := api.TraceDetail{}
	if err := printTrace(io.Discard, &empty, nil, 100); err != nil {
		t.Error(err)
	}
}

func TestDurationsInWords(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 s", 1e-9: "0.00 µs", 2.5e-6: "2.50 µs", 430e-6: "430 µs", 0.0123: "12.3 ms", 0.5: "500 ms", 1: "1 s", 1.234: "1.23 s", 12.34: "12.3 s", 123.4: "123 s", -0.25: "-250 ms"} {
		if got := duration3(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}

// TestTraces sends what the cases O07, O09 and O11 have to a server and asks for it as a person does.
func TestTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	dir := t.TempDir()
	config := writeFile(t, "rollscope.yaml", "rollscope:\n  traces:\n    sampling: {ratio: 1, linger: 200ms, settle: 500ms, idle_after: 1s}\n")
	p := start(t, "serve", "--config.file", config, "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0",
		"--traces.otlp-grpc", "off", "--traces.otlp-http", "off", "--traces.tempo", "127.0.0.1:0", "--no-rules.builtin")
	trace := func(args ...string) (string, string, int) {
		return runCLI(t, append([]string{"trace", "--server", p.url}, args...)...)
	}
	// The cases' times are moved to an hour ago, by their first digits.
	soon := strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)[:8]
	sendCase := func(name string, ids ...string) {
		t.Helper()
		body := strings.ReplaceAll(read(t, "testdata/trace/"+name+".json"), `"17800000`, `"`+soon)
		send(t, p.url+"/v1/traces", "application/json", body)
		for _, id := range ids {
			eventually(t, "trace "+id+" is stored", func() bool { return get(t, p.url, "/api/rollscope/v1/traces/"+id, nil, nil) == 200 })
		}
	}
	sendCase("orphan", "00000000000000000000000000000005")
	sendCase("split", "00000000000000000000000000000006", "00000000000000000000000000000007")

	// O07: a placeholder for the missing parent, and durations as they came.
	out, _, _ := trace("00000000000000000000000000000005")
	for _, want := range []string{"missing parent 0000000000000063", "not sent", "this trace is incomplete, orphans", "decode", "1.50 s"} {
		if !strings.Contains(out, want) {
			t.Errorf("the orphan's trace lacks %q:\n%s", want, out)
		}
	}
	// Two traces of one request are offered, not merged.
	out, _, _ = trace("r-17")
	if !strings.Contains(out, "probably one request") || !strings.Contains(out, `"r-17"`) || !strings.Contains(out, "1 span in 1 service") {
		t.Errorf("the split request:\n%s", out)
	}
	// Which traces lack spans of an engine, and why that may be.
	var services struct{ Warnings []api.Warning }
	get(t, p.url, "/api/rollscope/v1/traces/services", url.Values{"from": {"now-3h"}}, &services)
	if len(services.Warnings) == 0 || services.Warnings[0].Message != "1 of 3 traces have no span of an engine (gateway 1 of 1)" || !strings.Contains(services.Warnings[0].Hint, "the engine does not trace") {
		t.Errorf("services: %+v", services.Warnings)
	}

	// O09: any spelling of an id.
	const lead = "00fbb99bfc59174ccefa0338d4886914"
	sendCase("lead", lead)
	sendCase("kv_routed", "my-trace-001")
	for _, id := range []string{"fbb99bfc59174ccefa0338d4886914", strings.ToUpper(lead[2:]), lead[16:]} {
		if out, errOut, code := trace(id); code != 0 || !strings.Contains(out, "trace "+lead) {
			t.Errorf("%s: %d %s%s", id, code, out, errOut)
		}
	}
	for id, want := range map[string]struct {
		code int
		says string
	}{
		"deadbeefdeadbeefdeadbeefdeadbeef": {exitNo, "no trace has this id"},
		"nonsense/with a slash":            {exitBadInput, "not a trace id"},
		strings.Repeat("f", 33):            {exitBadInput, "not a trace id"},
	} {
		if _, errOut, code := trace(id); code != want.code || !strings.Contains(errOut, want.says) {
			t.Errorf("%q: %d %q, want %d %q", id, code, errOut, want.code, want.says)
		}
	}
	// O11: what the sender's SDK threw away is said of the span and of its service.
	sendCase("dropped", "0000000000000000000000000000000c")
	if out, _, _ := trace("0000000000000000000000000000000c"); !strings.Contains(out, "37 attributes dropped by the sender") {
		t.Errorf("dropped attributes:\n%s", out)
	}
	var lost struct{ Data []api.TraceService }
	get(t, p.url, "/api/rollscope/v1/traces/services", url.Values{"from": {"now-5h"}}, &lost)
	if i := slices.IndexFunc(lost.Data, func(s api.TraceService) bool { return s.Service == "gateway" }); i < 0 || lost.Data[i].Dropped != 1 || !strings.Contains(lost.Data[i].Hint, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT") {
		t.Errorf("the service that loses attributes: %+v", lost.Data)
	}

	// The tree as the guide has it, found by x-request-id, and as JSON.
	out, _, _ = trace("my-trace-001")
	at := 0
	for _, name := range []string{"dynamo-frontend: http-request", "kv_router.route_request", "kv_router.select_worker", "kv_router.compute_block_hashes", "kv_router.find_matches",
		"kv_router.compute_seq_hashes", "kv_router.schedule", "dynamo-worker-1: handle_payload", "sglang: Bootstrap Room 0x0", "Req 000000a1", "Tokenizer", "tokenize", "dispatch",
		"Scheduler [TP 0]", "request_process", "prefill_forward", "decode_loop x40", "not explained by any span"} {
		n := strings.Index(out[at:], name)
		if n < 0 {
			t.Fatalf("%q does not come here:\n%s", name, out[at:])
		}
		at += n
	}
	out, _, code := trace("--json", "--all", "my-trace-001")
	if code != 0 || strings.Count(out, `"decode_loop"`) < 40 {
		t.Errorf("--json --all: %d, %d passes", code, strings.Count(out, `"decode_loop"`))
	}
	p.stop()
}
