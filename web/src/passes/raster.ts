// The strip as pixels: a picture of columns that goes round. Time moves it by whole pixels, so each frame
// paints only the columns that are new or have changed, and costs what its pixels cost and not what the
// passes do.
import { rgbOf } from "../timeline/ink";
import { fillCells, M_BEAT, M_EDGE, M_GAP, M_IDLE, M_RESTART, M_SILENT, M_UNLOADED, M_UNMEASURED, newCells, type Cells } from "./cells";
import { DECODE, EMPTY, MIXED, NOTHING, PREFILL, UNMEASURED, type Ring } from "./ring";

/** Colours as numbers, alpha in the highest byte. */
export interface Inks {
  /** by kind, then by 16 steps of how much of the column it took */
  kinds: Uint32Array[];
  gap: number;
  gapDim: number;
  restart: number;
  silent: number;
  idle: number;
  unloaded: number;
  text: number;
}

/** Reads the theme's colours. */
export function readInks(token: (name: string) => string): Inks {
  const pack = (name: string, alpha = 1): number => {
    const [r, g, b] = rgbOf(token(name));
    return ((Math.round(alpha * 255) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  };
  // What took little of a column is drawn light, but is seen.
  const steps = (name: string) => Uint32Array.from({ length: 16 }, (_, i) => pack(name, 0.38 + 0.62 * (i / 15)));
  const kinds: Uint32Array[] = [];
  kinds[NOTHING] = new Uint32Array(16);
  kinds[PREFILL] = steps("--ph-p-forward");
  kinds[DECODE] = steps("--ph-d-forward");
  kinds[MIXED] = kinds[PREFILL];
  kinds[EMPTY] = steps("--text-3");
  kinds[UNMEASURED] = steps("--text-2");
  return {
    kinds, gap: pack("--unknown"), gapDim: pack("--unknown", 0.35), restart: pack("--warn-fill"), silent: pack("--hatch"),
    idle: pack("--idle"), unloaded: pack("--border-strong"), text: pack("--text-2"),
  };
}

/** A row to be painted. */
export interface RasterRow {
  ring: Ring;
  /** ms */
  allowance: number;
  /** when it was changed from, ms; Infinity when it was not */
  dirty: number;
}

export class Raster {
  readonly canvas = document.createElement("canvas");
  private readonly c = this.canvas.getContext("2d") as CanvasRenderingContext2D;
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private cells: Cells = newCells(0);
  /** columns that are painted: from lo to hi */
  private lo = 0;
  private hi = 0;
  private key = "";
  width = 0;
  height = 0;

  /**
   * Paints what is not painted yet of the columns up to `to` (not included), ms each, as many as are wide. Row i
   * begins at i*row and is bar high, all in device pixels. key is everything else that the picture depends on.
   */
  update(rows: readonly RasterRow[], width: number, to: number, ms: number, row: number, bar: number, full: number, px: number, inks: Inks, key: string): void {
    const height = Math.max(1, rows.length * row);
    if (width !== this.width || height !== this.height) {
      this.width = this.canvas.width = width;
      this.height = this.canvas.height = height;
      this.image = this.c.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.cells = newCells(width);
      this.key = "";
    }
    const from = to - width;
    if (key !== this.key || from >= this.hi || to <= this.lo) {
      this.key = key;
      this.lo = this.hi = from;
    }
    const paint = (i: number, a: number, b: number): void => {
      const r = rows[i];
      if (!r || b <= a) return;
      fillCells(r.ring, a, b - a, ms, r.allowance, this.cells);
      this.row(i * row, row, bar, a, b - a, full, px, inks);
    };
    let left = Infinity, right = -Infinity;
    const painted = (a: number, b: number): void => {
      if (b > a) {
        left = Math.min(left, a);
        right = Math.max(right, b);
      }
    };
    // To the left of what is painted (the window went back), and to the right of it (time went on).
    const lo = Math.max(from, Math.min(this.lo, to)), hi = Math.min(to, Math.max(this.hi, from));
    for (let i = 0; i < rows.length; i++) {
      paint(i, from, lo);
      paint(i, hi, to);
      const r = rows[i] as RasterRow;
      if (r.dirty < Infinity) {
        // A mark of two columns begins one before what it marks.
        const a = Math.max(lo, Math.floor(r.dirty / ms) - 2);
        paint(i, a, hi);
        painted(a, hi);
        r.dirty = Infinity;
      }
    }
    painted(from, lo);
    painted(hi, to);
    this.lo = from;
    this.hi = to;
    if (right > left && this.image) {
      const x = mod(left, width), n = Math.min(width, right - left);
      const one = Math.min(n, width - x);
      this.c.putImageData(this.image, 0, 0, x, 0, one, height);
      if (n > one) this.c.putImageData(this.image, 0, 0, 0, 0, n - one, height);
    }
  }

  /** Puts the picture where its first column has to be. */
  draw(to: CanvasRenderingContext2D, x: number, y: number): void {
    const s = mod(this.lo, this.width);
    if (this.width - s > 0) to.drawImage(this.canvas, s, 0, this.width - s, this.height, x, y, this.width - s, this.height);
    if (s > 0) to.drawImage(this.canvas, 0, 0, s, this.height, x + this.width - s, y, s, this.height);
  }

  private row(y: number, row: number, bar: number, first: number, count: number, full: number, px: number, inks: Inks): void {
    const { pixels, width, cells } = this;
    const base = y + Math.floor((row - bar) / 2) + bar; // below the bar
    const least = Math.max(2, Math.round(bar * 0.4));
    for (let i = 0; i < count; i++) {
      const col = first + i, x = mod(col, width);
      for (let at = y * width + x, end = (y + row) * width; at < end; at += width) pixels[at] = 0;
      const marks = cells.marks[i] as number, kind = cells.kind[i] as number;
      const c = Math.floor(col / px);
      if (kind !== NOTHING) {
        const h = Math.min(bar, Math.max(least, Math.round(least + (bar - least) * ((cells.batch[i] as number) / full))));
        const step = marks & M_EDGE ? 0 : (cells.cover[i] as number) >> 4;
        if (kind === MIXED) {
          const half = h >> 1;
          this.fill(x, base - h, base - half, (inks.kinds[PREFILL] as Uint32Array)[step] as number);
          this.fill(x, base - half, base, (inks.kinds[DECODE] as Uint32Array)[step] as number);
        } else this.fill(x, base - h, base, (inks.kinds[kind] as Uint32Array)[step] as number);
      }
      if (marks === 0) continue;
      if (marks & M_IDLE && c % 4 < 2) this.fill(x, base - px, base, inks.idle);
      if (marks & M_BEAT) this.fill(x, base - Math.min(bar, 3 * px), base, inks.idle);
      if (marks & M_UNMEASURED) this.fill(x, base - bar, base, inks.text);
      if (marks & M_SILENT) for (let k = 1; k <= bar; k++) if ((c + Math.floor(k / px)) % 5 === 0) pixels[(base - k) * width + x] = inks.silent;
      if (marks & M_UNLOADED && c % 6 < 3) this.fill(x, base - (bar >> 1), base - (bar >> 1) + px, inks.unloaded);
      if (marks & M_GAP) for (let k = 1; k <= bar; k++) pixels[(base - k) * width + x] = (c + Math.floor(k / px)) % 4 < 2 ? inks.gap : inks.gapDim;
      if (marks & M_RESTART) this.fill(x, base - bar, base, inks.restart);
    }
  }

  private fill(x: number, from: number, to: number, ink: number): void {
    const { pixels, width } = this;
    for (let at = from * width + x, end = to * width; at < end; at += width) pixels[at] = ink;
  }
}

const mod = (a: number, n: number): number => ((a % n) + n) % n;
