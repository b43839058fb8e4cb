import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { complete, placeAt, take, type Known } from "./complete";
import { enclosing, errorPlace, leftSide, lex, metricNames, narrowed, tokenAt, unbalanced } from "./lex";

const Q = 'histogram_quantile(0.99, sum by (le, instance) (rate(sglang:time_to_first_token_seconds_bucket{instance=~"a.*"}[5m]))) > 0.5 # slow';

describe("lex", () => {
  test("covers the text and tells kinds apart", () => {
    expect(lex(Q).map((t) => t.text).join("")).toBe(Q);
    const kinds = lex(Q).filter((t) => t.kind !== "space").map((t) => `${t.kind}:${t.text}`);
    expect(kinds).toEqual([
      "function:histogram_quantile", "bracket:(", "number:0.99", "operator:,", "aggregation:sum", "keyword:by", "bracket:(", "label:le", "operator:,",
      "label:instance", "bracket:)", "bracket:(", "function:rate", "bracket:(", "metric:sglang:time_to_first_token_seconds_bucket", "bracket:{",
      "label:instance", "operator:=~", 'string:"a.*"', "bracket:}", "bracket:[", "duration:5m", "bracket:]", "bracket:)", "bracket:)", "bracket:)",
      "operator:>", "number:0.5", "comment:# slow",
    ]);
  });
  test.each(["", "{", '"', "a{b=\"", "\u{1F600}x", "a[5m:1m] @ end()", "'a\\'b'", "`raw\n`", "1e5 + .5 + 0x1F"])("covers %j", (s) => {
    expect(lex(s).map((t) => t.text).join("")).toBe(s);
  });
  test("metric names", () => {
    expect(metricNames(Q)).toEqual(["sglang:time_to_first_token_seconds_bucket"]);
    expect(metricNames('a / on (x) group_left (y) b{c="d"} and {"e.f", g="h"} or {__name__="i"} + Inf')).toEqual(["a", "b", "e.f", "i"]);
  });
  test("the token under the caret", () => {
    const t = lex("rate(up[5m])");
    expect(tokenAt(t, 2)?.text).toBe("rate");
    expect(tokenAt(t, 7)?.text).toBe("up");
    expect(tokenAt(t, 5)?.text).toBe("(");
  });
});

test.each([
  ["histogram_quantile(|)", "histogram_quantile"], ["sum by (le) (|x)", "sum"], ["sum(rate(x[5m])|)", "sum"], ["sum(rate(x[5|m]))", "rate"],
  ["sum by (l|e) (x)", ""], ["(|)", ""], ["a + |", ""], ["rate(x)|", ""], ["sum((|", "sum"],
])("the function around the caret in %s", (text, want) => {
  expect(enclosing(lex(text.replace("|", "")), text.indexOf("|"))).toBe(want);
});

describe("narrowed", () => {
  test.each([
    ["up", 'up{instance="a:1"}'],
    ['rate(x{b="c"}[5m]) / rate(y[5m])', 'rate(x{instance="a:1",b="c"}[5m]) / rate(y{instance="a:1"}[5m])'],
    ["sum by (instance) (x{})", 'sum by (instance) (x{instance="a:1"})'],
    ['x{instance="b:2"}', 'x{instance="b:2"}'],
    ['{"a.b"}', '{instance="a:1","a.b"}'],
    ["1 + time()", "1 + time()"],
  ])("%s", (expr, want) => expect(narrowed(expr, "instance", "a:1")).toBe(want));
  test("a value cannot break out of its quotes", () => {
    expect(narrowed("up", "instance", 'a"} or vector(1) #')).toBe('up{instance="a\\"} or vector(1) #"}');
  });
});

test("leftSide", () => {
  expect(leftSide("max by (i) (x{a=~\"b>c\"}) > 0.95")).toEqual({ left: 'max by (i) (x{a=~"b>c"})', threshold: { value: 0.95, label: "> 0.95", level: "crit" } });
  expect(leftSide("up == 0")).toEqual({ left: "up" });
  expect(leftSide("(a > 1)")).toEqual({ left: "(a > 1)" });
  expect(leftSide("a > 1 and b > 2")).toEqual({ left: "a > 1 and b > 2" });
  expect(leftSide('a{x="y"} > 1 or (b > 2)')).toEqual({ left: 'a{x="y"}', threshold: { value: 1, label: "> 1", level: "crit" } });
  expect(leftSide("order > 1")).toMatchObject({ left: "order" });
  expect(leftSide("a or b > 2")).toEqual({ left: "a or b > 2" });
  expect(leftSide("a > b")).toEqual({ left: "a" });
  expect(leftSide("absent(up)")).toEqual({ left: "absent(up)" });
});

describe("errors", () => {
  test("the place of a parse error", () => {
    const expr = "sum(rate(up[5m])) foo";
    expect(errorPlace('invalid parameter "query": 1:19: parse error: unexpected identifier "foo"', expr)).toEqual({ from: 18, to: 21, message: 'unexpected identifier "foo"' });
    expect(errorPlace("1:8: parse error: unexpected end of input", "sum(up)")).toMatchObject({ from: 6, to: 7 });
    expect(errorPlace("2:3: parse error: x", "up\n+ +")).toMatchObject({ from: 5, to: 6 });
    expect(errorPlace("1:6: parse error: x", 'é + b')).toMatchObject({ from: 4, to: 5 }); // é is two bytes
    expect(errorPlace("query timed out", expr)).toBeNull();
    expect(errorPlace("9:9: parse error: x", expr)).toBeNull();
  });
  test("brackets and quotes are checked before the server is asked", () => {
    expect(unbalanced("sum(up")).toMatchObject({ from: 3, to: 4 });
    expect(unbalanced("up)")).toMatchObject({ from: 2 });
    expect(unbalanced('up{a="b}')).toMatchObject({ from: 5, message: "this string does not end" });
    expect(unbalanced("up{a=']'}")).toBeNull();
    expect(unbalanced("")).toBeNull();
  });
});

describe("completion", () => {
  const metric = (name: string, type: string, stored = true): api.MetricInfo => ({
    name, type, backend: "sglang", unit: "", labels: [], since: "", till: "", meaning: `what ${name} is`, trap: "", use: "", custom: false, stored,
  });
  const known: Known = {
    metrics: [metric("sglang:time_to_first_token_seconds", "histogram"), metric("sglang:num_queue_reqs", "gauge"), metric("sglang:num_old", "gauge", false)],
    others: ["my_num_thing", "a.b num"],
    labels: ["instance", "job", "le"],
    values: ['10.0.0.1:30000', 'x"y'],
  };
  const at = (text: string) => {
    const caret = text.indexOf("|");
    const clean = text.replace("|", "");
    const place = placeAt(clean, caret);
    const items = complete(place, known);
    const first = items[0];
    return { place, items: items.map((i) => i.text), taken: first ? take(clean, place, first) : undefined };
  };

  test("metrics, with the samples of histograms; what is not stored comes last", () => {
    expect(at("sglang:ti|").items).toEqual(["_bucket", "_count", "_sum"].map((s) => "sglang:time_to_first_token_seconds" + s));
    const num = at("rate(num|").items;
    expect(num).toContain("my_num_thing");
    expect(num.indexOf("sglang:num_old")).toBe(num.length - 1);
    expect(at("sum(a.b| )").place.kind).toBe("expression");
    expect(complete(placeAt("ab", 2), known).find((c) => c.text === "a.b num")?.insert).toBe('{"a.b num"}');
  });
  test("functions bring their parentheses, once", () => {
    expect(at("histogram_q|").taken).toEqual({ text: "histogram_quantile()", caret: 19 });
    expect(at("histogram_q|(0.5, x)").taken).toEqual({ text: "histogram_quantile(0.5, x)", caret: 19 });
    expect(at("time|").items[0]).toBe("time");
  });
  test("labels inside braces and lists", () => {
    expect(at("up{|").place).toMatchObject({ kind: "label", metric: "up", matcher: true });
    expect(at("up{in|").taken).toEqual({ text: 'up{instance=""', caret: 13 });
    expect(at('up{in|="x"}').taken).toEqual({ text: 'up{instance="x"}', caret: 11 });
    expect(at('up{job="x", l|}').items).toEqual(["le"]);
    expect(at("sum by (jo|) (up)").taken).toEqual({ text: "sum by (job) (up)", caret: 11 });
    expect(at("sum by (|) (up)").place).toMatchObject({ kind: "label", metric: "up", matcher: false });
    expect(at("a / on (jo|").items).toEqual(["job"]);
  });
  test("values inside quotes, quoted", () => {
    expect(at('up{instance="10|"}').place).toMatchObject({ kind: "value", label: "instance", metric: "up", typed: "10" });
    expect(at('up{instance="10|"}').taken?.text).toBe('up{instance="10.0.0.1:30000"}');
    expect(at('up{instance=~"x|').taken?.text).toBe('up{instance=~"x\\"y');
    expect(at('label_replace(up, "ab|").').place.kind).toBe("none");
  });
  test("durations, and places where nothing is offered", () => {
    expect(at("rate(up[5|])").items).toContain("5m");
    expect(at("rate(up[|])").items).toContain("1h");
    for (const s of ["|", "up # co|", "1|", 'up{a|="b"|}'.replace("|}", "}"), "up{a=|"]) expect(at(s).items.filter((i) => i === "sglang:num_queue_reqs")).toEqual([]);
    expect(at("up{a=|").place.kind).toBe("none");
  });
});
