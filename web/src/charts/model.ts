// What a chart shows, apart from how it is painted: lines on a common grid, where nothing is known or
// nothing happened, and the axis that follows from it. Pure; painted by plot.tsx.
import type * as api from "../api/types";
import type { RangeResult } from "../api/prom";
import { legend, seriesNames } from "../api/prom";
import { allWhole, format, median, scaleFor, withUnit, type Scale } from "../format/number";
import { parseApiTime } from "../format/time";
import { valueAxis, type Axis } from "./ticks";

export interface ChartLine {
  name: string;
  /** on the grid of the chart; null where there is no value */
  values: (number | null)[];
  /** token of its colour: "--s1" */
  color: string;
  dash?: number[];
  now: api.Number;
  /** a value equal to it means "or more" */
  top?: number;
  /** id of the engine it belongs to, for links */
  engine?: string;
  /** host:port of the engine whose numbers these are, where they are of one */
  instance?: string;
}

export interface Span {
  from: number;
  to: number;
  label: string;
}

export interface Threshold {
  value: number;
  label: string;
  level: "warn" | "crit";
}

export interface ChartModel {
  title: string;
  /** milliseconds; point i lies at from + i × step */
  from: number;
  to: number;
  step: number;
  lines: ChartLine[];
  /** lowest and highest of the lines that are not drawn */
  rest?: { count: number; low: (number | null)[]; high: (number | null)[] };
  /** could not be read; label is the reason */
  unknown: Span[];
  /** no events */
  idle: Span[];
  /** bands behind the data: when recording paused */
  marks: Span[];
  thresholds: Threshold[];
  scale: Scale;
  axis: Axis;
  /** the whole chart is a state and has no number anywhere */
  state: api.State;
  reason: string;
}

/** How lines are told apart: colour in order, a dash from the fifth on. */
export function stroke(i: number): { color: string; dash?: number[] } {
  const n = ((i % 8) + 8) % 8;
  const dash = n >= 6 ? [2, 2] : n >= 4 ? [5, 2] : undefined;
  return dash ? { color: `--s${n + 1}`, dash } : { color: `--s${n + 1}` };
}

/** Colours of entities on one page: of each kind (engines, roles) the first that asks is s1, and each keeps its own. */
export class Palette {
  private readonly kinds = new Map<string, Map<string, number>>();
  of(kind: string, entity: string): { color: string; dash?: number[] } {
    const order = this.kinds.get(kind) ?? new Map<string, number>();
    this.kinds.set(kind, order);
    let i = order.get(entity);
    if (i === undefined) {
      i = order.size;
      order.set(entity, i);
    }
    return stroke(i);
  }
}


interface Raw {
  title: string;
  unit: string;
  from: number;
  to: number;
  step: number;
  lines: ChartLine[];
  rest?: ChartModel["rest"];
  unknown?: Span[];
  idle?: Span[];
  marks?: Span[];
  thresholds?: ChartModel["thresholds"];
  min?: number | undefined;
  max?: number | undefined;
}

/** Chooses scale and axis, and works out what the chart as a whole says. */
export function chartModel(raw: Raw): ChartModel {
  const shown: number[] = [];
  for (const l of raw.lines) for (const v of l.values) if (v !== null) shown.push(v);
  for (const v of raw.rest?.high ?? []) if (v !== null) shown.push(v);
  const { top, low } = extent(shown);
  const whole = allWhole(shown);
  // A limit far above the data would press it flat: it is drawn where it is in reach.
  const limits = (raw.thresholds ?? []).map((t) => t.value).filter((v) => shown.length === 0 || v <= 4 * top);
  const hi = raw.max ?? Math.max(top, ...limits);
  const scale = scaleFor(raw.unit, Math.max(hi, -low), whole);
  const share = scale.unit === "%" && raw.max === undefined && shown.every((v) => v >= 0 && v * scale.factor <= 100.0001);
  // Without a number there is no size that ticks could tell.
  const axis: Axis = shown.length > 0 || share || raw.max !== undefined
    ? valueAxis(raw.min ?? low, hi, scale, { share, whole })
    : { min: 0, max: 1, ticks: [0], labels: ["0"] };
  // What was not recorded is a band of its own, and no failure to read.
  let unknown = without(raw.unknown ?? [], raw.marks ?? [], raw.step);
  let idle = raw.idle ?? [];
  let state: api.State = "value";
  let reason = "";
  if (shown.length === 0) {
    const states = raw.lines.map((l) => l.now.state);
    state = states.includes("unknown") || (states.length === 0 && idle.length === 0) ? "unknown" : states.includes("idle") || idle.length ? "idle" : (states[0] ?? "unknown");
    if (raw.lines.length > 0 && states.every((s) => s === "not_applicable")) {
      state = "not_applicable";
      unknown = idle = [];
    }
    reason = raw.lines.find((l) => l.now.state === state)?.now.reason ?? unknown[0]?.label ?? "";
    // The pattern covers the range, so that an empty plot is never mistaken for zero.
    if (state === "unknown" && unknown.length === 0) unknown = [{ from: raw.from, to: raw.to, label: reason || "no data in this range" }];
    if (state === "idle" && idle.length === 0) idle = [{ from: raw.from, to: raw.to, label: "" }];
  }
  return {
    title: raw.title, from: raw.from, to: raw.to, step: raw.step, lines: raw.lines, unknown, idle,
    marks: raw.marks ?? [], thresholds: state === "not_applicable" ? [] : (raw.thresholds ?? []).filter((t) => t.value <= axis.max), scale, axis, state, reason,
    ...(raw.rest ? { rest: raw.rest } : {}),
  };
}

/**
 * Spans without the parts that other spans cover. Slivers go too: a step or the seconds until the second
 * scrape, before which there is no rate.
 */
export function without(spans: Span[], covers: Span[], step: number): Span[] {
  // The first moments after a beginning know no rate and no bucket yet.
  let left = spans.filter((s) => !covers.some((c) => s.from - c.to < 40_000 && s.from >= c.from && s.to - c.to < 40_000));
  for (const c of covers) {
    left = left.flatMap((s) => {
      if (c.to <= s.from || c.from >= s.to) return [s];
      return [{ ...s, to: Math.max(s.from, c.from) }, { ...s, from: Math.min(s.to, c.to) }].filter((p) => p.to - p.from > Math.max(1.5 * step, 20_000));
    });
  }
  return left;
}

/**
 * Lowest and highest value that the axis must hold. A few points far above everything else (fewer than
 * one in fifty, over five times the rest) are left to a caret with their value, so that they do not press
 * the rest flat.
 */
export function extent(values: number[]): { low: number; top: number } {
  if (values.length === 0) return { low: 0, top: 0 };
  const s = [...values].sort((a, b) => a - b);
  const max = s[s.length - 1] as number;
  const low = Math.min(0, s[0] as number);
  const rest = s[Math.floor((s.length - 1) * 0.98)] as number;
  return { low, top: s.length >= 50 && rest > 0 && max > 5 * rest ? rest * 1.15 : max };
}

/** Where one line leaves the axis at the top: the highest point of each such run. */
export function clipped(values: (number | null)[], max: number): { index: number; value: number }[] {
  const out: { index: number; value: number }[] = [];
  let best: { index: number; value: number } | null = null;
  values.forEach((v, index) => {
    if (v !== null && v > max * (1 + 1e-9)) {
      if (!best || v > best.value) best = { index, value: v };
    } else if (best) {
      out.push(best);
      best = null;
    }
  });
  if (best) out.push(best);
  return out;
}

export interface SignalOptions {
  title?: string;
  unit?: string;
  higher?: boolean;
  palette?: Palette;
  marks?: Span[];
  min?: number | undefined;
  max?: number | undefined;
  /** only these lines */
  keep?: (line: api.Line) => boolean;
  /** colour where there is a single line */
  single?: string;
  /** the engine whose line it is, from its labels: id and name */
  engineOf?: ((labels: Record<string, string>) => { id: string; name: string } | undefined) | undefined;
  thresholds?: ChartModel["thresholds"];
  /** lines beside the signal's own: the median of a role */
  extra?: ChartLine[];
}

/** A signal's answer as a chart. */
export function fromSignal(d: api.SignalData, opts: SignalOptions = {}): ChartModel {
  const from = parseApiTime(d.from);
  const step = d.step_seconds * 1000;
  const lines = opts.keep ? d.lines.filter(opts.keep) : d.lines;
  const quantiles = new Set(lines.map((l) => l.quantile ?? -1));
  const several = lines.length > quantiles.size || quantiles.has(-1);
  const all: ChartLine[] = lines.map((l) => ({
    ...named(l, opts, quantiles.size > 1),
    values: l.values,
    now: l.now,
    ...(l.labels["instance"] ? { instance: l.labels["instance"] } : {}),
    ...(typeof l.top_bound === "number" ? { top: l.top_bound } : {}),
    ...(several && lines.length > 1 ? (opts.palette?.of(...entity(l)) ?? stroke(0)) : quantileStroke(l.quantile, opts.single)),
  }));
  const cut = worstSeven(all, opts.higher === true);
  if (!opts.palette && several && lines.length > 1) cut.lines.forEach((l, i) => Object.assign(l, stroke(i)));
  cut.lines = [...cut.lines, ...(opts.extra ?? [])];
  return chartModel({
    title: opts.title ?? d.title,
    unit: opts.unit ?? d.unit,
    from,
    to: parseApiTime(d.to),
    step,
    ...cut,
    // A span names the first and the last point; each point stands for the half step around it.
    unknown: d.unknown.map((u) => ({ from: parseApiTime(u.from) - step / 2, to: parseApiTime(u.to) + step / 2, label: u.reason })),
    idle: d.idle.map((i) => ({ from: parseApiTime(i.from) - step / 2, to: parseApiTime(i.to) + step / 2, label: "" })),
    marks: opts.marks ?? [],
    thresholds: opts.thresholds ?? [],
    min: opts.min,
    max: opts.max,
  });
}

/** Whose line it is: its kind, and its name within that. */
function entity(l: api.Line): [string, string] {
  for (const kind of ["instance", "role", "model"]) if (l.labels[kind]) return [kind, l.labels[kind]];
  return ["line", l.name];
}

/** An engine's line bears its name, with the percentile where there are several. */
function named(l: api.Line, opts: SignalOptions, percentiles: boolean): { name: string; engine?: string } {
  const e = opts.engineOf?.(l.labels);
  if (!e) return { name: l.name };
  const p = l.quantile !== undefined && percentiles ? ` p${+(l.quantile * 100).toPrecision(4)}` : "";
  return { name: e.name + p, engine: e.id };
}

/** p50 is s1 and p99 is s2, everywhere. */
function quantileStroke(q: number | undefined, single = "--s3"): { color: string; dash?: number[] } {
  if (q === undefined) return { color: single };
  if (q === 0.5) return { color: "--s1" };
  if (q === 0.99) return { color: "--s2" };
  return q > 0.99 ? { color: "--s8", dash: [2, 2] } : q > 0.5 ? { color: "--s4" } : { color: "--s6" };
}

/** More than eight lines: the worst seven, and the range of the others. */
export function worstSeven(lines: ChartLine[], higher: boolean): { lines: ChartLine[]; rest?: NonNullable<ChartModel["rest"]> } {
  if (lines.length <= 8) return { lines };
  const size = (l: ChartLine) => {
    const v = l.values.filter((x): x is number => x !== null);
    if (v.length === 0) return higher ? Infinity : -Infinity;
    return v.reduce((a, b) => (higher ? Math.min(a, b) : Math.max(a, b)));
  };
  const order = lines.map((l) => ({ l, s: size(l) })).sort((a, b) => (higher ? a.s - b.s : b.s - a.s)).map((x) => x.l);
  const others = order.slice(7);
  const n = Math.max(...lines.map((l) => l.values.length));
  const low: (number | null)[] = [];
  const high: (number | null)[] = [];
  for (let i = 0; i < n; i++) {
    let lo = Infinity;
    let hi = -Infinity;
    for (const l of others) {
      const v = l.values[i];
      if (typeof v === "number") {
        lo = Math.min(lo, v);
        hi = Math.max(hi, v);
      }
    }
    low.push(lo === Infinity ? null : lo);
    high.push(hi === -Infinity ? null : hi);
  }
  return { lines: order.slice(0, 7), rest: { count: others.length, low, high } };
}

/** The median of lines at each point, where at least two have a value. */
export function medianLine(lines: (number | null)[][]): (number | null)[] {
  const n = Math.max(0, ...lines.map((l) => l.length));
  const out: (number | null)[] = [];
  for (let i = 0; i < n; i++) {
    const at = lines.map((l) => l[i]).filter((v): v is number => typeof v === "number");
    out.push(at.length >= 2 ? median(at) : null);
  }
  return out;
}

/** The answers of a panel's PromQL targets as a chart. */
export function fromRanges(title: string, unit: string, results: { result: RangeResult; legend: string }[], opts: SignalOptions = {}): ChartModel {
  const first = results[0]?.result;
  const lines: ChartLine[] = [];
  const several = results.reduce((n, r) => n + r.result.series.length, 0) > 1;
  for (const { result, legend: template } of results) {
    const names = seriesNames(result.series.map((s) => s.labels));
    for (const [i, s] of result.series.entries()) {
      const name = template ? legend(template, s.labels) : (names[i] ?? "value");
      const last = s.values.at(-1) ?? s.values.at(-2) ?? null;
      lines.push({
        name,
        values: s.values,
        now: last === null ? { value: null, state: "idle" } : { value: last, state: "value" },
        ...(several ? lineStroke(name, s.labels, template, lines.length, opts) : { color: opts.single ?? "--s3" }),
        ...(s.labels["instance"] ? { instance: s.labels["instance"] } : {}),
        ...ownName(name, s.labels, opts),
      });
    }
  }
  const cut = worstSeven(lines, opts.higher === true);
  return chartModel({
    title, unit, from: first?.from ?? 0, to: first?.to ?? 1, step: first?.step ?? 1, ...cut,
    marks: opts.marks ?? [], thresholds: opts.thresholds ?? [], min: opts.min, max: opts.max,
  });
}

/** A line that is named after an instance is that engine's. */
function ownName(name: string, labels: Record<string, string>, opts: SignalOptions): { name?: string; engine?: string } {
  const e = name === labels["instance"] ? opts.engineOf?.(labels) : undefined;
  return e ? { name: e.name, engine: e.id } : {};
}

/** p50 and p99 have their colours; what a label names keeps its own on the page; the rest goes in order. */
function lineStroke(name: string, labels: Record<string, string>, template: string, i: number, opts: SignalOptions): { color: string; dash?: number[] } {
  const p = /^p(\d+(?:\.\d+)?)$/.exec(name);
  if (p) return quantileStroke(Number(p[1]) / 100);
  if (opts.palette && template.includes("{{")) return name === labels["instance"] ? opts.palette.of("instance", name) : opts.palette.of(template, name);
  return stroke(i);
}

/** The index of an instant on the chart's grid, or -1 when it lies outside. */
export function indexAt(m: Pick<ChartModel, "from" | "step" | "lines">, at: number): number {
  const i = Math.round((at - m.from) / m.step);
  const n = Math.max(0, ...m.lines.map((l) => l.values.length));
  return i >= 0 && i < n ? i : -1;
}

/** A line's value at a point, in words: the number, "≥" where it is the top of the histogram, or its absence. */
export function valueText(line: ChartLine, index: number, m: ChartModel): string {
  const v = line.values[index];
  if (typeof v === "number") return (line.top !== undefined && v >= line.top ? "≥ " : "") + format(v, m.scale);
  const t = m.from + index * m.step;
  if (within(m.unknown, t, m.step)) return "unknown";
  if (within(m.idle, t, m.step)) return "idle";
  return "no data";
}

function within(spans: Span[], t: number, step: number): boolean {
  return spans.some((s) => t >= s.from - step / 4 && t <= s.to + step / 4);
}

/** The text of a number with its state, for values outside of charts. */
export function numberText(n: api.Number | undefined, scale: Scale): string {
  if (!n) return "unknown";
  switch (n.state) {
    case "value": {
      if (n.value === null) return "unknown";
      const bound = n.at_least && typeof n.lower === "number" ? n.lower : n.value;
      return (n.at_least ? "≥ " : "") + format(bound, scale);
    }
    case "idle":
      return "idle";
    case "not_applicable":
      return "–";
    default:
      return "unknown";
  }
}

/** What a chart says, read aloud: title, unit, and of each line now, least and most. */
export function describe(m: ChartModel): string {
  const unit = m.scale.unit ? `, ${m.scale.unit}` : "";
  if (m.state !== "value") return `${m.title}${unit}: ${m.state === "idle" ? "idle, no events" : `unknown${m.reason ? `, ${m.reason}` : ""}`}`;
  const parts = m.lines.slice(0, 8).map((l) => {
    const v = l.values.filter((x): x is number => x !== null);
    if (v.length === 0) return `${l.name} ${l.now.state === "idle" ? "idle" : "unknown"}`;
    const now = l.now.state === "value" ? withUnit(l.now.value ?? 0, m.scale) : l.now.state;
    return `${l.name} now ${now}, min ${format(Math.min(...v), m.scale)}, max ${format(Math.max(...v), m.scale)}`;
  });
  return `${m.title}${unit}: ${parts.join("; ")}`;
}


