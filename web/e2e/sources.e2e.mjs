// One dump through both of the timeline's sources: saved as a page, which has all columns, and served window
// by window. A reader must find the same numbers and colours in both. ROLLSCOPE is the binary.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, settled, until } from "./browser.mjs";

const binary = process.env.ROLLSCOPE ?? "";
const dir = mkdtempSync(join(tmpdir(), "rollscope-sources-"));
let browser, saved, viewer, served;

before(async () => {
  if (!binary) return;
  browser = await launch();
  execFileSync(binary, ["sim", "rollouts", join(dir, "made"), "--steps", "2", "--samples", "64", "--pd", "--multi-turn", "0.4", "--partial", "0.2", "--seed", "4"]);
  execFileSync(binary, ["view", join(dir, "made"), "--no-serve", "--out", join(dir, "pages")]);
  const html = readFileSync(join(dir, "pages", "rollout_1.trace_timeline_viewer.html"));
  saved = createServer((req, res) => (req.url === "/saved" ? res.setHeader("Content-Type", "text/html; charset=utf-8").end(html) : res.writeHead(204).end()));
  await new Promise((done) => saved.listen(0, "127.0.0.1", done));
  viewer = spawn(binary, ["view", join(dir, "made"), "--out", join(dir, "out"), "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "pipe"] });
  served = await new Promise((resolve, reject) => {
    let said = "";
    for (const s of [viewer.stdout, viewer.stderr]) s.on("data", (d) => {
      said += d;
      const m = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
      if (m) resolve(m[0]);
    });
    viewer.once("exit", (code) => reject(new Error(`view ended with ${code}: ${said}`)));
  });
});
after(async () => {
  await browser?.close();
  saved?.close();
  if (viewer && viewer.exitCode === null) await new Promise((done) => (viewer.once("exit", done), viewer.kill()));
  rmSync(dir, { recursive: true, force: true });
});

/** Opens the same view of the dump in both, and hands over what ask reads in each. */
async function both(view, ask, more = {}) {
  const out = [];
  for (const [base, path] of [[`http://127.0.0.1:${saved.address().port}`, `/saved#${view}`], [served, `/rollouts?rollout=1&theme=dark&t=${encodeURIComponent(view)}`]]) {
    const p = await browser.open(base, { width: 1600, height: 1400 });
    try {
      if (more.media) await p.page.emulateMedia(more.media);
      else await p.page.emulateMedia({ colorScheme: "dark" });
      p.allow(/willReadFrequently/); // reading pixels is what the test does, not the page
      await p.go(path);
      await until("the rows", async () => Number(await p.page.locator(".tl-canvas").first().getAttribute("data-rows")) > 0);
      await p.page.locator(".tl-canvas").first().scrollIntoViewIfNeeded();
      out.push(await ask(p.page, base === served));
      assert.deepEqual(p.sins, [], "what must not happen");
    } finally {
      await p.close();
    }
  }
  return out;
}

/** Of a part of the canvas: its size in pixels and the colours in it. */
const pixels = (page, x, y, w, h) => page.evaluate(([x0, y0, w0, h0]) => {
  const c = document.querySelector(".tl-draw");
  const k = c.width / c.clientWidth;
  const d = c.getContext("2d").getImageData(x0 * k, y0 * k, w0 * k, h0 * k);
  return { w: d.width, h: d.height, data: [...d.data] };
}, [x, y, w, h]);

const LABEL = 112, RIGHT = 10;

describe("a saved page and a served one", { skip: binary ? false : "ROLLSCOPE names no binary" }, () => {
  for (const by of ["phase", "name", "attempt", "status"]) {
    test(`coloured by ${by}: the legend counts the same, the minimap has the same colours`, async () => {
      const [a, b] = await both(by === "phase" ? "" : `colour=${by}`, async (page) => {
        const legend = await settled("the legend with its counts", async () => {
          const list = await page.locator(".tl-legend button[data-key]").evaluateAll((els) => els.map((e) => `${e.dataset.key} ${e.title} ${e.querySelector("i").getAttribute("style")}`));
          return list.length > 0 && list.every((t) => /: [\d,]+, .* in all/.test(t)) && list.join("\n");
        });
        const width = await page.locator(".tl-canvas").first().evaluate((e) => e.clientWidth);
        // The share of the minimap that each hue has, by a coarse name of it.
        const hues = await settled("the minimap", () => page.evaluate(([x, w]) => {
          const c = document.querySelector(".tl-draw");
          const k = c.width / c.clientWidth;
          const { data } = c.getContext("2d").getImageData(x * k, 6 * k, w * k, 80 * k);
          const count = {};
          let all = 0;
          for (let i = 0; i < data.length; i += 4) {
            const r = data[i], g = data[i + 1], u = data[i + 2];
            const max = Math.max(r, g, u), min = Math.min(r, g, u);
            if (max - min < 25) continue;
            const hue = max === r ? ((g - u) / (max - min) + 6) % 6 : max === g ? (u - r) / (max - min) + 2 : (r - g) / (max - min) + 4;
            count[Math.round(hue * 2) % 12] = (count[Math.round(hue * 2) % 12] ?? 0) + 1;
            all++;
          }
          return all > 1000 && JSON.stringify(Object.fromEntries(Object.entries(count).map(([h, n]) => [h, n / all])));
        }, [LABEL, width - LABEL - RIGHT]));
        return { legend, hues: JSON.parse(hues) };
      });
      assert.equal(b.legend, a.legend);
      assert.ok(a.legend.split("\n").length >= (by === "phase" || by === "name" ? 8 : 2), a.legend);
      let apart = 0;
      for (const h of new Set([...Object.keys(a.hues), ...Object.keys(b.hues)])) apart += Math.abs((a.hues[h] ?? 0) - (b.hues[h] ?? 0)) / 2;
      // A saved page mixes what lies in a pixel, a served one shows what has the most of it.
      assert.ok(apart < 0.25, `hues differ in ${apart.toFixed(2)} of the picture: ${JSON.stringify([a.hues, b.hues])}`);
    });
  }

  test("the numbers of a range and what rows do at the cursor", async () => {
    for (const view of ["tab=range&at=20", "tab=range&at=45.5&from=10&to=40&q=status%3Acompleted"]) {
      const [a, b] = await both(view, (page) => settled("the numbers", async () => {
        const stats = await page.locator(".tl-stats tbody tr").allInnerTexts();
        const states = await page.locator("[data-role=states]").innerText();
        const table = await page.locator(".tl-states-table").innerText().catch(() => "");
        return stats.length > 0 && /^at the cursor: \d/.test(states) && table && `${stats.join("\n")}\n${states}\n${table}`;
      }));
      assert.equal(b, a);
    }
  });

  test("a sample: its facts, its request's phases against the median", async () => {
    for (const row of [0, 17, 40]) {
      const [a, b] = await both(`tab=sample&row=${row}`, async (page) => {
        const panel = page.locator("#tl-tabpanel");
        await panel.locator(".tl-requests tbody tr").first().waitFor();
        if ((await panel.locator(".tl-request").count()) === 0) await panel.locator(".tl-requests .tl-link").first().click();
        await panel.locator(".tl-request .tl-phases").waitFor();
        return settled("the sample", async () => {
          const text = await panel.innerText();
          // A window's items have other places than the row's, so a served span shows none of its attributes.
          return /vs p50[\s\S]*vs p50/i.test(text) && text.replace(/(?:start |end )?attributes\n[\s\S]*?(?=\n*requests \d)/i, "").replace(/\n+/g, "\n")
            .replace(/^(?:Open the request|Log lines)\n|\nIts requests$/gm, ""); // ways into pages that a saved one has not
        });
      });
      assert.match(a, /\d\.\d×[\s\S]*\d\.\d×[\s\S]*\d\.\d×/, "phases have a ratio");
      assert.equal(b, a);
    }
  });

  test("what rows do follows the pointer", async () => {
    const texts = await both("", async (page) => {
      const box = await page.locator(".tl-canvas").first().boundingBox();
      const read = async (share) => {
        await page.mouse.move(box.x + LABEL + (box.width - LABEL - RIGHT) * share, box.y + 150);
        return settled("the counts", async () => {
          const t = await page.locator("[data-role=states]").innerText();
          return /^here: \d/.test(t) && t;
        });
      };
      const said = [await read(0.1), await read(0.9)];
      await page.mouse.move(box.x + 20, box.y - 5);
      await until("no pointer, no counts", async () => /click sets the cursor/.test(await page.locator("[data-role=states]").innerText()));
      return said;
    });
    for (const [early, late] of texts) {
      assert.notEqual(early, late);
      const sum = (t) => [...t.matchAll(/\d+/g)].reduce((n, m) => n + Number(m[0]), 0);
      assert.equal(sum(early), 64);
      assert.equal(sum(late), 64);
    }
  });

  test("in forced colours an outline tells the chosen row", async () => {
    const [a, b] = await both("row=0&sort=row&desc=0", (page) => settled("the outline", async () => {
      const hl = await page.evaluate(() => {
        const e = document.body.appendChild(document.createElement("i"));
        e.style.color = "Highlight";
        const c = getComputedStyle(e).color.match(/\d+/g).slice(0, 3).map(Number);
        e.remove();
        return c;
      });
      // A column of pixels in the labels, left of their text: the outline crosses it above and below the row.
      const { data } = await pixels(page, 2, 110, 1, 40);
      const at = [];
      for (let i = 0; i < data.length; i += 4) if ([0, 1, 2].every((k) => Math.abs(data[i + k] - hl[k]) < 60)) at.push(i / 4);
      return at.length >= 2 && JSON.stringify(at);
    }), { media: { forcedColors: "active" } });
    for (const at of [a, b]) assert.equal(JSON.parse(at).length, 2, at);
  });
});
