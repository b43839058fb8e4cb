// The live strip of all ranks: its frame, legend, pointer and words. strip.ts paints it.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type * as api from "../api/types";
import { Badge, LoadingBar } from "../components/state";
import { brief, grouped, plural } from "../format/number";
import { clock, dayClock, duration, since } from "../format/time";
import { LABEL, rowHeight, RULER } from "../passes/layout";
import type { PassModel, StripRow } from "../passes/model";
import { GAP, HEARTBEAT, RESTART, type Pass } from "../passes/ring";
import { Strip, type Spot } from "../passes/strip";
import { KIND_WORDS, passWords } from "../passes/words";
import { isArchive, isLive, today, toggleLive } from "../state/live";
import { theme } from "../state/theme";

/** Counts of the window are made anew so often. */
const COUNT_MS = 500;

export interface WindowCounts {
  passes: number;
  beats: number;
  gaps: number;
  missing: number;
  restarts: number;
}

/** What is in the window, of the rows that are shown. */
export function countWindow(rows: readonly StripRow[], from: number, to: number): WindowCounts {
  const n: WindowCounts = { passes: 0, beats: 0, gaps: 0, missing: 0, restarts: 0 };
  for (const { ring } of rows) {
    for (let p = ring.from(from); p < ring.end && ring.timeAt(p) <= to; p++) {
      const flags = ring.flagsAt(p);
      if (flags & HEARTBEAT) n.beats++;
      else n.passes++;
      if (flags & GAP) {
        n.gaps++;
        n.missing += ring.get(p)?.missing ?? 0;
      }
      if (flags & RESTART) n.restarts++;
    }
  }
  return n;
}

export function StripPanel({ model, passes, loading }: { model: PassModel; passes: api.ForwardPasses | undefined; loading: boolean }) {
  const strip = useMemo(() => new Strip(model), [model]);
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [room, setRoom] = useState(roomFor());
  const tip = useSignal<{ spot: Spot; x: number; y: number } | null>(null);
  const counts = useSignal<WindowCounts | null>(null);
  const drag = useRef<{ x: number; moved: boolean } | null>(null);
  const moved = model.moved.value;
  const skin = theme.value;
  const rows = model.rows;
  const height = RULER + Math.min(Math.max(room, 6), rows.length === 0 ? 96 : rows.length * rowHeight(rows.length, room));

  useEffect(() => {
    const el = host.current;
    if (!el) return;
    strip.attach(canvas.current);
    const size = () => strip.resize(el.clientWidth, el.clientHeight);
    size();
    const o = new ResizeObserver(size);
    o.observe(el);
    const fit = () => setRoom(roomFor());
    addEventListener("resize", fit);
    const wheel = (e: WheelEvent) => onWheel(e, model, strip);
    el.addEventListener("wheel", wheel, { passive: false });
    const shown = () => strip.want();
    document.addEventListener("visibilitychange", shown);
    const timer = setInterval(() => {
      const w = model.window();
      counts.value = countWindow(model.rows, w.from, w.to);
      // The picture moves under a pointer that rests.
      if (strip.pointer && model.follows) point(strip.pointer.x, strip.pointer.y);
    }, COUNT_MS);
    return () => {
      o.disconnect();
      removeEventListener("resize", fit);
      el.removeEventListener("wheel", wheel);
      document.removeEventListener("visibilitychange", shown);
      clearInterval(timer);
      strip.stop();
    };
  }, [strip]);
  useEffect(() => strip.theme(), [skin]);
  useEffect(() => {
    if (model.selected) strip.reveal(model.selected);
    strip.want();
  }, [moved]);

  const point = (x: number, y: number) => {
    const spot = strip.spot(x, y);
    tip.value = spot ? { spot, x, y } : null;
  };
  const at = (e: { clientX: number; clientY: number }): [number, number] => {
    const b = (host.current as HTMLElement).getBoundingClientRect();
    return [e.clientX - b.left, e.clientY - b.top];
  };
  const f = model.feed;
  model.feedMoved.value;
  const past = model.pastState.value;
  const follows = model.at === null && isLive.value;
  const window = model.window();
  const chosen = model.rowOf(model.selected);
  return (
    <section class="panel pass-strip" aria-label="forward passes">
      <header class="panel-h">
        <h2>Forward passes</h2>
        <span class="u">a row a rank, a bar an iteration, its length the wall time</span>
        {f.failingSince > 0 && f.error?.code !== "not_enabled" && <Badge level="unknown" title={f.error?.message}>no answer since {clock(f.failingSince, true)}</Badge>}
        {f.gone > 0 && <Badge level="warn" title="they went out of the server's memory before this page asked; the strip has dashes there">fell behind at {clock(f.goneAt, true)}: {plural(f.gone, "pass", "passes")} not shown</Badge>}
        {past.error && <Badge level="unknown" title={past.error.hint || past.error.where}>stored passes: {past.error.message}</Badge>}
        {!Number.isNaN(past.from) && model.past && <Badge level="warn" title="a shorter time shows all of it">only from {clock(past.from, true)} on</Badge>}
        <span class="sp" />
        <span class="u">{follows ? `last ${duration(model.span)}` : windowText(window.from, window.to)}</span>
        <button type="button" class="btn icon" title="longer time (s)" aria-label="longer time" onClick={() => model.zoomStep(1)}>−</button>
        <button type="button" class="btn icon" title="shorter time (w)" aria-label="shorter time" onClick={() => model.zoomStep(-1)}>+</button>
        {isArchive.value
          ? <button type="button" class="btn" title="the end of the recording (f)" onClick={() => model.follow()}>End <kbd>f</kbd></button>
          : <button type="button" class={follows ? "btn on" : "btn"} aria-pressed={follows} title="moves with time (f, Space)" onClick={() => (follows ? toggleLive() : model.follow())}>{follows ? "Follows" : "Follow"} <kbd>f</kbd></button>}
      </header>
      <LoadingBar on={loading || past.loading} />
      <div class="pass-legend leg" aria-hidden="true">
        <span><i class="key-bar key-prefill" />prefill</span>
        <span><i class="key-bar key-decode" />decode</span>
        <span><i class="key-bar key-mixed" />both in one</span>
        <span><i class="key-bar key-beat" />heartbeat: idle</span>
        <span><i class="key-bar key-gap" />messages missing</span>
        <span><i class="key-bar key-restart" />engine began anew</span>
        <span><i class="key-bar key-silent" />silent: unknown</span>
        <span class="sp" />
        <span>taller: larger batch, full at {grouped(strip.full, 0)}</span>
      </div>
      <div
        ref={host} class="pass-canvas" style={{ height: `${height}px` }} tabIndex={0} role="application" aria-roledescription="timeline of iterations"
        aria-label={`forward passes of ${plural(rows.length, "rank")}`} aria-describedby="pass-keys"
        onPointerDown={(e) => {
          if (e.button !== 0) return;
          e.currentTarget.setPointerCapture(e.pointerId);
          drag.current = { x: at(e)[0], moved: false };
        }}
        onPointerMove={(e) => {
          const [x, y] = at(e);
          const d = drag.current;
          if (d && (d.moved || Math.abs(x - d.x) >= 4)) {
            d.moved = true;
            tip.value = null;
            strip.pointer = null;
            model.pan(((d.x - x) / strip.plot) * model.span);
            d.x = x;
            return;
          }
          strip.pointer = { x, y };
          point(x, y);
          if (!model.follows) strip.want();
        }}
        onPointerUp={(e) => {
          const d = drag.current;
          drag.current = null;
          if (!d || d.moved) return;
          const spot = strip.spot(...at(e));
          if (!spot) return;
          const p = spot.pass >= 0 ? spot.row.ring.get(spot.pass) : null;
          if (p) model.pin({ key: spot.row.key, time: p.time });
          else model.select(spot.row.key === model.selected ? "" : spot.row.key);
        }}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => {
          if (drag.current) return;
          strip.pointer = null;
          tip.value = null;
          if (!model.follows) strip.want();
        }}
      >
        <canvas ref={canvas} class="pass-draw" aria-hidden="true" />
        {rows.length === 0 && !loading && <p class="calm pass-none">{passes?.enabled === false ? "no stored pass in this window" : "no rank has sent anything yet"}</p>}
        {tip.value && <PassTip tip={tip.value} width={strip.plot + LABEL} height={height} />}
      </div>
      <footer class="panel-f pass-foot">
        <Pinned model={model} chosen={chosen} />
        <span class="sp" />
        <Counts counts={counts.value} rows={rows} live={follows} />
      </footer>
      <p class="vh" aria-live="polite">{chosen ? `${chosen.name} rank ${chosen.rank}, ${chosen.status?.state ?? "unknown"}. ${chosen.status?.reason ?? ""}` : ""}</p>
    </section>
  );
}

/** Rows may take this much of the window's height. */
function roomFor(): number {
  return Math.max(240, Math.round(innerHeight * 0.6));
}

function windowText(from: number, to: number): string {
  const t = today();
  return `${since(from, t) === clock(from) ? clock(from, true) : dayClock(from, t, true)} – ${clock(to, true)} UTC`;
}

function Counts({ counts: n, rows, live }: { counts: WindowCounts | null; rows: StripRow[]; live: boolean }) {
  if (!n) return null;
  const silent = rows.filter((r) => r.status?.state === "stale").length;
  return (
    <span class="pass-counts" data-passes={n.passes} data-gaps={n.gaps} data-restarts={n.restarts} data-ranks={rows.length}>
      {plural(rows.length, "rank")} · {plural(n.passes, "pass", "passes")}
      {n.beats > 0 && ` · ${plural(n.beats, "heartbeat")}`}
      {n.gaps > 0 && <b class="pass-gaps"> · {n.missing > 0 ? `${plural(n.missing, "message")} missing` : "messages missing"} in {plural(n.gaps, "gap")}</b>}
      {n.restarts > 0 && <b class="pass-restarts"> · {plural(n.restarts, "restart")}</b>}
      {live && silent > 0 && <b class="pass-silent"> · {grouped(silent, 0)} silent</b>}
    </span>
  );
}

/** The pass that is pinned, else the row that is chosen, else which keys there are: always one line. */
function Pinned({ model, chosen }: { model: PassModel; chosen: StripRow | undefined }) {
  model.moved.value;
  const pin = model.pinned;
  const row = pin ? model.rowOf(pin.key) : undefined;
  if (pin && row) {
    const i = row.ring.from(pin.time);
    const p = i < row.ring.end && row.ring.timeAt(i) === pin.time ? row.ring.get(i) : null;
    return (
      <span class="pass-pinned">
        <b>{row.name}{rankText(row)}</b> {stamp(pin.time)} · {p ? passWords(p).map(([k, v]) => `${k} ${v}`).join(" · ") : "not in memory any more"}
        <button type="button" class="quiet" title="unpin (Esc)" onClick={() => model.pin(null)}>unpin</button>
      </span>
    );
  }
  if (chosen) return <span><b>{chosen.name}{rankText(chosen)}</b> {chosen.status?.state ?? "unknown"}{chosen.status?.reason ? `: ${chosen.status.reason}` : ""} · <kbd>Enter</kbd> {model.rows.every((r) => r.engine === chosen.engine) ? "all workers" : "this worker alone"}</span>;
  return <span class="mut" id="pass-keys"><kbd>j</kbd> <kbd>k</kbd> rows · <kbd>w</kbd> <kbd>s</kbd> zoom · <kbd>a</kbd> <kbd>d</kbd> pan · <kbd>Space</kbd> pause · <kbd>f</kbd> follow · a click pins a pass</span>;
}

const rankText = (r: { rank: number }): string => ` rank ${r.rank}`;
const stamp = (t: number): string => `${clock(t, true)}.${String(Math.floor(((t % 1000) + 1000) % 1000)).padStart(3, "0")}`;

function PassTip({ tip: { spot, x, y }, width, height }: { tip: { spot: Spot; x: number; y: number }; width: number; height: number }) {
  const { row, pass, time } = spot;
  const p: Pass | null = pass >= 0 ? row.ring.get(pass) : null;
  const right = x > width / 2;
  const place = { ...(y > height / 2 ? { bottom: `${height - y + 14}px`, top: "auto" } : { top: `${y + 14}px` }), ...(right ? { right: `${width - x + 14}px` } : { left: `${x + 14}px` }) };
  const lines: [string, string][] = p ? passWords(p) : x < LABEL ? rowWords(row) : [[between(row, time), ""]];
  return (
    <div class="tip pass-tip" style={place} aria-hidden="true">
      <div class="tip-time">{row.name}{rankText(row)} · {stamp(p ? p.time : time)}</div>
      {lines.map(([k, v]) => <div class="tip-row" key={k}><span class="tip-name">{k}</span>{v && <b>{v}</b>}</div>)}
      {p && <div class="tip-more">{p.flags & HEARTBEAT ? KIND_WORDS[0] : "click pins it"}</div>}
    </div>
  );
}

function rowWords(r: StripRow): [string, string][] {
  const s = r.status;
  if (!s) return [["its state is", "unknown"]];
  const out: [string, string][] = [["state", s.state], ["why", s.reason], ["messages", `${grouped(s.passes, 0)} passes, ${grouped(s.heartbeats, 0)} heartbeats`]];
  if (s.allowance_seconds > 0) out.push(["silence allowed", `${brief(s.allowance_seconds)} s`]);
  return out;
}

/** What lies between two messages. */
function between(r: StripRow, t: number): string {
  const { ring } = r;
  const p = ring.from(t);
  if (ring.end === ring.begin) return "nothing of it is in memory";
  if (p === ring.begin) return "before what this page has loaded";
  const before = ring.timeAt(p - 1);
  if (p === ring.end) return t - before > r.allowance ? "silent: what it does is unknown" : "nothing came yet";
  if (ring.flagsAt(p) & GAP) return "messages are missing here";
  const blank = ring.startAt(p) - before;
  if (blank > r.allowance) return `silent for ${duration(blank)}: what it did is unknown`;
  return ring.flagsAt(p) & HEARTBEAT ? "idle" : `between two passes, ${brief(blank)} ms`;
}

function onWheel(e: WheelEvent, model: PassModel, strip: Strip): void {
  const unit = e.deltaMode === 1 ? 16 : 1;
  const dx = e.deltaX * unit, dy = e.deltaY * unit;
  if (e.ctrlKey || e.metaKey) {
    e.preventDefault();
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const place = (e.clientX - box.left - LABEL) / strip.plot;
    return model.zoom(model.span * Math.exp(Math.max(-1, Math.min(1, dy * 0.002))), Math.max(0, Math.min(1, place)));
  }
  const side = e.shiftKey && dx === 0 ? dy : dx;
  if (side !== 0) {
    e.preventDefault();
    return model.pan((side / strip.plot) * model.span);
  }
  // The page scrolls, unless rows lie beyond.
  if (strip.visible < model.rows.length) {
    const before = strip.top;
    strip.scrollBy(Math.sign(dy) * Math.max(1, Math.round(Math.abs(dy) / strip.rowH)));
    if (strip.top !== before) e.preventDefault();
  }
}

