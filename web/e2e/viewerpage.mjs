// The timeline's page as a file on disk, for its tests: writes invented dumps of web/dev/viewer.mjs as pages,
// opens them, and has hands and eyes for the canvas.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before } from "node:test";
import { chromium } from "playwright-core";
import { make, page as pageOf } from "../dev/viewer.mjs";
import { shots } from "./browser.mjs";

const dist = process.env.ROLLSCOPE_WEB_OUT ?? new URL("../../internal/web/dist", import.meta.url).pathname;
export const skip = existsSync(`${dist}/viewer.html`) ? false : "the page is not built: npm run build";
export const LABEL = 112, TOP = 118, ROW = 11;
/** where each page is */
export const files = {};
/** where the pages are, once pages() has begun */
export let dir = "";
export let browser;

/** Writes pages before the tests, a dump's kind, size and seed by name, and cleans up after them. */
export function pages(kinds) {
  before(async () => {
    if (skip) return;
    dir = mkdtempSync(join(tmpdir(), "rollscope-viewer-"));
    mkdirSync(shots, { recursive: true });
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
    for (const [name, [kind, n, seed]] of Object.entries(kinds)) {
      files[name] = join(dir, `${name}.html`);
      writeFileSync(files[name], pageOf([await make(kind, n, seed)], name));
    }
  });
  after(async () => {
    await browser?.close();
    if (dir) rmSync(dir, { recursive: true, force: true });
  });
}

/** Opens a page from disk; nothing may be asked of any network, and nothing may go wrong. */
export async function on(name, run, { hash = "", width = 1600, height = 1000, ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true, colorScheme: "dark", ...more });
  const page = await context.newPage();
  const sins = [];
  // Reading pixels is what the test does, not the page.
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !m.text().includes("willReadFrequently") && sins.push(`console ${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => sins.push(`page error: ${e.stack ?? e}`));
  page.on("dialog", (d) => {
    sins.push(`dialog: ${d.message()}`);
    void d.dismiss();
  });
  page.on("request", (r) => {
    if (!/^(file|data|blob):/.test(r.url())) sins.push(`request: ${r.url()}`);
  });
  page.setDefaultTimeout(30_000);
  try {
    await page.goto(pathToFileURL(files[name]).href + hash, { waitUntil: "domcontentloaded" });
    const t = tools(page);
    await page.locator(".tl-canvas").first().waitFor();
    await t.rest();
    await run({ page, ...t });
    assert.deepEqual(sins, [], "what must not happen");
  } finally {
    await context.close();
  }
}

function tools(page) {
  const canvas = page.locator(".tl-canvas").first();
  const data = (key) => canvas.getAttribute(`data-${key}`);
  return {
    canvas,
    rows: async () => Number(await data("rows")),
    first: async () => Number(await data("first")),
    last: async () => Number(await data("last")),
    said: () => page.locator("[data-role=live]").textContent(),
    hash: async (key) => new URLSearchParams(new URL(page.url()).hash.slice(1)).get(key),
    /** Until the address and the numbers have followed: timers of the page come in their order, however slow it is. */
    rest: () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(() => setTimeout(done, 170)), 10)))),
    /** Until what the last event asked for is drawn, however slow the machine is. */
    frames: () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))),
    /** A number for the picture of a part of the canvas, of CSS pixels. */
    picture: (x = LABEL, y = TOP, w = 900, h = 500) => page.evaluate(([x0, y0, w0, h0]) => {
      const c = document.querySelector(".tl-draw");
      const d = c.getContext("2d").getImageData(x0, y0, Math.min(w0, c.width - x0), Math.min(h0, c.height - y0)).data;
      let hash = 2166136261;
      for (let i = 0; i < d.length; i++) hash = Math.imul(hash ^ d[i], 16777619);
      return hash;
    }, [x, y, w, h]),
    /** How many different colours a part of the canvas has. */
    colours: (x, y, w, h) => page.evaluate(([x0, y0, w0, h0]) => {
      const d = document.querySelector(".tl-draw").getContext("2d").getImageData(x0, y0, w0, h0).data;
      const seen = new Set();
      for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
      return seen.size;
    }, [x, y, w, h]),
    at: async (x, y) => {
      const b = await canvas.boundingBox();
      return [b.x + x, b.y + y];
    },
    click: async (x, y, options) => canvas.click({ position: { x, y }, ...options }),
    drag: async (x0, y0, x1, y1) => {
      const b = await canvas.boundingBox();
      await page.mouse.move(b.x + x0, b.y + y0);
      await page.mouse.down();
      await page.mouse.move(b.x + (x0 + x1) / 2, b.y + (y0 + y1) / 2);
      await page.mouse.move(b.x + x1, b.y + y1);
      await page.mouse.up();
    },
    window: async () => {
      const p = new URLSearchParams(new URL(page.url()).hash.slice(1));
      return p.has("t0") ? [Number(p.get("t0")), Number(p.get("t1"))] : null;
    },
  };
}

/** The middle of the row at a place, in pixels of the canvas. */
export const y = (place) => TOP + place * ROW + 5;
