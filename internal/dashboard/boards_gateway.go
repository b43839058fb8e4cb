package dashboard

import "github.com/rollscope/rollscope/internal/engine"

// routerBoard shows the routers in front of SGLang, of each of their metric families.
func routerBoard() Board {
	r := claiming(engine.Router)
	return Board{
		ID: "router", Title: "Router", Tags: []string{"sglang", "router", "gateway", "smg"},
		Meaning: "What the SGLang router or model gateway does: traffic, errors, retries, and how it sees its workers. Reads smg_* and both families that are called sgl_router_*.",
		Sections: []Section{
			row("Traffic",
				prom("Requests", "requests/s", targets(
					lazy(expr("{{endpoint}} {{model}}", speed("smg_router_requests_total", "endpoint", "model"))),
					lazy(expr("{{route}}", speed("sgl_router_requests_total", "route")))), r),
				prom("Errors", "requests/s", targets(
					lazy(expr("{{error_type}}", speed("smg_router_request_errors_total", "error_type"))),
					lazy(expr("{{error_type}}", speed("sgl_router_request_errors_total", "error_type")))), r, stacked),
				prom("Duration", "seconds", targets(
					lazy(expr("p50", percentile(0.5, "smg_router_request_duration_seconds"))), lazy(expr("p99", percentile(0.99, "smg_router_request_duration_seconds"))),
					lazy(expr("p50", percentile(0.5, "sgl_router_request_duration_seconds"))), lazy(expr("p99", percentile(0.99, "sgl_router_request_duration_seconds")))), r,
					means("The highest bound is 240 s unless configured: longer rollouts all read 240.")),
				prom("HTTP answers", "requests/s", targets(
					lazy(expr("{{status_code}} {{error_code}}", speed("smg_http_responses_total", "status_code", "error_code"))),
					lazy(expr("all", speed("sgl_router_responses_total"))), lazy(expr("all", speed("sgl_router_http_responses_total")))), r, stacked)),
			row("Workers",
				prom("Requests in flight", "requests", targets(
					lazy(expr("{{worker}}", added("smg_worker_requests_active", "worker"))),
					lazy(expr("{{worker}}", added("sgl_router_running_requests", "worker"))),
					lazy(expr("{{worker_url}}", added("sgl_router_worker_inflight_requests", "worker_url")))), r),
				prom("Worker health", "1", targets(
					lazy(expr("{{worker}}", "min by (worker) (smg_worker_health >= 0)")),
					lazy(expr("{{worker}}{{worker_url}}", "min by (worker, worker_url) (sgl_router_worker_health >= 0)"))), r,
					means("1 healthy, 0 not. A removed worker is left out (the router keeps it at -1). slime switches the router's health checks off: then this says nothing.")),
				prom("Circuit breakers", "1", targets(
					lazy(expr("{{worker}}", "max by (worker) (smg_worker_cb_state >= 0)")),
					lazy(expr("{{worker}}{{worker_url}}", "max by (worker, worker_url) ({__name__=~\"sgl_router_cb_state|sgl_router_worker_cb_state\"})"))), r,
					means("0 closed, 1 open, 2 half-open.")),
				prom("Selections by policy", "1/s", targets(
					lazy(expr("{{policy}}", speed("smg_worker_selection_total", "policy"))),
					lazy(expr("{{policy}}", speed("sgl_router_policy_decisions_total", "policy")))), r),
				prom("Workers in the pool", "1", targets(
					lazy(expr("{{worker_type}}", added("smg_worker_pool_size", "worker_type"))),
					lazy(expr("active", added("sgl_router_active_workers"))),
					lazy(expr("{{mode}}", added("sgl_router_workers", "mode")))), r)),
			row("Trouble",
				prom("Retries", "1/s", targets(
					lazy(expr("retries", speed("smg_worker_retries_total"))), lazy(expr("given up", speed("smg_worker_retries_exhausted_total"))),
					lazy(expr("retries", speed("sgl_router_retries_total"))), lazy(expr("given up", speed("sgl_router_retries_exhausted_total")))), r),
				prom("Worker errors", "1/s", targets(
					lazy(expr("{{error_type}}", speed("smg_worker_errors_total", "error_type"))),
					lazy(expr("{{outcome}}", speed("sgl_router_cb_outcomes_total", "outcome"))),
					lazy(expr("{{outcome}}", speed("sgl_router_worker_requests_total", "outcome")))), r, stacked),
				prom("Open connections", "1", targets(lazy(expr("connections", added("smg_http_connections_active")))), r),
				prom("Rate limiter", "requests/s", targets(lazy(expr("{{result}}", speed("smg_http_rate_limit_total", "result")))), r)),
		},
	}
}

// dynamoBoard shows Dynamo's own programs.
func dynamoBoard() Board {
	f, w := claiming(engine.DynamoFrontend), claiming(engine.DynamoWorker)
	const generate = `{dynamo_endpoint="generate"}`
	return Board{
		ID: "dynamo", Title: "Dynamo frontend and components", Tags: []string{"dynamo", "frontend", "router"},
		Meaning: "NVIDIA Dynamo from the outside in: what the frontend serves and refuses, where requests wait, how well the KV router chooses, what each worker does.",
		Sections: []Section{
			row("Frontend",
				prom("Request rate", "requests/s", targets(expr("{{model}}", speed("dynamo_frontend_requests_total", "model"))), f),
				prom("Outcomes", "requests/s", targets(expr("{{status}} {{error_type}}", speed("dynamo_frontend_requests_total", "status", "error_type"))), f, stacked,
					means("Every finished request by status and, on newer frontends, by the kind of error. A client that goes away counts as cancelled.")),
				prom("Success share", "ratio", targets(expr("success", over(speed(`dynamo_frontend_requests_total{status="success"}`), speed("dynamo_frontend_requests_total")))), f, below(Warn, 0.999), below(Crit, 0.99)),
				prom("In flight", "requests", targets(
					expr("in flight", "sum(dynamo_frontend_active_requests) or sum(dynamo_frontend_inflight_requests)"),
					lazy(expr("{{stage}}", added("dynamo_frontend_stage_requests", "stage"))),
					lazy(expr("queued", added("dynamo_frontend_queued_requests")))), f,
					means("Requests inside the frontend, and in which stage they are. Stages carry no model.")),
				prom("Time to first token", "seconds", targets(expr("p50", percentile(0.5, "dynamo_frontend_time_to_first_token_seconds")), expr("p99", percentile(0.99, "dynamo_frontend_time_to_first_token_seconds"))), f,
					means("As the client's connection sees it: queueing, routing and transport are in it, the engine's own number lacks them.")),
				prom("Inter-token latency", "seconds", targets(expr("p50", percentile(0.5, "dynamo_frontend_inter_token_latency_seconds")), expr("p99", percentile(0.99, "dynamo_frontend_inter_token_latency_seconds"))), f),
				prom("Request duration", "seconds", targets(expr("p50", percentile(0.5, "dynamo_frontend_request_duration_seconds")), expr("p99", percentile(0.99, "dynamo_frontend_request_duration_seconds"))), f),
				prom("Tokens out", "tokens/s", targets(
					expr("{{model}}", speed("dynamo_frontend_output_tokens_total", "model")+" or "+speed("dynamo_frontend_output_sequence_tokens_sum", "model"))), f),
				prom("Sequence lengths, mean", "tokens", targets(
					expr("in", mean("dynamo_frontend_input_sequence_tokens")), expr("out", mean("dynamo_frontend_output_sequence_tokens")),
					lazy(expr("in, from cache", mean("dynamo_frontend_cached_tokens")))), f)),
			row("Stages and the KV router",
				prom("Stage duration p99", "seconds", targets(expr("{{stage}}", percentile(0.99, "dynamo_frontend_stage_duration_seconds", "stage"))), f,
					means("Newer frontends only.")),
				prom("Router KV hit rate", "ratio", targets(
					expr("mean", mean("dynamo_component_router_kv_hit_rate")), expr("p50", percentile(0.5, "dynamo_component_router_kv_hit_rate"))), f,
					means("Share of a prompt's blocks that the chosen worker already had, as the router predicted when it chose.")),
				prom("Router overhead, mean", "milliseconds", targets(
					expr("block hashing", mean("dynamo_router_overhead_block_hashing_ms")), expr("find matches", mean("dynamo_router_overhead_indexer_find_matches_ms")),
					expr("sequence hashing", mean("dynamo_router_overhead_seq_hashing_ms")), expr("scheduling", mean("dynamo_router_overhead_scheduling_ms")),
					expr("total", mean("dynamo_router_overhead_total_ms"))), f),
				prom("Waiting in the router", "requests", targets(lazy(expr("{{worker_type}}", added("dynamo_frontend_router_queue_pending_requests", "worker_type")))), f),
				prom("Cancelled, rejected, migrated", "requests/s", targets(
					lazy(expr("cancelled", speed("dynamo_frontend_model_cancellation_total"))), lazy(expr("rejected", speed("dynamo_frontend_model_rejection_total"))),
					lazy(expr("migrated", speed("dynamo_frontend_model_migration_total")))), f),
				prom("Active decode blocks", "blocks", targets(lazy(expr("{{worker_id}}", added("dynamo_frontend_worker_active_decode_blocks", "worker_id")))), f)),
			row("Workers",
				prom("Worker requests", "requests/s", targets(expr("{{instance}}", speed("dynamo_component_requests_total"+generate, "instance"))), w),
				prom("Worker requests in flight", "requests", targets(expr("{{instance}}", added("dynamo_component_inflight_requests"+generate, "instance"))), w),
				prom("Worker duration", "seconds", targets(
					expr("{{instance}} p50", percentile(0.5, "dynamo_component_request_duration_seconds"+generate, "instance")),
					expr("{{instance}} p99", percentile(0.99, "dynamo_component_request_duration_seconds"+generate, "instance"))), w),
				prom("Worker errors", "1/s", targets(
					lazy(expr("{{instance}} {{error_type}}", speed("dynamo_component_errors_total", "instance", "error_type"))),
					lazy(expr("{{instance}} cancelled", speed("dynamo_component_cancellation_total", "instance")))), w,
					means("The series appear with the first error.")),
				prom("KV usage", "ratio", targets(
					expr("{{instance}}", highest("dynamo_component_gpu_cache_usage_percent", "instance"))), w,
					means("A share from 0 to 1 in spite of the metric's name.")),
				prom("Bytes in and out", "bytes/s", targets(
					expr("in", speed("dynamo_component_request_bytes_total"+generate)), expr("out", speed("dynamo_component_response_bytes_total"+generate))), w)),
			row("Transport",
				prom("Work handler queue", "requests", targets(
					expr("{{instance}} queued", highest("dynamo_work_handler_queue_depth", "instance")), expr("{{instance}} room for", highest("dynamo_work_handler_queue_capacity", "instance"))), w,
					means("A full queue is not counted as a rejection: watch the depth against the capacity.")),
				prom("Network transit p99", "seconds", targets(expr("{{instance}}", percentile(0.99, "dynamo_work_handler_network_transit_seconds", "instance"))), w),
				prom("Request plane round trip", "seconds", targets(
					expr("p50", percentile(0.5, "dynamo_request_plane_roundtrip_ttft_seconds")), expr("p99", percentile(0.99, "dynamo_request_plane_roundtrip_ttft_seconds"))), f),
				prom("Tokio busy", "ratio", targets(expr("{{instance}}", highest("dynamo_tokio_worker_busy_ratio", "instance"))), w, above(Warn, 0.9),
					means("The busiest runtime thread of each process: at 1 the process cannot keep up, whatever its queues say."))),
		},
	}
}

// kvbmBoard shows the KV block manager.
func kvbmBoard() Board {
	w := claiming(engine.DynamoWorker)
	return Board{
		ID: "kvbm", Title: "KVBM", Tags: []string{"dynamo", "kvbm", "kv-cache"},
		Meaning: "Dynamo's KV block manager: which tier answers, and how many blocks move between GPU, host, disk and object store.",
		Sections: []Section{
			row("Cache",
				prom("Host hit rate", "ratio", targets(expr("{{instance}}", highest("dynamo_kvbm_host_cache_hit_rate", "instance"))), w),
				prom("Disk hit rate", "ratio", targets(expr("{{instance}}", highest("dynamo_kvbm_disk_cache_hit_rate", "instance"))), w),
				prom("Object store hit rate", "ratio", targets(expr("{{instance}}", highest("dynamo_kvbm_object_cache_hit_rate", "instance"))), w),
				prom("Matched tokens", "tokens/s", targets(expr("{{instance}}", speed("dynamo_kvbm_matched_tokens", "instance"))), w)),
			row("Offload",
				prom("Blocks written down", "blocks/s", targets(
					expr("device to host", speed("dynamo_kvbm_offload_blocks_d2h")), expr("host to disk", speed("dynamo_kvbm_offload_blocks_h2d")),
					expr("device to disk", speed("dynamo_kvbm_offload_blocks_d2d")), lazy(expr("device to object store", speed("dynamo_kvbm_offload_blocks_d2o")))), w)),
			row("Onboard",
				prom("Blocks brought back", "blocks/s", targets(
					expr("host to device", speed("dynamo_kvbm_onboard_blocks_h2d")), expr("disk to device", speed("dynamo_kvbm_onboard_blocks_d2d")),
					lazy(expr("object store to device", speed("dynamo_kvbm_onboard_blocks_o2d")))), w),
				prom("Object store failures", "1/s", targets(
					lazy(expr("read", speed("dynamo_kvbm_object_read_failures"))), lazy(expr("write", speed("dynamo_kvbm_object_write_failures")))), w)),
		},
	}
}

// gpuBoard shows the GPUs under the engines.
func gpuBoard() Board {
	g := claiming(engine.DCGM)
	by := []string{"Hostname", "instance", "gpu"}
	const name = "{{Hostname}} {{gpu}}"
	return Board{
		ID: "gpus", Title: "GPUs", Tags: []string{"dcgm", "gpu"},
		Meaning: "The GPUs under the engines, from dcgm-exporter: are they busy, with what, and do they run hot, throttled or broken.",
		Sections: []Section{
			row("Busy",
				prom("GPU utilisation", "percent", targets(expr(name, highest("DCGM_FI_DEV_GPU_UTIL", by...))), g,
					means("Share of time in which any kernel ran. 100 says that the GPU was not idle, not that it was well used: see SM and tensor activity.")),
				prom("SM activity", "ratio", targets(expr(name, highest("DCGM_FI_PROF_SM_ACTIVE", by...))), g),
				prom("Tensor core activity", "ratio", targets(expr(name, highest("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", by...))), g),
				prom("Memory bandwidth", "ratio", targets(expr(name, highest("DCGM_FI_PROF_DRAM_ACTIVE", by...))), g,
					means("Decode is bound by it: near 1 the GPU can decode no faster."))),
			row("Memory and links",
				prom("Memory used", "MiB", targets(expr(name, highest("DCGM_FI_DEV_FB_USED", by...))), g),
				prom("NVLink", "bytes/s", targets(
					expr("sent", added("DCGM_FI_PROF_NVLINK_TX_BYTES")), expr("received", added("DCGM_FI_PROF_NVLINK_RX_BYTES"))), g),
				prom("PCIe", "bytes/s", targets(
					expr("sent", added("DCGM_FI_PROF_PCIE_TX_BYTES")), expr("received", added("DCGM_FI_PROF_PCIE_RX_BYTES"))), g)),
			row("Health",
				prom("Power", "watts", targets(expr(name, highest("DCGM_FI_DEV_POWER_USAGE", by...))), g),
				prom("Temperature", "celsius", targets(expr(name, highest("DCGM_FI_DEV_GPU_TEMP", by...))), g, above(Warn, 80), above(Crit, 90)),
				prom("SM clock", "megahertz", targets(expr(name, highest("DCGM_FI_DEV_SM_CLOCK", by...))), g,
					means("A clock that falls while the load is high is a GPU that throttles.")),
				prom("XID of the last error", "1", targets(expr(name, highest("DCGM_FI_DEV_XID_ERRORS", by...)+" > 0 or "+highest("DCGM_FI_DEV_XID_ERRORS", by...))), g, shown(Table),
					means("The number of the last XID error of each GPU, 0 for none. 79 is a GPU that fell off the bus."))),
		},
	}
}
