/** Replaces a task range by others: tasks that wait again, tasks that stay with the worker. */
import { numberArray, textArray } from "../arrays.js";
import { RESULT_COLUMNS, rareColumns, resultColumns, resultRows } from "../result-columns.js";
import type { BatchContext, IndexedWrite, StageProgress } from "../stages.js";
import { addToJobCounters, flagsFrom, OWN_EPOCH, owned, ownFlags } from "../statements.js";

/** $1 task ranges, $2 their jobs, $3 how many tasks leave unrun; from $4 to $14 the replacements; from $15 on results of earlier attempts. */
const REPLACEMENTS = `unnest($4::int[], $5::bigint[], $6::int[], $7::int[], $8::int[], $9::int[], $10::int[], $11::float8[], $12::text[], $13::text[], $14::float8[])
  AS q (w, id, first, last, attempt, failures, crashes, not_before, avoid, worker, wait_ms)`;

const earlier = (rare: boolean): string => `
saved AS (
  INSERT INTO laboro.earlier_attempt (${RESULT_COLUMNS})
  SELECT ($2::bigint[])[r.w], r.idx, r.attempt, r.state, r.worker, r.started, r.ended, r.output_bytes, r.code, ${rareColumns(15, rare)}
  FROM ${resultRows(15, rare)}
  WHERE (SELECT flags FROM own)[r.w]
  ON CONFLICT DO NOTHING
  RETURNING job, octet_length(output) AS bytes),`;

/** `limited`: the replacements keep the limits of what they replace. */
export const replaceStatement = (ends: "none" | "plain" | "rare", limited = false): string => `
WITH own AS MATERIALIZED (${ownFlags("$1")}),
gone AS (DELETE FROM laboro.task_range p WHERE p.id = ANY($1::bigint[]) AND ${owned("p")} RETURNING p.id),
made AS (
  INSERT INTO laboro.task_range
    (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch, limit_names)
  SELECT q.id, ($2::bigint[])[q.w], q.first, q.last, q.attempt, q.failures, q.crashes, q.not_before, q.wait_ms, q.avoid, q.worker, ${OWN_EPOCH},
    ${limited ? "(SELECT o.limit_names FROM laboro.task_range o WHERE o.id = ($1::bigint[])[q.w])" : "NULL"}
  FROM ${REPLACEMENTS}
  -- A replacement may have the id of the range it replaces, which has to be deleted first: the condition on gone makes sure of it.
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
  const pieces = writes.flatMap(({ write }, at) => write.replacements.map((piece) => ({ ...piece, w: at + 1 })));
  const lists = writes.map(({ write }) => write.earlierAttempts);
  const ends = resultColumns(lists, batch.workerNumbers);
  const any = lists.some((list) => list.length > 0);
  const [row] = await batch.session.send<{ own: string }>(
    replaceStatement(
      any ? (ends.rare ? "rare" : "plain") : "none",
      writes.some(({ write }) => write.limited === true),
    ),
    [
      numberArray(writes.map(({ write }) => write.rangeId)),
      numberArray(writes.map(({ write }) => write.job)),
      numberArray(writes.map(({ write }) => write.cancelled)),
      numberArray(pieces.map(({ w }) => w)),
      numberArray(pieces.map(({ id }) => id)),
      numberArray(pieces.map(({ first }) => first)),
      numberArray(pieces.map(({ last }) => last)),
      numberArray(pieces.map(({ attempt }) => attempt)),
      numberArray(pieces.map(({ failures }) => failures)),
      numberArray(pieces.map(({ crashes }) => crashes)),
      numberArray(pieces.map(({ notBefore }) => notBefore)),
      textArray(pieces.map(({ avoid }) => avoid ?? null)),
      textArray(pieces.map(({ worker }) => worker ?? null)),
      numberArray(pieces.map(({ waitMs }) => waitMs ?? null)),
      ...(any ? ends.values : []),
    ],
  );
  const own = flagsFrom(row?.own ?? null);
  writes.forEach(({ at, write }, i) => {
    batch.writeResults[at] = { op: write.op, lost: own[i] !== true };
    if (own[i] === true) stageProgress.add(at, write.job, { cancelled: write.cancelled });
  });
}
