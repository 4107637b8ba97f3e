/** Tables in docs/reference/protocols/ that name a test for each rule of a protocol's text, by the beginning of its title. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { REPOSITORY } from "./launched.js";

export interface RuleTable {
  /** Its page, without the ending. */
  readonly page: string;
  /** The first cell of its head. */
  readonly heading: string;
  /** For each column after the first that names tests: their files below test/protocols/. */
  readonly columns: readonly (readonly string[])[];
  /** The files have other tests, too. */
  readonly partial?: true;
}

const read = (...path: string[]): string => readFileSync(join(REPOSITORY, ...path), "utf8");

const titlesIn = (file: string): string[] =>
  Array.from(read("test", "protocols", file).matchAll(/(?:\bit|\))\(\s*"([^"]+)"/g), ([, title = ""]) => title);

function rowsOf({ page, heading }: RuleTable): string[][] {
  const text = read("docs", "reference", "protocols", `${page}.md`);
  const [table = ""] = text.slice(text.indexOf(`| ${heading} |`)).split("\n\n");
  const cellsOf = (row: string): string[] => row.split(/(?<!\\)\|/).map((cell) => cell.trim());
  return table
    .trimEnd()
    .split("\n")
    .slice(2)
    .map((row) => cellsOf(row).slice(1, -1));
}

/** Every rule has a test, every test that is named is there, once, and, unless `partial`, every test is named. */
export function expectRulesTested(table: RuleTable): void {
  const rows = rowsOf(table);
  expect(rows.length).toBeGreaterThan(5);
  for (const [i, files] of table.columns.entries()) {
    const tests = files.flatMap(titlesIn);
    const named = rows.map((cells) => (cells[i + 1] ?? "").replaceAll("`", "")).filter((name) => name !== "");
    for (const name of named) expect([name, tests.filter((title) => title.startsWith(name)).length]).toEqual([name, 1]);
    if (table.partial === true) continue;
    for (const title of tests) expect([title, named.some((name) => title.startsWith(name))]).toEqual([title, true]);
  }
  for (const [rule, ...cells] of rows) {
    expect([rule, cells.slice(0, table.columns.length).some((cell) => cell !== "")]).toEqual([rule, true]);
  }
}
