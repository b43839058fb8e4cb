// The traces' page with the server at BASE_URL (the demo): the search, a trace as a waterfall with the lanes
// of prefill and decode and as a flame on the canvas, one span, and the ways from it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch, until } from "./browser.mjs";
import { api, pdTrace, sendTrace, someEngine, visitor } from "./events.mjs";

const base = (process.env.BASE_URL ?? "").replace(/\/$/, "");
const skip = base ? false : "BASE_URL names no server";
let browser, engine, sent;
const on = visitor(base, () => browser);

const rows = (page) => page.locator('table[aria-label="traces"] tbody tr[data-key]');
const query = (page) => new URL(page.url()).searchParams;
const bars = (page) => page.locator(".wf-row");
const named = (page, name) => page.locator(".wf-row", { has: page.locator(".wf-text", { hasText: new RegExp(`^${name}`) }) });

before(async () => {
  if (!base) return;
  engine = await someEngine(base);
  sent = pdTrace({ service: engine.instance, start: Date.now() - 9_000 });
  await sendTrace(base, sent);
  browser = await launch();
});
after(() => browser?.close());

describe("traces", { skip }, () => {
  test("the search: service, wildcard, status, duration, id; what services send", () => on("dark", "/traces?range=30m", async ({ page, shot, allow }) => {
    await until("traces", async () => (await rows(page).count()) > 0, 60_000);
    await page.locator('table[aria-label="services"] tbody tr[data-key]').first().waitFor();
    await page.waitForTimeout(300);
    await shot("traces-dark");
    await page.locator('select[aria-label="service"]').selectOption("e2e-router");
    await page.waitForURL(/service=e2e-router/);
    await until("only of that service", async () => (await rows(page).count()) > 0 && (await rows(page).evaluateAll((l) => l.every((r) => /e2e-router/.test(r.textContent)))));
    await page.locator('select[aria-label="service"]').selectOption("");
    await until("any service", () => query(page).get("service") === null);
    const name = page.locator('input[aria-label^="name of a span"]');
    await name.fill("decode Req *");
    await page.keyboard.press("Enter");
    await page.waitForURL(/name=decode\+Req/);
    await page.locator('select[aria-label="status"]').selectOption("error");
    await page.waitForURL(/status=error/);
    await until("the one that was sent", async () => (await page.locator(`tr[data-key="${sent.trace}"]`).count()) === 1);
    await page.locator('input[aria-label="shortest"]').fill("1h");
    await page.keyboard.press("Enter");
    await page.getByText("no trace that was kept fits").waitFor();
    await page.locator('input[aria-label="shortest"]').fill("");
    await page.keyboard.press("Enter");
    await until("no shortest", () => query(page).get("min") === null);
    allow(/status of 400/);
    await page.locator('input[aria-label="attributes"]').fill("{ oops");
    await page.keyboard.press("Enter");
    await page.locator(".fbox-error").waitFor();
    await page.locator('input[aria-label="attributes"]').fill(`rid=${sent.rid}`);
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=rid/);
    await until("by an attribute", async () => (await page.locator(`tr[data-key="${sent.trace}"]`).count()) === 1);
    await page.locator('input[aria-label="open a trace by an id"]').fill(sent.trace);
    await page.keyboard.press("Enter");
    await page.waitForURL(new RegExp(`id=${sent.trace}`));
    await bars(page).first().waitFor();
    await page.goBack();
    await until("the search again", async () => query(page).get("id") === null && (await rows(page).count()) > 0);
  }));

  for (const theme of ["dark", "light"]) {
    test(`the waterfall: lanes, folded passes, a missing parent, the critical path, one span (${theme})`, () => on(theme, () => `/traces?id=${sent.trace}`, async ({ page, shot }) => {
      await bars(page).first().waitFor();
      const lane = async (name) => (await named(page, name).locator(".wf-lane").allInnerTexts()).join();
      assert.equal(await lane("prefill_forward"), "P");
      assert.equal(await lane("decode_forward"), "D");
      assert.equal(await lane("http_request"), "");
      assert.match(await named(page, "decode_loop").innerText(), /×40/, "passes are one row");
      assert.equal(await page.locator(".wf-row.missing").count(), 1, "a parent that nobody exported has a place");
      assert.match(await page.locator(".trace-strip").innerText(), /orphans|incomplete/);
      assert.ok(await page.locator(".wf-critical").count(), "the critical path is drawn");
      await page.waitForTimeout(200);
      await shot(`trace-${theme}`);
      if (theme === "light") return;

      await page.keyboard.press("c");
      await page.waitForURL(/by=critical/);
      assert.ok(await page.locator(".wf-row.faint").count(), "the rest steps back");
      await page.keyboard.press("c");
      const before = await bars(page).count();
      await named(page, "prefill Req").locator(".wf-fold").click();
      await page.waitForURL(/closed=/);
      await until("folded", async () => (await bars(page).count()) < before);
      await named(page, "prefill Req").locator(".wf-fold").click();
      await until("unfolded", async () => (await bars(page).count()) === before);
      await page.keyboard.press("w");
      await page.waitForURL(/part=/);
      await page.keyboard.press("Escape");
      await until("all of it", () => query(page).get("part") === null);

      await named(page, "decode_forward").locator(".wf-name").click();
      await page.waitForURL(/span=/);
      const panel = page.locator('aside[aria-label="span"]');
      await until("its event", async () => /first_token/.test(await panel.innerText()));
      await panel.locator("button", { hasText: `span ${sent.id.pForward}` }).click();
      await until("the span it links to", () => query(page).get("span") === sent.id.pForward);
      assert.match(await panel.locator("h2").innerText(), /prefill_forward/);
      await named(page, "prefill Req").locator(".wf-name").click();
      await until("what was dropped", async () => /37 attributes dropped by the sender/.test(await panel.innerText()));
      await shot("trace-span");
      await page.goBack();
      await until("the span before", () => query(page).get("span") === sent.id.pForward);
      await page.reload();
      await until("the span is in the URL", async () => /prefill_forward/.test(await panel.locator("h2").innerText()));
      await named(page, "decode_loop").locator(".wf-name").click();
      await until("what is folded is counted", async () => /Stands for 40 spans/.test(await panel.innerText()));

      await page.keyboard.press("Escape");
      await page.locator('aside[aria-label="trace"]').waitFor();
      await page.locator('input[aria-label="find in spans"]').fill("transfer");
      await page.keyboard.press("Enter");
      await page.waitForURL(/span=/);
      assert.ok(await page.locator(".wf-row.hit").count() >= 2);
    }));
  }

  test("the flame: the same timeline as of a rollout, a row a participant", () => on("dark", () => `/traces?id=${sent.trace}`, async ({ page, shot }) => {
    await bars(page).first().waitFor();
    await page.getByRole("radio", { name: "Flame" }).click();
    await page.waitForURL(/draw=flame/);
    await page.locator(".flame canvas").first().waitFor();
    await until("its rows", async () => /rows 1–\d+ of [2-9]/.test(await page.locator(".flame").innerText()));
    await page.waitForTimeout(500);
    await shot("trace-flame");
    await page.keyboard.press("j");
    await page.waitForURL(/t=/);
    await page.goBack();
    await page.locator(".waterfall").waitFor();
  }));

  test("from a trace to its request and its lines; from the search box to both", () => on("dark", () => `/traces?id=${sent.trace}`, async ({ page }) => {
    await bars(page).first().waitFor();
    await until("its request is known", async () => (await api(base, `/traces/${sent.trace}`)).request_id !== "", 90_000);
    await page.reload();
    await bars(page).first().waitFor();
    await page.locator(".ways a", { hasText: "Its request" }).click();
    await page.waitForURL(/\/requests\?.*id=/);
    await page.locator(".request-panel .ways").waitFor();
    await page.locator(".request-panel .ways a", { hasText: "Spans" }).click();
    await page.waitForURL(new RegExp(`/traces\\?.*id=${sent.trace}`));
    await bars(page).first().waitFor();
    await page.keyboard.press("l");
    await page.waitForURL(/\/logs\?.*q=/);
    // On a trace's page / finds in its spans: the request first.
    for (const [text, kind, url] of [[sent.rid, "request", /\/requests\?.*id=r/], [sent.trace, "trace", /\/traces\?.*id=/]]) {
      await page.evaluate(() => document.activeElement?.blur());
      await page.keyboard.press("/");
      await page.keyboard.type(text);
      await page.locator(".hits li", { hasText: text }).filter({ has: page.locator(".hit-kind", { hasText: new RegExp(`^${kind}$`) }) }).click();
      await page.waitForURL(url);
    }
  }));
});
