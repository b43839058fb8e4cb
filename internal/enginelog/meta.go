package enginelog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// metaFields are the keys of SGLang's meta_info that are durations or counts of an observation. What is
// not here is no field of a request.
var metaFields = [...]struct {
	key     string
	of      func(*request.Observation) *request.Value
	seconds bool
}{
	{"prompt_tokens", func(o *request.Observation) *request.Value { return &o.PromptTokens }, false},
	{"completion_tokens", func(o *request.Observation) *request.Value { return &o.CompletionTokens }, false},
	{"cached_tokens", func(o *request.Observation) *request.Value { return &o.CachedTokens }, false},
	{"e2e_latency", func(o *request.Observation) *request.Value { return &o.E2E }, true},
	{"queue_time", func(o *request.Observation) *request.Value { return &o.Queue }, true},
	{"decode_throughput", func(o *request.Observation) *request.Value { return &o.DecodeThroughput }, false},
	{"num_retractions", func(o *request.Observation) *request.Value { return &o.Retractions }, false},
	{"total_retractions", func(o *request.Observation) *request.Value { return &o.Retractions }, false},
	{"pd_transfer_speed_gb_s", func(o *request.Observation) *request.Value { return &o.TransferSpeed }, false},
	{"pd_transfer_total_mb", func(o *request.Observation) *request.Value { return &o.TransferSize }, false},
	{"pd_prefill_retry_count", func(o *request.Observation) *request.Value { return &o.Retries }, false},
	{"pd_prefill_bootstrap_queue_duration", phaseOf(request.PrefillBootstrapQueue), true},
	{"pd_prefill_bootstrap_duration", phaseOf(request.PrefillBootstrap), true},
	{"pd_prefill_alloc_wait_duration", phaseOf(request.PrefillAllocWait), true},
	{"pd_prefill_forward_duration", phaseOf(request.PrefillForward), true},
	{"pd_prefill_transfer_queue_duration", phaseOf(request.PrefillTransferQueue), true},
	{"pd_decode_prealloc_duration", phaseOf(request.DecodePrealloc), true},
	{"pd_decode_bootstrap_duration", phaseOf(request.DecodeBootstrap), true},
	{"pd_decode_alloc_wait_duration", phaseOf(request.DecodeAllocWait), true},
	{"pd_decode_transfer_duration", phaseOf(request.DecodeTransfer), true},
	{"pd_decode_forward_duration", phaseOf(request.DecodeForward), true},
}

func phaseOf(p request.Phase) func(*request.Observation) *request.Value {
	return func(o *request.Observation) *request.Value { return &o.Phases[p] }
}

// metaInfo reads an engine's meta_info into o and into fields of the line. Missing keys stay absent.
func (l *lineState) metaInfo(o *request.Observation, m *value) {
	for _, f := range metaFields {
		v := m.get(f.key)
		if v == nil || v.kind == null {
			continue
		}
		if v.kind != number {
			l.marks |= Invalid
			continue
		}
		x := count(v.num)
		name := f.key
		if f.seconds {
			x = duration(v.num)
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_duration"), "_latency"), "_time") + "_seconds"
		}
		*f.of(o) = x
		switch {
		case x.State == request.Known:
			l.add(name, plainNumber(v.num, v.text))
		case f.seconds:
			l.marks |= Invalid
			l.add(strings.TrimSuffix(name, "_seconds")+"_invalid_seconds", plainNumber(v.num, v.text))
			o.Flags = appendFlag(o.Flags, flagOf(f.key, v.num))
		default:
			l.marks |= Invalid
			o.Flags = appendFlag(o.Flags, "invalid_"+f.key)
		}
	}
	if p, ok := o.PromptTokens.Known(); ok {
		if c, ok := o.CachedTokens.Known(); ok && c > p {
			o.Flags = appendFlag(o.Flags, "cached_gt_prompt")
		}
	}
	o.Transfer = o.Phases[request.DecodeTransfer]
	o.Prefill = o.Phases[request.PrefillForward]
	o.Decode = o.Phases[request.DecodeForward]
	if o.Prefill.State == request.Absent {
		a, b := m.get("forward_entry_time"), m.get("prefill_finished_time")
		if a != nil && b != nil && a.kind == number && b.kind == number && a.num > epoch && b.num > epoch {
			o.Prefill = duration(b.num - a.num)
		}
	}
	o.WeightVersion = m.get("weight_version").str()
	l.add("weight_version", o.WeightVersion)
	if v := m.get("dp_rank"); v != nil && v.kind == number && isDigits(v.text) {
		l.addOnce("dp_rank", v.text)
	}
	if id := m.get("id").str(); id != "" {
		named(o, id)
		l.addOnce("rid", o.Aliases[0].ID)
	}
	l.finishReason(o, m.get("finish_reason"))
	if t := seconds(m.get("request_received_ts")); t != 0 {
		o.Start, o.TimeRank = t, 0
	}
	for _, k := range [...]string{"request_finished_ts", "response_sent_to_client_ts", "response_sent_ts"} {
		if t := seconds(m.get(k)); t != 0 {
			o.Finish = t
			break
		}
	}
}

// plainNumber writes a number as the line had it when that is a plain one.
func plainNumber(f float64, as string) string {
	if isNumber(as) {
		return as
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// seconds is a date in seconds since 1970 as ns, 0 when it is none.
func seconds(v *value) int64 {
	if v == nil || v.kind != number || !(v.num > epoch && v.num < 9e9) {
		return 0
	}
	return int64(v.num*1e6+0.5) * 1000
}

// finishReason reads {'type': 'stop', ...}, a bare word or null.
func (l *lineState) finishReason(o *request.Observation, v *value) {
	if v == nil || v.kind == null {
		return
	}
	reason, message := v.str(), ""
	if v.kind == dict {
		reason, message = v.get("type").str(), v.get("message").str()
	}
	if reason == "" {
		return
	}
	o.FinishReason = reason
	l.add("finish_reason", reason)
	switch reason {
	case "abort", "aborted", "cancelled", "canceled":
		o.Outcome = request.AbortedRequest
		o.Error = message
		l.class = Abort
		code := v.get("status_code").str()
		if code != "" {
			l.add("status_code", code)
		}
		if code != "" && code[0] == '5' {
			o.Outcome = request.ErrorOutcome
		}
	case "error":
		o.Outcome, o.Error = request.ErrorOutcome, message
		l.class = Error
	default:
		o.Outcome = request.Finished
	}
}

func (l *lineState) addOnce(name, val string) {
	for i := range l.fields {
		if l.fields[i].Name == name {
			return
		}
	}
	l.add(name, val)
}

// requestLog reads what --log-requests writes as text: Python reprs, cut at some length.
func (l *lineState) requestLog(event, s string) {
	l.set("sglang.request_log", None)
	l.add("event", event)
	obj, n, err := readLiteral(s)
	o := &request.Observation{Source: request.FromLog, TimeRank: 1}
	l.requestObj(o, &obj)
	if len(o.Aliases) == 0 {
		// A repr that cannot be read whole may still tell its request.
		if rid := after(s, "rid="); rid != "" {
			l.add("rid", rid)
			named(o, rid)
		}
	}
	if err != nil {
		l.marks |= Cut
	}
	rest := ""
	if i := strings.Index(s[min(n, len(s)):], ", out="); err == nil && i >= 0 {
		rest = s[n+i+6:]
	} else if i := strings.LastIndex(s, ", out={'meta_info'"); i >= 0 {
		rest = s[i+6:]
	} else if i := strings.LastIndex(s, ", out={'text'"); i >= 0 {
		rest = s[i+6:]
	}
	if rest != "" {
		out, k, err := readLiteral(rest)
		if err != nil {
			l.marks |= Cut
		} else if !strings.HasPrefix(event, "finish") && strings.TrimSpace(rest[k:]) != "" {
			l.marks |= Cut
		}
		l.requestOut(o, &out)
	}
	l.requestEvent(o, event)
}

// requestEvent completes an observation by what happened.
func (l *lineState) requestEvent(o *request.Observation, event string) {
	if event == "finish" {
		o.Final = true
		if o.Finish == 0 {
			o.Finish = l.time
		}
		if o.Start == 0 {
			o.Start = l.time
			if e, ok := o.E2E.Known(); ok {
				o.Start -= nanos(e)
			}
		}
	} else {
		o.Start = l.time
		o.Outcome = request.Running
	}
	if len(o.Aliases) > 0 && !strings.HasPrefix(o.Aliases[0].ID, "HEALTH_CHECK") {
		l.request = o
	}
}

// requestObj reads the request itself: its names and whether it streams. Prompts are left where they are.
func (l *lineState) requestObj(o *request.Observation, obj *value) {
	if rid := obj.get("rid").str(); rid != "" {
		l.addOnce("rid", rid)
		named(o, rid)
	}
	if room := obj.get("bootstrap_room").str(); isDigits(room) {
		l.add("bootstrap_room", room)
		o.Aliases = append(o.Aliases, request.Alias{Kind: request.BootstrapRoom, ID: room})
	}
	if v := obj.get("stream"); v != nil && v.kind == boolean {
		on := v.num == 1
		o.Streaming = &on
		l.add("stream_answer", strconv.FormatBool(on))
	}
	if h := obj.get("external_trace_header"); h != nil && h.kind == dict {
		l.traceparent(o, h.get("traceparent").str())
	}
	l.add("lora_id", obj.get("lora_id").str())
}

// named gives an observation its rid, before its other aliases, unless it has one.
func named(o *request.Observation, rid string) {
	if rid == "" || slices.ContainsFunc(o.Aliases, func(a request.Alias) bool { return a.Kind == request.RID }) {
		return
	}
	o.Aliases = slices.Insert(o.Aliases, 0, request.Alias{Kind: request.RID, ID: rid})
}

// traceparent reads 00-<32 hex>-<16 hex>-<flags>.
func (l *lineState) traceparent(o *request.Observation, s string) {
	p := strings.Split(s, "-")
	if len(p) < 4 || len(p[1]) != 32 || !isHex(p[1]) || strings.Trim(p[1], "0") == "" {
		return
	}
	id := strings.ToLower(p[1])
	l.addOnce("trace_id", id)
	o.Aliases = append(o.Aliases, request.Alias{Kind: request.TraceID, ID: id})
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		if !(s[i] >= '0' && s[i] <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return s != ""
}

// requestOut reads the answer: one dict, or a list of them for n > 1.
func (l *lineState) requestOut(o *request.Observation, out *value) {
	if out.kind == list && len(out.list) > 0 {
		out = &out.list[0]
	}
	if m := out.get("meta_info"); m != nil && m.kind == dict {
		l.metaInfo(o, m)
	}
}

// jsonLine reads a line that is a JSON object.
func (l *lineState) jsonLine(s string) {
	v, n, err := readJSON(s)
	if err != nil || v.kind != dict {
		if v, _, e := readLiteral(s); e == nil && v.kind == dict {
			l.format = "python.dict" // without a step: nothing to name it by
			return
		}
		if l.format == "" {
			l.format = "json"
		}
		l.marks |= Cut
		if err != nil && v.kind == dict {
			l.jsonObject(&v)
		}
		return
	}
	if strings.TrimSpace(s[n:]) != "" {
		l.marks |= Interleaved
	}
	l.jsonObject(&v)
}

func (l *lineState) jsonObject(v *value) {
	if e := v.get("event"); e != nil && e.kind == dict && v.get("schema") == nil {
		v = e // the envelope of Dynamo's sinks
	}
	switch {
	case strings.HasPrefix(v.get("schema").str(), "dynamo.request.trace."):
		l.dynamoRequest(v)
	case v.get("request_parameters") != nil:
		l.export(v)
	case strings.HasPrefix(v.get("event").str(), "request."):
		l.requestJSON(v)
	case v.get("target") != nil && v.get("message") != nil && v.get("level") != nil:
		l.dynamoJSONL(v)
	default:
		l.plainJSON(v)
	}
}

// requestJSON reads --log-requests-format json.
func (l *lineState) requestJSON(v *value) {
	l.set("sglang.request_log", None)
	event := v.get("event").str()
	switch {
	case strings.HasSuffix(event, ".finished"):
		event = "finish"
	case strings.HasSuffix(event, ".openai"):
		event = "receive_openai"
	default:
		event = "receive"
	}
	l.add("event", event)
	l.jsonTime(v.get("timestamp"))
	o := &request.Observation{Source: request.FromLog, TimeRank: 1}
	if obj := v.get("obj"); obj != nil && obj.kind == dict {
		l.requestObj(o, obj)
	}
	if rid := v.get("rid").str(); rid != "" {
		l.addOnce("rid", rid)
		named(o, rid)
	}
	if h := v.get("headers"); h != nil && h.kind == dict {
		l.traceparent(o, h.get("traceparent").str())
		if id := h.get("x-request-id").str(); id != "" {
			l.add("x_request_id", id)
			o.Aliases = append(o.Aliases, request.Alias{Kind: request.XRequestID, ID: id})
		}
	}
	if out := v.get("out"); out != nil {
		l.requestOut(o, out)
	}
	l.requestEvent(o, event)
}

// export reads a line of --export-metrics-to-file: meta_info flat, and the request's parameters as JSON
// text within the JSON.
func (l *lineState) export(v *value) {
	l.set("sglang.export", None)
	o := &request.Observation{Source: request.FromExport, TimeRank: 1, Final: true}
	params := v.get("request_parameters")
	if params.kind == text {
		if in, _, err := readJSON(params.text); err == nil {
			params = &in
		} else {
			l.marks |= Cut
		}
	}
	if params.kind == dict {
		l.requestObj(o, params)
		o.Model = params.get("model").str()
	}
	l.metaInfo(o, v)
	if len(o.Aliases) > 0 && o.Aliases[0].Kind == request.RID {
		l.addOnce("rid", o.Aliases[0].ID)
	}
	if o.Start != 0 && l.time == 0 || l.marks&TimeAssumed != 0 && o.Finish != 0 {
		l.time, l.marks = max(o.Start, o.Finish), l.marks&^TimeAssumed
	} else if l.marks&TimeAssumed != 0 && o.Start != 0 {
		l.time, l.marks = o.Start, l.marks&^TimeAssumed
	}
	l.requestEvent(o, "finish")
}

// jsonTime takes a JSON line's own time where the line has none, or only an assumed one.
func (l *lineState) jsonTime(v *value) {
	if v == nil || l.hasTime {
		return
	}
	switch v.kind {
	case text:
		ns, n, zoned := readTime(v.text)
		if n == 0 {
			return
		}
		l.marks &^= TimeAssumed
		l.time = ns
		if !zoned && l.p != nil {
			var m Mark
			l.time, m = l.p.clock.moment(ns)
			l.marks |= m
		}
	case number:
		f := v.num
		if f > 1e11 {
			f /= 1000 // milliseconds
		}
		if f > epoch && f < 9e9 {
			l.time = int64(f*1e6) * 1000
			l.marks &^= TimeAssumed
		}
	}
}

// plainJSON reads a JSON log line of some other program: time, level and message under their usual keys.
func (l *lineState) plainJSON(v *value) {
	l.format = "json"
	for _, k := range [...]string{"time", "timestamp", "ts", "@timestamp", "asctime"} {
		if t := v.get(k); t != nil {
			l.jsonTime(t)
			break
		}
	}
	for _, k := range [...]string{"level", "levelname", "severity", "lvl"} {
		if t := v.get(k).str(); t != "" {
			l.level = levelName(t)
			break
		}
	}
	for _, k := range [...]string{"trace_id", "span_id", "rid", "request_id"} {
		l.add(k, v.get(k).str())
	}
	for _, k := range [...]string{"message", "msg", "fields"} {
		m := v.get(k)
		if m != nil && m.kind == dict {
			m = m.get("message")
		}
		if t := m.str(); t != "" {
			l.inner(t, v)
			return
		}
	}
	if l.level == "error" || l.level == "critical" {
		l.class = Error
	}
}

// inner reads the message within a JSON line by the grammars of lines: an engine's text under a JSON
// logger is still an engine's.
func (l *lineState) inner(msg string, v *value) {
	outer, level := l.format, l.level
	l.format = ""
	var none stream
	if len(msg) > 0 && msg[0] != '{' {
		l.hasTime = true // the JSON's
		l.classify(&none, strings.TrimRight(msg, "\n"))
	}
	l.msg = msg
	if l.format == "" || strings.HasSuffix(l.format, ".text") || l.format == "ray.prefix" {
		l.format = outer
	} else {
		l.add("logger_format", outer)
	}
	if level != "" {
		l.level = level
	}
	if l.class == None && (l.level == "error" || l.level == "critical") {
		l.class = Error
	}
}

func levelName(s string) string {
	u := strings.ToUpper(s)
	for _, w := range levelWords {
		if u == w.word {
			return w.level
		}
	}
	return strings.ToLower(s)
}
