// A cloud of points: which value lies where, in straight or logarithmic steps, and which point is near.
// Pure; painted by scatterplot.tsx.
import { format, scaleFor, typical, allWhole, type Scale } from "../format/number";
import { valueAxis } from "./ticks";

export interface ScatterAxis {
  min: number;
  max: number;
  log: boolean;
  ticks: { at: number; label: string }[];
  scale: Scale;
}

/** The axis over numbers: from 0 to a round tick, or whole decades. Nothing is cut off: the far points are what one looks for. */
export function scatterAxis(values: readonly (number | null)[], unit: string, log: boolean): ScatterAxis {
  let low = Infinity, high = -Infinity, small = Infinity;
  for (const v of values) {
    if (v === null) continue;
    if (v < low) low = v;
    if (v > high) high = v;
    if (v > 0 && v < small) small = v;
  }
  const some = high >= low;
  const scale = scaleFor(unit, some ? Math.max(Math.abs(high), Math.abs(low)) : 1, some && allWhole(values));
  if (log && small < Infinity && high > 0) {
    const from = Math.floor(Math.log10(small) + 1e-9), to = Math.max(from + 1, Math.ceil(Math.log10(high) - 1e-9));
    // Words of one scale would be 0.00 at the low end: each tick has its own.
    const own = scaleFor(unit, typical(values) || 1);
    const steps = to - from <= 2 ? [1, 2, 5] : [1];
    const ticks: ScatterAxis["ticks"] = [];
    for (let d = from; d <= to; d++) {
      for (const m of steps) {
        const at = m * 10 ** d;
        if (at <= 10 ** to * 1.0001) ticks.push({ at, label: tickText(at * own.factor) });
      }
    }
    return { min: 10 ** from, max: 10 ** to, log: true, ticks, scale: own };
  }
  const a = valueAxis(some ? low : 0, some ? high : 1, scale, { whole: some && allWhole(values) });
  return { min: a.min, max: a.max, log: false, ticks: a.ticks.map((at, i) => ({ at, label: a.labels[i] ?? format(at, scale) })), scale };
}

function tickText(v: number): string {
  return v >= 1000 ? v.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",") : String(+v.toPrecision(3));
}

/** Where a value lies between 0 and 1; NaN when it has no place (0 on a logarithmic axis). */
export function placeOn(a: Pick<ScatterAxis, "min" | "max" | "log">, v: number | null): number {
  if (v === null || !Number.isFinite(v)) return NaN;
  if (!a.log) return (v - a.min) / (a.max - a.min);
  return v > 0 ? Math.max(0, Math.log(v / a.min) / Math.log(a.max / a.min)) : NaN;
}

/** The value at a place between 0 and 1. */
export function valueAt(a: Pick<ScatterAxis, "min" | "max" | "log">, p: number): number {
  return a.log ? a.min * (a.max / a.min) ** p : a.min + p * (a.max - a.min);
}

/** The point nearest to a pixel within reach; -1 when none is. */
export function nearest(px: Float32Array, py: Float32Array, x: number, y: number, reach = 10): number {
  let best = -1, d = reach * reach;
  for (let i = 0; i < px.length; i++) {
    const dx = (px[i] as number) - x, dy = (py[i] as number) - y;
    const q = dx * dx + dy * dy;
    if (q <= d) {
      d = q;
      best = i;
    }
  }
  return best;
}

/** The most of the values, in the order in which they first stand; the rest is one. */
export function categories(values: readonly string[], most = 8): { names: string[]; of: Uint8Array; counts: number[] } {
  const count = new Map<string, number>();
  for (const v of values) count.set(v, (count.get(v) ?? 0) + 1);
  let names = [...count.keys()].sort((a, b) => (a < b ? -1 : 1));
  if (names.length > most) {
    const big = new Set([...names].sort((a, b) => (count.get(b) ?? 0) - (count.get(a) ?? 0)).slice(0, most - 1));
    names = [...names.filter((n) => big.has(n)), OTHERS];
  }
  const at = new Map(names.map((n, i) => [n, i]));
  const of = Uint8Array.from(values, (v) => at.get(v) ?? names.length - 1);
  const counts = names.map(() => 0);
  for (const c of of) counts[c] = (counts[c] ?? 0) + 1;
  return { names, of, counts };
}
export const OTHERS = "others";
