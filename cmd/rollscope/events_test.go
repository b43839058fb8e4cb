package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
)

// send posts a body and wants it taken: at once, or when the server that asks for it is asked again, as senders do.
func send(t *testing.T, to, kind, body string) {
	t.Helper()
	eventually(t, to+" takes what is sent", func() bool {
		resp, err := http.Post(to, kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		again := resp.StatusCode == http.StatusServiceUnavailable // the start reads what was undecided at the last stop
		if resp.StatusCode/100 != 2 && !again {
			t.Fatalf("%s: %s: %s", to, resp.Status, answer)
		}
		return !again
	})
}

// oneTrace is an OTLP/JSON request with a failed SGLang request and its prefill.
func oneTrace(trace, rid string, start time.Time) string {
	at := func(ms int) string { return fmt.Sprint(start.Add(time.Duration(ms) * time.Millisecond).UnixNano()) }
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"sglang"}},{"key":"service.instance.id","value":{"stringValue":"10.0.0.1:30000"}}]},
"scopeSpans":[{"spans":[
{"traceId":%[1]q,"spanId":"00000000000000a1","name":" Req %[2]s","startTimeUnixNano":%[3]q,"endTimeUnixNano":%[4]q,"status":{"code":2,"message":"out of memory"},"attributes":[{"key":"rid","value":{"stringValue":%[5]q}}]},
{"traceId":%[1]q,"spanId":"00000000000000a2","parentSpanId":"00000000000000a1","name":"prefill_forward","startTimeUnixNano":%[3]q,"endTimeUnixNano":%[6]q}]}]}]}`,
		trace, rid[:8], at(0), at(900), rid, at(300))
}

// TestEvents sends spans and lines in every way, asks for them over HTTP, kills the server, and finds all of
// it again in the directory, with every command that reads events.
func TestEvents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	const trace, rid = "0123456789abcdef0123456789abcdef", "7b0c1d2e3f405162738495a6b7c8d9e0"
	now := time.Now().UTC().Truncate(time.Second)
	stamp := now.Format("2006-01-02 15:04:05")
	log := writeFile(t, "engine.log",
		fmt.Sprintf("[%s] Prefill batch, #new-seq: 1, #new-token: 8, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0\n[%s] Req Time Stats(rid=%s, input len=8, output len=3, type=unified): queue_duration=12.00ms, forward_duration=300.00ms, entry_time=%d.000\n",
			stamp, stamp, rid, now.Unix()))
	config := writeFile(t, "rollscope.yml",
		fmt.Sprintf("rollscope:\n  logs:\n    - {path: %q, engine: \"10.0.0.1:30000\", timezone: UTC}\n", log))
	p := start(t, "serve", "--config.file", config, "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0",
		"--traces.otlp-grpc", "127.0.0.1:0", "--traces.otlp-http", "off", "--traces.tempo", "127.0.0.1:0")
	send(t, p.url+"/v1/traces", "application/json", oneTrace(trace, rid, now))
	send(t, p.url+"/insert/jsonline", "application/json", fmt.Sprintf(`{"_time":%q,"_msg":"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB","app":"sglang-7b"}`, now.Format(time.RFC3339)))
	send(t, p.url+"/loki/api/v1/push", "application/json", fmt.Sprintf(`{"streams":[{"stream":{"app":"sglang-7b"},"values":[["%d","a line for the seed: preempt"]]}]}`, now.UnixNano()))
	send(t, p.url+"/insert/elasticsearch/_bulk", "application/x-ndjson", fmt.Sprintf("{\"create\":{\"_index\":\"x\"}}\n{\"@timestamp\":%q,\"message\":\"a line in bulk\"}\n", now.Format(time.RFC3339)))

	// The request is one row, of what its trace and its log line said.
	var list struct{ Data api.Requests }
	eventually(t, "a request out of a trace and a log line", func() bool {
		get(t, p.url, "/api/rollscope/v1/requests", url.Values{"filter": {"rid:" + rid}}, &list)
		return len(list.Data.Requests) == 1 && len(list.Data.Requests[0].Sources) == 2
	})
	r := list.Data.Requests[0]
	if r.TraceID != trace || r.Engine != "10.0.0.1:30000" || r.Outcome != "error" || r.Spans != "kept" || r.Queue == nil || *r.Queue != 0.012 || r.E2E == nil || *r.E2E != 0.9 {
		t.Errorf("the request is %+v", r)
	}
	var logs struct{ Data api.Logs }
	eventually(t, "the lines", func() bool {
		get(t, p.url, "/api/rollscope/v1/logs", url.Values{"q": {`{app="sglang-7b"} |~ "preempt|memory"`}}, &logs)
		return len(logs.Data.Records) == 2
	})
	var status struct{ Data api.EventsStatus }
	get(t, p.url, "/api/rollscope/v1/events", nil, &status)
	tempo := ""
	for _, s := range status.Data.Sources {
		if s.State == "listening tempo" {
			tempo = s.Name
		}
	}
	var batches struct{ Batches []json.RawMessage }
	if code := get(t, "http://"+tempo, "/api/traces/"+trace, nil, &batches); code != 200 || len(batches.Batches) != 1 {
		t.Errorf("Tempo's API answers %d with %d batches", code, len(batches.Batches))
	}
	// A span whose request is not finished stays undecided; it must survive what comes now.
	send(t, p.url+"/v1/traces", "application/json", strings.Replace(oneTrace("ffffffffffffffffffffffffffffff01", "aaaaaaaaaaaaaaaa", now), `"parentSpanId":"00000000000000a1"`, `"parentSpanId":"00000000000000b7"`, 1))
	p.kill()

	commands := []struct {
		args []string
		want []string
		code int
	}{
		{[]string{"trace", "123456789ABCDEF0123456789abcdef"}, []string{"Req 7b0c1d2e", "prefill_forward"}, exitOK}, // a leading zero is lost, upper case
		{[]string{"trace", rid}, []string{"prefill_forward"}, exitOK},
		{[]string{"requests", "rid:" + rid}, []string{"10.0.0.1:30000", "error"}, exitOK},
		{[]string{"logs", "query", `{app="sglang-7b"} |~ "preempt|OOM|abort|hang"`}, []string{"a line for the seed: preempt"}, exitOK},
		{[]string{"logs", "query", "class:oom", "--format", "json"}, []string{`"class":"oom"`}, exitOK},
		{[]string{"logs", "query", "row:span | stats by (_msg) count() n"}, []string{"prefill_forward"}, exitOK},
		{[]string{"logs", "query", "class:("}, []string{"unexpected end of query"}, exitBadInput},
		{[]string{"doctor", "tracing"}, []string{"sglang"}, exitOK},
	}
	for _, c := range commands {
		out, errOut, code := runCLI(t, append(c.args, "--dir", dir)...)
		for _, w := range c.want {
			if !strings.Contains(out+errOut, w) {
				t.Errorf("%v does not say %q:\n%s%s", c.args, w, out, errOut)
			}
		}
		if code != c.code {
			t.Errorf("%v: exit code %d, want %d:\n%s", c.args, code, c.code, errOut)
		}
	}

	// The next start decides what was not decided.
	p = start(t, "serve", "--config.file", config, "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0",
		"--traces.otlp-grpc", "off", "--traces.otlp-http", "off", "--traces.tempo", "off")
	eventually(t, "the undecided trace", func() bool {
		return get(t, p.url, "/api/rollscope/v1/traces/ffffffffffffffffffffffffffffff01", nil, nil) == 200
	})
	p.stop()
}
