// Times as a person reads and writes them. Everything is UTC; instants are milliseconds since 1970.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n: number) => String(n).padStart(2, "0");

export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** "13:41", "13:41:07" */
export function clock(ms: number, seconds = false): string {
  const d = new Date(ms);
  const hm = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
  return seconds ? `${hm}:${two(d.getUTCSeconds())}` : hm;
}

/** "14 Jul" */
export function day(ms: number): string {
  const d = new Date(ms);
  return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()] ?? ""}`;
}

/** "14 Jul 13:41", with the year when it is not that of now */
export function dayClock(ms: number, now: number, seconds = false): string {
  const year = new Date(ms).getUTCFullYear();
  const y = year === new Date(now).getUTCFullYear() ? "" : ` ${year}`;
  return `${day(ms)}${y} ${clock(ms, seconds)}`;
}

/** The clock alone when the instant is within half a day of now, else with the day. */
export function since(ms: number, now: number): string {
  return Math.abs(now - ms) < DAY / 2 || sameDay(ms, now) ? clock(ms) : dayClock(ms, now);
}

export function sameDay(a: number, b: number): boolean {
  return Math.floor(a / DAY) === Math.floor(b / DAY);
}

/** "13:30 – 14:30 UTC", "14 Jul 13:30 – 15 Jul 01:30 UTC" */
export function rangeText(from: number, to: number, now: number): string {
  const seconds = to - from < 3 * MINUTE;
  if (sameDay(from, to) && sameDay(to, now)) return `${clock(from, seconds)} – ${clock(to, seconds)} UTC`;
  const right = sameDay(from, to) ? clock(to, seconds) : dayClock(to, now, seconds);
  return `${dayClock(from, now, seconds)} – ${right} UTC`;
}

/** A length of time in at most two units: "5 s", "4 min", "1 h 10 min", "2 d 3 h". */
export function duration(ms: number): string {
  const a = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (a < SECOND) return `${sign}${Math.round(a)} ms`;
  const s = Math.round(a / SECOND);
  if (s < 120) return `${sign}${s} s`;
  const min = Math.round(s / 60);
  if (min < 60) return s % 60 !== 0 && s < 600 ? `${sign}${Math.floor(s / 60)} min ${s % 60} s` : `${sign}${min} min`;
  if (min < 24 * 60) return `${sign}${Math.floor(min / 60)} h${min % 60 ? ` ${min % 60} min` : ""}`;
  const h = Math.round(min / 60);
  return `${sign}${Math.floor(h / 24)} d${h % 24 ? ` ${h % 24} h` : ""}`;
}

const UNIT: Record<string, number> = { ms: 1, s: SECOND, m: MINUTE, min: MINUTE, h: HOUR, d: DAY, w: 7 * DAY, y: 365 * DAY };

/** Reads "1h30m", "90s", "2 d", "15 min" into milliseconds; null when it is no length of time. */
export function parseDuration(text: string): number | null {
  const t = text.trim().toLowerCase();
  if (t === "") return null;
  const part = /(\d+(?:\.\d+)?)\s*(ms|min|[smhdwy])\s*/y;
  let total = 0;
  while (part.lastIndex < t.length) {
    const at = part.lastIndex;
    const m = part.exec(t);
    if (!m) return null;
    if (part.lastIndex === at) return null;
    total += Number(m[1]) * (UNIT[m[2] ?? ""] ?? NaN);
  }
  return total > 0 ? total : null;
}

/** Writes a length so that parseDuration and PromQL read it back: "1h30m", "15s". */
export function durationCode(ms: number): string {
  if (ms < SECOND) return `${Math.round(ms)}ms`;
  let rest = Math.round(ms / SECOND) * SECOND;
  let out = "";
  for (const u of ["d", "h", "m", "s"]) {
    const size = UNIT[u] as number;
    const n = Math.floor(rest / size);
    if (n > 0) out += `${n}${u}`;
    rest -= n * size;
  }
  return out;
}

/**
 * Reads an instant as a person types it: "now", "now-1h", "-15m", "13:30", "14 Jul 13:30",
 * "2026-07-14", "2026-07-14 13:30:05", RFC 3339, Unix seconds or milliseconds. A clock without a day is
 * the last such time before now. null when it is none of these.
 */
export function parseInstant(text: string, now: number): number | null {
  const t = text.trim().replace(/\s*utc$/i, "");
  if (t === "") return null;
  if (/^now$/i.test(t)) return now;
  const rel = /^(?:now)?\s*([-+])\s*(.+)$/i.exec(t);
  if (rel) {
    const d = parseDuration(rel[2] ?? "");
    return d === null ? null : now + (rel[1] === "-" ? -d : d);
  }
  if (/^\d{10}(\.\d+)?$/.test(t)) return Math.round(Number(t) * 1000);
  if (/^\d{13}$/.test(t)) return Number(t);
  const hm = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(t);
  if (hm) {
    const c = clockMs(hm[1], hm[2], hm[3]);
    if (c === null) return null;
    const today = Math.floor(now / DAY) * DAY + c;
    return today <= now + MINUTE ? today : today - DAY;
  }
  const named = /^(\d{1,2})\s+([a-z]{3})[a-z]*(?:\s+(\d{4}))?(?:[\s,]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?$/i.exec(t);
  if (named) {
    const month = MONTHS.findIndex((m) => m.toLowerCase() === (named[2] ?? "").toLowerCase());
    if (month < 0) return null;
    const year = named[3] ? Number(named[3]) : new Date(now).getUTCFullYear();
    const c = clockMs(named[4] ?? "0", named[5] ?? "0", named[6]);
    const d = dateMs(year, month, Number(named[1]));
    return c === null || d === null ? null : d + c;
  }
  const iso = /^(\d{4})-(\d{2})-(\d{2})(?:[T\s]+(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?$/i.exec(t);
  if (iso) {
    const d = dateMs(Number(iso[1]), Number(iso[2]) - 1, Number(iso[3]));
    const c = clockMs(iso[4] ?? "0", iso[5] ?? "0", iso[6]);
    if (d === null || c === null) return null;
    return d + c + Math.round(Number(iso[7] ?? 0) * 1000) - offsetMs(iso[8]);
  }
  return null;
}

function clockMs(h: string | undefined, m: string | undefined, s: string | undefined): number | null {
  const [hh, mm, ss] = [Number(h), Number(m), Number(s ?? 0)];
  if (hh > 24 || mm > 59 || ss > 59 || (hh === 24 && mm + ss > 0)) return null;
  return hh * HOUR + mm * MINUTE + ss * SECOND;
}

function dateMs(year: number, month: number, dayOfMonth: number): number | null {
  const ms = Date.UTC(year, month, dayOfMonth);
  const d = new Date(ms);
  return d.getUTCMonth() === month && d.getUTCDate() === dayOfMonth ? ms : null;
}

function offsetMs(zone: string | undefined): number {
  const m = /^([+-])(\d{2}):?(\d{2})$/.exec(zone ?? "");
  if (!m) return 0;
  return (m[1] === "-" ? -1 : 1) * (Number(m[2]) * HOUR + Number(m[3]) * MINUTE);
}

/** An instant as the URL and the input fields hold it: whole seconds where that is exact. */
export function instantCode(ms: number): string {
  return new Date(ms).toISOString().replace(".000Z", "Z");
}

/** Reads the API's RFC 3339 times (nanoseconds are cut to ms); NaN of null or rubbish. */
export function parseApiTime(text: string | null | undefined): number {
  return text ? Date.parse(text.replace(/(\.\d{3})\d+/, "$1")) : NaN;
}
