/**
 * How the server finds what each statement asks for, in a database with 300,000 finished tasks and tens of thousands under way: by an index, never
 * by looking at all of them. Plans are those for any values, which is what a statement has that is used again and again.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHANGES } from "../../../src/store/postgres/change-feed.js";
import { BEGIN_BATCH } from "../../../src/store/postgres/commit-queue.js";
import { ENTRIES } from "../../../src/store/postgres/entry-cache.js";
import { HEARTBEAT, JOB_SUMMARIES } from "../../../src/store/postgres/group.js";
import { conditionsOf } from "../../../src/store/postgres/job-filter.js";
import { JOB, pageOfJobs } from "../../../src/store/postgres/job-rows.js";
import { LOCK_TASK_RANGES, lockJobs } from "../../../src/store/postgres/locks.js";
import { ADOPT, HELD } from "../../../src/store/postgres/operations/adopt.js";
import { CANCEL } from "../../../src/store/postgres/operations/cancel.js";
import { CLAIM } from "../../../src/store/postgres/operations/claim.js";
import { LOCK_ENDING_JOBS, TOTALS } from "../../../src/store/postgres/operations/end-jobs.js";
import { HOLD } from "../../../src/store/postgres/operations/hold.js";
import { LEASE } from "../../../src/store/postgres/operations/lease.js";
import { APPEND } from "../../../src/store/postgres/operations/output.js";
import { RELEASE } from "../../../src/store/postgres/operations/release.js";
import { replaceStatement } from "../../../src/store/postgres/operations/replace.js";
import { settleStatement } from "../../../src/store/postgres/operations/settle.js";
import { FIND_SUBMITTED, INSERT_ENTRIES, SUBMIT } from "../../../src/store/postgres/operations/submit.js";
import { FIND_OUTPUT, OUTPUT_ENDS, OUTPUT_ROWS } from "../../../src/store/postgres/output-rows.js";
import { EARLIER, ENDS, pageOfResults } from "../../../src/store/postgres/result-rows.js";
import { type DatabaseHarness, databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

const JOBS = 6_000;
const FILL = `
INSERT INTO laboro.job (id, created, ended_at, ended_state, count, cursor, has_entries, held, changed_xid, changed_by, name, pool, key, idempotency_key, spec)
SELECT j, j, CASE WHEN j % 10 > 0 THEN j END, CASE WHEN j % 10 > 0 THEN 0 END, 50, 50, false, false, j::text::xid8, 1,
  'job ' || j, 'pool ' || j % 100, 'key ' || j, 'submission ' || j, '' FROM generate_series(1, ${JOBS}) j;
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
INSERT INTO laboro.last_batch SELECT e, 1 FROM generate_series(1, 3) e;
INSERT INTO laboro.broker (info, lease_ends_at) SELECT '', now() FROM generate_series(1, 3);
ANALYZE`;

/** Small whatever happens: a broker each, or what is kept by key. */
const SMALL = ["broker", "last_batch", "key_value", "worker"];

let harness: DatabaseHarness;

beforeAll(async () => {
  harness = await postgresHarness();
  await harness.sql.unsafe(FILL);
}, 60_000);

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
  ["lease", LEASE],
  ["submit", SUBMIT],
  ["keep entries", INSERT_ENTRIES],
  ["submitted before", FIND_SUBMITTED],
  ["append output", APPEND],
  ["take turns", LOCK_ENDING_JOBS],
  ["totals", TOTALS],
  ["release", RELEASE],
  ["adopt", ADOPT],
  ["held", HELD],
  ["cancel", CANCEL],
  ["hold", HOLD],
  ["beat", HEARTBEAT],
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
    ["the idempotency key", { idempotencyKey: "submission 17" }],
    ["the name", { name: "job 17" }],
    ["the beginning of the name", { name: "job 17*" }],
    ["the pool", { pool: "pool 17" }],
    ["nothing", {}],
    ["being open", { states: ["open"] }],
  ] as const)("jobs by %s", async (_, filter) => {
    const conditions = conditionsOf(filter);
    const values = [1_000_000, 50, ...conditions.map(({ value }) => String(value))];
    expect(scannedWhole(await planOf(pageOfJobs(conditions), "", values))).toEqual([]);
  });

  it("what others changed lately", async () => {
    expect(scannedWhole(await planOf(CHANGES, "", [String(JOBS - 10), 7]))).toEqual([]);
  });

  it("open jobs at a glance", async () => {
    expect(scannedWhole(await planOf(JOB_SUMMARIES, ""))).toEqual([]);
  });
});
