package rolls

import (
	"encoding/hex"
	"math"
	"math/rand/v2"

	"github.com/rollscope/rollscope/torchfile"
)

// The names that slime gives to what an engine says about a request's phases (trace_utils.py), in the
// order in which it lays them out, one after the other.
var prefillSegments = [...]segment{
	{pBootQueue, "pd_prefill_bootstrap_queue_duration", "sglang_pd_prefill_bootstrap_queue"},
	{pBoot, "pd_prefill_bootstrap_duration", "sglang_pd_prefill_bootstrap"},
	{pAlloc, "pd_prefill_alloc_wait_duration", "sglang_pd_prefill_alloc_wait"},
	{pForward, "pd_prefill_forward_duration", "sglang_pd_prefill_forward"},
	{pTransferQueue, "pd_prefill_transfer_queue_duration", "sglang_pd_prefill_transfer_queue"},
}

var decodeSegments = [...]segment{
	{dPrealloc, "pd_decode_prealloc_duration", "sglang_pd_decode_prealloc"},
	{dBoot, "pd_decode_bootstrap_duration", "sglang_pd_decode_bootstrap"},
	{dAlloc, "pd_decode_alloc_wait_duration", "sglang_pd_decode_alloc_wait"},
	{dTransfer, "pd_decode_transfer_duration", "sglang_pd_decode_transfer"},
	{dForward, "pd_decode_forward_duration", "sglang_pd_decode_forward"},
}

type segment struct {
	phase      int
	attr, span string
}

var toolNames = [...]string{"python", "bash", "search"}

// carrier writes the trace of one sample: slime's dict of version, trace_id, events and the ids.
type carrier struct {
	w       *torchfile.Writer
	stats   *Stats
	o       *Options
	base    float64 // of the times, seconds since 1970
	ids     *rand.Rand
	hex     [32]byte
	index   int
	group   int // -1: None
	attempt int
	id      torchfile.Ref
	open    int
}

// uuid writes a random version 4 UUID in hexadecimal without dashes.
func (c *carrier) uuid() torchfile.Ref {
	return c.w.StrRef(string(c.newID()))
}

func (c *carrier) newID() []byte {
	var b [16]byte
	for i, x := range [2]uint64{c.ids.Uint64(), c.ids.Uint64()} {
		for k := range 8 {
			b[8*i+k] = byte(x >> (8 * k))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	hex.Encode(c.hex[:], b[:])
	return c.hex[:]
}

// begin opens an event and writes what every event has.
func (c *carrier) begin(kind, name string, t float64) {
	w := c.w
	c.stats.Events++
	w.BeginDict()
	w.Key("type")
	w.Shared(kind)
	w.Key("name")
	w.Shared(name)
	w.Key("ts")
	w.Float(c.base + t)
	w.Key("trace_id")
	w.Again(c.id)
	w.Key("sample_id")
	w.Int(int64(c.index))
	w.Key("group_id")
	c.groupID()
	w.Key("attempt")
	w.Int(int64(c.attempt))
}

func (c *carrier) groupID() {
	if c.group < 0 {
		c.w.None()
	} else {
		c.w.Int(int64(c.group))
	}
}

const noParent torchfile.Ref = -1

func (c *carrier) parent(r torchfile.Ref) {
	if r != noParent {
		c.w.Key("parent_span_id")
		c.w.Again(r)
	}
}

// attrs writes an event's attributes, when there are any, and closes it.
func (c *carrier) attrs(fill func(w *torchfile.Writer)) {
	if fill != nil {
		c.w.Key("attrs")
		c.w.BeginDict()
		fill(c.w)
		c.w.EndDict()
	}
	c.w.EndDict()
}

func (c *carrier) start(name string, t float64, parent torchfile.Ref, fill func(w *torchfile.Writer)) torchfile.Ref {
	c.begin("span_start", name, t)
	c.w.Key("span_id")
	id := c.uuid()
	c.parent(parent)
	c.attrs(fill)
	c.open++
	return id
}

func (c *carrier) end(name string, t float64, id torchfile.Ref, fill func(w *torchfile.Writer)) {
	c.begin("span_end", name, t)
	c.w.Key("span_id")
	c.w.Again(id)
	c.attrs(fill)
	c.open--
}

func (c *carrier) point(name string, t float64, parent torchfile.Ref, fill func(w *torchfile.Writer)) {
	c.begin("event", name, t)
	c.parent(parent)
	c.attrs(fill)
}

func keyInt(w *torchfile.Writer, k string, v int)       { w.Key(k); w.Int(int64(v)) }
func keyFloat(w *torchfile.Writer, k string, v float64) { w.Key(k); w.Float(v) }
func keyWord(w *torchfile.Writer, k, v string)          { w.Key(k); w.Shared(v) }

// trace writes the carrier of a sample.
func (c *carrier) trace(s *sample, source string) {
	w := c.w
	c.attempt, c.open = 0, 0
	w.BeginDict()
	keyInt(w, "version", 1)
	w.Key("trace_id")
	c.id = c.uuid()
	w.Key("events")
	w.BeginList()
	for i := range s.passes {
		p := &s.passes[i]
		if i == 0 {
			c.point("data_source_create", p.groupStart-50e-6, noParent, func(w *torchfile.Writer) {
				keyInt(w, "rollout_id", p.rollout)
				keyWord(w, "source", source)
			})
		}
		c.pass(s, p)
	}
	w.EndList()
	keyInt(w, "sample_id", c.index)
	w.Key("group_id")
	c.groupID()
	keyInt(w, "attempt", c.attempt)
	w.EndDict()
	c.stats.OpenSpans += c.open
}

func (c *carrier) pass(s *sample, p *pass) {
	if !math.IsNaN(p.dequeued) {
		c.point("buffer_dequeue", p.dequeued, noParent, func(w *torchfile.Writer) { keyInt(w, "rollout_id", p.rollout) })
		if p.resumed {
			c.next("partial_rollout", p.dequeued+10e-6, noParent, p.rollout, p.responseAtResume)
		}
	}
	group := noParent
	if !c.o.Eval {
		group = c.start("generate_and_rm_group", p.groupStart, noParent, func(w *torchfile.Writer) { keyInt(w, "group_size", c.o.GroupSize) })
	}
	rm := c.start("generate_and_rm", p.start, group, nil)
	restarts := p.restarts
	for i := range p.requests {
		q := &p.requests[i]
		if q.fresh {
			c.next("engine_restart", restarts[0], rm, p.rollout, 0)
			restarts = restarts[1:]
		}
		c.request(s, q, rm)
	}
	if !math.IsNaN(p.rewardStart) {
		id := c.start("reward_model", p.rewardStart, rm, nil)
		c.end("reward_model", p.rewardEnd, id, nil)
	}
	c.end("generate_and_rm", p.end, rm, nil)
	if !c.o.Eval {
		c.end("generate_and_rm_group", p.groupEnd, group, nil)
	}
	if !math.IsNaN(p.enqueued) {
		c.point("buffer_enqueue", p.enqueued, noParent, func(w *torchfile.Writer) {
			keyWord(w, "status", p.enqueuedStatus)
			keyInt(w, "response_length", p.responseAtEnd)
		})
	}
}

// next begins the sample's next attempt, as trace_next_attempt does.
func (c *carrier) next(reason string, t float64, parent torchfile.Ref, rollout, response int) {
	c.attempt++
	c.point("attempt_start", t, parent, func(w *torchfile.Writer) {
		keyInt(w, "attempt", c.attempt)
		keyWord(w, "reason", reason)
		keyInt(w, "rollout_id", rollout)
		keyInt(w, "response_length", response)
	})
}

func (c *carrier) request(s *sample, q *request, parent torchfile.Ref) {
	c.stats.Requests++
	name := "sglang_generate"
	if c.o.Streaming {
		name = "sglang_generate_stream"
	}
	id := c.start(name, q.start, parent, func(w *torchfile.Writer) {
		keyInt(w, "max_new_tokens", q.maxNew)
		if len(s.turns) > 1 {
			keyInt(w, "turn", q.turn)
		}
	})
	if c.o.PD {
		c.children(q, id)
	}
	c.end(name, q.end, id, func(w *torchfile.Writer) {
		keyInt(w, "prompt_tokens", q.prompt)
		keyInt(w, "completion_tokens", q.completion)
		keyInt(w, "cached_tokens", q.cached)
		keyFloat(w, "queue_time", q.queue)
		keyFloat(w, "e2e_latency", q.e2e)
		if !math.IsNaN(q.throughput) {
			keyFloat(w, "decode_throughput", q.throughput)
		}
		keyWord(w, "finish_reason", finishNames[q.finish])
		w.Key("sglang_request_id")
		w.StrRef(string(c.newID()))
	})
	if q.tool != nil {
		c.tool(q, parent)
	}
}

// children lays a request's phases out as slime does: end to end from the span's start, a phase after
// the one that holds it, decode after prefill. Where they really were follows from the durations.
func (c *carrier) children(q *request, parent torchfile.Ref) {
	cursor := 0.0
	for _, side := range [...]struct {
		span, label string
		segments    []segment
	}{{"sglang_pd_prefill", "prefill", prefillSegments[:]}, {"sglang_pd_decode", "decode", decodeSegments[:]}} {
		sum := 0.0
		for _, g := range side.segments {
			sum += max(q.phase[g.phase], 0)
		}
		if sum == 0 {
			continue
		}
		start := q.start + cursor
		id := c.start(side.span, start, parent, nil)
		at := 0.0
		for _, g := range side.segments {
			d := q.phase[g.phase]
			if d <= 0 {
				continue
			}
			child := c.start(g.span, start+at, id, nil)
			at += d
			c.end(g.span, start+at, child, func(w *torchfile.Writer) { keyFloat(w, g.attr, d) })
		}
		c.end(side.span, start+sum, id, func(w *torchfile.Writer) {
			keyWord(w, "phase", side.label)
			keyFloat(w, "duration_s", sum)
		})
		cursor += sum
	}
	c.point("sglang_pd_summary", q.start+cursor, parent, func(w *torchfile.Writer) {
		if q.megabytes > 0 {
			keyFloat(w, "pd_transfer_speed_gb_s", q.speed)
			keyFloat(w, "pd_transfer_total_mb", q.megabytes)
		}
		keyInt(w, "pd_prefill_retry_count", q.retries)
	})
}

// tool writes a tool's call. A call that is cancelled at its time-out leaves its spans open, since
// slime's trace_span does not see the cancellation.
func (c *carrier) tool(q *request, parent torchfile.Ref) {
	t := q.tool
	name := toolNames[t.kind]
	call := c.start("tool_call", t.start, parent, func(w *torchfile.Writer) {
		keyWord(w, "tool", name)
		keyInt(w, "turn", q.turn)
		w.Key("args")
		w.BeginDict()
		keyWord(w, "code", "print(sum(1 for _ in candidates()))")
		keyInt(w, "timeout_s", int(toolTimeout))
		w.EndDict()
	})
	exec := c.start("sandbox_exec", t.start, call, func(w *torchfile.Writer) {
		w.Key("container")
		w.Str("sbx-" + string(c.newID()[:6]))
	})
	end := t.end
	switch t.outcome {
	case toolHang:
		c.point("tool_timeout", end, parent, func(w *torchfile.Writer) {
			keyInt(w, "turn", q.turn)
			keyWord(w, "tool", name)
			keyFloat(w, "timeout_s", toolTimeout)
		})
	case toolError:
		fail := func(w *torchfile.Writer) {
			keyWord(w, "error_type", "ToolError")
			keyWord(w, "error_message", "sandbox exited with code 137: out of memory")
		}
		c.end("sandbox_exec", end-2e-6, exec, fail)
		c.end("tool_call", end-1e-6, call, fail)
		c.point("tool_error", end, parent, func(w *torchfile.Writer) {
			keyInt(w, "turn", q.turn)
			keyWord(w, "error", "sandbox exited with code 137: out of memory")
		})
	default:
		c.end("sandbox_exec", end-2e-6, exec, func(w *torchfile.Writer) { keyInt(w, "exit_code", 0) })
		c.end("tool_call", end-1e-6, call, func(w *torchfile.Writer) {
			keyInt(w, "response_length", t.tokens)
			keyInt(w, "stdout_bytes", 4*t.tokens)
		})
		c.point("tool_result_complete", end, parent, func(w *torchfile.Writer) {
			keyInt(w, "turn", q.turn)
			keyWord(w, "tool", name)
			keyInt(w, "response_length", t.tokens)
			w.Key("ok")
			w.Bool(true)
		})
	}
}
