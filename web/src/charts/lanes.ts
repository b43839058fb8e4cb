// When alerts were pending and when they fired, as lanes over time: out of Prometheus's ALERTS series.
import type { RangeResult } from "../api/prom";

export interface Lane {
  name: string;
  /** what tells instances of one alert apart: its engine */
  subject: string;
  severity: string;
  spans: { from: number; to: number; state: "firing" | "pending" }[];
}

/** Lanes of an ALERTS answer, the ones that fired longest first. A point stands for the step that ends with it. */
export function lanes(r: RangeResult): Lane[] {
  const out = new Map<string, Lane>();
  for (const s of r.series) {
    const { __name__: _, alertname = "", alertstate = "", severity = "", ...rest } = s.labels;
    if (alertstate !== "firing" && alertstate !== "pending") continue;
    const key = JSON.stringify([alertname, Object.entries(rest).sort()]);
    const lane = out.get(key) ?? { name: alertname, subject: rest["instance"] ?? rest["model_name"] ?? rest["job"] ?? "", severity, spans: [] };
    out.set(key, lane);
    let from = -1;
    s.values.forEach((v, i) => {
      if (v !== null && from < 0) from = i;
      const ends = v !== null && (s.values[i + 1] ?? null) === null;
      if (!ends) return;
      lane.spans.push({ from: Math.max(r.from, r.from + (from - 1) * r.step), to: r.from + i * r.step, state: alertstate });
      from = -1;
    });
  }
  const fired = (l: Lane) => l.spans.filter((s) => s.state === "firing").reduce((n, s) => n + s.to - s.from, 0);
  for (const l of out.values()) l.spans.sort((a, b) => a.from - b.from);
  return [...out.values()].sort((a, b) => fired(b) - fired(a) || (a.name < b.name ? -1 : 1));
}
