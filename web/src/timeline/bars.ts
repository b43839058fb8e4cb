// The marks of a row: bars that merge below a pixel, open and aborted spans, labels, points and clusters.
import type { Axis } from "./axis";
import { length } from "./axis";
import type { Paint } from "./colours";
import { firstFrom } from "./flat";
import type { Ink } from "./ink";
import type { Slot } from "./source";
import type { View } from "./view";

/** Draws bars along one line. Bars under a pixel are held back and merge into the colour with most of it. */
export class Bars {
  private y = 0;
  private h = 0;
  private px = -1;
  private share: Float64Array;
  private used: number[] = [];
  private alpha = 1;
  private error = -1;
  private pending: { x: number; text: string; dark: boolean | null }[] = [];
  private ink: Ink;

  constructor(private ctx: CanvasRenderingContext2D, ink: Ink, private paint: Paint, private left: number, private right: number) {
    this.share = new Float64Array(paint.css.length);
    this.ink = ink;
  }

  begin(y: number, h: number): void {
    this.y = y;
    this.h = Math.max(1, h);
    this.px = -1;
  }

  add(x0: number, x1: number, colour: number, alpha: number, error: boolean): void {
    if (x0 < this.left) x0 = this.left;
    if (x1 > this.right) x1 = this.right;
    if (!(x1 >= x0)) return;
    if (x1 - x0 >= 1) {
      this.flush();
      const { ctx } = this;
      ctx.globalAlpha = Math.min(1, alpha);
      ctx.fillStyle = this.paint.css[colour] as string;
      // Edges on whole pixels, so that neighbours neither blur nor leave a gap.
      const a = Math.round(x0), b = Math.max(a + 1, Math.round(x1));
      ctx.fillRect(a, this.y, b - a, this.h);
      return;
    }
    const px = Math.min(Math.floor(x0), Math.floor(this.right) - 1);
    if (px !== this.px) {
      this.flush();
      this.px = px;
    }
    if (this.share[colour] === 0) this.used.push(colour);
    this.share[colour] = (this.share[colour] as number) + Math.max(1e-9, x1 - x0);
    this.alpha = Math.max(this.alpha, alpha);
    if (error) this.error = colour;
  }

  flush(): void {
    if (this.px < 0) return;
    let best = -1;
    for (const c of this.used) {
      if (best < 0 || (this.share[c] as number) > (this.share[best] as number)) best = c;
      if (c !== best) continue;
    }
    for (const c of this.used) this.share[c] = 0;
    this.used.length = 0;
    const { ctx } = this;
    ctx.globalAlpha = Math.min(1, this.alpha);
    ctx.fillStyle = this.error >= 0 ? this.ink.error : (this.paint.css[best] as string);
    ctx.fillRect(this.px, this.y, 1, this.h);
    this.px = -1;
    this.alpha = 0;
    this.error = -1;
  }

  /** Hollow, with the outline of errors and a cross at its end. */
  aborted(x0: number, x1: number, alpha: number): void {
    this.flush();
    const { ctx, y, h, ink } = this;
    const a = Math.max(this.left - 2, x0), b = Math.min(this.right + 2, x1);
    if (b < this.left || a > this.right) return;
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = ink.error;
    if (h >= 5 && b - a >= 3) ctx.strokeRect(Math.round(a) + 0.5, y + 0.5, Math.max(1, Math.round(b - a) - 1), h - 1);
    if (x1 > this.right + 1 || h < 6) return;
    const r = Math.min(4, h / 2), m = y + h / 2;
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(x1 - r, m - r);
    ctx.lineTo(x1 + r, m + r);
    ctx.moveTo(x1 + r, m - r);
    ctx.lineTo(x1 - r, m + r);
    ctx.stroke();
    ctx.lineWidth = 1;
  }

  /** Dashed, faint inside, with an arrow where it is cut: its end was never written. */
  open(x0: number, x1: number, colour: number, alpha: number, last: boolean): void {
    this.flush();
    const { ctx, y, h, ink } = this;
    const a = Math.max(this.left - 2, x0), b = Math.min(this.right + 2, x1);
    if (b < this.left || a > this.right) return;
    ctx.globalAlpha = alpha * 0.28;
    ctx.fillStyle = this.paint.css[colour] as string;
    ctx.fillRect(a, y, b - a, h);
    ctx.globalAlpha = Math.max(alpha, 0.3);
    ctx.strokeStyle = ctx.fillStyle = ink.open;
    if (h >= 5) {
      ctx.setLineDash([3, 2]);
      ctx.strokeRect(Math.round(a) + 0.5, y + 0.5, Math.max(1, Math.round(b - a) - 1), h - 1);
      ctx.setLineDash([]);
    }
    if (!last || x1 > this.right || h < 5) return;
    const r = Math.min(4, h / 2), m = y + h / 2;
    ctx.beginPath();
    ctx.moveTo(x1 + 1, m - r);
    ctx.lineTo(x1 + 1 + r * 1.3, m);
    ctx.lineTo(x1 + 1, m + r);
    ctx.fill();
  }

  /** The selected one. */
  frame(x0: number, x1: number): void {
    const { ctx } = this;
    ctx.globalAlpha = 1;
    ctx.strokeStyle = this.ink.text;
    ctx.lineWidth = 1.5;
    const a = Math.max(this.left - 2, x0), b = Math.min(this.right + 2, x1);
    ctx.strokeRect(a - 0.5, this.y - 0.5, Math.max(2, b - a + 1), this.h + 1);
    ctx.lineWidth = 1;
  }

  /** A label within a bar of at least 60 px: its name, and its duration when both have room. dark null: text on the ground. */
  text(x0: number, x1: number, name: string, us: number, dark: boolean | null, ink: Ink): void {
    const a = Math.max(this.left, x0), b = Math.min(this.right, x1);
    const room = b - a - 8;
    if (room < 52 || this.h < 8) return;
    this.ctx.font = `600 9px ${ink.family}`;
    const full = `${name} ${length(us)}`;
    const text = this.ctx.measureText(full).width <= room ? full : fit(this.ctx, name, room);
    if (text !== "") this.pending.push({ x: a + 4, text, dark });
  }

  /** The row is done: its texts, and nothing of its alpha for what is drawn next. */
  end(): void {
    this.flush();
    const { ctx, ink } = this;
    ctx.globalAlpha = 1;
    if (this.pending.length === 0) return;
    ctx.font = `600 9px ${ink.family}`;
    for (const p of this.pending) {
      ctx.fillStyle = p.dark === null ? ink.text : p.dark ? "#06140e" : "#ffffff";
      ctx.fillText(p.text, p.x, this.y + this.h / 2 + 3);
    }
    this.pending.length = 0;
  }
}

const widths = new WeakMap<CanvasRenderingContext2D, Map<string, string>>();

/** A text cut to a width; what is cut has an ellipsis. */
export function fit(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (room <= 0 || text === "") return "";
  // Names are the bytes of others: no line breaks, no direction marks that turn the label around.
  const shown = text.length > 300 ? text.slice(0, 300) : text;
  let known = widths.get(ctx);
  if (!known || known.size > 4000) widths.set(ctx, (known = new Map()));
  const key = `${Math.round(room)} ${ctx.font} ${shown}`;
  const found = known.get(key);
  if (found !== undefined) return found;
  const plain = shown.replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "·");
  let out = plain;
  if (ctx.measureText(plain).width > room) {
    let lo = 0, hi = plain.length;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (ctx.measureText(plain.slice(0, mid) + "…").width <= room) lo = mid;
      else hi = mid - 1;
    }
    out = lo === 0 ? "" : plain.slice(0, lo) + "…";
  }
  known.set(key, out);
  return out;
}

export interface PointsAsk {
  ctx: CanvasRenderingContext2D;
  ink: Ink;
  axis: Axis;
  slot: Slot;
  view: View;
  names: string[];
  y: number;
  size: number;
  left: number;
  right: number;
  /** only those of this lane; -1 all */
  lane: number;
}

/** Points and orphan ends; those within 6 px merge to a count. */
export function drawPoints(q: PointsAsk): void {
  const { slot, view } = q;
  const { flat: f, at } = slot;
  if (view.points) cluster(q, f.point, f.pointFrom[at] as number, f.pointTo[at] as number, false);
  if (view.orphans) cluster(q, f.orphan, f.orphanFrom[at] as number, f.orphanTo[at] as number, true);
}

function cluster(q: PointsAsk, list: Int32Array, lo: number, hi: number, orphan: boolean): void {
  if (hi <= lo) return;
  const { ctx, axis, slot, ink, left } = q;
  const { table: t } = slot;
  ctx.globalAlpha = 1;
  let k = firstFrom(t.start, list, lo, hi, axis.t(-6));
  while (k < hi) {
    const i = list[k] as number;
    const x = axis.x(t.start[i] as number) + left;
    if (x > q.right + 6) return;
    if (q.lane >= 0 && t.lane[i] !== q.lane) {
      k++;
      continue;
    }
    // All within 6 px, found by their time.
    const next = Math.max(k + 1, firstFrom(t.start, list, k + 1, hi, axis.t(x - left + 6)));
    let n = 0;
    let last = x;
    if (q.lane >= 0) {
      for (let j = k; j < next; j++) if (t.lane[list[j] as number] === q.lane) n += t.count[list[j] as number] as number;
    } else n = next - k + (t.count[i] as number) - 1;
    if (n > 1) last = axis.x(t.start[list[next - 1] as number] as number) + left;
    const mid = Math.max(left, Math.min(q.right, (x + last) / 2));
    if (n <= 1) shape(ctx, ink, orphan ? "orphan" : shapeOf(q.names[t.name[i] as number] ?? ""), x, q.y, q.size);
    else {
      const r = Math.max(3, Math.min(6, q.size * 0.85));
      ctx.fillStyle = orphan ? ink.surface : ink.text2;
      ctx.strokeStyle = orphan ? ink.crit : ink.surface;
      ctx.beginPath();
      ctx.arc(mid, q.y, r, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
      if (r >= 4) {
        ctx.font = `600 ${r >= 5 ? 8 : 7}px ${ink.family}`;
        ctx.textAlign = "center";
        ctx.fillStyle = orphan ? ink.crit : ink.surface;
        ctx.fillText(n > 9 ? "9+" : String(n), mid, q.y + 3);
        ctx.textAlign = "left";
      }
    }
    k = next;
  }
}

export type Shape = "triangle" | "diamond" | "square" | "circle" | "orphan";

/** A point's shape says what kind of event its name tells of. */
export function shapeOf(name: string): Shape {
  const n = name.toLowerCase();
  if (/schedule|queue|buffer/.test(n)) return "triangle";
  if (/assign|complete|finish/.test(n)) return "diamond";
  if (/create|attempt|start/.test(n)) return "square";
  return "circle";
}

function shape(ctx: CanvasRenderingContext2D, ink: Ink, kind: Shape, x: number, y: number, size: number): void {
  const r = Math.max(1.5, Math.min(4, size * 0.55));
  ctx.beginPath();
  if (kind === "orphan") {
    const o = Math.max(3, Math.min(5.5, size));
    ctx.moveTo(x, y - o);
    ctx.lineTo(x + o, y);
    ctx.lineTo(x, y + o);
    ctx.lineTo(x - o, y);
    ctx.closePath();
    ctx.fillStyle = ink.surface;
    ctx.fill();
    ctx.strokeStyle = ink.crit;
    ctx.lineWidth = 1.5;
    ctx.stroke();
    ctx.lineWidth = 1;
    return;
  }
  if (kind === "triangle") {
    ctx.moveTo(x, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.lineTo(x - r, y + r);
    ctx.closePath();
  } else if (kind === "diamond") {
    ctx.moveTo(x, y - r);
    ctx.lineTo(x + r, y);
    ctx.lineTo(x, y + r);
    ctx.lineTo(x - r, y);
    ctx.closePath();
  } else if (kind === "square") ctx.rect(x - r + 0.5, y - r + 0.5, 2 * r - 1, 2 * r - 1);
  else ctx.arc(x, y, r, 0, 2 * Math.PI);
  ctx.fillStyle = ink.text2;
  ctx.fill();
  ctx.strokeStyle = ink.surface;
  ctx.stroke();
}
