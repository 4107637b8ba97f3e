/**
 * The SQL of claims, and of claims adopted from another broker. Consecutive claims from one task range cut it once, at
 * its front. A single claim may also take from its end.
 */
import { LaboroError } from "../../../base/errors.js";
import type { JobId, TaskRangeId } from "../../../model/ids.js";
import type { Range } from "../../../model/ranges.js";
import { type ClaimedRow, claimedRangesFrom, SETTLED, TASK_RANGE_FIELDS } from "../job-rows.js";
import { addStarts } from "../limit-rows.js";
import { type BatchContext, type IndexedWrite, MustRunSeparately } from "../stages.js";
import { booleanArray, numberArray, numberColumns, OWN_EPOCH, owned, textColumns, validText } from "../statements.js";

/** $1 task ranges to take from, $2 and $3 the tasks taken from each, $4 whether by several claims. */
const CUTS = "unnest($1::bigint[], $2::int[], $3::int[], $4::boolean[]) AS c (id, first, last, several)";
/** $5 to $10 the claims, $11 to $13 the cut that each is part of. */
const CLAIMS = `
unnest($5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::int[], $10::text[], $11::int[], $12::int[], $13::boolean[])
  AS a (id, range_id, first_task, last_task, attempt, worker, first, last, several)`;
const WAITS = `${owned("p")} AND p.worker IS NULL`;
const fits = (cut: string): string =>
  `p.first <= ${cut}.first AND p.last >= ${cut}.last
    AND (p.first = ${cut}.first OR (p.last = ${cut}.last AND NOT ${cut}.several))`;

export const CLAIM = `
WITH found AS MATERIALIZED (
  SELECT p.id, p.job, p.first, p.last, j.has_entries FROM ${CUTS}
  JOIN laboro.task_range p ON p.id = c.id JOIN laboro.job j ON j.id = p.job
  WHERE ${WAITS}),
made AS (
  INSERT INTO laboro.task_range
    (id, job, first, last, attempt, failures, crashes, not_before, wait_ms, avoid, worker, epoch, limit_names)
  SELECT a.range_id, p.job, a.first_task, a.last_task, a.attempt, p.failures, p.crashes, p.not_before, p.wait_ms,
    p.avoid, a.worker, p.epoch,
    p.limit_names
  FROM ${CLAIMS} JOIN laboro.task_range p ON p.id = a.id
  WHERE ${WAITS} AND ${fits("a")}),
cut AS (
  UPDATE laboro.task_range p
  SET first = CASE p.first WHEN c.first THEN c.last + 1 ELSE p.first END,
    last = CASE p.first WHEN c.first THEN p.last ELSE c.first - 1 END
  FROM ${CUTS}
  WHERE p.id = c.id AND ${WAITS} AND ${fits("c")} AND NOT (p.first = c.first AND p.last = c.last)),
gone AS (
  DELETE FROM laboro.task_range p USING ${CUTS}
  WHERE p.id = c.id AND ${WAITS} AND p.first = c.first AND p.last = c.last)
SELECT id, job, first, last, has_entries AS "hasEntries" FROM found`;

interface FoundRange extends Range {
  readonly id: TaskRangeId;
  readonly job: JobId;
  readonly hasEntries: boolean;
}

interface Cut extends Range {
  readonly several: boolean;
}

export async function claim(batch: BatchContext, writes: readonly IndexedWrite<"claim">[]): Promise<void> {
  const cuts = cutsOf(writes);
  const claims = writes.map(({ write }) => write);
  const [, rows] = await Promise.all([
    addStarts(batch.session, writes),
    batch.session.send<FoundRange>(CLAIM, [
      numberArray([...cuts.keys()]),
      ...columnsOf([...cuts.values()]),
      ...numberColumns(claims, "from", "rangeId", "first", "last", "attempt"),
      ...textColumns(claims, "worker"),
      ...columnsOf(writes.flatMap(({ write }) => cuts.get(write.from) ?? [])),
    ]),
  ]);
  const found = new Map(rows.map((row) => [row.id, row]));
  for (const [from, cut] of cuts) {
    const taskRange = found.get(from);
    if (taskRange !== undefined && !isAtAnEnd(taskRange, cut)) refuse(from, taskRange, cut);
  }
  // One after the other, because claims next to each other often need the same chunk of entries: it is read once.
  for (const one of writes) {
    const taskRange = found.get(one.write.from);
    const reached = taskRange !== undefined && reaches(taskRange, cuts.get(one.write.from) ?? one.write);
    const reading = claimed(batch, one, reached ? taskRange.job : undefined, taskRange?.hasEntries === true);
    if (reading !== undefined) await reading;
  }
}

/** The answer to a claim of tasks of this job; without a job it is lost. Resolves when its entries have been read. */
export function claimed(
  batch: BatchContext,
  { at, write }: IndexedWrite<"claim">,
  job: JobId | undefined,
  hasEntries: boolean,
): Promise<void> | undefined {
  batch.writeResults[at] = { op: "claim", lost: job === undefined };
  if (job === undefined || !hasEntries) return undefined;
  return batch.entries.read(job, write, batch.session).then((entries) => {
    batch.writeResults[at] = { op: "claim", lost: false, entries };
  });
}

function cutsOf(writes: readonly IndexedWrite<"claim">[]): Map<TaskRangeId, Cut> {
  const cuts = new Map<TaskRangeId, Cut>();
  for (const { write } of writes) {
    const { from, first, last } = write;
    const cut = cuts.get(from);
    cuts.set(from, cut === undefined ? { first, last, several: false } : { first: cut.first, last, several: true });
  }
  return cuts;
}

const columnsOf = (cuts: readonly Cut[]): string[] => [
  ...numberColumns(cuts, "first", "last"),
  booleanArray(cuts.map(({ several }) => several)),
];

const reaches = (taskRange: Range, cut: Range): boolean => taskRange.first <= cut.first && taskRange.last >= cut.last;

/** True also if the cut reaches beyond the task range. Then the claim is lost, which is no error. */
const isAtAnEnd = (taskRange: Range, cut: Cut): boolean => {
  if (cut.several) return taskRange.first === cut.first && taskRange.last >= cut.last;
  return !reaches(taskRange, cut) || taskRange.first === cut.first || taskRange.last === cut.last;
};

function refuse(from: TaskRangeId, taskRange: Range, cut: Cut): never {
  if (cut.several) throw new MustRunSeparately();
  throw new LaboroError(
    "LABORO_INTERNAL",
    `a claim takes ${cut.first}-${cut.last} out of the middle of task range ${from} (${taskRange.first}-${taskRange.last})`,
  );
}

// The claims of a worker at other brokers become this broker's; from then on the writes of the former owner are lost.

/** $1 the worker. In order of the ids, as every batch locks its task ranges. */
export const ADOPT = `
WITH theirs AS MATERIALIZED (
  SELECT id FROM laboro.task_range WHERE worker = $1::text AND epoch <> ${OWN_EPOCH} ORDER BY id FOR UPDATE)
UPDATE laboro.task_range p SET epoch = ${OWN_EPOCH} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;

/** Read afterwards: it includes results that the former owner recorded while this statement waited. */
export const HELD = `
SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.task_range p WHERE p.worker = $1::text AND p.epoch = ${OWN_EPOCH}`;

export async function adopt(batch: BatchContext, { at, write }: IndexedWrite<"adopt">): Promise<void> {
  const worker = validText(write.worker);
  const [adopted, held] = await Promise.all([
    batch.session.send<{ id: TaskRangeId }>(ADOPT, [worker]),
    batch.session.send<ClaimedRow>(HELD, [worker]),
  ]);
  const names = new Set(adopted.map(({ id }) => id));
  batch.writeResults[at] = { op: write.op, taskRanges: claimedRangesFrom(held.filter(({ id }) => names.has(id))) };
}
