// The filter grammar and the order of rows (internal/timeline/FORMAT.md, "Queries"). A filter is compiled
// to a mask over all rows: texts of dictionaries are matched once, numbers are compared in their columns.
import type { Head } from "./container";
import { Strings } from "./container";
import { ROW_FLAGS, type Rows, type Table } from "./table";

export const SORTS = ["start", "end", "dur", "reward", "lanes", "open", "group", "sample", "status", "tokens", "queue", "e2e", "prefill", "decode", "row"] as const;
export type Sort = (typeof SORTS)[number];

export interface Query {
  filter: string;
  sort: Sort;
  desc: boolean;
  group: boolean;
  /** -1 is all */
  attempt: number;
}

export type Op = ":" | "=" | "<" | "<=" | ">" | ">=";
export type Term = { not: boolean } & (
  | { kind: "word"; text: string }
  | { kind: "regexp"; text: string }
  | { kind: "field"; field: string; op: Op; text: string }
);

/** A filter that cannot be read: what is wrong with it, and where in the text. */
export class QueryError extends Error {
  override name = "QueryError";
  constructor(message: string, readonly at: number) {
    super(message);
  }
}

const NUMBERS = new Set(["sample", "row", "group", "rollout", "reward", "dur", "start", "end", "tokens", "prompt", "lanes", "items", "requests", "attempts", "open", "orphans", "points", "queue", "e2e", "prefill", "decode", "retries"]);
const TIMES = new Set(["dur", "start", "end", "queue", "e2e", "prefill", "decode"]);
const TEXTS = new Set(["status", "source", "label", "trace", "rid", "name", "flag"]);
const FIELD_LIST = [...NUMBERS, ...TEXTS].join(", ") + ", attr.KEY";
const FLAGS = [...ROW_FLAGS.map(([, word]) => word), "empty"];
const MAX_FILTER = 4096, MAX_TERMS = 64;

const isSpace = (c: string | undefined) => c === " " || c === "\t" || c === "\n" || c === "\r";
const isOp = (c: string | undefined) => c === ":" || c === "=" || c === "<" || c === ">";

/** Reads a filter into its terms; throws a QueryError. */
export function parse(filter: string): Term[] {
  return new Parser(filter).filter();
}

class Parser {
  private i = 0;
  constructor(private s: string) {}

  private fail(at: number, what: string): never {
    throw new QueryError(what, at);
  }

  filter(): Term[] {
    const { s } = this;
    if (s.length > MAX_FILTER) this.fail(0, `the filter has ${s.length} characters, at most ${MAX_FILTER} are allowed`);
    const terms: Term[] = [];
    for (;;) {
      this.spaces();
      if (this.i === s.length) return terms;
      if (terms.length > 0 && this.and()) {
        this.spaces();
        if (this.i === s.length) this.fail(s.length, 'a term is expected after "and"');
      }
      if (terms.length === MAX_TERMS) this.fail(this.i, `a filter has at most ${MAX_TERMS} terms`);
      const at = this.i;
      if (this.and()) this.fail(at, 'a term is expected before "and"; to look for the word, put it in quotes');
      terms.push(this.term());
    }
  }

  private spaces(): void {
    while (isSpace(this.s[this.i])) this.i++;
  }

  private and(): boolean {
    const { s, i } = this;
    if (s.slice(i, i + 3).toLowerCase() !== "and" || (i + 3 < s.length && !isSpace(s[i + 3]))) return false;
    this.i += 3;
    return true;
  }

  private term(): Term {
    const { s } = this;
    let not = false;
    if (s[this.i] === "-") {
      not = true;
      this.i++;
      if (this.i === s.length || isSpace(s[this.i])) this.fail(this.i, 'a term is expected directly after "-"');
    }
    if (s[this.i] === '"') return { kind: "word", text: this.quoted(), not };
    if (s[this.i] === "/") return { kind: "regexp", text: this.regexp(), not };
    const start = this.i;
    const name = /[a-z_][a-z_0-9]*/iy;
    name.lastIndex = start;
    let field = (name.exec(s)?.[0] ?? "").toLowerCase();
    this.i = start + field.length;
    let isAttr = false;
    if (field === "attr" && s[this.i] === ".") {
      isAttr = true;
      this.i++;
      let key: string;
      if (s[this.i] === '"') key = this.quoted();
      else {
        const from = this.i;
        while (this.i < s.length && !isSpace(s[this.i]) && !isOp(s[this.i])) this.i++;
        key = s.slice(from, this.i);
        if (key === "") this.fail(this.i, "the key of an attribute is expected after attr.");
      }
      field = `attr.${key}`;
    }
    if (field !== "") {
      const after = this.i;
      this.spaces();
      if (isOp(s[this.i])) return this.condition(not, start, field, isAttr);
      this.i = after;
      if (isAttr) this.fail(this.i, `one of : = < <= > >= is expected after ${field}`);
    }
    this.i = start;
    return { kind: "word", text: this.bare(), not };
  }

  private bare(): string {
    const from = this.i;
    while (this.i < this.s.length && !isSpace(this.s[this.i])) this.i++;
    return this.s.slice(from, this.i);
  }

  private quoted(): string {
    const { s } = this;
    const from = this.i++;
    let out = "";
    while (this.i < s.length) {
      const c = s[this.i] as string;
      if (c === '"') {
        this.i++;
        return out;
      }
      if (c === "\\" && (s[this.i + 1] === '"' || s[this.i + 1] === "\\")) this.i++;
      out += s[this.i++];
    }
    return this.fail(from, "this quote is not closed");
  }

  private regexp(): string {
    const { s } = this;
    const from = this.i++;
    let out = "";
    while (this.i < s.length) {
      const c = s[this.i] as string;
      if (c === "/") {
        this.i++;
        try {
          new RegExp(out, "i");
        } catch (err) {
          this.fail(from, (err as Error).message);
        }
        return out;
      }
      if (c === "\\" && this.i + 1 < s.length) {
        this.i++;
        if (s[this.i] !== "/") out += c;
      }
      out += s[this.i++];
    }
    return this.fail(from, "this regular expression is not closed by a slash");
  }

  private condition(not: boolean, start: number, field: string, isAttr: boolean): Term {
    const { s } = this;
    if (!isAttr && !NUMBERS.has(field) && !TEXTS.has(field)) this.fail(start, `there is no field "${field}": it is one of ${FIELD_LIST}; to look for the text, put it in quotes`);
    const opAt = this.i;
    let op = s[this.i++] as Op;
    if ((op === "<" || op === ">") && s[this.i] === "=") {
      op = `${op}=` as Op;
      this.i++;
    }
    const compares = op !== ":" && op !== "=";
    if (compares && TEXTS.has(field)) this.fail(opAt, `${field} is text: use : (contains) or = (equals)`);
    this.spaces();
    const at = this.i;
    if (at === s.length) this.fail(at, "a value is expected");
    const text = s[at] === '"' ? this.quoted() : this.bare();
    if (field === "flag" && !FLAGS.includes(text.toLowerCase())) this.fail(at, `there is no flag "${text}": it is one of ${FLAGS.join(", ")}`);
    const time = TIMES.has(field) || isAttr;
    if (op !== ":" && (NUMBERS.has(field) || isAttr) && Number.isNaN(number(text, time)) && (op !== "=" || !isAttr)) {
      this.fail(at, time ? "a number is expected, with s, ms or m after it or nothing (seconds)" : "a number is expected");
    }
    return { kind: "field", field, op, text, not };
  }
}

/** A number as it is typed; of times in seconds, with the suffixes ms, s, m. NaN when it is none. */
export function number(text: string, time: boolean): number {
  const m = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(ms|s|m)?$/.exec(text);
  if (!m || (m[2] && !time)) return NaN;
  const v = Number(m[1]);
  if (!Number.isFinite(v)) return NaN;
  return m[2] === "ms" ? v / 1000 : m[2] === "m" ? v * 60 : v;
}

/** Lower-case texts of a string column in one string, so that a search is one pass of indexOf. */
class Haystack {
  private text: string;
  private starts: Uint32Array;
  constructor(col: Strings) {
    const all = new TextDecoder().decode(col.bytes);
    // Of ASCII, as ids are, places of bytes and of characters are the same.
    if (all.length === col.bytes.length && /^[\x00-\x7f]*$/.test(all)) {
      this.text = all.toLowerCase();
      this.starts = col.starts;
      return;
    }
    const n = col.length;
    this.starts = new Uint32Array(n + 1);
    const parts = new Array<string>(n);
    let at = 0;
    for (let i = 0; i < n; i++) {
      this.starts[i] = at;
      const s = col.at(i).toLowerCase();
      parts[i] = s;
      at += s.length;
    }
    this.starts[n] = at;
    this.text = parts.join("");
  }
  /** Calls hit for each entry that contains the needle, once. */
  each(needle: string, hit: (i: number) => void): void {
    const { text, starts } = this;
    const n = starts.length - 1;
    if (needle === "") {
      for (let i = 0; i < n; i++) hit(i);
      return;
    }
    let from = 0, i = 0;
    while (i < n) {
      const at = text.indexOf(needle, from);
      if (at < 0) return;
      // Hits are near each other when there are many: a few steps, then halves.
      let lo = i, step = 1;
      while (lo + step < n && (starts[lo + step] as number) <= at) {
        lo += step;
        step *= 2;
      }
      let hi = Math.min(n, lo + step);
      while (hi - lo > 1) {
        const mid = (lo + hi) >> 1;
        if ((starts[mid] as number) <= at) lo = mid;
        else hi = mid;
      }
      const end = starts[lo + 1] as number;
      if (at + needle.length <= end) {
        hit(lo);
        i = lo + 1;
        from = end;
      } else {
        i = lo;
        from = at + 1; // it lies over the border of two
      }
    }
  }
  entry(i: number): string {
    return this.text.slice(this.starts[i], this.starts[i + 1]);
  }
}

export type AttrLookup = (row: number) => unknown[] | null;

/** Answers queries over the columns of a dump. */
export class Index {
  private names: { from: Uint32Array; name: Uint16Array } | null = null;
  private attemptBits: Uint32Array | null = null;
  private traces: Haystack | null = null;
  private rids: Haystack | null = null;
  private reqRow: Uint32Array | null = null;
  private numbers = new Map<string, Float64Array>();
  private ranked = new Map<Sort, Ranks>();

  constructor(readonly head: Head, readonly rows: Rows, readonly table: Table) {}

  /** Which rows match all terms: 1 for each that does. attrs is needed only when a term asks for an attribute. */
  mask(terms: Term[], attrs?: AttrLookup): Uint8Array {
    const out = new Uint8Array(this.rows.n).fill(1);
    for (const t of terms) {
      const m = this.term(t, attrs);
      for (let r = 0; r < out.length; r++) if ((m[r] === 1) === t.not) out[r] = 0;
    }
    return out;
  }

  /** The rows of a query in their order. */
  order(q: Query, mask?: Uint8Array): Uint32Array {
    const n = this.rows.n;
    const rows = new Uint32Array(n);
    let shown = 0;
    const with_ = q.attempt >= 0 ? this.attempts() : null;
    for (let r = 0; r < n; r++) {
      if (mask && mask[r] === 0) continue;
      if (with_ && !this.hasAttempt(r, q.attempt, with_)) continue;
      rows[shown++] = r;
    }
    const out = rows.slice(0, shown);
    if (q.sort !== "row" || q.desc) sortBy(out, this.ranks(q.sort), q.desc);
    return q.group ? this.grouped(out) : out;
  }

  private grouped(order: Uint32Array): Uint32Array {
    const groups = new Map<number, number[]>();
    const lists: number[][] = [];
    for (const r of order) {
      const g = this.rows.group[r] as number;
      const list = Number.isNaN(g) ? undefined : groups.get(g);
      if (list) {
        list.push(r);
        continue;
      }
      const fresh = [r];
      lists.push(fresh);
      if (!Number.isNaN(g)) groups.set(g, fresh);
    }
    return Uint32Array.from(lists.flat());
  }

  /** The rank of each row by a key; made once, so that a filter or the other direction sorts nothing. */
  private ranks(sort: Sort): Ranks {
    const known = this.ranked.get(sort);
    if (known) return known;
    let keys: Float64Array;
    if (sort === "status") {
      const rank = this.statusRank();
      keys = Float64Array.from(this.rows.status, (s) => rank[s] as number);
    } else keys = this.number(sort);
    const made = rankOf(keys);
    this.ranked.set(sort, made);
    return made;
  }

  private statusRank(): Float64Array {
    const s = this.head.dicts.status;
    const sorted = s.map((_, i) => i).sort((a, b) => ((s[a] as string) < (s[b] as string) ? -1 : (s[a] as string) > (s[b] as string) ? 1 : a - b));
    const rank = new Float64Array(Math.max(1, s.length));
    sorted.forEach((i, k) => (rank[i] = s[i] === "" ? NaN : k));
    return rank;
  }

  private attempts(): Uint32Array {
    // Which of the attempts 0..31 a row has; higher ones are looked up in the items.
    if (this.attemptBits) return this.attemptBits;
    const { itemFrom, attempt } = this.table;
    const bits = new Uint32Array(this.rows.n);
    for (let r = 0; r < bits.length; r++) {
      let b = 0;
      for (let i = itemFrom[r] as number, e = itemFrom[r + 1] as number; i < e; i++) b |= 1 << Math.min(31, attempt[i] as number);
      bits[r] = b;
    }
    return (this.attemptBits = bits);
  }

  private hasAttempt(r: number, attempt: number, bits: Uint32Array): boolean {
    if (attempt < 31) return ((bits[r] as number) & (1 << attempt)) !== 0;
    const { itemFrom } = this.table;
    for (let i = itemFrom[r] as number, e = itemFrom[r + 1] as number; i < e; i++) if (this.table.attempt[i] === attempt) return true;
    return false;
  }

  /** All attempt numbers that occur. */
  attemptValues(): number[] {
    const seen = new Set<number>();
    const a = this.table.attempt;
    const flags = new Uint8Array(256);
    for (let i = 0; i < a.length; i++) flags[a[i] as number] = 1;
    flags.forEach((f, i) => f && seen.add(i));
    return [...seen];
  }

  /** The numbers of a field for all rows; times in seconds from t0. NaN is missing. */
  number(field: string): Float64Array {
    const known = this.numbers.get(field);
    if (known) return known;
    const made = this.make(field);
    this.numbers.set(field, made);
    return made;
  }

  private make(field: string): Float64Array {
    const { rows } = this;
    const n = rows.n;
    const own = (f: (r: number) => number): Float64Array => {
      const out = new Float64Array(n);
      for (let r = 0; r < n; r++) out[r] = f(r);
      return out;
    };
    const traced = (r: number) => rows.why[r] === 0;
    switch (field) {
      case "sample":
        return rows.index;
      case "row":
        return own((r) => rows.ordinal[r] as number);
      case "group":
        return rows.group;
      case "rollout":
        return rows.rollout;
      case "reward":
        return rows.reward;
      case "tokens":
        return rows.response;
      case "prompt":
        return rows.prompt;
      case "lanes":
      case "items":
      case "requests":
      case "attempts":
      case "open":
      case "orphans":
      case "points":
        return own((r) => rows[field][r] as number);
      case "start":
        return own((r) => (traced(r) ? (rows.start[r] as number) / 1e6 : NaN));
      case "dur":
        return own((r) => (traced(r) ? (rows.dur[r] as number) / 1e6 : NaN));
      case "end":
        return own((r) => (traced(r) ? ((rows.start[r] as number) + (rows.dur[r] as number)) / 1e6 : NaN));
      default: {
        const { req } = this.table;
        const from = this.table.reqFrom;
        const of = (i: number): number => {
          if (field === "queue") return (req.queue[i] as number) / 1e6;
          if (field === "e2e") return (req.e2e[i] as number) / 1e6;
          if (field === "retries") return req.retries[i] as number;
          // The outermost phases of a side hold the others; a missing one is the sum of what it holds.
          const ph = (p: number) => (req.phase[p] as Float64Array)[i] as number;
          const or = (whole: number, a: number, b = NaN) => (Number.isNaN(whole) ? plus(a, b) : whole);
          const us = field === "prefill" ? plus(or(ph(0), ph(1), ph(2)), or(ph(3), ph(4))) : plus(plus(or(ph(5), ph(6), ph(7)), ph(8)), ph(9));
          return us / 1e6;
        };
        return own((r) => {
          let max = NaN;
          for (let i = from[r] as number, e = from[r + 1] as number; i < e; i++) {
            const v = of(i);
            if (!Number.isNaN(v) && !(v <= max)) max = v;
          }
          return max;
        });
      }
    }
  }

  private rowNames(): { from: Uint32Array; name: Uint16Array } {
    if (this.names) return this.names;
    const { itemFrom, name } = this.table;
    const n = this.rows.n;
    const from = new Uint32Array(n + 1);
    const last = new Int32Array(Math.max(1, this.head.dicts.name.length)).fill(-1);
    const list: number[] = [];
    for (let r = 0; r < n; r++) {
      from[r] = list.length;
      for (let i = itemFrom[r] as number, e = itemFrom[r + 1] as number; i < e; i++) {
        const k = name[i] as number;
        if (last[k] === r) continue;
        last[k] = r;
        list.push(k);
      }
    }
    from[n] = list.length;
    return (this.names = { from, name: Uint16Array.from(list) });
  }

  private term(t: Term, attrs?: AttrLookup): Uint8Array {
    const out = new Uint8Array(this.rows.n);
    if (t.kind === "word") {
      const w = t.text.toLowerCase();
      this.anyText((s) => s.includes(w), out, w);
      return out;
    }
    if (t.kind === "regexp") {
      const re = new RegExp(t.text, "i");
      this.anyText((s) => re.test(s), out, null);
      return out;
    }
    const { field, op } = t;
    const w = t.text.toLowerCase();
    const test = op === ":" ? (s: string) => s.includes(w) : (s: string) => s === w;
    if (field.startsWith("attr.")) {
      this.attr(field.slice(5), t, attrs, out);
      return out;
    }
    if (TEXTS.has(field)) {
      this.text(field, test, out, op === ":" || field === "flag" ? w : null);
      return out;
    }
    const v = this.number(field);
    if (op === ":") {
      for (let r = 0; r < v.length; r++) if (!Number.isNaN(v[r]) && String(v[r]).includes(w)) out[r] = 1;
      return out;
    }
    const x = number(t.text, TIMES.has(field));
    if (op === "=" && Number.isNaN(x)) return out;
    for (let r = 0; r < v.length; r++) if (compare(v[r] as number, op, x)) out[r] = 1;
    return out;
  }

  /** Marks the rows of which one of the searched texts passes. needle is its plain text, where it is one. */
  private anyText(test: (lower: string) => boolean, out: Uint8Array, needle: string | null): void {
    const { rows } = this;
    for (const f of ["source", "status", "label", "trace", "rid", "name"]) this.text(f, test, out, needle);
    for (let r = 0; r < rows.n; r++) {
      if (out[r] === 1) continue;
      const i = rows.index[r] as number;
      if ((!Number.isNaN(i) && test(String(i))) || test(String(rows.ordinal[r]))) out[r] = 1;
    }
  }

  private text(field: string, test: (lower: string) => boolean, out: Uint8Array, needle: string | null): void {
    const { rows, head } = this;
    const dict = (words: string[], of: ArrayLike<number>) => {
      const hit = words.map((s) => test(s.toLowerCase()));
      for (let r = 0; r < out.length; r++) if (hit[of[r] as number]) out[r] = 1;
    };
    switch (field) {
      case "status":
        return dict(head.dicts.status, rows.status);
      case "source":
        return dict(head.dicts.source, rows.source);
      case "label":
        return dict(head.dicts.label, rows.label);
      case "name": {
        const hit = head.dicts.name.map((s) => test(s.toLowerCase()));
        if (!hit.includes(true)) return;
        const { from, name } = this.rowNames();
        for (let r = 0; r < out.length; r++) {
          for (let k = from[r] as number, e = from[r + 1] as number; k < e; k++) if (hit[name[k] as number]) out[r] = 1;
        }
        return;
      }
      case "flag": {
        const bits = ROW_FLAGS.filter(([, word]) => word === needle).reduce((a, [bit]) => a | bit, 0);
        for (let r = 0; r < out.length; r++) if (((rows.flags[r] as number) & bits) !== 0 || (needle === "empty" && rows.why[r] !== 0)) out[r] = 1;
        return;
      }
      case "trace": {
        this.traces ??= new Haystack(rows.trace);
        return this.scan(this.traces, rows.trace.length, test, needle, (i) => (out[i] = 1));
      }
      case "rid": {
        const { rid } = this.table.req;
        this.rids ??= new Haystack(rid);
        const owner = this.requestRows();
        return this.scan(this.rids, rid.length, test, needle, (i) => (out[owner[i] as number] = 1));
      }
    }
  }

  private scan(h: Haystack, n: number, test: (s: string) => boolean, needle: string | null, hit: (i: number) => void): void {
    if (needle !== null) return h.each(needle, hit);
    for (let i = 0; i < n; i++) {
      const s = h.entry(i);
      if (test(s)) hit(i);
    }
  }

  private requestRows(): Uint32Array {
    if (this.reqRow) return this.reqRow;
    const { reqFrom, req } = this.table;
    const out = new Uint32Array(req.n);
    for (let r = 0; r < this.rows.n; r++) out.fill(r, reqFrom[r], reqFrom[r + 1]);
    return (this.reqRow = out);
  }

  private attr(key: string, t: Extract<Term, { kind: "field" }>, attrs: AttrLookup | undefined, out: Uint8Array): void {
    if (!attrs) throw new QueryError(`attributes are not at hand here: ${t.field}`, 0);
    const w = t.text.toLowerCase();
    const x = number(t.text, true);
    const pass = (v: unknown): boolean => {
      if (v === undefined) return false;
      const s = (typeof v === "string" ? v : JSON.stringify(v)).toLowerCase();
      if (t.op === ":") return s.includes(w);
      if (!Number.isNaN(x) && typeof v === "number") return compare(v, t.op, x);
      return t.op === "=" && s === w;
    };
    for (let r = 0; r < out.length; r++) {
      const items = attrs(r);
      if (!items) continue;
      search: for (const item of items) {
        if (!Array.isArray(item)) continue;
        for (const side of item as unknown[]) {
          if (side === null || typeof side !== "object" || !Object.hasOwn(side, key)) continue;
          if (pass((side as Record<string, unknown>)[key])) {
            out[r] = 1;
            break search;
          }
        }
      }
    }
  }
}

const plus = (a: number, b: number) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : a + b);

function compare(v: number, op: Op, x: number): boolean {
  switch (op) {
    case "<":
      return v < x;
    case "<=":
      return v <= x;
    case ">":
      return v > x;
    case ">=":
      return v >= x;
    default:
      return v === x;
  }
}

/** Ranks of all rows by a key: equal keys share one, missing keys have the last, which is most. */
interface Ranks {
  of: Uint32Array;
  most: number;
}

/** Numbers alone are sorted natively and each row then finds its rank: a comparator would be called for a hundred times as many pairs. */
function rankOf(keys: Float64Array): Ranks {
  const n = keys.length;
  const sorted = new Float64Array(n);
  let some = 0;
  for (let i = 0; i < n; i++) if (!Number.isNaN(keys[i] as number)) sorted[some++] = keys[i] as number;
  const ranks = sorted.subarray(0, some).sort();
  let m = 0;
  for (let i = 0; i < some; i++) if (m === 0 || ranks[i] !== ranks[m - 1]) ranks[m++] = ranks[i] as number;
  const of = new Uint32Array(n);
  for (let i = 0; i < n; i++) {
    const k = keys[i] as number;
    let lo = 0, hi = m;
    if (Number.isNaN(k)) lo = m;
    else {
      while (lo < hi) {
        const mid = (lo + hi) >> 1;
        if ((ranks[mid] as number) < k) lo = mid + 1;
        else hi = mid;
      }
    }
    of[i] = lo;
  }
  return { of, most: m };
}

/** Sorts rows by their ranks; missing keys last in both directions, ties keep their order. */
function sortBy(order: Uint32Array, { of, most }: Ranks, desc: boolean): void {
  const n = order.length;
  const counts = new Uint32Array(most + 2);
  const place = new Uint32Array(n);
  for (let i = 0; i < n; i++) {
    const rank = of[order[i] as number] as number;
    const at = desc && rank < most ? most - 1 - rank : rank;
    place[i] = at;
    counts[at + 1] = (counts[at + 1] as number) + 1;
  }
  for (let k = 0; k <= most; k++) counts[k + 1] = (counts[k + 1] as number) + (counts[k] as number);
  const copy = order.slice();
  for (let i = 0; i < n; i++) {
    const at = counts[place[i] as number] as number;
    counts[place[i] as number] = at + 1;
    order[at] = copy[i] as number;
  }
}
