// The frame of every page: navigation, the page of the URL, and what is laid over it.
import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Definitions } from "./components/icons";
import { KeyMap, useGlobalKeys } from "./components/keymap";
import { Nav } from "./components/nav";
import { plural } from "./format/number";
import { dayClock, duration } from "./format/time";
import { needEngines } from "./state/fleet";
import { dataRange, isArchive, isReady, isView, now, range, status } from "./state/live";
import { page, setRange, view } from "./state/view";
import { Alerts } from "./pages/alerts";
import { Engines } from "./pages/engines";
import { Explore } from "./pages/explore";
import { Logs } from "./pages/logs";
import { Overview } from "./pages/overview";
import { Rollouts } from "./pages/rollouts";
import { Requests } from "./pages/requests";
import { Recorder } from "./pages/recorder";
import { Traces } from "./pages/traces";

export function App() {
  useGlobalKeys();
  const ready = isReady.value;
  // Names of engines are wanted everywhere; pages that load all of them keep the list fresh.
  useEffect(() => {
    if (ready && !isView.peek() && page.peek() !== "overview" && page.peek() !== "engines") needEngines().catch(() => undefined);
  }, [ready]);
  return (
    <div class={isArchive.value ? "app archive" : "app"}>
      <Definitions />
      <Nav />
      <div class="stage">
        <ArchiveBanner />
        <CurrentPage />
      </div>
      <KeyMap />
      <Recorder />
    </div>
  );
}

function CurrentPage() {
  switch (isView.value ? "rollouts" : page.value) {
    case "engines":
      return <Engines />;
    case "rollouts":
      return <Rollouts />;
    case "requests":
      return <Requests />;
    case "traces":
      return <Traces />;
    case "logs":
      return <Logs />;
    case "alerts":
      return <Alerts />;
    case "explore":
      return <Explore />;
    default:
      return <Overview />;
  }
}

/** An archive says that it is one, what it holds, and where it has holes. */
function ArchiveBanner() {
  const s = status.value.value;
  if (!isArchive.value || !s) return null;
  const { from, to } = dataRange.value;
  return (
    <div class="banner" role="status">
      <b>Archived run</b>
      {Number.isFinite(from) ? (
        <span>
          recorded {dayClock(from, now())} – {dayClock(to, now())} UTC, {duration(to - from)}
          {s.gaps.length > 0 && ` · paused ${plural(s.gaps.length, "time")}`}
        </span>
      ) : (
        <span>it holds no metrics</span>
      )}
      <span class="mut">{s.dir} · nothing in it is changed</span>
      <span class="sp" />
      {range.value.kind !== "data" && Number.isFinite(from) && (
        <button type="button" class="quiet" onClick={() => setRange({ kind: "data" })}>show all of it</button>
      )}
    </div>
  );
}

/** Names the page in the tab. */
export function startTitle(): void {
  effect(() => {
    const v = view.value;
    const name = v.page === "overview" ? "" : v.page[0]?.toUpperCase() + v.page.slice(1);
    const what = v.page === "engines" ? v.engine : v.page === "rollouts" && v.rollout ? `${v.kind} ${v.rollout}` : v.page === "explore" ? v.expr.slice(0, 60) : v.page === "requests" || v.page === "traces" || v.page === "logs" ? (v.id || v.filter).slice(0, 60) : "";
    document.title = [what, name, "Rollscope"].filter(Boolean).join(" · ");
  });
}
