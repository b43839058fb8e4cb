package dashboard

import "github.com/rollscope/rollscope/internal/engine"

// pdBoard is prefill and decode as two pools with a road between them.
func pdBoard() Board {
	only := claiming(engine.SGLang)
	return Board{
		ID: "pd", Title: "PD disaggregation", Tags: []string{"sglang", "pd", "disaggregation", "slime"},
		Meaning: "Prefill and decode engines and the KV transfer between them: where requests pile up, what fails, how fast the cache travels.",
		Sections: []Section{
			row("Queues",
				prom("Where requests wait", "requests", targets(
					Target{Signal: "pd_bootstrap_queue", Legend: "prefill: bootstrap"},
					Target{Signal: "pd_prefill_inflight", Legend: "prefill: sending KV"},
					Target{Signal: "pd_decode_prealloc", Legend: "decode: waiting for a KV slot"},
					Target{Signal: "pd_decode_transfer", Legend: "decode: KV arriving"}), stacked, only,
					means("The four queues between arrival and the first decode step. num_queue_reqs counts none of them.")),
				each("pd_bootstrap_queue"), each("pd_prefill_inflight"), each("pd_decode_prealloc"), each("pd_decode_transfer"),
				roles("queue_depth", only), roles("running", only)),
			row("Failures",
				sig("bootstrap_failures"), sig("transfer_failures", only), sig("prefill_retries"),
				each("bootstrap_failures"), each("transfer_failures", only), each("prefill_retries")),
			row("KV transfer",
				sig("kv_transfer_speed", quantiles(0.01, 0.5), means("Per request, measured on the prefill engine. The slow end matters: the first percentile is the speed that 1 of 100 requests does not reach.")),
				sig("kv_transfer_latency"), sig("kv_transfer_size"), sig("kv_transfer_rate"),
				each("kv_transfer_latency"), each("kv_transfer_speed", quantiles(0.5)),
				sig("kv_transfer_bootstrap"), sig("kv_transfer_alloc")),
			row("Pools",
				roles("throughput", only), roles("kv_usage", only),
				prom("Where the handover takes its time, p99", "seconds", targets(
					Target{Signal: "pd_prefill_bootstrap_time", Quantile: 0.99, Legend: "prefill: bootstrap"},
					Target{Signal: "pd_prefill_transfer_time", Quantile: 0.99, Legend: "prefill: KV transfer"},
					Target{Signal: "pd_decode_wait_time", Quantile: 0.99, Legend: "decode: KV arrival"}), only),
				prom("Time per stage", "seconds", targets(expr("{{stage}}", over(
					parts("sglang:per_stage_req_latency_seconds_sum", "stage"), parts("sglang:per_stage_req_latency_seconds_count", "stage")))), only,
					means("Mean time a request spends in each stage of its engine, prefill and decode stages side by side."))),
		},
	}
}

// hicacheBoard is the cache in its three tiers.
func hicacheBoard() Board {
	only := claiming(engine.SGLang)
	return Board{
		ID: "hicache", Title: "HiCache", Tags: []string{"sglang", "hicache", "kv-cache"},
		Meaning: "The KV cache over GPU, host memory and storage: how full each tier is, what moves between them, how long that takes and what is lost.",
		Sections: []Section{
			row("Fill",
				each("kv_usage", titled("GPU KV usage"), backend(engine.SGLang), above(Warn, 0.9), above(Crit, 0.97)),
				each("hicache_usage", titled("Host KV usage"), above(Warn, 0.95)),
				prom("Prompt tokens by tier", "ratio", targets(
					Target{Signal: "hit_source_device", Legend: "device"}, Target{Signal: "hit_source_host", Legend: "host memory"},
					Target{Signal: "hit_source_storage", Legend: "storage"}), stacked, only,
					means("Share of prompt tokens that were found in each tier. What is missing to 100 % was computed. Needs SGLang 0.5.17.")),
				sig("cache_hit_rate", backend(engine.SGLang))),
			row("Movement",
				prom("Eviction and load-back", "tokens/s", targets(Target{Signal: "evictions", Legend: "evicted"}, Target{Signal: "load_back", Legend: "loaded back"})),
				prom("Backup to host", "tokens/s", targets(expr("{{instance}}", speed("sglang:hicache_backup_tokens_total", "instance"))), only,
					means("Each tensor-parallel rank counts, so with TP the number is TP times too high.")),
				sig("hicache_dropped"),
				prom("Storage tier", "tokens/s", targets(Target{Signal: "hicache_prefetch", Legend: "read"}, Target{Signal: "hicache_backup", Legend: "written"}))),
			row("Latency",
				sig("eviction_time"), sig("load_back_time"),
				prom("Backup", "seconds", targets(expr("p50", percentile(0.5, "sglang:hicache_backup_duration_seconds")), expr("p99", percentile(0.99, "sglang:hicache_backup_duration_seconds"))), only),
				prom("Storage bandwidth p50", "GB/s", targets(
					expr("read", percentile(0.5, "sglang:prefetch_bandwidth")), expr("written", percentile(0.5, "sglang:backup_bandwidth"))), only)),
		},
	}
}

// speculativeBoard answers whether speculation pays.
func speculativeBoard() Board {
	return Board{
		ID: "speculative", Title: "Speculative decoding", Tags: []string{"sglang", "vllm", "speculative"},
		Meaning: "Does speculation pay: how many drafted tokens are accepted, and what the decode step gains from them.",
		Sections: []Section{
			row("Acceptance",
				sig("spec_accept_length", means("Tokens that one verify step yields, the bonus token among them: 1 means that no draft was accepted. The worst engine.")),
				sig("spec_accept_rate", below(Warn, 0.5)),
				each("spec_accept_length"), each("spec_accept_rate")),
			row("Effect",
				sig("itl"), each("throughput"),
				prom("Verify steps", "1/s", targets(expr("{{instance}}", speed("sglang:spec_verify_calls_total", "instance"))), claiming(engine.SGLang),
					means("Counted when a request finishes.")),
				prom("Draft shape", "tokens", targets(
					expr("{{instance}} draft tokens", highest("sglang:spec_num_draft_tokens", "instance")),
					expr("{{instance}} steps", highest("sglang:spec_num_steps", "instance"))), claiming(engine.SGLang),
					means("What the adaptive controller drafts now."))),
		},
	}
}

// schedulerBoard looks into the scheduler and the experts.
func schedulerBoard() Board {
	only := claiming(engine.SGLang)
	return Board{
		ID: "scheduler", Title: "Scheduler and MoE", Tags: []string{"sglang", "scheduler", "moe", "eplb"},
		Meaning: "What the scheduler does with its time and its batches, and whether the experts share the work evenly.",
		Sections: []Section{
			row("Batches",
				prom("Tokens by kind", "tokens/s", targets(expr("{{mode}}", parts("sglang:realtime_tokens_total", "mode"))), stacked, only,
					means("Prefill computed, prefill from cache, decode: moves with every step, unlike the counters of finished requests.")),
				prom("Forward passes by kind", "1/s", targets(expr("{{mode}}", parts("sglang:cuda_graph_passes_total", "mode"))), stacked, only,
					means("Decode passes outside a CUDA graph (decode_none) are slow ones.")),
				sig("decode_context"), sig("cuda_graph_share", below(Warn, 0.95)), each("running", backend(engine.SGLang))),
			row("Waiting",
				sig("queue_time", backend(engine.SGLang)), each("queue_depth", backend(engine.SGLang)),
				sig("grammar_queue"), sig("grammar_compile_time"), sig("prefill_delay"),
				sig("retractions", backend(engine.SGLang)), each("new_token_ratio",
					means("How much output the scheduler reserves for running requests: high admits few, low risks retractions."))),
			row("Time of the scheduler and the GPU",
				sig("scheduler_idle_share"), sig("scheduler_busy"), each("gpu_busy"),
				prom("Forward time by kind", "ratio", targets(expr("{{category}}", parts("sglang:forward_execution_seconds_total", "category"))), stacked, only,
					means("Seconds of GPU time a second over all engines, with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1."), unbounded),
				prom("Scheduler loop by stage", "ratio", targets(expr("{{category}}", parts("sglang:scheduler_stage_seconds_total", "category"))), stacked, only,
					means("Where the scheduler's loop spends its time, over all engines. SGLang 0.5.20 and later."), unbounded),
				each("weight_load")),
			row("KV pools",
				prom("Tokens in the pool", "tokens", targets(
					Target{Signal: "kv_used_tokens", Legend: "locked by requests"}, Target{Signal: "kv_evictable", Legend: "cached, evictable"},
					Target{Signal: "kv_available", Legend: "free"}), stacked),
				prom("Usage by pool", "ratio", targets(
					expr("full attention", highest("sglang:full_token_usage")), Target{Signal: "swa_usage", Legend: "sliding window"},
					Target{Signal: "mamba_usage", Legend: "state space"}), only, means("The fullest engine of each pool; token_usage is the largest of the three.")),
				each("lora_pool_usage")),
			row("Experts",
				sig("moe_balance", below(Warn, 0.7)), each("moe_balance"),
				prom("Tokens by ranks in prefill", "tokens/s", targets(expr("{{num_prefill_ranks}} ranks", parts("sglang:dp_cooperation_realtime_tokens_total", "num_prefill_ranks"))), stacked, only,
					means("With DP attention: tokens by how many ranks were in prefill at the same time. Uneven ranks wait for each other."))),
		},
	}
}
