// What a person does with a timeline: the view that all panes share, and everything that changes it. Draws
// at most once a frame; numbers and the URL follow when things have come to rest.
import { signal, type Signal } from "@preact/signals";
import { squeeze, unsqueeze, clockTime, length } from "./axis";
import type { Colours, Paint } from "./colours";
import { paintOf, readInk, type Ink } from "./ink";
import { Pane, type Hit } from "./pane";
import { paintPane } from "./paint";
import type { TimelineSource } from "./source";
import { ROW_CARRIED, ROW_HELD } from "./table";
import { newPane, ROW_MAX, ROW_MIN, type PaneView, type View } from "./view";
import { rowSentence } from "./words";
import { grouped } from "../format/number";

const REST_MS = 140;
/** how long the pointer stays before a server is asked what rows do there */
const POINT_MS = 120;
const LEAST_US = 10;
const MOTION = new Set(["t0", "t1", "from", "to"]);

export interface Hover {
  pane: number;
  hit: Hit;
  /** of the canvas */
  x: number;
  y: number;
}

export class Model {
  /** the view as of the last rest; what components read */
  readonly view: Signal<View>;
  /** the view at this moment; what is drawn */
  now: View;
  readonly panes: Pane[];
  readonly active = signal(0);
  readonly hover = signal<Hover | null>(null);
  readonly measuring = signal(false);
  /** what the live region says */
  readonly spoken = signal("");
  readonly note = signal("");
  /** counts the times that things came to rest; what shows scroll positions reads it */
  readonly rests = signal(0);
  /** milliseconds of frames, newest last; for the benchmark and the tests */
  readonly frames: number[] = [];
  private canvases: (HTMLCanvasElement | null)[] = [];
  private inks: (Ink | null)[] = [];
  private paints: { key: string; colours: Colours; paint: Paint }[] = [];
  private theme = 0;
  private frame = 0;
  private rest: ReturnType<typeof setTimeout> | undefined;
  private moved = 0;
  private off: (() => void)[] = [];
  private started: boolean[] = [];
  private statesAsked: number[] = [];
  private pointed: ReturnType<typeof setTimeout> | undefined;

  constructor(sources: TimelineSource[], start: View, private onView: (v: View) => void) {
    const panes = sources.map((_, i) => start.panes[i] ?? newPane());
    this.now = { ...start, panes };
    this.view = signal(this.now);
    this.panes = sources.map((s, i) => new Pane(s, i));
    const linked: [number, number] = [Math.min(...this.panes.map((p) => p.ends[0])), Math.max(...this.panes.map((p) => p.ends[1]))];
    for (const p of this.panes) {
      p.linked = linked;
      this.off.push(p.source.subscribe(() => {
        p.lanes.clear();
        p.arrived.value++;
        const trouble = "trouble" in p.source ? (p.source as unknown as { trouble: () => string }).trouble() : "";
        if (trouble !== p.info.value.trouble) p.info.value = { ...p.info.value, trouble };
        this.redraw();
      }));
      this.needGaps(p);
      // Rows first; what counts over all items comes after the first picture.
      const later = setTimeout(() => {
        settle(p.source.attempts(), (a) => (p.attempts.value = a));
        this.legendOf(p);
      }, 30);
      this.off.push(() => clearTimeout(later));
      p.reorder(this.now, () => this.ordered(p));
    }
  }

  dispose(): void {
    for (const f of this.off) f();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    clearTimeout(this.pointed);
  }

  get pane(): Pane {
    return this.panes[this.active.value] ?? (this.panes[0] as Pane);
  }

  // ---- the view ----------------------------------------------------------------------------------

  set(patch: Partial<View>): void {
    const old = this.now;
    const v = { ...old, ...patch };
    this.now = v;
    // While the window or a range is moved, only the picture follows; what reads the view does at rest.
    if (Object.keys(patch).some((k) => !MOTION.has(k))) this.view.value = v;
    const changed = (...keys: (keyof View)[]) => keys.some((k) => patch[k] !== undefined && patch[k] !== old[k]);
    if (changed("gaps")) for (const p of this.panes) this.needGaps(p, true);
    if (changed("colour")) for (const p of this.panes) this.legendOf(p);
    if (changed("filter", "mark", "sort", "desc", "group", "attempt", "only")) {
      for (const p of this.panes) p.reorder(v, () => this.ordered(p));
    } else if (changed("rowH", "expanded", "panes")) {
      for (const p of this.panes) p.relayout(v);
    }
    if (changed("opens", "attempt", "only")) for (const p of this.panes) p.forget();
    this.redraw();
  }

  setPane(i: number, patch: Partial<PaneView>): void {
    this.set({ panes: this.now.panes.map((p, k) => (k === i ? { ...p, ...patch } : p)) });
  }

  /** Looks for idle gaps: when somebody asks, and by itself where samples of an earlier step may have left some. */
  private needGaps(p: Pane, asked = false): void {
    if (!this.now.gaps || p.gapsFound || (!asked && !p.source.rows.flags.some((f) => (f & ROW_CARRIED) !== 0))) return;
    settle(p.source.gaps(), (g) => {
      p.gapsFound = g;
      if (asked) this.say(g.from.length === 0 ? "there are no idle gaps to squeeze" : `${g.from.length} idle gaps squeezed`);
      if (g.from.length === 0) return;
      p.forget();
      this.redraw();
    });
  }

  private legendOf(p: Pane): void {
    settle(p.source.legend(p.source.colours(this.now.colour)), (l) => (p.legend.value = l));
  }

  private ordered(p: Pane): void {
    const v = this.now;
    if (!this.started[p.index] && p.height > 0) this.begin(p);
    const info = p.info.value;
    if (info.error) this.say(info.error);
    else if (v.filter) this.say(`${grouped(info.matches, 0)} of ${grouped(p.source.rows.n, 0)} rows match`);
    p.clampScroll();
    this.redraw();
  }

  /** A view from outside: a link, the way back. Rows scroll to where it says once their order is here. */
  show(v: View): void {
    this.started = [];
    this.set(v);
    for (const p of this.panes) if (!this.started[p.index] && !p.waiting && p.height > 0) this.begin(p);
  }

  /** Once the size is known: to where the URL says; without a place, to the selected row. */
  private begin(p: Pane): void {
    this.started[p.index] = true;
    const v = this.now;
    p.relayout(v);
    const { top, row } = p.pv(v);
    p.scroll = p.topAt(top);
    p.clampScroll();
    if (top === 0 && row >= 0) this.reveal(p, row);
  }

  say(text: string): void {
    this.spoken.value = text;
  }

  // ---- drawing -----------------------------------------------------------------------------------

  attach(i: number, canvas: HTMLCanvasElement | null): void {
    this.canvases[i] = canvas;
    this.inks[i] = null;
  }

  resize(i: number, width: number, height: number): void {
    const p = this.panes[i], c = this.canvases[i];
    if (!p || !c || width <= 0 || height <= 0) return;
    const px = devicePixelRatio || 1;
    p.width = width;
    p.height = height;
    c.width = Math.round(width * px);
    c.height = Math.round(height * px);
    this.inks[i] = null;
    p.forget();
    p.relayout(this.now);
    if (!this.started[i] && !p.waiting && p.order.length > 0) this.begin(p);
    this.paintNow(i);
    this.redraw();
  }

  /** Colours are read again: the theme changed. */
  retheme(): void {
    this.theme++;
    this.inks = [];
    this.paints = [];
    for (const p of this.panes) p.forget();
    this.redraw();
  }

  ink(i: number): Ink | null {
    const c = this.canvases[i];
    if (!c) return null;
    return (this.inks[i] ??= readInk(c));
  }

  paintFor(p: Pane): { key: string; colours: Colours; paint: Paint } | null {
    const ink = this.ink(p.index);
    if (!ink) return null;
    const v = this.now;
    const key = `${v.colour} ${v.lit.join(".")} ${v.hidden.join(".")} ${this.theme} ${v.opens} ${v.only ? v.attempt : -1}`;
    const known = this.paints[p.index];
    if (known?.key === key) return known;
    const colours = p.source.colours(v.colour);
    return (this.paints[p.index] = { key, colours, paint: paintOf(colours, ink, new Set(v.lit), new Set(v.hidden)) });
  }

  redraw(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.panes.forEach((_, i) => this.paintNow(i));
    });
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.rested(), REST_MS);
  }

  private paintNow(i: number): void {
    const p = this.panes[i], c = this.canvases[i], ink = this.ink(i);
    const ctx = c?.getContext("2d", { alpha: false });
    if (!p || !ctx || !ink || p.width === 0) return;
    const set = this.paintFor(p);
    if (!set) return;
    const from = performance.now();
    paintPane({ ctx, pane: p, view: this.now, ink, colours: set.colours, paint: set.paint, paintKey: set.key, quick: from - this.moved < REST_MS, again: () => this.redraw() });
    if (this.frames.length === 0) performance.mark("rollscope.drawn"); // as the marks of viewer/main.tsx
    this.frames.push(performance.now() - from);
    if (this.frames.length > 2000) this.frames.splice(0, 1000);
  }

  /** Things have come to rest: full detail, numbers of the range, the URL. */
  private rested(): void {
    const v = this.now;
    this.panes.forEach((p, i) => {
      if (p.over?.quick) this.paintNow(i);
      const [a, b] = this.range(p);
      if (v.tab === "range") {
        try {
          settle(p.source.stats(p.query(v), p.order, a, b), (s) => (p.stats.value = s));
        } catch (err) {
          this.note.value = String(err);
        }
      }
    });
    this.stateCounts();
    const panes = v.panes.map((pv, i) => {
      const p = this.panes[i];
      const top = p && p.height > 0 && this.started[i] ? p.place() : pv.top;
      return top === pv.top ? pv : { ...pv, top };
    });
    if (panes.some((p, i) => p !== v.panes[i])) this.now = { ...v, panes };
    this.view.value = this.now;
    this.rests.value++;
    this.onView(this.now);
  }

  /** The range that numbers are about, microseconds from head.t0: the selected one, else what is seen. */
  range(p: Pane): [number, number] {
    const v = this.now;
    const [a, b] = v.from !== null && v.to !== null ? [Math.min(v.from, v.to), Math.max(v.from, v.to)] : p.window(v);
    return [a + p.origin, b + p.origin];
  }

  /** The pointer moved: what rows do there is counted at once, or by a server once it stays. */
  point(p: Pane): void {
    if (this.now.cursor !== null) return;
    if (p.source.local) return this.stateCounts();
    clearTimeout(this.pointed);
    this.pointed = setTimeout(() => this.stateCounts(), POINT_MS);
  }

  /** What the rows are doing at the cursor, or under the pointer when there is none. */
  stateCounts(): void {
    const v = this.now;
    const h = this.hover.value;
    clearTimeout(this.pointed);
    for (const p of this.panes) {
      const mine = (this.statesAsked[p.index] ?? 0) + 1;
      this.statesAsked[p.index] = mine;
      const t = v.cursor !== null ? v.cursor : h && h.pane === p.index && h.hit.where !== "none" ? h.hit.t - p.origin : null;
      if (t === null) {
        p.states.value = null;
        continue;
      }
      settle(p.source.states(p.query(v), p.order, t + p.origin, p.flatOptions(v)), (s) => {
        if (mine === this.statesAsked[p.index]) p.states.value = s;
      });
    }
  }

  // ---- moving ------------------------------------------------------------------------------------

  private motion(): void {
    this.moved = performance.now();
  }

  /** Sets the window, kept within the dump; as long as all of it, it is all of it. */
  private window(p: Pane, u0: number, u1: number): void {
    const g = p.gaps(this.now);
    const [wa, wb] = p.whole();
    const lo = squeeze(g, wa + p.origin), hi = squeeze(g, wb + p.origin);
    let len = Math.max(LEAST_US, u1 - u0);
    if (len >= (hi - lo) * 0.9999) return this.set({ t0: null, t1: null });
    len = Math.min(len, hi - lo);
    let a = Math.min(Math.max(u0, lo), hi - len);
    if (!Number.isFinite(a)) a = lo;
    this.set({ t0: unsqueeze(g, a) - p.origin, t1: unsqueeze(g, a + len) - p.origin });
  }

  private shown(p: Pane): [number, number] {
    const g = p.gaps(this.now);
    const [a, b] = p.window(this.now);
    return [squeeze(g, a + p.origin), squeeze(g, b + p.origin)];
  }

  /** factor < 1 zooms in; share is where it stays put, 0 left to 1 right. */
  zoom(factor: number, share = this.anchor()): void {
    this.motion();
    const p = this.pane;
    const [a, b] = this.shown(p);
    const len = Math.max(LEAST_US, (b - a) * factor);
    const at = a + (b - a) * share;
    this.window(p, at - len * share, at - len * share + len);
  }

  /** Where zooming stays put: at the pointer, else the cursor when it is seen, else the middle. */
  private anchor(): number {
    const p = this.pane;
    const axis = p.axis(this.now);
    const h = this.hover.value;
    const x = h && h.pane === p.index && h.hit.where !== "none" ? axis.x(h.hit.t) : this.now.cursor !== null ? axis.x(this.now.cursor + p.origin) : NaN;
    return x >= 0 && x <= p.plot ? x / p.plot : 0.5;
  }

  pan(px: number): void {
    this.motion();
    const p = this.pane;
    const [a, b] = this.shown(p);
    const d = (px / p.plot) * (b - a);
    this.window(p, a + d, b + d);
  }

  /** Times from the origin. */
  showTimes(t0: number, t1: number): void {
    const p = this.pane;
    const g = p.gaps(this.now);
    this.window(p, squeeze(g, t0 + p.origin), squeeze(g, t1 + p.origin));
  }

  scrollBy(px: number): void {
    this.motion();
    const p = this.pane;
    p.scroll += px;
    p.clampScroll();
    this.redraw();
  }

  scrollTo(p: Pane, px: number): void {
    this.motion();
    p.scroll = px;
    p.clampScroll();
    this.redraw();
  }

  rowHeight(h: number): void {
    const p = this.pane;
    // What is in the middle stays there.
    const mid = p.layout.at(p.scroll + p.body / 2);
    this.set({ rowH: h === 0 ? 0 : Math.max(ROW_MIN, Math.min(ROW_MAX, Math.round(h))) });
    p.scroll = p.layout.top(mid) - p.body / 2;
    p.clampScroll();
    this.redraw();
  }

  /** All; when all is seen already, what is selected. */
  fit(): void {
    if (this.now.t0 === null && this.fitSelection()) return;
    this.set({ t0: null, t1: null });
    this.say("all of it");
  }

  fitSelection(): boolean {
    const v = this.now;
    const p = this.pane;
    const pv = p.pv(v);
    let a = NaN, b = NaN;
    if (v.from !== null && v.to !== null) {
      a = Math.min(v.from, v.to);
      b = Math.max(v.from, v.to);
    } else if (pv.row >= 0 && pv.row < p.source.rows.n) {
      const slot = pv.item >= 0 ? p.slotOf(v, pv.row) : null;
      const i = slot ? (slot.table.itemFrom[slot.at] as number) + pv.item : -1;
      if (slot && i < (slot.table.itemFrom[slot.at + 1] as number)) {
        a = (slot.table.start[i] as number) - p.origin;
        b = a + (slot.table.dur[i] as number);
      } else {
        a = (p.source.rows.start[pv.row] as number) - p.origin;
        b = a + (p.source.rows.dur[pv.row] as number);
      }
      this.reveal(p, pv.row);
    }
    if (!Number.isFinite(a)) return false;
    const pad = Math.max((b - a) * 0.03, LEAST_US);
    this.showTimes(a - pad, b + pad);
    this.say(`${clockTime(a, 1, true)} to ${clockTime(b, 1, true)}, ${length(b - a)}`);
    return true;
  }

  // ---- rows --------------------------------------------------------------------------------------

  /** Scrolls so that a row of the dump is seen. */
  reveal(p: Pane, row: number): void {
    const place = (p.places[row] ?? 0) - 1;
    if (place < 0) return;
    const a = p.layout.top(place), b = p.layout.top(place + 1);
    if (a < p.scroll) p.scroll = a - Math.min(p.body / 3, 3 * p.layout.rowH);
    else if (b > p.scroll + p.body) p.scroll = Math.min(a, b - p.body + Math.min(p.body / 3, 3 * p.layout.rowH));
    p.clampScroll();
    this.redraw();
  }

  select(p: Pane, row: number, item = -1, quiet = false): void {
    this.active.value = p.index;
    const pv = p.pv(this.now);
    if (row >= 0 && this.now.tab === "range" && (row !== pv.row || item >= 0) && !quiet) this.set({ tab: "sample" });
    this.setPane(p.index, { row, item });
    if (row < 0) return;
    const place = (p.places[row] ?? 0) - 1;
    this.say(`row ${grouped(place + 1, 0)} of ${grouped(p.order.length, 0)}: ${rowSentence(p.source, row, p.origin)}`);
  }

  /** The next or previous row; from nothing, the first that is seen. */
  step(d: number): void {
    const p = this.pane;
    const n = p.order.length;
    if (n === 0) return this.say("no rows");
    const row = p.pv(this.now).row;
    const place = row >= 0 ? (p.places[row] as number) - 1 : -1;
    const to = place < 0 ? (d > 0 ? p.visible()[0] : Math.max(0, p.visible()[1] - 2)) : Math.max(0, Math.min(n - 1, place + d));
    this.select(p, p.order[to] as number);
    this.reveal(p, p.order[to] as number);
  }

  /** The next or previous match, around the ends. */
  match(d: 1 | -1): void {
    const p = this.pane;
    const n = p.order.length;
    if (!this.now.filter) return this.say("search for something first: /");
    if (n === 0) return this.say("nothing matches");
    const row = p.pv(this.now).row;
    let at = row >= 0 ? (p.places[row] as number) - 1 : d > 0 ? -1 : n;
    for (let k = 0; k < n; k++) {
      at = (at + d + n) % n;
      const r = p.order[at] as number;
      if (p.marks && p.marks[r] !== 1) continue;
      this.select(p, r);
      this.reveal(p, r);
      return;
    }
    this.say("nothing matches");
  }

  toggleRow(p: Pane, row: number): void {
    if (row < 0) return;
    const { open } = p.pv(this.now);
    const has = open.includes(row);
    const opened = this.now.expanded ? has : !has;
    if (this.now.rowH !== 0 && this.now.rowH < 4) this.rowHeight(11);
    else if (this.now.rowH === 0 && p.dense(this.now)) this.rowHeight(11);
    this.active.value = p.index;
    if (this.now.tab === "range") this.set({ tab: "sample" });
    const pv = p.pv(this.now);
    this.setPane(p.index, { open: has ? open.filter((r) => r !== row) : [...open, row], row, item: row === pv.row ? pv.item : -1 });
    this.reveal(p, row);
    this.say(`${opened ? "expanded" : "collapsed"}: ${rowSentence(p.source, row, p.origin)}, ${p.source.rows.lanes[row]} lanes`);
  }

  /** Marks the rows that held the step; switched on, it goes to them. */
  toggleTail(): void {
    const on = !this.now.tail;
    this.set({ tail: on });
    if (!on) return this.say("longest tail: not marked");
    const v = this.now;
    if (v.sort !== "end" || !v.desc) this.set({ sort: "end", desc: true });
    const p = this.pane;
    this.scrollTo(p, 0);
    let held = 0;
    for (let r = 0; r < p.source.rows.n; r++) if (((p.source.rows.flags[r] as number) & ROW_HELD) !== 0) held++;
    this.say(held > 0 ? `${held} samples held the step` : "no sample held the step");
  }

  toggleLegend(key: string, which: "lit" | "hidden"): void {
    const list = this.now[which];
    const on = !list.includes(key);
    this.set({ [which]: on ? [...list, key] : list.filter((k) => k !== key) });
    for (const p of this.panes) p.forget();
    const label = this.pane.legend.value.find((e) => e.key === key)?.label ?? key;
    this.say(which === "lit" ? (on ? `${label} highlighted` : `${label} not highlighted`) : on ? `${label} hidden` : `${label} shown`);
  }

  measure(): void {
    this.measuring.value = !this.measuring.value;
    if (this.measuring.value) {
      this.set({ from: null, to: null });
      this.say("measure: drag from one point to another; Esc ends it");
    } else this.say("measuring ended");
  }

  /** Esc: one thing after the other. */
  escape(): boolean {
    const v = this.now;
    if (this.measuring.value) this.measuring.value = false;
    else if (v.from !== null) this.set({ from: null, to: null });
    else if (this.pane.pv(v).item >= 0) this.setPane(this.pane.index, { item: -1 });
    else if (v.cursor !== null) this.set({ cursor: null });
    else if (v.lit.length + v.hidden.length > 0) {
      this.set({ lit: [], hidden: [] });
      for (const p of this.panes) p.forget();
    } else if (v.t0 !== null) this.set({ t0: null, t1: null });
    else return false;
    return true;
  }

  /** The picture as it is, in twice the resolution. */
  picture(i: number): Promise<Blob> {
    const p = this.panes[i], c = this.canvases[i];
    const set = p && this.paintFor(p);
    if (!p || !c || !set) return Promise.reject(new Error("nothing is drawn yet"));
    const px = 2;
    const title = 20;
    const out = document.createElement("canvas");
    out.width = p.width * px;
    out.height = (p.height + title) * px;
    const ctx = out.getContext("2d", { alpha: false });
    if (!ctx) return Promise.reject(new Error("no canvas to draw on"));
    const ink = readInk(c, px);
    const sub = document.createElement("canvas");
    sub.width = p.width * px;
    sub.height = p.height * px;
    const sctx = sub.getContext("2d", { alpha: false });
    if (!sctx) return Promise.reject(new Error("no canvas to draw on"));
    paintPane({ ctx: sctx, pane: p, view: this.now, ink, colours: set.colours, paint: set.paint, paintKey: set.key, quick: false, again: () => undefined });
    ctx.fillStyle = ink.surface;
    ctx.fillRect(0, 0, out.width, out.height);
    ctx.drawImage(sub, 0, title * px);
    ctx.setTransform(px, 0, 0, px, 0, 0);
    ctx.font = `600 12px ${ink.family}`;
    ctx.fillStyle = ink.text;
    ctx.fillText(p.source.head.dump.name, 8, 14);
    return new Promise((resolve, reject) => out.toBlob((b) => (b ? resolve(b) : reject(new Error("the picture could not be made"))), "image/png"));
  }
}

/** Uses a value now, or when it comes. A rejection is left to the next try. */
function settle<T>(v: T | Promise<T>, use: (v: T) => void): void {
  if (v instanceof Promise) v.then(use, () => undefined);
  else use(v);
}
