// Requests as rows: what each took and how it ended, with chosen columns; sorted by the server, which knows
// all of them.
import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type * as api from "../api/types";
import { clock, dayClock, parseApiTime, sameDay } from "../format/time";
import { now } from "../state/live";
import { sampleView } from "../state/joins";
import { cellText, columnsOf, NUMBERS, outcomeLevel, outcomeName, scaleOf, TITLES } from "../pages/requestfields";
import { short } from "./copy";
import { engineName } from "../state/fleet";
import { InstanceLink, Link } from "./link";
import { Badge } from "./state";
import { Table, type Column } from "./table";

export interface RequestTableProps {
  rows: api.RequestRow[];
  columns: string;
  selected: string;
  sort: string;
  onSort: (s: string) => void;
  onOpen: (r: api.RequestRow) => void;
  onEnd: () => void;
  keys: Record<string, (r: api.RequestRow) => void>;
}

export function RequestTable(p: RequestTableProps) {
  const columns = useMemo(() => requestColumns(p.rows, p.columns), [p.rows, p.columns]);
  return (
    <Table
      label="requests" rows={p.rows} columns={columns} rowKey={(r) => r.id} selected={p.selected} sort={p.sort} onSort={p.onSort} onOpen={p.onOpen} onEnd={p.onEnd} keys={p.keys} primary
      rowClass={(r) => (r.outcome === "running" ? "dim" : "")}
    />
  );
}

/** A clock time with its thousandths; the day where it is not that of now. */
export function startText(ms: number): string {
  if (!Number.isFinite(ms)) return "unknown";
  const frac = `.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;
  return (sameDay(ms, now()) ? clock(ms, true) : dayClock(ms, now(), true)) + frac;
}

export function OutcomeBadge({ row: r }: { row: Pick<api.RequestRow, "outcome" | "finish_reason"> }) {
  return <Badge level={outcomeLevel(r.outcome)} title={r.finish_reason ? `finish reason: ${r.finish_reason}` : undefined}>{outcomeName(r.outcome)}</Badge>;
}

export const requestName = (r: api.RequestRow): string => r.rid || (r.trace_id ? `trace ${short(r.trace_id, 12)}` : "without id");

function requestColumns(rows: api.RequestRow[], text: string): Column<api.RequestRow>[] {
  // Where nobody trains, a column of steps would only take the room of another.
  const keys = columnsOf(text).filter((k) => text !== "" || k !== "step" || rows.some((r) => r.step !== null));
  return keys.map((key): Column<api.RequestRow> => {
    const n = NUMBERS.find((x) => x.key === key);
    if (n) {
      const scale = scaleOf(n, rows);
      const unit = scale.unit.replace("tokens", "tok");
      return {
        key, title: unit ? `${n.title}, ${unit}` : n.title, hint: n.hint, right: true, largeFirst: true, value: n.get,
        cell: (r) => {
          const c = cellText(n, r, scale);
          return c.word ? <span class="mut" title={c.why}>{c.text}</span> : c.text;
        },
      };
    }
    return word(key);
  });
}

function word(key: string): Column<api.RequestRow> {
  const title = TITLES[key] ?? key;
  // The server sorts, and by numbers only: a part of the rows must not look like an order of all.
  const text = (get: (r: api.RequestRow) => string, cell?: (r: api.RequestRow) => ComponentChildren): Column<api.RequestRow> => ({
    key, title, class: "sec", cell: cell ?? ((r) => get(r) || <span class="mut">unknown</span>),
  });
  switch (key) {
    case "start":
      return { key, title: "Start, UTC", value: (r) => parseApiTime(r.start) || null, largeFirst: true, cell: (r) => startText(parseApiTime(r.start)) };
    case "rid":
      return { key, title, class: "mono c-rid", cell: (r) => <Link patch={{ id: r.id }} title={r.rid || r.id}>{short(requestName(r), 18)}</Link> };
    case "outcome":
      return { key, title, cell: (r) => <OutcomeBadge row={r} /> };
    case "finish":
      return text((r) => r.finish_reason);
    case "engine":
      return text((r) => r.engine, (r) => (r.engine ? <>{r.engine_id ? <InstanceLink instance={r.engine} /> : engineName(r.engine)}{r.prefill_engine && <span class="mut" title={`prefill by ${r.prefill_engine}`}> D</span>}</> : <span class="mut">unknown</span>));
    case "prefill_engine":
      return text((r) => r.prefill_engine, (r) => (r.prefill_engine ? <>{engineName(r.prefill_engine)} <span class="mut">P</span></> : <span class="mut">–</span>));
    case "model":
      return { ...text((r) => r.model), class: "sec c-why" };
    case "service":
      return text((r) => r.service);
    case "step":
      return {
        key, title, class: "sec", value: (r) => r.step, largeFirst: true,
        cell: (r) => (r.step === null ? <span class="mut" title="no rollout that is known asked for it">–</span> : r.sample === null ? <>{r.step}</> : (
          <Link to="rollouts" patch={sampleView({ run: r.run, kind: r.kind, step: r.step, sample: r.sample })} title={`its sample in the timeline of ${r.run} ${r.kind} ${r.step}`}>{r.step}, #{r.sample}</Link>
        )),
      };
    case "sources":
      return text((r) => r.sources.join(", "));
    case "spans":
      return {
        key, title, class: "sec",
        cell: (r) => (r.spans === "kept" && r.trace_id ? <Link to="traces" patch={{ id: r.trace_id }} title="its spans">kept</Link>
          : r.spans === "sampled_away" ? <span class="mut" title="counted, not kept: tail sampling did not choose its trace">sampled</span>
          : <span class="mut" title="no span of it came">none</span>),
      };
    case "trace":
      return text((r) => r.trace_id, (r) => (r.trace_id ? <Link to="traces" patch={{ id: r.trace_id }} class="mono">{short(r.trace_id, 12)}</Link> : <span class="mut">–</span>));
    default:
      return {
        key, title, class: "sec c-why", cell: (r) => {
          const notes = [...(r.probable > 0 ? [`${r.probable} probable`] : []), ...r.flags.map((f) => f.replace(/_/g, " "))].join(", ");
          return <span title={notes}>{notes}</span>;
        },
      };
  }
}
