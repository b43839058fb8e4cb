package spans

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// Kinds of spans, as on the wire.
const (
	internal span.Kind = 1
	server   span.Kind = 2
	client   span.Kind = 3
)

// statusOf is the HTTP status that the client got.
func statusOf(c sim.Call) int {
	switch {
	case c.Outcome == sim.Aborted:
		return 499
	case c.Outcome == sim.Failed && c.First.IsZero():
		return 503
	case c.Outcome == sim.Failed:
		return 500
	}
	return 200
}

// router makes SGLang's router in front of a call and returns the span that the engine's is below. Both
// halves of a PD request come to the same ids; the spans are exported with the half that is decoded.
func (t *trace) router(c sim.Call) span.ID {
	p := t.r.processOf(c.Front, "smg", "smg", "", "rust")
	p.delay = time.Second
	status := statusOf(c)
	root := t.add(p, span.ID{}, "http_request", server, c.Born, c.Ended.Add(time.Millisecond),
		text("method", "POST"), text("uri", "/v1/chat/completions"), text("version", "HTTP/1.1"), text("request_id", "chatcmpl-"+c.RID[:24]),
		num("status_code", status), num("latency", int(c.Ended.Sub(c.Born).Microseconds())), text("module", "smg"))
	if status >= 500 {
		t.fail(root, "")
		t.attr(root, text("error", "worker failed"))
	}
	t.cut(root)
	return t.of(root).ID
}

// cut makes some spans lose attributes to the SDK's limit.
func (t *trace) cut(i int) {
	if t.r.chance("dropped", t.key, t.r.o.Dropped) {
		t.of(i).DroppedAttrs = uint32(1 + mix(t.key)%60)
	}
}

// dynamo makes Dynamo's frontend, its KV router and its worker in front of a call, and returns the worker's
// span, which the engine's are below.
func (t *trace) dynamo(c sim.Call) span.ID {
	fe := t.r.processOf(c.Front, "dynamo-frontend", "dynamo", "1.2.0", "rust")
	worker := t.r.processOf(c.Member, "dynamo-worker-sglang", "dynamo", "1.2.0", "rust", instance(c))
	fe.delay, worker.delay = time.Second, time.Second
	id := t.id.String()
	request := c.RID[:8] + "-" + c.RID[8:12] + "-" + c.RID[12:16] + "-" + c.RID[16:20] + "-" + c.RID[20:]
	status := statusOf(c)
	attrs := []span.Attr{
		text("method", "POST"), text("uri", "/v1/chat/completions"), text("version", "HTTP/1.1"), text("trace_id", id), text("x_request_id", request),
		text("request_id", request), text("model", c.Model), num("input_tokens", c.Prompt), num("output_tokens", c.Output), num("http.status_code", status),
	}
	if c.Session != 0 {
		attrs = append(attrs, text("session.id", sessionOf(c.Session)))
	}
	if !c.First.IsZero() {
		attrs = append(attrs, float("ttft_ms", float64(c.First.Sub(c.Born).Microseconds())/1000))
		if c.Output > 1 {
			attrs = append(attrs, float("avg_itl_ms", float64(c.Ended.Sub(c.First).Microseconds())/1000/float64(c.Output-1)))
		}
	}
	instance := int(mix(hashOf(c.Member)) >> 12)
	attrs = append(attrs, num("decode_worker_id", instance))
	root := t.add(fe, span.ID{}, "http-request", server, c.Born, c.Ended.Add(time.Millisecond), attrs...)
	if status >= 500 {
		t.fail(root, "engine failed: "+strconv.Itoa(status))
	}
	t.cut(root)
	routed := c.Born.Add(1600 * time.Microsecond)
	at := func(us int) time.Time { return c.Born.Add(time.Duration(us) * time.Microsecond) }
	above := t.of(root).ID
	if c.Room != 0 {
		above = t.of(t.add(fe, above, "prefill_routing", internal, at(100), routed)).ID
	}
	route := t.add(fe, above, "kv_router.route_request", internal, at(150), routed, num("worker_id", instance), num("dp_rank", c.Rank), text("kv_routing_mechanism", "kv"))
	sel := t.add(fe, t.of(route).ID, "kv_router.select_worker", internal, at(200), at(1500))
	blocks := (c.Prompt + 63) / 64
	for _, s := range [...]struct {
		name     string
		from, to int
	}{{"kv_router.compute_block_hashes", 220, 420}, {"kv_router.find_matches", 430, 900}, {"kv_router.compute_seq_hashes", 910, 1100}, {"kv_router.schedule", 1110, 1490}} {
		t.add(fe, t.of(sel).ID, s.name, internal, at(s.from), at(s.to), num("block_count", blocks), num("block_size", 64))
	}
	if c.Received.IsZero() {
		return span.ID{}
	}
	call := t.add(fe, t.of(root).ID, "client_request", client, routed, c.Ended, text("operation", "generate"), text("request_id", request), num("instance_id", instance))
	handle := t.add(worker, t.of(call).ID, "handle_payload", server, c.Received.Add(-300*time.Microsecond), c.Ended,
		text("trace_id", id), text("parent_id", t.of(call).ID.String()), text("trace_flags", "01"), text("x_request_id", request), text("request_id", request),
		text("component", "backend"), text("endpoint", "generate"), text("namespace", "dynamo"), num("instance_id", instance))
	return t.of(handle).ID
}

// sessionOf is the id of a conversation.
func sessionOf(x uint64) string { return fmt.Sprintf("sess-%016x", x) }

// agent makes an agent that leads the conversation: one turn is a trace with the chat call and the tools that
// the answer asked for, linked to the turn before. The engine's spans are below the chat call.
func (t *trace) agent(c sim.Call) span.ID {
	p := t.r.processOf("agent", "agent", "opentelemetry.instrumentation.openai", "0.47.3", "python")
	p.delay = 5 * time.Second // the default of OpenTelemetry's batches
	session := sessionOf(c.Session)
	end := c.Ended.Add(time.Millisecond)
	tools := int(mix(t.key^11) % 3)
	if c.Outcome != sim.Completed {
		tools = 0
	}
	var ends [2]time.Time
	for i := range tools {
		ends[i] = end.Add(time.Duration(30+mix(t.key^uint64(100+i))%2500) * time.Millisecond)
		end = ends[i]
	}
	root := t.add(p, span.ID{}, "invoke_agent coder", internal, c.Born.Add(-2*time.Millisecond), end.Add(time.Millisecond),
		text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", "coder"), text("gen_ai.conversation.id", session), text("session.id", session), text("gen_ai.request.model", c.Model))
	if last, ok := t.r.turns[c.Session]; ok {
		t.of(root).Links = []span.Link{{Trace: last.trace, ID: last.id, Attrs: []span.Attr{text("link.kind", "previous_turn")}}}
	}
	if len(t.r.turns) >= maxTurns {
		clear(t.r.turns)
	}
	t.r.turns[c.Session] = turn{t.id, t.of(root).ID}
	chat := t.add(p, t.of(root).ID, "chat "+c.Model, client, c.Born, c.Ended.Add(time.Millisecond),
		text("gen_ai.operation.name", "chat"), text("gen_ai.system", "openai"), text("gen_ai.request.model", c.Model), text("gen_ai.response.model", c.Model),
		text("gen_ai.conversation.id", session), num("gen_ai.usage.input_tokens", c.Prompt), num("gen_ai.usage.output_tokens", c.Output))
	if c.Outcome != sim.Completed {
		t.fail(chat, "the stream ended early")
		t.fail(root, "the stream ended early")
	}
	from := c.Ended.Add(time.Millisecond)
	for i := range tools {
		name := [...]string{"python", "search", "bash", "edit_file"}[mix(t.key^uint64(i))%4]
		tool := t.add(p, t.of(root).ID, "execute_tool "+name, internal, from, ends[i],
			text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", name), text("gen_ai.tool.call.id", fmt.Sprintf("call_%016x", mix(t.key^uint64(i)<<8))))
		if t.r.chance("tool", t.key^uint64(i), t.r.o.ToolFail) {
			t.fail(tool, "exit status 1")
			t.attr(tool, text("error.type", "ToolError"))
			t.of(tool).Events = []span.Event{{Time: ends[i].Add(p.skew).UnixNano(), Name: "exception", Attrs: []span.Attr{text("exception.type", "ToolError"), text("exception.message", "exit status 1")}}}
		}
		from = ends[i]
	}
	return t.of(chat).ID
}

// vllm renders a call on a vLLM engine: one span that says all in attributes.
func (r *Renderer) vllm(c sim.Call) {
	if c.Received.IsZero() || c.Outcome == sim.Failed && c.First.IsZero() {
		return // the process that would have told died
	}
	key := mix(c.ID ^ uint64(c.Attempt)<<56)
	t := r.trace(fullTrace(c.RID), key)
	p := r.processOf(c.Member, "vllm", "vllm.llm_engine", "", "python", instance(c))
	p.delay = 5 * time.Second
	a := []span.Attr{
		text("gen_ai.response.model", c.Model), text("gen_ai.request.id", "chatcmpl-"+c.RID), float("gen_ai.request.top_p", 0.95), num("gen_ai.request.max_tokens", c.Limit),
		float("gen_ai.request.temperature", 0.7), num("gen_ai.request.n", 1), num("gen_ai.usage.prompt_tokens", c.Prompt), num("gen_ai.usage.completion_tokens", c.Output),
	}
	if !c.Started.IsZero() {
		a = append(a, float("gen_ai.latency.time_in_queue", c.Started.Sub(c.Received).Seconds()))
	}
	if !c.First.IsZero() {
		a = append(a, float("gen_ai.latency.time_to_first_token", c.First.Sub(c.Received).Seconds()), float("gen_ai.latency.time_in_model_prefill", c.First.Sub(c.Started).Seconds()),
			float("gen_ai.latency.time_in_model_decode", c.Ended.Sub(c.First).Seconds()), float("gen_ai.latency.time_in_model_inference", c.Ended.Sub(c.Started).Seconds()))
	}
	a = append(a, float("gen_ai.latency.e2e", c.Ended.Sub(c.Received).Seconds()))
	i := t.add(p, span.ID{}, "llm_request", server, c.Received, c.Ended, a...)
	if c.Outcome == sim.Aborted {
		t.fail(i, "aborted")
	}
	t.export(nil)
}
