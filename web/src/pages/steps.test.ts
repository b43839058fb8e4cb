import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { barAt, bars, compare, neighbour, stepNumber } from "./steps";

const num = (value: number | null): api.Number => (value === null ? { value, state: "unknown", reason: "no rollout time" } : { value, state: "value" });

function step(id: number, wall: number | null, more: Partial<api.Step> = {}): api.Step {
  return {
    run: "r", kind: "train", id, attempt: 0, attempts: 1, start: new Date(id * 60e3).toISOString(), end: new Date(id * 60e3 + 30e3).toISOString(),
    wall_seconds: num(wall), samples: 8, requests: 8, statuses: {}, reward: num(0.5), parts: [], values: {}, timeline: "", problems: 0, dump_exists: true, ...more,
  };
}

describe("bars", () => {
  test("one bar a step while there is room, inside the plot", () => {
    const { bars: b } = bars([step(0, 10), step(1, 20), step(3, 5)], "", "step", 400);
    expect(b.map((x) => [x.step, x.value])).toEqual([[0, 10], [1, 20], [2, 5]]);
    expect(b[0]!.x).toBeGreaterThanOrEqual(0);
    expect(b[2]!.x + b[2]!.width).toBeLessThanOrEqual(400);
    expect(b[2]!.x - b[1]!.x).toBeGreaterThan(b[1]!.x - b[0]!.x); // step 2 is missing, and its place stays empty
  });

  test("ten thousand steps on few pixels keep the slowest in sight", () => {
    const many = Array.from({ length: 10_000 }, (_, i) => step(i, i === 5_003 ? 900 : 10));
    const { bars: b } = bars(many, "", "step", 300);
    expect(b.length).toBeLessThanOrEqual(301);
    expect(b.reduce((n, x) => n + x.count, 0)).toBe(10_000);
    const top = b.find((x) => x.value === 900)!;
    expect(top.step).toBe(5_003);
  });

  test("an unknown number is no zero, and a step without times has no place in time", () => {
    expect(bars([step(0, null)], "", "step", 100).bars[0]).toMatchObject({ value: null, reason: "no rollout time" });
    expect(bars([step(0, 1, { start: null, end: null }), step(1, 2)], "", "time", 100).bars.map((x) => x.step)).toEqual([1]);
    expect(bars([], "", "step", 100).bars).toEqual([]);
    expect(stepNumber(step(0, 1), "perf/x").state).toBe("unknown");
  });

  test("the pointer finds the nearest", () => {
    const { bars: b } = bars([step(0, 1), step(1, 1)], "", "step", 200);
    expect(barAt(b, b[1]!.x + 1)).toBe(1);
    expect(barAt(b, b[0]!.x - 4)).toBe(0);
    expect(barAt([], 3)).toBe(-1);
  });
});

test("two steps are compared key by key", () => {
  const d = (metrics: [string, number | null][]): api.StepDetail => ({ metrics: metrics.map(([key, v]) => ({ key, value: num(v), unit: "s" })) }) as unknown as api.StepDetail;
  expect(compare(d([["a", 2], ["b", 0], ["c", null]]), d([["a", 3], ["b", 1], ["c", 1], ["d", 4]])).map((r) => [r.key, r.change, r.share])).toEqual([
    ["a", 1, 0.5], ["b", 1, null], ["c", null, null], ["d", null, null],
  ]);
});

test("the neighbour of a step", () => {
  const s = [step(0, 1), step(5, 1)];
  expect(neighbour(s, 0, 1)).toBe(5);
  expect(neighbour(s, 5, 1)).toBeUndefined();
  expect(neighbour(s, 4, 1)).toBeUndefined();
});
