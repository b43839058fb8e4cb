// One dump on the screen: its order, where its rows lie, what is under a point. The model holds the view
// that panes share; paint.ts draws a pane.
import { signal } from "@preact/signals";
import { Axis, NO_GAPS, type Gaps } from "./axis";
import type { Colours, LegendEntry, Paint } from "./colours";
import { firstEndingAfter, firstFrom, type FlatOptions } from "./flat";
import { Layout } from "./layout";
import { QueryError, type Query } from "./query";
import type { Slot, TimelineSource, TimelineWindow } from "./source";
import type { NameStats, States } from "./stats";
import { stepBounds } from "./steptime";
import { ORPHAN, POINT, PREFILL, SYNC, VIRTUAL } from "./table";
import type { PaneView, View } from "./view";

export const LABEL = 112, RIGHT = 10, RULER = 20, GAP = 2;

export interface Hit {
  where: "label" | "plot" | "ruler" | "minimap" | "none";
  /** place in the order, row of the dump; -1 none */
  place: number;
  row: number;
  /** item within the row, -1 none */
  item: number;
  /** the segment's class when a segment of the item is under the point, else -1 */
  seg: number;
  /** items of a cluster of points, within the row */
  cluster: number[];
  /** how many points the cluster has in all */
  clustered: number;
  lane: number;
  /** microseconds from head.t0 */
  t: number;
}

export interface Info {
  /** the order has come (or the filter cannot be read): shown says something */
  ready: boolean;
  shown: number;
  matches: number;
  error: string;
  at: number;
  loading: boolean;
  trouble: string;
}

const NO_ROWS = new Uint32Array(0);

export class Pane {
  order: Uint32Array = NO_ROWS;
  /** place of each row of the dump in the order + 1; 0 when it is not shown */
  places: Uint32Array;
  /** rows that match the filter, when matches are only marked */
  marks: Uint8Array | null = null;
  layout: Layout;
  scroll = 0;
  /** what the dumps beside this one reach over, from their origins */
  linked: [number, number] | null = null;
  /** time 0 of rulers, microseconds from head.t0: the step's start, else the first event */
  readonly origin: number;
  width = 0;
  height = 0;
  gapsFound: Gaps | null = null;
  /** when the step's wait for its last samples ends, microseconds from head.t0 */
  waitEnd: number;
  sync: [number, number] | null = null;
  mini: { canvas: HTMLCanvasElement; key: string } | null = null;
  over: { canvas: HTMLCanvasElement; key: string; quick: boolean } | null = null;
  overImage: ImageData | null = null;
  /** keys of what is being rastered, so that it is not asked for twice */
  miniAsked = "";
  generation = 0;
  overAsked = "";
  lanes = new Map<number, string[]>();
  readonly info = signal<Info>({ ready: false, shown: 0, matches: -1, error: "", at: 0, loading: false, trouble: "" });
  readonly stats = signal<NameStats[] | null>(null);
  readonly states = signal<States | null>(null);
  readonly legend = signal<LegendEntry[]>([]);
  /** counts what came from a server; what reads slots outside of the picture reads it */
  readonly arrived = signal(0);
  readonly attempts = signal<number[]>([]);
  /** an order is asked for and not here yet */
  waiting = false;
  private asked = 0;

  constructor(readonly source: TimelineSource, readonly index: number) {
    this.places = new Uint32Array(source.rows.n);
    this.layout = new Layout(NO_ROWS, 11, 11, null);
    const bounds = stepBounds(source.head.step, source.head.t0);
    const [a, b] = source.extent;
    this.origin = bounds && bounds[0] >= a && bounds[0] <= b ? bounds[0] : a;
    this.waitEnd = bounds && bounds[1] > a && bounds[1] <= b ? bounds[1] : b;
    this.findSync();
  }

  /** Weight sync that the dump marks is a band over all rows; waiting ends where it begins. */
  private findSync(): void {
    const w = this.source.local ? this.source.window({ query: { filter: "", sort: "row", desc: false, group: false, attempt: -1 }, order: Uint32Array.of(0), from: 0, to: 1, t0: 0, t1: 1, px: 1, open: [], flat: { attempt: -1, opens: true } }) : null;
    const t = this.source.rows.n > 0 ? w?.slot(0)?.table : undefined;
    if (!t) return;
    let a = Infinity, b = -Infinity;
    for (let i = t.class.indexOf(SYNC); i >= 0; i = t.class.indexOf(SYNC, i + 1)) {
      a = Math.min(a, t.start[i] as number);
      b = Math.max(b, (t.start[i] as number) + (t.dur[i] as number));
    }
    if (b > a && b >= this.source.extent[0] + 0.5 * (this.source.extent[1] - this.source.extent[0])) {
      this.sync = [a, b];
      this.waitEnd = Math.min(this.waitEnd, a);
    }
  }

  /** Rasters are made anew: the rows or the colours are others. */
  forget(): void {
    this.generation++;
    this.miniAsked = this.overAsked = "";
  }

  /** First and last instant, from the origin. */
  get ends(): [number, number] {
    const [a, b] = this.source.extent;
    return [a - this.origin, Math.max(a + 1, b) - this.origin];
  }
  /** pixels of the plot */
  get plot(): number {
    return Math.max(1, this.width - LABEL - RIGHT);
  }
  get miniH(): number {
    return this.height < 260 ? 40 : 96;
  }
  /** where the rows begin */
  get top(): number {
    return this.miniH + RULER + GAP;
  }
  get body(): number {
    return Math.max(0, this.height - this.top);
  }

  gaps(v: View): Gaps {
    return v.gaps && this.gapsFound ? this.gapsFound : NO_GAPS;
  }

  /** The whole of the dump (of the longest, when axes are linked) with a little room, as times from the origin. */
  whole(): [number, number] {
    const [a, b] = this.linked ?? this.ends;
    const pad = (b - a) * 0.01;
    return [a - pad, b + pad];
  }

  /** The window of a view, times from the origin. */
  window(v: View): [number, number] {
    return v.t0 === null || v.t1 === null ? this.whole() : [v.t0, v.t1];
  }

  axis(v: View): Axis {
    const [a, b] = this.window(v);
    return new Axis(a + this.origin, b + this.origin, this.plot, this.gaps(v));
  }

  flatOptions(v: View): FlatOptions {
    return { attempt: v.attempt >= 0 && v.only ? v.attempt : -1, opens: v.opens };
  }

  query(v: View): Query {
    return { filter: v.mark ? "" : v.filter, sort: v.sort, desc: v.desc, group: v.group, attempt: v.only ? v.attempt : -1 };
  }

  pv(v: View): PaneView {
    return v.panes[this.index] ?? { top: 0, row: -1, item: -1, open: [] };
  }

  rowH(v: View): number {
    if (v.rowH > 0) return v.rowH;
    const n = Math.max(1, this.order.length);
    return Math.min(28, this.body / n);
  }

  /** Rows so low are drawn as a raster. */
  dense(v: View): boolean {
    return this.rowH(v) < 4;
  }

  isOpen(v: View, row: number): boolean {
    return v.expanded !== this.pv(v).open.includes(row);
  }

  relayout(v: View): void {
    const h = this.rowH(v);
    const { lanes } = this.source.rows;
    const open = new Set(this.pv(v).open);
    const some = h >= 4 && (v.expanded || open.size > 0);
    this.layout = new Layout(this.order, h, Math.max(11, Math.min(16, h)), some ? (r) => (v.expanded !== open.has(r) ? (lanes[r] as number) : 0) : null);
    this.clampScroll();
  }

  clampScroll(): void {
    this.scroll = Math.max(0, Math.min(this.scroll, this.layout.height - this.body));
  }

  /** Where the picture begins, as a place in the order with its fraction, which outlives other heights. */
  place(): number {
    const p = Math.max(0, Math.min(this.order.length, this.layout.at(this.scroll)));
    const a = this.layout.top(p), h = this.layout.top(p + 1) - a;
    return h > 0 ? Math.round((p + (this.scroll - a) / h) * 1000) / 1000 : p;
  }

  topAt(place: number): number {
    const p = Math.floor(place);
    const a = this.layout.top(p);
    return a + (place - p) * (this.layout.top(p + 1) - a);
  }

  /** Asks for the order of a view; done is called once it is there (or the filter cannot be read). */
  reorder(v: View, done: () => void): void {
    const mine = ++this.asked;
    const settle = (order: Uint32Array, marks: Uint8Array | null) => {
      if (mine !== this.asked) return;
      this.waiting = false;
      this.order = order;
      this.marks = marks;
      this.places.fill(0);
      for (let p = 0; p < order.length; p++) this.places[order[p] as number] = p + 1;
      let matches = -1;
      if (v.filter) {
        matches = 0;
        if (marks) for (let p = 0; p < order.length; p++) matches += marks[order[p] as number] as number;
        else matches = order.length;
      }
      this.info.value = { ...this.info.value, ready: true, shown: order.length, matches, error: "", loading: false };
      this.forget();
      this.relayout(v);
      done();
    };
    const wrong = (err: unknown) => {
      if (mine !== this.asked || (err instanceof Error && err.name === "AbortError")) return;
      // What was shown stays; the field says what cannot be read.
      this.waiting = false;
      this.info.value = { ...this.info.value, ready: true, error: err instanceof QueryError || err instanceof Error ? err.message : String(err), matches: -1, loading: false };
      done();
    };
    try {
      const order = this.source.order(this.query(v));
      const marks = v.mark && v.filter ? this.source.find(v.filter) : null;
      if (order instanceof Promise || marks instanceof Promise) {
        this.waiting = true;
        this.info.value = { ...this.info.value, loading: true };
        Promise.all([order, marks]).then(([o, m]) => settle(o, m), wrong);
      } else settle(order, marks);
    } catch (err) {
      wrong(err);
    }
  }

  /** The rows that are on the screen, one more at each end. */
  visible(): [number, number] {
    const n = this.order.length;
    const a = Math.max(0, this.layout.at(this.scroll));
    const b = Math.min(n, this.layout.at(this.scroll + this.body) + 1);
    return [Math.min(a, n), b];
  }

  slots(v: View): TimelineWindow {
    const [from, to] = this.visible();
    const [a, b] = this.window(v);
    const open: number[] = [];
    for (let p = from; p < to; p++) if (this.isOpen(v, this.order[p] as number) && !this.dense(v)) open.push(this.order[p] as number);
    const { row } = this.pv(v);
    if (row >= 0 && !open.includes(row)) open.push(row);
    return this.source.window({ query: this.query(v), order: this.order, from, to, t0: a + this.origin, t1: b + this.origin, px: this.plot, open, flat: this.flatOptions(v) });
  }

  /** The slot of one row of the dump, if it is shown and here. */
  slotOf(v: View, row: number): Slot | null {
    const place = (this.places[row] ?? 0) - 1;
    if (this.source.local) {
      // Also rows that the filter hides can be read.
      const w = this.source.window({ query: this.query(v), order: Uint32Array.of(row), from: 0, to: 1, t0: 0, t1: 1, px: 1, open: [], flat: this.flatOptions(v) });
      return row < this.source.rows.n ? w.slot(0) : null;
    }
    if (place < 0) return null;
    const [a, b] = this.window(v);
    return this.source.window({ query: this.query(v), order: this.order, from: place, to: place + 1, t0: a + this.origin, t1: b + this.origin, px: this.plot, open: [row], flat: this.flatOptions(v) }).slot(place);
  }

  /** Names of a row's lanes: of what begins each. */
  laneNames(slot: Slot, row: number): string[] {
    const known = this.lanes.get(row);
    if (known) return known;
    const { table: t, at } = slot;
    const names = this.source.head.dicts.name;
    const out: string[] = [];
    for (let i = t.itemFrom[at] as number, e = t.itemFrom[at + 1] as number; i < e; i++) {
      const l = t.lane[i] as number;
      if (t.state[i] === POINT || t.state[i] === ORPHAN || out[l] !== undefined || l > 4000) continue;
      const name = names[t.name[i] as number] ?? "";
      // The engine's own prefix says nothing here, and room is short.
      out[l] = ((t.flags[i] as number) & VIRTUAL) !== 0 ? (t.class[i] === PREFILL ? "[P] prefill" : "[D] decode") : name.replace(/^sglang_/, "");
    }
    if (this.source.local) {
      this.lanes.set(row, out);
      if (this.lanes.size > 512) for (const k of this.lanes.keys()) if (this.lanes.size > 256) this.lanes.delete(k);
    }
    return out;
  }

  /** What lies under a point of the canvas. */
  hit(v: View, x: number, y: number, colours: Colours, paint: Paint): Hit {
    const none: Hit = { where: "none", place: -1, row: -1, item: -1, seg: -1, cluster: [], clustered: 0, lane: -1, t: 0 };
    const axis = this.axis(v);
    none.t = axis.t(x - LABEL);
    if (y < this.miniH) return { ...none, where: "minimap" };
    if (y < this.top) return { ...none, where: "ruler" };
    const at = y - this.top + this.scroll;
    const place = this.layout.at(at);
    if (place < 0 || place >= this.order.length) return { ...none, where: x < LABEL ? "label" : "plot" };
    const row = this.order[place] as number;
    const lane = this.layout.laneAt(place, at);
    const out: Hit = { ...none, where: x < LABEL ? "label" : "plot", place, row, lane };
    if (x < LABEL || x > LABEL + this.plot) return out;
    const slot = this.slots(v).slot(place);
    if (!slot) return out;
    const { table: t, flat: f } = slot;
    const r = slot.at;
    const a = t.itemFrom[r] as number;
    const X = (time: number) => axis.x(time) + LABEL;
    // Points first: they are small.
    if (!this.dense(v)) {
      for (const [list, lo, hi, on] of [[f.orphan, f.orphanFrom[r], f.orphanTo[r], v.orphans], [f.point, f.pointFrom[r], f.pointTo[r], v.points]] as [Int32Array, number, number, boolean][]) {
        if (!on) continue;
        const from = firstFrom(t.start, list, lo, hi, axis.t(x - LABEL - 6));
        for (let k = from; k < hi; k++) {
          const i = list[k] as number;
          const px = X(t.start[i] as number);
          if (px > x + 6) break;
          if (lane >= 0 && t.lane[i] !== lane) continue;
          out.clustered += t.count[i] as number;
          if (out.cluster.length < 64) out.cluster.push(i - a);
        }
        if (out.cluster.length > 0) {
          out.item = out.cluster[0] as number;
          return out;
        }
      }
    }
    const time = none.t;
    const near = axis.scale > 0 ? 1.5 / axis.scale : 0;
    if (lane < 0) {
      const hi = f.to[r] as number;
      let best = -1;
      for (let k = firstEndingAfter(f.end, f.from[r] as number, hi, time - near); k < hi && (f.start[k] as number) <= time + near; k++) {
        if (paint.alpha[colours.of(t, f.item[k] as number, f.class[k] as number, row)] === 0) continue;
        if (best < 0 || distance(f.start[k] as number, f.end[k] as number, time) < distance(f.start[best] as number, f.end[best] as number, time)) best = k;
        if ((f.start[k] as number) > time) break;
      }
      if (best >= 0) {
        out.item = (f.item[best] as number) - a;
        const cls = f.class[best] as number;
        if (cls !== t.class[f.item[best] as number]) out.seg = cls;
      }
      return out;
    }
    let best = -1;
    for (let i = a, e = t.itemFrom[r + 1] as number; i < e; i++) {
      if (t.lane[i] !== lane || t.state[i] === POINT || t.state[i] === ORPHAN) continue;
      const s = t.start[i] as number, end = s + (t.dur[i] as number);
      if (s > time + near || end < time - near) continue;
      if (best < 0 || distance(s, end, time) < distance(t.start[best] as number, (t.start[best] as number) + (t.dur[best] as number), time)) best = i;
    }
    if (best >= 0) {
      out.item = best - a;
      for (let s = t.segFrom[best] as number, e = t.segFrom[best + 1] as number; s < e; s++) {
        const s0 = t.segStart[s] as number;
        if (time >= s0 && time <= s0 + (t.segDur[s] as number)) out.seg = t.segClass[s] as number;
      }
    }
    return out;
  }
}

const distance = (a: number, b: number, t: number) => (t < a ? a - t : t > b ? t - b : 0);
