/**
 * A schedule: a name, times, and a job that is submitted at each of them. A broker moves it from one time to the next.
 * The store accepts the move and the submission only if the schedule is unchanged since it was read.
 */
import type { JobId } from "./ids.js";
import { unexpectedValue } from "./input.js";
import { submission } from "./job-input.js";
import * as s from "./schema.js";
import type { Write, WriteResult } from "./store.js";

/** What to do at a scheduled time while the job of the last run is open. */
export const OVERLAPS = ["allow", "skip", "queue", "replace"] as const;
/** What to do about a scheduled time that passed while no broker could start its run. */
export const MISSED = ["once", "skip"] as const;

/** A run that is this late was missed. */
export const MISSED_AFTER_MS = 60_000;
export const MIN_EVERY_MS = 1_000;
const MAX_EVERY_MS = 10 * 366 * 86_400_000;
/** A larger job, as MessagePack, is refused, because it is read for each run. */
export const MAX_JOB_BYTES = 1024 * 1024;

/** Characters that are safe in a path, a shell and a key. */
export const scheduleName = s.mapped(s.described(s.text(64), "the name of the schedule"), (given, what) => {
  if (/^[A-Za-z0-9][\w.-]*$/.test(given)) return given;
  throw unexpectedValue(what, "a name of letters, digits, . _ and -, such as nightly", given);
});

/** Milliseconds since 1970, or text such as 2026-12-24T18:00:00Z. */
const time: s.Schema<number, number | string | Date> = {
  read: (value, what) => {
    const zoned = typeof value === "string" && /^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:\d\d)$/.test(value);
    const ms = zoned ? Date.parse(value) : value instanceof Date ? value.getTime() : value;
    if (typeof ms === "number" && Number.isFinite(ms) && ms >= 0 && ms <= 8.64e15) return ms;
    throw unexpectedValue(what, "milliseconds since 1970, or a time with its zone such as 2026-12-24T18:00:00Z", value);
  },
  json: () => ({ type: ["number", "string"] }),
};

/** The fields that determine the times. */
const times = {
  cron: s.optional(
    s.described(s.text(200), "minute hour day month weekday, with seconds before them if there are six"),
  ),
  timeZone: s.optional(s.described(s.text(64), "of the cron expression, such as Europe/Prague; UTC if absent")),
  everyMs: s.optional(s.integer(MIN_EVERY_MS, MAX_EVERY_MS, "instead of cron: the time between runs")),
  start: s.optional(s.described(time, "no run before this time")),
  end: s.optional(s.described(time, "no run after this time")),
  jitterMs: s.optional(s.integer(0, MAX_EVERY_MS, "each run starts up to this much later, by a random amount")),
};

const rules = {
  overlap: s.optional(s.described(s.choice(...OVERLAPS), "what to do while the last run is open; allow if absent")),
  missed: s.optional(
    s.described(s.choice(...MISSED), "what to do about runs that no broker could start in time; once if absent"),
  ),
  paused: s.optional(s.flag("starts nothing by itself; as it was, if absent")),
};

const job = s.described(submission, "what each run submits; without after, at, idempotencyKey and resumes");

/** A whole schedule. */
export const scheduleInput = s.object({ ...times, ...rules, job });
/** Changes of a schedule. Absent fields stay unchanged. */
export const scheduleEdit = s.object({ ...times, ...rules, job: s.optional(job) });

/** What `client.schedules.set` takes: times, rules, and the job that is submitted at each time. */
export type ScheduleInput = s.WrittenType<typeof scheduleInput>;
/** What `client.schedules.edit` takes. Absent fields stay unchanged. */
export type ScheduleEdit = s.WrittenType<typeof scheduleEdit>;

/** The points in time. Exactly one of `cron` and `everyMs` is set. */
export interface ScheduleTimes {
  readonly cron?: string;
  readonly timeZone?: string;
  readonly everyMs?: number;
  readonly start?: number;
  readonly end?: number;
  readonly jitterMs: number;
}

/** What a client asked for. */
export interface ScheduleSpec extends ScheduleTimes {
  readonly overlap: (typeof OVERLAPS)[number];
  readonly missed: (typeof MISSED)[number];
  readonly job: s.ReadType<typeof submission>;
}

/** A scheduled time that has passed. Without `skipped`, its job is the schedule's `lastJob`. */
export interface ScheduleRun {
  readonly due: number;
  readonly at: number;
  readonly skipped?: "overlap" | "missed" | "refused";
  readonly message?: string;
}

/** The part that changes with each run. */
export interface ScheduleState {
  readonly created: number;
  readonly changed: number;
  readonly paused: boolean;
  /** `every` counts from here if there is no start. */
  readonly anchor: number;
  /** The next point in time, without jitter. */
  readonly due?: number;
  readonly runs: number;
  readonly skipped: number;
  readonly last?: ScheduleRun;
}

export interface Schedule {
  readonly name: string;
  /** A random number that differs after each change. */
  readonly revision: number;
  /** When the next run starts, jitter included. Absent while paused and after the end. */
  readonly nextAt?: number;
  readonly spec: ScheduleSpec;
  readonly state: ScheduleState;
  /** The last job of a run, and the one before. Set by the store with the submission. */
  readonly lastJob?: JobId;
  readonly formerJob?: JobId;
}

/** A write that belongs to a run. */
export type RunWrite = Extract<Write, { op: "submit" | "cancel" }>;

/** A change of one schedule, made only if its revision is `expected` (0: none) and the store's clock is past `due`. */
export interface ScheduleChange {
  readonly name: string;
  readonly expected: number;
  readonly due?: number;
  /** Absent: the schedule is removed. Without `spec`, the spec stays unchanged. */
  readonly next?: Pick<Schedule, "revision" | "nextAt" | "state"> & { readonly spec?: ScheduleSpec };
  /** Made in the same transaction, if the change is made. */
  readonly writes: readonly RunWrite[];
}

export interface ScheduleChangeResult {
  readonly changed: boolean;
  /** One for each of `writes`; empty if nothing was changed. */
  readonly results: readonly WriteResult[];
}

/** Which schedules to read: one by its name, those that are due, or all in order of their names. */
export interface ScheduleQuery {
  readonly name?: string;
  readonly due?: boolean;
  readonly after?: string;
  readonly limit: number;
}

export interface SchedulePage {
  readonly schedules: readonly Schedule[];
  /** The store's clock. */
  readonly now: number;
  /** When the earliest run starts. */
  readonly earliest?: number;
}
