// Draws a pane: minimap, ruler, rows, bands and cursors, on one canvas. Only what is on the screen is
// looked at; spans under a pixel merge into the colour with most time in it, errors always win.
import { Axis, clockTime, exactTime, length, ticks } from "./axis";
import type { Colours, Paint } from "./colours";
import type { Slot } from "./source";
import { darkText, type Ink } from "./ink";
import { LABEL, RIGHT, RULER, type Pane } from "./pane";
import { Bars, drawPoints, fit } from "./bars";
import { firstEndingAfter } from "./flat";
import { keyText, ofTrace, rowNoun, titleOf, unitOf } from "./words";
import { ABORTED, CLASS_NAMES, CRITICAL, ERROR, GROUP, OPEN, ORPHAN, POINT, ROW_CARRIED, ROW_CRITICAL, ROW_HELD, rowName, VIRTUAL, WAIT } from "./table";
import type { View } from "./view";
import { grouped } from "../format/number";

export interface Scene {
  ctx: CanvasRenderingContext2D;
  pane: Pane;
  view: View;
  ink: Ink;
  colours: Colours;
  paint: Paint;
  paintKey: string;
  /** a frame in motion */
  quick: boolean;
  /** asks for another frame, once something that was missing is here */
  again: () => void;
}

export function paintPane(s: Scene): void {
  const { ctx, pane, view, ink } = s;
  const { width: w, height: h } = pane;
  ctx.setTransform(ink.px, 0, 0, ink.px, 0, 0);
  ctx.globalAlpha = 1;
  ctx.fillStyle = ink.surface;
  ctx.fillRect(0, 0, w, h);
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "left";
  ctx.lineWidth = 1;
  const axis = pane.axis(view);
  minimap(s, axis);
  ruler(s, axis);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, pane.top - 2, w, h - pane.top + 2);
  ctx.clip();
  const sy = (t: number) => axis.x(t) + LABEL;
  ctx.fillStyle = ink.bg;
  ctx.fillRect(LABEL, pane.top - 2, pane.plot, h);
  grid(s, axis);
  if (pane.dense(view)) overview(s, axis);
  else rows(s, axis);
  // Weight sync, gaps and the selected range lie over the rows.
  if (pane.sync) {
    const a = Math.max(LABEL, sy(pane.sync[0])), b = Math.min(LABEL + pane.plot, Math.max(sy(pane.sync[0]) + 2, sy(pane.sync[1])));
    if (b > a) {
      ctx.fillStyle = ink.band;
      ctx.fillRect(a, pane.top - 2, b - a, h);
      if (b - a > 12 && h - pane.top > 120) {
        ctx.save();
        ctx.translate((a + b) / 2 + 3, pane.top + Math.min(200, (h - pane.top) / 2));
        ctx.rotate(-Math.PI / 2);
        ctx.font = `600 10px ${ink.family}`;
        ctx.fillStyle = ink.sync;
        ctx.textAlign = "center";
        ctx.fillText(`weight sync ${length(pane.sync[1] - pane.sync[0])}`, 0, 0);
        ctx.restore();
      }
    }
  }
  breaks(s, axis);
  ctx.restore();
  marks(s, axis);
}

// ---- minimap -------------------------------------------------------------------------------------

function minimap(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink } = s;
  const mh = pane.miniH - 8, y0 = 4, w = Math.floor(pane.plot);
  ctx.fillStyle = ink.bg;
  ctx.fillRect(LABEL, y0, w, mh);
  const [wa, wb] = pane.whole();
  const whole = new Axis(wa + pane.origin, wb + pane.origin, w, pane.gaps(view));
  const key = `${w} ${mh} ${s.paintKey} ${pane.generation} ${view.gaps}`;
  if (pane.mini?.key !== key && pane.miniAsked !== key && w > 0) {
    // The old one stays until the new one is done; it is made between frames.
    pane.miniAsked = key;
    const image = new ImageData(w, mh);
    rasterInto(s, image, whole, 0, pane.order.length, false, () => pane.miniAsked === key, () => {
      const canvas = pane.mini?.canvas ?? document.createElement("canvas");
      canvas.width = w;
      canvas.height = mh;
      canvas.getContext("2d")?.putImageData(image, 0, 0);
      pane.mini = { canvas, key };
      pane.miniAsked = "";
    });
  }
  if (pane.mini) {
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(pane.mini.canvas, LABEL, y0, w, mh);
  } else outlines(s, whole, y0, mh);
  if (pane.sync) {
    ctx.fillStyle = ink.band;
    const a = whole.x(pane.sync[0]);
    ctx.fillRect(LABEL + a, y0, Math.max(2, whole.x(pane.sync[1]) - a), mh);
  }
  ctx.strokeStyle = ink.strong;
  ctx.strokeRect(LABEL + 0.5, y0 + 0.5, w - 1, mh - 1);
  const box = miniBox(pane, view, axis);
  ctx.strokeStyle = ink.accent;
  ctx.lineWidth = 2;
  ctx.strokeRect(box.x + 1, box.y + 1, Math.max(2, box.w - 2), Math.max(2, box.h - 2));
  ctx.lineWidth = 1;
  const { shown, ready } = pane.info.value, all = pane.source.rows.n;
  const noun = `${rowNoun(pane.source)}s`;
  ctx.font = `600 10px ${ink.family}`;
  ctx.fillStyle = ink.text2;
  ctx.fillText(fit(ctx, !ready ? `${grouped(all, 0)} ${noun}` : shown === all ? `All ${grouped(all, 0)} ${noun}` : `${grouped(shown, 0)} of ${grouped(all, 0)}`, LABEL - 12), 8, y0 + 10);
  if (mh < 28 || !ready) return;
  ctx.font = `10px ${ink.family}`;
  ctx.fillStyle = ink.text3;
  const per = shown / mh;
  const words = [shown === 0 ? "no rows" : per >= 1.05 ? `1 px = ${per >= 9.5 ? grouped(Math.round(per), 0) : per.toFixed(1)} rows` : "each row is seen", "box = what is below", "drag it, or its edges"];
  words.forEach((t, i) => 24 + 14 * i < mh && ctx.fillText(fit(ctx, t, LABEL - 12), 8, y0 + 24 + 14 * i));
}

/** Until the minimap's picture is made: from where to where each pixel's row reaches, which is known at once. */
function outlines(s: Scene, whole: Axis, y0: number, mh: number): void {
  const { ctx, pane, ink } = s;
  const { rows } = pane.source;
  const n = pane.order.length;
  ctx.fillStyle = ink.border;
  for (let y = 0; y < mh && n > 0; y++) {
    const r = pane.order[Math.floor((y * n) / mh)] as number;
    if (rows.why[r] !== 0) continue;
    const a = whole.x(rows.start[r] as number), b = Math.min(pane.plot, whole.x((rows.start[r] as number) + (rows.dur[r] as number)));
    ctx.fillRect(LABEL + a, y0 + y, Math.max(1, b - a), 1);
  }
}

/** The box of the minimap, in pixels of the canvas. */
export function miniBox(pane: Pane, view: View, axis: Axis): { x: number; y: number; w: number; h: number } {
  const mh = pane.miniH - 8;
  const [wa, wb] = pane.whole();
  const whole = new Axis(wa + pane.origin, wb + pane.origin, Math.floor(pane.plot), pane.gaps(view));
  const x0 = Math.max(0, Math.min(pane.plot, whole.x(axis.t0))), x1 = Math.max(0, Math.min(pane.plot, whole.x(axis.t1)));
  const total = Math.max(1, pane.layout.height);
  const y0 = (pane.scroll / total) * mh, y1 = Math.min(1, (pane.scroll + pane.body) / total) * mh;
  const hgt = Math.max(5, y1 - y0);
  return { x: LABEL + x0, y: 4 + Math.min(y0, mh - hgt), w: Math.max(4, x1 - x0), h: hgt };
}

/** Rasters rows into a picture; done at once, or later with another frame. */
function rasterInto(s: Scene, image: ImageData, axis: Axis, from: number, to: number, quick: boolean, wanted: (() => boolean) | null, done: () => void): void {
  const { pane, view } = s;
  const answer = pane.source.raster(
    { query: pane.query(view), order: pane.order, from, to, axis, height: image.height, colours: s.colours, paint: s.paint, flat: pane.flatOptions(view), quick, ...(wanted ? { wanted } : {}) },
    image.data,
  );
  if (!(answer instanceof Promise)) return done();
  answer.then(
    (whole) => {
      if (!whole) return;
      done();
      s.again();
    },
    () => (pane.miniAsked = pane.overAsked = ""), // aborted by a newer one; or the next frame tries again
  );
}

function overview(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink } = s;
  const rowH = pane.layout.rowH;
  const [from, to] = pane.visible();
  const w = Math.floor(pane.plot);
  const hgt = Math.max(1, Math.round((to - from) * rowH));
  const key = `${w} ${hgt} ${from} ${to} ${axis.t0} ${axis.t1} ${s.paintKey} ${pane.generation} ${view.gaps}`;
  if ((pane.over?.key !== key || (pane.over.quick && !s.quick)) && pane.overAsked !== key && w > 1 && to > from) {
    pane.overAsked = key;
    // In motion a quarter of the pixels do; those of a server come when they come.
    const quick = s.quick && pane.source.local;
    const iw = quick ? w >> 1 : w, ih = quick ? Math.max(1, hgt >> 1) : hgt;
    const image = pane.overImage?.width === iw && pane.overImage.height === ih && pane.source.local ? pane.overImage : new ImageData(iw, ih);
    pane.overImage = image;
    rasterInto(s, image, quick ? new Axis(axis.t0, axis.t1, iw, axis.gaps) : axis, from, to, quick, null, () => {
      const canvas = pane.over?.canvas ?? document.createElement("canvas");
      if (canvas.width !== iw || canvas.height !== ih) {
        canvas.width = iw;
        canvas.height = ih;
      }
      canvas.getContext("2d")?.putImageData(image, 0, 0);
      pane.over = { canvas, key, quick };
      pane.overAsked = "";
    });
  }
  const y = pane.top + from * rowH - pane.scroll;
  if (pane.over) {
    ctx.imageSmoothingEnabled = pane.over.quick;
    ctx.drawImage(pane.over.canvas, LABEL, y, w, hgt);
  }
  // Selected, matching and held rows keep their marks at the left edge.
  const pv = pane.pv(view);
  const rowsOf = pane.source.rows;
  const seen = new Map<number, string>();
  for (let p = from; p < to; p++) {
    const r = pane.order[p] as number;
    const py = Math.round(pane.top + p * rowH - pane.scroll);
    if (view.tail && ((rowsOf.flags[r] as number) & ROW_HELD) !== 0) seen.set(py, ink.warn);
    else if (pane.marks && pane.marks[r] === 1 && !seen.has(py)) seen.set(py, ink.accent);
  }
  for (const [py, color] of seen) {
    ctx.fillStyle = color;
    ctx.fillRect(LABEL - 4, py, 3, Math.max(1, rowH));
  }
  const sel = pv.row >= 0 ? (pane.places[pv.row] as number) - 1 : -1;
  if (sel >= from && sel < to) {
    const py = Math.round(pane.top + sel * rowH - pane.scroll) + 0.5;
    ctx.strokeStyle = ink.accent;
    line(ctx, LABEL - 8, py, LABEL + w, py);
    ctx.fillStyle = ink.text;
    ctx.font = `600 10px ${ink.family}`;
    ctx.fillText(fit(ctx, titleOf(pane.source, pv.row), LABEL - 20), 8, Math.min(pane.height - 4, Math.max(pane.top + 9, py + 4)));
  }
  ctx.font = `10px ${ink.family}`;
  ctx.fillStyle = ink.text3;
  // Places beside the picture, so that one knows where one is.
  for (let y1 = pane.top + 60; y1 < pane.height - 12; y1 += 60) {
    const p = pane.layout.at(y1 - pane.top + pane.scroll);
    if (p < 0 || p >= to) break;
    if (sel >= 0 && Math.abs(pane.top + sel * rowH - pane.scroll - y1) < 14) continue;
    ctx.textAlign = "right";
    ctx.fillText(fit(ctx, `row ${grouped(p + 1, 0)}`, LABEL - 16), LABEL - 8, y1 + 3);
    ctx.textAlign = "left";
  }
}

// ---- ruler and grid ------------------------------------------------------------------------------

function eachTick(s: Scene, axis: Axis, f: (x: number, major: boolean, label: string) => void): void {
  const { pane } = s;
  const o = pane.origin;
  const g = axis.gaps;
  let gap = 0;
  for (const t of ticks(axis.t0 - o, axis.t1 - o, axis.scale)) {
    // Within a squeezed gap, ticks would lie on each other.
    while (gap < g.from.length && (g.to[gap] as number) < t.at + o) gap++;
    if (gap < g.from.length && (g.from[gap] as number) <= t.at + o) continue;
    const x = Math.round(axis.x(t.at + o)) + 0.5;
    f(LABEL + x, t.major, t.label);
  }
}

function ruler(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink } = s;
  const y = pane.miniH;
  ctx.strokeStyle = ink.strong;
  line(ctx, 0, y + RULER - 0.5, pane.width, y + RULER - 0.5);
  ctx.font = `10px ${ink.family}`;
  ctx.fillStyle = ink.text3;
  ctx.fillText(fit(ctx, ofTrace(pane.source) ? "participant" : `sample · ${view.sort}${unitOf(view.sort)}`, LABEL - 12), 8, y + 13);
  ctx.save();
  ctx.beginPath();
  ctx.rect(LABEL, y, pane.plot + RIGHT, RULER);
  ctx.clip();
  let free = -Infinity;
  const tag = view.cursor === null ? NaN : axis.x(view.cursor + pane.origin) + LABEL;
  eachTick(s, axis, (x, major, label) => {
    ctx.strokeStyle = major ? ink.border : ink.grid;
    line(ctx, x, y + (major ? 4 : 14), x, y + RULER);
    if (!major) return;
    const w = ctx.measureText(label).width;
    if (x + 3 < free || x + 3 + w > LABEL + pane.plot + RIGHT) return;
    if (x + w + 6 > tag - 2 && x < tag + 70) return;
    ctx.fillStyle = ink.text2;
    ctx.fillText(label, x + 3, y + 13);
    free = x + w + 10;
  });
  ctx.restore();
}

function grid(s: Scene, axis: Axis): void {
  const { ctx, pane, ink } = s;
  ctx.strokeStyle = ink.grid;
  eachTick(s, axis, (x, major) => {
    if (major) line(ctx, x, pane.top - 2, x, pane.height);
  });
}

/** Squeezed gaps are drawn as a torn strip with what was left out. */
function breaks(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink } = s;
  const g = pane.gaps(view);
  for (let i = 0; i < g.from.length; i++) {
    const a = LABEL + axis.x(g.from[i] as number), b = LABEL + axis.x(g.to[i] as number);
    if (b < LABEL || a > LABEL + pane.plot) continue;
    const m = Math.round((a + b) / 2);
    ctx.fillStyle = ink.surface;
    ctx.fillRect(Math.max(LABEL, a), pane.top - 2, Math.max(4, b - a), pane.height);
    ctx.strokeStyle = ink.strong;
    for (const side of [-2, 2]) {
      ctx.beginPath();
      for (let y = pane.top - 2, k = 0; y <= pane.height; y += 6, k++) ctx.lineTo(m + side + (k % 2 ? 1.5 : -1.5), y);
      ctx.stroke();
    }
    ctx.save();
    ctx.translate(m, pane.top + Math.min(90, (pane.height - pane.top) / 2));
    ctx.rotate(-Math.PI / 2);
    ctx.font = `10px ${ink.family}`;
    ctx.textAlign = "center";
    const text = `${length((g.to[i] as number) - (g.from[i] as number))} idle`;
    const w = ctx.measureText(text).width;
    ctx.fillStyle = ink.surface;
    ctx.fillRect(-w / 2 - 4, -7, w + 8, 14);
    ctx.fillStyle = ink.text2;
    ctx.fillText(text, 0, 3.5);
    ctx.restore();
  }
}

// ---- rows ----------------------------------------------------------------------------------------

function rows(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink, colours } = s;
  const { source, layout } = pane;
  const all = source.rows;
  const [from, to] = pane.visible();
  const w = pane.slots(view);
  if (!w.complete) s.pane.info.value = s.pane.info.value.loading ? s.pane.info.value : { ...s.pane.info.value, loading: true };
  else if (s.pane.info.value.loading && !source.local && !pane.waiting) s.pane.info.value = { ...s.pane.info.value, loading: false };
  const pv = pane.pv(view);
  const h = layout.rowH;
  const bar = h >= 8 ? h - 2 : h - 1;
  const bars = new Bars(ctx, s.ink, s.paint, LABEL, LABEL + pane.plot);
  const waitX = axis.x(pane.waitEnd) + LABEL;
  const tall = Math.min(10, h);
  let chosen: [number, number] | null = null;
  for (let p = from; p < to; p++) {
    const r = all.n > 0 ? (pane.order[p] as number) : -1;
    const y = Math.round(pane.top + layout.top(p) - pane.scroll);
    const selected = r === pv.row;
    const expanded = pane.isOpen(view, r);
    const whole = layout.top(p + 1) - layout.top(p);
    const flags = all.flags[r] as number;
    if (selected) {
      ctx.fillStyle = ink.selected;
      ctx.fillRect(0, y, pane.width, whole);
      chosen = [y, Math.max(3, whole)];
    } else if (expanded) {
      ctx.fillStyle = ink.raised;
      ctx.fillRect(0, y, LABEL, whole);
    }
    if (view.group && p > 0 && all.group[r] !== all.group[pane.order[p - 1] as number]) {
      ctx.fillStyle = ink.strong;
      ctx.fillRect(0, y - (h > 6 ? 1 : 0), pane.width, 1);
    }
    const held = view.tail && (flags & ROW_HELD) !== 0;
    if (held) {
      ctx.fillStyle = ink.warn;
      ctx.fillRect(LABEL - 4, y, 2, Math.max(1, h));
    }
    const marked = pane.marks !== null && pane.marks[r] === 1;
    if (marked) {
      ctx.fillStyle = ink.accent;
      ctx.fillRect(0, y, 3, Math.max(1, h));
    }
    if (h >= 9) label(s, r, y, h, held || marked || selected, expanded);
    const slot = w.slot(p);
    if (all.lanes[r] === 0 && all.items[r] === 0) {
      if (h >= 9) {
        ctx.font = `italic 10px ${ink.family}`;
        ctx.fillStyle = ink.text3;
        ctx.fillText(fit(ctx, source.head.dicts.why[all.why[r] as number] || "no trace", pane.plot - 8), LABEL + 4, y + h / 2 + 3.5);
      }
      continue;
    }
    if (!slot) {
      // Not here yet: where the row lies is known, what is in it is not.
      const x0 = Math.max(LABEL, axis.x(all.start[r] as number) + LABEL), x1 = Math.min(LABEL + pane.plot, axis.x((all.start[r] as number) + (all.dur[r] as number)) + LABEL);
      if (x1 > x0) {
        ctx.strokeStyle = ink.border;
        ctx.strokeRect(x0 + 0.5, y + 1.5, x1 - x0, bar - 1);
      }
      continue;
    }
    const dim = pane.marks !== null && !marked ? 0.45 : 1;
    const critical = view.critical && (flags & ROW_CRITICAL) !== 0;
    const fade = view.critical ? 0.4 : 1;
    const by = y + (h >= 8 ? 1 : 0);
    flatRow(s, axis, bars, slot, r, by, bar, dim, fade);
    const end = axis.x((all.start[r] as number) + (all.dur[r] as number)) + LABEL;
    if (all.open[r] === 0 && !ofTrace(source) && ink.hatch && h >= 5 && waitX - end > 4) hatch(s, Math.max(LABEL, end + 1), Math.min(LABEL + pane.plot, waitX), by + 2, Math.max(1, bar - 4));
    if (critical) criticalLine(s, axis, slot, by + bar / 2);
    if (h >= 6) drawPoints({ ctx, ink, axis, slot, view, names: source.head.dicts.name, y: by + bar / 2, size: tall / 2, left: LABEL, right: LABEL + pane.plot, lane: -1 });
    if (selected && pv.item >= 0 && !expanded) outline(s, axis, slot, pv.item, by, bar);
    if (expanded) lanes(s, axis, bars, slot, r, y + h, fade);
  }
  if (chosen && ink.forced) {
    ctx.strokeStyle = ink.accent;
    ctx.strokeRect(0.5, chosen[0] + 0.5, pane.width - 1, chosen[1] - 1);
  }
  void colours;
}

function label(s: Scene, r: number, y: number, h: number, strong: boolean, expanded: boolean): void {
  const { ctx, pane, view, ink } = s;
  const rows = pane.source.rows;
  const base = y + Math.min(h, 14) / 2 + 3.5 + Math.max(0, (h - 14) / 2);
  ctx.font = `${strong ? 600 : 400} 10px ${ink.family}`;
  ctx.fillStyle = strong ? ink.text : ink.text3;
  const carried = ((rows.flags[r] as number) & ROW_CARRIED) !== 0;
  const group = rows.group[r] as number;
  const key = ofTrace(pane.source) ? "" : keyText(pane.source, view.sort, r, pane.origin);
  const kw = ctx.measureText(key).width;
  ctx.textAlign = "right";
  ctx.fillText(key, LABEL - 8, base);
  ctx.textAlign = "left";
  // An arrow by shape, so that no font can miss it.
  ctx.beginPath();
  const my = base - 3.5;
  if (expanded) {
    ctx.moveTo(6, my - 2.5);
    ctx.lineTo(12, my - 2.5);
    ctx.lineTo(9, my + 2.5);
  } else {
    ctx.moveTo(7, my - 3);
    ctx.lineTo(12, my);
    ctx.lineTo(7, my + 3);
  }
  ctx.fill();
  const name = view.group && !Number.isNaN(group) ? `${rowName(rows, r)} g${group}` : titleOf(pane.source, r) + (carried ? " ↩" : "");
  ctx.fillText(fit(ctx, name, LABEL - 28 - kw), 16, base);
}

/** The whole row as one bar. */
function flatRow(s: Scene, axis: Axis, bars: Bars, slot: Slot, row: number, y: number, h: number, dim: number, fade: number): void {
  const { colours, paint, view, ink } = s;
  const { table: t, flat: f, at } = slot;
  const hi = f.to[at] as number;
  bars.begin(y, h);
  const highlight = view.attempt >= 0 && !view.only ? view.attempt : -1;
  let abortFrom = NaN, abortTo = NaN;
  const labels = h >= 11 || false;
  for (let k = firstEndingAfter(f.end, f.from[at] as number, hi, axis.t0); k < hi; k++) {
    const start = f.start[k] as number;
    if (start > axis.t1) break;
    const item = f.item[k] as number;
    const cls = f.class[k] as number;
    const c = colours.of(t, item, cls, row);
    const flags = t.flags[item] as number;
    let a = (paint.alpha[c] as number) * dim;
    if (a === 0) continue;
    if (fade < 1 && !isCritical(slot, item)) a *= fade;
    if (highlight >= 0 && t.attempt[item] !== highlight) a *= 0.18;
    const x0 = axis.x(start) + LABEL, x1 = axis.x(f.end[k] as number) + LABEL;
    if ((flags & ABORTED) !== 0) {
      if (!(abortTo >= x0 - 1)) {
        if (abortTo > abortFrom) bars.aborted(abortFrom, abortTo, dim);
        abortFrom = x0;
      }
      abortTo = Math.max(x1, x0 + 1);
      bars.add(x0, x1, c, a * 0.38, true);
      continue;
    }
    if (t.state[item] === OPEN && x1 - x0 >= 3) {
      bars.open(x0, x1, c, a, (f.end[k] as number) >= (t.start[item] as number) + (t.dur[item] as number));
      continue;
    }
    if (cls === WAIT && x1 - x0 >= 2) {
      bars.flush();
      hatch(s, x0, x1, y + 1, h - 2);
      continue;
    }
    bars.add(x0, x1, c, cls === GROUP ? a * 0.6 : a, (flags & ERROR) !== 0);
    if (labels && h >= 12 && x1 - x0 >= 60) bars.text(x0, x1, nameOf(s, slot, item, cls), (f.end[k] as number) - start, darkText(paint.rgb, c), ink);
  }
  bars.flush();
  if (abortTo > abortFrom) bars.aborted(abortFrom, abortTo, dim);
  bars.end();
}

function isCritical(slot: Slot, item: number): boolean {
  const { table: t, at } = slot;
  if (((t.flags[item] as number) & CRITICAL) !== 0) return true;
  const parent = t.parent[item] as number;
  return ((t.flags[item] as number) & VIRTUAL) !== 0 && parent >= 0 && ((t.flags[(t.itemFrom[at] as number) + parent] as number) & CRITICAL) !== 0;
}

/** What stands in a bar: of a segment its phase, else the span's name. */
function nameOf(s: Scene, slot: Slot, item: number, cls: number): string {
  const { table: t } = slot;
  if (cls !== t.class[item]) return CLASS_NAMES[cls] ?? "";
  return s.pane.source.head.dicts.name[t.name[item] as number] ?? "";
}

function criticalLine(s: Scene, axis: Axis, slot: Slot, y: number): void {
  const { ctx, ink } = s;
  const { table: t, at } = slot;
  ctx.strokeStyle = ink.text;
  ctx.beginPath();
  for (let i = t.itemFrom[at] as number, e = t.itemFrom[at + 1] as number; i < e; i++) {
    if (((t.flags[i] as number) & CRITICAL) === 0) continue;
    const a = t.start[i] as number, b = a + (t.dur[i] as number);
    if (b < axis.t0 || a > axis.t1) continue;
    const x0 = Math.max(LABEL, axis.x(a) + LABEL), x1 = Math.min(LABEL + s.pane.plot, Math.max(axis.x(b) + LABEL, x0 + 1));
    ctx.moveTo(x0, Math.round(y) + 0.5);
    ctx.lineTo(x1, Math.round(y) + 0.5);
  }
  ctx.stroke();
}

/** The lanes of an expanded row. Items come lane by lane, in time. */
function lanes(s: Scene, axis: Axis, bars: Bars, slot: Slot, row: number, top: number, fade: number): void {
  const { ctx, pane, view, ink, colours, paint } = s;
  const { table: t, at } = slot;
  const lh = pane.layout.laneH;
  const pv = pane.pv(view);
  const names = pane.laneNames(slot, row);
  const a = t.itemFrom[at] as number, e = t.itemFrom[at + 1] as number;
  const n = pane.source.rows.lanes[row] as number;
  const firstLane = Math.max(0, Math.floor((pane.top - top) / lh)), lastLane = Math.min(n - 1, Math.ceil((pane.height - top) / lh));
  ctx.font = `10px ${ink.family}`;
  for (let l = firstLane; l <= lastLane; l++) {
    ctx.fillStyle = ink.text3;
    ctx.fillText(fit(ctx, names[l] ?? "", LABEL - 26), 20, top + l * lh + lh / 2 + 3.5);
  }
  const highlight = view.attempt >= 0 ? view.attempt : -1;
  let lane = -1, y = 0, abortFrom = NaN, abortTo = NaN;
  const bar = lh - 2;
  const close = () => {
    if (lane < 0) return;
    bars.flush();
    if (abortTo > abortFrom) bars.aborted(abortFrom, abortTo, 1);
    abortFrom = abortTo = NaN;
    bars.end();
  };
  for (let i = seekLane(slot, a, e, firstLane); i < e; i++) {
    const l = t.lane[i] as number;
    if (l > lastLane) break;
    if (l < firstLane) continue;
    if (l !== lane) {
      close();
      lane = l;
      y = top + l * lh + 1;
      bars.begin(y, bar);
      i = seekTime(slot, i, e, axis.t0);
      if (i >= e || t.lane[i] !== l) {
        i--;
        continue;
      }
    }
    const state = t.state[i];
    if (state === POINT || state === ORPHAN || (state === OPEN && !view.opens)) continue;
    const start = t.start[i] as number, end = start + (t.dur[i] as number);
    if (end < axis.t0 || start > axis.t1) continue;
    if (highlight >= 0 && view.only && t.attempt[i] !== highlight) continue;
    const cls = t.class[i] as number;
    const c = colours.of(t, i, cls, row);
    let alpha = paint.alpha[c] as number;
    if (fade < 1 && !isCritical(slot, i)) alpha *= fade;
    if (highlight >= 0 && t.attempt[i] !== highlight) alpha *= 0.18;
    if (alpha === 0) continue;
    const x0 = axis.x(start) + LABEL, x1 = axis.x(end) + LABEL;
    const flags = t.flags[i] as number;
    const rgb = paint.rgb;
    if ((flags & ABORTED) !== 0) {
      if (!(abortTo >= x0 - 1)) {
        if (abortTo > abortFrom) bars.aborted(abortFrom, abortTo, 1);
        abortFrom = x0;
      }
      abortTo = Math.max(x1, x0 + 1);
      bars.add(x0, x1, c, alpha * 0.38, true);
    } else if (state === OPEN && x1 - x0 >= 3) bars.open(x0, x1, c, alpha, true);
    else if (cls === WAIT && x1 - x0 >= 2) {
      bars.flush();
      hatch(s, x0, x1, y + 1, bar - 2);
    } else bars.add(x0, x1, c, alpha, (flags & ERROR) !== 0);
    const segs = t.segs[i] as number;
    if (segs > 0) {
      const s0 = t.segFrom[i] as number;
      for (let g = s0; g < s0 + segs; g++) {
        const gs = t.segStart[g] as number, ge = gs + (t.segDur[g] as number);
        if (ge < axis.t0 || gs > axis.t1) continue;
        const gc = colours.of(t, i, t.segClass[g] as number, row);
        let ga = paint.alpha[gc] as number;
        if (fade < 1 && !isCritical(slot, i)) ga *= fade;
        const gx0 = axis.x(gs) + LABEL, gx1 = axis.x(ge) + LABEL;
        bars.add(gx0, gx1, gc, ga, false);
        if (gx1 - gx0 >= 60) bars.text(gx0, gx1, (CLASS_NAMES[t.segClass[g] as number] ?? "").replace(/^[PD] /, ""), ge - gs, darkText(rgb, gc), ink);
      }
    } else if (x1 - x0 >= 60) bars.text(x0, x1, nameOf(s, slot, i, cls), end - start, state === OPEN || (flags & ABORTED) !== 0 ? null : cls === GROUP ? null : darkText(rgb, c), ink);
    if (row === pv.row && pv.item === i - a) {
      bars.flush();
      bars.frame(x0, x1);
    }
  }
  close();
  for (let l = firstLane; l <= lastLane; l++) {
    drawPoints({ ctx, ink, axis, slot, view, names: pane.source.head.dicts.name, y: top + l * lh + lh / 2, size: 5, left: LABEL, right: LABEL + pane.plot, lane: l });
  }
}

/** Items are sorted by lane: the first item of a lane, in a row of many. */
function seekLane(slot: Slot, lo: number, hi: number, lane: number): number {
  const { table: t } = slot;
  if (hi - lo < 64) return lo;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((t.lane[mid] as number) < lane) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/**
 * Within a lane spans never overlap and come in time, points lie in them: the first span that ends after t0
 * is a span or the last one before a run of points. Goes back over points, which are no spans.
 */
function seekTime(slot: Slot, from: number, e: number, t0: number): number {
  const { table: t } = slot;
  const lane = t.lane[from];
  let hi = seekLane(slot, from, e, (lane as number) + 1);
  if (hi - from < 64) return from;
  let lo = from;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((t.start[mid] as number) < t0) lo = mid + 1;
    else hi = mid;
  }
  // The span that t0 lies in began before it.
  let back = lo - 1;
  while (back > from && (t.state[back] === POINT || t.state[back] === ORPHAN)) back--;
  return Math.max(from, back);
}

function outline(s: Scene, axis: Axis, slot: Slot, item: number, y: number, h: number): void {
  const { table: t, at } = slot;
  const i = (t.itemFrom[at] as number) + item;
  if (i >= (t.itemFrom[at + 1] as number)) return;
  const x0 = Math.max(LABEL, axis.x(t.start[i] as number) + LABEL), x1 = Math.min(LABEL + s.pane.plot, axis.x((t.start[i] as number) + (t.dur[i] as number)) + LABEL);
  s.ctx.strokeStyle = s.ink.text;
  s.ctx.lineWidth = 1.5;
  s.ctx.strokeRect(x0 - 0.5, y - 0.5, Math.max(2, x1 - x0 + 1), h + 1);
  s.ctx.lineWidth = 1;
}

function hatch(s: Scene, x0: number, x1: number, y: number, h: number): void {
  const { ctx, ink, pane } = s;
  x0 = Math.max(LABEL, x0);
  x1 = Math.min(LABEL + pane.plot, x1);
  if (!(x1 > x0) || !ink.hatch) return;
  ctx.globalAlpha = 1;
  // The pattern is made in device pixels.
  ctx.save();
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = ink.hatch;
  ctx.fillRect(x0 * ink.px, y * ink.px, (x1 - x0) * ink.px, h * ink.px);
  ctx.restore();
}

// ---- cursor and range ----------------------------------------------------------------------------

function marks(s: Scene, axis: Axis): void {
  const { ctx, pane, view, ink } = s;
  const left = LABEL, right = LABEL + pane.plot;
  const o = pane.origin;
  if (view.from !== null && view.to !== null) {
    const a = axis.x(Math.min(view.from, view.to) + o) + LABEL, b = axis.x(Math.max(view.from, view.to) + o) + LABEL;
    if (b >= left && a <= right) {
      const x0 = Math.max(left, a), x1 = Math.min(right, b);
      ctx.globalAlpha = 0.16;
      ctx.fillStyle = ink.accent;
      ctx.fillRect(x0, pane.miniH, x1 - x0, pane.height);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = ink.accent;
      for (const x of [a, b]) if (x >= left && x <= right) line(ctx, Math.round(x) + 0.5, pane.miniH, Math.round(x) + 0.5, pane.height);
      const text = `Δ ${length(Math.abs(view.to - view.from))}`;
      ctx.font = `600 10px ${ink.family}`;
      const w = ctx.measureText(text).width + 10;
      const x = Math.max(left, Math.min(right - w, (x0 + x1 - w) / 2));
      ctx.fillStyle = ink.accent;
      ctx.fillRect(x, pane.top + 2, w, 15);
      ctx.fillStyle = ink.onAccent;
      ctx.fillText(text, x + 5, pane.top + 13);
    }
  }
  if (view.cursor !== null) {
    const x = Math.round(axis.x(view.cursor + o)) + LABEL + 0.5;
    if (x >= left - 1 && x <= right + 1) {
      ctx.strokeStyle = ink.accent;
      line(ctx, x, pane.miniH + 2, x, pane.height);
      const text = exactTime(view.cursor, axis.scale, Math.max(pane.ends[1], Math.abs(view.cursor)));
      ctx.font = `600 10px ${ink.family}`;
      const w = ctx.measureText(text).width + 12;
      const tx = Math.min(x, right + RIGHT - w);
      ctx.fillStyle = ink.accent;
      ctx.fillRect(tx, pane.miniH + 2, w, 14);
      ctx.fillStyle = ink.onAccent;
      ctx.fillText(text, tx + 6, pane.miniH + 12.5);
    }
  }
}

function line(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

export { clockTime };
