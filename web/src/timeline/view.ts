// What is looked at: everything that a link to this very view must hold. Times are microseconds from the
// dump's first event, so that several dumps share an axis.
import { COLOUR_BY, type ColourBy } from "./colours";
import { SORTS, type Sort } from "./query";

/** What belongs to one of several dumps. */
export interface PaneView {
  /** place of the topmost row in the order, with the fraction that is scrolled out */
  top: number;
  /** selected row of the dump, item of that row, -1 none */
  row: number;
  item: number;
  /** rows that are the other way round than `expanded` says */
  open: number[];
}

export interface View {
  filter: string;
  /** matches are marked and all rows stay, instead of only matches being shown */
  mark: boolean;
  sort: Sort;
  desc: boolean;
  group: boolean;
  attempt: number;
  /** only items of the attempt are shown; else the others step back */
  only: boolean;
  colour: ColourBy;
  expanded: boolean;
  points: boolean;
  opens: boolean;
  orphans: boolean;
  /** height of a row; 0 all rows in the window */
  rowH: number;
  tail: boolean;
  critical: boolean;
  gaps: boolean;
  /** the window; null is all of it */
  t0: number | null;
  t1: number | null;
  cursor: number | null;
  /** the selected or measured range */
  from: number | null;
  to: number | null;
  lit: string[];
  hidden: string[];
  tab: "sample" | "range" | "none";
  panes: PaneView[];
}

export const newPane = (): PaneView => ({ top: 0, row: -1, item: -1, open: [] });

export const START: View = {
  filter: "", mark: false, sort: "end", desc: true, group: false, attempt: -1, only: true, colour: "phase", expanded: false,
  points: true, opens: true, orphans: true, rowH: 11, tail: true, critical: false, gaps: true, t0: null, t1: null, cursor: null, from: null, to: null,
  lit: [], hidden: [], tab: "range", panes: [newPane()],
};

export const ROW_MIN = 2, ROW_MAX = 28;

/** Writes what differs from the start, in short words. */
export function encodeView(v: View): string {
  const p = new URLSearchParams();
  const flag = (key: string, now: boolean, normal: boolean) => now !== normal && p.set(key, now ? "1" : "0");
  const time = (key: string, t: number | null) => t !== null && p.set(key, (t / 1e6).toFixed(6).replace(/\.?0+$/, ""));
  if (v.filter) p.set("q", v.filter);
  flag("mark", v.mark, START.mark);
  if (v.sort !== START.sort) p.set("sort", v.sort);
  flag("desc", v.desc, START.desc);
  flag("group", v.group, START.group);
  if (v.attempt >= 0) p.set("attempt", String(v.attempt));
  flag("only", v.only, START.only);
  if (v.colour !== START.colour) p.set("colour", v.colour);
  flag("expanded", v.expanded, START.expanded);
  flag("points", v.points, START.points);
  flag("opens", v.opens, START.opens);
  flag("orphans", v.orphans, START.orphans);
  if (v.rowH !== START.rowH) p.set("height", v.rowH === 0 ? "all" : String(v.rowH));
  flag("tail", v.tail, START.tail);
  flag("critical", v.critical, START.critical);
  flag("gaps", v.gaps, START.gaps);
  time("t0", v.t0);
  time("t1", v.t1);
  time("at", v.cursor);
  time("from", v.from);
  time("to", v.to);
  if (v.lit.length) p.set("lit", v.lit.join("."));
  if (v.hidden.length) p.set("hide", v.hidden.join("."));
  if (v.tab !== START.tab) p.set("tab", v.tab);
  v.panes.forEach((pane, i) => {
    const k = i === 0 ? "" : String(i + 1);
    if (pane.top > 0) p.set(`top${k}`, String(pane.top));
    if (pane.row >= 0) p.set(`row${k}`, String(pane.row));
    if (pane.item >= 0) p.set(`item${k}`, String(pane.item));
    if (pane.open.length) p.set(`open${k}`, pane.open.join("."));
  });
  return p.toString();
}

/** Reads what encodeView wrote; what it does not understand is left at the start's. */
export function decodeView(text: string, panes = 1): View {
  const p = new URLSearchParams(text.replace(/^[#?]/, ""));
  const flag = (key: string, normal: boolean) => (p.has(key) ? p.get(key) === "1" : normal);
  const num = (key: string): number | null => {
    const t = p.get(key);
    const v = t === null || t.trim() === "" ? NaN : Number(t);
    return Number.isFinite(v) ? v : null;
  };
  const time = (key: string) => {
    const v = num(key);
    return v === null || Math.abs(v) > 1e12 ? null : v * 1e6;
  };
  const whole = (key: string, none: number) => {
    const v = num(key);
    return v !== null && Number.isInteger(v) && v >= 0 && v < 2 ** 32 ? v : none;
  };
  const pick = <T extends string>(key: string, of: readonly T[], normal: T): T => (of.includes(p.get(key) as T) ? (p.get(key) as T) : normal);
  const list = (key: string) => (p.get(key) ?? "").split(".").filter((s) => /^[a-z]?\d+$/.test(s)).slice(0, 4096);
  const height = p.get("height");
  const h = height === "all" ? 0 : num("height");
  let t0 = time("t0"), t1 = time("t1");
  if (t0 === null || t1 === null || !(t1 > t0)) t0 = t1 = null;
  return {
    filter: p.get("q") ?? "",
    mark: flag("mark", START.mark),
    sort: pick("sort", SORTS, START.sort),
    desc: flag("desc", START.desc),
    group: flag("group", START.group),
    attempt: Math.min(255, whole("attempt", -1)),
    only: flag("only", START.only),
    colour: pick("colour", COLOUR_BY, START.colour),
    expanded: flag("expanded", START.expanded),
    points: flag("points", START.points),
    opens: flag("opens", START.opens),
    orphans: flag("orphans", START.orphans),
    rowH: h === 0 ? 0 : h === null ? START.rowH : Math.min(ROW_MAX, Math.max(ROW_MIN, Math.round(h))),
    tail: flag("tail", START.tail),
    critical: flag("critical", START.critical),
    gaps: flag("gaps", START.gaps),
    t0, t1,
    cursor: time("at"),
    from: time("from"),
    to: time("to"),
    lit: list("lit"),
    hidden: list("hide"),
    tab: pick("tab", ["sample", "range", "none"] as const, START.tab),
    panes: Array.from({ length: panes }, (_, i) => {
      const k = i === 0 ? "" : String(i + 1);
      const top = num(`top${k}`);
      return { top: top !== null && top > 0 && top < 2 ** 32 ? top : 0, row: whole(`row${k}`, -1), item: whole(`item${k}`, -1), open: list(`open${k}`).map(Number).filter(Number.isInteger) };
    }),
  };
}
