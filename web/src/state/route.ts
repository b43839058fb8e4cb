// The whole view is in the URL: page, range, filters, sort, selected engine, query. This file is the one
// place that reads and writes it, and it is pure; state/view.ts binds it to the address bar.
import { DAY, HOUR, MINUTE, instantCode, parseDuration, parseInstant, durationCode } from "../format/time";

export type Page = "overview" | "engines" | "rollouts" | "requests" | "traces" | "logs" | "alerts" | "explore";

/** The window that is looked at. "data" is all that the store holds, what an archive opens on. */
export type Range =
  | { kind: "last"; ms: number }
  | { kind: "fixed"; from: number; to: number }
  | { kind: "data" };

/** Everything that the page shows. Fields that are "" or at their default are left out of the URL. */
export interface View {
  page: Page;
  /** null: not said, so the page chooses (an archive its own range, else the last hour) */
  range: Range | null;
  /** live updates, where the range is relative */
  live: boolean;
  /** seconds between updates */
  every: number;
  /** "" follows the saved choice */
  theme: "" | "dark" | "light";
  /** engines: the selected one */
  engine: string;
  /** engines: the board below the table, "" is the engine's own signals */
  board: string;
  /** tables: column key, "-" before it for descending; "" is worst first */
  sort: string;
  /** tables: text filter */
  filter: string;
  /** engines: filters by level and role; logs: by the level of a line */
  level: string;
  role: string;
  /** engines: draw the role's median */
  peers: boolean;
  /** engines: the forward passes in place of the fleet */
  passes: boolean;
  /** engines, passes: the worker that they are narrowed to, namespace/component/worker; "" all */
  worker: string;
  /** engines, passes: how long a time the strip shows, ms, and the instant at its right edge when it does not follow; 0 not said */
  stripSpan: number;
  stripAt: number;
  /** engines, passes: what the fleet is asked to carry, as typed: tokens, requests a second, replicas; "" what is measured */
  namespace: string;
  isl: string;
  osl: string;
  rate: string;
  prefill: string;
  decode: string;
  /** rollouts: the run, "" the one with the newest step */
  run: string;
  kind: "train" | "eval";
  /** rollouts: the step's rollout id, "" the newest */
  rollout: string;
  /** rollouts: which run of a step that was run again, "" the newest */
  attempt: string;
  /** rollouts: the rollout id that the step is compared with, "" for none */
  versus: string;
  /** rollouts: key of the metric over the steps, "" is the wall time */
  metric: string;
  /** rollouts: what the steps stand over */
  axis: "step" | "time";
  /** rollouts, traces: the timeline's own view, as it writes it */
  timeline: string;
  /** engines, passes: the pool of the cloud; requests, traces, logs: the one that is looked at; "first" stands for the first of the list until it is known */
  id: string;
  /** requests: what they are grouped by; logs: what the histogram is split by, "" the class; traces: "critical" shows the critical path alone */
  by: string;
  /** requests: the targets of goodput as typed, "2s" and "40ms", "" for none */
  goalTTFT: string;
  goalITL: string;
  /** requests: what the scatter shows, "" is the start, the time to first token and the outcome */
  x: string;
  y: string;
  color: string;
  /** requests, traces: the scatter's y axis in powers of ten */
  log: boolean;
  /** requests: keys of the columns, "" the usual ones */
  columns: string;
  /** traces, logs: of the sender */
  service: string;
  /** traces: name of a span, "*" stands for anything */
  name: string;
  /** traces: shortest and longest duration as typed */
  min: string;
  max: string;
  /** traces: "error", "ok", "" both */
  status: string;
  /** traces: the selected span of the trace */
  span: string;
  /** traces: the part of the trace that is looked at, "12.5-80", ms from its start; "" all */
  part: string;
  /** traces: places of the spans whose children are folded away, "3.7" */
  closed: string;
  /** traces: how a trace is drawn */
  draw: "waterfall" | "flame";
  /** logs: class of the lines, "" all */
  lineClass: string;
  /** alerts: the selected alert or rule */
  alert: string;
  /** explore */
  expr: string;
  show: "chart" | "table";
  instant: boolean;
  /** explore: seconds between points, 0 lets the page choose */
  step: number;
}

export const DEFAULT_RANGE: Range = { kind: "last", ms: HOUR };
export const DEFAULT_EVERY = 5;

const PATHS: Record<Page, string> = { overview: "/", engines: "/engines", rollouts: "/rollouts", alerts: "/alerts", explore: "/explore", requests: "/requests", traces: "/traces", logs: "/logs" };

export function emptyView(page: Page = "overview"): View {
  return {
    page, range: null, live: true, every: DEFAULT_EVERY, theme: "", engine: "", board: "", sort: "", filter: "",
    level: "", role: "", peers: true, passes: false, worker: "", stripSpan: 0, stripAt: 0, namespace: "", isl: "", osl: "", rate: "", prefill: "", decode: "", run: "", kind: "train", rollout: "", attempt: "", versus: "", metric: "", axis: "step", timeline: "", alert: "", expr: "", show: "chart", instant: false, step: 0,
    id: "", by: "", goalTTFT: "", goalITL: "", x: "", y: "", color: "", log: false, columns: "", service: "", name: "", min: "", max: "", status: "", span: "", part: "", closed: "", draw: "waterfall", lineClass: "",
  };
}

/** Reads a URL. Rubbish in a parameter is as if it were not there. */
export function parseView(path: string, search: string): View {
  const q = new URLSearchParams(search);
  const page = (Object.keys(PATHS) as Page[]).find((p) => PATHS[p] === path.replace(/\/+$/, "")) ?? "overview";
  const v = emptyView(page);
  const get = (key: string) => q.get(key) ?? "";
  v.range = parseRange(get("range"), get("from"), get("to"));
  v.live = get("live") !== "0";
  v.every = whole(get("every"), 1, 3600) ?? DEFAULT_EVERY;
  const theme = get("theme");
  v.theme = theme === "dark" || theme === "light" ? theme : "";
  v.engine = get("engine");
  v.board = get("board");
  v.sort = get("sort");
  v.filter = get("q");
  v.level = get("level");
  v.role = get("role");
  v.peers = get("peers") !== "0";
  if (page === "engines" && get("view") === "passes") {
    v.passes = true;
    v.worker = get("worker");
    v.stripSpan = Math.min(parseDuration(get("span")) ?? 0, HOUR);
    v.stripAt = instant(get("at"));
    v.namespace = get("namespace");
    v.goalTTFT = get("ttft");
    v.goalITL = get("itl");
    v.isl = get("isl");
    v.osl = get("osl");
    v.rate = get("rate");
    v.prefill = get("prefill");
    v.decode = get("decode");
    v.x = get("x");
    v.by = get("by");
    v.id = get("pool");
  }
  if (page === "rollouts") {
    v.run = get("run");
    v.kind = get("kind") === "eval" ? "eval" : "train";
    v.rollout = id(get("step"));
    v.attempt = id(get("attempt"));
    v.versus = id(get("vs"));
    v.metric = get("metric");
    v.axis = get("x") === "time" ? "time" : "step";
    v.timeline = get("t");
  }
  if (page === "requests" || page === "traces" || page === "logs") {
    v.id = get("id");
    v.by = get("by");
    v.goalTTFT = get("ttft");
    v.goalITL = get("itl");
    v.x = get("x");
    v.y = get("y");
    v.color = get("color");
    v.log = get("scale") === "log";
    v.columns = get("cols");
    v.service = get("service");
    v.name = get("name");
    v.min = get("min");
    v.max = get("max");
    v.status = get("status");
    v.span = get("span");
    v.part = get("part");
    v.closed = get("closed");
    v.draw = get("draw") === "flame" ? "flame" : "waterfall";
    v.lineClass = get("class");
    v.timeline = get("t");
  }
  v.alert = get("alert");
  v.expr = get("expr");
  v.show = get("show") === "table" ? "table" : "chart";
  v.instant = get("at") === "instant";
  v.step = page === "rollouts" ? 0 : Math.round((parseDuration(get("step")) ?? 0) / 1000);
  // Links of Prometheus and Alertmanager: /graph?g0.expr=...&g0.tab=0&g0.range_input=1h&g0.end_input=...
  if (path === "/graph") {
    v.page = "explore";
    v.expr ||= get("g0.expr");
    if (get("g0.tab") === "1" || get("g0.tab") === "table") v.show = "table";
    const ms = parseDuration(get("g0.range_input"));
    const end = parseInstant(get("g0.end_input"), NaN);
    if (ms !== null && end !== null && Number.isFinite(end)) v.range ??= { kind: "fixed", from: end - ms, to: end };
    else if (ms !== null) v.range ??= { kind: "last", ms };
  }
  return v;
}

/** A rollout id or an attempt: digits, else nothing. */
function id(text: string): string {
  return /^-?\d{1,18}$/.test(text) ? text : "";
}

/** An instant in milliseconds since 1970; 0 when it is none. */
function instant(text: string): number {
  const t = parseInstant(text, NaN);
  return t !== null && t > 0 ? t : 0;
}

function whole(text: string, min: number, max: number): number | null {
  const n = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  return n >= min && n <= max ? n : null;
}

function parseRange(range: string, from: string, to: string): Range | null {
  if (range === "data") return { kind: "data" };
  const ms = parseDuration(range);
  if (ms !== null) return { kind: "last", ms: Math.min(Math.max(ms, 1000), 10 * 365 * DAY) };
  const f = parseInstant(from, NaN);
  const t = parseInstant(to, NaN);
  if (f !== null && t !== null && t > f) return { kind: "fixed", from: f, to: t };
  return null;
}

/** Writes the URL of a view: only what its page uses and what is not the default. */
export function viewURL(v: View): string {
  const q: [string, string][] = [];
  const add = (key: string, value: string) => {
    if (value !== "") q.push([key, value]);
  };
  if (v.range?.kind === "data") add("range", "data");
  if (v.range?.kind === "last") add("range", durationCode(v.range.ms));
  if (v.range?.kind === "fixed") {
    add("from", instantCode(v.range.from));
    add("to", instantCode(v.range.to));
  }
  if (!v.live) add("live", "0");
  if (v.every !== DEFAULT_EVERY) add("every", String(v.every));
  add("theme", v.theme);
  switch (v.page) {
    case "overview":
      add("sort", v.sort);
      break;
    case "engines":
      add("engine", v.engine);
      add("board", v.board);
      add("sort", v.sort);
      add("q", v.filter);
      add("level", v.level);
      add("role", v.role);
      if (!v.peers) add("peers", "0");
      if (!v.passes) break;
      add("view", "passes");
      add("worker", v.worker);
      if (v.stripSpan > 0) add("span", durationCode(v.stripSpan));
      if (v.stripAt > 0) add("at", instantCode(v.stripAt));
      add("namespace", v.namespace);
      add("ttft", v.goalTTFT);
      add("itl", v.goalITL);
      add("isl", v.isl);
      add("osl", v.osl);
      add("rate", v.rate);
      add("prefill", v.prefill);
      add("decode", v.decode);
      add("x", v.x);
      add("by", v.by);
      add("pool", v.id);
      break;
    case "rollouts":
      add("run", v.run);
      if (v.kind === "eval") add("kind", v.kind);
      add("step", v.rollout);
      add("attempt", v.attempt);
      add("vs", v.versus);
      add("metric", v.metric);
      if (v.axis === "time") add("x", v.axis);
      add("t", v.timeline);
      break;
    case "requests":
      add("q", v.filter);
      add("id", v.id);
      add("sort", v.sort);
      add("by", v.by);
      add("ttft", v.goalTTFT);
      add("itl", v.goalITL);
      add("x", v.x);
      add("y", v.y);
      add("color", v.color);
      if (v.log) add("scale", "log");
      add("cols", v.columns);
      break;
    case "traces":
      add("id", v.id);
      add("span", v.span);
      add("part", v.part);
      add("closed", v.closed);
      add("by", v.by);
      if (v.draw === "flame") add("draw", v.draw);
      add("t", v.timeline);
      add("service", v.service);
      add("name", v.name);
      add("q", v.filter);
      add("min", v.min);
      add("max", v.max);
      add("status", v.status);
      add("sort", v.sort);
      if (v.log) add("scale", "log");
      break;
    case "logs":
      add("q", v.filter);
      add("class", v.lineClass);
      add("level", v.level);
      add("engine", v.engine);
      add("service", v.service);
      add("by", v.by);
      add("id", v.id);
      break;
    case "alerts":
      add("alert", v.alert);
      add("q", v.filter);
      add("sort", v.sort);
      break;
    case "explore":
      add("expr", v.expr);
      if (v.show === "table") add("show", "table");
      if (v.instant) add("at", "instant");
      if (v.step > 0) add("step", durationCode(v.step * 1000));
      break;
  }
  const text = q.map(([k, value]) => `${k}=${escapeQuery(value)}`).join("&");
  return PATHS[v.page] + (text ? `?${text}` : "");
}

/** Escapes what a query must not hold, and leaves what makes it readable (":", "/", ","). */
function escapeQuery(value: string): string {
  return encodeURIComponent(value).replace(/%3A/g, ":").replace(/%2F/g, "/").replace(/%2C/g, ",").replace(/%20/g, "+");
}

/** The view after going to another page: range, live and theme stay, what belongs to a page does not. */
export function goTo(v: View, page: Page, patch: Partial<View> = {}): View {
  return { ...emptyView(page), range: v.range, live: v.live, every: v.every, theme: v.theme, ...patch };
}

/** A window of time, in milliseconds, and the distance of its points. */
export interface Window {
  from: number;
  to: number;
  step: number;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 7 * 86400];

/** The smallest round step (ms) with which ms are covered in at most points points. */
export function stepFor(ms: number, points: number): number {
  const s = STEPS.find((x) => ms / (x * 1000) <= points) ?? Math.ceil(ms / points / DAY / 1000) * DAY;
  return s * 1000;
}

/**
 * The window of a range at the time now. Relative windows end on a whole step, so that a live chart moves
 * by whole points instead of shimmering. data is what the store holds (NaN while there is nothing).
 */
export function windowOf(range: Range, now: number, data: { from: number; to: number }, points = 240): Window {
  let from: number;
  let to: number;
  if (range.kind === "fixed") {
    ({ from, to } = range);
  } else if (range.kind === "data" && Number.isFinite(data.from) && data.to >= data.from) {
    ({ from, to } = data);
    if (to - from < MINUTE) from = to - MINUTE;
  } else {
    const ms = range.kind === "last" ? range.ms : HOUR;
    to = now;
    from = now - ms;
  }
  const step = stepFor(to - from, points);
  const first = Math.floor(from / step);
  const last = range.kind === "last" ? Math.floor(to / step) : Math.ceil(to / step);
  return { from: first * step, to: Math.max(last, first + 1) * step, step };
}

/** The range zoomed by factor around the instant at (the middle without one); never under 10 s. */
export function zoomed(w: { from: number; to: number }, factor: number, at?: number): Range {
  const span = w.to - w.from;
  const next = Math.max(10_000, span * factor);
  const pivot = at === undefined ? 0.5 : Math.min(1, Math.max(0, (at - w.from) / span));
  const from = w.from + pivot * (span - next);
  return fixed(from, from + next);
}

/** The range moved by a share of its length. */
export function panned(w: { from: number; to: number }, share: number): Range {
  const d = (w.to - w.from) * share;
  return fixed(w.from + d, w.to + d);
}

export function fixed(from: number, to: number): Range {
  const f = Math.round(from / 1000) * 1000;
  return { kind: "fixed", from: f, to: Math.max(f + 1000, Math.round(to / 1000) * 1000) };
}
