// The page that stands alone: a saved file with its data inside, or what `rollscope view` serves. Its whole
// view is in the URL after #, so that it can be sent, and works from file:// too.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Brand, Definitions, Tool, TOOLS } from "../components/icons";
import { grouped } from "../format/number";
import { startKeys } from "../state/keys";
import { HttpSource } from "../timeline/http";
import { LocalSource, type TimelineSource } from "../timeline/source";
import { Timeline } from "../timeline/timeline";
import { decodeView, encodeView, type View } from "../timeline/view";
import { valueText } from "../timeline/words";
import { dataIn, takeData } from "./embedded";
import { startTheme, theme, toggleTheme } from "./theme";
import "../tokens.css";
import "../styles/base.css";
import "../styles/shell.css";
import "../styles/panels.css";
import "../timeline/timeline.css";
import "./viewer.css";

/** Opens what the document names: embedded containers, or addresses of a server. */
async function sources(): Promise<TimelineSource[]> {
  const out: TimelineSource[] = [];
  const found = takeData(document);
  performance.mark("rollscope.base64");
  for (const { bytes, rest } of found) out.push(await LocalSource.open(bytes, rest));
  performance.mark("rollscope.decoded");
  const served = document.getElementById("rollscope-served");
  if (served) {
    const list = JSON.parse(served.textContent ?? "[]") as unknown;
    for (const base of Array.isArray(list) ? list : []) if (typeof base === "string") out.push(await HttpSource.open(base));
  }
  if (out.length === 0) throw new Error("This page holds no timeline. Make one with: rollscope view DUMP.pt");
  return out;
}

function App({ first }: { first: TimelineSource[] }) {
  const [list, setList] = useState(first);
  const [view, setView] = useState<View>(() => decodeView(location.hash, first.length));
  const [error, setError] = useState("");
  const last = useRef(location.hash);
  const file = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const moved = () => {
      if (location.hash === last.current) return;
      last.current = location.hash;
      setView(decodeView(location.hash, list.length));
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, [list]);
  useEffect(() => {
    document.title = `${list.map((s) => s.head.dump.name).join(" · ")} · Rollscope`;
  }, [list]);
  const keep = (v: View) => {
    const text = encodeView(v);
    const hash = text ? `#${text}` : "";
    if (hash === last.current || (hash === "" && location.hash === "")) return;
    last.current = hash;
    history.replaceState(null, "", hash || location.pathname + location.search);
  };
  const add = async (files: FileList | null) => {
    setError("");
    try {
      const made: TimelineSource[] = [];
      for (const f of files ?? []) {
        const found = dataIn(new Uint8Array(await f.arrayBuffer()));
        if (found.length === 0) throw new Error(`${f.name} holds no timeline: choose a page that rollscope view wrote`);
        for (const bytes of found) {
          const s = await LocalSource.open(bytes);
          await s.settle();
          made.push(s);
        }
      }
      if (made.length === 0) return;
      const all = [...list, ...made];
      setView(decodeView(location.hash, all.length));
      setList(all);
    } catch (err) {
      setError((err as Error).message);
    }
  };
  const { dump, counts, note, detail } = (list[0] as TimelineSource).head;
  return (
    <div class="viewer">
      <Definitions />
      <header class="top">
        <span class="brand viewer-brand"><Brand />Rollscope</span>
        <h1 title={dump.name}>{list.map((s) => valueText(s.head.dump.name, 120)).join(" · ")}</h1>
        <span class="sub">
          {dump.kind}{dump.rollout_id !== null && ` step ${dump.rollout_id}`} · {grouped(counts["samples"] ?? 0, 0)} samples · {grouped(counts["requests"] ?? 0, 0)} requests · {grouped(counts["items"] ?? 0, 0)} spans and events
          {(counts["skipped"] ?? 0) > 0 && ` · ${grouped(counts["skipped"] ?? 0, 0)} unusable events`}
        </span>
        {detail === "levels" && <span class="st st-warn" title={note}>levels of detail</span>}
        <span class="sp" />
        <input ref={file} type="file" class="vh" tabIndex={-1} multiple accept=".html,.rtc" aria-label="another saved timeline" onChange={(e) => void add(e.currentTarget.files)} />
        <button type="button" class="btn" title="a second saved timeline on the same time axis" onClick={() => file.current?.click()}>Compare with…</button>
        {list.length > 1 && <button type="button" class="btn" onClick={() => { setView({ ...decodeView(location.hash, 1) }); setList(list.slice(0, 1)); }}>Only the first</button>}
        <button type="button" class="btn" aria-label={`theme: ${theme.value}`} title="dark or light" onClick={toggleTheme}><Tool d={TOOLS.half} />{theme.value === "dark" ? "Dark" : "Light"}</button>
      </header>
      {error && <div class="banner" role="alert"><span class="bad">{error}</span></div>}
      {detail === "levels" && note && <div class="banner"><b>Levels of detail</b><span class="mut">{note}</span></div>}
      <main class="viewer-main">
        <Timeline key={list.length} sources={list} view={view} onView={keep} theme={theme.value} />
      </main>
    </div>
  );
}

function Broken({ error }: { error: Error }) {
  return (
    <div class="viewer-broken">
      <h1><Brand /> Rollscope</h1>
      <p role="alert">{error.message}</p>
      <p class="mut">The page was not changed. Write it anew with: rollscope view DUMP.pt --rebuild</p>
    </div>
  );
}

performance.mark("rollscope.script"); // marks: where the time to the first picture goes, for bench/viewer.mjs
startTheme();
startKeys();
const root = document.getElementById("app") as HTMLElement;
const broken = (err: Error) => {
  render(null, root);
  root.replaceChildren();
  render(<Broken error={err} />, root);
};
sources().then((list) => {
  root.replaceChildren();
  render(<App first={list} />, root);
  // What the first picture does not show is read after it.
  setTimeout(() => void Promise.all(list.map((s) => (s instanceof LocalSource ? s.settle() : undefined))).catch(broken), 200);
}, broken);
