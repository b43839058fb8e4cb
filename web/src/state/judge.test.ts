import { expect, test } from "vitest";
import type * as api from "../api/types";
import { alertKey, alertOn, isOutlier, outliers, usualVersion } from "./judge";

const info = { query: "sum(rate(sglang:ttft_seconds_bucket[5m]))", recorded: "fleet:ttft:p99_rate5m" } as api.SignalInfo;
const alert = (name: string, expr: string, state: string, level: api.Level) => ({ name, expr, state, level, labels: {} }) as unknown as api.Alert;

test("alerts concern a signal when they read its metrics", () => {
  const a = alert("SlowWarn", "sglang:ttft_seconds_sum > 1", "firing", "warn");
  const b = alert("SlowCrit", "fleet:ttft:p99_rate5m > 1", "firing", "crit");
  const c = alert("Other", "up == 0", "firing", "crit");
  const d = alert("Soon", "sglang:ttft_seconds_sum > 1", "pending", "crit");
  expect(alertOn(info, [a, b, c, d])?.name).toBe("SlowCrit");
  expect(alertOn(info, [a, c])?.name).toBe("SlowWarn");
  expect(alertOn(info, [c, d])).toBeUndefined();
  const byEngine = alert("Engine", "engine:ttft:p99_rate5m{backend=\"sglang\"} > 1", "firing", "warn");
  const share = alert("Share", "engine:cache_hit_rate_num:rate5m / engine:cache_hit_rate_den:rate5m < 0.2", "firing", "warn");
  expect(alertOn(info, [byEngine])?.name).toBe("Engine");
  expect(alertOn(info, [share])).toBeUndefined();
  expect(alertOn({ query: "x", recorded: "fleet:cache_hit_rate:ratio5m" } as api.SignalInfo, [share])?.name).toBe("Share");
  expect(alertOn(undefined, [a])).toBeUndefined();
});

test("alert keys do not depend on the order of labels", () => {
  expect(alertKey({ name: "A", labels: { b: "2", a: "1", alertname: "A", severity: "page" } })).toBe("A|a=1|b=2");
});

test("outliers need three peers, a half more, and to leave their spread", () => {
  expect(isOutlier(66, [30, 31, 29], false)).toBe(true);
  expect(isOutlier(44, [30, 31, 29], false)).toBe(false);
  expect(isOutlier(66, [30, 31], false)).toBe(false);
  expect(isOutlier(66, [10, 40, 90], false)).toBe(false);
  expect(isOutlier(3, [6, 6.1, 6.2], true)).toBe(true);
  expect(isOutlier(9, [6, 6.1, 6.2], true)).toBe(false);
  const e = (id: string, value: number | null, role = "decode") =>
    ({ id, role, backend: "sglang", signals: { x: value === null ? { value: null, state: "idle" } : { value, state: "value" } } }) as unknown as api.Engine;
  const col = { key: "x", title: "", unit: "", higher_is_better: false };
  expect([...outliers([e("a", 30), e("b", 31), e("c", 29), e("d", 66), e("p", 500, "prefill"), e("i", null)], col)]).toEqual(["d"]);
});

test("the usual version is a majority's", () => {
  const e = (version: string) => ({ backend: "sglang", version }) as api.Engine;
  expect(usualVersion([e("1"), e("1"), e("2"), e("")], "sglang")).toBe("1");
  expect(usualVersion([e("1"), e("2")], "sglang")).toBe("");
  expect(usualVersion([e("1"), e("1"), e("1")], "vllm")).toBe("");
});
