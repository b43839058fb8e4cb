// The fleet as a table, and below it the selected engine, or a board over the fleet.
import { useEffect, useMemo } from "preact/hooks";
import { apiTime, get } from "../api/client";
import type * as api from "../api/types";
import { BoardView } from "../components/boardview";
import { EngineTable, TableKey, worstFirst } from "../components/enginetable";
import { Link } from "../components/link";
import { Badge, Empty, ErrorBox, LoadingBar, levels, Notes, StaleNote } from "../components/state";
import { TopBar } from "../components/topbar";
import { plural } from "../format/number";
import { boards, signals } from "../state/catalog";
import { engineList } from "../state/fleet";
import { useKeys } from "../state/keys";
import { win } from "../state/live";
import { rank } from "../state/match";
import { useResource } from "../state/resource";
import { change, isZoomed, view } from "../state/view";
import { hasPasses, usePasses } from "../state/passes";
import { EngineDetails } from "./engine";
import { EnginesSwitch, Passes } from "./passes";

/** Columns of the fleet table, where the catalog has the signal. */
const COLUMNS = ["ttft:p99", "itl:p99", "throughput", "cache_hit_rate", "running", "queue_depth", "kv_usage", "retractions"];
const SPARKS = new Set(["ttft:p99", "itl:p99", "throughput", "cache_hit_rate", "running", "kv_usage"]);

export function Engines() {
  return view.value.passes ? <Passes /> : <Fleet />;
}

function Fleet() {
  const w = win.value;
  const v = view.value;
  const known = signals.value;
  // Until the catalog is there nobody can say which columns exist; without it the server's own will do.
  const columns = known.value ? COLUMNS.filter((c) => known.value?.some((s) => s.id === c.split(":")[0])).join(",") : "";
  const res = useResource(known.value || known.error ? "engines" : null, `${w.from} ${w.to} ${columns}`, (abort) =>
    get<api.Engines>("/engines", { from: apiTime(w.from), to: apiTime(w.to), columns }, abort),
  );
  const all = useMemo(() => worstFirst(res.value?.data.engines ?? []), [res.value]);
  useEffect(() => {
    if (res.value) engineList.value = res.value.data.engines;
  }, [res.value]);
  const roles = [...new Set(all.map((e) => e.role).filter(Boolean))].sort();
  const rows = shown(all, v.filter, v.level, v.role);
  const selected = all.find((e) => e.id === v.engine);
  const board = boards.value.value?.find((b) => b.id === v.board);

  const passes = usePasses().value?.data;
  const step = (d: number) => () => {
    const i = rows.findIndex((e) => e.id === v.engine);
    if (i < 0) return false;
    const next = rows[(i + d + rows.length) % rows.length];
    if (next) change({ engine: next.id }, "replace");
    return true;
  };
  useKeys({
    "[": step(-1),
    "]": step(1),
    p: () => {
      if (!hasPasses(passes)) return false;
      const worker = v.engine ? passes?.engines?.find((e) => e.engine_id === v.engine)?.id : undefined;
      change({ passes: true, engine: "", board: "", worker: worker ?? "" });
      return true;
    },
    Escape: () => {
      if (isZoomed.value || (!view.value.engine && !view.value.board)) return false;
      change({ engine: "", board: "" });
      return true;
    },
  });

  return (
    <>
      <TopBar title="Engines" sub={<Crumbs all={res.value ? all : undefined} selected={selected} board={board} />}>
        <EnginesSwitch passes={passes} />
      </TopBar>
      <main class="main page-engines">
        <section class={`panel fleet ${v.engine || v.board ? "fleet-short" : ""}`} aria-label="fleet">
          <header class="panel-h">
            <h2>Fleet</h2>
            <span class="u">{rows.length < all.length ? `${rows.length} of ${plural(all.length, "engine")}` : v.sort ? "" : "worst first"}</span>
            <Filters all={all} roles={roles} />
            <Notes list={res.value?.warnings ?? []} />
            <span class="sp" />
            {!v.engine && <BoardPicker />}
            <TableKey />
          </header>
          <LoadingBar on={res.loading} />
          {res.error && !res.value && <ErrorBox error={res.error} failingSince={res.failingSince} />}
          {res.value && all.length === 0 && <Empty what="No engine has been seen in this range. A longer range may hold some; the list at the lower left says what is scraped." how="rollscope serve --scrape HOST:30000" />}
          {res.value && all.length > 0 && (
            <EngineTable
              engines={rows}
              fleet={all}
              columns={res.value.data.columns}
              sparks={(key) => SPARKS.has(key)}
              details
              selected={v.engine}
              sort={v.sort}
              onSort={(sort) => change({ sort }, "replace")}
              onOpen={(e) => change({ engine: e.id === v.engine ? "" : e.id })}
              primary
            />
          )}
          {res.value && all.length > 0 && rows.length === 0 && <p class="calm">no engine fits the filter</p>}
          {res.error && res.value && <footer class="panel-f"><StaleNote res={res} /></footer>}
        </section>
        {v.engine ? (
          <EngineDetails key={v.engine} id={v.engine} fleet={all} board={board} picker={<BoardPicker />} />
        ) : board ? (
          <BoardSection board={board} />
        ) : v.board && boards.value.value ? (
          <p class="panel calm">there is no board “{v.board}” <Link patch={{ board: "" }}>back</Link></p>
        ) : null}
      </main>
    </>
  );
}

/** The engines that fit the text, level and role. */
export function shown(all: api.Engine[], text: string, level: string, role: string): api.Engine[] {
  const some = all.filter((e) => (!level || e.level === level) && (!role || e.role === role));
  if (!text.trim()) return some;
  const hits = new Set(rank(text, some, (e) => [e.name, e.instance, e.job, e.role, e.backend, e.version, e.model, ...Object.values(e.labels)].join(" "), some.length));
  return some.filter((e) => hits.has(e));
}

function Crumbs({ all, selected, board }: { all: api.Engine[] | undefined; selected: api.Engine | undefined; board: api.Board | undefined }) {
  const id = view.value.engine;
  return (
    <>
      {id || board ? <Link patch={{ engine: "", board: "" }}>{all ? plural(all.length, "engine") : "engines"}</Link> : all ? plural(all.length, "engine") : ""}
      {id && <> ▸ {selected?.name ?? id}</>}
      {board && <> ▸ {board.title}</>}
    </>
  );
}

function Filters({ all, roles }: { all: api.Engine[]; roles: string[] }) {
  const v = view.value;
  const present = levels.filter((l) => all.some((e) => e.level === l));
  return (
    <span class="filters">
      <input
        type="text" class="filter" placeholder="filter" aria-label="filter engines" spellcheck={false} autocomplete="off"
        value={v.filter} onInput={(e) => change({ filter: e.currentTarget.value }, "replace")}
      />
      {(present.length > 1 || v.level) && present.map((l) => (
        <button type="button" key={l} class={v.level === l ? "bare on" : "bare"} aria-pressed={v.level === l} title={`only ${l}`} onClick={() => change({ level: v.level === l ? "" : l })}>
          <Badge level={l}>{all.filter((e) => e.level === l).length} {l}</Badge>
        </button>
      ))}
      {(roles.length > 1 || v.role) && roles.map((r) => (
        <button type="button" key={r} class={v.role === r ? "chip on" : "chip"} aria-pressed={v.role === r} onClick={() => change({ role: v.role === r ? "" : r })}>
          {r}
        </button>
      ))}
    </span>
  );
}

/** Any board, for what is selected. */
export function BoardPicker() {
  const list = boards.value.value ?? [];
  if (list.length === 0) return null;
  return (
    <label class="picker">
      <span class="mut">board</span>
      <select value={view.value.board} onChange={(e) => change({ board: e.currentTarget.value })}>
        <option value="">{view.value.engine ? "its signals" : "none"}</option>
        {list.map((b) => (
          <option key={b.id} value={b.id}>{b.title}</option>
        ))}
      </select>
    </label>
  );
}

function BoardSection({ board }: { board: api.Board }) {
  return (
    <>
      <section class="panel strip">
        <b>{board.title}</b>
        <span class="sec why" title={board.meaning}>{board.meaning}</span>
        <span class="sp" />
        <span class="mut">the whole fleet · select an engine to narrow it</span>
        <Link patch={{ board: "" }} class="quiet">close</Link>
      </section>
      <BoardView board={board} />
    </>
  );
}
