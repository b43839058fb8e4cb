// One table for rows of anything: sorted by a click on a header, walked with j and k, opened with Enter,
// header always in sight, and beyond 200 rows only those in sight are in the document.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useKeys } from "../state/keys";

export interface Column<R> {
  key: string;
  title: ComponentChildren;
  /** explanation of the column */
  hint?: string | undefined;
  right?: boolean;
  class?: string;
  cell: (row: R) => ComponentChildren;
  /** what the column sorts by; null sorts last in both directions */
  value?: (row: R) => number | string | null;
  /** descending on the first click: the large ones are what one looks for */
  largeFirst?: boolean;
}

export interface TableProps<R> {
  label: string;
  rows: R[];
  columns: Column<R>[];
  rowKey: (row: R) => string;
  selected?: string;
  onOpen?: (row: R) => void;
  /** column key, "-" before it for descending; "" leaves the rows as they come */
  sort?: string;
  onSort?: (sort: string) => void;
  /** j, k and Enter work without clicking into it first */
  primary?: boolean;
  /** shown in place of no rows. Made anew each time: effects keep the properties of an early rendering, and an
   * element in those ties every later tree to it */
  empty?: () => ComponentChildren;
  rowClass?: (row: R) => string;
  /** keys for the row in focus, of a primary table: "r", "l", "t" */
  keys?: Record<string, (row: R) => void>;
  /** the last rows came into sight: there may be more to load */
  onEnd?: () => void;
}

const ROW = 22;
const VIRTUAL_FROM = 200;

/** Rows in the order of a sort. Stable, so that equal rows keep the order they came in. */
export function sorted<R>(rows: R[], columns: Column<R>[], sort: string): R[] {
  const desc = sort.startsWith("-");
  const value = columns.find((c) => c.key === (desc ? sort.slice(1) : sort))?.value;
  if (!value) return rows;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
    const c = typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y), "en", { numeric: true }) : x - y;
    return desc ? -c : c;
  });
}

/** What a click on a header makes of the sort: first way, other way, back to the order of the server. */
export function nextSort(sort: string, key: string, largeFirst: boolean): string {
  const [first, second] = largeFirst ? [`-${key}`, key] : [key, `-${key}`];
  return sort === first ? second : sort === second ? "" : first;
}

export function Table<R>(p: TableProps<R>) {
  const box = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState("");
  const [view, setView] = useState({ top: 0, height: 800 });
  const rows = sorted(p.rows, p.columns, p.sort ?? "");
  const virtual = rows.length > VIRTUAL_FROM;
  const first = virtual ? Math.max(0, Math.floor(view.top / ROW) - 20) : 0;
  const last = virtual ? Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + 20) : rows.length;
  const current = cursor || p.selected || "";
  const at = rows.findIndex((r) => p.rowKey(r) === current);

  const focusRow = (i: number) => {
    const row = rows[Math.min(rows.length - 1, Math.max(0, i))];
    if (!row) return;
    const key = p.rowKey(row);
    setCursor(key);
    const el = box.current;
    if (el && virtual) {
      const y = i * ROW;
      if (y < el.scrollTop) el.scrollTop = y;
      else if (y > el.scrollTop + el.clientHeight - 2 * ROW) el.scrollTop = y - el.clientHeight + 2 * ROW;
    }
    requestAnimationFrame(() => {
      const tr = box.current?.querySelector<HTMLElement>(`tr[data-key="${CSS.escape(key)}"]`);
      tr?.focus({ preventScroll: true });
      tr?.scrollIntoView({ block: "nearest" });
    });
  };
  useKeys(
    p.primary
      ? {
          j: () => focusRow(at + 1),
          k: () => focusRow(at < 0 ? rows.length - 1 : at - 1),
          Enter: () => {
            const row = rows[at];
            if (!row || !p.onOpen) return false;
            p.onOpen(row);
            return true;
          },
          ...Object.fromEntries(Object.entries(p.keys ?? {}).map(([key, run]) => [key, () => {
            const row = rows[at];
            if (!row) return false;
            run(row);
            return true;
          }])),
        }
      : {},
  );
  const ends = virtual ? last >= rows.length : false;
  useEffect(() => {
    if (ends) p.onEnd?.();
  }, [ends, rows.length]);
  // In time for the first key, which may scroll.
  useLayoutEffect(() => {
    const el = box.current;
    if (!el || !virtual) return;
    const measure = () => setView({ top: el.scrollTop, height: el.clientHeight });
    measure();
    el.addEventListener("scroll", measure, { passive: true });
    return () => el.removeEventListener("scroll", measure);
  }, [virtual]);

  if (rows.length === 0 && p.empty) return <>{p.empty()}</>;
  return (
    <div class="scroll table-box" ref={box}>
      <table class="rows" aria-label={p.label} aria-rowcount={rows.length}>
        <thead>
          <tr>
            {p.columns.map((c) => (
              <Head key={c.key} column={c} sort={p.sort ?? ""} onSort={p.onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Spacer height={first * ROW} columns={p.columns.length} />}
          {rows.slice(first, last).map((row, i) => {
            const key = p.rowKey(row);
            const sel = key === p.selected;
            const tab = at < 0 ? first + i === 0 : first + i === at;
            return (
              <tr
                key={key}
                data-key={key}
                class={`${sel ? "sel" : ""} ${p.rowClass?.(row) ?? ""}`}
                aria-selected={p.selected === undefined ? undefined : sel}
                aria-rowindex={first + i + 1}
                tabIndex={tab ? 0 : -1}
                onFocus={() => setCursor(key)}
                onClick={(e) => {
                  if (e.defaultPrevented || !p.onOpen || getSelection()?.toString()) return;
                  p.onOpen(row);
                }}
                onKeyDown={(e) => {
                  if (e.key !== "Enter" || e.target !== e.currentTarget || !p.onOpen) return;
                  e.preventDefault();
                  p.onOpen(row);
                }}
              >
                {p.columns.map((c) => (
                  <td key={c.key} class={`${c.right ? "n" : ""} ${c.class ?? ""}`}>
                    {c.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
          {last < rows.length && <Spacer height={(rows.length - last) * ROW} columns={p.columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

function Head<R>({ column: c, sort, onSort }: { column: Column<R>; sort: string; onSort: ((s: string) => void) | undefined }) {
  const dir = sort === c.key ? "ascending" : sort === `-${c.key}` ? "descending" : undefined;
  const arrow = dir === "ascending" ? " ▴" : dir === "descending" ? " ▾" : "";
  return (
    <th class={`${c.right ? "n" : ""} ${c.class ?? ""}`} title={c.hint} aria-sort={dir}>
      {c.value && onSort ? (
        <button type="button" class="th" onClick={() => onSort(nextSort(sort, c.key, c.largeFirst === true))}>
          {c.title}
          {arrow}
        </button>
      ) : (
        c.title
      )}
    </th>
  );
}

function Spacer({ height, columns }: { height: number; columns: number }) {
  return (
    <tr class="spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${height}px` }} />
    </tr>
  );
}
