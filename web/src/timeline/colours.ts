// Which colour an item takes: by phase (class, and series colours for names that no rule knows), by name,
// attempt or status. A colour is a number into a palette, so that drawing and rasters share it.
import type { Head } from "./container";
import { CLASSES, CLASS_NAMES, EVENT, GENERATE, GROUP, OTHER, PHASE, type Rows, type Table } from "./table";

export type ColourBy = "phase" | "name" | "attempt" | "status";
export const COLOUR_BY: ColourBy[] = ["phase", "name", "attempt", "status"];

/** Tokens of the classes; GENERATE is work of which no phase is known, between prefill's blue and decode's green. */
export const CLASS_TOKENS = [
  "--tl-other", "--tl-group", "--tl-generate", "--ph-queue", "--ph-reward", "--ph-tool", "--ph-sync", "--ph-wait", "--ph-p-forward", "--ph-d-forward", "--text-2",
  "--ph-p-bootstrap-queue", "--ph-p-bootstrap", "--ph-p-alloc-wait", "--ph-p-forward", "--ph-p-transfer-queue",
  "--ph-d-prealloc", "--ph-d-bootstrap", "--ph-d-alloc-wait", "--ph-d-transfer", "--ph-d-forward",
];

export interface Entry {
  /** stable, for the URL: c3 a class, n12 a name, a0 an attempt, s2 a status */
  key: string;
  label: string;
  token: string;
  /** -1 .. 1: darker or lighter than the token, for the ninth series and on */
  shade: number;
}

const statusToken = (s: string, i: number): string =>
  s === "completed" ? "--ok-fill" : s === "truncated" ? "--warn-fill" : s === "failed" ? "--crit-fill" : s === "aborted" ? "--ph-error" : s === "pending" ? "--ph-queue" : `--s${(i % 8) + 1}`;

/** The first kind of a raster by phase that is a name (FORMAT.md, "Raster"); classes have the numbers below. */
const FIRST_NAME = 32;

/** The colours of one source for one way of colouring. Immutable. */
export class Colours {
  readonly entries: Entry[] = [];
  private byClass = new Uint16Array(CLASSES);
  private byName: Uint16Array;
  private byAttempt = new Uint16Array(256);
  private byStatus = new Uint16Array(256);

  constructor(readonly by: ColourBy, head: Head, private rows: Rows, table: Table) {
    const names = head.dicts.name;
    this.byName = new Uint16Array(Math.max(1, names.length));
    const series = (key: string, label: string, i: number) => this.add(key, label, `--s${(i % 8) + 1}`, shadeOf(Math.floor(i / 8)));
    if (by === "phase") {
      for (let c = 1; c < CLASSES; c++) this.byClass[c] = this.add(`c${c}`, CLASS_NAMES[c] as string, CLASS_TOKENS[c] as string, 0);
      const other = new Uint8Array(names.length);
      for (let i = 0; i < table.class.length; i++) if (table.class[i] === OTHER) other[table.name[i] as number] = 1;
      let k = 0;
      names.forEach((n, i) => {
        if (other[i]) this.byName[i] = series(`n${i}`, n || "(no name)", k++);
      });
    } else if (by === "name") {
      const used = new Uint8Array(names.length);
      for (let i = 0; i < table.name.length; i++) used[table.name[i] as number] = 1;
      let k = 0;
      names.forEach((n, i) => {
        if (used[i]) this.byName[i] = series(`n${i}`, n || "(no name)", k++);
      });
    } else if (by === "attempt") {
      const used = new Uint8Array(256);
      for (let i = 0; i < table.attempt.length; i++) used[table.attempt[i] as number] = 1;
      let k = 0;
      used.forEach((u, a) => {
        if (u) this.byAttempt[a] = series(`a${a}`, a === 255 ? "attempt 255 or later" : `attempt ${a}`, k++);
      });
    } else {
      head.dicts.status.forEach((s, i) => (this.byStatus[i] = this.add(`s${i}`, s || "no status", statusToken(s, i), 0)));
    }
    if (this.entries.length === 0) this.add("c0", "other", "--tl-other", 0);
  }

  private add(key: string, label: string, token: string, shade: number): number {
    this.entries.push({ key, label, token, shade });
    return this.entries.length - 1;
  }

  /** The palette number of an item's stretch of class c, in row r of the dump. */
  of(t: Table, item: number, c: number, r: number): number {
    switch (this.by) {
      case "phase":
        return c === OTHER ? (this.byName[t.name[item] as number] as number) : (this.byClass[c] as number);
      case "name":
        return this.byName[t.name[item] as number] as number;
      case "attempt":
        return this.byAttempt[t.attempt[item] as number] as number;
      default:
        return this.byStatus[this.rows.status[r] as number] as number;
    }
  }

  /** The palette number of a class alone, for segments. */
  ofClass(c: number): number {
    return this.by === "phase" ? (this.byClass[c] as number) : 0;
  }

  /** The palette number of a raster's kind; of kinds that share one, the first's. */
  ofKind(k: number): number {
    const of = this.by === "phase" ? (k < FIRST_NAME ? this.byClass[k] : this.byName[k - FIRST_NAME]) : (this.by === "name" ? this.byName : this.by === "attempt" ? this.byAttempt : this.byStatus)[k];
    return of ?? 0;
  }
}

function shadeOf(round: number): number {
  return round === 0 ? 0 : round % 2 === 1 ? Math.min(0.6, 0.3 * Math.ceil(round / 2)) : -Math.min(0.6, 0.3 * Math.ceil(round / 2));
}

/** What the palette means on the screen: red, green, blue, and how strongly each is drawn. */
export interface Paint {
  rgb: Uint8Array;
  css: string[];
  alpha: Float32Array;
}

/** Strength of each entry: what is hidden is not drawn; when some are highlighted, the others step back. */
export function strengths(entries: Entry[], lit: ReadonlySet<string>, hidden: ReadonlySet<string>): Float32Array {
  return Float32Array.from(entries, (e) => (hidden.has(e.key) ? 0 : lit.size > 0 && !lit.has(e.key) ? 0.15 : e.key === `c${GROUP}` ? 0.55 : 1));
}

export interface LegendEntry extends Entry {
  /** items, and microseconds of them */
  n: number;
  time: number;
  palette: number;
}

/** The legend: what occurs, with its count and time; most time first, events last. */
export function legend(c: Colours, t: Table, rows: Rows): LegendEntry[] {
  const n = new Float64Array(c.entries.length), time = new Float64Array(c.entries.length);
  for (let r = 0; r < t.n; r++) {
    for (let i = t.itemFrom[r] as number, e = t.itemFrom[r + 1] as number; i < e; i++) {
      const k = c.of(t, i, t.class[i] as number, rows.n === t.n ? r : 0);
      const many = t.count[i] as number;
      n[k] = (n[k] as number) + many;
      time[k] = (time[k] as number) + (t.dur[i] as number);
    }
  }
  if (c.by === "phase") {
    for (let s = 0; s < t.segClass.length; s++) {
      const k = c.ofClass(t.segClass[s] as number);
      n[k] = (n[k] as number) + 1;
      time[k] = (time[k] as number) + (t.segDur[s] as number);
    }
  }
  return inOrder(c, n, time);
}

/** Entries that occur, with what was counted by palette number. */
export function inOrder(c: Colours, n: Float64Array, time: Float64Array): LegendEntry[] {
  const rank = (e: Entry) => (c.by !== "phase" ? 0 : e.key === `c${EVENT}` ? 3 : e.key === `c${GROUP}` ? 2 : e.key === `c${GENERATE}` || Number(e.key.slice(1)) < PHASE ? 0 : 1);
  return c.entries
    .map((e, i) => ({ ...e, n: n[i] as number, time: time[i] as number, palette: i }))
    .filter((e) => e.n > 0)
    .sort((a, b) => (c.by === "attempt" || c.by === "status" ? a.palette - b.palette : rank(a) - rank(b) || (c.by === "phase" ? a.palette - b.palette : b.n - a.n)));
}
