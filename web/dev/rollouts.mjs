// Invented runs for working on the Rollouts page: what a demo does not show. Runs of 1, 12, 200 and 5,000
// steps, a run that went back to a checkpoint, dumps that cannot be read, names that would like to be HTML.
import { noise } from "./fleet.mjs";

const iso = (ms) => new Date(ms).toISOString();
const value = (v) => ({ value: v, state: "value" });
const unknown = (reason) => ({ value: null, state: "unknown", reason });
export const HOSTILE = `<img src=x onerror="document.title='pwned'"> run ${"long-name-".repeat(9)}`;
const PARTS = { queue: 0.06, prefill: 0.1, transfer: 0.02, decode: 0.48, generate: 0, tool: 0.05, reward: 0.07, other: 0, gap: 0.01, straggler: 0.18, sync: 0.03, unexplained: 0 };
const CURVES = [
  ["perf/rollout_time", "s", "dump", "rollout/step"], ["perf/tokens_per_gpu_per_sec", "tokens/s", "dump", "rollout/step"], ["rollout/response_len/mean", "tokens", "dump", "rollout/step"],
  ["rollout/truncated_ratio", "ratio", "dump", "rollout/step"], ["train/loss", "", "trainer", "train/step"], ["train/kl_loss", "", "trainer", "train/step"], ["eval/aime-2025", "", "dump", "eval/step"],
].map(([key, unit, source, axis]) => ({ key, unit, source, axis }));

function makeRun(name, count, { back, evals = 0, files = [], problem, untraced = -1 } = {}) {
  const seed = name.length * 31 + count;
  const begin = Date.parse("2026-02-03T00:00:00Z");
  const every = 700e3;
  const step = (kind, id, at, attempt = 0) => {
    const slow = id > 0 && id % 37 === 0 ? 2.4 : 1;
    const wall = 560 * (1 + 0.12 * noise(seed, id * 60, 90)) * slow;
    const reward = Math.min(0.9, 0.24 + 0.4 * (1 - Math.exp(-id / 80)) + 0.05 * noise(seed + 1, id * 60, 120));
    const traced = id !== untraced;
    return {
      run: name, kind, id, attempt, attempts: attempt + 1, start: traced ? iso(at) : null, end: traced ? iso(at + wall * 1e3) : null,
      wall_seconds: traced ? value(wall) : unknown("no sample has a trace"), samples: 2048, requests: 2600, statuses: { completed: 2040, truncated: 7, "<b>odd</b>": 1 },
      reward: value(reward), parts: traced ? Object.entries(PARTS).map(([part, share]) => ({ name: part, seconds: share * wall, share })) : [], values: {}, timeline: "", problems: id % 5 === 4 ? 3 : 0, dump_exists: id % 7 !== 6,
    };
  };
  const train = Array.from({ length: count }, (_, id) => step("train", id, begin + id * every));
  // Back to a checkpoint: steps from back on were run again, all but the last two.
  if (back !== undefined) for (let id = back; id < count - 2; id++) train[id] = step("train", id, begin + (count + id - back + 3) * every, 1);
  const evaluations = Array.from({ length: evals }, (_, i) => step("eval", i * 5, begin + i * 5 * every - 90e3));
  const last = [...train].sort((a, b) => ((a.end ?? "") < (b.end ?? "") ? 1 : -1))[0];
  return {
    run: {
      name, pattern: "/runs/7/debug/rollout_{rollout_id}.pt", steps: count, eval_steps: evals, first_step: count ? 0 : null, last_step: count ? count - 1 : null,
      from: count ? iso(begin) : null, to: last?.end ?? null, gpus: 64, metrics: CURVES, files, scalars: "/runs/7/tensorboard", ...(problem ? { problem } : {}),
    },
    steps: { train, eval: evaluations },
  };
}

const FILES = [
  { path: "/runs/7/debug/rollout_12.pt", state: "failed", reason: "the file was cut: the zip directory is missing, 1,048,576 of about 4 MB are there", hint: "rollscope view --salvage shows what is there", bytes: 1048576 },
  { path: `/runs/7/debug/${HOSTILE}.pt`, state: "incomplete", reason: "it is still growing", bytes: 99 },
];

const runs = [
  makeRun("grpo-qwen3-32b", 200, { evals: 40 }), makeRun("one-step", 1), makeRun("twelve", 12, { untraced: 5, files: FILES }), makeRun("went-back", 24, { back: 14 }),
  makeRun("five-thousand", 5000, { problem: "the event file of step 812 is damaged: curves end there" }), makeRun("nothing-yet", 0, { files: FILES }), makeRun(HOSTILE, 6),
];

/** What the API answers below /rollouts, without the envelope; null when there is no such thing. */
export function rollouts(path, q, fixture) {
  const list = fixture === "empty" ? [] : runs;
  if (path === "/rollouts") return { runs: list.map((r) => r.run), watching: fixture !== "archive" };
  const [, , name, what, kind, id] = path.split("/").map(decodeURIComponent);
  const run = list.find((r) => r.run.name === name);
  if (!run || what !== "steps") return null;
  const metrics = (q.get("metrics") ?? "").split(",").filter(Boolean);
  const number = (s, key) => {
    if (key === "perf/rollout_time") return s.wall_seconds;
    if (key === "train/loss") return s.id % 9 === 8 ? unknown("no point at this step") : value(0.02 * Math.exp(-s.id / 90) * (1 + 0.2 * noise(5, s.id * 60, 60)) - 0.004);
    return CURVES.some((c) => c.key === key) ? value(Math.abs(noise(key.length, s.id * 60, 200)) * (key.endsWith("ratio") ? 0.1 : 900)) : unknown("the step does not have it");
  };
  if (kind === undefined) return { steps: run.steps[q.get("kind") === "eval" ? "eval" : "train"].map((s) => ({ ...s, values: Object.fromEntries(metrics.map((m) => [m, number(s, m)])) })) };
  const all = run.steps[kind] ?? [];
  const at = all.findIndex((s) => s.id === Number(id));
  let s = all[at];
  if (!s) return null;
  if (q.get("attempt") && Number(q.get("attempt")) < s.attempt) s = { ...s, attempt: Number(q.get("attempt")), wall_seconds: value(s.wall_seconds.value * 1.3), reward: value(0.111) };
  const sorted = [...all].sort((a, b) => a.id - b.id);
  return {
    step: s, metrics: CURVES.filter((c) => (c.axis === "eval/step") === (kind === "eval")).map((c) => ({ key: c.key, value: number(s, c.key), unit: c.unit })),
    wall: {
      wall_seconds: s.wall_seconds, parts: s.parts, aborted_tokens: 412000, aborted_share: 0.022, aborted_samples: 40,
      held: s.parts.length ? [1407, 233, 1911, 86].map((n, row) => ({ row, sample: n, group: n >> 3, end_seconds: 612 - row * 9, over_median: 400 - row * 9, because: row === 2 ? "tool" : "decode", because_seconds: 470 - row * 30 })) : [],
    },
    notes: s.id % 5 === 4 ? [{ code: "ends_without_start", message: "3 spans end without a start", hint: "the trace was imported after they began" }] : [],
    path: `/runs/7/debug/rollout_${s.id}.pt`, bytes: 1.3e8, fingerprint: "z1:0", problem_counts: s.problems ? { orphan_end: 3 } : {}, prev: sorted[at - 1]?.id ?? null, next: sorted[at + 1]?.id ?? null,
  };
}
