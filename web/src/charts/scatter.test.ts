import { describe, expect, test } from "vitest";
import { categories, nearest, OTHERS, placeOn, scatterAxis, valueAt } from "./scatter";

describe("the axis of a cloud", () => {
  test("begins at 0 and holds the farthest point", () => {
    const a = scatterAxis([0.2, 0.4, null, 31], "s", false);
    expect(a.min).toBe(0);
    expect(a.max).toBeGreaterThanOrEqual(31);
    expect(a.scale.unit).toBe("s");
  });

  test("decades hold all that is above zero", () => {
    const a = scatterAxis([0, 0.004, 0.5, 70], "s", true);
    expect([a.min, a.max]).toEqual([0.001, 100]);
    expect(a.ticks.map((t) => t.at)).toEqual([0.001, 0.01, 0.1, 1, 10, 100].map((v) => expect.closeTo(v, 9)));
    expect(placeOn(a, 0)).toBeNaN();
    expect(placeOn(a, 100)).toBeCloseTo(1);
  });

  test.each([false, true])("a place and its value are each other's, log %s", (log) => {
    const a = scatterAxis([0.01, 3, 50], "s", log);
    for (const v of [0.01, 0.5, 49]) expect(valueAt(a, placeOn(a, v))).toBeCloseTo(v, 6);
  });

  test("nothing at all is an empty axis, not a failure", () => {
    for (const log of [false, true]) {
      const a = scatterAxis([null, null], "s", log);
      expect(a.max).toBeGreaterThan(a.min);
      expect(placeOn(a, null)).toBeNaN();
    }
  });
});

test("the nearest point within reach", () => {
  const px = Float32Array.from([0, 10, NaN]), py = Float32Array.from([0, 10, NaN]);
  expect(nearest(px, py, 9, 9)).toBe(1);
  expect(nearest(px, py, 50, 50)).toBe(-1);
});

test("categories: few keep their names, of many the rest is one", () => {
  const c = categories(["b", "a", "b", ""], 8);
  expect(c.names).toEqual(["", "a", "b"]);
  expect(c.counts).toEqual([1, 1, 2]);
  const many = categories(Array.from({ length: 40 }, (_, i) => `e${i % 20}`), 8);
  expect(many.names).toHaveLength(8);
  expect(many.names[7]).toBe(OTHERS);
  expect(many.counts.reduce((a, b) => a + b)).toBe(40);
});
