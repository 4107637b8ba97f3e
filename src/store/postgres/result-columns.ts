/** Results as columns of parameters, and as rows that come back. */
import type { JobId, TaskIndex } from "../../model/ids.js";
import { END_STATES } from "../../model/job.js";
import { LISTED_VALUE, type TaskEnd, type TaskResult } from "../../model/outcome.js";
import type { ResultOptions, ResultPage } from "../../model/store-reads.js";
import { encodeSmallOutput, type ResultRow, resultFrom, stateNumber } from "../rows.js";
import type { Session, Value } from "./connections.js";
import { booleanArray, ConcatenatedBytes, numberArray, numberColumns, textColumns, validText } from "./statements.js";

export const RESULT_COLUMNS = `job, idx, attempt, state, worker, started, ended, output_bytes, code, signal, timed_out,
  error, cpu_ms, peak_memory, output, value`;

/** `w` is the position of the write. Rare columns are left out if no result has any of them. */
const COLUMNS = ["w", "idx", "attempt", "state", "worker", "started", "ended", "output_bytes", "code"];
const RARE = "signal timed_out error cpu_ms peak_memory output_start output_length value_start value_length".split(" ");
const TYPES =
  "int int int smallint int float8 float8 bigint bigint text boolean text bigint bigint int int int int".split(" ");

interface ResultColumns {
  readonly rare: boolean;
  readonly values: readonly Value[];
}

/** The rows as a source: `unnest($n::int[], …) AS r (w, idx, …)`, from parameter `first` on. */
export function resultRows(first: number, rare: boolean): string {
  const names = rare ? [...COLUMNS, ...RARE] : COLUMNS;
  const parameters = names.map((_, i) => `$${first + i}::${TYPES[i]}[]`);
  return `unnest(${parameters.join(", ")}) AS r (${names.join(", ")})`;
}

/** The parameter after the rows is all small output and all values, concatenated. */
export function rareColumns(first: number, rare: boolean): string {
  if (!rare) return new Array(RARE.length - 2).fill("NULL").join(", ");
  const bytes = `$${first + COLUMNS.length + RARE.length}::bytea`;
  return `r.signal, r.timed_out, r.error, r.cpu_ms, r.peak_memory,
    substring(${bytes} FROM r.output_start FOR r.output_length),
    substring(${bytes} FROM r.value_start FOR r.value_length)`;
}

/** The results of each write, one list behind the other. */
export function resultColumns(
  lists: readonly (readonly TaskResult[])[],
  workers: ReadonlyMap<string, number>,
): ResultColumns {
  const all = lists.flat();
  const from = lists.flatMap((results, at) => new Array<number>(results.length).fill(at + 1));
  const values = [
    numberArray(from),
    ...numberColumns(all, "index", "attempt"),
    numberArray(all.map(({ state }) => stateNumber(state))),
    numberArray(all.map(({ worker }) => workers.get(worker) ?? 0)),
    ...numberColumns(all, "started", "ended", "outputBytes", "code"),
  ];
  const hasRare = ({ signal, timedOut, error, cpuMs, peakMemory, output, value }: TaskResult): boolean =>
    (signal ?? timedOut ?? error ?? cpuMs ?? peakMemory ?? output ?? value) !== undefined;
  if (!all.some(hasRare)) return { rare: false, values };
  const bytes = new ConcatenatedBytes();
  const places = all.map(({ output }) => (output === undefined ? undefined : bytes.add(encodeSmallOutput(output))));
  const valuePlaces = all.map(({ value }) => (value === undefined ? undefined : bytes.add(value)));
  const rare = [
    ...textColumns(all, "signal"),
    booleanArray(all.map(({ timedOut }) => timedOut ?? null)),
    ...textColumns(all, "error"),
    ...numberColumns(all, "cpuMs", "peakMemory"),
    numberArray(places.map((place) => place?.start ?? null)),
    numberArray(places.map((place) => place?.length ?? null)),
    numberArray(valuePlaces.map((place) => place?.start ?? null)),
    numberArray(valuePlaces.map((place) => place?.length ?? null)),
    bytes.bytes,
  ];
  return { rare: true, values: [...values, ...rare] };
}

const RESULT_FIELDS = `
r.idx AS "index", r.attempt, r.state, coalesce(w.name, '') AS worker, r.started, r.ended,
  r.output_bytes AS "outputBytes", r.code, r.signal,
r.timed_out AS "timedOut", r.error, r.cpu_ms AS "cpuMs", r.peak_memory AS "peakMemory",
  octet_length(r.value) AS "valueBytes"`;

// Reading results, page by page.

/** Results without success have a partial index, which serves only queries with its condition. */
const conditionFor = (state: TaskEnd | undefined): string => {
  if (state === undefined) return "";
  const number = stateNumber(state);
  return number === 0 ? "AND r.state = 0" : `AND r.state <> 0 AND r.state = ${number}`;
};

/** $1 job, $2 from, $3 limit, $4 worker's name or null, $5 with small output, $6 with values up to this size. */
export const pageOfResults = (state?: TaskEnd): string => `
SELECT ${RESULT_FIELDS}, CASE WHEN $5::boolean THEN r.output END AS output,
  CASE WHEN octet_length(r.value) <= $6::int THEN r.value END AS value FROM laboro.result r
    LEFT JOIN laboro.worker w ON w.id = r.worker
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
SELECT (idx - $2::int) / $4::int AS cell, count(*) FILTER (WHERE state = 0) AS succeeded,
  count(*) FILTER (WHERE state = 1) AS failed,
  count(*) FILTER (WHERE state = 2) AS cancelled
FROM laboro.result WHERE job = $1::bigint AND idx BETWEEN $2::int AND $3::int
GROUP BY cell ORDER BY cell`;

/** $1 job. */
export const USAGE = `
SELECT trunc(4 * ln(greatest(ended - started, 1)::float8) / ln(2::float8) + 1e-9)::int AS step, count(*) AS tasks,
  sum(ended - started) AS "runMs", coalesce(sum(cpu_ms), 0)::float8 AS "cpuMs",
  coalesce(max(peak_memory), 0) AS "peakMemory", min(started) AS "firstStart"
FROM laboro.result WHERE job = $1::bigint AND idx BETWEEN $2::int AND $3::int GROUP BY step ORDER BY step`;

export async function readResults(session: Session, job: JobId, options: ResultOptions): Promise<ResultPage> {
  const { from, limit, filter = {}, withOutput = false, maxValue = -1 } = options;
  const worker = filter.worker === undefined ? null : validText(filter.worker);
  const read = (state?: TaskEnd) =>
    session.send<ResultRow>(pageOfResults(state), [job, from, limit + 1, worker, withOutput, maxValue]);
  const pages = await Promise.all(
    // Reads each state by its own index, in order, each up to the limit of the page.
    filter.states === undefined ? [read()] : END_STATES.filter((state) => filter.states?.includes(state)).map(read),
  );
  const rows = pages.length === 1 ? (pages[0] ?? []) : pages.flat().toSorted((a, b) => a.index - b.index);
  const results = rows.slice(0, limit).map(resultFrom);
  const beyond = rows[limit];
  return beyond === undefined ? { results } : { results, next: beyond.index };
}

export async function readEarlier(session: Session, job: JobId, index: TaskIndex): Promise<TaskResult[]> {
  return (await session.send<ResultRow>(EARLIER, [job, index])).map(resultFrom);
}
