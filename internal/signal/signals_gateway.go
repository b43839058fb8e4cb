package signal

import "github.com/rollscope/rollscope/internal/engine"

// gatewaySignals are what a router says about itself and its workers.
func gatewaySignals() []Signal {
	const group = "Router"
	return []Signal{
		{
			ID: "router_request_rate", Title: "Routed requests", Short: "req/s", Group: group, Unit: "requests/s", Kind: Rate, Roles: routers(),
			Meaning: "Requests routed per second.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_router_requests_total", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_requests_total", "")},
			},
		},
		{
			ID: "router_duration", Title: "Duration at the router", Short: "Duration", Group: group, Unit: "seconds", Kind: Quantile, Roles: routers(),
			Meaning: "Duration of a routed request.",
			Trap:    "No bound above 240 s: long rollouts all land in +Inf.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_router_request_duration_seconds", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_request_duration_seconds", "")},
			},
		},
		{
			ID: "router_errors", Title: "Router errors", Short: "Errors", Group: group, Unit: "requests/s", Kind: Rate, Roles: routers(),
			Meaning: "Routed requests that failed, per second.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_router_request_errors_total", ""), ZeroIf: whole("smg_router_requests_total", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_request_errors_total", ""), ZeroIf: whole("sgl_router_requests_total", "")},
			},
		},
		{
			ID: "router_retries", Title: "Router retries", Short: "Retries", Group: group, Unit: "requests/s", Kind: Rate, Roles: routers(),
			Meaning: "Requests per second that the router tried again.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_worker_retries_total", ""), ZeroIf: whole("smg_router_requests_total", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_retries_total", ""), ZeroIf: whole("sgl_router_requests_total", "")},
			},
		},
		{
			ID: "router_inflight", Title: "Requests at workers", Short: "In flight", Group: group, Unit: "requests", Kind: Level, Roles: routers(),
			Meaning: "Requests in flight at workers, as the router counts them.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_worker_requests_active", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_running_requests", "")},
				{Backend: engine.Router, Name: "experimental router", Since: "2026-05-25", Num: whole("sgl_router_worker_inflight_requests", "")},
			},
		},
		{
			ID: "router_workers", Title: "Workers", Short: "Workers", Group: group, Unit: "workers", Kind: Level, Roles: routers(),
			Meaning: "Workers that the router knows.",
			Sources: []Source{
				{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: whole("smg_worker_pool_size", "")},
				{Backend: engine.Router, Name: "router", Since: "0.1", Num: whole("sgl_router_active_workers", "")},
				{Backend: engine.Router, Name: "experimental router", Since: "2026-05-25", Num: whole("sgl_router_workers", "")},
			},
		},
		{
			ID: "router_unhealthy", Title: "Unhealthy workers", Short: "Unhealthy", Group: group, Unit: "workers", Kind: Level, Roles: routers(),
			Meaning: "Workers whose health check failed; removed ones (-1) are left out.",
			Trap:    "Says nothing where health checks are off, as slime sets them.",
			Sources: []Source{{Backend: engine.Router, Name: "gateway", Since: "0.3.0", Num: Vec{{Metric: "smg_worker_health", Then: "== bool 0"}}}},
		},
		{
			ID: "gateway_queue", Title: "Gateway queue", Short: "GW queue", Group: group, Unit: "requests", Kind: Level, Roles: routers(),
			Meaning: "Requests in the gateway's own queue.",
			Sources: []Source{{Backend: engine.Router, Name: "gateway", Since: "1.7", Num: whole("smg_scheduler_queue_depth", "")}},
		},
		{
			ID: "gateway_queue_wait", Title: "Wait in the gateway", Short: "GW wait", Group: group, Unit: "seconds", Kind: Quantile, Roles: routers(),
			Meaning: "Time in the gateway's own queue.",
			Sources: []Source{{Backend: engine.Router, Name: "gateway", Since: "1.7", Num: whole("smg_scheduler_queue_wait_seconds", "")}},
		},
		{
			ID: "pd_ttft", Title: "PD time to first token", Short: "PD TTFT", Group: group, Unit: "seconds", Kind: Quantile, Roles: routers(),
			Meaning: "Time to first token over prefill and decode, as the gateway sees it: the one true one of a PD fleet.",
			Sources: []Source{{Backend: engine.Router, Name: "gateway", Since: "1.7", Num: whole("smg_pd_ttft_seconds", "")}},
		},
	}
}
