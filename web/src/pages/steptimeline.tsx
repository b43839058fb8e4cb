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

/** ids of timelines: the step's, and that of the one it is compared with. */
export function StepTimeline({ ids, step, onStep }: { ids: string[]; step: number; onStep: (d: 1 | -1) => void }) {
  const [list, setList] = useState<HttpSource[]>([]);
  const [error, setError] = useState("");
  const key = ids.join("\n");
  useEffect(() => {
    let left = false;
    let opened: HttpSource[] = [];
    setError("");
    Promise.all(ids.map((id) => HttpSource.open(`${location.origin}${API}/timelines/${encodeURIComponent(id)}`))).then(
      (all) => {
        opened = all;
        if (left) for (const s of all) s.close();
        else setList(all);
      },
      (err: Error) => {
        if (!left) setError(err.message);
      },
    );
    return () => {
      left = true;
      setList([]);
      for (const s of opened) s.close();
    };
  }, [key]);
  if (error) return <section class="panel"><p class="calm bad" role="alert">the timeline cannot be read: {error}</p></section>;
  if (list.length === 0) return <div class="step-timeline"><div class="panel"><LoadingBar on /></div></div>;
  return <Opened key={key} list={list} step={step} onStep={onStep} />;
}

function Opened({ list, step, onStep }: { list: HttpSource[]; step: number; onStep: (d: 1 | -1) => void }) {
  // The URL's view is read once, and again when it changes from outside: a link to a sample, the way back.
  const written = useRef(view.peek().timeline);
  const [shown, setShown] = useState<View>(() => decodeView(view.peek().timeline, list.length));
  const now = view.value.timeline;
  useEffect(() => {
    if (now === written.current) return;
    written.current = now;
    setShown(decodeView(now, list.length));
  }, [now]);
  const keep = (v: View) => {
    const text = encodeView(v);
    if (text === written.current) return;
    written.current = text;
    // Who moves in a step stays with it: the next one that is born does not take its place.
    change({ timeline: text, rollout: String(step) }, "replace");
  };
  return (
    <div class="step-timeline">
      <Timeline sources={list} view={shown} onView={keep} theme={theme.value} where={false} onStep={onStep} />
    </div>
  );
}
