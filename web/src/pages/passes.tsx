// Forward passes of all engines or of one: what each iteration did, how long it took by what it held, what
// waits, whether messages are lost, and what the fleet can carry.
import { useEffect, useMemo } from "preact/hooks";
import type * as api from "../api/types";
import { Link } from "../components/link";
import { ErrorBox, LoadingBar, Notes, StaleNote, Badge } from "../components/state";
import { StateIcon } from "../components/icons";
import { TopBar } from "../components/topbar";
import { PassModel } from "../passes/model";
import { plural } from "../format/number";
import { isLive, toggleLive } from "../state/live";
import { useKeys } from "../state/keys";
import { alarms, hasEngines, hasPasses, usePasses } from "../state/passes";
import type { Resource } from "../state/resource";
import { change, view } from "../state/view";
import { AdvicePanel, useAdvice } from "./passadvice";
import { CapacityPanel, namespaceWord, useCapacity } from "./passcapacity";
import { CloudPanel } from "./passcloud";
import { BurstsPanel, QueuesPanel, RanksPanel, SourcesPanel } from "./passtables";
import { StripPanel } from "./passstrip";

/** Fleet or forward passes, where there are any. */
export function EnginesSwitch({ passes }: { passes: api.ForwardPasses | undefined }) {
  const on = view.value.passes;
  if (!on && !hasPasses(passes)) return null;
  const blind = alarms(passes).length;
  return (
    <span class="choice engines-switch" role="group" aria-label="what of the engines">
      <button type="button" class={on ? "" : "on"} aria-pressed={!on} onClick={() => change({ passes: false, worker: "", stripAt: 0 })}>Fleet</button>
      <button type="button" class={on ? "on" : ""} aria-pressed={on} title="every iteration of the schedulers (p)" onClick={() => change({ passes: true, engine: "", board: "" })}>
        Forward passes {blind > 0 ? <StateIcon level="crit" /> : <kbd>p</kbd>}
      </button>
    </span>
  );
}

export function Passes() {
  const v = view.value;
  const model = useMemo(() => new PassModel(), []);
  const res = usePasses();
  const advice = useAdvice(res.value?.data);
  const p = res.value?.data;
  const capacity = useCapacity(hasEngines(p));
  const namespace = v.namespace === namespaceWord("") ? "" : v.namespace || capacity.value?.data.namespace || "";
  const engines = useMemo(() => p?.engines ?? [], [p]);
  const live = isLive.value;
  useEffect(() => () => model.stop(), [model]);
  // A recording has no newest passes to ask for.
  const enabled = p?.enabled;
  useEffect(() => {
    if (enabled !== undefined) model.start(enabled);
  }, [model, enabled]);
  useEffect(() => model.setEngines(engines, v.worker), [model, engines, v.worker]);
  useEffect(() => model.setLive(live), [model, live]);

  const workers = engines.map((e) => e.id);
  const step = (d: number) => () => {
    const i = workers.indexOf(v.worker);
    if (i < 0) return void model.pan(d * model.span);
    change({ worker: workers[(i + d + workers.length) % workers.length] ?? "" }, "replace");
  };
  useKeys({
    j: () => model.selectStep(1),
    k: () => model.selectStep(-1),
    w: () => model.zoomStep(-1),
    s: () => model.zoomStep(1),
    a: () => model.pan(-model.span / 4),
    d: () => model.pan(model.span / 4),
    f: () => model.follow(),
    p: () => change({ passes: false, worker: "", stripAt: 0 }),
    "[": step(-1),
    "]": step(1),
    Space: () => {
      if (model.at !== null && !isLive.peek()) model.follow();
      else toggleLive();
    },
    Enter: () => {
      const row = model.rowOf(model.selected);
      if (!row) return false;
      change({ worker: view.value.worker ? "" : row.engine });
      return true;
    },
    Escape: () => {
      if (model.pinned) model.pin(null);
      else if (model.selected) model.select("");
      else if (view.value.worker) change({ worker: "" });
      else change({ passes: false, stripAt: 0 });
    },
  });
  const one = engines.find((e) => e.id === v.worker);
  return (
    <>
      <TopBar title="Engines" timed={false} sub={<Sub engines={engines} loaded={p !== undefined} one={one} id={v.worker} />}>
        <EnginesSwitch passes={p} />
      </TopBar>
      <main class="main page-passes">
        {res.error && !p && <section class="panel"><ErrorBox error={res.error} failingSince={res.failingSince} /></section>}
        {p && !hasPasses(p) && <section class="panel"><Nothing /></section>}
        <Alarms res={res} />
        {(!p || hasPasses(p)) && (
          <div class="passes-body">
            <div class="passes-strip"><StripPanel model={model} passes={p} loading={res.loading && !p} /></div>
            <div class="passes-side">
              <CapacityPanel res={capacity} advice={advice} enabled={hasEngines(p)} />
              <AdvicePanel res={advice} namespace={namespace} />
            </div>
            <div class="passes-rest">
              <div class="passes-pair">
                <CloudPanel model={model} engines={engines} advice={advice} namespace={namespace} />
                <QueuesPanel engines={engines} worker={v.worker} />
              </div>
              <RanksPanel engines={engines} worker={v.worker} model={model} />
              <div class="passes-pair">
                <SourcesPanel passes={p} />
                <BurstsPanel passes={p} worker={v.worker} />
              </div>
            </div>
          </div>
        )}
      </main>
    </>
  );
}

function Sub({ engines, loaded, one, id }: { engines: api.PassEngine[]; loaded: boolean; one: api.PassEngine | undefined; id: string }) {
  if (id) return <><Link patch={{ worker: "" }}>{loaded ? plural(engines.length, "worker") : "workers"}</Link> ▸ {one?.name ?? id}{one?.engine_id && <> · <Link patch={{ passes: false, worker: "", engine: one.engine_id }}>its signals</Link></>}</>;
  return <>{loaded ? `${plural(engines.length, "worker")}, ${plural(engines.reduce((n, e) => n + (e.ranks ?? []).length, 0), "rank")}` : ""}</>;
}

function Nothing() {
  return (
    <div class="empty">
      <p>No forward passes come in. Engines under NVIDIA Dynamo can send a message for every iteration of their scheduler.</p>
      <pre class="how">{`# the sockets of an engine with 4 data-parallel ranks
rollscope serve --fpm ipc:///tmp/sglang-fpm --fpm-ranks 4

# SGLang sends with
python -m sglang.launch_server ... --enable-forward-pass-metrics

# why nothing comes is told by
rollscope fpm check ipc:///tmp/sglang-fpm --metrics http://127.0.0.1:30000/metrics`}</pre>
    </div>
  );
}

/** Sources whose engine works while nothing of it is seen: the first thing to know. */
function Alarms({ res }: { res: Resource<api.Envelope<api.ForwardPasses>> }) {
  const list = alarms(res.value?.data);
  return (
    <>
      <LoadingBar on={res.loading && !res.value} />
      {list.map((s) => (
        <section class="panel pass-alarm" role="alert" key={s.name}>
          <Badge level="crit">blind</Badge>
          <div>
            <b>{s.name}: {s.flow}</b>
            <div class="sec">{s.why}</div>
            {s.do && <div class="act"><span class="mut">Do</span> {s.do}</div>}
          </div>
          <span class="sp" />
          <span class="mut">{s.cause.replace(/_/g, " ")}</span>
        </section>
      ))}
      {res.error && res.value && <section class="panel strip"><StaleNote res={res} /></section>}
      {(res.value?.warnings.length ?? 0) > 0 && <section class="panel strip"><Notes list={res.value?.warnings ?? []} /></section>}
    </>
  );
}
