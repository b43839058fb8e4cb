// Below the strip: what waits by kind, each rank's stream, where messages come from and go to, and bursts.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Failure, fetchJSON, API } from "../api/client";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { Badge } from "../components/state";
import { Table, type Column } from "../components/table";
import { brief, grouped, plural } from "../format/number";
import { clock, dayClock, duration, parseApiTime, since } from "../format/time";
import { rankKey } from "../passes/ring";
import type { PassModel } from "../passes/model";
import { busyShare, plain, queueRuleWords, rankLevel, seconds, sourceLevel } from "../passes/words";
import { isArchive, now, refresh, status, today } from "../state/live";
import { change } from "../state/view";

/** The colour of a kind of waiting; a part of it in brackets is what waits, "waiting (prefill)". */
function partColor(name: string): string {
  const n = (/\((.*)\)/.exec(name)?.[1] ?? name).split(" ")[0] ?? "";
  const tokens: Record<string, string> = { prefill: "--ph-p-forward", decode: "--ph-d-forward", bootstrap: "--ph-p-bootstrap", prealloc: "--ph-d-prealloc", transfer: "--ph-d-transfer", waiting: "--ph-queue", preempted: "--ph-tool" };
  return `var(${tokens[n] ?? "--s7"})`;
}

/** What waits, by kind, out of passes and beside it out of the engine's metrics. */
export function QueuesPanel({ engines, worker }: { engines: api.PassEngine[]; worker: string }) {
  const list = worker ? engines.filter((e) => e.id === worker) : engines;
  const most = Math.max(1, ...list.flatMap((e) => [e.queue?.requests ?? 0, e.scraped_queue?.requests ?? 0]));
  const kinds = [...new Set(list.flatMap((e) => [...(e.queue?.parts ?? []), ...(e.scraped_queue?.parts ?? [])].map((p) => p.name)))];
  const columns: Column<api.PassEngine>[] = [
    { key: "worker", title: "Worker", class: "c-name", cell: (e) => <Link patch={{ worker: worker ? "" : e.id }} title={workerTitle(e)}>{e.name}</Link>, value: (e) => e.name },
    { key: "state", title: "State", cell: (e) => <Badge level={rankLevel(e.state)} title={e.silent_ranks > 0 ? `${plural(e.silent_ranks, "rank")} silent` : undefined}>{e.state}</Badge>, value: (e) => e.state },
    { key: "pass", title: "Pass, ms", right: true, hint: "the longest current iteration of its ranks", cell: (e) => (e.iteration_seconds !== null ? brief(e.iteration_seconds * 1000) : <Word of={e.state} />), value: (e) => e.iteration_seconds, largeFirst: true },
    { key: "run", title: "P + D", right: true, hint: "requests in the current passes: prefill and decode", cell: (e) => (e.state === "stale" ? <Word of="stale" /> : `${grouped(e.load.prefill_requests, 0)} + ${grouped(e.load.decode_requests, 0)}`), value: (e) => e.load.prefill_requests + e.load.decode_requests, largeFirst: true },
    { key: "queue", title: "Queued", right: true, hint: "as passes tell it", cell: (e) => <QueueCell q={e.queue} most={most} rule={e.queue_rule} state={e.state} />, value: (e) => e.queue?.requests ?? null, largeFirst: true },
    { key: "scraped", title: "Scraped", right: true, hint: "the same out of the engine's metrics", cell: (e) => (e.scraped_queue ? <QueueCell q={e.scraped_queue} most={most} rule="out of the engine's metrics" state="" /> : <span class="mut" title="no metrics of this engine are scraped, or it has none of its queue">–</span>), value: (e) => e.scraped_queue?.requests ?? null, largeFirst: true },
    { key: "imbalance", title: "Imbalance", right: true, hint: "the busiest rank's share over the mean; 1 is even", cell: (e) => (e.imbalance === null ? <span class="mut">–</span> : `${e.imbalance.toFixed(2)}×`), value: (e) => e.imbalance, largeFirst: true },
  ];
  const sort = useSignal("");
  const differ = list.filter((e) => e.queues_differ);
  const one = list.length === 1 ? list[0] : undefined;
  return (
    <section class="panel pass-queues" aria-label="queues by kind">
      <header class="panel-h">
        <h2>Queues</h2><span class="u">requests by kind, as passes tell it and as the engine's metrics do</span>
      </header>
      {list.length === 0 ? <p class="calm">no worker has sent anything yet</p> : <Table label="queues of workers" rows={list} columns={columns} rowKey={(e) => e.id} sort={sort.value} onSort={(s) => (sort.value = s)} onOpen={(e) => change({ worker: worker ? "" : e.id })} />}
      {kinds.length > 0 && !one && <div class="leg pass-legend" aria-hidden="true">{kinds.map((k) => <span key={k}><i class="key-bar" style={{ background: partColor(k) }} />{k}</span>)}</div>}
      {one && <QueueDetail e={one} />}
      {differ.map((e) => <p class="trap" key={e.id}><Badge level="warn">differ</Badge><span><b>{e.name}</b> {e.queues_differ}</span></p>)}
    </section>
  );
}

const workerTitle = (e: api.PassEngine): string => [`${e.namespace}/${e.component}`, e.worker_id ? `worker ${e.worker_id} = 0x${e.worker_id_hex}` : "it has no worker id", e.role, queueRuleWords(e.queue_rule)].join("\n");

/** A number that a silent rank cannot have, and one that an idle one has not. */
function Word({ of }: { of: string }) {
  return of === "idle" ? <span class="mut">idle</span> : <span class="tip-unknown">unknown</span>;
}

function QueueCell({ q, most, rule, state }: { q: api.PassQueue | null; most: number; rule: string; state: string }) {
  if (!q) return <Word of={state === "idle" ? "idle" : "stale"} />;
  const words = (q.parts ?? []).map((p) => `${p.name}: ${p.requests === null ? "not told" : `${brief(p.requests)} requests`}${p.tokens !== null ? `, ${grouped(p.tokens, 0)} tokens` : ""}`);
  return (
    <span class="cell" title={[...words, queueRuleWords(rule)].join("\n")}>
      <span class="q-stack" aria-hidden="true">{(q.parts ?? []).map((p) => <i key={p.name} style={{ width: `${(100 * (p.requests ?? 0)) / most}%`, background: partColor(p.name) }} />)}</span>
      <span class="num">{brief(q.requests)}</span>
    </span>
  );
}

function QueueDetail({ e }: { e: api.PassEngine }) {
  const rows = [...new Set([...(e.queue?.parts ?? []), ...(e.scraped_queue?.parts ?? [])].map((p) => p.name))];
  const text = (v: number | null | undefined) => (v === null || v === undefined ? <span class="mut">not told</span> : grouped(v, Number.isInteger(v) ? 0 : 1));
  return (
    <div class="q-detail">
      <p class="sec">{queueRuleWords(e.queue_rule)}</p>
      {rows.length > 0 && (
        <table aria-label={`queue of ${e.name} by kind`}>
          <thead><tr><th>Kind</th><th class="n">Requests</th><th class="n">Tokens</th><th class="n">Scraped, requests</th></tr></thead>
          <tbody>{rows.map((k) => {
            const a = e.queue?.parts?.find((p) => p.name === k), b = e.scraped_queue?.parts?.find((p) => p.name === k);
            return <tr key={k}><td><i class="key-bar" style={{ background: partColor(k) }} /> {k}</td><td class="n">{text(a?.requests)}</td><td class="n">{text(a?.tokens)}</td><td class="n">{text(b?.requests)}</td></tr>;
          })}</tbody>
        </table>
      )}
    </div>
  );
}

interface RankLine extends api.PassRank {
  key: string;
  engine: api.PassEngine;
}

/** Each rank's stream: whether it can be believed. */
export function RanksPanel({ engines, worker, model }: { engines: api.PassEngine[]; worker: string; model: PassModel }) {
  const rows = useMemo(() => engines.filter((e) => !worker || e.id === worker).flatMap((e) => (e.ranks ?? []).map((r): RankLine => ({ ...r, engine: e, key: rankKey(e.id, r.rank) }))), [engines, worker]);
  model.moved.value;
  const count = (key: string, title: string, hint: string, of: (r: RankLine) => number | null): Column<RankLine> => ({
    key, title, hint, right: true, largeFirst: true, value: of,
    cell: (r) => {
      const v = of(r);
      return v === null ? <span class="tip-unknown" title="its messages have no numbers to see losses by">unknown</span> : v === 0 ? <span class="mut">0</span> : <b class={key === "lost" ? "pass-gaps" : key === "restarts" ? "pass-restarts" : ""}>{grouped(v, 0)}</b>;
    },
  });
  const columns: Column<RankLine>[] = [
    { key: "rank", title: "Rank", class: "c-name", cell: (r) => <>{r.engine.name} <b>{r.rank}</b></>, value: (r) => `${r.engine.name} ${r.rank}` },
    { key: "state", title: "State", cell: (r) => <Badge level={rankLevel(r.state)}>{r.state}</Badge>, value: (r) => r.state },
    { key: "busy", title: "Busy, %", right: true, largeFirst: true, hint: "time in passes since its first message; with ≥ at least so much: messages are missing, or some had no time", cell: (r) => <Busy r={r} />, value: (r) => busyShare(r) },
    { key: "passes", title: "Passes", right: true, largeFirst: true, cell: (r) => grouped(r.passes, 0), value: (r) => r.passes },
    { key: "beats", title: "Heartbeats", right: true, largeFirst: true, cell: (r) => grouped(r.heartbeats, 0), value: (r) => r.heartbeats },
    count("lost", "Lost", "messages that did not come", (r) => r.lost),
    count("late", "Late", "came after newer ones", (r) => r.late),
    count("duplicates", "Twice", "came more than once", (r) => r.duplicates),
    count("restarts", "Restarts", "the engine began anew", (r) => r.restarts),
    { key: "gap", title: "Last gap", right: true, largeFirst: true, cell: (r) => <At t={r.last_gap} />, value: (r) => parseApiTime(r.last_gap) || null },
    { key: "last", title: "Last message", right: true, largeFirst: true, cell: (r) => <At t={r.last} />, value: (r) => parseApiTime(r.last) || null },
    { key: "why", title: "Why", class: "c-why", cell: (r) => <span class="sec" title={[r.reason, ...(r.notices ?? [])].join("\n")}>{[...(r.notices ?? []), r.reason].join("; ")}</span> },
  ];
  const sort = useSignal("");
  return (
    <section class="panel pass-ranks" aria-label="ranks">
      <header class="panel-h">
        <h2>Ranks</h2><span class="u">counts since the first message; a press chooses the row of the strip</span>
      </header>
      {rows.length === 0 ? <p class="calm">no rank has sent anything yet</p> : (
        <Table label="ranks" rows={rows} columns={columns} rowKey={(r) => r.key} selected={model.selected} sort={sort.value} onSort={(s) => (sort.value = s)} onOpen={(r) => model.select(r.key === model.selected ? "" : r.key)} rowClass={(r) => (r.state === "stale" ? "dim" : "")} />
      )}
    </section>
  );
}

function Busy({ r }: { r: RankLine }) {
  const share = busyShare(r);
  if (share === null) return <span class="tip-unknown">unknown</span>;
  return <span title={r.busy_is_lower_bound ? `at least: ${r.unmeasured_seconds > 0 ? `${brief(r.unmeasured_seconds)} s of passes told no time` : "messages are missing"}` : undefined}>{r.busy_is_lower_bound ? "≥ " : ""}{(share * 100).toFixed(1)}</span>;
}

function At({ t }: { t: string | null | undefined }) {
  const ms = parseApiTime(t);
  if (Number.isNaN(ms)) return <span class="mut">never</span>;
  return <span title={dayClock(ms, today(), true)}>{clock(ms, true)}</span>;
}

/** Where messages come from and go to. */
export function SourcesPanel({ passes: p }: { passes: api.ForwardPasses | undefined }) {
  const sources = p?.sources ?? [];
  const relay = p?.relay;
  return (
    <section class="panel pass-sources" aria-label="sources of passes">
      <header class="panel-h"><h2>Sources</h2><span class="u">{sources.length > 0 ? plural(sources.length, "source") : ""}</span></header>
      {sources.length === 0 && <p class="calm">{p ? (isArchive.value ? "a recording: nothing comes in" : "no source is configured") : ""}</p>}
      <ul class="source-list scroll">
        {sources.map((s) => (
          <li key={s.name}>
            <div class="source-h">
              <Badge level={sourceLevel(s)}>{s.flow}</Badge><span class="source-name" title={`${plain(s.kind)}, ${s.state}`}>{s.name}</span><span class="sp" />
              <span class="sec">{plural(s.passes, "pass", "passes")}{s.heartbeats > 0 && `, ${plural(s.heartbeats, "heartbeat")}`}</span>
              {s.missed > 0 && <b class="pass-gaps" title="by the carrier's own numbers">{grouped(s.missed, 0)} missed</b>}
              {Object.entries(s.refused ?? {}).map(([reason, n]) => <b class="bad" key={reason} title={`refused: ${plain(reason)}`}>{grouped(n, 0)} {plain(reason)}</b>)}
            </div>
            {s.flow !== "receiving" && s.why && <div class="sec">{s.state !== "connected" ? `${plain(s.state)}: ` : ""}{s.why}</div>}
            {s.flow !== "receiving" && s.do && <div class="act"><span class="mut">Do</span> {s.do}</div>}
            {s.error && <div class="bad">{s.error}</div>}
          </li>
        ))}
      </ul>
      {relay && (
        <div class="source-relay">
          <div class="source-h"><Badge level={relay.state === "connected" ? "ok" : "unknown"}>{plain(relay.state)}</Badge><span class="source-name">relay to {relay.to}</span></div>
          <div class="sec">{grouped(relay.relayed, 0)} passed on · {grouped(relay.waiting, 0)} of {grouped(relay.limit, 0)} waiting · {relay.lost > 0 ? <b class="pass-gaps">{grouped(relay.lost, 0)} lost</b> : "none lost"}{relay.filtered > 0 && ` · ${grouped(relay.filtered, 0)} left out: on a plane already`}</div>
          {relay.error && <div class="bad">{relay.error}</div>}
        </div>
      )}
    </section>
  );
}

const AROUND = ["10s", "30s", "2m"];

/** Stretches of time of which every pass is kept. */
export function BurstsPanel({ passes: p, worker }: { passes: api.ForwardPasses | undefined; worker: string }) {
  const around = useSignal("30s");
  const busy = useSignal(false);
  const said = useSignal<{ level: api.Level; text: string } | null>(null);
  const may = p?.enabled === true && status.value.value?.read_only === false;
  useEffect(() => {
    if (!said.value) return;
    const t = setTimeout(() => (said.value = null), 8000);
    return () => clearTimeout(t);
  }, [said.value]);
  const record = async () => {
    busy.value = true;
    try {
      const form = new URLSearchParams({ around: around.value, reason: "asked for on the page" });
      if (worker) form.set("engine", worker);
      const { status: code, body } = await fetchJSON(`${API}/passes/bursts`, undefined, { method: "POST", body: form, headers: { "Content-Type": "application/x-www-form-urlencoded" } });
      const error = (body as Partial<api.ErrorBody>).error;
      said.value = code < 400 ? { level: "ok", text: `every pass from ${around.value} ago until ${around.value} from now is kept` } : { level: "crit", text: error ? [error.message, error.hint].filter(Boolean).join(": ") : `HTTP ${code}` };
      refresh();
    } catch (err) {
      said.value = { level: "crit", text: err instanceof Failure ? err.message : String(err) };
    }
    busy.value = false;
  };
  const bursts = p?.bursts ?? [];
  const rows = p?.rows;
  return (
    <section class="panel pass-bursts" aria-label="bursts">
      <header class="panel-h">
        <h2>Bursts</h2><span class="u">every pass of a time, kept</span><span class="sp" />
        {may && (
          <>
            <span class="choice low" role="group" aria-label="how long before and after now">
              {AROUND.map((a) => <button type="button" key={a} class={around.value === a ? "on" : ""} aria-pressed={around.value === a} onClick={() => (around.value = a)}>± {a}</button>)}
            </span>
            <button type="button" class="btn low" disabled={busy.value} title={worker ? "of this worker" : "of all workers"} onClick={() => void record()}>Record</button>
          </>
        )}
      </header>
      {said.value && <p class="burst-said" role="status"><Badge level={said.value.level} /> {said.value.text}</p>}
      {rows && <p class="mut">{rows.keep === "all" ? `all passes are kept${rows.retention_seconds !== null ? ` for ${duration(rows.retention_seconds * 1000)}` : ""}, bursts as long as other events` : rows.keep === "bursts" ? "only bursts are kept" : "no passes are kept as rows"} · {grouped(rows.stored, 0)} stored{rows.recent > 0 && ` · ${grouped(rows.recent, 0)} in memory, ${seconds(rows.recent_seconds)}`}</p>}
      {bursts.length === 0 ? <p class="calm">none yet</p> : (
        <ul class="burst-list scroll">
          {bursts.map((b) => {
            const from = parseApiTime(b.from), to = parseApiTime(b.to);
            return (
              <li key={b.id}>
                <Badge level={b.done ? "ok" : "idle"}>{b.done ? plain(b.trigger) : "recording"}</Badge>
                <Link patch={{ live: false, range: null, stripAt: to, stripSpan: Math.min(60_000, to - from), worker: b.engine }} title="shows it in the strip">{since(from, now()) === clock(from) ? clock(from, true) : dayClock(from, now(), true)} – {clock(to, true)}</Link>
                <span class="sec burst-why">{b.reason}</span><span class="sp" />
                <span class="mut">{plural(b.rows, "row")}</span>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
}

