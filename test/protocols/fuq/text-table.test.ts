/** The tables of rules in docs/reference/protocols/fuq.md. */
import { it } from "vitest";
import { expectRulesTested } from "../../support/rule-table.js";

it.each([
  ["version 2", "v2"],
  ["version 1", "v1"],
])("%s: every rule has a test, and every test is in the table", (heading, version) => {
  const columns = ["foreman", "worker"].map((side) => [`fuq/${side}/text-${version}.test.ts`]);
  expectRulesTested({ page: "fuq", heading, columns });
});
