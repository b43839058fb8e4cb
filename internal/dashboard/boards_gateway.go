package dashboard

import (
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// routerBoard shows the routers in front of SGLang, of each of their metric families.
func routerBoard() Board {
	r := claiming(engine.Router)
	return Board{
		ID: "router", Title: "Router", Tags: []string{"sglang", "router", "gateway", "smg"},
		Meaning: "What the SGLang router or model gateway does: traffic, errors, retries, and how it sees its workers. Reads smg_* and both families that are called sgl_router_*.",
		Sections: []Section{
			row("Traffic",
				sig("router_request_rate"), sig("router_errors"), sig("router_duration"),
				prom("Requests by endpoint", "requests/s", targets(
					lazy(expr("{{endpoint}} {{model}}", speed("smg_router_requests_total", "endpoint", "model"))),
					lazy(expr("{{route}}", speed("sgl_router_requests_total", "route")))), r),
				prom("Errors by type", "requests/s", targets(
					lazy(expr("{{error_type}}", speed("smg_router_request_errors_total", "error_type"))),
					lazy(expr("{{error_type}}", speed("sgl_router_request_errors_total", "error_type")))), r, stacked),
				prom("HTTP answers", "requests/s", targets(
					lazy(expr("{{status_code}} {{error_code}}", speed("smg_http_responses_total", "status_code", "error_code"))),
					lazy(expr("all", speed("sgl_router_responses_total"))), lazy(expr("all", speed("sgl_router_http_responses_total")))), r, stacked)),
			row("Workers",
				prom("Requests in flight", "requests", targets(
					lazy(expr("{{worker}}", added("smg_worker_requests_active", "worker"))),
					lazy(expr("{{worker}}", added("sgl_router_running_requests", "worker"))),
					lazy(expr("{{worker_url}}", added("sgl_router_worker_inflight_requests", "worker_url")))), r),
				sig("router_inflight"), sig("router_workers"), sig("router_unhealthy", above(Crit, 1)),
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
				sig("router_retries"),
				prom("Given up", "1/s", targets(
					lazy(expr("requests", speed("smg_worker_retries_exhausted_total"))), lazy(expr("requests", speed("sgl_router_retries_exhausted_total")))), r,
					means("Requests whose retries were used up.")),
				prom("Worker errors", "1/s", targets(lazy(expr("{{error_type}}", speed("smg_worker_errors_total", "error_type")))), r, stacked),
				prom("Worker outcomes", "1/s", targets(
					lazy(expr("{{outcome}}", speed("smg_worker_cb_outcomes_total", "outcome"))),
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
				sig("frontend_request_rate"),
				prom("Requests by model", "requests/s", targets(expr("{{model}}", speed("dynamo_frontend_requests_total", "model"))), f),
				prom("Outcomes", "requests/s", targets(expr("{{status}} {{error_type}}", speed("dynamo_frontend_requests_total", "status", "error_type"))), f, stacked,
					means("Every finished request by status and, on newer frontends, by the kind of error. A client that goes away counts as cancelled.")),
				sig("frontend_success", below(Warn, 0.999), below(Crit, 0.99)),
				prom("In flight", "requests", targets(
					Target{Signal: "frontend_active", Legend: "in flight"},
					lazy(expr("{{stage}}", added("dynamo_frontend_stage_requests", "stage"))),
					lazy(expr("queued", added("dynamo_frontend_queued_requests")))), f,
					means("Requests inside the frontend, and in which stage they are. Stages carry no model.")),
				sig("frontend_queue"),
				sig("frontend_ttft", means("As the client's connection sees it: queueing, routing and transport are in it, the engine's own number lacks them.")),
				sig("frontend_itl"), sig("frontend_duration"), sig("frontend_output_tokens"),
				prom("Sequence lengths, mean", "tokens", targets(
					expr("in", mean("dynamo_frontend_input_sequence_tokens")), expr("out", mean("dynamo_frontend_output_sequence_tokens")),
					lazy(expr("in, from cache", mean("dynamo_frontend_cached_tokens")))), f)),
			row("Stages and the KV router",
				prom("Stage duration p99", "seconds", targets(expr("{{stage}}", percentile(0.99, "dynamo_frontend_stage_duration_seconds", "stage"))), f,
					means("Newer frontends only.")),
				sig("router_kv_hit_rate", quantiles(0.1, 0.5, 0.9),
					means("Share of a prompt's blocks that the chosen worker already had, as the router predicted when it chose.")),
				sig("router_overhead"),
				prom("Router overhead by step, mean", "milliseconds", targets(
					expr("block hashing", mean("dynamo_router_overhead_block_hashing_ms")), expr("find matches", mean("dynamo_router_overhead_indexer_find_matches_ms")),
					expr("sequence hashing", mean("dynamo_router_overhead_seq_hashing_ms")), expr("scheduling", mean("dynamo_router_overhead_scheduling_ms")),
					expr("total", mean("dynamo_router_overhead_total_ms"))), f),
				sig("router_queue"),
				prom("Cancelled, rejected, migrated", "requests/s", targets(
					lazy(expr("cancelled", speed("dynamo_frontend_model_cancellation_total"))), lazy(expr("rejected", speed("dynamo_frontend_model_rejection_total"))),
					lazy(expr("migrated", speed("dynamo_frontend_model_migration_total")))), f),
				prom("Active decode blocks", "blocks", targets(lazy(expr("{{worker_id}}", added("dynamo_frontend_worker_active_decode_blocks", "worker_id")))), f)),
			row("Workers",
				each("component_requests", titled("Worker requests")), each("component_inflight", titled("Worker requests in flight")),
				each("component_duration", titled("Worker duration p50, p99"), quantiles(0.5, 0.99)),
				prom("Worker errors", "1/s", targets(
					lazy(expr("{{instance}} {{error_type}}", speed("dynamo_component_errors_total", "instance", "error_type"))),
					lazy(expr("{{instance}} cancelled", speed("dynamo_component_cancellation_total", "instance")))), w,
					means("The series appear with the first error.")),
				prom("KV usage", "ratio", targets(
					expr("{{instance}}", highest("dynamo_component_gpu_cache_usage_percent", "instance"))), w,
					means("A share from 0 to 1 in spite of the metric's name.")),
				each("component_blocks"),
				prom("Bytes in and out", "bytes/s", targets(
					expr("in", speed("dynamo_component_request_bytes_total"+generate)), expr("out", speed("dynamo_component_response_bytes_total"+generate))), w)),
			row("Transport",
				prom("Work handler queue", "requests", targets(
					Target{Signal: "handler_queue", By: signal.ByEngine, Legend: "{{instance}} queued"},
					expr("{{instance}} room for", highest("dynamo_work_handler_queue_capacity", "instance"))), w,
					means("A full queue is not counted as a rejection: watch the depth against the capacity.")),
				prom("Network transit p99", "seconds", targets(expr("{{instance}}", percentile(0.99, "dynamo_work_handler_network_transit_seconds", "instance"))), w),
				sig("request_plane_roundtrip"),
				each("tokio_busy", above(Warn, 0.9),
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
				each("kvbm_host_hit_rate"), each("kvbm_disk_hit_rate"),
				prom("Object store hit rate", "ratio", targets(expr("{{instance}}", highest("dynamo_kvbm_object_cache_hit_rate", "instance"))), w),
				each("kvbm_matched")),
			row("Offload",
				each("kvbm_offload"),
				prom("Blocks written down", "blocks/s", targets(
					expr("device to host", speed("dynamo_kvbm_offload_blocks_d2h")), expr("host to disk", speed("dynamo_kvbm_offload_blocks_h2d")),
					expr("device to disk", speed("dynamo_kvbm_offload_blocks_d2d")), lazy(expr("device to object store", speed("dynamo_kvbm_offload_blocks_d2o")))), w)),
			row("Onboard",
				each("kvbm_onboard"),
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
				sig("gpu_memory_free"), sig("gpu_nvlink"), sig("gpu_pcie")),
			row("Health",
				sig("gpu_power", titled("Power, all GPUs")),
				prom("Power", "watts", targets(expr(name, highest("DCGM_FI_DEV_POWER_USAGE", by...))), g),
				prom("Temperature", "celsius", targets(expr(name, highest("DCGM_FI_DEV_GPU_TEMP", by...))), g, above(Warn, 80), above(Crit, 90)),
				prom("SM clock", "MHz", targets(expr(name, highest("DCGM_FI_DEV_SM_CLOCK", by...))), g,
					means("A clock that falls while the load is high is a GPU that throttles.")),
				prom("XID of the last error", "1", targets(expr(name, highest("DCGM_FI_DEV_XID_ERRORS", by...)+" > 0 or "+highest("DCGM_FI_DEV_XID_ERRORS", by...))), g, shown(Table),
					means("The number of the last XID error of each GPU, 0 for none. 79 is a GPU that fell off the bus."))),
		},
	}
}
