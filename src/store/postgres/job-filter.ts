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
}

export function conditionsOf(filter: JobFilter): Condition[] {
  const { states, name, pool, key, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  const conditions: Condition[] = [];
  const add = (sql: string, value: Value | undefined): void => {
    if (value !== undefined) conditions.push({ sql, value });
  };
  if (states !== undefined) conditions.push(stateCondition(states));
  if (name?.includes("*")) add("name LIKE ?::text", pattern(name));
  else if (name !== undefined) add("name = ?::text", validText(name));
  add("pool = ?::text", pool === undefined ? undefined : validText(pool));
  add("key = ?::text", key === undefined ? undefined : validText(key));
  add("idempotency_key = ?::text", idempotencyKey === undefined ? undefined : validText(idempotencyKey));
  add("created >= ?::float8", createdFrom);
  add("created < ?::float8", createdBefore);
  add("ended_at < ?::float8", endedBefore);
  return conditions;
}

/** Open jobs have an index of their own, which serves only a condition in its very words. */
function stateCondition(states: NonNullable<JobFilter["states"]>): Condition {
  const ends = states.filter((state) => state !== "open").map(jobEndNumber);
  if (ends.length === states.length) return { sql: "ended_state = ANY(?::smallint[])", value: numberArray(ends) };
  if (ends.length === 0) return { sql: "ended_at IS NULL AND ?::boolean", value: true };
  return { sql: "(ended_at IS NULL OR ended_state = ANY(?::smallint[]))", value: numberArray(ends) };
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
