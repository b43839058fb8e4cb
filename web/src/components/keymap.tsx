// The map of keys, and the keys that work on every page.
import { pointed } from "../charts/plot";
import { engineList } from "../state/fleet";
import { logsOf, requestsOf, tracesOf, type Subject } from "../state/joins";
import { dataRange, isView, range, toggleLive, win } from "../state/live";
import { useKeys } from "../state/keys";
import { panned, type Page, type View } from "../state/route";
import { isZoomed, open, view, zoomBack, zoomTo } from "../state/view";
import { Dialog } from "./popover";
import { keyMapOpen, zoomIn, zoomOut } from "./topbar";

const KEYS: [string, string][][] = [
  [
    ["/", "search"],
    ["j k", "next, previous row"],
    ["Enter", "open the row"],
    ["[ ]", "earlier, later window; on an engine: previous, next engine"],
    ["Esc", "close; else back from zoom"],
    ["p", "engines: forward passes, and back"],
    ["r t l", "requests, traces, log lines: of the row, the point under the pointer, or the window"],
    ["Space", "live on, off"],
    ["?", "this map"],
  ],
  [
    ["f", "fit all that is recorded; again: back"],
    ["w s", "zoom in, out at the cursor"],
    ["a d", "pan"],
    ["g o", "Overview"],
    ["g e", "Engines"],
    ["g r", "Rollouts"],
    ["g q", "Requests"],
    ["g t", "Traces"],
    ["g l", "Logs"],
    ["g a", "Alerts"],
    ["g x", "Explore"],
  ],
];

const POINTER: [string, string][] = [
  ["drag on a chart", "zoom in"],
  ["click on a chart", "what lies behind the point"],
  ["double click", "back"],
  ["click on a column", "sort; again the other way; again worst first"],
];

/** What r, t and l are asked of: the point under the pointer, else the window with the engine that is looked at. */
function subject(): Subject | null {
  const p = pointed.peek();
  if (p) return p;
  const v = view.value;
  const e = v.page === "engines" ? engineList.peek()?.find((x) => x.id === v.engine) : undefined;
  const w = win.peek();
  return { from: w.from, to: w.to, instance: e?.instance ?? (v.page === "logs" ? v.engine : ""), engine: e?.name ?? "", field: "" };
}

/** Goes to a page about the subject; where that is the window as it is, the range stays as it was said. */
function behindIt(to: Page, of: (s: Subject) => Partial<View>): () => boolean {
  return () => {
    const s = subject();
    if (!s || isView.peek() || view.value.page === to) return false;
    const { range: r, ...rest } = of(s);
    open(to, pointed.peek() ? { ...rest, range: r ?? null } : rest);
    return true;
  };
}

export function useGlobalKeys(): void {
  const go = (page: Page) => () => {
    if (view.value.page !== page) open(page);
  };
  useKeys({
    "?": () => void (keyMapOpen.value = !keyMapOpen.value),
    "g o": go("overview"),
    "g e": go("engines"),
    "g r": go("rollouts"),
    "g q": go("requests"),
    "g t": go("traces"),
    "g l": go("logs"),
    "g a": go("alerts"),
    "g x": go("explore"),
    r: behindIt("requests", requestsOf),
    t: behindIt("traces", tracesOf),
    l: behindIt("logs", logsOf),
    Space: toggleLive,
    w: zoomIn,
    s: zoomOut,
    a: () => zoomTo(panned(win.value, -0.25)),
    d: () => zoomTo(panned(win.value, 0.25)),
    "[": () => zoomTo(panned(win.value, -1)),
    "]": () => zoomTo(panned(win.value, 1)),
    f: () => {
      if (range.value.kind === "data" && isZoomed.value) zoomBack();
      else if (Number.isFinite(dataRange.value.from)) zoomTo({ kind: "data" });
    },
    Escape: () => zoomBack(),
  }, 0);
}

export function KeyMap() {
  if (!keyMapOpen.value) return null;
  return (
    <Dialog title="Keys" label="keys" class="keymap" onClose={() => (keyMapOpen.value = false)}>
      <div class="keymap-cols">
        {[...KEYS, POINTER].map((col, i) => (
          <dl key={i}>
            {col.map(([key, does]) => (
              <div key={key}>
                <dt>{i < 2 ? key.split(" ").map((k) => <kbd key={k}>{k}</kbd>) : key}</dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        ))}
      </div>
    </Dialog>
  );
}
