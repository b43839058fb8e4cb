import { describe, expect, test } from "vitest";
import { around, behind, fieldOf, logsFilter, logsOf, requestsOf, sampleView, tag, tracesOf } from "./joins";

const T = Date.UTC(2026, 6, 14, 13, 30);

describe("joins", () => {
  test("behind a point lies at least a minute, and a whole step", () => {
    expect(behind(T, 15_000)).toEqual({ from: T - 60_000, to: T + 7_500 });
    expect(behind(T, 600_000)).toEqual({ from: T - 600_000, to: T + 300_000 });
  });

  test.each([
    ["ttft", "ttft"], ["sglang:time_to_first_token_seconds_bucket", "ttft"], ["Inter-token latency", "itl"], ["vllm:e2e_request_latency_seconds", "e2e"],
    ["sglang:queue_time_seconds", "queue"], ["queue_depth", ""], ["kv_usage", ""],
  ])("%s is about %s", (text, field) => expect(fieldOf(text)).toBe(field));

  test("views of a point: slowest first, of the engine, in its window", () => {
    const s = { from: T, to: T + 60_000, instance: "10.0.0.1:30000", engine: "decode-5", field: "itl" };
    expect(requestsOf(s)).toEqual({ range: { kind: "fixed", from: T, to: T + 60_000 }, filter: 'engine:"10.0.0.1:30000"', sort: "-itl", y: "itl" });
    expect(requestsOf({ ...s, instance: "", field: "" })).toMatchObject({ filter: "", sort: "-e2e" });
    expect(logsOf(s)).toMatchObject({ engine: "10.0.0.1:30000" });
    expect(tracesOf(s)).toMatchObject({ filter: "engine=10.0.0.1:30000", sort: "-duration" });
    expect(tag("a", 'b "c"')).toBe('a="b \\"c\\""');
  });

  test("around a request there is room", () => {
    expect(around(T, 0.5)).toEqual({ kind: "fixed", from: T - 60_000, to: T + 61_000 });
    expect(around(T, null)).toMatchObject({ from: T - 60_000 });
    expect(around(T, 1000)).toEqual({ kind: "fixed", from: T - 250_000, to: T + 1_250_000 });
  });

  test("a sample is a row of its step's timeline", () => {
    expect(sampleView({ run: "r", kind: "train", step: 4, sample: 17 })).toEqual({ run: "r", kind: "train", rollout: "4", timeline: "tab=sample&row=17" });
    expect(logsFilter({ rid: "a", traceID: "b" })).toBe('rid:="a" or trace_id:="b"');
    expect(logsFilter({})).toBe("");
  });
});
