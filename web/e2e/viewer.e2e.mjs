// The timeline's page, opened from disk as a person opens it: every control is driven, with invented dumps
// of web/dev/viewer.mjs. Asserted is what a reader or a screen reader gets: counts, words, the address, and
// the pixels where only pixels tell.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { make, page as pageOf } from "../dev/viewer.mjs";
import { shots, unnamed, until } from "./browser.mjs";

const dist = process.env.ROLLSCOPE_WEB_OUT ?? new URL("../../internal/web/dist", import.meta.url).pathname;
const skip = existsSync(`${dist}/viewer.html`) ? false : "the page is not built: npm run build";
const dir = mkdtempSync(join(tmpdir(), "rollscope-viewer-"));
const LABEL = 112, TOP = 118, ROW = 11;
let browser;
const files = {};

before(async () => {
  if (skip) return;
  mkdirSync(shots, { recursive: true });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  const write = async (name, kind, n, seed) => {
    files[name] = join(dir, `${name}.html`);
    writeFileSync(files[name], pageOf([await make(kind, n, seed)], name));
  };
  await write("step", "step", 600);
  await write("other", "step", 64, 5);
  await write("hostile", "hostile", 120);
  await write("partial", "partial", 120);
  await write("nopd", "nopd", 120);
  await write("empty", "empty", 0);
  await write("untraced", "untraced", 5);
  await write("tiny", "one", 1);
  await write("million", "one", 1_000_000);
  await write("dense", "step", 6000, 3);
});
after(async () => {
  await browser?.close();
  rmSync(dir, { recursive: true, force: true });
});

/** Opens a page from disk; nothing may be asked of any network, and nothing may go wrong. */
async function on(name, run, { hash = "", width = 1600, height = 1000, ...more } = {}) {
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

const y = (place) => TOP + place * ROW + 5;

describe("the timeline's page", { skip }, () => {
  test("opens from disk, asks nobody, and shows the step", () => on("step", async ({ page, rows, last, colours, hash }) => {
    assert.equal(await rows(), 601);
    assert.ok((await last()) > 40, "45 rows or more");
    assert.match(await page.title(), /rollout_142\.pt/);
    assert.match(await page.locator("[data-role=sum]").textContent(), /617\.5 of 620\.0 s \(99\.6 %\)/);
    assert.match(await page.locator(".tl-parts").textContent(), /unexplained 2\.5 s/);
    assert.ok((await colours(LABEL, TOP, 800, 400)) > 8, "spans of several colours");
    assert.ok((await colours(LABEL, 6, 800, 80)) > 50, "the minimap shows all rows");
    assert.equal(await hash("q"), null);
    assert.deepEqual(await unnamed(page), []);
    const policy = await page.locator("meta[http-equiv]").getAttribute("content");
    assert.match(policy, /default-src 'none'; script-src 'sha256-/);
    assert.equal(await page.locator("#rollscope-timeline").count(), 0, "the text of the data is let go");
  }));

  test("searches, counts, marks, and goes from match to match", () => on("step", async ({ page, rows, said, hash, rest, picture }) => {
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement?.dataset.control), "search");
    await page.keyboard.type("status:trunc");
    await rest();
    const n = await rows();
    assert.ok(n > 3 && n < 200, `${n} truncated`);
    assert.match(await page.locator("[data-role=matches]").textContent(), new RegExp(`^${n} of 601$`));
    assert.match(await said(), new RegExp(`^${n} of 601 rows match`));
    assert.equal(await hash("q"), "status:trunc");
    // A filter that cannot be read: said, and the rows stay.
    await page.fill("[data-control=search]", "reward<");
    await page.locator(".tl-error", { hasText: "a value is expected" }).waitFor();
    assert.equal(await page.locator("[data-control=search]").getAttribute("aria-invalid"), "true");
    assert.equal(await rows(), n);
    await page.fill("[data-control=search]", "reward=1 -flag:aborted");
    await rest();
    assert.ok((await rows()) > 50);
    await page.fill("[data-control=search]", "attr.turn>3");
    await until("attributes", async () => (await rows()) < 200 && (await rows()) > 0);
    // Nothing matches: that is said, with a way out.
    await page.fill("[data-control=search]", "no such sample");
    await page.locator(".tl-nothing", { hasText: "None of the 601 samples matches" }).waitFor();
    await page.click(".tl-nothing button");
    await until("all rows", async () => (await rows()) === 601);
    // Marked instead of filtered.
    await page.fill("[data-control=search]", "status:trunc");
    await page.click("[aria-label='keep all rows and mark matches']");
    await rest();
    assert.equal(await rows(), 601);
    assert.equal(await hash("mark"), "1");
    const before = await picture(0, TOP, 100, 400);
    await page.focus(".tl-canvas");
    await page.keyboard.press("n");
    await rest();
    const one = await hash("row");
    assert.match(await said(), /truncated/);
    await page.keyboard.press("n");
    await rest();
    const two = await hash("row");
    assert.notEqual(one, two);
    await page.keyboard.press("Shift+N");
    await rest();
    assert.equal(await hash("row"), one);
    await page.click("[aria-label='next match']");
    await rest();
    assert.equal(await hash("row"), two);
    await page.click("[aria-label='previous match']");
    await rest();
    assert.equal(await hash("row"), one);
    assert.notEqual(await picture(0, TOP, 100, 400), before);
    await page.click("[aria-label='how to search']");
    await page.locator(".tl-help", { hasText: "regular expression" }).waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".tl-help").count(), 0);
    await page.focus("[data-control=search]");
    await page.keyboard.press("Escape");
    await rest();
    assert.equal(await hash("q"), null);
  }));

  test("sorts both ways, groups, and colours", () => on("step", async ({ page, rest, hash, picture }) => {
    const seen = new Set([await picture()]);
    for (const [key, value] of [["sort", "reward"], ["sort", "dur"], ["sort", "decode"], ["sort", "status"], ["sort", "row"]]) {
      await page.selectOption(`[data-control=${key}]`, value);
      await rest();
      assert.equal(await hash("sort"), value);
      seen.add(await picture());
    }
    assert.equal(seen.size, 6, "each order is another picture");
    await page.click("[aria-label=descending]");
    await rest();
    assert.equal(await hash("desc"), "0");
    await page.getByRole("button", { name: "Group", exact: true }).click();
    await rest();
    assert.equal(await hash("group"), "1");
    for (const by of ["name", "attempt", "status"]) {
      const was = await picture();
      await page.selectOption("[data-control=colour]", by);
      await rest();
      assert.equal(await hash("colour"), by);
      assert.notEqual(await picture(), was);
    }
    assert.match(await page.locator(".tl-legend").textContent(), /completed.*truncated|truncated.*completed/);
    await page.selectOption("[data-control=colour]", "name");
    assert.match(await page.locator(".tl-legend").textContent(), /sandbox_exec/);
    // The legend highlights and hides.
    const plain = await picture();
    const key = page.locator(".tl-legend li", { hasText: "sandbox_exec" });
    await key.locator("button").first().click();
    await rest();
    assert.equal(await key.locator("button").first().getAttribute("aria-pressed"), "true");
    assert.match(await hash("lit"), /^n\d+$/);
    const lit = await picture();
    assert.notEqual(lit, plain);
    await key.locator("button").first().click();
    await page.getByRole("button", { name: "hide sandbox_exec" }).click({ force: true });
    await rest();
    assert.match(await hash("hide"), /^n\d+$/);
    assert.notEqual(await picture(), plain);
    await page.locator(".tl-legend").getByRole("button", { name: "all", exact: true }).click();
    await rest();
    assert.equal(await picture(), plain);
  }));

  test("attempts are filtered and highlighted", () => on("step", async ({ page, rest, rows, hash, picture }) => {
    await page.selectOption("[data-control=attempt]", "1");
    await rest();
    const n = await rows();
    assert.ok(n > 5 && n < 200);
    const filtered = await picture();
    await page.getByRole("button", { name: "highlight", exact: true }).click();
    await rest();
    assert.equal(await rows(), 601);
    assert.equal(await hash("only"), "0");
    assert.notEqual(await picture(), filtered);
    await page.getByRole("button", { name: "filter", exact: true }).click();
    await rest();
    assert.equal(await rows(), n);
    await page.selectOption("[data-control=attempt]", "-1");
    await rest();
    assert.equal(await rows(), 601);
  }));

  test("rows open into lanes, one or all", () => on("step", async ({ page, rest, hash, said, click, last, picture }) => {
    const n = await last();
    await click(40, y(2));
    await rest();
    const row = await hash("open");
    assert.match(row, /^\d+$/);
    assert.match(await said(), /^expanded: sample #\d+.* lanes$/);
    assert.ok((await last()) < n);
    await page.keyboard.press("Enter");
    await rest();
    assert.equal(await hash("open"), null);
    await page.keyboard.press("Enter");
    await rest();
    assert.equal(await hash("open"), row);
    await page.getByRole("button", { name: "Expand all" }).click();
    await rest();
    assert.equal(await hash("expanded"), "1");
    assert.ok((await last()) < 20, "few rows have room with their lanes");
    const all = await picture();
    await page.getByRole("button", { name: "Collapse all" }).click();
    await rest();
    assert.equal(await last(), n);
    assert.notEqual(await picture(), all);
  }));

  test("instant events, open spans and ends without a start can be left out", () => on("step", async ({ page, rest, hash, picture }) => {
    // Rows with open spans and orphans are looked for, so that there is something to leave out.
    for (const [key, filter, label] of [["points", "points>2", "instant events"], ["opens", "open>0", "open spans"], ["orphans", "orphans>0", "ends without a start"]]) {
      await page.fill("[data-control=search]", filter);
      await rest();
      const before = await picture();
      await page.getByRole("button", { name: "Show ▾" }).click();
      await page.getByRole("checkbox", { name: label }).uncheck();
      await rest();
      assert.equal(await hash(key), "0");
      assert.notEqual(await picture(), before, label);
      await page.getByRole("checkbox", { name: label }).check();
      await page.keyboard.press("Escape");
      await rest();
      assert.equal(await picture(), before, label);
    }
  }));

  test("row heights, and all rows at once", () => on("dense", async ({ page, rest, hash, first, last, rows, colours, click, said, picture }) => {
    assert.equal(await rows(), 6001);
    await page.locator("[data-control=height]").fill("28");
    await rest();
    assert.equal(await hash("height"), "28");
    assert.ok((await last()) - (await first()) < 30);
    await page.locator("[data-control=height]").fill("2");
    await rest();
    assert.ok((await last()) - (await first()) > 200);
    await page.getByRole("button", { name: "All rows", exact: true }).click();
    await rest();
    assert.equal(await hash("height"), "all");
    assert.deepEqual([await first(), await last()], [0, 6001], "thousands of rows are seen at once");
    assert.ok((await colours(LABEL, TOP, 800, 500)) > 300, "as the mean of their colours");
    // Also there: the cursor, a row under the pointer, zooming.
    await click(500, 400);
    await rest();
    assert.match(await said(), /^row \d,\d{3} of 6,001: sample/);
    const whole = await picture();
    await page.keyboard.press("w");
    await page.keyboard.press("w");
    await rest();
    assert.notEqual(await picture(), whole);
    await page.screenshot({ path: join(shots, "viewer-density.png") });
    await page.keyboard.press("o");
    await rest();
    assert.equal(await hash("height"), null);
    await page.keyboard.press("+");
    await page.keyboard.press("+");
    await page.keyboard.press("-");
    await rest();
    assert.equal(await hash("height"), "12");
    const [cx, cy] = [600, 400];
    const box = await page.locator(".tl-canvas").boundingBox();
    await page.mouse.move(box.x + cx, box.y + cy);
    await page.keyboard.down("Alt");
    await page.mouse.wheel(0, -100);
    await page.keyboard.up("Alt");
    await rest();
    assert.equal(await hash("height"), "13");
  }));

  test("longest tail and critical path", () => on("step", async ({ page, rest, hash, said, picture, first }) => {
    const before = await picture(0, TOP, 900, 400);
    const tail = page.getByRole("button", { name: "Longest tail" });
    await tail.click();
    await rest();
    assert.equal(await hash("tail"), "0");
    assert.notEqual(await picture(0, TOP, 900, 400), before);
    await page.selectOption("[data-control=sort]", "reward");
    await page.focus(".tl-canvas");
    await page.keyboard.press("End");
    await rest();
    assert.ok((await first()) > 0);
    await tail.click();
    await rest();
    assert.match(await said(), /\d+ samples held the step/);
    assert.equal(await first(), 0);
    assert.equal(await hash("sort"), null, "sorted by end again");
    await page.getByRole("button", { name: "Critical path" }).click();
    await rest();
    assert.equal(await hash("critical"), "1");
    assert.notEqual(await picture(0, TOP, 900, 400), before);
    await page.locator(".tl-held .tl-link").first().click();
    await rest();
    assert.match(await page.locator(".tl-sample-h").textContent(), /Sample #\d+/);
  }));

  test("idle gaps are squeezed and drawn as a break", () => on("partial", async ({ page, rest, hash, picture, said }) => {
    const squeezed = await picture();
    const button = page.getByRole("button", { name: "Squeeze gaps" });
    assert.equal(await button.getAttribute("aria-pressed"), "true", "a partial rollout begins squeezed");
    await page.screenshot({ path: join(shots, "viewer-gaps.png") });
    await button.click();
    await rest();
    assert.equal(await hash("gaps"), "0");
    assert.notEqual(await picture(), squeezed);
    await button.click();
    await rest();
    assert.equal(await picture(), squeezed);
    await page.keyboard.press("w");
    await rest();
    assert.notEqual(await hash("t0"), null);
    await page.keyboard.press("f");
    await rest();
    assert.equal(await hash("t0"), null);
    assert.ok((await said()).length > 0);
  }));

  test("zooms, pans and scrolls by keys, wheel, drag and minimap", () => on("step", async ({ page, rest, window, canvas, at, drag, first, last, said }) => {
    await canvas.focus();
    await page.keyboard.press("w");
    await rest();
    const a = await window();
    await page.keyboard.press("w");
    await rest();
    const b = await window();
    assert.ok(b[1] - b[0] < a[1] - a[0]);
    await page.keyboard.press("d");
    await rest();
    const c = await window();
    assert.ok(c[0] > b[0] && Math.abs(c[1] - c[0] - (b[1] - b[0])) < 1e-3);
    await page.keyboard.press("a");
    await rest();
    assert.ok(Math.abs((await window())[0] - b[0]) < 1e-3);
    await page.keyboard.press("s");
    await page.keyboard.press("s");
    await page.keyboard.press("s");
    await rest();
    assert.equal(await window(), null, "zoomed out to all of it");
    // The wheel: rows; with Ctrl zoom at the pointer; with Shift pan.
    await page.mouse.move(...(await at(LABEL + 600, 400)));
    await page.mouse.wheel(0, 330);
    await rest();
    assert.equal(await first(), 30);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -800);
    await page.keyboard.up("Control");
    await rest();
    const z = await window();
    assert.ok(z);
    await page.keyboard.down("Shift");
    await page.mouse.wheel(0, 200);
    await page.keyboard.up("Shift");
    await rest();
    assert.ok((await window())[0] > z[0]);
    assert.equal(await first(), 30);
    // Dragging moves both ways.
    const d = await window();
    await drag(700, 400, 500, 345);
    await rest();
    assert.ok((await window())[0] > d[0]);
    assert.equal(await first(), 35);
    // Keys of a list.
    await canvas.focus();
    await page.keyboard.press("Home");
    await rest();
    assert.equal(await first(), 0);
    await page.keyboard.press("End");
    await rest();
    assert.equal(await last(), 601);
    await page.keyboard.press("PageUp");
    await rest();
    assert.ok((await last()) < 601);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    assert.match(await said(), /^row /);
    // The minimap: its box, its edges.
    await page.keyboard.press("Escape");
    await page.keyboard.press("f");
    await rest();
    await page.keyboard.press("f");
    await rest();
    await page.keyboard.press("Escape");
    for (let i = 0; i < 8 && (await window()) !== null; i++) {
      await page.keyboard.press("s");
      await rest();
    }
    const box = await canvas.boundingBox();
    const right = box.width - 10;
    await page.keyboard.press("w");
    await rest();
    const w0 = await window();
    const whole = 601; // the box moves with the pointer
    await drag(LABEL + (right - LABEL) / 2, 50, LABEL + (right - LABEL) / 2 + 90, 50);
    await rest();
    const w1 = await window();
    assert.ok(w1[0] > w0[0] && Math.abs(w1[1] - w1[0] - (w0[1] - w0[0])) < 0.5, `${w0} ${w1} ${whole}`);
    assert.ok((await first()) > 100, "and the rows follow");
    // Its left edge: the time there, from the picture of the axis.
    const [ta, tb] = w1;
    const ends = await page.evaluate(() => document.querySelector(".tl-long")?.textContent ?? "");
    assert.ok(ends.length > 0);
    const lo = -6.4175, hi = 648.1175; // the extent and a hundredth on each side
    const px = (t) => LABEL + ((t - lo) / (hi - lo)) * (right - LABEL);
    await drag(px(ta), 50, px(ta) + 60, 50);
    await rest();
    const w2 = await window();
    assert.ok(w2[0] > ta + 10 && Math.abs(w2[1] - tb) < 0.5, `the edge zooms: ${w1} ${w2}`);
  }));

  test("fits all, then what is selected; a double click fits a span", () => on("step", async ({ page, rest, window, click, canvas, hash }) => {
    await click(LABEL + 300, y(3));
    await rest();
    assert.notEqual(await hash("item"), null);
    await canvas.focus();
    await page.keyboard.press("f");
    await rest();
    const span = await window();
    assert.ok(span && span[1] - span[0] < 640);
    await page.keyboard.press("f");
    await rest();
    assert.equal(await window(), null);
    await page.getByRole("button", { name: /^Fit f$/ }).click();
    await rest();
    assert.deepEqual(await window(), span);
    await page.keyboard.press("f");
    await canvas.dblclick({ position: { x: LABEL + 400, y: y(6) } });
    await rest();
    assert.ok(await window());
  }));

  test("the cursor counts rows; ranges are measured, with their statistics", () => on("step", async ({ page, rest, hash, click, drag, canvas, said }) => {
    await click(LABEL + 400, 108);
    await rest();
    const t = Number(await hash("at"));
    assert.ok(t > 0);
    const states = await page.locator("[data-role=states]").textContent();
    assert.match(states, /^at the cursor: .*decoding.*ended/);
    const sum = [...states.matchAll(/([\d,]+) (?=[a-z])/g)].reduce((a, m) => a + Number(m[1].replace(",", "")), 0);
    assert.equal(sum, 601, states);
    const whole = await page.locator(".tl-stats").textContent();
    assert.match(whole, /sglang_generate/);
    await page.keyboard.down("Shift");
    await drag(LABEL + 200, 300, LABEL + 420, 300);
    await page.keyboard.up("Shift");
    await rest();
    const [from, to] = [Number(await hash("from")), Number(await hash("to"))];
    assert.ok(to > from);
    assert.match(await page.locator("[data-role=range]").textContent(), /^Δ /);
    assert.match(await page.locator(".tl-sample-h").textContent(), /Selected range/);
    assert.notEqual(await page.locator(".tl-stats").textContent(), whole);
    assert.match(await said(), /range of .* selected/);
    await page.screenshot({ path: join(shots, "viewer-range.png") });
    await canvas.focus();
    await page.keyboard.press("Escape");
    await rest();
    assert.equal(await hash("from"), null);
    // The measure tool does it without a modifier.
    await page.keyboard.press("m");
    assert.equal(await page.getByRole("button", { name: /^Measure/ }).getAttribute("aria-pressed"), "true");
    await drag(LABEL + 300, 400, LABEL + 500, 402);
    await rest();
    assert.ok(Number(await hash("to")) > Number(await hash("from")));
    await canvas.focus();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await rest();
    assert.deepEqual([await hash("from"), await hash("at")], [null, null]);
    // A range selected anew by the button, then given back from the panel.
    await page.getByRole("button", { name: /^Measure/ }).click();
    await drag(LABEL + 300, 400, LABEL + 500, 402);
    await rest();
    await page.getByRole("button", { name: "all that is seen" }).click();
    await rest();
    assert.equal(await hash("from"), null);
  }));

  test("tooltips of rows, spans and clusters", () => on("step", async ({ page, at, rest }) => {
    await page.mouse.move(...(await at(40, y(3))));
    await page.locator(".tl-tip", { hasText: /sample #\d+, group \d+/ }).waitFor();
    await page.mouse.move(...(await at(LABEL + 500, y(3))));
    const tip = page.locator(".tl-tip", { hasText: "duration" });
    await tip.waitFor();
    const text = await tip.textContent();
    assert.match(text, /from, to/);
    assert.match(text, /wall clock2026-08-17 /);
    assert.match(text, /parent/);
    assert.match(text, /D forward.*%/);
    await page.fill("[data-control=search]", "attempts>1");
    await rest();
    // Where an attempt ends, two events lie on each other.
    const found = await (async () => {
      for (let x = LABEL + 20; x < LABEL + 700; x += 4) {
        await page.mouse.move(...(await at(x, y(1))));
        await page.waitForTimeout(16);
        if (await page.locator(".tl-tip", { hasText: /^\d+ events/ }).count()) return true;
      }
      return false;
    })();
    assert.ok(found, "a cluster says how many events it holds");
    await page.mouse.move(...(await at(LABEL + 300, 50)));
    assert.equal(await page.locator(".tl-tip").count(), 0);
  }));

  test("a sample: facts, spans, requests, phases, reward, metadata, texts", () => on("step", async ({ page, rest, hash, click, canvas, said, picture }) => {
    await canvas.focus();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await rest();
    const second = await hash("row");
    assert.match(await said(), /^row 2 of 601: sample/);
    await page.keyboard.press("k");
    await rest();
    assert.match(await said(), /^row 1 of 601: /);
    assert.notEqual(await hash("row"), second);
    await click(LABEL + 500, y(3));
    await rest();
    const panel = page.locator(".tl-panel");
    const text = await panel.textContent();
    for (const want of ["reward", "group mean", "response", "vs p50", "Requests", "Reward", "accuracy", "length_penalty", "Metadata", "difficulty", "session", "began2026-08-17"]) assert.ok(text.includes(want), want);
    assert.match(text, /Span (decode|tool|reward|prefill|generate)/);
    assert.match(text, /lane, depth/);
    // A request unfolds its phases, compared with the median; those that others hold are not summed.
    await panel.locator(".tl-requests tbody tr").first().locator("button").click();
    const request = panel.locator(".tl-request");
    await request.waitFor();
    const phases = await request.locator("tbody tr:not(.sum):not(.held) td:nth-child(2)").allTextContents();
    const total = phases.reduce((a, p) => a + Number(p.replace(/,/g, "")), 0);
    const sum = Number((await request.locator("tr.sum td:nth-child(2)").textContent()).replace(/,/g, ""));
    assert.ok(Math.abs(total - sum) <= phases.length, `${total} ${sum}`);
    assert.match(await request.textContent(), /vs p50/);
    assert.match(await request.textContent(), /\d\.\d×/);
    // Its own span is chosen with it: what was written at its start and its end, and its parent.
    await until("attributes", async () => /start attributes.*worker.*end attributes.*finish_reason/s.test(await panel.textContent()));
    const item = await hash("item");
    await panel.locator(".tl-section", { hasText: /^Span/ }).locator(".tl-link").first().click();
    await rest();
    assert.notEqual(await hash("item"), item);
    // Texts come when asked for; sample 0 has them in the page.
    await page.fill("[data-control=search]", "row=0");
    await rest();
    await canvas.focus();
    await page.keyboard.press("j");
    assert.equal(await panel.locator("pre").count(), 0);
    await panel.getByRole("button", { name: "Show", exact: true }).click();
    await panel.locator("pre", { hasText: "Response of 0" }).waitFor();
    await page.fill("[data-control=search]", "row=9");
    await rest();
    await canvas.focus();
    await page.keyboard.press("j");
    await panel.getByRole("button", { name: "Show", exact: true }).click();
    await panel.getByText("not in the page").waitFor();
    // Its group, its place.
    await panel.getByRole("button", { name: "Only its group" }).click();
    await rest();
    assert.match(await hash("q"), /^group=\d+$/);
    await panel.getByRole("button", { name: "Expand lanes" }).click();
    await rest();
    assert.notEqual(await hash("open"), null);
    await panel.getByRole("button", { name: "Fit in the window" }).click();
    await rest();
    assert.notEqual(await hash("t0"), null);
    // Tabs, and the panel as a whole.
    await page.getByRole("tab", { name: "Range" }).click();
    await rest();
    assert.match(await panel.textContent(), /Visible range/);
    await page.getByRole("tab", { name: /^Sample/ }).click();
    const wide = await picture();
    await page.getByRole("button", { name: "close the panel" }).click();
    await rest();
    assert.equal(await panel.count(), 0);
    assert.equal(await hash("tab"), "none");
    assert.notEqual(await picture(), wide);
    await canvas.focus();
    await page.keyboard.press("p");
    await rest();
    assert.equal(await panel.count(), 1);
  }));

  test("exports a picture and a Perfetto trace", () => on("step", async ({ page, rest, said }) => {
    const get = async (name) => {
      await page.getByRole("button", { name: "Export ▾" }).click();
      const [d] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
      return { name: d.suggestedFilename(), bytes: readFileSync(await d.path()) };
    };
    const png = await get("PNG of the view");
    assert.match(png.name, /^rollout_142\.pt\.png$/);
    assert.deepEqual([...png.bytes.subarray(0, 8)], [137, 80, 78, 71, 13, 10, 26, 10]);
    assert.ok(png.bytes.readUInt32BE(16) > 2000, "twice the resolution");
    assert.ok(png.bytes.length > 50_000);
    const trace = await get("Perfetto JSON of the range");
    const doc = JSON.parse(trace.bytes.toString());
    assert.ok(doc.traceEvents.length > 5000);
    assert.match(await said(), /perfetto\.json saved/);
    await page.getByRole("button", { name: "Export ▾" }).click();
    await page.getByRole("button", { name: "Copy the link to this view" }).click();
    await rest();
    assert.match(await said(), /link copied|address holds the view/);
  }));

  test("two dumps on one time axis", () => on("step", async ({ page, rest, window }) => {
    await page.locator("input[type=file]").setInputFiles(files["other"]);
    await until("a second picture", async () => (await page.locator(".tl-canvas").count()) === 2);
    await rest();
    const canvases = page.locator(".tl-canvas");
    assert.equal(await canvases.nth(1).getAttribute("data-rows"), "65");
    const shot = (i) => page.evaluate((k) => {
      const c = document.querySelectorAll(".tl-draw")[k];
      const d = c.getContext("2d").getImageData(112, 60, 700, 120).data;
      return d.reduce((h, v) => Math.imul(h ^ v, 16777619), 2166136261);
    }, i);
    const before = [await shot(0), await shot(1)];
    await canvases.nth(1).focus();
    await page.keyboard.press("w");
    await rest();
    assert.ok(await window());
    const after = [await shot(0), await shot(1)];
    assert.notEqual(after[0], before[0], "both move");
    assert.notEqual(after[1], before[1], "both move");
    await page.keyboard.press("[");
    await page.keyboard.press("j");
    await rest();
    assert.equal(new URLSearchParams(new URL(page.url()).hash.slice(1)).has("row"), true);
    await page.screenshot({ path: join(shots, "viewer-two.png") });
    await page.getByRole("button", { name: "Only the first" }).click();
    await until("one picture", async () => (await page.locator(".tl-canvas").count()) === 1);
    // What is no timeline is said, and changes nothing.
    const bad = join(dir, "bad.html");
    writeFileSync(bad, "<html>nothing</html>");
    await page.locator("input[type=file]").setInputFiles(bad);
    await page.getByText("holds no timeline").waitFor();
    assert.equal(await page.locator(".tl-canvas").count(), 1);
  }));

  test("the address holds the whole view", async () => {
    let url = "", pic = 0;
    await on("step", async ({ page, rest, click, canvas, picture }) => {
      await page.fill("[data-control=search]", "reward=1");
      await page.selectOption("[data-control=sort]", "dur");
      await page.selectOption("[data-control=colour]", "status");
      await click(LABEL + 300, y(4));
      await canvas.focus();
      await page.keyboard.press("Enter");
      await page.keyboard.press("w");
      await page.mouse.wheel(0, 220);
      await rest();
      await page.mouse.move(5, 5);
      await rest();
      url = new URL(page.url()).hash;
      pic = await picture();
    });
    await on("step", async ({ picture, page }) => {
      assert.equal(await picture(), pic, "the same picture from the same address");
      assert.equal(new URL(page.url()).hash, url);
      // Back and forward move it too.
      await page.evaluate(() => (location.hash = "q=reward%3D0"));
      await until("the other rows", async () => (await page.inputValue("[data-control=search]")) === "reward=0");
    }, { hash: url });
    await on("step", async ({ rows }) => assert.equal(await rows(), 601), { hash: "#sort=evil&t0=x&height=-3&row=999999&open=5.x&item=4" });
  });

  test("keys: the map, focus, and nothing while typing", () => on("step", async ({ page, rest, hash, canvas }) => {
    await page.keyboard.press("?");
    const map = page.getByRole("dialog", { name: "keys" });
    await map.waitFor();
    for (const k of ["search", "next, previous match", "zoom in, out", "measure between two points"]) assert.ok((await map.textContent()).includes(k));
    await page.keyboard.press("Escape");
    assert.equal(await map.count(), 0);
    await page.focus("[data-control=search]");
    await page.keyboard.type("ws");
    await rest();
    assert.equal(await hash("t0"), null, "letters typed into the search are text");
    await page.fill("[data-control=search]", "");
    // From the top, Tab reaches every control and then the picture.
    await page.focus(".viewer .top button");
    const seen = new Set();
    for (let i = 0; i < 90; i++) {
      await page.keyboard.press("Tab");
      const el = await page.evaluate(() => document.activeElement?.className.split(" ")[0] || document.activeElement?.tagName);
      seen.add(el);
      if (el === "tl-canvas") break;
    }
    assert.ok(seen.has("tl-canvas"), [...seen].join(" "));
    assert.match(await canvas.getAttribute("aria-label"), /timeline of rollout_142\.pt: 601 of 601 rows/);
    await page.keyboard.press("]");
    assert.match(await page.locator("[data-role=live]").textContent(), /no other step/);
  }));

  test("hostile names, values and texts are only text", () => on("hostile", async ({ page, rest, click, canvas, at, rows }) => {
    assert.equal(await page.title().then((t) => t.includes("</script>")), true);
    await page.fill("[data-control=search]", '"<img"');
    await rest();
    assert.ok((await rows()) > 0);
    await page.fill("[data-control=search]", "");
    await page.selectOption("[data-control=colour]", "name");
    for (const place of [0, 3, 5, 8, 13]) {
      await page.mouse.move(...(await at(40, y(place))));
      await page.mouse.move(...(await at(LABEL + 300, y(place))));
      await page.waitForTimeout(180);
      await click(LABEL + 300 + place * 20, y(place));
      await canvas.focus();
      await page.keyboard.press("Enter");
      await rest();
    }
    for (const r of [0, 1, 2]) {
      await page.fill("[data-control=search]", `row=${r}`);
      await rest();
      await canvas.focus();
      await page.keyboard.press("j");
      await page.locator(".tl-panel").getByRole("button", { name: "Show", exact: true }).click();
      await page.locator("pre", { hasText: "Prompt <img" }).waitFor();
    }
    assert.match(await page.locator(".tl-panel").textContent(), /<b>key<\/b>/);
    await page.screenshot({ path: join(shots, "viewer-hostile.png") });
    await page.fill("[data-control=search]", "");
    await page.getByRole("tab", { name: "Range" }).click();
    await rest();
    const found = await page.evaluate(() => ({ pwned: window.__pwned, images: document.querySelectorAll("img").length, scripts: document.querySelectorAll("script").length }));
    assert.deepEqual(found, { pwned: undefined, images: 0, scripts: 1 });
    assert.match(await page.locator(".tl-stats").textContent(), /<img src=x|<\/script>|alert\(1\)/);
  }));

  test("nothing to show: no samples, no traces, one event", async () => {
    await on("empty", async ({ page, rows }) => {
      assert.equal(await rows(), 0);
      await page.getByText("has no samples").waitFor();
      for (const k of ["j", "w", "a", "f", "Enter", "n", "o", "m", "Escape"]) await page.keyboard.press(k);
      for (const b of ["Expand all", "Longest tail", "Critical path", "Squeeze gaps", "Group"]) await page.getByRole("button", { name: b, exact: true }).click();
    });
    await on("untraced", async ({ page, rows, rest, click, hash }) => {
      assert.equal(await rows(), 5);
      await click(LABEL + 200, y(2));
      await rest();
      assert.match(await page.locator(".tl-panel").textContent(), /no timelineno trace/);
      for (const k of ["w", "s", "f", "f", "Enter", "o", "j"]) await page.keyboard.press(k);
      await page.getByRole("button", { name: "Squeeze gaps" }).click();
      await page.getByRole("button", { name: "Squeeze gaps" }).click();
      await rest();
      assert.equal(await hash("gaps"), null);
      assert.match(await page.locator("[data-role=live]").textContent(), /no idle gaps/);
    });
    await on("tiny", async ({ page, rows, rest, click }) => {
      assert.equal(await rows(), 1);
      for (const k of ["w", "f", "j", "f", "Enter", "o", "o"]) await page.keyboard.press(k);
      await click(LABEL + 200, y(0));
      await rest();
      await page.getByRole("button", { name: "Critical path" }).click();
    });
    await on("nopd", async ({ rows, colours }) => {
      assert.equal(await rows(), 121);
      assert.ok((await colours(LABEL, TOP, 800, 300)) > 5);
    });
  });

  test("a page without data says what to do", async () => {
    const file = join(dir, "bare.html");
    for (const [html, want] of [[pageOf([]), /holds no timeline.*rollscope view/s], [pageOf([Buffer.from("not a container")]), /does not begin with RTC1/]]) {
      writeFileSync(file, html);
      const page = await (await browser.newContext()).newPage();
      await page.goto(pathToFileURL(file).href);
      await page.getByRole("alert").waitFor();
      assert.match(await page.locator("#app").textContent(), want);
      await page.context().close();
    }
  });

  test("a sample of a million events opens, expands, zooms and pans", () => on("million", async ({ page, rest, hash, canvas, picture, colours, window, at, said }) => {
    assert.ok((await colours(LABEL, TOP, 900, 10)) > 1);
    await canvas.focus();
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await rest();
    assert.match(await said(), /4 lanes/);
    const far = await picture(LABEL, TOP, 900, 60);
    await page.mouse.move(...(await at(LABEL + 500, TOP + 20)));
    await page.keyboard.down("Control");
    for (let i = 0; i < 12; i++) await page.mouse.wheel(0, -400);
    await page.keyboard.up("Control");
    await rest();
    const w = await window();
    assert.ok(w[1] - w[0] < 1, `zoomed to ${w[1] - w[0]} s`);
    assert.notEqual(await picture(LABEL, TOP, 900, 60), far);
    await page.keyboard.press("d");
    await page.keyboard.press("d");
    await rest();
    assert.ok((await window())[0] > w[0]);
    // Between spans there is nothing; a few steps on there is one.
    for (let x = 400; x < 800 && (await hash("item")) === null; x += 23) {
      await canvas.click({ position: { x: LABEL + x, y: TOP + 17 } });
      await rest();
    }
    assert.notEqual(await hash("item"), null, "a span among a million is found");
    await page.getByRole("tab", { name: "Range" }).click();
    await rest();
    assert.match(await page.locator(".tl-panel").textContent(), /items1,000,000/);
    await page.keyboard.press("o");
    await rest();
  }));

  test("dark, light, forced colours, reduced motion, a narrow window", async () => {
    const look = async (name, options) => on("step", async ({ page, rest, click, canvas, picture }) => {
      await click(LABEL + 500, y(4));
      await canvas.focus();
      await page.keyboard.press("Enter");
      await page.mouse.move(5, 5);
      await rest();
      await page.screenshot({ path: join(shots, `viewer-${name}.png`) });
      options.seen?.push(await picture());
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${name}: ${over} px too wide`);
    }, options);
    const seen = [];
    await look("dark", { seen });
    await look("light", { colorScheme: "light", seen });
    await look("forced", { forcedColors: "active", seen });
    assert.equal(new Set(seen).size, 3, "each theme is another picture");
    await look("reduced", { reducedMotion: "reduce" });
    await look("narrow", { width: 1024, height: 720 });
    await on("step", async ({ page, rest, picture }) => {
      const dark = await picture();
      await page.getByRole("button", { name: /^theme/ }).click();
      await rest();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
      assert.notEqual(await picture(), dark);
    });
  });
});
