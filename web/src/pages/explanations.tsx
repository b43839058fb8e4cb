// The panel beside a query: what each name in it means, how it misleads, what to use instead.
import type * as api from "../api/types";
import { backendName } from "../components/enginetable";
import { StateIcon } from "../components/icons";
import type { Explanation } from "../promql/explain";
import { lex } from "../promql/lex";
import { metrics, signalInfo } from "../state/catalog";

interface Props {
  list: Explanation[];
  text: string;
  onUse: (query: string) => void;
}

export function Explanations({ list, text, onUse }: Props) {
  if (list.length === 0) {
    return (
      <div class="facts">
        <h2>What it means</h2>
        <p class="mut">Put the caret on a metric or function: its meaning, its trap and its successor stand here.</p>
      </div>
    );
  }
  return (
    <div class="facts">
      {list.map((e) => (
        <article key={`${e.kind} ${e.name}`}>
          <h2 class="mono">{e.name}</h2>
          {e.kind === "metric" && <Metric name={e.name} info={e.info} text={text} onUse={onUse} />}
          {e.kind === "recorded" && <Recorded info={e.info} />}
          {e.kind === "word" && (
            <>
              <pre class="expr">{e.word.form}</pre>
              <p>{e.word.does}</p>
            </>
          )}
          {e.kind === "own" && <p>{e.does}</p>}
          {e.kind === "unknown" && <p class="mut">{metrics.value.value ? "Not in the catalog: recorded by a rule of yours, or exported by something Rollscope does not know." : metrics.value.error ? `The catalog could not be loaded: ${metrics.value.error.message}.` : "The catalog is loading."}</p>}
        </article>
      ))}
    </div>
  );
}

function Metric({ name, info: m, text, onUse }: { name: string; info: api.MetricInfo; text: string; onUse: (q: string) => void }) {
  const signal = m.use ? signalInfo(m.use) : undefined;
  return (
    <>
      <p>{m.meaning || "No description."}</p>
      {m.trap && <p class="trap"><StateIcon level="warn" /> <span><b>Trap</b> {m.trap}</span></p>}
      {m.use && (
        <p class="use">
          <span><b>Use instead</b> <code>{m.use}</code></span>
          <button type="button" class="chip" onClick={() => onUse(signal ? signal.query : replaced(text, name, m.use))}>use it</button>
        </p>
      )}
      <dl>
        <div><dt>type</dt><dd>{m.type}{m.unit ? `, ${m.unit}` : ""}</dd></div>
        {m.name !== name && <div><dt>family</dt><dd class="mono">{m.name}</dd></div>}
        <div><dt>written by</dt><dd>{backendName(m.backend) || "unknown"}{m.custom ? ", not in the catalog (custom)" : ""}</dd></div>
        {m.labels.length > 0 && <div><dt>labels</dt><dd class="wrap">{m.labels.join(", ")}</dd></div>}
        {(m.since || m.till) && <div><dt>versions</dt><dd>{m.since ? `since ${m.since}` : ""}{m.since && m.till ? ", " : ""}{m.till ? `until ${m.till}` : ""}</dd></div>}
        <div><dt>stored</dt><dd>{m.stored ? "yes" : "not in this range"}</dd></div>
      </dl>
    </>
  );
}

function Recorded({ info: s }: { info: api.SignalInfo }) {
  return (
    <>
      <p>Recorded by Rollscope's rules for <b>{s.title}</b>. {s.meaning}</p>
      {s.trap && <p class="trap"><StateIcon level="warn" /> <span><b>Trap</b> {s.trap}</span></p>}
      <dl><div><dt>unit</dt><dd>{s.unit}</dd></div></dl>
      <pre class="expr">{s.query}</pre>
    </>
  );
}

/** The query with one metric's name replaced; its suffix (_bucket) is kept. */
export function replaced(text: string, name: string, by: string): string {
  const suffix = /_(bucket|sum|count)$/.exec(name)?.[0] ?? "";
  const to = suffix && !by.endsWith(suffix) ? by + suffix : by;
  return lex(text).map((t) => (t.kind === "metric" && t.text === name ? to : t.text)).join("");
}
