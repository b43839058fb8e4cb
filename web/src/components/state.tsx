// The states of the guide in words and shapes: badges, empty, error and loading.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Failure } from "../api/client";
import type * as api from "../api/types";
import { plural } from "../format/number";
import { duration, since } from "../format/time";
import { now, second } from "../state/live";
import type { Resource } from "../state/resource";
import { StateIcon } from "./icons";
import { Popover } from "./popover";

const WORDS: Record<api.Level, string> = { ok: "ok", warn: "warn", crit: "crit", idle: "idle", unknown: "unknown" };
const ORDER: api.Level[] = ["crit", "warn", "unknown", "ok", "idle"];

/** Worst first. */
export const levels = ORDER;

export function levelRank(l: api.Level): number {
  return ORDER.indexOf(l);
}

export function Badge({ level, children, title }: { level: api.Level; children?: ComponentChildren; title?: string | undefined }) {
  return (
    <span class={`st st-${level}`} title={title}>
      <StateIcon level={level} />
      {children ?? WORDS[level]}
    </span>
  );
}

/** What would be here, and the one line that makes it appear. */
export function Empty({ what, how }: { what: ComponentChildren; how?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>{what}</p>
      {how && <pre class="how">{how}</pre>}
    </div>
  );
}

/** What failed, where, since when, and what to do. */
export function ErrorBox({ error, failingSince }: { error: Failure; failingSince?: number }) {
  return (
    <div class="error" role="alert">
      <StateIcon level="unknown" />
      <div>
        <b>{error.message}</b>
        {(error.where || failingSince) && (
          <div class="sec">
            {error.where}
            {error.where && failingSince ? " · " : ""}
            {failingSince ? `since ${since(failingSince, now())}` : ""}
          </div>
        )}
        {error.hint && (
          <div class="act">
            <span class="mut">Do</span> {error.hint}
          </div>
        )}
      </div>
    </div>
  );
}

/** The last good data stays; this says how old it is and why. */
export function StaleNote({ res }: { res: Resource<unknown> }) {
  if (!res.error || res.at === 0) return null;
  second.value; // the age moves
  return (
    <span class="stale" title={`${res.error.message}${res.error.where ? ` (${res.error.where})` : ""}`}>
      <StateIcon level="unknown" />
      {duration(Date.now() - res.at)} old: {res.error.message}
    </span>
  );
}

/** Thin bar under a title row, after 200 ms; before, nothing moves. */
export function LoadingBar({ on }: { on: boolean }) {
  return on ? <div class="loading" role="progressbar" aria-label="loading" /> : null;
}

/** The same under a button, where they would push the data away. */
export function Notes({ list }: { list: api.Warning[] }) {
  const open = useSignal(false);
  if (list.length === 0) return null;
  return (
    <span class="anchor">
      <button type="button" class="note" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{plural(list.length, "note")}</button>
      {open.value && (
        <Popover label="notes" class="pop-notes" onClose={() => (open.value = false)}>
          <Warnings list={list} />
        </Popover>
      )}
    </span>
  );
}

/** Things that the reader of a number must know. */
export function Warnings({ list }: { list: api.Warning[] }) {
  if (list.length === 0) return null;
  return (
    <ul class="warnings">
      {list.map((w, i) => (
        <li key={i}>
          <StateIcon level="warn" />
          <span>
            {w.message}
            {w.where && <span class="mut"> {w.where}</span>}
            {w.hint && <span class="sec"> · {w.hint}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
