/**
 * Named limits: a maximum of running tasks, a maximum of starts within any interval, or both. A job names the limits
 * that its tasks count against. The rules are stored as texts under their names.
 */
import { unexpectedValue } from "./input.js";
import * as s from "./schema.js";

export interface Rate {
  readonly starts: number;
  readonly intervalMs: number;
}

export interface LimitRule {
  /** At most this many tasks at workers. */
  readonly running?: number;
  readonly rate?: Rate;
}

/** The bucket of the store with the rules. */
export const LIMIT_BUCKET = "limit";
/** How many limits one job may name. */
export const MAX_LIMITS_OF_JOB = 20;
const MAX_AT_ONCE = 1_000_000_000;
const MAX_STARTS = 1_000_000_000;
const MAX_INTERVAL_MS = 366 * 24 * 3_600_000;

/** Other characters are reserved for people, lists and laboro itself. */
export const limitName = s.mapped(s.text(100), (given, what) => {
  if (/^[A-Za-z0-9][A-Za-z0-9._:@-]*$/.test(given)) return given;
  throw unexpectedValue(what, "letters, digits and . _ : @ -, a letter or digit first", given);
});

export const limitRule = {
  running: s.optional(s.integer(0, MAX_AT_ONCE, "at most this many tasks run at a time; 0 starts none")),
  rate: s.optional(
    s.described(
      s.object({ starts: s.integer(1, MAX_STARTS), intervalMs: s.integer(1, MAX_INTERVAL_MS) }),
      "at most this many tasks are started within any interval of this length",
    ),
  ),
};

export const ruleFrom = (stored: string): LimitRule => JSON.parse(stored) as LimitRule;

/** Up to this rate each start is recorded. Those of a higher rate are recorded in so many steps of the interval. */
const MAX_KEPT_STARTS = 1_000;

/** The time of a start as recorded: rounded up, so that none is forgotten before its interval has passed. */
export function startTime({ starts, intervalMs }: Rate, at: number): number {
  if (starts <= MAX_KEPT_STARTS) return at;
  const step = intervalMs / MAX_KEPT_STARTS;
  return Math.ceil(at / step) * step;
}

/** Starts recorded under one time. */
export interface LimitStart {
  readonly name: string;
  readonly at: number;
  readonly count: number;
}

/** The limits of a task range in a shared store: the named ones, and `#JOB` for the job's own `maxRunning`. */
export function limitKeys(
  job: number,
  { limits = [], maxRunning }: { readonly limits?: readonly string[]; readonly maxRunning?: number },
): string[] {
  return maxRunning === undefined ? [...limits] : [...limits, `#${job}`];
}

/** The use of a limit in a group of brokers. */
export interface LimitUse {
  readonly name: string;
  readonly rule: LimitRule;
  /** Tasks at workers. */
  readonly running: number;
  /** Leased tasks that no worker has yet: each may start at any moment. */
  readonly leased: number;
  /** Starts within the interval of its rate. */
  readonly starts: number;
  /** When the oldest start leaves the interval, in milliseconds from now. */
  readonly nextMs?: number;
}

/** How many more tasks may be leased; negative after a limit was lowered. */
export const roomLeft = ({ rule: { running: most, rate }, running, leased, starts }: LimitUse): number =>
  Math.min((most ?? Number.POSITIVE_INFINITY) - running, (rate?.starts ?? Number.POSITIVE_INFINITY) - starts) - leased;
