// Where a timeline's data come from: embedded columns of a saved page (here), or windows over HTTP
// (http.ts). What is at hand is answered at once; what is not comes as a promise, or later by subscribe.
import type { Axis } from "./axis";
import { gapsOf, type Gaps } from "./axis";
import { Colours, legend, type ColourBy, type LegendEntry, type Paint } from "./colours";
import { decode, type Container, type Head } from "./container";
import { Flats, type Flat, type FlatOptions } from "./flat";
import { perfetto } from "./perfetto";
import { Index, parse, type Query, type Sort } from "./query";
import { raster } from "./raster";
import { rangeStatsSteps, statesAt, type NameStats, type States } from "./stats";
import { extentOf, GROUP, readAll, readRows, readTable, type Rows, type Table } from "./table";

export type Now<T> = T | Promise<T>;

/** A row of a table, with the same row flattened. */
export interface Slot {
  table: Table;
  flat: Flat;
  /** the row's place in the table */
  at: number;
}

export interface WindowAsk {
  query: Query;
  order: Uint32Array;
  /** places in the order */
  from: number;
  to: number;
  t0: number;
  t1: number;
  /** pixels of [t0, t1] */
  px: number;
  /** rows of the dump that are expanded */
  open: number[];
  flat: FlatOptions;
}

export interface TimelineWindow {
  /** the row at a place of the order; null while it is not here yet */
  slot: (place: number) => Slot | null;
  /** whether all that was asked for is here in its full detail */
  complete: boolean;
}

export interface RasterAsk {
  query: Query;
  order: Uint32Array;
  from: number;
  to: number;
  axis: Axis;
  height: number;
  colours: Colours;
  paint: Paint;
  flat: FlatOptions;
  /** for a frame in motion: good enough */
  quick?: boolean;
  /** in pieces, with frames between them, until it is no more wanted */
  wanted?: () => boolean;
}

export interface Sample {
  /** what the columns do not hold: reward, metadata, problems and so on, as JSON has it */
  detail: Record<string, unknown>;
  /** attributes of each item: [start, end] or null */
  attrs: (unknown[] | null)[];
}

export interface Text {
  prompt: string | null;
  response: string | null;
  note: string;
}

/** Answers all that a timeline shows of one dump. Errors are rejections or throws with words for the reader. */
export interface TimelineSource {
  readonly head: Head;
  readonly rows: Rows;
  /** first and last instant, microseconds from head.t0 */
  readonly extent: [number, number];
  readonly local: boolean;
  /** rows in order; throws or rejects with a QueryError when the filter cannot be read */
  order(q: Query): Now<Uint32Array>;
  /** for each row of the dump, whether it matches the filter */
  find(filter: string): Now<Uint8Array>;
  window(ask: WindowAsk): TimelineWindow;
  /** RGBA of the rows; null when it comes later (subscribe) */
  raster(ask: RasterAsk, out: Uint8ClampedArray): boolean | Promise<boolean>;
  stats(q: Query, order: Uint32Array, t0: number, t1: number): Now<NameStats[]>;
  states(q: Query, order: Uint32Array, t: number, flat: FlatOptions): Now<States>;
  colours(by: ColourBy): Colours;
  legend(c: Colours): Now<LegendEntry[]>;
  attempts(): Now<number[]>;
  /** the number a row is sorted by; NaN when it has none or it is not at hand */
  key(sort: Sort, row: number): number;
  gaps(): Now<Gaps>;
  sample(row: number): Promise<Sample>;
  text(row: number): Promise<Text>;
  perfetto(q: Query, order: Uint32Array, t0: number, t1: number): Promise<Blob>;
  /** a median over all requests of the dump, for "vs p50"; null when it is not known here */
  medians(): Float64Array | null;
  subscribe(changed: () => void): () => void;
  close(): void;
}

const decoder = new TextDecoder();

/** Lets frames and events go first. */
const pause = () => new Promise<void>((next) => setTimeout(next));

/** All columns of a dump, in the page. */
export class LocalSource implements TimelineSource {
  readonly local = true;
  readonly head: Head;
  readonly rows: Rows;
  readonly table: Table;
  readonly extent: [number, number];
  readonly index: Index;
  private flats: { key: string; flat: Flats }[] = [];
  private colourSets = new Map<ColourBy, Colours>();
  private blobs = new Map<number, Promise<unknown>>();
  private idle: Gaps | null = null;
  private p50: Float64Array | null = null;
  private counted: { key: string; stats: Now<NameStats[]> } | null = null;

  constructor(private container: Container) {
    this.head = container.head;
    this.rows = readRows(container);
    this.table = readTable(container);
    this.extent = extentOf(container.head);
    this.index = new Index(this.head, this.rows, this.table);
  }

  /** Reads what no picture needs, with frames between, and lets go of the container's columns. Rejects when it is damaged. */
  async settle(): Promise<void> {
    let until = performance.now() + 8;
    for (const _ of readAll(this.table)) {
      if (performance.now() < until) continue;
      await pause();
      until = performance.now() + 8;
    }
    this.container.columns.clear(); // what was converted need not stay twice
  }

  /** Of the bytes of a container; rest as in decode. */
  static async open(bytes: Uint8Array, rest: (() => Promise<Uint8Array>) | null = null): Promise<LocalSource> {
    return new LocalSource(await decode(bytes, rest));
  }

  /** The bars of all rows, each flattened once it is needed. */
  flat(o: FlatOptions): Flats {
    const key = `${o.attempt} ${o.opens}`;
    const found = this.flats.find((f) => f.key === key);
    if (found) return found.flat;
    const flat = new Flats(this.table, o);
    this.flats.unshift({ key, flat });
    this.flats.length = Math.min(this.flats.length, 2);
    return flat;
  }

  order(q: Query): Now<Uint32Array> {
    const mask = this.find(q.filter);
    return mask instanceof Promise ? mask.then((m) => this.index.order(q, m)) : this.index.order(q, mask);
  }

  find(filter: string): Now<Uint8Array> {
    const terms = parse(filter);
    if (!terms.some((t) => t.kind === "field" && t.field.startsWith("attr."))) return this.index.mask(terms);
    return this.allAttrs().then((lookup) => this.index.mask(terms, lookup));
  }

  private async allAttrs(): Promise<(row: number) => unknown[] | null> {
    const parts = await Promise.all(this.head.attrs.map(async (b) => ({ ...b, data: (await this.json(b.blob)) as unknown[] })));
    return (row) => {
      const b = parts.find((p) => row >= p.from && row < p.from + p.rows);
      return (b?.data[row - b.from] as unknown[] | null) ?? null;
    };
  }

  window(ask: WindowAsk): TimelineWindow {
    const flat = this.flat(ask.flat);
    const { order } = ask;
    const slot: Slot = { table: this.table, flat, at: 0 };
    return {
      complete: true,
      slot: (place) => {
        slot.at = order[place] as number;
        flat.row(slot.at);
        return slot;
      },
    };
  }

  raster(ask: RasterAsk, out: Uint8ClampedArray): boolean | Promise<boolean> {
    const flat = this.flat(ask.flat);
    const input = { table: this.table, flat, order: ask.order, from: ask.from, to: ask.to, axis: ask.axis, height: ask.height, colours: ask.colours, paint: ask.paint, ...(ask.quick ? { most: 4 } : {}) };
    const { wanted } = ask;
    if (flat.complete && !wanted) {
      raster(input, out);
      return true;
    }
    return (async () => {
      await this.inPieces(flat);
      if (!wanted) {
        raster(input, out);
        return true;
      }
      for (let y = 0; y < ask.height; ) {
        await pause();
        if (!wanted()) return false;
        const until = performance.now() + 8;
        do {
          const to = Math.min(ask.height, y + 4);
          raster(input, out, y, to);
          y = to;
        } while (y < ask.height && performance.now() < until);
      }
      return true;
    })();
  }

  /** Of many items counted with frames between; rejects when others are asked for meanwhile. */
  stats(q: Query, order: Uint32Array, t0: number, t1: number): Now<NameStats[]> {
    // In whatever order rows stand, the numbers are the same.
    const key = JSON.stringify([q.filter, q.attempt, t0, t1]);
    if (this.counted?.key === key) return this.counted.stats;
    const steps = rangeStatsSteps(this.table, order, t0, t1, this.head.dicts.name.length, q.attempt);
    const mine = (this.counted = { key, stats: [] as Now<NameStats[]> });
    const go = (ms: number): NameStats[] | null => {
      for (const until = performance.now() + ms; performance.now() < until; ) {
        const { done, value } = steps.next();
        if (done) return (mine.stats = value);
      }
      return null;
    };
    const later = async (): Promise<NameStats[]> => {
      for (;;) {
        await pause();
        if (this.counted !== mine) throw new DOMException("other numbers are asked for", "AbortError");
        const found = go(8);
        if (found) return found;
      }
    };
    const found = go(4);
    if (found) return found;
    const made = (mine.stats = later());
    made.catch(() => undefined);
    return made;
  }

  states(_: Query, order: Uint32Array, t: number, flat: FlatOptions): States {
    return statesAt(this.rows, this.flat(flat).all(), order, t);
  }

  colours(by: ColourBy): Colours {
    let c = this.colourSets.get(by);
    if (!c) this.colourSets.set(by, (c = new Colours(by, this.head, this.rows, this.table)));
    return c;
  }

  legend(c: Colours): LegendEntry[] {
    return legend(c, this.table, this.rows);
  }

  attempts(): number[] {
    return this.index.attemptValues();
  }

  key(sort: Sort, row: number): number {
    return sort === "status" ? NaN : (this.index.number(sort)[row] as number);
  }

  gaps(): Now<Gaps> {
    if (this.idle) return this.idle;
    const flat = this.flat({ attempt: -1, opens: true });
    return flat.complete ? this.findGaps(flat) : this.inPieces(flat).then(() => this.findGaps(flat));
  }

  /** Flattens all rows, with frames before and between the pieces. */
  private async inPieces(flat: Flats): Promise<void> {
    do await pause();
    while (!flat.some(12));
  }

  private findGaps(flat: Flats): Gaps {
    const [a, b] = this.extent;
    const n = 4096;
    const covered = new Uint8Array(n);
    const k = n / (b - a);
    const { state } = this.table;
    if (b > a) {
      for (let s = 0; s < flat.size; s++) {
        // A holder or a span that was never closed spans gaps, and says nothing about work in them.
        const item = flat.item[s] as number;
        if (flat.class[s] === GROUP || state[item] !== 0) continue;
        const x0 = Math.max(0, Math.floor(((flat.start[s] as number) - a) * k)), x1 = Math.min(n - 1, Math.floor(((flat.end[s] as number) - a) * k));
        covered.fill(1, x0, x1 + 1);
      }
    }
    return (this.idle = gapsOf(covered, a, b));
  }

  medians(): Float64Array {
    if (this.p50) return this.p50;
    const { req } = this.table;
    const median = (col: Float64Array) => {
      const v = col.filter((x) => !Number.isNaN(x)).sort();
      return v.length === 0 ? NaN : (v[(v.length - 1) >> 1] as number);
    };
    return (this.p50 = Float64Array.from([...req.phase, req.queue, req.e2e], median));
  }

  /** A blob of JSON, kept while it is among the last few asked for. */
  private json(blob: number): Promise<unknown> {
    const known = this.blobs.get(blob);
    if (known) return known;
    const made = this.container.blob(blob).then((b) => JSON.parse(decoder.decode(b)) as unknown);
    this.blobs.set(blob, made);
    made.catch(() => this.blobs.delete(blob));
    for (const old of this.blobs.keys()) if (this.blobs.size > 8) this.blobs.delete(old);
    return made;
  }

  async sample(row: number): Promise<Sample> {
    const block = async (list: { from: number; rows: number; blob: number }[] | undefined): Promise<unknown> => {
      const b = list?.find((x) => row >= x.from && row < x.from + x.rows);
      return b ? ((await this.json(b.blob)) as unknown[])[row - b.from] : null;
    };
    const [attrs, detail] = await Promise.all([block(this.head.attrs), block(this.head.details)]);
    return {
      attrs: Array.isArray(attrs) ? (attrs as (unknown[] | null)[]) : [],
      detail: detail !== null && typeof detail === "object" && !Array.isArray(detail) ? (detail as Record<string, unknown>) : {},
    };
  }

  async text(row: number): Promise<Text> {
    const ordinal = this.rows.ordinal[row] as number;
    for (const b of this.head.texts) {
      const k = b.rows.indexOf(ordinal);
      if (k < 0) continue;
      const list = (await this.json(b.blob)) as Record<string, unknown>[];
      const t = list[k] ?? {};
      const str = (v: unknown) => (v === null || v === undefined ? null : typeof v === "string" ? v : JSON.stringify(v, null, 1));
      return { prompt: str(t["prompt"]), response: str(t["response"]), note: "" };
    }
    return { prompt: null, response: null, note: "The text of this sample is not in the page: rollscope view DUMP reads it from the dump." };
  }

  perfetto(_: Query, order: Uint32Array, t0: number, t1: number): Promise<Blob> {
    return Promise.resolve(perfetto(this.head, this.rows, this.table, order, t0, t1));
  }

  subscribe(): () => void {
    return () => undefined;
  }

  close(): void {
    this.flats = [];
    this.blobs.clear();
  }
}
