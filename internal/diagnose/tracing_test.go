package diagnose

import (
	"slices"
	"strings"
	"testing"
)

// good is a set-up with nothing to say about.
func good() TracingEvidence {
	return TracingEvidence{
		Receiver: Receiver{GRPC: "127.0.0.1:4317", HTTP: "127.0.0.1:4318", Loopback: true, Spans: 5000},
		Services: []Service{{Name: "dynamo-frontend", Spans: 100, Dynamo: true, Instances: 1}, {Name: "sglang-decode", Spans: 4900, SGLang: true, Level: 2, Instances: 1, SpansPerHour: 60000}},
		Engines:  []Engine{{Name: "127.0.0.1:30000", Backend: "sglang", Busy: true, Spans: true}, {Name: "127.0.0.1:8000", Backend: "dynamo_frontend", Busy: true, Spans: true}},
		Traces:   50,
	}
}

func TestTracing(t *testing.T) {
	line := func(s string) func(*TracingEvidence) {
		return func(e *TracingEvidence) { e.Lines = []Line{{Source: "a.log", Engine: "10.0.0.1:30000", Text: s}} }
	}
	tests := []struct {
		name   string
		change func(*TracingEvidence)
		want   []string // codes
		says   string   // in what to do, in the evidence or in the sentence of the first
	}{
		{"all is well", func(*TracingEvidence) {}, nil, ""},
		{"no receiver", func(e *TracingEvidence) {
			e.Receiver = Receiver{Reason: "127.0.0.1:4317: address already in use"}
		}, []string{"receiver_off"}, "address already in use"},
		{"no http", func(e *TracingEvidence) { e.Receiver.HTTP = "" }, []string{"receiver_half"}, "send to 127.0.0.1:4317"},
		{"engines elsewhere", func(e *TracingEvidence) {
			e.Receiver.Spans, e.Services = 0, nil
			e.Engines = []Engine{{Name: "10.0.0.1:30000", Backend: "sglang", Busy: true}}
		}, []string{"no_spans", "receiver_loopback"}, "--enable-trace --otlp-traces-endpoint 127.0.0.1:4317"},
		{"nothing was asked for", func(e *TracingEvidence) {
			e.Receiver.Spans, e.Services = 0, nil
			e.Engines = []Engine{{Name: "127.0.0.1:30000", Backend: "sglang"}}
		}, nil, ""},
		{"base64 ids", func(e *TracingEvidence) { e.Receiver.Rejected = map[string]int64{"base64_id": 3, "empty": 0} }, []string{"rejected_base64_id"}, "in hex, not in base64"},
		{"packages", line("[2026-05-24 10:00:00] Tracing is disabled because the packages cannot be imported."), []string{"missing_packages"}, "opentelemetry-exporter-otlp-proto-grpc"},
		{"off", line("server_args=ServerArgs(model_path='x', enable_trace=False, otlp_traces_endpoint='localhost:4317')"), []string{"trace_off"}, "--enable-trace"},
		{"endpoint without the switch", line("server_args=ServerArgs(enable_trace=False, otlp_traces_endpoint='10.0.0.9:4317')"), []string{"trace_off"}, "no effect without the switch"},
		{"scheme", line("server_args=ServerArgs(enable_trace=True, otlp_traces_endpoint='http://10.0.0.9:4317/')"), []string{"endpoint_form"}, "--otlp-traces-endpoint 10.0.0.9:4317"},
		{"no port", line("ServerArgs(enable_trace=True, otlp_traces_endpoint='collector')"), []string{"endpoint_form"}, "HOST:PORT"},
		{"http port", line("ServerArgs(enable_trace=True, oltp_traces_endpoint='c:4318')"), []string{"endpoint_port"}, "http/protobuf"},
		{"good arguments", line("ServerArgs(enable_trace=True, otlp_traces_endpoint='c:4317')"), nil, ""},
		{"misspelt for a newer one", line("launch_server.py: error: unrecognized arguments: --oltp-traces-endpoint c:4317"), []string{"flag_misspelt"}, "--otlp-traces-endpoint"},
		{"right for an older one", line("launch_server.py: error: unrecognized arguments: --otlp-traces-endpoint c:4317"), []string{"flag_misspelt_there"}, "--oltp-traces-endpoint"},
		{"a page's flag", line("error: unrecognized arguments: --otlp-endpoint http://c:4317"), []string{"flag_unknown"}, "no flag --otlp-endpoint"},
		{"another flag", line("error: unrecognized arguments: --foo"), nil, ""},
		{"export fails", line("Failed to export traces to c:4317, error code: StatusCode.UNAVAILABLE"), []string{"export_fails"}, "as seen from there"},
		{"the same twice", func(e *TracingEvidence) {
			l := Line{Engine: "a:1", Text: "Failed to export traces"}
			e.Lines = []Line{l, l}
		}, []string{"export_fails"}, ""},
		{"one engine silent", func(e *TracingEvidence) {
			e.Engines = append(e.Engines, Engine{Name: "127.0.0.1:30001", Backend: "sglang", Busy: true})
		}, []string{"some_silent"}, "1 of 3"},
		{"dynamo silent", func(e *TracingEvidence) { e.Services = e.Services[1:] }, []string{"dynamo_silent"}, "DYN_LOGGING_JSONL=true"},
		{"engine inside dynamo dark", func(e *TracingEvidence) { e.Services = e.Services[:1] }, []string{"engine_spans_missing"}, "SGLANG_TRACE_LEVEL"},
		{"level 1", func(e *TracingEvidence) { e.Services[1].Level = 1 }, []string{"level_low"}, "/set_trace_level?level=2"},
		{"level 3", func(e *TracingEvidence) { e.Services[1].Level, e.Services[1].SpansPerHour = 3, 1.6e6 }, []string{"level_high"}, "1.6 M spans an hour"},
		{"level 3 of a quiet one", func(e *TracingEvidence) { e.Services[1].Level = 3 }, nil, ""},
		{"one name for all", func(e *TracingEvidence) { e.Services[1].Name, e.Services[1].Instances = "sglang", 8 }, []string{"service_name"}, "OTEL_SERVICE_NAME"},
		{"attributes dropped", func(e *TracingEvidence) { e.Services[0].DroppedAttrs = 37 }, []string{"attributes_dropped"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"},
		{"without an engine", func(e *TracingEvidence) {
			e.Traces, e.WithoutEngine = 9, map[string]Share{"gateway": {1, 3}, "x": {0, 9}, "running": {1, 101}}
		}, []string{"no_engine_spans"}, "1 of 3 traces with spans of gateway have none of an engine.\n33 % of the traces"},
		{"orphans", func(e *TracingEvidence) { e.Orphaned, e.Traces = 2, 200 }, []string{"orphans"}, "2 of 200 traces have spans whose parents nobody exported.\n1 % of the traces\nthey"},
		{"few orphans", func(e *TracingEvidence) { e.Orphaned, e.Traces = 2, 201 }, []string{"orphans"}, "may be requests that still run"},
		{"split", func(e *TracingEvidence) { e.SplitRequests = 2 }, []string{"split"}, "probably one request"},
		{"head-sampled", func(e *TracingEvidence) { e.HeadSampled = "1.0 % of the requests have a trace" }, []string{"head_sampled"}, "1.0 %"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := good()
			tt.change(&e)
			found := Tracing(e)
			var codes []string
			for _, f := range found {
				codes = append(codes, f.Code)
				if f.Subject == "" || f.What == "" || len(f.Evidence) == 0 || len(f.Do) == 0 || order[f.Severity] == 0 && f.Severity != Broken {
					t.Errorf("half a finding: %+v", f)
				}
			}
			if !slices.Equal(codes, tt.want) {
				t.Fatalf("found %v, want %v", codes, tt.want)
			}
			if len(found) > 0 {
				all := strings.Join(append(append([]string{found[0].What}, found[0].Evidence...), found[0].Do...), "\n")
				if !strings.Contains(all, tt.says) {
					t.Errorf("%s\ndoes not say %q", all, tt.says)
				}
			}
		})
	}
}

func TestShortenKeepsWhatMatters(t *testing.T) {
	long := "server_args=ServerArgs(" + strings.Repeat("x=1, ", 500) + "enable_trace=False, otlp_traces_endpoint='c:4317')"
	if s := shorten(long); len(s) > 260 || !strings.Contains(s, "enable_trace=False") {
		t.Errorf("%q", s)
	}
}
