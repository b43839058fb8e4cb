import { expect, test } from "vitest";
import { lanes } from "./lanes";

test("points become spans, states of one alert share a lane, gaps end a span", () => {
  const labels = (alertstate: string, instance: string) => ({ __name__: "ALERTS", alertname: "High", alertstate, instance, severity: "critical" });
  const r = {
    kind: "range" as const, from: 1000, to: 1050, step: 10, warnings: [], infos: [],
    series: [
      { labels: labels("pending", "a"), values: [1, 1, null, null, null, 1] },
      { labels: labels("firing", "a"), values: [null, null, 1, 1, null, null] },
      { labels: labels("pending", "b"), values: [null, 1, null, null, null, null] },
      { labels: { __name__: "ALERTS", alertname: "x" }, values: [1] },
    ],
  };
  expect(lanes(r)).toEqual([
    { name: "High", subject: "a", severity: "critical", spans: [
      { from: 1000, to: 1010, state: "pending" }, { from: 1010, to: 1030, state: "firing" }, { from: 1040, to: 1050, state: "pending" },
    ] },
    { name: "High", subject: "b", severity: "critical", spans: [{ from: 1000, to: 1010, state: "pending" }] },
  ]);
});
