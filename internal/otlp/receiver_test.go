package otlp

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rollscope/rollscope/internal/span"
)

func TestMain(m *testing.M) {
	RegisterCompressors()
	goleak.VerifyTestMain(m)
}

// collected is a sink that keeps copies.
type collected struct {
	mu       sync.Mutex
	spans    []span.Header
	services map[string]int
	logs     []LogRecord
	fail     error
	rejected int
	message  string
}

func (c *collected) Traces(_ context.Context, scopes []span.Scope) (int, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return 0, "", c.fail
	}
	if c.services == nil {
		c.services = map[string]int{}
	}
	for _, sc := range scopes {
		for _, h := range sc.Spans {
			h.Name, h.Raw = strings.Clone(h.Name), bytes.Clone(h.Raw)
			c.spans = append(c.spans, h)
			c.services[strings.Clone(sc.Service)]++
		}
	}
	return c.rejected, c.message, nil
}

func (c *collected) Logs(_ context.Context, records []LogRecord) (int, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return 0, "", c.fail
	}
	for _, l := range records {
		l.Body.Str = strings.Clone(l.Body.Str)
		l.RawResource, l.RawScope, l.Raw = nil, nil, nil
		c.logs = append(c.logs, l)
	}
	return c.rejected, c.message, nil
}

// started is a receiver that answers on free ports until the test ends.
type started struct {
	*Receiver
	grpc, http string
}

func start(t testing.TB, o Options) started {
	t.Helper()
	r, err := NewReceiver(o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, g, h) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return started{r, g.Addr().String(), h.Addr().String()}
}

func dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// someTraces has n spans of service with an id each, the first one of id 0 when zero.
func someTraces(service string, n int, zero bool) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("test")
	for i := range n {
		sp := ss.Spans().AppendEmpty()
		sp.SetName(fmt.Sprintf("span %d", i))
		if !zero || i > 0 {
			sp.SetTraceID(pcommon.TraceID{15: byte(i + 1), 14: byte(i >> 8), 0: 1})
			sp.SetSpanID(pcommon.SpanID{7: byte(i + 1), 6: byte(i >> 8), 0: 1})
		}
		sp.SetStartTimestamp(1780000000000000000)
		sp.SetEndTimestamp(1780000001000000000)
		sp.Attributes().PutStr("rid", "r-17")
	}
	return td
}

func someLogs(n int) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "engine")
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("sglang")
	for i := range n {
		l := sl.LogRecords().AppendEmpty()
		l.SetTimestamp(pcommon.Timestamp(1780000000000000000 + i))
		l.SetObservedTimestamp(1780000005000000000)
		l.SetSeverityNumber(plog.SeverityNumberWarn2)
		l.SetSeverityText("WARNING")
		l.Body().SetStr(fmt.Sprintf("line %d", i))
		l.Attributes().PutInt("pid", 12)
		l.SetTraceID(pcommon.TraceID{15: 1})
		l.SetSpanID(pcommon.SpanID{7: 2})
		l.SetFlags(1)
	}
	return ld
}

func TestGRPC(t *testing.T) {
	sink := &collected{}
	r := start(t, Options{Sink: sink})
	conn := dial(t, r.grpc)
	for _, packing := range []string{"", grpcgzip.Name, "zstd", "snappy"} {
		var opts []grpc.CallOption
		if packing != "" {
			opts = append(opts, grpc.UseCompressor(packing))
		}
		resp, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(someTraces("engine", 10, false)), opts...)
		if err != nil {
			t.Fatalf("%q: %v", packing, err)
		}
		if p := resp.PartialSuccess(); p.RejectedSpans() != 0 || p.ErrorMessage() != "" {
			t.Errorf("%q: rejected %d: %s", packing, p.RejectedSpans(), p.ErrorMessage())
		}
	}
	if len(sink.spans) != 40 || sink.services["engine"] != 40 || sink.spans[0].Name != "span 0" {
		t.Errorf("%d spans of %v", len(sink.spans), sink.services)
	}
	resp, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(someTraces("engine", 3, true)))
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.PartialSuccess(); p.RejectedSpans() != 1 || !strings.Contains(p.ErrorMessage(), "span 0") {
		t.Errorf("rejected %d: %s", p.RejectedSpans(), p.ErrorMessage())
	}
	if _, err := plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(someLogs(7))); err != nil {
		t.Fatal(err)
	}
	if len(sink.logs) != 7 || sink.logs[0].Body.Str != "line 0" || sink.logs[0].Service != "engine" || sink.logs[0].Level() != "warn" {
		t.Errorf("logs %+v", sink.logs)
	}
	src := r.Sources()
	if len(src) != 1 || src[0].Name != "127.0.0.1" || src[0].Kind != "otlp_grpc" || src[0].Requests != 6 || src[0].Spans != 42 || src[0].Logs != 7 || src[0].Error == "" || src[0].Last.IsZero() {
		t.Errorf("sources %+v", src)
	}
	if d := r.Drops(); len(d) != 1 || d[0].Source != "otlp_grpc" || d[0].Count != 1 {
		t.Errorf("drops %+v", d)
	}
}

func TestGRPCRefusals(t *testing.T) {
	sink := &collected{}
	r := start(t, Options{Sink: sink, Limits: Limits{Body: 100_000, Expanded: 100_000, Spans: 100}})
	conn := dial(t, r.grpc)
	export := func(n int) error {
		_, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(someTraces("engine", n, false)))
		return err
	}
	for _, c := range []struct {
		name  string
		err   error
		n     int
		code  codes.Code
		retry time.Duration
	}{
		{"busy", &Refusal{Verdict: Busy, Message: "full", After: 1500 * time.Millisecond}, 1, codes.ResourceExhausted, 1500 * time.Millisecond},
		{"down", fmt.Errorf("store: %w", &Refusal{Verdict: Down, Message: "read-only"}), 1, codes.Unavailable, time.Second},
		{"some error", errors.New("disk"), 1, codes.Unavailable, time.Second},
		{"invalid", &Refusal{Verdict: Invalid, Message: "no"}, 1, codes.InvalidArgument, 0},
		{"too many spans", nil, 101, codes.ResourceExhausted, 0},
		{"too large", nil, 3000, codes.ResourceExhausted, 0},
	} {
		sink.fail = c.err
		st := status.Convert(export(c.n))
		if st.Code() != c.code || st.Message() == "" {
			t.Errorf("%s: %v", c.name, st)
		}
		var retry time.Duration
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				retry = info.RetryDelay.AsDuration()
			}
		}
		if retry != c.retry {
			t.Errorf("%s: retry after %s, want %s", c.name, retry, c.retry)
		}
	}
	sink.fail = nil
	err := conn.Invoke(t.Context(), exportMethod(metrics), &message{}, &message{}, grpc.ForceCodecV2(rawCodec{}))
	if st := status.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "/api/v1/otlp/v1/metrics") {
		t.Errorf("metrics: %v", st)
	}
	err = conn.Invoke(t.Context(), "/other.Service/Method", &message{}, &message{}, grpc.ForceCodecV2(rawCodec{}))
	if st := status.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "OTLP") {
		t.Errorf("other: %v", st)
	}
	err = conn.Invoke(t.Context(), exportMethod(traces), &message{data: []byte{0xff, 0xff}}, &message{}, grpc.ForceCodecV2(rawCodec{}))
	if st := status.Convert(err); st.Code() != codes.InvalidArgument {
		t.Errorf("no protobuf: %v", st)
	}
	reasons := map[string]int64{}
	for _, d := range r.Drops() {
		reasons[d.Reason] = d.Count
	}
	for _, want := range []string{"request_too_large", "request_too_many_spans", "request_sink_failed", "request_metrics_not_taken", "request_malformed"} {
		if reasons[want] != 1 {
			t.Errorf("drops %v: want one %s", reasons, want)
		}
	}
	if len(sink.spans) != 0 {
		t.Errorf("%d spans were taken", len(sink.spans))
	}
}

func post(t testing.TB, url, contentType, encoding string, body []byte) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, answer
}

func packed(t testing.TB, encoding string, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, err = flate.NewWriter(&b, 1)
	default:
		return body
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHTTP(t *testing.T) {
	sink := &collected{}
	r := start(t, Options{Sink: sink})
	tr := ptraceotlp.NewExportRequestFromTraces(someTraces("engine", 10, false))
	pb, err := tr.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	js, err := tr.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, encoding := range []string{"", "gzip", "zstd", "deflate", "raw deflate"} {
		header := strings.TrimPrefix(encoding, "raw ")
		for range 2 { // pools give used readers back
			code, h, answer := post(t, "http://"+r.http+"/v1/traces", "application/x-protobuf", header, packed(t, encoding, pb))
			if code != 200 || len(answer) != 0 || h.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("protobuf, %q: %d %v %s", encoding, code, h, answer)
			}
			code, h, answer = post(t, "http://"+r.http+"/v1/traces", "application/json; charset=utf-8", header, packed(t, encoding, js))
			if code != 200 || string(answer) != "{}" || h.Get("Content-Type") != "application/json" {
				t.Errorf("JSON, %q: %d %v %s", encoding, code, h, answer)
			}
			want += 20
		}
	}
	if len(sink.spans) != want {
		t.Errorf("%d spans, want %d", len(sink.spans), want)
	}
	lr := plogotlp.NewExportRequestFromLogs(someLogs(3))
	js, err = lr.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if code, _, answer := post(t, "http://"+r.http+"/v1/logs", "application/json", "gzip", packed(t, "gzip", js)); code != 200 {
		t.Errorf("logs in JSON: %d %s", code, answer)
	}
	pb, err = lr.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	if code, _, answer := post(t, "http://"+r.http+"/v1/logs", "application/x-protobuf", "", pb); code != 200 {
		t.Errorf("logs in protobuf: %d %s", code, answer)
	}
	if len(sink.logs) != 6 || fmt.Sprintf("%+v", sink.logs[0]) != fmt.Sprintf("%+v", sink.logs[3]) {
		t.Errorf("logs %+v", sink.logs)
	}

	// HTTP/2 without TLS, as Go's and Rust's exporters speak it when asked.
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &p}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://"+r.http+"/v1/logs", "application/x-protobuf", bytes.NewReader(pb))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
}

func TestHTTPRefusals(t *testing.T) {
	sink := &collected{}
	const limit = 1 << 20
	r := start(t, Options{Sink: sink, Limits: Limits{Body: 200_000, Expanded: limit, Spans: 100}})
	marshal := func(n int) []byte {
		b, err := ptraceotlp.NewExportRequestFromTraces(someTraces("engine", n, false)).MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const protobuf, js = "application/x-protobuf", "application/json"
	one, bomb := marshal(1), make([]byte, limit+1)
	for _, c := range []struct {
		name, path, contentType, encoding string
		body                              []byte
		fail                              error
		want                              int
		retry                             string
	}{
		{"busy", "/v1/traces", protobuf, "", one, &Refusal{Verdict: Busy, Message: "full", After: 1500 * time.Millisecond}, 429, "2"},
		{"down", "/v1/traces", protobuf, "", one, &Refusal{Verdict: Down, Message: "read-only"}, 503, "1"},
		{"an error", "/v1/traces", protobuf, "", one, errors.New("disk"), 503, "1"},
		{"invalid", "/v1/traces", protobuf, "", one, &Refusal{Verdict: Invalid, Message: "no"}, 400, ""},
		{"too many", "/v1/traces", protobuf, "", marshal(101), nil, 413, ""},
		{"too large", "/v1/traces", protobuf, "", make([]byte, 200_001), nil, 413, ""},
		{"gzip bomb", "/v1/traces", protobuf, "gzip", packed(t, "gzip", bomb), nil, 413, ""},
		{"zstd bomb", "/v1/traces", protobuf, "zstd", packed(t, "zstd", bomb), nil, 413, ""},
		{"deflate bomb", "/v1/traces", protobuf, "deflate", packed(t, "deflate", bomb), nil, 413, ""},
		{"no gzip", "/v1/traces", protobuf, "gzip", one, nil, 400, ""},
		{"no zstd", "/v1/traces", protobuf, "zstd", one, nil, 400, ""},
		{"no deflate", "/v1/traces", protobuf, "deflate", one, nil, 400, ""},
		{"cut gzip", "/v1/traces", protobuf, "gzip", packed(t, "gzip", one)[:20], nil, 400, ""},
		{"brotli", "/v1/traces", protobuf, "br", one, nil, 415, ""},
		{"text", "/v1/traces", "text/plain", "", one, nil, 415, ""},
		{"no protobuf", "/v1/traces", protobuf, "", []byte("\xff\xff"), nil, 400, ""},
		{"no JSON", "/v1/traces", js, "", []byte("{"), nil, 400, ""},
		{"deep JSON", "/v1/traces", js, "", []byte(strings.Repeat("[", 1000)), nil, 400, ""},
		{"many spans in JSON", "/v1/traces", js, "", []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{},", 15000) + `{}]}]}]}`), nil, 413, ""},
		{"many logs in JSON", "/v1/logs", js, "", []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat("{},", 150) + `{}]}]}]}`), nil, 413, ""},
		{"many logs", "/v1/logs", protobuf, "", func() []byte { b, _ := plogotlp.NewExportRequestFromLogs(someLogs(101)).MarshalProto(); return b }(), nil, 413, ""},
		{"logs, no JSON", "/v1/logs", js, "", []byte(`{"resourceLogs":3}`), nil, 400, ""},
		{"metrics", "/v1/metrics", protobuf, "", one, nil, 404, ""},
		{"elsewhere", "/v2/traces", js, "", one, nil, 404, ""},
	} {
		sink.fail = c.fail
		code, h, answer := post(t, "http://"+r.http+c.path, c.contentType, c.encoding, c.body)
		if code != c.want || h.Get("Retry-After") != c.retry {
			t.Errorf("%s: %d, Retry-After %q, want %d and %q", c.name, code, h.Get("Retry-After"), c.want, c.retry)
		}
		message := ""
		if c.contentType == protobuf {
			var st statuspb.Status
			if err := proto.Unmarshal(answer, &st); err != nil || h.Get("Content-Type") != protobuf {
				t.Errorf("%s: answer %q of %q: %v", c.name, answer, h.Get("Content-Type"), err)
			}
			message = st.Message
		} else {
			var st struct{ Message string }
			if err := json.Unmarshal(answer, &st); err != nil || h.Get("Content-Type") != js {
				t.Errorf("%s: answer %q of %q: %v", c.name, answer, h.Get("Content-Type"), err)
			}
			message = st.Message
		}
		if message == "" {
			t.Errorf("%s: no message", c.name)
		}
		if c.name == "metrics" && !strings.Contains(message, "/api/v1/otlp") {
			t.Errorf("metrics: %s", message)
		}
	}
	if resp, err := http.Get("http://" + r.http + "/v1/traces"); err != nil || resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if len(sink.spans)+len(sink.logs) != 0 {
		t.Errorf("%d spans and %d logs were taken", len(sink.spans), len(sink.logs))
	}
}

// TestO05 is the case of ids in the wrong spelling, end to end.
func TestO05(t *testing.T) {
	body, err := os.ReadFile("testdata/O05/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	sink := &collected{}
	r := start(t, Options{Sink: sink})
	code, _, answer := post(t, "http://"+r.http+"/v1/traces", "application/json", "", body)
	var got struct {
		PartialSuccess struct{ RejectedSpans, ErrorMessage string }
	}
	if err := json.Unmarshal(answer, &got); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	p := got.PartialSuccess
	if p.RejectedSpans != "1" || !strings.Contains(p.ErrorMessage, "base64") || !strings.Contains(p.ErrorMessage, "hex") {
		t.Errorf("answer %s", answer)
	}
	if len(sink.spans) != 2 || sink.spans[0].Trace.String() != "000000000000000000000000000000ab" || sink.spans[0].ID.String() != "00000000000000cd" ||
		sink.spans[1].Name != "root" || !sink.spans[1].Parent.IsZero() || sink.spans[1].Start != 1780000000000000000 {
		t.Errorf("spans %+v", sink.spans)
	}
	zero := bytes.ReplaceAll(body, []byte("000000000000000000000000000000AB"), []byte("00000000000000000000000000000000"))
	_, _, answer = post(t, "http://"+r.http+"/v1/traces", "application/json", "", zero)
	if err := json.Unmarshal(answer, &got); err != nil || got.PartialSuccess.RejectedSpans != "2" {
		t.Errorf("with an id of zeros: %s", answer)
	}
	reasons := map[string]int64{}
	for _, d := range r.Drops() {
		reasons[d.Reason] = d.Count
	}
	if reasons["id_base64"] != 2 || reasons["id_zero"] != 1 {
		t.Errorf("drops %v", reasons)
	}
}

// TestO11 counts, by service, spans of which the sender threw attributes away.
func TestO11(t *testing.T) {
	body, err := os.ReadFile("testdata/O11/dropped.json")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Sink: &collected{}})
	for range 2 {
		if code, _, answer := post(t, "http://"+r.http+"/v1/traces", "application/json", "", body); code != 200 {
			t.Fatalf("%d %s", code, answer)
		}
	}
	if got := r.SenderDropped(); got["gateway"] != 2 || len(got) != 1 {
		t.Errorf("dropped by the sender: %v", got)
	}
}

// TestPartialOfSink passes on what the sink did not want.
func TestPartialOfSink(t *testing.T) {
	sink := &collected{rejected: 2, message: "outside of the retention"}
	r := start(t, Options{Sink: sink})
	resp, err := ptraceotlp.NewGRPCClient(dial(t, r.grpc)).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(someTraces("engine", 5, true)))
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.PartialSuccess(); p.RejectedSpans() != 3 || !strings.Contains(p.ErrorMessage(), "retention") || !strings.Contains(p.ErrorMessage(), "span 0") {
		t.Errorf("rejected %d: %s", p.RejectedSpans(), p.ErrorMessage())
	}
}

// TestTurns refuses what does not get its turn.
func TestTurns(t *testing.T) {
	block, in := make(chan struct{}), make(chan struct{}, 10)
	sink := blocking{block, in}
	r := start(t, Options{Sink: sink, Limits: Limits{Concurrent: 1, Waiting: 2, Wait: 10 * time.Millisecond}})
	client := ptraceotlp.NewGRPCClient(dial(t, r.grpc))
	first := make(chan error, 1)
	go func() {
		_, err := client.Export(context.Background(), ptraceotlp.NewExportRequestFromTraces(someTraces("a", 1, false)))
		first <- err
	}()
	<-in
	_, err := client.Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(someTraces("b", 1, false)))
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 {
		t.Errorf("the second: %v", err)
	}
	close(block)
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
}

type blocking struct{ block, in chan struct{} }

func (b blocking) Traces(context.Context, []span.Scope) (int, string, error) {
	b.in <- struct{}{}
	<-b.block
	return 0, "", nil
}

func (b blocking) Logs(context.Context, []LogRecord) (int, string, error) { return 0, "", nil }

// TestSlowBody lets nobody keep a place by sending nothing.
func TestSlowBody(t *testing.T) {
	r := start(t, Options{Sink: &collected{}, Limits: Limits{Read: 50 * time.Millisecond}})
	conn := dial(t, r.grpc)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, exportMethod(traces), grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if st := status.Convert(stream.RecvMsg(&message{})); st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), "not complete") {
		t.Errorf("gRPC: %v", st)
	}
	c, err := net.Dial("tcp", r.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 10\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429") {
		t.Errorf("HTTP: %s, %v", answer, err)
	}
}
