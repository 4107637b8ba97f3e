/** A table of rules on a protocol's reference page: it names a test for each rule, and no test that is not there. */
import { readFileSync } from "node:fs";
import { expect } from "vitest";

const titles = (file: URL): string[] =>
  Array.from(
    readFileSync(file, "utf8").matchAll(/\bit(?:\.each\((?:[^()]|\([^()]*\))*\))?\(\s*"([^"]+)"/g),
    ([, title = ""]) => title,
  );

/**
 * `name` is the page below docs/reference/protocols, `heading` the head of the table's first column. The columns after it name tests by the
 * beginnings of their titles, one file a column.
 */
export function expectRuleTable(name: string, heading: string, files: readonly URL[]): void {
  const page = readFileSync(new URL(`../../docs/reference/protocols/${name}`, import.meta.url), "utf8");
  const section = page.slice(page.search(/^## .*rule by rule/m));
  const table = section.slice(section.indexOf(`| ${heading} |`)).split("\n\n")[0] ?? "";
  const rows = table
    .split("\n")
    .slice(2)
    .map((row) =>
      row
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
  expect(rows.length).toBeGreaterThan(10);
  for (const [at, file] of files.entries()) {
    const tests = titles(file);
    const named = rows.map((cells) => (cells[at + 1] ?? "").replaceAll("`", "")).filter((cell) => cell !== "");
    for (const test of named) expect([test, tests.filter((title) => title.startsWith(test)).length]).toEqual([test, 1]);
    for (const title of tests) expect([title, named.some((test) => title.startsWith(test))]).toEqual([title, true]);
  }
  for (const cells of rows) {
    expect([cells[0], files.some((_file, at) => (cells[at + 1] ?? "") !== "")]).toEqual([cells[0], true]);
  }
}
