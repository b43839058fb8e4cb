// Runs and their steps: how long each took and what it earned, where a step's time went, two steps side by
// side, and the timeline of the samples.
import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { get } from "../api/client";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { Badge, Empty, ErrorBox, LoadingBar, Notes, StaleNote } from "../components/state";
import { TopBar } from "../components/topbar";
import { plural, withUnit } from "../format/number";
import { parseApiTime } from "../format/time";
import { useKeys } from "../state/keys";
import { filterOf } from "../state/filter";
import { isArchive, isView, tick } from "../state/live";
import { useResource, type Resource } from "../state/resource";
import { fixed, type View } from "../state/route";
import { change, open as openPage, view } from "../state/view";
import { StepTimeline } from "./steptimeline";
import { stepScale, StepsChart } from "./stepschart";
import { Comparison, Metrics, StepsTable, Summary, WhereTimeWent } from "./stepspanels";
import { curvesOf, middle, neighbour, superseded } from "./steps";

/** Long lists of steps are not read anew on each tick, but when there is a step more, and once a minute. */
const MANY = 400;

/** What of the view belongs to one run or kind, and goes with it. */
const ELSEWHERE: Partial<View> = { rollout: "", versus: "", timeline: "", attempt: "" };

export function Rollouts() {
  const v = view.value;
  const runs = useResource("rollouts", "", (abort) => get<api.Runs>("/rollouts", {}, abort));
  const list = runs.value?.data.runs ?? [];
  const run = v.run ? list.find((r) => r.name === v.run) : list[0];
  const name = run?.name ?? v.run;
  const metric = v.metric;
  const many = (v.kind === "eval" ? run?.eval_steps : run?.steps) ?? 0;
  const age = many > MANY ? `${many} ${run?.to ?? ""} ${Math.floor(tick.value / 12)}` : "";
  const steps = useResource(run ? `steps ${name} ${v.kind}` : null, `${metric} ${age}`, (abort) =>
    get<api.Steps>(`/rollouts/${encodeURIComponent(name)}/steps`, { kind: v.kind, metrics: metric }, abort), many > MANY ? "ever" : false);
  const rows = steps.value?.data.steps ?? NONE;
  const stale = useMemo(() => superseded(rows), [rows]);
  const newest = (rows.findLast((s) => !stale.has(s.id)) ?? rows[rows.length - 1])?.id;
  const id = v.rollout !== "" ? Number(v.rollout) : newest;
  const versusID = v.versus === "" ? undefined : Number(v.versus);
  const detail = useStep(name, v.kind, id, v.attempt);
  const versus = useStep(name, v.kind, versusID, "");
  const mid = useMemo(() => middle(rows, metric), [rows, metric]);
  const asTable = useSignal(false);
  const go = (by: number) => () => {
    const next = id === undefined ? undefined : neighbour(rows, id, by);
    if (next !== undefined) change({ rollout: String(next), attempt: "", timeline: "" }, "replace");
    return true;
  };
  useKeys({
    "[": go(-1),
    "]": go(1),
    r: () => {
      const s = rows.find((x) => x.id === id);
      if (!s || isView.value) return false;
      openPage("requests", requestsOfStep(s));
      return true;
    },
    c: () => {
      const before = id === undefined ? undefined : neighbour(rows, id, -1);
      change({ versus: v.versus !== "" ? "" : before === undefined ? "" : String(before) });
      return true;
    },
  });
  const curve = run?.metrics.find((m) => m.key === metric);
  const title = curve?.key ?? (metric || "wall time");
  const unit = metric === "" ? "s" : (curve?.unit ?? "");
  const scale = stepScale(rows, metric, unit);
  // What is known of the step before stays until the next is known: nothing jumps on the way.
  const last = useRef<{ of: string; data: api.StepDetail } | undefined>(undefined);
  if (detail.value) last.current = { of: `${name} ${v.kind}`, data: detail.value.data };
  const shown = detail.value?.data ?? (id !== undefined && !detail.error && last.current?.of === `${name} ${v.kind}` ? last.current.data : undefined);
  const past = v.attempt !== "" ? detail.value?.data : undefined;
  const earlier = past && past.step.attempt < past.step.attempts - 1
    ? (metric === "" ? past.step.wall_seconds : past.metrics.find((m) => m.key === metric)?.value)?.value ?? null : undefined;
  const open = (s: api.Step, other: boolean) => change(other ? { versus: s.id === id ? "" : String(s.id) } : { rollout: String(s.id), attempt: "", timeline: "" });
  return (
    <>
      <TopBar title="Rollouts" timed={false} sub={<Crumbs runs={list} run={run} kind={v.kind} id={id} newest={newest} />}>
        {id !== undefined && <CompareButton rows={rows} id={id} />}
        {shown && !isView.value && <Link to="requests" patch={requestsOfStep(shown.step)} class="btn" title="the requests of this step, slowest first">Requests <kbd>r</kbd></Link>}
      </TopBar>
      <main class="main page-rollouts">
        {runs.error && !runs.value && <ErrorBox error={runs.error} failingSince={runs.failingSince} />}
        {runs.value && list.length === 0 && <Nothing watching={runs.value.data.watching} />}
        {v.run && runs.value && !run && list.length > 0 && <p class="panel calm">there is no run “{v.run}” <Link patch={{ ...ELSEWHERE, run: "" }}>show the newest</Link></p>}
        {run && (
          <div class="rollouts-head">
            <section class="panel steps" aria-label="steps">
              <header class="panel-h">
                <h2>Steps</h2>
                <MetricPicker run={run} kind={v.kind} />
                <span class="u">{rows.length > 0 && [scale.unit, plural(rows.length, "step"), "click opens, Shift + click compares"].filter(Boolean).join(" · ")}</span>
                <Notes list={steps.value?.warnings ?? []} />
                <span class="sp" />
                {rows.length > 0 && <span class="leg" aria-hidden="true">
                  <span><i class="sw-box" style={{ "--c": "var(--s7)" }} />{title.length > 32 ? `…${title.slice(-30)}` : title}</span>
                  {mid !== null && <span><i class="sw-line sw-median" style={{ "--c": "var(--text-2)" }} />median {withUnit(mid, scale)}</span>}
                  <span><i class="sw-line" style={{ "--c": "var(--s2)" }} />mean reward (right)</span>
                  {rows.some((s) => (metric === "" ? s.wall_seconds : s.values[metric])?.value == null) && <span><i class="sw-box sw-unknown" />unknown</span>}
                  {rows.some((s) => s.attempts > 1) && <span><i class="sw-line" style={{ "--c": "var(--s6)" }} />run again</span>}
                  {stale.size > 0 && <span title="an earlier step was run again later, so these count no more"><i class="sw-box sw-stale" />given up</span>}
                </span>}
                <AxisButtons />
                <button type="button" class={asTable.value ? "chip on" : "chip"} aria-pressed={asTable.value} title="show as table" onClick={() => (asTable.value = !asTable.value)}>table</button>
              </header>
              <LoadingBar on={steps.loading} />
              {run.problem && <p class="calm"><Badge level="warn">{run.problem}</Badge></p>}
              {steps.error && !steps.value && <ErrorBox error={steps.error} failingSince={steps.failingSince} />}
              {steps.value && rows.length === 0 && <p class="calm">{v.kind === "eval" ? "no evaluation has been dumped" : "no step yet: the first appears when its dump is complete"}</p>}
              {rows.length > 0 && !asTable.value && (
                <StepsChart
                  steps={rows} metric={metric} title={title} unit={unit} axis={v.axis} selected={id} earlier={earlier} versus={versusID}
                  stale={stale} median={mid} growing={v.kind === "train" && !isArchive.value && runs.value?.data.watching === true} onOpen={open}
                />
              )}
              {rows.length > 0 && asTable.value && <StepsTable rows={rows} metric={metric} title={title} unit={unit} selected={id} stale={stale} onOpen={(s) => open(s, false)} />}
              <Files run={run} />
              {steps.error && steps.value && <footer class="panel-f"><StaleNote res={steps} /></footer>}
            </section>
            {id !== undefined && <Summary detail={shown} loading={detail} versus={versus} rows={rows} stale={shown !== undefined && stale.has(shown.step.id)} />}
          </div>
        )}
        {shown && <WhereTimeWent detail={shown} versus={v.versus === "" ? undefined : versus.value?.data} />}
        {v.versus !== "" && versus.error && !versus.value && <section class="panel"><ErrorBox error={versus.error} /></section>}
        {shown && versus.value && v.versus !== "" && <Comparison a={versus.value.data} b={shown} />}
        {detail.error && !detail.value && <section class="panel"><ErrorBox error={detail.error} failingSince={detail.failingSince} /></section>}
        <Timelines detail={shown} arrived={detail.value !== undefined} versus={v.versus === "" ? undefined : versus.value?.data} onStep={(d) => void go(d)()} />
        {shown && <Metrics detail={shown} run={run} />}
      </main>
    </>
  );
}

const NONE: api.Step[] = [];

/** The requests that a step asked for, in its time. */
function requestsOfStep(s: api.Step): Partial<View> {
  const [from, to] = [parseApiTime(s.start), parseApiTime(s.end)];
  return { filter: filterOf({ run: s.run, ...(s.kind === "eval" ? { kind: s.kind } : {}), step: s.id }), ...(to >= from ? { range: fixed(from - 60_000, to + 60_000) } : {}) };
}

/** The step's timeline, and that of the step it is compared with. */
function Timelines({ detail, arrived, versus, onStep }: { detail: api.StepDetail | undefined; arrived: boolean; versus: api.StepDetail | undefined; onStep: (d: 1 | -1) => void }) {
  const ids = [detail?.step.timeline, versus?.step.timeline].filter((id): id is string => !!id);
  const key = ids.join("\n");
  const list = useMemo(() => ids, [key]);
  if (!detail) return null;
  if (list.length === 0 || list[0] !== detail.step.timeline) return <p class="panel calm">Step {detail.step.id} has no timeline: {detail.step.wall_seconds.reason ?? "its samples have no trace"}.</p>;
  return <StepTimeline ids={list} run={detail.step.run} step={detail.step.id} arrived={arrived} onStep={onStep} />;
}

/** One step. An archive's steps do not change, and a live one's rarely: they are asked again with the rest. */
function useStep(run: string, kind: string, id: number | undefined, attempt: string): Resource<api.Envelope<api.StepDetail>> {
  return useResource(run && id !== undefined ? `step ${run} ${kind} ${id} ${attempt}` : null, "", (abort) =>
    get<api.StepDetail>(`/rollouts/${encodeURIComponent(run)}/steps/${kind}/${id}`, { attempt }, abort),
  );
}

function Crumbs({ runs, run, kind, id, newest }: { runs: api.Run[]; run: api.Run | undefined; kind: "train" | "eval"; id: number | undefined; newest: number | undefined }) {
  if (!run) return null;
  const goKind = (k: "train" | "eval") => change({ ...ELSEWHERE, kind: k, metric: curvesOf(run.metrics, k).some((c) => c.key === view.value.metric) ? view.value.metric : "" });
  return (
    <span class="crumbs">
      {runs.length > 1 ? (
        <select aria-label="run" title={run.name} value={run.name} onChange={(e) => change({ ...ELSEWHERE, run: e.currentTarget.value })}>
          {runs.map((r) => <option key={r.name} value={r.name}>{r.name}</option>)}
        </select>
      ) : <span class="run-name" title={run.name}>{run.name}</span>}
      <span aria-hidden="true">▸</span>
      {run.eval_steps > 0 || kind === "eval" ? (
        <select aria-label="kind of step" value={kind} onChange={(e) => goKind(e.currentTarget.value === "eval" ? "eval" : "train")}>
          <option value="train">train</option>
          <option value="eval">eval</option>
        </select>
      ) : <span>{kind}</span>}
      {id !== undefined && <><span aria-hidden="true">▸</span><span>step {id}</span></>}
      {id !== undefined && newest !== undefined && (view.value.rollout === "" ? !isArchive.value && <span class="mut" title="the newest step is shown, and the next one when it comes; choose a step or move in the timeline to stay">newest</span>
        : newest !== id && <Link patch={{ rollout: "", attempt: "", timeline: "" }} title="go to the newest step and follow">newest is {newest}</Link>)}
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
function MetricPicker({ run, kind }: { run: api.Run; kind: "train" | "eval" }) {
  const metric = view.value.metric;
  const groups = useMemo(() => {
    const by = new Map<string, api.Curve[]>();
    for (const m of curvesOf(run.metrics, kind)) {
      const group = m.source === "trainer" ? "the trainer's" : (m.key.split("/")[0] ?? "");
      by.set(group, [...(by.get(group) ?? []), m]);
    }
    // The trainer's few stand before our many.
    return [...by].sort(([a], [b]) => Number(b === "the trainer's") - Number(a === "the trainer's"));
  }, [run.metrics, kind]);
  const known = metric === "" || groups.some(([, list]) => list.some((m) => m.key === metric));
  return (
    <label class="picker">
      <span class="vh">metric</span>
      <select aria-label="metric" title={metric || "wall time"} value={metric} onChange={(e) => change({ metric: e.currentTarget.value })}>
        <option value="">wall time</option>
        {!known && <option value={metric}>{metric} (not in this run)</option>}
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
  const list = [...run.files].sort((a, b) => Number(b.state === "failed") - Number(a.state === "failed"));
  if (list.length === 0) return null;
  return (
    <ul class="warnings files" aria-label="dumps that are not in the index">
      {list.slice(0, 20).map((f) => (
        <li key={f.path}>
          <Badge level={f.state === "failed" ? "crit" : f.state === "incomplete" ? "warn" : "unknown"}>{f.state}</Badge>
          <span title={f.path}>{f.path.split("/").pop()} <span class="sec">{f.reason?.replace(`${f.path}: `, "")}</span>{f.hint && <span class="mut"> · {f.hint}</span>}</span>
        </li>
      ))}
      {list.length > 20 && <li class="mut">{plural(list.length - 20, "more file")}</li>}
    </ul>
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
