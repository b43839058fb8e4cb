// Navigation, and at its foot what must never be out of sight: targets, drops, notices.
import { signal } from "@preact/signals";
import { general, grouped, plural } from "../format/number";
import { alertList, engineList } from "../state/fleet";
import { firing, isView, status } from "../state/live";
import { page } from "../state/view";
import type { Page } from "../state/route";
import { Brand, NavIcon, StateIcon } from "./icons";
import { Link } from "./link";

export const recorderOpen = signal(false);

const ITEMS: [Page, string][] = [["overview", "Overview"], ["engines", "Engines"], ["rollouts", "Rollouts"], ["requests", "Requests"], ["traces", "Traces"], ["logs", "Logs"], ["alerts", "Alerts"], ["explore", "Explore"]];

export function Nav() {
  return (
    <nav class="nav" aria-label="pages">
      <Link to={isView.value ? "rollouts" : "overview"} class="brand" label="Rollscope, first page">
        <Brand />
        <span class="nav-name">Rollscope</span>
      </Link>
      {ITEMS.filter(([p]) => !isView.value || p === "rollouts").map(([p, name]) => (
        <Link key={p} to={p} class={page.value === p ? "nav-item on" : "nav-item"} current={page.value === p} title={name}>
          <NavIcon page={p} />
          <span class="nav-name">{name}</span>
          <NavCount page={p} />
        </Link>
      ))}
      <Foot />
    </nav>
  );
}

function NavCount({ page: p }: { page: Page }) {
  if (p === "engines" && engineList.value) return <span class="cnt">{engineList.value.length}</span>;
  if (p === "alerts") {
    const listed = alertList.value?.filter((a) => a.state === "firing").map((a) => a.level);
    const told = firing.value;
    const n = listed ? listed.length : Object.values(told ?? {}).reduce((a, b) => a + b, 0);
    const worst = listed?.includes("crit") || told?.crit ? "crit" : "warn";
    if (n > 0) {
      return (
        <span class={`cnt cnt-${worst}`} title={`${n} firing`}>
          <StateIcon level={worst} />
          {n}
        </span>
      );
    }
  }
  return null;
}

/** What is written where there is room, and where there is not. */
function Words({ long, short }: { long: string; short: string }) {
  return (
    <>
      <i class="long">{long}</i>
      <i class="short" aria-hidden="true">{short}</i>
    </>
  );
}

function Foot() {
  const { value: s, error } = status.value;
  if (!s) {
    return <div class="nav-foot">{error ? <span class="foot-bad">{error.message}</span> : null}</div>;
  }
  const dropped = s.drops.reduce((n, d) => n + d.count, 0);
  const down = s.targets - s.targets_up;
  return (
    <button type="button" class="nav-foot" onClick={() => (recorderOpen.value = true)} title="what is recorded, and what is not">
      {s.mode === "archive" || s.mode === "view" ? (
        <span>{s.mode === "view" ? "dumps" : "archive"}</span>
      ) : (
        <span class={down > 0 ? "foot-warn" : ""}>
          {down > 0 && <StateIcon level="unknown" />}
          <Words long={`${grouped(s.targets_up, 0)} of ${plural(s.targets, "target")}`} short={`${s.targets_up}/${s.targets}`} />
        </span>
      )}
      <span class={dropped > 0 ? "foot-warn" : ""}><Words long={`${grouped(dropped, 0)} dropped`} short={dropped > 0 ? `−${general(dropped)}` : ""} /></span>
      {s.notices.length > 0 && (
        <span class="foot-warn">
          <StateIcon level="warn" />
          <Words long={plural(s.notices.length, "notice")} short={String(s.notices.length)} />
        </span>
      )}
      {s.read_only && s.mode !== "archive" && s.mode !== "view" && <span>reads only</span>}
      <span class="foot-version">{s.version}</span>
    </button>
  );
}
