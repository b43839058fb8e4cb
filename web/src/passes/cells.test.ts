import { describe, expect, test } from "vitest";
import { batchScale, fillCells, M_BEAT, M_EDGE, M_GAP, M_IDLE, M_RESTART, M_SILENT, M_UNLOADED, newCells, passAt } from "./cells";
import { DECODE, GAP, HEARTBEAT, HOLE, LATE, MIXED, NO_TIME, NOTHING, RESTART, Ring, UNMEASURED } from "./ring";

const P = [1, 100, 0, 0, 0, 0, 0, 0, 0], D = [0, 0, 0, 8, 100, 0, 0, 0, 0], B = [1, 50, 0, 7, 100, 0, 0, 0, 0], N = [0, 0, 0, 0, 0, 0, 0, 0, 0];

/** Columns of 10 ms from 0 on, of passes written [time, wall, flags, values]. */
function cells(passes: [number, number, number, number[]][], count = 10, allowance = Infinity, first = 0, ms = 10) {
  const ring = new Ring(1e6);
  for (const [t, w, f, v] of passes) ring.push(t, w, f, f & GAP ? 2 : 0, v);
  const out = newCells(count);
  fillCells(ring, first, count, ms, allowance, out);
  return { kind: [...out.kind.subarray(0, count)], cover: [...out.cover.subarray(0, count)], marks: [...out.marks.subarray(0, count)], batch: [...out.batch.subarray(0, count)] };
}
const has = (marks: number[], bit: number) => marks.map((m) => (m & bit ? 1 : 0)).join("");

describe("bars", () => {
  test("a long pass fills its columns, the first and last by their share, and has an edge", () => {
    const c = cells([[75, 50, 0, P]]);
    expect(c.kind).toEqual([0, 0, 1, 1, 1, 1, 1, 1, 0, 0]);
    expect(c.cover).toEqual([0, 0, 128, 255, 255, 255, 255, 128, 0, 0]);
    expect(has(c.marks, M_EDGE)).toBe("0010000000");
    expect(c.batch[4]).toBe(1);
  });
  test("many passes in one column are its mean, and the sort with most of its time", () => {
    const c = cells([[12, 2, 0, D], [14, 2, 0, D], [15, 1, 0, P], [18, 3, 0, D]]);
    expect(c.kind[1]).toBe(DECODE);
    expect(c.cover[1]).toBe(Math.round(0.8 * 255));
    expect(c.batch[1]).toBeCloseTo((8 * 7 + 1) / 8, 4);
  });
  test("neither of two sorts that share a column is hidden", () => {
    expect(cells([[15, 5, 0, P], [20, 5, 0, D]]).kind[1]).toBe(MIXED);
    expect(cells([[20, 10, 0, B]]).kind[1]).toBe(MIXED);
  });
  test("a pass is seen however short it is", () => {
    const c = cells([[33, 0.001, 0, D]]);
    expect(c.kind[3]).toBe(DECODE);
    expect(c.cover[3]).toBeGreaterThan(0);
  });
  test("what ends after the columns and began in them is there; what lies outside is not", () => {
    const c = cells([[20, 5, 0, D], [300, 200, 0, P], [320, 5, 0, D]], 10);
    expect(c.kind[9]).toBe(NOTHING); // the bar begins at 100
    expect(cells([[20, 5, 0, D], [150, 100, 0, P]]).kind.slice(4)).toEqual([0, 1, 1, 1, 1, 1]);
    expect(cells([[20, 5, 0, D], [150, 100, 0, P]], 5, Infinity, 20).kind).toEqual([0, 0, 0, 0, 0]);
  });
  test("a pass whose time cannot be has no length", () => {
    expect(cells([[20, 5, 0, D], [45, 0, NO_TIME, P]]).kind[4]).toBe(UNMEASURED);
  });
  test("a late message is a pass as others, and no gap", () => {
    const c = cells([[20, 5, 0, D], [40, 5, LATE, D]]);
    expect(c.kind[3]).toBe(DECODE);
    expect(has(c.marks, M_GAP)).toBe("0000000000");
  });
});

describe("what stands between", () => {
  test("missing messages mark the time in which they are missing, at least two columns", () => {
    expect(has(cells([[15, 5, 0, D], [75, 10, GAP, D]]).marks, M_GAP)).toBe("0111111000");
    expect(has(cells([[64, 4, 0, D], [69, 4, GAP, D]]).marks, M_GAP)).toBe("0000011000");
  });
  test("a gap is not averaged away between a hundred passes of one column", () => {
    const passes = Array.from({ length: 100 }, (_, i): [number, number, number, number[]] => [50 + i / 10, 0.1, i === 40 ? GAP : 0, D]);
    expect(has(cells(passes).marks, M_GAP)).toBe("0000110000");
  });
  test("a restart is marked, with or without missing messages", () => {
    expect(has(cells([[15, 5, 0, D], [55, 5, RESTART, D]]).marks, M_RESTART)).toBe("0000110000");
    const c = cells([[15, 5, 0, D], [55, 5, RESTART | GAP, D]]);
    expect([has(c.marks, M_RESTART), has(c.marks, M_GAP)]).toEqual(["0000110000", "0111110000"]);
  });
  test("heartbeats say idle since the message before them", () => {
    const c = cells([[15, 5, 0, D], [55, 0, HEARTBEAT, N]]);
    expect(has(c.marks, M_IDLE)).toBe("0111110000");
    expect(has(c.marks, M_BEAT)).toBe("0000010000");
    expect(c.kind[3]).toBe(NOTHING);
  });
  test("silence beyond the rank's rhythm is unknown, neither idle nor busy; within it, nothing", () => {
    const c = cells([[15, 5, 0, D], [85, 0, HEARTBEAT, N]], 10, 50);
    expect(has(c.marks, M_SILENT)).toBe("0111111110");
    expect(has(c.marks, M_IDLE)).toBe("0000000000");
    expect(cells([[15, 5, 0, D], [55, 5, 0, D]], 10, 50).marks.slice(2, 5)).toEqual([0, 0, 0]);
  });
  test("what this page did not load is no gap and no silence", () => {
    const c = cells([[15, 5, 0, D], [85, 5, HOLE | GAP, D]], 10, 20);
    expect(has(c.marks, M_UNLOADED)).toBe("0111111110");
    expect([has(c.marks, M_GAP), has(c.marks, M_SILENT)]).toEqual(["0000000000", "0000000000"]);
    // Before the first pass of a ring nobody knows anything.
    expect(cells([[55, 5, HOLE, D]]).marks.slice(0, 5)).toEqual([0, 0, 0, 0, 0]);
  });
  test("columns painted bit by bit are those painted at once", () => {
    const ring = new Ring(1e6);
    let t = 0;
    for (let i = 0; i < 400; i++) {
      const flags = i % 37 === 5 ? GAP : i % 53 === 7 ? RESTART : i % 11 === 3 ? HEARTBEAT : 0;
      t += 3 + ((i * 7919) % 23);
      ring.push(t, flags & HEARTBEAT ? 0 : 2 + (i % 5), flags, 0, flags & HEARTBEAT ? N : i % 3 ? D : P);
    }
    const all = newCells(400), part = newCells(400);
    fillCells(ring, 0, 400, 10, 18, all);
    for (let a = 0; a < 400; a += 7) {
      const n = Math.min(7, 400 - a);
      fillCells(ring, a, n, 10, 18, part);
      expect([...part.kind.subarray(0, n)], `kind from ${a}`).toEqual([...all.kind.subarray(a, a + n)]);
      // A mark of two columns begins in the column before: the painter asks for two more to the left.
      for (let i = 0; i < n; i++) expect((part.marks[i] as number) | M_EDGE, `marks of ${a + i}`).toBe((all.marks[a + i] as number) | M_EDGE);
    }
  });
});

test("the pass at an instant", () => {
  const ring = new Ring(1e6);
  ring.push(100, 20, 0, 0, P);
  ring.push(200, 50, 0, 0, P);
  expect([passAt(ring, 90, 1), passAt(ring, 120, 1), passAt(ring, 101, 2), passAt(ring, 151, 1), passAt(ring, 149.5, 1), passAt(ring, 260, 1)]).toEqual([0, -1, 0, 1, 1, -1]);
});

test("the full height is a round number at or above the largest batch", () => {
  expect([0, 1, 2, 9, 41, 64, 256, 1000, 1001].map(batchScale)).toEqual([1, 1, 2, 10, 50, 80, 300, 1000, 2000]);
});
