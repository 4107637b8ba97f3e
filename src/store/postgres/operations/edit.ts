/**
 * Changes of a job, more tasks for it, and the end of its delay. The job's row is locked against every other change.
 */
import type { JobId } from "../../../model/ids.js";
import { type Job, jobEnd } from "../../../model/job.js";
import { editRefusal } from "../../../model/store.js";
import { chunkEntries } from "../../entry-chunks.js";
import { JOB, JOBS_BY_ID, type JobRow, jobFrom } from "../job-rows.js";
import type { BatchContext, IndexedWrite, WriteOf } from "../stages.js";
import {
  addToJobCounters,
  ConcatenatedBytes,
  markChanged,
  numberArray,
  OWN_EPOCH,
  SET_CHANGED,
  validText,
} from "../statements.js";
import { totalsOf } from "./cancel.js";
import { INSERT_ENTRIES } from "./submit.js";

/** $1 job, $2 changes, $3 name, $4 how many tasks more, $5 whether to close it. */
export const EDIT = `
WITH edited AS (
  UPDATE laboro.job SET changes = coalesce(changes, '{}') || $2::text::jsonb, name = coalesce($3::text, name), count = count + $4::int,
    open = open AND NOT $5::boolean
  WHERE id = $1::bigint RETURNING id),
changed AS (${markChanged("SELECT id FROM edited")})
SELECT id FROM edited`;

/** $1 job, $2 its own limit. What is leased was not counted before the job had a limit. */
const COUNT_LEASED = `
UPDATE laboro.task_range SET limit_names = concat_ws(',', limit_names, $2::text)
WHERE job = $1::bigint AND epoch IS NOT NULL AND ${OWN_EPOCH} > 0 AND $2::text <> ALL(string_to_array(coalesce(limit_names, ''), ','))`;

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
  SELECT job FROM laboro.job_state WHERE ${DELAYED} AND relative = $1::boolean AND not_before <= $2::float8 AND ${OWN_EPOCH} > 0
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
