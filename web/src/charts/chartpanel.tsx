// A chart with everything the guide asks of one: title, unit, state, current values, legend, what lies
// under it, the table behind it, and the states of loading and failing.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type * as api from "../api/types";
import { decimalsFor, format } from "../format/number";
import { clock } from "../format/time";
import type { Resource } from "../state/resource";
import { win } from "../state/live";
import { Link } from "../components/link";
import { Badge, ErrorBox, LoadingBar, StaleNote } from "../components/state";
import { Tool, TOOLS } from "../components/icons";
import { DataTable } from "./datatable";
import { chartModel, numberText, valueText, type ChartLine, type ChartModel } from "./model";
import { hover, Plot, shownIndex, Swatch } from "./plot";

export interface ChartPanelProps {
  title: string;
  /** as the catalog writes it, for the frame before data comes */
  unit: string;
  res: Resource<ChartModel>;
  height: number | "fill";
  /** before the unit: "p99, " */
  unitPrefix?: string;
  /** judgement at the right of the title */
  badge?: ComponentChildren;
  /** left of the footer: the worst engine, a note */
  under?: ComponentChildren;
  /** PromQL for the link to Explore */
  query?: string | undefined;
  /** what it is and how it misleads */
  meaning?: string | undefined;
  /** one number in the title row instead of a row of values */
  compact?: boolean;
  /** no row of values: the legend stands elsewhere */
  bare?: boolean;
  warnings?: api.Warning[];
}

export function ChartPanel(p: ChartPanelProps) {
  const [asTable, setAsTable] = useState(false);
  const model = p.res.value ?? frame(p.title, p.unit);
  const failed = p.res.error && !p.res.value;
  const first = model.lines[0];
  return (
    <section class="panel chart" aria-label={p.title} data-state={p.res.value ? model.state : p.res.error ? "error" : "loading"}>
      <header class="panel-h" title={p.meaning}>
        <h2>{p.title}</h2>
        <span class="u">{p.unitPrefix}{model.scale.unit}</span>
        <span class="sp" />
        <Note list={p.warnings ?? []} />
        {p.compact ? p.res.value && first && <CompactValue model={model} line={first} /> : (p.badge ?? <StateBadge model={p.res.value} />)}
      </header>
      <LoadingBar on={p.res.loading} />
      {!p.compact && !p.bare && <Values model={model} known={p.res.value !== undefined} />}
      <div class="chart-body" style={p.height === "fill" ? {} : { flex: "none", height: `${p.height}px` }}>
        {failed && p.res.error ? (
          <ErrorBox error={p.res.error} failingSince={p.res.failingSince} />
        ) : asTable ? (
          <DataTable model={model} />
        ) : (
          <Plot model={model} height={p.height} />
        )}
      </div>
      <footer class="panel-f">
        {p.res.error && p.res.value ? <StaleNote res={p.res} /> : p.under}
        <span class="sp" />
        <button class="quiet" type="button" aria-pressed={asTable} title={asTable ? "show as chart" : "show as table"} onClick={() => setAsTable(!asTable)}>
          <Tool d={asTable ? TOOLS.chart : TOOLS.table} />
          <span class="vh">{asTable ? "show as chart" : "show as table"}</span>
        </button>
        {p.query && <QueryLink expr={p.query} />}
      </footer>
    </section>
  );
}

/** A word that there is something to know about a number; it is read on hover and focus. */
export function Note({ list }: { list: api.Warning[] }) {
  if (list.length === 0) return null;
  const text = list.map((w) => [w.message, w.hint].filter(Boolean).join(" ")).join("\n\n");
  return <span class="note" tabIndex={0} title={text} aria-label={`note: ${text}`}>note</span>;
}

/** The PromQL behind a number, in Explore. */
export function QueryLink({ expr }: { expr: string }) {
  return (
    <Link to="explore" patch={{ expr }} class="quiet" title={`open in Explore:\n${expr}`} label="open the query in Explore">
      <Tool d={TOOLS.prompt} />
    </Link>
  );
}

/** Frame and axes before any data. */
function frame(title: string, unit: string): ChartModel {
  const w = win.value;
  const m = chartModel({ title, unit, from: w.from, to: w.to, step: w.step, lines: [{ name: "", values: [], color: "--s3", now: { value: null, state: "idle" } }] });
  return { ...m, lines: [], idle: [], unknown: [], state: "value" };
}

/** A chart that is no value says so; one that is has no badge of its own, for nothing has judged it. */
export function StateBadge({ model }: { model: ChartModel | undefined }) {
  if (!model || model.state === "value") return null;
  if (model.state === "not_applicable") return null;
  return <Badge level={model.state === "idle" ? "idle" : "unknown"} title={model.reason} />;
}

function CompactValue({ model, line }: { model: ChartModel; line: ChartLine }) {
  const i = shownIndex(model);
  return <NowValue model={model} line={line} index={i} class="v-compact" />;
}

function NowValue({ model, line, index, class: c }: { model: ChartModel; line: ChartLine; index: number; class: string }) {
  // Beside a p99 in seconds a p50 of milliseconds would be 0.1: it gets the decimals of its own size.
  const v = index >= 0 ? line.values[index] : line.now.value;
  const size = typeof v === "number" && !model.scale.clock ? Math.abs(v * model.scale.factor) : 1;
  const own = size < 1 && !Number.isInteger(size) ? Math.min(3, decimalsFor(size)) : 0;
  const fine = { ...model, scale: { ...model.scale, decimals: Math.max(model.scale.decimals, own) } };
  const text = index >= 0 ? valueText(line, index, fine) : numberText(line.now, fine.scale);
  const word = /^[a-z]/.test(text);
  const why = index >= 0 ? undefined : [line.now.reason, line.now.caveat].filter(Boolean).join(" · ") || bounds(line.now, model);
  return (
    <b class={word ? `${c} v-word` : c} title={why}>
      {text}
    </b>
  );
}

/** The bucket that a percentile lies in: the truth is somewhere in it. */
function bounds(n: api.Number, m: ChartModel): string | undefined {
  if (typeof n.lower !== "number") return undefined;
  if (typeof n.upper !== "number") return `at least ${format(n.lower, m.scale)} ${m.scale.unit}: above the histogram's last bound`;
  return `between ${format(n.lower, m.scale)} and ${format(n.upper, m.scale)} ${m.scale.unit}, the bounds of its bucket`;
}

/** Current values, which give way to the values at the cursor; with few lines this is the legend too. */
function Values({ model, known }: { model: ChartModel; known: boolean }) {
  if (!known) return <div class="vals" />;
  const i = shownIndex(model);
  const at = i >= 0 && hover.value !== null ? clock(model.from + i * model.step, model.step < 60_000) : "";
  if (model.state === "not_applicable") {
    return (
      <div class="vals">
        <b class="v v-word">–</b>
        <span class="u at">{model.reason}</span>
      </div>
    );
  }
  const big = model.lines.length <= 2;
  return (
    <div class={big ? "vals" : "vals vals-many"}>
      {model.lines.map((l) => (
        <span class="val" key={l.name}>
          <Swatch color={l.color} dashed={l.dash !== undefined} />
          <span class="u">{l.engine ? <Link to="engines" patch={{ engine: l.engine }}>{l.name}</Link> : l.name}</span>
          {big ? <NowValue model={model} line={l} index={i} class="v" /> : i >= 0 ? <b>{valueText(l, i, model)}</b> : null}
        </span>
      ))}
      {model.rest && (
        <span class="val">
          <i class="sw sw-rest" aria-hidden="true" />
          <span class="u">{model.rest.count} more</span>
        </span>
      )}
      <span class="sp" />
      {big && <span class="u at">{at || caveat(model)}</span>}
    </div>
  );
}

function caveat(m: ChartModel): string {
  if (m.state !== "value") return m.reason;
  return m.lines.map((l) => (l.now.state === "idle" ? l.now.reason : l.now.caveat)).find(Boolean) ?? "";
}
