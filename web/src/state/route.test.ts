import { describe, expect, test } from "vitest";
import { emptyView, goTo, panned, parseView, stepFor, viewURL, windowOf, zoomed, type View } from "./route";

const T = Date.UTC(2026, 6, 14, 13, 30);

function through(v: View): View {
  const url = new URL(viewURL(v), "http://x");
  return parseView(url.pathname, url.search);
}

describe("the URL holds the view", () => {
  test.each<[string, View]>([
    ["/", emptyView()],
    ["/?range=15m", { ...emptyView(), range: { kind: "last", ms: 900e3 } }],
    ["/engines?from=2026-07-14T13:30:00Z&to=2026-07-14T14:30:00Z&engine=slime/10.0.0.1:30000&sort=-ttft:p99&q=h07&role=decode&peers=0",
      { ...emptyView("engines"), range: { kind: "fixed", from: T, to: T + 3600e3 }, engine: "slime/10.0.0.1:30000", sort: "-ttft:p99", filter: "h07", role: "decode", peers: false }],
    ["/engines?live=0&view=passes&worker=dynamo/decode/7587893811422159&span=15s&at=2026-07-14T13:30:00.250Z&ttft=500ms&itl=50ms&isl=3000&osl=150&rate=12.5&prefill=2&decode=4&x=sum_decode_kv_tokens&by=rank&pool=decode",
      { ...emptyView("engines"), live: false, passes: true, worker: "dynamo/decode/7587893811422159", stripSpan: 15e3, stripAt: T + 250, goalTTFT: "500ms", goalITL: "50ms", isl: "3000", osl: "150", rate: "12.5", prefill: "2", decode: "4", x: "sum_decode_kv_tokens", by: "rank", id: "decode" }],
    ["/alerts?range=data&live=0&theme=light&alert=a%7Cb", { ...emptyView("alerts"), range: { kind: "data" }, live: false, theme: "light", alert: "a|b" }],
    ["/explore?every=30&expr=rate(x%7Ba%3D%22b+%26+c%22%7D%5B5m%5D)+%2B+1&show=table&at=instant&step=15s",
      { ...emptyView("explore"), every: 30, expr: 'rate(x{a="b & c"}[5m]) + 1', show: "table", instant: true, step: 15 }],
    ["/rollouts?run=grpo/a+b&kind=eval&step=142&attempt=0&vs=141&metric=perf/rollout_time&x=time&t=row:3",
      { ...emptyView("rollouts"), run: "grpo/a b", kind: "eval", rollout: "142", attempt: "0", versus: "141", metric: "perf/rollout_time", axis: "time", timeline: "row:3" }],
  ])("%s", (url, view) => {
    expect(viewURL(view)).toBe(url);
    expect(through(view)).toEqual(view);
  });

  test("hostile and broken text is carried or dropped, never fatal", () => {
    const v = { ...emptyView("engines"), engine: `"><img src=x onerror=alert(1)>%2F#?&=+`, filter: "a+b c%20d" };
    expect(through(v)).toEqual(v);
    expect(parseView("/nowhere", "?range=soon&every=x&theme=pink&step=-4&from=a&to=b")).toEqual(emptyView());
    expect(parseView("/", "?from=2026-07-14&to=2026-07-13").range).toBeNull();
    expect(parseView("/engines/", "").page).toBe("engines");
    expect(parseView("/engines", "?view=passes&span=soon&at=then&isl=%3Cb%3E")).toEqual({ ...emptyView("engines"), passes: true, isl: "<b>" });
    expect(parseView("/engines", "?isl=3000&worker=a").worker).toBe(""); // of a view that is not shown
    expect(parseView("/rollouts", "?step=x&vs=1e3&kind=test&x=y")).toEqual(emptyView("rollouts"));
  });

  test("links of Prometheus open Explore", () => {
    const v = parseView("/graph", "?g0.expr=up+%3D%3D+0&g0.tab=1&g0.range_input=30m&g0.end_input=2026-07-14%2013%3A30");
    expect(v).toMatchObject({ page: "explore", expr: "up == 0", show: "table", range: { kind: "fixed", from: T - 1800e3, to: T } });
    expect(parseView("/graph", "?g0.expr=up&g0.tab=0").show).toBe("chart");
  });

  test("going to another page keeps the window and drops the rest", () => {
    const v = { ...emptyView("engines"), range: { kind: "last", ms: 60e3 } as const, live: false, engine: "x", sort: "y" };
    expect(goTo(v, "alerts")).toEqual({ ...emptyView("alerts"), range: { kind: "last", ms: 60e3 }, live: false });
    expect(goTo(v, "explore", { expr: "up" }).expr).toBe("up");
  });
});

describe("windows", () => {
  const none = { from: NaN, to: NaN };
  test("relative windows end on a whole step", () => {
    expect(windowOf({ kind: "last", ms: 3600e3 }, T + 7123, none)).toEqual({ from: T - 3600e3, to: T, step: 15e3 });
  });
  test("the data's own range", () => {
    expect(windowOf({ kind: "data" }, T, { from: T - 86400e3, to: T - 80000e3 })).toMatchObject({ from: T - 86400e3, step: 30e3 });
    expect(windowOf({ kind: "data" }, T, none)).toMatchObject({ to: T, from: T - 3600e3 });
    const one = windowOf({ kind: "data" }, T, { from: T, to: T });
    expect(one.to).toBeGreaterThan(one.from);
  });
  test("steps are round", () => {
    expect([10e3, 3600e3, 86400e3, 7 * 86400e3, 90 * 86400e3].map((ms) => stepFor(ms, 240) / 1000)).toEqual([1, 15, 600, 3600, 43200]);
    expect(stepFor(20 * 365 * 86400e3, 240)).toBeGreaterThan(7 * 86400e3);
  });
  test("zoom and pan", () => {
    const w = { from: T, to: T + 1000e3 };
    expect(zoomed(w, 0.5)).toEqual({ kind: "fixed", from: T + 250e3, to: T + 750e3 });
    expect(zoomed(w, 0.5, T)).toEqual({ kind: "fixed", from: T, to: T + 500e3 });
    expect(zoomed(w, 2)).toEqual({ kind: "fixed", from: T - 500e3, to: T + 1500e3 });
    expect(zoomed({ from: T, to: T + 10e3 }, 0.1)).toEqual({ kind: "fixed", from: T, to: T + 10e3 });
    expect(panned(w, -0.25)).toEqual({ kind: "fixed", from: T - 250e3, to: T + 750e3 });
  });
});
