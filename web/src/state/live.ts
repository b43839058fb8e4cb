// Time as the page knows it: the server's clock, the ticks at which live pages load again, the status of
// the process, and the window that all of it gives.
import { computed, effect, signal } from "@preact/signals";
import { API, Failure, get } from "../api/client";
import type * as api from "../api/types";
import { HOUR, MINUTE, clock, dayClock, parseApiTime, sameDay } from "../format/time";
import { DEFAULT_RANGE, windowOf, type Range, type Window } from "./route";
import { change, view } from "./view";

/** Server clock minus ours, so that a laptop with a wrong clock sees the right window. */
let skew = 0;
export const now = () => Date.now() + skew;

/** The instant that windows end at; moves with each tick. */
const at = signal(now());
/** How many alerts fire, by level: what the last tick said; undefined before one. */
export const firing = signal<Partial<Record<api.Level, number>> | undefined>(undefined);
/** Counts ticks: what is live loads again on each. */
export const tick = signal(0);
/** Moves once a second, for ages. */
export const second = signal(now());

export interface StatusState {
  value?: api.Status;
  error?: Failure;
  /** our clock, when the server last answered anything; 0 never */
  heard: number;
}
export const status = signal<StatusState>({ heard: 0 });

export const isArchive = computed(() => status.value.value?.mode === "archive");
/** Rollout dumps alone are shown: there are no metrics, so no other page has anything to say. */
export const isView = computed(() => status.value.value?.mode === "view");
/** What the store holds, NaN while that is nothing or not known. */
export const dataRange = computed(() => ({
  from: parseApiTime(status.value.value?.from),
  to: parseApiTime(status.value.value?.to),
}));
/** How long there is data, in round steps up to an hour: a young recording is not shown as a sliver. */
const youth = computed(() => {
  const age = at.value - dataRange.value.from;
  return [5, 10, 15, 20, 30, 45].map((m) => m * MINUTE).find((ms) => age <= ms) ?? HOUR;
});
/** The range that is looked at, chosen where the URL says nothing: an archive opens on its own data. */
export const range = computed<Range>(() => view.value.range ?? (isArchive.value ? { kind: "data" } : { kind: "last", ms: youth.value }));
/** Whether the window can move with the clock. */
export const canLive = computed(() => !isArchive.value && range.value.kind === "last");
export const isLive = computed(() => view.value.live && canLive.value);
/** False until the range can be told; nothing is loaded before, so that an archive is not asked for the last hour. */
export const isReady = computed(() => view.value.range?.kind === "last" || view.value.range?.kind === "fixed" ||
  status.value.value !== undefined || status.value.error !== undefined);

/** The instant that ages are told from: now, or the end of an archive. */
export const today = (): number => (isArchive.value && Number.isFinite(dataRange.value.to) ? dataRange.value.to : now());

/** The window for charts of about points points. */
export const windowFor = (points: number): Window => windowOf(range.value, isArchive.value ? today() : at.value, dataRange.value, points);
export const win = computed(() => windowFor(240));

/** How long ago the server was last heard from, when that is more than two intervals, else 0. */
export const staleFor = computed(() => {
  if (!isLive.value || status.value.heard === 0) return 0;
  const age = second.value - skew - status.value.heard;
  return age > view.value.every * 2000 + 1500 ? age : 0;
});

/** Told by every load that succeeded. */
export function heard(): void {
  status.value = { ...status.value, heard: Date.now() };
}

async function loadStatus(): Promise<void> {
  const sent = Date.now();
  try {
    take((await get<api.Status>("/status")).data, sent);
  } catch (err) {
    status.value = { ...status.value, error: err instanceof Failure ? err : new Failure("bad_answer", String(err)) };
  }
}

function take(s: api.Status, sent: number): void {
  const t = parseApiTime(s.now);
  // Half the round trip is on the way back. Small differences are the network, not the clock.
  if (Number.isFinite(t)) {
    const diff = t - (sent + Date.now()) / 2;
    skew = Math.abs(diff) > 1500 ? diff : 0;
  }
  status.value = { value: s, heard: Date.now() };
}

/** Loads everything again now. */
export function refresh(): void {
  at.value = now();
  tick.value++;
  void loadStatus();
}

/** Live on or off. Off keeps the window where it is; on from a fixed range goes back to the last hour. */
export function toggleLive(): void {
  if (isArchive.value) return;
  if (!canLive.value) {
    change({ range: DEFAULT_RANGE, live: true });
    refresh();
    return;
  }
  const live = !view.value.live;
  change({ live }, "replace");
  if (live) refresh();
}

/**
 * Starts the clock. The server pushes an event when there is something new (scraped, evaluated); the page
 * loads then, at most once per interval. Without events (a proxy that cuts streams) it polls.
 */
export function startLive(): void {
  void loadStatus();
  let last = Date.now();
  const due = () => Date.now() - last >= view.peek().every * 1000 - 250;
  const go = () => {
    if (!isLive.peek() || document.hidden) return;
    last = Date.now();
    refresh();
  };
  setInterval(() => {
    second.value = now();
    // Off or in an archive, only the status is kept fresh: targets, drops and notices stand in the nav.
    if (!isLive.peek()) {
      if (!document.hidden && Date.now() - last > 30_000) {
        last = Date.now();
        void loadStatus();
      }
      return;
    }
    if (due()) go();
  }, 1000);
  document.addEventListener("visibilitychange", () => due() && go());

  let events: EventSource | undefined;
  effect(() => {
    const want = isLive.value;
    if (want && !events) {
      events = new EventSource(`${API}/live`);
      events.addEventListener("tick", (e: MessageEvent<unknown>) => {
        heard();
        count(e.data);
        if (due()) go();
      });
    } else if (!want && events) {
      events.close();
      events = undefined;
    }
  });
}

/** A tick brings the counts that stand in the nav, before the status is asked for again. */
function count(data: unknown): void {
  const s = status.peek();
  if (!s.value || typeof data !== "string") return;
  try {
    const t = JSON.parse(data) as Partial<api.Tick>;
    if (t.alerts && typeof t.alerts === "object") firing.value = t.alerts;
    if (typeof t.targets !== "number" || typeof t.targets_up !== "number") return;
    status.value = { ...s, value: { ...s.value, targets: t.targets, targets_up: t.targets_up, to: t.to ?? s.value.to } };
  } catch {
    // A tick that cannot be read is still news: the page loads.
  }
}

/** When recording had not begun, paused, or had ended: bands behind every chart. The same array while it says the same. */
export const recordingMarks = computed<Mark[]>((): Mark[] => {
  const next = marksNow();
  const key = JSON.stringify(next);
  if (key !== lastMarks.key) lastMarks = { key, marks: next };
  return lastMarks.marks;
});
interface Mark {
  from: number;
  to: number;
  label: string;
}
let lastMarks: { key: string; marks: Mark[] } = { key: "", marks: [] };

function marksNow(): Mark[] {
  const s = status.value.value;
  const { from, to } = dataRange.value;
  if (!s || !Number.isFinite(from)) return [];
  const marks = s.gaps.map((g) => ({ from: parseApiTime(g.from), to: parseApiTime(g.to), label: "not recorded" }));
  const text = (t: number) => (sameDay(t, at.value) ? clock(t) : dayClock(t, at.value));
  marks.push({ from: -Infinity, to: from, label: `recording began ${text(from)}` });
  if (isArchive.value) marks.push({ from: to, to: Infinity, label: `recording ended ${text(to)}` });
  return marks;
}
