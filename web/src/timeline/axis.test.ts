import { describe, expect, test } from "vitest";
import { Axis, clockTime, exactTime, gapsOf, length, squeeze, ticks, unsqueeze, wallClock } from "./axis";

const S = 1e6, MIN = 60 * S;

describe("ticks", () => {
  // From a microsecond to weeks across a screen of 1,100 px.
  const spans: number[] = [];
  for (let us = 10; us < 3e12; us *= 1.37) spans.push(us);
  test("are round, apart, labelled once, and never say sixty seconds", () => {
    for (const span of spans) {
      for (const from of [0, span * 0.123, -span * 0.4, 4 * 3600 * S + 59.96 * S]) {
        const k = 1100 / span;
        const all = ticks(from, from + span, k);
        const major = all.filter((t) => t.major);
        const what = `${span} from ${from}: ${major.map((t) => t.label).join(" ")}`;
        expect(all.length, what).toBeLessThan(400);
        if (span < 2e12) expect(major.length, what).toBeGreaterThanOrEqual(3);
        for (let i = 1; i < major.length; i++) {
          const px = (major[i]!.at - major[i - 1]!.at) * k;
          expect(px, what).toBeGreaterThanOrEqual(63);
          expect(px, what).toBeLessThan(420);
        }
        expect(new Set(major.map((t) => t.label)).size, what).toBe(major.length);
        for (const t of major) {
          expect(t.label, what).not.toMatch(/:60|^60\.0* s|NaN|e[+-]/);
          expect(t.label.length, what).toBeLessThan(20);
        }
      }
    }
  });
  test("steps of 1, 2, 5, 10, 15, 30 and 60", () => {
    const labels = (span: number) => ticks(0, span, 1100 / span).filter((t) => t.major).map((t) => t.label);
    expect(labels(10 * MIN)).toEqual(["0:00", "1:00", "2:00", "3:00", "4:00", "5:00", "6:00", "7:00", "8:00", "9:00", "10:00"]);
    expect(labels(4 * MIN).slice(0, 4)).toEqual(["0:00", "0:15", "0:30", "0:45"]);
    expect(labels(8 * S).slice(0, 3)).toEqual(["0.0 s", "0.5 s", "1.0 s"]);
    expect(labels(15 * S).slice(0, 3)).toEqual(["0 s", "1 s", "2 s"]);
    expect(labels(0.008 * S).slice(0, 3)).toEqual(["0.0 ms", "0.5 ms", "1.0 ms"]);
    expect(labels(0.2 * S).slice(0, 2)).toEqual(["0.00 s", "0.02 s"]);
    expect(labels(80)[1]).toBe("0.005 ms");
    expect(labels(3 * 3600 * S).slice(0, 3)).toEqual(["0:00", "15:00", "30:00"]);
    expect(labels(12 * 3600 * S).slice(0, 3)).toEqual(["0:00", "1:00:00", "2:00:00"]);
  });
  test("zoomed in far from the origin, each tick has its own label", () => {
    const at = 100 * S;
    expect(ticks(at, at + 0.4 * S, 1100 / (0.4 * S)).filter((t) => t.major).slice(0, 3).map((t) => t.label)).toEqual(["1:40.00", "1:40.05", "1:40.10"]);
  });
  test("nothing of an empty or impossible range", () => {
    expect(ticks(5, 5, 1)).toEqual([]);
    expect(ticks(0, 10, 0)).toEqual([]);
    expect(ticks(NaN, 10, 1)).toEqual([]);
  });
});

describe("times", () => {
  test.each([
    [0, 0, true, "0:00"], [59_999_999, 1, true, "1:00.0"], [299_960_000, 1, true, "5:00.0"], [372 * S, 1, true, "6:12.0"], [3_723 * S, 0, true, "1:02:03"], [-2.2e3, 1, true, "0:00.0"], [-90 * S, 0, true, "−1:30"],
    [12.5 * S, 1, false, "12.5 s"], [1500, 4, false, "1.5 ms"], [3_599_999_999, 2, true, "1:00:00.00"],
  ] as const)("%d us with %d decimals", (us, d, clock, want) => expect(clockTime(us, d, clock)).toBe(want));
  test.each([
    [0, "0 s"], [12, "12 µs"], [0.5, "0.5 µs"], [1500, "1.50 ms"], [15_000, "15.0 ms"], [9_999_000, "9,999 ms"], [10 * S, "10.0 s"], [599.9 * S, "599.9 s"], [599.96 * S, "10:00"], [-1500, "−1.50 ms"], [NaN, "–"],
  ] as const)("length %d", (us, want) => expect(length(us)).toBe(want));
  test("as exact as the pixels", () => {
    expect(exactTime(372.04 * S, 1100 / (620 * S), 620 * S)).toBe("6:12.0");
    expect(exactTime(372.0401 * S, 1100 / (0.01 * S), 620 * S)).toBe("6:12.040100");
  });
  test("wall clock", () => {
    expect(wallClock("1787000000000019000", 0)).toBe("2026-08-17 20:53:20.000 UTC");
    expect(wallClock("1787000000000019000", 1.5 * S, 6)).toBe("2026-08-17 20:53:21.500019 UTC");
    expect(wallClock("rubbish", 0)).toBe("unknown");
    expect(wallClock("0", -1000, 6)).toBe("1969-12-31 23:59:59.999000 UTC");
  });
});

describe("gaps", () => {
  const covered = new Uint8Array(1000).fill(1);
  covered.fill(0, 200, 700);
  covered.fill(0, 0, 50); // idle at the ends is no gap
  covered.fill(0, 800, 805); // too short
  const g = gapsOf(covered, 0, 1000 * S);
  test("long idle stretches between work", () => {
    expect([...g.from]).toEqual([201 * S]);
    expect([...g.to]).toEqual([699 * S]);
    expect(g.shown).toBeLessThan(20 * S);
    expect(gapsOf(new Uint8Array(100).fill(1), 0, 1).from.length).toBe(0);
    expect(gapsOf(new Uint8Array(100), 0, 1).from.length).toBe(0);
    expect(gapsOf(new Uint8Array(0), 0, 0).from.length).toBe(0);
  });
  test("squeezing is monotone and can be undone", () => {
    let last = -Infinity;
    for (let t = -50 * S; t < 1100 * S; t += 1.7 * S) {
      const u = squeeze(g, t);
      expect(u).toBeGreaterThan(last);
      last = u;
      expect(unsqueeze(g, u)).toBeCloseTo(t, 0);
    }
  });
  test("an axis over it", () => {
    const axis = new Axis(0, 1000 * S, 1000, g);
    expect(axis.x(0)).toBe(0);
    expect(axis.x(1000 * S)).toBeCloseTo(1000, 6);
    expect(axis.x(699 * S) - axis.x(201 * S)).toBeLessThan(30);
    for (const x of [0, 100, 390, 500, 999]) expect(axis.x(axis.t(x))).toBeCloseTo(x, 3);
  });
});

test("an axis without length", () => {
  const a = new Axis(5, 5, 100);
  expect(a.x(5)).toBe(0);
  expect(a.t(50)).toBe(5);
});
