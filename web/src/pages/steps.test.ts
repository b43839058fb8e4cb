import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { barAt, bars, compare, curvesOf, middle, neighbour, stepNumber, superseded } from "./steps";

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

  test("a young run grows from the left, and an old one fills the plot", () => {
    const one = bars([step(0, 10)], "", "step", 880);
    expect(one.bars[0]!.width).toBeLessThan(60);
    expect(one.used).toBeLessThan(60);
    const full = bars(Array.from({ length: 200 }, (_, i) => step(i, 10)), "", "step", 880);
    expect(full.used).toBeGreaterThan(870);
    expect(full.used).toBeLessThanOrEqual(880);
  });

  test("over time a bar is as wide as its step was long, in the order of time", () => {
    const at = (s: number) => new Date(s * 1000).toISOString();
    const { bars: b } = bars([step(0, 10, { start: at(0), end: at(10) }), step(1, 5, { start: at(80), end: at(100) }), step(2, 5, { start: at(40), end: at(60) })], "", "time", 1000);
    expect(b.map((x) => [x.step, Math.round(x.x), Math.round(x.width)])).toEqual([[0, 1, 99], [2, 401, 199], [1, 801, 199]]);
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

test("steps of a course that was given up", () => {
  const at = (id: number, begin: number, more: Partial<api.Step> = {}) => step(id, 10, { start: new Date(begin * 1000).toISOString(), end: new Date((begin + 50) * 1000).toISOString(), ...more });
  // 0 to 4 ran; then the run went back to 2 and has reached 3.
  const again = [at(0, 0), at(1, 100), at(2, 600, { attempts: 2, attempt: 1 }), at(3, 700, { attempts: 2, attempt: 1 }), at(4, 400)];
  expect([...superseded(again)]).toEqual([4]);
  expect(superseded([at(0, 0), at(1, 100), at(2, 200)]).size).toBe(0);
  // A step that began in the one before, or that has no times, is none.
  expect(superseded([at(0, 100), at(1, 80), step(2, 1, { start: null, end: null })]).size).toBe(0);
});

test("the median needs three values", () => {
  expect(middle([step(0, 1), step(1, 9)], "")).toBeNull();
  expect(middle([step(0, 1), step(1, null), step(2, 9), step(3, 2)], "")).toBe(2);
});

test("an evaluation's curves are its own", () => {
  const curve = (key: string, axis: string): api.Curve => ({ key, axis, source: "dump", unit: "" });
  const all = [curve("perf/x", "rollout/step"), curve("train/loss", "train/step"), curve("eval/a", "eval/step")];
  expect(curvesOf(all, "train").map((c) => c.key)).toEqual(["perf/x", "train/loss"]);
  expect(curvesOf(all, "eval").map((c) => c.key)).toEqual(["eval/a"]);
});
