// The steps of a run as bars on a plot: which step lies where, and what stands at its sides. Pure; painted
// by stepschart.tsx.
import type * as api from "../api/types";
import { median } from "../format/number";
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

/** Where a step begins and ends on the axis: around its id, or its time; NaN when it has none. */
export function place(s: api.Step, axis: "step" | "time"): [number, number] {
  return axis === "step" ? [s.id - 0.5, s.id + 0.5] : [parseApiTime(s.start), parseApiTime(s.end)];
}

/** The widest place of one step in pixels: a young run grows from the left instead of being blown up. */
const SLOT = 44;

export interface Laid {
  bars: StepBar[];
  /** what the plot covers: ids, or milliseconds */
  min: number;
  max: number;
  /** pixels from the left that steps take; the rest is room for those to come */
  used: number;
}

/**
 * Bars of steps in width pixels: over ids of equal width, over time as wide as the step was long. Steps
 * that share a pixel become one bar with the largest value, so that a slow one is never hidden.
 */
export function bars(steps: readonly api.Step[], metric: string, axis: "step" | "time", width: number): Laid {
  const at = steps.map((s, i) => ({ i, span: place(s, axis) })).filter(({ span: [a, b] }) => b >= a);
  at.sort((a, b) => a.span[0] - b.span[0]);
  let min = Infinity;
  let max = -Infinity;
  for (const { span: [a, b] } of at) {
    if (a < min) min = a;
    if (b > max) max = b;
  }
  if (!(max >= min) || width <= 0) return { bars: [], min: 0, max: 1, used: 0 };
  if (max === min) max = min + 1;
  if (axis === "step") max = Math.max(max, min + width / SLOT);
  const scale = width / (max - min);
  const out: StepBar[] = [];
  let used = 0;
  for (const { i, span: [a, b] } of at) {
    const slot = (b - a) * scale;
    const gap = slot < 4 ? 0 : axis === "time" ? 1 : Math.max(2, slot * 0.14);
    const x = (a - min) * scale + gap / 2;
    const wide = Math.max(1, slot - gap);
    const n = stepNumber(steps[i] as api.Step, metric);
    used = Math.max(used, x + wide);
    const last = out[out.length - 1];
    if (last && x - last.x < 1) {
      last.count++;
      last.width = Math.max(last.width, x + wide - last.x);
      if (n.value !== null && (last.value === null || n.value > last.value)) Object.assign(last, { step: i, value: n.value, reason: "" });
      continue;
    }
    out.push({ step: i, count: 1, x, width: wide, value: n.value, reason: n.reason ?? n.state });
  }
  return { bars: out, min, max, used };
}

/**
 * Steps of a course that was given up: they had ended before a step with a lower id began, so the run went
 * back to a checkpoint and has not come as far again. Their ids.
 */
export function superseded(steps: readonly api.Step[]): Set<number> {
  const out = new Set<number>();
  let began = -Infinity;
  for (const s of [...steps].sort((a, b) => a.id - b.id)) {
    const [from, to] = [parseApiTime(s.start), parseApiTime(s.end)];
    if (to < began) out.add(s.id);
    else if (from > began) began = from;
  }
  return out;
}

/** The median of what is known of a metric over the steps; null under three values. */
export function middle(steps: readonly api.Step[], metric: string): number | null {
  const known = steps.map((s) => stepNumber(s, metric).value).filter((v): v is number => v !== null);
  return known.length < 3 ? null : median(known);
}

/** What can be drawn over steps of a kind: an evaluation has its own keys and its own axis. */
export function curvesOf(curves: readonly api.Curve[], kind: "train" | "eval"): api.Curve[] {
  return curves.filter((c) => (c.axis === "eval/step") === (kind === "eval"));
}

/** The bar under a pixel, or the nearest within reach; -1 without one. */
export function barAt(list: readonly StepBar[], x: number, reach = 8): number {
  let best = -1;
  let distance = reach;
  list.forEach((b, i) => {
    const d = x < b.x ? b.x - x : x > b.x + b.width ? x - b.x - b.width : 0;
    if (d < distance || d === 0) { // of bars that overlap the one on top
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
