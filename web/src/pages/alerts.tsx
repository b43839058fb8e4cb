// What fires, what soon may, what nobody can judge; every rule with its health; who is told.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { apiTime, get } from "../api/client";
import { queryRange } from "../api/prom";
import type * as api from "../api/types";
import { ChartPanel, QueryLink } from "../charts/chartpanel";
import { fromRanges } from "../charts/model";
import { AlertHistory } from "../components/alerthistory";
import { AlertBadge, AlertTable } from "../components/alerttable";
import { EngineLink, Link } from "../components/link";
import { Drawer } from "../components/popover";
import { Highlight } from "../components/highlight";
import { Badge, Empty, ErrorBox, LoadingBar, Notes, StaleNote } from "../components/state";
import { Table, type Column } from "../components/table";
import { TopBar } from "../components/topbar";
import { brief, plural } from "../format/number";
import { dayClock, duration, parseApiTime } from "../format/time";
import { leftSide, narrowed } from "../promql/lex";
import { alertList, engineList } from "../state/fleet";
import { alertKey } from "../state/judge";
import { fieldOf, logsOf, requestsOf, tracesOf, type Subject } from "../state/joins";
import { isArchive, recordingMarks, today, win } from "../state/live";
import { rank } from "../state/match";
import { useMapped, useResource } from "../state/resource";
import { change, view } from "../state/view";

const severityLevel = (s: string): api.Level => (s === "critical" || s === "page" ? "crit" : "warn");
const ruleKey = (r: api.AlertRule) => `rule|${r.group}|${r.name}`;

export function Alerts() {
  const w = win.value;
  const v = view.value;
  const narrow = useSignal(false);
  const res = useResource("alerts", `${w.from} ${w.to}`, (abort) => get<api.Alerts>("/alerts", { from: apiTime(w.from), to: apiTime(w.to) }, abort));
  const data = res.value?.data;
  useEffect(() => {
    if (data) alertList.value = data.alerts;
  }, [data]);
  const alerts = filtered((data?.alerts ?? []).filter((a) => a.state !== "inactive"), v.filter, (a) => [a.name, a.summary, a.severity, ...Object.values(a.labels)].join(" "));
  const rules = filtered(data?.rules ?? [], v.filter, (r) => [r.name, r.group, r.summary, r.expr].join(" "));
  const n = (s: string) => (data?.alerts ?? []).filter((a) => a.state === s).length;
  const blind = (data?.rules ?? []).filter((r) => r.state === "blind").length;
  const alert = alerts.find((a) => alertKey(a) === v.alert);
  const rule = rules.find((r) => ruleKey(r) === v.alert) ?? (alert && rules.find((r) => r.name === alert.name && r.group === alert.group));
  const select = (key: string) => {
    change({ alert: key === v.alert ? "" : key }, v.alert ? "replace" : "push");
    narrow.value = true;
  };
  const details = alert ? <AlertDetails alert={alert} rule={rule} /> : rule ? <RuleDetails rule={rule} /> : null;
  return (
    <>
      <TopBar title="Alerts" sub={data && plural(data.rules.length, "rule")}>
        {data && (
          <>
            {n("firing") > 0 && <Badge level={data.alerts.some((a) => a.state === "firing" && a.level === "crit") ? "crit" : "warn"}>{n("firing")} firing</Badge>}
            {n("pending") > 0 && <Badge level="idle">{n("pending")} pending</Badge>}
            {n("cannot_be_judged") > 0 && <Badge level="unknown">{n("cannot_be_judged")} cannot be judged</Badge>}
            {blind > 0 && <Badge level="unknown">{plural(blind, "rule")} blind</Badge>}
            {n("firing") + n("pending") + n("cannot_be_judged") + blind === 0 && <Badge level="ok">quiet</Badge>}
          </>
        )}
      </TopBar>
      <main class="main page-alerts">
        <div class="alerts-left">
          <section class="panel alerts-now" aria-label="alerts now">
            <header class="panel-h">
              <h2>Alerts</h2>
              <span class="u">firing, then what cannot be judged, then pending</span>
              <Notes list={res.value?.warnings ?? []} />
              <span class="sp" />
              <input type="text" class="filter" placeholder="filter" aria-label="filter alerts and rules" spellcheck={false} autocomplete="off" value={v.filter} onInput={(e) => change({ filter: e.currentTarget.value }, "replace")} />
            </header>
            <LoadingBar on={res.loading} />
            {res.error && !data && <ErrorBox error={res.error} failingSince={res.failingSince} />}
            {data && (
              <AlertTable
                alerts={alerts}
                selected={v.alert}
                onOpen={(a) => select(alertKey(a))}
                sort={v.sort}
                onSort={(sort) => change({ sort }, "replace")}
                primary
                empty={() => <p class="calm"><Badge level="ok">quiet</Badge> {v.filter ? "nothing that fits the filter" : "nothing"} fires, is pending or cannot be judged</p>}
              />
            )}
            {res.error && data && <footer class="panel-f"><StaleNote res={res} /></footer>}
          </section>
          <AlertHistory />
          <section class="panel alerts-rules" aria-label="rules">
            <header class="panel-h">
              <h2>Rules</h2>
              <span class="u">{data ? `${plural(data.rules.length, "rule")}${blind ? ` · ${blind} blind: they read metrics that nothing exports` : ""}` : ""}</span>
            </header>
            {data && data.rules.length === 0 && isArchive.value && <p class="calm">An archive evaluates no rules. What they wrote while it was recorded stands above.</p>}
            {data && data.rules.length === 0 && !isArchive.value && <Empty what="No alert rules are loaded. The built-in ones can be turned on, and rule files named:" how={"rule_files: [\"alerts/*.yml\"]"} />}
            {data && data.rules.length > 0 && <Rules rules={rules} selected={v.alert} onOpen={(r) => select(ruleKey(r))} />}
          </section>
        </div>
        <aside class="panel details scroll" aria-label="details">
          {details ?? <Receivers list={data?.receivers} />}
        </aside>
        {details && narrow.value && (
          <div class="only-narrow">
            <Drawer title={alert?.name ?? rule?.name ?? ""} label="details" onClose={() => (narrow.value = false)}>{details}</Drawer>
          </div>
        )}
      </main>
    </>
  );
}

function filtered<T>(list: T[], text: string, textOf: (t: T) => string): T[] {
  if (!text.trim()) return list;
  const hits = new Set(rank(text, list, textOf, list.length));
  return list.filter((x) => hits.has(x));
}

const HEALTH = ["firing", "blind", "pending", "inactive"];

function Rules({ rules, selected, onOpen }: { rules: api.AlertRule[]; selected: string; onOpen: (r: api.AlertRule) => void }) {
  const sort = useSignal("");
  const columns: Column<api.AlertRule>[] = [
    { key: "state", title: "State", cell: (r) => <AlertBadge alert={{ state: r.state, level: severityLevel(r.severity), reason: r.reason ?? "" }} words />, value: (r) => HEALTH.indexOf(r.state) },
    { key: "name", title: "Rule", class: "c-name", cell: (r) => r.name, value: (r) => r.name },
    { key: "severity", title: "Severity", class: "sec", cell: (r) => r.severity, value: (r) => r.severity },
    { key: "for", title: "For", right: true, cell: (r) => (r.for_seconds ? duration(r.for_seconds * 1000) : "at once"), value: (r) => r.for_seconds },
    { key: "expr", title: "Expression", class: "mono c-why", cell: (r) => <span title={r.expr}>{r.state === "blind" ? <span class="bad">{r.reason}</span> : r.expr.replace(/\s+/g, " ")}</span> },
    { key: "source", title: "Source", class: "sec", cell: (r) => r.source, value: (r) => r.source },
    { key: "group", title: "Group", class: "sec", cell: (r) => r.group, value: (r) => r.group },
  ];
  const ordered = sort.value ? rules : [...rules].sort((a, b) => HEALTH.indexOf(a.state) - HEALTH.indexOf(b.state));
  return <Table label="rules" rows={ordered} columns={columns} rowKey={ruleKey} selected={selected} sort={sort.value} onSort={(s) => (sort.value = s)} onOpen={onOpen} />;
}

function AlertDetails({ alert: a, rule }: { alert: api.Alert; rule: api.AlertRule | undefined }) {
  const engine = engineList.value?.find((e) => e.id === a.engine_id);
  const text = Object.entries(a.annotations).filter(([k]) => k !== "summary");
  return (
    <div class="facts">
      <h2><AlertBadge alert={a} words /> {a.name}</h2>
      <p>{a.summary}</p>
      {a.state === "cannot_be_judged" && <p class="bad">Cannot be judged: {a.reason || "its data could not be read"}. It is not resolved.</p>}
      <dl>
        {a.engine_id && <div><dt>engine</dt><dd><EngineLink id={a.engine_id} name={engine?.name ?? a.engine_id} /></dd></div>}
        {a.since && <div><dt>since</dt><dd>{dayClock(parseApiTime(a.since), today(), true)} UTC, {duration(today() - parseApiTime(a.since))}</dd></div>}
        <div><dt>value</dt><dd>{a.value === null ? "unknown" : brief(a.value)}</dd></div>
        <div><dt>severity</dt><dd>{a.severity || "none"}</dd></div>
        <div><dt>waits</dt><dd>{a.for_seconds ? duration(a.for_seconds * 1000) : "not at all"}</dd></div>
        <div><dt>group</dt><dd>{a.group}{rule ? `, ${rule.source}` : ""}</dd></div>
      </dl>
      <Behind alert={a} />
      {text.length > 0 && <dl>{text.map(([k, v]) => <div key={k} class="stacked"><dt>{k}</dt><dd class="wrap">{v}</dd></div>)}</dl>}
      <Expression expr={a.expr} instance={a.labels["instance"]} />
      <h2>Labels</h2>
      <dl class="mono">{Object.entries(a.labels).map(([k, v]) => <div key={k}><dt>{k}</dt><dd title={v}>{v}</dd></div>)}</dl>
    </div>
  );
}

/** What happened while it was pending and fired: from five minutes before it began. */
function Behind({ alert: a }: { alert: api.Alert }) {
  const since = parseApiTime(a.since);
  if (!Number.isFinite(since)) return null;
  const s: Subject = { from: since - 300_000, to: today(), instance: a.labels["instance"] ?? "", engine: "", field: fieldOf(`${a.name} ${a.expr}`) };
  return (
    <div class="ways">
      <Link to="requests" patch={requestsOf(s)} class="btn">Requests in its window</Link>
      <Link to="logs" patch={logsOf(s)} class="btn">Log lines</Link>
      <Link to="traces" patch={tracesOf(s)} class="btn">Traces</Link>
    </div>
  );
}

function RuleDetails({ rule: r }: { rule: api.AlertRule }) {
  return (
    <div class="facts">
      <h2><AlertBadge alert={{ state: r.state, level: severityLevel(r.severity), reason: r.reason ?? "" }} words /> {r.name}</h2>
      <p>{r.summary}</p>
      {r.state === "blind" && <p class="bad">Blind: {r.reason || "it reads metrics that nothing exports"}. It can neither fire nor be called quiet.</p>}
      <dl>
        <div><dt>severity</dt><dd>{r.severity || "none"}</dd></div>
        <div><dt>waits</dt><dd>{r.for_seconds ? duration(r.for_seconds * 1000) : "not at all"}</dd></div>
        <div><dt>group</dt><dd>{r.group}</dd></div>
        <div><dt>source</dt><dd>{r.source}</dd></div>
      </dl>
      <Expression expr={r.expr} />
    </div>
  );
}

/** The expression, and what it gives over the window: the condition cut off, so that what nearly fires is seen too. */
function Expression({ expr, instance }: { expr: string; instance?: string | undefined }) {
  const w = win.value;
  const { left, threshold } = leftSide(expr);
  const side = instance ? narrowed(left, "instance", instance) : left;
  const res = useResource(`expr ${side}`, `${w.from} ${w.to} ${w.step}`, (abort) => queryRange(side, w, abort));
  const marks = recordingMarks.value;
  const model = useMapped(res, (result) => fromRanges("What it reads", "", [{ result, legend: "" }], { marks, thresholds: threshold ? [threshold] : [] }), [marks, expr]);
  return (
    <>
      <h2>Expression <QueryLink expr={expr} /></h2>
      <pre class="expr"><Highlight text={expr} /></pre>
      <ChartPanel title={left === expr ? "What it gives" : instance ? "What it reads here" : "What it reads"} unit="" res={model} height={120} compact query={side} />
    </>
  );
}

function Receivers({ list }: { list: string[] | undefined }) {
  return (
    <div class="facts">
      <h2>Receivers</h2>
      {isArchive.value && <p class="mut">An archive tells nobody.</p>}
      {list && list.length === 0 && !isArchive.value && <Empty what="What fires is shown here and told to nobody. Name an Alertmanager or a webhook:" how={"alerting:\n  alertmanagers:\n    - static_configs: [{targets: [\"HOST:9093\"]}]\nrollscope:\n  webhooks: [{url: \"http://HOST/hook\"}]"} />}
      {list && list.length > 0 && <ul class="plain">{list.map((r) => <li key={r}>{r}</li>)}</ul>}
      <p class="mut">Select an alert or a rule to see its expression, labels and what it reads.</p>
    </div>
  );
}
