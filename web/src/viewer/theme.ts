// Dark or light, for the page that stands alone: the saved choice, else the system's.
import { signal } from "@preact/signals";

export type Theme = "dark" | "light";
const KEY = "rollscope.theme";

function read(): Theme | "" {
  try {
    const v = localStorage.getItem(KEY);
    return v === "dark" || v === "light" ? v : "";
  } catch {
    return ""; // storage may be forbidden, and is for some file URLs
  }
}

export const theme = signal<Theme>("dark");

function put(t: Theme): void {
  document.documentElement.dataset["theme"] = t;
  theme.value = t;
}

export function startTheme(): void {
  const system = matchMedia("(prefers-color-scheme: light)");
  let chosen = read();
  put(chosen || (system.matches ? "light" : "dark"));
  system.addEventListener("change", () => {
    chosen = read();
    if (!chosen) put(system.matches ? "light" : "dark");
  });
}

export function toggleTheme(): void {
  const next: Theme = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice then lasts as long as the page.
  }
  put(next);
}
