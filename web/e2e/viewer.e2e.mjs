// The timeline's page, opened from disk as a person opens it: every control is driven, with invented dumps
// of web/dev/viewer.mjs. Asserted is what a reader or a screen reader gets: counts, words, the address, and
// the pixels where only pixels tell.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { shots, unnamed, until } from "./browser.mjs";
import { LABEL, on, pages, ROW, skip, TOP, y } from "./viewerpage.mjs";

pages({ step: ["step", 600], partial: ["partial", 120], dense: ["step", 6000, 3] });

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
    assert.equal(await hash("row"), row, "the row is selected");
    assert.match(await page.getByRole("tab", { selected: true }).textContent(), /^Sample #\d+$/, "and its panel is seen");
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

  test("tooltips of rows, spans and clusters", () => on("step", async ({ page, at, rest, frames }) => {
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
        await frames();
        if (await page.locator(".tl-tip", { hasText: /^\d+ events/ }).count()) return true;
      }
      return false;
    })();
    assert.ok(found, "a cluster says how many events it holds");
    await page.mouse.move(...(await at(LABEL + 300, 50)));
    await page.locator(".tl-tip").waitFor({ state: "detached" });
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

  test("labels of rows keep their colour beside faint bars", () => on("step", async ({ page, rest }) => {
    // Bars of a search that only marks are faint; the labels under them are not.
    const names = () => page.evaluate(([top, row]) => {
      const c = document.querySelector(".tl-draw");
      const g = c.getContext("2d");
      const ground = g.getImageData(60, top + 5 * row, 1, 1).data;
      const out = [];
      for (let p = 0; p < 30; p++) {
        const d = g.getImageData(14, top + p * row, 40, row).data;
        let most = 0;
        for (let i = 0; i < d.length; i += 4) most = Math.max(most, Math.abs(d[i] - ground[0]) + Math.abs(d[i + 1] - ground[1]) + Math.abs(d[i + 2] - ground[2]));
        out.push(most);
      }
      return out;
    }, [TOP, ROW]);
    await page.getByRole("button", { name: "Critical path" }).click();
    await page.getByRole("button", { name: "Longest tail" }).click();
    await page.getByRole("button", { name: "Show ▾" }).click();
    await page.getByLabel("instant events").uncheck();
    await page.keyboard.press("Escape");
    await rest();
    const seen = await names();
    assert.ok(Math.min(...seen) > 0.6 * Math.max(...seen), `contrast of labels: ${seen}`);
  }));

  test("the controls take two lines at most, the colours two", () => on("step", async ({ page, rest }) => {
    for (const width of [1280, 1600]) {
      await page.setViewportSize({ width, height: 900 });
      await rest();
      const h = (sel) => page.locator(sel).evaluate((e) => e.getBoundingClientRect().height);
      assert.ok((await h(".tl-bar")) <= 60, `${width}: ${await h(".tl-bar")} px of controls`);
      assert.ok((await h(".tl-legend")) <= 40, `${width}: ${await h(".tl-legend")} px of colours`);
    }
    // What has no room comes when it is asked for.
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.locator(".tl-stage").evaluate((e) => (e.style.width = "560px"));
    const last = page.locator(".tl-legend li").last();
    const inside = () => last.evaluate((e) => e.getBoundingClientRect().bottom <= e.parentElement.getBoundingClientRect().bottom + 1);
    assert.equal(await inside(), false);
    await page.getByRole("button", { name: "more ▾" }).click();
    assert.equal(await inside(), true);
    await page.getByRole("button", { name: "less ▴" }).click();
    assert.equal(await inside(), false);
  }));
});
