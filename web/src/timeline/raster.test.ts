import { describe, expect, test } from "vitest";
import { Axis, NO_GAPS } from "./axis";
import { Colours, legend, strengths } from "./colours";
import { Flats } from "./flat";
import { paintKinds, raster } from "./raster";
import { LocalSource } from "./source";
import { readStep, stepBounds } from "./steptime";
import { DECODE, ERROR, OTHER, QUEUE, TOOL } from "./table";
import { Builder, step } from "./testdata";

async function source(rows: [number, number, number, number?][][]): Promise<LocalSource> {
  const b = new Builder(false);
  rows.forEach((items, index) => b.row({ index }, items.map(([cls, start, end, flags]) => ({ start, end, name: `s${cls}`, cls, flags: flags ?? 0, lane: 0, depth: 0, parent: -1, attempt: 0 }))));
  return LocalSource.open(await b.finish());
}

/** Each palette entry has its own red, so that a pixel tells what it is made of. */
function draw(s: LocalSource, w: number, h: number, t0: number, t1: number, alpha?: (n: number) => Float32Array): Uint8ClampedArray {
  const colours = s.colours("phase");
  const n = colours.entries.length;
  const rgb = new Uint8Array(3 * n + 3);
  for (let i = 0; i < n; i++) rgb[3 * i] = 10 + 10 * i;
  rgb[3 * n] = 255;
  const out = new Uint8ClampedArray(w * h * 4);
  raster({ table: s.table, flat: new Flats(s.table, { attempt: -1, opens: true }).all(), order: Uint32Array.from({ length: s.rows.n }, (_, i) => i), from: 0, to: s.rows.n, axis: new Axis(t0, t1, w, NO_GAPS), height: h, colours, paint: { rgb, css: [], alpha: alpha ? alpha(n) : new Float32Array(n).fill(1) } }, out);
  return out;
}
const px = (out: Uint8ClampedArray, w: number, x: number, y: number) => [...out.subarray((y * w + x) * 4, (y * w + x) * 4 + 4)];

describe("rasters", () => {
  test("whole pixels, part pixels and nothing", async () => {
    const s = await source([[[QUEUE, 0, 400], [DECODE, 400, 650]]]);
    const red = (c: number) => 10 + 10 * s.colours("phase").ofClass(c);
    const out = draw(s, 10, 1, 0, 1000);
    expect(px(out, 10, 0, 0)).toEqual([red(QUEUE), 0, 0, 255]);
    expect(px(out, 10, 3, 0)).toEqual([red(QUEUE), 0, 0, 255]);
    expect(px(out, 10, 4, 0)).toEqual([red(DECODE), 0, 0, 255]);
    const half = px(out, 10, 6, 0);
    expect(half[0]).toBe(red(DECODE));
    expect(half[3]).toBeGreaterThan(120);
    expect(half[3]).toBeLessThan(220);
    expect(px(out, 10, 7, 0)).toEqual([0, 0, 0, 0]);
  });
  test("a pixel of two colours is their mean by time", async () => {
    const s = await source([[[QUEUE, 0, 25], [DECODE, 25, 100]]]);
    const q = 10 + 10 * s.colours("phase").ofClass(QUEUE), d = 10 + 10 * s.colours("phase").ofClass(DECODE);
    expect(px(draw(s, 1, 1, 0, 100), 1, 0, 0)[0]).toBe(Math.round(0.25 * q + 0.75 * d));
  });
  test("a pixel of many rows is their mean; a hair in it is still seen", async () => {
    const s = await source(Array.from({ length: 50 }, (_, i) => (i === 7 ? [[TOOL, 0, 100]] : [[TOOL, 500, 600]]) as [number, number, number][]));
    const a = px(draw(s, 10, 1, 0, 1000), 10, 0, 0)[3]!;
    expect(a).toBeGreaterThan(10);
    expect(a).toBeLessThan(150);
    expect(px(draw(s, 10, 50, 0, 1000), 10, 0, 7)[3]).toBe(255);
    expect(px(draw(s, 10, 50, 0, 1000), 10, 0, 8)[3]).toBe(0);
  });
  test("errors win", async () => {
    const s = await source([[[DECODE, 0, 60], [TOOL, 60, 100, ERROR]]]);
    expect(px(draw(s, 1, 1, 0, 100), 1, 0, 0)[0]).toBeGreaterThan(0.5 * 255);
  });
  test("what is hidden is not there", async () => {
    const s = await source([[[QUEUE, 0, 50], [DECODE, 50, 100]]]);
    const out = draw(s, 2, 1, 0, 100, (n) => new Float32Array(n).map((_, i) => (i === s.colours("phase").ofClass(QUEUE) ? 0 : 1)));
    expect(px(out, 2, 0, 0)[3]).toBe(0);
    expect(px(out, 2, 1, 0)[3]).toBe(255);
  });
  test("rows higher than a pixel are repeated, windows cut", async () => {
    const s = await source([[[QUEUE, 0, 100]], [[DECODE, 0, 100]]]);
    const out = draw(s, 3, 6, 40, 60);
    for (let y = 0; y < 6; y++) expect(px(out, 3, 1, y)).toEqual([10 + 10 * s.colours("phase").ofClass(y < 3 ? QUEUE : DECODE), 0, 0, 255]);
  });
  test("nothing to draw", async () => {
    const s = await source([]);
    expect(draw(s, 4, 2, 0, 1).every((v) => v === 0)).toBe(true);
    const z = await source([[[QUEUE, 5, 5]]]);
    expect(draw(z, 4, 2, 5, 5).every((v) => v === 0)).toBe(true);
  });
  test("classes and coverage of a server", async () => {
    const s = await source([[[QUEUE, 0, 1]]]);
    const colours = s.colours("phase");
    const rgb = new Uint8Array(3 * colours.entries.length + 3).fill(7);
    const out = new Uint8ClampedArray(8);
    paintKinds(Uint8Array.of(0, QUEUE + 1), Uint8Array.of(0, 255), colours, { rgb, css: [], alpha: new Float32Array(colours.entries.length).fill(1) }, out);
    expect([...out]).toEqual([0, 0, 0, 0, 7, 7, 7, 255]);
  });
});

describe("colours", () => {
  test("names that no rule knows take the series in order of appearance", async () => {
    const b = new Builder(false);
    b.row({ index: 0 }, ["zeta", "alpha", "zeta"].map((name, i) => ({ start: i, end: i + 1, name, cls: OTHER, lane: 0, depth: 0, parent: -1, attempt: 0 })));
    const s = await LocalSource.open(await b.finish());
    const c = s.colours("phase");
    expect(c.entries.find((e) => e.label === "zeta")?.token).toBe("--s1");
    expect(c.entries.find((e) => e.label === "alpha")?.token).toBe("--s2");
  });
  test("beyond eight names each still has a colour of its own, and nothing is dropped", async () => {
    const b = new Builder(false);
    b.row({ index: 0 }, Array.from({ length: 30 }, (_, i) => ({ start: i, end: i + 1, name: `name ${i}`, cls: TOOL, lane: 0, depth: 0, parent: -1, attempt: 0 })));
    const s = await LocalSource.open(await b.finish());
    const c = s.colours("name");
    expect(legend(c, s.table, s.rows).length).toBe(30);
    expect(new Set(c.entries.map((e) => `${e.token} ${e.shade}`)).size).toBe(30);
  });
  test("highlight and hide", () => {
    const c = ["c3", "c4", "c5"].map((key) => ({ key, label: key, token: "", shade: 0 }));
    expect([...strengths(c, new Set(), new Set(["c4"]))]).toEqual([1, 0, 1]);
    const lit = strengths(c, new Set(["c5"]), new Set(["c4"]));
    expect(lit[2]).toBe(1);
    expect(lit[0]).toBeLessThan(0.3);
    expect(lit[1]).toBe(0);
  });
  test("every way of colouring knows every item", async () => {
    const s = await LocalSource.open(await step({ samples: 50, seed: 2 }));
    for (const by of ["phase", "name", "attempt", "status"] as const) {
      const c: Colours = s.colours(by);
      const n = legend(c, s.table, s.rows).reduce((a, e) => a + e.n, 0);
      expect(n).toBe(s.table.start.length + (by === "phase" ? s.table.segClass.length : 0));
    }
  });
});

describe("where the time went", () => {
  const parts = [{ name: "queue", seconds: 1 }, { name: "decode", seconds: 7 }, { name: "gap", seconds: 0 }, { name: "unexplained", seconds: 0.5 }, { name: "<b>", seconds: 1.5 }];
  test("parts, total and what is left", () => {
    const s = readStep({ known: true, wall_seconds: 10, parts, aborted: { tokens: 20, generated_tokens: 100, samples: 1, unknown_requests: 2 }, held: [{ row: 4, sample: null, because: "tool", because_seconds: 3, end_seconds: 9, over_median: 2 }] })!;
    expect(s.parts.map((p) => p.label)).toEqual(["queue", "decode", "unexplained", "<b>"]);
    expect(s.wall).toBe(10);
    expect(s.abortedShare).toBe(0.2);
    expect(s.abortedUnknown).toBe(2);
    expect(s.held[0]).toMatchObject({ row: 4, sample: null, because: "tools" });
  });
  test("a remainder that nobody named is unexplained", () => {
    const s = readStep({ wall_seconds: 10, parts: [{ name: "decode", seconds: 9 }] })!;
    expect(s.unexplained).toBeCloseTo(1);
  });
  test.each([[null], [undefined], ["x"], [{}], [{ known: false, why: "no sample has a trace" }], [{ wall_seconds: 0, parts: [] }], [{ parts: [null, { seconds: "x" }] }]])("nothing to draw of %j", (v) => expect(readStep(v)).toBeNull());
  test("the step's bounds", () => {
    expect(stepBounds({ known: true, start_ns: "1787000000000019000", end_ns: "1787000001000019000" }, "1787000000000009000")).toEqual([10, 1_000_010]);
    expect(stepBounds({ start_ns: "x", end_ns: "1" }, "0")).toBeNull();
    expect(stepBounds(null, "0")).toBeNull();
  });
});
