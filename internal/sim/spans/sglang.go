package spans

import (
	"fmt"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// sglang renders a call on an SGLang engine and, with the call that the client waits for, what is in front of
// it: its router, Dynamo's frontend and worker, or an agent.
func (r *Renderer) sglang(c sim.Call) {
	if c.Received.IsZero() || c.Started.IsZero() && c.Outcome == sim.Failed {
		if c.Role != engine.Prefill {
			r.unserved(c)
		}
		return
	}
	key := mix(c.ID ^ uint64(c.Attempt)<<56)
	half := c.Role == engine.Prefill // the client waits for the other half
	split := c.Room != 0 && c.FrontKind != sim.DynamoFrontend && r.chance("split", c.ID, r.o.Split)
	id := lowTrace(key ^ r.o.Seed)
	if c.FrontKind == sim.DynamoFrontend {
		id = fullTrace(c.RID)
	}
	if half && split {
		id = lowTrace(key ^ r.o.Seed ^ 1)
	}
	var parent span.ID
	front := r.trace(id, key)
	switch {
	case split:
	case c.FrontKind == sim.DynamoFrontend:
		parent = front.dynamo(c)
	case c.FrontKind == sim.Router:
		parent = front.router(c)
	case c.Session != 0 && c.Front == "" && r.chance("agent", c.Session, r.o.Agents):
		parent = front.agent(c)
	}
	t := r.trace(id, key^hashOf(c.Member))
	if parent != (span.ID{}) && r.chance("broken", key, r.o.Broken) { // the context is lost on the way
		t.id, parent = lowTrace(key^r.o.Seed^2), span.ID{}
	}
	lost := t.engine(c, parent)
	if !half {
		front.export(nil)
	}
	t.export(lost)
	if r.o.Mooncake && half && !c.Sent.IsZero() && !old(c.Version) {
		r.mooncake(c, key)
	}
}

// unserved is a request that no engine worked on: only the frontend knows of it.
func (r *Renderer) unserved(c sim.Call) {
	key := mix(c.ID ^ uint64(c.Attempt)<<56)
	switch c.FrontKind {
	case sim.DynamoFrontend:
		t := r.trace(fullTrace(c.RID), key)
		t.dynamo(c)
		t.export(nil)
	case sim.Router:
		if c.Room != 0 && r.chance("split", c.ID, r.o.Split) {
			return // a router without tracing
		}
		t := r.trace(lowTrace(key^r.o.Seed), key)
		t.router(c)
		t.export(nil)
	}
}

// engine makes the spans of an SGLang engine, and says which of them nobody exports.
func (t *trace) engine(c sim.Call, parent span.ID) (lost map[int]bool) {
	r := t.r
	p := r.processOf(c.Member, "sglang", "sglang server", "", "python", instance(c))
	level, before := r.o.Level, old(c.Version)
	role := map[engine.Role]string{engine.Prefill: "prefill", engine.Decode: "decode"}[c.Role]
	if before { // 0.5.4 to 0.5.9 put a span of the room above
		parent = t.of(t.add(p, parent, "Bootstrap Room "+room(c.Room), 1, c.Received, c.Ended, text("bootstrap_room", room(c.Room)))).ID
	}
	name := role + " Req " + c.RID[:8]
	if before {
		name = "Req " + c.RID[:8]
	}
	root := t.add(p, parent, name, 1, c.Received, c.Ended, t.requestAttrs(c)...)
	me := t.of(root).ID
	host := fmt.Sprintf("%08x", uint32(mix(hashOf(c.Addr))))
	thread := func(label string, from, to time.Time, pid int) int {
		full := label
		if role != "" && !before {
			full = strings.ToUpper(role[:1]) + role[1:] + " " + label
		}
		name := full
		if label == "Scheduler" {
			name += " [TP 0]"
			if c.DP > 1 {
				name += fmt.Sprintf(" [DP %d]", c.Rank)
			}
		}
		name += fmt.Sprintf("(host:%s | pid:%d)", host, pid)
		a := []span.Attr{text("host_id", host), num("pid", pid), text("thread_label", full)}
		if label == "Scheduler" {
			a = append(a, num("tp_rank", 0), num("pp_rank", 0))
			if c.DP > 1 {
				a = append(a, num("dp_rank", c.Rank))
			}
		}
		return t.add(p, me, name, 1, from, to, a...)
	}
	previous := -1
	slice := func(above int, name string, from, to time.Time, attrs ...span.Attr) int {
		if from.IsZero() || to.IsZero() || to.Before(from) {
			return -1
		}
		i := t.add(p, t.of(above).ID, name, 1, from, to, attrs...)
		if previous >= 0 && !before {
			t.of(i).Links = []span.Link{{Trace: t.id, ID: t.of(previous).ID}}
		}
		previous = i
		return i
	}
	first := func(times ...time.Time) time.Time {
		for _, at := range times {
			if !at.IsZero() {
				return at
			}
		}
		return c.Ended
	}

	tokenized := c.Received.Add(time.Duration(200+c.Prompt/8) * time.Microsecond)
	if entered := first(c.Queued, c.Granted, c.Ended); tokenized.After(entered) {
		tokenized = entered
	}
	dispatched := tokenized.Add(150 * time.Microsecond)
	tok := thread("Tokenizer", c.Received, c.Ended, c.PID)
	slice(tok, "tokenize", c.Received, tokenized)
	switch {
	case before:
		slice(tok, "dispatch", tokenized, dispatched)
	case level >= 2:
		slice(tok, "api_server_dispatch", tokenized, dispatched)
	}
	sched := thread("Scheduler", dispatched, c.Ended, c.PID+3+c.Rank)
	if level >= 2 {
		slice(sched, "request_process", dispatched, dispatched.Add(90*time.Microsecond))
	}
	begin := dispatched.Add(90 * time.Microsecond)
	switch c.Role {
	case engine.Prefill:
		slice(sched, "prefill_prepare", begin, begin.Add(200*time.Microsecond))
		slice(sched, "prefill_bootstrap", begin.Add(200*time.Microsecond), first(c.Queued))
		slice(sched, "prefill_waiting", c.Queued, first(c.Started))
		t.prefill(c, p, sched, slice, first(c.Sent), level)
		slice(sched, "prefill_transfer_kv_cache", c.Sent, c.Ended)
	case engine.Decode:
		slice(sched, "decode_prepare", begin, first(c.Granted))
		slice(sched, "decode_bootstrap", c.Granted, c.Granted.Add(3*time.Millisecond))
		if !c.Granted.IsZero() {
			slice(sched, "decode_transferred", c.Granted.Add(3*time.Millisecond), first(c.Arrived))
		}
		slice(sched, "decode_waiting", c.Queued, first(c.Started))
		t.decode(c, p, sched, slice, level)
	default:
		slice(sched, "prefill_waiting", first(c.Queued), first(c.Started))
		t.prefill(c, p, sched, slice, first(c.First), level)
		t.decode(c, p, sched, slice, level)
	}
	switch c.Outcome {
	case sim.Aborted:
		for _, i := range []int{tok, sched} {
			t.fail(i, "")
			t.attr(i, text("type", "abort"), text("message", "Client disconnected"), num("status_code", 499))
		}
	case sim.Failed:
		if c.Room != 0 {
			t.fail(sched, "")
			t.attr(sched, text("type", "abort"), text("message", "KVTransferError: KV transfer failed"), num("status_code", 500))
		} else { // the process died: what was open was never exported, so its children have no parents
			lost = map[int]bool{root: true, tok: true, sched: true}
			for i := range t.spans {
				if t.of(i).End >= c.Ended.Add(p.skew).UnixNano() {
					lost[i] = true
				}
			}
		}
	}
	if lost == nil && r.chance("orphan", t.key, r.o.Orphans) {
		lost = map[int]bool{sched: true}
	}
	return lost
}

// requestAttrs are what SGLang puts on the root of a request.
func (t *trace) requestAttrs(c sim.Call) []span.Attr {
	a := []span.Attr{text("rid", c.RID), text("module", "sglang::request")}
	if c.Room != 0 {
		a = append(a, text("bootstrap_room", room(c.Room)))
	}
	if c.Started.IsZero() {
		return a
	}
	reason := `{"type": "stop", "matched": 151645}`
	switch {
	case c.Outcome == sim.Aborted:
		reason = `{"type": "abort", "message": "Client disconnected"}`
	case c.Outcome == sim.Failed:
		reason = `{"type": "abort", "message": "KV transfer failed", "status_code": 500}`
	case c.Output >= c.Limit:
		reason = fmt.Sprintf(`{"type": "length", "length": %d}`, c.Limit)
	}
	a = append(a,
		num("gen_ai.usage.completion_tokens", c.Output), num("gen_ai.usage.prompt_tokens", c.Prompt), num("gen_ai.usage.cached_tokens", c.Cached),
		text("gen_ai.request.id", c.RID), num("gen_ai.request.max_tokens", c.Limit), float("gen_ai.request.top_p", 0.95), num("gen_ai.request.n", 1),
		text("gen_ai.response.model", c.Model), text("gen_ai.response.finish_reasons", "["+reason+"]"))
	if !c.First.IsZero() {
		a = append(a, float("gen_ai.latency.time_to_first_token", c.First.Sub(c.Received).Seconds()), float("gen_ai.latency.time_in_model_prefill", c.First.Sub(c.Started).Seconds()))
		if !silent(c.Version) {
			a = append(a, float("gen_ai.latency.e2e", c.Ended.Sub(c.Received).Seconds()), float("gen_ai.latency.time_in_model_decode", c.Ended.Sub(c.First).Seconds()),
				float("gen_ai.latency.time_in_model_inference", c.Ended.Sub(c.Started).Seconds()))
		}
	}
	return a
}

type slicer func(above int, name string, from, to time.Time, attrs ...span.Attr) int

// prefill makes the forward passes of the prompt.
func (t *trace) prefill(c sim.Call, p process, sched int, slice slicer, to time.Time, level int) {
	if c.Started.IsZero() {
		return
	}
	if level >= 3 && c.Chunks > 1 {
		step := to.Sub(c.Started) / time.Duration(c.Chunks)
		for i := range c.Chunks - 1 {
			slice(sched, "chunked_prefill", c.Started.Add(step*time.Duration(i)), c.Started.Add(step*time.Duration(i+1)))
		}
	}
	i := slice(sched, "prefill_forward", c.Started, to)
	if level >= 3 && i >= 0 {
		t.of(i).Events = append(t.of(i).Events, t.scheduled(c, p, c.Started, "prefill"))
	}
	if level >= 4 && i >= 0 {
		slice(sched, "run_batch_cpu", c.Started, c.Started.Add(to.Sub(c.Started)/5))
	}
}

func (t *trace) scheduled(c sim.Call, p process, at time.Time, mode string) span.Event {
	return span.Event{Time: at.Add(p.skew).UnixNano(), Name: "schedule", Attrs: []span.Attr{
		num("bid", int(mix(t.key)%1_000_000)), num("batch_size", 1+int(mix(t.key^3)%64)), text("forward_mode", mode),
	}}
}

// decode makes the decoding, with its retractions.
func (t *trace) decode(c sim.Call, p process, sched int, slice slicer, level int) {
	if c.First.IsZero() {
		return
	}
	from := c.First
	if c.Role != engine.Decode && c.Kind != sim.VLLM && !old(c.Version) {
		slice(sched, "decode_waiting", from, from.Add(400*time.Microsecond))
		from = from.Add(400 * time.Microsecond)
	}
	if from.After(c.Ended) {
		from = c.Ended
	}
	thrown := c.Retracted
	for k := 0; ; k++ {
		to, again := c.Ended, time.Time{}
		if k < len(thrown) {
			to = thrown[k]
			if k < len(c.Resumed) {
				again = c.Resumed[k]
			}
		}
		if to.Before(from) {
			to = from
		}
		i := -1
		if !old(c.Version) {
			i = slice(sched, "decode_forward", from, to)
		}
		if k < len(thrown) && i >= 0 {
			t.of(i).Events = append(t.of(i).Events, span.Event{Time: to.Add(p.skew).UnixNano(), Name: "retract"})
		}
		t.steps(c, sched, slice, from, to, level)
		if k >= len(thrown) || again.IsZero() {
			return
		}
		slice(sched, "prefill_waiting", to, again)
		from = again
	}
}

// steps makes one span for each decode step, and those of speculative decoding.
func (t *trace) steps(c sim.Call, sched int, slice slicer, from, to time.Time, level int) {
	loops := level >= 3
	drafts := c.Accepted > 0 && level >= 2
	if !loops && !drafts || !to.After(from) {
		return
	}
	all := c.Ended.Sub(c.First)
	if all <= 0 {
		return
	}
	tokens := max(c.Output-1, 1)
	if c.Accepted > 0 {
		tokens = max(int(float64(tokens)/c.Accepted), 1)
	}
	n := int(float64(tokens) * float64(to.Sub(from)) / float64(all))
	for i := range n {
		a := from.Add(to.Sub(from) * time.Duration(i) / time.Duration(n))
		b := from.Add(to.Sub(from) * time.Duration(i+1) / time.Duration(n))
		if drafts {
			mid := a.Add(b.Sub(a) / 3)
			slice(sched, "spec_draft", a, mid)
			slice(sched, "spec_verify", mid, b, num("num_correct_drafts", int(c.Accepted)), num("accepted_tokens", int(c.Accepted)))
		}
		if loops {
			slice(sched, "decode_loop", a, b, num("decode_ct", i+1))
		}
	}
}

// mooncake are the spans of the transfer engine, which are a trace of their own.
func (r *Renderer) mooncake(c sim.Call, key uint64) {
	t := r.trace(lowTrace(key^r.o.Seed^7), key^hashOf("mooncake"))
	p := r.processOf(c.Member, "sglang", "sglang server", "", "python", instance(c))
	root := t.add(p, span.ID{}, "mooncake_send", 1, c.Sent, c.Ended, text("module", "sglang::mooncake"), text("bootstrap_room", room(c.Room)))
	t.add(p, t.of(root).ID, "mooncake_worker_send", 1, c.Sent, c.Ended, float("bytes", c.KVBytes))
	t.export(nil)
}
