// When each alert was pending and fired, over the page's window.
import { queryRange } from "../api/prom";
import { lanes, type Lane } from "../charts/lanes";
import { hover } from "../charts/plot";
import { timeTicks } from "../charts/ticks";
import { clock, duration } from "../format/time";
import { engineList } from "../state/fleet";
import { windowFor } from "../state/live";
import { useResource } from "../state/resource";
import type { Window } from "../state/route";
import { EngineLink } from "./link";
import { ErrorBox, LoadingBar, StaleNote } from "./state";

const MOST = 40;

export function AlertHistory() {
  const w = windowFor(600);
  const res = useResource("alert history", `${w.from} ${w.to} ${w.step}`, (abort) => queryRange("ALERTS", w, abort));
  const all = res.value ? lanes(res.value) : [];
  const shown = all.slice(0, MOST);
  const span: Window = res.value ?? w;
  return (
    <section class="panel history" aria-label="history">
      <header class="panel-h">
        <h2>History</h2>
        <span class="u">{res.value && all.length === 0 ? "nothing fired or was pending in this range" : "longest firing first"}</span>
        <span class="sp" />
        <span class="leg" aria-hidden="true">
          <span><i class="key-fired" />firing</span>
          <span><i class="key-pending" />pending</span>
        </span>
      </header>
      <LoadingBar on={res.loading} />
      {res.error && !res.value && <ErrorBox error={res.error} failingSince={res.failingSince} />}
      {shown.length > 0 && (
        <div class="lanes scroll">
          {shown.map((l) => (
            <Row key={`${l.name} ${l.subject}`} lane={l} w={span} />
          ))}
          <Ruler w={span} />
        </div>
      )}
      {all.length > MOST && <p class="mut">{all.length - MOST} more, which fired less</p>}
      {res.error && res.value && <StaleNote res={res} />}
    </section>
  );
}

function Row({ lane, w }: { lane: Lane; w: Window }) {
  const engine = engineList.value?.find((e) => e.instance === lane.subject);
  const fired = lane.spans.filter((s) => s.state === "firing").reduce((n, s) => n + s.to - s.from, 0);
  const level = lane.severity === "critical" || lane.severity === "page" ? "crit" : "warn";
  const percent = (t: number) => `${((t - w.from) / (w.to - w.from)) * 100}%`;
  const words = lane.spans.map((s) => `${s.state} ${clock(s.from)} to ${clock(s.to)}`).join(", ");
  return (
    <div class="lane">
      <span class="lane-name" title={lane.name}>{lane.name}</span>
      <span class="lane-subject">{engine ? <EngineLink id={engine.id} name={engine.name} /> : lane.subject}</span>
      <svg
        class="lane-plot"
        role="img"
        aria-label={`${lane.name} ${lane.subject}: ${words}`}
        onPointerMove={(e) => {
          const box = e.currentTarget.getBoundingClientRect();
          hover.value = w.from + ((e.clientX - box.left) / box.width) * (w.to - w.from);
        }}
        onPointerLeave={() => (hover.value = null)}
      >
        <line x1="0" x2="100%" y1="14.5" y2="14.5" class="spark-base" />
        {lane.spans.map((s) => (
          <rect key={`${s.state} ${s.from}`} x={percent(s.from)} width={percent(w.from + Math.max(s.to - s.from, (w.to - w.from) / 400))} y={s.state === "firing" ? 3 : 5} height={s.state === "firing" ? 10 : 6} class={`lane-${s.state} fill-lane-${level}`}>
            <title>{`${s.state} ${clock(s.from, true)} – ${clock(s.to, true)} UTC, ${duration(s.to - s.from)}`}</title>
          </rect>
        ))}
        {hover.value !== null && <line x1={percent(hover.value)} x2={percent(hover.value)} y1="0" y2="100%" class="lane-cursor" />}
      </svg>
      <span class="n mut">{fired > 0 ? duration(Math.max(fired, 1000)) : "–"}</span>
    </div>
  );
}

function Ruler({ w }: { w: Window }) {
  return (
    <div class="lane ruler" aria-hidden="true">
      <span />
      <span />
      <span class="ruler-ticks">
        {timeTicks(w.from, w.to, 700).map((t) => (
          <i key={t.at} style={{ left: `${((t.at - w.from) / (w.to - w.from)) * 100}%` }}>{t.label}</i>
        ))}
      </span>
      <span class="n mut">fired</span>
    </div>
  );
}
