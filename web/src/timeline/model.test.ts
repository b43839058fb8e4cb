import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Model } from "./model";
import type { TimelineSource } from "./source";
import { newPane, START, type View } from "./view";

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("requestAnimationFrame", () => 1);
  vi.stubGlobal("cancelAnimationFrame", () => undefined);
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const N = 500;

/** A server's 500 rows without items, whose order comes when it is let. */
function served() {
  const answers: (() => void)[] = [];
  const zeros = () => new Float64Array(N);
  const source = {
    local: false, extent: [0, 1000], head: { t0: 0, step: null, dump: { name: "a.pt" }, dicts: { name: [], status: [""], why: [""], source: [""], label: [""] } },
    rows: {
      n: N, lanes: new Uint16Array(N), items: new Uint32Array(N), flags: new Uint32Array(N), why: new Uint8Array(N), start: zeros(), dur: zeros().fill(10),
      index: Float64Array.from({ length: N }, (_, r) => r), ordinal: Uint32Array.from({ length: N }, (_, r) => r), group: zeros().fill(NaN), reward: zeros().fill(NaN),
      status: new Uint8Array(N), open: zeros(), orphans: zeros(), requests: zeros(), attempts: zeros(), points: zeros(), response: zeros(), prompt: zeros(),
    },
    order: () => new Promise<Uint32Array>((done) => answers.push(() => done(Uint32Array.from({ length: N }, (_, r) => r)))),
    window: () => ({ complete: true, slot: () => null }), stats: () => [], states: () => ({}), legend: () => [], colours: () => ({}), attempts: () => [], gaps: () => ({ from: [], to: [] }),
    subscribe: () => () => undefined,
  };
  const come = async () => {
    for (const a of answers.splice(0)) a();
    await vi.advanceTimersByTimeAsync(0);
  };
  return { source: source as unknown as TimelineSource, come };
}

const seen = (m: Model, row: number) => m.pane.visible()[0] <= row && row < m.pane.visible()[1];
const at = (row: number, more: Partial<View> = {}): View => ({ ...START, panes: [{ ...newPane(), row }], ...more });

function sized(m: Model): Model {
  m.pane.width = 900;
  m.pane.height = 500;
  m.pane.relayout(m.now);
  return m;
}

test("until the order has come nothing is said of how many rows there are", async () => {
  const { source, come } = served();
  const m = sized(new Model([source], START, () => undefined));
  expect(m.pane.info.value).toMatchObject({ ready: false, loading: true });
  await come();
  expect(m.pane.info.value).toMatchObject({ ready: true, loading: false, shown: N });
  m.dispose();
});

test("a view from outside scrolls to the row it names, also when its order is still to come", async () => {
  const { source, come } = served();
  const m = sized(new Model([source], at(400), () => undefined));
  await come();
  expect(seen(m, 400)).toBe(true);
  m.show(at(10));
  expect(seen(m, 10), "the order stays").toBe(true);
  m.show(at(300, { sort: "reward" }));
  expect(m.pane.waiting).toBe(true);
  m.pane.scroll = 0;
  await come();
  expect(seen(m, 300), "another order").toBe(true);
  // A place that is said wins over the row.
  m.show(at(300, { sort: "reward", panes: [{ ...newPane(), row: 300, top: 100 }] }));
  expect(m.pane.visible()[0]).toBe(100);
  m.dispose();
});

test("a row that is opened is selected and its panel is turned to, unless there is none", async () => {
  const { source, come } = served();
  const m = sized(new Model([source], START, () => undefined));
  await come();
  m.toggleRow(m.pane, 7);
  expect(m.now).toMatchObject({ tab: "sample", panes: [{ row: 7, item: -1, open: [7] }] });
  m.set({ tab: "none" });
  m.toggleRow(m.pane, 8);
  expect(m.now).toMatchObject({ tab: "none", panes: [{ row: 8, open: [7, 8] }] });
  m.dispose();
});
