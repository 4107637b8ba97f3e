/**
 * How the server finds what each statement asks for, in a database with 300,000 finished tasks and tens of thousands under way: by an index, never
 * by looking at all of them. Plans are those for any values, which is what a statement has that is used again and again.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHANGES } from "../../../src/store/postgres/change-feed.js";
import { BEGIN_BATCH } from "../../../src/store/postgres/commit-queue.js";
import { HEARTBEAT, JOB_SUMMARIES } from "../../../src/store/postgres/group.js";
import { conditionsOf, JOB, KEEP_OVER, OWN_KEEP_OVER, pageOfJobs } from "../../../src/store/postgres/job-rows.js";
import { ENTRIES } from "../../../src/store/postgres/known-rows.js";
import { ADD_STARTS, EDITED_LIMITS, LIMIT_USE } from "../../../src/store/postgres/limit-rows.js";
import { CANCEL, HOLD, LOCK_ENDING_JOBS, REMOVE, TOTALS } from "../../../src/store/postgres/operations/cancel.js";
import { ADOPT, CLAIM, HELD } from "../../../src/store/postgres/operations/claim.js";
import { leaseStatement, RELEASE } from "../../../src/store/postgres/operations/lease.js";
import { APPEND, FIND_OUTPUT, OUTPUT_ENDS, OUTPUT_ROWS } from "../../../src/store/postgres/operations/output.js";
import {
  CHANGE_SCHEDULES,
  DUE_SCHEDULES,
  EARLIEST_SCHEDULE,
  SET_SCHEDULE_JOBS,
} from "../../../src/store/postgres/operations/schedule.js";
import { replaceStatement, settleStatement } from "../../../src/store/postgres/operations/settle.js";
import {
  DELAYED_COUNT,
  FIND_SUBMITTED,
  FREE_KEYS,
  INSERT_ENTRIES,
  KEY_HOLDERS,
  NEXT_DELAYED,
  PROMOTE,
  SUBMIT,
} from "../../../src/store/postgres/operations/submit.js";
import { EARLIER, ENDS, pageOfResults } from "../../../src/store/postgres/result-columns.js";
import { LOCK_LIMITS, LOCK_SCHEDULES, LOCK_TASK_RANGES, lockJobs } from "../../../src/store/postgres/write-batch.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

const JOBS = 6_000;
const FILL = `
INSERT INTO laboro.job_state (job, ended_at, ended_state, changed_xid, changed_by)
SELECT j, CASE WHEN j % 10 > 0 THEN j END, CASE WHEN j % 10 > 0 THEN 0 END, j::text::xid8, 1 FROM generate_series(1, ${JOBS}) j;
INSERT INTO laboro.job (id, created, count, cursor, has_entries, held, name, pool, key, idempotency_key, spec)
SELECT j, j, 50, 50, false, false, 'job ' || j, 'pool ' || j % 100, 'key ' || j, 'submission ' || j, '' FROM generate_series(1, ${JOBS}) j;
INSERT INTO laboro.job_counters (job, epoch, succeeded) SELECT j, e, 25 FROM generate_series(1, ${JOBS}) j, generate_series(1, 2) e;
INSERT INTO laboro.worker (name) SELECT 'worker ' || w FROM generate_series(1, 50) w;
INSERT INTO laboro.result (job, idx, attempt, state, worker, started, ended, output_bytes, code)
SELECT j, i, 1, CASE WHEN i % 25 = 0 THEN 1 ELSE 0 END, 1 + i % 50, 1, 2, 0, 0 FROM generate_series(1, ${JOBS}) j, generate_series(0, 49) i;
INSERT INTO laboro.earlier_attempt SELECT * FROM laboro.result WHERE idx < 5;
INSERT INTO laboro.output (job, start_offset, idx, attempt, reopen_count, stream, bytes)
SELECT j, i * 10, 3, 1, 0, 0, '0123456789' FROM generate_series(1, ${JOBS}) j, generate_series(0, 9) i;
INSERT INTO laboro.entry_chunk (job, first, last, bytes)
SELECT j, c * 10, c * 10 + 9, 'x' FROM generate_series(1, ${JOBS}) j, generate_series(0, 4) c;
INSERT INTO laboro.task_range (id, job, epoch, not_before, first, last, attempt, failures, crashes, worker)
SELECT j * 10 + p, j, CASE WHEN p < 2 THEN NULL ELSE p END, 0, p * 2, p * 2 + 1, 1, 0, 0, CASE WHEN p > 3 THEN 'worker ' || j END
FROM generate_series(10, ${JOBS}) j, generate_series(0, 5) p;
INSERT INTO laboro.limit_start SELECT 'limit ' || l, 1, at, 1 FROM generate_series(1, 100) l, generate_series(1, 500) at;
INSERT INTO laboro.schedule (name, revision, next_at, spec, state, changed_xid, changed_by)
SELECT 'schedule ' || n, n, 1e12 + n, '', '{}', n::text::xid8, 1 FROM generate_series(1, 10000) n;
INSERT INTO laboro.last_batch SELECT e, 1 FROM generate_series(1, 3) e;
INSERT INTO laboro.broker (info, lease_ends_at) SELECT '', now() FROM generate_series(1, 3);
ANALYZE`;

/** Small whatever happens: a broker each, or what is kept by key. */
const SMALL = ["broker", "last_batch", "key_value", "worker"];

let harness: DatabaseHarness;

beforeAll(async () => {
  harness = await postgresHarness();
  await harness.sql.unsafe(FILL);
});

afterAll(() => harness.dispose());

interface Node {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly Plans?: readonly Node[];
}

function scannedWhole(node: Node): string[] {
  const { "Node Type": type, "Relation Name": relation = "", Plans = [] } = node;
  const here = type === "Seq Scan" && !SMALL.includes(relation) ? [relation] : [];
  return [...here, ...Plans.flatMap(scannedWhole)];
}

async function planOf(statement: string, options: string, values: (string | number)[] = []): Promise<Node> {
  const [row] = await harness.sql.unsafe<{ "QUERY PLAN": [{ Plan: Node }] }[]>(
    `EXPLAIN (FORMAT JSON${options}) ${statement}`,
    values,
  );
  if (row === undefined) throw new Error("there is a plan");
  return row["QUERY PLAN"][0].Plan;
}

const BATCH: readonly (readonly [string, string])[] = [
  ["mark", BEGIN_BATCH],
  ["lock jobs for results", lockJobs("KEY SHARE")],
  ["lock jobs for leases", lockJobs("NO KEY UPDATE")],
  ["lock jobs for cancels", lockJobs("UPDATE")],
  ["lock task ranges", LOCK_TASK_RANGES],
  ["settle", settleStatement(false)],
  ["settle, with errors", settleStatement(true)],
  ["claim", CLAIM],
  ["replace", replaceStatement("none")],
  ["replace, with ends", replaceStatement("plain")],
  ["replace, with errors", replaceStatement("rare")],
  ["lease", leaseStatement(false)],
  ["lease, of a job with limits", leaseStatement(true)],
  ["use of limits", LIMIT_USE],
  ["limits of edited jobs", EDITED_LIMITS],
  ["starts of limits", ADD_STARTS],
  ["lock limits", LOCK_LIMITS],
  ["submit", SUBMIT],
  ["keep entries", INSERT_ENTRIES],
  ["submitted before", FIND_SUBMITTED],
  ["free keys", FREE_KEYS],
  ["key holders", KEY_HOLDERS],
  ["promote", PROMOTE],
  ["append output", APPEND],
  ["take turns", LOCK_ENDING_JOBS],
  ["totals", TOTALS],
  ["release", RELEASE],
  ["adopt", ADOPT],
  ["held", HELD],
  ["cancel", CANCEL],
  ["hold", HOLD],
  ["remove", REMOVE],
  ["beat", HEARTBEAT],
  ["lock schedules", LOCK_SCHEDULES],
  ["change schedules", CHANGE_SCHEDULES],
  ["jobs of schedules", SET_SCHEDULE_JOBS],
];

const READS: readonly (readonly [string, string])[] = [
  ["job", JOB],
  ["results", pageOfResults()],
  ["succeeded", pageOfResults("succeeded")],
  ["failed", pageOfResults("failed")],
  ["earlier", EARLIER],
  ["ends", ENDS],
  ["entries", ENTRIES],
  ["find output", FIND_OUTPUT],
  ["output", OUTPUT_ROWS],
  ["ends of output", OUTPUT_ENDS],
  ["due schedules", DUE_SCHEDULES],
  ["the earliest schedule", EARLIEST_SCHEDULE],
  ["next delayed", NEXT_DELAYED],
  ["delayed jobs", DELAYED_COUNT],
  ["own keep over", OWN_KEEP_OVER],
  ["keep over", KEEP_OVER],
];

it("would notice a statement that looks at every task", async () => {
  expect(scannedWhole(await planOf("SELECT * FROM laboro.result WHERE started = 7", ""))).toEqual(["result"]);
});

describe("statements of a batch", () => {
  it.each(BATCH)("%s", async (_, statement) => {
    expect(scannedWhole(await planOf(statement, ", GENERIC_PLAN"))).toEqual([]);
  });
});

describe("reading", () => {
  it.each(READS)("%s", async (_, statement) => {
    expect(scannedWhole(await planOf(statement, ", GENERIC_PLAN"))).toEqual([]);
  });

  it.each([
    ["the key", { key: "key 17" }],
    ["the batch key", { batchKey: "key 17" }],
    ["the idempotency key", { idempotencyKey: "submission 17" }],
    ["the name", { name: "job 17" }],
    ["the beginning of the name", { name: "job 17*" }],
    ["the pool", { pool: "pool 17" }],
    ["nothing", {}],
    ["being open", { states: ["open"] }],
    ["failure", { states: ["failed"] }],
    ["the time of their end", { endedBefore: 17 }],
  ] as const)("jobs by %s", async (_, filter) => {
    for (const conditions of conditionsOf(filter)) {
      const values = [1_000_000, 50, ...conditions.map(({ value }) => String(value))];
      expect(scannedWhole(await planOf(pageOfJobs(conditions), "", values))).toEqual([]);
    }
  });

  it("what others changed lately", async () => {
    expect(scannedWhole(await planOf(CHANGES, "", [String(JOBS - 10), 7]))).toEqual([]);
  });

  it("open jobs at a glance", async () => {
    expect(scannedWhole(await planOf(JOB_SUMMARIES, "", [1]))).toEqual([]);
  });
});
