package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/tracestore"
)

func TestTracesGolden(t *testing.T) {
	a := newAPI(t, withTraces(fakeTraces{partial: "it took too long", related: []tracestore.Related{{Why: "probably one request"}}}))
	for _, c := range []struct{ name, target string }{
		{"traces", ours + "/traces?service=sglang&name=Req+*&status=error"},
		{"trace", ours + "/traces/my-trace-001"},
		{"trace_services", ours + "/traces/services"},
		{"jaeger_services", "/api/services"},
		{"jaeger_names", "/api/services/sglang/operations"},
		{"jaeger_operations", "/api/operations?service=sglang"},
		{"jaeger_search", "/api/traces?service=sglang"},
		{"jaeger_trace", "/api/traces/" + madeTraceID},
		{"jaeger_dependencies", "/api/dependencies?endTs=1767366000000&lookback=3600000"},
		{"tempo_search", "/api/search?q=" + url.QueryEscape(`{span.rid="r1" && duration>1ms} | select(span.tokens, resource.host.name)`)},
		{"tempo_trace", "/api/traces/" + madeTraceID},
		{"tempo_trace_v2", "/api/v2/traces/" + madeTraceID},
		{"tempo_tags", "/api/search/tags"},
		{"tempo_tags_v2", "/api/v2/search/tags"},
		{"tempo_values", "/api/search/tag/service.name/values"},
		{"tempo_values_v2", "/api/v2/search/tag/resource.service.name/values"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Handler(a)
			if strings.HasPrefix(c.name, "tempo") {
				h = a.Tempo()
			}
			w := ask(h, "GET", c.target, "")
			if w.Code != 200 {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			golden(t, c.name, w.Body.Bytes())
		})
	}
}

// A trace is drawn by the timeline that draws steps, and read once for all its windows.
func TestTraceTimeline(t *testing.T) {
	asked := &fakeAsked{}
	a := newAPI(t, withTraces(fakeTraces{asked: asked}))
	path := ours + "/timelines/trace-" + madeTraceID
	if w := ask(a, "GET", path, ""); w.Code != 200 || w.Body.Len() == 0 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	asked.id = ""
	w := ask(a, "GET", path+"/rows/0", "")
	row := decode[Envelope[map[string]any]](t, w)
	if w.Code != 200 || asked.id != "" || row.Data == nil || !strings.Contains(w.Body.String(), "http-request") {
		t.Errorf("row 0: %d, read again: %q, %s", w.Code, asked.id, w.Body)
	}
	for _, rest := range []string{"/order", "/window", "/stats", "/summary", "/find?text=decode", "/perfetto"} {
		if w := ask(a, "GET", path+rest, ""); w.Code != 200 {
			t.Errorf("%s: %d %s", rest, w.Code, w.Body)
		}
	}
	if w := ask(a, "GET", ours+"/timelines/trace-"+strings.Repeat("e", 32), ""); w.Code != 404 {
		t.Errorf("a trace that is not there: %d %s", w.Code, w.Body)
	}
}

func TestTraceErrors(t *testing.T) {
	a := newAPI(t, withTraces(fakeTraces{}))
	down := newAPI(t, withTraces(fakeTraces{err: fmt.Errorf("%w: it was killed", eventstore.ErrDown)}))
	broken := newAPI(t, withTraces(fakeTraces{err: errors.New("bits fell out")}))
	none := newAPI(t)
	for _, c := range []struct {
		a            *API
		target, code string
		status       int
		says         string
	}{
		{a, "/traces/" + strings.Repeat("e", 32), "not_found", 404, "no trace has this id"},
		{a, "/traces/nonsense", "bad_parameter", 400, "not a trace id"},
		{a, "/traces?min=soon", "bad_parameter", 400, "no duration"},
		{a, "/traces?status=fine", "bad_parameter", 400, "status"},
		{a, "/traces?order=random", "bad_parameter", 400, "slowest"},
		{a, "/traces?limit=1000000", "bad_parameter", 400, "1000"},
		{a, "/traces?tags=" + url.QueryEscape("{span.rid="), "bad_query", 400, "value"},
		{a, "/traces?tags=" + url.QueryEscape("rid=~("), "bad_query", 400, "missing"},
		{a, "/traces/x?fold=-1", "bad_parameter", 400, "fold"},
		{down, "/traces", "busy", 503, "killed"},
		{down, "/traces/" + madeTraceID, "busy", 503, "killed"},
		{broken, "/traces/services", "internal", 500, "bits"},
		{none, "/traces/" + madeTraceID, "not_enabled", 404, "no traces"},
		{none, "/traces/services", "not_enabled", 404, "no traces"},
	} {
		w := ask(c.a, "GET", ours+c.target, "")
		e := decode[ErrorBody](t, w).Error
		if w.Code != c.status || e.Code != c.code || !strings.Contains(e.Error(), c.says) {
			t.Errorf("%s: %d %+v, want %d %s %q", c.target, w.Code, e, c.status, c.code, c.says)
		}
	}
	if w := ask(none, "GET", ours+"/traces", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"traces":[]`) {
		t.Errorf("a list without traces: %d %s", w.Code, w.Body)
	}
	// A paths of Jaeger that is no API of ours without traces.
	if w := ask(none, "GET", "/api/services", ""); w.Code != 404 || none.Tempo() != nil {
		t.Errorf("Jaeger without traces: %d", w.Code)
	}
}

// TestTraceSearch reads what the page's form asks.
func TestTraceSearch(t *testing.T) {
	asked := &fakeAsked{}
	a := newAPI(t, withTraces(fakeTraces{asked: asked}))
	for target, want := range map[string]string{
		"": "[] slowest 200 0s 0s",
		"?service=sglang&name=Req+*&min=5&max=1m&limit=7&order=newest":      "[resource.service.name name] newest 7 5s 1m0s",
		"?tags=" + url.QueryEscape(`rid=r1 span.tokens>5`):                  "[.rid span.tokens] slowest 200 0s 0s",
		"?tags=" + url.QueryEscape(`{span.rid="r1"} && {status=error}`):     "[span.rid status] slowest 200 0s 0s",
		"?kind=server&status=ok&tags=" + url.QueryEscape(`{span.rid="r1"}`): "[span.rid status kind] slowest 200 0s 0s",
	} {
		if w := ask(a, "GET", ours+"/traces"+target, ""); w.Code != 200 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
			continue
		}
		q := asked.query
		order := map[tracestore.Order]string{tracestore.Newest: "newest", tracestore.Slowest: "slowest"}[q.Order]
		if got := fmt.Sprintf("%v %s %d %s %s", tracestore.Fields(q.Where), order, q.Limit, q.MinDuration, q.MaxDuration); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
		if q.To != now.UnixNano() || q.From != now.Add(-defaultRange).UnixNano() {
			t.Errorf("%s: from %d to %d", target, q.From, q.To)
		}
	}
}

// Answers as Jaeger's clients read them; field by field as in its documentation of the query API's JSON.
type jaegerClient[T any] struct {
	Data   T   `json:"data"`
	Total  int `json:"total"`
	Errors []struct {
		Code    int    `json:"code"`
		Msg     string `json:"msg"`
		TraceID string `json:"traceID"`
	} `json:"errors"`
}

type jaegerClientTag struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"`
}

type jaegerClientTrace struct {
	TraceID string `json:"traceID"`
	Spans   []struct {
		TraceID       string                                      `json:"traceID"`
		SpanID        string                                      `json:"spanID"`
		OperationName string                                      `json:"operationName"`
		Flags         int                                         `json:"flags"`
		StartTime     int64                                       `json:"startTime"`
		Duration      int64                                       `json:"duration"`
		ProcessID     string                                      `json:"processID"`
		References    []struct{ RefType, TraceID, SpanID string } `json:"references"`
		Tags          []jaegerClientTag                           `json:"tags"`
		Logs          []struct {
			Timestamp int64             `json:"timestamp"`
			Fields    []jaegerClientTag `json:"fields"`
		} `json:"logs"`
		Warnings []string `json:"warnings"`
	} `json:"spans"`
	Processes map[string]struct {
		ServiceName string            `json:"serviceName"`
		Tags        []jaegerClientTag `json:"tags"`
	} `json:"processes"`
	Warnings []string `json:"warnings"`
}

// TestJaegerClients asks as Grafana's data source and Jaeger's own pages do.
func TestJaegerClients(t *testing.T) {
	asked := &fakeAsked{}
	a := newAPI(t, withTraces(fakeTraces{asked: asked, partial: "cut"}))
	hour := time.Hour.Nanoseconds()
	// Grafana: health is the list of services; it decodes whatever the status is.
	services := decode[jaegerClient[[]string]](t, ask(a, "GET", "/api/services", ""))
	if !slices.Equal(services.Data, []string{"dynamo-frontend", "sglang"}) || services.Total != 2 || len(services.Errors) > 0 {
		t.Errorf("services %+v", services)
	}
	if names := decode[jaegerClient[[]string]](t, ask(a, "GET", "/api/services/sglang/operations", "")); !slices.Equal(names.Data, []string{"Req *", "decode_loop"}) {
		t.Errorf("operations %+v", names)
	}
	if names := decode[jaegerClient[[]string]](t, ask(a, "GET", "/api/services/a%2Fb/operations", "")); names.Data == nil || len(names.Data) > 0 {
		t.Errorf("operations of a service that is not there: %+v", names)
	}
	for _, c := range []struct {
		params string
		from   int64 // before to
		fields string
		limit  int
	}{
		{"service=sglang&operation=all&limit=20&start=1767362400000000&end=1767366000000000", hour, "[resource.service.name]", 20},
		{"service=sglang&operation=Req+*&minDuration=1.2s&maxDuration=100s&tags=" + url.QueryEscape(`{"rid":"r1","error":"true"}`), 48 * hour,
			"[resource.service.name name status span.error resource.error event.error span.rid resource.rid event.rid duration]", 100},
		{"service=sglang&lookback=2d&tag=rid%3Ar1", 48 * hour, "[resource.service.name span.rid resource.rid event.rid]", 100},
		{"service=sglang&lookback=custom&start=1767362400000&end=1767366000000", hour, "[resource.service.name]", 100}, // milliseconds
	} {
		traces := decode[jaegerClient[[]jaegerClientTrace]](t, ask(a, "GET", "/api/traces?"+c.params, ""))
		if len(traces.Data) != 1 || len(traces.Data[0].Spans) != 6 {
			t.Errorf("%s: %+v", c.params, traces)
		}
		q := asked.query
		if got := fmt.Sprint(tracestore.Fields(q.Where)); got != c.fields || q.Limit != c.limit || q.To-q.From != c.from || q.To != madeTraceAt {
			t.Errorf("%s: fields %s, limit %d, from %d to %d", c.params, got, q.Limit, q.From, q.To)
		}
	}
	one := decode[jaegerClient[[]jaegerClientTrace]](t, ask(a, "GET", "/api/traces/"+strings.ToUpper(madeTraceID)+"?start=1767362400000&end=1767366000000", ""))
	if asked.to != madeTraceAt || asked.from != madeTraceAt-hour {
		t.Errorf("a range in milliseconds: %d to %d", asked.from, asked.to)
	}
	tr := one.Data[0]
	req := tr.Spans[1]
	if tr.TraceID != madeTraceID || tr.Processes[req.ProcessID].ServiceName != "sglang" || req.StartTime != madeTraceAt/1000+10_000 || req.Duration != 980_000 ||
		req.References[0] != (struct{ RefType, TraceID, SpanID string }{"CHILD_OF", madeTraceID, "0000000000000001"}) || req.References[1].RefType != "FOLLOWS_FROM" ||
		req.Logs[0].Timestamp != madeTraceAt/1000+15_000 || len(req.Warnings) != 1 || len(tr.Warnings) != 1 {
		t.Errorf("%+v", tr)
	}
	tags := map[string]jaegerClientTag{}
	for _, tag := range req.Tags {
		tags[tag.Key] = tag
	}
	for key, want := range map[string]jaegerClientTag{"rid": {"rid", "string", "r1"}, "tokens": {"tokens", "int64", 128.0}, "big": {"big", "int64", "9223372036854775807"},
		"ttft": {"ttft", "float64", 0.25}, "bad": {"bad", "string", "NaN"}, "stream": {"stream", "bool", true}, "error": {"error", "bool", true},
		"otel.status_code": {"otel.status_code", "string", "ERROR"}, "span.kind": {"span.kind", "string", "internal"}} {
		if tags[key] != want {
			t.Errorf("tag %s is %+v, want %+v", key, tags[key], want)
		}
	}
	// Grafana takes any error of dependencies for a failure: what was cut is no error.
	deps := decode[jaegerClient[[]struct {
		Parent, Child string
		CallCount     int
	}]](t, ask(a, "GET", "/api/dependencies?endTs=1767366000000&lookback=3600000", ""))
	if len(deps.Errors) > 0 || len(deps.Data) != 2 || deps.Data[0].CallCount != 3 || asked.to-asked.from != hour || asked.to != madeTraceAt {
		t.Errorf("%+v, %d to %d", deps, asked.from, asked.to)
	}
	for target, want := range map[string]int{
		"/api/traces": 400, "/api/traces?service=x&limit=0": 400, "/api/traces?service=x&minDuration=soon": 400, "/api/traces?service=x&start=2&end=1": 400,
		"/api/traces?service=x&tags=%7B": 400, "/api/traces?service=x&tag=novalue": 400, "/api/traces?service=x&start=x": 400, "/api/traces?service=x&minDuration=2s&maxDuration=1s": 400,
		"/api/traces/" + strings.Repeat("e", 32): 404, "/api/traces/nonsense": 400, "/api/operations": 400, "/api/dependencies?lookback=-1": 400,
	} {
		w := ask(a, "GET", target, "")
		if e := decode[jaegerClient[any]](t, w); w.Code != want || len(e.Errors) != 1 || e.Errors[0].Code != want || e.Errors[0].Msg == "" || e.Data != nil {
			t.Errorf("%s: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
	if w := ask(a, "GET", "/api/traces?traceID="+madeTraceID+"&traceID="+strings.Repeat("e", 32), ""); w.Code != 200 {
		t.Errorf("two by id: %d", w.Code)
	} else if two := decode[jaegerClient[[]jaegerClientTrace]](t, w); len(two.Data) != 1 || len(two.Errors) != 1 || two.Errors[0].TraceID != strings.Repeat("e", 32) {
		t.Errorf("two by id, one not there: %+v", two)
	}
}

func FuzzJaegerQuery(f *testing.F) {
	for _, s := range []string{"service=a&tags={\"b\":1}&start=1&end=2", "service=a&tag=b:c&minDuration=1s&lookback=2d&limit=3", "traceID=1&traceID=2", "service=a&start=99999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		values, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		q, ids, err := jaegerQuery(values, now)
		if err == nil && len(ids) == 0 && (q.Where == nil || q.Limit < 1 || q.Limit > tracestore.MaxTraces || q.From > q.To) {
			t.Fatalf("%q became %+v", s, q)
		}
	})
}

// TestTempoClients asks as Grafana's data source does.
func TestTempoClients(t *testing.T) {
	asked := &fakeAsked{}
	a := newAPI(t, withTraces(fakeTraces{asked: asked}))
	tempo := a.Tempo()
	if w := ask(tempo, "GET", "/api/echo", ""); w.Code != 200 || w.Body.String() != "echo" {
		t.Errorf("echo: %d %q", w.Code, w.Body)
	}
	build := decode[map[string]string](t, ask(tempo, "GET", "/api/status/buildinfo", ""))
	if build["version"] != tempoVersion {
		t.Errorf("build %v", build)
	}
	// A trace: version 2 first, in protobuf, and version 1 when that is not found.
	w := ask(tempo, "GET", "/api/v2/traces/"+madeTraceID+"?start=1767362400&end=1767366000", "", "Accept: application/protobuf")
	num, kind, n := protowire.ConsumeTag(w.Body.Bytes())
	body, m := protowire.ConsumeBytes(w.Body.Bytes()[max(n, 0):])
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/protobuf" || num != 1 || kind != protowire.BytesType || m < 0 {
		t.Fatalf("version 2: %d %v, field %d", w.Code, w.Header(), num)
	}
	if asked.from != madeTraceAt-3600e9 || asked.to != madeTraceAt+1e9-1 {
		t.Errorf("asked from %d to %d", asked.from, asked.to)
	}
	w = ask(tempo, "GET", "/api/traces/"+madeTraceID, "", "Accept: application/protobuf")
	if w.Body.String() != string(body) {
		t.Error("the two versions hold different traces")
	}
	var pb ptrace.ProtoUnmarshaler
	traces, err := pb.UnmarshalTraces(body)
	if err != nil || traces.SpanCount() != 6 || traces.ResourceSpans().Len() != 2 {
		t.Fatalf("%d spans, %v", traces.SpanCount(), err)
	}
	var answer struct {
		Trace struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes []json.RawMessage }
				ScopeSpans []struct {
					Spans []struct{ TraceID, SpanID, ParentSpanID, Name, Kind, StartTimeUnixNano, EndTimeUnixNano string }
				}
			}
		}
	}
	if err := json.Unmarshal(ask(tempo, "GET", "/api/v2/traces/"+madeTraceID, "").Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	id, _ := base64.StdEncoding.DecodeString(answer.Trace.ResourceSpans[0].ScopeSpans[0].Spans[0].TraceID)
	if fmt.Sprintf("%x", id) != madeTraceID || answer.Trace.ResourceSpans[1].ScopeSpans[0].Spans[0].Kind != "SPAN_KIND_INTERNAL" {
		t.Errorf("%+v", answer)
	}
	for _, path := range []string{"/api/v2/traces/", "/api/traces/"} {
		if w := ask(tempo, "GET", path+strings.Repeat("e", 32), ""); w.Code != 404 || !strings.Contains(w.Body.String(), "no trace has this id") {
			t.Errorf("not there: %d %s", w.Code, w.Body)
		}
	}
	// Searches of the form and of the editor, with what is made of them.
	for q, want := range map[string]string{
		`{}`: "[]",
		`{resource.service.name="sglang" && name="Req *"}`:                            "[resource.service.name name]",
		`{resource.service.name=~"sglang|dynamo-frontend" && duration>100ms}`:         "[resource.service.name duration]",
		`{name=~"a\\.b|c" && duration>1s && duration<2s && status=error}`:             "[name duration status]",
		`{traceDuration>1s && span.http.status_code>=400 && kind=server}`:             "[traceDuration span.http.status_code kind]",
		`{.rid="r1" && span.stream=true && span.tokens>128 && span.ttft<0.5}`:         "[.rid span.stream span.tokens span.ttft]",
		`{trace:rootName="x" && trace:rootService="y" && span:name="z"}`:              "[rootName rootServiceName name]",
		`{nestedSetParent<0 && resource.service.name!=nil} | select(status,span.rid)`: "[span:parentID resource.service.name]",
		`{event:name="retract" && link:traceID!="" && instrumentation:name="m"}`:      "[event:name link:traceID instrumentation:name]",
		`{(status=error || status=unset) && span."a key"="v"}`:                        `[status span."a key"]`,
		`{ span.a = "b" } || { span.c = "d" } with (most_recent=true)`:                "[span.a span.c]",
	} {
		target := "/api/search?" + url.Values{"q": {q}, "limit": {"30"}, "spss": {"5"}, "start": {"1767362400"}, "end": {"1767366000"}}.Encode()
		w := ask(tempo, "GET", target, "", "Accept: application/json")
		if w.Code != 200 {
			t.Errorf("%s: %d %s", q, w.Code, w.Body)
			continue
		}
		got := asked.query
		if fmt.Sprint(tracestore.Fields(got.Where)) != want || got.Limit != 30 || got.SpansPerTrace != 5 || got.From != madeTraceAt-3600e9 {
			t.Errorf("%s: %v, limit %d, %d spans, from %d; want %s", q, tracestore.Fields(got.Where), got.Limit, got.SpansPerTrace, got.From, want)
		}
		type attr struct {
			Key   string
			Value struct {
				StringValue, IntValue string
				DoubleValue           float64
				BoolValue             bool
			}
		}
		type set struct {
			Spans []struct {
				SpanID, Name, StartTimeUnixNano, DurationNanos string
				Attributes                                     []attr
			}
			Matched    uint32
			Attributes []attr
		}
		found := decode[struct {
			Traces []struct {
				TraceID, RootServiceName, RootTraceName, StartTimeUnixNano string
				DurationMs                                                 uint32
				SpanSet                                                    *set
				SpanSets                                                   []set
				ServiceStats                                               map[string]struct{ SpanCount, ErrorCount uint32 }
			}
		}](t, w)
		if len(found.Traces) != 2 || found.Traces[0].DurationMs != 1000 || found.Traces[0].SpanSets[0].Matched != 1 || found.Traces[1].DurationMs != 1<<32-1 ||
			found.Traces[0].ServiceStats["sglang"].ErrorCount != 1 {
			t.Errorf("%s: %+v", q, found)
		}
	}
	// The older form.
	if w := ask(tempo, "GET", "/api/search?tags="+url.QueryEscape(`service.name="a b" http.status_code=200 error=true name=x`)+"&minDuration=100ms&maxDuration=1.5s", ""); w.Code != 200 {
		t.Errorf("tags: %d %s", w.Code, w.Body)
	} else if q := asked.query; fmt.Sprint(tracestore.Fields(q.Where)) != "[.service.name .http.status_code status name]" || q.MinDuration != 100*time.Millisecond || q.MaxDuration != 1500*time.Millisecond {
		t.Errorf("tags became %v, %s to %s", tracestore.Fields(q.Where), q.MinDuration, q.MaxDuration)
	}
	// Tags: all scopes for the editor, one for a column of the form; a filter that is half written filters nothing.
	type scopes struct {
		Scopes []struct {
			Name string
			Tags []string
		}
	}
	all := decode[scopes](t, ask(tempo, "GET", "/api/v2/search/tags?limit=5000&start=1767362400&end=1767366000", ""))
	var names []string
	for _, s := range all.Scopes {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"event", "resource", "span", "intrinsic"}) || asked.from != madeTraceAt-3600e9 {
		t.Errorf("scopes %v from %d", names, asked.from)
	}
	if one := decode[scopes](t, ask(tempo, "GET", "/api/v2/search/tags?scope=span&limit=1&q="+url.QueryEscape(`{span.rid="`), "")); len(one.Scopes) != 1 || len(one.Scopes[0].Tags) != 1 || asked.where != nil {
		t.Errorf("one scope: %+v", one)
	}
	for tag, want := range map[string]tracestore.Field{
		"resource.service.name":   {Scope: tracestore.Resource, Key: "service.name"},
		"service.name":            {Scope: tracestore.AnyScope, Key: "service.name"},
		".rid":                    {Scope: tracestore.AnyScope, Key: "rid"},
		"span.rid":                {Scope: tracestore.SpanScope, Key: "rid"},
		"name":                    {Scope: tracestore.Intrinsic, Key: tracestore.SpanName},
		"event%3Aname":            {Scope: tracestore.Intrinsic, Key: tracestore.EventName},
		"event%253Aname":          {Scope: tracestore.Intrinsic, Key: tracestore.EventName}, // escaped twice
		"span.a%252Fb":            {Scope: tracestore.SpanScope, Key: "a/b"},
		"span.with%2520a%2520gap": {Scope: tracestore.AnyScope, Key: "span.with a gap"},
	} {
		w := ask(tempo, "GET", "/api/v2/search/tag/"+tag+"/values?limit=10&q="+url.QueryEscape(`{status=error}`), "")
		values := decode[struct {
			TagValues []struct{ Type, Value string }
		}](t, w)
		if w.Code != 200 || asked.field != want || asked.where == nil || asked.limit != 10 || len(values.TagValues) != 2 || values.TagValues[0].Type != "string" {
			t.Errorf("values of %s: %d, field %+v, %+v", tag, w.Code, asked.field, values)
		}
	}
	for target, want := range map[string]struct {
		status int
		says   string
	}{
		"/api/search?q=" + url.QueryEscape(`{span.rid=}`):            {400, "TraceQL at 11: here comes a value"},
		"/api/search?q=" + url.QueryEscape(`{} | rate()`):            {400, "rate"},
		"/api/search?q=" + url.QueryEscape(`{} >> {}`):               {400, ">>"},
		"/api/search?start=10&end=5":                                 {400, "start"},
		"/api/search?limit=x":                                        {400, "limit"},
		"/api/search?tags=novalue":                                   {400, "key=value"},
		"/api/search?minDuration=2s&maxDuration=1s":                  {400, "maxDuration"},
		"/api/v2/search/tags?scope=planet":                           {400, "scope"},
		"/api/traces/nonsense":                                       {400, "not a trace id"},
		"/api/metrics/query_range?q=" + url.QueryEscape(`{}|rate()`): {501, "PromQL"},
		"/api/nothing": {404, "nothing"},
	} {
		if w := ask(tempo, "GET", target, ""); w.Code != want.status || !strings.Contains(w.Body.String(), want.says) || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %v %q, want %d %q", target, w.Code, w.Header(), w.Body, want.status, want.says)
		}
	}
}

// The paths of Jaeger and of Tempo are behind the same checks as all others.
func TestTraceDoors(t *testing.T) {
	tokens, err := ParseTokens([]byte("read read-token-0123456789\nwrite write-token-0123456789\n"), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	home := newAPI(t, withTraces(fakeTraces{}))
	guarded := newAPI(t, withTraces(fakeTraces{}), func(o *Options) { o.Access = Access{Loopback: true, Tokens: tokens} })
	starting := newAPI(t, withTraces(fakeTraces{}), func(o *Options) { o.Ready = func() Readiness { return Starting } })
	for name, door := range map[string]struct {
		routes []Route
		of     func(*API) http.Handler
	}{
		"jaeger": {home.traceRoutes(), func(a *API) http.Handler { return a }},
		"tempo":  {home.TempoRoutes(), func(a *API) http.Handler { return a.Tempo() }},
	} {
		for _, r := range door.routes {
			path := strings.NewReplacer("{id}", madeTraceID, "{service}", "sglang", "{tag}", "name").Replace(r.Path)
			for _, c := range []struct {
				a      *API
				header string
				status int
				says   string
			}{
				{home, "Host: evil.example", 403, "evil.example"},
				{home, "Host: 10.1.2.3:3200", 403, "10.1.2.3"},
				{home, "Origin: https://evil.example", 403, "another origin"},
				{home, "Origin: null", 403, "another origin"},
				{guarded, "X: y", 401, "token"},
				{guarded, "Authorization: Bearer guessed-token-0123456", 401, "token"},
			} {
				w := ask(door.of(c.a), r.Method, path, "", c.header)
				if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
					t.Errorf("%s %s with %s: %d %s, want %d", name, path, c.header, w.Code, w.Body, c.status)
				}
			}
			if w := ask(door.of(guarded), r.Method, path, "", "Authorization: Bearer read-token-0123456789"); w.Code == 401 || w.Code == 403 {
				t.Errorf("%s %s with a token: %d", name, path, w.Code)
			}
			if w := ask(door.of(home), "POST", path, ""); w.Code != 405 {
				t.Errorf("%s POST %s: %d", name, path, w.Code)
			}
			if w := ask(door.of(home), r.Method, path, "x"); w.Code != 413 {
				t.Errorf("%s %s with a body: %d", name, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/ready", "/api/search", "/api/traces/" + madeTraceID} {
		if w := ask(starting.Tempo(), "GET", path, ""); w.Code != 503 {
			t.Errorf("%s while starting: %d", path, w.Code)
		}
	}
	// Each on its own listener.
	var list []Listener
	for _, h := range []http.Handler{home, home.Tempo()} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Listener{l, h})
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- home.ServeAll(ctx, list, "") }()
	for i, want := range []string{`"processes"`, `"batches"`} {
		resp, err := http.Get("http://" + list[i].Addr().String() + "/api/traces/" + madeTraceID)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("listener %d: %d %.200s", i, resp.StatusCode, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTraceOfManySpans bounds what a detail shows and says how many more there are.
func TestTraceOfManySpans(t *testing.T) {
	made := madeTrace()
	for i := range 100_000 {
		s := made.Spans[2]
		s.Name = fmt.Sprintf("stage %d", i%5000) // nothing to fold below one parent
		s.ID[0], s.ID[1], s.ID[2], s.ID[3] = 1, byte(i>>16), byte(i>>8), byte(i)
		s.Start += int64(i)
		made.Spans = append(made.Spans, s)
	}
	d := NewTraceDetail(&made, -1)
	if len(d.Spans) != maxDetailSpans || d.More != 100_006-maxDetailSpans {
		t.Errorf("%d spans, %d more", len(d.Spans), d.More)
	}
	d = NewTraceDetail(&made, 0)
	if n := len(d.Spans) + d.More; n >= 100_000 {
		t.Errorf("folded to %d", n)
	}
}

// BenchmarkTraceAnswers makes the answers about a trace of 100,000 spans.
func BenchmarkTraceAnswers(b *testing.B) {
	made := madeTrace()
	for i := range 100_000 {
		s := made.Spans[3]
		s.ID[0], s.ID[1], s.ID[2], s.ID[3] = 1, byte(i>>16), byte(i>>8), byte(i)
		s.Start += int64(i) * 25e6
		s.End = s.Start + 25e6
		made.Spans = append(made.Spans, s)
	}
	for name, answer := range map[string]func() any{
		"detail": func() any { return NewTraceDetail(&made, 0) },
		"jaeger": func() any { return toJaeger(&made) },
		"tempo":  func() any { return tempoResources(made.Spans) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				raw, err := json.Marshal(answer())
				if err != nil {
					b.Fatal(err)
				}
				size = len(raw)
			}
			b.ReportMetric(float64(len(made.Spans)*b.N)/b.Elapsed().Seconds(), "spans/s")
			b.ReportMetric(float64(size), "B/answer")
		})
	}
}
