// Finds the containers in a page or a file: script elements with base64, or the container itself.
import { fromBase64 } from "../timeline/container";

/** Pieces of base64, each of which can be decoded alone, as the bytes that they are together. */
function join(pieces: string[]): Uint8Array {
  const size = (p: string) => (p.length / 4) * 3 - (p.endsWith("==") ? 2 : p.endsWith("=") ? 1 : 0);
  const out = new Uint8Array(pieces.reduce((n, p) => n + Math.ceil(size(p)), 0));
  let at = 0;
  for (const p of pieces) at += fromBase64(p, out.subarray(at));
  return at === out.length ? out : out.slice(0, at);
}

export interface Embedded {
  /** the container, or its beginning: head and columns */
  bytes: Uint8Array;
  /** what follows; it stands behind the script and may not have been read yet */
  rest: (() => Promise<Uint8Array>) | null;
}

const MORE = "script.rollscope-more";

/** Takes an element's text out of the document: it would be kept beside the columns. */
function take(el: Element): string {
  const text = (el.textContent ?? "").trim();
  el.remove();
  return text;
}

/**
 * The containers in the document, as far as it is read. One stands in a script element with an id, and goes on in
 * those that follow it: browsers take many small elements faster than a large one. What stands behind the script
 * that calls this belongs to the last one.
 */
export function takeData(document: Document): Embedded[] {
  const out: Embedded[] = [];
  for (const first of document.querySelectorAll<HTMLScriptElement>('script[type="text/plain"][id^="rollscope-timeline"]')) {
    const pieces: string[] = [];
    for (let el: Element | null = first; el && (el === first || el.matches(MORE)); ) {
      const next: Element | null = el.nextElementSibling;
      pieces.push(take(el));
      el = next;
    }
    out.push({ bytes: join(pieces), rest: null });
  }
  const last = out.at(-1);
  if (last && document.readyState === "loading") {
    let rest: Promise<Uint8Array> | null = null;
    last.rest = () => (rest ??= read(document).then(() => join([...document.querySelectorAll(MORE)].map(take))));
  }
  return out;
}

/** Once the document is read to its end. */
function read(document: Document): Promise<void> {
  return document.readyState !== "loading" ? Promise.resolve() : new Promise((done) => document.addEventListener("DOMContentLoaded", () => done(), { once: true }));
}

/** The containers in a file: a saved page, or a container. */
export function dataIn(file: Uint8Array): Uint8Array[] {
  if (file[0] === 0x52 && file[1] === 0x54 && file[2] === 0x43 && file[3] === 0x31) return [file];
  const text = new TextDecoder("latin1").decode(file);
  const found: string[][] = [];
  // Only the elements that carry data: their content is base64 and nothing else.
  for (const m of text.matchAll(/<script type="text\/plain" (id="rollscope-timeline[\w-]*"|class="rollscope-more")>\s*([A-Za-z0-9+/=]+)\s*<\/script>/g)) {
    if ((m[1] as string).startsWith("id")) found.push([]);
    found.at(-1)?.push(m[2] as string);
  }
  return found.map(join);
}
