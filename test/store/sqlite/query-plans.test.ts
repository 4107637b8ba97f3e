import { DatabaseSync } from "@photostructure/sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import {
  conditionsOf,
  KEEP_OVER,
  NEXT_DELAYED,
  OWN_KEEP_OVER,
  pageOfJobs,
} from "../../../src/store/sqlite/job-table.js";
import { migrate } from "../../../src/store/sqlite/migrations.js";
import { DUE as DUE_JOBS } from "../../../src/store/sqlite/operations/change.js";
import { ANY_STATE, pageOfResults, stateQuery } from "../../../src/store/sqlite/result-table.js";
import { DUE as DUE_SCHEDULES, EARLIEST } from "../../../src/store/sqlite/schedule-table.js";

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
  ["job_batch_key", { batchKey: "k" }],
  ["job_open", { states: ["open"] }],
] as const)("finds jobs by the index %s, newest first", (index, filter) => {
  const [conditions = []] = conditionsOf(filter);
  const found = plan(pageOfJobs(conditions.map(({ sql }) => sql)));
  expect(found).toContain(`USING INDEX ${index}`);
  expect(found).not.toContain("TEMP B-TREE");
});

it("finds the schedules that are due, and the earliest, by an index of those that wait", () => {
  expect(plan(DUE_SCHEDULES)).toContain("USING INDEX schedule_next (next_at<?)");
  expect(plan(EARLIEST)).toContain("USING COVERING INDEX schedule_next");
});

it("finds delayed jobs among those that have not ended by their own index", () => {
  const [, delayed = []] = conditionsOf({ states: ["open"] });
  const found = plan(pageOfJobs(delayed.map(({ sql }) => sql)));
  expect(found).toContain("USING INDEX job_delayed");
  expect(found).not.toContain("TEMP B-TREE");
});

it.each([NEXT_DELAYED, DUE_JOBS])("finds what is due next by an index, in order", (sql) => {
  expect(plan(sql)).toMatch(/SEARCH job USING (COVERING )?INDEX job_not_before/);
  expect(plan(sql)).not.toContain("TEMP B-TREE");
});

it.each([
  ["job_own_keep", OWN_KEEP_OVER],
  ["job_ended", KEEP_OVER],
])("finds jobs that are kept no longer by the index %s, in order", (index, sql) => {
  expect(plan(sql)).toContain(`USING INDEX ${index}`);
  expect(plan(sql)).not.toContain("TEMP B-TREE");
});
