// What the fleet carries within a promise, what it carries now, and which pool holds it back.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type * as api from "../api/types";
import { Badge, ErrorBox, LoadingBar, StaleNote } from "../components/state";
import { brief, grouped } from "../format/number";
import { amount, boundWords, known, plain, rate, seconds, target } from "../passes/words";
import { useResource, type Resource } from "../state/resource";
import type { View } from "../state/route";
import { change, view } from "../state/view";

/** What is asked of the fleet: fields that are empty stand for what is measured or configured. */
function askedOf(v: View): Record<"ttft" | "itl" | "isl" | "osl" | "rate" | "prefill" | "decode", number | undefined> {
  return { ttft: target(v.goalTTFT), itl: target(v.goalITL), isl: amount(v.isl), osl: amount(v.osl), rate: amount(v.rate), prefill: amount(v.prefill, true), decode: amount(v.decode, true) };
}

/** A namespace as the URL and a question name it: passes of engines' own sockets have none. */
export const namespaceWord = (namespace: string): string => namespace || "-";

/** The answer for the deployment that the URL names, else for the one that the server takes. */
export function useCapacity(enabled: boolean): Resource<api.Envelope<api.PassCapacity>> {
  const v = view.value;
  const asked = askedOf(v);
  const bad = Object.values(asked).some((x) => Number.isNaN(x));
  // The server takes the busiest where none is named; while one looks it stays the same.
  const taken = useRef("");
  const query = { namespace: v.namespace || taken.current, ...asked };
  const res = useResource(enabled ? `capacity ${v.namespace}` : null, JSON.stringify(query), (abort) => get<api.PassCapacity>("/passes/capacity", query, abort), bad);
  const c = res.value?.data;
  if (c && !taken.current) taken.current = namespaceWord(c.namespace);
  // Of several the URL says which, so that who opens it later sees the same one.
  const several = (c?.namespaces ?? []).length > 1 && !v.namespace;
  useEffect(() => {
    if (several) change({ namespace: taken.current }, "replace");
  }, [several]);
  return res;
}

export function CapacityPanel({ res, advice, enabled }: { res: Resource<api.Envelope<api.PassCapacity>>; advice: Resource<api.Envelope<api.PassAdvice>>; enabled: boolean }) {
  const v = view.value;
  const asked = askedOf(v);
  const namespaces = (advice.value?.data.deployments ?? []).map((d) => d.namespace);
  const c = res.value?.data;
  const namespace = v.namespace || (c ? namespaceWord(c.namespace) : "");
  const list = useMemo(() => [...new Set([...namespaces, ...(c?.namespaces ?? [])])].sort(), [namespaces.join(), c]);
  return (
    <section class="panel pass-capacity" aria-label="capacity" data-state={!c ? "loading" : c.requests_per_second === null ? "unknown" : "value"}>
      <header class="panel-h">
        <h2>Capacity</h2>
        <span class="u">requests/s, from the fit</span>
        <span class="sp" />
        {(v.goalTTFT || v.goalITL || v.isl || v.osl || v.rate || v.prefill || v.decode) && <button type="button" class="quiet" title="as measured and configured" onClick={() => change({ goalTTFT: "", goalITL: "", isl: "", osl: "", rate: "", prefill: "", decode: "" }, "replace")}>reset</button>}
        {list.length > 1 && (
          <select aria-label="deployment" title={c && `this one: ${c.namespace_from}`} value={namespace} onChange={(e) => change({ namespace: e.currentTarget.value }, "replace")}>{list.map((n) => <option key={n} value={namespaceWord(n)}>{n || "(no namespace)"}</option>)}</select>
        )}
        {res.error && c && <StaleNote res={res} />}
      </header>
      <LoadingBar on={res.loading && enabled} />
      <Asked c={c} bad={asked} />
      {!enabled && <p class="calm">unknown: no forward passes come in</p>}
      {res.error && !c && <ErrorBox error={res.error} failingSince={res.failingSince} />}
      {c && <Answer c={c} />}
    </section>
  );
}

function Asked({ c, bad }: { c: api.PassCapacity | undefined; bad: Record<string, number | undefined> }) {
  const v = view.value;
  const pool = (name: string) => c?.pools?.find((p) => p.component === name)?.replicas;
  const tokens = (n: number | null | undefined) => (!c ? "" : n === null || n === undefined ? "unknown" : grouped(Math.round(n), 0));
  const field = (key: "goalTTFT" | "goalITL" | "isl" | "osl" | "rate" | "prefill" | "decode", wrong: string, label: string, unit: string, placeholder: string, title: string) => (
    <label class="ask" title={title}>
      <span class="mut">{label}</span>
      <Typed value={v[key]} label={label} placeholder={placeholder} bad={Number.isNaN(bad[wrong])} onSet={(t) => change({ [key]: t }, "replace")} />
      <span class="mut">{unit}</span>
    </label>
  );
  const both = (c?.pools ?? []).some((p) => p.component === "prefill");
  return (
    <div class="asks">
      {field("goalTTFT", "ttft", "TTFT", "ms", c ? String(+(c.ttft_target_seconds * 1000).toPrecision(6)) : "", "the first token comes within; empty: as configured")}
      {field("goalITL", "itl", "ITL", "ms", c ? String(+(c.itl_target_seconds * 1000).toPrecision(6)) : "", "each next token comes within; empty: as configured")}
      {field("isl", "isl", "ISL", "tok", tokens(c?.isl_tokens), "tokens of a prompt; empty: what is measured")}
      {field("osl", "osl", "OSL", "tok", tokens(c?.osl_tokens), "tokens of an answer; empty: what is measured")}
      {both && field("prefill", "prefill", "Prefill", "×", String(pool("prefill") ?? ""), "replicas of the prefill pool; empty: those that are there")}
      {field("decode", "decode", both ? "Decode" : "Replicas", "×", String(pool("decode") ?? ""), "replicas; empty: those that are there")}
      {field("rate", "rate", "Demand", "/s", !c ? "" : c.demand_requests_per_second === null ? "unknown" : brief(c.demand_requests_per_second), "requests a second; empty: what is measured")}
    </div>
  );
}

/** A field that keeps what is being typed while the page around it is made anew, and hands it over when it is done. */
function Typed({ value, label, placeholder, bad, onSet }: { value: string; label: string; placeholder: string; bad: boolean; onSet: (text: string) => void }) {
  const [draft, setDraft] = useState<string | null>(null);
  return (
    <input
      type="text" inputMode="decimal" size={6} spellcheck={false} autocomplete="off" placeholder={placeholder} aria-label={label} aria-invalid={bad}
      value={draft ?? value} onInput={(e) => setDraft(e.currentTarget.value)}
      onChange={(e) => {
        onSet(e.currentTarget.value.trim());
        setDraft(null);
      }}
      onBlur={() => setDraft(null)}
    />
  );
}

function Answer({ c }: { c: api.PassCapacity }) {
  const rps = c.requests_per_second, demand = c.demand_requests_per_second;
  const used = rps !== null && rps > 0 && demand !== null ? demand / rps : null;
  const level = used === null ? "" : used > 1 ? "crit" : used > 0.85 ? "warn" : "ok";
  const limit = (c.pools ?? []).find((p) => p.component === c.limiting);
  return (
    <>
      <p class="sec cap-line">At TTFT {seconds(c.ttft_target_seconds)} and ITL {seconds(c.itl_target_seconds)} {rps === null ? "what this fleet carries is" : "this fleet carries"}</p>
      <div class="cap-value">
        {rps === null ? <b class="v v-word">unknown</b> : <b class="v">{brief(rps)} <span class="u">req/s</span></b>}
        <span class="sec">now {demand === null ? <b>unknown</b> : demand === 0 ? <b>idle</b> : <b class={level ? `cap-${level}` : ""}>{rate(demand)}</b>}</span>
        {rps !== null && !c.meets && <Badge level="crit" title="even the least load breaks the promise">does not meet the promise</Badge>}
      </div>
      <div class={used === null ? "gauge gauge-unknown" : "gauge"} role="img" aria-label={used === null ? "share that is used: unknown" : `${brief(used * 100)} % used`}>
        {used !== null && <i class={`fill-${level}`} style={{ width: `${Math.min(100, used * 100)}%` }} />}
      </div>
      <div class="cap-under mut">
        <span>{used === null ? "share used: unknown" : `${brief(used * 100)} % used`}</span>
        <span>{used !== null && rps !== null && demand !== null && (used <= 1 ? `${brief(rps - demand)} req/s left` : `${brief(demand - rps)} req/s too many`)}</span>
      </div>
      {c.reason && <p class="cap-reason"><Badge level="unknown" /> {c.reason}</p>}
      <dl class="cap-facts">
        {c.limiting && <div><dt>limited by</dt><dd>the {c.limiting} pool{limit?.engine ? `: ${boundWords(limit.engine.bound)}` : ""}</dd></div>}
        <div><dt>requests</dt><dd title={c.shape_from}>{known(c.isl_tokens, (n) => grouped(Math.round(n), 0))} in, {known(c.osl_tokens, (n) => grouped(Math.round(n), 0))} out{c.hit_rate !== null && c.hit_rate > 0 ? `, ${brief(c.hit_rate * 100)} % cached` : ""}{c.shape_from && <span class="mut"> · {c.shape_from}</span>}</dd></div>
        {c.demand_from && <div><dt>demand</dt><dd class="mut" title={c.demand_from}>{c.demand_from}</dd></div>}
        {c.settings_from && <div><dt>settings</dt><dd class="mut" title={c.settings_from}>{c.settings_from}</dd></div>}
      </dl>
      {(c.pools ?? []).map((p) => <PoolBox key={p.component} p={p} c={c} />)}
      {(c.assumptions ?? []).length > 0 && (
        <details class="cap-more">
          <summary class="quiet">{grouped(c.assumptions.length, 0)} assumptions</summary>
          <ul class="plain sec">{c.assumptions.map((a) => <li key={a}>{a}</li>)}</ul>
        </details>
      )}
    </>
  );
}

function PoolBox({ p, c }: { p: api.PassPoolCapacity; c: api.PassCapacity }) {
  const e = p.engine, at = p.at_demand;
  const over = p.needed !== null && p.needed > p.replicas;
  return (
    <div class="cap-pool">
      <div class="cap-pool-h">
        <b>{p.component}</b>
        <span class="sec">{grouped(p.replicas, 0)} {p.replicas === 1 ? "replica" : "replicas"}</span>
        {c.limiting === p.component && <Badge level="warn">limits</Badge>}
        {e && !e.meets && <Badge level="crit" title="even the least load breaks the promise">breaks the promise</Badge>}
        {e?.outside && <Badge level="unknown" title="that load lies beyond all that was seen: the line guesses">beyond what was seen</Badge>}
        {at?.saturated && <Badge level="crit" title="work comes in faster than it is done">saturated at demand</Badge>}
      </div>
      {e ? (
        <dl class="cap-facts">
          <div><dt>one carries</dt><dd>{rate(e.requests_per_second)}{e.batch > 0 ? ` at batch ${grouped(e.batch, 0)}` : ""}</dd></div>
          <div><dt>bound by</dt><dd title={plain(e.bound)}>{boundWords(e.bound)}</dd></div>
          <div><dt>needed now</dt><dd class={over ? "bad" : ""}>{p.needed === null ? "unknown" : `${grouped(p.needed, 0)} of ${grouped(p.replicas, 0)}`}</dd></div>
          <div><dt>at demand</dt><dd>{at === null ? "unknown" : at.saturated ? "no steady state" : <>{at.ttft_seconds > 0 && <>TTFT {seconds(at.ttft_seconds)} </>}{at.itl_seconds > 0 && <>ITL {seconds(at.itl_seconds)} </>}<span class="mut">{brief(at.utilisation * 100)} % busy</span></>}</dd></div>
        </dl>
      ) : <p class="cap-reason"><Badge level="unknown" /> {p.reason || "not known yet"}</p>}
      {e && p.reason && <p class="mut cap-reason">{p.reason}</p>}
    </div>
  );
}
