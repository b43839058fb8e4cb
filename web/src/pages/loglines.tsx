// The lines themselves: newest on top, only those in sight in the document, one unfolded; what is read stays
// where it is while new lines come in above.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type * as api from "../api/types";
import { Copy, short } from "../components/copy";
import { StateIcon } from "../components/icons";
import { EngineLink, Link } from "../components/link";
import { startText } from "../components/requesttable";
import { grouped } from "../format/number";
import { parseApiTime } from "../format/time";
import { engineList } from "../state/fleet";
import { filterOf } from "../state/filter";
import { useKeys } from "../state/keys";
import { fixed } from "../state/route";
import { change, open as go, view } from "../state/view";
import { visible } from "../timeline/words";
import { levelOf, lineColour, markWords, ROW, seen, shownLine, topOf } from "./loglist";

export interface LogLinesProps {
  records: api.LogRecord[];
  /** there may be older ones */
  more: boolean;
  loading: boolean;
  onOlder: () => void;
  /** whether the reader is at the top, where new lines come in */
  onTop: (top: boolean) => void;
}

export const engineNamed = (name: string): api.Engine | undefined => (name ? engineList.value?.find((e) => e.instance === name || e.name === name || e.id === name) : undefined);

/** The request that a line names, as the list of requests finds it. */
export const requestOf = (r: api.LogRecord) => ({ filter: r.rid ? filterOf({ rid: r.rid }) : filterOf({ trace: r.trace_id }), id: "first", range: fixed(parseApiTime(r.time) - 900_000, parseApiTime(r.time) + 900_000) });

export function LogLines(p: LogLinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const unfolded = useRef<HTMLDivElement>(null);
  const [pos, setPos] = useState({ top: 0, height: 600 });
  const [extra, setExtra] = useState(0);
  const [cursor, setCursor] = useState("");
  const id = view.value.id;
  const openAt = id ? p.records.findIndex((r) => r.id === id) : -1;
  const anchor = useRef<{ id: string; offset: number }>({ id: "", offset: 0 });
  const at = p.records.findIndex((r) => r.id === cursor);

  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => {
      setPos({ top: el.scrollTop, height: el.clientHeight });
      p.onTop(el.scrollTop < ROW);
    };
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    el.addEventListener("scroll", measure, { passive: true });
    return () => {
      o.disconnect();
      el.removeEventListener("scroll", measure);
    };
  }, []);
  useLayoutEffect(() => {
    const el = unfolded.current;
    if (!el) {
      setExtra(0);
      return;
    }
    const o = new ResizeObserver(() => setExtra(el.offsetHeight));
    o.observe(el);
    setExtra(el.offsetHeight);
    return () => o.disconnect();
  }, [openAt >= 0 ? id : ""]);
  // The line at the top of what is seen stays there, unless the reader is at the very top.
  useLayoutEffect(() => {
    const el = box.current;
    const a = anchor.current;
    if (!el || !a.id || el.scrollTop < ROW) return;
    const now = p.records.findIndex((r) => r.id === a.id);
    if (now >= 0) {
      const want = topOf(now, openAt, extra) + a.offset;
      if (Math.abs(want - el.scrollTop) > 1) el.scrollTop = want;
    }
  }, [p.records]);
  const [first, last] = seen(pos.top, pos.height, p.records.length, openAt, extra);
  useEffect(() => {
    const i = Math.min(p.records.length - 1, Math.max(0, Math.floor(pos.top / ROW)));
    for (let k = i; k >= 0; k--) {
      const top = topOf(k, openAt, extra);
      if (top > pos.top && k > 0) continue;
      anchor.current = { id: p.records[k]?.id ?? "", offset: pos.top - top };
      break;
    }
    if (last >= p.records.length && p.records.length > 0 && p.more && !p.loading && pos.top > 0) p.onOlder();
  }, [pos.top, last, p.records]);

  const show = (i: number) => {
    const el = box.current;
    const r = p.records[Math.min(p.records.length - 1, Math.max(0, i))];
    if (!el || !r) return;
    setCursor(r.id);
    const y = topOf(Math.max(0, i), openAt, extra);
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y > el.scrollTop + el.clientHeight - ROW * 2) el.scrollTop = y - el.clientHeight + ROW * 2;
    requestAnimationFrame(() => el.querySelector<HTMLElement>(`[data-line="${CSS.escape(r.id)}"]`)?.focus({ preventScroll: true }));
  };
  const toggle = (r: api.LogRecord) => change({ id: r.id === id ? "" : r.id }, "replace");
  const current = () => p.records[at] ?? p.records[openAt];
  useKeys({
    j: () => show(at + 1),
    k: () => show(at < 0 ? 0 : at - 1),
    Enter: () => {
      const r = p.records[at];
      if (!r) return false;
      toggle(r);
      return true;
    },
    r: () => {
      const r = current();
      if (!r || (!r.rid && !r.trace_id)) return false;
      go("requests", requestOf(r));
      return true;
    },
    t: () => {
      const r = current();
      if (!r?.trace_id) return false;
      go("traces", { id: r.trace_id, span: r.span_id });
      return true;
    },
    e: () => {
      const e = engineNamed(current()?.engine ?? "");
      if (!e) return false;
      go("engines", { engine: e.id });
      return true;
    },
    Escape: () => {
      if (!id) return false;
      change({ id: "" }, "replace");
      return true;
    },
  });
  // Most engines stamp whole seconds: thousandths would be made up.
  const whole = useMemo(() => p.records.every((r) => !r.time.includes(".")), [p.records]);
  const height = p.records.length * ROW + (openAt >= 0 ? extra : 0);
  return (
    <div class="log-lines scroll" ref={box} role="list" aria-label="log lines" tabIndex={0}>
      <div class="log-space" style={{ height: `${height}px` }}>
        {p.records.slice(first, last).map((r, k) => {
          const i = first + k;
          return (
            <div key={r.id} style={{ top: `${topOf(i, openAt, extra)}px` }} class={r.id === id ? "log-item open" : "log-item"} role="listitem">
              <Line r={r} whole={whole} focus={r.id === cursor} open={r.id === id} onToggle={() => {
                setCursor(r.id);
                toggle(r);
              }} />
              {r.id === id && <div ref={unfolded} class="log-open"><Unfolded r={r} /></div>}
            </div>
          );
        })}
      </div>
      {p.loading && p.records.length > 0 && pos.top > 0 && <p class="calm">reading older lines…</p>}
      {!p.more && p.records.length > 0 && <p class="calm log-end">no older line in this range</p>}
    </div>
  );
}

function Line({ r, whole, focus, open, onToggle }: { r: api.LogRecord; whole: boolean; focus: boolean; open: boolean; onToggle: () => void }) {
  const { text, facts } = useMemo(() => shownLine(r.line), [r.line]);
  const lines = text.split("\n");
  const level = levelOf(r.level);
  return (
    <div class={`log-row${level ? ` log-${level}` : ""}${open ? " sel" : ""}`} data-line={r.id} tabIndex={focus ? 0 : -1} aria-expanded={open} role="button"
      onClick={() => {
        if (!getSelection()?.toString()) onToggle();
      }}>
      <span class="log-time">{whole ? startText(parseApiTime(r.time)).replace(/\.000$/, "") : startText(parseApiTime(r.time))}{r.marks.some((m) => m.startsWith("time")) && <span class="mut" title={r.marks.map(markWords).join("; ")}>~</span>}</span>
      <span class="log-level">{level ? <StateIcon level={level} /> : null}{r.level.toLowerCase().replace("warning", "warn").slice(0, 5)}</span>
      <span class="log-class" title={r.class ? `class: ${r.class}` : "no class"}>{r.class && <><i class="sw" style={{ "--c": `var(${lineColour("class", r.class, 0)})` }} />{r.class}</>}</span>
      <span class="log-engine" title={r.engine || r.source}>{engineNamed(r.engine)?.name ?? (r.engine || r.service)}</span>
      <span class="log-text mono">{visible(lines[0] ?? "")}{lines.length > 1 && <span class="mut"> ⏎ {lines.length - 1} more</span>}{facts && <span class="mut"> {visible(facts)}</span>}</span>
      {r.repeat > 1 && <span class="log-repeat" title="Ray folded equal lines: the values of the others are unknown">×{grouped(r.repeat, 0)}</span>}
      {(r.rid || r.trace_id) && <span class="log-ways">{r.rid && <Link to="requests" patch={requestOf(r)} title={`the request ${r.rid} (r)`}>request</Link>}{r.trace_id && <Link to="traces" patch={{ id: r.trace_id, span: r.span_id }} title="its trace (t)">trace</Link>}</span>}
    </div>
  );
}

function Unfolded({ r }: { r: api.LogRecord }) {
  const t = parseApiTime(r.time);
  const engine = engineNamed(r.engine);
  const facts: [string, ComponentChildren][] = [
    ["time", `${r.time.replace("T", " ").replace("Z", "")} UTC`], ["engine", r.engine ? (engine ? <EngineLink id={engine.id} name={engine.name} /> : r.engine) : <span class="mut">unknown</span>],
    ["service", r.service || <span class="mut">unknown</span>], ["source", r.source || <span class="mut">unknown</span>], ["read by", r.format || <span class="mut">no grammar: only the line is kept</span>],
  ];
  if (r.rid) facts.push(["rid", <span class="mono" key="r">{r.rid}<Copy text={r.rid} label="the rid" /></span>]);
  if (r.trace_id) facts.push(["trace", <span class="mono" key="t">{r.trace_id}<Copy text={r.trace_id} label="the trace id" /></span>]);
  const fields = Object.entries(r.fields);
  return (
    <>
      <pre class="log-raw">{visible(r.line)}</pre>
      <div class="log-facts">
        <dl class="tl-long">{facts.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
        {fields.length > 0 && <dl class="log-fields">{fields.map(([k, v]) => <div key={k}><dt>{k}</dt><dd class="mono">{visible(v)}</dd></div>)}</dl>}
      </div>
      {r.repeat > 1 && <p class="sec flag"><StateIcon level="unknown" />Stands for {grouped(r.repeat, 0)} lines that Ray folded: values of the others unknown.</p>}
      {r.marks.map((m) => <p key={m} class="sec flag"><StateIcon level="warn" />{markWords(m)}</p>)}
      <div class="ways">
        {(r.rid || r.trace_id) && <Link to="requests" patch={requestOf(r)} class="btn">Its request <kbd>r</kbd></Link>}
        {r.trace_id && <Link to="traces" patch={{ id: r.trace_id, span: r.span_id }} class="btn">Trace {short(r.trace_id, 10)} <kbd>t</kbd></Link>}
        {engine && <Link to="engines" patch={{ engine: engine.id, range: fixed(t - 600_000, t + 600_000) }} class="btn">Engine then <kbd>e</kbd></Link>}
        <Link patch={{ filter: "", lineClass: "", level: "", service: "", engine: r.engine, range: fixed(t - 30_000, t + 30_000) }} class="btn" title={r.engine ? "all lines of this engine, half a minute before and after" : "all lines, half a minute before and after"}>Lines around it</Link>
        {r.class && <Link patch={{ lineClass: r.class, id: "" }} class="btn">Only {r.class}</Link>}
        <Copy text={r.line} label="the line" />
      </div>
    </>
  );
}
