import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { classToken, gapsOf, phaseBars, phaseToken } from "./phases";

const phase = (name: string, depth: number, seconds: number | null, start: string | null = null): api.RequestPhase => ({ name, class: "", depth, seconds, start, from: "trace" });

describe("phases", () => {
  test("names of the timeline, of Go and of the field take the same colour", () => {
    for (const n of ["P forward", "prefill_forward", "p-forward"]) expect(classToken(n)).toBe("--ph-p-forward");
    expect(classToken("D transfer")).toBe("--ph-d-transfer");
    expect(classToken("weight sync")).toBe("--ph-sync");
    expect(classToken("never heard of")).toBe("");
    expect(phaseToken({ class: "other", name: "decode" })).toBe("--ph-d-forward");
    expect(phaseToken({ class: "", name: "what" })).toBe("--s7");
  });

  test("one after the other, nested ones within, said ones where they were", () => {
    const b = phaseBars([phase("queue", 0, 1), phase("prefill", 0, 2), phase("prefill_forward", 1, 1.5), phase("decode", 0, 5), phase("decode_forward", 1, 4, new Date(5000).toISOString())], 10, 0);
    expect(b.map((x) => [x.left, x.width])).toEqual([[0, 0.1], [0.1, 0.2], [0.1, 0.15], [0.3, 0.5], [0.5, 0.4]]);
    expect(b[4]?.placed).toBe(false);
    expect(b[0]?.placed).toBe(true);
  });

  test("nothing leaves the whole, whatever was said", () => {
    for (const b of phaseBars([phase("a", 0, 99), phase("b", 0, null), phase("c", 0, 3, new Date(-5000).toISOString())], 10, 0)) {
      expect(b.left).toBeGreaterThanOrEqual(0);
      expect(b.left + b.width).toBeLessThanOrEqual(1);
    }
    expect(phaseBars([phase("a", 0, 1)], 0, 0)).toEqual([]);
  });
});

test("what lies in no phase is where no phase is", () => {
  const bar = (left: number, width: number, depth = 0) => ({ phase: phase("x", depth, 1), left, width });
  expect(gapsOf([bar(0.4, 0.2), bar(0.5, 0.3), bar(0, 1, 1)])).toEqual([[0, 0.4], [0.8, 1]]);
  expect(gapsOf([bar(0, 1)])).toEqual([]);
});
