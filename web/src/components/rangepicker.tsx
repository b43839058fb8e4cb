// The window in time: presets, typed instants, the whole recording, and how often a live page loads.
import { useSignal } from "@preact/signals";
import { duration, parseInstant, rangeText, since } from "../format/time";
import { canLive, dataRange, isArchive, now, range, win } from "../state/live";
import { fixed } from "../state/route";
import { change, setRange, view } from "../state/view";
import { Popover } from "./popover";

const PRESETS = ["5m", "15m", "30m", "1h", "3h", "6h", "12h", "24h", "2d", "7d", "30d", "90d"];
const MINUTES: Record<string, number> = { m: 1, h: 60, d: 1440 };
const EVERY = [2, 5, 10, 30, 60];

const presetMs = (p: string) => Number(p.slice(0, -1)) * (MINUTES[p.slice(-1)] ?? 1) * 60_000;

export function RangePicker() {
  const open = useSignal(false);
  const w = win.value;
  const r = range.value;
  const length = r.kind === "data" ? "all data" : duration(r.kind === "last" ? r.ms : w.to - w.from);
  return (
    <div class="anchor">
      <button type="button" class="btn range" aria-haspopup="dialog" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <span class="range-abs">{rangeText(w.from, w.to, now())}</span>
        <span class="range-dot"> · </span>
        {length} ▾
      </button>
      {open.value && (
        <Popover label="time range" class="pop-range" onClose={() => (open.value = false)}>
          <Picker close={() => (open.value = false)} />
        </Popover>
      )}
    </div>
  );
}

function Picker({ close }: { close: () => void }) {
  const w = win.value;
  const from = useSignal(new Date(w.from).toISOString().slice(0, 19).replace("T", " "));
  const to = useSignal(new Date(w.to).toISOString().slice(0, 19).replace("T", " "));
  const data = dataRange.value;
  const r = range.value;
  const f = parseInstant(from.value, now());
  const t = parseInstant(to.value, now());
  const problem =
    f === null ? `“${from.value}” is no time` : t === null ? `“${to.value}” is no time` : t <= f ? "the end is not after the beginning" : "";
  const apply = (e: Event) => {
    e.preventDefault();
    if (problem || f === null || t === null) return;
    setRange(fixed(f, t));
    close();
  };
  const pick = (next: typeof r) => {
    setRange(next);
    close();
  };
  return (
    <>
      <div class="pick-presets" role="group" aria-label="the last">
        <h3>{isArchive.value ? "Before the end" : "The last"}</h3>
        <div class="pick-grid">
          {PRESETS.map((p) => {
            const ms = presetMs(p);
            const on = r.kind === "last" && r.ms === ms;
            return (
              <button
                type="button"
                key={p}
                class={on ? "chip on" : "chip"}
                aria-pressed={on}
                onClick={() => pick(isArchive.value && Number.isFinite(data.to) ? fixed(data.to - ms, data.to) : { kind: "last", ms })}
              >
                {duration(ms)}
              </button>
            );
          })}
        </div>
        {Number.isFinite(data.from) && (
          <button type="button" class={r.kind === "data" ? "chip wide on" : "chip wide"} onClick={() => pick({ kind: "data" })}>
            all data <span class="mut">since {since(data.from, now())}</span>
          </button>
        )}
      </div>
      <form class="pick-abs" onSubmit={apply}>
        <h3>From … to, UTC</h3>
        <label>
          from
          <input data-autofocus type="text" spellcheck={false} autocomplete="off" value={from.value} onInput={(e) => (from.value = e.currentTarget.value)} />
        </label>
        <label>
          to
          <input type="text" spellcheck={false} autocomplete="off" value={to.value} onInput={(e) => (to.value = e.currentTarget.value)} />
        </label>
        <p class={problem ? "pick-problem" : "mut"}>{problem || "13:30 · 14 Jul 13:30 · 2026-07-14 · now-90m · Unix time"}</p>
        <button type="submit" class="btn on" disabled={problem !== ""}>
          Show {problem || f === null || t === null ? "" : duration(t - f)}
        </button>
        {canLive.value && (
          <fieldset>
            <legend>Live, every</legend>
            {EVERY.map((s) => (
              <button type="button" key={s} class={view.value.every === s ? "chip on" : "chip"} aria-pressed={view.value.every === s} onClick={() => change({ every: s }, "replace")}>
                {s} s
              </button>
            ))}
          </fieldset>
        )}
      </form>
    </>
  );
}
