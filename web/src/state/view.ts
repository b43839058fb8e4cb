// The view of the address bar as a signal, and the ways to change it.
import { computed, signal } from "@preact/signals";
import { goTo, parseView, viewURL, type Page, type Range, type View } from "./route";

export const view = signal<View>(parseView(location.pathname, location.search));
export const page = computed(() => view.value.page);

/** Ranges that were looked at before zooming in, so that Esc and double click go back. */
const zooms = signal<(Range | null)[]>([]);
export const isZoomed = computed(() => zooms.value.length > 0);

addEventListener("popstate", () => {
  view.value = parseView(location.pathname, location.search);
});

/** Shows a view. "push" makes a step for the back button, "replace" does not (typing, live choices). */
export function navigate(next: View, how: "push" | "replace" = "push"): void {
  const to = viewURL(next);
  if (to === location.pathname + location.search) how = "replace";
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  if (next.page !== view.value.page) scrollTo(0, 0);
  view.value = next;
}

/** Changes some of the view, on the same page. */
export function change(patch: Partial<View>, how: "push" | "replace" = "push"): void {
  navigate({ ...view.value, ...patch }, how);
}

/** Goes to another page; what belongs to a page is left behind. */
export function open(to: Page, patch: Partial<View> = {}): void {
  navigate(goTo(view.value, to, patch));
}

/** Narrows or moves the range, remembering where from. */
export function zoomTo(range: Range): void {
  zooms.value = [...zooms.value, view.value.range].slice(-50);
  change({ range });
}

/** Goes back to the range before the last zoom; false when there was none. */
export function zoomBack(): boolean {
  const last = zooms.value.at(-1);
  if (last === undefined) return false;
  zooms.value = zooms.value.slice(0, -1);
  change({ range: last });
  return true;
}

/** Sets a range that is not a zoom: the way back is forgotten. */
export function setRange(range: Range): void {
  zooms.value = [];
  change({ range });
}
