// Elements of JSX belong to the rendering that makes them. One that a module makes once and every rendering uses
// is tied to each tree that it stood in, and each of those to the one before: the page never lets any of them go.
import "@preact/signals"; // makes one of its own
import { options } from "preact";
import { afterAll, expect, test, vi } from "vitest";

/** Stands for anything of a browser that a module looks at while it loads. */
const anything: unknown = new Proxy(() => undefined, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => "" : key === Symbol.iterator ? [][Symbol.iterator].bind([]) : key === "then" ? undefined : anything),
  apply: () => anything,
  construct: () => anything as object,
});

const before = options.vnode;
afterAll(() => {
  if (before) options.vnode = before;
  else delete options.vnode;
  vi.unstubAllGlobals();
});

test("no module makes an element while it loads", async () => {
  for (const name of ["document", "window", "navigator", "devicePixelRatio", "localStorage", "history", "matchMedia", "addEventListener", "requestAnimationFrame", "ResizeObserver"]) vi.stubGlobal(name, anything);
  vi.stubGlobal("location", { pathname: "/", search: "", origin: "", href: "" });
  const files = import.meta.glob(["./**/*.tsx", "!./**/main.tsx"]);
  const made: string[] = [];
  let current = "";
  options.vnode = (v) => {
    made.push(`${current}: ${String(v.type)}`);
  };
  for (const [name, load] of Object.entries(files)) {
    current = name;
    await load();
  }
  expect(Object.keys(files).length).toBeGreaterThan(50);
  expect(made).toEqual([]);
});
