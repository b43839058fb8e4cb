import { describe, expect, test } from "vitest";
import { allWhole, brief, columnOf, decimalsFor, format, general, grouped, median, plural, scaleFor, typical, withUnit } from "./number";

describe("scaleFor", () => {
  test.each([
    // unit, size, value, whole → text
    ["seconds", 0.486, 0.486, false, "486 ms"],
    ["seconds", 0.058, 0.0214, false, "21.4 ms"],
    ["seconds", 9.9, 9.9, false, "9,900 ms"],
    ["seconds", 12, 12.34, false, "12.3 s"],
    ["seconds", 641, 641, false, "10:41"],
    ["seconds", 4000, 3725, false, "1:02:05"],
    ["milliseconds", 184, 184, false, "184 ms"],
    ["milliseconds", 18400, 18400, false, "18.4 s"],
    ["ratio", 1, 0.618, false, "61.8 %"],
    ["ratio", 0.001, 0.0004, false, "0.0 %"],
    ["tokens/s", 48200, 48200, false, "48.2 k tokens/s"],
    ["tokens/s", 3100, 3100, false, "3,100 tokens/s"],
    ["tokens", 28736, 28736, true, "28.7 k tokens"],
    ["requests", 41, 9, true, "9 requests"],
    ["requests/s", 0.1, 0.1, false, "6.00 requests/min"],
    ["requests/s", 2, 2.5, false, "2.50 requests/s"],
    ["bytes", 1.5e9, 1.5e9, false, "1.50 GB"],
    ["bytes", 5e6, 5e6, false, "5.00 MB"],
    ["GiB/s", 46, 9.2, false, "9.2 GiB/s"],
    ["1", 5, 5, true, "5"],
    ["", 0, 0, false, "0"],
  ])("%s of size %d writes %d", (unit, size, value, whole, want) => {
    expect(withUnit(value, scaleFor(unit, size, whole))).toBe(want);
  });

  test("one column, one scale: an outlier keeps the others readable", () => {
    const column = [0.441, 0.43, 0.452, 60];
    const s = scaleFor("seconds", typical(column));
    expect(column.map((v) => format(v, s))).toEqual(["441", "430", "452", "60,000"]);
  });
});

test("grouped", () => {
  expect(grouped(28736, 0)).toBe("28,736");
  expect(grouped(1234567.891, 1)).toBe("1,234,567.9");
  expect(grouped(-5, 0)).toBe("−5");
  expect(grouped(-0.0001, 2)).toBe("0.00");
  expect(grouped(999, 0)).toBe("999");
});

test("format says what is no number", () => {
  const s = scaleFor("", 1);
  expect(format(Infinity, s)).toBe("∞");
  expect(format(-Infinity, s)).toBe("−∞");
});

test("decimalsFor keeps three significant digits", () => {
  expect([1234, 99.99, 50, 9.999, 5, 0.5, 0.05, 0, NaN].map(decimalsFor)).toEqual([0, 0, 1, 1, 2, 2, 3, 0, 0]);
});

test("median, typical, allWhole", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(median([])).toBeNaN();
  expect(typical([null, undefined, NaN, 0, 5, -7, 6])).toBe(6);
  expect(typical([])).toBe(0);
  expect(allWhole([1, null, 2])).toBe(true);
  expect(allWhole([1, 2.5])).toBe(false);
});

test("general", () => {
  expect([0, 12, 1234567, 0.25, 1.5, 12345.678, 1e-7, 1e20, NaN, Infinity, -Infinity].map(general)).toEqual([
    "0", "12", "1,234,567", "0.2500", "1.500", "12,345.7", "1.000e−7", "1.000e+20", "NaN", "+Inf", "−Inf",
  ]);
});

test("brief and columnOf", () => {
  expect([0.066, 0.96, 38, 0, 1234.5, 1.25, 1e-7, -0.5].map(brief)).toEqual(["0.066", "0.96", "38", "0", "1,235", "1.25", "1.000e−7", "−0.5"]);
  const f = columnOf([0.003, 0.5521, null, 4.8e-11]);
  expect([0.003, 0.5521, 4.8e-11, NaN].map(f)).toEqual(["0.0030", "0.5521", "0.0000", "NaN"]);
  expect(columnOf([1, 2, 3000])(2)).toBe("2");
  expect(columnOf([1784035810.5])(1784035810.5)).toBe("1,784,035,810.5");
  expect(columnOf([])(1.5)).toBe("2");
});

test("plural", () => {
  expect(plural(1, "engine")).toBe("1 engine");
  expect(plural(1400, "engine")).toBe("1,400 engines");
});
