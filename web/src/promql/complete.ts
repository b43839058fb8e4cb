// What could come next in a query: metrics, functions, labels, label values, durations, by where the
// caret is. Pure; the labels and their values are asked for by the page.
import type * as api from "../api/types";
import { rank, score } from "../state/match";
import { WORDS } from "./functions";
import { lex, metricNames, type Token } from "./lex";

/** Where the caret is, and what of the text is being typed. */
export interface Place {
  kind: "expression" | "label" | "value" | "duration" | "none";
  /** the part of the text that a completion replaces */
  from: number;
  to: number;
  typed: string;
  /** of label and value: the metric of the selector, "" unknown */
  metric: string;
  /** of value: the label's name */
  label: string;
  /** of label: inside braces, where a matcher follows, and not inside by (…) */
  matcher: boolean;
}

export interface Completion {
  text: string;
  kind: "metric" | "function" | "aggregation" | "keyword" | "label" | "value" | "duration";
  detail: string;
  /** what is written instead of the typed part */
  insert: string;
  /** the caret's place in insert; its end without */
  caret?: number;
  /** the family that a histogram's sample belongs to: its samples rank alike, buckets first */
  base?: string;
  /** the store does not hold it */
  faint?: boolean;
}

/** Tells what is being typed at the caret. */
export function placeAt(text: string, caret: number): Place {
  const tokens = lex(text);
  const none: Place = { kind: "none", from: caret, to: caret, typed: "", metric: "", label: "", matcher: false };
  const cur = tokens.find((t) => t.from < caret && caret <= t.to);
  if (cur?.kind === "comment") return none;
  const before = tokens.filter((t) => t.to <= (cur && cur.kind !== "space" ? cur.from : caret) && t.kind !== "space" && t.kind !== "comment");
  const open = openBracket(before, cur && cur.kind === "bracket" ? cur : undefined);
  const typing = cur && ["metric", "function", "aggregation", "keyword", "label", "number", "duration"].includes(cur.kind) ? cur : undefined;
  const span = { from: typing?.from ?? caret, to: typing?.to ?? caret, typed: typing ? text.slice(typing.from, caret) : "" };

  if (cur?.kind === "string" && caret < cur.to + (closed(cur) ? 0 : 1)) {
    const op = before.at(-1);
    const label = before.at(-2);
    if (open?.text !== "{" || !op || !["=", "!=", "=~", "!~"].includes(op.text) || label?.kind !== "label") return none;
    return { kind: "value", from: cur.from + 1, to: closed(cur) ? cur.to - 1 : cur.to, typed: text.slice(cur.from + 1, caret), metric: metricBefore(before, open), label: label.text, matcher: true };
  }
  if (open?.text === "{") {
    const prev = cur && cur.kind !== "space" && !typing ? cur : before.at(-1);
    if (prev && prev.text !== "{" && prev.text !== "," ) return { ...none, ...span };
    return { ...none, ...span, kind: "label", metric: metricBefore(before, open), matcher: true };
  }
  if (open?.text === "[") return { ...none, ...span, kind: "duration" };
  if (open?.text === "(" && isLabelList(before, open)) {
    return { ...none, ...span, kind: "label", metric: metricNames(text)[0] ?? "", matcher: false };
  }
  if (cur && (cur.kind === "number" || cur.kind === "duration")) return none;
  return { ...none, ...span, kind: "expression" };
}

function closed(t: Token): boolean {
  return t.text.length > 1 && t.text.at(-1) === t.text[0];
}

/** The innermost bracket that is open after the tokens. */
function openBracket(before: Token[], also: Token | undefined): Token | undefined {
  const stack: Token[] = [];
  for (const t of also ? [...before, also] : before) {
    if (t.kind !== "bracket") continue;
    if ("({[".includes(t.text)) stack.push(t);
    else stack.pop();
  }
  return stack.at(-1);
}

function metricBefore(before: Token[], open: Token): string {
  const i = before.indexOf(open);
  const m = (i < 0 ? before : before.slice(0, i)).at(-1);
  return m?.kind === "metric" ? m.text : "";
}

function isLabelList(before: Token[], open: Token): boolean {
  const i = before.indexOf(open);
  const w = (i < 0 ? before : before.slice(0, i)).at(-1);
  return w?.kind === "keyword" && ["by", "without", "on", "ignoring", "group_left", "group_right"].includes(w.text.toLowerCase());
}

const DURATIONS = ["1m", "2m", "5m", "10m", "15m", "30m", "1h", "2h", "6h", "1d", "7d"];

/** Names that can be written without quotes. */
const BARE = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

/** Everything known that completions are made of. */
export interface Known {
  metrics: readonly api.MetricInfo[];
  /** names that the store holds and the catalog does not know */
  others: readonly string[];
  labels: readonly string[];
  values: readonly string[];
}

/** The best completions at a place, at most limit. */
export function complete(place: Place, known: Known, limit = 40): Completion[] {
  switch (place.kind) {
    case "expression":
      if (place.typed === "") return [];
      return rank(place.typed, [...metricItems(known), ...wordItems()], (c) => (c.base && score(place.typed, c.base) > 0 ? c.base : c.text), limit * 2)
        .sort((a, b) => Number(a.faint ?? false) - Number(b.faint ?? false))
        .slice(0, limit);
    case "label":
      return rank(place.typed, known.labels, (l) => l, limit).map((l) => ({
        text: l, kind: "label", detail: "", insert: place.matcher ? `${l}=""` : l, ...(place.matcher ? { caret: l.length + 2 } : {}),
      }));
    case "value":
      return rank(place.typed, known.values, (v) => v, limit).map((v) => ({ text: v, kind: "value", detail: "", insert: JSON.stringify(v).slice(1, -1) }));
    case "duration":
      return rank(place.typed, DURATIONS, (d) => d, limit).map((d) => ({ text: d, kind: "duration", detail: "", insert: d }));
    default:
      return [];
  }
}

function metricItems(known: Known): Completion[] {
  const out: Completion[] = [];
  for (const m of known.metrics) {
    // A histogram's family has no samples of its own.
    const names = m.type === "histogram" && !/_(bucket|sum|count)$/.test(m.name) ? ["_bucket", "_count", "_sum"].map((s) => m.name + s) : [m.name];
    for (const n of names) {
      out.push({ text: n, kind: "metric", detail: m.meaning, insert: bare(n), ...(n === m.name ? {} : { base: m.name }), ...(m.stored ? {} : { faint: true }) });
    }
  }
  for (const n of known.others) out.push({ text: n, kind: "metric", detail: "", insert: bare(n) });
  return out;
}

const bare = (name: string) => (BARE.test(name) ? name : `{${JSON.stringify(name)}}`);

function wordItems(): Completion[] {
  return WORDS.map((w) =>
    w.kind === "keyword"
      ? { text: w.name, kind: "keyword", detail: w.does, insert: w.name }
      : { text: w.name, kind: w.kind, detail: w.does, insert: `${w.name}()`, caret: w.name.length + (w.form.endsWith("()") ? 2 : 1) },
  );
}

/** The text and caret after taking a completion. */
export function take(text: string, place: Place, c: Completion): { text: string; caret: number } {
  let insert = c.insert;
  let caret = place.from + (c.caret ?? insert.length);
  const rest = text.slice(place.to);
  // What already stands after the caret is not written twice.
  if (insert.endsWith("()") && rest.startsWith("(")) {
    insert = insert.slice(0, -2);
    caret = place.from + insert.length + 1;
  }
  if (c.kind === "label" && place.matcher && /^\s*(=|!)/.test(rest)) {
    insert = c.text;
    caret = place.from + insert.length;
  }
  return { text: text.slice(0, place.from) + insert + rest, caret };
}
