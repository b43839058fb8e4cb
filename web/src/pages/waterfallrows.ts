// The rows of a waterfall: which spans are shown, where their bars lie in the part that is looked at, which
// match a search. Pure; drawn by waterfall.tsx.
import type * as api from "../api/types";
import { classToken } from "../charts/phases";
import { stroke } from "../charts/model";

export interface Part {
  /** seconds after the trace's start */
  from: number;
  to: number;
}

/** Reads and writes the part that is looked at, in ms. */
export function readPart(text: string, whole: Part): Part {
  const m = /^(-?[\d.]+)-(-?[\d.]+)$/.exec(text);
  const [from, to] = [Number(m?.[1]) / 1000, Number(m?.[2]) / 1000];
  return m && to > from ? { from: Math.max(whole.from, from), to: Math.min(whole.to, to) } : whole;
}

export function writePart(p: Part, whole: Part): string {
  const eps = (whole.to - whole.from) * 1e-6;
  if (p.from <= whole.from + eps && p.to >= whole.to - eps) return "";
  return `${+(p.from * 1000).toFixed(4)}-${+(p.to * 1000).toFixed(4)}`;
}

/** All that the spans cover: children may end after the root, or begin before it. */
export function wholeOf(d: Pick<api.TraceDetail, "spans" | "duration_seconds">): Part {
  let from = 0, to = d.duration_seconds;
  for (const s of d.spans) {
    from = Math.min(from, s.start_seconds);
    to = Math.max(to, s.start_seconds + s.duration_seconds);
  }
  return { from, to: to > from ? to : from + 1e-6 };
}

export interface Row {
  /** place in the list of spans */
  at: number;
  span: api.TraceSpan;
  /** spans below it, all of them */
  below: number;
  closed: boolean;
}

/** Places of folded spans as the URL holds them. */
export const readClosed = (text: string): Set<number> => new Set(text.split(".").filter((t) => /^\d{1,7}$/.test(t)).map(Number));
export const writeClosed = (set: ReadonlySet<number>): string => [...set].sort((a, b) => a - b).join(".");

/** The spans that are not folded away. The list is in the order of the tree, depth first. */
export function visibleRows(spans: readonly api.TraceSpan[], closed: ReadonlySet<number>): Row[] {
  const out: Row[] = [];
  const below = descendants(spans);
  for (let at = 0; at < spans.length; at++) {
    const span = spans[at] as api.TraceSpan;
    const shut = closed.has(at) && (below[at] as number) > 0;
    out.push({ at, span, below: below[at] as number, closed: shut });
    if (shut) at += below[at] as number;
  }
  return out;
}

/** How many spans lie below each: those that follow it deeper. */
export function descendants(spans: readonly api.TraceSpan[]): Uint32Array {
  const out = new Uint32Array(spans.length);
  const open: number[] = [];
  for (let i = 0; i <= spans.length; i++) {
    const depth = i < spans.length ? (spans[i] as api.TraceSpan).depth : -1;
    while (open.length > 0 && (spans[open[open.length - 1] as number] as api.TraceSpan).depth >= depth) {
      const j = open.pop() as number;
      out[j] = i - j - 1;
    }
    if (i < spans.length) open.push(i);
  }
  return out;
}

export interface Bar {
  left: number;
  width: number;
  /** it begins before, ends after what is seen */
  cutLeft: boolean;
  cutRight: boolean;
  inside: boolean;
}

/** Where a span lies in the part, in shares of its width. */
export function barOf(s: Pick<api.TraceSpan, "start_seconds" | "duration_seconds">, p: Part): Bar {
  const w = p.to - p.from;
  const a = (s.start_seconds - p.from) / w, b = (s.start_seconds + s.duration_seconds - p.from) / w;
  const left = Math.min(1, Math.max(0, a)), right = Math.min(1, Math.max(0, b));
  return { left, width: Math.max(0, right - left), cutLeft: a < 0, cutRight: b > 1, inside: b >= 0 && a <= 1 };
}

/** Zoomed by a factor around a time, never out of the whole and never under a microsecond. */
export function zoomPart(p: Part, whole: Part, factor: number, at: number): Part {
  const w = Math.min(whole.to - whole.from, Math.max(1e-6, (p.to - p.from) * factor));
  const k = (at - p.from) / (p.to - p.from);
  return movePart({ from: at - k * w, to: at + (1 - k) * w }, whole, 0);
}

export function movePart(p: Part, whole: Part, by: number): Part {
  const w = p.to - p.from;
  const from = Math.min(Math.max(whole.from, p.from + by), whole.to - w);
  return { from, to: from + w };
}

/** Round times of the part, at most one per gap pixels, in seconds. */
export function ticksOf(p: Part, width: number, gap = 80): number[] {
  const raw = ((p.to - p.from) * gap) / Math.max(gap, width);
  const mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * mag).find((s) => s >= raw * (1 - 1e-9)) ?? 10 * mag;
  const out: number[] = [];
  for (let i = Math.ceil(p.from / step - 1e-9); i * step <= p.to + step * 1e-9; i++) out.push(i * step + 0); // never -0
  return out;
}

/** Whether a span has all words of a search: in its name, service, attributes, ids, events. */
export function matches(s: api.TraceSpan, search: string): boolean {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return false;
  const text = [s.name, s.service, s.scope, s.span_id, s.status === "error" ? "error" : "", s.message ?? "", ...s.attrs.map((a) => `${a.key}=${a.value}`), ...s.events.map((e) => e.name), ...s.flags].join("\n").toLowerCase();
  return words.every((w) => text.includes(w));
}

/** The colour of each service in the order in which they first stand in the trace. */
export function serviceColours(services: readonly string[]): Map<string, string> {
  return new Map(services.map((s, i) => [s, stroke(i).color]));
}

/** The colour of a span: of its phase where it is one, else of its service. */
export function spanToken(s: api.TraceSpan, services: ReadonlyMap<string, string>): string {
  const t = classToken(s.class);
  return t && !["--tl-other", "--tl-group", "--text-2"].includes(t) ? t : (services.get(s.service) ?? "--s7");
}

/**
 * P or D beside each span of the halves of a PD pair, "" beside others: one engine that does both has no
 * lanes. What stands below a span of a half is of that half.
 */
export function lanesOf(spans: readonly api.TraceSpan[]): string[] {
  const own = spans.map((s): string => (/^(prefill (req|tokenizer|scheduler)\b|prefill_(bootstrap|transfer)|p (bootstrap|transfer|alloc))/i.test(s.name.trim()) ? "P" : /^(decode (req|tokenizer|scheduler)\b|decode_(bootstrap|transfer|prepare))/i.test(s.name.trim()) ? "D" : ""));
  if (!own.includes("P") && !own.includes("D")) return own;
  spans.forEach((s, i) => {
    if (own[i] === "" && s.parent >= 0 && s.parent < i) own[i] = own[s.parent] as string;
  });
  return own;
}

/** A span's name in a row: hosts and pids of threads stand in its details. */
export function shownName(s: Pick<api.TraceSpan, "name" | "missing">): string {
  const name = s.name.replace(/\s*\(host:[^()]*\)/, "").trim();
  return name || s.name.trim() || (s.missing ? "missing span" : "(no name)");
}

/** A tick's time: all of a ruler in the unit of its end, without decimals that are zero. */
export function tickText(t: number, p: Part): string {
  if (t === 0) return "0";
  const end = Math.max(Math.abs(p.from), Math.abs(p.to));
  const [k, unit] = end < 1e-3 ? [1e6, "µs"] : end < 10 ? [1e3, "ms"] : [1, "s"];
  return `${String(+(t * k).toPrecision(9)).replace(/^-/, "−").replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ",")} ${unit}`;
}
