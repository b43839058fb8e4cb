// Boards, metrics and rules of the fixture server: one of each kind of panel and of rule.
const panel = (id, title, unit, view, more) => ({ id, title, unit, view, meaning: `${title}: what it says and how it misleads.`, quantiles: [], targets: [], stacked: false, thresholds: [], backends: ["sglang"], ...more });

export const BOARDS = [
  ["golden", "Golden signals", "Is the fleet serving well?"],
  ["sglang", "SGLang engines", "The eight panels of the on-call round, with the right names."],
  ["pd", "PD disaggregation", "Where does time go between prefill and decode?"],
  ["scheduler", "Scheduler and MoE", "What do the batches look like, and is the load even over experts?"],
  ["hicache", "HiCache", "What comes back from host memory and storage?"],
  ["spec", "Speculative decoding", "Does drafting pay?"],
  ["router", "Router", "Which worker gets what?"],
  ["dynamo", "Dynamo frontend and workers", "Requests as the frontend sees them."],
  ["vllm", "vLLM engines", "The same questions for vLLM."],
  ["gpus", "GPUs", "Power, memory, clocks and errors from DCGM."],
].map(([id, title, meaning], i) => ({
  id, title, meaning, tags: [], custom: false,
  sections: [
    { title: "Now", panels: [
      panel("rate", "Request rate", "requests/s", "stat", { signal: "request_rate", by: "fleet" }),
      panel("kv", "KV cache used", "ratio", "gauge", { signal: "kv_usage", by: "fleet", min: 0, max: 1, thresholds: [{ value: 0.9, level: "warn", below: false }, { value: 0.95, level: "crit", below: false }] }),
      panel("spec", "Accepted length", "1", "stat", { signal: "spec_accept_length", by: "fleet" }),
      panel("gone", "Expert balance", "ratio", "stat", { problem: "signal moe_balance is not in the catalog" }),
    ] },
    { title: "Latency", panels: [
      panel("ttft", "Time to first token", "seconds", "lines", { signal: "ttft", by: "fleet", quantiles: [0.5, 0.99], thresholds: [{ value: 0.5, level: "crit", below: false }] }),
      panel("itl_by", "Inter-token latency p99", "seconds", "lines", { signal: "itl", by: "engine", quantiles: [0.99] }),
      panel("e2e", "End-to-end latency", "seconds", "lines", { signal: "e2e", by: "fleet", quantiles: [0.5, 0.99] }),
      panel("by_role", "Running by role", "requests", "lines", { signal: "running", by: "role" }),
    ] },
    { title: "Load", panels: [
      panel("queue", "Queue by engine", "requests", "table", { signal: "queue_depth", by: "engine" }),
      panel("prom", "Retractions", "requests/s", "lines", { targets: [{ expr: "rate(sglang:retractions_total[1m])", legend: "{{instance}}" }] }),
      panel("none", "Nothing here", "1", "lines", { targets: [{ expr: "nothing", legend: "" }] }),
    ] },
  ].slice(0, i % 2 ? 3 : 2 + (i % 3 ? 1 : 1)),
})).map((b) => (b.id === "vllm" ? { ...b, sections: b.sections.map((s) => ({ ...s, panels: s.panels.map((p) => ({ ...p, backends: ["trtllm"] })) })) } : b));

const metric = (name, type, unit, meaning, more = {}) => ({ name, backend: "sglang", type, unit, labels: ["model_name", "engine_type", "tp_rank"], since: "0.3.5.post1", till: "", meaning, trap: "", use: "", custom: false, stored: true, ...more });
export const METRICS = [
  metric("sglang:time_to_first_token_seconds", "histogram", "seconds", "Receipt by the API server to the first output chunk; once per request.", { trap: "Wrong for non-streaming requests; never written by a PD prefill engine." }),
  metric("sglang:inter_token_latency_seconds", "histogram", "seconds", "Gap between two output chunks divided by the tokens in the chunk."),
  metric("sglang:cache_hit_rate", "gauge", "ratio", "Hits of the last prefill batch.", { trap: "Of the last batch only; every decode report overwrites it with 0.", use: "cache_hit_rate" }),
  metric("sglang:num_queue_reqs", "gauge", "requests", "Waiting queue only."),
  metric("sglang:num_running_reqs", "gauge", "requests", "Running batch."),
  metric("sglang:generation_tokens_total", "counter", "tokens", "Added when the request finishes."),
  metric("sglang:time_per_output_token_seconds", "histogram", "seconds", "Removed.", { till: "0.4.4.post3", use: "sglang:inter_token_latency_seconds", stored: false }),
  metric("sglang:e2e_first_token_latency_seconds", "histogram", "seconds", "Never existed.", { trap: "Invented: stands in documents only.", use: "sglang:time_to_first_token_seconds", stored: false }),
];

export const RULES = [
  ["ITLHigh", "histogram_quantile(0.99, sum by (instance, le) (rate(sglang:itl_seconds_bucket[5m]))) > 0.04", 120, "critical", "firing"],
  ["KVCacheNearlyFull", "max by (instance) (sglang:kv_usage) > 0.95", 300, "warning", "firing"],
  ["PrefillQueueUp", "sum by (instance) (sglang:queue_depth) > 30", 120, "warning", "firing"],
  ["CacheHitLow", "sglang:cache_hit_rate < 0.4", 120, "warning", "pending"],
  ["TargetUnreadable", "up == 0", 60, "warning", "pending"],
  ["TTFTHigh", "histogram_quantile(0.99, sum by (le) (rate(sglang:time_to_first_token_seconds_bucket[5m]))) > 2", 300, "critical", "inactive"],
  ["TokensStalled", "sum(rate(sglang:generated_tokens[5m])) == 0", 300, "critical", "blind"],
  ["RetractionStorm", "rate(sglang:num_retracted_requests_total[5m]) > 1", 300, "warning", "inactive"],
].map(([name, expr, wait, severity, state]) => ({ name, group: "sglang", expr, for_seconds: wait, severity, summary: `${name}: what it tells.`, state, source: name === "TokensStalled" ? "rules/mine.yml" : "built-in", ...(state === "blind" ? { reason: "no series of sglang:generated_tokens; did you mean sglang:generation_tokens_total?" } : {}) }));
