/**
 * Ended tasks wait again. Tasks in a task range are skipped. For the others, results with one of the requested ends
 * become earlier attempts; cancelled tasks without a result never ran. Each statement depends on the result of the one
 * before, so only this operation waits for its own answers. The job's row is locked throughout.
 */
import type { JobId } from "../../../model/ids.js";
import { countOf, difference, intersection, type Range, type Ranges } from "../../../model/ranges.js";
import type { TaskRange } from "../../../model/store.js";
import {
  type AttemptRun,
  BEING_REMOVED,
  firstRecorded,
  joinRuns,
  refusedRerun,
  rerunCandidates,
  runsByAttempt,
  stateNumber,
  taskRangesFromRuns,
} from "../../rows.js";
import { JOB, type JobRow, jobFrom } from "../job-rows.js";
import { RESULT_COLUMNS } from "../result-columns.js";
import type { BatchContext, IndexedWrite } from "../stages.js";
import { addToJobCounters, multirange, numberArray, OWN_EPOCH, rangesFrom, SET_CHANGED } from "../statements.js";
import { holderOf, SET_HOLDER } from "./submit.js";

const FIND = `
SELECT cursor, cancels::text, key,
  (SELECT range_agg(int4range(first, last + 1)) FROM laboro.task_range WHERE job = $1::bigint)::text AS held
FROM laboro.job WHERE id = $1::bigint`;
/** $2 the ranges, $3 their first task and $4 their last. */
const WITHIN = "job = $1::bigint AND idx BETWEEN $3::int AND $4::int AND $2::int4multirange @> idx";
// Among consecutive indexes, the index minus the row's number is constant: it identifies the run.
const RECORDED = `
SELECT min(idx) AS first, max(idx) AS last
FROM (SELECT idx, idx - row_number() OVER (ORDER BY idx) AS run FROM laboro.result WHERE ${WITHIN}) AS found
GROUP BY run ORDER BY first`;
const RUNS = `
SELECT min(idx) AS first, max(idx) AS last, attempt
FROM (SELECT idx, attempt, idx - row_number() OVER (PARTITION BY attempt ORDER BY idx) AS run
      FROM laboro.result WHERE ${WITHIN} AND state = ANY($5::smallint[])) AS found
GROUP BY attempt, run`;
const LAST_ATTEMPTS = `
SELECT idx AS "index", max(attempt) AS attempt
FROM (SELECT idx, attempt FROM laboro.earlier_attempt WHERE ${WITHIN}
  UNION ALL SELECT idx, attempt FROM laboro.output WHERE ${WITHIN}) AS found
GROUP BY idx`;
/** $6 how many of the tasks have no result. */
const MOVE_TO_EARLIER_ATTEMPTS = `
WITH gone AS (DELETE FROM laboro.result WHERE ${WITHIN} AND state = ANY($5::smallint[]) RETURNING ${RESULT_COLUMNS}),
saved AS (
  INSERT INTO laboro.earlier_attempt (${RESULT_COLUMNS}) SELECT ${RESULT_COLUMNS} FROM gone ON CONFLICT DO NOTHING),
counted AS (
  SELECT $1::bigint AS job, 0 AS bytes, -count(*) FILTER (WHERE state = 0) AS succeeded,
    -count(*) FILTER (WHERE state = 1) AS failed,
    -count(*) FILTER (WHERE state = 2) - $6::int AS cancelled
  FROM gone)
${addToJobCounters("counted")}`;
/** $2 what runs again. If no cancel is left, its reason is removed as well. */
const REOPEN = `
WITH former AS MATERIALIZED (SELECT ended_at FROM laboro.job_state WHERE job = $1::bigint),
reopened AS (
  UPDATE laboro.job_state SET ended_at = NULL, ended_state = NULL, not_before = NULL, ${SET_CHANGED}
  WHERE job = $1::bigint)
UPDATE laboro.job
SET cancels = cancels - $2::int4multirange,
  cancel_reason = CASE WHEN cancels - $2::int4multirange = '{}' THEN NULL ELSE cancel_reason END,
  reopen_count = reopen_count + (SELECT count(ended_at) FROM former)
WHERE id = $1::bigint`;
const INSERT_TASK_RANGES = `
INSERT INTO laboro.task_range (id, job, first, last, attempt, failures, crashes, not_before, epoch)
SELECT id, $1::bigint, first, last, attempt, 0, 0, 0, ${OWN_EPOCH}
FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[]) AS p (id, first, last, attempt)`;

interface FoundJob {
  readonly cursor: number;
  readonly cancels: string;
  readonly held: string | null;
  readonly key: string | null;
}

export async function rerun(batch: BatchContext, { at, write }: IndexedWrite<"rerun">): Promise<void> {
  const { op, job, ends, idCount } = write;
  const { session } = batch;
  const [row] = await session.send<FoundJob>(FIND, [job]);
  if (row === undefined) {
    batch.writeResults[at] = { op, taskRanges: [], count: 0 };
    return;
  }
  const candidates = rerunCandidates(write.ranges, row.cursor, rangesFrom(row.held));
  const unrun = ends.includes("cancelled") ? await neverRan(batch, job, candidates, rangesFrom(row.cancels)) : [];
  const states = numberArray(ends.map(stateNumber));
  const ran =
    candidates.length === 0 ? [] : await session.send<AttemptRun>(RUNS, [...rangeParameters(job, candidates), states]);
  const runs = joinRuns([...ran, ...(await byLastAttempt(batch, job, unrun))]);
  const holder = row.key === null ? undefined : await holderOf(batch, row.key);
  const first = firstRecorded(row.cursor, rangesFrom(row.cancels), rangesFrom(row.held));
  const recorded = first && (await session.send(RECORDED, rangeParameters(job, [first])));
  const removed = recorded?.length === 0;
  const refused = removed ? BEING_REMOVED : refusedRerun(runs, idCount, holder === job ? undefined : holder);
  const taskRanges = refused === undefined ? taskRangesFromRuns(runs, job, write.rangeId) : [];
  if (taskRanges.length > 0) {
    await reopen(batch, job, candidates, states, taskRanges, countOf(unrun));
    if (row.key !== null) await session.send(SET_HOLDER, [job, true]);
  }
  const [now] = await session.send<JobRow>(JOB, [job]);
  batch.writeResults[at] = {
    op,
    ...(now === undefined ? {} : { job: jobFrom(now) }),
    taskRanges,
    count: countOf(taskRanges),
    ...(refused === undefined ? {} : { refused }),
  };
}

async function neverRan(batch: BatchContext, job: JobId, candidates: Ranges, cancels: Ranges): Promise<Ranges> {
  const cancelled = candidates.flatMap((range) => intersection(range, cancels));
  if (cancelled.length === 0) return [];
  const recorded = await batch.session.send<Range>(RECORDED, rangeParameters(job, cancelled));
  return cancelled.flatMap((range) => difference(range, recorded));
}

async function byLastAttempt(batch: BatchContext, job: JobId, ranges: Ranges): Promise<AttemptRun[]> {
  if (ranges.length === 0) return [];
  return runsByAttempt(ranges, await batch.session.send(LAST_ATTEMPTS, rangeParameters(job, ranges)));
}

async function reopen(
  { session }: BatchContext,
  job: JobId,
  candidates: Ranges,
  states: string,
  taskRanges: readonly TaskRange[],
  unrun: number,
): Promise<void> {
  await Promise.all([
    session.send(MOVE_TO_EARLIER_ATTEMPTS, [...rangeParameters(job, candidates), states, unrun]),
    session.send(REOPEN, [job, multirange(taskRanges)]),
    session.send(INSERT_TASK_RANGES, [
      job,
      numberArray(taskRanges.map(({ id }) => id)),
      numberArray(taskRanges.map(({ first }) => first)),
      numberArray(taskRanges.map(({ last }) => last)),
      numberArray(taskRanges.map(({ attempt }) => attempt)),
    ]),
  ]);
}

const rangeParameters = (job: JobId, ranges: Ranges): [JobId, string, number, number] => [
  job,
  multirange(ranges),
  ranges[0]?.first ?? 0,
  ranges.at(-1)?.last ?? -1,
];
