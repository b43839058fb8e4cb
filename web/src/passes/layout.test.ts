import { expect, test } from "vitest";
import { barHeight, clampSpan, nextSpan, rowHeight, rowLabels } from "./layout";

test("all rows fit where they can, and stay readable where they cannot", () => {
  expect([1, 4, 20, 64, 90, 400].map((n) => rowHeight(n, 540))).toEqual([24, 24, 24, 8, 6, 6]);
  for (const h of [6, 8, 10, 16, 24]) expect(barHeight(h)).toBeLessThan(h);
});

const rows = (engines: number, ranks: number) => Array.from({ length: engines * ranks }, (_, i) => ({ engine: `e${Math.floor(i / ranks)}`, name: `decode-${Math.floor(i / ranks)}`, rank: i % ranks }));

test("an engine's name stands once, each rank has its number where letters fit", () => {
  expect(rowLabels(rows(2, 3), 0, 6, 14)).toEqual([
    { row: 0, name: "decode-0", rank: "0" }, { row: 1, name: "", rank: "1" }, { row: 2, name: "", rank: "2" },
    { row: 3, name: "decode-1", rank: "0" }, { row: 4, name: "", rank: "1" }, { row: 5, name: "", rank: "2" },
  ]);
});

test("low rows have labels as far apart as letters are high, ranks at round numbers", () => {
  const labels = rowLabels(rows(1, 64), 0, 64, 8);
  expect(labels.map((l) => l.rank)).toEqual(Array.from({ length: 32 }, (_, i) => String(2 * i)));
  expect(rowLabels(rows(1, 64), 0, 64, 6).length).toBeLessThanOrEqual(32);
  // Engines of one rank have no number, and not each has a name.
  const names = rowLabels(rows(64, 1), 0, 64, 6);
  expect(names.every((l) => l.rank === "" && l.name !== "")).toBe(true);
  expect(names.every((l, i) => i === 0 || (l.row - (names[i - 1]?.row ?? 0)) * 6 >= 11)).toBe(true);
});

test("scrolled rows begin with the name of the engine they are in", () => {
  expect(rowLabels(rows(2, 8), 3, 6, 14)[0]).toEqual({ row: 3, name: "decode-0", rank: "3" });
});

test("spans of time go by steps and have bounds", () => {
  expect([nextSpan(20_000, -1), nextSpan(20_000, 1), nextSpan(17_000, -1), nextSpan(17_000, 1), nextSpan(2000, -1), nextSpan(120_000, 1)]).toEqual([15_000, 30_000, 15_000, 20_000, 2000, 120_000]);
  expect([clampSpan(5), clampSpan(1e9)]).toEqual([2000, 120_000]);
});
