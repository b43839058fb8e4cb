package signal

import "github.com/rollscope/rollscope/internal/engine"

// cacheSignals are about the KV cache and the tiers below it.
func cacheSignals() []Signal {
	const kv, hicache = "KV cache", "HiCache"
	return []Signal{
		{
			ID: "kv_usage", Title: "KV cache usage", Short: "KV", Group: kv, Unit: "ratio", Kind: Worst,
			Meaning: "Used share of the KV cache; of a group the fullest engine's, of an engine the fullest rank's.",
			Trap:    "SGLang's is the fullest of its pools, the log's the full-attention pool only: on hybrid models they differ. Evictable prefixes do not count as used.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "token_usage", Num: leader("sglang:token_usage", "")},
				{Backend: engine.SGLang, Name: "used over capacity", Since: "0.5.6", Num: leader("sglang:num_used_tokens", ""), Den: leader("sglang:max_total_num_tokens", "")},
				{Backend: engine.VLLM, Name: "kv_cache_usage_perc", Since: "0.9.2", Num: leader("vllm:kv_cache_usage_perc", "")},
				{Backend: engine.VLLM, Name: "gpu_cache_usage_perc", Num: leader("vllm:gpu_cache_usage_perc", "")},
				{Backend: engine.DynamoWorker, Name: "component", Num: leader("dynamo_component_gpu_cache_usage_percent", "", "dp_rank")},
			},
		},
		{
			ID: "kv_used_tokens", Title: "KV slots in use", Short: "KV tokens", Group: kv, Unit: "tokens", Kind: Level,
			Meaning: "KV slots in use by running requests.",
			Sources: []Source{{Backend: engine.SGLang, Name: "num_used_tokens", Num: leader("sglang:num_used_tokens", "")}},
		},
		{
			ID: "kv_capacity", Title: "KV capacity", Short: "Capacity", Group: kv, Unit: "tokens", Kind: Level,
			Meaning: "KV slots of the schedulers.",
			Sources: []Source{{Backend: engine.SGLang, Name: "max_total_num_tokens", Since: "0.5.6", Num: leader("sglang:max_total_num_tokens", "")}},
		},
		{
			ID: "kv_evictable", Title: "Evictable KV slots", Short: "Evictable", Group: kv, Unit: "tokens", Kind: Level,
			Meaning: "Slots of the full pool that hold cached prefixes and may be evicted.",
			Sources: []Source{{Backend: engine.SGLang, Name: "kv_evictable_tokens", Since: "2026-04-13", Num: leader("sglang:kv_evictable_tokens", "")}},
		},
		{
			ID: "kv_available", Title: "Free KV slots", Short: "Free", Group: kv, Unit: "tokens", Kind: Level,
			Meaning: "Slots of the full pool that hold nothing.",
			Sources: []Source{{Backend: engine.SGLang, Name: "kv_available_tokens", Since: "2026-04-13", Num: leader("sglang:kv_available_tokens", "")}},
		},
		{
			ID: "swa_usage", Title: "Sliding-window pool usage", Short: "SWA", Group: kv, Unit: "ratio", Kind: Worst,
			Meaning: "Used share of the sliding-window pool; 0 unless the model is hybrid.",
			Sources: []Source{{Backend: engine.SGLang, Name: "swa_token_usage", Since: "0.5.2", Num: leader("sglang:swa_token_usage", "")}},
		},
		{
			ID: "mamba_usage", Title: "State-space pool usage", Short: "Mamba", Group: kv, Unit: "ratio", Kind: Worst,
			Meaning: "Used share of the state-space pool; 0 unless the model is hybrid.",
			Sources: []Source{{Backend: engine.SGLang, Name: "mamba_usage", Since: "0.5.4.post3", Num: leader("sglang:mamba_usage", "")}},
		},
		{
			ID: "new_token_ratio", Title: "New token ratio", Short: "New tokens", Group: kv, Unit: "ratio", Kind: Worst,
			Meaning: "The scheduler's estimate of the decode length it must reserve; it rises after retractions.",
			Sources: []Source{{Backend: engine.SGLang, Name: "new_token_ratio", Since: "0.5.5.post1", Num: leader("sglang:new_token_ratio", "")}},
		},
		{
			ID: "lora_pool_usage", Title: "LoRA pool usage", Short: "LoRA", Group: kv, Unit: "ratio", Kind: Worst,
			Meaning: "Used share of the LoRA pool.",
			Sources: []Source{{Backend: engine.SGLang, Name: "lora_pool_utilization", Since: "0.5.7", Num: leader("sglang:lora_pool_utilization", "")}},
		},
		{
			ID: "hicache_usage", Title: "Host cache usage", Short: "Host", Group: hicache, Unit: "ratio", Kind: Worst,
			Meaning: "Used share of the host memory of HiCache.",
			Trap:    "Only with --enable-hierarchical-cache. A full host cache is its normal state.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "host", Since: "0.5.10rc0",
				Num: leader("sglang:hicache_host_used_tokens", ""), Den: leader("sglang:hicache_host_total_tokens", ""),
			}},
		},
		{
			ID: "evictions", Title: "Evicted tokens", Short: "Evicted", Group: hicache, Unit: "tokens/s", Kind: Rate,
			Meaning: "KV slots per second that eviction freed on the device.",
			Trap:    "The processes are added without rank labels: with TP the number is too high by that factor.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "evicted_tokens", Since: "0.5.5.post1", Caveat: caveatTP,
				Num: whole("sglang:evicted_tokens_total", ""), ZeroIf: leader("sglang:new_token_ratio", ""),
			}},
		},
		{
			ID: "load_back", Title: "Loaded back tokens", Short: "Load back", Group: hicache, Unit: "tokens/s", Kind: Rate,
			Meaning: "Tokens per second loaded back from host memory to the device.",
			Trap:    "The processes are added without rank labels: with TP the number is too high by that factor.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "load_back_tokens", Since: "0.5.5.post1", Caveat: caveatTP,
				Num: whole("sglang:load_back_tokens_total", ""), ZeroIf: leader("sglang:hicache_host_total_tokens", ""),
			}},
		},
		{
			ID: "eviction_time", Title: "Eviction time", Short: "Evict time", Group: hicache, Unit: "seconds", Kind: Quantile,
			Meaning: "Duration of one eviction; with write_back it includes a blocking backup.",
			Sources: []Source{{Backend: engine.SGLang, Name: "eviction_duration", Since: "0.5.5.post1", Num: whole("sglang:eviction_duration_seconds", "")}},
		},
		{
			ID: "load_back_time", Title: "Load back time", Short: "Load time", Group: hicache, Unit: "seconds", Kind: Quantile,
			Meaning: "Duration of one load back from host memory.",
			Sources: []Source{{Backend: engine.SGLang, Name: "load_back_duration", Since: "0.5.5.post1", Num: whole("sglang:load_back_duration_seconds", "")}},
		},
		{
			ID: "hicache_prefetch", Title: "Read from storage", Short: "L3 read", Group: hicache, Unit: "tokens/s", Kind: Rate,
			Meaning: "Tokens per second read from storage into host memory.",
			Sources: []Source{{Backend: engine.SGLang, Name: "prefetched_tokens", Since: "0.5.2", Num: leader("sglang:prefetched_tokens_total", "", "storage_backend")}},
		},
		{
			ID: "hicache_backup", Title: "Written to storage", Short: "L3 write", Group: hicache, Unit: "tokens/s", Kind: Rate,
			Meaning: "Tokens per second written from host memory to storage.",
			Sources: []Source{{Backend: engine.SGLang, Name: "backuped_tokens", Since: "0.5.2", Num: leader("sglang:backuped_tokens_total", "", "storage_backend")}},
		},
		{
			ID: "hicache_dropped", Title: "Dropped tokens", Short: "Dropped", Group: hicache, Unit: "tokens/s", Kind: Rate,
			Meaning: "Tokens per second that were destroyed without a backup.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "hicache_dropped_tokens", Since: "2026-08-05", Caveat: caveatTP,
				Num: whole("sglang:hicache_dropped_tokens_total", ""),
			}},
		},
		{
			ID: "hit_source_device", Title: "Prompt tokens from the device cache", Short: "Device hit", Group: hicache, Unit: "ratio", Kind: Share, Higher: true, Roles: prefilling(),
			Meaning: "Share of prompt tokens found in the device's cache.",
			Sources: []Source{hitSource("device_hit")},
		},
		{
			ID: "hit_source_host", Title: "Prompt tokens from host memory", Short: "Host hit", Group: hicache, Unit: "ratio", Kind: Share, Higher: true, Roles: prefilling(),
			Meaning: "Share of prompt tokens found in host memory.",
			Sources: []Source{hitSource("host_hit")},
		},
		{
			ID: "hit_source_storage", Title: "Prompt tokens from storage", Short: "Storage hit", Group: hicache, Unit: "ratio", Kind: Share, Higher: true, Roles: prefilling(),
			Meaning: "Share of prompt tokens found in storage.",
			Sources: []Source{hitSource("storage_hit")},
		},
	}
}

func hitSource(mode string) Source {
	return Source{
		Backend: engine.SGLang, Name: "prefill_effective_tokens", Since: "2026-08-05", Lazy: true,
		Num: leader("sglang:prefill_effective_tokens_total", `mode="`+mode+`"`),
		Den: leader("sglang:prefill_effective_tokens_total", "", "mode"),
	}
}
