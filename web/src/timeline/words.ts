// Words and numbers beside the picture: sort keys, row summaries, attribute values as plain text.
import { grouped } from "../format/number";
import { clockTime, length } from "./axis";
import type { Sort } from "./query";
import type { TimelineSource } from "./source";
import { ROW_FLAGS, rowName } from "./table";

/** Whether the rows are participants of a trace and no samples of a step. */
export const ofTrace = (source: TimelineSource): boolean => source.head.dump.kind === "trace";
/** What one row is. */
export const rowNoun = (source: TimelineSource): string => (ofTrace(source) ? "participant" : "sample");
/** What a row is called: a participant by its name, a sample by its index, else its place. */
export function titleOf(source: TimelineSource, r: number): string {
  const label = ofTrace(source) ? source.head.dicts.label[source.rows.label[r] as number] : "";
  return label || rowName(source.rows, r);
}

const TIMES = new Set<Sort>(["start", "end", "dur", "queue", "e2e", "prefill", "decode"]);

/** The unit in the header of the sort key's column. */
export function unitOf(sort: Sort): string {
  return TIMES.has(sort) ? ", s" : "";
}

/** The sort key of a row as its label shows it; a row that has no end says so. */
export function keyText(source: TimelineSource, sort: Sort, r: number, origin: number): string {
  const { rows, head, extent } = source;
  if (sort === "status") return head.dicts.status[rows.status[r] as number] || "–";
  if (sort === "end" && (rows.open[r] as number) > 0) return "open";
  const v = source.key(sort === "sample" ? "end" : sort, r);
  if (Number.isNaN(v)) return "–";
  const shown = sort === "start" || sort === "end" || sort === "sample" ? v - origin / 1e6 : v;
  if (sort === "reward") return Number.isInteger(v) && Math.abs(v) < 1000 ? v.toFixed(1) : v.toPrecision(3);
  if (TIMES.has(sort) || sort === "sample") return Math.abs(shown) >= 1e5 ? grouped(shown, 0) : (extent[1] - extent[0] < 1e7 ? shown.toFixed(3) : shown.toFixed(1)).replace("-", "−");
  return grouped(v, 0);
}

/** One sentence about a row, for the live region and its tooltip. */
export function rowSentence(source: TimelineSource, r: number, origin: number): string {
  const { rows, head } = source;
  const parts = [`${rowNoun(source)} ${titleOf(source, r)}`];
  const group = rows.group[r] as number;
  if (!Number.isNaN(group)) parts.push(`group ${group}`);
  const status = head.dicts.status[rows.status[r] as number];
  if (status) parts.push(status);
  const reward = rows.reward[r] as number;
  if (!Number.isNaN(reward)) parts.push(`reward ${reward}`);
  if (rows.lanes[r] === 0 && rows.items[r] === 0) parts.push(head.dicts.why[rows.why[r] as number] || "no trace");
  else {
    parts.push(`from ${clockTime((rows.start[r] as number) - origin, 1, true)}`, (rows.open[r] as number) > 0 ? `${rows.open[r]} open` : `ends ${clockTime((rows.start[r] as number) + (rows.dur[r] as number) - origin, 1, true)}`, `took ${length(rows.dur[r] as number)}`);
  }
  for (const [bit, , words] of ROW_FLAGS) if (((rows.flags[r] as number) & bit) !== 0) parts.push(words);
  return parts.join(", ");
}

/** Text that would turn the text around it, or show nothing, is named instead. */
export function visible(s: string): string {
  return s.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** A JSON value as one line of text, cut to so many characters. */
export function valueText(v: unknown, most = 2000): string {
  const s = visible(typeof v === "string" ? v : v === undefined ? "" : JSON.stringify(v));
  return s.length > most ? `${s.slice(0, most)}… (${grouped(s.length, 0)} characters)` : s;
}
