// Answers for tests.
import type * as api from "../api/types";

/** An answer with one pass a line: rank, time, wall, flags, missing, prefill requests, decode requests. */
export function answer(ranks: [string, number][], lines: number[][]): api.PassColumns {
  const col = (i: number) => lines.map((l) => l[i] ?? 0);
  const none = lines.map(() => 0);
  return {
    next: "", gone: 0, more: false, ranks: ranks.map(([engine, rank]) => ({ engine, name: engine, rank })), rank: col(0), time_ms: col(1), wall_ms: col(2), flags: col(3), missing: col(4),
    prefill_requests: col(5), prefill_tokens: col(5).map((n) => n * 100), prefill_kv_tokens: none, decode_requests: col(6), decode_kv_tokens: none,
    queued_prefill_requests: none, queued_prefill_tokens: none, queued_decode_requests: none, queued_decode_kv_tokens: none,
  };
}
