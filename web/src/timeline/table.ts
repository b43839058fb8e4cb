// The columns of a container under names: rows, items, segments and requests as typed arrays, and where
// each row's begin. Times are microseconds from head.t0, whatever unit the container counts in.
import { ContainerError, Strings, type Container, type Head, type NumberColumn } from "./container";

/** Classes of items, as internal/timeline. Those of PD phases follow: PHASE + phase. */
export const OTHER = 0, GROUP = 1, GENERATE = 2, QUEUE = 3, REWARD = 4, TOOL = 5, SYNC = 6, WAIT = 7, PREFILL = 8, DECODE = 9, EVENT = 10, PHASE = 11, CLASSES = 21;
/** The phases in their order; those that stand inside of another name its place. */
export const PHASES = [
  "P bootstrap queue", "P bootstrap", "P alloc wait", "P forward", "P transfer queue",
  "D prealloc", "D bootstrap", "D alloc wait", "D transfer", "D forward",
] as const;
export const PHASE_HELD_BY = [-1, 0, 0, -1, 3, -1, 5, 5, -1, -1] as const;
export const CLASS_NAMES = ["other", "holder", "generate", "queue", "reward", "tool", "weight sync", "wait", "prefill", "decode", "event", ...PHASES];

export const CLOSED = 0, OPEN = 1, POINT = 2, ORPHAN = 3;

export const VIRTUAL = 1, DERIVED = 2, LEAKED = 4, DUPLICATE = 8, NEGATIVE = 16, SKEWED = 32, ERROR = 64, ABORTED = 128, MERGED = 256, CRITICAL = 512;
export const ITEM_FLAGS: [number, string][] = [
  [VIRTUAL, "lane added by the viewer"], [DERIVED, "placed from a duration"], [LEAKED, "its parent had ended: shown as a root"],
  [DUPLICATE, "another span has the same id"], [NEGATIVE, "ends before it starts"], [SKEWED, "lies outside of its parent"],
  [ERROR, "error"], [ABORTED, "of an attempt that was thrown away"], [MERGED, "stands for several"], [CRITICAL, "on the critical path"],
];

export const ROW_CARRIED = 1, ROW_SHARED = 2, ROW_HELD = 4, ROW_ERROR = 8, ROW_ABORTED = 16, ROW_MERGED = 32, ROW_CRITICAL = 64, ROW_PROBLEM = 128;
export const ROW_FLAGS: [number, string, string][] = [
  [ROW_CARRIED, "carried", "carried over from an earlier step"], [ROW_SHARED, "shared", "shares its trace with a row before"],
  [ROW_HELD, "held", "held the step"], [ROW_ERROR, "error", "has an error"], [ROW_ABORTED, "aborted", "has an aborted attempt"],
  [ROW_MERGED, "merged", "its short spans were merged"], [ROW_CRITICAL, "critical", "on the critical path"], [ROW_PROBLEM, "problem", "has problems"],
];

export interface Rows {
  n: number;
  ordinal: Uint32Array;
  index: Float64Array;
  group: Float64Array;
  rollout: Float64Array;
  status: Uint8Array;
  why: Uint8Array;
  source: Uint16Array;
  label: Uint32Array;
  reward: Float64Array;
  start: Float64Array;
  dur: Float64Array;
  attempts: Uint8Array;
  response: Float64Array;
  prompt: Float64Array;
  lanes: Uint16Array;
  open: Uint32Array;
  orphans: Uint32Array;
  points: Uint32Array;
  flags: Uint16Array;
  items: Uint32Array;
  requests: Uint32Array;
  trace: Strings;
}

/** Items of some rows. itemFrom[r] .. itemFrom[r+1] are those of row r of this table, likewise segments and requests. */
export interface Table {
  n: number;
  itemFrom: Uint32Array;
  reqFrom: Uint32Array;
  segFrom: Uint32Array;
  start: Float64Array;
  dur: Float64Array;
  name: Uint16Array;
  class: Uint8Array;
  state: Uint8Array;
  flags: Uint16Array;
  lane: Uint16Array;
  depth: Uint16Array;
  parent: Int32Array;
  request: Int32Array;
  attempt: Uint8Array;
  clip: Uint8Array;
  count: Uint32Array;
  segs: Uint8Array;
  segClass: Uint8Array;
  segStart: Float64Array;
  segDur: Float64Array;
  req: Requests;
}

export interface Requests {
  n: number;
  rid: Strings;
  name: Uint16Array;
  start: Float64Array;
  dur: Float64Array;
  attempt: Uint8Array;
  finish: Uint8Array;
  prompt: Float64Array;
  completion: Float64Array;
  cached: Float64Array;
  retries: Float64Array;
  queue: Float64Array;
  e2e: Float64Array;
  phase: Float64Array[];
  throughput: Float32Array;
  speed: Float32Array;
  size: Float32Array;
  invalid: Uint32Array;
  item: Int32Array;
}

type Ctor<T> = { new (n: number): T };

class Reader {
  private scale: number;
  constructor(private c: Container) {
    this.scale = c.head.unit_ns > 0 ? c.head.unit_ns / 1000 : 1;
  }
  has(name: string): boolean {
    return this.c.columns.has(name);
  }
  num<T extends NumberColumn>(name: string, n: number, type: Ctor<T>, missing = 0): T {
    const col = this.c.columns.get(name);
    if (col === undefined) {
      const out = new type(n);
      return missing === 0 ? out : (out.fill(missing) as T);
    }
    if (col instanceof Strings) throw new ContainerError(`timeline container: column ${name} holds strings`);
    if (col.length !== n) throw new ContainerError(`timeline container: column ${name} has ${col.length} values, want ${n}`);
    if (col instanceof type) return col;
    const out = new type(n);
    for (let i = 0; i < n; i++) out[i] = col[i] as number;
    return out;
  }
  time(name: string, n: number, missing = 0): Float64Array {
    const col = this.num(name, n, Float64Array, missing);
    return this.scale === 1 ? col : col.map((t) => t * this.scale);
  }
  str(name: string, n: number): Strings {
    const col = this.c.columns.get(name);
    if (col === undefined) return new Strings(new Uint8Array(0), new Uint32Array(n + 1));
    if (!(col instanceof Strings) || col.length !== n) throw new ContainerError(`timeline container: column ${name} is not ${n} strings`);
    return col;
  }
  length(name: string): number {
    return this.c.columns.count(name);
  }
}

function sums(per: Uint32Array): Uint32Array {
  const out = new Uint32Array(per.length + 1);
  let sum = 0;
  for (let i = 0; i < per.length; i++) {
    out[i] = sum;
    sum += per[i] as number;
  }
  out[per.length] = sum;
  return out;
}

export function readRows(c: Container): Rows {
  const r = new Reader(c);
  const n = r.length("row.ordinal");
  return {
    n,
    ordinal: r.num("row.ordinal", n, Uint32Array),
    index: r.num("row.index", n, Float64Array, NaN),
    group: r.num("row.group", n, Float64Array, NaN),
    rollout: r.num("row.rollout", n, Float64Array, NaN),
    status: r.num("row.status", n, Uint8Array),
    why: r.num("row.why", n, Uint8Array),
    source: r.num("row.source", n, Uint16Array),
    label: r.num("row.label", n, Uint32Array),
    reward: r.num("row.reward", n, Float64Array, NaN),
    start: r.time("row.start", n),
    dur: r.time("row.dur", n),
    attempts: r.num("row.attempts", n, Uint8Array),
    response: r.num("row.response", n, Float64Array, NaN),
    prompt: r.num("row.prompt", n, Float64Array, NaN),
    lanes: r.num("row.lanes", n, Uint16Array),
    open: r.num("row.open", n, Uint32Array),
    orphans: r.num("row.orphans", n, Uint32Array),
    points: r.num("row.points", n, Uint32Array),
    flags: r.num("row.flags", n, Uint16Array),
    items: r.num("row.items", n, Uint32Array),
    requests: r.num("row.requests", n, Uint32Array),
    trace: r.str("row.trace", n),
  };
}

/** Properties that are made when they are first read. */
function late<T extends object, L extends object>(now: T, make: { [K in keyof L]: () => L[K] }): T & L {
  for (const key of Object.keys(make) as (keyof L)[]) {
    let made: L[keyof L] | undefined;
    Object.defineProperty(now, key, { enumerable: true, get: () => (made ??= make[key]()) });
  }
  return now as T & L;
}

/** The items of all rows of a container. What no picture needs is read from the container when it is first asked for. */
export function readTable(c: Container): Table {
  const r = new Reader(c);
  const n = r.length("row.ordinal");
  const itemFrom = sums(r.num("row.items", n, Uint32Array));
  const reqFrom = sums(r.num("row.requests", n, Uint32Array));
  const m = itemFrom[n] as number;
  const q = reqFrom[n] as number;
  if (r.length("item.start") !== m) throw new ContainerError(`timeline container: rows have ${m} items, item.start has ${r.length("item.start")}`);
  const segs = r.num("item.segs", m, Uint8Array);
  const segFrom = sums(Uint32Array.from(segs));
  const s = segFrom[m] as number;
  const count = r.has("item.n") ? r.num("item.n", m, Uint32Array) : new Uint32Array(m).fill(1);
  const table = {
    n, itemFrom, reqFrom, segFrom, segs, count,
    start: r.time("item.start", m),
    dur: r.time("item.dur", m),
    name: r.num("item.name", m, Uint16Array),
    class: r.num("item.class", m, Uint8Array),
    state: r.num("item.state", m, Uint8Array),
    flags: r.num("item.flags", m, Uint16Array),
    lane: r.num("item.lane", m, Uint16Array),
    depth: r.num("item.depth", m, Uint16Array),
    request: r.num("item.request", m, Int32Array, -1),
    attempt: r.num("item.attempt", m, Uint8Array),
    segClass: r.num("seg.class", s, Uint8Array),
    segStart: r.time("seg.start", s),
    segDur: r.time("seg.dur", s),
    req: late({ n: q, queue: r.time("req.queue", q, NaN) }, {
      rid: () => r.str("req.rid", q),
      name: () => r.num("req.name", q, Uint16Array),
      start: () => r.time("req.start", q),
      dur: () => r.time("req.dur", q, NaN),
      attempt: () => r.num("req.attempt", q, Uint8Array),
      finish: () => r.num("req.finish", q, Uint8Array),
      prompt: () => r.num("req.prompt", q, Float64Array, NaN),
      completion: () => r.num("req.completion", q, Float64Array, NaN),
      cached: () => r.num("req.cached", q, Float64Array, NaN),
      retries: () => r.num("req.retries", q, Float64Array, NaN),
      e2e: () => r.time("req.e2e", q, NaN),
      phase: () => PHASES.map((_, i) => r.time(`req.phase${i}`, q, NaN)),
      throughput: () => r.num("req.throughput", q, Float32Array, NaN),
      speed: () => r.num("req.speed", q, Float32Array, NaN),
      size: () => r.num("req.size", q, Float32Array, NaN),
      invalid: () => r.num("req.invalid", q, Uint32Array),
      item: () => r.num("req.item", q, Int32Array, -1),
    }),
  };
  return late(table, { parent: () => r.num("item.parent", m, Int32Array, -1), clip: () => r.num("item.clip", m, Uint8Array) });
}

/** Reads what of a table was not yet asked for; a step each. Throws what is wrong with it. */
export function* readAll(t: Table): Generator<void> {
  for (const part of [t, t.req]) {
    for (const key of Object.keys(part)) {
      void part[key as keyof typeof part];
      yield;
    }
  }
}

/** A table of which all is read at once. */
export function readWhole(c: Container): Table {
  const t = readTable(c);
  for (const _ of readAll(t));
  return t;
}

/** The extent in microseconds from t0; [0, 0] when no row has a trace. */
export function extentOf(head: Head): [number, number] {
  const k = head.unit_ns > 0 ? head.unit_ns / 1000 : 1;
  const e = head.extent;
  return e && Number.isFinite(e[0]) && Number.isFinite(e[1]) ? [e[0] * k, Math.max(e[0], e[1]) * k] : [0, 0];
}

/** What a row is called: its sample index, else its place. */
export function rowName(rows: Rows, r: number): string {
  const i = rows.index[r] as number;
  return Number.isNaN(i) ? `row ${rows.ordinal[r]}` : `#${i}`;
}
