package diagnose

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// TracingEvidence is what was seen of tracing in a range of time.
type TracingEvidence struct {
	// Receiver is this process's OTLP receiver.
	Receiver Receiver
	Services []Service
	Engines  []Engine
	Lines    []Line // lines of logs that say something about tracing, see [TracingLines]
	// Traces is how many were looked at, WithoutEngine by service those with spans of the service and how
	// many of them have none of an engine.
	Traces        int
	WithoutEngine map[string]Share
	Orphaned      int    // traces with spans whose parents nobody exported
	SplitRequests int    // requests whose spans stand in more than one trace
	HeadSampled   string // why the input looks sampled before it came here, "" when it does not
}

// Share is how many of some traces lack something.
type Share struct{ Lacking, Of int }

// few says that so small a share needs no cause: among the traces looked at are requests that still run.
func (s Share) few() bool { return s.Lacking*100 < s.Of }

// text writes the share in percent.
func (s Share) text() string {
	if s.few() {
		return "less than 1 % of the traces"
	}
	return fmt.Sprintf("%.0f %% of the traces", 100*float64(s.Lacking)/float64(s.Of))
}

// Receiver is the state of the OTLP receiver.
type Receiver struct {
	GRPC, HTTP string // addresses, "" when it does not listen
	Reason     string // why not
	Loopback   bool   // only this machine can reach it
	Unknown    bool   // nobody receives here: what was recorded is looked at later
	Spans      int64  // received since the start
	Rejected   map[string]int64
}

// Service is one sender of spans.
type Service struct {
	Name         string
	Spans        int64
	SGLang       bool // it sends spans of an SGLang engine
	Dynamo       bool // it sends spans of a Dynamo component
	Level        int  // SGLANG_TRACE_LEVEL as seen, 0 unknown
	SpansPerHour float64
	Instances    int // different hosts and pids that send under the name
	DroppedAttrs int64
}

// Engine is one engine that is scraped or whose log is read.
type Engine struct {
	Name    string
	Backend string // sglang, vllm, dynamo_worker, dynamo_frontend
	Busy    bool   // it finished requests in the range
	Spans   bool   // spans of it arrived
}

// Line is one line of a log.
type Line struct {
	Source, Engine, Text string
}

// TracingLines are words that a line about tracing has at least one of: what a caller looks for in the logs.
func TracingLines() []string {
	return []string{"Tracing is disabled because", "enable_trace=", "otlp_traces_endpoint=", "oltp_traces_endpoint=", "unrecognized arguments: --",
		"Failed to export traces", "Transient error StatusCode", "Exporting failed", "OTLP", "opentelemetry"}
}

const (
	manySpansPerHour = 1_000_000
	packages         = "pip install opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp opentelemetry-exporter-otlp-proto-grpc"
)

// Tracing judges the set-up of tracing: worst first.
func Tracing(e TracingEvidence) []Finding {
	var out []Finding
	add := func(f Finding) { out = append(out, f) }
	e.receiver(add)
	e.lines(add)
	e.engines(add)
	e.services(add)
	e.traces(add)
	slices.SortStableFunc(out, compare)
	return out
}

func (e *TracingEvidence) endpoint() string {
	if e.Receiver.GRPC != "" {
		return e.Receiver.GRPC
	}
	return "HOST:4317"
}

func (e *TracingEvidence) receiver(add func(Finding)) {
	r := e.Receiver
	switch {
	case r.Unknown:
		return
	case r.GRPC == "" && r.HTTP == "":
		add(Finding{Code: "receiver_off", Severity: Broken, Subject: "rollscope", What: "This process does not listen for OTLP, so no span can arrive.",
			Evidence: nonEmpty(r.Reason), Do: []string{"set traces.otlp_grpc: 127.0.0.1:4317 in the configuration, or free the port and restart"}})
	case r.GRPC == "" || r.HTTP == "":
		missing, other := "OTLP over gRPC (4317)", r.HTTP
		if r.GRPC != "" {
			missing, other = "OTLP over HTTP (4318)", r.GRPC
		}
		add(Finding{Code: "receiver_half", Severity: Note, Subject: "rollscope", What: "This process does not listen for " + missing + ".",
			Evidence: nonEmpty(r.Reason, "it listens on "+other), Do: []string{"send to " + other + ", or set the other address in traces:"}})
	}
	if r.Loopback && r.Spans == 0 && (r.GRPC != "" || r.HTTP != "") {
		for _, g := range e.Engines {
			host, _, err := net.SplitHostPort(g.Name)
			if ip := net.ParseIP(host); err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
				add(Finding{Code: "receiver_loopback", Severity: Broken, Subject: "rollscope",
					What:     "The OTLP receiver listens on this machine only, and engines run elsewhere.",
					Evidence: []string{"it listens on " + e.endpoint(), "engine " + g.Name + " is on another host"},
					Do:       []string{"set traces.otlp_grpc: 0.0.0.0:4317, with users in --web.config.file", "or run a collector beside the engines that forwards here"}})
				break
			}
		}
	}
	for _, reason := range sortedKeys(r.Rejected) {
		if n := r.Rejected[reason]; n > 0 {
			add(Finding{Code: "rejected_" + reason, Severity: Poor, Subject: "rollscope", What: fmt.Sprintf("%d spans were rejected: %s.", n, strings.ReplaceAll(reason, "_", " ")),
				Evidence: []string{fmt.Sprintf("rollscope_dropped_total{source=\"otlp\",reason=%q} is %d", reason, n)}, Do: rejectedCure(reason)})
		}
	}
}

func rejectedCure(reason string) []string {
	switch {
	case strings.Contains(reason, "base64"):
		return []string{"OTLP/JSON has ids in hex, not in base64: send protobuf, or use an exporter that follows the specification"}
	case strings.Contains(reason, "id"):
		return []string{"the sender writes ids that no trace may have: update its OpenTelemetry SDK"}
	}
	return []string{"see the sender's log: the answer to its request said what was wrong"}
}

// lines reads what processes said about their own tracing.
func (e *TracingEvidence) lines(add func(Finding)) {
	type key struct{ code, subject string }
	seen := map[key]bool{}
	once := func(l Line, f Finding) {
		f.Subject = firstOf(l.Engine, l.Source, "an engine")
		if k := (key{f.Code, f.Subject}); !seen[k] {
			seen[k] = true
			f.Evidence = append([]string{"log: " + shorten(l.Text)}, f.Evidence...)
			add(f)
		}
	}
	for _, l := range e.Lines {
		text := l.Text
		switch {
		case strings.Contains(text, "Tracing is disabled because the packages cannot be imported"):
			once(l, Finding{Code: "missing_packages", Severity: Broken, What: "The engine has --enable-trace, but the OpenTelemetry packages are not installed, so its spans are never sent.",
				Do: []string{packages}})
		case strings.Contains(text, "unrecognized arguments: --"):
			switch arg := word(text, "unrecognized arguments: "); {
			case strings.HasPrefix(arg, "--otlp-traces-endpoint"):
				once(l, Finding{Code: "flag_misspelt_there", Severity: Broken, What: "This SGLang knows the flag only as --oltp-traces-endpoint (a spelling of 0.5.3 to 0.5.4.post1).",
					Do: []string{"write --oltp-traces-endpoint, or update SGLang"}})
			case strings.HasPrefix(arg, "--oltp-traces-endpoint"):
				once(l, Finding{Code: "flag_misspelt", Severity: Broken, What: "--oltp-traces-endpoint was renamed after SGLang 0.5.4.post1.", Do: []string{"write --otlp-traces-endpoint"}})
			case strings.HasPrefix(arg, "--enable-tracing"), strings.HasPrefix(arg, "--otlp-endpoint"), strings.HasPrefix(arg, "--otlp-traces-sampler-arg"):
				once(l, Finding{Code: "flag_unknown", Severity: Broken, What: "SGLang has no flag " + arg + "; a documentation page names it by mistake.",
					Do: []string{"--enable-trace --otlp-traces-endpoint " + e.endpoint()}})
			}
		case strings.Contains(text, "enable_trace=False"):
			what := "The engine runs without --enable-trace, so it sends no spans and does not pass the caller's context on."
			f := Finding{Code: "trace_off", Severity: Broken, What: what, Do: []string{"--enable-trace --otlp-traces-endpoint " + e.endpoint()}}
			if ep := argument(text, "otlp_traces_endpoint"); ep != "" && ep != "localhost:4317" {
				f.Evidence = append(f.Evidence, "an endpoint is set ("+ep+"), but it has no effect without the switch")
			}
			once(l, f)
		case strings.Contains(text, "enable_trace=True"):
			ep := firstOf(argument(text, "otlp_traces_endpoint"), argument(text, "oltp_traces_endpoint"))
			if strings.Contains(ep, "://") {
				once(l, Finding{Code: "endpoint_form", Severity: Broken, What: "--otlp-traces-endpoint has a scheme; SGLang wants HOST:PORT, and gRPC fails on anything else.",
					Evidence: []string{"endpoint " + ep}, Do: []string{"--otlp-traces-endpoint " + strings.TrimSuffix(ep[strings.Index(ep, "://")+3:], "/")}})
			} else if _, port, err := net.SplitHostPort(ep); ep != "" && (err != nil || !isPort(port)) {
				once(l, Finding{Code: "endpoint_form", Severity: Broken, What: "--otlp-traces-endpoint is not HOST:PORT.", Evidence: []string{"endpoint " + ep},
					Do: []string{"--otlp-traces-endpoint " + e.endpoint()}})
			} else if port == "4318" {
				once(l, Finding{Code: "endpoint_port", Severity: Broken, What: "--otlp-traces-endpoint names port 4318, which speaks HTTP; SGLang sends gRPC unless told otherwise.",
					Evidence: []string{"endpoint " + ep}, Do: []string{"use port 4317, or set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}})
			}
		case strings.Contains(text, "Failed to export traces"), strings.Contains(text, "Transient error StatusCode"), strings.Contains(text, "Exporting failed"):
			once(l, Finding{Code: "export_fails", Severity: Broken, What: "The process cannot reach the place that it exports spans to.",
				Do: []string{"check that its endpoint is " + e.endpoint() + " as seen from there, and that nothing between filters the port"}})
		}
	}
}

// engines compares who works with who sends.
func (e *TracingEvidence) engines(add func(Finding)) {
	var silent []string
	dynamo := false
	for _, g := range e.Engines {
		if strings.HasPrefix(g.Backend, "dynamo") {
			dynamo = true
		}
		if g.Busy && !g.Spans && (g.Backend == "sglang" || g.Backend == "vllm") {
			silent = append(silent, g.Name)
		}
	}
	anySpans := slices.ContainsFunc(e.Services, func(s Service) bool { return s.Spans > 0 })
	switch {
	case len(silent) > 0 && !anySpans:
		add(Finding{Code: "no_spans", Severity: Broken, Subject: "all engines", What: "Engines finish requests, and no span arrives from any of them.",
			Evidence: []string{fmt.Sprintf("%d busy engines: %s", len(silent), few(silent)), "0 spans in the range"},
			Do: []string{"SGLang: --enable-trace --otlp-traces-endpoint " + e.endpoint(), "vLLM: --otlp-traces-endpoint http://" + e.endpoint(),
				"the packages must be there: " + packages}})
	case len(silent) > 0:
		add(Finding{Code: "some_silent", Severity: Poor, Subject: few(silent), What: "These engines finish requests and send no spans, while others do.",
			Evidence: []string{fmt.Sprintf("%d of %d engines are silent", len(silent), len(e.Engines))},
			Do:       []string{"start them as the others: --enable-trace --otlp-traces-endpoint " + e.endpoint()}})
	}
	if dynamo && !slices.ContainsFunc(e.Services, func(s Service) bool { return s.Dynamo && s.Spans > 0 }) {
		add(Finding{Code: "dynamo_silent", Severity: Broken, Subject: "dynamo", What: "Dynamo components are scraped, and none of them sends spans.",
			Evidence: []string{"no span is named http-request, handle_payload or kv_router.*"},
			Do: []string{"DYN_LOGGING_JSONL=true OTEL_EXPORT_ENABLED=true OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + e.endpoint() + " on every process",
				"DYN_LOGGING_JSONL is needed for tracing too: without it the switch OTEL_EXPORT_ENABLED has no effect"}})
	}
}

// services looks at what each sender sends.
func (e *TracingEvidence) services(add func(Finding)) {
	sglang, dynamo := false, false
	for _, s := range e.Services {
		sglang, dynamo = sglang || s.SGLang, dynamo || s.Dynamo
	}
	if dynamo && !sglang {
		add(Finding{Code: "engine_spans_missing", Severity: Broken, Subject: "sglang", What: "Spans of Dynamo arrive, and none of the engine inside: its part of each request is dark.",
			Evidence: []string{"handle_payload has no children of an engine"},
			Do:       []string{"--enable-trace --otlp-traces-endpoint " + e.endpoint() + " on the worker: both are needed", packages, "SGLANG_TRACE_LEVEL must be at least 1"}})
	}
	for _, s := range e.Services {
		if s.SGLang && s.Level > 0 && s.Level < 2 {
			add(Finding{Code: "level_low", Severity: Note, Subject: s.Name, What: "The engine sends level 1: tokenize, prefill and decode as wholes, and nothing about dispatch and queueing between them.",
				Evidence: []string{"no span of level 2 (request_process, api_server_dispatch)"}, Do: []string{"SGLANG_TRACE_LEVEL=2, or live: POST /set_trace_level?level=2"}})
		}
		if s.SGLang && s.Level >= 3 && s.SpansPerHour > manySpansPerHour {
			add(Finding{Code: "level_high", Severity: Poor, Subject: s.Name, What: "The engine sends a span for every decode step, which is most of what arrives and rarely read.",
				Evidence: []string{fmt.Sprintf("level %d, %.1f M spans an hour", s.Level, s.SpansPerHour/1e6)}, Do: []string{"SGLANG_TRACE_LEVEL=2 keeps everything about a request"}})
		}
		if (s.Name == "dynamo" || s.Name == "sglang" || s.Name == "") && s.Instances > 1 {
			name := firstOf(s.Name, "(none)")
			add(Finding{Code: "service_name", Severity: Poor, Subject: name, What: "Several processes send under one name, so they cannot be told apart by service.",
				Evidence: []string{fmt.Sprintf("%d processes are called %s", s.Instances, name)},
				Do:       []string{"OTEL_SERVICE_NAME=dynamo-worker-prefill and so on, one for each kind of process"}})
		}
		if s.DroppedAttrs > 0 {
			add(Finding{Code: "attributes_dropped", Severity: Poor, Subject: s.Name, What: "The sender's SDK threw attributes away because of its limit; keys such as the session's may be among them.",
				Evidence: []string{fmt.Sprintf("%d spans say so", s.DroppedAttrs)},
				Do:       []string{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=1024 (128 is the default) in the sender", "OTEL_ATTRIBUTE_COUNT_LIMIT, OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT, OTEL_LINK_ATTRIBUTE_COUNT_LIMIT are the others"}})
		}
	}
}

// traces looks at how they hang together.
func (e *TracingEvidence) traces(add func(Finding)) {
	for _, s := range sortedKeys(e.WithoutEngine) {
		share := e.WithoutEngine[s]
		if share.Lacking == 0 || share.few() {
			continue
		}
		add(Finding{Code: "no_engine_spans", Severity: Poor, Subject: s, What: fmt.Sprintf("%d of %d traces with spans of %s have none of an engine.", share.Lacking, share.Of, s),
			Evidence: []string{share.text()},
			Do: []string{"the context must be passed on: traceparent reaches SGLang only with --enable-trace (0.5.5.post2 and later)",
				"the server with several tokenizers (--tokenizer-worker-num) and gateways before 0.3 do not continue an inbound context",
				"Dynamo's TCP transport loses the headers in early 1.x"}})
	}
	if share := (Share{e.Orphaned, e.Traces}); share.Lacking > 0 {
		f := Finding{Code: "orphans", Severity: Poor, Subject: "traces", What: fmt.Sprintf("%d of %d traces have spans whose parents nobody exported.", share.Lacking, share.Of),
			Evidence: []string{share.text(), "they are drawn below a placeholder, their durations as they came"},
			Do:       []string{"the process with the parents does not export, or samples on its own: give all of them the same OTEL_TRACES_SAMPLER (parentbased_always_on)"}}
		if share.few() {
			f.Severity = Note
			f.Evidence = append(f.Evidence, "so few may be requests that still run: a parent is exported when it has ended")
		}
		add(f)
	}
	if e.SplitRequests > 0 {
		add(Finding{Code: "split", Severity: Poor, Subject: "traces", What: fmt.Sprintf("The spans of %d requests stand in more than one trace.", e.SplitRequests),
			Evidence: []string{"they share a request id or a bootstrap room, and no trace id"},
			Do:       []string{"prefill and decode meet in one trace only if the router passes traceparent to both: turn its tracing on", "they are offered as probably one request, and never merged"}})
	}
	if e.HeadSampled != "" {
		add(Finding{Code: "head_sampled", Severity: Poor, Subject: "traces", What: "The input was sampled before it came here: slow and failed requests may be missing, and percentiles from traces are not reliable.",
			Evidence: []string{e.HeadSampled}, Do: []string{"OTEL_TRACES_SAMPLER=parentbased_always_on in the senders: what to keep is decided here, when a request is finished"}})
	}
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0 && n < 65536
}

// argument reads name='value' or name=value out of a line of server arguments.
func argument(text, name string) string {
	_, rest, ok := strings.Cut(text, name+"=")
	if !ok {
		return ""
	}
	if rest != "" && (rest[0] == '\'' || rest[0] == '"') {
		value, _, _ := strings.Cut(rest[1:], rest[:1])
		return value
	}
	if i := strings.IndexAny(rest, ", )"); i >= 0 {
		rest = rest[:i]
	}
	if rest == "None" {
		return ""
	}
	return rest
}

// word is the first word after a prefix.
func word(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	if i := strings.IndexAny(rest, " =\t"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func nonEmpty(list ...string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

func few(list []string) string {
	if len(list) <= 4 {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:3], ", ") + fmt.Sprintf(" and %d more", len(list)-3)
}

func shorten(s string) string {
	const limit = 240
	if i := strings.Index(s, "enable_trace="); i > limit/2 {
		s = "…" + s[i-20:]
	}
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
