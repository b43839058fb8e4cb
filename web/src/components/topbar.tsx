// The bar above a page: what it is about, the search, the window in time, live, theme, keys.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { duration } from "../format/time";
import { canLive, isArchive, isLive, isView, staleFor, status, toggleLive, win } from "../state/live";
import { zoomed } from "../state/route";
import { theme, toggleTheme } from "../state/theme";
import { view, zoomTo } from "../state/view";
import { hover } from "../charts/plot";
import { StateIcon, Tool, TOOLS } from "./icons";
import { RangePicker } from "./rangepicker";
import { Search } from "./search";

/** Whether the map of keys is shown. */
export const keyMapOpen = signal(false);

/** Zooms around the cursor where one is over a chart. */
export const zoomIn = () => zoomTo(zoomed(win.peek(), 0.5, hover.peek() ?? undefined));
export const zoomOut = () => zoomTo(zoomed(win.peek(), 2, hover.peek() ?? undefined));

export interface TopBarProps {
  title: string;
  sub?: ComponentChildren;
  children?: ComponentChildren;
  /** false on a page that the window in time says nothing about */
  timed?: boolean;
}

export function TopBar({ title, sub, children, timed = true }: TopBarProps) {
  return (
    <header class="top">
      <h1>{title}</h1>
      <span class="sub">{sub}</span>
      <div class="counts">{children}</div>
      <span class="sp" />
      {!isView.value && <Search />}
      {timed && (
        <>
          <RangePicker />
          <button type="button" class="btn icon" title="zoom out (s)" aria-label="zoom out" onClick={zoomOut}>−</button>
          <button type="button" class="btn icon" title="zoom in (w)" aria-label="zoom in" onClick={zoomIn}>+</button>
        </>
      )}
      {!isView.value && <LiveButton />}
      <button type="button" class="btn" title="dark or light" onClick={toggleTheme}>
        <Tool d={TOOLS.half} />
        <span class="theme-name">{theme.value === "dark" ? "Dark" : "Light"}</span>
      </button>
      <button type="button" class="btn icon" title="keys (?)" aria-label="keys" onClick={() => (keyMapOpen.value = true)}>?</button>
    </header>
  );
}

/** Live with its interval; when nothing was heard for two intervals it turns unknown and says for how long. */
function LiveButton() {
  if (isArchive.value) {
    return (
      <span class="btn flat" title={status.value.value?.dir}>
        <StateIcon level="idle" />
        Archive
      </span>
    );
  }
  const stale = staleFor.value;
  const down = status.value.error !== undefined && isLive.value;
  if (isLive.value && (stale > 0 || down)) {
    const age = status.value.heard ? duration(Date.now() - status.value.heard) : "";
    return (
      <button type="button" class="btn live stale-live" aria-pressed="true" title={status.value.error?.message ?? "no answer for two intervals"} onClick={toggleLive}>
        <StateIcon level="unknown" />
        Stale {age}
      </button>
    );
  }
  return (
    <button
      type="button"
      class={isLive.value ? "btn live on" : "btn live"}
      aria-pressed={isLive.value}
      title={canLive.value ? "live on or off (Space)" : "the range is fixed: back to the last hour, live (Space)"}
      onClick={toggleLive}
    >
      <i class="dot" aria-hidden="true" />
      {isLive.value ? `Live ${view.value.every} s` : "Paused"}
    </button>
  );
}
