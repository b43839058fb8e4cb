// Any question in PromQL, answered as a chart or a table, with what the names in it mean.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, fetchJSON, url } from "../api/client";
import { queryInstant, queryRange, seriesName, seriesNames, type InstantResult, type RangeResult, type Sample, type Series } from "../api/prom";
import { ChartPanel } from "../charts/chartpanel";
import { fromRanges, type ChartModel } from "../charts/model";
import { Swatch } from "../charts/plot";
import { Editor } from "../components/editor";
import { Drawer, Popover } from "../components/popover";
import { ErrorBox, LoadingBar, StaleNote } from "../components/state";
import { StateIcon, Tool, TOOLS } from "../components/icons";
import { Table, type Column } from "../components/table";
import { TopBar } from "../components/topbar";
import { columnOf, plural } from "../format/number";
import { dayClock, duration, parseDuration, durationCode } from "../format/time";
import { errorPlace, unbalanced } from "../promql/lex";
import { explain, guessUnit } from "../promql/explain";
import { metrics, signals } from "../state/catalog";
import { useKeys } from "../state/keys";
import { now, recordingMarks, windowFor } from "../state/live";
import { useMapped, useResource, type Resource } from "../state/resource";
import { change, view } from "../state/view";
import { Explanations } from "./explanations";

const HISTORY = "rollscope.history";
const EXAMPLES = ["ttft", "itl", "throughput", "queue_depth", "kv_usage"];

export function Explore() {
  const v = view.value;
  const draft = useSignal(v.expr);
  const caret = useSignal(v.expr.length);
  const look = useSignal("");
  const narrow = useSignal(false);
  const past = useSignal(readHistory());
  // The back button and links bring another query.
  useEffect(() => {
    draft.value = v.expr;
    caret.value = v.expr.length;
  }, [v.expr]);

  const w0 = windowFor(500);
  const w = v.step > 0 ? { ...w0, step: Math.max(v.step * 1000, Math.ceil((w0.to - w0.from) / 11_000)) } : w0;
  const mode = v.instant ? "instant" : "range";
  const local = v.expr ? unbalanced(v.expr) : null;
  const res = useResource<RangeResult | InstantResult>(
    v.expr && !local ? `${mode} ${v.expr}` : null,
    v.instant ? `${w.to}` : `${w.from} ${w.to} ${w.step}`,
    (abort) => (v.instant ? queryInstant(v.expr, w.to, abort) : queryRange(v.expr, w, abort)),
  );
  const place = local ?? (res.error ? errorPlace(res.error.message, v.expr) : null);

  const run = (expr = draft.value) => {
    const text = expr.trim();
    past.value = remember(text, past.value);
    change({ expr: text }, text === v.expr ? "replace" : "push");
  };
  useKeys({
    i: () => document.querySelector<HTMLElement>(".editor-text")?.focus(),
    x: () => change({ show: v.show === "chart" ? "table" : "chart" }, "replace"),
  });
  const found = explain(look.value || draft.value, look.value ? look.value.length : caret.value, metrics.value.value ?? [], signals.value.value ?? []);
  const side = <Explanations list={found} onUse={(text) => run(text)} text={draft.value} />;
  const r = res.value;
  return (
    <>
      <TopBar title="Explore" sub={r ? summary(r) : ""} />
      <main class="main page-explore">
        <div class="explore-left">
          <section class="panel query" aria-label="query">
            <Editor
              text={draft.value}
              onText={(t) => (draft.value = t)}
              onCaret={(c) => (caret.value = c)}
              onRun={() => run()}
              onLook={(name) => (look.value = name)}
              error={place && draft.value === v.expr ? place : unbalancedNow(draft.value)}
            />
            <div class="query-bar">
              <button type="button" class="btn primary" onClick={() => run()}>Run <kbd>Enter</kbd></button>
              <Choice label="answer" value={v.show} options={[["chart", "Chart"], ["table", "Table"]]} onPick={(show) => change({ show: show as "chart" | "table", ...(show === "chart" ? { instant: false } : {}) })} />
              <Choice label="evaluation" value={mode} options={[["range", "Range"], ["instant", "Instant"]]} onPick={(m) => change({ instant: m === "instant", ...(m === "instant" ? { show: "table" } : {}) })} />
              {!v.instant && <StepField auto={w0.step} />}
              <span class="sp" />
              <FormatButton text={draft.value} onText={(t) => (draft.value = t)} />
              <HistoryButton past={past.value} onPick={(e) => run(e)} />
              <button type="button" class="btn only-narrow" onClick={() => (narrow.value = true)}>Explain</button>
            </div>
            <LoadingBar on={res.loading} />
            {place && draft.value === v.expr && (
              <p class="query-error" role="alert"><StateIcon level="crit" /> {place.message}</p>
            )}
            {res.error && !place && <ErrorBox error={res.error} failingSince={0} />}
            {r && <Notes warnings={r.warnings} infos={r.infos} />}
            {res.error && r && <StaleNote res={res} />}
          </section>
          {!v.expr && <Start onPick={(e) => run(e)} />}
          {r && <Answer result={r} show={v.show} error={res.error} loading={res.loading} at={res.at} />}
        </div>
        <aside class="panel details scroll" aria-label="explanation">{side}</aside>
        {narrow.value && <Drawer title="What it means" label="explanation" onClose={() => (narrow.value = false)}>{side}</Drawer>}
      </main>
    </>
  );
}

function summary(r: RangeResult | InstantResult): string {
  return r.kind === "range" ? `${plural(r.series.length, "series", "series")} · a point every ${duration(r.step)}` : plural(r.samples.length, "result");
}

const unbalancedNow = (text: string) => {
  const p = unbalanced(text);
  // While typing, what is not closed yet is no error.
  return p && /closes nothing|no meaning/.test(p.message) ? p : null;
};

function readHistory(): string[] {
  try {
    const v: unknown = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(v) ? v.filter((x): x is string => typeof x === "string") : [];
  } catch {
    return [];
  }
}

function remember(expr: string, past: string[]): string[] {
  if (!expr) return past;
  const next = [expr, ...past.filter((e) => e !== expr)].slice(0, 50);
  try {
    localStorage.setItem(HISTORY, JSON.stringify(next));
  } catch {
    // Without storage the history lasts as long as the page.
  }
  return next;
}

function Choice({ label, value, options, onPick }: { label: string; value: string; options: [string, string][]; onPick: (v: string) => void }) {
  return (
    <span class="choice" role="radiogroup" aria-label={label}>
      {options.map(([key, name]) => (
        <button type="button" key={key} role="radio" aria-checked={value === key} class={value === key ? "on" : ""} onClick={() => onPick(key)}>
          {name}
        </button>
      ))}
    </span>
  );
}

function StepField({ auto }: { auto: number }) {
  const v = view.value;
  const set = (text: string) => {
    const ms = text.trim() === "" ? 0 : parseDuration(/^\d+$/.test(text.trim()) ? `${text.trim()}s` : text);
    if (ms !== null) change({ step: Math.round(ms / 1000) }, "replace");
  };
  return (
    <label class="step">
      <span class="mut">step</span>
      <input type="text" size={6} spellcheck={false} autocomplete="off" placeholder={durationCode(auto)} value={v.step ? durationCode(v.step * 1000) : ""} onChange={(e) => set(e.currentTarget.value)} />
    </label>
  );
}

function FormatButton({ text, onText }: { text: string; onText: (t: string) => void }) {
  const failed = useSignal("");
  const go = async () => {
    try {
      const { body } = await fetchJSON(url("/api/v1/format_query", { query: text }));
      const b = body as { status?: string; data?: string; error?: string };
      failed.value = b.status === "success" ? "" : (b.error ?? "cannot be formatted");
      if (b.status === "success" && b.data) onText(b.data);
    } catch (err) {
      failed.value = err instanceof Failure ? err.message : String(err);
    }
  };
  return (
    <button type="button" class="btn" disabled={!text.trim()} title={failed.value || "lay the query out"} onClick={() => void go()}>
      Format
    </button>
  );
}

function HistoryButton({ past, onPick }: { past: string[]; onPick: (expr: string) => void }) {
  const shown = useSignal(false);
  return (
    <span class="anchor">
      <button type="button" class="btn" aria-expanded={shown.value} disabled={past.length === 0} onClick={() => (shown.value = !shown.value)}>History</button>
      {shown.value && (
        <Popover label="queries run before" class="pop-history" onClose={() => (shown.value = false)}>
          <ul class="plain scroll">
            {past.map((e) => (
              <li key={e}>
                <button type="button" class="history-item mono" onClick={() => { shown.value = false; onPick(e); }}>{e}</button>
              </li>
            ))}
          </ul>
        </Popover>
      )}
    </span>
  );
}

/** What the server said about the query: a successor's name, a rate over a gauge. */
function Notes({ warnings, infos }: { warnings: string[]; infos: string[] }) {
  if (warnings.length + infos.length === 0) return null;
  return (
    <ul class="warnings">
      {warnings.map((w) => <li key={w}><StateIcon level="warn" /><span>{w}</span></li>)}
      {infos.map((w) => <li key={w} class="info"><StateIcon level="idle" /><span>{w}</span></li>)}
    </ul>
  );
}

function Answer({ result: r, show, error, loading, at }: { result: RangeResult | InstantResult; show: "chart" | "table"; error: Failure | undefined; loading: boolean; at: number }) {
  const expr = view.value.expr;
  const unit = guessUnit(expr, metrics.value.value ?? [], signals.value.value ?? []);
  const empty = r.kind === "range" ? r.series.length === 0 : r.samples.length === 0;
  if (empty) {
    return (
      <section class="panel">
        <div class="empty">
          <p>The query is right and gives no series in this range. Either nothing of that name was recorded then, or nothing fits the labels; a percentile or a ratio also gives nothing while there are no events.</p>
        </div>
      </section>
    );
  }
  if (r.kind === "instant") return <InstantTable result={r} />;
  return <RangeAnswer res={{ value: r, at, failingSince: 0, loading, ...(error ? { error } : {}) }} result={r} unit={unit} show={show} />;
}

function RangeAnswer({ res, result, unit, show }: { res: Resource<RangeResult>; result: RangeResult; unit: string; show: "chart" | "table" }) {
  const marks = recordingMarks.value;
  const model = useMapped(res, (x) => fromRanges("Result", unit, [{ result: x, legend: "" }], { marks }), [marks, unit]);
  return (
    <>
      {show === "chart" && (
        <div class="explore-chart">
          <ChartPanel title="Result" unit={unit} res={model} height="fill" bare />
        </div>
      )}
      {model.value && <RangeTable result={result} model={model.value} tall={show === "table"} />}
    </>
  );
}

interface RangeRow {
  series: Series;
  name: string;
  color: { color: string; dash?: number[] } | undefined;
  last: number | null;
  min: number | null;
  max: number | null;
  avg: number | null;
}

/** Least, most, mean and newest value of each series. */
export function rangeRow(series: Series, name: string, color: RangeRow["color"]): RangeRow {
  const v = series.values.filter((x): x is number => x !== null);
  const some = v.length > 0;
  return {
    series,
    name,
    color,
    last: series.values.at(-1) ?? null,
    min: some ? v.reduce((a, b) => Math.min(a, b)) : null,
    max: some ? v.reduce((a, b) => Math.max(a, b)) : null,
    avg: some ? v.reduce((a, b) => a + b, 0) / v.length : null,
  };
}

function RangeTable({ result, model, tall }: { result: RangeResult; model: ChartModel; tall: boolean }) {
  const sort = useSignal("");
  const names = seriesNames(result.series.map((s) => s.labels));
  const drawn = new Map(tall ? [] : model.lines.map((l) => [l.name, l]));
  const rows = result.series.map((s, i) => rangeRow(s, names[i] ?? "", drawn.get(names[i] ?? "")));
  const write = columnOf(rows.flatMap((r) => [r.last, r.max]));
  const common = Object.entries(result.series[0]?.labels ?? {}).filter(([k, v]) => rows.length > 1 && result.series.every((s) => s.labels[k] === v));
  const num = (key: "last" | "min" | "avg" | "max", title: string): Column<RangeRow> => ({
    key, title, right: true, largeFirst: true, value: (r) => r[key],
    cell: (r) => (r[key] === null ? <span class="mut">no data</span> : <span title={String(r[key])}>{write(r[key])}</span>),
  });
  const columns: Column<RangeRow>[] = [
    { key: "name", title: "Series", class: "mono c-series", cell: (r) => <span title={seriesName(r.series.labels)}>{r.color && <Swatch color={r.color.color} dashed={r.color.dash !== undefined} />} {r.name}</span>, value: (r) => r.name },
    num("last", "last"), num("min", "min"), num("avg", "avg"), num("max", "max"),
  ];
  return (
    <section class={tall ? "panel series tall" : "panel series"} aria-label="series">
      <header class="panel-h"><h2>Series</h2><span class="u">{plural(rows.length, "series", "series")}{common.length ? ` · all with ${common.map(([k, v]) => `${k}="${v}"`).join(", ")}` : ""}</span></header>
      <Table label="series" rows={rows} columns={columns} rowKey={(r) => r.name} sort={sort.value} onSort={(s) => (sort.value = s)} primary />
    </section>
  );
}

function InstantTable({ result: r }: { result: InstantResult }) {
  const sort = useSignal("");
  const names = [...new Set(r.samples.flatMap((s) => Object.keys(s.labels)))].filter((k) => k !== "__name__");
  const withName = r.samples.some((s) => s.labels["__name__"]);
  // A label that is the same everywhere says nothing; it is written once, above.
  const same = r.samples.length > 1 ? names.filter((k) => r.samples.every((s) => s.labels[k] === r.samples[0]?.labels[k])) : [];
  const write = columnOf(r.samples.map((s) => s.value));
  const columns: Column<Sample>[] = [];
  if (withName) columns.push({ key: "__name__", title: "Name", class: "mono", cell: (s) => s.labels["__name__"], value: (s) => s.labels["__name__"] ?? "" });
  for (const k of names.filter((n) => !same.includes(n))) columns.push({ key: k, title: k, class: "mono", cell: (s) => s.labels[k], value: (s) => s.labels[k] ?? "" });
  if (r.type === "matrix") columns.push({ key: "@at", title: "Time, UTC", cell: (s) => dayClock(s.at, now(), true), value: (s) => s.at });
  columns.push({ key: "@value", title: "Value", right: true, largeFirst: true, cell: (s) => (r.type === "string" ? s.text : <span title={s.text}>{write(s.value)}</span>), value: (s) => (Number.isNaN(s.value) ? null : s.value) });
  const copy = () => navigator.clipboard?.writeText(tsv(r, names));
  return (
    <section class="panel series tall" aria-label="results">
      <header class="panel-h">
        <h2>At {dayClock(r.samples[0]?.at ?? 0, now(), true)} UTC</h2>
        <span class="u">{plural(r.samples.length, "result")}{same.length ? ` · all with ${same.map((k) => `${k}="${r.samples[0]?.labels[k] ?? ""}"`).join(", ")}` : ""}</span>
        <span class="sp" />
        <button type="button" class="quiet" title="copy as tab-separated values" onClick={() => void copy()}><Tool d={TOOLS.copy} /> copy</button>
      </header>
      <Table label="results" rows={r.samples} columns={columns} rowKey={(s) => `${seriesName(s.labels)}@${s.at}`} sort={sort.value} onSort={(s) => (sort.value = s)} primary />
    </section>
  );
}

function tsv(r: InstantResult, names: string[]): string {
  const cols = ["__name__", ...names];
  return [[...cols, "value"].join("\t"), ...r.samples.map((s) => [...cols.map((c) => s.labels[c] ?? ""), s.text].join("\t"))].join("\n");
}

function Start({ onPick }: { onPick: (expr: string) => void }) {
  const list = (signals.value.value ?? []).filter((s) => EXAMPLES.includes(s.id));
  return (
    <section class="panel">
      <div class="empty">
        <p>Ask in PromQL. Names are completed from what is stored and from the catalog; any spelling of a metric is understood (<code>sglang:x</code>, <code>sglang_x</code>). Or start from a signal:</p>
        <ul class="plain starts">
          {list.map((s) => (
            <li key={s.id}>
              <button type="button" class="chip" onClick={() => onPick(s.query)}>{s.title}</button>
              <span class="sec">{s.meaning}</span>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
