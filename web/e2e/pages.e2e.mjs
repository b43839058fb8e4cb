// Drives the page as a person would, against the server at BASE_URL (the demo), in both themes. Fails on
// any console error, page error, failed answer or request to another origin.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { drag, launch, overflow, unnamed, until } from "./browser.mjs";

const base = (process.env.BASE_URL ?? "").replace(/\/$/, "");
const skip = base ? false : "BASE_URL names no server";
let browser;

before(async () => {
  if (base) browser = await launch();
});
after(() => browser?.close());

/** Runs a test on a page of its own and then asks for its sins. */
async function on(theme, path, run, size) {
  const p = await browser.open(base, size);
  try {
    await p.go(`${path}${path.includes("?") ? "&" : "?"}theme=${theme}`);
    await run(p);
    assert.deepEqual(await unnamed(p.page), [], "controls without a name");
    assert.deepEqual(p.sins, [], "what must not happen");
  } catch (err) {
    await p.shot(`failed-${theme}-${path.replace(/\W+/g, "_")}`).catch(() => {});
    throw err;
  } finally {
    await p.close();
  }
}

const states = (page) => page.locator(".golden .chart").evaluateAll((els) => els.map((e) => e.dataset.state));
const loaded = (page) => until("the golden five", async () => {
  const s = await states(page);
  return s.length === 5 && s.every((x) => x && x !== "loading") && s.includes("value") && s;
}, 60_000);
const rows = (page, label) => page.locator(`table[aria-label="${label}"] tbody tr[data-key]`);

for (const theme of ["dark", "light"]) {
  describe(`in the ${theme} theme`, { skip }, () => {
    test("Overview: the golden five, the engines, the worst named, live", () => on(theme, "/", async ({ page, shot }) => {
      await loaded(page);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
      for (const title of ["Time to first token", "Inter-token latency", "Throughput", "Prefix cache hit rate", "Queue depth"]) {
        const panel = page.locator(`.golden section[aria-label="${title}"]`);
        assert.equal(await panel.count(), 1, title);
        assert.notEqual((await panel.locator(".panel-h .u").innerText()).trim(), "", `${title} has no unit`);
        const label = await panel.locator("[role=img]").first().getAttribute("aria-label");
        assert.match(label, new RegExp(title), "the chart is described");
      }
      await until("engines", async () => (await rows(page, "engines").count()) > 0);
      const worst = page.locator(".golden .worst a").first();
      await worst.waitFor();
      await until("the five below", async () => (await page.locator(".load .chart[data-state=loading]").count()) === 0 && (await page.locator(".load .chart").count()) >= 4);
      assert.ok((await overflow(page)).page <= 0, "the page is wider than the window");
      await page.waitForTimeout(300);
      await shot(`overview-${theme}`);

      let asked = 0;
      page.on("request", (r) => r.url().includes("/overview") && asked++);
      await until("live updates", () => asked >= 2, 40_000);
      await page.keyboard.press("Space");
      await page.locator(".live:not(.on)").waitFor();
      assert.match(page.url(), /live=0/);
      const before = asked;
      await page.waitForTimeout(6500);
      assert.ok(asked <= before + 1, "paused, and still loading");
      await page.keyboard.press("Space");

      await worst.click();
      await page.waitForURL(/\/engines\?.*engine=/);
      await page.locator(".engine-strip").waitFor();
    }));

    test("Overview: hover, zoom by drag and back, range picker, table behind a chart", () => on(theme, "/?range=15m", async ({ page, shot }) => {
      await loaded(page);
      const over = page.locator(".golden .u-over").first();
      // What comes in above may still move the chart from under the pointer.
      await until("the cursor's numbers", async () => {
        const b = await over.boundingBox();
        await page.mouse.move(b.x + b.width * 0.6, b.y + b.height / 2);
        await page.mouse.move(b.x + b.width * 0.62, b.y + b.height / 2);
        return page.locator(".tip").waitFor({ timeout: 2_000 }).then(() => true, () => false);
      });
      const times = await page.locator(".golden .at").allInnerTexts();
      assert.ok(times.every((t) => /\d\d:\d\d/.test(t)), `the cursor is on all charts: ${times}`);
      await shot(`hover-${theme}`);

      await drag(page, over, /from=.*to=/, [0.3, 0.5], [0.5, 0.5], [0.7, 0.5]);
      await loaded(page);
      await over.dblclick();
      await page.waitForURL(/range=15m/);

      await page.click(".range");
      await page.locator(".pop-range").waitFor();
      await page.locator(".pop-range .chip", { hasText: /^30 min$/ }).click();
      await page.waitForURL(/range=30m/);
      await page.goBack();
      await page.waitForURL(/range=15m/);
      await page.click(".range");
      await page.locator('.pick-abs input').first().fill("yesterday-ish");
      assert.equal(await page.locator(".pick-abs button[type=submit]").isDisabled(), true);
      await page.locator('.pick-abs input').first().fill("now-20m");
      await page.locator('.pick-abs input').nth(1).fill("now-1m");
      await page.locator(".pick-abs button[type=submit]").click();
      await page.waitForURL(/from=.*&to=/);

      await page.locator('.golden button[title="show as table"]').first().click();
      await page.locator(".datatable tbody tr").first().waitFor();
      await shot(`table-${theme}`);
    }));

    test("keys: pages, rows, search, the map", () => on(theme, "/", async ({ page, shot }) => {
      await loaded(page);
      await until("engines", async () => (await rows(page, "engines").count()) > 0);
      await page.keyboard.press("?");
      await page.locator(".keymap").waitFor();
      await shot(`keys-${theme}`);
      await page.keyboard.press("Escape");
      await page.locator(".keymap").waitFor({ state: "detached" });

      await page.keyboard.press("j");
      await until("a row in focus", () => page.evaluate(() => document.activeElement?.matches("tr[data-key]")));
      const name = await page.evaluate(() => document.activeElement.querySelector("a").textContent);
      await page.keyboard.press("Enter");
      await page.waitForURL(/engines\?.*engine=/);
      await page.locator(".engine-strip b", { hasText: name }).waitFor();
      await page.keyboard.press("Escape");
      await until("no engine", () => !/engine=/.test(page.url()));

      for (const [keys, path] of [["a", "/alerts"], ["x", "/explore"], ["e", "/engines"], ["o", "/"]]) {
        await page.evaluate(() => document.activeElement?.blur());
        // The second key counts only soon after the first.
        await until(path, async () => {
          await page.keyboard.press("g");
          await page.keyboard.press(keys);
          return page.waitForURL((u) => u.pathname === path, { timeout: 3_000 }).then(() => true, () => false);
        });
      }
      await loaded(page);
      await page.keyboard.press("w");
      await page.waitForURL(/from=/);
      await page.keyboard.press("Escape");
      await until("the way back", () => !/from=/.test(page.url()));

      await page.keyboard.press("/");
      await page.keyboard.type(name);
      await page.locator(".hits li[aria-selected=true]", { hasText: name }).waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL(/engines\?.*engine=/);
    }));

    test("Engines: sort, filter, one engine beside its role, every board", () => on(theme, "/engines", async ({ page, shot }) => {
      await until("engines", async () => (await rows(page, "engines").count()) > 0, 60_000);
      const count = await rows(page, "engines").count();
      await shot(`engines-${theme}`);
      const head = page.locator('table[aria-label="engines"] .th', { hasText: "Engine" }).first();
      await head.click();
      await until("the first by name", async () => (await page.locator('th[aria-sort="ascending"]').count()) === 1);
      await head.click();
      await until("the last by name", async () => (await page.locator('th[aria-sort="descending"]').count()) === 1);
      await page.waitForURL(/sort=-engine/);

      const first = rows(page, "engines").first();
      const name = await first.locator("a").innerText();
      await page.locator(".filter").fill(name);
      await until("fewer rows", async () => (await rows(page, "engines").count()) <= count);
      await page.locator(".filter").fill("nothing is called this zzz");
      await page.getByText("no engine fits the filter").waitFor();
      await page.locator(".filter").fill("");
      await rows(page, "engines").first().locator("td").nth(2).click();
      await page.locator(".engine-strip").waitFor();
      await until("its signals", async () => (await page.locator(".engine-main .chart").count()) >= 5);
      await until("no panel of it loads", async () => (await page.locator(".engine-main .chart").evaluateAll((els) =>
        els.filter((e) => e.dataset.state === "loading" && e.getBoundingClientRect().top < innerHeight).length)) === 0, 60_000);
      await page.waitForTimeout(300);
      await shot(`engine-${theme}`);
      assert.equal(await page.locator(".engine-main .error").count(), 0, "a panel failed");

      // Every board: each panel answers with numbers or with a state, never with an error. In the other
      // theme three of them are enough: the data is the same.
      const boards = (await page.locator(".picker option").evaluateAll((o) => o.map((x) => x.value).filter(Boolean)))
        .filter((_, i) => theme === "dark" || i < 3);
      assert.ok(boards.length >= 3, `${boards.length} boards`);
      const engine = new URL(page.url()).searchParams.get("engine");
      for (const [i, board] of boards.entries()) {
        const scope = i % 4 === 0 ? `&engine=${encodeURIComponent(engine)}` : "";
        await page.goto(`${base}/engines?theme=${theme}&board=${board}${scope}`, { waitUntil: "domcontentloaded" });
        await until(`board ${board}`, async () => (await page.locator(".board .chart").count()) > 0);
        // Panels load when they come into sight: walk down.
        const main = page.locator(".main");
        for (let y = 0; ; y += 600) {
          const end = await main.evaluate((m, top) => { m.scrollTop = top; return top >= m.scrollHeight - m.clientHeight; }, y);
          await until(`panels of ${board} in sight`, async () => (await page.locator(".board .chart").evaluateAll((els) =>
            els.filter((e) => { const b = e.getBoundingClientRect(); return e.dataset.state === "loading" && b.top < innerHeight && b.bottom > 0; }).length)) === 0, 60_000);
          if (end) break;
        }
        const failed = await page.locator(".board .error").allInnerTexts();
        assert.deepEqual(failed, [], `board ${board}`);
        await main.evaluate((m) => (m.scrollTop = 0));
        await shot(`board-${board}-${theme}`);
      }
    }));

    test("Alerts: rules with their health, details, what they read", () => on(theme, "/alerts", async ({ page, shot }) => {
      await until("rules", async () => (await rows(page, "rules").count()) >= 8, 60_000);
      await rows(page, "rules").first().click();
      await page.locator(".details .expr").waitFor();
      await page.waitForURL(/alert=/);
      await page.locator(".details .chart").waitFor();
      await until("the chart of it", async () => (await page.locator(".details .chart[data-state=loading]").count()) === 0);
      await page.waitForTimeout(300);
      await shot(`alerts-${theme}`);
      await page.locator(".details .expr").click();
      await page.locator('.details a[aria-label="open the query in Explore"]').first().click();
      await page.waitForURL(/\/explore\?.*expr=/);
    }));

    test("Explore: completion, chart, table, errors in their place", () => on(theme, "/explore", async ({ page, shot, allow }) => {
      const text = page.locator(".editor-text");
      await text.click();
      await page.keyboard.type("sum by (inst");
      await page.keyboard.press("Escape");
      await text.fill("");
      await page.keyboard.type("u");
      await page.locator(".completions li", { hasText: /^.*\bup$/ }).first().waitFor().catch(() => {});
      await page.keyboard.press("Escape");
      await text.fill("histogram_q");
      await page.keyboard.type("u");
      await page.locator(".completions li[aria-selected=true]", { hasText: "histogram_quantile" }).waitFor();
      await shot(`completion-${theme}`);
      await page.keyboard.press("Tab");
      assert.equal(await text.inputValue(), "histogram_quantile()");
      await page.locator(".details h2", { hasText: "histogram_quantile" }).waitFor();

      await text.fill("up{");
      await page.keyboard.press("Control+Space");
      await page.locator(".completions li", { hasText: "instance" }).waitFor();
      await page.keyboard.press("Escape");

      await text.fill("sum by (job) (up)");
      await page.keyboard.press("Control+Enter");
      await page.waitForURL(/expr=sum/);
      await page.locator(".explore-chart canvas").waitFor();
      await until("series", async () => (await rows(page, "series").count()) > 0);
      await page.waitForTimeout(300);
      await shot(`explore-${theme}`);

      await page.getByRole("radio", { name: "Instant" }).click();
      await until("results", async () => (await rows(page, "results").count()) > 0);
      assert.match(page.url(), /at=instant/);
      await shot(`explore-table-${theme}`);
      await page.goBack();
      await until("the chart again", () => !/at=instant/.test(page.url()));

      allow(/status of 400/);
      await text.fill("sum(up) by by");
      await page.keyboard.press("Control+Enter");
      await page.locator(".query-error").waitFor();
      await until("the underline", async () => (await page.locator(".tok-error").count()) > 0);
      await shot(`explore-error-${theme}`);
      await page.goBack();
      await until("the query before", async () => (await text.inputValue()) === "sum by (job) (up)");
    }));

    test("narrow: nothing is out of reach", () => on(theme, "/", async ({ page, shot }) => {
      await loaded(page);
      assert.ok((await overflow(page)).page <= 0, "the page is wider than the window");
      await page.locator(".nav-foot").click();
      await page.locator(".drawer").waitFor();
      await until("targets", async () => (await page.locator(".drawer .targets li").count()) > 0);
      await shot(`recorder-${theme}`);
      await page.keyboard.press("Escape");
      await page.locator(".drawer").waitFor({ state: "detached" });
      await shot(`narrow-${theme}`);
    }, { width: 1100, height: 800 }));
  });
}
