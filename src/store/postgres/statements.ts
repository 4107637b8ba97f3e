/** What the statements of a batch share, and values in the form that parameters have. */
import type { Range, Ranges } from "../../model/ranges.js";

/**
 * The writing broker: known only within the transaction of its batch (commit-queue.ts). A statement that reaches
 * another connection, because its own broke, fails without it and changes nothing.
 */
export const OWN_EPOCH = "(SELECT current_setting('laboro.epoch')::bigint)";

/**
 * Whether this broker owns a task range, looked up by id. Written so that the index on `epoch` does not apply: in a
 * small or new database the planner would prefer it and read all task ranges of this broker, dead rows included, for
 * each id.
 */
export const owned = (taskRange: string): string => `coalesce(${taskRange}.epoch, 0) = ${OWN_EPOCH}`;

/** Whether the state of a job, looked up by id, is open. For the same reason the index of open jobs does not apply. */
export const isOpen = (state: string): string => `coalesce(${state}.ended_at, -1) < 0`;

/** Whether the released range `p` may be leased now. */
export const dueAt = (now: string): string =>
  `(p.not_before <= ${now} OR p.not_before > ${now} + coalesce(p.wait_ms, 0))`;

/** Marks jobs as changed, for the change feeds of other brokers (change-feed.ts). `jobs` selects their numbers. */
export const markChanged = (jobs: string): string =>
  `UPDATE laboro.job_state SET ${SET_CHANGED} WHERE job IN (${jobs})`;

export const SET_CHANGED = `changed_xid = pg_current_xact_id(),
  changed_by = CASE changed_by WHEN ${OWN_EPOCH} THEN changed_by ELSE 0 END`;

/** Adds to this broker's own counters of jobs. `from` selects job, bytes and the three counters. */
export const addToJobCounters = (from: string): string => `
INSERT INTO laboro.job_counters AS t (job, epoch, bytes, succeeded, failed, cancelled)
SELECT job, ${OWN_EPOCH}, bytes, succeeded, failed, cancelled FROM ${from}
ON CONFLICT (job, epoch) DO UPDATE SET bytes = t.bytes + excluded.bytes, succeeded = t.succeeded + excluded.succeeded,
  failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled`;

/** For each task range of an array parameter whether this broker owns it; to be looked up by position. */
export const ownFlags = (parameter: string): string => `
SELECT array_agg(p.id IS NOT NULL ORDER BY a.n) AS flags
FROM unnest(${parameter}::bigint[]) WITH ORDINALITY AS a (id, n)
LEFT JOIN laboro.task_range p ON p.id = a.id AND ${owned("p")}`;

/** Decodes the flags. */
export const flagsFrom = (text: string | null): boolean[] =>
  (text ?? "")
    .replace(/[{}]/g, "")
    .split(",")
    .map((one) => one === "t");

// Columns of values as arrays in PostgreSQL's own text form, and task ranges as multiranges.

export const numberArray = (list: readonly (number | null)[]): string =>
  `{${list.map((one) => one ?? "NULL").join(",")}}`;

type FieldsOf<T, Value> = { [Key in keyof T]-?: T[Key] extends Value | null | undefined ? Key : never }[keyof T];

/** An array of each of these fields. */
export const numberColumns = <T>(list: readonly T[], ...fields: readonly FieldsOf<T, number>[]): string[] =>
  fields.map((field) => numberArray(list.map((one) => (one[field] as number | undefined) ?? null)));

export const textColumns = <T>(list: readonly T[], ...fields: readonly FieldsOf<T, string>[]): string[] =>
  fields.map((field) => textArray(list.map((one) => (one[field] as string | undefined) ?? null)));

export const booleanArray = (list: readonly (boolean | null)[]): string =>
  `{${list.map((one) => (one === null ? "NULL" : one ? "t" : "f")).join(",")}}`;

export const textArray = (list: readonly (string | null)[]): string =>
  `{${list.map((one) => (one === null ? "NULL" : `"${validText(one).replace(/["\\]/g, "\\$&")}"`)).join(",")}}`;

/** PostgreSQL's text allows no NUL, and UTF-8 no lone surrogate. */
export const validText = (text: string): string => text.replaceAll("\0", "\ufffd").replace(/\p{Surrogate}/gu, "\ufffd");

/** The last number that a range of PostgreSQL's integers can end with. */
const MAX_INDEX = 2 ** 31 - 2;

export const multirange = (ranges: Iterable<Range>): string => {
  const parts: string[] = [];
  for (const range of ranges) {
    const [first, last] = [Math.max(0, range.first), Math.min(MAX_INDEX, range.last)];
    if (last >= first) parts.push(`[${first},${last + 1})`);
  }
  return `{${parts.join(",")}}`;
};

export function rangesFrom(text: string | null): Ranges {
  const ranges: Range[] = [];
  for (const [, first, end] of (text ?? "").matchAll(/\[(-?\d+),(-?\d+)\)/g)) {
    ranges.push({ first: Number(first), last: Number(end) - 1 });
  }
  return ranges;
}

/** Many byte strings as one parameter, with the start (from 1, as PostgreSQL counts) and length of each. */
export class ConcatenatedBytes {
  readonly #parts: Uint8Array[] = [];
  readonly starts: number[] = [];
  readonly lengths: number[] = [];
  #size = 0;

  add(bytes: Uint8Array): { readonly start: number; readonly length: number } {
    const start = this.#size + 1;
    const { length } = bytes;
    this.#parts.push(bytes);
    this.starts.push(start);
    this.lengths.push(length);
    this.#size += length;
    return { start, length };
  }

  /** A copy. */
  get bytes(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}
