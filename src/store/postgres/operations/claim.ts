/**
 * Tasks handed to workers. Claims that follow on from one parcel are one cut off its front; a claim alone may also take from its end.
 */
import { LaboroError } from "../../../base/errors.js";
import type { JobId, ParcelId } from "../../../model/ids.js";
import type { Range } from "../../../model/ranges.js";
import { flags, numbers, texts } from "../arrays.js";
import { type Batch, MustGoApart } from "../batch.js";
import type { Placed } from "../stages.js";
import { OWN } from "../statements.js";

/** $1 parcels to take from, $2 and $3 the tasks taken from each, $4 whether by several claims. */
const CUTS = "unnest($1::bigint[], $2::int[], $3::int[], $4::boolean[]) AS c (id, first, last, several)";
/** $5 to $10 the claims, $11 to $13 the cut that each is part of. */
const CLAIMS = `unnest($5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::int[], $10::text[], $11::int[], $12::int[], $13::boolean[])
  AS a (id, parcel, first_task, last_task, attempt, worker, first, last, several)`;
const WAITS = `p.epoch = ${OWN} AND p.worker IS NULL`;
const fits = (cut: string): string =>
  `p.first <= ${cut}.first AND p.last >= ${cut}.last AND (p.first = ${cut}.first OR (p.last = ${cut}.last AND NOT ${cut}.several))`;

export const CLAIM = `
WITH found AS MATERIALIZED (
  SELECT p.id, p.job, p.first, p.last, j.has_entries FROM ${CUTS}
  JOIN laboro.parcel p ON p.id = c.id JOIN laboro.job j ON j.id = p.job
  WHERE ${WAITS}),
made AS (
  INSERT INTO laboro.parcel (id, job, first, last, attempt, failures, crashes, not_before, avoid, worker, epoch)
  SELECT a.parcel, p.job, a.first_task, a.last_task, a.attempt, p.failures, p.crashes, p.not_before, p.avoid, a.worker, p.epoch
  FROM ${CLAIMS} JOIN laboro.parcel p ON p.id = a.id
  WHERE ${WAITS} AND ${fits("a")}),
cut AS (
  UPDATE laboro.parcel p
  SET first = CASE p.first WHEN c.first THEN c.last + 1 ELSE p.first END, last = CASE p.first WHEN c.first THEN p.last ELSE c.first - 1 END
  FROM ${CUTS}
  WHERE p.id = c.id AND ${WAITS} AND ${fits("c")} AND NOT (p.first = c.first AND p.last = c.last)),
gone AS (
  DELETE FROM laboro.parcel p USING ${CUTS}
  WHERE p.id = c.id AND ${WAITS} AND p.first = c.first AND p.last = c.last)
SELECT id, job, first, last, has_entries AS "hasEntries" FROM found`;

interface Found extends Range {
  readonly id: ParcelId;
  readonly job: JobId;
  readonly hasEntries: boolean;
}

interface Cut extends Range {
  readonly several: boolean;
}

export async function claim(batch: Batch, writes: readonly Placed<"claim">[]): Promise<void> {
  const cuts = cutsOf(writes);
  const rows = await batch.session.send<Found>(CLAIM, [
    numbers([...cuts.keys()]),
    ...columnsOf([...cuts.values()]),
    numbers(writes.map(({ write }) => write.from)),
    numbers(writes.map(({ write }) => write.parcel)),
    numbers(writes.map(({ write }) => write.first)),
    numbers(writes.map(({ write }) => write.last)),
    numbers(writes.map(({ write }) => write.attempt)),
    texts(writes.map(({ write }) => write.worker)),
    ...columnsOf(writes.flatMap(({ write }) => cuts.get(write.from) ?? [])),
  ]);
  const found = new Map(rows.map((row) => [row.id, row]));
  for (const [from, cut] of cuts) {
    const parcel = found.get(from);
    if (parcel !== undefined && !isAtAnEnd(parcel, cut)) refuse(from, parcel, cut);
  }
  const wanted: { readonly at: number; readonly job: JobId; readonly range: Range }[] = [];
  for (const { at, write } of writes) {
    const { op, from, first, last } = write;
    const parcel = found.get(from);
    const lost = parcel === undefined || !reaches(parcel, cuts.get(from) ?? write);
    batch.answers[at] = { op, lost };
    if (!lost && parcel.hasEntries) wanted.push({ at, job: parcel.job, range: { first, last } });
  }
  // One after the other: neighbours find their entries in what the first of them has read.
  for (const { at, job, range } of wanted) {
    batch.answers[at] = { op: "claim", lost: false, entries: await batch.entries.read(job, range, batch.session) };
  }
}

function cutsOf(writes: readonly Placed<"claim">[]): Map<ParcelId, Cut> {
  const cuts = new Map<ParcelId, Cut>();
  for (const { write } of writes) {
    const { from, first, last } = write;
    const cut = cuts.get(from);
    cuts.set(from, cut === undefined ? { first, last, several: false } : { first: cut.first, last, several: true });
  }
  return cuts;
}

const columnsOf = (cuts: readonly Cut[]): string[] => [
  numbers(cuts.map(({ first }) => first)),
  numbers(cuts.map(({ last }) => last)),
  flags(cuts.map(({ several }) => several)),
];

const reaches = (parcel: Range, cut: Range): boolean => parcel.first <= cut.first && parcel.last >= cut.last;

/** True also where the cut reaches beyond the parcel: that is no fault, but lost. */
const isAtAnEnd = (parcel: Range, cut: Cut): boolean => {
  if (cut.several) return parcel.first === cut.first && parcel.last >= cut.last;
  return !reaches(parcel, cut) || parcel.first === cut.first || parcel.last === cut.last;
};

function refuse(from: ParcelId, parcel: Range, cut: Cut): never {
  if (cut.several) throw new MustGoApart();
  throw new LaboroError(
    "LABORO_INTERNAL",
    `a claim takes ${cut.first}-${cut.last} out of the middle of parcel ${from} (${parcel.first}-${parcel.last})`,
  );
}
