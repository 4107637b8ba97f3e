/** New jobs, each one row however many tasks it has. */
import { pack } from "msgpackr";
import { LaboroError } from "../../../base/errors.js";
import { type Job, newJob } from "../../../model/job.js";
import type { Parcel } from "../../../model/store.js";
import { chunkEntries } from "../../entry-chunks.js";
import { flags, Joined, numbers, plain, texts } from "../arrays.js";
import type { Batch } from "../batch.js";
import type { Op, Placed } from "../stages.js";
import { addToTally, OWN } from "../statements.js";

/** $1 now; $2 the requests, one behind the other; $3 to $14 the jobs. */
export const SUBMIT = `
WITH asked AS MATERIALIZED (
  SELECT * FROM unnest($3::bigint[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::int[], $10::boolean[], $11::boolean[],
    $12::int[], $13::bigint[], $14::bigint[])
  AS a (id, start, length, name, pool, key, count, has_entries, held, granted, parcel, bytes)),
jobs AS (
  INSERT INTO laboro.job (id, created, request, name, pool, key, count, has_entries, held, cursor, changed_by, ended_at, ended_state)
  -- A job without tasks has ended with its submission.
  SELECT id, $1::float8, substring($2::bytea FROM start FOR length), name, pool, key, count, has_entries, held, granted, ${OWN},
    CASE count WHEN 0 THEN $1::float8 END, CASE count WHEN 0 THEN 0 END
  FROM asked),
parcels AS (
  INSERT INTO laboro.parcel (id, job, first, last, attempt, failures, crashes, not_before, epoch)
  SELECT parcel, id, 0, granted - 1, 0, 0, 0, 0, ${OWN} FROM asked WHERE granted > 0),
sized AS (SELECT id AS job, bytes, 0 AS succeeded, 0 AS failed, 0 AS cancelled FROM asked WHERE bytes > 0)
${addToTally("sized")}`;

/** $1 the chunks, one behind the other; $2 to $6 where each belongs and lies. */
export const KEEP_ENTRIES = `
INSERT INTO laboro.entry_chunk (job, first, last, bytes)
SELECT job, first, last, substring($1::bytea FROM start FOR length)
FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[]) AS c (job, first, last, start, length)
WHERE ${OWN} > 0`;

export async function submit(batch: Batch, writes: readonly Placed<"submit">[]): Promise<void> {
  const requests = new Joined();
  const entries = new Joined();
  const chunks: { readonly job: number; readonly first: number; readonly last: number }[] = [];
  const jobs = writes.map(({ write }) => {
    requests.add(new Uint8Array(pack(write.job)));
    const job = submitted(batch, write);
    const own = write.entries === undefined ? [] : chunkEntries(write.entries);
    for (const { first, last, bytes } of own) {
      chunks.push({ job: job.id, first, last });
      entries.add(bytes);
    }
    // The first of them are likely to be handed out next.
    if (own.length > 0) batch.entries.keep(job.id, own.slice(0, 4));
    return { ...job, parcel: write.parcel, bytes: own.reduce((sum, { bytes }) => sum + bytes.length, 0) };
  });
  const sent: Promise<unknown>[] = [
    batch.session.send(SUBMIT, [
      batch.now,
      requests.bytes,
      numbers(jobs.map(({ id }) => id)),
      numbers(requests.starts),
      numbers(requests.lengths),
      texts(jobs.map(({ name }) => name)),
      texts(jobs.map(({ requirement }) => requirement.pool)),
      texts(jobs.map(({ key }) => (key === undefined ? null : plain(key)))),
      numbers(jobs.map(({ count }) => count)),
      flags(jobs.map(({ hasEntries }) => hasEntries)),
      flags(jobs.map(({ held }) => held)),
      numbers(jobs.map(({ cursor }) => cursor)),
      numbers(jobs.map(({ parcel }) => parcel)),
      numbers(jobs.map(({ bytes }) => bytes)),
    ]),
  ];
  if (chunks.length > 0) {
    const places = [chunks.map(({ job }) => job), chunks.map(({ first }) => first), chunks.map(({ last }) => last)];
    const lists = [...places, entries.starts, entries.lengths].map(numbers);
    sent.push(batch.session.send(KEEP_ENTRIES, [entries.bytes, ...lists]));
  }
  writes.forEach(({ at, write }) => {
    const job = submitted(batch, write);
    const parcel = firstParcel(job, write);
    batch.answers[at] = parcel === undefined ? { op: "submit", job } : { op: "submit", job, parcel };
  });
  await Promise.all(sent);
}

function submitted(batch: Batch, write: Op<"submit">): Job {
  const id = batch.numbers.get(write);
  if (id === undefined) throw new LaboroError("LABORO_INTERNAL", "a submission has no number");
  const granted = Math.max(0, Math.min(write.lease, write.job.count));
  return newJob(write.job, id, write.entries !== undefined, granted, batch.now);
}

function firstParcel({ id, cursor }: Job, { parcel }: Op<"submit">): Parcel | undefined {
  if (cursor === 0) return undefined;
  return { id: parcel, job: id, first: 0, last: cursor - 1, attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
}
