// Finds the containers in a page or a file: script elements with base64, or the container itself.
import { fromBase64 } from "../timeline/container";

/** Pieces of base64, each of which can be decoded alone, as the bytes that they are together. */
function join(pieces: string[]): Uint8Array {
  const parts = pieces.map(fromBase64);
  if (parts.length === 1) return parts[0] as Uint8Array;
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

/**
 * The containers in the document. One stands in a script element with an id, and goes on in those that follow
 * it: browsers take many small elements faster than a large one. The elements are removed: their text would be
 * kept beside the columns.
 */
export function takeData(document: Document): Uint8Array[] {
  const out: Uint8Array[] = [];
  for (const first of document.querySelectorAll<HTMLScriptElement>('script[type="text/plain"][id^="rollscope-timeline"]')) {
    const pieces: string[] = [];
    for (let el: Element | null = first; el && (el === first || el.matches("script.rollscope-more")); ) {
      const next: Element | null = el.nextElementSibling;
      pieces.push((el.textContent ?? "").trim());
      el.remove();
      el = next;
    }
    out.push(join(pieces));
  }
  return out;
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
