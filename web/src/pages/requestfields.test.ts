import { describe, expect, test } from "vitest";
import type * as api from "../api/types";
import { cellText, columnsOf, numberOf, scaleOf, target, toggled, USUAL } from "./requestfields";

const row = (more: Partial<api.RequestRow> = {}): api.RequestRow => ({
  id: "1", start: "", rid: "r", trace_id: "", engine: "", engine_id: "", prefill_engine: "", service: "", model: "", outcome: "ok", finish_reason: "", ttft_seconds: 0.5, itl_seconds: null, e2e_seconds: null,
  queue_seconds: 0, prefill_seconds: null, transfer_seconds: null, decode_seconds: null, prompt_tokens: 10, completion_tokens: 20, cached_tokens: null, decode_throughput: null, retries: null,
  run: "", kind: "", step: null, sample: null, sources: ["log"], spans: "none", probable: 0, flags: [], ...more,
});
const cell = (key: string, r: api.RequestRow) => {
  const n = numberOf(key)!;
  return cellText(n, r, scaleOf(n, [r])).text;
};

describe("a cell", () => {
  test("zero, unknown, open and what cannot be are told apart", () => {
    expect(cell("queue", row())).toBe("0");
    expect(cell("itl", row())).toBe("unknown");
    expect(cell("e2e", row({ outcome: "running" }))).toBe("open");
    expect(cell("transfer", row())).toBe("–");
    expect(cell("transfer", row({ prefill_engine: "p-1" }))).toBe("unknown");
    expect(cell("ttft", row())).toBe("500");
  });
});

describe("columns", () => {
  test("keep the table's order, always have the request, and rubbish is left out", () => {
    expect(columnsOf("")).toEqual(USUAL);
    expect(columnsOf("ttft,<b>,start")).toEqual(["rid", "start", "ttft"]);
    const more = toggled("", "trace");
    expect(columnsOf(more)).toContain("trace");
    expect(toggled(more, "trace")).toBe("");
  });
});

test.each([["2s", 2], ["40 ms", 0.04], ["1.5", 1.5], ["", null], ["soon", NaN], ["0", NaN], ["2m", 120]])("the target %s is %s", (t, v) => expect(target(t)).toEqual(v));
