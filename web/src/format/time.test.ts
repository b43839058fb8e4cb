import { describe, expect, test } from "vitest";
import { clock, duration, durationCode, instantCode, parseApiTime, parseDuration, parseInstant, rangeText, since } from "./time";

const NOW = Date.UTC(2026, 6, 14, 14, 30, 10);

describe("parseInstant", () => {
  test.each([
    ["now", NOW],
    ["now-1h", NOW - 3600e3],
    ["now - 1h30m", NOW - 5400e3],
    ["-15m", NOW - 900e3],
    ["+5s", NOW + 5e3],
    ["13:30", Date.UTC(2026, 6, 14, 13, 30)],
    ["13:30:05", Date.UTC(2026, 6, 14, 13, 30, 5)],
    ["18:00", Date.UTC(2026, 6, 13, 18, 0)], // not yet today: yesterday's
    ["2026-07-14", Date.UTC(2026, 6, 14)],
    ["2026-07-14 13:30", Date.UTC(2026, 6, 14, 13, 30)],
    ["2026-07-14T13:30:05Z", Date.UTC(2026, 6, 14, 13, 30, 5)],
    ["2026-07-14T13:30:05.250Z", Date.UTC(2026, 6, 14, 13, 30, 5, 250)],
    ["2026-07-14T13:30:05+02:00", Date.UTC(2026, 6, 14, 11, 30, 5)],
    ["2026-07-14 13:30 UTC", Date.UTC(2026, 6, 14, 13, 30)],
    ["14 Jul 13:30", Date.UTC(2026, 6, 14, 13, 30)],
    ["1 January 2025", Date.UTC(2025, 0, 1)],
    ["1784035810", 1784035810e3],
    ["1784035810123", 1784035810123],
  ])("%s", (text, want) => expect(parseInstant(text, NOW)).toBe(want));

  test.each(["", "soon", "25:00", "13:61", "2026-13-01", "2026-02-30", "now-", "now-1x", "14 Foo", "-", "1h"])(
    "%s is no instant",
    (text) => expect(parseInstant(text, NOW)).toBeNull(),
  );
});

describe("parseDuration", () => {
  test.each([
    ["1h30m", 5400e3], ["90s", 90e3], ["2 d", 172800e3], ["15 min", 900e3], ["500ms", 500], ["1.5h", 5400e3], ["1w", 604800e3],
  ])("%s", (text, want) => expect(parseDuration(text)).toBe(want));
  test.each(["", "h", "5", "5x", "-5m", "0s", "1h foo"])("%s is none", (text) => expect(parseDuration(text)).toBeNull());
  test("durationCode is read back", () => {
    for (const ms of [1, 500, 15e3, 90e3, 3600e3, 5400e3, 86400e3, 90061e3]) expect(parseDuration(durationCode(ms))).toBe(ms);
    expect(durationCode(5400e3)).toBe("1h30m");
  });
});

test("duration", () => {
  expect([250, 5e3, 90e3, 150e3, 1140e3, 3600e3, 4200e3, 86400e3, 97200e3, -5e3].map(duration)).toEqual([
    "250 ms", "5 s", "90 s", "2 min 30 s", "19 min", "1 h", "1 h 10 min", "1 d", "1 d 3 h", "−5 s",
  ]);
});

test("ranges and clocks are UTC", () => {
  expect(clock(NOW)).toBe("14:30");
  expect(clock(NOW, true)).toBe("14:30:10");
  expect(rangeText(NOW - 3600e3, NOW, NOW)).toBe("13:30 – 14:30 UTC");
  expect(rangeText(NOW - 86400e3, NOW, NOW)).toBe("13 Jul 14:30 – 14 Jul 14:30 UTC");
  expect(rangeText(NOW - 60e3, NOW, NOW)).toBe("14:29:10 – 14:30:10 UTC");
  expect(rangeText(Date.UTC(2025, 0, 2, 3), Date.UTC(2025, 0, 2, 4), NOW)).toBe("2 Jan 2025 03:00 – 04:00 UTC");
  expect(since(NOW - 3600e3, NOW)).toBe("13:30");
  expect(since(NOW - 3 * 86400e3, NOW)).toBe("11 Jul 14:30");
});

test("API times", () => {
  expect(parseApiTime("2026-07-14T13:30:05.123456789Z")).toBe(Date.UTC(2026, 6, 14, 13, 30, 5, 123));
  expect(parseApiTime(null)).toBeNaN();
  expect(instantCode(NOW)).toBe("2026-07-14T14:30:10Z");
});
