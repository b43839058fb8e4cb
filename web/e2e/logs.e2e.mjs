// The logs' page with the server at BASE_URL (the demo): classes, the histogram and its brush, the filter, one
// line unfolded, the tail, and the ways to the request and the engine.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { drag, launch, settled, until } from "./browser.mjs";
import { hex, sendLines, someEngine, stampOf, visitor } from "./events.mjs";

const base = (process.env.BASE_URL ?? "").replace(/\/$/, "");
const skip = base ? false : "BASE_URL names no server";
let browser, engine;
const rid = hex(16);
const on = visitor(base, () => browser);

const lines = (page) => page.locator(".log-row");
const query = (page) => new URL(page.url()).searchParams;
const at = (ms, text) => [ms, `[${stampOf(ms)} TP0] ${text}`];
/** Lines of a service of their own, so that a list holds these alone. */
const service = `e2e-${hex(3)}`;

before(async () => {
  if (!base) return;
  engine = await someEngine(base);
  const now = Date.now();
  await sendLines(base, engine.instance, [
    at(now - 4000, "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.1034 -> 0.2990"),
    at(now - 3000, `Abort queued request. rid='${rid}'`),
    at(now - 2000, "Decode batch [51341], #running-req: 31, #token: 109426, token usage: 0.67, cuda graph: True, gen throughput (token/s): 4806.57, #queue-req: 1, "),
  ]);
  await sendLines(base, service, [
    ...Array.from({ length: 120 }, (_, i) => at(now - 100_000 + i * 500, `first lines, number ${i}`)),
    [now - 1500, "(RolloutManager pid=4711) step 41 took 12.5 s [repeated 7x across cluster]"],
  ]);
  browser = await launch();
});
after(() => browser?.close());

describe("logs", { skip }, () => {
  for (const theme of ["dark", "light"]) {
    test(`lines, classes with counts, the histogram and its brush (${theme})`, () => on(theme, "/logs?range=15m", async ({ page, shot }) => {
      await until("lines", async () => (await lines(page).count()) > 3, 60_000);
      const chip = page.locator(".log-chips button", { hasText: "preempt" });
      await chip.waitFor();
      await until("its count", async () => /preempt\s*\d/.test(await chip.innerText()));
      await page.waitForTimeout(300);
      await shot(`logs-${theme}`);
      if (theme === "light") return;
      await chip.click();
      await page.waitForURL(/class=preempt/);
      await until("only these", async () => (await lines(page).count()) > 0 && (await lines(page).evaluateAll((l) => l.every((r) => /preempt/.test(r.textContent)))));
      await page.locator(".log-chips button", { hasText: "all classes" }).click();
      await until("all again", () => query(page).get("class") === null);
      await page.locator(".log-histogram button", { hasText: "engine" }).click();
      await page.waitForURL(/by=engine/);
      await page.locator(".log-histogram .cloud-legend", { hasText: engine.name }).waitFor();

      await drag(page, page.locator(".log-histogram canvas"), /from=.*to=/, [0.8, 0.5], [0.9, 0.55], [0.97, 0.55]);
      await page.goBack();
      await page.waitForURL(/range=15m/);
    }));
  }

  test("the filter in LogsQL, one engine, a line unfolded, its request, its engine, the lines around it", () => on("dark", "/logs?range=15m", async ({ page, shot, allow }) => {
    await until("lines", async () => (await lines(page).count()) > 3, 60_000);
    const box = page.locator('input[aria-label="LogsQL"]');
    await box.fill(`rid:="${rid}"`);
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=rid/);
    await until("the one line", async () => (await lines(page).count()) === 1);
    await lines(page).first().click();
    await page.waitForURL(/id=/);
    const open = page.locator(".log-open");
    assert.match(await open.innerText(), new RegExp(rid));
    await open.locator("a", { hasText: "Engine then" }).waitFor(); // its engine is known
    await shot("logs-line");
    assert.match(await open.locator("a", { hasText: "Its request" }).getAttribute("href"), new RegExp(`/requests\\?.*rid:${rid}`));
    await open.locator("a", { hasText: "Engine then" }).click();
    await page.waitForURL(/\/engines\?.*engine=/);
    await page.goBack();
    await open.locator("a", { hasText: "Lines around it" }).click();
    await page.waitForURL(/from=.*engine=/);
    await until("those of its engine around it", async () => (await lines(page).count()) >= 3);

    await page.goto(`${base}/logs?range=15m`, { waitUntil: "domcontentloaded" });
    await box.fill('token_usage:>0.6 "Decode batch"');
    await page.keyboard.press("Enter");
    await until("numbers read from lines", async () => (await lines(page).count()) > 0 && (await lines(page).evaluateAll((l) => l.every((r) => /Decode batch/.test(r.textContent)))));
    await lines(page).first().click();
    await open.locator(".log-fields").waitFor();
    assert.match(await open.locator(".log-fields").innerText(), /token_usage/);
    allow(/status of 400/);
    await box.fill('"never closed');
    await page.keyboard.press("Enter");
    await page.locator(".fbox-error").waitFor();
  }));

  test("the tail: new lines come in above; what is read stays; folded lines say so", () => on("dark", `/logs?range=15m&service=${service}&every=1`, async ({ page }) => {
    await until("its lines", async () => (await lines(page).count()) > 10, 60_000);
    assert.match(await page.locator(".log-row", { hasText: "step 41" }).innerText(), /×7/, "Ray folded seven");
    await sendLines(base, service, [at(Date.now(), "fresh line one")]);
    await page.locator(".log-row", { hasText: "fresh line one" }).waitFor();
    const list = page.locator(".log-lines");
    await list.evaluate((el) => (el.scrollTop = 900));
    await page.locator(".tailing", { hasText: "what you read stays" }).waitFor();
    const first = () => list.evaluate((el) => [...el.querySelectorAll(".log-row")].find((r) => r.getBoundingClientRect().top >= el.getBoundingClientRect().top)?.textContent);
    const reading = await settled("what is read", first);
    await sendLines(base, service, [at(Date.now(), "fresh line two"), at(Date.now() + 1, "fresh line three")]);
    const button = page.locator(".log-new");
    await button.waitFor();
    assert.equal(await first(), reading, "what is read stays where it is");
    await button.click();
    await page.locator(".log-row", { hasText: "fresh line three" }).waitFor();
    await page.keyboard.press("Space");
    await page.locator(".panel-h", { hasText: "not following" }).waitFor();
  }));
});
