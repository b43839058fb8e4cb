// Finding things by a few letters: search and completion rank with the same rule.

/** How well text fits what was typed; 0 not at all. Beginning of the text beats beginning of a word beats inside beats letters in order. */
export function score(typed: string, text: string): number {
  if (typed === "") return 1;
  const q = typed.toLowerCase();
  const t = text.toLowerCase();
  const short = 1 - Math.min(text.length, 200) / 400;
  if (t === q) return 6;
  if (t.startsWith(q)) return 5 + short;
  const at = t.indexOf(q);
  if (at > 0) return (/[^a-z0-9]/.test(t[at - 1] ?? "") ? 4 : 3) + short;
  let i = 0;
  let boundary = 0;
  for (let j = 0; j < t.length && i < q.length; j++) {
    if (t[j] !== q[i]) continue;
    if (j === 0 || /[^a-z0-9]/.test(t[j - 1] ?? "")) boundary++;
    i++;
  }
  return i === q.length ? 1 + boundary / (q.length + 1) + short / 10 : 0;
}

/** The best limit items, best first; items of one score stay in their order. Several words must all fit. */
export function rank<T>(typed: string, items: readonly T[], textOf: (item: T) => string, limit: number): T[] {
  const words = typed.trim().split(/\s+/);
  return items
    .map((item) => {
      const text = textOf(item);
      const scores = words.map((w) => score(w, text));
      return { item, s: Math.min(...scores) };
    })
    .filter((x) => x.s > 0)
    .sort((a, b) => b.s - a.s)
    .slice(0, limit)
    .map((x) => x.item);
}
