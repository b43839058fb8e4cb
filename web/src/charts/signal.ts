// A signal's data for a component: asked for by window, grouping and engine.
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { useResource, type Resource } from "../state/resource";
import type { Window } from "../state/route";

export interface SignalQuery {
  by?: "fleet" | "engine" | "role" | "model" | undefined;
  /** id of the one engine */
  engine?: string | undefined;
  quantiles?: readonly number[] | undefined;
}

/** Loads a signal over a window; a null id loads nothing. */
export function useSignalData(id: string | null, w: Window, q: SignalQuery = {}, hold = false): Resource<api.Envelope<api.SignalData>> {
  const ask = `${q.by ?? ""} ${q.engine ?? ""} ${(q.quantiles ?? []).join(",")}`;
  return useResource(id === null ? null : `signal ${id} ${ask}`, `${w.from} ${w.to} ${w.step}`, (abort) =>
    get<api.SignalData>(
      `/signals/${encodeURIComponent(id ?? "")}`,
      {
        from: apiTime(w.from), to: apiTime(w.to), step: w.step / 1000,
        by: q.by, engine: q.engine, quantiles: q.quantiles?.length ? q.quantiles.join(",") : undefined,
      },
      abort,
    ),
    hold,
  );
}
