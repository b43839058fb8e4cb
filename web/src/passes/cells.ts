// What a rank did in each column of pixels: the level of detail of the strip. Many passes in one column are
// one cell; a pass over many columns fills them. Losses, restarts and silence are never averaged away. Pure.
import { DECODE, EMPTY, GAP, HEARTBEAT, HOLE, MIXED, NOTHING, PREFILL, RESTART, UNMEASURED, type Kind, type Ring } from "./ring";

/** Marks of a column. */
export const M_GAP = 1, M_RESTART = 2, M_SILENT = 4, M_IDLE = 8, M_BEAT = 16, M_EDGE = 32, M_UNLOADED = 64, M_UNMEASURED = 128;

/** Columns of one rank. */
export interface Cells {
  /** what took most of the column's time */
  kind: Uint8Array;
  /** share of the column in which a pass ran, 0 to 255 */
  cover: Uint8Array;
  /** mean batch of these passes, requests */
  batch: Float32Array;
  marks: Uint8Array;
}

export function newCells(n: number): Cells {
  return { kind: new Uint8Array(n), cover: new Uint8Array(n), batch: new Float32Array(n), marks: new Uint8Array(n) };
}

const KINDS = 6;
let time = new Float32Array(0), load = new Float32Array(0);

/** A bar of this many columns has an edge, so that one is told from the next. */
const EDGE = 4;
/** A pass is seen however short it is. */
const LEAST = 0.04;

/**
 * Fills out with the columns first, first+1, ... of a rank; column c is the time from c*ms to (c+1)*ms.
 * allowance is the silence that the rank's rhythm allows, ms; beyond it nobody knows what the rank did.
 */
export function fillCells(ring: Ring, first: number, count: number, ms: number, allowance: number, out: Cells): void {
  out.kind.fill(NOTHING, 0, count);
  out.cover.fill(0, 0, count);
  out.marks.fill(0, 0, count);
  out.batch.fill(0, 0, count);
  if (ring.end === ring.begin) return;
  if (time.length < count * KINDS) {
    time = new Float32Array(count * KINDS);
    load = new Float32Array(count);
  }
  time.fill(0, 0, count * KINDS);
  load.fill(0, 0, count);
  const last = first + count;
  const clip = (c: number) => (c < first ? first : c > last - 1 ? last - 1 : c) - first;
  /** Sets a mark from one instant to another, over at least `least` columns that end at the later one. */
  const mark = (bit: number, from: number, to: number, least = 1): void => {
    const z = Math.floor(to / ms);
    const a = Math.min(Math.floor(from / ms), z - least + 1);
    if (z < first || a >= last) return;
    for (let c = clip(a); c <= clip(z); c++) out.marks[c] = (out.marks[c] as number) | bit;
  };
  for (let p = ring.from(first * ms); p < ring.end; p++) {
    const end = ring.timeAt(p), start = ring.startAt(p), flags = ring.flagsAt(p);
    const before = p > ring.begin ? ring.timeAt(p - 1) : start;
    // A mark may begin a column before what it marks.
    if (before >= (last + 1) * ms) break;
    if (flags & HOLE) {
      if (p > ring.begin) mark(M_UNLOADED, before, start, 1);
    } else if (flags & GAP) mark(M_GAP, before, start, 2);
    else if (start - before > allowance) mark(M_SILENT, before, start);
    else if (flags & HEARTBEAT && !(flags & RESTART)) mark(M_IDLE, before, end);
    if (flags & RESTART) mark(M_RESTART, start, start, 2);
    if (flags & HEARTBEAT) {
      mark(M_BEAT, end, end);
      continue;
    }
    const kind = ring.kindAt(p);
    if (kind === UNMEASURED) mark(M_UNMEASURED, end, end);
    const a = Math.floor(start / ms), z = Math.floor(end / ms);
    if (z < first || a >= last) continue;
    const batch = ring.batchAt(p);
    for (let c = Math.max(a, first); c <= z && c < last; c++) {
      const part = Math.max(LEAST, Math.min(end / ms, c + 1) - Math.max(start / ms, c));
      const i = c - first;
      time[i * KINDS + kind] = (time[i * KINDS + kind] as number) + part;
      load[i] = (load[i] as number) + part * batch;
    }
    if ((end - start) / ms >= EDGE) mark(M_EDGE, start, start);
  }
  for (let i = 0; i < count; i++) {
    let all = 0, best = 0, kind: Kind = NOTHING;
    for (let k = PREFILL; k <= UNMEASURED; k++) {
      const t = time[i * KINDS + k] as number;
      all += t;
      if (t > best) {
        best = t;
        kind = k as Kind;
      }
    }
    if (all === 0) continue;
    // Passes of both sorts in one column: neither is hidden behind the other when it is a fair part of it.
    const pre = (time[i * KINDS + PREFILL] as number) + (time[i * KINDS + MIXED] as number) / 2, dec = (time[i * KINDS + DECODE] as number) + (time[i * KINDS + MIXED] as number) / 2;
    if (kind !== EMPTY && kind !== UNMEASURED && Math.min(pre, dec) > all / 4) kind = MIXED;
    out.kind[i] = kind;
    out.cover[i] = Math.min(255, Math.round(all * 255));
    out.batch[i] = (load[i] as number) / all;
  }
}

/** What lies at an instant of a rank: the place of the pass that ran then, or what stands between two. */
export function passAt(ring: Ring, t: number, reach: number): number {
  const p = ring.from(t);
  if (p < ring.end && ring.startAt(p) - reach <= t) return p;
  if (p > ring.begin && t - ring.timeAt(p - 1) <= reach) return p - 1;
  return -1;
}

/** Full height of a bar: the next round number at or above the largest batch. */
export function batchScale(most: number): number {
  if (!(most > 1)) return 1;
  const mag = 10 ** Math.floor(Math.log10(most));
  for (const m of [1, 2, 3, 4, 5, 6, 8, 10]) if (m * mag >= most) return m * mag;
  return 10 * mag;
}
