package signal

import "github.com/rollscope/rollscope/internal/engine"

// dynamoSignals are what NVIDIA Dynamo's frontend, workers and block manager say, beside the engines' own
// numbers.
func dynamoSignals() []Signal {
	const front, comp, kvbm, planner = "Dynamo frontend", "Dynamo components", "KVBM", "Dynamo planner"
	fe, worker := engine.DynamoFrontend, engine.DynamoWorker
	return []Signal{
		{
			ID: "frontend_ttft", Title: "Frontend time to first token", Short: "TTFT", Group: front, Unit: "seconds", Kind: Quantile, Roles: frontends(),
			Meaning: "Arrival at the frontend to the first token, routing and transport included.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_time_to_first_token_seconds", "")}},
		},
		{
			ID: "frontend_itl", Title: "Frontend inter-token latency", Short: "ITL", Group: front, Unit: "seconds", Kind: Quantile, Roles: frontends(),
			Meaning: "Time between two tokens as the frontend sends them.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_inter_token_latency_seconds", "")}},
		},
		{
			ID: "frontend_duration", Title: "Frontend request duration", Short: "E2E", Group: front, Unit: "seconds", Kind: Quantile, Roles: frontends(),
			Meaning: "Arrival at the frontend to the last token.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_request_duration_seconds", "")}},
		},
		{
			ID: "frontend_request_rate", Title: "Frontend request rate", Short: "req/s", Group: front, Unit: "requests/s", Kind: Rate, Roles: frontends(),
			Meaning: "Requests that finished at the frontend, per second.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_requests_total", "")}},
		},
		{
			ID: "frontend_success", Title: "Frontend success", Short: "Success", Group: front, Unit: "ratio", Kind: Share, Higher: true, Roles: frontends(),
			Meaning: "Share of the frontend's requests that succeeded.",
			Sources: []Source{{
				Backend: fe, Name: "status", Lazy: true,
				Num: whole("dynamo_frontend_requests_total", `status="success"`), Den: whole("dynamo_frontend_requests_total", ""),
			}},
		},
		{
			ID: "frontend_active", Title: "Requests at the frontend", Short: "Active", Group: front, Unit: "requests", Kind: Level, Roles: frontends(),
			Meaning: "Requests in flight at the frontend.",
			Sources: []Source{
				{Backend: fe, Name: "active_requests", Num: whole("dynamo_frontend_active_requests", "")},
				{Backend: fe, Name: "inflight_requests", Num: whole("dynamo_frontend_inflight_requests", "")},
			},
		},
		{
			ID: "frontend_queue", Title: "Frontend queue", Short: "Queue", Group: front, Unit: "requests", Kind: Level, Roles: frontends(),
			Meaning: "Requests in the stages before the first token: preprocess, route, dispatch.",
			Trap:    "stage_requests has no model label: filtered by model it is empty.",
			Sources: []Source{
				{Backend: fe, Name: "stage_requests", Num: whole("dynamo_frontend_stage_requests", `stage=~"preprocess|route|dispatch"`)},
				{Backend: fe, Name: "queued_requests", Num: whole("dynamo_frontend_queued_requests", "")},
			},
		},
		{
			ID: "frontend_output_tokens", Title: "Frontend output tokens", Short: "tok/s", Group: front, Unit: "tokens/s", Kind: Rate, Higher: true, Roles: frontends(),
			Meaning: "Output tokens per second, as they stream.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_output_tokens_total", "")}},
		},
		{
			ID: "frontend_migrations", Title: "Migrations", Short: "Migrated", Group: front, Unit: "requests/s", Kind: Rate, Roles: frontends(),
			Meaning: "Requests per second that moved to another worker.",
			Sources: []Source{{Backend: fe, Name: "frontend", Num: whole("dynamo_frontend_model_migration_total", ""), ZeroIf: whole("dynamo_frontend_requests_total", "")}},
		},
		{
			ID: "router_queue", Title: "Router queue", Short: "Router queue", Group: front, Unit: "requests", Kind: Level, Roles: frontends(),
			Meaning: "Requests in the queue of Dynamo's router.",
			Sources: []Source{{Backend: fe, Name: "router_queue", Num: whole("dynamo_frontend_router_queue_pending_requests", "")}},
		},
		{
			ID: "router_kv_hit_rate", Title: "Router KV hit rate", Short: "KV hit", Group: front, Unit: "ratio", Kind: Quantile, Higher: true, Roles: frontends(),
			Meaning: "Hit rate that the router predicts for the worker it chose, per request.",
			Sources: []Source{{Backend: fe, Name: "router", Num: whole("dynamo_component_router_kv_hit_rate", "")}},
		},
		{
			ID: "router_overhead", Title: "Routing overhead", Short: "Overhead", Group: front, Unit: "seconds", Kind: Quantile, Roles: frontends(),
			Meaning: "Time to route a request.",
			Sources: []Source{{Backend: fe, Name: "router", Scale: 0.001, Num: whole("dynamo_router_overhead_total_ms", "")}},
		},
		{
			ID: "component_requests", Title: "Component requests", Short: "req/s", Group: comp, Unit: "requests/s", Kind: Rate,
			Meaning: "Requests per second at the workers' generate endpoint.",
			Sources: []Source{
				{Backend: worker, Name: "generate", Num: whole("dynamo_component_requests_total", `dynamo_endpoint="generate"`)},
			},
		},
		{
			ID: "component_inflight", Title: "Component in flight", Short: "In flight", Group: comp, Unit: "requests", Kind: Level,
			Meaning: "Requests in flight at the workers' generate endpoint.",
			Sources: []Source{{Backend: worker, Name: "generate", Num: whole("dynamo_component_inflight_requests", `dynamo_endpoint="generate"`)}},
		},
		{
			ID: "component_duration", Title: "Component duration", Short: "Duration", Group: comp, Unit: "seconds", Kind: Quantile,
			Meaning: "Duration of a request at the worker's generate endpoint; by role it is prefill time and decode time.",
			Sources: []Source{{Backend: worker, Name: "generate", Num: whole("dynamo_component_request_duration_seconds", `dynamo_endpoint="generate"`)}},
		},
		{
			ID: "component_errors", Title: "Component errors", Short: "Errors", Group: comp, Unit: "requests/s", Kind: Rate,
			Meaning: "Failed requests per second at the workers.",
			Sources: []Source{{Backend: worker, Name: "errors", Num: whole("dynamo_component_errors_total", ""), ZeroIf: whole("dynamo_component_requests_total", "")}},
		},
		{
			ID: "component_bytes", Title: "Component traffic", Short: "Bytes", Group: comp, Unit: "bytes/s", Kind: Rate,
			Meaning: "Bytes received and sent by the workers, per second.",
			Sources: []Source{{
				Backend: worker, Name: "requests and responses",
				Num: Vec{{Metric: "dynamo_component_request_bytes_total"}, {Metric: "dynamo_component_response_bytes_total"}},
			}},
		},
		{
			ID: "component_blocks", Title: "KV blocks", Short: "Blocks", Group: comp, Unit: "blocks", Kind: Level,
			Meaning: "KV blocks of the workers.",
			Sources: []Source{{Backend: worker, Name: "total_blocks", Num: leader("dynamo_component_total_blocks", "", "dp_rank")}},
		},
		{
			ID: "handler_queue", Title: "Handler queue", Short: "Handler", Group: comp, Unit: "requests", Kind: Level,
			Meaning: "Requests in the workers' handler queues.",
			Trap:    "A full queue is not counted as a rejection: compare it with its capacity.",
			Sources: []Source{{Backend: worker, Name: "work_handler", Num: whole("dynamo_work_handler_queue_depth", "")}},
		},
		{
			ID: "request_plane_roundtrip", Title: "Request plane round trip", Short: "Round trip", Group: comp, Unit: "seconds", Kind: Quantile, Roles: frontends(),
			Meaning: "Sending of a request to its first response, over the request plane.",
			Sources: []Source{{Backend: fe, Name: "request plane", Num: whole("dynamo_request_plane_roundtrip_ttft_seconds", "")}},
		},
		{
			ID: "tokio_busy", Title: "Runtime busy", Short: "Tokio", Group: comp, Unit: "ratio", Kind: Worst,
			Meaning: "Busy share of the busiest runtime worker.",
			Sources: []Source{{Backend: worker, Name: "tokio", Num: Vec{{Metric: "dynamo_tokio_worker_busy_ratio", Ranks: RankLeader, Then: ">= -Inf"}}}},
		},
		{
			ID: "kvbm_offload", Title: "KVBM offload", Short: "Offload", Group: kvbm, Unit: "blocks/s", Kind: Rate,
			Meaning: "Blocks per second that the block manager moved off the device: to host, disk and object storage.",
			Sources: []Source{{Backend: worker, Name: "offload", Num: Vec{
				{Metric: "dynamo_kvbm_offload_blocks_d2h"}, {Metric: "dynamo_kvbm_offload_blocks_d2d"}, {Metric: "dynamo_kvbm_offload_blocks_d2o"},
			}}},
		},
		{
			ID: "kvbm_onboard", Title: "KVBM onboard", Short: "Onboard", Group: kvbm, Unit: "blocks/s", Kind: Rate,
			Meaning: "Blocks per second that the block manager brought back to the device.",
			Sources: []Source{{Backend: worker, Name: "onboard", Num: Vec{
				{Metric: "dynamo_kvbm_onboard_blocks_h2d"}, {Metric: "dynamo_kvbm_onboard_blocks_d2d"}, {Metric: "dynamo_kvbm_onboard_blocks_o2d"},
			}}},
		},
		{
			ID: "kvbm_matched", Title: "KVBM matched tokens", Short: "Matched", Group: kvbm, Unit: "tokens/s", Kind: Rate, Higher: true,
			Meaning: "Tokens per second that the block manager found.",
			Sources: []Source{{Backend: worker, Name: "matched", Num: whole("dynamo_kvbm_matched_tokens", "")}},
		},
		{
			ID: "kvbm_host_hit_rate", Title: "KVBM host hit rate", Short: "Host hit", Group: kvbm, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Hit rate of the block manager's host cache; of several workers their mean.",
			Sources: []Source{{Backend: worker, Name: "gauge", Caveat: "of the last interval, the mean of the workers", Num: Vec{{Metric: "dynamo_kvbm_host_cache_hit_rate", Ranks: RankLeader, Then: ">= -Inf"}}}},
		},
		{
			ID: "kvbm_disk_hit_rate", Title: "KVBM disk hit rate", Short: "Disk hit", Group: kvbm, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Hit rate of the block manager's disk cache; of several workers their mean.",
			Sources: []Source{{Backend: worker, Name: "gauge", Caveat: "of the last interval, the mean of the workers", Num: Vec{{Metric: "dynamo_kvbm_disk_cache_hit_rate", Ranks: RankLeader, Then: ">= -Inf"}}}},
		},
		{
			ID: "planner_prefill_replicas", Title: "Prefill replicas", Short: "Prefill", Group: planner, Unit: "replicas", Kind: Worst,
			Meaning: "Prefill replicas that the planner runs.",
			Sources: []Source{
				{Backend: engine.Other, Name: "planner", Num: leader("dynamo_planner_num_prefill_replicas", "")},
				{Backend: engine.Other, Name: "planner, old name", Num: leader("dynamo_planner_num_prefill_workers", "")},
			},
		},
		{
			ID: "planner_decode_replicas", Title: "Decode replicas", Short: "Decode", Group: planner, Unit: "replicas", Kind: Worst,
			Meaning: "Decode replicas that the planner runs.",
			Sources: []Source{
				{Backend: engine.Other, Name: "planner", Num: leader("dynamo_planner_num_decode_replicas", "")},
				{Backend: engine.Other, Name: "planner, old name", Num: leader("dynamo_planner_num_decode_workers", "")},
			},
		},
	}
}
