// Numbers of what is seen: per span name over a range, and how many rows are doing what at an instant.
// Counts and sums use all data, never pixels.
import type { Flat } from "./flat";
import { flatAt } from "./flat";
import { DECODE, GENERATE, MERGED, OPEN, ORPHAN, PHASE, POINT, PREFILL, QUEUE, REWARD, SYNC, TOOL, WAIT, type Rows, type Table } from "./table";

export interface NameStats {
  name: number;
  /** spans that touch the range (points for names that have only those) */
  n: number;
  points: number;
  open: number;
  /** what merged items stand for */
  merged: number;
  /** microseconds; NaN without a closed span */
  sum: number;
  p50: number;
  p99: number;
  max: number;
}

/** How many rows are doing what: empty, not_started, ended and the others add up to total. */
export interface States {
  total: number;
  empty: number;
  not_started: number;
  ended: number;
  queued: number;
  prefill: number;
  transfer: number;
  decode: number;
  generate: number;
  tools: number;
  reward: number;
  sync: number;
  wait: number;
  other: number;
}

export type Busy = Exclude<keyof States, "total" | "empty" | "not_started" | "ended">;

/** The p-th of a hundred of sorted numbers by nearest rank; NaN of none. */
export function percentile(sorted: Float64Array, p: number): number {
  const n = sorted.length;
  return n === 0 ? NaN : (sorted[Math.max(0, Math.floor((p * n + 99) / 100) - 1)] as number);
}

/** Per span name: of the spans of these rows that touch [t0, t1]; virtual lanes are not counted twice. */
export function rangeStats(t: Table, order: Uint32Array, t0: number, t1: number, names: number, attempt: number): NameStats[] {
  const steps = rangeStatsSteps(t, order, t0, t1, names, attempt);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Yields while it counts, for who has frames to draw. */
export function* rangeStatsSteps(t: Table, order: Uint32Array, t0: number, t1: number, names: number, attempt: number): Generator<void, NameStats[]> {
  const n = new Uint32Array(names), points = new Uint32Array(names), open = new Uint32Array(names), merged = new Uint32Array(names);
  const touches = (i: number): boolean => {
    const s = t.start[i] as number;
    return s <= t1 && s + (t.dur[i] as number) >= t0 && (attempt < 0 || t.attempt[i] === attempt);
  };
  for (let k = 0; k < order.length; k++) {
    const r = order[k] as number;
    if (k % 256 === 255) yield;
    for (let i = t.itemFrom[r] as number, e = t.itemFrom[r + 1] as number; i < e; i++) {
      if (!touches(i)) continue;
      const name = t.name[i] as number;
      const state = t.state[i];
      const many = t.count[i] as number;
      if (((t.flags[i] as number) & MERGED) !== 0) merged[name] = (merged[name] as number) + many;
      else if (state === POINT || state === ORPHAN) points[name] = (points[name] as number) + many;
      else if (state === OPEN) open[name] = (open[name] as number) + many;
      else n[name] = (n[name] as number) + many;
    }
  }
  const at = new Uint32Array(names + 1);
  for (let i = 0; i < names; i++) at[i + 1] = (at[i] as number) + (n[i] as number);
  const durations = new Float64Array(at[names] as number);
  const fill = at.slice(0, names);
  for (let k = 0; k < order.length; k++) {
    const r = order[k] as number;
    if (k % 256 === 255) yield;
    for (let i = t.itemFrom[r] as number, e = t.itemFrom[r + 1] as number; i < e; i++) {
      const state = t.state[i];
      if (state === POINT || state === ORPHAN || state === OPEN || ((t.flags[i] as number) & MERGED) !== 0 || !touches(i)) continue;
      const name = t.name[i] as number;
      durations[fill[name] as number] = t.dur[i] as number;
      fill[name] = (fill[name] as number) + 1;
    }
  }
  const out: NameStats[] = [];
  for (let i = 0; i < names; i++) {
    if (!n[i] && !points[i] && !open[i] && !merged[i]) continue;
    yield;
    const d = durations.subarray(at[i], at[i + 1]).sort();
    let sum = d.length > 0 ? 0 : NaN;
    for (let k = 0; k < d.length; k++) sum += d[k] as number;
    out.push({ name: i, n: n[i] as number, points: points[i] as number, open: open[i] as number, merged: merged[i] as number, sum, p50: percentile(d, 50), p99: percentile(d, 99), max: d.length > 0 ? (d[d.length - 1] as number) : NaN });
  }
  return out.sort((a, b) => (b.sum || 0) - (a.sum || 0) || a.name - b.name);
}

const P = PHASE;
const BUSY: Busy[] = (() => {
  const out = new Array<Busy>(32).fill("other");
  const set = (b: Busy, ...classes: number[]) => classes.forEach((c) => (out[c] = b));
  set("queued", QUEUE, P, P + 1, P + 2, P + 5, P + 6, P + 7);
  set("prefill", PREFILL, P + 3);
  set("transfer", P + 4, P + 8);
  set("decode", DECODE, P + 9);
  set("generate", GENERATE);
  set("tools", TOOL);
  set("reward", REWARD);
  set("sync", SYNC);
  set("wait", WAIT);
  return out;
})();

export const busyOf = (c: number): Busy => BUSY[c] ?? "other";

/** What the rows are doing at time t. */
export function statesAt(rows: Rows, f: Flat, order: Uint32Array, t: number): States {
  const out: States = { total: order.length, empty: 0, not_started: 0, ended: 0, queued: 0, prefill: 0, transfer: 0, decode: 0, generate: 0, tools: 0, reward: 0, sync: 0, wait: 0, other: 0 };
  for (let k = 0; k < order.length; k++) {
    const r = order[k] as number;
    const start = rows.start[r] as number;
    if (rows.why[r] !== 0) out.empty++;
    else if (t < start) out.not_started++;
    else if (t >= start + (rows.dur[r] as number)) out.ended++;
    else {
      const s = flatAt(f, r, t);
      out[s < 0 ? "other" : busyOf(f.class[s] as number)]++;
    }
  }
  return out;
}

const WORDS: [keyof States, string][] = [
  ["decode", "decoding"], ["prefill", "prefilling"], ["transfer", "transferring"], ["generate", "generating"], ["tools", "in tools"], ["reward", "in reward"], ["queued", "queued"],
  ["sync", "in weight sync"], ["wait", "waiting"], ["other", "in other work or between spans"], ["not_started", "not started"], ["ended", "ended"], ["empty", "without trace"],
];

/** "214 decoding · 9 prefilling · 1,791 ended": what is not zero, in a fixed order. */
export function statesText(s: States, number: (n: number) => string): string {
  return WORDS.filter(([k]) => s[k] > 0).map(([k, w]) => `${number(s[k])} ${w}`).join(" · ");
}
