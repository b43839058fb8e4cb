// Things laid over the page: a menu under a button, a drawer at the right, a dialog in the middle. Each
// closes with Esc and with a press elsewhere, and gives the focus back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useKeys } from "../state/keys";
import { Tool, TOOLS } from "./icons";

interface LayerProps {
  label: string;
  onClose: () => void;
  class?: string;
  children: ComponentChildren;
}

function useLayer(onClose: () => void, focus: boolean) {
  const ref = useRef<HTMLDivElement>(null);
  const close = useRef(onClose);
  close.current = onClose;
  useKeys({ Escape: () => close.current() }, 2);
  useEffect(() => {
    const before = document.activeElement;
    if (focus) (ref.current?.querySelector<HTMLElement>("[data-autofocus]") ?? ref.current)?.focus({ preventScroll: true });
    const outside = (e: PointerEvent) => {
      const t = e.target as Node;
      // The button that opened it is beside it, in the same anchor, and toggles by itself.
      if (!ref.current?.contains(t) && !ref.current?.parentElement?.closest(".anchor")?.contains(t)) close.current();
    };
    document.addEventListener("pointerdown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      if (focus && before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return ref;
}

/** A menu or form under its button; both stand in an element of class "anchor". */
export function Popover(p: LayerProps) {
  const ref = useLayer(p.onClose, true);
  return (
    <div ref={ref} class={`pop ${p.class ?? ""}`} role="dialog" aria-label={p.label} tabIndex={-1}>
      {p.children}
    </div>
  );
}

/** A panel over the right edge of the page. */
export function Drawer(p: LayerProps & { title: ComponentChildren }) {
  const ref = useLayer(p.onClose, true);
  return (
    <div ref={ref} class={`drawer ${p.class ?? ""}`} role="dialog" aria-label={p.label} tabIndex={-1}>
      <Head title={p.title} onClose={p.onClose} />
      <div class="drawer-body scroll">{p.children}</div>
    </div>
  );
}

export function Dialog(p: LayerProps & { title: ComponentChildren }) {
  const ref = useLayer(p.onClose, true);
  return (
    <div class="veil">
      <div ref={ref} class={`dialog ${p.class ?? ""}`} role="dialog" aria-modal="true" aria-label={p.label} tabIndex={-1}>
        <Head title={p.title} onClose={p.onClose} />
        {p.children}
      </div>
    </div>
  );
}

function Head({ title, onClose }: { title: ComponentChildren; onClose: () => void }) {
  return (
    <header class="panel-h">
      <h2>{title}</h2>
      <span class="sp" />
      <button type="button" class="quiet" aria-label="close" title="close (Esc)" onClick={onClose}>
        <Tool d={TOOLS.close} />
      </button>
    </header>
  );
}
