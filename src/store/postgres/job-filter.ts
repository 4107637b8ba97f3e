/** The conditions that a filter on jobs stands for, with their values. */
import { badInput } from "../../base/errors.js";
import type { JobFilter } from "../../model/store.js";
import { numberArray, validText } from "./arrays.js";
import type { Value } from "./connections.js";
import { jobEndNumber } from "./job-rows.js";

export interface Condition {
  /** With a question mark for the value. */
  readonly sql: string;
  readonly value: Value;
  /** On a column of table job_state. */
  readonly ofState: boolean;
}

/** Each list is for a query of its own: together they find what the filter asks for, and nothing twice. */
export function conditionsOf(filter: JobFilter): Condition[][] {
  const { states, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  const conditions: Condition[] = [];
  const add = (sql: string, value: Value | undefined, ofState = false): void => {
    if (value !== undefined) conditions.push({ sql, value, ofState });
  };
  if (states !== undefined && !isOnlyOpen(states)) conditions.push(stateCondition(states));
  if (name?.includes("*")) add("name LIKE ?::text", pattern(name));
  else if (name !== undefined) add("name = ?::text", validText(name));
  add("pool = ?::text", pool === undefined ? undefined : validText(pool));
  add("key = ?::text", key === undefined ? undefined : validText(key));
  add("batch_key = ?::text", batchKey === undefined ? undefined : validText(batchKey));
  add("idempotency_key = ?::text", idempotencyKey === undefined ? undefined : validText(idempotencyKey));
  add("created >= ?::float8", createdFrom);
  add("created < ?::float8", createdBefore);
  add("ended_at < ?::float8", endedBefore, true);
  if (states === undefined || !isOnlyOpen(states)) return [conditions];
  return OPEN.map((sql) => [{ sql: `${sql} AND ?::boolean`, value: true, ofState: true }, ...conditions]);
}

type States = NonNullable<JobFilter["states"]>;

/** They have indexes of their own, which serve only conditions in their very words. So have jobs that did not succeed. */
const OPEN = ["ended_at IS NULL AND not_before IS NULL", "ended_at IS NULL AND not_before IS NOT NULL"];

const isOnlyOpen = (states: States): boolean => states.length > 0 && states.every((state) => state === "open");

function stateCondition(states: States): Condition {
  const ends = states.filter((state) => state !== "open").map(jobEndNumber);
  const ended = `${ends.includes(0) ? "" : "ended_state <> 0 AND "}ended_state = ANY(?::smallint[])`;
  const sql = ends.length === states.length ? ended : "(ended_at IS NULL OR ended_state = ANY(?::smallint[]))";
  return { sql, value: numberArray(ends), ofState: true };
}

const MAX_PATTERN_LENGTH = 10_000;

/** In LIKE a percent sign stands for any text, an underscore for any character. */
function pattern(name: string): string {
  if (name.length > MAX_PATTERN_LENGTH) {
    throw badInput(`a pattern for names of ${name.length} characters: at most ${MAX_PATTERN_LENGTH}`);
  }
  return validText(name)
    .replace(/[\\%_]/g, "\\$&")
    .replace(/\*+/g, "%");
}
