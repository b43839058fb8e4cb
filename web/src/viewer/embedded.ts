// Finds the containers in a file: a saved page's script elements, or the container itself.
import { fromBase64 } from "../timeline/container";

export function dataIn(file: Uint8Array): Uint8Array[] {
  if (file[0] === 0x52 && file[1] === 0x54 && file[2] === 0x43 && file[3] === 0x31) return [file];
  const text = new TextDecoder("latin1").decode(file);
  const out: Uint8Array[] = [];
  // Only the elements that carry data: their content is base64 and nothing else.
  for (const m of text.matchAll(/<script type="text\/plain" id="rollscope-timeline[\w-]*">\s*([A-Za-z0-9+/=]+)\s*<\/script>/g)) out.push(fromBase64(m[1] as string));
  return out;
}
