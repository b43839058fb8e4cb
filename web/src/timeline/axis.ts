// Time and pixels: the axis of a view, the squeezing of idle gaps, and the ruler's ticks.

/** Idle stretches that are drawn squeezed: [from, to) pairs, sorted; each takes `shown` instead of its length. */
export interface Gaps {
  from: Float64Array;
  to: Float64Array;
  /** how much of the squeezed time each gap takes */
  shown: number;
}

export const NO_GAPS: Gaps = { from: new Float64Array(0), to: new Float64Array(0), shown: 0 };

/** Time as it lies on the axis: gaps squeezed. Monotone. */
export function squeeze(g: Gaps, t: number): number {
  let cut = 0;
  for (let i = 0; i < g.from.length; i++) {
    const a = g.from[i] as number, b = g.to[i] as number;
    if (t <= a) break;
    if (t < b) return a - cut + ((t - a) / (b - a)) * g.shown;
    cut += b - a - g.shown;
  }
  return t - cut;
}

export function unsqueeze(g: Gaps, u: number): number {
  let cut = 0;
  for (let i = 0; i < g.from.length; i++) {
    const a = g.from[i] as number, b = g.to[i] as number;
    const ua = a - cut;
    if (u <= ua) break;
    if (u < ua + g.shown) return a + ((u - ua) / g.shown) * (b - a);
    cut += b - a - g.shown;
  }
  return u + cut;
}

/** Where an axis of so many pixels shows [t0, t1]. */
export class Axis {
  private u0: number;
  private k: number;
  readonly plain: boolean;
  constructor(readonly t0: number, readonly t1: number, readonly width: number, readonly gaps: Gaps = NO_GAPS) {
    this.plain = gaps.from.length === 0;
    this.u0 = this.plain ? t0 : squeeze(gaps, t0);
    const u1 = this.plain ? t1 : squeeze(gaps, t1);
    this.k = u1 > this.u0 ? width / (u1 - this.u0) : 0;
  }
  x(t: number): number {
    return ((this.plain ? t : squeeze(this.gaps, t)) - this.u0) * this.k;
  }
  t(x: number): number {
    const u = this.u0 + (this.k > 0 ? x / this.k : 0);
    return this.plain ? u : unsqueeze(this.gaps, u);
  }
  /** pixels of one microsecond outside of gaps */
  get scale(): number {
    return this.k;
  }
}

/**
 * Gaps from the coverage of the extent in equal columns: runs of idle columns that are at least share of the
 * whole. Each is kept a little away from what lies around it.
 */
export function gapsOf(covered: Uint8Array, from: number, to: number, share = 0.04): Gaps {
  const n = covered.length;
  const step = (to - from) / n;
  const a: number[] = [], b: number[] = [];
  for (let i = 0; i < n; ) {
    if (covered[i] !== 0) {
      i++;
      continue;
    }
    let j = i;
    while (j < n && covered[j] === 0) j++;
    // Idle time before the first and after the last span is no gap between two parts.
    if (i > 0 && j < n && j - i >= Math.max(3, n * share)) {
      a.push(from + (i + 1) * step);
      b.push(from + (j - 1) * step);
    }
    i = j;
  }
  if (a.length === 0) return NO_GAPS;
  let idle = 0;
  for (let i = 0; i < a.length; i++) idle += (b[i] as number) - (a[i] as number);
  const shown = Math.max(0, (to - from - idle) * 0.015);
  return { from: Float64Array.from(a), to: Float64Array.from(b), shown };
}

const SECOND = 1e6;
const STEPS = (() => {
  const out: number[] = [];
  for (let d = 1; d < SECOND; d *= 10) out.push(d, 2 * d, 5 * d);
  for (const unit of [SECOND, 60 * SECOND]) for (const m of [1, 2, 5, 10, 15, 30]) out.push(m * unit);
  for (const h of [1, 2, 3, 6, 12, 24, 48, 120, 240, 480, 960, 2400, 4800, 9600, 24000, 96000]) out.push(h * 3600 * SECOND);
  return out;
})();

export interface Tick {
  /** microseconds from the origin */
  at: number;
  major: boolean;
  label: string;
}

/** The step of labelled ticks for a scale, at least gap pixels apart; microseconds. */
export function tickStep(pxPerUs: number, gap = 64): number {
  return STEPS.find((s) => s * pxPerUs >= gap) ?? (STEPS[STEPS.length - 1] as number);
}

const MINOR: Record<number, number> = { 1: 5, 2: 4, 5: 5, 10: 5, 15: 3, 30: 3 };

/** Minor ticks for each major one. */
function parts(step: number): number {
  if (step < 2) return 1;
  for (const unit of [3600 * SECOND, 60 * SECOND, SECOND]) if (step >= unit && step % unit === 0) return MINOR[step / unit] ?? 4;
  const lead = Number(String(step)[0]);
  return lead === 1 ? 5 : lead === 2 ? 4 : 5;
}

/** Round ticks from a to b (microseconds from the origin) for so many pixels per microsecond. */
export function ticks(a: number, b: number, pxPerUs: number, gap = 64): Tick[] {
  if (!(b > a) || !(pxPerUs > 0)) return [];
  const step = tickStep(pxPerUs, gap);
  const n = parts(step);
  const minor = step / n;
  const out: Tick[] = [];
  const first = Math.ceil(a / minor - 1e-9), last = Math.floor(b / minor + 1e-9);
  if (last - first > 4000) return out;
  const big = Math.max(Math.abs(a), Math.abs(b));
  for (let i = first; i <= last; i++) {
    const major = i % n === 0;
    const at = i * minor;
    out.push({ at, major, label: major ? tickLabel(at, step, big) : "" });
  }
  return out;
}

/** A tick's label: as many decimals as the step needs, min:s when the axis reaches a minute. */
function tickLabel(at: number, step: number, big: number): string {
  return clockTime(at, decimalsOf(step), big >= 60 * SECOND);
}

/** Decimals of seconds that tell steps of so many microseconds apart. */
export function decimalsOf(step: number): number {
  for (let d = 0; d < 6; d++) if (step % 10 ** (6 - d) === 0 || step >= 10 ** (6 - d)) return step % 10 ** (6 - d) === 0 ? d : Math.min(6, d + 1);
  return 6;
}

/** A time from the origin: "12.5 s", "6:12.0", "1:02:03"; rounded once, so never 4:60. */
export function clockTime(us: number, decimals: number, clock: boolean): string {
  const sign = us < 0 && Math.round(us / 10 ** (6 - decimals)) !== 0 ? "−" : "";
  const scale = 10 ** decimals;
  const all = Math.round((Math.abs(us) / SECOND) * scale);
  const seconds = Math.floor(all / scale);
  const fraction = decimals > 0 ? "." + String(all % scale).padStart(decimals, "0") : "";
  if (!clock) {
    if (decimals >= 3) return `${sign}${group(Math.round(Math.abs(us) / 10 ** (6 - decimals)) * 10 ** (6 - decimals) / 1000, decimals - 3)} ms`;
    return `${sign}${group(seconds, 0)}${fraction} s`;
  }
  const s = String(seconds % 60).padStart(2, "0");
  const min = Math.floor(seconds / 60);
  if (min < 60) return `${sign}${min}:${s}${fraction}`;
  return `${sign}${Math.floor(min / 60)}:${String(min % 60).padStart(2, "0")}:${s}${fraction}`;
}

function group(v: number, decimals: number): string {
  const s = v.toFixed(decimals);
  const dot = s.indexOf(".");
  const whole = dot < 0 ? s : s.slice(0, dot);
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (dot < 0 ? "" : s.slice(dot));
}

/** A length of time: µs, ms up to 9,999 ms, then s, then min:s. */
export function length(us: number): string {
  if (!Number.isFinite(us)) return "–";
  const a = Math.abs(us);
  const sign = us < 0 ? "−" : "";
  if (a === 0) return "0 s";
  if (a < 100) return `${sign}${group(a, a < 10 && a % 1 !== 0 ? 1 : 0)} µs`;
  if (a < 9_999_500) {
    const ms = a / 1000;
    return `${sign}${group(ms, ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0)} ms`;
  }
  if (a < 599_950_000) return `${sign}${group(a / SECOND, 1)} s`;
  return sign + clockTime(a, 0, true);
}

/** A time from the origin with all the exactness that so many pixels per microsecond show. */
export function exactTime(us: number, pxPerUs: number, big: number): string {
  const perPx = pxPerUs > 0 ? 1 / pxPerUs : 1;
  let d = 0;
  while (d < 6 && 10 ** (6 - d) > perPx * 1.001) d++;
  return clockTime(us, d, big >= 60 * SECOND);
}

/** The wall clock of t0 (ns, text) plus microseconds: "2026-08-17 12:13:20.019 UTC". */
export function wallClock(t0: string, us: number, decimals = 3): string {
  let ns: bigint;
  try {
    ns = BigInt(t0 || "0") + BigInt(Math.round(us)) * 1000n;
  } catch {
    return "unknown";
  }
  const ms = Number(ns / 1_000_000n);
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return "unknown";
  const iso = d.toISOString();
  const micros = String(Number(((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n)).padStart(9, "0").slice(0, Math.max(3, decimals));
  return `${iso.slice(0, 10)} ${iso.slice(11, 19)}.${micros} UTC`;
}
