// Runs and their steps: how long each took and what it earned, where a step's time went, two steps side by
// side, and the timeline of the samples.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get } from "../api/client";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { Badge, Empty, ErrorBox, LoadingBar, Notes, StaleNote, Warnings } from "../components/state";
import { Table, type Column } from "../components/table";
import { TopBar } from "../components/topbar";
import { grouped, plural, scaleFor, withUnit } from "../format/number";
import { dayClock, duration, parseApiTime } from "../format/time";
import { useKeys } from "../state/keys";
import { now } from "../state/live";
import { useResource, type Resource } from "../state/resource";
import { change, view } from "../state/view";
import { encodeView, newPane, START } from "../timeline/view";
import { StepTimeline } from "./steptimeline";
import { StepsChart } from "./stepschart";
import { compare, neighbour, PARTS, type Compared } from "./steps";

export function Rollouts() {
  const v = view.value;
  const runs = useResource("rollouts", "", (abort) => get<api.Runs>("/rollouts", {}, abort));
  const list = runs.value?.data.runs ?? [];
  const run = v.run ? list.find((r) => r.name === v.run) : list[0];
  const name = run?.name ?? v.run;
  const metric = v.metric;
  const steps = useResource(name ? `steps ${name} ${v.kind}` : null, metric, (abort) =>
    get<api.Steps>(`/rollouts/${encodeURIComponent(name)}/steps`, { kind: v.kind, metrics: metric }, abort),
  );
  const rows = steps.value?.data.steps ?? [];
  const id = v.rollout !== "" ? Number(v.rollout) : rows[rows.length - 1]?.id;
  const detail = useStep(name, v.kind, id, v.attempt);
  const versus = useStep(name, v.kind, v.versus === "" ? undefined : Number(v.versus), "");
  const go = (by: number) => () => {
    const next = id === undefined ? undefined : neighbour(rows, id, by);
    if (next !== undefined) change({ rollout: String(next), attempt: "", timeline: "" }, "replace");
    return true;
  };
  useKeys({
    "[": go(-1),
    "]": go(1),
    c: () => {
      const before = id === undefined ? undefined : neighbour(rows, id, -1);
      change({ versus: v.versus !== "" ? "" : before === undefined ? "" : String(before) });
      return true;
    },
  });
  const curve = run?.metrics.find((m) => m.key === metric);
  return (
    <>
      <TopBar title="Rollouts" timed={false} sub={<Crumbs runs={list} run={run} kind={v.kind} id={id} />}>
        {id !== undefined && <CompareButton rows={rows} id={id} />}
      </TopBar>
      <main class="main page-rollouts">
        {runs.error && !runs.value && <ErrorBox error={runs.error} failingSince={runs.failingSince} />}
        {runs.value && list.length === 0 && <Nothing watching={runs.value.data.watching} />}
        {v.run && runs.value && !run && list.length > 0 && <p class="panel calm">there is no run “{v.run}” <Link patch={{ run: "", rollout: "" }}>show the newest</Link></p>}
        {run && (
          <div class="rollouts-head">
            <section class="panel steps" aria-label="steps">
              <header class="panel-h">
                <h2>Steps</h2>
                <MetricPicker run={run} />
                <span class="u">{plural(rows.length, "step")}</span>
                <Notes list={steps.value?.warnings ?? []} />
                <span class="sp" />
                <span class="leg" aria-hidden="true">
                  <span><i class="sw-box" style={{ "--c": "var(--s7)" }} />{curve ? curve.key : "wall time"}</span>
                  <span><i class="sw-line" style={{ "--c": "var(--s2)" }} />mean reward (right axis)</span>
                </span>
                <AxisButtons />
              </header>
              <LoadingBar on={steps.loading} />
              {steps.error && !steps.value && <ErrorBox error={steps.error} failingSince={steps.failingSince} />}
              {steps.value && rows.length === 0 && <p class="calm">{v.kind === "eval" ? "no evaluation has been dumped" : "no step yet"}</p>}
              {rows.length > 0 && (
                <StepsChart
                  steps={rows} metric={metric} title={curve?.key ?? "wall time"} unit={curve?.unit ?? "s"} axis={v.axis}
                  selected={id} versus={v.versus === "" ? undefined : Number(v.versus)}
                  onOpen={(s, other) => change(other ? { versus: String(s.id) } : { rollout: String(s.id), attempt: "", timeline: "" })}
                />
              )}
              <Files run={run} />
              {steps.error && steps.value && <footer class="panel-f"><StaleNote res={steps} /></footer>}
            </section>
            <Summary detail={detail} versus={versus} rows={rows} />
          </div>
        )}
        {detail.value && <WhereTimeWent detail={detail.value.data} />}
        {detail.value && versus.value && v.versus !== "" && <Comparison a={versus.value.data} b={detail.value.data} />}
        {detail.error && !detail.value && <section class="panel"><ErrorBox error={detail.error} failingSince={detail.failingSince} /></section>}
        <Timelines detail={detail.value?.data} versus={v.versus === "" ? undefined : versus.value?.data} onStep={(d) => void go(d)()} />
        {detail.value && <Metrics detail={detail.value.data} run={run} />}
      </main>
    </>
  );
}

/** The step's timeline, and that of the step it is compared with. */
function Timelines({ detail, versus, onStep }: { detail: api.StepDetail | undefined; versus: api.StepDetail | undefined; onStep: (d: 1 | -1) => void }) {
  const ids = [detail?.step.timeline, versus?.step.timeline].filter((id): id is string => !!id);
  const key = ids.join("\n");
  const list = useMemo(() => ids, [key]);
  return detail && list.length > 0 && list[0] === detail.step.timeline ? <StepTimeline ids={list} onStep={onStep} /> : null;
}

/** One step. An archive's steps do not change, and a live one's rarely: they are asked again with the rest. */
function useStep(run: string, kind: string, id: number | undefined, attempt: string): Resource<api.Envelope<api.StepDetail>> {
  return useResource(run && id !== undefined ? `step ${run} ${kind} ${id} ${attempt}` : null, "", (abort) =>
    get<api.StepDetail>(`/rollouts/${encodeURIComponent(run)}/steps/${kind}/${id}`, { attempt }, abort),
  );
}

function Crumbs({ runs, run, kind, id }: { runs: api.Run[]; run: api.Run | undefined; kind: string; id: number | undefined }) {
  if (!run) return null;
  return (
    <span class="crumbs">
      {runs.length > 1 ? (
        <select aria-label="run" value={run.name} onChange={(e) => change({ run: e.currentTarget.value, rollout: "", versus: "", timeline: "", attempt: "" })}>
          {runs.map((r) => <option key={r.name} value={r.name}>{r.name}</option>)}
        </select>
      ) : run.name}
      {" ▸ "}
      {run.eval_steps > 0 ? (
        <select aria-label="kind of step" value={kind} onChange={(e) => change({ kind: e.currentTarget.value === "eval" ? "eval" : "train", rollout: "", versus: "", timeline: "", attempt: "" })}>
          <option value="train">train</option>
          <option value="eval">eval</option>
        </select>
      ) : kind}
      {id !== undefined && ` ▸ step ${id}`}
    </span>
  );
}

function CompareButton({ rows, id }: { rows: api.Step[]; id: number }) {
  const v = view.value;
  const before = neighbour(rows, id, -1);
  if (v.versus !== "") {
    return <button type="button" class="btn on" aria-pressed="true" title="c" onClick={() => change({ versus: "" })}>Compared with {v.versus}</button>;
  }
  if (before === undefined) return null;
  return (
    <button type="button" class="btn" aria-pressed="false" title="c · shift-click on a bar compares with that step" onClick={() => change({ versus: String(before) })}>
      Compare with {before}
    </button>
  );
}

/** Anything that has one number a step. */
function MetricPicker({ run }: { run: api.Run }) {
  const groups = useMemo(() => {
    const by = new Map<string, api.Curve[]>();
    for (const m of run.metrics) {
      const group = m.source === "trainer" ? "the trainer's" : (m.key.split("/")[0] ?? "");
      by.set(group, [...(by.get(group) ?? []), m]);
    }
    return [...by];
  }, [run.metrics]);
  return (
    <label class="picker">
      <span class="vh">metric</span>
      <select aria-label="metric" value={view.value.metric} onChange={(e) => change({ metric: e.currentTarget.value })}>
        <option value="">wall time</option>
        {groups.map(([g, list]) => (
          <optgroup key={g} label={g}>
            {list.map((m) => <option key={m.key} value={m.key}>{m.key}</option>)}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

function AxisButtons() {
  return (
    <span class="seg" role="group" aria-label="over">
      {(["step", "time"] as const).map((x) => (
        <button key={x} type="button" class={view.value.axis === x ? "chip on" : "chip"} aria-pressed={view.value.axis === x} onClick={() => change({ axis: x }, "replace")}>{x}</button>
      ))}
    </span>
  );
}

/** Dumps that are not in the index say why. */
function Files({ run }: { run: api.Run }) {
  const list = run.files;
  if (list.length === 0) return null;
  const failed = list.filter((f) => f.state === "failed");
  return (
    <ul class="warnings files" aria-label="dumps that are not in the index">
      {(failed.length ? failed : list).slice(0, 4).map((f) => (
        <li key={f.path}>
          <Badge level={f.state === "failed" ? "crit" : "unknown"}>{f.state}</Badge>
          <span>{f.path.split("/").pop()} {f.reason}{f.hint && <span class="mut"> · {f.hint}</span>}</span>
        </li>
      ))}
      {list.length > 4 && <li class="mut">{plural(list.length - 4, "more file")}</li>}
    </ul>
  );
}

function Summary({ detail, versus, rows }: { detail: Resource<api.Envelope<api.StepDetail>>; versus: Resource<api.Envelope<api.StepDetail>>; rows: api.Step[] }) {
  const d = detail.value?.data;
  if (!d) return <section class="panel step-summary"><LoadingBar on={detail.loading} /></section>;
  const s = d.step;
  const before = versus.value?.data.step ?? rows.find((r) => r.id === d.prev);
  const delta = s.wall_seconds.value !== null && before?.wall_seconds.value ? s.wall_seconds.value / before.wall_seconds.value - 1 : null;
  const metric = (key: string) => d.metrics.find((m) => m.key === key);
  const straggler = s.parts.find((p) => p.name === "straggler");
  return (
    <section class="panel step-summary" aria-label={`step ${s.id}`}>
      <header class="panel-h">
        <h2>Step {s.id}</h2>
        <span class="u">{s.kind}{s.attempts > 1 && ` · run ${s.attempt + 1} of ${s.attempts}`}</span>
        <span class="sp" />
        {straggler && straggler.share > 0.15 && <Badge level="warn" title={`${(straggler.share * 100).toFixed(1)} % of the step waited for its last samples`}>straggler bound</Badge>}
      </header>
      <dl class="facts2">
        <Fact name="wall time" n={s.wall_seconds} unit="s" />
        <div><dt>{before ? `vs step ${before.id}` : "vs the step before"}</dt><dd class={delta !== null && delta > 0.05 ? "bad" : ""}>{delta === null ? "–" : `${delta > 0 ? "+" : "−"}${Math.abs(delta * 100).toFixed(1)} %`}</dd></div>
        <div><dt>samples</dt><dd>{grouped(s.samples, 0)}</dd></div>
        <Fact name="reward mean" n={s.reward} unit="1" />
        <div><dt>requests</dt><dd>{grouped(s.requests, 0)}</dd></div>
        <Fact name="tokens/s per GPU" n={metric("perf/tokens_per_gpu_per_sec")?.value ?? { value: null, state: "unknown", reason: "the step does not have it" }} unit="1" />
        <div><dt>began</dt><dd title={s.start ?? ""}>{s.start ? dayClock(parseApiTime(s.start), now(), true) : "unknown"}</dd></div>
        <Fact name="truncated" n={metric("rollout/truncated_ratio")?.value ?? { value: null, state: "unknown", reason: "the step does not have it" }} unit="ratio" />
      </dl>
      <ul class="statuses" aria-label="samples by status">
        {Object.entries(s.statuses).sort((a, b) => b[1] - a[1]).map(([k, n]) => <li key={k}><span class="mut">{k}</span> {grouped(n, 0)}</li>)}
        {s.problems > 0 && <li><Badge level="warn">{plural(s.problems, "problem")}</Badge></li>}
      </ul>
      {s.attempts > 1 && (
        <p class="mut">
          {Array.from({ length: s.attempts }, (_, i) => (
            <Link key={i} patch={{ attempt: i === s.attempts - 1 ? "" : String(i), rollout: String(s.id), timeline: "" }} current={i === s.attempt}>run {i + 1}</Link>
          ))}
        </p>
      )}
      <Warnings list={d.notes} />
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

function WhereTimeWent({ detail: d }: { detail: api.StepDetail }) {
  const w = d.wall;
  const total = w.wall_seconds.value;
  const sum = w.parts.reduce((n, p) => n + p.seconds, 0);
  return (
    <section class="panel where" aria-label="where the time went">
      <header class="panel-h">
        <h2>Where the time went</h2>
        <span class="u">
          {total === null ? `unknown: ${w.wall_seconds.reason ?? "no trace"}` : `s of step wall time, mean over the samples · parts add up to ${grouped(sum, 1)} of ${grouped(total, 1)} s (${grouped(total > 0 ? (sum / total) * 100 : 100, 1)} %)`}
        </span>
        <span class="sp" />
        <span class="sec">
          {w.aborted_tokens > 0 && <>aborted attempts threw away <b>{grouped(w.aborted_tokens, 0)} tokens</b>{w.aborted_share !== null && ` (${(w.aborted_share * 100).toFixed(1)} %)`} · </>}
          {w.held.length > 0 && <>held by {w.held.slice(0, 3).map((h) => <Held key={h.row} held={h} />)}{w.held.length > 3 && ` +${w.held.length - 3}`}</>}
        </span>
      </header>
      {total !== null && (
        <>
          <div class="stack" role="img" aria-label={w.parts.map((p) => `${PARTS[p.name]?.label ?? p.name} ${p.seconds.toFixed(1)} s`).join(", ")}>
            {w.parts.filter((p) => p.seconds > 0).map((p) => (
              <i key={p.name} class={PARTS[p.name]?.hatch ? "hatched" : ""} style={{ "--c": `var(${PARTS[p.name]?.color ?? "--s7"})`, flexGrow: String(p.seconds) }} title={`${PARTS[p.name]?.label ?? p.name}: ${p.seconds.toFixed(2)} s, ${(p.share * 100).toFixed(1)} %`} />
            ))}
          </div>
          <ul class="stack-leg">
            {w.parts.filter((p) => p.seconds > 0).map((p) => (
              <li key={p.name}>
                <i class={PARTS[p.name]?.hatch ? "sw-box hatched" : "sw-box"} style={{ "--c": `var(${PARTS[p.name]?.color ?? "--s7"})` }} aria-hidden="true" />
                {PARTS[p.name]?.label ?? p.name} <b>{grouped(p.seconds, 1)} s</b> <span class="mut">{(p.share * 100).toFixed(1)} %</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

/** The timeline with one sample selected. */
function rowView(row: number): string {
  return encodeView({ ...START, tab: "sample", panes: [{ ...newPane(), row }] });
}

function Held({ held: h }: { held: api.HeldSample }) {
  const name = h.sample === null ? `row ${h.row}` : `#${h.sample}`;
  return (
    <>
      <Link patch={{ timeline: rowView(h.row) }} title={`ended ${duration(h.end_seconds * 1000)} after the step's start, ${duration(h.over_median * 1000)} after the median; most of it ${PARTS[h.because]?.label ?? h.because} (${h.because_seconds.toFixed(1)} s)`}>{name}</Link>{" "}
    </>
  );
}

function number(n: api.Number | undefined, unit: string) {
  if (!n) return <span class="mut">–</span>;
  if (n.value === null) return <span class="word" title={n.reason}>{n.state}</span>;
  return withUnit(n.value, scaleFor(unit, n.value));
}

function Comparison({ a, b }: { a: api.StepDetail; b: api.StepDetail }) {
  const sort = useSignal("-size");
  const rows = useMemo(() => compare(a, b), [a, b]);
  const columns: Column<Compared>[] = [
    { key: "key", title: "metric", cell: (r) => <button type="button" class="quiet" title="draw it over the steps" onClick={() => change({ metric: r.key })}>{r.key}</button>, value: (r) => r.key },
    { key: "a", title: `step ${a.step.id}`, right: true, cell: (r) => number(r.a, r.unit), value: (r) => r.a?.value ?? null },
    { key: "b", title: `step ${b.step.id}`, right: true, cell: (r) => number(r.b, r.unit), value: (r) => r.b?.value ?? null },
    { key: "change", title: "change", right: true, cell: (r) => (r.change === null ? "–" : `${r.change > 0 ? "+" : ""}${withUnit(r.change, scaleFor(r.unit, r.change))}`), value: (r) => r.change },
    { key: "size", title: "%", right: true, largeFirst: true, cell: (r) => (r.share === null ? "–" : `${r.share > 0 ? "+" : "−"}${Math.abs(r.share * 100).toFixed(1)}`), value: (r) => (r.share === null ? null : Math.abs(r.share)) },
  ];
  return (
    <section class="panel comparison" aria-label="comparison of two steps">
      <header class="panel-h">
        <h2>Step {b.step.id} compared with {a.step.id}</h2>
        <span class="u">largest relative change first</span>
        <span class="sp" />
        <button type="button" class="quiet" onClick={() => change({ versus: "" })}>close</button>
      </header>
      <Table label="compared metrics" rows={rows} columns={columns} rowKey={(r) => r.key} sort={sort.value} onSort={(s) => (sort.value = s)} />
    </section>
  );
}

function Metrics({ detail: d, run }: { detail: api.StepDetail; run: api.Run | undefined }) {
  const text = useSignal("");
  const open = useSignal(false);
  const rows = d.metrics.filter((m) => m.key.toLowerCase().includes(text.value.toLowerCase()));
  useEffect(() => {
    text.value = "";
  }, [run?.name]);
  const columns: Column<api.StepMetric>[] = [
    { key: "key", title: "metric", cell: (m) => <button type="button" class="quiet" title="draw it over the steps" onClick={() => change({ metric: m.key })}>{m.key}</button>, value: (m) => m.key },
    { key: "value", title: "value", right: true, cell: (m) => number(m.value, m.unit), value: (m) => m.value.value },
    { key: "unit", title: "unit", cell: (m) => m.unit },
    { key: "note", title: "note", class: "wide", cell: (m) => m.note || m.value.reason || "" },
  ];
  return (
    <section class="panel step-metrics" aria-label="metrics of the step">
      <header class="panel-h">
        <h2>
          <button type="button" class="bare" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? "▾" : "▸"} Metrics</button>
        </h2>
        <span class="u">{plural(d.metrics.length, "key")} as given to the trackers</span>
        <span class="sp" />
        {open.value && <input type="text" class="filter" placeholder="filter" aria-label="filter metrics" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />}
        <span class="mut path" title={d.path}>{d.path}</span>
      </header>
      {open.value && <Table label="metrics" rows={rows} columns={columns} rowKey={(m) => m.key} empty={<p class="calm">nothing fits the filter</p>} />}
    </section>
  );
}

function Nothing({ watching }: { watching: boolean }) {
  return (
    <section class="panel">
      <Empty
        what={watching ? "No dump has been finished yet. The first step appears when slime has written it and it stays unchanged for a few seconds." : "No rollout is watched. Name the dumps of a run as slime's --save-debug-rollout-data has them, and its steps appear here:"}
        how={watching ? undefined : "rollscope serve --rollouts '/path/to/debug/rollout_{rollout_id}.pt'\n\n# or in rollscope.yaml\nrollscope:\n  rollouts:\n    - {path: \"/path/to/debug/rollout_{rollout_id}.pt\", gpus: 8, scalars: /path/to/tensorboard}"}
      />
    </section>
  );
}
