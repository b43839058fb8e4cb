import { expect, test } from "vitest";
import { sparkMax, sparkPath } from "./spark";

test("nulls break the line, lone points stay visible, what exceeds the scale stays inside", () => {
  expect(sparkPath([0, 10, null, 5, null, 99], 10, 12, 13)).toBe("M1.0 13.0L3.0 1.5M7.0 7.3h1M11.0 1.5h1");
  expect(sparkPath([], 1, 44, 12)).toBe("");
  expect(sparkPath([null, null], 1, 44, 12)).toBe("");
  expect(sparkPath([0, 0], 0, 12, 10)).toBe("M1.0 10.0L11.0 10.0");
});

test("one scale a column", () => {
  const s = (values: (number | null)[]) => ({ values, state: "value" as const });
  expect(sparkMax([s([1, 2, null]), s([5]), undefined])).toBe(5);
  expect(sparkMax([])).toBe(1);
  expect(sparkMax([s(Array.from({ length: 100 }, () => 1)), s([50])])).toBe(2);
});
