import { it } from "vitest";
import { expectRuleTable } from "../../support/rule-table.js";

const PAGE = "docs/reference/protocols/fuq.md";

it.each([
  ["version 2", "v2"],
  ["version 1", "v1"],
])("%s: every rule has a test, and every test is in the table", (heading, version) => {
  const files = ["foreman", "worker"].map((side) => `test/protocols/fuq/${side}/text-${version}.test.ts`);
  expectRuleTable(PAGE, heading, files);
});
