import { expect, test } from "vitest";
import { DECODE, EMPTY, GAP, HEARTBEAT, HOLE, LATE, MIXED, NO_TIME, NOTHING, PassSet, PREFILL, Ring, UNMEASURED, type RankRow } from "./ring";
import { answer } from "./testdata";

const values = (prefill: number, tokens: number, decode: number, kv = 0) => [prefill, tokens, 0, decode, kv, 0, 0, 0, 0];

test("a ring grows while its passes are young, and then forgets the oldest", () => {
  const r = new Ring(1000);
  for (let i = 0; i < 5000; i++) r.push(i, 0.5, 0, 0, values(0, 0, i % 7));
  expect(r.end).toBe(5000);
  // 1,000 ms have to stay; it doubles until they fit.
  expect(r.end - r.begin).toBe(1024);
  expect(r.first).toBe(5000 - 1024);
  for (const p of [r.begin, 4500, 4999]) expect([r.timeAt(p), r.batchAt(p)]).toEqual([p, p % 7]);
  expect(r.get(r.begin - 1)).toBeNull();
  expect(r.get(5000)).toBeNull();
  expect(r.most).toBe(6);
});

test("passes are found by time", () => {
  const r = new Ring(1e6);
  for (let i = 0; i < 1000; i++) r.push(i * 10, 5, 0, 0, values(0, 0, 1));
  expect(r.from(-5)).toBe(0);
  expect(r.from(100)).toBe(10);
  expect(r.from(101)).toBe(11);
  expect(r.from(1e9)).toBe(1000);
});

test("what a pass did is told from what it held", () => {
  const r = new Ring(1000);
  r.push(1, 1, 0, 0, values(1, 100, 0));
  r.push(2, 1, 0, 0, values(0, 0, 5));
  r.push(3, 1, 0, 0, values(0, 30, 5));
  r.push(4, 1, 0, 0, values(0, 0, 0));
  r.push(5, 0, HEARTBEAT, 0, values(0, 0, 0));
  r.push(6, 0, NO_TIME, 0, values(1, 10, 0));
  expect([0, 1, 2, 3, 4, 5].map((p) => r.kindAt(p))).toEqual([PREFILL, DECODE, MIXED, EMPTY, NOTHING, UNMEASURED]);
});

test("a bar begins its wall time before its end, but not within the message before it; a clock that goes back does not turn the order", () => {
  const r = new Ring(1000);
  r.push(100, 30, 0, 0, values(0, 0, 1));
  r.push(120, 50, 0, 0, values(0, 0, 1));
  r.push(110, 5, LATE, 0, values(0, 0, 1));
  expect([0, 1, 2].map((p) => r.startAt(p))).toEqual([70, 100, 120]);
  expect(r.timeAt(2)).toBe(120);
  expect(r.flagsAt(2) & LATE).toBe(LATE);
});

test("an answer is taken into the rings of its ranks; what was not loaded before it is marked, also later", () => {
  const set = new PassSet(1000);
  set.add(answer([["a", 0], ["a", 1]], [[0, 10, 5, 0, 0, 1, 0], [1, 11, 5, 0, 0, 0, 3], [0, 20, 5, GAP, 4, 1, 0]]), false);
  const [a0, a1] = set.sorted() as [RankRow, RankRow];
  expect([a0.rank, a1.rank]).toEqual([0, 1]);
  expect(a0.ring.flagsAt(0)).toBe(HOLE); // nothing is known of what came before the first
  expect(a0.ring.flagsAt(1)).toBe(GAP);
  expect(a0.ring.get(1)?.missing).toBe(4);
  expect(set.newest).toBe(20);
  const seen: [string, number][] = [];
  set.add(answer([["a", 0]], [[0, 60, 5, 0, 0, 1, 0]]), true, (r, from) => seen.push([r.key, from]));
  expect(a0.ring.flagsAt(2)).toBe(HOLE);
  expect(seen).toEqual([["a#0", 20]]);
  // Rank 1 was silent in that answer: the hole lies before its next pass.
  set.add(answer([["a", 1], ["a", 0]], [[0, 70, 5, 0, 0, 0, 1], [1, 71, 5, 0, 0, 0, 1]]), false);
  expect(a1.ring.flagsAt(1)).toBe(HOLE);
  expect(a0.ring.flagsAt(3)).toBe(0);
  expect(set.passes).toBe(6);
});

test("memory covers all of every rank from the latest of the cuts on", () => {
  const set = new PassSet(10);
  set.add(answer([["a", 0]], Array.from({ length: 400 }, (_, i) => [0, i, 1, 0, 0, 0, 1])), false);
  expect(set.coveredFrom()).toBe(400 - 256);
  const fresh = new PassSet(1000);
  fresh.add(answer([["a", 0]], [[0, 5, 1, 0, 0, 0, 1]]), false);
  expect(fresh.coveredFrom()).toBeNaN();
});
