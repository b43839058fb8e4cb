// Spans and log lines of known content, sent to the server under test as engines and shippers send them:
// OTLP/HTTP in JSON, and Loki's push.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { unnamed, until } from "./browser.mjs";

export const hex = (bytes) => randomBytes(bytes).toString("hex");
const ns = (ms) => String(BigInt(Math.round(ms * 1000)) * 1000n);

const value = (v) => (typeof v === "boolean" ? { boolValue: v } : typeof v === "number" ? (Number.isInteger(v) ? { intValue: String(v) } : { doubleValue: v }) : { stringValue: String(v) });
const attrs = (o = {}) => Object.entries(o).map(([key, v]) => ({ key, value: value(v) }));

async function post(base, path, body) {
  const res = await fetch(base + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!res.ok) throw new Error(`${path}: ${res.status} ${await res.text()}`);
}

/** The data of an answer of our API. */
export async function api(base, path) {
  const res = await fetch(`${base}/api/rollscope/v1${path}`);
  if (!res.ok) throw new Error(`${path}: ${res.status} ${(await res.text()).slice(0, 300)}`);
  return (await res.json()).data;
}

/** An engine of the fleet that serves requests by itself. */
export async function someEngine(base) {
  return until("an engine", async () => (await api(base, "/engines")).engines.find((e) => e.role === "unified" && e.state !== "down"), 60_000);
}

/**
 * A request of a prefill and a decode engine behind a router, as SGLang traces it: two threads each, 40 passes
 * of decode_loop, a span whose parent nobody exports, one that lost attributes, links, an event, and an error,
 * so that tail sampling keeps it. start is in ms.
 */
export function pdTrace({ service, start, seconds = 4, rid = hex(16), trace = hex(16), room = String(BigInt(`0x${hex(7)}`)) }) {
  const end = start + seconds * 1000;
  const first = start + 900;
  const id = { root: hex(8), d: hex(8), dSched: hex(8), dForward: hex(8), p: hex(8), pSched: hex(8), pForward: hex(8), lost: hex(8) };
  const span = (spanId, parent, name, from, to, more = {}) => ({ traceId: trace, spanId, parentSpanId: parent, name, kind: 1, startTimeUnixNano: ns(from), endTimeUnixNano: ns(to), status: {}, ...more });
  const request = { rid, bootstrap_room: room, "gen_ai.response.model": "Qwen/Qwen3-32B", "gen_ai.usage.prompt_tokens": 2048, "gen_ai.usage.completion_tokens": 300 };
  const engine = [
    span(id.d, id.root, `decode Req ${rid.slice(0, 8)}`, start + 3, end, { attributes: attrs(request), status: { code: 2, message: "client went away" } }),
    span(id.dSched, id.d, "Decode Scheduler [TP 0](host:aaaa1111 | pid:71)", start + 4, end),
    span(hex(8), id.dSched, "decode_prepare", start + 5, start + 12),
    span(hex(8), id.dSched, "decode_bootstrap", start + 12, start + 40),
    span(hex(8), id.dSched, "decode_transferred", start + 40, first),
    span(id.dForward, id.dSched, "decode_forward", first, end, {
      links: [{ traceId: trace, spanId: id.pForward, attributes: attrs({ why: "kv" }) }],
      events: [{ timeUnixNano: ns(first + 10), name: "first_token", attributes: attrs({ token: 1 }) }],
    }),
    ...Array.from({ length: 40 }, (_, i) => span(hex(8), id.dSched, "decode_loop", first + i * ((end - first) / 40), first + (i + 1) * ((end - first) / 40), { attributes: attrs({ bid: i }) })),
    span(id.p, id.root, `prefill Req ${rid.slice(0, 8)}`, start + 3, first, { attributes: attrs(request), droppedAttributesCount: 37 }),
    span(id.pSched, id.p, "Prefill Scheduler [TP 0](host:bbbb2222 | pid:72)", start + 4, first),
    span(hex(8), id.pSched, "prefill_bootstrap", start + 5, start + 40),
    span(hex(8), id.pSched, "prefill_waiting", start + 40, start + 300),
    span(id.pForward, id.pSched, "prefill_forward", start + 300, start + 700),
    span(hex(8), id.pSched, "prefill_transfer_kv_cache", start + 700, first),
    span(hex(8), id.lost, "tokenize", start + 3.1, start + 3.9),
  ];
  const router = [span(id.root, "", "http_request", start, end + 2, { kind: 2, attributes: attrs({ "http.route": "/generate", "http.status_code": 499 }) })];
  const group = (name, spans) => ({ resource: { attributes: attrs({ "service.name": name, "host.name": "e2e-host" }) }, scopeSpans: [{ scope: { name: "sglang" }, spans }] });
  return { body: { resourceSpans: [group("e2e-router", router), group(service, engine)] }, trace, rid, id, start, end };
}

/** Sends a trace and waits until it can be read. */
export async function sendTrace(base, t) {
  await post(base, "/v1/traces", t.body);
  await until("the trace that was sent", () => api(base, `/traces/${t.trace}`).then((d) => d.spans.length > 0, () => false), 60_000);
}

/** Sends lines of an engine, each [ms, text], and does not wait. */
export async function sendLines(base, service, lines) {
  await post(base, "/loki/api/v1/push", { streams: [{ stream: { service_name: service }, values: lines.map(([ms, text]) => [ns(ms), text]) }] });
}

/** A time as SGLang's lines have it. */
export const stampOf = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

/** Runs a test on a page of its own and then asks what must not have happened, and for controls without a name. */
export function visitor(base, browser) {
  return async (theme, path, run, size) => {
    if (typeof path === "function") path = path();
    const p = await browser().open(base, size);
    p.page.setDefaultTimeout(60_000);
    try {
      await p.go(`${path}${path.includes("?") ? "&" : "?"}theme=${theme}`);
      await run(p);
      assert.deepEqual(await unnamed(p.page), [], "controls without a name");
      assert.deepEqual(p.sins, [], "what must not happen");
    } catch (err) {
      await p.shot(`failed-${theme}-${path.split("?")[0].replace(/\W+/g, "_")}-${Date.now() % 1e6}`).catch(() => {});
      throw err;
    } finally {
      await p.close();
    }
  };
}
