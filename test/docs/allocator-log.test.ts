/** The guide's table of the log of an allocator beside the kinds of lines that there are. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { LOG_KINDS } from "../../src/model/allocation.js";

it("the guide explains every kind of line in the log of an allocator, and no other", () => {
  const guide = readFileSync(new URL("../../docs/guide/slurm-allocations.md", import.meta.url), "utf8");
  const [, table = ""] = /## What each line of the log means\n([\s\S]*?)\n## /.exec(guide) ?? [];
  const firstCells = [...table.matchAll(/^\| (`.*?) \|/gm)].map(([, cell = ""]) => cell);
  const explained = new Set(firstCells.flatMap((cell) => [...cell.matchAll(/`(\w+)/g)].map(([, kind]) => kind)));
  expect([...explained].sort()).toEqual([...LOG_KINDS].sort());
});
