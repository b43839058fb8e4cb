// A cloud of requests: any two of their numbers, coloured by what they share. A frame around some narrows
// the range and the filter to them, a press on a point opens it.
import { useMemo } from "preact/hooks";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { stroke } from "../charts/model";
import { categories, OTHERS, scatterAxis } from "../charts/scatter";
import { KindMark, ScatterPlot, type Frame, type Kind } from "../charts/scatterplot";
import { ErrorBox, LoadingBar, StaleNote } from "../components/state";
import { startText } from "../components/requesttable";
import { grouped, scaleFor, withUnit } from "../format/number";
import { withRange, withTerm } from "../state/filter";
import { engineName, servedFilter } from "../state/fleet";
import { win } from "../state/live";
import { fixed } from "../state/route";
import { useResource } from "../state/resource";
import { change, isZoomed, view, zoomBack, zoomTo } from "../state/view";
import { NUMBERS, numberOf, outcomeName, unitOf } from "./requestfields";
import { groupTerm } from "./requestsummary";

const LIMIT = 6000;
const COLORS = ["outcome", "engine", "model", "step", "finish", "service", "run"];
const TITLE = (key: string) => (key === "start" ? "start" : (numberOf(key)?.title ?? key.replace(/_/g, " ")));

export function RequestScatter({ selected }: { selected: string }) {
  const v = view.value;
  const w = win.value;
  const filter = servedFilter(v.filter);
  const [x, y, color] = [v.x || "start", v.y || "ttft", v.color || "outcome"];
  const res = useResource(`points ${x} ${y} ${color}`, `${w.from} ${w.to} ${filter}`, (abort) =>
    get<api.RequestPoints>("/requests/points", { from: apiTime(w.from), to: apiTime(w.to), filter, x, y, color, limit: LIMIT }, abort),
  );
  const d = res.value?.data;
  const shown = useMemo(() => {
    if (!d) return null;
    const xs = x === "start" ? d.x.map((s) => (s === null ? null : s * 1000)) : d.x;
    const cats = categories(d.color.map((c) => (c === "none" ? "unknown" : outcomeName(c))));
    const kinds = cats.names.map((name, i): Kind => (color === "outcome" ? outcomeKind(name) : { name, ...stroke(i), shape: i > 3 ? "ring" : "dot" }));
    return { xs, cats, kinds, missing: xs.filter((a, i) => a === null || d.y[i] === null).length, ya: scatterAxis(d.y, unitOf(y), v.log), xa: x === "start" ? null : scatterAxis(d.x, unitOf(x), false) };
  }, [d, v.log]);
  const fields = d?.fields ?? [];
  const nameOf = (name: string) => (color.endsWith("engine") ? engineName(name) : name);
  const frame = (f: Frame) => {
    let filter = v.filter;
    const unit = (k: string) => (unitOf(k) === "s" ? "s" : "");
    if (f.y && y !== "start") filter = withRange(filter, y, f.y[0], f.y[1], unit(y));
    if (f.x && x !== "start") filter = withRange(filter, x, f.x[0], f.x[1], unit(x));
    if (filter !== v.filter) change({ filter, id: "" });
    if (f.x && x === "start") zoomTo(fixed(Math.floor(f.x[0] / 1000) * 1000, Math.ceil(f.x[1] / 1000) * 1000));
  };
  const text = (key: string, value: number | null) => (value === null ? "unknown" : key === "start" ? startText(value) : withUnit(value, scaleFor(unitOf(key), value)));
  return (
    <section class="panel request-cloud" aria-label="cloud">
      <header class="panel-h">
        <Axis label="vertical" value={y} fields={fields.filter((f) => f !== "start")} onPick={(k) => change({ y: k === "ttft" ? "" : k })} />
        <span class="u">{shown?.ya.scale.unit || unitOf(y)} over</span>
        <Axis label="horizontal" value={x} fields={["start", ...fields]} onPick={(k) => change({ x: k === "start" ? "" : k })} />
        <span class="u">{x === "start" ? "UTC" : shown?.xa?.scale.unit} by</span>
        <select aria-label="colour" value={color} onChange={(e) => change({ color: e.currentTarget.value === "outcome" ? "" : e.currentTarget.value })}>
          {[...new Set([...COLORS, color])].map((k) => <option key={k} value={k}>{k.replace(/_/g, " ")}</option>)}
        </select>
        <button type="button" class={v.log ? "chip on" : "chip"} aria-pressed={v.log} title="vertical in powers of ten" onClick={() => change({ log: !v.log }, "replace")}>log</button>
        <span class="sp" />
        {isZoomed.value && <button type="button" class="quiet" title="back (Esc)" onClick={() => zoomBack()}>back</button>}
        <span class="u cloud-hint">draw a frame to narrow down</span>
      </header>
      <LoadingBar on={res.loading} />
      <div class="cloud-body">
        {res.error && !d && <ErrorBox error={res.error} failingSince={res.failingSince} />}
        {d && shown && (
          <ScatterPlot
            xs={shown.xs} ys={d.y} kinds={shown.kinds} of={shown.cats.of} x={shown.xa ?? { from: w.from, to: w.to }} y={shown.ya} selected={d.ids.indexOf(selected)}
            label={`${TITLE(y)} over ${TITLE(x)} of ${grouped(d.shown, 0)} requests by ${color}`}
            words={(i) => [[TITLE(y), text(y, d.y[i] ?? null)], [TITLE(x), text(x, shown.xs[i] ?? null)], [color, nameOf(shown.cats.names[shown.cats.of[i] ?? 0] ?? "")]]}
            onFrame={frame} onPick={(i) => change({ id: d.ids[i] ?? "" })}
          />
        )}
      </div>
      <footer class="panel-f">
        {res.error && d ? <StaleNote res={res} /> : (
          <span class="cloud-legend">
            {shown?.kinds.map((k, i) => (
              <button type="button" key={k.name} class="quiet" disabled={k.name === OTHERS} title={`only these: ${color}:${nameOf(k.name)}`} onClick={() => change({ filter: withTerm(v.filter, color, groupTerm(k.name)), id: "" })}><KindMark kind={k} />{nameOf(k.name)} <span class="mut">{grouped(shown.cats.counts[i] ?? 0, 0)}</span></button>
            ))}
          </span>
        )}
        <span class="sp" />
        {shown && shown.missing > 0 && <span class="mut" title="one of the two numbers is unknown">{grouped(shown.missing, 0)} without a place</span>}
        {d && d.total > d.shown && <span class="mut" title={d.thinned}>{grouped(d.shown, 0)} of {grouped(d.total, 0)}; the slowest are all here</span>}
      </footer>
    </section>
  );
}

function Axis({ label, value, fields, onPick }: { label: string; value: string; fields: string[]; onPick: (k: string) => void }) {
  const all = [...new Set([...(fields.length > 1 ? fields : [...fields, ...NUMBERS.map((n) => n.key)]), value])];
  return (
    <select aria-label={label} value={value} onChange={(e) => onPick(e.currentTarget.value)}>
      {all.map((k) => <option key={k} value={k}>{TITLE(k)}</option>)}
    </select>
  );
}

function outcomeKind(name: string): Kind {
  return name === "error" ? { name, color: "--crit-fill", shape: "square" } : name === "aborted" ? { name, color: "--warn-fill", shape: "triangle" }
    : name === "running" ? { name, color: "--text-2", shape: "ring" } : name === "ok" ? { name, color: "--s1", shape: "dot" } : { name, color: "--unknown", shape: "ring" };
}
