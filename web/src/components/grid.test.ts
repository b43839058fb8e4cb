import { expect, test } from "vitest";
import { columns } from "./grid";

test("rows are even", () => {
  expect([1, 2, 3, 4, 5, 6, 7, 8, 9].map((n) => columns(n, 1000, 242))).toEqual([1, 2, 3, 4, 3, 3, 4, 4, 3]);
  expect(columns(5, 1426, 232)).toBe(5);
  expect(columns(3, 100, 242)).toBe(1);
  expect(columns(0, 1000, 242)).toBe(1);
});
