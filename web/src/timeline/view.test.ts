import { describe, expect, test } from "vitest";
import { decodeView, encodeView, newPane, START, type View } from "./view";
import { Layout } from "./layout";

describe("the view in the URL", () => {
  test("the start is an empty address", () => {
    expect(encodeView(START)).toBe("");
    expect(decodeView("")).toEqual(START);
    expect(decodeView("#")).toEqual(START);
  });
  test("everything comes back", () => {
    const v: View = {
      filter: 'status:"a b" & <x>#', mark: true, sort: "reward", desc: false, group: true, attempt: 2, only: false, colour: "name", expanded: true, points: false, opens: false, orphans: false, rowH: 0,
      tail: false, critical: true, gaps: false, t0: 1_500_000, t1: 2_750_001, cursor: -3, from: 1, to: 999_999_999, lit: ["c3", "n12"], hidden: ["a0"], tab: "sample",
      panes: [{ top: 12.25, row: 3, item: 7, open: [1, 2, 3] }, { top: 0, row: 9, item: -1, open: [] }],
    };
    expect(decodeView("#" + encodeView(v), 2)).toEqual(v);
  });
  test("what is no view is the start", () => {
    expect(decodeView("#sort=evil&height=99999&t0=5&t1=1&row=-4&open=a.b.1&lit=%3Cb%3E&attempt=x&tab=zzz&colour=red&at=1e99")).toEqual({ ...START, rowH: 28, panes: [{ ...newPane(), open: [1] }] });
    expect(decodeView("#t0=NaN&t1=Infinity&height=&top=1e99")).toEqual(START);
  });
});

describe("rows", () => {
  const order = Uint32Array.from({ length: 100 }, (_, i) => 99 - i);
  test("of one height", () => {
    const l = new Layout(order, 11, 11, null);
    expect(l.height).toBe(1100);
    expect(l.at(-1)).toBe(-1);
    expect(l.at(0)).toBe(0);
    expect(l.at(10.9)).toBe(0);
    expect(l.at(11)).toBe(1);
    expect(l.at(99999)).toBe(100);
    expect(l.laneAt(3, 35)).toBe(-1);
  });
  test("some expanded", () => {
    const l = new Layout(order, 11, 12, (r) => (r === 97 ? 4 : 0)); // row 97 stands at place 2
    expect(l.top(2)).toBe(22);
    expect(l.top(3)).toBe(22 + 11 + 48 + 2);
    expect(l.height).toBe(1150);
    for (let y = 0; y < 1150; y += 0.5) {
      const p = l.at(y);
      expect(l.top(p)).toBeLessThanOrEqual(y);
      expect(l.top(p + 1)).toBeGreaterThan(y);
    }
    expect(l.laneAt(2, 30)).toBe(-1);
    expect(l.laneAt(2, 33)).toBe(0);
    expect(l.laneAt(2, 33 + 47)).toBe(3);
  });
  test("none, and rows without height", () => {
    expect(new Layout(new Uint32Array(0), 11, 11, null).height).toBe(0);
    expect(new Layout(new Uint32Array(0), 11, 11, () => 3).at(5)).toBe(0);
    expect(new Layout(order, 0, 11, null).at(0)).toBe(100);
  });
});
