// Opens a saved timeline in Chromium and measures it:
//   node bench/viewer.mjs PAGE.html [RUNS]
// prints JSON: tti_ms (from navigation to the first painted picture; marks: its parts), frames of panning, zooming and the
// density overview (time between frames and time to draw, p50 and p95), filter_ms, sort_ms, expand_ms,
// renderer_rss_mb (peak of the renderer process), js_heap_mb. Each figure is the median of RUNS openings.
import { chromium } from "playwright-core";
import { readFileSync, readdirSync } from "node:fs";
import { resolve } from "node:path";
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

async function once() {
  // A browser server, because its process id tells which renderer is ours.
  const server = await chromium.launchServer({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info"] });
  const browser = await chromium.connect(server.wsEndpoint());
  try {
    const page = await (await browser.newContext({ viewport: { width: 1600, height: 900 } })).newPage();
    const errors = [];
    page.on("pageerror", (e) => errors.push(String(e)));
    await page.goto(url, { waitUntil: "commit" });
    const tti = await page.evaluate(() => new Promise((done) => {
      const look = () => {
        const el = document.querySelector(".tl-canvas");
        if (el && Number(el.dataset.last) > 0) requestAnimationFrame(() => done(performance.now()));
        else requestAnimationFrame(look);
      };
      look();
    }));
    const marks = await page.evaluate(() => Object.fromEntries(performance.getEntriesByType("mark").filter((m) => m.name.startsWith("rollscope.")).map((m) => [`${m.name.slice(10)}_ms`, m.startTime])));
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
