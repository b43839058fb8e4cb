// Round ticks: where the lines of a grid lie and what stands at them.
import { DAY, HOUR, MINUTE, SECOND, clock, day } from "../format/time";
import { decimalsFor, format, grouped, type Scale } from "../format/number";

export interface Axis {
  min: number;
  max: number;
  /** in the values' own unit */
  ticks: number[];
  labels: string[];
}

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400,
  2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400, 91 * 86400, 364 * 86400,
].map((s) => s * SECOND);

const CLOCK_STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** The smallest round step that covers span in at most 5 parts: 3 to 5 parts, so 4 to 6 ticks. */
function roundStep(span: number, whole: boolean): number {
  const raw = span / 5;
  const mag = 10 ** Math.floor(Math.log10(raw));
  for (const m of [1, 2, 2.5, 4, 5, 10]) {
    const step = m * mag;
    if (step >= raw * (1 - 1e-9) && (!whole || Number.isInteger(step))) return step;
  }
  return whole ? Math.max(1, Math.ceil(raw)) : 10 * mag;
}

/**
 * The axis for values from lo to hi, written in a scale. It starts at 0 unless there are negative values,
 * and ends at a round tick at or above hi. A share always goes from 0 to 100 %.
 */
export function valueAxis(lo: number, hi: number, scale: Scale, opts: { share?: boolean; whole?: boolean } = {}): Axis {
  if (opts.share) {
    const top = 1 / (scale.factor / 100);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((t) => t * top);
    return { min: 0, max: top, ticks, labels: ticks.map((t) => grouped(t * scale.factor, 0)) };
  }
  const min = Math.min(0, lo) * scale.factor;
  let max = Math.max(0, hi) * scale.factor;
  if (!(max > min)) max = min + 1;
  // Integer steps only where integers can be told apart.
  const whole = opts.whole === true && scale.factor === 1;
  const step = scale.clock ? (CLOCK_STEPS.find((s) => s * 5 >= max - min) ?? Math.ceil((max - min) / 5 / 86400) * 86400) : roundStep(max - min, whole);
  const first = Math.floor(min / step + 1e-9);
  const last = Math.max(first + 1, Math.ceil(max / step - 1e-9));
  const decimals = tickDecimals(step);
  const ticks: number[] = [];
  const labels: string[] = [];
  for (let i = first; i <= last; i++) {
    ticks.push((i * step) / scale.factor);
    labels.push(scale.clock ? format((i * step) / scale.factor, scale) : grouped(i * step, decimals));
  }
  return { min: (first * step) / scale.factor, max: (last * step) / scale.factor, ticks, labels };
}

function tickDecimals(step: number): number {
  for (let d = 0; d < 6; d++) {
    const scaled = step * 10 ** d;
    if (Math.abs(scaled - Math.round(scaled)) < 1e-9 * Math.max(1, scaled)) return d;
  }
  return decimalsFor(step);
}

export interface TimeTick {
  at: number;
  label: string;
}

/** Round UTC instants of a window that is width pixels wide, at least gap pixels apart. */
export function timeTicks(from: number, to: number, width: number, gap = 90): TimeTick[] {
  const span = to - from;
  if (!(span > 0) || width <= 0) return [];
  const most = Math.max(1, Math.floor(width / gap));
  const step = TIME_STEPS.find((s) => span / s <= most) ?? Math.ceil(span / most / DAY) * DAY;
  const out: TimeTick[] = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) out.push({ at: t, label: tickLabel(t, step, span) });
  return out;
}

function tickLabel(t: number, step: number, span: number): string {
  if (step >= DAY) return day(t);
  if (t % DAY === 0 && span > 6 * HOUR) return day(t);
  return clock(t, step < MINUTE);
}
