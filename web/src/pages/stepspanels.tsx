// What is said of one step beside its timeline: its numbers, where its time went, its metrics; and of two
// steps what changed between them.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { Badge, ErrorBox, LoadingBar, Notes } from "../components/state";
import { Table, type Column } from "../components/table";
import { grouped, plural, scaleFor, withUnit } from "../format/number";
import { clock, dayClock, duration, parseApiTime, sameDay } from "../format/time";
import { now } from "../state/live";
import type { Resource } from "../state/resource";
import { change } from "../state/view";
import { encodeView, newPane, START, type View as TimelineView } from "../timeline/view";
import { compare, PARTS, stepNumber, type Compared } from "./steps";

/** The timeline of the page as some of its view. */
const timelineOf = (patch: Partial<TimelineView>) => encodeView({ ...START, ...patch });
const rowView = (row: number) => timelineOf({ tab: "sample", panes: [{ ...newPane(), row }] });

const NOT_THERE: api.Number = { value: null, state: "unknown", reason: "the step does not have it" };

type Detail = Resource<api.Envelope<api.StepDetail>>;

export function Summary({ detail: d, loading, versus, rows, stale }: { detail: api.StepDetail | undefined; loading: Detail; versus: Detail; rows: api.Step[]; stale: boolean }) {
  if (!d) return <section class="panel step-summary" aria-label="step"><LoadingBar on={loading.loading} />{loading.error && <ErrorBox error={loading.error} />}</section>;
  const s = d.step;
  const before = versus.value?.data.step ?? rows.find((r) => r.id === d.prev);
  const delta = s.wall_seconds.value !== null && before?.wall_seconds.value ? s.wall_seconds.value / before.wall_seconds.value - 1 : null;
  const metric = (key: string) => d.metrics.find((m) => m.key === key)?.value;
  const groups = metric("rollout/group_count")?.value;
  const straggler = s.parts.find((p) => p.name === "straggler");
  const began = parseApiTime(s.start);
  // Only what is on the timeline leads there.
  const to = (patch: Partial<TimelineView>, title: string, text: ComponentChildren) =>
    s.timeline ? <Link patch={{ rollout: String(s.id), timeline: timelineOf(patch) }} title={title}>{text}</Link> : text;
  return (
    <section class="panel step-summary" aria-label={`step ${s.id}`}>
      <header class="panel-h">
        <h2>Step {s.id}</h2>
        <span class="u">{[s.kind, groups && s.samples % groups === 0 ? `${plural(groups, "group")} × ${s.samples / groups}` : ""].filter(Boolean).join(" · ")}</span>
        <Notes list={d.notes} />
        <span class="sp" />
        {straggler && straggler.share > 0.15 && <Badge level="warn" title={`${(straggler.share * 100).toFixed(1)} % of the step waited for its last samples`}>straggler bound</Badge>}
      </header>
      <LoadingBar on={loading.loading} />
      <dl class="facts2">
        <Fact name="wall time" n={s.wall_seconds} unit="s" />
        <div><dt>{before ? `vs step ${before.id}` : "vs before"}</dt><dd class={delta !== null && delta > 0.05 ? "bad" : ""}>{delta === null ? "–" : `${delta < 0 ? "−" : "+"}${Math.abs(delta * 100).toFixed(1)} %`}</dd></div>
        <div><dt>samples</dt><dd>{grouped(s.samples, 0)}</dd></div>
        <div>
          <dt>reward mean</dt>
          <dd class={s.reward.value === null ? "word" : ""} title={s.reward.reason}>{s.reward.value === null ? s.reward.state : to({ sort: "reward", desc: false, tail: false, tab: "sample" }, "samples with the lowest reward first", s.reward.value.toFixed(3).replace("-", "−"))}</dd>
        </div>
        <div><dt>requests</dt><dd>{grouped(s.requests, 0)}</dd></div>
        <Fact name="tok/s per GPU" n={metric("perf/tokens_per_gpu_per_sec") ?? metric("eval_perf/tokens_per_gpu_per_sec") ?? NOT_THERE} unit="1" />
        <div><dt>began</dt><dd title={s.start ?? "no sample has a trace"} class={s.start ? "" : "word"}>{!s.start ? "unknown" : sameDay(began, now()) ? clock(began, true) : dayClock(began, now())}</dd></div>
        <Fact name="truncated" n={metric("rollout/truncated_ratio") ?? (s.samples > 0 ? { value: (s.statuses["truncated"] ?? 0) / s.samples, state: "value", caveat: "from the samples' statuses" } : NOT_THERE)} unit="ratio" />
      </dl>
      <ul class="statuses" aria-label="samples by status">
        {Object.entries(s.statuses).sort((a, b) => b[1] - a[1]).map(([k, n]) => <li key={k}>{to({ filter: `status=${/^\w+$/.test(k) ? k : JSON.stringify(k)}` }, `only these ${n} in the timeline`, k)} {grouped(n, 0)}</li>)}
        {s.problems > 0 && <li>{to({ filter: "flag:problem" }, Object.entries(d.problem_counts).map(([k, n]) => `${k} ${n}`).join(", "), plural(s.problems, "problem"))}</li>}
        {!s.dump_exists && <li class="mut" title={d.path}>the dump is gone or has changed: no texts</li>}
      </ul>
      {stale && <p class="runs"><Badge level="warn" title="a step with a lower id began after this one had ended">given up</Badge> the run went back to an earlier step</p>}
      {s.attempts > 1 && (
        <p class="runs">
          <span class="mut">run</span>
          {Array.from({ length: s.attempts }, (_, i) => (
            <Link key={i} patch={{ attempt: i === s.attempts - 1 ? "" : String(i), rollout: String(s.id), timeline: "" }} class={i === s.attempt ? "on" : undefined} current={i === s.attempt}>{i + 1}</Link>
          ))}
          <span class="mut">of {s.attempts}{s.attempt < s.attempts - 1 && ", superseded by a later one"}</span>
        </p>
      )}
    </section>
  );
}

function Fact({ name, n, unit }: { name: string; n: api.Number; unit: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={n.value === null ? "word" : ""} title={[n.reason, n.caveat].filter(Boolean).join(" · ")}>
        {n.value === null ? n.state : withUnit(n.value, scaleFor(unit, n.value))}
      </dd>
    </div>
  );
}

const partOf = (name: string) => PARTS[name] ?? { label: name, color: "--s7" };
const percent = (share: number) => (share > 0 && share < 0.0005 ? "< 0.1 %" : `${(share * 100).toFixed(1)} %`);

export function WhereTimeWent({ detail: d, versus }: { detail: api.StepDetail; versus: api.StepDetail | undefined }) {
  const w = d.wall;
  const total = w.wall_seconds.value;
  const other = versus?.wall.wall_seconds.value ?? null;
  const sum = w.parts.reduce((n, p) => n + p.seconds, 0);
  const digits = total !== null && total < 10 ? 3 : total !== null && total < 100 ? 2 : 1;
  const longest = Math.max(total ?? 0, other ?? 0);
  const names = [...new Set([...w.parts, ...(other !== null ? (versus?.wall.parts ?? []) : [])].filter((p) => p.seconds > (p.name === "unexplained" ? 0.5 * 10 ** -digits : 0)).map((p) => p.name))];
  const part = (x: api.StepDetail | undefined, name: string) => x?.wall.parts.find((p) => p.name === name);
  return (
    <section class="panel where" aria-label="where the time went">
      <header class="panel-h">
        <h2>Where the time went</h2>
        <span class="u" data-role="sum">
          {total === null ? `unknown: ${w.wall_seconds.reason ?? "no trace"}` : `s of step wall time, mean over the samples · parts add up to ${grouped(sum, digits)} of ${grouped(total, digits)} s (${grouped(total > 0 ? (sum / total) * 100 : 100, 1)} %)`}
        </span>
        <span class="sp" />
        <span class="held">
          {w.aborted_tokens > 0 && <>aborted attempts threw away <b>{plural(w.aborted_tokens, "token")}</b>{w.aborted_share !== null && ` (${percent(w.aborted_share)})`}{w.held.length > 0 && " · "}</>}
          {w.held.length > 0 && <>held by {w.held.slice(0, 3).map((h) => <Held key={h.row} held={h} step={d.step.id} />)}
            {w.held.length > 3 && <Link patch={{ rollout: String(d.step.id), timeline: timelineOf({ filter: "flag:held" }) }} title={`all ${w.held.length} in the timeline`}>+{w.held.length - 3}</Link>}</>}
        </span>
      </header>
      {total !== null && (
        <>
          <Stack detail={d} of={longest} label={other === null ? "" : `step ${d.step.id}`} />
          {versus && other !== null && <Stack detail={versus} of={longest} label={`step ${versus.step.id}`} />}
          <ul class="stack-leg">
            {names.map((name) => {
              const p = part(d, name);
              const was = other === null ? undefined : (part(versus, name)?.seconds ?? 0);
              const change = was === undefined ? 0 : (p?.seconds ?? 0) - was;
              return (
                <li key={name}>
                  <i class={partOf(name).hatch ? "sw-box striped" : "sw-box"} style={{ "--c": `var(${partOf(name).color})` }} aria-hidden="true" />
                  {partOf(name).label} <b>{grouped(p?.seconds ?? 0, digits)} s</b> <span class="mut">{percent(p?.share ?? 0)}</span>
                  {was !== undefined && <span class="sec" title={`${grouped(was, digits)} s in step ${versus?.step.id}`}>{change < 0 ? "−" : "+"}{grouped(Math.abs(change), digits)}</span>}
                </li>
              );
            })}
          </ul>
        </>
      )}
    </section>
  );
}

/** One bar of parts; its length is the step's share of the longest. */
function Stack({ detail, of, label }: { detail: api.StepDetail; of: number; label: string }) {
  const list = detail.wall.parts.filter((p) => p.seconds > 0);
  const rest = of - list.reduce((n, p) => n + p.seconds, 0);
  return (
    <div class="stack-row">
      {label && <span class="stack-name">{label}</span>}
      <div class="stack" role="img" aria-label={`${label} ${list.map((p) => `${partOf(p.name).label} ${p.seconds.toFixed(1)} s`).join(", ")}`}>
        {list.map((p) => (
          <i key={p.name} class={partOf(p.name).hatch ? "striped" : ""} style={{ "--c": `var(${partOf(p.name).color})`, flexGrow: String(p.seconds) }} title={`${partOf(p.name).label}: ${p.seconds.toFixed(2)} s, ${percent(p.share)}`} />
        ))}
        {rest > of * 1e-3 && <i class="stack-rest" style={{ flexGrow: String(rest) }} />}
      </div>
    </div>
  );
}

function Held({ held: h, step }: { held: api.HeldSample; step: number }) {
  const name = h.sample === null ? `row ${h.row}` : `#${h.sample}`;
  return (
    <>
      <Link patch={{ rollout: String(step), timeline: rowView(h.row) }} title={`ended ${duration(h.end_seconds * 1000)} after the step's start, ${duration(h.over_median * 1000)} after the median; most of it ${partOf(h.because).label} (${h.because_seconds.toFixed(1)} s)`}>{name}</Link>{" "}
    </>
  );
}

function number(n: api.Number | undefined, unit: string) {
  if (!n) return <span class="mut">–</span>;
  if (n.value === null) return <span class="word" title={n.reason}>{n.state === "not_applicable" ? "–" : n.state}</span>;
  return withUnit(n.value, scaleFor(unit, n.value));
}

const Key = ({ name }: { name: string }) => <button type="button" class="quiet key" title="draw it over the steps" onClick={() => change({ metric: name })}>{name}</button>;

export function Comparison({ a, b }: { a: api.StepDetail; b: api.StepDetail }) {
  const sort = useSignal("-size");
  const text = useSignal("");
  const all = useMemo(() => compare(a, b), [a, b]);
  const rows = all.filter((r) => r.key.toLowerCase().includes(text.value.toLowerCase()));
  const columns: Column<Compared>[] = [
    { key: "key", title: "metric", cell: (r) => <Key name={r.key} />, value: (r) => r.key },
    { key: "a", title: `step ${a.step.id}`, right: true, cell: (r) => number(r.a, r.unit), value: (r) => r.a?.value ?? null },
    { key: "b", title: `step ${b.step.id}`, right: true, cell: (r) => number(r.b, r.unit), value: (r) => r.b?.value ?? null },
    { key: "change", title: "change", right: true, cell: (r) => (r.change === null ? "–" : `${r.change > 0 ? "+" : ""}${withUnit(r.change, scaleFor(r.unit, r.change))}`), value: (r) => r.change },
    { key: "size", title: "%", right: true, largeFirst: true, cell: (r) => (r.share === null ? "–" : `${r.share > 0 ? "+" : r.share < 0 ? "−" : ""}${grouped(Math.abs(r.share * 100), 1)}`), value: (r) => (r.share === null ? null : Math.abs(r.share)) },
    { key: "bar", title: "", class: "c-diff", cell: (r) => <Diff share={r.share} /> },
  ];
  return (
    <section class="panel comparison" aria-label="comparison of two steps">
      <header class="panel-h">
        <h2>Step {b.step.id} compared with {a.step.id}</h2>
        <span class="u">{plural(rows.length, "key")} · a click on a key draws it over the steps</span>
        <span class="sp" />
        <input type="text" class="filter" placeholder="filter" aria-label="filter compared metrics" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
        <button type="button" class="quiet" onClick={() => change({ versus: "" })}>close</button>
      </header>
      <Table label="compared metrics" rows={rows} columns={columns} rowKey={(r) => r.key} sort={sort.value} onSort={(s) => (sort.value = s)} empty={() => <p class="calm">nothing fits the filter</p>} />
    </section>
  );
}

/** A relative change as a bar to the left or right of no change; full at ten times as much or a tenth. */
function Diff({ share }: { share: number | null }) {
  if (share === null || share === 0) return null;
  const ratio = Math.max(0.1, Math.min(10, 1 + share));
  const length = Math.abs(Math.log10(ratio)) * 50;
  return <span class="diff" aria-hidden="true"><i style={{ left: `${share > 0 ? 50 : 50 - length}%`, width: `${length}%` }} /></span>;
}

export function Metrics({ detail: d, run }: { detail: api.StepDetail; run: api.Run | undefined }) {
  const text = useSignal("");
  const open = useSignal(false);
  const rows = d.metrics.filter((m) => m.key.toLowerCase().includes(text.value.toLowerCase()));
  useEffect(() => {
    text.value = "";
  }, [run?.name]);
  const columns: Column<api.StepMetric>[] = [
    { key: "key", title: "metric", cell: (m) => <Key name={m.key} />, value: (m) => m.key },
    { key: "value", title: "value", right: true, cell: (m) => number(m.value, m.unit), value: (m) => m.value.value },
    { key: "unit", title: "unit", cell: (m) => m.unit },
    { key: "note", title: "note", class: "wide", cell: (m) => m.note || m.value.reason || m.value.caveat || "" },
  ];
  return (
    <section class="panel step-metrics" aria-label="metrics of the step">
      <header class="panel-h">
        <h2>
          <button type="button" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? "▾" : "▸"} Metrics</button>
        </h2>
        <span class="u">{plural(d.metrics.length, "key")} as given to the trackers</span>
        <span class="sp" />
        {open.value && <input type="text" class="filter" placeholder="filter" aria-label="filter metrics" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />}
        <span class="path" title={d.path}>{d.path}</span>
      </header>
      {open.value && <Table label="metrics" rows={rows} columns={columns} rowKey={(m) => m.key} empty={() => <p class="calm">nothing fits the filter</p>} />}
    </section>
  );
}

/** The steps as rows: what the chart shows, for those who read numbers. */
export function StepsTable({ rows, metric, title, unit, selected, stale, onOpen }: {
  rows: api.Step[]; metric: string; title: string; unit: string; selected: number | undefined; stale: ReadonlySet<number>; onOpen: (s: api.Step) => void;
}) {
  const sort = useSignal("-id");
  const columns: Column<api.Step>[] = [
    { key: "id", title: "step", right: true, largeFirst: true, cell: (s) => <Link patch={{ rollout: String(s.id), attempt: "", timeline: "" }}>{s.id}</Link>, value: (s) => s.id },
    { key: "start", title: "began (UTC)", cell: (s) => (s.start ? dayClock(parseApiTime(s.start), now(), true) : <span class="word">unknown</span>), value: (s) => s.start },
    { key: "wall", title: "wall time", right: true, largeFirst: true, cell: (s) => number(s.wall_seconds, "s"), value: (s) => s.wall_seconds.value },
    ...(metric === "" ? [] : [{ key: "metric", title, right: true, largeFirst: true, cell: (s: api.Step) => number(stepNumber(s, metric), unit), value: (s: api.Step) => stepNumber(s, metric).value }]),
    { key: "reward", title: "mean reward", right: true, cell: (s) => (s.reward.value === null ? <span class="word">{s.reward.state}</span> : s.reward.value.toFixed(3)), value: (s) => s.reward.value },
    { key: "samples", title: "samples", right: true, largeFirst: true, cell: (s) => grouped(s.samples, 0), value: (s) => s.samples },
    { key: "straggler", title: "waiting, %", right: true, largeFirst: true, hint: "of the wall time, for the last samples", cell: (s) => { const p = s.parts.find((x) => x.name === "straggler"); return p ? (p.share * 100).toFixed(1) : "–"; }, value: (s) => s.parts.find((x) => x.name === "straggler")?.share ?? null },
    { key: "note", title: "", class: "wide", cell: (s) => [s.attempts > 1 ? `run ${s.attempt + 1} of ${s.attempts}` : "", stale.has(s.id) ? "given up" : "", s.problems > 0 ? plural(s.problems, "problem") : ""].filter(Boolean).join(" · ") },
  ];
  return (
    <div class="steps-table">
      <Table label="steps" rows={rows} columns={columns} rowKey={(s) => String(s.id)} selected={selected === undefined ? "" : String(selected)} onOpen={onOpen} sort={sort.value} onSort={(s) => (sort.value = s)} />
    </div>
  );
}
