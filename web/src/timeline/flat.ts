// A row as one bar: for every instant its leaf, the deepest span (of equals the one that began last), in the
// class of the segment there, or queue while a request is known to have queued (FORMAT.md, "What fills an
// instant of a row"). Made once; collapsed rows, the overview and the counts at the cursor are read from it.
import { GENERATE, OPEN, ORPHAN, POINT, QUEUE, type Table } from "./table";

export interface FlatOptions {
  /** only items of this attempt, -1 all */
  attempt: number;
  opens: boolean;
}

export interface Flat {
  /** stretches of row r are from[r] .. to[r], in time; they never overlap */
  from: Uint32Array;
  to: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  /** the item of the table that is on top */
  item: Int32Array;
  class: Uint8Array;
  /** point events and orphan ends of row r, in time */
  pointFrom: Uint32Array;
  pointTo: Uint32Array;
  point: Int32Array;
  orphanFrom: Uint32Array;
  orphanTo: Uint32Array;
  orphan: Int32Array;
}

/** Scratch of one row: what is painted, in painter's order, and the order of starts. */
class Scratch {
  start = new Float64Array(0);
  end = new Float64Array(0);
  item = new Int32Array(0);
  class = new Uint8Array(0);
  order = new Uint32Array(0);
  other = new Uint32Array(0);
  heap = new Uint32Array(0);
  runs = new Uint32Array(0);
  keys = new Uint32Array(0);
  rank = new Uint32Array(0);
  byRank = new Uint32Array(0);
  count = new Uint32Array(0);
  fit(n: number): void {
    if (this.start.length >= n) return;
    const cap = Math.max(256, n * 2);
    this.start = new Float64Array(cap);
    this.end = new Float64Array(cap);
    this.item = new Int32Array(cap);
    this.class = new Uint8Array(cap);
    this.order = new Uint32Array(cap);
    this.other = new Uint32Array(cap);
    this.heap = new Uint32Array(cap);
    this.runs = new Uint32Array(cap + 1);
    this.keys = new Uint32Array(cap);
    this.rank = new Uint32Array(cap);
    this.byRank = new Uint32Array(cap);
  }
}

/** Sorts order[0..n) by start: natural merge sort, for lanes are sorted already. Equal starts keep painter's order. */
function byStart(s: Scratch, n: number): void {
  const { start, runs } = s;
  let from = s.order, to = s.other;
  for (let i = 0; i < n; i++) from[i] = i;
  let count = 0;
  runs[count++] = 0;
  for (let i = 1; i < n; i++) if ((start[i] as number) < (start[i - 1] as number)) runs[count++] = i;
  runs[count] = n;
  while (count > 1) {
    let k = 0;
    for (let r = 0; r < count; r += 2) {
      const a0 = runs[r] as number, a1 = runs[r + 1] as number, b1 = r + 1 < count ? (runs[r + 2] as number) : a1;
      let i = a0, j = a1, o = a0;
      while (i < a1 && j < b1) to[o++] = (start[from[j] as number] as number) < (start[from[i] as number] as number) ? (from[j++] as number) : (from[i++] as number);
      while (i < a1) to[o++] = from[i++] as number;
      while (j < b1) to[o++] = from[j++] as number;
      runs[k++] = a0;
    }
    runs[k] = n;
    count = k;
    [from, to] = [to, from];
  }
  s.order = from;
  s.other = to;
}

/**
 * The rows of a table, flattened when they are first needed: what is on the screen at once, the others a
 * piece at a time. Its arrays have room for all from the start; pages that are not written cost nothing.
 */
export class Flats implements Flat {
  readonly from: Uint32Array;
  readonly to: Uint32Array;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly item: Int32Array;
  readonly class: Uint8Array;
  readonly pointFrom: Uint32Array;
  readonly pointTo: Uint32Array;
  readonly point: Int32Array;
  readonly orphanFrom: Uint32Array;
  readonly orphanTo: Uint32Array;
  readonly orphan: Int32Array;
  private have: Uint8Array;
  private next = 0;
  private n = 0;
  private points = 0;
  private orphans = 0;
  private scratch = new Scratch();

  constructor(private t: Table, private o: FlatOptions) {
    const rows = t.n;
    // Each thing that is painted begins at most one stretch and lets one go on when it ends: items, their
    // segments, and the queue of those that generate.
    let generate = 0;
    for (let i = t.class.indexOf(GENERATE); i >= 0; i = t.class.indexOf(GENERATE, i + 1)) generate++;
    const room = 2 * (t.start.length + t.segStart.length + generate);
    this.from = new Uint32Array(rows);
    this.to = new Uint32Array(rows);
    this.start = new Float64Array(room);
    this.end = new Float64Array(room);
    this.item = new Int32Array(room);
    this.class = new Uint8Array(room);
    this.pointFrom = new Uint32Array(rows);
    this.pointTo = new Uint32Array(rows);
    this.orphanFrom = new Uint32Array(rows);
    this.orphanTo = new Uint32Array(rows);
    this.point = new Int32Array(t.start.length);
    this.orphan = new Int32Array(t.start.length);
    this.have = new Uint8Array(rows);
  }

  get size(): number {
    return this.n;
  }

  get complete(): boolean {
    return this.next >= this.t.n;
  }

  /** Flattens a row unless it is. */
  row(r: number): void {
    if (this.have[r] !== 0 || r < 0 || r >= this.t.n) return;
    this.have[r] = 1;
    this.flatten(r);
  }

  all(): this {
    while (this.next < this.t.n) this.row(this.next++);
    return this;
  }

  /** Flattens for about so many milliseconds; whether all is done. */
  some(ms: number): boolean {
    const until = performance.now() + ms;
    while (this.next < this.t.n) {
      for (let k = 0; k < 32 && this.next < this.t.n; k++) this.row(this.next++);
      if (performance.now() > until) break;
    }
    return this.complete;
  }

  /** Adds a stretch; one that goes on with the same thing makes the last one longer. */
  add(s: number, e: number, item: number, c: number, rowStart: number): void {
    const n = this.n;
    if (n > rowStart && this.item[n - 1] === item && this.class[n - 1] === c && this.end[n - 1] === s) {
      this.end[n - 1] = e;
      return;
    }
    this.start[n] = s;
    this.end[n] = e;
    this.item[n] = item;
    this.class[n] = c;
    this.n = n + 1;
  }

  private flatten(r: number): void {
    const { t, o, scratch: s } = this;
    const a = t.itemFrom[r] as number, b = t.itemFrom[r + 1] as number;
    const r0 = t.reqFrom[r] as number, r1 = t.reqFrom[r + 1] as number;
    s.fit(2 * (b - a) + (t.segFrom[b] as number) - (t.segFrom[a] as number));
    this.pointFrom[r] = this.points;
    this.orphanFrom[r] = this.orphans;
    this.from[r] = this.n;
    let n = 0;
    for (let i = a; i < b; i++) {
      if (o.attempt >= 0 && t.attempt[i] !== o.attempt) continue;
      const state = t.state[i];
      if (state === POINT) {
        this.point[this.points++] = i;
        continue;
      }
      if (state === ORPHAN) {
        this.orphan[this.orphans++] = i;
        continue;
      }
      if (state === OPEN && !o.opens) continue;
      const start = t.start[i] as number, end = start + (t.dur[i] as number);
      s.start[n] = start;
      s.end[n] = end;
      s.item[n] = i;
      s.class[n++] = t.class[i] as number;
      // What the item is made of lies over it, at the same depth; segments over the queue.
      const req = t.class[i] === GENERATE ? (t.request[i] as number) : -1;
      const queue = req >= 0 && r0 + req < r1 ? (t.req.queue[r0 + req] as number) : NaN;
      if (queue > 0) {
        s.start[n] = start;
        s.end[n] = Math.min(end, start + queue);
        s.item[n] = i;
        s.class[n++] = QUEUE;
      }
      for (let g = t.segFrom[i] as number, e = t.segFrom[i + 1] as number; g < e; g++) {
        s.start[n] = t.segStart[g] as number;
        s.end[n] = Math.min(end, (t.segStart[g] as number) + (t.segDur[g] as number));
        s.item[n] = i;
        s.class[n++] = t.segClass[g] as number;
      }
    }
    this.pointTo[r] = this.points;
    this.orphanTo[r] = this.orphans;
    inTime(t, this.point, this.pointFrom[r] as number, this.points);
    inTime(t, this.orphan, this.orphanFrom[r] as number, this.orphans);
    if (n > 0) {
      byStart(s, n);
      rank(t, s, n);
      sweep(s, n, this);
    }
    this.to[r] = this.n;
  }
}

/**
 * Gives each entry its place among what may lie on top: by depth, then start of its item, then place. The
 * entries come in time, so it is a stable sort by depth of that order; most rows have few depths.
 */
function rank(t: Table, s: Scratch, n: number): void {
  let deepest = 0;
  for (let i = 0; i < n; i++) deepest = Math.max(deepest, t.depth[s.item[i] as number] as number);
  const count = s.count.length > deepest + 1 ? s.count.fill(0, 0, deepest + 2) : (s.count = new Uint32Array(deepest + 64));
  // An item's parts rank with their item: right behind it.
  const of = s.keys;
  let m = 0;
  for (let k = 0; k < n; k++) {
    const e = s.order[k] as number;
    if (e === 0 || s.item[e - 1] !== s.item[e]) of[m++] = e;
  }
  for (let k = 0; k < m; k++) {
    const d = (t.depth[s.item[of[k] as number] as number] as number) + 1;
    let parts = 1;
    for (let e = (of[k] as number) + 1; e < n && s.item[e] === s.item[of[k] as number]; e++) parts++;
    count[d] = (count[d] as number) + parts;
  }
  for (let d = 1; d <= deepest + 1; d++) count[d] = (count[d] as number) + (count[d - 1] as number);
  for (let k = 0; k < m; k++) {
    const item = s.item[of[k] as number] as number;
    const d = t.depth[item] as number;
    for (let e = of[k] as number; e < n && s.item[e] === item; e++) {
      const at = count[d] as number;
      count[d] = at + 1;
      s.rank[e] = at;
      s.byRank[at] = e;
    }
  }
}

/** Points come lane by lane; drawing wants them in time. */
function inTime(t: Table, list: Int32Array, from: number, to: number): void {
  let sorted = true;
  for (let k = from + 1; k < to && sorted; k++) sorted = (t.start[list[k] as number] as number) >= (t.start[list[k - 1] as number] as number);
  if (!sorted) list.subarray(from, to).sort((x, y) => (t.start[x] as number) - (t.start[y] as number) || x - y);
}

/** Goes along the starts; a heap of the ranks of what is running gives what is on top. */
function sweep(s: Scratch, n: number, out: Flats): void {
  const { start, end, order, heap, rank, byRank } = s;
  const rowStart = out.size;
  let size = 0;
  let k = 0;
  let now = -Infinity;
  while (k < n || size > 0) {
    while (size > 0 && (end[byRank[heap[0] as number] as number] as number) <= now) size = popTop(heap, size);
    if (size === 0) {
      if (k >= n) return;
      now = Math.max(now, start[order[k] as number] as number);
    } else {
      const top = byRank[heap[0] as number] as number;
      const next = k < n ? (start[order[k] as number] as number) : Infinity;
      const to = Math.min(end[top] as number, next);
      if (to > now) {
        out.add(now, to, s.item[top] as number, s.class[top] as number, rowStart);
        now = to;
      }
    }
    while (k < n && (start[order[k] as number] as number) <= now) {
      const e = order[k++] as number;
      if ((end[e] as number) > now) size = push(heap, size, rank[e] as number);
      // A span of no length is seen as a hair, unless something lies over it.
      else if (size === 0 && (end[e] as number) === now && start[e] === now) out.add(now, now, s.item[e] as number, s.class[e] as number, rowStart);
    }
  }
}

function push(heap: Uint32Array, size: number, v: number): number {
  let i = size;
  while (i > 0) {
    const up = (i - 1) >> 1;
    if ((heap[up] as number) >= v) break;
    heap[i] = heap[up] as number;
    i = up;
  }
  heap[i] = v;
  return size + 1;
}

function popTop(heap: Uint32Array, size: number): number {
  const last = heap[--size] as number;
  let i = 0;
  for (;;) {
    let c = 2 * i + 1;
    if (c >= size) break;
    if (c + 1 < size && (heap[c + 1] as number) > (heap[c] as number)) c++;
    if ((heap[c] as number) <= last) break;
    heap[i] = heap[c] as number;
    i = c;
  }
  heap[i] = last;
  return size;
}

/** The stretch of row r that holds time t, or -1. */
export function flatAt(f: Flat, r: number, t: number): number {
  const k = firstEndingAfter(f.end, f.from[r] as number, f.to[r] as number, t);
  return k < (f.to[r] as number) && (f.start[k] as number) <= t ? k : -1;
}

/** The first of the sorted ends in [lo, hi) that lies after t. */
export function firstEndingAfter(end: Float64Array, lo: number, hi: number, t: number): number {
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((end[mid] as number) <= t) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/** The first of list[lo..hi), items in time, that starts at or after t. */
export function firstFrom(start: Float64Array, list: Int32Array, lo: number, hi: number, t: number): number {
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((start[list[mid] as number] as number) < t) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
