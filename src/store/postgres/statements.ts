/** What the statements of a batch share. */
import { MAX_BACKOFF_MS } from "../../model/store.js";

/**
 * The broker that writes: known only within the transaction of its batch (commit-queue.ts). A statement that gets to another connection,
 * because its own broke, fails without it and changes nothing.
 */
export const OWN_EPOCH = "(SELECT current_setting('laboro.epoch')::bigint)";

/** Whether a released range may be leased now. */
export const dueAt = (notBefore: string, now: string): string =>
  `(${notBefore} <= ${now} OR ${notBefore} > ${now} + ${MAX_BACKOFF_MS})`;

/** Marks the job as changed, for the change feeds of other brokers (change-feed.ts). */
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
LEFT JOIN laboro.task_range p ON p.id = a.id AND p.epoch = ${OWN_EPOCH} AND ${condition}`;

/** The flags as the client gets them. */
export const flagsFrom = (text: string | null): boolean[] =>
  (text ?? "")
    .replace(/[{}]/g, "")
    .split(",")
    .map((one) => one === "t");
