// What the server knows about signals, metrics and boards: loaded once, when first needed.
import { computed, signal } from "@preact/signals";
import { Failure, get } from "../api/client";
import type * as api from "../api/types";
import { win } from "./live";

interface Once<T> {
  value?: T;
  error?: Failure;
}

/** A signal that loads itself on first use and again when use comes a minute after a failure. */
function once<T>(load: () => Promise<T>): { state: () => Once<T>; reload: () => void } {
  const s = signal<Once<T>>({});
  let asked = 0;
  const reload = () => {
    asked = Date.now();
    load().then(
      (value) => (s.value = { value }),
      (err: unknown) => (s.value = { ...s.peek(), error: err instanceof Failure ? err : new Failure("bad_answer", String(err)) }),
    );
  };
  return {
    state: () => {
      if (!s.value.value && Date.now() - asked > 60_000) queueMicrotask(() => Date.now() - asked > 60_000 && reload());
      return s.value;
    },
    reload,
  };
}

const signalList = once(async () => (await get<api.SignalInfo[]>("/signals")).data);
const boardList = once(async () => (await get<api.Board[]>("/boards")).data);
const metricList = once(async () => {
  const w = win.peek();
  return (await get<api.MetricInfo[]>("/metrics-catalog", { from: new Date(w.from).toISOString(), to: new Date(w.to).toISOString() })).data;
});

export const signals = computed(() => signalList.state());
export const boards = computed(() => boardList.state());
export const metrics = computed(() => metricList.state());
export const reloadMetrics = metricList.reload;

const byID = computed(() => new Map((signals.value.value ?? []).map((s) => [s.id, s])));
/** A signal's entry; undefined while the catalog is not there. */
export const signalInfo = (id: string): api.SignalInfo | undefined => byID.value.get(id);
