// Log lines of engines, routers and trainers: how many of which class and when, and the lines, followed
// live.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { apiTime, Failure, get } from "../api/client";
import type * as api from "../api/types";
import { StackedBars } from "../charts/bars";
import { EventsBadge, EventsStrip, eventsOff, LOGS_HOW, NothingHere } from "../components/eventsnote";
import { FilterBox } from "../components/filterbox";
import { Badge, ErrorBox, LoadingBar, Notes, StaleNote } from "../components/state";
import { TopBar } from "../components/topbar";
import { grouped, plural } from "../format/number";
import { parseApiTime } from "../format/time";
import { useEvents } from "../state/events";
import { engineList, engineName } from "../state/fleet";
import { useKeys } from "../state/keys";
import { heard, isLive, isReady, now, tick, win, windowFor } from "../state/live";
import { fixed } from "../state/route";
import { useResource, type Resource } from "../state/resource";
import { change, view, zoomTo } from "../state/view";
import { lineColour, merge, severity } from "./loglist";
import { LogLines } from "./loglines";

const PAGE = 500;
/** Lines may come in late: so far back the tail is asked again. */
const LATE_MS = 15_000;
const TAIL = 2000;
/** The end of what is followed: clocks of hosts may be ahead of ours. */
const ahead = () => now() + 60_000;

interface Lines {
  key: string;
  records: api.LogRecord[];
  more: boolean;
  loading: boolean;
  /** more came at once than can be shown */
  gap: boolean;
  error?: Failure | undefined;
  warnings: api.Warning[];
}

/** The lines of a query: the newest of the window, older ones when asked for, and what comes while it is live. */
function useLines(query: Record<string, string>): Lines & { older: () => void } {
  const ready = isReady.value;
  const live = isLive.value;
  const w = win.value;
  const key = JSON.stringify([query, live ? "live" : `${w.from} ${w.to}`, live ? w.to - w.from : 0]);
  const [state, setState] = useState<Lines>({ key: "", records: [], more: true, loading: true, gap: false, warnings: [] });
  const latest = useRef(state);
  latest.current = state;
  const busy = useRef(false);
  const ask = (more: Record<string, string | number>, abort?: AbortSignal) => get<api.Logs>("/logs", { ...query, ...more }, abort);
  const failed = (err: unknown): Failure => (err instanceof Failure ? err : new Failure("bad_answer", String(err)));

  useEffect(() => {
    if (!ready) return;
    const stop = new AbortController();
    setState((s) => ({ ...s, loading: true }));
    busy.current = true;
    ask({ from: apiTime(w.from), to: apiTime(live ? ahead() : w.to), limit: PAGE }, stop.signal).then(
      (e) => {
        if (stop.signal.aborted) return;
        busy.current = false;
        heard();
        setState({ key, records: merge([], e.data.records), more: e.data.records.length >= PAGE, loading: false, gap: false, warnings: e.warnings });
      },
      (err: unknown) => {
        if (stop.signal.aborted) return;
        busy.current = false;
        setState((s) => ({ ...s, key, records: s.key === key ? s.records : [], loading: false, error: failed(err) }));
      },
    );
    return () => stop.abort();
  }, [key, ready]);

  const count = tick.value;
  const first = useRef(count);
  useEffect(() => {
    if (count === first.current || !live || busy.current || latest.current.key !== key) return;
    const newest = latest.current.records[0];
    const since = newest ? Math.max(w.from, parseApiTime(newest.time) - LATE_MS) : w.from;
    busy.current = true;
    ask({ from: apiTime(since), to: apiTime(ahead()), limit: TAIL }).then(
      (e) => {
        busy.current = false;
        heard();
        setState((s) => {
          if (s.key !== key) return s;
          const full = e.data.records.length >= TAIL && !e.data.records.some((r) => r.id === newest?.id);
          return { ...s, records: full ? merge([], e.data.records) : merge(s.records, e.data.records), gap: s.gap || (full && newest !== undefined), more: s.more || full, error: undefined, warnings: e.warnings };
        });
      },
      (err: unknown) => {
        busy.current = false;
        setState((s) => (s.key === key ? { ...s, error: failed(err) } : s));
      },
    );
  }, [count]);

  const older = () => {
    const s = latest.current;
    const last = s.records.at(-1);
    if (busy.current || !last || !s.more) return;
    busy.current = true;
    setState((x) => ({ ...x, loading: true }));
    ask({ from: apiTime(w.from), to: last.time, limit: PAGE }).then(
      (e) => {
        busy.current = false;
        setState((x) => {
          if (x.key !== key) return x;
          const records = merge(x.records, e.data.records);
          return { ...x, records, more: e.data.records.length >= PAGE && records.length > x.records.length, loading: false };
        });
      },
      (err: unknown) => {
        busy.current = false;
        setState((x) => ({ ...x, loading: false, error: failed(err) }));
      },
    );
  };
  return { ...state, older };
}

export function Logs() {
  const v = view.value;
  const w = windowFor(140);
  const store = useEvents();
  const query = useMemo(() => {
    const q: Record<string, string> = { q: v.filter, class: v.lineClass, level: v.level, engine: v.engine, service: v.service };
    return Object.fromEntries(Object.entries(q).filter(([, x]) => x !== ""));
  }, [v.filter, v.lineClass, v.level, v.engine, v.service]);
  const lines = useLines(query);
  const by = v.by || "class";
  const { class: _, ...unclassed } = query;
  const hist = useResource(`logs histogram ${by}`, `${w.from} ${w.to} ${JSON.stringify(query)}`, (abort) =>
    get<api.LogHistogram>("/logs/histogram", { ...query, by, from: apiTime(w.from), to: apiTime(w.to), step: w.step / 1000 }, abort));
  // Counts of classes are of all lines that fit otherwise, so that another can be chosen.
  const all = useResource(v.lineClass ? "logs classes" : null, `${w.from} ${w.to} ${JSON.stringify(unclassed)}`, (abort) =>
    get<api.LogHistogram>("/logs/histogram", { ...unclassed, by: "class", from: apiTime(w.from), to: apiTime(w.to), step: (w.to - w.from) / 1000 }, abort));
  const classes = (v.lineClass ? all.value?.data.classes : hist.value?.data.classes) ?? {};
  const [top, setTop] = useState(true);
  const fresh = useSignal("");
  useEffect(() => {
    if (top) fresh.value = lines.records[0]?.id ?? "";
  }, [top, lines.records]);
  const waiting = top ? 0 : Math.max(0, lines.records.findIndex((r) => r.id === fresh.value));
  const error = lines.error;
  const bad = error && ["bad_parameter", "bad_query", "malformed"].includes(error.code) ? [error.message, error.hint].filter(Boolean).join(" · ") : "";
  const off = eventsOff(store, error);
  const failed = error && lines.records.length === 0 && !bad && !off ? error : undefined;
  const asked = Object.keys(query).length > 0;
  const none = off || (!lines.loading && !error && lines.records.length === 0 && !asked && (hist.value?.data.total ?? 0) === 0);
  useKeys({ i: () => document.querySelector<HTMLElement>(".page-logs .fbox input")?.focus() });
  return (
    <>
      <TopBar title="Logs" sub={hist.value && plural(hist.value.data.total, "line")}>
        <EventsBadge state={store} />
      </TopBar>
      <main class="main page-logs">
        <EventsStrip state={store} />
        <section class="panel strip events-bar" aria-label="which lines">
          <FilterBox value={v.filter} label="LogsQL" placeholder={'LogsQL: "out of memory"  token_usage:>0.95  rid:="…"'} error={bad} help={<LogsHelp />} onApply={(filter, how) => change({ filter, id: "" }, how)} />
          <Pick label="engine" value={v.engine} options={engines(v.engine)} onPick={(engine) => change({ engine, id: "" })} />
          <Pick label="level" value={v.level} options={["error", "warning", "info", "debug"].map((l) => [l, l])} onPick={(level) => change({ level, id: "" })} />
          {v.service && <button type="button" class="chip on" title="lines of all services" onClick={() => change({ service: "" })}>{v.service} ×</button>}
        </section>
        {failed && <section class="panel"><ErrorBox error={failed} /></section>}
        {none && <section class="panel"><NothingHere what="No log line came in this range." how={LOGS_HOW} state={store} error={error} /></section>}
        {!none && !failed && (
          <>
            <Histogram res={hist} by={by} window={w} classes={classes} />
            <section class="panel log-panel" aria-label="lines">
              <header class="panel-h">
                <h2>Lines</h2>
                <span class="u">newest first · {plural(lines.records.length, "line")} loaded</span>
                {lines.gap && <Badge level="unknown" title="between two looks more lines came than are read at once; a filter or a shorter range shows them">lines in between are not shown</Badge>}
                <Notes list={lines.warnings} />
                {error && !bad && lines.records.length > 0 && <span class="stale" role="status">{error.message}</span>}
                <span class="sp" />
                {isLive.value ? <span class="u tailing">{top ? "following" : "what you read stays; new lines come in above"}</span> : <span class="u">not following: the range is fixed or live is off (Space)</span>}
              </header>
              <LoadingBar on={lines.loading} />
              {waiting > 0 && (
                <button type="button" class="btn on log-new" onClick={() => {
                  const el = document.querySelector(".log-lines");
                  if (el) el.scrollTop = 0;
                }}>{plural(waiting, "new line")} ▴</button>
              )}
              {!lines.loading && lines.records.length === 0 && !bad && <p class="calm">no line fits in this range</p>}
              <LogLines records={lines.records} more={lines.more} loading={lines.loading} onOlder={lines.older} onTop={setTop} />
            </section>
          </>
        )}
      </main>
    </>
  );
}

function engines(chosen: string): [string, string][] {
  const list = (engineList.value ?? []).map((e): [string, string] => [e.instance, e.name]);
  return chosen && !list.some(([k]) => k === chosen) ? [...list, [chosen, chosen]] : list;
}

function Pick({ label, value, options, onPick }: { label: string; value: string; options: [string, string][]; onPick: (v: string) => void }) {
  return (
    <label class="picker"><span class="mut">{label}</span>
      <select aria-label={label} value={value} onChange={(e) => onPick(e.currentTarget.value)}>
        <option value="">any</option>
        {options.map(([k, name]) => <option key={k} value={k}>{name}</option>)}
      </select>
    </label>
  );
}

function Histogram({ res, by, window: w, classes }: { res: Resource<api.Envelope<api.LogHistogram>>; by: string; window: { from: number; to: number; step: number }; classes: Record<string, number> }) {
  const d = res.value?.data;
  const v = view.value;
  const series = useMemo(() => {
    const list = [...(d?.series ?? [])];
    const sum = (s: api.LogSeries) => s.counts.reduce((a, b) => a + b, 0);
    if (by === "engine") list.sort((a, b) => sum(b) - sum(a));
    else list.sort((a, b) => severity(by, a.name) - severity(by, b.name));
    return list.map((s, i) => ({ name: s.name, color: lineColour(by, s.name, i), counts: s.counts, total: sum(s) }));
  }, [d, by]);
  const chips = Object.entries(classes).filter(([k]) => k !== "" && k !== "none").sort(([a], [b]) => severity("class", a) - severity("class", b));
  if (v.lineClass && !chips.some(([k]) => k === v.lineClass)) chips.unshift([v.lineClass, 0]);
  return (
    <section class="panel log-histogram" aria-label="histogram">
      <header class="panel-h">
        <h2>Lines</h2>
        <span class="u">in {w.step / 1000} s each, by</span>
        <span class="seg" role="group" aria-label="split by">
          {["class", "level", "engine"].map((k) => <button type="button" key={k} class={by === k ? "chip on" : "chip"} aria-pressed={by === k} onClick={() => change({ by: k === "class" ? "" : k }, "replace")}>{k}</button>)}
        </span>
        <span class="sp" />
        <StaleNote res={res} />
        <span class="cloud-legend">{series.filter((s) => by !== "class" || !chips.some(([k]) => k === s.name)).slice(0, 12).map((s) => <span key={s.name} class="quiet"><i class="sw" style={{ "--c": `var(${s.color})` }} />{nameOf(by, s.name)} <span class="mut">{grouped(s.total, 0)}</span></span>)}</span>
      </header>
      <LoadingBar on={res.loading} />
      <div class="log-bars">
        {res.error && !d && <ErrorBox error={res.error} failingSince={res.failingSince} />}
        {d && <StackedBars series={series} from={parseApiTime(d.from)} step={d.step_seconds * 1000} window={w} label={`${grouped(d.total, 0)} log lines over time by ${by}: ${series.map((s) => `${nameOf(by, s.name)} ${grouped(s.total, 0)}`).join(", ")}`}
          onRange={(a, b) => zoomTo(fixed(Math.floor(a / 1000) * 1000, Math.ceil(b / 1000) * 1000))} onBar={(a, b) => zoomTo(fixed(a, b))} />}
      </div>
      {chips.length > 0 && (
        <div class="log-chips" role="group" aria-label="classes">
          {chips.map(([k, n]) => (
            <button type="button" key={k} class={v.lineClass === k ? "chip on" : "chip"} aria-pressed={v.lineClass === k} onClick={() => change({ lineClass: v.lineClass === k ? "" : k, id: "" })}>
              <i class="sw" style={{ "--c": `var(${lineColour("class", k, 0)})` }} aria-hidden="true" /> {k} <b>{grouped(n, 0)}</b>
            </button>
          ))}
          {v.lineClass && <button type="button" class="quiet" onClick={() => change({ lineClass: "" })}>all classes</button>}
        </div>
      )}
    </section>
  );
}

function nameOf(by: string, name: string): string {
  return name === "" || name === "none" ? (by === "class" ? "no class" : by === "level" ? "no level" : "unknown") : by === "engine" ? engineName(name) : name;
}

function LogsHelp() {
  return (
    <>
      <dl>
        <div><dt><code>"out of memory"</code></dt><dd>the line has the words in this order</dd></div>
        <div><dt><code>token_usage:&gt;0.95</code></dt><dd>a number read from the line</dd></div>
        <div><dt><code>rid:="a1b2"</code></dt><dd>the field is exactly this</dd></div>
        <div><dt><code>a or b, -c, ~"re.*"</code></dt><dd>either, not, a regular expression</dd></div>
      </dl>
      <p class="mut">Any LogsQL filter. Fields: class level engine service source rid trace_id format, and what was read from the line: unfold one to see them.</p>
    </>
  );
}
