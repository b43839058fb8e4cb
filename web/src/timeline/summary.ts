// What a server counts over all items and requests (FORMAT.md, "Summary"): for the legend and "vs p50".
import { inOrder, type Colours, type LegendEntry } from "./colours";
import type { Head } from "./container";

export interface Counted {
  n: number;
  /** microseconds */
  time: number;
}

/** By number of the class, name, attempt or status; others are items of no class, by name. */
export interface Summary {
  classes: Map<number, Counted>;
  names: Map<number, Counted>;
  others: Map<number, Counted>;
  attempts: Map<number, Counted>;
  statuses: Map<number, Counted>;
  /** microseconds: the ten phases, queue, e2e; NaN where no request says it */
  medians: Float64Array;
}

type Obj = Record<string, unknown>;
const isObj = (v: unknown): v is Obj => v !== null && typeof v === "object" && !Array.isArray(v);

export function readSummary(s: Obj, head: Head): Summary {
  const counted = (v: Obj): Counted => ({ n: typeof v["n"] === "number" ? v["n"] : 0, time: typeof v["seconds"] === "number" ? v["seconds"] * 1e6 : NaN });
  const list = (key: string): Obj[] => (Array.isArray(s[key]) ? (s[key] as unknown[]).filter(isObj) : []);
  const byText = (key: string, field: string, dict: string[], of: (v: Obj) => unknown = (v) => v): Map<number, Counted> => {
    const ids = new Map(dict.map((text, i) => [text, i]));
    const out = new Map<number, Counted>();
    for (const v of list(key)) {
      const id = ids.get(String(v[field]));
      const c = of(v);
      if (id !== undefined && isObj(c)) out.set(id, counted(c));
    }
    return out;
  };
  const m = isObj(s["medians"]) ? s["medians"] : {};
  const phases = Array.isArray(m["phases"]) ? (m["phases"] as unknown[]) : [];
  return {
    classes: byText("classes", "class", head.dicts.class),
    names: byText("names", "name", head.dicts.name),
    others: byText("names", "name", head.dicts.name, (v) => v["other"]),
    attempts: new Map(list("attempts").map((v) => [Number(v["attempt"]), counted(v)])),
    statuses: byText("statuses", "status", head.dicts.status),
    medians: Float64Array.from([...Array.from({ length: 10 }, (_, p) => phases[p]), m["queue"], m["e2e"]], (v) => (typeof v === "number" ? v * 1e6 : NaN)),
  };
}

/** The legend, from what was counted. */
export function summaryLegend(c: Colours, s: Summary): LegendEntry[] {
  const lists: Record<string, Map<number, Counted>> = { c: s.classes, n: c.by === "name" ? s.names : s.others, a: s.attempts, s: s.statuses };
  const found = c.entries.map((e) => lists[e.key[0] as string]?.get(Number(e.key.slice(1))));
  return inOrder(c, Float64Array.from(found, (f) => f?.n ?? 0), Float64Array.from(found, (f) => f?.time ?? 0));
}
