/**
 * In a new database the tables have no statistics, and a statement is planned once for each connection. Whatever the planner takes the
 * tables for, rows that are named by their ids are looked up by their ids: the other indexes name all of a broker's task ranges and all
 * open jobs, with dead rows among them.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LOCK_ENDING_JOBS, TOTALS } from "../../../src/store/postgres/operations/cancel.js";
import { CLAIM } from "../../../src/store/postgres/operations/claim.js";
import { RELEASE } from "../../../src/store/postgres/operations/lease.js";
import { replaceStatement, settleStatement } from "../../../src/store/postgres/operations/settle.js";
import { LOCK_TASK_RANGES } from "../../../src/store/postgres/write-batch.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();
let harness: DatabaseHarness;

beforeAll(async () => {
  harness = await postgresHarness();
});

afterAll(() => harness.dispose());

describe("statements that name task ranges or jobs by their ids", () => {
  it.each([
    ["lock task ranges", LOCK_TASK_RANGES],
    ["settle", settleStatement(false)],
    ["claim", CLAIM],
    ["replace", replaceStatement("rare")],
    ["release", RELEASE],
    ["totals", TOTALS],
    ["jobs that may end", LOCK_ENDING_JOBS],
  ])("%s", async (_, statement) => {
    const plan = await harness.sql.begin(async (sql) => {
      await sql.unsafe("SET LOCAL enable_seqscan = off");
      return sql.unsafe(`EXPLAIN (GENERIC_PLAN) ${statement}`);
    });
    const lines = plan.map((row) => Object.values(row).join());
    expect(lines.filter((line) => /job_open|\(epoch = /.test(line) && !/job = j\.id/.test(line))).toEqual([]);
  });
});
