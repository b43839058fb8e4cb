import { COLOUR_BY, type LegendEntry } from "./colours";
import { readSummary, summaryLegend } from "./summary";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { Flats, flatAt } from "./flat";
import { LocalSource } from "./source";
import { rangeStats, statesAt, type NameStats, type States } from "./stats";
import { GENERATE, OPEN, ORPHAN, POINT, QUEUE, type Table } from "./table";
import { Builder, oneRow, rng, step } from "./testdata";

/** What FORMAT.md says of an instant, the slow way: the class there, -1 nothing. */
function leaf(t: Table, r: number, at: number, attempt: number): number {
  let best = -1;
  for (let i = t.itemFrom[r]!; i < t.itemFrom[r + 1]!; i++) {
    if (t.state[i] === POINT || t.state[i] === ORPHAN || (attempt >= 0 && t.attempt[i] !== attempt)) continue;
    if (!(t.start[i]! <= at && at < t.start[i]! + t.dur[i]!)) continue;
    if (best < 0 || t.depth[i]! > t.depth[best]! || (t.depth[i] === t.depth[best] && t.start[i]! >= t.start[best]!)) best = i;
  }
  if (best < 0) return -1;
  for (let s = t.segFrom[best]!; s < t.segFrom[best + 1]!; s++) if (t.segStart[s]! <= at && at < t.segStart[s]! + t.segDur[s]!) return t.segClass[s]!;
  const q = t.request[best]!;
  if (t.class[best] === GENERATE && q >= 0 && t.req.queue[t.reqFrom[r]! + q]! > 0 && at < t.start[best]! + t.req.queue[t.reqFrom[r]! + q]!) return QUEUE;
  return t.class[best]!;
}

describe("bars", () => {
  test("at each instant the leaf, over an invented step", async () => {
    const s = await LocalSource.open(await step({ samples: 60, seed: 9 }));
    for (const attempt of [-1, 1]) {
      const f = new Flats(s.table, { attempt, opens: true }).all();
      const r = rng(1);
      for (let k = 0; k < 3000; k++) {
        const row = Math.floor(r() * s.rows.n);
        const at = Math.floor(s.rows.start[row]! + r() * 1.05 * s.rows.dur[row]!);
        const e = flatAt(f, row, at);
        expect(e < 0 ? -1 : f.class[e], `row ${row} at ${at}`).toBe(leaf(s.table, row, at, attempt));
      }
    }
  });

  test("over random spans, overlapping in every way", async () => {
    const b = new Builder(false);
    const r = rng(3);
    for (let k = 0; k < 200; k++) {
      const items = Array.from({ length: Math.floor(r() * 14) }, (_, i) => {
        const start = Math.floor(r() * 40), dur = Math.floor(r() * 20);
        return { start, end: start + dur, name: `n${i}`, cls: 1 + (i % 9), state: r() < 0.2 ? OPEN : 0, lane: Math.floor(r() * 4), depth: Math.floor(r() * 4), parent: -1, attempt: Math.floor(r() * 2) };
      });
      b.row({ index: k }, items);
    }
    const s = await LocalSource.open(await b.finish());
    const f = new Flats(s.table, { attempt: -1, opens: true }).all();
    for (let row = 0; row < s.rows.n; row++) {
      for (let k = f.from[row]! + 1; k < f.to[row]!; k++) expect(f.start[k]!).toBeGreaterThanOrEqual(f.end[k - 1]!);
      for (let at = 0; at < 62; at++) {
        const e = flatAt(f, row, at);
        expect(e < 0 ? -1 : f.class[e], `row ${row} at ${at}`).toBe(leaf(s.table, row, at, -1));
      }
    }
  });

  test("row by row, in any order, it is the same", async () => {
    const s = await LocalSource.open(await step({ samples: 40, seed: 4 }));
    const a = new Flats(s.table, { attempt: -1, opens: true }).all();
    const b = new Flats(s.table, { attempt: -1, opens: true });
    for (let r = s.rows.n - 1; r >= 0; r -= 3) b.row(r);
    expect(b.complete).toBe(false);
    b.all();
    for (let r = 0; r < s.rows.n; r++) {
      expect([...b.start.subarray(b.from[r], b.to[r])]).toEqual([...a.start.subarray(a.from[r], a.to[r])]);
      expect([...b.item.subarray(b.from[r], b.to[r])]).toEqual([...a.item.subarray(a.from[r], a.to[r])]);
      expect([...b.point.subarray(b.pointFrom[r], b.pointTo[r])]).toEqual([...a.point.subarray(a.pointFrom[r], a.pointTo[r])]);
    }
  });

  test("without open spans none is left", async () => {
    const s = await LocalSource.open(await step({ samples: 200, seed: 5 }));
    expect(s.table.state.includes(OPEN)).toBe(true);
    const f = new Flats(s.table, { attempt: -1, opens: false }).all();
    for (let k = 0; k < f.size; k++) expect(s.table.state[f.item[k]!]).not.toBe(OPEN);
  });

  test("a row of 300,000 events in one pass", async () => {
    const s = await LocalSource.open(await oneRow(300_000));
    const f = new Flats(s.table, { attempt: -1, opens: true }).all();
    expect(f.pointTo[0]! - f.pointFrom[0]!).toBe(60_000);
    expect(f.size).toBeGreaterThan(60_000);
  });
});

interface Vectors {
  container: string;
  stats: { query: { filter?: string; attempt?: number | null }; t0: number; t1: number; stats: { names: Record<string, number | string | null>[]; rows: Record<string, number> } }[];
  rasters: { query: { filter?: string; sort?: "row"; desc?: boolean; attempt?: number | null }; w: number; h: number; t0: number; t1: number; by: By; class: number[]; fill: number[] }[];
  summaries: { query: { filter?: string; attempt?: number | null }; summary: Record<string, unknown> }[];
}
type By = "class" | "phase" | "name" | "attempt" | "status";

describe("vectors of the Go index", () => {
  const testdata = new URL("../../../internal/timeline/testdata/", import.meta.url).pathname;
  const files = existsSync(testdata + "vectors") ? readdirSync(testdata + "vectors") : [];
  test.each(files)("statistics and rasters of %s", async (file) => {
    const v = JSON.parse(readFileSync(`${testdata}vectors/${file}`, "utf8")) as Vectors;
    const s = await LocalSource.open(new Uint8Array(readFileSync(`${testdata}container/${v.container}`)));
    const names = s.head.dicts.name;
    const order = async (q: Record<string, unknown>) => s.order({ filter: "", sort: "row", desc: false, group: false, ...q, attempt: typeof q["attempt"] === "number" ? q["attempt"] : -1 } as Parameters<typeof s.order>[0]);
    for (const c of v.stats) {
      const rows = await order(c.query);
      const attempt = c.query.attempt ?? -1;
      const got = rangeStats(s.table, rows, c.t0, c.t1, names.length, attempt);
      const shown = got.map((g: NameStats) => {
        const sec = (us: number) => (Number.isNaN(us) ? null : Math.round(us) / 1e6);
        return { name: names[g.name], n: g.n, open: g.open, points: g.points, merged: g.merged, sum: sec(g.sum), p50: sec(g.p50), p99: sec(g.p99), max: sec(g.max) };
      });
      expect(shown, JSON.stringify(c.query)).toEqual(c.stats.names.map((n) => ({ ...n, sum: n["sum"] === null ? null : Math.round(Number(n["sum"]) * 1e6) / 1e6 })));
      const st = statesAt(s.rows, new Flats(s.table, { attempt, opens: true }).all(), rows, c.t1);
      const want = c.stats.rows;
      const { total, empty, not_started, ended, ...busy } = st;
      const all: Record<string, number> = { total, empty, not_started, ended, running: total - empty - not_started - ended, ...busy };
      for (const k of Object.keys(want)) expect(all[k], `${k} ${JSON.stringify(c.query)} at ${c.t1}`).toBe(want[k]);
      expect(sum(st)).toBe(total);
    }
    for (const c of v.rasters) {
      const rows = await order(c.query);
      const f = new Flats(s.table, { attempt: c.query.attempt ?? -1, opens: true }).all();
      expect(kinds(s, f, rows, c), `raster by ${c.by} ${c.w}x${c.h} ${c.t0}..${c.t1} ${JSON.stringify(c.query)}`).toEqual({ class: c.class, fill: c.fill });
    }
    // What a server counts over all rows is what the page counts by itself.
    const all = v.summaries.find((c) => !c.query.filter && typeof c.query.attempt !== "number")!;
    const read = readSummary(all.summary, s.head);
    const plain = (l: LegendEntry[]) => l.map((e) => ({ ...e, time: Math.round(e.time) }));
    for (const by of COLOUR_BY) {
      const c = s.colours(by);
      expect(plain(summaryLegend(c, read)), by).toEqual(plain(s.legend(c)));
    }
    expect([...read.medians].map(Math.round)).toEqual([...s.medians()].map(Math.round));
    expect([...read.attempts.keys()]).toEqual(s.attempts());
  });
});

const sum = (s: States) => Object.entries(s).reduce((a, [k, n]) => a + (k === "total" ? 0 : n), 0);

/** FORMAT.md's raster, from our bars. */
function kinds(s: LocalSource, f: Flats, order: Uint32Array, c: { w: number; h: number; t0: number; t1: number; by: By }): { class: number[]; fill: number[] } {
  const { w, h, t0, t1, by } = c;
  const t = s.table;
  const kind = (r: number, item: number, cls: number) =>
    Math.min(254, by === "name" ? t.name[item]! : by === "attempt" ? t.attempt[item]! : by === "status" ? s.rows.status[r]! : by === "phase" && cls === 0 ? 32 + t.name[item]! : cls);
  const out = { class: new Array<number>(w * h).fill(0), fill: new Array<number>(w * h).fill(0) };
  const p = (at: number) => Math.max(0, Math.min(w * 256, Math.floor(((at - t0) * (w * 256)) / (t1 - t0))));
  const n = order.length;
  if (n === 0) return out;
  for (let y = 0; y < h; y++) {
    const a = Math.floor((y * n) / h), b = Math.max(a + 1, Math.floor(((y + 1) * n) / h));
    const sums = Array.from({ length: w }, () => new Map<number, number>());
    const dots = new Array<number>(w).fill(0);
    const dot = (x: number, cls: number) => {
      const k = Math.min(w - 1, x >> 8);
      dots[k] = Math.max(dots[k]!, cls + 1);
    };
    for (let q = a; q < b; q++) {
      const r = order[q]!;
      for (let k = f.from[r]!; k < f.to[r]!; k++) {
        if (f.start[k]! >= t1 || f.end[k]! <= t0 || f.start[k] === f.end[k]) continue;
        const x0 = p(f.start[k]!), x1 = p(f.end[k]!);
        const own = kind(r, f.item[k]!, f.class[k]!);
        if (x0 === x1) dot(x0, own);
        for (let x = x0 >> 8; x <= (x1 - 1) >> 8 && x < w; x++) {
          const part = Math.min(x1, (x + 1) * 256) - Math.max(x0, x * 256);
          if (part > 0) sums[x]!.set(own, (sums[x]!.get(own) ?? 0) + part);
        }
      }
      for (let i = t.itemFrom[r]!; i < t.itemFrom[r + 1]!; i++) {
        const point = t.state[i] === POINT || t.state[i] === ORPHAN;
        if ((point || t.dur[i] === 0) && t.start[i]! >= t0 && t.start[i]! < t1 && dotted(f, r, i, point)) dot(p(t.start[i]!), kind(r, i, point ? 10 : t.class[i]!));
      }
    }
    for (let x = 0; x < w; x++) {
      let best = 0, cls = 0, total = 0;
      for (const [k, v] of [...sums[x]!].sort((m, o) => m[0] - o[0])) {
        total += v;
        if (v > best) [best, cls] = [v, k + 1];
      }
      out.class[y * w + x] = total > 0 ? cls : dots[x]!;
      out.fill[y * w + x] = total > 0 ? Math.max(1, Math.min(255, Math.floor((total * 255) / (256 * (b - a))))) : dots[x]! > 0 ? 1 : 0;
    }
  }
  return out;
}

/** Points of other attempts are not in the bars. */
function dotted(f: Flats, r: number, item: number, point: boolean): boolean {
  if (!point) return true;
  return f.point.subarray(f.pointFrom[r], f.pointTo[r]).includes(item) || f.orphan.subarray(f.orphanFrom[r], f.orphanTo[r]).includes(item);
}
