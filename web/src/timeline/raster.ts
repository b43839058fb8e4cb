// Thousands of rows in a few hundred pixels: each pixel is the mean colour of the spans under it, and as
// solid as the share of it that they cover. Exact: every stretch counts with its share of a pixel.
import type { Axis } from "./axis";
import type { Colours, Paint } from "./colours";
import type { Flat } from "./flat";
import { firstEndingAfter } from "./flat";
import { ABORTED, ERROR, type Table } from "./table";

/** Rows of a table in the order in which they are shown; place is where row r stands in the table. */
export interface RasterInput {
  table: Table;
  flat: Flat;
  order: Uint32Array;
  from: number;
  to: number;
  axis: Axis;
  height: number;
  colours: Colours;
  paint: Paint;
  /** look at no more than this many rows under one pixel; 0 all. For frames in motion. */
  most?: number;
}

/** Paints into RGBA of axis.width by height; of the lines of pixels only those from y0 to before y1. */
export function raster(q: RasterInput, out: Uint8ClampedArray, y0 = 0, y1 = q.height): void {
  const { table, flat, order, axis, colours, paint } = q;
  const w = Math.floor(axis.width), h = q.height;
  const n = q.to - q.from;
  const { t0, t1 } = axis;
  if (w <= 0 || h <= 0) return;
  out.fill(0, y0 * w * 4, y1 * w * 4);
  if (n <= 0) return;
  const k = axis.scale, plain = axis.plain;
  const d = new Float32Array((w + 2) * 4);
  const { rgb, alpha } = paint;
  const { flags } = table;
  let lastA = -1, lastB = -1;
  for (let y = y0; y < y1; y++) {
    const a = q.from + Math.floor((y * n) / h);
    const b = Math.min(q.to, Math.max(a + 1, q.from + Math.floor(((y + 1) * n) / h)));
    if (a === lastA && b === lastB) {
      out.copyWithin(y * w * 4, (y - 1) * w * 4, y * w * 4);
      continue;
    }
    lastA = a;
    lastB = b;
    d.fill(0);
    const stride = q.most && b - a > q.most ? (b - a) / q.most : 1;
    let rows = 0;
    for (let p = a; p < b; p += stride) {
      const r = order[Math.floor(p)] as number;
      rows++;
      const hi = flat.to[r] as number;
      for (let s = firstEndingAfter(flat.end, flat.from[r] as number, hi, t0); s < hi; s++) {
        const start = flat.start[s] as number;
        if (start >= t1) break;
        const item = flat.item[s] as number;
        const c = colours.of(table, item, flat.class[s] as number, r);
        const al = alpha[c] as number;
        if (al === 0) continue;
        const end = flat.end[s] as number;
        let x0 = plain ? (start - t0) * k : axis.x(start);
        let x1 = plain ? (end - t0) * k : axis.x(end);
        if (x0 < 0) x0 = 0;
        if (x1 > w) x1 = w;
        if (!(x1 > x0)) continue;
        let red = rgb[3 * c] as number, green = rgb[3 * c + 1] as number, blue = rgb[3 * c + 2] as number;
        let weight = al;
        const f = flags[item] as number;
        if ((f & (ABORTED | ERROR)) !== 0) {
          // Errors are seen from afar: in their own colour, and stronger than what lies beside them.
          const e = rgb.length - 3;
          red = rgb[e] as number;
          green = rgb[e + 1] as number;
          blue = rgb[e + 2] as number;
          weight = al * ((f & ERROR) !== 0 ? 1.5 : 0.7);
        }
        const i0 = Math.floor(x0), i1 = Math.floor(x1);
        // A running sum turns these into the share of each pixel: up at the start, down at the end.
        const f0 = i0 + 1 - x0, f1 = i1 + 1 - x1;
        let j = i0 * 4;
        if (i0 === i1) {
          const v = (f0 - f1) * weight;
          d[j] = (d[j] as number) + v * red;
          d[j + 1] = (d[j + 1] as number) + v * green;
          d[j + 2] = (d[j + 2] as number) + v * blue;
          d[j + 3] = (d[j + 3] as number) + v;
          j += 4;
          d[j] = (d[j] as number) - v * red;
          d[j + 1] = (d[j + 1] as number) - v * green;
          d[j + 2] = (d[j + 2] as number) - v * blue;
          d[j + 3] = (d[j + 3] as number) - v;
          continue;
        }
        let v = f0 * weight;
        d[j] = (d[j] as number) + v * red;
        d[j + 1] = (d[j + 1] as number) + v * green;
        d[j + 2] = (d[j + 2] as number) + v * blue;
        d[j + 3] = (d[j + 3] as number) + v;
        v = (1 - f0) * weight;
        j += 4;
        d[j] = (d[j] as number) + v * red;
        d[j + 1] = (d[j + 1] as number) + v * green;
        d[j + 2] = (d[j + 2] as number) + v * blue;
        d[j + 3] = (d[j + 3] as number) + v;
        v = f1 * weight;
        j = i1 * 4;
        d[j] = (d[j] as number) - v * red;
        d[j + 1] = (d[j + 1] as number) - v * green;
        d[j + 2] = (d[j + 2] as number) - v * blue;
        d[j + 3] = (d[j + 3] as number) - v;
        v = (1 - f1) * weight;
        j += 4;
        d[j] = (d[j] as number) - v * red;
        d[j + 1] = (d[j + 1] as number) - v * green;
        d[j + 2] = (d[j + 2] as number) - v * blue;
        d[j + 3] = (d[j + 3] as number) - v;
      }
    }
    let red = 0, green = 0, blue = 0, cover = 0;
    let o = y * w * 4;
    for (let x = 0, j = 0; x < w; x++, j += 4, o += 4) {
      red += d[j] as number;
      green += d[j + 1] as number;
      blue += d[j + 2] as number;
      cover += d[j + 3] as number;
      if (cover < 0.004) continue;
      out[o] = red / cover;
      out[o + 1] = green / cover;
      out[o + 2] = blue / cover;
      // Little is still seen: a lone hair in a pixel has a third of the strength.
      const share = cover / rows;
      out[o + 3] = share >= 1 ? 255 : 255 * (0.3 + 0.7 * share) * Math.min(1, share * 12);
    }
  }
}

/** RGBA of a raster that came as kinds (kind + 1, 0 nothing) of what the colours tell apart, and coverage. */
export function paintKinds(kinds: Uint8Array, fill: Uint8Array, colours: Colours, paint: Paint, out: Uint8ClampedArray): void {
  const { rgb, alpha } = paint;
  const of = Uint16Array.from({ length: 256 }, (_, k) => (k === 0 ? 0 : colours.ofKind(k - 1)));
  for (let i = 0; i < kinds.length; i++) {
    const k = kinds[i] as number;
    const o = 4 * i;
    if (k === 0) {
      out[o + 3] = 0;
      continue;
    }
    const p = of[k] as number;
    out[o] = rgb[3 * p] as number;
    out[o + 1] = rgb[3 * p + 1] as number;
    out[o + 2] = rgb[3 * p + 2] as number;
    out[o + 3] = (alpha[p] as number) * (77 + 0.7 * (fill[i] as number));
  }
}
