// How passes, ranks, sources and the planner's terms are said. Pure.
import type { Level, PassRank } from "../api/types";
import { brief, grouped } from "../format/number";
import { parseApiTime, parseDuration } from "../format/time";
import { DECODE, EMPTY, GAP, HEARTBEAT, HOLE, LATE, MIXED, NO_TIME, PREFILL, RESTART, UNMEASURED, type Kind, type Pass } from "./ring";

export const KIND_WORDS: Record<Kind, string> = { 0: "heartbeat", [PREFILL]: "prefill", [DECODE]: "decode", [MIXED]: "prefill and decode", [EMPTY]: "nothing in it", [UNMEASURED]: "what it tells cannot be" };

/** A pass's numbers, as its tooltip and the line of a pinned one say them. */
export function passWords(p: Pass): [string, string][] {
  const out: [string, string][] = [];
  if (p.flags & HEARTBEAT) out.push(["heartbeat", "nothing ran"]);
  else {
    out.push(["wall time", p.flags & NO_TIME ? `unknown: ${KIND_WORDS[p.kind]}` : `${brief(p.wall)} ms${p.kind === EMPTY ? ", nothing in it" : ""}`]);
    if (p.prefillRequests > 0 || p.prefillTokens > 0) out.push(["prefill", `${grouped(p.prefillRequests, 0)} req · ${grouped(p.prefillTokens, 0)} new tokens · ${grouped(p.prefillKV, 0)} from KV`]);
    if (p.decodeRequests > 0) out.push(["decode", `${grouped(p.decodeRequests, 0)} req · ${grouped(p.decodeKV, 0)} KV tokens`]);
  }
  out.push(["queued", p.queuedPrefillRequests + p.queuedDecodeRequests + p.queuedPrefillTokens + p.queuedDecodeKV === 0 ? "nothing"
    : `prefill ${grouped(p.queuedPrefillRequests, 0)} req, ${grouped(p.queuedPrefillTokens, 0)} tok · decode ${grouped(p.queuedDecodeRequests, 0)} req, ${grouped(p.queuedDecodeKV, 0)} KV`]);
  const marks = markWords(p.flags, p.missing);
  if (marks) out.push(["before it", marks]);
  return out;
}

/** What happened before a pass; "" for nothing. */
export function markWords(flags: number, missing: number): string {
  const out: string[] = [];
  if (flags & GAP) out.push(missing > 0 ? `${grouped(missing, 0)} ${missing === 1 ? "message is" : "messages are"} missing` : "messages are missing");
  if (flags & RESTART) out.push("the engine began anew");
  if (flags & LATE) out.push("came late, after newer ones");
  if (flags & HOLE) out.push("not loaded by this page");
  return out.join(", ");
}

/** A number that may be unknown. */
export const known = (v: number | null | undefined, f: (n: number) => string): string => (v === null || v === undefined ? "unknown" : f(v));

/** Seconds as ms below ten seconds. */
export function seconds(v: number): string {
  return v < 10 ? `${brief(v * 1000)} ms` : `${brief(v)} s`;
}

export const rate = (v: number): string => (v > 0 && v < 0.1 ? `${brief(v * 60)} req/min` : `${brief(v)} req/s`);

const STATES: Record<string, Level> = { working: "ok", idle: "idle", stale: "unknown" };
export const rankLevel = (state: string): Level => STATES[state] ?? "unknown";

/** A source's badge: an alarm is critical whatever its flow is called. */
export function sourceLevel(s: { alarm: boolean; flow: string; state: string }): Level {
  if (s.alarm) return "crit";
  if (s.flow === "receiving") return "ok";
  if (/^receiving,|^heartbeats while|cannot be decoded/.test(s.flow)) return "warn";
  if (/^waiting/.test(s.flow)) return "idle";
  return "unknown";
}

const BOUNDS: Record<string, string> = {
  compute: "the time of a prompt itself", ttft: "the first token would come too late", itl: "tokens would come too slowly", max_kv_tokens: "the KV cache is full", max_kv_seen: "the most context that was ever seen; the size of the cache is not known",
  max_num_seqs: "the batch is full", balance: "prefill cannot bring requests in as fast as they finish", size_not_known: "neither cache nor batch size is known; the planner's own limit",
};
/** What keeps an engine from carrying more. */
export const boundWords = (b: string): string => BOUNDS[b] ?? b.replace(/_/g, " ");

const FEATURES: Record<string, [string, string]> = { sum_prefill_tokens: ["new prefill tokens", "tokens"], num_decode_requests: ["decoding requests", "requests"], sum_decode_kv_tokens: ["KV tokens read by decode", "tokens"] };
export const featureName = (f: string): string => FEATURES[f]?.[0] ?? f.replace(/_/g, " ");
export const featureUnit = (f: string): string => FEATURES[f]?.[1] ?? "";

/** Words that programs use, as a reader does. */
export const plain = (w: string): string => w.replace(/_/g, " ");

const RULES: Record<string, string> = {
  "single rank": "one rank, one queue", "nothing queued": "no rank has told of a queue yet", "rank 0 has it": "rank 0 tells the queue of all ranks: it is not averaged", "sum of the ranks": "each rank has its own queue: they are added",
};
/** How the ranks' queues make up the worker's. */
export function queueRuleWords(rule: string): string {
  return RULES[rule] ?? plain(rule);
}

/** What was typed as a target, in seconds: "500ms", "0.5s", and a bare number is ms. undefined nothing, NaN rubbish. */
export function target(text: string): number | undefined {
  const t = text.trim();
  if (t === "") return undefined;
  const ms = /^\d+(\.\d+)?$/.test(t) ? Number(t) : parseDuration(t);
  return ms !== null && ms > 0 ? ms / 1000 : NaN;
}

/** A number that was typed: "3000", "3k", "1.5M". undefined nothing, NaN rubbish. */
export function amount(text: string, whole = false): number | undefined {
  const t = text.trim().replace(/,/g, "");
  if (t === "") return undefined;
  const m = /^(\d+(?:\.\d+)?)\s*([kKM]?)$/.exec(t);
  if (!m) return NaN;
  const n = Number(m[1]) * (m[2] === "M" ? 1e6 : m[2] ? 1e3 : 1);
  return whole && !Number.isInteger(n) ? NaN : n;
}

/** Share of the time since the first message that passes took; null while there is no time to speak of. */
export function busyShare(r: Pick<PassRank, "first" | "last" | "busy_seconds">): number | null {
  const s = (parseApiTime(r.last) - parseApiTime(r.first)) / 1000;
  return s >= 1 ? Math.min(1, r.busy_seconds / s) : null;
}
