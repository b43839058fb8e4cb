// What uPlot does not draw: hatch over the unknown, the dotted baseline of idleness, bands behind the
// data, thresholds, carets of clipped peaks, clock labels that stay inside. All on the chart's own canvas.
import type uPlot from "uplot";
import { clock } from "../format/time";
import { format } from "../format/number";
import { token } from "../state/theme";
import { clipped, type ChartModel, type Span } from "./model";
import { timeTicks } from "./ticks";

/** Colours of the theme in force, read once per chart. */
export interface Ink {
  text2: string;
  text3: string;
  grid: string;
  base: string;
  surface: string;
  unknown: string;
  idle: string;
  crit: string;
  warn: string;
  pause: string;
  hatch: CanvasPattern | null;
  font: string;
  strong: string;
  color: (name: string) => string;
}

export function readInk(): Ink {
  const family = token("--font");
  const px = devicePixelRatio || 1;
  const size = 10 * px;
  return {
    text2: token("--text-2"), text3: token("--text-3"), grid: token("--grid"), base: token("--border-strong"),
    surface: token("--surface"), unknown: token("--unknown"), idle: token("--idle"), crit: token("--crit"), warn: token("--warn"),
    pause: token("--band-pause"), hatch: hatch(token("--hatch"), px),
    font: `${size}px ${family}`, strong: `600 ${size}px ${family}`,
    color: token,
  };
}

/** Diagonal lines, 2 px of 6. */
function hatch(color: string, px: number): CanvasPattern | null {
  const size = Math.round(6 * px);
  const c = document.createElement("canvas");
  c.width = c.height = size;
  const ctx = c.getContext("2d");
  if (!ctx) return null;
  ctx.strokeStyle = color;
  ctx.lineWidth = 1.6 * px;
  for (const shift of [-size, 0, size]) {
    ctx.beginPath();
    ctx.moveTo(shift - 1, size + 1);
    ctx.lineTo(shift + size + 1, -1);
    ctx.stroke();
  }
  return ctx.createPattern(c, "repeat");
}

interface Box {
  ctx: CanvasRenderingContext2D;
  px: number;
  left: number;
  top: number;
  width: number;
  height: number;
  x: (t: number) => number;
  y: (v: number) => number;
}

function box(u: uPlot): Box {
  const { left, top, width, height } = u.bbox;
  return {
    ctx: u.ctx, px: devicePixelRatio || 1, left, top, width, height,
    x: (t) => Math.min(left + width, Math.max(left, u.valToPos(t, "x", true))),
    y: (v) => u.valToPos(v, "y", true),
  };
}

/** Left and right edge of a span in the plot, at least 2 px wide; null when it lies outside. */
function edges(b: Box, s: Span, m: ChartModel): [number, number] | null {
  if (s.to < m.from || s.from > m.to) return null;
  const l = b.x(s.from);
  return [l, Math.max(l + 2 * b.px, b.x(s.to))];
}

/** Under the lines: the baseline, bands and hatch. */
export function paintUnder(u: uPlot, m: ChartModel, ink: Ink): void {
  const b = box(u);
  const { ctx } = b;
  ctx.save();
  for (const s of m.marks) {
    const e = edges(b, s, m);
    if (!e) continue;
    ctx.fillStyle = ink.pause;
    ctx.fillRect(e[0], b.top, e[1] - e[0], b.height);
  }
  for (const s of m.unknown) {
    const e = edges(b, s, m);
    if (!e || !ink.hatch) continue;
    ctx.fillStyle = ink.hatch;
    ctx.fillRect(e[0], b.top, e[1] - e[0], b.height);
  }
  // Zero is a solid line; where nothing happened it is dotted instead.
  const y = Math.round(b.y(Math.max(0, m.axis.min))) + 0.5;
  const gaps = m.idle.map((s) => edges(b, s, m)).filter((e): e is [number, number] => e !== null).sort((p, q) => p[0] - q[0]);
  ctx.strokeStyle = ink.base;
  ctx.lineWidth = b.px;
  let from = b.left;
  for (const [l, r] of [...gaps, [b.left + b.width, b.left + b.width] as [number, number]]) {
    if (l > from) line(ctx, from, y, l, y);
    from = Math.max(from, r);
  }
  ctx.strokeStyle = ink.idle;
  ctx.lineWidth = 2 * b.px;
  ctx.setLineDash([2 * b.px, 4 * b.px]);
  for (const [l, r] of gaps) line(ctx, l + b.px, y - b.px, r, y - b.px);
  ctx.restore();
}

/** Over the lines: words on the patterns, thresholds, carets, the clock. */
export function paintOver(u: uPlot, m: ChartModel, ink: Ink): void {
  const b = box(u);
  const { ctx, px } = b;
  ctx.save();
  ctx.lineJoin = "round";
  for (const s of m.unknown) {
    const e = edges(b, s, m);
    if (e) word(b, ink, "unknown", (e[0] + e[1]) / 2, b.top + b.height * 0.5, e[1] - e[0], ink.unknown, true);
  }
  for (const s of m.idle) {
    const e = edges(b, s, m);
    if (e) word(b, ink, "idle", (e[0] + e[1]) / 2, b.y(Math.max(0, m.axis.min)) - 8 * px, e[1] - e[0], ink.idle, false);
  }
  for (const s of m.marks) {
    const e = edges(b, s, m);
    if (e) word(b, ink, s.label, (e[0] + e[1]) / 2, b.top + 8 * px, e[1] - e[0], ink.text3, false);
  }
  for (const t of m.thresholds) {
    const y = Math.round(b.y(t.value)) + 0.5;
    const color = t.level === "crit" ? ink.crit : ink.warn;
    ctx.strokeStyle = color;
    ctx.lineWidth = px;
    ctx.setLineDash([4 * px, 3 * px]);
    line(ctx, b.left, y, b.left + b.width, y);
    ctx.setLineDash([]);
    label(b, ink, t.label, b.left + 3 * px, y - b.top < 12 * px ? y + 7 * px : y - 6 * px, "left", color, ink.font);
  }
  for (const l of m.lines) {
    for (const c of clipped(l.values, m.axis.max)) {
      const x = b.x(m.from + c.index * m.step);
      ctx.fillStyle = ink.color(l.color);
      ctx.beginPath();
      ctx.moveTo(x, b.top);
      ctx.lineTo(x - 4 * px, b.top + 6 * px);
      ctx.lineTo(x + 4 * px, b.top + 6 * px);
      ctx.fill();
      const right = x < b.left + b.width / 2;
      const text = (l.top !== undefined && c.value >= l.top ? "≥ " : "") + format(c.value, m.scale);
      label(b, ink, text, x + (right ? 7 : -7) * px, b.top + 5 * px, right ? "left" : "right", ink.text2, ink.font);
    }
  }
  clockLabels(b, m, ink);
  ctx.restore();
}

function line(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** A word in the middle of a band, where the band is wide enough for it. */
function word(b: Box, ink: Ink, text: string, x: number, y: number, room: number, color: string, strong: boolean): void {
  b.ctx.font = strong ? ink.strong : ink.font;
  // The state's own word may lean out of a narrow band; other words need their room.
  if (strong ? room < 12 * b.px : b.ctx.measureText(text).width + 4 * b.px > room) return;
  label(b, ink, text, x, y, "center", color, b.ctx.font);
}

/** Text with a rim of the panel's colour, readable on lines and hatch. */
function label(b: Box, ink: Ink, text: string, x: number, y: number, align: CanvasTextAlign, color: string, font: string): void {
  const { ctx } = b;
  ctx.font = font;
  ctx.textAlign = align;
  ctx.textBaseline = "middle";
  ctx.strokeStyle = ink.surface;
  ctx.lineWidth = 3 * b.px;
  ctx.strokeText(text, x, y);
  ctx.fillStyle = color;
  ctx.fillText(text, x, y);
}

/** Clock times under the plot; the last is moved in where it would be cut. */
function clockLabels(b: Box, m: ChartModel, ink: Ink): void {
  const { ctx } = b;
  ctx.font = ink.font;
  ctx.textBaseline = "top";
  ctx.fillStyle = ink.text3;
  for (const t of timeTicks(m.from, m.to, b.width / b.px)) {
    const half = ctx.measureText(t.label).width / 2;
    const right = b.left + b.width + 8 * b.px;
    const cut = b.x(t.at) + half > right;
    ctx.textAlign = cut ? "right" : "center";
    ctx.fillText(t.label, cut ? right : b.x(t.at), b.top + b.height + 5 * b.px);
  }
}

/** Indices of points that have no neighbour: a line of 1 point would not be seen. */
export function lonely(values: ArrayLike<number | null | undefined>): number[] {
  const out: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] != null && values[i - 1] == null && values[i + 1] == null) out.push(i);
  }
  return out;
}

/** The exact time of the cursor. */
export const exact = (t: number, step: number) => clock(t, step < 60_000);
