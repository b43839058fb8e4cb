import { expect, test } from "vitest";
import { resolve, type Action } from "./keys";

const a: Action = () => {};
const b: Action = () => {};

test("the topmost layer is asked first, the others after it", () => {
  expect(resolve([{ j: a }, { j: b }], "", "j")).toEqual({ run: [b, a], pending: "" });
  expect(resolve([{ j: a }], "", "k")).toEqual({ run: [], pending: "" });
});

test("sequences wait for their second key", () => {
  const maps = [{ "g o": a, e: b }];
  expect(resolve(maps, "", "g")).toEqual({ run: [], pending: "g" });
  expect(resolve(maps, "g", "o")).toEqual({ run: [a], pending: "" });
  expect(resolve(maps, "g", "z")).toEqual({ run: [], pending: "" });
  expect(resolve(maps, "g", "e")).toEqual({ run: [], pending: "" });
});
