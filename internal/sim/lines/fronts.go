package lines

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/sim"
)

// router adds a line of SGLang's gateway.
func (r *Renderer) router(member string, at time.Time, level, code, text string) {
	r.add(member, at, func(t time.Time) string {
		return fmt.Sprintf("%s %5s smg::%s: src/%s: %s", t.Format("2006-01-02 15:04:05"), level, module(code), code, text)
	})
}

// module is the Rust module of a source file "core/worker.rs:142".
func module(code string) string {
	out := ""
	for i := 0; i < len(code) && code[i] != '.'; i++ {
		if code[i] == '/' {
			out += "::"
		} else {
			out += string(code[i])
		}
	}
	return out
}

func (r *Renderer) routerStart(m sim.Moment) {
	r.router(m.Member, m.Time.Add(-3*time.Second), "INFO", "server.rs:830", "Starting router on "+m.Addr+" | mode: PrefillDecode | policy: CacheAware")
	r.router(m.Member, m.Time.Add(-2900*time.Millisecond), "INFO", "server.rs:928", "Initializing data connector: Memory")
	r.router(m.Member, m.Time.Add(-1500*time.Millisecond), "INFO", "core/job_queue.rs:142", "Initializing worker job queue: capacity=1000, workers=10")
}

// routed is what a router says of a worker that goes or comes.
func (r *Renderer) routed(m sim.Moment) {
	front, ok := r.fronts[m.Member]
	if !ok || m.Kind != sim.SGLang {
		return
	}
	if m.What == sim.Up {
		r.router(front, m.Time.Add(2*time.Second), "INFO", "core/worker.rs:201", "worker http://"+m.Addr+" is healthy again")
		return
	}
	r.router(front, m.Time.Add(time.Second), "ERROR", "core/worker.rs:142", fmt.Sprintf("worker http://%s is unreachable, %d requests in flight", m.Addr, m.Requests))
}

// frontCall is what the router or frontend in front says of the half that the client waits for.
func (r *Renderer) frontCall(c sim.Call) {
	if c.Role == engine.Prefill {
		return
	}
	switch c.FrontKind {
	case sim.Router:
		if c.Outcome == sim.Failed {
			r.router(c.Front, c.Ended, "ERROR", "routers/http/pd_router.rs:517", fmt.Sprintf("Request failed request_id=chatcmpl-%s worker=http://%s bootstrap_room=%d", c.RID[:24], c.Addr, c.Room))
		}
	case sim.DynamoFrontend:
		r.closed(c)
	}
}

// dynamoLine is a line of Dynamo's DYN_LOGGING_JSONL.
type dynamoLine struct {
	Time    string `json:"time"`
	Level   string `json:"level"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Target  string `json:"target"`
	Message string `json:"message"`

	LogFile   string `json:"log.file,omitempty"`
	LogLine   int    `json:"log.line,omitempty"`
	LogTarget string `json:"log.target,omitempty"`

	Method       string `json:"method,omitempty"`
	URI          string `json:"uri,omitempty"`
	Version      string `json:"version,omitempty"`
	SpanName     string `json:"span_name,omitempty"`
	TraceID      string `json:"trace_id,omitempty"`
	XRequestID   string `json:"x_request_id,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Model        string `json:"model,omitempty"`
	InputTokens  string `json:"input_tokens,omitempty"`
	OutputTokens string `json:"output_tokens,omitempty"`
	TTFT         string `json:"ttft_ms,omitempty"`
	ITL          string `json:"avg_itl_ms,omitempty"`
	Busy         int64  `json:"time.busy_us,omitempty"`
	Idle         int64  `json:"time.idle_us,omitempty"`
	Duration     int64  `json:"time.duration_us,omitempty"`
}

func (d dynamoLine) text(t time.Time) string {
	d.Time = t.UTC().Format("2006-01-02T15:04:05.000000Z")
	b, err := json.Marshal(d)
	if err != nil { // texts and numbers of our own
		return "{}"
	}
	return string(b)
}

// dynamoLog is a line that Python logged in a worker.
func dynamoLog(t time.Time, level, text string) string {
	return dynamoLine{Level: level, Target: "log", Message: text, LogFile: "/opt/dynamo/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler_metrics_mixin.py", LogLine: 211,
		LogTarget: "scheduler_metrics_mixin.report_decode_stats"}.text(t)
}

// dashed is a request's id as Dynamo writes it.
func dashed(rid string) string {
	return rid[:8] + "-" + rid[8:12] + "-" + rid[12:16] + "-" + rid[16:20] + "-" + rid[20:]
}

// spanOf is a line within the frontend's span of a request.
func spanOf(c sim.Call) dynamoLine {
	return dynamoLine{Method: "POST", URI: "/v1/chat/completions", Version: "HTTP/1.1", SpanName: "http-request", TraceID: c.RID, XRequestID: dashed(c.RID), Model: c.Model}
}

func (r *Renderer) frontendStart(m sim.Moment) {
	for i, text := range []string{"Starting HTTP(S) service on " + m.Addr, "KV router is ready"} {
		l := dynamoLine{Level: "INFO", File: "/opt/dynamo/lib/llm/src/http/service/service_v2.rs", Line: 312 + i, Target: "dynamo_llm::http::service::service_v2", Message: text}
		r.add(m.Member, m.Time.Add(time.Duration(i-3)*time.Second), l.text)
	}
}

// closed is the end of the frontend's span of a request.
func (r *Renderer) closed(c sim.Call) {
	l := spanOf(c)
	l.Level, l.Target, l.Message = "INFO", "request_span", "SPAN_CLOSED"
	l.File, l.Line = "/opt/dynamo/lib/runtime/src/logging.rs", 871
	l.RequestID = dashed(c.RID)
	l.InputTokens, l.OutputTokens = fmt.Sprint(c.Prompt), fmt.Sprint(c.Output)
	if !c.First.IsZero() {
		l.TTFT = fmt.Sprintf("%.3f", seconds(c.Born, c.First)*1000)
		if c.Output > 1 {
			l.ITL = fmt.Sprintf("%.3f", seconds(c.First, c.Ended)*1000/float64(c.Output-1))
		}
	}
	l.Duration = max(c.Ended.Sub(c.Born).Microseconds(), 1)
	l.Busy = min(l.Duration, 1200)
	l.Idle = l.Duration - l.Busy
	r.add(c.Front, c.Ended, l.text)
	if c.Outcome == sim.Failed {
		e := spanOf(c)
		e.Level, e.Target, e.Message = "ERROR", "dynamo_runtime::pipeline::network::egress::push_router", "stream ended before generation completed"
		e.File, e.Line = "/opt/dynamo/lib/runtime/src/pipeline/network/egress/push_router.rs", 233
		r.add(c.Front, c.Ended, e.text)
	}
}

// workerCall is what a Dynamo worker says of a request: the end of its own span, and SGLang's lines.
func (r *Renderer) workerCall(c sim.Call) {
	if c.Received.IsZero() || c.Outcome == sim.Failed && c.Room == 0 {
		return
	}
	d := spanOf(c)
	d.SpanName, d.Level, d.Target, d.Message = "handle_payload", "INFO", "request_span", "SPAN_CLOSED"
	d.File, d.Line = "/opt/dynamo/lib/runtime/src/logging.rs", 871
	d.Duration = max(c.Ended.Sub(c.Received).Microseconds(), 1)
	d.Busy = min(d.Duration, 900)
	d.Idle = d.Duration - d.Busy
	r.add(c.Member, c.Ended, d.text)
	w := who{c.Member, c.Kind, c.Version, ""}
	failed := r.transferFailed(w, c)
	if !r.o.NoRequests && !failed && !c.Started.IsZero() {
		r.timeStats(w, c)
	}
}
