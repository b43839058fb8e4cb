package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// The query API of Jaeger, as its user interface and Grafana's data source ask it. Times are microseconds
// since 1970, durations microseconds.

// jaegerAnswer is around everything.
type jaegerAnswer struct {
	Data   any           `json:"data"`
	Total  int           `json:"total"`
	Limit  int           `json:"limit"`
	Offset int           `json:"offset"`
	Errors []jaegerError `json:"errors"`
	// Warnings are ours: clients take an entry in Errors for a failure of the whole.
	Warnings []string `json:"warnings,omitempty"`
}

type jaegerError struct {
	Code    int    `json:"code,omitempty"`
	Msg     string `json:"msg"`
	TraceID string `json:"traceID,omitempty"`
}

type jaegerTrace struct {
	TraceID   string                   `json:"traceID"`
	Spans     []jaegerSpan             `json:"spans"`
	Processes map[string]jaegerProcess `json:"processes"`
	Warnings  []string                 `json:"warnings"`
}

type jaegerSpan struct {
	TraceID       string            `json:"traceID"`
	SpanID        string            `json:"spanID"`
	Flags         uint32            `json:"flags,omitempty"`
	OperationName string            `json:"operationName"`
	References    []jaegerReference `json:"references"`
	StartTime     int64             `json:"startTime"`
	Duration      int64             `json:"duration"`
	Tags          []jaegerKeyValue  `json:"tags"`
	Logs          []jaegerLog       `json:"logs"`
	ProcessID     string            `json:"processID,omitempty"`
	Warnings      []string          `json:"warnings"`
}

type jaegerReference struct {
	RefType string `json:"refType"` // CHILD_OF, FOLLOWS_FROM
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type jaegerProcess struct {
	ServiceName string           `json:"serviceName"`
	Tags        []jaegerKeyValue `json:"tags"`
}

type jaegerLog struct {
	Timestamp int64            `json:"timestamp"`
	Fields    []jaegerKeyValue `json:"fields"`
}

type jaegerKeyValue struct {
	Key   string `json:"key"`
	Type  string `json:"type"` // string, bool, int64, float64
	Value any    `json:"value"`
}

type jaegerLink struct {
	Parent    string `json:"parent"`
	Child     string `json:"child"`
	CallCount uint64 `json:"callCount"`
}

type jaegerOperation struct {
	Name     string `json:"name"`
	SpanKind string `json:"spanKind"`
}

// Bounds of Jaeger's searches.
const (
	jaegerLimit    = 100 // traces, when the question says nothing
	jaegerLookback = 48 * time.Hour
	jaegerMaxSpans = 100_000 // of all traces of one answer
)

// jaegerPath tells a path of Jaeger's API.
func jaegerPath(path string) bool {
	for _, p := range []string{"/api/services", "/api/operations", "/api/traces", "/api/dependencies"} {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// jaeger makes a handler of a function that returns an answer.
func (a *API) jaeger(answer func(r *http.Request) (jaegerAnswer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, faceJaeger, e)
			return
		}
		v, err := answer(r)
		if err != nil {
			refuse(w, faceJaeger, traceFailure(r, err))
			return
		}
		if err := a.writer.sendRaw(w, r, v); err != nil {
			refuse(w, faceJaeger, failure(r, err))
		}
	})
}

// jaegerParams reads the parameters of a question and keeps the first problem.
type jaegerParams struct {
	values map[string][]string
	now    time.Time
	err    *Error
}

func (p *jaegerParams) get(name string) string {
	if v := p.values[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (p *jaegerParams) fail(name, value, problem string) {
	if p.err == nil {
		p.err = &Error{Code: "bad_parameter", Message: fmt.Sprintf("unable to parse param '%s': %q %s", name, value, problem), Where: name}
	}
}

// earliestMicros is 1973 in microseconds; as milliseconds it is the year 5138.
const earliestMicros = 1e14

// time reads a number of units since 1970. Microseconds that are too few are milliseconds: Grafana sends
// those when it asks for a trace with a range.
func (p *jaegerParams) time(name string, unit time.Duration, fallback time.Time) time.Time {
	v := p.get(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if unit == time.Microsecond && n < earliestMicros {
		unit = time.Millisecond
	}
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		p.fail(name, v, "is no time")
		return fallback
	}
	return time.Unix(0, n*int64(unit)).UTC()
}

// duration reads one such as 1.5s or 100ms.
func (p *jaegerParams) duration(name string) time.Duration {
	v := p.get(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		p.fail(name, v, "is no duration: 1.5s, 100ms, 20us")
		return 0
	}
	return d
}

// lookback reads the UI's "1h", "2d", "custom".
func lookback(v string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 12)
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0
	}
	d, err := time.ParseDuration(v)
	return d, err == nil && d > 0
}

// jaegerQuery reads a search. ids are traces that are asked for by their ids instead.
func jaegerQuery(values map[string][]string, now time.Time) (q tracestore.Query, ids []string, err error) {
	p := &jaegerParams{values: values, now: now}
	back := jaegerLookback
	if d, ok := lookback(p.get("lookback")); ok {
		back = d
	}
	end := p.time("end", time.Microsecond, now)
	start := p.time("start", time.Microsecond, end.Add(-back))
	q.From, q.To = start.UnixNano(), end.UnixNano()
	q.MinDuration, q.MaxDuration = p.duration("minDuration"), p.duration("maxDuration")
	q.Limit = jaegerLimit
	if v := p.get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			p.fail("limit", v, "must be a number greater than 0")
		}
		q.Limit = min(n, tracestore.MaxTraces)
	}
	ids = p.values["traceID"]
	if len(ids) > tracestore.MaxTraces {
		p.fail("traceID", "", fmt.Sprintf("stands there more than %d times", tracestore.MaxTraces))
	}
	tags, problem := jaegerTags(p.values["tag"], p.values["tags"])
	if problem != "" {
		p.fail("tags", "", problem)
	}
	service, operation := p.get("service"), p.get("operation")
	switch {
	case p.err != nil:
		return q, nil, p.err
	case start.After(end):
		return q, nil, &Error{Code: "bad_parameter", Message: "invalid parameter: start time must be before end time", Where: "start"}
	case q.MaxDuration != 0 && q.MaxDuration < q.MinDuration:
		return q, nil, &Error{Code: "bad_parameter", Message: "'maxDuration' should be greater than 'minDuration'", Where: "maxDuration"}
	case len(ids) == 0 && service == "":
		return q, nil, &Error{Code: "bad_parameter", Message: "parameter 'service' is required", Where: "service"}
	}
	conds := []*tracestore.Cond{tracestore.Is(tracestore.Field{Scope: tracestore.Resource, Key: "service.name"}, service)}
	if operation != "" && operation != "all" {
		conds = append(conds, tracestore.NameIs(operation))
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		conds = append(conds, jaegerTag(key, tags[key]))
	}
	// Jaeger's durations are those of a span that matches.
	for _, d := range []struct {
		d   time.Duration
		cmp tracestore.Cmp
	}{{q.MinDuration, tracestore.GreaterEqual}, {q.MaxDuration, tracestore.LessEqual}} {
		if d.d != 0 {
			c, err := tracestore.Compare(tracestore.Field{Scope: tracestore.Intrinsic, Key: tracestore.SpanDuration}, d.cmp,
				tracestore.Value{Number: float64(d.d) / 1e9, IsNumber: true})
			if err != nil {
				return q, nil, err
			}
			conds = append(conds, c)
		}
	}
	q.MinDuration, q.MaxDuration = 0, 0
	q.Where = tracestore.Spans(tracestore.All(conds...))
	return q, ids, nil
}

// jaegerTags reads tag=key:value and tags={"key":"value"}.
func jaegerTags(simple, objects []string) (map[string]string, string) {
	out := map[string]string{}
	for _, t := range simple {
		key, value, ok := strings.Cut(t, ":")
		if !ok || key == "" {
			return nil, fmt.Sprintf("malformed 'tag' parameter, expecting key:value, received: %s", t)
		}
		out[key] = value
	}
	for _, o := range objects {
		if o == "" {
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(o), &m); err != nil {
			return nil, fmt.Sprintf("malformed 'tags' parameter, cannot unmarshal JSON: %v", err)
		}
		for key, raw := range m {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				text = string(raw) // a number or a boolean: its text is the value
			}
			out[key] = text
		}
	}
	if len(out) > 64 {
		return nil, "there are more than 64 tags"
	}
	return out, ""
}

// jaegerTag is the condition of a tag: Jaeger has no scopes, and makes tags of what OpenTelemetry has fields for.
func jaegerTag(key, value string) *tracestore.Cond {
	intrinsic := func(name, text string) *tracestore.Cond {
		return tracestore.Is(tracestore.Field{Scope: tracestore.Intrinsic, Key: name}, text)
	}
	attr := tracestore.Any(
		tracestore.Is(tracestore.Field{Scope: tracestore.SpanScope, Key: key}, value),
		tracestore.Is(tracestore.Field{Scope: tracestore.Resource, Key: key}, value),
		tracestore.Is(tracestore.Field{Scope: tracestore.EventScope, Key: key}, value))
	switch key {
	case "span.kind":
		return tracestore.Any(intrinsic(tracestore.SpanKind, value), attr)
	case "error":
		if value == "true" {
			return tracestore.Any(intrinsic(tracestore.SpanStatus, "error"), attr)
		}
	case "otel.status_code":
		return tracestore.Any(intrinsic(tracestore.SpanStatus, strings.ToLower(value)), attr)
	case "otel.status_description":
		return tracestore.Any(intrinsic(tracestore.StatusMessage, value), attr)
	case "otel.scope.name", "otel.library.name":
		return tracestore.Any(intrinsic(tracestore.ScopeName, value), attr)
	case "otel.scope.version", "otel.library.version":
		return tracestore.Any(intrinsic(tracestore.ScopeVersion, value), attr)
	}
	return attr
}

func (a *API) jaegerSearch(r *http.Request) (jaegerAnswer, error) {
	q, ids, err := jaegerQuery(r.URL.Query(), a.clock(r.Context()))
	if err != nil {
		return jaegerAnswer{}, err
	}
	answer := jaegerAnswer{}
	traces := []jaegerTrace{}
	from, to := int64(0), int64(0)
	if len(ids) == 0 {
		from, to = q.From, q.To // where their spans were found
		found, err := a.Traces.Search(r.Context(), q)
		if err != nil {
			return jaegerAnswer{}, err
		}
		if found.Partial != "" {
			answer.Warnings = append(answer.Warnings, "there may be more: "+found.Partial)
		}
		for _, f := range found.Traces {
			ids = append(ids, f.ID.String())
		}
	}
	spans := 0
	for i, id := range ids {
		if spans > jaegerMaxSpans {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("%d more traces are left out: the answer has %d spans already; ask for a smaller limit", len(ids)-i, spans))
			break
		}
		t, err := a.Traces.Trace(r.Context(), id, from, to)
		if err != nil {
			e := traceFailure(r, err)
			if e.Code != "not_found" && e.Code != "bad_parameter" {
				return jaegerAnswer{}, err
			}
			answer.Errors = append(answer.Errors, jaegerError{Msg: e.Error(), TraceID: id})
			continue
		}
		spans += len(t.Spans)
		traces = append(traces, toJaeger(&t))
	}
	answer.Data = traces
	return answer, nil
}

func (a *API) jaegerTrace(r *http.Request) (jaegerAnswer, error) {
	p := &jaegerParams{values: r.URL.Query(), now: a.clock(r.Context())}
	from, to := p.time("start", time.Microsecond, time.Time{}), p.time("end", time.Microsecond, time.Time{})
	if p.err != nil {
		return jaegerAnswer{}, p.err
	}
	t, err := a.Traces.Trace(r.Context(), r.PathValue("id"), nanos(from), nanos(to))
	if err != nil {
		return jaegerAnswer{}, err
	}
	return jaegerAnswer{Data: []jaegerTrace{toJaeger(&t)}}, nil
}

func (a *API) jaegerRange(r *http.Request) (from, to int64) {
	now := a.clock(r.Context())
	return now.Add(-jaegerLookback).UnixNano(), now.UnixNano()
}

func (a *API) jaegerServices(r *http.Request) (jaegerAnswer, error) {
	from, to := a.jaegerRange(r)
	list, err := a.Traces.Services(r.Context(), from, to)
	if err != nil {
		return jaegerAnswer{}, err
	}
	if list == nil {
		list = []string{}
	}
	return jaegerAnswer{Data: list, Total: len(list)}, nil
}

func (a *API) jaegerServiceOperations(r *http.Request) (jaegerAnswer, error) {
	from, to := a.jaegerRange(r)
	list, err := a.Traces.Operations(r.Context(), r.PathValue("service"), from, to)
	if err != nil {
		return jaegerAnswer{}, err
	}
	names := []string{}
	for _, o := range list {
		if !slices.Contains(names, o.Name) {
			names = append(names, o.Name)
		}
	}
	return jaegerAnswer{Data: names, Total: len(names)}, nil
}

func (a *API) jaegerOperations(r *http.Request) (jaegerAnswer, error) {
	service, kind := r.URL.Query().Get("service"), strings.ToLower(r.URL.Query().Get("spanKind"))
	if service == "" {
		return jaegerAnswer{}, &Error{Code: "bad_parameter", Message: "parameter 'service' is required", Where: "service"}
	}
	from, to := a.jaegerRange(r)
	list, err := a.Traces.Operations(r.Context(), service, from, to)
	if err != nil {
		return jaegerAnswer{}, err
	}
	out := []jaegerOperation{}
	for _, o := range list {
		if k := jaegerKind(o.Kind); kind == "" || k == kind {
			out = append(out, jaegerOperation{o.Name, k})
		}
	}
	return jaegerAnswer{Data: out, Total: len(out)}, nil
}

func (a *API) jaegerDependencies(r *http.Request) (jaegerAnswer, error) {
	now := a.clock(r.Context())
	p := &jaegerParams{values: r.URL.Query(), now: now}
	end := p.time("endTs", time.Millisecond, now)
	back := 24 * time.Hour
	if v := p.get("lookback"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 || n > int64(10*365*24*time.Hour/time.Millisecond) {
			p.fail("lookback", v, "is no number of milliseconds")
		}
		back = time.Duration(n) * time.Millisecond
	}
	if p.err != nil {
		return jaegerAnswer{}, p.err
	}
	links, partial, err := a.Traces.Dependencies(r.Context(), end.Add(-back).UnixNano(), end.UnixNano())
	if err != nil {
		return jaegerAnswer{}, err
	}
	out := []jaegerLink{}
	service := p.get("service")
	for _, l := range links {
		if service == "" || l.Parent == service || l.Child == service {
			out = append(out, jaegerLink{l.Parent, l.Child, l.Calls})
		}
	}
	answer := jaegerAnswer{Data: out}
	if partial != "" {
		answer.Warnings = []string{partial}
	}
	return answer, nil
}

// jaegerKind is a kind as Jaeger writes it, "" for none.
func jaegerKind(k span.Kind) string {
	names := [...]string{"", "internal", "server", "client", "producer", "consumer"}
	if int(k) < len(names) {
		return names[k]
	}
	return ""
}

// jaegerID is a trace id as Jaeger writes it: 16 digits when the upper half is zero.
func jaegerID(id span.TraceID) string {
	s := id.String()
	if strings.HasPrefix(s, "0000000000000000") {
		return s[16:]
	}
	return s
}

// toJaeger makes Jaeger's form of a trace. Every resource is a process.
func toJaeger(t *tracestore.Trace) jaegerTrace {
	out := jaegerTrace{TraceID: jaegerID(t.ID), Spans: make([]jaegerSpan, 0, len(t.Spans)), Processes: map[string]jaegerProcess{}}
	if t.Partial != "" {
		out.Warnings = append(out.Warnings, t.Partial)
	}
	if len(t.Others) > 0 {
		list := make([]string, len(t.Others))
		for i, o := range t.Others {
			list[i] = o.String()
		}
		out.Warnings = append(out.Warnings, "this id may also mean: "+strings.Join(list, ", "))
	}
	ids := map[string]string{}
	for i := range t.Spans {
		s := &t.Spans[i]
		key := processKey(s)
		id, ok := ids[key]
		if !ok {
			id = "p" + strconv.Itoa(len(ids)+1)
			ids[key] = id
			p := jaegerProcess{ServiceName: s.Service, Tags: []jaegerKeyValue{}}
			for _, kv := range s.Resource {
				if kv.Key != "service.name" {
					p.Tags = append(p.Tags, jaegerValue(kv))
				}
			}
			out.Processes[id] = p
		}
		out.Spans = append(out.Spans, toJaegerSpan(s, id))
	}
	return out
}

func processKey(s *span.Span) string {
	var b strings.Builder
	b.WriteString(strconv.Quote(s.Service))
	for _, kv := range s.Resource {
		b.WriteString(strconv.Quote(kv.Key))
		b.WriteString(strconv.Quote(kv.Value.Str))
	}
	return b.String()
}

func toJaegerSpan(s *span.Span, process string) jaegerSpan {
	out := jaegerSpan{
		TraceID: jaegerID(s.Trace), SpanID: s.ID.String(), Flags: s.Flags & 0xff, OperationName: s.Name, ProcessID: process,
		References: []jaegerReference{}, StartTime: s.Start / 1000, Duration: max(0, s.End-s.Start) / 1000,
		Tags: make([]jaegerKeyValue, 0, len(s.Attrs)+4), Logs: make([]jaegerLog, 0, len(s.Events)),
	}
	if !s.Parent.IsZero() {
		out.References = append(out.References, jaegerReference{"CHILD_OF", out.TraceID, s.Parent.String()})
	}
	for _, l := range s.Links {
		out.References = append(out.References, jaegerReference{"FOLLOWS_FROM", jaegerID(l.Trace), l.ID.String()})
	}
	text := func(key, value string) {
		if value != "" {
			out.Tags = append(out.Tags, jaegerKeyValue{key, "string", value})
		}
	}
	text("otel.scope.name", s.ScopeName)
	text("otel.scope.version", s.ScopeVersion)
	for _, kv := range s.Attrs {
		out.Tags = append(out.Tags, jaegerValue(kv))
	}
	text("span.kind", jaegerKind(s.Kind))
	switch s.Status {
	case span.OK:
		text("otel.status_code", "OK")
	case span.Failed:
		text("otel.status_code", "ERROR")
		out.Tags = append(out.Tags, jaegerKeyValue{"error", "bool", true})
	}
	text("otel.status_description", s.StatusMessage)
	text("w3c.tracestate", s.TraceState)
	for i := range s.Events {
		e := &s.Events[i]
		log := jaegerLog{Timestamp: e.Time / 1000, Fields: make([]jaegerKeyValue, 0, len(e.Attrs)+1)}
		if e.Name != "" {
			log.Fields = append(log.Fields, jaegerKeyValue{"event", "string", e.Name})
		}
		for _, kv := range e.Attrs {
			log.Fields = append(log.Fields, jaegerValue(kv))
		}
		out.Logs = append(out.Logs, log)
	}
	if n := s.DroppedAttrs; n > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the sender dropped %d attributes of this span", n))
	}
	if s.End < s.Start {
		out.Warnings = append(out.Warnings, "this span ends before it starts")
	}
	return out
}

// maxSafeInteger is the largest integer that JavaScript has exactly; larger ones are text, as Jaeger does it.
const maxSafeInteger = 1<<53 - 1

func jaegerValue(kv span.Attr) jaegerKeyValue {
	v := kv.Value
	switch v.Type {
	case span.Bool:
		return jaegerKeyValue{kv.Key, "bool", v.Str == "true"}
	case span.Int:
		n, err := strconv.ParseInt(v.Str, 10, 64)
		if err != nil || n > maxSafeInteger || n < -maxSafeInteger {
			return jaegerKeyValue{kv.Key, "int64", v.Str}
		}
		return jaegerKeyValue{kv.Key, "int64", n}
	case span.Float:
		f, err := strconv.ParseFloat(v.Str, 64)
		if err != nil || !finite(f) {
			return jaegerKeyValue{kv.Key, "string", v.Str}
		}
		return jaegerKeyValue{kv.Key, "float64", f}
	}
	return jaegerKeyValue{kv.Key, "string", v.Str}
}
