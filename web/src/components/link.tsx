// A link to a view: a real address, so that it opens in another tab and is copied; a plain click stays in
// the page.
import type { ComponentChildren } from "preact";
import { goTo, viewURL, type Page, type View } from "../state/route";
import { engineAt } from "../state/fleet";
import { navigate, view } from "../state/view";

export interface LinkProps {
  /** the page, or nothing to stay on this one */
  to?: Page;
  /** what of the view changes */
  patch?: Partial<View>;
  class?: string | undefined;
  title?: string | undefined;
  label?: string | undefined;
  current?: boolean;
  tabIndex?: number;
  onFollow?: () => void;
  children?: ComponentChildren;
}

export function Link({ to, patch = {}, title, label, current, tabIndex, onFollow, children, ...rest }: LinkProps) {
  const target = to ? goTo(view.value, to, patch) : { ...view.value, ...patch };
  return (
    <a
      href={viewURL(target)}
      class={rest.class}
      title={title}
      aria-label={label}
      aria-current={current ? "page" : undefined}
      tabIndex={tabIndex}
      onClick={(e) => {
        if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
        e.preventDefault();
        e.stopPropagation();
        navigate(target);
        onFollow?.();
      }}
    >
      {children}
    </a>
  );
}

/** The engine that a request or a line names by HOST:PORT, by its own name where the fleet knows it. */
export function InstanceLink({ instance, patch = {} }: { instance: string; patch?: Partial<View> }) {
  const e = engineAt(instance);
  return <Link to="engines" patch={{ engine: e?.id ?? instance, ...patch }} title={e && e.name !== instance ? instance : undefined}>{e?.name ?? instance}</Link>;
}

export function EngineLink({ id, name }: { id: string; name: string }) {
  return id ? <Link to="engines" patch={{ engine: id }}>{name}</Link> : <span>{name}</span>;
}
