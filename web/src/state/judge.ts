// Judgements that follow from what the server said: which alerts concern a signal, which value is an
// outlier of its role. Pure.
import type * as api from "../api/types";
import { median } from "../format/number";
import { family, metricNames } from "../promql/lex";

const RANK: Record<string, number> = { crit: 3, warn: 2, unknown: 1 };

/** The worst alert that fires and reads the same metrics as a signal; undefined when none does. */
export function alertOn(info: api.SignalInfo | undefined, alerts: readonly api.Alert[]): api.Alert | undefined {
  if (!info) return undefined;
  const mine = new Set([...metricNames(info.query), ...metricNames(info.recorded)].map(subject));
  return alerts
    .filter((a) => (a.state === "firing" || a.state === "cannot_be_judged") && metricNames(a.expr).some((n) => mine.has(subject(n))))
    .sort((a, b) => weight(b) - weight(a))[0];
}

/** What a series is about: the signal of a recorded one (engine:ttft:p99_rate5m), else its metric family. */
function subject(name: string): string {
  const recorded = /^(?:engine|fleet):([a-z0-9_]+?)(?:_(?:bucket|count|num|den))?(?::.*)?$/.exec(name);
  return recorded ? `signal ${recorded[1]}` : family(name);
}

const weight = (a: api.Alert) => (a.state === "firing" ? (RANK[a.level] ?? 2) : 1);

/** A name for an alert in the URL: its rule and what tells its instances apart. */
export function alertKey(a: Pick<api.Alert, "name" | "labels">): string {
  const own = Object.entries(a.labels).filter(([k]) => k !== "alertname" && k !== "severity");
  own.sort(([x], [y]) => (x < y ? -1 : 1));
  return [a.name, ...own.map(([k, v]) => `${k}=${v}`)].join("|");
}

interface Spread {
  mid: number;
  /** median distance from the median */
  spread: number;
}

function spreadOf(values: number[]): Spread {
  const mid = median(values);
  return { mid, spread: median(values.map((p) => Math.abs(p - mid))) };
}

/**
 * Whether a value is far on the bad side of its peers' (same role and backend): at least half as much
 * again as their median, and beyond four times their median deviation. Needs three peers.
 */
export function isOutlier(value: number, peers: number[], higherIsBetter: boolean): boolean {
  const { mid, spread } = spreadOf(peers);
  return peers.length >= 3 && isFar(value, mid, spread, higherIsBetter);
}

function isFar(value: number, mid: number, spread: number, higherIsBetter: boolean): boolean {
  const bad = higherIsBetter ? mid - value : value - mid;
  const ratio = higherIsBetter ? (value > 0 ? mid / value : Infinity) : mid > 0 ? value / mid : Infinity;
  return bad > 0 && ratio >= 1.5 && bad > 4 * spread;
}

/** In a larger group one engine hardly moves the median: the group is measured once, itself included. */
const LARGE = 16;

/** Engines whose number in a column is an outlier of their role, by id. */
export function outliers(engines: readonly api.Engine[], column: api.Column): Set<string> {
  const groups = new Map<string, { id: string; v: number }[]>();
  for (const e of engines) {
    const n = e.signals[column.key];
    if (n?.state !== "value" || n.value === null) continue;
    const key = `${e.role} ${e.backend}`;
    const group = groups.get(key);
    if (group) group.push({ id: e.id, v: n.value });
    else groups.set(key, [{ id: e.id, v: n.value }]);
  }
  const out = new Set<string>();
  for (const group of groups.values()) {
    const all = group.map((g) => g.v);
    const sum = group.length > LARGE ? spreadOf(all) : undefined;
    for (const g of group) {
      // Three requests more in a queue are no sign of anything, whatever the ratio.
      const peers = sum ? all : group.filter((p) => p.id !== g.id).map((p) => p.v);
      const { mid, spread } = sum ?? spreadOf(peers);
      if (column.unit === "requests" && Math.abs(g.v - mid) < 5) continue;
      if (peers.length >= 3 && isFar(g.v, mid, spread, column.higher_is_better)) out.add(g.id);
    }
  }
  return out;
}

/** The version that most engines of a backend run; "" when there is no majority. */
export function usualVersion(engines: readonly api.Engine[], backend: string): string {
  const count = new Map<string, number>();
  for (const e of engines) if (e.backend === backend && e.version) count.set(e.version, (count.get(e.version) ?? 0) + 1);
  const total = [...count.values()].reduce((a, b) => a + b, 0);
  for (const [version, n] of count) if (n * 2 > total && total > 2) return version;
  return "";
}

const COLORS: Record<string, string> = {
  ttft: "--s2", itl: "--s2", e2e: "--s2", queue_time: "--s2", throughput: "--s3", cache_hit_rate: "--s3", queue_depth: "--s1",
  running: "--s5", kv_usage: "--s6", retractions: "--s8", aborts: "--s8", request_rate: "--s1", kv_transfer_speed: "--s4",
};

/** The colour of a signal that stands alone: one per signal, the same on every page. */
export function signalColor(id: string): string {
  return COLORS[id.replace(/:.*/, "")] ?? "--s3";
}
