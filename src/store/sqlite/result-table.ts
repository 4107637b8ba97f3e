/** The rows of finished attempts: `result` for the last one of a task, `earlier_attempt` for those before it. */
import type { JobId, TaskIndex } from "../../model/ids.js";
import { type Counters, END_STATES } from "../../model/job.js";
import { LISTED_VALUE, type TaskEnd, type TaskResult } from "../../model/outcome.js";
import type { Range } from "../../model/ranges.js";
import type { EndCounts, ResultOptions, TaskUsage } from "../../model/store-reads.js";
import { encodeSmallOutput, type ResultRow, resultFrom, stateNumber } from "../rows.js";
import type { Database, Statement } from "./database.js";

/** The table, with an index hint, and the condition for results of one state. */
export interface StateQuery {
  readonly table: string;
  readonly condition: string;
}

export const ANY_STATE: StateQuery = { table: "result", condition: "true" };

/**
 * Results without success have a partial index, which serves only a query with the condition of the index. The query
 * names it, because without statistics SQLite would use the primary key.
 */
export const stateQuery = (state: TaskEnd): StateQuery =>
  state === "succeeded"
    ? { table: "result", condition: "state = 0" }
    : { table: "result INDEXED BY result_unsuccessful", condition: `state <> 0 AND state = ${stateNumber(state)}` };

export const RESULT_COLUMNS = `job, idx, attempt, state, worker, started, ended, output_bytes, code, signal, timed_out,
  error, output, value, cpu_ms, peak_memory`;
const ONE_ROW = `(${RESULT_COLUMNS.split(",").fill("?").join(", ")})`;
/** Rows in one statement. More would not be faster per row. */
const ROWS = 16;

const insertInto = (table: "result" | "earlier_attempt", rows: number): string =>
  `INSERT INTO ${table} (${RESULT_COLUMNS}) VALUES ${new Array(rows).fill(ONE_ROW).join(", ")} ON CONFLICT DO NOTHING`;

const selectFrom = (table: "result" | "earlier_attempt", indexed: string, bytes: string): string => `
SELECT idx AS "index", attempt, state, worker.name AS worker, started, ended, output_bytes AS outputBytes, code, signal,
       timed_out AS timedOut, error, length(value) AS valueBytes, cpu_ms AS cpuMs, peak_memory AS peakMemory, ${bytes}
FROM ${indexed} JOIN worker ON worker.id = ${table}.worker`;

const PAGE_BYTES = "CASE WHEN ?5 THEN output END AS output, CASE WHEN length(value) <= ?6 THEN value END AS value";
// The worker's name is found once and not looked up for every row.
export const pageOfResults = ({ table, condition }: StateQuery): string => `
${selectFrom("result", table, PAGE_BYTES)}
WHERE job = ?1 AND idx >= ?2 AND (${condition})
  AND (?4 IS NULL OR result.worker = (SELECT id FROM worker WHERE name = ?4))
ORDER BY idx LIMIT ?3`;
const ENDS = `
SELECT CAST((idx - ?2) / ?4 AS INTEGER) AS cell, sum(state = 0) AS succeeded, sum(state = 1) AS failed,
  sum(state = 2) AS cancelled
FROM result WHERE job = ?1 AND idx BETWEEN ?2 AND ?3 GROUP BY cell ORDER BY cell`;
const USAGE = `
SELECT CAST(4 * log2(max(ended - started, 1)) + 1e-9 AS INTEGER) AS step, count(*) AS tasks,
  sum(ended - started) AS runMs, coalesce(sum(cpu_ms), 0) AS cpuMs,
  coalesce(max(peak_memory), 0) AS peakMemory, min(started) AS firstStart
FROM result WHERE job = ? AND idx BETWEEN ? AND ? GROUP BY step ORDER BY step`;
const LISTED_BYTES = `NULL AS output, CASE WHEN length(value) <= ${LISTED_VALUE} THEN value END AS value`;
const EARLIER = `
${selectFrom("earlier_attempt", "earlier_attempt", LISTED_BYTES)}
WHERE job = ? AND idx = ? ORDER BY attempt`;

export class ResultTable {
  readonly #names: WorkerNames;
  readonly #one: Statement;
  readonly #many: Statement;
  readonly #earlier: Statement;
  readonly #all: Statement;
  readonly #withState: ReadonlyMap<TaskEnd, Statement>;
  readonly #ends: Statement;
  readonly #usage: Statement;
  readonly #earlierOf: Statement;

  constructor(db: Database, names: WorkerNames) {
    this.#names = names;
    this.#one = db.prepare(insertInto("result", 1));
    this.#many = db.prepare(insertInto("result", ROWS));
    this.#earlier = db.prepare(insertInto("earlier_attempt", 1));
    this.#all = db.prepare(pageOfResults(ANY_STATE));
    this.#withState = new Map(END_STATES.map((state) => [state, db.prepare(pageOfResults(stateQuery(state)))]));
    this.#ends = db.prepare(ENDS);
    this.#usage = db.prepare(USAGE);
    this.#earlierOf = db.prepare(EARLIER);
  }

  /** Adds the results of tasks that have none yet, and returns how many of each kind there were. */
  insert(job: JobId, results: readonly TaskResult[]): Counters {
    const counters = { succeeded: 0, failed: 0, cancelled: 0 };
    let rest = results;
    // Rows of one state go together, because SQLite says only how many rows of a statement were new.
    while (rest[0] !== undefined) {
      const { state } = rest[0];
      const alike = rest.every((result) => result.state === state)
        ? rest
        : rest.filter((result) => result.state === state);
      counters[state] += this.#insertAlike(job, alike);
      rest = alike === rest ? [] : rest.filter((result) => result.state !== state);
    }
    return counters;
  }

  insertEarlierAttempts(job: JobId, results: readonly TaskResult[]): void {
    for (const result of results) {
      const values: Value[] = [];
      this.#pushRow(values, job, result);
      this.#earlier.run(...values);
    }
  }

  page(job: JobId, { from, limit, filter = {}, withOutput = false, maxValue = -1 }: ResultOptions): TaskResult[] {
    const { states, worker } = filter;
    const read = (page: Statement | undefined): ResultRow[] =>
      page?.all(job, from, limit, worker ?? null, Number(withOutput), maxValue) ?? [];
    if (states === undefined) return read(this.#all).map(resultFrom);
    // Reads each state by its own index, in order, each up to the limit of the page.
    const rows = [...new Set(states)].flatMap((state) => read(this.#withState.get(state)));
    rows.sort((a, b) => a.index - b.index);
    return rows.slice(0, limit).map(resultFrom);
  }

  endCounts(job: JobId, { first, last }: Range, cellSize: number): EndCounts[] {
    return this.#ends.all(job, first, last, cellSize);
  }

  usage(job: JobId, { first, last }: Range): TaskUsage[] {
    return this.#usage.all(job, first, last);
  }

  earlierAttempts(job: JobId, index: TaskIndex): TaskResult[] {
    const rows: ResultRow[] = this.#earlierOf.all(job, index);
    return rows.map(resultFrom);
  }

  #insertAlike(job: JobId, results: readonly TaskResult[]): number {
    let added = 0;
    let values: Value[] = [];
    let left = results.length;
    let many = 0;
    for (const result of results) {
      this.#pushRow(values, job, result);
      if (many === 0 && left < ROWS) {
        added += this.#one.run(...values).changes;
        values = [];
      } else if (++many === ROWS) {
        added += this.#many.run(...values).changes;
        values = [];
        many = 0;
      }
      left--;
    }
    return added;
  }

  #pushRow(values: Value[], job: JobId, result: TaskResult): void {
    const { code, signal, timedOut, error, output, value } = result;
    values.push(
      job,
      result.index,
      result.attempt,
      stateNumber(result.state),
      this.#names.numberOf(result.worker),
      result.started,
      result.ended,
      result.outputBytes,
      code ?? null,
      signal ?? null,
      timedOut === undefined ? null : Number(timedOut),
      error ?? null,
      output === undefined ? null : encodeSmallOutput(output),
      value ?? null,
      result.cpuMs ?? null,
      result.peakMemory ?? null,
    );
  }
}

type Value = number | string | Uint8Array | null;

/** Results name their worker by number; the names are kept once. */
const INSERT = "INSERT INTO worker (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = name RETURNING id";

export class WorkerNames {
  readonly #insert: Statement;
  readonly #numbers = new Map<string, number>();

  constructor(db: Database) {
    this.#insert = db.prepare(INSERT);
  }

  numberOf(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    const row: { id: number } = this.#insert.get(name);
    this.#numbers.set(name, row.id);
    return row.id;
  }

  /** After a rollback: numbers given in the lost transaction were never stored. */
  clear(): void {
    this.#numbers.clear();
  }
}
