import { it } from "vitest";
import { expectRuleTable } from "../../support/rule-table.js";

const PAGE = "docs/reference/protocols/round-robin.md";

it("every rule of the text has a test, and every test is in the table", () => {
  const files = ["server", "peers"].map((side) => `test/protocols/round-robin/text-${side}.test.ts`);
  expectRuleTable(PAGE, "section", files);
});

it("every command of the example has a test, and every test is in the table", () => {
  expectRuleTable(PAGE, "example", ["test/cli/rr-example.test.ts"]);
});
