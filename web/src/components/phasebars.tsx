// The phases of a request as bars in its time: nested, each with its length and who said it, and below them
// what lies in none.
import type * as api from "../api/types";
import { gapsOf, phaseBars } from "../charts/phases";
import { length } from "../timeline/axis";

const seconds = (s: number) => length(s * 1e6);

export interface PhaseBarsProps {
  phases: api.RequestPhase[];
  /** seconds of the whole; null unknown */
  total: number | null;
  /** ms since 1970 of the beginning */
  start: number;
  rest: number | null;
}

export function PhaseBars({ phases, total, start, rest }: PhaseBarsProps) {
  const own = phases.filter((p) => p.depth === 0).reduce((a, p) => a + (p.seconds ?? 0), 0);
  const whole = total ?? own + (rest ?? 0);
  if (phases.length === 0 || !(whole > 0)) {
    return <p class="calm">{phases.length === 0 ? "No phase is known: neither its spans, nor its log lines, nor a dump say where its time went." : "How long it took is unknown."}</p>;
  }
  const bars = phaseBars(phases, whole, start);
  const beside = own + (rest ?? 0) > whole * 1.001;
  const share = (v: number | null) => (v === null ? "" : shareText(v / whole));
  return (
    <div class="phases" role="table" aria-label="phases">
      {bars.map(({ phase: p, token, left, width, placed }, i) => (
        <div class="phase" role="row" key={i} title={`${p.name}: ${p.seconds === null ? "unknown" : seconds(p.seconds)}, said by ${p.from || "nobody"}${placed ? "; when it began is not said, it is drawn after the one before" : ""}`}>
          <span class={p.depth > 0 ? "phase-name in" : "phase-name"} role="rowheader" style={p.depth > 1 ? { paddingLeft: `${p.depth * 8}px` } : {}}>{words(p.name)}</span>
          <span class="phase-track" role="presentation"><i class={p.depth > 0 ? "held" : ""} style={{ "--c": `var(${token})`, left: `${left * 100}%`, width: `${width * 100}%` }} /></span>
          <span class="n" role="cell">{p.seconds === null ? <span class="mut">unknown</span> : seconds(p.seconds)}</span>
          <span class="n mut" role="cell">{share(p.seconds)}</span>
        </div>
      ))}
      {rest !== null && (
        <div class="phase rest" role="row" title="of the whole, in no phase that anybody named">
          <span class="phase-name" role="rowheader">unattributed</span>
          <span class="phase-track" role="presentation">{gapsOf(bars).map(([from, to], i) => <i key={i} class="striped" style={{ "--c": "var(--hatch)", left: `${from * 100}%`, width: `${(to - from) * 100}%` }} />)}</span>
          <span class="n" role="cell">{seconds(rest)}</span>
          <span class="n mut" role="cell">{share(rest)}</span>
        </div>
      )}
      <div class="phase sum" role="row">
        <span class="phase-name" role="rowheader">{total === null ? "sum" : "whole"}</span>
        <span class="phase-track" role="presentation" />
        <span class="n" role="cell"><b>{seconds(whole)}</b></span>
        <span class="n mut" role="cell">{rest === null || beside ? "" : "100 %"}</span>
      </div>
      {beside && <p class="mut">Some of it went on at the same time, so the phases are more than the whole.</p>}
    </div>
  );
}

/** A share in a column of shares: tenths of a percent are the finest that one reads. */
export function shareText(share: number): string {
  const p = share * 100;
  return p !== 0 && Math.abs(p) < 0.1 ? "< 0.1 %" : `${p.toFixed(Math.abs(p) >= 99.95 ? 0 : 1)} %`;
}

/** A phase's name for the reader. */
export const words = (name: string): string => name.replace(/_/g, " ");
