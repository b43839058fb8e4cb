// What the strip looks at: the passes that came, those of the past that were asked for, the window, the row
// and the pass that are chosen. One object for the page; components draw it and tell it what was pressed.
import { signal } from "@preact/signals";
import { Failure } from "../api/client";
import type * as api from "../api/types";
import { parseApiTime } from "../format/time";
import { canLive, isArchive, isLive, now, range, today, toggleLive } from "../state/live";
import { change, view } from "../state/view";
import { clampSpan, nextSpan } from "./layout";
import { Feed, storedPasses } from "./feed";
import { PassSet, rankKey, type RankRow } from "./ring";

const KEEP_MS = 150_000;
const SPAN_MS = 10_000;
/** The URL is written when the window has come to rest. */
const REST_MS = 350;

/** A row of the strip: a rank, what was loaded of it, and what is known of it. */
export interface StripRow extends RankRow {
  allowance: number;
  dirty: number;
  status: api.PassRank | undefined;
  role: string;
}

export interface Pin {
  key: string;
  time: number;
}

export class PassModel {
  readonly live = new PassSet(KEEP_MS);
  readonly feed = new Feed(this.live, (row, from) => this.touch(row, from), () => this.heard());
  /** passes out of the store, for a window that memory does not reach */
  past: { set: PassSet; from: number; to: number; engine: string } | null = null;
  readonly pastState = signal<{ loading: boolean; error?: Failure; since: number; from: number }>({ loading: false, since: 0, from: NaN });

  span = view.peek().stripSpan ? clampSpan(view.peek().stripSpan) : SPAN_MS;
  /** right edge, ms; null follows */
  at: number | null = view.peek().stripAt || null;
  selected = "";
  pinned: Pin | null = null;
  /** moves when the window, the choice or the list of rows has changed: components render anew */
  readonly moved = signal(0);
  /** moves when the feed fails, comes back or lost something */
  readonly feedMoved = signal(0);
  /** the strip has to be painted */
  repaint: () => void = () => undefined;
  /** rows in order */
  rows: StripRow[] = [];
  private source: PassSet | null = null;
  private version = -1;
  private engines: api.PassEngine[] = [];
  private worker = "";
  private rest: ReturnType<typeof setTimeout> | undefined;
  private loading: AbortController | null = null;
  private feedKey = "";

  /** Whether the picture moves with time. */
  get follows(): boolean {
    return this.at === null && isLive.peek();
  }

  /** The instant at the right edge. */
  head(): number {
    if (this.at !== null) return this.at;
    if (isArchive.peek()) return this.end();
    const r = range.peek();
    if (r.kind === "fixed") return r.to;
    return this.feed.head();
  }

  /** Where a recording ends: its passes may go on after its last point of a metric. */
  private end(): number {
    return Math.max(today(), ...this.engines.flatMap((e) => (e.ranks ?? []).map((r) => parseApiTime(r.last) || 0)));
  }

  /** Called when live goes on or off: off, the picture stays where it is. */
  setLive(live: boolean): void {
    this.feed.paused = !live;
    if (live) this.at = null;
    else if (this.at === null && canLive.peek()) this.at = this.feed.head();
    this.settle();
  }

  /** Takes what the server knows of engines, and which of them is looked at. */
  setEngines(engines: api.PassEngine[], worker: string): void {
    this.engines = engines;
    this.worker = worker;
    this.version = -1;
    this.order();
    if (!this.follows) this.loadPast();
  }

  /** Puts the rows in order when there are others. */
  order(): void {
    const set = this.past?.set ?? this.live;
    if (this.version === set.version && this.source === set) return;
    for (const e of this.engines) for (const r of e.ranks ?? []) set.row(e.id, e.name || e.id, r.rank);
    this.version = set.version;
    this.source = set;
    const known = new Map<string, [api.PassEngine, api.PassRank]>();
    for (const e of this.engines) for (const r of e.ranks ?? []) known.set(rankKey(e.id, r.rank), [e, r]);
    const before = new Map(this.rows.map((r) => [r.key, r]));
    this.rows = set.sorted().filter((r) => !this.worker || r.engine === this.worker).map((r) => {
      const [e, status] = known.get(r.key) ?? [];
      const old = before.get(r.key);
      const allowance = (status?.allowance_seconds ?? 0) > 0 ? (status?.allowance_seconds as number) * 1000 : (old?.allowance ?? Infinity);
      return { ...r, status, role: e?.role ?? old?.role ?? "", allowance, dirty: old && old.ring === r.ring ? old.dirty : -Infinity };
    });
    if (this.selected && !this.rows.some((r) => r.key === this.selected)) this.selected = "";
    this.say();
  }

  private touch(row: RankRow, from: number): void {
    if (this.past) return;
    // Few rows; a map would have to be kept in step with them.
    const r = this.byKey.get(row.key);
    if (r && from < r.dirty) r.dirty = from;
  }
  private keyed: StripRow[] = [];
  private keys = new Map<string, StripRow>();
  private get byKey(): Map<string, StripRow> {
    if (this.keyed !== this.rows) {
      this.keyed = this.rows;
      this.keys = new Map(this.rows.map((r) => [r.key, r]));
    }
    return this.keys;
  }
  rowOf(key: string): StripRow | undefined {
    return this.byKey.get(key);
  }

  private heard(): void {
    if (this.live.version !== this.version || this.source !== (this.past?.set ?? this.live)) this.order();
    const f = this.feed;
    const key = `${f.error?.code ?? ""} ${f.failingSince} ${f.gone} ${f.heard}`;
    if (key !== this.feedKey) {
      this.feedKey = key;
      this.feedMoved.value++;
    }
    this.repaint();
  }

  private say(): void {
    this.moved.value++;
    this.repaint();
  }

  /** Zooms around a place of the window, 0 left to 1 right; while it follows, around now. */
  zoom(span: number, place = 1): void {
    span = clampSpan(span);
    if (this.at !== null) this.at += (1 - place) * (span - this.span);
    this.span = span;
    this.settle();
  }
  zoomStep(step: -1 | 1): void {
    this.zoom(nextSpan(this.span, step));
  }

  /** Moves the window; to move it is to stop following. */
  pan(ms: number): void {
    const head = this.head();
    const newest = isArchive.peek() ? this.end() : this.feed.heard ? this.feed.head() : now();
    this.at = Math.min(head + ms, newest);
    if (isLive.peek()) toggleLive();
    this.settle();
  }

  /** Back to now, or to the end of what is recorded. */
  follow(): void {
    this.at = null;
    if (!isArchive.peek() && !isLive.peek()) toggleLive();
    this.settle();
  }

  select(key: string): void {
    this.selected = key;
    this.say();
  }
  pin(p: Pin | null): void {
    this.pinned = p;
    if (p) this.selected = p.key;
    this.say();
  }
  selectStep(d: number): void {
    const n = this.rows.length;
    if (n === 0) return;
    const i = this.rows.findIndex((r) => r.key === this.selected);
    this.select((this.rows[i < 0 ? (d > 0 ? 0 : n - 1) : (i + d + n) % n] as StripRow).key);
  }

  /** After a change of the window: the rows of the past that it needs, and the URL once it rests. */
  private settle(): void {
    this.say();
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      const v = view.peek();
      if (!v.passes || v.page !== "engines") return;
      const at = this.at === null ? 0 : Math.round(this.at);
      const span = Math.round(this.span) === SPAN_MS ? 0 : Math.round(this.span);
      if (at !== v.stripAt || span !== v.stripSpan) change({ stripAt: at, stripSpan: span }, "replace");
      this.loadPast();
    }, REST_MS);
  }

  /** Loads stored passes when the window lies where memory does not reach; otherwise memory will do. */
  loadPast(): void {
    const to = this.head(), from = to - this.span;
    const inMemory = this.at === null && isLive.peek() || (this.live.passes > 0 && from >= this.memoryFrom());
    if (inMemory) {
      this.loading?.abort();
      this.loading = null;
      if (this.past) {
        this.past = null;
        this.pastState.value = { loading: false, since: 0, from: NaN };
        this.order();
      }
      return;
    }
    if (this.past && this.past.engine === this.worker && from >= this.past.from - 1 && to <= this.past.to + 1) return;
    this.loading?.abort();
    const abort = new AbortController();
    this.loading = abort;
    const [a, b, engine] = [from - this.span / 2, Math.min(to + this.span / 2, isArchive.peek() ? Infinity : now()), this.worker];
    this.pastState.value = { ...this.pastState.peek(), loading: true };
    storedPasses(a, b, engine, abort.signal).then(
      (got) => {
        if (abort.signal.aborted) return;
        const set = new PassSet(Infinity);
        for (const c of got.columns) set.add(c, false);
        this.past = { set, from: a, to: b, engine };
        this.pastState.value = { loading: false, since: 0, from: got.from > a ? got.from : NaN };
        this.version = -1;
        this.order();
      },
      (err: unknown) => {
        if (abort.signal.aborted) return;
        const error = err instanceof Failure ? err : new Failure("bad_answer", err instanceof Error ? err.message : String(err));
        this.pastState.value = { loading: false, error, since: this.pastState.peek().since || Date.now(), from: NaN };
      },
    );
  }

  /** From when on memory has all of every rank. */
  private memoryFrom(): number {
    const cut = this.live.coveredFrom();
    return Number.isNaN(cut) ? this.opened : Math.max(cut, this.opened);
  }
  /** the earliest pass of the first answer: before it the page saw nothing */
  private get opened(): number {
    let from = Infinity;
    for (const r of this.live.rows.values()) if (r.ring.first < from) from = r.ring.first;
    return from;
  }

  start(live: boolean): void {
    this.feed.paused = !isLive.peek();
    if (live) this.feed.start();
    else this.feed.stop();
    if (!this.follows) this.loadPast();
  }
  stop(): void {
    clearTimeout(this.rest);
    this.loading?.abort();
    this.feed.stop();
    this.repaint = () => undefined;
  }

  /** Passes that lie in the window: for counts and the cloud. */
  window(): { from: number; to: number } {
    const to = this.head();
    return { from: to - this.span, to };
  }
}
