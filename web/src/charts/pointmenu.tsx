// What lies behind a point of a chart: the requests, traces and log lines of its window, of its engine when
// the line is one's.
import { useSignal } from "@preact/signals";
import { Link } from "../components/link";
import { Popover } from "../components/popover";
import { rangeText } from "../format/time";
import { logsOf, requestsOf, tracesOf, type Subject } from "../state/joins";
import { useKeys } from "../state/keys";
import { now } from "../state/live";
import { open } from "../state/view";

export interface PointMenuProps {
  subject: Subject;
  /** pixels in the window */
  left: number;
  top: number;
  onClose: () => void;
}

const WHAT: Record<string, string> = { ttft: ", worst TTFT first", itl: ", worst ITL first", e2e: ", slowest first", queue: ", longest queued first", "": ", slowest first" };

/** Room that it needs, so that it stays in the window. */
const WIDTH = 270, HEIGHT = 140;

export function PointMenu({ subject, left, top, onClose }: PointMenuProps) {
  const all = useSignal(false);
  const s = all.value ? { ...subject, instance: "", engine: "" } : subject;
  const of = s.instance ? ` of ${s.engine || s.instance}` : "";
  useKeys({
    r: () => open("requests", requestsOf(s)),
    t: () => open("traces", tracesOf(s)),
    l: () => open("logs", logsOf(s)),
  }, 2);
  return (
    <div class="point-menu" style={{ left: `${Math.max(0, Math.min(left, innerWidth - WIDTH))}px`, top: `${Math.max(0, Math.min(top, innerHeight - HEIGHT))}px` }}>
      <Popover label="behind this point" class="pop-point" onClose={onClose}>
        <p class="tip-time">{rangeText(s.from, s.to, now())}{of}</p>
        <Link to="requests" patch={requestsOf(s)} class="tl-item" onFollow={onClose}><kbd>r</kbd> Requests{WHAT[s.field]}</Link>
        <Link to="traces" patch={tracesOf(s)} class="tl-item" onFollow={onClose}><kbd>t</kbd> Traces</Link>
        <Link to="logs" patch={logsOf(s)} class="tl-item" onFollow={onClose}><kbd>l</kbd> Log lines</Link>
        {subject.instance && (
          <label class="tl-check"><input type="checkbox" checked={!all.value} onChange={() => (all.value = !all.value)} /> only of {subject.engine || subject.instance}</label>
        )}
      </Popover>
    </div>
  );
}
