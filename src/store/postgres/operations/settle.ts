/** Results of tasks, and replacements of task ranges: one statement for all results of a batch. */
import type { JobId } from "../../../model/ids.js";
import type { Counters } from "../../../model/job.js";
import { stateNumber } from "../../rows.js";
import { RESULT_COLUMNS, rareColumns, resultColumns, resultRows } from "../result-columns.js";
import { type BatchContext, type IndexedWrite, MustRunSeparately, type StageProgress } from "../stages.js";
import {
  addToJobCounters,
  flagsFrom,
  numberArray,
  numberColumns,
  OWN_EPOCH,
  owned,
  ownFlags,
  textColumns,
} from "../statements.js";

const CANCELLED = stateNumber("cancelled");

/**
 * $1 task ranges and $2 their jobs, one per write; $3 the task ranges that are now empty; from $4 the results. Lists
 * are looked up by position, not joined: the planner does not know their length and would join two lists pair by pair.
 */
export const settleStatement = (rare: boolean): string => `
WITH own AS MATERIALIZED (${ownFlags("$1")}),
cancelling AS MATERIALIZED (
  SELECT array_agg(coalesce(j.cancels <> '{}', false) ORDER BY a.n) AS flags
  FROM unnest($2::bigint[]) WITH ORDINALITY AS a (id, n) LEFT JOIN laboro.job j ON j.id = a.id),
added AS (
  INSERT INTO laboro.result (${RESULT_COLUMNS})
  SELECT ($2::bigint[])[r.w], r.idx, r.attempt,
    CASE WHEN (SELECT flags FROM cancelling)[r.w]
      AND (SELECT cancels FROM laboro.job WHERE id = ($2::bigint[])[r.w]) @> r.idx
      THEN ${CANCELLED} ELSE r.state END,
    r.worker, r.started, r.ended, r.output_bytes, r.code, ${rareColumns(4, rare)}
  FROM ${resultRows(4, rare)}
  WHERE (SELECT flags FROM own)[r.w]
  ON CONFLICT DO NOTHING
  RETURNING job, state, coalesce(octet_length(output), 0) + coalesce(octet_length(value), 0) AS bytes),
counted AS MATERIALIZED (
  SELECT job, coalesce(sum(bytes), 0) AS bytes, count(*) FILTER (WHERE state = 0) AS succeeded,
    count(*) FILTER (WHERE state = 1) AS failed,
    count(*) FILTER (WHERE state = 2) AS cancelled
  FROM added GROUP BY job),
summed AS (${addToJobCounters("counted")}),
gone AS (DELETE FROM laboro.task_range p WHERE p.id = ANY($3::bigint[]) AND ${owned("p")})
SELECT (SELECT flags FROM own)::text AS own,
  (SELECT json_agg(json_build_array(job, succeeded, failed, cancelled)) FROM counted) AS counted`;

interface Row {
  readonly own: string | null;
  readonly counted: readonly (readonly [JobId, number, number, number])[] | null;
}

export async function settle(
  batch: BatchContext,
  stageProgress: StageProgress,
  writes: readonly IndexedWrite<"settle">[],
): Promise<void> {
  const { rare, values } = resultColumns(
    writes.map(({ write }) => write.results),
    batch.workerNumbers,
  );
  const plain = writes.map(({ write }) => write);
  const empty = plain.filter((write) => write.empty).map(({ rangeId }) => rangeId);
  const lists = [...numberColumns(plain, "rangeId", "job"), numberArray(empty)];
  const [row] = await batch.session.send<Row>(settleStatement(rare), [...lists, ...values]);
  const own = flagsFrom(row?.own ?? null);
  const mine = writes.filter((_, i) => own[i] === true);
  for (const { at, write } of writes) batch.writeResults[at] = { op: write.op, lost: true };
  for (const { at, write } of mine) batch.writeResults[at] = { op: write.op, lost: false };
  if (writes.length === 1) {
    const [, succeeded = 0, failed = 0, cancelled = 0] = row?.counted?.[0] ?? [];
    for (const { at, write } of mine) stageProgress.add(at, write.job, { succeeded, failed, cancelled });
    return;
  }
  const added = new Map(
    (row?.counted ?? []).map(([job, succeeded, failed, cancelled]) => [job, { succeeded, failed, cancelled }]),
  );
  for (const [job, more] of sumsOf(mine)) {
    // Some had a result already, or were cancelled: it is not known which write added how many.
    if (!same(more, added.get(job))) throw new MustRunSeparately();
  }
  for (const one of mine) stageProgress.add(one.at, one.write.job, countersOf(one));
}

const NOTHING: Counters = { succeeded: 0, failed: 0, cancelled: 0 };

const same = (a: Counters, b: Counters = NOTHING): boolean =>
  a.succeeded === b.succeeded && a.failed === b.failed && a.cancelled === b.cancelled;

function countersOf({ write }: IndexedWrite<"settle">): Counters {
  const counters = { ...NOTHING };
  for (const { state } of write.results) counters[state]++;
  return counters;
}

function sumsOf(writes: readonly IndexedWrite<"settle">[]): Map<JobId, Counters> {
  const sums = new Map<JobId, Counters>();
  for (const one of writes) {
    const sum = sums.get(one.write.job) ?? NOTHING;
    const more = countersOf(one);
    sums.set(one.write.job, {
      succeeded: sum.succeeded + more.succeeded,
      failed: sum.failed + more.failed,
      cancelled: sum.cancelled + more.cancelled,
    });
  }
  return sums;
}

// Replaces a task range by others: tasks that wait again, tasks that stay with the worker.

/** $1 task ranges, $2 their jobs, $3 how many tasks leave unrun; $4 to $14 replacements; from $15 earlier results. */
const REPLACEMENTS = `
unnest($4::int[], $5::bigint[], $6::int[], $7::int[], $8::int[], $9::int[], $10::int[], $11::float8[], $12::text[],
  $13::text[], $14::float8[])
  AS q (w, id, first, last, attempt, failures, crashes, not_before, avoid, worker, wait_ms)`;

const earlier = (rare: boolean): string => `
saved AS (
  INSERT INTO laboro.earlier_attempt (${RESULT_COLUMNS})
  SELECT ($2::bigint[])[r.w], r.idx, r.attempt, r.state, r.worker, r.started, r.ended, r.output_bytes, r.code,
    ${rareColumns(15, rare)}
  FROM ${resultRows(15, rare)}
  WHERE (SELECT flags FROM own)[r.w]
  ON CONFLICT DO NOTHING
  RETURNING job, octet_length(output) AS bytes),`;

/** Replacements keep the limits of the replaced range, whatever this broker knows of the job. */
export const replaceStatement = (ends: "none" | "plain" | "rare"): string => `
WITH own AS MATERIALIZED (${ownFlags("$1")}),
gone AS (DELETE FROM laboro.task_range p WHERE p.id = ANY($1::bigint[]) AND ${owned("p")} RETURNING p.id),
made AS (
  INSERT INTO laboro.task_range
    (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch, limit_names)
  SELECT q.id, ($2::bigint[])[q.w], q.first, q.last, q.attempt, q.failures, q.crashes, q.not_before, q.wait_ms, q.avoid,
    q.worker, ${OWN_EPOCH},
    (SELECT o.limit_names FROM laboro.task_range o WHERE o.id = ($1::bigint[])[q.w])
  FROM ${REPLACEMENTS}
  -- A replacement may have the id of the range it replaces. The condition on gone has that one deleted first.
  WHERE (SELECT flags FROM own)[q.w] AND (SELECT count(*) FROM gone) >= 0),
${ends === "none" ? "" : earlier(ends === "rare")}
counted AS (
  SELECT job, sum(bytes) AS bytes, 0 AS succeeded, 0 AS failed, sum(cancelled) AS cancelled FROM (
    SELECT a.job, 0 AS bytes, a.cancelled FROM unnest($2::bigint[], $3::int[]) WITH ORDINALITY AS a (job, cancelled, n)
    WHERE a.cancelled > 0 AND (SELECT flags FROM own)[a.n]
    ${ends === "rare" ? "UNION ALL SELECT job, bytes, 0 FROM saved WHERE bytes > 0" : ""}) AS more
  GROUP BY job),
summed AS (${addToJobCounters("counted")})
SELECT flags::text AS own FROM own`;

export async function replace(
  batch: BatchContext,
  stageProgress: StageProgress,
  writes: readonly IndexedWrite<"replace">[],
): Promise<void> {
  const plain = writes.map(({ write }) => write);
  const pieces = writes.flatMap(({ write }, at) => write.replacements.map((piece) => ({ ...piece, w: at + 1 })));
  const lists = writes.map(({ write }) => write.earlierAttempts);
  const ends = resultColumns(lists, batch.workerNumbers);
  const any = lists.some((list) => list.length > 0);
  const [row] = await batch.session.send<{ own: string }>(
    replaceStatement(any ? (ends.rare ? "rare" : "plain") : "none"),
    [
      ...numberColumns(plain, "rangeId", "job", "cancelled"),
      ...numberColumns(pieces, "w", "id", "first", "last", "attempt", "failures", "crashes", "notBefore"),
      ...textColumns(pieces, "avoid", "worker"),
      ...numberColumns(pieces, "waitMs"),
      ...(any ? ends.values : []),
    ],
  );
  const own = flagsFrom(row?.own ?? null);
  writes.forEach(({ at, write }, i) => {
    batch.writeResults[at] = { op: write.op, lost: own[i] !== true };
    if (own[i] === true) stageProgress.add(at, write.job, { cancelled: write.cancelled });
  });
}
