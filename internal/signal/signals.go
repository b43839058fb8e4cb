package signal

import (
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// builtinSignals lists every signal, the golden five first.
func builtinSignals() []Signal {
	var all []Signal
	for _, f := range []func() []Signal{goldenSignals} {
		all = append(all, f()...)
	}
	return all
}

// one is a Vec of one term.
func one(metric string, ranks Ranks, match string, parts ...string) Vec {
	return Vec{{Metric: metric, Match: match, Ranks: ranks, Parts: parts}}
}

func goldenSignals() []Signal {
	return []Signal{
		{
			ID: "ttft", Title: "Time to first token", Short: "TTFT", Group: "Golden", Unit: "seconds", Kind: Quantile,
			Meaning: "Time from the arrival of a request at the API server to its first output chunk, once per request.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "engine", Num: one("sglang:time_to_first_token_seconds", RankNone, "")},
				{Backend: engine.VLLM, Name: "engine", Num: one("vllm:time_to_first_token_seconds", RankNone, "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: one("dynamo_frontend_time_to_first_token_seconds", RankNone, "")},
			},
		},
		{
			ID: "throughput", Title: "Generation throughput", Short: "tok/s", Group: "Golden", Unit: "tokens/s", Kind: Rate, Higher: true, Window: time.Minute,
			Meaning: "Output tokens generated per second.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "every decode step", Num: one("sglang:realtime_tokens_total", RankLeader, `mode="decode"`)},
				{Backend: engine.SGLang, Name: "engine's gauge", IsRate: true, Num: one("sglang:gen_throughput", RankLeader, "")},
				{Backend: engine.VLLM, Name: "every step", Num: one("vllm:generation_tokens_total", RankNone, "")},
			},
		},
		{
			ID: "queue_depth", Title: "Queue depth", Short: "Queue", Group: "Golden", Unit: "requests", Kind: Level,
			Meaning: "Requests in the waiting queue.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "waiting queue", Num: one("sglang:num_queue_reqs", RankLeader, `priority=""`)},
				{Backend: engine.VLLM, Name: "waiting queue", Num: one("vllm:num_requests_waiting", RankLeader, "")},
			},
		},
	}
}
