/** The table of rules in docs/reference/protocols/fuq.md names a test for each rule, and no test that is not there. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");
const titles = (path: string): string[] =>
  Array.from(read(path).matchAll(/\bit\(\s*"([^"]+)"/g), ([, title = ""]) => title);

const PAGE = read("../../../docs/reference/protocols/fuq.md");
const SECTION = PAGE.slice(
  PAGE.indexOf("## The texts, rule by rule"),
  PAGE.indexOf("## Where this differs from the texts"),
);

it.each([
  ["version 2", "v2"],
  ["version 1", "v1"],
])("%s: every rule has a test, and every test is in the table", (heading, version) => {
  const table = SECTION.slice(SECTION.indexOf(`| ${heading} |`)).split("\n\n")[0] ?? "";
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
  for (const [column, side] of [
    [1, "foreman"],
    [2, "worker"],
  ] as const) {
    const tests = titles(`./${side}/text-${version}.test.ts`);
    const named = rows.map((cells) => (cells[column] ?? "").replaceAll("`", "")).filter((name) => name !== "");
    for (const name of named) expect([name, tests.filter((title) => title.startsWith(name)).length]).toEqual([name, 1]);
    for (const title of tests) expect([title, named.some((name) => title.startsWith(name))]).toEqual([title, true]);
  }
  for (const cells of rows) expect([cells[0], cells[1] !== "" || cells[2] !== ""]).toEqual([cells[0], true]);
});
