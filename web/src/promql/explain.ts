// What a name in a query means: found in the catalog under any spelling, with its trap and its successor.
import type * as api from "../api/types";
import { enclosing, family, lex, metricNames, tokenAt } from "./lex";
import { word, type Word } from "./functions";

export type Explanation =
  | { kind: "metric"; name: string; info: api.MetricInfo }
  | { kind: "recorded"; name: string; info: api.SignalInfo }
  | { kind: "word"; name: string; word: Word }
  | { kind: "own"; name: string; does: string }
  | { kind: "unknown"; name: string };

/** The engine's own spelling of a metric name: sglang_x, ray_sglang_x and ray_serve_sglang_x are sglang:x. */
export function canonical(name: string): string {
  return name.replace(/^(?:ray_(?:serve_)?)?(sglang|vllm)[_:]/, "$1:");
}

/** Series that the recorder itself writes. */
const OWN: Record<string, string> = {
  up: "1 when the last scrape of the target succeeded, 0 when it failed. Nothing at all when the target is gone.",
  scrape_duration_seconds: "How long the scrape took.",
  scrape_samples_scraped: "Samples that the target exposed.",
  scrape_samples_post_metric_relabeling: "Samples that were left after relabelling.",
  scrape_series_added: "Series that the scrape saw for the first time.",
  ALERTS: "1 while an alert is pending or firing, by alertname and alertstate. Written by the rules.",
  ALERTS_FOR_STATE: "Since when an alert is active, in seconds since 1970.",
};

/** Looks a name up. */
export function lookUp(name: string, metrics: readonly api.MetricInfo[], signals: readonly api.SignalInfo[]): Explanation {
  const forms = [name, canonical(name), family(name), family(canonical(name))];
  const own = OWN[name];
  if (own) return { kind: "own", name, does: own };
  for (const f of forms) {
    const info = metrics.find((m) => m.name === f) ?? metrics.find((m) => family(m.name) === f);
    if (info) return { kind: "metric", name, info };
  }
  // engine:ttft:p99_rate5m, fleet:queue_depth
  const recorded = /^(?:engine|fleet):([a-z0-9_]+?)(?:_(?:bucket|count|num|den))?(?::.*)?$/.exec(name);
  const info = recorded && signals.find((s) => s.id === recorded[1]);
  if (info) return { kind: "recorded", name, info };
  return { kind: "unknown", name };
}

/** What to explain: the word under the caret or the function it is in, and every metric that the query reads. */
export function explain(expr: string, caret: number, metrics: readonly api.MetricInfo[], signals: readonly api.SignalInfo[]): Explanation[] {
  const tokens = lex(expr);
  const t = tokenAt(tokens, caret);
  if (t?.kind === "metric") return [lookUp(t.text, metrics, signals)];
  const w = word((t && ["function", "aggregation", "keyword"].includes(t.kind) ? t.text : enclosing(tokens, caret)).toLowerCase());
  const names = metricNames(expr).map((n) => lookUp(n, metrics, signals));
  return w ? [{ kind: "word", name: w.name, word: w }, ...names] : names;
}

/** The unit of a query's numbers, where its shape tells it; "" where it does not. */
export function guessUnit(expr: string, metrics: readonly api.MetricInfo[], signals: readonly api.SignalInfo[]): string {
  const found = metricNames(expr).map((n) => lookUp(n, metrics, signals));
  const functions = lex(expr).filter((t) => t.kind === "function").map((t) => t.text);
  const one = found[0];
  if (!one || found.length > 1 && !functions.includes("histogram_quantile")) return "";
  if (one.kind === "recorded") return /_(bucket|count|num|den)\b/.test(one.name) ? "" : one.info.unit;
  if (one.kind !== "metric") return "";
  if (/[/*]/.test(lex(expr).filter((t) => t.kind === "operator").map((t) => t.text).join(""))) return "";
  if (functions.includes("histogram_quantile")) return one.info.unit;
  if (functions.some((f) => /^(rate|irate)$/.test(f)) && functions.length === 1 && one.info.type === "counter") return one.info.unit ? `${one.info.unit}/s` : "";
  if (functions.length === 0 && !/_(bucket|count)$/.test(one.name)) return one.info.unit;
  return "";
}
