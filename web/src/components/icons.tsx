// The few shapes of the page: states (each told by its shape alone), navigation, tools.
import type { ComponentChildren } from "preact";
import type { Level } from "../api/types";
import type { Page } from "../state/route";

const STATE: Record<Level, () => ComponentChildren> = {
  ok: () => <circle cx="5" cy="5" r="4" fill="currentColor" />,
  warn: () => <path d="M5 .8 9.6 9.2H.4z" fill="currentColor" />,
  crit: () => <rect x=".8" y=".8" width="8.4" height="8.4" fill="currentColor" />,
  idle: () => <circle cx="5" cy="5" r="3.7" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="1.6 1.7" />,
  unknown: () => <path d="M.6 4 4 .6M.6 9.4 9.4.6M6 9.4 9.4 6" fill="none" stroke="currentColor" stroke-width="1.5" />,
};

export function StateIcon({ level }: { level: Level }) {
  return (
    <svg class={`ic ic-${level}`} viewBox="0 0 10 10" aria-hidden="true">
      {STATE[level]()}
    </svg>
  );
}

const NAV: Record<Page, string> = {
  overview: "M2 9.5 8 3l6 6.5M4 8v5.5h8V8",
  engines: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  rollouts: "M2.5 4h7M5 8h8.5M2.5 12h5",
  requests: "M2.5 4.5h8.5M8.5 2l2.5 2.5L8.5 7M13.5 11.5H5M7.5 9 5 11.5 7.5 14",
  traces: "M2.5 3.5h9M4.5 8h6M7 12.5h6.5M2.5 3.5v0M4.5 5.5v2.5M7 10v2.5",
  logs: "M3 3.5h10M3 6.5h7M3 9.5h10M3 12.5h5",
  alerts: "M8 2.2 14.4 13.4H1.6zM8 6.4v3.2M8 11.4v.01",
  explore: "M3 3v10h10.4M5.4 10 8 6.6l2.4 2 3-4.2",
};

export function NavIcon({ page }: { page: Page }) {
  return <Tool d={NAV[page]} />;
}

export function Tool({ d }: { d: string }) {
  return (
    <svg class="tool" viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={d} />
    </svg>
  );
}

export const TOOLS = {
  table: "M2.5 3.5h11v9h-11zM2.5 6.5h11M2.5 9.5h11M6.5 3.5v9",
  chart: "M3 3v10h10.4M5.4 10 8 6.6l2.4 2 3-4.2",
  close: "M4 4l8 8M12 4l-8 8",
  half: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  prompt: "M3 4.5 6.5 8 3 11.5M8 12h5",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
};

export function Brand() {
  return (
    <svg class="logo" viewBox="0 0 16 16" aria-hidden="true">
      <rect x="1" y="2" width="8" height="3" rx=".6" class="logo-a" />
      <rect x="4" y="6.5" width="11" height="3" rx=".6" class="logo-b" />
      <rect x="1" y="11" width="9" height="3" rx=".6" class="logo-a" />
    </svg>
  );
}

/** Definitions that other drawings of the document refer to. */
export function Definitions() {
  return (
    <svg class="defs" aria-hidden="true">
      <defs>
        <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path d="M0 0v5" class="hatch-line" />
        </pattern>
      </defs>
    </svg>
  );
}
