// What a set of requests sums up to: how they ended, exact percentiles beside the histograms', goodput; the
// same for each engine, model, step or outcome.
import { useMemo } from "preact/hooks";
import type * as api from "../api/types";
import { Badge, ErrorBox, LoadingBar, Notes } from "../components/state";
import { StateIcon } from "../components/icons";
import { Table, type Column } from "../components/table";
import { numberText } from "../charts/model";
import { brief, format, grouped, plural, scaleFor, withUnit, type Scale } from "../format/number";
import { useSignal } from "@preact/signals";
import { withTerm } from "../state/filter";
import { engineName } from "../state/fleet";
import type { Resource } from "../state/resource";
import { change, view } from "../state/view";
import { OUTCOMES, outcomeLevel, outcomeName, secondsScale } from "./requestfields";

type Answer = Resource<api.Envelope<api.RequestSummary>>;

const FIELDS: [string, string][] = [["ttft", "TTFT"], ["itl", "ITL"], ["e2e", "E2E"], ["queue", "queue"], ["prefill", "prefill"], ["transfer", "transfer"], ["decode", "decode"]];

/** Seconds in words, each in the unit of its size: fields of one table are far apart. */
export function secondsText(v: number | null | undefined): string {
  return v === null || v === undefined ? "–" : withUnit(v, scaleFor("s", v));
}

export function SummaryPanel({ res, ttft, itl }: { res: Answer; ttft: number | null; itl: number | null }) {
  const g = res.value?.data.groups[0];
  return (
    <section class="panel request-summary" aria-label="summary">
      <header class="panel-h">
        <h2>All of them</h2>
        <span class="u">{g ? `${plural(g.count, "request")}, each counted` : ""}</span>
        <Notes list={res.value?.warnings ?? []} />
        <span class="sp" />
        {g?.estimated && <Badge level="warn" title={g.estimated}>estimated</Badge>}
      </header>
      <LoadingBar on={res.loading} />
      {res.error && !res.value && <ErrorBox error={res.error} failingSince={res.failingSince} />}
      {g && (
        <>
          <Outcomes group={g} />
          <Goodput group={g} ttft={ttft} itl={itl} />
          <Quantiles group={g} />
          {g.estimated && <p class="trap"><StateIcon level="warn" /><span>{g.estimated}</span></p>}
        </>
      )}
    </section>
  );
}

/** What a filter asks for to have one group: its name; "none" is no value. */
export const groupTerm = (name: string): string => (name === "" || name === "unknown" ? "none" : name);

const FILLS: Record<string, string> = { error: "--crit-fill", aborted: "--warn-fill", running: "--idle", "": "--hatch", unknown: "--hatch", ok: "--ok-fill" };

function ordered(outcomes: Record<string, number>): [string, number][] {
  const known = OUTCOMES.filter((o) => outcomes[o]).map((o): [string, number] => [o, outcomes[o] ?? 0]);
  const rest = Object.entries(outcomes).filter(([o, n]) => n > 0 && !(OUTCOMES as readonly string[]).includes(o));
  return [...known, ...rest];
}

/** How they ended, as shares and as chips that narrow the list. */
function Outcomes({ group: g }: { group: api.RequestGroup }) {
  const list = ordered(g.outcomes);
  const now = view.value.filter;
  return (
    <div class="outcomes">
      <div class="stack" role="img" aria-label={`outcomes: ${list.map(([o, n]) => `${outcomeName(o)} ${grouped(n, 0)}`).join(", ") || "none"}`}>
        {list.map(([o, n]) => <i key={o} class={o === "" || o === "unknown" ? "striped" : ""} style={{ flexGrow: String(n), "--c": `var(${FILLS[o] ?? "--s7"})` }} title={`${outcomeName(o)}: ${grouped(n, 0)}`} />)}
      </div>
      <div class="outcome-chips">
        {list.map(([o, n]) => (
          <button type="button" key={o} class="bare on-hover" title={`only these: outcome:${outcomeName(o)}`} onClick={() => change({ filter: withTerm(now, "outcome", groupTerm(o)), id: "" })}>
            <Badge level={outcomeLevel(o)}>{grouped(n, 0)} {outcomeName(o)}</Badge> <span class="mut">{g.count > 0 ? `${brief((n / g.count) * 100)} %` : ""}</span>
          </button>
        ))}
      </div>
    </div>
  );
}

/** Requests that met both targets. */
function Goodput({ group: g, ttft, itl }: { group: api.RequestGroup; ttft: number | null; itl: number | null }) {
  const targets = [ttft !== null && !Number.isNaN(ttft) ? `TTFT ≤ ${secondsText(ttft)}` : "", itl !== null && !Number.isNaN(itl) ? `ITL ≤ ${secondsText(itl)}` : ""].filter(Boolean);
  if (targets.length === 0) return <p class="goodput mut">Goodput: name a target of TTFT or ITL above.</p>;
  if (g.goodput_share === null || g.judged === null) return <p class="goodput"><span class="mut">Goodput</span> <b class="v-word">unknown</b> <span class="mut">no request says both</span></p>;
  return (
    <div class="goodput">
      <span class="mut">Goodput</span> <b class="v">{brief(g.goodput_share * 100)}</b> <span class="u">%</span>
      <span class="sec">{grouped(g.good ?? 0, 0)} of {plural(g.judged, "request")} with {targets.join(" and ")}{g.goodput_per_second !== null && `, ${withUnit(g.goodput_per_second, scaleFor("requests/s", g.goodput_per_second))}`}</span>
      {g.judged < g.count && <span class="mut" title="for them one of the two is unknown">{plural(g.count - g.judged, "request")} not judged</span>}
    </div>
  );
}

function Quantiles({ group: g }: { group: api.RequestGroup }) {
  const v = view.value;
  const list = FIELDS.filter(([k]) => (g.quantiles[k]?.count ?? 0) > 0);
  if (list.length === 0) return <p class="calm">no request says how long anything took</p>;
  const hist = list.some(([k]) => g.quantiles[k]?.histogram_p99);
  return (
    <table class="quantiles">
      <thead><tr><th>Field</th><th class="n">p50</th><th class="n">p90</th><th class="n">p99</th>{hist && <th class="n" title="p99 of the engines' own histograms in the same window">p99, histogram</th>}<th class="n">max</th><th class="n" title="requests that say it">n</th></tr></thead>
      <tbody>
        {list.map(([k, name]) => {
          const q = g.quantiles[k] as api.RequestQuantiles;
          return (
            <tr key={k}>
              <td><button type="button" class="tl-link" title="sort by it, show it in the cloud" onClick={() => change({ sort: `-${k}`, y: k === "ttft" ? "" : k })}>{name}</button></td>
              <td class="n">{secondsText(q.p50)}</td>
              <td class="n">{secondsText(q.p90)}</td>
              <td class="n"><b>{secondsText(q.p99)}</b></td>
              {hist && <td class="n"><Histogram n={q.histogram_p99} exact={q.p99} /></td>}
              <td class="n"><button type="button" class="tl-link" title="the slowest" onClick={() => change({ sort: `-${k}`, id: "first", filter: v.filter })}>{secondsText(q.max)}</button></td>
              <td class="n mut">{grouped(q.count, 0)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** What the engines' histogram says of the same: its bucket in the hint, marked where it is far from the truth. */
function Histogram({ n, exact }: { n: api.Number | null; exact: number | null }) {
  if (!n) return <span class="mut" title="the engines export no histogram of it">–</span>;
  if (n.state !== "value" || n.value === null) return <span class="mut" title={n.reason}>{n.state === "not_applicable" ? "–" : n.state}</span>;
  const far = exact !== null && exact > 0 && Math.abs(n.value - exact) / exact > 0.25;
  const bucket = typeof n.lower === "number" ? `its bucket: ${secondsText(n.lower)} to ${typeof n.upper === "number" ? secondsText(n.upper) : "∞"}` : "";
  return <span class={far ? "odd-version" : "sec"} title={[bucket, n.caveat, far ? "far from the exact one" : ""].filter(Boolean).join(" · ")}>{numberText(n, scaleFor("s", n.value))} {scaleFor("s", n.value).unit}</span>;
}

/** One row a group, most requests first. A press narrows the list to it. */
export function GroupTable({ res, by }: { res: Answer; by: string }) {
  const sort = useSignal("");
  const groups = useMemo(() => (res.value?.data.by === by ? res.value.data.groups.slice(1) : []), [res.value, by]);
  const columns = useMemo(() => groupColumns(groups, by), [groups, by]);
  return (
    <section class="panel request-groups" aria-label={`by ${by}`}>
      <header class="panel-h">
        <h2>By {by.replace("_", " ")}</h2>
        <span class="u">{plural(groups.length, "group")} · exact percentiles · a press shows only these</span>
      </header>
      <LoadingBar on={res.loading} />
      {groups.length === 0 && !res.loading && <p class="calm">no request says it</p>}
      {groups.length > 0 && (
        <Table label="groups" rows={groups} columns={columns} rowKey={(g) => g.name || "(unknown)"} sort={sort.value} onSort={(s) => (sort.value = s)} onOpen={(g) => change({ filter: withTerm(view.value.filter, by, groupTerm(g.name)), id: "" })} />
      )}
    </section>
  );
}

function groupColumns(groups: api.RequestGroup[], by: string): Column<api.RequestGroup>[] {
  const out: Column<api.RequestGroup>[] = [
    { key: "name", title: by.replace("_", " "), class: "c-name", value: (g) => g.name, cell: (g) => (g.name === "" || g.name === "none" ? <span class="mut">unknown</span> : by.endsWith("engine") ? <span title={g.name}>{engineName(g.name)}</span> : g.name) },
    { key: "count", title: "Requests", right: true, largeFirst: true, value: (g) => g.count, cell: (g) => grouped(g.count, 0) },
  ];
  for (const o of ["error", "aborted", "running"]) {
    if (by === "outcome" || !groups.some((g) => g.outcomes[o])) continue;
    out.push({ key: o, title: outcomeName(o), right: true, largeFirst: true, value: (g) => g.outcomes[o] ?? 0, cell: (g) => ((g.outcomes[o] ?? 0) > 0 ? <span class={o === "error" ? "bad" : ""}>{grouped(g.outcomes[o] ?? 0, 0)}</span> : "0") });
  }
  for (const [k, name] of FIELDS) {
    if (!groups.some((g) => (g.quantiles[k]?.count ?? 0) > 0)) continue;
    const scale: Scale = secondsScale(groups.map((g) => g.quantiles[k]?.p99 ?? null));
    const parts: ["p50" | "p99", string][] = k === "ttft" || k === "itl" || k === "e2e" ? [["p50", "p50"], ["p99", "p99"]] : [["p99", "p99"]];
    for (const [p, label] of parts) {
      out.push({
        key: `${k} ${p}`, title: `${name} ${label}, ${scale.unit}`, right: true, largeFirst: true, value: (g) => g.quantiles[k]?.[p] ?? null,
        cell: (g) => { const x = g.quantiles[k]?.[p] ?? null; return x === null ? <span class="mut">unknown</span> : format(x, scale); },
      });
    }
    if (parts.length > 1 && groups.some((g) => g.quantiles[k]?.histogram_p99)) {
      out.push({
        key: `${k} hist`, title: "hist. p99", hint: `p99 of the engines' own histogram, ${scale.unit}${k === "itl" ? ": of single gaps between tokens, while the exact one is of each request's mean" : ""}`, right: true, class: "sec", value: (g) => g.quantiles[k]?.histogram_p99?.value ?? null,
        cell: (g) => { const n = g.quantiles[k]?.histogram_p99; return n ? <span class={n.state === "value" ? "" : "mut"} title={n.reason ?? n.caveat}>{numberText(n, scale)}</span> : <span class="mut">–</span>; },
      });
    }
  }
  if (groups.some((g) => g.goodput_share !== null)) {
    out.push({ key: "good", title: "Goodput, %", right: true, value: (g) => g.goodput_share, cell: (g) => (g.goodput_share === null ? <span class="mut">unknown</span> : brief(g.goodput_share * 100)) });
  }
  return out;
}
