// Everything that is known of one request: where its time went, every field with who said it and what
// others said instead, its names, and the ways to its spans, its sample, its log lines, its engine.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { get } from "../api/client";
import type * as api from "../api/types";
import { Copy, short } from "../components/copy";
import { StateIcon } from "../components/icons";
import { InstanceLink, Link } from "../components/link";
import { PhaseBars, words } from "../components/phasebars";
import { OutcomeBadge, requestName, startText } from "../components/requesttable";
import { ErrorBox, LoadingBar, Notes } from "../components/state";
import { grouped, plural, scaleFor, withUnit } from "../format/number";
import { parseApiTime } from "../format/time";
import { engineAt, engineName } from "../state/fleet";
import { around, logsFilter, sampleView } from "../state/joins";
import { useResource } from "../state/resource";
import type { View } from "../state/route";
import { useKeys } from "../state/keys";
import { change, open } from "../state/view";
import { secondsText } from "./requestsummary";

/** The log lines of a request, in its time. */
export function logsPatch(r: api.RequestRow): Partial<View> {
  const start = parseApiTime(r.start);
  return { filter: logsFilter({ rid: r.rid, traceID: r.trace_id }), ...(Number.isFinite(start) ? { range: around(start, r.e2e_seconds) } : {}) };
}

/** Its engine's panels, in its time. */
function enginePatch(r: api.RequestRow, id: string): Partial<View> {
  const start = parseApiTime(r.start);
  return { engine: engineAt(r.engine)?.id ?? id, ...(Number.isFinite(start) ? { range: around(start, Math.max(600, r.e2e_seconds ?? 0)) } : {}) };
}

export function RequestPanel({ id, known }: { id: string; known: api.RequestRow | undefined }) {
  const res = useResource(`request ${id}`, "", (abort) => get<api.RequestDetail>(`/requests/${encodeURIComponent(id)}`, {}, abort));
  const d = res.value?.data;
  const r = d?.request ?? known;
  useKeys({
    t: () => {
      if (!r?.trace_id) return false;
      open("traces", { id: r.trace_id });
      return true;
    },
    l: () => {
      if (!r || logsFilter({ rid: r.rid, traceID: r.trace_id }) === "") return false;
      open("logs", logsPatch(r));
      return true;
    },
    e: () => {
      if (!r?.engine_id) return false;
      open("engines", enginePatch(r, r.engine_id));
      return true;
    },
  });
  return (
    <aside class="panel details request-panel" aria-label="request">
      <header class="panel-h">
        <h2 class="mono" title={r?.rid || id}>{r ? short(requestName(r), 24) : short(id, 24)}</h2>
        <Copy text={r?.rid || id} label="its id" />
        <span class="sp" />
        {r && <OutcomeBadge row={r} />}
        <Notes list={res.value?.warnings ?? []} />
        <button type="button" class="quiet" aria-label="close" title="close (Esc)" onClick={() => change({ id: "" })}>×</button>
      </header>
      <LoadingBar on={res.loading} />
      <div class="scroll request-body">
        {res.error && !d && <ErrorBox error={res.error} failingSince={res.failingSince} />}
        {r && <Ways r={r} d={d} />}
        {r && <Numbers r={r} d={d} />}
        {d && <Section title="Where its time went"><PhaseBars phases={d.phases} total={r?.e2e_seconds ?? null} start={parseApiTime(d.request.start)} rest={d.unattributed_seconds} /></Section>}
        {d && d.request.flags.length > 0 && <Section title="To know"><ul class="plain sec">{d.request.flags.map((f) => <li key={f} class="flag"><StateIcon level="warn" />{words(f)}</li>)}</ul></Section>}
        {d && d.probable.length > 0 && <Probable list={d.probable} />}
        {d && d.related.length > 0 && (
          <Section title="Belongs together"><ul class="plain">{d.related.map((x) => <li key={x.id}><Link patch={{ id: x.id }} class="mono">{short(x.id, 20)}</Link> <span class="sec">{x.why}</span></li>)}</ul></Section>
        )}
        {d && <Fields list={d.fields} />}
        {d && <Seen list={d.observations} />}
        {d && (
          <Section title="Its names" unit={`revision ${d.revision}${d.settled ? "" : ", a source may still say more"}`}>
            <dl class="tl-long ids">{d.aliases.map((a) => <div key={`${a.kind} ${a.id}`}><dt>{words(a.kind)}</dt><dd class="mono">{a.id}<Copy text={a.id} label={words(a.kind)} /></dd></div>)}</dl>
          </Section>
        )}
      </div>
    </aside>
  );
}

export function Section({ title, unit, children }: { title: string; unit?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="tl-section">
      <h3>{title}{unit !== undefined && <span class="u"> {unit}</span>}</h3>
      {children}
    </section>
  );
}

/** Where one can go from here. What is not there says why. */
function Ways({ r, d }: { r: api.RequestRow; d: api.RequestDetail | undefined }) {
  const off = (text: string, why: string) => <span class="btn off" title={why} aria-disabled="true">{text}</span>;
  const hasID = logsFilter({ rid: r.rid, traceID: r.trace_id }) !== "";
  return (
    <div class="ways">
      {r.trace_id && r.spans === "kept" ? <Link to="traces" patch={{ id: r.trace_id }} class="btn">Spans <kbd>t</kbd></Link>
        : off("Spans", r.spans === "sampled_away" ? "tail sampling did not keep its trace; it is counted" : "no span of it came")}
      {r.step !== null && r.sample !== null ? <Link to="rollouts" patch={sampleView({ run: r.run, kind: r.kind, step: r.step, sample: r.sample })} class="btn">Sample #{r.sample} of step {r.step}</Link>
        : off("Sample", "no rollout that is known asked for it")}
      {hasID ? <Link to="logs" patch={logsPatch(r)} class="btn">{d ? plural(d.log_records, "log line") : "Log lines"} <kbd>l</kbd></Link> : off("Log lines", "it has no id that a line could name")}
      {r.engine_id ? <Link to="engines" patch={enginePatch(r, r.engine_id)} class="btn">Engine then <kbd>e</kbd></Link> : off("Engine", r.engine ? `${r.engine} is not scraped` : "which engine it was is unknown")}
    </div>
  );
}

function Numbers({ r, d }: { r: api.RequestRow; d: api.RequestDetail | undefined }) {
  const num = (v: number | null, unit: string) => (v === null ? <span class="mut">unknown</span> : withUnit(v, scaleFor(unit, v, Number.isInteger(v))));
  const time = (v: number | null) => (v === null ? <span class="mut">{r.outcome === "running" ? "open" : "unknown"}</span> : secondsText(v));
  const list: [string, ComponentChildren][] = [
    ["start", startText(parseApiTime(r.start))], ["E2E", <b key="e">{time(r.e2e_seconds)}</b>],
    ["TTFT", <b key="t">{time(r.ttft_seconds)}</b>], ["ITL", time(r.itl_seconds)],
    ["prompt", num(r.prompt_tokens, "tokens")], ["output", num(r.completion_tokens, "tokens")],
    ["cached", num(r.cached_tokens, "tokens")], ["decode rate", num(r.decode_throughput, "tokens/s")],
    ["finish", r.finish_reason || <span class="mut">unknown</span>], ["retries", num(r.retries, "")],
  ];
  return (
    <>
      <dl class="tl-facts">{list.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
      <dl class="tl-long">
        <div><dt>{r.prefill_engine ? "decoded by" : "engine"}</dt><dd>{!r.engine ? <span class="mut">unknown</span> : r.engine_id ? <InstanceLink instance={r.engine} /> : r.engine}</dd></div>
        {r.prefill_engine && <div><dt>prefill by</dt><dd><InstanceLink instance={r.prefill_engine} /></dd></div>}
        {r.model && <div><dt>model</dt><dd>{r.model}</dd></div>}
        {r.service && <div><dt>service</dt><dd>{r.service}</dd></div>}
        {r.run && <div><dt>asked by</dt><dd>{r.run} {r.kind} {r.step ?? ""}</dd></div>}
        <div><dt>seen by</dt><dd>{r.sources.join(", ") || "nobody"}{d && !d.settled && <span class="mut"> (not settled yet)</span>}</dd></div>
      </dl>
    </>
  );
}

/** What may be the same one. It is shown, never merged. */
export function Probable({ list }: { list: api.ProbableMatch[] }) {
  return (
    <Section title="Probable" unit="may be the same one; nothing proves it">
      <ul class="plain">
        {list.map((p) => (
          <li key={p.id + p.trace_id} class="probable">
            {p.id ? <Link to="requests" patch={{ id: p.id }} class="mono">request {short(p.id, 16)}</Link> : <Link to="traces" patch={{ id: p.trace_id }} class="mono">trace {short(p.trace_id, 16)}</Link>} <span class="sec">{p.why}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Fields({ list }: { list: api.RequestField[] }) {
  const differs = list.filter((f) => Object.keys(f.others ?? {}).length > 0).length;
  return (
    <Section title="Fields" unit={`who said it${differs ? `; of ${differs} others say something else` : ""}`}>
      <table class="said">
        <tbody>
          {list.map((f) => (
            <tr key={f.name}>
              <th scope="row">{words(f.name)}</th>
              <td class="wrap">
                {fieldText(f.value, f)}
                {Object.entries(f.others ?? {}).map(([source, value]) => <div key={source} class="other"><StateIcon level="warn" />{fieldText(value, f)} <span class="mut">says {source}</span></div>)}
              </td>
              <td class="mut">{f.from}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

/** What a source said: times for the reader, with all their digits in the hint. */
function fieldText(value: string, f: api.RequestField): ComponentChildren {
  const n = f.unit === "s" || f.unit === "tokens/s" ? Number(value) : NaN;
  if (value !== "" && Number.isFinite(n)) return <span title={`${value} ${f.unit}`}>{f.unit === "s" ? secondsText(n) : withUnit(n, scaleFor(f.unit, n))}</span>;
  return <>{/engine$/.test(f.name) ? engineName(value) : value}{f.unit && <span class="mut"> {f.unit}</span>}</>;
}

function Seen({ list }: { list: api.RequestSeen[] }) {
  const shown = useSignal(-1);
  return (
    <Section title="Observations" unit={`${grouped(list.length, 0)}, as they came`}>
      <ul class="plain">
        {list.map((o, i) => (
          <li key={i}>
            <button type="button" class="tl-link" aria-expanded={shown.value === i} onClick={() => (shown.value = shown.value === i ? -1 : i)}>{shown.value === i ? "▾" : "▸"} {o.source}</button>
            <span class="sec"> {[engineName(o.engine), o.role].filter(Boolean).join(", ")}{o.start && ` · ${startText(parseApiTime(o.start))}`}</span>
            {shown.value === i && (
              <table class="said"><tbody>{Object.entries(o.fields).map(([k, v]) => <tr key={k}><th scope="row">{words(k)}</th><td class="wrap">{v}</td></tr>)}</tbody></table>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}
