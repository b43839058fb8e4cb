// Requests to the server the page came from, and nowhere else. Every answer is an Envelope or a Failure
// that says what failed, where and what to do.
import type * as api from "./types";

export const API = "/api/rollscope/v1";
const TIMEOUT_MS = 30_000;

/** A request that did not give data. */
export class Failure extends Error {
  override name = "Failure";
  constructor(
    /** stable code: the API's, or "unreachable", "timeout", "bad_answer" */
    readonly code: string,
    message: string,
    readonly where = "",
    readonly hint = "",
    readonly status = 0,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | undefined>;

/** A path with a query; parameters that are undefined or "" are left out. */
export function url(path: string, query: Query = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "") q.set(k, String(v));
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

/** Milliseconds since 1970 as the API's from and to. */
export function apiTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** Fetches JSON, whatever the status. Aborting rejects with the signal's reason; everything else with a Failure. */
export async function fetchJSON(address: string, signal?: AbortSignal, init: RequestInit = {}): Promise<{ status: number; body: unknown }> {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const path = address.split("?")[0] ?? address;
  let response: Response;
  let text: string;
  try {
    response = await fetch(address, {
      ...init,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      credentials: "same-origin",
      headers: { Accept: "application/json", ...init.headers },
    });
    text = await response.text();
  } catch (err) {
    if (signal?.aborted) throw err;
    if (limit.aborted) {
      throw new Failure("timeout", `no answer within ${TIMEOUT_MS / 1000} s`, path, "a shorter range or a longer step asks for less");
    }
    throw new Failure("unreachable", "the server does not answer", location.host, "is rollscope still running? A tunnel may be closed");
  }
  try {
    return { status: response.status, body: JSON.parse(text) };
  } catch {
    const what = response.ok ? "the answer is no JSON" : `HTTP ${response.status} ${response.statusText}`.trim();
    throw new Failure("bad_answer", what, path, response.status === 404 ? "page and server are of different versions: reload the page" : "", response.status);
  }
}

/** Asks Rollscope's own API. */
export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<api.Envelope<T>> {
  const { status, body } = await fetchJSON(url(API + path, query), signal);
  if (isErrorBody(body)) {
    const e = body.error;
    throw new Failure(e.code, e.message, e.where ?? path, e.hint ?? "", status);
  }
  if (status >= 400 || body === null || typeof body !== "object" || !("data" in body)) {
    throw new Failure("bad_answer", `HTTP ${status} without data`, path, "", status);
  }
  const envelope = body as api.Envelope<T>;
  return { ...envelope, warnings: envelope.warnings ?? [], dropped: envelope.dropped ?? [] };
}

function isErrorBody(body: unknown): body is api.ErrorBody {
  if (body === null || typeof body !== "object" || !("error" in body)) return false;
  const e = body.error;
  return e !== null && typeof e === "object" && "message" in e;
}

/** The path of one engine; its id holds slashes and anything else a job may be called. */
export function enginePath(id: string): string {
  return `/engines/${encodeURIComponent(id)}`;
}
