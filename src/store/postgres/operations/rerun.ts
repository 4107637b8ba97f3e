/**
 * Finished tasks go back to wait. Of the tasks asked for, those in a parcel are left out; of the others, those with a result of the right end
 * become earlier attempts, and those that are among the cancels and have no result never ran. One look decides what the next is, so this
 * operation alone waits for its own answers. The job's row is locked throughout.
 */
import type { JobId } from "../../../model/ids.js";
import { contains, countOf, normalize, type Range, type Ranges, within, without } from "../../../model/ranges.js";
import type { Parcel } from "../../../model/store.js";
import { joinRuns, piecesOf, type Run, tooManyPieces } from "../../rerun-pieces.js";
import { multirange, numbers, rangesFrom } from "../arrays.js";
import type { Batch } from "../batch.js";
import { JOB, type JobRow, jobFrom } from "../job-rows.js";
import { RESULT_COLUMNS, stateNumber } from "../result-columns.js";
import type { Op, Placed } from "../stages.js";
import { addToTally, CHANGED, OWN } from "../statements.js";

const FIND = `
SELECT cursor, cancels::text, (SELECT range_agg(int4range(first, last + 1)) FROM laboro.parcel WHERE job = $1::bigint)::text AS held
FROM laboro.job WHERE id = $1::bigint`;
/** $2 the area, $3 its first task and $4 its last. */
const WITHIN = "job = $1::bigint AND idx BETWEEN $3::int AND $4::int AND $2::int4multirange @> idx";
// Among neighbours the index rises with the row's number: their difference names the run.
const RECORDED = `
SELECT min(idx) AS first, max(idx) AS last
FROM (SELECT idx, idx - row_number() OVER (ORDER BY idx) AS run FROM laboro.result WHERE ${WITHIN}) AS found
GROUP BY run ORDER BY first`;
const RUNS = `
SELECT min(idx) AS first, max(idx) AS last, attempt
FROM (SELECT idx, attempt, idx - row_number() OVER (PARTITION BY attempt ORDER BY idx) AS run
      FROM laboro.result WHERE ${WITHIN} AND state = ANY($5::smallint[])) AS found
GROUP BY attempt, run`;
const KEPT = `
SELECT idx AS "index", max(attempt) AS attempt
FROM (SELECT idx, attempt FROM laboro.earlier WHERE ${WITHIN} UNION ALL SELECT idx, attempt FROM laboro.output WHERE ${WITHIN}) AS found
GROUP BY idx`;
/** $6 how many come back that have no result. */
const MAKE_EARLIER = `
WITH gone AS (DELETE FROM laboro.result WHERE ${WITHIN} AND state = ANY($5::smallint[]) RETURNING ${RESULT_COLUMNS}),
kept AS (INSERT INTO laboro.earlier (${RESULT_COLUMNS}) SELECT ${RESULT_COLUMNS} FROM gone ON CONFLICT DO NOTHING),
counted AS (
  SELECT $1::bigint AS job, 0 AS bytes, -count(*) FILTER (WHERE state = 0) AS succeeded, -count(*) FILTER (WHERE state = 1) AS failed,
    -count(*) FILTER (WHERE state = 2) - $6::int AS cancelled
  FROM gone)
${addToTally("counted")}`;
/** $2 what runs again. Without cancels there is nothing left that the reason would explain. */
const REOPEN = `
UPDATE laboro.job
SET ended_at = NULL, ended_state = NULL, cancels = cancels - $2::int4multirange,
  reason = CASE WHEN cancels - $2::int4multirange = '{}' THEN NULL ELSE reason END,
  life = life + CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, ${CHANGED}
WHERE id = $1::bigint`;
const ADD_PARCELS = `
INSERT INTO laboro.parcel (id, job, first, last, attempt, failures, crashes, not_before, epoch)
SELECT id, $1::bigint, first, last, attempt, 0, 0, 0, ${OWN}
FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[]) AS p (id, first, last, attempt)`;

export async function rerun(batch: Batch, { at, write }: Placed<"rerun">): Promise<void> {
  const { op, job, ends, names } = write;
  const { session } = batch;
  const [row] = await session.send<{ cursor: number; cancels: string; held: string | null }>(FIND, [job]);
  if (row === undefined) {
    batch.answers[at] = { op, parcels: [], count: 0 };
    return;
  }
  const areas = areasOf(write, row.cursor, rangesFrom(row.held));
  const unrun = ends.includes("cancelled") ? await neverRan(batch, job, areas, rangesFrom(row.cancels)) : [];
  const states = numbers(ends.map(stateNumber));
  const ran = areas.length === 0 ? [] : await session.send<Run>(RUNS, [...within4(job, areas), states]);
  const runs = joinRuns([...ran, ...(await byLastAttempt(batch, job, unrun))]);
  const refused = runs.length > names ? tooManyPieces(runs.length, names) : undefined;
  const parcels = refused === undefined ? piecesOf(runs, job, write.parcel) : [];
  if (parcels.length > 0) await reopen(batch, job, areas, states, parcels, countOf(unrun));
  const [now] = await session.send<JobRow>(JOB, [job]);
  batch.answers[at] = {
    op,
    ...(now === undefined ? {} : { job: jobFrom(now) }),
    parcels,
    count: countOf(parcels),
    ...(refused === undefined ? {} : { refused }),
  };
}

/** Where tasks may be that can run again: granted once, asked for, and in no parcel. */
function areasOf({ ranges }: Op<"rerun">, cursor: number, held: Ranges): Ranges {
  const granted = { first: 0, last: cursor - 1 };
  const asked = ranges === undefined ? normalize([granted]) : within(granted, normalize(ranges));
  return normalize(asked.flatMap((range) => without(range, held)));
}

async function neverRan(batch: Batch, job: JobId, areas: Ranges, cancels: Ranges): Promise<Ranges> {
  const cancelled = areas.flatMap((area) => within(area, cancels));
  if (cancelled.length === 0) return [];
  const recorded = await batch.session.send<Range>(RECORDED, within4(job, cancelled));
  return cancelled.flatMap((range) => without(range, recorded));
}

/** Divides tasks without a result by the last attempt of which anything is kept: a number is not given twice. */
async function byLastAttempt(batch: Batch, job: JobId, ranges: Ranges): Promise<Run[]> {
  if (ranges.length === 0) return [];
  const rows = await batch.session.send<{ index: number; attempt: number }>(KEPT, within4(job, ranges));
  const tried = rows.map(({ index, attempt }) => ({ first: index, last: index, attempt }));
  const triedRanges = normalize(tried);
  const others = ranges.flatMap((range) => without(range, triedRanges));
  return [
    ...tried.filter(({ first }) => contains(ranges, first)),
    ...others.map((range) => ({ ...range, attempt: 0 })),
  ];
}

async function reopen(
  { session }: Batch,
  job: JobId,
  areas: Ranges,
  states: string,
  parcels: readonly Parcel[],
  unrun: number,
): Promise<void> {
  await Promise.all([
    session.send(MAKE_EARLIER, [...within4(job, areas), states, unrun]),
    session.send(REOPEN, [job, multirange(parcels)]),
    session.send(ADD_PARCELS, [
      job,
      numbers(parcels.map(({ id }) => id)),
      numbers(parcels.map(({ first }) => first)),
      numbers(parcels.map(({ last }) => last)),
      numbers(parcels.map(({ attempt }) => attempt)),
    ]),
  ]);
}

const within4 = (job: JobId, ranges: Ranges): [JobId, string, number, number] => [
  job,
  multirange(ranges),
  ranges[0]?.first ?? 0,
  ranges.at(-1)?.last ?? -1,
];
