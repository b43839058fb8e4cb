package signal

import (
	"fmt"
	"strings"
)

// InfoSeries is the recorded series with one sample of 1 per engine and the labels instance,
// model_name, role and backend: who is there and what it does.
const InfoSeries = "engine:info"

// LostSeries is the recorded series with a sample of 1 per engine that was there within the last hour
// and is not now, or is still a target and down; labels as InfoSeries.
const LostSeries = "engine:lost"

// targetInfo is what the scraper writes about a target whose role the configuration sets.
const targetInfo = "rollscope_target_info"

// presence are the metrics by which an engine is known to be there, by the writer of the label
// engine_type: the scheduler's gauges before the tokenizer manager's counters, which some versions
// label "unified" on a prefill or decode engine.
var (
	schedulerPresence = []string{"sglang:num_running_reqs", "sglang:max_total_num_tokens"}
	tokenizerPresence = []string{
		"sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:num_requests_total",
		"sglang:time_to_first_token_seconds_count", "sglang:e2e_request_latency_seconds_count",
		"sglang:inter_token_latency_seconds_count", "sglang:realtime_tokens_total", "sglang:gen_throughput",
	}
	vllmPresence = []string{
		"vllm:num_requests_running", "vllm:e2e_request_latency_seconds_count",
		"vllm:time_to_first_token_seconds_count", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
	}
)

// rolesExpr gives one sample of 1 per engine with the labels instance and role. The precedence is that
// of [engine.Resolver]: the configuration's word, the scheduler's engine_type, Dynamo's component, the
// token counters' engine_type, unified. keep are labels to keep beside them.
func rolesExpr(keep ...string) string {
	labelled := func(by, names, matcher string) []string {
		dims := list(by, keep)
		direct := fmt.Sprintf(`label_replace(group by (%s) (label_replace(%s, "instance", "$1", "WorkerId", "(.+)")), "role", "$1", %q, "(.+)")`,
			list("instance", append([]string{by}, keep...)), presenceSelector(names, `worker_addr=""`, matcher), by)
		router := fmt.Sprintf(`label_replace(group by (%s) (label_replace(group by (%s) (%s), "instance", "$2", "worker_addr", "%s")), "role", "$1", %q, "(.+)")`,
			list("instance", append([]string{by}, keep...)), list("worker_addr", append([]string{by}, keep...)),
			presenceSelector(names, `worker_addr!=""`, matcher), workerAddr, by)
		_ = dims
		return []string{direct, router}
	}
	var alts []string
	alts = append(alts, fmt.Sprintf(`group by (%s) (%s{role!=""})`, list("instance, role", keep), targetInfo))
	alts = append(alts, labelled("engine_type", strings.Join(schedulerPresence, "|"), `engine_type!=""`)...)
	alts = append(alts, fmt.Sprintf(`label_replace(group by (%s) (dynamo_component_uptime_seconds{dynamo_component=~"prefill|decode"}), "role", "$1", "dynamo_component", "(.+)")`,
		list("instance, dynamo_component", keep)))
	alts = append(alts, labelled("engine_type", strings.Join(tokenizerPresence, "|"), `engine_type!=""`)...)
	return "topk by (instance) (1, " + strings.Join(alts, " or on (instance) ") + ")"
}

// presenceSelector selects any of several series names.
func presenceSelector(names string, matchers ...string) string {
	if !strings.Contains(names, "|") {
		return selector(names, matchers)
	}
	return fmt.Sprintf(`{__name__=~"%s",%s}`, names, strings.Join(matchers, ","))
}

// withRole adds the label role to per-engine series. Engines of unknown role stay, with role="", so the
// sum over roles is the total.
func (b *builder) withRole(expr string) string {
	return fmt.Sprintf("(%s) * on (instance) group_left (role) (%s or on (instance) group by (instance) (%s))", expr, rolesExpr(), expr)
}
