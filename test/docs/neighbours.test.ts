import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

/** Rows of tables that begin with this cell: the first cell of each, and of the rest what is no, – or in part. */
function claimsIn(page: string, section: RegExp, skip: number): Map<string, string[]> {
  const text = readFileSync(join(REPOSITORY, page), "utf8")
    .split(/^## /m)
    .filter((part) => section.test(part))
    .join("");
  const rows = Array.from(text.matchAll(/^\| ([a-z].*) \|$/gm), ([, row = ""]) => row.split(" | "));
  const kindOf = (cell: string): string => /^(?:no\b|–|in part)/.exec(cell)?.[0] ?? "yes";
  return new Map(rows.map(([name = "", ...cells]) => [name, cells.slice(skip).map(kindOf)]));
}

it("each cell about a neighbour in the README has its source in docs/reference/neighbours.md, of the same kind", () => {
  const claims = claimsIn("README.md", /^Compared with others/, 1);
  expect(claims.size).toBeGreaterThan(15);
  expect(claimsIn("docs/reference/neighbours.md", /^(Submitting|Control|Workers and servers)/, 0)).toEqual(claims);
});
