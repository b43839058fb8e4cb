// How long iterations took by what they held, and the planner's line through them.
import { useEffect, useMemo, useState } from "preact/hooks";
import type * as api from "../api/types";
import { stroke } from "../charts/model";
import { categories, scatterAxis } from "../charts/scatter";
import { KindMark, ScatterPlot, type Kind, type ScatterLine } from "../charts/scatterplot";
import { Badge } from "../components/state";
import { brief, grouped } from "../format/number";
import { cloudOf, differ, formula, linePartsOf, type Cloud } from "../passes/line";
import type { PassModel } from "../passes/model";
import { featureName, featureUnit, plain, seconds } from "../passes/words";
import type { Resource } from "../state/resource";
import { change, view } from "../state/view";

const MOST = 4000, EVERY_MS = 2000;

interface Pool {
  id: string;
  namespace: string;
  model: api.PassModel;
}

const pool = (role: string): string => (role === "prefill" ? "prefill" : "decode");

export function CloudPanel({ model, engines, advice, namespace }: { model: PassModel; engines: api.PassEngine[]; advice: Resource<api.Envelope<api.PassAdvice>>; namespace: string }) {
  const v = view.value;
  const deployments = advice.value?.data.deployments ?? [];
  const pools: Pool[] = deployments.flatMap((d) => (d.models ?? []).map((m) => ({ id: `${deployments.length > 1 ? `${d.namespace}/` : ""}${m.component}`, namespace: d.namespace, model: m })));
  const chosen = pools.find((p) => p.id === v.id) ?? pools.find((p) => p.namespace === namespace) ?? pools[0];
  const fit = chosen?.model.fit;
  const features = fit?.features?.length ? fit.features : chosen?.model.role === "decode" ? ["num_decode_requests", "sum_decode_kv_tokens"] : chosen?.model.role === "prefill" ? ["sum_prefill_tokens"] : ["sum_prefill_tokens", "sum_decode_kv_tokens"];
  // A feature that never changed says nothing: the first that did is shown.
  const usual = features.find((_, i) => (fit?.range?.[i]?.[1] ?? 1) > (fit?.range?.[i]?.[0] ?? 0)) ?? (features[0] as string);
  const feature = features.includes(v.x) ? v.x : usual;
  const index = features.indexOf(feature);
  const by = v.by === "rank" ? "rank" : "engine";
  const role = chosen?.model.role ?? "agg";

  // The points are taken anew every two seconds, and when what is looked at changes.
  const [beat, setBeat] = useState(0);
  useEffect(() => {
    const t = setInterval(() => {
      if (model.follows && !document.hidden) setBeat((n) => n + 1);
    }, EVERY_MS);
    return () => clearInterval(t);
  }, [model]);
  const moved = model.follows ? 0 : model.moved.value;
  const ranks = useMemo(() => {
    const set = new Map<string, string>();
    for (const e of engines) {
      if (v.worker ? e.id !== v.worker : chosen && (e.namespace !== chosen.namespace || (chosen.model.role !== "agg" && pool(e.role) !== chosen.model.component))) continue;
      for (const r of e.ranks ?? []) set.set(`${e.id}#${r.rank}`, by === "rank" ? `${e.name} ${r.rank}` : e.name);
    }
    return set;
  }, [engines, v.worker, chosen?.id, by]);
  const cloud: Cloud = useMemo(() => {
    const w = model.window();
    return cloudOf(model.past?.set ?? model.live, (k) => ranks.has(k), role, features, feature, w.from, w.to, MOST);
  }, [beat, moved, ranks, role, feature, features.join()]);

  const shown = useMemo(() => {
    const cats = categories(cloud.key.map((k) => ranks.get(k) ?? ""));
    const kinds = cats.names.map((name, i): Kind => ({ name, ...stroke(i), shape: i > 3 ? "ring" : "dot" }));
    const xa = scatterAxis(cloud.x, featureUnit(feature), false), ya = scatterAxis(cloud.y, "s", false);
    const lines: ScatterLine[] = [];
    const put = (f: api.PassFit, color: string, width: number) => {
      for (const part of linePartsOf(f, index, cloud.medians, xa.min, xa.max)) lines.push({ points: part.points, color, width, ...(part.outside ? { dash: [4, 3] } : {}) });
    };
    const other = chosen ? differ(chosen.model.fit, chosen.model.dynamo, index, cloud.medians, xa.min, xa.max) : false;
    if (chosen && other) put(chosen.model.dynamo, "--text-3", 1);
    if (chosen) put(chosen.model.fit, "--text", 1.5);
    return { cats, kinds, xa, ya, lines, other };
  }, [cloud, ranks, chosen, index, feature]);
  const held = features.map((f, i) => [f, cloud.medians[i] ?? 0] as const).filter((_, i) => i !== index);
  const words = (i: number): [string, string][] => [
    ["wall time", seconds(cloud.y[i] as number)], [featureName(feature), grouped(cloud.x[i] as number, 0)], [by, ranks.get(cloud.key[i] as string) ?? ""],
  ];
  const drift = chosen?.model.drift;
  return (
    <section class="panel pass-cloud" aria-label="iteration time by tokens" data-fit={fit?.state ?? "unknown"} data-lines={shown.lines.length}>
      <header class="panel-h">
        <h2>Iteration time by what it held</h2>
        <span class="sp" />
        <FitBadge fit={fit} drift={drift} advice={advice} />
      </header>
      <div class="cloud-controls">
        <span class="u">{shown.ya.scale.unit} over</span>
        {features.length > 1
          ? <select aria-label="horizontal" value={feature} onChange={(e) => change({ x: e.currentTarget.value === usual ? "" : e.currentTarget.value }, "replace")}>{features.map((f) => <option key={f} value={f}>{featureName(f)}</option>)}</select>
          : <span class="u">{featureName(feature)}</span>}
        {shown.xa.scale.unit !== featureUnit(feature) && <span class="u">{shown.xa.scale.unit}</span>}
        <span class="sp" />
        {pools.length > 2 && (
          <select aria-label="pool" value={chosen?.id} onChange={(e) => change({ id: e.currentTarget.value, x: "" }, "replace")}>{pools.map((p) => <option key={p.id} value={p.id}>{p.id}</option>)}</select>
        )}
        {pools.length === 2 && (
          <span class="choice low" role="group" aria-label="pool">
            {pools.map((p) => <button type="button" key={p.id} class={p === chosen ? "on" : ""} aria-pressed={p === chosen} onClick={() => change({ id: p.id, x: "" }, "replace")}>{p.id}</button>)}
          </span>
        )}
        <button type="button" class={by === "rank" ? "chip on" : "chip"} aria-pressed={by === "rank"} title="a colour a rank" onClick={() => change({ by: by === "rank" ? "" : "rank" }, "replace")}>by rank</button>
      </div>
      <p class="cloud-fit" title={[fit?.reason, "solid inside what was seen, dashed beyond"].filter(Boolean).join("; ")}>
        {fit?.state === "fitted" ? <><i class="sw-line" />{formula(fit)}{fit.r2 !== null && <> · R² {fit.r2.toFixed(2)}</>}</> : fit ? <span class="mut">no line: {plain(fit.state)}{fit.reason && `, ${fit.reason}`}</span> : <span class="mut">no line yet</span>}
        {held.length > 0 && fit?.state === "fitted" && <span class="mut"> · drawn with {held.map(([f, m]) => `${featureName(f)} at the median ${brief(m)}`).join(", ")}</span>}
        {shown.other && <span class="mut"> · thin: Dynamo’s fit of all passes</span>}
      </p>
      <div class="cloud-body">
        <ScatterPlot
          xs={cloud.x} ys={cloud.y} kinds={shown.kinds} of={shown.cats.of} x={shown.xa} y={shown.ya} selected={model.pinned ? cloud.time.findIndex((t, i) => t === model.pinned?.time && cloud.key[i] === model.pinned.key) : -1}
          label={`wall time of ${grouped(cloud.x.length, 0)} iterations over ${featureName(feature)}${fit?.state === "fitted" ? `, with the fitted line ${formula(fit)}` : ""}`}
          words={words} lines={shown.lines} hint="click pins it in the strip"
          onPick={(i) => model.pin({ key: cloud.key[i] as string, time: cloud.time[i] as number })}
        />
        {cloud.x.length === 0 && <p class="calm cloud-none">no {role === "agg" ? "" : `${role} `}pass in this window: idle</p>}
      </div>
      <footer class="panel-f">
        <span class="cloud-legend">{shown.kinds.map((k) => <span class="leg" key={k.name}><KindMark kind={k} />{k.name}</span>)}</span>
        <span class="sp" />
        <span class="mut">{cloud.all > cloud.x.length ? `newest ${grouped(cloud.x.length, 0)} of ${grouped(cloud.all, 0)}` : grouped(cloud.x.length, 0)} passes</span>
      </footer>
    </section>
  );
}

function FitBadge({ fit, drift, advice }: { fit: api.PassFit | undefined; drift: api.PassDrift | undefined; advice: Resource<api.Envelope<api.PassAdvice>> }) {
  if (!fit) return advice.error ? <Badge level="unknown" title={advice.error.message}>no model</Badge> : <Badge level="idle">no model yet</Badge>;
  if (drift?.state === "broken") return <Badge level="warn" title={drift.factor ? `passes take ${brief(drift.factor)} times what the model said` : undefined}>model broken{drift.factor ? `: ×${brief(drift.factor)}` : ""}</Badge>;
  if (fit.state === "learning") return <Badge level="idle" title={fit.reason}>learning, {grouped(fit.samples, 0)} samples</Badge>;
  if (fit.state === "refused") return <Badge level="warn" title={fit.reason}>fit refused</Badge>;
  return <Badge level="ok" title={`${grouped(fit.samples, 0)} samples${fit.mean_error !== null ? `, off by ${brief(fit.mean_error * 100)} % on average` : ""}${drift && drift.changes > 0 ? `; it changed ${drift.changes} times` : ""}`}>{drift?.state === "holds" ? "holds" : "fitted"}</Badge>;
}
