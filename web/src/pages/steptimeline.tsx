// The timeline of a step, read window by window; beside it that of the step that it is compared with.
import { useEffect, useRef, useState } from "preact/hooks";
import { API } from "../api/client";
import { LoadingBar } from "../components/state";
import { HttpSource } from "../timeline/http";
import { Timeline } from "../timeline/timeline";
import { decodeView, encodeView, type View } from "../timeline/view";
import { theme } from "../state/theme";
import { filterOf } from "../state/filter";
import { around, logsFilter } from "../state/joins";
import { goTo, viewURL, type Page, type View as PageView } from "../state/route";
import { change, open, view } from "../state/view";
import type { Pane } from "../timeline/pane";
import type { PanelLink } from "../timeline/panel";
import "../timeline/timeline.css";

/** A view as a link of the timeline's panel. */
function way(label: string, to: Page, patch: Partial<PageView>): PanelLink {
  return { label, href: viewURL(goTo(view.peek(), to, patch)), go: () => open(to, patch) };
}

/** What tells a row's requests from all others: the run, the step, the sample. */
function ofRow(run: string, pane: Pane, row: number): Record<string, string | number | null> {
  const { dump } = pane.source.head;
  return { run, ...(dump.kind === "eval" ? { kind: "eval" } : {}), step: dump.rollout_id, sample: pane.source.rows.ordinal[row] ?? null };
}

/** The time of a stretch of the timeline: milliseconds since 1970, with room around it. */
function timeOf(pane: Pane, start: number, length: number): Partial<PageView> {
  const t0 = Number(BigInt(pane.source.head.t0 || "0") / 1_000_000n);
  const ms = t0 + start / 1000;
  return Number.isFinite(ms) && t0 > 0 ? { range: around(ms, Number.isFinite(length) ? length / 1e6 : 0) } : {};
}

const sampleLinks = (run: string) => (pane: Pane, row: number): PanelLink[] => {
  const { rows } = pane.source;
  if ((rows.requests[row] ?? 0) === 0) return [];
  return [way("Its requests", "requests", { filter: filterOf(ofRow(run, pane, row)), ...timeOf(pane, rows.start[row] as number, rows.dur[row] as number) })];
};

const requestLinks = (run: string) => (pane: Pane, row: number, rid: string, start: number, length: number): PanelLink[] => {
  const { sample, ...step } = ofRow(run, pane, row);
  const time = timeOf(pane, start, length);
  const links = [way("Open the request", "requests", { filter: filterOf(rid ? { rid, ...step } : { ...step, sample: sample ?? null }), id: "first", ...time })];
  if (rid) links.push(way("Log lines", "logs", { filter: logsFilter({ rid }), ...time }));
  return links;
};

interface Open {
  key: string;
  step: number;
  list: HttpSource[];
}

/**
 * ids of timelines: the step's, and that of the one it is compared with. What is shown stays until the next
 * can be; arrived is false while that is still to be told.
 */
export function StepTimeline({ ids, run, step, arrived, onStep }: { ids: string[]; run: string; step: number; arrived: boolean; onStep: (d: 1 | -1) => void }) {
  const [opened, setOpened] = useState<Open | null>(null);
  const [error, setError] = useState("");
  const key = ids.join("\n");
  const kept = useRef<Open | null>(null);
  const show = (next: Open | null) => {
    for (const s of kept.current?.list ?? []) s.close();
    kept.current = next;
    setOpened(next);
  };
  useEffect(() => {
    let left = false;
    setError("");
    Promise.allSettled(ids.map((id) => HttpSource.open(`${location.origin}${API}/timelines/${encodeURIComponent(id)}`))).then((all) => {
      const list = all.flatMap((r) => (r.status === "fulfilled" ? [r.value] : []));
      const failed = all.find((r) => r.status === "rejected");
      if (!left && !failed) return show({ key, step, list });
      for (const s of list) s.close();
      if (left) return;
      show(null);
      setError(String((failed as PromiseRejectedResult).reason?.message ?? "unknown"));
    });
    return () => void (left = true);
  }, [key]);
  useEffect(() => () => {
    for (const s of kept.current?.list ?? []) s.close();
  }, []);
  if (error) return <section class="panel"><p class="calm bad" role="alert">the timeline cannot be read: {error}</p></section>;
  if (!opened) return <div class="step-timeline"><section class="panel" aria-label="timeline"><LoadingBar on /></section></div>;
  return <Opened key={opened.key} opened={opened} run={run} current={arrived && opened.key === key} onStep={onStep} />;
}

function Opened({ opened: { list, step }, run, current, onStep }: { opened: Open; run: string; current: boolean; onStep: (d: 1 | -1) => void }) {
  // The URL's view is read once, and again when it changes from outside: a link to a sample, the way back.
  const written = useRef(view.peek().timeline);
  const [shown, setShown] = useState<View>(() => decodeView(view.peek().timeline, list.length));
  const now = view.value.timeline;
  useEffect(() => {
    if (now === written.current || !current) return;
    written.current = now;
    setShown(decodeView(now, list.length));
  }, [now]);
  const keep = (v: View) => {
    const text = encodeView(v);
    if (text === written.current || !current) return;
    written.current = text;
    // Who moves in a step stays with it: the next one that is born does not take its place.
    change({ timeline: text, rollout: String(step) }, "replace");
  };
  return (
    <div class="step-timeline" aria-busy={!current}>
      <LoadingBar on={!current} />
      <Timeline sources={list} view={shown} onView={keep} theme={theme.value} where={false} onStep={onStep} links={sampleLinks(run)} requestLinks={requestLinks(run)} />
    </div>
  );
}
