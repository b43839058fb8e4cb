// One row a request: which ones, how slow, how they ended, how many met both targets; a cloud of any two of
// their numbers, and everything that is known of one.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { EventsBadge, EventsStrip, eventsOff, NothingHere, TRACES_HOW } from "../components/eventsnote";
import { FilterBox } from "../components/filterbox";
import { Popover } from "../components/popover";
import { RequestTable } from "../components/requesttable";
import { ErrorBox, LoadingBar, Notes, StaleNote } from "../components/state";
import { TopBar } from "../components/topbar";
import { grouped, plural } from "../format/number";
import { useEvents } from "../state/events";
import { needEngines, servedFilter } from "../state/fleet";
import { useKeys } from "../state/keys";
import { range, win } from "../state/live";
import { logsFilter } from "../state/joins";
import { useResource, type Resource } from "../state/resource";
import { change, open, view } from "../state/view";
import { logsPatch, RequestPanel } from "./requestpanel";
import { allColumns, columnsOf, NUMBERS, target, TITLES, toggled } from "./requestfields";
import { RequestScatter } from "./requestscatter";
import { GroupTable, SummaryPanel } from "./requestsummary";

/** Rows that are asked for at first, and more each time the end comes into sight. */
const PAGE = 500;
const MOST = 3000;
const BY: [string, string][] = [["", "nothing"], ["engine", "engine"], ["prefill_engine", "prefill engine"], ["model", "model"], ["service", "service"], ["run", "run"], ["step", "step"], ["outcome", "outcome"], ["finish", "finish reason"]];

export function Requests() {
  const v = view.value;
  const w = win.value;
  const store = useEvents();
  const [limit, setLimit] = useState(PAGE);
  const sort = v.sort || "-e2e";
  const window_ = { from: apiTime(w.from), to: apiTime(w.to) };
  useEffect(() => setLimit(PAGE), [v.filter, sort, range.value]);
  useEffect(() => void needEngines().catch(() => undefined), []); // for their names; ids do without
  const filter = servedFilter(v.filter);
  const key = `${w.from} ${w.to} ${filter} ${sort} ${limit}`;
  const res = useResource("requests", key, (abort) => load({ ...window_, filter, sort: sort.replace(/^-/, ""), desc: sort.startsWith("-") ? 1 : 0 }, limit, abort));
  const [ttft, itl] = [target(v.goalTTFT), target(v.goalITL)];
  const goal = (t: number | null) => (t === null || Number.isNaN(t) ? undefined : t);
  const summary = useResource("requests summary", `${w.from} ${w.to} ${filter} ${v.by} ${ttft} ${itl}`, (abort) =>
    get<api.RequestSummary>("/requests/summary", { ...window_, filter, by: v.by, ttft: goal(ttft), itl: goal(itl) }, abort),
  );
  const rows = res.value?.data.requests ?? NONE;
  const total = res.value?.data.total ?? null;
  // A link that does not know the id yet asks for the first.
  useEffect(() => {
    if (v.id === "first" && res.value && !res.loading) change({ id: rows[0]?.id ?? "" }, "replace");
  }, [v.id, res.value, res.loading]);
  const bad = res.error && ["bad_parameter", "bad_query", "malformed"].includes(res.error.code) && v.filter !== "" ? [res.error.message, res.error.hint].filter(Boolean).join(" · ") : "";
  const failed = res.error && !res.value && !bad ? res.error : undefined;
  const none = eventsOff(store, res.error) || (res.value !== undefined && rows.length === 0 && v.filter === "");
  useKeys({
    i: () => document.querySelector<HTMLElement>(".page-requests .fbox input")?.focus(),
    Escape: () => {
      if (v.id === "") return false;
      change({ id: "" });
      return true;
    },
  });
  const select = (r: api.RequestRow) => change({ id: r.id === v.id ? "" : r.id }, v.id ? "replace" : "push");
  const more = (rows.length >= limit && limit < MOST);
  const known = useMemo(() => rows.find((r) => r.id === v.id), [rows, v.id]);
  return (
    <>
      <TopBar title="Requests" sub={res.value && <Sub shown={rows.length} total={total} filter={v.filter} />}>
        <EventsBadge state={store} />
      </TopBar>
      <main class="main page-requests">
        <EventsStrip state={store} />
        <section class="panel strip events-bar" aria-label="which requests">
          <FilterBox value={v.filter} label="filter requests" placeholder="ttft>5s step:40 engine:decode-5 outcome:error" error={bad} help={<FilterHelp />} onApply={(filter, how) => change({ filter, id: "" }, how)} />
          <label class="picker"><span class="mut">by</span>
            <select aria-label="group by" value={v.by} onChange={(e) => change({ by: e.currentTarget.value })}>
              {BY.map(([k, name]) => <option key={k} value={k}>{name}</option>)}
            </select>
          </label>
          <Goal label="TTFT" value={v.goalTTFT} placeholder="2s" bad={Number.isNaN(ttft)} onSet={(goalTTFT) => change({ goalTTFT })} />
          <Goal label="ITL" value={v.goalITL} placeholder="50ms" bad={Number.isNaN(itl)} onSet={(goalITL) => change({ goalITL })} />
          <span class="sp" />
          <ColumnsButton />
        </section>
        {failed && !eventsOff(store, failed) && <section class="panel"><ErrorBox error={failed} failingSince={res.failingSince} /></section>}
        {none && !failed && (
          <section class="panel"><NothingHere what="No request was seen in this range: neither in spans, nor in log lines, nor in a rollout's dump." how={TRACES_HOW} state={store} error={res.error} /></section>
        )}
        {none && failed && eventsOff(store, failed) && <section class="panel"><NothingHere what="" how={TRACES_HOW} state={store} error={failed} /></section>}
        {!none && !failed && (
          <div class={v.id && v.id !== "first" ? "events-body with-details" : "events-body"}>
            <div class="events-left">
              <div class="request-head">
                <SummaryPanel res={summary} ttft={ttft} itl={itl} />
                <RequestScatter selected={v.id} />
              </div>
              {v.by !== "" && <GroupTable res={summary} by={v.by} />}
              <Rows res={res} rows={rows} sort={sort} onMore={() => more && !res.loading && setLimit(Math.min(MOST, limit + PAGE))} onOpen={select} cut={rows.length >= MOST} total={total} />
            </div>
            {v.id !== "" && v.id !== "first" && <RequestPanel id={v.id} known={known} />}
          </div>
        )}
      </main>
    </>
  );
}

const NONE: api.RequestRow[] = [];

/** The first rows of a list, a page after the other. */
async function load(query: Record<string, string | number>, limit: number, abort: AbortSignal): Promise<api.Envelope<api.Requests>> {
  const all = await get<api.Requests>("/requests", { ...query, limit: PAGE }, abort);
  let next = all.next;
  while (next && all.data.requests.length < limit) {
    const more = await get<api.Requests>("/requests", { ...query, limit: PAGE, after: next }, abort);
    all.data.requests.push(...more.data.requests);
    next = more.next;
  }
  return all;
}

function Sub({ shown, total, filter }: { shown: number; total: number | null; filter: string }) {
  const what = filter ? "that fit" : "in this range";
  return <>{total !== null ? `${plural(total, "request")} ${what}` : `${plural(shown, "request")} shown`}</>;
}

interface RowsProps {
  res: Resource<api.Envelope<api.Requests>>;
  rows: api.RequestRow[];
  sort: string;
  total: number | null;
  cut: boolean;
  onMore: () => void;
  onOpen: (r: api.RequestRow) => void;
}

function Rows({ res, rows, sort, total, cut, onMore, onOpen }: RowsProps) {
  const v = view.value;
  return (
    <section class="panel request-rows" aria-label="requests">
      <header class="panel-h">
        <h2>Requests</h2>
        <span class="u">{v.sort === "" ? "slowest first" : ""}{total !== null && rows.length < total ? `${v.sort === "" ? " · " : ""}${grouped(rows.length, 0)} of ${grouped(total, 0)} loaded` : ""}{cut ? " · a filter or a shorter range shows the others" : ""}</span>
        <Notes list={res.value?.warnings ?? []} />
        <span class="sp" />
        <span class="u">Enter opens · <kbd>t</kbd> trace · <kbd>l</kbd> log lines · <kbd>e</kbd> engine</span>
      </header>
      <LoadingBar on={res.loading} />
      {res.value && rows.length === 0 && <p class="calm">no request fits the filter in this range</p>}
      {rows.length > 0 && (
        <RequestTable
          rows={rows} columns={v.columns} selected={v.id} sort={sort} onSort={(s) => change({ sort: s }, "replace")} onOpen={onOpen} onEnd={onMore}
          keys={{
            t: (r) => r.trace_id && open("traces", { id: r.trace_id }),
            l: (r) => logsFilter({ rid: r.rid, traceID: r.trace_id }) && open("logs", logsPatch(r)),
            e: (r) => r.engine_id && open("engines", { engine: r.engine_id }),
          }}
        />
      )}
      {res.error && res.value && <footer class="panel-f"><StaleNote res={res} /></footer>}
    </section>
  );
}

function Goal({ label, value, placeholder, bad, onSet }: { label: string; value: string; placeholder: string; bad: boolean; onSet: (v: string) => void }) {
  return (
    <label class="step goal" title={`goodput: ${label} of at most this`}>
      <span class="mut">{label} ≤</span>
      <input type="text" size={5} spellcheck={false} autocomplete="off" placeholder={placeholder} value={value} aria-invalid={bad} aria-label={`target of ${label}`} onChange={(e) => onSet(e.currentTarget.value.trim())} />
    </label>
  );
}

function ColumnsButton() {
  const shown = useSignal(false);
  const text = view.value.columns;
  const on = new Set(columnsOf(text));
  return (
    <span class="anchor">
      <button type="button" class="btn" aria-expanded={shown.value} onClick={() => (shown.value = !shown.value)}>Columns ▾</button>
      {shown.value && (
        <Popover label="columns" class="pop-columns" onClose={() => (shown.value = false)}>
          <div class="columns-list">
            {allColumns.map((k) => (
              <label class="tl-check" key={k}>
                <input type="checkbox" checked={on.has(k)} disabled={k === "rid"} onChange={() => change({ columns: toggled(text, k) }, "replace")} /> {NUMBERS.find((n) => n.key === k)?.title ?? TITLES[k] ?? k}
              </label>
            ))}
          </div>
          <button type="button" class="quiet" onClick={() => change({ columns: "" }, "replace")}>the usual ones</button>
        </Popover>
      )}
    </span>
  );
}

export function FilterHelp() {
  return (
    <>
      <dl>
        <div><dt><code>ttft&gt;5s</code></dt><dd>numbers: &lt; &lt;= &gt; &gt;= with ms, s, m for times, k, M for counts</dd></div>
        <div><dt><code>engine:decode-5</code></dt><dd>the field has the text; <code>engine="10.0.0.1:30000"</code> is exactly this</dd></div>
        <div><dt><code>model~qwen.*chat</code></dt><dd>a regular expression fits</dd></div>
        <div><dt><code>-outcome:ok</code></dt><dd>not</dd></div>
        <div><dt><code>step:40 outcome:error</code></dt><dd>both; the run too: <code>run:NAME</code></dd></div>
      </dl>
      <p class="mut">Numbers: {NUMBERS.map((n) => n.key).join(" ")}. Words: rid trace engine prefill_engine model service outcome finish error run kind flag source spans; <code>step:none</code> and <code>step:any</code> ask whether there is one. Outcomes: ok error aborted running.</p>
    </>
  );
}

