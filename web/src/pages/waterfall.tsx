// A trace as a waterfall: the tree of its spans at the left, when each was busy at the right. What nobody
// exported has a place of its own, what was folded says how many it stands for, the critical path is a line.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type * as api from "../api/types";
import { grouped } from "../format/number";
import { useKeys } from "../state/keys";
import { change, view } from "../state/view";
import { length } from "../timeline/axis";
import { barOf, lanesOf, matches, movePart, readClosed, readPart, serviceColours, spanToken, shownName, tickText, ticksOf, visibleRows, wholeOf, writeClosed, writePart, zoomPart, type Part, type Row } from "./waterfallrows";

const ROW = 20;
/** what stays above the rows: the minimap and the ruler */
const HEAD = 58;
const secs = (s: number) => length(s * 1e6);

export function Waterfall({ d }: { d: api.TraceDetail }) {
  const v = view.value;
  const box = useRef<HTMLDivElement>(null);
  const ruler = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ top: 0, height: 600, track: 600 });
  const [hover, setHover] = useState<number | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const find = useSignal("");
  const input = useRef<HTMLInputElement>(null);
  const whole = useMemo(() => wholeOf(d), [d]);
  const part = useMemo(() => readPart(v.part, whole), [v.part, whole]);
  const closed = useMemo(() => readClosed(v.closed), [v.closed]);
  const rows = useMemo(() => visibleRows(d.spans, closed), [d, closed]);
  const colours = useMemo(() => serviceColours(d.services), [d]);
  const lanes = useMemo(() => lanesOf(d.spans), [d]);
  const hits = useMemo(() => new Set(find.value ? d.spans.flatMap((s, i) => (matches(s, find.value) ? [i] : [])) : []), [d, find.value]);
  const selected = d.spans.findIndex((s) => s.span_id === v.span && v.span !== "");
  const place = rows.findIndex((r) => r.at === selected);
  const critical = v.by === "critical";

  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => setSize({ top: el.scrollTop, height: el.clientHeight, track: ruler.current?.clientWidth ?? 600 });
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    el.addEventListener("scroll", measure, { passive: true });
    return () => {
      o.disconnect();
      el.removeEventListener("scroll", measure);
    };
  }, []);
  const show = (i: number) => {
    const el = box.current;
    if (!el) return;
    const y = i * ROW;
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y > el.scrollTop + el.clientHeight - HEAD - ROW) el.scrollTop = y - el.clientHeight + HEAD + ROW;
  };
  // A link to a span finds it, also where it was folded away.
  useEffect(() => {
    if (selected >= 0 && place >= 0) show(place);
    else if (selected >= 0) change({ closed: "" }, "replace");
  }, [v.span, d]);

  const setPart = (p: Part) => change({ part: writePart(p, whole) }, "replace");
  const select = (i: number, how: "push" | "replace" = "replace") => {
    const row = rows[Math.min(rows.length - 1, Math.max(0, i))];
    if (!row) return;
    change({ span: row.span.span_id }, how);
    show(rows.indexOf(row));
  };
  const toggle = (at: number, want?: boolean) => {
    const next = new Set(closed);
    if (want ?? !next.has(at)) next.add(at);
    else next.delete(at);
    change({ closed: writeClosed(next) }, "replace");
  };
  const pivot = () => hover ?? (part.from + part.to) / 2;
  const match = (dir: 1 | -1) => {
    const list = [...hits];
    if (list.length === 0) return;
    const next = dir === 1 ? list.find((i) => i > selected) ?? list[0] : list.findLast((i) => i < selected) ?? list.at(-1);
    change({ span: d.spans[next as number]?.span_id ?? "", ...(rows.some((r) => r.at === next) ? {} : { closed: "" }) }, "replace");
  };
  const fit = () => {
    const s = d.spans[selected];
    if (v.part === "" && s && s.duration_seconds > 0) {
      const room = s.duration_seconds * 0.05;
      setPart({ from: Math.max(whole.from, s.start_seconds - room), to: Math.min(whole.to, s.start_seconds + s.duration_seconds + room) });
    } else change({ part: "" }, "replace");
  };
  useKeys({
    "/": () => input.current?.focus(),
    n: () => match(1),
    N: () => match(-1),
    j: () => select(place + 1),
    k: () => select(place < 0 ? rows.length - 1 : place - 1),
    Enter: () => {
      const row = rows[place];
      if (!row || row.below === 0) return false;
      toggle(row.at);
      return true;
    },
    w: () => setPart(zoomPart(part, whole, 0.6, pivot())),
    s: () => setPart(zoomPart(part, whole, 1 / 0.6, pivot())),
    a: () => setPart(movePart(part, whole, -0.2 * (part.to - part.from))),
    d: () => setPart(movePart(part, whole, 0.2 * (part.to - part.from))),
    f: fit,
    c: () => change({ by: critical ? "" : "critical" }, "replace"),
    Escape: () => {
      if (find.value) find.value = "";
      else if (v.part) change({ part: "" }, "replace");
      else if (v.span) change({ span: "" }, "replace");
      else return false; // the page goes back to the search
      return true;
    },
  });

  const timeAt = (e: PointerEvent | MouseEvent) => {
    const b = ruler.current?.getBoundingClientRect();
    if (!b || b.width === 0) return null;
    const k = (e.clientX - b.left) / b.width;
    return k < -0.01 || k > 1.01 ? null : part.from + Math.min(1, Math.max(0, k)) * (part.to - part.from);
  };
  const first = Math.max(0, Math.floor(size.top / ROW) - 10), last = Math.min(rows.length, Math.ceil((size.top + size.height) / ROW) + 10);
  const x = (t: number) => `${((t - part.from) / (part.to - part.from)) * 100}%`;
  const marks = ticksOf(part, size.track);
  return (
    <section class="panel waterfall" aria-label="waterfall">
      <header class="panel-h wf-bar">
        <h2>Spans</h2>
        <span class="u">{grouped(d.spans.length, 0)}{rows.length < d.spans.length && `, ${grouped(rows.length, 0)} shown`}{d.spans_not_shown > 0 && ` · ${grouped(d.spans_not_shown, 0)} more are not loaded`}</span>
        <input ref={input} type="text" class="filter" placeholder="find in spans" aria-label="find in spans" spellcheck={false} autocomplete="off" value={find.value}
          onInput={(e) => (find.value = e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter") match(e.shiftKey ? -1 : 1);
            else if (e.key === "Escape") {
              find.value = "";
              e.currentTarget.blur();
            } else return;
            e.preventDefault();
            e.stopPropagation();
          }} />
        {find.value && <span class="u" role="status">{grouped(hits.size, 0)} match</span>}
        <span class="sp" />
        {v.part !== "" && <span class="u">{secs(part.from)} – {secs(part.to)}</span>}
        <button type="button" class={critical ? "chip on" : "chip"} aria-pressed={critical} title="only what the end waited for; the rest steps back (c)" onClick={() => change({ by: critical ? "" : "critical" }, "replace")}>critical path</button>
        <button type="button" class="chip" title="fold the children of all spans below the second level" onClick={() => change({ closed: closed.size > 0 ? "" : writeClosed(new Set(d.spans.flatMap((s, i) => (s.depth >= 2 && (d.spans[i + 1]?.depth ?? 0) > s.depth ? [i] : [])))) }, "replace")}>{closed.size > 0 ? "unfold all" : "fold"}</button>
        <button type="button" class="chip" title="all of it; again: what is selected (f)" onClick={fit}>fit</button>
      </header>
      <div
        class={drag ? "wf-time dragging" : "wf-time"}
        onPointerMove={(e) => {
          const t = timeAt(e);
          setHover(t);
          if (drag && t !== null) setDrag({ ...drag, to: t });
        }}
        onPointerLeave={() => setHover(null)}
        onPointerDown={(e) => {
          const t = timeAt(e);
          if (t === null || e.button !== 0 || !(e.target as Element).closest(".wf-track, .wf-ruler")) return;
          setDrag({ from: t, to: t });
        }}
        onPointerUp={() => {
          if (drag && Math.abs(drag.to - drag.from) > (part.to - part.from) * 0.01) setPart({ from: Math.min(drag.from, drag.to), to: Math.max(drag.from, drag.to) });
          setDrag(null);
        }}
        onDblClick={() => change({ part: "" }, "replace")}
      >
        <div class="wf-rows scroll" ref={box} role="treegrid" aria-label="spans" aria-rowcount={rows.length} tabIndex={0}>
          <div class="wf-head">
            <span class="mut">service and name</span>
            <Minimap d={d} whole={whole} part={part} colours={colours} onPart={setPart} />
            <span />
            <div class="wf-ruler" ref={ruler}>
              {marks.map((t) => <i key={t} class={t > part.to - (part.to - part.from) * 0.06 ? "last" : ""} style={{ left: x(t) }}>{tickText(t, part)}</i>)}
              {hover !== null && <b style={{ left: x(hover) }}>{secs(hover)}</b>}
            </div>
          </div>
          <div class="wf-space" style={{ height: `${rows.length * ROW}px` }}>
            <div class="wf-grid" aria-hidden="true">
              {marks.map((t) => <i key={t} style={{ left: x(t) }} />)}
              {hover !== null && <i class="wf-cursor" style={{ left: x(hover) }} />}
              {drag && <i class="brush" style={{ left: x(Math.min(drag.from, drag.to)), right: `calc(100% - ${x(Math.max(drag.from, drag.to))})`, top: "0", bottom: "0" }} />}
            </div>
            {rows.slice(first, last).map((r, i) => (
              <SpanRow key={r.at} row={r} lane={lanes[r.at] ?? ""} top={(first + i) * ROW} part={part} token={spanToken(r.span, colours)} stripe={colours.get(r.span.service) ?? "--s7"} selected={r.at === selected} hit={hits.has(r.at)}
                faint={critical && !r.span.critical} parent={d.spans[r.span.parent]} onSelect={() => select(first + i, "push")} onToggle={(want) => toggle(r.at, want)} />
            ))}
          </div>
        </div>
      </div>
      <footer class="panel-f">
        <span class="leg">
          {d.services.map((s) => <span key={s}><i class="sw-box" style={{ "--c": `var(${colours.get(s) ?? "--s7"})` }} />{s}</span>)}
          <span><i class="wf-key-critical" />critical path</span>
          {d.spans.some((s) => s.missing) && <span><i class="wf-key-missing" />named as a parent, never exported</span>}
        </span>
        <span class="sp" />
        <span class="mut">drag zooms · <kbd>j</kbd> <kbd>k</kbd> rows · <kbd>Enter</kbd> fold · <kbd>w</kbd> <kbd>s</kbd> <kbd>a</kbd> <kbd>d</kbd> <kbd>f</kbd></span>
      </footer>
    </section>
  );
}

interface SpanRowProps {
  row: Row;
  /** "P" and "D" of the halves of a PD pair, "" of others */
  lane: string;
  top: number;
  part: Part;
  token: string;
  stripe: string;
  selected: boolean;
  hit: boolean;
  faint: boolean;
  parent: api.TraceSpan | undefined;
  onSelect: () => void;
  onToggle: (want?: boolean) => void;
}

function SpanRow({ row: { span: s, below, closed }, lane, top, part, token, stripe, selected, hit, faint, parent, onSelect, onToggle }: SpanRowProps) {
  const bar = barOf(s, part);
  const moved = !parent || parent.service !== s.service;
  const right = bar.left + bar.width;
  const label = s.missing ? "not exported" : secs(s.duration_seconds);
  const name = shownName(s);
  const words = [
    `${s.service || "unknown service"} ${s.name.trim() || name}`, label, s.status === "error" ? `error${s.message ? `: ${s.message}` : ""}` : "", s.folded ? `stands for ${grouped(s.folded.count, 0)} spans, ${secs(s.folded.sum_seconds)} in all` : "",
    s.critical ? "on the critical path" : "", s.attributes_dropped > 0 ? `${s.attributes_dropped} attributes dropped by the sender` : "", ...s.flags.map((f) => f.replace(/_/g, " ")),
  ].filter(Boolean).join(", ");
  return (
    <div class={`wf-row${selected ? " sel" : ""}${hit ? " hit" : ""}${faint ? " faint" : ""}${s.missing ? " missing" : ""}`} role="row" aria-level={s.depth + 1} aria-selected={selected} aria-expanded={below > 0 ? !closed : undefined} aria-label={words} title={words} data-span={s.span_id}
      style={{ top: `${top}px` }} onClick={onSelect}>
      <div class="wf-name" role="gridcell" style={{ paddingLeft: `${6 + Math.min(s.depth, 24) * 12}px` }}>
        <i class="wf-stripe" style={{ background: `var(${stripe})` }} />
        {below > 0 ? (
          <button type="button" class="wf-fold" tabIndex={-1} aria-label={closed ? "unfold" : "fold"} onClick={(e) => {
            e.stopPropagation();
            onToggle();
          }}>{closed ? "▸" : "▾"}</button>
        ) : <span class="wf-fold" />}
        {moved && s.service && <span class="wf-service">{s.service}</span>}
        {lane && <b class="wf-lane">{lane}</b>}
        <span class={s.status === "error" ? "wf-text bad" : "wf-text"}>{name}</span>
        {s.folded && <span class="wf-count">×{grouped(s.folded.count, 0)}</span>}
        {closed && <span class="mut"> +{grouped(below, 0)}</span>}
        {s.links.length > 0 && <span class="mut" title={`${s.links.length} links to other spans`}> ⤳</span>}
        {s.attributes_dropped > 0 && <span class="mut" title={`${s.attributes_dropped} attributes dropped by the sender`}> −{s.attributes_dropped}</span>}
      </div>
      <div class="wf-track" role="gridcell">
        {bar.inside && (
          <i class={`wf-span${s.status === "error" ? " failed" : ""}${s.folded ? " folded" : ""}${bar.cutLeft ? " cut-l" : ""}${bar.cutRight ? " cut-r" : ""}`} style={{ "--c": `var(${token})`, left: `${bar.left * 100}%`, width: `${bar.width * 100}%` }} />
        )}
        {bar.inside && s.critical && <i class="wf-critical" style={{ left: `${bar.left * 100}%`, width: `${bar.width * 100}%` }} />}
        {s.events.slice(0, 200).map((e, i) => {
          const at = (e.at_seconds - part.from) / (part.to - part.from);
          return at >= 0 && at <= 1 ? <i key={i} class="wf-event" style={{ left: `${at * 100}%` }} title={`${e.name} at ${secs(e.at_seconds)}`} /> : null;
        })}
        <span class={right >= 0.88 && bar.left <= 0.12 ? "wf-label in" : "wf-label"} style={right < 0.88 ? { left: `calc(${right * 100}% + 5px)` } : bar.left > 0.12 ? { right: `calc(${(1 - bar.left) * 100}% + 5px)` } : { right: `${(1 - right) * 100}%` }}>{label}</span>
      </div>
    </div>
  );
}

/** All spans at once, a line each as far as they fit, and the box of what is looked at; drag moves it. */
function Minimap({ d, whole, part, colours, onPart }: { d: api.TraceDetail; whole: Part; part: Part; colours: Map<string, string>; onPart: (p: Part) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const el = canvas.current?.parentElement;
    if (!el) return;
    const o = new ResizeObserver(() => setWidth(el.clientWidth));
    o.observe(el);
    setWidth(el.clientWidth);
    return () => o.disconnect();
  }, []);
  useEffect(() => {
    const el = canvas.current;
    const c = el?.getContext("2d");
    if (!el || !c || width === 0) return;
    const ratio = devicePixelRatio || 1, height = 34;
    el.width = Math.round(width * ratio);
    el.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const style = getComputedStyle(el);
    const ink = new Map<string, string>();
    const lines = d.spans.length;
    const h = Math.max(1, Math.min(3, height / Math.max(1, lines)));
    d.spans.forEach((s, i) => {
      const token = spanToken(s, colours);
      let color = ink.get(token);
      if (color === undefined) ink.set(token, (color = style.getPropertyValue(token).trim()));
      c.fillStyle = color || "gray";
      const b = barOf(s, whole);
      c.fillRect(b.left * width, Math.floor((i / lines) * (height - h)), Math.max(1, b.width * width), h);
    });
  }, [d, width, whole, view.value.theme, document.documentElement.dataset["theme"]]);
  const share = (t: number) => ((t - whole.from) / (whole.to - whole.from)) * 100;
  const go = (e: PointerEvent) => {
    const b = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const at = whole.from + ((e.clientX - b.left) / b.width) * (whole.to - whole.from);
    onPart(movePart(part, whole, at - (part.from + part.to) / 2));
  };
  return (
    <div class="wf-mini" aria-hidden="true" onPointerDown={(e) => {
      e.currentTarget.setPointerCapture(e.pointerId);
      go(e);
    }} onPointerMove={(e) => e.buttons === 1 && go(e)}>
      <canvas ref={canvas} />
      <i style={{ left: `${share(part.from)}%`, width: `${share(part.to) - share(part.from)}%` }} />
    </div>
  );
}
