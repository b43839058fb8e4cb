// What was last seen of the fleet, for the shell: search over engines, counts in the nav.
import { computed, signal } from "@preact/signals";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { withInstances } from "./filter";
import { win } from "./live";

/** Engines of the last answer that had all of them; undefined before. */
export const engineList = signal<api.Engine[] | undefined>(undefined);
/** Alerts that fire or are pending, worst first. */
export const alertList = signal<api.Alert[] | undefined>(undefined);

/** Loads the list for the search, on pages that have not. */
export async function needEngines(): Promise<void> {
  if (engineList.peek()) return;
  const w = win.peek();
  engineList.value = (await get<api.Engines>("/engines", { from: apiTime(w.from), to: apiTime(w.to) })).data.engines;
}

const byInstance = computed(() => new Map((engineList.value ?? []).map((e) => [e.instance, e])));
/** The engine that HOST:PORT is of; undefined when none or not known yet. */
export const engineAt = (instance: string): api.Engine | undefined => byInstance.value.get(instance);
const byName = computed(() => new Map((engineList.value ?? []).map((e) => [e.name, e.instance])));
/** A filter of requests as the server takes it, which knows engines by HOST:PORT alone. */
export const servedFilter = (filter: string): string => withInstances(filter, (name) => byName.value.get(name));
/** How an engine is called: by its name where it has one, else as it was given. */
export const engineName = (instance: string): string => byInstance.value.get(instance)?.name ?? instance;
/** The engine that a series' labels belong to; undefined when none or not known yet. */
export const engineOf = (labels: Record<string, string>): api.Engine | undefined => byInstance.value.get(labels["instance"] ?? "");
