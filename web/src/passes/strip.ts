// Paints the strip: names left, a ruler above, the raster, and over it what changes with every frame: silence
// that lasts, the pointer's line, the pass that is pinned.
import { readInk, type Ink } from "../timeline/ink";
import { timeTicks } from "../charts/ticks";
import { batchScale, passAt } from "./cells";
import { barHeight, LABEL, rowHeight, rowLabels, RULER } from "./layout";
import type { PassModel, StripRow } from "./model";
import { Raster, readInks, type Inks } from "./raster";

export interface Spot {
  row: StripRow;
  /** the instant under the pointer, ms */
  time: number;
  /** place in the row's ring, -1 between passes */
  pass: number;
}

export class Strip {
  private readonly raster = new Raster();
  private readonly names = document.createElement("canvas");
  private namesKey = "";
  private c: CanvasRenderingContext2D | null = null;
  private ink: Ink | null = null;
  private inks: Inks | null = null;
  private skin = 0;
  private width = 0;
  private height = 0;
  private px = 1;
  private frame = 0;
  private wanted = false;
  /** first row that is shown */
  top = 0;
  rowH = 12;
  /** a pointer's place in the canvas, px; null outside */
  pointer: { x: number; y: number } | null = null;
  /** full height of a bar, requests; it grows and does not shrink while one looks */
  full = 1;
  /** after each frame: the last head and how many columns there are */
  onFrame: (() => void) | null = null;
  private headNow = NaN;

  constructor(private readonly model: PassModel) {
    model.repaint = () => this.want();
  }

  attach(canvas: HTMLCanvasElement | null): void {
    this.c = canvas?.getContext("2d") ?? null;
    this.theme();
  }

  /** Reads the theme's colours again. */
  theme(): void {
    this.ink = null;
    this.skin++;
    this.want();
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.want();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.wanted = false;
    this.c = null;
  }

  /** Asks for a frame; while the picture follows, each frame asks for the next. */
  want(): void {
    this.wanted = true;
    if (this.frame === 0 && this.c) this.frame = requestAnimationFrame(() => this.tick());
  }

  private tick(): void {
    this.frame = 0;
    const follows = this.model.follows && !document.hidden;
    if (this.wanted || follows) {
      this.wanted = false;
      this.draw();
      this.onFrame?.();
    }
    if (follows && this.c) this.frame = requestAnimationFrame(() => this.tick());
  }

  get visible(): number {
    return Math.max(0, Math.floor((this.height - RULER) / this.rowH));
  }
  get last(): number {
    return Math.min(this.model.rows.length, this.top + this.visible);
  }
  get plot(): number {
    return Math.max(1, this.width - LABEL);
  }

  scrollBy(rows: number): void {
    const most = Math.max(0, this.model.rows.length - this.visible);
    const top = Math.max(0, Math.min(most, this.top + rows));
    if (top === this.top) return;
    this.top = top;
    this.want();
  }

  /** Brings a row into sight. */
  reveal(key: string): void {
    const i = this.model.rows.findIndex((r) => r.key === key);
    if (i < 0) return;
    if (i < this.top) this.scrollBy(i - this.top);
    else if (i >= this.top + this.visible) this.scrollBy(i - this.top - this.visible + 1);
  }

  private draw(): void {
    const { c, model } = this;
    if (!c || this.width < LABEL + 40 || this.height < RULER + 8) return;
    const px = devicePixelRatio || 1;
    const el = c.canvas;
    const w = Math.round(this.width * px), h = Math.round(this.height * px);
    if (el.width !== w || el.height !== h || px !== this.px) {
      el.width = w;
      el.height = h;
      this.px = px;
      this.ink = null;
    }
    if (!this.ink || !this.inks) {
      this.ink = readInk(el, px);
      this.inks = readInks(this.ink.token);
      this.skin++;
    }
    const ink = this.ink;
    const rows = model.rows;
    this.rowH = rowHeight(rows.length, this.height - RULER);
    this.scrollBy(0);
    const shown = rows.slice(this.top, this.last);
    for (const r of shown) if (r.ring.most > this.full) this.full = batchScale(r.ring.most);

    const left = Math.round(LABEL * px), ruler = Math.round(RULER * px), row = Math.round(this.rowH * px);
    const width = Math.max(1, w - left);
    const ms = model.span / width;
    const head = model.head();
    this.headNow = head;
    const to = Math.floor(head / ms);
    const key = `${this.skin} ${this.top} ${model.span} ${this.full} ${row} ${model.past ? model.past.from : ""} ${shown.length} ${shown[0]?.key ?? ""} ${shown.at(-1)?.key ?? ""}`;
    this.raster.update(shown, width, to, ms, row, Math.round(barHeight(this.rowH) * px), this.full, Math.max(1, Math.round(px)), this.inks, key);

    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = ink.bg;
    c.fillRect(0, 0, w, h);
    const from = (to - width) * ms;
    const x = (t: number) => left + (t - from) / ms;
    const chosen = shown.findIndex((r) => r.key === model.selected);
    if (chosen >= 0) {
      c.fillStyle = ink.selected;
      c.fillRect(0, ruler + chosen * row, w, row);
    }
    // Ruler and grid.
    c.font = `${10 * px}px ${ink.family}`;
    c.textBaseline = "middle";
    c.textAlign = "center";
    const ticks = timeTicks(from, head, width / px);
    c.fillStyle = ink.grid;
    for (const t of ticks) c.fillRect(Math.round(x(t.at)), ruler, Math.max(1, Math.round(px)), h - ruler);
    c.fillStyle = ink.text3;
    for (const t of ticks) {
      const half = c.measureText(t.label).width / 2, at = x(t.at);
      if (at - half > left && at + half < w) c.fillText(t.label, at, ruler / 2);
    }
    this.raster.draw(c, left, ruler);

    // Silence that lasts: from the last message on nobody knows what the rank does.
    for (let i = 0; i < shown.length; i++) {
      const { ring, allowance } = shown[i] as StripRow;
      const p = ring.from(head);
      const before = p > ring.begin ? ring.timeAt(p - 1) : NaN;
      const nothing = Number.isNaN(before) && p >= ring.end && this.stale(shown[i] as StripRow);
      if (!(p >= ring.end && head - before > allowance) && !nothing) continue;
      const a = nothing ? left : Math.max(left, Math.round(x(before)) + 1);
      const y = ruler + i * row, pad = Math.floor((row - Math.round(barHeight(this.rowH) * px)) / 2);
      c.fillStyle = ink.hatch ?? ink.wait;
      c.fillRect(a, y + pad, w - a, row - 2 * pad);
    }
    // Engines of several ranks are told apart by a line.
    if (rows.some((r, i) => i > 0 && r.engine === (rows[i - 1] as StripRow).engine)) {
      c.fillStyle = ink.border;
      for (let i = 1; i < shown.length; i++) if ((shown[i] as StripRow).engine !== (shown[i - 1] as StripRow).engine) c.fillRect(0, ruler + i * row, w, Math.max(1, Math.round(px / 2)));
    }
    this.drawNames(ink, left, h - ruler, row);
    c.drawImage(this.names, 0, ruler);

    if (this.pointer && this.pointer.x >= LABEL) {
      c.fillStyle = ink.text3;
      c.fillRect(Math.round(this.pointer.x * px), ruler, Math.max(1, Math.round(px / 2)), h - ruler);
    }
    const pin = model.pinned;
    const at = pin ? shown.findIndex((r) => r.key === pin.key) : -1;
    if (pin && at >= 0) {
      const { ring } = shown[at] as StripRow;
      const p = ring.from(pin.time);
      if (p < ring.end && ring.timeAt(p) === pin.time) {
        const a = Math.max(left, x(ring.startAt(p))), b = Math.max(a + 2 * px, x(pin.time));
        if (b > left) {
          c.strokeStyle = ink.open;
          c.lineWidth = 1.5 * px;
          c.strokeRect(a - px, ruler + at * row - px / 2, Math.min(w, b) - a + 2 * px, row + px / 2);
        }
      }
    }
    el.dataset["rows"] = String(shown.length);
  }

  private stale(r: StripRow): boolean {
    return this.model.past === null && r.status?.state === "stale";
  }

  /** The labels change seldom: they are kept as a picture. */
  private drawNames(ink: Ink, left: number, height: number, row: number): void {
    const { model, px } = this;
    const key = `${this.skin} ${this.top} ${this.last} ${row} ${left} ${height} ${model.selected} ${model.moved.peek()}`;
    if (key === this.namesKey) return;
    this.namesKey = key;
    this.names.width = left;
    this.names.height = Math.max(1, height);
    const c = this.names.getContext("2d");
    if (!c) return;
    const size = Math.min(11, Math.max(9, this.rowH)) * px;
    c.textBaseline = "middle";
    const labels = rowLabels(model.rows, this.top, this.last, this.rowH);
    for (const l of labels) {
      const r = model.rows[l.row] as StripRow;
      const y = Math.min(height - 5 * px, Math.max(5 * px, (l.row - this.top + 0.5) * row));
      const strong = r.key === model.selected;
      c.font = `${strong ? "600 " : ""}${size}px ${ink.family}`;
      c.fillStyle = strong ? ink.text : r.status?.state === "stale" ? ink.token("--unknown") || ink.text2 : ink.text2;
      let end = left - 6 * px;
      if (l.rank) {
        c.textAlign = "right";
        c.fillText(l.rank, end, y);
        end -= c.measureText(l.rank).width + 6 * px;
      }
      c.textAlign = "left";
      if (l.name) c.fillText(shortened(c, l.name, end - 6 * px), 6 * px, y);
    }
    // The chosen row always has its name, however low rows are.
    const i = model.rows.findIndex((r) => r.key === model.selected);
    if (i >= this.top && i < this.last && !labels.some((l) => l.row === i && l.name)) {
      const r = model.rows[i] as StripRow;
      const y = Math.min(height - 6 * px, Math.max(6 * px, (i - this.top + 0.5) * row));
      c.fillStyle = ink.selected;
      c.fillRect(0, y - 6 * px, left, 12 * px);
      c.font = `600 ${10 * px}px ${ink.family}`;
      c.fillStyle = ink.text;
      c.textAlign = "right";
      c.fillText(String(r.rank), left - 6 * px, y);
      c.textAlign = "left";
      c.fillText(shortened(c, r.name, left - 36 * px), 6 * px, y);
    }
  }

  /** What lies under a place of the canvas, px. */
  spot(x: number, y: number): Spot | null {
    const i = this.top + Math.floor((y - RULER) / this.rowH);
    const row = this.model.rows[i];
    if (!row || y < RULER || i >= this.last) return null;
    const ms = this.model.span / this.plot;
    const time = (Number.isNaN(this.headNow) ? this.model.head() : this.headNow) - (this.width - x) * ms;
    return { row, time, pass: x < LABEL ? -1 : passAt(row.ring, time, Math.max(2 * ms, 1)) };
  }
}

/** As much of a name as fits: its end tells workers apart, its beginning where they belong. */
function shortened(c: CanvasRenderingContext2D, text: string, room: number): string {
  if (c.measureText(text).width <= room) return text;
  const all = text.length;
  for (let n = all - 1; n > 3; n--) {
    const head = Math.ceil(n / 3), s = `${text.slice(0, head)}…${text.slice(all - (n - head))}`;
    if (c.measureText(s).width <= room) return s;
  }
  return "";
}
