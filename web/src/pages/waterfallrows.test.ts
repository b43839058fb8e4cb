import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { barOf, descendants, lanesOf, matches, movePart, readClosed, readPart, shownName, spanToken, tickText, ticksOf, visibleRows, wholeOf, writeClosed, writePart, zoomPart } from "./waterfallrows";

const span = (name: string, depth: number, start = 0, duration = 1, more: Partial<api.TraceSpan> = {}): api.TraceSpan => ({
  span_id: name, parent_id: "", parent: -1, depth, name, service: "s", scope: "", kind: "", class: "other", start_seconds: start, duration_seconds: duration, status: "", attrs: [], resource: [], events: [], links: [],
  attributes_dropped: 0, folded: null, missing: false, critical: false, self_seconds: 0, flags: [], ...more,
});
const tree = [span("a", 0), span("b", 1), span("c", 2), span("d", 1), span("e", 0)];

describe("rows", () => {
  test("what lies below a span follows it deeper", () => {
    expect([...descendants(tree)]).toEqual([3, 1, 0, 0, 0]);
    expect([...descendants([])]).toEqual([]);
  });

  test("folded spans take those below them along", () => {
    expect(visibleRows(tree, new Set([1])).map((r) => r.span.name)).toEqual(["a", "b", "d", "e"]);
    expect(visibleRows(tree, new Set([0])).map((r) => r.span.name)).toEqual(["a", "e"]);
    expect(visibleRows(tree, new Set([2])).map((r) => [r.span.name, r.closed])).toEqual([["a", false], ["b", false], ["c", false], ["d", false], ["e", false]]); // nothing is below it
    expect(writeClosed(readClosed("3.x.1.-2"))).toBe("1.3");
  });
});

describe("the part that is looked at", () => {
  const whole = wholeOf({ spans: [span("a", 0, 0, 4), span("late", 1, 3, 2), span("early", 1, -0.5, 0.1)], duration_seconds: 4 });
  test("holds all spans, also those that leave the root", () => expect(whole).toEqual({ from: -0.5, to: 5 }));
  test("comes back from the URL, rubbish is the whole", () => {
    const p = { from: 0.0125, to: 0.08 };
    expect(readPart(writePart(p, whole), whole)).toEqual(p);
    expect(writePart(whole, whole)).toBe("");
    for (const bad of ["", "x", "5-1", "-"]) expect(readPart(bad, whole)).toEqual(whole);
  });
  test("zooms around a time and stays inside", () => {
    const z = zoomPart(whole, whole, 0.5, 1);
    expect(z.to - z.from).toBeCloseTo(2.75);
    expect((1 - z.from) / (z.to - z.from)).toBeCloseTo(1.5 / 5.5);
    expect(zoomPart(z, whole, 100, 1)).toEqual(whole);
    expect(movePart(z, whole, 99).to).toBeCloseTo(5);
  });
  test("bars are cut at its sides", () => {
    expect(barOf(span("a", 0, 1, 2), { from: 0, to: 4 })).toEqual({ left: 0.25, width: 0.5, cutLeft: false, cutRight: false, inside: true });
    expect(barOf(span("a", 0, 0, 10), { from: 1, to: 2 })).toMatchObject({ left: 0, width: 1, cutLeft: true, cutRight: true });
    expect(barOf(span("a", 0, 5, 1), { from: 1, to: 2 }).inside).toBe(false);
  });
  test("ticks are round and not too many", () => {
    expect(ticksOf({ from: 0, to: 4.2 }, 800)).toEqual([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]);
    expect(ticksOf({ from: 0, to: 1e-5 }, 100).length).toBeLessThan(3);
  });
});

test("a search looks into names, services, attributes and errors", () => {
  const s = span("prefill_forward", 2, 0, 1, { status: "error", attrs: [{ key: "rid", value: "A1", type: "text" }] });
  for (const q of ["forward", "rid=a1", "error s", "PREFILL"]) expect(matches(s, q)).toBe(true);
  for (const q of ["", "decode", "prefill nothing"]) expect(matches(s, q)).toBe(false);
});

test("colours and lanes follow the phase, else the service", () => {
  const services = new Map([["s", "--s1"]]);
  expect(spanToken(span("x", 0, 0, 1, { class: "P forward" }), services)).toBe("--ph-p-forward");
  expect(spanToken(span("x", 0), services)).toBe("--s1");
  const pair = [span("http_request", 0), span("decode Req a1", 1, 0, 1, { parent: 0 }), span("decode_waiting", 2, 0, 1, { parent: 1 }), span(" prefill Req a1", 1, 0, 1, { parent: 0 }), span("prefill_waiting", 2, 0, 1, { parent: 3 })];
  expect(lanesOf(pair)).toEqual(["", "D", "D", "P", "P"]);
  expect(lanesOf([span(" Req a1", 0), span("prefill_forward", 1, 0, 1, { parent: 0 }), span("decode_forward", 1, 0, 1, { parent: 0 })])).toEqual(["", "", ""]);
  expect(shownName(span("Decode Scheduler [TP 0](host:86204eda | pid:4394)", 0))).toBe("Decode Scheduler [TP 0]");
  expect([tickText(0, { from: 0, to: 50 }), tickText(5, { from: 0, to: 50 }), tickText(0.0025, { from: 0, to: 0.5 }), tickText(1.5, { from: 0, to: 3 })]).toEqual(["0", "5 s", "2.5 ms", "1,500 ms"]);
});
