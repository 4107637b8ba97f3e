/** The tables of rules in docs/reference/protocols/fuq.md and the tests that they name. */
import { it } from "vitest";
import { expectRuleTable } from "../../support/rule-table.js";

it.each([
  ["version 2", "v2"],
  ["version 1", "v1"],
])("%s: every rule has a test, and every test is in the table", (heading, version) => {
  const files = ["foreman", "worker"].map((side) => new URL(`./${side}/text-${version}.test.ts`, import.meta.url));
  expectRuleTable("fuq.md", heading, files);
});
