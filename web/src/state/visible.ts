// Whether an element is in sight, or was: panels far down a page load when they are scrolled to, and rest
// when they are scrolled away.
import { useEffect, useRef, useState } from "preact/hooks";

export function useSeen<T extends Element>(): { ref: { current: T | null }; seen: boolean; visible: boolean } {
  const ref = useRef<T>(null);
  const [state, setState] = useState({ seen: false, visible: false });
  useEffect(() => {
    const el = ref.current;
    if (!el) return;
    const o = new IntersectionObserver(
      (entries) => {
        const visible = entries.at(-1)?.isIntersecting === true;
        setState((s) => (s.visible === visible ? s : { seen: s.seen || visible, visible }));
      },
      { rootMargin: "150px" },
    );
    o.observe(el);
    return () => o.disconnect();
  }, []);
  return { ref, ...state };
}
