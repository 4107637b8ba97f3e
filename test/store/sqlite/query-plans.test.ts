import { DatabaseSync } from "@photostructure/sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { conditionsOf } from "../../../src/store/sqlite/job-filter.js";
import { pageOfJobs } from "../../../src/store/sqlite/job-table.js";
import { migrate } from "../../../src/store/sqlite/migrations/index.js";
import { pageOfResults } from "../../../src/store/sqlite/result-table.js";
import { ANY_STATE, stateQuery } from "../../../src/store/sqlite/task-states.js";

let db: InstanceType<typeof DatabaseSync>;
beforeEach(() => {
  db = new DatabaseSync(":memory:");
  migrate(db);
});
afterEach(() => db.close());

function plan(sql: string): string {
  const rows: { detail: string }[] = db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all();
  return rows.map(({ detail }) => detail).join("; ");
}

it.each(["failed", "cancelled"] as const)("finds %s results by their own index, in order", (state) => {
  const found = plan(pageOfResults(stateQuery(state)));
  expect(found).toContain("USING INDEX result_unsuccessful (job=? AND state=? AND idx>?)");
  expect(found).not.toMatch(/SCAN result|TEMP B-TREE/);
});

it("finds all results, and the succeeded ones, by the primary key", () => {
  for (const wanted of [ANY_STATE, stateQuery("succeeded")]) {
    expect(plan(pageOfResults(wanted))).toContain("SEARCH result USING PRIMARY KEY (job=? AND idx>?)");
  }
});

it.each([
  ["job_key", { key: "k" }],
  ["job_idempotency_key", { idempotencyKey: "k" }],
  ["job_pool", { pool: "p" }],
  ["job_name", { name: "n" }],
  ["job_open", { states: ["open"] }],
] as const)("finds jobs by the index %s, newest first", (index, filter) => {
  const found = plan(pageOfJobs(conditionsOf(filter).map(({ sql }) => sql)));
  expect(found).toContain(`USING INDEX ${index}`);
  expect(found).not.toContain("TEMP B-TREE");
});
