// Where the rows of the strip lie and which of them have a label: all ranks fit where they can, and stay
// readable. Pure.

export const LABEL = 128, RULER = 18;
const LEAST_ROW = 6, MOST_ROW = 24;
/** Labels are as far apart as their letters are high. */
const LABEL_ROW = 11;

/** Height of a row, px, for n rows in a room of so many px; under 6 px nothing could be told apart: then one scrolls. */
export function rowHeight(n: number, room: number): number {
  return n <= 0 ? MOST_ROW : Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(room / n)));
}

/** The part of a row's height that bars take; the rest keeps rows apart. */
export function barHeight(row: number): number {
  return row >= 16 ? row - 4 : row >= 10 ? row - 2 : row - 1;
}

export interface RowLabel {
  /** the row */
  row: number;
  /** of the engine, at its first rank with a label; "" below */
  name: string;
  /** "" where the engine has one rank, or where there is no room */
  rank: string;
}

/** The labels of rows from first to last: an engine's name once, ranks as densely as letters allow, at round numbers. */
export function rowLabels(rows: readonly { engine: string; name: string; rank: number }[], first: number, last: number, height: number): RowLabel[] {
  const ranks = new Map<string, number>();
  for (const r of rows) ranks.set(r.engine, (ranks.get(r.engine) ?? 0) + 1);
  const per = Math.ceil(LABEL_ROW / height);
  const every = [1, 2, 4, 5, 8, 10, 16].find((n) => n >= per) ?? per;
  const out: RowLabel[] = [];
  let named = -Infinity, numbered = -Infinity, of = "";
  for (let i = first; i < last; i++) {
    const r = rows[i];
    if (!r) break;
    const begins = r.engine !== of;
    of = r.engine;
    const name = begins && i - named >= per ? r.name : "";
    if (name) named = i;
    const many = (ranks.get(r.engine) ?? 1) > 1;
    // A rank beside a name always has room: they stand at both ends of the label.
    const rank = many && (r.rank % every === 0 || every === 1) && i - numbered >= per ? String(r.rank) : "";
    if (rank) numbered = i;
    if (name || rank) out.push({ row: i, name, rank });
  }
  return out;
}

/** Spans of time that a key steps through, ms. */
export const SPANS = [2000, 5000, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 120_000];

/** The next shorter (-1) or longer (1) span. */
export function nextSpan(span: number, step: -1 | 1): number {
  if (step < 0) return SPANS.findLast((s) => s < span - 1) ?? (SPANS[0] as number);
  return SPANS.find((s) => s > span + 1) ?? (SPANS.at(-1) as number);
}

export const clampSpan = (span: number): number => Math.min(SPANS.at(-1) as number, Math.max(SPANS[0] as number, span));
