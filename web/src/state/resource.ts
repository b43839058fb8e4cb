// Data that a component needs, loaded again on every tick. The last good data stays while new data is on
// its way or fails, and carries its age.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failure } from "../api/client";
import { heard, isReady, tick } from "./live";

export interface Resource<T> {
  value?: T;
  /** our clock, when value came; 0 never */
  at: number;
  error?: Failure;
  /** our clock, since when loading fails; 0 while it does not */
  failingSince: number;
  /** something that the person asked for is on its way; a live refresh is not shown */
  loading: boolean;
}

const EMPTY: Resource<never> = { at: 0, failingSince: 0, loading: false };

/**
 * Loads with load. identity is what is looked at (an engine, a query): when it changes the old data goes.
 * params is how (the window): when it changes the old data stays until the new is there. A null identity
 * loads nothing. With hold, what is loaded stays as it is until hold ends (a panel out of sight); "ever" loads
 * only once.
 */
export function useResource<T>(
  identity: string | null,
  params: string,
  load: (signal: AbortSignal) => Promise<T>,
  hold: boolean | "ever" = false,
): Resource<T> {
  const [state, setState] = useState<{ identity: string | null; res: Resource<T> }>({ identity, res: EMPTY });
  const flight = useRef<{ identity: string; key: string; abort: AbortController } | null>(null);
  const lastCount = useRef(-1);
  const latest = useRef(load);
  latest.current = load;
  const ready = isReady.value;
  const count = hold === "ever" ? 0 : tick.value;
  const key = `${identity}\n${params}`;

  useEffect(() => {
    if (identity === null || !ready) return;
    if (hold === true && state.identity === identity && state.res.value !== undefined) return;
    const running = flight.current;
    const byTick = lastCount.current >= 0 && lastCount.current !== count;
    lastCount.current = count;
    // A tick does not stop what is under way: a slow server would never get to answer.
    if (running && (running.key === key || (byTick && running.identity === identity))) return;
    running?.abort.abort();
    const abort = new AbortController();
    flight.current = { identity, key, abort };
    setState((s) => {
      const res = s.identity === identity ? s.res : (EMPTY as Resource<T>);
      return { identity, res: { ...res, loading: !byTick || res.value === undefined } };
    });
    latest.current(abort.signal).then(
      (value) => {
        if (abort.signal.aborted) return;
        flight.current = null;
        heard();
        setState({ identity, res: { value, at: Date.now(), failingSince: 0, loading: false } });
      },
      (err: unknown) => {
        if (abort.signal.aborted) return;
        flight.current = null;
        const error = err instanceof Failure ? err : new Failure("bad_answer", err instanceof Error ? err.message : String(err));
        if (error.code !== "unreachable" && error.code !== "timeout") heard();
        setState((s) => ({
          identity,
          res: { ...s.res, error, failingSince: s.res.failingSince || Date.now(), loading: false },
        }));
      },
    );
  }, [key, ready, hold === true ? -1 : count]);

  useEffect(() => () => flight.current?.abort.abort(), []);
  return state.identity === identity ? state.res : { ...(EMPTY as Resource<T>), loading: identity !== null };
}

/**
 * A resource of what f makes of another's data, made anew only when the data or one of deps changes: charts
 * are painted again when their model is another object.
 */
export function useMapped<T, U>(r: Resource<T>, f: (value: T) => U | undefined, deps: readonly unknown[]): Resource<U> {
  const { value, ...rest } = r;
  const v = useMemo(() => (value === undefined ? undefined : f(value)), [value, ...deps]);
  return v === undefined ? rest : { ...rest, value: v };
}
