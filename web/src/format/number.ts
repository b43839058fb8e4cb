// Numbers as a person reads them. A Scale is chosen once for a column, an axis or a panel, so that all its
// numbers share a unit and decimals; the unit stands in the header and not in each cell.

/** How the numbers of one column or axis are written. */
export interface Scale {
  /** shown = value × factor */
  factor: number;
  /** as it stands in a title: "ms", "%", "k tokens/s" */
  unit: string;
  decimals: number;
  /** written min:s instead of a decimal number */
  clock: boolean;
}

const plain = (unit: string, factor: number, max: number, whole = false): Scale => ({
  factor,
  unit,
  // Of things that are counted, a tenth is only averaging: it shows where there are few.
  decimals: whole || (COUNTED.has(unit) && max >= 10) ? 0 : decimalsFor(Math.abs(max) * factor),
  clock: false,
});
const COUNTED = new Set(["requests", "tokens", "engines", "workers", "connections", "pages", "blocks"]);

/** Decimals that keep about three significant digits of the size m. */
export function decimalsFor(m: number): number {
  if (!(m > 0) || !Number.isFinite(m)) return 0;
  if (m >= 99.95) return 0;
  if (m >= 9.995) return 1;
  if (m >= 0.9995) return 2;
  return Math.min(6, 1 - Math.floor(Math.log10(m)));
}

const SI: [number, string][] = [[1e10, "G"], [1e7, "M"], [1e4, "k"]];
const SI_FACTOR: Record<string, number> = { G: 1e-9, M: 1e-6, k: 1e-3 };

/** The unit's name without the words that say nothing ("1" is a bare number). */
function unitName(unit: string): string {
  return unit === "1" || unit === "none" ? "" : unit;
}

/**
 * The scale for numbers of a unit (as the catalog writes it) whose typical or largest size is max.
 * Seconds become ms up to 9,999 ms, then s, then min:s; ratios become %; bytes become GB; large counts
 * take an SI step; slow rates are given per minute. whole says that all numbers are integers.
 */
export function scaleFor(unit: string, max: number, whole = false): Scale {
  const m = Math.abs(max);
  switch (unit) {
    case "s":
    case "second":
    case "seconds":
      return timeScale(1, m);
    case "ms":
    case "milliseconds":
      return timeScale(1e-3, m);
    case "us":
    case "microseconds":
      return timeScale(1e-6, m);
    case "ratio":
    case "percentunit":
      return { factor: 100, unit: "%", decimals: 1, clock: false };
    case "%":
    case "percent":
      return { factor: 1, unit: "%", decimals: 1, clock: false };
    case "bytes":
      return bytesScale("", m);
    case "bytes/s":
      return bytesScale("/s", m);
    case "MiB":
      return m >= 10240 ? plain("GiB", 1 / 1024, m) : plain("MiB", 1, m);
    case "GiB/s":
    case "GB/s":
    case "MB/s":
    case "MiB/s":
      return plain(unit, 1, m);
  }
  const name = unitName(unit);
  if (name.endsWith("/s") && m > 0 && m < 0.5) {
    return plain(name.slice(0, -2) + "/min", 60, m);
  }
  for (const [from, prefix] of SI) {
    if (m >= from) return plain(name ? `${prefix} ${name}` : prefix, SI_FACTOR[prefix] ?? 1, m);
  }
  return plain(name, 1, m, whole);
}

function timeScale(inSeconds: number, m: number): Scale {
  const s = m * inSeconds;
  if (s < 10) return plain("ms", inSeconds * 1000, m);
  if (s < 600) return plain("s", inSeconds, m);
  return { factor: inSeconds, unit: "min:s", decimals: 0, clock: true };
}

function bytesScale(per: string, m: number): Scale {
  if (m >= 1e8) return plain("GB" + per, 1e-9, m);
  if (m >= 1e5) return plain("MB" + per, 1e-6, m);
  return plain("kB" + per, 1e-3, m);
}

/** A value in its scale, without the unit. Not for null: absence has words of its own. */
export function format(value: number, scale: Scale): string {
  const v = value * scale.factor;
  if (!Number.isFinite(v)) return v > 0 ? "∞" : v < 0 ? "−∞" : "not a number";
  return scale.clock ? minutesSeconds(v) : grouped(v, scale.decimals);
}

/** 28736 → "28,736"; a real minus sign; never "-0". */
export function grouped(v: number, decimals: number): string {
  let s = Math.abs(v).toFixed(decimals);
  if (s.length > 21 || s.includes("e")) return v.toPrecision(4);
  const dot = s.indexOf(".");
  const whole = dot < 0 ? s : s.slice(0, dot);
  const rest = dot < 0 ? "" : s.slice(dot);
  s = whole.replace(/\B(?=(\d{3})+$)/g, ",") + rest;
  return v < 0 && /[1-9]/.test(s) ? "−" + s : s;
}

function minutesSeconds(seconds: number): string {
  const sign = seconds < 0 ? "−" : "";
  const s = Math.round(Math.abs(seconds));
  const h = Math.floor(s / 3600);
  const min = Math.floor((s % 3600) / 60);
  const sec = String(s % 60).padStart(2, "0");
  return h > 0 ? `${sign}${h}:${String(min).padStart(2, "0")}:${sec}` : `${sign}${min}:${sec}`;
}

/** A value with its unit, for words and labels: "486 ms", "61.8 %", "3.1 k tokens/s". */
export function withUnit(value: number, scale: Scale): string {
  return scale.unit === "" || scale.clock ? format(value, scale) : `${format(value, scale)} ${scale.unit}`;
}

/** The number that stands for a column's size: the median of the absolute values, so that one outlier does not change the unit. */
export function typical(values: Iterable<number | null | undefined>): number {
  const v = [...values].filter((x): x is number => typeof x === "number" && Number.isFinite(x)).map(Math.abs).filter((x) => x > 0);
  return v.length === 0 ? 0 : median(v);
}

/** The median of numbers; NaN of none. */
export function median(values: number[]): number {
  if (values.length === 0) return NaN;
  const s = [...values].sort((a, b) => a - b);
  const mid = s.length >> 1;
  const hi = s[mid] as number;
  return s.length % 2 === 1 ? hi : ((s[mid - 1] as number) + hi) / 2;
}

/** Whether all numbers are integers (counts), so that decimals would be noise. */
export function allWhole(values: Iterable<number | null | undefined>): boolean {
  for (const v of values) if (typeof v === "number" && !Number.isInteger(v)) return false;
  return true;
}

/** A number of unknown unit with four significant digits, for raw query results. */
export function general(v: number): string {
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "+Inf" : "−Inf";
  const a = Math.abs(v);
  if (a !== 0 && (a < 1e-4 || a >= 1e15)) return v.toExponential(3).replace("-", "−");
  if (Number.isInteger(v)) return grouped(v, 0);
  return grouped(v, a >= 1000 ? 1 : a >= 1 ? 3 : Math.min(8, 3 - Math.floor(Math.log10(a))));
}

/** A number of unknown unit in a short form, for a table's cell: three significant digits, no trailing zeros. */
export function brief(v: number): string {
  if (!Number.isFinite(v) || Math.abs(v) >= 1e15 || (v !== 0 && Math.abs(v) < 1e-4)) return general(v);
  const s = grouped(v, decimalsFor(Math.abs(v)));
  return s.includes(".") ? s.replace(/\.?0+$/, "") : s;
}

/** Writes the raw numbers of one column with the same decimals; sizes that decimals do not suit get general form. */
export function columnOf(values: Iterable<number | null>): (v: number) => string {
  const list = [...values].filter((v): v is number => v !== null && Number.isFinite(v));
  const size = typical(list);
  if (size > 0 && (size < 1e-4 || size >= 1e15)) return general;
  const decimals = allWhole(list) ? 0 : Math.max(size >= 100 ? 1 : size >= 1 ? 2 : 4, decimalsFor(size));
  return (v) => (Number.isFinite(v) ? grouped(v, decimals) : general(v));
}

/** 1 engine, 2 engines. */
export function plural(n: number, one: string, many = one + "s"): string {
  return `${grouped(n, 0)} ${n === 1 ? one : many}`;
}
