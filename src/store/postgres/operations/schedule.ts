/** Changes of schedules, each with the writes of its run: both or neither. Their rows are locked (write-batch.ts). */
import { JobId } from "../../../model/ids.js";
import type { RunWrite, ScheduleChange, SchedulePage, ScheduleQuery } from "../../../model/schedule.js";
import type { WriteResult } from "../../../model/store.js";
import { encodeSchedule, jobOfRun, type ScheduleRow, scheduleFrom } from "../../rows.js";
import type { Session } from "../connections.js";
import { NEXT_JOBS } from "../known-rows.js";
import { type BatchContext, type IndexedWrite, StageProgress, type WriteOf } from "../stages.js";
import {
  ConcatenatedBytes,
  numberArray,
  numberColumns,
  OWN_EPOCH,
  textArray,
  textColumns,
  validText,
} from "../statements.js";
import { cancel, totalsOf } from "./cancel.js";
import { submit } from "./submit.js";

/** $1 the specs, concatenated; $2 to $9 the changes. A change without a state removes the row. */
export const CHANGE_SCHEDULES = `
WITH asked AS MATERIALIZED (
  SELECT a.*, coalesce(s.revision, 0) AS found
  FROM unnest($2::text[], $3::bigint[], $4::float8[], $5::bigint[], $6::float8[], $7::int[], $8::int[], $9::text[])
    AS a (name, expected, due, revision, next_at, start, length, state)
  LEFT JOIN laboro.schedule s ON s.name = a.name COLLATE "C"
  WHERE coalesce(s.revision, 0) = a.expected AND ${OWN_EPOCH} > 0
    AND (a.due IS NULL OR a.due <= extract(epoch FROM clock_timestamp()) * 1000)),
removed AS (DELETE FROM laboro.schedule s USING asked a WHERE s.name = a.name AND a.state IS NULL RETURNING s.name),
updated AS (
  UPDATE laboro.schedule s SET revision = a.revision, next_at = a.next_at, state = a.state,
    spec = CASE WHEN a.length IS NULL THEN s.spec ELSE substring($1::bytea FROM a.start FOR a.length) END,
    changed_xid = pg_current_xact_id(), changed_by = ${OWN_EPOCH}
  FROM asked a WHERE s.name = a.name AND a.state IS NOT NULL AND a.found <> 0 RETURNING s.name),
added AS (
  INSERT INTO laboro.schedule (name, revision, next_at, spec, state, changed_by)
  SELECT name, revision, next_at, substring($1::bytea FROM start FOR length), state, ${OWN_EPOCH}
  FROM asked WHERE state IS NOT NULL AND found = 0 AND length IS NOT NULL
  ON CONFLICT (name) DO NOTHING RETURNING name)
SELECT name FROM removed UNION ALL SELECT name FROM updated UNION ALL SELECT name FROM added`;

/** $1 names, $2 the jobs of their runs. */
export const SET_SCHEDULE_JOBS = `
UPDATE laboro.schedule s SET former_job = s.last_job, last_job = a.job
FROM unnest($1::text[], $2::bigint[]) AS a (name, job) WHERE s.name = a.name COLLATE "C" AND ${OWN_EPOCH} > 0`;

export async function schedule(batch: BatchContext, { at, write }: IndexedWrite<"schedule">): Promise<void> {
  const { op, changes } = write;
  const rows = await batch.session.send<{ name: string }>(CHANGE_SCHEDULES, parameters(changes));
  const changed = new Set(rows.map(({ name }) => name));
  const made = changes.filter(({ name }) => changed.has(name));
  const results = await runWrites(
    batch,
    made.flatMap(({ writes }) => writes),
  );
  let taken = 0;
  const resultsOf = ({ writes }: ScheduleChange): readonly WriteResult[] => {
    taken += writes.length;
    return results.slice(taken - writes.length, taken);
  };
  const answers = changes.map((one) =>
    changed.has(one.name) ? { changed: true, results: resultsOf(one) } : { changed: false, results: [] },
  );
  batch.writeResults[at] = { op, changes: answers };
  const jobs = answers.flatMap(({ results: ofRun }, i) => {
    const job = ofRun.map(jobOfRun).find((one) => one !== undefined);
    return job === undefined ? [] : [{ name: changes[i]?.name ?? "", job }];
  });
  if (jobs.length === 0) return;
  const values = [textArray(jobs.map(({ name }) => name)), numberArray(jobs.map(({ job }) => job))];
  await batch.session.send(SET_SCHEDULE_JOBS, values);
}

function parameters(changes: readonly ScheduleChange[]): (string | Uint8Array)[] {
  const specs = new ConcatenatedBytes();
  const places = changes.map(({ next }) =>
    next?.spec === undefined ? undefined : specs.add(encodeSchedule(next.spec)),
  );
  return [
    specs.bytes,
    ...textColumns(changes, "name"),
    ...numberColumns(changes, "expected", "due"),
    numberArray(changes.map(({ next }) => next?.revision ?? null)),
    numberArray(changes.map(({ next }) => next?.nextAt ?? null)),
    numberArray(places.map((place) => place?.start ?? null)),
    numberArray(places.map((place) => place?.length ?? null)),
    textArray(changes.map(({ next }) => (next === undefined ? null : JSON.stringify(next.state)))),
  ];
}

/** The submissions together, then the cancels. Numbers are taken only now: a broker that is too late uses none. */
async function runWrites(batch: BatchContext, writes: readonly RunWrite[]): Promise<readonly WriteResult[]> {
  const writeResults: (WriteResult | undefined)[] = writes.map(() => undefined);
  const submits: IndexedWrite<"submit">[] = [];
  for (const [at, write] of writes.entries()) if (write.op === "submit") submits.push({ at, write });
  const jobNumbers = new Map<WriteOf<"submit">, JobId>();
  const context = { ...batch, writeResults, jobNumbers };
  if (submits.length > 0) {
    const numbers = await batch.session.send<{ id: number }>(NEXT_JOBS, [submits.length]);
    submits.forEach(({ write }, i) => {
      jobNumbers.set(write, JobId(numbers[i]?.id ?? 0));
    });
    const plain = submits.filter(({ write }) => write.job.key === undefined);
    if (plain.length > 0) await submit(context, plain);
    // The holder of a key may depend on the submission before.
    for (const one of submits) if (one.write.job.key !== undefined) await submit(context, [one]);
  }
  const progress = new StageProgress();
  for (const [at, write] of writes.entries()) if (write.op === "cancel") await cancel(context, progress, { at, write });
  for (const [at, after] of progress.progress(await totalsOf(batch, progress.jobs)))
    writeResults[at] = { op: "cancel", progress: after };
  return writeResults.map((result) => result ?? { op: "cancel" });
}

/** Reading schedules. The clock is the database's. */
const CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000)::float8";
const SELECT = `
SELECT name, revision, next_at AS "nextAt", spec, state, last_job AS "lastJob", former_job AS "formerJob"
  FROM laboro.schedule`;
const ONE = `${SELECT} WHERE name = $1::text`;
/** $1 limit. The clock is read once: compared with a function, the index would not be used. */
export const DUE_SCHEDULES = `${SELECT} WHERE next_at <= (SELECT ${CLOCK}) ORDER BY next_at, name LIMIT $1::int`;
/** $1 after this name, $2 limit. */
const PAGE = `${SELECT} WHERE name > $1::text ORDER BY name LIMIT $2::int`;
export const EARLIEST_SCHEDULE = `
SELECT ${CLOCK} AS now, (SELECT min(next_at) FROM laboro.schedule WHERE next_at IS NOT NULL) AS earliest`;

export async function readSchedules(reader: Session, query: ScheduleQuery): Promise<SchedulePage> {
  // Rows first: by the clock that is returned, more may be due than was read, never less.
  const rows = await rowsOf(reader, query);
  const [clock] = await reader.send<{ now: number; earliest: number | null }>(EARLIEST_SCHEDULE);
  const { now = Date.now(), earliest = null } = clock ?? {};
  return { schedules: rows.map(scheduleFrom), now, ...(earliest === null ? {} : { earliest }) };
}

function rowsOf(reader: Session, { name, due, after = "", limit }: ScheduleQuery): Promise<readonly ScheduleRow[]> {
  if (name !== undefined) return reader.send<ScheduleRow>(ONE, [validText(name)]);
  return due === true
    ? reader.send<ScheduleRow>(DUE_SCHEDULES, [limit])
    : reader.send<ScheduleRow>(PAGE, [validText(after), limit]);
}
