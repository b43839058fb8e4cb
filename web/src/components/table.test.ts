import { expect, test } from "vitest";
import { nextSort, sorted, type Column } from "./table";

interface Row {
  name: string;
  v: number | null;
}
const columns: Column<Row>[] = [
  { key: "name", title: "", cell: (r) => r.name, value: (r) => r.name },
  { key: "v", title: "", cell: (r) => r.v, value: (r) => r.v },
];
const rows: Row[] = [{ name: "b10", v: null }, { name: "b2", v: 3 }, { name: "a", v: 3 }, { name: "c", v: -1 }];
const names = (sort: string) => sorted(rows, columns, sort).map((r) => r.name).join(" ");

test("sorting is stable, names by number, what has no value is last both ways", () => {
  expect(names("")).toBe("b10 b2 a c");
  expect(names("name")).toBe("a b2 b10 c");
  expect(names("-name")).toBe("c b10 b2 a");
  expect(names("v")).toBe("c b2 a b10");
  expect(names("-v")).toBe("b2 a c b10");
  expect(names("gone")).toBe("b10 b2 a c");
});

test("clicks on a header go one way, the other, and back", () => {
  expect(nextSort("", "v", true)).toBe("-v");
  expect(nextSort("-v", "v", true)).toBe("v");
  expect(nextSort("v", "v", true)).toBe("");
  expect(nextSort("-other", "v", false)).toBe("v");
});
