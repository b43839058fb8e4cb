import { describe, expect, test } from "vitest";
import { filterOf, logsField, quote, terms, wants, withInstances, withRange, withTerm } from "./filter";

describe("a filter of requests", () => {
  test("is split at spaces outside of quotes", () => {
    expect(terms('ttft>5s  engine:"10.0.0.1:30000" model:"a \\" b" -finish:stop')).toEqual(["ttft>5s", 'engine:"10.0.0.1:30000"', 'model:"a \\" b"', "-finish:stop"]);
    expect(terms('rid:"never closed x')).toEqual(['rid:"never closed x']);
    expect(terms("")).toEqual([]);
  });

  test.each(["abc", "10.0.0.1:30000", 'a "b" \\ c', "", " ", "x) or (y"])("a value comes back: %s", (v) => {
    if (v !== "") expect(wants(withTerm("ttft>5s", "engine", v), "engine")).toBe(v);
    expect(terms(`a:${quote(v)} b`).length).toBe(2);
  });

  test("engines by their names become those by HOST:PORT", () => {
    const of = (name: string) => (name === "decode-0" ? "10.0.0.1:30000" : undefined);
    expect(withInstances('ttft>5s engine:decode-0 -prefill_engine="decode-0" engine:other', of)).toBe('ttft>5s engine:"10.0.0.1:30000" -prefill_engine="10.0.0.1:30000" engine:other');
  });

  test("one term of a field replaces another, and leaves what is no equality", () => {
    expect(withTerm("engine:a ttft>5s -engine:b", "engine", "c d")).toBe('ttft>5s -engine:b engine:"c d"');
    expect(withTerm("engine:a x", "engine", "")).toBe("x");
  });

  test("a range replaces a range of the same field only", () => {
    expect(withRange("ttft>5s ttft<=9s e2e>1s step:4", "ttft", 0.123456, null, "s")).toBe("e2e>1s step:4 ttft>=0.1235s");
    expect(withRange("", "prompt_tokens", 10, 2000)).toBe("prompt_tokens>=10 prompt_tokens<=2000");
    expect(withRange("ttft>1s", "ttft", null, null, "s")).toBe("");
  });

  test("fields become terms, nothing becomes none", () => {
    expect(filterOf({ rid: "r-1", step: 0, run: "", sample: null, engine: "h:1" })).toBe('rid:r-1 step:0 engine:"h:1"');
    expect(logsField("rid", 'a"b\\')).toBe('rid:="a\\"b\\\\"');
  });
});
