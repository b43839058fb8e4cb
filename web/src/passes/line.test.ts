import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { cloudOf, differ, evaluate, formula, linePartsOf } from "./line";
import { GAP, HEARTBEAT, PassSet } from "./ring";
import { answer } from "./testdata";

const fit = (features: string[], coef: number[], intercept: number, range: [number, number][], state = "fitted"): api.PassFit => ({
  state, reason: "", features, coef, std_err: coef.map(() => null), intercept_seconds: intercept, samples: 64, r2: 0.98, rmse_seconds: 0.001, mean_error: 0.02, range,
});
const decode = fit(["num_decode_requests", "sum_decode_kv_tokens"], [0.0002, 1e-7], 0.003, [[10, 40], [1000, 50_000]]);

describe("a fitted line", () => {
  test("is its intercept and a share of each feature", () => {
    expect(evaluate(decode, [20, 10_000])).toBeCloseTo(0.003 + 0.004 + 0.001, 9);
    expect(formula(decode)).toBe("3 ms + 0.2 ms × request + 0.1 ms × k KV tokens");
  });
  test("never predicts less than a microsecond", () => {
    expect(evaluate(fit(["sum_prefill_tokens"], [1e-6], -1, [[0, 10]]), [5])).toBe(1e-6);
  });
  test("is none while the model learns or was refused, or does not fit what is asked", () => {
    for (const s of ["learning", "refused"]) expect(evaluate({ ...decode, state: s }, [1, 1])).toBeNull();
    expect(evaluate(decode, [1])).toBeNull();
    expect(linePartsOf({ ...decode, state: "refused" }, 0, [0, 0], 0, 10)).toEqual([]);
  });
  test("is drawn against one feature, the other at its median; dashed beyond what was seen", () => {
    const parts = linePartsOf(decode, 0, [999, 20_000], 0, 50);
    expect(parts.map((p) => [p.points[0]?.[0], p.points.at(-1)?.[0], p.outside])).toEqual([[0, 10, true], [10, 40, false], [40, 50, true]]);
    expect(parts[1]?.points[0]?.[1]).toBeCloseTo(0.003 + 0.002 + 0.002, 9);
    expect(linePartsOf(decode, 1, [20, 0], 1000, 50_000).map((p) => p.outside)).toEqual([false]);
    expect(linePartsOf(decode, 0, [0, 0], 60, 80).map((p) => p.outside)).toEqual([true]);
  });
  test("differs from another by more than a little, anywhere it is shown", () => {
    expect(differ(decode, decode, 0, [0, 1000], 0, 50)).toBe(false);
    expect(differ(decode, { ...decode, coef: [0.0003, 1e-7] }, 0, [0, 1000], 0, 50)).toBe(true);
    expect(differ(decode, { ...decode, state: "learning" }, 0, [0, 1000], 0, 50)).toBe(false);
  });
});

test("the cloud has the newest passes of a role with a time, of the ranks that are asked for", () => {
  const set = new PassSet(1e6);
  const lines = [[0, 10, 4, 0, 0, 1, 0], [0, 20, 6, 0, 0, 2, 3], [0, 30, 2, GAP, 1, 0, 5], [0, 40, 0, HEARTBEAT, 0, 0, 0], [0, 50, 3, 0, 0, 0, 0], [1, 15, 9, 0, 0, 0, 7]];
  set.add(answer([["a", 0], ["b", 0]], lines), false);
  const of = (role: string, features: string[], x: string, most = 100) => cloudOf(set, (k) => k === "a#0", role, features, x, 0, 100, most);
  const decode = of("decode", ["num_decode_requests"], "num_decode_requests");
  expect([decode.x, decode.y, decode.time]).toEqual([[5, 3], [0.002, 0.006].map((v) => Math.fround(v * 1000) / 1000), [30, 20]]);
  expect(of("prefill", ["sum_prefill_tokens"], "sum_prefill_tokens").x).toEqual([200, 100]);
  const agg = of("agg", ["sum_prefill_tokens", "sum_decode_kv_tokens"], "sum_prefill_tokens");
  expect([agg.x.length, agg.medians]).toEqual([3, [100, 0]]);
  const few = of("agg", ["sum_prefill_tokens"], "sum_prefill_tokens", 1);
  expect([few.x, few.all]).toEqual([[0], 3]);
});
