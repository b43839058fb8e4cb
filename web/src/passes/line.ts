// A model's line as the cloud shows it: seconds over one of its features, the others held at what is usual. Pure.
import type * as api from "../api/types";
import { brief, median } from "../format/number";
import { DECODE, MIXED, PREFILL, type Field, type PassSet } from "./ring";
import { featureUnit } from "./words";

const FIELD: Record<string, Field> = { sum_prefill_tokens: "prefillTokens", num_decode_requests: "decodeRequests", sum_decode_kv_tokens: "decodeKV" };
/** The counted field of a model's feature. */
export const fieldOf = (feature: string): Field | undefined => FIELD[feature];

/** The planner never predicts less, seconds. */
const LEAST = 1e-6;

/** What a fit predicts, seconds; null when it has no line. */
export function evaluate(fit: api.PassFit, x: readonly number[]): number | null {
  const n = fit.features?.length ?? 0;
  if (fit.state !== "fitted" || n === 0 || (fit.coef ?? []).length !== n || x.length !== n) return null;
  return Math.max(LEAST, fit.coef.reduce((sum, c, i) => sum + c * (x[i] as number), fit.intercept_seconds));
}

export interface LinePart {
  points: [number, number][];
  /** beyond all that was seen */
  outside: boolean;
}

/**
 * The line over feature number i from x = lo to hi, the others at their place in rest; whole parts inside the
 * range of the samples, others beyond it. Empty when there is no line.
 */
export function linePartsOf(fit: api.PassFit, i: number, rest: readonly number[], lo: number, hi: number): LinePart[] {
  const at = (x: number): number | null => evaluate(fit, (fit.features ?? []).map((_, k) => (k === i ? x : (rest[k] ?? 0))));
  const range = fit.range?.[i];
  const a = range?.[0] ?? lo, b = range?.[1] ?? hi;
  const cuts = [lo, Math.min(hi, Math.max(lo, a)), Math.min(hi, Math.max(lo, b)), hi];
  const out: LinePart[] = [];
  for (let k = 0; k < 3; k++) {
    const [from, to] = [cuts[k] as number, cuts[k + 1] as number];
    if (to <= from) continue;
    const points: [number, number][] = [];
    // The floor bends the line: a few points show it.
    for (let s = 0; s <= 8; s++) {
      const x = from + ((to - from) * s) / 8, y = at(x);
      if (y === null) return [];
      points.push([x, y]);
    }
    out.push({ points, outside: k !== 1 });
  }
  return out;
}

/** Whether two fits say something else by more than share of it anywhere in a range. */
export function differ(a: api.PassFit, b: api.PassFit, i: number, rest: readonly number[], lo: number, hi: number, share = 0.02): boolean {
  for (const x of [lo, (lo + hi) / 2, hi]) {
    const at = (f: api.PassFit) => evaluate(f, (f.features ?? []).map((_, k) => (k === i ? x : (rest[k] ?? 0))));
    const [p, q] = [at(a), at(b)];
    if (p === null || q === null) return false;
    if (Math.abs(p - q) > share * Math.max(p, q)) return true;
  }
  return false;
}

export interface Cloud {
  /** the feature */
  x: number[];
  /** seconds */
  y: number[];
  key: string[];
  time: number[];
  /** of each feature, over the points */
  medians: number[];
  /** passes that fit, of which these are the newest */
  all: number;
}

/** The newest passes of some ranks as points; what has no time or is not of the role is left out. */
export function cloudOf(set: PassSet, keep: (key: string) => boolean, role: string, features: readonly string[], x: string, from: number, to: number, most: number): Cloud {
  const wanted = features.map((f) => FIELD[f]).filter((f): f is Field => f !== undefined);
  const field = FIELD[x] ?? wanted[0] ?? "prefillTokens";
  const fits = (kind: number) => (role === "prefill" ? kind === PREFILL || kind === MIXED : role === "decode" ? kind === DECODE || kind === MIXED : kind === PREFILL || kind === DECODE || kind === MIXED);
  const rows = [...set.rows.values()].filter((r) => keep(r.key));
  const out: Cloud = { x: [], y: [], key: [], time: [], medians: [], all: 0 };
  const per = Math.max(1, Math.floor(most / Math.max(1, rows.length)));
  const columns: number[][] = wanted.map(() => []);
  for (const r of rows) {
    let taken = 0;
    for (let p = r.ring.end - 1; p >= r.ring.begin; p--) {
      const t = r.ring.timeAt(p);
      if (t < from) break;
      if (t > to || !fits(r.ring.kindAt(p)) || r.ring.wallAt(p) <= 0) continue;
      out.all++;
      if (taken++ >= per) continue;
      out.x.push(r.ring.valueAt(p, field));
      out.y.push(r.ring.wallAt(p) / 1000);
      out.key.push(r.key);
      out.time.push(t);
      wanted.forEach((f, i) => columns[i]?.push(r.ring.valueAt(p, f)));
    }
  }
  out.medians = columns.map((v) => (v.length > 0 ? median(v) : 0));
  return out;
}

/** "11.2 ms + 0.041 ms × tokens": small steps are told per thousand. */
export function formula(fit: api.PassFit): string {
  const parts = (fit.coef ?? []).map((c, i) => {
    const unit = featureUnit((fit.features ?? [])[i] ?? ""), each = unit === "requests" ? 1 : 1000;
    const what = unit === "requests" ? "request" : (fit.features?.[i] === "sum_decode_kv_tokens" ? "k KV tokens" : "k tokens");
    return `${brief(c * 1000 * each)} ms × ${what}`;
  });
  return [`${brief(fit.intercept_seconds * 1000)} ms`, ...parts].join(" + ").replace(/\+ −/g, "− ");
}
