import { describe, expect, test } from "vitest";
import { scaleFor } from "../format/number";
import { timeTicks, valueAxis } from "./ticks";

const T = Date.UTC(2026, 6, 14, 13, 30);

describe("valueAxis", () => {
  test.each([
    ["seconds", 0.92, ["0", "200", "400", "600", "800", "1,000"]],
    ["seconds", 0.115, ["0", "25", "50", "75", "100", "125"]],
    ["seconds", 0.0004, ["0.0", "0.1", "0.2", "0.3", "0.4"]],
    ["seconds", 60, ["0", "20", "40", "60"]],
    ["seconds", 1500, ["0:00", "5:00", "10:00", "15:00", "20:00", "25:00"]],
    ["tokens/s", 61000, ["0", "20", "40", "60", "80"]],
    ["requests", 41, ["0", "10", "20", "30", "40", "50"]],
  ])("%s up to %d", (unit, max, want) => {
    const a = valueAxis(0, max, scaleFor(unit, max));
    expect(a.labels).toEqual(want);
    expect(a.max).toBeGreaterThanOrEqual(max);
    expect(a.min).toBe(0);
  });
  test("4 to 6 ticks for every size", () => {
    for (let e = -6; e < 9; e += 0.037) {
      const n = valueAxis(0, 10 ** e, scaleFor("", 1)).ticks.length;
      expect(n).toBeGreaterThanOrEqual(4);
      expect(n).toBeLessThanOrEqual(6);
    }
  });
  test("shares go to 100 %", () => {
    const a = valueAxis(0, 0.03, scaleFor("ratio", 0.03), { share: true });
    expect(a.labels).toEqual(["0", "25", "50", "75", "100"]);
    expect(a.max).toBe(1);
    expect(valueAxis(0, 7, scaleFor("%", 7), { share: true }).max).toBe(100);
  });
  test("counts have whole ticks", () => {
    expect(valueAxis(0, 1, scaleFor("requests", 1, true), { whole: true }).labels).toEqual(["0", "1"]);
    expect(valueAxis(0, 3, scaleFor("requests", 3, true), { whole: true }).labels).toEqual(["0", "1", "2", "3"]);
  });
  test("nothing but zero, and negative values", () => {
    expect(valueAxis(0, 0, scaleFor("", 0)).max).toBeGreaterThan(0);
    const a = valueAxis(-7, 12, scaleFor("", 12));
    expect(a.min).toBeLessThanOrEqual(-7);
    expect(a.ticks).toContain(0);
  });
});

describe("timeTicks", () => {
  test("round clock times, at most one per 90 px", () => {
    expect(timeTicks(T, T + 3600e3, 250).map((t) => t.label)).toEqual(["13:30", "14:00", "14:30"]);
    expect(timeTicks(T + 7e3, T + 3607e3, 250).map((t) => t.label)).toEqual(["14:00", "14:30"]);
    expect(timeTicks(T, T + 60e3, 300).map((t) => t.label)).toEqual(["13:30:00", "13:30:30", "13:31:00"]);
    expect(timeTicks(T, T + 86400e3, 500).map((t) => t.label)).toEqual(["18:00", "15 Jul", "06:00", "12:00"]);
    expect(timeTicks(T, T + 10 * 86400e3, 500).map((t) => t.label)).toEqual(["16 Jul", "18 Jul", "20 Jul", "22 Jul", "24 Jul"]);
    expect(timeTicks(T, T, 500)).toEqual([]);
    for (const span of [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11]) expect(timeTicks(T, T + span, 900).length).toBeLessThanOrEqual(11);
  });
});
