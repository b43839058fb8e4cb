// What a demo does not show: an archive, nothing at all, a server that fails, labels that would like to be
// HTML. Against the fixture server of web/dev, with the page as it was built.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { launch, until } from "./browser.mjs";

const dist = process.env.ROLLSCOPE_WEB_OUT ?? new URL("../../internal/web/dist", import.meta.url).pathname;
const skip = existsSync(`${dist}/index.html`) ? false : "the page is not built: npm run build";
let browser;
const children = [];

async function serve(fixture, port = 0) {
  const child = spawn(process.execPath, [new URL("../dev/server.mjs", import.meta.url).pathname], {
    env: { ...process.env, FIXTURE: fixture, PORT: String(port), NO_BUILD: "1", ROLLSCOPE_WEB_OUT: dist }, stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  return new Promise((resolve, reject) => {
    let said = "";
    child.stdout.on("data", (d) => {
      const m = /(http:\S+)\n/.exec((said += d));
      if (m) resolve(m[1]);
    });
    child.once("exit", (code) => reject(new Error(`the fixture server ended with ${code}`)));
  });
}

before(async () => {
  if (!skip) browser = await launch();
});
after(async () => {
  await browser?.close();
  for (const c of children) c.kill();
});

async function on(base, path, run, size) {
  const p = await browser.open(base, size);
  try {
    await p.go(path);
    await run(p);
    assert.deepEqual(p.sins, [], "what must not happen");
  } finally {
    await p.close();
  }
}

describe("fixtures", { skip }, () => {
  test("an archive opens on its own time, says so, and shows where it paused", async () => {
    const base = await serve("archive");
    await on(base, "/", async ({ page, shot }) => {
      await page.locator(".banner", { hasText: "Archived run" }).waitFor();
      await page.locator(".range", { hasText: "all data" }).waitFor();
      await until("charts", async () => (await page.locator(".golden .chart[data-state=value]").count()) === 5);
      assert.equal(await page.locator(".live").count(), 0);
      await page.waitForLoadState("networkidle");
      let asked = 0;
      page.on("request", (r) => r.url().includes("/overview") && asked++);
      await page.waitForTimeout(6000);
      assert.equal(asked, 0, "an archive does not change");
      await shot("archive");
      await page.click(".range");
      await page.locator(".pop-range .chip", { hasText: /^1 h$/ }).click();
      await page.waitForURL(/from=/);
      await page.keyboard.press("f");
      await page.waitForURL(/range=data/);
    });
  });

  test("with nothing recorded the page says what makes something appear", async () => {
    const base = await serve("empty");
    await on(base, "/", async ({ page, shot }) => {
      await page.getByText("rollscope serve --scrape HOST:30000").first().waitFor();
      await shot("empty");
    });
  });

  test("a failing server is named, with since when and what to do; the frame stays", async () => {
    const base = await serve("down");
    await on(base, "/", async ({ page, allow, shot }) => {
      allow(/status of 503/);
      await page.locator(".golden .error", { hasText: "the query took longer than 2 min" }).first().waitFor();
      assert.match(await page.locator(".golden .error").first().innerText(), /since \d\d:\d\d[\s\S]*Do/);
      assert.equal(await page.locator(".golden h2").count(), 5);
      await shot("down");
    });
  });

  test("when the server goes away the last data stays, marked with its age, and comes back", async () => {
    const base = await serve("live");
    const child = children.at(-1);
    await on(base, "/?every=1", async ({ page, allow }) => {
      await until("charts", async () => (await page.locator(".golden .chart[data-state=value]").count()) === 5);
      allow(/net::ERR_/); // which of them depends on what was under way
      child.kill();
      await page.locator(".golden .stale", { hasText: /old: the server does not answer/ }).first().waitFor();
      await page.locator(".stale-live").waitFor();
      assert.equal(await page.locator(".golden .chart[data-state=value]").count(), 5, "the data stays");
      await serve("live", new URL(base).port);
      await page.locator(".live.on").waitFor();
      await until("fresh data", async () => (await page.locator(".golden .stale").count()) === 0);
    });
  });

  test("labels that would like to be HTML are text", async () => {
    const base = await serve("live");
    const evil = 'id=x"><img src=x onerror=document.title="pwned">';
    await on(base, "/explore?expr=sglang:running&at=instant&show=table", async ({ page }) => {
      await page.locator("td", { hasText: "<img src=x onerror" }).first().waitFor();
      await page.goto(`${base}/engines?engine=${encodeURIComponent("slime-sglang/10.0.1.13:30000")}&q=${encodeURIComponent(evil)}`);
      await page.locator(".details dd", { hasText: "<img src=x" }).first().waitFor();
      await page.goto(`${base}/explore?expr=${encodeURIComponent(evil)}`);
      await page.locator(".query-error").waitFor();
      assert.equal(await page.locator("img").count(), 0);
      assert.doesNotMatch(await page.title(), /^pwned/);
    });
  });

  test("300 engines: only the rows in sight are in the document, and keys reach the last", async () => {
    const base = await serve("big");
    await on(base, "/engines", async ({ page }) => {
      const rows = page.locator('table[aria-label="engines"] tbody tr[data-key]');
      await until("engines", async () => (await rows.count()) > 20);
      assert.ok((await rows.count()) < 120, "too many rows in the document");
      assert.equal(await page.locator('table[aria-label="engines"]').getAttribute("aria-rowcount"), "300");
      await page.keyboard.press("k");
      await until("the last row", () => page.evaluate(() => document.activeElement?.getAttribute("aria-rowindex") === "300"));
    });
  });

  test("a key is heard as soon as a page can be seen", async () => {
    const base = await serve("live");
    await on(base, "/", async ({ page }) => {
      await until("charts", async () => (await page.locator(".golden .chart[data-state=value]").count()) === 5);
      // In the very moment in which the other page stands in the document: sooner than any person, as soon as a program.
      const heard = await page.evaluate(() => new Promise((done) => {
        new MutationObserver((_, o) => {
          if (document.querySelector("h1")?.textContent !== "Alerts") return;
          o.disconnect();
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
          done(document.activeElement?.getAttribute("aria-label"));
        }).observe(document.body, { childList: true, subtree: true, characterData: true });
        document.querySelector("nav a[href^='/alerts']").click();
      }));
      assert.equal(heard, "search");
    });
  });

  test("reduced motion, forced colours and 200 % keep everything", async () => {
    const base = await serve("live");
    await on(base, "/", async ({ page, shot }) => {
      await page.emulateMedia({ reducedMotion: "reduce", forcedColors: "active" });
      await until("charts", async () => (await page.locator(".golden .chart[data-state=value]").count()) === 5);
      await shot("forced-colors");
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "wider than the window");
    }, { width: 800, height: 500 });
  });

  // What is kept of one rendering keeps all after it: that was 2 MB in these 20 s, while no alert was there.
  test("an overview that stays open lets go of what it drew", async () => {
    const base = await serve("live");
    await on(base, "/", async ({ page }) => {
      await page.route("**/api/rollscope/v1/overview*", async (route) => {
        const answer = await (await route.fetch()).json();
        await route.fulfill({ json: { ...answer, data: { ...answer.data, alerts: [] } } });
      });
      await page.reload();
      await page.getByText("nothing fires and nothing is pending").waitFor();
      await page.locator(".golden .chart[data-state=value]").first().waitFor();
      const cdp = await page.context().newCDPSession(page);
      const held = async () => {
        await cdp.send("HeapProfiler.collectGarbage");
        return (await cdp.send("Runtime.getHeapUsage")).usedSize;
      };
      await page.waitForTimeout(5000); // what is made once is made
      const before = await held();
      await page.waitForTimeout(20_000);
      const grown = (await held()) - before;
      assert.ok(grown < 1e6, `it holds ${(grown / 1e6).toFixed(2)} MB more after 20 s`);
    });
  });
});
