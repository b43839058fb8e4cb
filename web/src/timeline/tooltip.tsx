// What is under the pointer: a row's summary, a span with its phases and attributes, a cluster of points.
import { useEffect, useState } from "preact/hooks";
import { grouped } from "../format/number";
import { clockTime, length, wallClock } from "./axis";
import type { Hover, Model } from "./model";
import type { Pane } from "./pane";
import type { Sample } from "./source";
import { CLASS_NAMES, ITEM_FLAGS, OPEN, ORPHAN, PHASE, POINT } from "./table";
import { ofTrace, rowSentence, titleOf, valueText } from "./words";

export function Tooltip({ model, pane, hover }: { model: Model; pane: Pane; hover: Hover }) {
  const { hit } = hover;
  const [sample, setSample] = useState<{ row: number; sample: Sample } | null>(null);
  const wanted = hit.item >= 0 ? hit.row : -1;
  useEffect(() => {
    if (wanted < 0) return;
    let on = true;
    // Attributes are inflated when the pointer rests.
    const wait = setTimeout(() => {
      pane.source.sample(wanted).then((s) => on && setSample({ row: wanted, sample: s }), () => undefined);
    }, 120);
    return () => {
      on = false;
      clearTimeout(wait);
    };
  }, [pane, wanted]);
  const right = hover.x > pane.width - 340;
  const low = hover.y > pane.height - 260;
  const style = { left: right ? "auto" : `${hover.x + 14}px`, right: right ? `${pane.width - hover.x + 14}px` : "auto", top: low ? "auto" : `${hover.y + 12}px`, bottom: low ? `${pane.height - hover.y + 12}px` : "auto" };
  return (
    <div class="tip tl-tip" style={style} role="tooltip">
      {hit.item < 0 ? <RowTip pane={pane} row={hit.row} /> : hit.cluster.length > 1 ? <ClusterTip model={model} pane={pane} hover={hover} /> : <ItemTip model={model} pane={pane} hover={hover} sample={sample?.row === hit.row ? sample.sample : null} />}
    </div>
  );
}

function Line({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <div class="tip-row"><span class="tip-name">{name}</span><span>{children}</span></div>;
}

function RowTip({ pane, row }: { pane: Pane; row: number }) {
  const { rows, head } = pane.source;
  const label = head.dicts.label[rows.label[row] as number] ?? "";
  const source = head.dicts.source[rows.source[row] as number] ?? "";
  return (
    <>
      <b>{titleOf(pane.source, row)}</b>
      <div class="wrap tl-sentence">{rowSentence(pane.source, row, pane.origin)}</div>
      {!ofTrace(pane.source) && <Line name="attempts">{rows.attempts[row]}</Line>}
      {source && <Line name="source">{valueText(source, 80)}</Line>}
      {label && <Line name="label">{valueText(label, 80)}</Line>}
      {rows.trace.at(row) && <Line name="trace"><span class="mono">{valueText(rows.trace.at(row), 60)}</span></Line>}
      <Line name={ofTrace(pane.source) ? "spans" : "items, requests"}>{grouped(rows.items[row] as number, 0)}{!ofTrace(pane.source) && `, ${grouped(rows.requests[row] as number, 0)}`}</Line>
    </>
  );
}

function ClusterTip({ model, pane, hover }: { model: Model; pane: Pane; hover: Hover }) {
  const slot = pane.slots(model.now).slot(hover.hit.place);
  if (!slot) return null;
  const counts = new Map<string, number>();
  for (const k of hover.hit.cluster) {
    const i = (slot.table.itemFrom[slot.at] as number) + k;
    const n = pane.source.head.dicts.name[slot.table.name[i] as number] ?? "";
    counts.set(n, (counts.get(n) ?? 0) + (slot.table.count[i] as number));
  }
  const list = [...counts].sort((a, b) => b[1] - a[1]);
  return (
    <>
      <b>{grouped(hover.hit.clustered, 0)} events</b>
      {list.slice(0, 8).map(([n, c]) => <Line key={n} name={valueText(n, 80)}>{grouped(c, 0)}</Line>)}
      {list.length > 8 && <div class="tip-more">{list.length - 8} more names</div>}
      <div class="tip-more">zoom in to tell them apart</div>
    </>
  );
}

function ItemTip({ model, pane, hover, sample }: { model: Model; pane: Pane; hover: Hover; sample: Sample | null }) {
  const { hit } = hover;
  const slot = pane.slots(model.now).slot(hit.place);
  if (!slot) return null;
  const { table: t, at } = slot;
  const { head } = pane.source;
  const a = t.itemFrom[at] as number;
  const i = a + hit.item;
  if (i >= (t.itemFrom[at + 1] as number)) return null;
  const name = head.dicts.name[t.name[i] as number] || "(no name)";
  const state = t.state[i];
  const point = state === POINT || state === ORPHAN;
  const start = t.start[i] as number, dur = t.dur[i] as number;
  const o = pane.origin;
  const parent = t.parent[i] as number;
  const set = model.paintFor(pane);
  const colour = set ? set.paint.css[set.colours.of(t, i, hit.seg >= 0 ? hit.seg : (t.class[i] as number), hit.row)] : "";
  const segs: [number, number][] = [];
  for (let s = t.segFrom[i] as number, e = t.segFrom[i + 1] as number; s < e; s++) segs.push([t.segClass[s] as number, t.segDur[s] as number]);
  const total = segs.reduce((x, s) => x + s[1], 0);
  const attrs = pane.source.local ? sample?.attrs[hit.item] : null;
  const keys: [string, unknown][] = [];
  if (Array.isArray(attrs)) for (const side of attrs) if (side !== null && typeof side === "object") keys.push(...Object.entries(side as Record<string, unknown>));
  return (
    <>
      <div class="tl-tip-h"><i class="sw" style={{ "--c": colour }} /><b>{valueText(name, 120)}</b><span class="u">{titleOf(pane.source, hit.row)} · {CLASS_NAMES[t.class[i] as number]}</span></div>
      {hit.seg >= 0 && hit.seg !== t.class[i] && <Line name="here">{CLASS_NAMES[hit.seg]}</Line>}
      {point ? <Line name="at">{clockTime(start - o, 3, true)}</Line> : <Line name="from, to">{clockTime(start - o, 3, true)} – {state === OPEN ? "open" : clockTime(start + dur - o, 3, true)}</Line>}
      {!point && <Line name={state === OPEN ? "drawn for" : "duration"}>{length(dur)}</Line>}
      <Line name="wall clock">{wallClock(head.t0, start)}</Line>
      <Line name="attempt">{t.attempt[i]}</Line>
      {parent >= 0 && <Line name="parent">{valueText(head.dicts.name[t.name[a + parent] as number] ?? "", 80)}</Line>}
      {state === OPEN && <Line name="no end was written">cut at {(head.dicts.clip[t.clip[i] as number] || "the row's end").replace(/_/g, " ")}</Line>}
      {state === ORPHAN && <Line name="an end">without a start</Line>}
      {(t.count[i] as number) > 1 && <Line name="stands for">{grouped(t.count[i] as number, 0)} short ones</Line>}
      {ITEM_FLAGS.filter(([bit]) => ((t.flags[i] as number) & bit) !== 0).map(([, w]) => <div key={w} class="tip-more">{w}</div>)}
      {segs.length > 0 && (
        <div class="tl-tip-phases">
          {segs.map(([c, d], k) => <Line key={k} name={CLASS_NAMES[c] ?? (c >= PHASE ? "phase" : "")}>{length(d)} <span class="mut">{total > 0 ? ((d / total) * 100).toFixed(1) : "0.0"} %</span></Line>)}
        </div>
      )}
      {keys.slice(0, 8).map(([k, v], n) => <Line key={n} name={valueText(k, 40)}><span class="mono">{valueText(v, 60)}</span></Line>)}
      {keys.length > 8 && <div class="tip-more">{keys.length - 8} more: click the span</div>}
    </>
  );
}
