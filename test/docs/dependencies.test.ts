import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

type Packages = Readonly<Record<string, string>>;

const manifest = JSON.parse(readFileSync(join(REPOSITORY, "package.json"), "utf8")) as {
  readonly dependencies: Packages;
  readonly devDependencies: Packages;
  readonly overrides: Packages;
};

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

  it("has a table of what is needed to run, one for development, and one of overrides", () => {
    expect(before).toEqual([]);
    expect(lists).toHaveLength(3);
  });

  it.each([
    ["dependencies", 0],
    ["devDependencies", 1],
    ["overrides", 2],
  ] as const)("lists the %s of package.json, each with its reason", (kind, place) => {
    const listed = lists[place] ?? [];
    expect(listed.map(({ name }) => name).sort()).toEqual(Object.keys(manifest[kind]).sort());
    expect(listed.filter(({ reasons }) => reasons.some((reason) => reason.trim() === ""))).toEqual([]);
  });

  it("tells of versions that are pinned", () => {
    const { dependencies, devDependencies, overrides } = manifest;
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies, ...overrides }))
      expect([name, version]).toEqual([name, expect.stringMatching(/^\d+\.\d+\.\d+(-[\w.]+)?$/)]);
  });
});
