// The painted cloud: points by category with a shape each, a frame that is drawn to narrow down, the point
// under the pointer with its words.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { theme, token } from "../state/theme";
import { timeTicks } from "./ticks";
import { nearest, placeOn, valueAt, type ScatterAxis } from "./scatter";

export type Shape = "dot" | "square" | "triangle" | "ring";
export interface Kind {
  name: string;
  /** token of the colour */
  color: string;
  shape: Shape;
}

export interface Frame {
  /** null: the whole axis */
  x: [number, number] | null;
  y: [number, number] | null;
}

/** A line over the cloud, in the axes' own values. */
export interface ScatterLine {
  points: [number, number][];
  /** token of the colour */
  color: string;
  width: number;
  dash?: number[];
}

export interface ScatterProps {
  /** milliseconds when the axis is time */
  xs: readonly (number | null)[];
  ys: readonly (number | null)[];
  kinds: Kind[];
  of: Uint8Array;
  x: ScatterAxis | { from: number; to: number };
  y: ScatterAxis;
  label: string;
  selected: number;
  words: (i: number) => [string, string][];
  /** without it a press draws no frame */
  onFrame?: (f: Frame) => void;
  onPick: (i: number) => void;
  lines?: ScatterLine[];
  /** what a click does, "click opens" */
  hint?: string;
}

const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 18;
const SMALL = 8;

export function ScatterPlot(p: ScatterProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [over, setOver] = useState<{ i: number; x: number; y: number } | null>(null);
  const [drag, setDrag] = useState<{ x0: number; y0: number; x: number; y: number } | null>(null);
  const skin = theme.value;
  useEffect(() => {
    const el = canvas.current?.parentElement;
    if (!el) return;
    const measure = () => setSize({ width: el.clientWidth, height: el.clientHeight });
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    return () => o.disconnect();
  }, []);
  const w = Math.max(1, size.width - LEFT - RIGHT), h = Math.max(1, size.height - TOP - BOTTOM);
  const time = "from" in p.x ? p.x : null;
  const xAxis = time ? { min: time.from, max: time.to, log: false } : (p.x as ScatterAxis);
  const [px, py] = useMemo(() => {
    const n = p.xs.length;
    const a = new Float32Array(n), b = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      const x = placeOn(xAxis, p.xs[i] ?? null), y = placeOn(p.y, p.ys[i] ?? null);
      const out = !(x >= 0 && x <= 1 && y >= 0 && y <= 1);
      a[i] = out ? NaN : LEFT + x * w;
      b[i] = out ? NaN : TOP + (1 - y) * h;
    }
    return [a, b];
  }, [p.xs, p.ys, p.y, xAxis.min, xAxis.max, xAxis.log, w, h]);

  useEffect(() => {
    const el = canvas.current;
    const c = el?.getContext("2d");
    if (!el || !c || size.width === 0) return;
    const ratio = devicePixelRatio || 1;
    el.width = Math.round(size.width * ratio);
    el.height = Math.round(size.height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, size.width, size.height);
    c.font = `10px ${token("--font")}`;
    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const text3 = token("--text-3");
    let last = Infinity;
    for (const t of p.y.ticks) {
      const y = Math.round(TOP + (1 - placeOn(p.y, t.at)) * h) + 0.5;
      if (!(y >= TOP - 1 && y <= TOP + h + 1)) continue;
      c.strokeStyle = token("--grid");
      c.beginPath();
      c.moveTo(LEFT, y);
      c.lineTo(LEFT + w, y);
      c.stroke();
      if (last - y < 12) continue;
      last = y;
      c.fillStyle = text3;
      c.fillText(t.label, LEFT - 5, y);
    }
    c.fillStyle = text3;
    c.textBaseline = "top";
    c.textAlign = "center";
    const bottom = (at: number, label: string) => {
      const half = c.measureText(label).width / 2;
      c.fillText(label, Math.min(Math.max(LEFT + placeOn(xAxis, at) * w, half), size.width - half), TOP + h + 5);
    };
    if (time) for (const t of timeTicks(time.from, time.to, w)) bottom(t.at, t.label);
    else {
      let right = -Infinity;
      for (const t of (p.x as ScatterAxis).ticks) {
        const x = LEFT + placeOn(xAxis, t.at) * w;
        if (x - right < 50) continue;
        right = x;
        bottom(t.at, t.label);
      }
    }
    c.strokeStyle = token("--border-strong");
    c.beginPath();
    c.moveTo(LEFT, TOP + h + 0.5);
    c.lineTo(LEFT + w, TOP + h + 0.5);
    c.stroke();
    const many = px.length > 4000;
    const r = many ? 1.5 : 2.2;
    // What ended badly lies on top.
    const order = p.kinds.map((_, i) => i).sort((a, b) => rank(p.kinds[a] as Kind) - rank(p.kinds[b] as Kind));
    for (const k of order) {
      const kind = p.kinds[k] as Kind;
      c.fillStyle = c.strokeStyle = token(kind.color);
      c.globalAlpha = kind.shape === "dot" && many ? 0.55 : 0.85;
      for (let i = 0; i < px.length; i++) if (p.of[i] === k && !Number.isNaN(px[i])) mark(c, kind.shape, px[i] as number, py[i] as number, r);
    }
    c.globalAlpha = 1;
    c.save();
    c.beginPath();
    c.rect(LEFT, TOP, w, h);
    c.clip();
    for (const line of p.lines ?? []) {
      c.strokeStyle = token(line.color);
      c.lineWidth = line.width;
      c.setLineDash(line.dash ?? []);
      c.beginPath();
      line.points.forEach(([x, y], i) => {
        const at = [LEFT + placeOn(xAxis, x) * w, TOP + (1 - placeOn(p.y, y)) * h] as const;
        if (i === 0) c.moveTo(...at);
        else c.lineTo(...at);
      });
      c.stroke();
    }
    c.restore();
    c.lineWidth = 1;
    for (const [i, color] of [[p.selected, "--text"], [over?.i ?? -1, "--accent"]] as const) {
      if (i < 0 || i >= px.length || Number.isNaN(px[i])) continue;
      c.strokeStyle = token(color);
      c.lineWidth = 1.5;
      c.beginPath();
      c.arc(px[i] as number, py[i] as number, 6, 0, 7);
      c.stroke();
    }
  }, [px, py, size, p.kinds, p.of, p.y, p.selected, over?.i, skin, xAxis.min, xAxis.max, p.lines]);

  const at = (e: PointerEvent) => {
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect();
    return { x: e.clientX - box.left, y: e.clientY - box.top };
  };
  const near = (x: number, y: number) => nearest(px, py, x, y);
  const done = (d: { x0: number; y0: number; x: number; y: number }) => {
    const dx = Math.abs(d.x - d.x0), dy = Math.abs(d.y - d.y0);
    if (!p.onFrame || (dx < SMALL && dy < SMALL)) {
      const i = near(d.x, d.y);
      if (i >= 0) p.onPick(i);
      return;
    }
    const share = (v: number, from: number, length: number) => Math.min(1, Math.max(0, (v - from) / length));
    const side = (a: number, b: number): [number, number] => (a < b ? [a, b] : [b, a]);
    const xs = side(share(d.x0, LEFT, w), share(d.x, LEFT, w)), ys = side(1 - share(d.y0, TOP, h), 1 - share(d.y, TOP, h));
    p.onFrame({
      x: dx < SMALL ? null : [valueAt(xAxis, xs[0]), valueAt(xAxis, xs[1])],
      y: dy < SMALL ? null : [valueAt(p.y, ys[0]), valueAt(p.y, ys[1])],
    });
  };
  const tipRight = over !== null && over.x > size.width / 2;
  return (
    <div class="scatter">
      <canvas
        ref={canvas}
        role="img"
        aria-label={p.label}
        onPointerDown={(e) => {
          if (e.button !== 0) return;
          e.currentTarget.setPointerCapture(e.pointerId);
          const a = at(e);
          setDrag({ x0: a.x, y0: a.y, x: a.x, y: a.y });
        }}
        onPointerMove={(e) => {
          const a = at(e);
          if (drag) return setDrag({ ...drag, ...a });
          const i = near(a.x, a.y);
          if (i !== (over?.i ?? -1)) setOver(i < 0 ? null : { i, x: px[i] as number, y: py[i] as number });
        }}
        onPointerUp={(e) => {
          if (drag) done({ ...drag, ...at(e) });
          setDrag(null);
        }}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => setOver(null)}
      />
      {drag && p.onFrame && (Math.abs(drag.x - drag.x0) >= SMALL || Math.abs(drag.y - drag.y0) >= SMALL) && <Brush drag={drag} w={w} h={h} />}
      {over && !drag && (
        <div class="tip" style={{ top: `${Math.max(0, over.y - 20)}px`, ...(tipRight ? { right: `${size.width - over.x + 12}px` } : { left: `${over.x + 12}px` }) }} aria-hidden="true">
          {p.words(over.i).map(([k, v]) => <div class="tip-row" key={k}><span class="tip-name">{k}</span><b>{v}</b></div>)}
          <div class="tip-more">{p.hint ?? "click opens"}</div>
        </div>
      )}
    </div>
  );
}

/** The frame: over the whole height when it is drawn flat, over the whole width when it is drawn thin. */
function Brush({ drag: d, w, h }: { drag: { x0: number; y0: number; x: number; y: number }; w: number; h: number }) {
  const flat = Math.abs(d.y - d.y0) < SMALL, thin = Math.abs(d.x - d.x0) < SMALL;
  const clampX = (v: number) => Math.min(LEFT + w, Math.max(LEFT, v)), clampY = (v: number) => Math.min(TOP + h, Math.max(TOP, v));
  const [x0, x1] = thin ? [LEFT, LEFT + w] : [clampX(Math.min(d.x0, d.x)), clampX(Math.max(d.x0, d.x))];
  const [y0, y1] = flat ? [TOP, TOP + h] : [clampY(Math.min(d.y0, d.y)), clampY(Math.max(d.y0, d.y))];
  return <i class="brush" style={{ left: `${x0}px`, top: `${y0}px`, width: `${x1 - x0}px`, height: `${y1 - y0}px` }} aria-hidden="true" />;
}

const rank = (k: Kind) => (k.shape === "dot" ? 0 : k.shape === "ring" ? 1 : k.shape === "triangle" ? 2 : 3);

function mark(c: CanvasRenderingContext2D, shape: Shape, x: number, y: number, r: number): void {
  if (shape === "square") c.fillRect(x - r - 0.5, y - r - 0.5, 2 * r + 1, 2 * r + 1);
  else if (shape === "dot" && r < 2) c.fillRect(x - r, y - r, 2 * r, 2 * r);
  else if (shape === "triangle") {
    c.beginPath();
    c.moveTo(x, y - r - 1.5);
    c.lineTo(x + r + 1.2, y + r);
    c.lineTo(x - r - 1.2, y + r);
    c.fill();
  } else {
    c.beginPath();
    c.arc(x, y, r, 0, 7);
    if (shape === "ring") c.stroke();
    else c.fill();
  }
}

/** A kind's mark beside its name. */
export function KindMark({ kind }: { kind: Kind }) {
  return (
    <svg class="kind" viewBox="0 0 10 10" style={{ color: `var(${kind.color})` }} aria-hidden="true">
      {kind.shape === "square" ? <rect x="1.5" y="1.5" width="7" height="7" fill="currentColor" />
        : kind.shape === "triangle" ? <path d="M5 1 9 9H1z" fill="currentColor" />
        : kind.shape === "ring" ? <circle cx="5" cy="5" r="3.2" fill="none" stroke="currentColor" stroke-width="1.5" />
        : <circle cx="5" cy="5" r="3.5" fill="currentColor" />}
    </svg>
  );
}
