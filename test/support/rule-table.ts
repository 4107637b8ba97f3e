/** The tables of a protocol's reference page that map each rule of its text to a test. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { REPOSITORY } from "./launched.js";

const read = (path: string): string => readFileSync(join(REPOSITORY, path), "utf8");

const titles = (path: string): string[] =>
  Array.from(read(path).matchAll(/(?:\bit|\))\(\s*"([^"]+)"/g), ([, title = ""]) => title);

/** Rows of the table whose first column has this heading. */
function rowsOf(page: string, heading: string): string[][] {
  const text = read(page);
  const table = text.slice(text.indexOf(`| ${heading} |`)).split("\n\n")[0] ?? "";
  const cells = (row: string): string[] =>
    row
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim());
  return table.split("\n").slice(2).map(cells);
}

/**
 * Each rule has a test, and, unless `partial`, each test of these files is in the table. `files` are those of the second column, the third,
 * and so on; a column may name tests of several. A cell has the beginning of one test's title.
 */
export function expectRuleTable(
  page: string,
  heading: string,
  files: readonly (string | readonly string[])[],
  { partial = false } = {},
): void {
  const rows = rowsOf(page, heading);
  expect(rows.length).toBeGreaterThan(5);
  for (const [at, file] of files.entries()) {
    const tests = [file].flat().flatMap(titles);
    const named = rows.map((cells) => (cells[1 + at] ?? "").replaceAll("`", "")).filter((name) => name !== "");
    for (const name of named) expect([name, tests.filter((title) => title.startsWith(name)).length]).toEqual([name, 1]);
    if (partial) continue;
    for (const title of tests) expect([title, named.some((name) => title.startsWith(name))]).toEqual([title, true]);
  }
  for (const cells of rows)
    expect([cells[0], cells.slice(1, 1 + files.length).join("") !== ""]).toEqual([cells[0], true]);
}
