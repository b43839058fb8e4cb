// Whether an element is in sight, or was: panels far down a page load when they are scrolled to.
import { useEffect, useRef, useState } from "preact/hooks";

export function useSeen<T extends Element>(): { ref: { current: T | null }; seen: boolean } {
  const ref = useRef<T>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const el = ref.current;
    if (!el || seen) return;
    const o = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && setSeen(true), { rootMargin: "200px" });
    o.observe(el);
    return () => o.disconnect();
  }, [seen]);
  return { ref, seen };
}
