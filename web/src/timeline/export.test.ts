import { describe, expect, test } from "vitest";
import { dataIn } from "../viewer/embedded";
import { LocalSource } from "./source";
import { HOSTILE, step, toBase64 } from "./testdata";
import { fit, shapeOf } from "./bars";
import { keyText, rowSentence, valueText } from "./words";
import { OPEN } from "./table";

const Q = { filter: "", sort: "row", desc: false, group: false, attempt: -1 } as const;

describe("Perfetto", () => {
  test("is valid JSON, cut at the window, with open spans open", async () => {
    const s = await LocalSource.open(await step({ samples: 120, seed: 8, hostile: true }));
    const order = (await s.order(Q)) as Uint32Array;
    const t0 = 100e6, t1 = 300e6;
    const doc = JSON.parse(await (await s.perfetto(Q, order, t0, t1)).text()) as { traceEvents: Record<string, number | string>[]; otherData: { dump: string } };
    expect(doc.otherData.dump).toContain("</script>");
    const spans = doc.traceEvents.filter((e) => e["ph"] === "X");
    expect(spans.length).toBeGreaterThan(50);
    for (const e of spans) {
      expect(Number(e["ts"])).toBeGreaterThanOrEqual(t0);
      expect(Number(e["ts"]) + Number(e["dur"])).toBeLessThanOrEqual(t1);
    }
    let open = 0;
    for (let i = 0; i < s.table.start.length; i++) if (s.table.state[i] === OPEN && s.table.start[i]! <= t1 && s.table.start[i]! + s.table.dur[i]! >= t0) open++;
    expect(open).toBeGreaterThan(0);
    expect(doc.traceEvents.filter((e) => e["ph"] === "B")).toHaveLength(open);
    for (const e of doc.traceEvents.filter((e) => e["ph"] === "B")) expect(Number(e["ts"])).toBeGreaterThanOrEqual(t0);
  });
  test("of nothing", async () => {
    const s = await LocalSource.open(await step({ samples: 5, seed: 8 }));
    expect(JSON.parse(await (await s.perfetto(Q, new Uint32Array(0), 0, 1)).text())).toMatchObject({ traceEvents: [] });
  });
});

describe("words", () => {
  test("labels hold what was written and no control characters", () => {
    const ctx = { font: "10px x", measureText: (s: string) => ({ width: s.length * 5 }) } as unknown as CanvasRenderingContext2D;
    expect(fit(ctx, "abc", 100)).toBe("abc");
    expect(fit(ctx, "abcdefghijkl", 30)).toBe("abcde…");
    expect(fit(ctx, "abc", 3)).toBe("");
    expect(fit(ctx, "", 100)).toBe("");
    for (const h of HOSTILE) expect(fit(ctx, h, 1000)).not.toMatch(/[\u0000-\u001f\u202a-\u202e]/);
  });
  test.each([["buffer_put", "triangle"], ["request_complete", "diamond"], ["sample_created", "square"], ["tick", "circle"]])("%s is a %s", (name, shape) => expect(shapeOf(name)).toBe(shape));
  test("values of any kind are one line of text", () => {
    expect(valueText({ a: [1] })).toBe('{"a":[1]}');
    expect(valueText(undefined)).toBe("");
    expect(valueText("\u202etxt.exe\u0000")).toBe("⟨U+202E⟩txt.exe⟨U+0000⟩");
    expect(valueText("x".repeat(5000), 10)).toBe("xxxxxxxxxx… (5,000 characters)");
  });
  test("every row and every sort has words", async () => {
    const s = await LocalSource.open(await step({ samples: 120, seed: 8 }));
    for (let r = 0; r < s.rows.n; r++) {
      for (const k of ["start", "end", "dur", "reward", "status", "queue", "sample", "row", "open"] as const) expect(keyText(s, k, r, 0)).toMatch(/^[\w.,−–]+/);
      expect(rowSentence(s, r, 0)).toMatch(/^sample /);
    }
  });
});

test("containers are found in a saved page, and only there", async () => {
  const c = await step({ samples: 3, seed: 1 });
  const b64 = toBase64(c);
  const page = new TextEncoder().encode(`<script>var x='<script type="text/plain" id="rollscope-timeline">'</script><script type="text/plain" id="rollscope-timeline">${b64}</script><script type="text/plain" id="rollscope-timeline-2">\n${b64}\n</script>`);
  expect(dataIn(page)).toEqual([c, c]);
  const cut = 4 * Math.floor(b64.length / 12);
  const pieces = [b64.slice(0, cut), b64.slice(cut, 2 * cut), b64.slice(2 * cut)];
  const many = new TextEncoder().encode(`<script type="text/plain" id="rollscope-timeline">${pieces.join('</script><script type="text/plain" class="rollscope-more">')}</script><script type="text/plain" id="rollscope-timeline-2">${b64}</script>`);
  expect(dataIn(many)).toEqual([c, c]);
  expect(dataIn(c)).toEqual([c]);
  expect(dataIn(new TextEncoder().encode("<html></html>"))).toEqual([]);
});
