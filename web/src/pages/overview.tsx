// The on-call round: the golden five with the worst engine named, every engine, what fires, where to look
// further.
import { useEffect, useMemo } from "preact/hooks";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { ChartPanel, StateBadge } from "../charts/chartpanel";
import { fromSignal, numberText, type ChartModel, type Span } from "../charts/model";
import { useSignalData } from "../charts/signal";
import { AlertTable } from "../components/alerttable";
import { EngineTable, TableKey, worstFirst } from "../components/enginetable";
import { EngineLink, Link } from "../components/link";
import { Badge, Empty, ErrorBox, LoadingBar, levels, Notes, StaleNote } from "../components/state";
import { TopBar } from "../components/topbar";
import { plural } from "../format/number";
import { boards, signalInfo, signals } from "../state/catalog";
import { alertList, engineList } from "../state/fleet";
import { alertKey, alertOn, signalColor } from "../state/judge";
import { isArchive, recordingMarks, status, win } from "../state/live";
import { useMapped, useResource, type Resource } from "../state/resource";
import { change, open, view } from "../state/view";

const GOLDEN = ["ttft", "itl", "throughput", "cache_hit_rate", "queue_depth"];
const TITLES: Record<string, [string, string]> = {
  ttft: ["Time to first token", "seconds"], itl: ["Inter-token latency", "seconds"], throughput: ["Throughput", "tokens/s"],
  cache_hit_rate: ["Prefix cache hit rate", "ratio"], queue_depth: ["Queue depth", "requests"], request_rate: ["Request rate", "requests/s"],
  running: ["Running requests", "requests"], kv_usage: ["KV cache used", "ratio"], e2e: ["End-to-end latency", "seconds"],
  retractions: ["Retractions", "requests/s"], aborts: ["Aborts", "requests/s"], prompt_tokens: ["Prompt tokens", "tokens/s"],
};
/** Below the table, as many as fit: what the golden five do not show. */
const LOAD = ["request_rate", "running", "kv_usage", "e2e", "retractions", "aborts", "prompt_tokens"];
/** Rows of the table on this page; the rest is one link away. */
const ROWS = 14;

type Answer = Resource<api.Envelope<api.Overview>>;

export function Overview() {
  const w = win.value;
  const res: Answer = useResource("overview", `${w.from} ${w.to} ${w.step}`, (abort) =>
    get<api.Overview>("/overview", { from: apiTime(w.from), to: apiTime(w.to), step: w.step / 1000 }, abort),
  );
  const data = res.value?.data;
  useEffect(() => {
    if (!data) return;
    engineList.value = data.engines.engines;
    alertList.value = data.alerts;
  }, [data]);
  const engines = data?.engines.engines;
  return (
    <>
      <TopBar title="Overview" sub={engines && `${plural(engines.length, "engine")} · ${plural(data?.jobs ?? 0, "job")}`}>
        {data && levels.filter((l) => data.counts[l]).map((l) => (
          <Link key={l} to="engines" patch={{ level: l }} title={`show these in Engines`}>
            <Badge level={l}>{data.counts[l]} {l === "crit" ? "critical" : l}</Badge>
          </Link>
        ))}
      </TopBar>
      <main class="main page-overview">
        {engines?.length === 0 ? <Nothing /> : null}
        <div class="row golden">
          {GOLDEN.map((id) => (
            <Golden key={id} id={id} res={res} />
          ))}
        </div>
        <div class="overview-body">
          <Fleet res={res} />
          <div class="overview-right">
            <Firing res={res} />
            <Boards engines={engines} />
          </div>
        </div>
        <div class="row load">
          {loadSignals().map((id) => (
            <Load key={id} id={id} />
          ))}
        </div>
      </main>
    </>
  );
}

function loadSignals(): string[] {
  const known = signals.value.value;
  return known ? LOAD.filter((id) => known.some((s) => s.id === id)).slice(0, 5) : LOAD.slice(0, 5);
}

/** What the API's golden signal is, as a chart. */
function goldenModel(id: string, o: api.Overview, marks: Span[]): ChartModel | undefined {
  const d = o.golden.find((g) => g.id === id);
  if (!d) return undefined;
  const info = signalInfo(id);
  return fromSignal(d, { title: TITLES[id]?.[0] ?? d.title, unit: d.unit || info?.unit || TITLES[id]?.[1] || "", higher: info?.higher_is_better === true, marks });
}

function Golden({ id, res }: { id: string; res: Answer }) {
  const [title, unit] = TITLES[id] ?? [id, ""];
  const info = signalInfo(id);
  const o = res.value?.data;
  const d = o?.golden.find((g) => g.id === id);
  const marks = recordingMarks.value;
  const model = useMapped(res, (e) => goldenModel(id, e.data, marks), [marks, info]);
  return (
    <ChartPanel
      title={title}
      unit={unit}
      res={model}
      height="fill"
      badge={<GoldenBadge info={info} model={model.value} alerts={o?.alerts ?? []} />}
      under={d?.worst && model.value ? <WorstNote worst={d.worst} model={model.value} /> : null}
      query={d?.query || info?.query}
      meaning={info ? [info.meaning, info.trap].filter(Boolean).join("\n\n") : undefined}
    />
  );
}

/** Judged by the alerts that read the same metrics; what no alert speaks against is ok. */
function GoldenBadge({ info, model, alerts }: { info: api.SignalInfo | undefined; model: ChartModel | undefined; alerts: api.Alert[] }) {
  if (!model) return null;
  if (model.state !== "value") return <StateBadge model={model} />;
  const a = alertOn(info, alerts);
  // An archive holds what fired but not the rules: which signal an alert read is not known.
  if (!a) return isArchive.value ? null : <Badge level="ok" title="no alert that reads it fires" />;
  const level = a.state === "firing" ? (a.level === "crit" ? "crit" : "warn") : "unknown";
  return (
    <Link to="alerts" patch={{ alert: alertKey(a) }} title={`${a.name}: ${a.summary}`}>
      <Badge level={level} />
    </Link>
  );
}

function WorstNote({ worst, model }: { worst: api.Worst; model: ChartModel }) {
  const scale = model.scale;
  return (
    <span class="worst">
      <span class="mut">worst</span> <EngineLink id={worst.engine_id} name={worst.name} />{" "}
      <span>
        {numberText(worst.number, scale)} {scale.unit} {/^p\d/.test(worst.line) ? worst.line : ""}
      </span>
    </span>
  );
}

function Fleet({ res }: { res: Answer }) {
  const e = res.value?.data.engines;
  const all = useMemo(() => worstFirst(e?.engines ?? []), [e]);
  const shown = view.value.sort ? all : all.slice(0, ROWS);
  const more = all.length - shown.length;
  return (
    <section class="panel fleet" aria-label="engines">
      <header class="panel-h">
        <h2>Engines</h2>
        <span class="u">{view.value.sort ? "" : "worst first · "}one scale a column</span>
        <Notes list={res.value?.warnings ?? []} />
        <span class="sp" />
        <TableKey />
      </header>
      <LoadingBar on={res.loading} />
      {res.error && !e && <ErrorBox error={res.error} failingSince={res.failingSince} />}
      {e && all.length === 0 && <p class="calm">no engine in this range</p>}
      {e && all.length > 0 && (
        <EngineTable
          engines={shown}
          fleet={all}
          columns={e.columns}
          sparks={(key) => e.columns.findIndex((c) => c.key === key) < 4}
          sort={view.value.sort}
          onSort={(sort) => change({ sort }, "replace")}
          onOpen={(x) => open("engines", { engine: x.id })}
          primary
        />
      )}
      {(more > 0 || (res.error && e)) && (
        <footer class="panel-f">
          <StaleNote res={res} />
          <span class="sp" />
          {more > 0 && <Link to="engines" class="more">{plural(more, "more engine")} ›</Link>}
        </footer>
      )}
    </section>
  );
}

function Load({ id }: { id: string }) {
  const info = signalInfo(id);
  const res = useSignalData(id, win.value, { by: "fleet" });
  const marks = recordingMarks.value;
  const model = useMapped(res, (e) => fromSignal(e.data, { title: TITLES[id]?.[0] ?? e.data.title, unit: e.data.unit || e.unit || info?.unit || "", single: signalColor(id), marks }), [marks, info]);
  return (
    <ChartPanel
      title={TITLES[id]?.[0] ?? info?.title ?? id}
      unit={info?.unit ?? TITLES[id]?.[1] ?? ""}
      res={model}
      height="fill"
      warnings={res.value?.warnings ?? []}
      query={res.value?.data.query || info?.query}
      meaning={info ? [info.meaning, info.trap].filter(Boolean).join("\n\n") : undefined}
    />
  );
}

function Firing({ res }: { res: Answer }) {
  const alerts = (res.value?.data.alerts ?? []).filter((a) => a.state !== "inactive");
  const n = (s: string) => alerts.filter((a) => a.state === s).length;
  const words = [n("firing") && `${n("firing")} firing`, n("pending") && `${n("pending")} pending`, n("cannot_be_judged") && `${n("cannot_be_judged")} cannot be judged`].filter(Boolean);
  return (
    <section class="panel firing" aria-label="alerts">
      <header class="panel-h">
        <h2>Alerts</h2>
        <span class="u">{res.value ? words.join(" · ") || "nothing fires" : ""}</span>
        <span class="sp" />
        <Link to="alerts" class="more">all ›</Link>
      </header>
      {res.value && (
        <AlertTable
          alerts={alerts}
          compact
          onOpen={(a) => open("alerts", { alert: alertKey(a) })}
          empty={() => <p class="calm"><Badge level="ok">quiet</Badge> nothing fires and nothing is pending</p>}
        />
      )}
    </section>
  );
}

function Boards({ engines }: { engines: api.Engine[] | undefined }) {
  const list = boards.value;
  const present = new Set(engines?.map((e) => e.backend) ?? []);
  const rows = (list.value ?? []).map((b) => ({ b, here: !engines || applies(b, present) }));
  rows.sort((x, y) => Number(y.here) - Number(x.here));
  return (
    <section class="panel boards" aria-label="boards">
      <header class="panel-h">
        <h2>Boards</h2>
        <span class="u">{rows.length ? "whole sets of charts, for the fleet or one engine" : ""}</span>
      </header>
      {list.error && !list.value && <ErrorBox error={list.error} />}
      <ul class="board-list scroll">
        {rows.map(({ b, here }) => (
          <li key={b.id} class={here ? "" : "dim"}>
            <Link to="engines" patch={{ board: b.id }}>{b.title}</Link>
            <span class="board-meaning" title={b.meaning}>{b.meaning}</span>
            <span class="mut n">{b.sections.reduce((n, s) => n + s.panels.length, 0)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Whether a board shows anything of the backends that are here. A panel that names none is for all. */
export function applies(b: api.Board, present: Set<string>): boolean {
  return b.sections.some((s) => s.panels.some((p) => p.backends.length === 0 || p.backends.some((x) => present.has(x))));
}

function Nothing() {
  const s = status.value.value;
  const none = s?.targets === 0;
  return (
    <section class="panel">
      <Empty
        what={none ? "No engine is scraped yet. Name one, and its charts appear here:" : "No engine has been seen in this range. Targets are configured, but nothing readable came from them; the list at the lower left says why."}
        how={none ? "rollscope serve --scrape HOST:30000\n\n# or in rollscope.yaml (a prometheus.yml)\nscrape_configs:\n  - job_name: sglang\n    static_configs: [{targets: [\"HOST:30000\"]}]" : undefined}
      />
    </section>
  );
}

