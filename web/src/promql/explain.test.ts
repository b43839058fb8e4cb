import { expect, test } from "vitest";
import type * as api from "../api/types";
import { canonical, explain, guessUnit, lookUp } from "./explain";

const metric = (name: string, type: string, unit: string) => ({ name, type, unit, meaning: "" }) as unknown as api.MetricInfo;
const metrics = [metric("sglang:time_to_first_token_seconds", "histogram", "seconds"), metric("sglang:num_queue_reqs", "gauge", "requests"), metric("sglang:generation_tokens_total", "counter", "tokens")];
const signals = [{ id: "ttft", unit: "seconds", title: "Time to first token" } as api.SignalInfo];

test("any spelling is found", () => {
  expect(canonical("ray_serve_sglang_x")).toBe("sglang:x");
  expect(canonical("vllm_y")).toBe("vllm:y");
  expect(canonical("sgl_router_x")).toBe("sgl_router_x");
  for (const n of ["sglang_time_to_first_token_seconds_bucket", "ray_sglang_time_to_first_token_seconds", "sglang:time_to_first_token_seconds_sum"]) {
    expect(lookUp(n, metrics, signals)).toMatchObject({ kind: "metric", info: { name: "sglang:time_to_first_token_seconds" } });
  }
  expect(lookUp("sglang:generation_tokens", metrics, signals).kind).toBe("metric");
  expect(lookUp("engine:ttft:p99_rate5m", metrics, signals)).toMatchObject({ kind: "recorded", info: { id: "ttft" } });
  expect(lookUp("fleet:ttft_bucket:rate5m", metrics, signals)).toMatchObject({ kind: "recorded" });
  expect(lookUp("nothing", metrics, signals).kind).toBe("unknown");
});

test("what is under the caret comes first", () => {
  const expr = "sum(rate(sglang:generation_tokens_total[1m])) / sglang:num_queue_reqs";
  expect(explain(expr, 6, metrics, signals).map((e) => e.name)).toEqual(["rate", "sglang:generation_tokens_total", "sglang:num_queue_reqs"]);
  expect(explain(expr, 15, metrics, signals).map((e) => e.name)).toEqual(["sglang:generation_tokens_total"]);
  expect(explain("", 0, metrics, signals)).toEqual([]);
});

test("units that the shape of a query tells", () => {
  const unit = (e: string) => guessUnit(e, metrics, signals);
  expect(unit("sglang:num_queue_reqs")).toBe("requests");
  expect(unit("sum(sglang_num_queue_reqs)")).toBe("requests");
  expect(unit("rate(sglang:generation_tokens_total[1m])")).toBe("tokens/s");
  expect(unit("histogram_quantile(0.99, sum by (le) (rate(sglang:time_to_first_token_seconds_bucket[5m])))")).toBe("seconds");
  expect(unit("fleet:ttft:p99_rate5m")).toBe("seconds");
  expect(unit("sglang:num_queue_reqs / 2")).toBe("");
  expect(unit("sglang:time_to_first_token_seconds_count")).toBe("");
  expect(unit("up")).toBe("");
});
