import { describe, expect, test } from "vitest";
import { Axis } from "./axis";
import { COLOUR_BY, type LegendEntry } from "./colours";
import { HttpSource } from "./http";
import { QueryError, type Query } from "./query";
import { LocalSource, type WindowAsk } from "./source";
import { Builder, encode, step } from "./testdata";
import { decode, Strings, type Container } from "./container";
import { GENERATE, OTHER, TOOL } from "./table";

const Q: Query = { filter: "", sort: "end", desc: true, group: false, attempt: -1 };

/** A server over a local source, as FORMAT.md says; it cuts windows by rows, not by time. */
async function server(samples = 300, summary = true, made: Promise<Uint8Array> = step({ samples, seed: 6, sync: false })) {
  const bytes = await made;
  const local = await LocalSource.open(bytes);
  const whole = await decode(bytes);
  const { columns: _c, blobs: _b, attrs: _a, details: _d, texts: _t, ...head } = whole.head;
  const asked: string[] = [];
  let aborted = 0;
  let hold: Promise<void> | null = null;
  const query = (p: URLSearchParams): Query => ({ filter: p.get("filter") ?? "", sort: (p.get("sort") ?? "row") as Query["sort"], desc: p.get("desc") === "1", group: p.get("group") === "1", attempt: p.has("attempt") ? Number(p.get("attempt")) : -1 });
  const answer = async (url: URL): Promise<Response> => {
    const p = url.searchParams;
    const path = url.pathname.replace(/^.*timelines\/7/, "");
    const ok = async (h: Record<string, unknown>, cols: Parameters<typeof encode>[1]) => new Response((await encode({ ...head, ...h }, cols)) as Uint8Array<ArrayBuffer>);
    if (path === "") return ok({}, {});
    let order: Uint32Array;
    try {
      order = (await local.order(query(p))) as Uint32Array;
    } catch (err) {
      return Response.json({ error: { code: "bad_filter", message: (err as Error).message } }, { status: 400 });
    }
    if (path === "/order") return ok({ counts: { rows: order.length } }, { "order.row": order });
    if (path === "/window") {
      const rows = [...order.slice(Number(p.get("from")), Number(p.get("from")) + Number(p.get("count")))];
      const empty = Number(p.get("t1")) < 0;
      return ok({}, cut(whole, local, rows, empty));
    }
    if (path === "/raster") {
      // The left half is kind 3 of whatever is asked for, the right half the last row's.
      const w = Number(p.get("w")), n = w * Number(p.get("h"));
      return ok({}, { "raster.class": Uint8Array.from({ length: n }, (_, i) => (i % w < w / 2 ? 4 : kindOf(p.get("by") ?? "class"))), "raster.fill": new Uint8Array(n).fill(255) });
    }
    if (path === "/summary") return summary ? Response.json({ data: summaryOf(local) }) : Response.json({ error: { code: "timeout", message: "busy" } }, { status: 503 });
    if (path === "/stats") return Response.json({ names: [{ name: "sglang_generate", n: 5, open: 1, points: 0, merged: 2, sum: 10.5, p50: 2, p99: 4, max: 4.5 }, { name: "gone", n: 1 }], rows: { total: 9, ended: 4, not_started: 0, empty: 1, decode: 4 } });
    if (/^\/rows\/\d+$/.test(path)) return Response.json({ row: 1, items: [{ name: "a", attrs: [{ k: 1 }, null] }, { name: "b", attrs: null }], details: { metadata: { x: 1 } } });
    if (path.endsWith("/text")) return Response.json({ prompt: "P", response: null, tokens_available: true });
    if (path === "/perfetto") return new Response('{"traceEvents":[]}');
    return new Response("not here", { status: 404 });
  };
  const fetch_ = (async (url: string, init?: { signal?: AbortSignal }) => {
    asked.push(url);
    if (hold) await hold;
    if (init?.signal?.aborted) {
      aborted++;
      throw new DOMException("aborted", "AbortError");
    }
    return answer(new URL(url, "http://x"));
  }) as unknown as typeof fetch;
  return {
    local, asked, fetch_, aborts: () => aborted,
    hold() {
      let go: () => void = () => undefined;
      hold = new Promise((r) => (go = r));
      return () => {
        hold = null;
        go();
      };
    },
  };
}

const kindOf = (by: string): number => ({ class: 10, phase: 10, name: 2, attempt: 2, status: 2 })[by] as number;

/** What FORMAT.md says under "Summary", the slow way. */
function summaryOf(s: LocalSource): Record<string, unknown> {
  const { table: t, rows, head } = s;
  type C = { n: number; seconds: number };
  const classes = new Map<string, C>(), names = new Map<string, C & { other?: C }>(), attempts = new Map<number, C>(), statuses = new Map<string, C & { rows: number }>();
  const add = <K>(m: Map<K, C>, k: K, n: number, us: number) => {
    const c = m.get(k) ?? { n: 0, seconds: 0 };
    m.set(k, Object.assign(c, { n: c.n + n, seconds: c.seconds + us / 1e6 }));
    return c;
  };
  for (let r = 0; r < rows.n; r++) {
    for (let i = t.itemFrom[r]!; i < t.itemFrom[r + 1]!; i++) {
      const n = t.count[i]!, us = t.dur[i]!;
      add(classes, head.dicts.class[t.class[i]!]!, n, us);
      const name = add(names, head.dicts.name[t.name[i]!]!, n, us) as C & { other?: C };
      if (t.class[i] === 0) name.other = { n: (name.other?.n ?? 0) + n, seconds: (name.other?.seconds ?? 0) + us / 1e6 };
      add(attempts, t.attempt[i]!, n, us);
      add(statuses, head.dicts.status[rows.status[r]!]!, n, us);
      for (let g = t.segFrom[i]!; g < t.segFrom[i + 1]!; g++) add(classes, head.dicts.class[t.segClass[g]!]!, 1, t.segDur[g]!);
    }
  }
  const list = <K, V>(m: Map<K, V>, field: string) => [...m].map(([k, v]) => ({ [field]: k, ...v }));
  const median = (col: Float64Array) => {
    const v = [...col].filter((x) => !Number.isNaN(x)).sort((a, b) => a - b);
    return v.length === 0 ? null : v[Math.floor((v.length + 1) / 2) - 1]! / 1e6;
  };
  return {
    rows: rows.n, classes: list(classes, "class"), names: list(names, "name"), attempts: list(attempts, "attempt").sort((a, b) => Number(a["attempt"]) - Number(b["attempt"])), statuses: list(statuses, "status"),
    medians: { phases: t.req.phase.map(median), queue: median(t.req.queue), e2e: median(t.req.e2e), dur: median(t.req.dur) },
  };
}

/** The columns of some rows. */
function cut(c: Container, s: LocalSource, rows: number[], empty: boolean): Record<string, number[] | string[]> {
  const out: Record<string, number[] | string[]> = {};
  for (const [name, col] of c.columns) {
    const list: (number | string)[] = [];
    const at = (i: number) => (col instanceof Strings ? col.at(i) : (col[i] as number));
    for (const r of rows) {
      if (name.startsWith("row.")) list.push(empty && name === "row.items" ? 0 : at(r));
      else if (name.startsWith("req.")) for (let q = s.table.reqFrom[r]!; q < s.table.reqFrom[r + 1]!; q++) list.push(at(q));
      else if (!empty && name.startsWith("item.")) for (let i = s.table.itemFrom[r]!; i < s.table.itemFrom[r + 1]!; i++) list.push(at(i));
      else if (!empty && name.startsWith("seg.")) for (let g = s.table.segFrom[s.table.itemFrom[r]!]!; g < s.table.segFrom[s.table.itemFrom[r + 1]!]!; g++) list.push(at(g));
    }
    out[name] = list as number[];
  }
  out["row.id"] = rows;
  return out;
}

const until = async (what: () => boolean) => {
  for (const end = Date.now() + 30_000; !what() && Date.now() < end; ) await new Promise((r) => setTimeout(r, 2));
  expect(what()).toBe(true);
};

describe("over HTTP", () => {
  test("rows, order, windows with their neighbours", async () => {
    const s = await server();
    const h = await HttpSource.open("/api/rollscope/v1/timelines/7", s.fetch_);
    expect(h.rows.n).toBe(s.local.rows.n);
    expect([...h.rows.index]).toEqual([...s.local.rows.index]);
    expect(h.extent).toEqual(s.local.extent);
    const order = await h.order(Q);
    expect([...order]).toEqual([...(await s.local.order(Q))]);
    let changes = 0;
    h.subscribe(() => changes++);
    const ask: WindowAsk = { query: Q, order, from: 0, to: 40, t0: h.extent[0], t1: h.extent[0] + 5e6, px: 1000, open: [order[3]!], flat: { attempt: -1, opens: true } };
    expect(h.window(ask).complete).toBe(false);
    expect(h.window(ask).slot(0)).toBeNull();
    await until(() => h.window(ask).complete);
    expect(changes).toBeGreaterThan(0);
    const slot = h.window(ask).slot(5)!;
    const want = s.local.window({ ...ask }).slot(5)!;
    const items = (x: typeof slot) => x.table.itemFrom[x.at + 1]! - x.table.itemFrom[x.at]!;
    expect(items(slot)).toBe(items(want));
    expect(slot.flat.to[slot.at]! - slot.flat.from[slot.at]!).toBe(want.flat.to[want.at]! - want.flat.from[want.at]!);
    const open = s.asked.filter((u) => u.includes("/window?") && u.includes("open="));
    expect(open.every((u) => new URL(u, "http://x").searchParams.get("open") === String(order[3]))).toBe(true);
    // The page below and the tiles beside it come by themselves.
    await until(() => s.asked.some((u) => u.includes("from=128")));
    const before = s.asked.length;
    await until(() => h.window({ ...ask, from: 100, to: 140 }).complete);
    expect(h.window({ ...ask, from: 100, to: 140 }).slot(130)).not.toBeNull();
    expect(s.asked.length).toBeGreaterThanOrEqual(before);
  });

  test("what is asked for no more is aborted; what is known is not asked for again", async () => {
    const s = await server();
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const order = await h.order(Q);
    const ask = (k: number): WindowAsk => ({ query: Q, order, from: 0, to: 40, t0: h.extent[0] + k * 20e6, t1: h.extent[0] + k * 20e6 + 1e6, px: 1000, open: [], flat: { attempt: -1, opens: true } });
    const go = s.hold();
    h.window(ask(0));
    h.window(ask(20));
    go();
    await until(() => h.window(ask(20)).complete);
    expect(s.aborts()).toBeGreaterThan(0);
    await until(() => s.asked.length > 4);
    // What lies beside it is asked for when it is complete, and comes by itself.
    const loading = (h as unknown as { loading: Map<string, unknown> }).loading;
    await until(() => h.window(ask(20)).complete && loading.size === 0);
    const n = s.asked.length;
    for (let i = 0; i < 20; i++) h.window(ask(20));
    expect(loading.size).toBe(0);
    expect(s.asked.length).toBe(n);
    expect([...(await h.order(Q))].length).toBe(order.length);
    expect(s.asked.length).toBe(n);
  });

  test("the cache is bounded", async () => {
    const s = await server(16);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const order = await h.order(Q);
    for (let k = 0; k < 60; k++) {
      const ask: WindowAsk = { query: Q, order, from: 0, to: 40, t0: k * 9e6, t1: k * 9e6 + 1e6, px: 1000, open: [], flat: { attempt: -1, opens: true } };
      await until(() => h.window(ask).complete);
    }
    expect((h as unknown as { pages: Map<string, unknown> }).pages.size).toBeLessThan(64);
  });

  test("numbers, samples, texts, pictures", async () => {
    const s = await server(60);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const order = await h.order(Q);
    const stats = await h.stats(Q, order, 0, 1e6);
    expect(stats).toHaveLength(1); // a name that the head does not know is left out
    expect(stats[0]).toMatchObject({ n: 5, open: 1, merged: 2, sum: 10.5e6, p50: 2e6 });
    expect(await h.states(Q, order, 5e6)).toMatchObject({ total: 9, ended: 4, decode: 4, empty: 1 });
    const sample = await h.sample(1);
    expect(sample.attrs).toEqual([[{ k: 1 }, null], null]);
    expect(sample.detail).toEqual({ metadata: { x: 1 } });
    expect(await h.text(1)).toEqual({ prompt: "P", response: null, note: "The dump has tokens and no text." });
    const colours = h.colours("phase");
    const rgb = new Uint8Array(3 * colours.entries.length + 3).fill(50);
    const out = new Uint8ClampedArray(20 * 10 * 4);
    expect(await h.raster({ query: Q, order, from: 0, to: order.length, axis: new Axis(0, 1e6, 20), height: 10, colours, paint: { rgb, css: [], alpha: new Float32Array(colours.entries.length).fill(1) }, flat: { attempt: -1, opens: true } }, out)).toBe(true);
    expect(out[3]).toBeGreaterThan(200);
    expect((await h.perfetto(Q, order, 0, 1)).size).toBeGreaterThan(5);
    expect([...(await h.find("reward=1"))].reduce((a, b) => a + b, 0)).toBe((await h.order({ ...Q, filter: "reward=1" })).length);
  });

  test("colours, legend, attempts and medians are those of a page that has it all", async () => {
    const b = new Builder(false);
    b.row({ index: 0, status: "completed" }, ["zeta", "sglang_generate", "alpha", "zeta"].map((name, i) => ({ start: 10 * i, end: 10 * i + 7, name, cls: i === 1 ? GENERATE : OTHER, lane: 0, depth: 0, parent: -1, attempt: i === 3 ? 2 : 0 })));
    b.row({ index: 1, status: "aborted" }, [{ start: 5, end: 6, name: "tool_call", cls: TOOL, lane: 0, depth: 0, parent: -1, attempt: 0 }]);
    for (const s of [await server(), await server(0, true, b.finish())]) {
      const h = await HttpSource.open("/t/timelines/7", s.fetch_);
      expect(s.asked.filter((u) => u.includes("/summary"))).toHaveLength(1);
      for (const by of COLOUR_BY) {
        const got = h.colours(by), want = s.local.colours(by);
        expect(got.entries, by).toEqual(want.entries);
        const plain = (l: LegendEntry[]) => l.map((e) => ({ ...e, time: Math.round(e.time) }));
        expect(plain(h.legend(got)), by).toEqual(plain(s.local.legend(want)));
      }
      expect(h.attempts()).toEqual(s.local.attempts());
      expect([...h.medians()!].map(Math.round)).toEqual([...s.local.medians()].map(Math.round));
      expect(s.asked.filter((u) => u.includes("/summary"))).toHaveLength(1);
    }
  });

  test("without the counts it opens all the same", async () => {
    const s = await server(20, false);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const c = h.colours("phase");
    const l = h.legend(c);
    expect(l.length).toBeGreaterThan(0);
    expect(l.every((e) => Number.isNaN(e.n))).toBe(true);
    expect(h.medians()).toBeNull();
    expect(h.attempts().length).toBeGreaterThan(0);
  });

  test("a picture is asked for and painted in what the colours tell apart", async () => {
    const s = await server(60);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const order = await h.order(Q);
    for (const by of COLOUR_BY) {
      const colours = h.colours(by);
      const n = colours.entries.length;
      const rgb = Uint8Array.from({ length: 3 * n + 3 }, (_, i) => (i % 3 === 0 ? 10 + i / 3 : 0));
      const out = new Uint8ClampedArray(20 * 10 * 4);
      await h.raster({ query: Q, order, from: 0, to: order.length, axis: new Axis(0, 1e6, 20), height: 10, colours, paint: { rgb, css: [], alpha: new Float32Array(n).fill(1) }, flat: { attempt: -1, opens: true } }, out);
      const asked = new URL(s.asked.filter((u) => u.includes("/raster?")).at(-1)!, "http://x").searchParams;
      expect(asked.get("by")).toBe(by);
      const key = (kind: number) => (by === "phase" ? `c${kind}` : `${by[0]}${kind}`);
      const red = (kind: number) => 10 + Math.max(0, colours.entries.findIndex((e) => e.key === key(kind)));
      expect(out[0], by).toBe(red(3));
      expect(out[19 * 4], by).toBe(red(kindOf(by) - 1));
    }
  });

  test("samples that are asked for together all come, and leave nothing behind", async () => {
    const s = await server(20);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    const both = await Promise.all([h.sample(1), h.sample(2), h.text(1), h.text(2)]);
    expect(both).toHaveLength(4);
    expect(s.aborts()).toBe(0);
    expect((h as unknown as { loading: Map<string, unknown> }).loading.size).toBe(0);
    // Of statistics only the newest count.
    const go = s.hold();
    const order = new Uint32Array(0);
    const old = h.stats(Q, order, 0, 1e6).then(() => "came", () => "aborted");
    const fresh = h.stats(Q, order, 0, 2e6);
    go();
    expect(await old).toBe("aborted");
    expect(await fresh).toHaveLength(1);
  });

  test("a filter that cannot be read, a server that fails", async () => {
    const s = await server(20);
    const h = await HttpSource.open("/t/timelines/7", s.fetch_);
    expect(() => h.order({ ...Q, filter: "reward<" })).toThrow(QueryError);
    await expect(HttpSource.open("/t/timelines/8", s.fetch_)).rejects.toThrow(/404/);
    const broken = (async () => new Response("<html>", { status: 200 })) as unknown as typeof fetch;
    await expect(HttpSource.open("/t/timelines/7", broken)).rejects.toThrow(/RTC1/);
  });
});
