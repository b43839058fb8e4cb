// A board as the server describes it, for the fleet or narrowed to one engine. Panels load when they come
// into sight.
import { useMemo } from "preact/hooks";
import { queryRange } from "../api/prom";
import type * as api from "../api/types";
import { ChartPanel, Note, QueryLink } from "../charts/chartpanel";
import { fromRanges, fromSignal, numberText, Palette, type ChartLine, type ChartModel, type Threshold } from "../charts/model";
import { useSignalData } from "../charts/signal";
import { Spark, sparkMax } from "../charts/spark";
import { format, grouped } from "../format/number";
import { narrowed } from "../promql/lex";
import { signalInfo } from "../state/catalog";
import { engineList, engineOf } from "../state/fleet";
import { signalColor } from "../state/judge";
import { recordingMarks, win } from "../state/live";
import { useMapped, useResource, type Resource } from "../state/resource";
import { useSeen } from "../state/visible";
import { backendName } from "./enginetable";
import { Grid } from "./grid";
import { EngineLink } from "./link";
import { Badge, Empty, ErrorBox, LoadingBar, StaleNote } from "./state";

export interface BoardProps {
  board: api.Board;
  /** the one engine, or nothing for the fleet */
  engine?: api.Engine | undefined;
}

export function BoardView({ board, engine }: BoardProps) {
  const palette = useMemo(() => new Palette(), [board.id]);
  if (board.sections.length === 0) return <Empty what="This board has no panels." />;
  return (
    <div class="board">
      {board.sections.map((s) => (
        <section key={s.title} aria-label={s.title}>
          <h2 class="section-title">{s.title}</h2>
          <Grid count={s.panels.length}>
            {s.panels.map((p) => (
              <BoardPanel key={p.id} panel={p} engine={engine} palette={palette} />
            ))}
          </Grid>
        </section>
      ))}
    </div>
  );
}

interface PanelProps {
  panel: api.Panel;
  engine: api.Engine | undefined;
  palette: Palette;
}

function BoardPanel(p: PanelProps) {
  const { ref, seen, visible } = useSeen<HTMLDivElement>();
  const wide = p.panel.view === "lines" || p.panel.view === "table" ? "" : "narrow";
  return (
    <div class={`board-panel ${wide}`} ref={ref}>
      {p.panel.problem ? <Problem panel={p.panel} /> : foreign(p.panel, p.engine) ? <NotHere panel={p.panel} /> : !seen ? <Frame panel={p.panel} /> : p.panel.signal ? <OfSignal {...p} hold={!visible} /> : <OfTargets {...p} hold={!visible} />}
    </div>
  );
}

function Frame({ panel }: { panel: api.Panel }) {
  return (
    <section class="panel chart" aria-label={panel.title}>
      <header class="panel-h">
        <h2>{panel.title}</h2>
      </header>
    </section>
  );
}

/** Whether a panel shows nothing of an engine of that kind. */
const foreign = (p: api.Panel, e: api.Engine | undefined) => e !== undefined && e.backend !== "" && p.backends.length > 0 && !p.backends.includes(e.backend);

function NotHere({ panel }: { panel: api.Panel }) {
  return (
    <section class="panel chart" aria-label={panel.title} data-state="not_applicable">
      <header class="panel-h" title={panel.meaning}>
        <h2>{panel.title}</h2>
      </header>
      <div class="vals">
        <b class="v v-word">–</b>
        <span class="u">of {panel.backends.map(backendName).join(", ")} only</span>
      </div>
    </section>
  );
}

function Problem({ panel }: { panel: api.Panel }) {
  return (
    <section class="panel chart" aria-label={panel.title}>
      <header class="panel-h">
        <h2>{panel.title}</h2>
        <span class="sp" />
        <Badge level="unknown">unknown</Badge>
      </header>
      <div class="chart-body">
        <Empty what={panel.problem} />
      </div>
    </section>
  );
}

function OfSignal({ panel, engine, palette, hold }: PanelProps & { hold: boolean }) {
  const by = (engine ? "engine" : panel.by || "fleet") as "fleet" | "engine" | "role" | "model";
  const res = useSignalData(panel.signal ?? null, win.value, { by, engine: engine?.id, quantiles: panel.quantiles }, hold);
  const info = signalInfo(panel.signal ?? "");
  const marks = recordingMarks.value;
  const fleet = engineList.value;
  const model = useMapped(res, (e) =>
    fromSignal(engine ? ofOne(e.data, engine) : e.data, {
      title: panel.title, unit: panel.unit || e.data.unit, higher: info?.higher_is_better === true, palette, marks,
      single: signalColor(panel.signal ?? ""), min: panel.min, max: panel.max, thresholds: thresholds(panel),
      engineOf: by === "engine" && !engine ? engineOf : undefined,
    }), [marks, info, engine?.id, by === "engine" && !engine && namesOf(fleet)],
  );
  return <Face panel={panel} model={model} query={res.value?.data.query || info?.query} warnings={res.value?.warnings ?? []} />;
}

/** What of the fleet the charts show: the names. */
const namesOf = (fleet: api.Engine[] | undefined) => (fleet ?? []).map((e) => e.instance + e.name).join();

/** One engine's lines need not say whose they are: p50, p99. */
export function ofOne(d: api.SignalData, engine: api.Engine): api.SignalData {
  return { ...d, lines: d.lines.map((l) => ({ ...l, name: l.quantile === undefined ? engine.name : `p${+(l.quantile * 100).toPrecision(4)}` })) };
}

function OfTargets({ panel, engine, palette, hold }: PanelProps & { hold: boolean }) {
  const w = win.value;
  const exprs = panel.targets.map((t) => (engine ? narrowed(t.expr, "instance", engine.instance) : t.expr));
  const res = useResource(exprs.length ? `targets ${exprs.join("\n")}` : null, `${w.from} ${w.to} ${w.step}`, (abort) =>
    Promise.all(exprs.map((e) => queryRange(e, w, abort))),
    hold,
  );
  const marks = recordingMarks.value;
  const fleet = engineList.value;
  const model = useMapped(res, (results) =>
    fromRanges(panel.title, panel.unit, results.map((result, i) => ({ result, legend: panel.targets[i]?.legend ?? "" })), {
      palette, marks, min: panel.min, max: panel.max, thresholds: thresholds(panel), engineOf,
    }), [marks, namesOf(fleet)],
  );
  const warnings = (res.value ?? []).flatMap((r) => r.warnings).map((message): api.Warning => ({ code: "", message }));
  return <Face panel={panel} model={model} query={exprs[0]} warnings={warnings} />;
}

function thresholds(panel: api.Panel): Threshold[] {
  return (panel.thresholds ?? []).flatMap((t) => (t.level === "crit" || t.level === "warn" ? [{ value: t.value, label: t.level, level: t.level }] : []));
}

interface FaceProps {
  panel: api.Panel;
  model: Resource<ChartModel>;
  query: string | undefined;
  warnings: api.Warning[];
}

function Face({ panel, model, query, warnings }: FaceProps) {
  if (panel.view === "stat" || panel.view === "gauge") return <NumberPanel panel={panel} model={model} query={query} warnings={warnings} />;
  if (panel.view === "table") return <TablePanel panel={panel} model={model} query={query} warnings={warnings} />;
  return <ChartPanel title={panel.title} unit={panel.unit} res={model} height="fill" query={query} meaning={panel.meaning} warnings={warnings} />;
}

/** One number, large, with its recent past; a gauge also with how full it is. */
function NumberPanel({ panel, model, query, warnings }: FaceProps) {
  const m = model.value;
  const line = m?.lines[0];
  return (
    <section class="panel chart stat" aria-label={panel.title} data-state={m?.state ?? (model.error ? "error" : "loading")}>
      <header class="panel-h" title={panel.meaning}>
        <h2>{panel.title}</h2>
        <span class="u">{m?.scale.unit}</span>
        <span class="sp" />
        <Note list={warnings} />
        {m && m.state !== "value" && <Badge level={m.state === "idle" ? "idle" : "unknown"} title={m.reason} />}
      </header>
      <LoadingBar on={model.loading} />
      {model.error && !m && <ErrorBox error={model.error} failingSince={model.failingSince} />}
      {m && (
        <div class="stat-body">
          <b class={/^[a-z]/.test(nowText(m, line)) ? "v v-word" : "v"}>{nowText(m, line)}</b>
          {line && <Spark values={line.values} state={m.state} max={sparkMax([{ values: line.values, state: m.state }])} color={line.color} width={110} height={26} />}
        </div>
      )}
      {m && panel.view === "gauge" && line && <Gauge model={m} line={line} panel={panel} />}
      <footer class="panel-f">
        <StaleNote res={model} />
        <span class="mut">{m?.reason || line?.now.caveat}</span>
        <span class="sp" />
        {query && <QueryLink expr={query} />}
      </footer>
    </section>
  );
}

function nowText(m: ChartModel, line: ChartLine | undefined): string {
  return line ? numberText(line.now, m.scale) : m.state === "idle" ? "idle" : "unknown";
}

/** How full, between the panel's bounds; over the bound the bar is full and the number says by how much. */
function Gauge({ model, line, panel }: { model: ChartModel; line: ChartLine; panel: api.Panel }) {
  const min = panel.min ?? 0;
  const max = panel.max ?? model.axis.max;
  const v = line.now.value;
  const share = v === null || max <= min ? null : Math.min(1, Math.max(0, (v - min) / (max - min)));
  const level = judged(v, panel.thresholds);
  return (
    <div class="gauge" role="img" aria-label={`${panel.title}: ${share === null ? "unknown" : `${grouped(share * 100, 0)} % of ${format(max, model.scale)}`}`}>
      {share === null ? <i class="gauge-unknown" /> : <i class={`gauge-fill fill-${level}`} style={{ width: `${share * 100}%` }} />}
    </div>
  );
}

function judged(v: number | null, list: api.Threshold[] | undefined): "ok" | "warn" | "crit" {
  const hit = (list ?? []).filter((t) => v !== null && (t.below ? v <= t.value : v >= t.value)).map((t) => t.level);
  return hit.includes("crit") ? "crit" : hit.includes("warn") ? "warn" : "ok";
}

/** The newest number of each line, worst first as they come. */
function TablePanel({ panel, model, query, warnings }: FaceProps) {
  const m = model.value;
  return (
    <section class="panel chart" aria-label={panel.title} data-state={m?.state ?? (model.error ? "error" : "loading")}>
      <header class="panel-h" title={panel.meaning}>
        <h2>{panel.title}</h2>
        <span class="u">{m?.scale.unit}</span>
        <span class="sp" />
        <Note list={warnings} />
      </header>
      <LoadingBar on={model.loading} />
      <div class="chart-body scroll">
        {model.error && !m && <ErrorBox error={model.error} failingSince={model.failingSince} />}
        {m && m.lines.length === 0 && <Empty what={m.reason || "no series in this range"} />}
        {m && (
          <table class="rows">
            <tbody>
              {m.lines.map((l) => (
                <tr key={l.name}>
                  <td>{l.engine ? <EngineLink id={l.engine} name={l.name} /> : l.name}</td>
                  <td class="n">
                    <span class="cell">
                      <Spark values={l.values} state={l.now.state} max={m.axis.max} color={l.color} width={70} />
                      <span class={l.now.state === "value" ? "num" : "num mut"} title={l.now.reason}>{numberText(l.now, m.scale)}</span>
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      <footer class="panel-f">
        <StaleNote res={model} />
        <span class="sp" />
        {query && <QueryLink expr={query} />}
      </footer>
    </section>
  );
}
