package tailsample

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

// made is a span as a test describes it.
type made struct {
	trace      span.TraceID
	id, parent uint64
	name       string
	start, end int64
	failed     bool
	flags      uint32
	state      string
	attrs      []any // key, value, key, value ...
	events     []string
	links      []span.TraceID
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func id64(v uint64) (b span.ID) {
	binary.BigEndian.PutUint64(b[:], v)
	return b
}

// traceOf is a trace id with an upper half of zero, as SGLang makes them.
func traceOf(v uint64) (t span.TraceID) {
	binary.BigEndian.PutUint64(t[8:], v)
	return t
}

func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		return protowire.AppendString(b, v)
	case bool:
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		return protowire.AppendVarint(b, protowire.EncodeBool(v))
	case int:
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		return protowire.AppendVarint(b, uint64(v))
	case float64:
		b = protowire.AppendTag(b, 4, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, math.Float64bits(v))
	case []any: // a map: key, value ...
		var l []byte
		for i := 0; i < len(v); i += 2 {
			l = protowire.AppendTag(l, 1, protowire.BytesType)
			l = protowire.AppendBytes(l, appendKV(nil, v[i].(string), v[i+1]))
		}
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		return protowire.AppendBytes(b, l)
	}
	panic(fmt.Sprintf("no such value %T", v))
}

func appendKV(b []byte, key string, v any) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendBytes(b, appendAny(nil, v))
}

// wire is the span's protobuf message.
func (m made) wire() []byte {
	var b []byte
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, m.trace[:])
	id := id64(m.id)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, id[:])
	if m.state != "" {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendString(b, m.state)
	}
	if m.parent != 0 {
		p := id64(m.parent)
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = protowire.AppendBytes(b, p[:])
	}
	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = protowire.AppendString(b, m.name)
	b = protowire.AppendTag(b, 6, protowire.VarintType)
	b = protowire.AppendVarint(b, 1)
	b = protowire.AppendTag(b, 7, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, uint64(m.start))
	b = protowire.AppendTag(b, 8, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, uint64(m.end))
	for i := 0; i < len(m.attrs); i += 2 {
		b = protowire.AppendTag(b, 9, protowire.BytesType)
		b = protowire.AppendBytes(b, appendKV(nil, m.attrs[i].(string), m.attrs[i+1]))
	}
	for i, e := range m.events {
		var l []byte
		l = protowire.AppendTag(l, 1, protowire.Fixed64Type)
		l = protowire.AppendFixed64(l, uint64(m.start)+uint64(i))
		l = protowire.AppendTag(l, 2, protowire.BytesType)
		l = protowire.AppendString(l, e)
		b = protowire.AppendTag(b, 11, protowire.BytesType)
		b = protowire.AppendBytes(b, l)
	}
	for _, t := range m.links {
		var l []byte
		l = protowire.AppendTag(l, 1, protowire.BytesType)
		l = protowire.AppendBytes(l, t[:])
		l = protowire.AppendTag(l, 2, protowire.BytesType)
		l = protowire.AppendBytes(l, t[8:])
		b = protowire.AppendTag(b, 13, protowire.BytesType)
		b = protowire.AppendBytes(b, l)
	}
	if m.failed {
		var l []byte
		l = protowire.AppendTag(l, 2, protowire.BytesType)
		l = protowire.AppendString(l, "made to fail")
		l = protowire.AppendTag(l, 3, protowire.VarintType)
		l = protowire.AppendVarint(l, 2)
		b = protowire.AppendTag(b, 15, protowire.BytesType)
		b = protowire.AppendBytes(b, l)
	}
	if m.flags != 0 {
		b = protowire.AppendTag(b, 16, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, m.flags)
	}
	return b
}

// header is what a scan of the wire bytes gives.
func (m made) header() span.Header {
	h := span.Header{Trace: m.trace, ID: id64(m.id), Parent: id64(m.parent), Flags: m.flags, Name: m.name, Kind: 1, Start: m.start, End: m.end, Raw: m.wire()}
	if m.failed {
		h.Status = span.Failed
	}
	return h
}

// resource is the protobuf message of a resource.
func resource(service string, attrs ...any) []byte {
	var b []byte
	attrs = append([]any{"service.name", service}, attrs...)
	for i := 0; i < len(attrs); i += 2 {
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, appendKV(nil, attrs[i].(string), attrs[i+1]))
	}
	return b
}

// scope of one service with spans.
func scope(service string, spans ...made) span.Scope {
	sc := span.Scope{Resource: resource(service, "host.name", "node-a"), Service: service, ScopeName: "synthetic"}
	sc.Scope = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "synthetic")
	for _, m := range spans {
		sc.Spans = append(sc.Spans, m.header())
	}
	return sc
}

// generation makes the spans of one generation as SGLang sends them at level 2: slices first, root last.
// Each span has 20 to 25 attributes, among them a map.
func generation(r *rand.Rand, n uint64, start int64) []made {
	id := traceOf(r.Uint64())
	root := r.Uint64()
	rid := fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	names := []string{"tokenize", "api_server_dispatch", "request_process", "prefill_waiting", "prefill_forward", "decode_waiting", "spec_draft", "spec_verify", "decode_forward"}
	at := start
	common := func(i int) []any {
		return []any{
			"rid", rid, "module", "sglang::request", "host_id", "a1b2c3d4", "pid", 4000 + int(n%64), "thread_label", "Scheduler", "tp_rank", i % 8, "pp_rank", 0, "dp_rank", int(n % 4),
			"batch.id", 100000 + int(n/32), "batch.size", 1 + int(r.Uint64()%64), "forward_mode", "decode", "kv.used", r.Float64(), "tokens.in", int(r.Uint64() % 8192), "tokens.out", int(r.Uint64() % 4096),
			"weight_version", "v" + fmt.Sprint(n/100000), "rollout.step", int(n / 5000), "sample.index", int(n), "engine.instance", fmt.Sprintf("10.0.%d.%d:30000", n%4, n%64),
			"sampling_params", []any{"temperature", 1.0, "top_p", 0.95, "max_new_tokens", 8192, "seed", int(r.Uint64() % 1000000)},
			"spec.accept", r.Float64(), "queue.len", int(r.Uint64() % 200),
		}
	}
	var out []made
	for i, name := range names {
		d := int64(r.ExpFloat64() * 3e7)
		out = append(out, made{trace: id, id: r.Uint64(), parent: root, name: name, start: at, end: at + d, attrs: common(i)})
		at += d
	}
	attrs := append(common(0), "gen_ai.response.model", "acme/chat-7b", "gen_ai.latency.time_to_first_token", float64(out[4].end-start)/1e9, "gen_ai.response.finish_reasons", `["stop"]`, "gen_ai.usage.completion_tokens", 512)
	return append(out, made{trace: id, id: root, name: " Req " + rid[:8], start: start, end: at, attrs: attrs})
}

// nothing observes nothing: for tests of decisions alone.
func nothing([]span.Scope) []request.Observation { return nil }
