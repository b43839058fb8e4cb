package enginelog

import (
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// dynamoSkip are the keys of a Dynamo line that have a place of their own.
var dynamoSkip = map[string]bool{"time": true, "level": true, "target": true, "message": true, "file": true, "line": true,
	"log.file": true, "log.line": true, "log.target": true}

// dynamoJSONL reads a line of DYN_LOGGING_JSONL: span fields lie flat in it.
func (l *lineState) dynamoJSONL(v *value) {
	l.format = "dynamo.jsonl"
	l.jsonTime(v.get("time"))
	l.level = levelName(v.get("level").str())
	msg := v.get("message").str()
	target := v.get("target").str()
	if t := v.get("log.target").str(); t != "" {
		target = t
	}
	l.add("target", target)
	file, line := v.get("file").str(), v.get("line").str()
	if f := v.get("log.file").str(); f != "" {
		file, line = f, v.get("log.line").str()
	}
	if file != "" {
		l.add("code", file[strings.LastIndexByte(file, '/')+1:]+":"+line)
	}
	n := 0
	for i := range v.pairs {
		p := &v.pairs[i]
		if dynamoSkip[p.key] || p.val.kind != text && p.val.kind != number && p.val.kind != boolean || n >= 60 {
			continue
		}
		name := plainName(p.key)
		if p.key == "x-request-id" {
			name = "x_request_id"
		}
		val := p.val.keyText()
		if name != "" && len(val) <= 4096 {
			l.addOnce(name, val)
			n++
		}
	}
	l.inner(msg, v)
	if msg == "SPAN_CLOSED" && v.get("span_name").str() == "http-request" {
		l.dynamoSpan(v)
	}
}

// dynamoSpan makes an observation of the frontend's closed root span.
func (l *lineState) dynamoSpan(v *value) {
	o := &request.Observation{Source: request.FromLog, Role: "frontend", Final: true, TimeRank: 1, Finish: l.time, Start: l.time}
	for _, a := range [...]struct {
		key  string
		kind request.AliasKind
	}{{"trace_id", request.TraceID}, {"span_id", request.SpanID}, {"x_request_id", request.XRequestID}, {"request_id", request.DynamoID}} {
		if id := v.get(a.key).str(); id != "" {
			o.Aliases = append(o.Aliases, request.Alias{Kind: a.kind, ID: id})
		}
	}
	if len(o.Aliases) == 0 {
		return
	}
	o.Model = v.get("model").str()
	set := func(key string, to *request.Value, scale float64, dur bool) {
		x := v.get(key)
		if x == nil {
			return
		}
		f, err := strconv.ParseFloat(x.str(), 64)
		if err != nil {
			return
		}
		if dur {
			*to = duration(f * scale)
		} else {
			*to = count(f)
		}
	}
	set("ttft_ms", &o.TTFT, 1e-3, true)
	set("avg_itl_ms", &o.ITL, 1e-3, true)
	set("input_tokens", &o.PromptTokens, 1, false)
	set("output_tokens", &o.CompletionTokens, 1, false)
	set("cached_tokens", &o.CachedTokens, 1, false)
	set("time.duration_us", &o.E2E, 1e-6, true)
	if d, ok := o.E2E.Known(); ok {
		o.Start, o.TimeRank = l.time-nanos(d), 0
	}
	l.request = o
}

// dynamoRequest reads a record of dynamo.request.trace.v1.
func (l *lineState) dynamoRequest(v *value) {
	l.set("dynamo.request_trace", None)
	l.jsonTime(v.get("event_time_unix_ms"))
	event := v.get("event_type").str()
	l.add("event", event)
	session := v.get("session_id").str()
	if c := v.get("agent_context"); c != nil && c.kind == dict {
		if session == "" {
			session = c.get("session_id").str()
		}
		l.add("parent_session_id", c.get("parent_session_id").str())
	}
	l.add("session_id", session)
	if t := v.get("tool"); t != nil && t.kind == dict {
		l.dynamoTool(t)
	}
	r := v.get("request")
	if r == nil || r.kind != dict {
		if v.get("request_id") == nil {
			return
		}
		r = v
	}
	id := r.get("request_id").str()
	if id == "" {
		l.marks |= Invalid
		return
	}
	l.add("request_id", id)
	o := &request.Observation{Source: request.FromDynamo, Role: "frontend", Final: event == "request_end",
		Aliases: []request.Alias{{Kind: request.DynamoID, ID: id}}}
	for _, a := range [...]struct {
		key  string
		kind request.AliasKind
	}{{"x_request_id", request.XRequestID}, {"trace_id", request.TraceID}} {
		if s := r.get(a.key).str(); s != "" {
			l.add(a.key, s)
			o.Aliases = append(o.Aliases, request.Alias{Kind: a.kind, ID: s})
		}
	}
	o.Model = r.get("model").str()
	l.add("model", o.Model)
	num := func(key string, to *request.Value, scale float64, name string) {
		x := r.get(key)
		if x == nil || x.kind != number {
			return
		}
		if scale != 1 {
			*to = duration(x.num * scale)
			l.add(name, strconv.FormatFloat(x.num*scale, 'g', 12, 64))
		} else {
			*to = count(x.num)
			l.add(name, plainNumber(x.num, x.text))
		}
		if to.State == request.Invalid {
			l.marks |= Invalid
		}
	}
	num("output_tokens", &o.CompletionTokens, 1, "completion_tokens")
	num("input_tokens", &o.PromptTokens, 1, "prompt_tokens")
	num("cached_tokens", &o.CachedTokens, 1, "cached_tokens")
	num("ttft_ms", &o.TTFT, 1e-3, "ttft_seconds")
	num("avg_itl_ms", &o.ITL, 1e-3, "itl_seconds")
	num("queue_time_ms", &o.Queue, 1e-3, "queue_seconds")
	num("prefill_wait_time_ms", &o.Queue, 1e-3, "queue_seconds")
	num("prefill_time_ms", &o.Prefill, 1e-3, "prefill_seconds")
	num("total_time_ms", &o.E2E, 1e-3, "e2e_seconds")
	if rep := r.get("replay"); rep != nil && rep.kind == dict && o.PromptTokens.State == request.Absent {
		if n := rep.get("input_length"); n != nil && n.kind == number {
			o.PromptTokens = count(n.num)
			l.add("prompt_tokens", n.text)
		}
	}
	if m := r.get("finish_reason_metadata"); m != nil && m.kind == dict {
		l.finishReason(o, m.get("finish_reason"))
	} else {
		l.finishReason(o, r.get("finish_reason"))
	}
	if t := r.get("request_received_ms"); t != nil && t.kind == number && t.num > epoch*1000 {
		o.Start = int64(t.num) * 1e6
	}
	if o.Final {
		o.Finish = l.time
		if d, ok := o.E2E.Known(); ok && o.Start != 0 {
			o.Finish = o.Start + nanos(d)
		}
	}
	if o.Start == 0 {
		o.Start, o.TimeRank = l.time, 1
		if d, ok := o.E2E.Known(); ok {
			o.Start = l.time - nanos(d)
		}
	}
	l.request = o
}

// dynamoTool reads a tool call: no request of an engine, but what an agent waited for.
func (l *lineState) dynamoTool(t *value) {
	l.add("tool_call_id", t.get("tool_call_id").str())
	l.add("tool", t.get("tool_class").str())
	l.add("tool_status", t.get("status").str())
	if d := t.get("duration_ms"); d != nil && d.kind == number {
		v := duration(d.num / 1000)
		if v.State == request.Known {
			l.add("tool_seconds", strconv.FormatFloat(v.V, 'g', 12, 64))
		} else {
			l.marks |= Invalid
		}
	}
	switch t.get("status").str() {
	case "failed", "error", "errored", "timeout":
		l.class, l.level = Error, "error"
	}
}

// audit reads the planner's "AUDIT {...}".
func (l *lineState) audit(s string) {
	l.set("dynamo.audit", None)
	v, _, err := readJSON("{" + s)
	if err != nil {
		l.marks |= Cut
	}
	for i := range v.pairs {
		p := &v.pairs[i]
		if p.val.kind == text || p.val.kind == number || p.val.kind == boolean {
			if n := plainName(p.key); n != "" {
				l.addOnce(n, p.val.keyText())
			}
		}
	}
}
