// Opens a saved timeline in Chromium and measures it:
//   node bench/viewer.mjs PAGE.html [RUNS]
// prints JSON: tti_ms (from navigation to the first painted picture; marks: its parts), frames of panning, zooming and
// the density overview (time between frames and time to draw, p50 and p95), filter_ms, sort_ms, expand_ms,
// renderer_rss_mb (peak of the renderer process), js_heap_mb. Each figure is the median of RUNS openings.
// The opening is watched over a pipe that asks for one thing, the marks. Playwright listens to the network as well, for
// which Chromium decodes the whole page once more before its script runs: half a second that nobody waits for.
import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const file = process.argv[2];
const runs = Math.max(1, Number(process.argv[3] ?? 3));
if (!file) {
  console.error("usage: node bench/viewer.mjs PAGE.html [RUNS]");
  process.exit(2);
}
const url = /^https?:/.test(file) ? file : pathToFileURL(resolve(file)).href;

/** Peak resident memory of the browser's renderer, in MB: the largest renderer below pid. */
function rendererPeak(pid) {
  const parents = new Map();
  for (const d of readdirSync("/proc")) {
    if (!/^\d+$/.test(d)) continue;
    try {
      const stat = readFileSync(`/proc/${d}/stat`, "utf8");
      parents.set(Number(d), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // ended meanwhile
    }
  }
  const below = (p) => {
    for (let k = p; k > 1; k = parents.get(k) ?? 0) if (k === pid) return true;
    return false;
  };
  let peak = 0;
  for (const p of parents.keys()) {
    if (!below(p)) continue;
    try {
      if (!readFileSync(`/proc/${p}/cmdline`, "utf8").includes("--type=renderer")) continue;
      const m = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${p}/status`, "utf8"));
      if (m) peak = Math.max(peak, Number(m[1]) / 1024);
    } catch {
      // ended meanwhile
    }
  }
  return peak;
}

const percentile = (list, p) => {
  const s = [...list].sort((a, b) => a - b);
  return s.length ? s[Math.min(s.length - 1, Math.max(0, Math.ceil((p / 100) * s.length) - 1))] : null;
};
const round = (x) => (typeof x === "number" ? Math.round(x * 10) / 10 : x);

/** Opens the page as a person does, with nothing that listens, and returns when its picture stood, and its marks. */
async function open() {
  const dir = mkdtempSync(join(tmpdir(), "rollscope-bench-viewer-"));
  const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--window-size=1600,900", "--remote-debugging-pipe", `--user-data-dir=${dir}`, "about:blank"];
  const child = spawn(process.env.CHROMIUM ?? "/usr/bin/chromium", args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const ended = new Promise((done) => child.once("exit", done));
  try {
    let last = 0, text = "";
    const asked = new Map();
    child.stdio[4].setEncoding("utf8").on("data", (d) => {
      text += d;
      for (let i; (i = text.indexOf("\0")) >= 0; text = text.slice(i + 1)) {
        const m = JSON.parse(text.slice(0, i));
        const a = asked.get(m.id);
        asked.delete(m.id);
        if (m.error) a?.failed(new Error(`Chromium: ${m.error.message}`));
        else a?.done(m.result);
      }
    });
    const send = (method, params, sessionId) => Promise.race([
      new Promise((done, failed) => {
        asked.set(++last, { done, failed });
        child.stdio[3].write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
      }),
      ended.then((code) => Promise.reject(new Error(`Chromium ended with ${code}`))),
    ]);
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    await new Promise((done) => setTimeout(done, 1000)); // what starts with the browser is not the page's
    await send("Page.navigate", { url }, sessionId);
    const { result, exceptionDetails } = await send("Runtime.evaluate", {
      awaitPromise: true, returnByValue: true,
      expression: `new Promise((done) => {
        const look = () => {
          if (performance.getEntriesByName("rollscope.drawn").length === 0) return requestAnimationFrame(look);
          requestAnimationFrame(() => done({ tti: performance.now(), marks: Object.fromEntries(performance.getEntriesByType("mark").filter((m) => m.name.startsWith("rollscope.")).map((m) => [m.name.slice(10) + "_ms", m.startTime])) }));
        };
        look();
      })`,
    }, sessionId);
    if (exceptionDetails) throw new Error(`the page: ${exceptionDetails.text}`);
    return result.value;
  } finally {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    await ended;
    rmSync(dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

async function once() {
  const { tti, marks } = await open();
  // A browser server, because its process id tells which renderer is ours.
  const server = await chromium.launchServer({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info"] });
  const browser = await chromium.connect(server.wsEndpoint());
  try {
    const page = await (await browser.newContext({ viewport: { width: 1600, height: 900 } })).newPage();
    const errors = [];
    page.on("pageerror", (e) => errors.push(String(e)));
    await page.goto(url, { waitUntil: "commit" });
    await page.waitForFunction(() => performance.getEntriesByName("rollscope.drawn").length > 0);
    await page.waitForTimeout(800);
    const box = await page.locator(".tl-canvas").boundingBox();
    const cx = box.x + box.width * 0.55, cy = box.y + box.height * 0.6;

    /** Time between animation frames, and in tasks longer than a frame, while something moves. */
    const moving = async (act) => {
      await page.evaluate(() => {
        window.__gaps = [];
        let last = performance.now();
        window.__watch = true;
        const tick = () => {
          const now = performance.now();
          window.__gaps.push(now - last);
          last = now;
          if (window.__watch) requestAnimationFrame(tick);
        };
        requestAnimationFrame(tick);
      });
      await act();
      const gaps = await page.evaluate(() => {
        window.__watch = false;
        return window.__gaps.slice(2);
      });
      return { frame_p50_ms: round(percentile(gaps, 50)), frame_p95_ms: round(percentile(gaps, 95)), frame_max_ms: round(Math.max(...gaps)), frames: gaps.length };
    };
    const drag = async () => {
      await page.mouse.move(cx, cy);
      await page.mouse.down();
      for (let i = 0; i < 60; i++) await page.mouse.move(cx - i * 6, cy - i * 4);
      for (let i = 60; i >= 0; i--) await page.mouse.move(cx - i * 6, cy - i * 4);
      await page.mouse.up();
    };
    const wheel = async (n, dy) => {
      await page.mouse.move(cx, cy);
      await page.keyboard.down("Control");
      for (let i = 0; i < n; i++) {
        await page.mouse.wheel(0, dy);
        await page.waitForTimeout(8);
      }
      await page.keyboard.up("Control");
    };
    const zoom = await moving(async () => {
      await wheel(40, -60);
      await wheel(20, 60);
    });
    const pan = await moving(drag);
    const scroll = await moving(async () => {
      for (let i = 0; i < 60; i++) {
        await page.mouse.wheel(0, 240);
        await page.waitForTimeout(8);
      }
    });
    // The overview: every row is on the screen.
    await page.keyboard.press("f");
    await page.keyboard.press("o");
    await page.waitForTimeout(500);
    const overview = await moving(async () => {
      await wheel(30, -60);
      await drag();
      await wheel(30, 60);
    });
    await page.keyboard.press("o");
    await page.waitForTimeout(500);

    /** From the change of a control to the second frame after it: what a person waits for. */
    const timed = (act, arg) => page.evaluate(([src, a]) => new Promise((done) => {
      const from = performance.now();
      new Function("arg", src)(a);
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - from), 0));
    }), [act, arg]);
    const setValue = `
      const el = document.querySelector(arg[0]);
      Object.getOwnPropertyDescriptor(Object.getPrototypeOf(el), "value").set.call(el, arg[1]);
      el.dispatchEvent(new Event(arg[2], { bubbles: true }));`;
    const series = async (list) => {
      const out = [];
      for (const a of list) {
        out.push(await timed(setValue, a));
        await page.waitForTimeout(400);
      }
      return out;
    };
    const search = '[data-control="search"]', sort = '[data-control="sort"]';
    const filter = await series(["1", "12", "status:trunc", "name:tool", "dur>60", "-flag:held reward<1", "ab3", ""].map((t) => [search, t, "input"]));
    const sorts = await series(["dur", "reward", "decode", "status", "group", "end"].map((t) => [sort, t, "change"]));
    const expand = await timed(`document.querySelector('[data-control="expanded"]').click()`);
    await page.waitForTimeout(400);
    const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize / 1e6);
    const rss = rendererPeak(server.process().pid); // before the collector's own tools come in
    const client = await page.context().newCDPSession(page);
    await client.send("HeapProfiler.collectGarbage");
    const kept = await page.evaluate(() => performance.memory?.usedJSHeapSize / 1e6);
    return {
      tti_ms: tti, marks, zoom, pan, scroll, overview, filter_ms: percentile(filter, 50), filter_max_ms: Math.max(...filter), sort_ms: percentile(sorts, 50), sort_max_ms: Math.max(...sorts), expand_ms: expand,
      renderer_rss_mb: rss, js_heap_mb: heap, js_heap_kept_mb: kept, errors,
    };
  } finally {
    await browser.close();
    await server.close();
  }
}

const all = [];
for (let i = 0; i < runs; i++) all.push(await once());
const merge = (key) => {
  const values = all.map((r) => r[key]);
  if (typeof values[0] === "number") return round(percentile(values, 50));
  if (Array.isArray(values[0])) return values.flat();
  return Object.fromEntries(Object.keys(values[0]).map((k) => [k, round(percentile(values.map((v) => v[k]), 50))]));
};
console.log(JSON.stringify({ page: file, runs, ...Object.fromEntries(Object.keys(all[0]).map((k) => [k, merge(k)])) }));
