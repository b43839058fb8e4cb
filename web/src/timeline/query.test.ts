import { existsSync, readFileSync, readdirSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { parse, QueryError, SORTS, type Query, type Sort } from "./query";
import { LocalSource } from "./source";
import { step, untraced } from "./testdata";

const testdata = new URL("../../../internal/timeline/testdata/", import.meta.url).pathname;

interface Vectors {
  container: string;
  orders: { filter?: string; sort?: string; desc?: boolean; group?: boolean; attempt?: number | null; rows: number[]; count: number; error_at?: number }[];
}

const query = (q: { filter?: string; sort?: string; desc?: boolean; group?: boolean; attempt?: number | null }): Query => ({
  filter: q.filter ?? "", sort: (q.sort ?? "row") as Sort, desc: q.desc ?? false, group: q.group ?? false, attempt: q.attempt ?? -1,
});

describe("vectors of the Go index", () => {
  const dir = testdata + "vectors/";
  const files = existsSync(dir) ? readdirSync(dir) : [];
  test("there are some", () => expect(files.length).toBeGreaterThan(3));
  test.each(files)("orders of %s", async (file) => {
    const v = JSON.parse(readFileSync(dir + file, "utf8")) as Vectors;
    const s = await LocalSource.open(new Uint8Array(readFileSync(`${testdata}container/${v.container}`)));
    for (const o of v.orders) {
      if (o.sort !== undefined && !(SORTS as readonly string[]).includes(o.sort)) continue; // the page cannot ask for it
      const what = JSON.stringify(o).slice(0, 200);
      let got: Uint32Array | Error;
      try {
        got = await s.order(query(o));
      } catch (err) {
        got = err as Error;
      }
      if (o.error_at !== undefined) {
        expect(got, what).toBeInstanceOf(QueryError);
        if (o.error_at >= 0) expect((got as QueryError).at, what).toBe(o.error_at);
      } else {
        expect(got, what).not.toBeInstanceOf(Error);
        expect([...(got as Uint32Array)].slice(0, o.rows.length), what).toEqual(o.rows);
        expect((got as Uint32Array).length, what).toBe(o.count);
      }
    }
  });
});

describe("the grammar", () => {
  test.each([
    ["", []],
    ["  ", []],
    ["abc -def", [{ kind: "word", text: "abc", not: false }, { kind: "word", text: "def", not: true }]],
    ['"a b" "say \\"hi\\""', [{ kind: "word", text: "a b", not: false }, { kind: "word", text: 'say "hi"', not: false }]],
    ["reward<0.5 and dur >= 90s", [{ kind: "field", field: "reward", op: "<", text: "0.5", not: false }, { kind: "field", field: "dur", op: ">=", text: "90s", not: false }]],
    ["/a\\/b c/", [{ kind: "regexp", text: "a/b c", not: false }]],
    ['attr."my key":x', [{ kind: "field", field: "attr.my key", op: ":", text: "x", not: false }]],
    ["STATUS:Trunc", [{ kind: "field", field: "status", op: ":", text: "Trunc", not: false }]],
    ["a-b", [{ kind: "word", text: "a-b", not: false }]],
  ])("%s", (text, want) => expect(parse(text)).toEqual(want));

  test.each([
    ["reward<", 7], ["reward<x", 7], ["status<5", 6], ["nope:1", 0], ['"open', 0], ["/open", 0], ["/(/", 0], ["flag:nope", 5], ["- a", 1], ["and a", 0], ["a and", 5], ["attr.", 5], ["attr.k", 6], ["tokens<5ms", 7], ["😀 nope=1", 3],
  ])("%s is wrong at %i", (text, at) => {
    try {
      parse(text);
      expect.unreachable();
    } catch (err) {
      expect(err).toBeInstanceOf(QueryError);
      expect((err as QueryError).at).toBe(at);
      expect((err as Error).message.length).toBeGreaterThan(10);
    }
  });
});

describe("over an invented step", () => {
  let s: LocalSource;
  beforeAll(async () => {
    s = await LocalSource.open(await step({ samples: 300, seed: 3, hostile: true, sync: false }));
  });
  const rows = async (filter: string, more: Partial<Query> = {}) => [...(await s.order({ ...query({ filter }), ...more }))];

  test("a filter and its negation split the rows", async () => {
    for (const f of ["status:trunc", "reward=1", "dur>60", "name:web_search", "/trace-0000/", "flag:aborted", "decode>1m", "12", "attr.turn>2"]) {
      const yes = await rows(f), no = await rows(`-${f}`);
      expect(yes.length + no.length, f).toBe(300);
      expect(new Set([...yes, ...no]).size, f).toBe(300);
    }
  });
  test("terms are all needed", async () => {
    const a = new Set(await rows("reward=1")), b = new Set(await rows("dur<100"));
    expect(await rows("reward=1 dur<100")).toEqual([...a].filter((r) => b.has(r)));
  });
  test("markup is only text", async () => {
    expect((await rows('"<img src=x"')).length).toBeGreaterThan(0);
    expect((await rows("</script>")).length).toBeGreaterThan(0);
  });
  test("every sort has missing values last, in both directions", async () => {
    for (const sort of SORTS) {
      for (const desc of [false, true]) {
        const order = await rows("", { sort, desc });
        expect(order.length).toBe(300);
        if (sort === "status") continue;
        const keys = order.map((r) => s.key(sort, r));
        const known = keys.filter((k) => !Number.isNaN(k));
        expect(keys.slice(0, known.length)).toEqual(known);
        for (let i = 1; i < known.length; i++) expect(desc ? known[i - 1]! >= known[i]! : known[i - 1]! <= known[i]!).toBe(true);
      }
    }
  });
  test("groups stand together, in the order of their first row", async () => {
    const flat = await rows("", { sort: "dur", desc: true });
    const grouped = await rows("", { sort: "dur", desc: true, group: true });
    const g = grouped.map((r) => s.rows.group[r]!);
    const seen = new Set<number>();
    g.forEach((x, i) => {
      if (i > 0 && g[i - 1] === x) return;
      expect(seen.has(x)).toBe(false);
      seen.add(x);
    });
    expect(grouped[0]).toBe(flat[0]);
  });
  test("an attempt keeps the rows that have it", async () => {
    const with1 = await rows("", { attempt: 1 });
    expect(with1.length).toBeGreaterThan(0);
    for (const r of with1) {
      const t = s.table;
      expect(t.attempt.subarray(t.itemFrom[r], t.itemFrom[r + 1]).includes(1)).toBe(true);
    }
  });
});

test("nothing to search in", async () => {
  const s = await LocalSource.open(await untraced(0));
  expect((await s.order(query({ filter: "x", sort: "end" }))).length).toBe(0);
  const u = await LocalSource.open(await untraced(5));
  expect([...(await u.order(query({ sort: "end", desc: true })))]).toEqual([0, 1, 2, 3, 4]);
  expect((await u.order(query({ filter: "flag:empty" }))).length).toBe(5);
  expect((await u.order(query({ filter: "dur<9e9" }))).length).toBe(0);
});
