// Panels in rows that are full: as many columns as fit, then so few that the rows are even, and the last
// row's panels share its width.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const GAP = 8;

/** Columns for count panels in width pixels, each at least min wide: 5 in a room for 4 are 3 and 2. */
export function columns(count: number, width: number, min: number): number {
  const fit = Math.max(1, Math.floor((width + GAP) / (min + GAP)));
  const rows = Math.max(1, Math.ceil(count / fit));
  return Math.max(1, Math.ceil(count / rows));
}

export function Grid({ count, min = 232, children }: { count: number; min?: number; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [n, setN] = useState(0);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = () => setN(columns(count, el.clientWidth, min));
    measure();
    const o = new ResizeObserver(measure);
    o.observe(el);
    return () => o.disconnect();
  }, [count, min]);
  return (
    <div class="grid" ref={box} style={{ "--cols": String(n || 1) }}>
      {children}
    </div>
  );
}
