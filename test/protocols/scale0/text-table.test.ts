import { it } from "vitest";
import { expectRuleTable } from "../../support/rule-table.js";

const PAGE = "docs/reference/protocols/scale0.md";
const files = (...names: string[]): string[] => names.map((name) => `test/protocols/scale0/${name}.test.ts`);

it("every rule of the text has a test, and every test is in the table", () => {
  expectRuleTable(PAGE, "rule", files("text-broker", "text-worker"));
});

it("everything that is settled has a test", () => {
  const broker = files("requests", "refusals", "limits", "other-brokers", "req-worker", "config-push", "prototype");
  expectRuleTable(PAGE, "settled", [broker, files("worker", "client", "limits")], { partial: true });
});
