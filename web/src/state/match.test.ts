import { expect, test } from "vitest";
import { rank, score } from "./match";

test("beginnings beat words beat insides beat scattered letters", () => {
  const texts = ["sglang:num_queue_reqs", "queue_depth", "xqueuex", "q_u_e_u_e", "nothing"];
  expect(rank("queue", texts, (t) => t, 9)).toEqual(["queue_depth", "sglang:num_queue_reqs", "xqueuex", "q_u_e_u_e"]);
  expect(score("ttft", "time_to_first_token")).toBeGreaterThan(0);
  expect(score("zz", "time")).toBe(0);
  expect(rank("", texts, (t) => t, 2)).toEqual(texts.slice(0, 2));
  expect(rank("reqs num", texts, (t) => t, 9)).toEqual(["sglang:num_queue_reqs"]);
});
