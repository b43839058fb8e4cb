// One trace: its waterfall or its flame graph, and the details of the span that is selected.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { API, get } from "../api/client";
import type * as api from "../api/types";
import { Copy, short } from "../components/copy";
import { Link } from "../components/link";
import { Badge, ErrorBox, LoadingBar, Notes } from "../components/state";
import { useKeys } from "../state/keys";
import { parseApiTime } from "../format/time";
import { around, logsFilter } from "../state/joins";
import { useResource } from "../state/resource";
import { theme } from "../state/theme";
import { change, open, view } from "../state/view";
import { length } from "../timeline/axis";
import { HttpSource } from "../timeline/http";
import { Timeline } from "../timeline/timeline";
import { decodeView, encodeView, START, type View as TimelineView } from "../timeline/view";
import "../timeline/timeline.css";
import { attrOf, flagWords, SpanPanel, TracePanel } from "./spanpanel";
import { Waterfall } from "./waterfall";
import { serviceColours } from "./waterfallrows";

/** What of the view belongs to one trace. */
export const NO_TRACE = { id: "", span: "", part: "", closed: "", timeline: "", draw: "waterfall", by: "" } as const;

export function Trace({ id }: { id: string }) {
  const v = view.value;
  const res = useResource(`trace ${id}`, "", (abort) => get<api.TraceDetail>(`/traces/${encodeURIComponent(id)}`, {}, abort));
  const d = res.value?.data;
  const colours = useMemo(() => serviceColours(d?.services ?? []), [d]);
  const span = d?.spans.find((s) => s.span_id === v.span && v.span !== "");
  useKeys({
    r: () => {
      if (!d?.request_id) return false;
      open("requests", { id: d.request_id, range: around(parseApiTime(d.start), d.duration_seconds) });
      return true;
    },
    l: () => {
      if (!d) return false;
      open("logs", { filter: logsFilter({ rid: attrOf(d, ["rid"]), traceID: d.trace_id }), range: around(parseApiTime(d.start), d.duration_seconds) });
      return true;
    },
    Escape: () => change(NO_TRACE),
    x: () => change({ draw: v.draw === "flame" ? "waterfall" : "flame" }, "replace"),
  });
  const root = d?.spans.find((s) => s.depth === 0 && !s.missing);
  return (
    <>
      <section class="panel strip trace-strip">
        <Link patch={NO_TRACE} title="back to the search">‹ search</Link>
        <b>{root?.name ?? (d ? "no root span" : short(id, 20))}</b>
        {root && <span class="sec">{root.service}</span>}
        <span class="mono mut">{short(d?.trace_id ?? id, 18)}</span>
        <Copy text={d?.trace_id ?? id} label="the trace id" />
        {d && <span>{length(d.duration_seconds * 1e6)}</span>}
        {d?.flags.map((f) => <Badge key={f} level="warn" title={flagWords(f)}>{f.replace(/_/g, " ")}</Badge>)}
        <Notes list={res.value?.warnings ?? []} />
        <span class="sp" />
        <span class="choice" role="radiogroup" aria-label="drawn as">
          {(["waterfall", "flame"] as const).map((k) => (
            <button type="button" key={k} role="radio" aria-checked={v.draw === k} class={v.draw === k ? "on" : ""} title="x" onClick={() => change({ draw: k })}>{k === "waterfall" ? "Waterfall" : "Flame"}</button>
          ))}
        </span>
      </section>
      <LoadingBar on={res.loading} />
      {res.error && !d && <section class="panel"><ErrorBox error={res.error} failingSince={res.failingSince} /></section>}
      {d && v.draw === "waterfall" && (
        <div class="events-body with-details">
          <div class="events-left"><Waterfall key={d.trace_id} d={d} /></div>
          {span ? <SpanPanel d={d} s={span} colours={colours} /> : <TracePanel d={d} />}
        </div>
      )}
      {d && v.draw === "flame" && (d.timeline ? <Flame key={d.timeline} id={d.timeline} /> : <section class="panel"><p class="calm">this trace has no timeline: it holds no span with a time</p></section>)}
    </>
  );
}

/** How a trace opens: its participants in their order, all lanes open. */
const OPENED: TimelineView = { ...START, expanded: true, sort: "row", desc: false, tail: false, gaps: false, tab: "none" };

/** The same timeline as that of a rollout: a row a participant, its spans in lanes. */
function Flame({ id }: { id: string }) {
  const [source, setSource] = useState<HttpSource | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    let left = false;
    let mine: HttpSource | null = null;
    HttpSource.open(`${location.origin}${API}/timelines/${encodeURIComponent(id)}`).then(
      (s) => {
        mine = s;
        if (left) s.close();
        else setSource(s);
      },
      (err: Error) => !left && setError(err.message),
    );
    return () => {
      left = true;
      mine?.close();
    };
  }, [id]);
  const read = (text: string) => (text === "" ? OPENED : decodeView(text, 1));
  const written = useRef(view.peek().timeline);
  const [shown, setShown] = useState<TimelineView>(() => read(view.peek().timeline));
  const now = view.value.timeline;
  useEffect(() => {
    if (now === written.current) return;
    written.current = now;
    setShown(read(now));
  }, [now]);
  const sources = useMemo(() => (source ? [source] : []), [source]);
  if (error) return <section class="panel"><p class="calm bad" role="alert">the timeline of this trace cannot be read: {error}</p></section>;
  if (!source) return <section class="panel flame"><LoadingBar on /></section>;
  return (
    <div class="flame">
      <Timeline sources={sources} view={shown} where={false} theme={theme.value} onView={(tv) => {
        const text = encodeView(tv);
        if (text === written.current) return;
        written.current = text;
        change({ timeline: text }, "replace");
      }} />
    </div>
  );
}
