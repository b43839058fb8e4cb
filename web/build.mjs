// Bundles the page into ../internal/web/dist, where the Go binary embeds it from:
// index.html, favicon.svg, assets/main-HASH.js and assets/main-HASH.css.
// `node build.mjs --watch` rebuilds on every change, into names without a hash and with source maps.
import { build, context } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync, copyFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.env.ROLLSCOPE_WEB_OUT ?? join(here, "../internal/web/dist");
const watch = process.argv.includes("--watch");

/** Writes index.html with the names of the two bundles. */
function page(metafile) {
  const names = Object.keys(metafile.outputs).map((f) => relative(out, join(here, f)));
  const js = names.find((n) => n.endsWith(".js"));
  const css = names.find((n) => n.endsWith(".css"));
  if (!js || !css) throw new Error(`the bundle lacks a script or a style sheet: ${names.join(", ")}`);
  const html = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("{{script}}", `/${js}`)
    .replace("{{style}}", `/${css}`);
  writeFileSync(join(out, "index.html"), html);
  copyFileSync(join(here, "src/favicon.svg"), join(out, "favicon.svg"));
}

function clean() {
  mkdirSync(join(out, "assets"), { recursive: true });
  for (const f of readdirSync(join(out, "assets"))) rmSync(join(out, "assets", f));
}

const options = {
  absWorkingDir: here,
  entryPoints: { main: "src/main.tsx" },
  outdir: join(out, "assets"),
  entryNames: watch ? "[name]" : "[name]-[hash]",
  bundle: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: !watch,
  sourcemap: watch ? "inline" : false,
  legalComments: watch ? "inline" : "external", // licences of the libraries lie beside the bundle
  metafile: true,
  logLevel: "warning",
  define: { "process.env.NODE_ENV": watch ? '"development"' : '"production"' },
};

clean();
if (watch) {
  const ctx = await context({
    ...options,
    plugins: [{ name: "page", setup: (b) => b.onEnd((r) => r.metafile && page(r.metafile)) }],
  });
  await ctx.watch();
  console.log(`watching; the page is written to ${out}`);
} else {
  const result = await build(options);
  page(result.metafile);
  const sizes = Object.entries(result.metafile.outputs).map(([f, o]) => `${relative(out, join(here, f))} ${(o.bytes / 1000).toFixed(1)} kB`);
  console.log(sizes.join("\n"));
}
