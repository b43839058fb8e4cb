// The controls above the picture: search, order, colours, what is shown, how high rows are, exports.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Popover } from "../components/popover";
import { grouped } from "../format/number";
import { COLOUR_BY, type ColourBy } from "./colours";
import { SORTS, type Sort } from "./query";
import type { Model } from "./model";
import { ROW_MAX, ROW_MIN, type View } from "./view";
import { length } from "./axis";
import { ofTrace, valueText } from "./words";

const SORT_WORDS: Record<Sort, string> = {
  start: "start", end: "end", dur: "duration", reward: "reward", lanes: "lanes", open: "open spans", group: "group", sample: "sample", status: "status",
  tokens: "response tokens", queue: "queue time", e2e: "request latency", prefill: "prefill time", decode: "decode time", row: "dump order",
};

export function Toolbar({ model, searchRef }: { model: Model; searchRef: preact.RefObject<HTMLInputElement | null> }) {
  const v = model.view.value;
  const attempts = [...new Set(model.panes.flatMap((p) => p.attempts.value))].sort((a, b) => a - b);
  const dense = model.pane.dense(v);
  const trace = ofTrace(model.pane.source);
  const press = (key: keyof View, label: string, title: string) => (
    <button type="button" class={`btn${v[key] === true ? " on" : ""}`} aria-pressed={v[key] === true} title={title} onClick={() => model.set({ [key]: v[key] !== true })}>{label}</button>
  );
  return (
    <div class="tl-bar" role="toolbar" aria-label="timeline controls">
      <Search model={model} input={searchRef} />
      {!trace && <label class="tl-pick">
        <span class="vh">sort by</span>
        <select value={v.sort} title="sort rows by" data-control="sort" onChange={(e) => model.set({ sort: e.currentTarget.value as Sort })}>
          {SORTS.map((s) => <option key={s} value={s}>Sort: {SORT_WORDS[s]}</option>)}
        </select>
      </label>}
      {!trace && <button type="button" class={`btn icon${v.desc ? " on" : ""}`} aria-pressed={v.desc} aria-label="descending" title={v.desc ? "largest first" : "smallest first"} onClick={() => model.set({ desc: !v.desc })}>{v.desc ? "↓" : "↑"}</button>}
      {!trace && press("group", "Group", "rows of one prompt group together")}
      <label class="tl-pick">
        <span class="vh">colour by</span>
        <select value={v.colour} title="colour by" data-control="colour" onChange={(e) => model.set({ colour: e.currentTarget.value as ColourBy, lit: [], hidden: [] })}>
          {COLOUR_BY.map((c) => <option key={c} value={c}>Colour: {c}</option>)}
        </select>
      </label>
      {!trace && <label class="tl-pick">
        <span class="vh">attempt</span>
        <select value={String(v.attempt)} title="attempt" data-control="attempt" onChange={(e) => model.set({ attempt: Number(e.currentTarget.value) })}>
          <option value="-1">All attempts</option>
          {attempts.map((a) => <option key={a} value={String(a)}>Attempt {a}</option>)}
          {v.attempt >= 0 && !attempts.includes(v.attempt) && <option value={String(v.attempt)}>Attempt {v.attempt} (none)</option>}
        </select>
      </label>}
      {v.attempt >= 0 && (
        <span class="choice" role="group" aria-label="attempt mode">
          <button type="button" class={v.only ? "on" : ""} aria-pressed={v.only} title="hide everything else" onClick={() => model.set({ only: true })}>filter</button>
          <button type="button" class={v.only ? "" : "on"} aria-pressed={!v.only} title="everything else steps back" onClick={() => model.set({ only: false })}>highlight</button>
        </span>
      )}
      <button type="button" class={`btn${v.expanded ? " on" : ""}`} aria-pressed={v.expanded} title="every row with its lanes; Enter opens one" data-control="expanded"
        onClick={() => {
          if (!v.expanded && dense) model.rowHeight(11);
          model.set({ expanded: !model.view.value.expanded, panes: model.view.value.panes.map((p) => ({ ...p, open: [] })) });
        }}>{v.expanded ? "Collapse all" : "Expand all"}</button>
      <Show model={model} />
      <Exports model={model} />
      <label class="tl-height" title="height of a row; Alt + wheel">
        <span class="vh">row height</span>
        <input type="range" min={ROW_MIN} max={ROW_MAX} step={1} value={v.rowH || ROW_MIN} data-control="height" aria-valuetext={v.rowH === 0 ? "all rows in the window" : `${v.rowH} px`} onInput={(e) => model.rowHeight(Number(e.currentTarget.value))} />
        <span class="tl-px">{v.rowH === 0 ? "all" : `${v.rowH} px`}</span>
      </label>
      <button type="button" class={`btn${v.rowH === 0 ? " on" : ""}`} aria-pressed={v.rowH === 0} title="all rows at once (o)" onClick={() => model.rowHeight(v.rowH === 0 ? 11 : 0)}>All rows</button>
      {!trace && <button type="button" class={`btn${v.tail ? " on" : ""}`} aria-pressed={v.tail} title="marks the samples that held the step, and goes to them" onClick={() => model.toggleTail()}>Longest tail</button>}
      {press("critical", "Critical path", `what the ${trace ? "end of the trace" : "step"} waited for: a line through it, the rest steps back`)}
      {press("gaps", "Squeeze gaps", "idle gaps between the parts of a partial rollout are drawn as a break")}
      <button type="button" class="btn" title="all of it; again: what is selected" onClick={() => model.fit()}>Fit <kbd>f</kbd></button>
      <button type="button" class={`btn${model.measuring.value ? " on" : ""}`} aria-pressed={model.measuring.value} title="the time between two points (Shift + drag does it too)" onClick={() => model.measure()}>Measure <kbd>m</kbd></button>
      <span class="sp" />
      {v.from !== null && v.to !== null && <span class="tl-range" data-role="range">Δ {length(Math.abs(v.to - v.from))}</span>}
    </div>
  );
}

function Search({ model, input }: { model: Model; input: preact.RefObject<HTMLInputElement | null> }) {
  const v = model.view.value;
  const wait = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const text = useSignal(v.filter);
  const help = useSignal(false);
  useEffect(() => {
    if (document.activeElement !== input.current) text.value = v.filter;
  }, [v.filter]);
  const info = model.pane.info.value;
  const apply = (t: string) => {
    clearTimeout(wait.current);
    model.set({ filter: t });
  };
  return (
    <span class="tl-search anchor">
      <input
        ref={input} type="text" spellcheck={false} autocomplete="off" value={text.value} placeholder={ofTrace(model.pane.source) ? "name:decode dur>1s" : "reward<0.5 status:trunc -name:tool"} aria-label="search rows" aria-invalid={info.error !== ""}
        data-control="search" title="words, field:text, field<number, /regexp/, -not"
        onInput={(e) => {
          const t = e.currentTarget.value;
          text.value = t;
          clearTimeout(wait.current);
          // Small dumps follow each key; of large ones a word is waited for.
          if (model.panes.every((p) => p.source.local)) apply(t);
          else wait.current = setTimeout(() => apply(t), 180);
        }}
        onKeyDown={(e) => {
          if (e.key === "Enter") {
            e.preventDefault();
            apply(text.value);
            model.match(e.shiftKey ? -1 : 1);
          } else if (e.key === "Escape" && text.value !== "") {
            e.stopPropagation();
            e.preventDefault();
            text.value = "";
            apply("");
          }
        }}
      />
      {text.value === "" ? <kbd>/</kbd> : (
        <span class={info.error ? "tl-count bad" : "tl-count"} data-role="matches" title={info.error || undefined}>
          {info.error ? "?" : info.matches < 0 ? "…" : `${grouped(info.matches, 0)} of ${grouped(model.pane.source.rows.n, 0)}`}
        </span>
      )}
      <button type="button" class={`btn icon${v.mark ? " on" : ""}`} aria-pressed={v.mark} aria-label="keep all rows and mark matches" title="keep all rows and mark matches" onClick={() => model.set({ mark: !v.mark })}>≡</button>
      <button type="button" class="btn icon" aria-label="previous match" title="previous match (N)" onClick={() => model.match(-1)}>‹</button>
      <button type="button" class="btn icon" aria-label="next match" title="next match (n)" onClick={() => model.match(1)}>›</button>
      <button type="button" class="btn icon" aria-label="how to search" aria-expanded={help.value} title="how to search" onClick={() => (help.value = !help.value)}>?</button>
      {info.error && <span class="tl-error" role="alert">{valueText(info.error, 300)}</span>}
      {help.value && (
        <Popover label="how to search" class="tl-help" onClose={() => (help.value = false)}>
          <dl>
            <div><dt><code>word</code></dt><dd>in sample index, row, source, status, label, trace id, request ids, span names</dd></div>
            <div><dt><code>status:trunc</code></dt><dd>the field contains the text; <code>=</code> is the text or the number</dd></div>
            <div><dt><code>dur&gt;90s</code></dt><dd>numbers: &lt; &lt;= &gt; &gt;= with ms, s, m for times</dd></div>
            <div><dt><code>-flag:empty</code></dt><dd>not; flags: carried, shared, held, error, aborted, merged, critical, problem, empty</dd></div>
            <div><dt><code>/tool_(a|b)/</code></dt><dd>a regular expression over the same text as a word</dd></div>
            <div><dt><code>attr.turn&gt;2</code></dt><dd>any item's attribute</dd></div>
          </dl>
          <p class="mut">Fields: sample row group rollout status source label trace rid name reward dur start end tokens prompt lanes items requests attempts open orphans points queue e2e prefill decode retries flag attr.KEY</p>
        </Popover>
      )}
    </span>
  );
}

function Show({ model }: { model: Model }) {
  const open = useSignal(false);
  const v = model.view.value;
  const some = !v.points || !v.opens || !v.orphans;
  const box = (key: "points" | "opens" | "orphans", label: string) => (
    <label class="tl-check"><input type="checkbox" checked={v[key]} data-control={key} onChange={(e) => model.set({ [key]: e.currentTarget.checked })} /> {label}</label>
  );
  return (
    <span class="anchor">
      <button type="button" class={`btn${some ? " on" : ""}`} aria-expanded={open.value} onClick={() => (open.value = !open.value)}>Show ▾</button>
      {open.value && (
        <Popover label="what is shown" class="tl-menu" onClose={() => (open.value = false)}>
          {box("points", "instant events")}
          {box("opens", "open spans")}
          {box("orphans", "ends without a start")}
        </Popover>
      )}
    </span>
  );
}

/** Offers a file to be saved. */
export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function Exports({ model }: { model: Model }) {
  const open = useSignal(false);
  const base = model.pane.source.head.dump.name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "timeline";
  const run = (what: Promise<Blob>, name: string) => {
    open.value = false;
    what.then(
      (b) => {
        save(b, name);
        model.say(`${name} saved`);
      },
      (err: Error) => {
        model.note.value = `export: ${err.message}`;
        model.say(`export failed: ${err.message}`);
      },
    );
  };
  return (
    <span class="anchor">
      <button type="button" class="btn" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>Export ▾</button>
      {open.value && (
        <Popover label="export" class="tl-menu" onClose={() => (open.value = false)}>
          <button type="button" class="tl-item" onClick={() => run(model.picture(model.pane.index), `${base}.png`)}>PNG of the view</button>
          <button type="button" class="tl-item" onClick={() => {
            const p = model.pane;
            const [a, b] = model.range(p);
            run(p.source.perfetto(p.query(model.view.value), p.order, a, b), `${base}.perfetto.json`);
          }}>Perfetto JSON of the range</button>
          <button type="button" class="tl-item" onClick={() => {
            open.value = false;
            navigator.clipboard?.writeText(location.href).then(() => model.say("link copied"), () => model.say("the clipboard is not allowed here: the address holds the view"));
          }}>Copy the link to this view</button>
        </Popover>
      )}
    </span>
  );
}

/** What the colours mean; a press highlights one, × hides it. Two lines at most, the rest when asked for. */
export function Legend({ model }: { model: Model }) {
  const v = model.view.value;
  const pane = model.pane;
  const entries = pane.legend.value;
  const list = useRef<HTMLUListElement>(null);
  const all = useSignal(false);
  const over = useSignal(false);
  useEffect(() => {
    const el = list.current;
    if (!el) return;
    const seen = new ResizeObserver(() => (over.value = el.scrollHeight > 44));
    seen.observe(el);
    over.value = el.scrollHeight > 44;
    return () => seen.disconnect();
  }, [entries]);
  if (entries.length === 0) return null;
  return (
    <div class="tl-colours">
      <ul ref={list} class={`tl-legend${all.value ? " tl-all" : ""}`} aria-label="colours">
        {entries.map((e) => {
          const lit = v.lit.includes(e.key), hidden = v.hidden.includes(e.key);
          const name = valueText(e.label, 60);
          return (
            <li key={e.key} class={hidden ? "off" : lit ? "lit" : ""}>
              <button type="button" aria-pressed={lit} data-key={e.key} title={Number.isNaN(e.n) ? `highlight ${name}` : `${name}: ${grouped(e.n, 0)}, ${length(e.time)} in all. Press to highlight.`} onClick={() => model.toggleLegend(e.key, "lit")}>
                <i class="sw" style={{ "--c": e.shade === 0 ? `var(${e.token})` : `color-mix(in srgb, var(${e.token}) ${Math.round((1 - Math.abs(e.shade)) * 100)}%, ${e.shade > 0 ? "white" : "black"})` }} aria-hidden="true" />{name}
              </button>
              <button type="button" class="tl-hide" aria-pressed={hidden} aria-label={`hide ${name}`} title={hidden ? "show" : "hide"} onClick={() => model.toggleLegend(e.key, "hidden")}>{hidden ? "+" : "×"}</button>
            </li>
          );
        })}
        {v.lit.length + v.hidden.length > 0 && <li><button type="button" class="quiet" onClick={() => model.set({ lit: [], hidden: [] })}>all</button></li>}
      </ul>
      {over.value && <button type="button" class="quiet" aria-expanded={all.value} title="all colours" onClick={() => (all.value = !all.value)}>{all.value ? "less ▴" : "more ▾"}</button>}
    </div>
  );
}
