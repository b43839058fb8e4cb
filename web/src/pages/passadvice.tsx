// What Dynamo's planner would do with each deployment, and why. It is advice: nothing is scaled here.
import { get } from "../api/client";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { Badge, ErrorBox, StaleNote } from "../components/state";
import { brief, grouped, plural } from "../format/number";
import { known, plain, rate, seconds } from "../passes/words";
import { hasEngines } from "../state/passes";
import { useResource, type Resource } from "../state/resource";
import { namespaceWord } from "./passcapacity";

export const useAdvice = (p: api.ForwardPasses | undefined): Resource<api.Envelope<api.PassAdvice>> =>
  useResource(hasEngines(p) ? "passes advice" : null, "", (abort) => get<api.PassAdvice>("/passes/advice", {}, abort));

export function AdvicePanel({ res, namespace }: { res: Resource<api.Envelope<api.PassAdvice>>; namespace: string }) {
  const all = res.value?.data.deployments ?? [];
  const chosen = all.filter((d) => d.namespace === namespace);
  const list = chosen.length > 0 ? chosen : all.slice(0, 1);
  const others = all.filter((d) => !list.includes(d));
  if (!res.value && !res.error) return null;
  return (
    <section class="panel pass-advice" aria-label="planner's advice">
      <header class="panel-h">
        <h2>Planner’s advice</h2>
        <span class="u">as Dynamo’s; nothing is scaled</span>
        <span class="sp" />
        {res.value && <StaleNote res={res} />}
      </header>
      {res.error && !res.value && <ErrorBox error={res.error} failingSince={res.failingSince} />}
      {res.value && list.length === 0 && <p class="calm">no engine has sent a pass yet</p>}
      {list.map((d) => <Deployment key={d.namespace} d={d} many={all.length > 1} />)}
      {others.length > 0 && (
        <div class="advice-others">
          {others.map((d) => (
            <div key={d.namespace}>
              <Link patch={{ namespace: namespaceWord(d.namespace) }} title="its capacity and advice">{d.namespace || "(no namespace)"}</Link>{" "}
              <span class="sec">{toWords(d)}</span>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

/** What the planner would do with a deployment, in a line. */
function toWords(d: api.PassDeployment): string {
  const to = Object.entries(d.replicas ?? {});
  return to.length === 0 ? "leave all as it is" : `scale to ${to.map(([k, n]) => `${k} ${n}`).join(", ")}`;
}

function Deployment({ d, many }: { d: api.PassDeployment; many: boolean }) {
  return (
    <article class="advice">
      <p class="sec">
        {many && <b>{d.namespace} </b>}
        mode {d.mode} <span class="mut" title={d.mode_from}>({d.mode_from})</span>, target {d.target}: <b>{toWords(d)}</b>
      </p>
      <p class="mut">settings: {d.settings_from}</p>
      <Loop name="Load" loop={d.load_loop} />
      <Loop name="Throughput" loop={d.throughput_loop} />
      {(d.notes ?? []).map((n) => <p class="mut" key={n}>{n}</p>)}
    </article>
  );
}

const GOOD = new Set(["no_change", "set_lower_bound"]);
const BAD = new Set(["no_fpm_data", "insufficient_data", "model_not_ready", "partner_not_ready", "no_traffic_data", "worker_count_mismatch"]);
const level = (reason: string): api.Level => (GOOD.has(reason) ? "ok" : BAD.has(reason) ? "unknown" : /^scale/.test(reason) ? "warn" : "idle");

function Loop({ name, loop }: { name: string; loop: api.PassLoop }) {
  const pools = loop.pools ?? [];
  const engines = pools.flatMap((p) => (p.engines ?? []).map((e) => ({ ...e, pool: p.component })));
  return (
    <div class="advice-loop">
      <div class="cap-pool-h"><b>{name} loop</b> <Badge level={level(loop.reason)}>{plain(loop.reason)}</Badge></div>
      {pools.map((p) => (
        <div class="advice-pool" key={p.component}>
          <div>
            <span class="sec">{p.component}</span> {grouped(p.current, 0)} → <b class={p.want !== p.current ? "cap-warn" : ""}>{grouped(p.want, 0)}</b>
            {p.reason !== loop.reason && <span class="mut"> {plain(p.reason)}</span>}
            {(p.ttft_seconds !== null || p.itl_seconds !== null || p.requests_per_second !== null) && (
              <span class="mut">{p.ttft_seconds !== null && ` · TTFT ${seconds(p.ttft_seconds)}`}{p.itl_seconds !== null && ` · ITL ${seconds(p.itl_seconds)}`}{p.requests_per_second !== null && ` · one carries ${rate(p.requests_per_second)}`}</span>
            )}
          </div>
          {p.why && <div class="advice-why">{p.why}</div>}
        </div>
      ))}
      {engines.length > 0 && (
        <details class="cap-more">
          <summary class="quiet">what it saw of {plural(engines.length, "rank")}</summary>
          <div class="scroll advice-table">
            <table class="rows" aria-label={`what the ${name.toLowerCase()} loop saw`}>
              <thead><tr><th>Worker</th><th class="n">Rank</th><th class="n" title="queued prefill tokens">Queued</th><th class="n" title="queued decode KV tokens">Q KV</th><th class="n" title="KV tokens in flight">In flight</th><th class="n">TTFT</th><th class="n">ITL</th><th class="n">Signal</th></tr></thead>
              <tbody>
                {engines.map((e) => (
                  <tr key={`${e.pool} ${e.worker_id} ${e.rank}`}>
                    <td class="c-worker" title={e.worker_id}>{e.worker_id ? (e.worker_id.length > 8 ? `…${e.worker_id.slice(-6)}` : e.worker_id) : "no id"}</td><td class="n">{e.rank}</td><td class="n">{grouped(e.queued_prefill_tokens, 0)}</td><td class="n">{grouped(e.queued_decode_kv_tokens, 0)}</td>
                    <td class="n">{grouped(e.inflight_kv_tokens, 0)}</td><td class="n">{e.ttft_seconds === null ? "–" : seconds(e.ttft_seconds)}</td><td class="n">{e.itl_seconds === null ? "–" : seconds(e.itl_seconds)}</td><td class="n">{known(e.signal, brief).replace("unknown", "–")}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      )}
    </div>
  );
}
