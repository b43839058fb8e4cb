// Phases of a request and classes of spans: which colour each takes, wherever it is drawn.
import type * as api from "../api/types";
import { CLASS_NAMES } from "../timeline/table";
import { CLASS_TOKENS } from "../timeline/colours";

const plain = (s: string) => s.toLowerCase().replace(/[^a-z0-9]+/g, " ").trim();
const SHORT: Record<string, string> = { p: "prefill", d: "decode" };
const TOKENS = new Map<string, string>();
CLASS_NAMES.forEach((n, i) => {
  const words = plain(n).split(" ");
  TOKENS.set(words.join(" "), CLASS_TOKENS[i] as string);
  if (words.length > 1 && SHORT[words[0] as string]) TOKENS.set([SHORT[words[0] as string], ...words.slice(1)].join(" "), CLASS_TOKENS[i] as string);
});
TOKENS.set("transfer", "--ph-d-transfer");
TOKENS.set("sync", "--ph-sync");
TOKENS.set("error", "--ph-error");
TOKENS.set("group", "--tl-group");

/** The colour of a class as the server names it; "" when no rule knows it. */
export function classToken(name: string): string {
  return TOKENS.get(plain(name)) ?? "";
}

/** The colour of a phase: of its class, else of its name, else the one of what has no family. */
export function phaseToken(p: Pick<api.RequestPhase, "class" | "name">): string {
  const byClass = classToken(p.class);
  return byClass && byClass !== "--tl-other" && byClass !== "--tl-group" ? byClass : classToken(p.name) || byClass || "--s7";
}

/** A bar of a phase within the whole, in shares of it. */
export interface PhaseBar {
  phase: api.RequestPhase;
  token: string;
  left: number;
  width: number;
  /** placed after the one before, because nobody said when it began */
  placed: boolean;
}

/**
 * Where each phase lies in a whole of total seconds that began at start (ms). Phases of depth 0 follow each
 * other where their start is not known; those within another begin with it, then follow each other.
 */
export function phaseBars(phases: readonly api.RequestPhase[], total: number, start: number): PhaseBar[] {
  const next: number[] = [0];
  if (!(total > 0)) return [];
  return phases.map((phase) => {
    const seconds = phase.seconds ?? 0;
    const said = phase.start ? (Date.parse(phase.start) - start) / 1000 : NaN;
    const at = Number.isFinite(said) ? said : (next[phase.depth] ?? next[phase.depth - 1] ?? 0);
    next[phase.depth] = at + seconds;
    next[phase.depth + 1] = at;
    next.length = phase.depth + 2;
    const left = Math.min(1, Math.max(0, at / total));
    return { phase, token: phaseToken(phase), left, width: Math.min(1 - left, Math.max(0, seconds / total)), placed: !Number.isFinite(said) };
  });
}

/** The stretches between 0 and 1 in which no phase of the first level lies, those of a pixel left out. */
export function gapsOf(bars: readonly { phase: api.RequestPhase; left: number; width: number }[]): [number, number][] {
  const own = bars.filter((b) => b.phase.depth === 0).sort((a, b) => a.left - b.left);
  const out: [number, number][] = [];
  let free = 0;
  for (const b of own) {
    if (b.left - free > 0.005) out.push([free, b.left]);
    free = Math.max(free, b.left + b.width);
  }
  if (1 - free > 0.005) out.push([free, 1]);
  return out;
}
