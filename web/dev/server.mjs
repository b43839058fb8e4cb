// A server of invented data for working on the page: `npm run dev` builds on every change and serves on
// http://127.0.0.1:5173. FIXTURE=live|archive|empty|big|down chooses what it shows; PROXY=http://HOST:PORT takes
// the data from a running rollscope instead; PORT=0 takes a free port, which is printed. No part of the product.
import { createServer, request } from "node:http";
import { readFileSync, existsSync } from "node:fs";
import { spawn } from "node:child_process";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BOARDS, METRICS, RULES } from "./catalog.mjs";
import { fleetValue, INFOS, level, makeFleet, stateOf, value } from "./fleet.mjs";
import { rollouts } from "./rollouts.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const fixture = process.env.FIXTURE ?? "live";
const port = Number(process.env.PORT ?? 5173);
const out = process.env.ROLLSCOPE_WEB_OUT ?? join(here, "../../internal/web/dist");
if (!process.env.NO_BUILD) spawn(process.execPath, [join(here, "../build.mjs"), "--watch"], { stdio: "inherit" });

const HOUR = 3600e3;
const started = Math.floor(Date.now() / 60e3) * 60e3 - (fixture === "archive" ? 30 * HOUR : HOUR);
const ended = fixture === "archive" ? started + 5 * HOUR : NaN;
const fleet = fixture === "empty" ? [] : makeFleet(fixture === "big" ? 300 : 14, started / 1000);
const clock = () => (fixture === "archive" ? ended : Date.now());
const iso = (ms) => new Date(ms).toISOString();

const MIME = { ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8", ".txt": "text/plain" };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PAGES = ["/", "/engines", "/rollouts", "/requests", "/traces", "/logs", "/alerts", "/explore", "/graph"];

const envelope = (data, more = {}) => ({ data, state: "value", warnings: [], dropped: [], partial: false, ...more });
const num = (v, e) => (v === undefined ? { value: null, state: "not_applicable" } : v === null ? { value: null, ...(e ? stateOf(e) : { state: "idle", reason: "no events" }) } : { value: v, state: "value" });

function windowOf(q) {
  const to = q.get("to") ? Date.parse(q.get("to")) : clock();
  const from = q.get("from") ? Date.parse(q.get("from")) : to - HOUR;
  const step = Number(q.get("step") ?? Math.max(1, Math.round((to - from) / 240e3))) * 1000;
  const times = [];
  for (let t = from; t <= to; t += step) times.push(t);
  return { from, to, step, times };
}

const inside = (t) => t >= started && !(t > ended) && !(fixture === "archive" && t > started + 2 * HOUR && t < started + 2.4 * HOUR);

function signalData(id, q, opts = {}) {
  const info = INFOS.find((i) => i.id === id);
  const w = windowOf(q);
  const by = q.get("by") ?? "fleet";
  const quantiles = info.kind === "quantile" ? (q.get("quantiles") ?? "0.5,0.99").split(",").map(Number) : [undefined];
  const lines = [];
  const line = (name, labels, f, e, p) => {
    const values = w.times.map((t) => (inside(t) ? (f(t / 1000) ?? null) : null));
    const last = values.at(-1);
    const top = id === "e2e" ? 60 : undefined;
    const now = num(last === undefined ? null : last, e);
    if (top && last === 60) Object.assign(now, { lower: 60, upper: null, at_least: true, share_above: 0.04 });
    lines.push({ name, labels, values, now, ...(p === undefined ? {} : { quantile: p }), ...(top ? { top_bound: top } : {}) });
  };
  const wanted = q.get("engine");
  for (const p of quantiles) {
    const suffix = p === undefined ? "" : ` p${Math.round(p * 100)}`;
    if (by === "fleet") line(p === undefined ? "fleet" : suffix.trim(), {}, (t) => fleetValue(id, fleet, t, p), undefined, p);
    else if (by === "role" || by === "model") {
      for (const r of [...new Set(fleet.map((e) => (by === "role" ? e.role : e.model)))]) {
        line(r + suffix, { [by]: r }, (t) => fleetValue(id, fleet.filter((e) => (by === "role" ? e.role : e.model) === r), t, p), undefined, p);
      }
    } else {
      for (const e of fleet) {
        if (wanted && wanted !== e.id) continue;
        if (value(id, e, clock() / 1000, p) === undefined) continue;
        line(e.instance + suffix, { instance: e.instance, model_name: e.model, role: e.role, backend: e.backend }, (t) => value(id, e, t, p), e, p);
      }
    }
  }
  const unknown = id === "cache_hit_rate" && by === "fleet" ? spans(w, (t) => inside(t) && fleetValue(id, fleet, t / 1000, 0.99) === null).map(([a, b]) => ({ from: iso(a), to: iso(b), reason: "scrape timed out" })) : [];
  const idle = id === "queue_depth" && by === "fleet" ? [{ from: iso(w.from), to: iso(w.from + (w.to - w.from) * 0.12) }] : [];
  if (idle.length) for (const l of lines) l.values = l.values.map((v, i) => (w.times[i] <= Date.parse(idle[0].to) ? null : v));
  const worst = opts.worst && fleet.map((e) => ({ e, v: value(id, e, clock() / 1000, 0.99) })).filter((x) => typeof x.v === "number").sort((a, b) => (info.higher_is_better ? a.v - b.v : b.v - a.v))[0];
  return {
    id, title: info.title, unit: info.unit, form: "recorded", query: info.query, from: iso(w.from), to: iso(w.to), step_seconds: w.step / 1000, lines,
    worst: worst ? { engine_id: worst.e.id, name: worst.e.name, number: num(worst.v), line: info.kind === "quantile" ? "p99" : "" } : null,
    unknown, idle, sources: ["sglang"],
  };
}

function spans(w, f) {
  const out = [];
  let from = null;
  for (const t of w.times) {
    if (f(t)) from ??= t;
    else if (from !== null) { out.push([from, t]); from = null; }
  }
  if (from !== null) out.push([from, w.to]);
  return out;
}

const columnOf = (key) => {
  const [id, p] = key.split(":");
  const i = INFOS.find((x) => x.id === id);
  return { key, title: p ? `${p} ${i.short}` : i.short, unit: i.unit, higher_is_better: i.higher_is_better };
};

function engines(q) {
  const keys = (q.get("columns") || "ttft:p99,itl:p99,throughput,cache_hit_rate,queue_depth,running,kv_usage").split(",");
  const w = windowOf(q);
  const times = Array.from({ length: 40 }, (_, i) => w.from + ((w.to - w.from) * i) / 39);
  return {
    columns: keys.map(columnOf),
    engines: fleet.map((e) => {
      const [l, why] = level(e);
      const signals = {};
      const sparks = {};
      for (const k of keys) {
        const id = k.split(":")[0];
        const v = value(id, e, Math.min(w.to, clock()) / 1000);
        signals[k] = num(v, e);
        sparks[k] = { values: times.map((t) => (inside(t) ? (value(id, e, t / 1000) ?? null) : null)), state: v === undefined ? "not_applicable" : signals[k].state };
      }
      const { seed, begin, down, idle, ...rest } = e;
      return { ...rest, level: l, why, signals, sparks };
    }),
  };
}

function alerts() {
  if (fleet.length === 0) return [];
  const by = (name) => fleet.find((e) => e.name === name);
  const make = (name, state, lvl, severity, min, v, e, expr, summary, reason) => ({
    name, state, severity, level: lvl, since: iso(clock() - min * 60e3), value: v, summary, expr, for_seconds: 120,
    labels: { alertname: name, severity, instance: e.instance, job: e.job, model_name: e.model }, annotations: { summary, description: `${e.name}: ${summary}. Runbook: look at the board of its role.` },
    engine_id: e.id, group: "sglang", ...(reason ? { reason } : {}),
  });
  return [
    make("ITLHigh", "firing", "crit", "critical", 38, 0.066, by("decode-5"), 'histogram_quantile(0.99, sum by (instance, le) (rate(sglang:itl_seconds_bucket[5m]))) > 0.04', "inter-token latency p99 above 40 ms"),
    make("KVCacheNearlyFull", "firing", "warn", "warning", 19, 0.96, by("decode-1"), "max by (instance) (sglang:kv_usage) > 0.95", "KV cache above 95 %"),
    make("PrefillQueueUp", "firing", "warn", "warning", 11, 38, by("prefill-3"), "sum by (instance) (sglang:queue_depth) > 30", "more than 30 requests wait"),
    make("CacheHitLow", "pending", "warn", "warning", 1, 0.38, by("prefill-3"), "sglang:cache_hit_rate < 0.4", "prefix cache hit rate below 40 %"),
    make("TargetUnreadable", "cannot_be_judged", "unknown", "warning", 4, null, by("dynamo-w2"), "up == 0", "a target cannot be scraped", "connection refused since 14:26"),
  ];
}

function status() {
  return {
    version: "0.1.0-dev", mode: fixture === "archive" ? "archive" : fixture === "live" ? "demo" : "live", now: iso(Date.now()),
    from: fleet.length ? iso(started) : null, to: fleet.length ? iso(fixture === "archive" ? ended : Date.now()) : null,
    gaps: fixture === "archive" ? [{ from: iso(started + 2 * HOUR), to: iso(started + 2.4 * HOUR) }] : [],
    read_only: fixture === "archive", notices: fixture === "live" ? [{ code: "overlay", message: "the data directory is on overlay storage, which goes with the container", where: "/data", hint: "mount a volume at --storage.tsdb.path" }] : [],
    targets: fleet.length, targets_up: fleet.filter((e) => !e.down).length, drops: fixture === "live" ? [{ source: "scrape", reason: "out_of_order", count: 12 }] : [], dir: "/data/run-42",
  };
}

function targets() {
  return {
    active: fleet.map((e) => ({
      job: e.job, instance: e.instance, url: `http://${e.instance}/metrics`, backend: e.backend, role: e.role, version: e.version, model: e.model,
      up: !e.down, last_scrape: iso(Date.now() - 2000), duration_seconds: 0.012, samples: e.down ? 0 : 412, findings: e.name === "decode-3" ? [{ code: "bad_line", message: "3 lines could not be read", where: "line 212" }] : [],
      labels: e.labels, dp_ranks: e.dp_ranks.length, ...(e.down ? { error: `Get "http://${e.instance}/metrics": connection refused`, reason: "connection_refused", hint: "is the engine running with --enable-metrics?" } : {}),
    })),
    skipped: fleet.length ? [{ address: "grpc://10.0.9.9:5000", reason: "gRPC workers have no /metrics", from: "router list" }] : [],
  };
}

/** Any query gives a few series; a query that is not PromQL gives Prometheus's error. */
function prom(path, q) {
  const expr = q.get("query") ?? "";
  const bad = /foo\b|by by|^\s*\+|sum\(\s*$/.exec(expr);
  if (bad) return [400, { status: "error", errorType: "bad_data", error: `invalid parameter "query": 1:${bad.index + 1}: parse error: unexpected identifier "${bad[0].trim()}"` }];
  const warnings = /invented|e2e_first_token/.test(expr) ? [`metric "${expr}" does not exist; did you mean sglang:time_to_first_token_seconds?`] : [];
  const infos = /rate\(sglang:queue_depth/.test(expr) ? ["metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"sglang:queue_depth\" (1:6)"] : [];
  if (expr === "ALERTS" && path.endsWith("query_range")) {
    const [a, b, step] = [Number(q.get("start")), Number(q.get("end")), Number(q.get("step"))];
    const result = alerts().filter((x) => x.state !== "cannot_be_judged").flatMap((x) => ["pending", "firing"].map((alertstate) => {
      const since = Date.parse(x.since) / 1000;
      const values = [];
      for (let t = a; t <= b; t += step) {
        const firing = x.state === "firing" && t >= since;
        const pending = t >= since - 240 && !firing;
        const before = x.name === "PrefillQueueUp" && t > since - 1500 && t < since - 1100;
        if (alertstate === "firing" ? firing || before : pending && !before) values.push([t, "1"]);
      }
      return { metric: { ...x.labels, __name__: "ALERTS", alertstate }, values };
    })).filter((s) => s.values.length);
    return [200, { status: "success", data: { resultType: "matrix", result } }];
  }
  const scoped = /instance="([^"]+)"/.exec(expr)?.[1];
  const chosen = fleet.filter((e) => !e.down && (!scoped || e.instance === scoped)).slice(0, /sum\(|max\(|histogram_quantile\(0.99, sum by \(le\)/.test(expr) ? 1 : 12);
  const id = INFOS.find((i) => expr.includes(i.id))?.id ?? "running";
  const f = (e, t) => value(id, e, t);
  const metric = (e) => ({ __name__: /^[\w:]+$/.test(expr) ? expr : undefined, instance: e.instance, job: e.job, rack: e.labels.rack });
  if (path.endsWith("query_range")) {
    const [a, b, step] = [Number(q.get("start")), Number(q.get("end")), Number(q.get("step"))];
    const result = chosen.map((e) => {
      const values = [];
      for (let t = a; t <= b; t += step) { const v = f(e, t); if (typeof v === "number" && inside(t * 1000)) values.push([t, String(v)]); }
      return { metric: metric(e), values };
    }).filter((s) => s.values.length);
    return [200, { status: "success", data: { resultType: "matrix", result: /nothing/.test(expr) ? [] : result }, warnings, infos }];
  }
  const t = Number(q.get("time"));
  return [200, { status: "success", data: { resultType: "vector", result: chosen.map((e) => ({ metric: metric(e), value: [t, String(f(e, t) ?? "NaN")] })) }, warnings, infos }];
}

function api(path, q) {
  const [, id] = /^\/(?:signals|engines|boards)\/(.+)$/.exec(path) ?? [];
  if (path === "/status") return envelope(status());
  if (path === "/targets") return envelope(targets());
  if (path === "/overview") {
    const es = engines(q);
    const counts = {};
    for (const e of es.engines) counts[e.level] = (counts[e.level] ?? 0) + 1;
    return envelope({ golden: ["ttft", "itl", "throughput", "cache_hit_rate", "queue_depth"].map((s) => signalData(s, q, { worst: true })), engines: es, alerts: alerts(), counts, jobs: new Set(fleet.map((e) => e.job)).size });
  }
  if (path === "/engines") return envelope(engines(q));
  if (path.startsWith("/engines/")) {
    const e = engines(q).engines.find((x) => x.id === decodeURIComponent(id));
    if (!e) return null;
    return envelope({ engine: e, columns: [], alerts: alerts().filter((a) => a.engine_id === e.id), signals: INFOS.filter((i) => i.roles.length === 0 || i.roles.includes(e.role)) });
  }
  if (path === "/signals") return envelope(INFOS);
  if (path.startsWith("/signals/")) return envelope(signalData(id, q));
  if (path === "/metrics-catalog") return envelope(METRICS);
  if (path === "/alerts") return envelope({ alerts: alerts(), rules: fleet.length ? RULES : [], receivers: fixture === "live" ? ["http://alertmanager:9093 (alertmanager)", "http://hooks.local/x (webhook)"] : [] });
  if (path === "/passes") return envelope({ enabled: false, sources: [], engines: [], relay: null, rows: { keep: "off", retention_seconds: null, stored: 0, recent: 0, recent_seconds: 0 }, bursts: [] });
  if (path === "/boards") return envelope(BOARDS);
  if (path === "/rollouts" || path.startsWith("/rollouts/")) {
    const data = rollouts(path, q, fixture);
    return data && envelope(data);
  }
  return null;
}

/** Passes a request on to a running rollscope, streams too. */
function proxy(req, res) {
  const to = new URL(req.url, process.env.PROXY);
  const up = request(to, { method: req.method, headers: Object.fromEntries(Object.entries({ ...req.headers, host: to.host }).filter(([k]) => k !== "origin")) }, (r) => {
    res.writeHead(r.statusCode, r.headers);
    r.pipe(res);
  });
  up.on("error", () => res.destroy());
  res.on("close", () => up.destroy());
  req.pipe(up);
}

const server = createServer((req, res) => {
  const u = new URL(req.url, "http://x");
  if (process.env.PROXY && /^\/(api|-)\//.test(u.pathname)) return proxy(req, res);
  const json = (code, body) => { res.writeHead(code, { "Content-Type": "application/json" }); res.end(JSON.stringify(body)); };
  res.setHeader("Content-Security-Policy", CSP);
  if (fixture === "down" && u.pathname.startsWith("/api/") && !u.pathname.endsWith("/status")) return json(503, { error: { code: "timeout", message: "the query took longer than 2 min", where: "signal ttft", hint: "a shorter range" } });
  if (u.pathname === "/api/rollscope/v1/live") {
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    const send = () => res.write(`event: tick\ndata: ${JSON.stringify({ seq: 1, now: iso(Date.now()), to: iso(Date.now()), targets: fleet.length, targets_up: fleet.length - 1, alerts: {} })}\n\n`);
    send();
    const timer = setInterval(send, 5000);
    req.on("close", () => clearInterval(timer));
    return;
  }
  if (u.pathname.startsWith("/api/rollscope/v1/")) {
    const body = api(u.pathname.slice("/api/rollscope/v1".length), u.searchParams);
    return body ? json(200, body) : json(404, { error: { code: "not_found", message: `there is no ${u.pathname}`, where: u.pathname, hint: "GET /engines lists them" } });
  }
  if (u.pathname === "/api/v1/labels") return json(200, { status: "success", data: ["__name__", "instance", "job", "le", "model_name", "rack"] });
  if (u.pathname.startsWith("/api/v1/label/")) {
    const name = u.pathname.split("/")[4];
    const data = name === "__name__" ? ["up", ...METRICS.filter((m) => m.stored).map((m) => m.name), "my_own_metric"] : [...new Set(fleet.map((e) => ({ instance: e.instance, job: e.job, rack: e.labels.rack })[name] ?? "x"))];
    return json(200, { status: "success", data });
  }
  if (u.pathname === "/api/v1/format_query") return json(200, { status: "success", data: (u.searchParams.get("query") ?? "").replace(/\(/g, "(\n  ").replace(/\)/g, "\n)") });
  if (u.pathname.startsWith("/api/v1/query")) {
    let body = "";
    req.on("data", (c) => (body += c));
    req.on("end", () => json(...prom(u.pathname, body ? new URLSearchParams(body) : u.searchParams)));
    return;
  }
  const file = PAGES.includes(u.pathname) ? join(out, "index.html") : join(out, u.pathname);
  if (!file.startsWith(out) || !existsSync(file)) { res.writeHead(404); return res.end("not found"); }
  res.writeHead(200, { "Content-Type": MIME[extname(file)] ?? "application/octet-stream" });
  res.end(readFileSync(file));
});
server.listen(port, "127.0.0.1", () => console.log(`${fixture}: http://127.0.0.1:${server.address().port}`));
