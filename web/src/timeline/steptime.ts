// Where a step's time went, as the head of a container says it: parts that add up to the wall time.

export interface Part {
  name: string;
  label: string;
  token: string;
  hatched: boolean;
  seconds: number;
}

export interface StepTime {
  wall: number;
  parts: Part[];
  /** seconds that no part explains; part of parts */
  unexplained: number;
  abortedTokens: number;
  abortedShare: number | null;
  abortedSamples: number;
  /** aborted requests of which it is not known what became of their tokens */
  abortedUnknown: number;
  /** the samples that ended last; end is seconds after the step's start, over its end over the median's in seconds */
  held: { row: number; sample: number | null; because: string; becauseSeconds: number; end: number; over: number }[];
  notes: string[];
}

const KNOWN: Record<string, [string, string, boolean?]> = {
  queue: ["queue", "--ph-queue"], prefill: ["prefill", "--ph-p-forward"], transfer: ["transfer", "--ph-d-transfer"], decode: ["decode", "--ph-d-forward"],
  generate: ["generate", "--tl-generate"], tool: ["tools", "--ph-tool"], tools: ["tools", "--ph-tool"], reward: ["reward", "--ph-reward"],
  straggler: ["waiting for stragglers", "--ph-wait", true], wait: ["waiting for stragglers", "--ph-wait", true], sync: ["weight sync", "--ph-sync"],
  other: ["other", "--tl-other"], gap: ["between spans", "--s7", true], idle: ["between spans", "--s7", true], unexplained: ["unexplained", "--hatch", true],
};

/** Reads head.step; null when it says nothing that can be drawn. */
export function readStep(step: unknown): StepTime | null {
  if (step === null || typeof step !== "object") return null;
  const s = step as Record<string, unknown>;
  if (s["known"] === false) return null;
  const number = (v: unknown): number => {
    if (typeof v === "number") return v;
    if (v !== null && typeof v === "object" && typeof (v as { value?: unknown }).value === "number") return (v as { value: number }).value;
    return NaN;
  };
  const first = (...keys: string[]) => keys.map((k) => number(s[k])).find((v) => !Number.isNaN(v)) ?? NaN;
  const raw = Array.isArray(s["parts"]) ? (s["parts"] as Record<string, unknown>[]) : [];
  const parts: Part[] = [];
  for (const p of raw) {
    if (p === null || typeof p !== "object") continue;
    const seconds = number(p["seconds"]);
    const name = String(p["name"] ?? p["part"] ?? "");
    if (!(seconds > 0) || name === "") continue;
    const [label, token, hatched] = KNOWN[name] ?? [name, "--s7"];
    parts.push({ name, label, token, hatched: hatched === true, seconds });
  }
  const sum = parts.reduce((a, p) => a + p.seconds, 0);
  let wall = first("wall_seconds", "wall", "seconds");
  if (!(wall > 0)) wall = sum;
  if (!(wall > 0)) return null;
  if (wall - sum > 0.0005 * wall && !parts.some((p) => p.name === "unexplained")) parts.push({ name: "unexplained", label: "unexplained", token: "--hatch", hatched: true, seconds: wall - sum });
  const held = (Array.isArray(s["held"]) ? (s["held"] as unknown[]) : []).flatMap((h) => {
    if (h === null || typeof h !== "object") return [];
    const o = h as Record<string, unknown>;
    const row = number(o["row"]);
    return Number.isInteger(row) ? [{ row, sample: Number.isNaN(number(o["sample"])) ? null : number(o["sample"]), because: typeof o["because"] === "string" ? (KNOWN[o["because"]]?.[0] ?? o["because"]) : "", becauseSeconds: number(o["because_seconds"]), end: number(o["end_seconds"]), over: number(o["over_median"]) }] : [];
  });
  const lost = (s["aborted"] ?? {}) as Record<string, unknown>;
  const tokens = number(lost["tokens"]), generated = number(lost["generated_tokens"]);
  const some = (v: number) => (v > 0 ? v : 0);
  return {
    wall, parts, unexplained: parts.find((p) => p.name === "unexplained")?.seconds ?? 0, abortedTokens: some(tokens), abortedShare: generated > 0 && tokens >= 0 ? tokens / generated : null,
    abortedSamples: some(number(lost["samples"])), abortedUnknown: some(number(lost["unknown_requests"])), held,
    notes: Array.isArray(s["notes"]) ? (s["notes"] as unknown[]).filter((n): n is string => typeof n === "string") : [],
  };
}

/** Start and end of the step, microseconds from head.t0, when the step says so. */
export function stepBounds(step: unknown, t0: string): [number, number] | null {
  if (step === null || typeof step !== "object") return null;
  const { known, start_ns, end_ns } = step as Record<string, unknown>;
  if (known === false || typeof start_ns !== "string" || typeof end_ns !== "string") return null;
  try {
    const base = BigInt(t0);
    const a = Number(BigInt(start_ns) - base) / 1000, b = Number(BigInt(end_ns) - base) / 1000;
    return b >= a ? [a, b] : null;
  } catch {
    return null;
  }
}
