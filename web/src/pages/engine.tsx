// One engine: what it is, what is wrong with it, its signals beside the median of its role, or a board.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { apiTime, enginePath, get } from "../api/client";
import type * as api from "../api/types";
import { ChartPanel } from "../charts/chartpanel";
import { fromSignal, medianLine, type ChartLine, type ChartModel, type Span } from "../charts/model";
import { useSignalData } from "../charts/signal";
import { AlertTable } from "../components/alerttable";
import { BoardView, ofOne } from "../components/boardview";
import { versionText } from "../components/enginetable";
import { Link } from "../components/link";
import { filterOf } from "../state/filter";
import { tag } from "../state/joins";
import { Grid } from "../components/grid";
import { Drawer } from "../components/popover";
import { Badge, ErrorBox, Warnings } from "../components/state";
import { duration, parseApiTime } from "../format/time";
import { alertKey, signalColor } from "../state/judge";
import { now, recordingMarks, win } from "../state/live";
import { useMapped, useResource } from "../state/resource";
import { useSeen } from "../state/visible";
import { change, open, view } from "../state/view";

export interface EngineDetailsProps {
  id: string;
  fleet: api.Engine[];
  board: api.Board | undefined;
  picker: ComponentChildren;
}

export function EngineDetails({ id, fleet, board, picker }: EngineDetailsProps) {
  const w = win.value;
  const details = useSignal(false);
  const res = useResource(`engine ${id}`, `${w.from} ${w.to}`, (abort) =>
    get<api.EngineDetail>(enginePath(id), { from: apiTime(w.from), to: apiTime(w.to) }, abort),
  );
  const targets = useResource("targets", "", (abort) => get<api.Targets>("/targets", {}, abort));
  const detail = res.value?.data;
  const e = detail?.engine ?? fleet.find((x) => x.id === id);
  if (!e) {
    return res.error ? <section class="panel"><ErrorBox error={res.error} failingSince={res.failingSince} /></section> : null;
  }
  const target = targets.value?.data.active.find((t) => t.job === e.job && t.instance === e.instance) ?? targets.value?.data.active.find((t) => t.instance === e.instance);
  const facts = <Facts engine={e} target={target} alerts={detail?.alerts ?? []} warnings={(res.value?.warnings ?? []).filter((x) => x.where?.includes(e.instance))} />;
  const peers = fleet.filter((x) => x.id !== id && x.role === e.role && x.backend === e.backend);
  return (
    <>
      <section class="panel strip engine-strip">
        <b>{e.name}</b>
        <Badge level={e.level}>{e.level === "crit" ? "critical" : e.level}</Badge>
        <span class="sec why">{e.why}</span>
        <span class="labels">
          {[["role", e.role], ["version", versionText(e)], ["dp", e.dp_ranks.length > 1 ? `${e.dp_ranks.length} ranks` : ""], ["model", e.model], ["seen", e.view === "router" ? "through the router" : ""]]
            .filter(([, value]) => value)
            .map(([key, value]) => (
              <span key={key}><span class="mut">{key}</span> {value}</span>
            ))}
        </span>
        <span class="sp" />
        <Link to="requests" patch={{ filter: filterOf({ engine: e.instance }) }} class="btn" title="its requests in this range, slowest first">Requests <kbd>r</kbd></Link>
        <Link to="logs" patch={{ engine: e.instance }} class="btn" title="its log lines in this range">Logs <kbd>l</kbd></Link>
        <Link to="traces" patch={{ filter: tag("engine", e.instance) }} class="btn" title="traces that it took part in">Traces <kbd>t</kbd></Link>
        {!board && peers.length > 1 && (
          <>
            <span class="leg" aria-hidden="true">
              <span><i class="sw-line" />{e.name}</span>
              {view.value.peers && <span><i class="sw-line sw-median" />median of {peers.length} other {e.role}</span>}
            </span>
            <button type="button" class={view.value.peers ? "btn on" : "btn"} aria-pressed={view.value.peers} onClick={() => change({ peers: !view.value.peers }, "replace")}>
              vs role median
            </button>
          </>
        )}
        {picker}
        <button type="button" class="btn only-narrow" onClick={() => (details.value = true)}>Details</button>
      </section>
      <div class="engine-body">
        <div class="engine-main">
          {board ? <BoardView board={board} engine={e} /> : <Signals engine={e} infos={detail?.signals ?? []} peers={peers} />}
        </div>
        <aside class="panel details scroll" aria-label={`details of ${e.name}`}>{facts}</aside>
      </div>
      {details.value && (
        <Drawer title={e.name} label={`details of ${e.name}`} onClose={() => (details.value = false)}>
          {facts}
        </Drawer>
      )}
    </>
  );
}

function Signals({ engine, infos, peers }: { engine: api.Engine; infos: api.SignalInfo[]; peers: api.Engine[] }) {
  return (
    <Grid count={infos.length}>
      {infos.map((s) => (
        <SignalOfEngine key={s.id} info={s} engine={engine} peers={peers} />
      ))}
    </Grid>
  );
}

function SignalOfEngine({ info, engine, peers }: { info: api.SignalInfo; engine: api.Engine; peers: api.Engine[] }) {
  const { ref, seen, visible } = useSeen<HTMLDivElement>();
  const compare = view.value.peers && peers.length > 1;
  const quantile = info.kind === "quantile";
  const res = useSignalData(seen ? info.id : null, win.value, {
    by: "engine",
    engine: compare ? undefined : engine.id,
    quantiles: quantile ? (compare ? [0.99] : [0.5, 0.99]) : [],
  }, !visible);
  const marks = recordingMarks.value;
  const model = useMapped(res, (e) => oneEngine(e.data, info, engine, compare ? peers : [], marks), [marks, engine.id, compare, peers.map((p) => p.id).join()]);
  return (
    <div class="board-panel" ref={ref}>
      <ChartPanel
        title={info.title.replace(/ \(.*\)$/, "")}
        unit={info.unit}
        unitPrefix={quantile && compare ? "p99, " : ""}
        res={model}
        height="fill"
        compact
        query={res.value?.data.query || info.query}
        meaning={[info.meaning, info.trap].filter(Boolean).join("\n\n")}
        warnings={res.value?.warnings ?? []}
        under={<span class="mut">{model.value?.lines[0]?.now.reason || info.group}</span>}
      />
    </div>
  );
}

/** The lines of one engine out of those of all, and the median of its peers. */
export function oneEngine(d: api.SignalData, info: api.SignalInfo, engine: api.Engine, peers: api.Engine[], marks: Span[]): ChartModel {
  const of = (l: api.Line, e: api.Engine) => l.labels["instance"] === e.instance;
  const own = d.lines.filter((l) => of(l, engine)).sort((a, b) => (b.quantile ?? 0) - (a.quantile ?? 0));
  const others = d.lines.filter((l) => peers.some((p) => of(l, p)));
  const lines = ofOne({ ...d, lines: own }, engine).lines;
  const none: api.Line = { name: engine.name, labels: {}, values: [], now: { value: null, state: "unknown", reason: "it does not export this" } };
  const extra: ChartLine[] = [];
  if (others.length > 1) {
    const values = medianLine(others.map((l) => l.values));
    const last = values.at(-1) ?? null;
    extra.push({ name: `median of ${engine.role}`, values, color: "--s7", dash: [4, 3], now: last === null ? { value: null, state: "idle" } : { value: last, state: "value" } });
  }
  return fromSignal({ ...d, lines: lines.length ? lines : [none] }, {
    title: info.title, unit: d.unit || info.unit, single: signalColor(info.id), marks, extra,
  });
}

function Facts({ engine: e, target: t, alerts, warnings }: { engine: api.Engine; target: api.Target | undefined; alerts: api.Alert[]; warnings: api.Warning[] }) {
  const rows: [string, ComponentChildren][] = [
    ["job", e.job], ["instance", e.instance], ["role", e.role || "unknown"], ["backend", versionText(e) || "unknown"], ["model", e.model || "unknown"],
    ["counted", e.view === "router" ? "through the router" : "from its own endpoint"],
    ["DP ranks", e.dp_ranks.length ? e.dp_ranks.join(", ") : "none"],
  ];
  const labels = Object.entries(e.labels).filter(([k]) => !["job", "instance"].includes(k));
  return (
    <div class="facts">
      <h2>Identity</h2>
      <dl>{rows.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
      {labels.length > 0 && (
        <>
          <h2>Labels</h2>
          <dl class="mono">{labels.map(([k, v]) => <div key={k}><dt>{k}</dt><dd title={v}>{v}</dd></div>)}</dl>
        </>
      )}
      {t && <Scrape target={t} />}
      <h2>Alerts on it</h2>
      <AlertTable alerts={alerts} compact onOpen={(a) => open("alerts", { alert: alertKey(a) })} empty={() => <p class="mut">none</p>} />
      {warnings.length > 0 && (
        <>
          <h2>To know</h2>
          <Warnings list={warnings} />
        </>
      )}
    </div>
  );
}

/** How its scraping goes. */
export function Scrape({ target: t }: { target: api.Target }) {
  return (
    <>
      <h2>Scrape {t.up === true ? <Badge level="ok">up</Badge> : t.up === false ? <Badge level="unknown">down</Badge> : <Badge level="idle">not yet</Badge>}</h2>
      <dl>
        <div><dt>url</dt><dd title={t.url}>{t.url}</dd></div>
        {t.last_scrape && <div><dt>last</dt><dd>{duration(Math.max(0, now() - parseApiTime(t.last_scrape)))} ago</dd></div>}
        {t.duration_seconds !== null && <div><dt>took</dt><dd>{duration(t.duration_seconds * 1000)}</dd></div>}
        {t.samples !== null && <div><dt>samples</dt><dd>{t.samples}</dd></div>}
        {t.error && <div><dt>error</dt><dd class="bad">{t.error}</dd></div>}
        {t.hint && <div><dt>do</dt><dd>{t.hint}</dd></div>}
      </dl>
      <Warnings list={t.findings} />
    </>
  );
}
