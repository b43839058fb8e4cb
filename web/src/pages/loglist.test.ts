import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { lineColour, merge, MOST, ROW, rowAt, seen, severity, shownLine, topOf } from "./loglist";

const line = (id: string, second: number): api.LogRecord => ({
  id, time: new Date(second * 1000).toISOString(), line: id, level: "", class: "", format: "", service: "", engine: "", source: "", rid: "", trace_id: "", span_id: "", repeat: 0, fields: {}, marks: [],
});
const ids = (list: api.LogRecord[]) => list.map((r) => r.id).join("");

describe("merging", () => {
  test("newest first, each once, also late ones", () => {
    const known = [line("c", 30), line("b", 20), line("a", 10)];
    expect(ids(merge(known, [line("e", 40), line("b", 20), line("d", 25)]))).toBe("ecdba");
    expect(merge(known, [line("a", 10)])).toBe(known);
    expect(ids(merge([], [line("a", 1), line("b", 2)]))).toBe("ba");
  });
  test("lines of one time keep the order in which they are known", () => {
    expect(ids(merge([line("b", 10), line("a", 10)], [line("c", 10)]))).toBe("bac");
  });
  test("the oldest go first", () => {
    const many = Array.from({ length: MOST }, (_, i) => line(`k${i}`, MOST - i));
    const out = merge(many, [line("new", MOST + 1)]);
    expect(out).toHaveLength(MOST);
    expect(out[0]?.id).toBe("new");
  });
});

describe("places", () => {
  test("an unfolded row pushes those below it down", () => {
    expect(topOf(3, 2, 100)).toBe(3 * ROW + 100);
    expect(topOf(2, 2, 100)).toBe(2 * ROW);
    for (const i of [0, 2, 3, 9]) expect(rowAt(topOf(i, 2, 100), 2, 100)).toBe(i);
    expect(rowAt(3 * ROW + 50, 2, 100)).toBe(2); // inside of what is unfolded
    expect(seen(0, 100, 3, -1, 0)).toEqual([0, 3]);
  });
});

test("a JSON line shows its message and what else it says, and what is none shows itself", () => {
  expect(shownLine('{"level":"INFO","message":"Decode batch"}')).toEqual({ text: "Decode batch", facts: "" });
  expect(shownLine('{"time":"t","message":"SPAN_CLOSED","model":"m","input_tokens":"7","time.duration_us":1200,"span_name":"http-request","trace_id":"ab","empty":"","more":{"a":1}}'))
    .toEqual({ text: "SPAN_CLOSED", facts: "span_name=http-request time.duration_us=1200 model=m input_tokens=7" });
  for (const l of ['{"level":"INFO"}', '{"message":""}', '{"message":"cut', "[t] plain"]) expect(shownLine(l)).toEqual({ text: l, facts: "" });
});

test("lines of one second are in order, whatever decimals their times have", () => {
  const at = (id: string, time: string): api.LogRecord => ({ ...line(id, 0), time });
  expect(merge([], [at("a", "2026-01-01T00:00:01Z"), at("b", "2026-01-01T00:00:01.5Z")]).map((r) => r.id)).toEqual(["b", "a"]);
});

test("colours and order of classes", () => {
  expect(lineColour("class", "oom", 0)).toBe("--s4");
  expect(lineColour("level", "WARNING", 0)).toBe("--warn-fill");
  expect(lineColour("engine", "x", 1)).toBe("--s2");
  expect(["", "startup", "mine", "oom"].sort((a, b) => severity("class", a) - severity("class", b))).toEqual(["oom", "startup", "mine", ""]);
});
