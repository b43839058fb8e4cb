// Answers with passes as columns: made sound, cut by time, and what they tell of the server's clock. Pure.
import type * as api from "../api/types";

/** An answer as the page may rely on it: a list that is nothing comes as null from some. */
export function sound(c: api.PassColumns): api.PassColumns {
  const list = <T>(v: T[] | null | undefined): T[] => v ?? [];
  return {
    next: c.next ?? "", gone: c.gone ?? 0, more: c.more ?? false, ranks: list(c.ranks), rank: list(c.rank), time_ms: list(c.time_ms), wall_ms: list(c.wall_ms), flags: list(c.flags),
    missing: list(c.missing), prefill_requests: list(c.prefill_requests), prefill_tokens: list(c.prefill_tokens), prefill_kv_tokens: list(c.prefill_kv_tokens),
    decode_requests: list(c.decode_requests), decode_kv_tokens: list(c.decode_kv_tokens), queued_prefill_requests: list(c.queued_prefill_requests),
    queued_prefill_tokens: list(c.queued_prefill_tokens), queued_decode_requests: list(c.queued_decode_requests), queued_decode_kv_tokens: list(c.queued_decode_kv_tokens),
  };
}

/** Answers of so many ms tell the clock. */
const CLOCK_MS = 10_000;

/** The server's clock less ours, as the newest passes tell it: the least delayed answer of the last seconds is nearest to it. */
export class PassClock {
  private best = NaN;
  private next = NaN;
  private since = 0;

  /** A pass of the time was seen at our time. */
  saw(time: number, at: number): void {
    const d = time - at;
    if (at - this.since > CLOCK_MS) {
      this.best = this.next;
      this.next = NaN;
      this.since = at;
    }
    if (!(this.next >= d)) this.next = d;
    if (!(this.best >= d)) this.best = d;
  }
  /** The server's time at our time; fallback is what else tells it. */
  at(ours: number, fallback: number): number {
    return Number.isNaN(this.best) ? fallback : ours + this.best;
  }
}

/** The passes of a <= time < b. */
export function within(c: api.PassColumns, a: number, b: number): api.PassColumns {
  if (c.time_ms.every((t) => t >= a && t < b)) return c;
  const keep = c.time_ms.map((t) => t >= a && t < b);
  const cut = <T>(v: T[]): T[] => v.filter((_, i) => keep[i]);
  return {
    ...c, rank: cut(c.rank), time_ms: cut(c.time_ms), wall_ms: cut(c.wall_ms), flags: cut(c.flags), missing: cut(c.missing),
    prefill_requests: cut(c.prefill_requests), prefill_tokens: cut(c.prefill_tokens), prefill_kv_tokens: cut(c.prefill_kv_tokens), decode_requests: cut(c.decode_requests), decode_kv_tokens: cut(c.decode_kv_tokens),
    queued_prefill_requests: cut(c.queued_prefill_requests), queued_prefill_tokens: cut(c.queued_prefill_tokens), queued_decode_requests: cut(c.queued_decode_requests), queued_decode_kv_tokens: cut(c.queued_decode_kv_tokens),
  };
}
