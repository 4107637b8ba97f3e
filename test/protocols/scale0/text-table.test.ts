/** The tables of rules in docs/reference/protocols/scale0.md. */
import { it } from "vitest";
import { expectRulesTested } from "../../support/rule-table.js";

const inFolder = (...names: string[]): string[] => names.map((name) => `scale0/${name}.test.ts`);

it("every rule of the text has a test, and every test is in the table", () => {
  expectRulesTested({
    page: "scale0",
    heading: "rule",
    columns: [inFolder("text-broker"), inFolder("text-worker")],
  });
});

it("everything that is settled has a test", () => {
  expectRulesTested({
    page: "scale0",
    heading: "settled",
    columns: [
      inFolder("requests", "refusals", "limits", "other-brokers", "req-worker", "config-push", "prototype"),
      inFolder("worker", "client", "limits"),
    ],
    partial: true,
  });
});
