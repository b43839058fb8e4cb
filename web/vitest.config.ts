import { defineConfig } from "vitest/config";

export default defineConfig({
  // A loaded machine takes its time; no test is about it.
  test: { testTimeout: 60_000, include: ["src/**/*.test.ts"], environment: "node", isolate: false },
});
