// Forward passes on the page: 64 ranks at 50 passes a second with losses and a restart, sent by `rollscope sim
// fpm`, received by a real serve, watched in Chromium. ROLLSCOPE is the binary.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, overflow, settled, unnamed, until } from "./browser.mjs";

const binary = process.env.ROLLSCOPE ?? "";
const RANKS = 64;
const dir = mkdtempSync(join(tmpdir(), "rollscope-passes-"));
let browser, sim, serve, base, since;

/** Starts the program and waits until what it says fits. */
function start(args, said) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  const found = new Promise((resolve, reject) => {
    let text = "";
    for (const s of [child.stdout, child.stderr]) s.on("data", (d) => {
      text += d;
      const m = said(text);
      if (m) resolve(m);
    });
    child.once("exit", (code) => reject(new Error(`${args[0]} ended with ${code}: ${text.slice(-2000)}`)));
  });
  return { child, found };
}
const stop = async (p) => {
  if (p && p.child.exitCode === null && p.child.signalCode === null) await new Promise((done) => (p.child.once("exit", done), p.child.kill()));
};

before(async () => {
  if (!binary) return;
  browser = await launch();
  sim = start(["sim", "fpm", "--to", "tcp://127.0.0.1:0", "--ranks", String(RANKS), "--rate", "50", "--drop", "0.001", "--restart", "12s"], (t) => {
    const all = t.match(/tcp:\/\/127\.0\.0\.1:\d+/g) ?? [];
    return all.length >= RANKS && t.endsWith("\n") && all.slice(0, RANKS);
  });
  const addresses = await sim.found;
  serve = start(["serve", "--storage.tsdb.path", join(dir, "data"), "--web.listen-address", "127.0.0.1:0", ...addresses.flatMap((a) => ["--fpm", a])], (t) => /http:\/\/127\.0\.0\.1:\d+/.exec(t)?.[0]);
  base = await serve.found;
  since = Date.now();
});
after(async () => {
  await browser?.close();
  await stop(sim);
  await stop(serve);
  rmSync(dir, { recursive: true, force: true });
});

async function on(path, run, size = { width: 1440, height: 900 }) {
  const p = await browser.open(base, size);
  try {
    p.allow(/willReadFrequently/); // reading pixels is what the test does, not the page
    await p.go(path);
    await run(p);
    assert.deepEqual(await unnamed(p.page), [], "controls without a name");
    assert.deepEqual(p.sins, [], "what must not happen");
  } catch (err) {
    await p.shot(`failed-passes-${path.replace(/\W+/g, "_")}`).catch(() => {});
    throw err;
  } finally {
    await p.close();
  }
}

const counts = (page) => page.locator(".pass-counts").evaluate((e) => ({ ...e.dataset, text: e.textContent }));
const full = (page) => until("passes of all ranks", async () => {
  const c = await counts(page);
  return Number(c.ranks) === RANKS && Number(c.passes) > RANKS * 50 && c;
}, 60_000);

/** How many pixels of the strip have a token's colour, by token. */
const inks = (page, tokens) => page.evaluate((names) => {
  const c = document.querySelector(".pass-draw");
  const { data, width, height } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
  const style = getComputedStyle(document.documentElement), out = { coloured: 0 };
  // Bars that fill part of a column are mixed with the ground: whatever has a hue is counted too.
  for (let i = 0; i < data.length; i += 4) if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 50) out.coloured++;
  for (const n of names) {
    const [r, g, b] = style.getPropertyValue(n).trim().slice(1).match(/../g).map((h) => parseInt(h, 16));
    out[n] = 0;
    for (let i = 0; i < data.length; i += 4) if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12) out[n]++;
  }
  return { ...out, width, height };
}, tokens);

/** A number that is another when the picture of the plot is. */
const picture = (page) => page.evaluate(() => {
  const c = document.querySelector(".pass-draw");
  const { data } = c.getContext("2d").getImageData(Math.ceil(140 * devicePixelRatio), Math.ceil(20 * devicePixelRatio), c.width - 400, c.height - 40);
  let h = 0;
  for (let i = 0; i < data.length; i += 4) h = (h * 31 + data[i] + 3 * data[i + 1] + 7 * data[i + 2]) | 0;
  return h;
});

describe("forward passes", { skip: binary ? false : "ROLLSCOPE names no binary" }, () => {
  for (const theme of ["dark", "light"]) {
    test(`64 ranks at 50 passes/s: all rows, gaps and restarts marked, nothing overflows (${theme})`, () => on(`/engines?theme=${theme}&span=20s`, async ({ page, shot }) => {
      // The way in is a button of the Engines page, and a key.
      await page.locator(".engines-switch button", { hasText: "Forward passes" }).waitFor();
      await page.keyboard.press("p");
      await page.waitForURL(/view=passes/);
      await full(page);
      assert.equal(await page.locator(".pass-draw").getAttribute("data-rows"), String(RANKS), "rows on the screen");
      // Every 12 s each rank begins anew: a window of 20 s always has one.
      const c = await until("a gap and a restart", async () => {
        const n = await counts(page);
        return Number(n.gaps) > 0 && Number(n.restarts) >= RANKS && n;
      }, 60_000);
      assert.match(c.text, /messages? missing in \d+ gaps?/);
      // What is counted a moment ago may not be drawn yet, or stand at the very edge: the picture is looked at until it has all.
      let px;
      await until("bars, gaps and restarts in the picture", async () => {
        const gaps = Number((await counts(page)).gaps);
        px = await inks(page, ["--ph-d-forward", "--ph-p-forward", "--unknown", "--warn-fill"]);
        return px["--ph-d-forward"] > 100 && px["--ph-p-forward"] > 100 && px.coloured > RANKS * 500
          && gaps > 0 && px["--unknown"] >= gaps / 2 && px["--warn-fill"] >= RANKS * 4;
      }, 60_000).catch((err) => assert.fail(`${err.message}: ${JSON.stringify(px)}`));
      for (const word of ["prefill", "decode", "both in one", "heartbeat: idle", "messages missing", "engine began anew", "silent: unknown"]) {
        assert.equal(await page.locator(".pass-legend span", { hasText: word }).count(), 1, `legend: ${word}`);
      }
      assert.ok((await overflow(page)).page <= 0, "the page is wider than the window");
      await shot(`passes-${theme}`);
      await page.setViewportSize({ width: 1024, height: 700 });
      await until("all rows in the smaller window", async () => (await page.locator(".pass-draw").getAttribute("data-rows")) === String(RANKS));
      assert.ok((await overflow(page)).page <= 0, "the page is wider than the small window");
      await shot(`passes-narrow-${theme}`);
    }));
  }

  test("it moves with time, stands still when paused, and the keys move it", () => on("/engines?view=passes", async ({ page }) => {
    await full(page);
    const a = await picture(page);
    await until("another picture", async () => (await picture(page)) !== a);
    const panel = page.locator(".pass-strip");
    const box = await panel.boundingBox();

    await page.keyboard.press("Space");
    await page.waitForURL(/at=/);
    await page.locator(".pass-strip button", { hasText: /^Follow / }).waitFor();
    const still = await settled("the picture at rest", () => picture(page)); // passes of before may still come
    await page.waitForTimeout(1200);
    assert.equal(await picture(page), still, "paused, and still moving");

    const span = () => new URL(page.url()).searchParams.get("span");
    await page.keyboard.press("s");
    await until("a longer time", () => span() === "15s");
    await page.keyboard.press("w");
    await page.keyboard.press("w");
    await until("a shorter time", () => span() === "5s");
    const at = () => Date.parse(new URL(page.url()).searchParams.get("at"));
    const before = at();
    await page.keyboard.press("a");
    await until("an earlier window", () => at() < before);
    await page.keyboard.press("d");
    await until("the window again", () => Math.abs(at() - before) < 50);
    await page.keyboard.press("f");
    await until("it follows", async () => !/[?&]at=/.test(page.url()) && (await page.locator(".pass-strip button", { hasText: "Follows" }).count()) === 1);

    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await until("the second row is chosen", async () => /rank 1 working/.test(await page.locator(".pass-foot").innerText()));
    assert.match(await page.locator(".pass-strip [aria-live]").textContent(), /rank 1, working/);
    await page.keyboard.press("k");
    await until("the first row is chosen", async () => /rank 0 working/.test(await page.locator(".pass-foot").innerText()));
    await page.keyboard.press("Enter");
    await page.waitForURL(/worker=/);
    await page.keyboard.press("Enter");
    await until("all workers", () => !/worker=/.test(page.url()));
    const after = await panel.boundingBox();
    assert.deepEqual([after.x, after.y, after.height], [box.x, box.y, box.height], "the layout jumped");
    await page.keyboard.press("Escape");
    await page.keyboard.press("p");
    await until("the fleet", () => !/view=passes/.test(page.url()));
  }));

  test("a pass under the pointer, and pinned", () => on("/engines?view=passes&span=5s", async ({ page, shot }) => {
    await full(page).catch(() => {}); // a short time may hold less
    await page.keyboard.press("Space");
    await page.waitForURL(/at=/);
    const box = await page.locator(".pass-canvas").boundingBox();
    await until("a pass under the pointer", async () => {
      await page.mouse.move(box.x + 140 + Math.random() * (box.width - 200), box.y + box.height / 2);
      return /KV tokens|new tokens/.test(await page.locator(".pass-tip").innerText());
    });
    assert.match(await page.locator(".pass-tip").innerText(), /queued/);
    await shot("passes-tip");
    await page.mouse.down();
    await page.mouse.up();
    await page.locator(".pass-pinned").waitFor();
    assert.match(await page.locator(".pass-pinned").innerText(), /rank \d+ \d\d:\d\d:\d\d\.\d{3} · .* ms/);
    await page.keyboard.press("Escape");
    await page.locator(".pass-pinned").waitFor({ state: "detached" });
  }));

  test("the past comes out of the store when memory does not reach it", () => on("/engines?view=passes&span=5s", async ({ page }) => {
    await until("a past", async () => Date.now() - since > 45_000 && Number((await counts(page)).passes) > 1000, 90_000);
    const asked = [];
    page.on("request", (r) => r.url().includes("/passes/rows") && asked.push(r.url()));
    await page.keyboard.press("Space");
    for (let i = 0; i < 24; i++) await page.keyboard.press("a"); // half a minute back
    await until("stored rows", () => asked.length > 0);
    await until("passes of then", async () => Number((await counts(page)).passes) > 1000, 60_000);
    assert.equal(await page.locator(".pass-strip .st", { hasText: "stored passes" }).count(), 0, "an error");
    await page.keyboard.press("f");
    await until("now again", async () => !/[?&]at=/.test(page.url()) && Number((await counts(page)).passes) > 1000);
  }));

  test("iteration time has the planner's line; what is chosen is said", () => on("/engines?view=passes", async ({ page }) => {
    const panel = page.locator(".pass-cloud");
    await until("a fitted line", async () => (await panel.getAttribute("data-fit")) === "fitted" && Number(await panel.getAttribute("data-lines")) >= 1, 90_000);
    assert.match(await panel.locator(".cloud-fit").innerText(), /[\d.]+ ms \+ [\d.]+ ms × .*R² [\d.]+/);
    assert.match(await panel.locator(".cloud-fit").innerText(), /at the median/);
    assert.match(await panel.locator("canvas").getAttribute("aria-label"), /with the fitted line/);
    await panel.locator("select").selectOption("sum_decode_kv_tokens");
    await page.waitForURL(/x=sum_decode_kv_tokens/);
    await until("the line over it", async () => Number(await panel.getAttribute("data-lines")) >= 1);
    const box = await panel.locator("canvas").boundingBox();
    await until("a point under the pointer", async () => {
      await page.mouse.move(box.x + box.width * (0.2 + 0.6 * Math.random()), box.y + box.height * (0.2 + 0.6 * Math.random()));
      return /wall time/.test(await panel.locator(".tip").innerText({ timeout: 200 }));
    });
  }));

  test("capacity answers what is asked, and says what it does not know", () => on("/engines?view=passes", async ({ page, shot }) => {
    const panel = page.locator(".pass-capacity");
    await until("an answer", async () => ["unknown", "value"].includes(await panel.getAttribute("data-state")));
    // Nothing tells how long requests are: no number is made up.
    await panel.getByText("unknown", { exact: true }).first().waitFor();
    await page.locator(".pass-cloud[data-fit=fitted]").waitFor({ timeout: 90_000 });
    await panel.getByLabel("ISL").fill("3000");
    // What is half typed survives the page's own updates.
    const asked = page.waitForResponse((r) => r.url().includes("/passes/capacity"));
    await asked;
    await page.waitForTimeout(300);
    assert.equal(await panel.getByLabel("ISL").inputValue(), "3000");
    await panel.getByLabel("ISL").press("Enter");
    await panel.getByLabel("OSL").fill("150");
    await panel.getByLabel("OSL").press("Enter");
    await until("a number", async () => (await panel.getAttribute("data-state")) === "value", 60_000);
    assert.match(page.url(), /isl=3000&osl=150/);
    assert.match(await panel.innerText(), /At TTFT 500 ms and ITL 50 ms this fleet carries\s+[\d,.]+ req\/s/);
    assert.match(await panel.innerText(), /limited by/);
    const loose = await panel.locator(".cap-value .v").innerText();
    await panel.getByLabel("ITL").fill("7");
    await panel.getByLabel("ITL").press("Enter");
    await until("less within a tighter promise", async () => (await panel.locator(".cap-value .v").innerText()) !== loose);
    await panel.getByLabel("Demand").fill("x");
    await panel.getByLabel("Demand").press("Enter");
    assert.equal(await panel.getByLabel("Demand").getAttribute("aria-invalid"), "true");
    await panel.locator("button", { hasText: "reset" }).click();
    await until("as measured", () => !/isl=/.test(page.url()));
    const advice = page.locator(".pass-advice");
    await advice.getByText("Load loop").waitFor();
    await advice.locator("summary").first().click();
    await until("what the loop saw", async () => (await advice.locator("tbody tr").count()) >= RANKS);
    await shot("passes-capacity");
  }));

  test("ranks, queues, sources; a burst is recorded", () => on("/engines?view=passes", async ({ page }) => {
    await until("a row a rank", async () => (await page.locator('table[aria-label="ranks"] tbody tr[data-key]').count()) === RANKS);
    await until("losses are counted", async () => (await page.locator('table[aria-label="ranks"] .pass-gaps').count()) > 0, 60_000);
    await until("restarts are counted", async () => (await page.locator('table[aria-label="ranks"] .pass-restarts').count()) > 0, 60_000);
    await until("a busy share with losses, which is at least so much", async () => /≥ \d/.test(await page.locator('table[aria-label="ranks"]').innerText()), 60_000);
    assert.equal(await page.locator(".pass-queues tbody tr[data-key]").count(), 1);
    assert.match(await page.locator(".q-detail").innerText(), /queue/);
    assert.equal(await page.locator(".source-list li").count(), RANKS);
    await page.locator(".pass-bursts button", { hasText: "± 10s" }).click();
    await page.locator(".pass-bursts button", { hasText: "Record" }).click();
    await page.locator(".burst-said", { hasText: "is kept" }).waitFor();
    await page.locator(".burst-list li a").first().waitFor();
  }));

  test("engines that end are silent, not idle; a server that ends leaves the last picture", async () => {
    const p = await browser.open(base, { width: 1440, height: 900 });
    try {
      const { page } = p;
      p.allow(/./);
      await p.go("/engines?view=passes&span=20s");
      await full(page);
      await stop(sim);
      await until("all ranks are silent", async () => /64 silent/.test((await counts(page)).text), 90_000);
      await until("hatched from the last message on", async () => (await inks(page, ["--ph-wait"]))["--ph-wait"] > 500);
      await until("a row of each that says so", async () => (await page.locator('table[aria-label="ranks"] .st-unknown').count()) === RANKS);
      assert.equal(await page.locator('table[aria-label="ranks"] .st-idle').count(), 0);
      await p.shot("passes-silent");
      await stop(serve);
      await page.locator(".pass-strip .st", { hasText: "no answer since" }).waitFor();
      const still = await settled("the picture at rest", () => picture(page));
      await page.waitForTimeout(1000);
      assert.equal(await picture(page), still, "the last picture stays");
      assert.equal((await counts(page)).ranks, String(RANKS));
    } finally {
      await p.close();
    }
  });
});
