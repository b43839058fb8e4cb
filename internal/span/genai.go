package span

import (
	"math"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// number is an attribute that fills a numeric field of an observation, with what makes its unit ours.
type number struct {
	key   string
	scale float64
}

// The spellings of each number, the most trusted first. gen_ai.latency.* and the *_tokens of prompt and
// completion are SGLang's and vLLM's, input and output those of OpenTelemetry's conventions, llm.* those of
// older instrumentations, names without a prefix Dynamo's frontend.
var (
	promptTokens     = []number{{"gen_ai.usage.prompt_tokens", 1}, {"gen_ai.usage.input_tokens", 1}, {"llm.usage.prompt_tokens", 1}, {"llm.token_count.prompt", 1}, {"input_tokens", 1}}
	completionTokens = []number{{"gen_ai.usage.completion_tokens", 1}, {"gen_ai.usage.output_tokens", 1}, {"llm.usage.completion_tokens", 1}, {"llm.token_count.completion", 1}, {"output_tokens", 1}}
	cachedTokens     = []number{{"gen_ai.usage.cached_tokens", 1}, {"gen_ai.usage.cache_read.input_tokens", 1}, {"gen_ai.usage.cache_read_input_tokens", 1}, {"cached_tokens", 1}}
	timeToFirst      = []number{{"gen_ai.latency.time_to_first_token", 1}, {"gen_ai.server.time_to_first_token", 1}, {"gen_ai.response.time_to_first_chunk", 1}, {"ttft_ms", 1e-3}}
	timePerToken     = []number{{"gen_ai.server.time_per_output_token", 1}, {"gen_ai.latency.time_per_output_token", 1}, {"avg_itl_ms", 1e-3}}
	endToEnd         = []number{{"gen_ai.latency.e2e", 1}, {"gen_ai.server.request.duration", 1}}
	inQueue          = []number{{"gen_ai.latency.time_in_queue", 1}}
	inPrefill        = []number{{"gen_ai.latency.time_in_model_prefill", 1}}
	inDecode         = []number{{"gen_ai.latency.time_in_model_decode", 1}}
	transferSpeed    = []number{{"transfer_speed_gb_s", 1}, {"kv_transfer_speed_gb_s", 1}}
	transferSize     = []number{{"transfer_total_mb", 1}, {"kv_transfer_total_mb", 1}}
)

// value reads the first of a number's spellings that the span has.
func (s *Span) value(of []number) request.Value {
	for _, n := range of {
		v, ok := find(s.Attrs, n.key)
		if !ok || v.Str == "" {
			continue
		}
		f, ok := parseFloat(v.Str)
		if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
			return request.Value{State: request.Invalid}
		}
		f *= n.scale
		if f < 0 {
			return request.Value{V: f, State: request.Invalid}
		}
		return request.Value{V: f, State: request.Known}
	}
	return request.Value{}
}

// first is the text of the first of some attributes that the span has.
func (s *Span) first(keys ...string) string {
	for _, k := range keys {
		if v, ok := find(s.Attrs, k); ok && v.Str != "" {
			return v.Str
		}
	}
	return ""
}

// FinishReason reads gen_ai.response.finish_reasons in the forms that are sent: a list, a list as JSON
// text, one word, or SGLang's object {"type":"stop",...}. Several different ones are joined by commas.
func FinishReason(text string) string {
	r := reader{b: bytesOf(text)}
	var out []string
	add := func(s string) {
		if s == "" {
			return
		}
		for _, have := range out {
			if have == s {
				return
			}
		}
		out = append(out, s)
	}
	var one func(depth int)
	one = func(depth int) {
		switch c := r.peek(); {
		case c == '"':
			add(r.text())
		case c == '{':
			for ok := r.open('{'); ok; ok = r.more('}') {
				if key := r.key(); key == "type" && r.peek() == '"' {
					add(r.text())
				} else {
					r.skip()
				}
			}
		case c == '[' && depth < 3:
			for ok := r.open('['); ok; ok = r.more(']') {
				one(depth + 1)
			}
		default:
			r.skip()
		}
	}
	one(0)
	if r.end(); r.err != nil {
		return strings.TrimSpace(text)
	}
	return strings.Join(out, ",")
}

// finishReason is how the span says that its generation ended, "" when it does not.
func (s *Span) finishReason() string {
	v := s.first("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason", "finish_reason")
	if v == "" {
		return ""
	}
	return FinishReason(v)
}

// Finish tells from an attribute of a span whether its generation has ended, and how; "" when key is
// about something else. Sampling uses it before a trace is put together.
func Finish(key string, v Value) string {
	switch key {
	case "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason", "finish_reason":
		return FinishReason(v.Str)
	}
	return ""
}

// SessionKeys are attributes that name a conversation or an agent's run, the surest first. Traces with an
// equal one belong together.
func SessionKeys() []string { return append([]string(nil), sessionKeys[:]...) }

// IsSessionKey tells whether an attribute names a conversation or an agent's run.
func IsSessionKey(key string) bool {
	for _, k := range sessionKeys {
		if k == key {
			return true
		}
	}
	return false
}

// Session is the conversation or agent's run that a trace belongs to, "" when nothing says so.
func (t *Tree) Session() string {
	for _, k := range sessionKeys {
		for i := range t.Nodes {
			if s := t.Of(i); s != nil {
				if v, ok := find(s.Attrs, k); ok && v.Str != "" {
					return v.Str
				}
			}
		}
	}
	return ""
}

// streaming reads whether the answer was streamed, nil when nothing says so.
func (s *Span) streaming() *bool {
	v, err := strconv.ParseBool(s.first("gen_ai.request.stream", "gen_ai.request.streaming", "stream", "is_streaming", "streaming"))
	if err != nil {
		return nil
	}
	return &v
}
