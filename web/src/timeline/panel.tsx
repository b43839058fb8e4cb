// The panel at the right: a sample with its requests, phases, attributes and texts, or the numbers of the
// range. All of it is text that can be selected; nothing of a dump is ever markup.
import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { Badge } from "../components/state";
import { grouped } from "../format/number";
import { clockTime, length, wallClock } from "./axis";
import type { Model } from "./model";
import type { Pane } from "./pane";
import type { Sample, Slot, Text } from "./source";
import { CLASS_NAMES, ITEM_FLAGS, OPEN, ORPHAN, PHASE, PHASES, PHASE_HELD_BY, POINT, ROW_FLAGS, rowName } from "./table";
import { CLASS_TOKENS } from "./colours";
import { ofTrace, titleOf, valueText, visible } from "./words";

export interface PanelLink {
  label: string;
  href: string;
  /** goes there without a new page */
  go?: () => void;
}

/** A link as a button; a plain press stays in the page where it can. */
function Way({ link }: { link: PanelLink }) {
  return (
    <a class="btn" href={/^(https?:|\/|#)/.test(link.href) ? link.href : "#"} onClick={(e) => {
      if (!link.go || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
      e.preventDefault();
      link.go();
    }}>{link.label}</a>
  );
}

export interface PanelProps {
  model: Model;
  /** links to elsewhere for a row: engine, logs, trace, the sample's own page */
  links?: ((pane: Pane, row: number) => PanelLink[]) | undefined;
  /** the same for one request of a row: its id, "" when none was written, and its start and length in microseconds */
  requestLinks?: ((pane: Pane, row: number, rid: string, start: number, length: number) => PanelLink[]) | undefined;
}

export function Panel({ model, links, requestLinks }: PanelProps) {
  const v = model.view.value;
  const pane = model.pane;
  const row = pane.pv(v).row;
  const tab = (key: "sample" | "range", label: string) => (
    <button type="button" role="tab" id={`tl-tab-${key}`} aria-selected={v.tab === key} aria-controls="tl-tabpanel" class={v.tab === key ? "on" : ""} onClick={() => model.set({ tab: key })}>{label}</button>
  );
  return (
    <aside class="panel tl-panel" aria-label="details">
      <div class="tl-tabs" role="tablist">
        {tab("sample", ofTrace(pane.source) ? "Participant" : row >= 0 && row < pane.source.rows.n ? `Sample ${rowName(pane.source.rows, row)}` : "Sample")}
        {tab("range", "Range")}
        <span class="sp" />
        <button type="button" class="quiet" aria-label="close the panel" title="close the panel (p)" onClick={() => model.set({ tab: "none" })}>×</button>
      </div>
      <div class="tl-body scroll" id="tl-tabpanel" role="tabpanel" aria-labelledby={`tl-tab-${v.tab}`} tabIndex={0}>
        {v.tab === "range" ? <Range model={model} pane={pane} /> : row >= 0 && row < pane.source.rows.n ? <SampleView key={`${pane.index} ${row}`} model={model} pane={pane} row={row} links={links} requestLinks={requestLinks} /> : <p class="calm">Choose a row: click it, or <kbd>j</kbd> and <kbd>k</kbd>.</p>}
      </div>
    </aside>
  );
}

/** Pairs of name and value, two to a line. */
function Facts({ list }: { list: [string, ComponentChildren, boolean?][] }) {
  return (
    <dl class="tl-facts">
      {list.map(([k, v, bad]) => <div key={k}><dt>{k}</dt><dd class={bad ? "bad" : ""}>{v}</dd></div>)}
    </dl>
  );
}

function Section({ title, unit, children }: { title: string; unit?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="tl-section">
      <h3>{title}{unit !== undefined && <span class="u"> {unit}</span>}</h3>
      {children}
    </section>
  );
}

const whole = (v: number | undefined): string => (v === undefined || Number.isNaN(v) ? "–" : grouped(v, 0));

function SampleView({ model, pane, row, links, requestLinks }: { model: Model; pane: Pane; row: number; links: PanelProps["links"]; requestLinks: PanelProps["requestLinks"] }) {
  const v = model.view.value;
  const { source } = pane;
  const { rows, head } = source;
  const [sample, setSample] = useState<Sample | null>(null);
  const [failed, setFailed] = useState("");
  const request = useSignal(-1);
  useEffect(() => {
    let on = true;
    source.sample(row).then((s) => on && setSample(s), (err: Error) => on && setFailed(err.message));
    return () => void (on = false);
  }, [source, row]);
  const status = head.dicts.status[rows.status[row] as number] ?? "";
  const group = rows.group[row] as number;
  const reward = rows.reward[row] as number;
  const traced = rows.why[row] === 0;
  const trace = ofTrace(source);
  const siblings = members(pane, row);
  const end = (rows.start[row] as number) + (rows.dur[row] as number) - pane.origin;
  const slow = slower(pane, row);
  void pane.arrived.value; // the row's window may still be on its way
  const slot = pane.slotOf(v, row);
  const item = pane.pv(v).item;
  const flags = ROW_FLAGS.filter(([bit]) => ((rows.flags[row] as number) & bit) !== 0);
  const source_ = head.dicts.source[rows.source[row] as number] ?? "", label = head.dicts.label[rows.label[row] as number] ?? "";
  const shownLinks = links?.(pane, row) ?? [];
  return (
    <>
      <header class="tl-sample-h">
        <b>{trace ? titleOf(source, row) : `Sample ${rowName(rows, row)}`}</b>
        <span class="u">{Number.isNaN(group) ? `row ${rows.ordinal[row]}` : `group ${group}${siblings.n > 1 ? ` · ${siblings.place} of ${siblings.n}` : ""}`}</span>
        <span class="sp" />
        {status && <Badge level={status === "completed" ? "ok" : status === "truncated" || status === "pending" ? "warn" : status === "aborted" || status === "failed" ? "crit" : "idle"}>{valueText(status, 24)}</Badge>}
      </header>
      <Facts list={trace ? [
        ["start", clockTime((rows.start[row] as number) - pane.origin, 1, true)], ["duration", length(rows.dur[row] as number)],
        ["spans", whole(rows.items[row])], ["events", whole(rows.points[row])],
      ] : [
        ["reward", Number.isNaN(reward) ? "–" : <b>{trim(reward)}</b>], ["group mean", Number.isNaN(siblings.mean) ? "–" : trim(siblings.mean)],
        ["response", `${whole(rows.response[row])} tok`], ["prompt", `${whole(rows.prompt[row])} tok`],
        ["start", traced ? clockTime((rows.start[row] as number) - pane.origin, 1, true) : "–"], ["end", !traced ? "–" : (rows.open[row] as number) > 0 ? "open" : clockTime(end, 1, true)],
        ["duration", traced ? length(rows.dur[row] as number) : "–"], ["vs p50", Number.isNaN(slow) ? "–" : `${slow.toFixed(1)}×`, slow > 2],
        ["attempts", whole(rows.attempts[row])], ["requests", whole(rows.requests[row])],
        ["open, orphans", `${whole(rows.open[row])}, ${whole(rows.orphans[row])}`], ["events", whole(rows.points[row])],
      ]} />
      <dl class="tl-long">
        {traced && <div><dt>began</dt><dd>{wallClock(head.t0, rows.start[row] as number)}</dd></div>}
        {!traced && <div><dt>no timeline</dt><dd>{head.dicts.why[rows.why[row] as number]}</dd></div>}
        {source_ && <div><dt>source</dt><dd>{valueText(source_)}</dd></div>}
        {label && <div><dt>label</dt><dd>{valueText(label)}</dd></div>}
        {rows.trace.at(row) && <div><dt>trace</dt><dd class="mono">{rows.trace.at(row)}</dd></div>}
        {flags.length > 0 && <div><dt>notes</dt><dd>{flags.map(([, , w]) => w).join("; ")}</dd></div>}
      </dl>
      {failed && <p class="bad" role="alert">{failed}</p>}
      {item >= 0 && slot && <ItemView model={model} pane={pane} slot={slot} row={row} item={item} sample={sample} />}
      {slot && (rows.requests[row] as number) > 0 && <Requests pane={pane} row={row} slot={slot} links={requestLinks} chosen={request.value} choose={(q, it) => {
        request.value = request.value === q ? -1 : q;
        if (it >= 0) model.select(pane, row, it);
      }} />}
      {sample && <Details detail={sample.detail} />}
      <Texts pane={pane} row={row} />
      <div class="tl-links">
        <button type="button" class="btn" onClick={() => model.fitSelection()}>Fit in the window</button>
        <button type="button" class="btn" onClick={() => model.toggleRow(pane, row)}>{pane.isOpen(v, row) ? "Collapse" : "Expand"} lanes</button>
        {!Number.isNaN(group) && <button type="button" class="btn" onClick={() => model.set({ filter: `group=${group}` })}>Only its group</button>}
        {shownLinks.map((l) => <Way key={l.href} link={l} />)}
      </div>
    </>
  );
}

const trim = (v: number) => (Number.isInteger(v) ? grouped(v, 0) : Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6 ? v.toPrecision(4) : v.toFixed(3)).replace("-", "−");

function members(pane: Pane, row: number): { n: number; place: number; mean: number } {
  const { rows } = pane.source;
  const g = rows.group[row] as number;
  if (Number.isNaN(g)) return { n: 0, place: 0, mean: NaN };
  let n = 0, place = 0, sum = 0, known = 0;
  for (let r = 0; r < rows.n; r++) {
    if (rows.group[r] !== g) continue;
    n++;
    if (r <= row) place = n;
    const v = rows.reward[r] as number;
    if (!Number.isNaN(v)) {
      sum += v;
      known++;
    }
  }
  return { n, place, mean: known > 0 ? sum / known : NaN };
}

const medians = new WeakMap<Pane, number>();

/** Its duration over the median's. */
function slower(pane: Pane, row: number): number {
  const { rows } = pane.source;
  let p50 = medians.get(pane);
  if (p50 === undefined) {
    const d = rows.dur.filter((_, r) => rows.why[r] === 0).sort();
    p50 = d.length > 0 ? (d[(d.length - 1) >> 1] as number) : NaN;
    medians.set(pane, p50);
  }
  return rows.why[row] === 0 && p50 > 0 ? (rows.dur[row] as number) / p50 : NaN;
}

/** A span, with everything that was written about it. */
function ItemView({ model, pane, slot, row, item, sample }: { model: Model; pane: Pane; slot: Slot; row: number; item: number; sample: Sample | null }) {
  const { table: t, at } = slot;
  const { head } = pane.source;
  const a = t.itemFrom[at] as number;
  const i = a + item;
  if (i >= (t.itemFrom[at + 1] as number)) return null;
  const name = head.dicts.name[t.name[i] as number] || "(no name)";
  const state = t.state[i];
  const point = state === POINT || state === ORPHAN;
  const start = t.start[i] as number, dur = t.dur[i] as number;
  const parent = t.parent[i] as number;
  const attrs = pane.source.local ? sample?.attrs[item] : null;
  const sides = Array.isArray(attrs) ? attrs : [];
  const segs: { cls: number; dur: number }[] = [];
  for (let s = t.segFrom[i] as number, e = t.segFrom[i + 1] as number; s < e; s++) segs.push({ cls: t.segClass[s] as number, dur: t.segDur[s] as number });
  const flags = ITEM_FLAGS.filter(([bit]) => ((t.flags[i] as number) & bit) !== 0);
  return (
    <Section title={point ? "Event" : "Span"} unit={CLASS_NAMES[t.class[i] as number]}>
      <div class="tl-item-name wrap">{valueText(name, 500)}</div>
      <Facts list={[
        ["start", clockTime(start - pane.origin, 3, true)], ["end", point ? "–" : state === OPEN ? "open" : clockTime(start + dur - pane.origin, 3, true)],
        ["duration", point ? "–" : state === OPEN ? `≥ ${length(dur)}` : length(dur)], ["attempt", String(t.attempt[i])],
        ["lane, depth", `${t.lane[i]}, ${t.depth[i]}`], ["stands for", grouped(t.count[i] as number, 0)],
      ]} />
      <dl class="tl-long">
        <div><dt>wall clock</dt><dd>{wallClock(head.t0, start, 6)}</dd></div>
        {parent >= 0 && <div><dt>parent</dt><dd><button type="button" class="tl-link" onClick={() => model.select(pane, row, parent)}>{valueText(head.dicts.name[t.name[a + parent] as number] || "(no name)", 120)}</button></dd></div>}
        {state === OPEN && <div><dt>no end</dt><dd>drawn to {(head.dicts.clip[t.clip[i] as number] || "the row's end").replace(/_/g, " ")}</dd></div>}
        {state === ORPHAN && <div><dt>an end</dt><dd>without a start</dd></div>}
        {flags.length > 0 && <div><dt>notes</dt><dd>{flags.map(([, w]) => w).join("; ")}</dd></div>}
      </dl>
      {segs.length > 0 && <PhaseTable rows={segs.map((s) => ({ label: CLASS_NAMES[s.cls] ?? "", token: CLASS_TOKENS[s.cls] ?? "", us: s.dur, ratio: NaN, held: false }))} />}
      {["start attributes", "end attributes"].map((title, k) => {
        const side = sides[k];
        if (side === null || side === undefined || typeof side !== "object") return null;
        return <Pairs key={title} title={point ? "attributes" : title} value={side as Record<string, unknown>} />;
      })}
    </Section>
  );
}

interface PhaseRow {
  label: string;
  token: string;
  us: number;
  ratio: number;
  held: boolean;
}

function PhaseTable({ rows }: { rows: PhaseRow[] }) {
  const sum = rows.reduce((a, r) => a + (r.held ? 0 : r.us), 0);
  const ratios = rows.some((r) => !Number.isNaN(r.ratio));
  return (
    <table class="tl-phases">
      <thead><tr><th>Phase</th><th class="n">ms</th><th class="n">%</th>{ratios && <th class="n">vs p50</th>}</tr></thead>
      <tbody>
        {rows.map((r, k) => (
          <tr key={k} class={r.held ? "held" : ""}>
            <td><i class="sw" style={{ "--c": `var(${r.token})` }} aria-hidden="true" /> {r.label}</td>
            <td class="n">{grouped(r.us / 1000, r.us < 100_000 ? 1 : 0)}</td>
            <td class="n">{sum > 0 ? ((r.us / sum) * 100).toFixed(1) : "–"}</td>
            {ratios && <td class={`n${r.ratio > 2 ? " bad" : ""}`}>{Number.isNaN(r.ratio) ? "–" : `${r.ratio.toFixed(1)}×`}</td>}
          </tr>
        ))}
        <tr class="sum"><td>sum</td><td class="n"><b>{grouped(sum / 1000, sum < 100_000 ? 1 : 0)}</b></td><td class="n">{sum > 0 ? "100.0" : "–"}</td>{ratios && <td />}</tr>
      </tbody>
    </table>
  );
}

function Requests({ pane, row, slot, links, chosen, choose }: { pane: Pane; row: number; slot: Slot; links: PanelProps["requestLinks"]; chosen: number; choose: (q: number, item: number) => void }) {
  const { table: t, at } = slot;
  const { req } = t;
  const { head } = pane.source;
  const from = t.reqFrom[at] as number, to = t.reqFrom[at + 1] as number;
  const all = useSignal(false);
  const shown = all.value ? to : Math.min(to, from + 50);
  const seconds = (us: number) => (Number.isNaN(us) ? "–" : grouped(us / 1e6, us < 1e6 ? 2 : 1));
  const side = (q: number, phases: number[]) => {
    let sum = NaN;
    for (const p of phases) {
      const v = (req.phase[p] as Float64Array)[q] as number;
      if (!Number.isNaN(v)) sum = (Number.isNaN(sum) ? 0 : sum) + v;
    }
    return sum;
  };
  const list: number[] = [];
  for (let q = from; q < shown; q++) list.push(q);
  const pick = chosen >= 0 && from + chosen < to ? from + chosen : to - from === 1 ? from : -1;
  return (
    <Section title="Requests" unit={`${grouped(to - from, 0)} · s`}>
      <table class="tl-requests rows">
        <thead><tr><th>rid</th><th>Phases</th><th class="n">Queue</th><th class="n">Prefill</th><th class="n">Decode</th><th>End</th></tr></thead>
        <tbody>
          {list.map((q) => {
            const rid = req.rid.at(q);
            return (
              <tr key={q} data-key={q - from} class={q === pick ? "sel" : ""} onClick={() => choose(q - from, req.item[q] as number)}>
                <td><button type="button" class="tl-link mono" title={rid} onClick={(e) => {
                  e.stopPropagation();
                  choose(q - from, req.item[q] as number);
                }}>{rid === "" ? `request ${q - from}` : rid.length > 11 ? `${rid.slice(0, 4)}…${rid.slice(-2)}` : rid}</button></td>
                <td><Mini parts={[["--ph-queue", req.queue[q] as number], ...PHASES.map((_, p): [string, number] => [CLASS_TOKENS[PHASE + p] as string, own(req.phase, p, q)])]} /></td>
                <td class="n">{seconds(req.queue[q] as number)}</td>
                <td class="n">{seconds(side(q, [0, 3]))}</td>
                <td class="n">{seconds(side(q, [5, 8, 9]))}</td>
                <td>{Number.isNaN(req.dur[q] as number) ? "open" : head.dicts.finish[req.finish[q] as number] || "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {shown < to && <button type="button" class="quiet" onClick={() => (all.value = true)}>show all {grouped(to - from, 0)}</button>}
      {pick >= 0 && <Request pane={pane} slot={slot} q={pick} links={links?.(pane, row, req.rid.at(pick), req.start[pick] as number, req.dur[pick] as number) ?? []} />}
    </Section>
  );
}

/** A phase without those that stand inside of it. */
function own(phase: Float64Array[], p: number, q: number): number {
  let v = (phase[p] as Float64Array)[q] as number;
  if (Number.isNaN(v)) return NaN;
  PHASE_HELD_BY.forEach((by, k) => {
    const inner = (phase[k] as Float64Array)[q] as number;
    if (by === p && !Number.isNaN(inner)) v -= inner;
  });
  return Math.max(0, v);
}

const INVALID = ["queue", "e2e", "throughput", ...PHASES, "speed", "size", "retries", "prompt tokens", "completion tokens", "cached tokens"];

function Request({ pane, slot, q, links }: { pane: Pane; slot: Slot; q: number; links: PanelLink[] }) {
  const { req } = slot.table;
  const p50 = pane.source.medians();
  const rows: PhaseRow[] = [];
  PHASES.forEach((label, p) => {
    const us = (req.phase[p] as Float64Array)[q] as number;
    if (Number.isNaN(us)) return;
    const m = p50 ? (p50[p] as number) : NaN;
    rows.push({ label, token: CLASS_TOKENS[PHASE + p] as string, us, ratio: m > 0 ? us / m : NaN, held: PHASE_HELD_BY[p] !== -1 && !Number.isNaN((req.phase[PHASE_HELD_BY[p] as number] as Float64Array)[q] as number) });
  });
  const num = (v: number, digits: number, unit: string) => (Number.isNaN(v) ? "–" : `${grouped(v, digits)} ${unit}`);
  const invalid = INVALID.filter((_, bit) => ((req.invalid[q] as number) & (1 << bit)) !== 0);
  const rid = req.rid.at(q);
  return (
    <div class="tl-request">
      <h4>Request <span class="mono">{valueText(rid || "without id", 80)}</span></h4>
      {links.length > 0 && <div class="tl-links">{links.map((l) => <Way key={l.href} link={l} />)}</div>}
      {rows.length > 0 ? <PhaseTable rows={rows} /> : <p class="calm">No phases were written for it.</p>}
      <Facts list={[
        ["queue", length(req.queue[q] as number)], ["latency", length(req.e2e[q] as number)],
        ["prompt", num(req.prompt[q] as number, 0, "tok")], ["completion", num(req.completion[q] as number, 0, "tok")],
        ["cached", num(req.cached[q] as number, 0, "tok")], ["throughput", num(req.throughput[q] as number, 1, "tok/s")],
        ["KV moved", num(req.size[q] as number, 0, "MB")], ["speed", num(req.speed[q] as number, 2, "GB/s")],
        ["retries", num(req.retries[q] as number, 0, ""), (req.retries[q] as number) > 0], ["attempt", String(req.attempt[q])],
      ]} />
      {invalid.length > 0 && <p class="bad">Said, but cannot be: {invalid.join(", ")}.</p>}
    </div>
  );
}

function Mini({ parts }: { parts: [string, number][] }) {
  const shown = parts.filter(([, v]) => v > 0);
  return (
    <span class="tl-mini" aria-hidden="true">
      {shown.map(([c, v], k) => <i key={k} style={{ flexGrow: String(v), background: `var(${c})` }} />)}
    </span>
  );
}

/** An object as a table of two columns; values that are objects unfold. */
function Pairs({ title, value }: { title: string; value: Record<string, unknown> }) {
  const all = useSignal(false);
  const entries = Object.entries(value);
  const shown = all.value ? entries : entries.slice(0, 40);
  return (
    <div class="tl-pairs">
      {title !== "" && <h4>{title}</h4>}
      <table>
        <tbody>{shown.map(([k, v], i) => <tr key={i}><th scope="row">{valueText(k, 200)}</th><td class="wrap mono"><Value v={v} /></td></tr>)}</tbody>
      </table>
      {shown.length < entries.length && <button type="button" class="quiet" onClick={() => (all.value = true)}>{grouped(entries.length - shown.length, 0)} more</button>}
    </div>
  );
}

function Value({ v }: { v: unknown }) {
  const all = useSignal(false);
  const compact = typeof v === "string" ? v : JSON.stringify(v) ?? "";
  const text = visible(typeof v !== "string" && compact.length > 60 ? JSON.stringify(v, null, 1) : compact);
  if (text.length <= 400 || all.value) return <>{text}</>;
  return <>{text.slice(0, 400)}… <button type="button" class="quiet" onClick={() => (all.value = true)}>all {grouped(text.length, 0)} characters</button></>;
}

function Details({ detail }: { detail: Record<string, unknown> }) {
  const { reward, metadata, problems, ...rest } = detail;
  const isObject = (v: unknown): v is Record<string, unknown> => v !== null && typeof v === "object" && !Array.isArray(v);
  const list = Array.isArray(problems) ? (problems as unknown[]) : [];
  return (
    <>
      {isObject(reward) && Object.keys(reward).length > 0 && <Section title="Reward" unit="its parts"><Pairs title="" value={reward} /></Section>}
      {reward !== undefined && reward !== null && !isObject(reward) && <Section title="Reward"><p class="wrap mono">{valueText(reward)}</p></Section>}
      {list.length > 0 && (
        <Section title="Problems" unit={String(list.length)}>
          <ul class="plain tl-problems">
            {list.slice(0, 100).map((p, i) => <li key={i}>{isObject(p) ? <><b>{valueText(p["code"] ?? "", 60)}</b> <span class="mono">{valueText(p["where"] ?? "", 80)}</span> {valueText(p["what"] ?? "", 300)}</> : valueText(p)}</li>)}
          </ul>
        </Section>
      )}
      {isObject(metadata) && Object.keys(metadata).length > 0 && <Section title="Metadata"><Pairs title="" value={metadata} /></Section>}
      {Object.keys(rest).length > 0 && <Section title="Also written"><Pairs title="" value={rest} /></Section>}
    </>
  );
}

/** Prompt and response, only when asked for. */
function Texts({ pane, row }: { pane: Pane; row: number }) {
  const [text, setText] = useState<Text | string | null>(null);
  const open = useSignal(false);
  return (
    <Section title="Prompt and response">
      {text === null ? (
        <button type="button" class="btn" disabled={open.value} onClick={() => {
          open.value = true;
          pane.source.text(row).then(setText, (err: Error) => setText(err.message));
        }}>{open.value ? "reading…" : "Show"}</button>
      ) : typeof text === "string" ? (
        <p class="bad" role="alert">{text}</p>
      ) : (
        <>
          {text.note && <p class="calm">{text.note}</p>}
          {text.prompt !== null && <><h4>prompt</h4><pre class="tl-text" tabIndex={0}>{visible(text.prompt)}</pre></>}
          {text.response !== null && <><h4>response</h4><pre class="tl-text" tabIndex={0}>{visible(text.response)}</pre></>}
        </>
      )}
    </Section>
  );
}

/** Numbers of what is seen, or of the selected range. */
function Range({ model, pane }: { model: Model; pane: Pane }) {
  const v = model.view.value;
  const stats = pane.stats.value, states = pane.states.value;
  const [a, b] = model.range(pane);
  const names = pane.source.head.dicts.name;
  const chosen = v.from !== null && v.to !== null;
  const max = stats ? Math.max(1, ...stats.map((s) => (Number.isNaN(s.max) ? 0 : s.max))) : 1;
  const inMs = max < 9_999_000;
  const time = (us: number) => (Number.isNaN(us) ? "–" : inMs ? grouped(us / 1000, 1) : grouped(us / 1e6, us >= 1e8 ? 0 : 2));
  return (
    <>
      <header class="tl-sample-h">
        <b>{chosen ? "Selected range" : "Visible range"}</b>
        <span class="u">{clockTime(a - pane.origin, 1, true)} – {clockTime(b - pane.origin, 1, true)} · {length(b - a)}</span>
        <span class="sp" />
        {chosen && <button type="button" class="quiet" onClick={() => model.set({ from: null, to: null })}>all that is seen</button>}
      </header>
      <p class="u">Spans that touch it{pane.info.value.ready && `, of the ${grouped(pane.info.value.shown, 0)} rows that match`}. Durations are whole{stats !== null && `, in ${inMs ? "ms" : "s"}`}.</p>
      {stats === null ? <p class="calm tl-late">counting…</p> : stats.length === 0 ? <p class="calm">No span touches this range.</p> : (
        <table class="tl-stats">
          <thead><tr><th>Span</th><th class="n">n</th><th class="n">p50</th><th class="n">p99</th><th class="n">sum, s</th></tr></thead>
          <tbody>
            {stats.map((s) => (
              <tr key={s.name}>
                <td title={valueText(names[s.name] ?? "", 300)}>{valueText(names[s.name] || "(no name)", 60)}{s.open > 0 && <span class="u"> {s.open} open</span>}</td>
                <td class="n">{grouped(s.n || s.points + s.open + s.merged, 0)}</td>
                <td class="n">{time(s.p50)}</td>
                <td class="n">{time(s.p99)}</td>
                <td class="n">{Number.isNaN(s.sum) ? "–" : grouped(s.sum / 1e6, s.sum >= 1e8 ? 0 : 1)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <Section title="Rows at the cursor" unit={v.cursor === null ? "click sets it" : clockTime(v.cursor, 1, true)}>
        {states === null ? <p class="calm">The cursor is not set.</p> : (
          <table class="tl-states-table">
            <tbody>
              {(Object.entries(states) as [string, number][]).filter(([k, n]) => n > 0 || k === "total").map(([k, n]) => <tr key={k}><th scope="row">{k.replace("_", " ")}</th><td class="n">{grouped(n, 0)}</td><td class="n">{states.total > 0 ? `${((n / states.total) * 100).toFixed(1)} %` : "–"}</td></tr>)}
            </tbody>
          </table>
        )}
      </Section>
      <Section title="Dump">
        <dl class="tl-long">
          <div><dt>file</dt><dd class="wrap">{valueText(pane.source.head.dump.name, 300)}</dd></div>
          <div><dt>kind</dt><dd>{valueText(pane.source.head.dump.kind, 40)}{pane.source.head.dump.rollout_id !== null && ` · rollout ${pane.source.head.dump.rollout_id}`}</dd></div>
          <div><dt>size</dt><dd>{grouped(pane.source.head.dump.bytes / 1e6, 1)} MB</dd></div>
          {Object.entries(pane.source.head.counts).map(([k, n]) => <div key={k}><dt>{k}</dt><dd>{grouped(n, 0)}</dd></div>)}
          <div><dt>begins</dt><dd>{wallClock(pane.source.head.t0, pane.origin, 6)}</dd></div>
          <div><dt>lasts</dt><dd>{length(pane.source.extent[1] - pane.source.extent[0])}</dd></div>
          {pane.source.head.note && <div><dt>note</dt><dd>{valueText(pane.source.head.note, 500)}</dd></div>}
          <div><dt>written by</dt><dd>rollscope {valueText(pane.source.head.tool, 60)}</dd></div>
        </dl>
      </Section>
    </>
  );
}
