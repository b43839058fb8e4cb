// A small line in a table cell. All of one column share one scale, given as max.
import type * as api from "../api/types";

export interface SparkProps {
  values: (number | null)[];
  state: api.State;
  max: number;
  color: string;
  width?: number;
  height?: number;
}

export function Spark({ values, state, max, color, width = 44, height = 14 }: SparkProps) {
  const base = height - 1.5;
  return (
    <svg class="spark" width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      {state === "unknown" && <rect width={width} height={height} fill="url(#hatch)" />}
      {state === "idle" && <path d={`M1 ${base}H${width}`} class="spark-idle" />}
      {state === "value" && (
        <>
          <path d={`M0 ${base + 0.5}H${width}`} class="spark-base" />
          <path d={sparkPath(values, max, width, base)} class="spark-line" style={{ stroke: `var(${color})` }} />
        </>
      )}
    </svg>
  );
}

/** The line; null breaks it, a lone point is a short dash, what exceeds max stays at the top. */
export function sparkPath(values: (number | null)[], max: number, width: number, base: number): string {
  const n = values.length;
  if (n === 0) return "";
  const dx = n > 1 ? (width - 2) / (n - 1) : 0;
  const top = max > 0 ? max : 1;
  let d = "";
  let pen = false;
  values.forEach((v, i) => {
    if (v === null || !Number.isFinite(v)) {
      pen = false;
      return;
    }
    const x = (1 + i * dx).toFixed(1);
    const y = (base - Math.min(1, Math.max(0, v / top)) * (base - 1.5)).toFixed(1);
    d += `${pen ? "L" : "M"}${x} ${y}`;
    const next = values[i + 1];
    if (!pen && (next === null || next === undefined)) d += "h1";
    pen = true;
  });
  return d;
}

/** The common scale of a column: its highest value, without an outlier that would press the rest flat. */
export function sparkMax(all: Iterable<api.Spark | undefined>): number {
  const v: number[] = [];
  for (const s of all) for (const x of s?.values ?? []) if (x !== null) v.push(x);
  if (v.length === 0) return 1;
  v.sort((a, b) => a - b);
  const max = v[v.length - 1] as number;
  const p95 = v[Math.floor((v.length - 1) * 0.95)] as number;
  return max > 6 * p95 && p95 > 0 ? p95 * 2 : max;
}
