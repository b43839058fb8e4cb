// A list of log lines that grows at its top while somebody reads: merging what comes, where each row lies,
// and what colours classes and levels take. Pure; drawn by loglines.tsx.
import type * as api from "../api/types";
import { stroke } from "../charts/model";

/** Lines that are kept in the page; the oldest go first. */
export const MOST = 10_000;
export const ROW = 20;

/** Times are written without zeros at their end, and "Z" is more than ".": they are compared without it. */
const stampOf = (r: api.LogRecord): string => r.time.replace(/Z$/, "");
const newer = (a: api.LogRecord, b: api.LogRecord): number => (stampOf(a) < stampOf(b) ? 1 : stampOf(a) > stampOf(b) ? -1 : 0);

/** Known and new lines together, newest first, each once. A line that was known keeps its place among those of its time. */
export function merge(known: readonly api.LogRecord[], fresh: readonly api.LogRecord[]): api.LogRecord[] {
  const have = new Set(known.map((r) => r.id));
  const add = fresh.filter((r) => !have.has(r.id) && have.add(r.id));
  if (add.length === 0) return known as api.LogRecord[];
  const out: api.LogRecord[] = [];
  const sorted = [...add].sort(newer);
  let i = 0;
  for (const r of known) {
    while (i < sorted.length && newer(sorted[i] as api.LogRecord, r) < 0) out.push(sorted[i++] as api.LogRecord);
    out.push(r);
  }
  out.push(...sorted.slice(i));
  return out.length > MOST ? out.slice(0, MOST) : out;
}

/** Where row i begins, when one of them is unfolded and takes extra pixels below it. */
export function topOf(i: number, open: number, extra: number): number {
  return i * ROW + (open >= 0 && i > open ? extra : 0);
}

/** The row at a height. */
export function rowAt(y: number, open: number, extra: number): number {
  if (open < 0 || y < (open + 1) * ROW) return Math.max(0, Math.floor(y / ROW));
  return y < (open + 1) * ROW + extra ? open : Math.floor((y - extra) / ROW);
}

/** The first and last row that are drawn for what is seen. */
export function seen(top: number, height: number, n: number, open: number, extra: number): [number, number] {
  return [Math.max(0, rowAt(top, open, extra) - 12), Math.min(n, rowAt(top + height, open, extra) + 13)];
}

const CLASS: Record<string, string> = {
  error: "--crit-fill", oom: "--s4", abort: "--warn-fill", hang: "--ph-reward", preempt: "--s1", retract: "--s1", startup: "--s3", shutdown: "--s6", nccl: "--s5", timeout: "--s2", "": "--s7", none: "--s7",
};
const LEVEL: Record<string, string> = { fatal: "--ph-error", critical: "--ph-error", error: "--crit-fill", warning: "--warn-fill", warn: "--warn-fill", info: "--s7", debug: "--hatch", trace: "--hatch", "": "--hatch" };

/** The colour of a stretch of the histogram; what no rule knows takes series colours in order. */
export function lineColour(by: string, name: string, i: number): string {
  if (by === "level") return LEVEL[name.toLowerCase()] ?? "--s7";
  if (by === "class" || by === "") return CLASS[name] ?? stroke(i).color;
  return stroke(i).color;
}

/** How bad a class or level is: what is worse lies lower in the stack, where it is seen first. */
export function severity(by: string, name: string): number {
  const order = by === "level" ? ["fatal", "critical", "error", "warn", "warning", "", "info", "debug", "trace"] : ["oom", "hang", "error", "abort", "preempt", "retract", "nccl", "timeout", "startup", "shutdown"];
  const at = order.indexOf(name.toLowerCase());
  if (by !== "level" && (name === "" || name === "none")) return 99;
  return at >= 0 ? at : name === "" ? 99 : 50;
}

/** What a row shows of a line: the message of one that is a JSON object, and what else that says; else the line.
 * Unfolded, it is as it was written. */
export function shownLine(line: string): { text: string; facts: string } {
  if (!line.startsWith("{") || !line.includes('"message"')) return { text: line, facts: "" };
  try {
    const object = JSON.parse(line) as Record<string, unknown>;
    const message = object["message"];
    if (typeof message !== "string" || message === "") return { text: line, facts: "" };
    const facts = Object.entries(object).filter(([k, v]) => !ELSEWHERE.has(k) && v !== "" && v !== null && typeof v !== "object");
    const rank = (k: string) => (FIRST.indexOf(k) + FIRST.length + 1) % (FIRST.length + 1);
    facts.sort(([a], [b]) => rank(a) - rank(b));
    return { text: message, facts: facts.map(([k, v]) => `${k}=${String(v)}`).join(" ") };
  } catch {
    return { text: line, facts: "" }; // cut, or no JSON after all
  }
}

/** What stands in a column of its own or leads elsewhere, and what tells most: a span that closed is its name and time. */
const ELSEWHERE = new Set(["message", "time", "timestamp", "level", "target", "file", "line", "trace_id", "span_id", "parent_id", "request_id", "x_request_id", "version", "method"]);
const FIRST = ["span_name", "time.duration_us"];

export function levelOf(level: string): api.Level | "" {
  const l = level.toLowerCase();
  return l === "error" || l === "fatal" || l === "critical" ? "crit" : l === "warn" || l === "warning" ? "warn" : "";
}

const MARKS: Record<string, string> = {
  time_assumed: "it has no time of its own: that of the line before it, or when it came", zone_assumed: "its time names no zone: the offset seen while following, or UTC", date_assumed: "it has a time of day only: the date was assumed",
  cut: "a part of it is missing", interleaved: "two writers' lines are mixed in it", truncated: "it is longer than what is kept: its rest is dropped", binary: "bytes that are no text stand as \\xNN", overwritten: "it was written over itself: its last state was read",
  not_finite: "a number in it is no number and was left out", invalid: "a number in it cannot be", unterminated: "the file ended before it did", others_unknown: "values of the lines that Ray folded into it are unknown",
};
export const markWords = (m: string): string => MARKS[m] ?? m.replace(/_/g, " ");
