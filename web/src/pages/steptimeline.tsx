// The timeline of a step, read window by window; beside it that of the step that it is compared with.
import { useEffect, useRef, useState } from "preact/hooks";
import { API } from "../api/client";
import { LoadingBar } from "../components/state";
import { HttpSource } from "../timeline/http";
import { Timeline } from "../timeline/timeline";
import { decodeView, encodeView, type View } from "../timeline/view";
import { theme } from "../state/theme";
import { change, view } from "../state/view";
import "../timeline/timeline.css";

interface Open {
  key: string;
  step: number;
  list: HttpSource[];
}

/**
 * ids of timelines: the step's, and that of the one it is compared with. What is shown stays until the next
 * can be; arrived is false while that is still to be told.
 */
export function StepTimeline({ ids, step, arrived, onStep }: { ids: string[]; step: number; arrived: boolean; onStep: (d: 1 | -1) => void }) {
  const [open, setOpen] = useState<Open | null>(null);
  const [error, setError] = useState("");
  const key = ids.join("\n");
  const kept = useRef<Open | null>(null);
  const show = (next: Open | null) => {
    for (const s of kept.current?.list ?? []) s.close();
    kept.current = next;
    setOpen(next);
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
  if (!open) return <div class="step-timeline"><section class="panel" aria-label="timeline"><LoadingBar on /></section></div>;
  return <Opened key={open.key} open={open} current={arrived && open.key === key} onStep={onStep} />;
}

function Opened({ open: { list, step }, current, onStep }: { open: Open; current: boolean; onStep: (d: 1 | -1) => void }) {
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
      <Timeline sources={list} view={shown} onView={keep} theme={theme.value} where={false} onStep={onStep} />
    </div>
  );
}
