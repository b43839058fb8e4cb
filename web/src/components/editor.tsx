// The PromQL editor: colours under a plain text area, completion at the caret, a wavy line under an error.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { labelNames, labelValues } from "../api/prom";
import { metrics } from "../state/catalog";
import { win } from "../state/live";
import { complete, placeAt, take, type Completion } from "../promql/complete";
import { Highlight, type Mark } from "./highlight";

export interface EditorProps {
  text: string;
  onText: (text: string) => void;
  onCaret: (caret: number) => void;
  onRun: () => void;
  /** the completion that is looked at, "" none: it is explained instead of what is typed */
  onLook: (name: string) => void;
  error: Mark | null;
}

/** Answers of the server that completion is made of, kept while the page is open. */
const cache = new Map<string, Promise<string[]>>();

function cached(key: string, load: () => Promise<string[]>): Promise<string[]> {
  let p = cache.get(key);
  if (!p) {
    p = load().catch(() => {
      cache.delete(key); // asked again with the next letter
      return [];
    });
    cache.set(key, p);
  }
  return p;
}

export function Editor({ text, onText, onCaret, onRun, onLook, error }: EditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const caret = useSignal(text.length);
  const content = useSignal(text);
  content.value = text;
  const wanted = useSignal(false);
  const active = useSignal(0);
  const labels = useSignal<string[]>([]);
  const values = useSignal<string[]>([]);
  const names = useSignal<string[]>([]);
  const at = useRef({ left: 0, top: 0 });

  const place = useComputed(() => placeAt(content.value, caret.value));
  // Names that the store holds and the catalog does not know.
  const others = useComputed(() => {
    const known = new Set<string>();
    for (const m of metrics.value.value ?? []) for (const s of ["", "_bucket", "_count", "_sum", "_total"]) known.add(m.name + s);
    return names.value.filter((n) => !known.has(n));
  });
  const items = useComputed((): Completion[] =>
    wanted.value ? complete(place.value, { metrics: metrics.value.value ?? [], others: others.value, labels: labels.value, values: values.value }) : [],
  );

  useSignalEffect(() => {
    const p = place.value;
    if (!wanted.value) return;
    const w = win.peek();
    const match = p.metric ? `{__name__=${JSON.stringify(p.metric)}}` : "";
    let late = false;
    const put = (s: { value: string[] }) => (v: string[]) => {
      if (!late) s.value = v;
    };
    if (p.kind === "expression") void cached("names", () => labelValues("__name__", "", w)).then(put(names));
    if (p.kind === "label") void cached(`labels ${match}`, () => labelNames(match, w)).then((v) => put(labels)(v.filter((l) => l !== "__name__")));
    if (p.kind === "value") void cached(`values ${p.label} ${match}`, () => labelValues(p.label, match, w)).then(put(values));
    return () => {
      late = true;
    };
  });

  useSignalEffect(() => {
    const c = items.value[active.value];
    onLook(c && ["metric", "function", "aggregation", "keyword"].includes(c.kind) ? c.text : "");
  });

  const move = () => {
    const el = area.current;
    if (!el) return;
    caret.value = el.selectionStart;
    onCaret(el.selectionStart);
  };
  const accept = (c: Completion | undefined) => {
    const el = area.current;
    if (!c || !el) return;
    const next = take(content.value, place.value, c);
    onText(next.text);
    wanted.value = c.kind === "label"; // its values come next
    active.value = 0;
    requestAnimationFrame(() => {
      el.focus();
      el.setSelectionRange(next.caret, next.caret);
      move();
    });
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const n = items.value.length;
    if (n > 0 && (e.key === "ArrowDown" || e.key === "ArrowUp")) {
      active.value = (active.value + (e.key === "ArrowDown" ? 1 : n - 1)) % n;
      list.current?.children[active.value]?.scrollIntoView({ block: "nearest" });
    } else if (n > 0 && (e.key === "Tab" || (e.key === "Enter" && !e.shiftKey && !e.ctrlKey && !e.metaKey))) {
      accept(items.value[active.value]);
    } else if (e.key === "Enter" && !e.shiftKey) {
      wanted.value = false;
      onRun();
    } else if (e.key === " " && e.ctrlKey) {
      wanted.value = true;
      active.value = 0;
    } else if (e.key === "Escape" && n > 0) {
      wanted.value = false;
      e.stopPropagation();
    } else return;
    e.preventDefault();
  };

  // The list hangs under the caret: the width of the text before it is measured in the colours underneath.
  const under = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    const pre = under.current;
    if (!pre) return;
    const range = document.createRange();
    const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    let left = place.value.from;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const length = node.textContent?.length ?? 0;
      if (left <= length) {
        range.setStart(node, left);
        range.setEnd(node, left);
        const box = range.getBoundingClientRect();
        const host = pre.getBoundingClientRect();
        at.current = { left: Math.min(box.left - host.left, host.width - 320), top: box.bottom - host.top + 4 };
        break;
      }
      left -= length;
    }
  });

  return (
    <div class="editor">
      <pre class="editor-under" ref={under} aria-hidden="true">
        <Highlight text={text} mark={error} />
        {"\n"}
      </pre>
      <textarea
        ref={area}
        class="editor-text"
        aria-label="PromQL"
        aria-invalid={error !== null}
        aria-autocomplete="list"
        aria-expanded={items.value.length > 0}
        aria-controls="completions"
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        rows={1}
        value={text}
        placeholder="PromQL, for example  sum by (instance) (rate(sglang:generation_tokens_total[1m]))"
        onInput={(e) => {
          onText(e.currentTarget.value);
          wanted.value = true;
          active.value = 0;
          move();
        }}
        onKeyDown={onKeyDown}
        onKeyUp={move}
        onClick={() => {
          wanted.value = false;
          move();
        }}
        onBlur={() => (wanted.value = false)}
      />
      {items.value.length > 0 && (
        <ul class="pop completions" id="completions" role="listbox" ref={list} style={{ left: `${Math.max(0, at.current.left)}px`, top: `${at.current.top}px` }}>
          {items.value.map((c, i) => (
            <li
              key={`${c.kind} ${c.text}`}
              role="option"
              aria-selected={i === active.value}
              class={c.faint ? "faint" : ""}
              title={c.faint ? "the store holds no such series" : undefined}
              onPointerDown={(e) => {
                e.preventDefault();
                accept(c);
              }}
            >
              <span class={`hit-kind tok-${c.kind === "value" ? "string" : c.kind}`}>{c.kind}</span>
              <span class="hit-title">{c.text}</span>
              <span class="hit-detail">{c.detail}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
