// The numbers of a request: their names in a filter, a sort and a scatter, their units, and what stands
// where there is none. Pure.
import type * as api from "../api/types";
import { allWhole, decimalsFor, format, scaleFor, typical, type Scale } from "../format/number";

export interface RequestNumber {
  /** as filter, sort and scatter have it */
  key: string;
  title: string;
  /** "s", "tokens", "tokens/s", "" a count */
  unit: string;
  hint: string;
  get: (r: api.RequestRow) => number | null;
}

export const NUMBERS: RequestNumber[] = [
  { key: "e2e", title: "E2E", unit: "s", hint: "from its arrival to its last token", get: (r) => r.e2e_seconds },
  { key: "ttft", title: "TTFT", unit: "s", hint: "time to first token", get: (r) => r.ttft_seconds },
  { key: "itl", title: "ITL", unit: "s", hint: "inter-token latency: the mean over its answer (TPOT)", get: (r) => r.itl_seconds },
  { key: "queue", title: "Queue", unit: "s", hint: "waited to be scheduled", get: (r) => r.queue_seconds },
  { key: "prefill", title: "Prefill", unit: "s", hint: "time of its prefill phases", get: (r) => r.prefill_seconds },
  { key: "transfer", title: "Transfer", unit: "s", hint: "KV cache moved from prefill to decode", get: (r) => r.transfer_seconds },
  { key: "decode", title: "Decode", unit: "s", hint: "time of its decode phases", get: (r) => r.decode_seconds },
  { key: "prompt_tokens", title: "Prompt", unit: "tokens", hint: "prompt tokens", get: (r) => r.prompt_tokens },
  { key: "completion_tokens", title: "Output", unit: "tokens", hint: "completion tokens", get: (r) => r.completion_tokens },
  { key: "cached_tokens", title: "Cached", unit: "tokens", hint: "prompt tokens found in the prefix cache", get: (r) => r.cached_tokens },
  { key: "decode_throughput", title: "Decode rate", unit: "tokens/s", hint: "its own tokens per second while decoding", get: (r) => r.decode_throughput },
  { key: "retries", title: "Retries", unit: "", hint: "how often it was sent again", get: (r) => r.retries },
];

/** Columns that are no numbers, in the order of the table. */
export const WORDS = ["start", "rid", "outcome", "finish", "engine", "prefill_engine", "model", "service", "step", "sources", "spans", "notes", "trace"];
export const USUAL = ["start", "rid", "outcome", "engine", "step", "e2e", "ttft", "itl", "queue", "prefill", "decode", "prompt_tokens", "completion_tokens", "spans", "notes"];
export const TITLES: Record<string, string> = {
  start: "Start", rid: "Request", outcome: "Outcome", finish: "Finish", engine: "Engine", prefill_engine: "Prefill by", model: "Model", service: "Service", step: "Step, sample", sources: "Seen by", spans: "Spans", notes: "Notes", trace: "Trace",
};

const ALL = [...WORDS.slice(0, 9), ...NUMBERS.map((n) => n.key), ...WORDS.slice(9)];

/** The columns that a view wants, in the table's order; what it does not know is left out. */
export function columnsOf(text: string): string[] {
  const want = new Set(text === "" ? USUAL : text.split(","));
  const list = ALL.filter((k) => want.has(k));
  return list.includes("rid") ? list : ["rid", ...list];
}
export const allColumns = ALL;

/** The columns with one of them turned; "" again when they are the usual ones. */
export function toggled(text: string, key: string): string {
  const now = columnsOf(text);
  const next = now.includes(key) ? now.filter((k) => k !== key) : ALL.filter((k) => k === key || now.includes(k));
  return next.join() === columnsOf("").join() ? "" : next.join(",");
}

export const numberOf = (key: string): RequestNumber | undefined => NUMBERS.find((n) => n.key === key);
export const unitOf = (key: string): string => numberOf(key)?.unit ?? "";

/** How a column's numbers are written: for all its rows alike. */
export function scaleOf(n: RequestNumber, rows: readonly api.RequestRow[]): Scale {
  const values = rows.map(n.get);
  return n.unit === "s" ? secondsScale(values) : scaleFor(n.unit, typical(values), allWhole(values));
}

/** The scale of a column of seconds: in ms while all fit there, decimals as its middle needs them. */
export function secondsScale(values: readonly (number | null)[]): Scale {
  const middle = typical(values);
  const most = values.reduce((a: number, v) => Math.max(a, v ?? 0), 0);
  return most < 10 || middle >= 10 ? scaleFor("s", middle) : { factor: 1, unit: "s", decimals: Math.min(3, decimalsFor(middle)), clock: false };
}

/** A cell's text and whether it is a word: what no source gave is unknown, what cannot be is a dash. */
export function cellText(n: RequestNumber, r: api.RequestRow, scale: Scale): { text: string; word: boolean; why: string } {
  const v = n.get(r);
  if (v !== null) return { text: format(v, scale), word: false, why: "" };
  if (n.key === "transfer" && r.prefill_engine === "") return { text: "–", word: true, why: "one engine did both: nothing was moved" };
  if (r.outcome === "running" && (n.key === "e2e" || n.key === "itl" || n.key === "decode")) return { text: "open", word: true, why: "no end was seen" };
  return { text: "unknown", word: true, why: `no source said it${r.sources.length ? `: seen by ${r.sources.join(", ")}` : ""}` };
}

/** Outcomes, worst first, with the words for them. */
export const OUTCOMES = ["error", "aborted", "running", "", "ok"] as const;
export const outcomeName = (o: string): string => (o === "" ? "unknown" : o);
export function outcomeLevel(o: string): api.Level {
  return o === "error" ? "crit" : o === "aborted" ? "warn" : o === "ok" ? "ok" : o === "running" ? "idle" : "unknown";
}

/** What was typed as a target: "2s", "40 ms", "1.5"; seconds, null when it says nothing, NaN when it is no time. */
export function target(text: string): number | null {
  const t = text.trim().toLowerCase();
  if (t === "") return null;
  const m = /^(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m)?$/.exec(t);
  if (!m) return NaN;
  const v = Number(m[1]) * ({ us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, m: 60 }[m[2] ?? "s"] ?? 1);
  return v > 0 ? v : NaN;
}
