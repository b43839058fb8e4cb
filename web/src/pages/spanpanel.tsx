// What is known of one span, and of a trace as a whole.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type * as api from "../api/types";
import { Copy, short } from "../components/copy";
import { StateIcon } from "../components/icons";
import { Link } from "../components/link";
import { PhaseBars, words } from "../components/phasebars";
import { startText } from "../components/requesttable";
import { Badge, Warnings } from "../components/state";
import { grouped, plural } from "../format/number";
import { parseApiTime } from "../format/time";
import { around, logsFilter } from "../state/joins";
import { change } from "../state/view";
import { length } from "../timeline/axis";
import { visible } from "../timeline/words";
import { Probable, Section } from "./requestpanel";
import { spanToken } from "./waterfallrows";

const secs = (s: number) => length(s * 1e6);
const UNSURE: Record<string, string> = {
  incomplete: "spans of it are missing", dropped: "its senders dropped attributes", orphans: "spans whose parent nobody exported", split: "more than one root", skewed: "clocks of its hosts differ", head_sampled: "chosen before it began: percentiles from such traces are unreliable",
};
export const flagWords = (f: string): string => UNSURE[f] ?? words(f);

/** The first name of a trace's request among its spans' attributes. */
export function attrOf(d: api.TraceDetail, keys: readonly string[]): string {
  for (const s of d.spans) for (const a of s.attrs) if (a.value !== "" && keys.includes(a.key)) return a.value;
  return "";
}
const RID = ["rid", "sglang.rid", "request_id", "gen_ai.request.id", "x_request_id"];

export function TracePanel({ d }: { d: api.TraceDetail }) {
  const start = parseApiTime(d.start);
  const levels = Object.entries(d.levels);
  const errors = d.spans.filter((s) => s.status === "error");
  const rid = attrOf(d, RID);
  // What a problem says in full is not said once more as a word.
  const flags = d.problems.length > 0 ? d.flags.filter((f) => !["dropped", "incomplete", "orphans", "split"].includes(f)) : d.flags;
  return (
    <aside class="panel details span-panel" aria-label="trace">
      <header class="panel-h"><h2>Trace</h2><span class="u">{secs(d.duration_seconds)}</span><span class="sp" />{errors.length > 0 && <Badge level="crit">{plural(errors.length, "error")}</Badge>}</header>
      <div class="scroll request-body">
        <div class="ways">
          {d.request_id ? <Link to="requests" patch={{ id: d.request_id, range: around(start, d.duration_seconds) }} class="btn">Its request <kbd>r</kbd></Link> : <span class="btn off" aria-disabled="true" title="no request is proven to be of this trace">Request</span>}
          <Link to="logs" patch={{ filter: logsFilter({ rid, traceID: d.trace_id }), range: around(start, d.duration_seconds) }} class="btn">Log lines <kbd>l</kbd></Link>
        </div>
        <dl class="tl-long ids">
          <div><dt>trace id</dt><dd class="mono">{d.trace_id}<Copy text={d.trace_id} label="the trace id" /></dd></div>
          {rid && <div><dt>rid</dt><dd class="mono">{rid}<Copy text={rid} label="the rid" /></dd></div>}
          <div><dt>start</dt><dd>{startText(start)} UTC</dd></div>
          <div><dt>spans</dt><dd>{grouped(d.spans.filter((s) => !s.missing).length + d.spans_not_shown, 0)} of {plural(d.services.length, "service")}</dd></div>
          {levels.length > 0 && <div><dt>level</dt><dd>{levels.map(([s, n]) => `${s} ${n}`).join(", ")}</dd></div>}
        </dl>
        {d.phases.length > 0 && <Section title="Where its time went"><PhaseBars phases={d.phases} total={d.duration_seconds} start={start} rest={d.unattributed_seconds} /></Section>}
        {(flags.length > 0 || d.problems.length > 0) && (
          <Section title="To know">
            {flags.length > 0 && <ul class="plain sec">{flags.map((f) => <li key={f} class="flag"><StateIcon level="warn" />{flagWords(f)}</li>)}</ul>}
            <Warnings list={d.problems} />
          </Section>
        )}
        <Probable_ d={d} />
        {errors.length > 0 && (
          <Section title="Errors" unit={String(errors.length)}>
            <ul class="plain">{errors.slice(0, 50).map((s) => <li key={s.span_id}><button type="button" class="tl-link" onClick={() => change({ span: s.span_id })}>{s.name}</button> <span class="sec">{s.message}</span></li>)}</ul>
          </Section>
        )}
        {d.other_trace_ids.length > 0 && (
          <Section title="The id may also mean" unit="the same low 64 bits"><ul class="plain">{d.other_trace_ids.map((t) => <li key={t}><Link patch={{ id: t, span: "" }} class="mono">{short(t, 34)}</Link></li>)}</ul></Section>
        )}
        <p class="mut">Select a span to see its attributes, events and links.</p>
      </div>
    </aside>
  );
}

/** Matches that nothing proves; where there is no request either, the first is named in so many words. */
function Probable_({ d }: { d: api.TraceDetail }) {
  if (d.probable.length === 0) return null;
  const one = d.probable[0] as api.ProbableMatch;
  return (
    <>
      {!d.request_id && (
        <p class="probable">This is <b>probably</b> one request with {one.id ? <Link to="requests" patch={{ id: one.id }}>request {short(one.id, 16)}</Link> : <Link patch={{ id: one.trace_id, span: "" }}>trace {short(one.trace_id, 16)}</Link>}: {one.why}.</p>
      )}
      {(d.request_id !== "" || d.probable.length > 1) && <Probable list={d.request_id ? d.probable : d.probable.slice(1)} />}
    </>
  );
}

export function SpanPanel({ d, s, colours }: { d: api.TraceDetail; s: api.TraceSpan; colours: Map<string, string> }) {
  const parent = d.spans[s.parent];
  const start = parseApiTime(d.start) + s.start_seconds * 1000;
  const rid = s.attrs.find((a) => RID.includes(a.key))?.value ?? "";
  const facts: [string, ComponentChildren, boolean?][] = [
    ["start", secs(s.start_seconds)], ["duration", s.missing ? "–" : secs(s.duration_seconds)],
    ["of it its own", s.missing ? "–" : secs(s.self_seconds)], ["of the trace", s.missing || !(d.duration_seconds > 0) ? "–" : `${((s.duration_seconds / d.duration_seconds) * 100).toFixed(1)} %`],
    ["kind", s.kind || "–"], ["class", words(s.class) || "–"],
  ];
  return (
    <aside class="panel details span-panel" aria-label="span">
      <header class="panel-h">
        <i class="sw-box" style={{ "--c": `var(${spanToken(s, colours)})` }} aria-hidden="true" />
        <h2 title={s.name}>{s.name || (s.missing ? "Missing span" : "(no name)")}</h2>
        <span class="sp" />
        {s.status === "error" ? <Badge level="crit">error</Badge> : s.missing ? <Badge level="unknown">not exported</Badge> : s.status === "ok" ? <Badge level="ok" /> : null}
        <button type="button" class="quiet" title="the whole trace (Esc)" onClick={() => change({ span: "" })}>trace</button>
      </header>
      <div class="scroll request-body">
        {s.missing && <p class="bad">Other spans name it as their parent, and nobody exported it. Its place is drawn over its children; nothing else of it is known.</p>}
        {s.message && <p class="bad wrap">{visible(s.message)}</p>}
        <dl class="tl-facts">{facts.map(([k, x]) => <div key={k}><dt>{k}</dt><dd>{x}</dd></div>)}</dl>
        {s.folded && (
          <Section title={`Stands for ${grouped(s.folded.count, 0)} spans`}>
            <dl class="tl-facts">
              {([["sum", s.folded.sum_seconds], ["p50", s.folded.p50_seconds], ["p99", s.folded.p99_seconds], ["max", s.folded.max_seconds]] as const).map(([k, x]) => <div key={k}><dt>{k}</dt><dd>{secs(x)}</dd></div>)}
            </dl>
          </Section>
        )}
        <dl class="tl-long ids">
          <div><dt>service</dt><dd>{s.service || "unknown"}</dd></div>
          {s.scope && <div><dt>scope</dt><dd>{s.scope}</dd></div>}
          <div><dt>began</dt><dd>{startText(start)} UTC</dd></div>
          <div><dt>span id</dt><dd class="mono">{s.span_id}<Copy text={s.span_id} label="the span id" /></dd></div>
          {(parent || s.parent_id) && <div><dt>parent</dt><dd>{parent ? <button type="button" class="tl-link" onClick={() => change({ span: parent.span_id })}>{parent.name || "missing span"}</button> : <span class="mono">{s.parent_id}</span>}</dd></div>}
        </dl>
        <div class="ways">
          <Link to="logs" patch={{ filter: logsFilter({ rid, traceID: d.trace_id }), range: around(start, s.duration_seconds) }} class="btn">Log lines <kbd>l</kbd></Link>
          {s.service && <Link patch={{ id: "", span: "", part: "", closed: "", draw: "waterfall", service: s.service, name: s.name, range: around(start, 1800) }} class="btn">Others like it</Link>}
        </div>
        {s.flags.length > 0 && <ul class="plain sec">{s.flags.map((f) => <li key={f} class="flag"><StateIcon level="warn" />{words(f)}</li>)}</ul>}
        {s.attributes_dropped > 0 && <p class="trap"><StateIcon level="warn" /><span>{plural(s.attributes_dropped, "attribute")} dropped by the sender: its limit of attributes a span is lower than what it sets (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT).</span></p>}
        <Attrs title="Attributes" list={s.attrs} />
        {s.events.length > 0 && (
          <Section title="Events" unit={grouped(s.events.length, 0)}>
            {s.events.slice(0, 100).map((e, i) => (
              <div key={i} class="span-event">
                <div><b>{visible(e.name)}</b> <span class="mut">at {secs(e.at_seconds)}</span></div>
                {e.attrs.length > 0 && <AttrTable list={e.attrs} />}
              </div>
            ))}
          </Section>
        )}
        {s.links.length > 0 && (
          <Section title="Links" unit={grouped(s.links.length, 0)}>
            <ul class="plain">
              {s.links.map((l, i) => (
                <li key={i}>
                  {l.trace_id === d.trace_id ? <button type="button" class="tl-link mono" onClick={() => change({ span: l.span_id })}>span {l.span_id}</button> : <Link patch={{ id: l.trace_id, span: l.span_id, part: "", closed: "" }} class="mono">trace {short(l.trace_id, 18)}</Link>}
                  {l.attrs.length > 0 && <AttrTable list={l.attrs} />}
                </li>
              ))}
            </ul>
          </Section>
        )}
        <Attrs title="Resource" list={s.resource} />
      </div>
    </aside>
  );
}

function Attrs({ title, list }: { title: string; list: api.TraceAttr[] }) {
  const all = useSignal(false);
  if (list.length === 0) return null;
  const shown = all.value ? list : list.slice(0, 60);
  return (
    <Section title={title} unit={grouped(list.length, 0)}>
      <AttrTable list={shown} />
      {shown.length < list.length && <button type="button" class="quiet" onClick={() => (all.value = true)}>{grouped(list.length - shown.length, 0)} more</button>}
    </Section>
  );
}

/** A dotted name that breaks where its parts end, and not within a word. */
function breakable(key: string): ComponentChildren {
  return key.split(/(?<=[._])/).map((part, i) => (i === 0 ? part : [<wbr key={i} />, part]));
}

function AttrTable({ list }: { list: api.TraceAttr[] }) {
  return (
    <table class="said"><tbody>
      {list.map((a, i) => <tr key={i}><th scope="row" title={a.type}>{breakable(visible(a.key))}</th><td class="wrap mono">{visible(a.value)}</td></tr>)}
    </tbody></table>
  );
}
