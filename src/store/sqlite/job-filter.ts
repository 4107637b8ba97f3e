/** The conditions that a filter on jobs stands for, with their values. */
import { badInput } from "../../base/errors.js";
import type { JobFilter } from "../../model/store.js";

export interface Condition {
  readonly sql: string;
  readonly value?: string | number;
}

/** Each list is for a query of its own: together they find what the filter asks for, and nothing twice. */
export function conditionsOf(filter: JobFilter): Condition[][] {
  const { states, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  const conditions: Condition[] = [];
  const add = (sql: string, value: string | number | undefined): void => {
    if (value !== undefined) conditions.push({ sql, value });
  };
  if (states !== undefined && !isOnlyOpen(states)) conditions.push(stateCondition(states));
  if (name !== undefined) add(name.includes("*") ? "name GLOB ?" : "name = ?", name.includes("*") ? glob(name) : name);
  add("pool = ?", pool);
  add("key = ?", key);
  add("batch_key = ?", batchKey);
  add("idempotency_key = ?", idempotencyKey);
  add("created >= ?", createdFrom);
  add("created < ?", createdBefore);
  add("ended_at < ?", endedBefore);
  if (states !== undefined && isOnlyOpen(states)) return OPEN.map((sql) => [{ sql }, ...conditions]);
  return [conditions];
}

type States = NonNullable<JobFilter["states"]>;

/** They have indexes of their own, which serve only conditions in their very words. */
const OPEN = ["ended_at IS NULL AND not_before IS NULL", "ended_at IS NULL AND not_before IS NOT NULL"];

const isOnlyOpen = (states: States): boolean => states.length > 0 && states.every((state) => state === "open");

function stateCondition(states: States): Condition {
  return {
    sql: "coalesce(ended_state, 'open') IN (SELECT value FROM json_each(?))",
    value: JSON.stringify(states),
  };
}

/** SQLite refuses patterns of more than 50,000 bytes. */
const MAX_PATTERN_LENGTH = 10_000;

/** In GLOB a question mark and a bracket mean something too; in brackets they stand for themselves. */
function glob(pattern: string): string {
  if (pattern.length > MAX_PATTERN_LENGTH) {
    throw badInput(`a pattern for names of ${pattern.length} characters: at most ${MAX_PATTERN_LENGTH}`);
  }
  return pattern.replace(/[?[]/g, "[$&]");
}
