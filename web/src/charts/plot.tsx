// uPlot, wrapped once: one canvas from a ChartModel, with the theme's colours, the cursor shared by all
// charts of the page, zoom by drag and the way back by double click.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { dayClock, sameDay } from "../format/time";
import { fixed, zoomed } from "../state/route";
import { theme } from "../state/theme";
import { behind, fieldOf, type Subject } from "../state/joins";
import { isView, now, win } from "../state/live";
import { zoomBack, zoomTo } from "../state/view";
import { describe, indexAt, valueText, type ChartModel } from "./model";
import { exact, lonely, paintOver, paintUnder, readInk } from "./paint";
import { PointMenu } from "./pointmenu";

/** The instant under the pointer, on whichever chart it is; null when on none. */
export const hover = signal<number | null>(null);
/** What the point under the pointer is about; null when it is on no chart. */
export const pointed = signal<Subject | null>(null);

interface Tip {
  index: number;
  left: number;
  width: number;
}

export interface PlotProps {
  model: ChartModel;
  /** CSS pixels; "fill" takes what the parent has */
  height: number | "fill";
}

const AXIS_X = 18;

export function Plot({ model, height }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(model);
  latest.current = model;
  const [tip, setTip] = useState<Tip | null>(null);
  const [menu, setMenu] = useState<{ subject: Subject; left: number; top: number } | null>(null);
  const skin = theme.value;
  const shape = JSON.stringify([skin, !!model.rest, model.lines.map((l) => [l.color, l.dash])]);

  useLayoutEffect(() => {
    const el = host.current;
    if (!el) return;
    const u = create(el, latest, size(el, height), setTip, (subject, left, top) => {
      setTip(null);
      setMenu(subject && { subject, left, top });
    });
    plot.current = u;
    const observer = new ResizeObserver(() => {
      const s = size(el, height);
      if (s.width > 0 && (s.width !== u.width || s.height !== u.height)) u.setSize(s);
    });
    observer.observe(el);
    return () => {
      observer.disconnect();
      u.destroy();
      pointed.value = null;
      plot.current = null;
    };
  }, [shape, height]);

  useEffect(() => {
    const u = plot.current;
    if (!u) return;
    u.batch(() => {
      u.setData(rows(model), false);
      u.setScale("x", { min: model.from, max: model.to });
      u.setScale("y", { min: model.axis.min, max: model.axis.max });
    });
  }, [model]);

  return (
    <div class="plot" style={height === "fill" ? {} : { height: `${height}px` }}>
      <div ref={host} class="plot-host" role="img" aria-label={describe(model)} />
      {tip && !menu && <Tooltip model={model} tip={tip} />}
      {menu && <PointMenu {...menu} onClose={() => setMenu(null)} />}
    </div>
  );
}

function size(el: HTMLElement, height: number | "fill"): { width: number; height: number } {
  return { width: Math.floor(el.clientWidth), height: height === "fill" ? Math.max(60, Math.floor(el.clientHeight)) : height };
}

/** Columns as uPlot takes them: x, the two edges of the grey band if there is one, the lines. */
function rows(m: ChartModel): uPlot.AlignedData {
  const n = Math.max(2, ...m.lines.map((l) => l.values.length), Math.floor((m.to - m.from) / m.step) + 1);
  const x = Array.from({ length: n }, (_, i) => m.from + i * m.step);
  const pad = (v: (number | null)[]) => (v.length === n ? v : Array.from({ length: n }, (_, i) => v[i] ?? null));
  const band = m.rest ? [pad(m.rest.high), pad(m.rest.low)] : [];
  return [x, ...band, ...m.lines.map((l) => pad(l.values))] as uPlot.AlignedData;
}

function create(el: HTMLElement, model: { current: ChartModel }, dims: { width: number; height: number }, setTip: (t: Tip | null) => void, onPoint: (s: Subject | null, left: number, top: number) => void): uPlot {
  const ink = readInk();
  const m = model.current;
  let inside = false;
  let pressed = { x: 0, y: 0 };
  let opening: ReturnType<typeof setTimeout> | undefined;
  const band: uPlot.Series[] = m.rest ? [edge(), edge()] : [];
  const opts: uPlot.Options = {
    ...dims,
    ms: 1,
    pxAlign: 1,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    scales: {
      x: { time: false, range: () => [model.current.from, model.current.to] },
      y: { range: () => [model.current.axis.min, model.current.axis.max] },
    },
    axes: [
      {
        size: AXIS_X,
        splits: () => [],
        grid: { show: false },
        ticks: { show: false },
      },
      {
        // One width for all charts of up to four characters, so that the axes of a row align.
        size: () => Math.max(34, Math.max(...model.current.axis.labels.map((l) => l.length)) * 6 + 10),
        gap: 5,
        font: `10px ${ink.font.slice(ink.font.indexOf(" ") + 1)}`,
        stroke: ink.text3,
        splits: () => model.current.axis.ticks,
        values: () => model.current.axis.labels,
        grid: { stroke: ink.grid, width: 1 },
        ticks: { show: false },
      },
    ],
    series: [
      {},
      ...band,
      ...m.lines.map((l): uPlot.Series => ({
        stroke: ink.color(l.color),
        width: 1.5,
        ...(l.dash ? { dash: l.dash } : {}),
        spanGaps: false,
        points: { show: false, size: 3, fill: ink.color(l.color), filter: (u: uPlot, i: number) => lonely(u.data[i] ?? []) },
      })),
    ],
    ...(m.rest ? { bands: [{ series: [1, 2] as [number, number], fill: ink.pause }] } : {}),
    cursor: {
      y: false,
      points: { size: 5, width: 1.5, fill: (u, i) => (u.series[i]?.stroke as () => string)?.() ?? ink.text2, stroke: () => ink.surface },
      drag: { x: true, y: false, setScale: false },
      sync: { key: "page", setSeries: false, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: {
        dblclick: () => () => {
          clearTimeout(opening);
          onPoint(null, 0, 0);
          if (!zoomBack()) zoomTo(zoomed(win.peek(), 2));
          return null;
        },
      },
    },
    hooks: {
      drawClear: [(u) => paintUnder(u, model.current, ink)],
      draw: [(u) => paintOver(u, model.current, ink)],
      setCursor: [
        (u) => {
          if (!inside) return;
          const { left = -1, idx } = u.cursor;
          if (left < 0 || idx == null) {
            hover.value = null;
            pointed.value = null;
            setTip(null);
            return;
          }
          hover.value = u.posToVal(left, "x");
          pointed.value = subjectAt(u, model.current, idx);
          setTip({ index: idx, left: left + u.bbox.left / (devicePixelRatio || 1), width: u.width });
        },
      ],
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const from = u.posToVal(u.select.left, "x");
          const to = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          // Under a step nothing more can be seen, and a tremble of the hand is no zoom.
          if (to - from >= Math.min(model.current.step, 1000)) zoomTo(fixed(from, to));
        },
      ],
      ready: [
        (u) => {
          u.over.addEventListener("pointerenter", () => (inside = true));
          u.over.addEventListener("pointerdown", (e) => (pressed = { x: e.clientX, y: e.clientY }));
          u.over.addEventListener("click", (e) => {
            clearTimeout(opening);
            const { idx } = u.cursor;
            if (isView.peek() || idx == null || e.detail > 1 || Math.hypot(e.clientX - pressed.x, e.clientY - pressed.y) > 4) return;
            const s = subjectAt(u, model.current, idx);
            const { clientX, clientY } = e;
            // A second press makes it a double click, which zooms back.
            opening = setTimeout(() => onPoint(s, clientX, clientY), 200);
          });
          u.over.addEventListener("pointerleave", () => {
            inside = false;
            hover.value = null;
            pointed.value = null;
            setTip(null);
          });
        },
      ],
    },
  };
  return new uPlot(opts, rows(m), el);
}

/** What a point is about: its window, and the engine when the line nearest to the pointer is one's. */
function subjectAt(u: uPlot, m: ChartModel, index: number): Subject {
  const y = u.cursor.top ?? 0;
  let best: ChartModel["lines"][number] | undefined;
  let distance = 24;
  for (const l of m.lines) {
    const v = l.values[index];
    if (typeof v !== "number") continue;
    const d = Math.abs(u.valToPos(v, "y") - y);
    if (d < distance) {
      distance = d;
      best = l;
    }
  }
  // Where all lines are of one engine it need not be near.
  const all = new Set(m.lines.filter((l) => l.instance).map((l) => l.instance));
  const line = best?.instance ? best : all.size === 1 && m.lines.every((l) => l.instance || l.dash) ? m.lines.find((l) => l.instance) : undefined;
  return { ...behind(m.from + index * m.step, m.step), instance: line?.instance ?? "", engine: line?.name.replace(/ p[\d.]+$/, "") ?? "", field: fieldOf(m.title) };
}

/** An edge of the grey band: not drawn itself. */
function edge(): uPlot.Series {
  return { stroke: "transparent", width: 0, points: { show: false } };
}

function Tooltip({ model: m, tip }: { model: ChartModel; tip: Tip }) {
  const t = m.from + tip.index * m.step;
  const lines = m.lines.slice(0, 9);
  const reason = m.unknown.find((s) => t >= s.from && t <= s.to)?.label;
  const mark = m.marks.find((s) => t >= s.from && t <= s.to)?.label;
  const right = tip.left > tip.width / 2;
  const place = right ? { right: `${tip.width - tip.left + 10}px` } : { left: `${tip.left + 10}px` };
  return (
    <div class="tip" style={place} aria-hidden="true">
      <div class="tip-time">{sameDay(t, now()) ? exact(t, m.step) : dayClock(t, now(), m.step < 60_000)} UTC</div>
      {lines.map((l) => (
        <div class="tip-row" key={l.name}>
          <Swatch color={l.color} dashed={l.dash !== undefined} />
          <span class="tip-name">{l.name}</span>
          <b>{valueText(l, tip.index, m)}</b>
        </div>
      ))}
      {m.rest && <div class="tip-more">{m.rest.count} more in the grey band</div>}
      {m.scale.unit && <div class="tip-more">{m.scale.unit}</div>}
      {reason && <div class="tip-more tip-unknown">unknown: {reason}</div>}
      {mark && <div class="tip-more">{mark}</div>}
    </div>
  );
}

export function Swatch({ color, dashed }: { color: string; dashed?: boolean }) {
  return <i class={dashed ? "sw sw-dash" : "sw"} style={{ "--c": `var(${color})` }} aria-hidden="true" />;
}

/** A line's value for the value row: at the cursor while one is over the page, else now. */
export function shownIndex(m: ChartModel): number {
  return hover.value === null ? -1 : indexAt(m, hover.value);
}

