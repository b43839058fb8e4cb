// One field that finds engines, signals, metrics, boards and pages, requests and traces by id, and goes there.
import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { boards, metrics, signals } from "../state/catalog";
import { engineList, needEngines } from "../state/fleet";
import { filterOf } from "../state/filter";
import { useKeys } from "../state/keys";
import { rank } from "../state/match";
import { type Page, type View } from "../state/route";
import { open } from "../state/view";

interface Hit {
  kind: string;
  title: string;
  detail: string;
  text: string;
  page: Page;
  patch: Partial<View>;
}

const PAGES: Hit[] = (["overview", "engines", "rollouts", "requests", "traces", "logs", "alerts", "explore"] as Page[]).map((p) => ({
  kind: "page", title: p[0]?.toUpperCase() + p.slice(1), detail: "", text: p, page: p, patch: {},
}));

function everything(): Hit[] {
  const hits: Hit[] = [...PAGES];
  for (const e of engineList.value ?? []) {
    hits.push({
      kind: "engine", title: e.name, detail: [e.role, e.model, e.name === e.instance ? "" : e.instance].filter(Boolean).join(" · "),
      text: `${e.name} ${e.instance} ${e.role} ${e.model}`, page: "engines", patch: { engine: e.id },
    });
  }
  for (const b of boards.value.value ?? []) hits.push({ kind: "board", title: b.title, detail: b.meaning, text: b.title, page: "engines", patch: { board: b.id } });
  for (const s of signals.value.value ?? []) hits.push({ kind: "signal", title: s.title, detail: s.meaning, text: `${s.id} ${s.title} ${s.short}`, page: "explore", patch: { expr: s.query } });
  for (const m of metrics.value.value ?? []) hits.push({ kind: "metric", title: m.name, detail: m.meaning, text: m.name, page: "explore", patch: { expr: m.name } });
  return hits;
}

/** What an id may be the name of: whoever types one goes to its request, its trace or its lines. */
function byID(text: string): Hit[] {
  const id = text.trim();
  if (!/^[\w.:@/-]{6,128}$/.test(id) || !/\d/.test(id)) return [];
  const hex = /^(0x)?[0-9a-f]{8,32}$/i.test(id);
  const request: Hit = { kind: "request", title: id, detail: "by its rid", text: "", page: "requests", patch: { filter: filterOf({ rid: id }), id: "first", range: { kind: "data" } } };
  const trace: Hit = { kind: "trace", title: id, detail: "by trace id, rid, x-request-id or bootstrap room", text: "", page: "traces", patch: { id } };
  const lines: Hit = { kind: "logs", title: id, detail: "lines that name it", text: "", page: "logs", patch: { filter: `"${id}"` } };
  return hex && id.length >= 16 ? [trace, request, lines] : [request, trace, lines];
}

export function Search() {
  const field = useRef<HTMLInputElement>(null);
  const text = useSignal("");
  const active = useSignal(0);
  const shown = useSignal(false);
  const hits = useComputed(() => {
    if (!shown.value) return [];
    if (!text.value) return everything().slice(0, 12);
    const named = rank(text.value, everything(), (h) => h.text, 12);
    const ids = byID(text.value);
    // What is called so exactly comes first, then the ids, then what is only alike.
    const exact = named.filter((h) => h.text.toLowerCase().includes(text.value.trim().toLowerCase()));
    return [...exact, ...ids, ...named.filter((h) => !exact.includes(h))].slice(0, 12);
  });
  useKeys({ "/": () => field.current?.focus() });

  const go = (h: Hit | undefined) => {
    if (!h) return;
    shown.value = false;
    text.value = "";
    field.current?.blur();
    open(h.page, h.patch);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const n = hits.value.length;
    if (e.key === "ArrowDown" && n) active.value = (active.value + 1) % n;
    else if (e.key === "ArrowUp" && n) active.value = (active.value - 1 + n) % n;
    else if (e.key === "Enter") go(hits.value[active.value]);
    else if (e.key === "Escape") {
      text.value = "";
      shown.value = false;
      field.current?.blur();
    } else return;
    e.preventDefault();
  };
  return (
    <div class="search" role="search">
      <input
        ref={field}
        type="text"
        placeholder="Search engine, rid, trace, metric…"
        aria-label="search"
        role="combobox"
        aria-expanded={shown.value}
        aria-controls="search-hits"
        aria-activedescendant={shown.value && hits.value.length ? `hit-${active.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onFocus={() => {
          shown.value = true;
          active.value = 0;
          needEngines().catch(() => undefined); // without it the search lacks the engines, and the page says why
        }}
        onBlur={() => (shown.value = false)}
        onInput={(e) => {
          text.value = e.currentTarget.value;
          active.value = 0;
          shown.value = true;
        }}
        onKeyDown={onKeyDown}
      />
      <kbd>/</kbd>
      {shown.value && (
        <ul class="pop hits" id="search-hits" role="listbox">
          {hits.value.map((h, i) => (
            <li
              key={`${h.kind} ${h.title} ${h.patch.engine ?? ""}`}
              id={`hit-${i}`}
              role="option"
              aria-selected={i === active.value}
              onPointerDown={(e) => {
                e.preventDefault();
                go(h);
              }}
              onPointerEnter={() => (active.value = i)}
            >
              <span class="hit-kind">{h.kind}</span>
              <span class="hit-title">{h.title}</span>
              <span class="hit-detail">{h.detail}</span>
            </li>
          ))}
          {hits.value.length === 0 && <li class="mut">nothing is called “{text.value}”</li>}
        </ul>
      )}
    </div>
  );
}
