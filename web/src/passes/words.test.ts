import { expect, test } from "vitest";
import { PassClock, within } from "./columns";
import { GAP, HEARTBEAT, LATE, NO_TIME, RESTART, type Pass } from "./ring";
import { answer } from "./testdata";
import { amount, boundWords, busyShare, markWords, passWords, queueRuleWords, rate, sourceLevel, target } from "./words";

const pass = (p: Partial<Pass>): Pass => ({ time: 0, wall: 0, flags: 0, missing: 0, kind: 2, prefillRequests: 0, prefillTokens: 0, prefillKV: 0, decodeRequests: 0, decodeKV: 0, queuedPrefillRequests: 0, queuedPrefillTokens: 0, queuedDecodeRequests: 0, queuedDecodeKV: 0, ...p });

test("a pass in words: what it held, how long, what waits, what happened before it", () => {
  expect(passWords(pass({ kind: 3, wall: 18.24, prefillRequests: 2, prefillTokens: 4096, prefillKV: 10, decodeRequests: 20, decodeKV: 25_180, queuedPrefillRequests: 3, queuedPrefillTokens: 900, flags: GAP, missing: 4 }))).toEqual([
    ["wall time", "18.2 ms"], ["prefill", "2 req · 4,096 new tokens · 10 from KV"], ["decode", "20 req · 25,180 KV tokens"],
    ["queued", "prefill 3 req, 900 tok · decode 0 req, 0 KV"], ["before it", "4 messages are missing"],
  ]);
  expect(passWords(pass({ flags: HEARTBEAT, kind: 0 }))).toEqual([["heartbeat", "nothing ran"], ["queued", "nothing"]]);
  expect(passWords(pass({ flags: NO_TIME, kind: 5 }))[0]?.[1]).toBe("unknown: what it tells cannot be");
  expect(markWords(GAP | RESTART | LATE, 1)).toBe("1 message is missing, the engine began anew, came late, after newer ones");
});

test("an alarm is critical whatever is said of the flow; nothing heard is unknown, not ok", () => {
  const of = (flow: string, alarm = false) => sourceLevel({ flow, alarm, state: "connected" });
  expect([of("receiving"), of("receiving, some cannot be decoded"), of("waiting (engine idle)"), of("nothing received"), of("starting"), of("no payload while engine is busy", true)]).toEqual(["ok", "warn", "idle", "unknown", "unknown", "crit"]);
});

test("terms of the planner as a reader says them; unknown ones stay readable", () => {
  expect(boundWords("max_kv_seen")).toMatch(/ever seen/);
  expect(boundWords("new_bound")).toBe("new bound");
  expect(queueRuleWords("rank 0 has it")).toMatch(/not averaged/);
  expect([rate(0), rate(0.05), rate(38.42)]).toEqual(["0 req/s", "3 req/min", "38.4 req/s"]);
});

test("targets and amounts as typed", () => {
  expect([target(""), target("500"), target("500ms"), target("0.5s"), target("x")]).toEqual([undefined, 0.5, 0.5, 0.5, NaN]);
  expect([amount(""), amount("3,012"), amount("3k"), amount("1.5M"), amount("-1"), amount("2.5", true), amount("4", true)]).toEqual([undefined, 3012, 3000, 1_500_000, NaN, NaN, 4]);
});

test("the busy share is unknown before there is time to speak of", () => {
  const at = (last: string, busy: number) => busyShare({ first: "2026-01-01T00:00:00Z", last, busy_seconds: busy });
  expect([at("2026-01-01T00:00:00Z", 0), at("2026-01-01T00:00:10Z", 5), at("2026-01-01T00:00:10Z", 20)]).toEqual([null, 0.5, 1]);
});

test("the server's clock is told from the least delayed answer of the last seconds", () => {
  const c = new PassClock();
  expect(c.at(1000, 77)).toBe(77);
  c.saw(5200, 1000); // 4.2 s ahead, after some delay
  c.saw(5500, 1100);
  c.saw(5600, 1400);
  expect(c.at(2000, 0)).toBe(6400);
  // A clock that was set back is believed when the old answers are old.
  c.saw(12_000, 13_000);
  c.saw(24_000, 25_000);
  c.saw(36_000, 37_000);
  expect(c.at(40_000, 0)).toBe(39_000);
});

test("pages of stored passes are cut at a whole millisecond, so that none comes twice", () => {
  const c = answer([["a", 0]], [[0, 9.5, 1, 0, 0, 1, 0], [0, 10, 1, 0, 0, 2, 0], [0, 11, 1, 0, 0, 3, 0]]);
  const cut = within(c, 10, 11);
  expect([cut.time_ms, cut.rank, cut.prefill_requests]).toEqual([[10], [0], [2]]);
  expect(within(c, 0, 99)).toBe(c);
});
