/** The tables of rules in docs/reference/protocols/runexp.md and the tests that they name. */
import { it } from "vitest";
import { expectRuleTable } from "../../support/rule-table.js";

it.each([
  ["server side", "text-manager"],
  ["client side", "text-runner"],
])("%s: every rule has a test, and every test is in the table", (heading, file) => {
  expectRuleTable("docs/reference/protocols/runexp.md", heading, [`test/protocols/runexp/${file}.test.ts`]);
});
