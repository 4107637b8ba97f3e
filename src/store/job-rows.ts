/** Jobs as rows, and filters on jobs; the same for both engines. */
import { badInput } from "../base/errors.js";
import type { JobId } from "../model/ids.js";
import { currentSpec, type Job, type JobEnd, type JobSpec } from "../model/job.js";
import type { Ranges } from "../model/ranges.js";
import type { JobFilter } from "../model/store-reads.js";

/** A job as its row has it. `Flag` and `End`: how the engine stores booleans and end states. */
export interface JobColumns<Flag, End> {
  readonly id: JobId;
  readonly created: number;
  /** A JobSpec as MessagePack, because it may contain bytes. */
  readonly spec: Uint8Array;
  readonly hasEntries: Flag;
  readonly held: Flag;
  readonly cursor: number;
  readonly cancels: string;
  readonly reason: string | null;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly endedAt: number | null;
  readonly endedState: End | null;
  readonly notBefore: number | null;
  readonly count: number;
  readonly open: Flag;
  readonly changes: string | null;
}

export function jobFromColumns<Flag, End>(
  row: JobColumns<Flag, End>,
  decoded: { readonly spec: JobSpec; readonly cancels: Ranges; readonly ended: JobEnd | undefined },
): Job {
  const { id, created, cursor, reason, succeeded, failed, cancelled, endedAt, count } = row;
  const changes = row.changes === null ? null : JSON.parse(row.changes);
  return {
    ...currentSpec(decoded.spec, { count, open: Boolean(row.open), changes }),
    ...{ id, created, cursor, held: Boolean(row.held), hasEntries: Boolean(row.hasEntries) },
    cancels: decoded.cancels,
    ...(reason === null ? {} : { reason }),
    counters: { succeeded, failed, cancelled },
    ...(row.notBefore === null || endedAt !== null ? {} : { delayed: true }),
    ...(endedAt === null || decoded.ended === undefined ? {} : { ended: { at: endedAt, state: decoded.ended } }),
  };
}

export type States = NonNullable<JobFilter["states"]>;

/** Each index of open jobs serves only queries with literally its own condition. */
export const OPEN_CONDITIONS = [
  "ended_at IS NULL AND not_before IS NULL",
  "ended_at IS NULL AND not_before IS NOT NULL",
];

export const isOnlyOpen = (states: States): boolean => states.length > 0 && states.every((state) => state === "open");

/** SQLite refuses patterns of more than 50,000 bytes. */
const MAX_PATTERN_LENGTH = 10_000;

export function checkPattern(pattern: string): void {
  if (pattern.length <= MAX_PATTERN_LENGTH) return;
  throw badInput(`a pattern for names of ${pattern.length} characters: at most ${MAX_PATTERN_LENGTH}`);
}
