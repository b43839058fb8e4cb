// What the server says of forward passes: asked for by the pages of engines, as often as they load.
import { get } from "../api/client";
import type * as api from "../api/types";
import { useResource, type Resource } from "./resource";

export const usePasses = (): Resource<api.Envelope<api.ForwardPasses>> =>
  useResource("passes", "", (abort) => get<api.ForwardPasses>("/passes", {}, abort));

/** Whether there is anything to look at: a source, or passes that were kept. */
export function hasPasses(p: api.ForwardPasses | undefined): boolean {
  return p !== undefined && (hasEngines(p) || (p.bursts ?? []).length > 0 || p.rows.stored > 0);
}

/** Whether the planner can be asked: passes come in, or a recording tells what its engines did. */
export const hasEngines = (p: api.ForwardPasses | undefined): boolean => p !== undefined && (p.enabled || (p.engines ?? []).length > 0);

/** Sources whose engine works while nothing of it is seen. */
export const alarms = (p: api.ForwardPasses | undefined): api.PassSource[] => (p?.sources ?? []).filter((s) => s.alarm);
