// What the event store says of itself: whether spans, logs and requests are recorded, and why not.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, get } from "../api/client";
import type * as api from "../api/types";
import { isReady, tick } from "./live";

export interface EventsState {
  value?: api.EventsStatus;
  error?: Failure;
}

export const events = signal<EventsState>({});
let asked = 0;

/** Keeps the status fresh while the page shows events, at most every ten seconds. */
export function useEvents(): EventsState {
  const ready = isReady.value;
  const count = tick.value;
  useEffect(() => {
    if (!ready || Date.now() - asked < 9_000) return;
    asked = Date.now();
    get<api.EventsStatus>("/events").then(
      (e) => (events.value = { value: e.data }),
      (err: unknown) => (events.value = { ...events.peek(), error: err instanceof Failure ? err : new Failure("bad_answer", String(err)) }),
    );
  }, [ready, count]);
  return events.value;
}
