// Containers of any size for tests and for the development page: an encoder, and an invented step of RL
// rollouts with everything that real ones have: queues, PD phases, tools, aborted attempts, open spans,
// ends without starts, samples without a trace, names that would like to be HTML.
import type { ColumnHead } from "./container";
import { CLASS_NAMES, CLOSED, CRITICAL, DECODE, EVENT, GENERATE, GROUP, OPEN, ORPHAN, OTHER, PHASE, PHASES, POINT, PREFILL, QUEUE, REWARD, ROW_ABORTED, ROW_CARRIED, ROW_CRITICAL, ROW_ERROR, ROW_HELD, SYNC, TOOL, ABORTED, ERROR, VIRTUAL, DERIVED } from "./table";

const utf8 = new TextEncoder();

class Bytes {
  buf = new Uint8Array(1024);
  n = 0;
  private room(k: number): void {
    if (this.n + k <= this.buf.length) return;
    const wider = new Uint8Array(Math.max(this.buf.length * 2, this.n + k));
    wider.set(this.buf);
    this.buf = wider;
  }
  uv(v: number): void {
    this.room(10);
    while (v >= 128) {
      this.buf[this.n++] = (v % 128) | 128;
      v = Math.floor(v / 128);
    }
    this.buf[this.n++] = v;
  }
  zv(v: number): void {
    this.uv(v < 0 ? -2 * v - 1 : 2 * v);
  }
  raw(b: Uint8Array): void {
    this.room(b.length);
    this.buf.set(b, this.n);
    this.n += b.length;
  }
  done(): Uint8Array {
    return this.buf.slice(0, this.n);
  }
}

type Values = ArrayLike<number> | string[];

function encodeColumn(type: ColumnHead["type"], enc: ColumnHead["enc"], values: Values): Uint8Array {
  const out = new Bytes();
  if (enc === "str") {
    const list = (values as string[]).map((s) => utf8.encode(s));
    for (const b of list) out.uv(b.length);
    for (const b of list) out.raw(b);
    return out.done();
  }
  const v = values as ArrayLike<number>;
  if (enc === "raw") {
    const made = type === "u8" ? Uint8Array.from(v) : type === "u16" ? Uint16Array.from(v) : type === "u32" ? Uint32Array.from(v) : type === "i32" ? Int32Array.from(v) : type === "f32" ? Float32Array.from(v) : Float64Array.from(v);
    return new Uint8Array(made.buffer.slice(0));
  }
  let last = 0;
  for (let i = 0; i < v.length; i++) {
    const x = v[i] as number;
    if (enc === "uv") out.uv(x);
    else if (enc === "zv") out.zv(x);
    else if (enc === "dv") {
      out.zv(x - last);
      last = x;
    } else if (Number.isNaN(x)) out.uv(0);
    else out.uv((x < 0 ? -2 * x - 1 : 2 * x) + 1);
  }
  return out.done();
}

async function deflate(data: Uint8Array): Promise<Uint8Array> {
  const s = new Blob([data as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(s).arrayBuffer());
}

const SPEC: Record<string, [ColumnHead["type"], ColumnHead["enc"]]> = {
  "row.ordinal": ["u32", "dv"], "row.index": ["f64", "ov"], "row.group": ["f64", "ov"], "row.rollout": ["f64", "ov"], "row.status": ["u8", "uv"], "row.why": ["u8", "uv"],
  "row.source": ["u16", "uv"], "row.label": ["u32", "uv"], "row.reward": ["f64", "raw"], "row.start": ["f64", "dv"], "row.dur": ["f64", "uv"], "row.attempts": ["u8", "uv"],
  "row.response": ["f64", "ov"], "row.prompt": ["f64", "ov"], "row.lanes": ["u16", "uv"], "row.items": ["u32", "uv"], "row.requests": ["u32", "uv"], "row.open": ["u32", "uv"],
  "row.orphans": ["u32", "uv"], "row.points": ["u32", "uv"], "row.flags": ["u16", "uv"], "row.trace": ["str", "str"],
  "item.start": ["f64", "dv"], "item.dur": ["f64", "uv"], "item.name": ["u16", "uv"], "item.class": ["u8", "raw"], "item.state": ["u8", "raw"], "item.flags": ["u16", "uv"],
  "item.lane": ["u16", "uv"], "item.depth": ["u16", "uv"], "item.parent": ["i32", "zv"], "item.request": ["i32", "zv"], "item.attempt": ["u8", "uv"], "item.clip": ["u8", "uv"],
  "item.segs": ["u8", "uv"], "item.n": ["u32", "uv"], "seg.class": ["u8", "raw"], "seg.start": ["f64", "dv"], "seg.dur": ["f64", "uv"],
  "req.rid": ["str", "str"], "req.name": ["u16", "uv"], "req.start": ["f64", "dv"], "req.dur": ["f64", "ov"], "req.attempt": ["u8", "uv"], "req.finish": ["u8", "uv"],
  "req.prompt": ["f64", "ov"], "req.completion": ["f64", "ov"], "req.cached": ["f64", "ov"], "req.retries": ["f64", "ov"], "req.queue": ["f64", "ov"], "req.e2e": ["f64", "ov"],
  "req.throughput": ["f32", "raw"], "req.speed": ["f32", "raw"], "req.size": ["f32", "raw"], "req.invalid": ["u32", "uv"], "req.item": ["i32", "zv"],
  "order.row": ["u32", "dv"], "row.id": ["u32", "dv"], "raster.class": ["u8", "raw"], "raster.fill": ["u8", "raw"],
  ...Object.fromEntries(PHASES.map((_, i) => [`req.phase${i}`, ["f64", "ov"]])),
} as Record<string, [ColumnHead["type"], ColumnHead["enc"]]>;

/** Writes a container: columns by name, and blocks of JSON for attributes, details and texts. */
export async function encode(
  head: Record<string, unknown>,
  columns: Record<string, Values>,
  more: { attrs?: unknown[]; details?: unknown[]; texts?: { rows: number[]; list: unknown[] } } = {},
): Promise<Uint8Array> {
  const blobs: Uint8Array[] = [];
  const infos: { offset: number; bytes: number; raw: number; enc: string }[] = [];
  let at = 0;
  const add = async (raw: Uint8Array): Promise<number> => {
    const z = await deflate(raw);
    infos.push({ offset: at, bytes: z.length, raw: raw.length, enc: "deflate" });
    blobs.push(z);
    at += z.length;
    return blobs.length - 1;
  };
  const heads: ColumnHead[] = [];
  const all = new Bytes();
  for (const [name, values] of Object.entries(columns)) {
    const [type, enc] = SPEC[name] ?? ["f64", "ov"];
    const data = encodeColumn(type, enc, values);
    if (data.length > 65536) {
      // A large column is a blob of its own, so that readers inflate several at once.
      heads.push({ name, type, enc, count: values.length, blob: await add(data), offset: 0, bytes: data.length });
      continue;
    }
    heads.push({ name, type, enc, count: values.length, blob: -1, offset: all.n, bytes: data.length });
    all.raw(data);
  }
  const shared = await add(all.done());
  for (const h of heads) if (h.blob < 0) h.blob = shared;
  const blocks = async (list: unknown[] | undefined) => {
    const out: { from: number; rows: number; blob: number }[] = [];
    for (let from = 0; list && from < list.length; from += 256) {
      const part = list.slice(from, from + 256);
      out.push({ from, rows: part.length, blob: await add(utf8.encode(JSON.stringify(part))) });
    }
    return out;
  };
  const attrs = await blocks(more.attrs), details = await blocks(more.details);
  const texts = more.texts ? [{ rows: more.texts.rows, blob: await add(utf8.encode(JSON.stringify(more.texts.list))) }] : [];
  const json = utf8.encode(JSON.stringify({ format: "rollscope-timeline", version: 1, ...head, columns: heads, blobs: infos, attrs, details, texts }));
  const out = new Bytes();
  out.raw(utf8.encode("RTC1"));
  out.raw(new Uint8Array(Uint32Array.of(json.length).buffer));
  out.raw(json);
  for (const b of blobs) out.raw(b);
  return out.done();
}

export function rng(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

interface Item {
  start: number;
  end: number;
  name: string;
  cls: number;
  state?: number;
  flags?: number;
  lane: number;
  depth: number;
  parent: number;
  request?: number;
  attempt: number;
  clip?: string;
  segs?: [number, number, number][];
  attrs?: [unknown, unknown] | null;
}

/** Gathers rows into columns. */
export class Builder {
  private dicts: Record<string, Map<string, number>> = {};
  readonly cols: Record<string, number[] | string[]> = {};
  readonly attrs: unknown[] = [];
  readonly details: unknown[] = [];
  private lo = Infinity;
  private hi = -Infinity;
  private n = 0;

  constructor(private withAttrs = true) {
    for (const k of ["name", "status", "source", "label", "why", "finish", "clip"]) this.dicts[k] = new Map([["", 0]]);
    for (const k of Object.keys(SPEC)) if (!/^(order|raster|row\.id)/.test(k)) this.cols[k] = [];
  }
  id(dict: string, s: string): number {
    const d = this.dicts[dict] as Map<string, number>;
    let i = d.get(s);
    if (i === undefined) d.set(s, (i = d.size));
    return i;
  }
  private put(name: string, v: number | string): void {
    (this.cols[name] as (number | string)[]).push(v);
  }

  row(
    r: { index?: number; group?: number; rollout?: number; status?: string; why?: string; source?: string; label?: string; reward?: number; response?: number; prompt?: number; flags?: number; trace?: string; detail?: unknown },
    items: Item[],
    requests: Record<string, number | string>[] = [],
  ): void {
    const sorted = items.map((it, i) => ({ it, i })).sort((a, b) => a.it.lane - b.it.lane || a.it.start - b.it.start || b.it.end - a.it.end || a.i - b.i);
    const place = new Int32Array(items.length);
    sorted.forEach((s, k) => (place[s.i] = k));
    let start = Infinity, end = -Infinity, lanes = 0, open = 0, orphans = 0, points = 0, attempts = 0;
    const attrs: unknown[] = [];
    for (const { it } of sorted) {
      start = Math.min(start, it.start);
      end = Math.max(end, it.end);
      lanes = Math.max(lanes, it.lane + 1);
      attempts = Math.max(attempts, it.attempt + 1);
      const state = it.state ?? CLOSED;
      if (state === OPEN) open++;
      if (state === ORPHAN) orphans++;
      if (state === POINT) points++;
      const segs = it.segs ?? [];
      const v: Record<string, number> = {
        start: it.start, dur: it.end - it.start, name: this.id("name", it.name), class: it.cls, state, flags: it.flags ?? 0, lane: it.lane, depth: it.depth,
        parent: it.parent >= 0 ? (place[it.parent] as number) : -1, request: it.request ?? -1, attempt: it.attempt, clip: this.id("clip", it.clip ?? ""), segs: segs.length, n: 1,
      };
      for (const [k, x] of Object.entries(v)) this.put(`item.${k}`, x);
      for (const [c, a, b] of segs) {
        this.put("seg.class", c);
        this.put("seg.start", a);
        this.put("seg.dur", b - a);
      }
      if (this.withAttrs) attrs.push(it.attrs ?? null);
    }
    const empty = items.length === 0;
    if (!empty) {
      this.lo = Math.min(this.lo, start);
      this.hi = Math.max(this.hi, end);
    }
    const v: Record<string, number | string> = {
      ordinal: this.n, index: r.index ?? NaN, group: r.group ?? NaN, rollout: r.rollout ?? NaN, status: this.id("status", r.status ?? ""), why: this.id("why", r.why ?? ""),
      source: this.id("source", r.source ?? ""), label: this.id("label", r.label ?? ""), reward: r.reward ?? NaN, start: empty ? 0 : start, dur: empty ? 0 : end - start,
      attempts, response: r.response ?? NaN, prompt: r.prompt ?? NaN, lanes, items: items.length, requests: requests.length, open, orphans, points, flags: r.flags ?? 0, trace: r.trace ?? "",
    };
    for (const [k, x] of Object.entries(v)) this.put(`row.${k}`, x);
    for (const q of requests) {
      const base: Record<string, number | string> = { rid: "", name: 0, start: 0, dur: NaN, attempt: 0, finish: 0, prompt: NaN, completion: NaN, cached: NaN, retries: NaN, queue: NaN, e2e: NaN, throughput: NaN, speed: NaN, size: NaN, invalid: 0, item: -1 };
      PHASES.forEach((_, i) => (base[`phase${i}`] = NaN));
      const item = q["item"];
      for (const [k, x] of Object.entries({ ...base, ...q, item: typeof item === "number" && item >= 0 ? (place[item] as number) : -1 })) this.put(`req.${k}`, x);
    }
    this.attrs.push(this.withAttrs ? attrs : null);
    this.details.push(r.detail ?? {});
    this.n++;
  }

  /** A row of very many items, without an object for each. */
  bulk(index: number, count: number, fill: (i: number) => { start: number; dur: number; name: string; cls: number; state: number; lane: number; depth: number }): void {
    let end = 0, lanes = 0, points = 0, start = Infinity;
    for (let i = 0; i < count; i++) {
      const f = fill(i);
      const v: Record<string, number> = { start: f.start, dur: f.dur, name: this.id("name", f.name), class: f.cls, state: f.state, flags: 0, lane: f.lane, depth: f.depth, parent: -1, request: -1, attempt: 0, clip: 0, segs: 0, n: 1 };
      for (const k in v) (this.cols[`item.${k}`] as number[]).push(v[k] as number);
      start = Math.min(start, f.start);
      end = Math.max(end, f.start + f.dur);
      lanes = Math.max(lanes, f.lane + 1);
      if (f.state === POINT) points++;
    }
    this.lo = Math.min(this.lo, start);
    this.hi = Math.max(this.hi, end);
    const v: Record<string, number | string> = { ordinal: this.n, index, group: 0, rollout: NaN, status: this.id("status", "completed"), why: 0, source: 0, label: 0, reward: 1, start, dur: end - start, attempts: 1, response: NaN, prompt: NaN, lanes, items: count, requests: 0, open: 0, orphans: 0, points, flags: 0, trace: "big" };
    for (const [k, x] of Object.entries(v)) this.put(`row.${k}`, x);
    this.attrs.push(null);
    this.details.push({});
    this.n++;
  }

  finish(head: Record<string, unknown> = {}, texts?: { rows: number[]; list: unknown[] }): Promise<Uint8Array> {
    const words = Object.fromEntries(Object.entries(this.dicts).map(([k, m]) => [k, [...m.keys()]]));
    return encode(
      {
        tool: "v0.0.0-test", dump: { name: "rollout_142.pt", bytes: 135_512_064, fingerprint: "test", kind: "train", rollout_id: 142, shape: "dict of samples" }, detail: "full", note: "",
        t0: "1787000000000019000", unit_ns: 1000, counts: { samples: this.n, rows: this.n, items: (this.cols["item.start"] as number[]).length, requests: (this.cols["req.rid"] as string[]).length, events: 0, skipped: 0 },
        extent: this.hi >= this.lo ? [this.lo, this.hi] : null, dicts: { ...words, class: CLASS_NAMES }, step: null, ...head,
      },
      this.cols,
      { ...(this.withAttrs ? { attrs: this.attrs } : {}), details: this.details, ...(texts ? { texts } : {}) },
    );
  }
}

export interface StepOptions {
  samples: number;
  seed?: number;
  /** seconds of the step */
  length?: number;
  groupSize?: number;
  pd?: boolean;
  attrs?: boolean;
  hostile?: boolean;
  /** samples carried over from a step that ended long before */
  partial?: boolean;
  name?: string;
  sync?: boolean;
  /** turns of each sample, instead of a few for some */
  turns?: number;
}

export const HOSTILE = ['<img src=x onerror="window.__pwned=1">', "</script><script>window.__pwned=2</script>", '"; alert(1); "', "‮txt.exe‬", "line\nbreak\u0000nul", "{{constructor.constructor('window.__pwned=3')()}}"];

const S = 1e6;

/** An invented step: most samples end early, few hold it. */
export function step(o: StepOptions): Promise<Uint8Array> {
  const r = rng(o.seed ?? 77);
  const b = new Builder(o.attrs ?? true);
  const length = (o.length ?? 620) * S;
  const size = o.groupSize ?? 8;
  const pd = o.pd ?? true;
  const hostile = o.hostile ?? false;
  interface Made {
    index: number;
    end: number;
    make: (flags: number) => void;
  }
  const rows: Made[] = [];
  const bad = () => HOSTILE[Math.floor(r() * HOSTILE.length)] as string;
  for (let k = 0; k < o.samples; k++) {
    const index = (k * 997) % o.samples;
    const group = Math.floor(index / size);
    if (r() < 0.004 && k > 8) {
      rows.push({ index, end: -1, make: () => b.row({ index, group, status: "pending", why: "no trace", source: hostile ? bad() : "math" }, []) });
      continue;
    }
    const items: Item[] = [];
    const reqs: Record<string, number | string>[] = [];
    let t = Math.floor(((k % 256) * 0.02 + r() * 2.5) * S);
    const carried = o.partial === true && r() < 0.15;
    if (carried) t -= 4000 * S;
    const t0 = t;
    const tail = Math.min(1, r() ** 3.2 * 1.02);
    const multi = r() < 0.28;
    const turns = o.turns ?? (multi ? 2 + Math.floor(r() * 4) : 1);
    const scale = (length * 0.93) / (520 * S);
    const total = (40 + tail * 420) * S * scale;
    const q0 = (2 + r() * 60 * (k / Math.max(1, o.samples))) * S * scale;
    items.push({ start: t, end: t, name: "generate_and_rm", cls: GROUP, lane: 0, depth: 0, parent: -1, attempt: 0 });
    items.push({ start: t, end: t, name: "sample_created", cls: EVENT, state: POINT, lane: 0, depth: 1, parent: 0, attempt: 0, attrs: [{ group, index }, null] });
    let attempt = 0;
    let aborted = false;
    const request = (queue: number, decode: number, abort: boolean, isOpen: boolean) => {
      const start = t;
      const waits = [0.2, 0.15, 0.3].map((x) => x * (0.6 + r()) * S), forward = (4 + (r() * 16) / turns) * S * scale, tq = (0.3 + r()) * S;
      const pre = [0.4 * r() * S, 0.3 * r() * S, (r() < 0.1 ? 3 : 0.4) * r() * S], transfer = (0.5 + r() * 2.5) * S;
      const p0 = start + queue, p1 = p0 + waits[0]! + waits[1]! + waits[2]!, p2 = p1 + forward, p3 = p2 + tq;
      const d1 = p3 + pre[0]! + pre[1]! + pre[2]!, d2 = d1 + transfer, d3 = d2 + decode;
      const end = Math.floor(d3);
      const item = items.length;
      const flags = abort ? ABORTED : 0;
      const rid = `${Math.floor(r() * 2 ** 32).toString(16).padStart(8, "0")}${index.toString(16).padStart(6, "0")}${reqs.length}`;
      items.push({
        start, end, name: "sglang_generate", cls: GENERATE, state: isOpen ? OPEN : CLOSED, flags, lane: 1, depth: 1, parent: 0, request: reqs.length, attempt, clip: isOpen ? "row_end" : "",
        attrs: [{ worker: `http://10.0.${1 + (index % 4)}.${10 + (index % 12)}:30000`, turn: reqs.length, ...(hostile ? { note: bad() } : {}) }, isOpen ? null : { finish_reason: abort ? "abort" : "stop", completion_tokens: Math.floor(decode / 13_000), cached_tokens: 1024, meta: { weight_version: "142", spec: [1, 2, 3] } }],
      });
      const w = (x: number) => Math.floor(x);
      if (queue > 0 && !pd) items.push({ start, end: w(p0), name: "engine queue", cls: QUEUE, flags: DERIVED, lane: 2, depth: 2, parent: item, request: reqs.length, attempt });
      const q: Record<string, number | string> = {
        rid, name: b.id("name", "sglang_generate"), start, dur: isOpen ? NaN : end - start, attempt, finish: b.id("finish", abort ? "abort" : isOpen ? "" : r() < 0.2 ? "length" : "stop"), prompt: 2114, completion: Math.floor(decode / 13_000), cached: 1024,
        retries: r() < 0.05 ? 3 : 0, queue: w(queue), e2e: end - start, throughput: 75 + 10 * r(), speed: 0.4 + r(), size: 1690 * r(), invalid: 0, item,
      };
      if (pd) {
        const phases = [p1 - p0, waits[1], waits[2], forward + tq, tq, d1 - p3, pre[1], pre[2], transfer, decode].map((x) => w(x as number));
        phases.forEach((x, i) => (q[`phase${i}`] = x));
        const pBase = { depth: 2, parent: item, request: reqs.length, attempt, flags: VIRTUAL | flags };
        const a1 = w(p0 + waits[0]!), a2 = w(p0 + waits[0]! + waits[1]!);
        items.push({ ...pBase, start: w(p0), end: w(p3), name: "[P] sglang_generate", cls: PREFILL, lane: 2, segs: [[PHASE, w(p0), a1], [PHASE + 1, a1, a2], [PHASE + 2, a2, w(p1)], [PHASE + 3, w(p1), w(p2)], [PHASE + 4, w(p2), w(p3)]] });
        const e1 = w(p3 + pre[0]!), e2 = w(p3 + pre[0]! + pre[1]!);
        items.push({ ...pBase, start: w(p3), end, name: "[D] sglang_generate", cls: DECODE, lane: 3, segs: [[PHASE + 5, w(p3), e1], [PHASE + 6, e1, e2], [PHASE + 7, e2, w(d1)], [PHASE + 8, w(d1), w(d2)], [PHASE + 9, w(d2), end]] });
      }
      reqs.push(q);
      t = end;
      items.push({ start: t, end: t, name: abort ? "request_aborted" : "request_complete", cls: EVENT, state: POINT, lane: 1, depth: 2, parent: item, attempt });
    };
    for (let turn = 0; turn < turns; turn++) {
      const decode = (total / turns) * (0.8 + r() * 0.4);
      if (turn === 0 && r() < 0.06) {
        aborted = true;
        request(q0, decode * 0.35, true, false);
        t += Math.floor(1.6 * S);
        attempt = 1;
        items.push({ start: t, end: t, name: "attempt_start", cls: EVENT, state: POINT, lane: 0, depth: 1, parent: 0, attempt });
        request((8 + r() * 10) * S, decode, false, false);
      } else request(turn === 0 ? q0 : 0, decode, false, k % 90 === 17 && turn === turns - 1);
      if (carried && turn === 0) t = Math.max(t, Math.floor(r() * 3 * S));
      if (turn < turns - 1) {
        const d = Math.floor((4 + r() * 14) * S * scale);
        const name = hostile && r() < 0.3 ? bad() : r() < 0.5 ? "sandbox_exec" : "web_search";
        items.push({ start: t, end: t + d, name, cls: TOOL, flags: r() < 0.05 ? ERROR : 0, lane: 1, depth: 1, parent: 0, attempt, attrs: [{ cmd: "python solve.py", turn }, { exit_code: r() < 0.1 ? 1 : 0, error_type: null }] });
        if (r() < 0.4) items.push({ start: t + Math.floor(d * 0.1), end: t + Math.floor(d * 0.7), name: "fetch_docs", cls: OTHER, lane: 2, depth: 2, parent: items.length - 1, attempt });
        t += d;
      }
    }
    const last = items.findLast((it) => it.cls === GENERATE);
    const isOpen = last?.state === OPEN;
    if (!isOpen) {
      const d = Math.floor((3 + r() * 9) * S * scale);
      items.push({ start: t, end: t + d, name: "reward_model", cls: REWARD, lane: 1, depth: 1, parent: 0, attempt, attrs: [null, { reward: 1, exact: true }] });
      t += d;
    }
    if (r() < 0.02) {
      const at = Math.floor(t0 + (t - t0) * r());
      items.push({ start: at, end: at, name: "sandbox_exec", cls: TOOL, state: ORPHAN, lane: 1, depth: 1, parent: 0, attempt });
    }
    // The step is only as long as asked.
    if (t > length) {
      const f = (length - Math.max(0, t0)) / (t - Math.max(0, t0));
      const shift = (x: number) => (x <= 0 ? x : Math.floor(Math.max(0, t0) + (x - Math.max(0, t0)) * f));
      for (const it of items) {
        it.start = shift(it.start);
        it.end = shift(it.end);
        it.segs = it.segs?.map(([c, a, e]) => [c, shift(a), shift(e)]) as [number, number, number][];
      }
      t = shift(t);
    }
    (items[0] as Item).end = t;
    const reward = r() < 0.43 ? 1 : 0;
    const status = isOpen ? "pending" : tail > 0.93 ? "truncated" : r() < 0.01 ? "aborted" : "completed";
    rows.push({
      index, end: t,
      make: (flags) => {
        if ((flags & ROW_HELD) !== 0) for (const it of items) if (it.cls === GENERATE || it.cls === TOOL || it.cls === REWARD) it.flags = (it.flags ?? 0) | CRITICAL;
        b.row(
          {
            index, group, rollout: 142, status, source: hostile ? bad() : ["math", "code", "search"][group % 3] ?? "", label: hostile ? bad() : String(index * 7), reward, response: Math.floor(total / 13_000), prompt: 2114, trace: `trace-${index.toString(16).padStart(8, "0")}`,
            flags: flags | (aborted ? ROW_ABORTED : 0) | (carried ? ROW_CARRIED : 0) | (items.some((it) => ((it.flags ?? 0) & ERROR) !== 0) ? ROW_ERROR : 0),
            detail: { reward: { accuracy: reward, format: 0.5, length_penalty: -0.125 }, session: `s-${index}`, weight_versions: ["141", "142"], effective_tokens: Math.floor(total / 14_000), metadata: { difficulty: "hard", tags: ["a", "b"], ...(hostile ? { "<b>key</b>": bad() } : {}) }, problems: aborted ? [{ code: "aborted_attempt", where: "events[12]", what: "attempt 0 was thrown away" }] : [] },
          },
          items, reqs,
        );
      },
    });
  }
  const ends = rows.map((x) => x.end).sort((a, c) => c - a);
  const held = ends[Math.min(ends.length - 1, 5)] ?? Infinity;
  for (const x of rows) x.make(x.end >= 0 && x.end >= held && o.samples > 6 ? ROW_HELD | ROW_CRITICAL : 0);
  const wall = length / S;
  const share: [string, number][] = [["queue", 0.06], ["prefill", 0.095], ["transfer", 0.022], ["decode", 0.488], ["tool", 0.051], ["reward", 0.066], ["straggler", 0.184], ["sync", 0.03], ["unexplained", 0.004]];
  const sync: [number, number] = [Math.floor(length * 1.002), Math.floor(length * 1.035)];
  if (o.sync ?? true) b.row({ status: "", label: "weight sync", trace: "sync" }, [{ start: sync[0], end: sync[1], name: "update_weights", cls: SYNC, lane: 0, depth: 0, parent: -1, attempt: 0 }]);
  return b.finish(
    {
      dump: { name: o.name ?? (hostile ? `rollout_${HOSTILE[1]}.pt` : "rollout_142.pt"), bytes: 135_512_064, fingerprint: "test", kind: "train", rollout_id: 142, shape: "dict of samples" },
      step: {
        known: true, start_ns: "1787000000000019000", end_ns: String(1787000000000019000n + BigInt(Math.round(length * 1000))), wall_seconds: wall, samples: o.samples,
        parts: share.map(([name, s]) => ({ name, seconds: s * wall, share: s })), aborted: { tokens: 412_000, samples: 12, generated_tokens: 18_700_000, unknown_requests: 0 },
        held: rows.map((x, i) => ({ ...x, i })).filter((x) => x.end >= held).sort((a, c) => c.end - a.end).slice(0, 6).map((x) => ({ row: x.i, sample: x.index, end_seconds: x.end / S, because: "decode", because_seconds: 100, over_median: 41 })),
      },
    },
    { rows: [0, 1, 2], list: [0, 1, 2].map((i) => ({ prompt: hostile ? `Prompt ${HOSTILE[0]}` : `Prompt of ${i}`, response: hostile ? `Response ${HOSTILE[1]}\nsecond line` : `Response of ${i}\n`.repeat(40) })) },
  );
}

/** One sample with so many events: spans in lanes, and points between them. */
export function oneRow(events: number): Promise<Uint8Array> {
  const b = new Builder(false);
  const r = rng(5);
  const perLane = Math.floor(events / 4);
  b.bulk(0, events, (i) => {
    const lane = Math.min(3, Math.floor(i / perLane));
    const k = i - lane * perLane;
    const start = k * 1000 + Math.floor(r() * 300);
    if (i % 5 === 4) return { start, dur: 0, name: "tick", cls: EVENT, state: POINT, lane, depth: lane };
    return { start, dur: 200 + Math.floor(r() * 400), name: ["tool_call", "sglang_generate", "decode", "other_work"][lane] as string, cls: [TOOL, GENERATE, DECODE, OTHER][lane] as number, state: CLOSED, lane, depth: lane };
  });
  return b.finish({ dump: { name: "one_sample.pt", bytes: 1, fingerprint: "", kind: "train", rollout_id: 1, shape: "list" } });
}

/** Nothing at all, or samples of which none has a trace. */
export function untraced(n: number): Promise<Uint8Array> {
  const b = new Builder(false);
  for (let i = 0; i < n; i++) b.row({ index: i, status: "completed", why: "no trace" }, []);
  return b.finish();
}

/** A page's base64. */
export function toBase64(bytes: Uint8Array): string {
  let s = "";
  for (let i = 0; i < bytes.length; i += 0x8000) s += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(s);
}
