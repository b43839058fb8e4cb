// The Prometheus HTTP API v1, as far as Explore and the boards use it.
import { Failure, fetchJSON } from "./client";

/** Labels of a series, "__name__" among them. */
export type Labels = Record<string, string>;

export interface Series {
  labels: Labels;
  /** equal steps from the window's start; null where there is no sample or it is NaN */
  values: (number | null)[];
}

/** One row of an instant result. */
export interface Sample {
  labels: Labels;
  /** milliseconds */
  at: number;
  /** as Prometheus writes it, "NaN" and "+Inf" too; of a string result the string */
  text: string;
  value: number;
}

export interface Notes {
  warnings: string[];
  infos: string[];
}

export interface RangeResult extends Notes {
  kind: "range";
  from: number;
  to: number;
  step: number;
  series: Series[];
}

export interface InstantResult extends Notes {
  kind: "instant";
  type: "vector" | "scalar" | "string" | "matrix";
  samples: Sample[];
}

interface PromBody {
  status?: string;
  data?: unknown;
  error?: string;
  errorType?: string;
  warnings?: string[];
  infos?: string[];
}

/** Prometheus's names of the ways a query fails, in words that say what to do. */
const HINTS: Record<string, string> = {
  timeout: "a shorter range, a longer step or fewer series",
  canceled: "the server stopped the query: it was shutting down or overloaded",
  execution: "",
  bad_data: "",
};

async function ask(path: string, form: Record<string, string>, signal?: AbortSignal): Promise<PromBody & { data: unknown }> {
  const q = new URLSearchParams(form).toString();
  // A long query does not fit into a URL; the API takes it as a form.
  const long = q.length > 1500;
  const { status, body } = await fetchJSON(
    long ? path : `${path}?${q}`,
    signal,
    long ? { method: "POST", body: q, headers: { "Content-Type": "application/x-www-form-urlencoded" } } : {},
  );
  const b = (body ?? {}) as PromBody;
  if (b.status !== "success" || b.data === undefined) {
    const type = b.errorType ?? "";
    throw new Failure(type || "bad_answer", b.error ?? `HTTP ${status}`, "", HINTS[type] ?? "", status);
  }
  return b as PromBody & { data: unknown };
}

const seconds = (ms: number) => String(ms / 1000);

/** PromQL over a window (milliseconds). */
export async function queryRange(expr: string, w: { from: number; to: number; step: number }, signal?: AbortSignal): Promise<RangeResult> {
  const b = await ask("/api/v1/query_range", { query: expr, start: seconds(w.from), end: seconds(w.to), step: seconds(w.step) }, signal);
  const result = (b.data as { result?: unknown }).result;
  const rows = Array.isArray(result) ? (result as { metric?: Labels; values?: [number, string][] }[]) : [];
  return {
    kind: "range",
    from: w.from,
    to: w.to,
    step: w.step,
    series: rows.map((r) => ({ labels: r.metric ?? {}, values: onGrid(r.values ?? [], w) })),
    warnings: b.warnings ?? [],
    infos: b.infos ?? [],
  };
}

/** Puts samples (seconds, text) onto equal steps. What is missing, NaN or off the grid stays null: a gap stays a gap. */
export function onGrid(samples: [number, string][], w: { from: number; to: number; step: number }): (number | null)[] {
  const n = Math.floor((w.to - w.from) / w.step) + 1;
  const out = new Array<number | null>(Math.max(0, n)).fill(null);
  for (const [t, text] of samples) {
    const i = Math.round((t * 1000 - w.from) / w.step);
    const v = number(text);
    if (i >= 0 && i < n && Number.isFinite(v)) out[i] = v;
  }
  return out;
}

/** Reads a sample's value; JavaScript's Number does not know Prometheus's infinities. */
export function number(text: string): number {
  if (text === "+Inf" || text === "Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}

/** PromQL at one instant (milliseconds). */
export async function queryInstant(expr: string, at: number, signal?: AbortSignal): Promise<InstantResult> {
  const b = await ask("/api/v1/query", { query: expr, time: seconds(at) }, signal);
  const d = b.data as { resultType?: string; result?: unknown };
  const notes = { warnings: b.warnings ?? [], infos: b.infos ?? [] };
  const sample = (labels: Labels, [t, text]: [number, string]): Sample => ({ labels, at: t * 1000, text, value: number(text) });
  if (d.resultType === "scalar" || d.resultType === "string") {
    return { kind: "instant", type: d.resultType, samples: [sample({}, d.result as [number, string])], ...notes };
  }
  if (d.resultType === "matrix") {
    const rows = (d.result ?? []) as { metric: Labels; values?: [number, string][] }[];
    return { kind: "instant", type: "matrix", samples: rows.flatMap((r) => (r.values ?? []).map((v) => sample(r.metric, v))), ...notes };
  }
  const rows = (d.result ?? []) as { metric: Labels; value?: [number, string] }[];
  return { kind: "instant", type: "vector", samples: rows.flatMap((r) => (r.value ? [sample(r.metric, r.value)] : [])), ...notes };
}

/** Label names of the series that match (all without), in a window. */
export async function labelNames(match: string, w: { from: number; to: number }, signal?: AbortSignal): Promise<string[]> {
  const form: Record<string, string> = { start: seconds(w.from), end: seconds(w.to) };
  if (match) form["match[]"] = match;
  return strings((await ask("/api/v1/labels", form, signal)).data);
}

/** Values of a label. */
export async function labelValues(name: string, match: string, w: { from: number; to: number }, signal?: AbortSignal): Promise<string[]> {
  const form: Record<string, string> = { start: seconds(w.from), end: seconds(w.to) };
  if (match) form["match[]"] = match;
  const q = new URLSearchParams(form);
  const { status, body } = await fetchJSON(`/api/v1/label/${encodeURIComponent(name)}/values?${q}`, signal);
  const b = (body ?? {}) as PromBody;
  if (b.status !== "success") throw new Failure(b.errorType ?? "bad_answer", b.error ?? `HTTP ${status}`, "", "", status);
  return strings(b.data);
}

function strings(data: unknown): string[] {
  return Array.isArray(data) ? data.filter((x): x is string => typeof x === "string") : [];
}

/** A series as PromQL writes it: name{a="b"}; "" for no labels. */
export function seriesName(labels: Labels, without: readonly string[] = []): string {
  const name = without.includes("__name__") ? "" : (labels["__name__"] ?? "");
  const rest = Object.entries(labels)
    .filter(([k]) => k !== "__name__" && !without.includes(k))
    .map(([k, v]) => `${k}=${JSON.stringify(v)}`);
  return rest.length ? `${name}{${rest.join(", ")}}` : name;
}

/** Names for the series of one answer: by the labels in which they differ, the whole name where that tells nothing. */
export function seriesNames(all: readonly Labels[]): string[] {
  const keys = new Set(all.flatMap((l) => Object.keys(l)));
  const same = [...keys].filter((k) => all.every((l) => l[k] === all[0]?.[k]));
  return all.map((l) => (all.length > 1 ? seriesName(l, same) : "") || seriesName(l) || "value");
}

/** Fills a legend template: "{{instance}} {{le}}". */
export function legend(template: string, labels: Labels): string {
  if (!template) return seriesName(labels) || "value";
  return template.replace(/\{\{\s*([a-zA-Z_][\w.]*)\s*\}\}/g, (_, name: string) => labels[name] ?? "").trim() || seriesName(labels) || "value";
}
