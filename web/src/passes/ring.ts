// Forward passes in memory: for each rank a ring of typed arrays that keeps the newest, in the order in which
// they came. Pure; filled by feed.ts, read by cells.ts and the charts.
import type * as api from "../api/types";

/** Bits of a pass's flags: the server's, and HOLE, which the page itself sets. */
export const HEARTBEAT = 1, RESTART = 2, GAP = 4, LATE = 8, NO_TIME = 16;
/** There may be passes before it that this page has not loaded. */
export const HOLE = 32;

/** What is counted of a pass, in the order in which a ring keeps it. */
export const FIELDS = ["prefillRequests", "prefillTokens", "prefillKV", "decodeRequests", "decodeKV", "queuedPrefillRequests", "queuedPrefillTokens", "queuedDecodeRequests", "queuedDecodeKV"] as const;
export type Field = (typeof FIELDS)[number];
const WIDTH = FIELDS.length;
const AT = Object.fromEntries(FIELDS.map((f, i) => [f, i])) as Record<Field, number>;
const WHOLE = 0xffffffff;

/** What a pass did. */
export const NOTHING = 0, PREFILL = 1, DECODE = 2, MIXED = 3, EMPTY = 4, UNMEASURED = 5;
export type Kind = 0 | 1 | 2 | 3 | 4 | 5;

/** A pass as a whole: for words, never for painting. */
export interface Pass extends Record<Field, number> {
  /** when it came, milliseconds since 1970 */
  time: number;
  wall: number;
  flags: number;
  missing: number;
  kind: Kind;
}

const FIRST = 256, MOST = 32768;

/** One rank's newest passes. Places count from the rank's first pass on and never change. */
export class Ring {
  private cap = FIRST;
  private time = new Float64Array(FIRST);
  private wall = new Float32Array(FIRST);
  private flag = new Uint8Array(FIRST);
  private lost = new Uint32Array(FIRST);
  private value = new Uint32Array(FIRST * WIDTH);
  /** place after the newest pass */
  end = 0;
  /** place of the oldest pass that is kept */
  begin = 0;
  /** the largest batch that was seen */
  most = 0;

  /** keep is how long passes must stay, ms: a ring that is full grows while its oldest is younger, up to a bound. */
  constructor(private readonly keep: number) {}

  /** Adds a pass. A time before the last one's is taken for the last one's: they come in order, clocks may not. */
  push(time: number, wall: number, flags: number, missing: number, values: ArrayLike<number>): void {
    if (this.end > this.begin) time = Math.max(time, this.timeAt(this.end - 1));
    if (this.end - this.begin === this.cap) {
      if (this.cap < MOST && time - this.timeAt(this.begin) < this.keep) this.grow();
      else this.begin++;
    }
    const i = this.end & (this.cap - 1);
    this.time[i] = time;
    this.wall[i] = wall > 0 ? wall : 0;
    this.flag[i] = flags;
    this.lost[i] = Math.min(WHOLE, Math.max(0, missing));
    for (let f = 0; f < WIDTH; f++) this.value[i * WIDTH + f] = Math.min(WHOLE, Math.max(0, values[f] ?? 0));
    this.most = Math.max(this.most, (values[AT.prefillRequests] ?? 0) + (values[AT.decodeRequests] ?? 0));
    this.end++;
  }

  private grow(): void {
    const cap = this.cap * 2;
    const move = <A extends Float64Array | Float32Array | Uint8Array | Uint32Array>(from: A, to: A, width = 1): A => {
      for (let p = this.begin; p < this.end; p++) {
        const a = (p & (this.cap - 1)) * width, b = (p & (cap - 1)) * width;
        for (let k = 0; k < width; k++) to[b + k] = from[a + k] as number;
      }
      return to;
    };
    this.time = move(this.time, new Float64Array(cap));
    this.wall = move(this.wall, new Float32Array(cap));
    this.flag = move(this.flag, new Uint8Array(cap));
    this.lost = move(this.lost, new Uint32Array(cap));
    this.value = move(this.value, new Uint32Array(cap * WIDTH), WIDTH);
    this.cap = cap;
  }

  timeAt(p: number): number {
    return this.time[p & (this.cap - 1)] as number;
  }
  wallAt(p: number): number {
    return this.wall[p & (this.cap - 1)] as number;
  }
  flagsAt(p: number): number {
    return this.flag[p & (this.cap - 1)] as number;
  }
  valueAt(p: number, f: Field): number {
    return this.value[(p & (this.cap - 1)) * WIDTH + AT[f]] as number;
  }
  batchAt(p: number): number {
    const i = (p & (this.cap - 1)) * WIDTH;
    return (this.value[i + AT.prefillRequests] as number) + (this.value[i + AT.decodeRequests] as number);
  }
  kindAt(p: number): Kind {
    const flags = this.flagsAt(p);
    if (flags & HEARTBEAT) return NOTHING;
    if (flags & NO_TIME) return UNMEASURED;
    const i = (p & (this.cap - 1)) * WIDTH;
    const prefill = (this.value[i + AT.prefillRequests] as number) > 0 || (this.value[i + AT.prefillTokens] as number) > 0;
    const decode = (this.value[i + AT.decodeRequests] as number) > 0;
    return prefill ? (decode ? MIXED : PREFILL) : decode ? DECODE : EMPTY;
  }

  /** Where a pass's bar begins: its end less its time, but never within the message before it: a rank runs one at a time. */
  startAt(p: number): number {
    const start = this.timeAt(p) - this.wallAt(p);
    return p > this.begin ? Math.max(start, this.timeAt(p - 1)) : start;
  }

  /** The first place whose pass came at t or later; end when none did. */
  from(t: number): number {
    let a = this.begin, b = this.end;
    while (a < b) {
      const m = a + ((b - a) >> 1);
      if (this.timeAt(m) < t) a = m + 1;
      else b = m;
    }
    return a;
  }

  get(p: number): Pass | null {
    if (p < this.begin || p >= this.end) return null;
    const out = { time: this.timeAt(p), wall: this.wallAt(p), flags: this.flagsAt(p), missing: this.lost[p & (this.cap - 1)] as number, kind: this.kindAt(p) } as Pass;
    for (const f of FIELDS) out[f] = this.valueAt(p, f);
    return out;
  }

  /** When the newest message came; NaN before one did. */
  get last(): number {
    return this.end > this.begin ? this.timeAt(this.end - 1) : NaN;
  }
  get first(): number {
    return this.end > this.begin ? this.timeAt(this.begin) : NaN;
  }
}

/** A rank of an engine, and what is kept of it. */
export interface RankRow {
  key: string;
  engine: string;
  name: string;
  rank: number;
  ring: Ring;
}

export const rankKey = (engine: string, rank: number): string => `${engine}#${rank}`;

/** The passes of all ranks. */
export class PassSet {
  readonly rows = new Map<string, RankRow>();
  /** counts the ranks that are known: their order is made anew when it moves */
  version = 0;
  /** when the newest pass came; NaN before one did */
  newest = NaN;
  /** how many were taken */
  passes = 0;
  /** ranks that sent nothing since a hole: their next pass has it before it */
  private owed = new Set<RankRow>();

  constructor(private readonly keep: number) {}

  row(engine: string, name: string, rank: number): RankRow {
    const key = rankKey(engine, rank);
    let r = this.rows.get(key);
    if (!r) {
      r = { key, engine, name, rank, ring: new Ring(this.keep) };
      this.rows.set(key, r);
      this.version++;
    } else if (name && r.name !== name) {
      r.name = name;
      this.version++;
    }
    return r;
  }

  /**
   * Takes an answer. With hole, each rank's first pass in it is marked: what came before it was not loaded.
   * touched hears of each rank from when on it has changed.
   */
  add(c: api.PassColumns, hole: boolean, touched?: (row: RankRow, from: number) => void): void {
    const rows = c.ranks.map((r) => this.row(r.engine, r.name, r.rank));
    if (hole) this.owed = new Set(this.rows.values());
    const columns = [c.prefill_requests, c.prefill_tokens, c.prefill_kv_tokens, c.decode_requests, c.decode_kv_tokens,
      c.queued_prefill_requests, c.queued_prefill_tokens, c.queued_decode_requests, c.queued_decode_kv_tokens];
    const values = new Float64Array(WIDTH);
    for (let i = 0; i < c.rank.length; i++) {
      const row = rows[c.rank[i] as number];
      if (!row) continue;
      const { ring } = row;
      for (let f = 0; f < WIDTH; f++) values[f] = columns[f]?.[i] ?? 0;
      let flags = (c.flags[i] ?? 0) & 31;
      if (this.owed.delete(row) || ring.end === 0) flags |= HOLE;
      const before = ring.last;
      const time = c.time_ms[i] as number;
      ring.push(time, c.wall_ms[i] ?? 0, flags, c.missing[i] ?? 0, values);
      if (!(this.newest >= time)) this.newest = time;
      this.passes++;
      touched?.(row, Number.isNaN(before) ? ring.startAt(ring.end - 1) : Math.min(before, ring.startAt(ring.end - 1)));
    }
  }

  /** Ranks by engine's name and number. */
  sorted(): RankRow[] {
    return [...this.rows.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || (a.engine < b.engine ? -1 : a.engine > b.engine ? 1 : a.rank - b.rank));
  }

  /** The earliest instant from which on nothing is missing in any ring; NaN of nothing. */
  coveredFrom(): number {
    let from = NaN;
    for (const r of this.rows.values()) if (r.ring.begin > 0 && !(from >= r.ring.first)) from = r.ring.first;
    return from;
  }
}
