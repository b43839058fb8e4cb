// From a point of a chart, an alert, a row to what lies behind it: windows of time and the views that show
// them. Pure; the links themselves are made by components.
import { filterOf, logsField } from "./filter";
import { fixed, type Range, type View } from "./route";
import { START, encodeView, newPane } from "../timeline/view";

/** What a metric's point is about. */
export interface Subject {
  from: number;
  to: number;
  /** host:port of the engine, "" for all of them */
  instance: string;
  /** its name for the reader */
  engine: string;
  /** which of a request's numbers the metric is of: "ttft", "itl", "e2e", "queue", "" none */
  field: string;
}

/**
 * The window behind a point: what it counts happened before it, at least a minute of it, so that slow
 * requests that began earlier are in it.
 */
export function behind(at: number, step: number): { from: number; to: number } {
  return { from: at - Math.max(step, 60_000), to: at + Math.max(step / 2, 5_000) };
}

/** The number of a request that a signal or a metric measures; "" when none. */
export function fieldOf(text: string): string {
  const t = text.toLowerCase();
  if (/ttft|time_to_first_token|first token/.test(t)) return "ttft";
  if (/\bitl\b|inter_token|inter-token|time_per_output|tpot/.test(t)) return "itl";
  if (/queue_time|queue time|time_in_queue/.test(t)) return "queue";
  if (/e2e|end-to-end|request_latency/.test(t)) return "e2e";
  return "";
}

/** Requests of a subject, slowest first. */
export function requestsOf(s: Subject): Partial<View> {
  return { range: fixed(s.from, s.to), filter: filterOf({ engine: s.instance }), sort: `-${s.field || "e2e"}`, ...(s.field && s.field !== "ttft" ? { y: s.field } : {}) };
}

export function logsOf(s: Subject): Partial<View> {
  return { range: fixed(s.from, s.to), engine: s.instance };
}

export function tracesOf(s: Subject): Partial<View> {
  return { range: fixed(s.from, s.to), filter: s.instance ? tag("engine", s.instance) : "", sort: "-duration" };
}

/** key=value as the trace search takes it. */
export const tag = (key: string, value: string): string => `${key}=${/^[^\s"\\]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`}`;

/** The window around something that began and took a while: with room at both sides to see it in its company. */
export function around(start: number, seconds: number | null): Range {
  const length = Math.max(1000, (seconds ?? 0) * 1000);
  const room = Math.max(60_000, length * 0.25);
  return fixed(start - room, start + length + room);
}

/** Log lines of a request or a trace, by every name it has. */
export function logsFilter(ids: { rid?: string; traceID?: string }): string {
  return [ids.rid ? logsField("rid", ids.rid) : "", ids.traceID ? logsField("trace_id", ids.traceID) : ""].filter(Boolean).join(" or ");
}

/** A sample's row in its step's timeline. */
export function sampleView(s: { run: string; kind: string; step: number; sample: number }): Partial<View> {
  return { run: s.run, kind: s.kind === "eval" ? "eval" : "train", rollout: String(s.step), timeline: encodeView({ ...START, tab: "sample", panes: [{ ...newPane(), row: s.sample }] }) };
}
