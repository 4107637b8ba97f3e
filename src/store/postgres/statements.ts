/** What the statements of a batch share. */

/**
 * The broker that writes: known only within the transaction of its batch (commit-queue.ts). A statement that gets to another connection,
 * because its own broke, fails without it and changes nothing.
 */
export const OWN_EPOCH = "(SELECT current_setting('laboro.epoch')::bigint)";

/**
 * Whether this broker owns a task range that is looked up by its id. Not in the words of the index on `epoch`: in a small or new database
 * the planner would prefer that index and read all task ranges of this broker, dead rows included, for each of the ids.
 */
export const owned = (taskRange: string): string => `coalesce(${taskRange}.epoch, 0) = ${OWN_EPOCH}`;

/** Whether the state of a job that is looked up by its id is open; for the same reason not in the words of the index of open jobs. */
export const isOpen = (state: string): string => `coalesce(${state}.ended_at, -1) < 0`;

/** Whether the released range `p` may be leased now. */
export const dueAt = (now: string): string =>
  `(p.not_before <= ${now} OR p.not_before > ${now} + coalesce(p.wait_ms, 0))`;

/** Marks jobs as changed, for the change feeds of other brokers (change-feed.ts): `jobs` gives their numbers. */
export const markChanged = (jobs: string): string =>
  `UPDATE laboro.job_state SET ${SET_CHANGED} WHERE job IN (${jobs})`;

export const SET_CHANGED = `changed_xid = pg_current_xact_id(), changed_by = CASE changed_by WHEN ${OWN_EPOCH} THEN changed_by ELSE 0 END`;

/** Adds to this broker's own counters of jobs: `from` gives rows of job, bytes and the three counters. */
export const addToJobCounters = (from: string): string => `
INSERT INTO laboro.job_counters AS t (job, epoch, bytes, succeeded, failed, cancelled)
SELECT job, ${OWN_EPOCH}, bytes, succeeded, failed, cancelled FROM ${from}
ON CONFLICT (job, epoch) DO UPDATE SET bytes = t.bytes + excluded.bytes, succeeded = t.succeeded + excluded.succeeded,
  failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled`;

/** For each task range of an array parameter whether this broker owns it; to be looked up by position. */
export const ownFlags = (parameter: string, condition = "true"): string => `
SELECT array_agg(p.id IS NOT NULL ORDER BY a.n) AS flags
FROM unnest(${parameter}::bigint[]) WITH ORDINALITY AS a (id, n)
LEFT JOIN laboro.task_range p ON p.id = a.id AND ${owned("p")} AND ${condition}`;

/** The flags as the client gets them. */
export const flagsFrom = (text: string | null): boolean[] =>
  (text ?? "")
    .replace(/[{}]/g, "")
    .split(",")
    .map((one) => one === "t");
