// Dark or light: the URL's word, else the saved choice, else the system's.
import { computed, effect, signal } from "@preact/signals";
import { change, view } from "./view";

export type Theme = "dark" | "light";
const KEY = "rollscope.theme";

const saved = signal<Theme | "">(read());
const system = matchMedia("(prefers-color-scheme: light)");
const systemLight = signal(system.matches);

export const theme = computed<Theme>(() => view.value.theme || saved.value || (systemLight.value ? "light" : "dark"));

function read(): Theme | "" {
  try {
    const v = localStorage.getItem(KEY);
    return v === "dark" || v === "light" ? v : "";
  } catch {
    return ""; // storage may be forbidden
  }
}

export function toggleTheme(): void {
  const next: Theme = theme.value === "dark" ? "light" : "dark";
  saved.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice then lasts as long as the page.
  }
  if (view.value.theme) change({ theme: next }, "replace");
}

/** Puts the theme onto the document; returns before the first paint when called first. */
export function startTheme(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = theme.value;
  });
  system.addEventListener("change", (e) => (systemLight.value = e.matches));
}

/** The value of a token in the current theme. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
