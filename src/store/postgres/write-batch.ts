/** The writes of a batch as one transaction: locks, output, then stage after stage. Also small texts (`put`). */
import { LaboroError } from "../../base/errors.js";
import type { JobId, TaskRangeId } from "../../model/ids.js";
import { LIMIT_BUCKET } from "../../model/limit.js";
import type { Write, WriteResult } from "../../model/store.js";
import { REMOVED_IN_BATCH, withOwnBytes } from "../rows.js";
import type { TransactionWork } from "./commit-queue.js";
import type { Client, Session, Value } from "./connections.js";
import { type EntryCache, SubmissionNumbers, type WorkerNumbers } from "./known-rows.js";
import { isLimitedLease } from "./limit-rows.js";
import { cancel, hold, remove, totalsOf } from "./operations/cancel.js";
import { adopt, claim } from "./operations/claim.js";
import { lease, release } from "./operations/lease.js";
import { APPEND, outputOf } from "./operations/output.js";
import { rerun } from "./operations/rerun.js";
import { schedule } from "./operations/schedule.js";
import { replace, settle } from "./operations/settle.js";
import { edit, promote, submit, wholeClaimsOf } from "./operations/submit.js";
import { type BatchContext, type IndexedWrite, type SingleOp, type Stage, StageProgress, stagesOf } from "./stages.js";
import { numberArray, OWN_EPOCH, owned, textArray, validText } from "./statements.js";

/** Brokers that change the same key wait for each other, even if there is no row to lock yet. */
const LOCK_KEY = `SELECT pg_advisory_xact_lock(hashtextextended($1::text || chr(10) || $2::text, 5429))`;

/** $1 bucket, $2 key, $3 value or null, $4 the version that is expected or null, $5 now. */
const PUT = `
WITH there AS MATERIALIZED (
  SELECT coalesce(max(version), 0) AS version FROM laboro.key_value WHERE bucket = $1::text AND key = $2::text),
right_one AS MATERIALIZED (SELECT version FROM there WHERE ($4::int IS NULL OR version = $4::int) AND ${OWN_EPOCH} > 0),
gone AS (
  DELETE FROM laboro.key_value
  WHERE bucket = $1::text AND key = $2::text AND $3::text IS NULL AND EXISTS (SELECT 1 FROM right_one)),
made AS (
  INSERT INTO laboro.key_value AS k (bucket, key, version, value, updated_at, changed_by)
  SELECT $1::text, $2::text, version + 1, $3::text, $5::float8, ${OWN_EPOCH} FROM right_one WHERE $3::text IS NOT NULL
  ON CONFLICT (bucket, key) DO UPDATE
    SET version = excluded.version, value = excluded.value, updated_at = excluded.updated_at,
      changed_xid = excluded.changed_xid,
      changed_by = CASE k.changed_by WHEN excluded.changed_by THEN k.changed_by ELSE 0 END)
SELECT version, EXISTS (SELECT 1 FROM right_one) AS stored FROM there`;

async function put(batch: BatchContext, { at, write }: IndexedWrite<"put">): Promise<void> {
  const { op, value } = write;
  const [bucket, key] = [validText(write.bucket), validText(write.key)];
  const text = value === null ? null : validText(value);
  const [, rows] = await Promise.all([
    batch.session.send(LOCK_KEY, [bucket, key]),
    batch.session.send<{ version: number; stored: boolean }>(PUT, [
      bucket,
      key,
      text,
      write.version ?? null,
      batch.now,
    ]),
  ]);
  const { version = 0, stored = false } = rows[0] ?? {};
  batch.writeResults[at] = { op, stored, version: stored ? (value === null ? 0 : version + 1) : version };
}

export class WriteBatch implements TransactionWork<readonly WriteResult[]> {
  readonly noTimeout: boolean;
  readonly #writes: readonly Write[];
  readonly #now: number;
  readonly #workers: WorkerNumbers;
  readonly #entries: EntryCache;
  readonly #numbers = new SubmissionNumbers();
  readonly #output: readonly Value[] | undefined;

  constructor(writes: readonly Write[], now: number, workers: WorkerNumbers, entries: EntryCache) {
    this.#writes = writes.map(copied);
    this.#now = now;
    this.#workers = workers;
    this.#entries = entries;
    this.#output = outputOf(writes);
    this.noTimeout = writes.some(({ op }) => op === "rerun" || op === "remove");
  }

  async prepare(client: Client): Promise<void> {
    await this.#workers.load(client, this.#writes);
    await this.#numbers.assign(client, this.#writes);
  }

  async run(session: Session, separately: boolean): Promise<readonly WriteResult[]> {
    const writeResults: (WriteResult | undefined)[] = this.#writes.map(({ op }) =>
      op === "output" ? { op } : undefined,
    );
    const batch: BatchContext = {
      session,
      now: this.#now,
      writeResults,
      workerNumbers: this.#workers.known,
      jobNumbers: this.#numbers.assigned,
      entries: this.#entries,
      mayRemove: REMOVED_IN_BATCH,
    };
    const pending: Promise<unknown>[] = [lockRows(session, this.#writes)];
    if (this.#output !== undefined) {
      const submitted = numberArray([...this.#numbers.assigned.values()]);
      pending.push(session.send(APPEND, [...this.#output, submitted]));
    }
    for (const stage of stagesOf(this.#writes, separately)) {
      // Claims before it may still have to read the job's entries.
      if (stage.singles.some(({ write }) => write.op === "remove")) await Promise.all(pending);
      const done = runStage(batch, stage);
      pending.push(done);
      // Only operations whose statements depend on each other have to be awaited; all others are pipelined.
      const dependent = stage.singles.some(({ write }) => AWAITED.has(write.op)) || stage.leases.some(isLimitedLease);
      if (stage.replacing || dependent) await Promise.all(pending);
    }
    await Promise.all(pending);
    return writeResults.map((result) => {
      if (result === undefined) throw new LaboroError("LABORO_INTERNAL", "a write got no result");
      return result;
    });
  }
}

/** A batch may wait, and be tried again, while the buffers that it came in are used for something else. */
function copied(write: Write): Write {
  if (write.op === "settle") return { ...write, results: withOwnBytes(write.results) };
  return write.op === "replace" ? { ...write, earlierAttempts: withOwnBytes(write.earlierAttempts) } : write;
}

/** Their statements depend on earlier answers. */
const AWAITED: ReadonlySet<Write["op"]> = new Set(["edit", "rerun", "release", "schedule", "promote"]);

async function runStage(batch: BatchContext, stage: Stage): Promise<void> {
  const { submits, settles, replaces, leases, singles } = stage;
  const whole = wholeClaimsOf(stage);
  const claims = stage.claims.filter((one) => whole.get(one.write.from) !== one);
  const stageProgress = new StageProgress();
  const pending: Promise<void>[] = [];
  const begin = <T>(list: readonly T[], operation: () => Promise<void>): void => {
    if (list.length > 0) pending.push(operation());
  };
  begin(submits, () => submit(batch, submits, whole));
  begin(settles, () => settle(batch, stageProgress, settles));
  begin(replaces, () => replace(batch, stageProgress, replaces));
  begin(claims, () => claim(batch, claims));
  begin(leases, () => lease(batch, leases));
  begin(singles, () => runSingle(batch, stageProgress, singles));
  const counted = new Set<JobId>();
  for (const { write } of [...settles, ...replaces]) counted.add(write.job);
  for (const { write } of singles) if (write.op === "cancel") counted.add(write.job);
  const [totals] = await Promise.all([totalsOf(batch, counted), ...pending]);
  const released = singles.some(({ write }) => write.op === "release");
  for (const [at, progress] of stageProgress.progress(released ? await totalsOf(batch, stageProgress.jobs) : totals)) {
    const result = batch.writeResults[at];
    if (result !== undefined) batch.writeResults[at] = { ...result, progress } as WriteResult;
  }
}

function runSingle(
  batch: BatchContext,
  stageProgress: StageProgress,
  solo: readonly IndexedWrite<SingleOp>[],
): Promise<void> {
  const releases = solo.flatMap(({ at, write }) => (write.op === "release" ? [{ at, write }] : []));
  if (releases.length > 0) return release(batch, stageProgress, releases);
  const [one] = solo;
  if (one === undefined) return Promise.resolve();
  const { at, write } = one;
  switch (write.op) {
    case "adopt":
      return adopt(batch, { at, write });
    case "hold":
      return hold(batch, { at, write });
    case "cancel":
      return cancel(batch, stageProgress, { at, write });
    case "edit":
      return edit(batch, { at, write });
    case "rerun":
      return rerun(batch, { at, write });
    case "remove":
      return remove(batch, { at, write });
    case "promote":
      return promote(batch, { at, write });
    case "put":
      return put(batch, { at, write });
    case "schedule":
      return schedule(batch, { at, write });
    default:
      return Promise.resolve();
  }
}

// The rows that a batch locks before it changes anything, always in this order: limits by name, jobs by number, task
// ranges by id, schedules by name. So two batches that need the same rows wait for each other without a deadlock.
//
// The lock of a job's row excludes exactly the conflicting changes:
//   results, tasks that return    KEY SHARE       cancels, edits, reruns, removals; any number of brokers may hold it
//   leases, holds, releases       NO KEY UPDATE   also leases, holds and releases by other brokers
//   cancels, edits, reruns, …     UPDATE          everything
// A batch locks each of its jobs with the strongest lock that it needs.

const STRENGTHS = ["KEY SHARE", "NO KEY UPDATE", "UPDATE"] as const;

/** $1 jobs, $2 task ranges whose jobs are locked too. */
export const lockJobs = (strength: (typeof STRENGTHS)[number]): string => `
SELECT id FROM laboro.job
WHERE id IN (SELECT unnest($1::bigint[]) UNION SELECT job FROM laboro.task_range WHERE id = ANY($2::bigint[]))
ORDER BY id FOR ${strength} OF job`;

/** $1 task ranges. One that another broker owns never comes back to this one: its row is not waited for. */
export const LOCK_TASK_RANGES = `
SELECT p.id FROM laboro.task_range p WHERE p.id = ANY($1::bigint[]) AND ${owned("p")} ORDER BY p.id FOR UPDATE`;

/** $1 limits. */
export const LOCK_LIMITS = `
SELECT key FROM laboro.key_value WHERE bucket = '${LIMIT_BUCKET}' AND key = ANY($1::text[]) AND ${OWN_EPOCH} > 0
  ORDER BY key FOR UPDATE`;

/** $1 names. */
export const LOCK_SCHEDULES = `
SELECT name FROM laboro.schedule WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE`;

async function lockRows(session: Session, writes: readonly Write[]): Promise<void> {
  const jobs = new Set<JobId>();
  const limits = new Set<string>();
  const rangeIds = new Set<TaskRangeId>();
  const released = new Set<TaskRangeId>();
  const schedules = new Set<string>();
  let strength = 0;
  for (const write of writes) {
    switch (write.op) {
      case "settle":
      case "replace":
        jobs.add(write.job);
        rangeIds.add(write.rangeId);
        break;
      case "claim":
        rangeIds.add(write.from);
        break;
      case "release":
        rangeIds.add(write.rangeId);
        released.add(write.rangeId);
        strength = Math.max(strength, 1);
        break;
      case "put":
        if (write.bucket === LIMIT_BUCKET) limits.add(write.key);
        break;
      case "lease":
        for (const name of write.limits ?? []) limits.add(name);
        jobs.add(write.job);
        strength = Math.max(strength, 1);
        break;
      case "hold":
        jobs.add(write.job);
        strength = Math.max(strength, 1);
        break;
      case "cancel":
      case "edit":
      case "rerun":
      case "remove":
        jobs.add(write.job);
        strength = 2;
        break;
      case "schedule":
        for (const { name, writes: ofRun } of write.changes) {
          schedules.add(name);
          for (const one of ofRun) {
            if (one.op !== "cancel") continue;
            jobs.add(one.job);
            strength = 2;
          }
        }
        break;
      default:
        break;
    }
  }
  const locks: Promise<unknown>[] = [];
  if (limits.size > 0) locks.push(session.send(LOCK_LIMITS, [textArray([...limits])]));
  if (jobs.size > 0 || released.size > 0) {
    const statement = lockJobs(STRENGTHS[strength] ?? "UPDATE");
    locks.push(session.send(statement, [numberArray([...jobs]), numberArray([...released])]));
  }
  if (rangeIds.size > 0) locks.push(session.send(LOCK_TASK_RANGES, [numberArray([...rangeIds])]));
  if (schedules.size > 0) locks.push(session.send(LOCK_SCHEDULES, [textArray([...schedules])]));
  await Promise.all(locks);
}
