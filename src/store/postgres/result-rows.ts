/** Reading results, page by page. */
import type { JobId, TaskIndex } from "../../model/ids.js";
import { LISTED_VALUE, type TaskEnd, type TaskResult } from "../../model/outcome.js";
import type { ResultOptions, ResultPage } from "../../model/store.js";
import { validText } from "./arrays.js";
import type { Session } from "./connections.js";
import { RESULT_FIELDS, type ResultRow, resultFrom, STATES, stateNumber } from "./result-columns.js";

/** What is no success has an index of its own, which serves only a query that says so itself. */
const conditionFor = (state: TaskEnd | undefined): string => {
  if (state === undefined) return "";
  const number = stateNumber(state);
  return number === 0 ? "AND r.state = 0" : `AND r.state <> 0 AND r.state = ${number}`;
};

/** $1 job, $2 from, $3 limit, $4 the worker's name or null, $5 whether with small output, $6 with values up to this size. */
export const pageOfResults = (state?: TaskEnd): string => `
SELECT ${RESULT_FIELDS}, CASE WHEN $5::boolean THEN r.output END AS output,
  CASE WHEN octet_length(r.value) <= $6::int THEN r.value END AS value FROM laboro.result r LEFT JOIN laboro.worker w ON w.id = r.worker
WHERE r.job = $1::bigint AND r.idx >= $2::int ${conditionFor(state)}
  AND ($4::text IS NULL OR r.worker = (SELECT id FROM laboro.worker WHERE name = $4::text))
ORDER BY r.idx LIMIT $3::int`;

/** $1 job, $2 task. */
export const EARLIER = `
SELECT ${RESULT_FIELDS}, CASE WHEN octet_length(r.value) <= ${LISTED_VALUE} THEN r.value END AS value
FROM laboro.earlier_attempt r LEFT JOIN laboro.worker w ON w.id = r.worker
WHERE r.job = $1::bigint AND r.idx = $2::int ORDER BY r.attempt`;

/** $1 job, $2 first, $3 last, $4 tasks a cell. */
export const ENDS = `
SELECT (idx - $2::int) / $4::int AS cell, count(*) FILTER (WHERE state = 0) AS succeeded, count(*) FILTER (WHERE state = 1) AS failed,
  count(*) FILTER (WHERE state = 2) AS cancelled
FROM laboro.result WHERE job = $1::bigint AND idx BETWEEN $2::int AND $3::int
GROUP BY cell ORDER BY cell`;

/** $1 job. */
export const USAGE = `
SELECT count(*) AS tasks, coalesce(sum(ended - started), 0) AS "runMs", coalesce(sum(cpu_ms), 0)::float8 AS "cpuMs",
  coalesce(max(peak_memory), 0) AS "peakMemory"
FROM laboro.result WHERE job = $1::bigint`;

export async function readResults(session: Session, job: JobId, options: ResultOptions): Promise<ResultPage> {
  const { from, limit, filter = {}, withOutput = false, maxValue = -1 } = options;
  const worker = filter.worker === undefined ? null : validText(filter.worker);
  const read = (state?: TaskEnd) =>
    session.send<ResultRow>(pageOfResults(state), [job, from, limit + 1, worker, withOutput, maxValue]);
  const pages = await Promise.all(
    // Each state by its own index, in order; as many of each as are wanted of all.
    filter.states === undefined ? [read()] : STATES.filter((state) => filter.states?.includes(state)).map(read),
  );
  const rows = pages.length === 1 ? (pages[0] ?? []) : pages.flat().toSorted((a, b) => a.index - b.index);
  const results = rows.slice(0, limit).map(resultFrom);
  const beyond = rows[limit];
  return beyond === undefined ? { results } : { results, next: beyond.index };
}

export async function readEarlier(session: Session, job: JobId, index: TaskIndex): Promise<TaskResult[]> {
  return (await session.send<ResultRow>(EARLIER, [job, index])).map(resultFrom);
}
