package signal

import "github.com/rollscope/rollscope/internal/engine"

// schedulerSignals are about speculative decoding, experts and the scheduler itself.
func schedulerSignals() []Signal {
	const spec, moe, sched = "Speculative decoding", "MoE", "Scheduler"
	return []Signal{
		{
			ID: "spec_accept_length", Title: "Accepted length", Short: "Accept len", Group: spec, Unit: "tokens", Kind: Worst, Higher: true, Roles: generating(),
			Meaning: "Tokens per verification step, the bonus token included; of a group the lowest engine's.",
			Trap:    "SGLang's gauge is 0 when speculative decoding is off; such engines are left out.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "spec_accept_length", Since: "0.4.1.post7", Num: Vec{{Metric: "sglang:spec_accept_length", Ranks: RankLeader, OnlyIf: "sglang:spec_accept_length"}}},
			},
		},
		{
			ID: "spec_accept_rate", Title: "Acceptance rate", Short: "Accept", Group: spec, Unit: "ratio", Kind: Share, Higher: true, Roles: generating(),
			Meaning: "Accepted share of the proposed draft tokens.",
			Trap:    "SGLang's is a gauge of one log interval, so of several engines it is their mean; engines without speculative decoding are left out.",
			Sources: []Source{
				{
					Backend: engine.SGLang, Name: "spec_accept_rate", Since: "0.5.3.post2", Caveat: "of the last log interval",
					Num: Vec{{Metric: "sglang:spec_accept_rate", Ranks: RankLeader, OnlyIf: "sglang:spec_accept_length"}},
				},
				{
					Backend: engine.VLLM, Name: "accepted over drafted",
					Num: whole("vllm:spec_decode_num_accepted_tokens_total", ""), Den: whole("vllm:spec_decode_num_draft_tokens_total", ""),
				},
			},
		},
		{
			ID: "spec_accepted_per_draft", Title: "Accepted tokens per draft", Short: "Per draft", Group: spec, Unit: "tokens", Kind: Share, Higher: true, Roles: generating(),
			Meaning: "Accepted draft tokens per draft, the bonus token left out: add 1 for the accepted length.",
			Sources: []Source{{
				Backend: engine.VLLM, Name: "accepted over drafts",
				Num: whole("vllm:spec_decode_num_accepted_tokens_total", ""), Den: whole("vllm:spec_decode_num_drafts_total", ""),
			}},
		},
		{
			ID: "moe_balance", Title: "Expert balance", Short: "Balance", Group: moe, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Mean over maximum of the tokens that the experts' GPUs get, per forward pass: 1 is even, less is lopsided.",
			Trap:    "Only with the balancedness metric switched on; written by expert rank 0.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "eplb_balancedness", Since: "0.5.7",
				Num: leader("sglang:eplb_balancedness_sum", "", "forward_mode"), Den: leader("sglang:eplb_balancedness_count", "", "forward_mode"),
			}},
		},
		{
			ID: "cuda_graph_share", Title: "Decode passes as CUDA graph", Short: "Graph", Group: sched, Unit: "ratio", Kind: Share, Higher: true, Roles: generating(),
			Meaning: "Share of the decode passes that ran as a CUDA graph.",
			Trap:    "The gauge is_cuda_graph is never set; this is counted.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "cuda_graph_passes", Since: "0.5.7", Lazy: true,
				Num: leader("sglang:cuda_graph_passes_total", `mode="decode_cuda_graph"`),
				Den: leader("sglang:cuda_graph_passes_total", `mode=~"decode_.+"`, "mode"),
			}},
		},
		{
			ID: "forward_passes", Title: "Forward passes", Short: "Passes", Group: sched, Unit: "passes/s", Kind: Rate,
			Meaning: "Forward passes per second, prefill and decode.",
			Sources: []Source{{Backend: engine.SGLang, Name: "cuda_graph_passes", Since: "0.5.7", Num: leader("sglang:cuda_graph_passes_total", "", "mode")}},
		},
		{
			ID: "gpu_busy", Title: "GPU busy with forward passes", Short: "Busy", Group: sched, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Share of time in which the GPU ran a forward pass; of several engines their mean.",
			Trap:    "NaN unless the engine's device timer is on (SGLANG_ENABLE_METRICS_DEVICE_TIMER=1), and NaN again after idling; such samples are left out.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "fwd_occupancy", Since: "2026-05-05", Scale: 0.01,
				Num: Vec{{Metric: "sglang:fwd_occupancy", Ranks: RankLeader, Then: ">= -Inf"}},
			}},
		},
		{
			ID: "scheduler_idle_share", Title: "Scheduler idle", Short: "Sched idle", Group: sched, Unit: "ratio", Kind: Share,
			Meaning: "Share of time in which the scheduler had nothing to do; of several ranks their mean.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "scheduler_idle_seconds", Since: "0.5.20",
				Num: Vec{{Metric: "sglang:scheduler_idle_seconds_total", Ranks: RankLeader, As: AsRate}},
			}},
		},
		{
			ID: "scheduler_busy", Title: "Scheduler CPU", Short: "Sched CPU", Group: sched, Unit: "cores", Kind: Rate,
			Meaning: "CPU time of the scheduler processes per second.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "scheduler_process_cpu_seconds", Since: "0.5.20", Num: Vec{{Metric: "sglang:scheduler_process_cpu_seconds_total", Ranks: RankAll}}},
				{Backend: engine.SGLang, Name: "process_cpu_seconds", Since: "0.5.8", Num: whole("sglang:process_cpu_seconds_total", `component=~".*scheduler.*"`)},
			},
		},
		{
			ID: "decode_context", Title: "Context in the decode batch", Short: "Context", Group: sched, Unit: "tokens", Kind: Level, Roles: generating(),
			Meaning: "Context length summed over the decode batch.",
			Sources: []Source{{Backend: engine.SGLang, Name: "decode_sum_seq_lens", Since: "0.5.7", Num: leader("sglang:decode_sum_seq_lens", "")}},
		},
		{
			ID: "prefill_delay", Title: "Prefill delay", Short: "Delay", Group: sched, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: prefilling(),
			Meaning: "Time for which the prefill delayer held a prefill back.",
			Sources: []Source{{Backend: engine.SGLang, Name: "prefill_delayer_wait", Since: "0.5.8", Num: leader("sglang:prefill_delayer_wait_seconds", "")}},
		},
		{
			ID: "grammar_compile_time", Title: "Grammar compilation", Short: "Grammar", Group: sched, Unit: "seconds", Kind: Quantile, RawOnly: true,
			Meaning: "Time to compile a grammar.",
			Sources: []Source{{Backend: engine.SGLang, Name: "grammar_compilation_time", Since: "0.5.2", Num: leader("sglang:grammar_compilation_time_seconds", "")}},
		},
		{
			ID: "weight_load", Title: "Weight update", Short: "Weights", Group: sched, Unit: "seconds", Kind: Worst,
			Meaning: "Duration of the last weight update; the engine is paused meanwhile.",
			Trap:    "Two updates of equal duration look like none.",
			Sources: []Source{{Backend: engine.SGLang, Name: "weight_load_duration", Since: "2026-06-08", Num: leader("sglang:weight_load_duration_seconds", "")}},
		},
	}
}
