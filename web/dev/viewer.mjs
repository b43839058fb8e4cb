// Writes pages with invented timelines, for looking at and for the browser tests:
//   node dev/viewer.mjs OUT.html [step|many|hostile|partial|one|empty|untraced|nopd] [SAMPLES or EVENTS] [SEED]
import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { tmpdir } from "node:os";

const here = dirname(fileURLToPath(import.meta.url));
const dist = process.env.ROLLSCOPE_WEB_OUT ?? join(here, "../../internal/web/dist");

let made;
/** The generator of the tests, as a module that Node runs. */
export async function generator() {
  made ??= (async () => {
    const file = join(tmpdir(), `rollscope-testdata-${process.pid}.mjs`);
    await build({ entryPoints: [join(here, "../src/timeline/testdata.ts")], outfile: file, bundle: true, format: "esm", platform: "node", logLevel: "error" });
    return import(pathToFileURL(file).href);
  })();
  return made;
}

/** The container of a kind of timeline. */
export async function make(kind = "step", n = 2048, seed = 77) {
  const g = await generator();
  switch (kind) {
    case "one":
      return g.oneRow(n);
    case "empty":
      return g.untraced(0);
    case "untraced":
      return g.untraced(n);
    case "hostile":
      return g.step({ samples: n, seed, hostile: true });
    case "partial":
      return g.step({ samples: n, seed, partial: true });
    case "many":
      return g.step({ samples: n, seed, turns: 4, attrs: false });
    case "nopd":
      return g.step({ samples: n, seed, pd: false });
    default:
      return g.step({ samples: n, seed, attrs: n <= 4096 });
  }
}

/** The page with containers inside, as the binary writes it. */
export function page(containers, title = "timeline") {
  const html = readFileSync(join(dist, "viewer.html"), "utf8");
  const data = containers.map((c, i) => `<script type="text/plain" id="rollscope-timeline${i ? `-${i + 1}` : ""}">${Buffer.from(c).toString("base64")}</script>`).join("\n");
  const escape = (s) => s.replace(/[&<>]/g, (x) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[x]);
  return html.replace("<!--rollscope:title-->", () => escape(title)).replace("<!--rollscope:data-->", () => data);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [out, kind, n, seed] = process.argv.slice(2);
  if (!out) throw new Error("usage: node dev/viewer.mjs OUT.html [kind] [count] [seed]");
  const c = await make(kind, n ? Number(n) : undefined, seed ? Number(seed) : undefined);
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, page([c], kind ?? "step"));
  console.log(`${out}: container ${(c.length / 1e6).toFixed(1)} MB`);
}
