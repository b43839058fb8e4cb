// What the server says of forward passes: asked for by the pages of engines, as often as they load.
import { get } from "../api/client";
import type * as api from "../api/types";
import { useResource, type Resource } from "./resource";

export const usePasses = (): Resource<api.Envelope<api.ForwardPasses>> =>
  useResource("passes", "", (abort) => get<api.ForwardPasses>("/passes", {}, abort));

/** Whether there is anything to look at: a source, or passes that were kept. */
export function hasPasses(p: api.ForwardPasses | undefined): boolean {
  return p !== undefined && (p.enabled || (p.bursts ?? []).length > 0 || p.rows.keep !== "off");
}

/** Sources whose engine works while nothing of it is seen. */
export const alarms = (p: api.ForwardPasses | undefined): api.PassSource[] => (p?.sources ?? []).filter((s) => s.alarm);
