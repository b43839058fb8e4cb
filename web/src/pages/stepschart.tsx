// The steps of a run over their id or over time: bars of one number, a line of another, the selected step
// framed; a click opens a step.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type * as api from "../api/types";
import { format, scaleFor, withUnit, type Scale } from "../format/number";
import { dayClock, duration, parseApiTime } from "../format/time";
import { extent } from "../charts/model";
import { timeTicks, valueAxis } from "../charts/ticks";
import { now } from "../state/live";
import { theme } from "../state/theme";
import { barAt, bars, place, stepNumber, type Laid, type StepBar } from "./steps";

export interface StepsChartProps {
  steps: api.Step[];
  /** key of the bars' metric, "" is the wall time */
  metric: string;
  title: string;
  unit: string;
  axis: "step" | "time";
  selected: number | undefined;
  /** the selected step is shown as it was before it was run again: what its number was then; undefined: it is not */
  earlier: number | null | undefined;
  versus: number | undefined;
  /** ids of steps of a course that was given up */
  stale: ReadonlySet<number>;
  median: number | null;
  /** more steps are expected: the room for them says so */
  growing: boolean;
  onOpen: (step: api.Step, compare: boolean) => void;
}

const LEFT = 44;
const RIGHT = 40;
const TOP = 8;
const BOTTOM = 16;

/** The scale of the chart's left axis. */
export function stepScale(steps: readonly api.Step[], metric: string, unit: string): Scale {
  const { low, top } = extent(steps.map((s) => stepNumber(s, metric).value).filter((v): v is number => v !== null));
  return scaleFor(unit, Math.max(top, -low));
}

export function StepsChart(p: StepsChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [over, setOver] = useState(-1);
  const [forced, setForced] = useState(0);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => setSize({ width: el.clientWidth, height: el.clientHeight });
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    const q = matchMedia("(forced-colors: active)");
    const again = () => setForced((n) => n + 1);
    q.addEventListener("change", again);
    return () => {
      o.disconnect();
      q.removeEventListener("change", again);
    };
  }, []);
  const plot = Math.max(0, size.width - LEFT - RIGHT);
  const laid = useMemo(() => bars(p.steps, p.metric, p.axis, plot), [p.steps, p.metric, p.axis, plot]);
  const skin = theme.value;
  useEffect(() => {
    if (canvas.current && size.width > 0) paint(canvas.current, size, p, laid, over);
  }, [size, laid, p.selected, p.earlier, p.versus, p.stale, p.median, p.growing, over, skin, forced]);
  const at = (e: MouseEvent) => barAt(laid.bars, e.offsetX - LEFT);
  const tip = laid.bars[over];
  const values = p.steps.map((s) => stepNumber(s, p.metric).value).filter((v): v is number => v !== null);
  const scale = stepScale(p.steps, p.metric, p.unit);
  const chosen = p.steps.find((s) => s.id === p.selected);
  const mine = chosen && stepNumber(chosen, p.metric).value;
  const label = values.length
    ? `${p.title} of ${p.steps.length} steps, from ${withUnit(values.reduce((a, b) => Math.min(a, b)), scale)} to ${withUnit(values.reduce((a, b) => Math.max(a, b)), scale)}${typeof mine === "number" ? `, step ${p.selected}: ${withUnit(mine, scale)}` : ""}`
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
  const to = parseApiTime(s.end);
  const where = left > width / 2 ? { right: `${width - left + 8}px` } : { left: `${left + bar.width + 8}px` };
  const ratio = p.median && n.value !== null && p.median > 0 ? n.value / p.median : null;
  return (
    <div class="tip" style={where} aria-hidden="true">
      <div class="tip-time">
        {s.kind} step {s.id}
        {s.attempts > 1 && ` · run ${s.attempt + 1} of ${s.attempts}`}
        {bar.count > 1 && ` · largest of ${bar.count}`}
      </div>
      <div class="tip-row">
        <span class="tip-name">{p.title}</span>
        <b>{n.value === null ? n.state : withUnit(n.value, scaleFor(p.unit, n.value))}</b>
      </div>
      {n.value === null && n.reason && <div class="tip-more">{n.reason}</div>}
      {ratio !== null && ratio >= 1.5 && <div class="tip-row"><span class="tip-name">vs median</span><b>{ratio.toFixed(1)}×</b></div>}
      <div class="tip-row">
        <span class="tip-name">mean reward</span>
        <b>{s.reward.value === null ? s.reward.state : s.reward.value.toFixed(3)}</b>
      </div>
      {p.stale.has(s.id) && <div class="tip-more">of a course that was given up: an earlier step was run again later</div>}
      {Number.isFinite(from) && <div class="tip-more">{dayClock(from, now(), true)} UTC{to > from && `, ${duration(to - from)}`}</div>}
    </div>
  );
}

function paint(el: HTMLCanvasElement, size: { width: number; height: number }, p: StepsChartProps, laid: Laid, over: number): void {
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
  const scale = stepScale(p.steps, p.metric, p.unit);
  const axis = valueAxis(low, top, scale, {});
  const y = (v: number) => TOP + height - ((Math.min(v, axis.max) - axis.min) / (axis.max - axis.min)) * height;
  c.fillStyle = ink("--text-3");
  c.strokeStyle = ink("--grid");
  c.textAlign = "right";
  // Ticks stand at least 14 px apart; the first always has its number.
  const every = Math.max(1, Math.ceil((14 * Math.max(1, axis.ticks.length - 1)) / height));
  axis.ticks.forEach((t, i) => {
    if (i % every !== 0) return;
    const line = Math.round(y(t)) + 0.5;
    c.beginPath();
    c.moveTo(LEFT, line);
    c.lineTo(LEFT + width, line);
    c.stroke();
    c.fillText(axis.labels[i] ?? "", LEFT - 5, line);
  });
  // Where the selected and the compared step stand, also when they share a pixel with others.
  const frame = (id: number | undefined, color: string) => {
    const s = p.steps.find((x) => x.id === id);
    if (!s) return;
    const [a, b] = place(s, p.axis);
    if (!(b >= a)) return;
    const x0 = LEFT + ((a - laid.min) / (laid.max - laid.min)) * width;
    const x1 = Math.max(x0 + 3, LEFT + ((b - laid.min) / (laid.max - laid.min)) * width);
    c.fillStyle = ink(color);
    c.fillRect(x0, TOP - 2, x1 - x0, height + 2);
  };
  frame(p.versus, "--raised");
  frame(p.selected, "--selected");
  laid.bars.forEach((b, i) => {
    const s = p.steps[b.step] as api.Step;
    const mine = s.id === p.selected && p.earlier === undefined;
    const other = s.id === p.versus;
    const x = LEFT + b.x;
    if (b.value === null) {
      hatch(c, x, TOP + height - 12, b.width, 12, ink("--hatch"));
      return;
    }
    const color = ink(mine ? "--accent" : other ? "--s5" : i === over ? "--text-2" : "--s7");
    const base = y(0);
    const end = y(b.value);
    const tall = Math.max(1, Math.abs(base - end));
    if (p.stale.has(s.id)) { // hollow: it counts no more
      hatch(c, x, Math.min(base, end), b.width, tall, color);
      c.strokeStyle = color;
      if (b.width >= 3) c.strokeRect(x + 0.5, Math.min(base, end) + 0.5, b.width - 1, Math.max(1, tall - 1));
    } else {
      c.fillStyle = color;
      c.fillRect(x, Math.min(base, end), b.width, tall);
    }
    if (s.id === p.selected && p.earlier != null) { // as it was, over what it is now
      const was = Math.max(1, Math.abs(base - y(p.earlier)));
      hatch(c, x, Math.min(base, y(p.earlier)), b.width, was, ink("--accent"));
      c.strokeStyle = ink("--accent");
      c.strokeRect(x + 0.5, Math.min(base, y(p.earlier)) + 0.5, Math.max(1, b.width - 1), Math.max(1, was - 1));
    }
    if (s.attempts > 1) {
      c.fillStyle = ink("--s6");
      c.fillRect(x, TOP + height + 1, Math.max(2, b.width), 2);
    }
    if (b.value > axis.max) { // cut: a caret says so, and the tip has the number
      c.fillStyle = ink("--warn");
      c.beginPath();
      c.moveTo(x, TOP + 4);
      c.lineTo(x + b.width / 2, TOP - 1);
      c.lineTo(x + b.width, TOP + 4);
      c.fill();
    }
  });
  if (p.median !== null && p.median <= axis.max && p.median >= axis.min) {
    const line = Math.round(y(p.median)) + 0.5;
    c.strokeStyle = ink("--text-2");
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(LEFT, line);
    c.lineTo(LEFT + laid.used, line);
    c.stroke();
    c.setLineDash([]);
  }
  reward(c, p, laid, width, height, ink);
  pin(c, p, laid, width, height, ink);
  if (p.growing && width - laid.used > 90) {
    c.fillStyle = ink("--text-3");
    c.textAlign = "left";
    c.font = `italic ${c.font}`;
    c.fillText("not run yet", LEFT + laid.used + 12, TOP + height / 2);
    c.font = c.font.replace("italic ", "");
  }
  ticks(c, p, laid, width, size, ink);
}

/** The selected and the compared step where bars are too narrow to show their colour. */
function pin(c: CanvasRenderingContext2D, p: StepsChartProps, laid: Laid, width: number, height: number, ink: (name: string) => string): void {
  for (const [id, color] of [[p.versus, "--s5"], [p.selected, "--accent"]] as const) {
    const s = p.steps.find((x) => x.id === id);
    if (!s) continue;
    const [a, b] = place(s, p.axis);
    const scale = width / (laid.max - laid.min);
    if (!((b - a) * scale < 3)) continue;
    const x = Math.round(LEFT + ((a + b) / 2 - laid.min) * scale);
    c.fillStyle = ink(color);
    c.fillRect(x - 1, TOP - 2, 2, height + 2);
    c.beginPath();
    c.moveTo(x - 4, TOP - 4);
    c.lineTo(x + 4, TOP - 4);
    c.lineTo(x, TOP + 1);
    c.fill();
  }
}

/** Ids at round distances, or round clock times. */
function ticks(c: CanvasRenderingContext2D, p: StepsChartProps, laid: Laid, width: number, size: { width: number; height: number }, ink: (name: string) => string): void {
  const x = (v: number) => LEFT + ((v - laid.min) / (laid.max - laid.min)) * width;
  const line = size.height - BOTTOM / 2 + 2;
  c.textAlign = "center";
  c.fillStyle = ink("--text-3");
  if (p.axis === "time") {
    for (const t of timeTicks(laid.min, laid.max, width)) {
      const half = c.measureText(t.label).width / 2;
      c.fillText(t.label, Math.min(Math.max(x(t.at), LEFT + half - 20), size.width - half), line);
    }
    return;
  }
  const s = step(laid.max - laid.min, width);
  const chosen = p.selected;
  const half = chosen === undefined ? 0 : c.measureText(String(chosen)).width / 2 + 6;
  const last = laid.min + (laid.used / width) * (laid.max - laid.min);
  for (let id = Math.ceil(laid.min / s) * s; id < last; id += s) {
    const text = String(id);
    if (chosen !== undefined && Math.abs(x(id) - x(chosen)) < half + c.measureText(text).width / 2) continue;
    c.fillText(text, x(id), line);
  }
  if (chosen !== undefined && chosen >= laid.min && chosen <= laid.max) {
    c.fillStyle = ink("--text");
    c.font = `600 ${c.font}`;
    c.fillText(String(chosen), x(chosen), line);
  }
}

/** Ids are labelled at round distances, at least 40 px apart. */
function step(span: number, width: number): number {
  const least = (span / Math.max(1, width)) * 40;
  const mag = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, least))));
  return [1, 2, 5, 10].map((m) => m * mag).find((s) => s >= least) ?? 10 * mag;
}

/** The mean reward as a line on an axis of its own at the right, whose name stands in the legend. */
function reward(c: CanvasRenderingContext2D, p: StepsChartProps, laid: Laid, width: number, height: number, ink: (name: string) => string): void {
  const values = laid.bars.map((b) => p.steps[b.step]?.reward.value ?? null);
  const known = values.filter((v): v is number => v !== null);
  if (known.length === 0) return;
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
    if (v === null || v === undefined || p.stale.has((p.steps[b.step] as api.Step).id)) {
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
    c.fillRect(LEFT + b.x + b.width / 2 - 2, y(values[i] as number) - 2, 4, 4);
  }
  c.lineWidth = 1;
  c.fillStyle = ink("--s2");
  c.textAlign = "left";
  const every = Math.max(1, Math.ceil((14 * Math.max(1, axis.ticks.length - 1)) / height));
  axis.ticks.forEach((t, i) => i % every === 0 && c.fillText(format(t, scale), LEFT + width + 5, y(t)));
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
