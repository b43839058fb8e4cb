// Alerts as rows: what fires, since when, on which engine, with which value.
import type { ComponentChildren } from "preact";
import type * as api from "../api/types";
import { brief } from "../format/number";
import { duration, parseApiTime, since } from "../format/time";
import { engineList } from "../state/fleet";
import { alertKey } from "../state/judge";
import { today, second } from "../state/live";
import { EngineLink } from "./link";
import { Badge } from "./state";
import { Table, type Column } from "./table";

export interface AlertTableProps {
  alerts: api.Alert[];
  compact?: boolean;
  selected?: string;
  onOpen: (a: api.Alert) => void;
  empty?: () => ComponentChildren;
  primary?: boolean;
  sort?: string;
  onSort?: (s: string) => void;
}

const ORDER = ["firing", "cannot_be_judged", "pending", "resolved", "inactive"];

/** Firing before what cannot be judged before pending before resolved; critical first; the oldest first. */
export function inOrder(alerts: readonly api.Alert[]): api.Alert[] {
  const level = (a: api.Alert) => (a.level === "crit" ? 0 : a.level === "warn" ? 1 : 2);
  return [...alerts].sort((a, b) =>
    ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || level(a) - level(b) || (parseApiTime(a.since) || 0) - (parseApiTime(b.since) || 0));
}

/** An alert's state as a badge: pending is a warning that has not lasted yet; over unknown data nothing is judged. */
export function AlertBadge({ alert, words }: { alert: Pick<api.Alert, "state" | "level" | "reason">; words?: boolean }) {
  switch (alert.state) {
    case "firing":
      return <Badge level={alert.level === "crit" ? "crit" : "warn"}>{words ? "firing" : undefined}</Badge>;
    case "pending":
      return <Badge level="idle">pending</Badge>;
    case "cannot_be_judged":
    case "blind":
      return <Badge level="unknown" title={alert.reason}>{alert.state === "blind" ? "blind" : words ? "cannot be judged" : "unknown"}</Badge>;
    case "resolved":
      return <Badge level="ok">resolved</Badge>;
    default:
      return <Badge level="ok">{words ? "inactive" : undefined}</Badge>;
  }
}

export function AlertTable(p: AlertTableProps) {
  second.value; // ages move
  const columns: Column<api.Alert>[] = [
    { key: "state", title: "State", cell: (a) => <AlertBadge alert={a} words={!p.compact} />, value: (a) => ORDER.indexOf(a.state) },
    { key: "name", title: "Alert", class: p.compact ? "c-why" : "c-name", cell: (a) => <span title={`${a.name}: ${a.summary}`}>{a.name}</span>, value: (a) => a.name },
    { key: "engine", title: "Engine", cell: (a) => <AlertSubject alert={a} />, value: (a) => a.labels["instance"] ?? "" },
  ];
  if (!p.compact) {
    columns.push(
      { key: "severity", title: "Severity", class: "sec", cell: (a) => a.severity, value: (a) => a.severity },
      { key: "summary", title: "Summary", class: "sec c-why", cell: (a) => <span title={a.summary}>{a.state === "cannot_be_judged" ? a.reason : a.summary}</span> },
    );
  }
  columns.push(
    { key: "since", title: "Since", right: true, cell: (a) => (a.since ? since(parseApiTime(a.since), today()) : "–"), value: (a) => parseApiTime(a.since) || null },
    { key: "for", title: "For", right: true, hint: "how long it has lasted", cell: (a) => (a.since ? roughly(today() - parseApiTime(a.since)) : "–") },
    {
      key: "value", title: "Value", right: true, hint: "of the rule's expression",
      cell: (a) => (a.value === null ? <span class="mut">{a.state === "cannot_be_judged" ? "unknown" : "–"}</span> : brief(a.value)), value: (a) => a.value,
    },
  );
  return (
    <Table
      label="alerts"
      rows={p.sort ? p.alerts : inOrder(p.alerts)}
      columns={columns}
      rowKey={alertKey}
      selected={p.selected ?? ""}
      onOpen={p.onOpen}
      {...(p.empty ? { empty: p.empty } : {})}
      primary={p.primary === true}
      rowClass={(a) => (a.state === "resolved" ? "dim" : "")}
      sort={p.sort ?? ""}
      {...(p.onSort ? { onSort: p.onSort } : {})}
    />
  );
}

/** Whole minutes from two on: in a list the order of size is enough. */
const roughly = (ms: number) => duration(ms < 120_000 ? ms : Math.round(ms / 60_000) * 60_000);

function AlertSubject({ alert: a }: { alert: api.Alert }) {
  const name = a.labels["instance"] ?? a.labels["model_name"] ?? a.labels["job"] ?? "";
  if (a.engine_id) {
    const known = engineList.value?.find((e) => e.id === a.engine_id);
    return <EngineLink id={a.engine_id} name={known?.name ?? (name || a.engine_id)} />;
  }
  return <span class={name ? "" : "mut"}>{name || "fleet"}</span>;
}
