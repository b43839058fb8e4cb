// The Rollouts page as a person uses it: on the demo, on a directory that `view` shows, on one that `serve`
// watches while dumps are born in it, on the archive it leaves, and on invented runs of web/dev.
// BASE_URL is the demo, ROLLSCOPE the binary; what is missing is skipped with its reason.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { HOSTILE } from "../dev/rollouts.mjs";
import { launch, overflow, unnamed, until } from "./browser.mjs";

const demo = (process.env.BASE_URL ?? "").replace(/\/$/, "");
const binary = process.env.ROLLSCOPE ?? "";
const dist = process.env.ROLLSCOPE_WEB_OUT ?? new URL("../../internal/web/dist", import.meta.url).pathname;
const noDemo = demo ? false : "BASE_URL names no server";
const noBinary = binary ? false : "ROLLSCOPE names no binary";
const noDist = existsSync(`${dist}/index.html`) ? false : "the page is not built: npm run build";
const dir = mkdtempSync(join(tmpdir(), "rollscope-rollouts-"));
const children = [];
let browser;

before(async () => {
  browser = await launch();
  if (binary) {
    execFileSync(binary, ["sim", "rollouts", join(dir, "made"), "--steps", "4", "--samples", "48", "--eval-every", "2", "--pd", "--multi-turn", "0.3", "--seed", "4"]);
    execFileSync(binary, ["sim", "rollouts", join(dir, "again"), "--steps", "2", "--samples", "40", "--seed", "9"]);
  }
});
after(async () => {
  await browser?.close();
  await Promise.all(children.map((c) => new Promise((done) => (c.exitCode !== null || c.signalCode !== null ? done() : (c.once("exit", done), c.kill())))));
  rmSync(dir, { recursive: true, force: true });
});

/** Starts something that serves, and waits until it says where. */
function start(command, args, env = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  return new Promise((resolve, reject) => {
    let said = "";
    const hear = (d) => {
      said += d;
      const m = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
      if (m) resolve({ base: m[0], child });
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.once("exit", (code) => reject(new Error(`${command} ${args.join(" ")} ended with ${code}: ${said}`)));
  });
}

async function on(base, path, run, size) {
  const p = await browser.open(base, size);
  try {
    await p.go(path);
    await run(p);
    assert.deepEqual(await unnamed(p.page), [], "controls without a name");
    assert.deepEqual(p.sins, [], "what must not happen");
  } catch (err) {
    await p.shot(`failed-rollouts-${path.replace(/\W+/g, "_").slice(0, 60)}`).catch(() => {});
    throw err;
  } finally {
    await p.close();
  }
}

const api = async (base, path) => (await (await fetch(`${base}/api/rollscope/v1${path}`)).json()).data;
const param = (page, key) => new URL(page.url()).searchParams.get(key);
const chart = (page) => page.locator(".steps-chart canvas");
const summary = (page) => page.locator(".step-summary");
const step = (page, id) => page.locator(`.step-summary[aria-label="step ${id}"]`);
const timeline = (page) => until("the timeline", async () => Number(await page.locator(".tl-canvas").first().getAttribute("data-rows")) > 0);

/** Where the bar of a step is, among steps from min to max. */
async function bar(page, id, min, max) {
  const box = await chart(page).boundingBox();
  const plot = box.width - 84;
  return { x: 44 + (id - min + 0.5) * Math.min(44, plot / (max - min + 1)), y: box.height * 0.6 };
}

const fact = (page, name) => summary(page).locator(".facts2 > div").filter({ has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd").innerText();

for (const theme of ["dark", "light"]) {
  describe(`the demo in the ${theme} theme`, { skip: noDemo }, () => {
    test("numbers are the API's, parts add up, a held sample, its texts, files", async () => {
      const steps = (await api(demo, "/rollouts/demo-grpo/steps?kind=train")).steps;
      const id = steps.at(-2).id;
      const d = await api(demo, `/rollouts/demo-grpo/steps/train/${id}`);
      await on(demo, `/rollouts?step=${id}&theme=${theme}`, async ({ page, shot }) => {
        await step(page, id).waitFor();
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
        assert.equal(await fact(page, "samples"), String(d.step.samples));
        assert.equal(await fact(page, "requests"), String(d.step.requests));
        assert.equal(await fact(page, "reward mean"), d.step.reward.value.toFixed(3));
        const wall = d.step.wall_seconds.value;
        assert.ok(Math.abs(parseFloat(await fact(page, "wall time")) - wall) <= wall / 100, await fact(page, "wall time"));
        assert.equal(await summary(page).locator(".facts2 dd").evaluateAll((els) => els.filter((e) => e.scrollWidth > e.clientWidth).length), 0, "a value is cut");

        const sum = /add up to ([\d.,]+) of ([\d.,]+) s \(([\d.]+) %\)/.exec(await page.locator(".where [data-role=sum]").innerText());
        assert.ok(sum, "sum, total and percentage stand there");
        const parts = (await page.locator(".stack-leg b").allInnerTexts()).map((t) => parseFloat(t.replace(/,/g, "")));
        const shown = parts.reduce((a, b) => a + b, 0);
        assert.ok(Math.abs(shown - parseFloat(sum[2].replace(/,/g, ""))) <= 0.01 * wall + 0.06 * parts.length, `${shown} of ${sum[2]}`);
        assert.ok(Math.abs(parseFloat(sum[3]) - 100) <= 1, sum[0]);

        await timeline(page);
        await page.waitForTimeout(400);
        await shot(`rollouts-${theme}`);
        const held = page.locator(".held a").first();
        const name = await held.innerText();
        await held.click();
        await page.locator("[role=tab][aria-selected=true]", { hasText: `Sample ${name}` }).waitFor();
        assert.match(param(page, "t"), /row=\d+/);
        const panel = page.locator(".tl-panel");
        await panel.getByRole("button", { name: "Show", exact: true }).click();
        await panel.locator(".tl-text").first().waitFor();
        assert.equal(await panel.locator(".tl-text").count(), 2, "prompt and response");
        await page.waitForTimeout(300);
        await shot(`rollouts-sample-${theme}`);
        if (theme === "light") return;
        for (const [item, ending, magic] of [["PNG of the view", ".png", "\x89PNG"], ["Perfetto JSON of the range", ".perfetto.json", "{"]]) {
          await page.getByRole("button", { name: "Export" }).click();
          const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: item }).click()]);
          assert.ok(file.suggestedFilename().endsWith(ending), file.suggestedFilename());
          const bytes = readFileSync(await file.path());
          assert.equal(bytes.subarray(0, magic.length).toString("latin1"), magic);
          if (magic === "{") assert.ok(JSON.parse(bytes.toString()).traceEvents.length > 10);
        }
      });
    });
  });
}

describe("the demo", { skip: noDemo }, () => {
  test("steps: hover, click, shift-click, keys, metric of the trainer, axes, table; the address holds it", async () => {
    const steps = (await api(demo, "/rollouts/demo-grpo/steps?kind=train&metrics=train/loss")).steps;
    const [min, max] = [steps[0].id, steps.at(-1).id];
    await on(demo, "/rollouts?live=0&theme=dark", async ({ page, shot }) => {
      await until("steps", async () => /wall time of \d+ steps, from .* to /.test(await chart(page).getAttribute("aria-label")));
      const last = Number(/of (\d+) steps/.exec(await chart(page).getAttribute("aria-label"))[1]) - 1 + min;
      await chart(page).hover({ position: await bar(page, 2, min, last) });
      const tip = page.locator(".steps-chart .tip");
      await tip.waitFor();
      assert.match(await tip.innerText(), /train step 2[\s\S]*wall time[\s\S]*mean reward[\s\S]*UTC/);

      await chart(page).click({ position: await bar(page, 3, min, last) });
      await step(page, 3).waitFor();
      assert.equal(param(page, "step"), "3");
      await page.keyboard.press("]");
      await step(page, 4).waitFor();
      await page.keyboard.press("[");
      await page.keyboard.press("[");
      await step(page, 2).waitFor();
      await page.keyboard.press("c");
      await page.locator(".comparison h2", { hasText: "Step 2 compared with 1" }).waitFor();
      await page.keyboard.press("c");
      await page.locator(".comparison").waitFor({ state: "detached" });
      await chart(page).click({ position: await bar(page, 3, min, last), modifiers: ["Shift"] });
      await page.locator(".comparison h2", { hasText: "Step 2 compared with 3" }).waitFor();
      assert.equal(param(page, "vs"), "3");
      assert.equal(await page.locator(".stack-row").count(), 2, "where the time of both went");
      await until("two timelines", async () => (await page.locator(".tl-canvas").count()) === 2);

      const cells = page.locator('table[aria-label="compared metrics"] tbody tr[data-key]');
      const changes = async () => (await cells.locator("td:nth-child(5)").allInnerTexts()).map((t) => Math.abs(parseFloat(t.replace(/,/g, "").replace("−", "-")))).filter((n) => !Number.isNaN(n));
      const down = await changes();
      assert.deepEqual(down, [...down].sort((a, b) => b - a), "largest change first");
      await page.locator('table[aria-label="compared metrics"] .th', { hasText: "metric" }).click();
      const keys = await cells.locator("td:first-child").allInnerTexts();
      assert.ok(keys[0].localeCompare(keys.at(-1), "en") <= 0, "sorted by name");
      await page.locator(".comparison .filter").fill("response_len/mean");
      await until("one row", async () => (await cells.count()) === 1);
      await cells.locator("button").click();
      await until("it is drawn", async () => /^rollout\/response_len\/mean of/.test(await chart(page).getAttribute("aria-label")));

      await page.getByLabel("metric", { exact: true }).selectOption("train/loss");
      await until("the trainer's loss", async () => /^train\/loss of .* from .* to /.test(await chart(page).getAttribute("aria-label")));
      await page.getByRole("button", { name: "time", exact: true }).click();
      assert.equal(param(page, "x"), "time");

      await page.locator(".tl-bar [data-control=sort]").selectOption("reward");
      await until("the timeline's view is in the address", () => /sort=reward/.test(param(page, "t") ?? ""));
      const address = page.url();
      await page.reload({ waitUntil: "domcontentloaded" });
      await page.locator(".comparison h2", { hasText: "Step 2 compared with 3" }).waitFor();
      await until("the metric again", async () => /^train\/loss of/.test(await chart(page).getAttribute("aria-label")));
      await until("the order again", async () => (await page.locator(".tl-bar [data-control=sort]").inputValue()) === "reward");
      assert.equal(page.url(), address);
      assert.equal(await page.getByRole("button", { name: "time", exact: true }).getAttribute("aria-pressed"), "true");
      await shot("rollouts-compare");
      await page.goBack();
      await until("the metric before", () => param(page, "metric") === "rollout/response_len/mean");

      await page.locator(".steps").getByRole("button", { name: "table", exact: true }).click();
      const rows = page.locator('table[aria-label="steps"] tbody tr[data-key]');
      const shown = Number(/(\d+) steps/.exec(await page.locator(".steps .panel-h > .u").innerText())[1]); // some were born since
      await until("the same as rows", async () => (await rows.count()) === shown);
      await rows.locator("td:first-child a", { hasText: /^1$/ }).click();
      await step(page, 1).waitFor();

      await page.locator(".steps").getByRole("button", { name: "table", exact: true }).click();

      await page.getByRole("button", { name: /Metrics/ }).click();
      const metrics = page.locator('table[aria-label="metrics"] tbody tr[data-key]');
      const all = await metrics.count();
      await page.getByLabel("filter metrics").fill("reward/mean");
      await until("fewer", async () => (await metrics.count()) > 0 && (await metrics.count()) < all);
      await page.getByLabel("filter metrics").fill("zzz");
      await page.getByText("nothing fits the filter").waitFor();

      await page.getByLabel("kind of step").selectOption("eval");
      await page.waitForURL(/kind=eval/);
      await until("evaluations", async () => /of \d+ steps/.test(await chart(page).getAttribute("aria-label").catch(() => "")));
      const evals = (await api(demo, "/rollouts/demo-grpo/steps?kind=eval")).steps;
      await step(page, evals.at(-1).id).waitFor();
      const options = await page.getByLabel("metric", { exact: true }).locator("option").allInnerTexts();
      assert.ok(options.some((o) => o.startsWith("eval/")) && !options.some((o) => o.startsWith("train/")), "an evaluation's own curves");
    });
    assert.ok(steps.length >= 5 && steps.some((s) => s.values["train/loss"].value !== null) && max > min);
  });

  test("from a reward dip to a sample's timeline in three clicks", async () => {
    const steps = (await api(demo, "/rollouts/demo-grpo/steps?kind=train")).steps;
    await on(demo, "/rollouts?live=0&theme=dark", async ({ page, shot }) => {
      await until("steps", async () => /of \d+ steps/.test(await chart(page).getAttribute("aria-label")));
      const n = Number(/of (\d+) steps/.exec(await chart(page).getAttribute("aria-label"))[1]);
      const dip = steps.slice(0, n).reduce((a, s) => ((s.reward.value ?? 9) < (a.reward.value ?? 9) ? s : a));
      await chart(page).click({ position: await bar(page, dip.id, steps[0].id, steps[n - 1].id) }); // 1
      await step(page, dip.id).waitFor();
      await summary(page).getByTitle("samples with the lowest reward first").click(); // 2
      await timeline(page);
      await until("lowest first", async () => (await page.locator(".tl-bar [data-control=sort]").inputValue()) === "reward");
      await page.waitForTimeout(500);
      await page.locator(".tl-canvas").click({ position: { x: 118, y: 118 + 5 } }); // 3
      const [, row] = await until("the sample in the address", () => /row=(\d+)/.exec(param(page, "t") ?? ""));
      await page.locator("[role=tab][aria-selected=true]", { hasText: /Sample #\d+/ }).waitFor();
      const d = await api(demo, `/timelines/${encodeURIComponent(dip.timeline)}/rows/${row}`);
      assert.ok(d, "there is such a row");
      await shot("rollouts-dip");
    });
  });
});

describe("a directory of dumps", { skip: noBinary }, () => {
  test("view: only this page, the cut dump with its reason, texts; narrow and at 200 %", async () => {
    const cut = join(dir, "made", "rollout_7.pt");
    writeFileSync(cut, readFileSync(join(dir, "made", "rollout_3.pt")).subarray(0, 50_000));
    const { base, child } = await start(binary, ["view", join(dir, "made"), "--out", join(dir, "out"), "--listen", "127.0.0.1:0"]);
    await on(base, "/rollouts?theme=light", async ({ page, shot }) => {
      await until("the steps", async () => /of 4 steps/.test(await chart(page).getAttribute("aria-label")));
      assert.equal(await page.locator(".live").count(), 0);
      assert.equal(await page.locator("nav a[href^='/engines'], nav a[href^='/alerts']").count(), 0, "there is nothing but rollouts");
      const file = page.getByRole("list", { name: "dumps that are not in the index" }).locator("li");
      assert.match(await file.innerText(), /failed[\s\S]*rollout_7\.pt[\s\S]*incomplete/);
      assert.doesNotMatch(await file.innerText(), /rollout_7\.pt.*rollout_7\.pt/, "the path stands there once");
      assert.equal(await page.getByText("not run yet").count(), 0);
      await page.getByLabel("kind of step").selectOption("eval");
      await until("two evaluations", async () => /of 2 steps/.test(await chart(page).getAttribute("aria-label").catch(() => "")));
      await page.goBack();
      await timeline(page);
      await shot("rollouts-view");

      // 800 px, and 1600 px at 200 %: the same width, and everything is in reach by scrolling down.
      await page.setViewportSize({ width: 800, height: 500 });
      await until("it fits", async () => Object.values(await overflow(page)).every((v) => v <= 0));
      assert.equal(await page.locator(".panel-h").evaluateAll((els) => els.filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === "visible").length), 0, "a title row runs out of its panel");
      await page.locator(".held a").first().click();
      await page.locator("[role=tab][aria-selected=true]", { hasText: /Sample/ }).waitFor();
      await shot("rollouts-narrow");
    });
    assert.ok(statSync(cut).size === 50_000, "a dump is never changed");
    child.kill();
  });

  test("serve: nothing yet, steps are born live, a step that is run again, then its archive", async () => {
    const inbox = join(dir, "inbox");
    mkdirSync(inbox);
    const bear = (from, as) => {
      copyFileSync(from, join(inbox, ".part"));
      renameSync(join(inbox, ".part"), join(inbox, as));
    };
    const data = join(dir, "tsdb");
    const { base, child } = await start(binary, ["serve", "--rollouts", join(inbox, "rollout_{rollout_id}.pt"), "--storage.tsdb.path", data, "--web.listen-address", "127.0.0.1:0"]);
    const run = await until("the server", async () => (await api(base, "/status")) && true);
    assert.ok(run);
    await on(base, "/rollouts?every=1&theme=dark", async ({ page, shot }) => {
      await page.getByText(/No dump has been finished yet|no step yet/).first().waitFor();
      await shot("rollouts-empty");
      bear(join(dir, "made", "rollout_0.pt"), "rollout_0.pt");
      bear(join(dir, "made", "rollout_1.pt"), "rollout_1.pt");
      writeFileSync(join(inbox, "rollout_2.pt"), readFileSync(join(dir, "made", "rollout_2.pt")).subarray(0, 60_000));
      await step(page, 1).waitFor();
      const files = page.getByRole("list", { name: "dumps that are not in the index" });
      await until("the dump that is not complete", async () => /incomplete|failed/.test(await files.innerText()));
      await timeline(page);

      // The newest is followed until one moves in its timeline.
      bear(join(dir, "made", "rollout_2.pt"), "rollout_2.pt");
      await step(page, 2).waitFor();
      await until("no dump that is not complete", async () => (await files.count()) === 0); // its handler may still be at its end
      await timeline(page);
      await page.locator(".tl-canvas").click({ position: { x: 50, y: 123 } });
      await until("it stays", () => param(page, "step") === "2");
      bear(join(dir, "made", "rollout_3.pt"), "rollout_3.pt");
      await page.getByRole("link", { name: "newest is 3" }).waitFor();
      assert.equal(await step(page, 2).count(), 1);
      await page.getByRole("link", { name: "newest is 3" }).click();
      await step(page, 3).waitFor();

      bear(join(dir, "again", "rollout_1.pt"), "rollout_1.pt");
      await page.goto(`${base}/rollouts?every=1&theme=dark&step=1`, { waitUntil: "domcontentloaded" });
      await step(page, 1).locator(".runs", { hasText: "of 2" }).waitFor();
      assert.equal(await fact(page, "samples"), "40");
      await step(page, 1).locator(".runs a", { hasText: "1" }).click();
      await until("the run before", async () => (await fact(page, "samples")) === "48");
      assert.equal(param(page, "attempt"), "0");
      await step(page, 1).locator(".runs", { hasText: "superseded" }).waitFor();
      await shot("rollouts-again");
    });
    await new Promise((done) => (child.once("exit", done), child.kill()));

    const archive = await start(binary, ["replay", data, "--web.listen-address", "127.0.0.1:0"]);
    await on(archive.base, "/rollouts?theme=light", async ({ page, shot }) => {
      await page.locator(".banner", { hasText: "Archived run" }).waitFor();
      await until("its steps", async () => /of 4 steps/.test(await chart(page).getAttribute("aria-label")));
      assert.equal(await page.locator(".live").count(), 0);
      await timeline(page);
      await page.waitForLoadState("networkidle");
      let asked = 0;
      page.on("request", (r) => r.url().includes("/rollouts") && asked++);
      await page.waitForTimeout(2000);
      assert.equal(asked, 0, "an archive does not change");
      await page.keyboard.press("[");
      await until("keys work", () => param(page, "step") === "2");
      await shot("rollouts-archive");
    });
    archive.child.kill();
  });
});

describe("invented runs", { skip: noDist }, () => {
  let base;
  before(async () => {
    if (!noDist) ({ base } = await start(process.execPath, [new URL("../dev/server.mjs", import.meta.url).pathname], { FIXTURE: "live", PORT: "0", NO_BUILD: "1", ROLLSCOPE_WEB_OUT: dist, PROXY: "" }));
  });

  test("names that would like to be HTML are text", () => on(base, `/rollouts?run=${encodeURIComponent(HOSTILE)}`, async ({ page, shot }) => {
    await until("steps", async () => /of 6 steps/.test(await chart(page).getAttribute("aria-label")));
    assert.equal(await page.locator("img").count(), 0);
    assert.ok((await page.locator(".statuses").innerText()).includes("<b>odd</b>"));
    assert.doesNotMatch(await page.title(), /^pwned/);
    assert.ok((await overflow(page)).page <= 0, "a long name widens the page");
    await page.getByLabel("run", { exact: true }).selectOption("twelve");
    await page.getByRole("list", { name: "dumps that are not in the index" }).locator("li", { hasText: "<img src=x" }).waitFor();
    assert.equal(await page.locator("img").count(), 0);
    await shot("rollouts-hostile");
  }));

  test("5,000 steps, a run that went back, unknown steps, no step, no such run", () => on(base, "/rollouts?run=five-thousand&step=2500&theme=light", async ({ page, shot, allow }) => {
    await until("all steps", async () => /of 5000 steps.*step 2500/.test(await chart(page).getAttribute("aria-label")));
    await page.locator(".steps", { hasText: "the event file of step 812 is damaged" }).waitFor();
    const box = await chart(page).boundingBox();
    await chart(page).hover({ position: { x: box.width * 0.7, y: box.height / 2 } });
    assert.match(await page.locator(".steps-chart .tip").innerText(), /largest of \d+/);
    await shot("rollouts-5000");
    await page.getByLabel("run", { exact: true }).selectOption("went-back");
    await page.locator(".leg", { hasText: "given up" }).waitFor();
    await step(page, 21).waitFor(); // the newest that counts
    await chart(page).hover({ position: await bar(page, 23, 0, 23) });
    await page.locator(".steps-chart .tip", { hasText: "given up" }).waitFor();
    await shot("rollouts-went-back");
    await page.getByLabel("run", { exact: true }).selectOption("twelve");
    await page.locator(".leg", { hasText: "unknown" }).waitFor();
    await chart(page).click({ position: await bar(page, 5, 0, 11) });
    await page.getByText("Step 5 has no timeline: no sample has a trace").waitFor();
    assert.equal(await fact(page, "wall time"), "unknown");
    await page.getByLabel("run", { exact: true }).selectOption("nothing-yet");
    await page.getByText("no step yet").waitFor();
    allow(/status of 404/);
    await page.goto(`${base}/rollouts?run=gone`, { waitUntil: "domcontentloaded" });
    await page.getByText("there is no run “gone”").waitFor();
    await page.getByRole("link", { name: "show the newest" }).click();
    await chart(page).waitFor();
  }));

  test("keyboard focus is seen, forced colours and reduced motion keep everything", () => on(base, "/rollouts?run=grpo-qwen3-32b&step=142", async ({ page, shot }) => {
    await step(page, 142).waitFor();
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const el = document.activeElement;
        const css = getComputedStyle(el);
        return { what: el.getAttribute("aria-label") || el.textContent.slice(0, 24), main: !!el.closest(".main, .top"), ring: css.outlineStyle !== "none" || css.boxShadow !== "none" };
      });
      if (!at.main) continue;
      assert.ok(at.ring, `no focus ring on ${at.what}`);
      seen.add(at.what);
    }
    for (const what of ["run", "kind of step", "metric", "step", "time", "table", "#1407"]) assert.ok([...seen].some((s) => s === what), `${what} is not reached: ${[...seen]}`);
    await page.emulateMedia({ reducedMotion: "reduce", forcedColors: "active" });
    assert.equal(await page.locator(".stack i").first().evaluate((e) => getComputedStyle(e).forcedColorAdjust), "none", "parts keep their colours");
    await until("nothing that moves", async () => (await page.evaluate(() => document.getAnimations().filter((a) => a.playState === "running").length)) === 0);
    await shot("rollouts-forced");
  }));
});
