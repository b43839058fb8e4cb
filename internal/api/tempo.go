package api

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// The HTTP API of Tempo, as Grafana's data source asks it, on a port of its own: its path of a trace is
// Jaeger's too. Errors are a line of text.

// tempoVersion is the version of Tempo whose API this is; Grafana looks at it to know what it may ask.
const tempoVersion = "2.8.0"

// Tempo serves Tempo's API, behind the same checks as the rest; nil when there are no traces. It is for a
// listener of its own (port 3200).
func (a *API) Tempo() http.Handler {
	if a.tempo == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(a.tempo, w, r) })
}

// TempoRoutes is the whole table of [API.Tempo].
func (a *API) TempoRoutes() []Route {
	if a.tempo == nil {
		return nil
	}
	return a.tempo.table
}

func faceOfTempo(string) face { return faceTempo }

func (a *API) tempoRoutes() []Route {
	table := []Route{
		{"GET", "/api/echo", ScopeRead, noBody, textAnswer("echo")},
		{"GET", "/ready", ScopeRead, noBody, http.HandlerFunc(a.tempoReady)},
		{"GET", "/status/version", ScopeRead, noBody, textAnswer(tempoVersion)},
		{"GET", "/api/status/buildinfo", ScopeRead, noBody, a.tempoJSON(a.tempoBuild)},
		{"GET", "/api/traces/{id}", ScopeRead, noBody, http.HandlerFunc(a.tempoTrace)},
		{"GET", "/api/v2/traces/{id}", ScopeRead, noBody, http.HandlerFunc(a.tempoTrace)},
		{"GET", "/api/search", ScopeRead, noBody, a.tempoJSON(a.tempoSearch)},
		{"GET", "/api/search/tags", ScopeRead, noBody, a.tempoJSON(a.tempoTags)},
		{"GET", "/api/v2/search/tags", ScopeRead, noBody, a.tempoJSON(a.tempoTagsV2)},
		{"GET", "/api/search/tag/{tag}/values", ScopeRead, noBody, a.tempoJSON(a.tempoValues)},
		{"GET", "/api/v2/search/tag/{tag}/values", ScopeRead, noBody, a.tempoJSON(a.tempoValuesV2)},
	}
	for _, path := range []string{"/api/metrics/query", "/api/metrics/query_range", "/api/metrics/summary"} {
		table = append(table, Route{"GET", path, ScopeRead, noBody, http.HandlerFunc(tempoMetrics)})
	}
	return table
}

func textAnswer(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, text)
	})
}

func (a *API) tempoReady(w http.ResponseWriter, r *http.Request) {
	if e := a.notReady(); e != nil {
		refuse(w, faceTempo, e)
		return
	}
	textAnswer("ready\n").ServeHTTP(w, r)
}

func tempoMetrics(w http.ResponseWriter, r *http.Request) {
	refuse(w, faceTempo, &Error{Code: "not_implemented", Message: "metrics out of TraceQL are not answered here", Where: r.URL.Path,
		Hint: "the metrics themselves are at /api/v1 of the main port, in PromQL"})
}

// tempoJSON makes a handler of a function that returns an answer.
func (a *API) tempoJSON(answer func(r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, faceTempo, e)
			return
		}
		v, err := answer(r)
		if err != nil {
			refuse(w, faceTempo, traceFailure(r, err))
			return
		}
		if err := a.writer.sendRaw(w, r, v); err != nil {
			refuse(w, faceTempo, failure(r, err))
		}
	})
}

func (a *API) tempoBuild(*http.Request) (any, error) {
	return map[string]string{"version": tempoVersion, "revision": "rollscope-" + a.Version, "branch": "", "buildDate": "", "buildUser": "", "goVersion": runtime.Version()}, nil
}

// tempoBounds reads start and end, seconds since 1970; without them, the whole store, or the last back.
func (a *API) tempoBounds(r *http.Request, back time.Duration) (from, to int64, err error) {
	var bounds [2]int64
	for i, name := range []string{"start", "end"} {
		v := r.URL.Query().Get(name)
		if v == "" || v == "0" {
			continue
		}
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n >= 0 && n < math.MaxInt64/2e9) {
			return 0, 0, badParameter(name, v, "is no time", "seconds since 1970")
		}
		bounds[i] = int64(n) * 1e9
	}
	from, to = bounds[0], bounds[1]
	if to != 0 {
		to += 1e9 - 1 // the second that end names is in the range
	}
	if from == 0 && back > 0 {
		end := to
		if end == 0 {
			end = a.clock(r.Context()).UnixNano()
		}
		from = end - int64(back)
	}
	if to != 0 && from > to {
		return 0, 0, &Error{Code: "bad_parameter", Message: "http parameter start must be before end", Where: "start"}
	}
	return from, to, nil
}

// How far back searches look that say nothing.
const (
	tempoLookback = 24 * time.Hour
	tempoTagLimit = 1000
)

func (a *API) tempoTrace(w http.ResponseWriter, r *http.Request) {
	if e := a.notReady(); e != nil {
		refuse(w, faceTempo, e)
		return
	}
	from, to, err := a.tempoBounds(r, 0)
	if err != nil {
		refuse(w, faceTempo, traceFailure(r, err))
		return
	}
	t, err := a.Traces.Trace(r.Context(), r.PathValue("id"), from, to)
	if err != nil {
		refuse(w, faceTempo, traceFailure(r, err))
		return
	}
	v2 := strings.HasPrefix(r.URL.Path, "/api/v2/")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Add("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "application/protobuf") {
		body := span.AppendTraces(nil, t.Spans)
		if v2 {
			body = wrapTempo(body, t.Partial)
		}
		w.Header().Set("Content-Type", "application/protobuf")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	resources := tempoResources(t.Spans)
	var v any = map[string]any{"batches": resources}
	if v2 {
		answer := map[string]any{"trace": map[string]any{"resourceSpans": resources}, "metrics": map[string]any{}}
		if t.Partial != "" {
			answer["status"], answer["message"] = "PARTIAL", t.Partial
		}
		v = answer
	}
	if err := a.writer.sendRaw(w, r, v); err != nil {
		refuse(w, faceTempo, failure(r, err))
	}
}

// wrapTempo puts a trace into a TraceByIDResponse: trace = 1, status = 3 (1 is partial), message = 4.
func wrapTempo(trace []byte, partial string) []byte {
	out := make([]byte, 0, len(trace)+len(partial)+32)
	field := func(tag byte, data []byte) {
		out = append(out, tag)
		for n := uint64(len(data)); ; n >>= 7 {
			if n < 0x80 {
				out = append(out, byte(n))
				break
			}
			out = append(out, byte(n)|0x80)
		}
		out = append(out, data...)
	}
	field(1<<3|2, trace)
	if partial != "" {
		out = append(out, 3<<3, 1)
		field(4<<3|2, []byte(partial))
	}
	return out
}

// The JSON of a trace is that of protobuf: enumerations by name, 64-bit numbers as text, ids in base64.

type tempoResourceSpans struct {
	Resource   tempoAttrs        `json:"resource"`
	ScopeSpans []tempoScopeSpans `json:"scopeSpans"`
}

type tempoAttrs struct {
	Attributes []otlpKeyValue `json:"attributes"`
}

type tempoScopeSpans struct {
	Scope otlpScope   `json:"scope"`
	Spans []tempoSpan `json:"spans"`
}

type otlpScope struct {
	Name       string         `json:"name,omitempty"`
	Version    string         `json:"version,omitempty"`
	Attributes []otlpKeyValue `json:"attributes,omitempty"`
}

type tempoSpan struct {
	TraceID       string         `json:"traceId"`
	SpanID        string         `json:"spanId"`
	ParentID      string         `json:"parentSpanId,omitempty"`
	TraceState    string         `json:"traceState,omitempty"`
	Flags         uint32         `json:"flags,omitempty"`
	Name          string         `json:"name"`
	Kind          string         `json:"kind"`
	Start         string         `json:"startTimeUnixNano"`
	End           string         `json:"endTimeUnixNano"`
	Attributes    []otlpKeyValue `json:"attributes,omitempty"`
	DroppedAttrs  uint32         `json:"droppedAttributesCount,omitempty"`
	Events        []tempoEvent   `json:"events,omitempty"`
	DroppedEvents uint32         `json:"droppedEventsCount,omitempty"`
	Links         []tempoLink    `json:"links,omitempty"`
	DroppedLinks  uint32         `json:"droppedLinksCount,omitempty"`
	Status        tempoStatus    `json:"status"`
}

type tempoStatus struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

type tempoEvent struct {
	Time       string         `json:"timeUnixNano"`
	Name       string         `json:"name"`
	Attributes []otlpKeyValue `json:"attributes,omitempty"`
}

type tempoLink struct {
	TraceID    string         `json:"traceId"`
	SpanID     string         `json:"spanId"`
	TraceState string         `json:"traceState,omitempty"`
	Attributes []otlpKeyValue `json:"attributes,omitempty"`
}

type otlpKeyValue struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

func tempoResources(spans []span.Span) []tempoResourceSpans {
	out := []tempoResourceSpans{}
	places := map[string]int{}
	for i := range spans {
		s := &spans[i]
		key := processKey(s)
		at, ok := places[key]
		if !ok {
			at = len(out)
			places[key] = at
			resource := otlpAttrs(s.Resource)
			if s.Service != "" && !slices.ContainsFunc(s.Resource, func(a span.Attr) bool { return a.Key == "service.name" }) {
				resource = append(resource, otlpKeyValue{"service.name", map[string]any{"stringValue": s.Service}})
			}
			out = append(out, tempoResourceSpans{Resource: tempoAttrs{resource}})
		}
		scopes := out[at].ScopeSpans
		j := slices.IndexFunc(scopes, func(x tempoScopeSpans) bool { return x.Scope.Name == s.ScopeName && x.Scope.Version == s.ScopeVersion })
		if j < 0 {
			j = len(scopes)
			scopes = append(scopes, tempoScopeSpans{Scope: otlpScope{s.ScopeName, s.ScopeVersion, otlpAttrs(s.ScopeAttrs)}})
		}
		scopes[j].Spans = append(scopes[j].Spans, toTempo(s))
		out[at].ScopeSpans = scopes
	}
	return out
}

func toTempo(s *span.Span) tempoSpan {
	b64 := base64.StdEncoding.EncodeToString
	out := tempoSpan{
		TraceID: b64(s.Trace[:]), SpanID: b64(s.ID[:]), TraceState: s.TraceState, Flags: s.Flags, Name: s.Name,
		Kind: tempoKind(s.Kind), Start: strconv.FormatInt(s.Start, 10), End: strconv.FormatInt(s.End, 10), Attributes: otlpAttrs(s.Attrs),
		DroppedAttrs: s.DroppedAttrs, DroppedEvents: s.DroppedEvents, DroppedLinks: s.DroppedLinks,
	}
	if !s.Parent.IsZero() {
		out.ParentID = b64(s.Parent[:])
	}
	switch s.Status {
	case span.OK:
		out.Status.Code = "STATUS_CODE_OK"
	case span.Failed:
		out.Status.Code = "STATUS_CODE_ERROR"
	}
	out.Status.Message = s.StatusMessage
	for i := range s.Events {
		e := &s.Events[i]
		out.Events = append(out.Events, tempoEvent{strconv.FormatInt(e.Time, 10), e.Name, otlpAttrs(e.Attrs)})
	}
	for i := range s.Links {
		l := &s.Links[i]
		out.Links = append(out.Links, tempoLink{b64(l.Trace[:]), b64(l.ID[:]), l.TraceState, otlpAttrs(l.Attrs)})
	}
	return out
}

func tempoKind(k span.Kind) string {
	names := [...]string{"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER", "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER", "SPAN_KIND_CONSUMER"}
	if int(k) < len(names) {
		return names[k]
	}
	return names[0]
}

func otlpAttrs(list []span.Attr) []otlpKeyValue {
	out := make([]otlpKeyValue, 0, len(list))
	for _, kv := range list {
		out = append(out, otlpKeyValue{kv.Key, otlpValue(kv.Value)})
	}
	return out
}

func otlpValue(v span.Value) map[string]any {
	switch v.Type {
	case span.Bool:
		return map[string]any{"boolValue": v.Str == "true"}
	case span.Int:
		return map[string]any{"intValue": v.Str}
	case span.Float:
		if f, err := strconv.ParseFloat(v.Str, 64); err == nil && finite(f) {
			return map[string]any{"doubleValue": f}
		}
		return map[string]any{"doubleValue": v.Str} // "NaN", "Infinity": as protobuf writes them
	case span.JSON:
		var list []any
		if json.Unmarshal([]byte(v.Str), &list) == nil {
			values := make([]map[string]any, 0, len(list))
			for _, x := range list {
				values = append(values, otlpPlain(x))
			}
			return map[string]any{"arrayValue": map[string]any{"values": values}}
		}
	}
	return map[string]any{"stringValue": v.Str}
}

// otlpPlain is a value of an array; what nests deeper stays JSON text.
func otlpPlain(x any) map[string]any {
	switch x := x.(type) {
	case string:
		return map[string]any{"stringValue": x}
	case bool:
		return map[string]any{"boolValue": x}
	case float64:
		if x == math.Trunc(x) && math.Abs(x) <= maxSafeInteger {
			return map[string]any{"intValue": strconv.FormatInt(int64(x), 10)}
		}
		return map[string]any{"doubleValue": x}
	}
	raw, err := json.Marshal(x)
	if err != nil {
		return map[string]any{}
	}
	return map[string]any{"stringValue": string(raw)}
}

// Searches.

type tempoSearchAnswer struct {
	Traces  []tempoFound       `json:"traces"`
	Metrics tempoSearchMetrics `json:"metrics"`
	Status  string             `json:"status,omitempty"` // "PARTIAL" when there may be more
	Message string             `json:"message,omitempty"`
}

type tempoSearchMetrics struct {
	Inspected int `json:"inspectedTraces,omitempty"`
	Completed int `json:"completedJobs"`
	Total     int `json:"totalJobs"`
}

type tempoFound struct {
	TraceID     string                       `json:"traceID"`
	RootService string                       `json:"rootServiceName,omitempty"`
	RootName    string                       `json:"rootTraceName,omitempty"`
	Start       string                       `json:"startTimeUnixNano"`
	DurationMs  int64                        `json:"durationMs,omitempty"` // 32 bits without a sign for clients
	SpanSet     *tempoSpanSet                `json:"spanSet,omitempty"`    // for older clients: the first of the sets
	SpanSets    []tempoSpanSet               `json:"spanSets,omitempty"`
	Services    map[string]tempoServiceStats `json:"serviceStats,omitempty"`
}

type tempoServiceStats struct {
	Spans  int `json:"spanCount"`
	Errors int `json:"errorCount,omitempty"`
}

type tempoSpanSet struct {
	Spans   []tempoMatched `json:"spans"`
	Matched int            `json:"matched"`
}

type tempoMatched struct {
	SpanID     string         `json:"spanID"`
	Name       string         `json:"name,omitempty"`
	Start      string         `json:"startTimeUnixNano"`
	Duration   string         `json:"durationNanos"`
	Attributes []otlpKeyValue `json:"attributes,omitempty"`
}

// noRoot is what Tempo says of a trace whose root is not there.
const noRoot = "<root span not yet received>"

func (a *API) tempoSearch(r *http.Request) (any, error) {
	values := r.URL.Query()
	q, err := tempoQuery(values)
	if err != nil {
		return nil, err
	}
	if q.From, q.To, err = a.tempoBounds(r, tempoLookback); err != nil {
		return nil, err
	}
	res, err := a.Traces.Search(r.Context(), q)
	if err != nil {
		return nil, err
	}
	answer := tempoSearchAnswer{Traces: []tempoFound{}, Metrics: tempoSearchMetrics{res.Inspected, 1, 1}}
	if res.Partial != "" {
		answer.Status, answer.Message = "PARTIAL", res.Partial
	}
	fields := tracestore.Fields(q.Where)
	for _, f := range q.Select {
		if !slices.Contains(fields, f) {
			fields = append(fields, f)
		}
	}
	for i := range res.Traces {
		answer.Traces = append(answer.Traces, toTempoFound(&res.Traces[i], fields))
	}
	return &answer, nil
}

// tempoQuery reads q=TraceQL, or the older tags=, minDuration=, maxDuration=.
func tempoQuery(values map[string][]string) (tracestore.Query, error) {
	get := func(name string) string {
		if v := values[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	var q tracestore.Query
	if text := strings.TrimSpace(get("q")); text != "" {
		var err error
		if q, err = tracestore.ParseTraceQL(text); err != nil {
			return q, err
		}
	} else {
		tags, err := parseLogfmt(get("tags"))
		if err != nil {
			return q, badParameter("tags", get("tags"), err.Error(), `key=value key="value with spaces"`)
		}
		var conds []*tracestore.Cond
		for _, t := range tags {
			conds = append(conds, tempoTag(t[0], t[1]))
		}
		set := tracestore.Spans(tracestore.All(conds...))
		if len(conds) > 1 { // each may hold for another span of the trace
			set = tracestore.EachOf(conds...)
		}
		q.Where = set
	}
	for name, into := range map[string]*time.Duration{"minDuration": &q.MinDuration, "maxDuration": &q.MaxDuration} {
		v := get(name)
		if v == "" {
			continue
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return q, badParameter(name, v, "is no duration", "1.5s, 100ms")
		}
		*into = d
	}
	if q.MaxDuration != 0 && q.MaxDuration < q.MinDuration {
		return q, &Error{Code: "bad_parameter", Message: "invalid maxDuration: must be greater than minDuration", Where: "maxDuration"}
	}
	for name, into := range map[string]*int{"limit": &q.Limit, "spss": &q.SpansPerTrace} {
		v := get(name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n == 0 && name == "limit" {
			return q, badParameter(name, v, "is no number of results", "a positive number")
		}
		*into = n
	}
	q.Limit = min(q.Limit, tracestore.MaxTraces)
	q.SpansPerTrace = min(q.SpansPerTrace, tracestore.MaxMatched)
	return q, nil
}

// tempoTag is the condition of a tag of the older search: a part of the value is enough, of any attribute.
func tempoTag(key, value string) *tracestore.Cond {
	f := tracestore.Field{Scope: tracestore.AnyScope, Key: key}
	switch key {
	case "name", "rootName", "rootServiceName":
		f = tracestore.Field{Scope: tracestore.Intrinsic, Key: key}
	case "root.name":
		f = tracestore.Field{Scope: tracestore.Intrinsic, Key: tracestore.RootName}
	case "root.service.name":
		f = tracestore.Field{Scope: tracestore.Intrinsic, Key: tracestore.RootService}
	case "status.code", "status":
		return tracestore.Is(tracestore.Field{Scope: tracestore.Intrinsic, Key: tracestore.SpanStatus}, value)
	case "error":
		if value == "true" {
			return tracestore.Is(tracestore.Field{Scope: tracestore.Intrinsic, Key: tracestore.SpanStatus}, "error")
		}
	}
	if key == "name" && strings.Contains(value, "*") {
		return tracestore.NameIs(value)
	}
	return tracestore.Has(f, value)
}

// parseLogfmt reads key=value pairs with spaces between; values may be quoted.
func parseLogfmt(s string) ([][2]string, error) {
	var out [][2]string
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if s == "" {
			return out, nil
		}
		key, rest, ok := strings.Cut(s, "=")
		if !ok || key == "" || strings.ContainsAny(key, " \"\t") {
			return nil, fmt.Errorf("has %q where key=value should be", cut(s, 40))
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			prefix, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("has a value of %s whose quotes do not close", key)
			}
			if value, err = strconv.Unquote(prefix); err != nil {
				return nil, fmt.Errorf("has a value of %s with an escape that there is not", key)
			}
			s = rest[len(prefix):]
		} else {
			n := strings.IndexAny(rest, " \t\r\n")
			if n < 0 {
				n = len(rest)
			}
			value, s = rest[:n], rest[n:]
		}
		if out = append(out, [2]string{key, value}); len(out) > 64 {
			return nil, fmt.Errorf("has more than 64 tags")
		}
	}
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func toTempoFound(f *tracestore.Found, fields []tracestore.Field) tempoFound {
	out := tempoFound{
		TraceID: f.ID.String(), RootService: f.RootService, RootName: f.Root, Start: strconv.FormatInt(f.Start, 10),
		DurationMs: min(max(0, f.End-f.Start)/1e6, math.MaxUint32), Services: map[string]tempoServiceStats{},
	}
	if f.Orphans {
		out.RootName = noRoot
		if out.RootService == "" {
			out.RootService = noRoot
		}
	}
	for name, c := range f.Services {
		out.Services[name] = tempoServiceStats{c.Spans, c.Errors}
	}
	set := tempoSpanSet{Spans: make([]tempoMatched, 0, len(f.Matched)), Matched: f.Count}
	for i := range f.Matched {
		s := &f.Matched[i]
		m := tempoMatched{SpanID: hex.EncodeToString(s.ID[:]), Name: s.Name, Start: strconv.FormatInt(s.Start, 10), Duration: strconv.FormatInt(max(0, s.End-s.Start), 10)}
		for _, field := range fields {
			if field.Scope == tracestore.Intrinsic && (field.Key == tracestore.SpanName || field.Key == tracestore.SpanDuration) {
				continue // stand in fields of their own
			}
			for _, v := range tracestore.Values(field, s) {
				m.Attributes = append(m.Attributes, otlpKeyValue{field.Key, map[string]any{"stringValue": v}})
			}
		}
		set.Spans = append(set.Spans, m)
	}
	out.SpanSet, out.SpanSets = &set, []tempoSpanSet{set}
	return out
}

// Tags.

// tempoIntrinsics are those that searches answer, as the form offers them.
var tempoIntrinsics = []string{"duration", "event:name", "instrumentation:name", "instrumentation:version", "kind", "link:spanID", "link:traceID", "name",
	"rootName", "rootServiceName", "span:id", "span:parentID", "status", "statusMessage", "trace:id", "traceDuration"}

type tempoScope struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

// tagScopes reads the names of attributes by scope.
func (a *API) tagScopes(r *http.Request) ([]tempoScope, error) {
	values := r.URL.Query()
	from, to, err := a.tempoBounds(r, tempoLookback)
	if err != nil {
		return nil, err
	}
	limit, err := tempoLimit(values.Get("limit"))
	if err != nil {
		return nil, err
	}
	scope := tracestore.Scope(values.Get("scope"))
	out := []tempoScope{}
	switch scope {
	case "none", "all":
		scope = tracestore.AnyScope
	case tracestore.Intrinsic:
		return []tempoScope{{string(scope), tempoIntrinsics}}, nil
	case tracestore.AnyScope, tracestore.SpanScope, tracestore.Resource, tracestore.EventScope, tracestore.LinkScope, tracestore.Instrument:
	default:
		return nil, badParameter("scope", string(scope), "is no scope", "span, resource, event, link, instrumentation, intrinsic")
	}
	names, err := a.Traces.TagNames(r.Context(), scope, lenient(values.Get("q")), from, to)
	if err != nil {
		return nil, err
	}
	for _, s := range []tracestore.Scope{tracestore.EventScope, tracestore.Instrument, tracestore.LinkScope, tracestore.Resource, tracestore.SpanScope} {
		if list := names[s]; len(list) > 0 {
			out = append(out, tempoScope{string(s), list[:min(len(list), limit)]})
		}
	}
	if scope == tracestore.AnyScope {
		out = append(out, tempoScope{string(tracestore.Intrinsic), tempoIntrinsics})
	}
	return out, nil
}

func tempoLimit(v string) (int, error) {
	if v == "" {
		return tempoTagLimit, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, badParameter("limit", v, "is no number of results", "a number from 0 (no limit)")
	}
	if n == 0 || n > tracestore.MaxValues {
		n = tracestore.MaxValues
	}
	return n, nil
}

// lenient reads a filter that a form is still writing: what cannot be read filters nothing.
func lenient(q string) *tracestore.Set {
	if q == "" {
		return nil
	}
	parsed, err := tracestore.ParseTraceQL(q)
	if err != nil {
		return nil
	}
	return parsed.Where
}

func (a *API) tempoTags(r *http.Request) (any, error) {
	scopes, err := a.tagScopes(r)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, s := range scopes {
		if s.Name == string(tracestore.Intrinsic) && r.URL.Query().Get("scope") == "" {
			continue // the older list is of attributes
		}
		names = append(names, s.Tags...)
	}
	slices.Sort(names)
	return map[string]any{"tagNames": slices.Compact(names), "metrics": map[string]any{}}, nil
}

func (a *API) tempoTagsV2(r *http.Request) (any, error) {
	scopes, err := a.tagScopes(r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"scopes": scopes, "metrics": map[string]any{}}, nil
}

// tagValues reads the values of a tag: .key, span.key, an intrinsic, or a key alone.
func (a *API) tagValues(r *http.Request) ([]tracestore.TagValue, error) {
	values := r.URL.Query()
	from, to, err := a.tempoBounds(r, tempoLookback)
	if err != nil {
		return nil, err
	}
	limit, err := tempoLimit(values.Get("limit"))
	if err != nil {
		return nil, err
	}
	tag := r.PathValue("tag")
	if plain, err := url.PathUnescape(tag); err == nil { // Grafana escapes it twice
		tag = plain
	}
	f, err := tracestore.ParseField(tag)
	if err != nil {
		f = tracestore.Field{Scope: tracestore.AnyScope, Key: tag}
	}
	return a.Traces.TagValues(r.Context(), f, lenient(values.Get("q")), from, to, limit)
}

func (a *API) tempoValues(r *http.Request) (any, error) {
	list, err := a.tagValues(r)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, v := range list {
		out = append(out, v.Value)
	}
	return map[string]any{"tagValues": out, "metrics": map[string]any{}}, nil
}

func (a *API) tempoValuesV2(r *http.Request) (any, error) {
	list, err := a.tagValues(r)
	if err != nil {
		return nil, err
	}
	type value struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	out := []value{}
	for _, v := range list {
		out = append(out, value{v.Type, v.Value})
	}
	return map[string]any{"tagValues": out, "metrics": map[string]any{}}, nil
}
