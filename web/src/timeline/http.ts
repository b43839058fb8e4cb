// A timeline read window by window from a server (FORMAT.md, "Over HTTP"). What was fetched is kept in a
// bounded cache, what is asked for no more is aborted, neighbours of the window are fetched ahead.
import { gapsOf, type Gaps } from "./axis";
import { Colours, type ColourBy, type LegendEntry } from "./colours";
import { decode, Strings, type Container, type Head, type NumberColumn } from "./container";
import { Flats, type Flat } from "./flat";
import { parse, QueryError, type Query, type Sort } from "./query";
import { paintKinds } from "./raster";
import type { NameStats, States } from "./stats";
import type { Now, RasterAsk, Sample, Slot, Text, TimelineSource, TimelineWindow, WindowAsk } from "./source";
import { readSummary, summaryLegend, type Summary } from "./summary";
import { extentOf, GENERATE, GROUP, OTHER, readRows, readWhole, type Rows, type Table } from "./table";

const PAGE = 128;
const MOST_ROWS = 65536;
const MOST_WINDOWS = 48;
const MOST_RASTERS = 12;

interface Page {
  table: Table;
  flats: Map<string, Flat>;
  t0: number;
  t1: number;
}

export class HttpSource implements TimelineSource {
  readonly local = false;
  readonly extent: [number, number];
  private listeners = new Set<() => void>();
  private pages = new Map<string, Page>();
  private loading = new Map<string, AbortController>();
  private failed = new Map<string, string>();
  private rasters = new Map<string, Container>();
  private orders = new Map<string, Uint32Array>();
  private samples = new Map<number, Promise<Sample>>();
  private colourSets = new Map<ColourBy, Colours>();
  private k: number;
  private wanted = new Set<string>();

  private constructor(private base: string, readonly head: Head, readonly rows: Rows, private sketch: Table, private summary: Summary | null, private fetch_: typeof fetch) {
    this.extent = extentOf(head);
    this.k = head.unit_ns > 0 ? head.unit_ns / 1000 : 1;
  }

  /** Opens the timeline below base (…/timelines/ID): its head, the columns of all rows without items, and what the legend counts. */
  static async open(base: string, fetch_: typeof fetch = fetch.bind(globalThis)): Promise<HttpSource> {
    const head = (await container(fetch_, base)).head;
    // A window before the first event: the columns of all rows, without an item.
    const before = Math.round((head.extent?.[0] ?? 0) - 2);
    const n = head.counts["rows"] ?? head.counts["samples"] ?? 0;
    const parts: Container[] = [];
    // Without it there are no counts and no medians; the rest does not need it.
    const counted = askJSON(fetch_, `${base}/summary`).then((s) => readSummary(s, head), () => null);
    for (let from = 0; from === 0 || from < n; from += MOST_ROWS) {
      const q = new URLSearchParams({ from: String(from), count: String(Math.min(MOST_ROWS, Math.max(1, n - from))), sort: "row", t0: String(before - 1), t1: String(before), px: "1" });
      parts.push(await container(fetch_, `${base}/window?${q}`));
    }
    const rows = joinRows(parts.map(readRows));
    const first = parts[0] as Container;
    // Sources and labels are numbered anew in each window; one part (65,536 rows) is the rule.
    const dicts = parts.length === 1 ? { ...head.dicts, source: first.head.dicts.source, label: first.head.dicts.label } : joinDicts(head.dicts, rows, parts);
    return new HttpSource(base, { ...head, dicts }, rows, readWhole(first), await counted, fetch_);
  }

  subscribe(changed: () => void): () => void {
    this.listeners.add(changed);
    return () => this.listeners.delete(changed);
  }

  close(): void {
    for (const c of this.loading.values()) c.abort();
    this.loading.clear();
    this.listeners.clear();
  }

  private changed(): void {
    for (const f of this.listeners) f();
  }

  private params(q: Query, more: Record<string, string | number> = {}): URLSearchParams {
    const p = new URLSearchParams();
    if (q.filter) p.set("filter", q.filter);
    p.set("sort", q.sort);
    if (q.desc) p.set("desc", "1");
    if (q.group) p.set("group", "1");
    if (q.attempt >= 0) p.set("attempt", String(q.attempt));
    for (const [k, v] of Object.entries(more)) p.set(k, String(v));
    return p;
  }

  private units = (us: number) => Math.round(us / this.k);

  order(q: Query): Now<Uint32Array> {
    parse(q.filter); // says at once what cannot be read
    const p = String(this.params(q));
    const known = this.orders.get(p);
    if (known) return known;
    return this.latest("order", `${this.base}/order?${p}`).then((c) => {
      const order = Uint32Array.from((c.columns.get("order.row") as NumberColumn | undefined) ?? []);
      this.orders.set(p, order);
      trim(this.orders, 16);
      return order;
    });
  }

  async find(filter: string): Promise<Uint8Array> {
    const rows = await this.order({ filter, sort: "row", desc: false, group: false, attempt: -1 });
    const out = new Uint8Array(this.rows.n);
    for (let i = 0; i < rows.length; i++) out[rows[i] as number] = 1;
    return out;
  }

  /** A request of a kind of which only the newest counts. */
  private latest(kind: string, url: string): Promise<Container> {
    this.loading.get(kind)?.abort();
    const stop = new AbortController();
    this.loading.set(kind, stop);
    return container(this.fetch_, url, stop.signal).finally(() => {
      if (this.loading.get(kind) === stop) this.loading.delete(kind);
    });
  }

  window(ask: WindowAsk): TimelineWindow {
    const tile = this.tile(ask.t0, ask.t1);
    const pages: string[] = [];
    const at = new Map<number, string>();
    const first = Math.floor(ask.from / PAGE), last = Math.max(first, Math.floor((ask.to - 1) / PAGE));
    const px = Math.min(8192, 1024 * Math.ceil((ask.px * (tile[1] - tile[0])) / Math.max(1e-9, ask.t1 - ask.t0) / 1024)) || 1024;
    const address = (page: number, [t0, t1]: [number, number]): string => {
      const open = ask.open.length > 0 ? ask.open.filter((r) => inPage(ask.order, page, r)) : [];
      return String(this.params(ask.query, { from: page * PAGE, count: PAGE, t0: this.units(t0), t1: this.units(t1), px, ...(open.length ? { open: open.join(",") } : {}) }));
    };
    let complete = true;
    for (let page = first; page <= last; page++) {
      const key = address(page, tile);
      pages.push(key);
      at.set(page, key);
      if (!this.pages.has(key) && !this.failed.has(key)) complete = false;
    }
    // Neighbours: the pages above and below, the tiles before and after.
    const ahead: string[] = [];
    const half = (tile[1] - tile[0]) / 2;
    if (complete) {
      if (first > 0) ahead.push(address(first - 1, tile));
      if ((last + 1) * PAGE < ask.order.length) ahead.push(address(last + 1, tile));
      if (tile[1] - tile[0] < this.extent[1] - this.extent[0]) {
        for (let page = first; page <= last; page++) ahead.push(address(page, [tile[0] - half, tile[1] - half]), address(page, [tile[0] + half, tile[1] + half]));
      }
    }
    this.wanted = new Set([...pages, ...ahead]);
    for (const [key, stop] of this.loading) {
      if (key.startsWith("window ") && !this.wanted.has(key.slice(7))) {
        stop.abort();
        this.loading.delete(key);
      }
    }
    for (const key of [...pages, ...ahead]) this.load(key);
    const option = `${ask.flat.attempt} ${ask.flat.opens}`;
    const slot: Slot = { table: this.sketch, flat: EMPTY, at: 0 };
    return {
      complete,
      slot: (place) => {
        const page = Math.floor(place / PAGE);
        const found = this.pages.get(at.get(page) ?? "") ?? this.stale(page, ask);
        if (!found) return null;
        let flat = found.flats.get(option);
        if (!flat) found.flats.set(option, (flat = new Flats(found.table, ask.flat).all()));
        slot.table = found.table;
        slot.flat = flat;
        slot.at = place - page * PAGE;
        return slot.at < found.table.n ? slot : null;
      },
    };
  }

  /** The best that is here of a page while its window loads: of the same query, and touching the window. */
  private stale(page: number, ask: WindowAsk): Page | null {
    const begin = String(this.params(ask.query, { from: page * PAGE, count: PAGE })) + "&t0=";
    let best: Page | null = null;
    for (const [key, p] of this.pages) {
      if (!key.startsWith(begin) || p.t1 < ask.t0 || p.t0 > ask.t1) continue;
      if (!best || p.t1 - p.t0 < best.t1 - best.t0) best = p;
    }
    return best;
  }

  private load(key: string): void {
    if (this.pages.has(key)) {
      const p = this.pages.get(key) as Page;
      this.pages.delete(key); // newest last
      this.pages.set(key, p);
      return;
    }
    if (this.loading.has(`window ${key}`) || this.failed.has(key)) return;
    const stop = new AbortController();
    this.loading.set(`window ${key}`, stop);
    const t = new URLSearchParams(key);
    container(this.fetch_, `${this.base}/window?${key}`, stop.signal)
      .then((c) => {
        this.pages.set(key, { table: readWhole(c), flats: new Map(), t0: Number(t.get("t0")) * this.k, t1: Number(t.get("t1")) * this.k });
        for (const old of this.pages.keys()) {
          if (this.pages.size <= MOST_WINDOWS) break;
          if (!this.wanted.has(old)) this.pages.delete(old);
        }
      })
      .catch((err: Error) => {
        if (!stop.signal.aborted) this.failed.set(key, err.message);
      })
      .finally(() => {
        if (this.loading.get(`window ${key}`) === stop) this.loading.delete(`window ${key}`);
        if (!stop.signal.aborted) this.changed();
      });
  }

  /** A piece of time that holds the window and is at most eight times as long; few windows share many. */
  private tile(t0: number, t1: number): [number, number] {
    const [a, b] = this.extent;
    const whole = Math.max(1, b - a);
    let w = whole * 1.02;
    while (w / 2 >= 2 * (t1 - t0)) w /= 2;
    if (w >= whole) return [a - whole * 0.01, b + whole * 0.01];
    const i = Math.floor((t0 - a) / (w / 2));
    return [a + (i * w) / 2, a + (i * w) / 2 + w];
  }

  /** What went wrong lately, for the reader; "" when nothing did. */
  trouble(): string {
    return [...this.failed.values()][0] ?? "";
  }

  raster(ask: RasterAsk, out: Uint8ClampedArray): boolean | Promise<boolean> {
    const w = Math.floor(ask.axis.width), h = ask.height;
    if (w <= 0 || h <= 0) return true;
    // The server gives rows in equal heights over all that match; a part is cut out of it.
    const full = Math.max(h, Math.min(2048, Math.round((h * ask.order.length) / Math.max(1, ask.to - ask.from))));
    const key = String(this.params(ask.query, { by: ask.colours.by, w, h: full, t0: this.units(ask.axis.t0), t1: this.units(ask.axis.t1) }));
    const draw = (c: Container): boolean => {
      const cls = c.columns.get("raster.class") as Uint8Array | undefined, fill = c.columns.get("raster.fill") as Uint8Array | undefined;
      if (!cls || !fill || cls.length < w * full || ask.order.length === 0) return true;
      const a = new Uint8Array(w * h), b = new Uint8Array(w * h);
      for (let y = 0; y < h; y++) {
        const place = ask.from + ((y + 0.5) * (ask.to - ask.from)) / h;
        const from = Math.min(full - 1, Math.floor((place / ask.order.length) * full)) * w;
        for (let x = 0; x < w; x++) {
          // The server's pixels are even in time; a squeezed axis takes the one under each of its own.
          const sx = ask.axis.plain ? x : Math.min(w - 1, Math.max(0, Math.floor(((ask.axis.t(x + 0.5) - ask.axis.t0) / (ask.axis.t1 - ask.axis.t0)) * w)));
          a[y * w + x] = cls[from + sx] as number;
          b[y * w + x] = fill[from + sx] as number;
        }
      }
      paintKinds(a, b, ask.colours, ask.paint, out);
      return true;
    };
    const known = this.rasters.get(key);
    if (known) return draw(known);
    return this.latest(`raster ${w}x${full}`, `${this.base}/raster?${key}`).then((c) => {
      this.rasters.set(key, c);
      trim(this.rasters, MOST_RASTERS);
      return draw(c);
    });
  }

  /** JSON of a kind of which only the newest counts. */
  private json = async (url: string, kind: string): Promise<Record<string, unknown>> => {
    this.loading.get(kind)?.abort();
    const stop = new AbortController();
    this.loading.set(kind, stop);
    try {
      return await askJSON(this.fetch_, url, stop.signal);
    } finally {
      if (this.loading.get(kind) === stop) this.loading.delete(kind);
    }
  };

  private askStats(q: Query, t0: number, t1: number, kind: string): Promise<Record<string, unknown>> {
    return this.json(`${this.base}/stats?${this.params(q, { t0: this.units(t0), t1: this.units(t1) })}`, kind);
  }

  async stats(q: Query, _: Uint32Array, t0: number, t1: number): Promise<NameStats[]> {
    const answer = await this.askStats(q, t0, t1, "stats");
    const names = Array.isArray(answer["names"]) ? (answer["names"] as Record<string, unknown>[]) : [];
    const us = (v: unknown) => (typeof v === "number" ? v * 1e6 : NaN);
    const whole = (v: unknown) => (typeof v === "number" ? v : 0);
    return names
      .map((v) => ({
        name: this.head.dicts.name.indexOf(String(v["name"])), n: whole(v["n"]), points: whole(v["points"]), open: whole(v["open"]), merged: whole(v["merged"]),
        sum: us(v["sum"]), p50: us(v["p50"]), p99: us(v["p99"]), max: us(v["max"]),
      }))
      .filter((v) => v.name >= 0);
  }

  async states(q: Query, _: Uint32Array, t: number): Promise<States> {
    const answer = await this.askStats(q, t - this.k, t, "states");
    const rows = (answer["rows"] ?? {}) as Record<string, number>;
    const out: States = { total: 0, empty: 0, not_started: 0, ended: 0, queued: 0, prefill: 0, transfer: 0, decode: 0, generate: 0, tools: 0, reward: 0, sync: 0, wait: 0, other: 0 };
    for (const k of Object.keys(out) as (keyof States)[]) if (typeof rows[k] === "number") out[k] = rows[k];
    return out;
  }

  colours(by: ColourBy): Colours {
    let c = this.colourSets.get(by);
    if (!c) {
      // Every class, name and attempt may come with a later window, so each has its colour from the start:
      // those that occur, as a table of all items would give them.
      const s = this.summary;
      const n = this.head.dicts.name.length;
      const names = s ? [...s.names.keys()] : Array.from({ length: n }, (_, i) => i);
      const all: Table = {
        ...this.sketch,
        name: Uint16Array.from(names),
        class: Uint8Array.from(names, (i) => (s && !s.others.has(i) ? GENERATE : OTHER)),
        attempt: Uint8Array.from(this.attempts()),
      };
      this.colourSets.set(by, (c = new Colours(by, this.head, this.rows, all)));
    }
    return c;
  }

  private maxAttempts(): number {
    let m = 0;
    for (const a of this.rows.attempts) m = Math.max(m, a);
    return m;
  }

  legend(c: Colours): LegendEntry[] {
    const s = this.summary;
    if (!s) return c.entries.map((e, i) => ({ ...e, n: NaN, time: NaN, palette: i })).filter((e) => c.by !== "phase" || e.key.startsWith("c"));
    return summaryLegend(c, s);
  }

  attempts(): number[] {
    if (this.summary) return [...this.summary.attempts.keys()];
    return Array.from({ length: this.maxAttempts() }, (_, i) => i);
  }

  key(sort: Sort, row: number): number {
    const { rows } = this;
    const traced = rows.why[row] === 0;
    switch (sort) {
      case "start":
        return traced ? (rows.start[row] as number) / 1e6 : NaN;
      case "dur":
        return traced ? (rows.dur[row] as number) / 1e6 : NaN;
      case "end":
        return traced ? ((rows.start[row] as number) + (rows.dur[row] as number)) / 1e6 : NaN;
      case "reward":
        return rows.reward[row] as number;
      case "lanes":
        return rows.lanes[row] as number;
      case "open":
        return rows.open[row] as number;
      case "group":
        return rows.group[row] as number;
      case "sample":
        return rows.index[row] as number;
      case "tokens":
        return rows.response[row] as number;
      case "row":
        return rows.ordinal[row] as number;
      default:
        return NaN;
    }
  }

  async gaps(): Promise<Gaps> {
    const [a, b] = this.extent;
    const w = 2048;
    const c = await container(this.fetch_, `${this.base}/raster?${new URLSearchParams({ w: String(w), h: "1", t0: String(this.units(a)), t1: String(this.units(b)) })}`);
    const cls = c.columns.get("raster.class") as Uint8Array | undefined;
    return gapsOf(Uint8Array.from(cls ?? [], (v) => (v === 0 || v === GROUP + 1 ? 0 : 1)), a, b);
  }

  medians(): Float64Array | null {
    return this.summary?.medians ?? null;
  }

  sample(row: number): Promise<Sample> {
    const known = this.samples.get(row);
    if (known) return known;
    const made = this.json(`${this.base}/rows/${row}`, `sample ${row}`).then((s): Sample => {
      const items = Array.isArray(s["items"]) ? (s["items"] as Record<string, unknown>[]) : [];
      const detail = s["details"];
      return {
        attrs: items.map((i) => (Array.isArray(i["attrs"]) ? (i["attrs"] as unknown[]) : null)),
        detail: detail !== null && typeof detail === "object" ? (detail as Record<string, unknown>) : {},
      };
    });
    this.samples.set(row, made);
    made.catch(() => this.samples.delete(row));
    trim(this.samples, 32);
    return made;
  }

  async text(row: number): Promise<Text> {
    const t = await this.json(`${this.base}/rows/${row}/text`, `text ${row}`);
    const str = (v: unknown) => (v === null || v === undefined ? null : typeof v === "string" ? v : JSON.stringify(v, null, 1));
    return { prompt: str(t["prompt"]), response: str(t["response"]), note: t["tokens_available"] === true && !t["response"] ? "The dump has tokens and no text." : "" };
  }

  async perfetto(q: Query, _: Uint32Array, t0: number, t1: number): Promise<Blob> {
    const url = `${this.base}/perfetto?${this.params(q, { t0: this.units(t0), t1: this.units(t1) })}`;
    const res = await this.fetch_(url);
    if (!res.ok) throw await problem(res, url);
    return res.blob();
  }
}

/** Rows of several windows, one after the other. */
function joinRows(parts: Rows[]): Rows {
  if (parts.length === 1) return parts[0] as Rows;
  const n = parts.reduce((a, p) => a + p.n, 0);
  const out = { n } as unknown as Record<string, unknown>;
  for (const key of Object.keys(parts[0] as Rows) as (keyof Rows)[]) {
    if (key === "n") continue;
    if (key === "trace") {
      const bytes = new Uint8Array(parts.reduce((a, p) => a + p.trace.bytes.length, 0));
      const starts = new Uint32Array(n + 1);
      let at = 0, row = 0;
      for (const p of parts) {
        bytes.set(p.trace.bytes, at);
        for (let i = 0; i < p.n; i++) starts[row++] = at + (p.trace.starts[i] as number);
        at += p.trace.bytes.length;
      }
      starts[n] = at;
      out[key] = new Strings(bytes, starts);
      continue;
    }
    const first = (parts[0] as Rows)[key] as NumberColumn;
    const all = new (first.constructor as { new (n: number): NumberColumn })(n);
    let at = 0;
    for (const p of parts) {
      all.set(p[key] as NumberColumn, at);
      at += p.n;
    }
    out[key] = all;
  }
  return out as unknown as Rows;
}

/** One numbering of sources and labels for rows that came in several windows. */
function joinDicts(dicts: Head["dicts"], rows: Rows, parts: Container[]): Head["dicts"] {
  const join = (name: "source" | "label", col: NumberColumn): string[] => {
    const ids = new Map<string, number>([["", 0]]);
    let at = 0;
    for (const p of parts) {
      const own = p.head.dicts[name];
      const n = p.head.columns.find((c) => c.name === "row.ordinal")?.count ?? 0;
      for (let i = 0; i < n; i++, at++) {
        const text = own[col[at] as number] ?? "";
        let id = ids.get(text);
        if (id === undefined) ids.set(text, (id = ids.size));
        col[at] = id;
      }
    }
    return [...ids.keys()];
  };
  return { ...dicts, source: join("source", rows.source), label: join("label", rows.label) };
}

const EMPTY: Flat = {
  from: new Uint32Array(1), to: new Uint32Array(1), start: new Float64Array(0), end: new Float64Array(0), item: new Int32Array(0), class: new Uint8Array(0),
  pointFrom: new Uint32Array(1), pointTo: new Uint32Array(1), point: new Int32Array(0), orphanFrom: new Uint32Array(1), orphanTo: new Uint32Array(1), orphan: new Int32Array(0),
};

function inPage(order: Uint32Array, page: number, row: number): boolean {
  for (let p = page * PAGE; p < Math.min(order.length, (page + 1) * PAGE); p++) if (order[p] === row) return true;
  return false;
}

function trim<K, V>(map: Map<K, V>, most: number): void {
  for (const k of map.keys()) {
    if (map.size <= most) return;
    map.delete(k);
  }
}

async function container(fetch_: typeof fetch, url: string, signal?: AbortSignal): Promise<Container> {
  const res = await fetch_(url, signal ? { signal } : {});
  if (!res.ok) throw await problem(res, url);
  return decode(new Uint8Array(await res.arrayBuffer()));
}

async function askJSON(fetch_: typeof fetch, url: string, signal?: AbortSignal): Promise<Record<string, unknown>> {
  const res = await fetch_(url, signal ? { signal } : {});
  if (!res.ok) throw await problem(res, url);
  const body = (await res.json()) as Record<string, unknown>;
  return "data" in body && typeof body["data"] === "object" && body["data"] !== null ? (body["data"] as Record<string, unknown>) : body;
}

/** What the server said is wrong; a filter that it cannot read is a QueryError. */
async function problem(res: Response, url: string): Promise<Error> {
  let message = "", code = "";
  try {
    const body = (await res.json()) as { error?: { message?: string; code?: string; hint?: string } | string; message?: string };
    const e = typeof body.error === "object" ? body.error : { message: body.error ?? body.message ?? "", code: "" };
    message = [e.message, "hint" in e ? e.hint : ""].filter(Boolean).join(" · ");
    code = e.code ?? "";
  } catch {
    message = "";
  }
  const path = url.replace(/\?.*/, "");
  if (res.status === 400 && /filter|query/.test(code + message)) return new QueryError(message, 0);
  return new Error(message || `${path} answered ${res.status}`);
}
