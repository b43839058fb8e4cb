// Where the step's time went: parts that add up, with their sum, the total and what is left unexplained.
import { grouped } from "../format/number";
import type { Model } from "./model";
import { readStep } from "./steptime";
import { ROW_HELD } from "./table";

export function WhereBar({ model }: { model: Model }) {
  const pane = model.pane;
  const s = readStep(pane.source.head.step);
  if (!s) return null;
  const sum = s.parts.reduce((a, p) => a + (p.name === "unexplained" ? 0 : p.seconds), 0);
  const digits = s.wall < 10 ? 3 : 1;
  const held = s.held.length > 0 ? s.held : heldRows(model);
  return (
    <section class="panel tl-where" aria-label="where the time went">
      <header class="panel-h">
        <h2>Where the time went</h2>
        <span class="u" data-role="sum">s of step wall time · parts add up to {grouped(sum, digits)} of {grouped(s.wall, digits)} s ({((sum / s.wall) * 100).toFixed(1)} %)</span>
        <span class="sp" />
        <span class="sec tl-held">
          {s.abortedTokens > 0 && <>aborted attempts threw away <b>{grouped(s.abortedTokens, 0)} tokens</b>{s.abortedShare !== null && ` (${(s.abortedShare * 100).toFixed(1)} %)`}</>}
          {s.abortedTokens > 0 && held.length > 0 && " · "}
          {held.length > 0 && <>held by samples{" "}
            {held.slice(0, 3).map((h) => (
              <button key={h.row} type="button" class="tl-link" title={h.because ? `ended ${h.end.toFixed(1)} s after the step began; most of it ${h.because}, ${h.becauseSeconds.toFixed(1)} s` : ""} onClick={() => {
                model.select(pane, h.row);
                model.reveal(pane, h.row);
              }}>{h.sample !== null ? `#${h.sample}` : nameOf(model, h.row)}</button>
            ))}
            {held.length > 3 && <button type="button" class="tl-link" onClick={() => model.set({ filter: "flag:held" })}>+{held.length - 3}</button>}</>}
        </span>
      </header>
      <div class="tl-stack" role="img" aria-label={s.parts.map((p) => `${p.label} ${p.seconds.toFixed(digits)} s`).join(", ")}>
        {s.parts.map((p) => <i key={p.name} class={p.hatched ? "hatched" : ""} style={{ flexGrow: String(p.seconds), "--c": `var(${p.token})` }} title={`${p.label}: ${grouped(p.seconds, digits)} s, ${((p.seconds / s.wall) * 100).toFixed(1)} %`} />)}
      </div>
      <ul class="tl-parts">
        {s.parts.map((p) => <li key={p.name}><i class={p.hatched ? "tl-box hatched" : "tl-box"} style={{ "--c": `var(${p.token})` }} aria-hidden="true" /><span class="sec">{p.label}</span> <b>{grouped(p.seconds, digits)} s</b> <span class="mut">{((p.seconds / s.wall) * 100).toFixed(1)} %</span></li>)}
      </ul>
      {s.notes.map((n) => <p key={n} class="u">{n}</p>)}
    </section>
  );
}

function nameOf(model: Model, row: number): string {
  const i = model.pane.source.rows.index[row];
  return i === undefined || Number.isNaN(i) ? `row ${row}` : `#${i}`;
}

function heldRows(model: Model): { row: number; sample: number | null; because: string; becauseSeconds: number; end: number }[] {
  const { rows } = model.pane.source;
  const out: ReturnType<typeof heldRows> = [];
  for (let r = 0; r < rows.n; r++) if (((rows.flags[r] as number) & ROW_HELD) !== 0) out.push({ row: r, sample: null, because: "", becauseSeconds: NaN, end: (rows.start[r] as number) + (rows.dur[r] as number) });
  return out.sort((a, b) => b.end - a.end);
}
