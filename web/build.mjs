// Bundles the page into ../internal/web/dist, where the Go binary embeds it from:
// index.html, favicon.svg, licenses.txt, assets/main-HASH.js and assets/main-HASH.css, and viewer.html: the
// timeline's page as one file that needs nothing else, in which the binary puts a title and the data.
// `node build.mjs --watch` rebuilds on every change, into names without a hash and with source maps.
import { build, context } from "esbuild";
import { createHash } from "node:crypto";
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

/** The licences of what is bundled, for those who get the binary. */
function licences(metafile) {
  const packages = new Set();
  for (const file of Object.keys(metafile.inputs)) {
    const m = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
    if (m) packages.add(m[1]);
  }
  const text = [...packages].sort().map((name) => {
    const dir = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const file = readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`;
  });
  writeFileSync(join(out, "licenses.txt"), `The page of Rollscope contains these libraries.\n\n${text.join("\n" + "-".repeat(72) + "\n\n")}`);
}

function clean() {
  mkdirSync(join(out, "assets"), { recursive: true });
  for (const f of readdirSync(join(out, "assets"))) rmSync(join(out, "assets", f));
}

/**
 * Writes viewer.html with script and style inside. Its policy allows these two by their hash, requests to
 * the server it came from (none for a file), pictures that it makes itself, and nothing else.
 */
function viewer(result) {
  const text = (ext) => result.outputFiles.find((f) => f.path.endsWith(ext))?.text.trim() ?? "";
  const js = text(".js").replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
  const css = text(".css").replaceAll("</style", "<\\/style");
  const hash = (s) => `'sha256-${createHash("sha256").update(s).digest("base64")}'`;
  const policy = `default-src 'none'; script-src ${hash(js)}; style-src ${hash(css)}; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'`;
  const icon = "data:image/svg+xml," + encodeURIComponent(readFileSync(join(here, "src/favicon.svg"), "utf8").trim());
  const put = { style: css, script: js, policy, icon };
  const html = readFileSync(join(here, "src/viewer/viewer.html"), "utf8").replace(/\{\{(style|script|policy|icon)\}\}/g, (_, k) => put[k]);
  writeFileSync(join(out, "viewer.html"), html);
  return html.length;
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
  legalComments: "none", // the whole licences lie beside the bundle
  metafile: true,
  logLevel: "warning",
  define: { "process.env.NODE_ENV": watch ? '"development"' : '"production"' },
};

const viewerOptions = {
  ...options,
  entryPoints: { viewer: "src/viewer/main.tsx" },
  entryNames: "[name]",
  sourcemap: false,
  write: false,
};

clean();
if (watch) {
  const ctx = await context({
    ...options,
    plugins: [{ name: "page", setup: (b) => b.onEnd((r) => r.metafile && page(r.metafile)) }],
  });
  await ctx.watch();
  const one = await context({ ...viewerOptions, plugins: [{ name: "viewer", setup: (b) => b.onEnd((r) => r.outputFiles && viewer(r)) }] });
  await one.watch();
  console.log(`watching; the page is written to ${out}`);
} else {
  const result = await build(options);
  page(result.metafile);
  const one = await build(viewerOptions);
  const size = viewer(one);
  licences({ inputs: { ...result.metafile.inputs, ...one.metafile.inputs } });
  const sizes = Object.entries(result.metafile.outputs).map(([f, o]) => `${relative(out, join(here, f))} ${(o.bytes / 1000).toFixed(1)} kB`);
  console.log([...sizes, `viewer.html ${(size / 1000).toFixed(1)} kB`].join("\n"));
}
