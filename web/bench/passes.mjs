// Measures the strip of forward passes as a person watches it:
//   node bench/passes.mjs BINARY [SECONDS]
// starts `BINARY sim fpm` with 64 ranks at 50 passes a second and a `BINARY serve` that receives them, opens the page
// in Chromium and lets it follow. Prints JSON: the time between frames (frame_p50_ms, frame_p95_ms, frame_max_ms),
// what the page itself computes in a frame (draw_p50_ms, draw_p95_ms, draw_max_ms), and how many ranks and passes the
// window showed.
import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

if (!process.argv[2]) {
  console.error("usage: node bench/passes.mjs BINARY [SECONDS]");
  process.exit(2);
}
const binary = resolve(process.argv[2]);
const seconds = Math.max(1, Number(process.argv[3] ?? 10));
const RANKS = 64, RATE = 50;
const dir = mkdtempSync(join(tmpdir(), "rollscope-bench-passes-"));
const children = [];

/** Starts the program; what it says is kept for the error. */
function start(args, wanted) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  return new Promise((done, failed) => {
    let text = "";
    for (const s of [child.stdout, child.stderr]) s.on("data", (d) => {
      text = (text + d).slice(-100_000);
      const m = wanted.exec(text);
      if (m) done(m[0]);
    });
    child.once("exit", (code) => failed(new Error(`${args[0]} ended with ${code}: ${text.slice(-1000)}`)));
  });
}

const percentile = (list, p) => {
  const s = [...list].sort((a, b) => a - b);
  return s.length ? Math.round((s[Math.min(s.length - 1, Math.max(0, Math.ceil((p / 100) * s.length) - 1))] ?? 0) * 100) / 100 : null;
};

let browser;
try {
  const engines = `ipc://${join(dir, "engine")}`;
  await start(["sim", "fpm", "--to", engines, "--ranks", String(RANKS), "--rate", String(RATE), "--drop", "0.001", "--restart", "30s"], /sending/);
  const base = await start(["serve", "--fpm", engines, "--fpm-ranks", String(RANKS), "--storage.tsdb.path", join(dir, "data"), "--web.listen-address", "127.0.0.1:0"], /http:\/\/127\.0\.0\.1:\d+/);
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  const page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  const errors = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  // Each callback of a frame is timed; those of one frame are one drawing.
  await page.addInitScript(() => {
    const real = window.requestAnimationFrame.bind(window);
    const seen = (window.__frames = { gaps: [], draws: [] });
    let drawing = -1;
    window.requestAnimationFrame = (f) => real((t) => {
      const from = performance.now();
      f(t);
      const took = performance.now() - from;
      if (t === drawing && seen.draws.length > 0) seen.draws[seen.draws.length - 1] += took;
      else seen.draws.push(took);
      drawing = t;
    });
    let last = 0;
    const tick = (t) => {
      if (last > 0) seen.gaps.push(t - last);
      last = t;
      real(tick);
    };
    real(tick);
  });
  await page.goto(`${base}/engines?view=passes`, { waitUntil: "commit" });
  // A window that is full from edge to edge.
  await page.waitForFunction(([ranks, passes]) => {
    const el = document.querySelector(".pass-counts");
    return el && Number(el.dataset.ranks) === ranks && Number(el.dataset.passes) > passes;
  }, [RANKS, RANKS * RATE * 9], { timeout: 60_000 });
  await page.evaluate(() => {
    window.__frames.gaps.length = window.__frames.draws.length = 0;
  });
  await page.waitForTimeout(seconds * 1000);
  const { frames, counts } = await page.evaluate(() => ({ frames: window.__frames, counts: { ...document.querySelector(".pass-counts").dataset } }));
  if (errors.length > 0) throw new Error(errors.join("\n"));
  const of = (name, list) => ({ [`${name}_p50_ms`]: percentile(list, 50), [`${name}_p95_ms`]: percentile(list, 95), [`${name}_max_ms`]: percentile(list, 100) });
  console.log(JSON.stringify({ ranks: Number(counts.ranks), passes_in_window: Number(counts.passes), frames: frames.gaps.length, ...of("frame", frames.gaps), ...of("draw", frames.draws) }));
} finally {
  await browser?.close();
  for (const c of children) {
    if (c.exitCode !== null || c.signalCode !== null) continue;
    c.removeAllListeners("exit");
    await new Promise((done) => (c.once("exit", done), c.kill()));
  }
  rmSync(dir, { recursive: true, force: true });
}
