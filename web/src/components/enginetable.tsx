// The fleet as a table: one engine a row, worst first, sparklines of a column on one scale.
import { useMemo } from "preact/hooks";
import type * as api from "../api/types";
import { Spark, sparkMax } from "../charts/spark";
import { numberText } from "../charts/model";
import { allWhole, scaleFor, typical, type Scale } from "../format/number";
import { filterOf } from "../state/filter";
import { tag } from "../state/joins";
import { open } from "../state/view";
import { outliers, signalColor, usualVersion } from "../state/judge";
import { EngineLink } from "./link";
import { Badge, levelRank } from "./state";
import { Table, type Column } from "./table";

export interface EngineTableProps {
  engines: api.Engine[];
  columns: api.Column[];
  /** all engines, where the rows are only some of them: scales and outliers are of the fleet */
  fleet?: api.Engine[];
  /** keys of the columns that carry a sparkline */
  sparks: (key: string) => boolean;
  details?: boolean;
  selected?: string;
  sort: string;
  onSort: (s: string) => void;
  onOpen: (e: api.Engine) => void;
  primary?: boolean;
}

const number = (e: api.Engine, key: string): number | null => {
  const n = e.signals[key];
  return n?.state === "value" ? n.value : null;
};

const BACKENDS: Record<string, string> = {
  sglang: "SGLang", vllm: "vLLM", dynamo_worker: "Dynamo worker", dynamo_frontend: "Dynamo frontend", router: "router", dcgm: "DCGM", trainer: "trainer",
};

/** A backend's name as its makers write it. */
export const backendName = (b: string): string => BACKENDS[b] ?? b;

export function versionText(e: api.Engine): string {
  return [backendName(e.backend), e.version].filter(Boolean).join(" ");
}

/** Worst first; engines of one level stay in the order of the server. */
export function worstFirst(engines: readonly api.Engine[]): api.Engine[] {
  return [...engines].sort((a, b) => levelRank(a.level) - levelRank(b.level));
}

export function EngineTable(p: EngineTableProps) {
  const fleet = p.fleet ?? p.engines;
  const columns = useMemo(() => columnsOf(p, fleet), [fleet, p.columns, p.details]);
  return (
    <Table
      label="engines"
      rows={p.engines}
      columns={columns}
      rowKey={(e) => e.id}
      selected={p.selected ?? ""}
      sort={p.sort}
      onSort={p.onSort}
      onOpen={p.onOpen}
      primary={p.primary === true}
      keys={{
        r: (e) => open("requests", { filter: filterOf({ engine: e.instance }) }),
        t: (e) => open("traces", { filter: tag("engine", e.instance) }),
        l: (e) => open("logs", { engine: e.instance }),
      }}
      rowClass={(e) => (e.level === "unknown" ? "dim" : "")}
    />
  );
}

function columnsOf(p: EngineTableProps, fleet: api.Engine[]): Column<api.Engine>[] {
  const columns: Column<api.Engine>[] = [
    { key: "engine", title: "Engine", class: "c-name", cell: (e) => <EngineLink id={e.id} name={e.name} />, value: (e) => e.name },
    { key: "role", title: "Role", class: "sec", cell: (e) => e.role || <span class="mut">unknown</span>, value: (e) => e.role },
  ];
  if (p.details) {
    const versions = new Map([...new Set(fleet.map((e) => e.backend))].map((b) => [b, usualVersion(fleet, b)]));
    const usual = (backend: string) => versions.get(backend) ?? "";
    columns.push({ key: "version", title: "Version", class: "sec c-version", cell: (e) => <Version engine={e} usual={usual(e.backend)} />, value: (e) => versionText(e) });
  }
  columns.push(
    { key: "state", title: "State", cell: (e) => <Badge level={e.level} title={e.why} />, value: (e) => levelRank(e.level) },
    { key: "why", title: "Why", class: "sec c-why", cell: (e) => <span title={e.why}>{e.why}</span>, value: (e) => e.why || null },
  );
  for (const c of p.columns) columns.push(signalColumn(c, fleet, p.sparks(c.key)));
  return columns;
}

/** Headers in which the unit is not said twice. */
const TITLES: Record<string, string> = {
  "ttft:p99": "TTFT p99", "itl:p99": "ITL p99", throughput: "Gen.", cache_hit_rate: "Cache hit", queue_depth: "Queued", running: "Running", kv_usage: "KV", retractions: "Retracted",
};

function signalColumn(c: api.Column, fleet: api.Engine[], spark: boolean): Column<api.Engine> {
  const values = fleet.map((e) => number(e, c.key));
  const scale = scaleFor(c.unit, typical(values), allWhole(values));
  const max = spark ? sparkMax(fleet.map((e) => e.sparks[c.key])) : 0;
  const odd = outliers(fleet, c);
  // "Queued" and "Running" count requests; saying so in each header would only widen it.
  const short = scale.unit.replace(/^requests/, "").replace("tokens", "tok");
  const unit = short ? `, ${short}` : "";
  return {
    key: c.key,
    title: (TITLES[c.key] ?? c.title) + unit,
    hint: c.unit ? `${c.title}, ${c.unit}` : c.title,
    right: true,
    class: spark ? "c-spark" : "",
    value: (e) => number(e, c.key),
    largeFirst: !c.higher_is_better,
    cell: (e) => <Cell engine={e} column={c} scale={scale} max={max} spark={spark} odd={odd.has(e.id)} />,
  };
}

function Cell({ engine, column, scale, max, spark, odd }: { engine: api.Engine; column: api.Column; scale: Scale; max: number; spark: boolean; odd: boolean }) {
  const n = engine.signals[column.key] ?? { value: null, state: "unknown" as const };
  const s = engine.sparks[column.key];
  const why = odd ? "outlier of its role" : [n.reason, n.caveat].filter(Boolean).join(" · ");
  return (
    <span class="cell" title={why || undefined}>
      {spark && (
        <Spark values={s?.values ?? []} state={s?.state ?? n.state} max={max} color={odd ? "--crit-fill" : signalColor(column.key)} />
      )}
      <span class={n.state === "value" ? (odd ? "num odd" : "num") : "num mut"}>{numberText(n, scale)}</span>
    </span>
  );
}

function Version({ engine, usual }: { engine: api.Engine; usual: string }) {
  if (!engine.version) return <>{backendName(engine.backend) || <span class="mut">unknown</span>}</>;
  if (usual && usual !== engine.version) {
    return <span class="odd-version" title={`most ${backendName(engine.backend)} engines here run ${usual}`}>{versionText(engine)} ≠ peers</span>;
  }
  return <>{versionText(engine)}</>;
}

/** What the patterns of the table mean. */
export function TableKey() {
  return (
    <span class="leg" aria-hidden="true">
      <span><i class="key-unknown" />unknown: could not be read</span>
      <span><i class="key-idle" />idle: no events</span>
      <span><i class="key-odd" />outlier of its role</span>
    </span>
  );
}
