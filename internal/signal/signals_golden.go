package signal

import (
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// goldenSignals are the five numbers of the on-call round.
func goldenSignals() []Signal {
	const group = "Golden"
	return []Signal{
		{
			ID: "ttft", Title: "Time to first token", Short: "TTFT", Group: group, Unit: "seconds", Kind: Quantile, Roles: generating(),
			Meaning: "Receipt of a request by the API server to its first output chunk, once per request.",
			Trap:    "For requests that do not stream (most RL rollouts) it is the time of 50 tokens or of the whole answer. A PD prefill engine never observes it. SGLang has no bound under 100 ms by default.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "engine", Since: "0.3.5.post1", Num: whole("sglang:time_to_first_token_seconds", "")},
				{Backend: engine.VLLM, Name: "engine", Num: whole("vllm:time_to_first_token_seconds", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_time_to_first_token_seconds", "")},
			},
		},
		{
			ID: "itl", Title: "Inter-token latency (TPOT)", Short: "ITL", Group: group, Unit: "seconds", Kind: Quantile, Roles: generating(),
			Meaning: "Time between two output tokens of a request, once per token.",
			Trap:    "SGLang divides the gap between two chunks by the tokens in the chunk, so a stall hides behind the tokens that arrive together; without streaming it is an average over 50 tokens.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "inter_token_latency", Since: "0.4.3.post3", Num: whole("sglang:inter_token_latency_seconds", "")},
				{Backend: engine.SGLang, Name: "time_per_output_token", Since: "0.3.5.post1", Num: whole("sglang:time_per_output_token_seconds", "")},
				{Backend: engine.VLLM, Name: "inter_token_latency", Since: "0.10.2", Num: whole("vllm:inter_token_latency_seconds", "")},
				{Backend: engine.VLLM, Name: "time_per_output_token", Num: whole("vllm:time_per_output_token_seconds", "")},
				{
					Backend: engine.VLLM, Name: "request_time_per_output_token", Since: "0.11", Caveat: "the mean of each request: stalls are averaged away",
					Num: whole("vllm:request_time_per_output_token_seconds", ""),
				},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_inter_token_latency_seconds", "")},
			},
		},
		{
			ID: "throughput", Title: "Generation throughput", Short: "tok/s", Group: group, Unit: "tokens/s", Kind: Rate, Higher: true,
			Window: time.Minute, Roles: generating(),
			Meaning: "Output tokens generated per second, as they are generated.",
			Trap:    "generation_tokens_total counts a request's tokens when it finishes: during long rollouts its rate reads 0 and then jumps.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "realtime_tokens", Since: "0.5.7", Num: leader("sglang:realtime_tokens_total", `mode="decode"`)},
				{Backend: engine.SGLang, Name: "gen_throughput", Since: "0.3.5.post1", Caveat: caveatGauge, Num: Vec{{Metric: "sglang:gen_throughput", Ranks: RankLeader, As: AsLevel}}},
				{Backend: engine.SGLang, Name: "generation_tokens", Caveat: caveatAtFinish, Num: whole("sglang:generation_tokens_total", "")},
				{Backend: engine.VLLM, Name: "generation_tokens", Num: whole("vllm:generation_tokens_total", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_output_tokens_total", "")},
			},
		},
		{
			ID: "cache_hit_rate", Title: "Prefix cache hit rate", Short: "Hit rate", Group: group, Unit: "ratio", Kind: Share, Higher: true, Roles: prefilling(),
			Meaning: "Share of prompt tokens that were served from a cache instead of being computed.",
			Trap:    "The gauge of that name is of the last prefill batch and every decode report sets it to 0; it is used only where no counter exists.",
			Sources: []Source{
				{
					Backend: engine.SGLang, Name: "prefill_effective_tokens", Since: "2026-08-05", Lazy: true,
					Num: leader("sglang:prefill_effective_tokens_total", `mode=~"device_hit|host_hit|storage_hit"`, "mode"),
					Den: leader("sglang:prefill_effective_tokens_total", "", "mode"),
				},
				{
					Backend: engine.SGLang, Name: "realtime_tokens", Since: "0.5.7", Lazy: true, Caveat: "what a retraction repeats is counted again",
					Num: leader("sglang:realtime_tokens_total", `mode="prefill_cache"`),
					Den: leader("sglang:realtime_tokens_total", `mode=~"prefill_cache|prefill_compute"`, "mode"),
				},
				{
					Backend: engine.SGLang, Name: "cached_tokens", Since: "0.4.3.post4", Lazy: true, Caveat: caveatAtFinish,
					Num: whole("sglang:cached_tokens_total", ""), Den: whole("sglang:prompt_tokens_total", ""),
				},
				{Backend: engine.SGLang, Name: "cache_hit_rate gauge", Since: "0.3.5.post1", Caveat: caveatLastBatch, Num: leader("sglang:cache_hit_rate", "")},
				{
					Backend: engine.VLLM, Name: "prompt_tokens_cached", Since: "2026-02",
					Num: whole("vllm:prompt_tokens_cached_total", ""), Den: whole("vllm:prompt_tokens_total", ""),
				},
				{
					Backend: engine.VLLM, Name: "prefix_cache", Since: "0.9.2", Caveat: "a request that cannot be scheduled is looked up again at every step",
					Num: whole("vllm:prefix_cache_hits_total", ""), Den: whole("vllm:prefix_cache_queries_total", ""),
				},
				{
					Backend: engine.VLLM, Name: "gpu_prefix_cache",
					Num: whole("vllm:gpu_prefix_cache_hits_total", ""), Den: whole("vllm:gpu_prefix_cache_queries_total", ""),
				},
				{
					Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true,
					Num: whole("dynamo_frontend_cached_tokens_sum", ""), Den: whole("dynamo_frontend_input_sequence_tokens_sum", ""),
				},
			},
		},
		{
			ID: "queue_depth", Title: "Queue depth", Short: "Queue", Group: group, Unit: "requests", Kind: Level,
			Meaning: "Requests in the waiting queue of the scheduler.",
			Trap:    "Requests that wait for their grammar, for a PD handshake, a KV slot or a KV transfer are in queues of their own: see grammar_queue, pd_bootstrap_queue, pd_decode_prealloc and pd_decode_transfer.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "waiting queue", Num: leader("sglang:num_queue_reqs", total)},
				{Backend: engine.VLLM, Name: "waiting queue", Num: leader("vllm:num_requests_waiting", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Caveat: "requests from arrival to first token", Num: whole("dynamo_frontend_queued_requests", "")},
			},
		},
	}
}
