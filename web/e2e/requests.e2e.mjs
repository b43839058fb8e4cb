// The requests' page and the ways to and from it, with the server at BASE_URL (the demo): from a chart's
// point to the requests of its window, from a request to its spans, its log lines, its engine, its sample.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { drag, launch, until } from "./browser.mjs";
import { api, pdTrace, sendLines, sendTrace, someEngine, stampOf, visitor } from "./events.mjs";

const base = (process.env.BASE_URL ?? "").replace(/\/$/, "");
const skip = base ? false : "BASE_URL names no server";
let browser, engine, sent;
const on = visitor(base, () => browser);

const rows = (page) => page.locator('table[aria-label="requests"] tbody tr[data-key]');
const query = (page) => new URL(page.url()).searchParams;
const some = (page) => until("requests", async () => (await rows(page).count()) > 0, 60_000);
const byRid = () => `/requests?range=30m&q=rid:${sent.rid}`;
/** The numbers of a column, as written. */
const column = async (page, title) => {
  const at = await page.locator('table[aria-label="requests"] th').evaluateAll((ths, t) => ths.findIndex((th) => th.textContent.startsWith(t)), title);
  assert.ok(at >= 0, `no column ${title}`);
  return (await rows(page).evaluateAll((trs, i) => trs.map((tr) => tr.cells[i].textContent), at)).map((t) => Number(t.replace(/,/g, ""))).filter((n) => Number.isFinite(n));
};

before(async () => {
  if (!base) return;
  engine = await someEngine(base);
  sent = pdTrace({ service: engine.instance, start: Date.now() - 9_000 });
  await sendTrace(base, sent);
  await sendLines(base, engine.instance, [[sent.end, `[${stampOf(sent.end)} TP0] Abort queued request. rid='${sent.rid}'`]]);
  await until("the request that was sent", async () => (await api(base, `/requests?filter=rid:${sent.rid}`)).requests.find((r) => r.spans === "kept"), 90_000);
  browser = await launch();
});
after(() => browser?.close());

describe("requests", { skip }, () => {
  for (const theme of ["dark", "light"]) {
    test(`the list: slowest first, filter, columns, the panel, the way back (${theme})`, () => on(theme, "/requests?range=15m", async ({ page, shot, allow }) => {
      let e2e = [];
      await until("more than a few requests", async () => (e2e = await column(page, "E2E")).length > 3, 60_000);
      assert.ok(e2e.every((v, i) => i === 0 || v <= e2e[i - 1]), `slowest first: ${e2e.slice(0, 10)}`);
      await until("the cloud", async () => (await page.locator(".request-cloud canvas").count()) === 1);
      await page.waitForTimeout(400);
      await shot(`requests-${theme}`);
      if (theme === "light") return;

      await page.locator('table[aria-label="requests"] th button', { hasText: "TTFT" }).click();
      await page.waitForURL(/sort=-ttft/);
      await until("slowest TTFT first", async () => { const v = await column(page, "TTFT"); return v.length > 3 && v.every((x, i) => i === 0 || x <= v[i - 1]); });

      const box = page.locator('input[aria-label="filter requests"]');
      await box.fill("outcome:error");
      await page.keyboard.press("Enter");
      await page.waitForURL(/q=outcome:error/);
      await until("only errors", async () => (await rows(page).count()) > 0 && (await rows(page).evaluateAll((l) => l.every((r) => /error/.test(r.textContent)))));
      allow(/status of 400/);
      await box.fill("ttfx>5s");
      await page.locator(".fbox-error", { hasText: "ttfx" }).waitFor();
      await box.fill("");
      await page.keyboard.press("Enter");
      await until("no filter", () => query(page).get("q") === null);
      await some(page);

      await page.getByRole("button", { name: /^Columns/ }).click();
      await page.locator(".pop-columns label", { hasText: "Cached" }).click();
      await page.waitForURL(/cols=/);
      await page.locator('table[aria-label="requests"] th', { hasText: "Cached" }).waitFor();
      await page.keyboard.press("Escape");

      await page.locator(".pop-columns").waitFor({ state: "detached" });
      await page.evaluate(() => document.activeElement?.blur());
      // The list is live: the row in focus may give way to a slower one between two keys.
      await until("a row opened by keys", async () => {
        await page.keyboard.press("j");
        if (await page.evaluate(() => document.activeElement?.matches("tr[data-key]"))) await page.keyboard.press("Enter");
        return query(page).get("id");
      });
      await page.locator(".request-panel .phase, .request-panel .calm").first().waitFor();
      assert.ok(query(page).get("id"), "the URL names the request");
      await page.goBack();
      await page.locator(".request-panel").waitFor({ state: "detached" });
      await page.goForward();
      await page.locator(".request-panel").waitFor();
      await page.reload();
      await page.locator(".request-panel .tl-facts").waitFor();
      await page.keyboard.press("Escape");
      await page.locator(".request-panel").waitFor({ state: "detached" });
    }));
  }

  test("groups with exact percentiles, targets of goodput", () => on("dark", "/requests?range=15m", async ({ page, shot }) => {
    await some(page);
    await page.locator('select[aria-label="group by"]').selectOption("engine");
    await page.waitForURL(/by=engine/);
    const groups = page.locator('table[aria-label="groups"] tbody tr[data-key]');
    await until("groups", async () => (await groups.count()) > 1);
    assert.ok(await page.locator('table[aria-label="groups"] th', { hasText: "TTFT p99" }).count(), "percentiles of each group");
    await until("the histogram's beside", () => page.locator(".quantiles th", { hasText: "histogram" }).count());
    await page.locator('input[aria-label="target of TTFT"]').fill("2s");
    await page.keyboard.press("Enter");
    await page.waitForURL(/ttft=2s/);
    await page.locator(".goodput .v").waitFor();
    assert.match(await page.locator(".goodput").innerText(), /requests with TTFT ≤ 2/);
    // The percentile that is shown is the one of the requests themselves.
    const shown = await page.locator(".quantiles tr", { hasText: "E2E" }).locator("td b").innerText();
    assert.match(shown, /^[\d,.]+ (ms|s)$/);
    await shot("requests-groups");
    await groups.first().locator("td").nth(1).click();
    await page.waitForURL(/q=engine/);
    await page.getByText(/requests? that fit/).waitFor();
  }));

  test("the cloud: a frame narrows range and filter, a press opens", () => on("dark", "/requests?range=15m", async ({ page }) => {
    await some(page);
    const canvas = page.locator(".request-cloud canvas");
    await until("the cloud is drawn", async () => /\d+ requests/.test(await canvas.getAttribute("aria-label")));
    await drag(page, canvas, /from=.*to=/, [0.45, 0.06], [0.8, 0.4], [0.97, 0.75]);
    assert.match(query(page).get("q") ?? "", /ttft>=.*ttft<=/);
    await until("the whole again", async () => {
      if (query(page).get("range") === "15m" && !query(page).get("q")) return true;
      await page.goBack();
      return false;
    });
    await page.locator('select[aria-label="vertical"]').selectOption("e2e");
    await page.locator('select[aria-label="horizontal"]').selectOption("completion_tokens");
    await page.waitForURL(/x=completion_tokens/);
    assert.match(page.url(), /y=e2e/);
    await until("the other cloud", async () => /E2E over Output/.test(await canvas.getAttribute("aria-label")));
  }));

  test("a request: where its time went, who said what; its spans, lines, engine are one press away", () => on("dark", byRid, async ({ page, shot }) => {
    await some(page);
    await rows(page).first().click();
    const panel = page.locator(".request-panel");
    await panel.locator(".phase").first().waitFor();
    const phases = await panel.locator(".phase-name").allInnerTexts();
    assert.ok(phases.some((p) => /decode forward/.test(p)) && phases.includes("queue"), `phases: ${phases}`);
    assert.match(await panel.locator(".phase.sum").innerText(), /whole\s+4,00\d ms/);
    assert.match(await panel.locator(".said").first().innerText(), /trace/, "fields name who said them");
    await page.waitForTimeout(300);
    await shot("request");
    const at = page.url();
    const ways = [
      ["Spans", /\/traces\?.*id=/, () => page.locator(`.wf-row`).first().waitFor()],
      ["log line", /\/logs\?.*rid/, () => until("its line", async () => (await page.locator(".log-row", { hasText: sent.rid }).count()) === 1)],
      ["Engine", /\/engines\?.*engine=/, () => page.locator(".engine-strip").waitFor()],
    ];
    for (const [text, url, there] of ways) {
      await panel.locator(".ways a", { hasText: text }).click();
      await page.waitForURL(url);
      await there();
      await page.goBack();
      await until("back", () => page.url() === at);
      await panel.locator(".ways").waitFor();
    }
    for (const [key, url] of [["t", /\/traces\?/], ["l", /\/logs\?/], ["e", /\/engines\?/]]) {
      await page.keyboard.press(key);
      await page.waitForURL(url);
      await page.goBack();
      await panel.locator(".ways").waitFor();
    }
  }));

  test("a request of a rollout and its sample, there and back", () => on("dark", "/requests?range=6h&q=sample:any&sort=-start", async ({ page }) => {
    await some(page);
    await rows(page).first().click();
    await page.locator(".request-panel .ways a", { hasText: "Sample" }).click();
    await page.waitForURL(/\/rollouts\?.*t=/);
    const links = page.locator(".tl-panel a", { hasText: "request" });
    await until("the sample's requests", async () => (await links.count()) > 0, 60_000);
    await links.first().click();
    await page.waitForURL(/\/requests\?.*sample:/);
    await some(page);
  }));

  test("join: from a point of a chart to the requests, traces and lines of its window", () => on("dark", "/?range=15m", async ({ page, shot }) => {
    const over = page.locator('.golden section[aria-label="Time to first token"][data-state=value] .u-over');
    const point = async (where) => {
      await where.waitFor();
      // The page may still be moving its panels, and a press may come before the chart knows its cursor.
      await until("the menu", async () => {
        const b = await where.boundingBox();
        if (!b) return false;
        await page.mouse.move(b.x + b.width * 0.97, b.y + b.height * 0.5);
        await page.mouse.move(b.x + b.width * 0.96, b.y + b.height * 0.5);
        await page.waitForTimeout(100);
        await page.mouse.down();
        await page.mouse.up();
        return page.locator(".pop-point").waitFor({ timeout: 5_000 }).then(() => true, () => false);
      });
    };
    await point(over);
    await shot("point-menu");
    await page.locator(".point-menu a", { hasText: "Requests" }).click();
    await page.waitForURL(/\/requests\?.*from=.*to=.*sort=-ttft/);
    await some(page);
    const ttft = await column(page, "TTFT");
    assert.ok(ttft.every((v, i) => i === 0 || v <= ttft[i - 1]), "slowest first");
    for (const [word, path] of [["Traces", "/traces"], ["Log lines", "/logs"]]) {
      await page.goBack();
      await point(over);
      await page.locator(".point-menu a", { hasText: word }).click();
      await until(path, () => new URL(page.url()).pathname === path);
      assert.ok(query(page).get("from"));
    }
    // On an engine's page the window is of that engine; the keyboard does it too.
    await page.goto(`${base}/engines?range=15m&live=0&engine=${encodeURIComponent(engine.id)}&peers=0`, { waitUntil: "domcontentloaded" });
    const its = page.locator(".engine-main section.chart[data-state=value] .u-over").first();
    await its.waitFor({ timeout: 60_000 });
    await page.waitForTimeout(500);
    await point(its);
    await page.keyboard.press("r");
    await page.waitForURL(/\/requests\?/);
    assert.match(query(page).get("q") ?? "", /^engine:/);
  }));

  test("join: from an engine, a step and an alert", () => on("dark", () => `/engines?range=15m&live=0&engine=${encodeURIComponent(engine.id)}`, async ({ page }) => {
    await page.locator(".engine-strip a", { hasText: "Requests" }).click();
    await page.waitForURL(/\/requests\?.*q=engine:/);
    await page.goto(`${base}/rollouts`, { waitUntil: "domcontentloaded" });
    await page.locator("a.btn", { hasText: "Requests" }).first().click({ timeout: 60_000 });
    await page.waitForURL(/\/requests\?.*step:/);
    await page.goto(`${base}/alerts`, { waitUntil: "domcontentloaded" });
    await until("rules", async () => (await page.locator('table[aria-label="rules"] tbody tr[data-key]').count()) > 0, 60_000);
    const alert = page.locator('table[aria-label="alerts"] tbody tr[data-key]').first();
    if ((await alert.count()) === 0) return; // nothing fires just now
    await alert.click();
    await page.locator(".details a", { hasText: "Requests in its window" }).click();
    await page.waitForURL(/\/requests\?.*from=/);
  }));
});
