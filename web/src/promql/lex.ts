// PromQL in pieces: enough to colour it, to tell what is under the cursor, which metrics it reads, and to
// narrow it to one engine. Parsing proper is the server's.
import { word } from "./functions";

export type Kind = "metric" | "function" | "aggregation" | "keyword" | "label" | "string" | "number" | "duration" | "operator" | "bracket" | "comment" | "space" | "bad";

export interface Token {
  kind: Kind;
  text: string;
  from: number;
  to: number;
}

const SPACE = /\s+/y;
const COMMENT = /#[^\n]*/y;
const STRING = /"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`[^`]*`?/y;
const DURATION = /(?:\d+(?:ms|[smhdwy]))+\b/y;
const NUMBER = /(?:0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)/iy;
const IDENT = /[a-zA-Z_:][a-zA-Z0-9_:]*/y;
const OPERATOR = /=~|!~|!=|==|<=|>=|[-+*/%^<>=@,:]/y;
const BRACKET = /[(){}[\]]/y;
const LISTS = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/** Splits text into tokens that cover all of it. */
export function lex(text: string): Token[] {
  const out: Token[] = [];
  let at = 0;
  let braces = 0;
  /** the word before each open parenthesis, so that by (…) holds labels */
  const parens: string[] = [];
  let before = "";
  const take = (re: RegExp): string | null => {
    re.lastIndex = at;
    return re.exec(text)?.[0] ?? null;
  };
  const push = (kind: Kind, s: string) => {
    out.push({ kind, text: s, from: at, to: at + s.length });
    at += s.length;
  };
  while (at < text.length) {
    let s: string | null;
    if ((s = take(SPACE))) push("space", s);
    else if ((s = take(COMMENT))) push("comment", s);
    else if ((s = take(STRING))) {
      push("string", s);
      before = "";
    } else if ((s = take(DURATION))) push("duration", s);
    else if ((s = take(NUMBER))) push("number", s);
    else if ((s = take(IDENT))) {
      const kind = identKind(s, text.slice(at + s.length), braces > 0 || LISTS.includes(parens.at(-1) ?? ""));
      push(kind, s);
      before = s;
    } else if ((s = take(BRACKET))) {
      if (s === "{") braces++;
      else if (s === "}") braces = Math.max(0, braces - 1);
      else if (s === "(") parens.push(before);
      else if (s === ")") parens.pop();
      push("bracket", s);
      before = "";
    } else if ((s = take(OPERATOR))) {
      push("operator", s);
      before = "";
    } else push("bad", text.slice(at, at + ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1)));
  }
  return out;
}

function identKind(s: string, rest: string, inList: boolean): Kind {
  if (inList) return "label";
  const w = word(s.toLowerCase());
  if (w?.kind === "keyword") return "keyword";
  if (w?.kind === "aggregation" && /^\s*(\(|by\b|without\b)/i.test(rest)) return "aggregation";
  if (/^\s*\(/.test(rest)) return "function";
  if (/^(inf|nan)$/i.test(s)) return "number";
  return "metric";
}

const known = new Map<string, string[]>();

/** Names of the metrics that an expression reads, each once. Remembered: rules and signals are asked for again and again. */
export function metricNames(expr: string): string[] {
  let names = known.get(expr);
  if (!names) {
    if (known.size > 500) known.clear();
    names = readNames(expr);
    known.set(expr, names);
  }
  return names;
}

function readNames(expr: string): string[] {
  const names = new Set<string>();
  const tokens = lex(expr);
  tokens.forEach((t, i) => {
    if (t.kind === "metric") names.add(t.text);
    // {"a name in quotes"} and {__name__="x"}
    if (t.kind === "string" && t.text.length > 2) {
      const prev = solid(tokens, i, -1);
      const next = solid(tokens, i, 1);
      const inner = t.text.slice(1, -1);
      if ((prev?.text === "{" && (next?.text === "," || next?.text === "}")) || (prev?.text === "=" && solid(tokens, tokens.indexOf(prev), -1)?.text === "__name__")) names.add(inner);
    }
  });
  return [...names];
}

function solid(tokens: Token[], i: number, step: 1 | -1): Token | undefined {
  for (let j = i + step; j >= 0 && j < tokens.length; j += step) {
    const t = tokens[j] as Token;
    if (t.kind !== "space" && t.kind !== "comment") return t;
  }
  return undefined;
}

/** Strips what a program adds to a histogram's or counter's family name. */
export function family(name: string): string {
  return name.replace(/_(bucket|sum|count|total)$/, "");
}

/** The token at a caret position: the one it is in, or that ends there. */
export function tokenAt(tokens: Token[], caret: number): Token | undefined {
  return tokens.find((t) => caret > t.from && caret <= t.to && t.kind !== "space") ?? tokens.find((t) => caret >= t.from && caret < t.to && t.kind !== "space");
}

/** The function or aggregation whose arguments the caret is in; "" in none. */
export function enclosing(tokens: Token[], caret: number): string {
  /** of each open parenthesis the word before it */
  const open: { word: string; list: boolean }[] = [];
  let word = "";
  let list = false;
  for (const t of tokens) {
    if (t.to > caret) break;
    if (t.kind === "function" || t.kind === "aggregation") word = t.text;
    else if (t.kind === "keyword") list = LISTS.includes(t.text.toLowerCase());
    else if (t.kind === "bracket" && t.text === "(") {
      open.push({ word, list });
      if (!list) word = "";
      list = false;
    } else if (t.kind === "bracket" && t.text === ")") {
      const closed = open.pop();
      // sum by (le) (…): the list does not end the word before it
      word = closed?.list ? closed.word : "";
    }
  }
  return open.findLast((o) => o.word !== "" && !o.list)?.word ?? "";
}

/** Quotes a label's value. */
export function quote(value: string): string {
  return JSON.stringify(value);
}

/**
 * Narrows every selector of an expression by a matcher (`instance="a:1"`). Selectors that already speak of
 * that label are left as they are.
 */
export function narrowed(expr: string, label: string, value: string): string {
  const tokens = lex(expr);
  const matcher = `${label}=${quote(value)}`;
  let out = "";
  for (let i = 0; i < tokens.length; i++) {
    const t = tokens[i] as Token;
    const next = solid(tokens, i, 1);
    if (t.kind === "metric" && next?.text !== "{") {
      out += `${t.text}{${matcher}}`;
      continue;
    }
    out += t.text;
    if (t.text === "{" && t.kind === "bracket") {
      const end = tokens.findIndex((x, j) => j > i && x.kind === "bracket" && x.text === "}");
      const inside = tokens.slice(i + 1, end < 0 ? undefined : end);
      if (inside.some((x) => x.kind === "label" && x.text === label)) continue;
      const empty = inside.every((x) => x.kind === "space");
      out += empty ? matcher : `${matcher},`;
    }
  }
  return out;
}

/** Where an error of the server lies in the query: "1:8: parse error: …" counts lines and columns (bytes) from 1. */
export function errorPlace(message: string, expr: string): { from: number; to: number; message: string } | null {
  const m = /(\d+):(\d+):\s*(?:parse error:\s*)?([\s\S]*)$/.exec(message);
  if (!m) return null;
  const line = Number(m[1]);
  const column = Number(m[2]);
  const lines = expr.split("\n");
  if (line < 1 || line > lines.length) return null;
  const start = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  const text = lines[line - 1] ?? "";
  const from = start + Math.min(text.length, charsOf(text, column - 1));
  const token = lex(expr).find((t) => t.from <= from && from < t.to && t.kind !== "space");
  const to = token ? token.to : Math.min(expr.length, from + 1);
  return { from: to > from ? from : Math.max(0, from - 1), to: Math.max(to, from), message: (m[3] ?? "").trim() };
}

/** How many UTF-16 units the first n bytes of a text are. */
function charsOf(text: string, n: number): number {
  let bytes = 0;
  let chars = 0;
  for (const c of text) {
    if (bytes >= n) break;
    const p = c.codePointAt(0) ?? 0;
    bytes += p < 0x80 ? 1 : p < 0x800 ? 2 : p < 0x10000 ? 3 : 4;
    chars += c.length;
  }
  return chars;
}

/** A bracket or quote that is never closed, or closes nothing: known before the server is asked. */
export function unbalanced(expr: string): { from: number; to: number; message: string } | null {
  const open: Token[] = [];
  const pair: Record<string, string> = { ")": "(", "}": "{", "]": "[" };
  for (const t of lex(expr)) {
    if (t.kind === "string" && (t.text.length < 2 || t.text.at(-1) !== t.text[0])) return { from: t.from, to: t.to, message: "this string does not end" };
    if (t.kind === "bad") return { from: t.from, to: t.to, message: `${t.text} has no meaning here` };
    if (t.kind !== "bracket") continue;
    if ("({[".includes(t.text)) open.push(t);
    else {
      const o = open.pop();
      if (o?.text !== pair[t.text]) return { from: t.from, to: t.to, message: `this ${t.text} closes nothing` };
    }
  }
  const o = open.at(-1);
  return o ? { from: o.from, to: o.to, message: `this ${o.text} is never closed` } : null;
}

/**
 * The part before the first comparison at the top level, and the number it is compared with; the whole
 * expression where there is none or another condition is joined to it.
 */
export function leftSide(whole: string): { left: string; threshold?: { value: number; label: string; level: "crit" } } {
  let expr = whole;
  let depth = 0;
  let at = -1;
  for (let i = 0; i < expr.length; i++) {
    const c = expr[i] as string;
    if (c === '"' || c === "'" || c === "`") {
      const end = expr.indexOf(c, i + 1);
      i = end < 0 ? expr.length : end;
    } else if ("({[".includes(c)) depth++;
    else if (")}]".includes(c)) depth--;
    else if (depth === 0 && /^(and|unless)\b/i.test(expr.slice(i)) && !/\w/.test(expr[i - 1] ?? " ")) return { left: whole };
    else if (depth === 0 && /^or\b/i.test(expr.slice(i)) && !/\w/.test(expr[i - 1] ?? " ")) {
      // a > 1 or b: what follows stands in where the first is not there (a recorded series and its raw form).
      expr = expr.slice(0, i).trim();
      break;
    }
    else if (depth === 0 && /^([<>]=?|[=!]=)/.test(expr.slice(i))) {
      if (at < 0) at = i;
      i++;
    }
  }
  const left = at > 0 ? expr.slice(0, at).trim() : "";
  if (!left) return { left: whole };
  const right = expr.slice(at).trim();
  const m = /^[<>]=?\s*(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)$/i.exec(right);
  return m ? { left, threshold: { value: Number(m[1]), label: right, level: "crit" } } : { left };
}
