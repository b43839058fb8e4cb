// The canvas of one dump and what the pointer does on it: pan, zoom, select, measure, the minimap's box,
// and the tooltip. The canvas has the focus of the keyboard and is read out by the live region.
import { useLayoutEffect, useRef } from "preact/hooks";
import { grouped } from "../format/number";
import { statesText } from "./stats";
import { Axis } from "./axis";
import type { Hit } from "./pane";
import { LABEL, type Pane } from "./pane";
import type { Model } from "./model";
import { miniBox } from "./paint";
import { Tooltip } from "./tooltip";
import { ofTrace, rowNoun } from "./words";

type Drag =
  | { kind: "pan"; x: number; y: number; moved: boolean; hit: Hit }
  | { kind: "range"; from: number }
  | { kind: "mini"; edge: "move" | "left" | "right"; dx: number; dy: number }
  | { kind: "ruler"; x: number };

export function PaneCanvas({ model, pane }: { model: Model; pane: Pane }) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<Drag | null>(null);
  const i = pane.index;

  // Before the browser draws, so that its first frame has the picture.
  useLayoutEffect(() => {
    const el = host.current;
    if (!el) return;
    model.attach(i, canvas.current);
    const size = () => model.resize(i, el.clientWidth, el.clientHeight);
    size();
    const seen = new ResizeObserver(size);
    seen.observe(el);
    const wheel = (e: WheelEvent) => onWheel(e, model, pane, el);
    el.addEventListener("wheel", wheel, { passive: false });
    return () => {
      seen.disconnect();
      el.removeEventListener("wheel", wheel);
      model.attach(i, null);
    };
  }, [model, pane]);

  const at = (e: { clientX: number; clientY: number }): [number, number] => {
    const b = (host.current as HTMLElement).getBoundingClientRect();
    return [e.clientX - b.left, e.clientY - b.top];
  };
  const hitAt = (x: number, y: number): Hit | null => {
    const set = model.paintFor(pane);
    return set ? pane.hit(model.now, x, y, set.colours, set.paint) : null;
  };
  const timeAt = (x: number) => pane.axis(model.now).t(x - LABEL) - pane.origin;

  const down = (e: PointerEvent) => {
    if (e.button !== 0 || (e.target instanceof Element && e.target.closest(".tl-nothing"))) return;
    model.active.value = i;
    const [x, y] = at(e);
    const hit = hitAt(x, y);
    if (!hit) return;
    (e.currentTarget as HTMLElement).setPointerCapture(e.pointerId);
    model.hover.value = null;
    if (hit.where === "minimap") {
      if (x < LABEL) return;
      const box = miniBox(pane, model.now, pane.axis(model.now));
      const narrow = box.w < pane.plot - 4;
      const edge = narrow && Math.abs(x - box.x) <= 5 ? "left" : narrow && Math.abs(x - box.x - box.w) <= 5 ? "right" : "move";
      const inside = x >= box.x && x <= box.x + box.w && y >= box.y - 2 && y <= box.y + box.h + 2;
      drag.current = { kind: "mini", edge, dx: inside ? x - box.x : box.w / 2, dy: inside ? y - box.y : box.h / 2 };
      // A press beside an edge must not move the box.
      if (edge === "move") moveMini(x, y, drag.current);
      return;
    }
    if (model.measuring.value || e.shiftKey) {
      const t = timeAt(Math.max(LABEL, x));
      drag.current = { kind: "range", from: t };
      model.set({ from: t, to: t });
      return;
    }
    if (hit.where === "ruler") {
      drag.current = { kind: "ruler", x };
      model.set({ cursor: timeAt(Math.max(LABEL, x)) });
      return;
    }
    drag.current = { kind: "pan", x, y, moved: false, hit };
  };

  const moveMini = (x: number, y: number, d: Drag & { kind: "mini" }) => {
    const v = model.now;
    const axis = pane.axis(v);
    const box = miniBox(pane, v, axis);
    const [wa, wb] = pane.whole();
    const whole = new Axis(wa + pane.origin, wb + pane.origin, Math.floor(pane.plot), pane.gaps(v));
    const tx = (px: number) => whole.t(Math.max(0, Math.min(pane.plot, px - LABEL))) - pane.origin;
    const [a, b] = pane.window(v);
    if (d.edge === "left") model.showTimes(Math.min(tx(x), b - 1), b);
    else if (d.edge === "right") model.showTimes(a, Math.max(tx(x), a + 1));
    else {
      if (v.t0 !== null) {
        const left = Math.max(LABEL, Math.min(LABEL + pane.plot - box.w, x - d.dx));
        model.showTimes(tx(left), tx(left + box.w));
      }
      const mh = pane.miniH - 8;
      model.scrollTo(pane, ((y - 4 - d.dy) / mh) * pane.layout.height);
    }
  };

  const move = (e: PointerEvent) => {
    const [x, y] = at(e);
    const d = drag.current;
    if (!d) {
      const hit = hitAt(x, y);
      if (!hit) return;
      model.hover.value = { pane: i, hit, x, y };
      const el = host.current as HTMLElement;
      const v = model.now;
      let cursor = hit.where === "label" ? "pointer" : model.measuring.value ? "crosshair" : hit.where === "ruler" ? "col-resize" : "default";
      if (hit.where === "minimap" && x >= LABEL) {
        const box = miniBox(pane, v, pane.axis(v));
        cursor = box.w < pane.plot - 4 && (Math.abs(x - box.x) <= 5 || Math.abs(x - box.x - box.w) <= 5) ? "ew-resize" : "grab";
      } else if (hit.item >= 0) cursor = "pointer";
      el.style.cursor = cursor;
      model.point(pane);
      return;
    }
    if (d.kind === "mini") return moveMini(x, y, d);
    if (d.kind === "range") return model.set({ from: d.from, to: timeAt(Math.max(LABEL, Math.min(LABEL + pane.plot, x))) });
    if (d.kind === "ruler") return model.set({ cursor: timeAt(Math.max(LABEL, Math.min(LABEL + pane.plot, x))) });
    if (!d.moved && Math.hypot(x - d.x, y - d.y) < 4) return;
    if (!d.moved) (host.current as HTMLElement).style.cursor = "grabbing";
    d.moved = true;
    if (x !== d.x) model.pan(d.x - x);
    if (y !== d.y) model.scrollBy(d.y - y);
    d.x = x;
    d.y = y;
  };

  const up = (e: PointerEvent) => {
    const d = drag.current;
    drag.current = null;
    (host.current as HTMLElement).style.cursor = "default";
    if (!d) return;
    if (d.kind === "range") {
      const { from, to } = model.now;
      // A press without a drag chooses nothing.
      if (from !== null && to !== null && Math.abs(pane.axis(model.now).x(from) - pane.axis(model.now).x(to)) < 2) model.set({ from: null, to: null });
      else {
        model.set({ tab: "range" });
        model.say(`range of ${durationOf(from, to)} selected`);
      }
      return;
    }
    if (d.kind !== "pan" || d.moved) return;
    // A click, not a drag.
    const { hit } = d;
    if (hit.row < 0) {
      if (hit.where === "plot") model.set({ cursor: hit.t - pane.origin });
      return;
    }
    if (hit.where === "label") return model.toggleRow(pane, hit.row);
    model.set({ cursor: hit.t - pane.origin });
    model.select(pane, hit.row, hit.item);
    void e;
  };

  const info = pane.info.value;
  const v = model.view.value;
  void model.rests.value; // the places below move without the view
  const hover = model.hover.value;
  const [first, last] = pane.visible();
  const states = pane.states.value;
  const label = `timeline of ${pane.source.head.dump.name}: ${info.ready ? `${grouped(info.shown, 0)} of ${grouped(pane.source.rows.n, 0)} rows` : "loading"}`;
  return (
    <div class={`tl-pane${model.active.value === i && model.panes.length > 1 ? " tl-active" : ""}`}>
      {model.panes.length > 1 && <div class="tl-pane-name" title={pane.source.head.dump.name}><span>{pane.source.head.dump.name}</span></div>}
      <div
        ref={host} class="tl-canvas" tabIndex={0} role="application" aria-label={label} aria-roledescription="timeline" aria-describedby="tl-keys" data-pane={i}
        data-rows={info.shown} data-first={first} data-last={last}
        onFocus={() => (model.active.value = i)} onPointerDown={down} onPointerMove={move} onPointerUp={up}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={() => {
          if (drag.current) return;
          model.hover.value = null;
          model.stateCounts();
        }}
        onDblClick={(e) => {
          const [x, y] = at(e);
          const hit = hitAt(x, y);
          if (hit && hit.where === "plot" && hit.row >= 0) {
            model.select(pane, hit.row, hit.item);
            model.fitSelection();
          }
        }}
      >
        <canvas ref={canvas} class="tl-draw" aria-hidden="true" />
        {hover && hover.pane === i && (hover.hit.where === "plot" || hover.hit.where === "ruler") && <div class="tl-hair" style={{ transform: `translateX(${Math.round(hover.x)}px)` }} />}
        {hover && hover.pane === i && (hover.hit.where === "plot" || hover.hit.where === "label") && hover.hit.row >= 0 && <Tooltip model={model} pane={pane} hover={hover} />}
        {info.loading && <div class="loading tl-loading" role="progressbar" aria-label="loading" />}
        {info.shown === 0 && info.ready && !info.loading && <Nothing model={model} pane={pane} />}
      </div>
      <div class="tl-foot">
        <span class="tl-rows">{!info.ready ? <span class="tl-late">loading rows…</span> : info.shown === 0 ? "no rows" : `rows ${grouped(first + 1, 0)}–${grouped(Math.min(last, info.shown), 0)} of ${grouped(info.shown, 0)}`}</span>
        <span class="tl-states" data-role="states">{states ? `${v.cursor !== null ? "at the cursor" : "here"}: ${statesText(states, (n) => grouped(n, 0)) || "nothing"}` : "click sets the cursor: how many rows are doing what"}</span>
        <span class="sp" />
        <span class="tl-keylist" aria-hidden="true">
          <span>min:s from the step's start</span>
          {!ofTrace(pane.source) && <span><i class="k-wait" /> waiting for the step</span>}
          <span><i class="k-open" /> open span</span>
          <span class="bad"><i class="k-orphan" /> end without start</span>
          <span class="bad"><i class="k-abort" /> aborted</span>
          <span class="tl-tailkey"><i class="k-tail" /> longest tail</span>
        </span>
        {info.trouble && <span class="bad" role="alert">{info.trouble}</span>}
      </div>
    </div>
  );
}

function durationOf(a: number | null, b: number | null): string {
  return a === null || b === null ? "nothing" : `${(Math.abs(b - a) / 1e6).toFixed(3)} s`;
}

/** Nothing to draw: why, and what to do. */
function Nothing({ model, pane }: { model: Model; pane: Pane }) {
  const { head, rows } = pane.source;
  const v = model.view.value;
  return (
    <div class="tl-nothing empty">
      {rows.n === 0 ? (
        <p>{head.dump.name} has no {rowNoun(pane.source)}s.</p>
      ) : (
        <>
          <p>None of the {grouped(rows.n, 0)} {rowNoun(pane.source)}s {v.filter ? "matches" : "is shown"}.</p>
          <button type="button" class="btn" onClick={() => model.set({ filter: "", attempt: -1 })}>Show all</button>
        </>
      )}
    </div>
  );
}

function onWheel(e: WheelEvent, model: Model, pane: Pane, el: HTMLElement): void {
  e.preventDefault();
  model.active.value = pane.index;
  const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? pane.body : 1;
  const dx = e.deltaX * unit, dy = e.deltaY * unit;
  if (e.ctrlKey || e.metaKey) {
    const x = e.clientX - el.getBoundingClientRect().left - LABEL;
    return model.zoom(Math.exp(Math.max(-1, Math.min(1, dy * 0.002))), Math.max(0, Math.min(1, x / pane.plot)));
  }
  if (e.altKey) return model.rowHeight(Math.max(2, Math.round((model.now.rowH || pane.rowH(model.now)) - Math.sign(dy))));
  if (e.shiftKey && dx === 0) return model.pan(dy);
  if (dx !== 0) model.pan(dx);
  if (dy !== 0) model.scrollBy(dy);
}
