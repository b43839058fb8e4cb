// What is recorded and what is not: targets with their errors, what was skipped, drops, notices. Opened
// from the foot of the nav.
import { get } from "../api/client";
import type * as api from "../api/types";
import { backendName } from "../components/enginetable";
import { recorderOpen } from "../components/nav";
import { Drawer } from "../components/popover";
import { Badge, Empty, ErrorBox, Warnings } from "../components/state";
import { grouped, plural } from "../format/number";
import { dayClock, duration, parseApiTime } from "../format/time";
import { now, second, status } from "../state/live";
import { useResource } from "../state/resource";

export function Recorder() {
  return recorderOpen.value ? <Body /> : null;
}

function Body() {
  const res = useResource("targets", "", (abort) => get<api.Targets>("/targets", {}, abort));
  const s = status.value.value;
  const t = res.value?.data;
  second.value;
  const active = [...(t?.active ?? [])].sort((a, b) => rank(a) - rank(b));
  return (
    <Drawer title="Recorder" label="recorder" class="drawer-wide" onClose={() => (recorderOpen.value = false)}>
      <div class="facts">
        {s && (
          <dl>
            <div><dt>version</dt><dd>{s.version}, {s.mode}{s.read_only ? ", reads only" : ""}</dd></div>
            <div><dt>directory</dt><dd title={s.dir}>{s.dir}</dd></div>
            <div><dt>recorded</dt><dd>{s.from ? `${dayClock(parseApiTime(s.from), now())} – ${s.to ? dayClock(parseApiTime(s.to), now()) : "now"} UTC` : "nothing yet"}</dd></div>
            {s.gaps.length > 0 && <div class="stacked"><dt>paused</dt><dd class="wrap">{s.gaps.map((g) => `${dayClock(parseApiTime(g.from), now())} for ${duration(parseApiTime(g.to) - parseApiTime(g.from))}`).join("; ")}</dd></div>}
          </dl>
        )}
        {s && s.notices.length > 0 && (
          <>
            <h2>Notices</h2>
            <Warnings list={s.notices} />
          </>
        )}
        <h2>Targets <span class="u">{t ? `${plural(active.length, "target")}, the unreadable first` : ""}</span></h2>
        {res.error && !t && <ErrorBox error={res.error} failingSince={res.failingSince} />}
        {t && active.length === 0 && <Empty what={s?.mode === "archive" ? "An archive scrapes nothing." : "Nothing is scraped. Name an engine:"} how={s?.mode === "archive" ? undefined : "rollscope serve --scrape HOST:30000"} />}
        <ul class="targets">{active.map((x) => <Target key={x.url} t={x} />)}</ul>
        {t && t.skipped.length > 0 && (
          <>
            <h2>Found and not scraped</h2>
            <ul class="targets">
              {t.skipped.map((x) => <li key={`${x.address} ${x.from}`}><span class="mono">{x.address}</span> <span class="bad">{x.reason}</span> <span class="mut">from {x.from}</span></li>)}
            </ul>
          </>
        )}
        <h2>Dropped</h2>
        {s && s.drops.length === 0 && <p class="mut">none</p>}
        {s && s.drops.length > 0 && (
          <table class="rows">
            <thead><tr><th>source</th><th>reason</th><th class="n">count</th></tr></thead>
            <tbody>{s.drops.map((d) => <tr key={`${d.source} ${d.reason}`}><td>{d.source}</td><td>{d.reason}</td><td class="n">{grouped(d.count, 0)}</td></tr>)}</tbody>
          </table>
        )}
        <p class="mut"><a href="/licenses.txt" target="_blank" rel="noreferrer">licences</a> of the libraries in this page</p>
      </div>
    </Drawer>
  );
}

const rank = (t: api.Target) => (t.up === false ? 0 : t.findings.length > 0 ? 1 : t.up === null ? 2 : 3);

function Target({ t }: { t: api.Target }) {
  return (
    <li>
      <div class="target-head">
        {t.up === true ? <Badge level={t.findings.length ? "warn" : "ok"}>{t.findings.length ? plural(t.findings.length, "finding") : "up"}</Badge> : t.up === false ? <Badge level="unknown">down</Badge> : <Badge level="idle">not yet</Badge>}
        <b>{t.instance}</b>
        <span class="sec">{[t.job, backendName(t.backend), t.role, t.version].filter(Boolean).join(" · ")}</span>
        <span class="sp" />
        <span class="mut">{t.last_scrape ? `${duration(Math.max(0, now() - parseApiTime(t.last_scrape)))} ago` : ""}{t.samples !== null ? ` · ${plural(t.samples, "sample")}` : ""}</span>
      </div>
      {t.error && <div class="bad">{t.error}</div>}
      {t.hint && <div class="act"><span class="mut">Do</span> {t.hint}</div>}
      <Warnings list={t.findings} />
    </li>
  );
}
