// One Chromium for a test file, and pages that remember everything that must not happen: console errors,
// page errors, requests to another origin, answers of 5xx.
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Where screenshots go: SHOTS, else web/test-results. */
export const shots = process.env.SHOTS ?? new URL("../test-results", import.meta.url).pathname;

export async function launch() {
  // Playwright makes a fresh user data directory for each browser, and removes it.
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS });
  mkdirSync(shots, { recursive: true });
  return {
    close: () => browser.close(),
    /** A page of its own context (no storage of others), and the list of its sins. */
    async open(base, { width = 1600, height = 1000 } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, locale: "en-GB", timezoneId: "America/Los_Angeles" });
      const page = await context.newPage();
      const sins = [];
      /** texts of console errors that a step provokes on purpose */
      const allowed = [];
      const origin = new URL(base).origin;
      page.on("console", (m) => {
        if (m.type() !== "error" && m.type() !== "warning") return;
        if (!allowed.some((re) => re.test(m.text()))) sins.push(`console ${m.type()}: ${m.text()} (${m.location().url})`);
      });
      page.on("pageerror", (e) => sins.push(`page error: ${e.stack ?? e}`));
      page.on("request", (r) => {
        const url = r.url();
        if (!url.startsWith(origin + "/") && !url.startsWith("data:") && !url.startsWith("blob:")) sins.push(`request to another origin: ${url}`);
      });
      page.on("response", (r) => {
        if (r.status() >= 400 && !allowed.some((re) => re.test(`status of ${r.status()}`))) sins.push(`HTTP ${r.status()}: ${r.url()}`);
      });
      page.setDefaultTimeout(30_000);
      return {
        page,
        sins,
        allow: (re) => allowed.push(re),
        go: (path) => page.goto(base + path, { waitUntil: "domcontentloaded" }),
        shot: (name) => page.screenshot({ path: join(shots, `${name}.png`) }),
        close: () => context.close(),
      };
    },
  };
}

/** Waits until f gives something true; the error says what was waited for. */
export async function until(what, f, ms = 30_000) {
  const end = Date.now() + ms;
  let last;
  while (Date.now() < end) {
    try {
      last = await f();
      if (last) return last;
    } catch (err) {
      last = err;
    }
    await new Promise((r) => setTimeout(r, 150));
  }
  throw new Error(`waited ${ms / 1000} s for ${what}; last: ${last}`);
}

/** Reads until it has said the same for half a second, and gives that: what was asked for before may still come. */
export async function settled(what, read) {
  let last, same = 0;
  return until(what, async () => {
    const now = await read();
    same = now && now === last ? same + 1 : 0;
    last = now;
    return same >= 3 && now;
  });
}

/** Presses and drags from one place of a box to others, shares of it, until the address fits. */
export async function drag(page, target, url, ...places) {
  return until(`a drag that leads to ${url}`, async () => {
    const b = await target.boundingBox();
    if (!b) return false;
    const [[x0, y0], ...more] = places.map(([x, y]) => [b.x + b.width * x, b.y + b.height * y]);
    await page.mouse.move(x0, y0);
    await page.mouse.down();
    for (const [x, y] of more) await page.mouse.move(x, y, { steps: 4 });
    await page.mouse.up();
    return page.waitForURL(url, { timeout: 5_000 }).then(() => true, () => false);
  }, 60_000);
}

/** Controls without a name and pictures without words, of the page as it is. */
export function unnamed(page) {
  return page.evaluate(() => {
    const bad = [];
    const named = (el) => (el.getAttribute("aria-label") ?? "").trim() || (el.textContent ?? "").trim() || (el.getAttribute("title") ?? "").trim() || el.closest("label")?.textContent?.trim() || el.getAttribute("placeholder");
    for (const el of document.querySelectorAll("button, a[href], input, select, textarea, [role=img]")) if (!named(el)) bad.push(el.outerHTML.slice(0, 160));
    return bad;
  });
}

/** Text that stands outside of the window without a way to scroll to it. */
export function overflow(page) {
  return page.evaluate(() => ({ page: document.documentElement.scrollWidth - innerWidth, main: (() => { const m = document.querySelector(".main"); return m ? m.scrollWidth - m.clientWidth : 0; })() }));
}
