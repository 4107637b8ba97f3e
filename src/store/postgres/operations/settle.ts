/** Results of tasks. Those of a batch go in one statement, whatever task ranges and jobs they belong to. */
import type { JobId } from "../../../model/ids.js";
import type { Counters } from "../../../model/job.js";
import { numberArray } from "../arrays.js";
import { RESULT_COLUMNS, rareColumns, resultColumns, resultRows, stateNumber } from "../result-columns.js";
import type { IndexedWrite, StageProgress } from "../stages.js";
import { type BatchContext, MustRunSeparately } from "../stages.js";
import { addToJobCounters, flagsFrom, owned, ownFlags } from "../statements.js";

const CANCELLED = stateNumber("cancelled");

/**
 * $1 task ranges and $2 their jobs, one per write; $3 the task ranges that are empty now; from $4 on the results. Lists are looked up by
 * position and not joined: the planner does not know their length, and would join two lists that it takes for short pair by pair.
 */
export const settleStatement = (rare: boolean): string => `
WITH own AS MATERIALIZED (${ownFlags("$1")}),
cancelling AS MATERIALIZED (
  SELECT array_agg(coalesce(j.cancels <> '{}', false) ORDER BY a.n) AS flags
  FROM unnest($2::bigint[]) WITH ORDINALITY AS a (id, n) LEFT JOIN laboro.job j ON j.id = a.id),
added AS (
  INSERT INTO laboro.result (${RESULT_COLUMNS})
  SELECT ($2::bigint[])[r.w], r.idx, r.attempt,
    CASE WHEN (SELECT flags FROM cancelling)[r.w] AND (SELECT cancels FROM laboro.job WHERE id = ($2::bigint[])[r.w]) @> r.idx
      THEN ${CANCELLED} ELSE r.state END,
    r.worker, r.started, r.ended, r.output_bytes, r.code, ${rareColumns(4, rare)}
  FROM ${resultRows(4, rare)}
  WHERE (SELECT flags FROM own)[r.w]
  ON CONFLICT DO NOTHING
  RETURNING job, state, coalesce(octet_length(output), 0) + coalesce(octet_length(value), 0) AS bytes),
counted AS MATERIALIZED (
  SELECT job, coalesce(sum(bytes), 0) AS bytes, count(*) FILTER (WHERE state = 0) AS succeeded, count(*) FILTER (WHERE state = 1) AS failed,
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
  const rangeIds = writes.map(({ write }) => write.rangeId);
  const empty = writes.filter(({ write }) => write.empty).map(({ write }) => write.rangeId);
  const jobs = writes.map(({ write }) => write.job);
  const lists = [numberArray(rangeIds), numberArray(jobs), numberArray(empty)];
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
