// An invented fleet for working on the page without a recorder: a few engines with believable numbers,
// one of each trouble the page must show. Deterministic: the same instant gives the same number.

/** Noise between -1 and 1, smooth over about period seconds. */
export function noise(seed, t, period = 90) {
  const hash = (n) => {
    let x = (Math.imul(n | 0, 0x9e3779b1) ^ Math.imul(seed | 0, 0x85ebca6b)) >>> 0;
    x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d) >>> 0;
    x = Math.imul(x ^ (x >>> 12), 0x297a2d39) >>> 0;
    return ((x ^ (x >>> 15)) >>> 0) / 2 ** 31 - 1;
  };
  const i = Math.floor(t / period);
  const f = t / period - i;
  const s = f * f * (3 - 2 * f);
  return hash(i) * (1 - s) + hash(i + 1) * s;
}

const HOUR = 3600;
/** 0..1: a fault that begins 22 minutes before the hour's end and stays. */
const fault = (t, start) => 1 / (1 + Math.exp(-(((t - start) / 60) - 3)));

export function makeFleet(size, begin) {
  const kinds = [
    ["decode-5", "decode", "sglang", "0.5.6"], ["prefill-3", "prefill", "sglang", "0.5.6"], ["decode-1", "decode", "sglang", "0.5.6"],
    ["prefill-0", "prefill", "sglang", "0.5.6"], ["prefill-1", "prefill", "sglang", "0.5.6"], ["prefill-2", "prefill", "sglang", "0.5.6"],
    ["decode-0", "decode", "sglang", "0.5.6"], ["decode-2", "decode", "sglang", "0.5.6"], ["decode-3", "decode", "sglang", "0.5.5"],
    ["decode-4", "decode", "sglang", "0.5.6"], ["vllm-a", "unified", "vllm", "0.12.0"], ["vllm-b", "unified", "vllm", "0.12.0"],
    ["dynamo-w1", "unified", "dynamo_worker", "0.7.1"], ["dynamo-w2", "unified", "dynamo_worker", ""],
  ];
  while (kinds.length < size) kinds.push([`decode-${kinds.length - 8}`, "decode", "sglang", "0.5.6"]);
  return kinds.slice(0, size).map(([name, role, backend, version], i) => {
    const instance = `10.0.${role === "prefill" ? 1 : 2}.${10 + i}:30000`;
    const job = backend === "sglang" ? "slime-sglang" : backend;
    return {
      id: `${job}/${instance}`, name, job, instance, role, backend, version, seed: i * 17 + 3,
      model: backend === "vllm" ? "Qwen3-8B" : "Qwen3-32B", view: i % 4 === 1 ? "router" : "direct",
      dp_ranks: role === "decode" ? ["0", "1", "2", "3"] : [],
      labels: { host: `h${String(i).padStart(2, "0")}`, engine_type: role, model_name: backend === "vllm" ? "Qwen3-8B" : "Qwen3-32B", rack: i === 3 ? `<img src=x onerror="document.title='pwned'">` : "r1" },
      begin,
      down: name === "dynamo-w2", idle: name === "vllm-b" || name === "dynamo-w1",
    };
  });
}

/** How each signal behaves on one engine at t (seconds); null is no value. */
const SIGNALS = {
  ttft: (e, t, q) => (e.role === "decode" ? undefined : (q > 0.9 ? 0.43 : 0.21) * (1 + 0.14 * noise(e.seed, t)) * (e.name === "prefill-3" ? 1 + 0.7 * fault(t, e.begin + 0.55 * HOUR) : 1)),
  itl: (e, t, q) => (e.role === "prefill" ? undefined : (q > 0.9 ? 0.031 : 0.02) * (1 + 0.1 * noise(e.seed + 1, t)) * (e.name === "decode-5" ? 1 + 1.05 * fault(t, e.begin + 0.37 * HOUR) : 1)),
  e2e: (e, t, q) => (q > 0.9 ? 60 : 9.2) * (q > 0.9 ? 1 : 1 + 0.2 * noise(e.seed + 2, t)),
  throughput: (e, t) => (e.role === "prefill" ? undefined : 6400 * (1 + 0.12 * noise(e.seed + 3, t)) * (e.name === "decode-5" ? 1 - 0.5 * fault(t, e.begin + 0.37 * HOUR) : 1) * (sync(t) ? 0.08 : 1)),
  cache_hit_rate: (e, t) => (e.role === "decode" ? undefined : Math.min(1, 0.64 * (1 + 0.06 * noise(e.seed + 4, t)) * (e.name === "prefill-3" ? 1 - 0.4 * fault(t, e.begin + 0.5 * HOUR) : 1))),
  queue_depth: (e, t) => Math.max(0, Math.round((e.role === "prefill" ? 6 : 2) * (1 + noise(e.seed + 5, t)) + (e.name === "prefill-3" ? 32 * fault(t, e.begin + 0.55 * HOUR) : 0))),
  running: (e, t) => (e.idle ? 0 : Math.round((e.role === "prefill" ? 7 : 28) * (1 + 0.12 * noise(e.seed + 6, t)) + (e.name === "decode-5" ? 6 : 0))),
  kv_usage: (e, t) => (e.idle ? 0 : Math.min(0.99, (e.role === "prefill" ? 0.58 : 0.8) * (1 + 0.04 * noise(e.seed + 7, t)) * (e.name === "decode-5" || e.name === "decode-1" ? 1 + 0.2 * fault(t, e.begin + 0.35 * HOUR) : 1))),
  retractions: (e, t) => (e.role === "prefill" ? undefined : e.name === "decode-5" ? Math.max(0, 0.55 * fault(t, e.begin + 0.38 * HOUR) * (1 + 0.3 * noise(e.seed + 8, t, 40))) : 0.003),
  request_rate: (e, t) => 2.8 * (1 + 0.2 * noise(e.seed + 9, t)),
  aborts: (e, t) => Math.max(0, 0.01 * noise(e.seed + 10, t)),
  kv_transfer_speed: (e, t) => (e.role === "unified" ? undefined : 38 * (1 + 0.1 * noise(e.seed + 11, t)) * (e.name === "decode-5" ? 1 - 0.75 * fault(t, e.begin + 0.5 * HOUR) : 1)),
  spec_accept_length: (e, t) => 3.1 + 0.3 * noise(e.seed + 12, t),
  queue_time: (e, t, q) => (q > 0.9 ? 0.12 : 0.02) * (1 + 0.4 * noise(e.seed + 13, t)),
};
const ADDS = new Set(["throughput", "queue_depth", "running", "request_rate", "retractions", "aborts"]);

/** Two weight syncs an hour: throughput falls to almost nothing for a minute. */
const sync = (t) => { const x = (t % 1800) / 1800; return x > 0.33 && x < 0.37; };

export const INFOS = [
  ["ttft", "Time to first token", "TTFT", "Golden", "seconds", "quantile", false, ["unified", "prefill"], "Receipt of the request to its first output chunk.", "Non-streaming requests report their whole duration."],
  ["itl", "Inter-token latency", "ITL", "Golden", "seconds", "quantile", false, ["unified", "decode"], "Gap between two output chunks, divided by the tokens in the chunk.", ""],
  ["throughput", "Throughput", "Gen.", "Golden", "tokens/s", "rate", true, ["unified", "decode"], "Generated tokens per second.", "Counted when a request finishes: long rollouts come in steps."],
  ["cache_hit_rate", "Prefix cache hit rate", "Cache hit", "Golden", "ratio", "share", true, ["unified", "prefill"], "Share of prompt tokens that came out of the prefix cache.", "The gauge cache_hit_rate is of the last batch only."],
  ["queue_depth", "Queue depth", "Queued", "Golden", "requests", "level", false, [], "Requests waiting to be scheduled.", "Grammar, bootstrap and transfer queues are counted apart."],
  ["e2e", "End-to-end latency", "E2E", "Requests", "seconds", "quantile", false, [], "Receipt to finish.", "The last finite bucket is 60 s."],
  ["request_rate", "Request rate", "Req.", "Requests", "requests/s", "rate", true, [], "Finished requests per second.", ""],
  ["running", "Running requests", "Running", "Scheduler", "requests", "level", true, [], "Requests in the running batch.", ""],
  ["queue_time", "Queue time", "Wait", "Scheduler", "seconds", "quantile", false, [], "Time in the waiting queue.", "Written by every TP rank."],
  ["kv_usage", "KV cache used", "KV", "Scheduler", "ratio", "worst", false, [], "Share of the KV pool in use.", ""],
  ["retractions", "Retractions", "Retracted", "Scheduler", "requests/s", "rate", false, ["unified", "decode"], "Requests thrown out of the batch for want of KV memory.", ""],
  ["aborts", "Aborts", "Aborts", "Requests", "requests/s", "rate", false, [], "Calls of abort.", "One for abort_all."],
  ["kv_transfer_speed", "KV transfer speed", "KV speed", "PD disaggregation", "GiB/s", "level", true, ["prefill", "decode"], "Speed of KV transfers between prefill and decode.", ""],
  ["spec_accept_length", "Accepted length", "Accept", "Speculative decoding", "1", "share", true, [], "Tokens accepted per verification.", ""],
].map(([id, title, short, group, unit, kind, higher, roles, meaning, trap]) => ({
  id, title, short, group, unit, kind, higher_is_better: higher, roles, meaning, trap, custom: false,
  query: kind === "quantile" ? `histogram_quantile(0.99, sum by (le) (rate(sglang:${id}_seconds_bucket[5m])))` : `sum(rate(sglang:${id}_total[1m]))`,
  recorded: `fleet:${id}:p99_rate5m`,
}));

/** One engine's value; null idle or down, undefined not applicable. */
export function value(id, e, t, q = 0.99) {
  const f = SIGNALS[id];
  if (!f) return null;
  const v = f(e, t, q);
  if (v === undefined) return undefined;
  if (e.down) return null;
  if (e.idle && !["running", "kv_usage", "queue_depth"].includes(id)) return null;
  return v;
}

/** The fleet's number: added, the mean of percentiles (it is only a fixture), or the worst. */
export function fleetValue(id, fleet, t, q) {
  if (id === "cache_hit_rate" && (t % HOUR) / HOUR > 0.42 && (t % HOUR) / HOUR < 0.55) return null;
  const v = fleet.map((e) => value(id, e, t, q)).filter((x) => typeof x === "number");
  if (v.length === 0) return null;
  const sum = v.reduce((a, b) => a + b, 0);
  if (ADDS.has(id)) return sum;
  if (id === "kv_usage") return Math.max(...v);
  return (sum / v.length) * (q > 0.9 && id !== "e2e" ? 1.1 : 1);
}

export const stateOf = (e) => (e.down ? { state: "unknown", reason: "connection refused" } : e.idle ? { state: "idle", reason: "none since 13:41" } : { state: "value" });

export function level(e) {
  if (e.down) return ["unknown", "connection refused"];
  if (e.idle) return ["idle", "none since 13:41"];
  if (e.name === "decode-5") return ["crit", "ITLHigh and 1 more"];
  if (e.name === "prefill-3") return ["warn", "cache hit rate 38 %, peers 64 %"];
  if (e.name === "decode-1") return ["warn", "KVCacheNearlyFull"];
  return ["ok", ""];
}
