import { describe as group, expect, test } from "vitest";
import type * as api from "../api/types";
import { scaleFor } from "../format/number";
import { chartModel, clipped, describe, extent, fromSignal, indexAt, medianLine, numberText, without, Palette, stroke, valueText, worstSeven, type ChartLine } from "./model";

const T = Date.UTC(2026, 6, 14, 13, 30);
const iso = (ms: number) => new Date(ms).toISOString();
const value = (v: number): api.Number => ({ value: v, state: "value" });

function data(lines: Partial<api.Line>[], more: Partial<api.SignalData> = {}): api.SignalData {
  return {
    id: "ttft", title: "Time to first token", unit: "seconds", form: "raw", query: "", from: iso(T), to: iso(T + 40e3), step_seconds: 10,
    lines: lines.map((l) => ({ name: "p50", labels: {}, values: [], now: value(0), ...l })),
    worst: null, unknown: [], idle: [], sources: [], ...more,
  };
}

group("fromSignal", () => {
  test("p50 is s1, p99 is s2, a single line s3", () => {
    const m = fromSignal(data([{ quantile: 0.5, values: [0.2] }, { name: "p99", quantile: 0.99, values: [0.486] }]));
    expect(m.lines.map((l) => l.color)).toEqual(["--s1", "--s2"]);
    expect(m.scale.unit).toBe("ms");
    expect(fromSignal(data([{ name: "fleet", values: [1] }])).lines[0]?.color).toBe("--s3");
  });
  test("gaps stay gaps, unknown and idle keep their ranges and reasons", () => {
    const m = fromSignal(data([{ values: [0.1, null, null, 0.2, null] }], {
      unknown: [{ from: iso(T + 10e3), to: iso(T + 20e3), reason: "connection refused" }],
      idle: [{ from: iso(T + 40e3), to: iso(T + 40e3) }],
    }));
    expect(m.lines[0]?.values).toEqual([0.1, null, null, 0.2, null]);
    const line = m.lines[0] as ChartLine;
    expect([0, 1, 2, 3, 4].map((i) => valueText(line, i, m))).toEqual(["100", "unknown", "unknown", "200", "idle"]);
    expect(m.unknown[0]?.label).toBe("connection refused");
  });
  test("nothing but nulls is a state over the whole range, never zero", () => {
    const idle = fromSignal(data([{ values: [null, null], now: { value: null, state: "idle", reason: "none since 13:41" } }]));
    expect(idle).toMatchObject({ state: "idle", reason: "none since 13:41", idle: [{ from: T, to: T + 40e3 }] });
    const unknown = fromSignal(data([{ values: [null], now: { value: null, state: "unknown", reason: "connection refused" } }]));
    expect(unknown).toMatchObject({ state: "unknown", unknown: [{ label: "connection refused" }] });
    expect(fromSignal(data([])).state).toBe("unknown");
  });
  test("the top of the histogram is 'or more'", () => {
    const m = fromSignal(data([{ quantile: 0.99, values: [1, 60], top_bound: 60 }]));
    expect(valueText(m.lines[0] as ChartLine, 1, m)).toBe("≥ 60.0");
    expect(numberText({ value: 60, state: "value", at_least: true, lower: 60 }, scaleFor("seconds", 60))).toBe("≥ 60.0");
  });
  test("an entity keeps its colour on the page", () => {
    const palette = new Palette();
    palette.of("instance", "b:1");
    palette.of("role", "decode");
    const m = fromSignal(data([{ name: "a", labels: { instance: "a:1" }, values: [1] }, { name: "b", labels: { instance: "b:1" }, values: [2] }]), { palette });
    expect(m.lines.map((l) => l.color)).toEqual(["--s2", "--s1"]);
  });
});

test("what was not recorded is no unknown", () => {
  const s = (from: number, to: number) => ({ from, to, label: "" });
  const m = 60e3;
  expect(without([s(0, 10 * m)], [s(-Infinity, 6 * m)], 10e3)).toEqual([s(6 * m, 10 * m)]);
  expect(without([s(0, 10 * m)], [s(0, 9.8 * m)], 10e3)).toEqual([]); // a sliver
  expect(without([s(0, 10 * m)], [s(4 * m, 6 * m)], 10e3)).toEqual([s(0, 4 * m), s(6 * m, 10 * m)]);
  expect(without([s(0, 10 * m)], [s(20 * m, 30 * m)], 10e3)).toEqual([s(0, 10 * m)]);
  expect(without([s(0, 1e3)], [], 10e3)).toEqual([s(0, 1e3)]);
});

test("what does not apply is empty, not unknown", () => {
  const m = fromSignal(data([{ values: [null, null], now: { value: null, state: "not_applicable", reason: "not a question for decode engines" } }], {
    unknown: [{ from: iso(T), to: iso(T + 40e3), reason: "not exposed" }],
  }), { thresholds: [{ value: 1, label: "crit", level: "crit" }] });
  expect(m).toMatchObject({ state: "not_applicable", unknown: [], idle: [], thresholds: [], reason: "not a question for decode engines" });
});

test("limits in reach are on the axis, far ones are not drawn", () => {
  const at = (value: number) => fromSignal(data([{ values: [0.1, 0.2] }]), { thresholds: [{ value, label: "", level: "crit" }] });
  expect(at(0.5).thresholds).toHaveLength(1);
  expect(at(0.5).axis.max).toBeGreaterThanOrEqual(0.5);
  expect(at(60).thresholds).toHaveLength(0);
});

group("lines", () => {
  const line = (name: string, values: (number | null)[]): ChartLine => ({ name, values, color: "--s1", now: value(0) });
  test("the worst seven and the range of the rest", () => {
    const all = Array.from({ length: 12 }, (_, i) => line(`e${i}`, [i, null, i * 2]));
    const cut = worstSeven(all, false);
    expect(cut.lines.map((l) => l.name)).toEqual(["e11", "e10", "e9", "e8", "e7", "e6", "e5"]);
    expect(cut.rest).toEqual({ count: 5, low: [0, null, 0], high: [4, null, 8] });
    expect(worstSeven(all, true).lines[0]?.name).toBe("e0");
    expect(worstSeven(all.slice(0, 8), false).rest).toBeUndefined();
  });
  test("the median needs two", () => {
    expect(medianLine([[1, null, 3], [3, 5, null], [5, null, 1]])).toEqual([3, null, 2]);
    expect(medianLine([])).toEqual([]);
  });
  test("from the fifth line on there is a dash", () => {
    expect([0, 3, 4, 5, 6, 7].map((i) => stroke(i).dash?.join(" ") ?? "")).toEqual(["", "", "5 2", "5 2", "2 2", "2 2"]);
    expect(stroke(8)).toEqual(stroke(0));
  });
});

group("the axis", () => {
  test("a lone spike does not press the rest flat, and gets a caret", () => {
    const values = Array.from({ length: 200 }, (_, i) => (i === 77 ? 900 : 10 + (i % 3)));
    expect(extent(values).top).toBeLessThan(20);
    expect(clipped(values, 15)).toEqual([{ index: 77, value: 900 }]);
    expect(extent([1, 2, 900]).top).toBe(900); // too few points to call it lone
    expect(extent([])).toEqual({ low: 0, top: 0 });
  });
  test("each run above the axis is one caret", () => {
    expect(clipped([1, 20, 30, 20, null, 40, 1, 50], 10)).toEqual([
      { index: 2, value: 30 }, { index: 5, value: 40 }, { index: 7, value: 50 },
    ]);
  });
  test("a threshold is inside", () => {
    const m = chartModel({ title: "", unit: "seconds", from: 0, to: 1, step: 1, lines: [], thresholds: [{ value: 0.5, label: "", level: "crit" }] });
    expect(m.axis.max).toBeGreaterThanOrEqual(0.5);
  });
});

test("numberText", () => {
  const s = scaleFor("seconds", 0.5);
  expect(numberText({ value: 0.486, state: "value" }, s)).toBe("486");
  expect(numberText({ value: 0, state: "value" }, s)).toBe("0");
  expect(numberText({ value: null, state: "idle" }, s)).toBe("idle");
  expect(numberText({ value: null, state: "unknown" }, s)).toBe("unknown");
  expect(numberText({ value: null, state: "not_applicable" }, s)).toBe("–");
  expect(numberText(undefined, s)).toBe("unknown");
});

test("what is read aloud", () => {
  const m = fromSignal(data([{ quantile: 0.5, values: [0.1, 0.3, null], now: value(0.3) }]));
  expect(describe(m)).toBe("Time to first token, ms: p50 now 300 ms, min 100, max 300");
  const idle = fromSignal(data([{ values: [null], now: { value: null, state: "idle" } }]));
  expect(describe(idle)).toBe("Time to first token, ms: idle, no events");
});

test("indexAt", () => {
  const m = fromSignal(data([{ values: [1, 2, 3, 4, 5] }]));
  expect([T - 20e3, T, T + 14e3, T + 16e3, T + 40e3, T + 60e3].map((t) => indexAt(m, t))).toEqual([-1, 0, 1, 2, 4, -1]);
});
