/**
 * New jobs, each one row for any number of tasks; and which job has a key.
 *
 * Changes of a job, more tasks for it, and the end of its delay. The job's row is locked against every other change.
 */
import { pack } from "msgpackr";
import { LaboroError } from "../../../base/errors.js";
import type { JobId, TaskRangeId } from "../../../model/ids.js";
import { isParked, type Job, jobEnd, newJob } from "../../../model/job.js";
import { ALL_TASKS } from "../../../model/ranges.js";
import { editRefusal, type Progress, type TaskRange } from "../../../model/store.js";
import { chunkEntries } from "../../rows.js";
import { JOB, JOBS_BY_ID, type JobRow, jobFrom } from "../job-rows.js";
import type { BatchContext, IndexedWrite, Stage, WriteOf } from "../stages.js";
import {
  addToJobCounters,
  booleanArray,
  ConcatenatedBytes,
  markChanged,
  multirange,
  numberArray,
  numberColumns,
  OWN_EPOCH,
  SET_CHANGED,
  textArray,
  textColumns,
  validText,
} from "../statements.js";
import { CANCEL, totalsOf } from "./cancel.js";
import { claimed } from "./claim.js";

/** An ended job keeps its key until its time is over and another requests it. $1 keys, $2 now. */
export const FREE_KEYS = `
UPDATE laboro.job SET has_key = false WHERE id IN (
  SELECT j.id FROM laboro.job j JOIN laboro.job_state s ON s.job = j.id
  WHERE j.key = ANY($1::text[]) AND j.has_key AND s.ended_at IS NOT NULL AND ${OWN_EPOCH} > 0
    AND (coalesce(j.key_for_ms, 0) = 0 OR s.ended_at + j.key_for_ms <= $2::float8)
  ORDER BY j.id FOR UPDATE OF j)`;

/** $1 keys. A statement of its own: only its snapshot has the jobs for which the one before has waited. */
export const KEY_HOLDERS = `
SELECT id, key FROM laboro.job WHERE key = ANY($1::text[]) AND has_key AND ${OWN_EPOCH} > 0`;
const LOCK_HOLDER = `${KEY_HOLDERS} FOR UPDATE`;
/** $1 job, $2 whether it has its key. */
export const SET_HOLDER = `UPDATE laboro.job SET has_key = $2::boolean WHERE id = $1::bigint AND ${OWN_EPOCH} > 0`;

interface KeyHolder {
  readonly id: JobId;
  readonly key: string;
}

export async function holderOf({ session, now }: BatchContext, key: string): Promise<JobId | undefined> {
  const keys = textArray([key]);
  const [, [holder]] = await Promise.all([
    session.send(FREE_KEYS, [keys, now]),
    session.send<KeyHolder>(LOCK_HOLDER, [keys]),
  ]);
  return holder?.id;
}

/** The job that has the key loses it and is cancelled, for job `by`. */
async function takeKey(
  batch: BatchContext,
  key: string,
  by: JobId,
): Promise<{ readonly job: JobId; readonly progress?: Progress } | undefined> {
  const job = await holderOf(batch, key);
  if (job === undefined) return undefined;
  const { session } = batch;
  await Promise.all([
    session.send(SET_HOLDER, [job, false]),
    session.send(CANCEL, [job, multirange([ALL_TASKS]), `replaced by job ${by}`, false]),
  ]);
  const [totals] = await totalsOf(batch, new Set([job]));
  if (totals === undefined) return { job };
  const { succeeded, failed, cancelled, ended } = totals;
  const counters = { succeeded, failed, cancelled };
  return { job, progress: ended ? { counters, ended: jobEnd(counters) } : { counters } };
}

/**
 * $1 now; $2 the specs, joined; $3 to $24 the jobs and their claims. Jobs whose (idempotency) key is taken are left
 * out.
 */
export const SUBMIT = `
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest($3::bigint[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::int[],
    $10::boolean[], $11::boolean[], $12::int[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::float8[],
    $18::float8[], $19::boolean[], $20::float8[], $21::float8[], $22::boolean[], $23::text[], $24::int[])
  AS a (id, start, length, name, pool, batch_key, count, has_entries, held, granted, range_id, bytes, idempotency_key,
    key, key_for_ms, not_before, relative, keep_ms, keep_failed_ms, open, worker, attempt)),
jobs AS (
  INSERT INTO laboro.job (id, created, spec, name, pool, batch_key, idempotency_key, count, has_entries, held, cursor,
    key, has_key, key_for_ms, open)
  SELECT id, $1::float8, substring($2::bytea FROM start FOR length), name, pool, batch_key, idempotency_key, count,
    has_entries, held, granted, key, key IS NOT NULL, key_for_ms, open
  -- In one order at every broker: two that insert the same keys would block each other.
  FROM asked ORDER BY key, idempotency_key, id
  ON CONFLICT DO NOTHING
  RETURNING id),
made AS (SELECT asked.* FROM asked JOIN jobs USING (id)),
states AS (
  INSERT INTO laboro.job_state (job, changed_by, ended_at, ended_state, not_before, relative, keep_ms, keep_failed_ms)
  -- A job without tasks has ended with its submission.
  SELECT id, ${OWN_EPOCH}, CASE WHEN count = 0 AND NOT open THEN $1::float8 END,
    CASE WHEN count = 0 AND NOT open THEN 0 END, not_before, relative, keep_ms, keep_failed_ms
  FROM made),
task_ranges AS (
  INSERT INTO laboro.task_range (id, job, first, last, attempt, failures, crashes, not_before, worker, epoch)
  SELECT range_id, id, 0, granted - 1, attempt, 0, 0, 0, worker, ${OWN_EPOCH} FROM made WHERE granted > 0),
sized AS (SELECT id AS job, bytes, 0 AS succeeded, 0 AS failed, 0 AS cancelled FROM made WHERE bytes > 0),
summed AS (${addToJobCounters("sized")})
SELECT id FROM made`;

/** $1 the chunks, concatenated; $2 to $6 the job, tasks and position of each. */
export const INSERT_ENTRIES = `
INSERT INTO laboro.entry_chunk (job, first, last, bytes)
SELECT job, first, last, substring($1::bytea FROM start FOR length)
FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[]) AS c (job, first, last, start, length)
WHERE ${OWN_EPOCH} > 0 AND EXISTS (SELECT 1 FROM laboro.job WHERE id = c.job)`;

/** A statement of its own: only its snapshot has the jobs that SUBMIT has waited for. */
export const FIND_SUBMITTED = `
SELECT id, idempotency_key AS key FROM laboro.job WHERE idempotency_key = ANY($1::text[]) AND ${OWN_EPOCH} > 0`;

/** How often a key may be taken by other brokers between two statements. */
const MAX_TRIES = 100;

/** By task range of a submission: the claim of all of it in the same stage. It is stored as claimed. */
type WholeClaims = ReadonlyMap<TaskRangeId, IndexedWrite<"claim">>;

const NO_CLAIMS: WholeClaims = new Map();

export function wholeClaimsOf({ submits, claims }: Pick<Stage, "submits" | "claims">): WholeClaims {
  if (submits.length === 0 || claims.length === 0) return NO_CLAIMS;
  const found = new Map<TaskRangeId, IndexedWrite<"claim">>();
  const granted = new Map(submits.map(({ write }) => [write.rangeId, grantedTo(write)]));
  for (const one of claims) {
    const { from, first, last, limits } = one.write;
    if (first === 0 && last + 1 === granted.get(from) && limits === undefined) found.set(from, one);
  }
  return found;
}

const grantedTo = ({ lease, job }: WriteOf<"submit">): number => Math.max(0, Math.min(lease, job.count));

export async function submit(
  batch: BatchContext,
  writes: readonly IndexedWrite<"submit">[],
  claims: WholeClaims = NO_CLAIMS,
): Promise<void> {
  const [one] = writes;
  const { key, ifExists, idempotencyKey } = one?.write.job ?? {};
  if (one === undefined || key === undefined || ifExists !== "replace") return insertJobs(batch, writes, claims);
  const before = idempotencyKey === undefined ? [] : await findSubmitted(batch, [idempotencyKey]);
  if (before.length > 0) return insertJobs(batch, writes, claims);
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const replaced = await takeKey(batch, key, submitted(batch, one.write).id);
    await insertJobs(batch, writes, claims);
    const result = batch.writeResults[one.at];
    if (result?.op === "submit" && replaced !== undefined) batch.writeResults[one.at] = { ...result, replaced };
    // Otherwise another broker has made a job with the key meanwhile, which is to be replaced as well.
    if (result?.op !== "duplicate" || result.byKey !== true) return;
  }
  throw keyVanished();
}

const findSubmitted = ({ session }: BatchContext, keys: readonly string[]): Promise<readonly KeyHolder[]> =>
  session.send<KeyHolder>(FIND_SUBMITTED, [textArray(keys)]);

/** The whole batch is tried again. */
const keyVanished = (): LaboroError =>
  new LaboroError("LABORO_STORE_UNAVAILABLE", "the holder of a key changed during the submission");

async function insertJobs(
  batch: BatchContext,
  writes: readonly IndexedWrite<"submit">[],
  claims: WholeClaims,
): Promise<void> {
  const specs = new ConcatenatedBytes();
  const entries = new ConcatenatedBytes();
  const chunks: { readonly job: number; readonly first: number; readonly last: number }[] = [];
  const jobs = writes.map(({ write }) => {
    specs.add(new Uint8Array(pack(write.job)));
    const job = submitted(batch, write);
    const own = write.entries === undefined ? [] : chunkEntries(write.entries);
    for (const { first, last, bytes } of own) {
      chunks.push({ job: job.id, first, last });
      entries.add(bytes);
    }
    // The first entries are likely to be claimed next.
    if (own.length > 0) batch.entries.add(job.id, own.slice(0, 4));
    const { rangeId, worker, attempt = 0 } = claims.get(write.rangeId)?.write ?? { rangeId: write.rangeId };
    return { ...job, rangeId, worker, attempt, bytes: own.reduce((sum, { bytes }) => sum + bytes.length, 0) };
  });
  const keys = jobs.flatMap(({ key }) => (key === undefined ? [] : [key]));
  const sent: Promise<unknown>[] = [];
  if (keys.length > 0) sent.push(batch.session.send(FREE_KEYS, [textArray(keys), batch.now]));
  const making = batch.session.send<{ id: JobId }>(SUBMIT, [
    batch.now,
    specs.bytes,
    ...numberColumns(jobs, "id"),
    numberArray(specs.starts),
    numberArray(specs.lengths),
    ...textColumns(jobs, "name"),
    textArray(jobs.map(({ requirement }) => requirement.pool)),
    textArray(jobs.map(({ batchKey }) => (batchKey === undefined ? null : validText(batchKey)))),
    ...numberColumns(jobs, "count"),
    booleanArray(jobs.map(({ hasEntries }) => hasEntries)),
    booleanArray(jobs.map(({ held }) => held)),
    ...numberColumns(jobs, "cursor", "rangeId", "bytes"),
    ...textColumns(jobs, "idempotencyKey", "key"),
    ...numberColumns(jobs, "keyForMs"),
    numberArray(jobs.map((job) => (isParked(job) ? (job.notBefore ?? null) : null))),
    booleanArray(jobs.map(({ delayMs }) => delayMs !== undefined)),
    ...numberColumns(jobs, "keepMs"),
    numberArray(jobs.map(({ keepMs, keepFailedMs = keepMs }) => keepFailedMs ?? null)),
    booleanArray(jobs.map(({ open }) => open === true)),
    ...textColumns(jobs, "worker"),
    ...numberColumns(jobs, "attempt"),
  ]);
  sent.push(making);
  if (chunks.length > 0) {
    const lists = [
      ...numberColumns(chunks, "job", "first", "last"),
      ...[entries.starts, entries.lengths].map(numberArray),
    ];
    sent.push(batch.session.send(INSERT_ENTRIES, [entries.bytes, ...lists]));
  }
  const holding = keys.length === 0 ? [] : batch.session.send<KeyHolder>(KEY_HOLDERS, [textArray(keys)]);
  const [made, holders] = await Promise.all([making, holding, ...sent]);
  const madeIds = new Set(made.map(({ id }) => id));
  const others = jobs.filter(({ id }) => !madeIds.has(id));
  const ids = others.flatMap(({ idempotencyKey }) => (idempotencyKey === undefined ? [] : [idempotencyKey]));
  const found = ids.length === 0 ? [] : await findSubmitted(batch, ids);
  const before = new Map(found.map(({ id, key }) => [key, id]));
  const holderOfKey = new Map(holders.map(({ id, key }) => [key, id]));
  writes.forEach(({ at, write }) => {
    const job = submitted(batch, write);
    const taskRange = firstTaskRange(job, write);
    const first = before.get(write.job.idempotencyKey ?? "");
    const holder = holderOfKey.get(write.job.key ?? "");
    if (madeIds.has(job.id))
      batch.writeResults[at] = taskRange === undefined ? { op: "submit", job } : { op: "submit", job, taskRange };
    else if (first !== undefined) batch.writeResults[at] = { op: "duplicate", job: first };
    else if (holder !== undefined) batch.writeResults[at] = { op: "duplicate", job: holder, byKey: true };
    // It was removed between the two statements.
    else throw keyVanished();
  });
  for (const { write } of writes) {
    const whole = claims.get(write.rangeId);
    const { id, hasEntries } = submitted(batch, write);
    const reading = whole && claimed(batch, whole, madeIds.has(id) ? id : undefined, hasEntries);
    if (reading !== undefined) await reading;
  }
}

function submitted(batch: BatchContext, write: WriteOf<"submit">): Job {
  const id = batch.jobNumbers.get(write);
  if (id === undefined) throw new LaboroError("LABORO_INTERNAL", "a submission has no number");
  return newJob(write.job, id, write.entries !== undefined, grantedTo(write), batch.now);
}

function firstTaskRange({ id, cursor }: Job, { rangeId }: WriteOf<"submit">): TaskRange | undefined {
  if (cursor === 0) return undefined;
  return { id: rangeId, job: id, first: 0, last: cursor - 1, attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
}

/** $1 job, $2 changes, $3 name, $4 how many tasks more, $5 whether to close it. */
const EDIT = `
WITH edited AS (
  UPDATE laboro.job SET changes = coalesce(changes, '{}') || $2::text::jsonb, name = coalesce($3::text, name),
    count = count + $4::int,
    open = open AND NOT $5::boolean
  WHERE id = $1::bigint RETURNING id),
changed AS (${markChanged("SELECT id FROM edited")})
SELECT id FROM edited`;

/** $1 job, $2 its own limit. What is leased was not counted before the job had a limit. */
const COUNT_LEASED = `
UPDATE laboro.task_range SET limit_names = concat_ws(',', limit_names, $2::text)
WHERE job = $1::bigint AND epoch IS NOT NULL AND ${OWN_EPOCH} > 0
  AND $2::text <> ALL(string_to_array(coalesce(limit_names, ''), ','))`;

const ADD_BYTES = addToJobCounters(
  "(SELECT $1::bigint AS job, $2::bigint AS bytes, 0 AS succeeded, 0 AS failed, 0 AS cancelled) AS added",
);

export async function edit(batch: BatchContext, { at, write }: IndexedWrite<"edit">): Promise<void> {
  const { op, job } = write;
  const { session } = batch;
  const [row] = await session.send<JobRow>(JOB, [job]);
  if (row === undefined) {
    batch.writeResults[at] = { op };
    return;
  }
  const refused = editRefusal({ ended: row.endedAt !== null, open: row.open, count: row.count }, write);
  if (refused === undefined) await change(batch, write, row.count);
  const [totals] = await totalsOf(batch, new Set([job]));
  const [now = row] = await session.send<JobRow>(JOB, [job]);
  const { counters } = jobFrom(now);
  batch.writeResults[at] = {
    op,
    job: jobFrom(now),
    ...(refused === undefined ? {} : { refused }),
    ...(totals?.ended === true ? { progress: { counters, ended: jobEnd(counters) } } : {}),
  };
}

async function change({ session, entries }: BatchContext, write: WriteOf<"edit">, before: number): Promise<void> {
  const { job, changes = {}, append, close = false } = write;
  const name = changes.name === undefined ? null : validText(changes.name);
  const stored = JSON.stringify(name === null ? changes : { ...changes, name });
  const sent = [session.send(EDIT, [job, stored, name, append?.count ?? 0, close])];
  if (changes.maxRunning !== undefined) sent.push(session.send(COUNT_LEASED, [job, `#${job}`]));
  if (append?.entries !== undefined) {
    const chunks = chunkEntries(append.entries);
    const bytes = new ConcatenatedBytes();
    for (const chunk of chunks) bytes.add(chunk.bytes);
    const places = [chunks.map(() => job), chunks.map(({ first }) => before + first)];
    const lists = [...places, chunks.map(({ last }) => before + last), bytes.starts, bytes.lengths];
    sent.push(session.send(INSERT_ENTRIES, [bytes.bytes, ...lists.map(numberArray)]));
    sent.push(session.send(ADD_BYTES, [job, bytes.bytes.length]));
    // The cached entries of the job may end where these begin.
    entries.delete(job);
  }
  await Promise.all(sent);
}

// Delayed jobs whose time has come. Those that another broker has locked are left to it.

const DELAYED = "ended_at IS NULL AND not_before IS NOT NULL";
const firstOf = (relative: boolean): string =>
  `(SELECT not_before FROM laboro.job_state WHERE ${DELAYED} AND relative = ${relative} ORDER BY not_before LIMIT 1)`;
export const NEXT_DELAYED = `SELECT ${firstOf(false)} AS clock, ${firstOf(true)} AS steady`;
export const DELAYED_COUNT = `SELECT count(*)::int AS count FROM laboro.job_state WHERE ${DELAYED}`;

/** $1 whether relative, $2 the time, $3 limit. */
export const PROMOTE = `
WITH due AS MATERIALIZED (
  SELECT job FROM laboro.job_state
    WHERE ${DELAYED} AND relative = $1::boolean AND not_before <= $2::float8 AND ${OWN_EPOCH} > 0
  ORDER BY not_before, job LIMIT $3::int FOR UPDATE SKIP LOCKED)
UPDATE laboro.job_state s SET not_before = NULL, ${SET_CHANGED} FROM due WHERE s.job = due.job RETURNING s.job AS id`;

/** In the order of the queries: jobs with a named time first, each kind by its time. */
function inOrder(a: Job, b: Job): number {
  const kinds = Number(a.delayMs !== undefined) - Number(b.delayMs !== undefined);
  return kinds || (a.notBefore ?? 0) - (b.notBefore ?? 0) || a.id - b.id;
}

export async function promote(batch: BatchContext, { at, write }: IndexedWrite<"promote">): Promise<void> {
  const { op, clock, steady, max } = write;
  const { session } = batch;
  const found = [...(await session.send<{ id: JobId }>(PROMOTE, [false, clock, max]))];
  if (found.length < max)
    found.push(...(await session.send<{ id: JobId }>(PROMOTE, [true, steady, max - found.length])));
  const ids = found.map(({ id }) => id);
  const rows = ids.length === 0 ? [] : await session.send<JobRow>(JOBS_BY_ID, [numberArray(ids)]);
  const jobs = rows.map(jobFrom);
  batch.writeResults[at] = { op, jobs: jobs.sort(inOrder) };
}
