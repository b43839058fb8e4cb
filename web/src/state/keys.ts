// The keyboard. Bindings are laid over each other: the ones of an open drawer before the page's, the
// page's before the shell's. Sequences are written with a space: "g o".
import { useLayoutEffect, useRef } from "preact/hooks";

/** Returns false when the key was not for it, and the next layer is asked. */
export type Action = (e: KeyboardEvent) => boolean | void;
export type Bindings = Record<string, Action>;

const layers: { current: Bindings; level: number }[] = [];
let prefix = "";
let prefixAt = 0;
const PREFIX_MS = 1500;

/** Binds keys while the component is shown. level: 0 the shell, 1 a page, 2 what is laid over it. */
export function useKeys(bindings: Bindings, level: 0 | 1 | 2 = 1): void {
  const ref = useRef(bindings);
  ref.current = bindings;
  // Before anything of the component can be seen: a key that is pressed at once is heard.
  useLayoutEffect(() => {
    const layer = { get current() { return ref.current; }, level };
    layers.push(layer);
    layers.sort((a, b) => a.level - b.level);
    return () => void layers.splice(layers.indexOf(layer), 1);
  }, []);
}

/** Whether keys typed at the target are text, or belong to the control itself. */
function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function pressesControl(target: EventTarget | null, key: string): boolean {
  return (key === "Enter" || key === " ") && target instanceof HTMLElement &&
    target.closest("button, a, summary, [role=option], [role=menuitem]") !== null;
}

export function keyName(e: Pick<KeyboardEvent, "key">): string {
  return e.key === " " ? "Space" : e.key;
}

/** Which action a key runs, given the layers (last first) and a pending prefix. Pure, for tests. */
export function resolve(maps: Bindings[], pending: string, key: string): { run: Action[]; pending: string } {
  const name = pending ? `${pending} ${key}` : key;
  const run: Action[] = [];
  for (let i = maps.length - 1; i >= 0; i--) {
    const a = maps[i]?.[name];
    if (a) run.push(a);
  }
  if (run.length > 0) return { run, pending: "" };
  if (!pending && maps.some((m) => Object.keys(m).some((k) => k.startsWith(`${key} `)))) return { run, pending: key };
  return { run, pending: "" };
}

export function startKeys(): void {
  document.addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Shift" || e.key === "CapsLock") return;
    const esc = e.key === "Escape";
    if (takesText(e.target) && !esc) return;
    if (pressesControl(e.target, e.key)) return;
    if (Date.now() - prefixAt > PREFIX_MS) prefix = "";
    const found = resolve(layers.map((l) => l.current), prefix, keyName(e));
    prefix = found.pending;
    prefixAt = Date.now();
    for (const run of found.run) {
      if (run(e) === false) continue;
      e.preventDefault();
      return;
    }
    if (esc && takesText(e.target)) (e.target as HTMLElement).blur();
  });
}
