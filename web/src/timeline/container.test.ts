import { existsSync, readFileSync, readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ContainerError, decode, decodeColumn, fromBase64, Strings, type ColumnHead, type Head } from "./container";
import { encode, step, toBase64, untraced, oneRow } from "./testdata";
import { LocalSource } from "./source";
import { readRows, readTable, readWhole } from "./table";

const golden = new URL("../../../internal/timeline/testdata/container/", import.meta.url).pathname;

describe("containers of the Go writer", () => {
  const files = existsSync(golden) ? readdirSync(golden).filter((f) => f.endsWith(".rtc") && existsSync(golden + f.replace(/rtc$/, "json"))) : [];
  test("there are some", () => expect(files.length).toBeGreaterThan(2));
  test.each(files)("%s is read as the golden file says", async (file) => {
    const c = await decode(new Uint8Array(readFileSync(golden + file)));
    const want = JSON.parse(readFileSync(golden + file.replace(/rtc$/, "json"), "utf8")) as { head: Record<string, unknown>; columns: Record<string, unknown[]>; attrs: unknown; details: unknown };
    expect([...c.columns].map(([name]) => name).sort()).toEqual(Object.keys(want.columns).sort());
    for (const [name, col] of c.columns) {
      const got: unknown[] = [];
      for (let i = 0; i < col.length; i++) {
        const v = col instanceof Strings ? col.at(i) : (col[i] as number);
        got.push(typeof v === "number" && Number.isNaN(v) ? null : v);
      }
      expect(got, name).toEqual(want.columns[name]);
    }
    for (const k of Object.keys(want.head)) expect(c.head[k as keyof typeof c.head], k).toEqual(want.head[k]);
    const blocks = async (list: { blob: number }[]) => (await Promise.all(list.map(async (b) => JSON.parse(new TextDecoder().decode(await c.blob(b.blob))) as unknown[]))).flat();
    if (want.attrs) expect(await blocks(c.head.attrs)).toEqual(want.attrs);
    if (want.details) expect(await blocks(c.head.details)).toEqual(want.details);
    // What the page reads of it fits together.
    const rows = readRows(c), table = readTable(c);
    expect(table.itemFrom[rows.n]).toBe(table.start.length);
    expect(table.reqFrom[rows.n]).toBe(table.req.n);
  });
});

describe("encodings", () => {
  const column = (type: ColumnHead["type"], enc: ColumnHead["enc"], count: number, data: number[]) => decodeColumn({ name: "x", type, enc, count, blob: 0, offset: 0, bytes: data.length }, Uint8Array.from(data));
  test.each([
    ["uv", [0, 0x7f, 0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f], 4, [0, 127, 128, 4294967295]],
    ["zv", [0, 1, 2, 3, 0x80, 0x01], 5, [0, -1, 1, -2, 64]],
    ["dv", [0x14, 0x01, 0x02, 0x80, 0x01], 4, [10, 9, 10, 74]],
    ["ov", [0, 1, 2, 3, 0x82, 0x01], 5, [NaN, 0, -1, 1, -65]],
  ] as const)("%s", (enc, data, n, want) => {
    expect([...(column("f64", enc, n, [...data]) as Float64Array)]).toEqual([...want]);
  });
  // Nearly all of one byte: read by runs.
  test.each([
    ["none longer", []],
    ["the first", [0]],
    ["the last", [199]],
    ["neighbours", [70, 71, 72]],
    ["scattered", [3, 8, 64, 129, 130, 190]],
  ] as const)("runs of one byte: %s", (_, longer) => {
    for (const [type, enc] of [["u8", "uv"], ["u16", "uv"], ["u32", "uv"], ["f64", "uv"], ["i32", "zv"], ["f64", "zv"]] as const) {
      for (const n of [200, 201, 202, 203]) {
        const want = Array.from({ length: n }, (_, i) => ((longer as readonly number[]).includes(i) ? (type === "u8" ? 128 + i % 100 : 300 + 71 * i) : (i * 37) % 64) * (enc === "zv" && i % 2 === 1 ? -1 : 1));
        const bytes = want.flatMap((v) => {
          let u = enc === "zv" ? (v < 0 ? -2 * v - 1 : 2 * v) : v;
          const out: number[] = [];
          for (; u >= 128; u = Math.floor(u / 128)) out.push((u % 128) | 128);
          return [...out, u];
        });
        // -0 is what multiplying made of 0.
        expect([...(column(type, enc, n, bytes) as Float64Array)], `${type} ${enc} ${n}`).toEqual(want.map((v) => v + 0));
        expect(() => column(type, enc, n, [...bytes.slice(0, -1), 0x80])).toThrow(/is cut/);
        expect(() => column(type, enc, n - 1, bytes)).toThrow(/too many/);
        expect(() => column(type, enc, n + 1, bytes)).toThrow(ContainerError);
      }
    }
  });
  test("integers of 53 bits", () => {
    const bytes: number[] = [];
    let v = 2n * BigInt(Number.MAX_SAFE_INTEGER);
    for (; v >= 128n; v >>= 7n) bytes.push(Number(v & 127n) | 128);
    bytes.push(Number(v));
    expect([...(column("f64", "zv", 1, bytes) as Float64Array)]).toEqual([Number.MAX_SAFE_INTEGER]);
  });
  test.each([
    ["cut in a varint", "f64", "uv", 1, [0x80]],
    ["fewer bytes than values", "f64", "uv", 3, [1, 2]],
    ["bytes left over", "f64", "uv", 1, [1, 2]],
    ["raw of another size", "f64", "raw", 1, [1, 2, 3]],
    ["strings longer than they say", "str", "str", 1, [1, 65, 66]],
    ["strings cut", "str", "str", 1, [5, 65]],
    ["an endless varint", "f64", "uv", 1, Array(40).fill(0xff)],
    ["a negative count", "f64", "uv", -1, []],
    ["an unknown encoding", "f64", "zz" as "uv", 0, []],
  ] as const)("%s is an error", (_, type, enc, n, data) => {
    expect(() => column(type, enc, n, [...data])).toThrow(ContainerError);
  });
});

describe("what is no container", () => {
  test.each([
    ["nothing", new Uint8Array(0)],
    ["text", new TextEncoder().encode("<html>hello")],
    ["a head that is cut", Uint8Array.of(0x52, 0x54, 0x43, 0x31, 255, 0, 0, 0, 123)],
    ["a head that is no JSON", Uint8Array.of(0x52, 0x54, 0x43, 0x31, 1, 0, 0, 0, 123)],
  ])("%s", async (_, bytes) => {
    await expect(decode(bytes)).rejects.toThrow(ContainerError);
  });
  test("another format or version", async () => {
    await expect(decode(await encode({ format: "x" }, {}))).rejects.toThrow(/format/);
    await expect(decode(await encode({ version: 2 }, {}))).rejects.toThrow(/version 2/);
  });
  test("every cut of a real one is an error, never a hang", async () => {
    const whole = await step({ samples: 4, attrs: false });
    for (let n = 0; n < whole.length; n += 1 + Math.floor(whole.length / 60)) await expect(decode(whole.slice(0, n))).rejects.toThrow(ContainerError);
  });
  test("changed bytes give an error or numbers, never something else", async () => {
    const whole = await step({ samples: 4, attrs: false });
    for (let k = 0; k < 60; k++) {
      const bad = whole.slice();
      bad[8 + ((k * 7919) % (bad.length - 8))]! ^= 1 << (k % 8);
      try {
        const c = await decode(bad);
        readRows(c);
        readTable(c);
      } catch (err) {
        expect(err, String((err as Error).stack)).toBeInstanceOf(Error);
        expect((err as Error).name).toMatch(/ContainerError|TypeError/);
      }
    }
  });
  test("a blob that inflates to more than it says stops there", async () => {
    const bytes = await encode({ dicts: {}, unit_ns: 1000 }, { "row.ordinal": Array.from({ length: 5000 }, (_, i) => i) });
    const text = new TextDecoder("latin1").decode(bytes);
    const raw = /"raw":(\d+)/.exec(text)!;
    const at = text.indexOf(raw[0]) + 6;
    const lie = bytes.slice();
    lie.set(new TextEncoder().encode("1".padStart(raw[1]!.length, " ")), at);
    await expect(decode(lie)).rejects.toThrow(/more than the 1 bytes/);
  });
});

test("base64 with and without the browser's own decoder", async () => {
  const bytes = await untraced(3);
  const text = toBase64(bytes);
  const check = () => {
    const out = new Uint8Array(bytes.length + 3);
    expect(fromBase64(text, out)).toBe(bytes.length);
    expect(out.subarray(0, bytes.length)).toEqual(bytes);
    expect(() => fromBase64("%%%", out)).toThrow(ContainerError);
    expect(() => fromBase64(text, new Uint8Array(bytes.length - 1))).toThrow(ContainerError);
  };
  check();
  const native = Object.getOwnPropertyDescriptor(Uint8Array.prototype, "setFromBase64");
  // The other kind than this engine has.
  Object.defineProperty(Uint8Array.prototype, "setFromBase64", { configurable: true, value: native ? undefined : setFromBase64 });
  try {
    check();
  } finally {
    if (native) Object.defineProperty(Uint8Array.prototype, "setFromBase64", native);
    else delete (Uint8Array.prototype as { setFromBase64?: unknown }).setFromBase64;
  }
});

/** As the standard has it: what fits is written, and how far the text was read is told. */
function setFromBase64(this: Uint8Array, text: string): { read: number; written: number } {
  const all = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const n = Math.min(all.length, this.length - (all.length > this.length ? this.length % 3 : 0));
  this.set(all.subarray(0, n));
  return { read: n === all.length ? text.length : (n / 3) * 4, written: n };
}

test("what no picture needs is decoded when it is asked for, or when the source settles", async () => {
  const bytes = await step({ samples: 6, attrs: false });
  const c = await decode(bytes);
  const s = new LocalSource(c);
  const want = readWhole(await decode(bytes));
  expect(s.table.req.rid.at(1)).toBe(want.req.rid.at(1));
  await s.settle();
  expect(c.columns.has("req.rid")).toBe(false);
  expect(s.table).toEqual(want);
});

test("damage in it is an error of settling", async () => {
  const n = 5;
  const bytes = await encode({ dicts: {}, unit_ns: 1000 }, { "row.ordinal": [0], "row.items": [0], "row.requests": [n], "req.e2e": [1, 2, 3, 4, 5] });
  const c = await decode(bytes);
  const head = c.head.columns.find((h) => h.name === "req.e2e")!;
  head.count++;
  await expect(new LocalSource(c).settle()).rejects.toThrow(/column req.e2e/);
});

describe("a container of which the end comes later", () => {
  const cut = (bytes: Uint8Array): number => {
    const head = new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true);
    const h = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + head))) as Head;
    const later = [...h.attrs, ...h.details, ...h.texts].map((b) => h.blobs[b.blob]!.offset);
    return 8 + head + Math.min(...later);
  };
  const whole = new Uint8Array(readFileSync(golden + "f02.rtc"));
  test("its columns are read at once, the rest when it is asked for", async () => {
    const at = cut(whole);
    expect(at).toBeLessThan(whole.length);
    let asked = 0;
    const c = await decode(whole.slice(0, at), async () => (asked++, whole.slice(at)));
    const want = await decode(whole);
    expect(readTable(c)).toEqual(readTable(want));
    expect(asked).toBe(0);
    for (const b of [...c.head.attrs, ...c.head.details, ...c.head.texts]) expect(await c.blob(b.blob)).toEqual(await want.blob(b.blob));
    expect(asked).toBeGreaterThan(0);
  });
  test("an end that is cut is an error of what stands there", async () => {
    const at = cut(whole);
    const c = await decode(whole.slice(0, at), async () => whole.slice(at, whole.length - 1));
    const list = [...c.head.attrs, ...c.head.details, ...c.head.texts].map((b) => b.blob);
    const last = list.reduce((a, b) => (c.head.blobs[b]!.offset > c.head.blobs[a]!.offset ? b : a));
    await expect(c.blob(last)).rejects.toThrow(/cut/);
  });
  test("columns that are cut are an error, also with a rest", async () => {
    await expect(decode(whole.slice(0, cut(whole) - 1), async () => whole)).rejects.toThrow(ContainerError);
  });
});

test("times are microseconds, whatever the unit", async () => {
  const at = async (unit: number) => {
    const c = await decode(await encode({ unit_ns: unit, dicts: {} }, { "row.ordinal": [0], "row.items": [1], "row.requests": [0], "row.start": [5], "item.start": [5], "item.dur": [7] }));
    return [readRows(c).start[0], readTable(c).start[0], readTable(c).dur[0]];
  };
  expect(await at(1000)).toEqual([5, 5, 7]);
  expect(await at(1_000_000)).toEqual([5000, 5000, 7000]);
});

test("a row of many items", async () => {
  const c = await decode(await oneRow(20_000));
  const t = readTable(c);
  expect(t.start.length).toBe(20_000);
});
