package signal

import (
	"fmt"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// InfoSeries is the recorded series with one sample of 1 per engine and the labels instance,
// model_name, role and backend: who is there and what it does.
const InfoSeries = "engine:info"

// LostSeries is the recorded series with a sample of 1 per engine that was there within the last hour
// and is not now, or that is still a target and down; labels as InfoSeries.
const LostSeries = "engine:lost"

// TargetInfoSeries may be written by a scraper for its targets, with value 1 and the labels instance and
// role: its word on a role goes before what is read from the engines' own labels.
const TargetInfoSeries = "rollscope_target_info"

// Who writes engine_type, best first: the scheduler's gauges, then the token counters, which some
// versions label "unified" on a prefill or decode engine.
const (
	schedulerRole = "sglang:num_running_reqs"
	counterRole   = "sglang:generation_tokens_total"
)

// presenceOfBackend are the series by which an engine is known to be there.
func presenceOfBackend(b engine.Backend) string {
	switch b {
	case engine.SGLang:
		return `sglang:(num_running_reqs|num_queue_reqs|gen_throughput|token_usage|max_total_num_tokens|prompt_tokens_total|generation_tokens_total|realtime_tokens_total|num_requests_total|(time_to_first_token|e2e_request_latency|inter_token_latency|queue_time)_seconds_count)`
	case engine.VLLM:
		return `vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|gpu_cache_usage_perc|generation_tokens_total|(time_to_first_token|e2e_request_latency|inter_token_latency|time_per_output_token|request_time_per_output_token)_seconds_count)`
	default:
		return "dynamo_component_(inflight_requests|requests_total|gpu_cache_usage_percent|total_blocks)"
	}
}

// presence gives one sample of 1 per engine of a backend, whichever way it is seen.
func presence(b engine.Backend) string {
	names := presenceOfBackend(b)
	if !isEngine(b) {
		return fmt.Sprintf(`label_replace(group by (instance, model) ({__name__=~"%s"}), "model_name", "$1", "model", "(.+)")`, names)
	}
	return fmt.Sprintf(`%s or on (instance) %s`,
		seenDirectly("instance, model_name", fmt.Sprintf(`{__name__=~"%s",worker_addr=""}`, names)),
		seenByRouter("model_name", fmt.Sprintf(`{__name__=~"%s",worker_addr!=""}`, names)))
}

// seenDirectly groups series of direct scrapes and of Ray's agent by the engine's identity.
func seenDirectly(by, series string) string {
	return fmt.Sprintf(`group by (%s) (label_replace(%s, "instance", "$1", "WorkerId", "(.+)"))`, by, series)
}

// seenByRouter groups series of a router's /engine_metrics by the engine's identity and by one more label.
func seenByRouter(by, series string) string {
	return fmt.Sprintf(`group by (instance, %s) (label_replace(group by (worker_addr, %s) (%s), "instance", "$2", "worker_addr", "%s"))`,
		by, by, series, workerAddr)
}

// rolesExpr gives samples of 1 with the labels instance and role for the engines that say something about
// their role, one per engine. The precedence is that of [engine.Resolver]: the configuration's word, the
// scheduler's engine_type, Dynamo's component, the token counters' engine_type.
func rolesExpr() string {
	engineType := func(grouped string) string {
		return fmt.Sprintf(`label_replace(%s, "role", "$1", "engine_type", "(.+)")`, grouped)
	}
	const component = "dynamo_component_inflight_requests"
	alternatives := []string{
		fmt.Sprintf(`group by (instance, role) (%s{role!=""})`, TargetInfoSeries),
		engineType(seenDirectly("instance, engine_type", schedulerRole+`{engine_type!="",worker_addr=""}`)),
		engineType(seenByRouter("engine_type", schedulerRole+`{engine_type!="",worker_addr!=""}`)),
		fmt.Sprintf(`label_replace(group by (instance, dynamo_component) (%s{dynamo_component=~"prefill|decode|encode"}), "role", "$1", "dynamo_component", "(.+)")`, component),
		fmt.Sprintf(`label_replace(group by (instance, dynamo_namespace) (%s{dynamo_component="backend"}) and on (dynamo_namespace) %s{dynamo_component="prefill"}, "role", "decode", "", "")`, component, component),
		engineType(seenDirectly("instance, engine_type", counterRole+`{engine_type!="",worker_addr=""}`)),
		engineType(seenByRouter("engine_type", counterRole+`{engine_type!="",worker_addr!=""}`)),
	}
	return "topk by (instance) (1, " + strings.Join(alternatives, " or on (instance) ") + ")"
}

// withRole adds the label role to per-engine series. An engine that says nothing about its role is
// unified, so every engine has a role and the sum over roles is the total.
func (b *builder) withRole(expr string) string {
	return fmt.Sprintf(`(%s) * on (instance) group_left (role) (%s or on (instance) label_replace(group by (instance) (%s), "role", "unified", "", ""))`,
		expr, rolesExpr(), expr)
}

// infoExpr is the rule of InfoSeries for one backend.
func infoExpr(b engine.Backend) string {
	there := fmt.Sprintf("topk by (instance) (1, %s)", presence(b))
	if b == engine.DynamoWorker { // unless its engine speaks for itself
		there = fmt.Sprintf(`(%s unless on (instance) %s{backend=~"sglang|vllm"})`, there, InfoSeries)
	}
	return fmt.Sprintf(`sum by (instance, model_name, role) (%s * on (instance) group_left (role) (%s or on (instance) label_replace(group by (instance) (%s), "role", "unified", "", "")))`,
		there, rolesExpr(), presence(b))
}

// lostExpr is the rule of LostSeries. A target that answers is not lost even while it has nothing to say,
// as after a restart. Of several identities in the last hour (a role that was not known at the first
// scrape, another model) the newest is the engine's: it is lost once.
func lostExpr() string {
	return fmt.Sprintf(`(topk by (instance) (1, max_over_time(timestamp(%[1]s)[1h:1m])) > bool 0) unless on (instance) (%[1]s or up == 1) or (%[2]s and on (instance) up == 0)`, InfoSeries, LostSeries)
}
