import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

type Packages = Readonly<Record<string, string>>;

interface Manifest {
  readonly dependencies: Packages;
  readonly devDependencies: Packages;
  readonly overrides?: Packages;
}

const read = (...path: string[]): Manifest =>
  JSON.parse(readFileSync(join(REPOSITORY, ...path, "package.json"), "utf8")) as Manifest;
const { dependencies, devDependencies, overrides } = read();
const { dependencies: forTests } = read("test");

/** What stands before the first table, then each table: the packages of its first column, with the text of the others. */
function tables(): { name: string; reasons: string[] }[][] {
  const page = readFileSync(join(REPOSITORY, "docs", "reference", "dependencies.md"), "utf8");
  return page
    .split(/^\| package .*\n\|[-|]+\|\n/m)
    .map((text) =>
      Array.from(text.matchAll(/^\| (`.*?`) \| (.+) \|$/gm), ([, names = "", rest = ""]) =>
        names.split(", ").map((name) => ({ name: name.replaceAll("`", ""), reasons: rest.split(" | ") })),
      ).flat(),
    );
}

describe("docs/reference/dependencies.md", () => {
  const [before, ...lists] = tables();

  it("has a table of what is needed to run, one for development and one for tests", () => {
    expect(before).toEqual([]);
    expect(lists).toHaveLength(3);
  });

  it.each([
    ["dependencies", 0, dependencies],
    ["development dependencies", 1, devDependencies],
    ["test package", 2, forTests],
  ] as const)("lists the %s, each with its reason", (_, place, packages) => {
    const listed = lists[place] ?? [];
    expect(listed.map(({ name }) => name).sort()).toEqual(Object.keys(packages).sort());
    expect(listed.filter(({ reasons }) => reasons.some((reason) => reason.trim() === ""))).toEqual([]);
  });

  it("needs no overrides, which do not reach projects that install the package", () => {
    expect(overrides).toBeUndefined();
  });

  it("tells of versions that are pinned", () => {
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies, ...forTests }))
      expect([name, version]).toEqual([name, expect.stringMatching(/^\d+\.\d+\.\d+(-[\w.]+)?$/)]);
  });
});
