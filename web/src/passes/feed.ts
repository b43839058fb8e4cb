// Passes as they come: the page asks four times a second for what is new, and tells the server's clock from
// the times in the answers. What it missed and since when it hears nothing is kept beside the passes.
import { Failure, apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { now } from "../state/live";
import { PassClock, sound, within } from "./columns";
import type { PassSet, RankRow } from "./ring";

const EVERY_MS = 250, PAUSED_MS = 1000, LIMIT = 20_000;
/** The picture's right edge lies so far in the past that what belongs there has come. */
const BEHIND_MS = 600;

export class Feed {
  error: Failure | undefined;
  /** our clock, since when it hears nothing; 0 while it does */
  failingSince = 0;
  /** passes that went out of the server's memory before this page asked for them */
  gone = 0;
  goneAt = 0;
  /** an answer came */
  heard = false;
  paused = false;
  private after = "";
  private readonly clock = new PassClock();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort: AbortController | undefined;
  private frozen = NaN;

  constructor(private readonly set: PassSet, private readonly touched: (row: RankRow, from: number) => void, private readonly said: () => void) {}

  start(): void {
    if (!this.timer && !this.abort) this.ask();
  }
  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.abort?.abort();
    this.abort = undefined;
  }

  /** The instant at the right edge of a picture that follows; it stands still while nothing is heard. */
  head(): number {
    const t = this.clock.at(Date.now(), now()) - BEHIND_MS;
    return this.failingSince > 0 && !Number.isNaN(this.frozen) ? Math.min(t, this.frozen) : t;
  }

  private ask(): void {
    this.timer = undefined;
    const abort = new AbortController();
    this.abort = abort;
    get<api.PassColumns>("/passes/live", { after: this.after, limit: LIMIT }, abort.signal).then(
      (e) => {
        if (!abort.signal.aborted) this.took(sound(e.data));
      },
      (err: unknown) => {
        if (abort.signal.aborted) return;
        const f = err instanceof Failure ? err : new Failure("bad_answer", err instanceof Error ? err.message : String(err));
        // A server that began anew does not know the place any more: the newest it has will do.
        if (f.code === "bad_parameter" && this.after !== "") {
          this.after = "";
          this.again(0);
          return;
        }
        if (this.failingSince === 0) {
          this.frozen = this.head();
          this.failingSince = Date.now();
        }
        this.error = f;
        this.said();
        this.again(f.code === "not_enabled" ? 5000 : PAUSED_MS);
      },
    );
  }

  private took(c: api.PassColumns): void {
    const again = this.after === "";
    this.set.add(c, c.gone > 0 || (again && this.set.passes > 0), this.touched);
    if (!again && c.time_ms.length > 0) this.clock.saw(this.set.newest, Date.now());
    if (c.gone > 0) {
      this.gone += c.gone;
      this.goneAt = now();
    }
    this.after = c.next || this.after;
    this.error = undefined;
    this.failingSince = 0;
    this.heard = true;
    this.said();
    this.again(c.more ? 0 : this.paused ? PAUSED_MS : EVERY_MS);
  }

  private again(ms: number): void {
    this.abort = undefined;
    this.timer = setTimeout(() => this.ask(), ms);
  }
}

/** Pages of stored passes that are asked for at most. */
const PAGES = 6;

/** Stored passes of a time, the newest of them when there are too many; from is when those that came begin. */
export async function storedPasses(from: number, to: number, engine: string, abort: AbortSignal): Promise<{ columns: api.PassColumns[]; from: number }> {
  const columns: api.PassColumns[] = [];
  let end = to;
  for (let i = 0; i < PAGES; i++) {
    const c = sound((await get<api.PassColumns>("/passes/rows", { from: apiTime(from), to: apiTime(end), engine, limit: LIMIT }, abort)).data);
    const earliest = c.time_ms.reduce((a, b) => Math.min(a, b), Infinity);
    // The next page ends at a whole millisecond; what this one has before it comes again there.
    const cut = c.more ? Math.ceil(earliest) : -Infinity;
    columns.unshift(within(c, cut, end));
    if (!c.more || cut <= from || cut >= end) return { columns, from: c.more ? Math.max(from, cut) : from };
    end = cut;
  }
  return { columns, from: end };
}
