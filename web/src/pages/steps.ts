// The steps of a run as bars on a plot: which step lies where, and what stands at its sides. Pure; painted
// by stepschart.tsx.
import type * as api from "../api/types";
import { parseApiTime } from "../format/time";

/** What one bar or one point of the chart is about. */
export interface StepBar {
  /** index into the steps of the step that is shown; where many fall on a pixel, the one with the largest value */
  step: number;
  /** how many steps fall here */
  count: number;
  x: number;
  width: number;
  /** null: unknown or idle */
  value: number | null;
  reason: string;
}

/** The number of a step that the chart is about. */
export function stepNumber(s: api.Step, metric: string): api.Number {
  if (metric === "") return s.wall_seconds;
  return s.values[metric] ?? { value: null, state: "unknown", reason: "the step does not have it" };
}

/** Where a step stands on the axis: its id, or the middle of its time; NaN when it has no time. */
export function place(s: api.Step, axis: "step" | "time"): number {
  if (axis === "step") return s.id;
  const [from, to] = [parseApiTime(s.start), parseApiTime(s.end)];
  return (from + to) / 2;
}

/** Bars of steps in width pixels. Steps that share a pixel become one bar with the largest value, so that a slow one is never hidden. */
export function bars(steps: readonly api.Step[], metric: string, axis: "step" | "time", width: number): { bars: StepBar[]; min: number; max: number } {
  const at = steps.map((s) => place(s, axis));
  let min = Infinity;
  let max = -Infinity;
  for (const x of at) {
    if (x < min) min = x;
    if (x > max) max = x;
  }
  if (!(max >= min) || width <= 0) return { bars: [], min: 0, max: 1 };
  // Half a bar of room at both ends. Over time the bars are as wide as steps are long.
  const room = axis === "step" ? 0.5 : Math.max(1, (max - min) / Math.max(2, 2 * (steps.length - 1)));
  const scale = width / (max - min + 2 * room);
  const slot = axis === "step" ? scale : Math.max(1, width / steps.length);
  const wide = Math.max(1, Math.min(28, slot - (slot >= 4 ? 2 : 0)));
  const out: StepBar[] = [];
  steps.forEach((s, i) => {
    const middle = at[i] as number;
    if (!Number.isFinite(middle)) return;
    const x = (middle - min + room) * scale - wide / 2;
    const n = stepNumber(s, metric);
    const last = out[out.length - 1];
    if (last && x - last.x < Math.max(1, wide * 0.5)) {
      last.count++;
      if (n.value !== null && (last.value === null || n.value > last.value)) Object.assign(last, { step: i, value: n.value, reason: "" });
      return;
    }
    out.push({ step: i, count: 1, x, width: wide, value: n.value, reason: n.reason ?? n.state });
  });
  return { bars: out, min: min - room, max: max + room };
}

/** The bar under a pixel, or the nearest within reach; -1 without one. */
export function barAt(list: readonly StepBar[], x: number, reach = 8): number {
  let best = -1;
  let distance = reach;
  list.forEach((b, i) => {
    const d = x < b.x ? b.x - x : x > b.x + b.width ? x - b.x - b.width : 0;
    if (d < distance || (d === 0 && best < 0)) {
      best = i;
      distance = d;
    }
  });
  return best;
}

/** One row of a comparison of two steps. */
export interface Compared {
  key: string;
  unit: string;
  a: api.Number | undefined;
  b: api.Number | undefined;
  /** b - a, null when either is no value */
  change: number | null;
  /** (b - a) / |a|, null when a is 0 or there is no change to speak of */
  share: number | null;
}

/** The metrics of two steps side by side, in the order of the first, then what only the second has. */
export function compare(a: api.StepDetail, b: api.StepDetail): Compared[] {
  const other = new Map(b.metrics.map((m) => [m.key, m]));
  const row = (key: string, unit: string, x: api.Number | undefined, y: api.Number | undefined): Compared => {
    const [v, w] = [x?.value ?? null, y?.value ?? null];
    const change = v === null || w === null ? null : w - v;
    return { key, unit, a: x, b: y, change, share: change === null || v === null || v === 0 ? null : change / Math.abs(v) };
  };
  const rows = a.metrics.map((m) => {
    const o = other.get(m.key);
    other.delete(m.key);
    return row(m.key, m.unit, m.value, o?.value);
  });
  for (const m of other.values()) rows.push(row(m.key, m.unit, undefined, m.value));
  return rows;
}

/** The id of the step before or after, in the order of the list; undefined at the end. */
export function neighbour(steps: readonly api.Step[], id: number, by: number): number | undefined {
  const i = steps.findIndex((s) => s.id === id);
  return i < 0 ? undefined : steps[i + by]?.id;
}

/** Parts of a wall time and the words for them, in the order in which a request lives through them. */
export const PARTS: Record<string, { label: string; color: string; hatch?: boolean }> = {
  queue: { label: "queue", color: "--ph-queue" },
  prefill: { label: "prefill", color: "--ph-p-forward" },
  transfer: { label: "transfer", color: "--ph-d-transfer" },
  decode: { label: "decode", color: "--ph-d-forward" },
  generate: { label: "generation, not broken down", color: "--ph-d-bootstrap" },
  tool: { label: "tools", color: "--ph-tool" },
  reward: { label: "reward", color: "--ph-reward" },
  other: { label: "other spans", color: "--s7" },
  gap: { label: "between spans", color: "--ph-wait" },
  straggler: { label: "waiting for stragglers", color: "--ph-wait", hatch: true },
  sync: { label: "weight sync", color: "--ph-sync" },
  unexplained: { label: "unexplained", color: "--hatch" },
};
