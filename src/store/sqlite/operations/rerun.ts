/**
 * Finished tasks go back to wait. Of the tasks asked for, those in a parcel are left out; of the others, those with a result of the
 * right end move to `earlier`, and those that are among the cancels and have no result never ran.
 */
import type { JobId } from "../../../model/ids.js";
import type { Counters } from "../../../model/job.js";
import { contains, countOf, normalize, type Range, type Ranges, within, without } from "../../../model/ranges.js";
import type { Write } from "../../../model/store.js";
import { joinRuns, piecesOf, type Run, tooManyPieces } from "../../rerun-pieces.js";
import type { Operation } from "../batch.js";
import type { Database } from "../database.js";
import type { OutputTable } from "../output-table.js";
import { prepareRerunResults } from "../rerun-results.js";
import type { Tables } from "./index.js";

const FIND = "SELECT cursor, cancels FROM job WHERE id = ?";
const PARCELS = "SELECT first, last FROM parcel WHERE job = ?";
const KEPT = `
SELECT idx AS "index", max(attempt) AS attempt FROM (
  SELECT idx, attempt FROM earlier WHERE job = ?1 AND idx BETWEEN ?2 AND ?3
  UNION ALL
  SELECT idx, attempt FROM output WHERE job = ?1 AND idx BETWEEN ?2 AND ?3)
GROUP BY idx`;
/** Without cancels there is nothing left that the reason would explain. */
const REOPEN = `
UPDATE job SET ended_at = NULL, ended_state = NULL, cancels = ?1, reason = CASE WHEN ?1 = '[]' THEN NULL ELSE reason END
WHERE id = ?2`;

type Rerun = Extract<Write, { op: "rerun" }>;

export function prepareRerun({ db, ledger, jobs, output, insertParcel }: Tables): Operation<"rerun"> {
  const find = db.prepare(FIND);
  const parcelsOf = db.prepare(PARCELS);
  const reopen = db.prepare(REOPEN);
  const results = prepareRerunResults(db);
  const byLastAttempt = prepareByLastAttempt(db, output);

  /** Where tasks may be that can run again: granted once, asked for, and in no parcel. */
  const areasOf = ({ job, ranges }: Rerun, cursor: number): Ranges => {
    const held: Range[] = parcelsOf.all(job);
    const granted = { first: 0, last: cursor - 1 };
    const asked = ranges === undefined ? [granted] : within(granted, normalize(ranges));
    const parcels = normalize(held);
    return normalize(asked.flatMap((range) => without(range, parcels)));
  };

  const neverRan = (job: JobId, areas: Ranges, cancels: Ranges): Ranges =>
    areas.flatMap((area) => within(area, cancels)).flatMap((range) => without(range, results.recorded(job, range)));

  return (write, { epoch, now }) => {
    const { op, job, ends, names } = write;
    const row: { cursor: number; cancels: string } | undefined = find.get(job);
    if (row === undefined) return { op, parcels: [], count: 0 };
    const cancels: Ranges = JSON.parse(row.cancels);
    const areas = areasOf(write, row.cursor);
    const unrun = ends.includes("cancelled") ? neverRan(job, areas, cancels) : [];
    const ran = areas.flatMap((area) => results.runs(job, area, ends));
    const runs = joinRuns([...ran, ...byLastAttempt(job, unrun)]);
    const refused = runs.length > names ? tooManyPieces(runs.length, names) : undefined;

    if (runs.length > 0 && refused === undefined) {
      const less = areas.map((area) => results.makeEarlier(job, area, ends)).reduce(sum);
      const again = normalize(runs);
      const left = JSON.stringify(cancels.flatMap((range) => without(range, again)));
      reopen.run(left, job);
      const endedNow = ledger.reopen(job, { ...less, cancelled: less.cancelled + countOf(unrun) }, left);
      // The attempts that never ended are kept before there are others, which go on.
      if (endedNow) output.keepRest(job);
    }
    ledger.writeOne(job, now);
    const found = jobs.find(job);
    const answer = { op, ...(found === undefined ? {} : { job: found }) };
    if (refused !== undefined) return { ...answer, parcels: [], count: 0, refused };
    const parcels = piecesOf(runs, job, write.parcel);
    for (const parcel of parcels) insertParcel(parcel, epoch);
    return { ...answer, parcels, count: countOf(runs) };
  };
}

const sum = (a: Counters, b: Counters): Counters => ({
  succeeded: a.succeeded + b.succeeded,
  failed: a.failed + b.failed,
  cancelled: a.cancelled + b.cancelled,
});

/** Divides tasks without a result by the last attempt of which anything is kept: a number is not given twice. */
function prepareByLastAttempt(db: Database, output: OutputTable): (job: JobId, ranges: Ranges) => Run[] {
  const kept = db.prepare(KEPT);
  return (job, ranges) => {
    if (ranges.length === 0) return [];
    const last = new Map<number, number>();
    for (const { index, attempt } of output.unended(job)) {
      if (contains(ranges, index)) last.set(index, Math.max(attempt, last.get(index) ?? 0));
    }
    for (const { first, last: end } of ranges) {
      const rows: { index: number; attempt: number }[] = kept.all(job, first, end);
      for (const { index, attempt } of rows) last.set(index, Math.max(attempt, last.get(index) ?? 0));
    }
    const tried = [...last].map(([index, attempt]) => ({ first: index, last: index, attempt }));
    const triedRanges = normalize(tried);
    const others = ranges.flatMap((range) => without(range, triedRanges));
    return [...tried, ...others.map((range) => ({ ...range, attempt: 0 }))];
  };
}
