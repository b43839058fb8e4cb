// The steps of a run over their id or over time: bars of one number, a line of another, the selected step
// framed; a click opens a step.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type * as api from "../api/types";
import { format, scaleFor, withUnit } from "../format/number";
import { dayClock, parseApiTime } from "../format/time";
import { extent } from "../charts/model";
import { valueAxis } from "../charts/ticks";
import { now } from "../state/live";
import { theme } from "../state/theme";
import { barAt, bars, place, stepNumber, type StepBar } from "./steps";

export interface StepsChartProps {
  steps: api.Step[];
  /** key of the bars' metric, "" is the wall time */
  metric: string;
  title: string;
  unit: string;
  axis: "step" | "time";
  selected: number | undefined;
  versus: number | undefined;
  onOpen: (step: api.Step, compare: boolean) => void;
}

const LEFT = 44;
const RIGHT = 40;
const TOP = 6;
const BOTTOM = 16;

export function StepsChart(p: StepsChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [over, setOver] = useState(-1);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => setSize({ width: el.clientWidth, height: el.clientHeight });
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    return () => o.disconnect();
  }, []);
  const plot = Math.max(0, size.width - LEFT - RIGHT);
  const laid = bars(p.steps, p.metric, p.axis, plot);
  const skin = theme.value;
  useEffect(() => {
    if (canvas.current && size.width > 0) paint(canvas.current, size, p, laid, over);
  }, [size, p.steps, p.metric, p.axis, p.selected, p.versus, over, skin]);
  const at = (e: MouseEvent) => barAt(laid.bars, e.offsetX - LEFT);
  const tip = laid.bars[over];
  const values = p.steps.map((s) => stepNumber(s, p.metric).value).filter((v): v is number => v !== null);
  const scale = scaleFor(p.unit, Math.max(0, ...values.slice(-500).map(Math.abs)));
  const label = values.length
    ? `${p.title} of ${p.steps.length} steps, from ${withUnit(values.reduce((a, b) => Math.min(a, b)), scale)} to ${withUnit(values.reduce((a, b) => Math.max(a, b)), scale)}`
    : `${p.title} of ${p.steps.length} steps: unknown`;
  return (
    <div class="steps-chart" ref={box}>
      <canvas
        ref={canvas} role="img" aria-label={label}
        onMouseMove={(e) => setOver(at(e))}
        onMouseLeave={() => setOver(-1)}
        onClick={(e) => {
          const b = laid.bars[at(e)];
          const s = b && p.steps[b.step];
          if (s) p.onOpen(s, e.shiftKey);
        }}
      />
      {tip && <Tip bar={tip} props={p} left={LEFT + tip.x} width={size.width} />}
    </div>
  );
}

function Tip({ bar, props: p, left, width }: { bar: StepBar; props: StepsChartProps; left: number; width: number }) {
  const s = p.steps[bar.step] as api.Step;
  const n = stepNumber(s, p.metric);
  const from = parseApiTime(s.start);
  const where = left > width / 2 ? { right: `${width - left + 8}px` } : { left: `${left + bar.width + 8}px` };
  return (
    <div class="tip" style={where} aria-hidden="true">
      <div class="tip-time">
        {s.kind} step {s.id}
        {bar.count > 1 && `, largest of ${bar.count}`}
      </div>
      <div class="tip-row">
        <span class="tip-name">{p.title}</span>
        <b>{n.value === null ? n.state : withUnit(n.value, scaleFor(p.unit, n.value))}</b>
      </div>
      {n.value === null && n.reason && <div class="tip-more">{n.reason}</div>}
      <div class="tip-row">
        <span class="tip-name">mean reward</span>
        <b>{s.reward.value === null ? s.reward.state : s.reward.value.toFixed(3)}</b>
      </div>
      {Number.isFinite(from) && <div class="tip-more">{dayClock(from, now(), true)} UTC</div>}
    </div>
  );
}

function paint(el: HTMLCanvasElement, size: { width: number; height: number }, p: StepsChartProps, laid: { bars: StepBar[]; min: number; max: number }, over: number): void {
  const ratio = devicePixelRatio || 1;
  el.width = Math.round(size.width * ratio);
  el.height = Math.round(size.height * ratio);
  el.style.width = `${size.width}px`;
  el.style.height = `${size.height}px`;
  const c = el.getContext("2d");
  if (!c) return;
  const css = getComputedStyle(el);
  const ink = (name: string) => css.getPropertyValue(name).trim();
  c.scale(ratio, ratio);
  c.font = `10px ${ink("--font") || "sans-serif"}`;
  c.textBaseline = "middle";
  const width = size.width - LEFT - RIGHT;
  const height = size.height - TOP - BOTTOM;
  const known = laid.bars.map((b) => b.value).filter((v): v is number => v !== null);
  const { low, top } = extent(known);
  const scale = scaleFor(p.unit, Math.max(top, -low));
  const axis = valueAxis(low, top, scale, {});
  const y = (v: number) => TOP + height - ((Math.min(v, axis.max) - axis.min) / (axis.max - axis.min)) * height;
  c.fillStyle = ink("--text-3");
  c.strokeStyle = ink("--grid");
  c.textAlign = "right";
  axis.ticks.forEach((t, i) => {
    const line = Math.round(y(t)) + 0.5;
    c.beginPath();
    c.moveTo(LEFT, line);
    c.lineTo(LEFT + width, line);
    c.stroke();
    c.fillText(axis.labels[i] ?? "", LEFT - 5, line);
  });
  laid.bars.forEach((b, i) => {
    const s = p.steps[b.step] as api.Step;
    const mine = b.count === 1 && s.id === p.selected;
    const other = b.count === 1 && s.id === p.versus;
    const x = LEFT + b.x;
    if (mine || other) {
      c.fillStyle = ink(mine ? "--selected" : "--raised");
      c.fillRect(x - 2, TOP, b.width + 4, height);
    }
    if (b.value === null) {
      hatch(c, x, TOP + height - 10, b.width, 10, ink("--hatch"));
      return;
    }
    c.fillStyle = ink(mine ? "--accent" : other ? "--s5" : i === over ? "--text-2" : "--s7");
    const base = y(0);
    const end = y(b.value);
    c.fillRect(x, Math.min(base, end), b.width, Math.max(1, Math.abs(base - end)));
    if (b.value > axis.max) { // cut: a caret says so, and the tip has the number
      c.fillStyle = ink("--warn");
      c.beginPath();
      c.moveTo(x, TOP + 4);
      c.lineTo(x + b.width / 2, TOP - 1);
      c.lineTo(x + b.width, TOP + 4);
      c.fill();
    }
  });
  reward(c, p, laid, width, height, ink);
  c.fillStyle = ink("--text-3");
  c.textAlign = "center";
  let free = -Infinity;
  for (const b of laid.bars) {
    const s = p.steps[b.step] as api.Step;
    const x = LEFT + b.x + b.width / 2;
    const text = p.axis === "step" ? String(s.id) : dayClock(place(s, "time"), now());
    const half = c.measureText(text).width / 2;
    const round = p.axis === "time" || s.id % step(laid.max - laid.min, width) === 0;
    if (!round || x - half < free + 12 || x + half > size.width) continue;
    c.fillText(text, x, size.height - BOTTOM / 2);
    free = x + half;
  }
}

/** Ids are labelled at round distances, at least 60 px apart. */
function step(span: number, width: number): number {
  const least = (span / Math.max(1, width)) * 60;
  const mag = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, least))));
  return [1, 2, 5, 10].map((m) => m * mag).find((s) => s >= least) ?? 10 * mag;
}

/** The mean reward as a line on an axis of its own at the right, whose name stands in the legend. */
function reward(c: CanvasRenderingContext2D, p: StepsChartProps, laid: { bars: StepBar[] }, width: number, height: number, ink: (name: string) => string): void {
  const values = laid.bars.map((b) => p.steps[b.step]?.reward.value ?? null);
  const known = values.filter((v): v is number => v !== null);
  if (known.length === 0 || p.metric === "rollout/reward") return;
  const { low, top } = extent(known);
  const scale = scaleFor("1", Math.max(top, -low));
  const axis = valueAxis(low, top, scale, {});
  const y = (v: number) => TOP + height - ((Math.min(v, axis.max) - axis.min) / (axis.max - axis.min)) * height;
  c.strokeStyle = ink("--s2");
  c.lineWidth = 1.5;
  c.beginPath();
  let drawing = false;
  laid.bars.forEach((b, i) => {
    const v = values[i];
    if (v === null || v === undefined) {
      drawing = false;
      return;
    }
    const x = LEFT + b.x + b.width / 2;
    if (drawing) c.lineTo(x, y(v));
    else c.moveTo(x, y(v));
    drawing = true;
  });
  c.stroke();
  if (known.length === 1) {
    const i = values.findIndex((v) => v !== null);
    const b = laid.bars[i] as StepBar;
    c.fillStyle = ink("--s2");
    c.fillRect(LEFT + b.x + b.width / 2 - 1.5, y(values[i] as number) - 1.5, 3, 3);
  }
  c.lineWidth = 1;
  c.fillStyle = ink("--s2");
  c.textAlign = "left";
  axis.ticks.forEach((t) => c.fillText(format(t, scale), LEFT + width + 5, y(t)));
}

function hatch(c: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, color: string): void {
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = color;
  for (let d = -h; d < w + h; d += 4) {
    c.beginPath();
    c.moveTo(x + d, y + h);
    c.lineTo(x + d + h, y);
    c.stroke();
  }
  c.restore();
}
