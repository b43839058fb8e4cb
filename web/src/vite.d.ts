// What the tests use of Vite, which the page is not built with.
interface ImportMeta {
  glob(patterns: string[]): Record<string, () => Promise<unknown>>;
}
