// The filter of requests as text that the page reads and changes: words and terms like engine:"a b",
// ttft>=5s, -finish:stop, with a space between. What a term means is the server's business.

/** Splits a filter at spaces that stand in no quotes. */
export function terms(filter: string): string[] {
  const out: string[] = [];
  let term = "";
  let quoted = false;
  for (let i = 0; i < filter.length; i++) {
    const c = filter[i] as string;
    if (quoted && c === "\\" && i + 1 < filter.length) {
      term += c + (filter[++i] as string);
      continue;
    }
    if (c === '"') quoted = !quoted;
    if (!quoted && /\s/.test(c)) {
      if (term) out.push(term);
      term = "";
      continue;
    }
    term += c;
  }
  if (term) out.push(term);
  return out;
}

/** A value as a term holds it: in quotes unless it is one plain word. */
export function quote(value: string): string {
  return /^[\w./@-]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`;
}

function unquote(text: string): string {
  return text.startsWith('"') ? text.slice(1, text.endsWith('"') && text.length > 1 ? -1 : undefined).replace(/\\(.)/g, "$1") : text;
}

/** The value that a filter wants of a field, "" when it says nothing of it. */
export function wants(filter: string, field: string): string {
  const t = terms(filter).find((x) => x.startsWith(`${field}:`));
  return t ? unquote(t.slice(field.length + 1)) : "";
}

/** The filter with field:value and no other demand of equality on the field; an empty value takes it out. */
export function withTerm(filter: string, field: string, value: string): string {
  const rest = terms(filter).filter((t) => !t.startsWith(`${field}:`));
  return (value === "" ? rest : [...rest, `${field}:${quote(value)}`]).join(" ");
}

/** The filter with the field between two numbers, written with the unit; null leaves a side open. */
export function withRange(filter: string, field: string, low: number | null, high: number | null, unit = ""): string {
  const rest = terms(filter).filter((t) => !new RegExp(`^${field}[<>]`).test(t));
  const num = (v: number) => `${+v.toPrecision(4)}${unit}`;
  if (low !== null) rest.push(`${field}>=${num(low)}`);
  if (high !== null) rest.push(`${field}<=${num(high)}`);
  return rest.join(" ");
}

/** The filter with engines by HOST:PORT where it has them by a name that instanceOf knows. */
export function withInstances(filter: string, instanceOf: (name: string) => string | undefined): string {
  return terms(filter)
    .map((t) => {
      const m = /^(-?(?:prefill_)?engine[:=])(.+)$/.exec(t);
      const instance = m ? instanceOf(unquote(m[2] as string)) : undefined;
      return m && instance ? (m[1] as string) + quote(instance) : t;
    })
    .join(" ");
}

/** A filter of field:value terms; what is empty is left out. */
export function filterOf(fields: Record<string, string | number | null | undefined>): string {
  return Object.entries(fields)
    .filter(([, v]) => v !== "" && v !== null && v !== undefined)
    .map(([k, v]) => `${k}:${quote(String(v))}`)
    .join(" ");
}

/** A LogsQL phrase that a field is exactly this value. */
export function logsField(field: string, value: string): string {
  return `${field}:="${value.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n")}"`;
}
