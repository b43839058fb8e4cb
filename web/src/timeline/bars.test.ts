import { expect, test } from "vitest";
import { Bars } from "./bars";
import type { Ink } from "./ink";

/** A canvas that keeps what was drawn with which alpha. */
function canvas() {
  const drawn: { what: string; alpha: number }[] = [];
  const ctx = {
    globalAlpha: 1, fillStyle: "", strokeStyle: "", lineWidth: 1, font: "",
    fillRect: () => drawn.push({ what: "bar", alpha: ctx.globalAlpha }),
    fillText: (t: string) => drawn.push({ what: t, alpha: ctx.globalAlpha }),
    strokeRect: () => undefined, beginPath: () => undefined, moveTo: () => undefined, lineTo: () => undefined, stroke: () => undefined, fill: () => undefined,
    setLineDash: () => undefined, measureText: (t: string) => ({ width: t.length * 5 }),
  };
  return { ctx, drawn };
}

const paint = { rgb: new Uint8Array(6), css: ["#111", "#222"], alpha: Float32Array.of(1, 1) };
const ink = { family: "sans-serif", text: "#fff", error: "#f00", open: "#0f0" } as unknown as Ink;

test.each<[string, (b: Bars) => void]>([
  ["a faint bar", (b) => b.add(10, 90, 0, 0.3, false)],
  ["a bar below a pixel, not yet drawn", (b) => b.add(10.1, 10.4, 0, 0.3, false)],
  ["an aborted one", (b) => b.aborted(10, 90, 0.45)],
  ["an open one", (b) => b.open(10, 90, 1, 0.2, true)],
  ["a bar with its name", (b) => {
    b.add(10, 290, 0, 0.3, false);
    b.text(10, 290, "decode", 1000, false, ink);
  }],
])("%s leaves nothing of its alpha to the next row's label", (_, draw) => {
  const { ctx, drawn } = canvas();
  const bars = new Bars(ctx as unknown as CanvasRenderingContext2D, ink, paint, 0, 300);
  bars.begin(0, 11);
  draw(bars);
  bars.end();
  expect(ctx.globalAlpha).toBe(1);
  const n = drawn.length;
  bars.end();
  expect(drawn.length, "what is done is not drawn again").toBe(n);
});
