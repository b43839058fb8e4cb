// The timeline of one dump or of several on one time axis: controls, picture, details. It keeps nothing
// outside of itself: data come from the sources, the view goes out through onView, colours are CSS variables.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Dialog } from "../components/popover";
import { useKeys } from "../state/keys";
import { Model } from "./model";
import { PaneCanvas } from "./panecanvas";
import { Panel, type PanelProps } from "./panel";
import type { TimelineSource } from "./source";
import { Legend, Toolbar } from "./toolbar";
import { START, type View } from "./view";
import { WhereBar } from "./wherebar";

export interface TimelineProps {
  /** one, or several to be seen on a common time axis; each time counts from its own start */
  sources: TimelineSource[];
  /** where to begin; later changes of this very object move the view (back and forward of the browser) */
  view?: View;
  /** the view has come to rest: put it into the URL */
  onView?: (v: View) => void;
  /** whether "where the time went" stands above; a page that shows it already says no */
  where?: boolean;
  /** previous and next step, where there are some */
  onStep?: ((d: 1 | -1) => void) | undefined;
  links?: PanelProps["links"];
  requestLinks?: PanelProps["requestLinks"];
  /** changes when the theme does */
  theme?: string;
  /** keys of a page that has its own map */
  help?: boolean;
}

const KEYS: [string, string][] = [
  ["/", "search"], ["n N", "next, previous match"], ["j k", "next, previous row"], ["Enter", "open or close the row's lanes"],
  ["w s", "zoom in, out"], ["a d", "pan"], ["f", "fit all; again: what is selected"], ["o", "all rows at once, and back"],
  ["+ -", "higher, lower rows"], ["m", "measure between two points"], ["p", "details on, off"], ["[ ]", "previous, next step or dump"], ["Esc", "one step back"], ["?", "this map"],
];
/** of a page that holds the steps of a run */
const STEPS: [string, string][] = [["c", "compare with the step before, and back"]];
const POINTER: [string, string][] = [
  ["drag", "pan"], ["Shift + drag", "select a range"], ["wheel", "rows"], ["Ctrl + wheel", "zoom"], ["Shift + wheel", "pan"], ["Alt + wheel", "row height"],
  ["click", "cursor, details"], ["double click", "fit the span"], ["click on a label", "open or close the row"], ["drag on the minimap", "move; its edges zoom"],
];

export function Timeline(p: TimelineProps) {
  const search = useRef<HTMLInputElement>(null);
  const onView = useRef(p.onView);
  onView.current = p.onView;
  const [help, setHelp] = useState(false);
  const model = useMemo(() => new Model(p.sources, fitting(p.view ?? START), (v) => onView.current?.(v)), [p.sources]);
  useEffect(() => () => model.dispose(), [model]);
  const shown = useRef(p.view);
  useEffect(() => {
    if (!p.view || p.view === shown.current) return;
    shown.current = p.view;
    model.show(p.view);
  }, [p.view, model]);
  useEffect(() => model.retheme(), [p.theme, model]);
  useEffect(() => {
    const q = matchMedia("(forced-colors: active)");
    const again = () => model.retheme();
    q.addEventListener("change", again);
    return () => q.removeEventListener("change", again);
  }, [model]);

  useKeys({
    "/": () => search.current?.focus(),
    n: () => model.match(1),
    N: () => model.match(-1),
    j: () => model.step(1),
    k: () => model.step(-1),
    ArrowDown: (e) => inCanvas(e) && (model.step(1), true),
    ArrowUp: (e) => inCanvas(e) && (model.step(-1), true),
    ArrowLeft: (e) => inCanvas(e) && (model.pan(-model.pane.plot * 0.1), true),
    ArrowRight: (e) => inCanvas(e) && (model.pan(model.pane.plot * 0.1), true),
    PageDown: (e) => inCanvas(e) && (model.scrollBy(model.pane.body * 0.9), true),
    PageUp: (e) => inCanvas(e) && (model.scrollBy(-model.pane.body * 0.9), true),
    Home: (e) => inCanvas(e) && (model.scrollTo(model.pane, 0), true),
    End: (e) => inCanvas(e) && (model.scrollTo(model.pane, model.pane.layout.height), true),
    Enter: () => {
      const row = model.pane.pv(model.now).row;
      if (row < 0) return false;
      model.toggleRow(model.pane, row);
      return true;
    },
    w: () => model.zoom(0.7),
    s: () => model.zoom(1 / 0.7),
    a: () => model.pan(-model.pane.plot * 0.2),
    d: () => model.pan(model.pane.plot * 0.2),
    f: () => model.fit(),
    o: () => model.rowHeight(model.now.rowH === 0 ? 11 : 0),
    "+": () => model.rowHeight((model.now.rowH || 2) + 1),
    "=": () => model.rowHeight((model.now.rowH || 2) + 1),
    "-": () => model.rowHeight((model.now.rowH || 3) - 1),
    m: () => model.measure(),
    p: () => model.set({ tab: model.view.value.tab === "none" ? "sample" : "none" }),
    "[": () => step(-1),
    "]": () => step(1),
    "?": () => {
      if (p.help === false) return false;
      setHelp(!help);
      return true;
    },
    Escape: () => model.escape(),
  }, 1);

  const step = (d: 1 | -1): boolean => {
    if (p.onStep) {
      p.onStep(d);
      return true;
    }
    if (model.panes.length < 2) {
      model.say("there is no other step in this page");
      return true;
    }
    model.active.value = (model.active.value + d + model.panes.length) % model.panes.length;
    model.say(model.pane.source.head.dump.name);
    return true;
  };

  const v = model.view.value;
  return (
    <div class="tl">
      {p.where !== false && <WhereBar model={model} />}
      <div class={`tl-main${v.tab === "none" ? " tl-wide" : ""}`}>
        <section class="panel tl-stage" aria-label="timeline">
          <Toolbar model={model} searchRef={search} />
          <Legend model={model} />
          <div class="tl-panes" data-panes={model.panes.length}>
            {model.panes.map((pane) => <PaneCanvas key={pane.index} model={model} pane={pane} />)}
          </div>
        </section>
        {v.tab !== "none" && <Panel model={model} links={p.links} requestLinks={p.requestLinks} />}
      </div>
      <div class="vh" role="status" aria-live="polite" data-role="live">{model.spoken.value}</div>
      <div class="vh" id="tl-keys">Keys: j and k rows, Enter lanes, w s zoom, a d pan, f fit, slash search, question mark all keys.</div>
      {model.note.value && <div class="tl-note" role="alert">{model.note.value} <button type="button" class="quiet" onClick={() => (model.note.value = "")}>close</button></div>}
      {v.tab === "none" && <button type="button" class="btn tl-open" onClick={() => model.set({ tab: "sample" })}>Details <kbd>p</kbd></button>}
      {help && (
        <Dialog title="Keys" label="keys" class="keymap" onClose={() => setHelp(false)}>
          <div class="keymap-cols">
            {[KEYS.slice(0, 7), p.onStep ? [...KEYS.slice(7), ...STEPS] : KEYS.slice(7), POINTER].map((col, i) => (
              <dl key={i}>{col.map(([k, does]) => <div key={k}><dt>{i < 2 ? k.split(" ").map((x) => <kbd key={x}>{x}</kbd>) : k}</dt><dd>{does}</dd></div>)}</dl>
            ))}
          </div>
        </Dialog>
      )}
    </div>
  );
}

/** In a narrow window the details lie over the picture: they stay closed until they are asked for. */
function fitting(v: View): View {
  return v.tab === START.tab && matchMedia("(max-width: 1279px)").matches ? { ...v, tab: "none" } : v;
}

/** Arrow keys belong to the picture only while it has the focus. */
function inCanvas(e: KeyboardEvent): boolean {
  return e.target instanceof HTMLElement && e.target.classList.contains("tl-canvas");
}
