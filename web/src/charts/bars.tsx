// Counts over time as stacked bars, painted; a stretch that is drawn with the pointer is chosen.
import { useEffect, useRef, useState } from "preact/hooks";
import { grouped } from "../format/number";
import { clock, dayClock, sameDay } from "../format/time";
import { now } from "../state/live";
import { theme, token } from "../state/theme";
import { timeTicks, valueAxis } from "./ticks";
import { hover } from "./plot";

export interface BarSeries {
  name: string;
  color: string;
  counts: readonly number[];
}

export interface StackedBarsProps {
  /** the first is drawn at the bottom */
  series: BarSeries[];
  /** ms; bar i covers from + i × step and the step after */
  from: number;
  step: number;
  /** the plot's window */
  window: { from: number; to: number };
  label: string;
  onRange: (from: number, to: number) => void;
  /** a press on a bar */
  onBar: (from: number, to: number) => void;
}

const LEFT = 46, RIGHT = 10, TOP = 6, BOTTOM = 18;

export function StackedBars(p: StackedBarsProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [over, setOver] = useState(-1);
  const [drag, setDrag] = useState<{ a: number; b: number } | null>(null);
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
  const span = Math.max(1, p.window.to - p.window.from);
  const x = (t: number) => LEFT + ((t - p.window.from) / span) * w;
  const n = Math.max(0, ...p.series.map((s) => s.counts.length));

  useEffect(() => {
    const el = canvas.current;
    const c = el?.getContext("2d");
    if (!el || !c || size.width === 0) return;
    const ratio = devicePixelRatio || 1;
    el.width = Math.round(size.width * ratio);
    el.height = Math.round(size.height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, size.width, size.height);
    let most = 0;
    for (let i = 0; i < n; i++) most = Math.max(most, p.series.reduce((a, s) => a + (s.counts[i] ?? 0), 0));
    const axis = valueAxis(0, most, { factor: 1, unit: "", decimals: 0, clock: false }, { whole: true });
    const y = (v: number) => TOP + (1 - v / axis.max) * h;
    c.font = `10px ${token("--font")}`;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const every = Math.max(1, Math.ceil((13 * (axis.ticks.length - 1)) / h));
    axis.ticks.forEach((t, i) => {
      if (i % every !== 0) return;
      const line = Math.round(y(t)) + 0.5;
      c.strokeStyle = token(t === 0 ? "--border-strong" : "--grid");
      c.beginPath();
      c.moveTo(LEFT, line);
      c.lineTo(LEFT + w, line);
      c.stroke();
      c.fillStyle = token("--text-3");
      c.fillText(axis.labels[i] ?? "", LEFT - 5, line);
    });
    const tops = new Float64Array(n);
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, w, size.height);
    c.clip();
    for (const s of p.series) {
      c.fillStyle = token(s.color);
      for (let i = 0; i < n; i++) {
        const v = s.counts[i] ?? 0;
        if (v <= 0) continue;
        const a = x(p.from + i * p.step), b = x(p.from + (i + 1) * p.step);
        const base = tops[i] as number;
        // One line among thousands is still seen.
        const high = Math.max(1, y(base) - y(base + v));
        c.fillRect(a + 0.5, y(base) - high, Math.max(1, b - a - (b - a > 3 ? 1 : 0)), high);
        tops[i] = base + v;
      }
    }
    if (over >= 0) {
      c.fillStyle = token("--accent");
      c.globalAlpha = 0.14;
      c.fillRect(x(p.from + over * p.step), TOP, Math.max(2, (p.step / span) * w), h);
      c.globalAlpha = 1;
    }
    c.restore();
    c.fillStyle = token("--text-3");
    c.textBaseline = "top";
    c.textAlign = "center";
    for (const t of timeTicks(p.window.from, p.window.to, w)) {
      const half = c.measureText(t.label).width / 2;
      c.fillText(t.label, Math.min(x(t.at), size.width - half), TOP + h + 5);
    }
  }, [p.series, p.from, p.step, p.window.from, p.window.to, size, over, skin]);

  const timeAt = (e: PointerEvent) => {
    const b = (canvas.current as HTMLCanvasElement).getBoundingClientRect();
    return p.window.from + Math.min(1, Math.max(0, (e.clientX - b.left - LEFT) / w)) * span;
  };
  const barAt = (t: number) => {
    const i = Math.floor((t - p.from) / p.step);
    return i >= 0 && i < n ? i : -1;
  };
  const begin = p.from + over * p.step;
  return (
    <div class="scatter">
      <canvas
        ref={canvas} role="img" aria-label={p.label}
        onPointerDown={(e) => {
          if (e.button !== 0) return;
          e.currentTarget.setPointerCapture(e.pointerId);
          const t = timeAt(e);
          setDrag({ a: t, b: t });
        }}
        onPointerMove={(e) => {
          const t = timeAt(e);
          hover.value = t;
          setOver(barAt(t));
          if (drag) setDrag({ ...drag, b: t });
        }}
        onPointerUp={(e) => {
          if (drag) {
            const t = timeAt(e);
            const [a, b] = drag.a < t ? [drag.a, t] : [t, drag.a];
            if (((b - a) / span) * w >= 6) p.onRange(a, b);
            else if (barAt(t) >= 0) p.onBar(p.from + barAt(t) * p.step, p.from + (barAt(t) + 1) * p.step);
          }
          setDrag(null);
        }}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => {
          hover.value = null;
          setOver(-1);
        }}
      />
      {drag && Math.abs(x(drag.b) - x(drag.a)) >= 6 && <i class="brush" style={{ left: `${x(Math.min(drag.a, drag.b))}px`, width: `${Math.abs(x(drag.b) - x(drag.a))}px`, top: `${TOP}px`, height: `${h}px` }} />}
      {over >= 0 && !drag && (
        <div class="tip" style={x(begin) > size.width / 2 ? { right: `${size.width - x(begin) + 8}px` } : { left: `${x(begin + p.step) + 8}px` }} aria-hidden="true">
          <div class="tip-time">{sameDay(begin, now()) ? clock(begin, p.step < 60_000) : dayClock(begin, now(), p.step < 60_000)} UTC, {p.step / 1000} s</div>
          {p.series.filter((s) => (s.counts[over] ?? 0) > 0).slice(0, 10).map((s) => (
            <div class="tip-row" key={s.name}><i class="sw" style={{ "--c": `var(${s.color})` }} /><span class="tip-name">{s.name || "no class"}</span><b>{grouped(s.counts[over] ?? 0, 0)}</b></div>
          ))}
          {p.series.every((s) => !s.counts[over]) && <div class="tip-more">no line</div>}
        </div>
      )}
    </div>
  );
}
