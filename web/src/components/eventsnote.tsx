// How spans, logs and requests come in, for the pages that show them: a badge, a strip when something is
// wrong, and what to switch on when nothing came.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type * as api from "../api/types";
import type { Failure } from "../api/client";
import { brief, grouped, plural } from "../format/number";
import { duration, parseApiTime } from "../format/time";
import type { EventsState } from "../state/events";
import { isArchive, now, status } from "../state/live";
import { Popover } from "./popover";
import { Badge, Empty, Warnings } from "./state";

export const TRACES_HOW = `# the recorder listens (rollscope.yaml)
rollscope:
  traces: {otlp_grpc: "0.0.0.0:4317", otlp_http: "0.0.0.0:4318"}

# SGLang sends
python -m sglang.launch_server ... --enable-trace --otlp-traces-endpoint HOST:4317

# Dynamo sends
OTEL_EXPORT_ENABLED=1 DYN_LOGGING_JSONL=1 \\
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://HOST:4317

# what is missing or misspelled is named by
rollscope doctor tracing`;

export const LOGS_HOW = `# rollscope.yaml: files are followed over rotation and restart
rollscope:
  logs: [{path: "/var/log/sglang/*.log"}]

# or send them: OTLP logs, Loki push, Elasticsearch bulk, JSON lines, syslog`;

const LEVELS: Record<string, api.Level> = { ok: "ok", starting: "idle", read_only: "warn", down: "crit", off: "idle", waiting: "idle" };
const WORDS: Record<string, string> = { ok: "recording", starting: "starting", read_only: "reads only", down: "down", off: "off", waiting: "waits for the first span or line" };

/** What spans and lines may come in by: addresses that are listened at, files that are followed. */
const openDoors = (s: api.EventsStatus): api.EventSource[] => s.sources.filter((x) => x.state !== "off" && !x.error && !/tempo$/.test(x.state));
/** The store's state; one that nothing was given to yet does not run, and waits. */
const shownState = (s: api.EventsStatus): string => (s.state === "off" && s.enabled && openDoors(s).length > 0 ? "waiting" : s.state);

/** Whether nothing can be here, because the store is off. */
export function eventsOff(s: EventsState, error?: Failure): boolean {
  if (error?.code === "not_enabled") return true;
  return s.value ? !s.value.enabled || (s.value.state === "off" && openDoors(s.value).length === 0) : false;
}

const size = (bytes: number) => (bytes >= 1e8 ? `${brief(bytes / 1e9)} GB` : bytes >= 1e5 ? `${brief(bytes / 1e6)} MB` : `${brief(bytes / 1e3)} kB`);

/** The store's state; pressed, all that is known of it. */
export function EventsBadge({ state: { value: s, error } }: { state: EventsState }) {
  const open = useSignal(false);
  if (!s) return error && error.code !== "not_enabled" ? <Badge level="unknown" title={error.message}>store unknown</Badge> : null;
  if (isArchive.value && s.state === "read_only") return null; // an archive is never written
  return (
    <span class="anchor">
      <button type="button" class="bare on-hover" aria-expanded={open.value} title="how spans, logs and requests come in" onClick={() => (open.value = !open.value)}>
        <Badge level={LEVELS[shownState(s)] ?? "unknown"}>{WORDS[shownState(s)] ?? s.state}</Badge>
      </button>
      {open.value && (
        <Popover label="the event store" class="pop-events" onClose={() => (open.value = false)}>
          <StoreFacts s={s} />
        </Popover>
      )}
    </span>
  );
}

function StoreFacts({ s }: { s: api.EventsStatus }) {
  const rows = Object.entries(s.rows);
  return (
    <div class="facts">
      <h2>Event store <Badge level={LEVELS[shownState(s)] ?? "unknown"}>{WORDS[shownState(s)] ?? s.state}</Badge></h2>
      {s.reason && <p class="bad">{s.reason}</p>}
      <dl>
        {rows.map(([k, n]) => <div key={k}><dt>{k}s</dt><dd>{grouped(n, 0)} since the start</dd></div>)}
        {s.as_of && <div><dt>as of</dt><dd title="the recording is read again when something is asked and it has changed">{duration(Math.max(0, now() - parseApiTime(s.as_of)))} ago</dd></div>}
        <div><dt>on disk</dt><dd>{size(s.bytes_on_disk)}, kept {s.retention_seconds > 0 ? duration(s.retention_seconds * 1000) : "as long as there is room"}</dd></div>
        <div><dt>in the spool</dt><dd>{size(s.spool_bytes)}, not yet confirmed</dd></div>
        {s.damaged_parts.map((p) => <div key={p}><dt class="bad">set aside</dt><dd title={p}>{p}, damaged</dd></div>)}
      </dl>
      <h2>Sources</h2>
      {s.sources.length === 0 && <p class="mut">none: nothing listens and no file is followed</p>}
      <ul class="plain">
        {s.sources.map((x) => (
          <li key={`${x.kind} ${x.name}`} class="source">
            <Badge level={x.state === "off" ? "idle" : x.error ? "crit" : x.last ? "ok" : "idle"}>{x.state === "off" ? "off" : x.error ? x.state || "failed" : x.last ? "ok" : x.kind === "door" ? "listens" : "nothing yet"}</Badge>
            <span title={x.name}>{x.name} <span class="mut">{x.kind === "door" ? x.state.replace(/^listening /, "").replace("_", " ") : x.kind.replace("_", " ")}</span></span>
            <span class="sec">{x.kind !== "door" && grouped(x.count, 0)}{x.last && `, ${duration(Math.max(0, now() - parseApiTime(x.last)))} ago`}</span>
            {x.error && <span class={x.state === "off" ? "mut wrap" : "bad wrap"}>{x.error}</span>}
          </li>
        ))}
      </ul>
      {s.sampling && <Sampling s={s.sampling} />}
    </div>
  );
}

function Sampling({ s }: { s: api.SamplingStatus }) {
  const line = (m: Record<string, number>) => Object.entries(m).sort(([, a], [, b]) => b - a).map(([k, n]) => `${k} ${grouped(n, 0)}`).join(", ") || "none";
  return (
    <>
      <h2>Tail sampling</h2>
      <dl>
        <div><dt>kept</dt><dd class="wrap">{line(s.kept)}</dd></div>
        <div><dt>not kept</dt><dd class="wrap">{line(s.dropped)}; all of them are counted</dd></div>
        <div><dt>of the rest</dt><dd>{brief(s.ratio * 100)} %</dd></div>
        <div><dt>undecided</dt><dd>{plural(s.held_traces, "trace")}, {size(s.held_bytes)}</dd></div>
      </dl>
      <Warnings list={s.warnings} />
    </>
  );
}

/** A strip above the data while the store is not well; what is known stays below it. */
export function EventsStrip({ state: { value: s } }: { state: EventsState }) {
  if (!s || s.state === "ok" || s.state === "off" || !s.enabled || (isArchive.value && s.state === "read_only")) return null;
  const words = s.state === "starting" ? "The event store is starting: what was stored before can be read in a moment."
    : s.state === "read_only" ? "The event store takes nothing more; what it holds can be read." : "The event store does not answer. What comes in waits in the spool.";
  return (
    <section class="panel strip events-strip" role="status">
      <Badge level={LEVELS[s.state] ?? "unknown"}>{WORDS[s.state] ?? s.state}</Badge>
      <span>{words}</span>
      {s.reason && <span class="sec">{s.reason}</span>}
    </section>
  );
}

/** What would be here, and what makes it appear. */
export function NothingHere({ what, how, state, error }: { what: ComponentChildren; how: string; state: EventsState; error?: Failure | undefined }) {
  const off = eventsOff(state, error);
  const silent = state.value?.sources.every((x) => x.count === 0);
  const old = status.value.value?.notices.find((n) => n.code === "events_too_old");
  if (isArchive.value) return <Empty what={off ? "This archive holds no events: spans, logs and requests were not recorded." : what} />;
  if (old) return <>{what && <Empty what={what} />}<Warnings list={[old]} /></>;
  if (off) return <Empty what="Spans, logs and requests are not recorded. They are, as soon as one source of them is named:" how={how} />;
  const doors = state.value ? openDoors(state.value).filter((x) => x.kind === "door") : [];
  const listens = silent && doors.length > 0 ? <> It listens at {doors.map((x) => `${x.name} (${x.state.replace(/^listening /, "").replace("_", " ")})`).join(", ")}, and nothing came yet.</> : null;
  return <Empty what={<>{what}{listens}</>} how={silent !== false ? how : undefined} />;
}
