package span

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rollscope/rollscope/internal/event"
)

// benchBody is a batch as SGLang's exporter sends them: spans of 25 attributes.
func benchBody(tb testing.TB, spans int) []byte {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "sglang")
	rs.Resource().Attributes().PutStr("telemetry.sdk.version", "1.40.0")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("sglang server")
	for i := range spans {
		s := ss.Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{8: byte(i >> 16), 9: byte(i >> 8), 10: byte(i / 10), 15: 1})
		s.SetSpanID(pcommon.SpanID{0: byte(i), 1: byte(i >> 8), 7: 1})
		s.SetParentSpanID(pcommon.SpanID{7: 9})
		s.SetName([]string{"decode_loop", "prefill_forward", "tokenize", "request_process"}[i%4])
		s.SetKind(ptrace.SpanKindInternal)
		s.SetStartTimestamp(pcommon.Timestamp(1780000000000000000 + int64(i)*1000003))
		s.SetEndTimestamp(pcommon.Timestamp(1780000000000000000 + int64(i)*1000003 + 20123456))
		a := s.Attributes()
		a.PutStr("host_id", "8f2c1d9a")
		a.PutStr("thread_label", "Scheduler")
		a.PutInt("pid", int64(4000+i%8))
		for k := range 8 {
			a.PutInt(fmt.Sprintf("gen_ai.usage.counter_%d", k), int64(i*k))
			a.PutStr(fmt.Sprintf("sglang.attribute_%d", k), fmt.Sprintf("value-%d", i%(10+k)))
		}
		for k := range 6 {
			a.PutDouble(fmt.Sprintf("gen_ai.latency.part_%d", k), float64(i)*0.001234+float64(k))
		}
	}
	pb, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		tb.Fatal(err)
	}
	return pb
}

func BenchmarkScan(b *testing.B) {
	const spans = 1000
	body := benchBody(b, spans)
	scopes, err := Scan(body, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if scopes, err = Scan(body, scopes[:0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spans)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkDecode(b *testing.B) { benchDecode(b, false) }

func BenchmarkDecodeRow(b *testing.B) { benchDecode(b, true) }

func benchDecode(b *testing.B, rows bool) {
	const spans = 1000
	body := benchBody(b, spans)
	scopes, err := Scan(body, nil)
	if err != nil {
		b.Fatal(err)
	}
	var s Span
	var r event.Row
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		for i := range scopes[0].Spans {
			if err := Decode(&scopes[0], &scopes[0].Spans[i], &s); err != nil {
				b.Fatal(err)
			}
			if rows {
				s.Row(&r)
			}
		}
	}
	b.ReportMetric(float64(spans)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkFromRow(b *testing.B) {
	spans := decodeAll(b, benchBody(b, 100))
	var r event.Row
	spans[7].Row(&r)
	fields := stored(&r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromRow(fields); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkFromJSON(b *testing.B) {
	const spans = 1000
	body := AppendTracesJSON(nil, decodeAll(b, benchBody(b, spans)))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := FromJSON(body); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spans)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}
