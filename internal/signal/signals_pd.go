package signal

import "github.com/rollscope/rollscope/internal/engine"

// pdSignals are about prefill and decode on different engines. Their gauges exist with 0 on engines of
// the other role, which is why each signal names its roles.
func pdSignals() []Signal {
	const group = "PD disaggregation"
	return []Signal{
		{
			ID: "pd_bootstrap_queue", Title: "Prefill bootstrap queue", Short: "Bootstrap", Group: group, Unit: "requests", Kind: Level, Roles: prefill(),
			Meaning: "Prefill engines: requests that wait for the handshake with their decode engine.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "bootstrap queue", Since: "2026-05-04", Num: leader("sglang:num_prefill_bootstrap_queue_reqs", total)},
				{Backend: engine.SGLang, Name: "prealloc queue", Since: "0.4.6.post4", Num: leader("sglang:num_prefill_prealloc_queue_reqs", "")},
			},
		},
		{
			ID: "pd_prefill_inflight", Title: "Prefill inflight queue", Short: "Inflight", Group: group, Unit: "requests", Kind: Level, Roles: prefill(),
			Meaning: "Prefill engines: requests whose forward pass is done and whose KV cache is still being sent.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "inflight queue", Since: "0.5.1.post2", Num: leader("sglang:num_prefill_inflight_queue_reqs", total)},
				{Backend: engine.SGLang, Name: "infight queue", Since: "0.4.6.post4", Num: leader("sglang:num_prefill_infight_queue_reqs", "")},
			},
		},
		{
			ID: "pd_decode_prealloc", Title: "Decode prealloc queue", Short: "Prealloc", Group: group, Unit: "requests", Kind: Level, Roles: decode(),
			Meaning: "Decode engines: requests that wait for a KV slot.",
			Sources: []Source{{Backend: engine.SGLang, Name: "prealloc queue", Since: "0.4.6.post4", Num: leader("sglang:num_decode_prealloc_queue_reqs", total)}},
		},
		{
			ID: "pd_decode_transfer", Title: "Decode transfer queue", Short: "Transfer", Group: group, Unit: "requests", Kind: Level, Roles: decode(),
			Meaning: "Decode engines: requests whose KV cache is arriving.",
			Sources: []Source{{Backend: engine.SGLang, Name: "transfer queue", Since: "0.4.6.post4", Num: leader("sglang:num_decode_transfer_queue_reqs", total)}},
		},
		{
			ID: "kv_transfer_speed", Title: "KV transfer speed", Short: "KV GiB/s", Group: group, Unit: "GiB/s", Kind: Quantile, Higher: true, Roles: prefill(),
			Meaning: "Speed of one request's KV transfer, as the prefill engine measures it.",
			Trap:    "GB in the metric's name means 1024^3 bytes. A gauge of the last transfer before SGLang 0.5.10: see kv_transfer_speed_last.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram", Since: "0.5.10", Num: leader("sglang:kv_transfer_speed_gb_s", "")}},
		},
		{
			ID: "kv_transfer_latency", Title: "KV transfer latency", Short: "KV time", Group: group, Unit: "seconds", Kind: Quantile, Roles: prefill(),
			Meaning: "Duration of one request's KV transfer, as the prefill engine measures it.",
			Trap:    "The fallback path measures the last chunk only. A gauge of the last transfer before SGLang 0.5.10: see kv_transfer_latency_last.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram", Since: "0.5.10", Scale: 0.001, Num: leader("sglang:kv_transfer_latency_ms", "")}},
		},
		{
			ID: "kv_transfer_size", Title: "KV transfer size", Short: "KV MiB", Group: group, Unit: "MiB", Kind: Quantile, Roles: prefill(),
			Meaning: "Size of one request's KV transfer.",
			Trap:    "A gauge of the last transfer before SGLang 0.5.10: see kv_transfer_size_last.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram", Since: "0.5.10", Num: leader("sglang:kv_transfer_total_mb", "")}},
		},
		{
			ID: "kv_transfer_bootstrap", Title: "KV transfer handshake", Short: "Handshake", Group: group, Unit: "seconds", Kind: Quantile, Roles: split(),
			Meaning: "Duration of the handshake before a KV transfer.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram", Since: "0.5.10", Scale: 0.001, Num: leader("sglang:kv_transfer_bootstrap_ms", "")}},
		},
		{
			ID: "kv_transfer_alloc", Title: "KV transfer allocation", Short: "Alloc", Group: group, Unit: "seconds", Kind: Quantile, Roles: split(),
			Meaning: "Wait for the KV slots of a transfer.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram", Since: "0.5.10", Scale: 0.001, Num: leader("sglang:kv_transfer_alloc_ms", "")}},
		},
		{
			ID: "kv_transfer_rate", Title: "KV transfer volume", Short: "KV MiB/s", Group: group, Unit: "MiB/s", Kind: Rate, Roles: prefill(),
			Meaning: "KV cache sent per second, over all requests.",
			Sources: []Source{{Backend: engine.SGLang, Name: "histogram's sum", Since: "0.5.10", Num: leader("sglang:kv_transfer_total_mb_sum", "")}},
		},
		{
			ID: "kv_transfer_speed_last", Title: "KV transfer speed (last)", Short: "KV GiB/s", Group: group, Unit: "GiB/s", Kind: Worst, Higher: true, Roles: prefill(),
			Meaning: "Speed of the last KV transfer, on engines before SGLang 0.5.10.",
			Sources: []Source{{Backend: engine.SGLang, Name: "gauge", Since: "0.5.2", Caveat: caveatLastOne, Num: leader("sglang:kv_transfer_speed_gb_s", "")}},
		},
		{
			ID: "kv_transfer_latency_last", Title: "KV transfer latency (last)", Short: "KV time", Group: group, Unit: "seconds", Kind: Worst, Roles: prefill(),
			Meaning: "Duration of the last KV transfer, on engines before SGLang 0.5.10.",
			Sources: []Source{{Backend: engine.SGLang, Name: "gauge", Since: "0.5.2", Scale: 0.001, Caveat: caveatLastOne, Num: leader("sglang:kv_transfer_latency_ms", "")}},
		},
		{
			ID: "kv_transfer_size_last", Title: "KV transfer size (last)", Short: "KV MiB", Group: group, Unit: "MiB", Kind: Worst, Roles: prefill(),
			Meaning: "Size of the last KV transfer, on engines before SGLang 0.5.10.",
			Sources: []Source{{Backend: engine.SGLang, Name: "gauge", Since: "0.5.7", Caveat: caveatLastOne, Num: leader("sglang:kv_transfer_total_mb", "")}},
		},
		{
			ID: "nixl_transfer_time", Title: "NIXL transfer time", Short: "NIXL", Group: group, Unit: "seconds", Kind: Quantile,
			Meaning: "Duration of one KV transfer of vLLM's NIXL connector.",
			Sources: []Source{{Backend: engine.VLLM, Name: "NIXL", Num: whole("vllm:nixl_xfer_time_seconds", "")}},
		},
		{
			ID: "bootstrap_failures", Title: "Bootstrap failures", Short: "Bootstrap fail", Group: group, Unit: "requests/s", Kind: Rate, Roles: split(),
			Meaning: "Handshakes between prefill and decode engines that failed, per second.",
			Trap:    "Both roles count: one failed handshake may stand on both engines.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "engine", Since: "0.4.6.post4",
				Num: leader("sglang:num_bootstrap_failed_reqs_total", ""), ZeroIf: leader("sglang:num_decode_prealloc_queue_reqs", total),
			}},
		},
		{
			ID: "transfer_failures", Title: "KV transfer failures", Short: "Transfer fail", Group: group, Unit: "requests/s", Kind: Rate,
			Meaning: "KV transfers that failed, per second.",
			Trap:    "Both roles count: one failed transfer may stand on both engines.",
			Sources: []Source{
				{
					Backend: engine.SGLang, Name: "engine", Since: "0.4.6.post4",
					Num: leader("sglang:num_transfer_failed_reqs_total", ""), ZeroIf: leader("sglang:num_decode_prealloc_queue_reqs", total),
				},
				{Backend: engine.VLLM, Name: "NIXL", Num: whole("vllm:nixl_num_failed_transfers_total", "")},
			},
		},
		{
			ID: "prefill_retries", Title: "Prefill retries", Short: "Retries", Group: group, Unit: "retries/s", Kind: Rate, Roles: split(),
			Meaning: "Prefills that were tried again, per second.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "engine", Since: "0.5.8",
				Num: leader("sglang:num_prefill_retries_total", ""), ZeroIf: leader("sglang:num_unique_running_routing_keys", ""),
			}},
		},
		{
			ID: "pd_prefill_transfer_time", Title: "Prefill: KV transfer stage", Short: "Transfer stage", Group: group, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: prefill(),
			Meaning: "Prefill engines: time of the stage in which a request's KV cache is sent.",
			Sources: []Source{{Backend: engine.SGLang, Name: "per stage", Since: "0.5.3rc2", Num: leader("sglang:per_stage_req_latency_seconds", `stage="prefill_transfer_kv_cache"`)}},
		},
		{
			ID: "pd_prefill_bootstrap_time", Title: "Prefill: bootstrap stage", Short: "Bootstrap stage", Group: group, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: prefill(),
			Meaning: "Prefill engines: time of the stage in which a request waits for the handshake.",
			Sources: []Source{{Backend: engine.SGLang, Name: "per stage", Since: "0.5.3rc2", Num: leader("sglang:per_stage_req_latency_seconds", `stage="prefill_bootstrap"`)}},
		},
		{
			ID: "pd_decode_wait_time", Title: "Decode: KV arrival stage", Short: "Arrival stage", Group: group, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: decode(),
			Meaning: "Decode engines: time of the stage in which a request waits for its KV cache to arrive.",
			Sources: []Source{{Backend: engine.SGLang, Name: "per stage", Since: "0.5.3rc2", Num: leader("sglang:per_stage_req_latency_seconds", `stage="decode_transferred"`)}},
		},
	}
}
