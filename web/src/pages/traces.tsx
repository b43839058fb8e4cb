// Traces: a search over what was kept, the cloud of its results, what each service sends and what that
// costs; and one trace.
import { useEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { scatterAxis } from "../charts/scatter";
import { KindMark, ScatterPlot, type Frame, type Kind } from "../charts/scatterplot";
import { short } from "../components/copy";
import { EventsBadge, EventsStrip, eventsOff, NothingHere, TRACES_HOW } from "../components/eventsnote";
import { FilterBox } from "../components/filterbox";
import { StateIcon } from "../components/icons";
import { Link } from "../components/link";
import { startText } from "../components/requesttable";
import { Badge, ErrorBox, LoadingBar, Notes, StaleNote } from "../components/state";
import { Table, type Column } from "../components/table";
import { TopBar } from "../components/topbar";
import { brief, format, grouped, plural, scaleFor, typical, withUnit } from "../format/number";
import { parseApiTime } from "../format/time";
import { useEvents } from "../state/events";
import { useKeys } from "../state/keys";
import { win } from "../state/live";
import { filterOf } from "../state/filter";
import { around } from "../state/joins";
import { fixed, type View } from "../state/route";
import { useMapped, useResource, type Resource } from "../state/resource";
import { change, open, view, zoomTo } from "../state/view";
import { NO_TRACE, Trace } from "./trace";
import { secondsScale, target } from "./requestfields";
import { flagWords } from "./spanpanel";

const LIMIT = 300;

export function Traces() {
  const store = useEvents();
  const id = view.value.id;
  return (
    <>
      <TopBar title="Traces" timed={id === ""}>
        <EventsBadge state={store} />
      </TopBar>
      <main class="main page-traces">
        <EventsStrip state={store} />
        {id !== "" ? <Trace key={id} id={id} /> : <Search />}
      </main>
    </>
  );
}

type Answer = Resource<api.Envelope<api.Traces>>;

function Search() {
  const v = view.value;
  const w = win.value;
  const store = useEvents();
  const res: Answer = useResource("traces", `${w.from} ${w.to} ${v.service} ${v.name} ${v.filter} ${v.min} ${v.max} ${v.status}`, (abort) =>
    get<api.Traces>("/traces", { from: apiTime(w.from), to: apiTime(w.to), service: v.service, name: v.name, tags: v.filter, min: v.min, max: v.max, status: v.status, limit: LIMIT }, abort),
  );
  const d = res.value?.data;
  const bad = res.error && ["bad_parameter", "bad_query", "malformed"].includes(res.error.code) ? [res.error.message, res.error.hint].filter(Boolean).join(" · ") : "";
  const failed = res.error && !d && !bad ? res.error : undefined;
  const asked = v.service !== "" || v.name !== "" || v.filter !== "" || v.min !== "" || v.max !== "" || v.status !== "";
  const none = eventsOff(store, res.error) || (d !== undefined && d.traces.length === 0 && !asked);
  const list = d?.traces ?? NONE;
  useKeys({ i: () => document.querySelector<HTMLElement>(".page-traces .fbox input")?.focus() });
  useEffect(() => {
    if (v.id === "first" && list[0]) change({ id: list[0].trace_id }, "replace");
  }, [v.id, list]);
  return (
    <>
      <Form services={d?.services ?? []} error={bad} />
      {none && (!failed || eventsOff(store, failed)) && <section class="panel"><NothingHere what="No trace was kept in this range." how={TRACES_HOW} state={store} error={res.error} /></section>}
      {failed && !eventsOff(store, failed) && <section class="panel"><ErrorBox error={failed} failingSince={res.failingSince} /></section>}
      {!none && !failed && (
        <div class="events-left traces-found">
          <div class="trace-head">
            <Cloud list={list} res={res} />
            <Services list={d?.services ?? []} />
          </div>
          <Results res={res} list={list} />
        </div>
      )}
      {none && !failed && (d?.services.length ?? 0) > 0 && <Services list={d?.services ?? []} />}
    </>
  );
}

const NONE: api.TraceRow[] = [];

function Form({ services, error }: { services: api.TraceService[]; error: string }) {
  const v = view.value;
  const id = useSignal("");
  const known = services.map((s) => s.service);
  const names = useMemo(() => {
    const all = new Map<string, number>();
    for (const s of services) if (!v.service || s.service === v.service) for (const [n, c] of Object.entries(s.names)) all.set(n, (all.get(n) ?? 0) + c);
    return [...all].sort((a, b) => b[1] - a[1]).slice(0, 60).map(([n]) => n);
  }, [services, v.service]);
  const badTime = (t: string) => t !== "" && Number.isNaN(target(t));
  return (
    <section class="panel strip events-bar" aria-label="which traces">
      <label class="picker"><span class="mut">service</span>
        <select aria-label="service" value={v.service} onChange={(e) => change({ service: e.currentTarget.value })}>
          <option value="">any</option>
          {[...new Set([...known, ...(v.service ? [v.service] : [])])].map((s) => <option key={s} value={s}>{s || "unknown"}</option>)}
        </select>
      </label>
      <label class="step wide"><span class="mut">span</span>
        <input type="text" list="span-names" spellcheck={false} autocomplete="off" placeholder="Req *" aria-label="name of a span, * stands for anything" value={v.name} onChange={(e) => change({ name: e.currentTarget.value.trim() })} />
      </label>
      <datalist id="span-names">{names.map((n) => <option key={n} value={n} />)}</datalist>
      <FilterBox value={v.filter} label="attributes" placeholder="rid=abc http.status_code=500" error={error} onApply={(filter, how) => change({ filter }, how)} help={
        <dl>
          <div><dt><code>rid=abc</code></dt><dd>an attribute of a span or its resource is this</dd></div>
          <div><dt><code>name="a b"</code></dt><dd>with spaces in quotes</dd></div>
          <div><dt><code>a=1 b=2</code></dt><dd>both, on one span</dd></div>
        </dl>
      } />
      <label class="step"><span class="mut">≥</span><input type="text" size={5} spellcheck={false} placeholder="100ms" aria-label="shortest" aria-invalid={badTime(v.min)} value={v.min} onChange={(e) => change({ min: e.currentTarget.value.trim() })} /></label>
      <label class="step"><span class="mut">≤</span><input type="text" size={5} spellcheck={false} placeholder="10s" aria-label="longest" aria-invalid={badTime(v.max)} value={v.max} onChange={(e) => change({ max: e.currentTarget.value.trim() })} /></label>
      <label class="picker"><span class="mut">status</span>
        <select aria-label="status" value={v.status} onChange={(e) => change({ status: e.currentTarget.value })}>
          <option value="">any</option>
          <option value="error">error</option>
          <option value="ok">ok</option>
        </select>
      </label>
      <form class="lookup" onSubmit={(e) => {
        e.preventDefault();
        if (id.value.trim()) change({ ...NO_TRACE, id: id.value.trim() });
      }}>
        <input type="text" class="filter mono" spellcheck={false} autocomplete="off" aria-label="open a trace by an id" placeholder="trace id, rid, room" title="a trace id (zeros in front may be left out), a rid, an x-request-id, a bootstrap room" value={id.value} onInput={(e) => (id.value = e.currentTarget.value)} />
        <button type="submit" class="btn" disabled={!id.value.trim()}>Open</button>
      </form>
    </section>
  );
}

const KINDS: Kind[] = [{ name: "ok", color: "--s1", shape: "dot" }, { name: "incomplete", color: "--warn-fill", shape: "triangle" }, { name: "error", color: "--crit-fill", shape: "square" }];

/** Duration over start: a frame narrows the range and the duration. */
function Cloud({ list, res }: { list: api.TraceRow[]; res: Answer }) {
  const v = view.value;
  const w = win.value;
  const m = useMemo(() => {
    const ys = list.map((t) => t.duration_seconds);
    return { xs: list.map((t) => parseApiTime(t.start)), ys, y: scatterAxis(ys, "s", v.log), of: Uint8Array.from(list, (t) => (t.errors > 0 ? 2 : t.flags.length > 0 ? 1 : 0)) };
  }, [list, v.log]);
  const frame = (f: Frame) => {
    if (f.y) change({ min: `${+f.y[0].toPrecision(3)}s`, max: `${+f.y[1].toPrecision(3)}s` });
    if (f.x) zoomTo(fixed(Math.floor(f.x[0] / 1000) * 1000, Math.ceil(f.x[1] / 1000) * 1000));
  };
  return (
    <section class="panel request-cloud" aria-label="cloud">
      <header class="panel-h">
        <h2>Duration</h2><span class="u">{m.y.scale.unit} over start, UTC</span>
        <button type="button" class={v.log ? "chip on" : "chip"} aria-pressed={v.log} title="in powers of ten" onClick={() => change({ log: !v.log }, "replace")}>log</button>
        <span class="sp" /><span class="u cloud-hint">draw a frame to narrow down</span>
      </header>
      <LoadingBar on={res.loading} />
      <div class="cloud-body">
        {res.value && <ScatterPlot xs={m.xs} ys={m.ys} kinds={KINDS} of={m.of} x={{ from: w.from, to: w.to }} y={m.y} selected={-1} label={`durations of ${plural(list.length, "trace")} over their start`}
          words={(i) => { const t = list[i]; return t ? [["root", t.root || "missing"], ["duration", withUnit(t.duration_seconds, scaleFor("s", t.duration_seconds))], ["start", startText(parseApiTime(t.start))], ["spans", grouped(t.spans, 0)]] : []; }}
          onFrame={frame} onPick={(i) => change({ ...NO_TRACE, id: list[i]?.trace_id ?? "" })} />}
      </div>
      <footer class="panel-f"><span class="cloud-legend">{KINDS.map((k) => <span key={k.name} class="quiet"><KindMark kind={k} />{k.name}</span>)}</span></footer>
    </section>
  );
}

/** What each service sends, at which level, what that costs, and what is missing. */
function Services({ list }: { list: api.TraceService[] }) {
  const sort = useSignal("-hour");
  const rate = scaleFor("spans", typical(list.map((s) => s.spans_per_hour)));
  const columns: Column<api.TraceService>[] = [
    { key: "service", title: "Service", cell: (s) => <Link patch={{ service: s.service }} title="only traces with it">{s.service || "unknown"}</Link>, value: (s) => s.service },
    { key: "level", title: "Level", hint: "SGLANG_TRACE_LEVEL as its spans show it", right: true, cell: (s) => (s.level === null ? <span class="mut" title="no SGLang">–</span> : s.level), value: (s) => s.level },
    { key: "hour", title: `${rate.unit || "spans"}/h`, right: true, largeFirst: true, value: (s) => s.spans_per_hour, cell: (s) => (s.spans_per_hour === null ? <span class="mut">unknown</span> : format(s.spans_per_hour, rate)) },
    { key: "bytes", title: "MB/h", hint: "on disk, as kept", right: true, largeFirst: true, value: (s) => s.bytes_per_hour, cell: (s) => (s.bytes_per_hour === null ? <span class="mut">unknown</span> : brief(s.bytes_per_hour / 1e6)) },
    { key: "missing", title: "To know", class: "c-why", cell: (s) => <ServiceNotes s={s} /> },
  ];
  return (
    <section class="panel trace-services" aria-label="services">
      <header class="panel-h"><h2>Services</h2><span class="u">what they send, and what it costs in an hour</span></header>
      {list.length === 0 ? <p class="calm">no service sent a span in this range</p> : <Table label="services" rows={list} columns={columns} rowKey={(s) => s.service} sort={sort.value} onSort={(x) => (sort.value = x)} onOpen={(s) => change({ service: s.service })} />}
      <footer class="panel-f"><span class="mut">missing or misspelled switches: <code>rollscope doctor tracing</code></span></footer>
    </section>
  );
}

function ServiceNotes({ s }: { s: api.TraceService }) {
  const parts = [s.hint ?? "", ...s.missing.map((m) => `missing: ${m}`), s.attributes_dropped_spans > 0 ? `${plural(s.attributes_dropped_spans, "span")} with attributes dropped by the sender` : ""].filter(Boolean);
  if (parts.length === 0) return null;
  const text = parts.join(" · ");
  return <span title={text} class="svc-note">{(s.missing.length > 0 || s.attributes_dropped_spans > 0) && <StateIcon level="warn" />} {text}</span>;
}

function Results({ res, list }: { res: Answer; list: api.TraceRow[] }) {
  const v = view.value;
  const columns = useMapped(res, () => traceColumns(list), [list]).value ?? [];
  return (
    <section class="panel request-rows" aria-label="traces">
      <header class="panel-h">
        <h2>Traces</h2>
        <span class="u">{res.value ? `${list.length >= LIMIT ? `the first ${grouped(LIMIT, 0)}` : plural(list.length, "trace")}${v.sort ? "" : " · slowest first"}` : ""}</span>
        <Notes list={res.value?.warnings ?? []} />
        <span class="sp" />
        <span class="u">Enter opens · <kbd>r</kbd> request</span>
      </header>
      <LoadingBar on={res.loading} />
      {res.value && list.length === 0 && <p class="calm">no trace that was kept fits; a wider range or fewer conditions may find one</p>}
      {list.length > 0 && (
        <Table label="traces" rows={list} columns={columns} rowKey={(t) => t.trace_id} sort={v.sort || "-duration"} onSort={(sort) => change({ sort }, "replace")} onOpen={(t) => change({ ...NO_TRACE, id: t.trace_id })} primary
          keys={{ r: (t) => (t.request_id || t.rid) && open("requests", t.request_id ? { id: t.request_id } : requestBy(t)) }} />
      )}
      {res.error && res.value && <footer class="panel-f"><StaleNote res={res} /></footer>}
    </section>
  );
}

/** The request of a trace by its rid, where the list does not know it. */
function requestBy(t: api.TraceRow): Partial<View> {
  return { filter: filterOf({ rid: t.rid }), id: "first", range: around(parseApiTime(t.start), t.duration_seconds) };
}

function traceColumns(list: api.TraceRow[]): Column<api.TraceRow>[] {
  const scale = secondsScale(list.map((t) => t.duration_seconds));
  const max = Math.max(1e-9, ...list.map((t) => t.duration_seconds));
  return [
    { key: "start", title: "Start, UTC", largeFirst: true, value: (t) => parseApiTime(t.start) || null, cell: (t) => startText(parseApiTime(t.start)) },
    { key: "root", title: "Root", class: "c-why", value: (t) => t.root, cell: (t) => <Link patch={{ ...NO_TRACE, id: t.trace_id }} title={`${t.service} ${t.root}`}>{t.root || <span class="mut">missing</span>}</Link> },
    { key: "service", title: "Service", class: "sec", value: (t) => t.service, cell: (t) => t.service || <span class="mut">unknown</span> },
    { key: "duration", title: `Duration, ${scale.unit}`, right: true, largeFirst: true, value: (t) => t.duration_seconds, cell: (t) => <span class="cell"><i class="dur" aria-hidden="true"><i style={{ width: `${(t.duration_seconds / max) * 100}%` }} /></i><span class="num">{format(t.duration_seconds, scale)}</span></span> },
    { key: "spans", title: "Spans", right: true, largeFirst: true, value: (t) => t.spans, cell: (t) => grouped(t.spans, 0) },
    { key: "errors", title: "Errors", right: true, largeFirst: true, value: (t) => t.errors, cell: (t) => (t.errors > 0 ? <span class="bad">{grouped(t.errors, 0)}</span> : "0") },
    { key: "services", title: "Of services", class: "sec c-why", cell: (t) => { const s = Object.entries(t.services).map(([k, n]) => `${k} ${grouped(n, 0)}`).join(" · "); return <span title={s}>{s}</span>; } },
    { key: "rid", title: "Request", class: "mono", value: (t) => t.rid, cell: (t) => (t.request_id ? <Link to="requests" patch={{ id: t.request_id }}>{short(t.rid || t.request_id, 14)}</Link> : t.rid ? <Link to="requests" patch={requestBy(t)} title="the requests with this rid">{short(t.rid, 14)}</Link> : <span class="mut">–</span>) },
    { key: "id", title: "Trace id", class: "mono sec", value: (t) => t.trace_id, cell: (t) => short(t.trace_id, 12) },
    { key: "flags", title: "Notes", cell: (t) => <>{t.flags.map((f) => <Badge key={f} level="warn" title={flagWords(f)}>{f.replace(/_/g, " ")}</Badge>)}</> },
  ];
}
